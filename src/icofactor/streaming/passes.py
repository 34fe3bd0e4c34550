"""Data that are never held: read part by part, each part worked on while the next ones are read.

A part is some consecutive sites of the order on disk with all subjects. Which parts there are depends on the data
alone, never on who works on them; so sums over parts have the same bits on one thread, on many, and on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from icofactor.streaming.blocks import BLOCK_BYTES, Arrays, BlockTask, Rows, block_slices, join, over_blocks
from icofactor.streaming.checkpoint import Checkpoint
from icofactor.streaming.runners import Here, Runner
from icofactor.streaming.source import SitesBySubjects, Source

PartTask = Callable[..., Arrays]
"""A pure function (blocks, shared, *own) of the blocks of one part: pairs (which of its sites, their values)."""


@dataclass(frozen=True, eq=False)
class Part:
    """Sites that are read together.

    Attributes
    ----------
    where : which sites of the source's order are read
    keep : which of those are used; None when all are
    rows : their numbers among all sites used
    """

    where: slice
    keep: np.ndarray | None
    rows: Rows


class Streamed:
    """Maps that stay where they are, seen as sites × subjects, masked sites left out.

    Parameters
    ----------
    source : where they are
    mask : (n_sites,) bool, True where a site is used; None when all are
    runner : who works on the parts; threads of this process by default

    Attributes
    ----------
    shape : (sites used, subjects)
    parts : what is read together
    bytes_read : size of everything that was read for the pieces so far, as numbers in memory
    """

    ndim = 2

    def __init__(self, source: Source, mask: np.ndarray | None = None, runner: Runner | None = None) -> None:
        self.source, self.runner, self.bytes_read = source, Here() if runner is None else runner, 0
        self.shape = (source.shape[0] if mask is None else int(mask.sum()), source.shape[1])
        self.parts = _parts(source, mask)

    @property
    def passes(self) -> float:
        """How often all maps were read."""
        return self.bytes_read / max(1, self.source.n_bytes)

    def run(
        self, stage: str | None, task: PartTask, shared: Mapping[str, Any], own: Callable[[Part], Sequence[Any]]
    ) -> Iterator[tuple[Part, Arrays]]:
        """`task` on every part, in order; `own` gives the arguments that are a part's alone. Without a `stage`
        nothing is kept."""
        ship = self.runner.remote and not self.source.portable
        work = partial(_work_on_part, task, None if ship else self.source)

        def item(i: int) -> Sequence[Any]:
            part = self.parts[i]
            block = self.source.shipped(part.where, self.runner) if ship else None
            return [part.where, part.keep, block, *own(part)]

        keys = [None if stage is None else f"{stage}-{i:05d}" for i in range(len(self.parts))]
        for part, found in zip(self.parts, self.runner.run(keys, work, shared, item), strict=True):
            self.bytes_read += int(found.pop("n_bytes"))
            yield part, found

    def over_blocks(
        self, task: BlockTask, shared: Mapping[str, Any], own: Sequence[Any] = (), stage: str | None = None
    ) -> Iterator[tuple[Rows, Arrays]]:
        """`statistics.over_blocks` for data on disk: the blocks of a part are worked on together."""
        pick = lambda part: [None if a is None else a[part.rows] for a in own]
        for part, found in self.run(stage, partial(_each_block, task), shared, pick):
            yield part.rows, found

    def __getitem__(self, rows: Rows) -> np.ndarray:
        """Some sites × all subjects; the parts that hold any of them are read whole."""
        wanted = np.arange(self.shape[0])[rows]
        place = np.full(self.shape[0], -1)
        place[wanted] = np.arange(len(wanted))
        found = np.empty((len(wanted), self.shape[1]))
        for part in self.parts:
            at = place[part.rows]
            if (at >= 0).any():
                x = self.source.read(part.where)
                self.bytes_read += x.nbytes
                x = x if part.keep is None else x[part.keep]
                found[at[at >= 0]] = x[at >= 0]
        return found


def _parts(source: Source, mask: np.ndarray | None) -> list[Part]:
    row = None if mask is None else np.cumsum(mask) - 1
    parts = []
    for where in source.slices():
        sites = where if source.order is None else source.order[where]
        if mask is None or row is None:
            parts.append(Part(where, None, sites))
        elif mask[sites].any():
            keep = np.flatnonzero(mask[sites])
            parts.append(Part(where, keep, row[sites][keep]))
    return parts


def _work_on_part(
    task: PartTask,
    source: Source | None,
    shared: Mapping[str, Any],
    where: slice,
    keep: np.ndarray | None,
    block: np.ndarray | None,
    *own: Any,
) -> Arrays:
    """Read a part, unless it was sent along (subjects × sites), and do the task."""
    if block is None:
        assert source is not None
        x = source.read(where)
    else:
        x = np.asarray(block).T
    n_bytes = x.nbytes
    if keep is not None:
        x = x[keep]
    slices = block_slices(x.shape[0], x.shape[1], BLOCK_BYTES)
    blocks = ((rows, np.ascontiguousarray(x[rows], dtype=np.float64)) for rows in slices)
    return {**task(blocks, shared, *own), "n_bytes": np.array(n_bytes)}


def _each_block(
    task: BlockTask, blocks: Iterator[tuple[slice, np.ndarray]], shared: Mapping[str, Any], *own: Any
) -> Arrays:
    """A task of blocks as one of parts."""
    return join([task(x, shared, *(None if a is None else a[rows] for a in own)) for rows, x in blocks])


class Kept(SitesBySubjects):
    """Held data in a run that can be resumed: each pass over them is one piece."""

    def __init__(self, X: Any, mask: np.ndarray | None, checkpoint: Checkpoint) -> None:
        super().__init__(X, mask)
        self._plain, self.checkpoint = SitesBySubjects(X, mask), checkpoint

    def over_blocks(
        self, task: BlockTask, shared: Mapping[str, Any], own: Sequence[Any] = (), stage: str | None = None
    ) -> Iterator[tuple[Rows, Arrays]]:
        if stage is None:
            yield from over_blocks(self._plain, task, shared, own)
            return

        def whole() -> Arrays:
            return join([found for _, found in over_blocks(self._plain, task, shared, own)])

        yield slice(0, self.shape[0]), self.checkpoint.piece(stage, whole)
