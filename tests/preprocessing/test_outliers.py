"""Limiting outliers: the bound, the subjects, the mask, the record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from icofactor.cohort.simulate import simulate_cohort
from icofactor.preprocessing.outliers import limit_outliers


def test_bound_is_that_of_each_subject() -> None:
    rng = np.random.default_rng(0)
    Xs = rng.normal(size=(3, 2001)) * [[1.0], [10.0], [0.1]] + [[0.0], [50.0], [2.0]]
    Xs[:, :2] = [1e4, -1e4]
    clipped = limit_outliers(Xs)
    for row, limited in zip(Xs, clipped, strict=True):
        middle = np.median(row)
        reach = 4.4478 * np.median(np.abs(row - middle))
        within = np.abs(row - middle) <= reach
        assert np.array_equal(limited[within], row[within])
        assert abs(limited[0] - (middle + reach)) < 1e-9
        assert abs(limited[1] - (middle - reach)) < 1e-9
    assert np.array_equal(limit_outliers(Xs[1:2]), clipped[1:2])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(0.01, 100), shift=st.floats(-10, 10))
def test_follows_units_and_only_pulls_inwards(seed: int, scale: float, shift: float) -> None:
    Xs = np.random.default_rng(seed).standard_t(2, size=(2, 101))
    clipped = limit_outliers(Xs)
    assert np.abs(limit_outliers(scale * Xs + shift) - (scale * clipped + shift)).max() < 1e-9 * (
        1 + scale
    )
    middle = np.median(Xs, axis=1, keepdims=True)
    assert np.all(np.abs(clipped - middle) <= np.abs(Xs - middle))
    assert np.array_equal(np.median(clipped, axis=1, keepdims=True), middle)


def test_mask_and_medial_wall() -> None:
    Xs = np.random.default_rng(1).uniform(2, 3, size=(2, 300)).astype(np.float32)
    mask = np.arange(300) < 120
    Xs[:, ~mask] = 0
    Xs[:, 5] = 20
    with refused("Xs"):
        limit_outliers(Xs)
    clipped = limit_outliers(Xs, mask=mask)
    assert clipped.dtype == np.float32
    assert np.all(clipped[:, ~mask] == 0)
    assert np.all((clipped[:, 5] > 3) & (clipped[:, 5] < 5))
    Xs[:, -1] = np.nan
    assert np.array_equal(limit_outliers(Xs, mask=mask)[:, :-1], clipped[:, :-1])


def test_cohort_keeps_account() -> None:
    simulated = simulate_cohort(n_subjects=3, mesh="fsaverage3", random_state=0)
    X = simulated.X.copy()
    X[1, 7] = 500
    mask = np.arange(642) != 9
    cohort = replace(simulated, X=X, mask=mask, truth=None)
    clipped = limit_outliers(limit_outliers(cohort), n_deviations=3.0)
    assert np.array_equal(clipped.X, limit_outliers(limit_outliers(X, mask=mask), 3.0, mask=mask))
    assert X[1, 7] == cohort.X[1, 7] == 500
    first, second = clipped.provenance["preprocessing"]
    assert first["step"] == second["step"] == "limit_outliers"
    assert (first["n_deviations"], second["n_deviations"]) == (4.4478, 3.0)
    assert first["n_values_limited"] >= 1
    assert clipped.provenance["seed"] == simulated.provenance["seed"]


def test_bad_input() -> None:
    Xs = np.ones((2, 5))
    assert np.array_equal(limit_outliers(Xs), Xs)
    with refused("Xs"):
        limit_outliers(Xs[0])
    with refused("n_deviations"):
        limit_outliers(Xs, 0)
    Xs[1, 2] = np.nan
    with refused("Xs"):
        limit_outliers(Xs)
