"""The page in a browser: Playwright drives Debian's Chromium; skipped where either is missing."""

from __future__ import annotations

import base64
import io
import os
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hostile_fit import IMAGE, Fitted, small_fit
from helpers.pages import as_number
from icofactor.results.description import FitDescription
from icofactor.results.report.page import render_page, write_page
from icofactor.sphere.meshes import fs_lr_sites
from icofactor.sphere.sites import Sites

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: the page is not tested"
)
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None, reason="chromium is not installed: the page is not tested in it"
    ),
    pytest.mark.slow,
]
FLAGS = [
    *(
        "--use-angle=swiftshader",
        "--enable-unsafe-swiftshader",
        "--no-sandbox",
        "--no-first-run",
        "--disable-sync",
    ),
    *("--disable-background-networking", "--disable-component-update", "--disable-quic"),
]


class Opened:
    """A page in the browser, with what it said and asked for."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page = browser.new_page(viewport={"width": 1100, "height": 900})
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda problem: self.said.append(str(problem)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]")

    def picture(self) -> np.ndarray:
        """The cortex as it is drawn, rows × columns × 3."""
        from matplotlib.image import imread

        url = self.page.evaluate("document.querySelector('.stage canvas').toDataURL('image/png')")
        image = imread(io.BytesIO(base64.b64decode(url.partition(",")[2])))
        return np.asarray(image[..., :3], dtype=np.float64)

    def panes(self) -> dict[str, np.ndarray]:
        """The four views."""
        image = self.picture()
        h, w = image.shape[0] // 2, image.shape[1] // 2
        return {
            "left lateral": image[:h, :w],
            "right lateral": image[:h, w:],
            "left medial": image[h:, :w],
            "right medial": image[h:, w:],
        }

    def box(self) -> dict[str, float]:
        canvas = self.page.locator(".stage canvas")
        canvas.evaluate("node => node.scrollIntoView()")  # the mouse reaches what is in the window
        found: dict[str, float] = canvas.bounding_box()
        return found

    def tip(self, across: float, down: float) -> list[str]:
        """What the tooltip says at a place of the canvas, in parts of its size."""
        box = self.box()
        self.page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
        tip = self.page.locator("#tip")
        return [] if tip.get_attribute("hidden") is not None else str(tip.inner_text()).split("\n")


@pytest.fixture(scope="module")
def opened(browser: Any, fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    atlas = [fitted.folder / "atlas.dlabel.nii"]
    path = write_page(fitted.folder, tmp_path_factory.mktemp("page"), figures=False, atlas=atlas)
    return Opened(browser, path)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def associated_page(associated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(associated, tmp_path_factory.mktemp("associated-page"), figures=False)


@pytest.fixture
def view(opened: Opened) -> Opened:
    """The page as it opens: first component, sides, no zoom."""
    opened.page.mouse.move(2, 2)
    opened.page.locator("#layer").select_option("component")
    opened.page.locator("#component").select_option("0")
    opened.page.get_by_role("button", name="Lateral and medial views").click()
    opened.page.locator("#edges").set_checked(False)
    return opened


def coloured(image: np.ndarray) -> np.ndarray:
    return np.asarray(np.ptp(image, axis=2) > 0.15)


def test_it_is_drawn_without_a_word_and_without_a_request(opened: Opened) -> None:
    for image in opened.panes().values():
        assert 0.2 < (image < 0.99).any(axis=2).mean() < 0.9
    assert opened.said == []
    assert len(opened.asked) == 1
    assert opened.asked[0].startswith("file://")
    assert opened.page.locator("main section").count() >= 10


def test_front_and_sides_are_where_anatomists_expect_them(view: Opened) -> None:
    panes = view.panes()
    assert not coloured(panes["right lateral"]).any()
    assert not coloured(panes["right medial"]).any()
    half = panes["left lateral"].shape[1] // 2
    assert (
        coloured(panes["left lateral"])[:, :half].sum()
        > 20 * coloured(panes["left lateral"])[:, half:].sum()
        > -1
    )
    assert (
        coloured(panes["left medial"])[:, half:].sum()
        > 20 * coloured(panes["left medial"])[:, :half].sum()
        > -1
    )
    view.page.locator("#component").select_option("1")  # the back of the right hemisphere
    panes = view.panes()
    assert not coloured(panes["left lateral"]).any()
    assert (
        coloured(panes["right lateral"])[:, :half].sum()
        > 20 * coloured(panes["right lateral"])[:, half:].sum()
    )


def test_turning_one_view_turns_all_in_step(view: Opened) -> None:
    view.page.locator("#layer").select_option("median")
    before, box = view.panes(), view.box()
    view.page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.25 * box["height"])
    view.page.mouse.down()
    view.page.mouse.move(box["x"] + 0.33 * box["width"], box["y"] + 0.3 * box["height"], steps=3)
    view.page.mouse.up()
    after = view.panes()
    for name in before:
        assert np.abs(after[name] - before[name]).mean() > 0.01, name
    # the outlines of the two hemispheres mirror each other, before and after
    for panes in (before, after):
        for side in ("lateral", "medial"):
            left, right = (
                (panes[f"{half} {side}"] < 0.99).any(axis=2) for half in ("left", "right")
            )
            assert (left == right[:, ::-1]).mean() > 0.95
    assert (np.abs(after["left lateral"] - after["right lateral"][:, ::-1]) > 0.3).mean() < 0.2


def test_components_by_keys_and_threshold_by_slider(view: Opened) -> None:
    first = view.picture()
    view.page.locator(".stage canvas").focus()
    view.page.keyboard.press("ArrowRight")
    assert view.page.locator("#component").input_value() == "1"
    assert np.abs(view.picture() - first).mean() > 0.005
    view.page.keyboard.press("ArrowLeft")
    np.testing.assert_array_equal(view.picture(), first)
    areas = []
    for part in ("0.05", "0.2", "0.4"):
        view.page.locator("#threshold").fill(part)
        areas.append(int(coloured(view.picture()).sum()))
    assert areas[0] > 1.2 * areas[1] > 1.2**2 * areas[2] > 0
    view.page.locator("#threshold").fill("0.2")
    np.testing.assert_array_equal(view.picture(), first)


@pytest.mark.parametrize("layer", ["component", "error", "median", "deviation", "explained"])
def test_pointing_reads_the_stored_value(view: Opened, fitted: Fitted, layer: str) -> None:
    model, d = fitted.model, fitted.diagnostics
    values = {
        "component": model.components_[0],
        "error": model.components_[0] / 9,
        "median": d.median,
        "deviation": d.deviation,
        "explained": d.explained_map,
    }[layer]
    view.page.locator("#layer").select_option(layer)
    width = np.ptp(values[model.mask_])
    seen = set()
    for across, down in (
        (0.2, 0.25),
        (0.28, 0.3),
        (0.75, 0.25),
        (0.7, 0.2),
        (0.22, 0.66),
        (0.78, 0.66),
    ):
        vertex, region, *rest = view.tip(across, down)
        side, number = re.fullmatch(r"(left|right) vertex (\d+)", vertex).groups()  # type: ignore[union-attr]
        assert (side == "left") == (across < 0.5)
        site = int(number) + (model.sites_.n // 2 if side == "right" else 0)
        seen.add(site)
        front = model.sites_.coordinates[site, 1] > 0
        assert region == ("no region" if int(number) < 10 else IMAGE if front else "back")
        if not model.mask_[site]:
            assert rest == ["masked"]
            continue
        shown = float(rest[0].split(" ")[0].replace("−", "-"))
        assert abs(shown - values[site]) <= 1e-3 * width
    assert len(seen) == 6
    assert view.tip(0.01, 0.01) == []


def test_layers_surfaces_and_active_faces_change_the_picture(view: Opened) -> None:
    pictures = [view.picture()]
    view.page.locator("#edges").set_checked(True)
    pictures.append(view.picture())
    view.page.locator("#surface").select_option(label="pial")
    pictures.append(view.picture())
    view.page.locator("#layer").select_option("parcellation")
    pictures.append(view.picture())
    assert view.page.locator("#bar .key").count() == 3
    view.page.locator("#layer").select_option("depth")
    pictures.append(view.picture())
    view.page.locator("#surface").select_option(label="inflated")
    for one, other in pairwise(pictures):
        assert np.abs(one - other).mean() > 0.005


def test_parts_are_labelled_on_the_brain(view: Opened) -> None:
    """Numbers on the parts in sight, and a key that opens their maps."""
    page = view.page
    assert page.locator(".mark:visible").count() == 0
    page.locator("#layer").select_option("parcellation")
    marks = page.locator(".mark:visible").all_inner_texts()
    assert set(marks) == {"1", "2", "3"}
    assert page.locator("#bar button").count() == 3
    page.locator("#bar button").nth(1).click()
    assert (page.locator("#layer").input_value(), page.locator("#component").input_value()) == (
        "component",
        "1",
    )


def test_the_methods_can_be_copied(opened: Opened) -> None:
    opened.page.get_by_role("button", name="Copy").click()
    opened.page.get_by_text("Copied.").wait_for()
    assert opened.page.locator("#methods").inner_text().startswith("Cortical maps were factorized.")


def test_hostile_words_stay_words(opened: Opened) -> None:
    assert opened.page.evaluate("window.hacked === undefined")
    assert opened.page.locator("main img:not([alt])").count() == 0
    opened.page.locator("#search-0").fill("onerror")
    assert opened.page.locator("#panel-people tbody tr:visible td").first.inner_text() == IMAGE
    opened.page.locator("#search-0").fill("")


def test_subjects_are_sorted_and_searched(opened: Opened, fitted: Fitted) -> None:
    page = opened.page
    rows = page.locator("#panel-people tbody tr")
    column = "rows => rows.map((row) => row.cells[2].textContent)"
    head = page.locator("#panel-people th").nth(2)
    for order in ("descending", "ascending"):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == order
        numbers = [as_number(cell) for cell in rows.evaluate_all(column)]
        assert numbers == sorted(numbers, reverse=order == "descending")
    page.get_by_label("Find a subject").fill("sub-1")
    names = page.locator("#panel-people tbody tr:visible td:first-child").all_inner_texts()
    assert sorted(names) == [
        name for name in sorted(fitted.diagnostics.subjects) if "sub-1" in name
    ]
    page.get_by_label("Find a subject").fill("")
    assert rows.count() == len(fitted.diagnostics.subjects)


def test_a_component_is_shown_on_the_large_brain(view: Opened) -> None:
    view.page.locator("button[data-component]").nth(2).click()
    assert view.page.locator("#component").input_value() == "2"


def test_nothing_is_small_or_beyond_the_edge(
    browser: Any, opened: Opened, associated_page: Path
) -> None:
    """At 390 and 1400 pixels: text of 11 pixels, text of charts of 10, brains of 150."""
    second = Opened(browser, associated_page)
    for page in (opened.page, second.page):
        before = page.viewport_size
        for width in (390, 1400):
            page.set_viewport_size({"width": width, "height": 844})
            page.evaluate(
                "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
            )
            assert page.evaluate(SMALL_TEXT) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            scales = page.locator(".chart img").evaluate_all(
                "images => images.map((image) => image.clientWidth / image.getAttribute('width'))"
            )
            # Ticks have 8 points, which are 10.7 pixels.
            assert min(scales) >= 0.7
            views = page.locator(".stage .pane").evaluate_all(
                "panes => panes.map((p) => p.offsetWidth)"
            )
            assert min(views) >= 160
        page.set_viewport_size(before)
    second.page.close()


SMALL_TEXT = """() => {
  const small = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, box = node.getBoundingClientRect();
    if (!walker.currentNode.textContent.trim() || !box.width || node.tagName === "OPTION") continue;
    const size = parseFloat(getComputedStyle(node).fontSize);
    if (size < 10.99) small.push(`${size} ${node.textContent}`);
  }
  return small;
}"""


def test_keys_reach_everything_that_scrolls(opened: Opened) -> None:
    page = opened.page
    page.locator("#layer").select_option("component")
    page.locator("#component").select_option("0")
    for box in (".scroll", ".chart.large", "#methods"):
        page.locator(box).first.focus()
        page.keyboard.press("ArrowRight")
        assert page.locator("#component").input_value() == "0"
    page.locator(".stage canvas").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#component").input_value() == "1"


def test_it_prints_without_controls(view: Opened) -> None:
    page = view.page
    assert not page.locator(".paper").is_visible()
    page.emulate_media(media="print")
    assert not page.locator("#layer").is_visible()
    assert page.locator(".paper img").is_visible()
    assert page.locator("#methods").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.emulate_media(media="screen")


def test_it_can_be_read_without_scripts(browser: Any, fitted: Fitted, tmp_path: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(write_page(fitted.folder, tmp_path / "out", figures=False).as_uri())
    assert page.locator(".paper img").is_visible()
    assert page.locator(".component .views img").count() == 3
    assert page.locator("#copy").is_visible() is False
    context.close()


AXE = os.environ.get("AXE_CORE")


@pytest.mark.skipif(AXE is None, reason="AXE_CORE does not name axe.min.js of axe-core")
@pytest.mark.parametrize("width", [390, 1400])
def test_axe_has_no_finding(browser: Any, associated_page: Path, width: int) -> None:
    context = browser.new_context(bypass_csp=True, viewport={"width": width, "height": 900})
    page = context.new_page()
    page.goto(associated_page.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    page.evaluate(Path(str(AXE)).read_text())
    assert page.evaluate("axe.run().then((result) => result.violations)") == []
    context.close()


@pytest.mark.parametrize(
    ("sites", "hemi", "k"),
    [
        (Sites.named("fsaverage3"), "right", 1),
        (Sites.named("fsaverage3", hemi="both"), "both", 50),
        (Sites.both(fs_lr_sites("left"), fs_lr_sites("right")), "both", 2),
        (Sites.from_sphere(Sites.named("fsaverage3").coordinates), "left", 2),
    ],
    ids=[
        "one component, one hemisphere",
        "fifty components",
        "fs_LR 32k",
        "points that cannot be drawn",
    ],
)
def test_other_fits_open_too(browser: Any, tmp_path: Path, sites: Sites, hemi: str, k: int) -> None:
    mask = np.abs(sites.coordinates[:, 0]) < 0.9
    path = tmp_path / "report.html"
    fit = small_fit(sites, hemi, k, mask=mask, n_starts=1, n_iter=20, tol=0.0)
    path.write_text(render_page(FitDescription.of(*fit)), encoding="utf-8")
    found = Opened(browser, path)
    assert found.said == []
    assert found.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if sites.triangles is None:
        assert "cannot be drawn" in found.page.locator("#cortex").inner_text()
    else:
        assert found.page.locator("#component option").count() == k
        assert (found.picture() < 0.99).any(axis=2).mean() > 0.1
        for _ in range(k + (k > 1)):  # from the parts to the first component, and once around
            found.page.keyboard.press("ArrowRight")
        assert found.page.locator("#component").input_value() == "0"
    found.page.close()
