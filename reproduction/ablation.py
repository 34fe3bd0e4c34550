"""Experiment 5, which the paper does not have: one choice of the paper at a time, all else as icofactor's defaults."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

import icofactor as ico
from reproduction.data import Maps
from reproduction.settings import (
    COVERING_SIGMA,
    DEFAULT,
    FACES_PER_REFINEMENT,
    LITERAL,
    PAPER_SIGMA,
    Setting,
)
from reproduction.study import Frame, Study, hoyer, overlap

CHOICES = (
    DEFAULT,
    Setting("literal columns", "exponential columns, σ = 0.015", "exponential", PAPER_SIGMA),
    Setting("covering columns", "exponential columns, σ = 0.0692", "exponential", COVERING_SIGMA),
    Setting("smooth columns", "smooth columns, σ = 0.1", "smooth"),
    replace(DEFAULT, key="projected", name="worst faces by eq. 12", indicator="projected"),
    replace(DEFAULT, key="quarter", name="B divided by four for children", carry="quarter"),
    replace(DEFAULT, key="paper rules", name="the paper's rules", rules="paper"),
    replace(LITERAL, key="paper", name="all choices of the paper"),
)


def run(study: Study) -> None:
    """Fit all methods under every choice, then look at a single division."""
    maps = study.lead.load()
    rows = []
    for choice in CHOICES:
        for method in ico.PAPER_METHODS:
            row = {"choice": choice.key, "name": choice.name, "method": method}
            try:
                row |= fit_measures(maps, choice, method, study)
            except ValueError as error:
                # The row stays empty where a method diverges.
                if type(error).__name__ != "DivergenceError":
                    raise
            rows.append(row)
    study.write_table("ablation", rows)
    study.save_figure("5_ablation", draw(study.read_table("ablation")))
    # The first four choices differ in the columns.
    study.write_table("division", [division_row(maps, choice, study) for choice in CHOICES[:4]])


def fit_measures(maps: Maps, choice: Setting, method: str, study: Study) -> dict:
    """Fit one method, and measure it before and after the lift to full resolution."""
    sizes = study.sizes
    model = ico.CorticalFactorization(
        sizes.n_components,
        method=method,
        mesh=maps.mesh,
        hemi=study.lead.side,
        mask=maps.cortex,
        columns=choice.kind,
        sigma=choice.sigma,
        # The paper starts from twenty faces, icofactor from more.
        level=0 if choice.key == "paper" else sizes.ablation_level,
        n_starts=sizes.ablation_starts,
        n_iter=sizes.ablation_updates,
        tol=0,
        refinement=choice.refinement(sizes.few_steps),
        rules=choice.rules,
        random_state=study.seed,
    )
    model.fit(maps.on_faces.T)
    B = np.asarray(model.solution_.B)
    coarse_maps = model.design_.matrix @ B
    return {
        "coarse_error": model.solution_.error / model.total_variance_,
        "lifted_error": model.error_ / model.total_variance_,
        "hoyer": hoyer(coarse_maps),
        "zeros_in_B": (B == 0).mean(),
        "overlap": overlap(coarse_maps),
    }


def division_row(maps: Maps, choice: Setting, study: Study) -> dict:
    """Divide the five worst faces once: how far does E jump, and does eq. 12 say where the residual is?"""
    sizes = study.sizes
    design = choice.design(maps.sites)
    stats = ico.Statistics.from_data(maps.X, design)
    best = ico.multistart(
        stats,
        "LE-PNNMF",
        sizes.n_components,
        n_starts=sizes.ablation_starts,
        n_iter=sizes.ablation_updates,
        random_state=study.seed,
    )
    row = {"columns": choice.key, "error": best.error / stats.sq_norm}
    for carry in ("quarter", "copy"):
        schedule = ico.Refinement(1, FACES_PER_REFINEMENT, 0, "projected", carry)
        refined = ico.refine(ico.Data(maps.X, maps.sites), design, stats, best, schedule)
        fit = refined.design.matrix @ (refined.solution.B @ refined.solution.C)
        row[f"jump_{carry}"] = ((maps.X - fit) ** 2).sum() / best.error - 1
    # eq. 12, and the residual of the sites of each face
    BC = best.B @ best.C
    projected = ((np.asarray(stats.L).T - stats.K @ BC) ** 2).sum(axis=1)
    residual = ((maps.X - design.matrix @ BC) ** 2).sum(axis=1)
    inside = design.site_column >= 0
    per_face = np.bincount(design.site_column[inside], residual[inside], minlength=design.n_columns)
    row["eq12_and_residual"] = spearmanr(projected, per_face).statistic
    return row


def draw(table: Frame) -> Figure:
    """Draw the errors of all methods under every choice, before and after the lift."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    columns = {"coarse_error": "not lifted", "lifted_error": "lifted"}
    for axes, (column, title) in zip(panels, columns.items(), strict=True):
        for method, rows in table.groupby("method", sort=False):
            axes.plot(rows[column], rows.name, "o", label=method, alpha=0.7)
        axes.set(xscale="log", title=title, xlabel="error / between-subject variance")
    panels[0].invert_yaxis()
    panels[1].legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
