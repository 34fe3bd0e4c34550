"""Static figures of components on the cortex, drawn with matplotlib alone and without its global state."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.sphere import Sites, face_to_vertex

Floats = NDArray[np.float64]

# Where the viewer stands, for the left hemisphere; the right one mirrors x. Up is +z, or +y from above and below.
_VIEWS: dict[str, tuple[float, float, float]] = {
    "lateral": (-1, 0, 0),
    "medial": (1, 0, 0),
    "dorsal": (0, 0, 1),
    "ventral": (0, 0, -1),
    "anterior": (0, 1, 0),
    "posterior": (0, -1, 0),
}
_SURFACES = {"inflated": "inflated", "pial": "pial", "white": "white_matter"}
_SHARP_PERCENTILE = 99.5
# Below this part of the colour scale the map fades into the grey of gyri and sulci.
_FADE = 0.25
# All in inches.
_PANEL, _LABEL_WIDTH, _RIGHT_MARGIN, _TITLE_HEIGHT, _BAR_HEIGHT = (1.55, 1.15), 1.1, 0.15, 0.3, 0.75
_NOTE_LINE, _NOTE_LETTER = 0.12, 0.049
_NOTE = "% of between-subject variance each component carries alone; components overlap"


@dataclass(frozen=True)
class _Surface:
    """One hemisphere to draw on: vertices, triangles and a grey value per vertex."""

    vertices: Floats
    triangles: NDArray[np.int64]
    grey: Floats


def plot_components(
    model: Any,
    surface: str = "inflated",
    components: Sequence[int] | None = None,
    views: Sequence[str] = ("lateral", "medial"),
    cmap: str | None = None,
    scale: str = "shared",
    units: str = "",
    dpi: int = 150,
) -> Any:
    """Maps of a model's components on the cortex: one row per component, one column per view.

    Parameters
    ----------
    model : with `components_` (k, n_sites), `sites_` and `hemi_`; `mask_` (True where used) and
        `explained_variance_ratio_` are used when there. `hemi_` None is one hemisphere that nobody named: it is
        drawn as a left one, and the titles name no side.
    surface : "inflated", "pial" or "white" of fsaverage5; other meshes are drawn as spheres.
    components : which to draw, counted from 0; all when None.
    views : of "lateral", "medial", "dorsal", "ventral", "anterior", "posterior".
    cmap : a matplotlib colour map; None takes "viridis", or "RdBu_r" when there are negative values.
    scale : "shared", one colour scale for all, or "each", every component in parts of its own maximum.
    units : of the components, for the colour bar.
    dpi : resolution of the figure.

    Returns
    -------
    matplotlib.figure.Figure; ``figure.savefig("components.png")`` writes it.
    """
    if scale not in ("shared", "each"):
        raise ValueError(f'scale must be "shared" or "each"; got {scale!r}')
    _check_fitted(model)
    sites, hemi = model.sites_, model.hemi_
    maps = _vertex_maps(model)
    chosen = _chosen(components, len(maps))
    panels = _panels(hemi or "left", views)
    surfaces = {side: _surface(sites, surface, side) for side in {side for side, _ in panels}}
    tops = np.array([_top(maps[j]) for j in chosen])
    signed = bool(np.nanmin(maps[chosen]) < 0)
    limits = tops if scale == "each" else np.full(len(chosen), tops.max())
    colours = _colour_map(cmap, signed)
    explained = getattr(model, "explained_variance_ratio_", None)

    figure, foot = _page(len(chosen), len(panels), "" if explained is None else _NOTE, dpi)
    width, height = figure.get_size_inches()
    n = maps.shape[1] // (2 if hemi == "both" else 1)
    for row, (j, limit) in enumerate(zip(chosen, limits, strict=True)):
        bottom = (height - _TITLE_HEIGHT - _PANEL[1] * (row + 1)) / height
        middle = bottom + 0.5 * _PANEL[1] / height
        figure.text(0.12 / width, middle, _label(j, explained), va="center", fontsize=8)
        for column, (side, view) in enumerate(panels):
            left = (_LABEL_WIDTH + _PANEL[0] * column) / width
            axes = figure.add_axes((left, bottom, _PANEL[0] / width, _PANEL[1] / height))
            values = maps[j, n:] if hemi == "both" and side == "right" else maps[j, :n]
            _draw(axes, surfaces[side], side, view, values / limit, colours, signed)
            if row == 0:
                axes.set_title(f"{side} {view}" if hemi else view, fontsize=8, pad=3)
    box = (0.3, (foot - 0.28) / height, 0.4, 0.1 / height)
    _colour_bar(figure, box, colours, signed, 1.0 if scale == "each" else float(tops.max()), scale, units)
    return figure


def _page(n_rows: int, n_columns: int, note: str, dpi: int) -> tuple[Any, float]:
    """An empty figure with a note at its foot, and the height in inches that colour bar and note take there."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = _LABEL_WIDTH + _PANEL[0] * n_columns + _RIGHT_MARGIN
    lines = textwrap.wrap(note, int((width - 2 * _RIGHT_MARGIN) / _NOTE_LETTER))
    foot = _BAR_HEIGHT + _NOTE_LINE * len(lines)
    height = _TITLE_HEIGHT + _PANEL[1] * n_rows + foot
    figure = Figure(figsize=(width, height), dpi=dpi, facecolor="white")
    FigureCanvasAgg(figure)
    if lines:
        figure.text(0.5, 0.06 / height, "\n".join(lines), ha="center", va="bottom", fontsize=6, color="0.35")
    return figure, foot


def _check_fitted(model: Any) -> None:
    if not hasattr(model, "components_"):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(f"this {type(model).__name__} has no components to draw yet: call fit first")


def _chosen(components: Sequence[int] | None, k: int) -> list[int]:
    chosen = list(range(k)) if components is None else [int(j) for j in components]
    if not chosen or min(chosen) < 0 or max(chosen) >= k:
        raise ValueError(f"components must name some of 0 to {k - 1}; got {chosen}")
    return chosen


def _label(j: int, explained: Any) -> str:
    label = f"Component {j + 1}"
    return label if explained is None else f"{label}\n{100 * float(explained[j]):.1f} % alone"


def _vertex_maps(model: Any) -> Floats:
    """(k, n_vertices) components on vertices, NaN where masked."""
    sites: Sites = model.sites_
    maps = np.array(model.components_, dtype=np.float64)
    if maps.ndim != 2 or maps.shape[1] != sites.n:
        raise ValueError(f"{sites!r} has {sites.n} sites; components_ has shape {maps.shape}")
    if sites.triangles is None or sites.n != sites.n_mesh:
        raise ValueError(f"drawing needs all sites of a mesh with triangles; got {sites!r}")
    mask = getattr(model, "mask_", None)
    if mask is not None:
        maps[:, ~np.asarray(mask, dtype=bool)] = np.nan
    if not np.isfinite(maps).any():
        raise ValueError("components_ holds no finite value outside the mask")
    if sites.on == "faces":
        n_vertices = int(sites.triangles.max()) + 1
        to_vertices = face_to_vertex(sites.triangles, n_vertices)
        halves = np.split(maps, len(sites.frames), axis=1)
        maps = np.concatenate([(to_vertices @ half.T).T for half in halves], axis=1)
    return maps


def _panels(hemi: str, views: Sequence[str]) -> list[tuple[str, str]]:
    """(side, view) per column; the right hemisphere's views are in reverse, so that medial views meet."""
    unknown = [view for view in views if view not in _VIEWS]
    if unknown or not views:
        raise ValueError(f"views must be some of {', '.join(map(repr, _VIEWS))}; got {list(views)}")
    if hemi not in ("left", "right", "both"):
        raise ValueError(f'hemi_ must be "left", "right" or "both"; got {hemi!r}')
    if hemi == "both":
        return [("left", view) for view in views] + [("right", view) for view in reversed(views)]
    return [(hemi, view) for view in views]


def _surface(sites: Sites, surface: str, side: str) -> _Surface:
    """The surface to draw on: fsaverage5's own, or the sphere."""
    if surface not in _SURFACES:
        raise ValueError(f"surface must be one of {', '.join(map(repr, _SURFACES))}; got {surface!r}")
    triangles = np.asarray(sites.triangles, dtype=np.int64)
    if sites.name != "fsaverage5":
        vertices = _sphere_vertices(sites, side)
        return _Surface(vertices, triangles, np.full(len(vertices), 0.8))
    from nilearn.datasets import load_fsaverage, load_fsaverage_data

    mesh = load_fsaverage("fsaverage5")[_SURFACES[surface]].parts[side]
    depth = load_fsaverage_data(mesh="fsaverage5", data_type="sulcal").data.parts[side]
    # sulcal depth is positive in sulci: darker there, with a soft step as in the field's figures
    grey = 0.78 - 0.16 * np.tanh(3 * np.asarray(depth, dtype=np.float64))
    return _Surface(np.asarray(mesh.coordinates, dtype=np.float64), triangles, grey)


def _sphere_vertices(sites: Sites, side: str) -> Floats:
    half = 1 if side == "right" and len(sites.frames) == 2 else 0
    if sites.on == "vertices":
        return sites.coordinates[sites.hemisphere == half]
    if sites.name is not None:
        return Sites.named(sites.name).coordinates
    raise ValueError(f"drawing faces needs a mesh known by name, for its vertices; got {sites!r}")


def _top(values: Floats) -> float:
    """What the end of the colour scale stands for: nearly the largest size of a value."""
    top = float(np.nanpercentile(np.abs(values), _SHARP_PERCENTILE))
    return top if top > 0 else float(np.nanmax(np.abs(values))) or 1.0


def _colour_map(cmap: str | None, signed: bool) -> Any:
    from matplotlib import colormaps

    return colormaps[cmap or ("RdBu_r" if signed else "viridis")]


def _draw(axes: Any, surface: _Surface, side: str, view: str, values: Floats, colours: Any, signed: bool) -> None:
    """One hemisphere from one side: project, drop what faces away, paint from back to front."""
    from matplotlib.collections import PolyCollection

    toward, right, up = _camera(side, view)
    flat = surface.vertices @ np.stack([right, up], axis=1)
    corners = surface.vertices[surface.triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    shown = np.flatnonzero(normals @ toward > 0)
    order = shown[np.argsort((corners[shown].mean(axis=1)) @ toward)]
    rgb = _shades(surface, normals, toward, values, colours, signed)[order]
    polygons = PolyCollection(list(flat[surface.triangles[order]]), facecolors=rgb, edgecolors=rgb, linewidths=0.25)
    polygons.set_rasterized(True)
    axes.add_collection(polygons)
    # half the width to show: whichever of width and height would leave the panel first
    wide, tall = np.ptp(flat, axis=0) / 2
    reach = 1.04 * max(wide, tall * _PANEL[0] / _PANEL[1])
    middle = (flat.max(axis=0) + flat.min(axis=0)) / 2
    axes.set_xlim(middle[0] - reach, middle[0] + reach)
    axes.set_ylim(middle[1] - reach * _PANEL[1] / _PANEL[0], middle[1] + reach * _PANEL[1] / _PANEL[0])
    axes.set_aspect("equal")
    axes.set_axis_off()


def _camera(side: str, view: str) -> tuple[Floats, Floats, Floats]:
    """Directions toward the viewer, to the right and up on the page."""
    toward = np.array(_VIEWS[view], dtype=np.float64)
    if side == "right":
        toward[0] *= -1
    up = np.array([0.0, 1.0, 0.0]) if toward[2] else np.array([0.0, 0.0, 1.0])
    return toward, np.cross(up, toward), up


def _shades(surface: _Surface, normals: Floats, toward: Floats, values: Floats, colours: Any, signed: bool) -> Floats:
    """(F, 3) colours of the triangles: the map over grey where it is high, with light from the viewer's side."""
    triangles = surface.triangles
    at_vertices = np.zeros_like(surface.vertices)
    for corner in range(3):
        np.add.at(at_vertices, triangles[:, corner], normals)
    at_vertices /= np.maximum(np.linalg.norm(at_vertices, axis=1, keepdims=True), 1e-12)
    light = 0.55 + 0.45 * np.clip(at_vertices @ toward, 0, 1)[triangles].mean(axis=1)
    # a triangle with a masked corner is masked: NaN carries through the mean
    level = values[triangles].mean(axis=1)
    known = np.isfinite(level)
    level = np.where(known, level, 0.0)
    ramp = np.clip(np.abs(level) / _FADE, 0, 1)
    cover = np.where(known, ramp * ramp * (3 - 2 * ramp), 0.0)[:, None]
    paint = colours((level + 1) / 2 if signed else level)[:, :3]
    grey = surface.grey[triangles].mean(axis=1)[:, None]
    return np.clip((cover * paint + (1 - cover) * grey) * light[:, None], 0, 1)


def _colour_bar(
    figure: Any,
    box: tuple[float, float, float, float],
    colours: Any,
    signed: bool,
    top: float,
    scale: str,
    units: str,
) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    axes = figure.add_axes(box)
    bar = figure.colorbar(
        ScalarMappable(Normalize(-top if signed else 0.0, top), colours), cax=axes, orientation="horizontal"
    )
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=7, width=0.5, length=2)
    name = "Part of each component's maximum" if scale == "each" else "Component"
    bar.set_label(f"{name} ({units})" if units and scale != "each" else name, fontsize=8, labelpad=2)
