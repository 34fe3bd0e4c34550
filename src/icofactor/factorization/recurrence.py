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
ENOUGH = 0.5
"""Share of the other near-best starts from which a component counts as recurring."""
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
    near = np.flatnonzero(np.isfinite(objectives) & (objectives <= objectives[best] + NEAR * abs(objectives[best])))
    near = near[near != best]
    n_d = bases.shape[2]
    if len(near) < LEAST_STARTS:
        return np.full(n_d, np.nan), len(near)
    found = np.zeros(n_d)
    for start in near:
        match = match_components(bases[best].T, bases[start].T, weights)
        found[match.a] += match.similarity >= FOUND_AGAIN
    return found / len(near), len(near)


def n_recurring(share: np.ndarray) -> int:
    """How many components at least half of the other near-best starts find again."""
    return int((share >= ENOUGH).sum())


def in_one_line(share: np.ndarray, n_near: int) -> str:
    """What a fit says of itself, as one sentence.

    Examples
    --------
    >>> print(in_one_line(np.array([1.0, 0.8, 0.2]), 5))
    2 of 3 components are found again by at least half of the 5 other starts that fit as well (within 0.1 %).
    """
    if np.isnan(share).any():
        others = f"only {n_near}" if n_near else "none"
        return (
            f"Whether the components recur cannot be judged: it takes at least {LEAST_STARTS} other starts that fit as "
            f"well as the best (within {100 * NEAR:g} %), and there {'is' if n_near == 1 else 'are'} {others}. Use "
            "more starts, or fewer components."
        )
    n = n_recurring(share)
    which = f"{n} of {len(share)} components are" if len(share) > 1 else f"The component is{'' if n else ' not'}"
    return (
        f"{which} found again by at least half of the {n_near} other starts that fit as well (within {100 * NEAR:g} %)."
    )


def warning(share: np.ndarray, n_near: int, of_parts: bool) -> str | None:
    """What a reader should know where most components are not found again, and what helps; None elsewhere."""
    if np.isnan(share).any() or 2 * n_recurring(share) >= len(share):
        return None
    n, one = n_recurring(share), len(share) == 1
    found = "it is not" if one else f"only {n} of {len(share)} are" if n else f"none of the {len(share)} is"
    advice = ["use fewer components, "] * (not one) + ["use the method 'parts', "] * (not of_parts)
    helps = "".join([*advice, "or " * bool(advice), "choose the number of components with icofactor select."])
    return (
        f"{'The component is' if one else 'Most components are'} not determined by these data: {found} found again by "
        f"at least half of the {n_near} other starts that fit as well. Findings about such components may not "
        f"replicate. {helps[0].upper()}{helps[1:]}"
    )
