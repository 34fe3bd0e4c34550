"""Is a mesh an icosahedron divided n times, whatever the order of its vertices and faces? If so,
how?

The 12 vertices of valence five are the corners of the icosahedron. From each, straight walks (enter
a vertex
of valence six, leave by the opposite edge) along an edge of a root and, from every vertex of that
edge, across
the root meet all vertices of the root at known barycentric positions. What the walks found is then
checked
triangle by triangle, so a mesh that merely resembles an icosahedral one is never taken for one.
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
    level : how often the icosahedron was divided.
    vertex_to_canonical : (V,) vertex of `icosphere(level)` for each vertex of the mesh.
    face_to_quadtree : (F,) quadtree index for each face of the mesh.
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
        icosahedron the
        match uses the one closest to them; without coordinates, one that keeps the orientation of
        the first
        face and as many as possible of the first twelve vertices where they are.
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
    if walker is None:
        return None
    starts = _root_starts(walker, valence, 2**level)
    if starts is None:
        return None
    grid = walker.grid(starts, 2**level)
    roots = np.stack([grid[:, 0, 0], grid[:, -1, 0], grid[:, 0, -1]], axis=1)
    corners = _best_symmetry(roots, coordinates)
    if corners is None:
        return None
    vertex_map = _fill(grid, roots, corners, level, n_vertices)
    return None if vertex_map is None else _verified(triangles, vertex_map, level)


def icosphere_within(points: NDArray[np.float64], faces: ArrayLike) -> NDArray[np.float64]:
    """The vertices of an icosahedral mesh that was folded, on the sphere that it came from, turned
    to fit the folds; other points as they are.
    """
    away = points - points.mean(axis=0)
    size = np.linalg.norm(away, axis=1, keepdims=True)
    away = away / np.where(size > 0, size, 1.0)
    match = recognise(faces, len(points), away)
    if match is None:
        return points
    sphere = icosphere(match.level).vertices[match.vertex_to_canonical]
    u, _, v = np.linalg.svd(away.T @ sphere)
    u[:, 2] *= np.sign(np.linalg.det(u @ v))  # a rotation, not a mirror image
    return np.asarray(sphere @ (u @ v).T)


def _half_edges(triangles: Ints, n_vertices: int) -> tuple[Ints, Ints]:
    """Keys of the half-edges 3f + k, from corner k to corner k + 1 of face f, and of their
    opposites.
    """
    tail, head = triangles.ravel(), np.roll(triangles, -1, axis=1).ravel()
    return tail * n_vertices + head, head * n_vertices + tail


def _orient(triangles: Ints, n_vertices: int) -> Ints | None:
    """Give all faces the orientation of the first; None when that is impossible or the mesh is
    open.
    """
    forward, backward = _half_edges(triangles, n_vertices)
    order = np.argsort(np.minimum(forward, backward), kind="stable")
    pairs = np.minimum(forward, backward)[order].reshape(-1, 2)
    if not np.array_equal(pairs[:, 0], pairs[:, 1]) or np.any(pairs[1:, 0] == pairs[:-1, 0]):
        return None  # an edge without exactly two faces
    one, other = order.reshape(-1, 2).T
    disagree = forward[one] == forward[other]
    if not disagree.any():
        return triangles
    n = len(triangles)
    f, g = one // 3, other // 3
    graph = sparse.csr_array((np.ones(2 * len(f)), (np.r_[f, g], np.r_[g, f])), shape=(n, n))
    reached, before = breadth_first_order(graph, 0, directed=False, return_predecessors=True)
    if len(reached) != n:
        return None
    flips = sparse.csr_array(
        (np.r_[disagree, disagree] + 1, (np.r_[f, g], np.r_[g, f])), shape=(n, n)
    )
    before[0] = 0
    odd = np.asarray(flips[np.arange(n), before]).ravel() == 2
    while np.any(before):  # pointer doubling along the tree towards face 0
        odd, before = odd ^ odd[before], before[before]
    oriented = triangles.copy()
    oriented[odd] = oriented[odd][:, [0, 2, 1]]
    return oriented


@dataclass(frozen=True, eq=False)
class _Walker:
    """Half-edge view of a closed, consistently oriented mesh."""

    tail: Ints
    twin: Ints

    @classmethod
    def of(cls, triangles: Ints, n_vertices: int) -> _Walker | None:
        forward, backward = _half_edges(triangles, n_vertices)
        order = np.argsort(forward)
        ranked = forward[order]
        place = np.minimum(np.searchsorted(ranked, backward), len(ranked) - 1)
        if np.any(ranked[1:] == ranked[:-1]) or not np.array_equal(ranked[place], backward):
            return None
        return cls(triangles.ravel(), order[place])

    def turn_left(self, half_edge: Ints) -> Ints:
        """The next half-edge, counterclockwise, that leaves the same vertex."""
        previous = half_edge - half_edge % 3 + (half_edge + 2) % 3
        return self.twin[previous]

    def straight(self, half_edge: Ints) -> Ints:
        """Go along the half-edge and leave its head by the opposite edge (right at valence six)."""
        out = self.twin[half_edge]
        for _ in range(3):
            out = self.turn_left(out)
        return out

    def walk(self, start: Ints, steps: int) -> Ints:
        """Half-edges (..., steps) met when walking straight from `start`."""
        path = np.empty((*start.shape, steps), dtype=np.int64)
        path[..., 0] = start
        for i in range(1, steps):
            path[..., i] = self.straight(path[..., i - 1])
        return path

    def stops(self, path: Ints) -> Ints:
        """Vertices (..., steps + 1) of a walk."""
        last = self.tail[self.twin[path[..., -1:]]]
        return np.concatenate([self.tail[path], last], axis=-1)

    def grid(self, starts: Ints, n: int) -> Ints:
        """Vertices (len(starts), n + 1, n + 1) of the triangles to the left of straight walks of n
        steps.

        Entry [i, j] lies i steps along the walk and j steps to its left; only i + j ≤ n is
        meaningful.
        """
        base = self.walk(starts, n)
        vertices = np.full((len(starts), n + 1, n + 1), -1, dtype=np.int64)
        vertices[:, :n] = self.stops(self.walk(self.turn_left(base), n))
        vertices[:, n, 0] = self.stops(base)[:, -1]
        return vertices


def _root_starts(walker: _Walker, valence: NDArray[np.intp], n: int) -> Ints | None:
    """For each of the 20 roots, the half-edge at its smallest corner along which the root lies to
    the left.
    """
    leaving = np.flatnonzero(valence[walker.tail] == 5)
    along = walker.stops(walker.walk(leaving, n))[:, -1]
    across = walker.stops(walker.walk(walker.turn_left(leaving), n))[:, -1]
    if np.any(valence[along] != 5) or np.any(valence[across] != 5):
        return None
    first = walker.tail[leaving]
    chosen = leaving[(first < along) & (first < across)]
    return chosen if len(chosen) == 20 else None


def _third_corners(
    roots: NDArray[np.integer], mirrored: bool = False
) -> dict[tuple[int, int], int]:
    """The third corner of the face to the left (right when mirrored) of each directed edge."""
    thirds = {}
    for a, b, c in np.asarray(roots).tolist():
        for u, v, w in ((a, b, c), (b, c, a), (c, a, b)):
            thirds[(v, u) if mirrored else (u, v)] = w
    return thirds


def _extend(
    mesh: dict[tuple[int, int], int], target: dict[tuple[int, int], int], image: tuple[int, int]
) -> dict[int, int]:
    """Extend the map of the mesh's first directed edge onto the edge `image` to all vertices it
    determines.
    """
    first = next(iter(mesh))
    found = dict(zip(first, image, strict=True))
    waiting = [(first, image)]
    seen = set()
    while waiting:
        (u, v), (x, y) = waiting.pop()
        if (u, v) in seen or (u, v) not in mesh or (x, y) not in target:
            continue
        w, z = mesh[u, v], target[x, y]
        found.setdefault(w, z)
        seen.update([(u, v), (v, w), (w, u)])
        waiting += [((v, u), (y, x)), ((w, v), (z, y)), ((u, w), (x, z))]
    return found


def _best_symmetry(roots: Ints, coordinates: ArrayLike | None) -> dict[int, int] | None:
    """The map of the mesh's 12 corners onto the icosahedron's, closest to the coordinates if there
    are any.
    """
    mesh = _third_corners(roots)
    if len(mesh) != 60:
        return None
    twelve = icosphere(0).vertices
    points = None if coordinates is None else np.asarray(coordinates, dtype=np.float64)
    best, best_score = None, -np.inf
    for mirrored in (False,) if points is None else (False, True):
        target = _third_corners(np.array(ROOTS), mirrored)
        for image in target:
            found = _extend(mesh, target, image)
            if len(found) != 12 or len(set(found.values())) != 12:
                continue
            if points is None:
                score = float(sum(u == v for u, v in found.items()))
            else:
                score = float(np.sum(points[list(found)] * twelve[list(found.values())]))
            if score > best_score + 1e-9 * abs(best_score if best else 0):
                best, best_score = found, score
    return best


@cache
def _canonical_grid(level: int) -> Ints:
    """Vertices [g, i, j] of `icosphere(level)`: i steps from corner 0 of root g to corner 1, j to
    corner 2.
    """
    mesh = icosphere(level)
    walker = _Walker.of(mesh.faces.astype(np.int64), len(mesh.vertices))
    assert walker is not None
    # the face at corner 0 of a root is child 1 at each level, and its first half-edge leaves that
    # corner
    starts = np.arange(20)
    for _ in range(level):
        starts = 4 * starts + 1
    return walker.grid(3 * starts, 2**level)


def _fill(
    grid: Ints, roots: Ints, corners: dict[int, int], level: int, n_vertices: int
) -> Ints | None:
    """The map of all vertices that follows from the map of the 12 corners."""
    n = 2**level
    i, j = np.nonzero(np.add.outer(np.arange(n + 1), np.arange(n + 1)) <= n)
    weights = np.stack([n - i - j, i, j])
    numbers = {frozenset(root): g for g, root in enumerate(ROOTS)}
    vertex_map = np.full(n_vertices, -1, dtype=np.int64)
    for vertices, root in zip(grid, roots.tolist(), strict=True):
        image = [corners[v] for v in root]
        g = numbers.get(frozenset(image))
        if g is None:
            return None
        b, c = image.index(ROOTS[g][1]), image.index(ROOTS[g][2])
        vertex_map[vertices[i, j]] = _canonical_grid(level)[g, weights[b], weights[c]]
    return vertex_map


@cache
def _canonical_keys(level: int) -> tuple[Ints, Ints]:
    keys = _triangle_keys(icosphere(level).faces, n_nodes(level))
    order = np.argsort(keys)
    return keys[order], order


def _triangle_keys(triangles: NDArray[np.integer], n_vertices: int) -> Ints:
    a, b, c = np.sort(triangles, axis=1).astype(np.int64).T
    return (a * n_vertices + b) * n_vertices + c


def _verified(triangles: Ints, vertex_map: Ints, level: int) -> IcosahedralMatch | None:
    """The match, after checking that every triangle went to another triangle of the icosphere."""
    if vertex_map.min() < 0 or np.any(np.bincount(vertex_map, minlength=len(vertex_map)) != 1):
        return None
    keys, order = _canonical_keys(level)
    wanted = _triangle_keys(vertex_map[triangles], len(vertex_map))
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    if not np.array_equal(keys[place], wanted) or np.any(
        np.bincount(place, minlength=len(keys)) != 1
    ):
        return None
    face_map = order[place]
    vertex_map.setflags(write=False)
    face_map.setflags(write=False)
    return IcosahedralMatch(level, vertex_map, face_map)
