"""Scanners and covariates, estimated anew in a training part of the subjects.

A regression acts on each site alone and is linear, so that of sums over faces is the sum of those
of their sites. The scale of a scanner and the shift that keeps values ≥ 0 are not: on faces they
are those of the means over faces, as z-scores are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from icofactor.cohort.adjusted import AdjustedCohort
from icofactor.cohort.measures import Arrangement
from icofactor.errors import ArgumentError
from icofactor.maps.adjustment import Adjustment
from icofactor.maps.blocks import Arrays
from icofactor.maps.maps import Maps
from icofactor.maps.passes import map_strips
from icofactor.preprocessing.adjusted import lift_to_zero, steps_of
from icofactor.preprocessing.combat import ComBat, Harmonization
from icofactor.preprocessing.covariates import (
    Covariates,
    check_left,
    code_terms,
    regress,
    removal,
)
from icofactor.preprocessing.scanners import Scans, estimate_scanners, scanner_adjustment


@dataclass(frozen=True, eq=False)
class Confounds:
    """What is known of the subjects and is not wanted in their maps.

    Attributes
    ----------
    scans : where each scan was made and what harmonizing keeps; None: not harmonized
    Z : (n_people, n_columns) covariates; None: none
    nonnegative : whether values must not be negative
    empirical_bayes : of the scanners' estimates
    """

    scans: Scans | None = None
    Z: np.ndarray | None = None
    nonnegative: bool = True
    empirical_bayes: bool = True

    @classmethod
    def of(
        cls,
        participants: Mapping[str, Any],
        subjects: Sequence[str],
        combat: ComBat | None,
        covariates: Sequence[str],
        nonnegative: bool,
    ) -> Confounds | None:
        """Return those of a table of people; None if there are none."""
        scans = None if combat is None else combat.check(participants, subjects)
        terms, Z = code_terms(covariates, participants, subjects) if covariates else ((), None)
        check_left(terms, [] if combat is None else [combat.column])
        if scans is None and Z is None:
            return None
        return cls(scans, Z, nonnegative, combat is None or bool(combat.empirical_bayes))

    def removed(self, maps: Maps, rows: np.ndarray, arrangement: Arrangement) -> Maps:
        """Return all maps, less effects in these rows: one pass for covariates, two for scanners."""
        # Rows of a person in several measures belong together, so the first measure names people.
        people = rows[rows < maps.n_subjects // arrangement.n_stacked]
        if self.scans is not None:
            maps = self._without_scanners(maps, self.scans, people, arrangement)
        if self.Z is not None:
            # Columns are centred on the training subjects, whose mean map must not change.
            Z = self.Z - self.Z[people].mean(axis=0)
            effects = regress(maps, Z[people], arrangement, people=people)
            shift = effects.shift if self.nonnegative else None
            adjustment = removal(Z, effects.coefficients, shift, arrangement)
            maps = maps.adjusted(adjustment, floor=maps.floor or self.nonnegative)
        return maps

    def _without_scanners(
        self, maps: Maps, scans: Scans, people: np.ndarray, arrangement: Arrangement
    ) -> Maps:
        own_scans = scans.subset(people)
        estimates = estimate_scanners(
            maps, own_scans, self.empirical_bayes, arrangement, people=people
        )
        Z = scans.Z - scans.Z[people].mean(axis=0)

        def adjustment(shift: np.ndarray | None) -> Adjustment:
            return scanner_adjustment(estimates, Z, scans.codes, arrangement, shift=shift)

        if not self.nonnegative:
            return maps.adjusted(adjustment(None))
        # The shift depends on the harmonized values, so it takes a second pass.
        shift = np.zeros(len(estimates.mean))
        for measure_maps, positions in arrangement.each_measure(maps.adjusted(adjustment(None))):
            for sites, result in map_strips(
                _shift_strip, measure_maps.subset(subjects=people), double=True
            ):
                shift[positions[sites]] = result["site.shift"]
        return maps.adjusted(adjustment(shift), floor=True)

    def removed_from_array(
        self, values: np.ndarray, rows: np.ndarray, arrangement: Arrangement
    ) -> np.ndarray:
        """Return an array of subjects × faces, less what these rows tell."""
        return np.asarray(self.removed(Maps(values), rows, arrangement))


def _shift_strip(x: np.ndarray, shared: Mapping[str, Any]) -> Arrays:
    return {"site.shift": lift_to_zero(x)}


def unadjusted(X: Any) -> tuple[Any, Confounds | None]:
    """Return data before any step, and the steps, to be estimated anew in parts of the subjects."""
    steps = steps_of(X)
    if not steps:
        return X, None
    maps = X.X if isinstance(X, AdjustedCohort) else X
    arrangement = Arrangement.of(X)
    confounds = Confounds(nonnegative=maps.floor)
    for adjustment in maps.adjustments:
        step = adjustment.made_by
        if isinstance(step, Harmonization):
            scans = _scans_of(step, adjustment, arrangement.n_stacked)
            confounds = replace(confounds, scans=scans, empirical_bayes=step.empirical_bayes)
        elif isinstance(step, Covariates):
            Z = _people_columns(adjustment, arrangement.n_stacked)
            confounds = replace(confounds, Z=Z)
        else:
            raise ArgumentError(
                "X",
                f"is {step.done}, which cannot be estimated anew in parts of the subjects: give X "
                "itself",
            )
    data = X.cohort if isinstance(X, AdjustedCohort) else replace(X, adjustments=(), floor=False)
    return data, confounds


def _people_columns(adjustment: Adjustment, n_stacked: int) -> np.ndarray:
    """Return the columns of the people, of which every measure that is stacked has a copy."""
    assert adjustment.Z is not None
    n_rows, n_columns = adjustment.Z.shape
    return adjustment.Z[: n_rows // n_stacked, : n_columns // n_stacked]


def _scans_of(step: Harmonization, adjustment: Adjustment, n_stacked: int) -> Scans:
    """Return the scans to which a harmonization was applied."""
    assert adjustment.codes is not None
    # The first column is that of the mean.
    Z = _people_columns(adjustment, n_stacked)[:, 1:]
    codes = adjustment.codes[: len(Z)]
    names = tuple(map(str, range(int(codes.max()) + 1)))
    reference = None if step.reference is None else step.levels.index(step.reference)
    return Scans(names, codes, step.terms, Z, reference)
