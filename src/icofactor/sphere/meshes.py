"""The sites that the columns of an array stand for: a mesh by name, file or number of columns."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from icofactor.errors import ArgumentError, Phrase, literal
from icofactor.io.cifti import N_FS_LR
from icofactor.io.guard import Unreadable
from icofactor.sphere.hierarchy import MAX_LEVEL, n_faces, n_nodes
from icofactor.sphere.names import MESHES, SIDES, is_fs_lr
from icofactor.sphere.parcels import places_of
from icofactor.sphere.sites import MOST_MEASURES, Sites
from icofactor.sphere.standard import fs_lr_sphere

_NAMED_LEVELS = [mesh.level for mesh in MESHES.values() if mesh.level is not None]
_CIFTI = {29696: "left", 29716: "right", 59412: "both", 91282: "both"}


@cache
def fs_lr_sites(side: Literal["left", "right"]) -> Sites:
    """The vertices of one hemisphere of fs_LR 32k."""
    return Sites.from_sphere(*fs_lr_sphere(side))


def same_sites(a: Sites, b: Sites) -> bool:
    """Whether two sets of sites are the same places in the same order (files round coordinates to
    1e-4).
    """
    if a is b:
        return True
    if (a.regions or b.regions) is not None:
        taken = places_of(a.regions, b.regions)
        if taken is None or not np.array_equal(taken, np.arange(b.n_mesh // b.n_measures)):
            return False
    return (
        a.n == b.n
        and a.n_roots == b.n_roots
        and bool(np.abs(a.coordinates - b.coordinates).max() < 1e-3)
    )


def sites_for(
    n_columns: int, mesh: Any = None, hemi: str | None = None, maps: str = "X has"
) -> tuple[Sites, str | None]:
    """The sites that n_columns columns stand for, and the hemisphere.

    Parameters
    ----------
    maps : how an error begins that says how many columns there are.
    """
    found = f"{maps} {n_columns} columns"
    if isinstance(mesh, Sites):
        if n_columns != mesh.n:
            raise _unknown(
                f"{{mesh}} is {mesh!r}; {found} instead of {mesh.n}; give maps on that mesh"
            )
        both = mesh.n_hemispheres == 2
        if hemi is not None and both != (hemi == "both"):
            held = (
                "both hemispheres: use {hemi='both'}"
                if both
                else "one hemisphere: use {hemi='left' or 'right'}"
            )
            raise _unknown(f"{{hemi={hemi!r}}}, but {{mesh}} is {mesh!r}, {held}, or None")
        return mesh, "both" if both else hemi
    if isinstance(mesh, tuple | list) and len(mesh) == 2:
        if hemi not in (None, "both"):
            raise _unknown(
                f"{{mesh}} is a pair, for both hemispheres; found {{hemi={hemi!r}}}, use {{hemi='both'}} or None"
            )
        return sites_for(n_columns, Sites.both(*(_one_of_pair(m) for m in mesh)), "both", maps)
    if isinstance(mesh, Path) or (isinstance(mesh, str) and ("/" in mesh or mesh.endswith(".gii"))):
        if hemi == "both":
            raise _unknown(
                "{mesh} names one file; for {hemi='both'} give the pair (left sphere, right sphere)"
            )
        return sites_for(n_columns, Sites.from_file(mesh), hemi, maps)
    if mesh is None:
        return _inferred(n_columns, hemi, found)
    if not isinstance(mesh, str):
        raise ArgumentError(
            "mesh", Phrase(type(mesh).__name__), "a name, a Sites, a sphere file or a pair of these"
        )
    if is_fs_lr(mesh):
        return _on_fs_lr(n_columns, hemi, found)
    level = Sites.named(mesh).max_level
    fits = _fits(n_columns, level, hemi)
    if fits is None:
        raise _unknown(_does_not_fit(mesh, level, n_columns, hemi, found))
    return Sites.named(mesh, on=fits[0], hemi=fits[1] or "left"), fits[1]  # type: ignore[arg-type]


def _on_fs_lr(n_columns: int, hemi: str | None, found: str) -> tuple[Sites, str | None]:
    """fs_LR 32k, whose hemispheres are mirror images: one of them must be named."""
    if n_columns == 2 * N_FS_LR and hemi in (None, "both"):
        return Sites.both(fs_lr_sites("left"), fs_lr_sites("right")), "both"
    if n_columns == N_FS_LR and hemi in SIDES:
        return fs_lr_sites(hemi), hemi
    if n_columns == N_FS_LR and hemi is None:
        raise ArgumentError(
            "hemi", None, f"{found}, one hemisphere of fs_LR 32k: use {{hemi='left' or 'right'}}"
        )
    what = "{hemi='both'}" if n_columns == 2 * N_FS_LR else "{hemi='left' or 'right'}"
    fits = f"; use {what}" if n_columns in (N_FS_LR, 2 * N_FS_LR) else ""
    raise _unknown(f"fs_LR 32k has {N_FS_LR} vertices per hemisphere; {found}{fits}")


def _unknown(sentence: str) -> ArgumentError:
    """Columns and mesh do not go together."""
    return ArgumentError("mesh", None, sentence)


def _one_of_pair(mesh: Any) -> Sites:
    """One hemisphere's sites: as given, by name, or from its file."""
    if isinstance(mesh, Sites):
        return mesh
    if isinstance(mesh, str) and mesh.startswith("fsaverage") and not Path(mesh).exists():
        return Sites.named(mesh)
    if not isinstance(mesh, str | Path):
        raise ArgumentError(
            "mesh", Phrase(type(mesh).__name__), "a pair of Sites, names or sphere files"
        )
    return Sites.from_file(mesh)


def _fits(n_columns: int, level: int, hemi: str | None) -> tuple[str, str | None] | None:
    """("vertices" or "faces", hemisphere) when a mesh of that level has this many sites."""
    for on, n in (("vertices", n_nodes(level)), ("faces", n_faces(level))):
        if hemi != "both" and n_columns == n:
            return on, hemi
        if hemi in (None, "both") and n_columns == 2 * n:
            return on, "both"
    return None


def _does_not_fit(mesh: str, level: int, n_columns: int, hemi: str | None, found: str) -> str:
    V, F = n_nodes(level), n_faces(level)
    both = " and {hemi='both'} twice as many" if hemi in (None, "both") else ""
    hint = ""
    if hemi in SIDES and n_columns in (2 * V, 2 * F):
        hint = "; that is both hemispheres: use {hemi='both'}"
    if hemi == "both" and n_columns in (V, F):
        hint = "; that is one hemisphere: use {hemi='left' or 'right'}"
    return f"{{mesh}} {literal(mesh)} has {V} vertices (or {F} faces) per hemisphere{both}; {found}{hint}"


CIVETS_MESH = "any surface of CIVET (.obj) or its sphere (tpl-civet_den-41k_hemi-L_sphere.surf.gii)"
_OTHERS = {
    6: "a CIVET mesh, which order their sites differently; for FreeSurfer's maps pass {mesh='fsaverage6'}, for "
    f"CIVET's {CIVETS_MESH}",
    7: "fs_LR 164k, which order their sites differently; pass {mesh='fsaverage7'}, or give the file of its sphere",
}


def _inferred(n_columns: int, hemi: str | None, found: str) -> tuple[Sites, str | None]:
    """The mesh from the number of columns, where only one has that many."""
    for level in _NAMED_LEVELS:
        fits = _fits(n_columns, level, hemi)
        if fits is None:
            continue
        name = f"fsaverage{level}"
        if level >= 6:
            raise _unknown(f"{found}: that may be {name} or {_OTHERS[level]}")
        return Sites.named(name, on=fits[0], hemi=fits[1] or "left"), fits[1]  # type: ignore[arg-type]
    if n_columns in (N_FS_LR, 2 * N_FS_LR):
        return _on_fs_lr(n_columns, hemi, found)
    if n_columns in _CIFTI:
        raise _unknown(
            f"{found}, the size of CIFTI files without the medial wall: put the values back on the {N_FS_LR} vertices "
            "of each hemisphere, and pass the mask and the sphere files"
        )
    known = ", ".join(f"fsaverage{level} {n_nodes(level)}" for level in _NAMED_LEVELS)
    sizes = [n for level in _NAMED_LEVELS for n in (n_nodes(level), n_faces(level))]
    hint = ""
    if hemi in SIDES and n_columns in [2 * n for n in sizes]:
        hint = "; it has both hemispheres: use {hemi='both'}"
    if hemi == "both" and n_columns in sizes:
        hint = "; it has one hemisphere: use {hemi='left' or 'right'}"
    raise _unknown(
        f"{found}, which is not the size of a known mesh ({known} vertices per hemisphere){hint}; otherwise "
        "pass {mesh}, Sites.from_sphere(coordinates, faces) or the sphere's file"
    )


_CLOSE = 1e-3


def check_sites(sites: Sites) -> Sites:
    """The same sites; refused where their numbers, which have the right shapes, contradict each
    other.
    """
    if not 0 <= sites.max_level <= MAX_LEVEL:
        raise Unreadable(f"is damaged: the level of its mesh is {sites.level}")
    measured = 0 < sites.n_measures <= MOST_MEASURES and len(sites.frames) in (
        sites.n_measures,
        2 * sites.n_measures,
    )
    if not measured or not 0 < sites.n <= sites.n_mesh < 2**40:
        raise Unreadable(
            f"is damaged: {sites.n} sites of a mesh of {sites.n_mesh}, on {len(sites.frames)} spheres"
        )
    if np.abs(np.square(sites.coordinates).sum(axis=1) - 1).max() >= _CLOSE:
        raise Unreadable("is damaged: its sites do not lie on a sphere of radius 1")
    if np.abs(sites.frames @ np.swapaxes(sites.frames, 1, 2) - np.eye(3)).max() >= _CLOSE:
        raise Unreadable("is damaged: the matrices that rotate its hierarchy are not rotations")
    if (sites.on == "parcels") != (sites.regions is not None):
        raise Unreadable("is damaged: its parcels do not match its sites")
    if sites.regions is not None:
        sites.regions.check(sites.n_mesh // sites.n_measures, sites.n_hemispheres)
    limits = {"position": sites.n_mesh, "deepest": len(sites.frames) * n_faces(sites.max_level)}
    if sites.triangles is not None:
        # a mesh of n vertices has numbers below n; one of n faces has fewer vertices than faces
        limits["triangles"] = sites.n_mesh
    for name, below in limits.items():
        values = getattr(sites, name)
        if not values.size or values.max() >= below:
            raise Unreadable(
                f"is damaged: {name} of its sites must contain numbers from 0 to {below - 1}"
            )
    return sites
