"""Turn the output of pipelines into maps for factorization: outliers, band-pass, ReHo, ALFF,
resampling.
"""

# Functions that have the name of their module are imported here at once: otherwise the module, once
# imported, would hide the function. The rest is loaded when first used.

from __future__ import annotations

from typing import TYPE_CHECKING

from icofactor import _lazy
from icofactor.preprocessing.reho import reho, ring_incidence
from icofactor.preprocessing.temporal import alff, bandpass, concatenate_runs, unit_series

_HOMES = {
    "ComBat": "icofactor.preprocessing.combat",
    "limit_outliers": "icofactor.preprocessing.outliers",
    "OutlierLimiter": "icofactor.preprocessing.transformers",
    "BandPass": "icofactor.preprocessing.transformers",
    "Resampler": "icofactor.preprocessing.resampling",
    "fs_lr_to_fsaverage": "icofactor.preprocessing.resampling",
    "SurfaceSmoother": "icofactor.preprocessing.smoothing",
    "smooth_surface": "icofactor.preprocessing.smoothing",
    "vertex_areas": "icofactor.sphere.surfaces",
    "Cleaning": "icofactor.preprocessing.bold",
    "prepare_bold": "icofactor.preprocessing.bold",
    "find_inputs": "icofactor.preprocessing.hcp",
    "Steps": "icofactor.preprocessing.subject_maps",
    "Target": "icofactor.preprocessing._prepare_hcp",
    "prepare_hcp": "icofactor.preprocessing._prepare_hcp",
    "Changes": "icofactor.preprocessing.prepare_maps",
    "prepare_cohort": "icofactor.preprocessing.prepare_maps",
}

__all__ = [
    "BandPass",
    "Changes",
    "Cleaning",
    "ComBat",
    "OutlierLimiter",
    "Resampler",
    "Steps",
    "SurfaceSmoother",
    "Target",
    "alff",
    "bandpass",
    "concatenate_runs",
    "find_inputs",
    "fs_lr_to_fsaverage",
    "limit_outliers",
    "prepare_bold",
    "prepare_cohort",
    "prepare_hcp",
    "reho",
    "ring_incidence",
    "smooth_surface",
    "unit_series",
    "vertex_areas",
]


__getattr__ = _lazy(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from icofactor.preprocessing._prepare_hcp import Target, prepare_hcp
    from icofactor.preprocessing.combat import ComBat
    from icofactor.preprocessing.hcp import find_inputs
    from icofactor.preprocessing.outliers import limit_outliers
    from icofactor.preprocessing.prepare_maps import Changes, prepare_cohort
    from icofactor.preprocessing.resampling import Resampler, fs_lr_to_fsaverage
    from icofactor.preprocessing.smoothing import SurfaceSmoother, smooth_surface
    from icofactor.preprocessing.subject_maps import Steps
    from icofactor.preprocessing.transformers import BandPass, OutlierLimiter
    from icofactor.sphere.surfaces import vertex_areas
