"""Measure what docs/defaults.md says of extrapolation, zeros, halving and overlapping columns.

Usage: ICOFACTOR_TEST_DATA=/path/to/data python -m icofactor_lab.docs_tables.claims [--only TITLE]

Real thickness (100 subjects, left faces of fsaverage5) when ICOFACTOR_TEST_DATA is set, a simulated cohort otherwise.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from scipy.stats import spearmanr

import icofactor as ico
from icofactor.factorization._refine import local_error
from icofactor.factorization.statistics import Data
from icofactor_lab.docs_tables.defaults import data

SITES = ico.Sites.named("fsaverage5", on="faces")


def reached(path: np.ndarray, goal: float) -> str:
    """The first update at which a path is at or under a goal."""
    at = np.flatnonzero(path <= goal)
    return str(at[0]) if len(at) else "never"


def extrapolation(X: np.ndarray) -> None:
    """Median of ten starts, 1000 updates, 20 faces: when E- and LE- reach what the plain method has after 1000."""
    stats = ico.Statistics.from_data(X, ico.Design(SITES))
    print("| rules, scheme | plain E/‖X‖² at 1000 | E- reaches it at / ends at | LE- reaches it at / ends at |")
    print("|---|---|---|---|")
    for rules in ("paper", "default"):
        for scheme in ("DL", "PNNMF", "SPNNMF", "PPNMF"):
            paths = {}
            for prefix in ("", "E-", "LE-"):
                if prefix + scheme in ico.METHODS:
                    runs = [
                        ico.solve(stats, prefix + scheme, 10, n_iter=1000, rules=rules, random_state=seed).errors
                        for seed in range(10)
                    ]
                    paths[prefix] = np.median(runs, axis=0) / stats.sq_norm
            goal = paths[""][-1]
            cells = [f"{reached(paths[p], goal)} / {paths[p][-1]:.6f}" if p in paths else "–" for p in ("E-", "LE-")]
            print(f"| {rules} {scheme} | {goal:.6f} | " + " | ".join(cells) + " |")


def zeros(X: np.ndarray) -> None:
    """Zeros in B, ten starts together, paper rules, 1000 updates; faces where X is zero are zero in all of them."""
    print("| | E-, 20 faces | LE-, 20 faces | E-, 320 faces | LE-, 320 faces |\n|---|---|---|---|---|")
    for scheme in ("PNNMF", "SPNNMF", "PPNMF"):
        cells = []
        for level in (0, 2):
            stats = ico.Statistics.from_data(X, ico.Design(SITES, level=level))
            for prefix in ("E-", "LE-"):
                found = [
                    ico.solve(stats, prefix + scheme, 10, n_iter=1000, rules="paper", random_state=seed).B
                    for seed in range(10)
                ]
                cells.append(str(sum(int((B == 0).sum()) for B in found)))
        print(f"| {scheme} | " + " | ".join(cells) + " |")


def halving(X: np.ndarray) -> None:
    """Successive halving of 64 starts, 1000 updates, 320 faces, three seeds: updates, time, and what it costs."""
    stats = ico.Statistics.from_data(X, ico.Design(SITES, level=2))
    print(
        "| method | updates made | time | final objective above that of all starts (three seeds) | spread of starts |"
    )
    print("|---|---|---|---|---|")
    for method in ("LE-PNNMF", "CD-PNNMF", "E-DL", "LE-PPNMF"):
        rows = []
        for seed in range(3):
            runs = []
            for half in (False, True):
                begin = time.perf_counter()
                run = ico.multistart(
                    stats, method, 10, n_starts=64, n_iter=1000, halving=half, engine="cpu", random_state=seed
                )
                runs.append((run, time.perf_counter() - begin))
            (full, slow), (half_run, quick) = runs
            best, ends = full.objective[-1], full.final_objectives
            rows.append(
                (
                    half_run.start_n_iter.sum() / full.start_n_iter.sum(),
                    quick / slow,
                    half_run.objective[-1] / best - 1,
                    np.median(ends) / best - 1,
                )
            )
        made, spent, above, spread = np.array(rows).T
        listed = ", ".join(f"{x:.1e}" for x in above)
        rest = f"{listed} | median {spread.mean():.1e} above best"
        print(f"| {method} | {made.mean():.0%} | {np.median(spent):.0%} | {rest} |")


def overlap(X: np.ndarray) -> None:
    """How exact the paper's local error and its carried B are: right after dividing the five faces worst by eq. 12."""
    print("| kind, σ | E/‖X‖² | jump, quarter | jump, copy | rank correlation of eq. 12 with the residual |")
    print("|---|---|---|---|---|")
    cases = [("partition", None)] + [("exponential", s) for s in (0.015, 0.03, 0.0692, 0.1)]
    for kind, sigma in cases + [("smooth", s) for s in (0.0692, 0.1)]:
        design, source = ico.Design(SITES, kind, sigma=sigma), Data(X, SITES)
        stats = source.statistics(design)
        found = ico.solve(stats, "LE-PNNMF", 10, n_iter=300, random_state=0)
        projected = local_error("projected", stats, design, found.B, found.C, source)
        residual = local_error("residual", stats, design, found.B, found.C, source)
        schedule = ico.Refinement(steps=1, faces=5, n_iter=0, indicator="projected")
        jumps = []
        for carry in ("quarter", "copy"):
            finer = ico.refine(source, design, stats, found, type(schedule)(1, 5, 0, "projected", carry))
            full = X - finer.design.matrix @ (finer.solution.B @ finer.solution.C)
            jumps.append(float((full**2).sum()) / found.error - 1)
        rank = spearmanr(projected, residual).statistic
        label = kind if sigma is None else f"{kind} {sigma}"
        print(f"| {label} | {found.error / stats.sq_norm:.4f} | {jumps[0]:+.2%} | {jumps[1]:+.2%} | {rank:.2f} |")


PARTS: dict[str, Callable[[np.ndarray], None]] = {
    "extrapolation": extrapolation,
    "zeros": zeros,
    "halving": halving,
    "overlap": overlap,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    maps, what = data()
    X = np.ascontiguousarray(maps.T, dtype=np.float64)
    print(what)
    for title, part in PARTS.items():
        if options.only in (None, title):
            print(f"\n## {title}\n\n{part.__doc__}\n")
            part(X)


if __name__ == "__main__":
    main()
