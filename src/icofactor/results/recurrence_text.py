"""Sentences about the components that other random starts on the same people reach."""

from __future__ import annotations

import numpy as np

from icofactor.factorization.recurrence import LEAST_STARTS, NEAR, n_recurring


def in_one_line(share: np.ndarray, n_near: int) -> str:
    """Return how many components the other starts reach, as text.

    Examples
    --------
    >>> in_one_line(np.array([1.0, 0.8, 0.2]), 5)[:55]
    '2 of 3 components were reached by at least half of the '
    """
    if np.isnan(share).any():
        number = f"only {n_near}" if n_near else "none"
        verb = "is" if n_near == 1 else "are"
        return (
            "Whether other random starts on the same people reach the components cannot be judged: "
            f"it takes at least {LEAST_STARTS} other starts that fit as well as the best (within "
            f"{100 * NEAR:g} %), and there {verb} {number}. Use more starts, or fewer components."
        )
    n = n_recurring(share)
    which = (
        f"{n} of {len(share)} components were"
        if len(share) > 1
        else f"The component was{'' if n else ' not'}"
    )
    limit = " This says nothing about other people." if n else ""
    return f"{which} reached by {_half_of_the_others(n_near)} (within {100 * NEAR:g} %).{limit}"


def undetermined(share: np.ndarray) -> str:
    """Say how many components the other starts do not reach; "" if none, or if unknown."""
    k = len(share)
    n = k - n_recurring(share)
    if np.isnan(share).any() or n == 0:
        return ""
    if k == 1:
        return "The component is not determined by these data."
    if n == k:
        return f"None of the {k} components is determined by these data."
    return f"{n} of {k} components {'is' if n == 1 else 'are'} not determined by these data."


def warning(share: np.ndarray, n_near: int, of_parts: bool) -> str | None:
    """Return a warning if most components are not reached, and what helps; None otherwise."""
    if np.isnan(share).any() or 2 * n_recurring(share) >= len(share):
        return None
    half = _half_of_the_others(n_near)
    n = n_recurring(share)
    # A single component needs other words than several, and no advice to use fewer.
    if len(share) == 1:
        subject = "The component is"
        reached = "it was not"
        result = "another"
        advice = []
    else:
        subject = "Most components are"
        result = "others"
        advice = ["use fewer components, "]
        verb = "was" if n == 1 else "were"
        reached = f"only {n} of {len(share)} {verb}" if n else "none was"
    # The method may be "parts" already.
    if not of_parts:
        advice.append("use the method 'parts', ")
    if advice:
        advice.append("or ")
    advice.append("choose the number of components with icofactor select.")
    sentence = "".join(advice)
    return (
        f"{subject} not determined by these data: {reached} reached by {half}. Another seed may "
        f"give {result}. {sentence[0].upper()}{sentence[1:]}"
    )


def _half_of_the_others(n_near: int) -> str:
    return f"at least half of the {n_near} other random starts on the same people that fit as well"
