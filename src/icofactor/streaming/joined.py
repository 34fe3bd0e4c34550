"""Several sources seen as one, without copying anything: `Stacked` (their subjects), `Chained`
(their sites).

`Unstacked` shows what lies below each other beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from icofactor.errors import ArgumentError, Phrase
from icofactor.streaming.blocks import Rows
from icofactor.streaming.source import Adjusted, Adjustment, MapSource, Reader


class Stacked(MapSource):
    """The subjects of several sources one after the other, at the same sites, in the order of one
    on disk.
    """

    def __init__(self, sources: Sequence[MapSource]) -> None:
        first = min(sources, key=lambda one: one.order is None)
        for other in sources:
            if other.shape[0] != first.shape[0]:
                found = Phrase(f"{first.shape[0]} and {other.shape[0]} sites")
                raise ArgumentError("sources", found, "maps on the same sites")
        self._sources, order = tuple(sources), _order(first)
        # where the others hold what lies at each place
        self._places = tuple(
            None if np.array_equal(order, _order(one)) else np.argsort(_order(one))[order]
            for one in sources
        )
        self.shape, self.order = (first.shape[0], sum(one.shape[1] for one in sources)), first.order
        self.held, self.n_bytes = (
            all(one.held for one in sources),
            sum(one.n_bytes for one in sources),
        )

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


class Chained(MapSource):
    """The sites of several sources one after the other, of the same subjects."""

    def __init__(self, sources: Sequence[MapSource]) -> None:
        counts = {one.shape[1] for one in sources}
        if len(counts) > 1:
            raise ArgumentError(
                "sources", Phrase(f"{sorted(counts)} subjects"), "maps of the same subjects"
            )
        self._sources, self._first = (
            tuple(sources),
            np.cumsum([0, *(one.shape[0] for one in sources)]),
        )
        self.shape = (int(self._first[-1]), counts.pop())
        self.order = None
        if any(one.order is not None for one in sources):
            self.order = np.concatenate(
                [_order(one) + n for one, n in zip(sources, self._first, strict=False)]
            )
        self.held, self.n_bytes = (
            all(one.held for one in sources),
            sum(one.n_bytes for one in sources),
        )

    def slices(self) -> list[slice]:
        pairs = zip(self._sources, self._first.tolist(), strict=False)
        return [slice(n + part.start, n + part.stop) for one, n in pairs for part in one.slices()]

    def _each(self, where: Rows) -> list[tuple[MapSource, Rows, np.ndarray]]:
        """Sources that hold some of these places, at which of their own, and where those stand in
        `where`.
        """
        if isinstance(where, slice):
            number = int(np.searchsorted(self._first, where.start, side="right")) - 1
            n, last = self._first[number : number + 2].tolist()
            if where.stop <= last:  # a part
                return [
                    (
                        self._sources[number],
                        slice(where.start - n, where.stop - n),
                        np.arange(where.stop - where.start),
                    )
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


class Unstacked(MapSource):
    """Rows of m measures below each other as sites of the same people: site v of measure i is site
    i·n_sites + v.

    Place m·p + i is measure i at place p of the base.
    """

    def __init__(self, base: MapSource, m: int) -> None:
        n_sites, n_rows = base.shape
        self._base, self._m, self.shape = base, m, (m * n_sites, n_rows // m)
        self.order = (_order(base)[:, None] + n_sites * np.arange(m)).ravel()
        self.held, self.n_bytes = base.held, base.n_bytes

    def slices(self) -> list[slice]:
        return [slice(self._m * part.start, self._m * part.stop) for part in self._base.slices()]

    def _at(self, where: Rows) -> tuple[Rows, np.ndarray | None]:
        """Places of the base, and which measure of each; None: all of them."""
        if isinstance(where, slice):
            if not (where.start % self._m or where.stop % self._m):
                return slice(where.start // self._m, where.stop // self._m), None
            where = np.arange(where.start, where.stop)
        return where // self._m, where % self._m

    def size(self, where: Rows) -> int:
        return self._base.size(self._at(where)[0])

    def reader(self, where: Rows, away: bool = False) -> Reader:
        places, which = self._at(where)
        return partial(_unstacked, self._base.reader(places, away), self._m, which)

    def sent(self, where: Rows, client: Any) -> Any:
        return self._base.sent(self._at(where)[0], client)


class Restacked(MapSource):
    """What `Unstacked` undoes, of a source that has its places."""

    def __init__(self, base: MapSource, m: int) -> None:
        n_sites, n = base.shape
        self._base, self._m, self.shape, self.order = (
            base,
            m,
            (n_sites // m, n * m),
            _order(base)[::m],
        )
        self.held, self.n_bytes = base.held, base.n_bytes

    def slices(self) -> list[slice]:
        return [slice(part.start // self._m, part.stop // self._m) for part in self._base.slices()]

    def _at(self, where: Rows) -> Rows:
        if isinstance(where, slice):
            return slice(self._m * where.start, self._m * where.stop)
        return np.asarray((self._m * where[:, None] + np.arange(self._m)).ravel())

    def size(self, where: Rows) -> int:
        return self._base.size(self._at(where))

    def reader(self, where: Rows, away: bool = False) -> Reader:
        return partial(_restacked, self._base.reader(self._at(where), away), self._m)

    def sent(self, where: Rows, client: Any) -> Any:
        return self._base.sent(self._at(where), client)


def adjusted_source(
    base: MapSource, step: Adjustment, m: int = 1, below: np.ndarray | None = None
) -> MapSource:
    """An adjusted source; rows of `m` measures are adjusted as sites of the same people
    (`Unstacked`).
    """
    if m == 1:
        return Adjusted(base, step, below)
    return Restacked(Adjusted(Unstacked(base, m), step, below), m)


def _unstacked(read: Reader, m: int, which: np.ndarray | None, block: Any) -> np.ndarray:
    x = read(block)
    each = x.reshape(len(x), m, x.shape[1] // m)
    return each.reshape(-1, each.shape[2]) if which is None else each[np.arange(len(x)), which]


def _restacked(read: Reader, m: int, block: Any) -> np.ndarray:
    x = read(block)
    return x.reshape(len(x) // m, m * x.shape[1])


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
    return np.concatenate(
        [read(block) for read, block in zip(readers, blocks, strict=True)], axis=1
    )
