"""opNMF as published: orthonormal projective NMF by multiplicative updates at full resolution.

Sotiras A, Resnick SM, Davatzikos C. NeuroImage 108, 1-16 (2015), after Yang Z, Oja E. IEEE Transactions on Neural
Networks 21(5), 734-749 (2010). The start is NNDSVD; an update is W ← W ⊙ XXᵀW ⊘ WWᵀXXᵀW, then values under 1e-16 are
raised to it and W is divided by its spectral norm; it stops after an update that changes W by less than 1e-5,
relative, or after 50,000. XXᵀ (sites × sites) is never formed: products run through XᵀW, as in the authors' code for
many sites. Sites that are zero in all subjects are left out, as there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from icofactor.factorization.starts import nndsvd

TOL, MAX_ITER = 1e-5, 50_000
"""Of the published code."""
_LEAST = 1e-16


@dataclass(frozen=True, eq=False)
class OpNMF:
    """Where opNMF stands.

    Attributes
    ----------
    W_used : W on the sites that hold data
    used : which these are
    n_iter, seconds : updates, and time, that of the start among it, so far
    change : of W in the last update, relative
    """

    W_used: np.ndarray
    used: np.ndarray
    n_iter: int
    seconds: float
    change: float

    @property
    def W(self) -> np.ndarray:
        """Sites × components."""
        W = np.zeros((len(self.used), self.W_used.shape[1]))
        W[self.used] = self.W_used
        return W

    @property
    def converged(self) -> bool:
        return self.change < TOL


def opnmf_path(Xs: np.ndarray, n_components: int, max_iter: int = MAX_ITER) -> Iterator[OpNMF]:
    """Every update of opNMF on Xs = Xᵀ (subjects × sites, values ≥ 0), until it stops by its own rule."""
    used = np.asarray(Xs.any(axis=0))
    X = np.ascontiguousarray(Xs[:, used].T, dtype=np.float64)
    begin = time.perf_counter()
    W = nndsvd(X.T, np.ones(len(X)), n_components)[0]
    seconds = time.perf_counter() - begin
    for update in range(1, max_iter + 1):
        begin = time.perf_counter()
        before, W = W, updated(X, W)
        change = float(np.linalg.norm(W - before) / np.linalg.norm(before))
        seconds += time.perf_counter() - begin
        yield OpNMF(W, used, update, seconds, change)
        if change < TOL:
            return


def updated(X: np.ndarray, W: np.ndarray) -> np.ndarray:
    """One update; X is sites × subjects."""
    C = W.T @ X
    W = np.maximum(W * (X @ C.T) / (W @ (C @ C.T)), _LEAST)
    return W / np.sqrt(np.linalg.eigvalsh(W.T @ W)[-1])


def opnmf(Xs: np.ndarray, n_components: int, budget: float = np.inf, max_iter: int = MAX_ITER) -> OpNMF:
    """opNMF until it stops by its own rule, or until `budget` seconds are spent."""
    found = None
    for found in opnmf_path(Xs, n_components, max_iter):
        if found.seconds > budget:
            break
    assert found is not None
    return found
