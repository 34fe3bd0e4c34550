"""Blocks of sites: cutting X into them, working on each, joining what they gave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from icofactor.streaming.threads import in_order

BLOCK_BYTES = 4 * 2**20
"""Largest float64 block of sites × subjects: large enough for BLAS, small enough for the cache and for laptops."""
_LEAST_BLOCK, _LEAST_BLOCKS = 2**18, 64
"""Small data go in smaller blocks, so that what is on its way through the threads stays a small part of them."""
Result = TypeVar("Result")
Rows = slice | np.ndarray
Blocks = Iterable[tuple[Rows, np.ndarray]]
"""Pairs (rows, values): which sites, and their measurements, sites × subjects."""


def block_slices(n_sites: int, n_subjects: int, block_bytes: int | None = None) -> list[slice]:
    """Consecutive sites, so many that a block of them takes about `block_bytes` in float64."""
    one = 8 * max(1, n_subjects)
    usual = min(BLOCK_BYTES, max(_LEAST_BLOCK, n_sites * one // _LEAST_BLOCKS))
    step = max(1, (block_bytes or usual) // one)
    return [slice(start, min(start + step, n_sites)) for start in range(0, n_sites, step)]


def map_blocks(X: Any, work: Callable[[slice, np.ndarray], Result]) -> Iterator[tuple[slice, Result]]:
    """work(rows, block) for consecutive blocks of sites of X, on all processors, in order.

    X is an array, a memmap, anything sliced like one; a block is float64 in C order. Every pass over X in this library
    goes through here.
    """

    def one(rows: slice) -> tuple[slice, Result]:
        return rows, work(rows, np.ascontiguousarray(X[rows], dtype=np.float64))

    return in_order(one, block_slices(*X.shape))


def iter_blocks(X: Any) -> Iterator[tuple[slice, np.ndarray]]:
    """The blocks themselves, read ahead of their use."""
    return map_blocks(X, lambda rows, block: block)


Arrays = dict[str, np.ndarray]
"""What a piece of a pass gives. How pieces are joined is the first part of a name: "site." one after the other, "sum."
added, "min." and "max." compared."""
BlockTask = Callable[..., Arrays]
"""A pure function (x, shared, *own) of a block x of sites × subjects in float64, of arrays that all blocks share, and
of these sites' own part of arrays over all sites."""
_JOIN = {"sum": np.add, "min": np.minimum, "max": np.maximum}


def join(pieces: Sequence[Arrays]) -> Arrays:
    """One piece from those of consecutive blocks, in their order."""
    found = {}
    for name in pieces[0]:
        parts = [piece[name] for piece in pieces]
        how = name.partition(".")[0]
        found[name] = np.concatenate(parts) if how == "site" else reduce(_JOIN[how], parts)
    return found


def over_blocks(
    X: Any, task: BlockTask, shared: Mapping[str, Any], own: Sequence[Any] = (), stage: str | None = None
) -> Iterator[tuple[Rows, Arrays]]:
    """`task` on every block of sites of X: pairs (rows, what it gave), in order.

    X is what `map_blocks` takes, or knows itself how it is passed over (`streaming.Streamed`); `stage` names a
    pass whose pieces may be kept.
    """
    if hasattr(X, "over_blocks"):
        return X.over_blocks(task, shared, own, stage)
    return map_blocks(X, lambda rows, x: task(x, shared, *(None if a is None else a[rows] for a in own)))
