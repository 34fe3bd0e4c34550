"""Distances along a surface between vertices that are near each other."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from icofactor.sphere.triangles import Floats, Ints

_PATCH = 128


def surface_graph(coordinates: Floats, faces: Ints) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Lengths in mm of the steps a path may take: (edges and steps across edges, edges only), both symmetric.

    A step across an edge joins the two far corners of the triangles beside it, straight through both when they
    are laid flat, where that line crosses the edge. Paths along edges alone are too long by some 10 %.
    """
    n = len(coordinates)
    tails, heads = faces.ravel(), np.roll(faces, -1, axis=1).ravel()
    far = np.roll(faces, -2, axis=1).ravel()
    key = np.minimum(tails, heads) * n + np.maximum(tails, heads)
    order = np.argsort(key, kind="stable")
    _, first, count = np.unique(key[order], return_index=True, return_counts=True)
    a, b = tails[order[first]], heads[order[first]]
    length = np.linalg.norm(coordinates[a] - coordinates[b], axis=1)
    paired = count == 2  # edges on the rim of an open mesh have one triangle
    one, other = far[order[first[paired]]], far[order[first[paired] + 1]]
    across, crosses = _across(coordinates, a[paired], b[paired], one, other)
    edges = _symmetric(a, b, length, n)
    steps = _symmetric(np.r_[a, one[crosses]], np.r_[b, other[crosses]], np.r_[length, across[crosses]], n)
    return steps, edges


def _across(coordinates: Floats, a: Ints, b: Ints, one: Ints, other: Ints) -> tuple[Floats, np.ndarray]:
    """Length of the straight line one–other over the edge a–b laid flat, and whether it crosses that edge."""
    edge = coordinates[b] - coordinates[a]
    length = np.maximum(np.linalg.norm(edge, axis=1), np.finfo(np.float64).tiny)
    flat = []
    for corner in (one, other):
        towards = coordinates[corner] - coordinates[a]
        along = np.sum(towards * edge, axis=1) / length
        flat.append((along, np.sqrt(np.maximum(np.sum(towards**2, axis=1) - along**2, 0))))
    (x1, y1), (x2, y2) = flat
    height = np.maximum(y1 + y2, np.finfo(np.float64).tiny)
    crossing = x1 + (x2 - x1) * y1 / height
    return np.hypot(x1 - x2, y1 + y2), (crossing > 0) & (crossing < length)


def _symmetric(a: Ints, b: Ints, length: Floats, n: int) -> sparse.csr_array:
    """A graph of undirected steps; of two between the same vertices the shorter."""
    low, high = np.minimum(a, b), np.maximum(a, b)
    order = np.lexsort((length, high, low))
    low, high, length = low[order], high[order], length[order]
    new = np.r_[True, (low[1:] != low[:-1]) | (high[1:] != high[:-1])] & (low != high)
    half = sparse.csr_array((length[new], (low[new], high[new])), shape=(n, n))
    return sparse.csr_array(half + half.T)


def distances_within(graph: sparse.csr_array, coordinates: Floats, limit: float) -> tuple[Ints, Ints, Floats]:
    """All pairs (from, to) of vertices at most `limit` mm apart along the graph, and their distances; from = to too.

    Exact, though each patch of vertices only looks at the part of the graph within `limit` of it in space: no
    path of that length can leave it.
    """
    tree = cKDTree(coordinates, leafsize=_PATCH)
    pieces = []
    for patch in np.array_split(tree.indices, max(1, len(coordinates) // _PATCH)):
        centre = coordinates[patch].mean(axis=0)
        reach = np.linalg.norm(coordinates[patch] - centre, axis=1).max() + limit
        near = np.sort(np.asarray(tree.query_ball_point(centre, reach * (1 + 1e-9)), dtype=np.int64))
        part = graph[near][:, near]
        found = dijkstra(part, directed=True, indices=np.searchsorted(near, patch), limit=limit)
        row, column = np.nonzero(np.isfinite(found))
        pieces.append((patch[row], near[column], found[row, column]))
    rows, columns, values = zip(*pieces, strict=True)
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(values)
