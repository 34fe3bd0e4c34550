"""Covariates and scanners inside a selection: every part is adjusted by its own subjects, and by nobody else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.refusals import refused
from icofactor.assessment.selection.data import Cohorts, Fitter, gather
from icofactor.assessment.selection.heldout import fit_full
from icofactor.cohort.measures import Arrangement
from icofactor.factorization.methods import method_named
from icofactor.maps.maps import Maps
from icofactor.preprocessing import ComBat
from icofactor.preprocessing.confounds import Confounds, unadjusted

N = 48
TRAIN = np.flatnonzero(np.arange(N) % 4)
COMBAT = ComBat("site", ["age"], nonnegative=False, min_scans=3)
EVERYTHING: dict[str, Any] = {"combat": COMBAT, "covariates": ["age", "sex"]}


@pytest.fixture(scope="module")
def cohort() -> ico.Cohort:
    cohort = ico.simulate_cohort(N, 3, mesh="fsaverage3", random_state=1)
    rng = np.random.default_rng(0)
    people = {
        "age": rng.uniform(20, 80, N),
        "sex": rng.permutation(["F", "M"] * (N // 2)),
        "site": rng.permutation(["A", "B", "C"] * (N // 3)),
    }
    return replace(cohort, participants=people, truth=None)


def confounds_of(
    cohort: ico.Cohort,
    nonnegative: bool = False,
    combat: ComBat | None = None,
    covariates: Sequence[str] = (),
) -> Confounds:
    confounds = Confounds.of(cohort.participants, cohort.subjects, combat, covariates, nonnegative)
    assert confounds is not None
    return confounds


def gathered(cohort: ico.Cohort, method: str, center: str, confounds: Confounds) -> Cohorts:
    return gather(cohort, 1, method_named(method), None, center, confounds)


@pytest.mark.parametrize(
    ("method", "center"), [("parts", "zscore"), ("parts", "mean"), ("CD-PNNMF", "none")]
)
@pytest.mark.parametrize("value", [np.nan, 1e3])
def test_held_out_people_change_no_bit_of_a_training_fit(
    cohort: ico.Cohort, method: str, center: str, value: float
) -> None:
    """With covariates, ComBat and z-scores on, whatever their maps hold: on faces and at every site."""
    confounds = confounds_of(cohort, method == "CD-PNNMF", **EVERYTHING)
    left_out = np.setdiff1d(np.arange(N), TRAIN)
    clean, fit = gathered(cohort, method, center, confounds), Fitter(method, 2, 0)
    changed_means = clean.coarse.with_means(
        np.where(np.isin(np.arange(N), left_out)[:, None], value, clean.coarse.means)
    )
    with np.errstate(invalid="ignore"):
        views = [data.centred(TRAIN).subset(TRAIN) for data in (clean.coarse, changed_means)]
        np.testing.assert_array_equal(views[0].L, views[1].L)
        fits = [fit(view, 3) for view in views]
        np.testing.assert_array_equal(fits[0].B, fits[1].B)
        poisoned = cohort.X.copy()
        poisoned[left_out] = value
        # NaN would be refused on the way to the sums; here they come to the fit
        spoilt = replace(clean, X=Maps(poisoned), coarse=changed_means)
        W, changed_W = (fit_full(data, fit, 3, TRAIN)[2] for data in (clean, spoilt))
    np.testing.assert_array_equal(W, changed_W)
    assert not np.array_equal(
        clean.coarse.adjusted(left_out).means, clean.coarse.adjusted(TRAIN).means
    )


def test_a_regression_of_sums_over_faces_is_the_sum_of_those_of_sites(cohort: ico.Cohort) -> None:
    adjusted = gathered(
        cohort, "parts", "mean", confounds_of(cohort, covariates=["age", "sex"])
    ).coarse.adjusted(TRAIN)
    covariates = ico.Covariates.fit(cohort[TRAIN], ["age", "sex"], nonnegative=False)
    expected = gather(covariates.apply(cohort), 1, method_named("parts")).coarse
    np.testing.assert_allclose(adjusted.means, expected.means, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("nonnegative", [True, False])
def test_at_every_site_it_is_what_a_fit_to_the_training_part_does(
    cohort: ico.Cohort, nonnegative: bool
) -> None:
    confounds = confounds_of(cohort, nonnegative, **EVERYTHING)
    training = cohort[TRAIN]
    harmonized = ComBat("site", ["age"], nonnegative=nonnegative, min_scans=3).fit(training)
    covariates = ico.Covariates.fit(
        harmonized.transform(training), ["age", "sex"], nonnegative=nonnegative
    )
    np.testing.assert_allclose(
        confounds.removed_from_array(cohort.X, TRAIN, Arrangement()),
        covariates.apply(harmonized.transform(cohort)).X,
        rtol=1e-9,
        atol=1e-9,
    )


def test_adjusted_cohorts_are_adjusted_anew_in_every_part(cohort: ico.Cohort) -> None:
    harmonized = COMBAT.fit_transform(cohort)
    doubly_adjusted = ico.Covariates.fit(harmonized, ["age", "sex"], nonnegative=False).apply(
        harmonized
    )
    for X in (doubly_adjusted, doubly_adjusted.X):
        base, confounds = unadjusted(X)
        np.testing.assert_array_equal(base.X if X is doubly_adjusted else base, cohort.X)
        assert confounds is not None
        expected = confounds_of(cohort, **EVERYTHING)
        maps = np.random.default_rng(2).gamma(5, size=(N, 7))
        np.testing.assert_allclose(
            confounds.removed_from_array(maps, TRAIN, Arrangement()),
            expected.removed_from_array(maps, TRAIN, Arrangement()),
            rtol=1e-9,
        )
    small: dict[str, Any] = {"n_splits": 2, "n_starts": 1, "n_nulls": 5, "level": 1}
    options = {"covariates": ["age", "sex"], "harmonize": COMBAT}
    by_option = ico.choose_n_components(cohort, [2, 3], **options, **small).table
    adjusted = ico.choose_n_components(doubly_adjusted, [2, 3], **small).table
    plain = ico.choose_n_components(cohort, [2, 3], **small).table
    for name in ("agreement", "heldout", "bicv", "error", "null_agreement"):
        np.testing.assert_allclose(by_option[name], adjusted[name], rtol=1e-4, err_msg=name)
        assert not np.allclose(by_option[name], plain[name], rtol=1e-3)
    with refused("cohort"):
        ico.choose_n_components(doubly_adjusted, [2], covariates=["age"], **small)
    with refused("harmonize"):
        ico.choose_n_components(cohort, [2], harmonize="scanner", **small)
    with refused("covariates"):
        ico.choose_n_components(cohort.X, [2], covariates=["age"], mesh="fsaverage3", **small)


def test_a_part_may_lack_a_scanner_or_a_category(cohort: ico.Cohort) -> None:
    """Its people are left as they are: nothing is known of how they differ."""
    train = np.flatnonzero(np.asarray(cohort.participants["site"]) != "C")
    X, confounds = cohort.X.astype(np.float64), confounds_of(cohort, combat=COMBAT)
    harmonized = confounds.removed_from_array(X, train, Arrangement())
    unknown_scanner = np.setdiff1d(np.arange(N), train)
    np.testing.assert_allclose(harmonized[unknown_scanner], X[unknown_scanner], rtol=1e-6)
    confounds = confounds_of(cohort, covariates=["site"])
    assert np.isfinite(confounds.removed_from_array(X, train, Arrangement())).all()
