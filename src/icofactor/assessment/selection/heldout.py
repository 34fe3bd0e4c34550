"""Errors on data that the fit did not see: whole subjects, or blocks of faces × subjects.

Nothing of the held-out part touches the fit, not even its penalty or scale; tests poison it and
compare bits. All errors are shares of the held-out part's variance about the mean map of the
subjects fitted: 1 is no better than that mean map.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from icofactor.assessment.selection.data import Coarse, Cohorts, Fit, Fitter, View
from icofactor.cohort.measures import Arrangement
from icofactor.factorization._lift import Basis, full_basis, gram, loadings, weighed
from icofactor.factorization.quadratic import minimise
from icofactor.factorization.schemes.base import Scheme
from icofactor.factorization.statistics import Statistics
from icofactor.maps.blocks import Arrays
from icofactor.maps.maps import Maps
from icofactor.maps.passes import map_strips
from icofactor.preprocessing.centering import measured_centering

SUBJECT_FOLDS = 5
BLOCK_FOLDS = 3
"""Bi-cross-validation leaves out a third of the faces in a third of the subjects, nine times in
all.
"""


def heldout_subjects(
    data: Coarse, fit: Fitter, rank: int, fold: np.ndarray, *where: int
) -> np.ndarray:
    """Error of each fold of subjects: a basis fitted to the others, loadings by the scheme's own
    problem.
    """
    scheme, errors = fit.chosen.scheme, []
    for f in np.unique(fold):
        view = data.view(np.flatnonzero(fold != f), np.flatnonzero(fold == f), scheme)
        found = fit(view.own.stats, rank, *where, int(f))
        C, x = new_loadings(view.other, data.counts, found, scheme), view.other / data.counts
        errors.append(_share(x - (found.B @ C).T, x - view.mean, data.counts))
    return np.array(errors)


def new_loadings(L: np.ndarray, counts: np.ndarray, found: Fit, scheme: Scheme) -> np.ndarray:
    """Loadings of subjects, n_d × subjects, by the scheme's own problem; their sums L as the fit
    saw its own.
    """
    return loadings(found.B.T @ L.T, _gram(found.B, counts), scheme, found.penalty)


@dataclass(frozen=True, eq=False)
class _Block:
    """A block that is left out: maps as the fit sees them, faces known and left out."""

    view: View
    known: np.ndarray
    held: np.ndarray

    @classmethod
    def of(cls, view: View, out_faces: np.ndarray) -> _Block:
        return cls(view, np.flatnonzero(~out_faces), np.flatnonzero(out_faces))

    @property
    def problem(self) -> Statistics:
        return self.view.own.subset(faces=self.known)

    def predicted(self, found: Fit, scheme: Scheme, signed: bool) -> np.ndarray:
        """The left-out faces' basis from the other subjects given their loadings, the left-out
        subjects' loadings from the other faces given the basis.
        """
        own = self.view.own
        B = minimise(
            found.C @ found.C.T, found.C @ own.means[:, self.held], 0.0, scheme.signed_maps
        ).T
        rhs = found.B.T @ self.view.other[:, self.known].T
        return np.asarray(
            (B @ minimise(_gram(found.B, own.counts[self.known]), rhs, 0.0, signed)).T
        )

    def error(self, predicted: np.ndarray) -> float:
        counts = self.view.own.counts[self.held]
        x, mean = self.view.other[:, self.held] / counts, self.view.mean[..., self.held]
        return _share(x - predicted, x - mean, counts)


def bicross_validation(
    data: Coarse, fit: Fitter, rank: int, part: np.ndarray, group: np.ndarray, *where: int
) -> np.ndarray:
    """Error of every left-out block: `part` numbers the subjects' parts, `group` the faces' groups."""
    scheme, signed, errors = fit.chosen.scheme, _signed_loadings(data, fit), []
    for p in np.unique(part):
        view = data.view(np.flatnonzero(part != p), np.flatnonzero(part == p), scheme)
        for g in np.unique(group):
            block = _Block.of(view, group == g)
            found = fit(block.problem, rank, *where, int(p), int(g))
            errors.append(block.error(block.predicted(found, scheme, signed)))
    return np.array(errors)


def _signed_loadings(data: Coarse, fit: Fitter) -> bool:
    return fit.chosen.scheme.signed_loadings or data.center != "none"


def face_groups(data: Coarse, rng: np.random.Generator) -> np.ndarray:
    """(n_k,) group of each face. Whole parents go together: next to a left-out face smooth maps
    would give it away.
    """
    faces, sites = data.design.faces[:, 1], data.design.sites
    level = int(data.design.faces[0, 0])
    up = 2 if level else 0
    if sites.regions is not None:  # about four parcels that are neighbours
        wide = max(0, round(math.log(len(faces) / (4 * sites.n_roots), 4)))
        up = 2 * (level - wide) if sites.regions.placed else 0
    parents, parent = np.unique(faces >> up, return_inverse=True)
    if len(parents) < BLOCK_FOLDS:
        parents, parent = faces, np.arange(len(faces))
    return rng.permutation(np.arange(len(parents)) % BLOCK_FOLDS)[parent]


def heldout_full(
    cohorts: Cohorts,
    fit: Fitter,
    rank: int,
    fold: np.ndarray,
    *where: int,
    report: Callable[[float], None] = lambda done: None,
) -> np.ndarray:
    """As `heldout_subjects`, with basis and errors on every site: two passes over X per fold, one
    more where the mean map is needed, one more for z-scores or covariates, and two or three for
    scanners, all at the sites here.
    """
    errors = []
    for f in np.unique(fold):
        train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        X, W, found = _full_fit(cohorts, fit, rank, train, *where, int(f))
        weights = cohorts.sites.weights
        shared = {
            "train": train,
            "test": test,
            "train_member": cohorts.coarse.member(train),
            "test_member": cohorts.coarse.member(test),
        }
        sums: dict[str, Any] = {}
        for _, result in map_strips(_heldout_strip, X, W, weights, shared=shared, double=True):
            sums = {name: value + sums.get(name, 0.0) for name, value in result.items()}
        basis = Basis(W, sums["sum.WX"], gram(W, weights))
        C = loadings(basis.WX, basis.WW, fit.chosen.scheme, found.penalty)
        errors.append(basis.error(C, float(sums["sum.squares"])) / float(sums["sum.deviation"]))
        report(len(errors) / len(np.unique(fold)))
    return np.array(errors)


def _full_fit(
    cohorts: Cohorts, fit: Fitter, rank: int, train: np.ndarray, *where: int
) -> tuple[Maps, np.ndarray, Fit]:
    """All maps as a fit to `train` sees them, its basis on every site, and that fit."""
    X, coarse, scheme, mean = cohorts.X, cohorts.coarse, fit.chosen.scheme, None
    stats = coarse.fitted(train)
    if coarse.confounds is not None:
        X = coarse.confounds.removed(X, train, _arrangement(cohorts))
    if scheme.projective or coarse.center != "none" or coarse.measures is not None:
        measured = measured_centering(
            coarse.measures, coarse.center, X.subset(train), cohorts.sites, check=False
        )
        X = measured.centering.applied(X)
        mean = measured.centering.mean_left_in
    # a scale of sites does not act on their sums
    if (
        coarse.center == "zscore"
        or coarse.measures is not None
        or (coarse.confounds is not None and coarse.confounds.scans is not None)
    ):
        stats = Statistics.from_data(X.subset(train), coarse.design)
    own = coarse.condensed(train, scheme).stats if coarse.apart else stats
    found = fit(own, rank, *where)
    if own is not stats and scheme.projective:
        found = replace(found, C=found.B.T @ stats.L.T)
    basis = full_basis(
        X.subset(train), coarse.design, stats, found.B, found.C, scheme, found.penalty, mean
    )
    return X, basis.W, found


def _arrangement(cohorts: Cohorts) -> Arrangement:
    """How several measures lie in the maps at the sites in use."""
    measures = cohorts.coarse.measures
    return Arrangement() if measures is None else measures.arrangement(cohorts.sites)


def _heldout_strip(
    x: np.ndarray, shared: Mapping[str, Any], W: np.ndarray, weights: np.ndarray | None
) -> Arrays:
    """Of some sites, what the error of the subjects left out needs."""
    held, train_member = x[:, shared["test"]], shared["train_member"]
    means = x[:, shared["train"]] @ train_member.T / train_member.sum(axis=1)
    deviation = held - means @ shared["test_member"]
    return {
        "sum.WX": weighed(W, weights).T @ held,
        "sum.squares": np.array(weighed(held**2, weights).sum()),
        "sum.deviation": np.array(weighed(deviation**2, weights).sum()),
    }


def _gram(B: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.asarray(B.T @ (counts[:, None] * B))


def _share(residual: np.ndarray, deviation: np.ndarray, weights: np.ndarray) -> float:
    """Squared residual as a share of the squared deviation from the mean map."""
    return float((weights * residual**2).sum() / (weights * deviation**2).sum())
