"""Plots of the results: speed of the updates, error against time, growth, in colours that all eyes tell apart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.io.atomic import atomic_path

# Okabe and Ito's palette, black first
_COLOURS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#999999")
_MARKERS = "osD^vP*X"
_OURS = "#D55E00"
_LEAST_ABOVE = 0.01
"""Percent above the best error at which the best itself is drawn."""


def write_plots(results: dict[str, Any], folder: Path) -> None:
    """One PNG per experiment that has something to draw; their names are added to the results."""
    drawings: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
        "a": ("multistart.png", _speed),
        "b": ("time_to_error.png", _time_to_error),
        "c": ("growth.png", _growth),
    }
    for name, (file, draw) in drawings.items():
        outcome = results["experiments"].get(name)
        if outcome is None:
            continue
        figure = draw(outcome)
        with atomic_path(folder / file, overwrite=True) as path:
            figure.savefig(path, dpi=150)
        outcome["plots"] = [file]


def _figure(rows: int, columns: int, width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(which="both", labelsize=8)
    return figure, axes


def _speed(outcome: dict[str, Any]) -> Any:
    """Seconds of 10⁶ updates, one group of bars per method."""
    rows = outcome["tables"][0]["rows"]
    names = list(dict.fromkeys(row["method"] for row in rows))
    kinds = [(r, p) for r in ("paper", "default") for p in ("float64", "float32")]
    figure, axes = _figure(1, 1, 7.5, 0.42 * len(names) + 1.2)
    ax = axes[0, 0]
    for row in rows:
        kind = kinds.index((row["rules"], row["precision"]))
        y, seconds = names.index(row["method"]) + 0.2 * (kind - 1.5), row["s per 10⁶ updates"]
        ax.barh(y, seconds, 0.18, color=_COLOURS[(4, 2, 5, 1)[kind]])
        share = f"  {seconds:.2g} s, {100 * row['fraction of gemm']:.0f} %"
        ax.text(seconds, y, share, va="center", fontsize=5)
    for kind, (rules, precision) in enumerate(kinds):
        ax.barh(np.nan, 1, color=_COLOURS[(4, 2, 5, 1)[kind]], label=f"{rules} rules, {precision}")
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlabel("seconds for 10⁶ updates (and % of the matrix product's speed)", fontsize=8)
    ax.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.06), ncols=4)
    ax.margins(x=0.12)
    return figure


def _time_to_error(outcome: dict[str, Any]) -> Any:
    """Error above the best against time, a panel per dataset that has peers; ours are dots, peers are lines."""
    tables = [t for t in outcome["tables"] if any(r.get("path") and r["family"] != "ours" for r in t["rows"])]
    figure, axes = _figure(max(1, len(tables)), 1, 9.0, 4.6)
    for ax, table in zip(axes.flat, tables, strict=False):
        peers = [row for row in table["rows"] if row.get("path") and row["family"] != "ours"]
        labels = []
        for i, row in enumerate(peers):
            seconds, above = _curve(row)
            colour = _COLOURS[(0, 2, 3, 4, 6, 7, 1)[i % 7]]
            ax.plot(seconds, above, color=colour, marker=_MARKERS[i % 8], ms=3, lw=1.2)
            labels.append((seconds[-1], above[-1], row["solver"], colour))
        for row in table["rows"]:
            if row.get("path") and row["family"] == "ours":
                seconds, above = _curve(row)
                ax.plot(seconds, above, "o", color=_OURS, ms=5, zorder=3)
                labels.append((seconds[-1], above[-1], row["solver"].removeprefix("icofactor, "), _OURS))
        for share, text in ((5, "1.05 × best"), (1, "1.01 ×"), (0.5, "1.005 ×")):
            ax.axhline(share, color="#BBBBBB", lw=0.7, zorder=0)
            ax.annotate(text, (0, share), xycoords=("axes fraction", "data"), fontsize=6, color="#777777", va="bottom")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_ylim(0.7 * _LEAST_ABOVE, 300)  # what lies above is the first instants of the peers
        _spread(ax, labels)
        ax.set_title(f"{table['title']}  (orange dots: icofactor)", fontsize=9, loc="left")
        ax.set_xlabel("seconds", fontsize=8)
        ax.set_ylabel("error above the best, %", fontsize=8)
    return figure


def _curve(row: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds, and error above the best in percent, drawn at least at _LEAST_ABOVE so that the best itself shows."""
    path = np.array([(seconds, ratio) for _, seconds, _, ratio in row["path"]])
    return path[:, 0], np.maximum(100 * (path[:, 1] - 1), _LEAST_ABOVE)


def _spread(ax: Any, labels: list[tuple[float, float, str, str]]) -> None:
    """Names beside their last points, in a column at the right, moved apart where they would touch."""
    low, high = np.log10(ax.get_ylim())
    order = sorted(labels, key=lambda label: label[1])
    places = np.clip([(np.log10(y) - low) / (high - low) for _, y, _, _ in order], 0.0, 1.0)
    step = 0.042
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + step)
    for i in range(len(places) - 1, -1, -1):
        places[i] = min(places[i], 1.0 - step * (len(places) - 1 - i))
    for (x, y, text, colour), place in zip(order, places, strict=True):
        line = {"arrowstyle": "-", "color": colour, "lw": 0.4, "alpha": 0.6, "shrinkA": 0, "shrinkB": 2}
        ax.annotate(
            text, (x, min(y, 10**high)), xytext=(1.02, place), textcoords="axes fraction", fontsize=6.5, color=colour,
            va="center", arrowprops=line, annotation_clip=False,
        )  # fmt: skip


def _growth(outcome: dict[str, Any]) -> Any:
    """Time above, memory below; one column per axis of growth."""
    tables = outcome["tables"]
    figure, axes = _figure(2, len(tables), 3.4, 2.8)
    for column, table in enumerate(tables):
        axis, rows = table["title"].removeprefix("In "), table["rows"]
        x = np.array([row[axis] for row in rows], dtype=float)
        take = lambda key, rows=rows: np.array([row[key] for row in rows])
        top, bottom = axes[0, column], axes[1, column]
        seconds = take("seconds")
        top.plot(x, seconds, "o-", color=_OURS, ms=4)
        top.plot(x, seconds[-1] * x / x[-1], "--", color="#999999", lw=0.8)
        top.annotate("linear", (x[0], seconds[-1] * x[0] / x[-1]), fontsize=6, color="#777777", va="top")
        baseline = take("baseline (MiB)")
        for name, y, colour, style in (
            ("peak", take("peak (MiB)") - baseline, _OURS, "o-"),
            ("allowed", take("allowed (MiB)") - baseline, "#0072B2", "--"),
            ("X", take("X (MiB)"), "#009E73", ":"),
        ):
            bottom.plot(x, np.maximum(y, 0.01), style, color=colour, ms=4, lw=1.2, label=name)
        top.set_title(table["note"].replace("; ", "\n"), fontsize=7, loc="left")
        top.set_ylabel("seconds", fontsize=8)
        bottom.set_ylabel("memory above the baseline, MiB", fontsize=8)
        bottom.set_xlabel(axis, fontsize=8)
        for ax in (top, bottom):
            _log_axes(ax, x)
    axes[1, 0].legend(fontsize=7, frameon=False)
    return figure


def _log_axes(ax: Any, x: np.ndarray) -> None:
    """Logarithmic axes, the measured places named and nothing between them."""
    from matplotlib.ticker import LogLocator, NullLocator

    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(x, [f"{value:g}" for value in x])
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter("{x:g}")
