"""The compiled kernels against the generic functions, which are themselves held to the reference on the full X."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.problems import METHODS_AND_RULES, small
from icofactor.factorization import engines
from icofactor.factorization._multistart import multistart
from icofactor.factorization._refine import Refinement, is_long, refine
from icofactor.factorization._solve import Course, Run, iterate, iterate_in_groups, solve
from icofactor.factorization.engines import check_engine, choose_engine, cpu, likely_updates
from icofactor.factorization.methods import METHODS, PAPER_METHODS
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.schemes.parts import hard_parts
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.statistics import Data, Statistics
from icofactor.factorization.update import TOL_LOOKBACK, TOL_WINDOW, State, begin, settled
from icofactor.streaming import runners as threads

kernels = pytest.importorskip("icofactor.factorization.engines.kernels", reason="numba is not installed")
sweeps = pytest.importorskip("icofactor.factorization.engines.sweeps", reason="numba is not installed")


def posed(stats: Statistics, name: str, rules: str, n_d: int, n_starts: int) -> tuple[Problem, State]:
    method = METHODS[name]
    p = Problem.of(stats, method.scheme, rules)
    return p, begin(p, method.scheme, *draw_starts(p, method, n_d, seeds_of(0), range(n_starts)))


def deviations(kind: str = "partition") -> Statistics:
    problem = small(kind)
    return Statistics.from_data(problem.X - problem.X.mean(axis=1, keepdims=True), problem.design)


def relative(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.abs(x - y).max() / np.abs(y).max())


def assert_same(found: Run, wanted: Run, tolerance: float = 1e-9) -> None:
    assert found.objectives.shape == wanted.objectives.shape
    assert relative(found.objectives, wanted.objectives) < tolerance
    assert relative(found.errors, wanted.errors) < tolerance
    assert relative(found.state.B, wanted.state.B) < tolerance
    assert relative(found.state.C, wanted.state.C) < tolerance
    np.testing.assert_array_equal(found.n_iter, wanted.n_iter)
    np.testing.assert_array_equal(found.converged, wanted.converged)


@pytest.mark.parametrize("kind", ["partition", "smooth"])
@pytest.mark.parametrize(("name", "rules"), [pair for pair in METHODS_AND_RULES if METHODS[pair[0]].scheme.kernel])
def test_kernels_equal_the_generic_functions(name: str, rules: str, kind: str) -> None:
    p, state = posed(small(kind).stats, name, rules, 3, 5)
    assert_same(cpu.iterate(p, METHODS[name], state, Course(60)), iterate(p, METHODS[name], state, Course(60)))


@pytest.mark.parametrize("kind", ["partition", "smooth"])
@pytest.mark.parametrize("name", ["parts", "PPNMF", "E-PPNMF", "LE-PPNMF"])
def test_kernels_of_deviations_equal_the_generic_functions(name: str, kind: str) -> None:
    method = METHODS[name]
    p, state = posed(deviations(kind), name, "default", 3, 5)
    assert p.signed
    assert choose_engine("cpu", p, method, 3, 10).name == "cpu"
    for tol in (0.0, 1e-6):
        assert_same(cpu.iterate(p, method, state, Course(150, tol)), iterate(p, method, state, Course(150, tol)), 1e-8)


@pytest.mark.parametrize(("single", "tolerance"), [(False, 1e-12), (True, 1e-4)])
@pytest.mark.parametrize("name", ["CD-PNNMF", "CD-SPNNMF"])
def test_an_update_by_sweeps_is_that_of_the_equations(name: str, single: bool, tolerance: float) -> None:
    """One update, without extrapolation, of two starts with six components."""
    rng, n, scheme = np.random.default_rng(0), 35, METHODS[name].scheme
    L, K, weights = rng.random((9, n)) + 0.5, rng.random(n) + 0.5, rng.random((n, 1))
    p = Problem(L, K, K, weights, 0.3, 5 * np.square(L).sum(), 1.0, False)
    state = begin(p, scheme, rng.random((2, n, 6)), rng.random((2, 6, 9)))
    run = cpu.iterate(p, METHODS[name], state, Course(1, single=single))
    ridge, lasso = scheme.split_penalty(0.3)
    for g in range(2):
        B, C = state.B[g].copy(), state.C[g].copy()
        for j in [*range(6)] * scheme.sweeps:
            pull = L.T @ C[j] - K * (B @ (C @ C[j])) - weights[:, 0] * (ridge * B[:, j] + lasso)
            B[:, j] = np.maximum(B[:, j] + pull / (C[j] @ C[j] * K + ridge * weights[:, 0]), 0)
        for j in [*range(6)] * scheme.sweeps:
            KB = K * B[:, j]
            C[j] = np.maximum(C[j] + (L @ B[:, j] - KB @ B @ C - ridge * C[j] - lasso) / (KB @ B[:, j] + ridge), 0)
        found, wanted = (np.einsum("kj,js->jks", *both) for both in ((run.state.B[g], run.state.C[g]), (B, C)))
        np.testing.assert_allclose(found, wanted, atol=tolerance * wanted.max())
        E = p.sq_norm - 2 * np.vdot(L.T, B @ C) + np.vdot(K[:, None] * (B @ C), B @ C)
        np.testing.assert_allclose(run.errors[g, 1], E, rtol=tolerance)


@pytest.mark.parametrize("penalty", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["partition", "smooth"])
def test_a_component_without_loadings_ends_as_in_the_generic_functions(kind: str, penalty: float) -> None:
    method = METHODS["CD-SPNNMF"]
    p, state = posed(small(kind).stats, "CD-SPNNMF", "default", 3, 2)
    p = replace(p, penalty=penalty)
    state = begin(p, method.scheme, state.B, state.C * np.array([1.0, 0.0, 1.0])[:, None])
    found, wanted = (run(p, method, state, Course(1)) for run in (cpu.iterate, iterate))
    assert (found.state.B[..., 1].max() > 0) == (penalty == 0)
    assert_same(found, wanted)


def test_coordinate_descent_with_sweeps_in_float32_ends_at_the_same_error() -> None:
    p, state = posed(small().stats, "CD-PNNMF", "default", 3, 4)
    found, wanted = (cpu.iterate(p, METHODS["CD-PNNMF"], state, Course(48, single=x)) for x in (True, False))
    np.testing.assert_allclose(found.errors[:, -1], wanted.errors[:, -1], rtol=1e-5)
    assert (np.diff(found.objectives) <= 1e-13 * p.sq_norm).all()


def sparse_start() -> tuple[Problem, State]:
    """Parts of few faces each: the kernel leaves zeros out of its products."""
    p, state = posed(deviations(), "parts", "default", 6, 3)
    B = np.where(np.quantile(state.B, 0.9, axis=1, keepdims=True) <= state.B, state.B, 0.0)
    assert 5 * np.count_nonzero(B[0]) < B[0].size
    return p, begin(p, METHODS["parts"].scheme, B, p.project(B))


def test_products_without_zeros_equal_the_generic_functions() -> None:
    p, state = sparse_start()
    assert_same(cpu.iterate(p, METHODS["parts"], state, Course(40)), iterate(p, METHODS["parts"], state, Course(40)))


def test_parts_in_float32_settle_at_the_same_error() -> None:
    p, state = sparse_start()
    found, wanted = (cpu.iterate(p, METHODS["parts"], state, Course(2000, 1e-4, single=x)) for x in (True, False))
    assert found.converged.all() and found.state.B.dtype == np.float64
    np.testing.assert_allclose(found.errors[:, -1], wanted.errors[:, -1], rtol=1e-4)
    exact = begin(p, METHODS["parts"].scheme, found.state.B, found.state.C)
    np.testing.assert_allclose(found.errors[:, -1], exact.error, rtol=1e-12)


def test_parts_from_compiled_starts_are_those_of_numpy() -> None:
    stats = deviations()
    found, wanted = (
        multistart(stats, "parts", 3, n_starts=30, n_iter=200, tol=1e-4, engine=engine, random_state=0)
        for engine in ("cpu", "numpy")
    )
    assert (found.engine, found.best_start) == ("cpu", wanted.best_start)
    np.testing.assert_array_equal(found.start_n_iter, wanted.start_n_iter)
    np.testing.assert_allclose(found.objectives, wanted.objectives, rtol=1e-10)


@pytest.mark.parametrize("n_parts", [1, 4, 9])
def test_compiled_hard_starts_are_those_of_numpy(n_parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And they are compiled where that is said."""
    rng, asked = np.random.default_rng(n_parts), list[Any]()
    monkeypatch.setattr(cpu, "compile_kernels", lambda found, seconds: asked.append(found))
    profiles = np.concatenate([rng.standard_normal((40, 7)), np.zeros((2, 7)), np.repeat(np.eye(7)[:3], 5, axis=0)])
    draws = np.concatenate([rng.random((6, n_parts)), np.zeros((1, n_parts))])  # zeros: parts that begin empty
    for found, wanted in zip(hard_parts(profiles, draws, compiled=True), hard_parts(profiles, draws), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-12)
    (types,) = asked
    assert types[sweeps.hard_sweeps] in sweeps.hard_sweeps.overloads


@pytest.mark.parametrize(("n_subjects", "n_d"), [(2, 1), (3, 2), (7, 5), (9, 4), (21, 9)])
@pytest.mark.parametrize("name", ["PNNMF", "LE-SPNNMF", "E-DL", "LE-PPNMF", "CD-PNNMF", "CD-SPNNMF", "parts"])
def test_any_size(name: str, n_subjects: int, n_d: int) -> None:
    problem = small("partition", None, True, 24)
    stats = replace(problem.stats, L=problem.stats.L[:n_subjects])
    p, state = posed(stats, name, "default", n_d, 3)
    assert_same(cpu.iterate(p, METHODS[name], state, Course(25)), iterate(p, METHODS[name], state, Course(25)), 1e-8)


@pytest.mark.parametrize("name", ["LE-PNNMF", "PPNMF", "CD-PNNMF", "parts"])
def test_a_single_long_run_needs_no_turned_copy_of_L(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "ONE_COPY", 0)
    p, state = posed(deviations() if name == "parts" else small().stats, name, "default", 3, 1)
    loop = cpu._Batch(p, METHODS[name], state, 0.0, np.float64)
    assert (loop._shared.Lt.size == 1) == (name in ("LE-PNNMF", "PPNMF"))
    assert_same(cpu.iterate(p, METHODS[name], state, Course(40)), iterate(p, METHODS[name], state, Course(40)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LE-PNNMF", "E-PPNMF", "CD-PNNMF", "parts"])
def test_runs_end_by_tol_and_by_halving_as_in_the_generic_loop(name: str) -> None:
    p, state = posed(small().stats, name, "default", 3, 12)
    for options in ({"tol": 1e-4}, {"halve_at": (20, 40, 80)}, {"tol": 1e-3, "halve_at": (50,)}):
        found = cpu.iterate(p, METHODS[name], state, Course(160, **options))
        wanted = iterate(p, METHODS[name], state, Course(160, **options))
        np.testing.assert_array_equal(found.n_iter, wanted.n_iter)
        np.testing.assert_array_equal(found.converged, wanted.converged)
        # starts of parts that have not settled after 160 updates carry rounding along
        assert relative(found.objectives[:, -1], wanted.objectives[:, -1]) < (1e-8 if name == "parts" else 1e-9)


@pytest.mark.parametrize("name", ["LE-PNNMF", "parts"])
def test_starts_do_not_depend_on_groups_or_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    p, state = posed(small().stats, name, "default", 3, 40)
    found = cpu.iterate(p, METHODS[name], state, Course(50))
    monkeypatch.setattr(threads, "n_threads", lambda: 1)
    alone = cpu.iterate(p, METHODS[name], state, Course(50))
    np.testing.assert_array_equal(found.objectives, alone.objectives)
    np.testing.assert_array_equal(found.state.B, alone.state.B)
    monkeypatch.setattr(cpu, "CACHE_BYTES", 0)
    assert_same(cpu.iterate(p, METHODS[name], state, Course(50)), found, 1e-12)


def test_diverging_runs_are_told_and_leave_the_others_alone() -> None:
    stats = small().stats
    tiny = replace(
        stats, L=stats.L * 1e-3, root_L=stats.root_L * 1e-3, sq_norm=stats.sq_norm * 1e-6, energy=stats.energy * 1e-6
    )
    p, state = posed(tiny, "DL", "paper", 3, 4)
    found, wanted = cpu.iterate(p, METHODS["DL"], state, Course(400)), iterate(p, METHODS["DL"], state, Course(400))
    assert wanted.diverged.any()
    np.testing.assert_array_equal(found.diverged, wanted.diverged)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER_METHODS)
def test_float32_is_close_and_rescored_in_float64(name: str) -> None:
    p, state = posed(small().stats, name, "default", 3, 4)
    found = cpu.iterate(p, METHODS[name], state, Course(100, single=True))
    assert found.state.B.dtype == np.float64
    exact = begin(p, METHODS[name].scheme, found.state.B, found.state.C)
    np.testing.assert_allclose(found.objectives[:, -1], exact.objective, rtol=1e-12)
    wanted = iterate(p, METHODS[name], state, Course(100))
    np.testing.assert_allclose(found.objectives[:, -1], wanted.objectives[:, -1], rtol=2e-2)


def test_a_run_can_be_taken_up_again() -> None:
    """The plain updates remembered by one call serve the next: 30 + 31 updates are 61."""
    method = METHODS["LE-PNNMF"]
    p, state = posed(small().stats, "LE-PNNMF", "default", 3, 4)
    whole = cpu.iterate(p, method, state, Course(61))
    parts = cpu.iterate(p, method, cpu.iterate(p, method, state, Course(30)).state, Course(31))
    assert relative(parts.state.B, whole.state.B) < 1e-12


@pytest.mark.parametrize("weight", [0.236, 0.5, 0.97, 1.0])
def test_powers_equal_numpy(weight: float) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate(
        [np.exp(rng.normal(0, s, 500)) for s in (1e-8, 1e-3, 0.3, 3.0, 60.0)] + [[1e-300, 1.0, 2.0, 0.5]]
    )
    g = x.copy()
    sweeps.clipped_powers(g, g.view(np.int64), np.empty_like(g), len(g), weight)
    np.testing.assert_allclose(g, np.clip(x**weight, 0.1, 10.0), rtol=1e-14)


def test_multistart_says_where_it_ran() -> None:
    stats = small().stats
    compiled = multistart(stats, "LE-PNNMF", 3, n_starts=6, n_iter=80, engine="cpu", random_state=0)
    generic = multistart(stats, "LE-PNNMF", 3, n_starts=6, n_iter=80, engine="numpy", random_state=0)
    assert (compiled.engine, generic.engine) == ("cpu", "numpy")
    assert compiled.best_start == generic.best_start
    np.testing.assert_allclose(compiled.objectives, generic.objectives, rtol=1e-10)


def test_auto_goes_by_the_work_and_by_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    p, _ = posed(small().stats, "LE-PNNMF", "default", 3, 1)
    method = METHODS["LE-PNNMF"]
    assert choose_engine("auto", p, method, 3, 10).name == "numpy"
    monkeypatch.setattr(engines, "WORTH_COMPILING", 0.0)
    large = choose_engine("auto", p, method, 3, 10)
    assert large.name == "cpu"
    assert "large" in large.reason
    monkeypatch.setattr(cpu, "available", lambda: False)
    assert choose_engine("auto", p, method, 3, 10).name == "numpy"
    with pytest.warns(UserWarning, match="needs numba"):
        assert choose_engine("cpu", p, method, 3, 10).name == "numpy"
    with pytest.raises(ValueError, match="engine must be one of"):
        check_engine("gpu")


def test_the_compiled_stopping_rule_is_the_generic_one() -> None:
    rng, first = np.random.default_rng(0), 100
    n = first + 60
    fall = 10.0 ** rng.uniform(-9, -2, (400, 1)) * 0.5 ** (np.arange(n) / 10.0 ** rng.uniform(0.5, 3, (400, 1)))
    paths = np.cumsum(-fall, axis=1) + 10
    settle, answers = np.array([first, TOL_WINDOW, TOL_LOOKBACK]), []
    for tol, plateau in itertools.product((1e-3, 1e-6), (True, False)):
        settle[2] = TOL_LOOKBACK if plateau else 0
        for t in (first, n - 1):
            generic = settled(paths[:, : t + 1].T, tol, plateau)
            compiled = [kernels._settled.py_func(paths, i, t, tol, settle) for i in range(len(paths))]
            np.testing.assert_array_equal(generic, compiled)
            answers.append(generic)
    assert 0.1 < np.mean(answers) < 0.9
    assert not kernels._settled.py_func(paths, 0, first - 1, 1.0, settle)
    assert not kernels._settled.py_func(paths, 0, first, 0.0, settle)


def test_refinement_on_the_compiled_engine() -> None:
    problem = small()
    start = solve(problem.stats, "CD-PNNMF", 3, n_iter=30, random_state=0)
    source = Data(problem.X, problem.design.sites)
    schedule = Refinement(steps=4, faces=3, n_iter=5)
    found = refine(source, problem.design, problem.stats, start, schedule, engine="cpu")
    wanted = refine(source, problem.design, problem.stats, start, schedule, engine="numpy")
    np.testing.assert_array_equal(found.design.faces, wanted.design.faces)
    np.testing.assert_allclose(found.solution.objective, wanted.solution.objective, rtol=1e-9)


def test_default_fits_compile_little_and_long_runs_take_the_kernels() -> None:
    """100 people, both hemispheres at level 2."""
    stats = small().stats
    like = replace(posed(stats, "parts", "default", 3, 1)[0], L=np.zeros((100, 640)), K=np.ones(640))
    for name, method in METHODS.items():
        for n_starts, long in ((method.scheme.n_starts, bool(method.scheme.sweeps)), (2000, True)):
            updates = likely_updates(method, n_starts, 3000, 1e-5)
            chosen = choose_engine("auto", like, method, 10, updates).name
            assert chosen == ("cpu" if long and method.scheme.n_finished is None else "numpy"), name
    many = replace(stats, L=np.ones((100, stats.n_columns)), root_L=np.ones((100, 20)), n_sites=20480)
    start = replace(solve(stats, "LE-PNNMF", 3, n_iter=2, random_state=0), B=np.ones((stats.n_columns, 10)))
    for steps, long in ((10, False), (600, True)):
        assert is_long(many, METHODS["LE-PNNMF"], start, Refinement(steps, 5, 10)) == long


def test_updates_are_counted_as_they_will_be_made() -> None:
    for name, n_starts, n_iter, tol, count in (
        ("LE-PNNMF", 10, 3000, 1e-5, 5000), ("LE-PNNMF", 10, 3000, 0.0, 30_000), ("LE-PNNMF", 10, 50, 1e-5, 500),
        ("parts", 50, 3000, 1e-5, 1000), ("parts", 4, 3000, 1e-5, 400), ("CD-PNNMF", 10, 3000, 1e-5, 2500),
    ):  # fmt: skip
        assert likely_updates(METHODS[name], n_starts, n_iter, tol) == count


@pytest.mark.slow
def test_the_first_fit_of_a_machine_is_that_of_later_ones(tmp_path: Path) -> None:
    """Coordinate descent compiles one kernel, the default nothing: numba is not even loaded."""
    program = (
        "import hashlib, sys, icofactor as ico\n"
        "cohort = ico.simulate_cohort(30, 4, mesh='fsaverage3')\n"
        "fit = lambda method: ico.CorticalFactorization(4, method=method, mesh='fsaverage3').fit(cohort.X)\n"
        "fit('parts'), print('numba' in sys.modules)\n"
        "model = fit('CD-PNNMF')\n"
        "print(model.starts_.engine, hashlib.sha256(model.components_.tobytes()).hexdigest())\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    call = [sys.executable, "-c", program]
    first, later = (subprocess.run(call, env=environment, capture_output=True, text=True).stdout for _ in range(2))
    assert first == later and first.startswith("False\ncpu ")
    compiled = {path.name.split("-")[0] for path in tmp_path.rglob("*.nbi")}
    assert compiled == {"sweeps.sweep_start"}


_GONE = """import os, pathlib, shutil, tempfile
os.environ["NUMBA_CACHE_DIR"] = folder = tempfile.mkdtemp()
import icofactor.factorization.engines.sweeps
shutil.rmtree(folder), pathlib.Path(folder).write_text("")"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "engine"),
    [("from numba.core.caching import CacheImpl; CacheImpl._locator_classes = []", "cpu"), (_GONE, "cpu"),
     ("import os; os.environ['NUMBA_DISABLE_JIT'] = '1'", "numpy")],
)  # fmt: skip
def test_numba_may_be_switched_off_or_have_no_folder(before: str, engine: str) -> None:
    """An installation and a home that are read-only, a folder that goes away: kernels are compiled, but not kept."""
    program = (
        f"{before}\nimport numpy, icofactor as ico\nX = numpy.random.default_rng(0).gamma(2, size=(30, 642))\n"
        "print(ico.CorticalFactorization(3, method='CD-PNNMF', mesh='fsaverage3', hemi='left').fit(X).starts_.engine)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == engine, done.stderr


@pytest.mark.parametrize("step", ["save", "_load_index"])
def test_a_kernel_that_cannot_be_kept_is_used(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At its first call, and inside another kernel; that is said once."""
    half = sweeps.compiled(lambda x: x / 2)
    eighth = sweeps.compiled(lambda x: half(x) / 4)
    said: list[str] = []
    monkeypatch.setattr(sweeps, "say", said.append)
    sweeps._say_not_kept.cache_clear()

    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    for kernel in (half, eighth):
        monkeypatch.setattr(kernel._cache._cache_file, step, full)
    assert eighth(8.0) == 1.0 and half(3.0) == 1.5
    (text,) = said
    assert "cannot be kept (No space left on device)" in text


class Slow:
    """A kernel whose compilation takes until `end` is set."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.overloads, self.begun, self.end, self.problem = (
            dict[Any, Any](),
            threading.Event(),
            threading.Event(),
            problem,
        )

    def compile(self, types: Any) -> None:
        self.begun.set()
        assert self.end.wait(10) and not gc.isenabled()
        if self.problem is not None:
            raise self.problem
        self.overloads[types] = None


def test_only_who_waits_is_told_that_something_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread compiles ahead, in silence even if it fails; what it has compiled nobody waits for."""
    said, printed = list[str](), list[Any]()
    monkeypatch.setattr(cpu, "say", lambda text: (said.append(text), slow.end.set()))
    monkeypatch.setattr(threading, "excepthook", printed.append)
    monkeypatch.setattr(sweeps, "is_cached", lambda kernel, types: False)
    slow, broken, never = Slow(), Slow(RuntimeError("cannot compile")), Slow()
    broken.end.set()
    before = set(threading.enumerate())
    cpu.compile_ahead({slow: (), broken: (), never: ()})
    (thread,) = set(threading.enumerate()) - before
    assert slow.begun.wait(10) and not said
    cpu.compile_kernels({slow: ()}, 7)
    thread.join(10)
    assert [text.partition(" (")[2] for text in said] == ["about 7 s)"] and gc.isenabled()
    cpu.compile_kernels({slow: ()}, 7)
    assert len(said) == 1 and not printed and not never.begun.is_set()
    with pytest.raises(RuntimeError, match="cannot compile"):
        cpu.compile_kernels({broken: ()}, 7)
    assert gc.isenabled() and not cpu._COMPILING.locked()


@pytest.mark.slow
def test_the_interpreter_may_end_while_a_thread_compiles(tmp_path: Path) -> None:
    program = (
        "from icofactor.factorization.engines import cpu, sweeps\n"
        "kernels = sweeps.of_descent()\ncpu.compile_ahead(kernels)\nraise SystemExit(3)"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (3, "")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_process_forked_while_a_thread_compiles_can_compile_too() -> None:
    program = (
        "import os, threading, time\n"
        "from icofactor.factorization.engines.cpu import _COMPILING\n"
        "_COMPILING.acquire()\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), _COMPILING.release())).start()\n"
        "child = os.fork()\n"
        "free = _COMPILING.acquire(timeout=1)\n"
        "if not child: os._exit(not free)\n"
        "raise SystemExit(not free or os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["LE-PNNMF", "parts"])
def test_groups_of_runs_on_numpy_are_one_batch(name: str) -> None:
    p, state = posed(small().stats, name, "default", 3, 12)
    for course in (Course(130, 1e-3), Course(40), Course(60, halve_at=(20,))):
        assert_same(iterate_in_groups(p, METHODS[name], state, course), iterate(p, METHODS[name], state, course), 1e-10)
