"""Drawings of the report's panels for print, with matplotlib."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.assessment.atlas import ENRICHED, name_with_shares, rows_to_show
from icofactor.assessment.selection.choice import verbatim
from icofactor.factorization.recurrence import ENOUGH
from icofactor.results.colours import diverging
from icofactor.results.diagnostics.record import Association, Diagnostics, Grouping
from icofactor.results.meaning import names_of_bars
from icofactor.results.report.content import alone_is_a_share
from icofactor.results.report.drawing import new_figure

if TYPE_CHECKING:
    from icofactor.results.report.association_files import (
        AdjustedColumn,
        AssociationTables,
        NormTables,
    )

DPI = 300
_BLUE, _ORANGE, _GREEN, _GREY = "#0b6ea8", "#d55e00", "#009e73", "#8c8c8c"
MOST_POINTS = 2000
"""Of more points their density is drawn, as on the page."""
MOST_COLUMNS = 12
"""Terms of a formula, and columns of a table, that are drawn."""


def draw_convergence(d: Diagnostics) -> Any:
    from matplotlib.ticker import MaxNLocator, NullLocator

    c = d.convergence
    figure, ((axes,),) = _new_axes(margins=(1.0, 0.15, 0.5, 0.12))
    if c.n_starts > 1:
        ends = {"color": _BLUE, "linewidth": 0}
        axes.fill_between(
            c.band_updates, c.band[0], c.band[4], alpha=0.16, label=f"{c.n_starts} starts", **ends
        )
        axes.fill_between(
            c.band_updates, c.band[1], c.band[3], alpha=0.28, label="their quartiles", **ends
        )
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
        if high < 20 * low:
            axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(lambda value, _: _plain(value))
    axes.set_ylim(low / 1.01 if low > 0 else low, high * 1.05 if high > 0 else high)
    axes.xaxis.set_major_formatter(lambda value, _: _plain(value))
    axes.set_xlabel("update", fontsize=9)
    axes.set_ylabel("objective", fontsize=9)
    axes.legend(fontsize=7, frameon=False)
    return figure


def _plain(value: float) -> str:
    """A number on a logarithmic axis. Letters do: matplotlib's formulas take longer than the rest
    of the figure.
    """
    digits, _, power = f"{value:.6e}".partition("e")
    if -4 < int(power) < 6:
        return f"{value:,g}" if int(power) < 4 else f"{value:,.0f}"
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{float(digits):g} × 10{raised}".removeprefix("1 × ")


def draw_explained(d: Diagnostics) -> Any:
    k = len(d.alone)
    figure, ((axes,),) = _new_axes(max(5.2, 0.22 * k + 1), margins=(0.7, 0.12, 0.5, 0.3))
    if alone_is_a_share(d):
        axes.bar(np.arange(k) - 0.2, 100 * d.alone, 0.4, color=_BLUE, label="alone")
    at = np.arange(k) + (0.2 if alone_is_a_share(d) else 0.0)
    axes.bar(at, 100 * d.unique, 0.4, color=_ORANGE, label="unique, added to all others")
    _component_ticks(axes, k)
    axes.set_xlabel("component", fontsize=9)
    axes.set_ylabel("% of between-subject variance", fontsize=9)
    together = f"All together: {100 * d.explained:.1f} % ({100 * d.explained_X:.1f} % of ‖X‖²)"
    axes.set_title(together, fontsize=9, y=1.0)
    axes.legend(fontsize=7, frameon=False)
    return figure


def draw_recurrence(model: Any) -> Any:
    share = np.asarray(model.recurrence_)
    k = len(share)
    figure, ((axes,),) = _new_axes(max(5.2, 0.22 * k + 1), margins=(0.7, 0.12, 0.5, 0.12))
    axes.bar(np.arange(k), 100 * share, 0.75, color=_GREEN)
    axes.axhline(100 * ENOUGH, color=_GREY, linestyle=(0, (4, 3)), linewidth=1)
    axes.set_ylim(0, 104)
    _component_ticks(axes, k)
    axes.set_xlabel("component", fontsize=9)
    axes.set_ylabel("reached by other random starts on the same people (%)", fontsize=7)
    return figure


def draw_sparsity(d: Diagnostics) -> Any:
    figure, (row,) = _new_axes(7.2, 2.4, 3, margins=(0.75, 0.1, 0.5, 0.15))
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


def draw_similarity(d: Diagnostics) -> Any:
    from matplotlib.colors import ListedColormap

    figure, (row,) = _new_axes(8.4, 2.72, 3, margins=(0.35, 0.1, 0.27, 0.3), aside=0.7)
    colours = ListedColormap(diverging() / 255)
    for axes, values, name in (
        (row[0], d.overlap, "Overlap of maps"),
        (row[1], d.similarity, "Correlation of maps"),
        (row[2], d.together, "Correlation of loadings"),
    ):
        image = axes.imshow(values, cmap=colours, vmin=-1, vmax=1, interpolation="nearest")
        axes.set_title(name, fontsize=9, y=1.0)
        axes.spines[:].set_visible(False)
        _component_ticks(axes, len(values), both=True)
        axes.tick_params(labelsize=7 if len(values) <= 10 else 5)
    box = figure.add_axes(((8.4 - 0.6) / 8.4, 0.27 / 2.72, 0.12 / 8.4, 2.15 / 2.72))
    figure.colorbar(image, cax=box).ax.tick_params(labelsize=7)
    return figure


def draw_loadings(d: Diagnostics, signed: bool) -> Any:
    from matplotlib.colors import ListedColormap
    from scipy.cluster.hierarchy import dendrogram

    k = len(d.alone)
    width, height, aside = max(5.2, 0.16 * k + 2), 5.4, 0.95
    figure = new_figure(width, height, DPI)
    room = (width - aside - 0.1) / 6
    place = lambda left, wide, low, tall: figure.add_axes(
        (left / width, low / height, wide / width, tall / height)
    )
    tree, axes = (
        place(0.1, room, 0.5, height - 0.6),
        place(room + 0.4, width - aside - room - 0.4, 0.5, height - 0.6),
    )
    axes.xaxis.set_label_coords(0.5, -0.29 / (height - 0.6))
    axes.yaxis.set_label_coords(-0.08 / (width - aside - room - 0.4), 0.5)
    if len(d.tree):
        black = lambda _: "0.35"
        dendrogram(d.tree, ax=tree, orientation="left", no_labels=True, link_color_func=black)
        tree.invert_yaxis()
        for lines in tree.collections:
            lines.set_linewidth(0.5)
    tree.set_axis_off()
    table = d.loadings[np.ix_(d.order, d.component_order)]
    top = float(np.percentile(np.abs(d.loadings), 99)) or 1.0
    colours = ListedColormap(diverging() / 255) if signed else "viridis"
    ends = {"vmin": -top if signed else 0.0, "vmax": top}
    image = axes.imshow(table, aspect="auto", cmap=colours, interpolation="nearest", **ends)
    axes.set_xticks(range(k), [str(j + 1) for j in d.component_order], fontsize=8 if k <= 20 else 5)
    axes.set_yticks([])
    axes.set_xlabel("component", fontsize=9)
    order = (
        "clustered" if len(d.tree) or len(d.subjects) < 3 else "by the first principal component"
    )
    axes.set_ylabel(f"{len(d.subjects)} subjects, {order}", fontsize=9)
    bar = figure.colorbar(
        image,
        cax=place(width - aside + 0.15, 0.13, 1.5, height - 2.6),
        extend="both" if signed else "max",
    )
    bar.set_label("loading", fontsize=9)
    bar.ax.tick_params(labelsize=7)
    return figure


def draw_regions(model: Any, units: str, chosen: Sequence[int], titles: Sequence[str]) -> Any:
    """Components as bars, one per region."""
    maps, names = model.components_[chosen], names_of_bars(model)
    figure = new_figure(8, 0.4 + 1.05 * len(maps), DPI)
    figure.set_layout_engine("constrained")
    top = float(np.abs(model.components_).max()) or 1.0
    for row, (j, one) in enumerate(zip(chosen, maps, strict=True)):
        axes = figure.add_subplot(len(maps), 1, row + 1)
        axes.bar(np.arange(len(one)), one, width=0.9, color=np.where(one < 0, _ORANGE, _BLUE))
        axes.set(xlim=(-0.6, len(one) - 0.4), ylim=(-top if (one < 0).any() else 0, top), xticks=[])
        largest = ", ".join(names[i] for i in np.argsort(-np.abs(one))[:4])
        axes.set_title(f"{titles[j]}: {largest}", fontsize=7, loc="left", parse_math=False)
        axes.tick_params(labelsize=6)
        for spine in ("top", "right"):
            axes.spines[spine].set_visible(False)
    axes.set_xlabel(
        f"{len(model.sites_.regions.names)} regions, in the order of the table"
        + (f"; {units}" if units else ""),
        fontsize=7,
    )
    return figure


def draw_subjects(d: Diagnostics, units: str) -> Any:
    figure, ((axes,),) = _new_axes(margins=(0.7, 0.15, 0.5, 0.12))
    odd = np.isin(np.arange(len(d.subjects)), d.unusual.subject)
    for rows, colour, label in ((~odd, _BLUE, "subjects"), (odd, _ORANGE, "unusual subjects")):
        if rows.any():
            _points(
                axes,
                d.residual[rows],
                100 * d.subject_explained[rows],
                colour,
                s=14,
                alpha=0.65,
                label=label,
            )
    axes.set_xlabel(
        "root mean square residual" + (f" ({verbatim(units)})" if units else ""), fontsize=9
    )
    axes.set_ylabel("explained variance (%)", fontsize=9)
    if odd.any():
        axes.legend(fontsize=7, frameon=False)
    return figure


def draw_against(d: Diagnostics, item: Association | Grouping, names: Sequence[str]) -> Any:
    """Loadings of every component, with its name where it has one, against one column."""
    foot = 0.22 if isinstance(item, Association) else _room_for(_group_names(item.labels))
    figure, axes = _grid(names, foot)
    for j, one in enumerate(axes):
        if isinstance(item, Association):
            _scatter(one, item.values, d.loadings[:, j])
            found = f"r = {item.r[j]:.2f}".replace("-", "−")
        else:
            _boxes(one, item, d.loadings[:, j])
            found = f"η² = {item.eta2[j]:.2f}"
        p = "p < 0.001" if item.p[j] < 0.001 else f"p = {item.p[j]:.3f}"
        bold = {"fontweight": "bold"} if item.p[j] < 0.05 else {}
        one.set_title(
            f"{_shortened(names[j])}{j + 1}: {found}, {p}", fontsize=7, pad=3, y=1.0, **bold
        )
    height = figure.get_size_inches()[1]
    whiskers = "" if isinstance(item, Association) else "; whiskers: extremes"
    name = f"{verbatim(item.called)} (n = {item.n}; p corrected over components{whiskers})"
    figure.text(0.5, 0.06 / height, name, fontsize=9, ha="center", va="bottom")
    figure.text(0.012, 0.5, "loading", fontsize=9, ha="left", va="center", rotation=90)
    return figure


def _shortened(name: str) -> str:
    """A name without shares on a line of its own, as long as small axes are wide."""
    plain = re.sub(r" \([\d.]+ %\)", "", name)
    return f"{verbatim(textwrap.shorten(plain, 34, placeholder='…'))}\n" if name else ""


def _grid(names: Sequence[str], foot: float) -> tuple[Any, list[Any]]:
    """Small axes in rows of five; `foot` inches are kept under the last row, where the ticks have
    their names.

    Places are given, not found: matplotlib's search for them takes longer than drawing.
    """
    from matplotlib.ticker import MaxNLocator

    n, more = len(names), 0.1 * any(names)
    columns = min(5, n)
    rows = -(-n // columns)
    left, cell, gap, top, name = 0.62, (1.2, 1.15), (0.5, 0.32 + more), 0.25 + more, 0.27
    width = max(left + columns * cell[0] + (columns - 1) * gap[0] + 0.12, 4.2)
    height = top + rows * cell[1] + (rows - 1) * gap[1] + foot + name
    figure = new_figure(width, height, DPI)
    axes = []
    for j in range(n):
        x = left + (j % columns) * (cell[0] + gap[0])
        y = height - top - cell[1] - (j // columns) * (cell[1] + gap[1])
        one = figure.add_axes((x / width, y / height, cell[0] / width, cell[1] / height))
        one.spines[["top", "right"]].set_visible(False)
        one.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        # names of ticks under the last axes of each column only: all of them have the same
        one.tick_params(labelsize=6, length=2, pad=2, labelbottom=j + columns >= n)
        axes.append(one)
    return figure, axes


def _group_names(labels: Sequence[str]) -> list[str]:
    return [verbatim(label if len(label) <= 12 else f"{label[:11]}…") for label in labels]


def _turned(names: list[str]) -> bool:
    """Whether names are too long to stand side by side."""
    return len(names) > 3 or max(map(len, names)) > 5


def _room_for(names: list[str]) -> float:
    """Inches under an axis for the names of its groups."""
    return 0.12 + 0.062 * max(map(len, names)) if _turned(names) else 0.22


def _scatter(axes: Any, x: np.ndarray, y: np.ndarray) -> None:
    known = np.isfinite(x)
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    _points(axes, x[known], y[known], s=6, alpha=0.6)
    slope, level = np.polyfit(x[known], y[known], 1)
    ends = np.array([x[known].min(), x[known].max()])
    axes.plot(ends, level + slope * ends, color=_ORANGE, linewidth=1.2)


def _points(
    axes: Any, x: np.ndarray, y: np.ndarray, colour: str = _BLUE, cells: int = 80, **style: Any
) -> None:
    """One point per person; of very many their density, darker where they are more."""
    if np.size(y) <= MOST_POINTS:
        axes.scatter(x, y, color=colour, linewidths=0, **style)
        return
    from matplotlib.colors import to_rgb

    known = np.isfinite(x) & np.isfinite(y)
    counts, across, up = np.histogram2d(x[known], y[known], bins=(cells, 60))
    image = np.empty((*counts.T.shape, 4))
    image[..., :3], image[..., 3] = to_rgb(colour), np.sqrt(counts.T / counts.max())
    how = {"origin": "lower", "aspect": "auto", "interpolation": "nearest"}
    axes.imshow(image, extent=(across[0], across[-1], up[0], up[-1]), **how)
    axes.plot([], [], "s", color=colour, label=style.get("label"))


def _boxes(axes: Any, item: Grouping, y: np.ndarray) -> None:
    groups = [y[item.codes == g] for g in range(len(item.labels))]
    shown = {"medianprops": {"color": _ORANGE}, "flierprops": {"markersize": 2}, "widths": 0.55}
    axes.boxplot(groups, whis=(0, 100), **shown)
    names = _group_names(item.labels)
    axes.set_xticks(range(1, len(names) + 1), names, **({"rotation": 90} if _turned(names) else {}))


def draw_effects(found: AssociationTables, k: int) -> Any:
    """Each term's estimates with their 95 % intervals; the size of its effects where a term has
    several columns.
    """
    tests = {name: np.array(values) for name, values in found.tests.items()}
    keys = ("kind", "term", "measure")
    terms = list(dict.fromkeys(zip(*(found.tests[key] for key in keys), strict=True)))[
        :MOST_COLUMNS
    ]
    columns = min(3, len(terms))
    rows = -(-len(terms) // columns)
    wide = max(4.4 if columns == 1 else 2.8, 0.16 * k + 1.2)  # the line below takes 4.2
    figure, axes = _new_axes(wide * columns, 2.5 * rows, columns, rows)
    for one, (kind, term, measure) in zip(axes.flat, terms, strict=False):
        own = (tests["kind"] == kind) & (tests["term"] == term) & (tests["measure"] == measure)
        at, p = tests["component"][own], tests["p"][own]
        several = np.isnan(tests["estimate"][own]).all()
        middle = tests["standardized" if several else "estimate"][own]
        for chosen, colour in ((p < 0.05, _ORANGE), (~(p < 0.05), _GREY)):
            if not several:
                one.vlines(
                    at[chosen],
                    tests["ci_low"][own][chosen],
                    tests["ci_high"][own][chosen],
                    color=colour,
                )
            one.plot(at[chosen], middle[chosen], "o", color=colour, markersize=4)
        one.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        _component_ticks(one, k)
        title = verbatim(term if len(term) <= 40 else f"{term[:39]}…")
        one.set_title(f"{title}, {measure}" if measure else title, fontsize=8)
        one.set_ylabel("Cohen's f" if several else "estimate, 95 % interval", fontsize=8)
    for one in axes.flat[len(terms) :]:
        one.set_axis_off()
    corrected = f"corrected over {found.over}" if found.corrected else "by theory, not corrected"
    figure.supxlabel(f"component; orange: p < 0.05, {corrected}", fontsize=8)
    return figure


def draw_along(one: AdjustedColumn, called: Sequence[str], measures: Sequence[str] = ()) -> Any:
    """Adjusted loadings of every component (of every measure) along a column, with what the model
    expects.
    """
    names, k = None if one.labels is None else _group_names(one.labels), len(called)
    figure, axes = _grid(
        [*called] * max(1, len(measures)), 0.22 if names is None else _room_for(names)
    )
    spread = 0.0 if names is None else 0.3 * ((np.arange(len(one.values)) * 0.618) % 1 - 0.5)
    for j, small in enumerate(axes):
        mean, low, high = one.expected[:, :, j]
        _points(small, one.values + spread, one.adjusted[:, j], s=5, alpha=0.45)
        if names is None:
            small.fill_between(one.at, low, high, color=_ORANGE, alpha=0.25, linewidth=0)
            small.plot(one.at, mean, color=_ORANGE, linewidth=1.2)
        else:
            small.vlines(one.at, low, high, color=_ORANGE, linewidth=1.6)
            small.plot(one.at, mean, "_", color=_ORANGE, markersize=9, markeredgewidth=1.6)
            small.set_xticks(one.at, names, **({"rotation": 90} if _turned(names) else {}))
            small.set_xlim(-0.5, len(names) - 0.5)
        of = f", {measures[j // k]}" if measures else ""
        small.set_title(f"{_shortened(called[j % k])}{j % k + 1}{of}", fontsize=7, pad=3, y=1.0)
    text = (
        f"{verbatim(one.column)} (n = {len(one.values)}; orange: expected, with its 95 % interval)"
    )
    figure.text(0.5, 0.06 / figure.get_size_inches()[1], text, fontsize=9, ha="center", va="bottom")
    figure.text(0.012, 0.5, "adjusted loading", fontsize=9, ha="left", va="center", rotation=90)
    return figure


def draw_norm(found: NormTables) -> Any:
    """W-scores of everybody, those of the reference in grey."""
    measures = found.measures or ("",)
    k = found.scores.shape[1] // len(measures)
    figure, rows_of_axes = _new_axes(max(5.2, 0.4 * k + 1), 3.4 * len(measures), 1, len(measures))
    spread = 0.3 * ((np.arange(len(found.scores)) * 0.618) % 1 - 0.5)
    for (axes,), measure, scores in zip(
        rows_of_axes, measures, np.split(found.scores, len(measures), 1), strict=True
    ):
        for own, colour, aside, label in (
            (True, _GREY, -0.18, "reference"),
            (False, _ORANGE, 0.18, "others"),
        ):
            rows = found.reference == own
            at = np.arange(k)[None] + (aside + spread[rows])[:, None]
            _points(
                axes, at.ravel(), scores[rows].ravel(), colour, 10 * k, s=5, alpha=0.6, label=label
            )
        for value, style in ((0, "-"), (-1.96, "--"), (1.96, "--")):
            axes.axhline(value, color="0.6", linewidth=0.8, linestyle=style, zorder=0)
        _component_ticks(axes, k)
        axes.set_title(measure, fontsize=8)
        axes.set_xlabel("component", fontsize=9)
        axes.set_ylabel(
            f"W-score against {verbatim(str(found.settings['chosen_by'])[:40])}", fontsize=8
        )
    rows_of_axes[0][0].legend(fontsize=7, frameon=False)
    return figure


def draw_stability(stability: Mapping[str, list[float]]) -> Any:
    k = len(stability["stability"])
    figure, (row,) = _new_axes(max(6.4, 0.3 * k + 2), 2.6, 2)
    middle, low = np.array(stability["stability"]), np.array(stability["stability_5th_percentile"])
    row[0].vlines(np.arange(k), low, middle, color=_GREY, linewidth=2)
    row[0].plot(np.arange(k), middle, "o", color=_BLUE, markersize=5)
    row[0].set_ylim(min(0.0, float(np.nanmin(low))), 1.03)
    row[0].set_ylabel("correlation with resamples\n(line: down to the 5th percentile)", fontsize=8)
    row[1].bar(np.arange(k), stability["relative_standard_error"], 0.75, color=_GREEN)
    row[1].set_ylabel("standard error of the map\n/ size of the map", fontsize=8)
    for axes in row:
        _component_ticks(axes, k)
        axes.set_xlabel("component", fontsize=9)
    return figure


def draw_overlap(overlap: Mapping[str, list[Any]]) -> Any:
    """Each component's largest shares, darker where enriched."""
    shown = [(j, rows_to_show(overlap, j)) for j in sorted(set(overlap["component"]))]
    lines = sum(len(rows) + 1.4 for _, rows in shown)
    figure, ((axes,),) = _new_axes(6.8, 0.16 * lines + 0.7)
    at = 0.0
    places: list[float] = []
    names: list[str] = []
    for j, rows in shown:
        title = f"Component {j}: {verbatim(name_with_shares(overlap, j, overlap['proposed_name'][rows[0]]))}"
        axes.text(0, at, title, fontsize=7, fontweight="bold", va="center")
        for row in rows:
            at += 1
            clear = overlap["q"][row] <= ENRICHED
            axes.barh(at, 100 * overlap["share"][row], 0.8, color=_BLUE if clear else _GREY)
            found = f" {overlap['enrichment'][row]:.1f} ×, q = {overlap['q'][row]:.3f}"
            axes.text(100 * overlap["share"][row], at, found, fontsize=6, va="center")
            places.append(at)
            names.append(verbatim(overlap["region"][row]))
        at += 1.4
    axes.set_ylim(at - 0.5, -0.8)
    axes.set_xlim(0, 1.25 * 100 * max(overlap["share"]))
    axes.set_yticks(places, names, fontsize=6)
    axes.set_xlabel("share of the component's mass (%); blue: enriched, q ≤ 0.05", fontsize=8)
    return figure


def _new_axes(
    width: float = 5.2,
    height: float = 3.4,
    columns: int = 1,
    rows: int = 1,
    margins: tuple[float, float, float, float] | None = None,
    aside: float = 0.0,
) -> tuple[Any, Any]:
    """A grid of axes. `margins` (left, right, bottom and top of each, in inches) are given where
    the text around the axes is known: matplotlib's search for places takes as long as drawing.
    `aside` inches at the right stay free.
    """
    figure = new_figure(width, height, DPI)
    if margins is None:
        figure.set_layout_engine("constrained", w_pad=0.09, h_pad=0.09)
        axes = figure.subplots(rows, columns, squeeze=False)
    else:
        left, right, bottom, top = margins
        across, down = (width - aside) / columns, height / rows
        size = (across - left - right, down - bottom - top)
        axes = np.empty((rows, columns), dtype=object)
        for row, column in np.ndindex(rows, columns):
            x, y = column * across + left, height - (row + 1) * down + bottom
            one = figure.add_axes((x / width, y / height, size[0] / width, size[1] / height))
            one.xaxis.set_label_coords(0.5, (0.21 - bottom) / size[1])
            one.yaxis.set_label_coords((0.21 - left) / size[0], 0.5)
            axes[row, column] = one
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(labelsize=8)
    return figure, axes


def _component_ticks(axes: Any, k: int, both: bool = False) -> None:
    step = max(1, -(-k // 20))
    at = np.arange(0, k, step)
    axes.set_xticks(at, [str(j + 1) for j in at])
    if both:
        axes.set_yticks(at, [str(j + 1) for j in at])
