"""Measure the choices behind the defaults of CorticalFactorization; prints the tables of docs/defaults.md.

Usage: ICOFACTOR_TEST_DATA=/path/to/data python -m icofactor_lab.docs_tables.defaults [--repeats 5]

Real thickness (100 subjects, left hemisphere, faces of fsaverage5) when ICOFACTOR_TEST_DATA is set, a simulated cohort
otherwise. Each row is the median over `--repeats` seeds of the full-resolution error over the between-subject variance,
its worst case, and the median time of one fit; rows of one table are interleaved, so that noise hits all alike.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import icofactor as ico
from icofactor.factorization._refine import Refinement


def data() -> tuple[np.ndarray, str]:
    """Subjects × faces, and what they are."""
    from icofactor.sphere.operators import vertex_to_face

    to_face = vertex_to_face(ico.Sites.named("fsaverage5").triangles, 10242)
    folder = os.environ.get("ICOFACTOR_TEST_DATA")
    if folder:
        maps = np.load(Path(folder) / "thickness_fsaverage5_n200.npz")["thickness"][:100, :10242]
        return np.ascontiguousarray((to_face @ maps.T).T), "real thickness, 100 subjects, 20480 left faces"
    maps = ico.simulate_cohort(100, 10, random_state=0).X
    return np.ascontiguousarray((to_face @ maps.T).T), "SIMULATED thickness, 100 subjects, 20480 left faces"


TABLES: dict[str, dict[str, dict[str, Any]]] = {
    "Start level": {f"level {i}": {"level": i} for i in range(4)},
    "Number of starts": {f"{n} starts": {"n_starts": n} for n in (1, 3, 5, 10, 20, 50)},
    "Tolerance": {f"tol {t:g}": {"tol": t} for t in (1e-3, 1e-4, 1e-5, 1e-6)},
    "Halving": {
        "20 starts": {"n_starts": 20, "tol": 0.0, "n_iter": 300},
        "20 starts, halving": {"n_starts": 20, "tol": 0.0, "n_iter": 300, "halving": True},
        "50 starts, halving": {"n_starts": 50, "tol": 0.0, "n_iter": 300, "halving": True},
    },
    "Refinement": {
        "20 faces, none": {"level": 0, "refinement": None},
        "20 faces, 10 x 5": {"level": 0, "refinement": Refinement(10, 5, 10)},
        "20 faces, 60 x 5": {"level": 0, "refinement": Refinement(60, 5, 10)},
        "320 faces, none": {"refinement": None},
        "320 faces, 10 x 5": {},
        "320 faces, 60 x 5": {"refinement": Refinement(60, 5, 10)},
    },
    "Lift and polish": {
        "no lift": {"lift": False},
        "lift": {},
        "lift + 5 polish": {"polish": 5},
        "lift + 20 polish": {"polish": 20},
    },
    "Columns": {"partition": {}, "smooth": {"columns": "smooth"}},
    "Method": {name: {"method": name} for name in ico.METHODS},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", help="print only the tables whose title holds this")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    X, what = data()
    print(f"{what}; median of {options.repeats} seeds; error / between-subject variance\n")
    ico.CorticalFactorization(n_starts=1).fit(X)  # imports and first touches
    for title, rows in TABLES.items():
        if options.only and options.only not in title:
            continue
        found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in rows}
        for seed in range(options.repeats):
            for name, changes in rows.items():
                model = ico.CorticalFactorization(random_state=seed, **changes)
                begin = time.perf_counter()
                model.fit(X)
                spent = time.perf_counter() - begin
                found[name].append((model.error_ / model.total_variance_, spent, model.n_iter_))
        print(f"| {title} | error / variance | worst | updates | seconds |\n|---|---|---|---|---|")
        for name, runs in found.items():
            error, spent, updates = (np.array(column) for column in zip(*runs, strict=True))
            print(
                f"| {name} | {np.median(error):.4f} | {error.max():.4f} | {np.median(updates):.0f} "
                f"| {np.median(spent):.2f} |"
            )
        print(flush=True)


if __name__ == "__main__":
    main()
