"""ComBat: as neuroCombat does it, what it takes out, what it keeps, how values stay ≥ 0, new scanners, bad tables."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import icofactor as ico
from helpers.refusals import refused
from icofactor import CorticalFactorization, Covariates, load_model, simulate_cohort
from icofactor.cohort.store.create import create_store
from icofactor.preprocessing import ComBat

N = 60


def table(n: int = N, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "participant_id": [f"sub-{i:02d}" for i in range(n)],
        "age": rng.integers(80, 320, n).astype(np.float64) / 4,
        "sex": rng.permutation(["F", "M"] * (n // 2)).tolist(),
        "site": rng.permutation(["A", "B", "C"] * (n // 3)).tolist(),
    }


def scanned(people: dict[str, Any], n_sites: int = 40, seed: int = 1) -> np.ndarray:
    """Maps with an effect of age, and an offset and a scale of each scanner that vary over the mesh."""
    rng, n = np.random.default_rng(seed), len(people["age"])
    noise = rng.normal(size=(n, n_sites)) * rng.uniform(0.1, 0.3, n_sites)
    code = np.unique(people["site"], return_inverse=True)[1]
    offset, scale = rng.normal(0, 0.2, (3, n_sites)), rng.uniform(0.6, 1.6, (3, n_sites))
    age = (people["age"] - 50)[:, None] / 30 * rng.normal(0, 0.2, n_sites)
    return np.asarray(2.5 + age + offset[code] + scale[code] * noise)


# ---------------------------------------------------------------------- against neuroCombat


def neurocombat(
    X: np.ndarray,
    people: Any,
    site: str,
    words: list[str],
    numbers: list[str],
    monkeypatch: pytest.MonkeyPatch,
    **settings: Any,
) -> dict[str, Any]:
    """What neuroCombat makes of these maps, run to the end."""
    from neuroCombat import neuroCombat as module

    monkeypatch.setattr(np, "int", int, raising=False)  # it was written for NumPy 1
    monkeypatch.setitem(
        module.__globals__, "it_sol", partial(module.__globals__["it_sol"], conv=1e-12)
    )
    harmonized: dict[str, Any] = module(X.T, people, site, words, numbers, **settings)
    return harmonized


@pytest.mark.parametrize("reference", [None, "B"])
@pytest.mark.parametrize(("keep", "bayes"), [(["age", "sex"], True), ([], True), (["age"], False)])
def test_as_neurocombat_has_it(
    keep: list[str], bayes: bool, reference: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("neuroCombat", reason="neuroCombat is not installed")
    people = table()
    X = scanned(people)
    frame = pd.DataFrame({name: people[name] for name in ("site", "age", "sex")})
    categories, continuous = (
        [name for name in keep if (name == "sex") is word] for word in (True, False)
    )
    theirs = neurocombat(
        X, frame, "site", categories, continuous, monkeypatch, eb=bayes, ref_batch=reference
    )
    combat = ComBat(keep=keep, reference=reference, empirical_bayes=bayes).fit(X, people)
    np.testing.assert_allclose(
        np.asarray(combat.transform(X, people)), theirs["data"].T, rtol=0, atol=1e-8
    )
    harmonization = combat.harmonization_
    np.testing.assert_allclose(
        harmonization.location / harmonization.sd,
        theirs["estimates"]["gamma.star"],
        rtol=1e-6,
        atol=1e-8,
    )
    np.testing.assert_allclose(harmonization.scale**2, theirs["estimates"]["delta.star"], rtol=1e-6)
    np.testing.assert_allclose(
        harmonization.sd**2, theirs["estimates"]["var.pooled"][:, 0], rtol=1e-6
    )


# ---------------------------------------------------------------------- what is taken out, what stays


def two_scanners(
    n: int = 1000, n_sites: int = 60
) -> tuple[np.ndarray, dict[str, Any], dict[str, np.ndarray]]:
    """Two scanners whose people differ in age, with a planted offset, scale and effect of age."""
    rng = np.random.default_rng(0)
    second = np.arange(n) % 2
    age = rng.uniform(20, 70, n) + 10 * second
    planted = {
        "offset": rng.normal(0.8, 0.1, n_sites),
        "scale": rng.gamma(400, 1.5 / 400, n_sites),
        "age": rng.normal(-0.02, 0.002, n_sites),
    }
    noise = rng.normal(0, 0.1, (n, n_sites)) * np.where(second[:, None], planted["scale"], 1.0)
    X = 10 + np.outer(age - 45, planted["age"]) + np.outer(second, planted["offset"]) + noise
    return X, {"site": np.where(second, "new", "old"), "age": age}, planted


def test_a_planted_offset_and_scale_leave_and_a_planted_effect_of_age_stays() -> None:
    X, people, planted = two_scanners()
    new = people["site"] == "new"
    age = people["age"]
    columns = np.column_stack([np.ones(len(age)), age - age.mean(), new])

    def effects(maps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        beta = np.linalg.lstsq(columns, maps, rcond=None)[0]
        residual = maps - columns @ beta
        return beta[1], beta[2], residual[new].std(axis=0) / residual[~new].std(axis=0)

    slope, offset, scale = effects(np.asarray(ComBat(keep=["age"]).fit_transform(X, people)))
    assert np.abs(offset).max() < 0.05 * planted["offset"].mean()
    assert abs(np.mean(scale) - 1) < 0.05 * (planted["scale"].mean() - 1)
    np.testing.assert_allclose(slope, planted["age"], rtol=0.05)
    # not kept, the effect of age is partly taken for one of the scanner
    _, offset, _ = effects(np.asarray(ComBat().fit_transform(X, people)))
    assert np.abs(offset).min() > 0.05


def test_reference_maps_stay_as_they_are_and_constant_sites_too() -> None:
    people = table()
    X = scanned(people)
    X[:, 3] = 2.0
    combat = ComBat(keep=["age"], reference="B").fit(X, people)
    Y = np.asarray(combat.transform(X, people))
    of_reference = np.array(people["site"]) == "B"
    np.testing.assert_allclose(Y[of_reference], X[of_reference], rtol=1e-12)
    np.testing.assert_allclose(Y[:, 3], 2.0, rtol=1e-12)
    assert np.abs(Y[~of_reference] - X[~of_reference]).max() > 0.1
    assert combat.harmonization_.sd[3] == 0


def test_values_stay_above_zero_by_a_lift_that_is_the_same_in_all_scans() -> None:
    people = table()
    X = scanned(people)
    widths = np.random.default_rng(3).gamma(
        2, 1, N
    )  # one scanner spreads widely, the others barely
    X[:, 5] = np.where(np.array(people["site"]) == "A", widths, 0.1 + 0.01 * widths)
    free = ComBat(keep=["age"], empirical_bayes=False, nonnegative=False).fit_transform(X, people)
    assert free.adjustments[0].shift is None
    # no value is negative: none shall be
    combat = ComBat(keep=["age"], empirical_bayes=False).fit(X, people)
    lifted = np.asarray(combat.transform(X, people))
    shift = combat.harmonization_.shift
    assert (
        lifted.min() >= 0 and shift[5] > 0 and combat.harmonization_.n_shifted == (shift > 0).sum()
    )
    np.testing.assert_allclose(lifted, np.asarray(free) + shift, rtol=1e-9, atol=1e-12)
    assert ComBat().fit(X - 5, people).harmonization_.shift is None
    assert np.asarray(combat.transform(-X, people)).min() == 0


def test_scikit_learn_manners() -> None:
    people = table()
    X = scanned(people)
    combat = clone(ComBat("scanner", ["age"], min_scans=5)).set_params(site="site", keep=())
    assert combat.get_params()["min_scans"] == 5
    by_labels = np.asarray(combat.fit_transform(X, people["site"]))
    np.testing.assert_array_equal(by_labels, np.asarray(combat.fit(X, people).transform(X, people)))
    assert combat.n_features_in_ == X.shape[1]
    view = combat.transform(X, people)
    np.testing.assert_allclose(view[4:9, 2:7], by_labels[4:9, 2:7], rtol=1e-13)


# ---------------------------------------------------------------------- new scanners


def test_a_scanner_that_the_fit_did_not_know_is_learnt_from_enough_scans() -> None:
    X, people, _ = two_scanners()
    rng = np.random.default_rng(5)
    combat = ComBat(keep=["age"], min_scans=12).fit(X, people)
    ages = rng.uniform(20, 70, 200)
    offset = rng.normal(-1.5, 0.1, X.shape[1])
    beta = combat.harmonization_.coefficients[0]
    third = combat.harmonization_.mean + np.outer(ages - people["age"].mean(), beta) + offset
    third = third + rng.normal(0, 0.5, third.shape)
    their = {"site": ["third"] * 200, "age": ages}
    Y = np.asarray(combat.transform(third, their))
    fitted = combat.harmonization_.mean + np.outer(ages - people["age"].mean(), beta)
    np.testing.assert_allclose((Y - fitted).mean(), 0, atol=0.01)
    np.testing.assert_allclose((Y - fitted).std() / combat.harmonization_.sd.mean(), 1, rtol=0.05)
    eleven = {name: values[:11] for name, values in their.items()}
    with refused("harmonize"):
        combat.transform(third[:11], eleven)
    # scans of known scanners are harmonized the same whoever comes with them
    two_sites = {"site": [*people["site"][:5], *their["site"]], "age": [*people["age"][:5], *ages]}
    together = np.asarray(combat.transform(np.vstack([X[:5], third]), two_sites))
    alone = {name: people[name][:5] for name in ("site", "age")}
    np.testing.assert_allclose(together[:5], np.asarray(combat.transform(X[:5], alone)), rtol=1e-12)
    np.testing.assert_allclose(together[5:], Y, rtol=1e-12)


# ---------------------------------------------------------------------- what is refused


def changed(**columns: Any) -> dict[str, Any]:
    return {**table(), **columns}


@pytest.mark.parametrize(
    ("people", "settings", "argument"),
    [
        (table(), {"site": "scanner"}, "harmonize"),
        (table(), {"keep": ["iq"]}, "keep"),
        (changed(site=["A"] * N), {}, "harmonize"),
        (changed(site=["A"] * 45 + ["B"] * 11 + ["C"] * 4), {}, "harmonize"),
        (changed(group=table()["site"]), {"keep": ["age", "group"]}, "keep"),
        (changed(age=[np.nan, 3.0] * 30), {"keep": ["age"]}, "keep"),
        (changed(site=["n/a", "A"] * 30), {}, "harmonize"),
        (table(), {"reference": "D"}, "reference"),
        (table(), {"min_scans": 2}, "min_scans"),
        (table(), {"keep": ["site"]}, "keep"),
    ],
)
def test_tables_that_will_not_do(people: Any, settings: dict[str, Any], argument: str) -> None:
    with refused(argument):
        ComBat(**settings).fit(scanned(table()), people)


def test_maps_that_will_not_do() -> None:
    people = table()
    X = scanned(people)
    combat = ComBat().fit(X, people)
    with refused("participants"):
        combat.fit(X)
    with refused("X"):
        combat.fit(combat.transform(X, people), people)
    with refused("X"):
        combat.transform(Covariates.fit(X, ["age"], people).apply(X, people), people)
    with refused("X"):
        combat.transform(X[:, :3], people)
    with refused("X"):
        ComBat().fit(np.where(X.max() == X, np.nan, X), people)
    with refused("covariates"):
        Covariates.fit(combat.transform(X, people), ["site"], people)


# ---------------------------------------------------------------------- with the model


@pytest.fixture(scope="module")
def cohort() -> ico.Cohort:
    """People of two scanners."""
    cohort = simulate_cohort(40, 3, mesh="fsaverage3", random_state=1)
    people = {**cohort.participants, "site": ["A", "B"] * 20, "sex": ["F", "F", "M", "M"] * 10}
    scale = np.where(np.arange(40) % 2, 1.3, 0.9)[:, None]
    X = (
        cohort.X.mean(axis=0)
        + scale * (cohort.X - cohort.X.mean(axis=0))
        + (np.arange(40) % 2)[:, None] * 0.3
    )
    return replace(cohort, X=X, participants=people)


def test_a_model_keeps_it_and_does_it_to_new_subjects(cohort: ico.Cohort, tmp_path: Path) -> None:
    combat = ComBat("site", ("age", "sex"))
    small: dict[str, Any] = {"n_components": 3, "n_starts": 2, "level": 1}
    model = CorticalFactorization(**small, harmonize=combat).fit(cohort)
    assert model.harmonization_.shift is None, "parts of deviations need no values ≥ 0"
    assert not hasattr(combat, "harmonization_"), "the parameter was fitted instead of a copy"
    outside = ComBat("site", ("age", "sex"), nonnegative=False).fit_transform(cohort)
    again = CorticalFactorization(**small).fit(outside)
    np.testing.assert_array_equal(again.loadings_, model.loadings_)
    model.save(tmp_path / "model.zip")
    for fitted in (model, load_model(tmp_path / "model.zip"), again):
        assert fitted.harmonization_.same_as(model.harmonization_)
        assert fitted.harmonization_.explained == model.harmonization_.explained
        np.testing.assert_allclose(fitted.transform(cohort), model.loadings_, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(
            fitted.transform(cohort[:3]), model.loadings_[:3], rtol=1e-9, atol=1e-12
        )
        with refused("X"):
            fitted.transform(cohort.X)
    assert load_model(tmp_path / "model.zip").harmonize.get_params() == {
        **combat.get_params(),
        "keep": ["age", "sex"],
    }
    with refused("X"):
        CorticalFactorization(**small).fit(cohort).transform(outside)
    positive = CorticalFactorization(**small, method="CD-PNNMF", harmonize=combat).fit(cohort)
    assert positive.harmonization_.shift is not None
    with refused("harmonize"):
        CorticalFactorization(**small, harmonize="site").fit(cohort)


def test_covariates_after_it(cohort: ico.Cohort, tmp_path: Path) -> None:
    data = ComBat("site", ("age", "sex")).fit_transform(cohort)
    adjusted = Covariates.fit(data, ["age"]).apply(data)
    model = CorticalFactorization(3, n_starts=2, level=1).fit(adjusted)
    model.save(tmp_path / "model.zip")
    back = load_model(tmp_path / "model.zip")
    for X in (cohort, data, adjusted):
        np.testing.assert_allclose(back.transform(X), model.loadings_, rtol=1e-9, atol=1e-12)
    with refused("X"):
        ComBat().fit(adjusted)


def test_a_store_is_passed_over_twice_and_gives_the_same(
    cohort: ico.Cohort, tmp_path: Path
) -> None:
    mask = cohort.sites.coordinates[:, 0] < 0.8
    in_memory = replace(cohort, mask=mask)
    store = create_store(tmp_path / "cohort.store", [in_memory], chunk_sites=128, chunk_subjects=40)
    a, b = (ComBat("site", ["age"]).fit(data) for data in (store, in_memory))
    once = store.X.counter.n_bytes / 2
    assert a.harmonization_.same_as(b.harmonization_) or np.allclose(
        a.harmonization_.scale, b.harmonization_.scale
    )
    assert np.all(a.harmonization_.sd[~mask] == 0) and np.all(a.harmonization_.scale[:, ~mask] == 1)
    model = CorticalFactorization(2, n_starts=1, level=1).fit(a.transform(store))
    assert store.X.counter.n_bytes == pytest.approx(4 * once)
    np.testing.assert_allclose(model.transform(in_memory), model.loadings_, rtol=1e-6, atol=1e-9)
