"""How far the starts agree: which components of the best start are found again by the other good ones (method.md §10).

A component that other starts of nearly the same objective do not find is not determined by the data.
"""

from __future__ import annotations

import numpy as np

from icofactor.factorization.matching import match_components

NEAR = 1e-3
"""Starts that end within this share of the best objective are as good as the best."""
FOUND_AGAIN = 0.9
"""Correlation of maps from which a component counts as found again."""
LEAST_STARTS = 3
"""With fewer other good starts nothing can be said."""


def recurrence(bases: np.ndarray, objectives: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, int]:
    """Per component of the best start, the share of the other near-best starts in which it is found again.

    Parameters
    ----------
    bases : (n_starts, n_k, n_d) basis on the faces where each start ended
    objectives : (n_starts,) where each ended; infinity where it diverged
    weights : (n_k,) number of sites in each face

    Returns
    -------
    share : (n_d,) NaN where fewer than `LEAST_STARTS` other starts are near the best
    n_near : how many are
    """
    best = int(np.argmin(objectives))
    near = np.flatnonzero(objectives - objectives[best] <= NEAR * abs(objectives[best]))
    near = near[near != best]
    n_d = bases.shape[2]
    if len(near) < LEAST_STARTS:
        return np.full(n_d, np.nan), len(near)
    found = np.zeros(n_d)
    for start in near:
        match = match_components(bases[best].T, bases[start].T, weights)
        found[match.a] += match.similarity >= FOUND_AGAIN
    return found / len(near), len(near)


def in_one_line(share: np.ndarray, n_near: int) -> str:
    """What a fit says of itself: "8 of 10 components are found again by most of the 9 other good starts"."""
    if n_near < LEAST_STARTS or np.isnan(share).any():
        return (
            f"Whether components recur cannot be judged: only {n_near} other start{'s' * (n_near != 1)} came within "
            f"{100 * NEAR:g} % of the best; raise the number of starts"
        )
    n = int((share >= 0.5).sum())
    return f"{n} of {len(share)} components are found again by at least half of the {n_near} other near-best starts"
