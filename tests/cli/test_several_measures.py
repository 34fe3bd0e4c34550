"""Several measures on the command line: from stores to a folder, to new people, to tests, and back to the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import icofactor as ico
from helpers.commands import run_cli
from helpers.pages import Page
from helpers.region_tables import aparcstats2table, toy_values, write_toy_atlas
from helpers.trees import freesurfer_tree
from icofactor.cohort import save_store
from icofactor.io.gifti import read_gifti
from icofactor.results.description import read_fit
from icofactor.results.meaning import names_of_bars
from icofactor.results.report.charts import draw_regions

N, K = 24, 3
SHARES = ("maps", "loadings")
JOINED = "--scale variance --weights thickness=1,myelin=2 --missing skip"
MEASURES = ("thickness", "myelin")


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
def fitted(
    request: pytest.FixtureRequest, stores: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp(request.param) / "out"
    words = f"fit {stores}/thickness.store {stores}/myelin.store --share {request.param}"
    assert run_cli(words, JOINED, f"--n-components {K} --level 1 -o {out} --no-figures -q") == 0
    return request.param, out


def two_stores(folder: Path) -> list[str]:
    return [str(folder / f"{name}.store") for name in MEASURES]


def loadings_of(path: Path, k: int) -> np.ndarray:
    names = [f"component0{j + 1}" for j in range(k)]
    return pd.read_table(path)[names].to_numpy()


def map_values(path: Path) -> np.ndarray:
    return next(iter(read_gifti(path).parts.values()))


def test_a_fit_leaves_maps_and_loadings_of_each_measure(
    fitted: tuple[str, Path], stores: Path
) -> None:
    share, out = fitted
    model, fit = ico.load_model(out), read_fit(out)
    thickness, myelin = (ico.load_cohort(path) for path in two_stores(stores))
    for name, maps in model.measures_.maps(model.components_).items():
        file = out / f"hemi-R_space-fsaverage_den-642_desc-{name}_components.shape.gii"
        np.testing.assert_allclose(map_values(file), maps[:, 642:], rtol=1e-5, atol=1e-6)
    table = pd.read_table(out / "desc-icofactor_loadings.tsv")
    assert ("measure" in table) == (share == "maps")
    assert list(table["participant_id"])[: N - 2] == list(myelin.subjects)
    # what is explained of each measure, from the equations on the whole X
    X = [np.asarray(cohort.X)[: N - 2].astype(np.float64) for cohort in (thickness, myelin)]
    back = np.split(model.inverse_transform(model.loadings_), 2, axis=0 if share == "maps" else 1)
    expected = [
        1 - ((x - approximation) ** 2).sum() / ((x - x.mean(axis=0)) ** 2).sum()
        for x, approximation in zip(X, back, strict=True)
    ]
    np.testing.assert_allclose(fit.diagnostics.measure_explained, expected, rtol=1e-6)
    explained = pd.read_table(out / "tables" / "measures.tsv")["explained"]
    np.testing.assert_allclose(explained, expected, rtol=1e-6)
    assert fit.diagnostics.explained == pytest.approx(model.explained_)
    # people, once for every measure with loadings
    name, rows = ("age, myelin", slice(N - 2, None)) if share == "maps" else ("age", slice(None))
    correlations = pd.read_table(out / "tables" / "correlations.tsv").set_index("column")
    first = correlations.loc[[name]].iloc[0]
    r = np.corrcoef(myelin.participants["age"], model.loadings_[rows, 0])[0, 1]
    assert first["n"] == N - 2 and float(first["value"]) == pytest.approx(r, abs=1e-5)
    np.testing.assert_allclose(model.measures_.variance, [1 / 3, 2 / 3], rtol=1e-9)
    record = json.loads((out / "provenance.json").read_text())
    assert record["data"]["joined"]["share"] == share


def test_new_people_of_every_measure(
    fitted: tuple[str, Path], stores: Path, tmp_path: Path
) -> None:
    """In whichever order, by the scale of the fit; the same as in Python."""
    share, out = fitted
    inputs = [f"{name}={stores}/new/{name}.store" for name in MEASURES[::-1]]
    assert run_cli(f"transform {out}", inputs, f"-o {tmp_path}/new.tsv -q") == 0
    new = {name: ico.load_cohort(stores / "new" / f"{name}.store") for name in MEASURES}
    expected = ico.load_model(out).transform(ico.join_measures(new, share))
    np.testing.assert_allclose(loadings_of(tmp_path / "new.tsv", K), expected, rtol=1e-6, atol=1e-8)
    assert run_cli(f"transform {out}", inputs[:1], f"-o {tmp_path}/x.tsv -q") == 2


def test_what_else_is_asked_of_a_fit(
    fitted: tuple[str, Path], stores: Path, tmp_path: Path
) -> None:
    """Resamples, tests and the page; people are the rows of a test, and have a loading per measure."""
    share, out = fitted
    inputs = two_stores(stores)
    options = f"--model {out} --bootstrap 2 --missing skip -o {out} -q --overwrite --spins 20"
    assert run_cli("select", inputs, options, "--atlas", map(str, write_toy_atlas(tmp_path))) == 0
    regions = pd.read_table(out / "atlas_overlap.tsv")
    assert ("share_myelin" in regions) == (share == "loadings")
    assert set(regions["component"]) == {1, 2, 3}
    assert run_cli(f"associate {out} --formula age --permutations 99 -q --overwrite") == 0
    tests = pd.read_table(out / "associations.tsv")
    names = [f"component0{j + 1}" for j in range(K)]
    if share == "maps":
        names = [f"{component}_{name}" for name in MEASURES for component in names]
    assert list(tests["component"]) == names
    model, fit = ico.load_model(out), read_fit(out)
    age = ico.load_cohort(inputs[1]).participants["age"]
    estimates = ico.associate(model, {"age": age}, "age", n_permutations=99).table["estimate"]
    np.testing.assert_allclose(estimates, tests["estimate"], rtol=1e-6)
    rows = slice(K, 2 * K) if share == "maps" else slice(None)
    expected = estimates[rows] @ model.measures_.maps(model.components_)["myelin"][:, :642]
    effects = map_values(out / "hemi-L_space-fsaverage_den-642_desc-myelin_effects.shape.gii")
    np.testing.assert_allclose(effects[0], expected, rtol=1e-4, atol=1e-7)
    assert fit.selection.component_se.shape == model.components_.shape
    assert run_cli(f"report {out} --overwrite --no-figures -q") == 0
    page = (out / "report.html").read_text()
    assert "Measures" in page and ("component:myelin" in page) == (share == "loadings")
    measures = [*MEASURES] if share == "maps" else []
    associations = fit.associations
    assert list(associations.measures) == measures
    assert associations.tests["component"] == [*range(K)] * max(1, len(measures))
    assert associations.tests["measure"] == [name for name in measures or [""] for _ in range(K)]
    assert associations.columns[0].expected.shape[2] == len(names)
    assert ("myelin" in Page(page).rows["atlas"][0]) == (share == "loadings")


@pytest.mark.slow
@pytest.mark.parametrize("share", SHARES)
def test_confounds_of_each_measure(
    share: str, stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit takes them out of every measure, and new people's; selection and tests know of it."""
    monkeypatch.setattr("icofactor.results.folder.draw_components", lambda fit: b"")
    out = tmp_path / "out"
    inputs = two_stores(stores)
    options = f"--share {share} --scale variance --missing skip --level 1 --covariates age,sex -q"
    assert run_cli("fit", inputs, options, f"--n-components 2 -o {out} --no-figures") == 0
    new = two_stores(stores / "new")
    assert run_cli(f"transform {out}", new, f"-o {tmp_path}/new.tsv -q") == 0
    cohorts = dict(zip(MEASURES, map(ico.load_cohort, new), strict=True))
    expected = ico.load_model(out).transform(ico.join_measures(cohorts, share))
    np.testing.assert_allclose(loadings_of(tmp_path / "new.tsv", 2), expected, rtol=1e-5, atol=1e-7)
    words = f"--model {out} --bootstrap 2 --missing skip -o {out} -q --overwrite"
    assert run_cli("select", inputs, words) == 0
    words = f"--ranks 2 --splits 2 --starts 2 --nulls 5 -o {tmp_path}/selection"
    assert run_cli("select", inputs, options, words) == 0
    assert run_cli(f"associate {out} --formula age --permutations 9 -q") == 2


@pytest.mark.parametrize(
    ("words", "subject"),
    [
        ("thickness.store myelin.store", "--share"),
        ("thickness.store myelin.store --share maps --weights area=1", "--weights"),
        ("thickness.store myelin.store --share maps", "--missing"),
        ("thickness.store --scale variance", "--share"),
        ("thickness.store new/thickness.store --share maps", "NAME=INPUT"),
        (
            "thickness.store myelin.store --share maps --scale zscore --method CD-PNNMF --missing skip",
            "--scale",
        ),
        ("T1w_T2w=myelin.store thickness.store --share maps", "T1w_T2w"),
        (
            "thickness.store myelin.store --share maps --covariates measure --missing skip",
            "'measure'",
        ),
    ],
)
def test_a_choice_that_is_missing_is_named(
    words: str,
    subject: str,
    stores: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(stores)
    assert run_cli("fit", words.split(), f"-o {tmp_path}/out -q") == 2
    assert subject in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("share", SHARES)
def test_tables_of_regions_are_joined_too(
    share: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They need no store; a measure that nobody listed is taken off the names of regions."""
    monkeypatch.setattr("icofactor.results.folder.draw_components", lambda fit: b"")
    X = {"thickness": toy_values(16), "mt30": toy_values(16, 1)}
    for name, values in X.items():
        for file in aparcstats2table(tmp_path / name, values):
            text = file.read_text().replace("MeanThickness_thickness", "MeanThickness")
            file.write_text(text.replace("_thickness", f"_{name}"))
    out = tmp_path / "out"
    inputs = [f"{name}={tmp_path / name}" for name in X]
    lh, rh = write_toy_atlas(tmp_path)
    words = f"--share {share} --n-components 2 --no-figures -q"
    if share == "maps":  # without an atlas, whichever comes first
        assert run_cli("fit", inputs[::-1], f"-o {tmp_path}/bars", words) == 0
        assert run_cli(f"transform {tmp_path}/bars", inputs, f"-o {tmp_path}/bars.tsv -q") == 0
        expected = ico.load_model(tmp_path / "bars").loadings_
        np.testing.assert_allclose(loadings_of(tmp_path / "bars.tsv", 2), expected, atol=1e-6)
    assert run_cli("fit", inputs, f"--parcels {lh} {rh} -o {out}", words) == 0
    assert run_cli(f"transform {out}", inputs, f"-o {tmp_path}/new.tsv -q") == 0
    model = ico.load_model(out)
    np.testing.assert_allclose(loadings_of(tmp_path / "new.tsv", 2), model.loadings_, atol=1e-6)
    back = np.split(model.inverse_transform(model.loadings_), 2, axis=int(share == "loadings"))
    for values, approximation in zip(X.values(), back, strict=True):
        assert ((values - approximation) ** 2).mean() < 0.6 * values.var(axis=0).mean()
    # every bar has a name, of its own measure
    figure = draw_regions(model, "", [""] * len(model.components_))
    assert len(figure.axes[1].patches) == model.components_.shape[1] == len(names_of_bars(model))
    if share == "loadings":
        assert names_of_bars(model)[:17:16] == ["thickness lh_bankssts", "mt30 lh_bankssts"]
        assert '"measure":"mt30"' in (out / "report.html").read_text()
    words = f"--parcels {lh} {rh} --model {out} --bootstrap 2 -o {out} -q --overwrite"
    assert run_cli("select", inputs, words) == 0
    assert ("measure" in pd.read_table(out / "components_se.tsv")) == (share == "loadings")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SUBJECTS_DIR with thickness and sulc of twelve people, of whom one lacks sulc."""
    root = tmp_path_factory.mktemp("tree") / "subjects"
    people = [f"sub-{i:02d}" for i in range(12)]
    for number, name in enumerate(("thickness", "sulc")):
        cohort = ico.simulate_cohort(12, 2, "thickness", "left", number, mesh="fsaverage3")
        n = 12 - number
        freesurfer_tree(root, people[:n], {"left": cohort.X[:n]}, name, target="fsaverage3")
    return root


@pytest.mark.parametrize("form", ["--measure", "NAME=", "files"])
def test_folders_of_several_measures(
    tree: Path,
    form: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The measures of one tree, or a folder or pattern of each: the same fit as in Python."""
    monkeypatch.setattr("icofactor.results.folder.draw_components", lambda fit: b"")
    inputs = {
        "--measure": f"{tree} --measure thickness,sulc",
        "NAME=": f"thickness={tree} sulc={tree}",
        "files": f"{tree}/*/surf/lh.thickness.*.mgh sulc={tree}/*/surf/lh.sulc.*.mgh",
    }[form]
    out = tmp_path / "out"
    words = f"fit {inputs} --share maps --scale variance --n-components 2 --level 1 --no-figures"
    words = f"{words} -o {out} -q"
    assert run_cli(words) == 2 and "sub-11" in capsys.readouterr().err
    with monkeypatch.context() as unread:
        unread.setattr("icofactor.cohort.plan.Plan.read", None)
        assert run_cli(words, "--missing skip --dry-run") == 0
    assert "11 subjects" in capsys.readouterr().out and not out.exists()
    assert run_cli(words, "--missing skip") == 0
    names = ("thickness", "sulc")
    cohorts = {name: ico.load_cohort(tree, measure=name, missing="skip") for name in names}
    joined = ico.join_measures(cohorts, "maps", "variance", missing="skip")
    expected = ico.CorticalFactorization(2, level=1).fit(joined)
    model = ico.load_model(out)
    assert model.measures_.names == names
    np.testing.assert_allclose(model.components_, expected.components_, rtol=1e-9, atol=1e-12)
    # of a tree, the measures of the fit are read
    new = inputs if form == "files" else f"{tree}"
    assert run_cli(f"transform {out} {new} --missing skip -o {tmp_path}/again.tsv -q") == 0
    np.testing.assert_allclose(loadings_of(tmp_path / "again.tsv", 2), model.loadings_, atol=1e-6)


def test_folders_that_do_not_go_together(
    tree: Path, stores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line each, which names the option or the input to change."""
    fine = ico.simulate_cohort(4, 2, "myelin", "left", mesh="fsaverage4")
    save_store(fine, tmp_path / "fine.store")
    store = stores / "thickness.store"
    scan = next(tree.glob("*/surf/lh.thickness*"))
    refusals = [
        ("--measure", f"{tree} --share maps"),
        ("--share", f"{tree} --measure thickness,sulc"),
        ("--resample-to", f"thickness={tree} {tmp_path}/fine.store --share maps"),
        ("--hemisphere", f"a={store} thickness={tree} --share maps"),
        (str(store), f"a={store} b={store} --share maps"),
        ("", f"{scan} {store} --share maps"),
        ("--measure", f"thickness={tree} --measure thickness,sulc --share maps"),
        ("NAME=INPUT", f"{store} {tree}/*/surf/lh.sulc.* --share maps"),
        ("area", f"{tree}/*/surf/*thickness* --measure thickness,area --share maps"),
    ]
    for subject, words in refusals:
        assert run_cli(f"fit {words} -o {tmp_path}/out -q") == 2
        message = capsys.readouterr().err
        assert subject in message and len(message.splitlines()) == 1, message
    assert run_cli(f"prepare {tree} --measure thickness,sulc -o {tmp_path}/x.store -q") == 2


@pytest.mark.slow
def test_the_demo_has_several_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--measures thickness,myelin --share loadings --n-subjects 20 --n-components 3"
    assert run_cli(f"demo {tmp_path}/demo", options, "--hemisphere left --no-figures -q") == 0
    assert "myelin" in capsys.readouterr().out
