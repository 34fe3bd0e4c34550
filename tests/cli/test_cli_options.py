"""The words that say what to read, with --dry-run: it accepts and refuses what the fit would."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.trees import fmriprep_tree, freesurfer_tree, gifti_files, hemispheres, names, write_gifti
from icofactor.cli import bids
from icofactor.cli.main import _parser, main
from icofactor.cohort.store.create import save_store
from icofactor.errors import CohortError

N = 642
X = (np.random.default_rng(5).random((6, 2 * N)) + 2).astype(np.float32)
IDS = names(6)
MAPS = hemispheres(X)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    freesurfer_tree(tmp_path / "fs", IDS, MAPS, smoothing=0, target="fsaverage3")
    freesurfer_tree(tmp_path / "fs", IDS, MAPS, smoothing=10, target="fsaverage3")
    rows = [f"{subject}\t{20 + i**2}\n" for i, subject in enumerate([*IDS, "sub-099"])]
    (tmp_path / "all.tsv").write_text("participant_id\tage\n" + "".join(rows))
    (tmp_path / "four.tsv").write_text("participant_id\tage\n" + "".join(rows[:4]))
    return tmp_path


def plan(*words: object, n: int = 2) -> int:
    return main(["fit", *map(str, words), "-o", "nowhere", "--n-components", str(n), "--dry-run", "-q"])


def test_smoothing_of_0(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(place / "fs", "--smoothing", 0) == 0
    assert "thickness.fwhm0.fsaverage3" in capsys.readouterr().out
    assert plan(place / "fs") == 2
    assert "choose with --smoothing; there are" in capsys.readouterr().err


def test_subjects_without_files(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [place / "fs", "--smoothing", 10, "--participants", place / "all.tsv"]
    assert plan(*words) == 2
    err = capsys.readouterr().err
    assert err.startswith("icofactor fit: --participants: no map was found of sub-099; there are maps of sub-001")
    assert err.endswith("--missing skip leaves them out\n")
    assert plan(*words, "--missing", "skip", "--covariates", "age") == 0
    assert "of 6 subjects" in capsys.readouterr().out
    assert plan(*words, "--exclude", "sub-099") == 0


def test_entities(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for session in ("1", "2"):
        fmriprep_tree(tmp_path, IDS, MAPS, f"ses-{session}_task-rest", "space-fsaverage3")
    assert plan(tmp_path) == 2
    assert "or choose with --entities (ses is 1, 2)" in capsys.readouterr().err
    assert plan(tmp_path, "--entities", "ses=2,task=rest") == 0
    assert "Would read 12 files" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        plan(tmp_path, "--entities", "ses")
    assert "NAME=VALUE,..., e.g. ses=1,task=rest; found 'ses'" in capsys.readouterr().err


def test_a_store_as_the_fit_reads_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_store(ico.load_cohort(place / "fs", smoothing=10), place / "store")  # type: ignore[arg-type]
    assert plan(place / "store", "--participants", place / "four.tsv", "--covariates", "age") == 0
    out = capsys.readouterr().out
    assert "of 4 subjects" in out and "left out 2 subjects that the participants table does not list" in out
    stored = ico.load_cohort(place / "store", exclude=IDS[:2])
    assert stored.provenance["left_out"] == {"by name": IDS[:2]}
    assert repr(stored).startswith("StoredCohort(4 subjects × 1284 vertices; thickness in mm, both hemispheres; ")
    assert plan(place / "store", "--exclude", IDS[0]) == 0
    assert "of 5 subjects" in capsys.readouterr().out
    assert plan(place / "store", "--participants", place / "all.tsv") == 2
    assert "no map was found of sub-099; there are maps of" in capsys.readouterr().err
    assert plan(place / "store", "--participants", place / "all.tsv", "--missing", "skip") == 0
    assert plan(place / "store", "--mask", "lh.cortex.label") == 2
    assert "--mask applies to files" in capsys.readouterr().err


def test_empty_sites_of_both_hemispheres_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    holes = np.where(np.arange(2 * N) % N < 7, 0, X)
    freesurfer_tree(tmp_path, IDS, hemispheres(holes), target="fsaverage3")
    assert plan(tmp_path) == 0
    assert "left out (14 are, in the first subject)" in capsys.readouterr().out


def test_options_that_python_has_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names of subjects, one of several maps, penalty and columns."""
    np.save(tmp_path / "maps.npy", X)
    assert plan(tmp_path / "maps.npy", "--subjects", ",".join("abcdef"), "--exclude", "b") == 0
    assert "of 5 subjects" in capsys.readouterr().out
    assert plan(tmp_path / "maps.npy", "--subjects", "a,b") == 2
    assert capsys.readouterr().err.startswith("icofactor fit: --subjects: has 2 names; ")
    for subject, row in zip(IDS, MAPS["left"], strict=True):
        write_gifti(tmp_path / f"{subject}_hemi-L.func.gii", np.stack([row, row]), "left")
    assert plan(tmp_path / "*.gii") == 2
    assert "contains 2 maps, but one per subject was expected; choose one with --map-name" in capsys.readouterr().err
    assert plan(tmp_path / "*.gii", "--map-name", 1) == 0
    capsys.readouterr()
    assert plan(tmp_path / "maps.npy", "--columns", "smooth", "--penalty", -1, "--method", "CD-PNNMF") == 2
    assert "--penalty must be" in capsys.readouterr().err


def test_covariates_of_an_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "maps.npz", X=X, age=np.arange(6) ** 2, cortex=np.arange(2 * N) > 9)
    assert plan(tmp_path / "maps.npz", "--covariates", "age") == 0
    out = capsys.readouterr().out
    assert "mask: given, 10 of 1284 sites left out" in out and "regress out age\nand fit" in out
    assert plan(tmp_path / "maps.npz", "--covariates", "sex") == 2
    assert "no column 'sex' for a covariate; its columns: 'age'" in capsys.readouterr().err


def test_stacks_of_subjects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part, rows in (("a", slice(0, 2)), ("b", slice(2, 6))):
        write_gifti(tmp_path / f"lh.{part}.func.gii", MAPS["left"][rows], "left", IDS[rows])
    assert plan(tmp_path) == 0
    assert "Would read 2 files" in (out := capsys.readouterr().out) and "of 6 subjects" in out


def test_what_the_fit_would_refuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    maps = gifti_files(tmp_path / "gii", IDS, MAPS)
    assert plan(maps, n=7) == 2
    assert "--n-components 7 is more than the 6 subjects" in capsys.readouterr().err
    assert plan(tmp_path / "nowhere") == 2
    assert capsys.readouterr().err == f"icofactor fit: {tmp_path}/nowhere: no such file\n"
    for i, subject in enumerate(IDS[:2]):
        write_gifti(tmp_path / f"{subject}_hemi-L_bold.func.gii", X[i : i + 3, :N], "left")
    assert plan(str(tmp_path / "*_bold.func.gii")) == 2
    assert "contains 3 maps, but one per subject was expected" in capsys.readouterr().err
    signed = gifti_files(tmp_path / "sulc", IDS, {side: rows - 2.5 for side, rows in MAPS.items()})
    assert plan(signed, "--method", "CD-PNNMF") == 2
    assert "The first file has negative values (down to -0." in capsys.readouterr().err
    assert plan(signed, "--method", "DL") == 0
    capsys.readouterr()
    assert plan(signed, "--method", "parts", "--center", "zscore") == 0
    assert "by parts of z-scores from 50 starts" in capsys.readouterr().out
    assert plan(signed, "--method", "LE-PPNMF", "--center", "mean") == 0
    assert plan(signed, "--method", "parts") == 0
    assert "by parts of deviations from the mean map from 50 starts" in capsys.readouterr().out
    assert plan(maps, "--method", "CD-PNNMF", "--center", "mean") == 2
    assert "--center mean makes values negative, which --method CD-PNNMF cannot" in capsys.readouterr().err
    positive = ",".join(str(tmp_path / f"{side}.npy") for side in ("lh", "rh"))
    for side, rows in zip(("lh", "rh"), MAPS.values(), strict=True):
        np.save(tmp_path / f"{side}.npy", (rows.min(axis=0) > 2.5).astype(np.uint8))
    assert plan(signed, "--mask", positive) == 0


def test_covariates_are_checked_before_the_maps_are_read(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*given: object, **more: object) -> None:
        raise AssertionError("the maps were read")

    monkeypatch.setattr("icofactor.cohort.plan.Plan.read", never)
    ages = zip(IDS, ["n/a", *"1234", ""], strict=True)
    (place / "gaps.tsv").write_text("participant_id\tage\n" + "".join(f"{name}\t{age}\n" for name, age in ages))
    words = ["fit", str(place / "fs"), "--smoothing", "0", "-o", str(place / "out"), "--covariates", "age"]
    assert main([*words, "--participants", str(place / "gaps.tsv")]) == 2
    err = capsys.readouterr().err
    assert "Covariate 'age' is missing for subjects sub-001, sub-006: fill it in" in err
    assert "--missing-covariates skip" in err
    assert not (place / "out").exists()


@pytest.mark.parametrize("command", ["fit", "select"])
def test_subjects_without_covariates_can_be_left_out(
    command: str, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def stop(plan: Any, *given: object) -> None:
        seen.append(plan)
        raise CohortError("here", "it ends")

    monkeypatch.setattr("icofactor.cohort.plan.Plan.read", stop)
    ages = zip(IDS, ["n/a", *"1234", ""], strict=True)
    (tmp_path / "gaps.tsv").write_text("participant_id\tage\n" + "".join(f"{name}\t{age}\n" for name, age in ages))
    words = [command, str(place / "fs"), "--smoothing", "0", "-o", str(tmp_path / "out"), "--covariates", "age"]
    words += ["--participants", str(tmp_path / "gaps.tsv"), "--missing-covariates", "skip"]
    assert main([*words, *(["--ranks", "2"] if command == "select" else ["--n-components", "2"])]) == 2
    err = capsys.readouterr().err
    assert "left out 2 subjects with missing covariates: sub-001, sub-006" in err
    assert seen[0].subjects == tuple(IDS[1:5])
    assert seen[0].journal.left_out == {"with missing covariates": ["sub-001", "sub-006"]}


@pytest.mark.parametrize("what", ["", "model.zip", "hemi-L_space-fsaverage3_desc-icofactor_components.shape.gii"])
def test_the_results_of_a_fit_are_no_maps_of_subjects(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("model.zip", "desc-icofactor_loadings.tsv"):
        (tmp_path / name).touch()
    write_gifti(tmp_path / "hemi-L_space-fsaverage3_desc-icofactor_components.shape.gii", MAPS["left"], "left")
    assert plan(tmp_path / what) == 2
    err = capsys.readouterr().err
    assert ("contains the results of a fit" if what == "" else "belongs to a fit, not to a subject") in err
    assert "give the maps of subjects: those to fit, or new ones with `icofactor transform FITTED NEW_MAPS" in err


@pytest.mark.parametrize("flag", ["--n-starts", "--starts"])
def test_fit_and_select_have_one_name_for_starts(flag: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan(place / "fs", "--smoothing", 0, flag, 3) == 0
    assert "from 3 starts" in capsys.readouterr().out
    assert main(["select", str(place / "fs"), "--smoothing", "0", "-o", str(place / "out"), flag, "0"]) == 2
    assert "--n-starts must be a whole number ≥ 1" in capsys.readouterr().err


@pytest.mark.parametrize("parser", [*_parser()[1].values(), bids.parser()], ids=lambda parser: parser.prog)
def test_help_keeps_names_whole(parser: argparse.ArgumentParser, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line ends inside CD-SPNNMF or --limit-outliers, and INPUT names no option that the command lacks."""
    monkeypatch.setenv("COLUMNS", "80")
    text = parser.format_help()
    assert not [line for line in text.splitlines() if line.endswith("-")]
    assert ("--share" in text) == ("--share" in parser._option_string_actions)
