"""A dask cluster of processes: the same bits as here, whoever dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.problems import relative
from icofactor import CorticalFactorization, Refinement
from icofactor.cohort.store.create import create_store
from icofactor.errors import ClusterError, FileError
from icofactor.factorization.statistics import Pyramid
from icofactor.streaming import source as sources
from icofactor.streaming.joined import Stacked
from icofactor.streaming.passes import Stream
from icofactor.streaming.runners import Cluster

pytestmark = pytest.mark.slow

distributed = pytest.importorskip("distributed")
N_SUBJECTS = 24


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            local_directory=str(tmp_path_factory.mktemp("dask")),
            silence_logs="CRITICAL",
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PART_BYTES", N_SUBJECTS * 4 * 100)


@pytest.fixture(scope="module")
def cohort() -> ico.Cohort:
    return ico.simulate_cohort(N_SUBJECTS, 4, mesh="fsaverage3", random_state=0)


@pytest.fixture(scope="module")
def stored(cohort: ico.Cohort, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return create_store(
        tmp_path_factory.mktemp("stores") / "s", [cohort], chunk_sites=50, chunk_subjects=10
    )


@pytest.fixture(scope="module")
def here(stored: Any) -> CorticalFactorization:
    """The same fit without a cluster."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "PART_BYTES", N_SUBJECTS * 4 * 100)
        return quick().fit(stored)


def quick(**changes: Any) -> CorticalFactorization:
    return CorticalFactorization(
        4, **{"n_starts": 3, "level": 1, "refinement": Refinement(steps=3), **changes}
    )


def assert_same_bits(found: CorticalFactorization, expected: CorticalFactorization) -> None:
    for name in ("components_", "loadings_", "mean_", "error_", "total_variance_", "bytes_read_"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(found.starts_.objectives, expected.starts_.objectives)


def test_a_store_is_fitted_to_the_same_bits(
    client: Any, stored: Any, here: CorticalFactorization
) -> None:
    model = quick().fit(stored, client=client)
    assert_same_bits(model, here)
    assert model.passes_ == 2
    np.testing.assert_array_equal(model.transform(stored, client=client), here.transform(stored))


def test_weights_go_to_the_workers(client: Any, stored: Any, here: CorticalFactorization) -> None:
    model, there = (quick(weights=np.linspace(1, 3, 642)) for _ in range(2))
    assert_same_bits(there.fit(stored, client=client), model.fit(stored))
    np.testing.assert_array_equal(there.transform(stored, client=client), model.transform(stored))
    assert relative(model.components_, here.components_) > 1e-3


@pytest.mark.parametrize("n_before", [1, 7, 9], ids=["statistics", "starts", "lift"])
def test_a_killed_worker_changes_nothing(
    n_before: int,
    client: Any,
    stored: Any,
    here: CorticalFactorization,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 15 tasks, the first seven are statistics, one is the starts, and seven are the lift."""
    client.wait_for_workers(2, timeout=60)
    submit, n_submitted = Cluster.submit, 0

    def deadly(self: Cluster, *args: Any) -> Any:
        nonlocal n_submitted
        future = submit(self, *args)
        if n_submitted == n_before:
            busy = [worker for worker, tasks in client.processing().items() if tasks]
            pids = client.run(os.getpid, workers=busy[:1] or None)
            os.kill(next(iter(pids.values())), signal.SIGKILL)
        n_submitted += 1
        return future

    monkeypatch.setattr(Cluster, "submit", deadly)
    assert_same_bits(quick().fit(stored, client=client), here)
    assert n_submitted == 15


@pytest.mark.parametrize("chunks", [(24, 642), (7, 90), (24, 33)])
def test_statistics_do_not_depend_on_the_chunks_of_a_dask_array(
    chunks: tuple[int, int], client: Any, cohort: ico.Cohort
) -> None:
    X = pytest.importorskip("dask.array").from_array(cohort.X, chunks=chunks)
    found = Pyramid.from_data(Stream(sources.source_of(X), Cluster(client)), cohort.sites)
    expected = Pyramid.from_data(cohort.X.T, cohort.sites)
    design = ico.Design(cohort.sites, level=2)
    for name in ("L", "energy", "sq_norm", "counts"):
        assert (
            relative(
                getattr(found.statistics(design), name), getattr(expected.statistics(design), name)
            )
            < 1e-12
        )


def test_dask_arrays_memmaps_and_arrays_go_to_the_workers(
    client: Any, cohort: ico.Cohort, tmp_path: Path
) -> None:
    np.save(tmp_path / "X.npy", cohort.X)
    held = quick().fit(cohort)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for X in (
        pytest.importorskip("dask.array").from_array(cohort.X, chunks=(10, 200)),
        mapped,
        cohort.X,
        cohort,
    ):
        model = quick().fit(X, client=client)
        assert relative(model.components_, held.components_) < 1e-9
        assert relative(model.transform(X, client=client), held.transform(cohort)) < 1e-9


def test_subsets_adjusted_and_stacked_maps_go_to_the_workers(
    client: Any, cohort: ico.Cohort, stored: Any, tmp_path: Path
) -> None:
    """Read there where that is possible, sent otherwise: the same bits as here."""
    np.save(tmp_path / "X.npy", cohort.X)
    dask = pytest.importorskip("dask.array").from_array(cohort.X, chunks=(10, 200))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    age = {"age": np.linspace(20, 80, N_SUBJECTS)}
    mask, adjust = np.arange(642) % 5 > 0, ico.Covariates.fit(cohort, ["age"], age)
    for X in (cohort.X, mapped, dask, stored.X, stored.select(range(0, 24, 2)).X):
        table = {"age": age["age"][: X.shape[0]]}
        maps = sources.Subset(adjust.apply(X, table).map_source(), mask, np.array([3, 0, 3]))
        for source in (maps, Stacked([maps, maps])):
            stack = [Stream(source), Stream(source, Cluster(client))]
            here, there = (Pyramid.from_data(one, cohort.sites.subset(mask), 1) for one in stack)
            for a, b in zip(here._sums, there._sums, strict=True):
                np.testing.assert_array_equal(a, b)


def test_the_clients_own_cluster_is_used_for_its_dask_arrays(
    client: Any, cohort: ico.Cohort, monkeypatch: Any
) -> None:
    X = pytest.importorskip("dask.array").from_array(cohort.X, chunks=(24, 200))
    ran = []
    run = Cluster.run
    monkeypatch.setattr(
        Cluster,
        "run",
        lambda self, *args, **more: ran.append(self.client) or run(self, *args, **more),
    )
    with client.as_current():
        quick().fit(X)
    assert ran and all(used is client for used in ran)


def test_chunks_of_unknown_size_are_refused(cohort: ico.Cohort) -> None:
    X = pytest.importorskip("dask.array").from_array(cohort.X, chunks=(10, 642))
    with pytest.raises(ValueError, match=r"call X.compute_chunk_sizes\(\) first"):
        quick().fit(X[X[:, 0] > 0])


def test_what_is_no_client(cohort: ico.Cohort) -> None:
    with pytest.raises(ValueError, match=r"client must be a dask.distributed.Client; found str"):
        quick().fit(cohort, client="tcp://localhost:8786")


def test_bad_values_are_told_from_a_worker(client: Any, cohort: ico.Cohort) -> None:
    X = cohort.X.copy()
    X[3, 500] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite values in subject 3 "):
        quick().fit(X, client=client)


class Failing:
    """A client whose first futures end in this error."""

    status = "pending"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def nthreads(self) -> dict[str, int]:
        return {"a": 1}

    def submit(self, *args: Any, **options: Any) -> Failing:
        return self

    def result(self, timeout: float) -> Any:
        raise self.error

    def run_on_scheduler(self, look: Any) -> Any:
        worker = SimpleNamespace(status=SimpleNamespace(name="paused"), executing={})
        return look(SimpleNamespace(workers={"a": worker}))

    def cancel(self, futures: Any) -> None:
        raise distributed.client.ClosedClientError(
            "Client is closed. Can't send cancel-keys message"
        )


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (
            distributed.KilledWorker("task", None, 3),
            "a worker ran out of memory.* give workers more memory or smaller",
        ),
        (distributed.client.ClosedClientError("closed"), "closed, or cannot be reached"),
        (distributed.comm.CommClosedError("closed"), "closed, or cannot be reached"),
        (TimeoutError(), "paused every worker.* give workers more memory"),
    ],
)
def test_failures_of_dask_name_our_step(error: Exception, problem: str) -> None:
    with pytest.raises(ClusterError, match=problem) as failure:
        list(Cluster(Failing(error)).run(dict, {}, lambda i: (), 1, "the lift"))
    assert failure.value.step == "the lift"
    with pytest.raises(FileError):
        list(Cluster(Failing(FileError("a", "b"))).run(dict, {}, lambda i: (), 1))


def test_a_client_that_is_closed_meanwhile(
    client: Any, cohort: ico.Cohort, monkeypatch: pytest.MonkeyPatch
) -> None:
    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        submit = Cluster.submit
        monkeypatch.setattr(
            Cluster, "submit", lambda self, *args: (submit(self, *args), other.close())[0]
        )
        with pytest.raises(ClusterError) as failure:
            quick().fit(cohort, client=other)
    assert failure.value.step == "a pass over the maps"


def test_harmonized_maps(stored: Any, client: Any) -> None:
    """ComBat's adjustment travels to the workers, who read the store: the same bits as here."""
    people = {**stored.participants, "site": ["A", "B"] * (N_SUBJECTS // 2)}
    maps = ico.preprocessing.ComBat("site", ["age"]).fit_transform(stored, people)
    settings: dict[str, Any] = {"n_starts": 2, "level": 1, "random_state": 0}
    alone = CorticalFactorization(3, **settings).fit(maps)
    spread = CorticalFactorization(3, **settings).fit(maps, client=client)
    np.testing.assert_array_equal(spread.components_, alone.components_)
    np.testing.assert_array_equal(spread.loadings_, alone.loadings_)
    np.testing.assert_allclose(
        spread.transform(maps, client=client), alone.loadings_, rtol=1e-9, atol=1e-12
    )
