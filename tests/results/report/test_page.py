"""The page as text: what is on it, and that nothing on it can act."""

from __future__ import annotations

import base64
import hashlib
import json
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.hostile_fit import CLOSING, IMAGE, SCRIPT, Fitted, small_fit
from helpers.pages import Page, as_number
from helpers.sidecars import undescribed
from icofactor.assessment.selection.choice import Choice
from icofactor.cli.main import main
from icofactor.errors import FileError
from icofactor.io.publish import Publication
from icofactor.io.tables import read_table
from icofactor.preprocessing.covariates import Covariates
from icofactor.results.description import FitDescription, read_fit
from icofactor.results.folder import FitFolder, component_table, write_fit
from icofactor.results.meaning import adjustments, verdict
from icofactor.results.recurrence_text import undetermined
from icofactor.results.report.layers import quantised, safe_json
from icofactor.results.report.page import draw_report, render_page, write_page
from icofactor.results.report.panels import FIGURE_NAMES, alone_is_a_share, clearest_columns
from icofactor.results.report.selection_files import SelectionFiles
from icofactor.results.report.tables import norm_summary
from icofactor.sphere.meshes import fs_lr_sites
from icofactor.sphere.sites import Sites

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(fitted.folder, tmp_path_factory.mktemp("page")).parent


@pytest.fixture(scope="module")
def text(written: Path) -> str:
    return (written / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def page_of(fit: FitDescription) -> Page:
    return Page(render_page(fit))


def test_the_page_names_nothing_outside(text: str, page: Page) -> None:
    sources = [str(a["src"]) for _, a in page.elements if "src" in a]
    assert sources and all(source.startswith("data:image/") for source in sources)
    links = [str(a["href"]) for _, a in page.elements if "href" in a]
    assert all(link.startswith(("#", "tables/", "../")) for link in links)
    assert "http://" not in text and "https://" not in text
    anchors = {a.get("id") for _, a in page.elements}
    assert {link[1:] for link in links if link.startswith("#")} <= anchors


def test_the_policy_lets_only_the_pages_own_script_run(page: Page) -> None:
    policy = next(str(a["content"]) for _, a in page.elements if a.get("http-equiv"))
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}';" in policy
    assert "unsafe" not in policy
    # Styles in attributes would need "unsafe-inline".
    assert not [tag for tag, attributes in page.elements if "style" in attributes]


def test_hostile_words_stay_words(text: str, page: Page) -> None:
    assert page.columns("people")["subject"][:3] == [SCRIPT, IMAGE, CLOSING]
    assert any(row[0].startswith(IMAGE) for row in page.rows["participants"])
    assert CLOSING in page.text["methods"]
    assert SCRIPT in page.text["selection"]
    assert f"left {IMAGE}" in page.columns("atlas")["region"]
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert not any(word in text for word in (SCRIPT, IMAGE, CLOSING))
    for chart in page.charts():
        assert b"<script" not in chart and b"<img" not in chart


def test_the_page_says_how_and_not_where(text: str, page: Page) -> None:
    assert "lh.mask" in page.text["settings"]
    assert "private" not in text


def test_page_and_figures_have_the_same_charts(written: Path, page: Page) -> None:
    files = {path.stem: path.read_bytes() for path in (written / "figures").iterdir()}
    # The viewer of the page shows what the figure of maps shows.
    del files["maps"]
    assert sorted(files.values()) == sorted(page.charts())
    assert {"loadings", "selection", "trust", "similarity"} < set(files) <= set(FIGURE_NAMES)
    for content in files.values():
        assert b"<title>" in content
        assert b"<text" in content
    captions = [a["alt"] for tag, a in page.elements if tag == "img"]
    assert all(captions) and len(set(captions)) == len(captions)


def test_every_panel_is_drawn_the_same_way_again(fitted: Fitted) -> None:
    fit = FitDescription.of(fitted.model, fitted.diagnostics)
    assert draw_report(fit).figures == draw_report(fit).figures


def test_tables_hold_what_the_page_shows(fitted: Fitted, written: Path, page: Page) -> None:
    d = fitted.diagnostics
    tables = {path.stem: read_table(path)[0] for path in (written / "tables").glob("*.tsv")}
    assert not undescribed(written)

    def numbers(table: str, column: str) -> np.ndarray:
        return np.array([as_number(cell) for cell in tables[table][column]])

    upper = np.triu_indices(3, 1)
    strengths = [*(item.r for item in d.associations), *(item.eta2 for item in d.groupings)]
    boxes = np.concatenate([item.boxes.reshape(-1, 5) for item in d.groupings])
    for table, column, expected in (
        ("subjects", "residual", d.residual),
        ("subjects", "explained_variance", d.subject_explained),
        ("similarity", "overlap", d.overlap[upper]),
        ("similarity", "correlation_of_loadings", d.together[upper]),
        ("correlations", "value", np.concatenate(strengths)),
        ("groups", "median", boxes[:, 2]),
    ):
        np.testing.assert_allclose(numbers(table, column), expected, rtol=1e-9)
    convergence = tables["convergence"]
    best = dict(zip(convergence["update"], convergence["best_start"], strict=True))
    assert float(best[str(d.convergence.updates[-1])]) == pytest.approx(d.convergence.objective[-1])
    summary = dict(zip(tables["summary"]["quantity"], tables["summary"]["value"], strict=True))
    assert float(summary["explained_variance"]) == pytest.approx(d.explained)
    assert (summary["components"], summary["components_recommended"]) == ("3", "3")
    # Two starts do not tell.
    assert summary["components_reached_by_other_starts"] == "n/a"
    free = len(d.loadings) - 1 - 3
    assert float(summary["unique_by_chance"]) == pytest.approx((1 - d.linear) / free)
    largest = np.linalg.eigvalsh(d.together)[-1] / 3
    assert float(summary["common_factor"]) == pytest.approx(largest)
    people = page.columns("people")
    order = [d.subjects.index(name) for name in people["subject"]]
    residuals = [as_number(cell) for cell in people["residual"]]
    np.testing.assert_allclose(residuals, d.residual[order], rtol=1e-2)
    loadings = [as_number(cell) for cell in people["2"]]
    np.testing.assert_allclose(loadings, d.loadings[order, 1], atol=0.006)


def test_people_with_unusual_values_come_first(fitted: Fitted) -> None:
    d = fitted.diagnostics
    unusual = replace(
        d.unusual,
        subject=np.array([5, 5]),
        component=np.array([-1, 1]),
        value=np.array([1.0, 2.0]),
        z=np.array([9.0, 8.0]),
    )
    fit = FitDescription.of(fitted.model, replace(d, unusual=unusual))
    people = page_of(fit).columns("people")
    assert people["subject"][0] == d.subjects[5]
    assert people["unusual"][0] == "residual (z = 9); component02 (z = 8)"
    assert set(people["unusual"][1:]) == {""}


def test_layers_hold_the_maps(page: Page, fitted: Fitted) -> None:
    model = fitted.model
    d = fitted.diagnostics
    for layer, values in (
        (page.layers("component")[1], model.components_[1]),
        (page.layers("error")[1], model.components_[1] / 9),
        (page.layers("median")[0], d.median),
        (page.layers("deviation")[0], d.deviation),
        (page.layers("explained")[0], d.explained_map),
        (page.layers("depth")[0], d.depth.astype(float)),
    ):
        read = page.values(layer)
        np.testing.assert_array_equal(np.isnan(read), ~model.mask_)
        used = model.mask_
        assert np.abs(read - values)[used].max() <= 1e-4 * np.ptp(values[used]) + 1e-12
    parcels = page.array(page.layers("parcellation")[0]["values"])
    np.testing.assert_array_equal(parcels, d.parcellation)
    shares = [layer["share"] for layer in page.layers("component")]
    np.testing.assert_allclose(shares, d.unique, rtol=1e-4)


@pytest.mark.parametrize(
    ("center", "units", "scale"),
    [
        ("mean", "mm", "mm of deviation per unit loading"),
        ("zscore", "standard deviations", "standard deviations per unit loading"),
        ("none", "mm", "mm"),
    ],
)
def test_units_follow_what_was_fitted(center: str, units: str, scale: str) -> None:
    settings = {"method": "parts", "n_starts": 20, "tol": 1e-4, "n_iter": 300, "center": center}
    fit = FitDescription.of(*small_fit(Sites.named("fsaverage3"), "left", **settings))
    layer = page_of(fit).layers("component")[0]
    assert (layer["units"], layer["scale"], layer["signed"]) == (units, scale, False)


def test_covariates_are_named_and_not_compared() -> None:
    """Loadings cannot relate to a covariate any more."""
    sites = Sites.named("fsaverage3")
    model, d = small_fit(sites, "left")
    plain = FitDescription.of(model, d)
    assert {item.column for item in clearest_columns(plain)} == {"age", IMAGE}
    ages = {"age": next(item.values for item in d.associations)}
    maps = np.ones((12, sites.n)) + np.arange(12)[:, None]
    model.covariates_ = Covariates.fit(maps, ["age"], ages)
    fit = FitDescription.of(model, d)
    assert [item.column for item in clearest_columns(fit)] == [IMAGE]
    page = page_of(fit)
    assert "age (regressed out before the fit)" in page.text["participants"]
    assert not any(row[0].startswith("age") for row in page.rows["participants"])


def test_no_share_above_all_of_the_variance_is_drawn(fitted: Fitted) -> None:
    """What overlapping components carry alone adds up to more than there is."""
    d = fitted.diagnostics
    for alone, drawn in ((d.unique + 0.1, True), (d.unique + 1, False), (d.unique - 0.01, False)):
        fit = FitDescription.of(fitted.model, replace(d, alone=alone))
        assert alone_is_a_share(fit) is drawn
        table = component_table(fit)["variance_alone"]
        np.testing.assert_array_equal(table, np.where(alone <= 1, alone, np.nan))


def test_ten_components_of_fsaverage5_fit_into_three_megabytes() -> None:
    sites = Sites.named("fsaverage5", hemi="both")
    model, d = small_fit(sites, "both", k=10, n_starts=1)
    # Noise is the worst that can come.
    model.components_ = np.random.default_rng(0).random(model.components_.shape)
    assert len(render_page(FitDescription.of(model, d))) < 3e6


@pytest.mark.parametrize(
    ("sites", "hemi", "k"),
    [
        (Sites.named("fsaverage3"), "right", 1),
        (Sites.named("fsaverage3", on="faces", hemi="both"), "both", 2),
        (Sites.icosphere(2, hemi="both"), "both", 2),
        (Sites.named("fsaverage3"), "left", 50),
        (Sites.from_sphere(Sites.named("fsaverage3").coordinates), "left", 2),
    ],
    ids=["one", "faces", "sphere", "fifty", "points"],
)
def test_other_fits_have_pages(sites: Sites, hemi: str, k: int) -> None:
    fit = FitDescription.of(*small_fit(sites, hemi, k, n_starts=1, n_iter=20, tol=0.0))
    page = page_of(fit)
    assert len(page.data["titles"]) == k
    if sites.triangles is None:
        assert page.data["cortex"] is None
        assert not any(
            str(a["src"]).startswith("data:image/jpeg") for t, a in page.elements if t == "img"
        )
        return
    named = ["inflated", "pial", "midthickness", "white", "sphere"]
    assert page.data["cortex"]["shapes"] == (named if sites.name else ["sphere"])
    n = len(sites.frames) * (sites.n // len(sites.frames) if sites.on == "vertices" else 642)
    assert [layer["values"]["n"] for layer in page.layers("component")] == [n] * k


def test_fs_lr_32k_has_a_page() -> None:
    sites = Sites.both(fs_lr_sites("left"), fs_lr_sites("right"))
    mask = np.abs(sites.coordinates[:, 0]) < 0.9
    fit = FitDescription.of(*small_fit(sites, "both", 2, mask, n_starts=1, n_iter=20, tol=0.0))
    page = page_of(fit)
    assert "fs_LR 32k" in page.text["settings"] if fit.provenance else True
    assert page.data["cortex"]["shapes"] == ["sphere"]
    assert [half["n"] for half in page.data["cortex"]["halves"]] == [32492, 32492]
    np.testing.assert_array_equal(np.isnan(page.values(page.layers("component")[0])), ~mask)


def test_the_command_writes_page_and_figures(
    fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["report", str(fitted.folder), "-o", str(tmp_path / "out"), "-q", "--no-figures"]
    assert main(command) == 0
    assert str(tmp_path / "out" / "report.html") in capsys.readouterr().out
    assert not (tmp_path / "out" / "figures").exists()
    assert main(command) == 2
    assert main([*command, "--overwrite"]) == 0


def test_figures_of_an_earlier_report_go_and_nothing_else(fitted: Fitted, tmp_path: Path) -> None:
    folder = tmp_path / "figures"
    with Publication(tmp_path).filled() as new:
        (new / "figures").mkdir()
        for name in ("loadings.svg", "norm.svg"):
            (new / "figures" / name).write_text("old")
    (folder / "mine.svg").write_text("mine")
    with pytest.raises(FileExistsError):
        write_page(fitted.folder, tmp_path)
    assert (folder / "norm.svg").read_text() == "old"
    write_page(fitted.folder, tmp_path, overwrite=True)
    assert not (folder / "norm.svg").exists()
    assert (folder / "loadings.svg").read_text() != "old"
    assert (folder / "mine.svg").read_text() == "mine"


def test_what_select_found_is_on_the_page(page: Page) -> None:
    assert page.rows["selection"][1:] == [["2", "0.100", "1"], ["3", "0.200", "n/a"]]
    stability = np.linspace(0.5, 0.95, 12).reshape(4, 3).mean(axis=0)
    read = [as_number(cell) for cell in page.columns("trust")["stability"]]
    np.testing.assert_allclose(read, stability, atol=6e-3)
    assert set(page.columns("atlas")["component"]) == {"1", "2", "3"}


def test_a_fit_alone_has_no_panels_of_select_and_associate(fitted: Fitted) -> None:
    page = page_of(FitDescription.of(fitted.model, fitted.diagnostics))
    later = {"selection", "atlas", "associations", "behaviour", "norm", "methods"}
    assert not later & set(page.rows)
    assert page.layers("error") == []


def test_the_page_links_only_tables_that_exist(written: Path, page: Page) -> None:
    links = {str(a["href"]) for _, a in page.elements if str(a.get("href", "#"))[0] != "#"}
    assert "tables/subjects.tsv" in links
    assert all((written / link).is_file() for link in links)


def test_parcels_have_one_colour_in_files_and_page(fitted: Fitted, tmp_path: Path) -> None:
    import nibabel as nib

    fit = FitDescription.of(fitted.model, fitted.diagnostics)
    write_fit(fit, FitFolder(tmp_path, figures=False))
    page = Page((tmp_path / "report.html").read_text())
    colours = page.array(page.data["cortex"]["distinct"]).reshape(-1, 3)
    stem = "hemi-L_space-fsaverage_den-3k_desc-icofactor_dseg"
    labels = nib.load(tmp_path / f"{stem}.label.gii").labeltable.labels[1:]
    shades = np.array([label.rgba[:3] for label in labels])
    np.testing.assert_array_equal(np.round(255 * shades), colours)
    annot = nib.freesurfer.read_annot(tmp_path / f"{stem}.annot")[1]
    np.testing.assert_array_equal(annot[1:, :3], colours)
    swatches = [a["fill"] for tag, a in page.elements if tag == "rect"]
    assert swatches == [f"rgb({r},{g},{b})" for r, g, b in colours]


def test_regions_of_a_dlabel_atlas_are_on_the_page(fitted: Fitted) -> None:
    atlas = [fitted.folder / "atlas.dlabel.nii"]
    page = page_of(FitDescription.of(fitted.model, fitted.diagnostics, atlas=atlas))
    regions = page.data["cortex"]["regions"]
    coordinates = fitted.model.sites_.coordinates.reshape(2, -1, 3)
    for half in range(2):
        numbers = page.array(regions["numbers"][half])
        expected = np.where(coordinates[half, :, 1] > 0, IMAGE, "back")
        expected[:10] = ""
        assert [regions["names"][number] for number in numbers] == expected.tolist()


def test_many_people_are_cut_to_what_a_browser_takes(fitted: Fitted) -> None:
    n = 30_000
    d = fitted.diagnostics
    times = -(-n // 12)
    many = replace(
        d,
        subjects=tuple(f"sub-{i}" for i in range(12 * times)),
        loadings=np.tile(d.loadings, (times, 1)),
        residual=np.tile(d.residual, times),
        subject_explained=np.tile(d.subject_explained, times),
        order=np.arange(12 * times),
        tree=np.empty((0, 4)),
        associations=(),
        groupings=(),
    )
    model = fitted.model
    before = model.loadings_
    model.loadings_ = many.loadings
    try:
        text = render_page(FitDescription.of(model, many))
    finally:
        model.loadings_ = before
    assert len(Page(text).columns("people")["subject"]) == 20_000 // 7
    assert len(text) < 4e6


def test_associations_are_on_the_page(associated: Path) -> None:
    fit = read_fit(associated)
    page = page_of(fit)
    table = read_table(associated / "associations.tsv")[0]
    rows = page.columns("associations")
    assert rows["term"] == table["term"]
    for head, column in (("estimate", "estimate"), ("p, corrected", "p_corrected")):
        expected = [as_number(cell) for cell in table[column]]
        read = [as_number(cell) for cell in rows[head]]
        np.testing.assert_allclose(read, expected, rtol=1e-2, atol=6e-4)
    latent = read_table(associated / "pls.tsv")[0]
    assert len(page.columns("behaviour")["p"]) == len(latent["p"])
    assert [int(n) for n in page.columns("norm")["others"]] == [5, 5]
    report = draw_report(fit)
    names = {f"figures/{n}.svg" for n in ("associations", "adjusted_loadings", "behaviour", "norm")}
    assert names <= set(report.figures)
    assert not any(word in report.page for word in (SCRIPT, IMAGE, CLOSING))


@pytest.mark.parametrize("recommended", [None, 5])
def test_the_verdict_stands_once(fitted: Fitted, recommended: int | None) -> None:
    choice = Choice({"rank": np.array([2, 3])}, recommended, ())
    fit = FitDescription.of(fitted.model, fitted.diagnostics, selection=SelectionFiles(choice))
    text = render_page(fit)
    assert text.count(f"{'none' if recommended is None else recommended} recommended.") == 1


def test_folders_without_a_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        write_page(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        write_page(tmp_path)
    (tmp_path / "model.zip").write_text("no model")
    with pytest.raises(FileError) as raised:
        write_page(tmp_path)
    assert raised.value.path == str(tmp_path / "model.zip")


@given(st.text())
def test_no_text_can_end_the_data(text: str) -> None:
    safe = safe_json({"x": text})
    assert json.loads(safe) == {"x": text}
    assert not set("<>&\u2028\u2029") & set(safe)


@given(st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=1, max_size=50))
def test_quantising_is_true_to_the_range(numbers: list[float]) -> None:
    values = np.array(numbers)
    codes, low, high = quantised(values)
    usable = np.isfinite(values)
    np.testing.assert_array_equal(codes == 0, ~usable)
    back = low + (high - low) * (codes[usable].astype(float) - 1) / 65534
    assert (np.abs(back - values[usable]) <= 1e-5 * (high - low)).all()


def test_w_scores_are_summarized_for_people_outside_the_reference() -> None:
    scores = np.array([[5.0, 5.0], [-3.0, 0.0], [2.0, np.nan], [1.0, np.nan]])
    norm = SimpleNamespace(scores=scores, reference=np.array([True, False, False, False]))
    summary = norm_summary(norm)  # type: ignore[arg-type]
    assert summary["others"].tolist() == [3, 1]
    np.testing.assert_allclose(summary["mean"], [0, 0])
    np.testing.assert_allclose([summary["below"], summary["above"]], [[1 / 3, 0], [1 / 3, 0]])


def test_the_verdict_names_what_the_data_do_not_determine(fitted: Fitted) -> None:
    fit = FitDescription.of(fitted.model, fitted.diagnostics)
    before = fit.model.recurrence_
    for beginning, share in {
        "": [1.0, 0.9, 0.8],
        "1 of 3": [1.0, 0.9, 0.2],
        "2 of 3": [1.0, 0.2, 0.2],
    }.items():
        fit.model.recurrence_ = np.array(share)
        assert undetermined(fit.model.recurrence_).startswith(beginning)
        assert undetermined(fit.model.recurrence_) in verdict(fit).headline
    fit.model.recurrence_ = before
    for extent in ([0.2] * 3, [0.6, 0.6, 0.2], [0.9] * 3):
        other = replace(fit, diagnostics=replace(fit.diagnostics, extent=np.array(extent)))
        overlapping = any("overlap" in line for line in verdict(other).lines)
        assert overlapping == (sum(extent) > 2)


@pytest.mark.parametrize(
    ("values", "word"),
    [([0.9, 0.8, 0.7], "moderate (0.80)"), ([0.95], "high (0.95)"), ([np.nan], ""), (None, "")],
)
def test_measured_stability_is_in_the_verdict(fitted: Fitted, values: Any, word: str) -> None:
    stability = None if values is None else {"stability": values}
    files = SelectionFiles(stability=stability)
    fit = FitDescription.of(fitted.model, fitted.diagnostics, selection=files)
    assert verdict(fit).stability == word


@pytest.mark.parametrize("harmonized", [True, False])
@pytest.mark.parametrize("regressed", [True, False])
def test_what_was_removed_is_called_by_its_name(
    fitted: Fitted, harmonized: bool, regressed: bool
) -> None:
    """ComBat is not a regression."""
    model = copy(fitted.model)
    model.harmonization_ = SimpleNamespace(names=("site",), column="site") if harmonized else None
    model.covariates_ = SimpleNamespace(names=("age",)) if regressed else None
    named = dict(adjustments(model))
    assert named.get("site", "").startswith("harmonized") == harmonized
    assert named.get("age", "").startswith("regressed") == regressed
