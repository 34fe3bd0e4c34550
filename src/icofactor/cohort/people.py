"""Rows are scans, people are groups: who was scanned when, which scans are fitted, and which rows
belong together.

A cohort's `subjects` name its scans, no two alike. Where people were scanned several times,
`participants` holds the person of each scan in participant_id and the session in session_id.
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

from icofactor.cohort.adjusted import subject_names
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, CohortError, counted, literal
from icofactor.io.tables import cell_text, is_missing, is_number

PERSON, SESSION, MEASURE = "participant_id", "session_id", "measure"
SESSION_COLUMNS = (SESSION, "session", "ses", "visit", "visit_id", "timepoint")
"""Names of the column of sessions, in whichever case."""
FIT_ON = ("baseline", "one-per-person", "all")
STREAMS = ("cross", "base", "long")
REPEATED = "people with several scans count several times"
"""How the warning of a fit to all scans begins."""
_CHOICES = "baseline (the first scan of each person), one-per-person (one drawn at random) or all"
_LONG = re.compile(r"(?P<scan>.+)\.long\.(?P<base>.+)")
_SCANS = (
    re.compile(r"(?P<person>sub-[0-9A-Za-z]+)_ses-(?P<session>[0-9A-Za-z]+)"),
    re.compile(r"(?P<person>HC[AD]\d+)_(?P<session>V\d+)_MR"),  # Aging and Development of the HCP
)
_BASE_NAME = re.compile(r"sub-[0-9A-Za-z]+(?=_|$)")
Scan = tuple[str, str]
"""Person and session."""


def bare(subject: str) -> str:
    """A subject's name without "sub-": some tools add it, others do not."""
    return subject.removeprefix("sub-")


def session_key(session: str) -> str:
    """By what sessions are compared: without "ses-" and zeros before a number."""
    found = cell_text(session.removeprefix("ses-"))
    return (found.lstrip("0") or "0") if found.isdecimal() else found


def scan_name(person: str, session: str) -> str:
    """Name of a scan: sub-01_ses-1."""
    return f"{person}_ses-{session.removeprefix('ses-')}"


def scan_of(name: str) -> Scan | None:
    """Person and session that the name of a folder tells, e.g. sub-01_ses-1 or
    sub-01_ses-1.long.sub-01; else None.
    """
    long = _LONG.fullmatch(name)
    if long is not None:
        inner, template = scan_of(long["scan"]), _BASE_NAME.match(long["base"])
        person = long["base"] if template is None else template[0]
        if inner is not None and inner[0] == person:
            return inner
        rest = long["scan"].removeprefix(person).strip("_-.")
        return person, rest or long["scan"]
    found = next((match for form in _SCANS if (match := form.fullmatch(name))), None)
    return None if found is None else (found["person"], found["session"])


def scans_of(names: Sequence[str]) -> dict[str, Scan]:
    """Scans that names tell, where one of the people has several; else none. FreeSurfer's time
    points are those of
    the people whose base they made.
    """
    known = {name: scan for name in names if (scan := scan_of(name)) is not None}
    return known if repeated(known) else {}


def repeated(scans: Mapping[str, Scan]) -> bool:
    """Whether any person has several scans."""
    return max(Counter(person for person, _ in scans.values()).values(), default=0) > 1


def streams_of(names: Sequence[str], bases: Sequence[str] = ()) -> dict[str, str]:
    """Name of a FreeSurfer folder → its stream: cross, base or long. `bases`: names known to be
    bases.
    """
    longs = [match for name in names if (match := _LONG.fullmatch(name))]
    people = {scan[0] for name in names if (scan := scan_of(name)) is not None}
    base = {match["base"] for match in longs} | people | set(bases)
    return {
        name: "long" if _LONG.fullmatch(name) else "base" if name in base else "cross"
        for name in names
    }


def choose_stream(
    names: Sequence[str], stream: str | None, where: str, bases: Sequence[str] = ()
) -> list[str]:
    """The folders of one of FreeSurfer's streams: that asked for, or the only one."""
    if stream is not None and stream not in STREAMS:
        raise ArgumentError("stream", stream, "'cross', 'base' or 'long'")
    of = streams_of(names, bases)
    counts = Counter(of.values())
    if stream is None and len(counts) == 1:
        return list(names)
    if stream not in counts:
        listed = ", ".join(f"{kind} ({counts[kind]})" for kind in STREAMS if counts[kind])
        what = (
            "choose one of FreeSurfer's streams with {stream}"
            if stream is None
            else f"has no {stream} folders"
        )
        raise CohortError(where, f"{what}; there are {listed}")
    return [name for name in names if of[name] == stream]


# ---------------------------------------------------------------------- the people of a cohort


@dataclass(frozen=True, eq=False)
class People:
    """Who the rows of a cohort are.

    Attributes
    ----------
    scans : names of the rows, no two alike.
    persons : the person of each.
    sessions : the session of each; None where rows are people.
    measures : the measure of each, where scans have a row per measure: all of the first measure,
        then of the second.
    """

    scans: tuple[str, ...]
    persons: tuple[str, ...]
    sessions: tuple[str, ...] | None = None
    measures: tuple[str, ...] | None = None

    @classmethod
    def of(cls, subjects: Sequence[str], participants: Mapping[str, Any]) -> People:
        """From a cohort's names and table. Without a column of sessions, scans of one person are
        told apart by name.
        """
        names = tuple(map(str, subjects))
        measures = _measures(names, participants)
        scans = (
            names
            if measures is None
            else tuple(map(str.removesuffix, names, (f"_{one}" for one in measures)))
        )
        persons = tuple(map(_text, participants.get(PERSON, scans)))
        if len(persons) != len(names) or list(map(bare, persons)) == list(map(bare, scans)):
            return cls(names, scans, None, measures)
        columns = {str(column).lower(): column for column in reversed(list(participants))}
        column = next((columns[name] for name in SESSION_COLUMNS if name in columns), None)
        sessions = scans if column is None else tuple(map(_text, participants[column]))
        known = set(zip(persons, sessions, measures or sessions, strict=True))
        if any(map(is_missing, sessions)) or len(known) < len(names):
            sessions = scans
        return cls(names, persons, sessions, measures)

    @property
    def n(self) -> int:
        """Number of people."""
        return len(set(self.persons))

    @property
    def n_scans(self) -> int:
        """Number of scans, of whichever number of measures."""
        return len(self.scans) // len(set(self.measures or ("",)))

    @property
    def repeated(self) -> bool:
        """Whether any person has several scans."""
        return self.n < self.n_scans

    @property
    def columns(self) -> dict[str, list[str]]:
        """The first columns of tables: participant_id, session_id where scans are not people,
        measure of several.
        """
        more = {SESSION: self.sessions, MEASURE: self.measures}
        return {
            PERSON: list(self.persons),
            **{name: list(values) for name, values in more.items() if values},
        }

    @property
    def known(self) -> dict[str, Scan]:
        """Scan → person and session; empty where rows are people."""
        sessions = self.sessions or ()
        return {
            scan: (who, when)
            for scan, who, when in zip(self.scans, self.persons, sessions, strict=bool(sessions))
        }

    def __getitem__(self, rows: Sequence[int]) -> People:
        some_of: Any = lambda values: None if values is None else tuple(values[row] for row in rows)
        return People(*map(some_of, (self.scans, self.persons, self.sessions, self.measures)))

    def __str__(self) -> str:
        return counted(self.n_scans, "subject") if not self.repeated else self.as_scans

    @property
    def as_scans(self) -> str:
        """40 scans of 8 people."""
        return (
            f"{counted(self.n_scans, 'scan')} of {self.n} {'person' if self.n == 1 else 'people'}"
        )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else cell_text(value)


def _measures(names: Sequence[str], participants: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The measure of each row, where rows are named after it, as those of joined measures are."""
    found = tuple(map(str, participants.get(MEASURE, ())))
    named = len(found) == len(names) > 0 and all(
        map(str.endswith, names, (f"_{one}" for one in found))
    )
    return found if named else None


def people_of(cohort: Any) -> People | None:
    """The people of a cohort; None for an array, of which nothing is known."""
    subjects = subject_names(cohort)
    return None if subjects is None else People.of(subjects, getattr(cohort, "participants", {}))


def warn_of_repeated(cohort: Any) -> None:
    """Say that a fit takes all rows it is given, where some are scans of one person."""
    people = people_of(cohort)
    if people is not None and people.repeated:
        remedy = "fit one scan per person, e.g. fit_cohort(..., fit_on='baseline'), or ignore this warning to fit all"
        warnings.warn(
            f"{REPEATED} in this fit ({people.as_scans}): {remedy}", UserWarning, stacklevel=5
        )


def natural(text: str) -> list[tuple[int, int, str]]:
    """A key by which session 2 comes before session 10."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part]


@dataclass(frozen=True)
class FitOn:
    """Which scans are fitted.

    Attributes
    ----------
    which : "baseline", "one-per-person", "all"; None where nobody has several.
    order : column by which the first scan of a person is found; by the name of its session when
        None.
    seed : of the draw of one scan per person.
    """

    which: str | None = None
    order: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.which is not None and self.which not in FIT_ON:
            raise ArgumentError("fit_on", self.which, "'baseline', 'one-per-person' or 'all'")
        if self.order is not None and self.which != "baseline":
            raise ArgumentError(
                "order", None, "{order} chooses the first scan; use it with {fit_on='baseline'}"
            )

    def rows(self, people: People, participants: Mapping[str, Any]) -> NDArray[np.int64]:
        """Rows to fit, in order; refuses repeated scans without a choice."""
        if people.measures is not None:  # the same scans of every measure
            n, n_rows = people.n_scans, len(people.scans)
            table = {name: values[:n] for name, values in participants.items() if name != MEASURE}
            chosen = self.rows(replace(people[range(n)], measures=None), table)
            return np.concatenate([chosen + before for before in range(0, n_rows, n)])
        key = None if self.order is None else _order_key(self.order, people, participants)
        everyone = np.arange(len(people.scans))
        if not people.repeated or self.which == "all":
            return everyone
        if self.which is None:
            raise ArgumentError(
                "fit_on",
                None,
                f"There are {people.as_scans}: choose with {{fit_on}} what to fit: {_CHOICES}",
            )
        of: dict[str, list[int]] = {}
        for row, person in enumerate(people.persons):
            of.setdefault(person, []).append(row)
        if self.which == "one-per-person":
            rng = np.random.default_rng(self.seed)
            return np.sort([rows[int(rng.integers(len(rows)))] for rows in of.values()])
        sessions = people.sessions or people.scans
        first = lambda row: (
            () if key is None else (key[row],),
            natural(session_key(sessions[row])),
        )
        return np.sort([min(rows, key=first) for rows in of.values()])

    @property
    def phrase(self) -> str:
        """What is fitted, after "fitted on"."""
        by = "" if self.order is None else f" by {self.order}"
        return {
            "baseline": f"the first scan of each person{by}",
            "one-per-person": "one scan of each person, drawn at random",
        }.get(self.which or "", "all of them")


def _order_key(column: str, people: People, participants: Mapping[str, Any]) -> list[Any]:
    cells = _known_cells(column, people, participants, "order")
    if all(map(is_number, cells)):
        return [float(cell) for cell in cells]
    return [natural(cell) for cell in cells]


def _known_cells(
    column: str, people: People, participants: Mapping[str, Any], argument: str
) -> list[str]:
    """A column as text, none missing."""
    if column not in participants:
        listed = ", ".join(str(name) for name in participants) or "none"
        raise ArgumentError(
            argument, column, f"a column of the participants table ({literal(listed)})"
        )
    cells = [cell_text(value) for value in participants[column]]
    missing = [name for name, cell in zip(people.scans, cells, strict=True) if is_missing(cell)]
    if missing:
        raise ArgumentError(
            argument,
            column,
            f"a column without missing values; values are missing for {some(missing, 10)}",
        )
    return cells


# ---------------------------------------------------------------------- groups


@dataclass(frozen=True, eq=False)
class RowGroups:
    """Rows that belong together, wherever rows are split, drawn or exchanged.

    Attributes
    ----------
    codes : (n_rows,) number of each row's group; groups are numbered as they first appear.
    """

    codes: NDArray[np.int64]

    @classmethod
    def of(cls, labels: Sequence[Any]) -> RowGroups:
        number: dict[Any, int] = {}
        return cls(
            np.array([number.setdefault(label, len(number)) for label in labels], dtype=np.int64)
        )

    @property
    def n(self) -> int:
        return int(self.codes.max()) + 1

    @cached_property
    def members(self) -> list[NDArray[np.int64]]:
        """Rows of each group."""
        order = np.argsort(self.codes, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.codes))[:-1])

    def resample(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Rows of as many groups as there are, drawn with replacement."""
        return np.concatenate([self.members[g] for g in rng.integers(self.n, size=self.n)])

    def deal(
        self, strata: NDArray[np.int64], n_parts: int, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """(n_rows,) part of each row: whole groups, parts of nearly equal size overall and within
        each stratum. A group counts to the stratum of most of its rows.
        """
        own = np.array([np.bincount(strata[rows]).argmax() for rows in self.members])
        order = np.concatenate(
            [rng.permutation(np.flatnonzero(own == s)) for s in rng.permutation(np.unique(own))]
        )
        sizes = np.array([len(rows) for rows in self.members])
        order = order[
            np.argsort(-sizes[order], kind="stable")
        ]  # large ones first, small ones even them out
        total, inside = np.zeros(n_parts), np.zeros((n_parts, int(own.max()) + 1))
        part = np.empty(len(self.codes), dtype=np.int64)
        for group in order:
            chosen = np.lexsort((total, inside[:, own[group]]))[0]
            part[self.members[group]] = chosen
            total[chosen] += sizes[group]
            inside[chosen, own[group]] += sizes[group]
        return part


def groups_of(
    groups: Any, people: People | None, participants: Mapping[str, Any], n_rows: int, least: int = 2
) -> RowGroups | None:
    """Which rows belong together; None where every row stands alone.

    Parameters
    ----------
    groups : column of `participants`, one label per row, or None for the scans of a person.
    least : groups that are needed.
    """
    if groups is None or (isinstance(groups, str) and groups == PERSON):
        if people is None:
            return None
        labels: Sequence[Any] = [bare(person) for person in people.persons]
    elif isinstance(groups, str):
        if people is None:
            raise ArgumentError(
                "groups", groups, "one label per row, because an array has no participants table"
            )
        labels = _known_cells(groups, people, participants, "groups")
    else:
        labels = [cell_text(label) for label in groups]
        if len(labels) != n_rows:
            raise ArgumentError(
                "groups", None, f"{{groups}} has {len(labels)} labels; there are {n_rows} rows"
            )
        if any(map(is_missing, labels)):
            row = next(i for i, label in enumerate(labels) if is_missing(label))
            raise ArgumentError("groups", None, f"{{groups}} is missing for row {row}")
    if people is not None:
        of: dict[str, set[str]] = {}
        for person, label in zip(people.persons, labels, strict=True):
            of.setdefault(person, set()).add(label)
        torn = [person for person, found in of.items() if len(found) > 1]
        if torn:
            raise ArgumentError(
                "groups",
                None,
                f"{{groups}} must not split people; several groups contain scans of {some(torn, 10)}",
            )
    found = RowGroups.of(labels)
    if found.n == n_rows:
        return None
    if found.n < least:
        what = counted(found.n, "group")
        raise ArgumentError(
            "groups", None, f"{{groups}} makes {what} of {n_rows} rows; at least {least} are needed"
        )
    return found


# ---------------------------------------------------------------------- both


@dataclass(frozen=True, eq=False)
class Scans:
    """Which rows of a cohort are fitted, and how they belong together.

    Attributes
    ----------
    people : of all rows; None for an array.
    rows : numbers of the rows that are fitted.
    groups : of the rows that are fitted; None where each stands alone.
    fit_on : the choice.
    column : of the participants, that the groups come from; None for people, or labels that were
        given.
    """

    people: People | None
    rows: NDArray[np.int64]
    groups: RowGroups | None
    fit_on: FitOn
    column: str | None = None

    @property
    def n_groups(self) -> int:
        """People, or families, that are fitted."""
        return len(self.rows) if self.groups is None else self.groups.n

    def of(self, cohort: Any) -> Any:
        """The rows of a cohort that are fitted."""
        if self.people is None or len(self.rows) == len(self.people.scans):
            return cohort
        if not hasattr(type(cohort), "__getitem__"):
            text = "{fit_on} needs the original maps: choose scans first, then regress out the covariates"
            raise ArgumentError("fit_on", None, text)
        return cohort[self.rows]

    @property
    def record(self) -> dict[str, Any]:
        """For provenance and settings; empty where every row is a person."""
        together: dict[str, Any] = {} if self.column is None else {"groups": self.column}
        if self.groups is not None:
            together["n_groups"] = self.groups.n
        if self.people is None or not self.people.repeated:
            return together
        order = {} if self.fit_on.order is None else {"order": self.fit_on.order}
        n_fitted = len(self.rows) * self.people.n_scans // len(self.people.scans)
        counts = {"n_scans": self.people.n_scans, "n_people": self.people.n, "n_fitted": n_fitted}
        return {"fit_on": self.fit_on.which, **order, **counts, **together}

    @property
    def sentence(self) -> str:
        """40 scans of 8 people; fitted on the first scan of each. Empty where every row is a
        person.
        """
        if self.people is None or not self.people.repeated:
            return ""
        return f"{self.people.as_scans}; fitted on {self.fit_on.phrase}"


def choose_scans(
    cohort: Any,
    fit_on: str | None = None,
    groups: Any = None,
    order: str | None = None,
    seed: int = 0,
    least: int = 2,
    n_rows: int | None = None,
) -> Scans:
    """Which rows of a cohort to fit, and which of them belong together.

    Parameters
    ----------
    cohort : Cohort, one that is stored or planned, or an array.
    fit_on, order : see `FitOn`.
    groups : column of the participants, one label per row of the cohort, or None for the scans of a
        person.
    seed : of the draw of one scan per person.
    least : groups that are needed.
    n_rows : of an array.
    """
    chosen, people = FitOn(fit_on, order, seed), people_of(cohort)
    table: Mapping[str, Any] = getattr(cohort, "participants", {})
    n = len(people.scans) if people is not None else len(cohort) if n_rows is None else n_rows
    if people is None and fit_on not in (None, "all"):
        raise ArgumentError(
            "fit_on", fit_on, "'all' for an array, which has no information about its rows"
        )
    rows = np.arange(n) if people is None else chosen.rows(people, table)
    if not isinstance(groups, str | None):
        labels = list(groups)
        groups_of(labels, people, table, n, 1)  # whole people, and a label for every row
        groups = [labels[row] for row in rows]
    some_of = (
        {name: np.asarray(values)[rows] for name, values in table.items()}
        if len(rows) < n
        else table
    )
    together = groups_of(
        groups, None if people is None else people[rows.tolist()], some_of, len(rows), least
    )
    return Scans(people, rows, together, chosen, groups if isinstance(groups, str) else None)
