"""Blocks of sites: how X is cut into them, and how the results of several blocks are joined."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

# Largest float64 block of sites × subjects: large enough for BLAS, small enough for the cache and for laptops.
BLOCK_BYTES = 4 * 2**20
# Small data are cut into smaller blocks, which keeps the memory of the threads a small part of the data. Not smaller
# than this: what NumPy and SciPy need per call was half of the time of a pass over 16 MB in blocks of 256 kB.
_LEAST_BLOCK = 2**20
_LEAST_BLOCKS = 64
# Blocks of tens of thousands of subjects are larger: products of fewer sites would mostly wait for the loadings.
_LEAST_SITES = 64
# A block is worked on in pieces of this size where several steps follow each other, so that it stays in the cache.
CACHE_BYTES = 2**19
# Rows that lie a power of two apart push each other out of the cache when they are read across (three times slower at
# 327,680 sites), so only this many subjects are transposed at a time.
_SUBJECTS_TRANSPOSED = 16
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
"""A pure function (x, shared, *own) of the values of a single block, and otherwise as `PartTask`."""
BlockChange = Callable[[slice, np.ndarray, bool], np.ndarray]
"""(sites of a part, their values, whether these may be overwritten) → other values."""
_JOIN = {"sum": np.add, "min": np.minimum, "max": np.maximum}


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


def blocks_of(x: np.ndarray, step: int, change: BlockChange | None = None) -> Iterator[tuple[slice, np.ndarray]]:
    """Blocks of `step` sites of x (sites × subjects, any type and order), each in float64 and C order."""
    for rows in cut(len(x), step):
        block = as_block(x[rows])
        yield rows, block if change is None else change(rows, block, not np.may_share_memory(block, x))


def as_block(x: np.ndarray) -> np.ndarray:
    """Values in float64 and C order."""
    if x.flags.c_contiguous or (not x.flags.f_contiguous and abs(x.strides[0]) >= abs(x.strides[1])):
        return np.ascontiguousarray(x, dtype=np.float64)
    block = np.empty(x.shape)
    for subjects in cut(x.shape[1], _SUBJECTS_TRANSPOSED):
        block[:, subjects] = x[:, subjects]
    return block


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
