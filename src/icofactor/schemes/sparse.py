"""SPNNMF: non-negative factors, absolute values penalised."""

from __future__ import annotations

import numpy as np

from icofactor.arrays import Array, namespace, positive, ratio
from icofactor.schemes.base import (
    Problem,
    Scheme,
    Terms,
    balance_factor,
    draw_columns_of_L,
    settle_balanced,
)


class SparseNMF(Scheme):
    """min ½E + λ(‖B‖₁ + ‖C‖₁) over B, C ≥ 0, with λ = ½."""

    name = "SPNNMF"

    def paper_penalty(self, L_norm: float) -> float:
        return 0.5

    def draw(
        self, rng: np.random.Generator, L: np.ndarray, row_sums: np.ndarray, n_components: int, literal: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        return draw_columns_of_L(rng, L, row_sums, n_components, literal)

    def settle(self, p: Problem, B: Array, C: Array) -> tuple[Array, Array]:
        return settle_balanced(self, p, B, C)

    def update_B(self, p: Problem, B: Array, C: Array, t: Terms) -> Array:
        decrease = p.times_K(B) @ t.CC
        if p.literal:
            return ratio(B * positive(t.LC - p.penalty), decrease)  # eq. 6
        return ratio(B * t.LC, decrease + p.penalty * p.weights)

    def update_C(self, p: Problem, B: Array, C: Array, G: Array) -> Array:
        if p.literal:
            return ratio(C * positive(p.project(B) - p.penalty), G @ C)  # eq. 7
        return ratio(C * p.project(B), G @ C + p.penalty)

    def objective(self, p: Problem, B: Array, C: Array, E: Array) -> Array:
        return 0.5 * E + p.penalty * (abs(p.weights * B).sum(-1).sum(-1) + abs(C).sum(-1).sum(-1))

    def balance(self, p: Problem, B: Array, C: Array) -> Array:
        size_C, size_B = abs(C).sum(-1)[..., None, :], abs(p.weights * B).sum(-2)[..., None, :]
        return balance_factor(namespace(B), size_C, size_B, 0.5)
