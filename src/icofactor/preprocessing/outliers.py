"""Limiting outliers, subject by subject."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor import __version__
from icofactor.cohort.cohort import Cohort
from icofactor.errors import ArgumentError, shown
from icofactor.preprocessing.temporal import checked_mask

# 3 × 1.4826: three standard deviations, had the values a normal distribution.
LIMIT = 4.4478


@overload
def limit_outliers(
    Xs: Cohort, n_deviations: float = LIMIT, *, mask: ArrayLike | None = None
) -> Cohort: ...


@overload
def limit_outliers(
    Xs: ArrayLike, n_deviations: float = LIMIT, *, mask: ArrayLike | None = None
) -> NDArray[Any]: ...


def limit_outliers(
    Xs: Cohort | ArrayLike, n_deviations: float = LIMIT, *, mask: ArrayLike | None = None
) -> Cohort | NDArray[Any]:
    """Limit values to within `n_deviations` median absolute deviations of each subject's median.

    Values beyond are set to the limit; the others do not change.

    Parameters
    ----------
    Xs : array of shape (n_subjects, n_sites), or Cohort
        Maps. For a cohort, the step is added to the provenance.
    n_deviations : float
        Limit in median absolute deviations, not scaled to standard deviations.
    mask : bool array of shape (n_sites,), optional
        True for sites in use. Default: that of the cohort, or all. Medians are computed over these
        sites, so that the zeros of the medial wall do not count; other sites do not change.

    Examples
    --------
    >>> import numpy as np
    >>> from icofactor.preprocessing import limit_outliers
    >>> limit_outliers(np.array([[1.0, 2.0, 3.0, 4.0, 100.0]]), n_deviations=3)
    array([[1., 2., 3., 4., 6.]])
    """
    if not isinstance(Xs, Cohort):
        return _limited(np.asarray(Xs), n_deviations, mask)
    values = np.asarray(Xs.X)
    limited = _limited(values, n_deviations, Xs.mask if mask is None else mask)
    step = {
        "step": "limit_outliers",
        "icofactor": __version__,
        "n_deviations": float(n_deviations),
        "n_values_limited": int(np.count_nonzero(limited != values)),
    }
    steps = [*Xs.provenance.get("preprocessing", []), step]
    return replace(Xs, X=limited, provenance={**Xs.provenance, "preprocessing": steps})


def _limited(values: NDArray[Any], n_deviations: float, mask: ArrayLike | None) -> NDArray[Any]:
    """Return the limited values of subjects × sites; sites outside the mask do not change."""
    if values.ndim != 2:
        text = f"must be an array of subjects × sites; found shape {values.shape}"
        raise ArgumentError("Xs", text)
    if not n_deviations > 0:
        raise ArgumentError("n_deviations", f"must be above 0; found {shown(n_deviations)}")
    sites = slice(None) if mask is None else np.flatnonzero(checked_mask(mask, values.shape[1]))
    limited = values.astype(np.result_type(values, np.float32), copy=True)
    for number, row in enumerate(limited):
        used = row[sites]
        is_finite = np.isfinite(used).all()
        median = np.median(used)
        deviation = np.median(np.abs(used - median)) if is_finite else np.nan
        if not is_finite or (deviation == 0 and used.max() > used.min()):
            raise ArgumentError(
                "Xs",
                f"must be finite at every site in use, and differ at more than half of them; row "
                f"{number} has a median of {median:g} and a deviation of {deviation:g}: leave the "
                "medial wall out with mask",
            )
        margin = n_deviations * deviation
        row[sites] = np.clip(used, median - margin, median + margin)
    return limited
