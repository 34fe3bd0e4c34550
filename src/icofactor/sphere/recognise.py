"""Recognise an icosahedron divided n times, whatever the order of its vertices and faces.

The 12 vertices of valence five are the corners of the icosahedron. From each, straight walks (enter
a vertex of valence six, leave by the opposite edge) along an edge of a root and, from every vertex
of that edge, across the root meet all vertices of the root at known barycentric positions. The
result is then checked triangle by triangle, so a mesh that merely resembles an icosahedral one is
never taken for one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.csgraph import breadth_first_order

from icofactor.sphere.hierarchy import MAX_LEVEL, ROOTS, Ints, icosphere, n_faces, n_nodes
from icofactor.sphere.triangles import check_faces


@dataclass(frozen=True, eq=False)
class IcosahedralMatch:
    """How a mesh maps onto `icosphere(level)`.

    Attributes
    ----------
    level : how often the icosahedron was divided
    vertex_to_canonical : (V,) vertex of `icosphere(level)` for each vertex of the mesh
    face_to_quadtree : (F,) quadtree index for each face of the mesh
    """

    level: int
    vertex_to_canonical: Ints
    face_to_quadtree: Ints


def recognise(
    faces: ArrayLike, n_vertices: int | None = None, coordinates: ArrayLike | None = None
) -> IcosahedralMatch | None:
    """Match a mesh with a level of the icosahedral hierarchy; None when its topology is another.

    Parameters
    ----------
    faces : (F, 3) triangles in any order, each with either orientation.
    n_vertices : number of vertices; by default the largest index plus one.
    coordinates : (V, 3) positions on a sphere about the origin. Of the 120 symmetries of the
        icosahedron the match uses the one closest to them; without coordinates, one that keeps the
        orientation of the first face and as many as possible of the first twelve vertices where
        they are.
    """
    triangles = check_faces(faces, n_vertices)
    n_vertices = int(triangles.max()) + 1 if n_vertices is None else n_vertices
    level = next((n for n in range(MAX_LEVEL + 1) if len(triangles) == n_faces(n)), None)
    if level is None or n_vertices != n_nodes(level):
        return None
    valence = np.bincount(triangles.ravel(), minlength=n_vertices)
    if np.count_nonzero(valence == 5) != 12 or np.count_nonzero(valence == 6) != n_vertices - 12:
        return None
    oriented = _orient(triangles, n_vertices)
    walker = None if oriented is None else _Walker.of(oriented, n_vertices)
    starts = None if walker is None else _root_starts(walker, valence, 2**level)
    if walker is None or starts is None:
        return None
    grid = walker.grid(starts, 2**level)
    roots = np.stack([grid[:, 0, 0], grid[:, -1, 0], grid[:, 0, -1]], axis=1)
    corners = _best_symmetry(roots, coordinates)
    vertex_map = None if corners is None else _fill(grid, roots, corners, level, n_vertices)
    return None if vertex_map is None else _verified(triangles, vertex_map, level)


def icosphere_within(points: NDArray[np.float64], faces: ArrayLike) -> NDArray[np.float64]:
    """Return the vertices of a folded icosahedral mesh on the sphere that it came from.

    The sphere is turned to fit the folds; other points are returned as they are.
    """
    away = points - points.mean(axis=0)
    size = np.linalg.norm(away, axis=1, keepdims=True)
    away = away / np.where(size > 0, size, 1.0)
    match = recognise(faces, len(points), away)
    if match is None:
        return points
    sphere = icosphere(match.level).vertices[match.vertex_to_canonical]
    u, _, v = np.linalg.svd(away.T @ sphere)
    # A rotation, not a mirror image.
    u[:, 2] *= np.sign(np.linalg.det(u @ v))
    return np.asarray(sphere @ (u @ v).T)


def _half_edges(triangles: Ints, n_vertices: int) -> tuple[Ints, Ints]:
    """Return keys of the half-edges 3f + k and of their opposites.

    Half-edge 3f + k leads from corner k to corner k + 1 of face f.
    """
    tail = triangles.ravel()
    head = np.roll(triangles, -1, axis=1).ravel()
    return tail * n_vertices + head, head * n_vertices + tail


def _orient(triangles: Ints, n_vertices: int) -> Ints | None:
    """Give all faces the orientation of the first; None if impossible or the mesh is open."""
    forward, backward = _half_edges(triangles, n_vertices)
    edges = np.minimum(forward, backward)
    order = np.argsort(edges, kind="stable")
    pairs = edges[order].reshape(-1, 2)
    # Every edge must have exactly two faces.
    if not np.array_equal(pairs[:, 0], pairs[:, 1]) or np.any(pairs[1:, 0] == pairs[:-1, 0]):
        return None
    half_edge, opposite = order.reshape(-1, 2).T
    disagrees = forward[half_edge] == forward[opposite]
    if not disagrees.any():
        return triangles
    n = len(triangles)
    rows = np.concatenate([half_edge // 3, opposite // 3])
    columns = np.concatenate([opposite // 3, half_edge // 3])
    # 1 for neighbours of like orientation, 2 for others: 0 would be no entry.
    relation = 1 + np.concatenate([disagrees, disagrees])
    graph = sparse.csr_array((relation, (rows, columns)), shape=(n, n))
    reached, before = breadth_first_order(graph, 0, directed=False, return_predecessors=True)
    if len(reached) != n:
        return None
    is_flipped = np.zeros(n, dtype=bool)
    disagrees_with_parent = np.asarray(graph[np.arange(n), np.maximum(before, 0)]).ravel() == 2
    # Parents come before their children.
    for face in reached[1:].tolist():
        is_flipped[face] = is_flipped[before[face]] ^ disagrees_with_parent[face]
    oriented = triangles.copy()
    oriented[is_flipped] = oriented[is_flipped][:, [0, 2, 1]]
    return oriented


@dataclass(frozen=True, eq=False)
class _Walker:
    """Half-edge view of a closed, consistently oriented mesh."""

    tail: Ints
    twin: Ints

    @classmethod
    def of(cls, triangles: Ints, n_vertices: int) -> _Walker | None:
        """Return the view of a mesh; None if a half-edge has no opposite."""
        forward, backward = _half_edges(triangles, n_vertices)
        order = np.argsort(forward)
        ranked = forward[order]
        twin = np.minimum(np.searchsorted(ranked, backward), len(ranked) - 1)
        if np.any(ranked[1:] == ranked[:-1]) or not np.array_equal(ranked[twin], backward):
            return None
        return cls(triangles.ravel(), order[twin])

    def turn_left(self, half_edge: Ints) -> Ints:
        """Return the next half-edge, counterclockwise, that leaves the same vertex."""
        previous = half_edge - half_edge % 3 + (half_edge + 2) % 3
        return self.twin[previous]

    def straight(self, half_edge: Ints) -> Ints:
        """Go along the half-edge and leave its head by the opposite edge (right at valence six)."""
        leaving = self.twin[half_edge]
        for _ in range(3):
            leaving = self.turn_left(leaving)
        return leaving

    def walk(self, start: Ints, steps: int) -> Ints:
        """Return the half-edges (..., steps) of straight walks from `start`."""
        path = np.empty((*start.shape, steps), dtype=np.int64)
        path[..., 0] = start
        for i in range(1, steps):
            path[..., i] = self.straight(path[..., i - 1])
        return path

    def stops(self, path: Ints) -> Ints:
        """Return the vertices (..., steps + 1) of a walk."""
        last = self.tail[self.twin[path[..., -1:]]]
        return np.concatenate([self.tail[path], last], axis=-1)

    def grid(self, starts: Ints, n: int) -> Ints:
        """Return vertices (len(starts), n + 1, n + 1) to the left of straight walks of n steps.

        Entry [i, j] lies i steps along the walk and j steps to its left; only i + j ≤ n is
        meaningful.
        """
        base = self.walk(starts, n)
        vertices = np.full((len(starts), n + 1, n + 1), -1, dtype=np.int64)
        vertices[:, :n] = self.stops(self.walk(self.turn_left(base), n))
        vertices[:, n, 0] = self.stops(base)[:, -1]
        return vertices


def _root_starts(walker: _Walker, valence: NDArray[np.intp], n: int) -> Ints | None:
    """Return for each of the 20 roots the half-edge at its smallest corner.

    The root lies to the left of the walk along it.
    """
    leaving = np.flatnonzero(valence[walker.tail] == 5)
    along = walker.stops(walker.walk(leaving, n))[:, -1]
    across = walker.stops(walker.walk(walker.turn_left(leaving), n))[:, -1]
    if np.any(valence[along] != 5) or np.any(valence[across] != 5):
        return None
    first = walker.tail[leaving]
    starts = leaving[(first < along) & (first < across)]
    return starts if len(starts) == 20 else None


# The third corner of the face to the left of each directed edge.
ThirdCorners = dict[tuple[int, int], int]


def _third_corners(roots: NDArray[np.integer], mirrored: bool = False) -> ThirdCorners:
    """Return the third corners of the roots, seen from inside when mirrored."""
    thirds = {}
    for a, b, c in np.asarray(roots).tolist():
        for start, end, third in ((a, b, c), (b, c, a), (c, a, b)):
            edge = (end, start) if mirrored else (start, end)
            thirds[edge] = third
    return thirds


def _extend(mesh: ThirdCorners, target: ThirdCorners, image: tuple[int, int]) -> dict[int, int]:
    """Extend the map of the mesh's first edge onto the edge `image` to all vertices."""
    first = next(iter(mesh))
    images = dict(zip(first, image, strict=True))
    waiting = [(first, image)]
    visited = set()
    while waiting:
        (u, v), (x, y) = waiting.pop()
        if (u, v) in visited or (u, v) not in mesh or (x, y) not in target:
            continue
        w = mesh[u, v]
        z = target[x, y]
        images.setdefault(w, z)
        visited.update([(u, v), (v, w), (w, u)])
        # The faces across the three edges.
        waiting += [((v, u), (y, x)), ((w, v), (z, y)), ((u, w), (x, z))]
    return images


def _best_symmetry(roots: Ints, coordinates: ArrayLike | None) -> dict[int, int] | None:
    """Return the map of the 12 corners onto the icosahedron closest to the coordinates."""
    mesh = _third_corners(roots)
    if len(mesh) != 60:
        return None
    best = None
    best_score = -np.inf
    # Without coordinates, nothing tells a mesh from its mirror image.
    for mirrored in (False,) if coordinates is None else (False, True):
        target = _third_corners(np.array(ROOTS), mirrored)
        for image in target:
            images = _extend(mesh, target, image)
            if len(images) != 12 or len(set(images.values())) != 12:
                continue
            score = _score(images, coordinates)
            # Symmetries that differ by rounding are equal: the first one is taken.
            if best is None or score > best_score + 1e-9 * abs(best_score):
                best = images
                best_score = score
    return best


def _score(images: dict[int, int], coordinates: ArrayLike | None) -> float:
    """Return how close a map of corners is to the coordinates, or to the numbers of vertices."""
    if coordinates is None:
        return float(sum(corner == image for corner, image in images.items()))
    points = np.asarray(coordinates, dtype=np.float64)[list(images)]
    return float(np.sum(points * icosphere(0).vertices[list(images.values())]))


@cache
def _canonical_grid(level: int) -> Ints:
    """Return the vertices [g, i, j] of `icosphere(level)`.

    They lie i steps from corner 0 of root g towards corner 1, and j towards corner 2.
    """
    mesh = icosphere(level)
    walker = _Walker.of(mesh.faces.astype(np.int64), len(mesh.vertices))
    assert walker is not None
    # The face at corner 0 of a root is child 1 at each level, and its first half-edge leaves that
    # corner.
    starts = np.arange(20)
    for _ in range(level):
        starts = 4 * starts + 1
    return walker.grid(3 * starts, 2**level)


def _fill(
    grid: Ints, roots: Ints, corners: dict[int, int], level: int, n_vertices: int
) -> Ints | None:
    """Return the map of all vertices that follows from the map of the 12 corners."""
    n = 2**level
    steps = np.arange(n + 1)
    i, j = np.nonzero(np.add.outer(steps, steps) <= n)
    weights = np.stack([n - i - j, i, j])
    numbers = {frozenset(root): number for number, root in enumerate(ROOTS)}
    vertex_map = np.full(n_vertices, -1, dtype=np.int64)
    for vertices, root in zip(grid, roots.tolist(), strict=True):
        image = [corners[vertex] for vertex in root]
        number = numbers.get(frozenset(image))
        if number is None:
            return None
        # Steps towards corners 1 and 2 of the root are weights of their counterparts in the mesh.
        towards_1 = weights[image.index(ROOTS[number][1])]
        towards_2 = weights[image.index(ROOTS[number][2])]
        vertex_map[vertices[i, j]] = _canonical_grid(level)[number, towards_1, towards_2]
    return vertex_map


@cache
def _canonical_keys(level: int) -> tuple[Ints, Ints]:
    """Return the sorted keys of all triangles, and their order."""
    keys = _triangle_keys(icosphere(level).faces, n_nodes(level))
    order = np.argsort(keys)
    return keys[order], order


def _triangle_keys(triangles: NDArray[np.integer], n_vertices: int) -> Ints:
    a, b, c = np.sort(triangles, axis=1).astype(np.int64).T
    return (a * n_vertices + b) * n_vertices + c


def _verified(triangles: Ints, vertex_map: Ints, level: int) -> IcosahedralMatch | None:
    """Return the match if every triangle went to another triangle of the icosphere."""
    n = len(vertex_map)
    if vertex_map.min() < 0 or np.any(np.bincount(vertex_map, minlength=n) != 1):
        return None
    keys, order = _canonical_keys(level)
    mapped_keys = _triangle_keys(vertex_map[triangles], n)
    rank = np.minimum(np.searchsorted(keys, mapped_keys), len(keys) - 1)
    is_same = np.array_equal(keys[rank], mapped_keys)
    if not is_same or np.any(np.bincount(rank, minlength=len(keys)) != 1):
        return None
    face_map = order[rank]
    vertex_map.setflags(write=False)
    face_map.setflags(write=False)
    return IcosahedralMatch(level, vertex_map, face_map)
