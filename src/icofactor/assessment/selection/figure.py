"""The curves of a selection in one figure."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from icofactor.assessment.selection.choice import Choice

_DATA, _NULL, _OTHER, _PICK = "#0b6e8f", "0.5", "#c4561a", "0.88"
_MOST_TICKS = 12
_LINE: dict[str, Any] = {"marker": "o", "markersize": 3, "linewidth": 1.4}
_THIN: dict[str, Any] = {"marker": ".", "markersize": 3, "linewidth": 1}


def draw(choice: Choice) -> Any:
    """Four panels: agreement of halves against rotated maps, held-out errors, training error, starts."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    t = {name: np.asarray(column) for name, column in choice.table.items()}
    figure = Figure(figsize=(9.6, 7.8), dpi=120, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 10))
    head, body = parts
    _words(head, choice)
    axes = body.subplots(2, 2)
    _agreement(axes[0, 0], t)
    _heldout(axes[0, 1], t)
    _gain(axes[1, 0], t)
    _starts(axes[1, 1], t)
    for one in axes.ravel():
        _finish(one, t["rank"], choice.recommended)
    return figure


def _words(head: Any, choice: Choice) -> None:
    title = "No structure" if choice.recommended is None else f"{choice.recommended} components recommended"
    head.text(0.01, 0.90, title, fontsize=12, fontweight="bold", va="top")
    reason = "\n".join(textwrap.wrap(choice.reasons[0], 140))
    head.text(0.01, 0.52, reason, fontsize=8.5, va="top", color="0.25", linespacing=1.3)


def _finish(axes: Any, ranks: np.ndarray, recommended: int | None) -> None:
    axes.set_xlabel("components", fontsize=8.5)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(ranks[0] - 0.5, ranks[-1] + 0.5)
    ticks = [int(rank) for rank in ranks[:: -(-len(ranks) // _MOST_TICKS)]]
    axes.set_xticks(sorted({*ticks, *([] if recommended is None else [recommended])}))
    if recommended is None:
        return
    axes.axvline(recommended, color=_PICK, linewidth=9, zorder=0)
    for label, rank in zip(axes.get_xticklabels(), axes.get_xticks(), strict=True):
        if rank == recommended:
            label.set_fontweight("bold")


def _titled(axes: Any, title: str, unit: str) -> None:
    axes.set_title(title, fontsize=9.5, loc="left")
    axes.set_ylabel(unit, fontsize=8.5)
    if axes.get_legend_handles_labels()[0]:
        below = {"loc": "upper left", "bbox_to_anchor": (-0.02, -0.17), "borderaxespad": 0.0}  # never on the curves
        axes.legend(fontsize=7.5, frameon=False, ncols=2, **below)


def _agreement(axes: Any, t: dict[str, np.ndarray]) -> None:
    low, high = t["null_agreement"] - 2 * t["null_sd"], t["null_agreement"] + 2 * t["null_sd"]
    x = t["rank"]
    axes.errorbar(x, t["agreement"], t["agreement_se"], color=_DATA, **_LINE)
    axes.plot(x, t["agreement"], color=_DATA, label="halves: mean of the next two", **_LINE)
    axes.plot(x, t["correlation"], color=_DATA, linestyle=":", label="correlation of maps", **_THIN)
    axes.plot(x, t["ari"], color=_DATA, linestyle="--", label="adjusted Rand index", **_THIN)
    axes.fill_between(x, low, high, color=_NULL, alpha=0.25, linewidth=0)
    axes.plot(x, t["null_agreement"], color=_NULL, label="halves of rotated maps, ± 2 sd", **_LINE)
    axes.plot(x, t["score"], color=_OTHER, label="score, largest where recommended", **_LINE)
    _titled(axes, "Do halves of the subjects agree?", "agreement; score")


def _heldout(axes: Any, t: dict[str, np.ndarray]) -> None:
    for name, colour, label in (("bicv", _DATA, "blocks left out"), ("heldout", _OTHER, "subjects left out")):
        axes.errorbar(t["rank"], t[name], t[f"{name}_se"], color=colour, **_LINE)
        axes.plot(t["rank"], t[name], color=colour, label=f"{label}, ± se", **_LINE)
    axes.plot(t["rank"], t["error"], color=_NULL, label="data fitted", **_LINE)
    _titled(axes, "What is left unexplained?", "share of between-subject variance")


def _gain(axes: Any, t: dict[str, np.ndarray]) -> None:
    step = np.diff(t["rank"])
    for name, colour, label in (("half_error", _DATA, "halves"), ("null_error", _NULL, "halves of rotated maps")):
        if len(step):
            axes.plot(t["rank"][1:], -np.diff(t[name]) / step, color=colour, label=label, **_LINE)
    if not len(step):
        _nothing(axes, "only one number was tried")
    _titled(axes, "What does one more component gain in the data fitted?", "share of between-subject variance")


def _starts(axes: Any, t: dict[str, np.ndarray]) -> None:
    if np.isfinite(t["cophenetic"]).any():
        axes.plot(t["rank"], t["cophenetic"], color=_DATA, label="cophenetic correlation", **_LINE)
        axes.plot(t["rank"], t["dispersion"], color=_OTHER, label="dispersion", **_LINE)
    else:
        _nothing(axes, "only one start was made")
    _titled(axes, "Do random starts agree?", "1: all lead to one parcellation")


def _nothing(axes: Any, why: str) -> None:
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", fontsize=8.5, color="0.4")
    axes.set_yticks([])
