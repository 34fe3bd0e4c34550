"""The maps and series of an HCP tree on fs_LR 32k, and their way to an fsaverage mesh."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from icofactor.checks import OneOf, check_value
from icofactor.cohort.cohort import Hemisphere
from icofactor.cohort.find import folders_in
from icofactor.cohort.find.hcp import RESTING_RUNS, map_file, runs_in, series_file
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, CohortError, shown
from icofactor.io.archive import digest
from icofactor.io.guard import hash_file
from icofactor.io.maps import read_maps
from icofactor.preprocessing.outliers import limit_outliers
from icofactor.preprocessing.resampling import fs_lr_to_fsaverage
from icofactor.preprocessing.subject_maps import (
    KINDS,
    FileRecord,
    HemisphereMap,
    Run,
    Steps,
    SubjectMap,
    filled,
    map_of_runs,
    naming,
)
from icofactor.preprocessing.templates import find_meshes
from icofactor.preprocessing.temporal import Bools, checked_tr
from icofactor.preprocessing.transformers import SparseWeights, apply_weights
from icofactor.sphere.names import N_FS_LR, SIDES, hemispheres
from icofactor.sphere.sites import Sites
from icofactor.sphere.surfaces import as_roi, as_sphere

# Kind → part of the name of its file.
MAPS = {"thickness": "thickness_MSMAll", "myelin": "MyelinMap_BC_MSMAll"}
# Part of the name of a series after that of its run: after MSMAll and FIX.
SERIES = "_Atlas_MSMAll_hp2000_clean"
# A vertex of the target is cortex if at least this share of its value comes from the cortex.
MOSTLY = 0.5
NO_ATLAS = "has no L.atlasroi.32k_fs_LR.shape.gii and R.atlasroi.32k_fs_LR.shape.gii"


@dataclass(frozen=True)
class Inputs:
    """The files of one subject.

    Attributes
    ----------
    subject : its name
    files : "map", or the name of a run → file
    missing : the same, of files that should be there and are not
    """

    subject: str
    files: Mapping[str, Path]
    missing: Mapping[str, Path] = field(default_factory=dict)

    @classmethod
    def of(cls, subject: str, files: Mapping[str, Path]) -> Inputs:
        """Return the files of a subject, sorted into those that exist and those that do not."""
        existing = {name: file for name, file in files.items() if file.is_file()}
        missing = {name: file for name, file in files.items() if name not in existing}
        return cls(subject, existing, missing)

    def each_run(self) -> dict[str, Inputs]:
        """Return the files of every run by themselves."""
        existing = {run: Inputs(self.subject, {run: file}) for run, file in self.files.items()}
        missing = {run: Inputs(self.subject, {}, {run: file}) for run, file in self.missing.items()}
        return existing | missing


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
    check_value("kind", kind, OneOf(KINDS))
    folders = _subject_folders(Path(folder), subjects)
    if kind in MAPS:
        name = map_name or MAPS[kind]
        return [Inputs.of(place.name, {"map": map_file(place, name)}) for place in folders]
    for run in runs or ():
        # A name must not lead out of the tree.
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", run):
            text = f"must be names of folders such as rfMRI_REST1_LR; found {shown(run)}"
            raise ArgumentError("runs", text)
    run_names = list(runs) if runs else runs_in(folders, series)
    if not run_names:
        raise CohortError(
            Path(folder),
            f"has no series MNINonLinear/Results/{RESTING_RUNS}/RUN{series}.dtseries.nii of any "
            "subject: pass --runs (runs=...), or what follows RUN in the names of the files, "
            "--series (series=...)",
        )
    return [
        Inputs.of(place.name, {run: series_file(place, run, series) for run in run_names})
        for place in folders
    ]


def _subject_folders(tree: Path, subjects: Sequence[str] | None) -> list[Path]:
    """Return the folders of the subjects (None: of all)."""
    folders = []
    if tree.is_dir():
        folders = [folder for folder in folders_in(tree) if (folder / "MNINonLinear").is_dir()]
    if not folders:
        raise CohortError(
            tree,
            "is not an HCP tree: it must have one folder per subject that contains MNINonLinear; "
            "it has no sub-* folders of fMRIPrep either",
        )
    if subjects is None:
        return folders
    names = [folder.name for folder in folders]
    absent = sorted(set(subjects) - set(names))
    if absent:
        text = f"has no subject {some(absent)}; it has {len(names)}: {some(names)}"
        raise CohortError(tree, text)
    return [folder for folder in folders if folder.name in subjects]


def read_map(file: Path, sides: Iterable[str] = ()) -> dict[str, NDArray[Any]]:
    """Return side → (n_vertices,) values of a dscalar file with one map; NaN without a value."""
    parts = _read(file, sides).parts
    for values in parts.values():
        if len(values) != 1:
            text = f"has {len(values)} maps; a file with one map per subject was expected"
            raise CohortError(file, text)
    return {str(side): values[0] for side, values in parts.items()}


def read_series(file: Path, side: str) -> tuple[NDArray[Any], float | None]:
    """Return series (n_vertices, n_volumes), NaN without a value, and seconds between volumes."""
    maps = _read(file, [side])
    return np.ascontiguousarray(maps.parts[side].T), maps.step


def read_region(file: Path) -> dict[str, Bools]:
    """Return side → (n_vertices,) where a dscalar or dtseries file has values at all."""
    return {str(side): ~np.isnan(values).all(axis=0) for side, values in _read(file).parts.items()}


def _read(file: Path, sides: Iterable[str] = ()) -> Any:
    """Read a file that must have these sides on fs_LR 32k."""
    maps = read_maps(file)
    sizes = {side: values.shape[1] for side, values in maps.parts.items()}
    if set(sizes.values()) != {N_FS_LR} or None in sizes or not sizes.keys() >= set(sides):
        raise CohortError(
            file,
            f"must have {N_FS_LR} vertices, those of fs_LR 32k, of {' and '.join(sides) or 'a'} "
            f"cortex; found {sizes}",
        )
    return maps


@dataclass(frozen=True, eq=False)
class Cortex:
    """The part of fs_LR 32k that holds data, without the medial wall.

    Attributes
    ----------
    regions : side → (n_vertices,) bool
    origin : which files say so, for the provenance
    """

    regions: Mapping[str, Bools]
    origin: str


@dataclass(frozen=True, eq=False)
class Projection:
    """The way of one hemisphere from fs_LR 32k to the target.

    Attributes
    ----------
    faces : (F, 3) triangles of fs_LR 32k
    roi : (n_vertices,) bool, the cortex without the medial wall
    weights : (n_target, n_vertices) sparse; rows sum to 1, or to 0 far from the cortex
    mask : (n_target,) bool, where the target is cortex
    sites : vertices of the target
    """

    faces: NDArray[Any]
    roi: Bools
    weights: sparse.csr_array
    mask: Bools
    sites: Sites

    def __call__(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return a map of fs_LR 32k on the target (n_target,), 0 outside the mask."""
        weights = SparseWeights([self.weights])
        resampled = apply_weights(weights, values.astype(np.float64), "fs_LR 32k")
        return np.where(self.mask, resampled, 0.0).astype(np.float32)

    def digest(self) -> str:
        """Return what tells this projection from others."""
        weights = self.weights
        return digest(self.roi, weights.data, weights.indices, weights.indptr, self.mask)


def projections(
    spheres: str | Path, hemisphere: Hemisphere, target: str, method: str, cortex: Cortex
) -> dict[str, Projection]:
    """Return the projections by side, in the order in which maps are joined.

    Parameters
    ----------
    spheres : a folder of HCPpipelines or TemplateFlow; see `fs_lr_to_fsaverage`
    hemisphere : "left", "right" or "both"
    target : "fsaverage4", "fsaverage5" or "fsaverage6"
    method : "adaptive" or "barycentric"
    cortex : the region that holds data
    """
    by_side = {}
    for side in hemispheres(hemisphere, "hemisphere"):
        roi = cortex.regions[side]
        resampler = fs_lr_to_fsaverage(spheres, side, target, method, roi=roi)
        faces = as_sphere(resampler.source_sphere, "sphere of fs_LR 32k").faces
        mask = resampler.coverage >= MOSTLY
        sites = Sites.from_file(resampler.target_sphere)
        by_side[side] = Projection(faces, roi, resampler.weights, mask, sites)
    return by_side


def atlas_cortex(spheres: str | Path) -> Cortex | None:
    """Return the cortex of fs_LR 32k that comes with the spheres (atlasroi), if it does."""
    regions = {}
    for side in SIDES:
        (files,) = find_meshes(spheres, side, ("fsLR32k",), areas=False)
        sphere = as_sphere(files.sphere, "sphere of fs_LR 32k")
        try:
            (files,) = find_meshes(spheres, side, ("fsLR32k",), areas=False, roi_of="fsLR32k")
        except FileNotFoundError:
            return None
        roi = as_roi(files.roi, sphere)
        assert roi is not None
        regions[side] = roi
    return Cortex(regions, "atlasroi")


def file_cortex(files: Iterable[Path]) -> Cortex:
    """Return the cortex of the brain models of the first readable CIFTI file."""
    unreadable = ""
    for file in files:
        try:
            regions = read_region(file)
        except (ValueError, OSError) as problem:
            # The first is enough: damaged files often are damaged alike.
            unreadable = unreadable or f"; {problem}"
            continue
        if set(regions) != set(SIDES) or any(region.all() for region in regions.values()):
            raise CohortError(
                file,
                "its brain models do not separate the cortex from the medial wall in both "
                f"hemispheres, and the folder of spheres {NO_ATLAS}",
            )
        return Cortex(regions, f"brain models of {file.name}")
    raise CohortError(
        "spheres",
        f"the folder {NO_ATLAS}, and no file to take the cortex from can be read{unreadable}",
    )


def target_sites(ways: Mapping[str, Projection]) -> tuple[Sites, Bools]:
    """Return sites and mask of the target, left then right."""
    sites = [way.sites for way in ways.values()]
    mask = np.concatenate([way.mask for way in ways.values()])
    return sites[0] if len(sites) == 1 else Sites.both(*sites), mask


def subject_map(
    inputs: Inputs, steps: Steps, ways: Mapping[str, Projection], regions: Mapping[str, Bools]
) -> SubjectMap:
    """Return the map of one subject on the target; for ALFF `inputs` holds one run.

    Raises
    ------
    CohortError
        With the name of the file that is missing or wrong.
    """
    if inputs.missing:
        raise CohortError.of([(str(file), "no such file") for file in inputs.missing.values()])
    files = list(inputs.files.values())
    hemispheres = {}
    times: set[float] = set()
    n_filled = 0
    if steps.kind in MAPS:
        maps = _limited_map(files[0], steps, ways, regions)
    for side, way in ways.items():
        if steps.kind in MAPS:
            hemisphere = maps[side]
            problem = "have no finite value"
        else:
            # One hemisphere after the other, so that the series of one are in memory, not of two.
            hemisphere = map_of_runs(_runs(files, side, steps, times), way.faces, way.roi, steps)
            problem = "are constant" if len(files) == 1 else "are constant in one of the runs"
        with naming(files[-1]):
            values, n_missing = filled(
                hemisphere, way.roi, way.faces, side, problem, steps.max_missing
            )
            hemispheres[side] = HemisphereMap(way(values), way.mask)
        n_filled += n_missing
    records = [FileRecord(str(file), hash_file(file), "cifti") for file in files]
    return SubjectMap(hemispheres, records, tuple(sorted(times)), n_filled)


def _runs(files: Sequence[Path], side: str, steps: Steps, times: set[float]) -> Iterator[Run]:
    """Yield the series of the files, one file after the other; adds their times to `times`."""
    for file in files:
        series, tr = read_series(file, side)
        if steps.tr is None and tr is None:
            text = "does not give its repetition time in seconds: pass --tr (tr=...)"
            raise CohortError(file, text)
        with naming(file):
            seconds = checked_tr(tr if steps.tr is None else steps.tr)
        times.add(seconds)
        yield Run(file, series, seconds)


def _limited_map(
    file: Path, steps: Steps, ways: Mapping[str, Projection], regions: Mapping[str, Bools]
) -> dict[str, HemisphereMap]:
    """Return a thickness or myelin map by side, outliers limited."""
    maps = read_map(file, ways)
    is_used = {side: regions[side] & np.isfinite(values) for side, values in maps.items()}
    # Over both hemispheres even if one is prepared: the limits of a subject must not depend on it.
    values = np.concatenate([maps[side][is_used[side]] for side in maps])
    if steps.limit is not None and len(values):
        with naming(file):
            limited = limit_outliers(values[None], steps.limit)[0]
        first = 0
        for side in maps:
            last = first + int(is_used[side].sum())
            maps[side] = maps[side].copy()
            maps[side][is_used[side]] = limited[first:last]
            first = last
    return {side: HemisphereMap(maps[side], is_used[side]) for side in maps}
