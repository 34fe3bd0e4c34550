"""The only loop over X.

X is cut into parts: consecutive places of the order on disk, with all subjects. A part is read,
worked on block by block, and its result joined. Which parts there are depends on the data alone,
never on where they are worked on: sums over parts have the same bits on one thread, on many, and on
a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from icofactor.streaming.blocks import (
    Arrays,
    BlockChange,
    Blocks,
    BlockTask,
    PartTask,
    Rows,
    as_block,
    blocks_of,
    join,
    sites_per_block,
)
from icofactor.streaming.runners import Runner, Threads
from icofactor.streaming.source import Adjusted, MapSource, Reader, Subset, transposed

# Maps up to this size, in float64, are worked on in float64, which takes no longer there; and by
# one thread where they are in memory, as more would wait for each other in Python.
SMALL_BYTES = 32 * 2**20
READ_BYTES = 2**30
"""Parts that are read and worked on at the same time take at most this much, or are one: machines
with many processors read fewer than they could, as disks are slower. Parts count as float64.
"""


class Stream:
    """Maps as sites × subjects, with the runner that works on their parts.

    Attributes
    ----------
    source : where the maps lie
    runner : where the parts are worked on; threads of this process by default
    shape : (sites, subjects)
    bytes_read : size of everything that was read so far, as the source holds it; 0 for data in
        memory
    """

    def __init__(self, source: MapSource, runner: Runner | None = None) -> None:
        self.source, self.runner = source, Threads() if runner is None else runner
        self.shape, self.bytes_read = source.shape, 0

    @property
    def passes(self) -> float:
        """How often all maps were read."""
        return self.bytes_read / max(1, self.source.n_bytes)

    def subset(self, subjects: np.ndarray) -> Stream:
        """Some subjects, also repeated, passed over as all of them are."""
        return Stream(Subset(self.source, subjects=subjects), self.runner)

    def read(self, sites: np.ndarray) -> np.ndarray:
        """Some sites × all subjects in float64; only these are read."""
        places = sites if self._place is None else self._place[sites]
        self.bytes_read += self.source.size(places)
        return as_block(self.source.read(places))

    @cached_property
    def _place(self) -> np.ndarray | None:
        """Where each site lies in the order of the source."""
        return None if self.source.order is None else np.argsort(self.source.order)


def stream_of(X: Any) -> Stream:
    """A stream as it is; a source or an array of sites × subjects as a stream on the threads of
    this process.
    """
    return X if isinstance(X, Stream) else Stream(transposed(X))


def pass_over(
    X: Any,
    task: PartTask,
    shared: Mapping[str, Any] | None = None,
    own: Sequence[Any] = (),
    *,
    report: Callable[[float], None] | None = None,
) -> Iterator[tuple[Rows, Arrays]]:
    """`task` on every part of X, in order: pairs (numbers of the sites, result).

    Parameters
    ----------
    X : Stream, or array of sites × subjects
    task : picklable function (blocks, shared, *own); `each_block` and `each_wide_block` make one
        from a function of a single block
    shared : arrays that all parts need
    own : arrays over all sites, of which a part needs its own rows; or None
    report : called with the fraction that is done
    """
    stream = stream_of(X)
    source, runner = stream.source, stream.runner
    small = 8 * source.shape[0] * source.shape[1] <= SMALL_BYTES
    if isinstance(runner, Threads) and source.held and small:
        runner = runner.at_most(1)
    elif isinstance(runner, Threads) and not source.held:
        runner = runner.at_most(_n_at_once(source))
    parts, step = source.slices(), sites_per_block(*source.shape)
    rows = lambda where: where if source.order is None else source.order[where]

    def item(i: int) -> Sequence[Any]:
        where = parts[i]
        mine = [None if array is None else array[rows(where)] for array in own]
        block = source.sent(where, runner.client) if runner.remote else None
        reader = (
            source.by_block
            if isinstance(source, Adjusted)
            else lambda *at: (source.reader(*at), None)
        )
        return [*reader(where, runner.remote), block, *mine]

    results = runner.run(
        partial(_work, task, step, not small), {} if shared is None else shared, item, len(parts)
    )
    for done, (where, found) in enumerate(zip(parts, results, strict=True), 1):
        stream.bytes_read += source.size(where)
        yield rows(where), found
        if report is not None:
            report(done / len(parts))


def _n_at_once(source: MapSource) -> int:
    """How many parts of this source are worked on at the same time."""
    n_sites = max((part.stop - part.start for part in source.slices()), default=0)
    return max(1, READ_BYTES // max(8 * n_sites * source.shape[1], 1))


def _work(
    task: PartTask,
    step: int,
    single: bool,
    shared: Mapping[str, Any],
    read: Reader,
    change: BlockChange | None,
    block: Any,
    *own: Any,
) -> Arrays:
    """Read a part and do the task."""
    return task(blocks_of(read(block), step, change, single), shared, *own)


def each_block(task: BlockTask) -> PartTask:
    """A task of single blocks, float32 or float64, as one of parts."""
    return partial(_each_block, task)


def each_wide_block(task: BlockTask) -> PartTask:
    """A task of single blocks, always float64, as one of parts."""
    return partial(_each_wide_block, task)


def _each_block(task: BlockTask, blocks: Blocks, shared: Mapping[str, Any], *own: Any) -> Arrays:
    return join(
        task(x, shared, *(None if a is None else a[rows] for a in own)) for rows, x in blocks
    )


def _each_wide_block(
    task: BlockTask, blocks: Blocks, shared: Mapping[str, Any], *own: Any
) -> Arrays:
    wide = ((rows, x.astype(np.float64, copy=False)) for rows, x in blocks)
    return _each_block(task, wide, shared, *own)
