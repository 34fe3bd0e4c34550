"""Subjects chosen from a store: as if they alone were there, without being loaded."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from icofactor import CorticalFactorization, Covariates, Refinement
from icofactor.cli.main import main
from icofactor.cohort.store import StoredCohort, create_store, open_store

ROWS = [7, 0, 3, 11, 5, 4, 9, 2]
Pair = tuple[StoredCohort, ico.Cohort]


@pytest.fixture(scope="module")
def cohort() -> ico.Cohort:
    return ico.simulate_cohort(12, 3, mesh="fsaverage3", random_state=3)


@pytest.fixture(scope="module")
def store(cohort: ico.Cohort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("selected") / "store"
    create_store(path, [cohort], chunk_sites=100, chunk_subjects=5)
    return path


@pytest.fixture
def pair(cohort: ico.Cohort, store: Path) -> Pair:
    """Some subjects on disk, and the same in memory."""
    return open_store(store).select(ROWS), dataclasses.replace(cohort[ROWS], truth=None)


def test_subjects_are_chosen_as_in_memory(pair: Pair) -> None:
    lazy, held = pair
    assert (lazy.hemi, lazy.X.shape, lazy.simulated) == (held.hemi, held.X.shape, True)
    old = held.participants["age"] > np.median(held.participants["age"])
    for which in ([3, 0], old, list(held.subjects[2:4]), slice(None)):
        assert lazy[which].subjects == held[which].subjects
        np.testing.assert_array_equal(np.asarray(lazy[which].X), held[which].X)
        for name, column in held[which].participants.items():
            np.testing.assert_array_equal(lazy[which].participants[name], column)


@pytest.mark.parametrize(
    "key", [0, -1, slice(2, 6), [5, 1], (slice(None), 17), ([3, 0], slice(10, 400)), (2, [9, 600])]
)
def test_slices_are_those_of_the_subjects(key: Any, pair: Pair) -> None:
    lazy, held = pair
    np.testing.assert_array_equal(lazy.X[key], held.X[key])


@pytest.mark.parametrize("adjusted", [False, True])
def test_a_fit_never_holds_them(adjusted: bool, pair: Pair) -> None:
    data: list[Any] = list(pair)
    if adjusted:
        data = [Covariates.fit(each, ["age"]).apply(each) for each in pair]
    lazy, held = (
        CorticalFactorization(2, n_starts=2, refinement=Refinement(steps=2)).fit(each)
        for each in data
    )
    assert lazy.passes_ == 2
    np.testing.assert_allclose(lazy.components_, held.components_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(lazy.transform(pair[0]), held.loadings_, rtol=1e-6, atol=1e-9)


def test_commands_take_them(store: Path, cohort: ico.Cohort, tmp_path: Path) -> None:
    out = cohort.subjects[4]
    assert main(["prepare", str(store), "-o", str(tmp_path / "some"), "--exclude", out, "-q"]) == 0
    rows = [row for row in range(12) if row != 4]
    np.testing.assert_array_equal(np.asarray(open_store(tmp_path / "some").X), cohort.X[rows])
