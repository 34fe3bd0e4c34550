"""Which subjects are in a cohort: those that files name or a table lists, less those left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.people import (
    PERSON,
    SESSION,
    SESSION_COLUMNS,
    Scan,
    bare,
    scan_name,
    session_key,
)
from icofactor.cohort.problems import Journal, Problems, some
from icofactor.errors import ArgumentError, CohortError, Phrase, Problem, literal
from icofactor.io.guard import Unreadable, naming
from icofactor.io.maps import reading
from icofactor.io.tables import MISSING, cell_text, is_missing, read_table, typed

ID_COLUMNS = (
    "participant_id",
    "participant",
    "subject_id",
    "subjectid",
    "subject",
    "subjects",
    "id",
)
"""Names of the column of subjects, in whichever case."""
PLACE = "{subject}"
"""Where the subject stands in a pattern of names of files."""
_SKIP = "{missing='skip'} leaves out subjects with missing files"
_TRUE, _FALSE = ("1", "1.0", "true", "yes", "y", "t", "x"), ("0", "0.0", "false", "no", "n", "f")


@dataclass(frozen=True, eq=False)
class Participants:
    """A table with one row per subject, or per scan of a subject; those to leave out already gone.

    Attributes
    ----------
    ids : names of the rows, no two alike, in the order of the table: subjects, or scans where
    people have several. columns : name → one value per row; without the ids.
    listed : all rows of the table, also those that its column "exclude" (or "include") leaves out.
    source : where the table came from, as the provenance has it.
    scans : person and session of each row, where the table has a column of sessions.
    """

    ids: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict)
    scans: tuple[Scan, ...] = ()

    @property
    def repeated(self) -> bool:
        """Whether rows are scans, several of a person."""
        return len({person for person, _ in self.scans}) < len(self.scans)

    @cached_property
    def _row(self) -> dict[str, int]:
        return {bare(name): row for row, name in enumerate(self.ids)}

    @cached_property
    def _row_of_scan(self) -> dict[Scan, int]:
        return {
            (bare(person), session_key(session)): row
            for row, (person, session) in enumerate(self.scans)
        }

    def row(self, name: str, scan: Scan | None = None) -> int | None:
        """The row of a subject, "sub-" or not, or of a scan: that of its session, or of its person
        where the table says nothing of sessions.
        """
        if scan is not None and self.scans:
            found = self._row_of_scan.get((bare(scan[0]), session_key(scan[1])))
            if found is not None:
                return found
        found = self._row.get(bare(name))
        return (
            self._row.get(bare(scan[0]))
            if found is None and scan is not None and not self.scans
            else found
        )

    def about(self, subjects: Sequence[str]) -> dict[str, NDArray[Any]]:
        """The columns with one value for each of these subjects, all of which the table lists."""
        return Selection(self).columns(subjects)


def read_participants(given: Any) -> Participants | None:
    """A table from a TSV or CSV file, from columns (a mapping or a DataFrame), or from subjects
    only.
    """
    if given is None or isinstance(given, Participants):
        return given
    if isinstance(given, str | os.PathLike):
        path = Path(given).expanduser()
        with reading(path, "table of participants"):
            columns, source = read_table(path)
        return _from_columns(columns, CohortError.place(path), source)
    if isinstance(given, Mapping) or hasattr(given, "columns"):
        columns = {
            str(name): ["n/a" if v is None else str(v) for v in values]
            for name, values in given.items()
        }
        return _from_columns(columns, "participants", {})
    if isinstance(given, Sequence | np.ndarray):
        return _from_columns({"participant_id": [str(name) for name in given]}, "participants", {})
    raise ArgumentError(
        "participants", Phrase(type(given).__name__), "a TSV file, columns or subjects"
    )


def _from_columns(
    columns: dict[str, list[str]], where: str, source: dict[str, Any]
) -> Participants:
    names = {name.lower(): name for name in reversed(columns)}
    key = next((names[name] for name in ID_COLUMNS if name in names), None)
    if key is None:
        raise CohortError(
            where, f"has no column participant_id; its columns are {some(columns, 10)}"
        )
    if len({len(column) for column in columns.values()}) > 1:
        raise CohortError(where, "its columns differ in length")
    ids = columns.pop(key)
    if not ids:
        raise CohortError(where, "lists no subjects")
    of_sessions = {name.lower(): name for name in reversed(columns)}
    sessions = next(
        (columns[of_sessions[name]] for name in SESSION_COLUMNS if name in of_sessions), None
    )
    scans = [] if sessions is None else list(zip(ids, sessions, strict=True))
    twice = sorted(name for name, n in Counter(ids).items() if n > 1)
    if twice or len(set(map(bare, ids))) < len(ids):
        keys = {
            (bare(person), session_key(session))
            for person, session in scans
            if session.lower() not in MISSING
        }
        if len(keys) < len(ids):
            which = some(twice, 10) or "with and without sub-"
            told = (
                "with the same session, or none"
                if scans
                else "without a column session_id; keep one row each"
            )
            raise CohortError(where, f"lists subjects twice: {which}, {told}")
        ids = [scan_name(person, session) for person, session in scans]
    used = np.ones(len(ids), dtype=bool)
    for name in list(columns):
        if name.lower() in ("exclude", "include"):
            flags = _flags(columns.pop(name), where, name)
            used &= flags if name.lower() == "include" else ~flags
    if not used.any():
        raise CohortError(where, "leaves out every subject")
    keep = np.flatnonzero(used)
    values = {name: typed([column[row] for row in keep]) for name, column in columns.items()}
    for name, column in values.items():
        if column.dtype.kind == "f" and np.isinf(column).any():
            who = ids[keep[np.flatnonzero(np.isinf(column))[0]]]
            what = (
                f"column {literal(repr(name))} contains an infinite number (subject {literal(who)})"
            )
            raise CohortError(
                where, f"{what}; numbers must be finite; write n/a for missing values"
            )
    return Participants(
        tuple(ids[row] for row in keep),
        values,
        tuple(ids),
        source,
        tuple(scans[row] for row in keep) if scans else (),
    )


def _flags(column: list[str], where: str, name: str) -> NDArray[np.bool_]:
    """Yes or no; an empty cell of "exclude" is no, one of "include" is yes."""
    cells = [value.lower() for value in column]
    wrong = [cell for cell in cells if cell not in (*_TRUE, *_FALSE, *MISSING)]
    if wrong:
        found = literal(repr(wrong[0][:60]))
        raise CohortError(where, f"column {name} must contain 1 or 0 (or yes, no); found {found}")
    return np.array(
        [cell in _TRUE or (cell in MISSING and name.lower() == "include") for cell in cells]
    )


@dataclass(frozen=True)
class Choice:
    """The subjects that are used, and those that are not.

    Attributes
    ----------
    chosen : name in the cohort and name in the data, in order.
    absent : subjects of the table that the data lack.
    others : subjects of the data that the table does not list.
    unknown : subjects to leave out that neither the data nor the table have.
    """

    chosen: list[tuple[str, str]]
    absent: list[str]
    others: list[str]
    unknown: list[str]


@dataclass(frozen=True)
class Selection:
    """Which of the subjects in the data are used: the one place where that is decided.

    Attributes
    ----------
    participants : the table that selects and orders them; None takes all.
    exclude : names to leave out.
    missing : whether subjects without all their data are an error ("raise") or left out ("skip").
    needed : columns in which a value is needed; subjects without one are left out.
    scans : name in the data → person and session, where people were scanned several times.
    """

    participants: Participants | None = None
    exclude: tuple[str, ...] = ()
    missing: str = "raise"
    needed: tuple[str, ...] = ()
    scans: Mapping[str, Scan] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        participants: Any,
        exclude: Sequence[str],
        missing: str = "raise",
        needed: Sequence[str] = (),
    ) -> Selection:
        """From what a user gives; see `load_cohort`."""
        if missing not in ("raise", "skip"):
            raise ArgumentError("missing", missing, "'raise' or 'skip'")
        return cls(
            read_participants(participants), tuple(map(str, exclude)), missing, tuple(needed)
        )

    @property
    def skips(self) -> bool:
        return self.missing == "skip"

    def choose(self, known: Sequence[str]) -> Choice:
        """Who is used of the subjects that are known."""
        table, out = self.participants, set(map(bare, self.exclude))
        rows = {
            there: None if table is None else table.row(there, self.scans.get(there))
            for there in known
        }
        match = {
            self._name(there, row): there
            for there, row in rows.items()
            if table is None or row is not None
        }
        if table is not None:
            match = dict(sorted(match.items(), key=lambda item: rows[item[1]] or 0))
        taken = {row for row in rows.values() if row is not None}
        listed = () if table is None else table.ids
        named = lambda *names: {
            bare(one) for name in names for one in (name, self.scans.get(name, (name, ""))[0])
        }
        present = {one for name in (*known, *listed) for one in named(name)} | {
            bare(person) for person, _ in (() if table is None else table.scans)
        }
        return Choice(
            chosen=[(name, there) for name, there in match.items() if not named(name, there) & out],
            absent=[
                name
                for row, name in enumerate(listed)
                if row not in taken and bare(name) not in out
            ],
            others=sorted(set(known) - set(match.values())),
            unknown=[name for name in self.exclude if bare(name) not in present],
        )

    def _name(self, there: str, row: int | None) -> str:
        """Name in the cohort of a subject or scan that is in a row of the table."""
        table, scan = self.participants, self.scans.get(there)
        if table is None or row is None:
            return there
        return (
            there
            if scan is not None and not table.scans and bare(table.ids[row]) != bare(there)
            else table.ids[row]
        )

    def renamed(self, chosen: Sequence[tuple[str, str]]) -> Selection:
        """The same, with the scans of those chosen by their names in the cohort."""
        return replace(
            self, scans={name: self.scans[there] for name, there in chosen if there in self.scans}
        )

    def columns(self, subjects: Sequence[str]) -> dict[str, NDArray[Any]]:
        """What is known of subjects of the cohort; with the people and sessions where rows are
        scans.
        """
        table, scans = self.participants, dict(self.scans)
        rows = [None if table is None else table.row(name, scans.get(name)) for name in subjects]
        found: dict[str, NDArray[Any]] = {}
        if table is not None:
            found = {
                name: values[[row for row in rows if row is not None]]
                for name, values in table.columns.items()
            }
            if table.repeated:
                scans |= {
                    name: table.scans[row]
                    for name, row in zip(subjects, rows, strict=True)
                    if row is not None
                }
        if scans:
            people = [scans.get(name, (name, "n/a")) for name in subjects]
            found = {
                **found,
                PERSON: np.array([person for person, _ in people]),
                SESSION: np.array([session for _, session in people]),
            }
        return found

    def select(
        self,
        known: Sequence[str],
        problems: Problems,
        journal: Journal,
        told: Mapping[str, NDArray[Any]] | None = None,
    ) -> list[tuple[str, str]]:
        """The chosen ones, as `Choice.chosen`; what is wrong and what was left out is reported.

        `told`: what the data themselves say of the known ones, column → values.
        """
        choice = self.choose(known)
        if choice.unknown:
            problems.add(
                "exclude",
                f"names {some(choice.unknown)}, but there are no maps of these subjects; correct or remove the names",
            )
        listed = set() if self.participants is None else set(map(bare, self.participants.listed))
        scan = lambda name: (
            (name, self.scans[name][0], scan_name(*self.scans[name]))
            if name in self.scans
            else (name,)
        )
        marked = [name for name in choice.others if listed & set(map(bare, scan(name)))]
        journal.leave_out(marked, "that the participants table marks for exclusion")
        unlisted = [name for name in choice.others if name not in marked]
        journal.leave_out(unlisted, "that the participants table does not list")
        if self.skips:
            journal.leave_out(choice.absent, "of the participants table without maps")
        elif choice.absent:
            there = f"; there are maps of {some(known)}" if known else ""
            problems.add(
                "participants",
                f"no map was found of {some(choice.absent, 50)}{there}; {{missing='skip'}} leaves them out",
            )
        lacking = self._lacking(choice.chosen, known, told or {})
        journal.leave_out(lacking, "with missing covariates")
        if not choice.unknown:
            journal.leave_out(sorted(dict.fromkeys(self.exclude)), "by name")
        return [(name, there) for name, there in choice.chosen if name not in lacking]

    def _lacking(
        self,
        chosen: Sequence[tuple[str, str]],
        known: Sequence[str],
        told: Mapping[str, NDArray[Any]],
    ) -> list[str]:
        """Those without a value in a needed column."""
        if not self.needed:
            return []
        names, rows = (
            [name for name, _ in chosen],
            [list(known).index(there) for _, there in chosen],
        )
        table = {column: values[rows] for column, values in told.items()} | self.renamed(
            chosen
        ).columns(names)
        columns = [
            [is_missing(cell_text(value)) for value in table[name]]
            for name in self.needed
            if name in table
        ]
        return [name for name, *lacks in zip(names, *columns, strict=True) if any(lacks)]

    def select_files(
        self,
        there: Sequence[str],
        missing: Mapping[str, list[str]],
        twice: Mapping[str, list[tuple[Path, str]]],
        problems: Problems,
        journal: Journal,
    ) -> list[tuple[str, str]]:
        """The same of subjects with files.

        Parameters
        ----------
        there : subjects that have files.
        missing : subject → files of it that are missing.
        twice : subject → files of it beyond one for each hemisphere, and what is wrong with each.
        """
        chosen = self.select(list(dict.fromkeys([*there, *missing])), problems, journal)
        if self.skips:
            journal.leave_out(
                [name for name, found in chosen if found in missing], "with missing files"
            )
        for name, found in chosen:  # of others it does not matter
            files = "; ".join(f"missing: {file}" for file in missing.get(found, []))
            if files and not self.skips:
                problems.add(
                    f"subject {name}", Problem(f"{files}; {_SKIP}", f"files are missing; {_SKIP}")
                )
            for path, text in twice.get(found, []):
                problems.add(path, text)
        # a subject that lacks a file is an error already; what is wrong with its other files is
        # reported as well
        return [
            (name, found)
            for name, found in chosen
            if found not in missing or (found in there and not self.skips)
        ]


def read_subjects(given: Any) -> tuple[str | None, tuple[str, ...] | None]:
    """What the argument `subjects` says: a pattern with {subject} in it, or names (as given, or
    from a file).
    """
    if given is None:
        return None, None
    if not isinstance(given, str | os.PathLike):
        return None, tuple(map(str, given))
    if PLACE in str(given):
        return str(given), None
    path = Path(given).expanduser()
    advice = f"{{subjects}} is a list of names, a file with one name per line, or a pattern with {literal(PLACE)}"
    with naming(path, "list of subjects", CohortError, advice):
        if not path.is_file():
            raise Unreadable("no such file")
        columns, _ = read_table(path)
        names = {name.lower(): name for name in reversed(columns)}
        key = next((names[name] for name in ID_COLUMNS if name in names), None)
        if key is None and len(columns) != 1:
            raise Unreadable(
                "is neither one name per line nor a table with a column participant_id"
            )
        first = [] if key is not None else list(columns)  # the first name, not a header
        return None, (*first, *columns[key or next(iter(columns))])


def check_names(subjects: Sequence[str], wanted: int, what: str) -> list[str]:
    """Names that the caller gives, as many as there are `what`, no two alike."""
    if len(subjects) != wanted:
        raise CohortError("subjects", f"has {len(subjects)} names; {what}")
    if len(set(subjects)) < wanted:
        raise CohortError("subjects", "contains a name twice")
    return list(subjects)


def unnamed(n: int, where: str, table: Participants | None, journal: Journal) -> list[str]:
    """Subjects of maps without names: those that participants lists, if it lists as many, or
    numbers.
    """
    if table is None:
        return [f"map{number + 1:04d}" for number in range(n)]
    # a table of all maps, some of which it leaves out; or of the maps that were left when the file
    # was made
    for names in (table.listed, table.ids):
        if len(names) == n:
            journal.note(
                f"the {n} maps of {where} are the {n} subjects of participants, in that order"
            )
            return list(names)
    left = len(table.listed) - len(table.ids)
    raise CohortError(
        where,
        f"contains {n} maps without subject names; the participants table lists {len(table.listed)}"
        f"{f' and leaves out {left} of them' if left else ''}: list all {n} there in the order of the maps (1 in a "
        "column exclude leaves one out), or pass their names as {subjects}",
    )
