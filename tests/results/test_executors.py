"""A fit whose maps are read by an executor of the user's."""

from __future__ import annotations

import pickle
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from icofactor.errors import ArgumentError


class Elsewhere(Executor):
    """Runs pickled calls, as a cluster would."""

    def __init__(self) -> None:
        self.n_calls = 0

    def submit(self, function: Any, /, *args: Any, **more: Any) -> Future[Any]:
        self.n_calls += 1
        future: Future[Any] = Future()
        future.set_result(pickle.loads(pickle.dumps(function))(*pickle.loads(pickle.dumps(args))))
        return future


def fit(folder: Path, executor: Executor | None) -> ico.FitResult:
    """Fit the first scans of people, with every step that reads maps."""
    cohort = ico.simulate_cohort(48, 2, mesh="fsaverage3", random_state=0)
    cohort.participants["participant_id"] = np.array([f"s{i // 2}" for i in range(48)])
    cohort.participants["session_id"] = np.array(["1", "2"] * 24)
    cohort.participants["scanner"] = np.array(["a", "a", "b", "b"] * 12)
    model = ico.CorticalFactorization(2, n_starts=2, level=1, random_state=0)
    return ico.fit_cohort(
        cohort,
        model,
        folder,
        harmonize="scanner",
        covariates=["age"],
        fit_on="baseline",
        figures=False,
        executor=executor,
    )


def test_every_pass_of_a_fit_runs_in_the_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = fit(tmp_path / "local", None)

    def refuse(*args: Any) -> int:
        raise AssertionError("this pass runs in threads of this process")

    monkeypatch.setattr("icofactor.maps.passes._n_threads_for", refuse)
    executor = Elsewhere()
    remote = fit(tmp_path / "remote", executor)
    assert executor.n_calls > 0
    np.testing.assert_array_equal(remote.model.components_, local.model.components_)
    np.testing.assert_array_equal(remote.model.loadings_, local.model.loadings_)
    for name in ("desc-icofactor_loadings.tsv", "desc-icofactor_components.tsv"):
        assert (remote.folder / name).read_bytes() == (local.folder / name).read_bytes()


def test_another_object_is_no_executor(tmp_path: Path) -> None:
    cohort = ico.simulate_cohort(8, 2, mesh="fsaverage3", random_state=0)
    with pytest.raises(ArgumentError) as raised:
        ico.fit_cohort(cohort, ico.CorticalFactorization(2), tmp_path / "out", executor=4)
    assert raised.value.argument == "executor"
    assert not any(tmp_path.iterdir())
