from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.hostile_fit import CLOSING, IMAGE, SCRIPT, Fitted, small_fit
from icofactor.assessment.bootstrap import Bootstrap
from icofactor.cli.main import main
from icofactor.errors import FileError
from icofactor.io.publish import Publication
from icofactor.results.description import FitDescription
from icofactor.results.folder import FitFolder, component_table, write_fit
from icofactor.results.recurrence_text import in_one_line
from icofactor.results.report import charts, panels
from icofactor.results.report.content import alone_is_a_share, clearest_columns, safe_json
from icofactor.results.report.layers import quantised
from icofactor.results.report.page import render_page, write_page
from icofactor.results.report.selection_files import read_selection_files
from icofactor.sphere.meshes import fs_lr_sites
from icofactor.sphere.sites import Sites


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text inside scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        if tag == "script":
            self._inside = True
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.scripts[-1] += data


def content_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Elements(text).scripts[0])
    return found


def array_of(content: dict[str, Any], ticket: dict[str, Any]) -> np.ndarray:
    data = zlib.decompress(base64.b64decode(content["block"]))
    return np.frombuffer(data, dtype=ticket["type"], count=ticket["n"], offset=ticket["at"])


@pytest.fixture(scope="module")
def page(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("page")
    return write_page(fitted.folder, out, figures=False).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_page_names_nothing_outside(page: str) -> None:
    elements = Elements(page).found
    assert not [a for _, a in elements if "src" in a or str(a.get("href", "#"))[:1] != "#"]
    assert [tag for tag, _ in elements].count("script") == 2
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def test_the_policy_lets_only_the_pages_own_script_run(page: str) -> None:
    elements = Elements(page)
    policy = str(
        next(
            a["content"]
            for _, a in elements.found
            if a.get("http-equiv") == "Content-Security-Policy"
        )
    )
    digest = base64.b64encode(hashlib.sha256(elements.scripts[1].encode()).digest()).decode()
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}';" in policy
    assert "unsafe" not in policy


def test_hostile_words_arrive_as_they_are(page: str) -> None:
    content = content_of(page)
    assert content["panels"]["subjects"][:3] == [SCRIPT, IMAGE, CLOSING]
    assert IMAGE in {column["column"] for column in content["panels"]["columns"]}
    assert content["methods"].startswith(
        f"Cortical maps were factorized. {CLOSING}\n\n## Assessment\n"
    )
    assert content["selection"]["reasons"] == [SCRIPT]
    assert json.loads(content["provenance"])["warnings"] == [IMAGE]
    assert "window.hacked" not in re.sub(
        r"<script type=\"application/json\".*?</script>", "", page, flags=re.S
    )


def test_the_page_says_how_and_not_where(page: str) -> None:
    shown = json.loads(content_of(page)["provenance"])
    assert shown["model"] == {"mask": "lh.mask", "n_components": 3} and shown["inputs"].startswith(
        "1 file; "
    )
    assert "private" not in page


def test_layers_hold_the_maps(page: str, fitted: Fitted) -> None:
    content = content_of(page)
    model, d = fitted.model, fitted.diagnostics
    layers = {layer["name"]: layer for layer in content["cortex"]["layers"]}
    for name, values in {
        "Component 2": model.components_[1],
        "Median over subjects": d.median,
        "Standard deviation over subjects": d.deviation,
        "Explained between-subject variance": d.explained_map,
        "Refinement depth": d.depth.astype(float),
    }.items():
        codes = array_of(content, layers[name]["values"]).astype(float)
        low, high = layers[name]["from"], layers[name]["to"]
        np.testing.assert_array_equal(codes == 0, ~model.mask_)
        shown = low + (high - low) * (codes - 1) / 65534
        used = model.mask_
        assert np.abs(shown - values)[used].max() <= 1e-4 * np.ptp(values[used]) + 1e-12
    parcels = array_of(content, layers["Parcellation: the largest component"]["values"])
    np.testing.assert_array_equal(parcels, d.parcellation)


@pytest.mark.slow
def parts_page(
    k: int = 3, recommended: int | None = 3, **settings: Any
) -> tuple[Any, dict[str, Any], str]:
    """The page of parts on one hemisphere, with a selection beside it."""
    from icofactor.assessment.selection.choice import Choice
    from icofactor.results.report.selection_files import SelectionFiles

    more = {"method": "parts", "n_starts": 20, "tol": 1e-4, "n_iter": 300, **settings}
    model, diagnostics = small_fit(Sites.named("fsaverage3"), "left", k, **more)
    choice = Choice(
        {"rank": np.array([2, 3]), "score": np.array([0.1, 0.2])},
        recommended,
        ("because",),
        others=(3,) if recommended == 6 else (),
    )
    fit = FitDescription.of(model, diagnostics, selection=SelectionFiles(choice))
    text = render_page(fit)
    return model, content_of(text), text


@pytest.mark.parametrize(
    ("center", "units", "scale"),
    [
        ("mean", "mm", "mm of deviation per unit loading"),
        ("zscore", "standard deviations", "standard deviations per unit loading"),
        ("none", "mm", "mm"),
    ],
)
def test_parts_say_what_they_mean(center: str, units: str, scale: str) -> None:
    model, content, _ = parts_page(center=center)
    summary, panels = content["summary"], content["panels"]
    layer = content["cortex"]["layers"][0]
    assert (layer["units"], layer["scale"]) == (units, scale)
    assert not layer["signed"]  # maps stay sequential
    assert panels["units"] == units  # of residuals
    assert panels["signed"] == (center != "none")
    assert summary["trust"] == in_one_line(model.recurrence_, model.starts_.n_near)
    np.testing.assert_allclose(
        [np.nan if v is None else v for v in panels["recurrence"]], model.recurrence_, rtol=1e-4
    )
    assert {"viridis", "diverging"} <= set(content["cortex"]["ramps"])


def test_a_page_says_what_the_maps_were_adjusted_for() -> None:
    """Loadings cannot relate to a covariate any more: its row says so instead of 0.00 all over."""
    fit = adjusted_fit()
    content = content_of(render_page(fit))
    assert content["summary"]["adjusted"] == ["age"]
    assert content["panels"]["adjusted"] == [["age", "regressed out before the fit"]]
    assert [column["column"] for column in content["panels"]["columns"]] == [IMAGE]
    assert [item.column for item in clearest_columns(fit)] == [IMAGE]
    plain = content_of(
        render_page(replace(fit, model=small_fit(Sites.named("fsaverage3"), "left")[0]))
    )
    assert plain["summary"]["adjusted"] == [] and plain["summary"]["harmonized"] is None
    assert {column["column"] for column in plain["panels"]["columns"]} == {"age", IMAGE}


def adjusted_fit() -> FitDescription:
    """A fit of which age was taken out before."""
    from icofactor.preprocessing.covariates import Covariates

    sites = Sites.named("fsaverage3")
    model, d = small_fit(sites, "left")
    ages = {"age": next(item.values for item in d.associations if item.column == "age")}
    model.covariates_ = Covariates.fit(
        np.ones((12, sites.n)) + np.arange(12)[:, None], ["age"], ages
    )
    return FitDescription.of(model, d)


def test_no_share_above_all_of_the_variance_is_shown(page: str, fitted: Fitted) -> None:
    """What overlapping components carry alone adds up to more than there is: titles and menus show what is unique."""
    d, content = fitted.diagnostics, content_of(page)
    shares = [
        layer["share"] for layer in content["cortex"]["layers"] if layer["key"] == "component"
    ]
    np.testing.assert_allclose(shares, d.unique, rtol=1e-4)
    for alone, shown in ((d.unique + 0.1, True), (d.unique + 1, False), (d.unique - 0.01, False)):
        other = replace(d, alone=alone)
        assert alone_is_a_share(other) is shown
        table = component_table(FitDescription.of(fitted.model, other))["variance_alone"]
        np.testing.assert_array_equal(table, np.where(alone <= 1, alone, np.nan))
        figure = charts.draw_explained(other)
        assert len(figure.axes[0].patches) == len(d.unique) * (1 + shown)


def test_figures_are_fit_for_print() -> None:
    """Journals refuse Type 3 fonts and ask for 300 dots per inch."""
    from icofactor.results.report.drawing import _FINE, _PIXELS, PANEL

    figure = charts.draw_explained(small_fit(Sites.named("fsaverage3"), "left")[1])
    assert b"/Type3" not in panels.figure_bytes(figure, "pdf")
    assert panels.DPI >= 300 and _PIXELS[0] / _FINE / PANEL[0] >= 300


def test_ten_components_of_fsaverage5_fit_into_three_megabytes() -> None:
    sites = Sites.named("fsaverage5", hemi="both")
    model, d = small_fit(sites, "both", k=10, n_starts=1)
    model.components_ = np.random.default_rng(0).random(
        model.components_.shape
    )  # the worst that can come
    assert len(render_page(FitDescription.of(model, d))) < 3e6


@pytest.mark.slow
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
    content = content_of(
        render_page(FitDescription.of(*small_fit(sites, hemi, k, n_starts=1, n_iter=20, tol=0.0)))
    )
    if sites.triangles is None:
        assert content["cortex"]["missing"]
        return
    shapes = content["cortex"]["shapes"]
    assert shapes == (
        ["inflated", "pial", "midthickness", "white", "sphere"] if sites.name else ["sphere"]
    )
    components = [layer for layer in content["cortex"]["layers"] if layer["key"] == "component"]
    assert len(components) == k
    n = len(sites.frames) * (sites.n // len(sites.frames) if sites.on == "vertices" else 642)
    assert components[0]["values"]["n"] == n


@pytest.mark.slow
def test_the_command_writes_page_and_figures(
    fitted: Fitted,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("icofactor.results.report.panels.DPI", 40)
    assert main(["report", str(fitted.folder), "-o", str(tmp_path / "out"), "-q"]) == 0
    assert str(tmp_path / "out" / "report.html") in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert {"components.pdf", "selection.pdf", "stability.pdf", "atlas_overlap.pdf"} <= names
    assert {name.rpartition(".")[2] for name in names} == {"png", "pdf"}
    assert (
        main(["report", str(fitted.folder), "-o", str(tmp_path / "out"), "-q", "--no-figures"]) == 2
    )
    assert "exists; pass --overwrite to replace it" in capsys.readouterr().err
    assert (
        main(
            [
                "report",
                str(fitted.folder),
                "-o",
                str(tmp_path / "out"),
                "-q",
                "--no-figures",
                "--overwrite",
            ]
        )
        == 0
    )


def test_figures_of_an_earlier_report_go_and_nothing_else(
    fitted: Fitted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_panel = [("components.png", b"new", 1.0)]
    monkeypatch.setattr("icofactor.results.report.page.drawn_panels", lambda fit: one_panel)
    folder = tmp_path / "figures"
    names = (
        "components.png",
        "components-02.png",
        "stability.pdf",
        "participants-01_age.png",
        "mine.png",
        "maps.svg",
    )
    with Publication(tmp_path).filled() as new:
        (new / "figures").mkdir()
        for name in names[:4]:
            (new / "figures" / name).write_text("old")
    for name in names[4:]:
        (folder / name).write_text("old")
    with pytest.raises(FileExistsError):
        write_page(fitted.folder, tmp_path)
    assert len(list(folder.iterdir())) == len(names)
    write_page(fitted.folder, tmp_path, overwrite=True)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "components.png": "new",
        "mine.png": "old",
        "maps.svg": "old",
    }


def test_fs_lr_32k_has_a_page() -> None:
    sites = Sites.both(fs_lr_sites("left"), fs_lr_sites("right"))
    model, d = small_fit(
        sites,
        "both",
        k=2,
        mask=np.abs(sites.coordinates[:, 0]) < 0.9,
        n_starts=1,
        n_iter=20,
        tol=0.0,
    )
    text = render_page(FitDescription.of(model, d))
    cortex = content_of(text)["cortex"]
    assert cortex["shapes"] == ["sphere"]
    assert cortex["note"].startswith("Drawn on the sphere. icofactor report --surfaces draws on")
    assert '"mesh": "fs_LR 32k"' in text or '"mesh":"fs_LR 32k"' in text
    assert [half["n"] for half in cortex["halves"]] == [32492, 32492]
    codes = array_of(content_of(text), cortex["layers"][0]["values"])
    np.testing.assert_array_equal(codes == 0, ~model.mask_)


def test_what_select_found_is_on_the_page(page: str, fitted: Fitted) -> None:
    content, model = content_of(page), fitted.model
    assert content["selection"]["recommended"] == 3
    assert content["selection"]["table"][IMAGE] == [1.0, None]
    assert [chart["title"] for chart in content["selection"]["charts"]] == [
        "Do halves of the subjects agree?"
    ]
    expected = np.linspace(0.5, 0.95, 12).reshape(4, 3).mean(axis=0)
    np.testing.assert_allclose(content["stability"]["stability"], expected, rtol=1e-4)
    expected = np.abs(model.loadings_).ravel() / 9
    np.testing.assert_allclose(array_of(content, content["loading_se"]), expected, rtol=1e-6)
    layers = [layer for layer in content["cortex"]["layers"] if layer["key"] == "error"]
    assert [layer["name"] for layer in layers] == [
        f"Standard error of component {j}" for j in (1, 2, 3)
    ]
    codes = array_of(content, layers[1]["values"]).astype(float)
    shown = layers[1]["from"] + (layers[1]["to"] - layers[1]["from"]) * (codes - 1) / 65534
    np.testing.assert_allclose(
        shown[model.mask_], model.components_[1][model.mask_] / 9, atol=1e-4 * layers[1]["to"]
    )
    table = content["overlap"]
    assert set(table["component"]) == {1, 2, 3}
    assert f"left {IMAGE}" in table["region"]
    assert {"share", "area", "enrichment", "p", "q", "proposed_name"} <= set(table)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("stability.tsv", "component\tstability\n1\t0.5\n"),
        (
            "stability.tsv",
            "component\tstability\tstability_5th_percentile\trelative_standard_error\n1\t0.5\t0.4\t0.1\n",
        ),
        ("loadings_se.tsv", "participant_id\tcomponent01\nsub-1\t0.5\n"),
        ("atlas_overlap.tsv", "component\tregion\n1\n"),
        ("atlas_overlap.tsv", "component\tregion\n1\ta\n"),
        ("selection.json", "[]"),
        ("selection.json", '{"table": {}, "recommended": 1, "reasons": []}'),
    ],
)
def test_what_is_of_another_fit_is_refused_by_name(
    fitted: Fitted, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(FileError) as raised:
        read_selection_files(tmp_path, fitted.model, fitted.diagnostics.subjects)
    assert raised.value.path == str(tmp_path / name)


def test_errors_of_another_fit_with_as_many_components_are_refused(
    fitted: Fitted, tmp_path: Path
) -> None:
    model, subjects = fitted.model, fitted.diagnostics.subjects
    spread = Bootstrap(model.components_ / 9, np.abs(model.loadings_) / 9, np.full((4, 3), 0.9))
    other = SimpleNamespace(components_=1.01 * model.components_, hemi_="both", sites_=model.sites_)
    spread.save(tmp_path, other, subjects)
    with pytest.raises(ValueError, match=r"stability\.tsv.*standard errors belong to other maps"):
        read_selection_files(tmp_path, model, subjects)
    spread.save(tmp_path, model, subjects, overwrite=True)
    assert read_selection_files(tmp_path, model, subjects).stability is not None


@pytest.mark.slow
def test_parcels_have_one_colour_in_files_page_and_figures(fitted: Fitted, tmp_path: Path) -> None:
    """The same colours in .label.gii, .annot, the table, the page and the key of the figure."""
    import nibabel as nib
    from matplotlib.colors import to_rgb

    from icofactor.results.report.figures import plot_maps

    fit = FitDescription.of(fitted.model, fitted.diagnostics)
    write_fit(fit, FitFolder(tmp_path, figures=False))
    content = content_of(render_page(fit))
    page = array_of(content, content["cortex"]["distinct"]).reshape(-1, 3)
    stem = "hemi-L_space-fsaverage_den-3k_desc-icofactor_dseg"
    labels = nib.load(tmp_path / f"{stem}.label.gii").labeltable.labels[1:]
    np.testing.assert_array_equal(
        np.round(255 * np.array([label.rgba[:3] for label in labels])), page
    )
    np.testing.assert_array_equal(
        nib.freesurfer.read_annot(tmp_path / f"{stem}.annot")[1][1:, :3], page
    )
    keys = [
        text
        for text in plot_maps(fit.model, fit.diagnostics).texts
        if text.get_bbox_patch() is not None
    ]
    drawn = [to_rgb(text.get_bbox_patch().get_facecolor()) for text in keys]
    np.testing.assert_array_equal(np.round(255 * np.array(drawn)), page)
    rows = (tmp_path / "desc-icofactor_dseg.tsv").read_text().splitlines()[1:]
    assert [bytes.fromhex(row.split("\t")[2][1:]) for row in rows] == [
        bytes(colour) for colour in page
    ]


def test_nothing_beside_the_fit(fitted: Fitted, tmp_path: Path) -> None:
    found = read_selection_files(tmp_path, fitted.model, fitted.diagnostics.subjects)
    assert set(vars(found).values()) == {None}
    content = content_of(
        render_page(FitDescription.of(fitted.model, fitted.diagnostics, selection=found))
    )
    assert (
        content["selection"]
        is content["stability"]
        is content["overlap"]
        is content["loading_se"]
        is None
    )


def test_regions_of_a_dlabel_atlas_are_on_the_page(fitted: Fitted) -> None:
    atlas = [fitted.folder / "atlas.dlabel.nii"]
    content = content_of(
        render_page(FitDescription.of(fitted.model, fitted.diagnostics, atlas=atlas))
    )
    regions = content["cortex"]["regions"]
    coordinates = fitted.model.sites_.coordinates.reshape(2, -1, 3)
    for half in range(2):
        numbers = array_of(content, regions["numbers"][half])
        expected = np.where(coordinates[half, :, 1] > 0, IMAGE, "back")
        expected[:10] = ""
        assert [regions["names"][number] for number in numbers] == expected.tolist()


def test_folders_without_a_fit_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path / "none"), "-q"]) == 2
    assert (
        "none is not a folder; it should be one that icofactor fit wrote" in capsys.readouterr().err
    )
    assert main(["report", str(tmp_path), "-q"]) == 2
    assert "model.zip: no such file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@given(st.text())
def test_no_text_can_end_the_data(text: str) -> None:
    safe = safe_json({"x": text})
    assert json.loads(safe) == {"x": text}
    assert not set("<>&\u2028\u2029") & set(safe)


@given(st.lists(st.floats(-1e6, 1e6) | st.just(float("nan")), min_size=1, max_size=50))
def test_quantising_is_true_to_the_range(listed: list[float]) -> None:
    values = np.array(listed)
    codes, low, high = quantised(values)
    known = np.isfinite(values)
    np.testing.assert_array_equal(codes == 0, ~known)
    back = low + (high - low) * (codes[known].astype(float) - 1) / 65534
    assert (np.abs(back - values[known]) <= 1e-5 * (high - low)).all()
