"""`Maps`: where the maps of a cohort lie, and how they are read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from icofactor.maps.adjustment import Adjustment, floor_at_zero
from icofactor.maps.blocks import Rows, as_block, as_slice, block_edges, covering_slice, cut

# Maps up to this size, in float64, are worked on in float64, which takes no longer there.
SMALL_BYTES = 32 * 2**20


@dataclass
class ReadCounter:
    """How many bytes were read from a source that is not in memory."""

    n_bytes: int = 0


@dataclass(frozen=True, eq=False)
class Maps:
    """Maps of a cohort, read in blocks of sites.

    Like an array of subjects × sites it has a shape and can be sliced; `read` gives sites ×
    subjects, as all passes want them.

    Attributes
    ----------
    values : array, memory-mapped file, dask or zarr array, or another object that is sliced like an
        array; or a tuple of Maps that lie side by side
    subjects_first : whether `values` is subjects × sites, as users have them, or sites × subjects
    subjects, sites : numbers of those in use, in their order, also repeated; None: all
    adjustments : changes of the values, in order
    floor : whether values that come out below 0 become 0
    joined : along what a tuple lies side by side, "subjects" or "sites"
    executor : where passes over the maps run; None: threads of this process
    counter : counts what is read; Maps made from these share it
    """

    values: Any
    subjects_first: bool = True
    subjects: np.ndarray | None = None
    sites: np.ndarray | None = None
    adjustments: tuple[Adjustment, ...] = ()
    floor: bool = False
    joined: str = "subjects"
    executor: Executor | None = None
    counter: ReadCounter = field(default_factory=ReadCounter)

    ndim = 2

    @property
    def n_sites(self) -> int:
        """Number of sites in use."""
        if self.sites is None:
            return self._source_shape[0]
        return len(self.sites)

    @property
    def n_subjects(self) -> int:
        """Number of subjects in use."""
        if self.subjects is None:
            return self._source_shape[1]
        return len(self.subjects)

    @property
    def shape(self) -> tuple[int, int]:
        """(subjects, sites), as of an array."""
        return self.n_subjects, self.n_sites

    @property
    def dtype(self) -> np.dtype:
        """Type of the values as they are read: float32 for float32 and smaller, else float64."""
        return np.result_type(self.source_dtype, np.float64 if self.adjustments else np.float32)

    @cached_property
    def source_dtype(self) -> np.dtype:
        """Type of the values as they are stored."""
        if isinstance(self.values, tuple):
            return np.result_type(*(maps.dtype for maps in self.values))
        return np.dtype(self.values.dtype)

    @cached_property
    def in_memory(self) -> bool:
        """Whether the values are in memory already, so that reading them again costs nothing."""
        if isinstance(self.values, tuple):
            return all(maps.in_memory for maps in self.values)
        return is_in_memory(self.values)

    @property
    def n_bytes(self) -> int:
        """Bytes that one pass reads; 0 in memory."""
        return self._bytes_of(self.n_sites)

    @property
    def is_small(self) -> bool:
        """Whether the maps are worked on in float64, and by one thread if they are in memory."""
        return 8 * self.n_sites * self.n_subjects <= SMALL_BYTES

    @cached_property
    def _source_shape(self) -> tuple[int, int]:
        """(sites, subjects) of `values`."""
        if isinstance(self.values, tuple):
            n_sites = [maps.n_sites for maps in self.values]
            n_subjects = [maps.n_subjects for maps in self.values]
            if self.joined == "sites":
                return sum(n_sites), n_subjects[0]
            return n_sites[0], sum(n_subjects)
        n_rows, n_columns = self.values.shape
        return (n_columns, n_rows) if self.subjects_first else (n_rows, n_columns)

    def subset(
        self,
        subjects: Any = None,
        sites: Any = None,
    ) -> Maps:
        """Return some subjects, also repeated, and some sites, given by numbers, slices or masks."""
        maps = self
        if subjects is not None:
            numbers = _chosen(self.subjects, self.n_subjects, subjects)
            changes = [change.at(subjects, slice(None)) for change in maps.adjustments]
            maps = replace(maps, subjects=numbers, adjustments=tuple(changes))
        if sites is not None:
            numbers = _chosen(self.sites, self.n_sites, sites)
            changes = [change.at(slice(None), sites) for change in maps.adjustments]
            maps = replace(maps, sites=numbers, adjustments=tuple(changes))
        return maps

    def adjusted(
        self,
        adjustment: Adjustment | None = None,
        floor: bool | None = None,
    ) -> Maps:
        """Return the maps with a further change; None changes nothing.

        `floor` says whether values below 0 then become 0; None leaves that as it is.
        """
        changes = () if adjustment is None else (adjustment,)
        return replace(
            self,
            adjustments=(*self.adjustments, *changes),
            floor=self.floor if floor is None else floor,
        )

    def blocks(self) -> list[Rows]:
        """Return the sites that are read together, block by block.

        Blocks depend on the data alone, never on the machine, and follow the chunks of the source.
        """
        blocks = self._source_blocks()
        if self.sites is None:
            return blocks
        every_site = np.arange(self._source_shape[0])
        sites_of_blocks = [every_site[block] for block in blocks]
        position = np.argsort(np.concatenate(sites_of_blocks))[self.sites]
        # Sites may be repeated, and in any order.
        order = np.argsort(position, kind="stable")
        ends = np.cumsum([len(sites) for sites in sites_of_blocks])
        in_use = np.split(order, np.searchsorted(position, ends, sorter=order))
        return [as_slice(sites) for sites in in_use if len(sites)]

    def _source_blocks(self) -> list[Rows]:
        """Return the blocks of all sites of the source."""
        if not isinstance(self.values, tuple):
            return [slice(first, last) for first, last in pairwise(self._edges)]
        if self.joined == "subjects":
            # Maps on disk say best what is read together.
            return min(self.values, key=lambda maps: maps.in_memory).blocks()
        blocks: list[Rows] = []
        first_site = 0
        for maps in self.values:
            numbers = np.arange(first_site, first_site + maps.n_sites)
            blocks += [as_slice(numbers[block]) for block in maps.blocks()]
            first_site += maps.n_sites
        return blocks

    @cached_property
    def _edges(self) -> list[int]:
        """Sites of a source that is no tuple, at which its blocks begin and end."""
        chunks = getattr(self.values, "chunks", None)
        if chunks:
            chunks = chunks[1 if self.subjects_first else 0]
        # All subjects of the source count: some of them may lie anywhere in what is read.
        return block_edges(*self._source_shape, chunks)

    def read(
        self,
        sites: Rows,
        single: bool = False,
    ) -> np.ndarray:
        """Return adjusted values at some sites, sites × subjects, in float64.

        With `single`, values are float32 where the source has no more than that.
        """
        return self._adjust(self.read_source(sites), sites, single)

    def strips(
        self,
        values: np.ndarray,
        height: int,
        single: bool,
    ) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield what `read_source` gave of all sites, adjusted a strip at a time.

        A strip stays in the cache while it is worked on.
        """
        for strip in cut(self.n_sites, height):
            yield strip, self._adjust(values[strip], strip, single)

    def _adjust(
        self,
        values: np.ndarray,
        sites: Rows,
        single: bool,
    ) -> np.ndarray:
        x = as_block(values, single)
        for adjustment in self.adjustments:
            x = adjustment.at(slice(None), sites).apply(x)
        if self.floor:
            x, _ = floor_at_zero(x)
        return x

    def read_source(self, sites: Rows) -> np.ndarray:
        """Return values as they are stored, of any type and order, sites × subjects."""
        rows = _chosen(self.sites, self.n_sites, sites)
        self.counter.n_bytes += self._bytes_of(len(rows))
        if isinstance(self.values, tuple):
            return self._read_joined(rows)
        sites_key = as_slice(rows)
        subjects_key: Rows = slice(None)
        if self.subjects is not None:
            subjects_key = as_slice(self.subjects)
        # Sliced first, then taken in NumPy: not every source takes numbers.
        read_sites, taken_sites = covering_slice(sites_key)
        read_subjects, taken_subjects = covering_slice(subjects_key)
        if self.subjects_first:
            x = np.asarray(self.values[read_subjects, read_sites]).T
        else:
            x = np.asarray(self.values[read_sites, read_subjects])
        return x[taken_sites][:, taken_subjects]

    def _read_joined(self, rows: np.ndarray) -> np.ndarray:
        """Return rows of Maps side by side, for the subjects in use."""
        subjects = self.subjects
        if subjects is None:
            subjects = np.arange(self._source_shape[1])
        x = np.empty((len(rows), len(subjects)), self.source_dtype)
        numbers = rows if self.joined == "sites" else subjects
        first = 0
        for maps in self.values:
            size = maps.n_sites if self.joined == "sites" else maps.n_subjects
            inside = np.flatnonzero((numbers >= first) & (numbers < first + size))
            if len(inside) and self.joined == "sites":
                x[inside] = maps.subset(subjects).read(numbers[inside] - first, single=True)
            elif len(inside):
                x[:, inside] = maps.subset(numbers[inside] - first).read(rows, single=True)
            first += size
        return x

    def _bytes_of(self, n_sites: int) -> int:
        if self.in_memory:
            return 0
        return n_sites * self.n_subjects * self.source_dtype.itemsize

    def __len__(self) -> int:
        return self.n_subjects

    def __getitem__(self, key: Any) -> np.ndarray:
        """Return values of some subjects at some sites, as an outer product."""
        if not isinstance(key, tuple):
            key = (key, slice(None))
        rows, columns = key
        numbers = np.arange(self.n_subjects)[rows], np.arange(self.n_sites)[columns]
        x = np.asarray(self.subset(*map(np.atleast_1d, numbers)))
        return x.reshape([array.size for array in numbers if array.ndim])

    def __array__(
        self,
        dtype: Any = None,
        copy: bool | None = None,
    ) -> np.ndarray:
        if copy is False:
            raise ValueError("reading maps makes a copy")
        x = np.empty(self.shape, self.dtype)
        for block in self.blocks():
            x[:, block] = self.read(block, single=self.dtype == np.float32).T
        return x.astype(dtype or x.dtype, copy=False)


def _chosen(
    numbers: np.ndarray | None,
    n: int,
    key: Any,
) -> np.ndarray:
    """Return those of n numbers that a key takes; None: 0 to n − 1."""
    return np.arange(n)[key] if numbers is None else numbers[key]


def maps_of(X: Any) -> Maps:
    """Return X, subjects × sites, as Maps: an array of any kind, or Maps as they are."""
    return X if isinstance(X, Maps) else Maps(X)


def transposed_maps(X: Any) -> Maps:
    """Return X, sites × subjects as in the paper, as Maps; Maps stay as they are."""
    if isinstance(X, Maps):
        return X
    if not hasattr(X, "shape"):
        X = np.asarray(X)
    return Maps(X, subjects_first=False)


def is_in_memory(X: Any) -> bool:
    """Whether X is a NumPy array, and no view of a memory-mapped file."""
    base = X
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    if isinstance(base, np.memmap):
        return False
    return isinstance(X, np.ndarray)


def is_dask_array(X: Any) -> bool:
    """Whether X is a dask array; dask need not be installed."""
    return type(X).__module__.startswith("dask.array")
