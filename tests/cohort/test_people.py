"""Rows are scans, people are groups: reading repeated scans, choosing those to fit, keeping groups whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import icofactor as ico
from helpers.refusals import refused
from helpers.trees import fmriprep_tree, freesurfer_tree, hemispheres, write_npz
from icofactor import load_cohort
from icofactor.assessment.selection.agreement import deal, deal_thirds
from icofactor.assessment.selection.choose import check_subjects
from icofactor.assessment.selection.heldout import BLOCK_FOLDS, SUBJECT_FOLDS
from icofactor.cohort.people import People, RowGroups, choose_scans, scan_of, streams_of
from icofactor.cohort.store.create import save_store

X = np.random.default_rng(0).gamma(2, size=(6, 1284)).astype(np.float32)
SCANS = [
    "sub-01_ses-1",
    "sub-01_ses-2",
    "sub-02_ses-1",
    "sub-02_ses-10",
    "sub-02_ses-2",
    "sub-03_ses-1",
]
PEOPLE = ["sub-01", "sub-01", "sub-02", "sub-02", "sub-02", "sub-03"]
SESSIONS = ["1", "2", "1", "10", "2", "1"]


def tree(root: Path, names: list[str]) -> Path:
    return freesurfer_tree(root, names, hemispheres(X[: len(names)]), target="fsaverage3")


def cohort(**columns: Any) -> ico.Cohort:
    table = {"participant_id": PEOPLE, "session_id": SESSIONS, **columns}
    return ico.Cohort.from_array(
        X[:, :642], "fsaverage3", "left", subjects=SCANS, participants=table
    )


# ---------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("name", "scan"),
    [
        ("sub-01_ses-1", ("sub-01", "1")),
        ("sub-01_ses-1.long.sub-01", ("sub-01", "1")),
        ("sub-01_ses-pre.long.sub-01_base", ("sub-01", "pre")),
        ("ABC_tp2.long.ABC", ("ABC", "tp2")),
        ("tp2.long.ABC", ("ABC", "tp2")),
        ("HCA6002236_V1_MR", ("HCA6002236", "V1")),
        ("sub-01", None),
        ("100307", None),
    ],
)
def test_what_names_of_scans_tell(name: str, scan: tuple[str, str] | None) -> None:
    assert scan_of(name) == scan


def test_streams_are_told_apart() -> None:
    names = ["A_1", "A_2", "A", "A_1.long.A", "A_2.long.A"]
    assert list(streams_of(names).values()) == ["cross", "cross", "base", "long", "long"]
    assert streams_of(["sub-01", "sub-01_ses-1"]) == {"sub-01": "base", "sub-01_ses-1": "cross"}
    assert streams_of(["A", "B"], ["B"]) == {"A": "cross", "B": "base"}


def test_a_longitudinal_tree(tmp_path: Path) -> None:
    names = [
        "sub-01",
        "sub-01_ses-1",
        "sub-01_ses-2",
        "sub-01_ses-1.long.sub-01",
        "sub-01_ses-2.long.sub-01",
        "sub-02",
    ]
    tree(tmp_path, names)
    with refused(tmp_path.name):
        load_cohort(tmp_path)
    with refused("paths"):  # also as files
        load_cohort(str(tmp_path / "*" / "surf" / "*h.thickness*"))
    with refused("stream"):
        load_cohort(tmp_path, stream="short")
    base = load_cohort(tmp_path, stream="base")
    assert base.subjects == ("sub-01",)
    assert "session_id" not in base.participants
    with refused("paths"):
        load_cohort(tmp_path, stream="long")
    for paths in (tmp_path, str(tmp_path / "*" / "surf" / "*h.thickness*")):
        long = load_cohort(paths, stream="long", sessions="all")
        assert long.subjects == ("sub-01_ses-1.long.sub-01", "sub-01_ses-2.long.sub-01")
        assert list(long.participants["participant_id"]) == ["sub-01", "sub-01"]
        assert list(long.participants["session_id"]) == ["1", "2"]
    one = load_cohort(tmp_path, stream="long", sessions="ses-2")
    assert one.subjects == ("sub-01_ses-2.long.sub-01",)
    with refused("sessions"):
        load_cohort(tmp_path, stream="long", sessions=["3"])


def test_a_tree_without_one_of_the_streams(tmp_path: Path) -> None:
    tree(tmp_path, ["sub-01", "sub-02"])
    with refused(tmp_path.name):
        load_cohort(tmp_path, stream="long")
    assert load_cohort(tmp_path, sessions="all").subjects == (
        "sub-01",
        "sub-02",
    )  # nobody has several


def test_both_sessions_of_a_bids_tree(tmp_path: Path) -> None:
    maps = hemispheres(X)
    for session, change in (("1", 0), ("2", 1)):
        later = {side: rows[:2] + change for side, rows in maps.items()}
        fmriprep_tree(
            tmp_path, ["sub-01", "sub-02"], later, f"ses-{session}_task-rest", "space-fsaverage3"
        )
    with refused("sub-01_ses-2_task-rest_hemi-L_space-fsaverage3_stat-reho_boldmap.shape.gii"):
        load_cohort(tmp_path)
    found = load_cohort(tmp_path, sessions="all")
    assert found.subjects == ("sub-01_ses-1", "sub-01_ses-2", "sub-02_ses-1", "sub-02_ses-2")
    assert_array_equal(found.X, np.stack([X[0], X[0] + 1, X[1], X[1] + 1]))
    assert list(found.participants["participant_id"]) == ["sub-01", "sub-01", "sub-02", "sub-02"]
    # a table of people is about all scans of each; one of scans chooses among them
    about = load_cohort(
        tmp_path, sessions="all", participants={"participant_id": ["02", "01"], "sex": ["f", "m"]}
    )
    assert about.subjects == ("sub-02_ses-1", "sub-02_ses-2", "sub-01_ses-1", "sub-01_ses-2")
    assert list(about.participants["sex"]) == ["f", "f", "m", "m"]
    table = {
        "participant_id": ["sub-02", "sub-01", "sub-01"],
        "visit": ["ses-02", "2", "1"],
        "age": [9, 8, 7],
    }
    chosen = load_cohort(tmp_path, participants=table)
    assert_array_equal(chosen.X, np.stack([X[1] + 1, X[0] + 1, X[0]]))
    assert chosen.subjects == ("sub-02_ses-02", "sub-01_ses-2", "sub-01_ses-1")
    assert list(chosen.participants["participant_id"]) == ["sub-02", "sub-01", "sub-01"]
    assert list(chosen.participants["age"]) == [9, 8, 7]
    assert load_cohort(tmp_path, sessions="all", exclude=["sub-01"]).subjects == (
        "sub-02_ses-1",
        "sub-02_ses-2",
    )
    assert len(load_cohort(tmp_path, sessions="all", exclude=["sub-01_ses-2"])) == 3
    with refused("participants"):
        load_cohort(tmp_path, participants={**table, "visit": ["2", "3", "1"]})


def test_tables_that_list_people_twice(tmp_path: Path) -> None:
    write_npz(tmp_path / "maps.npz", SCANS, hemispheres(X))
    read = lambda **columns: load_cohort(
        tmp_path / "maps.npz", mesh="fsaverage3", participants=columns
    )
    with refused("participants"):
        read(participant_id=PEOPLE)
    with refused("participants"):
        read(participant_id=PEOPLE, session_id=["1", "1", *SESSIONS[2:]])
    with refused("participants"):
        read(participant_id=PEOPLE, session_id=["n/a", "2", *SESSIONS[2:]])
    found = read(participant_id=PEOPLE[::-1], session_id=SESSIONS[::-1])
    assert found.subjects == tuple(SCANS[::-1])
    assert_array_equal(found.X, X[::-1])
    assert list(found.participants["participant_id"]) == PEOPLE[::-1]
    # names alone tell it too
    alone = load_cohort(tmp_path / "maps.npz", mesh="fsaverage3")
    assert list(alone.participants["participant_id"]) == PEOPLE


def test_stores_keep_people_and_sessions(tmp_path: Path) -> None:
    save_store(cohort(), tmp_path / "store")
    stored = load_cohort(tmp_path / "store", sessions=["1"])
    assert stored.subjects == ("sub-01_ses-1", "sub-02_ses-1", "sub-03_ses-1")
    table = {"participant_id": PEOPLE[:5], "session": SESSIONS[:5], "age": [5, 4, 3, 2, 1]}
    told = load_cohort(tmp_path / "store", participants=table)
    assert list(told.participants["participant_id"]) == PEOPLE[:5]
    assert list(told.participants["age"]) == [5, 4, 3, 2, 1]
    with refused("sessions"):
        load_cohort(tmp_path / "store", sessions=["7"])


# ---------------------------------------------------------------------- which scans are fitted


def test_scans_to_fit() -> None:
    rows = lambda *given, **more: choose_scans(cohort(**more), *given).rows.tolist()
    assert rows("baseline") == [0, 2, 5]
    assert rows("all") == [0, 1, 2, 3, 4, 5]
    age = [8.0, 7.0, 12.0, 10.0, 11.0, 9.0]
    assert choose_scans(cohort(age=age), "baseline", order="age").rows.tolist() == [1, 3, 5]
    date = ["2020-01-02", "2019-12-31", "2020-03-01", "2020-02-28", "2021-01-01", "2020-01-01"]
    assert choose_scans(cohort(date=date), "baseline", order="date").rows.tolist() == [1, 3, 5]
    drawn = {
        tuple(choose_scans(cohort(), "one-per-person", seed=seed).rows.tolist())
        for seed in range(30)
    }
    assert len(drawn) == 6 and all(5 in rows for rows in drawn)
    assert (
        choose_scans(cohort(), "baseline").sentence
        == "6 scans of 3 people; fitted on the first scan of each person"
    )
    # sessions by name: 2 before 10
    assert People.of(SCANS[3:5], {"participant_id": PEOPLE[3:5], "visit": [10, 2]}).sessions == (
        "10",
        "2",
    )
    assert choose_scans(cohort()[3:5], "baseline").rows.tolist() == [1]


def test_people_with_one_scan_each_are_as_before() -> None:
    plain = ico.Cohort.from_array(X[:, :642], "fsaverage3", "left", participants={"age": range(6)})
    for fit_on in (None, "baseline", "one-per-person", "all"):
        found = choose_scans(plain, fit_on)
        assert (
            found.groups is None
            and len(found.rows) == 6
            and not found.record
            and not found.sentence
        )
    assert found.people is not None and found.people.columns == {
        "participant_id": list(plain.subjects)
    }


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("fit_on", {}),
        ("fit_on", {"fit_on": "first"}),
        ("order", {"fit_on": "all", "order": "age"}),
        ("order", {"fit_on": "baseline", "order": "date"}),
        ("order", {"fit_on": "baseline", "order": "gap"}),
        ("groups", {"fit_on": "all", "groups": "home"}),
        ("groups", {"fit_on": "all", "groups": "gap"}),
        ("groups", {"fit_on": "all", "groups": "same"}),
        ("groups", {"fit_on": "all", "groups": "torn"}),
        ("groups", {"fit_on": "all", "groups": [1, 2, 3]}),
        ("groups", {"fit_on": "baseline", "groups": range(6)}),
    ],
)
def test_what_cannot_be_chosen(argument: str, given: dict[str, Any]) -> None:
    more = {
        "gap": ["1", "n/a", "1", "1", "1", "1"],
        "same": ["a"] * 6,
        "torn": ["a", "a", "b", "b", "c", "c"],
    }
    with refused(argument):
        choose_scans(cohort(age=range(6), **more), **given)


def test_arrays_know_no_people() -> None:
    with refused("fit_on"):
        choose_scans(X, "baseline")
    with refused("groups"):
        choose_scans(X, groups="family")
    assert choose_scans(X).groups is None
    found = choose_scans(X, groups=[1, 1, 2, 2, 3, 3]).groups
    assert found is not None and found.n == 3


# ---------------------------------------------------------------------- groups stay whole

tables = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), min_size=4, max_size=60)


@given(tables, st.integers(0, 2**32 - 1), st.integers(2, 8))
@settings(deadline=None)
def test_no_part_or_resample_shares_a_person(
    rows: list[tuple[int, int]], seed: int, n_parts: int
) -> None:
    people, strata = np.array(rows).T
    groups, rng = RowGroups.of(people.tolist()), np.random.default_rng(seed)
    for part in (deal(strata, n_parts, rng, groups), deal_thirds(strata, rng, groups)):
        assert all(len(set(part[people == person])) == 1 for person in people)
    part = deal(np.zeros_like(strata), n_parts, rng, groups)
    sizes, largest = np.bincount(part, minlength=n_parts), np.bincount(people).max()
    assert np.ptp(sizes) <= largest  # as even as whole groups can be
    drawn = groups.resample(rng)
    times = np.bincount(drawn, minlength=len(people))
    assert all(len(set(times[people == person])) == 1 for person in people)
    assert sum(times[np.flatnonzero(people == person)[0]] for person in set(people)) == groups.n


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), min_size=4, max_size=20),
    st.integers(0, 99),
    st.data(),
)
@settings(deadline=None)
def test_halves_and_what_folds_leave_hold_as_many_components_as_are_allowed(
    groups: list[tuple[int, int]], seed: int, data: st.DataObject
) -> None:
    """However unequal the groups: half as many rows as there are groups."""
    people = np.repeat(np.arange(len(groups)), [size for size, _ in groups])
    strata = np.array([stratum for _, stratum in groups])[people]
    if data.draw(st.booleans()):  # of rows, not of people
        strata = np.random.default_rng(seed).permutation(strata)
    for n_parts in (2, BLOCK_FOLDS, min(SUBJECT_FOLDS, len(groups))):
        part = deal(strata, n_parts, np.random.default_rng(seed), RowGroups.of(people.tolist()))
        assert len(part) - np.bincount(part).max() >= len(groups) // 2


def test_fewer_groups_than_halves_need() -> None:
    with refused("groups"):
        check_subjects([2], 6, RowGroups.of([1, 1, 2, 2, 3, 3]))
    with refused("ranks"):
        check_subjects([2, 3], 8, RowGroups.of([1, 1, 2, 2, 3, 3, 4, 4]))
