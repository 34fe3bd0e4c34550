"""The charts of the report, each drawn once: the page and figures/ have the same file."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import numpy as np

from icofactor.results.colours import diverging
from icofactor.results.diagnostics.record import Association, Diagnostics, Grouping
from icofactor.results.meaning import names_of_bars
from icofactor.results.report.drawing import STYLE, new_figure
from icofactor.results.report.surfaces import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from icofactor.results.report.association_files import (
        AdjustedColumn,
        AssociationTables,
        NormTables,
    )

# Colours that colour-blind readers can tell apart (Okabe and Ito, slightly darker).
BLUE = "#0b6ea8"
ORANGE = "#d55e00"
GREY = "#8c8c8c"
# Dots of a chart that stay vectors; more become one picture inside the figure.
_MOST_VECTORS = 400
# Small charts in one figure: the clearest relations, as the table has all.
MOST_SMALL = 6
# Terms of a formula that are drawn; the table has all.
_MOST_TERMS = 12
# Inches around the axes of a chart: left, right, bottom, top.
_MARGINS = (0.72, 0.25, 0.48, 0.3)
# Golden ratio: spreads dots that have the same place evenly and the same way each time.
_GOLDEN = 0.618
_Drawing = ParamSpec("_Drawing")


def styled(draw: Callable[_Drawing, Figure]) -> Callable[_Drawing, Figure]:
    """Draw with the style of the report, and leave matplotlib's settings alone."""

    @wraps(draw)
    def draw_in_style(*args: _Drawing.args, **kwargs: _Drawing.kwargs) -> Figure:
        from matplotlib import rc_context

        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return draw_in_style


def _new_axes(
    width: float = 4.8,
    height: float = 3.2,
    n_rows: int = 1,
    n_columns: int = 1,
    margins: tuple[float, float, float, float] = _MARGINS,
    right: float = 0.0,
) -> tuple[Figure, list[Axes]]:
    """Return a figure with a grid of axes, each with these margins; `right` inches stay free.

    The places are computed here: matplotlib's search for them takes as long as drawing.
    """
    figure = new_figure(width, height)
    cell_width = (width - right) / n_columns
    cell_height = height / n_rows
    west, east, south, north = margins
    axes = []
    for row, column in np.ndindex(n_rows, n_columns):
        x = column * cell_width + west
        y = height - (row + 1) * cell_height + south
        size = (cell_width - west - east, cell_height - south - north)
        box = (x / width, y / height, size[0] / width, size[1] / height)
        axes.append(figure.add_axes(box))
    return figure, axes


def _component_ticks(axes: Axes, k: int, vertical: bool = False) -> None:
    positions = np.arange(0, k, max(1, -(-k // 20)))
    labels = [str(j + 1) for j in positions]
    axes.set_xticks(positions, labels)
    if vertical:
        axes.set_yticks(positions, labels)


def _dots(axes: Axes, x: Floats, y: Floats, colour: str = BLUE, **style: Any) -> None:
    """Draw a dot per person, fainter where they are very many."""
    n = np.size(y)
    axes.scatter(
        x,
        y,
        color=colour,
        linewidths=0,
        # Many dots lie on each other: together they show how dense they are.
        alpha=float(np.clip(600 / max(n, 1), 0.05, 0.6)),
        rasterized=n > _MOST_VECTORS,
        **style,
    )


@styled
def draw_convergence(d: Diagnostics) -> Figure:
    """Draw the objective of the best start, and its spread over starts."""
    from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter

    c = d.convergence
    # Objectives may be long numbers.
    figure, (axes,) = _new_axes(margins=(1.05, *_MARGINS[1:]))
    if c.n_starts > 1:
        for low, high, alpha, label in (
            (0, 4, 0.16, f"{c.n_starts} starts"),
            (1, 3, 0.28, "their quartiles"),
        ):
            axes.fill_between(
                c.band_updates,
                c.band[low],
                c.band[high],
                color=BLUE,
                linewidth=0,
                alpha=alpha,
                label=label,
            )
    axes.plot(c.updates, c.objective, color=BLUE, linewidth=1.6, label="the best start")
    for number, update in enumerate(c.divisions):
        # One entry in the legend for all of them.
        name = "refinements" if number == 0 else None
        axes.axvline(update, color=ORANGE, linestyle=(0, (2, 3)), linewidth=1, label=name)
    # Update 0 is the start, which a logarithmic axis lacks.
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(1, max(2, int(c.updates[-1])))
    # The objective of the start itself is far above the others.
    objectives = c.objective[1:] if len(c.objective) > 1 else c.objective
    bottom = float(np.nanmin(objectives))
    top = float(np.nanmax(objectives))
    if c.n_starts > 1 and c.band.shape[1] > 1:
        top = max(top, float(np.nanmax(c.band[4][1:])))
    # A penalized objective may be negative.
    if bottom > 0:
        axes.set_yscale("log")
    # Objectives may differ by less than a power of ten, which is where logarithmic axes have ticks.
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_minor_locator(NullLocator())
    # A little room, so that the last step does not lie on the axis.
    axes.set_ylim(bottom / 1.01 if bottom > 0 else bottom, top * 1.05 if top > 0 else top)
    # Plain numbers are drawn faster than powers of ten.
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.set(xlabel="update", ylabel="objective")
    axes.legend()
    return figure


@dataclass(frozen=True)
class Bars:
    """Numbers of every component.

    Attributes
    ----------
    title : what they are, with their unit
    series : name → one number per component; series stand beside each other
    line : a number that they are compared with; None for none
    """

    title: str
    series: Mapping[str, Floats]
    line: float | None = None


@styled
def draw_bars(charts: Sequence[Bars]) -> Figure:
    """Draw bars of the components, one chart below the other."""
    k = len(next(iter(charts[0].series.values())))
    size = (max(4.8, 0.2 * k + 1), 2.2 * len(charts))
    figure, all_axes = _new_axes(*size, n_rows=len(charts))
    for axes, chart in zip(all_axes, charts, strict=True):
        width = 0.8 / len(chart.series)
        for number, (name, values) in enumerate(chart.series.items()):
            shift = (number - (len(chart.series) - 1) / 2) * width
            colour = (BLUE, ORANGE)[number]
            axes.bar(np.arange(k) + shift, values, width, color=colour, label=name)
        if len(chart.series) > 1:
            # Room for the legend above the bars.
            axes.margins(y=0.25)
            axes.legend(loc="upper right", ncols=len(chart.series))
        if chart.line is not None:
            axes.axhline(chart.line, color=GREY, linestyle=(0, (4, 3)), linewidth=1)
        _component_ticks(axes, k)
        axes.set_title(chart.title)
    all_axes[-1].set_xlabel("component")
    return figure


@styled
def draw_similarity(d: Diagnostics) -> Figure:
    """Draw overlap and correlation of all pairs of components."""
    from matplotlib.colors import ListedColormap

    height = 2.75
    width = 8.4
    margins = (0.35, 0.1, 0.3, 0.3)
    figure, all_axes = _new_axes(width, height, n_columns=3, margins=margins, right=0.7)
    matrices = (
        (d.overlap, "Overlap of maps"),
        (d.similarity, "Correlation of maps"),
        (d.together, "Correlation of loadings"),
    )
    for axes, (values, title) in zip(all_axes, matrices, strict=True):
        colours = ListedColormap(diverging() / 255)
        image = axes.imshow(values, cmap=colours, vmin=-1, vmax=1, interpolation="nearest")
        axes.set_title(title)
        axes.spines[:].set_visible(False)
        _component_ticks(axes, len(values), vertical=True)
    box = figure.add_axes((1 - 0.6 / width, 0.3 / height, 0.12 / width, 2.15 / height))
    figure.colorbar(image, cax=box)
    return figure


@styled
def draw_loadings(d: Diagnostics, signed: bool) -> Figure:
    """Draw all loadings, with similar people and similar components next to each other."""
    from matplotlib.colors import ListedColormap
    from scipy.cluster.hierarchy import dendrogram

    k = len(d.alone)
    width = max(4.8, 0.16 * k + 2)
    height = 5.2
    figure = new_figure(width, height)
    tree_width = (width - 1.05) / 6

    def add_axes(x: float, y: float, across: float, up: float) -> Axes:
        return figure.add_axes((x / width, y / height, across / width, up / height))

    tree = add_axes(0.05, 0.5, tree_width, height - 0.6)
    axes = add_axes(tree_width + 0.35, 0.5, width - tree_width - 1.3, height - 0.6)
    if len(d.tree):
        dendrogram(
            d.tree,
            ax=tree,
            orientation="left",
            no_labels=True,
            color_threshold=0,
            above_threshold_color="0.35",
        )
        tree.invert_yaxis()
        for branches in tree.collections:
            branches.set_linewidth(0.5)
    tree.set_axis_off()
    # The largest loadings would leave no colours for the others.
    top = float(np.percentile(np.abs(d.loadings), 99)) or 1.0
    image = axes.imshow(
        d.loadings[np.ix_(d.order, d.component_order)],
        aspect="auto",
        cmap=ListedColormap(diverging() / 255) if signed else "viridis",
        interpolation="nearest",
        vmin=-top if signed else 0.0,
        vmax=top,
    )
    axes.set_xticks(range(k), [str(j + 1) for j in d.component_order], fontsize=8 if k <= 20 else 5)
    axes.set_yticks([])
    clustered = len(d.tree) or len(d.subjects) < 3
    order = "clustered" if clustered else "by the first principal component"
    axes.set(xlabel="component", ylabel=f"{len(d.subjects)} subjects, {order}")
    bar_axes = add_axes(width - 0.8, 1.3, 0.13, height - 2.6)
    bar = figure.colorbar(image, cax=bar_axes, extend="both" if signed else "max")
    bar.set_label("loading")
    return figure


@styled
def draw_regions(model: Any, units: str, titles: Sequence[str]) -> Figure:
    """Draw components as bars, one per region."""
    maps = model.components_
    names = names_of_bars(model)
    n_regions = maps.shape[1]
    height = 0.5 + 1.05 * len(maps)
    margins = (0.5, 0.05, 0.12, 0.25)
    figure, all_axes = _new_axes(8, height, n_rows=len(maps), margins=margins)
    top = float(np.abs(maps).max()) or 1.0
    for axes, values, title in zip(all_axes, maps, titles, strict=True):
        axes.bar(np.arange(n_regions), values, width=0.9, color=np.where(values < 0, ORANGE, BLUE))
        low = -top if (values < 0).any() else 0
        axes.set(xlim=(-0.6, n_regions - 0.4), ylim=(low, top), xticks=[])
        largest = ", ".join(names[i] for i in np.argsort(-np.abs(values))[:4])
        axes.set_title(f"{title}: {largest}", loc="left", fontsize=8)
    order = f"{len(model.sites_.regions.names)} regions, in the order of the table"
    all_axes[-1].set_xlabel(f"{order}; {units}" if units else order, labelpad=2)
    return figure


@styled
def draw_subjects(d: Diagnostics, units: str) -> Figure:
    """Draw how well each person is fitted."""
    figure, (axes,) = _new_axes()
    unusual = np.isin(np.arange(len(d.subjects)), d.unusual.subject)
    for rows, colour, label in ((~unusual, BLUE, "subjects"), (unusual, ORANGE, "unusual")):
        if rows.any():
            explained = 100 * d.subject_explained[rows]
            _dots(axes, d.residual[rows], explained, colour, s=14, label=label)
    axes.set_xlabel(
        f"root mean square residual ({units})" if units else "root mean square residual"
    )
    axes.set_ylabel("explained variance (%)")
    if unusual.any():
        axes.legend()
    return figure


@styled
def draw_relations(
    d: Diagnostics, relations: Sequence[tuple[Association | Grouping, int]], names: Sequence[str]
) -> Figure:
    """Draw the loadings of a component against a column of the participants, for each pair."""
    labels = [item.labels for item, _ in relations if isinstance(item, Grouping)]
    figure, all_axes = _small_axes(len(relations), labels)
    for axes, (item, j) in zip(all_axes, relations, strict=True):
        loadings = d.loadings[:, j]
        if isinstance(item, Association):
            _dots_with_line(axes, item.values, loadings)
            strength = f"r = {item.r[j]:.2f}".replace("-", "−")
        else:
            groups = [loadings[item.codes == group] for group in range(len(item.labels))]
            median = {"color": ORANGE}
            # Whiskers go to the extremes.
            axes.boxplot(groups, whis=(0, 100), widths=0.55, medianprops=median)
            _group_ticks(axes, range(1, len(item.labels) + 1), item.labels)
            strength = f"η² = {item.eta2[j]:.2f}"
        p = "p < 0.001" if item.p[j] < 0.001 else f"p = {item.p[j]:.3f}"
        _small_title(axes, names[j], j, f"{strength}, {p}")
        axes.set_xlabel(_shortened(item.called, 30))
    return figure


@styled
def draw_adjusted(
    charts: Sequence[tuple[AdjustedColumn, int]], names: Sequence[str], measures: Sequence[str]
) -> Figure:
    """Draw adjusted loadings along a column, with what the model expects; for each (column, number
    of the loading).
    """
    labels = [column.labels for column, _ in charts if column.labels is not None]
    figure, all_axes = _small_axes(len(charts), labels)
    k = len(names)
    for axes, (column, loading) in zip(all_axes, charts, strict=True):
        mean, low, high = column.expected[:, :, loading]
        values = column.adjusted[:, loading]
        if column.labels is None:
            _dots(axes, column.values, values, s=6)
            axes.fill_between(column.at, low, high, color=ORANGE, alpha=0.25, linewidth=0)
            axes.plot(column.at, mean, color=ORANGE, linewidth=1.2)
        else:
            spread = 0.3 * ((np.arange(len(values)) * _GOLDEN) % 1 - 0.5)
            _dots(axes, column.values + spread, values, s=6)
            axes.vlines(column.at, low, high, color=ORANGE, linewidth=1.6)
            axes.plot(column.at, mean, "_", color=ORANGE, markersize=9, markeredgewidth=1.6)
            _group_ticks(axes, column.at, column.labels)
            axes.set_xlim(-0.5, len(column.labels) - 0.5)
        measure = measures[loading // k] if measures else ""
        _small_title(axes, names[loading % k], loading % k, measure)
        axes.set_xlabel(_shortened(column.column, 30))
    return figure


def _small_axes(n: int, labels: Sequence[Sequence[str]]) -> tuple[Figure, list[Axes]]:
    """Return small axes in rows of three, with room for these names of groups below."""
    from matplotlib.ticker import MaxNLocator

    n_columns = min(3, n)
    n_rows = -(-n // n_columns)
    below = 1.15 if any(map(_on_end, labels)) else 0.55
    size = (max(2.6 * n_columns, 3.2), (1.95 + below) * n_rows)
    figure, axes = _new_axes(*size, n_rows, n_columns, margins=(0.55, 0.12, below, 0.45))
    # The last row may not be full.
    for extra in axes[n:]:
        extra.set_axis_off()
    for number, used in enumerate(axes[:n]):
        used.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        used.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        if number % n_columns == 0:
            used.set_ylabel("loading")
    return figure, axes[:n]


def _small_title(axes: Axes, name: str, j: int, facts: str) -> None:
    """Write the component, its name without shares, and the facts above small axes."""
    # The page has the shares of regions.
    plain = re.sub(r" \([\d.]+ %\)", "", name)
    title = f"Component {j + 1}" + (f": {plain}" if plain else "")
    axes.set_title(f"{_shortened(title, 36)}\n{facts}" if facts else _shortened(title, 36), pad=4)


def _shortened(text: str, width: int) -> str:
    return textwrap.shorten(text, width, placeholder="…") or f"{text[: width - 1]}…"


def _group_ticks(axes: Axes, positions: Any, labels: Sequence[str]) -> None:
    """Name groups under an axis; long names stand on end."""
    names = [label if len(label) <= 12 else f"{label[:11]}…" for label in labels]
    axes.set_xticks(list(positions), names, rotation=90 if _on_end(labels) else 0)


def _on_end(labels: Sequence[str]) -> bool:
    """Whether names of groups are too long to stand side by side."""
    # About 26 letters fit under all groups together.
    return len(labels) > 2 and max(map(len, labels)) > 26 // len(labels)


def _dots_with_line(axes: Axes, x: Floats, y: Floats) -> None:
    """Draw dots and the line of least squares."""
    usable = np.isfinite(x)
    _dots(axes, x[usable], y[usable], s=8)
    slope, level = np.polyfit(x[usable], y[usable], 1)
    ends = np.array([x[usable].min(), x[usable].max()])
    axes.plot(ends, level + slope * ends, color=ORANGE, linewidth=1.2)


@styled
def draw_effects(tables: AssociationTables, k: int) -> Figure:
    """Draw each term's estimates with their 95 % intervals, or the sizes of its effects where it
    has several columns.
    """
    tests = {name: np.array(values) for name, values in tables.tests.items()}
    keys = list(zip(*(tables.tests[key] for key in ("kind", "term", "measure")), strict=True))
    terms = list(dict.fromkeys(keys))[:_MOST_TERMS]
    n_columns = min(2, len(terms))
    n_rows = -(-len(terms) // n_columns)
    width = max(3.9, 0.16 * k + 1.2) * n_columns
    figure, all_axes = _new_axes(width, 2.5 * n_rows, n_rows, n_columns)
    for axes, term in zip(all_axes, terms, strict=False):
        rows = np.array([key == term for key in keys])
        positions = tests["component"][rows]
        clear = tests["p"][rows] < 0.05
        colours = np.where(clear, ORANGE, GREY)
        # A category of several levels has no estimate, but a size of its effects.
        several_columns = bool(np.isnan(tests["estimate"][rows]).all())
        sizes = tests["standardized" if several_columns else "estimate"][rows]
        if not several_columns:
            axes.vlines(positions, tests["ci_low"][rows], tests["ci_high"][rows], colors=colours)
        axes.scatter(positions, sizes, color=colours, s=18, zorder=2)
        axes.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        _component_ticks(axes, k)
        title = ", ".join(filter(None, term[1:]))
        axes.set_title(_shortened(title, 44))
        axes.set_xlabel("component")
        axes.set_ylabel("Cohen's f" if several_columns else "estimate, 95 % interval")
    for extra in all_axes[len(terms) :]:
        extra.set_axis_off()
    return figure


@styled
def draw_norm(norm: NormTables) -> Figure:
    """Draw W-scores of everybody, those of the reference in grey."""
    measures = norm.measures or ("",)
    k = norm.scores.shape[1] // len(measures)
    size = (max(4.8, 0.4 * k + 1), 3.2 * len(measures))
    figure, all_axes = _new_axes(*size, n_rows=len(measures))
    spread = 0.3 * ((np.arange(len(norm.scores)) * _GOLDEN) % 1 - 0.5)
    scores_by_measure = np.split(norm.scores, len(measures), 1)
    for axes, measure, scores in zip(all_axes, measures, scores_by_measure, strict=True):
        for reference, colour, shift, label in (
            (True, GREY, -0.18, "reference"),
            (False, ORANGE, 0.18, "others"),
        ):
            rows = norm.reference == reference
            # Both groups stand beside each other, and people side by side.
            positions = np.arange(k)[None] + (shift + spread[rows])[:, None]
            _dots(axes, positions.ravel(), scores[rows].ravel(), colour, s=6, label=label)
        for value, style in ((0, "-"), (-1.96, "--"), (1.96, "--")):
            axes.axhline(value, color="0.6", linewidth=0.8, linestyle=style, zorder=0)
        _component_ticks(axes, k)
        axes.set(title=measure, xlabel="component", ylabel="W-score")
    all_axes[0].legend()
    return figure
