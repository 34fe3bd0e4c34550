"""The one pass over X: maps over sites, residuals of subjects, and what linear regression on the loadings needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.statistics import map_blocks


@dataclass(frozen=True, eq=False)
class Pass:
    """What one pass over X (sites × subjects) gives.

    Attributes
    ----------
    median, site_variance, site_error : per site; variance and error are sums of squares over subjects
    subject_variance, subject_error : per subject; sums of squares over sites, variance about the mean map
    moments : (k, k) Zᵀ Xcᵀ Xc Z, where Xc is X less each site's mean and Z the centred loadings
    sq_norm : ‖X‖²
    """

    median: np.ndarray
    site_variance: np.ndarray
    site_error: np.ndarray
    subject_variance: np.ndarray
    subject_error: np.ndarray
    moments: np.ndarray
    sq_norm: float


def pass_over(X: Any, W: np.ndarray, loadings: np.ndarray, on_block: Callable[[float], None] | None = None) -> Pass:
    """One pass over X (sites × subjects, sliced only) against the fit W @ loadings.T (sites × k, subjects × k)."""
    n_sites, n_subjects = X.shape
    k = loadings.shape[1]
    Z = loadings - loadings.mean(axis=0)
    median, site_variance, site_error = np.empty(n_sites), np.empty(n_sites), np.empty(n_sites)
    subject_variance, subject_error = np.zeros(n_subjects), np.zeros(n_subjects)
    moments, sq_norm = np.zeros((k, k)), 0.0

    def look(rows: slice, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        energy = float(np.einsum("ij,ij->", x, x))
        median[rows] = np.median(x, axis=1)
        residual = np.square(x - W[rows] @ loadings.T)
        x = x - x.mean(axis=1, keepdims=True)
        projected = x @ Z
        x *= x
        site_variance[rows], site_error[rows] = x.sum(axis=1), residual.sum(axis=1)
        return x.sum(axis=0), residual.sum(axis=0), projected.T @ projected, energy

    for rows, (variance, error, share, energy) in map_blocks(X, look):
        subject_variance += variance
        subject_error += error
        moments += share
        sq_norm += energy
        if on_block is not None:
            on_block(rows.stop / n_sites)
    return Pass(median, site_variance, site_error, subject_variance, subject_error, moments, sq_norm)


def linear_shares(moments: np.ndarray, loadings: np.ndarray, total: float) -> tuple[float, np.ndarray]:
    """Share of the variance `total` that the loadings explain by linear regression, and what each adds to the others.

    The variance explained by a set S of components is tr((Z_SᵀZ_S)⁻¹ Z_SᵀXcᵀXcZ_S).
    """
    Z = loadings - loadings.mean(axis=0)
    gram = Z.T @ Z
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
    gram, moments = gram / np.outer(scale, scale), moments / np.outer(scale, scale)

    def explained(members: np.ndarray) -> float:
        block = np.ix_(members, members)
        return float(np.trace(np.linalg.pinv(gram[block], hermitian=True, rcond=1e-10) @ moments[block]))

    everyone = np.arange(len(gram))
    whole = explained(everyone)
    lost = np.array([whole - (explained(np.delete(everyone, j)) if len(gram) > 1 else 0.0) for j in everyone])
    return whole / total, np.clip(lost, 0, None) / total
