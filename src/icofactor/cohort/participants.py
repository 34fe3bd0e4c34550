"""participants.tsv: which subjects make the cohort, in which order, and what is known about them."""

from __future__ import annotations

import csv
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.formats.read import reading
from icofactor.errors import CohortError
from icofactor.reading import Unreadable, check_regular

ID_COLUMNS = ("participant_id", "participant", "subject_id", "subjectid", "subject", "subjects", "id")
"""Names of the column of subjects, in whichever case."""
_UNKNOWN = ("", "n/a", "na", "nan", "none", "null")
_TRUE, _FALSE = ("1", "1.0", "true", "yes", "y", "t", "x"), ("0", "0.0", "false", "no", "n", "f")
_MAX_BYTES = 2**26
_PADDED = re.compile(r"0\d+")


@dataclass(frozen=True, eq=False)
class Participants:
    """A table with one row per subject, those to leave out already gone.

    Attributes
    ----------
    ids : names of the subjects, no two alike, in the order of the table.
    columns : name → one value per subject; without the ids.
    listed : all subjects of the table, also those that its column "exclude" (or "include") leaves out.
    source : where the table came from, as the provenance has it.
    """

    ids: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict)

    def match(self, found: Iterable[str]) -> dict[str, str]:
        """Subject of the table → the same subject as the files name it, "sub-" or not."""
        there = {bare(name): name for name in found}
        return {name: there[bare(name)] for name in self.ids if bare(name) in there}

    def without(self, names: Iterable[str]) -> Participants:
        """The same table less some of its subjects."""
        out = set(map(bare, names))
        rows = [row for row, name in enumerate(self.ids) if bare(name) not in out]
        columns = {name: values[rows] for name, values in self.columns.items()}
        return replace(self, ids=tuple(self.ids[row] for row in rows), columns=columns)


def bare(subject: str) -> str:
    """A subject's name without "sub-": some tools add it, others do not."""
    return subject.removeprefix("sub-")


def read_participants(given: Any) -> Participants | None:
    """A table from a TSV or CSV file, from columns, or from subjects only."""
    if given is None or isinstance(given, Participants):
        return given
    if isinstance(given, str | os.PathLike):
        path = Path(given).expanduser()
        with reading(path, "table of participants"):
            return _from_file(path)
    if isinstance(given, Mapping):
        return _from_columns(
            {str(name): list(map(_plain, values)) for name, values in given.items()}, "participants", {}
        )
    if isinstance(given, Sequence | np.ndarray):
        return _from_columns({"participant_id": [str(name) for name in given]}, "participants", {})
    raise ValueError(f"participants must be a TSV file, columns or subjects; found {type(given).__name__}")


def _plain(value: Any) -> str:
    return "n/a" if value is None else str(value)


def _from_file(path: Path) -> Participants:
    check_regular(path)
    if path.stat().st_size > _MAX_BYTES:
        raise CohortError(f"{path}: is too large for a table of participants ({path.stat().st_size} bytes)")
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise Unreadable(f"is no text in UTF-8 (byte {problem.start}); save the table as UTF-8") from None
    if "\0" in text:
        raise Unreadable("is no table of text: it holds NUL characters, as UTF-16 and binary files do")
    lines = text.splitlines()
    if not any(line.strip() for line in lines):
        raise CohortError(f"{path}: is empty")
    delimiter = "\t" if "\t" in lines[0] or "," not in lines[0] else ","
    try:
        header, *rows = [row for row in csv.reader(lines, delimiter=delimiter) if any(cell.strip() for cell in row)]
    except csv.Error as problem:
        raise Unreadable(f"is no table of cells ({problem}); is a quotation mark left open?") from None
    header = [name.strip() for name in header]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise CohortError(f"{path}: row {number} has {len(row)} cells; the first row has {len(header)}")
    if len(set(header)) != len(header):
        raise CohortError(f"{path}: two columns have the same name")
    columns = {name: [row[i].strip() for row in rows] for i, name in enumerate(header)}
    source = {"path": str(path), "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    return _from_columns(columns, str(path), source)


def _from_columns(columns: dict[str, list[str]], where: str, source: dict[str, Any]) -> Participants:
    names = {name.lower(): name for name in reversed(columns)}
    key = next((names[name] for name in ID_COLUMNS if name in names), None)
    if key is None:
        raise CohortError(f"{where}: has no column participant_id; its columns are {_some(columns)}")
    if len({len(column) for column in columns.values()}) > 1:
        raise CohortError(f"{where}: its columns differ in length")
    ids = columns.pop(key)
    if not ids:
        raise CohortError(f"{where}: lists no subjects")
    twice = sorted(name for name, n in Counter(ids).items() if n > 1)
    if twice or len(set(map(bare, ids))) < len(ids):
        raise CohortError(f"{where}: lists subjects twice: {_some(twice) or 'with and without sub-'}")
    used = np.ones(len(ids), dtype=bool)
    for name in list(columns):
        if name.lower() in ("exclude", "include"):
            flags = _flags(columns.pop(name), where, name)
            used &= flags if name.lower() == "include" else ~flags
    if not used.any():
        raise CohortError(f"{where}: leaves out every subject")
    return Participants(
        tuple(name for name, keep in zip(ids, used, strict=True) if keep),
        {name: _typed([v for v, keep in zip(column, used, strict=True) if keep]) for name, column in columns.items()},
        tuple(ids),
        source,
    )


def _some(names: Iterable[str]) -> str:
    """The first names of many, as far as they can be shown."""
    listed = list(names)
    shown = ["".join(c if c.isprintable() else "?" for c in name[:60]) for name in listed[:10]]
    return ", ".join(shown) + (f" and {len(listed) - 10} more" if len(listed) > 10 else "")


def _flags(column: list[str], where: str, name: str) -> NDArray[np.bool_]:
    """Yes or no; an empty cell of "exclude" is no, one of "include" is yes."""
    words = [value.lower() for value in column]
    wrong = [value for value in words if value not in (*_TRUE, *_FALSE, *_UNKNOWN)]
    if wrong:
        raise CohortError(f"{where}: column {name} must hold 1 or 0 (or yes, no); found {wrong[0][:60]!r}")
    return np.array([value in _TRUE or (value in _UNKNOWN and name.lower() == "include") for value in words])


def _typed(column: list[str]) -> NDArray[Any]:
    """Numbers where all known values are numbers, else text; codes such as 007 stay text."""
    known = [value for value in column if value.lower() not in _UNKNOWN]
    if not known or any(_PADDED.fullmatch(value) for value in known):
        return np.array(column)
    try:
        numbers = np.array([float(v) if v.lower() not in _UNKNOWN else np.nan for v in column])
    except ValueError:
        return np.array(column)
    whole = len(known) == len(column) and all(re.fullmatch(r"[+-]?\d{1,15}", value) for value in known)
    return numbers.astype(np.int64) if whole else numbers
