"""A hemisphere from one side as pixels: which triangle each pixel shows, then any number of maps painted on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import ArgumentError
from icofactor.results.report.surfaces import Floats, Hemisphere, Ints, vertex_normals
from icofactor.sphere.names import hemispheres

# Where the viewer stands, for the left hemisphere; the right one mirrors x. Up is +z, or +y from above and below.
VIEWS: dict[str, tuple[float, float, float]] = {
    "lateral": (-1, 0, 0),
    "medial": (1, 0, 0),
    "dorsal": (0, 0, 1),
    "ventral": (0, 0, -1),
    "anterior": (0, 1, 0),
    "posterior": (0, -1, 0),
}
_QUICK = "icofactor DejaVu Sans"
_USUAL = ((0x20, 0x250), (0x370, 0x400), (0x2010, 0x2040), (0x2070, 0x20B0), (0x2190, 0x2300))
"""Letters of most figures: Latin, Greek, punctuation, superscripts, arrows, mathematics."""
PANEL = (1.55, 1.15)
"""Width and height of one view, in inches."""
_FINE = 2
_PIXELS = (_FINE * 465, _FINE * 345)
"""Columns and rows in which a view is worked out; `_FINE` × `_FINE` of them make one that is shown."""
_BITS = 22  # numbers of triangles; fsaverage7 has 327,680
Bytes = NDArray[np.uint8]
Paint = Callable[[Floats], tuple[Floats, Floats]]
"""From values (NaN where there is none) to their colours (n, 3) and how much of them covers the grey, 0 to 1."""


@dataclass(frozen=True, eq=False)
class Raster:
    """What the pixels of one view show; only those that show anything.

    Attributes
    ----------
    corners : (m, 3) vertices of the triangle that each fine pixel shows
    weights : (m, 3) of these vertices; rows sum to 1
    places : (m,) which of the shown pixels each fine one is part of
    shown : (n,) numbers of the shown pixels
    count : (n,) fine pixels that each of them has
    light : (n,) how bright the surface is
    grey : (n,) what is seen where there is no map: darker in sulci
    """

    corners: Ints
    weights: Floats
    places: Ints
    shown: Ints
    count: Floats
    light: Floats
    grey: Floats


def panels_of(hemi: str, views: str | Sequence[str]) -> list[tuple[str, str]]:
    """(side, view) per column; the right hemisphere's views are in reverse, so that medial views meet."""
    views = [views] if isinstance(views, str) else views
    unknown = [view for view in views if view not in VIEWS]
    if unknown or not views:
        raise ArgumentError("views", list(views), f"some of {', '.join(map(repr, VIEWS))}")
    sides = hemispheres(hemi, "hemi_")
    if len(sides) == 2:
        return [("left", view) for view in views] + [("right", view) for view in reversed(views)]
    return [(hemi, view) for view in views]


def rasterise(half: Hemisphere, shape: str, view: str) -> Raster:
    """Project a hemisphere and find the triangle in front at every pixel."""
    vertices, triangles = half.shapes[shape], half.triangles
    toward, right, up = camera(half.side, view)
    flat = _on_pixels(vertices @ np.stack([right, -up], axis=1))
    depth = vertices @ toward
    corners = flat[triangles]
    area = _cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    facing = np.flatnonzero(area < 0)  # rows run downward, so what faces us turns the other way
    pixels, front = _front(corners[facing], depth[triangles[facing]])
    shown = facing[front]
    columns, rows = pixels % _PIXELS[0] + 0.5, pixels // _PIXELS[0] + 0.5
    a, b, c = np.moveaxis(corners[shown] - np.stack([columns, rows], axis=1)[:, None], 1, 0)
    weights = np.clip(np.stack([_cross(b, c), _cross(c, a), _cross(a, b)], axis=1) / area[shown, None], 0, None)
    weights /= weights.sum(axis=1, keepdims=True)
    part_of = pixels // _PIXELS[0] // _FINE * (_PIXELS[0] // _FINE) + pixels % _PIXELS[0] // _FINE
    parts = np.bincount(part_of)
    coarse = np.flatnonzero(parts)
    places, count = (np.cumsum(parts > 0) - 1)[part_of], parts[coarse].astype(np.float64)
    at = lambda values: np.bincount(places, np.einsum("ij,ij->i", values[triangles[shown]], weights)) / count
    light = 0.55 + 0.45 * at(np.clip(vertex_normals(vertices, triangles) @ toward, 0, 1))
    return Raster(triangles[shown], weights, places, coarse, count, light, at(0.78 - 0.16 * half.folding))


def _on_pixels(flat: Floats) -> Floats:
    """Coordinates on the page, in pixels, with a small margin on whichever sides would leave the panel first."""
    low, high = flat.min(axis=0), flat.max(axis=0)
    scale = float(np.min(np.array(_PIXELS) / (1.04 * (high - low))))
    return (flat - (low + high) / 2) * scale + np.array(_PIXELS) / 2


def _cross(a: Floats, b: Floats) -> Floats:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _front(corners: Floats, depth: Floats) -> tuple[Ints, Ints]:
    """Pixels that any triangle covers, and the number of the one in front.

    Every triangle drops points closer together than pixels are; the foremost point of a pixel wins.
    """
    longest = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max(axis=1)
    steps = np.maximum(1, np.ceil(1.3 * longest)).astype(np.int64)
    # depth in the upper bits and the triangle in the lower ones: the largest of these numbers is the one in front
    level = (depth - depth.min()) * ((2**40 - 1) / max(float(np.ptp(depth)), np.finfo(float).tiny))
    foremost = np.full(_PIXELS[0] * _PIXELS[1], -1, dtype=np.int64)
    for n in np.unique(steps):
        own = np.flatnonzero(steps == n)
        i, j = np.nonzero(np.add.outer(np.arange(n + 1), np.arange(n + 1)) <= n)
        weights = np.stack([i, j, n - i - j], axis=1).T / n
        columns, rows = ((corners[own, :, axis] @ weights).astype(np.int32) for axis in (0, 1))
        key = ((level[own] @ weights).astype(np.int64) << _BITS) | own[:, None]
        place = np.clip(rows, 0, _PIXELS[1] - 1) * _PIXELS[0] + np.clip(columns, 0, _PIXELS[0] - 1)
        np.maximum.at(foremost, place.ravel(), key.ravel())
    pixels = np.flatnonzero(foremost >= 0)
    return pixels, foremost[pixels] & ((1 << _BITS) - 1)


def paint(raster: Raster, values: Floats, colours: Paint, labels: bool = False) -> Bytes:
    """The view as an image (rows, columns, 3) on white of a map on the vertices, NaN where masked.

    Parameters
    ----------
    labels : whether values name something, so that a fine pixel has that of its nearest corner instead of a mean.
    """
    at_corners, n = values[raster.corners], len(raster.shown)
    mean = lambda fine: np.bincount(raster.places, fine, minlength=n) / raster.count
    if labels:  # colours are mixed, names are not
        level = np.take_along_axis(at_corners, raster.weights.argmax(axis=1)[:, None], axis=1)[:, 0]
        colour, cover = colours(level)
        covered, cover = cover, mean(cover)
        mixed = np.stack([mean(covered * channel) for channel in colour.T], axis=1)
    else:  # next to a masked corner all is masked: NaN carries through the mean of corners
        level = np.einsum("ij,ij->i", at_corners, raster.weights)
        known = np.isfinite(level)
        share = mean(known)
        with np.errstate(invalid="ignore"):
            colour, cover = colours(mean(np.where(known, level, 0.0)) / share)
        cover = cover * share
        mixed = cover[:, None] * colour
    rgb = (mixed + (1 - cover[:, None]) * raster.grey[:, None]) * raster.light[:, None]
    part = (raster.count / _FINE**2)[:, None]
    size = (_PIXELS[1] // _FINE, _PIXELS[0] // _FINE, 3)
    image = np.full((size[0] * size[1], 3), 255, dtype=np.uint8)  # no transparency, which files pay for twice
    image[raster.shown] = np.round(255 * (part * np.clip(rgb, 0, 1) + 1 - part))
    return image.reshape(size)


def show(axes: Any, image: Bytes) -> None:
    """Put a painted view into its panel."""
    axes.imshow(image, interpolation="antialiased", aspect="equal")
    axes.set_axis_off()


def camera(side: str, view: str) -> tuple[Floats, Floats, Floats]:
    """Directions toward the viewer, to the right and up on the page."""
    toward = np.array(VIEWS[view], dtype=np.float64)
    if side == "right":
        toward[0] *= -1
    up = np.array([0.0, 1.0, 0.0]) if toward[2] else np.array([0.0, 0.0, 1.0])
    return toward, np.cross(up, toward), up


def quick_fonts() -> dict[str, Any]:
    """Settings of matplotlib by which its default font is embedded sooner; empty where another font is chosen."""
    from matplotlib import rcParams

    default = rcParams["font.family"] == ["sans-serif"] and rcParams["font.sans-serif"][:1] == ["DejaVu Sans"]
    return {"font.family": [_QUICK, "DejaVu Sans"]} if default and _made_quick() else {}


@cache
def _made_quick() -> bool:
    """Give matplotlib a copy of its font with the usual letters, and without tables of ligatures.

    For every PDF fontTools reads the whole font, which takes longer than drawing. Other letters come from the font
    itself.
    """
    from fontTools import subset  # type: ignore[import-untyped]
    from fontTools.ttLib import TTFont  # type: ignore[import-untyped]
    from matplotlib import font_manager

    listed, copies = font_manager.fontManager.ttflist, []
    for weight in ("normal", "bold"):
        path = font_manager.findfont(font_manager.FontProperties(family="DejaVu Sans", weight=weight))
        entry = next((one for one in listed if one.fname == path), None)
        if entry is None:
            return False
        font = TTFont(path, recalcTimestamp=False)
        for table in {"GSUB", "GPOS", "GDEF", "FFTM"} & set(font.keys()):
            del font[table]
        few = subset.Subsetter(subset.Options(glyph_names=True, notdef_outline=True))
        few.populate(unicodes=[code for first, last in _USUAL for code in range(first, last)])
        few.subset(font)
        font.save(copy := Path(_folder().name) / Path(path).name)
        copies.append(replace(entry, fname=str(copy), name=_QUICK))
    listed += copies
    return True


@cache
def _folder() -> TemporaryDirectory[str]:
    """Goes with the process."""
    return TemporaryDirectory(prefix="icofactor-fonts-")


def new_figure(width: float, height: float, dpi: int) -> Any:
    """An empty white figure that matplotlib's global state does not know."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def colour_bar(
    figure: Any,
    box: tuple[float, float, float, float],
    colours: Any,
    ends: tuple[float, float],
    beyond: str = "neither",
) -> Any:
    """A horizontal colour bar in `box` (parts of the figure); `beyond` names ends with a tip: "neither", "max", ..."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    axes = figure.add_axes(box)
    bar = figure.colorbar(ScalarMappable(Normalize(*ends), colours), cax=axes, orientation="horizontal", extend=beyond)
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=7, width=0.5, length=2)
    return bar
