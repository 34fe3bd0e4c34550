from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from helpers.refusals import refused
from icofactor.cohort.cohort import Cohort, Truth
from icofactor.cohort.load import load_cohort
from icofactor.cohort.simulate import simulate_cohort
from icofactor.errors import ArgumentError
from icofactor.sphere.sites import Sites

SITES = Sites.icosphere(1)


def make(**changes: object) -> Cohort:
    arguments: dict[str, object] = {
        "X": np.arange(3 * SITES.n, dtype=np.float64).reshape(3, SITES.n),
        "subjects": ("a", "b", "c"),
        "sites": SITES,
    }
    return Cohort(**{**arguments, **changes})  # type: ignore[arg-type]


def test_x_becomes_float32_c_order_and_keeps_its_values() -> None:
    X = np.asfortranarray(np.arange(3 * SITES.n, dtype=np.int64).reshape(3, SITES.n))
    cohort = make(X=X)
    assert cohort.X.dtype == np.float32
    assert cohort.X.flags.c_contiguous
    np.testing.assert_array_equal(cohort.X, X)
    assert len(cohort) == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        cohort.X = X  # type: ignore[misc]


def test_repr_says_simulated_only_when_so() -> None:
    assert "simulated" not in repr(make())
    assert "simulated thickness in mm" in repr(
        make(modality="thickness", units="mm", provenance={"simulated": True})
    )


NAN = np.full((3, SITES.n), np.nan)
HALF = np.arange(SITES.n) % 2 == 0


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("X", {"X": np.ones((3, SITES.n - 1))}),
        ("X", {"X": np.ones(SITES.n)}),
        ("X", {"X": np.ones((0, SITES.n)), "subjects": ()}),
        ("subjects", {"subjects": ("a", "b")}),
        ("subjects", {"subjects": ("a", "b", "a")}),
        ("hemisphere", {"hemisphere": "top"}),
        ("hemisphere", {"hemisphere": "both"}),
        ("mask", {"mask": np.ones(SITES.n)}),
        ("mask", {"mask": np.ones(3, dtype=bool)}),
        ("mask", {"mask": np.zeros(SITES.n, dtype=bool)}),
        ("participants", {"participants": {"age": [1, 2]}}),
        ("X", {"X": NAN}),
        ("X", {"X": np.where(HALF, np.nan, 1.0) * np.ones((3, 1)), "mask": HALF}),
        ("truth", {"truth": Truth(np.ones((2, SITES.n)), np.ones((4, 2)))}),
    ],
)
def test_wrong_arguments_are_named(argument: str, changes: dict[str, object]) -> None:
    with refused(argument):
        make(**changes)


def test_masked_sites_may_be_nan() -> None:
    cohort = make(X=np.where(HALF, 1.0, np.nan) * np.ones((3, 1)), mask=HALF)
    assert np.isnan(cohort.X[:, 1]).all()


def test_truth_must_agree_with_itself() -> None:
    with refused("loadings"):
        Truth(np.ones((2, 5)), np.ones((4, 3)))


@pytest.mark.parametrize(
    "which",
    [[2, 0], np.array([2, 0]), ["c", "a"], np.array(["c", "a"]), np.array([-1, -3])],
)
def test_some_subjects(which: object) -> None:
    truth = Truth(np.ones((2, SITES.n)), np.arange(6).reshape(3, 2))
    cohort = make(participants={"age": [30, 40, 50]}, truth=truth, units="mm")
    some = cohort[which]
    assert (some.subjects, list(some.participants["age"]), some.units) == (
        ("c", "a"),
        [50, 30],
        "mm",
    )
    np.testing.assert_array_equal(some.X, cohort.X[[2, 0]])
    assert some.truth is not None and some.truth.loadings.tolist() == [[4, 5], [0, 1]]


@pytest.mark.parametrize(
    "which", [[True, False, True], slice(0, 3, 2), np.array([1, 0, 1], dtype=bool), ["a", "c"]]
)
def test_some_subjects_in_their_order(which: object) -> None:
    assert make()[which].subjects == ("a", "c")


def test_one_subject_and_no_loop() -> None:
    assert make()["b"].subjects == make()[1].subjects == ("b",)
    with pytest.raises(TypeError, match="not iterable"):
        iter(make())  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "which", [[True], ["a", "x"], [3], [-4], [], slice(3, 3), 0.5, [[0]], [False] * 3, None]
)
def test_what_chooses_no_subjects(which: object) -> None:
    with pytest.raises(ArgumentError) as caught:
        make()[which]
    assert caught.value.argument == "which"


def test_a_subject_twice_is_refused() -> None:
    with refused("subjects"):
        make()[[0, 0]]


def test_from_an_array() -> None:
    X = np.arange(2 * 1284.0).reshape(2, 1284)
    cohort = Cohort.from_array(
        X, "fsaverage3", participants={"age": [30, 40]}, modality="thickness"
    )
    assert (cohort.subjects, cohort.hemisphere, cohort.hemi) == (
        ("sub-0001", "sub-0002"),
        "both",
        "both",
    )
    assert cohort.sites.name == "fsaverage3" and cohort.modality == "thickness"
    frame = pytest.importorskip("pandas").DataFrame({"age": [30, 40]})
    right = Cohort.from_array(X[:, :642], hemi="right", subjects=["x", "y"], participants=frame)
    assert (right.subjects, right.hemi, list(right.participants["age"])) == (
        ("x", "y"),
        "right",
        [30, 40],
    )
    with pytest.raises(ArgumentError) as caught:
        Cohort.from_array(X[:, :600])
    assert caught.value.argument == "mesh"


def test_hemi_is_understood_everywhere(tmp_path: Path) -> None:
    cohort = simulate_cohort(2, 1, mesh="fsaverage3", hemi="both")
    assert cohort.hemisphere == "both" and cohort.X.shape == (2, 1284)
    np.save(tmp_path / "maps.npy", cohort.X[:, :642])
    assert load_cohort(tmp_path / "maps.npy", mesh="fsaverage3", hemi="right").hemi == "right"
