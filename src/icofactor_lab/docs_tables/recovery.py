"""How well methods find the truth of simulated cohorts; prints the table of docs/methods.md.

Usage: python -m icofactor_lab.docs_tables.recovery [--seeds 4]
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import icofactor as ico


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Mean correlation of paired columns."""
    return float(np.mean([np.corrcoef(a[:, j], b[:, j])[0, 1] for j in range(a.shape[1])]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| variability | method | maps | loadings | error / variance |\n|---|---|---|---|---|")
    for variability in (0.008, 0.03, 0.165):
        for method in ("LE-PNNMF", "LE-SPNNMF", "LE-PPNMF"):
            rows = []
            for seed in range(options.seeds):
                cohort = ico.simulate_cohort(random_state=seed, variability=variability)
                model = ico.CorticalFactorization(method=method).fit(cohort)
                assert cohort.truth is not None
                match = ico.match_components(model, cohort.truth.components)
                loads = correlation(model.loadings_[:, match.a], cohort.truth.loadings[:, match.b])
                rows.append((match.mean, loads, model.error_ / model.total_variance_))
            print(f"| {variability} | {method} | " + " | ".join(f"{x:.3f}" for x in np.mean(rows, axis=0)) + " |")


if __name__ == "__main__":
    main()
