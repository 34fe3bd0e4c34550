"""Blocks of sites: where they begin, in what type they are worked on, and how results are joined.

A block is read at once. It is worked on in strips, which are small enough for the cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

# Largest block, counted as float32, unless a row of chunks is larger. Loadings go out and sums come
# back with every block that is worked on elsewhere, so blocks are not small.
BLOCK_BYTES = 96 * 2**20
# Several threads share the blocks, unless they would be tiny.
LEAST_BLOCKS = 32
LEAST_BLOCK_BYTES = 2**19
# Largest strip, counted as float32: large enough for BLAS, small enough for the cache.
STRIP_BYTES = 4 * 2**20
# Strips of tens of thousands of subjects are larger: products of fewer sites would mostly wait for
# the loadings.
LEAST_STRIP_SITES = 64
# Squares of values within these bounds, and sums of them, are far from the ends of float32.
SMALLEST_SINGLE = 1e-12
LARGEST_SINGLE = 1e12
# Squares of float32 are added up in float32 for this many subjects, then in float64: the error
# stays below 1e-7, and it takes a quarter of the time of float64.
SUBJECTS_ADDED = 1024
# The median of this many subjects is near enough to the mean of all.
SUBJECTS_OF_LEVEL = 5
# Rows that lie a power of two apart push each other out of the cache when they are read across
# (three times slower at 327,680 sites), so only this many subjects are transposed at a time.
SUBJECTS_TRANSPOSED = 16

Rows = slice | np.ndarray
Arrays = dict[str, np.ndarray]
# How the results of strips are joined, by the first part of their name; "site." has rows for sites.
JOINED_BY = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def block_edges(
    n_sites: int,
    n_subjects: int,
    chunks: int | tuple[int, ...] | None = None,
) -> list[int]:
    """Return the sites at which blocks begin, and the number of sites at the end.

    `chunks` are those of the source along sites: their size, or the size of each.
    """
    bytes_per_site = 4 * max(1, n_subjects)
    height = max(n_sites // LEAST_BLOCKS, LEAST_BLOCK_BYTES // bytes_per_site)
    height = max(1, min(height, BLOCK_BYTES // bytes_per_site))
    if isinstance(chunks, tuple):
        edges = [0]
        for end in np.cumsum(chunks).tolist():
            # A block ends with the first chunk that makes it high enough.
            if end - edges[-1] >= height or end == n_sites:
                edges.append(end)
        return edges
    if chunks:
        height = chunks * max(1, height // chunks)
    return [*range(0, n_sites, height), n_sites]


def strip_height(n_subjects: int) -> int:
    """Return how many sites make a strip."""
    return max(LEAST_STRIP_SITES, STRIP_BYTES // (4 * max(1, n_subjects)))


def cut(
    n: int,
    height: int,
) -> list[slice]:
    """Return consecutive slices of this height; the last one may be smaller."""
    return [slice(first, min(first + height, n)) for first in range(0, n, height)]


def as_slice(numbers: np.ndarray) -> Rows:
    """Return consecutive numbers as a slice: what it takes is not copied."""
    if not len(numbers):
        return slice(0, 0)
    if (np.diff(numbers) != 1).any():
        return numbers
    return slice(int(numbers[0]), int(numbers[-1]) + 1)


def covering_slice(numbers: Rows) -> tuple[slice, Rows]:
    """Return the slice from the smallest to the largest number, and what to take of it."""
    if isinstance(numbers, slice):
        return numbers, slice(None)
    first = int(numbers.min())
    return slice(first, int(numbers.max()) + 1), numbers - first


def as_block(
    x: np.ndarray,
    single: bool = False,
) -> np.ndarray:
    """Return values in C order and float64.

    With `single` they are float32, if that loses nothing of them or of their squares.
    """
    is_single = np.result_type(x.dtype, np.float32) == np.float32
    if not (single and is_single):
        return in_c_order(x, np.dtype(np.float64))
    block = in_c_order(x, np.dtype(np.float32))
    highest = float(block.max(initial=0))
    largest = max(highest, -float(block.min(initial=0)))
    is_within = largest == 0 or SMALLEST_SINGLE < largest < LARGEST_SINGLE
    # NaN is not within the bounds.
    if is_within:
        return block
    return block.astype(np.float64)


def in_c_order(
    x: np.ndarray,
    dtype: np.dtype,
) -> np.ndarray:
    """Return a matrix in C order, transposed in steps that suit the cache."""
    has_long_rows = not x.flags.f_contiguous and abs(x.strides[0]) >= abs(x.strides[1])
    if x.flags.c_contiguous or has_long_rows:
        return np.ascontiguousarray(x, dtype)
    block = np.empty(x.shape, dtype)
    for subjects in cut(x.shape[1], SUBJECTS_TRANSPOSED):
        block[:, subjects] = x[:, subjects]
    return block


@dataclass(frozen=True, eq=False)
class Levelled:
    """The values of a strip as a level of each site, near its mean, and deviations from it.

    Differences of neighbouring float32 numbers are exact. So sums and products that are made in
    float32 lose digits of what subjects differ by, not of a mean that may be a thousand times as
    large.

    Attributes
    ----------
    level : (n_sites,) float64
    deviation : (n_sites, n_subjects) of the type of the strip
    """

    level: np.ndarray
    deviation: np.ndarray

    @classmethod
    def of(cls, x: np.ndarray) -> Levelled:
        # A value of the site itself: where all are the same, deviations are 0.
        first_subjects = x[:, :SUBJECTS_OF_LEVEL]
        middle = first_subjects.shape[1] // 2
        level = np.partition(first_subjects, middle, axis=1)[:, middle]
        return cls(level.astype(np.float64), x - level[:, None])

    def times(self, C: np.ndarray) -> np.ndarray:
        """Return X Cᵀ (n_sites × k) in float64, C k × n_subjects."""
        product = self.deviation @ C.T.astype(self.deviation.dtype)
        return product + np.outer(self.level, C.sum(axis=1))

    def sums(self, W: np.ndarray | sp.csr_array) -> np.ndarray:
        """Return WᵀX (k × n_subjects) in float64, W n_sites × k."""
        product = W.T.astype(self.deviation.dtype) @ self.deviation
        return product + (W.T @ self.level)[:, None]

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean m over subjects of each site, and Σ (x − m)²."""
        n_subjects = self.deviation.shape[1]
        mean = self.deviation.sum(axis=1, dtype=np.float64) / n_subjects
        variance = squares_of_sites(self.deviation) - n_subjects * mean**2
        return self.level + mean, np.maximum(variance, 0.0)


def squares_of_sites(x: np.ndarray) -> np.ndarray:
    """Return Σ x² over the subjects of each site, in float64."""
    total = np.zeros(len(x))
    for subjects in cut(x.shape[1], SUBJECTS_ADDED):
        values = x[:, subjects]
        total += np.einsum("ij,ij->i", values, values)
    return total


def summarize(
    x: np.ndarray,
    levelled: Levelled,
) -> Arrays:
    """Return mean, Σ x² and Σ (x − mean)² of sites, the range of subjects, and whether these differ."""
    mean, variance = levelled.moments()
    # The first site nearly always tells that subjects differ.
    differ = levelled.deviation[:1].any() or levelled.deviation.any()
    return {
        **value_range(x),
        "max.differ": np.array(differ),
        "site.mean": mean,
        "site.energy": variance + x.shape[1] * mean**2,
        "site.variance": variance,
    }


def value_range(x: np.ndarray) -> Arrays:
    """Return the smallest and largest value of every subject; NaN if it has one."""
    low = x.min(axis=0, initial=np.inf)
    high = x.max(axis=0, initial=-np.inf)
    return {"min.low": low.astype(np.float64), "max.high": high.astype(np.float64)}


def add_strip(
    joined: Arrays,
    result: Arrays,
    strip: slice,
    n_sites: int,
) -> None:
    """Add the result of a strip to those of a block of so many sites, in place."""
    for name, values in result.items():
        kind = name.partition(".")[0]
        if kind == "site":
            if name not in joined:
                joined[name] = np.empty((n_sites, *values.shape[1:]), values.dtype)
            joined[name][strip] = values
        elif name in joined:
            JOINED_BY[kind](joined[name], values, out=joined[name])
        else:
            joined[name] = np.array(values)
