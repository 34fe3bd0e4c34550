"""The standard spheres by formula, fsaverage3 to 7 and fs_LR 32k: nothing to download.

fsaverage comes in FreeSurfer's own numbering. Both of its numberings start from the same 20 faces
and number new vertices at first sight. They differ in where the children of face i stand among 4F
rows, and in how the icosahedron is turned:

- A (FreeSurfer's fsaverage3 and 4): rows 4i..4i+3; turned by 72° about z;
- B (FreeSurfer's fsaverage5, 6 and 7): rows i, F+3i, F+3i+1, F+3i+2.

So fsaverage4 (A) is not the beginning of fsaverage5 (B). Files exist with either, at all levels.

fs_LR 32k is an icosahedron with every edge cut into 57, its points drawn apart so that all vertices
have nearly the same area (`wb_command -surface-create-sphere`). With w₁ + w₂ + w₃ = 1 the place in
a flat triangle with corners c₁, c₂, c₃, a vertex is p(w₁) c₁ + p(w₂) c₂ + p(w₃) c₃ brought to the
sphere, p the polynomial below. That is the right hemisphere; the left one is its mirror image. The
HCP's files hold the same to 2e-7 of the radius.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.checks import OneOf, check_value
from icofactor.errors import ArgumentError, shown
from icofactor.sphere.hierarchy import (
    ROOTS,
    Floats,
    Ints,
    Triangles,
    append_midpoints,
    base_vertices,
    check_level,
    divided,
    icosphere,
    listing_order,
    locate,
    normalized,
    number_midpoints,
)

NUMBERINGS = ("A", "B")
# Levels of fsaverage3 to fsaverage7.
NAMED_LEVELS = (3, 4, 5, 6, 7)


@dataclass(frozen=True, eq=False)
class FreeSurferMesh:
    """A standard sphere: unit `vertices`, `faces` as listed, and their quadtree indices."""

    level: int
    numbering: str
    vertices: Floats
    faces: Triangles
    face_to_quadtree: Ints

    @property
    def name(self) -> str:
        """Such as "fsaverage5"; "-A" or "-B" marks the numbering that FreeSurfer does not use."""
        suffix = "" if self.numbering == usual_numbering(self.level) else f"-{self.numbering}"
        return f"fsaverage{self.level}{suffix}"


def usual_numbering(level: int) -> str:
    """The numbering FreeSurfer distributes at `level`: A up to 4, B from 5 on."""
    return "A" if level <= 4 else "B"


def _numbering_a(level: int) -> tuple[Floats, Triangles]:
    """Return vertices and faces in numbering A."""
    vertices = base_vertices(turns=1)
    faces = np.array(ROOTS, dtype=np.int32)
    for _ in range(level):
        midpoints, ends = number_midpoints(faces, len(vertices))
        m20, m12, m01 = midpoints.T
        a, b, c = faces.T
        faces = divided([(a, m01, m20), (m20, m12, c), (m01, m12, m20), (m01, b, m12)])
        vertices = append_midpoints(vertices, ends)
    return vertices, faces


@cache
def freesurfer_mesh(level: int, numbering: str | None = None) -> FreeSurferMesh:
    """Return the sphere of a level in a numbering, "A" or "B"; None: FreeSurfer's."""
    level = check_level(level)
    numbering = usual_numbering(level) if numbering is None else numbering
    check_value("numbering", numbering, OneOf(NUMBERINGS))
    if numbering == "B":
        mesh = icosphere(level)
        vertices = mesh.vertices
        order = listing_order(level)
        faces = mesh.faces[order]
    else:
        vertices, faces = _numbering_a(level)
        order = locate(vertices[faces].sum(axis=1), level)
    for array in (vertices, faces, order):
        array.setflags(write=False)
    return FreeSurferMesh(level, numbering, vertices, faces, order)


def same_listing(faces: ArrayLike, level: int) -> FreeSurferMesh | None:
    """Return the standard mesh that lists the same triangles in the same order, if there is one.

    The order of the corners within a triangle does not matter.
    """
    if level not in NAMED_LEVELS:
        return None
    sorted_faces = np.sort(np.asarray(faces), axis=1)
    for numbering in NUMBERINGS:
        mesh = freesurfer_mesh(level, numbering)
        if np.array_equal(sorted_faces, np.sort(mesh.faces, axis=1)):
            return mesh
    return None


# Parts into which fs_LR 32k cuts every edge of the icosahedron.
N_CUTS = 57
GOLDEN = (1 + 5**0.5) / 2
# Three golden rectangles at right angles, in the order in which the mesh numbers their corners.
CORNERS = np.array(
    [
        (-GOLDEN, 0, 1),
        (0, -1, GOLDEN),
        (GOLDEN, 0, 1),
        (0, 1, GOLDEN),
        (-1, -GOLDEN, 0),
        (1, -GOLDEN, 0),
        (1, GOLDEN, 0),
        (-1, GOLDEN, 0),
        (-GOLDEN, 0, -1),
        (0, -1, -GOLDEN),
        (GOLDEN, 0, -1),
        (0, 1, -GOLDEN),
    ]
)
# The order decides the numbers of all vertices: those on edges not met before, then those inside,
# face by face.
FACES = (
    (0, 7, 8),
    (0, 3, 7),
    (0, 1, 3),
    (1, 2, 3),
    (1, 5, 2),
    (5, 9, 10),
    (10, 11, 6),
    (4, 1, 0),
    (4, 5, 1),
    (4, 9, 5),
    (5, 10, 2),
    (10, 6, 2),
    (6, 11, 7),
    (11, 9, 8),
    (9, 4, 8),
    (8, 4, 0),
    (11, 8, 7),
    (6, 7, 3),
    (6, 3, 2),
    (11, 10, 9),
)
# By least squares from the HCP's sphere: p(0) = 0, p(1) = 1, degree 5.
SPREAD = (0.053721, -0.174467, 0.292547, -0.456351)
POLYNOMIAL = np.array([*SPREAD, 1 - sum(SPREAD), 0])


@cache
def fs_lr_sphere(side: Literal["left", "right"]) -> tuple[NDArray[np.float32], Triangles]:
    """Return vertices (32492, 3), radius 100, and triangles (64980, 3) of fs_LR 32k."""
    grid = _Grid()
    spread = np.polyval(POLYNOMIAL, np.concatenate(grid.weights) / N_CUTS)
    corners = CORNERS[np.concatenate(grid.corners)]
    points = 100 * normalized(np.einsum("nk,nkd->nd", spread, corners))
    triangles = np.concatenate([_triangles(face) for face in grid.faces])
    if side == "left":
        points = points * (-1, 1, 1)
        # A mirror turns triangles over.
        triangles = triangles[:, ::-1]
    return points.astype(np.float32), triangles.astype(np.int32)


class _Grid:
    """The vertices of the icosahedron with cut edges, numbered face by face.

    Attributes
    ----------
    weights, corners : lists of (n, 3) the corners that vertices lie between, and their weights
    faces : per face the numbers of its vertices by row and column, −1 beyond
    n : number of vertices
    """

    def __init__(self) -> None:
        self.n = 12
        self.weights = [np.tile([N_CUTS, 0, 0], (12, 1))]
        self.corners = [np.repeat(np.arange(12)[:, None], 3, axis=1)]
        self._edges: dict[tuple[int, int], Ints] = {}
        self.faces = [self._face(*corners) for corners in FACES]

    def _face(self, a: int, b: int, c: int) -> Ints:
        """Return the numbers of the vertices of a face, a new one for each not met before."""
        steps = np.arange(N_CUTS + 1)
        face = np.full((N_CUTS + 1, N_CUTS + 1), -1)
        face[0] = self._edge(a, b)
        face[:, 0] = self._edge(a, c)
        face[steps, N_CUTS - steps] = self._edge(b, c)
        rows, columns = np.indices((N_CUTS, N_CUTS))
        is_inside = (rows > 0) & (columns > 0) & (rows + columns < N_CUTS)
        row = rows[is_inside]
        column = columns[is_inside]
        weights = np.column_stack([N_CUTS - row - column, column, row])
        face[row, column] = self._add(weights, [a, b, c])
        return face

    def _edge(self, start: int, end: int) -> Ints:
        """Return the numbers of the vertices of an edge, from its start to its end."""
        low = min(start, end)
        high = max(start, end)
        if (low, high) not in self._edges:
            along = np.arange(1, N_CUTS)
            weights = np.column_stack([N_CUTS - along, along, 0 * along])
            inner = self._add(weights, [low, high, low])
            self._edges[low, high] = np.concatenate([[low], inner, [high]])
        edge = self._edges[low, high]
        return edge if start == low else edge[::-1]

    def _add(self, weights: Ints, corners: list[int]) -> Ints:
        """Add vertices between these corners, and return their numbers."""
        first = self.n
        self.n += len(weights)
        self.weights.append(weights)
        self.corners.append(np.tile(corners, (len(weights), 1)))
        return np.arange(first, self.n)


def _triangles(face: Ints) -> Ints:
    """Return triangles row by row, those that stand and those that hang between them."""
    standing = np.stack([face[:-1, :-1], face[:-1, 1:], face[1:, :-1]], axis=-1)
    hanging = np.stack([face[1:, :-1], face[:-1, 1:], face[1:, 1:]], axis=-1)
    triangles = np.stack([standing, hanging], axis=2).reshape(-1, 3)
    return triangles[(triangles >= 0).all(axis=1)]


def parse_name(name: str) -> tuple[int, str | None]:
    """Return level and numbering of a standard mesh from its name."""
    levels = {"fsaverage": 7, **{f"fsaverage{level}": level for level in NAMED_LEVELS}}
    base, _, numbering = str(name).partition("-")
    if base not in levels or (numbering and numbering not in NUMBERINGS):
        raise ArgumentError(
            "mesh",
            f"{shown(name)} is not known by name; known are {', '.join(levels)}, fsLR32k. For "
            "other meshes (CIVET, ...) give their sphere files (in Python: Sites.from_file, or "
            "Sites.from_sphere for arrays)",
        )
    return levels[base], numbering or None


def same_mesh(a: Triangles | None, b: Triangles | None) -> bool:
    """Whether two meshes list the same triangles, whatever their orientation (mirrored)."""
    if a is None or b is None:
        return False
    return a is b or np.array_equal(np.sort(a, axis=1), np.sort(b, axis=1))
