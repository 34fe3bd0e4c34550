"""Coarse to fine: solve, measure the local error, divide the worst faces, carry the basis over
(method.md §6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from icofactor.checks import OneOf, check_parameters, check_value
from icofactor.errors import ArgumentError, DivergenceError
from icofactor.factorization._solve import Course, Solution, divergence_message
from icofactor.factorization.design import Design
from icofactor.factorization.engines import check_engine, choose_engine, work_of, worth_compiling
from icofactor.factorization.methods import Method, method_named
from icofactor.factorization.schemes.base import Problem, check_penalty
from icofactor.factorization.sources import Data, Source
from icofactor.factorization.starts import check_problem, given_start
from icofactor.factorization.statistics import Statistics
from icofactor.factorization.update import State, begin
from icofactor.maps.workers import one_blas_thread

INDICATORS = ("residual", "projected")
CARRIES = ("copy", "quarter")


@dataclass(frozen=True)
class Refinement:
    """A schedule of refinements.

    Parameters
    ----------
    steps : int
        Number of refinements.
    faces : int
        Number of faces to divide in each refinement: those with the worst fit.
    n_iter : int
        Number of updates after each division.
    indicator : {"residual", "projected"}
        How to find the worst faces: by the squared residual of X inside the face (eq. 13), or by
        the projected error of the paper (eq. 12), which only sees what the columns already resolve.
    carry : {"copy", "quarter"}
        Whether the children get a copy of their parent's row of B, which does not change the fit
        with partition columns, or a quarter of it, as in the paper.

    Examples
    --------
    >>> import icofactor as ico
    >>> ico.Refinement(steps=3, faces=10)
    Refinement(steps=3, faces=10, n_iter=10, indicator='residual', carry='copy')
    >>> model = ico.CorticalFactorization(5, refinement=ico.Refinement(steps=3))
    """

    steps: int = 10
    faces: int = 5
    n_iter: int = 10
    indicator: str = "residual"
    carry: str = "copy"

    @classmethod
    def paper(cls) -> Refinement:
        """Return the schedule of the paper: ten refinements of five faces, ten updates each.

        Examples
        --------
        >>> import icofactor as ico
        >>> ico.Refinement.paper().steps
        10
        """
        return cls(steps=10, faces=5, n_iter=10, indicator="projected", carry="quarter")

    def check(self) -> None:
        """Check the values."""
        check_parameters("refinement", steps=self.steps, faces=self.faces, n_iter=self.n_iter)
        check_value("refinement.indicator", self.indicator, OneOf(INDICATORS))
        check_value("refinement.carry", self.carry, OneOf(CARRIES))


@dataclass(frozen=True, eq=False)
class Refined:
    """A solution after refinement, the result of `refine`.

    Attributes
    ----------
    design, stats, solution : Design, Statistics, Solution
        Design, statistics and solution at the end. `objective` and `errors` of the solution contain
        all updates, including those before the refinement.
    divisions : tuple of int
        Number of updates before each division.
    n_columns : tuple of int
        Number of columns of the design after each division.
    exhausted : bool
        Whether the refinement ended early because no face could be divided further.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> design = ico.Design(cohort.sites, level=1)
    >>> stats = ico.Statistics.from_data(cohort.X.T, design)
    >>> solution = ico.solve(stats, "LE-PNNMF", 3, n_iter=50, random_state=0)
    >>> source = ico.Pyramid.from_data(cohort.X.T, cohort.sites)
    >>> refined = ico.refine(source, design, stats, solution, ico.Refinement(steps=2, faces=5))
    >>> refined.n_columns, refined.divisions
    ((95, 110), (50, 60))
    """

    design: Design
    stats: Statistics
    solution: Solution
    divisions: tuple[int, ...]
    n_columns: tuple[int, ...]
    exhausted: bool


def local_error(
    indicator: str,
    stats: Statistics,
    design: Design,
    B: np.ndarray,
    C: np.ndarray,
    source: Source,
) -> np.ndarray:
    """How badly each active face is fitted: eq. 12 ("projected") or eq. 13 ("residual")."""
    if indicator == "residual" and design.kind != "partition":
        if not isinstance(source, Data):
            message = "is a pyramid, which has only sums of X; overlapping columns need Data"
            raise ArgumentError("source", message)
        return source.residual(design, B @ C)
    L = stats.L
    if indicator == "projected":
        return np.asarray(((L.T - stats.K @ (B @ C)) ** 2).sum(axis=1))  # eq. 12
    fitted = stats.K.diagonal()[:, None] * (B @ (C @ C.T)) - 2 * (C @ L).T
    return np.maximum(stats.energy + np.einsum("kj,kj->k", fitted, B), 0.0)  # eq. 13


def refine(
    source: Source,
    design: Design,
    stats: Statistics,
    solution: Solution,
    schedule: Refinement | None = None,
    *,
    penalty: str | float = "paper",
    engine: str = "auto",
    report: Callable[[float], None] | None = None,
) -> Refined:
    """Refine a solution: divide faces and update again.

    Parameters
    ----------
    source : Data or Pyramid
        Computes the statistics after each division.
    design, stats, solution
        Where to start: the solution of `solve` or `multistart` for these statistics. The refinement
        keeps its method and rules and, under default rules, its penalty.
    schedule : Refinement
        How many refinements, faces and updates.
    penalty : "paper" or float
        As in `solve`. Under paper rules, "paper" is computed again after each division.
    engine : {"auto", "numpy", "cpu", "jax"}, default="auto"
        Where updates run. "auto" uses the compiled kernels if the starts ran there or there is much
        work, otherwise NumPy; so does "jax", which only makes starts.
    report : callable, optional
        Called with the fraction of the refinements that is done.

    Returns
    -------
    Refined

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> design = ico.Design(cohort.sites, level=1)
    >>> stats = ico.Statistics.from_data(cohort.X.T, design)
    >>> solution = ico.solve(stats, "LE-PNNMF", 3, n_iter=50, random_state=0)
    >>> source = ico.Data(cohort.X.T, cohort.sites)
    >>> refined = ico.refine(source, design, stats, solution, ico.Refinement(steps=2, faces=5))
    >>> refined.design.matrix.shape  # ten faces became forty
    (642, 110)
    """
    schedule = schedule or Refinement()
    schedule.check()
    check_engine(engine)
    method = method_named(solution.method)
    check_penalty(penalty, method.scheme)
    check_problem(stats, method, solution.n_components)
    # Default rules keep λ through divisions; paper rules compute it again unless it is a number.
    if isinstance(penalty, str) and solution.rules != "paper":
        penalty = solution.penalty
    if engine in ("auto", "jax"):
        is_compiled = getattr(solution, "engine", None) == "cpu"
        is_long = is_compiled or needs_compiling(stats, method, solution, schedule)
        engine = "cpu" if is_long else "numpy"

    def problem_of(stats: Statistics) -> Problem:
        return Problem.of(stats, method.scheme, solution.rules, penalty)

    p = problem_of(stats)
    B, C = given_start(p, stats, method, (solution.B, solution.C), None)
    state = begin(p, method.scheme, B, C)
    # Momentum and plain updates are counted once per run. The last plain update is gone, so the
    # next update is plain.
    tau = np.full_like(state.tau, solution.tau)
    state = replace(state, age=solution.n_iter, tau=tau)
    divisions = []
    n_columns = []
    objectives = [solution.objective]
    errors = [solution.errors]
    for step in range(schedule.steps):
        worst = worst_faces(source, design, stats, state, schedule)
        if not len(worst):
            break
        fine = design.divide(worst)
        stats = source.divided(stats, design, fine)
        p = problem_of(stats)
        state = carried(
            p,
            method,
            state,
            design,
            fine,
            schedule.carry,
        )
        design = fine
        chosen = choose_engine(engine, p, method, solution.n_components, schedule.n_iter)
        with one_blas_thread():
            run = chosen.iterate(p, method, state, Course(schedule.n_iter))
        state = run.state
        if run.diverged[0]:
            message = divergence_message(method, solution.rules, int(state.age))
            raise DivergenceError(message)
        divisions.append(solution.n_iter + step * schedule.n_iter)
        n_columns.append(design.n_columns)
        objectives.append(run.objectives[0, 1:])
        errors.append(run.errors[0, 1:])
        if report is not None:
            report((step + 1) / schedule.steps)
    objective = np.concatenate(objectives)
    final = Solution(
        B=state.B[0],
        C=state.C[0],
        objective=objective,
        errors=np.concatenate(errors),
        n_iter=len(objective) - 1,
        converged=solution.converged,
        method=method.name,
        rules=solution.rules,
        penalty=p.penalty,
        tau=float(state.tau[0]),
    )
    exhausted = len(divisions) < schedule.steps
    return Refined(design, stats, final, tuple(divisions), tuple(n_columns), exhausted)


def needs_compiling(
    stats: Statistics,
    method: Method,
    solution: Solution,
    schedule: Refinement,
) -> bool:
    """Whether all updates together are worth the compiled kernels."""
    # Every division of a face adds three; on average half of them are there.
    n_columns = stats.n_columns + 1.5 * schedule.faces * schedule.steps
    share = min(n_columns, stats.n_sites) / stats.n_columns
    p = Problem.of(stats, method.scheme, solution.rules, solution.penalty)
    n_updates = schedule.steps * schedule.n_iter * share
    return worth_compiling(work_of(p, method, solution.n_components, n_updates))


def worst_faces(
    source: Source,
    design: Design,
    stats: Statistics,
    state: State,
    schedule: Refinement,
) -> np.ndarray:
    """Return the positions of the faces to divide: the worst by the indicator that can be."""
    is_coarse = design.faces[:, 0] < source.max_level
    divisible = np.flatnonzero(design.divisible & is_coarse)
    if not len(divisible):
        return divisible
    B, C = state.B[0], state.C[0]
    errors = local_error(
        schedule.indicator,
        stats,
        design,
        B,
        C,
        source,
    )
    order = np.argsort(-errors[divisible], kind="stable")
    return divisible[order[: schedule.faces]]


def carried(
    p: Problem,
    method: Method,
    state: State,
    coarse: Design,
    fine: Design,
    carry: str,
) -> State:
    """Return the state after a division: the children get a share of their parent's row of B."""
    is_child = fine.faces[:, 0] != coarse.faces[fine.parent, 0]
    share = np.ones(fine.n_columns)
    if carry == "quarter":
        share[is_child] = 0.25
    B = state.B[:, fine.parent] * share[:, None]
    C = p.project(B) if method.scheme.projective else state.C
    return replace(begin(p, method.scheme, B, C), tau=state.tau, age=state.age)
