"""The compiled engine against the generic functions, which are themselves held to the reference on the full X."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from helpers.problems import METHODS_AND_RULES, relative, small
from icofactor.factorization import engines
from icofactor.factorization._solve import Course, Run, iterate
from icofactor.factorization.engines import choose_engine, cpu
from icofactor.factorization.methods import METHODS
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.statistics import Statistics
from icofactor.factorization.update import State, begin
from icofactor.maps import workers

kernels = pytest.importorskip(
    "icofactor.factorization.engines.kernels", reason="numba is not installed"
)

COMPILED = [pair for pair in METHODS_AND_RULES if METHODS[pair[0]].scheme.kernel]


def posed(
    stats: Statistics, name: str, rules: str, n_components: int, n_starts: int
) -> tuple[Problem, State]:
    method = METHODS[name]
    p = Problem.of(stats, method.scheme, rules)
    return p, begin(
        p, method.scheme, *draw_starts(p, method, n_components, seeds_of(0), range(n_starts))
    )


def deviations(kind: str = "partition") -> Statistics:
    problem = small(kind)
    return Statistics.from_data(problem.X - problem.X.mean(axis=1, keepdims=True), problem.design)


def assert_same(run: Run, expected: Run, tolerance: float = 1e-9) -> None:
    np.testing.assert_array_equal(run.n_iter, expected.n_iter)
    np.testing.assert_array_equal(run.converged, expected.converged)
    np.testing.assert_array_equal(run.diverged, expected.diverged)
    assert run.objectives.shape == expected.objectives.shape
    assert relative(run.objectives, expected.objectives) < tolerance
    assert relative(run.errors, expected.errors) < tolerance
    for factor in ("B", "C"):
        assert relative(getattr(run.state, factor), getattr(expected.state, factor)) < tolerance, (
            factor
        )


@pytest.mark.parametrize("kind", ["partition", "smooth"])
@pytest.mark.parametrize(("name", "rules"), COMPILED)
def test_every_method_equals_the_generic_functions(name: str, rules: str, kind: str) -> None:
    method = METHODS[name]
    p, state = posed(small(kind).stats, name, rules, 3, 5)
    assert_same(cpu.iterate(p, method, state, Course(60)), iterate(p, method, state, Course(60)))


@pytest.mark.parametrize("kind", ["partition", "smooth"])
@pytest.mark.parametrize("name", ["parts", "PPNMF", "E-PPNMF", "LE-PPNMF"])
def test_deviations_equal_the_generic_functions(name: str, kind: str) -> None:
    method = METHODS[name]
    p, state = posed(deviations(kind), name, "default", 3, 5)
    assert p.signed
    for tol in (0.0, 1e-6):
        course = Course(150, tol)
        assert_same(cpu.iterate(p, method, state, course), iterate(p, method, state, course), 1e-8)


@pytest.mark.parametrize("penalty", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["partition", "smooth"])
def test_a_component_without_loadings_equals_the_generic_functions(
    kind: str, penalty: float
) -> None:
    method = METHODS["CD-SPNNMF"]
    p, state = posed(small(kind).stats, "CD-SPNNMF", "default", 3, 2)
    p = replace(p, penalty=penalty)
    state = begin(p, method.scheme, state.B, state.C * np.array([1.0, 0.0, 1.0])[:, None])
    run = cpu.iterate(p, method, state, Course(1))
    assert (run.state.B[..., 1].max() > 0) == (penalty == 0)
    assert_same(run, iterate(p, method, state, Course(1)))


@pytest.mark.parametrize(("n_subjects", "n_components"), [(2, 1), (3, 2), (21, 9)])
@pytest.mark.parametrize(
    "name", ["PNNMF", "LE-SPNNMF", "E-DL", "LE-PPNMF", "CD-PNNMF", "CD-SPNNMF", "parts"]
)
def test_any_size(name: str, n_subjects: int, n_components: int) -> None:
    stats = small("partition", None, True, 24).stats
    p, state = posed(replace(stats, L=stats.L[:n_subjects]), name, "default", n_components, 3)
    expected = iterate(p, METHODS[name], state, Course(25))
    assert_same(cpu.iterate(p, METHODS[name], state, Course(25)), expected, 1e-8)


@pytest.mark.parametrize("name", ["LE-PNNMF", "E-PPNMF", "CD-PNNMF", "parts"])
@pytest.mark.parametrize(
    "course",
    [
        Course(160, tol=1e-4),
        Course(160, halve_at={20, 40, 80}),
        Course(160, tol=1e-3, halve_at={50}),
    ],
    ids=["tol", "halving", "both"],
)
def test_runs_end_where_they_end_in_the_generic_loop(name: str, course: Course) -> None:
    p, state = posed(small().stats, name, "default", 3, 12)
    run = cpu.iterate(p, METHODS[name], state, course)
    expected = iterate(p, METHODS[name], state, course)
    np.testing.assert_array_equal(run.n_iter, expected.n_iter)
    np.testing.assert_array_equal(run.converged, expected.converged)
    # Starts of parts that have not settled after 160 updates carry rounding along.
    assert relative(run.objectives[:, -1], expected.objectives[:, -1]) < (
        1e-8 if name == "parts" else 1e-9
    )


def test_diverging_runs_end_and_leave_the_others_alone() -> None:
    p, state = posed(small().stats, "DL", "paper", 3, 4)
    state = begin(
        p, METHODS["DL"].scheme, state.B * np.array([1.0, 1e6, 1.0, 1e6])[:, None, None], state.C
    )
    run = cpu.iterate(p, METHODS["DL"], state, Course(100))
    expected = iterate(p, METHODS["DL"], state, Course(100))
    np.testing.assert_array_equal(run.diverged, [False, True, False, True])
    np.testing.assert_array_equal(run.n_iter, expected.n_iter)
    np.testing.assert_allclose(run.objectives[[0, 2]], expected.objectives[[0, 2]], rtol=1e-9)


def test_a_run_can_be_continued() -> None:
    """30 + 31 updates are 61: the plain updates that one call remembers serve the next."""
    method = METHODS["LE-PNNMF"]
    p, state = posed(small().stats, "LE-PNNMF", "default", 3, 4)
    uninterrupted = cpu.iterate(p, method, state, Course(61))
    half = cpu.iterate(p, method, state, Course(30))
    assert (
        relative(cpu.iterate(p, method, half.state, Course(31)).state.B, uninterrupted.state.B)
        < 1e-12
    )


@pytest.mark.parametrize("name", ["LE-PNNMF", "parts"])
def test_answers_do_not_depend_on_threads_or_tasks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, state = posed(small().stats, name, "default", 3, 40)
    run = cpu.iterate(p, METHODS[name], state, Course(50))
    monkeypatch.setattr(workers, "n_threads", lambda: 1)
    monkeypatch.setattr(cpu, "STARTS_PER_TASK", 7)
    on_one_thread = cpu.iterate(p, METHODS[name], state, Course(50))
    np.testing.assert_array_equal(run.objectives, on_one_thread.objectives)
    np.testing.assert_array_equal(run.state.B, on_one_thread.state.B)


def test_auto_goes_by_the_work_and_by_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    p, _ = posed(small().stats, "LE-PNNMF", "default", 3, 1)
    method = METHODS["LE-PNNMF"]
    assert choose_engine("auto", p, method, 3, 10).name == "numpy"
    monkeypatch.setattr(engines, "WORTH_COMPILING", 0.0)
    assert choose_engine("auto", p, method, 3, 10).name == "cpu"
    monkeypatch.setattr(engines, "has_numba", lambda: False)
    assert choose_engine("auto", p, method, 3, 10).name == "numpy"
    with pytest.warns(UserWarning):
        assert choose_engine("cpu", p, method, 3, 10).name == "numpy"
