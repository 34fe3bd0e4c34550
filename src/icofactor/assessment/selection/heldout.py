"""Errors on data that the fit did not see: whole subjects, or blocks of faces × subjects.

Nothing of the held-out part touches the fit, not even its penalty or scale; tests poison it and
compare bits. All errors are shares of the held-out part's variance about the mean map of the
subjects fitted: 1 is no better than that mean map.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from icofactor.assessment.refit import as_fitted
from icofactor.assessment.selection.data import Coarse, Cohorts, Fit, Fitter, View
from icofactor.factorization._lift import Basis, full_basis, gram, loadings, weighed
from icofactor.factorization.quadratic import minimise
from icofactor.factorization.schemes.base import Scheme
from icofactor.factorization.statistics import Statistics
from icofactor.maps.blocks import Arrays
from icofactor.maps.maps import Maps
from icofactor.maps.passes import map_strips
from icofactor.preprocessing.centering import Centering

SUBJECT_FOLDS = 5

# Bi-cross-validation leaves out a third of the faces in a third of the subjects, nine times in all.
BLOCK_FOLDS = 3


def heldout_subjects(
    data: Coarse,
    fit: Fitter,
    ranks: Sequence[int],
    is_out: np.ndarray,
    *key: int,
) -> np.ndarray:
    """Return (n_ranks,) errors of the subjects who are left out.

    A basis is fitted to the others; loadings solve the scheme's own problem.
    """
    view = data.view(np.flatnonzero(~is_out), np.flatnonzero(is_out), fit.scheme)
    means = view.other / data.counts
    errors = []
    for rank in ranks:
        others_fit = fit(view.own.stats, rank, *key)
        C = new_loadings(view.other, data.counts, others_fit, fit.scheme)
        residual = means - (others_fit.B @ C).T
        errors.append(_share(residual, means - view.mean, data.counts))
    return np.array(errors)


def new_loadings(
    L: np.ndarray,
    counts: np.ndarray,
    fit: Fit,
    scheme: Scheme,
) -> np.ndarray:
    """Return loadings, n_d × subjects, by the scheme's own problem, of sums as the fit sees them."""
    return loadings(fit.B.T @ L.T, _gram(fit.B, counts), scheme, fit.penalty)


@dataclass(frozen=True, eq=False)
class Block:
    """Faces that are left out of the maps of some subjects; `view` is how a fit sees these maps."""

    view: View
    is_out: np.ndarray

    @property
    def problem(self) -> Statistics:
        """The other subjects on the other faces."""
        return self.view.own.subset(faces=np.flatnonzero(~self.is_out))

    def predicted(
        self,
        fit: Fit,
        scheme: Scheme,
        signed: bool,
    ) -> np.ndarray:
        """Predict the block, subjects × faces.

        The basis on the faces comes from the other subjects and their loadings, the loadings of the
        subjects from the other faces and their basis.
        """
        own = self.view.own
        # Both least squares without penalty: it shrinks, and would bias the prediction.
        CC = fit.C @ fit.C.T
        basis = minimise(CC, fit.C @ own.means[:, self.is_out], 0.0, scheme.signed_maps).T
        BB = _gram(fit.B, own.counts[~self.is_out])
        C = minimise(BB, fit.B.T @ self.view.other[:, ~self.is_out].T, 0.0, signed)
        return (basis @ C).T

    def error(self, predicted: np.ndarray) -> float:
        """Compute the error of a prediction."""
        counts = self.view.own.counts[self.is_out]
        means = self.view.other[:, self.is_out] / counts
        return _share(means - predicted, means - self.view.mean[:, self.is_out], counts)


def bicross_validation(
    data: Coarse,
    fit: Fitter,
    ranks: Sequence[int],
    is_out: np.ndarray,
    face_group: np.ndarray,
    *key: int,
) -> np.ndarray:
    """Return (n_ranks, n_groups) errors of groups of faces in the subjects who are left out."""
    view = data.view(np.flatnonzero(~is_out), np.flatnonzero(is_out), fit.scheme)
    # Deviations from a mean have loadings of both signs.
    signed = fit.scheme.signed_loadings or data.center != "none"
    groups = np.unique(face_group)
    errors = np.empty((len(ranks), len(groups)))
    for column, group in enumerate(groups):
        block = Block(view, face_group == group)
        problem = block.problem
        for row, rank in enumerate(ranks):
            block_fit = fit(problem, rank, *key, int(group))
            predicted = block.predicted(block_fit, fit.scheme, signed)
            errors[row, column] = block.error(predicted)
    return errors


def face_groups(
    data: Coarse,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return the (n_k,) group of each face.

    The four faces of a parent's parent stay together: next to a face that is left out, smooth maps
    would give it away.
    """
    faces = data.design.faces[:, 1]
    sites = data.design.sites
    level = int(data.design.faces[0, 0])
    # Bits of a face's number that tell it from those that stay with it.
    n_bits = 2 if level else 0
    if sites.regions is not None:
        # About four parcels that are neighbours.
        parent_level = max(0, round(math.log(len(faces) / (4 * sites.n_roots), 4)))
        n_bits = 2 * (level - parent_level) if sites.regions.placed else 0
    parents, parent = np.unique(faces >> n_bits, return_inverse=True)
    if len(parents) < BLOCK_FOLDS:
        parents = faces
        parent = np.arange(len(faces))
    return rng.permutation(np.arange(len(parents)) % BLOCK_FOLDS)[parent]


def heldout_full(
    cohorts: Cohorts,
    fit: Fitter,
    rank: int,
    fold: np.ndarray,
    *key: int,
    report: Callable[[float], None] = lambda done: None,
) -> np.ndarray:
    """Return the error of each fold as `heldout_subjects`, with basis and errors on every site.

    It takes a few passes over the maps per fold.
    """
    errors = []
    weights = cohorts.sites.weights
    for number in np.unique(fold):
        train = np.flatnonzero(fold != number)
        test = np.flatnonzero(fold == number)
        X, centering, W, fold_fit = fit_full(cohorts, fit, rank, train, *key, int(number))
        shared = {"test": test, "member": centering.membership(X.n_subjects)[:, test]}
        sums: dict[str, Any] = {}
        means = np.ascontiguousarray(centering.left.T)
        for _, strip in map_strips(
            _heldout_strip, X, W, means, weights, shared=shared, double=True
        ):
            sums = {name: value + sums.get(name, 0.0) for name, value in strip.items()}
        basis = Basis(W, sums["sum.WX"], gram(W, weights))
        C = loadings(basis.WX, basis.WW, fit.scheme, fold_fit.penalty)
        squares = basis.error(C, float(sums["sum.squares"]))
        errors.append(squares / float(sums["sum.deviation"]))
        report(len(errors) / len(np.unique(fold)))
    return np.array(errors)


def fit_full(
    cohorts: Cohorts,
    fit: Fitter,
    rank: int,
    train: np.ndarray,
    *key: int,
) -> tuple[Maps, Centering, np.ndarray, Fit]:
    """Return all maps as a fit to `train` sees them, its centering, its basis on every site, and it."""
    coarse = cohorts.coarse
    X, centering = as_fitted(
        cohorts.X, train, cohorts.sites, coarse.center, coarse.measures, coarse.confounds
    )
    own = coarse.condensed(train, fit.scheme).stats
    # Sums over faces are linear in the maps: no pass over these is needed.
    stats = coarse.centred(train).subset(train)
    has_scanners = coarse.confounds is not None and coarse.confounds.scans is not None
    if centering.scale is not None or has_scanners:
        # Sites have scales of their own, so sums over faces are not those of face means.
        own = stats = Statistics.from_data(X.subset(train), coarse.design)
    train_fit = fit(own, rank, *key)
    # Maps that stand for many subjects have loadings of their own.
    if train_fit.C.shape[1] != stats.n_subjects:
        train_fit = replace(train_fit, C=train_fit.B.T @ stats.L.T)
    basis = full_basis(
        X.subset(train),
        coarse.design,
        stats,
        train_fit.B,
        train_fit.C,
        fit.scheme,
        train_fit.penalty,
        centering.mean_left_in,
    )
    return X, centering, basis.W, train_fit


def _heldout_strip(
    x: np.ndarray,
    shared: Mapping[str, Any],
    W: np.ndarray,
    means: np.ndarray,
    weights: np.ndarray | None,
) -> Arrays:
    """Return what the error of the held-out subjects needs of some sites."""
    held_out = x[:, shared["test"]]
    deviation = held_out - means @ shared["member"]
    return {
        "sum.WX": weighed(W, weights).T @ held_out,
        "sum.squares": np.array(weighed(held_out**2, weights).sum()),
        "sum.deviation": np.array(weighed(deviation**2, weights).sum()),
    }


def _gram(
    B: np.ndarray,
    counts: np.ndarray,
) -> np.ndarray:
    return B.T @ (counts[:, None] * B)


def _share(
    residual: np.ndarray,
    deviation: np.ndarray,
    weights: np.ndarray,
) -> float:
    """Return the squared residual as a share of the squared deviation from the mean map."""
    return float((weights * residual**2).sum() / (weights * deviation**2).sum())
