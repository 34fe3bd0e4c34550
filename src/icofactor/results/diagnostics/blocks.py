"""The one pass over X: maps over sites, residuals of subjects, and what linear regression on the
loadings needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.factorization._lift import weighed
from icofactor.maps.blocks import Arrays
from icofactor.maps.maps import Maps
from icofactor.maps.passes import Report, map_strips
from icofactor.preprocessing.centering import Centering

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
    maps: Maps,
    W: np.ndarray,
    loadings: np.ndarray,
    centering: Centering,
    report: Report | None = None,
    weights: np.ndarray | None = None,
) -> Pass:
    """Compare maps with the fit W @ loadings.T (sites × k, subjects × k), in one pass.

    Parameters
    ----------
    maps : as they were before the fit centred them
    centering : what the fit took out of them
    weights : (n_sites,) how much each site counts in sums over sites; None: all alike
    """
    offset, scale = np.zeros(maps.n_sites), np.ones(maps.n_sites)
    adjustment = centering.adjustment(maps.n_subjects)
    if len(centering.mean) > 1:
        # Measures that share maps have no common units.
        maps = centering.applied(maps)
    elif adjustment is not None:
        if adjustment.offset is not None:
            offset = adjustment.offset[0]
        if adjustment.scale is not None:
            scale = adjustment.scale[0]
    shared = {
        "loadings": loadings,
        "Z": centering.deviations(loadings.T).T,
        "member": centering.membership(maps.n_subjects),
    }
    sites = {name: np.empty(maps.n_sites) for name in ("median", "spread", "variance", "error")}
    sums: dict[str, Any] = {}
    per_site = (W, offset, scale, weights)
    for rows, result in map_strips(
        _compare_strip, maps, *per_site, shared=shared, report=report, double=True
    ):
        for name, values in sites.items():
            values[rows] = result[f"site.{name}"]
        for name in ("variance", "error", "moments", "energy", "error_in_units"):
            sums[name] = sums.get(name, 0.0) + result[f"sum.{name}"]
    return Pass(
        sites["median"],
        np.sqrt(sites["spread"] / max(1, maps.n_subjects - 1)),
        sites["variance"],
        sites["error"],
        sums["variance"],
        sums["error"],
        sums["moments"],
        float(sums["energy"]),
        float(sums["error_in_units"]),
    )


def _compare_strip(
    x: np.ndarray,
    shared: Mapping[str, Any],
    W: np.ndarray,
    offset: np.ndarray,
    scale: np.ndarray,
    weights: np.ndarray | None,
) -> Arrays:
    """Return what some sites tell."""
    residual = np.square((x - offset[:, None]) / scale[:, None] - W @ shared["loadings"].T)
    member = shared["member"]
    means = x @ member.T / member.sum(axis=1)
    centred = x - means @ member
    spread = np.einsum("ij,ij->i", centred, centred)
    # Rounding leaves a little where all subjects have the same value.
    size = np.abs(means).max(axis=1)
    centred[spread <= len(centred.T) * np.square(_ROUNDING * size)] = 0.0
    centred /= scale[:, None]
    projected = centred @ shared["Z"]
    variance = np.square(centred, out=centred)
    # Sites without variance have an infinite scale: their z-scores and residuals are 0.
    units = np.square(np.where(np.isfinite(scale), scale, 0.0))
    weighted_residual = weighed(residual, weights)
    return {
        "site.median": np.median(x, axis=1),
        "site.spread": spread,
        "site.variance": variance.sum(axis=1),
        "site.error": residual.sum(axis=1),
        "sum.variance": weighed(variance, weights).sum(axis=0),
        "sum.error": weighted_residual.sum(axis=0),
        "sum.moments": projected.T @ weighed(projected, weights),
        "sum.energy": np.array(np.einsum("ij,ij->", x, weighed(x, weights))),
        "sum.error_in_units": np.array(weighted_residual.sum(axis=1) @ units),
    }


def linear_shares(
    moments: np.ndarray, deviations: np.ndarray, total: float
) -> tuple[float, np.ndarray]:
    """Return the share of the variance `total` that loadings explain by linear regression.

    It is followed by what each component adds to the others. The variance explained by a set S of
    components is tr((Z_SᵀZ_S)⁻¹ Z_SᵀXcᵀXcZ_S), with Z the `deviations` of loadings from their mean.
    """
    gram = deviations.T @ deviations
    # The rank must not depend on how large the loadings of a component are.
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
