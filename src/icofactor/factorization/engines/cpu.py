"""The compiled CPU engine: many starts of a small problem, on all processors."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from icofactor.factorization._solve import Course, Run
from icofactor.factorization.arrays import Array
from icofactor.factorization.methods import Method
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.update import State
from icofactor.streaming.runners import in_order, one_blas_thread

if TYPE_CHECKING:
    from icofactor.factorization.engines.kernels import Numbers, Rules, Starts

# Updates between two reports of progress.
STRETCH = 100
# Starts of one task: few enough that all processors are busy to the end, many enough that threads
# cost nothing.
STARTS_PER_TASK = 4


def available() -> bool:
    """Whether numba is installed, and not switched off by NUMBA_DISABLE_JIT."""
    if find_spec("numba") is None:
        return False
    from numba import config

    return not config.DISABLE_JIT


def can_run(p: Problem, method: Method) -> bool:
    """Whether the kernels know this problem: NumPy arrays, dense or diagonal K, scheme and
    extrapolation they have.
    """
    has_extrapolation = method.extrapolation is None or method.extrapolation.kernel is not None
    is_numpy = isinstance(p.L, np.ndarray) and not sp.issparse(p.K)
    return is_numpy and has_extrapolation and method.scheme.kernel_for(p) is not None


def iterate(p: Problem, method: Method, state: State, course: Course) -> Run:
    """`_solve.iterate`, compiled."""
    from icofactor.factorization.engines.kernels import GOING, run_starts

    rules, numbers, starts = (
        rules_of(p, method, course),
        numbers_of(p),
        starts_of(state, course.n_iter),
    )
    going = np.arange(len(starts.C))
    has_past = state.y_B is not None
    stops = {*range(STRETCH, course.n_iter, STRETCH), *course.halve_at, course.n_iter}
    first = 0
    with one_blas_thread():
        for last in sorted(stop for stop in stops if 0 < stop <= course.n_iter):

            def run(task: np.ndarray, first: int = first, last: int = last) -> None:
                run_starts(
                    rules,
                    numbers,
                    starts,
                    task,
                    state.age + first,
                    has_past or first > 0,
                    first,
                    last,
                )

            tasks = np.array_split(going, -(-len(going) // STARTS_PER_TASK))
            list(in_order(run, tasks))
            going = going[starts.status[going] == GOING]
            if last in course.halve_at:
                going = better_half(going, starts.objectives[going, last])
            if course.on_update is not None:
                course.on_update(last)
            if not len(going):
                break
            first = last
    return run_of(starts, state)


def better_half(starts: np.ndarray, objectives: np.ndarray) -> np.ndarray:
    """The starts with the smaller objectives, at least one."""
    order = np.argsort(objectives, kind="stable")
    return np.sort(starts[order[: max(1, len(starts) // 2)]])


def rules_of(p: Problem, method: Method, course: Course) -> Rules:
    from icofactor.factorization.engines.kernels import PLAIN, UPDATES, Rules

    scheme, extrapolation = method.scheme, method.extrapolation
    return Rules(
        UPDATES[scheme.kernel_for(p) or ""],
        PLAIN if extrapolation is None else extrapolation.kernel or PLAIN,
        p.literal,
        method.plain_updates,
        scheme.sweeps,
        float(course.tol),
        scheme.first_look,
        scheme.plateau,
    )


def numbers_of(p: Problem) -> Numbers:
    from icofactor.factorization.engines.kernels import Numbers

    return Numbers(
        float64(p.L.T),
        float64(np.atleast_2d(p.K)),
        p.K.ndim == 1,
        float64(p.row_sums),
        float64(p.weights[:, 0]),
        np.ones(len(p.L)),
        float(p.penalty),
        0.1 / p.L_norm if p.L_norm > 0 else 0.0,
        float(p.sq_norm),
    )


def starts_of(state: State, n_iter: int) -> Starts:
    from icofactor.factorization.engines.kernels import Starts

    n_starts = len(state.C)
    B, C = transposed_copy(state.B), np.array(state.C, dtype=np.float64, order="C")
    objectives, errors = np.zeros((n_starts, n_iter + 1)), np.zeros((n_starts, n_iter + 1))
    objectives[:, 0] = state.objective
    errors[:, 0] = state.error
    return Starts(
        B,
        C,
        np.zeros_like(B) if state.y_B is None else transposed_copy(state.y_B),
        np.zeros_like(C) if state.y_C is None else np.array(state.y_C, dtype=np.float64, order="C"),
        np.array(state.tau, dtype=np.float64),
        objectives,
        errors,
        np.zeros(n_starts, dtype=np.int64),
        np.zeros(n_starts, dtype=np.int64),
    )


def run_of(starts: Starts, state: State) -> Run:
    """The starts at their ends, as the generic loop returns them."""
    from icofactor.factorization.engines.kernels import CONVERGED, DIVERGED

    n_updates = starts.n_updates
    longest = int(n_updates.max())
    for path in (starts.objectives, starts.errors):
        for start, end in enumerate(n_updates):
            path[start, end:] = path[start, end]
    last = np.arange(len(n_updates)), n_updates
    has_past = state.y_B is not None or longest > 0
    end = State(
        transposed_copy(starts.B),
        starts.C,
        None,
        starts.errors[last],
        starts.objectives[last],
        transposed_copy(starts.past_B) if has_past else None,
        starts.past_C if has_past else None,
        starts.tau,
        state.age + longest,
    )
    objectives, errors = starts.objectives[:, : longest + 1], starts.errors[:, : longest + 1]
    return Run(
        end, objectives, errors, n_updates, starts.status == CONVERGED, starts.status == DIVERGED
    )


def transposed_copy(x: Array) -> np.ndarray:
    """A copy of each matrix of a batch, transposed."""
    return np.array(np.swapaxes(x, -1, -2), dtype=np.float64, order="C")


def float64(x: Array) -> np.ndarray:
    return np.ascontiguousarray(x, dtype=np.float64)
