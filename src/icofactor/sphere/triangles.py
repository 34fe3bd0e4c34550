"""In which triangle of a spherical mesh a point lies, and at which barycentric position."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from icofactor.errors import ArgumentError, Phrase

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Singles = NDArray[np.float32]
_FIRST_CANDIDATES = 8
_TRIALS_AT_ONCE = 2**20
_INSIDE = -1e-12  # a point on an edge may miss both triangles by rounding
_ON_EDGE = 1e-7  # below what single precision files can tell from nothing
_NEAR_EDGE = 1e-3  # weights, well above those at which distances in single precision mistake the triangle (2e-4)
_RADIUS = np.float32(100)


def check_faces(faces: ArrayLike, n_vertices: int | None = None, argument: str = "faces") -> Ints:
    """Triangles (F, 3), F > 0, of vertices that exist; any vertex does where their number is not
    given.
    """
    found = np.asarray(faces)
    if found.ndim != 2 or found.shape[1] != 3 or len(found) == 0 or found.dtype.kind not in "iu":
        what = Phrase(f"{found.dtype} of shape {found.shape}")
        raise ArgumentError(argument, what, "vertex numbers (integers) of shape (F, 3) with F > 0")
    low, high = int(found.min()), int(found.max())
    if low < 0 or (n_vertices is not None and high >= n_vertices):
        allowed = "0 or more" if n_vertices is None else f"0 to {n_vertices - 1}"
        raise ArgumentError(argument, Phrase(f"{low} to {high}"), f"numbers of vertices, {allowed}")
    return found.astype(np.int64)


def locate_in_mesh(points: Floats, vertices: Floats, faces: Ints) -> tuple[Ints, Floats]:
    """Triangle (n,) of each point, and the weights (n, 3) of its corners, ≥ 0 with sum 1.

    The triangle is the one that the ray from the centre through the point crosses; the weights are
    those of the
    point of that triangle which is nearest in space, as Workbench has it. Each point gets a
    triangle: where none
    holds it (a folded mesh), the one that misses it least. Points on an edge, or nearly, take
    whichever triangle Workbench takes: see `_nearest_in_single`.

    Parameters
    ----------
    points : (n, 3), on a sphere about the origin, of any radius.
    vertices : (V, 3), on a sphere about the origin, of any radius.
    faces : (F, 3) triangles, with either orientation.
    """
    single = _in_single(points), _in_single(vertices)
    points, vertices = (
        given / np.linalg.norm(given, axis=1, keepdims=True) for given in (points, vertices)
    )
    corners = vertices[faces]
    tree = cKDTree(corners.mean(axis=1))
    found = np.zeros(len(points), dtype=np.int64)
    depth = np.full(len(points), -np.inf)
    waiting = np.arange(len(points))
    candidates = 0
    # the containing triangle is nearly always among the nearest centres; only the rest needs a
    # wider look
    while len(waiting) and candidates < len(faces):
        candidates = min(max(8 * candidates, _FIRST_CANDIDATES), len(faces))
        for some in np.array_split(waiting, 1 + len(waiting) * candidates // _TRIALS_AT_ONCE):
            near = tree.query(points[some], candidates)[1].reshape(len(some), candidates)
            inside = _ray_weights(points[some, None], corners[near]).min(axis=-1)
            best = inside.argmax(axis=1)
            rows = np.arange(len(some))
            better = inside[rows, best] > depth[some]
            found[some[better]] = near[rows, best][better]
            depth[some[better]] = inside[rows, best][better]
        waiting = waiting[depth[waiting] < _INSIDE]
    weights = nearest_weights(points, corners[found])
    rows = np.flatnonzero(weights.min(axis=1) < _NEAR_EDGE)
    for some in np.array_split(rows, 1 + len(rows) * _FIRST_CANDIDATES // _TRIALS_AT_ONCE):
        others = tree.query(points[some], k=range(1, 1 + min(_FIRST_CANDIDATES, len(faces))))[1]
        near = np.column_stack([found[some], others])
        best = _nearest_in_single(single[0][some, None], single[1][faces[near]])
        found[some] = near[np.arange(len(some)), best]
    weights[rows] = nearest_weights(points[rows], corners[found[rows]])
    return found, weights


def _in_single(points: Floats) -> Singles:
    """Points on a sphere of radius 100, each step rounded to single precision: those that Workbench
    measures from.
    """
    given = points.astype(np.float32)
    return given * (_RADIUS / np.sqrt(_dot(given, given)))[:, None]


def _nearest_in_single(points: Singles, corners: Singles) -> Ints:
    """Which of several triangles (n, k, 3, 3) is nearest in space to each point (n, 1, 3), in
    single precision.

    To two triangles that share the edge under a point the distances are the same up to the second
    order, so rounding chooses. Adaptive resampling asks whether a weight is there at all, however
    small: to give what Workbench
    gives, the choice must be made by the same distances, rounded alike.
    """
    a, b, c = np.moveaxis(corners, -2, 0)
    with np.errstate(divide="ignore", invalid="ignore"):  # triangles without area
        normal = np.cross(b - a, c - a)
        normal /= np.sqrt(_dot(normal, normal))[..., None]
        foot = points - normal * _dot(points - a, normal)[..., None]
        above = np.ones(foot.shape[:-1], dtype=bool)
        to_rim = np.full(foot.shape[:-1], np.inf, dtype=np.float32)
        for start, end in ((a, b), (b, c), (c, a)):
            edge = end - start
            above &= _dot(np.cross(edge, foot - start), normal) >= 0
            along = np.clip(_dot(points - start, edge) / _dot(edge, edge), 0, 1)
            to_edge = points - (start + along[..., None] * edge)
            to_rim = np.fmin(to_rim, _dot(to_edge, to_edge))
        to_foot = points - foot
        squared = np.where(above, _dot(to_foot, to_foot), to_rim)
    return np.sqrt(squared).argmin(axis=-1)


def _dot(u: NDArray[Any], v: NDArray[Any]) -> NDArray[Any]:
    """Inner products, summed in the order written: a library's order would round otherwise."""
    return np.asarray(u[..., 0] * v[..., 0] + u[..., 1] * v[..., 1] + u[..., 2] * v[..., 2])


def _ray_weights(points: Floats, corners: Floats) -> Floats:
    """Barycentric coordinates (..., 3) of where rays from the centre cross triangles' planes; < 0:
    not inside.
    """
    a, b, c = np.moveaxis(corners, -2, 0)
    volumes = np.stack(
        [np.sum(np.cross(u, v) * points, axis=-1) for u, v in ((b, c), (c, a), (a, b))], axis=-1
    )
    whole = np.sum(np.cross(a, b) * c, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = volumes / whole[..., None]  # all negative on the far side of the sphere
    return np.where(np.abs(whole)[..., None] > 1e-15, weights, -np.inf)


def nearest_weights(points: Floats, corners: Floats) -> Floats:
    """Barycentric weights (n, 3) of the point of each triangle (n, 3, 3) nearest to each point (n,
    3).
    """
    a = corners[:, 0]
    ab, ac, ap = corners[:, 1] - a, corners[:, 2] - a, points - a
    normal = np.cross(ab, ac)
    square = np.sum(normal**2, axis=1)
    flat = square <= 0
    square[flat] = 1.0
    v = np.sum(np.cross(ap, ac) * normal, axis=1) / square
    w = np.sum(np.cross(ab, ap) * normal, axis=1) / square
    weights = np.stack([1 - v - w, v, w], axis=1)
    outside = np.flatnonzero((weights.min(axis=1) < 0) | flat)
    weights[outside] = _nearest_on_edges(points[outside], corners[outside])
    weights[weights < _ON_EDGE] = 0.0
    return weights / weights.sum(axis=1, keepdims=True)


def _nearest_on_edges(points: Floats, corners: Floats) -> Floats:
    """As `nearest_weights`, for points whose nearest point is on the rim of the triangle."""
    best = np.full(len(points), np.inf)
    weights = np.zeros((len(points), 3))
    for i in range(3):
        j = (i + 1) % 3
        edge, towards = corners[:, j] - corners[:, i], points - corners[:, i]
        length = np.maximum(np.sum(edge**2, axis=1), np.finfo(np.float64).tiny)
        along = np.clip(np.sum(towards * edge, axis=1) / length, 0, 1)
        distance = np.sum((towards - along[:, None] * edge) ** 2, axis=1)
        nearer = distance < best
        best[nearer] = distance[nearer]
        weights[nearer] = 0.0
        weights[nearer, i] = 1 - along[nearer]
        weights[nearer, j] = along[nearer]
    return weights
