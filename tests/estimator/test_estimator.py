"""CorticalFactorization: scikit-learn's conventions, the numbers it finds, and that seeds fix them."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import icofactor as ico
from icofactor import CorticalFactorization, Refinement
from icofactor.errors import ArgumentError

PROJECTIVE = ("PPNMF", "E-PPNMF", "LE-PPNMF")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small products on two busy cores: BLAS threads that wait for each other made these tests 25 times slower."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def cohort() -> ico.Cohort:
    return ico.simulate_cohort(30, 4, mesh="fsaverage3", random_state=0)


@pytest.fixture(scope="module")
def X(cohort: ico.Cohort) -> np.ndarray:
    X = cohort.X.astype(np.float64)
    X.setflags(write=False)
    return X


def quick(n_components: int = 4, **changes: Any) -> CorticalFactorization:
    """A fit in a blink, without refinement unless asked for."""
    return CorticalFactorization(
        n_components, **{"n_starts": 3, "tol": 1e-4, "refinement": None, **changes}
    )


def fit_quietly(model: CorticalFactorization, X: Any) -> CorticalFactorization:
    """Plain schemes need more than the updates a test has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X)


def squared_error(model: CorticalFactorization, X: np.ndarray) -> float:
    R = X - model.inverse_transform(model.loadings_)
    return float(np.square(R if model.mask_ is None else R[:, model.mask_]).sum())


# ---------------------------------------------------------------------- scikit-learn's conventions


def test_a_level_finer_than_the_mesh_is_said(cohort: ico.Cohort) -> None:
    settings = {"n_components": 2, "n_starts": 2, "random_state": 0, "refinement": None}
    with pytest.warns(
        UserWarning, match="level=9 is finer than the mesh: the fit starts from its finest level, 3"
    ):
        fine = CorticalFactorization(**settings, level=9).fit(cohort[:6])
    own = CorticalFactorization(**settings, level=3).fit(cohort[:6])  # without a word
    np.testing.assert_array_equal(fine.components_, own.components_)


def test_the_constructor_only_stores() -> None:
    odd = object()
    model = CorticalFactorization(
        odd, method=odd, mesh=odd, mask=odd, refinement=odd, random_state=odd
    )  # type: ignore[arg-type]
    for name in ("n_components", "method", "mesh", "mask", "refinement", "random_state"):
        assert getattr(model, name) is odd
    assert not [name for name in vars(model) if name.endswith("_")]


def test_clone_and_parameters_round_trip(X: np.ndarray) -> None:
    mask = np.ones(642, dtype=bool)
    model = quick(3, mask=mask, mesh=ico.Sites.named("fsaverage3"), refinement=Refinement(steps=1))
    copy = clone(model.fit(X))
    assert not hasattr(copy, "components_")
    assert copy.get_params()["refinement"] == Refinement(steps=1)
    np.testing.assert_array_equal(copy.mask, mask)
    np.testing.assert_array_equal(copy.fit(X).components_, model.components_)
    assert copy.set_params(n_components=2, method="E-DL") is copy
    assert (copy.n_components, copy.method) == (2, "E-DL")
    with pytest.raises(ValueError, match="Invalid parameter 'components'"):
        copy.set_params(components=2)


def test_repr_names_what_was_changed() -> None:
    assert repr(CorticalFactorization()) == "CorticalFactorization()"
    assert (
        repr(CorticalFactorization(4, method="DL"))
        == "CorticalFactorization(method='DL', n_components=4)"
    )


def test_a_pipeline_fits_and_transforms(X: np.ndarray) -> None:
    pipeline = make_pipeline(FunctionTransformer(np.abs, feature_names_out="one-to-one"), quick())
    loadings = pipeline.fit_transform(-X)
    np.testing.assert_array_equal(loadings, quick().fit_transform(X))
    assert list(pipeline.get_feature_names_out()) == [f"component0{i}" for i in range(1, 5)]


def test_grid_search_over_the_number_of_components(X: np.ndarray) -> None:
    search = GridSearchCV(quick(), {"n_components": [1, 4]}, cv=3, error_score="raise").fit(X)
    assert search.best_params_ == {"n_components": 4}
    few, many = search.cv_results_["mean_test_score"]
    assert few < many < 1
    assert search.best_estimator_.components_.shape == (4, 642)


def test_fit_transform_is_fit_then_transform(X: np.ndarray) -> None:
    model = quick()
    loadings = model.fit_transform(X)
    assert model.fit(X) is model
    np.testing.assert_allclose(loadings, model.transform(X), rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(loadings, model.loadings_)


def test_the_loadings_returned_are_the_callers(X: np.ndarray) -> None:
    model = quick()
    loadings = model.fit_transform(X)
    loadings *= 0
    assert (model.loadings_ != 0).any()


def test_names_and_counts_of_features(X: np.ndarray) -> None:
    model = quick().fit(X)
    assert model.n_features_in_ == 642
    assert list(model.get_feature_names_out()) == [f"component0{i}" for i in range(1, 5)]
    with pytest.raises(NotFittedError):
        quick().get_feature_names_out()


def test_fitting_again_forgets_the_first_fit(X: np.ndarray) -> None:
    mask = np.arange(642) % 3 > 0
    model = quick(mask=mask, refinement=Refinement(steps=2)).fit(X[:20])
    model.set_params(mask=None, refinement=None).fit(X)
    fresh = quick().fit(X)
    assert sorted(vars(model)) == sorted(vars(fresh))
    assert model.mask_ is None
    np.testing.assert_array_equal(model.components_, fresh.components_)
    np.testing.assert_array_equal(model.depth_, fresh.depth_)


def test_parameters_changed_after_the_fit_do_not_change_the_fit(X: np.ndarray) -> None:
    model = quick().fit(X)
    before = model.transform(X)
    model.set_params(method="LE-PPNMF", n_components=2)
    np.testing.assert_array_equal(model.transform(X), before)


def test_X_is_not_changed(cohort: ico.Cohort) -> None:
    X = cohort.X.astype(np.float64)
    before = X.copy()
    model = quick().fit(X)
    model.transform(X)
    model.score(X)
    np.testing.assert_array_equal(X, before)


def test_columns_of_a_data_frame_are_those_of_the_fit(X: np.ndarray) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"v{i}" for i in range(X.shape[1])])
    model = quick().fit(frame)
    np.testing.assert_array_equal(model.transform(frame), model.transform(X))
    for other, how in (
        (frame.iloc[:, ::-1], "in another order"),
        (frame.rename(columns={"v3": "w"}), "others"),
    ):
        for call in (model.transform, model.score):
            with pytest.raises(
                ArgumentError, match=f"should match those .* during fit; the columns of X are {how}"
            ):
                call(other)
    assert not hasattr(model.fit(X), "feature_names_in_")


@pytest.mark.parametrize("mesh", [None, "fsaverage3"])
def test_maps_that_lie_the_other_way(X: np.ndarray, mesh: str | None) -> None:
    with pytest.raises(ArgumentError, match="looks like sites × subjects") as caught:
        quick(mesh=mesh).fit(X.T)
    assert (caught.value.argument, caught.value.found) == ("X", f"shape {X.T.shape}")
    with pytest.raises(ArgumentError) as caught:  # neither way
        quick(mesh=mesh).fit(X[:, :100])
    assert caught.value.argument == "mesh"


def test_pandas_output(X: np.ndarray) -> None:
    pd = pytest.importorskip("pandas")
    model = quick().set_output(transform="pandas")
    found = model.fit_transform(pd.DataFrame(X, index=[f"sub-{i}" for i in range(30)]))
    assert list(found.columns) == list(model.get_feature_names_out())
    assert found.index[3] == "sub-3"
    np.testing.assert_array_equal(found.to_numpy(), quick().fit_transform(X))
    assert model.score(X) == pytest.approx(model.explained_, abs=1e-9)


def test_a_fitted_model_can_be_pickled(X: np.ndarray) -> None:
    model = quick(refinement=Refinement(steps=2)).fit(X)
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.transform(X), model.transform(X))


def test_progress_is_shown_only_when_asked_for(
    X: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    quick().fit(X)
    assert capsys.readouterr() == ("", "")
    quick(verbose=True, refinement=Refinement(steps=2)).fit(X)
    out, err = capsys.readouterr()
    assert out == ""
    for stage in ("statistics", "starts", "refinement", "lift"):
        assert f"{stage} ...\n{stage}: " in err, "a log gets lines, not bars"


# ---------------------------------------------------------------------- what a fit holds


@pytest.mark.parametrize("method", ico.PAPER_METHODS)
def test_every_method_fits_and_transforms(method: str, X: np.ndarray) -> None:
    model = fit_quietly(quick(method=method), X)
    assert model.components_.shape == (4, 642)
    assert 0.4 < model.explained_ < 0.6
    assert model.error_ == pytest.approx(squared_error(model, X), rel=1e-8)
    np.testing.assert_allclose(model.transform(X), model.loadings_, rtol=1e-10, atol=1e-10)
    assert (np.diff(model.explained_variance_) <= 0).all()
    if method in PROJECTIVE:
        np.testing.assert_allclose(model.loadings_, X @ model.components_.T, rtol=1e-10)
    else:
        np.testing.assert_allclose(
            np.sqrt(np.square(model.loadings_).mean(axis=0)), 1.0, rtol=1e-10
        )
    if method not in ("DL", "E-DL"):
        assert model.components_.min() >= 0
        assert model.loadings_.min() >= 0


@pytest.mark.parametrize("method", ["E-DL", "LE-PNNMF", "LE-SPNNMF", "E-PPNMF"])
def test_the_papers_rules_fit_too(method: str, X: np.ndarray) -> None:
    model = fit_quietly(quick(method=method, rules="paper", n_iter=300), X)
    assert model.solution_.rules == "paper"
    assert 0.4 < model.explained_ < 0.6
    assert model.error_ == pytest.approx(squared_error(model, X), rel=1e-8)


def test_score_is_the_explained_share(X: np.ndarray) -> None:
    model = quick().fit(X)
    variance = np.square(X - X.mean(axis=0)).sum()
    assert model.total_variance_ == pytest.approx(variance, rel=1e-10)
    assert model.score(X) == pytest.approx(1 - model.error_ / variance, abs=1e-9)
    assert model.explained_ == pytest.approx(model.score(X), abs=1e-9)
    np.testing.assert_allclose(model.mean_, X.mean(axis=0), rtol=1e-12)


def test_score_of_one_new_subject_is_below_that_of_a_perfect_fit(X: np.ndarray) -> None:
    model = quick(method="CD-PNNMF").fit(X[:-1])
    assert model.score(X[-1:]) < 1
    made = model.inverse_transform(np.array([[1.0, 2.0, 3.0, 4.0]]))
    assert model.score(made) == pytest.approx(1, abs=1e-4)  # the penalty keeps it from 1


def test_inverse_transform_is_loadings_times_components(X: np.ndarray) -> None:
    model = quick(method="CD-PNNMF").fit(X)
    np.testing.assert_array_equal(
        model.inverse_transform(model.loadings_), model.loadings_ @ model.components_
    )
    parts = quick(method="parts").fit(X)
    rebuilt = X.mean(axis=0) + parts.loadings_ @ parts.components_
    np.testing.assert_allclose(parts.inverse_transform(parts.loadings_), rebuilt, rtol=1e-12)
    scores = quick(method="parts", center="zscore").fit(X)
    rebuilt = X.mean(axis=0) + X.std(axis=0, ddof=1) * (scores.loadings_ @ scores.components_)
    np.testing.assert_allclose(scores.inverse_transform(scores.loadings_), rebuilt, rtol=1e-10)


def test_refinement_divides_faces_and_says_where(X: np.ndarray) -> None:
    model = quick(level=0, refinement=Refinement(steps=3, faces=2), lift=False).fit(X)
    plain = quick(level=0, lift=False).fit(X)
    assert plain.depth_.max() == 0
    assert model.design_.n_columns > plain.design_.n_columns == 20
    assert model.depth_.shape == (642,)
    assert 1 <= model.depth_.max() <= 3
    assert model.solution_.error < plain.solution_.error


@pytest.mark.parametrize("method", ["LE-PNNMF", "LE-PPNMF"])
def test_polish_lowers_the_error(method: str, X: np.ndarray) -> None:
    errors = [quick(method=method, polish=n).fit(X).error_ for n in (0, 3, 10)]
    assert errors[0] > errors[1] > errors[2]


def test_without_lift_the_basis_is_that_of_the_design(X: np.ndarray) -> None:
    model = quick(lift=False).fit(X)
    for column in np.unique(model.design_.site_column)[:50]:
        assert np.ptp(model.components_[:, model.design_.site_column == column], axis=1).max() == 0
    assert model.error_ > quick().fit(X).error_
    assert model.error_ == pytest.approx(squared_error(model, X), rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["partition", "smooth", "exponential"])
def test_every_kind_of_columns_lifts_to_nearly_the_same_fit(columns: str, X: np.ndarray) -> None:
    wide = {"exponential": 0.3}.get(columns)  # the paper's 0.015 reaches few of 642 vertices
    assert 0.5 < quick(columns=columns, sigma=wide).fit(X).explained_ < 0.6


def test_the_papers_setting() -> None:
    model = CorticalFactorization.paper("LE-PNNMF", n_components=4)
    expected = {
        "n_components": 4,
        "method": "LE-PNNMF",
        "columns": "exponential",
        "level": 0,
        "n_starts": 1000,
        "n_iter": 1000,
        "tol": 0.0,
        "lift": False,
        "rules": "paper",
        "penalty": "paper",
        "sigma": None,
        "refinement": Refinement(
            steps=10, faces=5, n_iter=10, indicator="projected", carry="quarter"
        ),
    }
    assert {name: model.get_params()[name] for name in expected} == expected
    with pytest.warns(
        UserWarning, match="the components explain less than the mean map .* use lift=True"
    ):
        model.set_params(n_starts=5, n_iter=50).fit(ico.simulate_cohort(30, 4, random_state=0))
    assert model.explained_ < 0  # few bumps for so many sites
    assert model.design_.sigma == 0.015
    assert model.refined_.n_columns[0] == 35  # five of 20 faces gave way to four each
    assert np.isfinite(model.components_).all()
    assert CorticalFactorization.paper("DL", lift=True).lift is True


def test_as_many_components_as_subjects(X: np.ndarray) -> None:
    model = fit_quietly(quick(8), X[:8])
    assert 0.8 < model.explained_ <= 1


def test_very_few_subjects_are_not_fitted_by_copies_of_one_map(X: np.ndarray) -> None:
    """The best of rank four explains 0.84 of these five subjects, and of six the fit comes within 0.01 of it."""
    assert fit_quietly(quick(4, n_starts=10, method="CD-PNNMF"), X[:5]).explained_ > 0.8


# ---------------------------------------------------------------------- what it finds


@pytest.mark.slow
@pytest.mark.parametrize("hemisphere", ["left", "both"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_truth_is_found_again(hemisphere: Any, seed: int) -> None:
    cohort = ico.simulate_cohort(100, 10, hemisphere=hemisphere, random_state=seed)
    assert cohort.truth is not None
    model = CorticalFactorization(10).fit(cohort)
    match = ico.match_components(model, cohort.truth.components)
    of_loadings = [
        np.corrcoef(model.loadings_[:, i], cohort.truth.loadings[:, j])[0, 1]
        for i, j in zip(match.a, match.b, strict=True)
    ]
    assert match.mean >= 0.9
    assert np.mean(of_loadings) >= 0.9


@pytest.fixture(scope="module")
def thickness(data_folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Thickness of 100 people on both hemispheres of fsaverage5, and the cortex mask."""
    with np.load(data_folder / "thickness_fsaverage5_n200.npz") as data:
        return data["thickness"][:100].astype(np.float64), data["cortex"]


@pytest.mark.parametrize(
    ("case", "bound"), [("faces", 0.335), ("vertices", 0.335), ("masked", 0.335), ("both", 0.375)]
)
def test_real_thickness_is_fitted_close_to_the_best_of_rank_ten(
    case: str, bound: float, thickness: tuple[np.ndarray, np.ndarray]
) -> None:
    T, cortex = thickness
    left = T[:, :10242]
    triangles = ico.Sites.named("fsaverage5").triangles
    assert triangles is not None
    X = {"faces": left[:, triangles].mean(axis=2), "both": T}.get(case, left)
    model = CorticalFactorization(
        10, method="CD-PNNMF", mask=cortex[:10242] if case == "masked" else None
    ).fit(X)
    used = X if model.mask_ is None else X[:, model.mask_]
    values = np.linalg.svd(used @ used.T, compute_uv=False)
    floor = values[10:].sum() / model.total_variance_
    assert floor < model.error_ / model.total_variance_ <= bound
    assert model.error_ == pytest.approx(squared_error(model, X), rel=1e-8)


def test_real_thickness_in_parts(thickness: tuple[np.ndarray, np.ndarray]) -> None:
    T, cortex = thickness
    model = CorticalFactorization(10, method="parts", mask=cortex).fit(T)
    X = T[:, cortex] - T[:, cortex].mean(axis=0)
    W = model.components_[:, cortex] / model.scale_[:, None]
    assert (W >= 0).all()
    assert model.error_ == pytest.approx(np.square(X - (X @ W.T) @ W).sum(), rel=1e-9)
    assert model.error_ / np.square(X).sum() <= 0.440
    np.testing.assert_allclose(model.loadings_, X @ W.T / model.scale_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(np.square(model.loadings_).mean(axis=0), 1.0, rtol=1e-9)
    cosines = (W @ W.T) / np.outer(*(np.linalg.norm(W, axis=1),) * 2)
    assert cosines[~np.eye(10, dtype=bool)].mean() <= 0.08


# ---------------------------------------------------------------------- centering


def test_zscores_are_the_fit_of_zscored_maps(X: np.ndarray) -> None:
    Z = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    given, made = (
        quick(method="parts", center="none").fit(Z),
        quick(method="parts", center="zscore").fit(X),
    )
    np.testing.assert_allclose(made.components_, given.components_, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(made.loadings_, given.loadings_, rtol=1e-10, atol=1e-12)
    new = X[:3] * 1.01
    expected = given.transform((new - X.mean(axis=0)) / X.std(axis=0, ddof=1))
    np.testing.assert_allclose(made.transform(new), expected, rtol=1e-9, atol=1e-11)
    assert made.explained_ == pytest.approx(given.explained_, abs=1e-10)


@pytest.mark.parametrize("method", ["parts", "LE-PPNMF", "E-DL"])
def test_deviations_are_the_fit_of_centred_maps(method: str, X: np.ndarray) -> None:
    settings = {"method": method, "n_iter": 50, "penalty": "paper"}
    made = fit_quietly(quick(**settings, center="mean"), X)
    if method == "LE-PPNMF":  # raw values must be ≥ 0; of deviations only the statistics are signed
        assert made.center_ == "mean" and made.explained_ > 0.3
        return
    given = fit_quietly(quick(**settings, center="none"), X - X.mean(axis=0))
    np.testing.assert_allclose(made.components_, given.components_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(made.transform(X[:2]), made.loadings_[:2], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("columns", ["smooth", "exponential"])
def test_deviations_with_overlapping_columns_have_the_error_of_the_full_matrix(
    columns: str, X: np.ndarray
) -> None:
    sigma = {"exponential": 0.05}.get(columns)  # not every site is in a column
    model = quick(method="parts", columns=columns, sigma=sigma, level=1, lift=False).fit(X)
    residual = X - X.mean(axis=0) - model.loadings_ @ model.components_
    assert model.error_ == pytest.approx(np.square(residual).sum(), rel=1e-9)
    assert model.solution_.error == pytest.approx(model.error_, rel=1e-9)


def test_sites_without_variance_are_left_out_of_zscores(X: np.ndarray) -> None:
    X = X.copy()
    X[:, 5:9] = 2.5
    model = quick(method="parts", center="zscore").fit(X)
    assert model.n_constant_sites_ == 4
    assert (model.components_[:, 5:9] == 0).all()
    np.testing.assert_allclose(model.inverse_transform(model.loadings_)[:, 5:9], 2.5)


def test_sites_without_variance_do_not_enter_new_subjects(X: np.ndarray) -> None:
    X = X.copy()
    X[:, :9] = 0.1
    model = quick(method="parts", center="zscore", lift=False).fit(X)
    other = X.copy()
    other[:, :9] += 1000
    np.testing.assert_allclose(model.transform(other), model.loadings_, rtol=1e-8, atol=1e-10)
    assert model.score(other) == pytest.approx(model.score(X), abs=1e-10)
    Z = np.column_stack([np.ones(len(X)), np.random.default_rng(0).standard_normal((len(X), 4))])
    residuals = X - Z @ (np.linalg.pinv(Z) @ X)  # rounding is all that constant sites hold
    assert quick(method="parts", center="zscore").fit(residuals).n_constant_sites_ == 9


def test_rough_maps_are_not_left_on_the_faces() -> None:
    """Lesion-like maps: the condition of the lift says nothing about them."""
    rng = np.random.default_rng(1)
    maps = np.zeros((20, 642))
    for row in maps:
        row[rng.integers(0, 40) + np.arange(5)] = 1
    coarse, lifted = (
        fit_quietly(quick(8, method="parts", lift=lift), maps) for lift in (False, True)
    )
    assert lifted.explained_ > coarse.explained_ + 0.2


def test_one_negative_value_does_not_change_how_raw_maps_are_lifted() -> None:
    X = np.asarray(ico.simulate_cohort(30, 3, mesh="fsaverage4").X, dtype=np.float64)
    X = 10 * X.mean() + (X - X.mean(axis=0)) + np.linspace(-0.2, 0.2, X.shape[1]) * X.mean()
    fits = []
    for value in (1e-6, -1e-6):
        X[0, 5] = value
        fits.append(fit_quietly(quick(3, method="parts", center="none"), X).explained_)
    assert fits[0] == pytest.approx(fits[1], abs=1e-3) and fits[0] > 0.3


def test_a_dead_part_of_raw_maps_stays_finite() -> None:
    X = np.zeros((20, 642))
    X[:, 0], X[:, 1] = np.arange(20) + 1, 1
    model = fit_quietly(quick(5, method="parts", center="none"), X)
    assert np.isfinite(model.components_).all() and np.isfinite(model.loadings_).all()


def test_what_is_saved_is_the_fit_whatever_set_params_did(X: np.ndarray, tmp_path: Path) -> None:
    model = quick(3, method="parts").fit(X)
    model.set_params(n_components=7, center="zscore", method="PNNMF").save(tmp_path / "model.zip")
    again = ico.load_model(tmp_path / "model.zip")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert again.n_components == 3 and again.method == "parts" and again.center_ == "mean"


def test_a_centred_model_is_saved_with_what_was_taken_out(X: np.ndarray, tmp_path: Path) -> None:
    model = quick(method="parts", center="zscore").fit(X)
    model.save(tmp_path / "model.zip")
    again = ico.load_model(tmp_path / "model.zip")
    assert again.center_ == "zscore"
    np.testing.assert_array_equal(again.recurrence_, model.recurrence_)
    np.testing.assert_array_equal(again.transform(X[:3]), model.transform(X[:3]))
    np.testing.assert_array_equal(
        again.inverse_transform(again.loadings_), model.inverse_transform(model.loadings_)
    )


# ---------------------------------------------------------------------- seeds


def test_the_same_seed_gives_the_same_bits(X: np.ndarray) -> None:
    first, second = quick(random_state=3).fit(X), quick(random_state=3).fit(X)
    np.testing.assert_array_equal(first.components_, second.components_)
    np.testing.assert_array_equal(first.loadings_, second.loadings_)
    np.testing.assert_array_equal(
        quick(random_state=np.int64(3)).fit(X).components_, first.components_
    )


def test_another_seed_gives_another_answer(X: np.ndarray) -> None:
    one, other = (quick(n_starts=1, random_state=seed).fit(X).components_ for seed in (0, 1))
    assert np.abs(one - other).max() > 1e-6


@pytest.mark.slow
def test_a_fresh_process_gives_the_same_bits(X: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    program = (
        "import sys, numpy as np, icofactor as ico\n"
        "X = np.load(sys.argv[1])\n"
        "model = ico.CorticalFactorization(4, n_starts=3, tol=1e-4, refinement=None, random_state=3).fit(X)\n"
        "np.save(sys.argv[2], model.components_)\n"
    )
    threads = {
        **os.environ,
        "OMP_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
    }
    arguments = [sys.executable, "-c", program, str(tmp_path / "X.npy"), str(tmp_path / "W.npy")]
    subprocess.run(arguments, check=True, env=threads)
    np.testing.assert_array_equal(
        np.load(tmp_path / "W.npy"), quick(random_state=3).fit(X).components_
    )
