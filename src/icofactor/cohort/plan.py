"""What `load_cohort` would read: the files by name, one of them opened to see its size; the others stay closed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.assemble import Files, is_stack, several, stack_columns
from icofactor.cohort.find.files import find_sources
from icofactor.cohort.find.source import Wanted
from icofactor.cohort.masks import read_mask
from icofactor.cohort.meshes import Mesh
from icofactor.cohort.pieces import How, Piece, first_readable, read_piece
from icofactor.cohort.problems import Journal, Problems
from icofactor.cohort.subjects import Task, grouped, map_names, read_participants, report_twice
from icofactor.errors import CohortError
from icofactor.sphere.names import mesh_name_of


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
    lowest : the smallest value in use of the first file; 0 for a store.
    seconds : to read all, as long as the first file took times their number; 0 for a store.
    stored : whether it is a cohort store that is not loaded.
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
    lowest: float
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
    entities: Mapping[str, str] | None = None,
    mask: Any = None,
    exclude: Sequence[str] = (),
    missing: str = "raise",
) -> Preview:
    """What would be read; the arguments are those of `load_cohort`. Problems that names tell of are raised alike."""
    skip = missing == "skip"
    task = Task(Problems(), Journal(), read_participants(participants), tuple(exclude), skip, None, None)
    wanted = Wanted(hemisphere, measure, smoothing, target, entities or {})
    found = find_sources(paths, wanted, task.problems)
    groups, twice = grouped(found, wanted)
    how = How(Mesh.read(found.mesh if mesh is None else mesh), hemisphere, measure)
    begin = time.perf_counter()
    files = [(path, side) for there in groups.values() for side, path in there.items()]
    first = first_readable(files, how)
    seconds = time.perf_counter() - begin
    if first is None:
        task.select(list(groups), found.missing, twice)
        _report_unreadable(files, how, task.problems)
        task.problems.check()
        of = f" of the {hemisphere} hemisphere" if hemisphere in ("left", "right") else ""
        raise CohortError(f"paths: lead to no files of maps{of}")
    stacks = _stacks(groups, how, task) if is_stack(groups, how) else []
    stacked = bool(stacks)
    if first.n_maps > 1 and not stacked:
        task.problems.add_error(first.seen.path, several(first))
    names = [name for _, ids in stacks for name in ids] if stacked else list(groups)
    if stacked:
        report_twice(twice, task.problems)
    chosen = task.select(names, found.missing, {} if stacked else twice)
    task.problems.check()
    if not chosen:
        raise CohortError("paths: no subject is left to read")
    used = files if stacked else [(path, side) for _, name in chosen for side, path in groups[name].items()]
    widths = _widths(first, [side for _, side in used], groups, how)
    sites = how.mesh.sites(widths)
    given = None if mask is None else read_mask(mask, widths)
    return Preview(
        n_files=len(used),
        n_bytes=sum(path.stat().st_size for path, _ in used),
        subjects=tuple(name for name, _ in chosen),
        participants={
            **(stack_columns(stacks, [there for _, there in chosen]) if stacked else {}),
            **_table(task, [name for name, _ in chosen]),
        },
        n_sites=sites.n,
        hemisphere="both" if len(widths) == 2 else next(iter(widths)),
        mesh=mesh_name_of(sites),
        mask=_mask_in_words(given, first),
        notes=(*found.notes, *task.journal.steps),
        lowest=_lowest(first, given, widths),
        seconds=seconds * len(used),
    )


def _report_unreadable(files: Sequence[tuple[Path, str | None]], how: How, problems: Problems) -> None:
    for path, side in files:
        try:
            read_piece(path, side, how)
        except CohortError as error:
            problems.add_error(path, error)


def _stacks(groups: Mapping[str, Files], how: How, task: Task) -> list[tuple[list[Piece], list[str]]]:
    """Files with many subjects each, and the names of these."""
    found = [first_readable([(path, side) for side, path in there.items()], how) for there in groups.values()]
    return [([piece], map_names([piece], task, len(groups) == 1)) for piece in found if piece is not None]


def _lowest(first: Piece, given: NDArray[np.bool_] | None, widths: Mapping[str, int]) -> float:
    """The smallest value of the first file, where it is in use."""
    ends = dict(zip(widths, np.cumsum(list(widths.values())), strict=True))
    low = 0.0
    for side, part in first.parts.items():
        used = slice(None) if given is None else given[ends[side] - widths[side] : ends[side]]
        values = part[0][used]
        low = min(low, float(np.min(values, where=np.isfinite(values), initial=0.0)))
    return low


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


def _mask_in_words(given: NDArray[np.bool_] | None, first: Piece) -> str:
    if given is None and first.seen.masks:
        given = np.concatenate(list(first.seen.masks.values()))
    if given is not None:
        return (
            f"given, {int((~given).sum())} of {len(given)} sites left out; and those that are NaN or zero in everyone"
        )
    empty = sum(int((~np.isfinite(part[0]) | (part[0] == 0)).sum()) for part in first.parts.values())
    return f"none given; sites that are NaN or zero in everyone are left out ({empty} are, in the first file)"


def preview_store(stored: Any, rows: Sequence[int], participants: Mapping[str, Any]) -> Preview:
    """The same of a cohort store: the subjects in `rows` of it, with this table."""
    out = 0 if stored.mask is None else int((~stored.mask).sum())
    files = [file for file in Path(stored.path).rglob("*") if file.is_file()]
    left = len(stored.subjects) - len(rows)
    return Preview(
        n_files=len(files),
        n_bytes=sum(file.stat().st_size for file in files),
        subjects=tuple(stored.subjects[row] for row in rows),
        participants=participants,
        n_sites=stored.sites.n,
        hemisphere=stored.hemisphere,
        mesh=mesh_name_of(stored.sites),
        mask=f"that of the store, {out} of {stored.sites.n} sites left out",
        notes=(f"{left} of its {len(stored.subjects)} subjects are left out",) if left else (),
        lowest=0.0,
        seconds=0.0,
        stored=True,
    )
