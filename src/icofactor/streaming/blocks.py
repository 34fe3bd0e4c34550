"""Blocks of sites: how X is cut into them, and how the results of several blocks are joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

# Largest float32 block of sites × subjects: large enough for BLAS, small enough for the cache and
# for laptops.
BLOCK_BYTES = 4 * 2**20
# Small data are cut into smaller blocks, which keeps the memory of the threads a small part of the
# data. Not smaller than this: what NumPy and SciPy need per call was half of the time of a pass
# over 16 MB in blocks of 256 kB.
_LEAST_BLOCK = 2**20
_LEAST_BLOCKS = 64
# Blocks of tens of thousands of subjects are larger: products of fewer sites would mostly wait for
# the loadings.
_LEAST_SITES = 64
# Squares of values within these bounds, and sums of them, are far from the ends of float32.
_LEAST_SQUARED = 1e-12
_LARGEST_SQUARED = 1e12
# Squares of float32 are added up in float32 for this many subjects, then in float64: the error
# stays below 1e-7, and it takes a quarter of the time of float64.
_SUBJECTS_ADDED = 1024
# The median of this many subjects is near enough to the mean of all.
_SUBJECTS_OF_LEVEL = 5
# Rows that lie a power of two apart push each other out of the cache when they are read across
# (three times slower at 327,680 sites), so only this many subjects are transposed at a time.
_SUBJECTS_TRANSPOSED = 16
Rows = slice | np.ndarray
Blocks = Iterable[tuple[slice, np.ndarray]]
"""Pairs (which sites of a part, their values), sites × subjects in float32 or float64 and C order.
"""
Arrays = dict[str, np.ndarray]
"""The result of a task. The first part of a name says how the results of blocks are joined: "site."
one after the other, "sum." added, "min." and "max." compared.
"""
PartTask = Callable[..., Arrays]
"""A pure function (blocks, shared, *own) of the blocks of one part, of arrays that all parts share,
and of the part's own rows of arrays over all sites.
"""
BlockTask = Callable[..., Arrays]
"""A pure function (x, shared, *own) of the values of a single block, and otherwise as `PartTask`.
"""
BlockChange = Callable[[slice, np.ndarray, bool], np.ndarray]
"""(sites of a part, their values, whether these may be overwritten) → other values."""
_JOIN = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def sites_per_block(n_sites: int, n_subjects: int) -> int:
    """How many sites make a block of data of this size."""
    bytes_per_site = 4 * max(1, n_subjects)
    block_bytes = max(_LEAST_BLOCK, n_sites * bytes_per_site // _LEAST_BLOCKS)
    return max(_LEAST_SITES, min(BLOCK_BYTES, block_bytes) // bytes_per_site)


def cut(n_sites: int, step: int) -> list[slice]:
    """Consecutive slices of `step` sites; the last one may be smaller."""
    return [slice(first, min(first + step, n_sites)) for first in range(0, n_sites, step)]


def as_slice(numbers: np.ndarray) -> Rows:
    """Consecutive numbers as a slice: what it takes is not copied."""
    together = len(numbers) > 0 and bool((np.diff(numbers) == 1).all())
    return slice(int(numbers[0]), int(numbers[-1]) + 1) if together else numbers


def blocks_of(
    x: np.ndarray, step: int, change: BlockChange | None = None, single: bool = False
) -> Iterator[tuple[slice, np.ndarray]]:
    """Blocks of `step` sites of x (sites × subjects, any type and order), as `as_block` makes them."""
    for rows in cut(len(x), step):
        block = as_block(x[rows], single)
        yield (
            rows,
            block if change is None else change(rows, block, not np.may_share_memory(block, x)),
        )


def as_block(x: np.ndarray, single: bool = False) -> np.ndarray:
    """Values in C order and float64; or in float32 (`single`) where that loses nothing of them or
    of their squares.
    """
    all_are_float32 = np.result_type(x.dtype, np.float32) == np.float32
    if not (single and all_are_float32):
        return _in_c_order(x, np.dtype(np.float64))
    block = _in_c_order(x, np.dtype(np.float32))
    if x.dtype.itemsize <= 2 or not block.size:
        return block
    largest = max(-float(block.min()), float(block.max()))
    # NaN is not within bounds
    return (
        block
        if largest == 0 or _LEAST_SQUARED < largest < _LARGEST_SQUARED
        else block.astype(np.float64)
    )


def _in_c_order(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if x.flags.c_contiguous or (
        not x.flags.f_contiguous and abs(x.strides[0]) >= abs(x.strides[1])
    ):
        return np.ascontiguousarray(x, dtype)
    block = np.empty(x.shape, dtype)
    for subjects in cut(x.shape[1], _SUBJECTS_TRANSPOSED):
        block[:, subjects] = x[:, subjects]
    return block


@dataclass(frozen=True, eq=False)
class Levelled:
    """The values x of a block as a level of each site, near its mean, and deviations from it.

    Differences of neighbouring float32 numbers are exact. So sums and products that are made in
    float32 lose digits of what subjects differ by, not of a mean that may be a thousand times as
    large.

    Attributes
    ----------
    level : (n_sites,) float64
    deviation : (n_sites, n_subjects) of the type of the block
    """

    level: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray) -> Levelled:
        # A value of the site itself: where all are the same, deviations are 0.
        first_subjects = x[:, :_SUBJECTS_OF_LEVEL]
        middle = first_subjects.shape[1] // 2
        level = np.partition(first_subjects, middle, axis=1)[:, middle]
        return cls(level.astype(np.float64), x - level[:, None])

    def times(self, C: np.ndarray) -> np.ndarray:
        """X Cᵀ (n_sites × k) in float64, C k × n_subjects."""
        return self.deviation @ C.T.astype(self.deviation.dtype) + np.outer(
            self.level, C.sum(axis=1)
        )

    def sums(self, W: np.ndarray | sp.csr_array) -> np.ndarray:
        """WᵀX (k × n_subjects) in float64, W n_sites × k."""
        return W.T.astype(self.deviation.dtype) @ self.deviation + (W.T @ self.level)[:, None]

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean over subjects m of each site, and Σ (x − m)²."""
        n_subjects = self.deviation.shape[1]
        mean = self.deviation.sum(axis=1, dtype=np.float64) / n_subjects
        variance = squares_of_sites(self.deviation) - n_subjects * mean**2
        return self.level + mean, np.maximum(variance, 0.0)


def squares_of_sites(x: np.ndarray) -> np.ndarray:
    """Σ x² over the subjects of each site, in float64."""
    total = np.zeros(len(x))
    for subjects in cut(x.shape[1], _SUBJECTS_ADDED):
        values = x[:, subjects]
        total += np.einsum("ij,ij->i", values, values)
    return total


def join(pieces: Iterable[Arrays]) -> Arrays:
    """One result from those of consecutive blocks, in their order; sums, which may be large, are
    made on the way.
    """
    joined: Arrays = {}
    values_of_sites: dict[str, list[np.ndarray]] = {}
    for piece in pieces:
        for name, values in piece.items():
            kind = name.partition(".")[0]
            if kind == "site":
                values_of_sites.setdefault(name, []).append(values)
            elif name in joined:
                _JOIN[kind](joined[name], values, out=joined[name])
            else:
                joined[name] = np.array(values)
    return joined | {name: np.concatenate(blocks) for name, blocks in values_of_sites.items()}
