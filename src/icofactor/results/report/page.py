"""The report page: one HTML file that needs nothing else, and figures of its panels for print."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from icofactor.io.atomic import atomic_path, check_folder, made_folder
from icofactor.results.report.content import page_content, title_of
from icofactor.results.report.panels import drawn_panels, is_panel
from icofactor.results.report.surfaces import Surfaces

if TYPE_CHECKING:
    from icofactor.results.description import FitDescription

PAGE, FIGURES = "report.html", "figures"
SCRIPTS = ("tools.js", "viewer.js", "charts.js", "trust.js", "page.js")


def render_page(fit: FitDescription) -> str:
    """The page as text."""
    script = "\n".join(_asset(name) for name in SCRIPTS)
    style = _asset("style.css")
    parts = {
        "policy": _policy(script, style),
        "title": html.escape(f"icofactor: {title_of(fit)}"),
        "style": style,
        "script": script,
        "data": page_content(fit),
    }
    # one pass, so that text in the data cannot name a part
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("template.html"))


def _asset(name: str) -> str:
    return files("icofactor.results.report").joinpath("assets", name).read_text(encoding="utf-8")


def _policy(script: str, style: str) -> str:
    """Only this very script and style run, and nothing is fetched from anywhere."""
    digest = lambda text: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest(script)}'; style-src 'sha256-{digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def write_page(
    fitted: str | Path,
    out: str | Path | None = None,
    *,
    surfaces: Surfaces | None = None,
    atlas: Sequence[str | Path] | None = None,
    figures: bool = True,
    overwrite: bool = False,
    report: Callable[[float], None] | None = None,
) -> Path:
    """Write report.html and figures/ for a folder that a fit has written.

    Parameters
    ----------
    fitted : folder with model.zip and diagnostics.npz; provenance.json, methods.md and what `icofactor select` writes
        are shown when they are there.
    out : folder for the page and the figures; `fitted` when None.
    surfaces : surface files or folders, for meshes other than fsaverage.
    atlas : one .annot or .label.gii per hemisphere, or one .dlabel.nii, to name regions.
    figures : whether to draw each panel as PNG and PDF too.
    overwrite : whether to replace an earlier page and its figures.
    report : called with the fraction of the work that is done.

    Returns
    -------
    The page's path.
    """
    from icofactor.results.description import read_fit  # which imports this package

    target = Path(fitted if out is None else out)
    if Path(fitted).is_dir():
        check_folder(target, [PAGE], overwrite, [FIGURES] if figures else [])
    fit = read_fit(fitted, surfaces, atlas)
    text = render_page(fit)
    with made_folder(target), atomic_path(target / PAGE, overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        if figures:  # both, or none
            _write_figures(fit, target / FIGURES, report)
    return target / PAGE


def _write_figures(fit: FitDescription, folder: Path, report: Callable[[float], None] | None) -> None:
    """All figures, or none: drawn beside the folder and moved there when they are complete."""
    drawn = Path(tempfile.mkdtemp(prefix=".tmp-figures-", dir=folder.parent))
    try:
        drawn.chmod(0o755)  # mkdtemp's folders are for the owner only
        for name, content, done in drawn_panels(fit):
            (drawn / name).write_bytes(content)
            if report is not None:
                report(done)
        if folder.exists():
            for path in folder.iterdir():
                if is_panel(path.name):  # of an earlier report, which may have had more of them
                    path.unlink()
            for path in drawn.iterdir():
                path.replace(folder / path.name)
        else:
            drawn.rename(folder)
    finally:
        shutil.rmtree(drawn, ignore_errors=True)
