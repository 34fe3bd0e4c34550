"""What `load_cohort` would read: the files by name, one of them opened to see its size; the others stay closed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.cohort.bids import mesh_name_of
from icofactor.cohort.masks import read_mask
from icofactor.cohort.meshes import Mesh
from icofactor.cohort.participants import read_participants
from icofactor.cohort.pieces import How, Piece, first_readable
from icofactor.cohort.problems import Journal, Problems
from icofactor.cohort.store import is_store
from icofactor.cohort.trees import Wanted, find_sources
from icofactor.cohort.who import Task, grouped, map_names
from icofactor.errors import CohortError


@dataclass(frozen=True)
class Preview:
    """A cohort before it is read.

    Attributes
    ----------
    n_files, n_bytes : files that would be read, and their size.
    subjects, n_sites : rows and columns of X.
    participants : column of the participants' table → one value per subject.
    hemisphere, mesh : of the sites.
    mask : what is known of the mask, in words.
    notes : what was chosen and left out.
    seconds : to read all, as long as the first file took times their number; 0 for a store, which is not loaded.
    stored : whether it is a cohort store.
    """

    n_files: int
    n_bytes: int
    subjects: tuple[str, ...]
    participants: Mapping[str, Any]
    n_sites: int
    hemisphere: str
    mesh: str
    mask: str
    notes: tuple[str, ...]
    seconds: float
    stored: bool = False


def preview_cohort(
    paths: Any,
    *,
    participants: Any = None,
    mesh: Any = None,
    hemisphere: str | None = None,
    measure: str | None = None,
    smoothing: float | None = None,
    target: str | None = None,
    mask: Any = None,
    exclude: Sequence[str] = (),
) -> Preview:
    """What would be read; the arguments are those of `load_cohort`. Problems that names tell of are raised alike."""
    if is_store(paths):
        return _of_store(Path(paths))
    task = Task(Problems(), Journal(), read_participants(participants), tuple(exclude), False, None, None)
    wanted = Wanted(hemisphere, measure, smoothing, target, {})
    found = find_sources(paths, wanted, task.problems)
    groups = grouped(found, wanted, task.problems)
    how = How(Mesh.read(found.mesh if mesh is None else mesh), hemisphere, measure)
    begin = time.perf_counter()
    files = [(path, side) for there in groups.values() for side, path in there.items()]
    first = first_readable(files, how)
    seconds = time.perf_counter() - begin
    if first is None:
        task.problems.check()
        raise CohortError(f"paths: none of {len(files)} files can be read as maps")
    stacked = len(groups) == 1 and first.n_maps > 1
    chosen = task.select(map_names([first], task, True) if stacked else list(groups), found.missing)
    task.problems.check()
    used = files if stacked else [(path, side) for _, name in chosen for side, path in groups[name].items()]
    widths = _widths(first, [side for _, side in used], groups, how)
    sites = how.mesh.sites(widths)
    return Preview(
        n_files=len(used),
        n_bytes=sum(path.stat().st_size for path, _ in used),
        subjects=tuple(name for name, _ in chosen),
        participants=_table(task, [name for name, _ in chosen]),
        n_sites=sites.n,
        hemisphere="both" if len(widths) == 2 else next(iter(widths)),
        mesh=mesh_name_of(sites),
        mask=_mask_in_words(mask, widths, first),
        notes=(*found.notes, *task.journal.steps),
        seconds=seconds * len(used),
    )


def _widths(first: Piece, sides: Sequence[str | None], groups: Any, how: How) -> dict[str, int]:
    """Hemisphere → number of sites; of the hemisphere that the first file lacks, from the first file that has it."""
    widths = {side: part.shape[1] for side, part in first.parts.items()}
    for side in {str(side) for side in sides if side is not None} - set(widths):
        other = first_readable([(there[side], side) for there in groups.values() if side in there], how)
        widths.update({} if other is None else {s: part.shape[1] for s, part in other.parts.items()})
    return {side: widths[side] for side in ("left", "right") if side in widths}


def _table(task: Task, subjects: Sequence[str]) -> dict[str, Any]:
    """What the participants' table tells of the subjects."""
    if task.table is None:
        return {}
    rows = [task.table.ids.index(name) for name in subjects]
    return {name: column[rows] for name, column in task.table.columns.items()}


def _mask_in_words(mask: Any, widths: dict[str, int], first: Piece) -> str:
    if mask is not None:
        given = read_mask(mask, widths)
        return (
            f"given, {int((~given).sum())} of {len(given)} sites left out; and those that are NaN or zero in everyone"
        )
    empty = sum(int((~np.isfinite(part[0]) | (part[0] == 0)).sum()) for part in first.parts.values())
    return f"none given; sites that are NaN or zero in everyone are left out ({empty} are, in the first file)"


def _of_store(path: Path) -> Preview:
    from icofactor.cohort.store import open_store

    stored = open_store(path)
    out = 0 if stored.mask is None else int((~stored.mask).sum())
    files = [file for file in path.rglob("*") if file.is_file()]
    return Preview(
        n_files=len(files),
        n_bytes=sum(file.stat().st_size for file in files),
        subjects=stored.subjects,
        participants=stored.participants,
        n_sites=stored.sites.n,
        hemisphere=stored.hemisphere,
        mesh=mesh_name_of(stored.sites),
        mask=f"that of the store, {out} of {stored.sites.n} sites left out",
        notes=(),
        seconds=0.0,
        stored=True,
    )
