"""In which triangle of a spherical mesh a point lies, and at which barycentric position."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from icofactor.errors import ArgumentError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Singles = NDArray[np.float32]
# Triangles of the nearest centres that are tried first.
FIRST_CANDIDATES = 8
# Points times candidates that are tried at once: bounds the memory.
TRIALS_AT_ONCE = 2**20
# A point on an edge may miss both triangles by rounding.
INSIDE = -1e-12
# Weights below what files in single precision can tell from nothing.
ON_EDGE = 1e-7
# Weights well above those at which distances in single precision mistake the triangle (2e-4).
NEAR_EDGE = 1e-3
# Volumes of triangles without area, or on the far side of the sphere.
SMALLEST_VOLUME = 1e-15
# Workbench measures on a sphere of this radius.
RADIUS = np.float32(100)
TINY = float(np.finfo(np.float64).tiny)


def check_faces(faces: ArrayLike, n_vertices: int | None = None, argument: str = "faces") -> Ints:
    """Return triangles (F, 3), F > 0, of vertices that exist (None: of any vertices)."""
    triangles = np.asarray(faces)
    problem = None
    if triangles.ndim != 2 or triangles.shape[1] != 3 or len(triangles) == 0:
        problem = f"must have shape (F, 3) with F > 0; found shape {triangles.shape}"
    elif triangles.dtype.kind not in "iu":
        problem = f"must be vertex numbers (integers); found {triangles.dtype}"
    elif triangles.min() < 0 or (n_vertices is not None and triangles.max() >= n_vertices):
        limit = "0 or more" if n_vertices is None else f"0 to {n_vertices - 1}"
        numbers = f"{triangles.min()} to {triangles.max()}"
        problem = f"must be numbers of vertices, {limit}; found {numbers}"
    if problem is not None:
        raise ArgumentError(argument, problem)
    return triangles.astype(np.int64)


def locate_in_mesh(points: Floats, vertices: Floats, faces: Ints) -> tuple[Ints, Floats]:
    """Return the triangle (n,) of each point, and the weights (n, 3) of its corners.

    The triangle is the one that the ray from the centre through the point crosses; the weights, ≥ 0
    with sum 1, are those of the point of that triangle which is nearest in space, as Workbench has
    it. Each point gets a triangle: where none holds it (a folded mesh), the one that misses it
    least. Points on an edge, or nearly, take whichever triangle Workbench takes: see
    `_nearest_in_single`.

    Parameters
    ----------
    points : (n, 3), on a sphere about the origin, of any radius.
    vertices : (V, 3), on a sphere about the origin, of any radius.
    faces : (F, 3) triangles, with either orientation.
    """
    unit_points = points / np.linalg.norm(points, axis=1, keepdims=True)
    unit_vertices = vertices / np.linalg.norm(vertices, axis=1, keepdims=True)
    corners = unit_vertices[faces]
    tree = cKDTree(corners.mean(axis=1))
    triangle = _containing(unit_points, corners, tree)
    weights = nearest_weights(unit_points, corners[triangle])
    rows = np.flatnonzero(weights.min(axis=1) < NEAR_EDGE)
    single_points = _in_single(points)
    single_vertices = _in_single(vertices)
    n_candidates = min(FIRST_CANDIDATES, len(faces))
    for block in _blocks(rows, FIRST_CANDIDATES):
        # A range makes SciPy return two dimensions also for one candidate.
        nearest = tree.query(unit_points[block], k=range(1, 1 + n_candidates))[1]
        candidates = np.column_stack([triangle[block], nearest])
        best = _nearest_in_single(single_points[block, None], single_vertices[faces[candidates]])
        triangle[block] = candidates[np.arange(len(block)), best]
    weights[rows] = nearest_weights(unit_points[rows], corners[triangle[rows]])
    return triangle, weights


def _blocks(rows: Ints, n_candidates: int) -> list[Ints]:
    """Split rows with so many candidates each, so that not too many are tried at once."""
    return np.array_split(rows, 1 + len(rows) * n_candidates // TRIALS_AT_ONCE)


def _containing(points: Floats, corners: Floats, tree: cKDTree) -> Ints:
    """Return the triangle that holds each point, or misses it least."""
    triangle = np.zeros(len(points), dtype=np.int64)
    depth = np.full(len(points), -np.inf)
    waiting = np.arange(len(points))
    n_candidates = 0
    # The containing triangle is nearly always among the nearest centres; only the remaining points
    # need a wider search.
    while len(waiting) and n_candidates < len(corners):
        n_candidates = min(max(8 * n_candidates, FIRST_CANDIDATES), len(corners))
        for block in _blocks(waiting, n_candidates):
            near = tree.query(points[block], n_candidates)[1].reshape(len(block), n_candidates)
            smallest = _ray_weights(points[block, None], corners[near]).min(axis=-1)
            best = smallest.argmax(axis=1)
            rows = np.arange(len(block))
            is_better = smallest[rows, best] > depth[block]
            triangle[block[is_better]] = near[rows, best][is_better]
            depth[block[is_better]] = smallest[rows, best][is_better]
        waiting = waiting[depth[waiting] < INSIDE]
    return triangle


def _in_single(points: Floats) -> Singles:
    """Return points on a sphere of radius 100, each step rounded to single precision.

    These are the points that Workbench measures from.
    """
    single = points.astype(np.float32)
    return single * (RADIUS / np.sqrt(_dot(single, single)))[:, None]


def _nearest_in_single(points: Singles, corners: Singles) -> Ints:
    """Return which of several triangles (n, k, 3, 3) is nearest in space to each point (n, 1, 3).

    To two triangles that share the edge under a point the distances are the same up to the second
    order, so rounding to single precision chooses. Adaptive resampling asks whether a weight is
    there at all, however small: to give what Workbench gives, the choice must be made by the same
    distances, rounded alike.
    """
    a, b, c = np.moveaxis(corners, -2, 0)
    # Triangles may have no area.
    with np.errstate(divide="ignore", invalid="ignore"):
        normal = np.cross(b - a, c - a)
        normal /= np.sqrt(_dot(normal, normal))[..., None]
        foot = points - normal * _dot(points - a, normal)[..., None]
        is_above = np.ones(foot.shape[:-1], dtype=bool)
        rim_squared = np.full(foot.shape[:-1], np.inf, dtype=np.float32)
        for start, end in ((a, b), (b, c), (c, a)):
            edge = end - start
            is_above &= _dot(np.cross(edge, foot - start), normal) >= 0
            along = np.clip(_dot(points - start, edge) / _dot(edge, edge), 0, 1)
            to_edge = points - (start + along[..., None] * edge)
            rim_squared = np.fmin(rim_squared, _dot(to_edge, to_edge))
        to_foot = points - foot
        squared = np.where(is_above, _dot(to_foot, to_foot), rim_squared)
    return np.sqrt(squared).argmin(axis=-1)


def _dot(u: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    """Return inner products summed in this order; the order of a library would round otherwise."""
    products = u * v
    return np.asarray(products[..., 0] + products[..., 1] + products[..., 2])


def _ray_weights(points: Floats, corners: Floats) -> Floats:
    """Return barycentric coordinates (..., 3) of rays from the centre in planes of triangles.

    A coordinate below 0 means outside.
    """
    a, b, c = np.moveaxis(corners, -2, 0)
    normals = np.stack([np.cross(b, c), np.cross(c, a), np.cross(a, b)], axis=-2)
    volumes = np.sum(normals * points[..., None, :], axis=-1)
    total = np.sum(normals[..., 2, :] * c, axis=-1)[..., None]
    # On the far side of the sphere all weights are negative.
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = volumes / total
    return np.where(np.abs(total) > SMALLEST_VOLUME, weights, -np.inf)


def nearest_weights(points: Floats, corners: Floats) -> Floats:
    """Return weights (n, 3) of the point of each triangle (n, 3, 3) nearest to a point."""
    a = corners[:, 0]
    ab = corners[:, 1] - a
    ac = corners[:, 2] - a
    ap = points - a
    normal = np.cross(ab, ac)
    squared_area = np.sum(normal**2, axis=1)
    is_flat = squared_area <= 0
    squared_area[is_flat] = 1.0
    v = np.sum(np.cross(ap, ac) * normal, axis=1) / squared_area
    w = np.sum(np.cross(ab, ap) * normal, axis=1) / squared_area
    weights = np.stack([1 - v - w, v, w], axis=1)
    outside = np.flatnonzero((weights.min(axis=1) < 0) | is_flat)
    weights[outside] = _nearest_on_edges(points[outside], corners[outside])
    weights[weights < ON_EDGE] = 0.0
    return weights / weights.sum(axis=1, keepdims=True)


def _nearest_on_edges(points: Floats, corners: Floats) -> Floats:
    """Return the weights of the nearest point on the rim of each triangle."""
    best = np.full(len(points), np.inf)
    weights = np.zeros((len(points), 3))
    for i in range(3):
        j = (i + 1) % 3
        edge = corners[:, j] - corners[:, i]
        towards = points - corners[:, i]
        squared_length = np.maximum(np.sum(edge**2, axis=1), TINY)
        along = np.clip(np.sum(towards * edge, axis=1) / squared_length, 0, 1)
        distance = np.sum((towards - along[:, None] * edge) ** 2, axis=1)
        is_nearer = distance < best
        best[is_nearer] = distance[is_nearer]
        weights[is_nearer] = 0.0
        weights[is_nearer, i] = 1 - along[is_nearer]
        weights[is_nearer, j] = along[is_nearer]
    return weights
