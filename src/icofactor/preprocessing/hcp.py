"""Where an HCP tree keeps the maps and series of its subjects, and reading them.

HCP_DIR/{id}/MNINonLinear/fsaverage_LR32k/{id}.{map}_MSMAll.32k_fs_LR.dscalar.nii
HCP_DIR/{id}/MNINonLinear/Results/{run}/{run}_Atlas_MSMAll_hp2000_clean.dtseries.nii
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import CohortError

KINDS = ("thickness", "myelin", "reho", "alff")
MAPS = {"thickness": "thickness_MSMAll", "corrected": "corrThickness_MSMAll", "myelin": "MyelinMap_BC_MSMAll"}
SERIES = "_Atlas_MSMAll_hp2000_clean"
N_VERTICES = 32492
_RUNS = "rfMRI_REST*"


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
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    tree = Path(folder)
    if not tree.is_dir():
        raise CohortError(f"{tree}: no such folder; an HCP tree has one folder per subject")
    names = [place.parent.name for place in sorted(tree.glob("*/MNINonLinear"))]
    if not names:
        raise CohortError(f"{tree} is no HCP tree: none of its folders holds MNINonLinear")
    absent = sorted(set(subjects or ()) - set(names))
    if absent:
        raise CohortError(
            f"{tree} has no subject {', '.join(absent)}; it has {len(names)}: {', '.join(names[:5])}, ..."
        )
    chosen = [name for name in names if subjects is None or name in subjects]
    if kind in ("thickness", "myelin"):
        return [_maps(tree / name / "MNINonLinear", name, map_name or MAPS[kind]) for name in chosen]
    wanted = list(runs) if runs else _all_runs(tree, chosen, series)
    return [_series(tree / name / "MNINonLinear", name, wanted, series) for name in chosen]


def _maps(place: Path, subject: str, map_name: str) -> Inputs:
    file = place / "fsaverage_LR32k" / f"{subject}.{map_name}.32k_fs_LR.dscalar.nii"
    return Inputs(subject, {"map": file}) if file.is_file() else Inputs(subject, {}, {"map": file})


def _all_runs(tree: Path, subjects: Sequence[str], series: str) -> list[str]:
    found = {
        file.parent.name
        for name in subjects
        for file in (tree / name / "MNINonLinear" / "Results").glob(f"{_RUNS}/{_RUNS}{series}.dtseries.nii")
        if file.name == f"{file.parent.name}{series}.dtseries.nii"
    }
    if not found:
        raise CohortError(
            f"{tree} has no series MNINonLinear/Results/{_RUNS}/RUN{series}.dtseries.nii of any subject: "
            "name the runs (runs=), or what follows RUN in the names of the files (series=)"
        )
    return sorted(found)


def _series(place: Path, subject: str, runs: Sequence[str], series: str) -> Inputs:
    for run in runs:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", run):
            raise ValueError(f"runs must be names of folders such as rfMRI_REST1_LR; got {run!r}")
    files = {run: place / "Results" / run / f"{run}{series}.dtseries.nii" for run in runs}
    there = {run: file for run, file in files.items() if file.is_file()}
    return Inputs(subject, there, {run: file for run, file in files.items() if run not in there})


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """What goes wrong inside is told with the file's name."""
    try:
        yield
    except CohortError:
        raise  # the readers name the file themselves
    except ValueError as problem:
        raise CohortError(f"{file}: {problem}") from problem


def read_map(file: Path) -> dict[str, NDArray[Any]]:
    """Side → (32492,) values of a dscalar file with one map; NaN where the file has no value."""
    parts = _read(file).parts
    for values in parts.values():
        if len(values) != 1:
            raise CohortError(f"{file}: has {len(values)} maps; a subject's file of one map was expected")
    return {str(side): values[0] for side, values in parts.items()}


def read_series(file: Path, side: str) -> tuple[NDArray[Any], float | None]:
    """(32492, n_volumes) series of one hemisphere, NaN where the file has none; and the seconds between volumes."""
    maps = _read(file)
    if side not in maps.parts:
        raise CohortError(f"{file}: has no {side} cortex")
    return np.ascontiguousarray(maps.parts[side].T), maps.step


def read_region(file: Path) -> dict[str, NDArray[np.bool_]]:
    """Side → (32492,) where a dscalar or dtseries file has values at all."""
    return {str(side): ~np.isnan(values).all(axis=0) for side, values in _read(file).parts.items()}


def _read(file: Path) -> Any:
    from icofactor.io.maps import read_maps

    maps = read_maps(file)
    for side, values in maps.parts.items():
        if side is None or values.shape[1] != N_VERTICES:
            raise CohortError(f"{file}: its {side} cortex has {values.shape[1]} vertices; fs_LR 32k has {N_VERTICES}")
    return maps
