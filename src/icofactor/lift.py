"""Full resolution: the basis on every site given the loadings, and the loadings of new subjects (method.md §7).

Given C, the basis of each site is a small convex problem of its own that needs one product X Cᵀ. The pass over X
that lifts the basis W also gathers WᵀX and WᵀW, which is all that loadings and errors need afterwards. So the lift is
one pass over X, and each sweep of polish is one more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.convex import coordinate_descent, minimise
from icofactor.extrapolation import TAU_START, logarithmic, momentum, next_tau
from icofactor.schemes import Scheme
from icofactor.schemes.projective import factor, projective_scale
from icofactor.statistics import map_blocks

LIFT_SWEEPS = 5
PROJECTIVE_UPDATES = 10

Progress = Callable[[int, int], None]
"""Called with (sites done, sites in all)."""


@dataclass(frozen=True, eq=False)
class Basis:
    """A basis on the sites with what loadings and errors need of X.

    Attributes
    ----------
    W : n_sites × n_d
    WX : n_d × n_subjects, WᵀX
    WW : n_d × n_d, WᵀW
    """

    W: np.ndarray
    WX: np.ndarray
    WW: np.ndarray

    def error(self, C: np.ndarray, sq_norm: float) -> float:
        """‖X − WC‖² = ‖X‖² − 2⟨WᵀX, C⟩ + ⟨WᵀW, CCᵀ⟩, without X."""
        return float(sq_norm - 2 * np.sum(self.WX * C) + np.sum(self.WW * (C @ C.T)))


def lift(
    X: Any,
    C: np.ndarray,
    scheme: Scheme,
    penalty: float,
    site_weight: float,
    start: np.ndarray | None = None,
    sweeps: int = LIFT_SWEEPS,
    on_block: Progress | None = None,
) -> Basis:
    """The basis on every site, given the loadings C.

    Problem: min over W of ‖X − WC‖² with the scheme's penalty, in which every site weighs `site_weight`; W ≥ 0 unless
    the scheme is signed. One pass over X (sites × subjects).

    Parameters
    ----------
    start : n_sites × n_d, optional
        Where the coordinate sweeps begin; otherwise the positive part of the unpenalised solution.
    """
    ridge, lasso = (amount * site_weight for amount in scheme.split_penalty(penalty))
    A = C @ C.T + ridge * np.eye(len(C))
    n_sites = X.shape[0]
    W, WX = np.empty((n_sites, len(C))), np.zeros(C.shape)
    inverse = np.linalg.pinv(A, hermitian=True)

    def rows_of_W(rows: slice, x: np.ndarray) -> np.ndarray:
        rhs = C @ x.T
        before = inverse @ rhs if start is None else start[rows].T
        W[rows] = coordinate_descent(A, rhs, lasso, scheme.signed, before, sweeps).T
        return W[rows].T @ x

    for rows, share in map_blocks(X, rows_of_W):
        WX += share
        if on_block is not None:
            on_block(rows.stop, n_sites)
    return Basis(W, WX, W.T @ W)


def loadings(WX: np.ndarray, WW: np.ndarray, scheme: Scheme, penalty: float) -> np.ndarray:
    """The loadings C of subjects given WᵀX and WᵀW: the projection, or the scheme's convex problem in C."""
    if scheme.projective:
        return WX
    ridge, lasso = scheme.split_penalty(penalty)
    A = WW + ridge * np.eye(len(WW))
    return minimise(A, WX, lasso, scheme.signed)


def lift_projective(
    X: Any, start: np.ndarray, sq_norm: float, n_updates: int = PROJECTIVE_UPDATES, on_block: Progress | None = None
) -> Basis:
    """The projective basis on every site: LE updates of eq. 8 with D = I from `start`, at its best scale.

    M W = X(XᵀW) is never more than a product: each update is one pass over X, in which a block's rows are updated and
    their share of the next XᵀW is gathered. Where extrapolation raised the error the update is made again, plain.
    """
    W, WX = np.array(start, dtype=np.float64), _gather_WX(X, start)
    scale = float(projective_scale(WX, WX, WX @ WX.T, W.T @ W)[0, 0])  # ⟨MW, W⟩ = ⟨WX, WX⟩
    W, WX = W * scale, WX * scale
    E, y_before, tau = _projective_error(W, WX, sq_norm), None, TAU_START
    for update in range(n_updates):
        weight = 0.0 if y_before is None else momentum(tau)
        new, WX_new, y = _projective_pass(X, W, WX, y_before, weight)
        E_new = _projective_error(new, WX_new, sq_norm)
        tau = next_tau(tau) if weight else tau
        if weight and not E_new <= E:
            new, WX_new, y = _projective_pass(X, W, WX, None, 0.0)
            E_new, tau = _projective_error(new, WX_new, sq_norm), TAU_START
        W, WX, E, y_before = new, WX_new, E_new, y
        if on_block is not None:
            on_block(update + 1, n_updates)
    return Basis(W, WX, W.T @ W)


def _projective_pass(
    X: Any, W: np.ndarray, WX: np.ndarray, y_before: np.ndarray | None, weight: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One update of all sites in one pass: the new W, its WᵀX, and the plain update y."""
    BMB, BKB = WX @ WX.T, W.T @ W
    new, y, WX_new = np.empty_like(W), np.empty_like(W), np.zeros_like(WX)

    def rows_of_W(rows: slice, x: np.ndarray) -> np.ndarray:
        y[rows] = W[rows] * factor(x @ WX.T, W[rows], BMB, BKB, literal=False)
        new[rows] = y[rows] if y_before is None else logarithmic(y[rows], y_before[rows], weight, False)
        return new[rows].T @ x

    for _, share in map_blocks(X, rows_of_W):
        WX_new += share
    return new, WX_new, y


def _projective_error(W: np.ndarray, WX: np.ndarray, sq_norm: float) -> float:
    BMB = WX @ WX.T
    return float(sq_norm - 2 * np.trace(BMB) + np.sum((W.T @ W) * BMB))  # eq. 9


def _gather_WX(X: Any, W: np.ndarray) -> np.ndarray:
    """WᵀX, one pass over X."""
    WX = np.zeros((W.shape[1], X.shape[1]))
    for _, share in map_blocks(X, lambda rows, x: W[rows].T @ x):
        WX += share
    return WX


def basis_of(X: Any, W: np.ndarray) -> Basis:
    """A given basis with what loadings need of X, one pass."""
    return Basis(W, _gather_WX(X, W), W.T @ W)
