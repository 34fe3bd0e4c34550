"""W-scores against a reference group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.refusals import refused

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


def by_hand(
    Z: np.ndarray, table: dict[str, Any], fitted: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Expectations, residual standard deviations and scores of all rows by a fit to some of them."""
    columns = [np.ones(len(Z)), table["age"], np.asarray(table["sex"]) == "M"]
    D = np.column_stack(columns).astype(float)
    b = np.linalg.lstsq(D[fitted], Z[fitted], rcond=None)[0]
    s = np.sqrt(np.square(Z - D @ b)[fitted].sum(axis=0) / (len(fitted) - 3))
    return D @ b, s, (Z - D @ b) / s


@pytest.mark.parametrize("n_scans", [1, 2])
def test_scores_by_hand(n_scans: int) -> None:
    """Scores of a reference person come from the others, without any of the person's scans."""
    table = {name: np.repeat(values, n_scans) for name, values in TABLE.items()}
    Z = np.repeat(Y, n_scans, axis=0)
    norms = ico.normative_scores(Z, table, reference="group=control")
    n_fitted = n_scans * N_CONTROLS
    _, deviation, scores = by_hand(Z, table, np.arange(n_fitted))
    np.testing.assert_allclose(norms.scores[n_fitted:], scores[n_fitted:], rtol=1e-9)
    np.testing.assert_allclose(norms.deviation, deviation, rtol=1e-9)
    expected, _, scores = by_hand(Z, table, np.arange(n_scans, n_fitted))
    np.testing.assert_allclose(norms.scores[:n_scans], scores[:n_scans], rtol=1e-9)
    np.testing.assert_allclose(norms.expected[:n_scans], expected[:n_scans], rtol=1e-9)
    assert list(norms.table) == ["reference", "outside_reference", "component01", "component02"]


def test_what_lies_outside_the_reference_is_marked() -> None:
    age, sex = TABLE["age"].copy(), TABLE["sex"].astype(object)
    age[[70, 71]], sex[71], sex[72] = 95, "X", "X"
    norms = ico.normative_scores(Y, {**TABLE, "age": age, "sex": sex}, reference="group=control")
    assert norms.outside[[69, 70, 71, 72]].tolist() == ["", "age", "age, sex", "sex"]
    assert np.isfinite(norms.scores[70]).all() and np.isnan(norms.scores[[71, 72]]).all()
    assert norms.table["outside_reference"][[69, 70]].tolist() == ["n/a", "age"]


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
    with refused(argument):
        ico.normative_scores(**arguments)


def test_the_references_own_column_is_left_out_of_its_model() -> None:
    alone, with_group = (
        ico.normative_scores(Y, TABLE, f, reference="group=control") for f in ("age", "age * group")
    )
    np.testing.assert_array_equal(alone.scores, with_group.scores)


def test_missing_covariates_have_no_scores() -> None:
    gaps = {**TABLE, "age": ["n/a", *TABLE["age"][1:]]}
    norms = ico.normative_scores(Y, gaps, reference="group=control", missing_covariates="skip")
    assert np.isnan(norms.scores[0]).all() and np.isfinite(norms.scores[1:]).all()
