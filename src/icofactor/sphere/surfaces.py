"""Surfaces, spheres, areas and regions from files, arrays or nilearn's meshes, checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import ArgumentError, FileError
from icofactor.io.freesurfer import read_geometry
from icofactor.io.gifti import read_gifti_surface
from icofactor.io.guard import naming
from icofactor.io.mni_obj import read_mni_obj
from icofactor.sphere.triangles import Floats, Ints, check_faces

# Radii of a sphere differ by this share at most.
SAME_RADIUS = 0.01
# Triangles cover a whole sphere up to this share.
WHOLE = 0.001


@dataclass(frozen=True, eq=False)
class Surface:
    """A triangle mesh and the name by which errors speak of it.

    Attributes
    ----------
    coordinates : (V, 3), in mm; as they came, also for a sphere
    faces : (F, 3) vertex numbers
    label : the file, or the argument it came by
    side : "left", "right", or None if the file does not say
    """

    coordinates: Floats
    faces: Ints
    label: str
    side: str | None = None

    @property
    def n(self) -> int:
        """Number of vertices."""
        return len(self.coordinates)


def as_surface(mesh: Any, argument: str) -> Surface:
    """Return a mesh from a file, a pair (coordinates, faces) or an object that has both."""
    if isinstance(mesh, Surface):
        return mesh
    if isinstance(mesh, str | Path):
        return _read(Path(mesh))
    if hasattr(mesh, "coordinates") and hasattr(mesh, "faces"):
        return _checked(mesh.coordinates, mesh.faces, None, argument)
    if isinstance(mesh, tuple | list) and len(mesh) == 2:
        return _checked(mesh[0], mesh[1], None, argument)
    raise ArgumentError(
        argument,
        "must be a surface file (.surf.gii or FreeSurfer's), a pair (coordinates, faces) or an "
        f"object with both; found a {type(mesh).__name__}",
    )


def read_surface(path: str | Path) -> tuple[Floats, Ints]:
    """Return coordinates and triangles of a GIFTI (.gii), MNI (.obj) or FreeSurfer surface file."""
    surface = _read(Path(path))
    return surface.coordinates, surface.faces


def _read(path: Path) -> Surface:
    _check_exists(path)
    with naming(path, "surface"):
        if path.name.endswith((".gii", ".gii.gz")):
            return _checked(*read_gifti_surface(path), str(path))
        read = read_mni_obj if path.name.endswith(".obj") else read_geometry
        coordinates, faces = read(path)
        return _checked(coordinates, faces, None, str(path))


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")


def _checked(coordinates: Any, faces: Any, side: str | None, label: str) -> Surface:
    if faces is None:
        raise FileError(label, "the faces are missing; a mesh is needed, not only points")
    points = np.asarray(coordinates, dtype=np.float64)
    try:
        check_points(points)
        return Surface(points, check_faces(faces, len(points)), label, side)
    except ArgumentError as error:
        raise FileError(label, f"{error.argument}: {error.message}") from None


def check_points(points: Floats) -> None:
    """Refuse what is not an array of finite points (n, 3), n > 0."""
    problem = None
    if points.ndim != 2 or points.shape[1] != 3 or len(points) == 0:
        problem = f"must be an array of shape (n, 3) with n > 0; found shape {points.shape}"
    elif not np.isfinite(points).all():
        bad = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        problem = f"must be finite; found {points[bad]} at vertex {bad}"
    if problem is not None:
        raise ArgumentError("coordinates", problem)


def sphere_problem(points: Floats) -> str | None:
    """Return how points differ from a sphere about the origin; None if they do not."""
    radii = np.linalg.norm(points, axis=1)
    radius = float(np.median(radii))
    if radii.min() > 0 and np.abs(radii - radius).max() <= SAME_RADIUS * radius:
        return None
    # |p|² = 2 p·c + (r² − |c|²) is linear in the centre c.
    system = np.column_stack([2 * points, np.ones(len(points))])
    centre = np.linalg.lstsq(system, radii**2, rcond=None)[0][:3]
    distances = np.linalg.norm(points - centre, axis=1)
    spread = np.abs(distances - distances.mean()).max()
    # A sphere goes through any four points.
    if len(points) > 4 and spread <= SAME_RADIUS * distances.mean():
        position = ", ".join(f"{x:.4g}" for x in centre)
        return f"a sphere about ({position}); move its centre to the origin first"
    return (
        f"distances from the origin from {radii.min():.6g} to {radii.max():.6g}. A white, pial or "
        "inflated surface does not work; pass the (registered) sphere of the same mesh"
    )


def as_sphere(mesh: Any, argument: str) -> Surface:
    """Return a mesh as `as_surface` does; it must be a whole sphere about the origin."""
    surface = as_surface(mesh, argument)
    problem = sphere_problem(surface.coordinates)
    if problem is not None:
        problem = f"is not a sphere about the origin; found {problem}"
    else:
        radii = np.linalg.norm(surface.coordinates, axis=1, keepdims=True)
        angles = _solid_angles(surface.coordinates / radii, surface.faces)
        covered = abs(float(angles.sum() / (4 * np.pi)))
        if abs(covered - 1) > WHOLE:
            problem = (
                f"its triangles cover the sphere {covered:.4g} times, not once; the mesh has holes "
                "or folds, or lists triangles twice or with mixed orientation"
            )
    if problem is not None:
        raise FileError(surface.label, problem)
    return surface


def _solid_angles(unit: Floats, faces: Ints) -> Floats:
    """Return the signed solid angle of each triangle (Van Oosterom and Strackee)."""
    a, b, c = np.moveaxis(unit[faces], 1, 0)
    volume = np.sum(np.cross(a, b) * c, axis=1)
    cosines = np.sum(a * b, axis=1) + np.sum(b * c, axis=1) + np.sum(c * a, axis=1)
    return 2 * np.arctan2(volume, 1 + cosines)


def as_values(values: Any, surface: Surface | int, argument: str) -> Floats:
    """Return one number per vertex, from an array or a GIFTI, MGH or FreeSurfer file.

    `surface` has the vertices, or is their number.
    """
    array = np.asarray(_read_values(Path(values)) if isinstance(values, str | Path) else values)
    n = surface if isinstance(surface, int) else surface.n
    if array.dtype.kind not in "fiub" or array.shape != (n,):
        mesh = "the mesh" if isinstance(surface, int) else surface.label
        raise FileError(
            _label(values, argument),
            f"must have one number for each of the {n} vertices of {mesh}; found {array.dtype} of "
            f"shape {array.shape}",
        )
    return array.astype(np.float64)


def _label(values: Any, argument: str) -> str:
    """Return the name by which errors speak of values: that of a file, or of the argument."""
    return str(values) if isinstance(values, str | Path) else argument


def _read_values(path: Path) -> Any:
    from icofactor.io.maps import read_maps

    _check_exists(path)
    maps = read_maps(path)
    if maps.n_maps != 1 or len(maps.parts) != 1:
        text = f"contains {maps.n_maps} maps of {len(maps.parts)} hemispheres, not one map"
        raise FileError(path, text)
    return next(iter(maps.parts.values()))[0]


def as_areas(values: Any, surface: Surface | int, argument: str) -> Floats:
    """Return vertex areas in mm²: finite, not negative, not all zero."""
    areas = as_values(values, surface, argument)
    wrong = np.flatnonzero(~np.isfinite(areas) | (areas < 0))
    problem = None
    if len(wrong):
        vertex = wrong[0]
        problem = f"areas must be finite and not negative; vertex {vertex} has {areas[vertex]}"
    elif not areas.any():
        problem = "all areas are zero"
    if problem is not None:
        raise FileError(_label(values, argument), problem)
    return areas


def as_roi(values: Any, surface: Surface, argument: str = "roi") -> NDArray[np.bool_] | None:
    """Return the vertices to use: where values are > 0, as Workbench has it. None is all."""
    if values is None:
        return None
    roi = as_values(values, surface, argument) > 0
    if not roi.any():
        text = "no vertex is in the region (no value is > 0)"
        raise FileError(_label(values, argument), text)
    return roi


def vertex_areas(coordinates: ArrayLike, faces: ArrayLike) -> Floats:
    """Area of each vertex in mm²: a third of each triangle around it, as in Workbench.

    Examples
    --------
    >>> import icofactor as ico
    >>> from icofactor.preprocessing import vertex_areas
    >>> sphere = ico.Sites.named("fsaverage3")
    >>> area = vertex_areas(sphere.coordinates, sphere.triangles).sum()
    >>> bool(abs(area / 12.566 - 1) < 0.02)  # 4π
    True
    """
    surface = as_surface((coordinates, faces), "surface")
    a, b, c = np.moveaxis(surface.coordinates[surface.faces], 1, 0)
    thirds = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 6
    areas = np.bincount(surface.faces.ravel(), np.repeat(thirds, 3), minlength=surface.n)
    return np.asarray(areas, dtype=np.float64)
