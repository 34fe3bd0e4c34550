"""Full resolution: the basis on every site given the loadings, and the loadings of new subjects.

Given C, the basis of each site is a small convex problem of its own that needs one product X Cᵀ.
The pass over X that lifts the basis W also gathers WᵀX and WᵀW, which is all that loadings and
errors need afterwards. So the lift is one pass over X, and each sweep of polish is one more. The
problem of a site does not change with its weight ω; sums over sites do: they are WᵀΩX and WᵀΩW.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from icofactor.factorization.design import Design
from icofactor.factorization.quadratic import coordinate_descent, divide
from icofactor.factorization.schemes.base import Scheme
from icofactor.factorization.schemes.projective import length_of_least_error, plus_transpose
from icofactor.factorization.statistics import Statistics
from icofactor.maps.blocks import Arrays, Levelled
from icofactor.maps.maps import transposed_maps
from icofactor.maps.passes import Report, map_strips

# Sweeps over all pairs of parts in which a site divides its mean among them.
MEAN_SWEEPS = 10
# Scalings of the rows of W to the mean map, at most.
MEAN_SCALINGS = 200
# Gradient steps at full resolution where a lift in one pass is not enough.
UNDOMINATED_STEPS = 20
# A lift is enough if the best basis lies at least this far on the way to it from the coarse one.
LEAST_SHARE = 0.7
# Errors that differ by less than this share of the data explained are the same.
ROUNDING = 16 * 2.0**-52


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
        """Return ‖X − WWᵀX‖² (eq. 9), without X."""
        return self.error(self.WX, sq_norm)

    def error(self, C: np.ndarray, sq_norm: float) -> float:
        """Return ‖X − WC‖² = ‖X‖² − 2⟨WᵀX, C⟩ + ⟨WᵀW, CCᵀ⟩, without X."""
        return float(sq_norm - 2 * np.sum(self.WX * C) + np.sum(self.WW * (C @ C.T)))


def weighed(W: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Return ΩW: rows times the weights of their sites."""
    return W if weights is None else W * weights[:, None]


def gram(W: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Return WᵀΩW."""
    return np.asarray(W.T @ weighed(W, weights))


def loadings(
    WX: np.ndarray,
    WW: np.ndarray,
    scheme: Scheme,
    penalty: float,
) -> np.ndarray:
    """Return the loadings C of subjects given WᵀX and WᵀW, by the problem of the scheme."""
    return scheme.loadings_of(WX, WW, penalty)


def shared_loadings(
    WX: np.ndarray,
    shared: np.ndarray,
    whole: np.ndarray,
    scheme: Scheme,
    penalty: float,
) -> np.ndarray:
    """Return the loadings of subjects who lack some sites.

    WᵀX and WᵀW (`shared`) are sums over the sites that they have, `whole` is WᵀW over all. A
    projection has no problem of its own on some sites: the missing values are taken from the least
    squares fit a = `shared`⁻¹WᵀX, which gives the projection of the filled map, `whole` a.
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
    """Return the basis on every site from a solution in design coordinates, as the scheme lifts it.

    Parameters
    ----------
    X : Maps, or array of sites × subjects
    mean : the mean map, if X holds values ≥ 0 and nothing was taken out of them
    polish : steps at full resolution after the lift of a projective scheme, each one pass over X
    """
    G = B.T @ (stats.K @ B)
    sites = design.sites
    if not scheme.projective:
        # As the rows of B weigh under default rules.
        site_weight = sites.n_roots / sites.total_weight
        return lift(
            X,
            C,
            scheme,
            penalty,
            site_weight,
            weights=sites.weights,
            report=report,
        )
    start = Basis(np.asarray(design.matrix @ B), C, G, sites.weights)
    if mean is not None:
        return lift_on_mean(
            X,
            start,
            mean,
            stats.sq_norm,
            polish,
        )
    return lift_parts(
        X,
        start,
        scheme,
        polish,
        report,
    )


def lift(
    X: Any,
    C: np.ndarray,
    scheme: Scheme,
    penalty: float,
    site_weight: float,
    start: np.ndarray | None = None,
    sweeps: int | None = None,
    *,
    G: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    report: Report | None = None,
) -> Basis:
    """Return the basis on every site, given the loadings C, in one pass over X (sites × subjects).

    Each site solves the `site_problem` of the scheme: by default min over w of ‖x − Cᵀw‖² with the
    penalty of the scheme, in which every site weighs `site_weight`; w ≥ 0 unless maps are signed.

    Parameters
    ----------
    start : n_sites × n_d, where the coordinate sweeps begin; None: at the positive part of the
        unpenalised solution
    sweeps : coordinate sweeps; None: the number of the scheme
    G : n_d × n_d, BᵀKB of the coarse basis, for schemes whose `site_problem` uses it
    weights : (n_sites,) how much each site counts in WᵀX and WᵀW
    """
    maps = transposed_maps(X)
    problem = scheme.site_problem(C, G, penalty, site_weight)
    shared = {
        **_orthogonal(problem.linear),
        "A": problem.gram,
        "inverse": np.linalg.pinv(problem.gram, hermitian=True),
        "lasso": problem.lasso,
        "signed": problem.signed,
        "sweeps": scheme.lift_sweeps if sweeps is None else sweeps,
    }
    W = np.empty((maps.n_sites, len(C)))
    WX = np.zeros(C.shape)
    for sites, result in map_strips(
        _lift_strip,
        maps,
        start,
        weights,
        shared=shared,
        report=report,
    ):
        W[sites] = result["site.W"]
        WX += result["sum.WX"]
    return Basis(W, WX, gram(W, weights), weights)


def _lift_strip(
    x: np.ndarray,
    shared: Mapping[str, Any],
    start: np.ndarray | None,
    weights: np.ndarray | None,
) -> Arrays:
    """Return the basis on some sites, and their share of WᵀX."""
    levelled = Levelled.of(x)
    linear = (levelled.times(shared["Q"]) @ shared["R"]).T
    before = shared["inverse"] @ linear if start is None else start.T
    W = coordinate_descent(
        shared["A"],
        linear,
        shared["lasso"],
        shared["signed"],
        before,
        shared["sweeps"],
    )
    W = np.ascontiguousarray(W.T)
    return {"site.W": W, "sum.WX": levelled.sums(weighed(W, weights))}


def _orthogonal(C: np.ndarray) -> dict[str, np.ndarray]:
    """Return Q and R with C = RᵀQ.

    Nearly parallel rows of C would amplify what float32 loses in a product X Cᵀ.
    """
    Q, R = np.linalg.qr(C.T)
    return {"Q": np.ascontiguousarray(Q.T), "R": R}


def lift_parts(
    X: Any,
    start: Basis,
    scheme: Scheme,
    polish: int = 0,
    report: Report | None = None,
) -> Basis:
    """Return the projective basis of deviations on every site, from the coarse one `start`.

    With A, G and C of the coarse solution the stationarity condition S W(2I − G) = W A is a small
    convex problem per site. It is a lift in one pass over X, not a descent; so the answer is the
    best point on the way there from the coarse basis. `polish` projected gradient steps follow,
    each one pass over X.
    """
    lifted = lift(
        X,
        start.WX,
        scheme,
        0.0,
        1.0,
        G=start.WW,
        weights=start.weights,
        report=report,
    )
    if np.abs(start.WX.mean(axis=1)).max() <= 1e-9 * np.abs(start.WX).max():
        # X may be deviations of some subjects from the mean of more (a resample): those from their
        # own mean are meant.
        lifted = replace(lifted, WX=lifted.WX - lifted.WX.mean(axis=1, keepdims=True))
    basis, share = _best_between(start, scaled_to_least_error(lifted))
    # With rough maps, or few subjects, the condition of a solution says little, and steps go the
    # rest of the way.
    return _polished(X, basis, polish if share >= LEAST_SHARE else UNDOMINATED_STEPS + polish)


def lift_on_mean(
    X: Any,
    start: Basis,
    mean: np.ndarray,
    sq_norm: float,
    polish: int = 0,
) -> Basis:
    """Return the projective basis of values ≥ 0 on every site, in three passes over X.

    ‖X − WWᵀX‖² is n‖m − WWᵀm‖², with m the mean map, and what W leaves of the deviations. The first
    outweighs the second by far; so it is taken for a constraint, wᵥᵀμ = mᵥ with μ = Wᵀm at every
    site. How a site divides its mean among the parts is left to the deviations: min ½wᵀAw − wᵀ(2I −
    G)C x̃ over these w ≥ 0, as in `lift_parts`.
    """
    weighted_mean = weighed(mean[:, None], start.weights)[:, 0]
    on_mean = basis_of(X, _rows_to_mean(start.W, mean, weighted_mean), start.weights)
    first = scaled_to_least_error(on_mean)
    if first.projective_error(sq_norm) > start.projective_error(sq_norm):
        # The mean map does not dominate.
        return _polished(X, start, UNDOMINATED_STEPS + polish)
    C = first.WX - first.WX.mean(axis=1, keepdims=True)
    shared = {
        "C": (2 * np.eye(len(C)) - first.WW) @ C,
        "A": C @ C.T,
        "mu": first.W.T @ weighted_mean,
    }
    W = np.empty_like(first.W)
    maps = transposed_maps(X)
    for sites, result in map_strips(
        _divide_mean_strip,
        maps,
        first.W,
        mean,
        shared=shared,
        double=True,
    ):
        W[sites] = result["site.W"]
    divided = basis_of(X, _rows_to_mean(W, mean, weighted_mean), start.weights)
    return _polished(X, _best_between(first, scaled_to_least_error(divided))[0], polish)


def _divide_mean_strip(
    x: np.ndarray,
    shared: Mapping[str, Any],
    start: np.ndarray,
    mean: np.ndarray,
) -> Arrays:
    """Divide the mean of some sites among the parts."""
    # A part without sites takes no share.
    alive = shared["mu"] > 0
    linear = (shared["C"] @ x.T)[alive]
    A = shared["A"][np.ix_(alive, alive)]
    W = np.zeros_like(start)
    W[:, alive] = divide(
        A,
        linear,
        shared["mu"][alive],
        mean,
        start.T[alive],
        MEAN_SWEEPS,
    ).T
    return {"site.W": W}


def _rows_to_mean(
    W: np.ndarray,
    mean: np.ndarray,
    weighted_mean: np.ndarray,
) -> np.ndarray:
    """Return W with its rows scaled so that WWᵀΩm = m, as far as its zeros allow."""
    W = np.array(W, dtype=np.float64)
    mean = np.maximum(mean, 0.0)
    weighted_mean = np.maximum(weighted_mean, 0.0)
    for _ in range(MEAN_SCALINGS):
        reached = W @ (W.T @ weighted_mean)
        ratio = np.divide(mean, reached, out=np.zeros_like(mean), where=reached > 0)
        factor = np.sqrt(ratio)
        W *= factor[:, None]
        if np.abs(factor[mean > 0] - 1).max(initial=0.0) < 1e-9:
            break
    return W


def scaled_to_least_error(basis: Basis) -> Basis:
    """Return the same basis at its best scale, s² = tr A / ⟨G, A⟩; its W is changed in place."""
    A = basis.WX @ basis.WX.T
    size = float(np.sum(basis.WW * A))
    scale = np.sqrt(float(np.trace(A)) / size) if size > 0 else 1.0
    W = np.multiply(basis.W, scale, out=basis.W)
    return Basis(W, basis.WX * scale, basis.WW * scale**2, basis.weights)


def _best_between(start: Basis, end: Basis) -> tuple[Basis, float]:
    """Return the basis of least projective error between two, and where it lies.

    0 is `start` and 1 is `end`, whose W is overwritten.
    """
    change = end.projective_error(0.0) - start.projective_error(0.0)
    if abs(change) <= ROUNDING * float(np.square(start.WX).sum()):
        # Both are the same where every site is a face, and rounding would choose the place between.
        return end, 1.0
    return _moved(start, np.subtract(end.W, start.W, out=end.W), end.WX - start.WX)


def _moved(
    start: Basis,
    step: np.ndarray,
    WX_step: np.ndarray,
) -> tuple[Basis, float]:
    """Move `start` along `step` as far as the projective error falls; `step` is overwritten.

    Returns the basis and how far along the step it lies.
    """
    weighted_step = weighed(step, start.weights)
    A = (start.WX @ start.WX.T, plus_transpose(start.WX @ WX_step.T), WX_step @ WX_step.T)
    G = (start.WW, plus_transpose(start.W.T @ weighted_step), step.T @ weighted_step)
    length = float(length_of_least_error(np, A, G))
    # The step may have weights of its own: as large as the basis.
    del weighted_step
    step *= length
    W = np.add(start.W, step, out=step)
    moved = Basis(W, start.WX + length * WX_step, gram(W, start.weights), start.weights)
    return moved, length


def _polished(
    X: Any,
    basis: Basis,
    n_steps: int,
) -> Basis:
    """Return the basis after projected gradient steps that never raise the error.

    Each is one pass over X.
    """
    maps = transposed_maps(X)
    for _ in range(n_steps):
        shared = {**_orthogonal(basis.WX), "A": basis.WX @ basis.WX.T, "G": basis.WW}
        step = np.empty_like(basis.W)
        WX_step = np.zeros_like(basis.WX)
        for sites, result in map_strips(
            _step_strip,
            maps,
            basis.W,
            basis.weights,
            shared=shared,
        ):
            step[sites] = result["site.step"]
            WX_step += result["sum.WX"]
        basis, _ = _moved(basis, step, WX_step)
    return basis


def _step_strip(
    x: np.ndarray,
    shared: Mapping[str, Any],
    W: np.ndarray,
    weights: np.ndarray | None,
) -> Arrays:
    """Return the step of some sites, and its share of WᵀX; `projective.descend` with D = I."""
    levelled = Levelled.of(x)
    MW = levelled.times(shared["Q"]) @ shared["R"]
    A = shared["A"]
    size = np.where(A.diagonal() > 0, A.diagonal(), np.inf)
    gradient = W @ A + MW @ shared["G"] - 2 * MW
    step = np.maximum(W - gradient / size, 0.0) - W
    return {"site.step": step, "sum.WX": levelled.sums(weighed(step, weights))}


def basis_of(
    X: Any,
    W: np.ndarray,
    weights: np.ndarray | None = None,
) -> Basis:
    """Return a given basis with what loadings need of X, in one pass."""
    maps = transposed_maps(X)
    weighted = weighed(W, weights)
    WX = np.zeros((W.shape[1], maps.n_subjects))
    for _, result in map_strips(product_strip, maps, weighted):
        WX += result["sum.WX"]
    return Basis(W, WX, W.T @ weighted, weights)


def product_strip(
    x: np.ndarray,
    shared: Mapping[str, Any],
    W: np.ndarray,
) -> Arrays:
    """Return the share of some sites in WᵀX."""
    # A Summary reports values that are not finite.
    with np.errstate(invalid="ignore", over="ignore"):
        return {"sum.WX": Levelled.of(x).sums(W)}
