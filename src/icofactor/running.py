"""Where the pieces of a run are made: on the threads of this process, or elsewhere (`cluster.Cluster`).

Pieces are named, made in any order and handed on in theirs, so that what is summed over them has the same bits
wherever they were made. A piece that the work folder holds is not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from icofactor.checkpoint import Arrays, Checkpoint
from icofactor.threads import in_order

Task = Callable[..., Arrays]
"""A pure function (shared, *item) that can be pickled; `shared` are arrays that all items use."""
Item = Callable[[int], Sequence[Any]]
"""The arguments of one item, made when it is its turn."""
Keys = Sequence[str | None]
"""Names under which pieces are kept; None for those that are not."""


class Runner(Protocol):
    """Makes pieces."""

    checkpoint: Checkpoint
    remote: bool
    """Whether tasks run in other processes."""

    def run(self, keys: Keys, task: Task, shared: Mapping[str, Any], item: Item) -> Iterator[Arrays]:
        """task(shared, *item(i)) for every i, kept under keys[i], in order."""
        ...


class Here:
    """Makes pieces in this process, as many at a time as it has processors, a few ahead of their use."""

    remote = False

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self.checkpoint = Checkpoint(None, {}) if checkpoint is None else checkpoint

    def run(self, keys: Keys, task: Task, shared: Mapping[str, Any], item: Item) -> Iterator[Arrays]:
        def one(i: int) -> Arrays:
            key, make = keys[i], lambda: task(shared, *item(i))
            return make() if key is None else self.checkpoint.piece(key, make)

        return in_order(one, range(len(keys)))
