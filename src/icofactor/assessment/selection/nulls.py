"""Null cohorts for agreement: every subject's map turned on the sphere by a rotation of its own."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from icofactor.assessment.selection.data import Coarse, Cohorts, View
from icofactor.cohort.people import RowGroups
from icofactor.factorization.schemes.base import Scheme
from icofactor.io.archive import digest
from icofactor.sphere.rotations import FaceSpinner, SiteSpinner


def spun_cohort(
    cohorts: Cohorts,
    seed: np.random.SeedSequence,
    signed: bool = False,
    groups: RowGroups | None = None,
) -> Coarse:
    """A null cohort for agreement, on the coarse faces: every subject's map turned by a rotation of
    its own, or of its group's, so that scans of a person stay as alike as they are.

    What is turned is the subject's deviation from the mean map, in units of each face's standard
    deviation over subjects. So a null cohort has the data's mean map, the data's variance at every
    place and each subject's smoothness; what it lacks is that subjects vary in the same places
    together. Components that halves of a null cohort agree on come from the mean map, the variances
    and smoothness alone.

    Maps are turned on the fine faces, and summed up afterwards: turning coarse faces would copy
    some of them into their neighbours, and make the maps smoother.
    """
    coarse, fine = cohorts.coarse, cohorts.fine.all_adjusted
    codes = np.zeros(fine.n_subjects, dtype=np.int64) if fine.codes is None else fine.codes
    kinds = [fine.means[codes == code] for code in range(int(codes.max()) + 1)]
    middle, spread = (
        np.stack([one.mean(axis=0) for one in kinds]),
        np.stack([one.std(axis=0) for one in kinds]),
    )
    rng = np.random.default_rng(seed)
    faces, sites = fine.design.faces, cohorts.sites
    spinner = (
        FaceSpinner(sites, int(faces[0, 0]), faces[:, 1])
        if sites.regions is None
        else SiteSpinner(sites)
    )
    to_coarse, sums = _sums_over_parents(fine, coarse), np.empty(coarse.L.shape)
    for rows in np.arange(len(sums))[:, None] if groups is None else groups.members:
        own, mean, size = fine.means[rows], middle[codes[rows]], spread[codes[rows]]
        deviation = np.divide(own - mean, size, out=np.zeros_like(own), where=size > 0)
        maps = mean + deviation[:, spinner.draw(rng)] * size
        if not signed:
            np.maximum(maps, 0.0, out=maps)
        sums[rows] = (maps * fine.counts) @ to_coarse
    return coarse.with_sums(sums)


def _sums_over_parents(fine: Coarse, coarse: Coarse) -> sp.csr_array:
    """The matrix that adds up sums over fine faces to those over coarse faces: fine × coarse."""
    levels = int(fine.design.faces[0, 0] - coarse.design.faces[0, 0])
    parent = np.searchsorted(coarse.design.faces[:, 1], fine.design.faces[:, 1] >> (2 * levels))
    n = len(parent)
    return sp.csr_array((np.ones(n), parent, np.arange(n + 1)), shape=(n, coarse.stats.n_columns))


@dataclass(frozen=True, eq=False)
class Kept(Coarse):
    """A cohort of many subjects of which only what its splits need is left.

    Attributes
    ----------
    parts : of subjects, as `condensed` gives them
    others, middle : sums of subjects in neither of two groups, and their mean in each group
    """

    parts: dict[str, Coarse] = field(default_factory=dict)
    others: np.ndarray | None = None
    middle: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def left_of(
        cls, data: Coarse, scheme: Scheme, halves: np.ndarray, thirds: np.ndarray | None
    ) -> Coarse:
        """Of one split in halves, and one in two groups and the rest; `data` itself if nothing
        becomes smaller.
        """
        own = [] if thirds is None else [np.flatnonzero(thirds == group) for group in (0, 1)]
        several = [*(np.flatnonzero(halves == half) for half in (0, 1)), *own]
        if not data.apart or min(map(len, several)) <= data.stats.n_columns:
            return data
        parts = {digest(some): data.condensed(some, scheme) for some in several}
        if any(len(part.L) > data.stats.n_columns for part in parts.values()):
            return data
        others = None if thirds is None else data.L[thirds == 2]
        middle = {digest(some): data.sum_of(some) / len(some) for some in own}
        known: dict[str, Any] = {
            name: getattr(data, name) for name in ("design", "center", "confounds", "measures")
        }
        nobody = replace(
            data.stats, L=data.L[:0].copy(), root_L=data.stats.root_L[:0].copy()
        )  # views keep all of it
        return cls(nobody, **known, parts=parts, others=others, middle=middle)

    def condensed(self, subjects: np.ndarray, scheme: Scheme) -> Coarse:
        return self.parts[digest(subjects)]

    def view(self, subjects: np.ndarray, others: np.ndarray, scheme: Scheme) -> View:
        assert self.others is not None
        mean = self.middle[digest(subjects)]
        return View(self.condensed(subjects, scheme), self.others - mean, np.zeros_like(mean))
