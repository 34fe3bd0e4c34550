"""The maps and series of an HCP tree, on fs_LR 32k: which files, reading them, and the way to an
fsaverage mesh.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from icofactor.cohort.cohort import Hemisphere
from icofactor.cohort.find import folders_in
from icofactor.cohort.find.hcp import RESTING_RUNS, map_file, runs_in, series_file
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, CohortError, as_reference, literal
from icofactor.io.archive import digest
from icofactor.io.maps import read_maps
from icofactor.preprocessing.resampling import fs_lr_to_fsaverage
from icofactor.preprocessing.templates import find_meshes
from icofactor.preprocessing.transformers import SparseWeights, apply_weights
from icofactor.sphere.names import N_FS_LR, SIDES, hemispheres
from icofactor.sphere.sites import Sites
from icofactor.sphere.surfaces import as_roi, as_sphere

KINDS = ("thickness", "myelin", "reho", "alff")
MAPS = {
    "thickness": "thickness_MSMAll",
    "corrected": "corrThickness_MSMAll",
    "myelin": "MyelinMap_BC_MSMAll",
}
SERIES = "_Atlas_MSMAll_hp2000_clean"


@dataclass(frozen=True)
class Inputs:
    """The files of one subject.

    Attributes
    ----------
    subject : its name.
    files : "map", or the name of a run → file.
    missing : the same, of files that should be there and are not.
    """

    subject: str
    files: Mapping[str, Path]
    missing: Mapping[str, Path] = field(default_factory=dict)

    def identity(self) -> list[str]:
        """What tells these files from others of the same names: size and time of last change."""
        found = []
        for name, file in self.files.items():
            about = file.stat()
            found.append(f"{name}={file.name}:{about.st_size}:{about.st_mtime_ns}")
        return found


def find_inputs(
    folder: str | Path,
    kind: str,
    *,
    subjects: Sequence[str] | None = None,
    map_name: str | None = None,
    runs: Sequence[str] | None = None,
    series: str = SERIES,
) -> list[Inputs]:
    """Find the files of every subject of an HCP tree.

    Parameters
    ----------
    folder : path
        The tree: one folder per subject, each with MNINonLinear.
    kind : {"thickness", "myelin", "reho", "alff"}
        Kind of map.
    subjects : sequence of str, optional
        Subjects to find. Default: all.
    map_name : str, optional
        Part of the file name between "{id}." and ".32k_fs_LR.dscalar.nii". Default: that of the
        kind.
    runs : sequence of str, optional
        Names of the runs. Default: all rfMRI_REST* that any subject has.
    series : str, optional
        Part of the file name after the run.

    Examples
    --------
    >>> from icofactor.preprocessing import find_inputs
    >>> inputs = find_inputs("HCP", "thickness")  # doctest: +SKIP
    """
    if kind not in KINDS:
        raise ArgumentError("kind", kind, f"one of {', '.join(KINDS)}")
    tree = Path(folder)
    if not tree.is_dir():
        raise CohortError(tree, "no such folder; an HCP tree has one folder per subject")
    places = {place.name: place for place in folders_in(tree) if (place / "MNINonLinear").is_dir()}
    if not places:
        raise CohortError(
            tree,
            "is not an HCP tree: none of its folders contains MNINonLinear; it has no sub-* folders of fMRIPrep either",
        )
    absent = sorted(set(subjects or ()) - set(places))
    if absent:
        raise CohortError(
            tree, f"has no subject {some(absent)}; it has {len(places)}: {some(places)}"
        )
    chosen = [place for name, place in places.items() if subjects is None or name in subjects]
    if kind in ("thickness", "myelin"):
        return [
            _inputs(place, {"map": map_file(place, map_name or MAPS[kind])}) for place in chosen
        ]
    for run in runs or ():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", run):
            raise ArgumentError("runs", run, "names of folders such as rfMRI_REST1_LR")
    wanted = list(runs) if runs else runs_in(chosen, series)
    if not wanted:
        raise CohortError(
            tree,
            f"has no series MNINonLinear/Results/{RESTING_RUNS}/RUN{literal(series)}.dtseries.nii of any subject: name "
            "the {runs}, or what follows RUN in the names of the files ({series})",
        )
    return [
        _inputs(place, {run: series_file(place, run, series) for run in wanted}) for place in chosen
    ]


def _inputs(place: Path, files: Mapping[str, Path]) -> Inputs:
    there = {name: file for name, file in files.items() if file.is_file()}
    return Inputs(
        place.name, there, {name: file for name, file in files.items() if name not in there}
    )


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Errors raised inside get the file's name."""
    try:
        yield
    except CohortError:
        raise  # the readers name the file themselves
    except ArgumentError as problem:
        raise CohortError(file, problem.describe(as_reference)) from problem
    except ValueError as problem:
        raise CohortError(file, literal(problem)) from problem


def read_map(file: Path) -> dict[str, NDArray[Any]]:
    """Side → (n_vertices,) values of a dscalar file with one map; NaN where the file has no value."""
    parts = _read(file).parts
    for values in parts.values():
        if len(values) != 1:
            raise CohortError(
                file, f"has {len(values)} maps; a file with one map per subject was expected"
            )
    return {str(side): values[0] for side, values in parts.items()}


def read_series(file: Path, side: str) -> tuple[NDArray[Any], float | None]:
    """(n_vertices, n_volumes) series of a hemisphere, NaN where the file has none; and the seconds
    between volumes.
    """
    maps = _read(file)
    if side not in maps.parts:
        raise CohortError(file, f"has no {side} cortex")
    return np.ascontiguousarray(maps.parts[side].T), maps.step


def read_region(file: Path) -> dict[str, NDArray[np.bool_]]:
    """Side → (n_vertices,) where a dscalar or dtseries file has values at all."""
    return {str(side): ~np.isnan(values).all(axis=0) for side, values in _read(file).parts.items()}


def _read(file: Path) -> Any:
    maps = read_maps(file)
    for side, values in maps.parts.items():
        if side is None or values.shape[1] != N_FS_LR:
            raise CohortError(
                file, f"its {side} cortex has {values.shape[1]} vertices; fs_LR 32k has {N_FS_LR}"
            )
    return maps


# A vertex of the target counts as cortex when at least half of what it would be made of lies in the
# cortex.
MOSTLY = 0.5


@dataclass(frozen=True, eq=False)
class Cortex:
    """The part of fs_LR 32k that holds data, without the medial wall.

    Attributes
    ----------
    regions : side → (n_vertices,) bool.
    origin : where it comes from, for the provenance.
    """

    regions: Mapping[str, NDArray[np.bool_]]
    origin: str


@dataclass(frozen=True, eq=False)
class Projection:
    """One hemisphere's way from fs_LR 32k to the target.

    Attributes
    ----------
    faces : (F, 3) triangles of fs_LR 32k.
    roi : (n_vertices,) bool, the cortex without the medial wall.
    weights : (n_target, n_vertices) sparse; rows sum to 1, or to 0 far from the cortex.
    mask : (n_target,) bool, where the target is cortex.
    sites : the target's vertices.
    """

    faces: NDArray[Any]
    roi: NDArray[np.bool_]
    weights: sparse.csr_array
    mask: NDArray[np.bool_]
    sites: Sites

    def __call__(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """(n_target,) of a map on fs_LR 32k; 0 outside the mask."""
        carried = apply_weights(SparseWeights([self.weights]), values.astype(np.float64), "fs_LR 32k")
        return np.where(self.mask, carried, 0.0).astype(np.float32)

    def digest(self) -> str:
        """Tells this projection from others."""
        return digest(
            self.roi, self.weights.data, self.weights.indices, self.weights.indptr, self.mask
        )


def projections(
    spheres: str | Path, hemisphere: Hemisphere, target: str, method: str, cortex: Cortex
) -> dict[str, Projection]:
    """Side → projection, from the spheres and areas in a folder.

    Parameters
    ----------
    spheres : a folder of HCPpipelines or TemplateFlow; see `fs_lr_to_fsaverage`.
    hemisphere : "left", "right" or "both".
    target : "fsaverage4", "fsaverage5" or "fsaverage6".
    method : "adaptive" or "barycentric".
    cortex : the region that holds data.
    """
    sides = hemispheres(hemisphere, "hemisphere")
    return {
        side: _projection(spheres, side, target, method, cortex.regions[side]) for side in sides
    }


def _projection(
    spheres: str | Path, side: str, target: str, method: str, roi: NDArray[np.bool_]
) -> Projection:
    resampler = fs_lr_to_fsaverage(spheres, side, target, method, roi=roi)
    source = as_sphere(resampler.source_sphere, "sphere of fs_LR 32k")
    return Projection(
        source.faces,
        roi,
        resampler.weights,
        resampler.coverage >= MOSTLY,
        Sites.from_file(resampler.target_sphere),
    )


def atlas_cortex(spheres: str | Path) -> Cortex | None:
    """The cortex of fs_LR 32k that comes with the spheres (atlasroi); None when the folder has
    none.
    """
    found = {}
    for side in SIDES:
        (plain,) = find_meshes(spheres, side, ("fsLR32k",), areas=False)
        try:
            (files,) = find_meshes(spheres, side, ("fsLR32k",), areas=False, roi_of="fsLR32k")
        except FileNotFoundError:
            return None
        roi = as_roi(files.roi, as_sphere(plain.sphere, "sphere of fs_LR 32k"))
        assert roi is not None
        found[side] = roi
    return Cortex(found, "atlasroi")


def file_cortex(files: Iterable[Path]) -> Cortex:
    """The cortex as the brain models of the first readable CIFTI file have it: where it holds a
    value at all.
    """
    unreadable = ""
    for file in files:
        try:
            regions = read_region(file)
        except (ValueError, OSError) as problem:
            unreadable = unreadable or f"; {literal(problem)}"
            continue
        if set(regions) != set(SIDES) or any(region.all() for region in regions.values()):
            raise CohortError(
                file,
                "its brain models do not separate the cortex from the medial wall in both hemispheres, and the folder "
                "of spheres has no L.atlasroi.32k_fs_LR.shape.gii and R.atlasroi.32k_fs_LR.shape.gii",
            )
        return Cortex(regions, f"brain models of {file.name}")
    raise CohortError(
        "spheres",
        "the folder has no L.atlasroi.32k_fs_LR.shape.gii and R.atlasroi.32k_fs_LR.shape.gii, and no file to take the "
        f"cortex from can be read{unreadable}",
    )


def target_sites(found: Mapping[str, Projection]) -> tuple[Sites, NDArray[np.bool_]]:
    """Sites and mask of the target, left then right."""
    parts = list(found.values())
    sites = parts[0].sites if len(parts) == 1 else Sites.both(parts[0].sites, parts[1].sites)
    return sites, np.concatenate([part.mask for part in parts])
