"""The report page: one HTML file that needs nothing else, and figures of its panels for print."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from icofactor.io.publish import FIGURES, TABLES, Names, Publication, reading
from icofactor.results.assessment_text import with_assessment
from icofactor.results.report.content import page_content, title_of
from icofactor.results.report.panels import COMPONENTS, drawn_panels
from icofactor.results.report.surfaces import Surfaces
from icofactor.results.report.tables import SUMMARY, tables_beside, write_page_tables

if TYPE_CHECKING:
    from icofactor.results.description import FitDescription

PAGE = "report.html"
SCRIPTS = ("tools.js", "viewer.js", "charts.js", "trust.js", "associations.js", "page.js")


def render_page(fit: FitDescription, tables: Mapping[str, str] | None = None) -> str:
    """Return the page as text.

    Parameters
    ----------
    fit : FitDescription
        What to show.
    tables : mapping of str to str, optional
        Name of a table → its address relative to the page, for links.
    """
    script = "\n".join(asset(name) for name in SCRIPTS)
    style = asset("style.css")
    parts = {
        "policy": policy(script, style),
        "title": html.escape(f"icofactor: {title_of(fit)}"),
        "style": style,
        "script": script,
        "data": page_content(fit, tables or {}),
    }
    # one pass, so that text in the data cannot name a part
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], asset("template.html"))


def asset(name: str) -> str:
    return files("icofactor.results.report").joinpath("assets", name).read_text(encoding="utf-8")


def policy(script: str, style: str) -> str:
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
    """Write report.html, tables/ and figures/ for a folder that a fit has written.

    Parameters
    ----------
    fitted : path
        Folder with model.zip and diagnostics.npz. The page also shows provenance.json, methods.md
        and the results of `icofactor select` and `icofactor associate` if they exist.
    out : path, optional
        Folder for the page and the figures. Default: `fitted`.
    surfaces : paths, optional
        Surface files or folders, for meshes other than fsaverage.
    atlas : sequence of paths, optional
        One .annot or .label.gii per hemisphere, or one .dlabel.nii, to name regions.
    figures : bool, default=True
        Whether to write each panel as PNG and PDF too.
    overwrite : bool, default=False
        Whether to replace an earlier page and its figures.
    report : callable, optional
        Called with the fraction of the work that is done.

    Returns
    -------
    Path
        Path of the page.

    Examples
    --------
    >>> import tempfile
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(30, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, level=1, n_starts=2, random_state=0)
    >>> out = tempfile.mkdtemp() + "/out"
    >>> fit = ico.fit_cohort(cohort, model, out, figures=False)
    >>> ico.report.write_page(out, figures=False, overwrite=True).name
    'report.html'
    """
    from icofactor.results.description import METHODS, MODEL, read_fit  # which imports this package

    if not Path(fitted).is_dir():
        read_fit(fitted)  # says what is wrong
    source = Path(fitted)
    target = source if out is None else Path(out)
    inner = (f"{TABLES}/", *([f"{FIGURES}/"] if figures else []))
    place = Publication(
        target,
        overwrite,
        names=[PAGE, SUMMARY],
        leaving=lambda listed: [name for name in listed if name.startswith(inner)],
        steady=[MODEL],  # the page is about the fit in its folder
    )
    with reading(source):  # tables that come later are not on the page
        fit, beside = read_fit(fitted, surfaces, atlas), tables_beside(target, source)
    with place.filled() as new:
        tables = {name: name for name in write_page_tables(new, fit)} | beside
        (new / PAGE).write_text(render_page(fit, tables), encoding="utf-8", newline="\n")
        methods = with_assessment(
            fit.methods, fit.selection, fit.associations, fit.latent, fit.norm, last=True
        )
        if (
            overwrite
            and methods != fit.methods
            and _is_there(target, place.owned(), METHODS, fit.methods.encode())
        ):
            (new / METHODS).write_text(methods, encoding="utf-8", newline="\n")
        if figures:
            (new / FIGURES).mkdir()
            for name, content, done in drawn_panels(fit):
                if not (
                    name == COMPONENTS and _is_there(target, place.owned(), COMPONENTS, content)
                ):
                    (new / FIGURES / name).write_bytes(content)
                if report is not None:
                    report(done)
    return target / PAGE


def _is_there(folder: Path, owned: Names, name: str, content: bytes) -> bool:
    """Whether icofactor has written a file with this very content."""
    return (folder / name).is_file() and owned.get(name) == hashlib.sha256(content).hexdigest()
