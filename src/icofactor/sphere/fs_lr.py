"""The sphere of fs_LR 32k by formula, so that files whose names say fs_LR need no sphere beside them.

The mesh is public and fixed: an icosahedron with every edge cut into 57, its points drawn apart so that all vertices
have nearly the same area (`wb_command -surface-create-sphere`). With w₁ + w₂ + w₃ = 1 the place in a flat triangle with
corners c₁, c₂, c₃, a vertex is p(w₁) c₁ + p(w₂) c₂ + p(w₃) c₃ brought to the sphere, p the polynomial below. That is
the right hemisphere; the left one is its mirror image. The HCP's files hold the same to 2e-7 of the radius.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from icofactor.sphere.sites import Sites

N_CUTS = 57
_GOLDEN = (1 + 5**0.5) / 2
# three rectangles at right angles, in the order the mesh numbers them
_CORNERS = np.array(
    [(x * _GOLDEN, 0, 1) if x else (0, y, _GOLDEN) for x, y in ((-1, 0), (0, -1), (1, 0), (0, 1))]
    + [(-1, -_GOLDEN, 0), (1, -_GOLDEN, 0), (1, _GOLDEN, 0), (-1, _GOLDEN, 0)]
    + [(x * _GOLDEN, 0, -1) if x else (0, y, -_GOLDEN) for x, y in ((-1, 0), (0, -1), (1, 0), (0, 1))]
)
# the order decides the numbers of all vertices: those on edges not met before, then those inside, face by face
_FACES = (
    *((0, 7, 8), (0, 3, 7), (0, 1, 3), (1, 2, 3), (1, 5, 2), (5, 9, 10), (10, 11, 6), (4, 1, 0), (4, 5, 1), (4, 9, 5)),
    *((5, 10, 2), (10, 6, 2), (6, 11, 7), (11, 9, 8), (9, 4, 8), (8, 4, 0), (11, 8, 7), (6, 7, 3), (6, 3, 2)),
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


@cache
def fs_lr_sites(side: Literal["left", "right"]) -> Sites:
    """The vertices of one hemisphere of fs_LR 32k."""
    return Sites.from_sphere(*fs_lr_sphere(side))


def _grid() -> tuple[list[NDArray[np.int64]], NDArray[np.int64], NDArray[np.int64]]:
    """Per face the numbers of its vertices, by row and column (−1 beyond); per vertex weights and corners (n, 3)."""
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
