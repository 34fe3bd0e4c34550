"""Small cohorts that the tests of the selection share."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import icofactor as ico
from icofactor.assessment.selection.data import Coarse, Cohorts, Fit, Fitter, gather
from icofactor.assessment.selection.heldout import (
    Block,
    bicross_validation,
    heldout_subjects,
)
from icofactor.cohort import simulate
from icofactor.cohort.cohort import Cohort
from icofactor.factorization.methods import method_named
from icofactor.sphere.operators import neighbour_average, smooth_rows

METHOD = "CD-PNNMF"
SMALL = {"n_splits": 4, "n_starts": 4, "n_nulls": 5, "level": 1}
"""Settings of a selection that takes a second."""


@cache
def three_components() -> Cohort:
    return ico.simulate_cohort(48, 3, mesh="fsaverage4", random_state=0)


@cache
def smooth_noise(seed: int = 0, n_subjects: int = 48) -> Cohort:
    """A mean map with smooth noise, without any component."""
    sites = ico.Sites.named("fsaverage4")
    mean = simulate.group_map(simulate.MODALITIES["thickness"], sites, "left")
    X = np.maximum(mean * (1 + 0.4 * smooth_maps(n_subjects, 20, seed)), 0.02 * mean)
    return Cohort(X=X, subjects=[f"s{i}" for i in range(n_subjects)], sites=sites)


def smooth_maps(n: int, rounds: int, seed: int) -> np.ndarray:
    """Maps of smooth noise on the left hemisphere of fsaverage4, standard deviation 1."""
    sites = ico.Sites.named("fsaverage4")
    white = np.random.default_rng(seed).standard_normal((n, sites.n))
    e = smooth_rows(white, neighbour_average(sites.triangles), rounds)
    return np.asarray(e / e.std())


def gathered(cohort: Any, level: int = 1) -> Cohorts:
    return gather(cohort, level, method_named(METHOD))


def with_X(cohort: Cohort, X: np.ndarray, rows: np.ndarray | None = None) -> Cohort:
    """The same sites with other maps, or with some subjects only."""
    rows = np.arange(len(X)) if rows is None else rows
    return Cohort(X=X[rows], subjects=[cohort.subjects[i] for i in rows], sites=cohort.sites)


def predict_block(
    data: Coarse,
    fit: Fitter,
    rank: int,
    is_out: np.ndarray,
    is_face_out: np.ndarray,
    *key: int,
) -> tuple[Fit, np.ndarray]:
    """Predict a block of subjects × faces without it (Owen & Perry 2009), as the fit sees it."""
    scheme = fit.scheme
    view = data.view(np.flatnonzero(~is_out), np.flatnonzero(is_out), scheme)
    block = Block(view, is_face_out)
    block_fit = fit(block.problem, rank, *key)
    signed = scheme.signed_loadings or data.center != "none"
    return block_fit, block.predicted(block_fit, scheme, signed)


def heldout_errors(data: Coarse, fit: Fitter, rank: int, fold: np.ndarray, *key: int) -> np.ndarray:
    """Return the error of each fold of subjects."""
    return np.array(
        [
            heldout_subjects(data, fit, [rank], fold == number, *key, int(number))[0]
            for number in np.unique(fold)
        ]
    )


def block_errors(
    data: Coarse, fit: Fitter, rank: int, part: np.ndarray, group: np.ndarray
) -> np.ndarray:
    """Return the errors of all blocks of subjects × faces."""
    return np.hstack(
        [
            bicross_validation(data, fit, [rank], part == number, group, int(number))[0]
            for number in np.unique(part)
        ]
    )
