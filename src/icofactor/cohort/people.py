"""Rows are scans, people are groups of rows: which scans are fitted, and which belong together.

A cohort's `subjects` name its scans. Where people were scanned several times, `participants` has
the person of each scan in participant_id and the session in session_id.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.checks import OneOf, check_value
from icofactor.cohort.adjusted import subject_names
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, CohortError, plural, shown
from icofactor.io.tables import cell_text, is_missing, is_number

PERSON, SESSION, MEASURE = "participant_id", "session_id", "measure"
# Names of the column of sessions, in lower case.
SESSION_COLUMNS = (SESSION, "session", "ses", "visit", "visit_id", "timepoint")
FIT_ON = ("baseline", "one-per-person", "all")
STREAMS = ("cross", "base", "long")
# The warning of a fit to all scans begins with this.
REPEATED = "people with several scans count several times"
_LONG = re.compile(r"(?P<scan>.+)\.long\.(?P<base>.+)")
# Names of scans: BIDS, and the HCP's studies of aging and development.
_SCANS = (
    re.compile(r"(?P<person>sub-[0-9A-Za-z]+)_ses-(?P<session>[0-9A-Za-z]+)"),
    re.compile(r"(?P<person>HC[AD]\d+)_(?P<session>V\d+)_MR"),
)
_BASE_NAME = re.compile(r"sub-[0-9A-Za-z]+(?=_|$)")
# Person and session.
Scan = tuple[str, str]


def bare(subject: str) -> str:
    """Return a subject's name without "sub-", which some tools add and others do not."""
    return subject.removeprefix("sub-")


def session_key(session: str) -> str:
    """Return a session for comparison: without "ses-" and zeros before a number."""
    text = cell_text(session.removeprefix("ses-"))
    return (text.lstrip("0") or "0") if text.isdecimal() else text


def scan_name(
    person: str,
    session: str,
) -> str:
    """Return the name of a scan: sub-01_ses-1."""
    return f"{person}_ses-{session.removeprefix('ses-')}"


def scan_of(name: str) -> Scan | None:
    """Return person and session in the name of a folder, or None.

    Such names are sub-01_ses-1 or, by FreeSurfer's longitudinal stream, sub-01_ses-1.long.sub-01.
    """
    long = _LONG.fullmatch(name)
    if long is not None:
        inner = scan_of(long["scan"])
        template = _BASE_NAME.match(long["base"])
        person = long["base"] if template is None else template[0]
        # Both parts of the name agree: sub-01_ses-1.long.sub-01.
        if inner is not None and inner[0] == person:
            return inner
        session = long["scan"].removeprefix(person).strip("_-.")
        return person, session or long["scan"]
    matches = (pattern.fullmatch(name) for pattern in _SCANS)
    match = next(filter(None, matches), None)
    return None if match is None else (match["person"], match["session"])


def scans_of(names: Sequence[str]) -> dict[str, Scan]:
    """Return the scans that names tell, if one of the people has several; else none."""
    scans = {name: scan for name in names if (scan := scan_of(name)) is not None}
    return scans if repeated(scans) else {}


def repeated(scans: Mapping[str, Scan]) -> bool:
    """Whether any person has several scans."""
    return len({person for person, _ in scans.values()}) < len(scans)


def streams_of(
    names: Sequence[str],
    bases: Sequence[str] = (),
) -> dict[str, str]:
    """Return the stream of each FreeSurfer folder: cross, base or long.

    Parameters
    ----------
    bases : names that are known to be bases.
    """
    long = [match for name in names if (match := _LONG.fullmatch(name))]
    people = {scan[0] for name in names if (scan := scan_of(name)) is not None}
    # A folder that is called like a person, beside scans of it, is its template.
    all_bases = {match["base"] for match in long} | people | set(bases)
    streams = {name: "base" if name in all_bases else "cross" for name in names}
    return streams | {match[0]: "long" for match in long}


def choose_stream(
    names: Sequence[str],
    stream: str | None,
    path: str,
    bases: Sequence[str] = (),
) -> list[str]:
    """Return the folders of one of FreeSurfer's streams: the requested or the only one."""
    if stream is not None:
        check_value("stream", stream, OneOf(STREAMS))
    streams = streams_of(names, bases)
    counts = Counter(streams.values())
    if stream is None and len(counts) == 1:
        return list(names)
    if stream not in counts:
        listed = ", ".join(f"{kind} ({counts[kind]})" for kind in STREAMS if counts[kind])
        problem = f"has no {stream} folders"
        if stream is None:
            problem = "choose one of FreeSurfer's streams with --stream (stream=)"
        raise CohortError(path, f"{problem}; there are {listed}")
    return [name for name in names if streams[name] == stream]


# ---------------------------------------------------------------------- the people of a cohort


@dataclass(frozen=True, eq=False)
class People:
    """The people of the rows of a cohort.

    Attributes
    ----------
    scans : unique names of the rows.
    persons : person of each row.
    sessions : session of each row; None if rows are people.
    measures : measure of each row, if scans have a row per measure: all rows of the first measure,
        then those of the second.
    """

    scans: tuple[str, ...]
    persons: tuple[str, ...]
    sessions: tuple[str, ...] | None = None
    measures: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        subjects: Sequence[str],
        participants: Mapping[str, Any],
    ) -> People:
        """Return the people of a cohort, from its names and its table.

        Without a column of sessions, scans of one person are told apart by name.
        """
        rows = tuple(map(str, subjects))
        measures = _measures_of_rows(rows, participants)
        scans = rows
        if measures is not None:
            scans = tuple(
                row.removesuffix(f"_{measure}") for row, measure in zip(rows, measures, strict=True)
            )
        persons = tuple(map(_text, participants.get(PERSON, scans)))
        # Names that differ only by "sub-" are the same people.
        if len(persons) != len(rows) or list(map(bare, persons)) == list(map(bare, scans)):
            return cls(rows, scans, None, measures)
        columns = {str(column).lower(): column for column in reversed(list(participants))}
        column = next((columns[name] for name in SESSION_COLUMNS if name in columns), None)
        sessions = scans if column is None else tuple(map(_text, participants[column]))
        unique = set(zip(persons, sessions, measures or sessions, strict=True))
        # Sessions that do not tell scans apart are of no use.
        if any(map(is_missing, sessions)) or len(unique) < len(rows):
            sessions = scans
        return cls(rows, persons, sessions, measures)

    @property
    def n(self) -> int:
        """Number of people."""
        return len(set(self.persons))

    @property
    def n_scans(self) -> int:
        """Number of scans, however many measures they have."""
        return len(self.scans) // len(set(self.measures or ("",)))

    @property
    def repeated(self) -> bool:
        """Whether any person has several scans."""
        return self.n < self.n_scans

    @property
    def columns(self) -> dict[str, list[str]]:
        """First columns of tables: participant_id, and session_id and measure if there are any."""
        columns = {PERSON: self.persons, SESSION: self.sessions, MEASURE: self.measures}
        return {name: list(values) for name, values in columns.items() if values}

    @property
    def known(self) -> dict[str, Scan]:
        """Scan → person and session; empty if rows are people."""
        if self.sessions is None:
            return {}
        people = zip(self.persons, self.sessions, strict=True)
        return dict(zip(self.scans, people, strict=True))

    def __getitem__(self, rows: Sequence[int]) -> People:
        columns = (self.scans, self.persons, self.sessions, self.measures)
        subset: list[Any] = [
            None if values is None else tuple(values[row] for row in rows) for values in columns
        ]
        return People(*subset)

    def __str__(self) -> str:
        return self.as_scans if self.repeated else plural(self.n_scans, "subject")

    @property
    def as_scans(self) -> str:
        """40 scans of 8 people."""
        people = "person" if self.n == 1 else "people"
        return f"{plural(self.n_scans, 'scan')} of {self.n} {people}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else cell_text(value)


def _measures_of_rows(
    rows: Sequence[str],
    participants: Mapping[str, Any],
) -> tuple[str, ...] | None:
    """Return the measure of each row if rows are named after it, as those of joined measures."""
    measures = tuple(map(str, participants.get(MEASURE, ())))
    if not rows or len(measures) != len(rows):
        return None
    # A column "measure" of the user has another meaning.
    is_named = all(row.endswith(f"_{measure}") for row, measure in zip(rows, measures, strict=True))
    return measures if is_named else None


def people_of(cohort: Any) -> People | None:
    """Return the people of a cohort; None for an array, of which nothing is known."""
    subjects = subject_names(cohort)
    return None if subjects is None else People.of(subjects, getattr(cohort, "participants", {}))


def warn_of_repeated(cohort: Any) -> None:
    """Warn that a fit uses all rows, if some are scans of one person."""
    people = people_of(cohort)
    if people is not None and people.repeated:
        remedy = "fit one scan per person, e.g. fit_cohort(..., fit_on='baseline'), or ignore this"
        text = f"{REPEATED} in this fit ({people.as_scans}): {remedy} warning to fit all"
        warnings.warn(text, UserWarning, stacklevel=5)


def natural(text: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts session 2 before session 10."""
    words = filter(None, re.split(r"(\d+)", text))
    return [(0, int(word), "") if word.isdecimal() else (1, 0, word) for word in words]


def _rows_to_fit(
    people: People,
    participants: Mapping[str, Any],
    fit_on: str | None,
    order: str | None,
    seed: int,
) -> NDArray[np.int64]:
    """Return the rows to fit, in order; raise an error for repeated scans without a choice."""
    if people.measures is not None:
        # The same scans of every measure.
        n = people.n_scans
        table = {name: values[:n] for name, values in participants.items() if name != MEASURE}
        scans = replace(people[range(n)], measures=None)
        rows = _rows_to_fit(
            scans,
            table,
            fit_on,
            order,
            seed,
        )
        return np.concatenate([rows + start for start in range(0, len(people.scans), n)])
    # Without sessions, the names of scans order them.
    sessions = [natural(session_key(session)) for session in people.sessions or people.scans]
    keys: list[Any] = sessions
    if order is not None:
        values = _order_keys(order, people, participants)
        keys = list(zip(values, sessions, strict=True))
    if not people.repeated or fit_on == "all":
        return np.arange(len(people.scans))
    if fit_on is None:
        choices = "baseline (the first scan), one-per-person (one at random) or all"
        raise ArgumentError("fit_on", f"choose which of {people.as_scans} to fit: {choices}")
    groups = RowGroups.of(people.persons).members
    if fit_on == "one-per-person":
        rng = np.random.default_rng(seed)
        return np.sort([rows[int(rng.integers(len(rows)))] for rows in groups])
    return np.sort([min(rows, key=keys.__getitem__) for rows in groups])


def _order_keys(
    column: str,
    people: People,
    participants: Mapping[str, Any],
) -> list[Any]:
    """Return the values of a column as keys to sort by."""
    cells = _complete_cells(column, people, participants, "order")
    # Ages and days are numbers, dates are text that sorts naturally.
    if all(map(is_number, cells)):
        return [float(cell) for cell in cells]
    return [natural(cell) for cell in cells]


def _complete_cells(
    column: str,
    people: People,
    participants: Mapping[str, Any],
    argument: str,
) -> list[str]:
    """Return a column as text; raise an error if a value is missing."""
    # A column that does not exist has no value for anybody.
    cells = [cell_text(value) for value in participants.get(column, ["n/a"] * len(people.scans))]
    missing = [name for name, cell in zip(people.scans, cells, strict=True) if is_missing(cell)]
    if missing:
        text = f"column {shown(column)} has no value for {some(missing, 10)}"
        if column not in participants:
            text = f"there is no column {shown(column)}, but {some(map(str, participants), 20)}"
        raise ArgumentError(argument, f"{text}; fill it in, or leave them out")
    return cells


# ---------------------------------------------------------------------- groups


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Rows that stay together wherever rows are split, drawn or permuted.

    Attributes
    ----------
    codes : (n_rows,) number of each row's group; groups are numbered as they first appear.
    """

    codes: NDArray[np.int64]

    @classmethod
    def of(cls, labels: Sequence[Any]) -> RowGroups:
        """Return the groups of rows with equal labels."""
        numbers: dict[Any, int] = {}
        codes = [numbers.setdefault(label, len(numbers)) for label in labels]
        return cls(np.array(codes, dtype=np.int64))

    @property
    def n(self) -> int:
        """Number of groups."""
        return int(self.codes.max()) + 1

    @cached_property
    def members(self) -> list[NDArray[np.int64]]:
        """Rows of each group."""
        order = np.argsort(self.codes, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.codes))[:-1])

    def resample(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the rows of as many groups as there are, drawn with replacement."""
        return np.concatenate([self.members[group] for group in rng.integers(self.n, size=self.n)])

    def deal(
        self,
        strata: NDArray[np.int64],
        n_parts: int,
        rng: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Deal whole groups into parts of nearly equal size, also within each stratum.

        A group belongs to the stratum of most of its rows.

        Returns
        -------
        (n_rows,) part of each row
        """
        # A group in two strata counts where it has most rows.
        stratum = np.array([np.bincount(strata[rows]).argmax() for rows in self.members])
        # Shuffled, so that a part does not depend on the order of the rows.
        shuffled = [
            rng.permutation(np.flatnonzero(stratum == number))
            for number in rng.permutation(np.unique(stratum))
        ]
        order = np.concatenate(shuffled)
        sizes = np.array([len(rows) for rows in self.members])
        # Deal large groups first: small ones even the parts out.
        order = order[np.argsort(-sizes[order], kind="stable")]
        n_rows = np.zeros(n_parts)
        n_rows_of_stratum = np.zeros((n_parts, int(stratum.max()) + 1))
        parts = np.empty(len(self.codes), dtype=np.int64)
        for group in order:
            inside = n_rows_of_stratum[:, stratum[group]]
            # Fewest rows of this stratum first, then fewest rows.
            smallest = np.lexsort((n_rows, inside))[0]
            parts[self.members[group]] = smallest
            n_rows[smallest] += sizes[group]
            inside[smallest] += sizes[group]
        return parts


def groups_of(
    groups: Any,
    people: People | None,
    participants: Mapping[str, Any],
    n_rows: int,
    least: int = 2,
) -> RowGroups | None:
    """Return which rows belong together; None if every row stands alone.

    Parameters
    ----------
    groups : column of `participants`, one label per row, or None for the scans of a person.
    least : smallest number of groups.
    """
    if people is None and (groups is None or (isinstance(groups, str) and groups == PERSON)):
        return None
    labels = _labels(groups, people, participants)
    row_groups = RowGroups.of(labels)
    problem = _problem_of_labels(labels, people, n_rows)
    if not problem and row_groups.n < min(least, n_rows):
        text = f"makes {plural(row_groups.n, 'group')} of {n_rows} rows"
        problem = f"{text}; at least {least} are needed"
    if problem:
        raise ArgumentError("groups", problem)
    return None if row_groups.n == n_rows else row_groups


def _labels(
    groups: Any,
    people: People | None,
    participants: Mapping[str, Any],
) -> list[str]:
    """Return the label of each row."""
    if groups is not None and not isinstance(groups, str):
        return [cell_text(label) for label in groups]
    if people is None:
        text = f"must be one label per row for an array; found {shown(groups)}"
        raise ArgumentError("groups", text)
    if groups is None or groups == PERSON:
        return [bare(person) for person in people.persons]
    return _complete_cells(groups, people, participants, "groups")


def _problem_of_labels(
    labels: Sequence[str],
    people: People | None,
    n_rows: int,
) -> str:
    """Say why labels cannot group rows, "" if they can: they must not split people."""
    if len(labels) != n_rows:
        return f"has {len(labels)} labels; there are {n_rows} rows"
    if any(map(is_missing, labels)):
        row = next(row for row, label in enumerate(labels) if is_missing(label))
        return f"the label of row {row} is missing"
    if people is None:
        return ""
    # A person in two groups would be on both sides of a split.
    labels_of: dict[str, set[str]] = {}
    for person, label in zip(people.persons, labels, strict=True):
        labels_of.setdefault(person, set()).add(label)
    split = [person for person, different in labels_of.items() if len(different) > 1]
    text = f"must not split people; several groups contain scans of {some(split, 10)}"
    return text if split else ""


# ---------------------------------------------------------------------- both


@dataclass(frozen=True, eq=False)
class Scans:
    """Which rows of a cohort are fitted, and how they belong together.

    Attributes
    ----------
    people : of all rows; None for an array.
    rows : numbers of the rows that are fitted.
    groups : of the rows that are fitted; None if each stands alone.
    fit_on, order : the choice; see `choose_scans`.
    column : of the participants that gives the groups; None for people and for labels.
    """

    people: People | None
    rows: NDArray[np.int64]
    groups: RowGroups | None
    fit_on: str | None = None
    order: str | None = None
    column: str | None = None

    def of(self, cohort: Any) -> Any:
        """Return the rows of a cohort that are fitted."""
        if self.people is None or len(self.rows) == len(self.people.scans):
            return cohort
        # Adjusted maps were estimated from all rows.
        if not hasattr(type(cohort), "__getitem__"):
            text = "needs the original maps: choose scans first, then regress out the covariates"
            raise ArgumentError("fit_on", text)
        return cohort[self.rows]

    @property
    def record(self) -> dict[str, Any]:
        """For provenance and settings; empty if every row is a person."""
        record: dict[str, Any] = {}
        if self.people is not None and self.people.repeated:
            record["fit_on"] = self.fit_on
            if self.order is not None:
                record["order"] = self.order
            record["n_scans"] = self.people.n_scans
            record["n_people"] = self.people.n
            n_measures = len(self.people.scans) // self.people.n_scans
            record["n_fitted"] = len(self.rows) // n_measures
        if self.column is not None:
            record["groups"] = self.column
        if self.groups is not None:
            record["n_groups"] = self.groups.n
        return record

    @property
    def sentence(self) -> str:
        """40 scans of 8 people; fitted on the first scan of each. Empty if rows are people."""
        if self.people is None or not self.people.repeated:
            return ""
        return f"{self.people.as_scans}; fitted on {self.phrase}"

    @property
    def phrase(self) -> str:
        """What is fitted, after "fitted on"."""
        by = "" if self.order is None else f" by {self.order}"
        phrases = {
            "baseline": f"the first scan of each person{by}",
            "one-per-person": "one scan of each person, drawn at random",
        }
        return phrases.get(self.fit_on or "", "all of them")


def choose_scans(
    cohort: Any,
    fit_on: str | None = None,
    groups: Any = None,
    order: str | None = None,
    seed: int = 0,
    least: int = 2,
    n_rows: int | None = None,
) -> Scans:
    """Choose which rows of a cohort to fit, and which of them belong together.

    Parameters
    ----------
    cohort : Cohort, one that is stored or planned, or an array.
    fit_on : "baseline", "one-per-person" or "all"; None if nobody has several.
    order : column by which the first scan of a person is found; default: the name of its session.
    groups : column of the participants, one label per row of the cohort, or None for the scans of a
        person.
    seed : of the draw of one scan per person.
    least : smallest number of groups.
    n_rows : of an array.
    """
    if fit_on is not None:
        check_value("fit_on", fit_on, OneOf(FIT_ON))
    if order is not None and fit_on != "baseline":
        remedy = "use it with --fit-on baseline (fit_on='baseline')"
        raise ArgumentError("order", f"chooses the first scan; {remedy}")
    people = people_of(cohort)
    table: Mapping[str, Any] = getattr(cohort, "participants", {})
    if people is None:
        if fit_on not in (None, "all"):
            text = f"must be 'all' for an array, whose people are unknown; found {shown(fit_on)}"
            raise ArgumentError("fit_on", text)
        rows = np.arange(len(cohort) if n_rows is None else n_rows)
        fitted = None
    else:
        rows = _rows_to_fit(
            people,
            table,
            fit_on,
            order,
            seed,
        )
        fitted = people[rows.tolist()]
    column = groups if isinstance(groups, str) else None
    if column is None and groups is not None:
        labels = list(groups)
        # Labels must fit all rows, also those that are not fitted.
        groups_of(
            labels,
            people,
            table,
            len(rows) if people is None else len(people.scans),
            1,
        )
        groups = [labels[row] for row in rows]
    # Columns that give the groups follow the rows.
    if people is not None and len(rows) < len(people.scans):
        table = {name: np.asarray(values)[rows] for name, values in table.items()}
    row_groups = groups_of(
        groups,
        fitted,
        table,
        len(rows),
        least,
    )
    return Scans(
        people,
        rows,
        row_groups,
        fit_on,
        order,
        column,
    )
