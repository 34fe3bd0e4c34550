"""Blocks of float32: what they give is what float64 gives, wherever the mean of the maps and their unit lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.problems import relative
from icofactor.factorization.statistics import Statistics
from icofactor.maps import maps
from icofactor.maps.blocks import Levelled, as_block, squares_of_sites
from icofactor.preprocessing.summary import Summary

N_SUBJECTS = 60
BothTypes = Callable[[Callable[[], Any]], tuple[Any, Any]]


@pytest.fixture(scope="module")
def both_sides() -> ico.Cohort:
    return ico.simulate_cohort(N_SUBJECTS, 3, mesh="fsaverage4", hemisphere="both", random_state=0)


@pytest.fixture
def both_types(monkeypatch: pytest.MonkeyPatch) -> BothTypes:
    """Call a function where blocks of float32 data are float32, and where they are float64."""

    def call(function: Callable[[], Any]) -> tuple[Any, Any]:
        answers = []
        for small in (0, 2**60):
            monkeypatch.setattr(maps, "SMALL_BYTES", small)
            answers.append(function())
        return answers[0], answers[1]

    return call


def standardized(cohort: ico.Cohort, mean: float, spread: float) -> np.ndarray:
    """Maps of this mean and this standard deviation between subjects, in float32."""
    X = np.asarray(cohort.X, np.float64)
    return (mean + spread * (X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)


@pytest.mark.parametrize("mean", [0.0, 2.5, 1000.0])
@pytest.mark.parametrize("kind", ["partition", "exponential"])
def test_statistics_lose_nothing_to_the_mean(
    kind: str, mean: float, both_sides: ico.Cohort, both_types: BothTypes
) -> None:
    """Sums and variance differ by 1e-6 of what subjects differ by, though the mean is 10,000 times as large."""
    X = standardized(both_sides, mean, 0.1).T
    design = ico.Design(both_sides.sites, kind, level=1, sigma=0.2)

    def gather() -> tuple[Statistics, Summary]:
        summary = Summary(*X.shape)
        return Statistics.from_data(X, design, accept_block=summary.add), summary

    (single, summary), (double, expected) = both_types(gather)
    deviation = double.L - double.L.mean(axis=0)
    assert np.abs(single.L - double.L).max() <= 1e-6 * np.abs(deviation).max()
    np.testing.assert_allclose(single.energy, double.energy, rtol=1e-7)
    np.testing.assert_allclose(summary.site_variance, expected.site_variance, rtol=1e-6)
    np.testing.assert_allclose(summary.mean, expected.mean, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(summary.low, expected.low)
    np.testing.assert_array_equal(summary.high, expected.high)


@pytest.mark.parametrize(
    ("method", "center"), [("parts", "auto"), ("parts", "zscore"), ("CD-PNNMF", "auto")]
)
def test_fits_are_those_of_float64(
    method: str, center: str, both_sides: ico.Cohort, both_types: BothTypes
) -> None:
    model = ico.CorticalFactorization(3, method=method, center=center, level=1, n_starts=2)
    fit = lambda: model.fit(both_sides).components_.copy()
    single, double = both_types(fit)
    assert 0 < relative(single, double) < 1e-5


@pytest.mark.parametrize("method", ["parts", "LE-PPNMF"])
def test_transform_of_maps_far_from_zero(
    method: str, both_sides: ico.Cohort, both_types: BothTypes
) -> None:
    X = standardized(both_sides, 1e4, 1.0)
    settings: dict[str, Any] = {"method": method, "center": "none", "level": 1, "n_starts": 1}
    model = ico.CorticalFactorization(3, mesh="fsaverage4", hemi="both", **settings).fit(X[:40])
    single, double = both_types(lambda: model.transform(X[40:]))
    largest = np.abs(double - double.mean(axis=0)).max()
    assert 0 < np.abs(single - double).max() <= 1e-6 * largest


@pytest.mark.parametrize(
    ("unit", "expected"),
    [(1e-28, "f4"), (1e-20, "f4"), (1e20, "f8"), (np.nan, "f8"), (np.inf, "f8")],
)
def test_values_that_float32_cannot_square_stay_in_float64(unit: float, expected: str) -> None:
    x = np.ones((3, 4), np.float32)
    x[1, 2] = unit
    assert as_block(x, single=True).dtype == expected
    assert as_block(np.full((3, 4), unit, np.float32), single=True).dtype == np.float64


def test_sums_of_many_subjects_are_exact_to_1e_7() -> None:
    x = (1000 + 0.1 * np.random.default_rng(0).standard_normal((5, 50_000))).astype(np.float32)
    exact = x.astype(np.float64)
    levelled = Levelled.of(x)
    mean, variance = levelled.moments()
    np.testing.assert_allclose(variance, exact.var(axis=1) * x.shape[1], rtol=1e-6)
    np.testing.assert_allclose(mean, exact.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(squares_of_sites(x), np.square(exact).sum(axis=1), rtol=1e-7)
    C = np.random.default_rng(1).standard_normal((3, x.shape[1]))
    scale = np.linalg.norm(exact - exact.mean(axis=1, keepdims=True)) * np.linalg.norm(C)
    assert np.abs(levelled.times(C) - exact @ C.T).max() <= 1e-7 * scale
