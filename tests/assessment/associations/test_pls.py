"""Behavioural partial least squares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import icofactor as ico
from helpers.refusals import refused
from icofactor.errors import ArgumentError

N = 70
RNG = np.random.default_rng(2)
TRAIT = RNG.normal(size=N)
X = RNG.normal(size=(N, 5)) + np.outer(TRAIT, [1.0, 0, -1, 0, 0])
BEHAVIOUR: dict[str, Any] = {
    "participant_id": [f"sub-{i}" for i in range(N)],
    "memory": TRAIT + 0.7 * RNG.normal(size=N),
    "speed": 30 - TRAIT + 0.7 * RNG.normal(size=N),
    "height": RNG.normal(size=N),
}


@pytest.fixture(scope="module")
def latent() -> Any:
    return ico.pls(X, BEHAVIOUR, n_permutations=499, n_bootstrap=300, n_splits=50)


def test_as_scikit_learn(latent: Any) -> None:
    from sklearn.cross_decomposition import PLSSVD

    Y = np.column_stack([BEHAVIOUR[name] for name in ("memory", "speed", "height")])
    theirs = PLSSVD(n_components=3, scale=True).fit(X, Y)
    a, b = theirs.transform(X, Y)
    singular = np.sqrt(np.square(a.T @ b).diagonal()) / (N - 1)
    np.testing.assert_allclose(latent.singular_values, singular, rtol=1e-9)
    np.testing.assert_allclose(
        np.abs(latent.component_weights), np.abs(theirs.x_weights_), atol=1e-9
    )
    np.testing.assert_allclose(np.abs(latent.measure_weights), np.abs(theirs.y_weights_), atol=1e-9)
    np.testing.assert_allclose(np.abs(latent.component_scores), np.abs(a), atol=1e-9)


def test_a_planted_pattern_is_found(latent: Any) -> None:
    assert latent.p[0] < 0.01 < 0.05 < latent.p[1]
    assert latent.explained[0] > 0.8 and np.isclose(latent.explained.sum(), 1)
    assert (np.abs(latent.component_ratios[:, 0]) > 3).tolist() == [True, False, True, False, False]
    assert (np.abs(latent.measure_ratios[:, 0]) > 3).tolist() == [True, True, False]
    low, high = latent.measure_interval[:, :, 0]
    inside = (low <= latent.measure_correlations[:, 0]) & (
        latent.measure_correlations[:, 0] <= high
    )
    assert inside.all() and ((low > 0) | (high < 0)).tolist() == [True, True, False]
    assert (
        latent.component_reproducibility[0] > 0.8 and latent.component_reproducibility_p[0] < 0.05
    )
    assert latent.measure_reproducibility[0] > 0.8
    assert latent.correlation[0] > 0.5


def test_tables_and_figure(latent: Any) -> None:
    assert latent.table["latent_variable"].tolist() == [1, 2, 3]
    assert len(latent.variables["weight"]) == 3 * (5 + 3)
    assert len(latent.plot().axes) == 2
    with pytest.raises(ArgumentError):
        latent.plot(4)


def test_resamples_and_permutations_can_be_left_out() -> None:
    latent = ico.pls(X, BEHAVIOUR, n_permutations=0, n_bootstrap=0)
    assert np.isnan(latent.p).all() and np.isnan(latent.component_ratios).all()
    assert latent.plot() is not None


@pytest.mark.slow
def test_p_is_uniform_where_there_is_nothing() -> None:
    """Also for people with three scans each, whose behaviour is one value a person."""
    alone, grouped = [], []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        settings = {"n_permutations": 199, "n_bootstrap": 0, "n_splits": 0, "random_state": seed}
        behaviour = {"a": rng.normal(size=30), "b": rng.normal(size=30)}
        alone.append(ico.pls(rng.normal(size=(30, 4)), behaviour, **settings).p[0])
        person = np.repeat(np.arange(15), 3)
        loadings = rng.normal(size=(15, 4))[person] + rng.normal(size=(45, 4))
        behaviour = {"participant_id": person, "a": rng.normal(size=15)[person]}
        grouped.append(ico.pls(loadings, behaviour, **settings).p[0])
    assert stats.kstest(alone, "uniform").pvalue > 0.01
    assert stats.kstest(grouped, "uniform").pvalue > 0.01


@pytest.mark.parametrize("memory", [["x"] * N, [1.0] * N, [None, *range(1, N)]])
def test_bad_behaviour(memory: list[Any]) -> None:
    with refused("behaviour"):
        ico.pls(X, {**BEHAVIOUR, "memory": memory})


def test_missing_measures_can_be_skipped() -> None:
    gaps = {**BEHAVIOUR, "memory": [None, *BEHAVIOUR["memory"][1:]]}
    latent = ico.pls(X, gaps, n_permutations=0, n_bootstrap=0, missing_covariates="skip")
    assert len(latent.rows) == N - 1
    with pytest.raises(ArgumentError):
        ico.pls(X, {"participant_id": range(N)})


def test_too_few_permutations_are_refused() -> None:
    person = np.repeat(np.arange(7), [2, 3, 4, 5, 6, 7, 8])
    behaviour = {"participant_id": person, "trait": TRAIT[person]}
    with refused("groups"):
        ico.pls(X[:35], behaviour)
    assert np.isnan(ico.pls(X[:35], behaviour, n_permutations=0, n_bootstrap=0).p).all()


def test_what_the_fit_took_out_is_said() -> None:
    cohort = ico.simulate_cohort(24, 2, mesh="fsaverage3", random_state=0)
    adjusted = ico.Covariates.fit(cohort, ["age"], nonnegative=False).apply(cohort)
    model = ico.CorticalFactorization(2, n_starts=2, level=1, n_iter=50).fit(adjusted)
    latent = ico.pls(
        model, {"age": cohort.participants["age"]}, n_permutations=0, n_bootstrap=0, n_splits=0
    )
    assert len(latent.notes) == 1
