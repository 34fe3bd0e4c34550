"""Experiment 3: L1 norms of B and C after ten refinements, eleven methods on all datasets; overlap of basis maps."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from icofactor.errors import DivergenceError
from icofactor.factorization._multistart import multistart
from icofactor.factorization._refine import refine
from icofactor.factorization.methods import PAPER_METHODS
from icofactor.streaming.checkpoint import Arrays
from icofactor_lab.reproduce import plots
from icofactor_lab.reproduce.datasets import Dataset, illustrated
from icofactor_lab.reproduce.found import Context, Plate, Section, Table, hoyer, overlap
from icofactor_lab.reproduce.settings import SETTINGS, Setting, Sizes

FACES, UPDATES = 5, 10
SHOWN = 3
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


def run(context: Context) -> Section:
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
            refined = refine(source, design, stats, best, setting.schedule(sizes.few_steps, FACES, UPDATES))
        except DivergenceError:  # told by the empty row
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


def _section(found: dict[str, list[Arrays]], context: Context, lead: Dataset) -> Section:
    sizes, datasets = context.sizes, context.datasets
    about = (
        f"Best of {sizes.refined_starts} starts × {sizes.refined_updates:,} updates on twenty columns (the paper: "
        f"1000 × 1000), then {sizes.few_steps} refinements of {FACES} faces, {UPDATES} updates each, n_d = "
        f"{sizes.n_components}, λ as in the paper. An L1 norm changes with the scale of the data and with how a "
        "product BC is shared between B and C; Hoyer's sparsity does not, so the table gives both."
    )
    section = Section("sparsity", "Sparsity of the methods", about)
    columns: dict[str, list[Any]] = {name: [] for name in ("setting", "dataset", "method", *MEASURES.values())}
    values: dict[str, np.ndarray] = {}
    for setting in SETTINGS:
        values[setting.key] = np.stack([piece["measured"] for piece in found[setting.key]])
        for dataset, piece in zip(datasets, found[setting.key], strict=True):
            for name, row in zip(PAPER_METHODS, piece["measured"], strict=True):
                for key, value in zip(columns, (setting.key, dataset.name, name, *row.tolist()), strict=True):
                    columns[key].append(value)
            section.notes += [f"{dataset.name}, {setting.key}: {text}" for text in piece["warnings"].tolist()]
        section.plates.append(
            Plate(f"fig5_l1_{setting.key}", partial(plots.l1_norms, values[setting.key], datasets), _PAPER,
                  f"{setting.name}. Dataset numbers as in the table of data below.")
        )  # fmt: skip
    section.plates.append(
        Plate("fig5b_overlap", partial(plots.overlaps, values), "",
              "Overlap of the ten basis maps after the refinements, mean cosine over pairs: 0 where no two share a "
              "site. Dots: datasets; bars: their median.")
    )  # fmt: skip
    for setting in SETTINGS:
        piece = found[setting.key][datasets.index(lead)]
        section.plates.append(
            Plate(f"fig6b_basis_{setting.key}", partial(plots.basis_of_all, lead, piece["maps"]), "",
                  f"First three basis maps of every method on {lead.name}, {setting.name}, after these refinements; "
                  "each in parts of its own largest value.")
        )  # fmt: skip
    section.tables = [
        Table("sparsity", "L1 norms, sparsity and overlap", columns, "Empty rows: the method diverged."),
        _summary(values),
    ]
    section.facts = {"values": values, "names": [d.name for d in datasets]}
    return section


def _summary(values: dict[str, np.ndarray]) -> Table:
    """Medians over datasets."""
    columns: dict[str, list[Any]] = {name: [] for name in ("setting", "method", *MEASURES.values())}
    for key, measured in values.items():
        with np.errstate(invalid="ignore"):
            middle = [
                np.nanmedian(x) if np.isfinite(x).any() else np.nan for x in measured.reshape(len(measured), -1).T
            ]
        for name, row in zip(PAPER_METHODS, np.reshape(middle, measured.shape[1:]), strict=True):
            for column, value in zip(columns, (key, name, *row.tolist()), strict=True):
                columns[column].append(value)
    return Table("sparsity_summary", "The same, medians over datasets", columns)
