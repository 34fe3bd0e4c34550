"""Recovering the hierarchy from the topology of a mesh in any order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from helpers.refusals import refused
from icofactor.sphere import recognise
from icofactor.sphere.hierarchy import icosphere
from icofactor.sphere.recognise import IcosahedralMatch
from icofactor.sphere.standard import freesurfer_mesh


def scramble(level: int, seed: int, flip: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Faces of an icosphere in random order and orientation; the true vertex and face maps."""
    rng = np.random.default_rng(seed)
    mesh = icosphere(level)
    vertex, face = rng.permutation(len(mesh.vertices)), rng.permutation(len(mesh.faces))
    triangles = np.argsort(vertex)[mesh.faces[face]]
    triangles = rng.permuted(triangles, axis=1) if flip else triangles
    return triangles, vertex, face


def assert_isomorphism(match: IcosahedralMatch | None, triangles: np.ndarray, level: int) -> None:
    assert match is not None
    assert match.level == level
    np.testing.assert_array_equal(
        np.sort(match.vertex_to_canonical), np.arange(len(match.vertex_to_canonical))
    )
    np.testing.assert_array_equal(np.sort(match.face_to_quadtree), np.arange(len(triangles)))
    mapped = np.sort(match.vertex_to_canonical[triangles], axis=1)
    np.testing.assert_array_equal(
        mapped, np.sort(icosphere(level).faces[match.face_to_quadtree], axis=1)
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 3), st.integers(0, 2**32 - 1), st.booleans(), st.floats(0.5, 200))
def test_scrambled_meshes_are_recovered(level: int, seed: int, flip: bool, radius: float) -> None:
    triangles, vertex, face = scramble(level, seed, flip)
    match = recognise(triangles, coordinates=radius * icosphere(level).vertices[vertex])
    assert_isomorphism(match, triangles, level)
    assert match is not None
    np.testing.assert_array_equal(match.vertex_to_canonical, vertex)
    np.testing.assert_array_equal(match.face_to_quadtree, face)
    assert_isomorphism(recognise(triangles), triangles, level)


@pytest.mark.slow
@pytest.mark.parametrize("level", [4, 5, 6, 7])
def test_large_scrambled_meshes(level: int) -> None:
    triangles, vertex, face = scramble(level, seed=level)
    match = recognise(triangles, coordinates=icosphere(level).vertices[vertex])
    assert match is not None
    np.testing.assert_array_equal(match.vertex_to_canonical, vertex)
    np.testing.assert_array_equal(match.face_to_quadtree, face)


def test_topology_alone_keeps_fsaverage_where_it_is() -> None:
    match = recognise(freesurfer_mesh(5).faces)
    assert match is not None
    np.testing.assert_array_equal(match.vertex_to_canonical, np.arange(10242))


def test_topology_alone_keeps_orientation_and_is_deterministic() -> None:
    triangles, _, _ = scramble(3, seed=5, flip=False)
    match, again = recognise(triangles), recognise(triangles)
    assert match is not None
    assert again is not None
    np.testing.assert_array_equal(match.vertex_to_canonical, again.vertex_to_canonical)
    corners = icosphere(3).vertices[match.vertex_to_canonical][triangles]
    assert np.linalg.det(corners).min() > 0


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_coordinates_choose_the_nearest_symmetry(seed: int, mirror: bool) -> None:
    triangles, vertex, _ = scramble(2, seed)
    turn = Rotation.random(rng=np.random.default_rng(seed)).as_matrix()
    points = icosphere(2).vertices[vertex] @ turn.T
    points = points * [-1, 1, 1] if mirror else points
    match = recognise(triangles, coordinates=points)
    assert_isomorphism(match, triangles, 2)
    assert match is not None
    nodes = icosphere(2).vertices[match.vertex_to_canonical]
    rotation, error = Rotation.align_vectors(points, nodes)
    assert error < 1e-6  # a proper rotation fits, also for a mirrored mesh
    # rotations of the icosahedron leave no direction further than 44.5 degrees away
    assert np.rad2deg(rotation.magnitude()) < 44.5


def test_mesh_with_a_turned_cap_is_not_icosahedral() -> None:
    """All valences are right, yet the cap around vertex 0 is turned by one edge."""
    mesh = icosphere(1)
    cap = np.flatnonzero(mesh.vertices[mesh.faces].mean(axis=1)[:, 2] > 0.6)
    caps_faces = mesh.faces[cap]
    edges = np.sort(caps_faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    border, shared = np.unique(edges, axis=0, return_counts=True)
    ring = np.unique(border[shared == 1])
    ring = ring[np.argsort(np.arctan2(*mesh.vertices[ring, :2].T))]
    partner = np.arange(42)
    partner[ring] = np.roll(ring, 1)
    triangles = mesh.faces.copy()
    triangles[cap] = partner[caps_faces]
    valence = np.bincount(triangles.ravel())
    assert sorted(valence) == [5] * 12 + [6] * 30
    assert recognise(triangles) is None
    triangles[cap] = partner[partner[caps_faces]]  # two edges: an icosahedral mesh again
    assert_isomorphism(recognise(triangles), triangles, 1)


def test_other_polyhedra_open_and_broken_meshes() -> None:
    faces = np.array(icosphere(2).faces)
    assert recognise(faces[:-1]) is None  # a hole
    assert recognise(faces, n_vertices=163) is None  # a vertex of no face
    assert recognise(faces[:80]) is None
    octahedron = np.array(
        [[0, 1, 2], [0, 2, 3], [0, 3, 4], [0, 4, 1], [5, 2, 1], [5, 3, 2], [5, 4, 3], [5, 1, 4]]
    )
    assert recognise(octahedron) is None
    twice = faces.copy()
    twice[1] = twice[0]  # one face twice, another missing
    assert recognise(twice) is None
    bent = faces.copy()
    bent[0, 0], bent[200, 1] = bent[200, 1], bent[0, 0]
    assert recognise(bent) is None
    rng = np.random.default_rng(0)
    for _ in range(20):  # right counts and valences, no surface at all
        assert recognise(rng.permutation(faces.ravel()).reshape(-1, 3)) is None
    degenerate = np.repeat(np.arange(12), 5).reshape(-1, 3)
    assert recognise(degenerate) is None


@pytest.mark.parametrize(
    ("faces", "n_vertices"),
    [
        (np.zeros((4, 4), int), None),
        (np.zeros((0, 3), int), None),
        (np.zeros((20, 3)), None),
        (-np.ones((20, 3), int), None),
        (np.full((20, 3), 12), 12),
    ],
)
def test_impossible_input(faces: np.ndarray, n_vertices: int | None) -> None:
    with refused("faces"):
        recognise(faces, n_vertices)
