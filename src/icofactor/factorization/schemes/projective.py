"""PPNMF: the loadings are the projection of the data on the basis, C = BᵀLᵀ; only B is free.

With C = BᵀLᵀ the shared products are those of the formula: LᵀCᵀ = MB and CCᵀ = BᵀMB, with M = LᵀL
never formed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icofactor.factorization.arrays import Array, T, dot, namespace, product, ratio
from icofactor.factorization.extrapolation import EXTRAPOLATIONS, Extrapolation
from icofactor.factorization.quadratic import Quadratic
from icofactor.factorization.schemes.base import Problem, Scheme, SchemeText, Terms, terms_of

YANG_OJA = (
    "Yang Z, Oja E. Linear and nonlinear projective nonnegative matrix factorization. IEEE Transactions on Neural "
    "Networks 21(5), 734-749 (2010)."
)


class ProjectiveNMF(Scheme):
    """min ‖X − DBBᵀDᵀX‖² over B ≥ 0."""

    name = "PPNMF"
    text = SchemeText(
        "projective non-negative matrix factorization", "‖X − WWᵀX‖² subject to W ≥ 0", (YANG_OJA,)
    )
    projective = True
    penalised = scaled = False
    in_paper = True
    lift_sweeps = 60
    extrapolations: Mapping[str, Extrapolation | None] = EXTRAPOLATIONS
    kernel: str | None = "projective"
    centers = ("none", "mean", "zscore")

    def paper_penalty(self, L_norm: float) -> float:
        return 0.0

    def draw(
        self,
        rng: np.random.Generator,
        L: np.ndarray,
        row_sums: np.ndarray,
        n_components: int,
        literal: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        norm = np.linalg.norm(L)
        B = abs(rng.standard_normal((L.shape[1], n_components))) / (norm if norm > 0 else 1.0)
        return B, B.T @ L.T

    def settle(self, p: Problem, B: Array, C: Array) -> tuple[Array, Array]:
        """Default rules: times s, s² = tr(BᵀMB) / tr(BᵀKB·BᵀMB), the exact best scale."""
        C = p.project(B)
        if p.literal:
            return B, C
        t = terms_of(p, B, C)
        s = projective_scale(t.LC, B, t.CC, t.G)
        return B * s, C * s

    def update_B(self, p: Problem, B: Array, C: Array, t: Terms) -> Array:
        if p.signed:  # a multiplicative rule wants M ≥ 0
            return descend(p, B, C, t)
        return B * factor(t.LC, p.times_K(B), t.CC, t.G, p.literal)

    def kernel_for(self, p: Problem) -> str | None:
        return "descent" if p.signed else self.kernel

    def update_C(self, p: Problem, B: Array, C: Array, G: Array) -> Array:
        return p.project(B)

    def objective(self, p: Problem, B: Array, C: Array, E: Array) -> Array:
        return E

    def site_problem(
        self, C: np.ndarray, G: np.ndarray | None, penalty: float, site_weight: float
    ) -> Quadratic:
        """Stationarity of the projective objective, S W(2I − G) = W A, with A, G and C of the
        coarse solution.
        """
        assert G is not None
        return Quadratic(C @ C.T, (2 * np.eye(len(C)) - G) @ C, 0.0, False)


def factor(MB: Array, KB: Array, BMB: Array, BKB: Array, literal: bool) -> Array:
    """½ + r/2 with r = 2MB ⊘ [KB (BᵀMB) + MB (BᵀKB)] (eq. 8).

    Default rules limit it to max(√6 − 1, r^⅓): a factor u > 1 never raises the objective while
    (1 + u + u² + u³)/4 ≤ r.
    """
    xp = namespace(MB)
    r = ratio(2 * MB, product(KB, BMB) + product(MB, BKB))
    if literal:
        return 0.5 + r / 2
    safe = xp.clip(r ** (1 / 3), float(np.sqrt(6.0) - 1.0), None)
    return xp.minimum(0.5 + r / 2, safe)


def projective_scale(MB: Array, B: Array, BMB: Array, BKB: Array) -> Array:
    """The exact best scale s of B, (..., 1, 1): s² = tr(BᵀMB) / tr(BᵀKB·BᵀMB)."""
    xp = namespace(B)
    s2 = ratio(dot(MB, B), dot(BKB, BMB))
    return xp.sqrt(xp.where(s2 > 0, s2, 1.0))[..., None, None]


STEPS = tuple(2.0 ** (-i / 2) for i in range(24))
"""Lengths of a step that the line search looks at, besides none."""


def descend(p: Problem, B: Array, C: Array, t: Terms) -> Array:
    """A projected gradient step of eq. 9 that never raises it: B + s([B − ½∇ ⊘ d]₊ − B), s ≥ 0 at
    its best.

    ½∇ = −2MB + KB(BᵀMB) + MB(BᵀKB) (method.md §10). d_kj = (K1)_k (BᵀMB)_jj is the curvature that
    remains near the solution, where the terms in M cancel or are concave. M may have entries of any
    sign. Along the step eq. 9 is a polynomial of degree four, known from products of the factors;
    so the search costs one projection of the step.
    """
    xp = namespace(B)
    KB = p.times_K(B)
    gradient = product(KB, t.CC) + product(t.LC, t.G - 2 * xp.eye(t.G.shape[-1], dtype=t.G.dtype))
    inverse = lambda x: xp.where(x > 0, 1 / xp.where(x > 0, x, 1.0), 0.0)
    gradient = (
        gradient
        * inverse(p.row_sums)[:, None]
        * inverse(xp.einsum("...jj->...j", t.CC))[..., None, :]
    )
    step = xp.clip(B - gradient, 0.0, None) - B
    return B + best_length(p, KB, C, t, step) * step


def best_length(p: Problem, KB: Array, C: Array, t: Terms, step: Array) -> Array:
    """The s among `STEPS` and 0, (..., 1, 1), at which eq. 9 is least at B + s·step."""
    xp = namespace(step)
    C_step, K_step = p.project(step), p.times_K(step)
    A, G = (
        (t.CC, both(product(C, T(C_step))), product(C_step, T(C_step))),
        (
            t.G,
            both(product(T(KB), step)),
            product(T(step), K_step),
        ),
    )
    return length_of_least_error(xp, A, G)[..., None, None]


def both(x: Array) -> Array:
    """x + xᵀ."""
    return x + T(x)


def length_of_least_error(xp: Any, A: Sequence[Array], G: Sequence[Array]) -> Array:
    """The s among `STEPS` and 0 at which −2 tr A(s) + ⟨G(s), A(s)⟩ is least; A(s) = A₀ + A₁s +
    A₂s², and G alike.
    """
    trace = lambda x: xp.einsum("...jj->...", x)
    first = dot(G[1], A[0]) + dot(G[0], A[1]) - 2 * trace(A[1])
    second = dot(G[2], A[0]) + dot(G[1], A[1]) + dot(G[0], A[2]) - 2 * trace(A[2])
    third, fourth = dot(G[2], A[1]) + dot(G[1], A[2]), dot(G[2], A[2])
    s = xp.asarray(STEPS, dtype=first.dtype)
    error = s * (
        first[..., None] + s * (second[..., None] + s * (third[..., None] + s * fourth[..., None]))
    )
    return xp.where(xp.min(error, -1) < 0, s[xp.argmin(error, -1)], 0.0)
