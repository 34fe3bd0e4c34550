"""Several scans of one person in a table of files, and the choice of sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import TYPE_CHECKING

from icofactor.cohort.find import keep
from icofactor.cohort.people import People, Scan, repeated, scan_name, scan_of, session_key
from icofactor.cohort.problems import ReadProblems, some
from icofactor.cohort.subjects import Selection
from icofactor.errors import CohortError

if TYPE_CHECKING:
    import pandas as pd


def choose_sessions(
    files: pd.DataFrame,
    sessions: str | Sequence[str] | None,
    selection: Selection,
    problems: ReadProblems,
) -> tuple[pd.DataFrame, dict[str, Scan]]:
    """Return the files of the requested sessions, and name of a scan → person and session.

    If people have several scans and the caller wants them, `subject` in the table is the scan.
    """
    # Names of folders come first: they contain the session of a longitudinal stream.
    named = [scan_of(subject) for subject in files["subject"]]
    scans = [
        scan or ((subject, session) if session else None)
        for scan, subject, session in zip(named, files["subject"], files["session"], strict=True)
    ]
    if sessions not in (None, "all"):
        keys = session_keys(sessions, filter(None, scans))
        chosen = [scan is not None and session_key(scan[1]) in keys for scan in scans]
        files = keep(files, chosen)
        scans = list(compress(scans, chosen))
        named = list(compress(named, chosen))
    # One scan of each person is a plain cohort.
    if not repeated({scan_name(*scan): scan for scan in scans if scan}):
        return files, {}
    # A table that lists scans says by itself that all of them are wanted.
    table = selection.participants
    if sessions is None and not (table is not None and table.scans):
        _ask_for_sessions(files, named, problems)
        return files, {}
    names = [
        scan_name(*scan) if scan is not None and name is None else subject
        for subject, name, scan in zip(files["subject"], named, scans, strict=True)
    ]
    by_name = {name: scan for name, scan in zip(names, scans, strict=True) if scan is not None}
    return files.assign(subject=names), by_name


def _ask_for_sessions(
    files: pd.DataFrame,
    named: Sequence[Scan | None],
    problems: ReadProblems,
) -> None:
    """Add a problem if names of folders are scans, several of a person.

    Other files that exist several times are named one by one, later.
    """
    by_name = {
        name: scan for name, scan in zip(files["subject"], named, strict=True) if scan is not None
    }
    if repeated(by_name):
        people = People(tuple(by_name), tuple(person for person, _ in by_name.values()))
        names = some(sorted({session for _, session in by_name.values()}), 10)
        remedy = "read them with --sessions all (sessions='all'), or one session by its name"
        problems.add("paths", f"contain {people.as_scans}: {remedy} (there are {names})")


def session_keys(
    sessions: str | Sequence[str] | None,
    scans: Iterable[Scan],
) -> set[str]:
    """Return the keys of requested sessions, all of which some scan has."""
    requested = [sessions] if isinstance(sessions, str) else list(map(str, sessions or ()))
    present = {session_key(session): session for _, session in scans}
    unknown = [name for name in requested if session_key(name) not in present]
    if unknown or not requested:
        listed = f"there are {some(present.values(), 20)}" if present else "there are none"
        text = f"must be 'all' or sessions of the scans; {listed}"
        raise CohortError("sessions", f"{text}, not {some(unknown) or 'none'}")
    return set(map(session_key, requested))
