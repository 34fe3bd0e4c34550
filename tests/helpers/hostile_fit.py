"""Small fits for the tests of the report, whose words try to be markup."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.cohort.cohort import Cohort
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.factorization._refine import Refinement
from icofactor.results.diagnostics import diagnose
from icofactor.results.diagnostics.record import Diagnostics
from icofactor.sphere.sites import Sites

SCRIPT = "<script>window.hacked = 1</script>"
IMAGE = '<img src="x" onerror="window.hacked = 2">'
CLOSING = "</script><script>window.hacked = 3</script>{{script}}<!--"


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a test needs of the fit."""

    folder: Path
    model: Any
    diagnostics: Diagnostics


def small_fit(
    sites: Sites, hemi: Any, k: int = 3, mask: Any = None, **more: Any
) -> tuple[Any, Diagnostics]:
    """A quick fit of smooth positive maps; its words are hostile."""
    rng = np.random.default_rng(0)
    n = max(12, k)
    bumps = np.exp(3 * (sites.coordinates @ rng.standard_normal((3, 8)) / 2 - 1))
    X = 1 + (bumps @ rng.gamma(2, 0.5, (8, n))).T + 0.05 * rng.random((n, sites.n))
    participants = {
        "age": rng.uniform(20, 80, n),
        IMAGE: np.where(np.arange(n) % 2, SCRIPT, CLOSING),
    }
    subjects = (SCRIPT, IMAGE, CLOSING, *(f"sub-{i}" for i in range(3, n)))
    cohort = Cohort(
        X.astype(np.float32), subjects, sites, mask, hemi, "thickness", "mm", participants
    )
    settings = {
        "n_starts": 2,
        "n_iter": 120,
        "tol": 1e-2,
        "refinement": Refinement(steps=2, faces=3, n_iter=5),
    } | more
    model = CorticalFactorization(k, random_state=0, **settings).fit(cohort)
    return model, diagnose(model, cohort, n_permutations=50, warnings=[SCRIPT])
