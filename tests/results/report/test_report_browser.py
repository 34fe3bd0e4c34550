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
from urllib.parse import urlparse
from urllib.request import url2pathname

import numpy as np
import pytest

from helpers.hostile_fit import CLOSING, IMAGE, SCRIPT, Fitted, small_fit
from icofactor.io.tables import read_table
from icofactor.results.description import FitDescription, read_fit
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


def test_of_very_many_people_the_density_is_drawn(opened: Opened) -> None:
    """As many cells as the chart has room for, which count everybody; and no call with an argument per person."""
    count = """(n) => {
        const node = svg("svg"), rows = [...Array(n).keys()];
        dots(node, rows, (i) => i % 50, (i) => 8 * (i % 5), (i) => `${i}`);
        const kinds = ["circle", "rect"].map((kind) => node.querySelectorAll(kind).length);
        const ink = [...node.querySelectorAll("rect")].map((cell) => cell.getAttribute("fill-opacity"));
        return [...kinds, new Set(ink).size, ...span(rows), dense(n).includes("Darker")];
    }"""
    assert opened.page.evaluate(count, 2000) == [2000, 0, 0, 0, 1999, False]
    assert opened.page.evaluate(count, 300_000) == [0, 50, 1, 0, 299_999, True]


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


def test_what_select_found_is_shown(view: Opened, fitted: Fitted) -> None:
    page = view.page
    chosen = page.locator("#panels section").filter(
        has=page.get_by_role("heading", name="How many components")
    )
    assert "Recommended: 3 components." in chosen.inner_text()
    assert SCRIPT in chosen.inner_text()
    assert chosen.locator("svg circle").count() == 2
    chosen.get_by_text("All numbers").click()
    assert chosen.locator("tbody tr").nth(1).inner_text().split() == ["3", "0.200", "n/a"]
    trust = page.locator("#panels section").filter(
        has=page.get_by_role("heading", name="Stability of components")
    )
    assert trust.locator("tbody tr").first.locator("td").nth(1).inner_text() == "0.684"
    lie = page.locator("#panels section").filter(
        has=page.get_by_role("heading", name="Where components lie")
    )
    first = lie.locator("tbody tr").first.locator("td").all_inner_texts()
    assert first[:3] == [
        "1",
        f"left {IMAGE}? (100.0 %)",
        f"left {IMAGE}",
    ]  # 20 rotations make no name sure
    assert first[3] == "100.0 %"
    page.locator(".heat canvas").hover(position={"x": 5, "y": 5})
    assert re.search(r"Component \d: −?[\d.]+ ± [\d.]+$", page.locator("#tip").inner_text())
    page.locator("#layer").select_option("error")
    page.locator(".stage canvas").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#bar .name").inner_text().startswith("Standard error of component 2")


def test_associations_are_shown_term_by_term(
    browser: Any, associated: Path, tmp_path: Path
) -> None:
    shown = Opened(browser, write_page(associated, tmp_path / "page", figures=False))
    page = shown.page
    panel = page.locator("#panels section").filter(
        has=page.get_by_role("heading", name="Associations with loadings")
    )
    table = read_table(associated / "associations.tsv")[0]
    first = panel.locator(".scroll tbody tr").first.locator("td").all_inner_texts()
    assert first[:2] == ["age", "1"]
    assert float(first[2].replace("−", "-")) == pytest.approx(float(table["estimate"][0]), rel=1e-2)
    panel.locator(".cells tr").nth(1).locator("button").first.click()
    assert panel.locator("svg").last.locator("circle").count() == 30
    assert panel.locator("svg").last.locator("path").count() == 2  # expected, with its interval
    panel.locator(".cells tr").nth(2).locator("button").nth(1).click()
    assert (
        IMAGE in panel.locator("[aria-live]").inner_text() and "component 2" in panel.inner_text()
    )
    assert panel.locator("svg").last.locator("line[stroke-width='3']").count() == 2 * 3
    latent = page.locator("#panels section").filter(
        has=page.get_by_role("heading", name="Components and behaviour")
    )
    latent.locator(".cells button").nth(1).click()
    assert "Latent variable 2" in latent.locator("[aria-live]").inner_text()
    assert [chart.locator("rect").count() for chart in latent.locator("svg").all()] == [2, 2]
    norm = page.locator("#panels section").filter(
        has=page.get_by_role("heading", name="Deviations from the reference")
    )
    scores = read_table(associated / "normative.tsv")[0]
    assert norm.locator("circle").count() == 2 * 30 - 2 * scores["component01"].count("n/a")
    assert norm.locator("tbody tr").first.locator("td").all_inner_texts()[:2] == ["1", "5"]
    assert shown.said == [] and page.evaluate("window.hacked") is None


def test_every_part_is_in_the_list_of_contents_below_the_verdict(opened: Opened) -> None:
    page = opened.page
    names = ["#verdict", "#cards", "#contents", "#cortex", "#panel-components"]
    heights = [page.locator(name).bounding_box()["y"] for name in names]
    assert heights == sorted(heights)
    targets = page.locator("#contents a").evaluate_all(
        "links => links.map((link) => link.hash.slice(1))"
    )
    assert len(set(targets)) == len(targets) == page.locator("#panels section, main h2").count()
    assert page.evaluate("names => names.every((name) => document.getElementById(name))", targets)


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


def test_components_have_their_map_loadings_and_relations(opened: Opened, fitted: Fitted) -> None:
    cards, titles = opened.page.locator("article.component"), read_fit(fitted.folder).titles
    assert cards.count() == 3
    for j in range(3):
        card = cards.nth(j)
        assert (
            card.get_by_role("heading").inner_text() == titles[j]
        )  # with its name where the atlas gives it one
        assert f"{100 * fitted.diagnostics.unique[j]:.1f} %" in card.inner_text()
        assert "Map of Component" in card.locator("canvas").get_attribute("aria-label")
        assert card.locator("svg rect").count() == 14 and card.locator("li").count() == 2


def test_every_panel_is_named_and_nothing_is_small(
    browser: Any, opened: Opened, associated: Path, tmp_path: Path
) -> None:
    """At 1400 and 390 pixels: text of 11 pixels, brains of 150, nothing beyond the edge; names for screen readers."""
    assert opened.page.locator("#panels section:not([aria-labelledby])").count() == 0
    assert opened.page.locator("svg:not([aria-label]):not([aria-hidden])").count() == 0
    assert opened.page.locator("canvas[role=img]:not([aria-label])").count() == 0
    second = Opened(browser, write_page(associated, tmp_path / "page", figures=False))
    for found in (opened, second):
        before = found.page.viewport_size
        for width in (390, 1400):
            found.page.set_viewport_size({"width": width, "height": 844})
            found.page.evaluate(
                "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"
            )
            assert found.page.evaluate(SMALL_TEXT) == []
            assert found.page.evaluate("document.documentElement.scrollWidth") <= width
            views = found.page.locator(".stage .pane").evaluate_all(
                "panes => panes.map((pane) => pane.offsetWidth)"
            )
            assert min(views) >= 160
            image = (found.picture() < 0.99).any(axis=2)
            columns = np.flatnonzero(image[: len(image) // 2, : image.shape[1] // 2].any(axis=0))
            assert np.ptp(columns) >= 150
        found.page.set_viewport_size(before)


SMALL_TEXT = """() => {
  const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, box = node.getBoundingClientRect();
    if (!walker.currentNode.textContent.trim() || !box.width || node.tagName === "OPTION") continue;
    const turned = node.closest("svg") ? node.getScreenCTM() : null;
    const size = parseFloat(getComputedStyle(node).fontSize) * (turned ? Math.hypot(turned.a, turned.b) : 1);
    if (size < 10.99) found.push(`${size} ${node.textContent}`);
  }
  return found;
}"""


def test_the_page_links_the_tables_of_its_numbers(
    browser: Any, associated: Path, tmp_path: Path
) -> None:
    """Each panel with numbers links tables, and they are there, beside the page or in the folder of the fit."""
    for out in (associated, tmp_path / "page"):
        page = Opened(browser, write_page(associated, out, figures=False, overwrite=True)).page
        bare = page.locator("#panels section:not(:has(.files))").evaluate_all(
            "nodes => nodes.map((node) => node.id)"
        )
        assert bare == ["panel-methods"]
        links = page.locator(".files a").evaluate_all("links => links.map((link) => link.href)")
        assert len(set(links)) >= 11
        assert all(Path(url2pathname(urlparse(link).path)).is_file() for link in links)
        page.close()


NUMBERS = """() => [...document.querySelectorAll("#verdict, #panels section")].map((block) => {
  const texts = [], walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
  const out = "svg, pre, .files, .ticks, .labels, .key, dl.settings";
  while (walker.nextNode())
    if (!walker.currentNode.parentElement.closest(out)) texts.push(walker.currentNode.textContent);
  return [block.id, texts.join(" | "), [...block.querySelectorAll(".files a")].map((link) => link.href)];
})"""
"""Text of every block that shows numbers, and the tables that it links."""
RULES = {"0.05", "0.1 %", "0.9", "5 %", "95 %", "1.96", "\u22121.96", "0.001"}
"""Limits that sentences name; they are no results."""


def test_every_number_shown_is_in_a_table_that_its_panel_links(
    browser: Any, associated: Path, tmp_path: Path
) -> None:
    page = Opened(browser, write_page(associated, tmp_path / "page", figures=False)).page
    for block, text, links in page.evaluate(NUMBERS):
        cells = [
            cell
            for link in set(links)
            for cell in _numbers_in(Path(url2pathname(urlparse(link).path)))
        ]
        for shown in (
            set(re.findall(r"\u2212?\d[\d,]*\.\d+(?:e\u2212?\d+)?(?: %)?|\d+ %", text)) - RULES
        ):
            digits, _, power = (
                shown.replace("\u2212", "-").replace(",", "").removesuffix(" %").partition("e")
            )
            size = 10.0 ** (int(power or 0) - 2 * shown.endswith("%"))
            unit, value = size / 10 ** len(digits.partition(".")[2]), abs(float(digits)) * size
            assert any(abs(abs(cell) - value) <= 0.5001 * unit for cell in cells), (
                block,
                shown,
                text,
            )
    page.close()


def _numbers_in(path: Path) -> list[float]:
    cells = [cell for column in read_table(path)[0].values() for cell in column]
    return [float(cell) for cell in cells if re.fullmatch(r"-?[\d.]+(e[+-]?\d+)?", cell)]


def test_it_prints_without_controls(view: Opened) -> None:
    view.page.emulate_media(media="print")
    assert not view.page.locator("#layer").is_visible()
    assert view.page.locator("#methods").is_visible()
    assert view.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert view.page.locator(".paper").count() == 0
    view.page.emulate_media(media="screen")


DRAWN = """nodes => nodes.map((node) => {
  const { data } = node.getContext("2d").getImageData(0, 0, node.width, node.height);
  return data.some((value, i) => i % 4 === 0 && data[i + 3] && value < 200);
})"""


def test_small_brains_wait_until_they_are_seen_and_are_all_there_on_paper(opened: Opened) -> None:
    page = opened.page.context.browser.new_page(viewport={"width": 1100, "height": 400})
    page.add_init_script("window.requestIdleCallback = () => 0")  # nothing is drawn on the side
    page.goto(opened.page.url)
    page.wait_for_selector("html[data-ready=yes]")
    pictures = page.locator(".views canvas")
    assert pictures.evaluate_all(DRAWN) == [False] * 3
    before = page.evaluate("document.querySelector('.stage canvas').toDataURL()")
    pictures.nth(0).scroll_into_view_if_needed()
    frame = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(later.waiting.size))))"
    assert any(page.evaluate(frame) < 3 for _ in range(50)) and pictures.evaluate_all(DRAWN)[0]
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert pictures.evaluate_all(DRAWN) == [True] * 3 and page.locator(".paper").evaluate_all(
        DRAWN
    ) == [True]
    assert page.locator("html[data-complete=yes]").count() == 1
    assert (
        page.evaluate("document.querySelector('.stage canvas').toDataURL()") == before
    )  # what is on the screen stays
    page.emulate_media(media="print")
    assert page.locator(".paper").is_visible() and not page.locator(".stage").is_visible()
    assert len(page.pdf()) > 20_000
    page.close()


def test_a_subject_is_found_by_name(opened: Opened, fitted: Fitted) -> None:
    page, names = opened.page, fitted.diagnostics.subjects
    field, said, mark = (
        page.get_by_label("Find a subject"),
        page.locator(".search [role=status]"),
        page.locator(".mark-row"),
    )
    assert not mark.is_visible()
    field.fill(names[2].upper())
    row = fitted.diagnostics.order.tolist().index(2)
    assert f"{names[2]}: row {row + 1} of {len(names)}" in said.inner_text()
    first = float(re.findall(r"Loadings: 1: (\S+?);", said.inner_text())[0].replace("−", "-"))
    assert first == pytest.approx(fitted.diagnostics.loadings[2, 0], rel=1e-2)
    box, marked = page.locator(".heat .map canvas").bounding_box(), mark.bounding_box()
    assert marked["y"] + marked["height"] / 2 == pytest.approx(
        box["y"] + 420 * (row + 0.5) / len(names), abs=3
    )
    field.fill("UB-")
    assert "sub-3: " in said.inner_text() and f"1 of {len(names) - 3} found" in said.inner_text()
    for key, name in (("Enter", "sub-4"), ("Shift+Enter", "sub-3"), ("Shift+Enter", names[-1])):
        field.press(key)
        assert f"{name}: " in said.inner_text()
    field.fill("nobody")
    assert "No subject has" in said.inner_text() and not mark.is_visible()
    field.fill("")
    assert said.inner_text() == ""


UNNAMED = """() => {
  const every = (selector) => [...document.querySelectorAll(selector)];
  return [
    ...every("button[aria-label]").filter((b) => /\\w/.test(b.textContent) && !b.ariaLabel.includes(b.textContent)),
    ...every("svg [aria-label]"), // a chart is one image
    ...every("select, input").filter((node) => !node.ariaLabel && !node.labels.length),
    ...every("th").filter((node) => !node.textContent.trim()),
    ...every("pre:not([tabindex]), .scroll:not([tabindex])"), // what scrolls is reached by keys
  ].map((node) => node.outerHTML);
}"""


def test_names_and_keys_for_everybody(
    browser: Any, associated: Path, opened: Opened, tmp_path: Path
) -> None:
    second = Opened(browser, write_page(associated, tmp_path / "page", figures=False))
    assert opened.page.evaluate(UNNAMED) == second.page.evaluate(UNNAMED) == []
    cells = second.page.locator(".cells td button").evaluate_all(
        "nodes => nodes.map((node) => node.style.background)"
    )
    light = [np.array(re.findall(r"\d+", colour), dtype=float) / 255 for colour in cells]
    light = [float(np.array([0.2126, 0.7152, 0.0722]) @ one**2.2) for one in light if len(one) == 3]
    assert (min(light) + 0.05) / (0.0173 + 0.05) >= 4.5  # contrast with the text on them, #1d2430
    page = second.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#subject").focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    alike = page.locator(".component button").evaluate_all(
        "nodes => nodes.map((node) => node.ariaLabel)"
    )
    assert len(set(alike)) == len(alike) > 1
    assert page.locator(".bar canvas:not([aria-label])").count() == 0
    page.keyboard.press("Escape")
    page.locator("#layer").select_option("component")
    before = page.locator("#component").input_value()
    page.locator(".scroll").first.focus()  # scrolls by arrow keys, and leaves the brain alone
    page.keyboard.press("ArrowRight")
    assert page.locator("#component").input_value() == before
    page.locator(".stage canvas").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#component").input_value() != before
    page.close()


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
    assert found.page.locator("#panels section").count() >= 8
    assert found.page.get_by_role("heading", name="Overlap and similarity").count() == (k > 1)
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
