"""Loadings against tables of people."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import icofactor as ico
from helpers import null_cohorts
from helpers.refusals import refused
from icofactor.errors import ArgumentError

N = 60
RNG = np.random.default_rng(5)
TABLE: dict[str, Any] = {
    "participant_id": [f"sub-{i:02d}" for i in range(N)],
    "age": RNG.uniform(20, 80, N),
    "sex": RNG.choice(["F", "M"], N),
    "group": RNG.choice(["control", "patient", "other"], N),
    "site": RNG.integers(1, 4, N),
}
Y = (
    RNG.normal(size=(N, 4))
    + np.outer(TABLE["age"], [0.05, 0, 0, 0])
    + np.outer(TABLE["sex"] == "M", [0, 2, 0, 0])
)


def rows(table: Any, term: str) -> dict[str, np.ndarray]:
    return {name: values[table["term"] == term] for name, values in table.items()}


@pytest.fixture(scope="module")
def associations() -> Any:
    return ico.associate(
        Y, TABLE, "age + sex + group", contrast=["group: patient - control", "age: 70 - 30"]
    )


def test_planted_effects_are_found(associations: Any) -> None:
    table = associations.table
    assert list(dict.fromkeys(table["term"])) == ["age", "sex", "group"]
    planted = [("age", "component01"), ("sex", "component02")]
    for column in [
        "p_theory",
        "p_permutation",
        "p_corrected",
        "p_corrected_all",
        "q_fdr",
        "q_fdr_all",
    ]:
        sure = np.flatnonzero(table[column] < 0.01)
        pairs = zip(table["term"][sure], table["component"][sure], strict=True)
        assert list(pairs) == planted, column
    assert (table["p_permutation"] <= table["p_corrected"] + 1e-12).all()
    assert (table["p_corrected"] <= table["p_corrected_all"] + 0.02).all()
    np.testing.assert_allclose(table["p_permutation"], table["p_theory"], atol=0.03)


def test_numbers_as_statsmodels(associations: Any) -> None:
    smf = pytest.importorskip("statsmodels.formula.api")
    pd = pytest.importorskip("pandas")
    anova = pytest.importorskip("statsmodels.stats.anova").anova_lm
    frame = pd.DataFrame({**TABLE, "y": Y[:, 0]})
    full = smf.ols("y ~ age + sex + group", frame).fit()
    age = rows(associations.table, "age")
    for ours, theirs in (("estimate", full.params), ("se", full.bse), ("value", full.tvalues)):
        np.testing.assert_allclose(age[ours][0], theirs["age"], rtol=1e-9)
    np.testing.assert_allclose(
        [age["ci_low"][0], age["ci_high"][0]], full.conf_int().loc["age"], rtol=1e-9
    )
    assert age["df_residual"][0] == full.df_resid == N - 5
    without = smf.ols("y ~ sex + group", frame).fit()
    np.testing.assert_allclose(age["partial_r2"][0], 1 - full.ssr / without.ssr, rtol=1e-9)
    np.testing.assert_allclose(
        age["standardized"][0], full.params["age"] * frame.age.std() / frame.y.std(), rtol=1e-9
    )
    group = rows(associations.table, "group")
    compared = anova(smf.ols("y ~ age + sex", frame).fit(), full)
    np.testing.assert_allclose(
        [group["value"][0], group["p_theory"][0]], [compared.F[1], compared["Pr(>F)"][1]], rtol=1e-9
    )
    assert group["df"][0] == 2 and np.isnan(group["estimate"]).all()
    contrast = rows(associations.contrasts, "group: patient - control")
    np.testing.assert_allclose(contrast["estimate"][0], full.params["group[T.patient]"], rtol=1e-9)
    np.testing.assert_allclose(
        contrast["standardized"][0],
        full.params["group[T.patient]"] / np.sqrt(full.scale),
        rtol=1e-9,
    )
    years = rows(associations.contrasts, "age: 70 - 30")
    np.testing.assert_allclose(years["estimate"], 40 * age["estimate"], rtol=1e-9)
    np.testing.assert_allclose(years["p_permutation"], age["p_permutation"])


def test_splines_and_interactions_as_statsmodels() -> None:
    smf = pytest.importorskip("statsmodels.formula.api")
    pd = pytest.importorskip("pandas")
    anova = pytest.importorskip("statsmodels.stats.anova").anova_lm
    frame = pd.DataFrame({**TABLE, "y": Y[:, 1]})
    ours = ico.associate(Y[:, 1:2], TABLE, "age * sex", smooth="age", n_permutations=0)
    spline = "cr(age, df=3, constraints='center')"
    fits = {
        key: smf.ols(f"y ~ {key}", frame).fit()
        for key in ("sex", spline, f"{spline} + sex", f"{spline} * sex")
    }
    nested = {
        "s(age)": (
            "sex",
            f"{spline} + sex",
        ),  # a term is tested without the interactions that contain it
        "sex": (spline, f"{spline} + sex"),
        "s(age):sex": (f"{spline} + sex", f"{spline} * sex"),
    }
    for term, (small, large) in nested.items():
        F = rows(ours.table, term)["value"][0] ** (2 if term == "sex" else 1)
        np.testing.assert_allclose(F, anova(fits[small], fits[large]).F[1], rtol=1e-6)
    assert sum("tested in the model without s(age):sex" in note for note in ours.notes) == 2


def test_an_interaction_with_a_category_is_a_difference_of_standardized_slopes() -> None:
    interaction = rows(ico.associate(Y, TABLE, "age * sex", n_permutations=0).table, "age:sex")
    np.testing.assert_allclose(
        interaction["standardized"],
        interaction["estimate"] * TABLE["age"].std(ddof=1) / Y.std(axis=0, ddof=1),
        rtol=1e-9,
    )


def test_an_effect_beyond_the_smallest_number_has_a_p_value_over_terms() -> None:
    """Its p by theory is 0 in floating point."""
    table = ico.associate(
        Y + 1e9 * TABLE["age"][:, None], TABLE, "age + sex", n_permutations=99
    ).table
    assert (rows(table, "age")["p_theory"] == 0).all()
    np.testing.assert_array_equal(rows(table, "age")["p_corrected_all"], 0.01)
    assert np.median(rows(table, "sex")["p_corrected_all"]) > 0.5


def test_expected_and_adjusted_loadings(associations: Any) -> None:
    slope = rows(associations.table, "age")["estimate"]
    curve = associations.expected("age", 5)
    np.testing.assert_allclose(np.diff(curve.mean, axis=0)[0] / np.diff(curve.values)[0], slope)
    assert curve.values[[0, -1]].tolist() == [TABLE["age"].min(), TABLE["age"].max()]
    assert ((curve.low < curve.mean) & (curve.mean < curve.high)).all()
    # A line through adjusted loadings has the slope of the model.
    age, adjusted = associations.adjusted("age")
    np.testing.assert_allclose(np.polyfit(age, adjusted, 1)[0], slope)
    levels = associations.expected("group")
    contrast = rows(associations.contrasts, "group: patient - control")["estimate"]
    np.testing.assert_allclose(levels.mean[2] - levels.mean[0], contrast, rtol=1e-9)
    group, adjusted = associations.adjusted("group")
    means = [adjusted[group == level].mean(axis=0) for level in levels.values]
    np.testing.assert_allclose(means, levels.mean)
    maps = associations.effects(np.eye(4, 7))
    np.testing.assert_allclose(maps["age"][:4], slope)
    assert {"sex", "group[other]", "group: patient - control"} < set(maps)
    with pytest.raises(ArgumentError):
        associations.expected("site")


@pytest.mark.parametrize(
    ("argument", "formula", "groups", "missing"),
    [("formula", "age + sex", None, [3, 7, 30]), ("groups", "sex", "family", [0])],
)
def test_missing_values_are_refused_or_skipped(
    argument: str, formula: str, groups: str | None, missing: list[int]
) -> None:
    age = TABLE["age"].astype(object)
    age[[3, 7, 30]] = ["n/a", None, np.nan]
    family = np.array(["", *map(str, np.arange(1, N) // 2)])
    gaps = {**TABLE, "age": age, "family": family}
    with refused(argument, ".*".join(f"sub-{row:02d}" for row in missing)):
        ico.associate(Y, gaps, formula, groups=groups)
    associations = ico.associate(
        Y, gaps, formula, groups=groups, missing_covariates="skip", n_permutations=0
    )
    np.testing.assert_array_equal(associations.rows, np.setdiff1d(np.arange(N), missing))
    assert set(ico.associate(Y, gaps, "site", n_permutations=0).table["n"]) == {N}


def test_repeated_scans_have_random_intercepts() -> None:
    twice = {name: np.repeat(values, 2) for name, values in TABLE.items()}
    twice["visit"] = np.tile([0.0, 1.0], N)
    noisy = np.repeat(Y, 2, axis=0) + 0.3 * np.random.default_rng(0).normal(size=(2 * N, 4))
    mixed = ico.associate(noisy, twice, "age + visit", n_permutations=200)
    assert mixed.settings["n_groups"] == N
    assert (mixed.settings["intraclass_correlation"] > 0.5).all()
    for term, df, exchange in (
        ("age", N - 2, "whole groups"),
        ("visit", N - 1, "whole groups, and rows within groups"),
    ):
        table = rows(mixed.table, term)
        np.testing.assert_allclose(table["df_residual"], df, rtol=0.02)
        assert set(table["exchange"]) == {exchange}
    alone = {**twice, "participant_id": np.arange(2 * N)}
    plain = ico.associate(noisy, alone, "age + visit", n_permutations=0)
    assert plain.settings["model"] == "ordinary least squares"
    family = ico.associate(
        noisy, alone, "age + visit", groups=twice["participant_id"], n_permutations=0
    )
    np.testing.assert_array_equal(family.table["value"], mixed.table["value"])


def test_groups_of_unequal_size_change_places_with_their_like() -> None:
    family = np.repeat(np.arange(24), [1, 2, 3] * 8)
    table = {"age": np.arange(48.0) % 17, "arm": np.array(["a", "b"])[(family // 3) % 2]}
    associations = ico.associate(Y[:48], table, "age + arm", groups=family, n_permutations=100)
    assert set(rows(associations.table, "arm")["exchange"]) == {"whole groups of equal size"}
    assert set(rows(associations.table, "age")["exchange"]) == {
        "whole groups of equal size, and rows within groups"
    }
    unequal = np.repeat(np.arange(7), [2, 3, 4, 5, 6, 7, 8])
    table = {"arm": np.array(["a", "b"])[unequal % 2]}
    with refused("groups"):
        ico.associate(Y[:35], table, "arm", groups=unequal)
    assert np.isnan(
        ico.associate(Y[:35], table, "arm", groups=unequal, n_permutations=0).table["p_permutation"]
    ).all()


def test_a_component_without_variance_is_left_alone() -> None:
    flat = np.column_stack([Y[:, :2], np.full(N, 0.1)])
    associations = ico.associate(flat, TABLE, "age + sex", n_permutations=100)
    assert np.isnan(associations.table["p_corrected"][2]) and np.isnan(
        associations.table["value"][2]
    )
    alone = ico.associate(Y[:, :2], TABLE, "age + sex", n_permutations=100)
    np.testing.assert_allclose(
        associations.table["p_corrected_all"][:2], alone.table["p_corrected_all"][:2]
    )


def test_covariates_of_the_fit_are_not_tested() -> None:
    cohort = ico.simulate_cohort(24, 2, mesh="fsaverage3", random_state=0)
    adjusted = ico.Covariates.fit(cohort, ["age"], nonnegative=False).apply(cohort)
    model = ico.CorticalFactorization(2, mesh="fsaverage3", n_starts=2, level=1, n_iter=50).fit(
        adjusted
    )
    associations = ico.associate(model, cohort.participants, "age + sex", n_permutations=50)
    assert set(associations.table["term"]) == {"sex"}
    assert "age" in associations.coefficients["column"]
    with refused("formula"):
        ico.associate(model, cohort.participants, "age")
    with refused("contrast"):
        ico.associate(model, cohort.participants, "age + sex", contrast="age: 50 - 40")


def test_the_groups_themselves_are_not_a_term() -> None:
    twice = {"family": np.arange(N) // 2, "age": TABLE["age"]}
    with refused("formula"):
        ico.associate(Y, twice, "age + C(family)", groups="family")


BAD: list[tuple[str, dict[str, Any]]] = [
    ("formula", {"formula": "agee + sex"}),
    ("formula", {"table": {**TABLE, "age": 1e200 * np.arange(N)}}),
    ("formula", {"table": {**TABLE, "age": ["9" * 5000, *["1"] * (N - 1)]}, "formula": "log(age)"}),
    ("groups", {"groups": "family"}),
    ("groups", {"groups": [1, 2]}),
    ("groups", {"groups": ["a"] * N}),
    ("table", {"table": {"age": [1, 2], "sex": ["F", "M"]}}),
    ("table", {"table": 7}),
    ("loadings", {"loadings": Y[:, 0]}),
    ("loadings", {"loadings": np.where(Y > 2, np.nan, Y)}),
    ("loadings", {"loadings": ico.CorticalFactorization(2)}),
    ("contrast", {"contrast": "group: patient - martian"}),
    ("contrast", {"contrast": "patient - control"}),
    ("contrast", {"contrast": "age: 10 - 90", "formula": "age"}),
    ("n_permutations", {"n_permutations": -1}),
    ("missing_covariates", {"missing_covariates": "drop"}),
]


@pytest.mark.parametrize(("argument", "change"), BAD)
def test_bad_input_names_the_argument(argument: str, change: dict[str, Any]) -> None:
    arguments = {"loadings": Y, "table": TABLE, "formula": "age + group", **change}
    with refused(argument):
        ico.associate(**arguments)


# ---------------------------------------------------------------------- what it promises


@pytest.mark.slow
@pytest.mark.parametrize("kind", null_cohorts.KINDS)
def test_p_values_are_uniform_where_there_is_nothing(kind: str) -> None:
    for p in null_cohorts.null_p(kind, 500, at_once=20).values():
        assert stats.kstest(p, "uniform").pvalue > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("kind", null_cohorts.KINDS)
def test_intervals_cover_a_planted_effect(kind: str) -> None:
    assert 0.93 <= null_cohorts.covered(kind, 500, at_once=20) <= 0.97
