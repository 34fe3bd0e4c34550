"""Where maps lie that are not held in memory: cohort stores, memory-mapped files, dask arrays, anything sliced."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from icofactor.streaming.checkpoint import digest

if TYPE_CHECKING:  # cohorts use this module, and know nothing of statistics
    from icofactor.streaming.blocks import Rows

PART_BYTES = 32 * 2**20
"""Sites are read together that take about this much as they come, and at least one row of a store's chunks."""
MOST_PARTS = 1024
"""Larger data have larger parts instead of more."""
_SAMPLED_SITES = 16


class Source(Protocol):
    """Maps of all subjects at consecutive sites of some order."""

    shape: tuple[int, int]
    """(sites, subjects)"""
    order: np.ndarray | None
    """Sites in the order in which they are read; None: 0, 1, 2, ..."""
    portable: bool
    """Whether another process can read it after unpickling."""
    n_bytes: int
    """Size of all maps."""

    def slices(self) -> list[slice]:
        """Which sites are best read together; all of them once."""
        ...

    def read(self, where: slice) -> np.ndarray:
        """Sites × subjects."""
        ...

    def shipped(self, where: slice, runner: Any) -> Any:
        """Subjects × sites to be sent to a task, or a dask future of them."""
        ...

    def identity(self) -> str:
        """By what a resumed run knows that the data are the same."""
        ...


def is_held(X: Any) -> bool:
    """Whether X is in memory already, so that there is nothing to stream."""
    if not isinstance(X, np.ndarray):
        return False
    base: Any = X
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return False
        base = base.base
    return True


def source_of(X: Any, cohort: Any = None) -> Source:
    """The source of maps X, subjects × sites; `cohort` is what they came with."""
    if cohort is not None and hasattr(X, "read_sites"):
        source: Source = cohort.map_source()
        return source
    if type(X).__module__.startswith("dask.array"):
        return DaskSource(X)
    # the order on disk goes with a cohort even where its maps are computed from those of a store
    order, step = getattr(cohort, "order", None), getattr(cohort, "chunk_sites", 1)
    return ArraySource(X, order, 1 if order is None else step)


def even_slices(n_sites: int, n_subjects: int, itemsize: int, step: int) -> list[slice]:
    """Slices of about `PART_BYTES`, whole multiples of `step` sites, at most `MOST_PARTS`."""
    sites = max(PART_BYTES // max(1, itemsize * n_subjects), -(-n_sites // MOST_PARTS), 1)
    sites = max(step, sites // step * step)
    return [slice(first, min(first + sites, n_sites)) for first in range(0, n_sites, sites)]


class ArraySource:
    """Anything with a shape and a type that is sliced like an array of subjects × sites."""

    def __init__(self, X: Any, order: np.ndarray | None = None, step: int = 1) -> None:
        self._X, self.order, self._step = X, order, step
        self.shape = (int(X.shape[1]), int(X.shape[0]))
        self._file = _MappedFile.of(X)
        self.portable = self._file is not None and order is None
        self.n_bytes = self.shape[0] * self.shape[1] * np.dtype(X.dtype).itemsize

    def __getstate__(self) -> dict[str, Any]:
        return {"_X": None, "_file": self._file, "order": None}

    def slices(self) -> list[slice]:
        return even_slices(*self.shape, np.dtype(self._X.dtype).itemsize, self._step)

    def read(self, where: slice) -> np.ndarray:
        X = self._file.opened() if self._X is None and self._file is not None else self._X
        block = np.array(X[:, where if self.order is None else self.order[where]], copy=True)
        _let_go(X)
        return block.T

    def shipped(self, where: slice, runner: Any) -> Any:
        return self.read(where).T

    def identity(self) -> str:
        if self._file is not None:
            return f"file {self._file.path} of {self._file.size} bytes, changed at {self._file.changed}"
        sites = np.unique(np.linspace(0, self.shape[0] - 1, _SAMPLED_SITES).astype(np.int64))
        return f"values at {len(sites)} sites " + digest(np.asarray(self._X[:, sites]))


class DaskSource(ArraySource):
    """A dask array; its blocks are computed where they are used."""

    def __init__(self, X: Any) -> None:
        if any(size != size for sizes in X.chunks for size in sizes):  # nan
            raise ValueError("X is a dask array whose chunks are of unknown size: call X.compute_chunk_sizes() first")
        super().__init__(X)

    def slices(self) -> list[slice]:
        """Whole chunks, as many as make a part."""
        least = (even_slices(*self.shape, np.dtype(self._X.dtype).itemsize, 1) or [slice(0, 1)])[0].stop
        found, first, last = [], 0, 0
        for size in self._X.chunks[1]:
            last += int(size)
            if last - first >= least or last == self.shape[0]:
                found.append(slice(first, last))
                first = last
        return found

    def shipped(self, where: slice, runner: Any) -> Any:
        return runner.client.compute(self._X[:, where])


@dataclass(frozen=True)
class _MappedFile:
    """A memory-mapped file that another process can map for itself."""

    path: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    fortran: bool
    size: int
    changed: int

    @classmethod
    def of(cls, X: Any) -> _MappedFile | None:
        """The file of a memmap that covers it as it stands; None for anything else, slices of memmaps among them."""
        if not isinstance(X, np.memmap) or X.filename is None or not isinstance(X.base, mmap.mmap):
            return None
        about = os.stat(X.filename)
        fortran = bool(X.flags.f_contiguous and not X.flags.c_contiguous)
        return cls(
            str(Path(X.filename).absolute()), X.dtype.str, X.offset, X.shape, fortran, about.st_size, about.st_mtime_ns
        )

    def opened(self) -> np.memmap:
        return _mapped(self)


@lru_cache(maxsize=4)
def _mapped(file: _MappedFile) -> np.memmap:
    order: Any = "F" if file.fortran else "C"
    return np.memmap(file.path, dtype=file.dtype, mode="r", offset=file.offset, shape=file.shape, order=order)


def _let_go(X: Any) -> None:
    """Give back the memory of mapped pages; the file keeps them, so only copies on write must be spared."""
    mapped = getattr(X, "_mmap", None)
    if mapped is not None and X.mode in ("r", "r+") and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)


_SUBJECTS_TURNED = 16


def _turned(x: np.ndarray) -> np.ndarray:
    """The transpose in float64 and C order, a few rows at a time: read column by column, rows that lie a power of two
    apart push each other out of the cache (three times slower at 327,680 sites)."""
    found = np.empty(x.shape[::-1])
    for first in range(0, len(x), _SUBJECTS_TURNED):
        found[:, first : first + _SUBJECTS_TURNED] = x[first : first + _SUBJECTS_TURNED].T
    return found


class SitesBySubjects:
    """Subjects × sites seen as the core wants it, sites × subjects in float64, masked sites left out; only the sites
    that are asked for are copied."""

    ndim = 2

    def __init__(self, X: Any, mask: np.ndarray | None = None) -> None:
        self._X = X
        self._columns = None if mask is None else np.flatnonzero(mask)
        self.shape = (X.shape[1] if self._columns is None else len(self._columns), X.shape[0])

    def __getitem__(self, rows: Rows) -> np.ndarray:
        return _turned(np.asarray(self._X[:, rows if self._columns is None else self._columns[rows]]))
