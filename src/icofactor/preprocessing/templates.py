"""Standard spheres, areas and cortex regions in a folder of the user; nothing is downloaded.

Names may be those of HCPpipelines (`global/templates/standard_mesh_atlases`) or of TemplateFlow
(`tpl-fsLR`, `tpl-fsaverage`), all in the space of fsaverage's sphere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from icofactor.errors import ArgumentError, shown
from icofactor.sphere.names import MESHES, StandardMesh, mesh_known_as

# Folders that may hold spheres, within the one that users name.
SUBFOLDERS = (
    ".",
    "resample_fsaverage",
    "standard_mesh_atlases",
    "standard_mesh_atlases/resample_fsaverage",
    "templates/standard_mesh_atlases",
    "templates/standard_mesh_atlases/resample_fsaverage",
    "global/templates/standard_mesh_atlases",
    "global/templates/standard_mesh_atlases/resample_fsaverage",
    "tpl-fsLR",
    "tpl-fsaverage",
)


@dataclass(frozen=True)
class MeshFiles:
    """The files of one hemisphere of a standard mesh.

    Attributes
    ----------
    sphere : in register with fsaverage's.
    areas : average vertex areas of midthickness surfaces in mm²; None when not asked for.
    roi : the cortex without the medial wall; None when not asked for.
    """

    sphere: Path
    areas: Path | None = None
    roi: Path | None = None


def find_meshes(
    folder: str | Path,
    hemisphere: str,
    meshes: tuple[str, ...],
    areas: bool = True,
    roi_of: str | None = None,
) -> list[MeshFiles]:
    """Return the files of each mesh, or raise an error that lists every file not found.

    Parameters
    ----------
    folder : HCPpipelines or the home of TemplateFlow, or one of their folders with the spheres
    hemisphere : "left" or "right" ("L", "R", "lh", "rh")
    meshes : names such as "fsLR32k", "fsaverage5"
    areas : whether vertex areas are needed
    roi_of : the mesh whose cortex region is needed, if any; only fs_LR has one
    """
    folder = Path(folder)
    side = _letter(hemisphere)
    files = _listing(folder)
    missing = []
    mesh_files = []
    for mesh in map(_standard_mesh, meshes):
        kinds = ["sphere", "areas"] if areas else ["sphere"]
        if roi_of is not None and mesh == _standard_mesh(roi_of):
            kinds.append("roi")
        paths = {}
        for kind in kinds:
            name = _hcp_name(mesh, side, kind)
            path = _find(files, name, _templateflow_parts(mesh, side, kind))
            if path is None:
                missing.append(f"{kind} of {mesh.name}: {name}")
            else:
                paths[kind] = path
        if "sphere" in paths:
            mesh_files.append(MeshFiles(**paths))
    if missing:
        raise FileNotFoundError(
            f"{folder} lacks {'; '.join(missing)} (or the same files of TemplateFlow). "
            "HCPpipelines has them in global/templates/standard_mesh_atlases and its resample_fsaverage"
        )
    return mesh_files


def _standard_mesh(name: str) -> StandardMesh:
    mesh = MESHES.get(name) or mesh_known_as(name)
    if mesh is None:
        text = f"must be a standard mesh, {', '.join(MESHES)}; found {shown(name)}"
        raise ArgumentError("mesh", text)
    return mesh


def _letter(hemisphere: str) -> str:
    """Return L or R, as the names of the files have it."""
    letters = {"left": "L", "l": "L", "lh": "L", "right": "R", "r": "R", "rh": "R"}
    letter = letters.get(str(hemisphere).lower())
    if letter is None:
        text = f"must be 'left' or 'right'; found {shown(hemisphere)}"
        raise ArgumentError("hemisphere", text)
    return letter


def _hcp_name(mesh: StandardMesh, side: str, kind: str) -> str:
    """Return the name of a file in HCPpipelines."""
    density = mesh.density
    if mesh.space == "fsLR":
        name = "fs_LR"
        sphere = f"fs_LR-deformed_to-fsaverage.{side}.sphere.{density}_fs_LR.surf.gii"
        roi = f"{side}.atlasroi.{density}_fs_LR.shape.gii"
    else:
        name = "fsaverage" if mesh.level == 7 else mesh.name
        sphere = f"{name}_std_sphere.{side}.{density}_fsavg_{side}.surf.gii"
        roi = f"a cortex region of {mesh.name}, which these folders do not have: pass an array"
    suffix = "fs_LR" if mesh.space == "fsLR" else f"fsavg_{side}"
    areas = f"{name}.{side}.midthickness_va_avg.{density}_{suffix}.shape.gii"
    return {"sphere": sphere, "areas": areas, "roi": roi}[kind]


def _templateflow_parts(mesh: StandardMesh, side: str, kind: str) -> frozenset[str]:
    """Return the parts of the name of a file in TemplateFlow, whose order varies."""
    parts = {f"tpl-{mesh.space}", f"hemi-{side}", f"den-{mesh.density}"}
    if kind == "sphere":
        space = {"space-fsaverage"} if mesh.space == "fsLR" else set()
        return frozenset(parts | space | {"sphere.surf.gii"})
    if kind == "areas":
        return frozenset(parts | {"desc-vaavg", "midthickness.shape.gii"})
    return frozenset(parts | {"desc-nomedialwall", "dparc.label.gii"})


def _listing(folder: Path) -> list[Path]:
    """Return the files of the folder and of its neighbours that may hold spheres, nearest first."""
    folders = [folder / name for name in SUBFOLDERS]
    # atlasroi lies beside the folder that HCPpipelines names so; any other parent may be anything.
    if folder.resolve().name == "resample_fsaverage":
        folders.append(folder.resolve().parent)
    return [
        path
        for place in folders
        if place.is_dir()
        for path in sorted(place.iterdir())
        if path.name.endswith(".gii")
    ]


def _find(files: list[Path], name: str, parts: frozenset[str]) -> Path | None:
    for path in files:
        if path.name == name or frozenset(path.name.split("_")) == parts:
            return path
    return None
