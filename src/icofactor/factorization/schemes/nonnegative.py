"""Non-negative factors B, C ≥ 0: PNNMF and SPNNMF by multiplicative updates, and the same
objectives by coordinate descent, CD-PNNMF and CD-SPNNMF.

An update by coordinate descent makes a few sweeps over the components of B, then of C. Each step of
a sweep is the exact minimiser of the objective in one column of B, or one row of C, given all else
(hierarchical alternating least squares). With a diagonal K the rows of B do not touch each other
and the minimiser is exact; otherwise K ⪯ diag(K·1) bounds the objective from above, and the step
never raises it. The products with L, which are most of an update's cost, are made once for all its
sweeps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from icofactor.factorization.arrays import Array, T, positive, product, ratio
from icofactor.factorization.extrapolation import EXTRAPOLATIONS, NESTEROV
from icofactor.factorization.schemes.base import (
    Factors,
    PenalisedScheme,
    Problem,
    SchemeText,
    Terms,
    scaled_and_balanced,
)

_LEE_SEUNG = (
    "Lee DD, Seung HS. Algorithms for non-negative matrix factorization. "
    "Advances in Neural Information Processing Systems 13, 556-562 (2000)."
)
_CICHOCKI = (
    "Cichocki A, Zdunek R, Phan AH, Amari S. Nonnegative Matrix and Tensor Factorizations: "
    "Applications to Exploratory Multi-way Data Analysis and Blind Source Separation. Wiley (2009)."
)
_CICHOCKI_PHAN = (
    "Cichocki A, Phan AH. Fast local algorithms for large scale nonnegative matrix and tensor "
    "factorizations. IEICE Transactions on Fundamentals E92-A(3), 708-721 (2009)."
)


class NonNegativeScheme(PenalisedScheme):
    """A scheme with free factors B, C ≥ 0: its starts, and its multiplicative updates.

    To write besides the penalty's own attributes: `penalty_slope`.
    """

    in_paper = True
    extrapolations = EXTRAPOLATIONS

    @abstractmethod
    def penalty_slope(self, p: Problem, X: Array, weights: Array | float) -> Array:
        """Return what the penalty adds to the gradient by a factor X with these weights."""

    def draw(self, p: Problem, n_components: int, rng: np.random.Generator) -> Factors:
        """Draw C = 1/n_d, and each column of B as the mean of five subjects' columns of Lᵀ."""
        n_subjects = len(p.L)
        # The mean of five of five subjects is always the same, and all columns of B would be alike.
        limit = n_subjects - 1 if p.literal else n_subjects // 2
        n_averaged = max(1, min(5, limit))
        subjects = [rng.choice(n_subjects, n_averaged, replace=False) for _ in range(n_components)]
        maps = p.L[np.stack(subjects)]
        B = maps.mean(axis=1).T
        if not p.literal:
            B = ratio(B, p.row_sums[:, None])
        C = np.full((n_components, n_subjects), 1.0 / n_components)
        return B, C

    def settle(self, p: Problem, B: Array, C: Array) -> Factors:
        """Return the factors at their best scale, balanced; under paper rules as drawn."""
        return (B, C) if p.literal else scaled_and_balanced(self, p, B, C)

    def update_B(self, p: Problem, B: Array, C: Array, t: Terms) -> Array:
        down = product(p.times_K(B), t.CC)
        slope = self.penalty_slope(p, B, p.weights)
        return multiplied(p, B, t.LC, down, slope)

    def update_C(self, p: Problem, B: Array, C: Array, G: Array) -> Array:
        down = product(G, C)
        slope = self.penalty_slope(p, C, 1.0)
        return multiplied(p, C, p.project(B), down, slope)


def multiplied(
    p: Problem,
    X: Array,
    up: Array,
    down: Array,
    slope: Array,
) -> Array:
    """Return the multiplicative update of a factor whose gradient is down − up + slope."""
    if p.literal:
        return ratio(X * positive(up - slope), down)  # eq. 4 to 7
    return ratio(X * up, down + slope)


class RidgeNMF(NonNegativeScheme):
    """min E + λ(‖B‖² + ‖C‖²) over B, C ≥ 0, with λ = 1/‖L‖."""

    name = "PNNMF"
    text = SchemeText(
        "non-negative matrix factorization with a ridge penalty",
        "‖X − WC‖² + λ(‖W‖² + ‖C‖²) subject to W, C ≥ 0",
        (_LEE_SEUNG, _CICHOCKI),
    )
    kernel = "ridge"
    penalty_degree = 1.0
    error_share = 1.0
    balance_power = 0.25

    def paper_penalty(self, L_norm: float) -> float:
        return 1.0 / L_norm if L_norm > 0 else 0.0

    def penalty_slope(self, p: Problem, X: Array, weights: Array | float) -> Array:
        return p.penalty * weights * X

    def magnitudes(self, p: Problem, B: Array, C: Array) -> Factors:
        return p.weights * B * B, C * C

    def split_penalty(self, penalty: float) -> tuple[float, float]:
        return penalty, 0.0


class SparseNMF(NonNegativeScheme):
    """min ½E + λ(‖B‖₁ + ‖C‖₁) over B, C ≥ 0, with λ = ½."""

    name = "SPNNMF"
    text = SchemeText(
        "sparse non-negative matrix factorization",
        "½‖X − WC‖² + λ(‖W‖₁ + ‖C‖₁) subject to W, C ≥ 0",
        (_LEE_SEUNG, _CICHOCKI),
    )
    kernel = "sparse"

    def paper_penalty(self, L_norm: float) -> float:
        return 0.5

    def penalty_slope(self, p: Problem, X: Array, weights: Array | float) -> Array:
        return p.penalty * weights


class CoordinateDescent(NonNegativeScheme):
    """Updates by sweeps; stands before a scheme that has the penalty."""

    in_paper = False
    sweeps = 12
    # Steps are exact and starts lie on no plateau: momentum pays from the second update on.
    extrapolations = MappingProxyType({"": NESTEROV})
    plain_updates = 1

    def update_B(self, p: Problem, B: Array, C: Array, t: Terms) -> Array:
        ridge, lasso = self.split_penalty(p.penalty)
        weights = T(p.weights)
        rows = T(B)
        descent = T(t.LC) - t.CC @ T(p.times_K(B))
        descent = descent - ridge * weights * rows - lasso * weights
        for _ in range(self.sweeps):
            rows, descent = sweep(
                rows,
                t.CC,
                descent,
                p.row_sums[None, :],
                ridge * weights,
                p.times_K,
            )
        return T(rows)

    def update_C(self, p: Problem, B: Array, C: Array, G: Array) -> Array:
        ridge, lasso = self.split_penalty(p.penalty)
        descent = p.project(B) - G @ C - ridge * C - lasso
        for _ in range(self.sweeps):
            C, descent = sweep(C, G, descent, 1.0, ridge)
        return C


def sweep(
    Z: Array,
    A: Array,
    descent: Array,
    row_sums: Array | float,
    ridge: Array | float,
    times_K: Callable[[Array], Array] = lambda column: column,
) -> tuple[Array, Array]:
    """Make one sweep over the rows of Z (..., n_d, m) of min ½⟨Z, A Z K⟩ + ... over Z ≥ 0.

    Parameters
    ----------
    descent : minus the gradient at Z
    row_sums : κ = K·1, which times A_jj bounds the curvature of row j
    times_K : multiplies a column by K; the default is K = 1

    Returns
    -------
    Z and minus its gradient after the sweep
    """
    Z = Z.copy()
    descent = descent.copy()
    for j in range(Z.shape[-2]):
        row = np.s_[..., j : j + 1, :]
        column = np.s_[..., :, j : j + 1]
        curvature = A[row][column] * row_sums + ridge
        best = positive(Z[row] + ratio(descent[row], curvature))
        change = best - Z[row]
        Z[row] += change
        descent -= A[column] * T(times_K(T(change)))
        descent[row] -= ridge * change
    return Z, descent


_BY_SWEEPS: dict[str, Any] = {
    "updates": "by coordinate descent",
    "update_references": (_CICHOCKI_PHAN,),
}


class CoordinateRidge(CoordinateDescent, RidgeNMF):
    """The objective of PNNMF by coordinate descent."""

    name = "CD-PNNMF"
    plateau = False
    # If runs ended sooner, starts of few components would agree less (docs/defaults.md).
    first_look = 50
    text = replace(RidgeNMF.text, **_BY_SWEEPS)


class CoordinateSparse(CoordinateDescent, SparseNMF):
    """The objective of SPNNMF by coordinate descent."""

    name = "CD-SPNNMF"
    text = replace(SparseNMF.text, **_BY_SWEEPS)
