"""The report page in a browser: README's pictures, and how long the page takes to open.

    python -m icofactor_lab.docs_tables.report pictures          (in a checkout: they are written to docs/images)
    python -m icofactor_lab.docs_tables.report open [FITTED]

Both need the extra `test` and Debian's chromium. `open` measures the page of FITTED, or of a simulated cohort: ten
components, both hemispheres of fsaverage5. The browser draws with the processor, as a machine without a graphics card
does. Opening ends when the page says that it is drawn; small brains out of sight come later.
"""

from __future__ import annotations

import argparse
import io
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import icofactor as ico
from icofactor.cli.demo import run_demo
from icofactor.results.description import FitDescription
from icofactor.results.diagnostics import diagnose
from icofactor.results.report.page import render_page, write_page
from icofactor_lab.common.timing import timed
from icofactor_lab.docs_tables import CHECKOUT, run_task

IMAGES = CHECKOUT / "docs" / "images"
SIZE: Any = {"width": 1240, "height": 1560}
FLAGS = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--no-sandbox", "--disable-background-networking"]
TIMES = 7


def browser() -> str:
    found = shutil.which("chromium")
    if found is None:
        raise SystemExit("chromium is not installed: the page cannot be opened")
    return found


def pictures(options: argparse.Namespace) -> None:
    """Components of the demo's cohort, and the report page as a browser shows it."""
    if not IMAGES.is_dir():
        raise SystemExit("docs/images is missing: run this in a checkout of the repository")
    cohort = ico.simulate_cohort(hemisphere="both", random_state=0)
    model = ico.CorticalFactorization(10, random_state=0).fit(cohort)
    figure = ico.plot_components(model, components=range(4), units=cohort.units, dpi=90)
    figure.savefig(IMAGES / "demo_components.png")
    print(f"written: {IMAGES / 'demo_components.png'}")
    chromium = browser()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(render_page(FitDescription.of(model, diagnose(model, cohort))), encoding="utf-8")
        shot = take_picture(page, chromium)
    save_small(shot, IMAGES / "report.png")
    print(f"written: {IMAGES / 'report.png'}")


def take_picture(page: Path, chromium: str) -> bytes:
    """The top of the page."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        tab: Any = browser.new_page(viewport=SIZE)
        tab.goto(page.as_uri())
        tab.wait_for_selector("html[data-ready=yes]")
        shot: bytes = tab.screenshot()
        browser.close()
    return shot


def save_small(shot: bytes, path: Path) -> None:
    """With 256 colours: a third of the bytes. The means settle on the greys and on the ends of the colour scale."""
    from PIL import Image

    Image.open(io.BytesIO(shot)).convert("RGB").quantize(256, kmeans=4).save(path, optimize=True)


def open_page(options: argparse.Namespace) -> None:
    """Size of the page, what drawing it costs, and how long a browser takes to open it."""
    chromium = browser()
    with tempfile.TemporaryDirectory() as place:
        fitted = options.fitted
        if fitted is None:
            fitted = Path(place) / "fitted"
            run_demo(fitted, figures=False, verbose=False)
        out = Path(place) / "page"
        alone = timed(lambda: write_page(fitted, out, figures=False), time.process_time)[1]
        both = timed(lambda: write_page(fitted, out, overwrite=True), time.process_time)[1]
        page = out / "report.html"
        model = ico.load_model(fitted / "model.zip")
        print(f"{len(model.components_)} components on {model.sites_!r}")
        print(f"page: {page.stat().st_size / 1e6:.2f} MB (at most 3), written in {alone:.1f} s of processor time")
        n_files = len(list((out / "figures").iterdir()))
        print(f"figures: {n_files} files, {both - alone:.1f} s of processor time more")
        seconds, busy = zip(*opening(page, chromium), strict=True)
    print(
        f"opened {TIMES} times: {statistics.median(seconds):.2f} s, from {min(seconds):.2f} to {max(seconds):.2f} "
        f"(at most 2); {statistics.median(busy):.2f} s of processor time in the page's own thread"
    )


def opening(page: Path, chromium: str) -> list[tuple[float, float]]:
    """Seconds from the request to the complete page, and those its thread was busy; each time in a new browser."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as driver:
        for _ in range(TIMES):
            browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
            tab = browser.new_page(viewport={"width": 1366, "height": 768})
            session = tab.context.new_cdp_session(tab)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            begin = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-ready=yes]")
            # two frames later what was drawn is on the screen
            tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")
            seconds = time.perf_counter() - begin
            marks = tab.evaluate("performance.getEntriesByType('mark').map((one) => [one.name, one.startTime])")
            print("    ms:", ", ".join(f"{name} {at:.0f}" for name, at in marks))
            metrics = {item["name"]: item["value"] for item in session.send("Performance.getMetrics")["metrics"]}
            found.append((seconds, float(metrics["ThreadTime"])))
            browser.close()
    return found


def main() -> None:
    open_page.__name__ = "open"  # which is a function of Python's already
    run_task(__doc__, {pictures: {}, open_page: {"fitted": {"nargs": "?", "type": Path}}})


if __name__ == "__main__":
    main()
