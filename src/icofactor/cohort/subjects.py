"""Who is in a cohort: the subjects that files name, those that a table selects, and those left out."""

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

from icofactor.cohort.assemble import Files
from icofactor.cohort.find.source import Found, Source, Wanted
from icofactor.cohort.names import subject_of
from icofactor.cohort.pieces import Piece
from icofactor.cohort.problems import Journal, Problems, some
from icofactor.errors import CohortError
from icofactor.io.guard import Unreadable, check_regular
from icofactor.io.maps import reading

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


Twice = list[tuple[Path, str]]
"""Files of a subject beyond those it needs, and what is wrong with each."""


@dataclass
class Task:
    """What the steps of one call share."""

    problems: Problems
    journal: Journal
    table: Participants | None
    exclude: tuple[str, ...]
    skip: bool
    subjects: tuple[str, ...] | None
    n_threads: int | None

    def select(
        self, there: Sequence[str], missing: Mapping[str, list[str]], twice: Mapping[str, Twice] | None = None
    ) -> list[tuple[str, str]]:
        """Name in the cohort and name in the files, of the subjects to read, in order.

        Parameters
        ----------
        there : subjects that have files.
        missing : subject → files of it that are missing.
        twice : subject → files of it beyond one for each hemisphere.
        """
        known = list(dict.fromkeys([*there, *missing]))
        out = set(map(bare, self.exclude))
        listed = {bare(name) for name in (*known, *(() if self.table is None else self.table.ids))}
        strangers = [name for name in self.exclude if bare(name) not in listed]
        if strangers:
            self.problems.add("exclude", f"names {some(strangers)}, of whom there are no files")
        if self.table is None:
            chosen = [(name, name) for name in known]
        else:
            match = self.table.match(known)
            chosen = list(match.items())
            absent = [name for name in self.table.ids if name not in match and bare(name) not in out]
            others = sorted(set(known) - set(match.values()))
            if others:
                self.journal.note(f"left out {len(others)} subjects that participants does not select: {some(others)}")
            self._absent(absent, known)
        if out:
            self.journal.note(f"left out {len(out)} subjects by exclude: {some(sorted(self.exclude))}")
        chosen = [(name, found) for name, found in chosen if bare(found) not in out]
        self._lacking({name: [f"missing: {f}" for f in missing[found]] for name, found in chosen if found in missing})
        for _, found in chosen:  # of others it does not matter
            for path, text in (twice or {}).get(found, []):
                self.problems.add(path, text)
        # a subject that lacks a file is an error already; what is wrong with its other files is told as well
        return [(name, found) for name, found in chosen if found not in missing or (found in there and not self.skip)]

    def _absent(self, absent: Sequence[str], known: Sequence[str]) -> None:
        """Subjects of participants without any file: left out, or reported."""
        if absent and self.skip:
            self.journal.note(f"left out {len(absent)} subjects of participants without files: {some(list(absent))}")
        elif absent:
            there = f"; there are files of {some(list(known))}" if known else ""
            self.problems.add(
                "participants",
                f"no file was found of {some(list(absent), 50)}{there}; missing='skip' leaves out those without files",
            )

    def _lacking(self, lacking: Mapping[str, list[str]]) -> None:
        """Subjects without all their files: left out, or reported."""
        if lacking and self.skip:
            self.journal.note(f"left out {len(lacking)} subjects without all their files: {some(list(lacking))}")
        for name, what in {} if self.skip else lacking.items():
            for text in what:
                self.problems.add(f"subject {name}", text)


def grouped(found: Found, wanted: Wanted) -> tuple[dict[str, Files], dict[str, Twice]]:
    """Subject → its files, and what is there twice; a missing hemisphere goes to `found.missing`."""
    groups: dict[str, Files] = {}
    twice: dict[str, Twice] = {}
    for source in found.sources:
        files = groups.setdefault(source.subject, {})
        clash = next((s for s in files if s == source.side or None in (s, source.side)), "")
        if clash == "":
            files[source.side] = source.path
        else:
            twice.setdefault(source.subject, []).append((source.path, _also(source, files[clash])))
    told = {side for files in groups.values() for side in files if side is not None}
    sides = wanted.sides if wanted.hemisphere is not None else sorted(told)
    for subject, files in groups.items():
        if None not in files and subject not in found.missing:
            for side in sides:
                if side not in files:
                    only = next(iter(files.values()))
                    found.missing.setdefault(subject, []).append(f"the {side} hemisphere (there is only {only})")
    ordered = {name: dict(sorted(files.items(), key=lambda item: str(item[0]))) for name, files in groups.items()}
    return ordered, twice


def report_twice(twice: Mapping[str, Twice], problems: Problems) -> None:
    """Where files are no single subjects, all that is there twice."""
    for path, text in (one for several in twice.values() for one in several):
        problems.add(path, text)


def _also(source: Source, other: Path) -> str:
    side = f", {source.side} hemisphere" if source.side else ""
    choose = ", or choose with entities= (ses, task, run, ...)" if source.path.name.startswith("sub-") else ""
    return f"subject {source.subject}{side} is also in {other}; give one file for each{choose}"


def renamed(groups: dict[str, Files], task: Task) -> dict[str, Files]:
    """The subjects under the names the caller gives."""
    if task.subjects is None:
        return groups
    if len(task.subjects) != len(groups):
        text = f"has {len(task.subjects)} names; the files are of {len(groups)} subjects ({some(list(groups))})"
        raise CohortError(f"subjects: {text}")
    if len(set(task.subjects)) < len(groups):
        raise CohortError("subjects: holds a name twice")
    return dict(zip(task.subjects, groups.values(), strict=True))


def map_names(pieces: Sequence[Piece], task: Task, alone: bool) -> list[str]:
    """Subjects of the maps of a file: as given, as the maps are named, as participants lists them, or numbers."""
    n = pieces[0].n_maps
    if alone and task.subjects is not None:
        if len(task.subjects) != n:
            raise CohortError(f"subjects: has {len(task.subjects)} names; {pieces[0].seen.path} holds {n} maps")
        return list(task.subjects)
    for piece in pieces:
        names = [subject_of(Path(name)) or name for name in piece.maps.names]
        if len(set(names)) == n:
            return names
    return numbered(n, str(pieces[0].seen.path), task, alone)


def numbered(n: int, where: str, task: Task, alone: bool = True) -> list[str]:
    """Subjects of maps without names: those that participants lists, if it lists as many, or numbers."""
    if task.table is None or not alone:
        return [f"map{number + 1:04d}" for number in range(n)]
    # a table of all maps, some of which it leaves out; or of the maps that were left when the file was made
    for names in (task.table.listed, task.table.ids):
        if len(names) == n:
            task.journal.note(f"the {n} maps of {where} are the {n} subjects of participants, in that order")
            return list(names)
    left = len(task.table.listed) - len(task.table.ids)
    raise CohortError(
        f"{where}: holds {n} maps without names of subjects; participants lists {len(task.table.listed)}"
        f"{f' and leaves out {left} of them' if left else ''}: list all {n} there in the order of the maps (1 in a "
        "column exclude leaves one out), or pass subjects=, their names"
    )
