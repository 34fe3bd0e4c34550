"""Parts: hard starts against a naive k-means of the equations, steps against the objective itself, recurrence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import icofactor as ico
from icofactor.factorization.methods import METHODS
from icofactor.factorization.recurrence import recurrence
from icofactor.factorization.schemes import Problem, base
from icofactor.factorization.schemes.base import terms_of
from icofactor.factorization.schemes.parts import SOFTNESS, hard_parts, soften
from icofactor.factorization.schemes.projective import descend
from icofactor.factorization.starts import draw_starts, seeds_of, stream
from icofactor.factorization.update import advance, begin

SITES = ico.Sites.named("fsaverage3")


def deviations(seed: int = 0, n_subjects: int = 12, n_parts: int = 4) -> np.ndarray:
    """Sites × subjects: a few disjoint regions that vary, and noise; the mean over subjects taken out."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_parts, 3))
    region = (SITES.coordinates @ centres.T).argmax(axis=1)
    X = rng.standard_normal((n_parts, n_subjects))[region] + 0.3 * rng.standard_normal(
        (SITES.n, n_subjects)
    )
    return X - X.mean(axis=1, keepdims=True)


def naive_objective(X: np.ndarray, W: np.ndarray) -> float:
    """‖X − WWᵀX‖², written out."""
    return float(np.square(X - W @ (W.T @ X)).sum())


def naive_hard_parts(profiles: np.ndarray, first: list[int], sweeps: int) -> np.ndarray:
    """Weighted spherical k-means, one face and one part at a time: the part of each face."""
    centres = [profiles[k] / np.linalg.norm(profiles[k]) for k in first]
    parts = [-1] * len(profiles)
    for _ in range(sweeps):
        fits = [[max(0.0, float(c @ y)) for c in centres] for y in profiles]
        new = [int(np.argmax(f)) for f in fits]
        if new == parts:
            break
        parts = new
        for j in range(len(centres)):
            total = sum(
                (fits[k][j] * profiles[k] for k in range(len(profiles)) if parts[k] == j),
                0.0 * profiles[0],
            )
            centres[j] = total / np.linalg.norm(total)
    return np.array(parts)


def naive_seeds(profiles: np.ndarray, draws: np.ndarray) -> list[int]:
    """k-means++ on ‖y‖²(1 − cos₊²), one draw at a time."""
    remaining = [float(y @ y) for y in profiles]
    picked: list[int] = []
    for u in draws:
        threshold = u * sum(remaining)
        k, total = 0, remaining[0]
        while total <= threshold and k < len(remaining) - 1:
            k += 1
            total += remaining[k]
        picked.append(k)
        c = profiles[k] / np.linalg.norm(profiles[k])
        remaining = [
            min(old, float(y @ y) - max(0.0, float(c @ y)) ** 2)
            for old, y in zip(remaining, profiles, strict=True)
        ]
    return picked


@pytest.mark.parametrize("seed", range(5))
def test_hard_starts_are_those_of_a_naive_kmeans(seed: int) -> None:
    profiles = np.random.default_rng(seed).standard_normal((40, 7))
    draws = np.random.default_rng(100 + seed).random((3, 4))
    _, parts = hard_parts(profiles, draws, sweeps=50)
    for start in range(3):
        expected = naive_hard_parts(profiles, naive_seeds(profiles, draws[start]), 50)
        np.testing.assert_array_equal(parts[start], expected)


def test_an_empty_part_begins_again() -> None:
    profiles = np.repeat(np.eye(3), [5, 5, 1], axis=0)
    profiles[10] *= 1e-3
    _, parts = hard_parts(profiles, np.array([[0.0, 0.0, 0.0]]))
    assert len(np.unique(parts)) == 3


def test_softened_parts_overlap_a_little() -> None:
    fit, parts = hard_parts(
        np.random.default_rng(0).standard_normal((30, 6)), np.random.default_rng(1).random((2, 3))
    )
    maps = soften(fit, parts)
    np.testing.assert_allclose(np.linalg.norm(maps, axis=1), 1.0)
    for start in range(2):
        for j in range(3):
            mine = parts[start] == j
            ratio = maps[start, :, j] / np.where(fit[start, j] > 0, fit[start, j], 1.0)
            assert np.ptp(ratio[mine & (fit[start, j] > 0)]) < 1e-12
            outside = ratio[~mine & (fit[start, j] > 0)]
            np.testing.assert_allclose(outside, SOFTNESS * ratio[mine].max(), rtol=1e-12)


@pytest.mark.parametrize("kind", ["partition", "smooth"])
@pytest.mark.parametrize("shift", [0.0, 10.0])
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), spread=st.floats(0.01, 100.0))
def test_a_step_never_raises_the_objective(
    kind: str, shift: float, seed: int, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    X = deviations(seed) + shift
    design = ico.Design(SITES, kind, level=1, sigma=0.1 if kind == "smooth" else None)
    stats = ico.Statistics.from_data(X, design)
    p = Problem.of(stats, METHODS["parts"].scheme)
    B = np.abs(rng.standard_normal((2, stats.n_columns, 3))) * spread / np.sqrt(SITES.n)
    C = p.project(B)
    new = descend(p, B, C, terms_of(p, B, C))
    assert (new >= 0).all()
    D = design.matrix.toarray()
    for before, after in zip(B, new, strict=True):
        old = naive_objective(X, D @ before)
        assert naive_objective(X, D @ after) <= old * (1 + 1e-12)


@pytest.mark.parametrize("method", ["parts", "PPNMF", "E-PPNMF", "LE-PPNMF"])
@pytest.mark.parametrize("shift", [0.0, 10.0])
def test_updates_never_raise_the_objective(method: str, shift: float) -> None:
    stats = ico.Statistics.from_data(deviations(3) + shift, ico.Design(SITES, level=1))
    for seed in range(3):
        solution = ico.solve(stats, method, 4, n_iter=150, random_state=seed)
        assert (np.diff(solution.objective) <= 1e-12 * stats.sq_norm).all()


def test_parts_reach_what_a_naive_descent_reaches() -> None:
    """The objective on the full X by projected gradient steps of a fixed small length, from the same start."""
    X = deviations(1)
    design = ico.Design(SITES, level=1)
    stats = ico.Statistics.from_data(X, design)
    start = ico.solve(stats, "parts", 4, n_iter=0, random_state=0)
    solution = ico.solve(stats, "parts", 4, start=start, n_iter=300)
    D, B = design.matrix.toarray(), np.array(start.B)
    sizes = D.sum(axis=0)[:, None]
    step = 0.1 / np.linalg.norm(X, 2) ** 2
    for _ in range(6000):
        W = D @ B
        C = W.T @ X
        residual = X - W @ C
        # d/dB of ‖X − WWᵀX‖² with W = DB
        gradient = -2 * D.T @ (residual @ C.T + X @ (residual.T @ W))
        B = np.maximum(B - step * gradient / sizes, 0.0)
    assert naive_objective(X, D @ solution.B) == pytest.approx(solution.error, rel=1e-10)
    assert solution.error <= naive_objective(X, D @ B) * (1 + 1e-6)
    assert solution.error == pytest.approx(naive_objective(X, D @ B), rel=1e-4)
    match = ico.match_components((D @ solution.B).T, (D @ B).T)
    assert match.similarity.min() > 0.999


@pytest.mark.parametrize("method", ["parts", "PPNMF", "E-PPNMF", "LE-PPNMF"])
def test_more_people_than_faces_are_left_out_exactly(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root of M that replaces L has negative entries, where rules that multiply must not see any."""
    monkeypatch.setattr(base, "SUBJECTS_PER_BLOCK", 16)
    X = deviations(n_subjects=50) + (0 if method == "parts" else 5)
    stats, scheme = ico.Statistics.from_data(X, ico.Design(SITES, level=0)), METHODS[method].scheme
    problem = Problem.of(stats, scheme)
    assert (
        scheme.compactable(problem)
        and (problem.compact().L < 0).any()
        and len(problem.compact().L) == 20
    )
    best = ico.multistart(stats, method, 3, n_starts=1, n_iter=200, engine="numpy", random_state=0)
    B, C = scheme.draw(problem, 3, stream(seeds_of(0), 0))
    state = begin(problem, scheme, *scheme.settle(problem, B[None], C[None]))
    for _ in range(200):
        state = advance(problem, METHODS[method], state)
    np.testing.assert_allclose(best.B, state.B[0], rtol=0, atol=1e-10 * state.B.max())
    np.testing.assert_allclose(best.C, state.C[0], rtol=0, atol=1e-10 * abs(state.C).max())


def test_recurrence_counts_components_that_come_back() -> None:
    rng = np.random.default_rng(0)
    best, weights = rng.random((50, 3)), rng.integers(1, 9, 50).astype(float)
    shuffled = best[:, [2, 0, 1]].copy()
    shuffled[:, 1] = rng.random(50)  # what stood for component 0
    bases = np.stack(
        [best, best + 1e-3 * rng.random((50, 3)), shuffled, shuffled, rng.random((50, 3))]
    )
    share, n_near = recurrence(bases, np.array([1.0, 1.0001, 1.0002, 1.0003, 2.0]), weights)
    assert n_near == 3
    np.testing.assert_allclose(share, [1 / 3, 1.0, 1.0])


def test_recurrence_says_when_it_cannot_judge() -> None:
    bases, weights = np.random.default_rng(0).random((4, 20, 2)), np.ones(20)
    share, n_near = recurrence(bases, np.array([1.0, 1.0001, 1.0001, 3.0]), weights)
    assert n_near == 2 and np.isnan(share).all()


def test_dead_components_stay_finite() -> None:
    stats = ico.Statistics.from_data(deviations(0), ico.Design(SITES, level=1))
    B = np.abs(np.random.default_rng(0).standard_normal((stats.n_columns, 3)))
    B[:, 1] = 0.0
    solution = ico.solve(stats, "parts", start=(B, None), n_iter=5)
    assert np.isfinite(solution.B).all() and np.isfinite(solution.objective).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hemisphere", "variability"), [("left", 0.008), ("left", 0.165), ("both", 0.165)]
)
def test_the_truth_is_found_from_every_seed(hemisphere: Any, variability: float) -> None:
    """Also where people vary as little as in real thickness."""
    cohort = ico.simulate_cohort(hemisphere=hemisphere, random_state=0, variability=variability)
    assert cohort.truth is not None
    for seed in (0, 1):
        model = ico.CorticalFactorization(10, random_state=seed).fit(cohort)
        match = ico.match_components(model, cohort.truth.components)
        correlations = np.corrcoef(model.loadings_.T, cohort.truth.loadings.T)[:10, 10:]
        assert match.mean >= 0.97
        assert correlations[match.a, match.b].mean() >= 0.95


def test_the_best_of_hard_starts_are_drawn_like_all_of_them() -> None:
    """In float32: the partitions that explain most, in their order."""
    method = METHODS["parts"]
    stats = ico.Statistics.from_data(deviations(), ico.Design(SITES, level=1))
    p = Problem.of(stats, method.scheme)
    starts = [draw_starts(p, method, 3, seeds_of(0), range(12), n)[0] for n in (None, 4)]
    profiles = (p.L / np.sqrt(p.row_sums)).T
    draws = np.stack([stream(seeds_of(0), number).random(3) for number in range(12)])
    explained = np.square(hard_parts(profiles, draws)[0].max(axis=1)).sum(axis=1)
    best = np.sort(np.argsort(-explained, kind="stable")[:4])
    np.testing.assert_allclose(starts[1], starts[0][best], atol=1e-5 * starts[0].max())
