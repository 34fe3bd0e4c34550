"""PPNMF: the loadings are the projection of the data on the basis, C = BᵀLᵀ; only B is free.

With C = BᵀLᵀ the shared products are those of the formula: LᵀCᵀ = MB and CCᵀ = BᵀMB, with M = LᵀL
never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from icofactor.factorization.arrays import (
    Array,
    T,
    dot,
    namespace,
    product,
    ratio,
)
from icofactor.factorization.extrapolation import EXTRAPOLATIONS
from icofactor.factorization.quadratic import Quadratic
from icofactor.factorization.schemes.base import (
    Factors,
    Problem,
    Scheme,
    SchemeText,
    Terms,
    best_scale,
    quotient,
)

YANG_OJA = (
    "Yang Z, Oja E. Linear and nonlinear projective nonnegative matrix factorization. "
    "IEEE Transactions on Neural Networks 21(5), 734-749 (2010)."
)
# Lengths of a step that the line search tries, besides 0.
STEPS = tuple(2.0 ** (-i / 2) for i in range(24))
# A factor u > 1 of eq. 8 never raises the objective while (1 + u + u² + u³)/4 ≤ r. That holds for
# u = ½ + r/2 up to this factor, and for u = r^⅓ always.
_SAFE_FACTOR = float(np.sqrt(6.0) - 1.0)


class ProjectiveNMF(Scheme):
    """min ‖X − DBBᵀDᵀX‖² over B ≥ 0."""

    name = "PPNMF"
    text = SchemeText(
        "projective non-negative matrix factorization",
        "‖X − WWᵀX‖² subject to W ≥ 0",
        (YANG_OJA,),
    )
    projective = True
    penalised = False
    scaled = False
    in_paper = True
    lift_sweeps = 60
    extrapolations = EXTRAPOLATIONS
    kernel = "projective"
    centers = ("none", "mean", "zscore")

    def kernel_for(self, p: Problem) -> str | None:
        return "descent" if p.signed else self.kernel

    def paper_penalty(self, L_norm: float) -> float:
        return 0.0

    def draw(self, p: Problem, n_components: int, rng: np.random.Generator) -> Factors:
        n_columns = p.L.shape[1]
        B = abs(rng.standard_normal((n_columns, n_components)))
        if p.L_norm > 0:
            B = B / p.L_norm
        return B, B.T @ p.L.T

    def settle(self, p: Problem, B: Array, C: Array) -> Factors:
        """Return B at its best scale, s² = tr(BᵀMB) / tr(BᵀKB·BᵀMB); under paper rules as drawn."""
        C = p.project(B)
        if p.literal:
            return B, C
        s = np.sqrt(best_scale(p, B, C))
        return B * s, C * s

    def update_B(self, p: Problem, B: Array, C: Array, t: Terms) -> Array:
        # Multiplicative updates need M ≥ 0.
        return descend(p, B, C, t) if p.signed else multiply(p, B, t)

    def update_C(self, p: Problem, B: Array, C: Array, G: Array) -> Array:
        return p.project(B)

    def objective(self, p: Problem, B: Array, C: Array, E: Array) -> Array:
        return E

    def site_problem(
        self,
        C: np.ndarray,
        G: np.ndarray | None,
        penalty: float,
        site_weight: float,
    ) -> Quadratic:
        """Return the problem whose solution is stationary: S W(2I − G) = W A.

        A, G and C are those of the coarse solution.
        """
        assert G is not None
        linear = (2 * np.eye(len(C)) - G) @ C
        return Quadratic(C @ C.T, linear, lasso=0.0, signed=False)


def multiply(p: Problem, B: Array, t: Terms) -> Array:
    """Return B ⊙ (½ + r/2) with r = 2MB ⊘ [KB (BᵀMB) + MB (BᵀKB)] (eq. 8).

    Default rules limit the factor to max(√6 − 1, r^⅓), so that it never raises the objective.
    """
    xp = namespace(B)
    down = product(p.times_K(B), t.CC) + product(t.LC, t.G)
    r = ratio(2 * t.LC, down)
    factor = 0.5 + r / 2
    if not p.literal:
        limit = xp.clip(r ** (1 / 3), _SAFE_FACTOR, None)
        factor = xp.minimum(factor, limit)
    return B * factor


def descend(p: Problem, B: Array, C: Array, t: Terms) -> Array:
    """Return B + s([B − ½∇ ⊘ d]₊ − B), a projected gradient step of eq. 9 with the best s ≥ 0.

    ½∇ = −2MB + KB(BᵀMB) + MB(BᵀKB). d_kj = (K1)_k (BᵀMB)_jj is the curvature that remains near the
    solution, where the terms in M cancel or are concave. M may have entries of any sign. Along the
    step eq. 9 is a polynomial of degree four, known from products of the factors; so the search
    costs one projection of the step, and the step never raises eq. 9.
    """
    xp = namespace(B)
    KB = p.times_K(B)
    identity = xp.eye(t.G.shape[-1], dtype=t.G.dtype)
    gradient = product(KB, t.CC) + product(t.LC, t.G - 2 * identity)
    diagonal = xp.einsum("...jj->...j", t.CC)
    of_faces = quotient(1.0, p.row_sums)[:, None]
    of_components = quotient(1.0, diagonal)[..., None, :]
    target = B - gradient * of_faces * of_components
    step = xp.clip(target, 0.0, None) - B
    C_step = p.project(step)
    A_1 = plus_transpose(product(C, T(C_step)))
    A_2 = product(C_step, T(C_step))
    G_1 = plus_transpose(product(T(KB), step))
    G_2 = product(T(step), p.times_K(step))
    A = (t.CC, A_1, A_2)
    G = (t.G, G_1, G_2)
    length = length_of_least_error(xp, A, G)
    return B + length[..., None, None] * step


def plus_transpose(x: Array) -> Array:
    """Return x + xᵀ."""
    return x + T(x)


def length_of_least_error(
    xp: Any,
    A: Sequence[Array],
    G: Sequence[Array],
) -> Array:
    """Return the s among `STEPS` and 0 at which −2 tr A(s) + ⟨G(s), A(s)⟩ is least.

    A(s) = A₀ + A₁s + A₂s², and G(s) alike.
    """
    trace = lambda x: xp.einsum("...jj->...", x)
    # Coefficients of s to the powers 1 to 4; that of the power 0 is the error without a step.
    coefficients = []
    for power in (1, 2, 3, 4):
        pairs = [(i, power - i) for i in (2, 1, 0) if 0 <= power - i <= 2]
        coefficients.append(sum(dot(G[i], A[j]) for i, j in pairs))
    coefficients[0] = coefficients[0] - 2 * trace(A[1])
    coefficients[1] = coefficients[1] - 2 * trace(A[2])
    s = xp.asarray(STEPS, dtype=coefficients[0].dtype)
    # Horner's rule.
    error = xp.zeros_like(s)
    for coefficient in reversed(coefficients):
        error = s * (coefficient[..., None] + error)
    best = s[xp.argmin(error, -1)]
    return xp.where(xp.min(error, -1) < 0, best, 0.0)
