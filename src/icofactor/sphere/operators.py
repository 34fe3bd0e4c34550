"""Means over a mesh: from its vertices to its triangles and back, and over neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse


def vertex_to_face(triangles: ArrayLike, n_vertices: int) -> sparse.csr_array:
    """(F, V) matrix whose product with vertex values is the mean of the three corners of each triangle."""
    corners = _checked(triangles, n_vertices)
    rows = np.repeat(np.arange(len(corners)), 3)
    weights = np.full(corners.size, 1 / 3)
    return sparse.csr_array((weights, (rows, corners.ravel())), shape=(len(corners), n_vertices))


def face_to_vertex(triangles: ArrayLike, n_vertices: int) -> sparse.csr_array:
    """(V, F) matrix whose product with face values is the mean over the triangles around each vertex.

    Rows sum to 1; a vertex of no triangle has an empty row.
    """
    corners = _checked(triangles, n_vertices)
    columns = np.repeat(np.arange(len(corners)), 3)
    around = np.bincount(corners.ravel(), minlength=n_vertices)
    weights = 1 / around[corners.ravel()]
    return sparse.csr_array((weights, (corners.ravel(), columns)), shape=(n_vertices, len(corners)))


def neighbour_average(triangles: ArrayLike | None) -> sparse.csr_array:
    """(V, V) matrix of means over each vertex and its neighbours on a closed mesh, float32."""
    assert triangles is not None
    corners = np.asarray(triangles)
    rows, columns = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]]).T
    n = int(corners.max()) + 1
    ones = np.ones(len(rows), dtype=np.float32)
    # every edge lies in two triangles, once in each direction, so each entry is met exactly once
    near = sparse.csr_array((ones, (rows, columns)), shape=(n, n)) + sparse.eye_array(n, dtype=np.float32)
    scaled = sparse.diags_array(1 / np.asarray(near.sum(axis=1))) @ near
    return sparse.csr_array(scaled.astype(np.float32))


def smooth_rows(maps: NDArray[Any], smoother: sparse.csr_array, rounds: int) -> NDArray[Any]:
    """Rows of `maps` (one hemisphere, or left then right) after `rounds` of neighbour averaging."""
    n = smoother.shape[0]
    columns = np.ascontiguousarray(maps.reshape(-1, n).T)
    for _ in range(rounds):
        columns = smoother @ columns
    return np.ascontiguousarray(columns.T).reshape(maps.shape)


def _checked(triangles: ArrayLike, n_vertices: int) -> np.ndarray:
    corners = np.asarray(triangles)
    if corners.ndim != 2 or corners.shape[1] != 3:
        raise ValueError(f"triangles must have shape (F, 3); got {corners.shape}")
    if corners.size and (corners.min() < 0 or corners.max() >= n_vertices):
        raise ValueError(f"triangles must name vertices 0 to {n_vertices - 1}; got {corners.min()} to {corners.max()}")
    return corners
