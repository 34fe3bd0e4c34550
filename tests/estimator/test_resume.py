"""Work folders of a fit: whatever killed it, going on gives the same bits; other runs are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import icofactor as ico
from helpers.problems import relative
from icofactor import CorticalFactorization, Refinement
from icofactor.cohort.store.create import create_store
from icofactor.errors import CheckpointError
from icofactor.factorization._multistart import PIECE_OPERATIONS
from icofactor.factorization._refine import STEPS_PER_PIECE
from icofactor.streaming import source as sources
from icofactor.streaming.checkpoint import Checkpoint

pytestmark = pytest.mark.slow

PART_BYTES = 24 * 4 * 100
WHAT = ("components_", "loadings_", "mean_", "depth_", "error_", "total_variance_", "n_iter_")


@pytest.fixture(scope="module")
def cohort() -> ico.Cohort:
    return ico.simulate_cohort(24, 4, mesh="fsaverage3", random_state=0)


@pytest.fixture(scope="module")
def stored(cohort: ico.Cohort, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return create_store(tmp_path_factory.mktemp("stores") / "s", [cohort], chunk_sites=50, chunk_subjects=10)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr("icofactor.factorization._multistart.PIECE_OPERATIONS", 0)
    monkeypatch.setattr("icofactor.factorization._refine.STEPS_PER_PIECE", 2)


def quick(**changes: Any) -> CorticalFactorization:
    base = {"n_starts": 3, "level": 0, "n_iter": 60, "refinement": Refinement(steps=5, faces=3, n_iter=4)}
    return CorticalFactorization(4, **{**base, **changes})


def fit(model: CorticalFactorization, X: Any, work_dir: Path | None = None) -> CorticalFactorization:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, work_dir=work_dir)


def assert_same_bits(found: CorticalFactorization, expected: CorticalFactorization) -> None:
    for name in WHAT:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(found.starts_.objectives, expected.starts_.objectives)
    np.testing.assert_array_equal(found.solution_.objective, expected.solution_.objective)
    np.testing.assert_array_equal(found.design_.faces, expected.design_.faces)
    assert found.refined_.divisions == expected.refined_.divisions


class Killed(Exception):
    """Stands for the end of a process, inside a test."""


def die_after(monkeypatch: pytest.MonkeyPatch, n_pieces: int) -> None:
    """Keeping the piece after so many fails, as if the process had been killed just then."""
    put, count = Checkpoint.put, [0]

    def counted(self: Checkpoint, key: str, arrays: Any) -> None:
        if count[0] == n_pieces:
            raise Killed
        count[0] += self.folder is not None
        put(self, key, arrays)

    monkeypatch.setattr(Checkpoint, "put", counted)


SETTINGS = [
    {},
    {"method": "LE-PNNMF", "engine": "numpy"},
    {"method": "LE-PNNMF", "engine": "cpu", "polish": 1},
    {"method": "E-DL", "engine": "cpu"},
    {"method": "LE-PPNMF", "engine": "cpu"},
    {"columns": "smooth", "method": "E-SPNNMF"},
    {"halving": True, "refinement": None},
    {"rules": "paper", "method": "LE-PNNMF", "lift": False, "refinement": Refinement.paper()},
]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("changes", SETTINGS)
def test_a_run_ended_anywhere_goes_on_to_the_same_bits(
    changes: dict[str, Any], streamed: bool, cohort: ico.Cohort, stored: Any, tmp_path: Path
) -> None:
    X = stored if streamed else cohort
    whole = fit(quick(**changes), X, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        for n_pieces in (1, 1):  # ends again and again, each time one piece later
            die_after(patch, n_pieces)
            with pytest.raises(Killed):
                fit(quick(**changes), X, tmp_path / "work")
            patch.undo()
    assert_same_bits(fit(quick(**changes), X, tmp_path / "work"), whole)
    assert_same_bits(fit(quick(**changes), X, tmp_path / "work"), whole)  # all of it from the folder
    assert relative(whole.components_, fit(quick(**changes), X).components_) < 1e-9


def test_a_finished_run_computes_nothing_again(stored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fit(quick(), stored, tmp_path / "work")
    kinds = {file.name.split("-")[0] for file in (tmp_path / "work").glob("*.npz")}
    assert kinds == {"statistics", "starts", "refinement", "lift"}
    die_after(monkeypatch, 0)
    monkeypatch.setattr(type(stored.X), "read_sites", lambda *_: pytest.fail("X was read again"))
    assert_same_bits(fit(quick(), stored, tmp_path / "work"), first)


def test_without_a_seed_the_first_one_is_kept(cohort: ico.Cohort, tmp_path: Path) -> None:
    one, again = (fit(quick(random_state=None), cohort, tmp_path / "work") for _ in range(2))
    assert_same_bits(again, one)
    other = fit(quick(random_state=None), cohort, tmp_path / "other")
    assert np.abs(other.starts_.objectives - one.starts_.objectives).max() > 0


# ---------------------------------------------------------------------- other runs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_starts": 6}, "settings.n_starts was 3, is 6"),
        ({"refinement": Refinement(steps=4, faces=3, n_iter=4)}, "settings.refinement.steps was 5, is 4"),
        ({"method": "LE-PNNMF", "tol": 1e-3}, "settings.method was parts, is LE-PNNMF; settings.tol was"),
        ({"random_state": 1}, "random_state was"),
        ({"mask": np.arange(642) > 3}, "mask was null, is"),
    ],
)
def test_other_settings_are_refused(changes: dict[str, Any], message: str, cohort: ico.Cohort, tmp_path: Path) -> None:
    fit(quick(refinement=Refinement(steps=5, faces=3, n_iter=4)), cohort, tmp_path / "work")
    with pytest.raises(CheckpointError, match=message):
        fit(quick(**changes), cohort, tmp_path / "work")


def test_other_data_are_refused(cohort: ico.Cohort, stored: Any, tmp_path: Path) -> None:
    fit(quick(), cohort, tmp_path / "work")
    X = cohort.X.copy()
    X[7, 300] = np.nextafter(X[7, 300], np.float32(9))
    with pytest.raises(CheckpointError, match="another run: values was"):
        fit(quick(mesh="fsaverage3"), X, tmp_path / "work")
    with pytest.raises(CheckpointError, match="subjects was 24, is 23"):
        fit(quick(mesh="fsaverage3"), X[:23], tmp_path / "work")
    with pytest.raises(CheckpointError, match="values was"):
        fit(quick(), stored, tmp_path / "work")


def test_a_file_that_changed_is_refused(cohort: ico.Cohort, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", cohort.X)
    fit(quick(), np.load(tmp_path / "X.npy", mmap_mode="r"), tmp_path / "work")
    fit(quick(), np.load(tmp_path / "X.npy", mmap_mode="r"), tmp_path / "work")
    np.save(tmp_path / "X.npy", cohort.X * 2)
    with pytest.raises(CheckpointError, match="values was file"):
        fit(quick(), np.load(tmp_path / "X.npy", mmap_mode="r"), tmp_path / "work")


def test_progress_and_names_are_no_other_run(cohort: ico.Cohort, tmp_path: Path) -> None:
    one = fit(quick(), cohort, tmp_path / "work")
    same = quick(mesh="fsaverage3", hemi="left", verbose=False, mask=np.ones(642, dtype=bool))
    assert_same_bits(fit(same, cohort.X, tmp_path / "work"), one)


# ---------------------------------------------------------------------- ends of all kinds


def test_ctrl_c_says_how_to_go_on(cohort: ico.Cohort, tmp_path: Path) -> None:
    def interrupted(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("icofactor.estimator.fitting.refined_by", interrupted)
        with pytest.raises(KeyboardInterrupt, match=r"kept in .*work, and the same call resumes from there"):
            fit(quick(), cohort, tmp_path / "work")
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            fit(quick(), cohort)
    assert not list((tmp_path / "work").glob(".tmp-*"))
    assert_same_bits(fit(quick(), cohort, tmp_path / "work"), fit(quick(), cohort, tmp_path / "whole"))


CHILD = """
import sys
import icofactor as ico
from icofactor.streaming import source as sources
from icofactor.cohort import open_store
sources.PART_BYTES = 24 * 4 * 100
stored = open_store(sys.argv[1])
model = ico.CorticalFactorization(4, n_starts=24, level=2, n_iter=400, tol=0.0, engine="cpu")
print("ready", flush=True)
model.fit(stored, work_dir=sys.argv[2])
print("done", flush=True)
"""


def fit_as_the_child(stored: Any, work: Path) -> CorticalFactorization:
    settings: dict[str, Any] = {"n_starts": 24, "level": 2, "n_iter": 400, "tol": 0.0, "engine": "cpu"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "PART_BYTES", PART_BYTES)
        patch.setattr("icofactor.factorization._multistart.PIECE_OPERATIONS", PIECE_OPERATIONS)
        patch.setattr("icofactor.factorization._refine.STEPS_PER_PIECE", STEPS_PER_PIECE)
        return fit(CorticalFactorization(4, **settings), stored, work)


@pytest.fixture(scope="module")
def undisturbed(stored: Any, tmp_path_factory: pytest.TempPathFactory) -> CorticalFactorization:
    return fit_as_the_child(stored, tmp_path_factory.mktemp("whole") / "work")


def kill_and_go_on(stored: Any, work: Path, seed: int) -> CorticalFactorization:
    argv = [sys.executable, "-W", "ignore", "-c", CHILD, str(stored.path), str(work)]
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(float(np.random.default_rng(seed).uniform(0.05, 0.6)))
    child.send_signal(signal.SIGKILL)
    said = child.communicate()[0]
    assert child.returncode == -signal.SIGKILL or said == "done\n"
    return fit_as_the_child(stored, work)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_killed_process_goes_on_to_the_same_bits(
    seed: int, stored: Any, undisturbed: CorticalFactorization, tmp_path: Path
) -> None:
    assert_same_bits(kill_and_go_on(stored, tmp_path / "work", seed), undisturbed)


def test_so_does_one_that_read_two_bytes_per_value(cohort: ico.Cohort, tmp_path: Path) -> None:
    half = create_store(tmp_path / "half", [cohort], chunk_sites=50, chunk_subjects=10, dtype="float16")
    assert_same_bits(kill_and_go_on(half, tmp_path / "work", 3), fit_as_the_child(half, tmp_path / "whole"))
