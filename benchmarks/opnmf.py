"""opNMF as published: orthonormal projective NMF by multiplicative updates at full resolution.

Sotiras A, Resnick SM, Davatzikos C. NeuroImage 108, 1-16 (2015), after Yang Z, Oja E. IEEE Transactions on Neural
Networks 21(5), 734-749 (2010). The start is NNDSVD. An update is W ← W ⊙ XXᵀW ⊘ WWᵀXXᵀW; then values under 1e-16 are
raised to it and W is divided by its spectral norm. XXᵀ (sites × sites) is never formed, as in the authors' code for
many sites. Sites that are zero in all subjects are left out, as there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

# The updates end when W changes by less than this, relative.
TOLERANCE = 1e-5
SMALLEST = 1e-16


@dataclass(frozen=True, eq=False)
class OpNMF:
    """opNMF after some updates.

    Attributes
    ----------
    W : (sites, components), 0 where no subject has data
    n_updates : updates so far
    seconds : time so far, with the start
    converged : whether it ended by its own rule
    """

    W: np.ndarray
    n_updates: int
    seconds: float
    converged: bool


def opnmf(X: np.ndarray, n_components: int, n_updates: int, every: int = 0) -> Iterator[OpNMF]:
    """Run opNMF on X (subjects × sites, values ≥ 0); yield it at its end, and before it `every` so many updates."""
    used = np.asarray(X.any(axis=0))
    data = np.ascontiguousarray(X[:, used].T, dtype=np.float64)
    begin = time.perf_counter()
    W = nndsvd(data, n_components)
    paused = 0.0
    for update in range(1, n_updates + 1):
        new = updated(data, W)
        converged = bool(np.linalg.norm(new - W) < TOLERANCE * np.linalg.norm(W))
        W = new
        last = converged or update == n_updates
        if last or (every and update % every == 0):
            pause = time.perf_counter()
            full = np.zeros((len(used), n_components))
            full[used] = W
            yield OpNMF(full, update, pause - begin - paused, converged)
            # What the caller does is not on the clock.
            paused += time.perf_counter() - pause
        if converged:
            return


def updated(data: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Make one update; data are sites × subjects."""
    loadings = W.T @ data
    numerator = data @ loadings.T
    denominator = W @ (loadings @ loadings.T)
    W = np.maximum(W * numerator / denominator, SMALLEST)
    spectral_norm = np.sqrt(np.linalg.eigvalsh(W.T @ W)[-1])
    return W / spectral_norm


def nndsvd(data: np.ndarray, n_components: int) -> np.ndarray:
    """Return the non-negative start of Boutsidis & Gallopoulos (2008) from the SVD of sites × subjects."""
    site_vectors, singular, subject_vectors = np.linalg.svd(data, full_matrices=False)
    W = np.empty((len(data), n_components))
    for component in range(n_components):
        u = site_vectors[:, component]
        v = subject_vectors[component]
        # The side, positive or negative, that carries more of the product.
        sides = [(np.maximum(sign * u, 0), np.maximum(sign * v, 0)) for sign in (1, -1)]
        lengths = [np.linalg.norm(a) * np.linalg.norm(b) for a, b in sides]
        larger = int(np.argmax(lengths))
        positive = sides[larger][0]
        W[:, component] = (
            np.sqrt(singular[component] * lengths[larger]) * positive / np.linalg.norm(positive)
        )
    return W
