"""Maps as a fit to some subjects sees them: the one way to refit on a subset."""

from __future__ import annotations

import numpy as np

from icofactor.cohort.measures import Arrangement, Measures
from icofactor.errors import ArgumentError
from icofactor.maps.maps import Maps
from icofactor.preprocessing.centering import Centering, measured_centering
from icofactor.preprocessing.confounds import Confounds
from icofactor.sphere.sites import Sites


def check_fitted(argument: str, model: object) -> None:
    """Refuse what is no fitted model."""
    if not hasattr(model, "components_"):
        raise ArgumentError(
            argument, f"must be a fitted model; found a {type(model).__name__}: call fit first"
        )


def as_fitted(
    maps: Maps,
    subjects: np.ndarray,
    sites: Sites,
    center: str,
    measures: Measures | None = None,
    confounds: Confounds | None = None,
) -> tuple[Maps, Centering]:
    """Return all maps as a fit to some subjects sees them, and what it centres them by.

    Covariates, scanners, means, standard deviations and the scales of measures are estimated in
    these subjects alone, in a few passes over their maps.
    """
    if confounds is not None:
        arrangement = Arrangement() if measures is None else measures.arrangement(sites)
        maps = confounds.removed(maps, subjects, arrangement)
    codes = None if measures is None else measures.codes(maps.n_subjects)
    if codes is not None:
        # Rows of one measure after those of another, as in the cohort.
        subjects = subjects[np.argsort(codes[subjects], kind="stable")]
    fitted = measured_centering(measures, center, maps.subset(subjects), sites, check=False)
    return fitted.centering.applied(maps), fitted.centering
