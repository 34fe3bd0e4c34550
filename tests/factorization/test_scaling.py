"""Order, scale and sign in which components are reported."""

from __future__ import annotations

import numpy as np

from icofactor.factorization.scaling import canonical
from icofactor.factorization.schemes import SCHEMES


def test_components_are_ordered_by_the_variance_of_the_deviations() -> None:
    rng = np.random.default_rng(0)
    W, C = rng.random((20, 3)), rng.random((3, 10)) * np.array([[100.0], [1.0], [10.0]])
    deviations = C * np.array([[1e-6], [1.0], [1.0]])
    weights = rng.random(20)
    reported = canonical(W, C, deviations, SCHEMES["PNNMF"], weights)
    assert reported.order.tolist() == [2, 1, 0]
    expected = (weights @ W**2) * (deviations**2).sum(axis=1)
    np.testing.assert_allclose(reported.variance, expected[reported.order])
    np.testing.assert_allclose(reported.loadings @ reported.components, (W @ C).T)
    np.testing.assert_allclose((reported.loadings**2).mean(axis=0), 1.0)
