"""Experiment 2: convergence on twenty columns, and where a thousand starts end."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from icofactor.factorization.engines import choose_engine
from icofactor.factorization.methods import PAPER_METHODS, method_named
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts, seeds_of, warn_if_penalty_dwarfs
from icofactor.factorization.update import begin
from icofactor.streaming.checkpoint import Arrays
from icofactor_lab.reproduce import plots
from icofactor_lab.reproduce.datasets import Dataset, converging
from icofactor_lab.reproduce.found import Context, Plate, Section, Table
from icofactor_lab.reproduce.settings import SETTINGS, Setting, Sizes

SCHEMES = ("DL", "PNNMF", "SPNNMF", "PPNMF")
TRAPPED = 0.01
"""A start is trapped when it ends above the lowest error by more than this part of the way from its scheme's plateau.

The plateau is the plain method's median error after ten updates, at most ‖X‖²: what is above it nobody stays at, and
the part of X that no column reaches is in both."""

_PAPER = (
    "Figure 4 of the paper: convergence of the four schemes on left myelin, plain, with standard extrapolation (E-) "
    "and with log-extrapolation (LE-); medians of ten runs."
)

Results = dict[str, Arrays]


def run(context: Context) -> Section:
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
    run = engine.iterate(p, method, begin(p, method.scheme, B, C), sizes.updates)
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


def _rows(dataset: str, setting: Setting, results: Results) -> list[dict[str, Any]]:
    rows = []
    for scheme in SCHEMES:
        names = [m for m in PAPER_METHODS if m.endswith(scheme) and m.removesuffix(scheme) in ("", "E-", "LE-")]
        middle = {m: np.median(results[m]["paths"], axis=0) for m in names}
        lowest = np.nanmin([np.nanmin(results[m]["final"]) for m in names])
        plateau = min(1.0, float(middle[scheme][min(10, len(middle[scheme]) - 1)]))
        way = max(plateau - lowest, np.finfo(float).tiny)
        for m in names:
            final = results[m]["final"]
            alive = final[np.isfinite(final)]
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
                    "lowest E/‖X‖² of all starts": float(alive.min()) if len(alive) else float("nan"),
                    "median E/‖X‖² of all starts": float(np.median(alive)) if len(alive) else float("nan"),
                    "highest E/‖X‖² of all starts": float(alive.max()) if len(alive) else float("nan"),
                    "best start over the median one (part of the way from the plateau)": float(
                        (np.median(alive) - alive.min()) / way
                    )
                    if len(alive)
                    else float("nan"),
                    "share of starts trapped": float((~(final <= lowest + TRAPPED * way)).mean()),
                    "share of zeros in B": float(np.mean(results[m]["zeros"])),
                }
            )
    return rows


def _section(found: dict[tuple[str, str], Results], chosen: list[Dataset], sizes: Sizes) -> Section:
    about = (
        f"Twenty columns, n_d = {sizes.n_components}, {sizes.updates:,} updates. Lines: median of {sizes.runs} runs; "
        f"bands: all of them. Then where {sizes.starts:,} starts end. Three settings: the paper's words; the same with "
        "columns wide enough to cover the cortex; icofactor's defaults."
    )
    section = Section("convergence", "Convergence and local minima", about)
    rows = []
    for dataset in chosen:
        for setting in SETTINGS:
            results = found[dataset.name, setting.key]
            rows += _rows(dataset.name, setting, results)
            tail = f"{setting.key}_{dataset.number}"
            section.plates += [
                Plate(f"fig4_convergence_{tail}", partial(plots.convergence, results), _PAPER,
                      f"{dataset.name}, {setting.name}. Above: E/‖X‖². Below: the same above the lowest error of any "
                      "start of the scheme, on a logarithmic scale."),
                Plate(f"fig4b_starts_{tail}", partial(plots.final_errors, results), "",
                      f"{dataset.name}, {setting.name}: final errors of {sizes.starts:,} starts above the lowest of "
                      "the scheme (left), and zeros in B (right)."),
            ]  # fmt: skip
            for m, piece in results.items():
                section.notes += [f"{dataset.name}, {setting.key}, {m}: {text}" for text in piece["warnings"].tolist()]
    shown = [key for key in rows[0] if key not in ("scheme", "floor", "way")]
    section.tables = [
        Table(
            "convergence",
            "Convergence and final errors",
            {key: [row[key] for row in rows] for key in shown},
            f"Trapped: ends higher above the lowest error of its scheme than {TRAPPED:.0%} of the way down from the "
            "plateau (the plain method's median error after ten updates), or diverged.",
        )
    ]
    section.facts = {"rows": rows, "updates": sizes.updates}
    return section
