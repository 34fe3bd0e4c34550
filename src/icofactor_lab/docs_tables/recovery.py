"""How well the truth of simulated cohorts is found again.

    python -m icofactor_lab.docs_tables.recovery methods [--seeds 4]     (a table of docs/reproducibility.md)
    python -m icofactor_lab.docs_tables.recovery seeds [--seeds 10]      (the table of docs/reproducibility.md)
    python -m icofactor_lab.docs_tables.recovery covariates              (the table of docs/measured.md)
    ICOFACTOR_TEST_DATA=... python -m icofactor_lab.docs_tables.recovery missing     (a number of docs/measured.md)

`covariates`: ten seeds; 60 subjects, 5 components, fsaverage4, one hemisphere; a map that is none of the components
grows with age. It prints the matched correlation of maps with the truth, mean over seeds.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace

import numpy as np

import icofactor as ico
from icofactor.results.transform import loadings_of
from icofactor_lab.common.data import thickness_arrays
from icofactor_lab.docs_tables import number, run_task

N_SUBJECTS, N_COMPONENTS, SEEDS = 60, 5, range(10)
VARIABILITIES = (0.008, 0.03, 0.165)
"""Between-subject variance as a part of all energy: real thickness, between, and the simulator's own."""


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Mean correlation of paired columns."""
    return float(np.mean([np.corrcoef(a[:, j], b[:, j])[0, 1] for j in range(a.shape[1])]))


def found_again(model: ico.CorticalFactorization, cohort: ico.Cohort) -> tuple[float, float, float]:
    """Correlation of maps and of loadings with the truth, means over matched components, and that of the worst map."""
    assert cohort.truth is not None
    match = ico.match_components(model, cohort.truth.components)
    loads = correlation(model.loadings_[:, match.a], cohort.truth.loadings[:, match.b])
    return match.mean, loads, float(match.similarity.min())


def seeds(options: argparse.Namespace) -> None:
    """What parts find from every seed, at three strengths of variability (docs/reproducibility.md)."""
    print("| variability | maps, worst seed | loadings, worst seed | worst single map |\n|---|---|---|---|")
    for variability in VARIABILITIES:
        cohort = ico.simulate_cohort(random_state=0, variability=variability)
        fits = (ico.CorticalFactorization(method="parts", random_state=s).fit(cohort) for s in range(options.seeds))
        worst = np.min([found_again(model, cohort) for model in fits], axis=0)
        print(f"| {variability} | " + " | ".join(f"{x:.3f}" for x in worst) + " |")


def methods(options: argparse.Namespace) -> None:
    """Maps and loadings found by three methods at three strengths of variability (docs/reproducibility.md)."""
    warnings.simplefilter("ignore")
    print("| variability | method | maps | loadings | error / variance |\n|---|---|---|---|---|")
    for variability in VARIABILITIES:
        for method in ("LE-PNNMF", "LE-SPNNMF", "LE-PPNMF"):
            rows = []
            for seed in range(options.seeds):
                cohort = ico.simulate_cohort(random_state=seed, variability=variability)
                model = ico.CorticalFactorization(method=method).fit(cohort)
                rows.append((*found_again(model, cohort)[:2], model.error_ / model.total_variance_))
            print(f"| {variability} | {method} | " + " | ".join(f"{x:.3f}" for x in np.mean(rows, axis=0)) + " |")


def ways(cohort: ico.Cohort, truth: ico.Cohort) -> dict[str, ico.Cohort]:
    """The same maps, adjusted in several ways."""
    covariates = ico.Covariates.fit(cohort, ["age"], nonnegative=False)
    residual = np.asarray(covariates.apply(cohort).X)  # on the mean map, negative here and there
    deviation = residual - residual.mean(axis=0)
    z = deviation / deviation.std(axis=0)
    return {
        "no confound": truth,
        "confounded, as it is": cohort,
        "residual on its mean, shift per site (icofactor)": replace(
            cohort, X=np.asarray(ico.Covariates.fit(cohort, ["age"]).apply(cohort).X)
        ),
        "residual on its mean, one shift for all sites": replace(cohort, X=residual - residual.min()),
        "residual on its mean, negative values set to 0": replace(cohort, X=np.maximum(residual, 0)),
        "z-scores, one shift for all sites": replace(cohort, X=z - z.min()),
    }


def covariates(options: argparse.Namespace) -> None:
    """Maps found after age was taken out, by how values stay ≥ 0 (docs/measured.md)."""
    found: dict[tuple[str, float], list[float]] = {}
    strengths = (0.3, 0.6, 0.9)
    for seed in SEEDS:
        truth = ico.simulate_cohort(N_SUBJECTS, N_COMPONENTS, mesh="fsaverage4", random_state=seed)
        assert truth.truth is not None
        age, at = np.random.default_rng(seed).uniform(20, 80, N_SUBJECTS), truth.sites.coordinates
        aged = truth.X.mean(axis=0) * (np.cos(3 * at[:, 0]) + np.sin(4 * at[:, 1])) / 2
        for strength in strengths:
            X = np.maximum(truth.X + strength * (age - 50)[:, None] / 30 * aged, 0)
            for way, cohort in ways(replace(truth, X=X, participants={"age": age}), truth).items():
                model = ico.CorticalFactorization(N_COMPONENTS, method="CD-PNNMF").fit(cohort)
                match = ico.match_components(model, truth.truth.components)
                found.setdefault((way, strength), []).append(match.mean)
    print("| strength of age | " + " | ".join(map(str, strengths)) + " |\n|---|" + "---|" * len(strengths))
    for way in dict.fromkeys(way for way, _ in found):
        print(f"| {way} | " + " | ".join(f"{np.mean(found[way, s]):.2f}" for s in strengths) + " |")


def missing(options: argparse.Namespace) -> None:
    """How loadings of new people change if 200 vertices are missing, or count as 0 mm: left thickness, ten parts."""
    X, cortex = (array[..., :10242] for array in thickness_arrays())
    people = ico.Cohort.from_array(X, "fsaverage5", "left", mask=cortex, modality="thickness", units="mm")
    model = ico.CorticalFactorization(10, random_state=0).fit(people[:100])
    lost = np.random.default_rng(0).choice(np.flatnonzero(cortex), 200, replace=False)
    new, spread = people[100:], model.loadings_.std(axis=0)
    whole, holes, zeros = loadings_of(model, new).loadings, new.X.copy(), new.X.copy()
    holes[:, lost], zeros[:, lost] = np.nan, 0.0
    changed = {
        "missing": loadings_of(model, replace(new, X=holes, checked=True)).loadings,
        "counted as 0 mm": model.transform(zeros),
    }
    print(f"200 of {cortex.sum()} vertices, root mean square change in standard deviations of the loadings:")
    for name, values in changed.items():
        print(f"  {name}: {np.sqrt(np.mean(((values - whole) / spread) ** 2)):.3f}")


def main() -> None:
    run_task(__doc__, {methods: {"--seeds": number(4)}, seeds: {"--seeds": number(10)}, covariates: {}, missing: {}})


if __name__ == "__main__":
    main()
