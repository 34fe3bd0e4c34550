"""Experiment 2: errors of all methods on twenty columns update by update, and where many starts end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

import icofactor as ico
from reproduction.data import Dataset
from reproduction.settings import SETTINGS, Setting
from reproduction.study import Study

SCHEMES = ("DL", "PNNMF", "SPNNMF", "PPNMF")
# A start is trapped if it ends above the lowest objective of its scheme by more than this part of the descent.
TRAPPED = 0.01
# Random starts begin on a plateau; its height is the median objective of the plain method after this many updates.
PLATEAU_UPDATES = 10
TINY = np.finfo(np.float64).tiny
COLOURS = {"": "#555555", "E": "#E69F00", "LE": "#0072B2"}


@dataclass(frozen=True, eq=False)
class Runs:
    """Many runs of one method.

    Attributes
    ----------
    errors : (runs, 1 + updates) E/‖X‖² of a few runs
    zeros : share of zeros in B at the end of these runs
    objectives : (starts, 1 + updates) objective of many starts; infinite at the end of those that diverged
    lowest_error : E/‖X‖² of the best of many starts
    """

    errors: np.ndarray
    zeros: float
    objectives: np.ndarray
    lowest_error: float


def run(study: Study) -> None:
    """Run all methods under three settings."""
    rows = []
    for dataset in study.convergence_datasets:
        for setting in SETTINGS:
            runs = all_runs(dataset, setting, study)
            rows += setting_rows(dataset, setting, runs)
            study.save_figure(
                f"2_convergence_{setting.key}_{dataset.number}", draw(runs, dataset, setting)
            )
    study.write_table("convergence", rows)


def all_runs(dataset: Dataset, setting: Setting, study: Study) -> dict[str, Runs]:
    """Run every method."""
    maps = dataset.load()
    stats = ico.Statistics.from_data(maps.X, setting.design(maps.sites))
    return {method: method_runs(stats, setting, method, study) for method in ico.PAPER_METHODS}


def method_runs(stats: ico.Statistics, setting: Setting, method: str, study: Study) -> Runs:
    """Run a method from a few starts that are followed, and from many."""
    sizes = study.sizes
    followed = []
    for seed in range(sizes.runs):
        # Runs of one number start alike for all methods of a scheme, so that their errors can be compared.
        seeds = np.random.SeedSequence([study.seed, seed])
        solution = ico.solve(
            stats,
            method,
            sizes.n_components,
            n_iter=sizes.updates,
            rules=setting.rules,
            random_state=seeds,
        )
        followed.append(solution)
    best = ico.multistart(
        stats,
        method,
        sizes.n_components,
        n_starts=sizes.starts,
        n_iter=sizes.updates,
        rules=setting.rules,
        random_state=study.seed,
    )
    errors = np.stack([solution.errors for solution in followed]) / stats.sq_norm
    zeros = float(np.mean([solution.B == 0 for solution in followed]))
    return Runs(errors, zeros, best.objectives, best.error / stats.sq_norm)


def setting_rows(dataset: Dataset, setting: Setting, runs: dict[str, Runs]) -> list[dict]:
    """Return one row per method."""
    maps = dataset.load()
    covered = np.asarray(setting.design(maps.sites).matrix.sum(axis=1)).ravel() > 0
    energy = (maps.X**2).sum(axis=1)
    rows = []
    for scheme in SCHEMES:
        methods = [method for method in runs if method.split("-")[-1] == scheme]
        plateau = np.median(
            runs[scheme].objectives[:, min(PLATEAU_UPDATES, runs[scheme].errors.shape[1] - 1)]
        )
        # The objective of B = 0, above which no start stays; DL minimizes half of the error.
        plateau = min(plateau, energy.sum() * (0.5 if scheme == "DL" else 1.0))
        lowest = min(runs[method].objectives[:, -1].min() for method in methods)
        descent = max(plateau - lowest, TINY)
        # An extrapolated method should reach this error in fewer updates.
        goal = np.median(runs[scheme].errors[:, -1])
        for method in methods:
            ends = runs[method].objectives[:, -1]
            path = np.median(runs[method].errors, axis=0)
            below = np.flatnonzero(path <= goal)
            rows.append(
                {
                    "dataset": dataset.name,
                    "setting": setting.key,
                    "method": method,
                    "scheme": scheme,
                    "updates": len(path) - 1,
                    "covered": covered.mean(),
                    "floor": energy[~covered].sum() / energy.sum(),
                    "final_error": path[-1],
                    "lowest_error": runs[method].lowest_error,
                    "reaches_plain_at": below[0] if len(below) else np.nan,
                    "descent": error_descent(runs, methods),
                    "gain_of_many": (np.median(ends) - ends.min()) / descent,
                    "diverged": np.isinf(ends).mean(),
                    "trapped": (ends > lowest + TRAPPED * descent).mean(),
                    "zeros_in_B": runs[method].zeros,
                }
            )
    return rows


def error_descent(runs: dict[str, Runs], methods: list[str]) -> float:
    """Return how far the errors of a scheme fall from the plateau: the scale on which two of them can be equal."""
    path = np.median(runs[methods[0]].errors, axis=0)
    plateau = min(1.0, path[min(PLATEAU_UPDATES, len(path) - 1)])
    lowest = min(runs[method].lowest_error for method in methods)
    return float(max(plateau - lowest, TINY))


def draw(runs: dict[str, Runs], dataset: Dataset, setting: Setting) -> Figure:
    """Draw a panel per scheme: the errors above the lowest one of the scheme."""
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    panels = figure.subplots(1, len(SCHEMES), sharex=True)
    for axes, scheme in zip(panels, SCHEMES, strict=True):
        methods = [method for method in runs if method.split("-")[-1] == scheme]
        lowest = min(runs[method].errors.min() for method in methods)
        for method in methods:
            path = np.median(runs[method].errors, axis=0)[1:]
            # A logarithmic axis cannot show 0.
            height = np.maximum(path - lowest, 1e-9)
            colour = COLOURS[method.rpartition("-")[0]]
            axes.plot(np.arange(1, len(path) + 1), height, color=colour, label=method)
        axes.set(xscale="log", yscale="log", xlabel="updates", title=scheme)
        axes.legend(fontsize=7, frameon=False)
    panels[0].set_ylabel("E/‖X‖² above the lowest")
    figure.suptitle(f"{dataset.name}, {setting.name}", fontsize=10)
    return figure
