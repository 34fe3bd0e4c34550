"""Rotations of maps on the sphere, by which the field makes null maps: same smoothness, another
place.

A rotated map takes at each site the value of the site nearest to where the rotation brings it. Two
hemispheres turn together, the right one by the mirror image of the left one's rotation, so that
homologous places stay homologous (Alexander-Bloch et al. 2018). Parcels turn by their mean
directions: each takes the value of the parcel whose direction is nearest to its own after the
rotation, so that one may be taken twice (Vázquez-Rodríguez et al. 2019). Regions of unknown place
are exchanged at random within their hemisphere.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from icofactor.sphere.hierarchy import locate
from icofactor.sphere.sites import Sites

Ints = NDArray[np.int64]
_MIRROR = np.diag([-1.0, 1.0, 1.0])


def random_rotation(rng: np.random.Generator) -> NDArray[np.float64]:
    """A rotation matrix, uniform over all rotations."""
    w, x, y, z = rng.standard_normal(4)
    return Rotation.from_quat([x, y, z, w]).as_matrix()


def turned(points: np.ndarray, hemisphere: int, rotation: np.ndarray) -> np.ndarray:
    """Points of one hemisphere after the rotation; hemisphere 1 turns by its mirror image."""
    R = rotation if hemisphere == 0 else _MIRROR @ rotation @ _MIRROR
    return points @ R.T


class SiteSpinner:
    """Rotations of maps on all sites of a mesh, whatever it is.

    Parameters
    ----------
    at : sites whose values are wanted; all when None.
    """

    def __init__(self, sites: Sites, at: np.ndarray | None = None) -> None:
        at = np.arange(sites.n) if at is None else at
        self.n, self._halves, self._per_measure = len(at), [], sites.n_hemispheres
        self._placed, self._at = sites.placed, at
        for half in np.unique(sites.hemisphere):
            where, mine = (
                np.flatnonzero(sites.hemisphere == half),
                np.flatnonzero(sites.hemisphere[at] == half),
            )
            tree = cKDTree(sites.coordinates[where])
            self._halves.append((where, mine, sites.coordinates[at[mine]], tree))

    def draw(self, rng: np.random.Generator) -> Ints:
        """(n,) site whose value each site takes, for one random rotation."""
        rotation, taken = random_rotation(rng), np.empty(self.n, dtype=np.int64)
        orders: dict[int, Ints] = {}
        for half, (where, mine, points, tree) in enumerate(self._halves):
            if self._placed:
                taken[mine] = where[
                    tree.query(turned(points, half % self._per_measure, rotation))[1]
                ]
            else:  # alike in all measures
                order = orders.setdefault(half % self._per_measure, rng.permutation(len(where)))
                taken[mine] = where[order[np.searchsorted(where, self._at[mine])]]
        return taken


class FaceSpinner:
    """Rotations of maps on some faces of one level of the hierarchy.

    Faces that hold no data (the medial wall) are never taken: where a rotation brings one, the
    nearest face that has data is, so that rotated maps are whole. The quadtree answers which face
    holds a point, which is far quicker
    than a search.
    """

    def __init__(self, sites: Sites, level: int, index: np.ndarray) -> None:
        self._level, self._frames, self._per_measure = level, sites.frames, sites.n_hemispheres
        levels = np.full(len(index), level)
        self._half = sites.face_hemisphere(levels, index)
        self._centres = sites.face_centres(levels, index)
        self._sources = []
        per_half = 20 * 4**level
        every = np.arange(per_half)
        for half in range(len(sites.frames)):
            mine = np.flatnonzero(self._half == half)
            centres = sites.face_centres(np.full(per_half, level), half * per_half + every)
            self._sources.append(
                mine[cKDTree(self._centres[mine]).query(centres)[1]] if len(mine) else mine
            )

    def draw(self, rng: np.random.Generator) -> Ints:
        """(n_faces,) face whose value each face takes, for one random rotation."""
        rotation, taken = random_rotation(rng), np.empty(len(self._half), dtype=np.int64)
        for half, source in enumerate(self._sources):
            mine = self._half == half
            if mine.any():
                there = turned(self._centres[mine], half % self._per_measure, rotation)
                taken[mine] = source[locate(there @ self._frames[half], self._level)]
        return taken
