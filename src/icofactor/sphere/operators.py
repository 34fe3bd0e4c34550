"""Means over a mesh: from its vertices to its triangles and back, and over neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from icofactor.sphere.triangles import check_faces


def vertex_to_face(triangles: ArrayLike, n_vertices: int) -> sparse.csr_array:
    """Return the (F, V) matrix of means over the three corners of each triangle."""
    corners = check_faces(triangles, n_vertices, "triangles")
    n = len(corners)
    rows = np.repeat(np.arange(n), 3)
    weights = np.full(corners.size, 1 / 3)
    return sparse.csr_array((weights, (rows, corners.ravel())), shape=(n, n_vertices))


def face_to_vertex(triangles: ArrayLike, n_vertices: int) -> sparse.csr_array:
    """Return the (V, F) matrix of means over the triangles around each vertex.

    Rows sum to 1; a vertex of no triangle has an empty row.
    """
    corners = check_faces(triangles, n_vertices, "triangles")
    n = len(corners)
    columns = np.repeat(np.arange(n), 3)
    n_around = np.bincount(corners.ravel(), minlength=n_vertices)
    weights = 1 / n_around[corners.ravel()]
    return sparse.csr_array((weights, (corners.ravel(), columns)), shape=(n_vertices, n))


def adjacency(triangles: ArrayLike, n_vertices: int) -> sparse.csr_array:
    """Return the symmetric (V, V) matrix with a 1 for every two vertices that an edge joins."""
    corners = check_faces(triangles, n_vertices, "triangles")
    starts = corners.ravel()
    ends = np.roll(corners, -1, axis=1).ravel()
    rows = np.concatenate([starts, ends])
    columns = np.concatenate([ends, starts])
    ones = np.ones(len(rows), np.int32)
    matrix = sparse.csr_array((ones, (rows, columns)), shape=(n_vertices, n_vertices))
    # Two triangles share an edge, except on the rim.
    matrix.data[:] = 1
    return matrix


def neighbour_average(triangles: ArrayLike | None) -> sparse.csr_array:
    """Return the (V, V) matrix of means over each vertex of a closed mesh and its neighbours."""
    assert triangles is not None
    n = int(np.max(triangles)) + 1
    near = adjacency(triangles, n).astype(np.float32) + sparse.eye_array(n, dtype=np.float32)
    averages = sparse.diags_array(1 / np.asarray(near.sum(axis=1))) @ near
    return sparse.csr_array(averages.astype(np.float32))


def smooth_rows(maps: NDArray[Any], smoother: sparse.csr_array, rounds: int) -> NDArray[Any]:
    """Return maps (one hemisphere, or left then right) after rounds of neighbour averaging."""
    n = smoother.shape[0]
    columns = np.ascontiguousarray(maps.reshape(-1, n).T)
    for _ in range(rounds):
        columns = smoother @ columns
    return np.ascontiguousarray(columns.T).reshape(maps.shape)
