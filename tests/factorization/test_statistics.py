"""K, L, ‖X‖² and energies: against dense products, in blocks, in parts, after divisions, from pyramids and files."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.problems import COVERING, KINDS, masked_sites, positive_data, relative, small
from helpers.refusals import refused
from icofactor.factorization.design import Design
from icofactor.factorization.sources import Data, Pyramid, pyramid_level
from icofactor.factorization.statistics import Statistics
from icofactor.sphere.sites import Sites

MESHES = [("faces", "left"), ("vertices", "left"), ("faces", "both"), ("vertices", "both")]
TIGHT = 1e-12


def assert_same(stats: Statistics, expected: Statistics, bound: float = TIGHT) -> None:
    """Equal but for rounding, part by part."""
    assert relative(stats.K.toarray(), expected.K.toarray()) <= bound
    assert relative(stats.L, expected.L) <= bound
    assert relative(stats.root_L, expected.root_L) <= bound
    assert relative(stats.energy, expected.energy) <= bound
    assert relative(stats.sq_norm, expected.sq_norm) <= bound
    assert relative(stats.weights, expected.weights) <= bound
    np.testing.assert_array_equal(stats.counts, expected.counts)
    np.testing.assert_array_equal(stats.faces, expected.faces)
    assert stats.n_sites == expected.n_sites
    assert stats.is_diagonal == expected.is_diagonal


def data_on(design: Design, n_subjects: int = 5) -> np.ndarray:
    return positive_data(design.sites.coordinates, n_subjects)


# ---------------------------------------------------------------- against dense products


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_statistics_are_the_dense_products(kind: str, divided: bool) -> None:
    problem = small(kind, divided=divided)
    X, D, stats = problem.X, problem.D, problem.stats
    assert relative(stats.K.toarray(), D.T @ D) < TIGHT
    assert relative(stats.L, X.T @ D) < TIGHT
    assert relative(stats.root_L, X.T @ problem.root_D) < TIGHT
    assert stats.sq_norm == pytest.approx((X**2).sum(), rel=TIGHT)
    assert stats.is_diagonal == (kind == "partition")
    assert (stats.n_subjects, stats.n_columns, stats.n_sites) == (12, D.shape[1], len(X))
    located = problem.design.site_column
    for k in range(stats.n_columns):
        assert stats.energy[k] == pytest.approx((X[located == k] ** 2).sum(), rel=TIGHT)
        assert stats.counts[k] == (located == k).sum()
    assert stats.weights.sum() == pytest.approx(20.0, rel=TIGHT)


def test_sites_without_a_column_count_in_the_norm_only() -> None:
    """Some children are too narrow for the mesh and have no column; the sites in them belong to none."""
    all_sites = masked_sites(3, "faces", "left", 1.0)
    holed = all_sites.subset(
        ~np.isin(all_sites.face_at(2), [4, 8])
    )  # the centres of two children of face 0
    design = Design(holed, "exponential", sigma=0.015)
    finer = design.divide([0, 1])
    assert (finer.site_column == -1).any() and (
        finer.site_column[design.site_column == 0] >= 0
    ).any()
    X = data_on(finer)
    stats = Statistics.from_data(X, finer)
    assert stats.sq_norm == pytest.approx((X**2).sum(), rel=TIGHT)
    assert stats.energy.sum() == pytest.approx((X[finer.site_column >= 0] ** 2).sum(), rel=TIGHT)
    assert_same(
        Data(X, design.sites).divided(Statistics.from_data(X, design), design, finer), stats
    )


def test_the_penalty_is_measured_on_all_roots() -> None:
    """Also of a design that holds only some of them: the others may have lost their column."""
    problem = small("exponential")
    seventeen = Design.from_faces(
        problem.design.sites, problem.design.faces[3:], "exponential", 0, problem.design.sigma
    )
    assert relative(Statistics.from_data(problem.X, seventeen).root_L, problem.stats.root_L) < TIGHT


# ---------------------------------------------------------------- sums over sites


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_of_parts_add_up(kind: str) -> None:
    problem = small(kind, divided=True)
    X, design = problem.X, problem.design
    half = len(X) // 2
    upper = Statistics.from_data(X[:half], design, slice(0, half))
    assert_same(upper + Statistics.from_data(X[half:], design, slice(half, None)), problem.stats)
    order = np.random.default_rng(0).permutation(len(X))
    thirds = [Statistics.from_data(X[rows], design, rows) for rows in np.array_split(order, 3)]
    assert_same(thirds[0] + thirds[1] + thirds[2], problem.stats)


def test_only_statistics_that_belong_together_add_up() -> None:
    problem = small()
    swapped = Design.from_faces(problem.design.sites, problem.design.faces[::-1])
    for other in (
        small(divided=True).stats,
        Statistics.from_data(problem.X, swapped),
        Statistics.from_data(problem.X[:, :5], problem.design),
    ):
        with refused("other"):
            problem.stats + other


def test_wrong_data() -> None:
    problem = small()
    for X in (np.ones((3, 4)), np.ones(7), problem.X.T):
        with refused("X"):
            Statistics.from_data(X, problem.design)
    with refused("X"):
        Statistics.from_data(problem.X, problem.design, slice(0, 5))
    with refused("X"):
        Statistics.from_data(np.ones((0, 3)), problem.design, slice(0, 0))


# ---------------------------------------------------------------- types


@pytest.mark.parametrize("kind", KINDS)
def test_float32_data_accumulate_in_float64(kind: str) -> None:
    problem = small(kind)
    X32 = (1e3 + problem.X).astype(np.float32)  # a large mean, which float32 sums would lose
    exact = Statistics.from_data(X32.astype(np.float64), problem.design)
    stats = Statistics.from_data(X32, problem.design)
    assert stats.L.dtype == stats.energy.dtype == np.float64
    assert_same(stats, exact)
    D32 = problem.design.matrix.astype(np.float32)
    assert relative((D32.T @ X32).T, exact.L) > 100 * TIGHT, "the check would see float32 sums"
    if kind == "partition":
        assert_same(Pyramid.from_data(X32, problem.design.sites).statistics(problem.design), exact)


# ---------------------------------------------------------------- divisions


def walk(design: Design, rng: np.random.Generator, steps: int) -> Iterator[tuple[Design, Design]]:
    """Pairs (coarse, fine) of successive random divisions."""
    for _ in range(steps):
        able = np.flatnonzero(design.divisible)
        if not len(able):
            return
        finer = design.divide(rng.permutation(able)[: rng.integers(1, 6)])
        yield design, finer
        design = finer


@pytest.mark.parametrize(("on", "hemi"), MESHES)
def test_pyramids_equal_those_computed_again(on: str, hemi: str) -> None:
    sites = masked_sites(3, on, hemi, 0.3)  # some faces are empty, some hold one site
    design = Design(sites)
    X = data_on(design)
    pyramid = Pyramid.from_data(X, sites)
    assert pyramid.max_level == sites.max_level
    stats = pyramid.statistics(design)
    assert_same(stats, Statistics.from_data(X, design))
    for coarse, fine in walk(design, np.random.default_rng(3), 25):
        stats = pyramid.divided(stats, coarse, fine)
        expected = Statistics.from_data(X, fine)
        assert_same(stats, expected)
        assert_same(pyramid.statistics(fine), expected)
    for level in range(4):
        design = Design(sites, level=level)
        assert_same(pyramid.statistics(design), Statistics.from_data(X, design))


def test_sums_of_many_people_cannot_be_changed_through_statistics() -> None:
    """L of a whole level is a view of a pyramid's sums."""
    sites = Sites.named("fsaverage3", hemi="left")
    X, design = np.random.default_rng(0).random((sites.n, 90)), Design(sites, level=1)
    stats = Pyramid.from_data(X, sites, level=2).statistics(design)
    assert_same(stats, Statistics.from_data(X, design))
    with pytest.raises(ValueError, match="read-only"):
        stats.L[0] = 0


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(MESHES),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.05, 0.3, 1.0]),
)
def test_divided_statistics_under_random_masks(
    kind: str, mesh: tuple[str, str], seed: int, share: float
) -> None:
    rng = np.random.default_rng(seed)
    all_sites = masked_sites(2, *mesh, 1.0)
    keep = rng.random(all_sites.n) < share
    keep[rng.integers(all_sites.n)] = True
    sites = all_sites.subset(keep)
    design = Design(sites, kind, sigma=COVERING[kind])
    X = rng.random((sites.n, 3))
    data = Data(X, sites)
    stats = data.statistics(design)
    for coarse, fine in walk(design, rng, 3):
        stats = data.divided(stats, coarse, fine)
        assert_same(stats, Statistics.from_data(X, fine))


def test_shallow_pyramids() -> None:
    sites = masked_sites()
    X = data_on(Design(sites))
    pyramid = Pyramid.from_data(X, sites, level=1)
    design = Design(sites, level=1)
    assert pyramid.max_level == 1
    assert_same(pyramid.statistics(design), Statistics.from_data(X, design))
    for unknown in (Design(sites, level=2), Design(sites, "smooth")):
        with refused("design"):
            pyramid.statistics(unknown)
    for level in (-1, 4):
        with refused("level"):
            Pyramid.from_data(X, sites, level=level)


@pytest.mark.parametrize(
    ("level_of_mesh", "n_subjects", "steps", "expected"),
    [
        (7, 200, 10, 6),
        (7, 5000, 10, 4),
        (7, 5000, 1, 3),
        (7, 10**6, 10, 3),
        (7, 200, 0, 2),
        (3, 10, 10, 3),
    ],
)
def test_a_pyramid_is_as_deep_as_memory_allows(
    level_of_mesh: int, n_subjects: int, steps: int, expected: int
) -> None:
    sites = Sites.icosphere(level_of_mesh, on="faces")
    assert pyramid_level(sites, n_subjects, level=2, steps=steps) == expected
