"""The words that say what to read, with --dry-run: it accepts and refuses what the fit would."""

from __future__ import annotations

from pathlib import Path

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

N = 642
X = (np.random.default_rng(5).random((6, 2 * N)) + 2).astype(np.float32)
IDS = names(6)
MAPS = hemispheres(X)
COMPONENTS = "hemi-L_space-fsaverage3_desc-icofactor_components.shape.gii"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    gaps = [row.replace("20\n", "n/a\n").replace("45\n", "\n") for row in rows[:6]]
    (folder / "gaps.tsv").write_text("participant_id\tage\n" + "".join(gaps))
    (folder / "four.tsv").write_text("participant_id\tage\n" + "".join(rows[:4]))
    return folder


def plan(*words: str) -> int:
    return run_cli("fit", *words, "-o nowhere --n-components 2 --dry-run -q")


@pytest.mark.parametrize(
    ("words", "n_subjects"),
    [
        ("fs --smoothing 0", 6),
        ("fs --smoothing 10 --participants all.tsv --missing skip --covariates age", 6),
        ("fs --smoothing 10 --participants all.tsv --exclude sub-099", 6),
        ("fs --smoothing 10 --starts 3", 6),
        ("fs --smoothing 0 --covariates age --participants gaps.tsv --missing-covariates skip", 4),
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
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert plan(words) == 0
    assert f"of {n_subjects} subjects" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "subject"),
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
        ("signed --method CD-PNNMF", "--method"),
        ("maps.npy --method CD-PNNMF --center mean", "--center"),
    ],
)
def test_words_that_a_fit_refuses(
    words: str,
    subject: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert plan(words) == 2
    assert subject in capsys.readouterr().err


def test_a_mask_is_a_pair_of_files(tmp_path: Path, folder: Path) -> None:
    files = [tmp_path / f"{side}.npy" for side in ("lh", "rh")]
    for file, rows in zip(files, MAPS.values(), strict=True):
        np.save(file, (rows.min(axis=0) > 2.5).astype(np.uint8))
    assert plan(str(folder / "signed"), f"--mask {files[0]},{files[1]}") == 0


def test_covariates_are_checked_before_the_maps_are_read(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("icofactor.cohort.plan.Plan.read", None)
    words = f"fit {folder}/fs --smoothing 0 -o {tmp_path}/out --covariates age"
    assert run_cli(words, f"--participants {folder}/gaps.tsv") == 2
    err = capsys.readouterr().err
    assert "sub-001, sub-006" in err and "--missing-covariates" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("result", ["", "model.zip", COMPONENTS])
def test_the_results_of_a_fit_are_no_maps_of_subjects(
    result: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("model.zip", "desc-icofactor_loadings.tsv"):
        (tmp_path / name).touch()
    write_gifti(tmp_path / COMPONENTS, MAPS["left"], "left")
    assert plan(str(tmp_path / result)) == 2
    assert "icofactor transform" in capsys.readouterr().err
