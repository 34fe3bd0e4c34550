"""opNMF without XXᵀ against the published algorithm written out with it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition._nmf import _initialize_nmf

from icofactor_lab.common.data import simulated
from icofactor_lab.common.opnmf import MAX_ITER, TOL, opnmf, opnmf_path


def naive_opnmf(X: np.ndarray, n_components: int, n_iter: int) -> tuple[np.ndarray, list[float]]:
    """W after so many updates, XXᵀ formed, and how much each changed it."""
    W, _ = _initialize_nmf(X, n_components, init="nndsvd", random_state=0)
    S, changes = X @ X.T, []
    for _ in range(n_iter):
        old = W
        W = W * (S @ W) / (W @ (W.T @ S @ W))
        W[W < 1e-16] = 1e-16
        W = W / np.linalg.norm(W, 2)
        changes.append(float(np.linalg.norm(W - old, "fro") / np.linalg.norm(old, "fro")))
    return W, changes


def test_it_is_the_published_algorithm() -> None:
    Xs = simulated(2, 12).Xs.astype(np.float64)
    Xs[:, 7] = 0  # a site without data
    W, changes = naive_opnmf(np.delete(Xs, 7, axis=1).T, 3, 40)
    path = list(opnmf_path(Xs, 3, 40))
    assert [found.n_iter for found in path] == list(range(1, 41))
    np.testing.assert_allclose([found.change for found in path], changes, rtol=1e-4)
    np.testing.assert_allclose(np.delete(path[-1].W, 7, axis=0), W, atol=1e-6)
    assert not path[-1].W[7].any()
    assert np.linalg.norm(path[-1].W, 2) == pytest.approx(1.0)


def test_it_stops_by_its_own_rule_or_after_its_budget() -> None:
    rng = np.random.default_rng(0)
    parts = np.repeat(np.eye(3), 10, axis=1)
    Xs = rng.gamma(2.0, size=(20, 3)) @ parts + 0.01
    done = opnmf(Xs, 3)
    assert done.converged and done.change < TOL and done.n_iter < MAX_ITER
    stopped = opnmf(Xs, 3, budget=0.0)
    assert stopped.n_iter == 1 and not stopped.converged
