"""Which face of the hierarchy holds a point of the sphere."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.transform import Rotation

from icofactor.errors import ArgumentError, Phrase
from icofactor.sphere.hierarchy import Floats, Ints, check_level, face_centres, icosphere

_TURN_AXIS = (0.3147, -0.5471, 0.7756)
_TURN_ANGLE = 1e-3


# Vertices of an icosahedral mesh lie on edges and corners of the hierarchy. Sites are therefore located after
# this one small rotation, which moves them by more than the rounding of file coordinates (1e-4) but
# well within a face of level 7 (edge 0.008, inscribed circle 0.002).
TURN = Rotation.from_rotvec(_TURN_ANGLE * np.array(_TURN_AXIS) / np.linalg.norm(_TURN_AXIS)).as_matrix()
TURN.setflags(write=False)


@cache
def _cuts(level: int) -> Floats:
    """Normals (F, 3, 3) of the planes that cut off corner 0, 1, 2 of each face, towards that corner.

    The planes pass through the centre and two edge midpoints, so they divide the spherical triangle exactly
    into its four children.
    """
    finer = icosphere(level + 1)
    m01, m12, m20 = np.moveaxis(finer.vertices[finer.faces[::4]], 1, 0)
    normals = np.stack([np.cross(m01, m20), np.cross(m12, m01), np.cross(m20, m12)], axis=1)
    normals.setflags(write=False)
    return normals


def locate(points: ArrayLike, level: int) -> Ints:
    """Quadtree index of the face of `level` that contains each point.

    Every point gets exactly one face, and `locate(p, m) == locate(p, n) >> 2 * (n - m)` for m ≤ n. A point
    on a cut goes to the centre child, one between two roots to the root of smaller number.

    Parameters
    ----------
    points : (n, 3) directions from the centre of the sphere; their length does not matter.
    level : 0 to `MAX_LEVEL`.
    """
    level = check_level(level)
    directions = np.asarray(points, dtype=np.float64)
    if directions.ndim != 2 or directions.shape[1] != 3:
        raise ArgumentError("points", Phrase(f"shape {directions.shape}"), "an array of shape (n, 3)")
    # The regular icosahedron's faces are the Voronoi cells of their centres.
    index = np.argmax(directions @ face_centres(0, np.arange(20)).T, axis=1).astype(np.int64)
    for n in range(level):
        beyond = np.einsum("ijk,ik->ij", _cuts(n)[index], directions) > 0
        index = 4 * index + np.where(beyond.any(axis=1), 1 + np.argmax(beyond, axis=1), 0)
    return index


def locate_sites(points: ArrayLike, level: int) -> Ints:
    """As `locate`, for points that may lie on edges: those of the copy turned by `TURN`."""
    return locate(np.asarray(points, dtype=np.float64) @ TURN.T, level)
