"""What `ico.associate` promises, on simulated cohorts (the tables of docs/measured.md).

    python -m icofactor_lab.docs_tables.associations null         p-values where there is nothing, 500 cohorts each
    python -m icofactor_lab.docs_tables.associations coverage     intervals of a planted effect, 500 cohorts each
    python -m icofactor_lab.docs_tables.associations time         200 people, 10 components, 3 terms, 5,000 permutations

Cohorts: `independent` 40 people; `repeated` 25 people, three scans each; `families` 40 families of one to four people.
Age and group are a person's (a family's); sex is a person's; errors are skewed or heavy-tailed. Seeds are 0, 1, 2, ...
"""

from __future__ import annotations

import argparse
import time as clock
from typing import Any

import numpy as np
from scipy.stats import kstest

import icofactor as ico
from icofactor_lab.docs_tables import number, run_task

KINDS = ("independent", "repeated", "families")
SLOPE = 0.03


def cohort(kind: str, seed: int, n_outcomes: int = 1) -> tuple[np.ndarray, dict[str, Any], np.ndarray]:
    """Groups, table and outcomes, which depend on age by `SLOPE` and on nothing else."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    if kind == "independent":
        groups = np.arange(40)
    elif kind == "repeated":
        groups = np.repeat(np.arange(25), 3)
    else:
        groups = np.repeat(np.arange(40), rng.choice([1, 1, 2, 2, 2, 3, 4], 40))
    n, n_groups = len(groups), groups.max() + 1
    own = (
        np.arange(n) % 2 if kind == "families" else np.repeat([0, 1], [n_groups // 2, n_groups - n_groups // 2])[groups]
    )
    table = {
        "age": rng.uniform(20, 70, n_groups)[groups] + (0 if kind == "independent" else rng.uniform(0, 10, n)),
        "sex": np.array(["F", "M"])[own],
        "group": rng.permutation(np.arange(n_groups) % 2)[groups],
    }
    if kind == "independent":
        errors = rng.exponential(size=(n, n_outcomes))
    else:
        errors = rng.standard_t(5, (n_groups, n_outcomes))[groups] + rng.standard_t(5, (n, n_outcomes))
    return groups, table, SLOPE * np.asarray(table["age"])[:, None] + errors


def null_p(
    kind: str, n_cohorts: int = 500, n_permutations: int = 399, grouped: bool = True, at_once: int = 1
) -> dict[str, np.ndarray]:
    """Term → p by permutation in every cohort; `at_once` cohorts share a table, which is quicker."""
    found: dict[str, list[np.ndarray]] = {"sex": [], "group": []}
    for seed in range(n_cohorts // at_once):
        groups, table, Y = cohort(kind, seed, at_once)
        result = ico.associate(
            Y,
            table,
            "age + sex + group",
            groups=groups if grouped else None,
            n_permutations=n_permutations,
            random_state=seed,
        )
        for term, values in found.items():
            values.append(result.table["p_permutation"][result.table["term"] == term])
    return {term: np.concatenate(values) for term, values in found.items()}


def covered(kind: str, n_cohorts: int = 500, at_once: int = 1) -> float:
    """Share of the cohorts in which the interval holds the slope of age."""
    inside = []
    for seed in range(n_cohorts // at_once):
        groups, table, Y = cohort(kind, seed, at_once)
        found = ico.associate(Y, table, "age + sex + group", groups=groups, n_permutations=0).table
        age = found["term"] == "age"
        inside.append((found["ci_low"][age] < SLOPE) & (found["ci_high"][age] > SLOPE))
    return float(np.mean(np.concatenate(inside)))


def null(options: argparse.Namespace) -> None:
    """p-values where there is nothing to find."""
    print("| cohorts | groups given | term | KS p | p ≤ .05 |\n|---|---|---|---|---|")
    for kind in KINDS:
        for grouped in (True, False) if kind != "independent" else (False,):
            for term, p in null_p(kind, options.cohorts, grouped=grouped).items():
                uniform = kstest(p, "uniform").pvalue
                print(f"| {kind} | {'yes' if grouped else 'no'} | {term} | {uniform:.2g} | {np.mean(p <= 0.05):.3f} |")


def coverage(options: argparse.Namespace) -> None:
    """How often the 95 % interval holds a planted effect."""
    for kind in KINDS:
        print(f"| {kind} | {100 * covered(kind, options.cohorts):.1f} % |")


def time(options: argparse.Namespace) -> None:
    """Seconds of 200 people × 10 components × 3 terms × 5,000 permutations, alone and with two scans each."""
    rng = np.random.default_rng(0)
    person = np.arange(200)
    table = {"age": rng.uniform(20, 80, 200), "sex": rng.choice(["F", "M"], 200), "group": rng.integers(3, size=200)}
    for groups in (person, person // 2):
        start = clock.perf_counter()
        ico.associate(rng.normal(size=(200, 10)), table, "age + sex + group", groups=groups)
        print(f"{len(set(groups))} groups: {clock.perf_counter() - start:.2f} s")


def main() -> None:
    many = {"--cohorts": number(500)}
    run_task(__doc__, {null: many, coverage: many, time: {}})


if __name__ == "__main__":
    main()
