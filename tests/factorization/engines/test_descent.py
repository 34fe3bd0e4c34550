"""Parts one start at a time in NumPy: the answers of the generic functions, without anything compiled."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from helpers.problems import relative, small
from icofactor.factorization import _solve as solver
from icofactor.factorization._solve import Course
from icofactor.factorization.engines import cpu, descent
from icofactor.factorization.methods import METHODS
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.update import State, begin


def posed(name: str, kind: str) -> tuple[Problem, State]:
    stats, method = small(kind).stats, METHODS[name]
    L = stats.L - stats.L.mean(axis=0)
    L[:, 3] = 0.0  # a face where nobody differs
    p = Problem.of(replace(stats, L=L, root_L=stats.root_L - stats.root_L.mean(axis=0)), method.scheme, "default")
    B, C = draw_starts(p, method, 3, seeds_of(0), range(4))
    B[1, :, 2] = 0.0  # a part without faces
    return p, begin(p, method.scheme, *method.scheme.settle(p, B, C))


@pytest.mark.parametrize("kind", ["partition", "smooth"])
@pytest.mark.parametrize("course", [Course(60), Course(400, tol=1e-6), Course(40, halve_at={10, 20})], ids=str)
@pytest.mark.parametrize("name", ["parts", "PPNMF", "E-PPNMF", "LE-PPNMF"])
def test_it_is_that_of_the_generic_functions(
    name: str, course: Course, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(cpu, "ONE_BY_ONE", 0)
    made = descent.descend_group
    monkeypatch.setattr(descent, "descend_group", lambda *given: (calls.append(1), made(*given)))
    p, state = posed(name, kind)
    expected = solver.iterate(p, METHODS[name], state, course)
    found = cpu.iterate_short(p, METHODS[name], state, course)
    dense = kind == "partition" or not hasattr(p.K, "tocsr")
    assert bool(calls) == (name != "LE-PPNMF" and dense and METHODS[name].scheme.kernel_for(p) == "descent")
    for what in ("n_iter", "converged", "diverged"):
        np.testing.assert_array_equal(getattr(found, what), getattr(expected, what))
    np.testing.assert_allclose(found.objectives, expected.objectives, rtol=1e-10)
    for what in ("B", "C", "tau", "y_B"):
        assert relative(getattr(found.state, what), getattr(expected.state, what)) < 1e-8, what
    again = [run(p, METHODS[name], expected.state, Course(5)) for run in (solver.iterate, cpu.iterate_short)]
    assert relative(again[1].state.B, again[0].state.B) < 1e-8


def test_memory_that_was_never_filled_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It warned of an overflow where memory happened to hold large numbers."""
    monkeypatch.setattr(cpu, "ONE_BY_ONE", 0)
    p, state = posed("parts", "partition")
    expected = cpu.iterate_short(p, METHODS["parts"], state, Course(10))
    monkeypatch.setattr(np, "empty_like", lambda x, *given, **named: np.full_like(x, 1e308))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cpu.iterate_short(p, METHODS["parts"], state, Course(10))
    np.testing.assert_array_equal(found.objectives, expected.objectives)


def test_threads_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "ONE_BY_ONE", 0)
    p, state = posed("parts", "partition")
    alone = cpu.iterate_short(p, METHODS["parts"], state, Course(20))
    monkeypatch.setattr(cpu, "WORTH_THREADS", 0)
    workers, in_order = [], cpu.in_order
    monkeypatch.setattr(cpu, "in_order", lambda *given: (workers.append(given[2]), in_order(*given))[1])
    together = cpu.iterate_short(p, METHODS["parts"], state, Course(20))
    assert workers == [None]
    np.testing.assert_array_equal(together.state.B, alone.state.B)
