"""Experiment 3: L1 norms of B and C after ten refinements, all methods on all datasets; overlap of the maps."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import icofactor as ico
from reproduction.data import Dataset
from reproduction.settings import SETTINGS, Setting
from reproduction.study import Frame, Study, hoyer, overlap

COLOURS = {"DL": "#333333", "PNNMF": "#0072B2", "SPNNMF": "#009E73", "PPNMF": "#D55E00"}
MARKERS = {"": "o", "E": "s", "LE": "^"}


def run(study: Study) -> None:
    """Measure all methods on all datasets under three settings."""
    rows = []
    for dataset in study.datasets:
        for setting in SETTINGS:
            rows += dataset_rows(dataset, setting, study)
    study.write_table("sparsity", rows)
    table: Frame = study.read_table("sparsity")
    for setting in SETTINGS:
        study.save_figure(f"3_l1_{setting.key}", draw(table[table.setting == setting.key], setting))


def dataset_rows(dataset: Dataset, setting: Setting, study: Study) -> list[dict]:
    """Return one row per method; without numbers where the method diverged."""
    maps = dataset.load()
    source = ico.Data(maps.X, maps.sites)
    design = setting.design(maps.sites)
    stats = ico.Statistics.from_data(maps.X, design)
    rows = []
    for method in ico.PAPER_METHODS:
        row = {
            "number": dataset.number,
            "dataset": dataset.name,
            "setting": setting.key,
            "method": method,
        }
        # A row without numbers says that the method diverged.
        try:
            row |= measures(source, design, stats, setting, method, study)
        except ValueError as error:
            # Dictionary learning under the rules of the paper can diverge on data with large values.
            if type(error).__name__ != "DivergenceError":
                raise
        rows.append(row)
    return rows


def measures(
    source: ico.Data,
    design: ico.Design,
    stats: ico.Statistics,
    setting: Setting,
    method: str,
    study: Study,
) -> dict:
    """Fit and refine one method, and measure its factors."""
    sizes = study.sizes
    best = ico.multistart(
        stats,
        method,
        sizes.n_components,
        n_starts=sizes.refined_starts,
        n_iter=sizes.refined_updates,
        rules=setting.rules,
        random_state=study.seed,
    )
    refined = ico.refine(source, design, stats, best, setting.refinement(sizes.few_steps))
    B = np.asarray(refined.solution.B)
    C = np.asarray(refined.solution.C)
    return {
        "l1_B": np.abs(B).sum(),
        "l1_C": np.abs(C).sum(),
        "hoyer_B": hoyer(B),
        "hoyer_C": hoyer(C.T),
        "zeros_B": (B == 0).mean(),
        "zeros_C": (C == 0).mean(),
        "overlap": overlap(refined.design.matrix @ B),
        "error": refined.solution.error / stats.sq_norm,
        "columns": refined.design.n_columns,
    }


def draw(table: Frame, setting: Setting) -> Figure:
    """Draw the L1 norms of B and C against the number of the dataset."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, column, title in zip(panels, ("l1_B", "l1_C"), ("‖B‖₁", "‖C‖₁"), strict=True):
        for method, rows in table.groupby("method", sort=False):
            extrapolation, _, scheme = method.rpartition("-")
            axes.plot(
                rows.number,
                rows[column],
                MARKERS[extrapolation],
                color=COLOURS[scheme],
                label=method,
                alpha=0.7,
            )
        axes.set(yscale="log", title=title, xlabel="dataset", xticks=sorted(set(table.number)))
    panels[1].legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.suptitle(setting.name, fontsize=10)
    return figure
