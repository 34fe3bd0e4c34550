"""The million updates of the paper on one GPU: 1000 starts × 1000 updates of each of the eleven methods.

    python -m benchmarks gpu

20 columns, 10 components, 100 people, float64. "ms per 10⁶ updates" comes from runs of different length: it has the
updates and the copies of their objectives, but not the drawing of the starts. "ms of the call" is the time of
everything. "difference" is the largest relative difference of the objectives from those of NumPy on the processor, over
all updates of some starts.
It needs numpy, scipy, scikit-learn and jax alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import icofactor as ico
from benchmarks.data import smooth_maps
from benchmarks.measure import Row, elapsed, show

N_COMPONENTS = 10
# Starts that are compared with NumPy.
N_COMPARED = 32
# How many times as many updates the long runs make.
LONGER = 4


def run(quick: bool) -> list[Row]:
    """Time every method under both rules."""
    import jax

    n_starts = 10 if quick else 1000
    n_updates = 20 if quick else 1000
    sites = ico.Sites.icosphere(4, on="faces")
    maps = smooth_maps(sites.coordinates, 100)
    stats = ico.Statistics.from_data(maps.T, ico.Design(sites))
    rows = []
    for rules in ("paper",) if quick else ("paper", "default"):
        for method in ico.PAPER_METHODS[: 1 if quick else None]:
            row = {"device": jax.devices()[0].device_kind, "rules": rules, "method": method}
            rows.append(show({**row, **measures(stats, method, rules, n_starts, n_updates)}))
    return rows


def shortest(work: Callable[[], object], repeats: int = 7) -> float:
    """Return the shortest time of several calls after the first: what the host does besides only adds to it."""
    work()
    return min(elapsed(work) for _ in range(repeats))


def measures(
    stats: ico.Statistics, method: str, rules: str, n_starts: int, n_updates: int
) -> dict[str, float]:
    """Time one method, and compare its objectives with those of NumPy."""

    def starts(n_iter: int, number: int = n_starts, engine: str = "jax") -> ico.Multistart:
        options: dict[str, Any] = {"rules": rules, "engine": engine, "random_state": 0}
        return ico.multistart(
            stats, method, N_COMPONENTS, n_starts=number, n_iter=n_iter, **options
        )

    first = elapsed(lambda: starts(n_updates))
    short = shortest(lambda: starts(n_updates))
    long = shortest(lambda: starts(LONGER * n_updates))
    n_more = n_starts * n_updates * (LONGER - 1)
    n_compared = min(N_COMPARED, n_starts)
    expected = starts(n_updates, n_compared, "numpy").objectives
    objectives = starts(n_updates).objectives[:n_compared]
    finite = np.isfinite(expected)
    difference = np.abs(objectives[finite] / expected[finite] - 1)
    return {
        "ms per 10⁶ updates": 1e3 * 1e6 * (long - short) / n_more,
        "ms of the call": 1e3 * short,
        "s of the first call": first,
        "difference": float(difference.max()),
    }
