from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import f_oneway, pearsonr

from helpers.sources import Sliced
from icofactor.cohort.adjusted import with_maps
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.simulate import simulate_cohort
from icofactor.cohort.store.create import create_store, save_store
from icofactor.errors import ArgumentError
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.factorization._refine import Refinement
from icofactor.maps.maps import Maps
from icofactor.preprocessing.covariates import Covariates
from icofactor.results.diagnostics import diagnose
from icofactor.results.diagnostics.blocks import linear_shares
from icofactor.results.diagnostics.diagnose import robust_z, unusual_subjects
from icofactor.results.diagnostics.participants import compare
from icofactor.results.diagnostics.record import Diagnostics, load_diagnostics, save_diagnostics
from icofactor.sphere.sites import Sites

N = 24


def make_cohort(mask: bool = True, n: int = N, **more: Any) -> Cohort:
    """Three bumps on one hemisphere of fsaverage3, whose loadings follow age, sex and nothing."""
    rng = np.random.default_rng(0)
    sites = Sites.named("fsaverage3")
    centres = np.array([[0.0, 1, 0], [0, -1, 0], [0, 0, 1]])
    maps = np.exp(4 * (sites.coordinates @ centres.T - 1)).T
    age, sex = rng.uniform(20, 80, n), rng.integers(0, 2, n)
    loadings = np.stack([1 + age / 40, 1 + sex + 0.1 * rng.random(n), 1 + rng.random(n)], axis=1)
    X = 1 + loadings @ maps + 0.05 * rng.random((n, sites.n))
    used = sites.coordinates[:, 0] < 0.9 if mask else None
    participants = {
        "participant_id": [f"s{i}" for i in range(n)],
        "age": np.where(np.arange(n) == 3, np.nan, age),
        "sex": np.where(sex, "M", "F"),
        "note": [f"word {i}" for i in range(n)],
    }
    names = tuple(f"s{i}" for i in range(n))
    settings = {"modality": "thickness", "units": "mm", "participants": participants} | more
    return Cohort(X.astype(np.float32), names, sites, used, "left", **settings)


@pytest.fixture(scope="module")
def fit() -> tuple[CorticalFactorization, Cohort, Diagnostics]:
    cohort = make_cohort()
    schedule = Refinement(steps=2, faces=3, n_iter=5)
    model = CorticalFactorization(
        3, n_starts=3, n_iter=300, tol=1e-4, level=1, refinement=schedule, random_state=0
    )
    model.fit(cohort)
    return model, cohort, diagnose(model, cohort, timing={"fit": 1.5}, warnings=["said before"])


def test_maps_are_those_of_the_whole_matrix(fit: Any) -> None:
    model, cohort, d = fit
    used = cohort.mask
    X = cohort.X[:, used].astype(np.float64)
    residual = X - model.inverse_transform(model.loadings_)[:, used]
    spread = ((X - X.mean(axis=0)) ** 2).sum(axis=0)
    np.testing.assert_allclose(d.median[used], np.median(X, axis=0), rtol=1e-12)
    np.testing.assert_allclose(d.deviation[used], X.std(axis=0, ddof=1), rtol=1e-10)
    np.testing.assert_allclose(
        d.explained_map[used], 1 - (residual**2).sum(axis=0) / spread, atol=1e-10
    )
    for name in ("median", "deviation", "explained_map"):
        assert np.isnan(getattr(d, name)[~used]).all()
    np.testing.assert_array_equal(d.depth, model.depth_)
    assert d.depth.max() >= 1


def test_residuals_and_shares(fit: Any) -> None:
    model, cohort, d = fit
    X = cohort.X[:, cohort.mask].astype(np.float64)
    residual = X - model.inverse_transform(model.loadings_)[:, cohort.mask]
    centred = X - X.mean(axis=0)
    np.testing.assert_allclose(d.residual, np.sqrt((residual**2).mean(axis=1)), rtol=1e-10)
    np.testing.assert_allclose(
        d.subject_explained, 1 - (residual**2).sum(1) / (centred**2).sum(1), atol=1e-10
    )
    assert d.explained == pytest.approx(model.explained_, abs=1e-9)
    assert d.explained_X == pytest.approx(1 - (residual**2).sum() / (X**2).sum(), abs=1e-12)
    np.testing.assert_array_equal(d.alone, model.explained_variance_ratio_)


def test_unique_variance_is_what_regression_loses(fit: Any) -> None:
    model, cohort, d = fit
    X = cohort.X[:, cohort.mask].astype(np.float64)
    centred = X - X.mean(axis=0)

    def explained(members: list[int]) -> float:
        Z = model.loadings_[:, members] - model.loadings_[:, members].mean(axis=0)
        beta = np.linalg.lstsq(Z, centred, rcond=None)[0]
        return 1 - float(((centred - Z @ beta) ** 2).sum() / (centred**2).sum())

    assert d.linear == pytest.approx(explained([0, 1, 2]), abs=1e-9)
    expected = [explained([0, 1, 2]) - explained([i for i in range(3) if i != j]) for j in range(3)]
    np.testing.assert_allclose(d.unique, expected, atol=1e-9)


def test_parcellation_and_overlap(fit: Any) -> None:
    model, cohort, d = fit
    maps = model.components_[:, cohort.mask]
    np.testing.assert_array_equal(d.parcellation[cohort.mask], maps.argmax(axis=0) + 1)
    assert not d.parcellation[~cohort.mask].any()
    np.testing.assert_allclose(np.diag(d.overlap), 1, rtol=1e-12)
    p = maps / maps.sum(axis=1, keepdims=True)
    assert (
        d.overlap[0, 2] == d.overlap[2, 0] == pytest.approx(np.minimum(p[0], p[2]).sum(), rel=1e-12)
    )
    np.testing.assert_allclose(d.similarity, np.corrcoef(maps), atol=1e-12)
    np.testing.assert_allclose(d.together, np.corrcoef(model.loadings_.T), atol=1e-12)


@pytest.mark.parametrize(
    ("method", "center", "mask"),
    [
        ("parts", "mean", True),
        ("parts", "mean", False),
        ("parts", "zscore", True),
        ("parts", "none", True),
        ("LE-PPNMF", "mean", True),
        ("LE-PPNMF", "zscore", False),
        ("E-DL", "mean", True),
    ],
)
@pytest.mark.parametrize("covariates", [False, True])
def test_every_number_of_a_centred_fit(
    method: str, center: str, mask: bool, covariates: bool
) -> None:
    """From the whole X and the definitions alone: the model says what its maps and loadings mean."""
    cohort: Any = make_cohort(mask)
    values = np.array(cohort.X)
    values[:, 7] = 2.5  # a site where nobody differs
    cohort = replace(cohort, X=values)
    if covariates:
        signed = center != "none"
        cohort = Covariates.fit(cohort, ["sex"], mask=cohort.mask, nonnegative=not signed).apply(
            cohort
        )
    model = CorticalFactorization(
        3, method=method, center=center, n_starts=10, level=1, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(cohort)
    d = diagnose(model, cohort)
    used = np.ones(cohort.sites.n, dtype=bool) if cohort.mask is None else cohort.mask
    X = np.asarray(cohort.X[:, :], dtype=np.float64)[:, used]
    mean, spread = X.mean(axis=0), X.std(axis=0, ddof=1)
    flat = spread < 1e-9
    unit = np.where(flat, 1.0, spread) if center == "zscore" else np.ones_like(mean)
    fitted = (X - (0 if center == "none" else mean)) / unit
    residual = fitted - model.loadings_ @ model.components_[:, used]
    variance = np.where(flat, 0.0, ((X - mean) / unit)) ** 2
    total = variance.sum()
    np.testing.assert_allclose(d.median[used], np.median(X, axis=0), rtol=1e-12)
    np.testing.assert_allclose(d.deviation[used], spread, rtol=1e-9, atol=1e-12)
    moving = ~flat
    expected = 1 - (residual**2).sum(axis=0)[moving] / variance.sum(axis=0)[moving]
    np.testing.assert_allclose(d.explained_map[used][moving], expected, atol=1e-9)
    assert np.isnan(d.explained_map[used][flat]).all()
    np.testing.assert_allclose(d.residual, np.sqrt((residual**2).mean(axis=1)), rtol=1e-9)
    np.testing.assert_allclose(
        d.subject_explained, 1 - (residual**2).sum(1) / variance.sum(1), atol=1e-9
    )
    assert d.explained == pytest.approx(1 - (residual**2).sum() / total, abs=1e-9)
    assert d.explained == pytest.approx(model.explained_, abs=1e-8)
    inverse = model.inverse_transform(model.loadings_)[:, used]
    assert d.explained_X == pytest.approx(1 - ((X - inverse) ** 2).sum() / (X**2).sum(), abs=1e-10)
    Z = model.loadings_ - model.loadings_.mean(axis=0)
    centred = np.where(flat, 0.0, (X - mean) / unit)
    beta = np.linalg.lstsq(Z, centred, rcond=None)[0]
    assert d.linear == pytest.approx(1 - ((centred - Z @ beta) ** 2).sum() / total, abs=1e-8)
    carried = (
        np.abs(model.components_[:, used]) * np.sqrt((model.loadings_**2).mean(axis=0))[:, None]
    )
    winner = np.where(carried.max(axis=0) > 0, carried.argmax(axis=0) + 1, 0)
    np.testing.assert_array_equal(d.parcellation[used], winner)
    said = " ".join(d.warnings)
    assert flat.sum() == 1
    assert "1 site in use does not vary" in said
    assert ("left out of z-scores" in said) == (center == "zscore")
    assert model.n_constant_sites_ == (flat.sum() if center == "zscore" else 0)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_maps_without_noise_have_residuals_too(dtype: str, tmp_path: Path) -> None:
    """Nothing but rounding is left of them."""
    cohort = make_cohort(mask=False)
    sides = np.arange(cohort.sites.n) < 300
    strengths = np.random.default_rng(0).integers(1, 9, (N, 2)) / 4 + [0, 3]
    X = np.where(sides, strengths[:, :1], strengths[:, 1:]).astype(np.float32)
    stored = create_store(
        tmp_path / "a", [replace(cohort, X=X)], dtype=dtype, chunk_sites=100, chunk_subjects=7
    )
    model = CorticalFactorization(2, center="none", level=1, random_state=0).fit(stored)
    found = diagnose(model, stored, n_permutations=10)
    assert 0 <= found.residual.min() <= found.residual.max() < 1e-2
    for shares in (
        found.explained_map,
        found.subject_explained,
        found.explained_X,
        found.linear,
        found.unique,
    ):
        assert np.all(np.asarray(shares) <= 1)


@pytest.mark.parametrize("rounding", [1 - 2e-7, 1.0, 1 + 2e-7])
def test_shares_are_at_most_1_whatever_is_rounded(rounding: float) -> None:
    """All variance is explained, by one component or by both together."""
    c = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]])
    for loadings, unique in ((c[:, :1], [1.0]), (c, [0.5, 0.5])):
        Z = loadings
        linear, own = linear_shares(
            rounding * (Z.T @ Z) @ (Z.T @ Z), loadings, float(np.square(Z).sum())
        )
        assert linear == pytest.approx(1, abs=1e-6) and linear <= 1 and (own <= 1).all()
        np.testing.assert_allclose(own, unique, atol=1e-6)


def test_permutations_do_not_depend_on_how_many_are_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor on threads, which work on the columns of a biobank."""
    rng = np.random.default_rng(0)
    people = {
        "age": rng.random(40),
        "group": rng.choice(["a", "b", "c"], 40),
        "few": np.where(np.arange(40) < 3, 1, np.nan),
    }
    loadings = rng.standard_normal((40, 3))
    plain = compare(people, loadings, 50)
    monkeypatch.setattr("icofactor.results.diagnostics.participants._BATCH_VALUES", 100)
    monkeypatch.setattr("icofactor.results.diagnostics.participants.SHORT", 0)
    few = compare(people, loadings, 50)
    assert plain[2] == few[2] and list(plain[2]) == ["few"]
    for one, other in zip(plain[0] + plain[1], few[0] + few[1], strict=True):
        np.testing.assert_array_equal(one.p, other.p)


def test_recurrence_goes_with_the_components_and_warns_where_most_fail() -> None:
    cohort = make_cohort()
    model = CorticalFactorization(3, method="parts", level=1, random_state=0).fit(cohort)
    marked = replace(model.starts_, recurrence=np.array([0.1, 0.4, 0.9]), n_near=9)
    model.starts_, model.recurrence_ = marked, marked.recurrence
    (warned,) = [text for text in diagnose(model, cohort).warnings if "determined" in text]
    assert "only 1 of 3" in warned and "the 9 other random starts on the same people" in warned
    assert "fewer components" in warned
    assert "icofactor select" in warned
    assert "'parts'" not in warned  # that is what was done
    model.recurrence_ = np.full(3, np.nan)
    assert not [text for text in diagnose(model, cohort).warnings if "determined" in text]


def test_the_order_of_components_is_that_of_their_recurrence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from icofactor.factorization import _multistart

    def by_mass(
        bases: np.ndarray, objectives: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, int]:
        """A mark that the best start's columns carry with them."""
        best = bases[int(np.argmin(objectives))]
        return (weights @ best) / (weights @ best).max(), 4

    monkeypatch.setattr(_multistart, "recurrence", by_mass)
    cohort = make_cohort()
    for seed in range(3):
        model = CorticalFactorization(
            3, method="parts", level=1, refinement=None, lift=False, random_state=seed
        )
        model.fit(cohort)
        mass = (model.components_ / model.scale_[:, None]).sum(axis=1)
        # the best start goes on after its mark was taken, a little
        np.testing.assert_allclose(model.recurrence_, mass / mass.max(), atol=0.05)


@pytest.mark.parametrize("center", ["mean", "zscore"])
def test_a_store_gives_what_memory_gives(tmp_path: Path, center: str) -> None:
    """Both hemispheres, a mask, covariates, read from disk a block at a time."""
    cohort = simulate_cohort(16, 3, "thickness", "both", 0, mesh="fsaverage3")
    mask = np.arange(cohort.sites.n) % 11 > 0
    cohort = replace(cohort, mask=mask, X=np.asarray(cohort.X, dtype=np.float32))
    stored = save_store(cohort, tmp_path / "store")
    found = []
    for source in (cohort, stored):
        adjusted: Any = Covariates.fit(source, ["age"], mask=mask, nonnegative=False).apply(source)
        model = CorticalFactorization(
            3, method="parts", center=center, n_starts=10, random_state=0
        ).fit(adjusted)
        found.append(diagnose(model, adjusted))
    held, streamed = found
    for name in (
        "median",
        "deviation",
        "explained_map",
        "residual",
        "subject_explained",
        "unique",
        "extent",
    ):
        np.testing.assert_allclose(
            getattr(streamed, name), getattr(held, name), rtol=1e-6, atol=1e-9
        )
    np.testing.assert_array_equal(streamed.parcellation, held.parcellation)
    assert streamed.explained == pytest.approx(held.explained, abs=1e-9)
    assert streamed.explained_X == pytest.approx(held.explained_X, abs=1e-9)


def test_l1_norms_follow_the_components(fit: Any) -> None:
    model, _, d = fit
    B, C = model.solution_.B, model.solution_.C
    assert d.l1_B.sum() == pytest.approx(np.abs(B).sum(), rel=1e-12)
    assert d.l1_C.sum() == pytest.approx(np.abs(C).sum(), rel=1e-12)
    for j in range(3):  # the row of C whose norm was given is the one whose loadings these are
        own = int(np.argmin(np.abs(np.abs(C).sum(axis=1) - d.l1_C[j])))
        assert np.corrcoef(C[own], model.loadings_[:, j])[0, 1] > 0.95


def test_associations_find_age_and_sex(fit: Any) -> None:
    model, cohort, d = fit
    (age,), (sex,) = d.associations, d.groupings
    known = np.isfinite(age.values)
    assert age.column == "age"
    assert age.n == N - 1 == known.sum()
    assert sex.labels == ("F", "M")
    for j in range(3):
        y = model.loadings_[:, j]
        assert age.r[j] == pytest.approx(pearsonr(age.values[known], y[known])[0], abs=1e-10)
        F = f_oneway(y[sex.codes == 0], y[sex.codes == 1])[0]
        assert sex.eta2[j] == pytest.approx(F / (F + N - 2), abs=1e-10)
        np.testing.assert_allclose(
            sex.boxes[1, j], np.percentile(y[sex.codes == 1], [0, 25, 50, 75, 100])
        )
    assert np.abs(age.r).max() > 0.9
    assert age.p.min() < 0.01
    assert sex.p.min() < 0.01
    assert list(d.left_out) == ["note"]
    assert cohort.participants["age"][0] == age.values[0]


def test_orders_are_permutations_and_the_tree_is_scipys(fit: Any) -> None:
    _, _, d = fit
    assert sorted(d.order) == list(range(N))
    assert sorted(d.component_order) == [0, 1, 2]
    assert d.tree.shape == (N - 1, 4)


def test_convergence(fit: Any) -> None:
    model, _, d = fit
    c = d.convergence
    assert c.objective[-1] == model.solution_.objective[-1]
    assert c.updates[-1] == model.solution_.n_iter
    assert c.n_starts == 3
    assert (np.diff(c.band, axis=0) >= 0).all()
    np.testing.assert_allclose(c.band[0, -1], model.starts_.objectives[:, c.band_updates[-1]].min())
    np.testing.assert_array_equal(c.divisions, model.refined_.divisions)
    assert d.timing["fit"] == 1.5
    assert d.memory > 0
    assert d.warnings[0] == "said before"


def test_file_gives_the_same_back(fit: Any, tmp_path: Path) -> None:
    _, _, d = fit
    again = load_diagnostics(save_diagnostics(d, tmp_path / "diagnostics.npz"))
    for name, value in vars(d).items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(getattr(again, name), value)
        elif name not in ("convergence", "associations", "groupings", "unusual"):
            assert getattr(again, name) == value
    np.testing.assert_array_equal(again.associations[0].p, d.associations[0].p)
    assert again.groupings[0].labels == d.groupings[0].labels
    np.testing.assert_array_equal(again.unusual.z, d.unusual.z)
    assert again.convergence.converged is d.convergence.converged
    with pytest.raises(FileExistsError):
        save_diagnostics(d, tmp_path / "diagnostics.npz")


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.npz: no such file"):
        load_diagnostics(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    for name in ("text.npz", "other.npz"):
        with pytest.raises(ValueError, match=f"{name}.*diagnostics"):
            load_diagnostics(tmp_path / name)


def test_cohorts_that_were_not_fitted(fit: Any) -> None:
    model, cohort, _ = fit
    elsewhere = replace(cohort, X=cohort.X[:, :162], sites=Sites.icosphere(2), mask=None)
    for argument, fitted, data in (
        ("model", CorticalFactorization(3), cohort),
        ("cohort", model, make_cohort(n=20)),
        ("cohort", model, elsewhere),
        ("cohort", model, cohort.X),
    ):
        with pytest.raises(ArgumentError) as raised:
            diagnose(fitted, data)
        assert raised.value.argument == argument


def test_x_is_read_a_block_at_a_time(fit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, cohort, d = fit
    monkeypatch.setattr("icofactor.maps.blocks.BLOCK_BYTES", 4 * cohort.X[:, :50].size)
    sliced = Sliced(cohort.X)
    again = diagnose(model, with_maps(cohort, Maps(sliced)))
    np.testing.assert_allclose(again.median, d.median, rtol=1e-12)
    assert again.explained == pytest.approx(d.explained, rel=1e-12)
    assert sliced.most <= cohort.X[:, :50].size


def test_trouble_is_told() -> None:
    cohort = make_cohort(mask=False)
    X = np.array(cohort.X)
    X[:, 100] = 2.0
    cohort = replace(cohort, X=X)
    model = CorticalFactorization(3, n_starts=1, n_iter=3, tol=1e-9, level=1, refinement=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(cohort)
    words = " ".join(diagnose(model, cohort).warnings)
    assert "ended after 3 updates, before its objective converged" in words
    assert "1 site in use does not vary" in words


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.5, 2.5, "n/a", 4, 5, 6], "number"),
        (["1", "2", "", "7", "9", "11"], "number"),
        ([0, 1, 0, 1, 0, 1], "group"),
        ([True, False, True, False, True, False], "group"),
        (["a", "b", "a", "b", "a", "b"], "group"),
        (["a", "a", "a", "b", "b", "b"], "group"),
        (["a", "b", "c", "d", "e", "f"], "neither"),
        ([1.0] * 6, "neither"),
        ([np.nan] * 6, "neither"),
        ([1, 2, 3, np.nan, np.nan, np.nan], "neither"),
        (["a", "a", "a", "a", "a", "b"], "neither"),
    ],
)
def test_what_a_column_is(values: list[Any], kind: str) -> None:
    loadings = np.random.default_rng(0).random((6, 2))
    numbers, groups, left_out = compare({"x": values}, loadings, n_permutations=20)
    found = "number" if numbers else "group" if groups else "neither"
    assert found == kind
    assert ("x" in left_out) == (kind == "neither")


def test_permutation_p_is_fair_and_corrected() -> None:
    rng = np.random.default_rng(1)
    loadings = rng.standard_normal((30, 5))
    p = [
        compare({"x": rng.standard_normal(30)}, loadings, n_permutations=99, random_state=seed)[0][
            0
        ].p.min()
        for seed in range(200)
    ]
    # under chance alone, the least corrected p is below 0.1 about once in ten times: binomial, 5 standard deviations
    assert np.mean(np.array(p) <= 0.1) == pytest.approx(0.1, abs=5 * np.sqrt(0.09 / 200))
    one = compare({"x": loadings[:, 2]}, loadings, n_permutations=99)[0][0]
    assert one.r[2] == pytest.approx(1)
    assert one.p[2] == 0.01


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 10), st.floats(-5, 5))
@settings(max_examples=25, deadline=None)
def test_robust_z_does_not_depend_on_units(seed: int, scale: float, shift: float) -> None:
    values = np.random.default_rng(seed).standard_normal((20, 3))
    np.testing.assert_allclose(robust_z(scale * values + shift), robust_z(values), atol=1e-8)


def test_unusual_subjects_are_found_and_chance_is_not() -> None:
    rng = np.random.default_rng(2)
    loadings, residual = rng.gamma(2, 0.5, (100, 4)), rng.gamma(50, 0.01, 100)
    assert len(unusual_subjects(loadings, residual).subject) == 0
    loadings[7, 2], residual[30] = 40.0, 5.0
    found = unusual_subjects(loadings, residual)
    pairs = set(zip(found.subject.tolist(), found.component.tolist(), strict=True))
    assert pairs == {(7, 2), (30, -1)}
    assert np.abs(found.z).min() > found.limit >= 3.5
    assert robust_z(np.zeros((5, 1))).tolist() == [[0.0]] * 5
