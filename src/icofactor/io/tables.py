"""Tables: one reader of TSV and CSV files, one writer, one rule for cells; and JSON beside them.

A cell is a number where its whole column is, else text; codes such as 007 stay text. What is not
known is written "n/a", as BIDS has it, and read from any of `MISSING`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import (
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import (
    UNSAFE,
    ArgumentError,
    escaped,
    shown,
)
from icofactor.io.atomic import atomic_path
from icofactor.io.guard import (
    Unreadable,
    hash_file,
    open_file,
)

# Cells that say that nothing is known, in lower case; the last ones are Excel's and SPSS's.
MISSING = ("", "n/a", "na", "nan", "none", "null", "#n/a", "#null!", "-", ".")
# What a table may have at most: columns, cells, characters of one cell.
MAX_COLUMNS = 10_000
MAX_CELLS = 3_000_000
MAX_CELL = 30_000
# Characters of one row; 164,000 vertices with 20 digits have a fifth of this.
MAX_LINE = 2**24
# Significant digits of computed numbers.
_DIGITS = 10
# NumPy gives every cell of a column of text the room of the longest.
_MAX_PADDED = 2**22
# The first bytes of .xlsx and .xls.
_EXCEL = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
_CODE = re.compile(r"0\d+")
_WHOLE = re.compile(r"[+-]?\d{1,15}")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
_BREAKS = re.compile("[\t\n\r\v\f\x85\u2028\u2029]+")
_SURROGATES = re.compile("[\ud800-\udfff]")


# ---------------------------------------------------------------------- reading


def read_rows(
    path: Path, max_columns: int = MAX_COLUMNS, *, is_map: bool = False
) -> tuple[str, Iterator[list[str]]]:
    """Return the separator of a text table, and its rows; all have as many cells as the first.

    Parameters
    ----------
    is_map : skip comments above, and accept spaces between numbers.
    """
    # In a map without header, commas beside semicolons are decimal commas.
    separators = "\t;, " if is_map else "\t,;"
    lines = _lines(path, is_map)
    first = next((line for line in lines if line.strip()), "")
    separator = next((mark for mark in separators if mark in first), "\t")
    reader = csv.reader(
        chain([first], lines), delimiter=separator, strict=True, skipinitialspace=is_map
    )
    return separator, _rows(reader, max_columns)


def _rows(
    reader: Any,
    max_columns: int,
) -> Iterator[list[str]]:
    """Return the rows that are not empty, without spaces around their cells."""
    width = 0
    try:
        for cells in reader:
            row = [cell.strip() for cell in cells]
            if not any(row):
                continue
            width = width or len(row)
            if len(row) != width:
                raise Unreadable(
                    f"line {reader.line_num} has {len(row)} cells; the lines before have {width}"
                )
            if width > max_columns:
                raise Unreadable(f"has {width} columns; at most {max_columns} are read")
            yield row
    except csv.Error as problem:
        raise Unreadable(f"is not a table ({problem}); is a quotation mark not closed?") from None


def _lines(
    path: Path,
    is_map: bool,
) -> Iterator[str]:
    """Return the lines of a text, whatever ends them."""
    with open_file(path) as file:
        if file.peek(4).startswith(_EXCEL):
            raise Unreadable("is an Excel workbook; save it as CSV or TSV")
        text = io.TextIOWrapper(file, "utf-8-sig", newline="")
        is_above = is_map
        try:
            while line := text.readline(MAX_LINE + 1):
                if len(line) > MAX_LINE or "\0" in line:
                    raise Unreadable("is not a text table: it has a NUL or an endless row")
                # A row that begins with Excel's #N/A is no comment.
                is_above = is_above and line.startswith("#") and not line.startswith(("#N", "#n"))
                if not is_above:
                    yield line.strip(" \r\n") if is_map else line
        except UnicodeDecodeError:
            raise Unreadable("is not text in UTF-8; save it as UTF-8") from None


def read_table(path: Path) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Return the columns of a TSV or CSV file as text, and the file's path, checksum and size.

    Raises
    ------
    Unreadable, OSError; `naming` adds the file's name.
    """
    separator, rows = read_rows(path)
    header = next(rows, [])
    if not header:
        raise Unreadable("is empty")
    columns: dict[str, list[str]] = {}
    for name in header:
        if _cleaned(name) in columns:
            raise Unreadable(f"has two columns {shown(name)}; rename one of them")
        columns[_cleaned(name)] = []
    for number, row in enumerate(rows, 2):
        if number * len(header) > MAX_CELLS:
            raise Unreadable(f"is too large for a table: at most {MAX_CELLS} cells are read")
        for column, cell in zip(columns.values(), row, strict=True):
            column.append(_cleaned(cell))
    if separator != ",":
        columns = {name: _with_points(cells, separator) for name, cells in columns.items()}
    source = {"path": str(path), "sha256": hash_file(path), "bytes": path.stat().st_size}
    return columns, source


def _cleaned(cell: str) -> str:
    """Return a cell with spaces for line breaks within quotes; other controls are refused."""
    if len(cell) > MAX_CELL:
        raise Unreadable(f"has a cell of {len(cell)} characters; at most {MAX_CELL} are read")
    if cell.isprintable():
        return cell
    spaced = _BREAKS.sub(" ", cell)
    if UNSAFE.search(spaced):
        raise Unreadable(f"contains control characters in {shown(cell[:60])}; remove them")
    return spaced


def _with_points(
    cells: list[str],
    separator: str,
) -> list[str]:
    """Return a column of numbers with points for decimal commas."""
    commas = [cell for cell in cells if "," in cell]
    if not commas or not all(_DECIMAL_COMMA.fullmatch(cell) for cell in commas):
        return cells
    # Between tabs, 1,000 may be a thousand; between semicolons a comma separates decimals.
    if separator == "\t" and all(_THOUSANDS.fullmatch(cell) for cell in commas):
        return cells
    points = [cell.replace(",", ".") for cell in cells]
    return points if all(is_missing(cell) or is_number(cell) for cell in points) else cells


# ---------------------------------------------------------------------- cells


def is_missing(cell: str) -> bool:
    """Return whether a cell says that nothing is known."""
    return cell.lower() in MISSING


def is_number(cell: str) -> bool:
    """Return whether a cell is a finite number; Python's 1_000 is none."""
    try:
        return math.isfinite(float(cell)) and "_" not in cell
    except ValueError:
        return False


def cell_text(value: Any) -> str:
    """Return a value as a cell: None is "", and 2, 2.0 and "2" are the same."""
    if value is None:
        return ""
    text = str(value).strip()
    return str(int(float(text))) if is_number(text) and float(text).is_integer() else text


def typed(cells: Sequence[str]) -> NDArray[Any]:
    """Return a column as numbers if all its cells with a value are; codes such as 007 stay text."""
    values = [cell for cell in cells if not is_missing(cell)]
    # Python reads 1_000 as a thousand.
    is_text = not values or any("_" in cell or _CODE.fullmatch(cell) for cell in values)
    with suppress(ValueError):
        if not is_text:
            numbers = np.array([math.nan if is_missing(cell) else float(cell) for cell in cells])
            are_whole = len(values) == len(cells) and all(map(_WHOLE.fullmatch, values))
            return numbers.astype(np.int64) if are_whole else numbers
    padded = len(cells) * max(map(len, cells), default=0)
    return np.array(cells, dtype=object if padded > _MAX_PADDED else str)


def numbered(
    word: str,
    n: int,
) -> list[str]:
    """Return "component01", "component02", ..."""
    width = max(2, len(str(n)))
    return [f"{word}{i + 1:0{width}d}" for i in range(n)]


# ---------------------------------------------------------------------- writing


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
    >>> columns = {"participant_id": ["sub-1", "sub-2"], "age": [30, None]}
    >>> path = write_tsv(f"{tempfile.mkdtemp()}/people.tsv", columns)
    >>> path.read_text().split()
    ['participant_id', 'age', 'sub-1', '30', 'sub-2', 'n/a']
    """
    values = {str(name): np.asarray(column) for name, column in columns.items()}
    shapes = {column.shape for column in values.values()}
    if len(shapes) != 1 or len(min(shapes)) != 1:
        raise ArgumentError("columns", f"must be one or more of one length; found {shapes}")
    for name, column in values.items():
        _check_cells([name] if column.dtype.kind in "biuf" else [name, *column.tolist()])
    cells = [_cells(column, digits) for column in values.values()]
    with (
        atomic_path(path, overwrite) as temporary,
        open(temporary, "w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(values)
        writer.writerows(zip(*cells, strict=True))
    return Path(path)


def _check_cells(cells: Iterable[Any]) -> None:
    for cell in cells:
        if isinstance(cell, str) and (UNSAFE.search(cell) or len(cell) > MAX_CELL):
            raise ArgumentError(
                "columns",
                f"must have no tabs, line breaks, control characters or more than {MAX_CELL} "
                f"characters in a cell; found {shown(cell[:80])}",
            )


def _cells(
    column: NDArray[Any],
    digits: int | None,
) -> list[str]:
    """Return a column as text."""
    if column.dtype != np.float64:
        # NaN is not equal to itself.
        texts = ["" if value is None or value != value else str(value) for value in column]
        return [text.strip() or "n/a" for text in texts]
    finite = column[np.isfinite(column)]
    # Whole numbers are floats only because some are unknown.
    is_whole = len(finite) < len(column) and bool((finite == np.round(finite)).all())
    if is_whole and (np.abs(finite) < 1e15).all():
        shown_as = ".0f"
    else:
        shown_as = "" if digits is None else f".{digits}g"
    return ["n/a" if math.isnan(value) else format(value, shown_as) for value in column.tolist()]


# What is said of columns that are the user's own.
GIVEN = "As in the participants table"
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
    """Write a TSV file, and beside it the JSON file of BIDS that says what each column holds.

    Parameters
    ----------
    about : column → its description, or its entries (LongName, Description, Units); all columns.
    more : further entries of the JSON file.
    """
    entries = described(columns, about)
    if not entries.keys().isdisjoint(more or {}):
        raise ArgumentError("more", f"must not be names of columns; found {', '.join(more or {})}")
    write_tsv(path, columns, overwrite=overwrite, digits=digits)
    write_json(sidecar(path), {**entries, **(more or {})}, overwrite=overwrite)
    return Path(path)


def described(
    columns: Iterable[str], about: Mapping[str, str | Mapping[str, str]]
) -> dict[str, Mapping[str, str]]:
    """Return column → its entries in the JSON file beside a table."""
    texts = {**_PEOPLE, **about}
    entries = {}
    for name in columns:
        text = texts[name]
        entries[name] = {"Description": text} if isinstance(text, str) else text
    return entries


def sidecar(path: str | Path) -> Path:
    """Return the JSON file beside a table."""
    return Path(path).with_suffix(".json")


def write_json(
    path: str | Path,
    obj: Any,
    *,
    overwrite: bool = False,
) -> Path:
    """Write JSON, with NumPy numbers and arrays as plain ones; NaN and infinity become null.

    Examples
    --------
    >>> import tempfile
    >>> path = write_json(f"{tempfile.mkdtemp()}/record.json", {"n": 3, "r": float("nan")})
    >>> print(path.read_text().strip())
    {
      "n": 3,
      "r": null
    }
    """
    text = json.dumps(plain(obj), indent=2, ensure_ascii=False, allow_nan=False)
    # Line breaks are those of the indentation; others are escaped already.
    lines = [
        UNSAFE.sub(lambda match: json.dumps(match[0])[1:-1], line) for line in text.split("\n")
    ]
    with atomic_path(path, overwrite) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    return Path(path)


def plain(obj: Any) -> Any:
    """Return an object as dicts, lists, strings, numbers, booleans and None."""
    if isinstance(obj, Mapping):
        return {whole_text(str(key)): plain(value) for key, value in obj.items()}
    if isinstance(obj, list | tuple | set | frozenset):
        return [plain(value) for value in obj]
    if isinstance(obj, np.ndarray | np.generic):
        return plain(obj.tolist())
    if isinstance(obj, float):
        return obj if math.isfinite(obj) else None
    if obj is None or isinstance(obj, int | bool):
        return obj
    if isinstance(obj, str | Path):
        return whole_text(str(obj))
    raise ValueError(f"JSON cannot contain a {type(obj).__name__}: {obj!r}")


def whole_text(text: str) -> str:
    r"""Return text that UTF-8 can write: bytes of a file's name that are not UTF-8 become \\xe9."""
    return _SURROGATES.sub(lambda match: escaped(match[0]), text)
