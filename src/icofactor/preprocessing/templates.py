"""Finding standard spheres, areas and cortex regions in a folder the user has; nothing is ever
downloaded.

Known are the names of HCPpipelines (`global/templates/standard_mesh_atlases`) and of TemplateFlow
(`tpl-fsLR`, `tpl-fsaverage`), all in the space of fsaverage's sphere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from icofactor.errors import ArgumentError
from icofactor.sphere.names import MESHES, StandardMesh, mesh_known_as

_SUBFOLDERS = (
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
    "..",  # atlasroi lies beside the folder resample_fsaverage
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
    """The files of each mesh; an error that lists every file not found.

    Parameters
    ----------
    folder : HCPpipelines or TemplateFlow's home, or one of their folders with the spheres.
    hemisphere : "left" or "right" ("L", "R", "lh", "rh").
    meshes : names such as "fsLR32k", "fsaverage5".
    areas : whether vertex areas are needed.
    roi_of : the mesh whose cortex region is needed, if any; known for fs_LR.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{folder}: no such folder; it should contain the spheres of HCPpipelines or TemplateFlow"
        )
    side = _side(hemisphere)
    files = _listing(folder)
    missing: list[str] = []
    found = []
    for mesh in (_known(name) for name in meshes):
        wanted = {
            "sphere": True,
            "areas": areas,
            "roi": roi_of is not None and mesh == _known(roi_of),
        }
        paths = {}
        for kind in (kind for kind, needed in wanted.items() if needed):
            path = _find(files, _names(mesh, side, kind), _entities(mesh, side, kind))
            if path is None:
                missing.append(f"{kind} of {mesh.name}: {_names(mesh, side, kind)}")
            else:
                paths[kind] = path
        if "sphere" in paths:
            found.append(MeshFiles(**paths))
    if missing:
        raise FileNotFoundError(
            f"{folder} lacks {'; '.join(missing)} (or the same files of TemplateFlow). "
            "HCPpipelines has them in global/templates/standard_mesh_atlases and its resample_fsaverage"
        )
    return found


def _known(mesh: str) -> StandardMesh:
    found = MESHES.get(mesh) or mesh_known_as(mesh)
    if found is None:
        raise ArgumentError("mesh", mesh, f"a standard one; known are {', '.join(MESHES)}")
    return found


def _side(hemisphere: str) -> str:
    """L or R, as the names of the files have it."""
    for letter, names in {"L": ("left", "l", "lh"), "R": ("right", "r", "rh")}.items():
        if str(hemisphere).lower() in names:
            return letter
    raise ArgumentError("hemisphere", hemisphere, "'left' or 'right'")


def _names(mesh: StandardMesh, side: str, kind: str) -> str:
    """The file's name in HCPpipelines."""
    density = mesh.density
    if mesh.space == "fsLR":
        return {
            "sphere": f"fs_LR-deformed_to-fsaverage.{side}.sphere.{density}_fs_LR.surf.gii",
            "areas": f"fs_LR.{side}.midthickness_va_avg.{density}_fs_LR.shape.gii",
            "roi": f"{side}.atlasroi.{density}_fs_LR.shape.gii",
        }[kind]
    name = "fsaverage" if mesh.level == 7 else mesh.name
    return {
        "sphere": f"{name}_std_sphere.{side}.{density}_fsavg_{side}.surf.gii",
        "areas": f"{name}.{side}.midthickness_va_avg.{density}_fsavg_{side}.shape.gii",
        "roi": f"a cortex region of {mesh.name}, which these folders do not have: pass it as an array",
    }[kind]


def _entities(mesh: StandardMesh, side: str, kind: str) -> frozenset[str]:
    """The parts of the file's name in TemplateFlow, whose order varies."""
    lr = mesh.space == "fsLR"
    parts = {f"tpl-{mesh.space}", f"hemi-{side}", f"den-{mesh.density}"}
    if kind == "sphere":
        return frozenset(parts | ({"space-fsaverage"} if lr else set()) | {"sphere.surf.gii"})
    if kind == "areas":
        return frozenset(parts | {"desc-vaavg", "midthickness.shape.gii"})
    return frozenset(parts | {"desc-nomedialwall", "dparc.label.gii"})


def _listing(folder: Path) -> list[Path]:
    """Files of the folder and of those of its neighbours that are known to hold spheres, nearest
    first.
    """
    return [
        path
        for place in _places(folder)
        for path in sorted(place.iterdir())
        if path.name.endswith(".gii")
    ]


def _places(folder: Path) -> Iterator[Path]:
    for name in _SUBFOLDERS:
        # only beside the folder that HCPpipelines names so: a parent may be anything
        if name == ".." and folder.resolve().name != "resample_fsaverage":
            continue
        place = folder.resolve().parent if name == ".." else folder / name
        if place.is_dir():
            yield place


def _find(files: list[Path], name: str, entities: frozenset[str]) -> Path | None:
    for path in files:
        if path.name == name or frozenset(path.name.split("_")) == entities:
            return path
    return None
