"""Several measures on the command line: from stores to a folder, to new people, to tests, and back to the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import icofactor as ico
from helpers.commands import run_cli
from helpers.pages import Page
from helpers.region_tables import aparcstats2table, toy_values, write_toy_atlas
from helpers.trees import freesurfer_tree
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
def fitted(
    request: pytest.FixtureRequest, stores: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp(request.param) / "out"
    inputs = [str(stores / f"{name}.store") for name in ("thickness", "myelin")]
    options = [
        "--share",
        request.param,
        *JOINED,
        "--missing",
        "skip",
        "--n-components",
        str(K),
        "--level",
        "1",
    ]
    assert run_cli("fit", inputs, options, f"-o {out} --no-figures -q") == 0
    return request.param, out


def test_a_fit_leaves_maps_and_loadings_of_each_measure(
    fitted: tuple[str, Path], stores: Path
) -> None:
    share, out = fitted
    model, fit = ico.load_model(out), read_fit(out)
    thickness, myelin = (
        ico.load_cohort(stores / f"{name}.store") for name in ("thickness", "myelin")
    )
    maps = model.measures_.maps(model.components_)
    for name in ("thickness", "myelin"):
        written = read_gifti(
            out / f"hemi-R_space-fsaverage_den-642_desc-{name}_components.shape.gii"
        )
        np.testing.assert_allclose(
            next(iter(written.parts.values())), maps[name][:, 642:], rtol=1e-5, atol=1e-6
        )
    table, _ = read_table(out / "desc-icofactor_loadings.tsv")
    assert ("measure" in table) == (share == "maps")
    assert table["participant_id"][: N - 2] == list(myelin.subjects)
    # what is explained of each measure, from the equations on the whole X
    X = [np.asarray(one.X)[: N - 2].astype(np.float64) for one in (thickness, myelin)]
    back = np.split(model.inverse_transform(model.loadings_), 2, axis=0 if share == "maps" else 1)
    expected = [
        1 - ((x - there) ** 2).sum() / ((x - x.mean(axis=0)) ** 2).sum()
        for x, there in zip(X, back, strict=True)
    ]
    np.testing.assert_allclose(fit.diagnostics.measure_explained, expected, rtol=1e-6)
    each, _ = read_table(out / "tables" / "measures.tsv")
    np.testing.assert_allclose(np.array(each["explained"], dtype=float), expected, rtol=1e-6)
    assert fit.diagnostics.explained == pytest.approx(model.explained_)
    with_age, _ = read_table(
        out / "tables" / "correlations.tsv"
    )  # people, once for every measure with loadings
    column, rows = ("age, myelin", slice(N - 2, None)) if share == "maps" else ("age", slice(None))
    at = with_age["column"].index(column)
    r = np.corrcoef(myelin.participants["age"], model.loadings_[rows, 0])[0, 1]
    assert with_age["n"][at] == str(N - 2) and float(with_age["value"][at]) == pytest.approx(
        r, abs=1e-5
    )
    np.testing.assert_allclose(model.measures_.variance, [1 / 3, 2 / 3], rtol=1e-9)
    record = json.loads((out / "provenance.json").read_text())
    assert record["data"]["joined"]["share"] == share
    names = [name for name, _ in fit.by_measure()]
    assert names == ([""] if share == "maps" else ["thickness", "myelin"])


def test_new_people_of_every_measure(
    fitted: tuple[str, Path], stores: Path, tmp_path: Path
) -> None:
    """In whichever order, by the scale of the fit; the same as in Python."""
    share, out = fitted
    inputs = [f"{name}={stores / 'new' / f'{name}.store'}" for name in ("myelin", "thickness")]
    assert run_cli(f"transform {out}", inputs, f"-o {tmp_path}/new.tsv -q") == 0
    table, _ = read_table(tmp_path / "new.tsv")
    new = {
        name: ico.load_cohort(stores / "new" / f"{name}.store") for name in ("thickness", "myelin")
    }
    expected = ico.load_model(out).transform(ico.join_measures(new, share))
    found = np.array([table[f"component0{j + 1}"] for j in range(K)], dtype=float).T
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    assert run_cli(f"transform {out}", [inputs[0]], f"-o {tmp_path}/x.tsv -q") == 2


def test_what_else_is_asked_of_a_fit(
    fitted: tuple[str, Path], stores: Path, tmp_path: Path
) -> None:
    """Resamples, tests and the page; people are the rows of a test, and have a loading per measure."""
    share, out = fitted
    inputs = [str(stores / f"{name}.store") for name in ("thickness", "myelin")]
    options = f"--model {out} --bootstrap 2 --missing skip -o {out} -q --overwrite"
    atlas = [*map(str, write_toy_atlas(tmp_path))]
    assert run_cli("select", inputs, options, "--atlas", atlas, "--spins 20") == 0
    regions, _ = read_table(out / "atlas_overlap.tsv")
    assert ("share_myelin" in regions) == (share == "loadings") and set(regions["component"]) == {
        "1",
        "2",
        "3",
    }
    assert run_cli(f"associate {out} --formula age --permutations 99 -q --overwrite") == 0
    tests, _ = read_table(out / "associations.tsv")
    wide = [f"component0{j + 1}_{name}" for name in ("thickness", "myelin") for j in range(K)]
    assert tests["component"] == (
        wide if share == "maps" else [f"component0{j + 1}" for j in range(K)]
    )
    model, people = ico.load_model(out), read_fit(out)
    age = ico.load_cohort(inputs[1]).participants["age"]
    again = ico.associate(model, {"age": age}, "age", n_permutations=99)
    np.testing.assert_allclose(
        again.table["estimate"], np.array(tests["estimate"], dtype=float), rtol=1e-6
    )
    effects = read_gifti(out / "hemi-L_space-fsaverage_den-642_desc-myelin_effects.shape.gii")
    rows = slice(K, 2 * K) if share == "maps" else slice(None)
    expected = (
        again.table["estimate"][rows] @ model.measures_.maps(model.components_)["myelin"][:, :642]
    )
    np.testing.assert_allclose(
        next(iter(effects.parts.values()))[0], expected, rtol=1e-4, atol=1e-7
    )
    assert people.selection.component_se.shape == model.components_.shape
    assert run_cli(f"report {out} --overwrite --no-figures -q") == 0
    page = (out / "report.html").read_text()
    assert "Measures" in page and ("component:myelin" in page) == (share == "loadings")
    shown = people.associations
    each = ["thickness", "myelin"] if share == "maps" else []
    assert shown.tests["component"] == [*range(K)] * max(1, len(each))
    assert shown.tests["measure"] == [name for name in each or [""] for _ in range(K)]
    assert list(shown.measures) == each
    assert shown.columns[0].expected.shape[2] == K * max(1, len(each))
    heads = Page(page).rows["atlas"][0]
    assert ("myelin" in heads) == (share == "loadings")


@pytest.mark.slow
@pytest.mark.parametrize("share", SHARES)
def test_confounds_of_each_measure(
    share: str, stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit takes them out of every measure, and new people's; selection and tests know of it."""
    monkeypatch.setattr("icofactor.results.folder.draw_components", lambda fit: b"")
    two, out = [str(stores / f"{name}.store") for name in ("thickness", "myelin")], tmp_path / "out"
    options = ["--share", share, "--scale", "variance", "--missing", "skip", "--level", "1"]
    asked = "--covariates age,sex"
    assert run_cli("fit", two, options, asked, f"--n-components 2 -o {out} --no-figures -q") == 0
    new = [str(stores / "new" / f"{name}.store") for name in ("thickness", "myelin")]
    assert run_cli(f"transform {out}", new, f"-o {tmp_path}/new.tsv -q") == 0
    model, (table, _) = ico.load_model(out), read_table(tmp_path / "new.tsv")
    maps = ico.join_measures(
        dict(zip(("thickness", "myelin"), map(ico.load_cohort, new), strict=True)), share
    )
    found = np.array([table["component01"], table["component02"]], dtype=float).T
    np.testing.assert_allclose(found, model.transform(maps), rtol=1e-5, atol=1e-7)
    boot = f"--model {out} --bootstrap 2 --missing skip -o {out} -q --overwrite"
    assert run_cli("select", two, boot) == 0
    few = f"--ranks 2 --splits 2 --starts 2 --nulls 5 -o {tmp_path}/chosen -q"
    assert run_cli("select", two, options, asked, few) == 0
    assert run_cli(f"associate {out} --formula age --permutations 9 -q") == 2


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("thickness.store myelin.store", "--share"),
        ("thickness.store myelin.store --share maps --weights area=1", "--weights"),
        ("thickness.store myelin.store --share maps", "--missing skip"),
        ("thickness.store --scale variance", "--share"),
        ("thickness.store new/thickness.store --share maps", "NAME=INPUT"),
        (
            "thickness.store myelin.store --share maps --scale zscore --method CD-PNNMF --missing skip",
            "--scale: ",
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
    named: str,
    stores: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(stores)
    assert run_cli("fit", words.split(), f"-o {tmp_path}/out -q") == 2
    assert named in capsys.readouterr().err
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
    inputs, out = [f"{name}={tmp_path / name}" for name in X], tmp_path / "out"
    atlas = ["--parcels", *map(str, write_toy_atlas(tmp_path)), "--share", share]
    if share == "maps":  # without an atlas, whichever comes first
        few = "--n-components 2 --no-figures -q"
        assert run_cli("fit", inputs[::-1], "--share", [share], f"-o {tmp_path}/bars", few) == 0
        assert run_cli(f"transform {tmp_path}/bars", inputs, f"-o {tmp_path}/bars.tsv -q") == 0
        loadings = np.array(read_table(tmp_path / "bars.tsv")[0]["component01"], dtype=float)
        np.testing.assert_allclose(
            loadings, ico.load_model(tmp_path / "bars").loadings_[:, 0], atol=1e-6
        )
    assert run_cli("fit", inputs, atlas, f"-o {out} --n-components 2 --no-figures -q") == 0
    assert run_cli(f"transform {out}", inputs, f"-o {tmp_path}/new.tsv -q") == 0
    model, (table, _) = ico.load_model(out), read_table(tmp_path / "new.tsv")
    found = np.array([table["component01"], table["component02"]], dtype=float).T
    np.testing.assert_allclose(found, model.loadings_, atol=1e-6)
    back = dict(
        zip(
            X,
            np.split(model.inverse_transform(model.loadings_), 2, axis=int(share == "loadings")),
            strict=True,
        )
    )
    left = {
        name: ((values - back[name]) ** 2).mean() / values.var(axis=0).mean()
        for name, values in X.items()
    }
    assert max(left.values()) < 0.6, left
    figure = draw_regions(
        model, "", [""] * len(model.components_)
    )  # every bar has a name, of its own measure
    assert len(figure.axes[1].patches) == model.components_.shape[1] == len(names_of_bars(model))
    if share == "loadings":
        assert names_of_bars(model)[:17:16] == ["thickness lh_bankssts", "mt30 lh_bankssts"]
        assert '"measure":"mt30"' in (out / "report.html").read_text()
    boot = f"--bootstrap 2 -o {out} -q --overwrite"
    assert run_cli("select", inputs, atlas[:3], f"--model {out}", boot) == 0
    errors = read_table(out / "components_se.tsv")[0]
    assert errors.get("measure", ["mt30"])[-1] == "mt30" and ("measure" in errors) == (
        share == "loadings"
    )
    assert "measure" not in read_table(out / "tables" / "correlations.tsv")[0]["column"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SUBJECTS_DIR with thickness and sulc of twelve people, of whom one lacks sulc."""
    root, people = tmp_path_factory.mktemp("tree") / "subjects", [f"sub-{i:02d}" for i in range(12)]
    for number, name in enumerate(("thickness", "sulc")):
        maps = {
            "left": ico.simulate_cohort(12, 2, "thickness", "left", number, mesh="fsaverage3").X
        }
        some = slice(0, 12 - number)
        freesurfer_tree(root, people[some], {"left": maps["left"][some]}, name, target="fsaverage3")
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
    given = {
        "--measure": [str(tree), "--measure", "thickness,sulc"],
        "NAME=": [f"{name}={tree}" for name in ("thickness", "sulc")],
        "files": [str(tree / "*/surf/lh.thickness.*.mgh"), f"sulc={tree / '*/surf/lh.sulc.*.mgh'}"],
    }[form]
    options = [
        "--share",
        "maps",
        "--scale",
        "variance",
        "--n-components",
        "2",
        "--level",
        "1",
        "--no-figures",
        "-q",
    ]
    lacking = [*given, *options, "-o", str(tmp_path / "none")]
    assert run_cli("fit", lacking) == 2 and "sub-11" in capsys.readouterr().err
    out, skip = tmp_path / "out", ["--missing", "skip"]
    with monkeypatch.context() as unread:
        unread.setattr("icofactor.cohort.plan.Plan.read", None)
        assert run_cli("fit", given, options, skip, f"-o {out} --dry-run") == 0
    assert "11 subjects" in capsys.readouterr().out and not out.exists()
    assert run_cli("fit", given, options, skip, f"-o {out}") == 0
    cohorts = {
        name: ico.load_cohort(tree, measure=name, missing="skip") for name in ("thickness", "sulc")
    }
    joined = ico.join_measures(cohorts, "maps", "variance", missing="skip")
    expected = ico.CorticalFactorization(2, level=1).fit(joined)
    found = ico.load_model(out)
    assert found.measures_.names == ("thickness", "sulc")
    np.testing.assert_allclose(found.components_, expected.components_, rtol=1e-9, atol=1e-12)
    table = str(tmp_path / "again.tsv")
    new = given if form == "files" else [str(tree)]  # a tree: the measures of the fit
    assert run_cli(f"transform {out}", new, skip, "-o", [table], "-q") == 0
    loadings = np.array(
        [read_table(Path(table))[0][f"component0{j}"] for j in (1, 2)], dtype=float
    ).T
    np.testing.assert_allclose(loadings, found.loadings_, atol=1e-6)


def test_folders_that_do_not_go_together(
    tree: Path, stores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line each, which names the option or the input to change."""
    fine = ico.simulate_cohort(4, 2, "myelin", "left", mesh="fsaverage4")
    save_store(fine, tmp_path / "fine.store")
    both, maps = str(stores / "thickness.store"), ["--share", "maps"]
    scan = str(next(tree.glob("*/surf/lh.thickness*")))
    refusals = [
        ("--measure", [str(tree), *maps]),
        ("--share", [str(tree), "--measure", "thickness,sulc"]),
        ("--resample-to", [f"thickness={tree}", str(tmp_path / "fine.store"), *maps]),
        ("--hemisphere", [f"a={both}", f"thickness={tree}", *maps]),
        ("twice", [f"a={both}", f"b={both}", *maps]),
        ("one person", [scan, both, *maps]),
        ("--measure", [f"thickness={tree}", "--measure", "thickness,sulc", *maps]),
        ("NAME=INPUT", [both, str(tree / "*/surf/lh.sulc.*"), *maps]),
        ("area", [str(tree / "*/surf/*thickness*"), "--measure", "thickness,area", *maps]),
    ]
    for named, options in refusals:
        assert run_cli("fit", options, f"-o {tmp_path}/out -q") == 2
        message = capsys.readouterr().err
        assert named in message and len(message.splitlines()) == 1, message
    assert run_cli(f"prepare {tree} --measure thickness,sulc -o {tmp_path}/x.store -q") == 2


@pytest.mark.slow
def test_the_demo_has_several_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--measures thickness,myelin --share loadings --n-subjects 20 --n-components 3"
    assert run_cli(f"demo {tmp_path}/demo", options, "--hemisphere left --no-figures -q") == 0
    said = capsys.readouterr().out
    assert "of loadings (myelin)" in said and "Of each measure: thickness" in said
