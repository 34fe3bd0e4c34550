"""How values stay ≥ 0 after the covariates are taken out: which way finds the simulated components again.

    python -m icofactor_lab.docs_tables.covariates

Ten seeds; 60 subjects, 5 components, fsaverage4, one hemisphere; a map that is none of the components grows with age.
Prints the matched correlation of maps with the truth, mean over seeds (docs/covariates.md).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import icofactor as ico

N_SUBJECTS, N_COMPONENTS, SEEDS = 60, 5, range(10)


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


def main() -> None:
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
                model = ico.CorticalFactorization(N_COMPONENTS).fit(cohort)
                match = ico.match_components(model, truth.truth.components)
                found.setdefault((way, strength), []).append(match.mean)
    print("| strength of age | " + " | ".join(map(str, strengths)) + " |\n|---|" + "---|" * len(strengths))
    for way in dict.fromkeys(way for way, _ in found):
        print(f"| {way} | " + " | ".join(f"{np.mean(found[way, s]):.2f}" for s in strengths) + " |")


if __name__ == "__main__":
    main()
