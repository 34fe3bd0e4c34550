"""The curves of a selection in one figure."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from icofactor.selection.choice import Choice

_DATA, _NULL, _OTHER, _PICK = "#0b6e8f", "0.55", "#c4561a", "0.8"


def draw(choice: Choice) -> Any:
    """Four panels: agreement of halves against rotated maps, held-out errors, training error, starts."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    t = {name: np.asarray(column) for name, column in choice.table.items()}
    figure = Figure(figsize=(9.6, 6.4), dpi=120, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2)
    _agreement(axes[0, 0], t)
    _heldout(axes[0, 1], t)
    _training(axes[1, 0], t)
    _starts(axes[1, 1], t)
    for one in axes.ravel():
        one.set_xlabel("components")
        one.spines[["top", "right"]].set_visible(False)
        one.xaxis.get_major_locator().set_params(integer=True)
        if choice.recommended is not None:
            one.axvline(choice.recommended, color=_PICK, linewidth=6, zorder=0)
    title = "no structure" if choice.recommended is None else f"{choice.recommended} components recommended"
    figure.suptitle("\n".join(textwrap.wrap(f"{title}. {choice.reasons[0]}", 120)), fontsize=9)
    return figure


def _agreement(axes: Any, t: dict[str, np.ndarray]) -> None:
    low, high = t["null_agreement"] - 2 * t["null_sd"], t["null_agreement"] + 2 * t["null_sd"]
    axes.fill_between(t["rank"], low, high, color=_NULL, alpha=0.3, linewidth=0)
    axes.plot(t["rank"], t["null_agreement"], color=_NULL, label="rotated maps (± 2 sd)")
    axes.errorbar(t["rank"], t["agreement"], t["agreement_se"], color=_DATA, marker="o", markersize=3, label="halves")
    axes.plot(t["rank"], t["score"], color=_OTHER, marker="o", markersize=3, label="score")
    axes.plot(t["rank"], t["correlation"], color=_DATA, linestyle=":", linewidth=1, label="correlation of maps")
    axes.plot(t["rank"], t["ari"], color=_DATA, linestyle="--", linewidth=1, label="adjusted Rand index")
    axes.set_title("Do halves of the subjects agree?", fontsize=9)
    axes.legend(fontsize=7, frameon=False)


def _heldout(axes: Any, t: dict[str, np.ndarray]) -> None:
    for name, colour, label in (("bicv", _DATA, "blocks left out"), ("heldout", _OTHER, "subjects left out")):
        axes.errorbar(t["rank"], t[name], t[f"{name}_se"], color=colour, marker="o", markersize=3, label=label)
    axes.plot(t["rank"], t["error"], color=_NULL, label="data fitted")
    axes.set_title("Error, share of between-subject variance", fontsize=9)
    axes.legend(fontsize=7, frameon=False)


def _training(axes: Any, t: dict[str, np.ndarray]) -> None:
    step = np.diff(t["rank"])
    for name, colour, label in (("half_error", _DATA, "halves"), ("null_error", _NULL, "halves of rotated maps")):
        axes.plot(t["rank"][1:], -np.diff(t[name]) / step, color=colour, marker="o", markersize=3, label=label)
    axes.set_title("Gain of one more component in the data fitted", fontsize=9)
    axes.legend(fontsize=7, frameon=False)


def _starts(axes: Any, t: dict[str, np.ndarray]) -> None:
    axes.plot(t["rank"], t["cophenetic"], color=_DATA, marker="o", markersize=3, label="cophenetic correlation")
    axes.plot(t["rank"], t["dispersion"], color=_OTHER, marker="o", markersize=3, label="dispersion")
    axes.set_title("Do random starts agree?", fontsize=9)
    axes.legend(fontsize=7, frameon=False)
