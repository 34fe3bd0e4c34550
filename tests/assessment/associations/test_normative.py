"""W-scores against a reference group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import icofactor as ico
from icofactor.errors import ArgumentError

N, N_CONTROLS = 90, 60
RNG = np.random.default_rng(4)
TABLE: dict[str, Any] = {
    "participant_id": [f"sub-{i}" for i in range(N)],
    "age": RNG.uniform(30, 70, N),
    "sex": RNG.choice(["F", "M"], N),
    "group": ["control"] * N_CONTROLS + ["patient"] * (N - N_CONTROLS),
}
Y = (0.1 * TABLE["age"] + (TABLE["sex"] == "M"))[:, None] + RNG.normal(size=(N, 2))
Y[N_CONTROLS:, 0] += 2.5


def test_scores_by_hand() -> None:
    found = ico.normative_scores(Y, TABLE, reference="group=control")
    D = np.column_stack([np.ones(N), TABLE["age"], TABLE["sex"] == "M"]).astype(float)
    b = np.linalg.lstsq(D[:N_CONTROLS], Y[:N_CONTROLS], rcond=None)[0]
    s = np.sqrt(np.square(Y - D @ b)[:N_CONTROLS].sum(axis=0) / (N_CONTROLS - 3))
    patients = slice(N_CONTROLS, None)
    np.testing.assert_allclose(found.scores[patients], ((Y - D @ b) / s)[patients], rtol=1e-9)
    np.testing.assert_allclose(found.deviation, s, rtol=1e-9)
    assert found.scores[patients, 0].mean() > 2 > 0.5 > abs(found.scores[patients, 1].mean())
    # a reference person's own score comes from the others
    others = np.arange(1, N_CONTROLS)
    b = np.linalg.lstsq(D[others], Y[others], rcond=None)[0]
    s = np.sqrt(np.square(Y - D @ b)[others].sum(axis=0) / (N_CONTROLS - 4))
    np.testing.assert_allclose(found.scores[0], (Y[0] - D[0] @ b) / s, rtol=1e-9)
    np.testing.assert_allclose(found.expected[0], D[0] @ b, rtol=1e-9)
    assert list(found.table) == ["reference", "outside_reference", "component01", "component02"]


def test_scans_of_a_reference_person_are_left_out_together() -> None:
    twice = {name: np.repeat(values, 2) for name, values in TABLE.items()}
    Z = np.repeat(Y, 2, axis=0)
    found = ico.normative_scores(Z, twice, reference="group=control")
    D = np.column_stack([np.ones(2 * N), twice["age"], twice["sex"] == "M"]).astype(float)
    others = np.arange(2, 2 * N_CONTROLS)
    b = np.linalg.lstsq(D[others], Z[others], rcond=None)[0]
    s = np.sqrt(np.square(Z - D @ b)[others].sum(axis=0) / (len(others) - 3))
    np.testing.assert_allclose(found.scores[:2], ((Z - D @ b) / s)[:2], rtol=1e-9)


def test_what_lies_outside_the_reference_is_marked() -> None:
    age, sex = TABLE["age"].copy(), TABLE["sex"].astype(object)
    age[[70, 71]], sex[71], sex[72] = 95, "X", "X"
    found = ico.normative_scores(Y, {**TABLE, "age": age, "sex": sex}, reference="group=control")
    assert found.outside[[69, 70, 71, 72]].tolist() == ["", "age", "age, sex", "sex"]
    assert np.isfinite(found.scores[70]).all() and np.isnan(found.scores[[71, 72]]).all()
    assert found.notes == (
        "outside the reference's range, so their scores are extrapolated: sub-70",
        "of a level that the reference does not have, so they have no scores: sub-71, sub-72",
    )
    assert found.table["outside_reference"][[69, 70]].tolist() == ["n/a", "age"]


def test_a_truth_value_per_row_and_a_spline() -> None:
    chosen = np.array(TABLE["group"]) == "control"
    found = ico.normative_scores(Y, TABLE, "sex", smooth="age", reference=chosen)
    assert found.reference.sum() == N_CONTROLS and np.isfinite(found.scores).all()


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("reference", {"reference": "group"}),
        ("reference", {"reference": "group=healthy"}),
        ("reference", {"reference": [1, 2]}),
        ("reference", {"reference": np.arange(N) < 12}),
        ("formula", {"formula": "group"}),
        ("formula", {"table": {**TABLE, "age": ["n/a", *TABLE["age"][1:]]}}),
        ("formula", {"table": {**TABLE, "age": [*TABLE["age"][:-1], "old"]}}),
    ],
)
def test_bad_references(argument: str, change: dict[str, Any]) -> None:
    arguments = {"loadings": Y, "table": TABLE, "reference": "group=control", **change}
    with pytest.raises(ArgumentError) as problem:
        ico.normative_scores(**arguments)
    assert problem.value.argument == argument


def test_the_references_own_column_is_left_out_of_its_model() -> None:
    one, two = (
        ico.normative_scores(Y, TABLE, f, reference="group=control") for f in ("age", "age * group")
    )
    np.testing.assert_array_equal(one.scores, two.scores)


def test_missing_covariates_have_no_scores() -> None:
    gaps = {**TABLE, "age": ["n/a", *TABLE["age"][1:]]}
    found = ico.normative_scores(Y, gaps, reference="group=control", missing_covariates="skip")
    assert np.isnan(found.scores[0]).all() and np.isfinite(found.scores[1:]).all()
