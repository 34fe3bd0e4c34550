"""The plan of a cohort store, which has its own mesh, measure and mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.find.sessions import session_keys
from icofactor.cohort.people import People, session_key
from icofactor.cohort.plan import Plan
from icofactor.cohort.problems import Journal, ReadProblems
from icofactor.cohort.store.read import StoredCohort, open_store
from icofactor.cohort.subjects import Selection
from icofactor.errors import ArgumentError
from icofactor.io.url import bare, is_url


def plan_store(
    store: Any,
    for_files: Mapping[str, Any],
    selection: Selection,
    sessions: str | Sequence[str] | None,
    problems: ReadProblems,
    journal: Journal,
) -> Plan:
    """Return the plan of a store: its subjects may be selected, and their table replaced.

    Parameters
    ----------
    for_files : arguments that apply to files only, and must be None.
    """
    for name, value in for_files.items():
        if value is not None:
            text = f"applies to files; {bare(str(store))} is a cohort store with its own mesh"
            raise ArgumentError(name, f"{text}, measure and mask")
    opened = open_store(store if is_url(store) else Path(store).expanduser())
    # A store remembers people and sessions in its table.
    scans = People.of(opened.subjects, opened.participants).known
    selection = replace(selection, scans=scans)
    row_of = {name: row for row, name in enumerate(opened.subjects)}
    names = list(opened.subjects)
    if sessions not in (None, "all"):
        keys = session_keys(sessions, scans.values())
        names = [name for name in names if name in scans and session_key(scans[name][1]) in keys]
    columns = _columns(opened, [row_of[name] for name in names])
    selected = selection.select(names, problems, journal, columns)
    selection = selection.renamed(selected)
    if not selected and not problems:
        problems.add(str(opened.path), "no subjects remain")
    problems.check()
    rows = [row_of[in_data] for _, in_data in selected]
    # A table that the caller gives adds to that of the store, and replaces columns of one name.
    participants = _columns(opened, rows)
    if selection.participants is not None:
        participants |= selection.columns([name for name, _ in selected])

    def open_chosen() -> StoredCohort:
        if rows != list(range(len(opened.subjects))):
            return _subset(opened, rows, participants, journal)
        if selection.participants is None:
            return opened
        return replace(opened, participants=participants)

    # Of a store behind a URL, only its index tells sizes.
    maps = opened.X.values
    n_files = maps.nchunks
    n_bytes = maps.nbytes
    if isinstance(opened.path, Path):
        sizes = [file.stat().st_size for file in opened.path.rglob("*") if file.is_file()]
        n_files = len(sizes)
        n_bytes = sum(sizes)
    # The mask is known before anything is read.
    n_out = 0 if opened.mask is None else int((~opened.mask).sum())
    return Plan(
        subjects=tuple(opened.subjects[row] for row in rows),
        participants=participants,
        sites=opened.sites,
        hemisphere=opened.hemisphere,
        mask=f"from the store, {n_out} of {opened.sites.n} sites left out",
        problems=problems,
        journal=journal,
        open=open_chosen,
        n_files=n_files,
        n_bytes=n_bytes,
        stored=True,
    )


def _columns(
    opened: StoredCohort,
    rows: Sequence[int],
) -> dict[str, NDArray[Any]]:
    """Return the participants of some rows."""
    return {
        str(name): np.asarray(values)[list(rows)] for name, values in opened.participants.items()
    }


def _subset(
    opened: StoredCohort,
    rows: Sequence[int],
    participants: Mapping[str, Any],
    journal: Journal,
) -> StoredCohort:
    """Return some rows of a store, with who was left out in the provenance."""
    left_out = {
        reason: list(names) for reason, names in opened.provenance.get("left_out", {}).items()
    }
    for reason, names in journal.left_out.items():
        left_out.setdefault(reason, []).extend(names)
    subset = opened.select(rows, participants)
    return replace(subset, provenance={**subset.provenance, "left_out": left_out})
