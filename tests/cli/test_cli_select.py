"""`icofactor select` from files to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

import icofactor as ico
from helpers.commands import run_cli
from helpers.sidecars import undescribed
from icofactor.cli.select import ranks_of

FAST = "--splits 2 --starts 2 --nulls 5 -q"


@pytest.fixture(scope="module")
def maps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cohort as one array in a file, with what is known of its subjects."""
    folder = tmp_path_factory.mktemp("maps")
    cohort = ico.simulate_cohort(24, 3, mesh="fsaverage3", random_state=0)
    np.save(folder / "maps.npy", cohort.X)
    model = ico.CorticalFactorization(3, mesh="fsaverage3", hemi="left", n_starts=2, tol=1e-3).fit(
        cohort.X
    )
    (folder / "fitted").mkdir()
    model.save(folder / "fitted" / "model.zip")
    keys = (cohort.sites.coordinates[:, 2] < 0).astype(np.int32)
    colours = np.array([[25, 100, 40, 0, 0], [125, 100, 160, 0, 0]])
    nib.freesurfer.write_annot(
        folder / "lh.annot", keys, colours, ["north", "south"], fill_ctab=True
    )
    return folder


def words(maps: Path, out: Path) -> str:
    return f"select {maps}/maps.npy --mesh fsaverage3 --hemisphere left -o {out} {FAST}"


@pytest.mark.slow
def test_a_recommendation(maps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    command = f"{words(maps, out)} --ranks 2-4 --level 1"
    assert run_cli(command) == 0
    record = json.loads((out / "selection.json").read_text())
    assert record["table"]["rank"] == [2, 3, 4]
    assert record["reasons"][0] in capsys.readouterr().out
    assert (out / "selection.tsv").is_file() and (out / "selection.png").is_file()
    assert run_cli(command) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run_cli(command, "--overwrite") == 0


def test_parts(maps: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run_cli(words(maps, out), "--ranks 2-3 --method parts --center zscore --level 1") == 0
    record = json.loads((out / "selection.json").read_text())
    assert (record["settings"]["method"], record["settings"]["center"]) == ("parts", "zscore")
    assert set(record["others"]) <= {2, 3}
    columns = (out / "selection.tsv").read_text().splitlines()[0].split("\t")
    assert not undescribed(out)
    assert {"inner_product_median", "null_stability_coefficient", "loadings_adjusted"} < {*columns}


def test_trust_in_a_model(maps: Path, tmp_path: Path) -> None:
    command = f"{words(maps, tmp_path / 'out')} --model {maps}/fitted --spins 20"
    assert run_cli(command, f"--bootstrap 4 --atlas {maps}/lh.annot") == 0
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"atlas_overlap.tsv", "stability.tsv", "loadings_se.tsv"} <= names
    assert not any(name.startswith("selection") for name in names)
    assert not undescribed(tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ("--bootstrap 4", "--model"),
        ("--model nowhere.zip --bootstrap 4", "nowhere.zip"),
        ("--ranks 30", "--ranks"),
        ("--ranks 2 --splits 1", "--splits"),
        ("--ranks 2 --method NMF", "--method"),
        ("--ranks 2 --method CD-PNNMF --center mean", "--center"),
        ("--ranks 2 --method parts --center median", "--center"),
        ("--ranks 2 --covariates age", "'age'"),
        ("--model FITTED --bootstrap 1", "--bootstrap"),
        ("--model FITTED --atlas no.annot", "no.annot"),
        ("--model FITTED --bootstrap 4 --exclude maps-0001", "maps-0001"),
        ("--ranks 2 --stratify scanner", "--stratify"),
    ],
)
def test_one_clear_line(
    options: str, subject: str, maps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = options.replace("FITTED", str(maps / "fitted"))
    assert run_cli(words(maps, tmp_path / "out"), options) == 2
    message = capsys.readouterr().err
    assert subject in message and message.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_nothing_is_read_for_what_cannot_be_kept(
    maps: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    trust = f"{words(maps, out)} --model {maps}/fitted --spins 20 --atlas {maps}/lh.annot"
    assert run_cli(trust, "--bootstrap 2") == 0

    def refuse(options: object, **arguments: object) -> None:
        raise AssertionError("the maps are read")

    monkeypatch.setattr("icofactor.cli.select.plan_inputs", refuse)
    for file in ("stability.tsv", "loadings_se.tsv"):
        assert run_cli(trust, "--bootstrap 2") == 2
        assert file in capsys.readouterr().err
        (out / file).unlink()
    # of an atlas alone the model tells all
    with pytest.warns(UserWarning, match=r"maps\.npy is not read: --atlas"):
        assert run_cli(trust, "--overwrite") == 0
    assert (out / "atlas_overlap.tsv").is_file()
    bare = f"select -o {out} --model {maps}/fitted --spins 20 --overwrite -q"
    assert run_cli(bare, f"--atlas {maps}/lh.annot") == 0
    monkeypatch.undo()
    assert run_cli(bare, "--bootstrap 2") == 2
    assert "INPUT" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["select", "report"])
@pytest.mark.parametrize("files", [["a,b"], ["a", "b"], ["a, b"]])
def test_an_atlas_is_given_alike_everywhere(
    command: str, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    atlases: list[Any] = []
    monkeypatch.setattr(
        f"icofactor.cli.{command}.run", lambda options: atlases.append(options.atlas)
    )
    fit = "-o out --model fitted" if command == "select" else "fitted"
    assert run_cli(command, fit, "--atlas", files) == 0
    assert atlases == [("a", "b")]


def test_the_maps_of_a_model_are_read_as_the_model_was_fitted(
    maps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"select {maps}/maps.npy -o {maps}/fitted --model {maps}/fitted -q"
    assert run_cli(command, "--bootstrap 2") == 0
    assert f"run: icofactor report {maps / 'fitted'} --overwrite" in capsys.readouterr().out
    assert (
        maps / "fitted" / "hemi-L_space-fsaverage_den-642_desc-icofactor_componentsse.shape.gii"
    ).is_file()


def test_ranks_in_words() -> None:
    assert ranks_of("2-4") == [2, 3, 4]
    assert ranks_of("2,4,8-9") == [2, 4, 8, 9]
    with pytest.raises(SystemExit):
        run_cli("select x.npy -o out --ranks many")
