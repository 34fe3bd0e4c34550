"""Many starts at once, and the best of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
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
    operations,
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
from icofactor.streaming.runners import Runner, one_blas_thread

BATCH_BYTES = 256 * 2**20
"""Starts are run in batches whose factors take about this much memory."""
LOOSER = 10
"""Where only the best of many starts are run, they end at this many times `tol`; the best of them
goes on.
"""
MOST_COMPARED = 50
"""Starts that are compared with the best one, at most."""
TASK_OPERATIONS = 5e9
"""Floating-point operations of one task on a cluster: a second or so."""


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
    runner: Runner | None = None,
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
    runner : Runner, optional
        Runs the batches, for example on a cluster. The result does not depend on it.

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
    chosen = method_named(method)
    check_parameters(n_components=n_components, n_starts=n_starts, n_iter=n_iter, tol=tol)
    check_rules(rules, chosen.scheme)
    check_penalty(penalty, chosen.scheme)
    check_engine(engine)
    search = Search(chosen, n_components, n_starts, n_iter, tol, halving, rules, penalty, engine)
    return best_of_starts(stats, search, random_state, report, runner)


@dataclass(frozen=True)
class Search:
    """What `best_of_starts` looks for, and how; the parameters of `multistart`, checked."""

    method: Method
    n_components: int
    n_starts: int
    n_iter: int
    tol: float
    halving: bool
    rules: str
    penalty: str | float
    engine: str


def best_of_starts(
    stats: Statistics,
    search: Search,
    random_state: RandomState,
    report: Callable[[float], None] | None,
    runner: Runner | None,
) -> Multistart:
    """`multistart` with parameters that are checked already."""
    chosen, n_iter, tol, rules = search.method, search.n_iter, search.tol, search.rules
    check_problem(stats, chosen, search.n_components)
    whole = Problem.of(stats, chosen.scheme, rules, search.penalty)
    warn_of_large_penalty(whole, stats, chosen.scheme, search.penalty)
    with one_blas_thread():
        p = whole.compact() if chosen.scheme.compactable(whole) else whole
        updates = likely_updates(chosen, search.n_starts, n_iter, tol)
        where = choose_engine(search.engine, p, chosen, search.n_components, updates)
        first_tol, seeds = (
            tol if chosen.scheme.n_finished is None else LOOSER * tol,
            seeds_of(random_state),
        )
        race = _Race(
            p,
            chosen,
            search.n_components,
            seeds,
            int(search.n_starts),
            n_iter,
            first_tol,
            where,
            report,
        )
        best, objectives, made, reached = race.winner(search.halving, runner, stats.counts)
        if first_tol > tol and np.isfinite(best.error) and best.n_iter < n_iter:
            best = race.gone_on(best, tol)
            index = int(np.argmin(objectives[:, -1]))
            objectives[index, made[index] :] = best.objective[-1]
            objectives[index, : best.n_iter + 1], made[index] = best.objective, best.n_iter
    if p is not whole:
        best = replace(best, C=whole.project(best.B))
    index = int(np.argmin(objectives[:, -1]))
    if not np.isfinite(objectives[index, -1]):
        raise DivergenceError(divergence_message(chosen, rules, int(made.max())))
    if tol > 0 and not best.converged:
        warn_not_converged(n_iter, tol)
    return Multistart(
        **vars(best),
        objectives=objectives,
        best_start=index,
        start_n_iter=made,
        engine=where.name,
        recurrence=reached[0],
        n_near=reached[1],
    )


@dataclass
class _Race:
    """The starts of one problem, run in batches."""

    p: Problem
    method: Method
    n_components: int
    seeds: np.random.SeedSequence
    n_starts: int
    n_iter: int
    tol: float
    engine: Engine
    report: Callable[[float], None] | None

    @property
    def batch(self) -> int:
        """Starts per batch: B, C, their plain updates, candidates and products, about ten arrays of
        each size.
        """
        one = 10 * 8 * self.n_components * (self.p.L.shape[0] + self.p.L.shape[1])
        limit = BATCH_BYTES if self.engine.batch_bytes is None else self.engine.batch_bytes()
        return max(1, limit // one)

    def _progress(self, done: int, share: int) -> Callable[[int], None] | None:
        """`report` for a batch of `share` starts after `done` starts."""
        call = self.report
        if call is None:
            return None
        return lambda update: call((done + share * update / max(1, self.n_iter)) / self.n_starts)

    def winner(
        self, halving: bool, runner: Runner | None, weights: np.ndarray
    ) -> tuple[Solution, np.ndarray, np.ndarray, tuple[np.ndarray, int]]:
        """The best start, the objectives of all, how many updates each made, and which components
        recur.
        """
        batches = list(self._batches(halving, runner))
        best = min(batches, key=lambda batch: float(np.min(batch.path[:, -1]))).best
        paths, made = (
            np.concatenate([getattr(batch, name) for batch in batches]) for name in ("path", "made")
        )
        bases, ends = (
            np.concatenate([getattr(batch, name) for batch in batches])
            for name in ("bases", "ends")
        )
        return best, paths, made, recurrence(bases, ends, weights)

    def _batches(self, halving: bool, runner: Runner | None) -> Iterator[_Batch]:
        size = self.batch
        if runner is not None and self.engine.name == "cpu" and not halving:
            # Halving chooses within a batch, and the other engines want large ones.
            operations_per_start = operations(self.p, self.n_components) * max(1, self.n_iter)
            size = min(size, max(1, round(TASK_OPERATIONS / operations_per_start)))
        firsts = range(0, self.n_starts, size)
        if runner is None:
            yield from (
                self.run_batch(first, min(first + size, self.n_starts), halving) for first in firsts
            )
            return
        arguments = lambda i: (firsts[i], min(firsts[i] + size, self.n_starts))
        race = replace(self, report=None)
        batches = runner.run(
            partial(_run_batch, halving), race, arguments, len(firsts), "updates of the starts"
        )
        for done, batch in enumerate(batches, 1):
            if self.report is not None:
                self.report(done / len(firsts))
            yield batch

    def run_batch(self, first: int, last: int, halving: bool) -> _Batch:
        """The starts from `first` to before `last`."""
        halve_at = {self.n_iter // 2**k for k in (1, 2, 3, 4)} if halving else set()
        B, C = draw_starts(self.p, self.method, self.n_components, self.seeds, range(first, last))
        state = begin(self.p, self.method.scheme, B, C)
        chosen = self._promising(state.objective)
        watch = self._progress(first, last - first)
        going = state if chosen is None else state.take(chosen)
        run = self.engine.iterate(
            self.p, self.method, going, Course(self.n_iter, self.tol, halve_at, watch)
        )
        objectives = _padded(run, self.n_iter)
        ends = objectives[:, -1]
        if chosen is None:
            path, made = objectives, run.n_iter
        else:
            # Starts that are not run stay at their first objective.
            path = np.repeat(state.objective[:, None], self.n_iter + 1, axis=1)
            path[chosen] = objectives
            made = np.zeros(last - first, dtype=np.int64)
            made[chosen] = run.n_iter
        near = _near_best(ends)
        bases = run.state.B[near]
        return _Batch(self._solution(run, int(np.argmin(ends))), path, made, bases, ends[near])

    def _promising(self, objectives: np.ndarray) -> np.ndarray | None:
        """Which of the starts drawn are run, where the scheme runs only the best of them; None:
        all.
        """
        most = self.method.scheme.n_finished
        if most is None or len(objectives) <= most:
            return None
        return np.sort(np.argsort(objectives, kind="stable")[:most])

    def gone_on(self, best: Solution, tol: float) -> Solution:
        """The best start with further updates, down to `tol`."""
        state = begin(self.p, self.method.scheme, best.B[None], best.C[None])
        run = self.engine.iterate(
            self.p, self.method, state, Course(self.n_iter - best.n_iter, tol)
        )
        more = self._solution(run, 0)
        return replace(
            more,
            objective=np.concatenate([best.objective, more.objective[1:]]),
            errors=np.concatenate([best.errors, more.errors[1:]]),
            n_iter=best.n_iter + more.n_iter,
        )

    def _solution(self, run: Run, index: int) -> Solution:
        return solution_of(run, index, self.method, self.rules, self.p.penalty)

    @property
    def rules(self) -> str:
        return "paper" if self.p.literal else "default"


@dataclass(frozen=True, eq=False)
class _Batch:
    """Some starts at their end.

    Attributes
    ----------
    best : the best of them
    path, made : the objectives of all, and how many updates each made
    bases, ends : the basis and the last objective of those near the best, by which components are
        compared
    """

    best: Solution
    path: np.ndarray
    made: np.ndarray
    bases: np.ndarray
    ends: np.ndarray


def _near_best(ends: np.ndarray) -> np.ndarray:
    """The starts that are compared with the best: those near it, the best first, not too many."""
    order = np.argsort(ends, kind="stable")[:MOST_COMPARED]
    best = ends[order[0]]
    return order[ends[order] - best <= NEAR * abs(best)] if np.isfinite(best) else order[:1]


def _run_batch(halving: bool, race: _Race, first: int, last: int) -> _Batch:
    """A batch of starts as a task."""
    return race.run_batch(first, last, halving)


def _padded(run: Run, n_iter: int) -> np.ndarray:
    """The objectives of a batch, each run's last value repeated up to `n_iter`, infinity where it
    diverged.
    """
    path = np.pad(run.objectives, ((0, 0), (0, n_iter + 1 - run.objectives.shape[1])), mode="edge")
    path[run.diverged, -1] = np.inf
    return path
