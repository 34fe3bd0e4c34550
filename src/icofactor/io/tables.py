"""Tables: one reader and one writer of TSV and CSV files, one rule for their cells, and columns as
JSON holds them.

A cell is a number where its whole column is, else text; codes such as 007 stay text. What is not
known is written "n/a", as BIDS has it, and read from any of `MISSING`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import UNSAFE, ArgumentError, CohortError, Phrase, escaped, literal
from icofactor.io.atomic import atomic_path
from icofactor.io.guard import Unreadable, brief, check_regular, read_bytes

MISSING = ("", "n/a", "na", "nan", "none", "null")
"""Cells that say that nothing is known, in whichever case."""
MAX_BYTES, MAX_COLUMNS, MAX_CELLS, MAX_CELL = 2**26, 10_000, 3_000_000, 30_000
"""Of a table: bytes, columns, cells, and characters of one cell."""
_MAX_LINE = 2**22
_HALVES = re.compile("[\ud800-\udfff]")
_ODD = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\"]")
# NumPy gives every cell of a column of text the room of the longest
_MAX_PADDED = 2**22
_DIGITS = 10
_EXCEL = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # .xlsx, .xls
_CODE = re.compile(r"0\d+")
_WHOLE = re.compile(r"[+-]?\d{1,15}")
_BREAKS = re.compile("[\t\n\r\v\f\x85\u2028\u2029]+")
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
    if size > MAX_BYTES:
        raise Unreadable(f"is too large for a table ({size} bytes; at most {MAX_BYTES} are read)")
    data = read_bytes(path)
    if data.startswith(_EXCEL):
        raise Unreadable("is an Excel workbook; save it as CSV or TSV")
    if not data.removeprefix(b"\xef\xbb\xbf").strip():
        raise Unreadable("is empty")
    return _columns(data), {
        "path": str(path),
        "sha256": hashlib.sha256(data).hexdigest(),
        "bytes": len(data),
    }


def _columns(data: bytes) -> dict[str, list[str]]:
    first = re.split(b"[\r\n]", data, maxsplit=1)[0]
    if b";" in first and b"\t" not in first and b"," not in first:
        raise Unreadable(
            "its columns are separated by semicolons; save it with tabs (TSV) or commas (CSV)"
        )
    delimiter = "\t" if b"\t" in first or b"," not in first else ","
    _check_size(data, delimiter.encode())
    header: list[str] = []
    columns: list[list[str]] = []
    n_rows = 0
    try:
        for row in csv.reader(
            io.TextIOWrapper(io.BytesIO(data), "utf-8-sig", newline=""),
            delimiter=delimiter,
            strict=True,
        ):
            text = "".join(row)
            if not text or text.isspace():
                continue
            n_rows += 1
            if not header:
                if len(row) > MAX_COLUMNS:
                    raise Unreadable(
                        f"has a row of {len(row)} cells; tables of at most {MAX_COLUMNS} columns are read"
                    )
                header, columns = row, [[] for _ in row]
            elif len(row) != len(header):
                raise Unreadable(
                    f"row {n_rows} has {len(row)} cells; the first row has {len(header)}"
                )
            else:
                for column, cell in zip(columns, row, strict=True):
                    column.append(cell)
    except csv.Error as problem:
        raise Unreadable(
            f"is not a table ({literal(brief(problem))}); is a quotation mark not closed?"
        ) from None
    except UnicodeDecodeError:
        raise Unreadable(
            f"is not text in UTF-8 (byte {_broken(data)}); save the table as UTF-8"
        ) from None
    if b"\0" in data:
        raise Unreadable(
            "is not a text table: it contains NUL characters, like UTF-16 and binary files"
        )
    odd = not data.isascii() or _ODD.search(data) is not None
    header = [_cleaned([name], "the name of a column", odd)[0] for name in header]
    twice = [name for name, n in Counter(header).items() if n > 1]
    if twice:
        raise Unreadable(
            f"two columns have the same name ({literal(escaped(repr(twice[0][:60])))}); rename one of them"
        )
    return {
        name: _cleaned(column, f"column {name!r}", odd)
        for name, column in zip(header, columns, strict=True)
    }


def _check_size(data: bytes, delimiter: bytes) -> None:
    """Refuse what has too many cells before any is made: each takes many times its bytes."""
    n_cells = data.count(delimiter) + max(data.count(b"\n"), data.count(b"\r"))
    if n_cells > MAX_CELLS:
        raise Unreadable(f"has {n_cells} cells, too many for a table: at most {MAX_CELLS} are read")
    for place in range(0, len(data) - _MAX_LINE, _MAX_LINE):
        piece = data[place : place + _MAX_LINE]
        if b"\n" not in piece and b"\r" not in piece:
            raise Unreadable(
                f"has a row of more than {_MAX_LINE} bytes, too long for a table; check its origin"
            )


def _broken(data: bytes) -> int:
    try:
        data.decode()
    except UnicodeDecodeError as problem:
        return problem.start
    return 0


def _cleaned(cells: list[str], where: str, odd: bool) -> list[str]:
    """Cells without the spaces around them; breaks within quotes become spaces, controls are
    refused.
    """
    found = [cell.strip() for cell in cells]
    longest = max(map(len, found), default=0)
    if longest > MAX_CELL:
        raise Unreadable(
            f"{literal(escaped(where))} has a cell of {longest} characters; at most {MAX_CELL} are read"
        )
    if odd:
        found = [cell if cell.isprintable() else _BREAKS.sub(" ", cell) for cell in found]
        for cell in found:
            control = None if cell.isprintable() else UNSAFE.search(cell)
            if control:
                what = f"contains the control character {escaped(control[0])}"
                raise Unreadable(
                    f"{literal(escaped(where))} {what} (in {literal(escaped(repr(cell[:60])))}); remove it"
                )
    return found


def write_tsv(
    path: str | Path,
    columns: Mapping[str, ArrayLike],
    *,
    overwrite: bool = False,
    digits: int | None = _DIGITS,
) -> Path:
    """Write a table with one header line; None and NaN become "n/a", as in BIDS.

    Parameters
    ----------
    path : path
        File to write.
    columns : mapping
        Column name → one value per row.
    digits : int or None
        Significant digits of computed float64 numbers; None writes as many as are needed to read
        the same numbers back.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> path = write_tsv(f"{folder}/people.tsv", {"participant_id": ["sub-1", "sub-2"], "age": [30, None]})
    >>> path.read_text().split()
    ['participant_id', 'age', 'sub-1', '30', 'sub-2', 'n/a']
    """
    import pandas as pd

    if not columns:
        raise ArgumentError("columns", None, "at least one column; it is empty")
    values = {str(name): np.asarray(column) for name, column in columns.items()}
    for name, column in values.items():
        if column.ndim != 1:
            raise ArgumentError(
                "columns", Phrase(f"shape {column.shape} in {name!r}"), "of one dimension each"
            )
        if column.dtype.kind not in "biuf":
            _check_cells(column.tolist())
    _check_cells(values)
    lengths = {name: len(column) for name, column in values.items()}
    if len(set(lengths.values())) > 1:
        raise ArgumentError("columns", lengths, "equally long")
    frame = pd.DataFrame(
        {name: _cells(column, digits) for name, column in values.items()}, dtype=object
    )
    with atomic_path(path, overwrite) as temporary:
        frame.to_csv(temporary, sep="\t", index=False, lineterminator="\n", encoding="utf-8")
    return Path(path)


GIVEN = "As in the participants table"
"""What is said of columns that are the user's own."""
_PEOPLE = {
    "participant_id": "Person",
    "session_id": "Session of the person",
    "measure": "Measure of the person",
}


def write_table(
    path: str | Path,
    columns: Mapping[str, ArrayLike],
    about: Mapping[str, str | Mapping[str, str]],
    more: Mapping[str, Any] | None = None,
    *,
    overwrite: bool = False,
    digits: int | None = _DIGITS,
) -> Path:
    """A TSV file as `write_tsv` writes it, and beside it the JSON file of BIDS that says what each
    column holds.

    Parameters
    ----------
    about : column → its description, or its entries (LongName, Description, Units); none is left
        out.
    more : further entries of the JSON file.
    """
    entries, more = described(columns, about), more or {}
    if hidden := sorted(entries.keys() & more.keys()):
        raise ArgumentError("more", Phrase(", ".join(hidden)), "no names of columns")
    write_tsv(path, columns, overwrite=overwrite, digits=digits)
    write_json(sidecar(path), {**entries, **more}, overwrite=overwrite)
    return Path(path)


def described(
    columns: Iterable[str], about: Mapping[str, str | Mapping[str, str]]
) -> dict[str, Mapping[str, str]]:
    """Column → its entries in the JSON file beside a table."""
    told = {**_PEOPLE, **about}
    lacking = [name for name in columns if name not in told]
    if lacking:
        raise ArgumentError(
            "about", Phrase(f"nothing about {', '.join(lacking)}"), "a description of every column"
        )
    return {
        name: {"Description": text} if isinstance(text := told[name], str) else text
        for name in columns
    }


def sidecar(path: str | Path) -> Path:
    """The JSON file beside a table."""
    return Path(path).with_suffix(".json")


def _check_cells(cells: Iterable[Any]) -> None:
    for cell in cells:
        if isinstance(cell, str) and (UNSAFE.search(cell) or len(cell) > MAX_CELL):
            expected = f"without tabs, line breaks and control characters, and of at most {MAX_CELL} characters"
            raise ArgumentError("columns", cell[:80], expected)


def _cells(column: NDArray[Any], digits: int | None) -> list[str]:
    """A column as text; whole numbers that are floats only because some are unknown are written as
    whole ones.
    """
    show: Callable[[Any], str] = (
        str  # of a NumPy number, just the digits that are needed to read it back
    )
    if column.dtype == np.float64:
        known = column[np.isfinite(column)]
        if (
            len(known) < len(column)
            and len(known)
            and np.all((known == np.round(known)) & (np.abs(known) < 1e15))
        ):
            show = lambda value: str(int(value)) if math.isfinite(value) else str(value)
        elif digits is not None:
            if len(known) == len(column):  # a million loadings of a biobank
                return [f"{value:.{digits}g}" for value in column.tolist()]
            show = lambda value: f"{value:.{digits}g}"
    return ["n/a" if _unknown(value) else show(value).strip() or "n/a" for value in column]


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
    as_text = lambda: np.array(
        cells, dtype=object if len(cells) * max(map(len, cells)) > _MAX_PADDED else str
    )
    if not known or any(_CODE.fullmatch(cell) for cell in known):
        return as_text()
    try:
        numbers = np.array([math.nan if is_missing(cell) else float(cell) for cell in cells])
    except ValueError:
        return as_text()
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
            "participants",
            Phrase(f"shape {array.shape} in {name!r}"),
            "columns of one dimension, a value per subject",
        )
    if array.dtype == object and all(isinstance(value, int | float | np.number) for value in array):
        array = np.array(array.tolist())
    if array.dtype.kind in "biuf":
        return {
            "dtype": array.dtype.name,
            "values": [_number(name, value) for value in array.tolist()],
        }
    found = [None if _unknown(value) else value for value in array.tolist()]
    if all(value is None or isinstance(value, int | float) for value in found):
        return {
            "dtype": "float64",
            "values": [None if value is None else _number(name, value) for value in found],
        }
    return {"dtype": "text", "values": [None if value is None else str(value) for value in found]}


def _number(name: str, value: float) -> float | None:
    if isinstance(value, float) and math.isinf(value):
        raise ArgumentError(
            "participants", Phrase(f"{value} in {name!r}"), "finite or missing in every column"
        )
    return None if _unknown(value) else value


def decode_column(column: Mapping[str, Any]) -> NDArray[Any]:
    """The column as it was: missing numbers are NaN, missing text is None."""
    values = list(column["values"])
    if column["dtype"] == "text":
        complete = all(isinstance(value, str) for value in values)
        return np.array(values, dtype=str if complete else object)
    dtype = np.dtype(column["dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"a column contains {column['dtype']!r}, neither text nor numbers")
    if dtype.kind == "f":
        values = [math.nan if value is None else value for value in values]
    return np.array(values, dtype=dtype)


def join_columns(name: str, old: Column, new: Column) -> Column:
    """Two pieces of one column, one after the other."""
    pieces = [piece for piece in (old, new) if any(value is not None for value in piece["values"])]
    kinds = {piece["dtype"] == "text" for piece in pieces}
    if len(kinds) > 1:
        first, second = ("text" if piece["dtype"] == "text" else "numbers" for piece in (old, new))
        what = f"column {literal(repr(name))} contains {first} for the first subjects and {second} for others"
        raise CohortError("participants", what)
    values = [*old["values"], *new["values"]]
    if True in kinds:
        return {"dtype": "text", "values": values}
    dtype = np.result_type(
        *(np.dtype(piece["dtype"]) for piece in (old, new) if piece["dtype"] != "text")
    )
    if dtype.kind != "f" and None in values:
        dtype = np.dtype(np.float64)
    return {"dtype": dtype.name, "values": values}


# ---------------------------------------------------------------------- records


def write_json(path: str | Path, obj: Any, *, overwrite: bool = False) -> Path:
    """Write JSON, with NumPy numbers and arrays as plain ones; NaN and infinity, which JSON lacks,
    become null.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> print(write_json(f"{folder}/record.json", {"n": 3, "r": float("nan")}).read_text().strip())
    {
      "n": 3,
      "r": null
    }
    """
    text = json.dumps(plain(obj), indent=2, ensure_ascii=False, allow_nan=False)
    text = "\n".join(
        UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], line) for line in text.split("\n")
    )
    with atomic_path(path, overwrite) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8", newline="\n")
    return Path(path)


def plain(obj: Any) -> Any:
    """The same in dicts, lists, strings, numbers, booleans and None."""
    if isinstance(obj, Mapping):
        return {whole_text(str(key)): plain(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple, set, frozenset)):
        return [plain(value) for value in obj]
    if isinstance(obj, (np.ndarray, np.generic)):
        return plain(obj.tolist())
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    if obj is None or isinstance(obj, (int, bool)):
        return obj
    if isinstance(obj, (str, Path)):
        return whole_text(str(obj))
    raise ValueError(f"JSON cannot contain a {type(obj).__name__}: {obj!r}")


def whole_text(text: str) -> str:
    r"""Text that UTF-8 can write: bytes of a file's name that are not UTF-8 become \\xe9."""
    return (
        text
        if text.isascii() or not _HALVES.search(text)
        else _HALVES.sub(lambda found: escaped(found[0]), text)
    )


def numbered(word: str, n: int) -> list[str]:
    """ "component01", "component02", ..."""
    width = max(2, len(str(n)))
    return [f"{word}{i + 1:0{width}d}" for i in range(n)]
