"""The edges of the active faces as lines that follow any shape of the mesh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from icofactor.results.report.surfaces import Floats, Hemisphere, Ints
from icofactor.sphere.sites import Sites

_FINEST = 5
_NEIGHBOURS = 12


@dataclass(frozen=True, eq=False)
class Lines:
    """Line segments on a mesh.

    Attributes
    ----------
    corners : (m, 3) the triangle of vertices in which each point lies
    weights : (m, 3) what each of them counts; rows sum to 1
    segments : (s, 2) points to join
    """

    corners: Ints
    weights: Floats
    segments: Ints


def face_lines(sites: Sites, faces: np.ndarray, half: int, hemisphere: Hemisphere) -> Lines:
    """Edges of the active `faces` (level, index) that belong to hemisphere number `half` of the sites."""
    own = faces[sites.face_hemisphere(faces[:, 0], faces[:, 1]) == half]
    if not len(own) or not hemisphere.unit.any():  # no face with data, or a mesh whose sphere is not known
        return Lines(np.empty((0, 3), dtype=np.int64), np.empty((0, 3)), np.empty((0, 2), dtype=np.int64))
    points, segments = _segments(sites, own)
    corners, weights = _on_mesh(points, hemisphere)
    return Lines(corners, weights, segments)


def _segments(sites: Sites, faces: np.ndarray) -> tuple[Floats, Ints]:
    """Points on the unit sphere and the segments between them, every edge once however many faces share it."""
    finest = min(_FINEST, sites.max_level)
    ends = []
    for level in np.unique(faces[:, 0]):
        corners = sites.face_corners(level, faces[faces[:, 0] == level, 1])
        path = np.stack([corners, np.roll(corners, -1, axis=1)], axis=2).reshape(-1, 2, 3)
        for _ in range(max(0, finest - int(level))):  # midpoints as the hierarchy itself makes them
            middle = path.sum(axis=1)
            middle /= np.linalg.norm(middle, axis=1, keepdims=True)
            path = np.concatenate(
                [np.stack([path[:, 0], middle], axis=1), np.stack([middle, path[:, 1]], axis=1)], axis=0
            )
        ends.append(path)
    every = np.concatenate(ends).reshape(-1, 3)
    _, first, numbers = np.unique(np.round(every, 6) + 0.0, axis=0, return_index=True, return_inverse=True)
    segments = np.unique(np.sort(numbers.reshape(-1, 2), axis=1), axis=0)
    return every[first], segments


def _on_mesh(points: Floats, hemisphere: Hemisphere) -> tuple[Ints, Floats]:
    """The triangle that holds each point of the unit sphere, and the point's weights of its corners."""
    unit, triangles = hemisphere.unit, hemisphere.triangles
    centres = unit[triangles].mean(axis=1)
    near = np.asarray(cKDTree(centres).query(points, k=min(_NEIGHBOURS, len(centres)))[1])
    frames = np.swapaxes(unit[triangles[near]], -1, -2)
    weights = np.linalg.solve(frames, np.broadcast_to(points[:, None, :, None], (*near.shape, 3, 1)))[..., 0]
    best = np.argmax(weights.min(axis=-1), axis=1)
    rows = np.arange(len(points))
    chosen = np.clip(weights[rows, best], 0, None)
    return triangles[near[rows, best]], chosen / chosen.sum(axis=1, keepdims=True)
