"""The report page: one HTML file that needs nothing else, and figures of its panels for print."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from icofactor.diagnostics import Diagnostics, load_diagnostics
from icofactor.errors import FileError
from icofactor.files import atomic_path, check_target
from icofactor.reading import Unreadable, naming
from icofactor.reading.records import read_json, read_text
from icofactor.report.content import page_content, title_of
from icofactor.report.surfaces import Surfaces

MODEL, DIAGNOSTICS, PAGE, FIGURES = "model.zip", "diagnostics.npz", "report.html", "figures"
_SCRIPTS = ("tools.js", "viewer.js", "charts.js", "page.js")


def render_page(model: Any, diagnostics: Diagnostics, **content: Any) -> str:
    """The page as text; `content` as in `icofactor.report.content.page_content`."""
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
    return files("icofactor.report").joinpath("assets", name).read_text(encoding="utf-8")


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
    on_step: Callable[[float], None] | None = None,
) -> Path:
    """Write report.html and figures/ for a folder that a fit has written.

    Parameters
    ----------
    fitted : folder with model.zip and diagnostics.npz; provenance.json, methods.md and selection.json are shown when
        they are there.
    out : folder for the page and the figures; `fitted` when None.
    surfaces : surface files or folders, for meshes other than fsaverage.
    atlas : one .annot or .label.gii per hemisphere, or one .dlabel.nii, to name regions.
    figures : whether to draw each panel as PNG and PDF too.
    model, diagnostics : those of the folder, where the caller has them already.
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
        from icofactor.model_file import load_model

        model = load_model(folder / MODEL)
    d = load_diagnostics(folder / DIAGNOSTICS) if diagnostics is None else diagnostics
    if d.loadings.shape != model.loadings_.shape or len(d.median) != model.sites_.n:
        raise FileError(
            f"{folder / DIAGNOSTICS}: is of {d.loadings.shape[0]} subjects and {d.loadings.shape[1]} components on "
            f"{len(d.median)} sites; {MODEL} beside it is of another fit"
        )
    target.mkdir(parents=True, exist_ok=True)
    check_target(page, overwrite)
    if figures and pictures.exists() and not overwrite:
        raise FileExistsError(f"{pictures} exists; pass overwrite=True to replace it")
    selection = _selection(folder / "selection.json")
    text = render_page(
        model,
        d,
        provenance=_json(folder / "provenance.json"),
        methods=_text(folder / "methods.md"),
        selection=selection,
        surfaces=surfaces,
        atlas=atlas,
    )
    with atomic_path(page, overwrite) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
        if figures:  # both, or none
            _write_figures(model, d, selection, surfaces, pictures, on_step)
    return page


def _write_figures(
    model: Any,
    d: Diagnostics,
    selection: Mapping[str, Any] | None,
    surfaces: Surfaces | None,
    folder: Path,
    on_step: Callable[[float], None] | None,
) -> None:
    """All figures, or none: drawn beside the folder and moved there when they are complete."""
    from icofactor.report.panels import draw_panels

    drawn = Path(tempfile.mkdtemp(prefix=".tmp-figures-", dir=folder.parent))
    try:
        drawn.chmod(0o755)  # mkdtemp's folders are for the owner only
        draw_panels(model, d, drawn, selection=selection, surfaces=surfaces, on_step=on_step)
        if folder.exists():
            for name in (path.name for path in drawn.iterdir()):
                (drawn / name).replace(folder / name)
        else:
            drawn.rename(folder)
    finally:
        shutil.rmtree(drawn, ignore_errors=True)


def _text(path: Path) -> str:
    if not path.is_file():
        return ""
    with naming(path, "text"):
        return read_text(path)


def _selection(path: Path) -> Any:
    """What `icofactor select` found, as curves can be drawn of it."""
    found = _json(path)
    if found is None:
        return None
    with naming(path, "record"):
        table, recommended, reasons = (found.get(name) for name in ("table", "recommended", "reasons"))
        number = lambda value: value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        columns = list(table.values()) if isinstance(table, dict) else []
        if not columns or not all(isinstance(column, list) and all(map(number, column)) for column in columns):
            raise Unreadable("holds no table of numbers by rank; icofactor select writes one")
        if len({len(column) for column in columns}) > 1 or not number(recommended):
            raise Unreadable("is damaged: its columns differ in length, or what it recommends is no number")
        if not isinstance(reasons, list) or not all(isinstance(reason, str) for reason in reasons):
            raise Unreadable("is damaged: its reasons are no sentences")
    return found


def _json(path: Path) -> Any:
    if not path.is_file():
        return None
    with naming(path, "record"):
        found = read_json(path)
        if not isinstance(found, dict):
            raise Unreadable(f"holds a {type(found).__name__} as JSON; a record of names and values is expected")
        return found
