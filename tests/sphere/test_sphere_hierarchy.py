"""The hierarchy's counts, nesting and geometry, and the location of points in it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.marking import slow_but
from helpers.refusals import refused
from icofactor.sphere import locate
from icofactor.sphere.hierarchy import (
    MAX_LEVEL,
    TURN,
    face_centres,
    face_corners,
    icosphere,
    locate_sites,
    n_faces,
    n_nodes,
)

LEVELS = range(MAX_LEVEL + 1)


def random_points(n: int, seed: int = 0) -> np.ndarray:
    points = np.random.default_rng(seed).normal(size=(n, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize("level", LEVELS)
def test_counts_and_closed_surface(level: int) -> None:
    mesh = icosphere(level)
    assert len(mesh.faces) == n_faces(level)
    assert len(mesh.vertices) == n_nodes(level)
    edges = np.sort(mesh.faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1).astype(np.int64)
    _, shared = np.unique(edges[:, 0] * n_nodes(level) + edges[:, 1], return_counts=True)
    assert len(shared) == 30 * 4**level
    assert np.all(shared == 2)
    np.testing.assert_allclose(np.linalg.norm(mesh.vertices, axis=1), 1, rtol=0, atol=1e-14)


@pytest.mark.parametrize("level", range(1, MAX_LEVEL + 1))
def test_vertices_nest_and_children_stand_where_documented(level: int) -> None:
    fine, coarse = icosphere(level), icosphere(level - 1)
    np.testing.assert_array_equal(fine.vertices[: len(coarse.vertices)], coarse.vertices)
    family = fine.faces.reshape(-1, 4, 3)
    assert np.all(family[:, 0] >= len(coarse.vertices))  # the centre child holds no old vertex
    for k in range(3):
        np.testing.assert_array_equal(family[:, 1 + k, k], coarse.faces[:, k])
        assert np.all(np.delete(family[:, 1 + k], k, axis=1) >= len(coarse.vertices))
    middle = coarse.vertices[coarse.faces[:, 0]] + coarse.vertices[coarse.faces[:, 1]]
    middle /= np.linalg.norm(middle, axis=1, keepdims=True)
    np.testing.assert_allclose(fine.vertices[family[:, 0, 0]], middle, rtol=0, atol=1e-15)


def test_icosphere_is_cached_and_read_only() -> None:
    assert icosphere(3) is icosphere(3)
    with pytest.raises(ValueError, match="read-only"):
        icosphere(3).vertices[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        icosphere(3).faces[0] = 0


def test_mixed_levels_and_wrong_indices() -> None:
    mixed = face_centres([0, 3, 0, 7], [19, 4, 0, 327679])
    for row, (level, index) in zip(mixed, [(0, 19), (3, 4), (0, 0), (7, 327679)], strict=True):
        np.testing.assert_array_equal(row, face_centres(level, index)[0])
    assert face_corners([], np.array([], dtype=int)).shape == (0, 3, 3)
    for index in (80, -1):
        with refused("index"):
            face_corners([1], [index])
    for level in (-1, MAX_LEVEL + 1, 2.5):
        with refused("level"):
            icosphere(level)  # type: ignore[arg-type]
    with refused("points"):
        locate(np.zeros((3, 2)), 1)


@pytest.mark.parametrize("level", slow_but(LEVELS, *LEVELS[:-1]))
def test_centres_locate_to_themselves(level: int) -> None:
    centres = face_centres(level, np.arange(n_faces(level)))
    np.testing.assert_array_equal(locate(centres, level), np.arange(n_faces(level)))
    # the turn is small against a face of every level
    np.testing.assert_array_equal(locate_sites(centres, level), np.arange(n_faces(level)))


@pytest.mark.parametrize("level", range(4))
def test_location_agrees_with_containment(level: int) -> None:
    points = random_points(2000)
    a, b, c = np.moveaxis(face_corners(level, np.arange(n_faces(level))), 1, 0)
    sides = [points @ np.cross(*pair).T for pair in ((a, b), (b, c), (c, a))]
    inside = np.min(sides, axis=0) > 0
    np.testing.assert_array_equal(inside.sum(axis=1), 1)
    np.testing.assert_array_equal(locate(points, level), np.argmax(inside, axis=1))


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, MAX_LEVEL), st.floats(1e-3, 1e3))
def test_location_nests_and_ignores_radius(seed: int, level: int, radius: float) -> None:
    points = random_points(50, seed)
    # also points exactly on nodes and on edges, where rounding decides
    points = np.concatenate([points, icosphere(2).vertices[:40]])
    deepest = locate(points, MAX_LEVEL)
    np.testing.assert_array_equal(locate(points, level), deepest >> 2 * (MAX_LEVEL - level))
    np.testing.assert_array_equal(locate(radius * points[:50], level), locate(points[:50], level))


@pytest.mark.slow
def test_turn_is_a_small_rotation_that_frees_every_vertex() -> None:
    np.testing.assert_allclose(TURN @ TURN.T, np.eye(3), rtol=0, atol=1e-15)
    assert np.linalg.det(TURN) > 0
    vertices = icosphere(MAX_LEVEL).vertices
    assert np.abs(vertices @ TURN.T - vertices).max() < 1.01e-3
    # the smallest margin is 9e-9: rounding errors cannot change where a vertex goes
    noise = 1e-12 * np.random.default_rng(0).normal(size=vertices.shape)
    np.testing.assert_array_equal(locate_sites(vertices + noise, 7), locate_sites(vertices, 7))
    # so each face of a mesh's own level gets one vertex or none
    for level in LEVELS:
        n_vertices = np.bincount(locate_sites(icosphere(level).vertices, level))
        assert n_vertices.max() == 1
