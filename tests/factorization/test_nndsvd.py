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


@pytest.fixture(scope="module")
def stats(X: np.ndarray) -> ico.Statistics:
    return ico.Statistics.from_data(X, ico.Design(SITES, level=2))


def test_it_is_scikit_learns_where_every_site_is_a_face(
    X: np.ndarray, stats: ico.Statistics
) -> None:
    assert (stats.counts == 1).all()
    B, C = nndsvd(stats.L, stats.K.diagonal(), 5)
    H, W = _initialize_nmf(X.T, 5, init="nndsvd", random_state=0)
    order = ico.Design(SITES, level=2).matrix  # sites × faces
    np.testing.assert_allclose(
        order @ B, W.T, atol=2e-6
    )  # scikit-learn sets values under 1e-6 to zero
    np.testing.assert_allclose(C, H.T, atol=2e-6)


def test_coarse_faces_weigh_by_their_size(X: np.ndarray) -> None:
    """On coarse faces it is NNDSVD of the X whose sites have the mean of their face."""
    design = ico.Design(SITES, level=1)
    stats = ico.Statistics.from_data(X, design)
    D = design.matrix.toarray()
    B, C = nndsvd(stats.L, stats.K.diagonal(), 4)
    H, W = _initialize_nmf((D @ (stats.L / stats.counts).T).T, 4, init="nndsvd", random_state=0)
    np.testing.assert_allclose(D @ B, W.T, atol=2e-6)
    np.testing.assert_allclose(C, H.T, atol=2e-6)


@pytest.mark.parametrize("method", list(ico.METHODS))
@pytest.mark.parametrize("kind", ["partition", "smooth"])
def test_every_method_begins_there(X: np.ndarray, method: str, kind: str) -> None:
    design = ico.Design(SITES, kind=kind, level=1, sigma=None if kind == "partition" else 0.1)
    stats = ico.Statistics.from_data(X, design)
    one, again = (ico.solve(stats, method, 3, start="nndsvd", n_iter=5) for _ in range(2))
    np.testing.assert_array_equal(one.B, again.B)  # nothing is drawn
    assert np.isfinite(one.objective).all() and one.objective[-1] < one.objective[0]
    start = nndsvd(stats.L, np.asarray(stats.K.sum(axis=1)).ravel(), 3)
    assert all((factor >= 0).all() and factor.any() for factor in start)


def test_deviations_have_one_too(X: np.ndarray) -> None:
    stats = ico.Statistics.from_data(X - X.mean(axis=1, keepdims=True), ico.Design(SITES, level=1))
    solution = ico.solve(stats, "parts", 4, start="nndsvd", n_iter=20)
    assert (solution.B >= 0).all() and solution.objective[-1] < solution.objective[0]


def test_what_is_wrong_is_refused(stats: ico.Statistics) -> None:
    for start in ("svd", "ab"):
        with refused("start", f"found '{start}'"):
            ico.solve(stats, "PNNMF", 3, start=start)  # type: ignore[arg-type]
    with refused("n_components", "at most 15"):
        nndsvd(stats.L, stats.K.diagonal(), 16)
    with refused("n_components"):
        ico.solve(stats, "PNNMF", start="nndsvd")
