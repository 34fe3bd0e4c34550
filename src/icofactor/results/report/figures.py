"""Maps on the cortex, drawn with matplotlib."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.assessment.selection.choice import verbatim
from icofactor.errors import ArgumentError, shown
from icofactor.results.colours import distinct_colours, diverging
from icofactor.results.report.drawing import (
    PANEL,
    STEPS,
    Bytes,
    Scale,
    View,
    add_picture,
    new_figure,
    paint,
    panels_of,
    view_of,
)
from icofactor.results.report.surfaces import (
    Cortex,
    Floats,
    Surfaces,
    cortex_of,
    labels_on_vertices,
    on_vertices,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colour scales end at this percentile, so that a single extreme vertex does not flatten the map.
SHARP_PERCENTILE = 99.5
_DEFAULT_SURFACE = "inflated"
_SIDE_VIEWS = ("lateral", "medial")
# Below this share of the colour scale the map fades into the grey of gyri and sulci.
_FADE = 0.25
_GREY = 0.78
# Sizes in inches.
_LABEL_WIDTH = 1.1
_RIGHT_MARGIN = 0.15
_TITLE_HEIGHT = 0.3
_BAR_HEIGHT = 0.75
_BAR_WIDTH = 1.3
_NOTE_LINE = 0.12
_NOTE_LETTER = 0.049
# Letters in a line of a label.
_NAME_WIDTH = 17
_NOTE = "unique: % of between-subject variance that its loadings add to those of all others"


def plot_components(
    model: Any,
    surface: str = _DEFAULT_SURFACE,
    components: Sequence[int] | None = None,
    views: str | Sequence[str] = _SIDE_VIEWS,
    cmap: str | None = None,
    scale: str = "shared",
    units: str = "",
    dpi: int = 150,
    surfaces: Surfaces | None = None,
    shares: Any = None,
    names: Sequence[str] = (),
) -> Figure:
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
    names : sequence of str, optional
        Names of the components, shown under their numbers.

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
        raise ArgumentError("scale", f'must be "shared" or "each"; found {shown(scale)}')
    _check_fitted(model)
    panels = panels_of(model.hemi_ or "left", views)
    maps = _used_maps(model)
    selected = list(range(len(maps))) if components is None else [int(j) for j in components]
    if not selected or min(selected) < 0 or max(selected) >= len(maps):
        raise ArgumentError(
            "components", f"must be some of 0 to {len(maps) - 1}; found {shown(selected)}"
        )
    if names and len(names) != len(maps):
        raise ArgumentError(
            "names", f"must be one for each of {len(maps)} components; found {len(names)}"
        )
    sites = model.sites_.one_copy()
    cortex = cortex_of(sites, model.hemi_, surfaces)
    if surface not in (*cortex.shapes, _DEFAULT_SURFACE):
        raise ArgumentError(
            "surface", f"must be one of {', '.join(cortex.shapes)}; found {shown(surface)}"
        )
    measures = getattr(model, "measures_", None)
    measure_names = ("",) if measures is None or measures.share == "maps" else measures.names
    by_measure = maps.reshape(len(maps), len(measure_names), sites.n)
    tops = np.array([[top_of(values) for values in component] for component in by_measure])
    limits = tops if scale == "each" else np.broadcast_to(tops.max(axis=0), tops.shape)
    colours = _map_colours(cmap, signed=bool(np.nanmin(maps) < 0))

    # The name of a component stands beside its first measure only.
    sheet = _Sheet(
        cortex,
        surface,
        panels,
        n_rows=len(selected) * len(measure_names),
        note="" if shares is None else _NOTE,
        dpi=dpi,
    )
    for j in selected:
        for number, measure in enumerate(measure_names):
            label = [_component_label(j, shares, names)] if number == 0 else []
            values = on_vertices(sites, by_measure[j, number] / limits[j, number])
            sheet.add_row("\n".join([*label, *filter(None, [measure])]), values, colours)
    sheet.add_titles(named=model.hemi_ is not None)
    if scale == "each":
        sheet.add_bar(colours, 1.0, "Part of each component's maximum")
    elif len(measure_names) > 1:
        sheet.add_bar(colours, 1.0, "Part of the largest value of the measure")
    else:
        sheet.add_bar(colours, float(tops.max()), f"Component ({units})" if units else "Component")
    return sheet.figure


def plot_pairs(
    model: Any,
    pairs: Sequence[tuple[Floats, Floats]],
    labels: Sequence[str],
    names: tuple[str, str],
    cortex: Cortex,
) -> Figure:
    """Draw pairs of maps on a model's sites side by side, each relative to its own maximum."""
    panels = panels_of(model.hemi_ or "left", _SIDE_VIEWS)
    signed = any(bool(np.nanmin(values) < 0) for pair in pairs for values in pair)
    colours = _map_colours(None, signed)
    note = f"Left: {names[0]}. Right: {names[1]}."
    sheet = _Sheet(cortex, _DEFAULT_SURFACE, panels, len(pairs), note=note, repeats=2)
    for pair, label in zip(pairs, labels, strict=True):
        halves = [on_vertices(model.sites_, values / top_of(values)) for values in pair]
        sheet.add_row(label, halves[0], colours)
        sheet.add_row("", halves[1], colours, beside=1)
    sheet.add_titles(named=model.hemi_ is not None)
    sheet.add_bar(colours, 1.0, "Part of each component's maximum")
    return sheet.figure


def plot_maps(
    model: Any,
    diagnostics: Any,
    surface: str = _DEFAULT_SURFACE,
    views: Sequence[str] = _SIDE_VIEWS,
    surfaces: Surfaces | None = None,
) -> Figure:
    """Draw median, standard deviation, explained variance, refinement depth (where there is any)
    and parcellation, one row each.
    """
    d = diagnostics
    sites = model.sites_
    units = f" ({d.units})" if d.units else ""
    median_ends = np.nanpercentile(d.median, (100 - SHARP_PERCENTILE, SHARP_PERCENTILE))
    rows = [
        (f"Median{units}", d.median, _sequential("viridis", *median_ends)),
        (
            f"Standard\ndeviation{units}",
            d.deviation,
            _sequential("viridis", 0, top_of(d.deviation)),
        ),
        ("Explained\nvariance (share)", d.explained_map, _sequential("viridis", 0, 1)),
    ]
    depth = d.depth.astype(np.float64)
    if model.mask_ is not None:
        depth = np.where(model.mask_, depth, np.nan)
    if np.nanmax(depth) > 0:
        rows.append(("Refinement\ndepth", depth, _whole_numbers(float(np.nanmax(depth)))))
    cortex = cortex_of(sites, model.hemi_, surfaces)
    panels = panels_of(model.hemi_ or "left", views)
    sheet = _Sheet(cortex, surface, panels, len(rows) + 1, right=_BAR_WIDTH)
    for name, values, scale in rows:
        sheet.add_row(name, on_vertices(sites, values), scale)
        sheet.add_side_bar(scale, values)
    k = len(d.alone)
    parcels = [half.astype(np.float64) for half in labels_on_vertices(sites, d.parcellation)]
    sheet.add_row("Largest\ncomponent", parcels, parcel_colours(k))
    sheet.add_keys(k)
    sheet.add_titles(named=model.hemi_ is not None)
    return sheet.figure


def parcel_colours(k: int) -> Scale:
    """Return the colours of the parcels 1 to k; 0 is a site without one."""
    covered = np.column_stack([distinct_colours(k) / 255, np.ones(k)])
    # The first row is for no value, the second for the label 0.
    return Scale(0, k, np.concatenate([np.zeros((2, 4)), covered]), nearest=True)


def component_scale(signed: bool, top: float) -> Scale:
    """Return the scale of component maps on which values are not divided by their maximum."""
    scale = _map_colours(None, signed)
    return Scale(scale.low * top, top, scale.colours)


class Pictures:
    """Maps painted on the views of a cortex; a view is worked out once for all maps."""

    def __init__(self, cortex: Cortex, surface: str = _DEFAULT_SURFACE) -> None:
        self._cortex = cortex
        self._shape = surface if surface in cortex.shapes else cortex.shapes[0]
        self._number = {half.side: i for i, half in enumerate(cortex.hemispheres)}

    def view(self, side: str, name: str) -> View:
        """Return a view of one hemisphere."""
        key = (side, self._shape, name)
        if key not in self._cortex.drawn:
            hemisphere = self._cortex.hemispheres[self._number[side]]
            self._cortex.drawn[key] = view_of(hemisphere, self._shape, name)
        view: View = self._cortex.drawn[key]
        return view

    def picture(self, side: str, name: str, values: Sequence[Floats], scale: Scale) -> Bytes:
        """Return one view of a map, whose values are per hemisphere on its vertices."""
        half = self._number[side]
        drawn_vertices = self._cortex.hemispheres[half].vertices
        return paint(self.view(side, name), values[half][drawn_vertices], scale)


class _Sheet:
    """A figure of brains: a row per map, a column per view."""

    def __init__(
        self,
        cortex: Cortex,
        surface: str,
        panels: Sequence[tuple[str, str]],
        n_rows: int,
        *,
        note: str = "",
        right: float = 0.0,
        repeats: int = 1,
        dpi: int | None = None,
    ) -> None:
        self._pictures = Pictures(cortex, surface)
        self._panels = panels
        self._repeats = repeats
        self._rows = 0
        self._width = _LABEL_WIDTH + PANEL[0] * len(panels) * repeats + right + _RIGHT_MARGIN
        lines = textwrap.wrap(note, int((self._width - 2 * _RIGHT_MARGIN) / _NOTE_LETTER))
        # With bars at the right there is none at the foot.
        self._foot = 0.1 if right else _BAR_HEIGHT + _NOTE_LINE * len(lines)
        self._height = _TITLE_HEIGHT + PANEL[1] * n_rows + self._foot
        size = (self._width, self._height)
        self.figure = new_figure(*size) if dpi is None else new_figure(*size, dpi)
        if lines:
            self.figure.text(
                0.5,
                0.06 / self._height,
                "\n".join(lines),
                ha="center",
                va="bottom",
                fontsize=6,
                color="0.35",
            )

    def add_row(self, label: str, values: Sequence[Floats], scale: Scale, beside: int = 0) -> None:
        """Add a map; with `beside` it stands in the last row, after that many others."""
        self._rows += beside == 0
        bottom = self._bottom()
        # A label of three lines contains a name.
        size = 8 if label.count("\n") < 2 else 7
        middle = (bottom + 0.5 * PANEL[1]) / self._height
        self.figure.text(0.12 / self._width, middle, label, va="center", fontsize=size)
        first = beside * len(self._panels)
        for column, (side, view) in enumerate(self._panels, first):
            box = (_LABEL_WIDTH + PANEL[0] * column, bottom, *PANEL)
            add_picture(self.figure, box, self._pictures.picture(side, view, values, scale))

    def _bottom(self) -> float:
        """Return where the last row ends."""
        return self._height - _TITLE_HEIGHT - PANEL[1] * self._rows

    def add_titles(self, named: bool) -> None:
        """Write above each column which view it is; the side too where it is known."""
        top = (self._height - _TITLE_HEIGHT + 3 / 72) / self._height
        for column, (side, view) in enumerate([*self._panels] * self._repeats):
            middle = (_LABEL_WIDTH + PANEL[0] * (column + 0.5)) / self._width
            title = f"{side} {view}" if named else view
            self.figure.text(middle, top, title, ha="center", va="baseline", fontsize=8)

    def add_bar(self, scale: Scale, top: float, label: str) -> None:
        """Add the colour bar of all maps at the foot."""
        box = (0.32, (self._foot - 0.28) / self._height, 0.36, 0.1 / self._height)
        signed = scale.low < 0
        bar = self._bar(box, scale, (scale.low * top, top), "both" if signed else "max")
        bar.set_xlabel(label, fontsize=8, labelpad=2)

    def add_side_bar(self, scale: Scale, values: Floats) -> None:
        """Add the colour bar of the last row at its right."""
        middle = (self._bottom() + 0.5 * PANEL[1]) / self._height
        size = ((_BAR_WIDTH - 0.2) / self._width, 0.09 / self._height)
        box = (self._side() / self._width, middle, *size)
        if scale.nearest:
            deepest = scale.high
            bar = self._bar(box, scale, (-0.5, deepest + 0.5))
            bar.set_xticks(np.arange(0, deepest + 1, max(1, deepest // 4)))
            return
        below = bool(np.nanmin(values) < scale.low)
        above = bool(np.nanmax(values) > scale.high)
        beyond = {(True, True): "both", (True, False): "min", (False, True): "max"}
        self._bar(box, scale, (scale.low, scale.high), beyond.get((below, above), "neither"))

    def _side(self) -> float:
        """Return where the columns of views end, in inches."""
        return _LABEL_WIDTH + PANEL[0] * len(self._panels) + 0.12

    def _bar(
        self,
        box: tuple[float, float, float, float],
        scale: Scale,
        ends: tuple[float, float],
        beyond: str = "neither",
    ) -> Axes:
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import ListedColormap, Normalize

        cover = scale.colours[1:, 3:]
        # Small values let the grey of the surface through.
        on_surface = cover * scale.colours[1:, :3] + (1 - cover) * _GREY
        axes = self.figure.add_axes(box)
        bar = self.figure.colorbar(
            ScalarMappable(Normalize(*ends), ListedColormap(on_surface)),
            cax=axes,
            orientation="horizontal",
            extend=beyond,
        )
        bar.outline.set_linewidth(0.5)
        bar.ax.tick_params(labelsize=7, width=0.5, length=2)
        return bar.ax

    def add_keys(self, k: int) -> None:
        """Add the numbers of the components on their colours beside the last row."""
        # Many keys need small letters to have room beside the brains.
        many = k > 25
        per_row = 10 if many else 5
        step = (_BAR_WIDTH - 0.1) / per_row
        line = min(0.2, 0.85 / (k / per_row))
        top = self._bottom() + PANEL[1] - 0.2
        for j, colour in enumerate(distinct_colours(k) / 255):
            x = self._side() + (j % per_row + 0.4) * step
            y = top - (j // per_row) * line
            self.figure.text(
                x / self._width,
                y / self._height,
                str(j + 1),
                ha="center",
                va="center",
                fontsize=4 if many else 6,
                color="white" if colour.sum() < 1.5 else "black",
                bbox={"facecolor": colour, "edgecolor": "none", "boxstyle": "square,pad=0.35"},
            )


def _map_colours(cmap: str | None, signed: bool) -> Scale:
    """Return colours of −1 to 1, or 0 to 1, which fade into the surface near 0."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    if cmap is None and signed:
        colours = ListedColormap(diverging() / 255)
    else:
        colours = colormaps[cmap or "viridis"]  # type: ignore[assignment]
    low = -1.0 if signed else 0.0
    ramp = np.clip(np.abs(np.linspace(low, 1, STEPS)) / _FADE, 0, 1)
    table = colours(np.linspace(0, 1, STEPS))
    table[:, 3] = ramp * ramp * (3 - 2 * ramp)
    return Scale(low, 1.0, np.concatenate([np.zeros((1, 4)), table]))


def _sequential(cmap: str, low: float, high: float) -> Scale:
    from matplotlib import colormaps

    table = colormaps[cmap](np.linspace(0, 1, STEPS))
    top = float(high) if high > low else float(low) + 1
    return Scale(float(low), top, np.concatenate([np.zeros((1, 4)), table]))


def _whole_numbers(high: float) -> Scale:
    from matplotlib import colormaps

    table = colormaps["cividis"](np.linspace(0, 1, int(high) + 1))
    return Scale(0.0, high, np.concatenate([np.zeros((1, 4)), table]), nearest=True)


def _check_fitted(model: Any) -> None:
    if not hasattr(model, "components_"):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(
            f"this {type(model).__name__} has no components to draw yet: call fit first"
        )


def _component_label(j: int, shares: Any, names: Sequence[str]) -> str:
    lines = [f"Component {j + 1}"]
    if names:
        # A number and its percent sign stay on one line.
        name = verbatim(names[j].replace(" %", "\N{NO-BREAK SPACE}%"))
        lines += textwrap.wrap(name, _NAME_WIDTH, max_lines=4, placeholder="…")
    if shares is not None:
        lines.append(f"{100 * float(shares[j]):.1f} % unique")
    return "\n".join(lines)


def _used_maps(model: Any) -> Floats:
    """Return the components (k, n_sites), NaN where masked."""
    maps = np.array(model.components_, dtype=np.float64)
    mask = getattr(model, "mask_", None)
    if maps.ndim != 2 or maps.shape[1] != model.sites_.n:
        raise ArgumentError(
            "components_", f"must have shape (k, {model.sites_.n}); found {maps.shape}"
        )
    if mask is not None:
        maps[:, ~np.asarray(mask, dtype=bool)] = np.nan
    if not np.isfinite(maps).any():
        raise ArgumentError("components_", "contains no finite value outside the mask")
    return maps


def top_of(values: Floats) -> float:
    """Return what the end of a colour scale from 0 stands for: nearly the largest size."""
    sizes = np.abs(values[np.isfinite(values)])
    top = float(np.percentile(sizes, SHARP_PERCENTILE)) if sizes.size else 0.0
    return top or float(sizes.max(initial=0.0)) or 1.0
