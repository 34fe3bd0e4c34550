"""The paper's updates written down as they read, in plain NumPy: what the time of a literal program is measured on.

K, L and M = LᵀL are formed beforehand. `products` says how a product of several matrices is taken:

- "as read": from left to right. (KBBᵀM + MBBᵀK)B then makes n_k × n_k matrices and multiplies one of them with M;
- "ordered": M is there, but every product is with a narrow matrix;
- "without M": as "ordered", with MB = Lᵀ(LB).

Only the projective schemes have M.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.factorization.extrapolation import momentum, next_tau
from icofactor.factorization.methods import Method
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.update import State

PRODUCTS = ("as read", "ordered", "without M")
_TINY = np.finfo(np.float64).tiny


@dataclass(eq=False)
class Formula:
    """One run of a method of the paper, one update at a time.

    Attributes
    ----------
    method, products
    K, L, M : as in the paper; M None where it is not formed
    penalty, step : λ, η
    B, C, y, tau, age : where the run stands; y is the last plain update of B
    """

    method: Method
    products: str
    K: Any
    L: np.ndarray
    M: np.ndarray | None
    penalty: float
    step: float
    B: np.ndarray
    C: np.ndarray
    y: np.ndarray
    tau: float
    age: int

    @classmethod
    def of(cls, p: Problem, method: Method, state: State, products: str, K: Any, M: np.ndarray | None) -> Formula:
        """The first run of a batch; it must have made an update, so that momentum can be measured."""
        assert state.y_B is not None
        return cls(
            method, products, K, np.asarray(p.L), M, p.penalty, 0.1 / p.L_norm,
            state.B[0], state.C[0], state.y_B[0], float(state.tau[0]), state.age,
        )  # fmt: skip

    def update(self) -> None:
        """One update: B, extrapolated when it is time, then C."""
        y = _PLAIN[self.method.scheme.name](self)
        B = y
        if self.method.extrapolation is not None and self.age >= self.method.plain_updates:
            B = self.method.extrapolation(y, self.y, momentum(self.tau), self.method.scheme.signed_maps)
            self.tau = next_tau(self.tau)
        self.B, self.y, self.age = B, y, self.age + 1
        if not self.method.scheme.projective:
            self.C = _LOADINGS[self.method.scheme.name](self)

    def dictionary_B(self) -> np.ndarray:
        B, C = self.B, self.C
        return self._shrunk(B - self.step * (self.K @ B @ C @ C.T - self.L.T @ C.T))  # eq. 2

    def dictionary_C(self) -> np.ndarray:
        B, C = self.B, self.C
        return self._shrunk(C - self.step * (B.T @ (self.K @ B) @ C - B.T @ self.L.T))  # eq. 3

    def _shrunk(self, z: np.ndarray) -> np.ndarray:
        return np.sign(z) * np.maximum(0, np.abs(z) - self.penalty * self.step)

    def ridge_B(self) -> np.ndarray:
        B, C = self.B, self.C
        return _over(B * np.maximum(self.L.T @ C.T - self.penalty * B, 0), self.K @ B @ C @ C.T)  # eq. 4

    def ridge_C(self) -> np.ndarray:
        B, C = self.B, self.C
        return _over(C * np.maximum(B.T @ self.L.T - self.penalty * C, 0), B.T @ (self.K @ B) @ C)  # eq. 5

    def sparse_B(self) -> np.ndarray:
        B, C = self.B, self.C
        return _over(B * np.maximum(self.L.T @ C.T - self.penalty, 0), self.K @ B @ C @ C.T)  # eq. 6

    def sparse_C(self) -> np.ndarray:
        B, C = self.B, self.C
        return _over(C * np.maximum(B.T @ self.L.T - self.penalty, 0), B.T @ (self.K @ B) @ C)  # eq. 7

    def projective_B(self) -> np.ndarray:
        """Eq. 8."""
        B, K, M = self.B, self.K, self.M
        if self.products == "as read":
            assert M is not None
            return B * (0.5 + _over(M @ B, (K @ B @ B.T @ M + M @ B @ B.T @ K) @ B))
        MB, KB = self.L.T @ (self.L @ B) if M is None else M @ B, K @ B
        return B * (0.5 + _over(MB, KB @ (B.T @ MB) + MB @ (B.T @ KB)))


def _over(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return numerator / np.maximum(denominator, _TINY)


_PLAIN = {
    "DL": Formula.dictionary_B,
    "PNNMF": Formula.ridge_B,
    "SPNNMF": Formula.sparse_B,
    "PPNMF": Formula.projective_B,
}
_LOADINGS = {"DL": Formula.dictionary_C, "PNNMF": Formula.ridge_C, "SPNNMF": Formula.sparse_C}
