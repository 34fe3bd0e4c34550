"""Experiment 4: what LE-PNNMF finds after hundreds of refinements, and whether the refinement went where data vary."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from icofactor.factorization._multistart import multistart
from icofactor.factorization._refine import refine
from icofactor.factorization.design import Design
from icofactor.streaming.checkpoint import Arrays, Checkpoint
from icofactor_lab.reproduce import plots
from icofactor_lab.reproduce.datasets import Dataset, Maps, illustrated
from icofactor_lab.reproduce.found import Context, Plate, Section, Table, hoyer, overlap
from icofactor_lab.reproduce.settings import DEFAULT, LITERAL, Setting, Sizes
from icofactor_lab.reproduce.sparsity import FACES, SHOWN, UPDATES

METHOD = "LE-PNNMF"
SETTINGS = (LITERAL, DEFAULT)
"""With σ = 0.0692 a refinement to thousands of overlapping columns takes hours; its first ten are in experiment 3."""
_PAPER = (
    "Figure 6 of the paper: median and standard deviation of myelin; how often a face was divided during the first 600 "
    "refinements of LE-PNNMF; its first three basis maps."
)


def run(context: Context) -> Section:
    """Two settings, and refinements drawn at random."""
    dataset, sizes = illustrated(context.datasets), context.sizes
    found = {}
    for i, setting in enumerate(SETTINGS):
        step = lambda done, n_columns, i=i: context.show((i + done / sizes.steps) / (len(SETTINGS) + 1))
        kept = None if context.work.folder is None else context.work.folder / f"maps.{setting.key}.steps"
        compute = partial(_refined, dataset, setting, sizes, context.seed, kept, context.work.run, step)
        found[setting.key] = context.piece(f"maps.{setting.key}", compute)
    null = context.piece("maps.random", partial(_random, dataset, sizes, context.seed))
    context.show(1.0)
    return _section(found, null, dataset, sizes)


def _refined(
    dataset: Dataset, setting: Setting, sizes: Sizes, seed: int, kept: Path | None, run: dict[str, Any], step: Any
) -> Arrays:
    maps = dataset.load()
    source, design = maps.source, setting.design(maps.sites)
    stats = source.statistics(design)
    best = multistart(
        stats, METHOD, sizes.n_components, n_starts=sizes.starts, n_iter=sizes.updates, rules=setting.rules,
        engine=sizes.engine, random_state=seed,
    )  # fmt: skip
    schedule = setting.schedule(sizes.steps, FACES, UPDATES)
    refined = refine(source, design, stats, best, schedule, on_step=step, checkpoint=Checkpoint(kept, run))
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


def _section(found: dict[str, Arrays], null: Arrays, dataset: Dataset, sizes: Sizes) -> Section:
    maps = dataset.load()
    about = (
        f"{METHOD} on {dataset.name}: best of {sizes.starts:,} starts × {sizes.updates:,} updates on twenty columns, "
        f"then {sizes.steps} refinements of {FACES} faces, {UPDATES} updates each. Focus: rank correlation over sites "
        f"of depth with the standard deviation over subjects, against {sizes.random_refinements} refinements of faces "
        "drawn at random. All eleven methods: figures of experiment 3."
    )
    section = Section("maps", f"Maps of {METHOD}", about)
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
        section.plates.append(
            Plate(f"fig6_maps_{setting.key}", partial(plots.map_plate, dataset, maps, piece), _PAPER,
                  f"{dataset.name}, {setting.name}, {int(piece['steps'])} refinements.")
        )  # fmt: skip
    section.plates.append(
        Plate("fig6c_random", partial(plots.map_plate, dataset, maps, null), "",
              "For comparison: the depth of one refinement of faces drawn at random.")
    )  # fmt: skip
    section.tables = [Table("maps", "Focus and overlap", {key: [row[key] for row in rows] for key in rows[0]})]
    section.facts = {"rows": rows}
    return section
