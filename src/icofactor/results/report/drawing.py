"""A hemisphere from one side as pixels: which triangle each pixel shows, then any number of maps
painted on them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import ArgumentError, shown
from icofactor.results.report.surfaces import Floats, Hemisphere, Ints, vertex_normals
from icofactor.sphere.names import hemispheres

# Where the viewer stands, for the left hemisphere; the right one mirrors x. Up is +z, or +y from
# above and below.
VIEWS: dict[str, tuple[float, float, float]] = {
    "lateral": (-1, 0, 0),
    "medial": (1, 0, 0),
    "dorsal": (0, 0, 1),
    "ventral": (0, 0, -1),
    "anterior": (0, 1, 0),
    "posterior": (0, -1, 0),
}
PANEL = (1.55, 1.15)
"""Width and height of one view, in inches."""
_FINE = 2
_PIXELS = (_FINE * 465, _FINE * 345)
"""Columns and rows in which a view is worked out; `_FINE` × `_FINE` of them make one that is shown.
"""
_STEPS = 1024
"""Of a colour scale between 0 and 1; matplotlib's have 256."""
Bytes = NDArray[np.uint8]
Singles = NDArray[np.float32]
Paint = Callable[[Floats], tuple[Floats, Floats]]
"""From values (−1 to 1, or labels) to their colours (n, 3) and how much of them covers the grey, 0
to 1.
"""


@dataclass(frozen=True, eq=False)
class Raster:
    """What the pixels of one view show; only those that show anything. Fine pixels of a shown one
    lie together.

    Attributes
    ----------
    corners : (m, 3) vertices of the triangle that each fine pixel shows
    weights : (m, 3) of these vertices; rows sum to 1
    starts : (n + 1,) where the fine pixels of each shown one begin
    shown : (n,) numbers of the shown pixels
    light : (n,) how bright the surface is
    grey : (n,) what is seen where there is no map: darker in sulci
    count : (n,) fine pixels of each
    known : the mean over fine pixels of each shown one, for the vertices that had values last; see
        `mean_of`
    """

    corners: NDArray[np.int32]
    weights: Singles
    starts: Ints
    shown: Ints
    light: Singles
    grey: Singles
    count: Singles
    known: dict[bytes, tuple[Any, Singles]]


def panels_of(hemi: str, views: str | Sequence[str]) -> list[tuple[str, str]]:
    """(side, view) per column; the right hemisphere's views are in reverse, so that medial views
    meet.
    """
    views = [views] if isinstance(views, str) else views
    unknown = [view for view in views if view not in VIEWS]
    if unknown or not views:
        names = ", ".join(map(repr, VIEWS))
        raise ArgumentError("views", f"must be some of {names}; found {shown(list(views))}")
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
    # pixels are in the order of the shown ones
    pixels, front = _front(corners[facing], depth[triangles[facing]])
    columns, rows = (
        part.astype(np.float32) + np.float32(0.5)
        for part in (pixels % _PIXELS[0], pixels // _PIXELS[0])
    )
    x, y, constant = (
        part.astype(np.float32) for part in _weights_across(corners[facing], area[facing])
    )
    weights = np.empty((len(pixels), 3), dtype=np.float32)
    for i in range(2):
        weights[:, i] = np.clip(
            x[front, i] * columns + y[front, i] * rows + constant[front, i], 0, 1
        )
    weights[:, 2] = np.clip(1 - weights[:, 0] - weights[:, 1], 0, None)
    weights /= weights.sum(axis=1, keepdims=True)
    part_of = pixels // _PIXELS[0] // _FINE * (_PIXELS[0] // _FINE) + pixels % _PIXELS[0] // _FINE
    first = np.flatnonzero(np.diff(part_of, prepend=-1))
    starts, none = np.append(first, len(pixels)), np.empty(0, dtype=np.float32)
    count = np.diff(starts).astype(np.float32)
    shows = Raster(
        triangles.astype(np.int32)[facing[front]],
        weights,
        starts,
        part_of[first],
        none,
        none,
        count,
        {},
    )
    mean = mean_of(shows, np.ones(len(vertices), dtype=bool))[0]
    light = 0.55 + 0.45 * (
        mean @ np.clip(vertex_normals(vertices, triangles) @ toward, 0, 1).astype(np.float32)
    )
    return replace(shows, light=light, grey=mean @ (0.78 - 0.16 * half.folding).astype(np.float32))


def _weights_across(corners: Floats, area: Floats) -> tuple[Floats, Floats, Floats]:
    """Weights of the first two corners of triangles over the page: what they grow by across and
    down, and at 0.
    """
    one, other = corners[:, [1, 2]], corners[:, [2, 0]]
    grow = (one - other) / area[:, None, None]
    return grow[..., 1], -grow[..., 0], _cross(one, other) / area[:, None]


def mean_of(raster: Raster, known: NDArray[np.bool_]) -> tuple[Any, Singles]:
    """A matrix that takes values on vertices to means over the fine pixels whose corners are all
    known, and the share of these.
    """
    key = known.tobytes()
    if key not in raster.known:
        from scipy.sparse import csr_array

        used, starts = known[raster.corners].all(axis=1), raster.starts
        count = np.add.reduceat(used, starts[:-1], dtype=np.float32)
        weights = (
            raster.weights * (used * np.repeat(1 / np.maximum(count, 1), np.diff(starts)))[:, None]
        )
        matrix = csr_array(
            (weights.ravel(), raster.corners.ravel(), 3 * starts), shape=(len(count), len(known))
        )
        raster.known.clear()
        raster.known[key] = matrix, np.divide(count, raster.count, dtype=np.float32)
    return raster.known[key]


def _on_pixels(flat: Floats) -> Floats:
    """Coordinates on the page, in pixels, with a small margin on whichever sides would leave the
    panel first.
    """
    low, high = flat.min(axis=0), flat.max(axis=0)
    scale = float(np.min(np.array(_PIXELS) / (1.04 * (high - low))))
    return (flat - (low + high) / 2) * scale + np.array(_PIXELS) / 2


def _cross(a: Floats, b: Floats) -> Floats:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _front(corners: Floats, depth: Floats) -> tuple[Ints, Ints]:
    """Pixels that triangles cover, those of a shown pixel one after the other, and the triangle in
    front of each.
    """
    triangles, pixels = _covered(corners)
    # depth is a plane over each triangle
    across, down = corners[:, 1:, 0] - corners[:, :1, 0], corners[:, 1:, 1] - corners[:, :1, 1]
    rise, area = depth[:, 1:] - depth[:, :1], across[:, 0] * down[:, 1] - across[:, 1] * down[:, 0]
    x = (rise[:, 0] * down[:, 1] - rise[:, 1] * down[:, 0]) / area
    y = (across[:, 0] * rise[:, 1] - across[:, 1] * rise[:, 0]) / area
    constant = depth[:, 0] - x * corners[:, 0, 0] - y * corners[:, 0, 1]
    level = (
        x[triangles] * (pixels % _PIXELS[0] + 0.5)
        + y[triangles] * (pixels // _PIXELS[0] + 0.5)
        + constant[triangles]
    )
    foremost = np.full(_PIXELS[0] * _PIXELS[1], -np.inf)
    np.maximum.at(foremost, pixels, level)
    seen, shows = level == foremost[pixels], np.full(len(foremost), -1)
    shows[pixels[seen]] = triangles[seen]
    squares = (_PIXELS[1] // _FINE, _FINE, _PIXELS[0] // _FINE, _FINE)
    numbers = np.arange(len(shows)).reshape(squares).swapaxes(1, 2).ravel()
    found = numbers[shows[numbers] >= 0]
    return found, shows[found]


def _covered(corners: Floats) -> tuple[Ints, Ints]:
    """Triangles, and the pixels whose middle lies in each: along every row of pixels, from one side
    to the other.
    """
    order = np.argsort(corners[..., 1], axis=1)[..., None]
    x, y = np.moveaxis(np.take_along_axis(corners, order, axis=1), 2, 0)
    first, last = np.ceil(y[:, 0] - 0.5).astype(np.int64), np.floor(y[:, 2] - 0.5).astype(np.int64)
    triangles, rows = _counted_from(first, last)
    x, y, at = x[triangles], y[triangles], rows + 0.5
    side = lambda i, j: x[:, i] + (x[:, j] - x[:, i]) * ((at - y[:, i]) / (y[:, j] - y[:, i]))
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = side(0, 2), np.where(at < y[:, 1], side(0, 1), side(1, 2))
    ends = tuple(
        np.where(np.isfinite(end), end, x[:, 1]) for end in ends
    )  # a side that lies in its row of pixels
    left, right = np.ceil(np.minimum(*ends) - 0.5), np.floor(np.maximum(*ends) - 0.5)
    spans, columns = _counted_from(left.astype(np.int64), right.astype(np.int64))
    return triangles[spans], rows[spans] * _PIXELS[0] + columns


def _counted_from(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """The whole numbers from each `first` to its `last`, one after the other, and where each comes
    from.
    """
    n = np.maximum(last - first + 1, 0)
    of = np.repeat(np.arange(len(n)), n)
    return of, np.arange(len(of)) + (first - np.cumsum(n) + n)[of]


def paint(raster: Raster, values: Floats, colours: Paint, labels: bool = False) -> Bytes:
    """The view as an image (rows, columns, 3) on white of a map on the vertices, NaN where masked.

    Parameters
    ----------
    labels : whether values name something, so that a fine pixel has that of its nearest corner
        instead of a mean.
    """
    table = lambda levels: np.column_stack(_covering(*colours(levels)))
    if labels:  # colours are mixed, names are not
        nearest = np.take_along_axis(
            raster.corners, raster.weights.argmax(axis=1)[:, None], axis=1
        )[:, 0]
        seen = (
            np.add.reduceat(table(values)[nearest], raster.starts[:-1], axis=0)
            / raster.count[:, None]
        )
    else:  # next to a masked corner all is masked
        known = np.isfinite(values)
        mean, share = mean_of(raster, known)
        level = mean @ np.where(known, values, 0.0).astype(np.float32)
        seen = table(np.linspace(-1, 1, 2 * _STEPS + 1))[
            (_STEPS * np.clip(level, -1, 1) + (_STEPS + 0.5)).astype(np.intp)
        ]
        seen *= share[:, None]
    rgb = (seen[:, :3] + ((1 - seen[:, 3]) * raster.grey)[:, None]) * raster.light[:, None]
    part = raster.count[:, None] / np.float32(_FINE**2)
    size = (_PIXELS[1] // _FINE, _PIXELS[0] // _FINE, 4)
    image = np.full((size[0] * size[1], 4), 255, dtype=np.uint8)
    image[raster.shown, :3] = 255.5 - part * (255 - 255 * rgb)
    return image.reshape(size)


def _covering(colour: Floats, cover: Floats) -> tuple[Singles, Singles]:
    """Colours as much as they cover the grey, and how much that is."""
    return (cover[:, None] * colour).astype(np.float32), cover.astype(np.float32)


def show(figure: Any, box: tuple[float, float, float, float], image: Bytes) -> None:
    """Put a painted view into a figure, in `box` (left, bottom, width and height in inches)."""
    figure.add_artist(_picture()(box, image))


@cache
def _picture() -> Any:
    """A kind of image whose pixels are written as they are where the figure has their resolution.

    Axes take longer than the brains in them.
    """
    from matplotlib.artist import Artist
    from matplotlib.transforms import Bbox
    from PIL import Image

    class Picture(Artist):
        def __init__(self, box: tuple[float, float, float, float], image: Bytes) -> None:
            super().__init__()
            self.box, self.image = box, image

        def get_window_extent(self, renderer: Any = None) -> Any:
            figure: Any = self.get_figure()
            return Bbox.from_bounds(*(figure.dpi * part for part in self.box))

        def draw(self, renderer: Any) -> None:
            place, shown, finer = (
                self.get_window_extent(),
                self.image,
                renderer.get_image_magnification(),
            )
            size = round(place.width * finer), round(place.height * finer)
            if size != shown.shape[1::-1]:
                shown = np.asarray(Image.fromarray(shown).resize(size, Image.Resampling.HAMMING))
            renderer.draw_image(
                renderer.new_gc(), round(place.x0, 3), round(place.y0, 3), shown[::-1]
            )

    return Picture


def camera(side: str, view: str) -> tuple[Floats, Floats, Floats]:
    """Directions toward the viewer, to the right and up on the page."""
    toward = np.array(VIEWS[view], dtype=np.float64)
    if side == "right":
        toward[0] *= -1
    up = np.array([0.0, 1.0, 0.0]) if toward[2] else np.array([0.0, 0.0, 1.0])
    return toward, np.cross(up, toward), up


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
    """A horizontal colour bar in `box` (parts of the figure); `beyond` names ends with a tip:
    "neither", "max", ...
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    axes = figure.add_axes(box)
    bar = figure.colorbar(
        ScalarMappable(Normalize(*ends), colours), cax=axes, orientation="horizontal", extend=beyond
    )
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=7, width=0.5, length=2)
    return bar
