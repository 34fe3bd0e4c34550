"""Blocks of sites: how X is cut into them, and how the results of several blocks are joined."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

BLOCK_BYTES = 4 * 2**20
"""Largest float64 block of sites × subjects: large enough for BLAS, small enough for the cache and for laptops."""
_LEAST_BLOCK, _LEAST_BLOCKS = 2**20, 64
"""Small data are cut into smaller blocks, which keeps the memory of the threads a small part of the data. Not smaller
than this: what NumPy and SciPy need per call was half of the time of a pass over 16 MB in blocks of 256 kB."""
_LEAST_SITES = 64
"""Of tens of thousands of subjects blocks are larger: products of fewer sites would mostly wait for the loadings."""
CACHE_BYTES = 2**19
"""Of a block this much is worked on at a time where several steps follow each other."""
_SUBJECTS_TURNED = 16
Rows = slice | np.ndarray
Blocks = Iterable[tuple[slice, np.ndarray]]
"""Pairs (which sites of a part, their values), sites × subjects in float64 and C order."""
Arrays = dict[str, np.ndarray]
"""The result of a task. The first part of a name says how the results of blocks are joined: "site." one after the
other, "sum." added, "min." and "max." compared."""
PartTask = Callable[..., Arrays]
"""A pure function (blocks, shared, *own) of the blocks of one part, of arrays that all parts share, and of the part's
own rows of arrays over all sites."""
BlockTask = Callable[..., Arrays]
"""The same of a single block: (x, shared, *own)."""
BlockChange = Callable[[slice, np.ndarray, bool], np.ndarray]
"""(sites of a part, their values, whether these may be overwritten) → other values."""
DEVICE_TASKS: dict[BlockTask, BlockTask] = {}
"""Tasks that also run on a device, and how they are written for it; `on_device` adds to them."""
_JOIN = {"sum": np.add, "min": np.minimum, "max": np.maximum}


Room = Callable[[int], np.ndarray]
"""(number of bytes) → memory for them, as uint8."""


class Reused(threading.local):
    """Memory of each thread that is used again: fresh memory takes longer to get than to fill."""

    def __init__(self) -> None:
        self._buffers, self._used = list[np.ndarray](), 0

    def __call__(self, n_bytes: int) -> np.ndarray:
        if self._used == len(self._buffers) or len(self._buffers[self._used]) < n_bytes:
            self._buffers[self._used :] = [np.empty(n_bytes, np.uint8)]
        self._used += 1
        return self._buffers[self._used - 1][:n_bytes]

    def again(self) -> None:
        """What was given is free."""
        self._used = 0

    def drop(self) -> None:
        """The same, and this thread keeps none."""
        self.__init__()  # type: ignore[misc]


class Tile(NamedTuple):
    """Some sites × some subjects of a part: rows `rows` of `x`, from its column `first` on."""

    sites: slice
    subjects: slice
    x: np.ndarray
    rows: np.ndarray
    first: int


@dataclass(frozen=True, eq=False)
class StoredPart:
    """A part that a task reads tile by tile, in the type in which it is stored.

    Attributes
    ----------
    read : gives the tiles, picklable; those of a site in the order of the subjects. Its argument gives the memory of
        each tile; with None, a tile may be overwritten by the next.
    shape : (sites, subjects)
    dtype : of the tiles
    used, chosen : which sites and subjects of the tiles are the part's, in increasing order; None: all
    coded : (2, n_subjects) step and offset of each subject's map, where tiles are codes of int16; None: they are values
    steps : each an `Adjustment` or `Holes` at the part's sites, done to the values in this order
    offset, scale : (n_sites,) what comes out is less this and divided by that; None: it is as it is
    """

    read: Callable[[Room | None], Iterator[Tile]]
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    used: np.ndarray | None = None
    chosen: np.ndarray | None = None
    coded: np.ndarray | None = None
    steps: tuple[Any, ...] = ()
    offset: np.ndarray | None = None
    scale: np.ndarray | None = None

    @property
    def kind(self) -> np.dtype[Any]:
        """The type to compute in: float32 where values were rounded to two bytes."""
        return np.dtype(np.float32 if self.dtype.itemsize == 2 else np.float64)

    @property
    def n_bytes(self) -> int:
        """Of all its tiles, if they are kept: as they are stored, or decoded and adjusted."""
        changed = self.coded is not None or self.steps
        return self.shape[0] * self.shape[1] * (self.kind if changed else self.dtype).itemsize

    def done(self, whole: bool = True) -> tuple[Any, ...]:
        """The steps, and (`whole`) what offset and scale do as one more."""
        from icofactor.streaming.source import Adjustment

        plain = not whole or (self.offset is None and self.scale is None)
        return self.steps if plain else (*self.steps, Adjustment(offset=self.offset, scale=self.scale))

    @property
    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """Offset and scale that tasks apply themselves. Where there are steps, these are done to the values along with
        them: adjusted values are rounded, and a small deviation loses less than a value far from 0."""
        n = self.shape[0]
        offset, scale = (None, None) if self.steps else (self.offset, self.scale)
        return np.zeros(n) if offset is None else offset, np.ones(n) if scale is None else scale

    def at(self, used: np.ndarray | None) -> StoredPart:
        """Some of its sites."""
        if used is None:
            return self
        steps = tuple(step.at(slice(None), used) for step in self.steps)
        offset, scale = (None if values is None else values[used] for values in (self.offset, self.scale))
        of = used if self.used is None else self.used[used]
        return replace(self, used=of, shape=(len(used), self.shape[1]), steps=steps, offset=offset, scale=scale)

    def of(self, subjects: np.ndarray) -> StoredPart:
        """Some of its subjects, in increasing order."""
        steps = tuple(step.at(subjects, slice(None)) for step in self.steps)
        coded = None if self.coded is None else np.ascontiguousarray(self.coded[:, subjects])
        chosen = subjects if self.chosen is None else self.chosen[subjects]
        return replace(self, chosen=chosen, shape=(self.shape[0], len(subjects)), steps=steps, coded=coded)

    def tiles(self, room: Room | None = None) -> Iterator[Tile]:
        """As they are stored; `engines.looking.tiles_of` gives values."""
        own = Reused()
        for tile in self.read(room if self.chosen is None else None):
            if self.used is not None:
                first, last = np.searchsorted(self.used, [tile.sites.start, tile.sites.stop]).tolist()
                tile = tile._replace(sites=slice(first, last), rows=tile.rows[self.used[first:last] - tile.sites.start])
            if self.chosen is None:
                yield tile
                continue
            first, last = np.searchsorted(self.chosen, [tile.subjects.start, tile.subjects.stop]).tolist()
            if first < last:
                own.again()
                n, width = len(tile.rows), last - first
                x = (room or own)(n * width * self.dtype.itemsize).view(self.dtype).reshape(n, width)
                columns = self.chosen[first:last] - tile.subjects.start + tile.first
                np.take(tile.x[as_slice(tile.rows)], columns, axis=1, out=x, mode="clip")
                yield Tile(tile.sites, slice(first, last), x, np.arange(n), 0)

    def in_steps(self, step: int) -> StoredPart:
        return self


def on_device(task: BlockTask) -> BlockTask:
    """A task that is written over its block's own namespace, so that it also runs on a device."""
    DEVICE_TASKS[task] = task
    return task


def sites_per_block(n_sites: int, n_subjects: int) -> int:
    """How many sites make a block of data of this size."""
    one = 8 * max(1, n_subjects)
    return max(_LEAST_SITES, min(BLOCK_BYTES, max(_LEAST_BLOCK, n_sites * one // _LEAST_BLOCKS)) // one)


def cut(n_sites: int, step: int) -> list[slice]:
    """Consecutive slices of `step` sites; the last one may be smaller."""
    return [slice(first, min(first + step, n_sites)) for first in range(0, n_sites, step)]


def as_slice(numbers: np.ndarray) -> Rows:
    """Consecutive numbers as a slice: what it takes is not copied."""
    together = len(numbers) > 0 and bool((np.diff(numbers) == 1).all())
    return slice(int(numbers[0]), int(numbers[-1]) + 1) if together else numbers


def blocks_of(x: Any, step: int, change: BlockChange | None = None) -> Blocks:
    """x (sites × subjects, any type and order) in blocks of `step` sites, each in float64 and C order.

    A part on a device stays one, for tasks that know it (`engines.device`); it gives the blocks to all others.
    """
    return _blocks(x, step, change) if isinstance(x, np.ndarray) else x.in_steps(step)


def _blocks(x: np.ndarray, step: int, change: BlockChange | None) -> Iterator[tuple[slice, np.ndarray]]:
    for rows in cut(len(x), step):
        block = as_block(x[rows])
        yield rows, block if change is None else change(rows, block, not np.may_share_memory(block, x))


def as_block(x: Any) -> np.ndarray:
    """x in float64 and C order."""
    x = x if isinstance(x, np.ndarray) else x.host()
    if x.flags.c_contiguous or (not x.flags.f_contiguous and abs(x.strides[0]) >= abs(x.strides[1])):
        return np.ascontiguousarray(x, dtype=np.float64)
    # A few subjects at a time: rows that lie a power of two apart would push each other out of the cache when they are
    # read across (three times slower at 327,680 sites).
    found = np.empty(x.shape)
    for first in range(0, x.shape[1], _SUBJECTS_TURNED):
        found[:, first : first + _SUBJECTS_TURNED] = x[:, first : first + _SUBJECTS_TURNED]
    return found


def join(pieces: Iterable[Arrays]) -> Arrays:
    """One result from those of consecutive blocks, in their order; sums, which may be large, are made on the way."""
    found: Arrays = {}
    sites: dict[str, list[np.ndarray]] = {}
    for piece in pieces:
        for name, values in piece.items():
            how = name.partition(".")[0]
            if how == "site":
                sites.setdefault(name, []).append(values)
            else:
                found[name] = _JOIN[how](found[name], values, out=found[name]) if name in found else np.array(values)
    return {**found, **{name: np.concatenate(parts) for name, parts in sites.items()}}
