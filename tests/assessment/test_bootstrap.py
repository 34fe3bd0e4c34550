"""Bootstrap: standard errors that mean what they say, kept pieces, files."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest

import icofactor as ico
from helpers.refusals import refused
from icofactor.assessment.bootstrap import _Resampling, bootstrap
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.store.create import save_store
from icofactor.cohort.store.read import open_store
from icofactor.maps.maps import Maps


def fitted(n: int, seed: int = 0, **changes: object) -> tuple[ico.CorticalFactorization, Cohort]:
    cohort = ico.simulate_cohort(n, 3, mesh="fsaverage3", random_state=seed)
    parameters = {"n_starts": 3, "tol": 1e-3, "level": 1, **changes}
    return ico.CorticalFactorization(3, **parameters).fit(cohort), cohort  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fit() -> tuple[ico.CorticalFactorization, Cohort]:
    return fitted(40)


def refit(
    model: ico.CorticalFactorization, X: np.ndarray, subjects: np.ndarray, **changes: object
) -> list[np.ndarray]:
    """The estimator's own fit to `X`, matched to the model: maps and loadings of the subjects `of`."""
    refitted = ico.CorticalFactorization(
        3, mesh="fsaverage3", **{"n_starts": 3, "tol": 1e-3, "level": 1, **changes}
    )  # type: ignore[arg-type]
    refitted.fit(X)
    theirs = refitted.transform(subjects)
    # a model's maps are those of a subject with the root mean square
    scale = np.sqrt((theirs**2).mean(axis=0))
    order = ico.match_components(model, refitted).b
    return [(refitted.components_ * scale[:, None])[order], (theirs / scale)[:, order]]


@pytest.mark.slow
def test_standard_errors_are_those_of_refitting_drawn_subjects() -> None:
    """Fit, transform and standard deviation, one after the other, on the same draws from the same starts."""
    once = {"n_starts": 1, "tol": 0.0, "n_iter": 60, "refinement": None}
    model, cohort = fitted(30, **once)
    resampled = bootstrap(model, cohort, n_resamples=5, random_state=7)
    refits = []
    for number in range(5):
        draw, start = np.random.SeedSequence(7, spawn_key=(number,)).spawn(2)
        drawn = cohort.X[np.random.default_rng(draw).integers(30, size=30)]
        same = {**once, "random_state": start, "penalty": model.solution_.penalty}
        refits.append(refit(model, drawn, cohort.X, **same))
    for values, error in zip(
        zip(*refits, strict=True), (resampled.component_se, resampled.loading_se), strict=True
    ):
        np.testing.assert_allclose(error, np.std(values, axis=0, ddof=1), rtol=1e-6, atol=1e-9)


def test_masked_sites_have_no_error(tmp_path: Path) -> None:
    cohort = ico.simulate_cohort(30, 3, mesh="fsaverage3", random_state=1, hemisphere="both")
    mask = np.ones(cohort.sites.n, dtype=bool)
    mask[[0, 5, 700]] = False
    masked = replace(cohort, mask=mask)
    model = ico.CorticalFactorization(3, n_starts=2, tol=1e-3, level=1).fit(masked)
    spread = bootstrap(model, masked, n_resamples=4)
    assert not spread.component_se[:, ~mask].any()
    files = spread.save(tmp_path, model, masked.subjects)
    right = np.stack(nib.load(files[-1]).agg_data())
    np.testing.assert_allclose(right, spread.component_se[:, 642:], rtol=1e-6)
    table = pd.read_table(tmp_path / "stability.tsv")
    np.testing.assert_allclose(table["stability"], spread.stability)
    np.testing.assert_allclose(
        pd.read_table(tmp_path / "loadings_se.tsv", index_col=0), spread.loading_se
    )
    with pytest.raises(FileExistsError):
        spread.save(tmp_path, model, masked.subjects)


@pytest.mark.parametrize("method", ["LE-PPNMF", "E-DL", "LE-SPNNMF"])
def test_other_methods(method: str) -> None:
    model, cohort = fitted(30, method=method, tol=1e-2, n_iter=200)
    resampled = bootstrap(model, cohort, n_resamples=3)
    assert np.all(resampled.stability > 0.5)
    assert np.linalg.norm(resampled.component_se) < np.linalg.norm(model.components_)


def test_a_model_of_adjusted_maps_is_resampled_on_adjusted_maps() -> None:
    cohort = ico.simulate_cohort(30, 3, mesh="fsaverage3", random_state=0)
    adjusted = ico.Covariates.fit(cohort, ["age"]).apply(cohort)
    model = ico.CorticalFactorization(3, n_starts=2, tol=1e-3, level=1).fit(adjusted)
    raw, same = (bootstrap(model, data, n_resamples=3) for data in (cohort, adjusted))
    # also: the same seed gives the same bits
    np.testing.assert_array_equal(raw.component_se, same.component_se)


@pytest.mark.parametrize("center", ["mean", "zscore"])
def test_what_is_taken_out_is_found_anew_in_the_drawn_subjects(center: str) -> None:
    """Subjects who are not drawn change no bit of what the resample is fitted to."""
    cohort = ico.simulate_cohort(40, 2, mesh="fsaverage3", random_state=0)
    cohort = replace(cohort, participants={**cohort.participants, "site": ["A", "B"] * 20})
    data = ico.preprocessing.ComBat(keep=["age"], nonnegative=False).fit_transform(cohort)
    data = ico.Covariates.fit(data, ["age"], nonnegative=False).apply(data)
    model = ico.CorticalFactorization(2, n_starts=2, level=1, center=center).fit(data)
    work, drawn = _Resampling.of(model, cohort, 0), np.r_[0:30, 5:15]
    X = cohort.X.copy()
    X[30:] = np.nan
    pair = [work, replace(work, raw=Maps(X))]
    stats = [resampling.drawn(drawn)[1] for resampling in pair]
    np.testing.assert_array_equal(stats[0].L, stats[1].L)
    everyone = np.arange(40)  # drawn once each, they are the fitted subjects
    same = work.drawn(everyone)[1]
    np.testing.assert_allclose(same.L, model.refined_.stats.L, rtol=1e-6, atol=1e-6)
    assert np.all(bootstrap(model, data, n_resamples=2).stability > 0.3)


def test_a_store_is_resampled_as_the_same_maps_in_memory(
    fit: tuple[ico.CorticalFactorization, Cohort], tmp_path: Path
) -> None:
    model, cohort = fit
    save_store(cohort, tmp_path / "store")
    from_store, in_memory = (
        bootstrap(model, data, n_resamples=3) for data in (open_store(tmp_path / "store"), cohort)
    )
    np.testing.assert_allclose(
        from_store.component_se, in_memory.component_se, rtol=1e-6, atol=1e-9
    )
    np.testing.assert_allclose(from_store.loading_se, in_memory.loading_se, rtol=1e-6, atol=1e-9)
    with ProcessPoolExecutor(1, get_context("forkserver")) as executor:
        elsewhere = bootstrap(
            model, open_store(tmp_path / "store"), n_resamples=3, executor=executor
        )
    np.testing.assert_array_equal(elsewhere.component_se, from_store.component_se)
    np.testing.assert_array_equal(elsewhere.loading_se, from_store.loading_se)


def test_what_cannot_be_resampled(fit: tuple[ico.CorticalFactorization, Cohort]) -> None:
    model, cohort = fit
    with refused("cohort"):
        bootstrap(model, ico.simulate_cohort(30, 3, mesh="fsaverage3", random_state=0))
    with refused("cohort"):
        bootstrap(model, cohort.X[[0, 1, 2, 4, 3, *range(5, 40)]])
    with refused("model"):
        bootstrap(ico.CorticalFactorization(3), cohort)
    with refused("n_resamples"):
        bootstrap(model, cohort, n_resamples=1)
    with refused("executor"):
        bootstrap(model, cohort, executor=4)
