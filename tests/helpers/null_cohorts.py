"""Simulated people of whom nothing depends on sex and group: p-values must be uniform, intervals must cover.

`independent` has 40 people; `repeated` 25 people with three scans each; `families` 40 families of one to four people.
Age and group are a person's (a family's); sex is a person's; errors are skewed or heavy-tailed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import icofactor as ico

KINDS = ("independent", "repeated", "families")
SLOPE = 0.03


def cohort(
    kind: str, seed: int, n_outcomes: int = 1
) -> tuple[np.ndarray, dict[str, Any], np.ndarray]:
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
        np.arange(n) % 2
        if kind == "families"
        else np.repeat([0, 1], [n_groups // 2, n_groups - n_groups // 2])[groups]
    )
    table = {
        "age": rng.uniform(20, 70, n_groups)[groups]
        + (0 if kind == "independent" else rng.uniform(0, 10, n)),
        "sex": np.array(["F", "M"])[own],
        "group": rng.permutation(np.arange(n_groups) % 2)[groups],
    }
    if kind == "independent":
        errors = rng.exponential(size=(n, n_outcomes))
    else:
        errors = rng.standard_t(5, (n_groups, n_outcomes))[groups] + rng.standard_t(
            5, (n, n_outcomes)
        )
    return groups, table, SLOPE * np.asarray(table["age"])[:, None] + errors


def null_p(
    kind: str,
    n_cohorts: int = 500,
    n_permutations: int = 399,
    grouped: bool = True,
    at_once: int = 1,
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
