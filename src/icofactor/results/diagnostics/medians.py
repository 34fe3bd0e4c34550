"""Compiled medians of the rows of large data, from the bits of their values; imported only where data are large."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import from_dtype, types

from icofactor.factorization.engines.cpu import Kernels
from icofactor.factorization.engines.looking import type_seen
from icofactor.factorization.engines.sweeps import compiled
from icofactor.streaming.blocks import StoredPart, Tile, cut

_BYTES = 2**24
"""Of so many values the rows are put together at a time."""
_RUN = 256
"""Values that are counted at a time: so few that counters of the size of values hold them."""


def medians(tiles: Sequence[Tile], n_sites: int, n_subjects: int) -> tuple[np.ndarray, np.ndarray]:
    """The median of every site over its tiles, and whether all its values are the same."""
    kind = tiles[0].x.dtype
    whole = np.dtype(f"i{kind.itemsize}")
    step = max(1, _BYTES // (kind.itemsize * n_subjects))
    buffer, found = np.empty((step, n_subjects), whole), np.empty((4, n_sites), whole)
    for sites in cut(n_sites, step):
        for tile in tiles:
            first, last = max(sites.start, tile.sites.start), min(sites.stop, tile.sites.stop)
            if first < last:
                rows = tile.rows[first - tile.sites.start : last - tile.sites.start]
                together = rows[-1] - rows[0] + 1 == len(rows)  # a slice is not copied
                own = tile.x[slice(rows[0], rows[-1] + 1) if together else rows]
                n = tile.subjects.stop - tile.subjects.start
                to = buffer[first - sites.start : last - sites.start, tile.subjects]
                to[:] = own.view(whole)[:, tile.first : tile.first + n]
        middle_rows(buffer[: sites.stop - sites.start], found, sites.start)
    low, high, least, most = found
    values = [_turned(keys).view(kind).astype(np.float64) for keys in (low, high)]
    return np.mean(values, axis=0), least == most


def kernels_for(part: StoredPart) -> Kernels:
    """What `medians` of such parts calls."""
    table = from_dtype(np.dtype(f"i{type_seen(part).itemsize}"))[:, ::1]
    return {middle_rows: (table, table, types.int64)}


def _turned(bits: np.ndarray) -> np.ndarray:
    """Bits of numbers as whole numbers in the same order, and back: of negative ones all but the sign are turned."""
    return bits ^ ((bits >> (8 * bits.itemsize - 1)) & np.iinfo(bits.dtype).max)


@compiled(no_cfunc_wrapper=True)
def middle_rows(x: np.ndarray, found: np.ndarray, to: int) -> None:
    """The two in the middle, the least and the largest of each row of x, as `_turned`, from column `to` of `found` on;
    x is turned in place.

    Halving the range of the values takes as many counts as it has bits, and counts are quick. One function of plain
    loops is compiled within half the time of several.
    """
    n, kind = x.shape[1], x.dtype.type
    signless, bits, whole = kind(np.iinfo(x.dtype).max), kind(8 * x.itemsize - 1), n // _RUN * _RUN
    for i in range(len(x)):
        own, least, largest = x[i], signless, kind(-signless - 1)
        for j in range(n):
            own[j] ^= kind(kind(own[j] >> bits) & signless)
        for j in range(n):
            least, largest = min(least, own[j]), max(largest, own[j])
        low, high, wanted, below = np.int64(least), np.int64(largest), (n + 1) // 2, 0
        while low < high or below == 0:  # the smallest that `wanted` values do not exceed, and how many it is
            middle, total = (low & high) + ((low ^ high) >> 1), 0  # their sum may be too large
            most = kind(middle)
            for first in range(0, whole, _RUN):
                part = kind(0)
                for j in range(_RUN):
                    part = kind(part + kind(own[first + j] <= most))
                total += part
            for j in range(whole, n):
                total += own[j] <= most
            if total >= wanted:
                high, below = middle, total
            else:
                low = middle + 1
        lower = upper = kind(low)
        if n % 2 == 0 and below == wanted:
            upper = largest
            for j in range(n):
                upper = min(upper, own[j] if own[j] > lower else largest)
        found[0, to + i], found[1, to + i], found[2, to + i], found[3, to + i] = lower, upper, least, largest
