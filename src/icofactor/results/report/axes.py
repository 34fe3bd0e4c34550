"""Axes for the figures of panels, alike in all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from icofactor.results.report.drawing import new_figure

BLUE, ORANGE, GREEN, GREY = "#0b6ea8", "#d55e00", "#009e73", "0.55"
DPI = 200


def words(text: str) -> str:
    """Words of the data as they are: matplotlib would read a pair of dollar signs as mathematics."""
    return str(text).replace("$", r"\$")


def new_axes(width: float = 5.2, height: float = 3.4, columns: int = 1, rows: int = 1) -> tuple[Any, Any]:
    figure = new_figure(width, height, DPI)
    figure.set_layout_engine("constrained", w_pad=0.09, h_pad=0.09)
    axes = figure.subplots(rows, columns, squeeze=False)
    for one in axes.flat:
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(labelsize=8)
    return figure, axes


def component_ticks(axes: Any, k: int, both: bool = False) -> None:
    step = max(1, -(-k // 20))
    at = np.arange(0, k, step)
    axes.set_xticks(at, [str(j + 1) for j in at])
    if both:
        axes.set_yticks(at, [str(j + 1) for j in at])
