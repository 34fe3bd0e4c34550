"""Agreement of halves: measures, splits, stability over starts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from helpers.coarse_cohorts import METHOD, gathered, three_components
from helpers.refusals import refused
from icofactor.assessment.selection.agreement import (
    adjusted_rand,
    agreement,
    consensus_matrix,
    cophenetic,
    deal,
    split_halves,
    stability,
    strata_of,
)
from icofactor.assessment.selection.data import Fitter


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_adjusted_rand_index_is_that_of_the_sites(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, w = rng.integers(k, size=30), rng.integers(k + 1, size=30), rng.integers(1, 5, size=30)
    expected = adjusted_rand_score(np.repeat(a, w), np.repeat(b, w))
    assert adjusted_rand(a, b, w) == pytest.approx(expected, abs=1e-12)
    assert adjusted_rand(a, a, w) == pytest.approx(1)


def test_the_same_maps_in_another_order_agree_wholly() -> None:
    rng = np.random.default_rng(0)
    maps = rng.random((4, 60))
    measures = agreement(maps, maps[[2, 0, 3, 1]], rng.integers(1, 9, 60))
    np.testing.assert_allclose(measures, 1, rtol=1e-12)


def test_sites_count_once_each() -> None:
    """Faces with three sites count as three faces with one."""
    rng = np.random.default_rng(0)
    a, b, w = rng.random((3, 20)), rng.random((3, 20)), rng.integers(1, 4, 20)
    spread = agreement(np.repeat(a, w, axis=1), np.repeat(b, w, axis=1), np.ones(w.sum()))
    np.testing.assert_allclose(agreement(a, b, w), spread, rtol=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(4, 60), st.integers(1, 4), st.integers(2, 5))
def test_parts_are_even_overall_and_within_strata(
    seed: int, n: int, n_strata: int, n_parts: int
) -> None:
    rng = np.random.default_rng(seed)
    strata = rng.integers(n_strata, size=n)
    parts = deal(strata, n_parts, rng)
    assert np.ptp(np.bincount(parts, minlength=n_parts)) <= 1
    for s in np.unique(strata):
        assert np.ptp(np.bincount(parts[strata == s], minlength=n_parts)) <= 1


def test_strata_are_combinations_and_numbers_are_cut_at_quartiles() -> None:
    people = {"sex": ["F", "M"] * 8, "age": np.arange(16.0), "site": ["a"] * 8 + ["b"] * 8}
    assert len(np.unique(strata_of(people, ["sex", "site"], 16))) == 4
    assert len(np.unique(strata_of(people, ["age"], 16))) == 4
    people["age"] = np.where(np.arange(16) < 2, np.nan, np.arange(16.0))
    assert len(np.unique(strata_of(people, ["age"], 16))) == 5
    assert not strata_of(people, [], 16).any()
    with refused("stratify"):
        strata_of(people, ["scanner"], 16)


def test_two_copies_of_the_same_subjects_agree_wholly() -> None:
    data = gathered(three_components()).coarse
    twice = data.with_means(np.vstack([data.means, data.means]))
    copies = split_halves(twice, Fitter(METHOD, 6, 0), [3], np.repeat([0, 1], len(data.means)), 7)[
        0
    ]
    assert copies[1] > 0.99 and copies[2] > 0.95
    halves = split_halves(data, Fitter(METHOD, 6, 0), [3], np.arange(48) % 2, 7)[0]
    assert halves[1] < copies[1]


def test_consensus_of_equal_labels_is_perfect_and_of_random_ones_is_not() -> None:
    labels = np.tile(np.arange(30) % 3, (5, 1))
    labels[1:] = (labels[1:] + 1) % 3  # other names, same parts
    perfect = consensus_matrix(labels)
    assert set(np.unique(perfect)) == {0.0, 1.0}
    assert cophenetic(perfect) == pytest.approx(1)
    random = consensus_matrix(np.random.default_rng(0).integers(3, size=(5, 30)))
    assert cophenetic(random) < 0.8
    assert cophenetic(np.ones((4, 4))) == 1


def test_starts_agree_on_clear_components() -> None:
    stabilities = stability(gathered(three_components()).coarse, Fitter(METHOD, 5, 0), 3)
    assert stabilities[0] > 0.95 and stabilities[1] > 0.9
