"""Surfaces, spheres, areas and regions from files, arrays or nilearn's meshes, checked; and
distances along them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import ArgumentError, FileError, Phrase, literal
from icofactor.io.freesurfer import read_geometry
from icofactor.io.gifti import read_gifti_surface
from icofactor.io.guard import naming
from icofactor.io.mni_obj import read_mni_obj
from icofactor.sphere.triangles import Floats, Ints, check_faces

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
        return _read(Path(given))
    if hasattr(given, "coordinates") and hasattr(given, "faces"):
        return _checked(given.coordinates, given.faces, None, argument)
    if isinstance(given, tuple | list) and len(given) == 2:
        return _checked(given[0], given[1], None, argument)
    expected = "a surface file (.surf.gii or FreeSurfer's), a pair (coordinates, faces) or an object with both"
    raise ArgumentError(argument, Phrase(type(given).__name__), expected)


def read_surface(path: str | Path) -> tuple[Floats, Ints]:
    """Coordinates (V, 3) and triangles (F, 3) of a GIFTI (.gii), MNI (.obj) or FreeSurfer surface
    file.
    """
    found = _read(Path(path))
    return found.coordinates, found.faces


def _read(path: Path) -> Surface:
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    with naming(path, "surface"):
        if path.name.endswith((".gii", ".gii.gz")):
            return _checked(*read_gifti_surface(path), str(path))
        if path.name.endswith(".obj"):
            return _checked(*read_mni_obj(path), None, str(path))
        return _checked(*read_geometry(path), None, str(path))


def sphere_problem(points: Floats) -> str | None:
    """What points are that do not lie on a sphere about the origin; None where they do."""
    radii = np.linalg.norm(points, axis=1)
    middle = float(np.median(radii))
    if radii.min() > 0 and np.abs(radii - middle).max() <= _SAME_RADIUS * middle:
        return None
    # |p|² = 2 p·c + (r² − |c|²) is linear in the centre c
    system = np.column_stack([2 * points, np.ones(len(points))])
    centre = np.linalg.lstsq(system, radii**2, rcond=None)[0][:3]
    about = np.linalg.norm(points - centre, axis=1)
    if len(points) > 4 and np.abs(about - about.mean()).max() <= _SAME_RADIUS * about.mean():
        place = ", ".join(f"{x:.4g}" for x in centre)
        return f"a sphere about ({place}); move its centre to the origin first"
    return (
        f"distances from the origin from {radii.min():.6g} to {radii.max():.6g}. A white, pial or inflated surface "
        "does not work; pass the (registered) sphere of the same mesh"
    )


def as_sphere(given: Any, argument: str) -> Surface:
    """A mesh as `as_surface`, checked to be a whole sphere about the origin, of any radius."""
    surface = as_surface(given, argument)
    if problem := sphere_problem(surface.coordinates):
        raise FileError(surface.label, f"is not a sphere about the origin; found {problem}")
    unit = surface.coordinates / np.linalg.norm(surface.coordinates, axis=1, keepdims=True)
    covered = float(_solid_angles(unit, surface.faces).sum() / (4 * np.pi))
    if abs(abs(covered) - 1) > _WHOLE:
        raise FileError(
            surface.label,
            f"its triangles cover the sphere {abs(covered):.4g} times, not once; the mesh has holes or folds, or "
            "lists triangles twice or with mixed orientation",
        )
    return surface


def as_values(given: Any, surface: Surface | int, argument: str) -> Floats:
    """One number per vertex of a surface, or of a mesh of so many, from an array or a GIFTI, MGH or
    FreeSurfer file.
    """
    path = Path(given) if isinstance(given, str | Path) else None
    label = argument if path is None else str(path)
    values = np.asarray(given if path is None else _read_values(path))
    if values.dtype.kind not in "fiub":
        raise FileError(label, f"must contain numbers; found {values.dtype}")
    n, mesh = (
        (surface, "the mesh") if isinstance(surface, int) else (surface.n, literal(surface.label))
    )
    if values.shape != (n,):
        raise FileError(label, f"has shape {values.shape}; {mesh} has {n} vertices")
    return values.astype(np.float64)


def as_areas(given: Any, surface: Surface | int, argument: str) -> Floats:
    """Vertex areas in mm²: finite, not negative, not all zero."""
    areas = as_values(given, surface, argument)
    label = str(given) if isinstance(given, str | Path) else argument
    wrong = np.flatnonzero(~np.isfinite(areas) | (areas < 0))
    if len(wrong):
        raise FileError(
            label, f"areas must be finite and not negative; vertex {wrong[0]} has {areas[wrong[0]]}"
        )
    if not areas.any():
        raise FileError(label, "all areas are zero")
    return areas


def as_roi(given: Any, surface: Surface, argument: str = "roi") -> NDArray[np.bool_] | None:
    """The vertices to use: where the values are > 0, as Workbench has it. None is all."""
    if given is None:
        return None
    roi = as_values(given, surface, argument) > 0
    if not roi.any():
        label = str(given) if isinstance(given, str | Path) else argument
        raise FileError(label, "no vertex is in the region (no value is > 0)")
    return roi


def vertex_areas(coordinates: ArrayLike, faces: ArrayLike) -> Floats:
    """Area of each vertex in mm²: a third of each triangle around it, as in Workbench.

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


def _checked(coordinates: Any, faces: Any, side: str | None, label: str) -> Surface:
    if faces is None:
        raise FileError(label, "the faces are missing; a mesh is needed, not only points")
    points = np.asarray(coordinates, dtype=np.float64)
    try:
        check_points(points)
        return Surface(points, check_faces(faces, len(points)), label, side)
    except ArgumentError as problem:
        raise FileError(label, problem.describe()) from None


def check_points(points: Floats) -> None:
    """Refuse what is not an array of finite points (n, 3), n > 0."""
    if points.ndim != 2 or points.shape[1] != 3 or len(points) == 0:
        raise ArgumentError(
            "coordinates", Phrase(f"shape {points.shape}"), "an array of shape (n, 3) with n > 0"
        )
    if not np.isfinite(points).all():
        bad = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise ArgumentError("coordinates", Phrase(f"{points[bad]} at vertex {bad}"), "finite")


def _solid_angles(unit: Floats, faces: Ints) -> Floats:
    """Signed solid angle of each triangle, seen from the centre (Van Oosterom and Strackee)."""
    a, b, c = np.moveaxis(unit[faces], 1, 0)
    volume = np.sum(np.cross(a, b) * c, axis=1)
    return 2 * np.arctan2(
        volume, 1 + np.sum(a * b, axis=1) + np.sum(b * c, axis=1) + np.sum(c * a, axis=1)
    )


def _read_values(path: Path) -> Any:
    from icofactor.io.maps import read_maps

    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    maps = read_maps(path)
    if maps.n_maps != 1 or len(maps.parts) != 1:
        raise FileError(
            path,
            f"contains {maps.n_maps} maps of {len(maps.parts)} hemispheres, not one value per vertex",
        )
    return next(iter(maps.parts.values()))[0]
