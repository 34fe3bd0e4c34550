"""Local errors, the choice of faces, divisions inside a run, masks, and where refinement ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

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
from icofactor.errors import ArgumentError
from icofactor.factorization._multistart import multistart
from icofactor.factorization._refine import Refined, Refinement, local_error, refine
from icofactor.factorization._solve import Solution, solve
from icofactor.factorization.design import Design
from icofactor.factorization.methods import PAPER_METHODS
from icofactor.factorization.sources import Data, Pyramid
from icofactor.factorization.statistics import Statistics
from icofactor.sphere.sites import Sites
from reference import naive


def begun(problem: Small, method: str = "LE-PNNMF", n_iter: int = 30, **given: Any) -> Solution:
    return solve(problem.stats, method, 3, n_iter=n_iter, random_state=0, **given)


def refined_from(problem: Small, first: Solution, schedule: Refinement, **given: Any) -> Refined:
    data = Data(problem.X, problem.design.sites)
    return refine(data, problem.design, problem.stats, first, schedule, **given)


# ---------------------------------------------------------------- local errors


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["E-DL", "LE-PNNMF", "LE-PPNMF"])
def test_local_errors_equal_the_reference(method: str, kind: str, divided: bool) -> None:
    problem = small(kind, divided=divided)
    X, D, design = problem.X, problem.D, problem.design
    found = begun(problem, method)
    B, C = found.B, found.C
    data = Data(X, design.sites)
    projected = local_error("projected", problem.stats, design, B, C, data)
    assert relative(projected, naive.local_error_projected(X, D, B, C)) < 1e-9
    residual = local_error("residual", problem.stats, design, B, C, data)
    assert (
        relative(residual, naive.local_residual(X, design.site_column, B, C, D, design.n_columns))
        < 1e-9
    )
    assert residual.sum() == pytest.approx(found.error, rel=1e-9), (
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


def test_residuals_are_never_negative() -> None:
    """Data that the columns reproduce exactly: rounding must not make a face negative."""
    problem = small()
    B, C = np.random.default_rng(0).random((20, 3)), np.random.default_rng(1).random((3, 12))
    X = problem.D @ B @ C
    stats = Statistics.from_data(X, problem.design)
    residual = local_error("residual", stats, problem.design, B, C, Data(X, problem.design.sites))
    assert (residual >= 0).all() and residual.max() < 1e-12 * stats.sq_norm


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
    found = refined_from(problem, first, Refinement(1, 4, 0, indicator))
    np.testing.assert_array_equal(found.design.faces, problem.design.divide(worst).faces)


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
    found = refined_from(problem, first, Refinement(3, 2, 5, "projected", "quarter"))
    np.testing.assert_array_equal(found.design.faces, design.faces)
    np.testing.assert_allclose(found.solution.errors[1:], errors, rtol=1e-8)
    assert relative(found.solution.B, walk.B) < 1e-8 and relative(found.solution.C, walk.C) < 1e-8
    assert found.solution.tau == pytest.approx(walk.tau, rel=1e-12)
    assert found.divisions == (16, 21, 26)
    assert found.solution.penalty == pytest.approx(
        naive.penalty(method, problem.X, walk.D, "paper"), rel=1e-12
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_refinement_leaves(kind: str) -> None:
    problem, told = small(kind), []
    first = begun(problem)
    found = refined_from(problem, first, Refinement(3, 2, 7), report=told.append)
    assert found.divisions == (30, 37, 44) and not found.exhausted
    assert told == [1 / 3, 2 / 3, 1] and len(found.n_columns) == 3
    assert found.n_columns[-1] == found.design.n_columns == found.solution.B.shape[0]
    assert found.solution.n_iter == 30 + 3 * 7 == len(found.solution.objective) - 1
    np.testing.assert_array_equal(found.solution.objective[:31], first.objective)
    assert (found.solution.method, found.solution.rules) == (first.method, first.rules)
    at_end = solve(
        found.stats, first.method, start=found.solution, n_iter=0, penalty=found.solution.penalty
    )
    assert at_end.error == pytest.approx(found.solution.error, rel=1e-9)
    nothing = refined_from(problem, first, Refinement(0, 2, 7))
    np.testing.assert_array_equal(nothing.solution.B, first.B)
    assert nothing.design is problem.design and nothing.divisions == ()


@pytest.mark.parametrize("method", ALL_METHODS)
def test_both_sources_give_the_same_refinement(method: str) -> None:
    problem = small()
    first = begun(problem, method)
    schedule = Refinement(3, 3, 5)
    one = refined_from(problem, first, schedule)
    other = refine(
        Pyramid.from_data(problem.X, problem.design.sites),
        problem.design,
        problem.stats,
        first,
        schedule,
    )
    np.testing.assert_array_equal(one.design.faces, other.design.faces)
    np.testing.assert_allclose(one.solution.objective, other.solution.objective, rtol=1e-9)


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


def test_the_papers_schedule() -> None:
    assert Refinement.paper() == Refinement(10, 5, 10, "projected", "quarter")


def test_refinement_lowers_the_error_of_partitions_steadily() -> None:
    problem = small()
    found = refined_from(problem, begun(problem), Refinement(10, 5, 10))
    errors = found.solution.errors[[*found.divisions, -1]]
    assert (np.diff(errors) < 0).all()


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
    found = refined_from(problem, first, Refinement(1, faces, 0, "projected", carry))
    again = solve(found.stats, first.method, start=found.solution, n_iter=0, penalty=first.penalty)
    return again.error / first.error - 1


@dataclass(frozen=True)
class Overlap:
    """How far the paper's approximations are from exact at one σ."""

    quarter: float
    """Relative change of E right after dividing five faces, rows of B divided by four."""
    copy: float
    """The same with rows copied."""
    rank: float
    """Rank correlation of e_k (eq. 12) with the true residual of the face's sites (eq. 13)."""


def measure_overlap(X: np.ndarray, sites: Sites, sigma: float, n_components: int) -> Overlap:
    design = Design(sites, "exponential", sigma=sigma)
    data = Data(X, sites)
    problem = Small(X, design, data.statistics(design))
    first = solve(problem.stats, "LE-PNNMF", n_components, n_iter=300, random_state=0)
    e, r = (
        local_error(i, problem.stats, design, first.B, first.C, data)
        for i in ("projected", "residual")
    )
    rank = float(spearmanr(e, r).statistic)
    return Overlap(jump(problem, first, 5, "quarter"), jump(problem, first, 5, "copy"), rank)


def test_the_papers_approximations_worsen_with_overlap(
    real_X: np.ndarray, left_faces: Sites
) -> None:
    """Quarter rows: E jumps by under 1 % where columns hardly cover the sphere, by more than 30 % where they do."""
    narrow, covering, wide = (
        measure_overlap(real_X, left_faces, sigma, 10) for sigma in (0.015, 0.0692, 0.1)
    )
    assert 0 < narrow.quarter < 0.01
    assert 0.3 < covering.quarter < wide.quarter
    for found in (narrow, covering, wide):
        assert abs(found.copy) < found.quarter / 2, (
            "copied rows are nearer to exact at every overlap"
        )
        assert abs(found.rank) < 0.6, "eq. 12 does not see what the columns cannot resolve"


@pytest.mark.parametrize(("carry", "bound"), [("copy", 1e-10), ("quarter", np.inf)])
def test_constants_survive_the_division_of_smooth_columns(carry: str, bound: float) -> None:
    """The smooth columns reproduce constants at every level, so copied rows of a constant map change nothing."""
    sites = masked_sites()
    design = Design(sites, "smooth")
    B, C = np.ones((20, 1)), np.linspace(1.0, 2.0, 5)[None]
    X = np.ones((sites.n, 1)) @ C + 0.1 * np.random.default_rng(0).random((sites.n, 5))
    problem = Small(X, design, Statistics.from_data(X, design))
    first = solve(problem.stats, "PNNMF", start=(B, C), n_iter=0)
    assert abs(jump(problem, first, 5, carry)) <= bound
    if carry == "quarter":
        assert jump(problem, first, 5, carry) > 1.0


# ---------------------------------------------------------------- masks and ends


def emptied() -> tuple[np.ndarray, Sites]:
    """Two root faces and half of a third masked away, one root left with one site; zero rows in X besides."""
    sites = Sites.icosphere(2, on="faces")
    root, child = sites.face_at(0), sites.face_at(1)
    keep = ~(np.isin(root, [4, 5]) | np.isin(child, [0, 1]))
    keep[np.flatnonzero(root == 6)[1:]] = False
    kept = sites.subset(keep)
    X = positive_data(kept.coordinates, 8)
    X[kept.face_at(0) == 10] = 0.0  # like a medial wall that was not masked
    return X, kept


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ALL_METHODS)
def test_masks_and_zeros_divide_by_nothing(method: str, kind: str) -> None:
    X, sites = emptied()
    with np.errstate(all="raise", under="ignore"):  # squares of what is all but zero may underflow
        design = Design(sites, kind, sigma=COVERING[kind])
        data = Data(X, sites)
        stats = data.statistics(design)
        found = multistart(stats, method, 3, n_starts=3, n_iter=100, random_state=0)
        refined = refine(data, design, stats, found, Refinement(4, 5, 20))
    for factor in (refined.solution.B, refined.solution.C, refined.solution.objective):
        assert np.isfinite(factor).all()
    assert refined.solution.error < found.error < stats.sq_norm
    if kind == "partition":
        assert design.n_columns == 18
        zero = refined.design.root == 10
        assert zero.any() and (abs(refined.solution.B[zero]) < 1e-6).all()


@pytest.mark.parametrize("kind", KINDS)
def test_refinement_ends_where_nothing_can_be_divided(kind: str) -> None:
    X, sites = emptied()
    design = Design(sites, kind, sigma=COVERING[kind])
    data = Data(X, sites)
    stats = data.statistics(design)
    first = solve(stats, "LE-PNNMF", 3, n_iter=20, random_state=0)
    found = refine(data, design, stats, first, Refinement(500, 7, 1))
    assert found.exhausted and len(found.divisions) < 500
    assert not found.design.divisible.any()
    assert len(found.n_columns) == len(found.divisions)
    assert found.solution.n_iter == 20 + len(found.divisions)
    if kind == "partition":
        assert found.design.n_columns == sites.n == found.design.counts.sum()
        alone = found.design.faces[found.design.root == 6]
        np.testing.assert_array_equal(alone, [[0, 6]], "the face with one site was never divided")
    again = refine(data, found.design, found.stats, found.solution, Refinement(3, 7, 1))
    assert again.exhausted and again.divisions == ()


def test_refinement_ends_at_the_pyramids_level() -> None:
    problem = small()
    pyramid = Pyramid.from_data(problem.X, problem.design.sites, level=1)
    found = refine(pyramid, problem.design, problem.stats, begun(problem), Refinement(50, 5, 1))
    assert (
        found.exhausted and (found.design.faces[:, 0] <= 1).all() and found.design.n_columns == 80
    )


def test_two_hemispheres_are_refined_together() -> None:
    sites = masked_sites(2, "faces", "both")
    X = positive_data(sites.coordinates, 8)
    X[sites.hemisphere == 1] += np.random.default_rng(0).random(
        (int((sites.hemisphere == 1).sum()), 8)
    )
    design, pyramid = Design(sites), Pyramid.from_data(X, sites)
    stats = pyramid.statistics(design)
    assert design.n_columns == 40 and stats.weights.sum() == pytest.approx(40.0)
    first = solve(stats, "LE-PNNMF", 3, n_iter=100, random_state=0)
    found = refine(pyramid, design, stats, first, Refinement(5, 4, 10))
    assert (np.diff(found.solution.objective) <= 1e-12 * stats.sq_norm).all()
    noisy = found.design.root >= 20
    assert (
        found.design.site_depth[sites.hemisphere == 1].mean()
        > found.design.site_depth[sites.hemisphere == 0].mean()
    )
    assert noisy.sum() > (~noisy).sum()


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": -1}, "refinement.steps must be a whole number ≥ 0; found -1"),
        ({"steps": 1.5}, "refinement.steps must be a whole number ≥ 0; found 1.5"),
        ({"faces": 0}, "refinement.faces must be a whole number ≥ 1; found 0"),
        ({"n_iter": -1}, "refinement.n_iter must be a whole number ≥ 0; found -1"),
        ({"n_iter": "ten"}, "refinement.n_iter must be a whole number ≥ 0; found 'ten'"),
        ({"indicator": "gain"}, "refinement.indicator must be one of .*; found 'gain'"),
        ({"carry": "half"}, "refinement.carry must be one of .*; found 'half'"),
    ],
)
def test_wrong_schedules(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as refused:
        refined_from(small(), begun(small(), n_iter=1), Refinement(**arguments))
    assert [refused.value.argument, refused.value.found] == [
        f"refinement.{next(iter(arguments))}",
        *arguments.values(),
    ]


def test_a_solution_of_another_design() -> None:
    with pytest.raises(ValueError, match=r"start\.B must be of shape"):
        refined_from(small(), begun(small(divided=True), n_iter=1), Refinement(1, 1, 1))


def test_overlapping_columns_need_the_data() -> None:
    problem = small("smooth")
    pyramid = Pyramid.from_data(problem.X, problem.design.sites)
    with pytest.raises(ValueError, match="A pyramid contains only sums of X"):
        refine(
            pyramid, problem.design, problem.stats, begun(problem, n_iter=1), Refinement(1, 1, 1)
        )
