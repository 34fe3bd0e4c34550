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
from icofactor.maps.workers import one_blas_thread


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


def iterate(
    p: Problem,
    method: Method,
    state: State,
    course: Course,
) -> Run:
    """Update a batch of runs along its course; one that leaves the finite numbers ends there.

    Except by halving, a run ends by itself, whatever the others do, so that its answer does not
    depend on them.
    """
    n_runs = len(state.error)
    objectives = [state.objective]
    errors = [state.error]
    n_iter = np.zeros(n_runs, dtype=np.int64)
    converged = np.zeros(n_runs, dtype=bool)
    diverged = np.zeros(n_runs, dtype=bool)
    active = np.arange(n_runs)
    ended = []
    for update in range(1, course.n_iter + 1):
        # Runs that leave the finite numbers are found below.
        with np.errstate(over="ignore", invalid="ignore"):
            state = advance(p, method, state)
            n_iter[active] += 1
            objectives.append(_with_active(objectives[-1], active, state.objective))
            errors.append(_with_active(errors[-1], active, state.error))
            diverged |= ~np.isfinite(objectives[-1])
            if course.tol > 0 and update >= method.scheme.first_look:
                has_settled = settled(objectives, course.tol, method.scheme.plateau)
                converged[active] |= has_settled[active]
        stop = (converged | diverged)[active]
        if update in course.halve_at:
            stop |= is_worse_half(np.where(stop, np.inf, objectives[-1][active]))
        if stop.any():
            ended.append((active[stop], state.take(np.flatnonzero(stop))))
            active = active[~stop]
            state = state.take(np.flatnonzero(~stop))
        if course.on_update is not None:
            course.on_update(update)
        if not len(active):
            break
    ended.append((active, state))
    return Run(
        state=_joined_states(ended),
        objectives=np.stack(objectives, axis=1),
        errors=np.stack(errors, axis=1),
        n_iter=n_iter,
        converged=converged & ~diverged,
        diverged=diverged,
    )


def _with_active(
    values: np.ndarray,
    active: np.ndarray,
    new: np.ndarray,
) -> np.ndarray:
    """Return the values of all runs, with new ones of those that are active."""
    values = values.copy()
    values[active] = new
    return values


def is_worse_half(objectives: np.ndarray) -> np.ndarray:
    """Return which runs are in the worse half; at least one is not."""
    rank = np.argsort(np.argsort(objectives, kind="stable"))
    return rank >= max(1, len(objectives) // 2)


def _joined_states(parts: list[tuple[np.ndarray, State]]) -> State:
    """Return one state of runs that ended at different updates, in the order of their numbers."""
    parts = [(numbers, state) for numbers, state in parts if len(numbers)]
    first, *others = (state for _, state in parts)
    if not others:
        return first
    order = np.argsort(np.concatenate([numbers for numbers, _ in parts]))
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


def solution_of(
    run: Run,
    index: int,
    method: Method,
    rules: str,
    penalty: float,
) -> Solution:
    """Return one run of a batch as a Solution."""
    n_iter = int(run.n_iter[index])
    return Solution(
        B=run.state.B[index],
        C=run.state.C[index],
        objective=run.objectives[index, : n_iter + 1],
        errors=run.errors[index, : n_iter + 1],
        n_iter=n_iter,
        converged=bool(run.converged[index]),
        method=method.name,
        rules=rules,
        penalty=penalty,
        tau=float(run.state.tau[index]),
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


def divergence_message(
    method: Method,
    rules: str,
    update: int,
) -> str:
    """Return what to do about a run that left the finite numbers."""
    advice = "Check the start and the scale of X."
    if rules == "paper":
        usual = "Try rules='default', whose objective never rises."
        advice = method.scheme.divergence_advice or usual
    return f"{method.name} under rules={rules!r} diverged at update {update}. {advice}"


def warn_not_converged(n_iter: int, tol: float) -> None:
    """Warn as scikit-learn does, and say what to do."""
    from sklearn.exceptions import ConvergenceWarning

    message = f"stopped after n_iter={n_iter} updates before the objective settled to tol={tol:g}"
    warnings.warn(f"{message}; raise n_iter or tol", ConvergenceWarning, stacklevel=3)
