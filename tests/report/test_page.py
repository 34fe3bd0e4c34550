from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile_fit import CLOSING, IMAGE, SCRIPT, Fitted, small_fit
from icofactor.cli import main
from icofactor.report import render_page, write_page
from icofactor.report.content import quantised, safe_json
from icofactor.sphere import Sites


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


def test_the_page_names_nothing_outside(page: str) -> None:
    elements = Elements(page).found
    assert not [a for _, a in elements if "src" in a or str(a.get("href", "#"))[:1] != "#"]
    assert [tag for tag, _ in elements].count("script") == 2
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def test_the_policy_lets_only_the_pages_own_script_run(page: str) -> None:
    elements = Elements(page)
    policy = str(next(a["content"] for _, a in elements.found if a.get("http-equiv") == "Content-Security-Policy"))
    digest = base64.b64encode(hashlib.sha256(elements.scripts[1].encode()).digest()).decode()
    assert policy.startswith("default-src 'none';")
    assert f"script-src 'sha256-{digest}';" in policy
    assert "unsafe" not in policy


def test_hostile_words_arrive_as_they_are(page: str) -> None:
    content = content_of(page)
    assert content["panels"]["subjects"][:3] == [SCRIPT, IMAGE, CLOSING]
    assert IMAGE in {column["column"] for column in content["panels"]["columns"]}
    assert content["methods"].endswith(CLOSING)
    assert content["selection"]["reasons"] == [SCRIPT]
    assert IMAGE in json.loads(content["provenance"])["data"]["files"]
    assert "window.hacked" not in re.sub(r"<script type=\"application/json\".*?</script>", "", page, flags=re.S)


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


def test_ten_components_of_fsaverage5_fit_into_three_megabytes() -> None:
    sites = Sites.named("fsaverage5", hemi="both")
    model, d = small_fit(sites, "both", k=10, n_starts=1)
    model.components_ = np.random.default_rng(0).random(model.components_.shape)  # the worst that can come
    assert len(render_page(model, d)) < 3e6


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
    content = content_of(render_page(*small_fit(sites, hemi, k, n_starts=1, n_iter=20, tol=0.0)))
    if sites.triangles is None:
        assert "needs the mesh's triangles" in content["cortex"]["missing"]
        return
    shapes = content["cortex"]["shapes"]
    assert shapes == (["inflated", "pial", "white", "sphere"] if sites.name else ["sphere"])
    components = [layer for layer in content["cortex"]["layers"] if layer["key"] == "component"]
    assert len(components) == k
    n = len(sites.frames) * (sites.n // len(sites.frames) if sites.on == "vertices" else 642)
    assert components[0]["values"]["n"] == n


def test_the_command_writes_page_and_figures(
    fitted: Fitted, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icofactor.report.panels.DPI", 40)
    assert main(["report", str(fitted.folder), "-o", str(tmp_path / "out"), "-q"]) == 0
    assert str(tmp_path / "out" / "report.html") in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    panels = ["components", "maps", "convergence", "explained_variance", "sparsity", "similarity", "loadings"]
    panels += ["subjects", "selection", "participants-01_age", "participants-02_img-src-x-onerror-window-hacked-2"]
    found = {name.rpartition(".")[0] for name in names}
    assert {name.replace("01", "0").replace("02", "0") for name in found} == {
        name.replace("01", "0").replace("02", "0") for name in panels
    }
    assert {name.rpartition(".")[2] for name in names} == {"png", "pdf"}
    assert main(["report", str(fitted.folder), "-o", str(tmp_path / "out"), "-q", "--no-figures"]) == 2
    assert "exists; pass --overwrite to replace it" in capsys.readouterr().err
    assert main(["report", str(fitted.folder), "-o", str(tmp_path / "out"), "-q", "--no-figures", "--overwrite"]) == 0


def test_folders_without_a_fit_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path / "none"), "-q"]) == 2
    assert "none is not a folder; it should be one that icofactor fit wrote" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "-q"]) == 2
    assert "no model file" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


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
