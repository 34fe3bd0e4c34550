"""The lift to full resolution, loadings of new subjects, and the small convex problems behind them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from helpers.problems import relative, small
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.factorization._lift import (
    Basis,
    _best_between,
    basis_of,
    lift,
    lift_on_mean,
    lift_parts,
    loadings,
    scaled_to_least_error,
)
from icofactor.factorization._solve import solve
from icofactor.factorization.methods import METHODS, PAPER_METHODS
from icofactor.factorization.quadratic import coordinate_descent, minimise
from icofactor.factorization.schemes import SCHEMES
from icofactor.factorization.statistics import Statistics
from icofactor.sphere.sites import Sites
from reference import naive

CONVEX = ["DL", "PNNMF", "SPNNMF"]
PENALTY = {"DL": 5.0, "PNNMF": 0.5, "SPNNMF": 0.5}


def fitted(scheme: str) -> tuple[np.ndarray, np.ndarray, float]:
    """X, the loadings of a coarse fit of it, and the weight of a site."""
    problem = small(divided=True)
    method = {"DL": "E-DL"}.get(scheme, f"LE-{scheme}")
    C = solve(problem.stats, method, 4, n_iter=200, random_state=0).C
    return problem.X, C, 20 / len(problem.X)


def cost(A: np.ndarray, rhs: np.ndarray, z: np.ndarray, lasso: float) -> np.ndarray:
    """½ zᵀAz − rᵀz + lasso ‖z‖₁, per column."""
    return 0.5 * (z * (A @ z)).sum(0) - (rhs * z).sum(0) + lasso * abs(z).sum(0)


def assert_optimal(
    A: np.ndarray, rhs: np.ndarray, z: np.ndarray, lasso: float, signed: bool, bound: float
) -> None:
    """The optimality conditions, relative to the right-hand sides."""
    pull = rhs - A @ z
    scale = bound * (abs(rhs).max(axis=0) + lasso)
    if signed:
        assert (abs(np.where(z != 0, pull - lasso * np.sign(z), 0.0)) <= scale).all()
        assert (abs(pull) <= lasso + scale).all()
    else:
        assert (z >= 0).all()
        assert (abs(np.where(z > 0, pull - lasso, 0.0)) <= scale).all()
        assert (pull <= lasso + scale).all()


# ---------------------------------------------------------------- convex problems


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.1, 3.0, 1e4]),
    st.booleans(),
    st.booleans(),
)
def test_minimise_meets_the_optimality_conditions(
    seed: int, n: int, lasso: float, signed: bool, positive_rows: bool
) -> None:
    rng = np.random.default_rng(seed)
    G, Y = rng.standard_normal((12, n)), rng.standard_normal((12, 25))
    if positive_rows:  # like loadings: nearly parallel
        G, Y = abs(G) + 2, abs(Y) + 2
    A, rhs = G.T @ G, G.T @ Y
    assert_optimal(A, rhs, minimise(A, rhs, lasso, signed), lasso, signed, 1e-8)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("lasso", [0.0, 0.5])
def test_singular_problems(lasso: float, signed: bool) -> None:
    """Copies of a component, and components that are zero: there are many solutions; one of them is found."""
    rng = np.random.default_rng(0)
    G = abs(rng.standard_normal((15, 3)))
    G = np.column_stack([G, G[:, 0], np.zeros(15), 2 * G[:, 1]])
    Y = rng.standard_normal((15, 30)) + 1
    A, rhs = G.T @ G, G.T @ Y
    z = minimise(A, rhs, lasso, signed)
    assert np.isfinite(z).all() and (z[4] == 0).all()
    assert_optimal(A, rhs, z, lasso, signed, 1e-8)
    if lasso == 0 and not signed:
        best = np.array([nnls(G, y)[1] ** 2 - y @ y for y in Y.T]) / 2
        np.testing.assert_allclose(cost(A, rhs, z, 0.0), best, rtol=1e-9, atol=1e-9)
    assert (minimise(np.zeros((2, 2)), np.zeros((2, 3)), lasso, signed) == 0).all()


@pytest.mark.parametrize("signed", [False, True])
def test_sweeps_take_the_best_of_each_coordinate(signed: bool) -> None:
    rng = np.random.default_rng(0)
    C = rng.standard_normal((5, 9)) * np.array([1, 1, 1, 1, 0])[:, None]  # a component that died
    A, rhs, lasso = C @ C.T, C @ rng.standard_normal((9, 40)), 0.7
    z = np.array(rng.standard_normal((40, 5)).T)  # as it comes: in the order of sites
    expected = z if signed else np.maximum(z, 0)
    for _ in range(3):
        for j in range(4):
            free = rhs[j] - sum(A[j, i] * expected[i] for i in range(5) if i != j)
            best = (
                np.sign(free) * np.maximum(np.abs(free) - lasso, 0)
                if signed
                else np.maximum(free - lasso, 0)
            )
            expected = np.vstack([expected[:j], best / A[j, j], expected[j + 1 :]])
    expected[4] = 0
    np.testing.assert_allclose(
        coordinate_descent(A, rhs, lasso, signed, z, sweeps=3), expected, atol=1e-12
    )


# ---------------------------------------------------------------- the lift


@pytest.mark.parametrize("strength", [1.0, 50.0])
@pytest.mark.parametrize("scheme", CONVEX)
def test_the_lift_equals_the_reference(scheme: str, strength: float) -> None:
    """Also where the penalty, and with it the weight of a site, is not negligible."""
    X, C, weight = fitted(scheme)
    lam = strength * PENALTY[scheme]
    exact = naive.lift(scheme, X, C, lam, weight)
    basis = lift(X, C, SCHEMES[scheme], lam, weight, sweeps=3000)
    assert relative(basis.W, exact) < 1e-6
    warm = lift(X, C, SCHEMES[scheme], lam, weight, start=basis.W, sweeps=1)
    assert relative(warm.W, exact) < 1e-6
    cost_of = lambda W: naive.objective(
        scheme, X, np.eye(len(X)), W, C, lam, np.full(len(X), weight)
    )
    quick = lift(X, C, SCHEMES[scheme], lam, weight)
    assert cost_of(exact) * (1 - 1e-12) <= cost_of(quick.W) <= cost_of(exact) * (1 + 1e-3)
    assert (quick.W >= 0).all() or scheme == "DL"


@pytest.mark.slow
@pytest.mark.parametrize("method", PAPER_METHODS)
def test_loadings_equal_the_reference(method: str) -> None:
    scheme = METHODS[method].scheme
    problem = small(divided=True)
    rng = np.random.default_rng(2)
    B = solve(problem.stats, method, 4, n_iter=100, random_state=0).B
    W = problem.D @ B
    new = problem.X[:, :6] + 0.2 * rng.random((len(problem.X), 6))
    for lam in (0.0, 20.0):
        C = loadings(W.T @ new, W.T @ W, scheme, lam)
        assert relative(C, naive.transform(scheme.name, W, new, lam)) < 1e-8


# ---------------------------------------------------------------- the projective lift


def coarse_projective(centred: bool, n_iter: int = 300) -> tuple[np.ndarray, Basis, float]:
    problem = small(divided=True)
    X = problem.X - problem.X.mean(axis=1, keepdims=True) if centred else problem.X
    stats = Statistics.from_data(X, problem.design)
    B = solve(stats, "parts" if centred else "LE-PPNMF", 4, n_iter=n_iter, random_state=0).B
    return X, basis_of(X, problem.D @ B), stats.sq_norm


def projective_error(X: np.ndarray, W: np.ndarray) -> float:
    return float(((X - W @ (W.T @ X)) ** 2).sum())


def lifted(X: np.ndarray, start: Basis, sq_norm: float, centred: bool, polish: int) -> Basis:
    if centred:
        return lift_parts(X, start, SCHEMES["parts"], polish)
    return lift_on_mean(X, start, X.mean(axis=1), sq_norm, polish)


@pytest.mark.parametrize("centred", [True, False])
def test_a_lifted_projective_basis_knows_its_products(centred: bool) -> None:
    X, start, sq_norm = coarse_projective(centred)
    basis = lifted(X, start, sq_norm, centred, 1)
    assert (basis.W >= 0).all()
    assert (
        relative(basis.WX, basis.W.T @ X) < 1e-10
        and relative(basis.WW, basis.W.T @ basis.W) < 1e-10
    )
    assert basis.projective_error(sq_norm) == pytest.approx(projective_error(X, basis.W), rel=1e-9)
    best = scaled_to_least_error(start)
    assert projective_error(X, best.W) <= min(
        projective_error(X, start.W), projective_error(X, 1.001 * best.W)
    )


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("n_iter", [0, 5, 300])
def test_the_projective_lift_never_raises_the_error(centred: bool, n_iter: int) -> None:
    X, start, sq_norm = coarse_projective(centred, n_iter)
    errors = [projective_error(X, start.W)]
    errors += [
        projective_error(X, lifted(X, start, sq_norm, centred, polish).W) for polish in range(6)
    ]
    assert (np.diff(errors) <= 1e-12 * sq_norm).all()
    assert errors[-1] < errors[0]


def test_sites_of_the_lift_meet_the_condition_of_a_solution() -> None:
    """S W(2I − G) = W A where W > 0 (eq. 9 is stationary), with A, G and C of the coarse solution."""
    X, start, _ = coarse_projective(True)
    A, linear = start.WX @ start.WX.T, (2 * np.eye(4) - start.WW) @ start.WX
    W = lift(X, start.WX, SCHEMES["parts"], 0.0, 1.0, sweeps=3000, G=start.WW).W
    slope = W @ A - X @ linear.T
    scale = np.abs(X @ linear.T).max()
    assert np.abs(slope[W > 0]).max() < 1e-8 * scale and slope[W == 0].min() > -1e-8 * scale


def test_signed_values_around_zero_are_lifted_without_harm() -> None:
    """Maps whose mean over sites is zero leave a direction free: the lift must not run away along it."""
    X, start, _ = coarse_projective(True)
    X = X - X.mean(axis=0)
    start = scaled_to_least_error(basis_of(X, start.W))
    basis = lift_parts(X, start, SCHEMES["parts"])
    assert basis.projective_error((X**2).sum()) <= start.projective_error((X**2).sum())


# ---------------------------------------------------------------- real data


def test_the_lifted_error_is_near_the_best_there_is(
    real_X: np.ndarray, real_320: Statistics
) -> None:
    """Error over between-subject variance; ten singular vectors of the full data reach 0.328."""
    coarse = solve(real_320, "LE-PNNMF", 10, n_iter=200, random_state=0)
    basis: Basis = lift(real_X, coarse.C, SCHEMES["PNNMF"], coarse.penalty, 20 / len(real_X))
    variance = ((real_X - real_X.mean(axis=1, keepdims=True)) ** 2).sum()
    C = loadings(basis.WX, basis.WW, SCHEMES["PNNMF"], coarse.penalty)
    assert basis.error(C, real_320.sq_norm) <= basis.error(coarse.C, real_320.sq_norm)
    assert 0.328 < basis.error(C, real_320.sq_norm) / variance < 0.36


def test_fit_and_transform_agree_when_there_are_as_many_components_as_subjects() -> None:
    sites = Sites.named("fsaverage3")
    rng = np.random.default_rng(1)
    maps = np.stack([np.exp(3 * (sites.coordinates @ d)) for d in rng.standard_normal((3, 3))])
    Y = rng.gamma(2, size=(12, 3)) @ maps + 0.1 * rng.random((12, 642))
    model = CorticalFactorization(12, method="E-DL", n_starts=2, n_iter=150, tol=0)
    fitted_loadings = model.fit_transform(Y)
    assert (
        np.abs(fitted_loadings - model.transform(Y)).max() <= 1e-5 * np.abs(fitted_loadings).max()
    )


def test_a_lift_that_changes_nothing_is_taken_whole() -> None:
    """Where every site is a face, rounding must not choose a place between."""
    X = small().X - small().X.mean(axis=1, keepdims=True)
    W = np.random.default_rng(0).random((len(X), 3))
    coarse = scaled_to_least_error(basis_of(X, W))
    lifted_basis = replace(coarse, W=coarse.W * (1 + 2.0**-52), WX=coarse.WX * (1 - 2.0**-52))
    assert _best_between(coarse, lifted_basis) == (lifted_basis, 1.0)
    larger = replace(coarse, W=coarse.W * 1.1, WX=coarse.WX * 1.1, WW=coarse.WW * 1.21)
    assert _best_between(coarse, larger)[1] == 0


def test_nearly_parallel_loadings_are_lifted_to_the_end() -> None:
    """More parts than there are: fewer sweeps left sites unsolved, and 20 passes over X had to mend them."""
    rng = np.random.default_rng(0)
    C = rng.standard_normal((4, 80))
    C = np.vstack([C, C + 0.1 * rng.standard_normal((4, 80))])
    X = np.maximum(rng.standard_normal((100, 8)), 0) @ C * 0.05 + 0.3 * rng.standard_normal(
        (100, 80)
    )
    scheme, G = METHODS["parts"].scheme, 0.8 * np.eye(8)
    problem = scheme.site_problem(C, G, 0.0, 1.0)
    rhs = problem.linear @ X.T
    best = minimise(problem.gram, rhs, 0.0, signed=False)
    lifted_W = lift(X, C, scheme, 0.0, 1.0, G=G).W.T
    least_cost = cost(problem.gram, rhs, best, 0.0).sum()
    assert 0 <= cost(problem.gram, rhs, lifted_W, 0.0).sum() - least_cost < 2e-4 * abs(least_cost)
