"""Stability over starts: do random starts on the same data end in the same parcellation (Brunet et al. 2004)?"""

from __future__ import annotations

import numpy as np

from icofactor.assessment.selection.data import Coarse, Fitter
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts
from icofactor.factorization.update import begin
from icofactor.streaming.runners import one_blas_thread


def stability(data: Coarse, fit: Fitter, rank: int) -> tuple[float, float]:
    """Cophenetic correlation and dispersion of the consensus matrix of all starts, each run to the end; NaN for fewer
    than two, which have nothing to agree on."""
    labels = labels_of_starts(data, fit, rank)
    if len(labels) < 2:
        return np.nan, np.nan
    consensus = consensus_matrix(labels)
    return cophenetic(consensus), float(np.mean((2 * consensus - 1) ** 2))


def labels_of_starts(data: Coarse, fit: Fitter, rank: int) -> np.ndarray:
    """(n_starts, n_k) winner-takes-all map of every start."""
    method, view = fit.chosen, data.centred(np.arange(data.n_subjects))
    p = Problem.of(view.stats, method.scheme)
    with one_blas_thread():
        B, C = draw_starts(p, method, rank, fit.seeds(rank, 1), range(fit.n_starts))
        run = fit.finish(p, begin(p, method.scheme, B, C), rank)
    B, C = np.asarray(run.state.B), np.asarray(run.state.C)
    size = np.sqrt((C**2).mean(axis=2))
    return np.asarray(np.abs(B * size[:, None, :]).argmax(axis=2)[~run.diverged])


def consensus_matrix(labels: np.ndarray) -> np.ndarray:
    """(n, n) share of labellings, rows of `labels`, that put two entries together."""
    together = np.zeros((labels.shape[1], labels.shape[1]))
    for row in labels:
        together += row[:, None] == row
    return together / len(labels)


def cophenetic(consensus: np.ndarray) -> float:
    """Correlation of 1 − consensus with the heights at which average linkage joins; 1 for a perfect consensus."""
    from scipy.cluster.hierarchy import average, cophenet

    upper = np.triu_indices(len(consensus), 1)
    distance = 1 - consensus[upper]
    if np.ptp(distance) == 0:
        return 1.0
    return float(np.corrcoef(distance, cophenet(average(distance)))[0, 1])
