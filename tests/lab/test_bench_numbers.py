"""The functions of the bench where a silent error would falsify a published number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from icofactor.estimator.estimator import CorticalFactorization
from icofactor.factorization._solve import Course, iterate
from icofactor.factorization.methods import METHODS, PAPER_METHODS, method_named
from icofactor_lab.bench import growth, solvers, time_to_error
from icofactor_lab.bench.settings import QUICK, Bench
from icofactor_lab.bench.solvers import Point, Solver
from icofactor_lab.bench.time_to_error import Record, measure, table_of
from icofactor_lab.bench.updates import operations_of_update, plain_loop, prepared, statistics
from icofactor_lab.common import objective
from icofactor_lab.common.data import Dataset, real_thickness, simulate_maps, simulated
from icofactor_lab.common.objective import between_subject_variance, full_error, subject_gram, svd_floor, time_to

pytestmark = pytest.mark.slow
MARKS = (1, 10, 20)
ALL = {solver.name: solver for solver in solvers.solvers(fit_updates=15)}


@pytest.fixture
def Xs() -> np.ndarray:
    return np.random.default_rng(0).random((7, 50), dtype=np.float32)


@pytest.fixture(scope="module")
def data() -> Dataset:
    return simulated(2, 24, n_components=4)


def bench(repeats: int = 1, budget: float = 60.0, tell: Any = lambda line: None) -> Bench:
    return Bench(QUICK, repeats, 1, budget, tell)


# ---------------------------------------------------------------- the objective


@pytest.mark.parametrize("block", [7, 50, 8192])
def test_error_is_the_squared_residual(Xs: np.ndarray, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "BLOCK", block)
    rng = np.random.default_rng(1)
    W, C = rng.random((50, 3)), rng.random((3, 7))
    expected = sum((float(Xs[s, i]) - W[i] @ C[:, s]) ** 2 for i in range(50) for s in range(7))
    np.testing.assert_allclose(full_error(Xs, W, C), expected, rtol=1e-12)
    np.testing.assert_allclose(full_error(Xs, W.astype(np.float32), C), expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"W \(50, 3\) and C \(7, 3\) do not factorize sites × subjects \(50, 7\)"):
        full_error(Xs, W, C.T)


def test_nothing_undercuts_the_svd(Xs: np.ndarray) -> None:
    U, s, Vt = np.linalg.svd(Xs.T.astype(np.float64), full_matrices=False)
    floor = svd_floor(subject_gram(Xs), 3)
    np.testing.assert_allclose(floor, (s[3:] ** 2).sum(), rtol=1e-10)
    np.testing.assert_allclose(floor, full_error(Xs, U[:, :3] * s[:3], Vt[:3]), rtol=1e-10)


def test_variance_is_about_the_sites_means(Xs: np.ndarray) -> None:
    X = Xs.astype(np.float64)
    expected = ((X - X.mean(axis=0)) ** 2).sum()
    np.testing.assert_allclose(between_subject_variance(subject_gram(Xs)), expected, rtol=1e-10)


def test_time_to_takes_the_first_point_that_is_low_enough() -> None:
    path = [(1.0, 10.0), (2.0, 5.0), (3.0, 4.0)]
    assert [time_to(path, error) for error in (5.0, 20.0, 3.9)] == [2.0, 1.0, np.inf]
    assert time_to([], 1.0) == np.inf


def test_the_exponent_of_a_power_law() -> None:
    x = [1.0, 3.0, 10.0]
    np.testing.assert_allclose(growth.exponent(x, [2 * v**1.7 for v in x]), 1.7)


# ---------------------------------------------------------------- data


def test_simulated_data_are_what_solvers_want() -> None:
    data = simulated(3, 9)
    assert data.Xs.shape == (9, 1280) and data.sites.n == 1280 and data.size == "1280 × 9"
    assert data.Xs.dtype == np.float32 and data.Xs.flags.c_contiguous and data.Xs.min() > 0
    np.testing.assert_array_equal(simulated(3, 9).Xs, data.Xs)
    assert abs(simulated(3, 9, random_state=1).Xs - data.Xs).max() > 0.1


def test_simulated_data_vary_between_subjects_about_as_real_thickness_does() -> None:
    data = simulated(4, 60)
    assert 0.004 < data.variance / data.sq_norm < 0.02
    assert 0.05 < data.floor / data.variance < 0.6


def test_other_points_sample_the_same_functions_and_other_parts_the_same_structure() -> None:
    coarse, fine = simulated(3, 5, 3), simulated(5, 5, 3)
    means = fine.Xs.reshape(5, 1280, 16).mean(axis=2)  # faces are in quadtree order
    residual = (coarse.Xs - means) - (coarse.Xs - means).mean()
    assert residual.std() < 0.2 * coarse.Xs.std(axis=0).mean()
    first, second = (simulate_maps(coarse.sites.coordinates, 40, 3, smooth=0, part=i) for i in range(2))
    assert abs(first - second).max() > 0.1
    space = np.linalg.svd(first, full_matrices=False)[2][:4]  # three regions, and a spare one
    inside = second @ space.T @ space
    assert ((second - inside) ** 2).sum() < 1.2 * 0.02**2 * second.size


def test_real_data(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = real_thickness(20)
    assert isinstance(data, Dataset)
    assert data.Xs.shape == (20, 20480) and data.Xs.flags.c_contiguous
    assert 0.005 < data.variance / data.sq_norm < 0.02
    monkeypatch.delenv("ICOFACTOR_TEST_DATA")
    assert real_thickness() is None


# ---------------------------------------------------------------- updates


def test_operations_of_the_papers_problem() -> None:
    terms = operations_of_update("PNNMF", "paper", 20, 10, 100)
    assert terms["C L"] == terms["BᵀLᵀ"] == 2 * 100 * 20 * 10
    assert terms["CCᵀ"] == 100 * 10 * 11  # one triangle: 55 products of 2 × 100
    assert terms["K B"] == 2 * 20 * 20 * 10
    assert sum(terms.values()) == 130_600
    assert sum(operations_of_update("PPNMF", "paper", 20, 10, 100).values()) == 110_800


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_has_a_count_and_extrapolation_is_not_in_it(method: str) -> None:
    for rules in ("paper", "default"):
        dense = operations_of_update(method, rules, 20, 10, 100)
        assert all(n > 0 and isinstance(n, int) for n in dense.values())
        assert sum(operations_of_update(method, rules, 20, 10, 100, diagonal=True).values()) < sum(dense.values())
        if method in PAPER_METHODS:
            assert dense == operations_of_update(method_named(method).scheme.name, rules, 20, 10, 100)


def test_the_plain_loop_makes_the_papers_updates() -> None:
    p, state = prepared(statistics(9, level=2), "PNNMF", "paper", 2)
    run = iterate(p, method_named("PNNMF"), state, Course(7))
    B, C = plain_loop(p, state.B[1], state.C[1], 7)
    np.testing.assert_allclose(B, run.state.B[1], rtol=1e-9)
    np.testing.assert_allclose(C, run.state.C[1], rtol=1e-9)


# ---------------------------------------------------------------- solvers


def naive_error(data: Dataset, point: Point) -> float:
    X = data.Xs.T.astype(np.float64)
    return float(((X - np.asarray(point.W, dtype=np.float64) @ np.asarray(point.C, dtype=np.float64)) ** 2).sum())


@pytest.mark.parametrize("name", ALL)
def test_the_error_of_each_point_is_that_of_its_factors(name: str, data: Dataset) -> None:
    solver = ALL[name]
    if (why := solver.why_not(data)) is not None:
        pytest.skip(why)
    (record,) = measure(data, [solver], MARKS, bench())
    assert record.failed is None
    points = list(solver.path(data, 0, 1, MARKS))
    assert len(points) == len(record.runs[0])
    for point, (iterations, _, error) in zip(points, record.runs[0], strict=True):
        rank = 5 if name == "icofactor, parts" else 4  # with the mean map
        assert point.W.shape == (320, rank) and point.C.shape == (rank, 24)
        assert np.min(point.W) >= 0 and (np.min(point.C) >= 0 or rank == 5)
        assert point.seconds > 0
        np.testing.assert_allclose(full_error(data.Xs, point.W, point.C), naive_error(data, point), rtol=1e-9)
        assert error >= 0.999 * data.floor or rank == 5
        if solver.family == "ours" or "sklearn" in str(solver.needs):  # the others may not be deterministic
            np.testing.assert_allclose(error, naive_error(data, point), rtol=1e-5)
            assert iterations == point.iterations


def test_our_error_is_the_estimators(data: Dataset) -> None:
    for name, changes in (("CD-PNNMF, polish 5", {"method": "CD-PNNMF", "polish": 5}), ("parts", {"method": "parts"})):
        (point,) = ALL[f"icofactor, {name}"].path(data, 3, 1, MARKS)
        with pytest.warns(match="stopped after n_iter=15"):
            model = CorticalFactorization(4, mesh=data.sites, random_state=3, n_iter=15, **changes).fit(data.Xs)
        np.testing.assert_allclose(naive_error(data, point), model.error_, rtol=1e-6)


@pytest.mark.parametrize("solver", ["cd", "mu"])
def test_stretches_of_scikit_learn_are_one_long_run(solver: str, data: Dataset) -> None:
    from sklearn.decomposition import non_negative_factorization

    *_, last = ALL[f"scikit-learn NMF ({solver})"].path(data, 0, 1, MARKS)
    W, H, n_iter = non_negative_factorization(
        data.Xs, n_components=4, init="nndsvda", solver=solver, tol=0, max_iter=MARKS[-1], random_state=0
    )
    assert n_iter == last.iterations == MARKS[-1]
    np.testing.assert_allclose(last.W @ last.C, (W @ H).T, rtol=1e-4)


def test_a_peer_that_is_missing_is_listed_as_not_run(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers, "find_spec", lambda name: None)
    records = measure(data, [ALL["PLANC (anlsbpp)"]], MARKS, bench(2))
    (row,) = table_of(data, records, "NMF").rows
    assert row["solver"] == "PLANC (anlsbpp)"
    assert row["note"] == "not run: pyplanc is not installed"


@pytest.mark.parametrize("name", [name for name, solver in ALL.items() if solver.family == "peer"])
def test_peers_take_sites_without_data(name: str, data: Dataset) -> None:
    """The medial wall of real data is zero."""
    solver = ALL[name]
    if (why := solver.why_not(data)) is not None:
        pytest.skip(why)
    Xs = data.Xs.copy()
    Xs[:, :9] = 0
    walled = Dataset("with a wall", Xs, data.sites, data.n_components)
    (record,) = measure(walled, [solver], MARKS, bench())
    assert record.failed is None
    assert np.isfinite(record.best)


# ---------------------------------------------------------------- the rounds


def stub(name: str, seconds: Sequence[float], family: str = "peer") -> Solver:
    """A solver that finds nothing, at a price."""

    def path(data: Dataset, seed: int, threads: int, marks: Sequence[int]) -> Iterator[Point]:
        for mark, spent in zip(marks, seconds, strict=False):
            yield Point(spent, mark, np.zeros((320, 1)), np.zeros((1, 24)))

    return Solver(name, path, family=family)


def test_rounds_are_interleaved(data: Dataset) -> None:
    lines: list[str] = []
    measure(data, [stub("x", [1.0]), stub("y", [1.0])], MARKS, bench(3, tell=lines.append))
    assert [line.split(":")[1].strip() for line in lines] == ["x", "y"] * 3


def test_a_run_is_stopped_at_its_budget(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(np.cumsum(np.ones(100)))
    monkeypatch.setattr(time_to_error.time, "perf_counter", lambda: float(next(clock)))
    (slow,) = measure(data, [stub("slow", [1.0, 2.0, 3.0])], MARKS, bench(5, 3.0))
    assert slow.stopped
    assert [len(run) for run in slow.runs] == [2, 2, 2]  # each took 2 of 3 seconds; six seconds were allowed
    assert "stopped at the time limit" in table_of(data, [slow], "NMF").rows[0]["note"]


def test_a_peer_that_fails_is_a_result_and_ours_is_an_error(data: Dataset) -> None:
    def path(data: Dataset, seed: int, threads: int, marks: Sequence[int]) -> Iterator[Point]:
        raise MemoryError("no room")
        yield

    (record,) = measure(data, [Solver("bad", path)], MARKS, bench(2))
    assert record.failed == "MemoryError: no room"
    with pytest.raises(MemoryError):
        measure(data, [Solver("bad", path, family="ours")], MARKS, bench(2))


def test_medians_over_runs() -> None:
    record = Record(ALL["opnmf"])
    for shift in (0.0, 1.0, 5.0):
        record.runs.append([(1, 1.0 + shift, 9.0), (3, 2.0 + shift, 4.0 + shift)])
    assert record.median_path() == [(1, 2.0, 9.0), (3, 3.0, 5.0)]
    assert record.time_to(9.0) == 2.0
    assert record.time_to(5.0) == 3.0  # two of three reached it
    assert record.time_to(4.0) == np.inf
    assert record.best == 4.0
    assert record.rate == 2.0
