"""Local errors, the choice of faces, divisions inside a run, masks, and where refinement ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from helpers.problems import (
    ALL_METHODS,
    COVERING,
    KINDS,
    Small,
    masked_sites,
    positive_data,
    relative,
    small,
)
from helpers.refusals import refused
from icofactor.factorization._multistart import multistart
from icofactor.factorization._refine import Refined, Refinement, local_error, refine
from icofactor.factorization._solve import Solution, solve
from icofactor.factorization.design import Design
from icofactor.factorization.methods import PAPER_METHODS
from icofactor.factorization.sources import Data, Pyramid
from icofactor.factorization.statistics import Statistics
from icofactor.sphere.sites import Sites
from reference import naive


def begun(problem: Small, method: str = "LE-PNNMF", n_iter: int = 30, **settings: Any) -> Solution:
    return solve(problem.stats, method, 3, n_iter=n_iter, random_state=0, **settings)


def refined_from(problem: Small, first: Solution, schedule: Refinement, **settings: Any) -> Refined:
    data = Data(problem.X, problem.design.sites)
    return refine(data, problem.design, problem.stats, first, schedule, **settings)


# ---------------------------------------------------------------- local errors


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["E-DL", "LE-PNNMF", "LE-PPNMF"])
def test_local_errors_equal_the_reference(method: str, kind: str, divided: bool) -> None:
    problem = small(kind, divided=divided)
    X, D, design = problem.X, problem.D, problem.design
    solution = begun(problem, method)
    B, C = solution.B, solution.C
    data = Data(X, design.sites)
    projected = local_error("projected", problem.stats, design, B, C, data)
    assert relative(projected, naive.local_error_projected(X, D, B, C)) < 1e-9
    residual = local_error("residual", problem.stats, design, B, C, data)
    assert (
        relative(residual, naive.local_residual(X, design.site_column, B, C, D, design.n_columns))
        < 1e-9
    )
    assert residual.sum() == pytest.approx(solution.error, rel=1e-9), (
        "every site is in one face: they sum to E"
    )
    if kind == "partition":
        pyramid = Pyramid.from_data(X, design.sites)
        assert (
            relative(
                local_error("residual", pyramid.statistics(design), design, B, C, pyramid), residual
            )
            < 1e-9
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("indicator", ["residual", "projected"])
def test_the_worst_faces_are_divided(indicator: str, kind: str) -> None:
    problem = small(kind)
    first = begun(problem)
    e = local_error(
        indicator,
        problem.stats,
        problem.design,
        first.B,
        first.C,
        Data(problem.X, problem.design.sites),
    )
    worst = np.argsort(-e)[:4]
    refined = refined_from(problem, first, Refinement(1, 4, 0, indicator))
    np.testing.assert_array_equal(refined.design.faces, problem.design.divide(worst).faces)


# ---------------------------------------------------------------- the run through divisions


@dataclass
class ReferenceWalk:
    """A run through divisions under paper rules, from the equations, on the full X."""

    method: str
    X: np.ndarray
    D: np.ndarray
    B: np.ndarray
    C: np.ndarray
    tau: float = naive.TAU_START
    age: int = 0
    y_before: np.ndarray | None = None

    def update(self, n_iter: int) -> list[float]:
        prefix, scheme = naive.split(self.method)
        lam, ones = naive.penalty(self.method, self.X, self.D, "paper"), np.ones(self.D.shape[1])
        errors = []
        for _ in range(n_iter):
            y = naive.plain_B(scheme, self.X, self.D, self.B, self.C, lam, ones, "paper")
            self.B = y
            if prefix and self.age >= naive.N_PLAIN and self.y_before is not None:
                w = (self.tau - 1) / (self.tau + 1)
                self.B = naive.extrapolate(prefix, y, self.y_before, w, scheme != "DL")
                self.tau = naive.next_tau(self.tau)
            self.C = naive.plain_C(scheme, self.X, self.D, self.B, self.C, lam, ones, "paper")
            self.y_before, self.age = y, self.age + 1
            errors.append(naive.scheme_error(scheme, self.X, self.D, self.B, self.C))
        return errors

    def divide(self, design: Design, n_faces: int) -> Design:
        e = naive.local_error_projected(self.X, self.D, self.B, self.C)
        finer = design.divide(np.argsort(-e)[:n_faces])
        new = finer.faces[:, 0] != design.faces[finer.parent, 0]
        self.B = self.B[finer.parent] / np.where(new, 4.0, 1.0)[:, None]
        self.D, self.y_before = (
            finer.matrix.toarray(),
            None,
        )  # the next update is plain; momentum goes on
        if naive.split(self.method)[1] == "PPNMF":
            self.C = self.B.T @ self.D.T @ self.X
        return finer


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["partition", "exponential"])
@pytest.mark.parametrize("method", PAPER_METHODS)
def test_paper_refinement_equals_the_reference(method: str, kind: str) -> None:
    problem = small(kind)
    first = begun(problem, method, n_iter=16, rules="paper")
    start = begun(problem, method, n_iter=0, rules="paper")
    walk = ReferenceWalk(method, problem.X, problem.D, start.B, start.C)
    errors, design = walk.update(16), problem.design
    for _ in range(3):
        design = walk.divide(design, 2)
        errors += walk.update(5)
    refined = refined_from(problem, first, Refinement(3, 2, 5, "projected", "quarter"))
    np.testing.assert_array_equal(refined.design.faces, design.faces)
    np.testing.assert_allclose(refined.solution.errors[1:], errors, rtol=1e-8)
    assert (
        relative(refined.solution.B, walk.B) < 1e-8 and relative(refined.solution.C, walk.C) < 1e-8
    )
    assert refined.solution.tau == pytest.approx(walk.tau, rel=1e-12)
    assert refined.divisions == (16, 21, 26)
    assert refined.solution.penalty == pytest.approx(
        naive.penalty(method, problem.X, walk.D, "paper"), rel=1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_refinement_leaves(kind: str) -> None:
    problem = small(kind)
    fractions: list[float] = []
    first = begun(problem)
    refined = refined_from(problem, first, Refinement(3, 2, 7), report=fractions.append)
    solution = refined.solution
    assert refined.divisions == (30, 37, 44) and not refined.exhausted
    assert fractions == [1 / 3, 2 / 3, 1] and len(refined.n_columns) == 3
    assert refined.n_columns[-1] == refined.design.n_columns == len(solution.B)
    assert solution.n_iter == 30 + 3 * 7 == len(solution.objective) - 1
    np.testing.assert_array_equal(solution.objective[:31], first.objective)
    settings = {"n_iter": 0, "penalty": solution.penalty}
    again = solve(refined.stats, first.method, start=solution, **settings)
    assert again.error == pytest.approx(solution.error, rel=1e-9)
    unrefined = refined_from(problem, first, Refinement(0, 2, 7))
    np.testing.assert_array_equal(unrefined.solution.B, first.B)
    assert unrefined.design is problem.design and unrefined.divisions == ()


@pytest.mark.parametrize("method", ALL_METHODS)
def test_both_sources_give_the_same_refinement(method: str) -> None:
    problem = small()
    first = begun(problem, method)
    schedule = Refinement(3, 3, 5)
    from_data = refined_from(problem, first, schedule)
    from_pyramid = refine(
        Pyramid.from_data(problem.X, problem.design.sites),
        problem.design,
        problem.stats,
        first,
        schedule,
    )
    np.testing.assert_array_equal(from_data.design.faces, from_pyramid.design.faces)
    np.testing.assert_allclose(
        from_data.solution.objective, from_pyramid.solution.objective, rtol=1e-9
    )


@pytest.mark.parametrize("penalty", [0.0, 0.3])
def test_default_rules_keep_the_penalty_they_were_given(penalty: float) -> None:
    problem = small()
    first = begun(problem, penalty=penalty)
    assert refined_from(problem, first, Refinement(2, 2, 3)).solution.penalty == penalty
    assert refined_from(problem, first, Refinement(2, 2, 3), penalty=0.7).solution.penalty == 0.7
    literal = begun(problem, penalty=penalty, rules="paper")
    assert (
        refined_from(problem, literal, Refinement(2, 2, 3), penalty=penalty).solution.penalty
        == penalty
    )


# ---------------------------------------------------------------- what a division does to the fit


@pytest.mark.parametrize("method", ALL_METHODS)
def test_copied_rows_leave_the_fit_of_a_partition_as_it_is(method: str) -> None:
    problem = small(divided=True)
    first = begun(problem, method)
    for faces in (1, 5, 20):
        assert abs(jump(problem, first, faces, "copy")) <= 1e-10
    assert jump(problem, first, 5, "quarter") > 0.1, (
        "the paper's quarter is meant for overlapping columns"
    )


def jump(problem: Small, first: Solution, faces: int, carry: str) -> float:
    """How much E changes right after a division, relative to E before."""
    refined = refined_from(problem, first, Refinement(1, faces, 0, "projected", carry))
    again = solve(
        refined.stats, first.method, start=refined.solution, n_iter=0, penalty=first.penalty
    )
    return again.error / first.error - 1


# ---------------------------------------------------------------- masks and ends


def emptied() -> tuple[np.ndarray, Sites]:
    """Two root faces and half of a third masked away, one root left with one site; zero rows in X besides."""
    sites = Sites.icosphere(2, on="faces")
    root, child = sites.face_at(0), sites.face_at(1)
    keep = ~(np.isin(root, [4, 5]) | np.isin(child, [0, 1]))
    keep[np.flatnonzero(root == 6)[1:]] = False
    unmasked = sites.subset(keep)
    X = positive_data(unmasked.coordinates, 8)
    X[unmasked.face_at(0) == 10] = 0.0  # like a medial wall that was not masked
    return X, unmasked


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ALL_METHODS)
def test_masks_and_zeros_divide_by_nothing(method: str, kind: str) -> None:
    X, sites = emptied()
    with np.errstate(all="raise", under="ignore"):  # squares of what is all but zero may underflow
        design = Design(sites, kind, sigma=COVERING[kind])
        data = Data(X, sites)
        stats = data.statistics(design)
        best = multistart(stats, method, 3, n_starts=3, n_iter=100, random_state=0)
        refined = refine(data, design, stats, best, Refinement(4, 5, 20))
    for factor in (refined.solution.B, refined.solution.C, refined.solution.objective):
        assert np.isfinite(factor).all()
    assert refined.solution.error < best.error < stats.sq_norm
    if kind == "partition":
        assert design.n_columns == 18
        zero = refined.design.root == 10
        assert zero.any() and (abs(refined.solution.B[zero]) < 1e-6).all()


def test_refinement_ends_at_the_pyramids_level() -> None:
    problem = small()
    pyramid = Pyramid.from_data(problem.X, problem.design.sites, level=1)
    refined = refine(pyramid, problem.design, problem.stats, begun(problem), Refinement(50, 5, 1))
    assert (
        refined.exhausted
        and (refined.design.faces[:, 0] <= 1).all()
        and refined.design.n_columns == 80
    )


@pytest.mark.parametrize("kind", KINDS)
def test_refinement_ends_where_nothing_can_be_divided(kind: str) -> None:
    X, sites = emptied()
    design = Design(sites, kind, sigma=COVERING[kind])
    data = Data(X, sites)
    stats = data.statistics(design)
    first = solve(stats, "LE-PNNMF", 3, n_iter=20, random_state=0)
    refined = refine(data, design, stats, first, Refinement(500, 7, 1))
    assert refined.exhausted and len(refined.divisions) < 500
    assert not refined.design.divisible.any()
    assert refined.solution.n_iter == 20 + len(refined.divisions)
    if kind == "partition":
        assert refined.design.n_columns == sites.n == refined.design.counts.sum()
        alone = refined.design.faces[refined.design.root == 6]
        np.testing.assert_array_equal(alone, [[0, 6]], "the face with one site was never divided")


def test_two_hemispheres_are_refined_together() -> None:
    """The noisy one is divided more often."""
    sites = masked_sites(2, "faces", "both")
    right = sites.hemisphere == 1
    X = positive_data(sites.coordinates, 8)
    X[right] += np.random.default_rng(0).random((right.sum(), 8))
    design = Design(sites)
    pyramid = Pyramid.from_data(X, sites)
    stats = pyramid.statistics(design)
    assert design.n_columns == 40 and stats.weights.sum() == pytest.approx(40.0)
    first = solve(stats, "LE-PNNMF", 3, n_iter=100, random_state=0)
    refined = refine(pyramid, design, stats, first, Refinement(5, 4, 10))
    assert (np.diff(refined.solution.objective) <= 1e-12 * stats.sq_norm).all()
    depth = refined.design.site_depth
    assert depth[right].mean() > depth[~right].mean()


def test_constants_survive_the_division_of_smooth_columns() -> None:
    """The smooth columns reproduce constants at every level: copied rows change nothing."""
    sites = masked_sites()
    design = Design(sites, "smooth")
    B, C = np.ones((20, 1)), np.linspace(1.0, 2.0, 5)[None]
    X = np.ones((sites.n, 1)) @ C + 0.1 * np.random.default_rng(0).random((sites.n, 5))
    problem = Small(X, design, Statistics.from_data(X, design))
    first = solve(problem.stats, "PNNMF", start=(B, C), n_iter=0)
    assert abs(jump(problem, first, 5, "copy")) <= 1e-10
    assert jump(problem, first, 5, "quarter") > 1.0


# ---------------------------------------------------------------- refusals


WRONG_SCHEDULES: list[dict[str, Any]] = [
    {"steps": -1},
    {"steps": 1.5},
    {"faces": 0},
    {"n_iter": -1},
    {"n_iter": "ten"},
    {"indicator": "gain"},
    {"carry": "half"},
]


@pytest.mark.parametrize("arguments", WRONG_SCHEDULES)
def test_wrong_schedules(arguments: dict[str, Any]) -> None:
    with refused(f"refinement.{next(iter(arguments))}"):
        refined_from(small(), begun(small(), n_iter=1), Refinement(**arguments))


def test_sources_and_solutions_that_do_not_fit() -> None:
    with refused("start.B"):
        refined_from(small(), begun(small(divided=True), n_iter=1), Refinement(1, 1, 1))
    smooth = small("smooth")
    pyramid = Pyramid.from_data(smooth.X, smooth.design.sites)
    with refused("source"):
        refine(pyramid, smooth.design, smooth.stats, begun(smooth, n_iter=1), Refinement(1, 1, 1))
