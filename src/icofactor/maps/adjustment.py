"""One change of every value: what centring, z-scores, covariates, harmonization and units have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

# Values below 0 that are smaller than this share of the largest one come from rounding.
ROUNDING = 1e-9


# Parts of a change that have a value for every site.
OF_SITES = ("removed", "restored", "offset", "scale", "shift")


@dataclass(frozen=True, eq=False)
class Adjustment:
    """A change of the value x of a subject at a site.

    (x − Z·removed − offset) / scale + Z·restored + shift, where offset, scale and shift have one
    row for every code of a subject, such as its scanner.

    Attributes
    ----------
    Z : (n_subjects, n_columns) regressors of every subject; None without regressors
    removed, restored : (n_columns, n_sites) effects of the regressors, or None
    offset, scale, shift : (n_codes, n_sites), or None
    codes : (n_subjects,) row of offset, scale and shift for every subject; None: row 0 for all
    made_by : what estimated the change, such as `Covariates`; models keep it
    notes : sentences about how it was estimated
    """

    Z: np.ndarray | None = None
    removed: np.ndarray | None = None
    restored: np.ndarray | None = None
    offset: np.ndarray | None = None
    scale: np.ndarray | None = None
    shift: np.ndarray | None = None
    codes: np.ndarray | None = None
    made_by: Any = None
    notes: tuple[str, ...] = ()

    def at(
        self,
        subjects: Any,
        sites: Any,
    ) -> Adjustment:
        """Return the change of some subjects at some sites."""
        changed = {}
        for name, values in vars(self).items():
            if name in ("Z", "codes") and values is not None:
                changed[name] = values[subjects]
            if name in OF_SITES and values is not None:
                changed[name] = values[:, sites]
        return replace(self, **changed)

    def apply(self, x: np.ndarray) -> np.ndarray:
        """Return the changed values; x is sites × subjects and stays as it is.

        Values stay float32 if all subjects change alike; regressions need float64.
        """
        if self.Z is not None:
            x = x.astype(np.float64)
        if self.Z is not None and self.removed is not None:
            x = x - self.removed.T @ self.Z.T
        if self.offset is not None:
            x = subtract(x, self._of_subjects(self.offset))
        if self.scale is not None:
            x = x / self._of_subjects(self.scale, x.dtype)
        if self.Z is not None and self.restored is not None:
            x = x + self.restored.T @ self.Z.T
        if self.shift is not None:
            x = x + self._of_subjects(self.shift, x.dtype)
        return x

    def _of_subjects(self, rows: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
        """Return sites × subjects of the rows for every code, or sites × 1 where all are alike."""
        of_codes = rows.T.astype(dtype, copy=False)
        return of_codes if self.codes is None else of_codes[:, self.codes]


def subtract(
    x: np.ndarray,
    offset: np.ndarray,
) -> np.ndarray:
    """Subtract a float64 offset; from float32 values also what float32 loses of the offset."""
    rounded = offset.astype(x.dtype, copy=False)
    difference = x - rounded
    if x.dtype == np.float32:
        difference -= (offset - rounded).astype(np.float32)
    return difference


def floor_at_zero(x: np.ndarray) -> tuple[np.ndarray, int]:
    """Return values ≥ 0, and how many were below 0, rounding aside; NaN stays."""
    # fmax ignores NaN.
    largest = np.fmax.reduce(np.abs(x), axis=None, initial=0)
    n_below = int((x < -ROUNDING * largest).sum())
    return np.maximum(x, 0.0), n_below
