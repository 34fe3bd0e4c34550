"""Scanners and covariates taken out of maps by what some of the subjects say: a training part, and
nobody else.

A regression acts on each site alone and is linear, so that of sums over faces is the sum of those
of their sites. The scale of a scanner and the shift that keeps values ≥ 0 are not: on faces they
are those of the means over faces, as z-scores are; `stream` finds them at every site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from icofactor.preprocessing.adjusted import AdjustedCohort, AdjustedMaps, lift_to_zero
from icofactor.preprocessing.combat import ComBat, Harmonization
from icofactor.preprocessing.covariates import check_left, code_terms, regress_block, solver
from icofactor.preprocessing.scanners import Look, ScannerAdjustment, Scans, estimate_of
from icofactor.streaming.joined import Restacked, Unstacked
from icofactor.streaming.passes import Stream, each_wide_block, pass_over
from icofactor.streaming.source import Adjusted, Adjustment


@dataclass(frozen=True, eq=False)
class Confounds:
    """What is known of the subjects and is not wanted in their maps.

    Attributes
    ----------
    scans : where each scan was made and what harmonizing keeps; None: not harmonized.
    Z : (n_subjects, n_columns) covariates; None: none.
    nonnegative : whether values must not be negative.
    empirical_bayes : of the scanners' estimates.
    n_stacked : number of measures that lie below each other in the maps: each has estimates of its
        own.
    """

    scans: Scans | None = None
    Z: np.ndarray | None = None
    nonnegative: bool = True
    empirical_bayes: bool = True
    n_stacked: int = 1

    @classmethod
    def of(
        cls,
        participants: Mapping[str, Any],
        subjects: Sequence[str],
        combat: ComBat | None,
        covariates: Sequence[str],
        nonnegative: bool,
        n_stacked: int = 1,
    ) -> Confounds | None:
        """Those of a table of people; None when there are none."""
        scans = None if combat is None else combat.check(participants, subjects)
        terms, Z = code_terms(covariates, participants, subjects) if covariates else ((), None)
        check_left(terms, [] if combat is None else [combat.column])
        if scans is None and Z is None:
            return None
        return cls(scans, Z, nonnegative, combat is None or bool(combat.empirical_bayes), n_stacked)

    def taken_out(
        self, maps: np.ndarray, train: np.ndarray, part: np.ndarray | None = None
    ) -> np.ndarray:
        """Maps of all subjects, subjects × faces, as what the subjects `train` say leaves them.

        `part`: measure of each face, where there are several.
        """
        if self.n_stacked > 1:
            m, (rows, k) = self.n_stacked, maps.shape
            beside = maps.reshape(m, rows // m, k).swapaxes(0, 1).reshape(-1, m * k)
            whole = self._alone.taken_out(
                beside, train[train < rows // m], np.repeat(np.arange(m), k)
            )
            return whole.reshape(-1, m, k).swapaxes(0, 1).reshape(rows, k)
        if self.scans is not None:
            own, Z = self.scans.subset(train)
            found = estimate_of(maps[train].T, own, self.empirical_bayes, part)
            maps = own.adjustment(found, Z, self.scans.codes).linear(maps)
            maps = self._above_zero(maps, lift_to_zero(maps[train].T))
        if self.Z is not None:
            Z = self.Z - self.Z[train].mean(axis=0)
            seen = regress_block(maps[train].T, {"Z": Z[train], "solve": solver(Z[train])})
            maps = self._above_zero(maps - Z @ seen["site.beta"].T, seen["site.shift"])
        return maps

    def _above_zero(self, maps: np.ndarray, shift: np.ndarray) -> np.ndarray:
        return np.maximum(maps + shift, 0.0) if self.nonnegative else maps

    @property
    def _alone(self) -> Confounds:
        """Those of measures that lie beside each other."""
        return replace(self, n_stacked=1)

    def stream(self, X: Stream, train: np.ndarray, part: np.ndarray | None = None) -> Stream:
        """The same at every site: one pass over the maps for covariates, and two for scanners."""
        if self.n_stacked > 1:
            m, (n_sites, n_rows) = self.n_stacked, X.shape
            beside = Stream(Unstacked(X.source, m), X.runner)
            whole = self._alone.stream(
                beside, train[train < n_rows // m], np.repeat(np.arange(m), n_sites)
            )
            return Stream(Restacked(whole.source, m), X.runner)
        if self.scans is not None:
            own, Z = self.scans.subset(train)
            found = Look(X.subset(train), own).estimates(own, self.empirical_bayes, part)
            step = own.adjustment(found, Z, self.scans.codes)
            shift = np.zeros(X.shape[0])
            if self.nonnegative:
                harmonized = Stream(Adjusted(X.source, step), X.runner).subset(train)
                for rows, block in pass_over(harmonized, each_wide_block(_low_block)):
                    shift[rows] = block["site.shift"]
                step = replace(step, offset=-shift, floor=True)
            X = Stream(Adjusted(X.source, step), X.runner)
        if self.Z is not None:
            Z = self.Z - self.Z[train].mean(axis=0)
            beta, shift = np.zeros((Z.shape[1], X.shape[0])), np.zeros(X.shape[0])
            shared = {"Z": Z[train], "solve": solver(Z[train])}
            for rows, block in pass_over(X.subset(train), each_wide_block(regress_block), shared):
                beta[:, rows], shift[rows] = block["site.beta"].T, block["site.shift"]
            less = Adjustment(Z, beta, -shift if self.nonnegative else None, None, self.nonnegative)
            X = Stream(Adjusted(X.source, less), X.runner)
        return X


def _low_block(x: np.ndarray, shared: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {"site.shift": lift_to_zero(x)}


def unadjusted(X: Any) -> tuple[Any, Confounds | None]:
    """Data before anything was taken out of them, and what it was, to be found anew in parts of the
    subjects.
    """
    found = Confounds()
    while isinstance(X, AdjustedMaps | AdjustedCohort):
        maps = X.X if isinstance(X, AdjustedCohort) else X
        step, adjustment = maps.steps[-1], maps.adjustment
        found = replace(found, nonnegative=adjustment.floor, n_stacked=maps.n_stacked)
        if isinstance(step, Harmonization) and isinstance(adjustment, ScannerAdjustment):
            assert adjustment.codes is not None and adjustment.Z is not None
            reference = None if step.reference is None else step.levels.index(step.reference)
            names = tuple(map(str, range(int(adjustment.codes.max()) + 1)))
            scans = Scans(names, adjustment.codes, step.terms, adjustment.Z, reference)
            found = replace(found, scans=scans, empirical_bayes=step.empirical_bayes)
        else:
            found = replace(found, Z=adjustment.Z)
        X = X.cohort if isinstance(X, AdjustedCohort) else X.base
    return X, None if found.scans is None and found.Z is None else found
