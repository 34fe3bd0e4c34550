"""Make the pictures of README.md: components of the demo's cohort, and the report page as a browser shows it.

Usage: python -m icofactor_lab.docs_tables.readme_figure        (the page needs the extra `test` and Debian's chromium)
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import icofactor as ico
from icofactor.results.diagnostics import diagnose
from icofactor.results.report.page import render_page

IMAGES = Path(__file__).parent.parent / "docs" / "images"
SIZE = {"width": 1240, "height": 1560}
FLAGS = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox", "--disable-background-networking"]


def main() -> None:
    cohort = ico.simulate_cohort(hemisphere="both", random_state=0)
    model = ico.CorticalFactorization(10, random_state=0).fit(cohort)
    figure = ico.plot_components(model, components=range(4), units=cohort.units, dpi=90)
    figure.savefig(IMAGES / "demo_components.png")
    print(f"written: {IMAGES / 'demo_components.png'}")
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed: the picture of the page was not made")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(render_page(model, diagnose(model, cohort)), encoding="utf-8")
        shot = take_picture(page, chromium)
    save_small(shot, IMAGES / "report.png")
    print(f"written: {IMAGES / 'report.png'}")


def take_picture(page: Path, chromium: str) -> bytes:
    """The top of the page, with the active faces drawn over the first component."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        tab: Any = browser.new_page(viewport=SIZE)
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready=yes]")
        tab.locator("#edges").check()
        shot: bytes = tab.screenshot()
        browser.close()
    return shot


def save_small(shot: bytes, path: Path) -> None:
    """With 256 colours: a third of the bytes. The means settle on the greys and on the ends of the colour scale."""
    from PIL import Image

    Image.open(io.BytesIO(shot)).convert("RGB").quantize(256, kmeans=4).save(path, optimize=True)


if __name__ == "__main__":
    main()
