"""Limiting outliers, subject by subject."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor import __version__
from icofactor.cohort.cohort import Cohort
from icofactor.errors import ArgumentError, Phrase
from icofactor.preprocessing.temporal import checked_mask

LIMIT = 4.4478
"""3 × 1.4826: three standard deviations, had the values a normal distribution."""


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
    if isinstance(Xs, Cohort):
        used = Xs.mask if mask is None else mask
        limited = _limited(np.asarray(Xs.X), n_deviations, used)
        changed = int(np.count_nonzero(limited != np.asarray(Xs.X)))
        return after(
            Xs,
            "limit_outliers",
            X=limited,
            n_deviations=float(n_deviations),
            n_values_limited=changed,
        )
    return _limited(np.asarray(Xs), n_deviations, mask)


def _limited(values: NDArray[Any], n_deviations: float, mask: ArrayLike | None) -> NDArray[Any]:
    if values.ndim != 2:
        raise ArgumentError(
            "Xs", Phrase(f"shape {values.shape}"), "an array of two dimensions, subjects × sites"
        )
    if not n_deviations > 0:
        raise ArgumentError("n_deviations", n_deviations, "positive")
    used = slice(None) if mask is None else np.flatnonzero(checked_mask(mask, values.shape[1]))
    out = values.astype(np.result_type(values, np.float32), copy=True)
    for number, row in enumerate(out):
        some = row[used]
        if not np.isfinite(some).all():
            raise ArgumentError(
                "Xs", None, f"finite at every site in use; row {number} contains NaN or infinity"
            )
        middle = np.median(some)
        deviation = np.median(np.abs(some - middle))
        if deviation == 0 and some.max() > some.min():
            raise ArgumentError(
                "Xs",
                None,
                f"More than half of row {number} has the same value {middle:g}, so outliers cannot be measured. "
                "Leave the medial wall out with mask",
            )
        row[used] = np.clip(
            some, middle - n_deviations * deviation, middle + n_deviations * deviation
        )
    return out


def after(
    cohort: Cohort, step: str, *, X: Any, changes: dict[str, Any] | None = None, **settings: Any
) -> Cohort:
    """The cohort after a step of preprocessing, with its name and settings added to
    provenance["preprocessing"].

    Parameters
    ----------
    X : the new values.
    changes : other attributes that the step changed, e.g. sites and mask after resampling.
    settings : what the step was told, as JSON would hold it.
    """
    steps = [
        *cohort.provenance.get("preprocessing", []),
        {"step": step, "icofactor": __version__, **settings},
    ]
    changed = {"truth": None} if changes and "sites" in changes else {}
    return replace(
        cohort,
        X=X,
        provenance={**cohort.provenance, "preprocessing": steps},
        **{**changed, **(changes or {})},
    )
