"""The words that say what to read, with --dry-run: it accepts and refuses what the fit would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.commands import run_cli
from helpers.trees import (
    fmriprep_tree,
    freesurfer_tree,
    gifti_files,
    hemispheres,
    names,
    write_gifti,
)
from icofactor.cohort.store.create import save_store
from icofactor.errors import CohortError

N = 642
X = (np.random.default_rng(5).random((6, 2 * N)) + 2).astype(np.float32)
IDS = names(6)
MAPS = hemispheres(X)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("options")
    for smoothing in (0, 10):
        tree = freesurfer_tree(folder / "fs", IDS, MAPS, smoothing=smoothing, target="fsaverage3")
    for session in ("1", "2"):
        fmriprep_tree(folder / "bids", IDS, MAPS, f"ses-{session}_task-rest", "space-fsaverage3")
    save_store(ico.load_cohort(tree, smoothing=10), folder / "store")  # type: ignore[arg-type]
    gifti_files(folder / "signed", IDS, {side: rows - 2.5 for side, rows in MAPS.items()})
    for subject, row in zip(IDS, MAPS["left"], strict=True):
        write_gifti(folder / f"{subject}_hemi-L.func.gii", np.stack([row, row]), "left")
    np.save(folder / "maps.npy", X)
    np.savez(folder / "maps.npz", X=X, age=np.arange(6) ** 2, cortex=np.arange(2 * N) > 9)
    rows = [f"{subject}\t{20 + i**2}\n" for i, subject in enumerate([*IDS, "sub-099"])]
    (folder / "all.tsv").write_text("participant_id\tage\n" + "".join(rows))
    (folder / "four.tsv").write_text("participant_id\tage\n" + "".join(rows[:4]))
    return folder


def plan(*words: str) -> int:
    return run_cli("fit", words, "-o nowhere --n-components 2 --dry-run -q")


@pytest.mark.parametrize(
    ("words", "n_subjects"),
    [
        ("fs --smoothing 0", 6),
        ("fs --smoothing 10 --participants all.tsv --missing skip --covariates age", 6),
        ("fs --smoothing 10 --participants all.tsv --exclude sub-099", 6),
        ("fs --smoothing 10 --starts 3", 6),
        ("bids --entities ses=2,task=rest", 6),
        ("store --participants four.tsv --covariates age", 4),
        ("store --participants all.tsv --missing skip", 6),
        ("store --exclude sub-001", 5),
        ("maps.npy --subjects a,b,c,d,e,f --exclude b", 5),
        ("*.gii --map-name 1", 6),
        ("maps.npz --covariates age", 6),
        ("signed --method DL", 6),
        ("signed --method LE-PPNMF --center mean", 6),
    ],
)
def test_words_that_a_fit_takes(
    words: str,
    n_subjects: int,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    assert plan(*words.split()) == 0
    assert f"of {n_subjects} subjects" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("fs", "--smoothing"),
        ("fs --smoothing 10 --participants all.tsv", "sub-099"),
        ("fs --smoothing 10 --n-starts 0", "--n-starts"),
        ("bids", "--entities"),
        ("store --participants all.tsv", "sub-099"),
        ("store --mask lh.cortex.label", "--mask"),
        ("maps.npy --subjects a,b", "--subjects"),
        ("*.gii", "--map-name"),
        ("maps.npy --columns smooth --penalty -1 --method CD-PNNMF", "--penalty"),
        ("maps.npz --covariates sex", "sex"),
        ("signed --method CD-PNNMF", "negative"),
        ("maps.npy --method CD-PNNMF --center mean", "--center mean"),
    ],
)
def test_words_that_a_fit_refuses(
    words: str,
    named: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(place)
    assert plan(*words.split()) == 2
    assert named in capsys.readouterr().err


def test_a_mask_is_a_pair_of_files(tmp_path: Path, place: Path) -> None:
    files = [tmp_path / f"{side}.npy" for side in ("lh", "rh")]
    for file, rows in zip(files, MAPS.values(), strict=True):
        np.save(file, (rows.min(axis=0) > 2.5).astype(np.uint8))
    assert plan(str(place / "signed"), "--mask", ",".join(map(str, files))) == 0


def test_covariates_are_checked_before_the_maps_are_read(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*given: object, **more: object) -> None:
        raise AssertionError("the maps were read")

    monkeypatch.setattr("icofactor.cohort.plan.Plan.read", never)
    ages = zip(IDS, ["n/a", *"1234", ""], strict=True)
    (tmp_path / "gaps.tsv").write_text(
        "participant_id\tage\n" + "".join(f"{name}\t{age}\n" for name, age in ages)
    )
    words = f"fit {place}/fs --smoothing 0 -o {tmp_path}/out --covariates age"
    assert run_cli(words, f"--participants {tmp_path}/gaps.tsv") == 2
    err = capsys.readouterr().err
    assert "sub-001, sub-006" in err and "--missing-covariates" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["fit", "select"])
def test_subjects_without_covariates_can_be_left_out(
    command: str, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def stop(plan: Any, *given: object) -> None:
        seen.append(plan)
        raise CohortError("here", "it ends")

    monkeypatch.setattr("icofactor.cohort.plan.Plan.read", stop)
    ages = zip(IDS, ["n/a", *"1234", ""], strict=True)
    (tmp_path / "gaps.tsv").write_text(
        "participant_id\tage\n" + "".join(f"{name}\t{age}\n" for name, age in ages)
    )
    words = [
        command,
        str(place / "fs"),
        "--smoothing",
        "0",
        "-o",
        str(tmp_path / "out"),
        "--covariates",
        "age",
    ]
    words += ["--participants", str(tmp_path / "gaps.tsv"), "--missing-covariates", "skip"]
    assert run_cli(words, ["--ranks", "2"] if command == "select" else ["--n-components", "2"]) == 2
    assert seen[0].subjects == tuple(IDS[1:5])
    assert seen[0].journal.left_out == {"with missing covariates": ["sub-001", "sub-006"]}


@pytest.mark.parametrize(
    "result", ["", "model.zip", "hemi-L_space-fsaverage3_desc-icofactor_components.shape.gii"]
)
def test_the_results_of_a_fit_are_no_maps_of_subjects(
    result: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("model.zip", "desc-icofactor_loadings.tsv"):
        (tmp_path / name).touch()
    write_gifti(
        tmp_path / "hemi-L_space-fsaverage3_desc-icofactor_components.shape.gii",
        MAPS["left"],
        "left",
    )
    assert plan(str(tmp_path / result)) == 2
    assert "icofactor transform" in capsys.readouterr().err
