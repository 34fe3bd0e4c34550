"""Experiment 3: L1 norms of B and C after ten refinements, eleven methods on all datasets; overlap of basis maps."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from icofactor.streaming.checkpoint import Arrays

from icofactor.errors import DivergenceError
from icofactor.factorization._multistart import multistart
from icofactor.factorization._refine import refine
from icofactor.factorization.methods import PAPER_METHODS
from icofactor_lab.common.outcome import Outcome, Plate, Row, Table
from icofactor_lab.common.plotting import FAINT, SCHEMES, legend_beside, marker_of, methods_on_y, panels, parts_of
from icofactor_lab.reproduce.datasets import Dataset, illustrated
from icofactor_lab.reproduce.maps import basis_of_all, hoyer, overlap
from icofactor_lab.reproduce.settings import FACES, SETTINGS, SHOWN, UPDATES, Context, Setting, Sizes

MEASURES = {
    "l1_B": "‖B‖₁",
    "l1_C": "‖C‖₁",
    "hoyer_B": "Hoyer sparsity of B",
    "hoyer_C": "Hoyer sparsity of C (rows)",
    "zeros_B": "zeros in B",
    "zeros_C": "zeros in C",
    "overlap": "overlap of basis maps (mean cosine)",
    "error": "E/‖X‖²",
    "columns": "columns",
}
_PAPER = "Figure 5 of the paper: L1 norms of the basis B and of the loadings C, all algorithms, datasets 1 to 14."


def run(context: Context) -> Outcome:
    """All methods, all datasets, three settings."""
    lead, sizes = illustrated(context.datasets), context.sizes
    found: dict[str, list[Arrays]] = {}
    total, done = len(SETTINGS) * len(context.datasets), 0
    for dataset in context.datasets:
        for setting in SETTINGS:
            compute = partial(_dataset, dataset, setting, sizes, context.seed, dataset is lead)
            piece = context.piece(f"sparsity.{setting.key}.{dataset.number}", compute)
            found.setdefault(setting.key, []).append(piece)
            done += 1
            context.show(done / total)
    return _section(found, context, lead)


def _dataset(dataset: Dataset, setting: Setting, sizes: Sizes, seed: int, maps_too: bool) -> Arrays:
    """The measures of every method on one dataset, methods × measures; and first basis maps."""
    maps = dataset.load()
    source, design = maps.source, setting.design(maps.sites)
    stats = source.statistics(design)
    measured = np.full((len(PAPER_METHODS), len(MEASURES)), np.nan)
    drawn = np.full((len(PAPER_METHODS), SHOWN, maps.sites.n if maps_too else 0), np.nan)
    for i, name in enumerate(PAPER_METHODS):
        try:
            best = multistart(
                stats, name, sizes.n_components, n_starts=sizes.refined_starts, n_iter=sizes.refined_updates,
                rules=setting.rules, engine=sizes.engine, random_state=seed,
            )  # fmt: skip
            refined = refine(source, design, stats, best, setting.schedule(sizes.few_steps))
        except DivergenceError:  # shown by the empty row
            continue
        B, C = np.asarray(refined.solution.B), np.asarray(refined.solution.C)
        W = refined.design.matrix @ B
        measured[i] = [
            np.abs(B).sum(), np.abs(C).sum(), hoyer(B), hoyer(C.T), (B == 0).mean(), (C == 0).mean(), overlap(W),
            refined.solution.error / stats.sq_norm, refined.design.n_columns,
        ]  # fmt: skip
        if maps_too:
            drawn[i] = W[:, :SHOWN].T
    return {"measured": measured, "maps": drawn.astype(np.float32)}


def _section(found: dict[str, list[Arrays]], context: Context, lead: Dataset) -> Outcome:
    sizes, datasets = context.sizes, context.datasets
    about = (
        f"Best of {sizes.refined_starts} starts × {sizes.refined_updates:,} updates on twenty columns (the paper: "
        f"1000 × 1000), then {sizes.few_steps} refinements of {FACES} faces, {UPDATES} updates each, n_d = "
        f"{sizes.n_components}, λ as in the paper. An L1 norm changes with the scale of the data and with how a "
        "product BC is shared between B and C; Hoyer's sparsity does not, so the table gives both."
    )
    outcome = Outcome("sparsity", "Sparsity of the methods", [about])
    rows: list[Row] = []
    values: dict[str, np.ndarray] = {}
    for setting in SETTINGS:
        values[setting.key] = np.stack([piece["measured"] for piece in found[setting.key]])
        for dataset, piece in zip(datasets, found[setting.key], strict=True):
            rows += _rows({"setting": setting.key, "dataset": dataset.name}, piece["measured"])
            outcome.warnings += [f"{dataset.name}, {setting.key}: {text}" for text in piece["warnings"]]
        ours = f"{setting.name}. Dataset numbers as in the table of data below."
        drawn = partial(_l1_norms, values[setting.key], [d.number for d in datasets])
        outcome.plates.append(Plate(f"fig5_l1_{setting.key}", drawn, ours, _PAPER))
    ours = (
        "Overlap of the ten basis maps after the refinements, mean cosine over pairs: 0 where no two share a site. "
        "Dots: datasets; bars: their median."
    )
    outcome.plates.append(Plate("fig5b_overlap", partial(_overlaps, values), ours))
    for setting in SETTINGS:
        piece = found[setting.key][datasets.index(lead)]
        ours = (
            f"First three basis maps of every method on {lead.name}, {setting.name}, after these refinements; each in "
            "parts of its own largest value."
        )
        outcome.plates.append(Plate(f"fig6b_basis_{setting.key}", partial(basis_of_all, lead, piece["maps"]), ours))
    with np.errstate(invalid="ignore"):
        middle = [row for key, x in values.items() for row in _rows({"setting": key}, _median(x))]
    outcome.tables = [
        Table("L1 norms, sparsity and overlap", rows, "Empty rows: the method diverged.", "sparsity"),
        Table("The same, medians over datasets", middle, name="sparsity_summary"),
    ]
    outcome.facts = {"values": values, "names": [d.name for d in datasets]}
    return outcome


def _rows(where: Row, measured: np.ndarray) -> list[Row]:
    """A row per method."""
    return [
        {**where, "method": name, **dict(zip(MEASURES.values(), row.tolist(), strict=True))}
        for name, row in zip(PAPER_METHODS, measured, strict=True)
    ]


def _median(measured: np.ndarray) -> np.ndarray:
    """Medians over datasets, methods × measures; NaN where a method always diverged."""
    known = [x[np.isfinite(x)] for x in measured.reshape(len(measured), -1).T]
    return np.reshape([np.median(x) if len(x) else np.nan for x in known], measured.shape[1:])


def _l1_norms(values: np.ndarray, numbers: list[int]) -> Any:
    """‖B‖₁ and ‖C‖₁ against the dataset's number, a line per method."""
    figure, ((left, right),) = panels(1, 2, (11.5, 4.2), (0.5, 1.3, 0.55, 0.3))
    shift = np.linspace(-0.25, 0.25, len(PAPER_METHODS))
    for ax, measure, title in ((left, 0, "‖B‖₁"), (right, 1, "‖C‖₁")):
        for i, m in enumerate(PAPER_METHODS):
            norms = np.maximum(values[:, i, measure], 1e-12)
            ax.plot(np.array(numbers) + shift[i], norms, ms=5, alpha=0.85, **marker_of(m))
        for edge in numbers[:-1]:
            ax.axvline(edge + 0.5, color=FAINT, linewidth=0.8, zorder=0)
        ax.set_yscale("log")
        ax.set_title(title, fontsize=10, loc="left")
        ax.set_xlabel("dataset", fontsize=8)
        ax.set_xticks(numbers)
    legend_beside(right)
    return figure


def _overlaps(values: dict[str, np.ndarray]) -> Any:
    """Mean cosine of basis maps, a panel per setting."""
    figure, (row_of_panels,) = panels(1, len(values), (11.5, 3.4), (0.95, 0.15, 0.55, 0.3), (0.06, 0), sharey=True)
    for ax, (setting, measured) in zip(row_of_panels, values.items(), strict=True):
        for row, m in enumerate(PAPER_METHODS):
            cosines = measured[:, row, 6]
            cosines = cosines[np.isfinite(cosines)]
            colour = SCHEMES[parts_of(m)[1]]
            if len(cosines):
                ax.barh(row, np.median(cosines), 0.6, color=colour, alpha=0.35)
                ax.plot(cosines, np.full(len(cosines), row), "o", ms=3, color=colour)
        ax.set_title(setting, fontsize=9, loc="left")
        ax.set_xlim(0, 1)
        ax.set_xlabel("overlap (mean cosine)", fontsize=8)
    methods_on_y(row_of_panels[0], PAPER_METHODS)
    return figure
