"""Tables: one reader and one writer of TSV and CSV files, one rule for their cells, and columns as JSON holds them.

A cell is a number where its whole column is, else text; codes such as 007 stay text. What is not known is written
"n/a", as BIDS has it, and read from any of `MISSING`.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import ArgumentError, CohortError, Phrase, literal
from icofactor.io.atomic import atomic_path
from icofactor.io.guard import Unreadable, brief, check_regular, read_bytes

MISSING = ("", "n/a", "na", "nan", "none", "null")
"""Cells that say that nothing is known, in whichever case."""
_MAX_BYTES, _MAX_COLUMNS = 2**26, 10_000
_EXCEL = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # .xlsx, .xls
_CODE = re.compile(r"0\d+")
_WHOLE = re.compile(r"[+-]?\d{1,15}")
_BREAKS = "\t\n\r"
Column = dict[str, Any]
"""A column in JSON: {"dtype", "values"}, where dtype is "text" or a type of number."""


# ---------------------------------------------------------------------- files


def read_table(path: Path) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """The columns of a TSV or CSV file as text, and the file's path, checksum and size.

    Raises
    ------
    Unreadable, OSError; `naming` adds the file's name.
    """
    check_regular(path)
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise Unreadable(f"is too large for a table ({size} bytes)")
    data = read_bytes(path)
    if data.startswith(_EXCEL):
        raise Unreadable("is an Excel workbook; save it as CSV or TSV")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise Unreadable(f"is not text in UTF-8 (byte {problem.start}); save the table as UTF-8") from None
    if "\0" in text:
        raise Unreadable("is not a table of text: it holds NUL characters, as UTF-16 and binary files do")
    return _columns(text), {"path": str(path), "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def _columns(text: str) -> dict[str, list[str]]:
    import pandas as pd

    lines = text.splitlines()
    if not any(line.strip() for line in lines):
        raise Unreadable("is empty")
    if ";" in lines[0] and "\t" not in lines[0] and "," not in lines[0]:
        raise Unreadable("its columns are separated by semicolons; save it with tabs (TSV) or commas (CSV)")
    delimiter = "\t" if "\t" in lines[0] or "," not in lines[0] else ","
    width = 1 + max(line.count(delimiter) for line in lines)
    if width > _MAX_COLUMNS:
        raise Unreadable(f"has a row of {width} cells; tables of at most {_MAX_COLUMNS} columns are read")
    try:
        # wide enough for every row: a cell beyond the header is seen, not lost
        cells = pd.read_csv(
            io.StringIO("\n".join(lines)),
            sep=delimiter,
            header=None,
            names=range(width),
            index_col=False,
            dtype=str,
            keep_default_na=False,
            na_values=[],
            engine="python",
        )
    except (ValueError, pd.errors.ParserError) as problem:
        raise Unreadable(
            f"is not a table of cells ({literal(brief(problem))}); is a quotation mark left open?"
        ) from None
    rows = [[cell.strip() for cell in row if isinstance(cell, str)] for row in cells.to_numpy().tolist()]
    header, *body = [row for row in rows if any(row)]
    for number, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise Unreadable(f"row {number} has {len(row)} cells; the first row has {len(header)}")
    if len(set(header)) != len(header):
        raise Unreadable("two columns have the same name")
    return {name: [row[i] for row in body] for i, name in enumerate(header)}


def write_tsv(path: str | Path, columns: Mapping[str, ArrayLike], *, overwrite: bool = False) -> Path:
    """A table with one header line; None and NaN become "n/a", as BIDS has it.

    Parameters
    ----------
    columns : name → one value per row; all of the same length.
    """
    import pandas as pd

    if not columns:
        raise ArgumentError("columns", None, "at least one column; it is empty")
    values = {str(name): np.asarray(column) for name, column in columns.items()}
    for name, column in values.items():
        if column.ndim != 1:
            raise ArgumentError("columns", Phrase(f"shape {column.shape} in {name!r}"), "of one dimension each")
        if column.dtype.kind not in "biuf":
            _check_cells(column.tolist())
    _check_cells(values)
    lengths = {name: len(column) for name, column in values.items()}
    if len(set(lengths.values())) > 1:
        raise ArgumentError("columns", lengths, "equally long")
    # str of a NumPy number has just the digits that are needed to read the same number back
    frame = pd.DataFrame({name: [_cell(value) for value in column] for name, column in values.items()}, dtype=object)
    with atomic_path(path, overwrite) as temporary:
        frame.to_csv(temporary, sep="\t", index=False, lineterminator="\n", encoding="utf-8")
    return Path(path)


def _check_cells(cells: Iterable[Any]) -> None:
    for cell in cells:
        if isinstance(cell, str) and any(character in cell for character in _BREAKS):
            raise ArgumentError("columns", cell, "without tabs and line breaks, which a table's cell cannot hold")


def _cell(value: Any) -> str:
    return "n/a" if _unknown(value) else str(value)


def _unknown(value: Any) -> bool:
    return value is None or (isinstance(value, (float, np.floating)) and math.isnan(value))


# ---------------------------------------------------------------------- cells


def is_missing(cell: str) -> bool:
    """Whether a cell says that nothing is known."""
    return cell.lower() in MISSING


def is_number(cell: str) -> bool:
    """Whether a cell is a finite number."""
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def cell_text(value: Any) -> str:
    """A value as a cell: None is "", and 2, 2.0 and "2" are the same, however the table was read."""
    if value is None:
        return ""
    text = str(value).strip()
    return str(int(float(text))) if is_number(text) and float(text).is_integer() else text


def typed(cells: Sequence[str]) -> NDArray[Any]:
    """A column: numbers where all known cells are numbers, else text; codes such as 007 stay text."""
    known = [cell for cell in cells if not is_missing(cell)]
    if not known or any(_CODE.fullmatch(cell) for cell in known):
        return np.array(cells)
    try:
        numbers = np.array([math.nan if is_missing(cell) else float(cell) for cell in cells])
    except ValueError:
        return np.array(cells)
    whole = len(known) == len(cells) and all(_WHOLE.fullmatch(cell) for cell in known)
    return numbers.astype(np.int64) if whole else numbers


# ---------------------------------------------------------------------- columns in JSON


def encode_column(name: str, values: ArrayLike | Sequence[Any]) -> Column:
    """A column as JSON holds it; what is not known is None."""
    # a list of text and NaN must not become text all over
    listed: Any = values
    array = listed if isinstance(listed, np.ndarray) else np.array(list(listed), dtype=np.object_)
    if array.ndim != 1:
        raise ArgumentError(
            "participants", Phrase(f"shape {array.shape} in {name!r}"), "columns of one dimension, a value per subject"
        )
    if array.dtype == object and all(isinstance(value, int | float | np.number) for value in array):
        array = np.array(array.tolist())
    if array.dtype.kind in "biuf":
        return {"dtype": array.dtype.name, "values": [_number(name, value) for value in array.tolist()]}
    found = [None if _unknown(value) else value for value in array.tolist()]
    if all(value is None or isinstance(value, int | float) for value in found):
        return {"dtype": "float64", "values": [None if value is None else _number(name, value) for value in found]}
    return {"dtype": "text", "values": [None if value is None else str(value) for value in found]}


def _number(name: str, value: float) -> float | None:
    if isinstance(value, float) and math.isinf(value):
        raise ArgumentError("participants", Phrase(f"{value} in {name!r}"), "finite or missing in every column")
    return None if _unknown(value) else value


def decode_column(column: Mapping[str, Any]) -> NDArray[Any]:
    """The column as it was: missing numbers are NaN, missing text is None."""
    values = list(column["values"])
    if column["dtype"] == "text":
        complete = all(isinstance(value, str) for value in values)
        return np.array(values, dtype=str if complete else object)
    dtype = np.dtype(column["dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"a column holds {column['dtype']!r}, neither text nor numbers")
    if dtype.kind == "f":
        values = [math.nan if value is None else value for value in values]
    return np.array(values, dtype=dtype)


def join_columns(name: str, old: Column, new: Column) -> Column:
    """Two pieces of one column, one after the other."""
    pieces = [piece for piece in (old, new) if any(value is not None for value in piece["values"])]
    kinds = {piece["dtype"] == "text" for piece in pieces}
    if len(kinds) > 1:
        first, second = ("text" if piece["dtype"] == "text" else "numbers" for piece in (old, new))
        what = f"column {literal(repr(name))} holds {first} for the first subjects and {second} for others"
        raise CohortError("participants", what)
    values = [*old["values"], *new["values"]]
    if True in kinds:
        return {"dtype": "text", "values": values}
    dtype = np.result_type(*(np.dtype(piece["dtype"]) for piece in (old, new) if piece["dtype"] != "text"))
    if dtype.kind != "f" and None in values:
        dtype = np.dtype(np.float64)
    return {"dtype": dtype.name, "values": values}


# ---------------------------------------------------------------------- records


def write_json(path: str | Path, obj: Any, *, overwrite: bool = False) -> Path:
    """JSON with NumPy numbers and arrays as plain ones; NaN and infinity, which JSON lacks, become null."""
    text = json.dumps(plain(obj), indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_path(path, overwrite) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8", newline="\n")
    return Path(path)


def plain(obj: Any) -> Any:
    """The same in dicts, lists, strings, numbers, booleans and None."""
    if isinstance(obj, Mapping):
        return {str(key): plain(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple, set, frozenset)):
        return [plain(value) for value in obj]
    if isinstance(obj, (np.ndarray, np.generic)):
        return plain(obj.tolist())
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    if obj is None or isinstance(obj, (str, int, bool)):
        return obj
    if isinstance(obj, Path):
        return str(obj)
    raise ValueError(f"JSON cannot hold a {type(obj).__name__}: {obj!r}")


def numbered(word: str, n: int) -> list[str]:
    """ "component01", "component02", ..."""
    width = max(2, len(str(n)))
    return [f"{word}{i + 1:0{width}d}" for i in range(n)]
