"""Default rules: the objective never rises, whatever the method, the data, their scale and the divisions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from helpers.marking import slow_but
from helpers.problems import ALL_METHODS, masked_sites, positive_data, small
from icofactor.factorization._multistart import multistart
from icofactor.factorization._refine import Refinement, refine
from icofactor.factorization._solve import Solution, solve
from icofactor.factorization.design import Design
from icofactor.factorization.methods import METHODS, PAPER_METHODS
from icofactor.factorization.sources import Data, Pyramid, Source
from icofactor.factorization.statistics import Statistics


def assert_never_rises(objectives: np.ndarray, sq_norm: float) -> None:
    assert np.isfinite(objectives).all()
    rise = np.diff(objectives, axis=-1).max()
    assert rise <= 1e-12 * sq_norm, f"rose by {rise / sq_norm:.3g} of ‖X‖²"
    assert (objectives[..., -1] < objectives[..., 0]).all(), "nothing was gained at all"


# ---------------------------------------------------------------- fixed designs


def updates(method: str) -> int:
    """An update of coordinate descent is several sweeps: it ends after a few dozen."""
    return 150 if METHODS[method].scheme.sweeps else 1000


@pytest.mark.parametrize("kind", slow_but(["partition", "exponential", "smooth"], "partition"))
@pytest.mark.parametrize("method", slow_but(ALL_METHODS, *PAPER_METHODS))
def test_objective_never_rises_on_random_data(method: str, kind: str) -> None:
    stats = small(kind, divided=True).stats
    run = multistart(stats, method, 4, n_starts=3, n_iter=updates(method), random_state=0)
    assert run.objectives.shape == (3, 1 + updates(method))
    assert_never_rises(run.objectives, stats.sq_norm)


@pytest.mark.parametrize("method", ALL_METHODS)
def test_objective_never_rises_on_real_data(method: str, real_20: Statistics) -> None:
    run = multistart(real_20, method, 10, n_starts=5, n_iter=updates(method), random_state=0)
    assert_never_rises(run.objectives, real_20.sq_norm)


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL_METHODS)
def test_objective_never_rises_from_a_start_with_zeros(method: str) -> None:
    stats = small("exponential").stats
    rng = np.random.default_rng(0)
    B = rng.random((20, 3)) * (rng.random((20, 3)) < 0.5)
    C = rng.random((3, 12)) * (rng.random((3, 12)) < 0.5)
    B[:, 2], C[2] = 0.0, 0.0
    solution = solve(stats, method, start=(B / 50, C), n_iter=200)
    assert_never_rises(solution.objective[None], stats.sq_norm)


# ---------------------------------------------------------------- divisions


def assert_divisions_change_nothing(
    source: Source, design: Design, stats: Statistics, first: Solution, schedule: Refinement
) -> None:
    """The same refinement step by step: right after each division E and the objective are those before it."""
    for _ in range(schedule.steps):
        divided = refine(
            source,
            design,
            stats,
            first,
            Refinement(1, schedule.faces, 0, schedule.indicator, "copy"),
        )
        assert divided.design.n_columns > design.n_columns
        again = solve(
            divided.stats,
            first.method,
            start=(divided.solution.B, divided.solution.C),
            n_iter=schedule.n_iter,
            penalty=first.penalty,
        )
        assert abs(again.errors[0] - first.error) <= 1e-10 * first.error
        assert abs(again.objective[0] - first.objective[-1]) <= 1e-12 * stats.sq_norm
        design, stats, first = divided.design, divided.stats, again


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL_METHODS)
def test_objective_never_rises_through_divisions(method: str) -> None:
    sites = masked_sites()
    X = positive_data(sites.coordinates, 12)
    design = Design(sites)
    pyramid = Pyramid.from_data(X, sites)
    stats = pyramid.statistics(design)
    first = multistart(stats, method, 4, n_starts=3, n_iter=60, random_state=0)
    refined = refine(pyramid, design, stats, first, Refinement(8, faces=5, n_iter=25))
    assert refined.solution.penalty == first.penalty
    assert refined.solution.objective.shape == (1 + 60 + 8 * 25,)
    assert_never_rises(refined.solution.objective[None], stats.sq_norm)
    assert refined.solution.error < first.error
    assert_divisions_change_nothing(pyramid, design, stats, first, Refinement(3, 5, 15))
    data = Data(X, sites)
    assert_divisions_change_nothing(data, design, stats, first, Refinement(2, 3, 15, "projected"))


# ---------------------------------------------------------------- the warning


def tenth_of_a_percent() -> Statistics:
    problem = small()
    return Statistics.from_data(1e-3 * problem.X, problem.design)


@pytest.mark.parametrize("call", [solve, multistart])
@pytest.mark.parametrize("method", ALL_METHODS)
def test_a_penalty_that_dwarfs_the_data_is_warned_of(
    method: str, call: Callable[..., Solution]
) -> None:
    """The literal penalties of paper rules are too large for X·10⁻³; default ones follow X."""
    scheme = METHODS[method].scheme
    tiny = tenth_of_a_percent()
    # Warnings are errors: here there is none.
    call(small().stats, method, 3, n_iter=1)
    call(tiny, method, 3, n_iter=1)
    if scheme.projective:
        return
    call(tiny, method, 3, n_iter=1, penalty=1e-12)
    literal = scheme.paper_penalty(float(np.linalg.norm(tiny.L)))
    settings = {"rules": "paper"} if scheme.in_paper else {"penalty": literal}
    with pytest.warns(UserWarning, match="penalty"):
        call(tiny, method, 3, n_iter=1, **settings)
    with pytest.warns(UserWarning, match="penalty"):
        call(small().stats, method, 3, n_iter=1, penalty=1e6)


@pytest.mark.parametrize("n_subjects", [12, 40])
def test_deviations_raise_no_false_alarm(n_subjects: int) -> None:
    """Their mean map is zero: a penalty is measured against what subjects differ by."""
    problem = small(n_subjects=n_subjects)
    X = problem.X - problem.X.mean(axis=1, keepdims=True)
    z_scores = Statistics.from_data(X / X.std(axis=1, keepdims=True), problem.design)
    for penalty in ("paper", 0.5):
        solve(z_scores, "DL", 3, n_iter=1, penalty=penalty, random_state=0)
    with pytest.warns(UserWarning, match="penalty"):
        solve(z_scores, "DL", 3, n_iter=1, penalty=1e3, random_state=0)


def test_a_number_that_was_the_penalty_of_larger_data_is_warned_of() -> None:
    """Not so large that the strongest component suffers, but the others do."""
    problem = small()
    penalty = solve(problem.stats, "SPNNMF", 3, n_iter=1, random_state=0).penalty
    smaller = [Statistics.from_data(c * problem.X, problem.design) for c in (0.3, 0.1)]
    solve(smaller[0], "SPNNMF", 3, n_iter=1, penalty=penalty)
    with pytest.warns(UserWarning, match="penalty"):
        solve(smaller[1], "SPNNMF", 3, n_iter=1, penalty=penalty)
