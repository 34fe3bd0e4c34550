"""The style of all figures: colours that all eyes tell apart, plain axes, plain numbers on logarithmic scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from icofactor.results.report.drawing import new_figure

DPI = 150
BLACK, ORANGE, SKY, GREEN, BLUE, RED, PINK, GREY = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#999999",
)  # fmt: skip
"""Okabe and Ito's palette; `OURS` is icofactor where others are shown."""
OURS, YELLOW, FAINT = RED, "#F0E442", "#e3e6ea"
SCHEMES = {"DL": "#333333", "PNNMF": BLUE, "SPNNMF": GREEN, "PPNMF": RED}
"""The paper's schemes and their colours."""
_MARKERS = {"": "o", "E-": "s", "LE-": "^"}


def parts_of(method: str) -> tuple[str, str]:
    """Extrapolation and scheme of a method's name."""
    prefix, _, scheme = method.rpartition("-")
    return (f"{prefix}-" if prefix else ""), scheme


def marker_of(method: str) -> dict[str, Any]:
    """How a method's points are drawn: colour by scheme, shape by extrapolation, standard extrapolation hollow."""
    prefix, scheme = parts_of(method)
    colour = SCHEMES[scheme]
    face = "white" if prefix == "E-" else colour
    return {"linestyle": "", "marker": _MARKERS[prefix], "color": colour, "markerfacecolor": face, "label": method}


def panels(
    rows: int,
    columns: int,
    size: tuple[float, float],
    margins: tuple[float, float, float, float] | None = None,
    spaces: tuple[float, float] = (0.12, 0.1),
    **shared: Any,
) -> tuple[Any, Any]:
    """A figure of `size` inches and its panels.

    Parameters
    ----------
    margins : left, right, bottom, top, in inches. None leaves the layout to matplotlib, which takes longer than all
        the drawing.
    spaces : between panels, as parts of a panel's width and height; with `margins` only.
    """
    width, height = size
    figure = new_figure(width, height, DPI)
    if margins is None:
        figure.set_layout_engine("constrained")
    else:
        left, right, bottom, top = margins
        figure.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height, *spaces)
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(labelsize=8, which="major" if margins else "both")
    return figure, axes


def plain_log(ax: Any, which: str) -> None:
    """A logarithmic axis ("x" or "y") over a decade or two, with plain numbers."""
    from matplotlib.ticker import LogLocator, NullLocator

    getattr(ax, f"set_{which}scale")("log")
    axis = getattr(ax, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:g}")


def named_log(ax: Any, x: np.ndarray) -> None:
    """A logarithmic x axis with the measured places named and nothing between them."""
    from matplotlib.ticker import NullLocator

    ax.set_xscale("log")
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(x, [f"{value:g}" for value in x])


def methods_on_y(ax: Any, names: list[str] | tuple[str, ...]) -> None:
    """Rows named from the top down."""
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()


def legend_beside(ax: Any) -> None:
    ax.legend(fontsize=7.5, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
