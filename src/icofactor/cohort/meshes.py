"""The mesh of a cohort: as given, as names or numbers of vertices tell; and maps that are held in
memory already.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.errors import ArgumentError, CohortError, Phrase, literal
from icofactor.maps.maps import is_dask_array
from icofactor.sphere.hierarchy import n_faces, n_nodes
from icofactor.sphere.meshes import fs_lr_sites, sites_for
from icofactor.sphere.names import MESHES, N_FS_LR, SIDES, hemispheres, is_fs_lr, mesh_name_of
from icofactor.sphere.sites import Sites

_LEVELS = [mesh.level for mesh in MESHES.values() if mesh.level is not None]
_DOUBLE = {2 * n for level in _LEVELS for n in (n_nodes(level), n_faces(level))} | {2 * N_FS_LR}


def is_a_size(n: int) -> bool:
    """Whether a mesh that is known by name has so many vertices or faces, in one hemisphere or
    both.
    """
    return n in _DOUBLE or 2 * n in _DOUBLE


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
        """From what the user gives: a name, Sites, a sphere file, or a pair of these."""
        if isinstance(mesh, tuple | list):
            if len(mesh) != 2:
                raise ArgumentError(
                    "mesh", Phrase(str(len(mesh))), "one mesh or a pair (left, right)"
                )
            left, right = (_sites(one) for one in mesh)
            return cls((left, right))
        if mesh is None or isinstance(mesh, Sites):
            return cls(mesh)
        if is_name(mesh):
            if is_fs_lr(mesh):
                return cls((fs_lr_sites("left"), fs_lr_sites("right")))
            if mesh.lower().replace("_", "").startswith("fslr"):
                raise ArgumentError(
                    "mesh",
                    mesh,
                    "known by name, as of fs_LR only fsLR32k is: pass its sphere file *.sphere.*_fs_LR.surf.gii, or "
                    "for both hemispheres the pair (left, right)",
                )
            Sites.named(mesh)
            return cls(mesh)
        return cls(_sites(mesh))

    def split(self, n: int) -> int | None:
        """Number of left columns when n columns are both hemispheres; None when they are one."""
        if isinstance(self.given, tuple):
            return self.given[0].n if n == self.given[0].n + self.given[1].n else None
        if isinstance(self.given, Sites):
            if (
                self.given.n_roots == 20
            ):  # a file of both hemispheres, of which one may be asked for
                return self.given.n if n == 2 * self.given.n else None
            return int((self.given.hemisphere == 0).sum()) if n == self.given.n else None
        return n // 2 if n in _DOUBLE else None

    def wanted(self, side: str) -> list[int]:
        """Numbers of sites that a map of one hemisphere may have; none when the mesh is not known."""
        if self.given is None:
            return []
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

    def sites(self, widths: dict[str, int]) -> Sites:
        """The sites of the maps, left first.

        Parameters
        ----------
        widths : hemisphere → number of sites of its maps.
        """
        hemi = "both" if len(widths) == 2 else next(iter(widths))
        mesh: Any = self.given
        if mesh is None and set(widths.values()) == {N_FS_LR}:
            mesh = fs_lr_sites("left"), fs_lr_sites("right")  # no other mesh has so many vertices
        if isinstance(mesh, tuple) and hemi != "both":
            mesh = mesh[hemi == "right"]
        elif isinstance(mesh, Sites) and mesh.n_roots == 20 and hemi == "both":
            text = "is one hemisphere, but the maps are of both: pass the pair (left, right), or {hemisphere='left'}"
            raise CohortError("mesh", text)
        try:
            return sites_for(sum(widths.values()), mesh, hemi, "The maps have")[0]
        except ArgumentError as error:
            # `load_cohort` calls the hemisphere by its whole name.
            argument = "hemisphere" if error.argument == "hemi" else error.argument
            raise CohortError(argument, str(error.message)) from None


@cache
def _level(name: str) -> int:
    """Level of a named mesh; asked for with every file."""
    return Sites.named(name).max_level


def is_name(mesh: Any) -> bool:
    """Whether a mesh is given by its name, not by a file."""
    return (
        isinstance(mesh, str)
        and "/" not in mesh
        and not mesh.endswith(".gii")
        and not Path(mesh).is_file()
    )


def _sites(mesh: Any) -> Sites:
    if isinstance(mesh, Sites):
        return mesh
    if is_name(mesh):
        return Sites.named(mesh)
    if isinstance(mesh, str | os.PathLike):
        return Sites.from_file(Path(mesh).expanduser())
    raise ArgumentError(
        "mesh", Phrase(type(mesh).__name__), "a name, Sites, a sphere file or a pair of these"
    )


def check_array(X: Any) -> Any:
    """X as an array of numbers of two dimensions; memmaps and their like stay what they are."""
    if hasattr(X, "tocsr"):
        raise ArgumentError(
            "X", Phrase("a sparse matrix, use X.toarray()"), "a dense array of subjects × sites"
        )
    if isinstance(X, np.ma.MaskedArray):
        text = "X is a masked array, whose mask would be lost; use X.filled(np.nan) and pass {mask}"
        raise ArgumentError("X", None, text)
    if not (hasattr(X, "shape") and isinstance(getattr(X, "dtype", None), np.dtype)) or hasattr(
        X, "iloc"
    ):
        try:
            X = np.asarray(X)
        except ValueError as problem:
            text = f"an array of subjects × sites; it cannot be converted: {literal(problem)}"
            raise ArgumentError("X", None, text) from None
    if np.dtype(X.dtype).kind not in "fiu":
        complex_too = "Complex data not supported: " if np.dtype(X.dtype).kind == "c" else ""
        raise ArgumentError(
            "X", None, f"{complex_too}X must contain real numbers; found dtype {X.dtype}"
        )
    if is_dask_array(X) and any(size != size for sizes in X.chunks for size in sizes):
        text = (
            "X is a dask array whose chunks are of unknown size: call X.compute_chunk_sizes() first"
        )
        raise ArgumentError("X", None, text)
    if len(X.shape) != 2:
        hint = ". One map is X.reshape(1, -1). Reshape your data" if len(X.shape) == 1 else ""
        raise ArgumentError(
            "X", Phrase(f"shape {tuple(X.shape)}{hint}"), "subjects × sites, two dimensions"
        )
    return X


def read_image(image: Any, mesh: Any, hemi: str | None) -> tuple[np.ndarray, Sites, str]:
    """A nilearn SurfaceImage: (vertices, maps) per hemisphere; its triangles say which mesh it is."""
    parts = image.data.parts
    sides = [side for side in SIDES if side in parts]
    side = hemi or ("both" if len(sides) == 2 else sides[0])
    wanted = hemispheres(side)
    missing = [s for s in wanted if s not in parts]
    if missing:
        text = f"{{hemi={side!r}}}, but the SurfaceImage contains only {', '.join(sides)}"
        raise ArgumentError("hemi", None, text)
    blocks = [np.asarray(parts[s]) for s in wanted]
    X = np.concatenate([b.reshape(len(b), -1) for b in blocks]).T
    if mesh is not None:
        sites, _ = sites_for(X.shape[1], mesh, side)
        _check_same_triangles(image, wanted, sites)
        return check_array(X), sites, side
    found = [_sites_of_polymesh(image.mesh.parts[s], s) for s in wanted]
    sites = Sites.both(*found) if side == "both" else found[0]
    return check_array(X), sites, side


def joined_images(images: Sequence[Any]) -> Any:
    """Images of one person each as one image; all must be on the mesh of the first."""
    from nilearn.image import concat_imgs

    sizes = [{side: len(part) for side, part in image.data.parts.items()} for image in images]
    for number, size in enumerate(sizes):
        if size != sizes[0]:
            told = lambda one: " and ".join(f"{n} {side}" for side, n in one.items())
            text = f"image {number} has {told(size)} vertices, image 0 {told(sizes[0])}; resample them to one mesh"
            raise CohortError("paths", text)
    return concat_imgs(list(images))


def _check_same_triangles(image: Any, sides: Sequence[str], sites: Sites) -> None:
    """Refuse an image whose vertices are ordered otherwise than the sites, where both tell."""
    if sites.triangles is None or sites.on != "vertices":
        return
    listed = lambda triangles: np.unique(np.sort(triangles, axis=1), axis=0)
    ours = listed(sites.triangles)
    for side in sides:
        if not np.array_equal(listed(np.asarray(image.mesh.parts[side].faces)), ours):
            raise ArgumentError(
                "mesh",
                None,
                f"The {side} mesh of the SurfaceImage has other triangles than {sites!r}: its vertices are in "
                "another order, or it is another mesh; resample it first",
            )


def _sites_of_polymesh(part: Any, side: str) -> Sites:
    coordinates, faces = np.asarray(part.coordinates, dtype=np.float64), np.asarray(part.faces)
    radii = np.linalg.norm(coordinates, axis=1)
    if radii.min() > 0 and np.ptp(radii) <= 0.01 * radii.max():
        return Sites.from_sphere(coordinates, faces)
    try:
        return Sites.from_topology(faces)
    except ValueError:
        raise ArgumentError(
            "mesh",
            None,
            f"The {side} mesh of the SurfaceImage ({len(coordinates)} vertices) is neither a sphere nor icosahedral; "
            "pass {mesh}, Sites.from_file(the sphere registered with it)",
        ) from None
