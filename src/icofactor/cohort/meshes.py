"""The mesh of a cohort, and maps that are in memory: arrays and images of nilearn."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.errors import ArgumentError, CohortError
from icofactor.maps.maps import is_dask_array
from icofactor.sphere.hierarchy import n_faces, n_nodes
from icofactor.sphere.meshes import fs_lr_sites, sites_for
from icofactor.sphere.names import MESHES, N_FS_LR, SIDES, hemispheres, is_fs_lr, mesh_name_of
from icofactor.sphere.sites import Sites

_LEVELS = [mesh.level for mesh in MESHES.values() if mesh.level is not None]
# Numbers of vertices and faces of both hemispheres of the meshes that have names.
_BOTH_SIDES = {2 * size for level in _LEVELS for size in (n_nodes(level), n_faces(level))}
_BOTH_SIDES.add(2 * N_FS_LR)
# A sphere's radius varies less than this; other surfaces vary more.
_ROUND = 0.01


def is_a_size(n: int) -> bool:
    """Whether a named mesh has so many vertices or faces, in one hemisphere or both."""
    return n in _BOTH_SIDES or 2 * n in _BOTH_SIDES


def hemisphere_of(sides: Collection[str]) -> str:
    """Return "both" for two sides, the side for one, "" for none."""
    return "both" if len(sides) == 2 else next(iter(sides), "")


@dataclass(frozen=True, eq=False)
class Mesh:
    """What is known of the mesh before the maps are read.

    Attributes
    ----------
    given : None, a name, Sites (of one or both hemispheres), or a pair of Sites (left, right).
    """

    given: str | Sites | tuple[Sites, Sites] | None = None

    @classmethod
    def read(cls, mesh: Any) -> Mesh:
        """Return the mesh for a name, Sites, a sphere file, or a pair of these."""
        if isinstance(mesh, tuple | list) and len(mesh) == 2:
            left, right = map(_sites_of, mesh)
            return cls((left, right))
        if mesh is None or isinstance(mesh, Sites):
            return cls(mesh)
        if not is_name(mesh):
            return cls(_sites_of(mesh))
        if is_fs_lr(mesh):
            return cls((fs_lr_sites("left"), fs_lr_sites("right")))
        if mesh.lower().replace("_", "").startswith("fslr"):
            text = f"is known by name for fsLR32k only; for {mesh} pass the sphere files"
            raise ArgumentError("mesh", f"{text} *.sphere.*_fs_LR.surf.gii (left, right)")
        Sites.named(mesh)
        return cls(mesh)

    def split(self, n: int) -> int | None:
        """Return the number of left columns if n columns are both hemispheres, else None."""
        if isinstance(self.given, tuple):
            n_left = self.given[0].n
            return n_left if n == n_left + self.given[1].n else None
        if isinstance(self.given, Sites) and self.given.n_roots == 20:
            # The file has both hemispheres, of which one may be requested.
            return self.given.n if n == 2 * self.given.n else None
        if isinstance(self.given, Sites):
            return int((self.given.hemisphere == 0).sum()) if n == self.given.n else None
        return n // 2 if n in _BOTH_SIDES else None

    def wanted(self, side: str) -> list[int]:
        """Return how many sites a map of one hemisphere may have; none for an unknown mesh."""
        if self.given is None:
            return []
        # A name stands for the vertices or the faces of a mesh.
        if isinstance(self.given, str):
            level = _level(self.given)
            return [n_nodes(level), n_faces(level)]
        if isinstance(self.given, tuple):
            return [self.given[side == "right"].n]
        if self.given.n_roots == 40:
            return [int((self.given.hemisphere == (side == "right")).sum())]
        return [self.given.n]

    def __str__(self) -> str:
        if isinstance(self.given, tuple):
            return mesh_name_of(self.given[0])
        return mesh_name_of(self.given) if isinstance(self.given, Sites) else str(self.given)

    def sites(self, widths: Mapping[str, int]) -> Sites:
        """Return the sites of the maps, left first.

        Parameters
        ----------
        widths : hemisphere → number of sites of its maps.
        """
        hemi = hemisphere_of(widths)
        mesh: Any = self.given
        if mesh is None and set(widths.values()) == {N_FS_LR}:
            # No other mesh has so many vertices.
            mesh = (fs_lr_sites("left"), fs_lr_sites("right"))
        if isinstance(mesh, tuple) and hemi != "both":
            mesh = mesh[hemi == "right"]
        elif isinstance(mesh, Sites) and mesh.n_roots == 20 and hemi == "both":
            text = "is one hemisphere, but the maps are of both: pass the pair (left, right), or "
            raise CohortError("mesh", f"{text}--hemisphere left (hemisphere='left')")
        try:
            return sites_for(sum(widths.values()), mesh, hemi, "The maps have")[0]
        except ArgumentError as error:
            # `load_cohort` calls the hemisphere by its whole name.
            argument = "hemisphere" if error.argument == "hemi" else error.argument
            raise CohortError(argument, str(error.message)) from None


@cache
def _level(name: str) -> int:
    """Return the level of a named mesh, which is asked for with every file."""
    return Sites.named(name).max_level


def is_name(mesh: Any) -> bool:
    """Whether a mesh is given by its name, not by a file."""
    is_text = isinstance(mesh, str) and "/" not in mesh and not mesh.endswith(".gii")
    return is_text and not Path(mesh).is_file()


def _sites_of(mesh: Any) -> Sites:
    """Return the sites of one hemisphere."""
    if isinstance(mesh, Sites):
        return mesh
    if is_name(mesh):
        return Sites.named(mesh)
    if isinstance(mesh, str | os.PathLike):
        return Sites.from_file(Path(mesh).expanduser())
    text = "must be a name, Sites, a sphere file or a pair of these"
    raise ArgumentError("mesh", f"{text}; found {type(mesh).__name__}")


def check_array(X: Any) -> Any:
    """Return X as a numeric array of subjects × sites; memmaps and dask arrays stay as they are."""
    is_array = hasattr(X, "shape") and isinstance(getattr(X, "dtype", None), np.dtype)
    if not hasattr(X, "tocsr") and (not is_array or hasattr(X, "iloc")):
        try:
            X = np.asarray(X)
        except ValueError:
            # Rows of different lengths: an array of objects, which is reported as such.
            X = np.asarray(X, dtype=object)
    problem = _problem_of_array(X)
    if problem:
        raise ArgumentError("X", problem)
    return X


def _problem_of_array(X: Any) -> str:
    """Say why X is no numeric array of subjects × sites, "" if it is."""
    if hasattr(X, "tocsr"):
        return "must be a dense array; found a sparse matrix, use X.toarray()"
    if isinstance(X, np.ma.MaskedArray):
        return "is a masked array, whose mask would be lost; use X.filled(np.nan) and pass mask="
    # Booleans are masks, not maps.
    kind = np.dtype(X.dtype).kind
    if kind not in "fiu":
        # scikit-learn's checks look for this phrase.
        text = "Complex data not supported: " if kind == "c" else ""
        return f"{text}X must contain real numbers; found dtype {X.dtype}"
    if is_dask_array(X) and any(size != size for sizes in X.chunks for size in sizes):
        return "has chunks of unknown size: call X.compute_chunk_sizes() first"
    if len(X.shape) != 2:
        hint = ". Reshape your data: one map is X.reshape(1, -1)" if len(X.shape) == 1 else ""
        text = f"must have two dimensions, subjects × sites; found shape {tuple(X.shape)}"
        return text + hint
    return ""


def read_image(
    image: Any,
    mesh: Any,
    hemi: str | None,
) -> tuple[np.ndarray, Sites, str]:
    """Return maps, sites and hemisphere of a nilearn SurfaceImage.

    Parameters
    ----------
    mesh : of the image; None takes it from the triangles of the image.
    """
    parts = image.data.parts
    present = [side for side in SIDES if side in parts]
    hemi = hemi or ("both" if len(present) == 2 else present[0])
    sides = hemispheres(hemi)
    if not set(sides) <= set(present):
        text = f"is {hemi!r}, but the SurfaceImage contains only {', '.join(present)}"
        raise ArgumentError("hemi", text)
    halves = [np.asarray(parts[side]) for side in sides]
    # nilearn has one column per map, a cohort one row.
    X = np.concatenate([half.reshape(len(half), -1) for half in halves]).T
    if mesh is None:
        sites_of = [_sites_of_polymesh(image.mesh.parts[side], side) for side in sides]
        sites = Sites.both(*sites_of) if hemi == "both" else sites_of[0]
    else:
        sites, _ = sites_for(X.shape[1], mesh, hemi)
        _check_same_triangles(image, sides, sites)
    return check_array(X), sites, hemi


def join_images(images: Sequence[Any]) -> Any:
    """Return images of one person each as one image; all must be on the mesh of the first."""
    from nilearn.image import concat_imgs

    sizes = [{side: len(part) for side, part in image.data.parts.items()} for image in images]
    for number, size in enumerate(sizes):
        if size != sizes[0]:
            text = f"image {number} has other numbers of vertices {size} than image 0 {sizes[0]}"
            raise CohortError("paths", f"{text}; resample them to one mesh")
    return concat_imgs(list(images))


def _check_same_triangles(
    image: Any,
    sides: Sequence[str],
    sites: Sites,
) -> None:
    """Raise an error for an image whose vertices are in another order than the sites."""
    if sites.triangles is None or sites.on != "vertices":
        return
    for side in sides:
        triangles = np.asarray(image.mesh.parts[side].faces)
        if not np.array_equal(_sorted_rows(triangles), _sorted_rows(sites.triangles)):
            text = f"{sites!r} has other triangles than the {side} mesh of the SurfaceImage"
            raise ArgumentError("mesh", f"{text}: resample the image first")


def _sorted_rows(triangles: Any) -> np.ndarray:
    """Return triangles in an order that does not depend on how they are listed."""
    return np.unique(np.sort(triangles, axis=1), axis=0)


def _sites_of_polymesh(
    surface: Any,
    side: str,
) -> Sites:
    """Return the sites of one hemisphere of an image, from its sphere or its triangles."""
    coordinates = np.asarray(surface.coordinates, dtype=np.float64)
    faces = np.asarray(surface.faces)
    radii = np.linalg.norm(coordinates, axis=1)
    # Spheres of FreeSurfer have a radius of 100, others of 1.
    if radii.min() > 0 and np.ptp(radii) <= _ROUND * radii.max():
        return Sites.from_sphere(coordinates, faces)
    try:
        return Sites.from_topology(faces)
    except ValueError:
        text = f"the {side} mesh of the SurfaceImage ({len(coordinates)} vertices) is neither a "
        remedy = "pass mesh=Sites.from_file(the sphere registered with it)"
        raise ArgumentError("mesh", f"{text}sphere nor icosahedral; {remedy}") from None
