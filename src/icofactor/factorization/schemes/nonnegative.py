"""Non-negative factors B, C ≥ 0: PNNMF and SPNNMF, and the same objectives by coordinate descent,
CD-PNNMF, CD-SPNNMF.

An update by coordinate descent makes a few sweeps over the components of B, then of C. Each step of
a sweep is the exact minimiser of the objective in one column of B, or one row of C, given all else
(hierarchical alternating least squares). With a diagonal K the rows of B do not touch each other
and the minimiser is exact; otherwise K ⪯ diag(K·1) bounds the objective from above, and the step
never raises it. The products with L, which are most of an update's cost, are made once for all its
sweeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from icofactor.factorization.arrays import Array, T, namespace, positive, product, ratio
from icofactor.factorization.extrapolation import NESTEROV, Extrapolation
from icofactor.factorization.schemes.base import (
    CICHOCKI,
    LEE_SEUNG,
    AbsoluteScheme,
    NonNegativeScheme,
    Problem,
    SchemeText,
    Terms,
    balance_factor,
)

SWEEPS = 12
"""Sweeps over B and over C per update."""
_BY_SWEEPS: dict[str, Any] = {
    "updates": "by coordinate descent",
    "update_references": (
        "Cichocki A, Phan AH. Fast local algorithms for large scale nonnegative matrix and tensor factorizations. "
        "IEICE Transactions on Fundamentals E92-A(3), 708-721 (2009).",
    ),
}


class RidgeNMF(NonNegativeScheme):
    """min E + λ(‖B‖² + ‖C‖²) over B, C ≥ 0, with λ = 1/‖L‖."""

    name = "PNNMF"
    text = SchemeText(
        "non-negative matrix factorization with a ridge penalty",
        "‖X − WC‖² + λ(‖W‖² + ‖C‖²) subject to W, C ≥ 0",
        (LEE_SEUNG, CICHOCKI),
    )
    in_paper = True
    kernel = "ridge"
    penalty_degree = 1.0

    def paper_penalty(self, L_norm: float) -> float:
        return 1.0 / L_norm if L_norm > 0 else 0.0

    def update_B(self, p: Problem, B: Array, C: Array, t: Terms) -> Array:
        decrease = product(p.times_K(B), t.CC)
        if p.literal:
            return ratio(B * positive(t.LC - p.penalty * B), decrease)  # eq. 4
        return ratio(B * t.LC, decrease + p.penalty * p.weights * B)

    def update_C(self, p: Problem, B: Array, C: Array, G: Array) -> Array:
        if p.literal:
            return ratio(C * positive(p.project(B) - p.penalty * C), product(G, C))  # eq. 5
        return ratio(C * p.project(B), product(G, C) + p.penalty * C)

    def objective(self, p: Problem, B: Array, C: Array, E: Array) -> Array:
        return E + p.penalty * ((p.weights * B * B).sum(-1).sum(-1) + (C * C).sum(-1).sum(-1))

    def split_penalty(self, penalty: float) -> tuple[float, float]:
        return penalty, 0.0

    def balance(self, p: Problem, B: Array, C: Array) -> Array:
        size_C, size_B = (C * C).sum(-1)[..., None, :], (p.weights * B * B).sum(-2)[..., None, :]
        return balance_factor(namespace(B), size_C, size_B, 0.25)


class SparseNMF(NonNegativeScheme, AbsoluteScheme):
    """min ½E + λ(‖B‖₁ + ‖C‖₁) over B, C ≥ 0, with λ = ½."""

    name = "SPNNMF"
    text = SchemeText(
        "sparse non-negative matrix factorization",
        "½‖X − WC‖² + λ(‖W‖₁ + ‖C‖₁) subject to W, C ≥ 0",
        (LEE_SEUNG, CICHOCKI),
    )
    in_paper = True
    kernel = "sparse"

    def paper_penalty(self, L_norm: float) -> float:
        return 0.5

    def update_B(self, p: Problem, B: Array, C: Array, t: Terms) -> Array:
        decrease = product(p.times_K(B), t.CC)
        if p.literal:
            return ratio(B * positive(t.LC - p.penalty), decrease)  # eq. 6
        return ratio(B * t.LC, decrease + p.penalty * p.weights)

    def update_C(self, p: Problem, B: Array, C: Array, G: Array) -> Array:
        if p.literal:
            return ratio(C * positive(p.project(B) - p.penalty), product(G, C))  # eq. 7
        return ratio(C * p.project(B), product(G, C) + p.penalty)


def sweep(
    Z: Array,
    A: Array,
    R: Array,
    curvature: Array,
    ridge: Array | float,
    times_K: Callable[[Array], Array] | None,
) -> tuple[Array, Array]:
    """One sweep over the rows of Z (..., n_d, m) of min ½⟨Z, A Z K⟩ + ... ≥ 0; R is minus its
    gradient.

    `curvature` is what multiplies A_jj in the bound of row j: κ = K·1, or 1. Returns Z and R after
    the sweep.
    """
    Z, R = Z.copy(), R.copy()
    for j in range(Z.shape[-2]):
        row = Z[..., j : j + 1, :]
        bend = A[..., j : j + 1, j : j + 1] * curvature + ridge
        change = positive(row + ratio(R[..., j : j + 1, :], bend)) - row
        Z[..., j : j + 1, :] += change
        spread = change if times_K is None else T(times_K(T(change)))
        R -= A[..., :, j : j + 1] * spread
        R[..., j : j + 1, :] -= ridge * change
    return Z, R


class _CoordinateDescent:
    """The two updates by sweeps; stands before a scheme that has the objective."""

    in_paper = False
    sweeps = SWEEPS
    # no plateau at the start, and exact steps: momentum pays from the second update on
    extrapolations: Mapping[str, Extrapolation | None] = MappingProxyType({"": NESTEROV})
    plain_updates = 1

    def update_B(self, p: Problem, B: Array, C: Array, t: Terms) -> Array:
        ridge, lasso = self.split_penalty(p.penalty)  # type: ignore[attr-defined]
        weights, rows = T(p.weights), T(B)
        R = T(t.LC) - t.CC @ T(p.times_K(B)) - ridge * weights * rows - lasso * weights
        for _ in range(SWEEPS):
            rows, R = sweep(rows, t.CC, R, p.row_sums[None, :], ridge * weights, p.times_K)
        return T(rows)

    def update_C(self, p: Problem, B: Array, C: Array, G: Array) -> Array:
        ridge, lasso = self.split_penalty(p.penalty)  # type: ignore[attr-defined]
        R = p.project(B) - G @ C - ridge * C - lasso
        for _ in range(SWEEPS):
            C, R = sweep(C, G, R, 1.0, ridge, None)
        return C


class CoordinateRidge(_CoordinateDescent, RidgeNMF):
    """The objective of PNNMF by coordinate descent."""

    name = "CD-PNNMF"
    plateau, first_look = (
        False,
        50,
    )  # sooner, starts of few components would agree less (docs/defaults.md)
    text = replace(RidgeNMF.text, **_BY_SWEEPS)


class CoordinateSparse(_CoordinateDescent, SparseNMF):
    """The objective of SPNNMF by coordinate descent."""

    name = "CD-SPNNMF"
    text = replace(SparseNMF.text, **_BY_SWEEPS)
