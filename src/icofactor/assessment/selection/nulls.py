"""Null cohorts for agreement: every subject's map turned on the sphere by a rotation of its own."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from icofactor.assessment.selection.data import Coarse, Cohorts
from icofactor.cohort.people import RowGroups
from icofactor.sphere.rotations import FaceSpinner, SiteSpinner


def spun_cohort(
    cohorts: Cohorts,
    seed: np.random.SeedSequence,
    signed: bool = False,
    groups: RowGroups | None = None,
) -> Coarse:
    """Return a null cohort on the coarse faces: every subject's map turned by a rotation of its own.

    Maps of a group turn together, so that scans of a person stay as alike as they are.

    What is turned is the subject's deviation from the mean map, in units of each face's standard
    deviation over subjects. So a null cohort has the data's mean map, the data's variance at every
    place and each subject's smoothness; what it lacks is that subjects vary in the same places
    together. Components that halves of a null cohort agree on come from the mean map, the variances
    and smoothness alone.

    Maps are turned on the fine faces, and summed up afterwards: turning coarse faces would copy
    some of them into their neighbours, and make the maps smoother.
    """
    coarse = cohorts.coarse
    fine = cohorts.fine.adjusted(cohorts.fine.everyone)
    # Each measure has a mean map of its own.
    measures = [fine.means[fine.codes == code] for code in np.unique(fine.codes)]
    means = np.stack([maps.mean(axis=0) for maps in measures])
    deviations = np.stack([maps.std(axis=0) for maps in measures])
    sites = cohorts.sites
    # Parcels have no finer faces: their mean directions turn.
    spinner: FaceSpinner | SiteSpinner
    if sites.regions is None:
        faces = fine.design.faces
        spinner = FaceSpinner(sites, int(faces[0, 0]), faces[:, 1])
    else:
        spinner = SiteSpinner(sites)
    rng = np.random.default_rng(seed)
    to_coarse = _sums_over_parents(fine, coarse)
    sums = np.empty(coarse.L.shape)
    members = coarse.everyone[:, None] if groups is None else groups.members
    for rows in members:
        mean = means[fine.codes[rows]]
        size = deviations[fine.codes[rows]]
        deviation = (fine.means[rows] - mean) / np.where(size > 0, size, np.inf)
        maps = mean + deviation[:, spinner.draw(rng)] * size
        if not signed:
            # Methods for maps ≥ 0 refuse others.
            np.maximum(maps, 0.0, out=maps)
        sums[rows] = (maps * fine.counts) @ to_coarse
    return coarse.with_sums(sums)


def _sums_over_parents(
    fine: Coarse,
    coarse: Coarse,
) -> sp.csr_array:
    """Return the matrix, fine × coarse, that adds up sums over fine faces to those over coarse ones."""
    n_levels = int(fine.design.faces[0, 0] - coarse.design.faces[0, 0])
    parents = fine.design.faces[:, 1] >> (2 * n_levels)
    columns = np.searchsorted(coarse.design.faces[:, 1], parents)
    n_faces = len(columns)
    return sp.csr_array(
        (np.ones(n_faces), columns, np.arange(n_faces + 1)),
        shape=(n_faces, coarse.stats.n_columns),
    )
