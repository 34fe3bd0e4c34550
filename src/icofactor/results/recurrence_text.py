"""Sentences about the components that other random starts on the same people reach."""

from __future__ import annotations

import numpy as np

from icofactor.factorization.recurrence import LEAST_STARTS, NEAR, n_recurring


def in_one_line(share: np.ndarray, n_near: int) -> str:
    """How many components the other starts reach, as text.

    Examples
    --------
    >>> print(in_one_line(np.array([1.0, 0.8, 0.2]), 5))
    2 of 3 components were reached by at least half of the 5 other random starts on the same people
    that fit as well \
(within 0.1 %). This says nothing about other people.
    """
    if np.isnan(share).any():
        others = f"only {n_near}" if n_near else "none"
        return (
            "Whether other random starts on the same people reach the components cannot be judged: it takes at least "
            f"{LEAST_STARTS} other starts that fit as well as the best (within {100 * NEAR:g} %), and there "
            f"{'is' if n_near == 1 else 'are'} {others}. Use more starts, or fewer components."
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
    """How many components the other starts do not reach, as a sentence; "" if there are none or it
    is not known.
    """
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
    """What a reader should know where most components are not reached, and what helps; None
    elsewhere.
    """
    if np.isnan(share).any() or 2 * n_recurring(share) >= len(share):
        return None
    n, one = n_recurring(share), len(share) == 1
    reached = (
        "it was not"
        if one
        else f"only {n} of {len(share)} {'was' if n == 1 else 'were'}"
        if n
        else "none was"
    )
    advice = ["use fewer components, "] * (not one) + ["use the method 'parts', "] * (not of_parts)
    helps = "".join(
        [*advice, "or " * bool(advice), "choose the number of components with icofactor select."]
    )
    return (
        f"{'The component is' if one else 'Most components are'} not determined by these data: {reached} reached by "
        f"{_half_of_the_others(n_near)}. Another seed may give {'another' if one else 'others'}. "
        f"{helps[0].upper()}{helps[1:]}"
    )


def _half_of_the_others(n_near: int) -> str:
    return f"at least half of the {n_near} other random starts on the same people that fit as well"
