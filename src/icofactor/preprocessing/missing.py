"""Vertices of the cortex without data: finding a few, and filling them from their neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import ArgumentError
from icofactor.preprocessing.reho import ring_incidence
from icofactor.preprocessing.temporal import Bools

MAX_MISSING = 0.01
"""Share of the cortex that may be filled: a few dead vertices where the signal is lost, not a whole region."""
_ROWS = 1024


def still_vertices(series: NDArray[Any]) -> Bools:
    """(n_vertices,) where a series is one constant, or NaN throughout."""
    still = np.zeros(len(series), dtype=bool)
    for first in range(0, len(series), _ROWS):
        block = series[first : first + _ROWS]
        # NaN among numbers equals nothing, so it is not still: the steps that follow refuse it
        still[first : first + len(block)] = (block == block[:, :1]).all(axis=1) | np.isnan(block).all(axis=1)
    return still


def check_missing(missing: Bools, cortex: Bools, side: str, what: str, most: float = MAX_MISSING) -> None:
    """Refuse when more than the share `most` of a hemisphere's cortex is missing.

    Parameters
    ----------
    missing : (n_vertices,) bool, within the cortex.
    what : what these vertices are, e.g. "are constant".
    """
    found, whole = int(missing.sum()), int(cortex.sum())
    if found > most * whole:
        first = int(np.flatnonzero(missing)[0])
        raise ArgumentError(
            "max_missing",
            None,
            f"Too much is missing: {found} of {whole} vertices of the {side} cortex {what}, the first is {first}; "
            f"up to {100 * most:g} % ({{max_missing}}) are filled from their neighbours",
        )


def fill_from_neighbours(values: NDArray[Any], missing: Bools, cortex: Bools, faces: ArrayLike) -> NDArray[Any]:
    """A map (n_vertices,) with the missing vertices set to the mean of their neighbours in the cortex, rim first."""
    if not missing.any():
        return values
    around = ring_incidence(faces, len(values), 1)
    filled, have, waiting = np.where(missing, 0.0, values), cortex & ~missing, missing.copy()
    while waiting.any():
        n_neighbours = around @ have.astype(np.float64)
        total = around @ np.where(have, filled, 0.0)
        now = waiting & (n_neighbours > 0)
        if not now.any():
            raise ValueError(f"vertex {int(np.flatnonzero(waiting)[0])} and all around it have no data")
        filled[now] = total[now] / n_neighbours[now]
        have, waiting = have | now, waiting & ~now
    return filled
