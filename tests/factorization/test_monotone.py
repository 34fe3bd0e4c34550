"""Default rules: the objective never rises, whatever the method, the data, their scale and the divisions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from helpers.marking import slow_but
from helpers.problems import ALL_METHODS, Small, masked_sites, positive_data, small
from icofactor.factorization._multistart import multistart
from icofactor.factorization._refine import Refinement, refine
from icofactor.factorization._solve import Solution, solve
from icofactor.factorization.design import Design
from icofactor.factorization.methods import METHODS, PAPER_METHODS
from icofactor.factorization.sources import Data, Pyramid, Source
from icofactor.factorization.statistics import Statistics
from icofactor.sphere.sites import Sites

SCALES = [1e-3, 1.0, 1e3]


def updates(method: str, scale: float = 1.0) -> int:
    """An update of coordinate descent is several sweeps: it ends after a few dozen.

    Default penalties follow the data: other scales make the same run but for rounding, and a quarter of it shows that.
    """
    return (150 if METHODS[method].scheme.sweeps else 1000) // (1 if scale == 1 else 4)


def assert_never_rises(objectives: np.ndarray, sq_norm: float) -> None:
    assert np.isfinite(objectives).all()
    rise = np.diff(objectives, axis=-1).max()
    assert rise <= 1e-12 * sq_norm, f"rose by {rise / sq_norm:.3g} of ‖X‖²"
    assert (objectives[..., -1] < objectives[..., 0]).all(), "nothing was gained at all"


def scaled(problem: Small, scale: float) -> Statistics:
    return Statistics.from_data(scale * problem.X, problem.design)


# ---------------------------------------------------------------- fixed designs


@pytest.mark.parametrize("scale", slow_but(SCALES, 1.0))
@pytest.mark.parametrize("kind", slow_but(["partition", "exponential", "smooth"], "partition"))
@pytest.mark.parametrize("method", slow_but(ALL_METHODS, *PAPER_METHODS))
def test_objective_never_rises_on_random_data(method: str, kind: str, scale: float) -> None:
    stats = scaled(small(kind, divided=True), scale)
    found = multistart(stats, method, 4, n_starts=3, n_iter=updates(method, scale), random_state=0)
    assert found.objectives.shape == (3, 1 + updates(method, scale))
    assert_never_rises(found.objectives, stats.sq_norm)


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("method", ALL_METHODS)
def test_objective_never_rises_on_noise(method: str, scale: float) -> None:
    """Uniform noise without structure, with zeros in it."""
    rng = np.random.default_rng(5)
    design = small().design
    X = scale * rng.random((design.sites.n, 12)) * (rng.random((design.sites.n, 12)) < 0.5)
    stats = Statistics.from_data(X, design)
    found = multistart(stats, method, 5, n_starts=3, n_iter=updates(method, scale), random_state=0)
    assert_never_rises(found.objectives, stats.sq_norm)


@pytest.fixture(scope="module")
def real_scaled(real_X: np.ndarray, left_faces: Sites) -> dict[float, Statistics]:
    """Statistics on the 20 root faces, of the real data at each scale."""
    of = lambda scale: Pyramid.from_data(scale * real_X, left_faces, level=0).statistics(
        Design(left_faces)
    )
    return {scale: of(scale) for scale in SCALES}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("method", ALL_METHODS)
def test_objective_never_rises_on_real_data(
    method: str, scale: float, real_scaled: dict[float, Statistics]
) -> None:
    stats = real_scaled[scale]
    found = multistart(stats, method, 10, n_starts=5, n_iter=updates(method, scale), random_state=0)
    assert_never_rises(found.objectives, stats.sq_norm)


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL_METHODS)
def test_objective_never_rises_from_a_start_with_zeros(method: str) -> None:
    stats = small("exponential").stats
    rng = np.random.default_rng(0)
    B = rng.random((20, 3)) * (rng.random((20, 3)) < 0.5)
    C = rng.random((3, 12)) * (rng.random((3, 12)) < 0.5)
    B[:, 2], C[2] = 0.0, 0.0
    found = solve(stats, method, start=(B / 50, C), n_iter=200)
    assert_never_rises(found.objective[None], stats.sq_norm)


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
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("method", ALL_METHODS)
def test_objective_never_rises_through_divisions(method: str, scale: float) -> None:
    sites = masked_sites()
    X = scale * positive_data(sites.coordinates, 12)
    design, pyramid = Design(sites), Pyramid.from_data(X, sites)
    stats = pyramid.statistics(design)
    first = multistart(stats, method, 4, n_starts=3, n_iter=60, random_state=0)
    steps = 8 if scale == 1 else 2
    refined = refine(pyramid, design, stats, first, Refinement(steps, faces=5, n_iter=25))
    assert refined.solution.penalty == first.penalty
    assert refined.solution.objective.shape == (1 + 60 + steps * 25,)
    assert_never_rises(refined.solution.objective[None], stats.sq_norm)
    assert refined.solution.error < first.error
    three, two = (3, 2) if scale == 1 else (1, 1)
    assert_divisions_change_nothing(pyramid, design, stats, first, Refinement(three, 5, 15))
    assert_divisions_change_nothing(
        Data(X, sites), design, stats, first, Refinement(two, 3, 15, "projected")
    )


@pytest.mark.parametrize("method", ALL_METHODS)
def test_objective_never_rises_through_divisions_of_real_data(
    method: str, real_pyramid: Pyramid, real_20: Statistics
) -> None:
    design = Design(real_pyramid.sites)
    first = multistart(real_20, method, 10, n_starts=3, n_iter=200, random_state=0)
    refined = refine(real_pyramid, design, real_20, first, Refinement(steps=6, faces=5, n_iter=20))
    assert_never_rises(refined.solution.objective[None], real_20.sq_norm)
    assert refined.solution.error < 0.95 * first.error
    assert_divisions_change_nothing(real_pyramid, design, real_20, first, Refinement(2, 5, 10))


# ---------------------------------------------------------------- the warning


@pytest.mark.parametrize("call", [solve, multistart])
@pytest.mark.parametrize("method", ALL_METHODS)
def test_a_penalty_that_dwarfs_the_data_is_warned_of(
    method: str, call: Callable[..., Solution]
) -> None:
    """The literal penalties of paper rules are too large for X·10⁻³; default ones follow X. PPNMF has none."""
    tiny, usual, scheme = scaled(small(), 1e-3), small().stats, METHODS[method].scheme
    more = {} if call is solve else {"n_starts": 1}
    run = lambda stats, **given: call(stats, method, 3, n_iter=1, **given, **more)
    run(usual)  # warnings are errors: there is none
    run(tiny)
    if scheme.projective:
        return
    message = r"penalty [\d.e-]+ dwarfs the data: shrinking the strongest component alone costs [\d.e+]+ times.*larger"
    literal = scheme.paper_penalty(float(np.linalg.norm(tiny.L)))
    with pytest.warns(UserWarning, match=message):
        run(tiny, **({"rules": "paper"} if scheme.in_paper else {"penalty": literal}))
    run(tiny, penalty=0.0)
    run(tiny, penalty=1e-12)
    with pytest.warns(UserWarning, match="penalty 1e[+]06 dwarfs the data"):
        run(usual, penalty=1e6)


@pytest.mark.parametrize("n_subjects", [12, 40])
def test_deviations_raise_no_false_alarm(n_subjects: int) -> None:
    """Their mean map is zero: a penalty is measured against what subjects differ by."""
    problem = small(n_subjects=n_subjects)
    X = problem.X - problem.X.mean(axis=1, keepdims=True)
    z_scores = Statistics.from_data(X / X.std(axis=1, keepdims=True), problem.design)
    for penalty in ("paper", 0.5):
        solve(z_scores, "DL", 3, n_iter=1, penalty=penalty, random_state=0)
    with pytest.warns(UserWarning, match="dwarfs the data"):
        solve(z_scores, "DL", 3, n_iter=1, penalty=1e3, random_state=0)


@pytest.mark.parametrize("call", [solve, multistart])
def test_a_number_that_was_the_penalty_of_larger_data_is_warned_of(
    call: Callable[..., Solution],
) -> None:
    """Not so large that the strongest component suffers, but the others do."""
    problem = small()
    penalty = solve(problem.stats, "SPNNMF", 3, n_iter=1, random_state=0).penalty
    more = {"n_iter": 1, "random_state": 0} | ({} if call is solve else {"n_starts": 1})
    call(
        scaled(problem, 0.3), "SPNNMF", 3, penalty=penalty, **more
    )  # warnings are errors: there is none
    with pytest.warns(
        UserWarning, match=r"is 32 times the usual one .* penalty='paper', which is relative"
    ):
        call(scaled(problem, 0.1), "SPNNMF", 3, penalty=penalty, **more)


def test_a_dwarfed_fit_is_zero() -> None:
    """What the warning says: the sparse schemes end at nothing."""
    tiny = scaled(small(), 1e-3)
    with pytest.warns(UserWarning, match="will tend to zero"):
        found = solve(tiny, "SPNNMF", 3, n_iter=1000, penalty=0.5, random_state=0)
    assert found.error > 0.99 * tiny.sq_norm
