"""PPNMF: the loadings are the projection of the data on the basis, C = BᵀLᵀ; only B is free.

With C = BᵀLᵀ the shared products are those of the formula: LᵀCᵀ = MB and CCᵀ = BᵀMB, with M = LᵀL never formed.
"""

from __future__ import annotations

import numpy as np

from icofactor.factorization.arrays import Array, dot, namespace, product, ratio
from icofactor.factorization.extrapolation import EXTRAPOLATIONS
from icofactor.factorization.schemes.base import Problem, Scheme, SchemeText, Terms, terms_of

_YANG_OJA = (
    "Yang Z, Oja E. Linear and nonlinear projective nonnegative matrix factorization. IEEE Transactions on Neural "
    "Networks 21(5), 734-749 (2010)."
)


class ProjectiveNMF(Scheme):
    """min ‖X − DBBᵀDᵀX‖² over B ≥ 0."""

    name = "PPNMF"
    text = SchemeText("projective non-negative matrix factorization", "‖X − WWᵀX‖² subject to W ≥ 0", (_YANG_OJA,))
    projective = True
    penalised = scaled = False
    lifted_by_updates = True
    in_paper = True
    extrapolations = EXTRAPOLATIONS
    kernel = "projective"

    def paper_penalty(self, L_norm: float) -> float:
        return 0.0

    def draw(
        self, rng: np.random.Generator, L: np.ndarray, row_sums: np.ndarray, n_components: int, literal: bool
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
        return B * factor(t.LC, p.times_K(B), t.CC, t.G, p.literal)

    def update_C(self, p: Problem, B: Array, C: Array, G: Array) -> Array:
        return p.project(B)

    def objective(self, p: Problem, B: Array, C: Array, E: Array) -> Array:
        return E


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
