"""CorticalFactorization: scikit-learn's conventions, the numbers it finds, and that seeds fix them."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import icofactor as ico
from helpers.refusals import refused
from icofactor import CorticalFactorization, Refinement

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


def test_a_pipeline_fits_and_transforms(X: np.ndarray) -> None:
    pipeline = make_pipeline(FunctionTransformer(np.abs, feature_names_out="one-to-one"), quick())
    loadings = pipeline.fit_transform(-X)
    np.testing.assert_array_equal(loadings, quick().fit_transform(X))
    assert list(pipeline.get_feature_names_out()) == [f"component0{i}" for i in range(1, 5)]


def test_a_level_finer_than_the_mesh_is_its_own(cohort: ico.Cohort) -> None:
    with pytest.warns(UserWarning, match="level"):
        fine = quick(2, level=9).fit(cohort[:6])
    # Of the finest level there is no warning.
    finest = quick(2, level=3).fit(cohort[:6])
    np.testing.assert_array_equal(fine.components_, finest.components_)


def test_clone_and_set_params(X: np.ndarray) -> None:
    mask = np.ones(642, dtype=bool)
    model = quick(3, mask=mask, mesh=ico.Sites.named("fsaverage3"), refinement=Refinement(steps=1))
    copy = clone(model.fit(X))
    assert not hasattr(copy, "components_")
    np.testing.assert_array_equal(copy.fit(X).components_, model.components_)
    assert copy.set_params(n_components=2, method="E-DL") is copy
    assert (copy.n_components, copy.method) == (2, "E-DL")


def test_fitting_again_forgets_the_first_fit(X: np.ndarray) -> None:
    mask = np.arange(642) % 3 > 0
    model = quick(mask=mask, refinement=Refinement(steps=2)).fit(X[:20])
    model.set_params(mask=None, refinement=None).fit(X)
    fresh = quick().fit(X)
    assert sorted(vars(model)) == sorted(vars(fresh))
    assert model.mask_ is None
    np.testing.assert_array_equal(model.components_, fresh.components_)
    np.testing.assert_array_equal(model.depth_, fresh.depth_)


def test_columns_of_a_data_frame_are_those_of_the_fit(X: np.ndarray) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"v{i}" for i in range(X.shape[1])])
    model = quick().fit(frame)
    np.testing.assert_array_equal(model.transform(frame), model.transform(X))
    for other in (frame.iloc[:, ::-1], frame.rename(columns={"v3": "w"})):
        for call in (model.transform, model.score):
            with refused("X"):
                call(other)
    assert not hasattr(model.fit(X), "feature_names_in_")


def test_pandas_output(X: np.ndarray) -> None:
    pd = pytest.importorskip("pandas")
    model = quick().set_output(transform="pandas")
    loadings = model.fit_transform(pd.DataFrame(X, index=[f"sub-{i}" for i in range(30)]))
    assert list(loadings.columns) == list(model.get_feature_names_out())
    assert loadings.index[3] == "sub-3"
    np.testing.assert_array_equal(loadings.to_numpy(), model.loadings_)


def test_progress_is_shown_only_when_asked_for(
    X: np.ndarray, capsys: pytest.CaptureFixture[str]
) -> None:
    quick().fit(X)
    assert capsys.readouterr() == ("", "")
    quick(verbose=True, refinement=Refinement(steps=2)).fit(X)
    out, err = capsys.readouterr()
    assert not out
    for stage in ("statistics", "starts", "refinement", "lift"):
        assert stage in err


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


def test_score_is_the_explained_share(X: np.ndarray) -> None:
    model = quick().fit(X)
    variance = np.square(X - X.mean(axis=0)).sum()
    assert model.total_variance_ == pytest.approx(variance, rel=1e-10)
    assert model.score(X) == pytest.approx(1 - model.error_ / variance, abs=1e-9)
    assert model.explained_ == pytest.approx(model.score(X), abs=1e-9)
    np.testing.assert_allclose(model.mean_, X.mean(axis=0), rtol=1e-12)


def test_inverse_transform_undoes_the_centering(X: np.ndarray) -> None:
    mean = X.mean(axis=0)
    parts = quick(method="parts").fit(X)
    maps = mean + parts.loadings_ @ parts.components_
    np.testing.assert_allclose(parts.inverse_transform(parts.loadings_), maps, rtol=1e-12)
    scores = quick(method="parts", center="zscore").fit(X)
    maps = mean + X.std(axis=0, ddof=1) * (scores.loadings_ @ scores.components_)
    np.testing.assert_allclose(scores.inverse_transform(scores.loadings_), maps, rtol=1e-10)


def test_recurrence_is_in_the_order_of_the_components(X: np.ndarray) -> None:
    settings = {"method": "LE-PNNMF", "n_starts": 20, "n_iter": 150, "tol": 0.0, "lift": False}
    model = quick(5, **settings).fit(X)
    coarse = (model.design_.matrix @ model.starts_.B).T
    order = ico.match_components(model.components_, coarse).b
    assert len(np.unique(model.recurrence_)) > 1
    np.testing.assert_array_equal(model.recurrence_, model.starts_.recurrence[order])


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


def test_the_papers_setting() -> None:
    model = CorticalFactorization.paper("LE-PNNMF", n_components=4, n_starts=5, n_iter=50)
    with pytest.warns(UserWarning, match="lift"):
        model.fit(ico.simulate_cohort(30, 4, random_state=0))
    # Few bumps for so many sites.
    assert model.explained_ < 0
    assert (model.design_.kind, model.design_.sigma) == ("exponential", 0.015)
    assert (model.solution_.rules, model.solution_.n_iter) == ("paper", 50 + 10 * 10)
    # Five of 20 faces gave way to four each.
    assert model.refined_.n_columns[0] == 35
    assert np.isfinite(model.components_).all()
    paper = CorticalFactorization.paper("DL", lift=True)
    assert (paper.n_starts, paper.n_iter, paper.tol, paper.lift) == (1000, 1000, 0.0, True)


def test_as_many_components_as_subjects(X: np.ndarray) -> None:
    model = fit_quietly(quick(8), X[:8])
    assert 0.8 < model.explained_ <= 1


def test_very_few_subjects_are_not_fitted_by_copies_of_one_map(X: np.ndarray) -> None:
    """The best of rank four explains 0.84 of these five subjects, and of six the fit comes within 0.01 of it."""
    assert fit_quietly(quick(4, n_starts=10, method="CD-PNNMF"), X[:5]).explained_ > 0.8


# ---------------------------------------------------------------------- what it finds


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
    one_side = T[:, :10242]
    triangles = ico.Sites.named("fsaverage5").triangles
    assert triangles is not None
    X = {"faces": one_side[:, triangles].mean(axis=2), "both": T}.get(case, one_side)
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
    lengths = np.linalg.norm(W, axis=1)
    cosines = (W @ W.T) / np.outer(lengths, lengths)
    assert cosines[~np.eye(10, dtype=bool)].mean() <= 0.08


# ---------------------------------------------------------------------- centering


@pytest.mark.parametrize("center", ["mean", "zscore"])
@pytest.mark.parametrize("method", ["parts", "E-DL"])
def test_a_centred_fit_is_that_of_centred_maps(method: str, center: str, X: np.ndarray) -> None:
    mean = X.mean(axis=0)
    deviation = X.std(axis=0, ddof=1) if center == "zscore" else 1.0
    settings = {"method": method, "n_iter": 50}
    plain = fit_quietly(quick(**settings, center="none"), (X - mean) / deviation)
    model = fit_quietly(quick(**settings, center=center), X)
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model.loadings_, plain.loadings_, rtol=1e-10, atol=1e-12)
    new = X[:3] * 1.01
    expected = plain.transform((new - mean) / deviation)
    np.testing.assert_allclose(model.transform(new), expected, rtol=1e-9, atol=1e-11)
    assert model.explained_ == pytest.approx(plain.explained_, abs=1e-10)


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
    X[:, :9] = 0.1
    lifted = quick(method="parts", center="zscore").fit(X)
    assert lifted.n_constant_sites_ == 9
    assert (lifted.components_[:, :9] == 0).all()
    model = quick(method="parts", center="zscore", lift=False).fit(X)
    np.testing.assert_allclose(model.inverse_transform(model.loadings_)[:, :9], 0.1)
    other = X.copy()
    other[:, :9] += 1000
    np.testing.assert_allclose(model.transform(other), model.loadings_, rtol=1e-8, atol=1e-10)
    assert model.score(other) == pytest.approx(model.score(X), abs=1e-10)
    # Rounding is all that constant sites hold of residuals.
    Z = np.column_stack([np.ones(len(X)), np.random.default_rng(0).standard_normal((len(X), 4))])
    residuals = X - Z @ (np.linalg.pinv(Z) @ X)
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


# ---------------------------------------------------------------------- seeds


def test_the_same_seed_gives_the_same_bits(X: np.ndarray) -> None:
    fits = [quick(random_state=seed, n_starts=1).fit(X) for seed in (3, np.int64(3), 4)]
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)
    np.testing.assert_array_equal(fits[0].loadings_, fits[1].loadings_)
    assert np.abs(fits[0].components_ - fits[2].components_).max() > 1e-6


@pytest.mark.slow
def test_a_fresh_process_gives_the_same_bits(X: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    program = (
        "import sys, numpy as np, icofactor as ico\n"
        "X = np.load(sys.argv[1])\n"
        "settings = dict(n_starts=3, tol=1e-4, refinement=None, random_state=3)\n"
        "model = ico.CorticalFactorization(4, **settings).fit(X)\n"
        "np.save(sys.argv[2], model.components_)\n"
    )
    threads = {f"{library}_NUM_THREADS": "2" for library in ("OMP", "OPENBLAS", "MKL")}
    files = [str(tmp_path / "X.npy"), str(tmp_path / "W.npy")]
    command = [sys.executable, "-c", program, *files]
    subprocess.run(command, check=True, env={**os.environ, **threads})
    components = np.load(tmp_path / "W.npy")
    np.testing.assert_array_equal(components, quick(random_state=3).fit(X).components_)
