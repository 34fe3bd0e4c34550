"""Every panel of the report as a figure for print: PNG and PDF."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.assessment.associations import plot_latent
from icofactor.results.diagnostics.record import Diagnostics
from icofactor.results.meaning import fitted_units, has_signed_loadings, scale_label
from icofactor.results.report.charts import (
    DPI,
    MOST_COLUMNS,
    draw_against,
    draw_along,
    draw_convergence,
    draw_effects,
    draw_explained,
    draw_loadings,
    draw_norm,
    draw_overlap,
    draw_recurrence,
    draw_regions,
    draw_similarity,
    draw_sparsity,
    draw_stability,
    draw_subjects,
)
from icofactor.results.report.content import clearest_columns
from icofactor.results.report.figures import plot_components, plot_maps

if TYPE_CHECKING:
    from icofactor.results.description import FitDescription

Drawings = list[tuple[str, Callable[[], Any]]]
"""Names of figures, each with what draws it."""
PER_PAGE = 10
COMPONENTS = "components.png"
"""All components on one page."""


def drawn_panels(fit: FitDescription) -> Iterator[tuple[str, bytes, float]]:
    """Every panel, each drawn when it is asked for: name of the file, its content, and the share of
    all that is done.

    A panel is NAME.png and NAME.pdf; components are ten to a page, all pages on one colour scale.
    PNG files are compressed by a second thread while the PDF is drawn.
    """
    listed = drawings_of(fit)
    with ThreadPoolExecutor(1) as pool:
        for number, (name, draw) in enumerate(listed):
            figure = draw()
            png = pool.submit(_png_bytes, _pixels(figure, DPI), DPI)
            figure.set_layout_engine("none")  # the layout is known now
            pdf = figure_bytes(figure, "pdf")
            yield f"{name}.png", png.result(), (number + 0.5) / len(listed)
            yield f"{name}.pdf", pdf, (number + 1) / len(listed)


def drawings_of(fit: FitDescription) -> Drawings:
    """Every figure of a fit, in the order of `PANELS`."""
    return [drawing for panel in PANELS.values() for drawing in panel(fit)]


def drawn_components(fit: FitDescription) -> bytes:
    """The maps of all components on one page, as PNG."""
    units, shares = scale_label(fit.model, fit.diagnostics.units), fit.diagnostics.unique
    figure = plot_components(
        fit.model, units=units, surfaces=fit.cortex, shares=shares, names=fit.atlas_names
    )
    return figure_bytes(figure, "png", 150)


def figure_bytes(figure: Any, kind: str, dpi: float = DPI) -> bytes:
    """A figure as a PNG or PDF file, equal for equal figures."""
    if kind == "png":
        return _png_bytes(_pixels(figure, dpi), dpi)
    return _pdf_bytes(figure, dpi)


def _pdf_bytes(figure: Any, dpi: float) -> bytes:
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    figure.dpi = dpi
    stream = io.BytesIO()
    # many journals refuse Type 3, matplotlib's default, and take TrueType (42)
    with rc_context({"pdf.fonttype": 42}):
        # without a date, equal figures are equal files
        # `savefig` would draw the figure twice
        FigureCanvasPdf(figure).print_pdf(stream, metadata={"CreationDate": None})
    return stream.getvalue()


def _pixels(figure: Any, dpi: float) -> np.ndarray:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.dpi = dpi
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def _png_bytes(pixels: np.ndarray, dpi: float) -> bytes:
    from PIL import Image

    stream = io.BytesIO()  # PNG at its default compression takes three times as long for 1/6 less
    Image.fromarray(pixels).convert("RGB").save(stream, "png", compress_level=2, dpi=(dpi, dpi))
    return stream.getvalue()


def _pages(fit: FitDescription) -> Drawings:
    if not fit.cortex.hemispheres:
        return []
    model, d = fit.model, fit.diagnostics
    k, units = len(d.alone), scale_label(model, d.units)
    draw = partial(
        plot_components,
        model,
        units=units,
        surfaces=fit.cortex,
        shares=d.unique,
        names=fit.atlas_names,
    )
    per_page = max(1, PER_PAGE // model.sites_.n_measures)
    return _paged("components", k, lambda chosen: draw(components=chosen), per_page)


def _maps(fit: FitDescription) -> Drawings:
    each = fit.by_measure() if fit.cortex.hemispheres else []
    draw = lambda i: plot_maps(each[i][1].model, each[i][1].diagnostics, surfaces=fit.cortex)
    return (
        [("maps", lambda: draw(0))]
        if len(each) == 1
        else _columns("maps", [name for name, _ in each], draw)
    )


def _paged(stem: str, k: int, draw: Callable[[range], Any], per_page: int = PER_PAGE) -> Drawings:
    """Ten components to a figure."""
    pages = [range(first, min(first + per_page, k)) for first in range(0, k, per_page)]
    if len(pages) == 1:
        return [(stem, partial(draw, pages[0]))]
    return [(f"{stem}-{page + 1:02d}", partial(draw, chosen)) for page, chosen in enumerate(pages)]


def _columns(stem: str, names: Sequence[str], draw: Callable[[int], Any]) -> Drawings:
    """One figure per column of a table, the first ones."""
    return [
        (f"{stem}-{i + 1:02d}_{_file_name(name)}", partial(draw, i))
        for i, name in enumerate(names[:MOST_COLUMNS])
    ]


def _participants(fit: FitDescription) -> Drawings:
    found = clearest_columns(fit)
    draw = lambda i: draw_against(fit.diagnostics, found[i], fit.atlas_names)
    return _columns("participants", [one.called for one in found], draw)


def _associations(fit: FitDescription) -> Drawings:
    tests, k = fit.associations, len(fit.diagnostics.alone)
    if tests is None:
        return []
    along = lambda i: draw_along(tests.columns[i], fit.atlas_names, tests.measures)
    columns = _columns("associations", [one.column for one in tests.columns], along)
    return [("associations", lambda: draw_effects(tests, k)), *columns]


def _regions(fit: FitDescription) -> Drawings:
    if fit.model.sites_.regions is None:
        return []
    units = scale_label(fit.model, fit.diagnostics.units)
    draw = lambda chosen: draw_regions(fit.model, units, chosen, fit.titles)
    return _paged("regions", len(fit.diagnostics.alone), draw)


def _behaviour(fit: FitDescription) -> Drawings:
    found = fit.latent
    if found is None:
        return []
    one = lambda j: plot_latent(
        found.variables, j + 1, found.latent["explained"][j], found.latent["p"][j]
    )
    return [
        (f"behaviour-{j + 1:02d}", partial(one, j))
        for j in range(min(len(found.latent["p"]), MOST_COLUMNS))
    ]


def _file_name(column: str) -> str:
    """A column's name in letters that every file system takes."""
    return re.sub(r"[^0-9A-Za-z]+", "-", column).strip("-")[:40] or "column"


def _one(
    name: str, found: Callable[[FitDescription], Any], draw: Callable[[FitDescription, Any], Any]
) -> tuple[str, Callable[[FitDescription], Drawings]]:
    """A panel of one figure of what is found in a fit; none for None."""
    return name, lambda fit: [] if found(fit) is None else [(name, lambda: draw(fit, found(fit)))]


def _diagnostics(fit: FitDescription) -> Diagnostics:
    return fit.diagnostics


def _recurrence(fit: FitDescription) -> Any:
    share = fit.model.recurrence_
    return None if share is None or np.isnan(share).any() else share


PANELS: Mapping[str, Callable[[FitDescription], Drawings]] = dict(
    [
        ("components", _pages),
        ("regions", _regions),
        ("maps", _maps),
        _one(
            "loadings",
            _diagnostics,
            lambda fit, d: draw_loadings(d, has_signed_loadings(fit.model)),
        ),
        _one(
            "subjects",
            _diagnostics,
            lambda fit, d: draw_subjects(d, fitted_units(fit.model, d.units)),
        ),
        ("participants", _participants),
        ("associations", _associations),
        ("behaviour", _behaviour),
        _one("norm", lambda fit: fit.norm, lambda _, norm: draw_norm(norm)),
        _one(
            "atlas_overlap",
            lambda fit: fit.selection.overlap,
            lambda _, overlap: draw_overlap(overlap),
        ),
        _one("explained_variance", _diagnostics, lambda _, d: draw_explained(d)),
        _one("selection", lambda fit: fit.selection.choice, lambda _, choice: choice.plot()),
        _one(
            "stability",
            lambda fit: fit.selection.stability,
            lambda _, stability: draw_stability(stability),
        ),
        _one(
            "similarity",
            lambda fit: fit.diagnostics if len(fit.diagnostics.alone) > 1 else None,
            lambda _, d: draw_similarity(d),
        ),
        _one("recurrence", _recurrence, lambda fit, _: draw_recurrence(fit.model)),
        _one("convergence", _diagnostics, lambda _, d: draw_convergence(d)),
        _one("sparsity", _diagnostics, lambda _, d: draw_sparsity(d)),
    ]
)
"""First word of a file's name → its figures. To add a panel for print, add a line."""
