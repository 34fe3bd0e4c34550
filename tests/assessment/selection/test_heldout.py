"""Held-out errors: nothing held out touches the fit; and the errors are what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helpers.coarse_cohorts import (
    METHOD,
    block_errors,
    gathered,
    heldout_errors,
    predict_block,
    three_components,
    with_X,
)
from icofactor.assessment.selection.data import Coarse, Fitter
from icofactor.assessment.selection.heldout import face_groups, heldout_full
from icofactor.factorization._lift import lift, loadings
from icofactor.factorization.methods import method_named

fold = np.arange(48) % 4
RANK = 3


def poisoned(data: Coarse, subjects: np.ndarray, faces: np.ndarray, value: float) -> Coarse:
    """The same data with other sums in a block."""
    L = data.L.copy()
    L[np.ix_(subjects, faces)] = value
    return Coarse(replace(data.stats, L=L), data.design)


def test_left_out_blocks_do_not_touch_their_prediction() -> None:
    data = gathered(three_components()).coarse
    rng = np.random.default_rng(0)
    people, group = rng.permutation(np.arange(48) % 3), face_groups(data, rng)
    for p in range(3):
        for g in range(3):
            out, faces = people == p, group == g
            fit, prediction = predict_block(data, Fitter(METHOD, 2, 0), RANK, out, faces, 1)
            spoilt = poisoned(data, np.flatnonzero(out), np.flatnonzero(faces), np.nan)
            again, same = predict_block(spoilt, Fitter(METHOD, 2, 0), RANK, out, faces, 1)
            np.testing.assert_array_equal(again.B, fit.B)
            np.testing.assert_array_equal(same, prediction)
    # and the test can fail: one value outside the block changes the prediction
    outside = poisoned(
        data, np.flatnonzero(people != 2)[:1], np.flatnonzero(group != 2)[:1], 2 * data.L.max()
    )
    _, other_held = predict_block(outside, Fitter(METHOD, 2, 0), RANK, people == 2, group == 2, 1)
    assert np.abs(other_held - prediction).max() > 0


def test_full_resolution_is_that_of_a_cohort_without_the_held_out_subjects() -> None:
    cohort = three_components()
    everything, fit = gathered(cohort), Fitter(METHOD, 3, 0)
    errors = heldout_full(everything, fit, RANK, fold)
    scheme = method_named(METHOD).scheme
    for f in (0, 3):
        train, test = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
        alone = gathered(with_X(cohort, cohort.X, train))
        solution = fit(alone.coarse.stats, RANK, f)
        basis = lift(alone.X, solution.C, scheme, solution.penalty, 20 / alone.sites.n)
        X = cohort.X[test].T.astype(np.float64)
        C = loadings(basis.W.T @ X, basis.WW, scheme, solution.penalty)
        mean = cohort.X[train].astype(np.float64).mean(axis=0)[:, None]
        assert errors[f] == pytest.approx(
            np.sum((X - basis.W @ C) ** 2) / np.sum((X - mean) ** 2), rel=1e-9
        )


def test_exact_factors_leave_no_error() -> None:
    """Data of rank 3 without noise: held-out subjects and blocks are predicted, with two components they are not."""
    data = gathered(three_components()).coarse
    rng = np.random.default_rng(1)
    exact = data.with_means(
        rng.gamma(1.0, 1.0, (48, 3)) @ rng.gamma(0.3, 1.0, (3, data.stats.n_columns))
    )
    fit = Fitter(METHOD, 8, 0)
    people, group = np.arange(48) % 3, face_groups(data, rng)
    assert heldout_errors(exact, fit, 3, fold).max() < 0.02
    assert block_errors(exact, fit, 3, people, group).max() < 0.02
    assert heldout_errors(exact, fit, 2, fold).min() > 0.05
    assert block_errors(exact, fit, 2, people, group).min() > 0.05


def test_face_groups_keep_parents_together() -> None:
    data = gathered(three_components(), level=2).coarse
    group = face_groups(data, np.random.default_rng(0))
    parent = data.design.faces[:, 1] >> 2
    for face in np.unique(parent):
        assert len(np.unique(group[parent == face])) == 1
    assert np.ptp(np.bincount(group)) <= 0.1 * len(group)
