"""Figures of what `icofactor select` found: how many components, how far to trust them, where they lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from icofactor.results.report.axes import BLUE, GREEN, GREY, ORANGE, component_ticks, new_axes, words

_CHARTS: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "Do halves of the subjects agree?",
        {"agreement": "halves", "null_agreement": "halves of rotated maps", "score": "score"},
    ),
    (
        "Error, share of between-subject variance",
        {"bicv": "blocks left out", "heldout": "subjects left out", "error": "data fitted"},
    ),
    ("Gain of one more component", {"gain": "in the data fitted"}),
    ("Do random starts agree?", {"cophenetic": "cophenetic correlation", "dispersion": "dispersion"}),
)
_COLOURS = (BLUE, ORANGE, GREEN)
_REGIONS = 5


def selection_charts(table: Mapping[str, list[Any]]) -> list[tuple[str, dict[str, str]]]:
    """Which columns to draw together against the first: title, and column → its name."""
    known = [(title, {column: name for column, name in curves.items() if column in table}) for title, curves in _CHARTS]
    found = [(title, curves) for title, curves in known if curves]
    return found or [(column, {column: column}) for column in list(table)[1:7]]


def draw_selection(selection: Mapping[str, Any]) -> Any:
    """The curves against the number of components; the recommended one is marked."""
    table = selection["table"]
    charts = selection_charts(table)
    first = next(iter(table))
    columns = min(2, max(1, len(charts)))
    rows = max(1, -(-len(charts) // columns))
    figure, axes = new_axes(3.6 * columns, 2.6 * rows, columns, rows)
    x = np.array(table[first], dtype=float)
    for one, (title, curves) in zip(axes.flat, charts, strict=False):
        if selection.get("recommended") is not None:
            one.axvline(float(selection["recommended"]), color="0.85", linewidth=5, zorder=0)
        for colour, (column, name) in zip(_COLOURS, curves.items(), strict=False):
            y = np.array(table[column], dtype=float)
            one.plot(x, y, "o-", color=colour, markersize=3, linewidth=1.2, label=words(name))
        one.set_title(words(title), fontsize=9)
        one.set_xlabel("components" if first == "rank" else words(first), fontsize=8)
        one.xaxis.get_major_locator().set_params(integer=True)
        if len(curves) > 1:
            one.legend(fontsize=7, frameon=False)
    for one in list(axes.flat)[len(charts) :]:
        one.set_axis_off()
    return figure


def draw_stability(stability: Mapping[str, list[float]]) -> Any:
    k = len(stability["stability"])
    figure, (row,) = new_axes(max(6.4, 0.3 * k + 2), 2.6, 2)
    middle, low = np.array(stability["stability"]), np.array(stability["stability_5th_percentile"])
    row[0].vlines(np.arange(k), low, middle, color=GREY, linewidth=2)
    row[0].plot(np.arange(k), middle, "o", color=BLUE, markersize=5)
    row[0].set_ylim(min(0.0, float(np.nanmin(low))), 1.03)
    row[0].set_ylabel("correlation with resamples\n(line: down to the 5th percentile)", fontsize=8)
    row[1].bar(np.arange(k), stability["relative_standard_error"], 0.75, color=GREEN)
    row[1].set_ylabel("standard error of the map\n/ size of the map", fontsize=8)
    for axes in row:
        component_ticks(axes, k)
        axes.set_xlabel("component", fontsize=9)
    return figure


def draw_overlap(overlap: Mapping[str, list[Any]], k: int) -> Any:
    """Each component's largest shares, darker where enriched."""
    shown = [(j, _largest(overlap, j)) for j in range(1, k + 1)]
    lines = sum(len(rows) + 1.4 for _, rows in shown)
    figure, ((axes,),) = new_axes(6.8, 0.16 * lines + 0.7)
    at = 0.0
    places: list[float] = []
    names: list[str] = []
    for j, rows in shown:
        title = f"Component {j}: {words(overlap['proposed_name'][rows[0]])}"
        axes.text(0, at, title, fontsize=7, fontweight="bold", va="center")
        for row in rows:
            at += 1
            clear = overlap["p"][row] <= 0.05
            axes.barh(at, 100 * overlap["share"][row], 0.8, color=BLUE if clear else GREY)
            found = f" {overlap['enrichment'][row]:.1f} ×, p = {overlap['p'][row]:.3f}"
            axes.text(100 * overlap["share"][row], at, found, fontsize=6, va="center")
            places.append(at)
            names.append(words(overlap["region"][row]))
        at += 1.4
    axes.set_ylim(at - 0.5, -0.8)
    axes.set_xlim(0, 1.25 * 100 * max(overlap["share"]))
    axes.set_yticks(places, names, fontsize=6)
    axes.set_xlabel("share of the component's mass (%); blue: enriched, p ≤ 0.05", fontsize=8)
    return figure


def _largest(overlap: Mapping[str, list[Any]], component: int, most: int = _REGIONS) -> list[int]:
    """Rows of a component's largest shares, and of the regions that its name comes from."""
    rows = [row for row, j in enumerate(overlap["component"]) if j == component]
    rows.sort(key=lambda row: -overlap["share"][row])
    names = overlap["proposed_name"][rows[0]].removesuffix("?").split(", ")
    return [row for at, row in enumerate(rows) if at < most or overlap["region"][row] in names]
