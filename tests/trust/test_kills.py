"""Killed fits, and two fits at once in one folder: results stay whole, and users' files stay."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from icofactor.cli.main import main
from icofactor.estimator.saving import load_model
from icofactor.io.guard import hash_file
from icofactor.io.json import read_json
from icofactor.io.publish import ARRIVING, LIST, list_of, settle
from icofactor.results import folder

pytestmark = [
    pytest.mark.hostile,
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="processes are killed by signals"),
]
N_KILLS = 30
N_PAIRS = 10


@pytest.fixture(scope="module")
def processes() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "icofactor.results.fit_cohort"])
    return context


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("maps") / "lh.maps.npy"
    np.save(file, np.random.default_rng(0).gamma(2, 1, (8, 642)).astype(np.float32) + 1)
    return file


def fit(maps: Path, out: Path, seed: int) -> None:
    """Fit with `--overwrite`; the process ends with the status of the command."""
    # Drawing takes most of the time of such a small fit.
    folder.drawn_components = lambda fit: b"PNG"
    settings = "--mesh fsaverage3 --hemisphere left --n-components 2 --n-starts 1 --level 0"
    words = [*settings.split(), "--no-figures", "--overwrite", "-q", "--random-seed", str(seed)]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        raise SystemExit(main(["fit", str(maps), "-o", str(out), *words]))


def seconds_to_fit(processes: Any, maps: Path, out: Path, seed: int) -> float:
    """Fit in a process of its own, and return how long that takes."""
    begin = time.monotonic()
    process = processes.Process(target=fit, args=(maps, out, seed))
    process.start()
    process.join()
    assert process.exitcode == 0
    return time.monotonic() - begin


def seed_of_whole_fit(out: Path) -> int:
    """Return the seed of a fit, after checking that all its files come from one run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settle(out)
    files = list_of(out)
    assert {"model.zip", "report.html", "provenance.json"} <= set(files)
    for name, sha256 in files.items():
        assert hash_file(out / name) == sha256, name
    seed = load_model(out / "model.zip").random_state
    assert read_json(out / "provenance.json")["seed"] == seed
    return int(seed)


def traces(out: Path) -> set[str]:
    """Return temporary files in a folder and beside it."""
    names = {path.name for place in (out, out.parent) for path in place.iterdir()}
    return {name for name in names if name.startswith(".")} - {LIST}


def test_killed_fits_lose_nothing(processes: Any, maps: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    # The first process imports what the next ones have.
    for _ in range(2):
        duration = seconds_to_fit(processes, maps, out, 0)
    (out / "note.txt").write_text("mine")
    rng = np.random.default_rng(0)
    n_killed = 0
    seed = 0
    for run in range(1, 3 * N_KILLS):
        child = processes.Process(target=fit, args=(maps, out, run))
        child.start()
        # Most of the moments are at the end, where files are written.
        time.sleep(duration * rng.beta(4, 1))
        if child.is_alive():
            os.kill(child.pid, signal.SIGKILL)
        child.join()
        n_killed += child.exitcode == -signal.SIGKILL
        if child.exitcode == 0:
            # The machine was busier when the duration was measured.
            duration *= 0.9
        result = seed_of_whole_fit(out)
        assert result in ({run} if child.exitcode == 0 else {seed, run})
        seed = result
        if n_killed == N_KILLS:
            break
    assert n_killed == N_KILLS
    seconds_to_fit(processes, maps, out, 999)
    assert seed_of_whole_fit(out) == 999
    assert (out / "note.txt").read_text() == "mine"
    assert not traces(out)


@pytest.mark.parametrize("start", ["missing", "empty", "earlier"])
def test_two_fits_at_once_are_not_mixed(
    processes: Any, maps: Path, tmp_path: Path, start: str
) -> None:
    for pair in range(N_PAIRS // 3 + 1):
        out = tmp_path / f"pair{pair}" / "out"
        if start != "missing":
            out.mkdir(parents=True)
        if start == "earlier":
            with pytest.raises(SystemExit):
                fit(maps, out, 0)
        children = [processes.Process(target=fit, args=(maps, out, seed)) for seed in (1, 2)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        successful = {seed for seed, child in enumerate(children, 1) if child.exitcode == 0}
        assert seed_of_whole_fit(out) in successful
        assert {child.exitcode for child in children} <= {0, 2}
        assert not traces(out) and not (out / ARRIVING).exists()
