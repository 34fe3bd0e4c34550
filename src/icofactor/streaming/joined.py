"""Several sources seen as one, without copying anything: `Stacked` (their subjects), `Chained` (their sites)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from icofactor.errors import ArgumentError, Phrase
from icofactor.streaming.blocks import Rows
from icofactor.streaming.source import MapSource, Reader


class Stacked(MapSource):
    """The subjects of several sources one after the other, at the same sites, in the order of one on disk."""

    def __init__(self, sources: Sequence[MapSource]) -> None:
        first = min(sources, key=lambda one: one.order is None)
        for other in sources:
            if other.shape[0] != first.shape[0]:
                found = Phrase(f"{first.shape[0]} and {other.shape[0]} sites")
                raise ArgumentError("sources", found, "maps on the same sites")
        self._sources, order = tuple(sources), _order(first)
        # where the others hold what lies at each place
        self._places = tuple(
            None if np.array_equal(order, _order(one)) else np.argsort(_order(one))[order] for one in sources
        )
        self.shape, self.order = (first.shape[0], sum(one.shape[1] for one in sources)), first.order
        self.held, self.n_bytes = all(one.held for one in sources), sum(one.n_bytes for one in sources)

    def _each(self, where: Rows) -> list[tuple[MapSource, Rows]]:
        places = zip(self._sources, self._places, strict=True)
        return [(one, where if own is None else own[where]) for one, own in places]

    def slices(self) -> list[slice]:
        """The parts of the source that has the most of them."""
        return max((one.slices() for one in self._sources if one.held == self.held), key=len)

    def size(self, where: Rows) -> int:
        return sum(one.size(own) for one, own in self._each(where))

    def reader(self, where: Rows, away: bool = False) -> Reader:
        return partial(_side_by_side, [one.reader(own, away) for one, own in self._each(where)])

    def sent(self, where: Rows, client: Any) -> Any:
        return [one.sent(own, client) for one, own in self._each(where)]

    def identity(self) -> str:
        return "; ".join(one.identity() for one in self._sources)


class Chained(MapSource):
    """The sites of several sources one after the other, of the same subjects."""

    def __init__(self, sources: Sequence[MapSource]) -> None:
        counts = {one.shape[1] for one in sources}
        if len(counts) > 1:
            raise ArgumentError("sources", Phrase(f"{sorted(counts)} subjects"), "maps of the same subjects")
        self._sources, self._first = tuple(sources), np.cumsum([0, *(one.shape[0] for one in sources)])
        self.shape = (int(self._first[-1]), counts.pop())
        self.order = None
        if any(one.order is not None for one in sources):
            self.order = np.concatenate([_order(one) + n for one, n in zip(sources, self._first, strict=False)])
        self.held, self.n_bytes = all(one.held for one in sources), sum(one.n_bytes for one in sources)

    def slices(self) -> list[slice]:
        pairs = zip(self._sources, self._first.tolist(), strict=False)
        return [slice(n + part.start, n + part.stop) for one, n in pairs for part in one.slices()]

    def _each(self, where: Rows) -> list[tuple[MapSource, Rows, np.ndarray]]:
        """Sources that hold some of these places, at which of their own, and where those stand in `where`."""
        if isinstance(where, slice):
            number = int(np.searchsorted(self._first, where.start, side="right")) - 1
            n, last = self._first[number : number + 2].tolist()
            if where.stop <= last:  # a part
                return [
                    (self._sources[number], slice(where.start - n, where.stop - n), np.arange(where.stop - where.start))
                ]
            where = np.arange(where.start, where.stop)
        owner = np.searchsorted(self._first, where, side="right") - 1
        mine = [(number, np.flatnonzero(owner == number)) for number in np.unique(owner).tolist()]
        return [(self._sources[number], where[at] - self._first[number], at) for number, at in mine]

    def size(self, where: Rows) -> int:
        return sum(one.size(own) for one, own, _ in self._each(where))

    def reader(self, where: Rows, away: bool = False) -> Reader:
        each = self._each(where)
        if len(each) == 1:
            return each[0][0].reader(each[0][1], away)
        return partial(_gathered, [(one.reader(own, away), at) for one, own, at in each])

    def sent(self, where: Rows, client: Any) -> Any:
        sent = [one.sent(own, client) for one, own, _ in self._each(where)]
        return sent[0] if len(sent) == 1 else sent

    def identity(self) -> str:
        return "sites of " + "; then of ".join(one.identity() for one in self._sources)


def _gathered(readers: Sequence[tuple[Reader, np.ndarray]], blocks: Any) -> np.ndarray:
    blocks = [None] * len(readers) if blocks is None else blocks
    parts = [read(block) for (read, _), block in zip(readers, blocks, strict=True)]
    found = np.empty((sum(map(len, parts)), parts[0].shape[1]), np.result_type(*parts))
    for (_, at), part in zip(readers, parts, strict=True):
        found[at] = part
    return found


def _order(source: MapSource) -> np.ndarray:
    return np.arange(source.shape[0]) if source.order is None else source.order


def _side_by_side(readers: Sequence[Reader], blocks: Any) -> np.ndarray:
    blocks = [None] * len(readers) if blocks is None else blocks
    return np.concatenate([read(block) for read, block in zip(readers, blocks, strict=True)], axis=1)
