"""The updates of the paper as they are printed, in plain NumPy: on these the time of a literal program is measured.

`products` says how products of several matrices are made:

- "as read": from left to right. (K B Bᵀ M + M B Bᵀ K) B of the projective schemes then makes n_k × n_k matrices;
- "ordered": M = LᵀL is there, but every product has a narrow matrix;
- "without M": as "ordered", and M B is made as Lᵀ (L B).
"""

from __future__ import annotations

from typing import Any

import numpy as np

# An extrapolated method starts with this many plain updates.
PLAIN_UPDATES = 10
# Where the sequence of τ starts.
FIRST_TAU = (1 + np.sqrt(5)) / 2
TINY = np.finfo(np.float64).tiny


def divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Divide by values that may be 0."""
    return numerator / np.maximum(denominator, TINY)


def soft_threshold(values: np.ndarray, threshold: float) -> np.ndarray:
    """Shrink towards 0."""
    return np.sign(values) * np.maximum(0, np.abs(values) - threshold)


class Program:
    """One run of a method of the paper.

    Parameters
    ----------
    method : e.g. "LE-PNNMF"
    K, L : as in the paper
    B, C : where to start
    products : "as read", "ordered" or "without M"
    """

    def __init__(
        self, method: str, K: Any, L: np.ndarray, B: np.ndarray, C: np.ndarray, products: str
    ) -> None:
        self.extrapolation, _, self.scheme = method.rpartition("-")
        self.K = K
        self.L = L
        self.M = L.T @ L if self.scheme == "PPNMF" and products != "without M" else None
        self.B = B
        self.C = C
        self.products = products
        norm = float(np.linalg.norm(L))
        self.step = 0.1 / norm
        self.penalty = {"DL": 5.0, "PNNMF": 1 / norm, "SPNNMF": 0.5, "PPNMF": 0.0}[self.scheme]
        # Momentum is measured between plain updates, not between extrapolated ones.
        self.plain_B = B
        self.tau = FIRST_TAU
        self.age = 0

    def update(self) -> None:
        """Update B, extrapolate it when it is time, then update C."""
        plain_B = self._updated_B()
        self.B = plain_B
        if self.extrapolation and self.age >= PLAIN_UPDATES:
            self.B = self._extrapolated(plain_B)
            self.tau = (1 + np.sqrt(1 + 4 * self.tau**2)) / 2
        self.plain_B = plain_B
        self.age += 1
        if self.scheme != "PPNMF":
            self.C = self._updated_C()

    def _extrapolated(self, plain_B: np.ndarray) -> np.ndarray:
        """Extrapolate by eq. 10 (E-) or eq. 11 (LE-)."""
        weight = (self.tau - 1) / (self.tau + 1)
        if self.extrapolation == "LE":
            growth = np.where(
                self.plain_B > 0, plain_B / np.where(self.plain_B > 0, self.plain_B, 1.0), 1.0
            )
            return plain_B * np.clip(growth**weight, 0.1, 10.0)
        B = plain_B + weight * (plain_B - self.plain_B)
        return B if self.scheme == "DL" else np.maximum(B, 0)

    def _updated_B(self) -> np.ndarray:
        B, C, K, L = self.B, self.C, self.K, self.L
        if self.scheme == "DL":
            # eq. 2
            return soft_threshold(
                B - self.step * (K @ B @ C @ C.T - L.T @ C.T), self.penalty * self.step
            )
        if self.scheme == "PPNMF":
            return self._projective_B()
        # eq. 4, and eq. 6, where the penalty is that of absolute values
        shrinkage = self.penalty * B if self.scheme == "PNNMF" else self.penalty
        return divide(B * np.maximum(L.T @ C.T - shrinkage, 0), K @ B @ C @ C.T)

    def _updated_C(self) -> np.ndarray:
        B, C, K, L = self.B, self.C, self.K, self.L
        if self.scheme == "DL":
            # eq. 3
            return soft_threshold(
                C - self.step * (B.T @ (K @ B) @ C - B.T @ L.T), self.penalty * self.step
            )
        # eq. 5 and eq. 7
        shrinkage = self.penalty * C if self.scheme == "PNNMF" else self.penalty
        return divide(C * np.maximum(B.T @ L.T - shrinkage, 0), B.T @ (K @ B) @ C)

    def _projective_B(self) -> np.ndarray:
        """Update B by eq. 8."""
        B, K, M = self.B, self.K, self.M
        if self.products == "as read":
            assert M is not None
            return B * (0.5 + divide(M @ B, (K @ B @ B.T @ M + M @ B @ B.T @ K) @ B))
        KB = K @ B
        MB = self.L.T @ (self.L @ B) if M is None else M @ B
        return B * (0.5 + divide(MB, KB @ (B.T @ MB) + MB @ (B.T @ KB)))
