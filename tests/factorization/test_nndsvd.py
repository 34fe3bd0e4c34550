"""The start "nndsvd": scikit-learn's on the whole X where every site is a face of its own, and the same each time."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition._nmf import _initialize_nmf

import icofactor as ico
from helpers.problems import positive_data
from helpers.refusals import refused
from icofactor.factorization.starts import nndsvd

SITES = ico.Sites.icosphere(2, on="faces")


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return positive_data(SITES.coordinates, 15)


@pytest.mark.parametrize("method", list(ico.METHODS))
@pytest.mark.parametrize("kind", ["partition", "smooth"])
def test_every_method_begins_there(X: np.ndarray, method: str, kind: str) -> None:
    design = ico.Design(SITES, kind=kind, level=1, sigma=None if kind == "partition" else 0.1)
    stats = ico.Statistics.from_data(X, design)
    solution, again = (ico.solve(stats, method, 3, start="nndsvd", n_iter=5) for _ in range(2))
    np.testing.assert_array_equal(solution.B, again.B)  # nothing is drawn
    assert np.isfinite(solution.objective).all() and solution.objective[-1] < solution.objective[0]
    start = nndsvd(stats.L, np.asarray(stats.K.sum(axis=1)).ravel(), 3)
    assert all((factor >= 0).all() and factor.any() for factor in start)


@pytest.mark.parametrize("level", [1, 2])
def test_it_is_scikit_learns_of_the_means_of_faces(X: np.ndarray, level: int) -> None:
    """At level 2 every site is a face of its own."""
    design = ico.Design(SITES, level=level)
    stats = ico.Statistics.from_data(X, design)
    D = design.matrix.toarray()
    B, C = nndsvd(stats.L, stats.K.diagonal(), 5)
    means = D @ (stats.L / stats.counts).T
    H, W = _initialize_nmf(means.T, 5, init="nndsvd", random_state=0)
    # scikit-learn sets values under 1e-6 to zero.
    np.testing.assert_allclose(D @ B, W.T, atol=2e-6)
    np.testing.assert_allclose(C, H.T, atol=2e-6)


def test_more_components_than_singular_values_are_refused(X: np.ndarray) -> None:
    stats = ico.Statistics.from_data(X, ico.Design(SITES, level=2))
    for n_components in (16, None):
        with refused("n_components"):
            ico.solve(stats, "PNNMF", n_components, start="nndsvd")
