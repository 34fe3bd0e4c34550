"""fMRIPrep's series to ReHo and ALFF, on the mesh they are on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import signal

import icofactor as ico
from helpers.commands import run_cli
from helpers.trees import write_gifti
from icofactor.cohort.store.read import open_store
from icofactor.errors import CohortError
from icofactor.preprocessing import Cleaning, Steps, alff, bandpass, bold, prepare_bold, reho

N, T, TR = 642, 80, 2.0
FACES = ico.Sites.named("fsaverage3").triangles


def series_of(subject: int) -> np.ndarray:
    rng = np.random.default_rng(subject)
    series = rng.standard_normal((T, N)) + 100
    series[:, :40] = np.nan  # the medial wall
    return series


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Four subjects on fsaverage3, with sidecars and confounds."""
    for subject in range(1, 5):
        func = tmp_path / "fmriprep" / f"sub-{subject:02d}" / "func"
        func.mkdir(parents=True)
        rng = np.random.default_rng(subject)
        fd = np.full(T, 0.1)
        fd[[20, 21]] = 2.0
        table = {"framewise_displacement": ["n/a", *map(str, fd[1:])]}
        table |= {
            f"{kind}_{axis}": list(map(str, rng.standard_normal(T)))
            for kind in ("trans", "rot")
            for axis in "xyz"
        }
        lines = ["\t".join(table), *("\t".join(row) for row in zip(*table.values(), strict=True))]
        start = f"sub-{subject:02d}_task-rest"
        (func / f"{start}_desc-confounds_timeseries.tsv").write_text("\n".join(lines) + "\n")
        for letter, side in (("L", "left"), ("R", "right")):
            name = f"{start}_hemi-{letter}_space-fsaverage3_bold"
            write_gifti(
                func / f"{name}.func.gii",
                series_of(subject),
                side,
                intent="NIFTI_INTENT_TIME_SERIES",
            )
            (func / f"{name}.json").write_text(json.dumps({"RepetitionTime": TR}))
    return tmp_path / "fmriprep"


def test_what_is_made_is_what_the_functions_make(tree: Path, tmp_path: Path) -> None:
    used = np.arange(N) >= 40
    series = series_of(2).astype(np.float32).astype(np.float64).T
    band = {"low": 0.01, "high": 0.1}
    assert run_cli(f"prepare reho {tree} -o {tmp_path}/r --low 0.01 -q") == 0
    store = open_store(tmp_path / "r")
    series = np.where(used[:, None], series, 0)
    expected = reho(bandpass(signal.detrend(series), TR, **band, mask=used), FACES, mask=used)
    np.testing.assert_allclose(store.X[1][:N], expected, rtol=1e-5)
    assert store.sites.n == 2 * N and store.mask is not None and int((~store.mask).sum()) == 80
    prepare_bold(tree, tmp_path / "a", Steps("alff", limit=None, **band), hemisphere="left")
    expected = alff(series, TR, **band, detrend=True, mask=used)
    np.testing.assert_allclose(open_store(tmp_path / "a").X[1], expected, rtol=1e-5)


def test_drift_and_censored_volumes_do_not_leak_into_the_band(tree: Path, tmp_path: Path) -> None:
    """ALFF by the definition, one vertex and one frequency at a time."""
    time = np.arange(T)
    keep = ~np.isin(time, [20, 21])
    slow = (3 * np.sin(2 * np.pi * time / 40) + 0.05 * time)[:, None]
    for subject in range(1, 5):
        name = f"sub-{subject:02d}_task-rest_hemi-L_space-fsaverage3_bold.func.gii"
        write_gifti(tree / f"sub-{subject:02d}" / "func" / name, series_of(subject) + slow, "left")
    prepare_bold(
        tree, tmp_path / "a", Steps("alff", limit=None), Cleaning(max_fd=0.5), hemisphere="left"
    )
    turns = [
        np.exp(-2j * np.pi * k * time / T) for k in range(T // 2) if 0.05 <= k / (T * TR) <= 0.1
    ]
    for vertex in (40, 77, 641):
        series = (series_of(2) + slow)[:, vertex]
        detrended = series[keep] - np.polyval(np.polyfit(time[keep], series[keep], 1), time[keep])
        even = np.interp(time, time[keep], detrended)
        expected = np.mean([2 / T * abs(turn @ even) for turn in turns])
        np.testing.assert_allclose(open_store(tmp_path / "a").X[1, vertex], expected, rtol=1e-4)


def test_confounds_and_motion_are_taken_out_and_said(tree: Path, tmp_path: Path) -> None:
    # what the confounds explain, and what moved volumes hold, makes no difference
    func = tree / "sub-01" / "func"
    table = pd.read_table(func / "sub-01_task-rest_desc-confounds_timeseries.tsv")
    moved = series_of(1) + 5 * table["trans_x"].to_numpy()[:, None]
    moved[20] += 1000
    steps = Steps("reho", limit=None, low=0.01)
    cleaning = Cleaning(("6p",), max_fd=0.5)
    prepare_bold(tree, tmp_path / "one", steps, cleaning)
    for letter, side in (("L", "left"), ("R", "right")):
        write_gifti(
            func / f"sub-01_task-rest_hemi-{letter}_space-fsaverage3_bold.func.gii", moved, side
        )
    prepare_bold(tree, tmp_path / "two", steps, cleaning)
    clean, noisy = (open_store(tmp_path / name) for name in ("one", "two"))
    np.testing.assert_allclose(clean.X[:], noisy.X[:], atol=2e-3)
    steps_done = [step["step"] for step in noisy.provenance["preprocessing"]]
    assert steps_done[:3] == ["regress_confounds", "censor", "bandpass"]
    assert noisy.provenance["preprocessing"][0]["columns"][0] == "trans_x"


def test_an_interrupted_run_goes_on(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[str] = []
    stop = ["sub-03"]
    real = bold.subject_map

    def counted_map(runs: Any, **options: Any) -> Any:
        computed.append(next(iter(runs[0].values())).name[:6])
        if computed[-1] in stop:
            raise KeyboardInterrupt
        return real(runs, **options)

    steps, out = Steps("alff", limit=None, low=0.01), tmp_path / "a"
    prepare_bold(tree, tmp_path / "whole", steps)
    monkeypatch.setattr(bold, "subject_map", counted_map)
    with pytest.raises(KeyboardInterrupt, match=r"a\.work"):
        prepare_bold(tree, out, steps)
    assert not out.exists()
    changed = tree / "sub-01" / "func" / "sub-01_task-rest_hemi-L_space-fsaverage3_bold.json"
    changed.touch()
    computed.clear()
    stop.clear()
    prepare_bold(tree, out, steps)
    assert computed == ["sub-01", "sub-03", "sub-04"] and not (tmp_path / "a.work").exists()
    resumed, complete = (open_store(path) for path in (out, tmp_path / "whole"))
    np.testing.assert_array_equal(resumed.X[:], complete.X[:])
    assert resumed.provenance["inputs"] == complete.provenance["inputs"]


@pytest.mark.slow
def test_two_processes_make_the_same(tree: Path, tmp_path: Path) -> None:
    for n in (1, 2):
        command = f"prepare alff {tree} -o {tmp_path}/{n} --n-procs {n} -q --low 0.01"
        assert run_cli(command, "--exclude sub-02") == 0
    alone, parallel = (open_store(tmp_path / f"{n}") for n in (1, 2))
    np.testing.assert_array_equal(alone.X[:], parallel.X[:])
    assert alone.subjects == parallel.subjects == ("sub-01", "sub-03", "sub-04")


def test_wrong_files_are_named(
    tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x"
    steps = Steps("reho", limit=None)
    folder = tree / "sub-01" / "func"
    start = "sub-01_task-rest"
    left_file = f"{start}_hemi-L_space-fsaverage3_bold.func.gii"
    right_file = f"{start}_hemi-R_space-fsaverage3_bold.func.gii"
    table = folder / f"{start}_desc-confounds_timeseries.tsv"

    def refused_file(name: str, cleaning: Cleaning | None = None) -> None:
        with pytest.raises(CohortError) as error:
            prepare_bold(tree, out, steps, cleaning)
        assert any(name in path for path, _ in error.value.problems)
        assert not out.exists()

    for cleaning in (Cleaning(("9p",)), Cleaning(max_fd=0.05)):
        refused_file(table.name, cleaning)
    nan_at_volume_3 = np.where(np.arange(T)[:, None] == 3, np.nan, series_of(1))
    for values in (np.ones((T, 700)), nan_at_volume_3):
        write_gifti(folder / left_file, values, "left")
        refused_file(left_file)
    write_gifti(folder / left_file, series_of(1), "left", intent="NIFTI_INTENT_TIME_SERIES")
    write_gifti(folder / right_file, series_of(1)[:-1], "right")
    for cleaning in (None, Cleaning(("6p",))):
        refused_file(right_file, cleaning)
    write_gifti(folder / right_file, series_of(1), "right", intent="NIFTI_INTENT_TIME_SERIES")
    table.write_text(table.read_text().replace("0.1", "inf"))
    refused_file(table.name, Cleaning(max_fd=0.5))
    # A file of a dataset of DataLad whose content is elsewhere.
    table.unlink()
    table.symlink_to(".git/annex/objects/Xx/Yy/c.tsv")
    refused_file(table.name, Cleaning(max_fd=0.5))
    for sidecar in folder.glob("*.json"):
        sidecar.unlink()
    refused_file(left_file)
    assert run_cli(f"prepare reho {tree} -o {out} --spheres x -q") == 2
    for file in tree.glob("*/func/*bold*"):
        file.rename(file.with_name(file.name.replace("fsaverage3", "fsnative")))
    refused_file(tree.name)
    for file in tree.glob("*/func/*bold*"):
        file.unlink()
    refused_file(tree.name)
    (tmp_path / "other").mkdir()
    assert run_cli(f"prepare reho {tmp_path}/other -o {out} -q") == 2
    assert "other" in capsys.readouterr().err
