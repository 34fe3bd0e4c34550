"""The single loop: from statistics and a start to a `Solution`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

import numpy as np

from icofactor.checks import check_parameters
from icofactor.errors import DivergenceError
from icofactor.factorization.arrays import Array
from icofactor.factorization.extrapolation import TAU_START
from icofactor.factorization.methods import Method, method_named
from icofactor.factorization.schemes.base import Problem, check_penalty, check_rules
from icofactor.factorization.starts import (
    RandomState,
    check_problem,
    draw_starts,
    given_start,
    nndsvd_start,
    seeds_of,
    warn_of_large_penalty,
)
from icofactor.factorization.statistics import Statistics
from icofactor.factorization.update import State, advance, begin, settled
from icofactor.io.records import Numbers, plain_signature
from icofactor.streaming.runners import SHORT, in_order, one_blas_thread

GROUP = 5
"""Runs that one processor makes together."""
SHORT_GROUP = 10
"""The same where one makes all: L is `runners.SHORT`."""


@dataclass(frozen=True, eq=False)
class Run:
    """A batch of runs after the loop.

    Attributes
    ----------
    state : State of every run at its own end
    objectives, errors : (batch, 1 + updates made) one value per update, first = start; a run that
        ended early
        repeats its last value
    n_iter : (batch,) updates each run made
    converged : (batch,) whether `tol` ended it
    diverged : (batch,) whether it left the finite numbers
    """

    state: State
    objectives: np.ndarray
    errors: np.ndarray
    n_iter: np.ndarray
    converged: np.ndarray
    diverged: np.ndarray


@dataclass(frozen=True)
class Course:
    """How long a batch of runs goes on.

    Attributes
    ----------
    n_iter : updates, at most
    tol : a run ends when it has `update.settled`; 0 never
    halve_at : after these updates the worse half of the runs that still go on ends
    on_update : called with the number of updates made, not necessarily after each
    """

    n_iter: int
    tol: float = 0.0
    halve_at: Collection[int] = ()
    on_update: Callable[[int], None] | None = None


def iterate(p: Problem, method: Method, state: State, course: Course) -> Run:
    """Update a batch of runs along its course; one that leaves the finite numbers ends there.

    Except by halving, a run ends by itself, whatever the others do, so that its answer does not
    depend on them.
    """
    n_iter, tol, on_update = course.n_iter, course.tol, course.on_update
    n_runs, plateau = len(state.error), method.scheme.plateau
    objectives, errors = [state.objective], [state.error]
    made = np.zeros(n_runs, dtype=np.int64)
    converged, diverged = np.zeros(n_runs, dtype=bool), np.zeros(n_runs, dtype=bool)
    active, ended = np.arange(n_runs), []
    for update in range(n_iter):
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # runs that leave the finite numbers are found below
            state = advance(p, method, state)
        made[active] += 1
        objective, E = objectives[-1].copy(), errors[-1].copy()
        objective[active], E[active] = state.objective, state.error
        objectives.append(objective)
        errors.append(E)
        diverged |= ~np.isfinite(objective)
        if tol > 0 and update + 1 >= method.scheme.first_look:
            with np.errstate(invalid="ignore"):
                converged[active] |= settled(objectives, tol, plateau)[active]
        stop = (converged | diverged)[active]
        if update + 1 in course.halve_at:
            rank = np.argsort(np.argsort(np.where(stop, np.inf, objective[active]), kind="stable"))
            stop |= rank >= max(1, len(active) // 2)
        if stop.any():
            ended.append((active[stop], state.take(np.flatnonzero(stop))))
            keep = np.flatnonzero(~stop)
            active, state = active[keep], state.take(keep)
        if on_update is not None:
            on_update(update + 1)
        if not len(active):
            break
    ended.append((active, state))
    return Run(
        _gather(ended),
        np.stack(objectives, 1),
        np.stack(errors, 1),
        made,
        converged & ~diverged,
        diverged,
    )


def iterate_in_groups(p: Problem, method: Method, state: State, course: Course) -> Run:
    """`iterate`, a few runs on each processor; whatever the machine, so that bits stay."""
    n_runs = len(state.error)
    size, workers = (SHORT_GROUP, 1) if p.L.size < SHORT else (GROUP, None)
    if n_runs <= size or course.halve_at:
        return iterate(p, method, state, course)
    groups, quiet = (
        np.split(np.arange(n_runs), range(size, n_runs, size)),
        replace(course, on_update=None),
    )
    one = lambda some: iterate(p, method, state.take(some), quiet if some[0] else course)
    runs = list(in_order(one, groups, workers))
    longest = max(run.objectives.shape[1] for run in runs)
    paths = (
        np.concatenate(
            [np.pad(path, ((0, 0), (0, longest - path.shape[1])), "edge") for path in of_runs]
        )
        for of_runs in zip(*((run.objectives, run.errors) for run in runs), strict=True)
    )
    ends = (
        np.concatenate([getattr(run, name) for run in runs])
        for name in ("n_iter", "converged", "diverged")
    )
    return Run(
        _gather([(some, run.state) for some, run in zip(groups, runs, strict=True)]), *paths, *ends
    )


def _gather(parts: list[tuple[np.ndarray, State]]) -> State:
    """One state from the runs that ended at different updates, in their first order."""
    parts = [(where, state) for where, state in parts if len(where)]
    first, *others = (state for _, state in parts)
    if not others:
        return first
    order = np.argsort(np.concatenate([where for where, _ in parts]))
    joined = first.map(lambda *arrays: np.concatenate(arrays)[order], *others)
    return replace(joined, age=max(state.age for _, state in parts))


@plain_signature
@dataclass(frozen=True, eq=False)
class Solution:
    """A factorization X ≈ D B C in design coordinates.

    Attributes
    ----------
    B : array of shape (n_columns, n_components)
        Basis.
    C : array of shape (n_components, n_subjects)
        Loadings.
    objective, errors : arrays of shape (1 + n_iter,)
        Objective and error ‖X − DBC‖² at the start and after every update.
    n_iter : int
        Number of updates.
    converged : bool
        Whether `tol` was met.
    method, rules, penalty : str, str, float
        Settings; `penalty` is the number λ.
    tau : float
        Momentum at the end, with which a refinement continues.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> design = ico.Design(cohort.sites, level=1)
    >>> stats = ico.Statistics.from_data(cohort.X.T, design)
    >>> solution = ico.solve(stats, "PPNMF", 3, n_iter=50, random_state=0)
    >>> solution.n_iter, solution.errors.shape
    (50, (51,))
    >>> maps = design.matrix @ solution.B  # the basis on the sites
    >>> maps.shape
    (642, 3)
    """

    B: Annotated[Array, Numbers("ck", finite=False)]  # a start may diverge
    C: Annotated[Array, Numbers("kn", finite=False)]
    objective: Annotated[np.ndarray, Numbers("u", finite=False)]
    errors: Annotated[np.ndarray, Numbers("u", finite=False)]
    n_iter: int
    converged: bool
    method: str
    rules: str
    penalty: float
    tau: float = TAU_START

    _as_the_error: ClassVar[tuple[str, ...]] = ("objective", "errors")

    @property
    def error(self) -> float:
        """Final error ‖X − DBC‖²."""
        return float(self.errors[-1])

    @property
    def n_components(self) -> int:
        """Number of components."""
        return int(self.B.shape[-1])

    def times(self, factor: float) -> Self:
        """The solution for X times a number."""
        scheme, root = method_named(self.method).scheme, np.sqrt(factor)
        to_B, to_C = (1.0, factor) if scheme.projective else (root, root)
        changed = {name: getattr(self, name) * factor**2 for name in self._as_the_error}
        penalty = self.penalty * factor**scheme.penalty_degree
        return replace(self, B=self.B * to_B, C=self.C * to_C, penalty=penalty, **changed)


def solution_of(run: Run, index: int, method: Method, rules: str, penalty: float) -> Solution:
    """One run of a batch as a Solution."""
    end = int(run.n_iter[index]) + 1
    return Solution(
        run.state.B[index],
        run.state.C[index],
        run.objectives[index, :end],
        run.errors[index, :end],
        end - 1,
        bool(run.converged[index]),
        method.name,
        rules,
        penalty,
        float(run.state.tau[index]),
    )


def solve(
    stats: Statistics,
    method: str = "LE-PNNMF",
    n_components: int | None = None,
    *,
    start: Solution | tuple[Array, Array | None] | Literal["nndsvd"] | None = None,
    n_iter: int = 1000,
    tol: float = 0.0,
    rules: str = "default",
    penalty: str | float = "paper",
    random_state: RandomState = None,
) -> Solution:
    """Factorize from one start.

    Statistics are sums of X, in which negative values can hide; `CorticalFactorization` checks X
    itself.

    Parameters
    ----------
    stats : Statistics
        Statistics of the data.
    method : str
        One of `METHODS`.
    n_components : int, optional
        Number of components; not needed with `start`.
    start : (B, C), Solution or "nndsvd", optional
        Where to start. Default: a random start from `random_state`. Projective methods ignore C.
        "nndsvd" is the start of scikit-learn's NMF and of opNMF, from the SVD of the data on the
        faces; it is not random, and its zeros stay zero under multiplicative updates.
    n_iter : int
        Maximum number of updates.
    tol : float
        Stop if the objective fell by less than `tol`, relative, over ten updates. Not before update
        100 (CD-PNNMF: 50, parts: 20), and not on the plateau where random starts begin. 0 always
        makes `n_iter` updates.
    rules : {"default", "paper"}, default="default"
        Improved updates, or exactly those of the paper.
    penalty : "paper" or float, default="paper"
        Penalty λ.
    random_state : int, SeedSequence, Generator, RandomState or None
        Seed; the start is the first of those of `multistart`.

    Returns
    -------
    Solution

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> stats = ico.Statistics.from_data(cohort.X.T, ico.Design(cohort.sites, level=1))
    >>> solution = ico.solve(stats, "LE-PNNMF", 3, n_iter=50, random_state=0)
    >>> solution.B.shape, solution.C.shape
    ((80, 3), (3, 20))
    >>> bool(solution.objective[-1] < solution.objective[0])
    True
    """
    chosen = method_named(method)
    check_parameters(n_iter=n_iter, tol=tol)
    check_rules(rules, chosen.scheme)
    check_penalty(penalty, chosen.scheme)
    p = Problem.of(stats, chosen.scheme, rules, penalty)
    if start is None or (isinstance(start, str) and start == "nndsvd"):
        check_parameters(n_components=n_components)
        k = int(n_components or 0)
        check_problem(stats, chosen, k)
        warn_of_large_penalty(p, stats, chosen.scheme, penalty)
        if start is None:
            B, C = draw_starts(p, chosen, k, seeds_of(random_state), range(1))
        else:
            B, C = nndsvd_start(p, chosen, k)
    else:
        B, C = given_start(p, stats, chosen, start, n_components)
        check_problem(stats, chosen, B.shape[-1])
    with one_blas_thread():
        run = iterate(p, chosen, begin(p, chosen.scheme, B, C), Course(n_iter, tol))
    if run.diverged[0]:
        raise DivergenceError(divergence_message(chosen, rules, int(run.n_iter[0])))
    if tol > 0 and not run.converged[0]:
        warn_not_converged(n_iter, tol)
    return solution_of(run, 0, chosen, rules, p.penalty)


def divergence_message(method: Method, rules: str, update: int) -> str:
    """What to do about a run that left the finite numbers."""
    if rules == "paper":
        advice = (
            method.scheme.divergence_advice or "Try rules='default', whose objective never rises."
        )
    else:
        advice = "Check the start and the scale of X."
    return f"{method.name} under rules={rules!r} diverged at update {update}. {advice}"


def warn_not_converged(n_iter: int, tol: float) -> None:
    """scikit-learn's warning, with what to do."""
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(
        f"stopped after n_iter={n_iter} updates before the objective settled to tol={tol:g}; raise n_iter or tol",
        ConvergenceWarning,
        stacklevel=3,
    )
