from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.optimize import linear_sum_assignment

from helpers.refusals import refused
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.simulate import MODALITIES, simulate_cohort


def between_share(X: np.ndarray) -> float:
    X = X.astype(np.float64)
    return float(np.sum((X - X.mean(axis=0)) ** 2) / np.sum(X**2))


def test_same_seed_same_bits_and_subjects_do_not_depend_on_their_number() -> None:
    many = simulate_cohort(n_subjects=70, mesh="fsaverage4", random_state=3)
    few = simulate_cohort(n_subjects=5, mesh="fsaverage4", random_state=3)
    assert_array_equal(many.X[:5], few.X)
    assert_array_equal(many.truth.loadings[:5], few.truth.loadings)  # type: ignore[union-attr]
    assert_array_equal(many.participants["age"][:5], few.participants["age"])
    other = simulate_cohort(n_subjects=5, mesh="fsaverage4", random_state=4)
    assert not np.array_equal(few.X, other.X)


@pytest.mark.slow
@pytest.mark.parametrize("modality", MODALITIES)
def test_values_are_positive_and_rarely_clipped(modality: str) -> None:
    cohort = simulate_cohort(modality=modality)
    assert cohort.X.dtype == np.float32
    assert cohort.X.min() > 0
    assert cohort.provenance["clipped_fraction"] < 0.01
    # of a hundred subjects only, so the share itself scatters
    assert between_share(cohort.X) == pytest.approx(0.165, rel=0.12)
    if modality == "reho":
        assert cohort.X.max() <= 1
    if modality == "alff":
        mean = cohort.X.mean(axis=0)
        assert mean.mean() > 1.1 * np.median(mean)


def test_real_variability_gives_real_thickness_values() -> None:
    cohort = simulate_cohort(variability=0.008)
    assert between_share(cohort.X) == pytest.approx(0.008, rel=0.12)
    assert cohort.provenance["clipped_fraction"] == 0
    low, high = np.percentile(cohort.X, [1, 99])
    assert 1.2 < low < 1.6
    assert 3.3 < high < 4.2


@pytest.mark.parametrize("noise", [0.0, 0.25, 0.5])
def test_noise_is_the_given_part_of_the_variance(noise: float) -> None:
    cohort = simulate_cohort(n_subjects=300, noise=noise, variability=0.05, mesh="fsaverage4")
    assert cohort.truth is not None
    signal = cohort.truth.loadings.astype(np.float64) @ cohort.truth.components
    residual = np.sum((cohort.X - signal) ** 2)
    total = np.sum((signal - signal.mean(axis=0)) ** 2) + residual
    assert residual / total == pytest.approx(noise, abs=0.03)


@settings(max_examples=15, deadline=None)
@given(
    k=st.integers(1, 20),
    hemisphere=st.sampled_from(["left", "right", "both"]),
    modality=st.sampled_from(sorted(MODALITIES)),
    seed=st.integers(0, 2**32),
)
def test_components_add_up_to_the_same_positive_map(
    k: int, hemisphere: str, modality: str, seed: int
) -> None:
    def total(k: int) -> np.ndarray:
        cohort = simulate_cohort(2, k, modality, hemisphere, seed, mesh="fsaverage3")  # type: ignore[arg-type]
        assert cohort.truth is not None
        assert cohort.truth.components.shape == (k, cohort.X.shape[1])
        assert cohort.truth.components.min() >= 0
        return cohort.truth.components.sum(axis=0)

    np.testing.assert_allclose(total(k), total(1), rtol=1e-5)


def test_both_hemispheres_share_most_components() -> None:
    cohort = simulate_cohort(n_subjects=2, hemisphere="both")
    assert cohort.truth is not None
    n = cohort.sites.n // 2
    left, right = (
        cohort.truth.components[:, :n].sum(axis=1),
        cohort.truth.components[:, n:].sum(axis=1),
    )
    assert (left[:8] > 0).all()
    assert (right[:8] > 0).all()
    assert_array_equal([left[9], right[8]], [0, 0])
    # a bilateral component lies at mirror places: same y and z, opposite x
    where = cohort.sites.coordinates
    for part in cohort.truth.components[:8]:
        one = part[:n] @ where[:n] / part[:n].sum()
        other = part[n:] @ where[n:] / part[n:].sum()
        cosine = one @ (other * [-1, 1, 1]) / np.linalg.norm(one) / np.linalg.norm(other)
        assert cosine > 0.9


def test_age_and_sex_act_on_their_components_only() -> None:
    cohort = simulate_cohort(n_subjects=400, mesh="fsaverage3")
    assert cohort.truth is not None
    male = np.asarray(cohort.participants["sex"]) == "M"
    age = np.asarray(cohort.participants["age"])
    with_age = [np.corrcoef(age, c)[0, 1] for c in cohort.truth.loadings.T]
    with_sex = [np.corrcoef(male, c)[0, 1] for c in cohort.truth.loadings.T]
    assert with_age[0] < -0.4
    assert with_sex[1] > 0.3
    assert np.abs(with_age[1:]).max() < 0.2
    assert np.abs(np.delete(with_sex, 1)).max() < 0.2
    assert age.min() >= 20
    assert age.max() <= 80


def test_it_is_labelled_as_simulated() -> None:
    cohort = simulate_cohort(n_subjects=3, mesh="fsaverage3", random_state=None)
    assert isinstance(cohort, Cohort)
    assert cohort.simulated
    assert json.loads(json.dumps(cohort.provenance))["simulated"] is True
    assert cohort.mask is None
    assert cohort.subjects == ("sub-0001", "sub-0002", "sub-0003")
    again = simulate_cohort(n_subjects=3, mesh="fsaverage3", random_state=cohort.provenance["seed"])
    assert_array_equal(cohort.X, again.X)


@pytest.mark.parametrize(
    ("about", "arguments"),
    [
        ("modality", {"modality": "volume"}),
        ("n_subjects", {"n_subjects": 0}),
        ("n_components", {"n_components": 0}),
        ("n_components", {"n_components": 2.5}),
        ("n_components", {"n_components": 51}),
        ("noise", {"noise": 1.0}),
        ("noise", {"noise": -0.1}),
        ("hemisphere", {"hemisphere": "lh"}),
        ("mesh", {"mesh": "fsaverage6"}),
        ("random_state", {"random_state": -1}),
        ("variability", {"variability": 0.0}),
        ("variability", {"variability": 0.6, "noise": 0.0}),
    ],
)
def test_wrong_arguments_are_named(about: str, arguments: dict[str, object]) -> None:
    with refused(about):
        simulate_cohort(**arguments)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_finds_the_truth_again() -> None:
    from sklearn.decomposition import NMF

    # a seed that the default variability was not chosen on
    cohort = simulate_cohort(random_state=12)
    assert cohort.truth is not None
    model = NMF(10, init="nndsvda", max_iter=300, tol=0, random_state=0)
    loadings = model.fit_transform(cohort.X)
    maps = np.corrcoef(model.components_, cohort.truth.components)[:10, 10:]
    weights = np.corrcoef(loadings.T, cohort.truth.loadings.T)[:10, 10:]
    rows, columns = linear_sum_assignment(-maps)
    assert maps[rows, columns].mean() > 0.9
    assert weights[rows, columns].mean() > 0.9
