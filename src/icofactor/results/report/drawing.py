"""A hemisphere seen from one side as pixels, and figures as files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import ArgumentError, shown
from icofactor.results.report.surfaces import Floats, Hemisphere, Ints, vertex_normals
from icofactor.sphere.names import hemispheres

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
# Width and height of one view, in inches.
PANEL = (1.55, 1.15)
# Pixels per inch of brains and of dots inside vector figures.
DPI = 200
# A view is worked out in this many pixels for each pixel of the picture, along either side, so that
# its outline is smooth.
_FINE = 2
_PIXELS = (round(_FINE * DPI * PANEL[0]), round(_FINE * DPI * PANEL[1]))
# Colours of a scale; matplotlib's colour maps have as many.
STEPS = 256
# How charts look. Words of the data may contain dollar signs, which are no formulas.
STYLE = {
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "font.size": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "text.parse_math": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}
# Text stays text, and equal figures are equal files.
_FILES = {"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "icofactor"}
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class View:
    """What the fine pixels of a view show; only those that show the hemisphere.

    Attributes
    ----------
    rows, columns : (n,) which pixels these are
    corners : (n, 3) vertices of the triangle in front
    weights : (n, 3) of these vertices; rows sum to 1
    grey : (n, 1) brightness of the surface without a map: darker in sulci
    light : (n, 1) how bright the surface is
    """

    rows: Ints
    columns: Ints
    corners: Ints
    weights: Floats
    grey: Floats
    light: Floats


@dataclass(frozen=True, eq=False)
class Scale:
    """The colours of values from `low` to `high`.

    Attributes
    ----------
    colours : (m, 4) red, green, blue, and how much of the grey surface each colour covers; the
        first row is for vertices without a value
    nearest : whether a pixel has the value of its nearest vertex, because values between two do
        not exist
    """

    low: float
    high: float
    colours: Floats
    nearest: bool = False


def panels_of(hemi: str, views: str | Sequence[str]) -> list[tuple[str, str]]:
    """Return (side, view) per column; right views come in reverse, so that medial views meet."""
    views = [views] if isinstance(views, str) else views
    unknown = [view for view in views if view not in VIEWS]
    if unknown or not views:
        raise ArgumentError(
            "views", f"must be some of {', '.join(VIEWS)}; found {shown(list(views))}"
        )
    sides = hemispheres(hemi, "hemi_")
    if len(sides) == 2:
        return [("left", view) for view in views] + [("right", view) for view in reversed(views)]
    return [(hemi, view) for view in views]


def camera(side: str, view: str) -> tuple[Floats, Floats, Floats]:
    """Return directions toward the viewer, to the right of the page, and up on the page."""
    toward = np.array(VIEWS[view], dtype=np.float64)
    if side == "right":
        toward[0] *= -1
    up = np.array([0.0, 1.0, 0.0]) if toward[2] else np.array([0.0, 0.0, 1.0])
    return toward, np.cross(up, toward), up


def view_of(hemisphere: Hemisphere, shape: str, name: str) -> View:
    """Find the triangle in front at every pixel."""
    from PIL import Image, ImageDraw

    vertices = hemisphere.shapes[shape]
    triangles = hemisphere.triangles
    toward, right, up = camera(hemisphere.side, name)
    corners = _on_pixels(vertices @ np.stack([right, -up], axis=1))[triangles]
    area = _cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    # Rows run downward, so the triangles that face the viewer turn the other way.
    facing = np.flatnonzero(area < 0)
    depth = (vertices @ toward)[triangles[facing]].mean(axis=1)
    # The nearest triangle is painted last and covers those behind it.
    order = facing[np.argsort(depth, kind="stable")]
    image = Image.new("I", _PIXELS, -1)
    pencil = ImageDraw.Draw(image)
    for triangle, polygon in zip(
        order.tolist(), corners[order].reshape(-1, 6).tolist(), strict=True
    ):
        pencil.polygon(polygon, fill=triangle)
    front = np.asarray(image)
    rows, columns = np.nonzero(front >= 0)
    seen_triangles = front[rows, columns]
    points = np.column_stack([columns, rows]).astype(np.float64) + 0.5
    weights = _barycentric(corners[seen_triangles], points)
    vertex_numbers = triangles[seen_triangles]

    def on_pixels(values: Floats) -> Floats:
        return np.einsum("ij,ij->i", weights, values[vertex_numbers])[:, None]

    brightness = np.clip(vertex_normals(vertices, triangles) @ toward, 0, 1)
    return View(
        rows=rows,
        columns=columns,
        corners=vertex_numbers,
        weights=weights,
        grey=on_pixels(0.78 - 0.16 * hemisphere.folding),
        # Even a surface that is seen from the side is not black.
        light=0.55 + 0.45 * on_pixels(brightness),
    )


def _on_pixels(flat: Floats) -> Floats:
    """Scale coordinates to pixels, with a small margin where the view is tightest."""
    low = flat.min(axis=0)
    high = flat.max(axis=0)
    scale = float(np.min(np.array(_PIXELS) / (1.04 * (high - low))))
    return (flat - (low + high) / 2) * scale + np.array(_PIXELS) / 2


def _cross(a: Floats, b: Floats) -> Floats:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _barycentric(corners: Floats, points: Floats) -> Floats:
    """Return weights of the corners (n, 3, 2) at points (n, 2); points outside go to the edge."""
    a, b, c = np.moveaxis(corners, 1, 0)
    parallelograms = [
        _cross(c - b, points - b),
        _cross(a - c, points - c),
        _cross(b - a, points - a),
    ]
    weights = np.column_stack(parallelograms) / _cross(b - a, c - a)[:, None]
    # The middle of a pixel at an edge may lie a little outside the triangle.
    weights = np.clip(weights, 0, 1)
    return weights / weights.sum(axis=1, keepdims=True)


def paint(view: View, values: Floats, scale: Scale) -> Bytes:
    """Return the view as an image (rows, columns, 3) on white of a map on the vertices."""
    from PIL import Image

    corner_values = values[view.corners]
    if scale.nearest:
        nearest = view.weights.argmax(axis=1)
        level = corner_values[np.arange(len(nearest)), nearest]
    else:
        # NaN beside a masked corner: no colour of a mean with nothing.
        level = np.einsum("ij,ij->i", view.weights, corner_values)
    last = len(scale.colours) - 2
    step = np.clip((level - scale.low) / (scale.high - scale.low), 0, 1) * last
    rows = np.where(np.isfinite(step), 1 + np.rint(step), 0).astype(np.intp)
    colour = scale.colours[rows]
    cover = colour[:, 3:]
    surface = (cover * colour[:, :3] + (1 - cover) * view.grey) * view.light
    image = np.full((_PIXELS[1], _PIXELS[0], 3), 255, dtype=np.uint8)
    image[view.rows, view.columns] = 255 * surface
    return np.asarray(Image.fromarray(image).reduce(_FINE))


def new_figure(width: float, height: float, dpi: int = DPI) -> Figure:
    """Return an empty white figure, in inches, that pyplot does not know."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def add_picture(figure: Figure, box: tuple[float, float, float, float], image: Bytes) -> None:
    """Put an image into a box (left, bottom, width, height in inches); axes would take longer."""
    from matplotlib.image import BboxImage
    from matplotlib.transforms import Bbox, TransformedBbox

    bounds = TransformedBbox(Bbox.from_bounds(*box), figure.dpi_scale_trans)
    picture = BboxImage(bounds)
    picture.set_data(image)
    figure.add_artist(picture)


def figure_bytes(figure: Figure, kind: str, title: str = "", dpi: int = DPI) -> bytes:
    """Return a figure as a PNG, PDF or SVG file; equal figures give equal files."""
    from matplotlib import rc_context

    # A date would make equal figures unequal files.
    undated: dict[str, dict[str, Any]] = {
        "png": {},
        "pdf": {"CreationDate": None},
        "svg": {"Date": None, "Title": title},
    }
    stream = io.BytesIO()
    with rc_context({**STYLE, **_FILES}):
        figure.savefig(stream, format=kind, dpi=dpi, metadata=undated[kind])
    return stream.getvalue()
