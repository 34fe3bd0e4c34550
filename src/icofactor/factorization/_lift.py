"""Full resolution: the basis on every site given the loadings, and the loadings of new subjects
(method.md §7).

Given C, the basis of each site is a small convex problem of its own that needs one product X Cᵀ.
The pass over X
that lifts the basis W also gathers WᵀX and WᵀW, which is all that loadings and errors need
afterwards. So the lift is one pass over X, and each sweep of polish is one more. A site's own
problem does not change with its weight ω; sums over sites do: they are WᵀΩX and WᵀΩW.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from icofactor.factorization.design import Design
from icofactor.factorization.quadratic import coordinate_descent, divide
from icofactor.factorization.schemes.base import Scheme
from icofactor.factorization.schemes.projective import length_of_least_error, plus_transpose
from icofactor.factorization.statistics import Statistics
from icofactor.streaming.blocks import Arrays, Levelled
from icofactor.streaming.passes import each_block, each_wide_block, pass_over

MEAN_SWEEPS = 10
"""Sweeps over all pairs of parts in which a site divides its mean among them."""
MEAN_SCALINGS = 200
"""Scalings of the rows of W to the mean map, at most."""
UNDOMINATED_STEPS = 20
"""Gradient steps at full resolution where a lift in one pass does not do."""
LEAST_SHARE = 0.7
"""How far on the way from the coarse basis to the lifted one the best must lie for the lift to do.
"""
ROUNDING = 16 * 2.0**-52
"""Errors that differ by less than this share of the data explained are the same."""
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
    weights : (n_sites,) of the sites in these sums; None: all count alike
    """

    W: np.ndarray
    WX: np.ndarray
    WW: np.ndarray
    weights: np.ndarray | None = None

    def projective_error(self, sq_norm: float) -> float:
        """‖X − WWᵀX‖² (eq. 9), without X."""
        return self.error(self.WX, sq_norm)

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
    G: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> Basis:
    """The basis on every site, given the loadings C.

    Each site solves the scheme's `site_problem`: by default min over w of ‖x − Cᵀw‖² with the
    scheme's penalty, in which every site weighs `site_weight`; w ≥ 0 unless maps are signed. One
    pass over X (sites × subjects).

    Parameters
    ----------
    start : n_sites × n_d, optional
        Where the coordinate sweeps begin; otherwise the positive part of the unpenalised solution.
    sweeps : int, optional
        Coordinate sweeps; the scheme's own number where it is not given.
    G : n_d × n_d, optional
        BᵀKB of the coarse basis, for schemes whose `site_problem` uses it.
    weights : (n_sites,), optional
        How much each site counts in WᵀX and WᵀW.
    """
    problem = scheme.site_problem(C, G, penalty, site_weight)
    shared = {
        **_orthogonal(problem.linear),
        "A": problem.gram,
        "inverse": np.linalg.pinv(problem.gram, hermitian=True),
        "lasso": np.array(problem.lasso),
        "signed": np.array(problem.signed),
        "sweeps": np.array(scheme.lift_sweeps if sweeps is None else sweeps),
    }
    W, WX = np.empty((X.shape[0], len(C))), np.zeros(C.shape)
    for rows, found in pass_over(
        X, each_block(_lift_block), shared, [start, weights], report=report
    ):
        W[rows] = found["site.W"]
        WX += found["sum.WX"]
    return Basis(W, WX, gram(W, weights), weights)


def weighed(W: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """ΩW: rows times the weights of their sites."""
    return W if weights is None else W * weights[:, None]


def gram(W: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """WᵀΩW."""
    return np.asarray(W.T @ weighed(W, weights))


def _lift_block(
    x: np.ndarray, shared: Mapping[str, Any], start: np.ndarray | None, weights: np.ndarray | None
) -> Arrays:
    """The basis on the sites of one block, and their share of WᵀX."""
    levelled = Levelled.of(x)
    rhs = (levelled.times(shared["Q"]) @ shared["R"]).T
    before = shared["inverse"] @ rhs if start is None else start.T
    lasso, signed, sweeps = float(shared["lasso"]), bool(shared["signed"]), int(shared["sweeps"])
    W = np.ascontiguousarray(coordinate_descent(shared["A"], rhs, lasso, signed, before, sweeps).T)
    return {"site.W": W, "sum.WX": levelled.sums(weighed(W, weights))}


def _orthogonal(C: np.ndarray) -> dict[str, np.ndarray]:
    """Q and R with C = RᵀQ: nearly parallel rows of C would amplify what float32 loses in a product
    X Cᵀ.
    """
    Q, R = np.linalg.qr(C.T)
    return {"Q": np.ascontiguousarray(Q.T), "R": R}


def loadings(WX: np.ndarray, WW: np.ndarray, scheme: Scheme, penalty: float) -> np.ndarray:
    """The loadings C of subjects given WᵀX and WᵀW: the projection, or the scheme's convex problem
    in C.
    """
    return scheme.loadings_of(WX, WW, penalty)


def shared_loadings(
    WX: np.ndarray, shared: np.ndarray, whole: np.ndarray, scheme: Scheme, penalty: float
) -> np.ndarray:
    """The same for subjects who lack some sites: WᵀX and WᵀW (`shared`) over those that they have,
    `whole` over all.

    The scheme's problem on these sites. A projection has no such problem: the missing values are
    taken from the least squares fit a = `shared`⁻¹WᵀX, which gives the projection of the filled
    map, `whole` a.
    """
    if scheme.projective:
        return np.asarray(whole @ np.linalg.lstsq(shared, WX, rcond=None)[0])
    return loadings(WX, shared, scheme, penalty)


def full_basis(
    X: Any,
    design: Design,
    stats: Statistics,
    B: np.ndarray,
    C: np.ndarray,
    scheme: Scheme,
    penalty: float,
    mean: np.ndarray | None = None,
    polish: int = 0,
    report: Report | None = None,
) -> Basis:
    """The basis on every site from a solution in design coordinates, in the way of the scheme.

    Parameters
    ----------
    mean : the mean map, where X holds values ≥ 0 and nothing was taken out of them; None otherwise.
    polish : steps at full resolution after the lift of a projective scheme, each one pass over X.
    """
    G, sites = B.T @ (stats.K @ B), design.sites
    if not scheme.projective:
        weight = sites.n_roots / sites.total_weight  # as the rows of B weigh under default rules
        return lift(X, C, scheme, penalty, weight, report=report, weights=sites.weights)
    start = Basis(np.asarray(design.matrix @ B), C, G, sites.weights)
    if mean is not None:
        return lift_on_mean(X, start, mean, stats.sq_norm, polish)
    return lift_parts(X, start, scheme, polish, report)


def lift_parts(
    X: Any, start: Basis, scheme: Scheme, polish: int = 0, report: Report | None = None
) -> Basis:
    """The projective basis of deviations on every site, from the coarse one: one pass over X
    (method.md §10).

    With A, G and C of the coarse solution the stationarity condition S W(2I − G) = W A is a small
    convex problem per site. It is a lift, not a descent; so the answer is the best point on the way
    there from the coarse basis.

    Parameters
    ----------
    start : the coarse basis DB on the sites
    polish : projected gradient steps that follow, each one pass over X
    """
    found = lift(X, start.WX, scheme, 0.0, 1.0, report=report, G=start.WW, weights=start.weights)
    if np.abs(start.WX.mean(axis=1)).max() <= 1e-9 * np.abs(start.WX).max():
        # deviations of some subjects from the mean of more (a resample): those from their own mean
        # are meant
        found = replace(found, WX=found.WX - found.WX.mean(axis=1, keepdims=True))
    moved, share = _best_between(start, scaled_to_least_error(found))
    # rough maps, or few subjects: the condition of a solution says little, and steps go the rest of
    # the way
    return _polished(X, moved, polish if share >= LEAST_SHARE else UNDOMINATED_STEPS + polish)


def lift_on_mean(X: Any, start: Basis, mean: np.ndarray, sq_norm: float, polish: int = 0) -> Basis:
    """The projective basis of values ≥ 0 on every site, from the coarse one: three passes over X.

    ‖X − WWᵀX‖² is n‖m − WWᵀm‖², with m the mean map, and what W leaves of the deviations. The first
    outweighs the second by far; so it is taken for a constraint, wᵥᵀμ = mᵥ with μ = Wᵀm at every
    site. How a site divides its mean among the parts is left to the deviations: min ½wᵀAw − wᵀ(2I −
    G)C x̃ over these w ≥ 0, as in `lift_parts`.
    """
    heavy = weighed(mean[:, None], start.weights)[:, 0]
    first = scaled_to_least_error(basis_of(X, _rows_to_mean(start.W, mean, heavy), start.weights))
    if first.projective_error(sq_norm) > start.projective_error(
        sq_norm
    ):  # the mean map does not dominate
        return _polished(X, start, UNDOMINATED_STEPS + polish)
    C = first.WX - first.WX.mean(axis=1, keepdims=True)
    shared = {
        "C": (2 * np.eye(len(C)) - first.WW) @ C,
        "A": C @ C.T,
        "mu": first.W.T @ heavy,
    }
    W = np.empty_like(first.W)
    task = each_wide_block(_divide_mean_block)
    for rows, found in pass_over(X, task, shared, [first.W, mean]):
        W[rows] = found["site.W"]
    second = scaled_to_least_error(basis_of(X, _rows_to_mean(W, mean, heavy), start.weights))
    return _polished(X, _best_between(first, second)[0], polish)


def _divide_mean_block(
    x: np.ndarray, shared: Mapping[str, Any], start: np.ndarray, mean: np.ndarray
) -> Arrays:
    alive = shared["mu"] > 0  # a part without sites takes no share
    linear, A = (shared["C"] @ x.T)[alive], shared["A"][np.ix_(alive, alive)]
    W = np.zeros_like(start)
    W[:, alive] = divide(A, linear, shared["mu"][alive], mean, start.T[alive], MEAN_SWEEPS).T
    return {"site.W": W}


def _rows_to_mean(W: np.ndarray, mean: np.ndarray, heavy: np.ndarray) -> np.ndarray:
    """W with its rows scaled so that WWᵀΩm = m, as far as its zeros allow; `heavy` is Ωm."""
    W, mean, heavy = np.array(W, dtype=np.float64), np.maximum(mean, 0.0), np.maximum(heavy, 0.0)
    for _ in range(MEAN_SCALINGS):
        reached = W @ (W.T @ heavy)
        factor = np.sqrt(np.where(reached > 0, mean / np.where(reached > 0, reached, 1.0), 0.0))
        W *= factor[:, None]
        if np.abs(factor[mean > 0] - 1).max(initial=0.0) < 1e-9:
            break
    return W


def scaled_to_least_error(basis: Basis) -> Basis:
    """The same basis at its best scale: s² = tr A / ⟨G, A⟩. Takes its W over."""
    A = basis.WX @ basis.WX.T
    size = float(np.sum(basis.WW * A))
    s = np.sqrt(float(np.trace(A)) / size) if size > 0 else 1.0
    W = np.multiply(basis.W, s, out=basis.W)
    return Basis(W, basis.WX * s, basis.WW * s * s, basis.weights)


def _best_between(start: Basis, end: Basis) -> tuple[Basis, float]:
    """The basis of least projective error between `start` (0) and `end` (1), whose W it takes, and
    where it lies.
    """
    change = end.projective_error(0.0) - start.projective_error(0.0)
    if abs(change) <= ROUNDING * float(np.square(start.WX).sum()):
        return (
            end,
            1.0,
        )  # where every site is a face both are the same, and rounding would choose the place between
    return _moved(start, np.subtract(end.W, start.W, out=end.W), end.WX - start.WX)


def _moved(start: Basis, step: np.ndarray, WX_step: np.ndarray) -> tuple[Basis, float]:
    """`start` moved along `step`, which it takes over, as far as the projective error falls, and
    how far that is.
    """
    A = (start.WX @ start.WX.T, plus_transpose(start.WX @ WX_step.T), WX_step @ WX_step.T)
    heavy, weights = weighed(step, start.weights), start.weights
    G = (start.WW, plus_transpose(start.W.T @ heavy), step.T @ heavy)
    s = float(length_of_least_error(np, A, G))
    del heavy
    step *= s
    W = np.add(start.W, step, out=step)
    return Basis(W, start.WX + s * WX_step, gram(W, weights), weights), s


def _polished(X: Any, basis: Basis, n_steps: int) -> Basis:
    """Projected gradient steps at full resolution that never raise the error, each one pass over X."""
    for _ in range(n_steps):
        shared = {**_orthogonal(basis.WX), "A": basis.WX @ basis.WX.T, "G": basis.WW}
        step, WX_step = np.empty_like(basis.W), np.zeros_like(basis.WX)
        for rows, found in pass_over(X, each_block(_step_block), shared, [basis.W, basis.weights]):
            step[rows] = found["site.step"]
            WX_step += found["sum.WX"]
        basis, _ = _moved(basis, step, WX_step)
    return basis


def _step_block(
    x: np.ndarray, shared: Mapping[str, Any], W: np.ndarray, weights: np.ndarray | None
) -> Arrays:
    """`projective.descend` with D = I: the step of a block's sites, and its share of the step's
    WᵀX.
    """
    levelled = Levelled.of(x)
    MW, A = levelled.times(shared["Q"]) @ shared["R"], shared["A"]
    size = np.where(A.diagonal() > 0, A.diagonal(), np.inf)
    step = np.maximum(W - (W @ A + MW @ shared["G"] - 2 * MW) / size, 0.0) - W
    return {"site.step": step, "sum.WX": levelled.sums(weighed(step, weights))}


def product_block(x: np.ndarray, shared: Mapping[str, Any], W: np.ndarray) -> Arrays:
    """The block's share of WᵀX; values that are not finite are reported by the inspector."""
    with np.errstate(invalid="ignore", over="ignore"):
        return {"sum.WX": Levelled.of(x).sums(W)}


def basis_of(X: Any, W: np.ndarray, weights: np.ndarray | None = None) -> Basis:
    """A given basis with what loadings need of X, one pass."""
    WX, heavy = np.zeros((W.shape[1], X.shape[1])), weighed(W, weights)
    for _, found in pass_over(X, each_block(product_block), own=[heavy]):
        WX += found["sum.WX"]
    return Basis(W, WX, W.T @ heavy, weights)
