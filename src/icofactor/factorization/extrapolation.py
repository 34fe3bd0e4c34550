"""Extrapolation of the updates: plain, E- (Nesterov) and LE- (of the logarithms) (method.md §3).

An extrapolation sees two successive plain updates y^t and y^{t−1} and a weight, and knows no scheme. A new one is
one function and one line in `EXTRAPOLATIONS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from icofactor.factorization.arrays import Array, namespace, positive

TAU_START = (1 + math.sqrt(5)) / 2
PLAIN_UPDATES = 10
"""Updates at the start of a run that are never extrapolated."""
Extrapolation = Callable[[Array, Array, Array, bool], Array]


def nesterov(y: Array, y_before: Array, weight: Array, signed: bool) -> Array:
    """y + w (y − y_before), and its positive part for non-negative schemes (eq. 10)."""
    extended = y + weight * (y - y_before)
    return extended if signed else positive(extended)


def logarithmic(y: Array, y_before: Array, weight: Array, signed: bool) -> Array:
    """y ⊙ clip((y ⊘ y_before)^w, 0.1, 10); the factor is 1 where y_before is 0 (eq. 11)."""
    xp = namespace(y)
    known = y_before > 0
    growth = xp.where(known, y / xp.where(known, y_before, 1.0), 1.0)
    return y * xp.clip(growth**weight, 0.1, 10.0)


EXTRAPOLATIONS: dict[str, Extrapolation | None] = {"": None, "E-": nesterov, "LE-": logarithmic}


def momentum(tau: Array) -> Array:
    """w = (τ − 1)/(τ + 1)."""
    return (tau - 1) / (tau + 1)


def next_tau(tau: Array) -> Array:
    """τ ← (1 + √(1 + 4τ²))/2."""
    return (1 + (1 + 4 * tau * tau) ** 0.5) / 2
