"""Where a subject of the HCP has its maps and series.

SUBJECT/MNINonLinear/fsaverage_LR32k/SUBJECT.MyelinMap_BC_MSMAll.32k_fs_LR.dscalar.nii
SUBJECT/MNINonLinear/Results/RUN/RUN_Atlas_MSMAll_hp2000_clean.dtseries.nii
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

RESTING_RUNS = "rfMRI_REST*"


def map_file(
    subject: Path,
    variant: str,
) -> Path:
    """Return the dscalar of a map in a subject's folder."""
    name = f"{subject.absolute().name}.{variant}.32k_fs_LR.dscalar.nii"
    return subject / "MNINonLinear" / "fsaverage_LR32k" / name


def series_file(
    subject: Path,
    run: str,
    series: str,
) -> Path:
    """Return the file of a run's series; `series` follows the run in its name."""
    return subject / "MNINonLinear" / "Results" / run / f"{run}{series}.dtseries.nii"


def runs_in(
    subjects: Iterable[Path],
    series: str,
) -> list[str]:
    """Return the resting runs that any of the subjects has."""
    runs = {
        run.name
        for subject in subjects
        for run in (subject / "MNINonLinear" / "Results").glob(RESTING_RUNS)
        if series_file(subject, run.name, series).is_file()
    }
    return sorted(runs)
