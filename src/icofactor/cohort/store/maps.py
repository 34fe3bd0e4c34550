"""Maps on disk: read when they are asked for, and passed over part by part."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from copy import copy
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.store.arrays import StoredArray
from icofactor.cohort.store.encoding import DTYPES
from icofactor.cohort.store.layout import Commit
from icofactor.errors import CohortError
from icofactor.io.url import RemotePath
from icofactor.streaming.blocks import Rows, as_slice
from icofactor.streaming.source import MapSource, Reader, even_slices


class StoredMaps:
    """The maps of a stored cohort, subjects × sites, read when they are asked for.

    ``maps[rows, columns]`` takes numbers, slices, masks and lists, as an outer product, in the
    order of the cohort's sites. A few subjects, or all sites, are read well this way; a pass over
    blocks of sites is better made with `read_sites`, which follows the order on disk.
    """

    ndim = 2
    dtype = np.dtype(np.float32)
    """Of the values as they are read; `stored_dtype` is that on disk."""

    def __init__(self, folder: Path | RemotePath, commit: Commit, order: NDArray[np.int64]) -> None:
        self.shape, self.folder, self.commit = (len(commit.subjects), len(order)), folder, commit
        self.subjects: NDArray[np.int64] | None = None
        self._parts = [_Part(folder, name, commit) for name, _ in commit.parts]
        self.stored_dtype = np.dtype(self._parts[-1].dtype.name)
        self._first = np.cumsum([0, *(part.n_subjects for part in self._parts)])
        for part in self._parts:
            if part.n_sites != len(order):
                raise CohortError(
                    part.folder, f"contains {part.n_sites} sites; the store has {len(order)}"
                )
        if self._first[-1] != len(commit.subjects):
            raise CohortError(
                folder,
                f"contains maps of {self._first[-1]} subjects, but names {len(commit.subjects)}",
            )
        self.order = order
        self._rank = np.empty_like(order)
        self._rank[order] = np.arange(len(order))

    @property
    def chunk_sites(self) -> int:
        return max(part.chunks[0] for part in self._parts)

    @property
    def bytes_read(self) -> int:
        return sum(part.bytes_read for part in self._parts)

    @property
    def sizes(self) -> list[int]:
        """Bytes of every file of maps."""
        return [part.chunk_bytes for part in self._parts for _ in range(part.n_chunks)]

    def __len__(self) -> int:
        return self.shape[0]

    def select(self, subjects: Sequence[int] | NDArray[np.int64]) -> StoredMaps:
        """Some subjects, in any order; nothing is read, and of the others nothing will be."""
        chosen, found = np.asarray(subjects, dtype=np.int64), copy(self)
        found.subjects = chosen if self.subjects is None else self.subjects[chosen]
        found.shape = (len(chosen), self.shape[1])
        return found

    def map_source(self) -> StoreSource:
        """The maps as they are passed over; other processes open the store for themselves."""
        return StoreSource(self)

    def read_places(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Maps at some places of the order on disk, sites × subjects."""
        return self._gather(
            np.arange(self.shape[0]) if self.subjects is None else self.subjects, places
        ).T

    def read_sites(self, where: slice) -> NDArray[np.float32]:
        """Maps at consecutive sites of the order on disk, sites × subjects."""
        return self.read_stored(where).astype(np.float32, copy=False)

    def read_stored(self, where: slice) -> NDArray[Any]:
        """The same, of the type that needs the least work to be read: float16 or float32."""
        first, last, step = where.indices(self.shape[1])
        if step != 1:
            raise ValueError(f"sites must be consecutive; got a slice with step {step}")
        rows = slice(first, max(first, last))
        if self.subjects is None and len(self._parts) == 1:
            return self._parts[0].read((rows, slice(0, self.shape[0])))
        found = np.result_type(*(part.dtype for part in self._parts))
        block = np.empty((rows.stop - rows.start, self.shape[0]), dtype=found)
        for part, (start, stop) in zip(self._parts, pairwise(self._first), strict=True):
            if self.subjects is None:
                block[:, start:stop] = part.read((rows, slice(0, part.n_subjects)))
                continue
            mine = np.flatnonzero((self.subjects >= start) & (self.subjects < stop))
            for here in _by_chunk(self.subjects[mine] - start, part.chunks[1]):
                columns = self.subjects[mine[here]] - start
                left = int(columns.min())
                found_here = part.read((rows, slice(left, int(columns.max()) + 1)))
                block[:, as_slice(mine[here])] = found_here[:, as_slice(columns - left)]
        return block

    def __getitem__(self, key: Any) -> NDArray[np.float32]:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        subjects, sites = (
            _numbers(rows, self.shape[0], "subjects"),
            _numbers(columns, self.shape[1], "sites"),
        )
        chosen = np.atleast_1d(subjects if self.subjects is None else self.subjects[subjects])
        found = self._gather(chosen, self._rank[np.atleast_1d(sites)])
        if not subjects.ndim:
            found = found[0]
        return found if sites.ndim else found[..., 0]

    def _gather(
        self, subjects: NDArray[np.int64], places: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Maps of some subjects at some places of the order on disk, subjects × places; every chunk
        is read once.
        """
        found = np.empty((len(subjects), len(places)), dtype=np.float32)
        for part, (start, stop) in zip(self._parts, pairwise(self._first), strict=True):
            mine = np.flatnonzero((subjects >= start) & (subjects < stop))
            for here in _by_chunk(subjects[mine] - start, part.chunks[1]):
                for there in _by_chunk(places, part.chunks[0]):
                    rows, columns = places[there], subjects[mine[here]] - start
                    low, left = int(rows.min()), int(columns.min())
                    block = part.read(
                        (slice(low, int(rows.max()) + 1), slice(left, int(columns.max()) + 1))
                    )
                    found[np.ix_(mine[here], there)] = block[np.ix_(rows - low, columns - left)].T
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the maps are on disk, and reading them makes a copy")
        found = np.empty(self.shape, dtype=np.float32)
        for first in range(0, self.shape[1], self.chunk_sites):
            block = slice(first, first + self.chunk_sites)
            found[:, self.order[block]] = self.read_sites(block).T
        return found if dtype is None else found.astype(dtype, copy=False)


class _Part(StoredArray):
    """The maps that one append wrote, sites (order on disk) × subjects."""

    def __init__(self, store: Path | RemotePath, name: str, commit: Commit) -> None:
        super().__init__(store / name, commit.checksums[name])
        if self.dtype.name not in DTYPES or len(self.shape) != 2:
            raise CohortError(
                self.folder, f"contains {self.dtype} {self.shape}, not maps in float32 or float16"
            )
        self.n_sites, self.n_subjects = self.shape
        self.bytes_read, self._counting = 0, threading.Lock()

    def read(self, where: tuple[slice, ...] | None = None) -> NDArray[Any]:
        """Values as they are stored."""
        found = super().read(where)
        if where is not None and found.size:
            with self._counting:
                self.bytes_read += len(self.touched(where)) * self.chunk_bytes
        return found


class StoreSource(MapSource):
    """The maps of a cohort store, or of some of its subjects."""

    held = False

    def __init__(self, maps: StoredMaps) -> None:
        self._maps: StoredMaps | None = maps
        self._path, self._identity, self._subjects = (
            str(maps.folder),
            maps.commit.identity,
            maps.subjects,
        )
        self.shape, self.order, self._step = (
            (maps.shape[1], maps.shape[0]),
            maps.order,
            maps.chunk_sites,
        )
        self._itemsize = maps.stored_dtype.itemsize
        self.n_bytes = self.size(slice(0, self.shape[0]))

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: getattr(self, name) for name in ("_path", "_identity", "_subjects")}
        return {**kept, "_maps": None}

    def slices(self) -> list[slice]:
        return even_slices(*self.shape, 4, self._step)

    def size(self, where: Rows) -> int:
        return (
            self._itemsize
            * self.shape[1]
            * (where.stop - where.start if isinstance(where, slice) else len(where))
        )

    def reader(self, where: Rows, away: bool = False) -> Reader:
        return partial(self._read, where)

    def _read(self, where: Rows, block: None) -> np.ndarray:
        maps = self._opened()
        return maps.read_stored(where) if isinstance(where, slice) else maps.read_places(where)

    def _opened(self) -> StoredMaps:
        if self._maps is not None:
            return self._maps
        from icofactor.cohort.store.read import opened_again

        whole = opened_again(self._path, self._identity).X
        return whole if self._subjects is None else whole.select(self._subjects)

    def sent(self, where: Rows, client: Any) -> None:
        return None


def _numbers(key: Any, n: int, what: str) -> NDArray[np.int64]:
    """Which of n things a number, slice, mask or list names; a number stays without dimension."""
    if isinstance(key, slice):
        return np.arange(n)[key]
    chosen = np.asarray(key)
    if chosen.dtype == bool:
        if chosen.shape != (n,):
            raise IndexError(f"a mask of the {what} must have shape ({n},); got {chosen.shape}")
        return np.flatnonzero(chosen)
    if chosen.size == 0:
        return np.empty(0, dtype=np.int64)
    if chosen.dtype.kind not in "iu" or chosen.ndim > 1:
        raise IndexError(
            f"{what} are named by a number, slice, mask or list of numbers; got {key!r}"
        )
    if chosen.min() < -n or chosen.max() >= n:
        raise IndexError(
            f"there are {n} {what}; got number {chosen.min() if chosen.min() < -n else chosen.max()}"
        )
    return np.where(chosen < 0, chosen + n, chosen).astype(np.int64)


def _by_chunk(numbers: NDArray[np.int64], step: int) -> list[NDArray[np.int64]]:
    """Places in `numbers`, gathered by the chunk they fall into."""
    chunk = numbers // step
    by_chunk = np.argsort(chunk, kind="stable")
    return [
        group
        for group in np.split(by_chunk, np.flatnonzero(np.diff(chunk[by_chunk])) + 1)
        if len(group)
    ]
