"""Files → the rows of X, read once; every row knows the files it came from."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.checks import Rows
from icofactor.cohort.pieces import How, Piece, Seen, copy_map, first_readable, read_piece
from icofactor.cohort.problems import Problems
from icofactor.errors import CohortError

Files = dict[str | None, Path]
"""Hemisphere that the name tells (None: both, or not told) → file."""
_SIDES = ("left", "right")


@dataclass
class Read:
    """What was read.

    Attributes
    ----------
    subjects : one name per row.
    X : (n_subjects, n_sites) float32.
    widths : hemisphere → number of its sites, in the order of the columns.
    where : per row, hemisphere → its file (and map).
    good : rows that were read whole.
    records : files, for the provenance.
    columns : what npz files tell of the subjects.
    masks : hemisphere → the mask that came with the files.
    notes : what readers left out.
    """

    subjects: list[str]
    X: NDArray[np.float32]
    widths: dict[str, int]
    where: list[dict[str, str]]
    good: list[int] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    masks: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def rows(self) -> Rows:
        """As the checks want it."""
        ends = np.cumsum([0, *self.widths.values()])
        columns = {side: slice(ends[i], ends[i + 1]) for i, side in enumerate(self.widths)}
        return Rows(self.X, np.array(self.good, dtype=np.int64), columns, self.where)

    def remember(self, seen: Seen, who: str | list[str]) -> None:
        """Keep what the provenance tells of a file."""
        self.records.append({**seen.record, "subject": who})
        self.masks.update(seen.masks)
        self.notes += [note for note in seen.notes if note not in self.notes]


def read_singles(
    people: Sequence[tuple[str, Files]],
    sides: Sequence[str],
    how: How,
    problems: Problems,
    show: Callable[[float], None],
    n_threads: int | None = None,
) -> Read | None:
    """One map per file, one row per subject; None when no file of some hemisphere can be read.

    Parameters
    ----------
    people : subject and its files.
    sides : the hemispheres to read; what the first readable file holds when empty.
    show : hears the fraction done.
    n_threads : files read at the same time; decompression and reading let other threads run.
    """
    files = [(row, side, path) for row, (_, there) in enumerate(people) for side, path in there.items()]
    widths = _widths([(path, side) for _, side, path in files], sides, how)
    whole = bool(widths) and all(side in widths for side in sides)
    X = np.empty((len(people) if whole else 0, sum(widths.values())), dtype=np.float32)
    read = Read([name for name, _ in people], X, widths, [{} for _ in people])
    columns = read.rows().columns

    def one(file: tuple[int, str | None, Path]) -> Seen | CohortError:
        row, told, path = file
        try:
            piece = read_piece(path, told, how)
        except CohortError as error:
            return error
        if piece.n_maps > 1:
            return several(piece)
        for side, part in piece.parts.items():
            if whole and part.shape[1] == widths.get(side):
                copy_map(part[0], X[row, columns[side]])
        return piece.seen

    done: list[tuple[int, Seen]] = []
    with ThreadPoolExecutor(n_threads or min(4, os.cpu_count() or 1)) as pool:
        for number, (file, seen) in enumerate(zip(files, pool.map(one, files), strict=True)):
            show((number + 1) / len(files))
            if isinstance(seen, CohortError):
                problems.add_error(file[2], seen)
            else:
                done.append((file[0], seen))
                read.remember(seen, read.subjects[file[0]])
                read.where[file[0]].update(dict.fromkeys(seen.sizes, str(file[2])))
    _report_meshes([seen for _, seen in done], how, problems)
    _report_copies([seen for _, seen in done], problems)
    _report_lacking(read, people, sides or list(widths), problems)
    wrong = {row for row, seen in done if any(n != widths.get(side) for side, n in seen.sizes.items())}
    read.good = [row for row, there in enumerate(read.where) if set(there) >= set(widths) and row not in wrong]
    return read if whole else None


def several(piece: Piece) -> CohortError:
    """A file with many maps where one was expected."""
    return CohortError(
        f"{piece.seen.path}: holds {piece.n_maps} maps, one per subject was expected; take one with map_name=, "
        "or bring a time series to one map first (icofactor prepare)"
    )


def _widths(files: list[tuple[Path, str | None]], sides: Sequence[str], how: How) -> dict[str, int]:
    """Hemisphere → number of sites, from the first readable file of each that can be of the mesh."""
    widths: dict[str, int] = {}
    for wanted in sides or (None,):
        if wanted not in widths:
            mine = [(p, s) for p, s in files if s in (None, wanted) or wanted is None]
            piece = first_readable(mine, how, lambda seen: _may_be(seen, how)) or first_readable(mine, how)
            widths.update({} if piece is None else piece.seen.sizes)
    return {side: widths[side] for side in _SIDES if side in widths}


def _may_be(seen: Seen, how: How) -> bool:
    """Whether a file has as many vertices as the mesh, where that is known: a wrong first file must not decide."""
    return all(n in (how.mesh.wanted(side) or [n]) for side, n in seen.sizes.items())


def _report_meshes(files: Sequence[Seen], how: How, problems: Problems) -> None:
    """Files with another number of vertices than the mesh, or than most others."""
    counts = Counter(item for seen in files for item in seen.sizes.items())
    for seen in files:
        for side, n in seen.sizes.items():
            wanted = how.mesh.wanted(side)
            if wanted and n not in wanted:
                text = f"has {n} vertices in the {side} hemisphere; mesh {how.mesh} has {wanted[0]}"
                problems.add(seen.path, text)
            usual = max((m for s, m in counts if s == side), key=lambda m: counts[side, m])
            if not wanted and n != usual and counts[side, usual] == 1 and len(files) > 2:
                text = f"has {n} vertices, others {usual}: no two files are on one mesh, as maps on the subjects' own"
                problems.add(seen.path, f"{text} surfaces are; bring them to one first (recon-all -qcache)")
            elif not wanted and n != usual:
                text = f"has {n} vertices; most of the files ({counts[side, usual]}) have {usual}: another mesh"
                problems.add(seen.path, text)


def _report_copies(files: Sequence[Seen], problems: Problems) -> None:
    """Two files with the same bytes are one map under two names."""
    first: dict[str, Path] = {}
    for seen in files:
        twin = first.setdefault(seen.record["sha256"], seen.path)
        if twin is not seen.path:
            problems.add(seen.path, f"is the same, byte for byte, as {twin}")


def _report_lacking(read: Read, people: Sequence[tuple[str, Files]], sides: Sequence[str], problems: Problems) -> None:
    """Subjects of whom a hemisphere is missing, where nothing was said about them yet."""
    for (name, files), there in zip(people, read.where, strict=True):
        lacking = [side for side in sides if side not in there]
        if lacking and not problems.listed.keys() & {f"subject {name}", *map(str, files.values())}:
            problems.add(next(iter(files.values())), f"subject {name} lacks the {' and '.join(lacking)} hemisphere")


def is_stack(groups: Mapping[str, Files], how: How) -> bool:
    """Whether the files hold several subjects each.

    One file (or pair) with many maps does; of several, only those that name their maps, each differently, do: time
    series are not taken for subjects.
    """
    names: list[str] = []
    for files in groups.values():
        piece = first_readable([(path, side) for side, path in files.items()], how)
        if piece is None:
            continue
        if piece.n_maps == 1 and not (piece.maps.reader == "npz" and piece.maps.names):
            return False
        if len(groups) == 1:
            return True
        if not piece.maps.names:
            return False
        names += piece.maps.names
    return bool(names) and len(set(names)) == len(names)


def read_stacks(
    groups: Sequence[Files],
    how: How,
    name_rows: Callable[[Sequence[Piece]], list[str]],
    select: Callable[[list[str]], list[tuple[str, str]]],
    problems: Problems,
) -> Read | None:
    """Files with several maps each, one per subject; None when they do not fit together.

    Parameters
    ----------
    groups : the files of the two hemispheres that belong together, or one file with both.
    name_rows : gives the subjects of the pieces of one group.
    select : names that are there → names to use and what they are called there, in order.
    """
    stacks: list[tuple[list[Piece], list[str]]] = []
    for files in groups:
        pieces = []
        for side, path in files.items():
            try:
                pieces.append(read_piece(path, side, how))
            except CohortError as error:
                problems.add_error(path, error)
        if len({piece.n_maps for piece in pieces}) > 1:
            one, other = pieces
            problems.add(other.seen.path, f"holds {other.n_maps} maps; {one.seen.path} holds {one.n_maps}")
        elif pieces:
            stacks.append((pieces, name_rows(pieces)))
    _report_meshes([piece.seen for pieces, _ in stacks for piece in pieces], how, problems)
    present = {side for pieces, _ in stacks for piece in pieces for side in piece.parts}
    present |= set(_SIDES) if how.hemisphere == "both" else set()
    for pieces, _ in stacks:
        for side in present - {side for piece in pieces for side in piece.parts}:
            problems.add(pieces[0].seen.path, f"lacks the {side} hemisphere")
    names = [name for _, ids in stacks for name in ids]
    for name, count in Counter(names).items():
        if count > 1:
            files_with = sorted({str(pieces[0].seen.path) for pieces, ids in stacks if name in ids})
            problems.add(f"subject {name}", f"occurs {count} times in {', '.join(files_with)}")
    chosen = [] if problems else select(names)
    if problems or not chosen:
        return None
    sizes = {side: n for pieces, _ in stacks for piece in pieces for side, n in piece.seen.sizes.items()}
    widths = {side: sizes[side] for side in _SIDES if side in sizes}
    X = np.empty((len(chosen), sum(widths.values())), dtype=np.float32)
    read = Read([name for name, _ in chosen], X, widths, [{} for _ in chosen], list(range(len(chosen))))
    for pieces, ids in stacks:
        _fill(read, pieces, ids, {found: row for row, (_, found) in enumerate(chosen)})
    read.columns = stack_columns(stacks, [found for _, found in chosen])
    return read


def _fill(read: Read, pieces: Sequence[Piece], ids: Sequence[str], row_of: dict[str, int]) -> None:
    """The maps of one group into their rows."""
    columns = read.rows().columns
    used = [(number, row_of[name]) for number, name in enumerate(ids) if name in row_of]
    for piece in pieces:
        for number, row in used:
            for side, part in piece.parts.items():
                copy_map(part[number], read.X[row, columns[side]])
                read.where[row][side] = f"{piece.seen.path} (map {number}, subject {read.subjects[row]})"
        read.remember(piece.seen, [read.subjects[row] for _, row in used])


def stack_columns(stacks: Sequence[tuple[list[Piece], list[str]]], chosen: Sequence[str]) -> dict[str, NDArray[Any]]:
    """What all files tell of their subjects, in the order of the rows."""
    tables = [pieces[0].maps.columns for pieces, _ in stacks]
    place = {name: i for i, name in enumerate(name for _, ids in stacks for name in ids)}
    order = [place[name] for name in chosen]
    shared = [name for name in tables[0] if all(name in table for table in tables)]
    return {name: np.concatenate([table[name] for table in tables])[order] for name in shared}
