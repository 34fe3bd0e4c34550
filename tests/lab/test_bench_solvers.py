"""Every solver that is installed factorizes what it says; those that are not are listed as not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from icofactor.estimator.estimator import CorticalFactorization
from icofactor_lab.bench import solvers as solvers_module
from icofactor_lab.bench import time_to_error
from icofactor_lab.bench.datasets import Dataset, simulated
from icofactor_lab.bench.objective import full_error
from icofactor_lab.bench.solvers import Point, Solver, solvers
from icofactor_lab.bench.time_to_error import Record, measure, table_of

pytestmark = pytest.mark.slow

MARKS = (1, 10, 20)
ALL = {solver.name: solver for solver in solvers(fit_updates=15)}


@pytest.fixture(scope="module")
def data() -> Dataset:
    return simulated(2, 24, n_components=4)


def naive_error(data: Dataset, point: Point) -> float:
    X = data.Xs.T.astype(np.float64)
    return float(((X - np.asarray(point.W, dtype=np.float64) @ np.asarray(point.C, dtype=np.float64)) ** 2).sum())


def ignore(line: str) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("name", ALL)
def test_the_error_of_each_point_is_that_of_its_factors(name: str, data: Dataset) -> None:
    solver = ALL[name]
    if (why := solver.why_not(data)) is not None:
        pytest.skip(why)
    (record,) = measure(data, [solver], MARKS, 1, 1, 60.0, ignore)
    assert record.failed is None
    points = list(solver.path(data, 0, 1, MARKS))
    assert len(points) == len(record.runs[0])
    for point, (iterations, _, error) in zip(points, record.runs[0], strict=True):
        assert point.W.shape == (320, 4) and point.C.shape == (4, 24)
        assert np.min(point.W) >= 0 and np.min(point.C) >= 0
        assert point.seconds > 0
        np.testing.assert_allclose(full_error(data.Xs, point.W, point.C), naive_error(data, point), rtol=1e-9)
        assert error >= 0.999 * data.floor
        if solver.family == "ours" or "sklearn" in str(solver.needs):  # the others may not be deterministic
            np.testing.assert_allclose(error, naive_error(data, point), rtol=1e-5)
            assert iterations == point.iterations


def test_our_error_is_the_estimators(data: Dataset) -> None:
    (point,) = ALL["icofactor, polish 5"].path(data, 3, 1, MARKS)
    with pytest.warns(match="stopped after n_iter=15"):
        model = CorticalFactorization(4, mesh=data.sites, random_state=3, polish=5, n_iter=15).fit(data.Xs)
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
    monkeypatch.setattr(solvers_module, "find_spec", lambda name: None)
    records = measure(data, [ALL["PLANC (anlsbpp)"]], MARKS, 2, 1, 60.0, ignore)
    (row,) = table_of(data, records, "NMF").rows
    assert row["solver"] == "PLANC (anlsbpp)"
    assert row["note"] == "not run: pyplanc is not installed"


def test_opnmf_is_not_tried_on_large_data(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solvers_module, "find_spec", lambda name: object())
    small = Solver("opnmf", ALL["opnmf"].path, "opnmf", most_sites=100)
    assert small.why_not(data) == "it forms XXᵀ; tried up to 100 sites only"


@pytest.mark.parametrize("name", [name for name, solver in ALL.items() if solver.family == "peer"])
def test_peers_take_sites_without_data(name: str, data: Dataset) -> None:
    """The medial wall of real data is zero."""
    solver = ALL[name]
    if (why := solver.why_not(data)) is not None:
        pytest.skip(why)
    Xs = data.Xs.copy()
    Xs[:, :9] = 0
    walled = Dataset("with a wall", Xs, data.sites, data.n_components)
    (record,) = measure(walled, [solver], MARKS, 1, 1, 60.0, ignore)
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
    told: list[str] = []
    measure(data, [stub("x", [1.0]), stub("y", [1.0])], MARKS, 3, 1, 60.0, told.append)
    assert [line.split(":")[1].strip() for line in told] == ["x", "y"] * 3


def test_a_run_is_stopped_at_its_budget(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(np.cumsum(np.ones(100)))
    monkeypatch.setattr(time_to_error.time, "perf_counter", lambda: float(next(clock)))
    (slow,) = measure(data, [stub("slow", [1.0, 2.0, 3.0])], MARKS, 5, 1, 3.0, ignore)
    assert slow.stopped
    assert [len(run) for run in slow.runs] == [2, 2, 2]  # each took 2 of 3 seconds; six seconds were allowed
    assert "stopped at the time limit" in table_of(data, [slow], "NMF").rows[0]["note"]


def test_a_peer_that_fails_is_a_result_and_ours_is_an_error(data: Dataset) -> None:
    def path(data: Dataset, seed: int, threads: int, marks: Sequence[int]) -> Iterator[Point]:
        raise MemoryError("no room")
        yield

    (record,) = measure(data, [Solver("bad", path)], MARKS, 2, 1, 60.0, ignore)
    assert record.failed == "MemoryError: no room"
    with pytest.raises(MemoryError):
        measure(data, [Solver("bad", path, family="ours")], MARKS, 2, 1, 60.0, ignore)


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
