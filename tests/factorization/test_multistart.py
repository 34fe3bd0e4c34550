"""Many starts: reproducible whatever the batches, the best one kept, halving, and each run's own end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from helpers.problems import ALL_METHODS, METHODS_AND_RULES, small
from icofactor.factorization import _multistart as manystarts
from icofactor.factorization._multistart import multistart
from icofactor.factorization._solve import solve
from icofactor.factorization.methods import METHODS
from icofactor.factorization.starts import seeds_of, stream
from icofactor.factorization.statistics import Statistics
from icofactor.factorization.update import TOL_LOOKBACK, TOL_WINDOW

# BLAS adds in another order when a product has more rows, and a run amplifies that: equal to rounding, not to the bit
SAME = 1e-12


def assert_same_paths(paths: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(paths, expected, rtol=SAME)


# ---------------------------------------------------------------- reproducibility


@pytest.mark.slow
@pytest.mark.parametrize(("method", "rules"), METHODS_AND_RULES)
def test_a_start_depends_on_its_number_only(
    method: str, rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stats = small("exponential").stats
    run = lambda n: multistart(stats, method, 3, n_starts=n, n_iter=40, rules=rules, random_state=5)
    seven = run(7)
    np.testing.assert_array_equal(run(7).B, seven.B)
    assert len(np.unique(seven.objectives[:, 0])) == 7, "starts differ from each other"
    assert_same_paths(run(3).objectives, seven.objectives[:3])
    for batch_bytes in (1, 3 * 10 * 8 * 3 * (12 + 20)):  # one start at a time; three
        monkeypatch.setattr(manystarts, "BATCH_BYTES", batch_bytes)
        parts = run(7)
        assert_same_paths(parts.objectives, seven.objectives)
        assert parts.best_start == seven.best_start
        np.testing.assert_allclose(parts.B, seven.B, rtol=1e-9, atol=1e-14 * abs(seven.B).max())


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL_METHODS)
def test_solve_makes_the_first_start(method: str) -> None:
    stats = small().stats
    four = multistart(stats, method, 3, n_starts=4, n_iter=40, random_state=0)
    first = solve(stats, method, 3, n_iter=40, random_state=0)
    assert_same_paths(first.objective, four.objectives[0])
    alone = multistart(stats, method, 3, n_starts=1, n_iter=40, random_state=0)
    np.testing.assert_array_equal(alone.objectives[0], first.objective)
    np.testing.assert_array_equal(alone.B, first.B)


def test_every_kind_of_seed() -> None:
    stats = small().stats

    def start(seed: object) -> np.ndarray:
        return solve(stats, "PNNMF", 3, n_iter=0, random_state=seed).B

    np.testing.assert_array_equal(start(3), start(np.int64(3)))
    np.testing.assert_array_equal(start(3), start(np.random.SeedSequence(3)))
    for kind in (np.random.default_rng, np.random.RandomState):
        np.testing.assert_array_equal(start(kind(3)), start(kind(3)))
    generator = np.random.default_rng(3)
    assert (start(generator) != start(generator)).any(), "a generator moves on"
    assert (start(None) != start(None)).any()
    assert (start(3) != start(4)).any()
    children = np.random.SeedSequence(3).spawn(2)
    assert (start(children[0]) != start(children[1])).any()
    seeds = seeds_of(3)
    assert stream(seeds, 4).random() == stream(seeds, 4).random() != stream(seeds, 5).random()


# ---------------------------------------------------------------- the best


@pytest.mark.parametrize("method", ALL_METHODS)
def test_the_best_has_the_smallest_objective(method: str) -> None:
    best = multistart(small().stats, method, 3, n_starts=8, n_iter=30, random_state=1)
    assert best.n_starts == 8 and best.objectives.shape == (8, 31)
    np.testing.assert_array_equal(best.final_objectives, best.objectives[:, -1])
    assert best.best_start == np.argmin(best.final_objectives)
    np.testing.assert_array_equal(best.objective, best.objectives[best.best_start])
    again = solve(small().stats, method, start=(best.B, best.C), n_iter=0)
    assert again.objective[0] == pytest.approx(best.final_objectives.min(), rel=1e-10)
    np.testing.assert_array_equal(best.start_n_iter, 30)


def test_a_start_that_diverges_does_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under paper rules some starts of dictionary learning can diverge; the others go on."""
    from icofactor.factorization.schemes.dictionary import DictionaryLearning

    usual = DictionaryLearning.draw

    def draw(
        self: DictionaryLearning, rng: np.random.Generator, *arguments: object
    ) -> tuple[np.ndarray, np.ndarray]:
        B, C = usual(self, rng, *arguments)  # type: ignore[arg-type]
        return (1e6 * B, 1e6 * C) if abs(B[0, 0]) > 0.5 else (B, C)

    stats = small().stats
    sane = multistart(stats, "DL", 3, n_starts=6, n_iter=20, rules="paper", random_state=0)
    monkeypatch.setattr(DictionaryLearning, "draw", draw)
    with np.errstate(all="ignore"):
        mixed = multistart(stats, "DL", 3, n_starts=6, n_iter=20, rules="paper", random_state=0)
    lost = np.isinf(mixed.final_objectives)
    assert 0 < lost.sum() < 6
    assert not lost[mixed.best_start] and np.isfinite(mixed.B).all()
    assert_same_paths(mixed.objectives[~lost], sane.objectives[~lost])
    assert (mixed.start_n_iter[lost] < 20).all()


# ---------------------------------------------------------------- halving


# Not E-PPNMF and LE-PPNMF: from this seed halving ends 1.2e-3 and 1.3e-3 above the best of all
# starts. The first half is dropped after 62 updates, perhaps while they are on their plateau.
@pytest.mark.parametrize("method", ["E-DL", "PNNMF", "LE-PNNMF", "LE-SPNNMF", "PPNMF"])
def test_halving_finds_as_good_a_minimum_with_fewer_updates(
    method: str, real_20: Statistics
) -> None:
    settings = {"n_starts": 16, "n_iter": 1000, "random_state": 0}
    full = multistart(real_20, method, 10, **settings)
    halved = multistart(real_20, method, 10, halving=True, **settings)
    n_made = halved.start_n_iter
    np.testing.assert_array_equal(np.sort(n_made), [62] * 8 + [125] * 4 + [250] * 2 + [500, 1000])
    assert halved.final_objectives.min() <= full.final_objectives.min() * (1 + 1e-3)
    dropped = n_made == 62
    assert halved.objectives[~dropped, 62].max() <= halved.objectives[dropped, 62].min()
    for path, full_path, n in zip(halved.objectives, full.objectives, n_made, strict=True):
        # Later on rounding decides restarts.
        same = slice(min(n, 125) + 1)
        np.testing.assert_allclose(path[same], full_path[same], rtol=1e-7)
        assert (path[n:] == path[n]).all()


# ---------------------------------------------------------------- tol


def is_settled(path: np.ndarray, t: int, tol: float, plateau: bool) -> bool:
    """It fell by no more than tol over ten updates, and where runs begin on a plateau its steps shrank as well."""
    now = path[t - TOL_WINDOW] - path[t]
    then = path[t - TOL_LOOKBACK - TOL_WINDOW] - path[t - TOL_LOOKBACK] if plateau else np.inf
    shrunk = now <= 0.9 * then or now <= 1e-4 * tol * abs(path[t])
    return bool(now <= tol * abs(path[t]) and shrunk)


@pytest.mark.slow
@pytest.mark.parametrize("method", ALL_METHODS)
def test_tol_stops_early_where_it_says(method: str) -> None:
    stats, tol = small().stats, 1e-3
    stopped = solve(stats, method, 3, n_iter=2000, random_state=0, tol=tol)
    full = solve(
        stats, method, 3, n_iter=stopped.n_iter, random_state=0
    )  # it could not have ended later
    assert stopped.converged and not full.converged
    plateau = METHODS[method].scheme.plateau
    first = METHODS[method].scheme.first_look
    assert first == {"CD-PNNMF": 50, "parts": 20}.get(method, 100)
    assert first <= stopped.n_iter < 2000
    path = full.objective
    assert stopped.n_iter == next(
        t for t in range(first, 2000) if is_settled(path, t, tol, plateau)
    )
    np.testing.assert_array_equal(stopped.objective, path)


@pytest.mark.slow
def test_of_many_hard_starts_the_best_are_run_and_the_best_of_them_to_tol() -> None:
    stats = small("partition").stats
    best = multistart(stats, "parts", 3, n_starts=30, n_iter=500, tol=1e-5, random_state=0)
    ran = best.start_n_iter > 0
    assert ran.sum() == 10
    assert best.objectives[ran, 0].max() <= best.objectives[~ran, 0].min()
    for path, n_made in zip(best.objectives, best.start_n_iter, strict=True):
        assert (path[n_made:] == path[n_made]).all() and (
            np.diff(path) <= 1e-12 * abs(path[0])
        ).all()
    assert best.converged and best.n_iter == best.start_n_iter[best.best_start]
    assert best.final_objectives.argmin() == best.best_start
    now = best.objective[-11] - best.objective[-1]
    assert now <= 1e-5 * best.objective[-1]


@pytest.mark.parametrize("call", [solve, multistart])
def test_tol_not_reached_is_warned_of(call: Any) -> None:
    with pytest.warns(ConvergenceWarning):
        run = call(small().stats, "PNNMF", 3, n_iter=120, tol=1e-14, random_state=0)
    assert run.n_iter == 120 and not run.converged


# Of parts, runs that are not the best end at ten times tol. PPNMF without extrapolation does not
# settle in 1500 updates.
ENDING_ALONE = [
    name for name in ALL_METHODS if name != "PPNMF" and METHODS[name].scheme.n_finished is None
]


@pytest.mark.slow
@pytest.mark.parametrize("method", ENDING_ALONE)
def test_tol_ends_each_run_by_itself(method: str) -> None:
    """The answer of a start does not depend on how long the others of its batch go on."""
    stats = small("exponential").stats
    # Coordinate descent meets 1e-5 before the first update at which runs may end.
    k, tol = {"CD-PNNMF": (5, 1e-8), "CD-SPNNMF": (3, 1e-9)}.get(method, (3, 1e-5))
    settings = {"n_iter": 2500, "tol": tol, "random_state": 0}
    five = multistart(stats, method, k, n_starts=5, **settings)
    assert len(np.unique(five.start_n_iter)) > 1, "they end together, and nothing is tested"
    assert five.n_iter == five.start_n_iter[five.best_start]
    for path, n in zip(five.objectives, five.start_n_iter, strict=True):
        assert (path[n:] == path[n]).all()
    alone = solve(stats, method, k, **settings)
    assert alone.n_iter == five.start_n_iter[0]
    np.testing.assert_allclose(alone.objective, five.objectives[0, : alone.n_iter + 1], rtol=1e-9)
