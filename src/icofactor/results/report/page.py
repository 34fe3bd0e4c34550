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
from typing import Any

from icofactor.errors import FileError
from icofactor.io.atomic import atomic_path, check_target, made_folder
from icofactor.io.guard import naming
from icofactor.io.json import read_text
from icofactor.results.diagnostics.record import Diagnostics, load_diagnostics
from icofactor.results.report.content import page_content, title_of
from icofactor.results.report.selection_files import Beside, read_beside, read_record
from icofactor.results.report.surfaces import Surfaces, can_be_drawn, cortex_of

MODEL, DIAGNOSTICS, PAGE, FIGURES = "model.zip", "diagnostics.npz", "report.html", "figures"
_SCRIPTS = ("tools.js", "viewer.js", "charts.js", "trust.js", "page.js")


def render_page(model: Any, diagnostics: Diagnostics, **content: Any) -> str:
    """The page as text; `content` as in `icofactor.results.report.content.page_content`."""
    script = "\n".join(_asset(name) for name in _SCRIPTS)
    style = _asset("style.css")
    parts = {
        "policy": _policy(script, style),
        "title": html.escape(f"icofactor: {title_of(diagnostics)}"),
        "style": style,
        "script": script,
        "data": page_content(model, diagnostics, **content),
    }
    # one pass, so that words in the data cannot name a part
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
    model: Any = None,
    diagnostics: Diagnostics | None = None,
    beside: Beside | None = None,
    on_step: Callable[[float], None] | None = None,
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
    model, diagnostics, beside : those of the folder, where the caller has them already.
    on_step : called with the fraction of the work that is done.

    Returns
    -------
    The page's path.
    """
    folder = Path(fitted)
    target = folder if out is None else Path(out)
    page, pictures = target / PAGE, target / FIGURES
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder; it should be one that icofactor fit wrote")
    if model is None:
        from icofactor.estimator.saving import load_model

        model = load_model(folder / MODEL)
    d = load_diagnostics(folder / DIAGNOSTICS) if diagnostics is None else diagnostics
    if d.loadings.shape != model.loadings_.shape or len(d.median) != model.sites_.n:
        raise FileError(
            f"{folder / DIAGNOSTICS}: is of {d.loadings.shape[0]} subjects and {d.loadings.shape[1]} components on "
            f"{len(d.median)} sites; {MODEL} beside it is of another fit"
        )
    if target.is_dir():
        check_target(page, overwrite)
    elif target.exists():
        raise NotADirectoryError(f"{target} is a file; a folder is to be written there")
    if figures and pictures.exists() and not overwrite:
        raise FileExistsError(f"{pictures} exists; pass overwrite=True to replace it")
    beside = read_beside(folder, model, d.subjects) if beside is None else beside
    if surfaces is not None or can_be_drawn(model):  # read once for the page and the figures
        surfaces = cortex_of(model.sites_, model.hemi_, surfaces)
    text = render_page(
        model,
        d,
        provenance=read_record(folder / "provenance.json"),
        methods=_text(folder / "methods.md"),
        beside=beside,
        surfaces=surfaces,
        atlas=atlas,
    )
    with made_folder(target), atomic_path(page, overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        if figures:  # both, or none
            _write_figures(model, d, beside, surfaces, pictures, on_step)
    return page


def _write_figures(
    model: Any,
    d: Diagnostics,
    beside: Beside,
    surfaces: Surfaces | None,
    folder: Path,
    on_step: Callable[[float], None] | None,
) -> None:
    """All figures, or none: drawn beside the folder and moved there when they are complete."""
    from icofactor.results.report.panels import draw_panels, is_panel

    drawn = Path(tempfile.mkdtemp(prefix=".tmp-figures-", dir=folder.parent))
    try:
        drawn.chmod(0o755)  # mkdtemp's folders are for the owner only
        draw_panels(model, d, drawn, beside=beside, surfaces=surfaces, on_step=on_step)
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


def _text(path: Path) -> str:
    if not path.is_file():
        return ""
    with naming(path, "text"):
        return read_text(path)
