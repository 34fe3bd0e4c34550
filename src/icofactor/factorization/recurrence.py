"""Which components of the best start other random starts on the same people reach.

A component that other starts of nearly the same objective do not reach is not determined by the
data. A component that they reach is an optimum for these people; other people may give another one.
"""

from __future__ import annotations

import numpy as np

from icofactor.factorization.matching import match_components

# Starts that end within this share of the best objective are as good as the best.
NEAR = 1e-3
# Correlation of maps from which a start counts as having reached a component.
SAME_MAP = 0.9
# Share of the other near-best starts from which a component counts as recurring.
ENOUGH = 0.5
# With fewer other good starts nothing can be said.
LEAST_STARTS = 3


def recurrence(
    bases: np.ndarray,
    objectives: np.ndarray,
    weights: np.ndarray,
) -> tuple[np.ndarray, int]:
    """Return the share of the other near-best starts that reach each component of the best one.

    Parameters
    ----------
    bases : (n_starts, n_k, n_d) basis on the faces where each start ended
    objectives : (n_starts,) where each ended; infinity where it diverged
    weights : (n_k,) number of sites in each face

    Returns
    -------
    share : (n_d,) NaN if fewer than `LEAST_STARTS` other starts are near the best
    n_near : how many are
    """
    best = int(np.argmin(objectives))
    limit = objectives[best] + NEAR * abs(objectives[best])
    near = np.flatnonzero(np.isfinite(objectives) & (objectives <= limit))
    near = near[near != best]
    n_components = bases.shape[2]
    if len(near) < LEAST_STARTS:
        return np.full(n_components, np.nan), len(near)
    n_reached = np.zeros(n_components)
    for start in near:
        match = match_components(bases[best].T, bases[start].T, weights)
        n_reached[match.a] += match.similarity >= SAME_MAP
    return n_reached / len(near), len(near)


def n_recurring(share: np.ndarray) -> int:
    """Return how many components at least half of the other near-best starts reach."""
    return int((share >= ENOUGH).sum())
