"""Means over a mesh: from its vertices to its triangles and back, over neighbours, and of steps
along its edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from icofactor.sphere.triangles import check_faces


def vertex_to_face(triangles: ArrayLike, n_vertices: int) -> sparse.csr_array:
    """(F, V) matrix whose product with vertex values is the mean of the three corners of each
    triangle.
    """
    corners = check_faces(triangles, n_vertices, "triangles")
    rows = np.repeat(np.arange(len(corners)), 3)
    weights = np.full(corners.size, 1 / 3)
    return sparse.csr_array((weights, (rows, corners.ravel())), shape=(len(corners), n_vertices))


def face_to_vertex(triangles: ArrayLike, n_vertices: int) -> sparse.csr_array:
    """(V, F) matrix whose product with face values is the mean over the triangles around each
    vertex.

    Rows sum to 1; a vertex of no triangle has an empty row.
    """
    corners = check_faces(triangles, n_vertices, "triangles")
    columns = np.repeat(np.arange(len(corners)), 3)
    around = np.bincount(corners.ravel(), minlength=n_vertices)
    weights = 1 / around[corners.ravel()]
    return sparse.csr_array((weights, (corners.ravel(), columns)), shape=(n_vertices, len(corners)))


def adjacency(triangles: ArrayLike, n_vertices: int) -> sparse.csr_array:
    """(V, V) symmetric matrix with a 1 for every two vertices that an edge joins, int32."""
    corners = check_faces(triangles, n_vertices, "triangles")
    rows, columns = np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]]).T
    ends = np.concatenate([rows, columns]), np.concatenate([columns, rows])
    found = sparse.csr_array(
        (np.ones(2 * len(rows), np.int32), ends), shape=(n_vertices, n_vertices)
    )
    found.data[:] = 1  # an edge is met once or twice in each direction
    return found


def neighbour_average(triangles: ArrayLike | None) -> sparse.csr_array:
    """(V, V) matrix of means over each vertex and its neighbours on a closed mesh, float32."""
    assert triangles is not None
    n = int(np.max(triangles)) + 1
    near = adjacency(triangles, n).astype(np.float32) + sparse.eye_array(n, dtype=np.float32)
    scaled = sparse.diags_array(1 / np.asarray(near.sum(axis=1))) @ near
    return sparse.csr_array(scaled.astype(np.float32))


def smooth_rows(maps: NDArray[Any], smoother: sparse.csr_array, rounds: int) -> NDArray[Any]:
    """Rows of `maps` (one hemisphere, or left then right) after `rounds` of neighbour averaging."""
    n = smoother.shape[0]
    columns = np.ascontiguousarray(maps.reshape(-1, n).T)
    for _ in range(rounds):
        columns = smoother @ columns
    return np.ascontiguousarray(columns.T).reshape(maps.shape)
