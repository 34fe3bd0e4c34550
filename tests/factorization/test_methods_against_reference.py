"""The eleven methods against the reference on the full X; errors, objectives and gradients; refusals of bad input."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from helpers.marking import slow_but
from helpers.problems import (
    ALL_METHODS,
    KINDS,
    Factors,
    Small,
    differences,
    drawn_start,
    random_factors,
    relative,
    small,
)
from helpers.refusals import refused
from icofactor.errors import DivergenceError
from icofactor.factorization._multistart import multistart
from icofactor.factorization._solve import solve
from icofactor.factorization.design import Design
from icofactor.factorization.methods import METHODS, PAPER_METHODS
from icofactor.factorization.schemes import SCHEMES
from icofactor.factorization.schemes.base import Problem, error, terms_of
from icofactor.factorization.schemes.dictionary import largest_eigenvalue
from icofactor.factorization.statistics import Statistics
from icofactor.factorization.update import evaluate
from reference import naive

N_D, N_ITER = 3, 60
CASES = {
    "partition": ("partition", None, False),
    "partition, divided": ("partition", None, True),
    "exponential": ("exponential", None, False),
    "exponential, paper's sigma": ("exponential", 0.015, False),
    "exponential, divided": ("exponential", None, True),
    "smooth": ("smooth", None, False),
    "smooth, divided": ("smooth", None, True),
}
# Restarts are decisions, and near a minimum rounding can decide them. From this seed package and reference decide alike
# for 60 updates in every case below; another seed need not.
SEED = 1


def case(name: str) -> Small:
    return small(*CASES[name])


def penalty_of(problem: Small, method: str, rules: str) -> float:
    return naive.penalty(method, problem.X, problem.D, rules, problem.root_D)


def run_reference(problem: Small, method: str, rules: str, start: Factors) -> naive.Run:
    lam = penalty_of(problem, method, rules)
    if rules == "paper":
        return naive.run_paper(method, problem.X, problem.D, *start, N_ITER, lam)
    return naive.run_default(
        method, problem.X, problem.D, *start, N_ITER, lam, problem.stats.weights
    )


# ---------------------------------------------------------------- runs


def test_the_registry_holds_the_eleven_methods() -> None:
    assert PAPER_METHODS == naive.METHODS
    assert set(PAPER_METHODS) <= set(METHODS), "others may be added"
    assert [METHODS[name].name for name in METHODS] == list(METHODS)


@pytest.mark.parametrize("rules", slow_but(["paper", "default"], "default"))
@pytest.mark.parametrize("name", slow_but(CASES, "partition"))
@pytest.mark.parametrize(
    "method", slow_but(PAPER_METHODS, *(m for m in PAPER_METHODS if m not in ("PPNMF", "E-PPNMF")))
)
def test_runs_equal_the_reference(method: str, name: str, rules: str) -> None:
    problem = case(name)
    start = drawn_start(problem.stats, method, N_D, rules, SEED)
    expected = run_reference(problem, method, rules, start)
    found = solve(problem.stats, method, start=start, n_iter=N_ITER, rules=rules)
    assert found.n_iter == N_ITER and len(found.objective) == len(found.errors) == N_ITER + 1
    assert relative(found.B, expected["B"]) < 1e-9
    assert relative(found.C, expected["C"]) < 1e-9
    # value by value: the first ones can exceed the last by many orders of magnitude
    np.testing.assert_allclose(found.errors, expected["errors"], rtol=1e-9)
    np.testing.assert_allclose(found.objective, expected["objectives"], rtol=1e-9)
    assert found.error == found.errors[-1] < found.errors[0]


@pytest.mark.parametrize("rules", ["paper", "default"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("scheme", naive.SCHEMES)
def test_penalty_equals_the_reference(scheme: str, name: str, rules: str) -> None:
    problem = case(name)
    p = Problem.of(problem.stats, SCHEMES[scheme], rules)
    assert p.penalty == pytest.approx(penalty_of(problem, scheme, rules), rel=1e-12, abs=0)
    assert Problem.of(problem.stats, SCHEMES[scheme], rules, 0.0).penalty == 0.0
    weights = np.ones(problem.stats.n_columns) if rules == "paper" else problem.stats.weights
    np.testing.assert_array_equal(p.weights[:, 0], weights)


@pytest.mark.parametrize("kind", KINDS)
def test_penalty_does_not_depend_on_the_starting_level_under_default_rules(kind: str) -> None:
    coarse, fine = small(kind), small(kind, divided=True)
    for rules, same in (("default", True), ("paper", False)):
        one, other = (Problem.of(s.stats, SCHEMES["PNNMF"], rules).penalty for s in (coarse, fine))
        assert (abs(one - other) <= 1e-12 * one) == same


def test_sparse_and_dense_K_agree() -> None:
    """K stays sparse where there are many columns: 320 here."""
    problem = small("exponential")
    design = Design(problem.design.sites, "exponential", level=2, sigma=0.1)
    stats = Statistics.from_data(problem.X, design)
    p = Problem.of(stats, SCHEMES["PNNMF"])
    B = np.random.default_rng(0).random((4, stats.n_columns, N_D))
    assert not isinstance(p.K, np.ndarray)
    dense = replace(p, K=stats.K.toarray())
    assert relative(p.times_K(B), dense.times_K(B)) < 1e-14
    assert relative(p.times_K(B[0]), dense.times_K(B[0])) < 1e-14
    assert relative(p.gram(B), dense.gram(B)) < 1e-13


# ---------------------------------------------------------------- errors and gradients


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("scheme", naive.SCHEMES)
def test_errors_and_objectives_equal_those_of_the_full_X(scheme: str, name: str) -> None:
    problem = case(name)
    B, C = random_factors(problem.stats.n_columns, N_D, 12, 3, signed=scheme == "DL")
    p = Problem.of(problem.stats, SCHEMES[scheme])
    if scheme == "PPNMF":
        B = B / 50
        C = p.project(B)
    t, E, objective = evaluate(p, SCHEMES[scheme], B, C)
    lam, w = p.penalty, problem.stats.weights
    assert float(E) == pytest.approx(
        naive.scheme_error(scheme, problem.X, problem.D, B, C), rel=1e-11
    )
    assert float(error(p, B, terms_of(p, B, C))) == float(E)
    expected = naive.objective(scheme, problem.X, problem.D, B, C, lam, w)
    assert float(objective) == pytest.approx(expected, rel=1e-11)
    assert relative(t.LC, problem.D.T @ problem.X @ C.T) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", naive.SCHEMES)
def test_differences_of_the_objective_are_the_gradients(scheme: str, kind: str) -> None:
    problem, chosen = small(kind, divided=True), SCHEMES[scheme]
    X, D, w = problem.X, problem.D, problem.stats.weights
    B, C = random_factors(problem.stats.n_columns, N_D, 12, 4, signed=scheme == "DL")
    p = Problem.of(problem.stats, chosen, penalty="paper" if scheme == "PPNMF" else 0.7)

    def at(B: np.ndarray, C: np.ndarray) -> float:
        return float(evaluate(p, chosen, B, p.project(B) if chosen.projective else C)[2])

    B = B / 50 if chosen.projective else B
    told = naive.gradient_B(scheme, X, D, B, C, p.penalty, w)
    if scheme == "DL":
        told = told + p.penalty * w[:, None] * np.sign(B)
    assert relative(differences(lambda Z: at(Z, C), B, 1e-4 * abs(B).max()), told) < 1e-6
    if chosen.projective:
        return
    told = naive.gradient_C(scheme, X, D, B, C, p.penalty, w)
    if scheme == "DL":
        told = told + p.penalty * np.sign(C)
    assert relative(differences(lambda Z: at(B, Z), C, 1e-4), told) < 1e-6
    # the same through K and L: slope of ½E
    t = terms_of(p, B, C)
    slope = naive.gradient_B("DL", X, D, B, C, 0.0, w)
    assert relative(p.times_K(B) @ t.CC - t.LC, slope) < 1e-11


@pytest.mark.parametrize("rules", ["paper", "default"])
@pytest.mark.parametrize("kind", KINDS)
def test_dictionary_updates_step_along_the_gradient(kind: str, rules: str) -> None:
    problem, scheme = small(kind, divided=True), SCHEMES["DL"]
    X, D, w = problem.X, problem.D, problem.stats.weights
    B, C = random_factors(problem.stats.n_columns, N_D, 12, 5, signed=True)
    p = Problem.of(problem.stats, scheme, rules, penalty=0.0)
    t = terms_of(p, B, C)
    step_B: Any
    step_C: Any
    step_B = step_C = 0.1 / np.linalg.norm(X.T @ D)
    if rules == "default":
        kappa = D.T @ D.sum(axis=1)
        step_B = 1 / (kappa[:, None] * naive.sigma_bound(C @ C.T))
        step_C = 1 / naive.sigma_bound(B.T @ D.T @ D @ B)
    taken_B = (B - scheme.update_B(p, B, C, t)) / step_B
    assert relative(taken_B, naive.gradient_B("DL", X, D, B, C, 0.0, w)) < 1e-9
    taken_C = (C - scheme.update_C(p, B, C, t.G)) / step_C
    assert relative(taken_C, naive.gradient_C("DL", X, D, B, C, 0.0, w)) < 1e-9


@pytest.mark.parametrize("rules", ["paper", "default"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["PNNMF", "SPNNMF", "PPNMF"])
def test_multiplicative_updates_step_along_the_gradient(scheme: str, kind: str, rules: str) -> None:
    """B − B ⊙ G⁻ ⊘ G⁺ = B ⊘ G⁺ ⊙ (G⁺ − G⁻), and G⁺ − G⁻ is the gradient (half of it where the objective holds E)."""
    problem, chosen = small(kind, divided=True), SCHEMES[scheme]
    X, D = problem.X, problem.D
    w = np.ones(problem.stats.n_columns) if rules == "paper" else problem.stats.weights
    B, C = random_factors(problem.stats.n_columns, N_D, 12, 6)
    p = Problem.of(problem.stats, chosen, rules, penalty="paper" if scheme == "PPNMF" else 0.01)
    if chosen.projective:
        # at the best scale, where no factor is so large that the default rules limit it
        B = chosen.settle(replace(p, literal=False), B, C)[0]
        C = p.project(B)
    t = terms_of(p, B, C)
    gradient = naive.gradient_B(scheme, X, D, B, C, p.penalty, w)
    if chosen.projective:
        scale = p.times_K(B) @ t.CC + t.LC @ t.G
        moved, slope = B - chosen.update_B(p, B, C, t), gradient / 4
    else:
        pull = p.penalty * w[:, None] * (B if scheme == "PNNMF" else 1.0)
        scale = p.times_K(B) @ t.CC + (0.0 if rules == "paper" else pull)
        moved, slope = B - chosen.update_B(p, B, C, t), gradient / (2 if scheme == "PNNMF" else 1)
    free = moved > -0.4 * B if chosen.projective else np.ones_like(B, dtype=bool)
    assert free.mean() > 0.9
    assert relative((moved * scale / B)[free], slope[free]) < 1e-9


def test_the_bound_of_the_largest_eigenvalue() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((50, 10, 6))
    A = A @ np.swapaxes(A, 1, 2) * 10.0 ** rng.integers(-100, 100, (50, 1, 1))
    bound, largest = largest_eigenvalue(A)[:, 0, 0], np.linalg.eigvalsh(A)[:, -1]
    assert (bound >= largest * (1 - 1e-12)).all() and (bound <= 1.16 * largest).all()
    assert largest_eigenvalue(np.zeros((3, 3)))[0, 0] == 0.0
    assert largest_eigenvalue(A[0])[0, 0] == pytest.approx(naive.sigma_bound(A[0]), rel=1e-12)


# ---------------------------------------------------------------- starts


@pytest.mark.parametrize("kind", KINDS)
def test_paper_starts(kind: str) -> None:
    problem = small(kind)
    L = problem.X.T @ problem.D
    for method in PAPER_METHODS:
        B, C = drawn_start(problem.stats, method, 4, "paper", 0)
        scheme = METHODS[method].scheme.name
        if scheme == "PPNMF":
            assert (B >= 0).all() and 0.3 < (B * np.linalg.norm(L)).mean() < 1.3
            assert relative(C, B.T @ L.T) < 1e-12
        elif scheme == "DL":
            assert (
                abs(B.mean()) < 0.5
                and 0.6 < B.std() < 1.4
                and abs(C.mean()) < 0.5
                and 0.6 < C.std() < 1.4
            )
        else:
            assert (C == 0.25).all()
            for column in B.T:  # the mean of five different subjects' columns of Lᵀ
                assert _is_mean_of_five(column, L)


def _is_mean_of_five(column: np.ndarray, L: np.ndarray) -> bool:
    share = np.linalg.lstsq(L.T, column, rcond=None)[0]
    return bool(np.allclose(np.sort(share), [0.0] * (len(L) - 5) + [0.2] * 5, atol=1e-8))


@pytest.mark.parametrize("method", ["PNNMF", "SPNNMF", "PPNMF"])
def test_default_starts_are_at_their_best_scale(method: str) -> None:
    problem = small("exponential")
    B, C = drawn_start(problem.stats, method, 4, "default", 0)
    at = lambda s: naive.scheme_error(method, problem.X, problem.D, s * B, C)
    assert at(1.0) < min(at(0.999), at(1.001))
    if method != "PPNMF":
        np.testing.assert_allclose(
            naive.balance_scales(method, B, C, problem.stats.weights), 1.0, rtol=1e-12
        )


# ---------------------------------------------------------------- refusals


def with_L(stats: Statistics, **changes: Any) -> Statistics:
    L = stats.L.copy()
    for at, value in changes.items():
        L[0, int(at[1:])] = value
    return replace(stats, L=L)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "LE-DL"}, "use 'DL' or 'E-DL'"),
        ({"method": "NMF"}, "DL, E-DL, .*; found 'NMF'"),
        ({"n_components": None}, "found None"),
        ({"n_components": 0}, "found 0"),
        ({"n_components": 2.5}, "found 2.5"),
        ({"n_components": True}, "found True"),
        ({"n_components": 13}, "at most 12"),
        ({"rules": "loose"}, "found 'loose'"),
        ({"n_iter": -1}, "found -1"),
        ({"n_iter": 1.5}, "found 1.5"),
        ({"tol": -1e-3}, "found -0.001"),
        ({"tol": np.nan}, "found nan"),
        ({"penalty": "best"}, "found 'best'"),
        ({"penalty": -1.0}, "found -1.0"),
        ({"penalty": np.inf}, "found inf"),
        ({"method": "PPNMF", "penalty": 1.0}, "method='PPNMF' has no penalty"),
        ({"random_state": -1}, "found -1"),
        ({"random_state": "seed"}, "found 'seed'"),
    ],
)
@pytest.mark.parametrize("call", [solve, multistart])
def test_wrong_arguments(call: Any, arguments: dict[str, Any], message: str) -> None:
    given = {"method": "PNNMF", "n_components": 3, "n_iter": 2, **arguments}
    if call is multistart:
        given["n_starts"] = 2
    with refused(list(arguments)[-1], message):
        call(small().stats, **given)


@pytest.mark.parametrize("arguments", [{"engine": "abacus"}, {"n_starts": 0}, {"n_starts": 1.5}])
def test_wrong_arguments_of_multistart(arguments: dict[str, Any]) -> None:
    ((name, value),) = arguments.items()
    with refused(name, f"found {value!r}"):
        multistart(small().stats, "PNNMF", 3, **{"n_starts": 2, "n_iter": 2, **arguments})


@pytest.mark.parametrize("call", [solve, multistart])
def test_data_that_cannot_be_factorized(call: Any) -> None:
    stats = small().stats
    for wrong in (
        with_L(stats, c3=np.nan),
        with_L(stats, c3=np.inf),
        replace(stats, sq_norm=np.nan),
    ):
        with pytest.raises(ValueError, match="X contains NaN or infinite values"):
            call(wrong, "DL", 3, n_iter=1)
    zero = Statistics.from_data(np.zeros_like(small().X), small().design)
    for method in ALL_METHODS:
        with pytest.raises(ValueError, match="X is zero everywhere"):
            call(zero, method, 3, n_iter=1)
    negative = with_L(stats, c3=-1.0)
    with pytest.raises(
        ValueError,
        match="negative values, but LE-PNNMF needs values ≥ 0; use 'DL', 'E-DL' or 'parts'",
    ):
        call(negative, "LE-PNNMF", 3, n_iter=1)


def test_dictionary_learning_takes_negative_data() -> None:
    problem = small()
    centred = Statistics.from_data(problem.X - problem.X.mean(), problem.design)
    assert (centred.L < 0).any()
    found = solve(centred, "E-DL", 3, n_iter=30, penalty=0.1, random_state=0)
    assert found.objective[-1] < 0.9 * found.objective[0]


@pytest.mark.parametrize(
    ("method", "change", "argument", "message"),
    [
        ("PNNMF", lambda B, C: (B[:-1], C), "start.B", r"\(20, n_.*found \(19, 3\)"),
        ("PNNMF", lambda B, C: (B[None], C), "start.B", r"found \(1, 20, 3\)"),
        ("PNNMF", lambda B, C: (B, C[:, 1:]), "start.C", r"\(3, 12\); found \(3, 11\)"),
        ("PNNMF", lambda B, C: (B, C[1:]), "start.C", r"\(3, 12\); found \(2, 12\)"),
        ("PNNMF", lambda B, C: (B, None), "start.C", "found None"),
        ("PNNMF", lambda B, C: (B, C, C), "start", "found tuple"),
        ("PNNMF", lambda B, C: "first", "start", "found 'first'"),
        ("PNNMF", lambda B, C: (-B, C), "start.B", "negative"),
        ("LE-SPNNMF", lambda B, C: (B, -C), "start.C", "negative"),
        ("E-PPNMF", lambda B, C: (-B, None), "start.B", "negative"),
        ("DL", lambda B, C: (B * np.nan, C), "start.B", "NaN"),
        ("DL", lambda B, C: (B, C * np.inf), "start.C", "infinite"),
    ],
)
def test_wrong_starts(method: str, change: Any, argument: str, message: str) -> None:
    B, C = random_factors(20, 3, 12, 0)
    with refused(argument, message):
        solve(small().stats, method, start=change(B, C), n_iter=1)


def test_a_start_must_agree_with_n_components() -> None:
    B, C = random_factors(20, 3, 12, 0)
    with refused("start.B", r"\(20, 4\); found \(20, 3\)"):
        solve(small().stats, "PNNMF", 4, start=(B, C))
    with refused("n_components", "12 subjects"):
        solve(small().stats, "PNNMF", start=random_factors(20, 13, 12, 0))


def test_a_solution_can_be_the_start_of_another() -> None:
    stats = small().stats
    first = solve(stats, "PNNMF", 3, n_iter=5, random_state=0)
    second = solve(stats, "PNNMF", start=first, n_iter=5)
    whole = solve(stats, "PNNMF", 3, n_iter=10, random_state=0)
    np.testing.assert_array_equal(second.B, whole.B)
    assert second.objective[0] == pytest.approx(first.objective[-1], rel=1e-11)
    assert (first.n_components, first.method, first.rules, first.converged) == (
        3,
        "PNNMF",
        "default",
        False,
    )


def test_no_updates_leave_the_start() -> None:
    B, C = random_factors(20, 3, 12, 0)
    found = solve(small().stats, "LE-PNNMF", start=(B, C), n_iter=0)
    np.testing.assert_array_equal(found.B, B)
    np.testing.assert_array_equal(found.C, C)
    assert found.n_iter == 0 and found.objective.shape == (1,)


@pytest.mark.filterwarnings("ignore:penalty 5 dwarfs the data")
@pytest.mark.parametrize("penalty", ["paper", 0.0])
@pytest.mark.parametrize("call", [solve, multistart])
def test_the_papers_dictionary_step_diverges_with_a_clear_word(call: Any, penalty: Any) -> None:
    """η = 0.1/‖L‖ is far too long when X is small and B, C are drawn from N(0, 1)."""
    problem = small()
    tiny = Statistics.from_data(1e-3 * problem.X, problem.design)
    # NumPy may say "overflow" on the way; the error is what a caller should act on
    message = r"DL under rules='paper' diverged at update \d+\. Its step 0\.1/‖L‖ is not scaled to these data; use"
    with pytest.raises(DivergenceError, match=message), np.errstate(all="ignore"):
        call(tiny, "DL", 3, n_iter=200, rules="paper", penalty=penalty, random_state=0)
