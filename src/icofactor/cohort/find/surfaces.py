"""Surfaces that lie beside maps: spheres that give the mesh, and surfaces to draw on."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from icofactor.cohort.find import names_in
from icofactor.sphere.names import LETTERS, SIDES

if TYPE_CHECKING:
    import pandas as pd

_DENSITIES = ("32k", "59k", "164k")
# Surfaces of a subject relative to its map, by the name of the mesh.
_SURFACES = {
    "CIVET": ("../surfaces/*mid_surface_rsl_{side}_*.obj",),
    "fsLR": (
        "{subject}.{letter}.midthickness_MSMAll.{density}_fs_LR.surf.gii",
        "{subject}.{letter}.midthickness.{density}_fs_LR.surf.gii",
    ),
}
# Average this many subjects' surfaces to draw on: from three on, it is nobody's own cortex.
_MIN_DRAWN = 3
_MAX_DRAWN = 10


def mesh_of_files(files: pd.DataFrame) -> Any:
    """Return the mesh of the files as `load_cohort` takes it; None if names do not say it."""
    names = set(files["mesh"])
    present = files[files["size"] >= 0]
    if len(names - {None}) != 1 or present.empty:
        return None
    first = present.iloc[0]
    # The surfaces of any subject have the mesh of all.
    if first.mesh == "CIVET":
        return next(filter(None, (_surfaces_of(row, SIDES) for row in _rows(present))), None)
    if first.mesh is not None and first.mesh.startswith("fsLR"):
        # fsLR32k is the only mesh of fs_LR that needs no file.
        return _spheres_beside(first.path) or ("fsLR32k" if first.mesh == "fsLR32k" else None)
    return first.mesh


def surfaces_to_draw(
    files: pd.DataFrame,
    sides: tuple[str, ...],
) -> list[Path]:
    """Return surfaces of some of the subjects, none if too few have any."""
    if not set(files["mesh"]) & {"CIVET", "fsLR32k", "fsLR59k", "fsLR164k"}:
        return []
    # A subject is drawn on once, though it has a file for each hemisphere.
    by_subject = files.drop_duplicates("subject")
    listed = filter(None, (_surfaces_of(row, sides) for row in _rows(by_subject)))
    drawn = list(islice(listed, _MAX_DRAWN))
    return [path for paths in drawn for path in paths] if len(drawn) >= _MIN_DRAWN else []


def _rows(files: pd.DataFrame) -> Any:
    return files.itertuples(index=False)


def _surfaces_of(
    file: Any,
    sides: tuple[str, ...],
) -> tuple[Path, ...] | None:
    """Return a subject's surfaces of these hemispheres; None if one is missing."""
    folder = Path(file.path).parent
    for template in _SURFACES.get(str(file.mesh).rstrip("0123456789k"), ()):
        paths = []
        for side in sides:
            glob = template.format(
                side=side,
                letter=LETTERS[side],
                subject=file.subject,
                density=str(file.mesh).removeprefix("fsLR"),
            )
            base = folder.parent if glob.startswith("../") else folder
            paths += sorted(base.glob(glob.removeprefix("../")))[:1]
        if len(paths) == len(sides):
            return tuple(paths)
    return None


def _spheres_beside(path: Path) -> tuple[Path, ...] | None:
    """Return the (left, right) spheres of fs_LR in the folder of a file, or None."""
    densities = [
        density
        for density in _DENSITIES
        if f"{density}_fs_LR" in path.name or f"den-{density}" in path.name
    ]
    density = densities[0] if densities else "32k"
    spheres = []
    for letter in LETTERS.values():
        endings = (
            f"{letter}.sphere.{density}_fs_LR.surf.gii",
            f"den-{density}_hemi-{letter}_sphere.surf.gii",
        )
        names = [name for name in names_in(path.parent) if name.endswith(endings)]
        # A folder may hold the spheres of several subjects: prefer those of the same one.
        names.sort(key=lambda name: name.split(".")[0] != path.name.split(".")[0])
        spheres += [path.parent / name for name in names[:1]]
    return tuple(spheres) if len(spheres) == len(LETTERS) else None
