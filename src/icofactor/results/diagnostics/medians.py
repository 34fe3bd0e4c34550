"""Compiled medians of the rows of large data, from the bits of their values; imported only where data are large."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from icofactor.factorization.engines.sweeps import compiled
from icofactor.streaming.blocks import Tile, cut

_BYTES = 2**24
"""Of so many values the rows are put together at a time."""
_RUN = 256
"""Values that are counted at a time."""


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
                to = buffer[first - sites.start : last - sites.start, tile.subjects]
                copy_rows(tile.x.view(whole), rows, tile.first, to)
        middle_rows(buffer[: sites.stop - sites.start], found[:, sites])
    low, high, least, most = found
    values = [_turned(keys).view(kind).astype(np.float64) for keys in (low, high)]
    return np.mean(values, axis=0), least == most


def _turned(bits: np.ndarray) -> np.ndarray:
    """Bits of numbers as whole numbers in the same order, and back: of negative ones all but the sign are turned."""
    return bits ^ ((bits >> (8 * bits.itemsize - 1)) & np.iinfo(bits.dtype).max)


@njit(**compiled)
def copy_rows(x: np.ndarray, rows: np.ndarray, first: int, out: np.ndarray) -> None:
    """Some rows of x, of the columns from `first` on."""
    for i in range(len(rows)):
        values, own = x[rows[i], first : first + out.shape[1]], out[i]
        for j in range(len(own)):
            own[j] = values[j]


@njit(**compiled)
def middle_rows(x: np.ndarray, found: np.ndarray) -> None:
    """The two in the middle, the least and the largest of each row of x, as `_turned`; x is turned in place.

    Halving the range of the values takes as many counts as it has bits, and counts are quick.
    """
    n, kind = x.shape[1], x.dtype.type
    signless, bits = kind(np.iinfo(x.dtype).max), kind(8 * x.itemsize - 1)
    for i in range(len(x)):
        own = x[i]
        for j in range(n):
            own[j] ^= kind(kind(own[j] >> bits) & signless)
        least, largest = own.min(), own.max()
        low, high, wanted = np.int64(least), np.int64(largest), (n + 1) // 2
        while low < high:  # the smallest that `wanted` values do not exceed
            middle = (low & high) + ((low ^ high) >> 1)  # their sum may be too large
            if _count(own, kind(middle)) >= wanted:
                high = middle
            else:
                low = middle + 1
        lower = upper = kind(low)
        if n % 2 == 0 and _count(own, lower) == wanted:
            upper = largest
            for j in range(n):
                upper = min(upper, own[j] if own[j] > lower else largest)
        found[0, i], found[1, i], found[2, i], found[3, i] = lower, upper, least, largest


@njit(**compiled)
def _count(x: np.ndarray, most: int) -> int:
    """How many values are not above `most`, in runs so short that counters of the size of values hold them."""
    total, whole, kind = 0, len(x) // _RUN * _RUN, x.dtype.type
    for first in range(0, whole, _RUN):
        values, part = x[first : first + _RUN], kind(0)
        for j in range(_RUN):
            part = kind(part + kind(values[j] <= most))
        total += part
    for j in range(whole, len(x)):
        total += x[j] <= most
    return total
