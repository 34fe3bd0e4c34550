"""The one pass over X: maps over sites, residuals of subjects, and what linear regression on the
loadings needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.factorization._lift import weighed
from icofactor.preprocessing.centering import means_of
from icofactor.streaming.blocks import Arrays
from icofactor.streaming.passes import each_wide_block, pass_over
from icofactor.streaming.source import Adjustment

_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Pass:
    """What one pass over X (sites × subjects) gives.

    Attributes
    ----------
    median, deviation : per site, in the data's units; standard deviations with n − 1
    site_variance, site_error : per site; sums of squares over subjects, of what was fitted
    (z-scores for "zscore") subject_variance, subject_error : per subject; sums of squares over
    sites, variance about the mean map
    moments : (k, k) Zᵀ Xcᵀ Xc Z, where Xc is X less each site's mean and Z the centred loadings
    sq_norm, sq_error : ‖X‖² and ‖X − fit‖², both in the data's units
    """

    median: np.ndarray
    deviation: np.ndarray
    site_variance: np.ndarray
    site_error: np.ndarray
    subject_variance: np.ndarray
    subject_error: np.ndarray
    moments: np.ndarray
    sq_norm: float
    sq_error: float


def fit_pass(
    X: Any,
    W: np.ndarray,
    loadings: np.ndarray,
    taken_out: Adjustment | None = None,
    report: Callable[[float], None] | None = None,
    weights: np.ndarray | None = None,
    codes: np.ndarray | None = None,
) -> Pass:
    """One pass over X (sites × subjects) against the fit W @ loadings.T (sites × k, subjects × k).

    Parameters
    ----------
    taken_out : what the fit took out of every site before: its mean (`offset`) and standard
        deviation (`scale`)
    weights : (n_sites,) how much each site counts in sums over sites; None: all alike
    codes : (n_subjects,) measure of each row, of which each has a mean map; None: of one measure
    """
    shared = {"loadings": loadings, "Z": deviations(loadings, codes), "codes": codes}
    n_sites, n_subjects = X.shape
    out = taken_out or Adjustment()
    offset = np.zeros(n_sites) if out.offset is None else out.offset
    scale = np.ones(n_sites) if out.scale is None else out.scale
    sites = {name: np.empty(n_sites) for name in ("median", "spread", "variance", "error")}
    sums: dict[str, Any] = {}
    for rows, found in pass_over(
        X, each_wide_block(_look), shared, [W, offset, scale, weights], report=report
    ):
        for name, values in sites.items():
            values[rows] = found[f"site.{name}"]
        for name in ("variance", "error", "moments", "energy", "error_in_units"):
            sums[name] = sums.get(name, 0.0) + found[f"sum.{name}"]
    return Pass(
        sites["median"],
        np.sqrt(sites["spread"] / max(1, n_subjects - 1)),
        sites["variance"],
        sites["error"],
        sums["variance"],
        sums["error"],
        sums["moments"],
        float(sums["energy"]),
        float(sums["error_in_units"]),
    )


def _look(
    x: np.ndarray,
    shared: Mapping[str, Any],
    W: np.ndarray,
    offset: np.ndarray,
    scale: np.ndarray,
    weights: np.ndarray | None,
) -> Arrays:
    """What one block of sites × subjects tells."""
    residual = np.square((x - offset[:, None]) / scale[:, None] - W @ shared["loadings"].T)
    mean, codes = x.mean(axis=1, keepdims=True), shared["codes"]
    centred = x - mean if codes is None else deviations(x.T, codes).T
    spread = np.einsum("ij,ij->i", centred, centred)
    # rounding leaves a little where all subjects have the same value
    centred[spread <= len(centred.T) * np.square(_ROUNDING * mean[:, 0])] = 0.0
    centred /= scale[:, None]
    projected = centred @ shared["Z"]
    variance = np.square(centred, out=centred)
    return {
        "site.median": np.median(x, axis=1),
        "site.spread": spread,
        "site.variance": variance.sum(axis=1),
        "site.error": residual.sum(axis=1),
        "sum.variance": weighed(variance, weights).sum(axis=0),
        "sum.error": weighed(residual, weights).sum(axis=0),
        "sum.moments": projected.T @ weighed(projected, weights),
        "sum.energy": np.array(np.einsum("ij,ij->", x, weighed(x, weights))),
        # sites without variance have an infinite scale: their z-scores, and what is left of them,
        # are 0
        "sum.error_in_units": np.array(
            weighed(residual, weights).sum(axis=1)
            @ np.square(np.where(np.isfinite(scale), scale, 0.0))
        ),
    }


def deviations(rows: np.ndarray, codes: np.ndarray | None = None) -> np.ndarray:
    """Rows less their mean, that of their measure where they are of several."""
    return rows - (rows.mean(axis=0) if codes is None else means_of(rows, codes)[codes])


def linear_shares(
    moments: np.ndarray, loadings: np.ndarray, total: float, codes: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Share of the variance `total` that the loadings explain by linear regression, and what each
    adds to the others.

    The variance explained by a set S of components is tr((Z_SᵀZ_S)⁻¹ Z_SᵀXcᵀXcZ_S).
    """
    Z = deviations(loadings, codes)
    gram = Z.T @ Z
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
    gram, moments = gram / np.outer(scale, scale), moments / np.outer(scale, scale)

    def explained(members: np.ndarray) -> float:
        block = np.ix_(members, members)
        return float(
            np.trace(np.linalg.pinv(gram[block], hermitian=True, rcond=1e-10) @ moments[block])
        )

    everyone = np.arange(len(gram))
    whole = explained(everyone)
    lost = np.array(
        [whole - (explained(np.delete(everyone, j)) if len(gram) > 1 else 0.0) for j in everyone]
    )
    shares = np.clip(np.array([whole, *lost]) / total, 0.0, 1.0)  # rounding takes them beyond
    return float(shares[0]), shares[1:]
