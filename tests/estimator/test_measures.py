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
from icofactor.assessment.selection.heldout import _full_fit
from icofactor.cohort import create_store
from icofactor.cohort.measures import Arrangement
from icofactor.cohort.people import choose_scans
from icofactor.errors import ArgumentError
from icofactor.estimator.saving import MODEL_FILE
from icofactor.factorization.methods import method_named
from icofactor.maps.maps import Maps
from icofactor.preprocessing.adjusted import steps_of
from icofactor.preprocessing.confounds import unadjusted
from icofactor.results.transform import loadings_of

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
    found = []
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
        found.append(np.sqrt(weights.get(name, 1.0)) * x)
    return found


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


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("method", "scale", "weights"), CASES)
def test_stacked_by_hand(
    pair: dict[str, ico.Cohort], share: str, method: str, scale: str, weights: dict[str, float]
) -> None:
    """One below the other is more subjects; one beside the other is what two hemispheres are."""
    joined = ico.join_measures(pair, share, scale, weights)
    few = {} if method in ("parts", "DL") or method.startswith("CD") else {"n_iter": 60, "tol": 0.0}
    found = model(method, **few).fit(joined)
    own = "zscore" if scale == "zscore" else "mean" if method == "parts" else "none"
    arrays = by_hand(pair, scale, weights, own)
    X = np.vstack(arrays) if share == "maps" else np.hstack(arrays)
    plain = model(method, **few, center="mean" if method == "parts" else "none", mesh="fsaverage3")
    plain.set_params(hemi="left" if share == "maps" else "both").fit(X)
    # what lies between measures is not variance between people, and does not order the components
    order = ico.match_components(found, plain.components_).b
    components = plain.components_[order]
    np.testing.assert_allclose(
        found.components_, components, rtol=1e-10, atol=1e-10 * components.max()
    )
    np.testing.assert_allclose(found.loadings_, plain.loadings_[:, order], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(found.error_, plain.error_, rtol=1e-10)
    np.testing.assert_allclose(found.transform(joined), found.loadings_, rtol=1e-8, atol=1e-9)
    assert found.score(joined) == pytest.approx(found.explained_)
    groups = arrays if share == "maps" else [X]
    total = sum(((x - x.mean(axis=0)) ** 2).sum() for x in groups)
    assert found.total_variance_ == pytest.approx(total)
    shares = np.array([((x - x.mean(axis=0)) ** 2).sum() for x in arrays]) / total
    np.testing.assert_allclose(found.measures_.variance, shares, rtol=1e-9)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("method", ["parts", "CD-PNNMF"])
def test_one_measure_alone_is_the_plain_fit(
    pair: dict[str, ico.Cohort], share: str, method: str
) -> None:
    cohort = pair["thickness"]
    plain, alone = (
        model(method).fit(cohort),
        model(method).fit(ico.join_measures({"thickness": cohort}, share)),
    )
    np.testing.assert_allclose(alone.components_, plain.components_, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(alone.loadings_, plain.loadings_, rtol=1e-10, atol=1e-12)
    assert alone.explained_ == pytest.approx(plain.explained_, rel=1e-12)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("scale", ["variance", "zscore"])
def test_scale_and_weights_are_kept_and_undone(
    pair: dict[str, ico.Cohort], tmp_path: Path, share: str, scale: str
) -> None:
    """New people are scaled by the fitted people's numbers, and maps come back in each measure's units."""
    found = model().fit(ico.join_measures(pair, share, scale, WEIGHTS))
    found.save(tmp_path / "model.zip")
    again = ico.load_model(tmp_path / "model.zip")
    others = ico.join_measures(
        {"thickness": simulated("thickness", 5, 3), "myelin": simulated("myelin", 5, 4)}, share
    )
    loadings = found.transform(others)
    np.testing.assert_array_equal(again.transform(others), loadings)
    np.testing.assert_allclose(
        found.transform(np.asarray(others.X)), loadings, rtol=1e-12, atol=1e-13
    )
    maps = found.measures_.maps(found.components_)
    parts = found.measures_.split(loadings) if share == "maps" else dict.fromkeys(pair, loadings)
    back = np.asarray(again.inverse_transform(loadings))
    halves = np.split(back, 2, axis=0 if share == "maps" else 1)
    for (name, cohort), half in zip(pair.items(), halves, strict=True):
        x = cohort.X.astype(np.float64)
        size = x.std(axis=0, ddof=1) if scale == "zscore" else 1.0
        np.testing.assert_allclose(
            half, x.mean(axis=0) + size * (parts[name] @ maps[name]), rtol=1e-9
        )


@pytest.mark.parametrize("share", SHARES)
def test_masked_sites_come_back_as_zero(pair: dict[str, ico.Cohort], share: str) -> None:
    mask = np.arange(pair["myelin"].sites.n) % 5 > 0
    joined = ico.join_measures(
        {name: replace(cohort, mask=mask) for name, cohort in pair.items()}, share, "variance"
    )
    found = model().fit(joined)
    maps = found.inverse_transform(found.loadings_)
    assert np.isfinite(maps).all()
    assert not maps[:, ~np.asarray(joined.mask)].any()


@pytest.mark.parametrize("share", SHARES)
def test_negative_values_are_named_of_all_measures(pair: dict[str, ico.Cohort], share: str) -> None:
    changed = {}
    for row, (name, cohort) in enumerate(pair.items()):
        X = cohort.X.copy()
        X[row, 3] = -1 - row
        changed[name] = replace(cohort, X=X)
    with pytest.raises(ArgumentError) as caught:
        model("CD-PNNMF").fit(ico.join_measures(changed, share, "variance"))
    subjects = pair["myelin"].subjects
    assert subjects[0] in str(caught.value) and subjects[1] in str(caught.value)
    assert "-2" in str(caught.value)


@pytest.mark.parametrize("share", SHARES)
def test_stores_are_read_once_more_than_those_of_one_measure(
    pair: dict[str, ico.Cohort], tmp_path: Path, share: str
) -> None:
    opened = {
        name: create_store(tmp_path / name, [cohort], chunk_sites=64)
        for name, cohort in pair.items()
    }
    for scale, method in (("variance", "parts"), ("zscore", "parts"), ("variance", "CD-PNNMF")):
        held = model(method).fit(ico.join_measures(pair, share, scale))
        found = model(method).fit(ico.join_measures(opened, share, scale))
        np.testing.assert_allclose(found.components_, held.components_, rtol=1e-8, atol=1e-9)
        assert found.passes_ == 3
        assert found.bytes_read_ == 3 * 2 * pair["myelin"].X.nbytes


# ---------------------------------------------------------------------- parts of the people


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(
    ("method", "scale"), [("parts", "variance"), ("parts", "zscore"), ("CD-PNNMF", "variance")]
)
def test_people_left_out_change_no_bit(
    pair: dict[str, ico.Cohort], share: str, method: str, scale: str
) -> None:
    """Centre, scale and weights of a half, fold or resample come from its own people: on faces and at every site."""
    joined = ico.join_measures(pair, share, scale, WEIGHTS)
    left_out = np.arange(0, N, 3)
    center = "zscore" if scale == "zscore" else "mean" if method == "parts" else "none"
    clean, fit = (
        gather(joined, 1, method_named(method), None, center),
        Fitter(method, 2, 0),
    )
    rows = np.arange(len(joined))
    out = np.isin(rows % N, left_out)
    train = np.flatnonzero(~out)
    other = clean.coarse.with_means(np.where(out[:, None], np.nan, clean.coarse.means))
    views = [data.centred(train) for data in (clean.coarse, other)]
    np.testing.assert_array_equal(views[0].means[train], views[1].means[train])
    held = np.asarray(joined.X)
    poisoned = np.where(out[:, None], np.float32(np.nan), held)
    same, spoilt = (
        replace(clean, X=Maps(held)),
        replace(clean, X=Maps(poisoned), coarse=other),
    )
    with np.errstate(invalid="ignore"):
        W, changed = (_full_fit(data, fit, K, train)[1] for data in (same, spoilt))
    np.testing.assert_array_equal(changed, W)
    # and what is left is what a cohort without them is
    alone = ico.join_measures(
        {name: one[np.setdiff1d(np.arange(N), left_out)] for name, one in pair.items()},
        share,
        scale,
        WEIGHTS,
    )
    less = gather(alone, 1, method_named(method), None, center).coarse
    np.testing.assert_allclose(
        views[0].means[train], less.centred(np.arange(len(alone))).means, rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("share", SHARES)
def test_resamples_draw_people_and_scale_anew(pair: dict[str, ico.Cohort], share: str) -> None:
    joined = ico.join_measures(pair, share, "variance")
    fitted = model().fit(joined)
    work = _Resampling.of(fitted, joined, 0)
    who = (
        np.arange(len(joined))
        if work.groups is None
        else work.groups.resample(np.random.default_rng(1))
    )
    if share == "loadings":
        who = np.random.default_rng(1).integers(N, size=N)
    counts = np.bincount(who % N, minlength=N)
    assert (counts % (2 if share == "maps" else 1) == 0).all() and len(who) == len(joined)
    X, stats = work.drawn(who)
    order = who if share == "loadings" else np.concatenate([who[who < N], who[who >= N]])
    drawn = {name: replace(one, X=one.X[order[:N] % N], checked=True) for name, one in pair.items()}
    arrays = by_hand(drawn, "variance", {}, "mean")
    expected = np.vstack(arrays) if share == "maps" else np.hstack(arrays)
    np.testing.assert_allclose(X.subset(order), expected, rtol=1e-6, atol=1e-6)
    assert bootstrap(fitted, joined, 2).component_se.shape == fitted.components_.shape
    assert stats.n_subjects == len(who)


@pytest.mark.parametrize("share", SHARES)
def test_selection_keeps_people_whole(pair: dict[str, ico.Cohort], share: str) -> None:
    joined = ico.join_measures(pair, share, "variance")
    scans = choose_scans(joined)
    if share == "maps":
        assert scans.groups is not None and scans.n_groups == N
        part = scans.groups.deal(np.zeros(2 * N, dtype=np.int64), 2, np.random.default_rng(0))
        np.testing.assert_array_equal(part[:N], part[N:])
    choice = ico.choose_n_components(joined, [2, 3], n_splits=2, n_starts=2, n_nulls=5, level=1)
    assert np.isfinite(choice.table["agreement"]).all() and (choice.table["heldout"] < 1).all()
    with refused("ranks", "at most 12"):
        ico.choose_n_components(joined, [13], n_splits=2, n_starts=2, n_nulls=5, level=1)


def test_scans_of_several_sessions(pair: dict[str, ico.Cohort]) -> None:
    """One scan per person is the same scan of every measure."""
    names = [f"sub-{i // 2 + 1:02d}_ses-{i % 2 + 1}" for i in range(N)]
    table = {
        "participant_id": [name[:6] for name in names],
        "session_id": [name[11:] for name in names],
    }
    both = {
        name: replace(one, subjects=tuple(names), participants=table) for name, one in pair.items()
    }
    joined = ico.join_measures(both, "maps")
    with refused("fit_on", "24 scans of 12 people"):
        choose_scans(joined)
    for which in ("baseline", "one-per-person"):
        scans = choose_scans(joined, which, seed=3)
        np.testing.assert_array_equal(scans.rows[:12] + N, scans.rows[12:])
        chosen = scans.of(joined)
        assert chosen.X.shape == (24, V) and scans.n_groups == 12
        np.testing.assert_array_equal(np.asarray(chosen.X)[12:], pair["myelin"].X[scans.rows[:12]])


# ---------------------------------------------------------------------- what is refused, and how rows are named


def test_people_are_matched_by_name(pair: dict[str, ico.Cohort]) -> None:
    a, b = pair["thickness"], pair["myelin"]
    shuffled = replace(
        b[np.random.default_rng(0).permutation(N)][:-2],
        subjects=tuple(f"x{i}" for i in range(N - 2)),
    )
    order = np.random.default_rng(0).permutation(N)
    shuffled = b[order]
    less = replace(
        shuffled, subjects=tuple(name.removeprefix("sub-") for name in shuffled.subjects)
    )[: N - 2]
    with refused("missing", f"2 of {N} .*\\(myelin\\)"):
        ico.join_measures({"thickness": a, "myelin": less}, "maps")
    joined = ico.join_measures({"thickness": a, "myelin": less}, "maps", missing="skip")
    kept = np.sort(order[: N - 2])
    assert list(joined.left_out) == [a.subjects[i] for i in np.sort(order[N - 2 :])]
    assert joined.subjects[:1] == (f"{a.subjects[kept[0]]}_thickness",)
    np.testing.assert_array_equal(np.asarray(joined.X), np.vstack([a.X[kept], b.X[kept]]))
    assert list(joined.participants)[:2] == ["participant_id", "measure"]
    np.testing.assert_array_equal(
        joined.X[[0, N], 3:5], np.vstack([a.X[kept], b.X[kept]])[[0, N], 3:5]
    )
    with refused("which", "the same people in the same order for every measure"):
        joined[:3]


def test_columns_that_differ_are_named_after_their_measure(pair: dict[str, ico.Cohort]) -> None:
    a, b = pair["thickness"], pair["myelin"]
    tables = [{**one.participants, "motion": np.arange(N) * f} for one, f in ((a, 1), (b, 2))]
    cohorts = {
        "a": replace(a, participants=tables[0]),
        "b": replace(b, participants={**tables[1], "age": a.participants["age"]}),
    }
    joined = ico.join_measures(cohorts, "loadings").participants
    assert {"motion", "motion_b", "age"} <= set(joined) and "age_b" not in joined


def test_wrong_measures(pair: dict[str, ico.Cohort]) -> None:
    a, b = pair["thickness"], pair["myelin"]
    refusals: list[tuple[str, str, Any, dict[str, Any]]] = [
        ("share", "one of 'maps', 'loadings'", pair, {"share": "both"}),
        ("scale", "'zscore'", pair, {"share": "maps", "scale": "sd"}),
        ("missing", "'skip'", pair, {"share": "maps", "missing": "drop"}),
        ("measures", "name → cohort", [a, b], {"share": "maps"}),
        ("measures", "letters and digits", {"a b": a}, {"share": "maps"}),
        ("measures", "only in case", {"a": a, "A": b}, {"share": "loadings"}),
        ("measures", "no cohort", {"a": a.X}, {"share": "maps"}),
        (
            "measures",
            "on one mesh",
            {"a": a, "b": ico.simulate_cohort(N, K, mesh="fsaverage4")},
            {"share": "maps"},
        ),
        (
            "measures",
            "on one mesh",
            {"a": a, "b": replace(b, hemisphere="right")},
            {"share": "maps"},
        ),
        ("measures", "no person in common", {"a": a[:4], "b": b[5:]}, {"share": "maps"}),
        (
            "measures",
            "adjusted already",
            {"a": ico.Covariates.fit(a, ["age"]).apply(a)},
            {"share": "maps"},
        ),
        (
            "measures",
            "'measure'",
            {"a": replace(a, participants={"measure": ["x"] * N})},
            {"share": "maps"},
        ),
        ("weights", "measure → number", pair, {"share": "maps", "weights": {"area": 1}}),
        ("weights", "positive", pair, {"share": "maps", "weights": {"myelin": 0}}),
        ("measures", "name → cohort", {}, {"share": "maps"}),
        (
            "measures",
            "a has sub-0001 and 0001, which are one person",
            {"a": replace(a, subjects=(a.subjects[0], "0001", *a.subjects[2:])), "b": b},
            {"share": "maps", "missing": "skip"},
        ),
    ]
    for argument, message, measures, given in refusals:
        with refused(argument, message):
            ico.join_measures(measures, **given)
    joined = ico.join_measures(pair, "maps", "zscore")
    with refused("scale", "makes values negative"):
        model("CD-PNNMF").fit(joined)
    with refused("center", "contradicts"):
        model(center="mean").fit(joined)
    assert ico.join_measures(
        pair, "maps", weights={"myelin": np.int64(2)}
    ).measures.weights.tolist() == [1, 2]
    for share in SHARES:
        with refused("X", "has 1 "):
            one = ico.join_measures({"thickness": a[:5], "myelin": b[4:]}, share, missing="skip")
            model().set_params(n_components=2).fit(one)
    flat = replace(b, X=np.tile(b.X[:1], (N, 1)))
    with refused("X", "the same in all"):
        model().fit(ico.join_measures({"thickness": a, "myelin": flat}, "maps", "variance"))


def test_new_people_must_be_joined_alike(pair: dict[str, ico.Cohort]) -> None:
    fitted = model().fit(ico.join_measures(pair, "maps", "variance"))
    for other in (
        pair["thickness"],
        ico.join_measures(dict(reversed(pair.items())), "maps"),
    ):
        with refused("X", "the fit had"):
            fitted.transform(other)
    with refused("X", "one row per person"):
        fitted.transform(pair["thickness"].X[:3])


def scanned(pair: dict[str, ico.Cohort]) -> dict[str, ico.Cohort]:
    """The same people, of two scanners that add to their maps and stretch them."""
    at = np.arange(N) % 2 == 1
    table = {**pair["thickness"].participants, "site": np.where(at, "B", "A")}
    shift = np.where(at, 0.5, 0.0)[:, None]
    return {
        name: replace(one, X=one.X * (1 + shift) + shift, participants=table)
        for name, one in pair.items()
    }


def confounded(X: Any, train: np.ndarray | None = None) -> Any:
    """Harmonized over site, then adjusted for age, by what the people `train` say."""
    own = X if train is None else X[train]
    combat = ico.preprocessing.ComBat("site", ["sex"], nonnegative=False, min_scans=3).fit(own)
    covariates = ico.Covariates.fit(combat.transform(own), ["age"], nonnegative=False)
    return covariates.apply(combat.transform(X))


@pytest.mark.parametrize("share", SHARES)
def test_confounds_are_those_of_each_measure_alone(
    pair: dict[str, ico.Cohort], share: str, tmp_path: Path
) -> None:
    """ComBat and covariates of joined measures are those of each, joined by hand; the model does so to new people."""
    cohorts = scanned(pair)
    joined, stack = (
        ico.join_measures(cohorts, share, "variance"),
        np.vstack if share == "maps" else np.hstack,
    )
    each = [confounded(one) for one in cohorts.values()]
    expected = stack([np.asarray(one.X) for one in each])
    adjusted = confounded(joined)
    np.testing.assert_allclose(np.asarray(adjusted.X), expected, rtol=1e-10)
    np.testing.assert_allclose(adjusted.X[:, 5], expected[:, 5], rtol=1e-10)
    shares = [steps_of(one)[-1].explained for one in each]
    np.testing.assert_allclose(steps_of(adjusted)[-1].explained_each, shares, rtol=1e-10)
    found = model().fit(adjusted)
    arrays = by_hand(
        {str(i): SimpleNamespace(X=np.asarray(one.X)) for i, one in enumerate(each)},
        "variance",
        {},
        "mean",
    )
    plain = model(mesh="fsaverage3", hemi="left" if share == "maps" else "both").fit(stack(arrays))
    order = ico.match_components(found, plain.components_).b
    np.testing.assert_allclose(found.components_, plain.components_[order], rtol=1e-10, atol=1e-10)
    found.save(tmp_path / "model.zip")
    again = ico.load_model(tmp_path / "model.zip")
    np.testing.assert_allclose(
        again.transform(joined), plain.loadings_[:, order], rtol=1e-8, atol=1e-9
    )
    # new people, of a scanner that the fit did not know; and with maps that stay on disk
    new = {
        name: replace(one, participants={**one.participants, "site": ["C"] * N})
        for name, one in cohorts.items()
    }
    alone = [
        np.asarray(steps_of(one)[0].apply(of).X) for one, of in zip(each, new.values(), strict=True)
    ]
    maps = again.harmonization_.apply(ico.join_measures(new, share))
    np.testing.assert_allclose(np.asarray(maps.X), stack(alone), rtol=1e-10)
    stored = {
        name: create_store(tmp_path / name, [one], chunk_sites=64) for name, one in cohorts.items()
    }
    streamed = confounded(ico.join_measures(stored, share, "variance"))
    np.testing.assert_allclose(np.asarray(streamed.X), expected, rtol=1e-10)
    np.testing.assert_allclose(
        model().fit(streamed).components_, found.components_, rtol=1e-8, atol=1e-9
    )
    with refused("X", "already"):
        ico.Covariates.fit(adjusted, ["sex"])
    with refused("X", "fitted on thickness, myelin; X is myelin, thickness"):
        steps_of(adjusted)[0].apply(ico.join_measures(dict(reversed(cohorts.items())), share))
    holes = {name: replace(one, X=one.X.copy(), checked=True) for name, one in cohorts.items()}
    holes["myelin"].X[0, :9] = np.nan  # new people may lack a few sites
    near = loadings_of(again, ico.join_measures(holes, share))
    np.testing.assert_allclose(near.loadings, found.loadings_, atol=0.1)
    assert near.quality["missing_sites"].sum() == 9


@pytest.mark.parametrize("share", SHARES)
def test_confounds_of_halves_are_found_in_them(pair: dict[str, ico.Cohort], share: str) -> None:
    """In a half, a fold and a resample, of each measure by itself: as `confounded` finds them in these people."""
    cohorts = scanned(pair)
    joined = ico.join_measures(cohorts, share, "variance")
    train = np.flatnonzero(np.arange(N) % 3 > 0)
    rows = np.concatenate([train, train + N]) if share == "maps" else train
    stack = np.vstack if share == "maps" else np.hstack
    expected = stack([np.asarray(confounded(one, train).X) for one in cohorts.values()])
    _, confounds = unadjusted(confounded(joined))
    assert confounds is not None
    people = np.random.default_rng(0).permutation(rows)
    found = confounds.removed(joined.X, people, Arrangement.of(joined))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    coarse = gather(joined, 1, method_named("parts"), None, "mean", confounds).coarse
    alone = []
    for one in cohorts.values():
        mine = gather(
            one, 1, method_named("parts"), None, "mean", unadjusted(confounded(one))[1]
        ).coarse
        alone.append(mine.adjusted(train).means)
    np.testing.assert_allclose(coarse.adjusted(rows).means, stack(alone), rtol=1e-10)
    settings: dict[str, Any] = {"n_splits": 2, "n_starts": 2, "n_nulls": 5, "level": 1}
    combat = ico.preprocessing.ComBat("site", ["sex"], min_scans=3)
    asked = ico.choose_n_components(joined, [2], **settings, covariates=["age"], harmonize=combat)
    before = ico.choose_n_components(confounded(joined), [2], **settings)
    for name in ("heldout", "agreement"):
        np.testing.assert_allclose(asked.table[name], before.table[name], rtol=1e-9)
    fitted = model().fit(confounded(joined))
    work = _Resampling.of(fitted, joined, 0)
    drawn, _ = work.drawn(rows)
    own = {
        name: SimpleNamespace(X=np.asarray(confounded(one, train).X)[train])
        for name, one in cohorts.items()
    }
    centred = by_hand(own, "variance", {}, "mean")
    np.testing.assert_allclose(drawn.subset(rows), stack(centred), rtol=1e-8, atol=1e-9)
    assert bootstrap(fitted, joined, 2).component_se.shape == fitted.components_.shape


def test_one_measure_that_outweighs_the_others_is_named(pair: dict[str, ico.Cohort]) -> None:
    small = {
        "thickness": pair["thickness"],
        "reho": replace(pair["myelin"], X=pair["myelin"].X / 10),
    }
    with pytest.warns(
        UserWarning,
        match=r"thickness has 99\.\d % of the variance of all measures.*scale='variance'",
    ):
        model().fit(ico.join_measures(small, "loadings"))
    model().fit(ico.join_measures(small, "loadings", weights={"thickness": 9}))  # as it was chosen


def test_measures_count_by_the_area_of_their_sites(pair: dict[str, ico.Cohort]) -> None:
    """One weight per site for every measure, as for two hemispheres of a sphere; total variances are weighted too."""
    area = np.random.default_rng(0).uniform(0.5, 2, V)
    joined = model(weights=np.tile(area, 2)).fit(ico.join_measures(pair, "loadings", "variance"))
    X = np.hstack(
        [
            x / np.sqrt((x.var(axis=0) * area).sum())
            for x in (one.X.astype(np.float64) for one in pair.values())
        ]
    )
    plain = model(weights=np.tile(area, 2), mesh="fsaverage3", hemi="both").fit(X)
    np.testing.assert_allclose(joined.explained_, plain.explained_, rtol=1e-9)
    np.testing.assert_allclose(joined.loadings_, plain.loadings_, rtol=1e-7, atol=1e-8)
    by_name = model(weights="area").fit(ico.join_measures(pair, "loadings", "variance"))
    np.testing.assert_allclose(by_name.weights_[:V], by_name.weights_[V:])


@pytest.mark.parametrize("share", SHARES)
def test_measures_of_parcels(pair: dict[str, ico.Cohort], share: str) -> None:
    """Parcels are sites like others: the same as their arrays stacked by hand, weights of sites included."""
    labels = 1 + np.arange(V) % 24
    sites = ico.Sites.parcels((labels, "fsaverage3"))
    means = lambda X: np.stack([X[:, labels == one].mean(axis=1) for one in range(1, 25)], axis=1)
    parcels = {
        name: ico.Cohort(means(one.X), one.subjects, sites, hemisphere="left", modality=name)
        for name, one in pair.items()
    }
    found = model().fit(ico.join_measures(parcels, share, "variance"))
    w = sites.weights / sites.weights.mean()
    arrays = [
        x / np.sqrt((x.var(axis=0) * w).sum())
        for x in (one.X.astype(np.float64) for one in parcels.values())
    ]
    deviations = [x - x.mean(axis=0) for x in arrays]
    plain = model(mesh=sites if share == "maps" else sites.repeated(2))
    plain.fit((np.vstack if share == "maps" else np.hstack)(deviations))
    np.testing.assert_allclose(found.loadings_, plain.loadings_, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("share", SHARES)
def test_a_file_whose_measures_do_not_go_together_is_refused(
    pair: dict[str, ico.Cohort], tmp_path: Path, share: str
) -> None:
    model().fit(ico.join_measures(pair, share, "variance")).save(tmp_path / "model.zip")
    record = MODEL_FILE.load(tmp_path / "model.zip")
    wrong = {
        "factor": None,
        "share": "loadings" if share == "maps" else "maps",
        "names": ("thickness",),
    }
    for name, value in wrong.items():
        more = {
            "units": ("mm",),
            "weights": np.ones(1),
            "factor": np.ones(1),
            "variance": np.ones(1),
            "mean": None,
        }
        changed = replace(record.measures, **{name: value}, **(more if name == "names" else {}))
        MODEL_FILE.save(replace(record, measures=changed), tmp_path / "other.zip", overwrite=True)
        with refused("other.zip", "its measures"):
            ico.load_model(tmp_path / "other.zip")
