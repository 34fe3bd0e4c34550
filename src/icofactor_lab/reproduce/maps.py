"""Experiment 4: what LE-PNNMF finds after hundreds of refinements, and whether the refinement went where data vary.

Maps of all experiments are drawn on the cortex here.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from icofactor.streaming.checkpoint import Arrays, Checkpoint
from scipy.stats import spearmanr

from icofactor.factorization._multistart import multistart
from icofactor.factorization._refine import refine
from icofactor.factorization.design import Design
from icofactor.factorization.methods import PAPER_METHODS
from icofactor.results.report.drawing import PANEL, Raster, colour_bar, new_figure, paint, rasterise, show
from icofactor.results.report.surfaces import cortex_of, labels_on_vertices, on_vertices
from icofactor.sphere.sites import Sites
from icofactor_lab.common.outcome import Outcome, Plate, Table
from icofactor_lab.common.plotting import DPI
from icofactor_lab.reproduce.datasets import Dataset, Maps, illustrated
from icofactor_lab.reproduce.settings import DEFAULT, FACES, LITERAL, SHOWN, UPDATES, Context, Setting, Sizes

METHOD = "LE-PNNMF"
SETTINGS = (LITERAL, DEFAULT)
"""With σ = 0.0692 a refinement to thousands of overlapping columns takes hours; its first ten are in experiment 3."""
_PAPER = (
    "Figure 6 of the paper: median and standard deviation of myelin; how often a face was divided during the first 600 "
    "refinements of LE-PNNMF; its first three basis maps."
)


def run(context: Context) -> Outcome:
    """Two settings, and refinements drawn at random."""
    dataset, sizes = illustrated(context.datasets), context.sizes
    found = {}
    for i, setting in enumerate(SETTINGS):
        report = lambda done, i=i: context.show((i + done) / (len(SETTINGS) + 1))
        kept = None if context.work.folder is None else context.work.folder / f"maps.{setting.key}.steps"
        compute = partial(_refined, dataset, setting, sizes, context.seed, kept, context.work.run, report)
        found[setting.key] = context.piece(f"maps.{setting.key}", compute)
    null = context.piece("maps.random", partial(_random, dataset, sizes, context.seed))
    context.show(1.0)
    return _section(found, null, dataset, sizes)


def _refined(
    dataset: Dataset, setting: Setting, sizes: Sizes, seed: int, kept: Path | None, run: dict[str, Any], report: Any
) -> Arrays:
    maps = dataset.load()
    source, design = maps.source, setting.design(maps.sites)
    stats = source.statistics(design)
    best = multistart(
        stats, METHOD, sizes.n_components, n_starts=sizes.starts, n_iter=sizes.updates, rules=setting.rules,
        engine=sizes.engine, random_state=seed,
    )  # fmt: skip
    schedule = setting.schedule(sizes.steps)
    refined = refine(source, design, stats, best, schedule, report=report, checkpoint=Checkpoint(kept, run))
    B, C = np.asarray(refined.solution.B), np.asarray(refined.solution.C)
    W = refined.design.matrix @ B
    share = np.sort(W * np.sqrt((C**2).mean(axis=1)), axis=1)
    known = share[:, -1] > 0
    return {
        "depth": refined.design.site_depth,
        "basis": W[:, :SHOWN].T.astype(np.float32),
        "errors": refined.solution.errors / stats.sq_norm,
        "columns": np.array(refined.design.n_columns),
        "steps": np.array(len(refined.divisions)),
        "overlap": np.array(overlap(W)),
        "hoyer": np.array(hoyer(W)),
        "shared": np.array((share[known, -2] > 0.5 * share[known, -1]).mean()),
        "covered": np.array(known.mean()),
        "focus": np.array(_focus(maps, refined.design.site_depth)),
    }


def _focus(maps: Maps, depth: np.ndarray) -> list[float]:
    """Rank correlations of depth with the local standard deviation and with the median map."""
    with np.errstate(invalid="ignore"):
        return [
            float(spearmanr(depth, values).statistic) if np.ptp(depth) > 0 else float("nan")
            for values in (maps.X.std(axis=1), np.median(maps.X, axis=1))
        ]


def _random(dataset: Dataset, sizes: Sizes, seed: int) -> Arrays:
    """The same correlations for refinements that divide faces drawn at random."""
    maps = dataset.load()
    found, depth = [], np.zeros(0)
    for stream in np.random.SeedSequence([seed, 4]).spawn(sizes.random_refinements):
        rng = np.random.default_rng(stream)
        design = Design(maps.sites)
        for _ in range(sizes.steps):
            able = np.flatnonzero(design.divisible)
            if not len(able):
                break
            design = design.divide(rng.choice(able, min(FACES, len(able)), replace=False))
        depth = design.site_depth
        found.append(_focus(maps, depth))
    return {"focus": np.array(found), "depth": depth}


def _section(found: dict[str, Arrays], null: Arrays, dataset: Dataset, sizes: Sizes) -> Outcome:
    maps = dataset.load()
    about = (
        f"{METHOD} on {dataset.name}: best of {sizes.starts:,} starts × {sizes.updates:,} updates on twenty columns, "
        f"then {sizes.steps} refinements of {FACES} faces, {UPDATES} updates each. Focus: rank correlation over sites "
        f"of depth with the standard deviation over subjects, against {sizes.random_refinements} refinements of faces "
        "drawn at random. All eleven methods: figures of experiment 3."
    )
    outcome = Outcome("maps", f"Maps of {METHOD}", [about])
    low, high = np.percentile(null["focus"][:, 0], (2.5, 97.5))
    rows = []
    for setting in SETTINGS:
        piece = found[setting.key]
        rows.append(
            {
                "setting": setting.key,
                "refinements": int(piece["steps"]),
                "columns": int(piece["columns"]),
                "E/‖X‖² before": float(piece["errors"][sizes.updates]),
                "E/‖X‖² after": float(piece["errors"][-1]),
                "depth and standard deviation (ρ)": float(piece["focus"][0]),
                "depth and median map (ρ)": float(piece["focus"][1]),
                "random refinement: ρ, 2.5 %": float(low),
                "random refinement: ρ, 97.5 %": float(high),
                "overlap (mean cosine)": float(piece["overlap"]),
                "sites where two maps are near (second > half of first)": float(piece["shared"]),
                "Hoyer sparsity of basis maps": float(piece["hoyer"]),
                "sites that any basis map reaches": float(piece["covered"]),
            }
        )
        ours = f"{dataset.name}, {setting.name}, {int(piece['steps'])} refinements."
        outcome.plates.append(
            Plate(f"fig6_maps_{setting.key}", partial(_map_plate, dataset, maps, piece), ours, _PAPER)
        )
    ours = "For comparison: the depth of one refinement of faces drawn at random."
    outcome.plates.append(Plate("fig6c_random", partial(_map_plate, dataset, maps, null), ours))
    outcome.tables = [Table("Focus and overlap", rows, name="maps")]
    outcome.facts = {"rows": rows}
    return outcome


# ------------------------------------------------------------------ measures of basis maps


def hoyer(x: np.ndarray) -> float:
    """Hoyer's sparsity of the columns, mean: 0 where all entries are equal, 1 where one is not zero."""
    n = len(x)
    sizes = np.linalg.norm(x, axis=0)
    known = sizes > 0
    if n < 2 or not known.any():
        return float("nan")
    return float(((np.sqrt(n) - np.abs(x).sum(axis=0)[known] / sizes[known]) / (np.sqrt(n) - 1)).mean())


def overlap(W: np.ndarray) -> float:
    """Mean cosine between the columns of W, sizes only: 0 where no two share a site."""
    sizes = np.linalg.norm(W, axis=0)
    V = np.abs(W[:, sizes > 0]) / sizes[sizes > 0]
    n = V.shape[1]
    if n < 2:
        return float("nan")
    return float(((V.T @ V).sum() - n) / (n * (n - 1)))


# ------------------------------------------------------------------ on the cortex

VIEWS = ("lateral", "medial")


class _Canvas:
    """The two views of a hemisphere, worked out once."""

    def __init__(self, every: Sites, side: str) -> None:
        self.every = every
        half = cortex_of(every, side).hemispheres[0]
        shape = "inflated" if "inflated" in half.shapes else next(iter(half.shapes))
        self.vertices = half.vertices
        self.rasters: list[Raster] = [rasterise(half, shape, view) for view in VIEWS]

    def draw(
        self,
        figure: Any,
        box: tuple[float, float, float, float],
        view: int,
        values: np.ndarray,
        ends: tuple[float, float],
        colours: Any,
        steps: bool,
    ) -> None:
        """A map on one view, grey where it is NaN; `box` in inches."""
        low, high = ends
        if steps:  # whole numbers have nothing between them
            on = labels_on_vertices(self.every, np.where(np.isfinite(values), values, -1))[0].astype(np.float64)
            on[on < 0] = np.nan
        else:
            on = on_vertices(self.every, values)[0]
        level = (on[self.vertices] - low) / (high - low if high > low else 1.0)

        def painted(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            known = np.isfinite(at)
            return colours(np.where(known, at, 0.0))[:, :3], known.astype(np.float64)

        show(figure, box, paint(self.rasters[view], level, painted, steps))


@cache
def _canvas(name: str, on: Any, side: str) -> _Canvas:
    return _Canvas(Sites.named(name, on=on), side)


def _canvas_of(every: Sites, side: str) -> _Canvas:
    return _canvas(every.name, every.on, side) if every.name else _Canvas(every, side)


def _map_plate(dataset: Dataset, maps: Maps, piece: Arrays) -> Any:
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
    figure = new_figure(width, height, DPI)
    for column, (title, values, steps) in enumerate(shown):
        low, high = _ends(values, steps, basis=title.startswith("D"))
        colours = colormaps["cividis" if steps else "viridis"]
        left = (0.15 + PANEL[0] * column) / width
        for row in range(2):
            box = (left * width, 0.55 + PANEL[1] * (1 - row), *PANEL)
            canvas.draw(figure, box, row, maps.on_mesh(values), (low, high), colours, steps)
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

    from icofactor.results.colours import diverging

    maps = dataset.load()
    canvas = _canvas_of(maps.every, dataset.side)
    n_maps, across = drawn.shape[1], 2
    rows = -(-len(PAPER_METHODS) // across)
    cell = (1.24, 0.92)
    half = 0.95 + cell[0] * n_maps
    width, height = half * across + 0.2, cell[1] * rows + 0.75
    figure = new_figure(width, height, DPI)
    blue = ListedColormap(diverging() / 255)
    for number, name in enumerate(PAPER_METHODS):
        column, row = divmod(number, rows)
        bottom = (height - 0.15 - cell[1] * (row + 1)) / height
        figure.text((0.1 + half * column) / width, bottom + 0.5 * cell[1] / height, name, va="center", fontsize=9)
        for i in range(n_maps):
            values = np.asarray(drawn[number, i], dtype=np.float64)
            box = (0.95 + half * column + cell[0] * i, bottom * height, *cell)
            if not np.isfinite(values).any():
                middle = (box[0] + cell[0] / 2) / width, bottom + 0.5 * cell[1] / height
                figure.text(*middle, "diverged", ha="center", va="center", fontsize=8)
                continue
            signed = bool(values.min() < 0)
            top = float(np.percentile(np.abs(values), 99.5)) or float(np.abs(values).max()) or 1.0
            colours = blue if signed else colormaps["viridis"]
            canvas.draw(figure, box, 0, maps.on_mesh(values), (-top if signed else 0.0, top), colours, False)
    for box, colours, ends, label in (
        ((0.12, 0.45 / height, 0.3, 0.1 / height), colormaps["viridis"], (0, 1), "non-negative maps"),
        ((0.58, 0.45 / height, 0.3, 0.1 / height), blue, (-1, 1), "maps of either sign (DL)"),
    ):
        colour_bar(figure, box, colours, ends).set_label(label, fontsize=8, labelpad=1)
    return figure
