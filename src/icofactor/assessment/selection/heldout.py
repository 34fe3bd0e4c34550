"""Errors on data that the fit did not see: whole subjects, or blocks of faces × subjects.

Nothing of the held-out part touches the fit, not even its penalty or scale; tests poison it and compare bits. All
errors are shares of the held-out part's variance about the mean map of the subjects fitted: 1 is no better than that
mean map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from icofactor.assessment.selection.data import Coarse, Cohorts, Fit, Fitter
from icofactor.factorization._lift import Basis, lift, loadings
from icofactor.factorization.methods import method_named
from icofactor.factorization.quadratic import minimise
from icofactor.factorization.schemes.base import Scheme
from icofactor.streaming.blocks import Arrays
from icofactor.streaming.passes import each_block, pass_over

SUBJECT_FOLDS = 5
BLOCK_FOLDS = 3
"""Bi-cross-validation leaves out a third of the faces in a third of the subjects, nine times in all."""


def heldout_subjects(data: Coarse, fit: Fitter, rank: int, fold: np.ndarray, *where: int) -> np.ndarray:
    """Error of each fold of subjects: a basis fitted to the others, loadings by the scheme's own problem."""
    scheme = method_named(fit.method).scheme
    return np.array([_subjects_error(data, fit, rank, fold == f, scheme, *where, int(f)) for f in np.unique(fold)])


def _subjects_error(data: Coarse, fit: Fitter, rank: int, out: np.ndarray, scheme: Scheme, *where: int) -> float:
    train, test = np.flatnonzero(~out), np.flatnonzero(out)
    found = fit(data.subset(train), rank, *where)
    C = loadings(found.B.T @ data.L[test].T, _gram(found.B, data.counts), scheme, found.penalty)
    return _share(data.means[test] - (found.B @ C).T, data.means[test] - data.means[train].mean(axis=0), data.counts)


def bicross_validation(
    data: Coarse, fit: Fitter, rank: int, part: np.ndarray, group: np.ndarray, *where: int
) -> np.ndarray:
    """Error of every left-out block: `part` numbers the subjects' parts, `group` the faces' groups."""
    errors = []
    for p in np.unique(part):
        for g in np.unique(group):
            _, held = predict_block(data, fit, rank, part == p, group == g, *where, int(p), int(g))
            rows, columns = np.flatnonzero(part == p), np.flatnonzero(group == g)
            x = data.means[np.ix_(rows, columns)]
            mean = data.means[np.ix_(np.flatnonzero(part != p), columns)].mean(axis=0)
            errors.append(_share(x - held, x - mean, data.counts[columns]))
    return np.array(errors)


def predict_block(
    data: Coarse, fit: Fitter, rank: int, out_subjects: np.ndarray, out_faces: np.ndarray, *where: int
) -> tuple[Fit, np.ndarray]:
    """The block of `out_subjects` × `out_faces` predicted without it (Owen & Perry 2009).

    The basis and loadings are fitted where neither is left out; the left-out faces' basis comes from the other subjects
    given their loadings, the left-out subjects' loadings from the other faces given the basis.
    """
    train, test = np.flatnonzero(~out_subjects), np.flatnonzero(out_subjects)
    known, held = np.flatnonzero(~out_faces), np.flatnonzero(out_faces)
    scheme = method_named(fit.method).scheme
    found = fit(data.subset(train, known), rank, *where)
    B = minimise(found.C @ found.C.T, found.C @ data.means[np.ix_(train, held)], 0.0, scheme.signed_maps).T
    rhs = found.B.T @ data.L[np.ix_(test, known)].T
    C = minimise(_gram(found.B, data.counts[known]), rhs, 0.0, scheme.signed_loadings)
    return found, (B @ C).T


def face_groups(data: Coarse, rng: np.random.Generator) -> np.ndarray:
    """(n_k,) group of each face. Whole parents go together: next to a left-out face smooth maps would give it away."""
    level = int(data.design.faces[0, 0])
    parents, parent = np.unique(data.design.faces[:, 1] >> (2 if level else 0), return_inverse=True)
    return rng.permutation(np.arange(len(parents)) % BLOCK_FOLDS)[parent]


def heldout_full(
    cohorts: Cohorts,
    fit: Fitter,
    rank: int,
    fold: np.ndarray,
    *where: int,
    report: Callable[[float], None] = lambda done: None,
) -> np.ndarray:
    """As `heldout_subjects`, with basis and errors on every site: two passes over X per fold."""
    scheme, weight = method_named(fit.method).scheme, cohorts.sites.n_roots / cohorts.sites.n
    errors = []
    for f in np.unique(fold):
        train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        found = fit(cohorts.coarse.subset(train), rank, *where, int(f))
        G = _gram(found.B, cohorts.coarse.counts)
        W = lift(cohorts.X.subset(train), found.C, scheme, found.penalty, weight, G=G).W
        total: Arrays = {}
        for _, part in pass_over(cohorts.X, each_block(_heldout_block), {"train": train, "test": test}, [W]):
            total = {name: value + total.get(name, 0.0) for name, value in part.items()}
        basis = Basis(W, total["sum.WX"], W.T @ W)
        error = basis.error(loadings(basis.WX, basis.WW, scheme, found.penalty), float(total["sum.squares"]))
        errors.append(error / float(total["sum.deviation"]))
        report(len(errors) / len(np.unique(fold)))
    return np.array(errors)


def _heldout_block(x: np.ndarray, shared: Mapping[str, Any], W: np.ndarray) -> Arrays:
    """Of some sites, what the error of the subjects left out needs."""
    held, mean = x[:, shared["test"]], x[:, shared["train"]].mean(axis=1, keepdims=True)
    return {
        "sum.WX": W.T @ held,
        "sum.squares": np.array((held**2).sum()),
        "sum.deviation": np.array(((held - mean) ** 2).sum()),
    }


def _gram(B: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.asarray(B.T @ (counts[:, None] * B))


def _share(residual: np.ndarray, deviation: np.ndarray, weights: np.ndarray) -> float:
    """Squared residual as a share of the squared deviation from the mean map."""
    return float((weights * residual**2).sum() / (weights * deviation**2).sum())
