"""Full resolution: the basis on every site given the loadings, and the loadings of new subjects (method.md §7).

Given C, the basis of each site is a small convex problem of its own that needs one product X Cᵀ. The pass over X
that lifts the basis W also gathers WᵀX and WᵀW, which is all that loadings and errors need afterwards. So the lift is
one pass over X, and each sweep of polish is one more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.factorization.extrapolation import TAU_START, logarithmic, momentum, next_tau
from icofactor.factorization.quadratic import coordinate_descent
from icofactor.factorization.schemes.base import Scheme
from icofactor.factorization.schemes.projective import factor, projective_scale
from icofactor.streaming.blocks import Arrays
from icofactor.streaming.passes import each_block, pass_over

PROJECTIVE_UPDATES = 10
Report = Callable[[float], None]
"""Called with the fraction that is done."""


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
    sweeps: int | None = None,
    report: Report | None = None,
    stage: str = "lift",
    engine: str = "numpy",
    G: np.ndarray | None = None,
) -> Basis:
    """The basis on every site, given the loadings C.

    Each site solves the scheme's `site_problem`: by default min over w of ‖x − Cᵀw‖² with the scheme's penalty, in
    which every site weighs `site_weight`; w ≥ 0 unless maps are signed. One pass over X (sites × subjects).

    Parameters
    ----------
    start : n_sites × n_d, optional
        Where the coordinate sweeps begin; otherwise the positive part of the unpenalised solution.
    sweeps : int, optional
        Coordinate sweeps; the scheme's own number where it is not given.
    stage : str
        The name of this pass, where passes are kept.
    engine : {"numpy", "cpu", "jax"}
        Where the blocks are computed: "jax" on the device that JAX finds.
    G : n_d × n_d, optional
        BᵀKB of the coarse basis, for schemes whose `site_problem` uses it.
    """
    problem = scheme.site_problem(C, G, penalty, site_weight)
    shared = {
        "C": problem.linear,
        "A": problem.gram,
        "inverse": np.linalg.pinv(problem.gram, hermitian=True),
        "lasso": np.array(problem.lasso),
        "signed": np.array(problem.signed),
        "sweeps": np.array(scheme.lift_sweeps if sweeps is None else sweeps),
    }
    W, WX = np.empty((X.shape[0], len(C))), np.zeros(C.shape)
    task = each_block(_block_function(engine))
    for rows, found in pass_over(X, task, shared, [start], stage=stage, report=report):
        W[rows] = found["site.W"]
        WX += found["sum.WX"]
    return Basis(W, WX, W.T @ W)


def _block_function(engine: str) -> Callable[..., Arrays]:
    if engine != "jax":
        return _lift_block
    from icofactor.factorization.engines.jax import lift_block

    return lift_block


def _lift_block(x: np.ndarray, shared: Mapping[str, Any], start: np.ndarray | None) -> Arrays:
    """The basis on the sites of one block, and their share of WᵀX."""
    rhs = shared["C"] @ x.T
    before = shared["inverse"] @ rhs if start is None else start.T
    lasso, signed, sweeps = float(shared["lasso"]), bool(shared["signed"]), int(shared["sweeps"])
    W = np.ascontiguousarray(coordinate_descent(shared["A"], rhs, lasso, signed, before, sweeps).T)
    return {"site.W": W, "sum.WX": W.T @ x}


def loadings(WX: np.ndarray, WW: np.ndarray, scheme: Scheme, penalty: float) -> np.ndarray:
    """The loadings C of subjects given WᵀX and WᵀW: the projection, or the scheme's convex problem in C."""
    return scheme.loadings_of(WX, WW, penalty)


def lift_projective(
    X: Any, start: np.ndarray, sq_norm: float, n_updates: int = PROJECTIVE_UPDATES, report: Report | None = None
) -> Basis:
    """The projective basis on every site: LE updates of eq. 8 with D = I from `start`, at its best scale.

    M W = X(XᵀW) is never more than a product: each update is one pass over X, in which a block's rows are updated and
    their share of the next XᵀW is gathered. Where extrapolation raised the error the update is made again, plain.
    """
    W, WX = np.array(start, dtype=np.float64), _gather_WX(X, start, "lift-scale")
    scale = float(projective_scale(WX, WX, WX @ WX.T, W.T @ W)[0, 0])  # ⟨MW, W⟩ = ⟨WX, WX⟩
    W, WX = W * scale, WX * scale
    E, y_before, tau = _projective_error(W, WX, sq_norm), None, TAU_START
    for update in range(n_updates):
        weight = 0.0 if y_before is None else momentum(tau)
        new, WX_new, y = _projective_pass(X, W, WX, y_before, weight, f"lift-{update}")
        E_new = _projective_error(new, WX_new, sq_norm)
        tau = next_tau(tau) if weight else tau
        if weight and not E_new <= E:
            new, WX_new, y = _projective_pass(X, W, WX, None, 0.0, f"lift-{update}-plain")
            E_new, tau = _projective_error(new, WX_new, sq_norm), TAU_START
        W, WX, E, y_before = new, WX_new, E_new, y
        if report is not None:
            report((update + 1) / n_updates)
    return Basis(W, WX, W.T @ W)


def _projective_pass(
    X: Any, W: np.ndarray, WX: np.ndarray, y_before: np.ndarray | None, weight: float, stage: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One update of all sites in one pass: the new W, its WᵀX, and the plain update y."""
    shared = {"WX": WX, "BMB": WX @ WX.T, "BKB": W.T @ W, "weight": np.array(weight)}
    new, y, WX_new = np.empty_like(W), np.empty_like(W), np.zeros_like(WX)
    for rows, found in pass_over(X, each_block(_projective_block), shared, [W, y_before], stage=stage):
        new[rows], y[rows] = found["site.new"], found["site.y"]
        WX_new += found["sum.WX"]
    return new, WX_new, y


def _projective_block(x: np.ndarray, shared: Mapping[str, Any], W: np.ndarray, y_before: np.ndarray | None) -> Arrays:
    y = W * factor(x @ shared["WX"].T, W, shared["BMB"], shared["BKB"], literal=False)
    new = y if y_before is None else logarithmic(y, y_before, float(shared["weight"]), False)
    return {"site.new": new, "site.y": y, "sum.WX": new.T @ x}


def _projective_error(W: np.ndarray, WX: np.ndarray, sq_norm: float) -> float:
    BMB = WX @ WX.T
    return float(sq_norm - 2 * np.trace(BMB) + np.sum((W.T @ W) * BMB))  # eq. 9


def _gather_WX(X: Any, W: np.ndarray, stage: str) -> np.ndarray:
    """WᵀX, one pass over X."""
    WX = np.zeros((W.shape[1], X.shape[1]))
    for _, found in pass_over(X, each_block(product_block), own=[W], stage=stage):
        WX += found["sum.WX"]
    return WX


def product_block(x: np.ndarray, shared: Mapping[str, Any], W: np.ndarray) -> Arrays:
    """The block's share of WᵀX."""
    return {"sum.WX": W.T @ x}


def basis_of(X: Any, W: np.ndarray) -> Basis:
    """A given basis with what loadings need of X, one pass."""
    return Basis(W, _gather_WX(X, W, "basis"), W.T @ W)
