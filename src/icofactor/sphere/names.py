"""Hemispheres and standard meshes: one table of their names, sizes and densities, and BIDS names
made from them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from icofactor.errors import ArgumentError
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


_FSAVERAGE = {3: "642", 4: "3k", 5: "10k", 6: "41k", 7: "164k"}
_FS_LR = {"32k": N_FS_LR, "59k": 59292, "164k": 163842}
MESHES = {
    mesh.name: mesh
    for mesh in (
        *(
            StandardMesh(f"fsaverage{n}", "fsaverage", density, 10 * 4**n + 2, n)
            for n, density in _FSAVERAGE.items()
        ),
        *(StandardMesh(f"fsLR{density}", "fsLR", density, n) for density, n in _FS_LR.items()),
    )
}
"""Name → standard mesh that needs no file."""
_CIVET = {
    f"civet{density}": StandardMesh(f"civet{density}", "civet", density, 10 * 4**n + 2)
    for n, density in _FSAVERAGE.items()
}


def civet_name(n_vertices: int) -> str | None:
    """The name of CIVET's mesh of so many vertices per hemisphere, "civet41k" or "civet164k"; None
    for other numbers.

    Its vertices are those of an icosahedron too, in another order than fsaverage's and elsewhere on
    the cortex.
    """
    return next((name for name, mesh in _CIVET.items() if mesh.n_vertices == n_vertices), None)


def mesh_name_of(sites: Any) -> str:
    """Name of the mesh of `Sites`: its own, that of an atlas, "fsLR32k", or "sphere" with the
    number of sites.

    Examples
    --------
    >>> import icofactor as ico
    >>> ico.cohort.mesh_name_of(ico.Sites.named("fsaverage4"))
    'fsaverage4'
    """
    if sites.on == "parcels":
        own = sites.regions
        n = (
            f"sphere{len(own.labels) // sites.n_hemispheres}"
            if own.placed
            else f"regions{sites.n_mesh}"
        )
        return str(own.mesh or n)
    if sites.name is not None:
        return str(sites.name)
    per_side = sites.n_mesh // len(sites.frames)
    known = per_side == N_FS_LR and sites.on == "vertices"
    return "fsLR32k" if known else f"sphere{per_side}"


def is_fs_lr(mesh_name: str) -> bool:
    """Whether a mesh is fs_LR 32k, by whichever name."""
    return (
        re.fullmatch(
            rf"fs_?LR[ _-]?32k|(sphere)?({N_FS_LR}|{2 * N_FS_LR})", mesh_name, re.IGNORECASE
        )
        is not None
    )


def mesh_known_as(mesh_name: str) -> StandardMesh | None:
    """The standard mesh of that name, numbering (fsaverage6-A) or size; None for others."""
    if is_fs_lr(mesh_name):
        return MESHES["fsLR32k"]
    if mesh_name in _CIVET:
        return _CIVET[mesh_name]
    found = re.fullmatch(r"fsaverage([3-7]?)(-[AB])?", mesh_name)
    return None if found is None else MESHES[f"fsaverage{found[1] or 7}"]


def fsaverage_level(mesh_name: str) -> int | None:
    """Level of an fsaverage mesh; None for others."""
    mesh = mesh_known_as(mesh_name)
    return None if mesh is None else mesh.level


def vertices_per_side(mesh_name: str) -> int | None:
    """Vertices per hemisphere, for meshes known by name."""
    mesh = mesh_known_as(mesh_name)
    return None if mesh is None else mesh.n_vertices


def space(mesh_name: str) -> str:
    """BIDS entities of a mesh: space and density, which is its number of sites per hemisphere where
    it has no name.
    """
    mesh = mesh_known_as(mesh_name)
    if mesh is not None:
        return f"space-{mesh.space}_den-{mesh.density}"
    own = re.fullmatch(r"sphere(\d+)", mesh_name)
    return f"space-sphere_den-{own[1]}" if own else f"space-{_label(mesh_name, 'mesh_name')}"


OWN = "icofactor"
"""The desc- entity of files about the fit as a whole; those about one measure have its name."""


def map_file(mesh_name: str, ending: str, side: str | None = None, desc: str = OWN) -> str:
    """E.g. "hemi-L_space-fsaverage_den-10k_desc-icofactor_mask.shape.gii"; without a side, one file
    for all.
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
        raise ArgumentError(
            argument, text, "a name with letters or digits, for the names of the files"
        )
    return label
