"""Hemispheres and standard meshes: their names, sizes and densities, and BIDS names of files made from them."""

from __future__ import annotations

import re
from typing import Any

from icofactor.io.cifti import N_FS_LR

SIDES = ("left", "right")
_HEMI_LABELS = {"left": "L", "right": "R"}
# BIDS and TemplateFlow name the densities of fsaverage so; the two coarsest have no such name.
_DENSITIES = {3: "642", 4: "3k", 5: "10k", 6: "41k", 7: "164k"}


def mesh_name_of(sites: Any) -> str:
    """A name for the mesh of `Sites`: its own, "fsLR32k", or "sphere" with its number of sites."""
    if sites.name is not None:
        return str(sites.name)
    per_side = sites.n_mesh // len(sites.frames)
    return "fsLR32k" if per_side == N_FS_LR and sites.on == "vertices" else f"sphere{sites.n_mesh}"


def is_fs_lr(mesh_name: str) -> bool:
    """Whether a mesh is fs_LR 32k, by whichever name."""
    return re.fullmatch(rf"fs_?LR[ _-]?32k|(sphere)?({N_FS_LR}|{2 * N_FS_LR})", mesh_name, re.IGNORECASE) is not None


def fsaverage_level(mesh_name: str) -> int | None:
    found = re.fullmatch(r"fsaverage([3-7]?)(-[AB])?", mesh_name)
    return None if found is None else int(found[1] or 7)


def vertices_per_side(mesh_name: str) -> int | None:
    """Vertices per hemisphere, for meshes known by name."""
    level = fsaverage_level(mesh_name)
    if level is not None:
        return 10 * 4**level + 2
    return N_FS_LR if is_fs_lr(mesh_name) else None


def space(mesh_name: str) -> str:
    """BIDS entities of a mesh: space and, for fsaverage and fs_LR, density."""
    level = fsaverage_level(mesh_name)
    if level is not None:
        return f"space-fsaverage_den-{_DENSITIES[level]}"
    if is_fs_lr(mesh_name):
        return "space-fsLR_den-32k"
    label = re.sub(r"[^0-9A-Za-z]", "", mesh_name)
    if not label:
        raise ValueError(f"mesh_name must hold letters or digits, for the names of the files; got {mesh_name!r}")
    return f"space-{label}"


def sides_of(hemi: str | None) -> tuple[str, ...]:
    """("left",), ("right",) or both."""
    if hemi is None:
        raise ValueError("hemi is not known: pass hemi='left' or 'right' (to the estimator, or here)")
    if hemi not in ("left", "right", "both"):
        raise ValueError(f'hemi must be "left", "right" or "both"; got {hemi!r}')
    return SIDES if hemi == "both" else (hemi,)


def map_file(mesh_name: str, ending: str, side: str | None = None) -> str:
    """E.g. "hemi-L_space-fsaverage_den-10k_desc-icofactor_mask.shape.gii"; without a side, one file for all."""
    hemi = "" if side is None else f"hemi-{_HEMI_LABELS[side]}_"
    return f"{hemi}{space(mesh_name)}_desc-icofactor_{ending}"


HEMISPHERES = ("left", "right", "both")
