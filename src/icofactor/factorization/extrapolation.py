"""Extrapolation of the updates: plain, E- (Nesterov) and LE- (of the logarithms) (method.md §3).

An extrapolation sees two successive plain updates y^t and y^{t−1} and a weight, and knows no
scheme. A new one is
one function and one line in `EXTRAPOLATIONS`; a scheme lists those it can be used with
(`Scheme.extrapolations`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from icofactor.factorization.arrays import Array, namespace, once, positive

TAU_START = (1 + math.sqrt(5)) / 2
PLAIN_UPDATES = 10
"""Updates at the start of a run that are never extrapolated."""
HONNORAT = (
    "Honnorat N, Davatzikos C. Sparse Hierarchical Extrapolated Parametric Methods for Cortical Data Analysis. "
    "Technical report, Center for Biomedical Image Computing and Analytics, University of Pennsylvania."
)
FISTA = (
    "Beck A, Teboulle M. A fast iterative shrinkage-thresholding algorithm for linear inverse problems. SIAM Journal "
    "on Imaging Sciences 2(1), 183-202 (2009)."
)


@dataclass(frozen=True)
class Extrapolation:
    """A formula that extrapolates plain updates, and what others need to know of it.

    Attributes
    ----------
    formula : (y, y_before, weight, signed) → the extrapolated y
    signed : whether it can be used where values may be negative
    text : how the methods paragraph continues after "updates"
    references : cited there
    kernel : number of the same formula in `engines.kernels`; None: it has none
    """

    formula: Callable[[Array, Array, Array, bool], Array]
    signed: bool
    text: str
    references: tuple[str, ...]
    kernel: int | None = None

    def __call__(self, y: Array, y_before: Array, weight: Array, signed: bool) -> Array:
        return once(
            self.formula(y, y_before, weight, signed)
        )  # powers are dear, and balance looks at them too


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


NESTEROV = Extrapolation(nesterov, True, "with Nesterov extrapolation", (FISTA,), kernel=1)
LOGARITHMIC = Extrapolation(
    logarithmic, False, "with extrapolation of the logarithms", (HONNORAT,), kernel=2
)
EXTRAPOLATIONS: dict[str, Extrapolation | None] = {"": None, "E-": NESTEROV, "LE-": LOGARITHMIC}
"""Prefix of the method's name → the extrapolation."""


def momentum(tau: Array) -> Array:
    """w = (τ − 1)/(τ + 1)."""
    return (tau - 1) / (tau + 1)


def next_tau(tau: Array) -> Array:
    """τ ← (1 + √(1 + 4τ²))/2."""
    return (1 + (1 + 4 * tau * tau) ** 0.5) / 2
