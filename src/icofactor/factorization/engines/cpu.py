"""The compiled CPU engine: many starts of a small problem, on all processors."""

from __future__ import annotations

import numpy as np

from icofactor.factorization._solve import Course, Run, is_worse_half
from icofactor.factorization.arrays import Array, double
from icofactor.factorization.engines.kernels import (
    CONVERGED,
    DIVERGED,
    GOING,
    PLAIN,
    UPDATES,
    Numbers,
    Rules,
    Starts,
    run_starts,
)
from icofactor.factorization.methods import Method
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.update import State
from icofactor.maps.workers import in_order, one_blas_thread

# Updates between two reports of progress.
STRETCH = 100
# Starts of one task: few enough that all processors are busy to the end, many enough that threads
# cost nothing.
STARTS_PER_TASK = 4


def iterate(
    p: Problem,
    method: Method,
    state: State,
    course: Course,
) -> Run:
    """Do what `_solve.iterate` does, compiled."""
    rules = rules_of(p, method, state, course)
    numbers = numbers_of(p)
    starts = starts_of(state, course.n_iter)
    active = np.arange(len(starts.C))
    marks = {*range(STRETCH, course.n_iter, STRETCH), *course.halve_at, course.n_iter}
    first = 0
    with one_blas_thread():
        for last in sorted(mark for mark in marks if 0 < mark <= course.n_iter):

            def run(
                task: np.ndarray,
                first: int = first,
                last: int = last,
            ) -> None:
                run_starts(
                    rules,
                    numbers,
                    starts,
                    task,
                    first,
                    last,
                )

            tasks = np.array_split(active, -(-len(active) // STARTS_PER_TASK))
            list(in_order(run, tasks))
            active = active[starts.status[active] == GOING]
            if last in course.halve_at:
                active = active[~is_worse_half(starts.objectives[active, last])]
            if course.on_update is not None:
                course.on_update(last)
            if not len(active):
                break
            first = last
    return run_of(starts, state)


def rules_of(
    p: Problem,
    method: Method,
    state: State,
    course: Course,
) -> Rules:
    """Return how to update, as the kernels want it."""
    scheme, extrapolation = method.scheme, method.extrapolation
    # Without a plain update before it, an update cannot be extrapolated.
    n_plain = 1 if state.y_B is None else 0
    return Rules(
        update=UPDATES[scheme.kernel_for(p) or ""],
        extrapolation=PLAIN if extrapolation is None else extrapolation.kernel or PLAIN,
        literal=p.literal,
        n_plain=max(n_plain, method.plain_updates - state.age),
        sweeps=scheme.sweeps,
        tol=float(course.tol),
        first_look=scheme.first_look,
        plateau=scheme.plateau,
    )


def numbers_of(p: Problem) -> Numbers:
    """Return the problem, as the kernels want it."""
    return Numbers(
        Lt=double(p.L.T),
        K=double(np.atleast_2d(p.K)),
        diagonal=p.K.ndim == 1,
        row_sums=double(p.row_sums),
        weights=double(p.weights[:, 0]),
        ones=np.ones(len(p.L)),
        penalty=float(p.penalty),
        literal_step=0.1 / p.L_norm if p.L_norm > 0 else 0.0,
        sq_norm=float(p.sq_norm),
    )


def starts_of(state: State, n_iter: int) -> Starts:
    """Return copies of the starts, and memory for what they record."""
    n_starts = len(state.C)
    B = transposed_copy(state.B)
    C = np.array(state.C, dtype=np.float64, order="C")
    has_past = state.y_B is not None
    objectives = np.zeros((n_starts, n_iter + 1))
    objectives[:, 0] = state.objective
    errors = np.zeros((n_starts, n_iter + 1))
    errors[:, 0] = state.error
    return Starts(
        B=B,
        C=C,
        past_B=transposed_copy(state.y_B) if has_past else B.copy(),
        past_C=np.array(state.y_C, dtype=np.float64, order="C") if has_past else C.copy(),
        tau=np.array(state.tau, dtype=np.float64),
        objectives=objectives,
        errors=errors,
        status=np.zeros(n_starts, dtype=np.int64),
        n_updates=np.zeros(n_starts, dtype=np.int64),
    )


def run_of(starts: Starts, state: State) -> Run:
    """Return the starts at their ends, as the generic loop does."""
    n_updates = starts.n_updates
    longest = int(n_updates.max())
    # After its end a start repeats its last value.
    for path in (starts.objectives, starts.errors):
        for start, end in enumerate(n_updates):
            path[start, end:] = path[start, end]
    has_past = state.y_B is not None or longest > 0
    last = starts.objectives[:, -1]
    final = State(
        B=transposed_copy(starts.B),
        C=starts.C,
        terms=None,
        error=starts.errors[:, -1].copy(),
        objective=last.copy(),
        y_B=transposed_copy(starts.past_B) if has_past else None,
        y_C=starts.past_C if has_past else None,
        tau=starts.tau,
        age=state.age + longest,
    )
    return Run(
        state=final,
        objectives=starts.objectives[:, : longest + 1],
        errors=starts.errors[:, : longest + 1],
        n_iter=n_updates,
        converged=starts.status == CONVERGED,
        diverged=starts.status == DIVERGED,
    )


def transposed_copy(x: Array) -> np.ndarray:
    """Return a copy of each matrix of a batch, transposed."""
    return np.array(np.swapaxes(x, -1, -2), dtype=np.float64, order="C")
