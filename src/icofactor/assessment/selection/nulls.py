"""A null for agreement: the same cohort, with every subject's map turned on the sphere by a rotation of its own.

What is turned is the subject's deviation from the mean map, in units of each face's standard deviation over subjects.
So a null cohort has the data's mean map, the data's variance at every place and each subject's smoothness; what it
lacks is that subjects vary in the same places together. Components that halves of a null cohort agree on come from
the mean map, the variances and smoothness alone.
"""

from __future__ import annotations

import numpy as np

from icofactor.assessment.selection.data import Coarse, Cohorts
from icofactor.sphere.rotations import FaceSpinner


def spun_cohort(cohorts: Cohorts, seed: np.random.SeedSequence, signed: bool = False) -> Coarse:
    """One null cohort, on the coarse faces. Maps are turned on the fine faces, and summed up afterwards: turning coarse
    faces would copy some of them into their neighbours, and make the maps smoother."""
    fine, coarse = cohorts.fine, cohorts.coarse
    middle, spread = fine.means.mean(axis=0), fine.means.std(axis=0)
    rng = np.random.default_rng(seed)
    spinner = FaceSpinner(cohorts.sites, int(fine.design.faces[0, 0]), fine.design.faces[:, 1])
    maps = np.empty_like(fine.means)
    for own, row in zip(maps, fine.means, strict=True):
        deviation = np.divide(row - middle, spread, out=np.zeros_like(row), where=spread > 0)
        own[:] = middle + deviation[spinner.draw(rng)] * spread
    if not signed:
        np.maximum(maps, 0.0, out=maps)
    if fine is coarse:
        return coarse.with_means(maps)
    parent = np.searchsorted(coarse.design.faces[:, 1], fine.design.faces[:, 1] >> 2)
    sums = np.zeros((coarse.stats.n_columns, len(maps)))
    np.add.at(sums, parent, (maps * fine.counts).T)
    return coarse.with_means(sums.T / coarse.counts)
