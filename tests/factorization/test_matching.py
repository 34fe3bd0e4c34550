"""match_components: pairs by correlation of maps."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import icofactor as ico
from helpers.refusals import refused


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_a_shuffled_and_rescaled_copy_is_put_back(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    maps = rng.standard_normal((k, 50))
    order = rng.permutation(k)
    match = ico.match_components(
        maps, maps[order] * rng.uniform(0.1, 10, (k, 1)) + rng.uniform(-5, 5, (k, 1))
    )
    np.testing.assert_array_equal(match.a, np.arange(k))
    np.testing.assert_array_equal(order[match.b], np.arange(k))
    np.testing.assert_allclose(match.similarity, 1, rtol=1e-9)
    assert match.mean == pytest.approx(1)


def test_similarity_is_the_correlation() -> None:
    """The smaller set is matched whole."""
    rng = np.random.default_rng(0)
    a, b = rng.random((3, 40)), rng.random((5, 40))
    match = ico.match_components(a, b)
    assert len(match.a) == 3
    for i, j, r in zip(match.a, match.b, match.similarity, strict=True):
        assert r == pytest.approx(np.corrcoef(a[i], b[j])[0, 1])


def test_the_best_pairs_together_not_one_by_one() -> None:
    """Taking the best pair first would leave a bad one: the sum of correlations decides."""
    e = np.eye(4) - 0.25
    a = np.array([e[0], e[1]])
    b = np.array([e[0] + 0.9 * e[1], e[0]])
    match = ico.match_components(a, b)
    np.testing.assert_array_equal(match.b, [1, 0])


@pytest.fixture(scope="module")
def two_meshes() -> list[ico.CorticalFactorization]:
    """The same three components, fitted on fsaverage4 and fsaverage3, both hemispheres."""
    fine = ico.simulate_cohort(30, 3, mesh="fsaverage4", random_state=0, hemisphere="both")
    coarse_sites = np.concatenate(
        [half * 2562 + np.arange(642) for half in (0, 1)]
    )  # fsaverage3 is fsaverage4's first vertices
    coarse = ico.Cohort(
        fine.X[:, coarse_sites],
        fine.subjects,
        ico.Sites.named("fsaverage3", hemi="both"),
        hemisphere="both",
    )
    return [
        ico.CorticalFactorization(3, n_starts=2, level=1, tol=1e-3).fit(cohort)
        for cohort in (fine, coarse)
    ]


def test_fits_on_different_meshes_of_fsaverage(two_meshes: list[ico.CorticalFactorization]) -> None:
    fine, coarse = two_meshes
    down, up = ico.match_components(coarse, fine), ico.match_components(fine, coarse)
    np.testing.assert_array_equal(down.b[up.b], np.arange(3))
    assert down.mean > 0.95 and up.mean > 0.9
    # the sites of fsaverage3 are some of fsaverage4's: nothing is between them
    coarse_sites = np.concatenate([half * 2562 + np.arange(642) for half in (0, 1)])
    by_hand = ico.match_components(coarse.components_, fine.components_[:, coarse_sites])
    np.testing.assert_allclose(down.similarity, by_hand.similarity, rtol=1e-12)


def test_masked_sites_do_not_count(two_meshes: list[ico.CorticalFactorization]) -> None:
    model, _ = two_meshes
    masked = copy.copy(model)
    masked.mask_ = np.arange(model.sites_.n) % 5 > 0
    masked.components_ = np.where(masked.mask_, model.components_, 0.0)
    assert ico.match_components(model, masked).mean == pytest.approx(1, abs=1e-12)
    masked.mask_ = np.zeros(model.sites_.n, dtype=bool)
    with refused("b"):
        ico.match_components(model, masked)


def test_fits_that_cannot_be_compared(two_meshes: list[ico.CorticalFactorization]) -> None:
    model, _ = two_meshes
    one_sided, rotated_model = copy.copy(model), copy.copy(model)
    one_sided.hemi_ = "left"
    with refused("b"):
        ico.match_components(model, one_sided)
    rotated = np.roll(model.sites_.coordinates, 1, axis=1)
    rotated_model.sites_ = replace(model.sites_, coordinates=rotated.copy(), name=None)
    with refused("b"):
        ico.match_components(model, rotated_model)


def test_a_constant_map_matches_nothing() -> None:
    maps = np.random.default_rng(0).standard_normal((2, 30))
    match = ico.match_components(np.vstack([maps[0], np.ones(30)]), maps)
    assert match.similarity[1] == 0


@pytest.mark.parametrize(
    ("a", "b", "argument"),
    [
        (np.ones((2, 3)), np.ones((2, 4)), "b"),
        (np.ones(3), np.ones((2, 3)), "a"),
        (np.ones((2, 3)), np.full((2, 3), np.nan), "b"),
    ],
)
def test_what_cannot_be_matched(a: np.ndarray, b: np.ndarray, argument: str) -> None:
    with refused(argument):
        ico.match_components(a, b)
