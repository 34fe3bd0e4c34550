"""Every panel of the report as a figure for print: PNG and PDF."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.diagnostics import Association, Diagnostics, Grouping
from icofactor.report.colours import diverging
from icofactor.report.content import component_units
from icofactor.report.drawing import new_figure
from icofactor.report.figures import plot_components, plot_maps
from icofactor.report.surfaces import Surfaces, cortex_of

PER_PAGE = 10
_MOST_COLUMNS = 12
_BLUE, _ORANGE, _GREEN = "#0b6ea8", "#d55e00", "#009e73"
_DPI = 200


def draw_panels(
    model: Any,
    diagnostics: Diagnostics,
    folder: str | Path,
    *,
    selection: Mapping[str, Any] | None = None,
    surfaces: Surfaces | None = None,
    on_step: Callable[[float], None] | None = None,
) -> list[Path]:
    """Write each panel into `folder` as NAME.png and NAME.pdf; `on_step` is told the fraction that is done.

    Returns
    -------
    The files written.
    """
    written = []
    pages = -(-len(diagnostics.alone) // PER_PAGE)
    columns = min(_MOST_COLUMNS, len(diagnostics.associations) + len(diagnostics.groupings))
    expected = pages + columns + 7 + (selection is not None)
    for name, figure in _figures(model, diagnostics, selection, surfaces):
        for ending in ("png", "pdf"):
            path = Path(folder) / f"{name}.{ending}"
            figure.savefig(path, dpi=_DPI)
            written.append(path)
        if on_step is not None:
            on_step(len(written) / 2 / expected)
    return written


def _figures(
    model: Any,
    d: Diagnostics,
    selection: Mapping[str, Any] | None,
    surfaces: Surfaces | None,
) -> Iterator[tuple[str, Any]]:
    """Pairs of name and figure, each drawn when it is asked for."""
    k = len(d.alone)
    if surfaces is not None or _can_be_drawn(model):
        units, several = component_units(model, d.units), k > PER_PAGE
        cortex = cortex_of(model.sites_, model.hemi_, surfaces)
        for page, first in enumerate(range(0, k, PER_PAGE)):
            chosen = range(first, min(first + PER_PAGE, k))
            figure = plot_components(model, components=chosen, units=units, surfaces=cortex)
            yield f"components-{page + 1:02d}" if several else "components", figure
        yield "maps", plot_maps(model, d, surfaces=cortex)
    yield "convergence", _convergence(d)
    yield "explained_variance", _explained(d)
    yield "sparsity", _sparsity(d)
    yield "similarity", _similarity(d)
    yield "loadings", _loadings(d)
    yield "subjects", _subjects(d)
    every: list[Association | Grouping] = [*d.associations, *d.groupings]
    for number, item in enumerate(sorted(every, key=lambda item: float(item.p.min()))[:_MOST_COLUMNS]):
        yield f"participants-{number + 1:02d}_{_file_name(item.column)}", _against(d, item)
    if selection is not None and selection.get("table"):
        yield "selection", _selection(selection)


def _can_be_drawn(model: Any) -> bool:
    return model.sites_.triangles is not None and model.sites_.n == model.sites_.n_mesh


def _file_name(column: str) -> str:
    """A column's name in letters that every file system takes."""
    return re.sub(r"[^0-9A-Za-z]+", "-", column).strip("-")[:40] or "column"


def _words(text: str) -> str:
    """Words of the data as they are: matplotlib would read a pair of dollar signs as mathematics."""
    return str(text).replace("$", r"\$")


def _axes(width: float = 5.2, height: float = 3.4, columns: int = 1, rows: int = 1) -> tuple[Any, Any]:
    figure = new_figure(width, height, _DPI)
    figure.set_layout_engine("constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(labelsize=8)
    return figure, axes


def _convergence(d: Diagnostics) -> Any:
    c = d.convergence
    figure, ((axes,),) = _axes()
    if c.n_starts > 1:
        ends = {"color": _BLUE, "linewidth": 0}
        axes.fill_between(c.band_updates, c.band[0], c.band[4], alpha=0.16, label=f"{c.n_starts} starts", **ends)
        axes.fill_between(c.band_updates, c.band[1], c.band[3], alpha=0.28, label="their quartiles", **ends)
    axes.plot(c.updates, c.objective, color=_BLUE, linewidth=1.6, label="the run that was kept")
    for number, update in enumerate(c.divisions):
        label = "refinements" if number == 0 else None
        axes.axvline(update, color=_ORANGE, linestyle=(0, (2, 3)), linewidth=1, label=label)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(1, max(2, int(c.updates[-1])))
    shown = c.objective[1:] if len(c.objective) > 1 else c.objective
    tops = c.band[4][1:] if c.n_starts > 1 else shown
    low, high = float(np.nanmin(shown)), float(np.nanmax(np.concatenate([shown, tops])))
    if low > 0:
        axes.set_yscale("log")
    axes.set_ylim(low / 1.01 if low > 0 else low, high * 1.05 if high > 0 else high)
    from matplotlib.ticker import LogFormatterSciNotation

    axes.xaxis.set_major_formatter(LogFormatterSciNotation())
    axes.set_xlabel("update", fontsize=9)
    axes.set_ylabel("objective", fontsize=9)
    axes.legend(fontsize=7, frameon=False)
    return figure


def _component_ticks(axes: Any, k: int, both: bool = False) -> None:
    step = max(1, -(-k // 20))
    at = np.arange(0, k, step)
    axes.set_xticks(at, [str(j + 1) for j in at])
    if both:
        axes.set_yticks(at, [str(j + 1) for j in at])


def _explained(d: Diagnostics) -> Any:
    k = len(d.alone)
    figure, ((axes,),) = _axes(max(5.2, 0.22 * k + 1))
    axes.bar(np.arange(k) - 0.2, 100 * d.alone, 0.4, color=_BLUE, label="alone")
    axes.bar(np.arange(k) + 0.2, 100 * d.unique, 0.4, color=_ORANGE, label="unique, given all others")
    _component_ticks(axes, k)
    axes.set_xlabel("component", fontsize=9)
    axes.set_ylabel("% of between-subject variance", fontsize=9)
    axes.set_title(f"All together: {100 * d.explained:.1f} % ({100 * d.explained_X:.1f} % of ‖X‖²)", fontsize=9)
    axes.legend(fontsize=7, frameon=False)
    return figure


def _sparsity(d: Diagnostics) -> Any:
    figure, (row,) = _axes(7.2, 2.4, 3)
    for axes, values, name, colour in (
        (row[0], d.l1_B, "‖B‖₁", _BLUE),
        (row[1], d.l1_C, "‖C‖₁", _ORANGE),
        (row[2], 100 * d.extent, "extent (% of sites)", _GREEN),
    ):
        axes.bar(np.arange(len(values)), values, 0.75, color=colour)
        step = max(1, -(-len(values) // 10))
        at = np.arange(0, len(values), step)
        axes.set_xticks(at, [str(j + 1) for j in at])
        axes.set_xlabel("component", fontsize=9)
        axes.set_ylabel(name, fontsize=9)
    return figure


def _similarity(d: Diagnostics) -> Any:
    from matplotlib.colors import ListedColormap

    figure, (row,) = _axes(8.4, 2.9, 3)
    colours = ListedColormap(diverging() / 255)
    for axes, values, name in (
        (row[0], d.overlap, "Overlap of maps"),
        (row[1], d.similarity, "Correlation of maps"),
        (row[2], d.together, "Correlation of loadings"),
    ):
        image = axes.imshow(values, cmap=colours, vmin=-1, vmax=1, interpolation="nearest")
        axes.set_title(name, fontsize=9)
        axes.spines[:].set_visible(False)
        _component_ticks(axes, len(values), both=True)
        axes.tick_params(labelsize=7 if len(values) <= 10 else 5)
    figure.colorbar(image, ax=row, shrink=0.8, pad=0.02).ax.tick_params(labelsize=7)
    return figure


def _loadings(d: Diagnostics) -> Any:
    from scipy.cluster.hierarchy import dendrogram

    k = len(d.alone)
    figure = new_figure(max(5.2, 0.16 * k + 2), 5.4, _DPI)
    figure.set_layout_engine("constrained")
    tree, axes = figure.subplots(1, 2, width_ratios=(1, 5))
    if len(d.tree):
        black = lambda _: "0.35"
        dendrogram(d.tree, ax=tree, orientation="left", no_labels=True, link_color_func=black)
        tree.invert_yaxis()
        for lines in tree.collections:
            lines.set_linewidth(0.5)
    tree.set_axis_off()
    low = min(0.0, float(np.percentile(d.loadings, 1)))
    table = d.loadings[np.ix_(d.order, d.component_order)]
    top = float(np.percentile(d.loadings, 99)) or 1.0
    image = axes.imshow(table, aspect="auto", cmap="viridis", vmin=low, vmax=top, interpolation="nearest")
    axes.set_xticks(range(k), [str(j + 1) for j in d.component_order], fontsize=8 if k <= 20 else 5)
    axes.set_yticks([])
    axes.set_xlabel("component", fontsize=9)
    axes.set_ylabel(f"{len(d.subjects)} subjects, clustered", fontsize=9)
    bar = figure.colorbar(image, ax=axes, shrink=0.6, extend="max")
    bar.set_label("loading", fontsize=9)
    bar.ax.tick_params(labelsize=7)
    return figure


def _subjects(d: Diagnostics) -> Any:
    figure, ((axes,),) = _axes()
    odd = np.isin(np.arange(len(d.subjects)), d.unusual.subject)
    for rows, colour, label in ((~odd, _BLUE, "subjects"), (odd, _ORANGE, "unusual subjects")):
        if rows.any():
            style = {"s": 14, "color": colour, "alpha": 0.65, "linewidths": 0, "label": label}
            axes.scatter(d.residual[rows], 100 * d.subject_explained[rows], **style)
    axes.set_xlabel("root mean square residual" + (f" ({_words(d.units)})" if d.units else ""), fontsize=9)
    axes.set_ylabel("explained variance (%)", fontsize=9)
    if odd.any():
        axes.legend(fontsize=7, frameon=False)
    return figure


def _against(d: Diagnostics, item: Association | Grouping) -> Any:
    """Loadings of every component against one column."""
    k = len(d.alone)
    columns = min(5, k)
    rows = -(-k // columns)
    figure, axes = _axes(1.75 * columns + 0.4, 1.65 * rows + 0.45, columns, rows)
    for j, one in enumerate(axes.flat):
        if j >= k:
            one.set_axis_off()
            continue
        if isinstance(item, Association):
            _scatter(one, item.values, d.loadings[:, j])
            found = f"r = {item.r[j]:.2f}".replace("-", "−")
        else:
            _boxes(one, item, d.loadings[:, j])
            found = f"η² = {item.eta2[j]:.2f}"
        p = "p < 0.001" if item.p[j] < 0.001 else f"p = {item.p[j]:.3f}"
        one.set_title(f"{j + 1}: {found}, {p}", fontsize=7, fontweight="bold" if item.p[j] < 0.05 else "normal")
        one.tick_params(labelsize=6)
    figure.supxlabel(f"{_words(item.column)} (n = {item.n}; p corrected over components)", fontsize=9)
    figure.supylabel("loading", fontsize=9)
    return figure


def _scatter(axes: Any, x: np.ndarray, y: np.ndarray) -> None:
    known = np.isfinite(x)
    axes.scatter(x[known], y[known], s=6, color=_BLUE, alpha=0.6, linewidths=0)
    slope, level = np.polyfit(x[known], y[known], 1)
    ends = np.array([x[known].min(), x[known].max()])
    axes.plot(ends, level + slope * ends, color=_ORANGE, linewidth=1.2)


def _boxes(axes: Any, item: Grouping, y: np.ndarray) -> None:
    groups = [y[item.codes == g] for g in range(len(item.labels))]
    shown = {"medianprops": {"color": _ORANGE}, "flierprops": {"markersize": 2}, "widths": 0.55}
    axes.boxplot(groups, whis=(0, 100), **shown)
    names = [_words(label if len(label) <= 12 else f"{label[:11]}…") for label in item.labels]
    turned = {"rotation": 90} if len(names) > 3 or max(map(len, names)) > 5 else {}
    axes.set_xticks(range(1, len(names) + 1), names, **turned)


def _selection(selection: Mapping[str, Any]) -> Any:
    """Every numeric column of the table against its first, the number of components."""
    table = {str(name): values for name, values in selection["table"].items()}
    name, *others = table
    numeric = [c for c in others if all(isinstance(v, int | float | None) for v in table[c])][:12]
    columns = max(1, min(3, len(numeric)))
    rows = max(1, -(-len(numeric) // columns))
    figure, axes = _axes(2.6 * columns, 2.0 * rows, columns, rows)
    x = np.array(table[name], dtype=float)
    for one, column in zip(axes.flat, numeric, strict=False):
        one.plot(x, np.array(table[column], dtype=float), "o-", color=_BLUE, markersize=3, linewidth=1)
        if selection.get("recommended") is not None:
            one.axvline(float(selection["recommended"]), color=_ORANGE, linestyle=(0, (2, 3)), linewidth=1)
        one.set_title(_words(column), fontsize=8)
        one.set_xlabel(_words(name), fontsize=8)
    for one in list(axes.flat)[len(numeric) :]:
        one.set_axis_off()
    return figure
