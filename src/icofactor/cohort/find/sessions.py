"""Which of the files that were found are scans of the same people, and which of those scans are
wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from icofactor.cohort.find import Found
from icofactor.cohort.find.bids import entities_of
from icofactor.cohort.people import People, Scan, repeated, scan_name, scan_of, session_key
from icofactor.cohort.problems import Problems, some
from icofactor.cohort.subjects import Selection
from icofactor.errors import CohortError


def tell_scans(
    found: Found, sessions: str | Sequence[str] | None, selection: Selection, problems: Problems
) -> dict[str, Scan]:
    """Name of a scan → person and session, where people were scanned several times and it is said
    which scans are wanted; `found` then names scans, and those not wanted have left.
    """
    of_source: list[Scan | None] = []
    for source in found.sources:
        scan, session = scan_of(source.subject), _session_of(source.path)
        of_source.append(scan or (None if session is None else (source.subject, session)))
    told = {scan_name(*scan): scan for scan in of_source if scan is not None}
    if sessions not in (None, "all"):
        keys = asked_sessions(sessions, told.values())
        kept = [scan is not None and session_key(scan[1]) in keys for scan in of_source]
        found.sources = [source for source, keep in zip(found.sources, kept, strict=True) if keep]
        of_source = [scan for scan, keep in zip(of_source, kept, strict=True) if keep]
        told = {name: scan for name, scan in told.items() if session_key(scan[1]) in keys}
        for name in [
            name
            for name in found.missing
            if (scan := scan_of(name)) and session_key(scan[1]) not in keys
        ]:
            del found.missing[name]
    if not repeated(told):
        return {}
    chosen = sessions is not None or (
        selection.participants is not None and bool(selection.participants.scans)
    )
    if not chosen:
        by_name = {
            source.subject: scan for source in found.sources if (scan := scan_of(source.subject))
        }
        if repeated(by_name):  # of other files those that are there twice are named one by one
            people = People(tuple(by_name), tuple(person for person, _ in by_name.values()))
            names = some(sorted({session for _, session in by_name.values()}), 10)
            what = "read them with {sessions='all'}, or one session by its name"
            problems.add("paths", f"contain {people.as_scans}: {what} (there are {names})")
        return {}
    scans: dict[str, Scan] = {}
    for i, (source, scan) in enumerate(zip(found.sources, of_source, strict=True)):
        if scan is not None:
            name = source.subject if scan_of(source.subject) else scan_name(*scan)
            found.sources[i] = replace(source, subject=name)
            scans[name] = scan
    scans |= {name: scan for name in found.missing if (scan := scan_of(name))}
    return scans


def asked_sessions(sessions: Any, scans: Iterable[Scan]) -> set[str]:
    """Keys of the sessions that are asked for, all of which some scan has."""
    asked = [sessions] if isinstance(sessions, str) else [str(name) for name in sessions]
    there = {session_key(session): session for _, session in scans}
    unknown = [name for name in asked if session_key(name) not in there]
    if unknown or not asked:
        listed = f"there are {some(there.values(), 20)}" if there else "none are known"
        raise CohortError(
            "sessions",
            f"must be 'all' or sessions of the scans; {listed}, not {some(unknown) or 'none'}",
        )
    return set(map(session_key, asked))


def _session_of(path: Path) -> str | None:
    """The session that a BIDS name or folder tells."""
    own = entities_of(path.name).get("ses") if path.name.startswith("sub-") else None
    folders = (
        folder.removeprefix("ses-")
        for folder in reversed(path.parts[:-1])
        if folder.startswith("ses-")
    )
    return own or next(folders, None)
