"""Extrapolation of the updates: plain, E- (Nesterov) and LE- (of the logarithms).

An extrapolation sees two successive plain updates y^t and y^{t−1} and a weight, and knows no
scheme. A new one is one function and one line in `EXTRAPOLATIONS`; a scheme lists those it can be
used with (`Scheme.extrapolations`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from icofactor.factorization.arrays import Array, namespace, once, positive

# Where τ starts: its first value after 1.
TAU_START = (1 + math.sqrt(5)) / 2
# Updates at the start of a run that are never extrapolated.
PLAIN_UPDATES = 10
HONNORAT = (
    "Honnorat N, Davatzikos C. Sparse Hierarchical Extrapolated Parametric Methods for Cortical "
    "Data Analysis. Technical report, Center for Biomedical Image Computing and Analytics, "
    "University of Pennsylvania."
)
FISTA = (
    "Beck A, Teboulle M. A fast iterative shrinkage-thresholding algorithm for linear inverse "
    "problems. SIAM Journal on Imaging Sciences 2(1), 183-202 (2009)."
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

    def __call__(
        self,
        y: Array,
        y_before: Array,
        weight: Array,
        signed: bool,
    ) -> Array:
        # Powers are slow, and the balance reads the same values again.
        return once(self.formula(y, y_before, weight, signed))


def nesterov(
    y: Array,
    y_before: Array,
    weight: Array,
    signed: bool,
) -> Array:
    """Return y + w (y − y_before), and its positive part for non-negative schemes (eq. 10)."""
    extended = y + weight * (y - y_before)
    return extended if signed else positive(extended)


def logarithmic(
    y: Array,
    y_before: Array,
    weight: Array,
    signed: bool,
) -> Array:
    """Return y ⊙ clip((y ⊘ y_before)^w, 0.1, 10); the factor is 1 where y_before is 0 (eq. 11)."""
    xp = namespace(y)
    positive_before = y_before > 0
    divisor = xp.where(positive_before, y_before, 1.0)
    growth = xp.where(positive_before, y / divisor, 1.0)
    factor = xp.clip(growth**weight, 0.1, 10.0)
    return y * factor


NESTEROV = Extrapolation(nesterov, True, "with Nesterov extrapolation", (FISTA,), kernel=1)
LOGARITHMIC = Extrapolation(
    logarithmic,
    False,
    "with extrapolation of the logarithms",
    (HONNORAT,),
    kernel=2,
)
# Prefix of the method's name → the extrapolation.
EXTRAPOLATIONS: Mapping[str, Extrapolation | None] = MappingProxyType(
    {"": None, "E-": NESTEROV, "LE-": LOGARITHMIC}
)


def momentum(tau: Array) -> Array:
    """Return w = (τ − 1)/(τ + 1)."""
    return (tau - 1) / (tau + 1)


def next_tau(tau: Array) -> Array:
    """Return (1 + √(1 + 4τ²))/2, the τ after this one."""
    return (1 + (1 + 4 * tau * tau) ** 0.5) / 2
