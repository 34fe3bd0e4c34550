"""Where maps lie, and how they are seen: one protocol for arrays in memory, mapped files, dask
arrays and stores.

Wrappers change what is seen without copying anything: `Subset` (some sites, some subjects),
`Adjusted` (per site less an offset and a regression, divided by a scale), `WithHoles`,
`transposed`; `joined` makes one source of several.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from icofactor.errors import ArgumentError
from icofactor.io.guard import map_file
from icofactor.streaming.blocks import BlockChange, Rows, cut

PART_BYTES = 32 * 2**20
"""Sites are read together that take about this much as they come, and at least one row of a store's
chunks.
"""
MOST_PARTS = 1024
"""Larger data have larger parts instead of more."""
_LEAST_PARTS, _LEAST_BYTES = 32, 2**20
"""Data are cut into at least so many parts, which several threads share, unless these would be
tiny.
"""
_SUBJECTS_ADJUSTED = 256
_ROUNDING = 1e-9
Reader = Callable[[Any], np.ndarray]
"""Gives the values at some places, sites × subjects of any type and order. Its argument: what
`MapSource.sent` gave.
"""


class MapSource(Protocol):
    """Maps of subjects at sites.

    A place is a position in the order in which sites are read best: place p holds site order[p].
    Both places and subjects are numbered as the wrapper shows them.
    """

    shape: tuple[int, int]
    """(sites, subjects)"""
    order: np.ndarray | None
    """Site at each place; None: 0, 1, 2, ..."""
    held: bool
    """Whether the maps are in memory already."""
    n_bytes: int
    """Size of everything that one pass reads; 0 when held."""

    def slices(self) -> list[slice]:
        """Parts: places that are best read together. They depend on the data alone, and together
        are all places.
        """
        ...

    def size(self, where: Rows) -> int:
        """Bytes that reading these places takes; 0 when held."""
        ...

    def reader(self, where: Rows, away: bool = False) -> Reader:
        """A function that reads these places; `away`: it is called in another process, so it must
        be picklable.
        """
        ...

    def sent(self, where: Rows, client: Any) -> Any:
        """What another process needs besides the reader: subjects × places, a dask future of them,
        or None.
        """
        ...

    def read(self, where: Rows) -> np.ndarray:
        """Values at these places, sites × subjects."""
        return self.reader(where)(None)


def source_of(X: Any) -> MapSource:
    """The source of maps X, subjects × sites: an array, a memmap, a dask array, stored or adjusted
    maps.
    """
    if hasattr(X, "map_source"):
        source: MapSource = X.map_source()
        return source
    return DaskSource(X) if is_dask_array(X) else ArraySource(X)


def transposed(X: Any) -> MapSource:
    """The source of maps X that are given as sites × subjects: an array, or anything whose rows are
    sliced like one.
    """
    return source_of(
        X.T if hasattr(X, "T") else _Transposed(X) if hasattr(X, "shape") else np.asarray(X).T
    )


class _Transposed:
    """Subjects × sites of something that is sliced by sites only."""

    def __init__(self, X: Any) -> None:
        self._X, self.shape, self.dtype = (
            X,
            tuple(X.shape[::-1]),
            getattr(X, "dtype", np.dtype(np.float64)),
        )

    def __getitem__(self, key: tuple[slice, Rows]) -> np.ndarray:
        return np.asarray(self._X[key[1]]).T


def is_held(X: Any) -> bool:
    """Whether X is in memory already."""
    if not isinstance(X, np.ndarray):
        return False
    base: Any = X
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return False
        base = base.base
    return True


def is_dask_array(X: Any) -> bool:
    """Whether X is a dask array; dask need not be installed."""
    return type(X).__module__.startswith("dask.array")


def even_slices(n_sites: int, n_subjects: int, itemsize: int, step: int = 1) -> list[slice]:
    """Slices of at most about `PART_BYTES`, whole multiples of `step` sites, at most `MOST_PARTS`.

    They are the same for maps in memory and on disk, so that both give the same bits.
    """
    one = max(1, n_subjects)
    most = max(PART_BYTES // (itemsize * one), -(-n_sites // MOST_PARTS), 1)
    shared = max(-(-n_sites // _LEAST_PARTS), _LEAST_BYTES // (8 * one), 1)
    return cut(n_sites, max(step, min(most, shared) // step * step))


def _count(where: Rows) -> int:
    return where.stop - where.start if isinstance(where, slice) else len(where)


class ArraySource(MapSource):
    """Anything with a shape and a type that is sliced like an array of subjects × sites."""

    order = None

    def __init__(self, X: Any) -> None:
        self._X, self._file, self.held = X, _MappedFile.of(X), is_held(X)
        self.shape = (int(X.shape[1]), int(X.shape[0]))
        self._itemsize = np.dtype(X.dtype).itemsize
        self.n_bytes = self.size(slice(0, self.shape[0]))

    def __getstate__(self) -> dict[str, Any]:
        return {"_X": None, "_file": self._file, "held": False}

    def slices(self) -> list[slice]:
        return even_slices(*self.shape, self._itemsize)

    def size(self, where: Rows) -> int:
        return 0 if self.held else _count(where) * self.shape[1] * self._itemsize

    def reader(self, where: Rows, away: bool = False) -> Reader:
        return _received if away and self._file is None else partial(self._read, where)

    def _read(self, where: Rows, block: None) -> np.ndarray:
        X = self._file.opened() if self._X is None and self._file is not None else self._X
        if self.held:
            return np.asarray(X[:, where].T)
        found = np.array(X[:, where], copy=True)
        _let_go(X)
        return found.T

    def sent(self, where: Rows, client: Any) -> Any:
        return None if self._file is not None else np.ascontiguousarray(self._X[:, where])


def _received(block: Any) -> np.ndarray:
    """The values that were sent."""
    return np.asarray(block).T


class DaskSource(ArraySource):
    """A dask array; its blocks are computed where they are used."""

    def __init__(self, X: Any) -> None:
        if any(size != size for sizes in X.chunks for size in sizes):  # nan
            what = "X is a dask array whose chunks are of unknown size: call X.compute_chunk_sizes() first"
            raise ArgumentError("X", None, what)
        super().__init__(X)

    def slices(self) -> list[slice]:
        """Whole chunks, as many as make a part."""
        least = (super().slices() or [slice(0, 1)])[0].stop
        found, first, last = [], 0, 0
        for size in self._X.chunks[1]:
            last += int(size)
            if last - first >= least or last == self.shape[0]:
                found.append(slice(first, last))
                first = last
        return found

    def sent(self, where: Rows, client: Any) -> Any:
        return client.compute(self._X[:, where])


# ---------------------------------------------------------------------- wrappers


class Subset(MapSource):
    """Some sites and some subjects of a source.

    Parameters
    ----------
    base : MapSource
    sites : (n_sites,) bool, True where a site is used; None: all. Sites that are used are numbered
        anew.
    subjects : numbers of the subjects, in any order, also repeated; None: all.
    """

    def __init__(
        self, base: MapSource, sites: np.ndarray | None = None, subjects: np.ndarray | None = None
    ) -> None:
        self._base, self._subjects = base, None if subjects is None else np.asarray(subjects)
        self.order, self.held, self.n_bytes = base.order, base.held, base.n_bytes
        n_sites, n_subjects = base.shape
        self._places: np.ndarray | None = None
        if sites is not None:
            self._places = np.flatnonzero(sites if base.order is None else sites[base.order])
            n_sites = len(self._places)
            if base.order is not None:
                self.order = (np.cumsum(sites) - 1)[base.order[self._places]]
        self.shape = (n_sites, n_subjects if self._subjects is None else len(self._subjects))
        self._parts = self._cut()

    def _cut(self) -> dict[tuple[int, int], slice | None]:
        """The parts, and the part of the base that each one is read from."""
        places = self._places
        if places is None:
            return {(where.start, where.stop): where for where in self._base.slices()}
        if self.held:
            return {(where.start, where.stop): None for where in even_slices(*self.shape, 8)}
        found: dict[tuple[int, int], slice | None] = {}
        for where in self._base.slices():
            first, last = np.searchsorted(places, [where.start, where.stop]).tolist()
            if last > first:
                found[first, last] = where
        return found

    def slices(self) -> list[slice]:
        return [slice(first, last) for first, last in self._parts]

    def _at(self, where: Rows) -> tuple[Rows, np.ndarray | None]:
        """Which places of the base are read, and which of those are used (None: all of them)."""
        if self._places is None:
            return where, None
        whole = self._parts.get((where.start, where.stop)) if isinstance(where, slice) else None
        places = self._places[where]
        if whole is None:
            return places, None
        return whole, None if len(places) == _count(whole) else places - whole.start

    def size(self, where: Rows) -> int:
        return self._base.size(self._at(where)[0])

    def reader(self, where: Rows, away: bool = False) -> Reader:
        read, used = self._at(where)
        return partial(_chosen, self._base.reader(read, away), used, self._subjects)

    def sent(self, where: Rows, client: Any) -> Any:
        return self._base.sent(self._at(where)[0], client)


def _chosen(
    base: Reader, sites: np.ndarray | None, subjects: np.ndarray | None, block: Any
) -> np.ndarray:
    x = base(block)
    if sites is not None:
        x = x[sites] if x.flags.c_contiguous else x.T[:, sites].T
    return x if subjects is None else x[:, subjects]


@dataclass(frozen=True, eq=False)
class Adjustment:
    """What is done to the value x of subject s at site v: (x − Σ_j Z_sj coefficients_jv − offset_v)
    / scale_v.

    Attributes
    ----------
    Z : (n_subjects, k) regressors of each subject; None with `coefficients` None.
    coefficients : (k, n_sites) or None.
    offset, scale : (n_sites,) or None.
    floor : whether values that come out below 0 are set to 0.
    codes : (n_subjects,) which row of `offset` and `scale`, then (n_codes, n_sites), is a
        subject's; None: all alike.
    """

    Z: np.ndarray | None = None
    coefficients: np.ndarray | None = None
    offset: np.ndarray | None = None
    scale: np.ndarray | None = None
    floor: bool = False
    codes: np.ndarray | None = None

    def at(self, subjects: Any, sites: Any) -> Adjustment:
        """The adjustment of some subjects at some sites."""
        chosen = lambda values: None if values is None else values[..., sites]
        Z, codes = (None if values is None else values[subjects] for values in (self.Z, self.codes))
        return Adjustment(
            Z, chosen(self.coefficients), chosen(self.offset), chosen(self.scale), self.floor, codes
        )

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Values adjusted, and set to 0 where they must be."""
        return self.floored(self.linear(x))

    def linear(self, x: Any, own: bool = False) -> np.ndarray:
        """Values (subjects × sites, or of one subject or site) adjusted, before any is set to 0;
        `own`: in place.
        """
        # a copy, changed in place and a few subjects at a time: parts are large
        found = x if own else np.array(x, dtype=np.float64)
        if self.Z is not None and self.coefficients is not None:
            for some in cut(len(self.Z), _SUBJECTS_ADJUSTED) if self.Z.ndim > 1 else [...]:
                found[some] -= self.Z[some] @ self.coefficients
        if self.codes is not None:
            for some in cut(len(self.codes), _SUBJECTS_ADJUSTED) if self.codes.ndim else [...]:
                found[some] -= 0.0 if self.offset is None else self.offset[self.codes[some]]
                found[some] /= 1.0 if self.scale is None else self.scale[self.codes[some]]
            return found
        if self.offset is not None:
            _subtract(found, self.offset)
        if self.scale is not None:
            found /= self.scale.astype(found.dtype, copy=False)
        return found

    def floored(self, x: np.ndarray) -> np.ndarray:
        """`x` with negative values set to 0 where they are not allowed; NaN of masked sites stays."""
        return np.maximum(x, 0.0, out=x) if self.floor else x

    def n_below(self, x: np.ndarray) -> np.ndarray:
        """Number of values per site that are set to 0, rounding aside."""
        largest = np.fmax.reduce(np.abs(x), axis=None, initial=0)  # NaN is not below 0
        return np.asarray((x < -_ROUNDING * largest).sum(axis=0) if self.floor else 0)


def _subtract(x: np.ndarray, offset: np.ndarray) -> None:
    """Subtract an offset of each site in place; from float32 values also what float32 loses of the
    offset.
    """
    rounded = offset.astype(x.dtype, copy=False)
    x -= rounded
    if x.dtype == np.float32:
        x -= (offset - rounded).astype(x.dtype)


class Changed(MapSource):
    """A source of the same shape and order as another, whose values are changed when they are read."""

    def __init__(self, base: MapSource) -> None:
        self._base = base
        self.shape, self.order, self.held, self.n_bytes = (
            base.shape,
            base.order,
            base.held,
            base.n_bytes,
        )

    def slices(self) -> list[slice]:
        return self._base.slices()

    def size(self, where: Rows) -> int:
        return self._base.size(where)

    def sent(self, where: Rows, client: Any) -> Any:
        return self._base.sent(where, client)

    def _sites(self, where: Rows) -> Rows:
        return where if self.order is None else self.order[where]


class Adjusted(Changed):
    """A source whose values are adjusted when they are read; `below` counts per site what was set
    to 0 here.
    """

    def __init__(
        self, base: MapSource, adjustment: Adjustment, below: np.ndarray | None = None
    ) -> None:
        super().__init__(base)
        self._adjustment = adjustment
        self._below = np.zeros(base.shape[0], dtype=np.int64) if below is None else below

    def reader(self, where: Rows, away: bool = False) -> Reader:
        sites = self._sites(where)
        step = self._adjustment.at(slice(None), sites)
        read = self._base.reader(where, away)
        return partial(_adjusted, read, step, None if away else partial(self._count, sites))

    def by_block(self, where: Rows, away: bool = False) -> tuple[Reader, BlockChange | None]:
        """The same where blocks are adjusted one by one, which keeps them in the cache."""
        # what is counted is relative to the largest value of a part
        if self._adjustment.floor:
            return self.reader(where, away), None
        step = self._adjustment.at(slice(None), self._sites(where))
        return self._base.reader(where, away), partial(_adjust_block, step)

    def _count(self, sites: Rows, below: np.ndarray) -> None:
        self._below[sites] = below


def _adjust_block(adjustment: Adjustment, rows: slice, x: np.ndarray, own: bool) -> np.ndarray:
    # float32 stays where sites are only moved and scaled
    per_site = adjustment.Z is None and adjustment.codes is None
    block = x.astype(x.dtype if per_site else np.float64, copy=not own)
    return adjustment.at(slice(None), rows).linear(block.T, own=True).T


def _adjusted(
    base: Reader, adjustment: Adjustment, count: Callable[[np.ndarray], None] | None, block: Any
) -> np.ndarray:
    x = adjustment.linear(base(block).T)
    if count is not None and adjustment.floor:
        count(adjustment.n_below(x))
    return adjustment.floored(x).T


@dataclass(frozen=True, eq=False)
class Holes:
    """Where there is no value.

    Attributes
    ----------
    lost : (n_sites,) bool, sites without any
    zero : (n_sites,) bool, sites where 0 is not a value
    """

    lost: np.ndarray
    zero: np.ndarray

    def at(self, subjects: Any, sites: Any) -> Holes:
        return Holes(self.lost[sites], self.zero[sites])

    def make(self, x: np.ndarray) -> None:
        """NaN in place, sites × subjects."""
        empty = x == 0
        if empty.any():
            x[empty & self.zero[:, None]] = np.nan
        x[self.lost] = np.nan


class WithHoles(Changed):
    """A source that is NaN where there is no value."""

    def __init__(self, base: MapSource, holes: Holes) -> None:
        super().__init__(base)
        self._holes = holes

    def reader(self, where: Rows, away: bool = False) -> Reader:
        return partial(
            _with_holes, self._base.reader(where, away), self._holes.at(None, self._sites(where))
        )


def _with_holes(base: Reader, holes: Holes, block: Any) -> np.ndarray:
    x = base(block)
    x = np.array(x, dtype=x.dtype if x.dtype.kind == "f" else np.float64)
    holes.make(x)
    return x


# ---------------------------------------------------------------------- mapped files


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
        """The file of a memmap that covers it as it stands; None for anything else, slices of
        memmaps among them.
        """
        if not isinstance(X, np.memmap) or X.filename is None or not isinstance(X.base, mmap.mmap):
            return None
        about = os.stat(X.filename)
        fortran = bool(X.flags.f_contiguous and not X.flags.c_contiguous)
        return cls(
            str(Path(X.filename).absolute()),
            X.dtype.str,
            X.offset,
            X.shape,
            fortran,
            about.st_size,
            about.st_mtime_ns,
        )

    def opened(self) -> np.memmap:
        return _mapped(self)


@lru_cache(maxsize=4)
def _mapped(file: _MappedFile) -> np.memmap:
    order: Any = "F" if file.fortran else "C"
    return map_file(file.path, file.dtype, file.offset, file.shape, order)


def _let_go(X: Any) -> None:
    """Give back the memory of mapped pages; the file keeps them, so only copies on write must be
    spared.
    """
    mapped = getattr(X, "_mmap", None)
    if mapped is not None and X.mode in ("r", "r+") and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)
