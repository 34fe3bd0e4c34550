"""choose_n_components: finds what is there, says when nothing is, goes on where it stopped."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import icofactor as ico
from helpers.coarse_cohorts import SMALL, gathered, smooth_noise, three_components, with_X
from helpers.refusals import refused
from icofactor.assessment.selection.choice import Choice
from icofactor.assessment.selection.choose import DEFAULT_RANKS, check_subjects, choose_n_components
from icofactor.assessment.selection.data import Coarse
from icofactor.assessment.selection.nulls import spun_cohort
from icofactor.assessment.selection.recommend import Evidence, other_good, recommend
from icofactor.cohort.people import RowGroups
from icofactor.cohort.store.create import save_store
from icofactor.cohort.store.read import open_store

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def choice() -> Choice:
    return choose_n_components(three_components(), range(2, 7), **SMALL)  # type: ignore[arg-type]


def test_the_number_of_components_is_found(choice: Choice) -> None:
    assert choice.recommended == 3


def test_the_table(choice: Choice) -> None:
    t = choice.table
    np.testing.assert_array_equal(t["rank"], range(2, 7))
    assert np.all(np.diff(t["error"]) < 0) and np.all(t["error"] > 0)
    np.testing.assert_allclose(t["gain"][1:], -np.diff(t["error"]), rtol=1e-12)
    # what was fitted fits better than what was not
    assert np.all(t["heldout"] > t["error"]) and np.all(t["bicv"] > t["error"])
    np.testing.assert_allclose(t["agreement"], (t["correlation"] + t["ari"]) / 2, rtol=1e-12)
    np.testing.assert_allclose(
        t["excess"], t["agreement"] - t["null_agreement"], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        t["score"], (1 - t["bicv"]) * t["excess"] / (1 - t["null_agreement"]), rtol=1e-9
    )
    assert t["bicv"][1] < t["bicv"][0] - 0.05


def test_a_rank_s_numbers_do_not_depend_on_the_others(choice: Choice) -> None:
    two_ranks = choose_n_components(three_components(), [4, 3], **SMALL)  # type: ignore[arg-type]
    np.testing.assert_array_equal(two_ranks.table["rank"], [3, 4])
    for name in ("error", "heldout", "bicv", "agreement", "null_agreement", "cophenetic"):
        np.testing.assert_array_equal(two_ranks.table[name], choice.table[name][1:3])


def test_it_is_written(choice: Choice, tmp_path: Path) -> None:
    files = choice.save(tmp_path / "new" / "folder")
    assert [file.name for file in files] == ["selection.tsv", "selection.json", "selection.png"]
    record = json.loads(files[1].read_text())
    assert record["recommended"] == 3 and record["reasons"] == list(choice.reasons)
    assert record["table"]["rank"] == [2, 3, 4, 5, 6] and record["table"]["gain"][0] is None
    with pytest.raises(FileExistsError):
        choice.save(files[0].parent)
    choice.save(files[0].parent, overwrite=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"ranks": [1, 2]},
        {"ranks": []},
        {"ranks": [25]},
        {"n_splits": 1},
        {"n_nulls": 2},
        {"random_state": -1},
        {"level": -1},
        {"ranks": [2, 14], "level": 0},
        {"executor": 4},
    ],
)
def test_what_cannot_be_done_is_refused(changes: dict[str, object]) -> None:
    arguments = {"ranks": [2, 3], **SMALL, **changes}
    with refused(next(iter(changes))):
        choose_n_components(three_components(), **arguments)  # type: ignore[arg-type]


def test_a_store_is_passed_over_once_and_gives_the_same_curves(
    choice: Choice, tmp_path: Path
) -> None:
    """In the order on disk: in the mesh's own order every block of sites would be everywhere in the store."""
    save_store(three_components(), tmp_path / "store")
    store = open_store(tmp_path / "store")
    gathered(store)
    assert store.X.counter.n_bytes == store.X.n_bytes
    from_store = choose_n_components(store, [3, 4], **SMALL)  # type: ignore[arg-type]
    for name in ("error", "bicv", "agreement", "null_agreement"):
        np.testing.assert_allclose(from_store.table[name], choice.table[name][1:3], rtol=1e-5)
    # Passes elsewhere have the same bits.
    with ProcessPoolExecutor(1, get_context("forkserver")) as executor:
        elsewhere = choose_n_components(store, [3, 4], executor=executor, **SMALL)  # type: ignore[arg-type]
    np.testing.assert_equal(elsewhere.table, from_store.table)


def test_what_the_subjects_do_not_allow_is_refused_before_the_maps_are_read(tmp_path: Path) -> None:
    save_store(three_components(), tmp_path / "store")
    store = open_store(tmp_path / "store")
    shutil.rmtree(tmp_path / "store")  # whoever reads now fails otherwise
    with refused("ranks"):
        choose_n_components(store, [30])
    with refused("stratify"):
        choose_n_components(store, [3], stratify=["scanner"])


def test_one_number_and_one_start_may_be_tried() -> None:
    choice = choose_n_components(three_components(), [3], **{**SMALL, "n_starts": 1})  # type: ignore[arg-type]
    assert np.isnan(choice.table["cophenetic"][0])
    assert choice.plot().axes
    nothing = choose_n_components(smooth_noise(), [3], **SMALL)  # type: ignore[arg-type]
    assert nothing.recommended is None


def test_the_fewest_subjects() -> None:
    four = with_X(three_components(), three_components().X, np.arange(4))
    choice = choose_n_components(four, [2], **SMALL)  # type: ignore[arg-type]
    assert np.isfinite(
        [choice.table[name][0] for name in ("error", "heldout", "bicv", "agreement")]
    ).all()
    with refused("cohort"):
        choose_n_components(with_X(four, four.X, np.arange(3)), [2])


def test_other_methods_and_arrays() -> None:
    small = ico.simulate_cohort(24, 3, mesh="fsaverage3", random_state=0)
    settings = {**SMALL, "n_starts": 2, "n_splits": 2}
    signed = choose_n_components(
        small.X - small.X.mean(), [2], mesh="fsaverage3", method="E-DL", **settings
    )  # type: ignore[arg-type]
    assert 0 < signed.table["bicv"][0] < 1.2
    projective = choose_n_components(
        small.X, [2], mesh="fsaverage3", hemi="left", method="LE-PPNMF", **settings
    )  # type: ignore[arg-type]
    assert 0 < projective.table["heldout"][0] < 1.2


# ---------------------------------------------------------------------- the rule


def evidence(
    agreement: list[float],
    null: list[float],
    error: list[float],
    spread: float = 0.02,
    shared: float = 0.0,
    noise: float = 0.001,
) -> Evidence:
    """Evidence with these means; nulls differ by `spread`, and leave `shared` more variance."""
    rng = np.random.default_rng(0)
    n = len(agreement)
    split = np.array(agreement)[:, None, None] + noise * rng.standard_normal((n, 6, 4))
    deviation = rng.standard_normal((1, 8, 1))
    deviation = (deviation - deviation.mean()) / deviation.std()
    nulls = np.repeat(np.array(null)[:, None, None] + spread * deviation, 4, axis=2)
    split[:, :, 3] = 0.3 + 0.001 * rng.standard_normal((n, 6))
    nulls[:, :, 3] = 0.3 + shared + 0.002 * deviation[0, :, 0]
    errors = np.array(error)[:, None] + noise * rng.standard_normal((n, 9))
    ones = np.ones(n)
    third = np.full((n, 2, 2), 0.5)
    return Evidence(
        np.arange(2, 2 + n),
        split,
        nulls,
        errors,
        errors[:, :5],
        errors[:, 0],
        ones,
        ones,
        third,
        third,
    )


def test_local_optima_are_other_good_numbers() -> None:
    """Peaks of the score, not too small, at which halves agree more than those of every null."""
    n = 7
    peaks = evidence([0.9, 0.5, 0.7, 0.6, 0.36, 0.38, 0.31], [0.3] * n, [0.4] * n, 0.001)
    assert recommend(peaks)[0] == 2
    assert other_good(peaks, 2) == (4,)  # 7 components: a peak, but a small one
    assert other_good(peaks, 4) == () and other_good(peaks, None) == ()
    flat = evidence([0.9, *[0.5] * 6], [0.3] * n, [0.4] * n, 0.001, noise=0.0)
    assert other_good(flat, 2) == ()


@pytest.mark.parametrize(
    ("agreement", "null", "error", "options", "expected"),
    [
        # not the largest agreement: at 2 components the null agrees nearly as well
        ([0.9, 0.5, 0.8, 0.6], [0.85, 0.3, 0.3, 0.3], [0.6, 0.5, 0.4, 0.3], {}, 4),
        # not the largest agreement: 2 components explain little
        ([0.9, 0.85, 0.6], [0.3] * 3, [0.8, 0.4, 0.38], {}, 3),
        ([0.9, 0.6, 0.5, 0.4], [0.3] * 4, [0.4, 0.38, 0.36, 0.3], {}, 2),
        # agreement within the spread of the null is no structure
        ([0.35, 0.34, 0.33], [0.3] * 3, [0.5] * 3, {"spread": 0.03}, None),
        ([0.45, 0.34, 0.33], [0.3] * 3, [0.5] * 3, {"spread": 0.03}, 2),
        # halves agree, on nothing that predicts left-out data
        ([0.45, 0.34, 0.33], [0.3] * 3, [1.1, 1.1, 1.2], {"spread": 0.03}, None),
        # a little more agreement than the null's counts when subjects vary in the same places
        ([0.37, 0.30, 0.31], [0.3] * 3, [0.5] * 3, {"spread": 0.03}, None),
        ([0.37, 0.30, 0.31], [0.3] * 3, [0.5] * 3, {"spread": 0.03, "shared": 0.05}, 2),
        ([0.3] * 3, [0.3] * 3, [0.5] * 3, {"spread": 0.03, "shared": 0.05}, None),
        # the largest number
        ([0.4, 0.5, 0.9], [0.3] * 3, [0.6, 0.5, 0.4], {}, 4),
    ],
)
def test_recommendation(
    agreement: list[float],
    null: list[float],
    error: list[float],
    options: dict[str, float],
    expected: int | None,
) -> None:
    assert recommend(evidence(agreement, null, error, **options))[0] == expected


# ---------------------------------------------------------------------- the null


def test_a_null_cohort_keeps_mean_variance_and_smoothness_and_loses_what_subjects_share() -> None:
    data = gathered(three_components())
    null = spun_cohort(data, np.random.SeedSequence(0))
    original = data.coarse
    assert np.corrcoef(null.means.mean(axis=0), original.means.mean(axis=0))[0, 1] > 0.97
    assert null.variance == pytest.approx(original.variance, rel=0.25)
    assert np.corrcoef(null.means.std(axis=0), original.means.std(axis=0))[0, 1] > 0.3

    def share(coarse: Coarse) -> float:
        deviations = np.sqrt(coarse.counts) * (coarse.means - coarse.means.mean(axis=0))
        variances = np.linalg.svd(deviations, compute_uv=False) ** 2
        return float(variances[:3].sum() / variances.sum())

    assert share(original) > share(null) + 0.1
    second_null = spun_cohort(data, np.random.SeedSequence(1))
    assert np.abs(second_null.means - null.means).max() > 0
    np.testing.assert_array_equal(spun_cohort(data, np.random.SeedSequence(0)).L, null.L)
    assert null.L.min() >= 0


def test_the_default_numbers_stop_where_the_subjects_do() -> None:
    cohort = ico.simulate_cohort(8, 2, mesh="fsaverage3", random_state=0)
    choice = choose_n_components(
        cohort, n_splits=2, n_starts=2, n_nulls=5, level=1, stratify=["sex"]
    )
    assert choice.table["rank"].tolist() == [2, 3, 4]
    assert check_subjects(
        [*DEFAULT_RANKS], 100, RowGroups.of(np.repeat(np.arange(10), 10)), fewer=True
    ) == [2, 3, 4, 5]
