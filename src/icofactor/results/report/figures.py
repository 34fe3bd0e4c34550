"""Static figures of maps on the cortex, drawn with matplotlib alone and without its global state."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from icofactor.assessment.selection.choice import verbatim
from icofactor.errors import ArgumentError, shown
from icofactor.results.colours import distinct_colours, diverging
from icofactor.results.report.drawing import (
    PANEL,
    Paint,
    Raster,
    colour_bar,
    new_figure,
    paint,
    panels_of,
    rasterise,
    show,
)
from icofactor.results.report.surfaces import (
    Cortex,
    Floats,
    Surfaces,
    cortex_of,
    labels_on_vertices,
    on_vertices,
)

SHARP_PERCENTILE = 99.5
_DEFAULT_SURFACE = "inflated"
# Below this part of the colour scale the map fades into the grey of gyri and sulci.
_FADE = 0.25
_GREY = 0.78
# All in inches.
_LABEL_WIDTH, _RIGHT_MARGIN, _TITLE_HEIGHT, _BAR_HEIGHT = 1.1, 0.15, 0.3, 0.75
_NOTE_LINE, _NOTE_LETTER, _BAR_WIDTH = 0.12, 0.049, 1.3
_NAME_WIDTH = 17  # letters
_NOTE = "unique: % of between-subject variance that its loadings add to those of all others"


def plot_components(
    model: Any,
    surface: str = _DEFAULT_SURFACE,
    components: Sequence[int] | None = None,
    views: str | Sequence[str] = ("lateral", "medial"),
    cmap: str | None = None,
    scale: str = "shared",
    units: str = "",
    dpi: int = 150,
    surfaces: Surfaces | None = None,
    shares: Any = None,
    names: Sequence[str] = (),
) -> Any:
    """Draw the components of a model on the cortex: one row per component (and measure), one column
    per view.

    Parameters
    ----------
    model : CorticalFactorization
        A fitted model. If its hemisphere is not known, it is drawn as a left one, and titles name
        no side.
    surface : str, default="inflated"
        "inflated", "pial", "midthickness", "white" or "sphere" of fsaverage, or one of `surfaces`.
        Other meshes are drawn as spheres.
    components : sequence of int, optional
        Which components to draw, counted from 0. Default: all.
    views : str or sequence of str
        Some of "lateral", "medial", "dorsal", "ventral", "anterior", "posterior".
    cmap : str or Colormap, optional
        matplotlib colour map. Default: "viridis", or blue to orange if there are negative values.
    scale : {"shared", "each"}
        One colour scale for all components of the model (per measure), or each component relative
        to its maximum.
    units : str
        Units of the components, for the colour bar.
    dpi : int
        Resolution of the figure.
    surfaces : paths, optional
        Files or folders of surfaces, for meshes other than fsaverage.
    shares : sequence of float, optional
        Shares of the between-subject variance, one per component of the model, shown under its
        name; for the share that only this component explains, use `unique` of the diagnostics.

    Returns
    -------
    matplotlib.figure.Figure
        ``figure.savefig("components.png")`` writes it.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
    >>> figure = ico.plot_components(model, components=[0], views=["lateral"])
    >>> figure.savefig("components.png")  # doctest: +SKIP
    """
    if scale not in ("shared", "each"):
        raise ArgumentError("scale", f"must be 'shared' or 'each'; found {shown(scale)}")
    _check_fitted(model)
    panels = panels_of(model.hemi_ or "left", views)
    maps = _used_maps(model)
    chosen = _chosen(components, len(maps))
    sites, measures = model.sites_.of_measure(), getattr(model, "measures_", None)
    of = ("",) if measures is None or measures.share == "maps" else measures.names
    if names and len(names) != len(maps):
        raise ArgumentError("names", f"{len(names)} names for {len(maps)} components")
    cortex = cortex_of(sites, model.hemi_, surfaces)
    if surface not in (*cortex.shapes, _DEFAULT_SURFACE):
        shapes = ", ".join(map(repr, cortex.shapes))
        raise ArgumentError("surface", f"must be one of {shapes}; found {shown(surface)}")
    each = maps.reshape(len(maps), len(of), sites.n)
    tops = np.array([[top_of(one) for one in of_component] for of_component in each])
    signed = bool(np.nanmin(maps) < 0)
    limits = tops if scale == "each" else np.broadcast_to(tops.max(axis=0), tops.shape)
    colours = _colour_map(cmap, signed)

    figure, foot = _page(len(chosen) * len(of), len(panels), "" if shares is None else _NOTE, dpi)
    views_of = _Views(cortex, surface, panels)
    for row, (j, g) in enumerate((j, g) for j in chosen for g in range(len(of))):
        values = on_vertices(sites, each[j, g] / limits[j, g])
        label = "\n".join(filter(None, [_label(j, shares, names) if g == 0 else "", of[g]]))
        views_of.row(figure, row, label, values, partial(_faded, colours=colours, signed=signed))
    _titles(figure, panels, named=model.hemi_ is not None)
    end = 1.0 if scale == "each" or len(of) > 1 else float(tops.max())
    height = figure.get_size_inches()[1]
    box, ends = (0.3, (foot - 0.28) / height, 0.4, 0.1 / height), (-end if signed else 0.0, end)
    bar = colour_bar(figure, box, _shown(colours, signed), ends, "both" if signed else "max")
    name = "Part of each component's maximum" if scale == "each" else "Component"
    name = "Part of the largest value of the measure" if scale != "each" and len(of) > 1 else name
    bar.set_label(
        f"{name} ({units})" if units and name == "Component" else name, fontsize=8, labelpad=2
    )
    return figure


def plot_pairs(
    model: Any,
    pairs: Sequence[tuple[Floats, Floats]],
    labels: Sequence[str],
    names: tuple[str, str],
    cortex: Cortex,
) -> Any:
    """Pairs of maps on a model's sites side by side, NaN where there are no data, each in parts of
    its own maximum.
    """
    panels = panels_of(model.hemi_ or "left", ("lateral", "medial"))
    signed = any(bool(np.nanmin(one) < 0) for pair in pairs for one in pair)
    colours = _colour_map(None, signed)
    figure, foot = _page(len(pairs), 2 * len(panels), f"Left: {names[0]}. Right: {names[1]}.", 150)
    views_of = _Views(cortex, _DEFAULT_SURFACE, panels)
    for row, (pair, label) in enumerate(zip(pairs, labels, strict=True)):
        for place, values in enumerate(pair):
            on_mesh = on_vertices(model.sites_, values / top_of(values))
            painted = partial(_faded, colours=colours, signed=signed)
            views_of.row(
                figure,
                row,
                label if place == 0 else "",
                on_mesh,
                painted,
                first=place * len(panels),
            )
    _titles(figure, [*panels, *panels], named=model.hemi_ is not None)
    height = figure.get_size_inches()[1]
    box, ends = (0.35, (foot - 0.28) / height, 0.3, 0.1 / height), (-1.0 if signed else 0.0, 1.0)
    bar = colour_bar(figure, box, _shown(colours, signed), ends, "both" if signed else "max")
    bar.set_label("Part of each component's maximum", fontsize=8, labelpad=2)
    return figure


def plot_maps(
    model: Any,
    diagnostics: Any,
    surface: str = _DEFAULT_SURFACE,
    views: Sequence[str] = ("lateral", "medial"),
    dpi: int = 150,
    surfaces: Surfaces | None = None,
) -> Any:
    """Median, standard deviation, explained variance, refinement depth (where there is any) and
    parcellation: one row each.
    """
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    d, sites, k = diagnostics, model.sites_, len(diagnostics.alone)
    units = f" ({d.units})" if d.units else ""
    depth = (
        d.depth.astype(np.float64)
        if model.mask_ is None
        else np.where(model.mask_, d.depth, np.nan)
    )
    known = d.median[np.isfinite(d.median)]
    rows = [
        (
            f"Median{units}",
            d.median,
            np.percentile(known, (100 - SHARP_PERCENTILE, SHARP_PERCENTILE)),
            "viridis",
        ),
        (f"Standard\ndeviation{units}", d.deviation, (0.0, top_of(d.deviation)), "viridis"),
        ("Explained\nvariance (share)", d.explained_map, (0.0, 1.0), "viridis"),
    ]
    if np.nanmax(depth) > 0:
        rows.append(("Refinement\ndepth", depth, (0.0, float(np.nanmax(depth))), "cividis"))
    cortex = cortex_of(sites, model.hemi_, surfaces)
    panels = panels_of(model.hemi_ or "left", views)
    width = _LABEL_WIDTH + PANEL[0] * len(panels) + _BAR_WIDTH + _RIGHT_MARGIN
    height = _TITLE_HEIGHT + PANEL[1] * (len(rows) + 1) + 0.1
    figure, views_of = new_figure(width, height, dpi), _Views(cortex, surface, panels)
    for row, (name, values, (low, high), cmap) in enumerate(rows):
        high = float(high) if high > low else float(low) + 1
        parts = on_vertices(sites, (values - low) / (high - low))
        colours = colormaps[cmap]
        steps = name.startswith("Refinement")  # whole numbers, which have nothing between them
        views_of.row(figure, row, name, parts, partial(_solid, colours=colours), labels=steps)
        middle = (height - _TITLE_HEIGHT - PANEL[1] * (row + 0.5)) / height
        left = (_LABEL_WIDTH + PANEL[0] * len(panels) + 0.12) / width
        box = (left, middle, (_BAR_WIDTH - 0.2) / width, 0.09 / height)
        if steps:
            bar = colour_bar(
                figure, box, colours.resampled(int(high) + 1), (-0.5, high + 0.5), "neither"
            )
            bar.set_ticks(np.arange(0, high + 1, max(1, high // 4)))
        else:
            bar = colour_bar(figure, box, colours, (float(low), high), _beyond(values, low, high))
    labels = [part.astype(np.float64) for part in labels_on_vertices(sites, d.parcellation)]
    palette = ListedColormap(distinct_colours(k) / 255)
    name = "Largest\ncomponent"
    views_of.row(figure, len(rows), name, labels, partial(_labelled, palette=palette), labels=True)
    _parcel_keys(
        figure, palette, k, (_LABEL_WIDTH + PANEL[0] * len(panels) + 0.12) / width, len(rows)
    )
    _titles(figure, panels, named=model.hemi_ is not None)
    return figure


def _beyond(values: Floats, low: float, high: float) -> str:
    """Which ends of a colour scale values go beyond, as matplotlib says it."""
    under, over = bool(np.nanmin(values) < low), bool(np.nanmax(values) > high)
    return {
        (True, True): "both",
        (True, False): "min",
        (False, True): "max",
        (False, False): "neither",
    }[under, over]


def _parcel_keys(figure: Any, palette: Any, k: int, left: float, row: int) -> None:
    """Numbered swatches beside the parcellation, as many as fit."""
    width, height = figure.get_size_inches()
    per_row = 5 if k <= 25 else 10
    step = (_BAR_WIDTH - 0.1) / per_row
    top = height - _TITLE_HEIGHT - PANEL[1] * row - 0.2
    for j in range(k):
        x, y = (
            left + (j % per_row) * step / width,
            (top - (j // per_row) * min(0.2, 0.85 / (k / per_row))) / height,
        )
        text = {"ha": "center", "va": "center", "fontsize": 6 if k <= 25 else 4}
        dark = sum(palette(j)[:3]) < 1.5
        figure.text(
            x + 0.4 * step / width, y, str(j + 1), **text, color="white" if dark else "black",
            bbox={"facecolor": palette(j), "edgecolor": "none", "boxstyle": "square,pad=0.35"},
        )  # fmt: skip


def _page(n_rows: int, n_columns: int, note: str, dpi: int) -> tuple[Any, float]:
    """An empty figure with a note at its foot, and the height in inches that colour bar and note
    take there.
    """
    width = _LABEL_WIDTH + PANEL[0] * n_columns + _RIGHT_MARGIN
    lines = textwrap.wrap(note, int((width - 2 * _RIGHT_MARGIN) / _NOTE_LETTER))
    foot = _BAR_HEIGHT + _NOTE_LINE * len(lines)
    height = _TITLE_HEIGHT + PANEL[1] * n_rows + foot
    figure = new_figure(width, height, dpi)
    if lines:
        figure.text(
            0.5, 0.06 / height, "\n".join(lines), ha="center", va="bottom", fontsize=6, color="0.35"
        )
    return figure, foot


class _Views:
    """The views of a figure's columns, each worked out once, however many maps are painted on it."""

    def __init__(self, cortex: Cortex, surface: str, panels: Sequence[tuple[str, str]]) -> None:
        shape = surface if surface in cortex.shapes else cortex.shapes[0]
        number = {half.side: i for i, half in enumerate(cortex.hemispheres)}
        self._columns: list[tuple[int, Any, Raster]] = []
        for side, view in panels:
            half, key = cortex.hemispheres[number[side]], (side, shape, view)
            if key not in cortex.drawn:
                cortex.drawn[key] = rasterise(half, shape, view)
            self._columns.append((number[side], half.vertices, cortex.drawn[key]))

    def row(
        self,
        figure: Any,
        row: int,
        label: str,
        values: Sequence[Any],
        colours: Paint,
        labels: bool = False,
        first: int = 0,
    ) -> None:
        """One map, in all views from column `first` on; `values` per hemisphere on its vertices."""
        width, height = figure.get_size_inches()
        bottom = height - _TITLE_HEIGHT - PANEL[1] * (row + 1)
        size = 8 if label.count("\n") < 2 else 7  # with a name
        figure.text(
            0.12 / width, (bottom + 0.5 * PANEL[1]) / height, label, va="center", fontsize=size
        )
        for column, (number, vertices, raster) in enumerate(self._columns, first):
            box = (_LABEL_WIDTH + PANEL[0] * column, bottom, *PANEL)
            show(figure, box, paint(raster, values[number][vertices], colours, labels))


def _titles(figure: Any, panels: Sequence[tuple[str, str]], named: bool) -> None:
    width, height = figure.get_size_inches()
    for column, (side, view) in enumerate(panels):
        middle, top = _LABEL_WIDTH + PANEL[0] * (column + 0.5), height - _TITLE_HEIGHT + 3 / 72
        text = f"{side} {view}" if named else view
        figure.text(middle / width, top / height, text, ha="center", va="baseline", fontsize=8)


def _faded(level: Floats, colours: Any, signed: bool) -> tuple[Floats, Floats]:
    """Colours of triangles, and how far they cover the grey: little where the map is small."""
    known = np.isfinite(level)
    level = np.where(known, level, 0.0)
    ramp = np.clip(np.abs(level) / _FADE, 0, 1)
    cover = np.where(known, ramp * ramp * (3 - 2 * ramp), 0.0)
    return colours((level + 1) / 2 if signed else level)[:, :3], cover


def _shown(colours: Any, signed: bool) -> Any:
    """The colour map as it is seen on the grey of the surface, which small values let through."""
    from matplotlib.colors import ListedColormap

    level = np.linspace(-1 if signed else 0, 1, 256)
    colour, cover = _faded(level, colours, signed)
    return ListedColormap(cover[:, None] * colour + (1 - cover[:, None]) * _GREY)


def _solid(level: Floats, colours: Any) -> tuple[Floats, Floats]:
    known = np.isfinite(level)
    return colours(np.where(known, level, 0.0))[:, :3], known.astype(np.float64)


def _labelled(labels: Floats, palette: Any) -> tuple[Floats, Floats]:
    return palette(np.maximum(labels.astype(np.int64) - 1, 0))[:, :3], (labels > 0).astype(
        np.float64
    )


def _check_fitted(model: Any) -> None:
    if not hasattr(model, "components_"):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(
            f"this {type(model).__name__} has no components to draw yet: call fit first"
        )


def _chosen(components: Sequence[int] | None, k: int) -> list[int]:
    chosen = list(range(k)) if components is None else [int(j) for j in components]
    if not chosen or min(chosen) < 0 or max(chosen) >= k:
        raise ArgumentError(
            "components", f"must be numbers from 0 to {k - 1}; found {shown(chosen)}"
        )
    return chosen


def _label(j: int, shares: Any, names: Sequence[str]) -> str:
    name = (
        textwrap.wrap(
            verbatim(names[j].replace(" %", "\N{NO-BREAK SPACE}%")),
            _NAME_WIDTH,
            max_lines=4,
            placeholder="…",
        )
        if names
        else []
    )
    share = [] if shares is None else [f"{100 * float(shares[j]):.1f} % unique"]
    return "\n".join([f"Component {j + 1}", *name, *share])


def _used_maps(model: Any) -> Floats:
    """(k, n_sites) components, NaN where masked."""
    sites, mask = model.sites_, getattr(model, "mask_", None)
    maps = np.array(model.components_, dtype=np.float64)
    if maps.ndim != 2 or maps.shape[1] != sites.n:
        problem = f"must have the shape (k, {sites.n}) of {sites!r}; found {maps.shape}"
        raise ArgumentError("components_", problem)
    if mask is not None:
        maps[:, ~np.asarray(mask, dtype=bool)] = np.nan
    if not np.isfinite(maps).any():
        raise ArgumentError("components_", "has no finite value outside the mask")
    return maps


def top_of(values: Floats) -> float:
    """What the end of a colour scale from 0 stands for: nearly the largest size of a value."""
    sizes = np.abs(values[np.isfinite(values)])
    top = float(np.percentile(sizes, SHARP_PERCENTILE)) if sizes.size else 0.0
    return top or float(sizes.max(initial=0.0)) or 1.0


def _colour_map(cmap: str | None, signed: bool) -> Any:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    if cmap is None and signed:
        return ListedColormap(diverging() / 255)
    return colormaps[cmap or "viridis"]
