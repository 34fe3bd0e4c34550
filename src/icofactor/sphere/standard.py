"""The standard spheres by formula, fsaverage3 to 7 and fs_LR 32k: nothing to download, no sphere
needed beside a file.

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

from icofactor.errors import ArgumentError, literal
from icofactor.sphere.hierarchy import (
    ROOTS,
    Floats,
    Ints,
    Triangles,
    append_midpoints,
    base_vertices,
    check_level,
    icosphere,
    listing_order,
    locate,
    number_midpoints,
)

NUMBERINGS = ("A", "B")
NAMED_LEVELS = (3, 4, 5, 6, 7)


@dataclass(frozen=True, eq=False)
class FreeSurferMesh:
    """A standard sphere: unit `vertices`, `faces` as listed, and the quadtree index of each face."""

    level: int
    numbering: str
    vertices: Floats
    faces: Triangles
    face_to_quadtree: Ints

    @property
    def name(self) -> str:
        """As "fsaverage5"; with "-A" or "-B" added in the numbering FreeSurfer does not give that
        name.
        """
        suffix = "" if self.numbering == usual_numbering(self.level) else f"-{self.numbering}"
        return f"fsaverage{self.level}{suffix}"


def usual_numbering(level: int) -> str:
    """The numbering FreeSurfer distributes at `level`: A up to 4, B from 5 on."""
    return "A" if level <= 4 else "B"


def _chain_a(level: int) -> tuple[Floats, Triangles]:
    vertices, faces = base_vertices(turns=1), np.array(ROOTS, dtype=np.int32)
    for _ in range(level):
        midpoints, ends = number_midpoints(faces, len(vertices))
        m20, m12, m01 = midpoints.T
        a, b, c = faces.T
        rows = [(a, m01, m20), (m20, m12, c), (m01, m12, m20), (m01, b, m12)]
        faces = (
            np.stack([np.stack(r, axis=1) for r in rows], axis=1).reshape(-1, 3).astype(np.int32)
        )
        vertices = append_midpoints(vertices, ends)
    return vertices, faces


@cache
def freesurfer_mesh(level: int, numbering: str | None = None) -> FreeSurferMesh:
    """The sphere of `level` in the given numbering ("A", "B"; None: the one FreeSurfer
    distributes).
    """
    level = check_level(level)
    numbering = usual_numbering(level) if numbering is None else numbering
    if numbering not in NUMBERINGS:
        raise ArgumentError("numbering", numbering, "'A' or 'B'")
    if numbering == "B":
        vertices, order = icosphere(level).vertices, listing_order(level)
        faces = icosphere(level).faces[order]
    else:
        vertices, faces = _chain_a(level)
        order = locate(vertices[faces].sum(axis=1), level)
    for array in (vertices, faces, order):
        array.setflags(write=False)
    return FreeSurferMesh(level, numbering, vertices, faces, order)


def same_listing(faces: ArrayLike, level: int) -> FreeSurferMesh | None:
    """The standard mesh that lists the same triangles in the same order, or None.

    The order of the corners within a triangle does not matter.
    """
    if level not in NAMED_LEVELS:
        return None
    given = np.sort(np.asarray(faces), axis=1)
    for numbering in NUMBERINGS:
        mesh = freesurfer_mesh(level, numbering)
        if np.array_equal(given, np.sort(mesh.faces, axis=1)):
            return mesh
    return None


N_CUTS = 57
_GOLDEN = (1 + 5**0.5) / 2
# three rectangles at right angles, in the order the mesh numbers them
_CORNERS = np.array(
    [(x * _GOLDEN, 0, 1) if x else (0, y, _GOLDEN) for x, y in ((-1, 0), (0, -1), (1, 0), (0, 1))]
    + [(-1, -_GOLDEN, 0), (1, -_GOLDEN, 0), (1, _GOLDEN, 0), (-1, _GOLDEN, 0)]
    + [
        (x * _GOLDEN, 0, -1) if x else (0, y, -_GOLDEN)
        for x, y in ((-1, 0), (0, -1), (1, 0), (0, 1))
    ]
)
# the order decides the numbers of all vertices: those on edges not met before, then those inside,
# face by face
_FACES = (
    *(
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
    ),
    *(
        (5, 10, 2),
        (10, 6, 2),
        (6, 11, 7),
        (11, 9, 8),
        (9, 4, 8),
        (8, 4, 0),
        (11, 8, 7),
        (6, 7, 3),
        (6, 3, 2),
    ),
    (11, 10, 9),
)
# by least squares from the HCP's sphere: p(0) = 0, p(1) = 1, degree 5
_SPREAD = (0.053721, -0.174467, 0.292547, -0.456351)
_POLYNOMIAL = np.array([*_SPREAD, 1 - sum(_SPREAD), 0])


@cache
def fs_lr_sphere(side: Literal["left", "right"]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Vertices (32492, 3), radius 100, and triangles (64980, 3) of a hemisphere of fs_LR 32k."""
    numbers, weights, corners = _grid()
    flat = weights / N_CUTS
    points = np.einsum("nk,nkd->nd", np.polyval(_POLYNOMIAL, flat), _CORNERS[corners])
    points *= 100 / np.linalg.norm(points, axis=1, keepdims=True)
    triangles = np.concatenate([_triangles(one) for one in numbers])
    if side == "left":
        points, triangles = points * (-1, 1, 1), triangles[:, ::-1]  # a mirror turns triangles over
    return points.astype(np.float32), triangles.astype(np.int32)


def _grid() -> tuple[list[NDArray[np.int64]], NDArray[np.int64], NDArray[np.int64]]:
    """Per face the numbers of its vertices, by row and column (−1 beyond); per vertex weights and
    corners (n, 3).
    """
    n = N_CUTS
    weights, corners = [np.tile([n, 0, 0], (12, 1))], [np.repeat(np.arange(12)[:, None], 3, axis=1)]
    edges: dict[tuple[int, int], NDArray[np.int64]] = {}
    count, numbers = 12, []
    along = np.arange(1, n)
    row, column = (grid[1:, 1:] for grid in np.indices((n, n)))
    row, column = row[row + column < n], column[row + column < n]
    for a, b, c in _FACES:
        face = np.full((n + 1, n + 1), -1)
        for one, other in ((a, b), (a, c), (b, c)):
            edge = min(one, other), max(one, other)
            if edge not in edges:
                edges[edge] = np.array([edge[0], *range(count, count + n - 1), edge[1]])
                weights.append(np.column_stack([n - along, along, 0 * along]))
                corners.append(np.tile([*edge, edge[0]], (n - 1, 1)))
                count += n - 1
        line = lambda one, other: edges[one, other] if one < other else edges[other, one][::-1]
        steps = np.arange(n + 1)
        face[0], face[:, 0], face[steps, n - steps] = line(a, b), line(a, c), line(b, c)
        face[row, column] = np.arange(count, count + len(row))
        weights.append(np.column_stack([n - row - column, column, row]))
        corners.append(np.tile([a, b, c], (len(row), 1)))
        count += len(row)
        numbers.append(face)
    return numbers, np.concatenate(weights), np.concatenate(corners)


def _triangles(face: NDArray[np.int64]) -> NDArray[np.int64]:
    """Row by row, triangles that stand and those that hang between them."""
    stand = np.stack([face[:-1, :-1], face[:-1, 1:], face[1:, :-1]], axis=-1)
    hang = np.stack([face[1:, :-1], face[:-1, 1:], face[1:, 1:]], axis=-1)
    both = np.stack([stand, hang], axis=2).reshape(-1, 3)
    return both[(both >= 0).all(axis=1)]


def parse_name(name: str) -> tuple[int, str | None]:
    """Level and numbering of a standard mesh from its name."""
    if not isinstance(name, str):
        raise ArgumentError("name", name, "a string such as 'fsaverage5'")
    base, _, numbering = name.partition("-")
    known = {"fsaverage": 7, **{f"fsaverage{n}": n for n in NAMED_LEVELS}}
    if base in known and (not numbering or numbering in NUMBERINGS):
        return known[base], numbering or None
    raise ArgumentError(
        "mesh",
        None,
        f"{{mesh}} {literal(repr(name))} is not known by name; known are {', '.join(known)}, fsLR32k. For other meshes "
        "(CIVET, ...) give their sphere files (in Python: Sites.from_file, or Sites.from_sphere for arrays)",
    )


def same_mesh(one: Triangles | None, other: Triangles | None) -> bool:
    """Whether two meshes list the same triangles, whatever their orientation (mirrored
    hemispheres).
    """
    if one is None or other is None:
        return False
    return one is other or np.array_equal(np.sort(one, axis=1), np.sort(other, axis=1))
