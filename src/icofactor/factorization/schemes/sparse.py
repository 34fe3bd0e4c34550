"""SPNNMF: non-negative factors, absolute values penalised."""

from __future__ import annotations

from icofactor.factorization.arrays import Array, positive, product, ratio
from icofactor.factorization.schemes.base import (
    CICHOCKI,
    LEE_SEUNG,
    AbsoluteScheme,
    NonNegativeScheme,
    Problem,
    SchemeText,
    Terms,
)


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
