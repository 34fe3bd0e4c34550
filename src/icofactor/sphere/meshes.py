"""The sites that the columns of an array stand for: a mesh by name, file or number of columns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from icofactor.errors import ArgumentError, shown
from icofactor.io.cifti import N_FS_LR
from icofactor.io.guard import Unreadable
from icofactor.sphere.hierarchy import MAX_LEVEL, n_faces, n_nodes
from icofactor.sphere.names import MESHES, SIDES, is_fs_lr
from icofactor.sphere.parcels import places_of
from icofactor.sphere.sites import MOST_COPIES, Hemi, On, Sites
from icofactor.sphere.standard import fs_lr_sphere

# Files round coordinates of the unit sphere to 1e-4.
CLOSE = 1e-3
# No sites have more positions than this, whatever a damaged file says.
MOST_SITES = 2**40
# Numbers of values in CIFTI files, which leave out the medial wall.
CIFTI_SIZES = (29696, 29716, 59412, 91282)
CIVETS_MESH = "any surface of CIVET (.obj) or its sphere (tpl-civet_den-41k_hemi-L_sphere.surf.gii)"
# Meshes with as many sites as fsaverage of a level, in another order: their number is no proof.
LOOKALIKES = {
    6: f"a CIVET mesh; pass --mesh fsaverage6 (mesh='fsaverage6') for FreeSurfer's maps, for "
    f"CIVET's {CIVETS_MESH}",
    7: "fs_LR 164k; pass --mesh fsaverage7 (mesh='fsaverage7'), or the file of its sphere",
}


@cache
def fs_lr_sites(side: Literal["left", "right"]) -> Sites:
    """Return the vertices of one hemisphere of fs_LR 32k."""
    return Sites.from_sphere(*fs_lr_sphere(side))


def same_sites(a: Sites, b: Sites) -> bool:
    """Whether two sets of sites are the same places in the same order."""
    if a is b:
        return True
    if a.regions is not None or b.regions is not None:
        places = places_of(a.regions, b.regions)
        n_regions = b.n_mesh // b.n_copies
        if places is None or not np.array_equal(places, np.arange(n_regions)):
            return False
    if a.n != b.n or a.n_roots != b.n_roots:
        return False
    return bool(np.abs(a.coordinates - b.coordinates).max() < CLOSE)


def sites_for(
    n_columns: int, mesh: Any = None, hemi: str | None = None, maps: str = "X has"
) -> tuple[Sites, str | None]:
    """Return the sites that n_columns columns stand for, and the hemisphere.

    Parameters
    ----------
    maps : how an error begins that says how many columns there are.
    """
    size = f"{maps} {n_columns} columns"
    if mesh is None:
        return _inferred(n_columns, hemi, size)
    if isinstance(mesh, tuple | list) and len(mesh) == 2:
        left, right = map(_of_one_side, mesh)
        return _checked(Sites.both(left, right), n_columns, hemi, size)
    if isinstance(mesh, Sites):
        return _checked(mesh, n_columns, hemi, size)
    if _is_file(mesh):
        return _checked(Sites.from_file(mesh), n_columns, hemi, size)
    if not isinstance(mesh, str):
        text = f"must be a name, a Sites, a sphere file or a pair of these; found {shown(mesh)}"
        raise ArgumentError("mesh", text)
    if is_fs_lr(mesh):
        return _on_fs_lr(n_columns, hemi, size)
    level = Sites.named(mesh).max_level
    for fit in _fits(level, hemi):
        if fit.n_columns == n_columns:
            return Sites.named(mesh, on=fit.on, hemi=fit.hemi or "left"), fit.hemi
    raise ArgumentError(
        "mesh",
        f"{mesh} has {n_nodes(level)} vertices or {n_faces(level)} faces per hemisphere, and twice "
        f"as many with --hemisphere both (hemi='both'); {size} and the hemisphere is {hemi}",
    )


def _is_file(mesh: Any) -> bool:
    """Whether a mesh is given by a file, not by its name."""
    is_path = isinstance(mesh, str) and ("/" in mesh or mesh.endswith(".gii"))
    return is_path or isinstance(mesh, Path)


def _of_one_side(mesh: Any) -> Sites:
    """Return the sites of one of a pair: as they are, by name, or from a file."""
    if isinstance(mesh, Sites):
        return mesh
    if isinstance(mesh, str) and mesh.startswith("fsaverage") and not Path(mesh).exists():
        return Sites.named(mesh)
    if not isinstance(mesh, str | Path):
        text = f"must be a pair of Sites, names or sphere files; found {shown(mesh)}"
        raise ArgumentError("mesh", text)
    return Sites.from_file(mesh)


def _checked(sites: Sites, n_columns: int, hemi: str | None, size: str) -> tuple[Sites, str | None]:
    """Return sites and hemisphere, or raise an error if there are other columns or hemispheres."""
    if n_columns != sites.n:
        raise ArgumentError("mesh", f"is {sites!r}; {size}: give maps on that mesh")
    has_both = sites.n_hemispheres == 2
    if hemi is not None and has_both != (hemi == "both"):
        raise ArgumentError(
            "mesh",
            f"is {sites!r}, but the hemisphere is {hemi}: for both hemispheres give two sphere "
            "files, for one of them one file",
        )
    return sites, "both" if has_both else hemi


class _Fit(NamedTuple):
    """A number of columns that a mesh may have, and their meaning."""

    n_columns: int
    on: On
    hemi: Hemi | None


def _fits(level: int, hemi: str | None) -> Iterator[_Fit]:
    """Yield the numbers of columns that a mesh of a level may have."""
    kinds: tuple[On, On] = ("vertices", "faces")
    for on in kinds:
        n = n_nodes(level) if on == "vertices" else n_faces(level)
        if hemi != "both":
            yield _Fit(n, on, cast("Hemi | None", hemi))
        if hemi in (None, "both"):
            yield _Fit(2 * n, on, "both")


def _on_fs_lr(n_columns: int, hemi: str | None, size: str) -> tuple[Sites, str | None]:
    """Return the sites of fs_LR 32k.

    Its hemispheres are mirror images, so one of them must be named.
    """
    if n_columns == 2 * N_FS_LR and hemi in (None, "both"):
        return Sites.both(fs_lr_sites("left"), fs_lr_sites("right")), "both"
    if n_columns == N_FS_LR and hemi in SIDES:
        return fs_lr_sites(hemi), hemi
    if n_columns == N_FS_LR and hemi is None:
        text = f"must be 'left' or 'right': {size}, one hemisphere of fs_LR 32k"
        raise ArgumentError("hemi", text)
    raise ArgumentError(
        "mesh",
        f"fs_LR 32k has {N_FS_LR} vertices per hemisphere; {size} and the hemisphere is {hemi}",
    )


def _inferred(n_columns: int, hemi: str | None, size: str) -> tuple[Sites, str | None]:
    """Return the sites of the mesh with that number of columns, if there is only one."""
    levels = [mesh.level for mesh in MESHES.values() if mesh.level is not None]
    for level in levels:
        for fit in _fits(level, hemi):
            if fit.n_columns != n_columns:
                continue
            name = f"fsaverage{level}"
            if level in LOOKALIKES:
                raise ArgumentError("mesh", f"{size}: either {name} or {LOOKALIKES[level]}")
            return Sites.named(name, on=fit.on, hemi=fit.hemi or "left"), fit.hemi
    if n_columns in (N_FS_LR, 2 * N_FS_LR):
        return _on_fs_lr(n_columns, hemi, size)
    if n_columns in CIFTI_SIZES:
        advice = (
            f"that is the size of CIFTI files without the medial wall: put the values back on the "
            f"{N_FS_LR} vertices of each hemisphere, and pass the mask and the sphere files"
        )
    else:
        sizes = ", ".join(f"fsaverage{level} {n_nodes(level)}" for level in levels)
        advice = (
            f"that is not the size of a mesh ({sizes} vertices per hemisphere, twice as many with "
            f"--hemisphere both, hemi='both') and the hemisphere is {hemi}: pass --mesh (mesh=...), the file of its sphere, or in Python "
            "Sites.from_sphere(coordinates, faces)"
        )
    raise ArgumentError("mesh", f"{size}; {advice}")


def check_sites(sites: Sites) -> Sites:
    """Return sites from a file, or raise an error if their numbers contradict each other."""
    problem = _contradiction(sites)
    if problem is not None:
        raise Unreadable(f"is damaged: {problem}")
    return sites


def _contradiction(sites: Sites) -> str | None:
    """Return what is wrong with the numbers of sites, whose shapes are right."""
    n_frames = len(sites.frames)
    if not 0 <= sites.max_level <= MAX_LEVEL:
        return f"the level of its mesh is {sites.level}"
    if not 0 < sites.n_copies <= MOST_COPIES:
        return f"it has {sites.n_copies} copies"
    if n_frames not in (sites.n_copies, 2 * sites.n_copies):
        return f"its {sites.n_copies} copies are on {n_frames} spheres"
    if not 0 < sites.n <= sites.n_mesh < MOST_SITES:
        return f"{sites.n} sites of a mesh of {sites.n_mesh}"
    squared_radii = np.square(sites.coordinates).sum(axis=1)
    if np.abs(squared_radii - 1).max() >= CLOSE:
        return "its sites do not lie on a sphere of radius 1"
    products = sites.frames @ np.swapaxes(sites.frames, 1, 2)
    if np.abs(products - np.eye(3)).max() >= CLOSE:
        return "the matrices that rotate its hierarchy are not rotations"
    if (sites.on == "parcels") != (sites.regions is not None):
        return "its parcels do not match its sites"
    if sites.regions is not None:
        n_regions = sites.n_mesh // sites.n_copies
        if not sites.regions.fits(n_regions, sites.n_hemispheres):
            return "the labels of its parcels do not match their mesh"
    limits = {"position": sites.n_mesh, "deepest": n_frames * n_faces(sites.max_level)}
    if sites.triangles is not None:
        # A mesh of n vertices has numbers below n; one of n faces has fewer vertices than faces.
        limits["triangles"] = sites.n_mesh
    for name, limit in limits.items():
        values = getattr(sites, name)
        if not values.size or values.max() >= limit:
            return f"{name} of its sites must contain numbers from 0 to {limit - 1}"
    return None
