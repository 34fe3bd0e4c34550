"""Many starts at once, and the best of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from icofactor.engines import Engine, check_engine, choose_engine
from icofactor.errors import DivergenceError
from icofactor.methods import Method, method_named
from icofactor.schemes import Problem
from icofactor.solver import (
    Run,
    Solution,
    check_run,
    divergence_message,
    solution_of,
    warn_not_converged,
)
from icofactor.starts import RandomState, check_problem, draw_starts, seeds_of, warn_if_penalty_dwarfs
from icofactor.statistics import Statistics
from icofactor.threads import one_blas_thread
from icofactor.update import begin

BATCH_BYTES = 256 * 2**20
"""Starts are run in batches whose factors take about this much memory."""


@dataclass(frozen=True, eq=False)
class Multistart(Solution):
    """The best of many starts, with what the others came to.

    Attributes
    ----------
    objectives : (n_starts, 1 + n_iter)
        The objective of every start after every update; a start that ended early, or was dropped by halving, repeats
        its last value; one that diverged holds infinity.
    final_objectives : (n_starts,)
        Where each start ended: their spread shows local minima.
    best_start : int
        The number of the best start.
    start_n_iter : (n_starts,)
        Updates each start made.
    engine : str
        Where it ran.
    """

    objectives: np.ndarray = field(kw_only=True)
    best_start: int = field(kw_only=True)
    start_n_iter: np.ndarray = field(kw_only=True)
    engine: str = field(kw_only=True, default="numpy")

    @property
    def final_objectives(self) -> np.ndarray:
        return self.objectives[:, -1]

    @property
    def n_starts(self) -> int:
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
    on_update: Callable[[float], None] | None = None,
) -> Multistart:
    """Factorize from `n_starts` random starts and keep the one with the smallest objective.

    Parameters
    ----------
    stats, method, n_components, n_iter, tol, rules, penalty
        As in `solve`. A start that meets `tol` ends by itself.
    n_starts : int
        Start number i depends on `random_state` and i only, never on how many there are or how they are batched.
    halving : bool
        Successive halving: drop the worse half of the starts after n_iter/16, /8, /4 and /2 updates.
    engine : {"auto", "numpy", "cpu", "jax"}
        Where the loop runs: generic functions, compiled kernels on all processors, or JAX on the device it finds;
        "auto" chooses by what is installed and by the work, and `engine` of the result says what it chose.
    on_update : callable, optional
        Called with the fraction of the work that is done.

    Returns
    -------
    Multistart
        A Solution, with the spread over starts.
    """
    chosen = method_named(method)
    check_run(n_iter, tol)
    check_engine(engine)
    if not isinstance(n_starts, int | np.integer) or n_starts < 1:
        raise ValueError(f"n_starts must be a whole number ≥ 1; found {n_starts!r}")
    check_problem(stats, chosen, n_components)
    p = Problem.of(stats, chosen.scheme, rules, penalty)
    warn_if_penalty_dwarfs(p, chosen.scheme)
    where = choose_engine(engine, p, chosen, n_components, n_starts * n_iter)
    race = _Race(p, chosen, n_components, seeds_of(random_state), int(n_starts), n_iter, tol, where, on_update)
    with one_blas_thread():
        best, objectives, made = race.winner(halving)
    index = int(np.argmin(objectives[:, -1]))
    if not np.isfinite(objectives[index, -1]):
        raise DivergenceError(divergence_message(chosen, rules, int(made.max())))
    if tol > 0 and not best.converged:
        warn_not_converged(n_iter, tol)
    return Multistart(**vars(best), objectives=objectives, best_start=index, start_n_iter=made, engine=where.name)


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
    on_update: Callable[[float], None] | None

    @property
    def batch(self) -> int:
        """Starts per batch: B, C, their plain updates, candidates and products, about ten arrays of each size."""
        one = 10 * 8 * self.n_components * (self.p.L.shape[0] + self.p.L.shape[1])
        limit = BATCH_BYTES if self.engine.batch_bytes is None else self.engine.batch_bytes()
        return max(1, limit // one)

    def _progress(self, done: int, share: int) -> Callable[[int], None] | None:
        """`on_update` for a batch of `share` starts after `done` starts."""
        call = self.on_update
        if call is None:
            return None
        return lambda update: call((done + share * update / max(1, self.n_iter)) / self.n_starts)

    def winner(self, halving: bool) -> tuple[Solution, np.ndarray, np.ndarray]:
        """The best start, the objectives of all, and how many updates each made."""
        halve_at = {self.n_iter // 2**k for k in (1, 2, 3, 4)} if halving else set()
        paths, made, best = [], [], None
        for first in range(0, self.n_starts, self.batch):
            indices = range(first, min(first + self.batch, self.n_starts))
            B, C = draw_starts(self.p, self.method, self.n_components, self.seeds, indices)
            state = begin(self.p, self.method.scheme, B, C)
            watch = self._progress(first, len(indices))
            run = self.engine.iterate(self.p, self.method, state, self.n_iter, self.tol, halve_at, watch)
            path = _padded(run, self.n_iter)
            index = int(np.argmin(path[:, -1]))
            if best is None or path[index, -1] < best[0]:
                best = (path[index, -1], self._solution(run, index))
            paths.append(path)
            made.append(run.n_iter)
        assert best is not None
        return best[1], np.concatenate(paths), np.concatenate(made)

    def _solution(self, run: Run, index: int) -> Solution:
        return solution_of(run, index, self.method, "paper" if self.p.literal else "default", self.p.penalty)


def _padded(run: Run, n_iter: int) -> np.ndarray:
    """The objectives of a batch, each run's last value repeated up to `n_iter`, infinity where it diverged."""
    path = np.pad(run.objectives, ((0, 0), (0, n_iter + 1 - run.objectives.shape[1])), mode="edge")
    path[run.diverged, -1] = np.inf
    return path
