"""Measure the report page: its size, how long a browser takes to open it, and what drawing it costs.

Usage: python -m icofactor_lab.docs_tables.report_open [FITTED]     (needs the extra `test` and Debian's chromium)

Without FITTED a cohort is simulated and fitted: ten components, both hemispheres of fsaverage5. The browser draws with
the processor, as a machine without a graphics card does. Opening ends when the page says that all of it is drawn.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import icofactor as ico
from icofactor.results.demo import run_demo
from icofactor.results.report.page import write_page
from icofactor_lab.docs_tables.readme_figure import FLAGS

TIMES = 7


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("chromium is not installed: nothing can be measured")
    with tempfile.TemporaryDirectory() as place:
        if len(sys.argv) > 1:
            fitted = Path(sys.argv[1])
        else:
            fitted = Path(place) / "fitted"
            run_demo(fitted, figures=False, verbose=False)
        out = Path(place) / "page"
        alone = processor_seconds(lambda: write_page(fitted, out, figures=False))
        both = processor_seconds(lambda: write_page(fitted, out, overwrite=True))
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


def processor_seconds(work: Callable[[], Any]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


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
            metrics = {item["name"]: item["value"] for item in session.send("Performance.getMetrics")["metrics"]}
            found.append((seconds, float(metrics["ThreadTime"])))
            browser.close()
    return found


if __name__ == "__main__":
    main()
