"""An HCP tree: where it keeps the maps and series of its subjects.

SUBJECT/MNINonLinear/fsaverage_LR32k/SUBJECT.MyelinMap_BC_MSMAll.32k_fs_LR.dscalar.nii
SUBJECT/MNINonLinear/Results/RUN/RUN_Atlas_MSMAll_hp2000_clean.dtseries.nii
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from icofactor.cohort.find import Found, Source, Wanted, folders_in, names_in
from icofactor.errors import CohortError, literal
from icofactor.sphere.names import LETTERS

# What users ask for → what the HCP calls it, best first; _MSMAll is the better registration.
_MEASURES = {
    "myelin": ("MyelinMap_BC_MSMAll", "MyelinMap_BC", "MyelinMap_MSMAll", "MyelinMap"),
    "curv": ("curvature_MSMAll", "curvature"),
}
_COMMON = ("myelin", "thickness", "corrThickness", "curvature", "sulc")
_DRAWN = ("midthickness_MSMAll", "midthickness")
RESTING_RUNS = "rfMRI_REST*"
_FOLDERS = {
    "32k": "MNINonLinear/fsaverage_LR32k",
    "59k": "MNINonLinear/fsaverage_LR59k",
    "164k": "MNINonLinear",
}


def hcp_subjects(root: Path) -> list[Path] | None:
    """The subjects of the HCP pipelines that a folder holds, or is; None when there are none."""
    if (root / "MNINonLinear").is_dir():
        return [root]
    return [folder for folder in folders_in(root) if (folder / "MNINonLinear").is_dir()] or None


def find_hcp(root: str, subjects: list[Path], wanted: Wanted) -> Found:
    """The maps of all subjects: a dscalar each, or a pair of GIFTI files where there is none."""
    density = _density(wanted.target)
    if wanted.measure is None:
        raise CohortError(
            root,
            f"an HCP tree contains several maps; choose with {{measure}} ({', '.join(_COMMON)})",
        )
    names = {folder: set(names_in(folder / _FOLDERS[density])) for folder in subjects}
    variant, dense = _choose(root, names, wanted, density)
    found = Found(measure=wanted.measure)
    for folder in subjects:
        subject = folder.absolute().name
        for side in (None,) if dense else wanted.sides:
            path = map_file(folder, variant, side, density)
            if path.name in names[folder]:
                found.sources.append(Source(path, subject, side))
                found.surfaces[path] = _surfaces(path, subject, names[folder], density, wanted)
            else:
                found.missing.setdefault(subject, []).append(str(path))
    spheres = (spheres_beside(source.path) for source in found.sources)
    found.mesh = next((pair for pair in spheres if pair is not None), known(f"fsLR{density}"))
    found.notes.append(f"{root}: HCP subjects, {variant} on fs_LR {density}")
    return found


def _surfaces(
    path: Path, subject: str, names: set[str], density: str, wanted: Wanted
) -> list[Path]:
    """Surfaces of a subject to draw on, beside one of its maps."""
    ends = (f"{kind}.{density}_fs_LR.surf.gii" for kind in _DRAWN)
    pairs = ([f"{subject}.{LETTERS[side]}.{end}" for side in wanted.sides] for end in ends)
    return [
        path.with_name(name) for name in next((pair for pair in pairs if names >= set(pair)), ())
    ]


def _density(target: str | None) -> str:
    density = (target or "32k").lower().replace("fs_lr", "").replace("fslr", "").strip(
        "_-"
    ) or "32k"
    if density not in _FOLDERS:
        raise CohortError(
            "target",
            f"must be one of {', '.join(_FOLDERS)} for an HCP tree; found {literal(repr(target))}",
        )
    return density


def map_file(subject: Path, variant: str, side: str | None = None, density: str = "32k") -> Path:
    """The file of a map in a subject's folder: a dscalar, or the GIFTI file of one hemisphere."""
    name, end = subject.absolute().name, f"{density}_fs_LR"
    if side is None:
        return subject / _FOLDERS[density] / f"{name}.{variant}.{end}.dscalar.nii"
    return subject / _FOLDERS[density] / f"{name}.{LETTERS[side]}.{variant}.{end}.shape.gii"


def series_file(subject: Path, run: str, series: str) -> Path:
    """The file of a run's series in a subject's folder; `series` is what follows the run in its
    name.
    """
    return subject / "MNINonLinear" / "Results" / run / f"{run}{series}.dtseries.nii"


def runs_in(subjects: Iterable[Path], series: str) -> list[str]:
    """The runs at rest that any of the subjects has."""
    found = {
        run.name
        for subject in subjects
        for run in (subject / "MNINonLinear" / "Results").glob(RESTING_RUNS)
        if series_file(subject, run.name, series).is_file()
    }
    return sorted(found)


def _choose(
    root: str, names: dict[Path, set[str]], wanted: Wanted, density: str
) -> tuple[str, bool]:
    """The variant that most subjects have, the better one when equal; and whether as dscalar."""
    measure = str(wanted.measure)
    variants = _MEASURES.get(
        measure, (measure if measure.endswith("_MSMAll") else f"{measure}_MSMAll", measure)
    )
    best: tuple[str, bool] | None = None
    most = 0
    for dense in (True, False):
        for variant in variants:
            sides = (None,) if dense else wanted.sides
            count = sum(
                any(map_file(folder, variant, side, density).name in there for side in sides)
                for folder, there in names.items()
            )
            if count > most:
                best, most = (variant, dense), count
    if best is None:
        end = f".{density}_fs_LR.dscalar.nii"
        others = sorted(
            {
                name.removesuffix(end).removeprefix(f"{folder.absolute().name}.")
                for folder, there in names.items()
                for name in there
                if name.endswith(end)
            }
        )
        there = f"; there are {', '.join(others)}" if others else ""
        text = f"no subject has {measure} on fs_LR {density} ({' or '.join(variants)}){there}"
        raise CohortError(root, literal(text))
    return best


def mesh_for(mesh: str | None, path: Path) -> Any:
    """What stands for the mesh that a file's name tells: the spheres beside it for fs_LR, else the
    name.
    """
    if mesh is None or not mesh.startswith("fsLR"):
        return mesh
    return spheres_beside(path) or known(mesh)


def known(mesh: str) -> str | None:
    """An fs_LR mesh that needs no file, by name; None for others."""
    return mesh if mesh == "fsLR32k" else None


def spheres_beside(path: Path) -> Any:
    """(Left, right) sphere files of fs_LR in the folder of a file, or None."""
    density = next(
        (d for d in _FOLDERS if f"{d}_fs_LR" in path.name or f"den-{d}" in path.name), "32k"
    )
    names = names_in(path.parent)
    pair = []
    for letter in LETTERS.values():
        ends = (
            f"{letter}.sphere.{density}_fs_LR.surf.gii",
            f"den-{density}_hemi-{letter}_sphere.surf.gii",
        )
        fitting = [name for name in names if name.endswith(ends)]
        # the one of the same subject first: a folder may hold those of several
        fitting.sort(key=lambda name: name.split(".")[0] != path.name.split(".")[0])
        if not fitting:
            return None
        pair.append(path.parent / fitting[0])
    return tuple(pair)
