"""The mesh of a cohort's files: as given, as their names tell, or as their number of vertices tells."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from icofactor.errors import ArgumentError, CohortError, Phrase, as_reference
from icofactor.sphere.fs_lr import fs_lr_sites
from icofactor.sphere.hierarchy import n_faces, n_nodes
from icofactor.sphere.meshes import sites_for
from icofactor.sphere.names import MESHES, N_FS_LR, is_fs_lr, mesh_name_of
from icofactor.sphere.sites import Sites

_LEVELS = [mesh.level for mesh in MESHES.values() if mesh.level is not None]
_DOUBLE = {2 * n for level in _LEVELS for n in (n_nodes(level), n_faces(level))} | {2 * N_FS_LR}


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
                raise ArgumentError("mesh", Phrase(str(len(mesh))), "one mesh or a pair (left, right)")
            left, right = (_sites(one) for one in mesh)
            return cls((left, right))
        if mesh is None or isinstance(mesh, Sites):
            return cls(mesh)
        if isinstance(mesh, str) and _is_name(mesh):
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
            if self.given.n_roots == 20:  # a file of both hemispheres, of which one may be asked for
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
            text = "is one hemisphere, the maps are of both: pass the pair (left, right), or {hemisphere='left'}"
            raise CohortError("mesh", text)
        try:
            return sites_for(sum(widths.values()), mesh, hemi, "The maps have")[0]
        except ArgumentError as error:
            raise CohortError("mesh", error.describe(_as_hemisphere)) from None


def _as_hemisphere(argument: str, value: str | None) -> str:
    """A reference to an argument, by the name that it has in `load_cohort`."""
    return as_reference("hemisphere" if argument == "hemi" else argument, value)


@cache
def _level(name: str) -> int:
    """Level of a named mesh; asked for with every file."""
    return Sites.named(name).max_level


def _is_name(mesh: str) -> bool:
    return "/" not in mesh and not mesh.endswith(".gii") and not Path(mesh).is_file()


def _sites(mesh: Any) -> Sites:
    if isinstance(mesh, Sites):
        return mesh
    if isinstance(mesh, str) and _is_name(mesh):
        return Sites.named(mesh)
    if isinstance(mesh, str | os.PathLike):
        return Sites.from_file(Path(mesh).expanduser())
    raise ArgumentError("mesh", Phrase(type(mesh).__name__), "a name, Sites, a sphere file or a pair of these")
