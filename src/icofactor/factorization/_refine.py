"""Coarse to fine: solve, measure the local error, divide the worst faces, carry the basis over
(method.md §6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from icofactor.checks import OneOf, check_parameters, check_value
from icofactor.errors import DivergenceError
from icofactor.factorization._solve import Course, Solution, divergence_message
from icofactor.factorization.design import Design
from icofactor.factorization.engines import check_engine, choose_engine, work_of, worth_compiling
from icofactor.factorization.methods import Method, method_named
from icofactor.factorization.schemes.base import Problem, check_penalty
from icofactor.factorization.starts import check_problem, given_start
from icofactor.factorization.statistics import Source, Statistics
from icofactor.factorization.update import State, begin
from icofactor.streaming.runners import one_blas_thread

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
    indicator: str, stats: Statistics, design: Design, B: np.ndarray, C: np.ndarray, source: Source
) -> np.ndarray:
    """How badly each active face is fitted: eq. 12 ("projected") or eq. 13 ("residual")."""
    if indicator == "residual" and design.kind != "partition":
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
    check_penalty(penalty, method_named(solution.method).scheme)
    with one_blas_thread():
        return refined_by(source, design, stats, solution, schedule, penalty, engine, report)


def refined_by(
    source: Source,
    design: Design,
    stats: Statistics,
    solution: Solution,
    schedule: Refinement,
    penalty: str | float,
    engine: str,
    report: Callable[[float], None] | None,
) -> Refined:
    """`refine` with parameters that are checked already."""
    method = method_named(solution.method)
    if engine in ("auto", "jax"):
        long = getattr(solution, "engine", None) == "cpu" or is_long(
            stats, method, solution, schedule
        )
        engine = "cpu" if long else "numpy"
    check_problem(stats, method, solution.n_components)
    walk = _Walk(
        source, method, solution.rules, _kept_penalty(solution, penalty), design, stats, engine
    )
    walk.start(solution)
    divisions, n_columns = [], []
    objectives, errors = [solution.objective], [solution.errors]
    exhausted = False
    for step in range(schedule.steps):
        worst = walk.worst(schedule)
        if not len(worst):
            exhausted = True
            break
        walk.divide(worst, schedule.carry)
        new_objectives, new_errors = walk.update(schedule.n_iter)
        divisions.append(solution.n_iter + step * schedule.n_iter)
        n_columns.append(walk.design.n_columns)
        objectives.append(new_objectives)
        errors.append(new_errors)
        if report is not None:
            report((step + 1) / schedule.steps)
    objective, E = np.concatenate(objectives), np.concatenate(errors)
    final = Solution(
        walk.state.B[0],
        walk.state.C[0],
        objective,
        E,
        len(objective) - 1,
        solution.converged,
        method.name,
        solution.rules,
        walk.problem.penalty,
        float(walk.state.tau[0]),
    )
    return Refined(walk.design, walk.stats, final, tuple(divisions), tuple(n_columns), exhausted)


def is_long(stats: Statistics, method: Method, solution: Solution, schedule: Refinement) -> bool:
    """Whether all updates together are worth the compiled kernels; every division of a face adds
    three.
    """
    n_columns = min(
        stats.n_columns + 1.5 * schedule.faces * schedule.steps, stats.n_sites
    )  # half of those at the end
    updates = schedule.steps * schedule.n_iter * n_columns / stats.n_columns
    p = Problem.of(stats, method.scheme, solution.rules, solution.penalty)
    return worth_compiling(work_of(p, method, solution.n_components, updates))


def _kept_penalty(solution: Solution, penalty: str | float) -> str | float:
    """Default rules keep λ through divisions; paper rules compute it again unless it is a number."""
    if not isinstance(penalty, str):
        return penalty
    return penalty if solution.rules == "paper" else solution.penalty


@dataclass
class _Walk:
    """A run that goes on through divisions."""

    source: Source
    method: Method
    rules: str
    penalty: str | float
    design: Design
    stats: Statistics
    engine: str

    def start(self, solution: Solution) -> None:
        self.problem = self._pose()
        B, C = given_start(self.problem, self.stats, self.method, (solution.B, solution.C), None)
        state = begin(self.problem, self.method.scheme, B, C)
        # the ten plain updates and the momentum are counted once per run; y is gone, so the next
        # update is plain
        self.state: State = replace(state, age=solution.n_iter, tau=state.tau * 0 + solution.tau)

    def _pose(self) -> Problem:
        return Problem.of(self.stats, self.method.scheme, self.rules, self.penalty)

    def worst(self, schedule: Refinement) -> np.ndarray:
        """Positions of the faces to divide: the worst by the indicator among those that can be."""
        able = np.flatnonzero(
            self.design.divisible & (self.design.faces[:, 0] < self.source.max_level)
        )
        if not len(able):
            return able
        e = local_error(
            schedule.indicator,
            self.stats,
            self.design,
            self.state.B[0],
            self.state.C[0],
            self.source,
        )
        return able[np.argsort(-e[able], kind="stable")[: schedule.faces]]

    def divide(self, positions: np.ndarray, carry: str) -> None:
        fine = self.design.divide(positions)
        stats = self.source.divided(self.stats, self.design, fine)
        new = fine.faces[:, 0] != self.design.faces[fine.parent, 0]
        share = np.where(new & (carry == "quarter"), 0.25, 1.0)
        B = self.state.B[:, fine.parent] * share[:, None]
        self.design, self.stats = fine, stats
        self.problem = self._pose()
        C = self.problem.project(B) if self.method.scheme.projective else self.state.C
        fresh = begin(self.problem, self.method.scheme, B, C)
        self.state = replace(fresh, tau=self.state.tau, age=self.state.age)

    def update(self, n_iter: int) -> tuple[np.ndarray, np.ndarray]:
        """`n_iter` updates; their objectives and errors."""
        n_components = self.state.B.shape[-1]
        engine = choose_engine(self.engine, self.problem, self.method, n_components, n_iter)
        run = engine.iterate(self.problem, self.method, self.state, Course(n_iter))
        if run.diverged[0]:
            raise DivergenceError(divergence_message(self.method, self.rules, int(run.state.age)))
        self.state = run.state
        return run.objectives[0, 1:], run.errors[0, 1:]
