"""Maps on the cortex: the paper's last figure, and first basis maps of all eleven methods."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from icofactor.factorization.methods import PAPER_METHODS
from icofactor.results.report.drawing import PANEL, Raster, colour_bar, new_figure, paint, rasterise, show
from icofactor.results.report.surfaces import cortex_of, labels_on_vertices, on_vertices
from icofactor.sphere.sites import Sites
from icofactor.streaming.checkpoint import Arrays
from icofactor_lab.reproduce.datasets import Dataset, Maps

VIEWS = ("lateral", "medial")
_DPI = 150


class _Canvas:
    """The two views of a hemisphere, worked out once."""

    def __init__(self, every: Sites, side: str) -> None:
        self.every = every
        half = cortex_of(every, side).hemispheres[0]
        shape = "inflated" if "inflated" in half.shapes else next(iter(half.shapes))
        self.vertices = half.vertices
        self.rasters: list[Raster] = [rasterise(half, shape, view) for view in VIEWS]

    def draw(
        self, axes: Any, view: int, values: np.ndarray, low: float, high: float, colours: Any, steps: bool
    ) -> None:
        """A map on one view, grey where it is NaN."""
        if steps:  # whole numbers have nothing between them
            on = labels_on_vertices(self.every, np.where(np.isfinite(values), values, -1))[0].astype(np.float64)
            on[on < 0] = np.nan
        else:
            on = on_vertices(self.every, values)[0]
        level = (on[self.vertices] - low) / (high - low if high > low else 1.0)

        def painted(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            known = np.isfinite(at)
            return colours(np.where(known, at, 0.0))[:, :3], known.astype(np.float64)

        show(axes, paint(self.rasters[view], level, painted, steps))


@cache
def _canvas(name: str, on: Any, side: str) -> _Canvas:
    return _Canvas(Sites.named(name, on=on), side)


def _canvas_of(every: Sites, side: str) -> _Canvas:
    return _canvas(every.name, every.on, side) if every.name else _Canvas(every, side)


def map_plate(dataset: Dataset, maps: Maps, piece: Arrays) -> Any:
    """Median, standard deviation, depth and first basis maps; a column each, lateral above medial."""
    from matplotlib import colormaps

    shown: list[tuple[str, np.ndarray, bool]] = [
        (f"A. median{_units(dataset)}", np.median(maps.X, axis=1), False),
        (f"B. standard deviation{_units(dataset)}", maps.X.std(axis=1), False),
        ("C. times divided", np.asarray(piece["depth"], dtype=np.float64), True),
    ]
    shown += [(f"D.{i + 1} basis map", values, False) for i, values in enumerate(piece.get("basis", ()))]
    canvas = _canvas_of(maps.every, dataset.side)
    width, height = PANEL[0] * len(shown) + 0.3, 2 * PANEL[1] + 1.0
    figure = new_figure(width, height, _DPI)
    for column, (title, values, steps) in enumerate(shown):
        low, high = _ends(values, steps, basis=title.startswith("D"))
        colours = colormaps["cividis" if steps else "viridis"]
        left = (0.15 + PANEL[0] * column) / width
        for row in range(2):
            box = (left, (0.55 + PANEL[1] * (1 - row)) / height, PANEL[0] / width, PANEL[1] / height)
            canvas.draw(figure.add_axes(box), row, maps.on_mesh(values), low, high, colours, steps)
        figure.text(left + 0.5 * PANEL[0] / width, 1 - 0.12 / height, title, ha="center", va="top", fontsize=8)
        bar = colour_bar(
            figure, (left + 0.2 / width, 0.35 / height, (PANEL[0] - 0.4) / width, 0.1 / height), colours, (low, high)
        )
        bar.locator = _locator(steps)
        bar.update_ticks()
    return figure


def _units(dataset: Dataset) -> str:
    return f"\n({dataset.units})" if dataset.units else ""


def _locator(steps: bool) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(3 if not steps else 5, integer=steps)


def _ends(values: np.ndarray, steps: bool, basis: bool = False) -> tuple[float, float]:
    """Ends of a colour scale: nearly the least and the largest value; from 0 for counts and basis maps."""
    known = values[np.isfinite(values)]
    if steps:
        return 0.0, max(1.0, float(known.max(initial=0)))
    low, high = np.percentile(known, (0.5, 99.5)) if known.size else (0.0, 1.0)
    if basis:
        low, high = 0.0, float(high) or float(known.max(initial=0)) or 1.0
    return float(low), float(high) if high > low else float(low) + 1.0


def basis_of_all(dataset: Dataset, drawn: np.ndarray) -> Any:
    """First basis maps of every method, lateral views, each in parts of its own largest value."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    from icofactor.results.report.colours import diverging

    maps = dataset.load()
    canvas = _canvas_of(maps.every, dataset.side)
    n_maps, across = drawn.shape[1], 2
    rows = -(-len(PAPER_METHODS) // across)
    cell = (1.24, 0.92)
    half = 0.95 + cell[0] * n_maps
    width, height = half * across + 0.2, cell[1] * rows + 0.75
    figure = new_figure(width, height, _DPI)
    blue = ListedColormap(diverging() / 255)
    for number, name in enumerate(PAPER_METHODS):
        column, row = divmod(number, rows)
        bottom = (height - 0.15 - cell[1] * (row + 1)) / height
        figure.text((0.1 + half * column) / width, bottom + 0.5 * cell[1] / height, name, va="center", fontsize=9)
        for i in range(n_maps):
            values = np.asarray(drawn[number, i], dtype=np.float64)
            axes = figure.add_axes(
                ((0.95 + half * column + cell[0] * i) / width, bottom, cell[0] / width, cell[1] / height)
            )
            axes.set_axis_off()
            if not np.isfinite(values).any():
                axes.text(0.5, 0.5, "diverged", ha="center", va="center", fontsize=8, transform=axes.transAxes)
                continue
            signed = bool(values.min() < 0)
            top = float(np.percentile(np.abs(values), 99.5)) or float(np.abs(values).max()) or 1.0
            canvas.draw(
                axes,
                0,
                maps.on_mesh(values),
                -top if signed else 0.0,
                top,
                blue if signed else colormaps["viridis"],
                False,
            )
    for box, colours, ends, label in (
        ((0.12, 0.45 / height, 0.3, 0.1 / height), colormaps["viridis"], (0, 1), "non-negative maps"),
        ((0.58, 0.45 / height, 0.3, 0.1 / height), blue, (-1, 1), "maps of either sign (DL)"),
    ):
        colour_bar(figure, box, colours, ends).set_label(label, fontsize=8, labelpad=1)
    return figure
