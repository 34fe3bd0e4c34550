"""Several measures on the command line: from stores to a folder, to new people, to tests, and back to the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import icofactor as ico
from helpers.region_tables import aparcstats2table, toy_values, write_toy_atlas
from icofactor.cli.main import main
from icofactor.cohort import save_store
from icofactor.io.gifti import read_gifti
from icofactor.io.tables import read_table
from icofactor.results.description import read_fit
from icofactor.results.meaning import names_of_bars
from icofactor.results.report.charts import draw_regions

N, K = 24, 3
SHARES = ("maps", "loadings")
JOINED = ["--scale", "variance", "--weights", "thickness=1,myelin=2"]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """thickness.store and, without two of its people, myelin.store; new people in new/."""
    folder = tmp_path_factory.mktemp("stores")
    for number, name in enumerate(("thickness", "myelin")):
        cohort = ico.simulate_cohort(N + 4, K, name, "both", 1, mesh="fsaverage3", measure=number)
        fitted, new = replace(cohort, truth=None)[: N - 2 * number], replace(cohort, truth=None)[N:]
        save_store(fitted, folder / f"{name}.store")
        (folder / "new").mkdir(exist_ok=True)
        save_store(new, folder / "new" / f"{name}.store")
    return folder


@pytest.fixture(scope="module", params=SHARES)
def fitted(request: pytest.FixtureRequest, stores: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp(request.param) / "out"
    inputs = [str(stores / f"{name}.store") for name in ("thickness", "myelin")]
    options = ["--share", request.param, *JOINED, "--missing", "skip", "--n-components", str(K), "--level", "1"]
    assert main(["fit", *inputs, *options, "-o", str(out), "--no-figures", "-q"]) == 0
    return request.param, out


def test_a_fit_leaves_maps_and_loadings_of_each_measure(fitted: tuple[str, Path], stores: Path) -> None:
    share, out = fitted
    model, fit = ico.load_model(out), read_fit(out)
    thickness, myelin = (ico.load_cohort(stores / f"{name}.store") for name in ("thickness", "myelin"))
    maps = model.measures_.maps(model.components_)
    for name in ("thickness", "myelin"):
        written = read_gifti(out / f"hemi-R_space-fsaverage_den-642_desc-{name}_components.shape.gii")
        np.testing.assert_allclose(next(iter(written.parts.values())), maps[name][:, 642:], rtol=1e-5, atol=1e-6)
    table, _ = read_table(out / "desc-icofactor_loadings.tsv")
    assert ("measure" in table) == (share == "maps")
    assert table["participant_id"][: N - 2] == list(myelin.subjects)
    # what is explained of each measure, from the equations on the whole X
    X = [np.asarray(one.X)[: N - 2].astype(np.float64) for one in (thickness, myelin)]
    back = np.split(model.inverse_transform(model.loadings_), 2, axis=0 if share == "maps" else 1)
    expected = [
        1 - ((x - there) ** 2).sum() / ((x - x.mean(axis=0)) ** 2).sum() for x, there in zip(X, back, strict=True)
    ]
    np.testing.assert_allclose(fit.diagnostics.measure_explained, expected, rtol=1e-6)
    each, _ = read_table(out / "tables" / "measures.tsv")
    np.testing.assert_allclose(np.array(each["explained"], dtype=float), expected, rtol=1e-6)
    assert fit.diagnostics.explained == pytest.approx(model.explained_)
    np.testing.assert_allclose(model.measures_.variance, [1 / 3, 2 / 3], rtol=1e-9)
    text = (out / "methods.md").read_text()
    assert "thickness and myelin were factorized together" in text and f"of {N - 2} subjects" in text
    assert "squared errors were weighted (thickness 1 and myelin 2)" in text and "2 subjects were left out" in text
    record = json.loads((out / "provenance.json").read_text())
    assert record["data"]["joined"]["share"] == share
    names = [name for name, _ in fit.by_measure()]
    assert names == ([""] if share == "maps" else ["thickness", "myelin"])


def test_new_people_of_every_measure(fitted: tuple[str, Path], stores: Path, tmp_path: Path) -> None:
    """In whichever order, by the scale of the fit; the same as in Python."""
    share, out = fitted
    inputs = [f"{name}={stores / 'new' / f'{name}.store'}" for name in ("myelin", "thickness")]
    assert main(["transform", str(out), *inputs, "-o", str(tmp_path / "new.tsv"), "-q"]) == 0
    table, _ = read_table(tmp_path / "new.tsv")
    new = {name: ico.load_cohort(stores / "new" / f"{name}.store") for name in ("thickness", "myelin")}
    expected = ico.load_model(out).transform(ico.join_measures(new, share))
    found = np.array([table[f"component0{j + 1}"] for j in range(K)], dtype=float).T
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    assert main(["transform", str(out), inputs[0], "-o", str(tmp_path / "x.tsv"), "-q"]) == 2


def test_what_else_is_asked_of_a_fit(fitted: tuple[str, Path], stores: Path, tmp_path: Path) -> None:
    """Resamples, tests and the page; people are the rows of a test, and have a loading per measure."""
    share, out = fitted
    inputs = [str(stores / f"{name}.store") for name in ("thickness", "myelin")]
    options = ["--model", str(out), "--bootstrap", "2", "--missing", "skip", "-o", str(out), "-q", "--overwrite"]
    assert main(["select", *inputs, *options]) == 0
    assert main(["associate", str(out), "--formula", "age", "--permutations", "99", "-q", "--overwrite"]) == 0
    tests, _ = read_table(out / "associations.tsv")
    wide = [f"component0{j + 1}_{name}" for name in ("thickness", "myelin") for j in range(K)]
    assert tests["component"] == (wide if share == "maps" else [f"component0{j + 1}" for j in range(K)])
    model, people = ico.load_model(out), read_fit(out)
    age = ico.load_cohort(inputs[1]).participants["age"]
    again = ico.associate(model, {"age": age}, "age", n_permutations=99)
    np.testing.assert_allclose(again.table["estimate"], np.array(tests["estimate"], dtype=float), rtol=1e-6)
    effects = read_gifti(out / "hemi-L_space-fsaverage_den-642_desc-myelin_effects.shape.gii")
    rows = slice(K, 2 * K) if share == "maps" else slice(None)
    expected = again.table["estimate"][rows] @ model.measures_.maps(model.components_)["myelin"][:, :642]
    np.testing.assert_allclose(next(iter(effects.parts.values()))[0], expected, rtol=1e-4, atol=1e-7)
    assert people.selection.component_se.shape == model.components_.shape
    assert main(["report", str(out), "--overwrite", "--no-figures", "-q"]) == 0
    page = (out / "report.html").read_text()
    assert "Measures" in page and ("component:myelin" in page) == (share == "loadings")


def test_a_choice_that_is_missing_is_explained(
    stores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two, out = [str(stores / f"{name}.store") for name in ("thickness", "myelin")], ["-o", str(tmp_path / "out")]
    refusals = {
        "--share maps, one set of maps": two,
        "--weights must be of the measures": [*two, "--share", "maps", "--weights", "area=1"],
        "2 of 24: sub-0023 (myelin), sub-0024 (myelin); --missing skip leaves": [
            *two,
            "--share",
            "maps",
        ],
        "--scale applies to several measures: give --share": [two[0], "--scale", "variance"],
        "INPUT must be cohort stores": [str(stores), "--share", "maps"],
        "write NAME=STORE": [two[0], two[0], "--share", "maps"],
        "--scale zscore makes values negative, which --method CD-PNNMF cannot": [
            *(*two, "--share", "maps", "--scale", "zscore", "--method", "CD-PNNMF", "--missing", "skip")
        ],
        "Covariates and scanners cannot be regressed out": [
            *(*two, "--share", "maps", "--covariates", "age", "--missing", "skip")
        ],
    }
    for message, options in refusals.items():
        assert main(["fit", *options, *out, "-q"]) == 2
        said = capsys.readouterr().err
        assert message in said and len(said.splitlines()) == 1, said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("share", SHARES)
def test_tables_of_regions_are_joined_too(
    share: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They need no store; a measure that nobody listed is taken off the names of regions."""
    monkeypatch.setattr("icofactor.results.folder.drawn_components", lambda fit: b"")
    X = {"thickness": toy_values(16), "mt30": toy_values(16, 1)}
    for name, values in X.items():
        for file in aparcstats2table(tmp_path / name, values):
            text = file.read_text().replace("MeanThickness_thickness", "MeanThickness")
            file.write_text(text.replace("_thickness", f"_{name}"))
    inputs, out = [f"{name}={tmp_path / name}" for name in X], tmp_path / "out"
    atlas = ["--parcels", *map(str, write_toy_atlas(tmp_path)), "--share", share]
    assert main(["fit", *inputs, *atlas, "-o", str(out), "--dry-run", "-q"]) == 0
    assert "16 regions of the atlas toy on fsaverage3, both" in capsys.readouterr().out and not out.exists()
    assert main(["fit", *inputs, *atlas, "-o", str(out), "--n-components", "2", "--no-figures", "-q"]) == 0
    assert main(["transform", str(out), *inputs, "-o", str(tmp_path / "new.tsv"), "-q"]) == 0
    model, (table, _) = ico.load_model(out), read_table(tmp_path / "new.tsv")
    found = np.array([table["component01"], table["component02"]], dtype=float).T
    np.testing.assert_allclose(found, model.loadings_, atol=1e-6)
    back = dict(
        zip(X, np.split(model.inverse_transform(model.loadings_), 2, axis=int(share == "loadings")), strict=True)
    )
    left = {name: ((values - back[name]) ** 2).mean() / values.var(axis=0).mean() for name, values in X.items()}
    assert max(left.values()) < 0.6, left
    figure = draw_regions(model, "", [0, 1], ["", ""])  # every bar has a name, of its own measure
    assert len(figure.axes[1].patches) == model.components_.shape[1] == len(names_of_bars(model))
    if share == "loadings":
        assert names_of_bars(model)[:17:16] == ["thickness lh_bankssts", "mt30 lh_bankssts"]
        assert '"mt30 lh_bankssts"' in (out / "report.html").read_text()
    boot = ["--bootstrap", "2", "-o", str(out), "-q", "--overwrite"]
    assert main(["select", *inputs, *atlas[:3], "--model", str(out), *boot]) == 0
    errors = read_table(out / "components_se.tsv")[0]
    assert errors.get("measure", ["mt30"])[-1] == "mt30" and ("measure" in errors) == (share == "loadings")
    methods = (out / "methods.md").read_text()
    assert "on the regions themselves" in methods and "of the faces" not in methods
    assert "measure" not in read_table(out / "tables" / "correlations.tsv")[0]["column"]


@pytest.mark.slow
def test_the_demo_has_several_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--measures", "thickness,myelin", "--share", "loadings", "--n-subjects", "20", "--n-components", "3"]
    assert main(["demo", str(tmp_path / "demo"), *options, "--hemisphere", "left", "--no-figures", "-q"]) == 0
    said = capsys.readouterr().out
    assert "of loadings (myelin)" in said and "Of each measure: thickness" in said
