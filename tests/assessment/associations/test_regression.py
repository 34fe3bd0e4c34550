"""Regressions and their permutations, against R, statsmodels and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icofactor.assessment.associations.exchange import Exchange, freedman_lane, p_of, permuted
from icofactor.assessment.associations.regression import Groups, Regression
from icofactor.assessment.false_discovery import false_discovery

# the data of tests/reference/mixed_models.R
I = np.arange(1, 61)  # noqa: E741
PERSON = np.r_[np.repeat(np.arange(1, 13), 3), np.repeat(np.arange(13, 21), 2), np.arange(21, 29)]
AGE = 40 + 15 * np.sin(PERSON * 1.7) + 3 * np.cos(I * 2.3)
Y = (0.04 * AGE + 0.8 * (PERSON % 3 == 1) + 1.1 * np.sin(PERSON**2) + 0.7 * np.cos(I**2))[:, None]
X = np.column_stack([np.ones(60), AGE, PERSON % 3 == 1, PERSON % 3 == 2]).astype(float)
ARM = np.eye(4)[2:]
# estimate, standard error, degrees of freedom, t: lme4 1.1.31 and lmerTest 3.1.3
LMER = [
    (0.10822758814, 0.64394018284, 32.40237816, 0.1680708721),
    (0.03195156168, 0.01473372722, 35.29350540, 2.1686000562),
    (0.98813799222, 0.43193784609, 24.17390090, 2.2876856038),
    (0.42299660763, 0.44464376879, 23.90016866, 0.9513157213),
]
LMER_VARIANCES = (0.7406885781, 0.2428830998)
LMER_ARM = (2.65516292, 23.92793557)


def test_random_intercept_as_lme4() -> None:
    fit = Regression.fit(X, Y, Groups.of(PERSON))
    np.testing.assert_allclose(
        [fit.variance[0] * fit.ratio[0], fit.variance[0]], LMER_VARIANCES, rtol=1e-6
    )
    for L, (estimate, se, df, t) in zip(np.eye(4), LMER, strict=True):
        test = fit.test(L[None])
        np.testing.assert_allclose([test.estimate[0], test.se[0]], [estimate, se], rtol=1e-6)
        np.testing.assert_allclose(np.sqrt(test.F[0]), t, rtol=1e-6)
        np.testing.assert_allclose(test.df_residual[0], df, rtol=1e-4)
    joint = fit.test(ARM)
    np.testing.assert_allclose([joint.F[0], joint.df_residual[0]], LMER_ARM, rtol=1e-4)
    np.testing.assert_allclose(joint.F[0], LMER_ARM[0], rtol=1e-6)


def test_without_variance_between_groups_it_is_least_squares() -> None:
    rng = np.random.default_rng(1)
    y = rng.normal(size=(60, 5))
    groups = Groups.of(PERSON)
    y -= (groups.sums(y) / groups.sizes[:, None])[groups.codes]
    mixed, plain = Regression.fit(X, y, Groups.of(PERSON)), Regression.fit(X, y)
    assert not mixed.ratio.any()
    np.testing.assert_allclose(mixed.test(ARM).F, plain.test(ARM).F)
    assert Regression.fit(X, y, Groups.of(np.arange(60))).groups is None


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("L", [np.eye(4)[[1]], ARM, np.array([[0.0, 0, 1, -1]])])
def test_permutations_are_freedman_lane(L: np.ndarray, grouped: bool) -> None:
    """Brute force: reduced model, its residuals permuted and added back, the whole model fitted again."""
    groups = Groups.of(PERSON) if grouped else None
    fit = Regression.fit(X, Y, groups)
    exchange = Exchange(60, groups)
    statistics = permuted(freedman_lane(fit, L), exchange, 20, 3)[:, 0]
    V = np.eye(60) + fit.ratio[0] * (PERSON[:, None] == PERSON)
    size, axes = np.linalg.eigh(V)
    W = axes / np.sqrt(size) @ axes.T
    Xw, yw = W @ X, W @ Y[:, 0]
    free = np.linalg.svd(L)[2][len(L) :].T
    expected = Xw @ free @ np.linalg.lstsq(Xw @ free, yw, rcond=None)[0]
    for F, order in zip(statistics, next(exchange.batches(20, 3)), strict=True):
        drawn = expected + (yw - expected)[order]
        full = np.square(drawn - Xw @ np.linalg.lstsq(Xw, drawn, rcond=None)[0]).sum()
        reduced = np.square(
            drawn - Xw @ free @ np.linalg.lstsq(Xw @ free, drawn, rcond=None)[0]
        ).sum()
        np.testing.assert_allclose(F, (reduced - full) / len(L) / (full / 56), rtol=1e-8)


@given(st.lists(st.integers(0, 6), min_size=2, max_size=25), st.booleans(), st.integers(0, 99))
def test_permutations_keep_groups_together(labels: list[int], within: bool, seed: int) -> None:
    groups = Groups.of(np.array(labels))
    for order in Exchange(len(labels), groups, within).draw(5, np.random.default_rng(seed)):
        assert sorted(order) == list(range(len(labels)))
        for g in range(len(groups.sizes)):
            came_from = order[groups.codes == g]
            assert len(set(groups.codes[came_from])) == 1
            assert groups.sizes[groups.codes[came_from[0]]] == groups.sizes[g]
            assert within or list(came_from) == sorted(came_from)


def test_counts_of_permutations() -> None:
    groups = Groups.of(np.array([0, 0, 1, 1, 2]))
    assert np.isclose(np.exp(Exchange(5, groups).log_count), 2 * 2 * 2)
    assert np.isclose(np.exp(Exchange(5, groups, within=False).log_count), 2)
    assert np.isclose(np.exp(Exchange(5).log_count), 120)


def test_p_values() -> None:
    np.testing.assert_allclose(
        p_of(np.array([5.0, 1.0, np.nan]), np.array([[1.0] * 3, [9.0] * 3])), [2 / 3, 1, np.nan]
    )
    np.testing.assert_allclose(
        false_discovery(np.array([0.01, 0.04, np.nan, 0.03])), [0.03, 0.04, np.nan, 0.04]
    )
