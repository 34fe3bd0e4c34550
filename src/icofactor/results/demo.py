"""The demonstration: simulate, fit, write, draw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from icofactor.cohort.simulate import simulate_cohort
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.factorization.matching import match_components
from icofactor.progress import Stages
from icofactor.results.fit_cohort import Fitted, check_place, fit_cohort

_MESH = "fsaverage5"


def run_demo(
    out: str | Path,
    *,
    n_subjects: int = 100,
    n_components: int = 10,
    modality: str = "thickness",
    hemisphere: Any = "both",
    random_state: int = 0,
    figures: bool = True,
    overwrite: bool = False,
    verbose: bool = True,
) -> str:
    """Simulate a cohort, factorize it, and write all that a fit gives into `out`.

    All files appear together at the end, or none; with `overwrite` they take the place of an earlier run's files.
    Without `figures` the panels are not drawn for print.

    Returns
    -------
    A summary in words.
    """
    check_place(out, overwrite, hemisphere, _MESH, figures)
    with Stages(verbose).stage("simulation"):
        cohort = simulate_cohort(n_subjects, n_components, modality, hemisphere, random_state, mesh=_MESH)
    model = CorticalFactorization(n_components, random_state=random_state, verbose=verbose)
    return _summary(fit_cohort(cohort, model, out, figures=figures, overwrite=overwrite, verbose=verbose))


def _summary(fitted: Fitted) -> str:
    model, cohort = fitted.model, fitted.data
    match = match_components(model, cohort.truth.components)
    found, true = model.loadings_[:, match.a], cohort.truth.loadings[:, match.b]
    together = [np.corrcoef(found[:, j], true[:, j])[0, 1] for j in range(found.shape[1])]
    return (
        f"{fitted.found()}\n"
        f"{100 * cohort.provenance['noise']:.0f} % of that variance is simulated noise. The components match the "
        f"simulated truth: correlation {match.mean:.2f} of maps, {np.mean(together):.2f} of loadings.\n"
        f"{fitted.written()}"
    )
