"""Selection with centred data: parts, deviations and z-scores of every half's own subjects."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

import icofactor as ico
from helpers.coarse_cohorts import (
    SMALL,
    heldout_errors,
    smooth_noise,
    three_components,
    with_X,
)
from icofactor.assessment.selection.agreement import (
    agreement,
    deal_thirds,
    stability_coefficient,
    third_people,
)
from icofactor.assessment.selection.choose import choose_n_components
from icofactor.assessment.selection.data import Coarse, Cohorts, Fitter, gather
from icofactor.assessment.selection.heldout import heldout_full
from icofactor.factorization._multistart import multistart
from icofactor.factorization.methods import method_named

RANK = 3
fold = np.arange(48) % 4


def coarse(center: str = "mean", rows: np.ndarray | None = None) -> Coarse:
    cohort = three_components()
    subset = cohort if rows is None else with_X(cohort, cohort.X, rows)
    return gather(subset, 1, method_named("parts"), center=center).coarse


def changed(data: Coarse, subjects: np.ndarray, value: float) -> Coarse:
    means = data.means.copy()
    means[subjects] = value
    return data.with_means(means)


@pytest.mark.parametrize("center", ["mean", "zscore"])
def test_every_fit_is_centred_on_its_own_subjects(center: str) -> None:
    """Others may hold anything: what the fit sees keeps its bits, and is that of a cohort without them."""
    data, train = coarse(center), np.flatnonzero(fold != 1)
    centred = data.centred(train)
    np.testing.assert_allclose(centred.means[train].mean(axis=0), 0, atol=1e-12)
    if center == "zscore":
        np.testing.assert_allclose(centred.means[train].std(axis=0, ddof=1), 1, rtol=1e-12)
    poisoned = changed(data, np.flatnonzero(fold == 1), np.nan).centred(train)
    np.testing.assert_array_equal(poisoned.subset(train).L, centred.subset(train).L)
    alone = coarse(center, train).centred(np.arange(len(train)))
    np.testing.assert_allclose(alone.L, centred.L[train], atol=1e-10 * np.abs(centred.L).max())


def test_the_error_of_a_fit_is_that_of_its_factors() -> None:
    """Of some subjects, and of some faces."""
    data, group = coarse(), np.arange(5, 30)
    for faces in (None, np.arange(50)):
        stats = data.centred(group).subset(group, faces)
        solution = Fitter("parts", 6, 0)(stats, RANK, 1)
        assert solution.C.shape == (RANK, stats.n_subjects)
        residual = stats.L / stats.counts - (solution.B @ solution.C).T
        assert solution.error == pytest.approx(float((stats.counts * residual**2).sum()), rel=1e-9)


@cache
def many_people() -> Cohorts:
    """400 people on 20 faces."""
    cohort = ico.simulate_cohort(400, 3, mesh="fsaverage3", random_state=0)
    return gather(cohort, 0, method_named("parts"), center="mean")


def test_many_people_are_replaced_by_as_many_maps_as_faces() -> None:
    """These have the products and the norm of all people, on which a fit depends."""
    data = many_people().coarse
    half = np.flatnonzero(np.random.default_rng(0).permutation(400) % 2)
    scheme = Fitter("parts", 6, 0).scheme
    small = data.condensed(half, scheme).stats
    complete = data.centred(half).subset(half)
    assert small.L.shape == (20, 20)
    products = complete.L.T @ complete.L
    np.testing.assert_allclose(small.L.T @ small.L, products, atol=1e-10 * np.abs(products).max())
    assert small.sq_norm == pytest.approx(complete.sq_norm, rel=1e-12)
    high = data.with_means(data.means + 1e6)  # of which little deviates
    assert high.condensed(half, scheme).stats.sq_norm == pytest.approx(complete.sq_norm, rel=1e-7)


@pytest.mark.parametrize("method", ["parts", "LE-PPNMF", "E-DL"])
def test_fits_run_to_their_end(method: str) -> None:
    """No cap stops them: a full fit from many starts is hardly better."""
    data = coarse("mean" if method == "parts" else "none")
    stats = data.centred(np.arange(48)).stats
    solution = Fitter(method, 10, 0)(stats, RANK, 0)
    full = multistart(stats, method, RANK, n_starts=5, n_iter=5000, tol=1e-6, random_state=1)
    assert solution.error <= full.error + 1e-3 * data.variance


@pytest.mark.parametrize(("n_people", "rtol"), [(48, 1e-6), (400, 1e-5)])
def test_held_out_errors_are_those_of_deviations_from_the_training_mean(
    n_people: int, rtol: float
) -> None:
    """Also of many people, whose fits see as many maps as faces."""
    data = coarse() if n_people == 48 else many_people().coarse
    fit = Fitter("parts", 5, 0)
    folds = np.arange(n_people) % 4
    errors = heldout_errors(data, fit, RANK, folds, 4)
    for f in (0, 3):
        train, test = (np.flatnonzero((folds == f) == left_out) for left_out in (False, True))
        mean = data.means[train].mean(axis=0)
        solution = fit(data.centred(train).subset(train), RANK, 4, f)
        x, D = data.means[test] - mean, data.counts[:, None]
        residual = x - x @ (D * solution.B) @ solution.B.T
        expected = np.sum(data.counts * residual**2) / np.sum(data.counts * x**2)
        assert errors[f] == pytest.approx(expected, rel=rtol)
    assert errors.max() < 0.9


@pytest.mark.parametrize("center", ["mean", "zscore"])
def test_full_resolution_is_the_estimator_s(center: str) -> None:
    """About what a model fitted to the other subjects explains of those left out."""
    cohort = three_components()
    cohorts = gather(cohort, 1, method_named("parts"), center=center)
    errors = heldout_full(cohorts, Fitter("parts", 10, 0), RANK, fold)
    train, test = np.flatnonzero(fold != 0), np.flatnonzero(fold == 0)
    model = ico.CorticalFactorization(
        RANK, method="parts", center=center, level=1, mesh="fsaverage4", hemi="left"
    )
    assert 1 - errors[0] == pytest.approx(
        model.fit(cohort.X[train]).score(cohort.X[test]), abs=0.02
    )


# ---------------------------------------------------------------------- measures


def test_the_stability_coefficient_is_that_of_the_matrices() -> None:
    """cobra-nmf: rows of two sites × sites cosine matrices, correlated row by row."""
    rng = np.random.default_rng(0)
    a, b, w = rng.random((4, 30)), rng.random((4, 30)), rng.integers(1, 4, 30)
    sites = [cosine_similarity(np.repeat(maps, w, axis=1).T) for maps in (a, b)]
    expected = np.mean([np.corrcoef(x, y)[0, 1] for x, y in zip(*sites, strict=True)])
    assert stability_coefficient(a, b, w) == pytest.approx(expected, abs=1e-10)
    assert stability_coefficient(a, a[[2, 0, 3, 1]], w) == pytest.approx(1)
    assert stability_coefficient(a, np.zeros_like(b), w) == 0


def test_the_median_inner_product_is_that_of_matched_unit_maps() -> None:
    a = np.eye(3, 9)
    b = np.array(
        [
            [0.6, 0, 0, 0.8, 0, 0, 0, 0, 0],
            [0, 1.0, 0, 0, 0, 0, 0, 0, 0],
            [0, 0, 0.8, 0, 0.6, 0, 0, 0, 0],
        ]
    )
    inner, _, _, median, _ = agreement(a, 7 * b[[1, 2, 0]], np.ones(9))
    assert inner == pytest.approx(0.8) and median == pytest.approx(0.8)
    inner, _, _, median, _ = agreement(
        a, b * [[1], [1], [0]] + np.eye(3, 9, 8) * [[0], [0], [1]], np.ones(9)
    )
    assert inner == pytest.approx(1.6 / 3) and median == pytest.approx(0.6)


def test_people_in_neither_group() -> None:
    rng = np.random.default_rng(0)
    groups = deal_thirds(np.zeros(48, dtype=int), rng)
    np.testing.assert_array_equal(np.bincount(groups), [18, 18, 12])
    data, fit = coarse(), Fitter("parts", 6, 0)
    [(plain, adjusted), too_few] = third_people(data, fit, [RANK, 18], groups, 7)
    assert np.isnan(too_few).all()
    assert 0.8 < plain <= 1 and 0.5 < adjusted <= 1
    # one global factor is all that random subjects share: without it loadings no longer agree
    noise = rng.standard_normal((48, 80)) + 20 * rng.standard_normal((48, 1))
    flat = data.with_means(noise[:, : data.stats.n_columns])
    plain, adjusted = third_people(flat, fit, [RANK], groups, 7)[0]
    assert plain > 0.9 and adjusted < 0.8
    # signs of a dictionary mean nothing
    signed = third_people(coarse("none"), Fitter("E-DL", 4, 0), [2], groups, 7)[0]
    assert signed[0] > 0.5


# ---------------------------------------------------------------------- the whole


@pytest.mark.parametrize("center", ["auto", pytest.param("zscore", marks=pytest.mark.slow)])
def test_parts_are_found(center: str) -> None:
    choice = choose_n_components(
        three_components(), range(2, 5), method="parts", center=center, **SMALL
    )  # type: ignore[arg-type]
    assert choice.recommended == 3
    assert choice.settings["center"] == ("mean" if center == "auto" else center)
    t = choice.table
    measures = "inner_product inner_product_median correlation ari stability_coefficient loadings"
    for name in measures.split():
        assert t[name][1] > t[f"null_{name}"][1]
    assert np.isfinite([t["loadings_adjusted"], t["null_loadings_adjusted"]]).all()
    assert 3 not in choice.others


@pytest.mark.slow
def test_noise_has_no_structure() -> None:
    for seed in range(3):
        assert (
            choose_n_components(
                smooth_noise(seed), range(2, 6), method="parts", **SMALL
            ).recommended
            is None
        )  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["parts", "CD-PNNMF"])
@pytest.mark.parametrize("n_components", [5, 8])
def test_true_numbers_are_found_within_one(method: str, n_components: int) -> None:
    cohort = ico.simulate_cohort(100, n_components, mesh="fsaverage4", random_state=1)
    ranks = range(n_components - 3, n_components + 4)
    choice = choose_n_components(cohort, ranks, method=method, n_splits=8, n_starts=6, n_nulls=5)
    assert choice.recommended is not None and abs(choice.recommended - n_components) <= 1
