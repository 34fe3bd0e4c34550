"""The icosahedral hierarchy: 20·4ⁿ spherical triangles at level n, each divided into four.

Quadtree numbering: the children of face i are 4i..4i+3, so its parent is i // 4. Child 0 is the
centre, child 1 + k the one at the parent's corner k. A parent with corners (p0, p1, p2) and edge
midpoints m01, m12, m20 (normalised) has the children

    0: (m01, m12, m20)    1: (p0, m01, m20)    2: (m01, p1, m12)    3: (m20, m12, p2)

seen counterclockwise from outside. Level 0 stands as FreeSurfer's fsaverage5-7 do, and vertices are
numbered as theirs: the first `n_nodes(n - 1)` vertices of level n are those of level n - 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation

from icofactor.errors import ArgumentError, shown

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Triangles = NDArray[np.int32]
# Level of fsaverage7, the finest standard mesh.
MAX_LEVEL = 7
# The 20 faces of FreeSurfer's icosahedron, in the order from which all its finer meshes follow.
ROOTS = (
    (0, 3, 4), (0, 4, 5), (0, 5, 1), (0, 1, 2), (0, 2, 3),
    (3, 2, 8), (3, 8, 9), (3, 9, 4), (4, 9, 10), (4, 10, 5),
    (5, 10, 6), (5, 6, 1), (1, 6, 7), (1, 7, 2), (2, 7, 8),
    (8, 11, 9), (9, 11, 10), (10, 11, 6), (6, 11, 7), (7, 11, 8),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Icosphere:
    """One level of the hierarchy as a mesh.

    Attributes
    ----------
    vertices : (V, 3) unit vectors
    faces : (F, 3) in quadtree order
    """

    level: int
    vertices: Floats
    faces: Triangles


def check_level(level: int) -> int:
    """Return `level` as an int, or raise when the hierarchy has no such level."""
    if not 0 <= int(level) <= MAX_LEVEL or int(level) != level:
        text = f"must be an integer from 0 to {MAX_LEVEL}; found {shown(level)}"
        raise ArgumentError("level", text)
    return int(level)


def n_faces(level: int) -> int:
    """Faces of one hemisphere at `level`: 20·4ⁿ."""
    return 20 * 4**level


def n_nodes(level: int) -> int:
    """Nodes (vertices) of one hemisphere at `level`: 10·4ⁿ + 2."""
    return 10 * 4**level + 2


def normalized(points: Floats) -> Floats:
    """Return points (n, 3) on the sphere of radius 1."""
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def base_vertices(turns: int = 0) -> Floats:
    """Return the 12 vertices of the icosahedron, turned by `turns` fifths of a circle about z.

    FreeSurfer numbers fsaverage5-7 from `turns=0` and fsaverage3-4 from `turns=1`.
    """
    upper = np.deg2rad(72 * (np.arange(5) - 1 + turns))
    lower = upper - np.deg2rad(36)
    angles = np.concatenate([upper, lower])
    height = np.repeat([1, -1], 5) / np.sqrt(5)
    radius = 2 / np.sqrt(5)
    rings = np.stack([radius * np.cos(angles), radius * np.sin(angles), height], axis=1)
    return np.concatenate([[[0.0, 0.0, 1.0]], rings, [[0.0, 0.0, -1.0]]])


def number_midpoints(faces: NDArray[Any], n_vertices: int) -> tuple[Ints, Ints]:
    """Number the edge midpoints of a closed mesh as FreeSurfer does: at first sight, by face.

    Returns
    -------
    midpoints : (F, 3) numbers of the midpoints of edges (2, 0), (1, 2), (0, 1) of each face.
    ends : (E, 2) the two vertices between which each new vertex lies.
    """
    edges = np.sort(faces[:, [[2, 0], [1, 2], [0, 1]]].reshape(-1, 2), axis=1).astype(np.int64)
    keys = edges[:, 0] * n_vertices + edges[:, 1]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    midpoints = n_vertices + rank[inverse].reshape(-1, 3)
    return midpoints, edges[first[order]]


def append_midpoints(vertices: Floats, ends: Ints) -> Floats:
    """Return vertices followed by the normalised midpoints between the pairs `ends`."""
    middle = vertices[ends[:, 0]] + vertices[ends[:, 1]]
    return np.concatenate([vertices, normalized(middle)])


def divided(children: Sequence[tuple[Ints, Ints, Ints]]) -> Triangles:
    """Return the children of all faces, given the three corners of each of the four children."""
    corners = [np.stack(child, axis=1) for child in children]
    return np.stack(corners, axis=1).reshape(-1, 3).astype(np.int32)


@cache
def listing_order(level: int) -> Ints:
    """Return the quadtree index of each face in the order in which fsaverage5-7 list them.

    The first quarter of the list has child 1 of every coarse face; children 3, 0 and 2 of each
    follow.
    """
    if level == 0:
        order = np.arange(20, dtype=np.int64)
    else:
        coarse = 4 * listing_order(level - 1)
        later = coarse[:, None] + [3, 0, 2]
        order = np.concatenate([coarse + 1, later.ravel()])
    order.setflags(write=False)
    return order


@cache
def icosphere(level: int) -> Icosphere:
    """Return a level as a mesh on the unit sphere; cached, its arrays are read-only."""
    level = check_level(level)
    if level == 0:
        vertices = base_vertices()
        faces = np.array(ROOTS, dtype=np.int32)
    else:
        coarse = icosphere(level - 1)
        # Vertices are numbered in the order of FreeSurfer's list of faces, not in quadtree order.
        order = listing_order(level - 1)
        listed, ends = number_midpoints(coarse.faces[order], len(coarse.vertices))
        midpoints = np.empty_like(listed)
        midpoints[order] = listed
        m20, m12, m01 = midpoints.T
        p0, p1, p2 = coarse.faces.T
        faces = divided([(m01, m12, m20), (p0, m01, m20), (m01, p1, m12), (m20, m12, p2)])
        vertices = append_midpoints(coarse.vertices, ends)
    vertices.setflags(write=False)
    faces.setflags(write=False)
    return Icosphere(level, vertices, faces)


def face_corners(level: ArrayLike, index: ArrayLike) -> Floats:
    """Return the corners (m, 3, 3) of faces; levels may differ from face to face."""
    levels, indices = np.broadcast_arrays(np.atleast_1d(level), np.atleast_1d(index))
    corners = np.empty((len(indices), 3, 3))
    for n in np.unique(levels):
        mesh = icosphere(int(n))
        rows = levels == n
        faces = indices[rows]
        if faces.min() < 0 or faces.max() >= len(mesh.faces):
            raise ArgumentError(
                "index",
                f"must be 0 to {len(mesh.faces) - 1}, the faces of level {n}; found {faces.min()} "
                f"to {faces.max()}",
            )
        corners[rows] = mesh.vertices[mesh.faces[faces]]
    return corners


def face_centres(level: ArrayLike, index: ArrayLike) -> Floats:
    """Return the centres (m, 3) of faces: the normalised mean of the three corners."""
    return normalized(face_corners(level, index).sum(axis=1))


TURN_AXIS = np.array([0.3147, -0.5471, 0.7756])
TURN_ANGLE = 1e-3
# Vertices of an icosahedral mesh lie on edges and corners of the hierarchy. Sites are therefore
# located after this one small rotation, which moves them by more than the rounding of file
# coordinates (1e-4) but well within a face of level 7 (edge 0.008, inscribed circle 0.002).
TURN = Rotation.from_rotvec(TURN_ANGLE * TURN_AXIS / np.linalg.norm(TURN_AXIS)).as_matrix()
TURN.setflags(write=False)


@cache
def face_cuts(level: int) -> Floats:
    """Return normals (F, 3, 3) of the planes that cut off corner 0, 1, 2 of each face.

    Normals point to the corner. The planes pass through the centre and two edge midpoints, so they
    divide the spherical triangle exactly into its four children.
    """
    finer = icosphere(level + 1)
    m01, m12, m20 = np.moveaxis(finer.vertices[finer.faces[::4]], 1, 0)
    normals = np.stack([np.cross(m01, m20), np.cross(m12, m01), np.cross(m20, m12)], axis=1)
    normals.setflags(write=False)
    return normals


def locate(points: ArrayLike, level: int) -> Ints:
    """Return the quadtree index of the face of `level` that contains each point.

    Every point gets exactly one face, and `locate(p, m) == locate(p, n) >> 2 * (n - m)` for m ≤ n.
    A point on a cut goes to the centre child, one between two roots to the root of smaller number.

    Parameters
    ----------
    points : (n, 3) directions from the centre of the sphere; their length does not matter.
    level : 0 to `MAX_LEVEL`.
    """
    level = check_level(level)
    directions = np.asarray(points, dtype=np.float64)
    if directions.ndim != 2 or directions.shape[1] != 3:
        text = f"must be an array of shape (n, 3); found shape {directions.shape}"
        raise ArgumentError("points", text)
    # The regular icosahedron's faces are the Voronoi cells of their centres.
    roots = face_centres(0, np.arange(20))
    index = np.argmax(directions @ roots.T, axis=1).astype(np.int64)
    for coarse_level in range(level):
        cuts = face_cuts(coarse_level)[index]
        is_beyond = np.einsum("ijk,ik->ij", cuts, directions) > 0
        # Child 0 is the centre, and child 1 + k lies beyond the cut at corner k.
        child = np.where(is_beyond.any(axis=1), 1 + np.argmax(is_beyond, axis=1), 0)
        index = 4 * index + child
    return index


def locate_sites(points: ArrayLike, level: int) -> Ints:
    """Locate points that may lie on edges: those of the copy turned by `TURN`."""
    return locate(np.asarray(points, dtype=np.float64) @ TURN.T, level)
