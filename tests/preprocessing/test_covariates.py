"""Covariates: what is taken out, what stays, how values stay ≥ 0, and that new subjects get the same treatment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.refusals import refused
from icofactor import Cohort, CorticalFactorization, Covariates, load_model, simulate_cohort
from icofactor.maps.maps import Maps

N = 60


def table(seed: int = 0, n: int = N) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "participant_id": [f"sub-{i:02d}" for i in range(n)],
        "age": rng.uniform(20, 80, n).round(1).tolist(),
        "sex": rng.permutation(["F", "M"] * (n // 2)).tolist(),
        "site": rng.permutation([1, 2, 3] * (n // 3)).tolist(),
    }


@pytest.fixture(scope="module")
def truth() -> Cohort:
    return simulate_cohort(N, 5, mesh="fsaverage4", random_state=1)


@pytest.fixture(scope="module")
def confounded(truth: Cohort) -> Cohort:
    """The same cohort, aged: a map that is none of its components grows with age."""
    people = table(3)
    points = truth.sites.coordinates
    aged = truth.X.mean(axis=0) * (np.cos(3 * points[:, 0]) + np.sin(4 * points[:, 1])) / 2
    X = truth.X + 0.6 * (np.array(people["age"]) - 50)[:, None] / 30 * aged
    return replace(
        truth, X=np.maximum(X, 0), subjects=tuple(people["participant_id"]), participants=people
    )


def design(people: dict[str, Any]) -> np.ndarray:
    """The regression's columns, written out on their own."""
    columns = [np.array(people["age"]), np.array(people["sex"]) == "M"]
    columns += [np.array(people["site"]) == level for level in (2, 3)]
    return np.column_stack([np.ones(len(people["age"])), *columns]).astype(np.float64)


# ---------------------------------------------------------------------- the regression


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.booleans())
def test_residuals_stay_on_their_mean_and_know_nothing_of_the_covariates(
    seed: int, float32: bool
) -> None:
    people = table(seed % 7)
    X = (
        np.random.default_rng(seed)
        .gamma(20, 0.1, (N, 23))
        .astype(np.float32 if float32 else np.float64)
    )
    covariates = Covariates.fit(X, ["age", "sex", "site"], people)
    assert covariates.shift is not None
    adjusted = np.asarray(covariates.apply(X, people))
    float64_maps = X.astype(np.float64)
    A = design(people)
    beta = np.linalg.lstsq(A, float64_maps, rcond=None)[0]
    expected = float64_maps - A @ beta + float64_maps.mean(axis=0) + covariates.shift
    np.testing.assert_allclose(adjusted, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(covariates.coefficients, beta[1:], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose((A - A.mean(axis=0)).T @ adjusted, 0, atol=1e-6)
    assert adjusted.min() >= 0
    before, after = (((x - x.mean(axis=0)) ** 2).sum() for x in (float64_maps, adjusted))
    assert covariates.explained == pytest.approx(1 - after / before, abs=1e-9)


def test_only_sites_that_would_be_negative_are_shifted_and_by_just_enough() -> None:
    people = table()
    age = np.array(people["age"])
    X = np.full((N, 3), 5.0)
    X[:, 1] = np.where(age > 70, 10, 0)  # much is taken from those just below 70, who have nothing
    X[:, 2] += np.random.default_rng(0).normal(size=N)
    covariates = Covariates.fit(X, ["age"], people)
    adjusted = np.asarray(covariates.apply(X, people))
    assert covariates.shift is not None
    assert covariates.shift[1] > 0
    assert covariates.shift[[0, 2]].tolist() == [0, 0]
    assert covariates.n_shifted == 1
    assert adjusted[:, 1].min() == pytest.approx(0, abs=1e-12)
    np.testing.assert_allclose(
        adjusted[:, [0, 2]].mean(axis=0), X[:, [0, 2]].mean(axis=0), rtol=1e-12
    )


def test_new_subjects_below_zero_are_set_to_zero() -> None:
    people = table()
    X = np.random.default_rng(0).gamma(20, 0.1, (N, 4))
    covariates = Covariates.fit(X, ["age"], people)
    new = {"age": [50.0, 50.0]}
    maps = np.vstack([X[0], -X[0]])
    adjusted = np.asarray(covariates.apply(maps, new))
    assert adjusted[0].min() > 0 and adjusted[1].tolist() == [0, 0, 0, 0]


def test_signed_data_are_neither_shifted_nor_clipped() -> None:
    people = table()
    X = np.random.default_rng(0).normal(size=(N, 4))
    covariates = Covariates.fit(X, ["age"], people, nonnegative=False)
    assert covariates.shift is None
    assert covariates.n_shifted == 0
    adjusted = np.asarray(covariates.apply(X, people))
    assert adjusted.min() < -1
    np.testing.assert_allclose(adjusted.mean(axis=0), X.mean(axis=0), atol=1e-12)


def test_how_columns_are_coded() -> None:
    people = {**table(), "dose": [str(i % 4) for i in range(N)]}
    X = np.random.default_rng(0).gamma(20, 0.1, (N, 2))
    fit = lambda *names: Covariates.fit(X, names, people)
    assert fit("site").terms[0].levels == ("1", "2", "3")
    assert fit("sex").terms[0].levels == ("F", "M")
    assert fit("dose").terms[0].levels is None
    assert fit("dose:category").terms[0].levels == ("0", "1", "2", "3")
    assert fit("dose:category").names == ("dose",)
    # 2, 2.0 and "2" are one site, however the table was read
    as_numbers = Covariates.fit(X, ["site"], {"site": np.array(people["site"], dtype=np.float64)})
    as_words = Covariates.fit(X, ["site"], {"site": [f" {s} " for s in people["site"]]})
    assert as_numbers.same_as(fit("site"))
    assert as_words.same_as(fit("site"))
    assert not as_words.same_as(fit("dose"))
    assert str(fit("age", "sex")) == "age, sex (F, M)"


def test_numbers_of_very_different_size() -> None:
    people = {**table(), "volume": np.random.default_rng(1).normal(1.5e6, 1e5, N).tolist()}
    X = np.random.default_rng(0).gamma(20, 0.1, (N, 5))
    adjusted = np.asarray(Covariates.fit(X, ["volume", "sex"], people).apply(X, people))
    for z in (people["volume"], np.array(people["sex"]) == "M"):
        together = np.corrcoef(np.asarray(z, dtype=np.float64), adjusted.T)[0, 1:]
        np.testing.assert_allclose(together, 0, atol=1e-9)


# ---------------------------------------------------------------------- what is refused


def change(column: str, row: int, value: Any) -> dict[str, Any]:
    people = table()
    people[column] = [*people[column]]
    people[column][row] = value
    return people


@pytest.mark.parametrize(
    ("people", "names"),
    [
        (table(), ["agee"]),
        (table(), []),
        (table(), ["site", "site:category"]),
        (change("age", 4, np.nan), ["age"]),
        (change("sex", 4, "n/a"), ["sex"]),
        (change("age", 4, None), ["age"]),
        (change("age", 4, "old"), ["age"]),
        (change("age", 4, "35,5"), ["age"]),
        ({**table(), "age": [f"{i},5" for i in range(N)]}, ["age"]),
        ({**table(), "sex": ["F"] * N}, ["sex"]),
        ({**table(), "age": [4] * N}, ["age"]),
        ({**table(), "scanner": table()["site"]}, ["age", "site", "scanner"]),
        ({**table(), "site": range(N)}, ["site"]),
        ({**table(), "age": [4] * (N - 1)}, ["age"]),
    ],
)
def test_tables_that_will_not_do(people: dict[str, Any], names: list[str]) -> None:
    X = np.random.default_rng(0).gamma(20, 0.1, (N, 2))
    with refused("covariates"):
        Covariates.fit(X, names, people)


def test_new_subjects_that_cannot_be_adjusted() -> None:
    people = table()
    X = np.random.default_rng(0).gamma(20, 0.1, (N, 4))
    covariates = Covariates.fit(X, ["age", "site"], people)
    new = {"participant_id": ["a", "b", "c"], "age": [1, 2, 3], "site": [1, 7, 8]}
    with refused("covariates"):
        covariates.apply(X[:3], new)
    with refused("covariates"):
        covariates.apply(X[:3], {**new, "age": [1, "", 3]})
    with refused("X"):
        covariates.apply(X[:3, :3], new)
    with refused("participants"):
        covariates.apply(X[:3])
    adjusted = covariates.apply(X, people)
    with refused("X"):
        covariates.apply(adjusted)
    with refused("X"):
        Covariates.fit(np.where(X.max() == X, np.nan, X), ["age"], people)


# ---------------------------------------------------------------------- with the model


@pytest.fixture(scope="module")
def adjusted(confounded: Cohort) -> CorticalFactorization:
    return CorticalFactorization(3, n_starts=2, tol=1e-4).fit(
        Covariates.fit(confounded, ["age", "sex", "site"]).apply(confounded)
    )


def test_transform_does_to_new_subjects_what_was_done_to_the_fitted(
    adjusted: CorticalFactorization, confounded: Cohort, tmp_path: Path
) -> None:
    adjusted.save(tmp_path / "model.zip")
    for model in (adjusted, load_model(tmp_path / "model.zip")):
        assert model.covariates_.names == ("age", "sex", "site")
        assert model.covariates_.same_as(adjusted.covariates_)
        assert model.covariates_.explained == adjusted.covariates_.explained
        view = adjusted.covariates_.apply(confounded)
        array = adjusted.covariates_.apply(confounded.X, confounded.participants)
        assert isinstance(array, Maps)
        for data in (confounded, view, array):
            np.testing.assert_allclose(
                model.transform(data), model.loadings_, rtol=1e-9, atol=1e-12
            )
        assert model.score(confounded) == pytest.approx(model.explained_, abs=1e-6)
        # one subject alone gets what it gets among others: nothing of it is estimated anew
        first = {name: values[:1] for name, values in confounded.participants.items()}
        alone = replace(
            confounded, X=confounded.X[:1], subjects=("x",), participants=first, truth=None
        )
        np.testing.assert_allclose(
            model.transform(alone), model.loadings_[:1], rtol=1e-9, atol=1e-12
        )
        with refused("X"):
            model.transform(confounded.X)


def test_data_adjusted_otherwise_are_refused(
    adjusted: CorticalFactorization, confounded: Cohort
) -> None:
    by_age = Covariates.fit(confounded, ["age"]).apply(confounded)
    with refused("X"):
        adjusted.transform(by_age)
    plain = CorticalFactorization(2, n_starts=1, tol=1e-3).fit(confounded)
    assert plain.covariates_ is None
    with refused("X"):
        plain.transform(by_age)
    refitted = CorticalFactorization(2, n_starts=1, tol=1e-3).fit(by_age)
    assert refitted.fit(confounded).covariates_ is None, "of the fit before"


@pytest.mark.parametrize("method", ["DL", "LE-PPNMF"])
def test_masks_and_other_methods(method: str, confounded: Cohort, tmp_path: Path) -> None:
    mask = confounded.sites.coordinates[:, 0] < 0.8
    X = np.where(mask, confounded.X, np.nan)  # as fMRIPrep leaves the medial wall
    cohort = replace(confounded, X=X, mask=mask)
    covariates = Covariates.fit(cohort, ["age"], nonnegative=method != "DL")
    assert np.all(covariates.coefficients[:, ~mask] == 0)
    assert np.all(covariates.coefficients[:, mask] != 0)
    model = CorticalFactorization(
        2, method=method, penalty=1.0 if method == "DL" else "paper", n_starts=1, tol=1e-2
    )
    model.fit(covariates.apply(cohort))
    model.save(tmp_path / "model.zip")
    back = load_model(tmp_path / "model.zip")
    assert (back.covariates_.shift is None) == (method == "DL")
    np.testing.assert_allclose(back.transform(cohort), model.loadings_, rtol=1e-6, atol=1e-8)
