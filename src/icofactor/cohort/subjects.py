"""Which subjects are in a cohort: those that files name or a table lists, less those left out."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.checks import OneOf, check_value
from icofactor.cohort.people import (
    PERSON,
    SESSION,
    SESSION_COLUMNS,
    Scan,
    bare,
    scan_name,
    session_key,
)
from icofactor.cohort.problems import Journal, ReadProblems, some
from icofactor.errors import ArgumentError, CohortError, Problem, shown
from icofactor.io.guard import Unreadable, naming
from icofactor.io.maps import reading
from icofactor.io.tables import MISSING, cell_text, is_missing, read_table, typed

# Names of the column of subjects, in lower case.
ID_COLUMNS = (
    "participant_id",
    "participant",
    "subject_id",
    "subjectid",
    "subject",
    "subjects",
    "id",
)
# Stands for the subject in a pattern of file names.
SUBJECT_FIELD = "{subject}"
_SKIP = "--missing skip (missing='skip') leaves out subjects with missing files"
# Cells of a column "exclude" or "include".
_TRUE = ("1", "1.0", "true", "yes", "y", "t", "x")
_FALSE = ("0", "0.0", "false", "no", "n", "f")


def column_named(
    columns: Iterable[Any],
    names: Sequence[str],
) -> Any:
    """Return the column with the first of these names, in whichever case, or None."""
    by_name = {str(column).lower(): column for column in reversed(list(columns))}
    return next((by_name[name] for name in names if name in by_name), None)


@dataclass(frozen=True, eq=False)
class Participants:
    """A table with one row per subject, or per scan, without those to leave out.

    Attributes
    ----------
    ids : unique names of the rows, in the order of the table: subjects, or scans where people have
        several.
    columns : name → one value per row, without the ids.
    listed : all rows of the table, also those that its column "exclude" or "include" leaves out.
    source : path and checksum of the table, for the provenance.
    scans : person and session of each row, if the table has a column of sessions.
    """

    ids: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    source: Mapping[str, Any] = field(default_factory=dict)
    scans: tuple[Scan, ...] = ()

    @property
    def repeated(self) -> bool:
        """Whether people have several rows."""
        return len({person for person, _ in self.scans}) < len(self.scans)

    @cached_property
    def _rows(self) -> dict[str | Scan, int]:
        """Return names, and persons with sessions, → row."""
        rows: dict[str | Scan, int] = {bare(name): row for row, name in enumerate(self.ids)}
        for row, (person, session) in enumerate(self.scans):
            rows[bare(person), session_key(session)] = row
        return rows

    def row(
        self,
        name: str,
        scan: Scan | None = None,
    ) -> int | None:
        """Return the row of a subject or scan, with or without "sub-".

        A scan has the row of its session, or of its person if the table has no sessions.
        """
        keys: list[str | Scan] = [bare(name)]
        if scan is not None and self.scans:
            # The session decides if the table has sessions.
            keys.insert(0, (bare(scan[0]), session_key(scan[1])))
        elif scan is not None:
            keys.append(bare(scan[0]))
        return next((self._rows[key] for key in keys if key in self._rows), None)

    def about(self, subjects: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return the columns with one value for each of these subjects."""
        return Selection(self).columns(subjects)


def read_participants(source: Any) -> Participants | None:
    """Return a table from a TSV or CSV file, from columns, or from names of subjects."""
    if source is None or isinstance(source, Participants):
        return source
    path = "participants"
    record: Mapping[str, Any] = {}
    if isinstance(source, str | os.PathLike):
        file = Path(source).expanduser()
        path = CohortError.place(file)
        with reading(file, "table of participants"):
            columns, record = read_table(file)
    elif isinstance(source, Mapping) or hasattr(source, "columns"):
        columns = {
            str(name): ["n/a" if value is None else str(value) for value in values]
            for name, values in source.items()
        }
    elif isinstance(source, Sequence | np.ndarray):
        columns = {PERSON: [str(name) for name in source]}
    else:
        text = "must be a TSV or CSV file, columns, or names of subjects"
        raise ArgumentError("participants", f"{text}; found {type(source).__name__}")
    problem = _problem_of_columns(columns)
    if problem:
        raise CohortError(path, problem)
    return _from_columns(columns, path, record)


def _from_columns(
    columns: dict[str, list[str]],
    path: str,
    source: Mapping[str, Any],
) -> Participants:
    """Return the table of these columns of text."""
    persons = columns.pop(column_named(columns, ID_COLUMNS))
    session_column = column_named(columns, SESSION_COLUMNS)
    scans = list(zip(persons, columns[session_column], strict=True)) if session_column else []
    ids = _unique_ids(persons, scans, path)
    used = np.ones(len(ids), dtype=bool)
    # Both columns may be there; a row must pass both.
    for name in [name for name in columns if name.lower() in ("exclude", "include")]:
        used &= _is_used(columns.pop(name), path, name)
    problem = "" if used.any() else "leaves out every subject"
    rows = np.flatnonzero(used)
    values = {name: typed([column[row] for row in rows]) for name, column in columns.items()}
    for name, column in values.items():
        # An infinite covariate makes every coefficient NaN.
        if column.dtype.kind == "f" and np.isinf(column).any():
            infinite = some(ids[rows[position]] for position in np.flatnonzero(np.isinf(column)))
            text = f"column {shown(name)} is infinite for subject {infinite}"
            problem = f"{text}; write n/a for missing values"
    if problem:
        raise CohortError(path, problem)
    return Participants(
        ids=tuple(ids[row] for row in rows),
        columns=values,
        listed=tuple(ids),
        source=source,
        scans=tuple(scans[row] for row in rows) if scans else (),
    )


def _problem_of_columns(columns: Mapping[str, Sequence[str]]) -> str:
    """Say why columns are no table of subjects; "" if they are."""
    key = column_named(columns, ID_COLUMNS)
    if key is None:
        return f"has no column participant_id; its columns are {some(columns, 10)}"
    if len({len(column) for column in columns.values()}) > 1:
        return "its columns differ in length"
    return "" if len(columns[key]) else "lists no subjects"


def _unique_ids(
    persons: list[str],
    scans: Sequence[Scan],
    path: str,
) -> list[str]:
    """Return unique names of the rows: persons, or scans if persons occur several times."""
    # With and without "sub-" is one person.
    if len(set(map(bare, persons))) == len(persons):
        return persons
    # Rows of one person are told apart by their sessions, which must be known and different.
    keys = {
        (bare(person), session_key(session))
        for person, session in scans
        if session.lower() not in MISSING
    }
    if len(keys) < len(persons):
        repeated = [name for name, count in Counter(map(bare, persons)).items() if count > 1]
        remedy = "keep one row each, or add a column session_id with different sessions"
        raise CohortError(path, f"lists subjects twice: {some(repeated, 10)}; {remedy}")
    return [scan_name(person, session) for person, session in scans]


def _is_used(
    column: Sequence[str],
    path: str,
    name: str,
) -> NDArray[np.bool_]:
    """Return which rows a column "exclude" or "include" leaves in; empty cells do."""
    cells = [value.lower() for value in column]
    for cell in cells:
        if cell not in (*_TRUE, *_FALSE, *MISSING):
            text = f"column {name} must contain 1 or 0 (or yes, no); found {shown(cell[:60])}"
            raise CohortError(path, text)
    words = _TRUE if name.lower() == "include" else _FALSE
    return np.array([cell in words or cell in MISSING for cell in cells])


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
        """Return the selection that the arguments of `load_cohort` describe."""
        check_value("missing", missing, OneOf(("raise", "skip")))
        table = read_participants(participants)
        return cls(table, tuple(map(str, exclude)), missing, tuple(needed))

    @property
    def skips(self) -> bool:
        return self.missing == "skip"

    def _row(self, name: str) -> int | None:
        """Return the row of a subject of the data in the table."""
        table = self.participants
        return None if table is None else table.row(name, self.scans.get(name))

    def _keys(self, *names: str) -> set[str]:
        """Return what subjects may be called: names, persons and scans, without "sub-"."""
        scans = [self.scans[name] for name in names if name in self.scans]
        persons = [person for person, _ in scans]
        return set(map(bare, (*names, *persons, *(scan_name(*scan) for scan in scans))))

    def choose(self, names: Sequence[str]) -> Choice:
        """Return who is used of the subjects in the data."""
        table = self.participants
        excluded = set(map(bare, self.exclude))
        present = self._keys(*names)
        by_name = {name: name for name in names}
        absent: list[str] = []
        if table is not None:
            rows = {name: row for name in names if (row := self._row(name)) is not None}
            by_name = {
                self._name_in_cohort(name, rows[name]): name
                for name in sorted(rows, key=rows.__getitem__)
            }
            used_rows = set(rows.values())
            absent = [name for row, name in enumerate(table.ids) if row not in used_rows]
            # Somebody in the table without maps is no unknown name.
            present.update(map(bare, (*table.ids, *(person for person, _ in table.scans))))
        return Choice(
            chosen=[
                (name, in_data)
                for name, in_data in by_name.items()
                if self._keys(name, in_data).isdisjoint(excluded)
            ],
            absent=[name for name in absent if bare(name) not in excluded],
            others=sorted(set(names) - set(by_name.values())),
            unknown=[name for name in self.exclude if bare(name) not in present],
        )

    def _name_in_cohort(
        self,
        name: str,
        row: int,
    ) -> str:
        """Return the name in the table, or of a scan if the table lists people."""
        assert self.participants is not None
        name_in_table = self.participants.ids[row]
        lists_people = name in self.scans and not self.participants.scans
        return name if lists_people and bare(name_in_table) != bare(name) else name_in_table

    def renamed(self, chosen: Sequence[tuple[str, str]]) -> Selection:
        """Return the selection with scans by their names in the cohort."""
        scans = {name: self.scans[in_data] for name, in_data in chosen if in_data in self.scans}
        return replace(self, scans=scans)

    def columns(self, subjects: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return the columns of the table for subjects, with people and sessions of scans."""
        columns: dict[str, NDArray[Any]] = {}
        scans = dict(self.scans)
        table = self.participants
        if table is not None:
            rows = [row for name in subjects if (row := self._row(name)) is not None]
            columns = {name: values[rows] for name, values in table.columns.items()}
            if table.repeated:
                scans |= dict(zip(subjects, (table.scans[row] for row in rows), strict=True))
        if scans:
            people = [scans.get(name, (name, "n/a")) for name in subjects]
            columns[PERSON] = np.array([person for person, _ in people])
            columns[SESSION] = np.array([session for _, session in people])
        return columns

    def select(
        self,
        names: Sequence[str],
        problems: ReadProblems,
        journal: Journal,
        data_columns: Mapping[str, NDArray[Any]] | None = None,
    ) -> list[tuple[str, str]]:
        """Return the chosen subjects, as `Choice.chosen`; report problems and who is left out.

        Parameters
        ----------
        data_columns : what the data say of their subjects, column → values.
        """
        choice = self.choose(names)
        # A misspelt name would silently stay in the cohort.
        if choice.unknown:
            text = f"names {some(choice.unknown)}, but there are no maps of these subjects"
            problems.add("exclude", f"{text}; correct or remove the names")
        table = self.participants
        listed = set() if table is None else set(map(bare, table.listed))
        # Left out on purpose, which is reported apart from what the table forgets.
        marked = [name for name in choice.others if listed & self._keys(name)]
        journal.leave_out(marked, "that the participants table marks for exclusion")
        unlisted = [name for name in choice.others if name not in marked]
        journal.leave_out(unlisted, "that the participants table does not list")
        if self.skips:
            journal.leave_out(choice.absent, "of the participants table without maps")
        elif choice.absent:
            present = f"; there are maps of {some(names)}" if names else ""
            text = f"no map was found of {some(choice.absent, 50)}{present}"
            problems.add("participants", f"{text}; --missing skip (missing='skip') leaves them out")
        row_of = {name: row for row, name in enumerate(names)}
        rows = [row_of[in_data] for _, in_data in choice.chosen]
        columns = {name: values[rows] for name, values in (data_columns or {}).items()}
        columns |= self.renamed(choice.chosen).columns([name for name, _ in choice.chosen])
        needed = [columns[name] for name in self.needed if name in columns]
        # A subject without a covariate cannot enter the regression.
        complete = [
            not any(is_missing(cell_text(values[row])) for values in needed)
            for row in range(len(rows))
        ]
        selected = list(compress(choice.chosen, complete))
        lacking = [name for name, in_data in choice.chosen if (name, in_data) not in selected]
        journal.leave_out(lacking, "with missing covariates")
        if not choice.unknown:
            journal.leave_out(sorted(set(self.exclude)), "by name")
        return selected

    def select_files(
        self,
        names: Sequence[str],
        missing: Mapping[str, Sequence[str]],
        duplicates: Mapping[str, Sequence[tuple[Path, str]]],
        problems: ReadProblems,
        journal: Journal,
    ) -> list[tuple[str, str]]:
        """Return the chosen subjects with files, as `select` does.

        Parameters
        ----------
        names : subjects that have files.
        missing : subject → what is missing.
        duplicates : subject → files beyond one for each hemisphere, and the problem with each.
        """
        chosen = self.select(list(dict.fromkeys([*names, *missing])), problems, journal)
        if self.skips:
            incomplete = [name for name, in_data in chosen if in_data in missing]
            journal.leave_out(incomplete, "with missing files")
        for name, in_data in chosen:
            if in_data in missing and not self.skips:
                text = "; ".join(f"missing: {path}" for path in missing[in_data])
                problem = Problem(f"{text}; {_SKIP}", f"files are missing; {_SKIP}")
                problems.add(f"subject {name}", problem)
            # Only those of chosen subjects: others do no harm.
            for path, text in duplicates.get(in_data, ()):
                problems.add(path, text)
        # The other files of a subject that lacks one are read too, to report all problems.
        present = set(names) - (set(missing) if self.skips else set())
        return [(name, in_data) for name, in_data in chosen if in_data in present]


def read_subjects(subjects: Any) -> tuple[str | None, tuple[str, ...] | None]:
    """Return the pattern, or the names, that the argument `subjects` gives."""
    if subjects is None:
        return None, None
    if not isinstance(subjects, str | os.PathLike):
        return None, tuple(map(str, subjects))
    if SUBJECT_FIELD in str(subjects):
        return str(subjects), None
    path = Path(subjects).expanduser()
    advice = (
        "--subjects (subjects=) takes names, a file with one name per line, or a pattern with "
        f"{SUBJECT_FIELD}"
    )
    with naming(path, "list of subjects", CohortError, advice):
        columns, _ = read_table(path)
        key = column_named(columns, ID_COLUMNS)
        if key is not None:
            return None, tuple(columns[key])
        if len(columns) != 1:
            raise Unreadable("has several columns, but none is called participant_id")
        # Without a header, the first name is in its place.
        ((first, names),) = columns.items()
        return None, (first, *names)


def check_names(
    subjects: Sequence[str],
    n: int,
    description: str,
) -> list[str]:
    """Return names of subjects; raise an error unless there are n different ones."""
    n_different = len(set(subjects))
    if len(subjects) != n or n_different < n:
        text = f"has {len(subjects)} names, {n_different} of them different"
        raise CohortError("subjects", f"{text}; {description}")
    return list(subjects)


def names_of_unnamed(
    n: int,
    path: str,
    table: Participants | None,
    journal: Journal,
) -> list[str]:
    """Return names for n maps without names: those in the table, or numbers."""
    if table is None:
        return [f"map{number + 1:04d}" for number in range(n)]
    # The table may list all maps, also those it leaves out, or only those in the file.
    for names in (table.listed, table.ids):
        if len(names) == n:
            journal.note(f"the {n} maps of {path} are the {n} subjects of participants, in order")
            return list(names)
    text = f"contains {n} maps without subject names; the participants table lists"
    remedy = "list all in the order of the maps, or pass their names with --subjects (subjects=)"
    raise CohortError(path, f"{text} {len(table.listed)}: {remedy}")
