"""--scheduler: the same folder and page as any other run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import icofactor as ico
from helpers.commands import run_cli
from icofactor.cohort.store import save_store

pytestmark = pytest.mark.slow
distributed = pytest.importorskip("distributed")
FIT = "--n-components 2 --level 1 --n-starts 2 --covariates age -q"


@pytest.fixture(scope="module")
def cluster() -> Iterator[object]:
    """Workers that are processes of their own."""
    options = {"processes": True, "dashboard_address": None, "silence_logs": "CRITICAL"}
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, scheduler_port=0, **options
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cluster")
    save_store(ico.simulate_cohort(24, 3, mesh="fsaverage4"), folder / "store")
    return folder / "store"


def loadings(folder: Path) -> bytes:
    return (folder / "desc-icofactor_loadings.tsv").read_bytes()


@pytest.mark.parametrize("kind", ["address", "file"])
def test_a_cluster_gives_the_files_of_a_local_run(
    kind: str, cluster: object, store: Path, tmp_path: Path
) -> None:
    scheduler = cluster.scheduler_address  # type: ignore[attr-defined]
    if kind == "file":
        record = {"type": "Scheduler", "address": scheduler}
        (tmp_path / "scheduler.json").write_text(json.dumps(record))
        scheduler = str(tmp_path / "scheduler.json")
    folders = [tmp_path / "local", tmp_path / "cluster"]
    for folder, words in zip(folders, ("", f"--scheduler {scheduler}"), strict=True):
        assert run_cli(f"fit {store} -o {folder}", FIT, words) == 0
        assert run_cli(f"transform {folder} {store} -o {folder}/new.tsv -q", words) == 0
    names = [{path.name for path in folder.rglob("*")} for folder in folders]
    assert names[0] == names[1] and "report.html" in names[0]
    assert loadings(folders[0]) == loadings(folders[1])
    models = [ico.load_model(folder) for folder in folders]
    np.testing.assert_array_equal(models[0].components_, models[1].components_)
    assert (folders[0] / "new.tsv").read_bytes() == (folders[1] / "new.tsv").read_bytes()


def test_no_scheduler_is_one_line(
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("icofactor.cli.cluster.SECONDS_TO_CONNECT", 1)
    words = "--scheduler tcp://127.0.0.1:9"
    assert run_cli(f"fit {store} -o {tmp_path}/out", FIT, words) == 2
    assert "--scheduler: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
