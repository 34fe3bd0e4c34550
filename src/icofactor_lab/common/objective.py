"""The objective all solvers are compared by: the full-resolution error ‖X − WC‖², recomputed from X in float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

BLOCK = 8192
"""Sites per block: 65 MB of float64 at 1000 subjects."""


def full_error(Xs: np.ndarray, W: np.ndarray, C: np.ndarray) -> float:
    """‖X − WC‖² for Xs = Xᵀ (subjects × sites), W (sites × components) and C (components × subjects).

    The residual itself is squared, block by block: nothing cancels, whatever the solver's own arithmetic was.
    """
    if W.shape[0] != Xs.shape[1] or C.shape[1] != Xs.shape[0] or W.shape[1] != C.shape[0]:
        raise ValueError(f"W {W.shape} and C {C.shape} do not factorize sites × subjects {Xs.shape[::-1]}")
    Ct = np.ascontiguousarray(C.T, dtype=np.float64)
    total = 0.0
    for first in range(0, Xs.shape[1], BLOCK):
        part = slice(first, first + BLOCK)
        residual = Ct @ W[part].T.astype(np.float64)
        residual -= Xs[:, part]
        total += float(np.vdot(residual, residual))
    return total


def subject_gram(Xs: np.ndarray) -> np.ndarray:
    """XᵀX (subjects × subjects) in float64."""
    gram = np.zeros((len(Xs), len(Xs)))
    for first in range(0, Xs.shape[1], BLOCK):
        block = Xs[:, first : first + BLOCK].astype(np.float64)
        gram += block @ block.T
    return gram


def svd_floor(gram: np.ndarray, n_components: int) -> float:
    """The least ‖X − WC‖² of any W and C of that rank, signs free: what no factorization can undercut."""
    eigenvalues = np.linalg.eigvalsh(gram)
    return float(np.maximum(eigenvalues[: len(gram) - n_components], 0.0).sum())


def between_subject_variance(gram: np.ndarray) -> float:
    """Σ (x − the site's mean)², from XᵀX."""
    return float(np.trace(gram) - gram.sum() / len(gram))


def time_to(path: Sequence[tuple[float, float]], error: float) -> float:
    """Seconds until a path of (seconds, error) is first at or under `error`; infinity when it never is."""
    return min((seconds for seconds, reached in path if reached <= error), default=np.inf)
