"""The report page: one HTML file that needs nothing else, and its figures as files."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from icofactor.errors import plural
from icofactor.io.publish import FIGURES, TABLES, Names, Publication, reading
from icofactor.results.assessment_text import with_assessment
from icofactor.results.meaning import (
    meaning_of,
    measure_title,
    n_people,
    scale_label,
    verdict,
)
from icofactor.results.report.drawing import figure_bytes
from icofactor.results.report.figures import plot_components, plot_maps
from icofactor.results.report.layers import viewer_data
from icofactor.results.report.markup import (
    NOTHING,
    Markup,
    bullets,
    element,
    join,
    number,
    paragraph,
    percent,
    table,
)
from icofactor.results.report.panels import (
    PARTS,
    Panel,
    panels_by_part,
    parcellation_pictures,
)
from icofactor.results.report.surfaces import Surfaces
from icofactor.results.report.tables import SUMMARY, mesh_text, tables_beside, write_page_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from icofactor.results.description import FitDescription

PAGE = "report.html"
# All components on one sheet.
COMPONENTS = "components.png"
# In this order: each uses those before it.
SCRIPTS = ("tools.js", "viewer.js", "page.js")
# Charts up to this width, in inches, fit a phone; others scroll within their panel.
_NARROW = 5.0


@dataclass(frozen=True)
class Report:
    """A page and its figures: name of a file → its content."""

    page: str
    figures: Mapping[str, bytes]


def draw_report(
    fit: FitDescription,
    tables: Mapping[str, str] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Report:
    """Draw the page and its figures; every chart is drawn once.

    Parameters
    ----------
    tables : name of a table → its address relative to the page, for links.
    progress : called with the share of the panels that are drawn.
    """
    figures: dict[str, bytes] = {}
    contents = [_link("cortex", _cortex_title(fit))]
    pieces = []
    n_panels = sum(map(len, PARTS.values()))
    if fit.model.measures_ is not None:
        contents.insert(0, _link("measures", "Measures"))
    for title, panels in panels_by_part(fit):
        # Panels are drawn in this loop, one after the other: only one figure is in memory.
        sections = []
        links = []
        for panel in panels:
            image = NOTHING
            if panel.figure is not None:
                svg = figure_bytes(panel.figure, "svg", panel.title)
                figures[f"{FIGURES}/{panel.name}.svg"] = svg
                image = _chart(panel, svg)
            sections.append(_section(panel, image, tables or {}))
            links.append(_link(f"panel-{panel.name}", panel.title))
            if progress is not None:
                progress(min(1.0, (len(figures) + 1) / n_panels))
        if not sections:
            continue
        anchor = f"part-{list(PARTS).index(title) + 1}"
        heading = element("h2", title, id=anchor)
        attributes = {"class_": "part", "role": "region", "aria_labelledby": anchor}
        grid = element("div", *sections, class_="grid")
        pieces.append(element("div", heading, grid, **attributes))
        contents.append(_link(anchor, title, element("ul", *links)))
    script = "\n".join(asset(name) for name in SCRIPTS)
    style = asset("style.css")
    # The policy names script and style by their hashes, so both go in unchanged.
    parts = {
        "policy": policy(script, style),
        "title": html.escape(f"icofactor: {title_of(fit)}"),
        "style": style,
        "script": script,
        "header": _header(fit, element("ul", *contents)),
        "measures": _measures(fit, tables or {}),
        "cortex": _cortex(fit),
        "panels": join(pieces),
        "data": viewer_data(fit),
    }
    # One pass, so that text in the data cannot name a part.
    page = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], asset("template.html"))
    return Report(page, figures)


def render_page(fit: FitDescription, tables: Mapping[str, str] | None = None) -> str:
    """Return the page as text.

    Parameters
    ----------
    fit : FitDescription
        What to show.
    tables : mapping of str to str, optional
        Name of a table → its address relative to the page, for links.

    Returns
    -------
    str
        HTML that needs no other file.

    Examples
    --------
    >>> import icofactor as ico
    >>> from icofactor.results.description import FitDescription
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
    >>> diagnostics = ico.diagnostics.diagnose(model, cohort, n_permutations=20)
    >>> page = ico.report.render_page(FitDescription.of(model, diagnostics))
    >>> page.startswith("<!DOCTYPE html>")
    True
    """
    return draw_report(fit, tables).page


def asset(name: str) -> str:
    """Return a file of the page as text."""
    return files("icofactor.results.report").joinpath("assets", name).read_text(encoding="utf-8")


def policy(script: str, style: str) -> str:
    """Return the rule that only this very script and style run, and nothing is fetched."""

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        f"default-src 'none'; script-src 'sha256-{digest(script)}'; "
        f"style-src 'sha256-{digest(style)}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def _link(anchor: str, title: str, *more: Markup) -> Markup:
    return element("li", element("a", title, href=f"#{anchor}"), *more)


def _chart(panel: Panel, svg: bytes) -> Markup:
    """Return a chart as an image: it keeps its own style, and no word in it can act on the page."""
    assert panel.figure is not None
    width, height = panel.figure.get_size_inches()
    narrow = _is_narrow(panel.figure)
    image = element(
        "img",
        src=f"data:image/svg+xml;base64,{base64.b64encode(svg).decode()}",
        # A browser counts 96 pixels to an inch. With its size known, the page does not jump.
        width=f"{96 * width:.0f}",
        height=f"{96 * height:.0f}",
        alt=f"Chart: {panel.title}. {panel.intro}".strip(),
    )
    # A box that scrolls can be reached by the keyboard.
    scrolls = {"tabindex": "0", "role": "group", "aria_label": f"Chart: {panel.title}"}
    return element(
        "div", image, class_="chart" if narrow else "chart large", **({} if narrow else scrolls)
    )


def _section(panel: Panel, image: Markup, tables: Mapping[str, str]) -> Markup:
    title_anchor = f"at-{panel.name}"
    # A small chart without a table takes half of the page.
    half = panel.figure is not None and not panel.body and _is_narrow(panel.figure)
    return element(
        "section",
        element("h3", panel.title, id=title_anchor),
        paragraph(panel.intro, class_="about") if panel.intro else NOTHING,
        bullets(panel.lines),
        image,
        panel.body,
        _table_links(panel.tables, tables),
        id=f"panel-{panel.name}",
        class_=None if half else "wide",
        aria_labelledby=title_anchor,
    )


def _is_narrow(figure: Figure) -> bool:
    return bool(figure.get_size_inches()[0] <= _NARROW)


def _table_links(names: Iterable[str], tables: Mapping[str, str]) -> Markup:
    """Return links to the tables that exist; "*_regions.tsv" stands for all with that end."""
    links: list[str] = []
    for name in names:
        ending = name.removeprefix("*")
        matches = [
            table
            for table in tables
            if table == name or (ending != name and table.endswith(ending))
        ]
        for match in matches:
            links += [", " if links else "Numbers: ", element("a", match, href=tables[match])]
    return paragraph(*links, class_="files") if links else NOTHING


def title_of(fit: FitDescription) -> str:
    """Return what was fitted, as a title: 10 components of deviations in thickness."""
    d = fit.diagnostics
    measure = "" if d.modality in ("", "unknown") else measure_title(d.modality)
    subject = {
        "none": measure,
        "mean": f"deviations in {measure}" if measure else "deviations",
        "zscore": f"{measure} z-scores".strip(),
    }[fit.model.center_]
    title = plural(len(d.alone), "component")
    return f"{title} of {subject}" if subject else title


def _people(fit: FitDescription) -> str:
    """Return "40 scans of 8 people; fitted on the first scan of each", or "8 subjects"."""
    record = (fit.provenance or {}).get("scans")
    summary = record.get("summary") if isinstance(record, dict) else None
    if isinstance(summary, str) and summary:
        # A file may have been edited: a text of any length is cut.
        return summary[:200]
    n = n_people(fit)
    return f"{n:,} subject{'s' * (n != 1)}"


def _place(fit: FitDescription) -> str:
    sites = fit.model.sites_
    mesh = mesh_text(sites)
    # An atlas has both hemispheres, or says which it has.
    if sites.regions is not None:
        return f"{plural(len(sites.regions.names), 'region')} of {mesh}"
    sides = {"both": "both hemispheres of ", "left": "left hemisphere of "}
    sides["right"] = "right hemisphere of "
    return f"{sides.get(fit.diagnostics.hemisphere, '')}{mesh}"


def _header(fit: FitDescription, contents: Markup) -> Markup:
    d = fit.diagnostics
    model = fit.model
    result = verdict(fit)
    lead = [f"{_people(fit)}, {_place(fit)}."]
    if model.harmonization_ is not None:
        lead.append(f"Harmonized over {model.harmonization_.column}.")
    if d.simulated:
        lead.append("The data are simulated.")
    warnings = NOTHING
    if d.warnings:
        heading = element("strong", "Before you read on")
        warnings = element("div", heading, bullets(d.warnings), class_="notice", role="note")
    return join(
        [
            element("h1", title_of(fit)),
            paragraph(" ".join(lead), class_="lead"),
            element(
                "div",
                paragraph(element("strong", result.headline)),
                paragraph(meaning_of(model, d.modality, d.units)),
                id="verdict",
                role="region",
                aria_label="Verdict",
            ),
            warnings,
            element("nav", contents, id="contents", aria_label="Contents"),
        ]
    )


def _measures(fit: FitDescription, tables: Mapping[str, str]) -> Markup:
    """Return how several measures were joined, and how much of each is explained."""
    measures = fit.model.measures_
    explained = fit.diagnostics.measure_explained
    if measures is None or explained is None:
        return NOTHING
    joined = {
        "maps": (
            "One set of maps for all measures; every person has a loading per component and "
            "measure."
        ),
        "loadings": "One loading per person and component; each measure has its own maps.",
    }[measures.share]
    scaled = {
        "none": "Their values were fitted as they are.",
        "variance": (
            "Each was divided by the root of its total variance before the fit (scaled units)."
        ),
        "zscore": "They were fitted as z-scores.",
    }[measures.scale]
    rows = [
        [name, percent(explained[i]), percent(measures.variance[i]), number(measures.weights[i])]
        for i, name in enumerate(measures.names)
    ]
    heads = ["measure", "its variance explained", "its share of the variance fitted", "weight"]
    return element(
        "section",
        element("h2", "Measures", id="at-measures"),
        paragraph(f"{joined} {scaled}", class_="about"),
        table(heads, rows, (1, 2, 3)),
        _table_links(["tables/measures.tsv"], tables),
        id="measures",
        aria_labelledby="at-measures",
    )


def _cortex_title(fit: FitDescription) -> str:
    several = len(fit.diagnostics.alone) > 1
    return "The components on the cortex" if several else "The component on the cortex"


def _cortex(fit: FitDescription) -> Markup:
    """Return the section that the script turns into a viewer; on paper it is the parcellation."""
    heading = element("h2", _cortex_title(fit), id="at-cortex")
    note = fit.cortex.note
    if not fit.cortex.hemispheres:
        bars = " The components are drawn as bars below." * (fit.model.sites_.regions is not None)
        notice = paragraph(f"The maps cannot be drawn: {note}{bars}", class_="notice")
        body = join([heading, notice])
    else:
        caption = "The largest component at each place"
        pieces = [heading]
        if note:
            pieces.append(paragraph(note, class_="about"))
        # Also seen where the browser has no WebGL or no scripts.
        picture = element("div", *parcellation_pictures(fit, caption), class_="paper")
        viewer = element("div", id="viewer")
        body = join([*pieces, picture, viewer])
    return element("section", body, id="cortex", aria_labelledby="at-cortex")


def draw_components(fit: FitDescription) -> bytes | None:
    """Return the maps of all components on one sheet, as PNG; None where they cannot be drawn."""
    if not fit.cortex.hemispheres:
        return None
    figure = plot_components(
        fit.model,
        units=scale_label(fit.model, fit.diagnostics.units),
        surfaces=fit.cortex,
        shares=fit.diagnostics.unique,
        names=fit.atlas_names,
    )
    return figure_bytes(figure, "png", dpi=150)


def write_report(
    folder: Path,
    fit: FitDescription,
    tables: Mapping[str, str],
    figures: bool,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Write the page, tables/ and, unless they are not wanted, figures/ into a folder.

    Parameters
    ----------
    tables : name → address of further tables that the page links.
    """
    names = write_page_tables(folder, fit)
    report = draw_report(fit, {**dict(zip(names, names, strict=True)), **tables}, progress)
    (folder / PAGE).write_text(report.page, encoding="utf-8", newline="\n")
    if figures:
        (folder / FIGURES).mkdir()
        for name, content in {**report.figures, **_maps(fit)}.items():
            (folder / name).write_bytes(content)


def _maps(fit: FitDescription) -> dict[str, bytes]:
    """Return figures of the data and the parcellation, which the page's viewer shows instead."""
    if not fit.cortex.hemispheres:
        return {}
    figures = {}
    for measure, one_measure in fit.by_measure():
        figure = plot_maps(one_measure.model, one_measure.diagnostics, surfaces=fit.cortex)
        name = f"maps_{measure}" if measure else "maps"
        figures[f"{FIGURES}/{name}.svg"] = figure_bytes(figure, "svg", "Data and parcellation")
    return figures


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
        Whether to write the charts of the page as SVG files too.
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
    # This module is imported by that of `read_fit`.
    from icofactor.results.description import METHODS, MODEL, read_fit

    if not Path(fitted).is_dir():
        # Says what is wrong.
        read_fit(fitted)
    source = Path(fitted)
    target = source if out is None else Path(out)
    replaced = (f"{TABLES}/", *([f"{FIGURES}/"] if figures else []))
    publication = Publication(
        target,
        overwrite,
        names=[PAGE, SUMMARY],
        leaving=lambda names: [name for name in names if name.startswith(replaced)],
        # The page is about the fit in its folder.
        steady=[MODEL],
    )
    with reading(source):
        fit = read_fit(fitted, surfaces, atlas)
        # Tables that appear later are not on the page.
        tables = tables_beside(target, source)
    with publication.filled() as new:
        write_report(new, fit, tables, figures, report)
        methods = with_assessment(
            fit.methods, fit.selection, fit.associations, fit.latent, fit.norm, last=True
        )
        unchanged = _is_written(target, publication.owned(), METHODS, fit.methods.encode())
        if overwrite and methods != fit.methods and unchanged:
            (new / METHODS).write_text(methods, encoding="utf-8", newline="\n")
    return target / PAGE


def _is_written(folder: Path, written: Names, name: str, content: bytes) -> bool:
    """Return whether icofactor has written a file with this very content."""
    return (folder / name).is_file() and written.get(name) == hashlib.sha256(content).hexdigest()
