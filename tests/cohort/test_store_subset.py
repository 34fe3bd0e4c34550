"""Some subjects of a store: as if they alone were there, without being loaded."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from icofactor import CorticalFactorization, Covariates, Refinement
from icofactor.cli.main import main
from icofactor.cohort.store.create import create_store
from icofactor.cohort.store.read import StoredCohort, open_store

ROWS = [7, 0, 3, 11, 5, 4, 9, 2]


@pytest.fixture(scope="module")
def cohort() -> ico.Cohort:
    return ico.simulate_cohort(12, 3, mesh="fsaverage3", random_state=3)


@pytest.fixture(scope="module")
def store(cohort: ico.Cohort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("selected") / "store"
    create_store(path, [cohort], chunk_sites=100, chunk_subjects=5)
    return path


@pytest.fixture
def pair(cohort: ico.Cohort, store: Path) -> tuple[StoredCohort, ico.Cohort]:
    """Some subjects on disk, and the same in memory."""
    columns = {name: np.asarray(values)[ROWS] for name, values in cohort.participants.items()}
    held = dataclasses.replace(
        cohort,
        X=cohort.X[ROWS],
        subjects=tuple(cohort.subjects[i] for i in ROWS),
        participants=columns,
        truth=None,
    )
    return open_store(store).select(ROWS), held


def test_subjects_are_chosen_as_in_memory(pair: tuple[StoredCohort, ico.Cohort]) -> None:
    lazy, held = pair
    assert lazy.hemi == held.hemi
    for which in (
        [3, 0],
        held.participants["age"] > np.median(held.participants["age"]),
        list(held.subjects[2:4]),
    ):
        assert lazy[which].subjects == held[which].subjects
        np.testing.assert_array_equal(np.asarray(lazy[which].X), held[which].X)


@pytest.mark.parametrize(
    "key", [0, -1, slice(2, 6), [5, 1], (slice(None), 17), ([3, 0], slice(10, 400)), (2, [9, 600])]
)
def test_slices_are_those_of_the_subjects(key: Any, pair: tuple[StoredCohort, ico.Cohort]) -> None:
    lazy, held = pair
    np.testing.assert_array_equal(lazy.X[key], held.X[key])
    np.testing.assert_array_equal(np.asarray(lazy.X), held.X)
    assert (lazy.subjects, len(lazy), lazy.X.shape, lazy.simulated) == (
        held.subjects,
        8,
        held.X.shape,
        True,
    )


def test_blocks_are_one_pass(pair: tuple[StoredCohort, ico.Cohort]) -> None:
    lazy, held = pair
    found = np.full_like(held.X, np.nan)
    for where in lazy.site_blocks():
        found[:, lazy.order[where]] = lazy.read_sites(where).T
    np.testing.assert_array_equal(found, held.X)


def test_chosen_subjects_stay_chosen(pair: tuple[StoredCohort, ico.Cohort]) -> None:
    lazy, held = pair
    again, fewer = pickle.loads(pickle.dumps(lazy)), lazy.select([4, 1])
    assert again.subjects == held.subjects
    for name, column in held.participants.items():
        np.testing.assert_array_equal(again.participants[name], column)
    np.testing.assert_array_equal(np.asarray(again.X), held.X)
    np.testing.assert_array_equal(np.asarray(fewer.X), held.X[[4, 1]])
    assert fewer.subjects == (held.subjects[4], held.subjects[1])


def test_chunks_of_other_subjects_are_not_read(store: Path) -> None:
    stored = open_store(store)
    np.asarray(stored.select([0, 2]).X)
    assert stored.bytes_read < 0.6 * stored.X.shape[0] * stored.X.shape[1] * 4


def test_chunks_between_subjects_are_not_read(tmp_path: Path) -> None:
    cohort = ico.simulate_cohort(40, 3, mesh="fsaverage3", random_state=3)
    create_store(tmp_path / "store", [cohort[:22], cohort[22:]], chunk_sites=100, chunk_subjects=4)
    store = open_store(tmp_path / "store")
    rows = [39, 0, 1, 21, 0]
    np.testing.assert_array_equal(np.asarray(store.X[rows]), cohort.X[rows])
    # Chunks of 4 subjects, with checksums: those of 0 and 1, of 20 to 21, and of 38 to 39.
    assert store.bytes_read == 3 * 7 * (100 * 4 * 4 + 4)


@pytest.mark.parametrize("adjusted", [False, True])
def test_a_fit_never_holds_them(adjusted: bool, pair: tuple[StoredCohort, ico.Cohort]) -> None:
    data: list[Any] = list(pair)
    if adjusted:
        data = [Covariates.fit(one, ["age"]).apply(one) for one in pair]
    lazy, held = (
        CorticalFactorization(2, n_starts=2, refinement=Refinement(steps=2)).fit(one)
        for one in data
    )
    assert lazy.passes_ == 2
    np.testing.assert_allclose(lazy.components_, held.components_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(lazy.transform(pair[0]), held.loadings_, rtol=1e-6, atol=1e-9)


def test_commands_take_them(store: Path, cohort: ico.Cohort, tmp_path: Path) -> None:
    out = cohort.subjects[4]
    assert main(["prepare", str(store), "-o", str(tmp_path / "some"), "--exclude", out, "-q"]) == 0
    kept = [i for i in range(12) if i != 4]
    np.testing.assert_array_equal(np.asarray(open_store(tmp_path / "some").X), cohort.X[kept])
