"""CD-PNNMF and CD-SPNNMF: sweeps against the closed form on the full X; objectives."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.problems import random_factors, small
from icofactor.factorization._multistart import multistart
from icofactor.factorization.methods import METHODS
from icofactor.factorization.schemes import nonnegative
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.update import begin

CD = ("CD-PNNMF", "CD-SPNNMF")
# The second begins from the gradient that the first leaves.
N_SWEEPS = 2


def naive_sweeps(
    name: str, X: np.ndarray, D: np.ndarray, B: np.ndarray, C: np.ndarray, lam: float, w: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Set columns of B, twice, then rows of C, twice, to their minimisers with all else fixed.

    On the full X, with partition columns D.
    """
    ridge, lasso = (lam, 0.0) if name == "CD-PNNMF" else (0.0, lam)
    B, C = B.copy(), C.copy()
    components = [*range(B.shape[1])] * N_SWEEPS
    for j in components:
        residual = X - D @ np.delete(B, j, 1) @ np.delete(C, j, 0)
        for k, column in enumerate(D.T):
            pull = column @ residual @ C[j] - lasso * w[k]
            curvature = column @ column * (C[j] @ C[j]) + ridge * w[k]
            B[k, j] = max(0.0, pull / curvature)
    W = D @ B
    for j in components:
        residual = X - np.delete(W, j, 1) @ np.delete(C, j, 0)
        pull = W[:, j] @ residual - lasso
        C[j] = np.maximum(0.0, pull / (W[:, j] @ W[:, j] + ridge))
    return B, C


@pytest.mark.parametrize("name", CD)
def test_sweeps_take_the_exact_minimiser_column_by_column(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nonnegative.CoordinateDescent, "sweeps", N_SWEEPS)
    problem = small("partition", None, True)
    scheme = METHODS[name].scheme
    p = Problem.of(problem.stats, scheme, penalty=0.7)
    B, C = random_factors(problem.stats.n_columns, 3, problem.stats.n_subjects, 0)
    state = begin(p, scheme, B[None], C[None])
    new_B = scheme.update_B(p, state.B, state.C, state.terms)
    new_C = scheme.update_C(p, new_B, state.C, p.gram(new_B))
    B, C = naive_sweeps(name, problem.X, problem.D, B, C, 0.7, problem.stats.weights)
    np.testing.assert_allclose(new_B[0], B, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(new_C[0], C, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["partition", "exponential", "smooth"])
@pytest.mark.parametrize("name", CD)
def test_the_objective_never_rises_and_is_that_of_the_plain_scheme(name: str, kind: str) -> None:
    stats = small(kind).stats
    best = multistart(stats, name, 3, n_starts=4, n_iter=60, random_state=0, engine="numpy")
    assert np.diff(best.objectives, axis=1).max() <= 1e-12 * stats.sq_norm
    plain = METHODS[name.removeprefix("CD-")].scheme
    p = Problem.of(stats, plain)
    again = begin(p, plain, best.B[None], best.C[None])
    np.testing.assert_allclose(again.objective[0], best.objective[-1], rtol=1e-12)
