"""Several measures of the same people: the same as stacking arrays by hand, and nothing learnt from people left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.refusals import refused
from icofactor.assessment.bootstrap import _Resampling, bootstrap
from icofactor.assessment.selection.data import Fitter, gather
from icofactor.assessment.selection.heldout import fit_full
from icofactor.cohort import create_store
from icofactor.cohort.measures import Arrangement
from icofactor.cohort.people import choose_scans
from icofactor.estimator.saving import MODEL_FILE
from icofactor.factorization.methods import method_named
from icofactor.maps.maps import Maps
from icofactor.preprocessing.adjusted import steps_of
from icofactor.preprocessing.confounds import unadjusted

N, V, K = 24, 642, 3
SETTINGS: dict[str, Any] = {"n_starts": 3, "level": 1}
WEIGHTS = {"myelin": 2.0}
SHARES = ("maps", "loadings")


def simulated(kind: str, n: int = N, seed: int = 0) -> ico.Cohort:
    return replace(ico.simulate_cohort(n, K, kind, "left", seed, mesh="fsaverage3"), truth=None)


@pytest.fixture(scope="module")
def pair() -> dict[str, ico.Cohort]:
    first, second = simulated("thickness"), simulated("myelin", seed=1)
    return {"thickness": first, "myelin": replace(second, participants=first.participants)}


def model(method: str = "parts", **changes: Any) -> ico.CorticalFactorization:
    return ico.CorticalFactorization(K, method=method, **{**SETTINGS, **changes})


def by_hand(
    pair: dict[str, Any], scale: str, weights: dict[str, float], center: str
) -> list[np.ndarray]:
    """Each measure centred and scaled by itself, from the equations on the whole X."""
    arrays = []
    for name, cohort in pair.items():
        x = cohort.X.astype(np.float64)
        deviation = x - x.mean(axis=0)
        if center == "zscore" or scale == "zscore":
            x = deviation / deviation.std(axis=0, ddof=1)
        elif scale == "variance":
            x = (deviation if center == "mean" else x) / np.sqrt(
                (deviation**2).sum() / ((len(x) - 1) * x.shape[1])
            )
        elif center == "mean":
            x = deviation
        arrays.append(np.sqrt(weights.get(name, 1.0)) * x)
    return arrays


CASES = [
    ("parts", "none", {}),
    ("parts", "variance", WEIGHTS),
    ("parts", "zscore", WEIGHTS),
    ("CD-PNNMF", "variance", WEIGHTS),
    ("DL", "none", WEIGHTS),
    pytest.param("CD-SPNNMF", "none", {}, marks=pytest.mark.slow),
    *(
        (name, "variance", WEIGHTS)
        for name in ico.METHODS
        if name not in ("parts", "DL") and name[:2] != "CD"
    ),
]


def stacked(share: str, arrays: list[np.ndarray]) -> np.ndarray:
    """One below the other is more subjects; one beside the other is what two hemispheres are."""
    return np.vstack(arrays) if share == "maps" else np.hstack(arrays)


def fit_stacked(share: str, arrays: list[np.ndarray], method: str = "parts", **changes: Any) -> Any:
    """Fit arrays that are centred and scaled already."""
    center = "mean" if method == "parts" else "none"
    hemi = "left" if share == "maps" else "both"
    settings = {"center": center, "mesh": "fsaverage3", "hemi": hemi, **changes}
    return model(method, **settings).fit(stacked(share, arrays))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("method", "scale", "weights"), CASES)
def test_stacked_by_hand(
    pair: dict[str, ico.Cohort], share: str, method: str, scale: str, weights: dict[str, float]
) -> None:
    joined = ico.join_measures(pair, share, scale, weights)
    is_quick = method in ("parts", "DL") or method.startswith("CD")
    settings = {} if is_quick else {"n_iter": 60, "tol": 0.0}
    fitted = model(method, **settings).fit(joined)
    center = "mean" if method == "parts" else "none"
    arrays = by_hand(pair, scale, weights, "zscore" if scale == "zscore" else center)
    plain = fit_stacked(share, arrays, method, **settings)
    # What lies between measures is no variance between people, and does not order the components.
    order = ico.match_components(fitted, plain.components_).b
    components = plain.components_[order]
    atol = 1e-10 * components.max()
    np.testing.assert_allclose(fitted.components_, components, rtol=1e-10, atol=atol)
    np.testing.assert_allclose(fitted.loadings_, plain.loadings_[:, order], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(fitted.error_, plain.error_, rtol=1e-10)
    np.testing.assert_allclose(fitted.transform(joined), fitted.loadings_, rtol=1e-8, atol=1e-9)
    assert fitted.score(joined) == pytest.approx(fitted.explained_)
    variances = np.array([((x - x.mean(axis=0)) ** 2).sum() for x in arrays])
    assert fitted.total_variance_ == pytest.approx(variances.sum())
    np.testing.assert_allclose(fitted.measures_.variance, variances / variances.sum(), rtol=1e-9)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("scale", ["variance", "zscore"])
def test_scale_and_weights_are_kept_and_undone(
    pair: dict[str, ico.Cohort], tmp_path: Path, share: str, scale: str
) -> None:
    """New people are scaled by the fitted people's numbers; maps come back in each one's units."""
    fitted = model().fit(ico.join_measures(pair, share, scale, WEIGHTS))
    fitted.save(tmp_path / "model.zip")
    again = ico.load_model(tmp_path / "model.zip")
    people = {name: simulated(name, 5, seed) for seed, name in enumerate(pair, 3)}
    others = ico.join_measures(people, share)
    loadings = fitted.transform(others)
    np.testing.assert_array_equal(again.transform(others), loadings)
    plain = fitted.transform(np.asarray(others.X))
    np.testing.assert_allclose(plain, loadings, rtol=1e-12, atol=1e-13)
    maps = fitted.measures_.maps(fitted.components_)
    rows = fitted.measures_.split(loadings) if share == "maps" else dict.fromkeys(pair, loadings)
    halves = np.split(again.inverse_transform(loadings), 2, axis=0 if share == "maps" else 1)
    for (name, cohort), half in zip(pair.items(), halves, strict=True):
        x = cohort.X.astype(np.float64)
        size = x.std(axis=0, ddof=1) if scale == "zscore" else 1.0
        expected = x.mean(axis=0) + size * (rows[name] @ maps[name])
        np.testing.assert_allclose(half, expected, rtol=1e-9)


# ---------------------------------------------------------------------- parts of the people


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(
    ("method", "scale"), [("parts", "variance"), ("parts", "zscore"), ("CD-PNNMF", "variance")]
)
def test_people_left_out_change_no_bit(
    pair: dict[str, ico.Cohort], share: str, method: str, scale: str
) -> None:
    """Centre, scale and weights of a half or fold come from its people, on faces and sites."""
    joined = ico.join_measures(pair, share, scale, WEIGHTS)
    left_out = np.isin(np.arange(len(joined)) % N, np.arange(0, N, 3))
    train = np.flatnonzero(~left_out)
    center = "zscore" if scale == "zscore" else "mean" if method == "parts" else "none"
    data = gather(joined, 1, method_named(method), None, center)
    means = np.where(left_out[:, None], np.nan, data.coarse.means)
    spoilt = data.coarse.with_means(means)
    centred = [coarse.centred(train).means[train] for coarse in (data.coarse, spoilt)]
    np.testing.assert_array_equal(centred[0], centred[1])
    X = np.asarray(joined.X)
    poisoned = np.where(left_out[:, None], np.float32(np.nan), X)
    versions = (replace(data, X=Maps(X)), replace(data, X=Maps(poisoned), coarse=spoilt))
    fitter = Fitter(method, 2, 0)
    with np.errstate(invalid="ignore"):
        maps = [fit_full(version, fitter, K, train)[2] for version in versions]
    np.testing.assert_array_equal(maps[0], maps[1])


def test_scans_of_several_sessions(pair: dict[str, ico.Cohort]) -> None:
    """One scan per person is the same scan of every measure."""
    people = [f"sub-{i // 2 + 1:02d}" for i in range(N)]
    sessions = [f"ses-{i % 2 + 1}" for i in range(N)]
    table = {"participant_id": people, "session_id": sessions}
    names = tuple(f"{person}_{session}" for person, session in zip(people, sessions, strict=True))
    cohorts = {
        name: replace(cohort, subjects=names, participants=table) for name, cohort in pair.items()
    }
    joined = ico.join_measures(cohorts, "maps")
    with refused("fit_on"):
        choose_scans(joined)
    for fit_on in ("baseline", "one-per-person"):
        scans = choose_scans(joined, fit_on, seed=3)
        np.testing.assert_array_equal(scans.rows[:12] + N, scans.rows[12:])
        chosen = scans.of(joined)
        assert chosen.X.shape == (24, V) and scans.groups.n == 12  # type: ignore[union-attr]
        np.testing.assert_array_equal(np.asarray(chosen.X)[12:], pair["myelin"].X[scans.rows[:12]])


# ---------------------------------------------------------------------- what is refused, and how rows are named


def test_people_are_matched_by_name(pair: dict[str, ico.Cohort]) -> None:
    thickness, myelin = pair["thickness"], pair["myelin"]
    order = np.random.default_rng(0).permutation(N)
    shuffled = myelin[order]
    names = tuple(name.removeprefix("sub-") for name in shuffled.subjects)
    fewer = replace(shuffled, subjects=names)[: N - 2]
    with refused("missing"):
        ico.join_measures({"thickness": thickness, "myelin": fewer}, "maps")
    joined = ico.join_measures({"thickness": thickness, "myelin": fewer}, "maps", missing="skip")
    remaining = np.sort(order[: N - 2])
    expected = np.vstack([thickness.X[remaining], myelin.X[remaining]])
    assert list(joined.left_out) == [thickness.subjects[i] for i in np.sort(order[N - 2 :])]
    assert joined.subjects[0] == f"{thickness.subjects[remaining[0]]}_thickness"
    np.testing.assert_array_equal(np.asarray(joined.X), expected)
    np.testing.assert_array_equal(joined.X[[0, N], 3:5], expected[[0, N], 3:5])
    assert list(joined.participants)[:2] == ["participant_id", "measure"]
    with refused("which"):
        joined[:3]


def test_columns_that_differ_are_named_after_their_measure(pair: dict[str, ico.Cohort]) -> None:
    cohort = pair["thickness"]
    table = {**cohort.participants, "motion": np.arange(N)}
    cohorts = {
        "a": replace(cohort, participants=table),
        "b": replace(cohort, participants={**table, "motion": 2 * np.arange(N)}),
    }
    columns = set(ico.join_measures(cohorts, "loadings").participants)
    assert {"motion", "motion_b", "age"} <= columns and "age_b" not in columns


def test_wrong_measures(pair: dict[str, ico.Cohort]) -> None:
    a, b = pair["thickness"], pair["myelin"]
    finer = ico.simulate_cohort(N, K, mesh="fsaverage4")
    adjusted = ico.Covariates.fit(a, ["age"]).apply(a)
    twice = replace(a, subjects=(a.subjects[0], "0001", *a.subjects[2:]))
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        ("share", pair, {"share": "both"}),
        ("scale", pair, {"scale": "sd"}),
        ("missing", pair, {"missing": "drop"}),
        ("weights", pair, {"weights": {"area": 1}}),
        ("measures", [a, b], {}),
        ("measures", {"a b": a}, {}),
        ("measures", {"a": a, "A": b}, {"share": "loadings"}),
        ("measures", {"a": a.X}, {}),
        ("measures", {"a": a, "b": finer}, {}),
        ("measures", {"a": a, "b": replace(b, hemisphere="right")}, {}),
        ("measures", {"a": a[:4], "b": b[5:]}, {}),
        ("measures", {"a": adjusted}, {}),
        ("measures", {"a": replace(a, participants={"measure": ["x"] * N})}, {}),
        ("measures", {"a": twice, "b": b}, {"missing": "skip"}),
    ]
    for argument, measures, settings in cases:
        with refused(argument):
            ico.join_measures(measures, **{"share": "maps", **settings})


def test_measures_that_cannot_be_fitted(pair: dict[str, ico.Cohort]) -> None:
    a, b = pair["thickness"], pair["myelin"]
    joined = ico.join_measures(pair, "maps", "zscore")
    with refused("scale"):
        model("CD-PNNMF").fit(joined)
    with refused("center"):
        model(center="mean").fit(joined)
    for share in SHARES:
        with refused("X"):
            joined = ico.join_measures({"a": a[:5], "b": b[4:]}, share, missing="skip")
            model().set_params(n_components=2).fit(joined)
    alike = replace(b, X=np.tile(b.X[:1], (N, 1)))
    with refused("X"):
        model().fit(ico.join_measures({"a": a, "b": alike}, "maps", "variance"))


def test_new_people_must_be_joined_alike(pair: dict[str, ico.Cohort]) -> None:
    fitted = model().fit(ico.join_measures(pair, "maps", "variance"))
    for other in (
        pair["thickness"],
        ico.join_measures(dict(reversed(pair.items())), "maps"),
    ):
        with refused("X"):
            fitted.transform(other)
    with refused("X"):
        fitted.transform(pair["thickness"].X[:3])


def scanned(pair: dict[str, ico.Cohort]) -> dict[str, ico.Cohort]:
    """The same people, of two scanners that add to their maps and stretch them."""
    is_second = np.arange(N) % 2 == 1
    table = {**pair["thickness"].participants, "site": np.where(is_second, "B", "A")}
    shift = np.where(is_second, 0.5, 0.0)[:, None]
    return {
        name: replace(cohort, X=cohort.X * (1 + shift) + shift, participants=table)
        for name, cohort in pair.items()
    }


def confounded(X: Any, train: np.ndarray | None = None) -> Any:
    """Harmonized over site, then adjusted for age, by what the people `train` say."""
    training = X if train is None else X[train]
    combat = ico.preprocessing.ComBat("site", ["sex"], nonnegative=False, min_scans=3).fit(training)
    covariates = ico.Covariates.fit(combat.transform(training), ["age"], nonnegative=False)
    return covariates.apply(combat.transform(X))


@pytest.mark.parametrize("share", SHARES)
def test_confounds_are_those_of_each_measure_alone(
    pair: dict[str, ico.Cohort], share: str, tmp_path: Path
) -> None:
    """ComBat and covariates of joined measures are those of each, joined by hand."""
    cohorts = scanned(pair)
    joined = ico.join_measures(cohorts, share, "variance")
    alone = [confounded(cohort) for cohort in cohorts.values()]
    expected = stacked(share, [np.asarray(cohort.X) for cohort in alone])
    adjusted = confounded(joined)
    np.testing.assert_allclose(np.asarray(adjusted.X), expected, rtol=1e-10)
    explained = [steps_of(cohort)[-1].explained for cohort in alone]
    np.testing.assert_allclose(steps_of(adjusted)[-1].explained_each, explained, rtol=1e-10)
    # Maps that stay on disk.
    stored = {
        name: create_store(tmp_path / name, [cohort], chunk_sites=64)
        for name, cohort in cohorts.items()
    }
    streamed = confounded(ico.join_measures(stored, share, "variance"))
    np.testing.assert_allclose(np.asarray(streamed.X), expected, rtol=1e-10)
    with refused("X"):
        ico.Covariates.fit(adjusted, ["sex"])
    with refused("X"):
        steps_of(adjusted)[0].apply(ico.join_measures(dict(reversed(cohorts.items())), share))


@pytest.mark.parametrize("share", SHARES)
def test_a_model_adjusts_new_people(
    pair: dict[str, ico.Cohort], share: str, tmp_path: Path
) -> None:
    cohorts = scanned(pair)
    joined = ico.join_measures(cohorts, share, "variance")
    alone = [confounded(cohort) for cohort in cohorts.values()]
    fitted = model().fit(confounded(joined))
    maps = {str(i): SimpleNamespace(X=np.asarray(cohort.X)) for i, cohort in enumerate(alone)}
    plain = fit_stacked(share, by_hand(maps, "variance", {}, "mean"))
    order = ico.match_components(fitted, plain.components_).b
    np.testing.assert_allclose(fitted.components_, plain.components_[order], rtol=1e-10, atol=1e-10)
    fitted.save(tmp_path / "model.zip")
    again = ico.load_model(tmp_path / "model.zip")
    loadings = plain.loadings_[:, order]
    np.testing.assert_allclose(again.transform(joined), loadings, rtol=1e-8, atol=1e-9)
    # A scanner that the fit did not know.
    new = {
        name: replace(cohort, participants={**cohort.participants, "site": ["C"] * N})
        for name, cohort in cohorts.items()
    }
    steps = [steps_of(cohort)[0] for cohort in alone]
    expected = [np.asarray(step.apply(x).X) for step, x in zip(steps, new.values(), strict=True)]
    harmonized = again.harmonization_.apply(ico.join_measures(new, share))
    np.testing.assert_allclose(np.asarray(harmonized.X), stacked(share, expected), rtol=1e-10)


@pytest.mark.parametrize("share", SHARES)
def test_confounds_of_halves_are_estimated_in_them(pair: dict[str, ico.Cohort], share: str) -> None:
    """In a half, a fold and a resample, of each measure by itself."""
    cohorts = scanned(pair)
    joined = ico.join_measures(cohorts, share, "variance")
    train = np.flatnonzero(np.arange(N) % 3 > 0)
    rows = np.concatenate([train, train + N]) if share == "maps" else train
    alone = [np.asarray(confounded(cohort, train).X) for cohort in cohorts.values()]
    _, confounds = unadjusted(confounded(joined))
    people = np.random.default_rng(0).permutation(rows)
    adjusted = confounds.removed(joined.X, people, Arrangement.of(joined))
    np.testing.assert_allclose(adjusted, stacked(share, alone), rtol=1e-9)
    settings: dict[str, Any] = {"n_splits": 2, "n_starts": 2, "n_nulls": 5, "level": 1}
    combat = ico.preprocessing.ComBat("site", ["sex"], min_scans=3)
    steps = {"covariates": ["age"], "harmonize": combat}
    within = ico.choose_n_components(joined, [2], **settings, **steps)
    before = ico.choose_n_components(confounded(joined), [2], **settings)
    for name in ("heldout", "agreement"):
        np.testing.assert_allclose(within.table[name], before.table[name], rtol=1e-9)
    fitted = model().fit(confounded(joined))
    drawn, _ = _Resampling.of(fitted, joined, 0).drawn(rows)
    maps = {str(i): SimpleNamespace(X=X[train]) for i, X in enumerate(alone)}
    expected = stacked(share, by_hand(maps, "variance", {}, "mean"))
    np.testing.assert_allclose(drawn.subset(rows), expected, rtol=1e-8, atol=1e-9)
    assert bootstrap(fitted, joined, 2).component_se.shape == fitted.components_.shape


def test_one_measure_that_outweighs_the_others_is_warned_of(pair: dict[str, ico.Cohort]) -> None:
    small = replace(pair["myelin"], X=pair["myelin"].X / 10)
    measures = {"thickness": pair["thickness"], "reho": small}
    with pytest.warns(UserWarning, match="scale"):
        model().fit(ico.join_measures(measures, "loadings"))
    # Chosen so: warnings are errors, and there is none.
    model().fit(ico.join_measures(measures, "loadings", weights={"thickness": 9}))


@pytest.mark.parametrize("share", SHARES)
def test_measures_of_parcels(pair: dict[str, ico.Cohort], share: str) -> None:
    """Parcels are sites like others, with the weights of sites."""
    labels = 1 + np.arange(V) % 24
    sites = ico.Sites.parcels((labels, "fsaverage3"))
    parcels = {}
    for name, cohort in pair.items():
        means = [cohort.X[:, labels == label].mean(axis=1) for label in range(1, 25)]
        X = np.stack(means, axis=1)
        parcels[name] = ico.Cohort(X, cohort.subjects, sites, hemisphere="left", modality=name)
    fitted = model().fit(ico.join_measures(parcels, share, "variance"))
    weights = sites.weights / sites.weights.mean()
    arrays = []
    for cohort in parcels.values():
        x = cohort.X.astype(np.float64)
        x = x / np.sqrt((x.var(axis=0) * weights).sum())
        arrays.append(x - x.mean(axis=0))
    mesh = sites if share == "maps" else sites.repeated(2)
    plain = model(mesh=mesh).fit(stacked(share, arrays))
    np.testing.assert_allclose(fitted.loadings_, plain.loadings_, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("share", SHARES)
def test_a_file_whose_measures_do_not_go_together_is_refused(
    pair: dict[str, ico.Cohort], tmp_path: Path, share: str
) -> None:
    model().fit(ico.join_measures(pair, share, "variance")).save(tmp_path / "model.zip")
    record = MODEL_FILE.load(tmp_path / "model.zip")
    other_share = "loadings" if share == "maps" else "maps"
    for changes in ({"factor": None}, {"share": other_share}):
        measures = replace(record.centering.measures, **changes)
        centering = replace(record.centering, measures=measures)
        other = replace(record, centering=centering)
        MODEL_FILE.save(other, tmp_path / "other.zip", overwrite=True)
        with refused("other.zip"):
            ico.load_model(tmp_path / "other.zip")
