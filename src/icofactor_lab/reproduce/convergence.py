"""Experiment 2: convergence on twenty columns, and where a thousand starts end."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from icofactor.streaming.checkpoint import Arrays

from icofactor.factorization._solve import Course
from icofactor.factorization.engines import choose_engine
from icofactor.factorization.methods import PAPER_METHODS, method_named
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts, seeds_of, warn_if_penalty_dwarfs
from icofactor.factorization.update import begin
from icofactor_lab.common.outcome import Outcome, Plate, Row, Table
from icofactor_lab.common.plotting import BLUE, ORANGE, SCHEMES, methods_on_y, panels, parts_of
from icofactor_lab.reproduce.datasets import Dataset, converging
from icofactor_lab.reproduce.settings import SETTINGS, Context, Setting, Sizes

TRAPPED = 0.01
"""A start is trapped when it ends above the lowest error by more than this part of the way from its scheme's plateau.

The plateau is the plain method's median error after ten updates, at most ‖X‖²: no start stays above it, and
the part of X that no column reaches is in both."""

_PAPER = (
    "Figure 4 of the paper: convergence of the four schemes on left myelin, plain, with standard extrapolation (E-) "
    "and with log-extrapolation (LE-); medians of ten runs."
)

Results = dict[str, Arrays]


def run(context: Context) -> Outcome:
    """All eleven methods, three settings, on left myelin and left thickness."""
    chosen, sizes = converging(context.datasets), context.sizes
    found: dict[tuple[str, str], Results] = {}
    total, done = len(chosen) * len(SETTINGS) * len(PAPER_METHODS), 0
    for dataset in chosen:
        for setting in SETTINGS:
            results: Results = {}
            for name in PAPER_METHODS:
                compute = partial(_starts, dataset, setting, name, sizes, context.seed)
                results[name] = context.piece(f"convergence.{setting.key}.{dataset.number}.{name}", compute)
                done += 1
                context.show(done / total)
            found[dataset.name, setting.key] = results
    return _section(found, chosen, sizes)


def _starts(dataset: Dataset, setting: Setting, name: str, sizes: Sizes, seed: int) -> Arrays:
    """Errors of the first runs after every update, final errors and zeros of all of them."""
    maps, method = dataset.load(), method_named(name)
    design = setting.design(maps.sites)
    stats = maps.source.statistics(design)
    p = Problem.of(stats, method.scheme, setting.rules)
    warn_if_penalty_dwarfs(p, method.scheme)
    engine = choose_engine(sizes.engine, p, method, sizes.n_components, sizes.starts * sizes.updates)
    B, C = draw_starts(p, method, sizes.n_components, seeds_of(seed), range(sizes.starts))
    run = engine.iterate(p, method, begin(p, method.scheme, B, C), Course(sizes.updates))
    paths = np.full((sizes.runs, sizes.updates + 1), np.nan)
    kept = run.errors[: sizes.runs]
    paths[: len(kept), : kept.shape[1]] = kept
    final = np.where(run.diverged, np.nan, run.errors[:, -1])
    covered = np.asarray(design.matrix.sum(axis=1)).ravel() > 0
    energy = (maps.X**2).sum(axis=1)
    return {
        "paths": paths / stats.sq_norm,
        "final": final / stats.sq_norm,
        "zeros": (np.asarray(run.state.B) == 0).mean(axis=(1, 2)),
        "covered": np.array(covered.mean()),
        "floor": np.array(energy[~covered].sum() / stats.sq_norm),
    }


def reached(path: np.ndarray, goal: float) -> int | None:
    """The first update at which a path is at or under a goal."""
    at = np.flatnonzero(path <= goal)
    return int(at[0]) if len(at) else None


def _of_scheme(scheme: str) -> list[str]:
    return [m for m in PAPER_METHODS if parts_of(m)[1] == scheme]


def _rows(dataset: str, setting: Setting, results: Results) -> list[Row]:
    rows = []
    for scheme in SCHEMES:
        names = _of_scheme(scheme)
        middle = {m: np.median(results[m]["paths"], axis=0) for m in names}
        lowest = np.nanmin([np.nanmin(results[m]["final"]) for m in names])
        plateau = min(1.0, float(middle[scheme][min(10, len(middle[scheme]) - 1)]))
        way = max(plateau - lowest, np.finfo(float).tiny)
        for m in names:
            final = results[m]["final"]
            alive = _finite(final)
            low, half, high = ((float(f(alive)) if len(alive) else float("nan")) for f in (np.min, np.median, np.max))
            rows.append(
                {
                    "dataset": dataset,
                    "setting": setting.key,
                    "method": m,
                    "scheme": scheme,
                    "covered": float(results[m]["covered"]),
                    "floor": float(results[m]["floor"]),
                    "way": float(way),
                    "median final E/‖X‖²": float(middle[m][-1]),
                    "update at which it is at the plain method's end": reached(middle[m], middle[scheme][-1]),
                    "starts": len(final),
                    "diverged": int(len(final) - len(alive)),
                    "lowest E/‖X‖² of all starts": low,
                    "median E/‖X‖² of all starts": half,
                    "highest E/‖X‖² of all starts": high,
                    "best start over the median one (part of the way from the plateau)": float((half - low) / way),
                    "share of starts trapped": float((~(final <= lowest + TRAPPED * way)).mean()),
                    "share of zeros in B": float(np.mean(results[m]["zeros"])),
                }
            )
    return rows


def _section(found: dict[tuple[str, str], Results], chosen: list[Dataset], sizes: Sizes) -> Outcome:
    about = (
        f"Twenty columns, n_d = {sizes.n_components}, {sizes.updates:,} updates. Lines: median of {sizes.runs} runs; "
        f"bands: all of them. Then where {sizes.starts:,} starts end. Three settings: as the paper says; the same with "
        "columns wide enough to cover the cortex; icofactor's defaults."
    )
    outcome = Outcome("convergence", "Convergence and local minima", [about])
    rows = []
    for dataset in chosen:
        for setting in SETTINGS:
            results = found[dataset.name, setting.key]
            rows += _rows(dataset.name, setting, results)
            tail, where = f"{setting.key}_{dataset.number}", f"{dataset.name}, {setting.name}"
            errors = (
                f"{where}. Above: E/‖X‖². Below: the same above the lowest error of any start of the scheme, on a "
                "logarithmic scale."
            )
            ends = (
                f"{where}: final errors of {sizes.starts:,} starts above the lowest of the scheme (left), and zeros in "
                "B (right)."
            )
            outcome.plates += [
                Plate(f"fig4_convergence_{tail}", partial(_paths, results), errors, _PAPER),
                Plate(f"fig4b_starts_{tail}", partial(_final_errors, results), ends),
            ]
            for m, piece in results.items():
                outcome.warnings += [f"{dataset.name}, {setting.key}, {m}: {text}" for text in piece["warnings"]]
    hidden = ("scheme", "floor", "way")
    outcome.tables = [
        Table(
            "Convergence and final errors",
            [{key: value for key, value in row.items() if key not in hidden} for row in rows],
            f"Trapped: ends higher above the lowest error of its scheme than {TRAPPED:.0%} of the way down from the "
            "plateau (the plain method's median error after ten updates), or diverged.",
            "convergence",
        )
    ]
    outcome.facts = {"rows": rows, "updates": sizes.updates}
    return outcome


_LINES = {"": ("#555555", (0, (4, 2))), "E-": (ORANGE, "-"), "LE-": (BLUE, "-")}
LEAST_DRAWN = 1e-9
"""Where a difference of zero is drawn on a logarithmic scale."""


def _paths(results: dict[str, Arrays]) -> Any:
    """One panel per scheme: the error above, what is left of it below."""
    figure, axes = panels(2, 4, (11.5, 5.2), (0.7, 0.1, 0.5, 0.3), (0.3, 0.08), sharex=True)
    for column, scheme in enumerate(SCHEMES):
        names = _of_scheme(scheme)
        ends = [np.nanmin(results[m]["final"]) for m in names if np.isfinite(results[m]["final"]).any()]
        ends += [np.nanmin(results[m]["paths"]) for m in names]
        lowest = min(ends) if ends else 0.0
        top, bottom = axes[:, column]
        for m in names:
            colour, style = _LINES[parts_of(m)[0]]
            paths = results[m]["paths"][:, 1:]
            updates = np.arange(1, paths.shape[1] + 1)
            for ax, values in ((top, paths), (bottom, np.maximum(paths - lowest, LEAST_DRAWN))):
                ax.fill_between(updates, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.18, linewidth=0)
                ax.plot(updates, np.median(values, axis=0), color=colour, linestyle=style, linewidth=1.5, label=m)
        ten = [np.nanmax(results[m]["paths"][:, min(10, results[m]["paths"].shape[1] - 1)]) for m in names]
        high = float(np.nanmax(ten)) if np.isfinite(ten).any() else 1.0
        margin = 0.06 * max(high - lowest, 1e-6)
        top.set_ylim(lowest - margin, high + 3 * margin)
        top.set_title(scheme, fontsize=10)
        top.legend(fontsize=7.5, frameon=False, loc="lower left")
        bottom.set_yscale("log")
        bottom.set_xscale("log")
        bottom.set_xlabel("updates", fontsize=8)
    axes[0, 0].set_ylabel("E/‖X‖²", fontsize=8)
    axes[1, 0].set_ylabel("E/‖X‖² above the lowest", fontsize=8)
    return figure


def _final_errors(results: dict[str, Arrays]) -> Any:
    """Where all starts end: spread of the errors, and zeros of B."""
    figure, ((left, right),) = panels(1, 2, (11.5, 3.6), (0.95, 0.15, 0.55, 0.1), (0.05, 0), sharey=True)
    rng = np.random.default_rng(0)
    lowest = {
        s: min((min(known) for m in _of_scheme(s) if len(known := _finite(results[m]["final"]))), default=np.nan)
        for s in SCHEMES
    }
    for row, m in enumerate(PAPER_METHODS):
        colour, final = SCHEMES[parts_of(m)[1]], results[m]["final"]
        above = np.maximum(_finite(final) / lowest[parts_of(m)[1]] - 1, LEAST_DRAWN)
        left.scatter(above, row + rng.uniform(-0.3, 0.3, len(above)), s=3, color=colour, alpha=0.25, linewidth=0)
        if len(above):
            left.plot([np.median(above)] * 2, [row - 0.38, row + 0.38], color="#111111", linewidth=1.6)
        gone = len(final) - len(above)
        if gone:
            left.annotate(f"{gone} of {len(final)} diverged", (0.99, row), xycoords=("axes fraction", "data"),
                          fontsize=7, ha="right", va="center")  # fmt: skip
        share = 100 * float(np.mean(results[m]["zeros"]))
        right.barh(row, share, 0.7, color=colour)
        right.text(share, row, f"  {share:.3g} %", fontsize=7, va="center")
    left.set_xscale("log")
    left.set_xlim(left=0.7 * LEAST_DRAWN)
    methods_on_y(left, PAPER_METHODS)
    left.set_xlabel("final error above the lowest of the scheme, relative (line: median)", fontsize=8)
    right.set_xlabel("zeros in B, % (mean over starts)", fontsize=8)
    right.margins(x=0.15)
    return figure


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]
