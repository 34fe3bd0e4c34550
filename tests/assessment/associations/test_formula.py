"""Formulas: what they mean, and that nothing in them is evaluated."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.refusals import refused
from icofactor.assessment.associations.design import RegressionDesign
from icofactor.assessment.associations.formula import parse, smoothed
from icofactor.errors import ArgumentError

N = 40
TABLE = {
    "age": [20.5 + (7 * i) % 31 for i in range(N)],
    "iq": [100 + (11 * i) % 17 for i in range(N)],
    "sex": ["F" if i % 2 else "M" for i in range(N)],
    "site": [1 + i % 3 for i in range(N)],
    "batch no": [1 + i % 4 for i in range(N)],
}


def names(formula: str, smooth: object = None) -> list[str]:
    return [
        term.name for term in RegressionDesign.of(smoothed(parse(formula), smooth), TABLE).terms
    ]


@pytest.mark.parametrize(
    ("formula", "terms"),
    [
        ("age + sex", ["age", "sex"]),
        ("~ age", ["age"]),
        ("age * sex - age:sex", ["age", "sex"]),
        (":".join(["age"] * 400), ["age"]),
        ("1 + age", ["age"]),
        ("age * sex", ["age", "sex", "age:sex"]),
        ("age * iq:sex", ["age", "iq:sex", "age:iq:sex"]),
        ("(age + sex + iq)**2", ["age", "sex", "iq", "age:sex", "age:iq", "iq:sex"]),
        ("age + age", ["age"]),
        ("C(`batch no`) + scale(age)", ["C(batch no)", "scale(age)"]),
        ("poly(age, 2) + log(iq)", ["poly(age, degree=2)", "log(iq)"]),
        ("bs(age, df=5) + center(iq)", ["bs(age, df=5)", "center(iq)"]),
    ],
)
def test_terms(formula: str, terms: list[str]) -> None:
    assert names(formula) == terms


def test_categories_are_categories() -> None:
    design = RegressionDesign.of(parse("site + age + C(sex, base=M)"), TABLE)
    assert design.labels == ("Intercept", "site[2]", "site[3]", "age", "C(sex, base=M)[F]")
    assert design.terms[0].cells == {"1": 14, "2": 13, "3": 13}


def test_smooth_terms_are_centred_splines() -> None:
    assert names("age * sex", "age") == ["s(age)", "sex", "s(age):sex"]
    assert names("sex", {"age": 4}) == ["s(age)", "sex"]
    design = RegressionDesign.of(smoothed(parse("sex"), "age=4"), TABLE)
    assert len(design.terms[0].columns) == 4
    np.testing.assert_allclose(design.X[:, design.terms[0].columns].mean(axis=0), 0, atol=1e-12)
    # the same columns again for the same rows, and a spline of a straight line holds the line
    np.testing.assert_allclose(design.at(TABLE), design.X)
    age = np.array(TABLE["age"])
    fitted = design.X @ np.linalg.lstsq(design.X, age, rcond=None)[0]
    np.testing.assert_allclose(fitted, age)


@pytest.mark.parametrize("smooth", ["age=1", "age=x", {"age": 99}])
def test_smooth_needs_some_degrees_of_freedom(smooth: object) -> None:
    with refused("smooth"):
        smoothed(parse("age"), smooth)


HOSTILE = [
    "__import__('os').system('touch pwned')",
    "age + __import__('os')",
    "{__import__('os').getcwd()}",
    "eval('1')",
    "exec('import os')",
    "np.array(age)",
    "C(__import__('os'))",
    "C(age, base=__import__('os'))",
    "log(open('x'))",
    "I(age + 1)",
    "age[0]",
    "[age for age in age]",
    "age ** 10000000",
    "poly(age, 99999999)",
    "bs(age, df=10**9)",
    "age ^ 10000000",
    "((age + sex + iq + site)**4)**4",
    "*".join(["(a + b + c + d)"] * 8),
    "age ** 2 ** 2 ** 2 ** 2 ** 2",
    "(a + b) ** (1 + 1)",
    "age | sex",
    ".",
    "age:2",
    "C(sex, M, F)",
    "C(`x`.__class__)",
    "log(age if sex else age)",
    "*".join("abcdefghijklmnopqrstuvwxyz"),
    "age" * 2000,
    "age\nimport os",
    "age; age",
    "age @ sex",
    "age if sex else age",
    "@age",
    "age - 1",
    "y ~ age",
    "0 + age",
    "1",
    "",
    "+",
    "hashed(age)",
    "age := 3",
    "f'{age}'",
    "'age'",
    "cr(age, constraints='x')",
    "cr(age, df=True)",
    "log(sex, 3, 4)",
    "log(C(age))",
]


@pytest.mark.parametrize("formula", HOSTILE)
def test_nothing_is_evaluated(formula: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "system", lambda _: pytest.fail("a formula ran a command"))
    monkeypatch.setattr("builtins.eval", lambda *_: pytest.fail("a formula was evaluated"))
    with refused("formula"):
        parse(formula)


@given(st.text(alphabet="age sex`:+*()~,='\"1C.[]{}\\lambda_-", max_size=60))
def test_any_text_is_read_or_refused(formula: str) -> None:
    try:
        assert parse(formula)
    except ArgumentError as problem:
        assert problem.argument == "formula"


def test_what_formulaic_sees_is_written_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of columns reach it as x0_, x1_, ..., whatever they are."""
    import formulaic

    formulas = []
    real = formulaic.model_matrix
    monkeypatch.setattr(
        formulaic,
        "model_matrix",
        lambda text, *a, **b: formulas.append(text) or real(text, *a, **b),
    )
    table = {**TABLE, "__import__('os')": TABLE["age"], "log": TABLE["iq"]}
    RegressionDesign.of(parse("log(log) + `__import__('os')`"), table)
    assert formulas == ["1 + log(x0_) + x1_"]


@pytest.mark.parametrize(
    ("formula", "change"),
    [
        ("age + iq", {"iq": [100] * N}),
        ("age + iq", {"iq": TABLE["age"]}),
        ("sex * site", {"site": [1 + i % 2 for i in range(N)]}),
        ("age", {"age": ["x", *TABLE["age"][1:]]}),
        ("log(age)", {"age": [-5.0, *TABLE["age"][1:]]}),
        ("C(age)", {"age": list(range(N))}),
        ("C(sex, base=X)", {}),
    ],
)
def test_designs_that_cannot_be(formula: str, change: dict[str, list[object]]) -> None:
    table = {**TABLE, **change}
    with refused("formula"):
        RegressionDesign.of(parse(formula), table)
