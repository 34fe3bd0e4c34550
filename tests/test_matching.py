"""match_components: pairs by correlation of maps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import icofactor as ico


@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_a_shuffled_and_rescaled_copy_is_put_back(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    maps = rng.standard_normal((k, 50))
    order = rng.permutation(k)
    match = ico.match_components(maps, maps[order] * rng.uniform(0.1, 10, (k, 1)) + rng.uniform(-5, 5, (k, 1)))
    np.testing.assert_array_equal(match.a, np.arange(k))
    np.testing.assert_array_equal(order[match.b], np.arange(k))
    np.testing.assert_allclose(match.similarity, 1, rtol=1e-9)
    assert match.mean == pytest.approx(1)


def test_similarity_is_the_correlation() -> None:
    a, b = np.random.default_rng(0).random((2, 3, 40))
    match = ico.match_components(a, b)
    for i, j, r in zip(match.a, match.b, match.similarity, strict=True):
        assert r == pytest.approx(np.corrcoef(a[i], b[j])[0, 1])


def test_the_best_pairs_together_not_one_by_one() -> None:
    """Taking the best pair first would leave a bad one: the sum of correlations decides."""
    e = np.eye(4) - 0.25
    a = np.array([e[0], e[1]])
    b = np.array([e[0] + 0.9 * e[1], e[0]])
    match = ico.match_components(a, b)
    np.testing.assert_array_equal(match.b, [1, 0])


@pytest.mark.parametrize(("n_a", "n_b"), [(2, 5), (5, 2)])
def test_the_smaller_set_is_matched_whole(n_a: int, n_b: int) -> None:
    maps = np.random.default_rng(0).standard_normal((5, 30))
    match = ico.match_components(maps[:n_a], maps[:n_b])
    np.testing.assert_array_equal(match.a, [0, 1])
    np.testing.assert_array_equal(match.b, [0, 1])


def test_models_and_arrays(recwarn: pytest.WarningsRecorder) -> None:
    cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3", random_state=0)
    model = ico.CorticalFactorization(3, n_starts=2, tol=1e-3).fit(cohort)
    np.testing.assert_array_equal(ico.match_components(model, model.components_).b, np.arange(3))
    assert not len(recwarn)


def test_a_constant_map_matches_nothing() -> None:
    maps = np.random.default_rng(0).standard_normal((2, 30))
    match = ico.match_components(np.vstack([maps[0], np.ones(30)]), maps)
    assert match.similarity[1] == 0


@pytest.mark.parametrize(
    ("a", "b", "says"),
    [
        (np.ones((2, 3)), np.ones((2, 4)), "a and b must lie on the same sites; found 3 and 4"),
        (np.ones(3), np.ones((2, 3)), "a must be a fitted model or an array of components × sites"),
        (np.ones((2, 3)), np.full((2, 3), np.nan), "b holds NaN or infinite values"),
    ],
)
def test_what_cannot_be_matched(a: np.ndarray, b: np.ndarray, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ico.match_components(a, b)
