"""Blocks of float32: what they give is what float64 gives, wherever the mean of the maps and their unit lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.problems import relative
from icofactor.factorization._lift import basis_of
from icofactor.factorization.statistics import Statistics
from icofactor.streaming import passes
from icofactor.streaming.blocks import Levelled, as_block, squares_of_sites
from icofactor.streaming.inspect import Inspector

N_SUBJECTS = 60


@pytest.fixture(scope="module")
def cohort() -> ico.Cohort:
    return ico.simulate_cohort(N_SUBJECTS, 3, mesh="fsaverage4", hemisphere="both", random_state=0)


@pytest.fixture
def both_types(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], tuple[Any, Any]]:
    """Call a function where blocks of float32 data are float32, and where they are float64."""

    def call(function: Callable[[], Any]) -> tuple[Any, Any]:
        answers = []
        for small in (0, 2**60):
            monkeypatch.setattr(passes, "SMALL_BYTES", small)
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
    kind: str, mean: float, cohort: ico.Cohort, both_types: Callable[..., tuple[Any, Any]]
) -> None:
    """Sums and variance differ by 1e-6 of what subjects differ by, though the mean is 10,000 times as large."""
    X = standardized(cohort, mean, 0.1).T
    design = ico.Design(cohort.sites, kind, level=1, sigma=0.2)

    def gather() -> tuple[Statistics, Inspector]:
        inspector = Inspector(*X.shape)
        return Statistics.from_data(X, design, inspector=inspector), inspector

    (found, seen), (expected, known) = both_types(gather)
    deviation = expected.L - expected.L.mean(axis=0)
    assert np.abs(found.L - expected.L).max() <= 1e-6 * np.abs(deviation).max()
    assert found.sq_norm == pytest.approx(expected.sq_norm, rel=1e-7)
    np.testing.assert_allclose(found.energy, expected.energy, rtol=1e-7)
    np.testing.assert_allclose(seen.site_variance, known.site_variance, rtol=1e-6)
    np.testing.assert_allclose(seen.mean, known.mean, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(seen.low, known.low)
    np.testing.assert_array_equal(seen.high, known.high)


def test_loadings_lose_nothing_to_the_mean(
    cohort: ico.Cohort, both_types: Callable[..., tuple[Any, Any]]
) -> None:
    X = standardized(cohort, 1000.0, 0.1).T
    W = np.random.default_rng(0).random((len(X), 4))
    found, expected = both_types(lambda: basis_of(X, W).WX)
    deviation = expected - expected.mean(axis=1, keepdims=True)
    assert 0 < np.abs(found - expected).max() <= 1e-6 * np.abs(deviation).max()


@pytest.mark.parametrize(
    ("method", "center"),
    [
        ("parts", "auto"),
        ("parts", "zscore"),
        ("parts", "none"),
        ("CD-PNNMF", "auto"),
        ("DL", "auto"),
        ("PPNMF", "auto"),
    ],
)
def test_fits_are_those_of_float64(
    method: str, center: str, cohort: ico.Cohort, both_types: Callable[..., tuple[Any, Any]]
) -> None:
    settings = {
        "method": method,
        "center": center,
        "level": 1,
        "n_starts": 2,
        "polish": 2,
        "random_state": 0,
    }
    found, expected = both_types(lambda: ico.CorticalFactorization(3, **settings).fit(cohort))
    assert relative(found.components_, expected.components_) < 1e-5
    assert relative(found.loadings_, expected.loadings_) < 1e-5
    assert found.explained_ == pytest.approx(expected.explained_, abs=1e-6)
    assert (found.components_ != expected.components_).any(), "blocks were float32"


@pytest.mark.parametrize("method", ["parts", "LE-PPNMF"])
def test_transform_of_maps_far_from_zero(
    method: str, cohort: ico.Cohort, both_types: Callable[..., tuple[Any, Any]]
) -> None:
    X = standardized(cohort, 1e4, 1.0)
    settings = {"method": method, "center": "none", "level": 1, "n_starts": 1, "random_state": 0}
    model = ico.CorticalFactorization(3, mesh="fsaverage4", hemi="both", **settings).fit(X[:40])
    found, expected = both_types(lambda: model.transform(X[40:]))
    assert (
        0 < np.abs(found - expected).max() <= 1e-6 * np.abs(expected - expected.mean(axis=0)).max()
    )


@pytest.mark.parametrize("unit", [1e-28, 1e-20, 1e20, np.nan, np.inf])
def test_values_that_float32_cannot_square_stay_in_float64(unit: float) -> None:
    x = np.ones((3, 4), np.float32)
    assert as_block(x, single=True).dtype == np.float32
    x[1, 2] = unit
    expected = np.float64 if unit > 1 or not np.isfinite(unit) else np.float32
    assert as_block(x, single=True).dtype == expected
    assert as_block(np.full((3, 4), unit, np.float32), single=True).dtype == np.float64


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("f2", "f4"),
        ("f4", "f4"),
        (">f4", "f4"),
        ("i2", "f4"),
        ("u1", "f4"),
        ("i4", "f8"),
        ("f8", "f8"),
    ],
)
def test_types_of_blocks(stored: str, expected: str) -> None:
    x = np.arange(12).reshape(3, 4).astype(stored)
    for values in (x, np.asfortranarray(x), x[:, ::2]):
        block = as_block(values, single=True)
        assert block.dtype == expected and block.flags.c_contiguous
        assert as_block(values).dtype == np.float64
        np.testing.assert_array_equal(block, values)


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
