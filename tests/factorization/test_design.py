"""The three kinds of columns, division, masks, hemispheres, and what `Design` refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.problems import COVERING, KINDS, masked_sites
from helpers.refusals import refused
from icofactor.factorization.design import Design
from icofactor.sphere.sites import Sites

MESHES = [("faces", "left"), ("vertices", "left"), ("faces", "both"), ("vertices", "both")]


@st.composite
def divided_designs(draw: st.DrawFn, kind: str = "partition") -> tuple[Design, list[Design]]:
    """A design after random divisions of a randomly masked mesh, and those it came from."""
    on, hemi = draw(st.sampled_from(MESHES))
    sites = Sites.icosphere(2, on=on, hemi=hemi)  # type: ignore[arg-type]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    keep = rng.random(sites.n) < draw(st.sampled_from([0.02, 0.1, 0.5, 1.0]))
    keep[rng.integers(sites.n)] = True
    design = Design(sites.subset(keep), kind, sigma=COVERING[kind], level=draw(st.integers(0, 2)))
    before = []
    for _ in range(draw(st.integers(0, 4))):
        able = np.flatnonzero(design.divisible)
        if not len(able):
            break
        before.append(design)
        design = design.divide(rng.permutation(able)[: rng.integers(1, len(able) + 1)])
    return design, before


# ---------------------------------------------------------------- partition


@settings(max_examples=60, deadline=None)
@given(divided_designs())
def test_partition_rows_hold_a_single_one(designs: tuple[Design, list[Design]]) -> None:
    design, before = designs
    D = design.matrix
    assert (D.data == 1.0).all()
    np.testing.assert_array_equal(np.diff(D.tocsr().indptr), 1)
    np.testing.assert_array_equal(D.indices[np.argsort(D.indices)], np.arange(design.sites.n))
    np.testing.assert_array_equal(D.tocsr().indices, design.site_column)
    np.testing.assert_array_equal(design.counts, np.diff(D.indptr))
    assert (design.counts > 0).all() and design.counts.sum() == design.sites.n
    gram = (D.T @ D).toarray()
    np.testing.assert_array_equal(gram, np.diag(design.counts))
    for k, (level, index) in enumerate(design.faces):
        np.testing.assert_array_equal(
            design.site_column == k, design.sites.face_at(int(level)) == index
        )
    if before:  # columns nest: a parent's column is the sum of those that came from it
        parents = np.zeros((design.n_columns, before[-1].n_columns))
        parents[np.arange(design.n_columns), design.parent] = 1.0
        np.testing.assert_array_equal(D @ parents, before[-1].matrix.toarray())


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(KINDS).flatmap(divided_designs))
def test_division_equals_assembly_from_faces(designs: tuple[Design, list[Design]]) -> None:
    design, _ = designs
    again = Design.from_faces(
        design.sites, design.faces, design.kind, design.level, design.sigma, design.tau
    )
    np.testing.assert_array_equal(again.faces, design.faces)
    np.testing.assert_array_equal(again.site_column, design.site_column)
    np.testing.assert_allclose(again.matrix.toarray(), design.matrix.toarray(), rtol=1e-13, atol=0)
    columns = np.random.default_rng(0).permutation(design.n_columns)[: 1 + design.n_columns // 2]
    np.testing.assert_array_equal(
        design.columns(columns).toarray(), design.matrix.toarray()[:, columns]
    )
    np.testing.assert_array_equal(design.root, design.faces[:, 1] // 4 ** design.faces[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_order_after_a_division(kind: str) -> None:
    design = Design(Sites.icosphere(3, on="faces"), kind, sigma=COVERING[kind])
    finer = design.divide([7, 3])
    stay = [k for k in range(20) if k not in (3, 7)]
    np.testing.assert_array_equal(finer.parent, stay + [7] * 4 + [3] * 4)
    np.testing.assert_array_equal(
        finer.faces[18:], [[1, i] for i in (28, 29, 30, 31, 12, 13, 14, 15)]
    )
    np.testing.assert_array_equal(finer.faces[:18], design.faces[stay])
    np.testing.assert_array_equal(np.unique(finer.site_depth), [0, 1])
    np.testing.assert_array_equal(finer.site_depth == 1, np.isin(design.site_column, [3, 7]))
    assert design.n_columns == 20 and finer.n_columns == 26, (
        "the design that was divided stays as it was"
    )


def test_starting_levels() -> None:
    sites = Sites.icosphere(3, on="faces")
    for level in range(4):
        design = Design(sites, level=level)
        assert design.n_columns == 20 * 4**level
        assert (design.site_depth == 0).all()
        np.testing.assert_array_equal(design.roots.matrix.toarray(), Design(sites).matrix.toarray())
    assert Design(sites, level=1).divide([0]).site_depth.max() == 1, (
        "depth counts from the starting level"
    )


# ---------------------------------------------------------------- exponential and smooth


@pytest.mark.parametrize("on", ["faces", "vertices"])
@pytest.mark.parametrize("hemi", ["left", "both"])
@pytest.mark.parametrize(("sigma", "tau"), [(0.015, 3.0), (0.0692, 3.0), (0.1, 2.0), (0.5, 3.0)])
def test_exponential_columns_by_brute_force(on: str, hemi: str, sigma: float, tau: float) -> None:
    sites = masked_sites(3, on, hemi)
    design = Design(sites, "exponential", sigma=sigma, tau=tau)
    if design.divisible[[0, 5]].all():
        design = design.divide([0, 5])
        design = design.divide([design.n_columns - 1])
    D = design.matrix.toarray()
    for k, (level, index) in enumerate(design.faces):
        centre = sites.face_centres(int(level), int(index))[0]
        across = np.linalg.norm(np.cross(sites.coordinates, centre), axis=1)
        theta = np.arctan2(across, sites.coordinates @ centre)
        scale = np.pi * sigma / 2.0**level  # σ halves per level
        is_near = (theta <= scale * tau) & (
            sites.hemisphere == sites.face_hemisphere(int(level), int(index))[0]
        )
        np.testing.assert_array_equal(D[:, k] > 0, is_near)
        # the arccosine of the formula knows θ to 2e-8 only where θ is near 0
        np.testing.assert_allclose(
            -scale * np.log(D[is_near, k]), theta[is_near], rtol=1e-11, atol=3e-8
        )
        assert is_near.any()
        assert D[D[:, k] > 0, k].min() >= np.exp(-tau) * (1 - 1e-12)


def test_faces_narrower_than_the_mesh_have_no_column() -> None:
    """The paper's σ on the vertices of fsaverage5: at level 3 the columns fall between the sites."""
    design = Design(Sites.icosphere(5), "exponential", level=2)
    assert design.n_columns == 320
    assert not design.divisible.any()
    with refused("positions"):
        design.divide([0, 100])
    with refused("sigma"):
        Design(design.sites, "exponential", level=3)
    faces = Design(Sites.icosphere(4, on="faces"), "exponential", level=4)
    assert faces.n_columns == 20 * 4**4


@pytest.mark.parametrize("hemi", ["left", "both"])
@pytest.mark.parametrize("sigma", [0.015, 0.05, 0.1])
def test_smooth_rows_sum_to_one_where_covered(sigma: float, hemi: str) -> None:
    sites = masked_sites(3, "faces", hemi)
    design = Design(sites, "smooth", sigma=sigma).divide([2, 9])
    sums = np.asarray(design.matrix.sum(axis=1)).ravel()
    raw = np.asarray(
        Design.from_faces(sites, design.faces, "exponential", 0, sigma).matrix.sum(axis=1)
    ).ravel()
    np.testing.assert_array_equal(sums > 0, raw > 0)
    np.testing.assert_allclose(sums[sums > 0], 1.0, rtol=1e-14)
    if sigma == 0.1:
        assert (sums > 0).all()
        np.testing.assert_allclose(design.matrix @ np.full(design.n_columns, 2.5), 2.5, rtol=1e-14)


# ---------------------------------------------------------------- hemispheres and masks


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("on", ["faces", "vertices"])
def test_no_column_crosses_hemispheres(kind: str, on: str) -> None:
    sites = Sites.icosphere(3, on=on, hemi="both")  # type: ignore[arg-type]
    design = Design(sites, kind, sigma=COVERING[kind])
    assert design.n_columns == 40
    design = design.divide([0, 20, 39])
    one_side = Design(Sites.icosphere(3, on=on), kind, sigma=COVERING[kind])  # type: ignore[arg-type]
    np.testing.assert_array_equal(
        Design(sites, kind, sigma=COVERING[kind]).matrix[: one_side.sites.n, :20].toarray(),
        one_side.matrix.toarray(),
    )
    D = design.matrix.tocsc()
    for k, (level, index) in enumerate(design.faces):
        half = sites.face_hemisphere(int(level), int(index))[0]
        rows = D.indices[D.indptr[k] : D.indptr[k + 1]]
        assert (sites.hemisphere[rows] == half).all()
        assert (design.root[k] >= 20) == half
    assert (
        design.counts[design.root < 20].sum()
        == design.counts[design.root >= 20].sum()
        == sites.n // 2
    )


@pytest.mark.parametrize("kind", KINDS)
def test_columns_emptied_by_a_mask_are_dropped(kind: str) -> None:
    sites = Sites.icosphere(3, on="faces")
    gone = np.isin(sites.face_at(0), [4, 5]) | np.isin(sites.face_at(1), [1, 2])
    sigma = {"partition": None, "exponential": 0.015, "smooth": 0.015}[
        kind
    ]  # narrow: 4 and 5 reach no other face
    design = Design(sites.subset(~gone), kind, sigma=sigma)
    np.testing.assert_array_equal(design.faces[:, 1], np.delete(np.arange(20), [4, 5]))
    finer = design.divide([0])
    assert finer.n_columns == design.n_columns - 1 + 2, "two of the four children are empty"
    assert (np.diff(finer.matrix.indptr) > 0).all()
    np.testing.assert_array_equal(finer.faces[-2:], [[1, 0], [1, 3]])


def test_a_face_with_one_site_is_not_divided() -> None:
    sites = Sites.icosphere(3, on="faces")
    keep = np.ones(sites.n, dtype=bool)
    keep[np.flatnonzero(sites.face_at(0) == 6)[1:]] = False
    design = Design(sites.subset(keep))
    assert design.counts[6] == 1
    np.testing.assert_array_equal(design.divisible, np.arange(20) != 6)
    with refused("positions"):
        design.divide([5, 6])
    fine = Design(sites, level=3)
    assert not fine.divisible.any()
    with refused("positions"):
        fine.divide([0])


# ---------------------------------------------------------------- refusals


WRONG_DESIGNS = [
    {"kind": "wavelet"},
    {"level": 4},
    {"level": -1},
    {"level": 1.0},
    {"kind": "smooth", "sigma": 0.0},
    {"kind": "smooth", "sigma": np.nan},
    {"kind": "smooth", "tau": -1.0},
    {"kind": "smooth", "tau": np.inf},
]


@pytest.mark.parametrize("arguments", WRONG_DESIGNS)
def test_wrong_designs(arguments: dict[str, Any]) -> None:
    sites = Sites.icosphere(3, on="faces")
    argument = list(arguments)[-1]
    with refused(argument):
        Design(sites, **arguments)
    with refused(argument):
        Design.from_faces(sites, np.array([[0, 0]]), **arguments)


@pytest.mark.parametrize("faces", [[0, 1, 2], [[4, 0]], [[-1, 0]], [[0, 20]], [[1, -1]]])
def test_wrong_faces(faces: Any) -> None:
    with refused("faces"):
        Design.from_faces(Sites.icosphere(3, on="faces"), faces)


@pytest.mark.parametrize("positions", [[20], [-1, 3], [3, 3], [0.5], np.ones(20, dtype=bool)])
def test_wrong_positions(positions: Any) -> None:
    with refused("positions"):
        Design(Sites.icosphere(3, on="faces")).divide(positions)


def test_sites_that_no_column_reaches() -> None:
    sites = Sites.icosphere(1)
    corners = sites.subset(np.arange(sites.n) < 12)
    with refused("sigma"):
        Design(corners, "exponential")
    with refused("sites"):
        Design(sites.subset(np.zeros(sites.n, dtype=bool)))
