"""PNNMF: non-negative factors, squared norms penalised."""

from __future__ import annotations

from icofactor.factorization.arrays import Array, namespace, positive, product, ratio
from icofactor.factorization.schemes.base import (
    CICHOCKI,
    LEE_SEUNG,
    NonNegativeScheme,
    Problem,
    SchemeText,
    Terms,
    balance_factor,
)


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
