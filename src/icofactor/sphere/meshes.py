"""The sites that the columns of an array stand for: a mesh by name, file or number of columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from icofactor.sphere.hierarchy import n_faces, n_nodes
from icofactor.sphere.sites import Sites

_NAMED_LEVELS = range(3, 8)
_CIFTI = {29696: "left", 29716: "right", 59412: "both", 91282: "both"}


def same_sites(a: Sites, b: Sites) -> bool:
    """Whether two sets of sites are the same places in the same order (files round coordinates to 1e-4)."""
    if a is b:
        return True
    return a.n == b.n and a.n_roots == b.n_roots and bool(np.abs(a.coordinates - b.coordinates).max() < 1e-3)


def sites_for(n_columns: int, mesh: Any = None, hemi: str | None = None) -> tuple[Sites, str | None]:
    """The sites that n_columns columns stand for, and the hemisphere."""
    if isinstance(mesh, Sites):
        if n_columns != mesh.n:
            raise ValueError(f"mesh is {mesh!r}; X has {n_columns} columns instead of {mesh.n}")
        both = mesh.n_roots == 40
        if hemi is not None and both != (hemi == "both"):
            held = "both hemispheres: use hemi='both'" if both else "one hemisphere: use hemi='left' or 'right'"
            raise ValueError(f"hemi={hemi!r}, but mesh is {mesh!r}, {held}, or None")
        return mesh, "both" if both else hemi
    if isinstance(mesh, tuple | list) and len(mesh) == 2:
        if hemi not in (None, "both"):
            raise ValueError(f"mesh is a pair, for both hemispheres; found hemi={hemi!r}, use hemi='both' or None")
        return sites_for(n_columns, Sites.both(*(_one_of_pair(m) for m in mesh)), "both")
    if isinstance(mesh, Path) or (isinstance(mesh, str) and ("/" in mesh or mesh.endswith(".gii"))):
        if hemi == "both":
            raise ValueError("mesh names one file; for hemi='both' give the pair (left sphere, right sphere)")
        return sites_for(n_columns, Sites.from_file(mesh), hemi)
    if mesh is None:
        return _inferred(n_columns, hemi)
    if not isinstance(mesh, str):
        raise ValueError(f"mesh must be a name, a Sites, a sphere file or a pair of these; found {type(mesh).__name__}")
    level = Sites.named(mesh).max_level
    fits = _fits(n_columns, level, hemi)
    if fits is None:
        raise ValueError(_does_not_fit(mesh, level, n_columns, hemi))
    return Sites.named(mesh, on=fits[0], hemi=fits[1] or "left"), fits[1]  # type: ignore[arg-type]


def _one_of_pair(mesh: Any) -> Sites:
    """One hemisphere's sites: as given, by name, or from its file."""
    if isinstance(mesh, Sites):
        return mesh
    if isinstance(mesh, str) and mesh.startswith("fsaverage") and not Path(mesh).exists():
        return Sites.named(mesh)
    if not isinstance(mesh, str | Path):
        raise ValueError(f"mesh must be a pair of Sites, names or sphere files; it holds a {type(mesh).__name__}")
    return Sites.from_file(mesh)


def _fits(n_columns: int, level: int, hemi: str | None) -> tuple[str, str | None] | None:
    """("vertices" or "faces", hemisphere) when a mesh of that level has this many sites."""
    for on, n in (("vertices", n_nodes(level)), ("faces", n_faces(level))):
        if hemi != "both" and n_columns == n:
            return on, hemi
        if hemi in (None, "both") and n_columns == 2 * n:
            return on, "both"
    return None


def _does_not_fit(mesh: str, level: int, n_columns: int, hemi: str | None) -> str:
    V, F = n_nodes(level), n_faces(level)
    both = " and hemi='both' twice as many" if hemi in (None, "both") else ""
    hint = ""
    if hemi in ("left", "right") and n_columns in (2 * V, 2 * F):
        hint = "; that is both hemispheres: use hemi='both'"
    if hemi == "both" and n_columns in (V, F):
        hint = "; that is one hemisphere: use hemi='left' or 'right'"
    return f"mesh {mesh} has {V} vertices (or {F} faces) per hemisphere{both}; X has {n_columns} columns{hint}"


def _inferred(n_columns: int, hemi: str | None) -> tuple[Sites, str | None]:
    """The mesh from the number of columns, where only one has that many."""
    for level in _NAMED_LEVELS:
        fits = _fits(n_columns, level, hemi)
        if fits is None:
            continue
        if level >= 6:
            other = "a CIVET mesh" if level == 6 else "fs_LR 164k"
            raise ValueError(
                f"X has {n_columns} columns: that may be fsaverage{level} or {other}, which order their sites "
                f"differently; say mesh='fsaverage{level}', or mesh=Sites.from_file(its sphere)"
            )
        name = f"fsaverage{level}"
        return Sites.named(name, on=fits[0], hemi=fits[1] or "left"), fits[1]  # type: ignore[arg-type]
    if n_columns in (32492, 64984):
        what = "its sphere" if n_columns == 32492 else "(left sphere, right sphere)"
        raise ValueError(
            f"X has {n_columns} columns, as fs_LR 32k has: pass mesh={what}, the *.sphere.32k_fs_LR.surf.gii file"
        )
    if n_columns in _CIFTI:
        raise ValueError(
            f"X has {n_columns} columns, as CIFTI files without the medial wall have: put the values back onto the "
            "32492 vertices of each hemisphere, and pass the mask and the sphere files"
        )
    known = ", ".join(f"fsaverage{level} {n_nodes(level)}" for level in _NAMED_LEVELS)
    sizes = [n for level in _NAMED_LEVELS for n in (n_nodes(level), n_faces(level))]
    hint = ""
    if hemi in ("left", "right") and n_columns in [2 * n for n in sizes]:
        hint = "; it has both hemispheres: use hemi='both'"
    if hemi == "both" and n_columns in sizes:
        hint = "; it has one hemisphere: use hemi='left' or 'right'"
    raise ValueError(
        f"X has {n_columns} columns, which is no mesh known by its size ({known} vertices per hemisphere){hint}; "
        "otherwise pass mesh=Sites.from_sphere(coordinates, faces) or the sphere's file"
    )
