"""Many starts at once, and the best of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

import numpy as np

from icofactor.checks import check_parameters
from icofactor.errors import DivergenceError
from icofactor.factorization._solve import (
    Course,
    Run,
    Solution,
    divergence_message,
    solution_of,
    warn_not_converged,
)
from icofactor.factorization.engines import (
    Engine,
    check_engine,
    choose_engine,
    likely_updates,
)
from icofactor.factorization.methods import Method, method_named
from icofactor.factorization.recurrence import NEAR, recurrence
from icofactor.factorization.schemes.base import Problem, check_penalty, check_rules
from icofactor.factorization.starts import (
    RandomState,
    check_problem,
    draw_starts,
    seeds_of,
    warn_of_large_penalty,
)
from icofactor.factorization.statistics import Statistics
from icofactor.factorization.update import begin
from icofactor.io.records import Numbers, plain_signature
from icofactor.maps.workers import one_blas_thread

# Starts are run in batches whose factors take about this much memory.
BATCH_BYTES = 256 * 2**20
# Arrays of the size of B and C that a start needs: the factors, their plain updates, candidates and
# products.
ARRAYS_PER_START = 10
# Where only the best of many starts are run, they end at this many times `tol`; the best of them
# goes on.
LOOSER = 10
# Starts that are compared with the best one, at most.
MOST_COMPARED = 50


@plain_signature
@dataclass(frozen=True, eq=False)
class Multistart(Solution):
    """The best of many starts, and the objectives of the others.

    Attributes
    ----------
    objectives : array of shape (n_starts, 1 + n_iter)
        Objective of every start after every update. Starts that ended early, or were dropped by
        halving, repeat their last value; starts that diverged have infinity.
    final_objectives : array of shape (n_starts,)
        Last objective of each start; their spread shows local minima.
    best_start : int
        Number of the best start.
    start_n_iter : int array of shape (n_starts,)
        Number of updates of each start.
    engine : str
        Engine that ran the starts.
    recurrence : array of shape (n_components,)
        Share of the other starts near the best that reach each component; NaN if fewer than three
        are near the best.
    n_near : int
        Number of other starts near the best.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> stats = ico.Statistics.from_data(cohort.X.T, ico.Design(cohort.sites, level=1))
    >>> best = ico.multistart(stats, "LE-PNNMF", 3, n_starts=5, n_iter=50, random_state=0)
    >>> best.objectives.shape, best.start_n_iter
    ((5, 51), array([50, 50, 50, 50, 50]))
    """

    objectives: Annotated[np.ndarray, Numbers("si", finite=False)] = field(kw_only=True)
    best_start: int = field(kw_only=True)
    start_n_iter: Annotated[np.ndarray, Numbers("s", "i", least=0)] = field(kw_only=True)
    engine: str = field(kw_only=True, default="numpy")
    recurrence: Annotated[np.ndarray | None, Numbers("k", finite=False)] = field(
        kw_only=True, default=None
    )
    n_near: int = field(kw_only=True, default=0)

    _as_the_error: ClassVar[tuple[str, ...]] = ("objective", "errors", "objectives")

    @property
    def final_objectives(self) -> np.ndarray:
        """Last objective of each start."""
        return self.objectives[:, -1]

    @property
    def n_starts(self) -> int:
        """Number of starts."""
        return len(self.objectives)


def multistart(
    stats: Statistics,
    method: str = "LE-PNNMF",
    n_components: int = 10,
    *,
    n_starts: int = 1000,
    n_iter: int = 1000,
    tol: float = 0.0,
    halving: bool = False,
    rules: str = "default",
    penalty: str | float = "paper",
    engine: str = "auto",
    random_state: RandomState = None,
    report: Callable[[float], None] | None = None,
) -> Multistart:
    """Factorize from many random starts and keep the one with the smallest objective.

    Parameters
    ----------
    stats, method, n_components, n_iter, tol, rules, penalty
        As in `solve`. Each start ends when it meets `tol`.
    n_starts : int
        Number of starts. Start i depends only on `random_state` and i.
    halving : bool, default=False
        Whether to drop the worse half of the starts after 1/16, 1/8, 1/4 and 1/2 of the updates.
    engine : {"auto", "numpy", "cpu", "jax"}, default="auto"
        Generic functions, compiled kernels on all processors, or JAX on the device it finds. "auto"
        chooses by what is installed and by the amount of work; `engine` of the result is the
        choice.
    report : callable, optional
        Called with the fraction of the work that is done.

    Returns
    -------
    Multistart
        The best `Solution`, with the spread over starts.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> stats = ico.Statistics.from_data(cohort.X.T, ico.Design(cohort.sites, level=1))
    >>> best = ico.multistart(stats, "LE-PNNMF", 3, n_starts=5, n_iter=50, random_state=0)
    >>> best.final_objectives.shape, bool(best.objective[-1] == best.final_objectives.min())
    ((5,), True)
    """
    search = _Search(
        method_named(method),
        n_components,
        n_starts,
        n_iter,
        tol,
        halving,
        rules,
        penalty,
        engine,
    )
    scheme = search.method.scheme
    check_parameters(n_components=n_components, n_starts=n_starts, n_iter=n_iter, tol=tol)
    check_rules(rules, scheme)
    check_penalty(penalty, scheme)
    check_engine(engine)
    check_problem(stats, search.method, search.n_components)
    whole = Problem.of(stats, scheme, search.rules, search.penalty)
    warn_of_large_penalty(whole, stats, scheme, search.penalty)
    with one_blas_thread():
        p = whole.compact() if scheme.compactable(whole) else whole
        n_updates = likely_updates(search.method, search.n_starts, search.n_iter, search.tol)
        runner = choose_engine(search.engine, p, search.method, search.n_components, n_updates)
        # Most schemes run all starts to the end; others finish the best one alone.
        is_loose = scheme.n_finished is not None
        first_tol = LOOSER * search.tol if is_loose else search.tol
        batches = _run_batches(p, replace(search, tol=first_tol), runner, random_state, report)
        best = min(batches, key=lambda batch: batch.ends.min()).best
        objectives = np.concatenate([batch.objectives for batch in batches])
        n_made = np.concatenate([batch.n_iter for batch in batches])
        number = int(np.argmin(objectives[:, -1]))
        if is_loose and np.isfinite(best.error) and best.n_iter < search.n_iter:
            best = _finished(p, search, runner, best)
            objectives[number, : best.n_iter + 1] = best.objective
            objectives[number, best.n_iter :] = best.objective[-1]
            n_made[number] = best.n_iter
    if not np.isfinite(objectives[number, -1]):
        message = divergence_message(search.method, search.rules, int(n_made.max()))
        raise DivergenceError(message)
    if search.tol > 0 and not best.converged:
        warn_not_converged(search.n_iter, search.tol)
    if p is not whole:
        best = replace(best, C=whole.project(best.B))
    bases = np.concatenate([batch.bases for batch in batches])
    ends = np.concatenate([batch.ends for batch in batches])
    shares, n_near = recurrence(bases, ends, stats.counts)
    return Multistart(
        **vars(best),
        objectives=objectives,
        best_start=number,
        start_n_iter=n_made,
        engine=runner.name,
        recurrence=shares,
        n_near=n_near,
    )


@dataclass(frozen=True)
class _Search:
    """The parameters of `multistart`, checked."""

    method: Method
    n_components: int
    n_starts: int
    n_iter: int
    tol: float
    halving: bool
    rules: str
    penalty: str | float
    engine: str


@dataclass(frozen=True, eq=False)
class _Batch:
    """Some starts at their end.

    Attributes
    ----------
    best : the best of them
    objectives, n_iter : objectives of all, and how many updates each made
    bases, ends : basis and last objective of those near the best, which are compared
    """

    best: Solution
    objectives: np.ndarray
    n_iter: np.ndarray
    bases: np.ndarray
    ends: np.ndarray


def _run_batches(
    p: Problem,
    search: _Search,
    engine: Engine,
    random_state: RandomState,
    report: Callable[[float], None] | None,
) -> list[_Batch]:
    """Run all starts, as many at a time as fit into the memory of a batch."""
    seeds = seeds_of(random_state)
    n_subjects, n_columns = p.L.shape
    bytes_per_start = 8 * ARRAYS_PER_START * search.n_components * (n_subjects + n_columns)
    limit = BATCH_BYTES if engine.batch_bytes is None else engine.batch_bytes()
    size = max(1, limit // bytes_per_start)
    batches = []
    for first in range(0, search.n_starts, size):
        numbers = range(first, min(first + size, search.n_starts))

        def watch(update: int, numbers: range = numbers) -> None:
            if report is not None:
                share = len(numbers) * update / max(1, search.n_iter)
                report((numbers.start + share) / search.n_starts)

        batches.append(
            _run_batch(
                p,
                search,
                engine,
                seeds,
                numbers,
                watch,
            )
        )
    return batches


def _run_batch(
    p: Problem,
    search: _Search,
    engine: Engine,
    seeds: np.random.SeedSequence,
    numbers: range,
    watch: Callable[[int], None],
) -> _Batch:
    """Run the starts of these numbers, or the best of them if the scheme finishes no more."""
    method, n_iter = search.method, search.n_iter
    n_finished = method.scheme.n_finished
    state = begin(p, method.scheme, *draw_starts(p, method, search.n_components, seeds, numbers))
    # Starts that are not run stay at their first objective.
    objectives = np.repeat(state.objective[:, None], n_iter + 1, axis=1)
    n_made = np.zeros(len(numbers), dtype=np.int64)
    order = np.argsort(state.objective, kind="stable")
    chosen = np.sort(order[:n_finished])
    halve_at = {n_iter // 2**k for k in (1, 2, 3, 4)} if search.halving else set()
    course = Course(n_iter, search.tol, halve_at, watch)
    run = engine.iterate(p, method, state.take(chosen), course)
    objectives[chosen] = _padded(run, n_iter)
    n_made[chosen] = run.n_iter
    ends = objectives[chosen, -1]
    near = _near_best(ends)
    best = solution_of(run, int(np.argmin(ends)), method, search.rules, p.penalty)
    return _Batch(best, objectives, n_made, run.state.B[near], ends[near])


def _finished(
    p: Problem,
    search: _Search,
    engine: Engine,
    best: Solution,
) -> Solution:
    """Return the best start with further updates, down to the tolerance of the search."""
    state = begin(p, search.method.scheme, best.B[None], best.C[None])
    course = Course(search.n_iter - best.n_iter, search.tol)
    run = engine.iterate(p, search.method, state, course)
    end = solution_of(run, 0, search.method, search.rules, p.penalty)
    return replace(
        end,
        objective=np.concatenate([best.objective, end.objective[1:]]),
        errors=np.concatenate([best.errors, end.errors[1:]]),
        n_iter=best.n_iter + end.n_iter,
    )


def _near_best(ends: np.ndarray) -> np.ndarray:
    """Return the starts that are compared with the best: those near it, the best first."""
    order = np.argsort(ends, kind="stable")[:MOST_COMPARED]
    best = ends[order[0]]
    if not np.isfinite(best):
        return order[:1]
    return order[ends[order] - best <= NEAR * abs(best)]


def _padded(run: Run, n_iter: int) -> np.ndarray:
    """Return the objectives of a batch up to `n_iter`.

    The last value of a run is repeated; it is infinity where the run diverged.
    """
    n_missing = n_iter + 1 - run.objectives.shape[1]
    objectives = np.pad(run.objectives, ((0, 0), (0, n_missing)), mode="edge")
    objectives[run.diverged, -1] = np.inf
    return objectives
