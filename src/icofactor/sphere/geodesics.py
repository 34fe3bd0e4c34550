"""Distances along a surface: the graph of steps that a path may take, and shortest paths on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from icofactor.sphere.triangles import Floats, Ints

# The smallest normal number, so that nothing is divided by 0.
TINY = float(np.finfo(np.float64).tiny)
# Vertices whose paths are searched in one call, so that Ctrl-C is answered between calls.
BLOCK = 512
# Vertices for which memory is reserved at first.
FIRST_SIZE = 1 << 16


def surface_graph(coordinates: Floats, faces: Ints) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Return lengths in mm of the steps a path may take, and of the edges alone.

    A path along edges alone is some 10 % too long. So a path may also step across an edge: the step
    joins the far corners of the two triangles beside the edge, straight through both when they are
    laid flat, if that line crosses the edge. Both matrices are symmetric.
    """
    n = len(coordinates)
    tails = faces.ravel()
    heads = np.roll(faces, -1, axis=1).ravel()
    far_corners = np.roll(faces, -2, axis=1).ravel()
    # Both triangles of an edge have its key.
    edge_keys = np.minimum(tails, heads) * n + np.maximum(tails, heads)
    order = np.argsort(edge_keys, kind="stable")
    _, first, n_triangles = np.unique(edge_keys[order], return_index=True, return_counts=True)
    start = tails[order[first]]
    end = heads[order[first]]
    length = np.linalg.norm(coordinates[start] - coordinates[end], axis=1)
    edges = _symmetric(start, end, length, n)
    # Edges on the rim of an open mesh have one triangle, so nothing lies across them.
    is_inner = n_triangles == 2
    corner = far_corners[order[first[is_inner]]]
    opposite = far_corners[order[first[is_inner] + 1]]
    across, crosses = _flat_distance(coordinates, start[is_inner], end[is_inner], corner, opposite)
    steps = _symmetric(
        np.concatenate([start, corner[crosses]]),
        np.concatenate([end, opposite[crosses]]),
        np.concatenate([length, across[crosses]]),
        n,
    )
    return steps, edges


def _flat_distance(
    coordinates: Floats, start: Ints, end: Ints, corner: Ints, opposite: Ints
) -> tuple[Floats, np.ndarray]:
    """Return the distance of corners across an edge laid flat, and whether it is crossed."""
    edge = coordinates[end] - coordinates[start]
    length = np.maximum(np.linalg.norm(edge, axis=1), TINY)
    along = []
    heights = []
    for vertex in (corner, opposite):
        towards = coordinates[vertex] - coordinates[start]
        position = np.sum(towards * edge, axis=1) / length
        along.append(position)
        heights.append(np.sqrt(np.maximum(np.sum(towards**2, axis=1) - position**2, 0)))
    total_height = heights[0] + heights[1]
    share = heights[0] / np.maximum(total_height, TINY)
    crossing = along[0] + (along[1] - along[0]) * share
    distance = np.hypot(along[0] - along[1], total_height)
    return distance, (crossing > 0) & (crossing < length)


def _symmetric(start: Ints, end: Ints, length: Floats, n: int) -> sparse.csr_array:
    """Return the graph of undirected steps; of two between the same vertices the shorter."""
    low = np.minimum(start, end)
    high = np.maximum(start, end)
    order = np.lexsort((length, high, low))
    low = low[order]
    high = high[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    used = is_first & (low != high)
    half = sparse.csr_array((length[order][used], (low[used], high[used])), shape=(n, n))
    return sparse.csr_array(half + half.T)


def distances_within(
    graph: sparse.csr_array, limit: float
) -> Iterator[tuple[Ints, np.ndarray, Floats]]:
    """Yield the vertices at most `limit` mm from each vertex along the graph, itself too.

    Each item is about some vertices, in order: how many vertices lie near each of them, and the
    numbers and distances of these, one vertex after the other.
    """
    indptr = graph.indptr.astype(np.int64)
    neighbours = graph.indices.astype(np.int32)
    n = graph.shape[0]
    for first in range(0, n, BLOCK):
        last = min(first + BLOCK, n)
        yield _search(first, last, indptr, neighbours, graph.data, limit)


@njit(cache=True, nogil=True)
def _search(
    first: int, last: int, indptr: Any, neighbours: Any, lengths: Any, limit: float
) -> tuple[Any, Any, Any]:
    """Find all vertices within the limit of some vertices, by label correction.

    Vertices wait in a queue, first in, first out, and wait again if a shorter path reaches them.
    On a mesh of even spacing that is rare, and a heap would cost more. The distances are the same.
    """
    n = len(indptr) - 1
    distance = np.full(n, np.inf)
    is_waiting = np.zeros(n, dtype=np.bool_)
    queue = np.empty(n, dtype=np.int32)
    counts = np.empty(last - first, dtype=np.int64)
    reached = np.empty(FIRST_SIZE, dtype=np.int32)
    values = np.empty(FIRST_SIZE, dtype=np.float64)
    n_reached = 0
    for source in range(first, last):
        start = n_reached
        # No source reaches more than all vertices.
        if n_reached + n > len(reached):
            size = 2 * len(reached) + n
            larger = np.empty(size, dtype=np.int32)
            larger[:n_reached] = reached[:n_reached]
            reached = larger
            larger_values = np.empty(size, dtype=np.float64)
            larger_values[:n_reached] = values[:n_reached]
            values = larger_values
        distance[source] = 0.0
        reached[n_reached] = source
        n_reached += 1
        queue[0] = source
        head = 0
        n_waiting = 1
        while n_waiting > 0:
            vertex = queue[head]
            head = (head + 1) % n
            n_waiting -= 1
            is_waiting[vertex] = False
            for step in range(indptr[vertex], indptr[vertex + 1]):
                neighbour = neighbours[step]
                path = distance[vertex] + lengths[step]
                if path > limit or path >= distance[neighbour]:
                    continue
                if np.isinf(distance[neighbour]):
                    reached[n_reached] = neighbour
                    n_reached += 1
                distance[neighbour] = path
                if not is_waiting[neighbour]:
                    is_waiting[neighbour] = True
                    queue[(head + n_waiting) % n] = neighbour
                    n_waiting += 1
        # Distances change until the queue is empty, so they are copied last.
        for position in range(start, n_reached):
            values[position] = distance[reached[position]]
            distance[reached[position]] = np.inf
        counts[source - first] = n_reached - start
    return counts, reached[:n_reached].copy(), values[:n_reached].copy()
