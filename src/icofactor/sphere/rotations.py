"""Rotations of maps on the sphere, which make null maps: same smoothness, another place.

A rotated map takes at each site the value of the site nearest to where the rotation brings it. Two
hemispheres turn together, the right one by the mirror image of the left one's rotation, so that
homologous places stay homologous (Alexander-Bloch et al. 2018). Parcels turn by their mean
directions: each takes the value of the parcel whose direction is nearest to its own after the
rotation, so that one may be taken twice (Vázquez-Rodríguez et al. 2019). Regions of unknown place
are exchanged at random within their hemisphere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from icofactor.sphere.hierarchy import locate
from icofactor.sphere.sites import Sites

Ints = NDArray[np.int64]
# Brings a left hemisphere to the right side.
MIRROR = np.diag([-1.0, 1.0, 1.0])


def random_rotation(rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a rotation matrix, uniform over all rotations."""
    w, x, y, z = rng.standard_normal(4)
    return Rotation.from_quat([x, y, z, w]).as_matrix()


def turned(points: np.ndarray, hemisphere: int, rotation: np.ndarray) -> np.ndarray:
    """Return points after the rotation; hemisphere 1 turns by its mirror image."""
    if hemisphere == 1:
        rotation = MIRROR @ rotation @ MIRROR
    return points @ rotation.T


class _Half(NamedTuple):
    """One hemisphere of one copy of the mesh.

    hemisphere : 0 for left, 1 for right
    sources : (n_sources,) numbers of its sites
    rows : rows of the requested sites that lie in it
    sites : numbers of the requested sites that lie in it
    points : (n_rows, 3) their positions
    tree : of the positions of the sources
    """

    hemisphere: int
    sources: Ints
    rows: Ints
    sites: Ints
    points: np.ndarray
    tree: cKDTree


class SiteSpinner:
    """Rotations of maps on all sites of a mesh, whatever it is.

    Parameters
    ----------
    at : sites whose values are needed; all when None.
    """

    def __init__(self, sites: Sites, at: np.ndarray | None = None) -> None:
        requested = np.arange(sites.n) if at is None else at
        self.n = len(requested)
        self._is_placed = sites.placed
        self._halves = []
        for number in np.unique(sites.hemisphere).tolist():
            sources = np.flatnonzero(sites.hemisphere == number)
            rows = np.flatnonzero(sites.hemisphere[requested] == number)
            points = sites.coordinates[requested[rows]]
            tree = cKDTree(sites.coordinates[sources])
            hemisphere = number % sites.n_hemispheres
            half = _Half(hemisphere, sources, rows, requested[rows], points, tree)
            self._halves.append(half)

    def draw(self, rng: np.random.Generator) -> Ints:
        """Return (n,) the site whose value each site takes, for one random rotation."""
        rotation = random_rotation(rng)
        sources = np.empty(self.n, dtype=np.int64)
        orders: dict[int, Ints] = {}
        for half in self._halves:
            if self._is_placed:
                turned_points = turned(half.points, half.hemisphere, rotation)
                nearest = half.tree.query(turned_points)[1]
                sources[half.rows] = half.sources[nearest]
                continue
            if half.hemisphere not in orders:
                # Measures are exchanged alike.
                orders[half.hemisphere] = rng.permutation(len(half.sources))
            position = np.searchsorted(half.sources, half.sites)
            sources[half.rows] = half.sources[orders[half.hemisphere][position]]
        return sources


class FaceSpinner:
    """Rotations of maps on some faces of one level of the hierarchy.

    Faces that hold no data (the medial wall) are never taken: where a rotation brings one, the
    nearest face that has data is, so that rotated maps are whole. The quadtree tells which face
    holds a point, which is far quicker than a search.
    """

    def __init__(self, sites: Sites, level: int, index: np.ndarray) -> None:
        self._level = level
        self._frames = sites.frames
        self._n_hemispheres = sites.n_hemispheres
        levels = np.full(len(index), level)
        self._half = sites.face_hemisphere(levels, index)
        self._centres = sites.face_centres(levels, index)
        self._nearest = []
        n_faces = 20 * 4**level
        for half in range(len(sites.frames)):
            rows = np.flatnonzero(self._half == half)
            if not len(rows):
                self._nearest.append(rows)
                continue
            all_faces = half * n_faces + np.arange(n_faces)
            centres = sites.face_centres(np.full(n_faces, level), all_faces)
            self._nearest.append(rows[cKDTree(self._centres[rows]).query(centres)[1]])

    def draw(self, rng: np.random.Generator) -> Ints:
        """Return (n_faces,) the face whose value each face takes, for one random rotation."""
        rotation = random_rotation(rng)
        sources = np.empty(len(self._half), dtype=np.int64)
        for half, nearest in enumerate(self._nearest):
            rows = self._half == half
            if rows.any():
                points = turned(self._centres[rows], half % self._n_hemispheres, rotation)
                sources[rows] = nearest[locate(points @ self._frames[half], self._level)]
        return sources
