"""Surfaces, spheres, areas and regions from files, arrays or nilearn's meshes; checked, and named in errors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import FileError
from icofactor.io.surfaces import read_surface_and_side
from icofactor.sphere.triangles import Floats, Ints

_SAME_RADIUS = 0.01
_WHOLE = 0.001


@dataclass(frozen=True, eq=False)
class Surface:
    """A triangle mesh and the name by which errors speak of it.

    Attributes
    ----------
    coordinates : (V, 3), in mm; as they came, also for a sphere.
    faces : (F, 3) vertex numbers.
    label : the file, or the argument it came by.
    side : "left", "right", or None when the file does not say.
    """

    coordinates: Floats
    faces: Ints
    label: str
    side: str | None = None

    @property
    def n(self) -> int:
        """Number of vertices."""
        return len(self.coordinates)


def as_surface(given: Any, argument: str) -> Surface:
    """A mesh from a file, a pair (coordinates, faces) or an object that has both as attributes."""
    if isinstance(given, Surface):
        return given
    if isinstance(given, str | Path):
        coordinates, faces, side = read_surface_and_side(given)
        return _checked(coordinates, faces, str(given), side)
    if hasattr(given, "coordinates") and hasattr(given, "faces"):
        return _checked(given.coordinates, given.faces, argument)
    if isinstance(given, tuple | list) and len(given) == 2:
        return _checked(given[0], given[1], argument)
    raise ValueError(
        f"{argument} must be a surface file (.surf.gii or FreeSurfer's), a pair (coordinates, faces) or an object "
        f"with these attributes; got {type(given).__name__}"
    )


def as_sphere(given: Any, argument: str) -> Surface:
    """A mesh as `as_surface`, checked to be a whole sphere about the origin, of any radius."""
    surface = as_surface(given, argument)
    radii = np.linalg.norm(surface.coordinates, axis=1)
    middle = float(np.median(radii))
    if radii.min() <= 0 or np.abs(radii - middle).max() > _SAME_RADIUS * middle:
        raise ValueError(f"{surface.label}: {_why_no_sphere(surface.coordinates, radii)}")
    unit = surface.coordinates / radii[:, None]
    covered = float(_solid_angles(unit, surface.faces).sum() / (4 * np.pi))
    if abs(abs(covered) - 1) > _WHOLE:
        raise ValueError(
            f"{surface.label}: its triangles cover the sphere {abs(covered):.4g} times, not once; "
            "the mesh has holes or folds, or lists triangles twice or with mixed orientation"
        )
    return surface


def as_values(given: Any, surface: Surface, argument: str) -> Floats:
    """One number per vertex of a surface, from an array or a GIFTI, MGH or FreeSurfer file."""
    path = Path(given) if isinstance(given, str | Path) else None
    label = argument if path is None else str(path)
    values = np.asarray(given if path is None else _read_values(path))
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{label} must hold numbers; found {values.dtype}")
    if values.shape != (surface.n,):
        raise ValueError(f"{surface.label} has {surface.n} vertices; {label} has shape {values.shape}")
    return values.astype(np.float64)


def as_areas(given: Any, surface: Surface, argument: str) -> Floats:
    """Vertex areas in mm²: finite, not negative, not all zero."""
    areas = as_values(given, surface, argument)
    label = str(given) if isinstance(given, str | Path) else argument
    wrong = np.flatnonzero(~np.isfinite(areas) | (areas < 0))
    if len(wrong):
        raise ValueError(f"{label}: areas must be finite and not negative; vertex {wrong[0]} has {areas[wrong[0]]}")
    if not areas.any():
        raise ValueError(f"{label}: all areas are zero")
    return areas


def as_roi(given: Any, surface: Surface, argument: str = "roi") -> NDArray[np.bool_] | None:
    """The vertices to use: where the values are > 0, as Workbench has it. None is all."""
    if given is None:
        return None
    roi = as_values(given, surface, argument) > 0
    if not roi.any():
        label = str(given) if isinstance(given, str | Path) else argument
        raise ValueError(f"{label}: no vertex is in the region (no value is > 0)")
    return roi


def vertex_areas(coordinates: ArrayLike, faces: ArrayLike) -> Floats:
    """Area (V,) of each vertex in mm²: a third of each triangle around it, as Workbench has it.

    Examples
    --------
    >>> import icofactor as ico
    >>> from icofactor.preprocessing import vertex_areas
    >>> sphere = ico.Sites.named("fsaverage3")
    >>> bool(abs(vertex_areas(sphere.coordinates, sphere.triangles).sum() / 12.566 - 1) < 0.02)  # 4π
    True
    """
    surface = as_surface((coordinates, faces), "surface")
    a, b, c = np.moveaxis(surface.coordinates[surface.faces], 1, 0)
    thirds = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 6
    areas = np.bincount(surface.faces.ravel(), np.repeat(thirds, 3), minlength=surface.n)
    return np.asarray(areas, dtype=np.float64)


def _checked(coordinates: Any, faces: Any, label: str, side: str | None = None) -> Surface:
    if faces is None:
        raise ValueError(f"{label}: the faces are missing; a mesh is needed, not only points")
    points, triangles = np.asarray(coordinates, dtype=np.float64), np.asarray(faces)
    if points.ndim != 2 or points.shape[1] != 3 or len(points) == 0:
        raise ValueError(f"{label}: coordinates must have shape (vertices, 3); got {points.shape}")
    if not np.isfinite(points).all():
        bad = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise ValueError(f"{label}: coordinates must be finite; those of vertex {bad} are {points[bad]}")
    if triangles.ndim != 2 or triangles.shape[1] != 3 or len(triangles) == 0 or triangles.dtype.kind not in "iu":
        raise ValueError(f"{label}: faces must be integers of shape (F, 3); got {triangles.dtype} {triangles.shape}")
    low, high = int(triangles.min()), int(triangles.max())
    if low < 0 or high >= len(points):
        raise ValueError(f"{label} has {len(points)} vertices; its faces name vertices {low} to {high}")
    return Surface(points, triangles.astype(np.int64), label, side)


def _why_no_sphere(points: Floats, radii: Floats) -> str:
    """A sphere elsewhere, or no sphere at all."""
    # |p|² = 2 p·c + (r² − |c|²) is linear in the centre c
    system = np.column_stack([2 * points, np.ones(len(points))])
    solution, *_ = np.linalg.lstsq(system, radii**2, rcond=None)
    centre = solution[:3]
    about = np.linalg.norm(points - centre, axis=1)
    if np.abs(about - about.mean()).max() <= _SAME_RADIUS * about.mean():
        place = ", ".join(f"{x:.4g}" for x in centre)
        return f"is a sphere about ({place}), not about the origin; move its centre to the origin first"
    return (
        f"is not a sphere: distances from the origin run from {radii.min():.6g} to {radii.max():.6g}. A white, pial "
        "or inflated surface will not do; pass the (registered) sphere of the same mesh"
    )


def _solid_angles(unit: Floats, faces: Ints) -> Floats:
    """Signed solid angle of each triangle, seen from the centre (Van Oosterom and Strackee)."""
    a, b, c = np.moveaxis(unit[faces], 1, 0)
    volume = np.sum(np.cross(a, b) * c, axis=1)
    return 2 * np.arctan2(volume, 1 + np.sum(a * b, axis=1) + np.sum(b * c, axis=1) + np.sum(c * a, axis=1))


def _read_values(path: Path) -> Any:
    from icofactor.io.maps import read_maps

    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    maps = read_maps(path)
    if maps.n_maps != 1 or len(maps.parts) != 1:
        raise FileError(f"{path}: holds {maps.n_maps} maps of {len(maps.parts)} hemispheres, not one value per vertex")
    return next(iter(maps.parts.values()))[0]
