"""Hemispheres and standard meshes: names, sizes and densities, and BIDS names made of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from icofactor.errors import ArgumentError, shown
from icofactor.io.cifti import N_FS_LR
from icofactor.io.hemispheres import HEMISPHERES as HEMISPHERES
from icofactor.io.hemispheres import SIDES as SIDES
from icofactor.io.hemispheres import hemispheres as hemispheres

LETTERS = {"left": "L", "right": "R"}


@dataclass(frozen=True)
class StandardMesh:
    """A standard mesh.

    Attributes
    ----------
    name : e.g. "fsaverage5".
    space : "fsaverage", "fsLR" or "civet", as BIDS and TemplateFlow call it.
    density : e.g. "10k", as they call that.
    n_vertices : per hemisphere.
    level : of fsaverage in the icosahedral hierarchy; None for others.
    """

    name: str
    space: str
    density: str
    n_vertices: int
    level: int | None = None


# Level → density, as TemplateFlow names it.
FSAVERAGE = {3: "642", 4: "3k", 5: "10k", 6: "41k", 7: "164k"}
# Density → vertices per hemisphere.
FS_LR = {"32k": N_FS_LR, "59k": 59292, "164k": 163842}
# Name → standard mesh that needs no file.
MESHES = {
    f"fsaverage{level}": StandardMesh(
        f"fsaverage{level}", "fsaverage", density, 10 * 4**level + 2, level
    )
    for level, density in FSAVERAGE.items()
} | {
    f"fsLR{density}": StandardMesh(f"fsLR{density}", "fsLR", density, n)
    for density, n in FS_LR.items()
}
# Name → mesh of CIVET, which has as many vertices as that of fsaverage.
CIVET = {
    f"civet{density}": StandardMesh(f"civet{density}", "civet", density, 10 * 4**level + 2)
    for level, density in FSAVERAGE.items()
}


def civet_name(n_vertices: int) -> str | None:
    """Return "civet41k" or "civet164k", CIVET's mesh of so many vertices per hemisphere.

    Its vertices are those of an icosahedron too, in another order than fsaverage's and elsewhere on
    the cortex.
    """
    return next((name for name, mesh in CIVET.items() if mesh.n_vertices == n_vertices), None)


def mesh_name_of(sites: Any) -> str:
    """Name of the mesh of `Sites`: of its own or of an atlas, or "sphere" and the number of sites.

    Examples
    --------
    >>> import icofactor as ico
    >>> ico.cohort.mesh_name_of(ico.Sites.named("fsaverage4"))
    'fsaverage4'
    """
    regions = sites.regions
    if sites.on == "parcels" and regions.mesh:
        return str(regions.mesh)
    if sites.on == "parcels" and regions.placed:
        return f"sphere{len(regions.labels) // sites.n_hemispheres}"
    if sites.on == "parcels":
        return f"regions{sites.n_mesh}"
    if sites.name is not None:
        return str(sites.name)
    per_side = sites.n_mesh // len(sites.frames)
    if per_side == N_FS_LR and sites.on == "vertices":
        return "fsLR32k"
    return f"sphere{per_side}"


def is_fs_lr(mesh_name: str) -> bool:
    """Whether a mesh is fs_LR 32k, by whichever name."""
    pattern = rf"fs_?LR[ _-]?32k|(sphere)?({N_FS_LR}|{2 * N_FS_LR})"
    return re.fullmatch(pattern, mesh_name, re.IGNORECASE) is not None


def mesh_known_as(mesh_name: str) -> StandardMesh | None:
    """Return the standard mesh of that name, numbering (fsaverage6-A) or size, if there is one."""
    if is_fs_lr(mesh_name):
        return MESHES["fsLR32k"]
    if mesh_name in CIVET:
        return CIVET[mesh_name]
    match = re.fullmatch(r"fsaverage([3-7]?)(-[AB])?", mesh_name)
    return None if match is None else MESHES[f"fsaverage{match[1] or 7}"]


def fsaverage_level(mesh_name: str) -> int | None:
    """Level of an fsaverage mesh; None for others."""
    mesh = mesh_known_as(mesh_name)
    return None if mesh is None else mesh.level


def vertices_per_side(mesh_name: str) -> int | None:
    """Vertices per hemisphere, for meshes known by name."""
    mesh = mesh_known_as(mesh_name)
    return None if mesh is None else mesh.n_vertices


def space(mesh_name: str) -> str:
    """Return the BIDS entities of a mesh: space and density.

    A mesh without a name has its number of sites per hemisphere as density.
    """
    mesh = mesh_known_as(mesh_name)
    if mesh is not None:
        return f"space-{mesh.space}_den-{mesh.density}"
    match = re.fullmatch(r"sphere(\d+)", mesh_name)
    if match is not None:
        return f"space-sphere_den-{match[1]}"
    return f"space-{_label(mesh_name, 'mesh_name')}"


# The desc- entity of files about the fit as a whole; those about one measure have its name.
OWN = "icofactor"


def map_file(mesh_name: str, ending: str, side: str | None = None, desc: str = OWN) -> str:
    """Return e.g. "hemi-L_space-fsaverage_den-10k_desc-icofactor_mask.shape.gii".

    Without a side, it is the name of one file for all hemispheres.
    """
    hemi = "" if side is None else f"hemi-{LETTERS[side]}_"
    return f"{hemi}{space(mesh_name)}_{table_file(ending, desc)}"


def table_file(ending: str, desc: str = OWN) -> str:
    """A file that does not depend on the mesh, e.g. "desc-icofactor_loadings.tsv"."""
    return f"desc-{_label(desc, 'desc')}_{ending}"


def _label(text: str, argument: str) -> str:
    """Letters and digits, which alone an entity of BIDS may have."""
    label = re.sub(r"[^0-9A-Za-z]", "", text)
    if not label:
        message = f"must have letters or digits, for the names of files; found {shown(text)}"
        raise ArgumentError(argument, message)
    return label
