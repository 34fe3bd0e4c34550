"""The maps and series of the subjects of an HCP tree, on fs_LR 32k: which files, and reading them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.find import folders_in
from icofactor.cohort.find.hcp import RESTING_RUNS, map_file, runs_in, series_file
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, CohortError, as_reference, literal
from icofactor.io.maps import read_maps
from icofactor.sphere.names import N_FS_LR

KINDS = ("thickness", "myelin", "reho", "alff")
MAPS = {"thickness": "thickness_MSMAll", "corrected": "corrThickness_MSMAll", "myelin": "MyelinMap_BC_MSMAll"}
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
    """The files of every subject of an HCP tree, by subject.

    Parameters
    ----------
    folder : the tree: one folder per subject, each with MNINonLinear.
    kind : "thickness", "myelin", "reho" or "alff".
    subjects : only these; all when None.
    map_name : what stands between "{id}." and ".32k_fs_LR.dscalar.nii"; that of the kind when None.
    runs : names of the runs; when None, all that any subject has of rfMRI_REST*.
    series : what follows the run in the name of its file.

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
        raise CohortError(tree, "is not an HCP tree: none of its folders holds MNINonLinear")
    absent = sorted(set(subjects or ()) - set(places))
    if absent:
        raise CohortError(tree, f"has no subject {some(absent)}; it has {len(places)}: {some(places)}")
    chosen = [place for name, place in places.items() if subjects is None or name in subjects]
    if kind in ("thickness", "myelin"):
        return [_inputs(place, {"map": map_file(place, map_name or MAPS[kind])}) for place in chosen]
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
    return [_inputs(place, {run: series_file(place, run, series) for run in wanted}) for place in chosen]


def _inputs(place: Path, files: Mapping[str, Path]) -> Inputs:
    there = {name: file for name, file in files.items() if file.is_file()}
    return Inputs(place.name, there, {name: file for name, file in files.items() if name not in there})


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
            raise CohortError(file, f"has {len(values)} maps; a subject's file of one map was expected")
    return {str(side): values[0] for side, values in parts.items()}


def read_series(file: Path, side: str) -> tuple[NDArray[Any], float | None]:
    """(n_vertices, n_volumes) series of a hemisphere, NaN where the file has none; and the seconds between volumes."""
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
            raise CohortError(file, f"its {side} cortex has {values.shape[1]} vertices; fs_LR 32k has {N_FS_LR}")
    return maps
