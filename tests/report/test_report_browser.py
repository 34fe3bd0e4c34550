"""The page in a browser: Playwright drives Debian's Chromium; skipped where either is missing."""

from __future__ import annotations

import base64
import io
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hostile_fit import CLOSING, IMAGE, SCRIPT, Fitted
from icofactor.report import write_page

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the page is not tested")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: the page is not tested in it")
FLAGS = [
    *("--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox", "--no-first-run", "--disable-sync"),
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
        found: dict[str, float] = self.page.locator(".stage canvas").bounding_box()
        return found

    def tip(self, across: float, down: float) -> list[str]:
        """What the tooltip says at a place of the canvas, in parts of its size."""
        box = self.box()
        self.page.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
        tip = self.page.locator("#tip")
        return [] if tip.get_attribute("hidden") is not None else str(tip.inner_text()).split("\n")


@pytest.fixture(scope="module")
def opened(fitted: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    path = write_page(fitted.folder, tmp_path_factory.mktemp("page"), figures=False)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield Opened(browser, path)
        browser.close()


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
    assert opened.page.locator("#panels section").count() >= 10


def test_front_and_sides_are_where_anatomists_expect_them(view: Opened) -> None:
    panes = view.panes()
    assert not coloured(panes["right lateral"]).any()
    assert not coloured(panes["right medial"]).any()
    half = panes["left lateral"].shape[1] // 2
    assert coloured(panes["left lateral"])[:, :half].sum() > 20 * coloured(panes["left lateral"])[:, half:].sum() > -1
    assert coloured(panes["left medial"])[:, half:].sum() > 20 * coloured(panes["left medial"])[:, :half].sum() > -1
    view.page.locator("#component").select_option("1")  # the back of the right hemisphere
    panes = view.panes()
    assert not coloured(panes["left lateral"]).any()
    assert coloured(panes["right lateral"])[:, :half].sum() > 20 * coloured(panes["right lateral"])[:, half:].sum()


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
            left, right = ((panes[f"{half} {side}"] < 0.99).any(axis=2) for half in ("left", "right"))
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


@pytest.mark.parametrize("layer", ["component", "median", "explained"])
def test_pointing_reads_the_stored_value(view: Opened, fitted: Fitted, layer: str) -> None:
    model, d = fitted.model, fitted.diagnostics
    values = {"component": model.components_[0], "median": d.median, "explained": d.explained_map}[layer]
    view.page.locator("#layer").select_option(layer)
    width = np.ptp(values[model.mask_])
    seen = set()
    for across, down in ((0.2, 0.25), (0.28, 0.3), (0.75, 0.25), (0.7, 0.2), (0.22, 0.66), (0.78, 0.66)):
        vertex, *rest = view.tip(across, down)
        side, number = re.fullmatch(r"(left|right) vertex (\d+)", vertex).groups()  # type: ignore[union-attr]
        assert (side == "left") == (across < 0.5)
        site = int(number) + (model.sites_.n // 2 if side == "right" else 0)
        seen.add(site)
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


def test_hostile_words_stay_words(opened: Opened) -> None:
    assert opened.page.evaluate("window.hacked") is None
    assert opened.page.locator("script").count() == 2
    assert opened.page.locator("img").count() == 0
    text = opened.page.locator("body").inner_text()
    for words in (SCRIPT, IMAGE, CLOSING):
        assert words in text
    opened.page.locator(".heat canvas").hover(position={"x": 5, "y": 5})
    assert "Component" in opened.page.locator("#tip").inner_text()
    assert opened.page.evaluate("window.hacked") is None
    assert opened.said == []


def test_the_methods_can_be_copied(opened: Opened) -> None:
    opened.page.get_by_role("button", name="Copy").click()
    opened.page.get_by_text("Copied.").wait_for()
    assert opened.page.locator("#methods").inner_text().startswith("Cortical maps were factorized.")
