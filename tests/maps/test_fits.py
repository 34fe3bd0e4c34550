"""Fits of all sources, here and in other processes: the same bits where blocks and types are the same."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.problems import relative
from helpers.refusals import refused
from helpers.sources import HEIGHT, KINDS, N_SITES, N_SUBJECTS, die, source
from icofactor.errors import ClusterError, FileError
from icofactor.maps import blocks
from icofactor.maps import maps as maps_module
from icofactor.maps.maps import Maps
from icofactor.maps.passes import map_strips

pytestmark = pytest.mark.usefixtures("small_blocks")
ATTRIBUTES = ("components_", "loadings_", "mean_", "error_", "total_variance_", "depth_")
MASK = np.arange(N_SITES) % 5 > 0


def model(**changes: Any) -> ico.CorticalFactorization:
    settings = {"n_starts": 2, "level": 1, "refinement": ico.Refinement(steps=3)}
    return ico.CorticalFactorization(3, **{**settings, "mesh": "fsaverage3", **changes})


def fits(settings: dict[str, Any], X: Any, executor: Executor | None = None) -> list[Any]:
    """All that a fit and a transform give."""
    fitted = model(**settings).fit(X, executor=executor)
    values = [getattr(fitted, name) for name in ATTRIBUTES]
    return [*values, fitted.transform(X, executor=executor)]


@pytest.fixture(params=["float64", "float32"])
def tolerance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Of blocks that are worked on in this type."""
    if request.param == "float64":
        return 1e-12
    monkeypatch.setattr(maps_module, "SMALL_BYTES", 0)
    return 1e-5


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mask": MASK},
        {"center": "zscore"},
        {"method": "LE-PPNMF", "tol": 1e-2},
        {"method": "CD-PNNMF", "polish": 1},
        {"weights": np.linspace(1, 3, N_SITES)},
        {"lift": False, "columns": "smooth", "tol": 1e-2},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_the_source_does_not_matter(
    settings: dict[str, Any], tolerance: float, cohort: ico.Cohort, tmp_path: Path
) -> None:
    """To the bit, except for a store, whose sites lie in another order."""
    answers = {kind: fits(settings, source(kind, cohort, tmp_path)) for kind in KINDS}
    for kind in ("columns", "sliced", "memmap", "dask"):
        for values, expected in zip(answers[kind], answers["array"], strict=True):
            np.testing.assert_array_equal(values, expected)
    for values, expected in zip(answers["store"], answers["array"], strict=True):
        assert relative(values, expected) < tolerance


@pytest.mark.parametrize("settings", [{}, {"method": "LE-PPNMF", "polish": 1}, {"lift": False}])
@pytest.mark.parametrize("columns", ["partition", "smooth"])
def test_the_height_of_blocks_does_not_matter(
    columns: str, settings: dict[str, Any], cohort: ico.Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"columns": columns, "tol": 1e-2, **settings}
    answers = fits(settings, cohort.X)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2**25)
    assert len(Maps(cohort.X).blocks()) == 1
    for values, expected in zip(answers, fits(settings, cohort.X), strict=True):
        assert relative(values, expected) < 1e-9


# ---------------------------------------------------------------------- other processes


class Pickled(Executor):
    """Every task is pickled, as on its way to another process; remembers how large they were."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def submit(self, work: Any, /, *tasks: Any, **more: Any) -> Future[Any]:
        pickled, future = pickle.dumps((work, tasks)), Future[Any]()
        self.sizes.append(len(pickled))
        work, tasks = pickle.loads(pickled)
        future.set_result(work(*tasks))
        return future


@pytest.mark.parametrize("kind", ["array", "memmap", "store"])
def test_a_task_is_as_large_as_its_block(kind: str, cohort: ico.Cohort, tmp_path: Path) -> None:
    """Of a store it is an address, with the block's rows of what is taken out; bits stay."""
    table = {"age": np.linspace(20, 80, N_SUBJECTS), "site": ["A", "B"] * (N_SUBJECTS // 2)}
    executor = Pickled()
    data = source(kind, cohort, tmp_path)
    X = getattr(data, "X", data)
    combat = ico.preprocessing.ComBat("site", nonnegative=False, min_scans=3)
    harmonized = combat.fit_transform(X, table)
    covariates = ico.Covariates.fit(harmonized, ["age"], table, nonnegative=False)
    halves = Maps((Maps(cohort.X[:, :300]), Maps(cohort.X[:, 300:])), joined="sites")
    settings = {"weights": np.linspace(1, 3, N_SITES), "mask": MASK}
    for maps in (X, covariates.apply(harmonized, table), halves):
        remote = fits(settings, maps, executor)
        for values, expected in zip(remote, fits(settings, maps), strict=True):
            np.testing.assert_array_equal(values, expected)
    bytes_of_values = 0 if kind == "store" else 4 * N_SUBJECTS * HEIGHT
    assert max(executor.sizes) < bytes_of_values + 8 * HEIGHT * 30 + 4000


def test_a_task_of_a_dask_array_has_its_own_chunks() -> None:
    dask = pytest.importorskip("dask.array")
    X = np.random.default_rng(0).gamma(2, size=(200, N_SITES)).astype(np.float32)
    executor = Pickled()
    model().fit(dask.from_array(X, chunks=(100, HEIGHT)), executor=executor)
    assert max(executor.sizes) < X.nbytes / 2


@pytest.fixture(scope="module")
def two_processes() -> Iterator[Executor]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        yield executor


@pytest.fixture(scope="module")
def dask_executor() -> Iterator[Executor]:
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "dashboard_address": ":0", "silence_logs": "CRITICAL"}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, **options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client.get_executor()


@pytest.mark.parametrize("kind", ["array", "dask", "store"])
@pytest.mark.parametrize("workers", ["two_processes", "dask_executor"])
def test_workers_give_the_same_bits(
    workers: str, kind: str, cohort: ico.Cohort, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    data, executor = source(kind, cohort, tmp_path), request.getfixturevalue(workers)
    for values, expected in zip(fits({}, data, executor), fits({}, data), strict=True):
        np.testing.assert_array_equal(values, expected)
    with ThreadPoolExecutor(2) as threads:
        np.testing.assert_array_equal(fits({}, data, threads)[0], fits({}, data)[0])
    bad = replace(cohort, X=np.where(cohort.X[3, 500] == cohort.X, np.nan, cohort.X), checked=True)
    with refused("X", "sub-0004"):
        model().fit(bad, executor=executor)


def test_a_dead_worker_is_one_error(cohort: ico.Cohort) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor, pytest.raises(ClusterError):
        list(map_strips(die, Maps(cohort.X, executor=executor)))


class Failing(Executor):
    """Every task ends in this error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def submit(self, work: Any, /, *tasks: Any, **more: Any) -> Future[Any]:
        future = Future[Any]()
        future.set_exception(self.error)
        return future


def test_only_errors_of_the_executor_are_told_as_such(cohort: ico.Cohort) -> None:
    distributed = pytest.importorskip("distributed")
    killed = distributed.KilledWorker("task", SimpleNamespace(address=""), 3)
    closed = distributed.comm.CommClosedError("closed")
    for error in (BrokenProcessPool("died"), killed, closed):
        with pytest.raises(ClusterError):
            model().fit(cohort, executor=Failing(error))
    with refused("a.gii"):
        model().fit(cohort, executor=Failing(FileError("a.gii", "is damaged")))


def test_what_cannot_run_tasks_is_refused(cohort: ico.Cohort) -> None:
    fitted = model().fit(cohort)
    for act in (model().fit, fitted.transform):
        for wrong in ("tcp://localhost:8786", ProcessPoolExecutor):
            with refused("executor"):
                act(cohort, executor=wrong)


def test_chunks_of_unknown_size_are_refused(cohort: ico.Cohort, tmp_path: Path) -> None:
    X = source("dask", cohort, tmp_path)
    with refused("X"):
        model().fit(X[X[:, 0] > 0])
