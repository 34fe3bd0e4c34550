"""The compiled CPU engine: many small problems, all processors.

The same loop as `solver.iterate`, made by the kernels in groups of starts. Answers equal the generic functions' to
rounding.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from threading import Event, Lock, Thread, main_thread
from time import sleep
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from icofactor.factorization._solve import Course, Run, iterate_in_groups
from icofactor.factorization.methods import Method
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.update import TOL_LOOKBACK, TOL_WINDOW, State, evaluate
from icofactor.progress import say
from icofactor.streaming.runners import in_order, one_blas_thread

CACHE_BYTES = 700 * 2**10
"""A group of starts should fit in about this much second-level cache."""
ONE_BY_ONE = 20_000
"""Entries of L from which parts go one by one; batches of smaller ones are as fast by the generic functions."""
ONE_COPY = 1500
"""Columns from which a single run, which makes few updates between two divisions, does without a turned copy of L."""
WORTH_THREADS = 4_000_000
"""Entries of L times components from which a loop in NumPy runs on all processors: the threads of smaller ones would
mostly wait for each other in Python."""
STRETCH = 100
"""Updates between two looks at progress and interruption."""
KERNELS = {"dictionary": 0, "ridge": 1, "sparse": 2, "projective": 3, "descent": 4}
"""The updates that are compiled, as schemes name them, and their numbers in `kernels`."""
_COMPILING, _NEW, _TOLD = Lock(), Event(), Event()
"""Of several threads one compiles, and the others find what it compiled. Whether it is new; whether that was said."""
if hasattr(os, "register_at_fork"):  # a process forked meanwhile would wait for a thread that it does not have
    os.register_at_fork(
        before=_COMPILING.acquire, after_in_parent=_COMPILING.release, after_in_child=_COMPILING.release
    )
Kernels = dict[Any, tuple[Any, ...]]
"""Compiled functions and the types that they are called with."""


class Rule(NamedTuple):
    """What the kernels compute: kernel, extrapolation, paper rules or not, sweeps of coordinate descent or 0, the first
    updates that are plain."""

    scheme: int
    extrapolation: int
    literal: bool
    sweeps: int
    plain_updates: int


class Shared(NamedTuple):
    """What all starts have in common; a diagonal K is its one row, and Lt is 1 × 1 where L does for both products."""

    L: Any
    Lt: Any
    K: Any
    diagonal: bool
    row_sums: Any
    weights: Any
    c: Any
    penalty: float
    sq_norm: float


class Group(NamedTuple):
    """Some starts. Paths are (g, ...), filled from column `Span.first` + 1 on. `made`: the column of the last update of
    each. `done`: 1 converged, 2 diverged; such starts stay as they are."""

    Bt: Any
    C: Any
    yB: Any
    yC: Any
    tau: Any
    objectives: Any
    errors: Any
    done: Any
    made: Any


class Span(NamedTuple):
    """Which updates. `known`: whether yB, yC hold the plain updates before. `settle`: (first, window, lookback) of the
    rule of `tol`."""

    known: bool
    age: int
    first: int
    n_updates: int
    tol: float
    settle: Any


Loop = Callable[[Rule, Shared, Group, Span], None]
"""Updates of a group of starts, in place."""


def can_run(p: Problem, method: Method) -> bool:
    """Whether the kernels know this problem: NumPy arrays, dense or diagonal K, scheme and extrapolation they have."""
    known = method.extrapolation is None or method.extrapolation.kernel is not None
    plain = isinstance(p.L, np.ndarray) and not sp.issparse(p.K)
    return plain and known and method.scheme.kernel_for(p) in KERNELS


def iterate(p: Problem, method: Method, state: State, course: Course) -> Run:
    """`solver.iterate`, compiled. Of updates in float32 the last errors are computed in float64; of coordinate descent
    only the sweeps are float32, and so are its answers' last digits."""
    return _iterate(_Batch(p, method, state, course.tol, np.float32 if course.single else np.float64), course)


def iterate_short(p: Problem, method: Method, state: State, course: Course) -> Run:
    """`solver.iterate` for runs too short to compile for: parts one by one, all others by the generic functions."""
    plain = isinstance(p.L, np.ndarray) and not sp.issparse(p.K)
    nesterov = method.extrapolation is None or method.extrapolation.kernel == 1
    if not (plain and nesterov and method.scheme.kernel_for(p) == "descent" and p.L.size >= ONE_BY_ONE):
        return iterate_in_groups(p, method, state, course)
    return _iterate(_Batch(p, method, state, course.tol, np.float64, descend_loop()), course)


def _iterate(batch: _Batch, course: Course) -> Run:
    n_iter, halve_at = course.n_iter, course.halve_at
    marks = sorted({*range(STRETCH, n_iter, STRETCH), *(h for h in halve_at if 0 < h < n_iter), n_iter})
    with one_blas_thread():
        for mark in marks if n_iter else []:
            batch.advance(mark)
            if mark in halve_at:
                batch.halve()
            if course.on_update is not None:
                course.on_update(mark)
            if not len(batch.active):
                break
    return batch.run()


class _Batch:
    """The starts in the kernels' layout, those that ended set aside."""

    def __init__(
        self,
        p: Problem,
        method: Method,
        state: State,
        tol: float,
        dtype: type[np.floating],
        loop: Loop | None = None,
    ) -> None:
        self.p, self.method, self.tol, self.state = p, method, tol, state
        self.single = dtype is np.float32
        self.dtype = dtype = np.float64 if method.scheme.sweeps else dtype
        turned = lambda x: np.array(np.swapaxes(x, -1, -2), dtype=dtype, order="C")  # a copy: kernels write in place
        self.Bt, self.C = turned(state.B), np.array(state.C, dtype=dtype, order="C")
        self.known = state.y_B is not None
        self.yB = turned(state.y_B) if state.y_B is not None else np.zeros_like(self.Bt)
        self.yC = np.array(state.y_C, dtype=dtype, order="C") if state.y_C is not None else np.zeros_like(self.C)
        self.tau = np.array(state.tau, dtype=dtype)
        n = len(self.C)
        self.objectives, self.errors = (np.array(x, dtype=np.float64)[:, None] for x in (state.objective, state.error))
        self.done, self.made, self.at = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), 0
        self.active, self.rule = np.arange(n), KERNELS[method.scheme.kernel_for(p) or ""]
        compiled = self._compiled(np.dtype(dtype).name) if loop is None else None
        small = compiled is None and p.L.size * state.B.shape[-1] < WORTH_THREADS
        self.workers = 1 if small else None
        self.loop = compiled or loop or descend_loop()
        self._shared = self._constants()

    def _compiled(self, dtype: str) -> Loop | None:
        """The compiled loop; None: NumPy has one that is as fast."""
        if self.method.scheme.sweeps:
            return swept_loop(self.single, self.p.K.ndim == 2)
        if self.rule != KERNELS["descent"]:
            return compiled_loop(dtype)
        extrapolation = self.method.extrapolation
        return descended_loop(dtype) if extrapolation is None or extrapolation.kernel == 1 else None

    def _constants(self) -> Shared:
        p, kind = self.p, lambda x: np.ascontiguousarray(x, dtype=self.dtype)
        inner = np.float32 if self.single else self.dtype  # of coordinate descent the sweeps alone
        tiny, step = np.finfo(inner).tiny, 0.1 / p.L_norm if p.L_norm > 0 else 0.0
        c = [tiny, p.penalty, step, 0.5, 1 / 16, 1 / 3, np.sqrt(6.0) - 1.0, 0.0, 1.0, 2.0, -np.inf]
        other = self.method.scheme.sweeps > 0 or self.rule == KERNELS["descent"]  # they have loops of their own
        long = len(self.C) == 1 and p.L.shape[1] >= ONE_COPY and not other
        Lt = np.empty((1, 1), self.dtype) if long else kind(p.L.T)
        arrays = kind(p.L), Lt, kind(np.atleast_2d(p.K)), p.K.ndim == 1
        numbers = np.array(c, inner), float(p.penalty), float(p.sq_norm)
        return Shared(*arrays, kind(p.row_sums), kind(p.weights[:, 0]), *numbers)

    def _group(self) -> int:
        """Starts per group; where a start makes products of its own in any case, one: it then waits for none."""
        if self.method.scheme.sweeps or self.rule == KERNELS["descent"]:
            return 1
        n_d, n_k, n_s = self.Bt.shape[1], self.Bt.shape[2], self.C.shape[2]
        plain = self.method.extrapolation is None
        one = n_d * ((3 if plain else 5) * n_s + (4 if plain else 6) * n_k + 4 * n_d) * np.dtype(self.dtype).itemsize
        return int(min(max(4, CACHE_BYTES // one), 64))

    def advance(self, mark: int) -> None:
        """All active starts up to update number `mark`."""
        scheme, last = self.method.scheme, max(0, self.at - TOL_WINDOW - TOL_LOOKBACK)
        settle = np.array([scheme.first_look - last, TOL_WINDOW, TOL_LOOKBACK if scheme.plateau else 0])
        if mark >= self.objectives.shape[1]:
            more = np.zeros((len(self.errors), max(mark, self.errors.shape[1])))
            self.objectives, self.errors = np.hstack([self.objectives, more]), np.hstack([self.errors, more])
        n_groups = -(-len(self.active) // self._group())
        groups = np.array_split(self.active, min(n_groups + n_groups % 2, len(self.active)))
        extrapolation = self.method.extrapolation
        kind = 0 if extrapolation is None else extrapolation.kernel or 0
        rule = Rule(self.rule, kind, self.p.literal, scheme.sweeps, self.method.plain_updates)
        known, updates = self.known or self.at > 0, (self.at - last, mark - self.at)
        span = Span(known, self.state.age + self.at, *updates, float(self.tol), settle)

        def one(which: np.ndarray) -> None:
            whole = len(which) == len(self.C)  # then in place
            stacked = [x if whole else x[which] for x in (self.Bt, self.C, self.yB, self.yC)]
            paths = [path[which, last : mark + 1] for path in (self.objectives, self.errors)]
            rest = self.tau[which], *paths, self.done[which], self.made[which]
            group = Group(*(x.reshape(-1, x.shape[2]) for x in stacked), *rest)
            self.loop(rule, self._shared, group, span)
            if not whole:
                self.Bt[which], self.C[which], self.yB[which], self.yC[which] = stacked
            self.tau[which], self.done[which], self.made[which] = group.tau, group.done, group.made + last
            self.objectives[which, last : mark + 1], self.errors[which, last : mark + 1] = paths

        for _ in in_order(one, groups, self.workers):
            pass
        self.active, self.at = self.active[self.done[self.active] == 0], mark

    def halve(self) -> None:
        """The worse half of those still going ends."""
        rank = np.argsort(np.argsort(self.objectives[self.active, self.at], kind="stable"))
        self.active = self.active[rank < max(1, (len(self.active)) // 2)]

    def run(self) -> Run:
        """The batch as the generic loop would return it."""
        B = np.ascontiguousarray(np.swapaxes(self.Bt, -1, -2), dtype=np.float64)
        C = self.C.astype(np.float64, copy=False)
        last = np.arange(len(C)), self.made
        if self.dtype is not np.float64:
            with np.errstate(over="ignore", invalid="ignore"):  # runs that diverged
                _, self.errors[last], self.objectives[last] = evaluate(self.p, self.method.scheme, B, C)
        for i, end in enumerate(self.made.tolist()):  # those that ended repeat their last value
            self.objectives[i, end:], self.errors[i, end:] = self.objectives[i, end], self.errors[i, end]
        some = self.known or self.at > 0
        state = State(
            B, C, None, self.errors[last], self.objectives[last],
            np.swapaxes(self.yB, -1, -2).astype(np.float64) if some else None,
            self.yC.astype(np.float64) if some else None,
            self.tau.astype(np.float64), self.state.age + int(self.made.max()),
        )  # fmt: skip
        end = int(self.made.max()) + 1
        return Run(state, self.objectives[:, :end], self.errors[:, :end], self.made, self.done == 1, self.done == 2)


@cache
def compiled_loop(dtype: str) -> Loop:
    """`kernels.run_group`, whose code for arrays of this type lies in numba's cache on disk.

    On its first use on a machine another process compiles it there. This process then loads what every later one will:
    code compiled in place differs from its cached copy in the last bits (which of two copies of a function is called).
    """
    from icofactor.factorization.engines import kernels

    with _COMPILING:
        if not kernels.is_cached(dtype):
            say("compiling once on this machine (about 10 s)")
            program = (
                "import gc; gc.disable(); "  # as in `_compile`
                f"from icofactor.factorization.engines import kernels; kernels.compile_for({dtype!r})"
            )
            if kernels.run_group._cache.cache_path:  # otherwise, and where that fails, this process compiles
                with suppress(OSError, subprocess.SubprocessError):
                    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, timeout=300)
    loop: Loop = kernels.run_group
    return loop


@cache
def swept_loop(single: bool, dense: bool) -> Loop:
    """`sweeps.sweep_group`."""
    from icofactor.factorization.engines import sweeps

    compile_kernels(sweeps.of_descent(single, dense), 2)
    return sweeps.sweep_group


def descend_loop() -> Loop:
    """`descent.descend_group`."""
    from icofactor.factorization.engines import descent

    return descent.descend_group


@cache
def descended_loop(dtype: str) -> Loop:
    """`sweeps.descend_start`."""
    from icofactor.factorization.engines import sweeps

    compile_kernels({sweeps.descend_start: sweeps.types_of_loops(dtype)}, 4)
    loop: Loop = sweeps.descend_start
    return loop


def compile_kernels(found: Kernels, seconds: int, ahead: bool = False) -> None:
    """Compile kernels for these types, or load them; `ahead`: nobody waits for them, and those who do wait go first."""
    from icofactor.factorization.engines import sweeps

    told = False

    def tell() -> None:
        nonlocal told
        if not (ahead or told or _TOLD.is_set()):
            say(f"compiling once on this machine (about {seconds} s)")
        if not ahead:
            told = True
            _TOLD.set()

    for kernel, types in found.items():
        while not (done := types in kernel.overloads) and not _COMPILING.acquire(timeout=0.1):
            if _NEW.is_set():
                tell()
        if done:
            continue
        collecting = gc.isenabled()
        gc.disable()  # of all that compiling makes most stays, and looking for the rest takes a fifth of the time
        try:
            if not (types in kernel.overloads or sweeps.is_cached(kernel, types)):
                _NEW.set()
                tell()
            kernel.compile(types)
        finally:
            if collecting:
                gc.enable()
            _NEW.clear()
            _TOLD.clear()
            _COMPILING.release()
        if ahead:
            sleep(0.01)


def compile_ahead(*found: Kernels) -> None:
    """`compile_kernels` in a thread, in this order. Who needs one that failed tries again, and says what is wrong."""
    Thread(target=_compile_ahead, args=(found,), name="icofactor-compiling").start()


def _compile_ahead(found: Sequence[Kernels]) -> None:
    with suppress(Exception):
        for kernel, types in chain.from_iterable(some.items() for some in found):
            if main_thread().is_alive():  # otherwise the interpreter ends
                compile_kernels({kernel: types}, 0, ahead=True)


def available() -> bool:
    """Whether numba is installed, and not switched off by NUMBA_DISABLE_JIT."""
    from importlib.util import find_spec

    if find_spec("numba") is None:
        return False
    from numba import config

    return not config.DISABLE_JIT
