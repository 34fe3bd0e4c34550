"""The one pass over X: maps over sites, residuals of subjects, and what linear regression on the loadings needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.streaming.blocks import Arrays
from icofactor.streaming.passes import each_block, pass_over


@dataclass(frozen=True, eq=False)
class Pass:
    """What one pass over X (sites × subjects) gives.

    Attributes
    ----------
    median, site_variance, site_error : per site; variance and error are sums of squares over subjects
    subject_variance, subject_error : per subject; sums of squares over sites, variance about the mean map
    moments : (k, k) Zᵀ Xcᵀ Xc Z, where Xc is X less each site's mean and Z the centred loadings
    sq_norm : ‖X‖²
    """

    median: np.ndarray
    site_variance: np.ndarray
    site_error: np.ndarray
    subject_variance: np.ndarray
    subject_error: np.ndarray
    moments: np.ndarray
    sq_norm: float


def fit_pass(X: Any, W: np.ndarray, loadings: np.ndarray, report: Callable[[float], None] | None = None) -> Pass:
    """One pass over X (sites × subjects) against the fit W @ loadings.T (sites × k, subjects × k)."""
    shared = {"loadings": loadings, "Z": loadings - loadings.mean(axis=0)}
    sites = {name: np.empty(X.shape[0]) for name in ("median", "variance", "error")}
    sums: dict[str, Any] = {}
    for rows, found in pass_over(X, each_block(_look), shared, [W], report=report):
        for name, values in sites.items():
            values[rows] = found[f"site.{name}"]
        for name in ("variance", "error", "moments", "energy"):
            sums[name] = sums.get(name, 0.0) + found[f"sum.{name}"]
    return Pass(
        sites["median"],
        sites["variance"],
        sites["error"],
        sums["variance"],
        sums["error"],
        sums["moments"],
        float(sums["energy"]),
    )


def _look(x: np.ndarray, shared: Mapping[str, Any], W: np.ndarray) -> Arrays:
    """What one block of sites × subjects tells."""
    residual = np.square(x - W @ shared["loadings"].T)
    centred = x - x.mean(axis=1, keepdims=True)
    projected = centred @ shared["Z"]
    variance = np.square(centred, out=centred)
    return {
        "site.median": np.median(x, axis=1),
        "site.variance": variance.sum(axis=1),
        "site.error": residual.sum(axis=1),
        "sum.variance": variance.sum(axis=0),
        "sum.error": residual.sum(axis=0),
        "sum.moments": projected.T @ projected,
        "sum.energy": np.array(np.einsum("ij,ij->", x, x)),
    }


def linear_shares(moments: np.ndarray, loadings: np.ndarray, total: float) -> tuple[float, np.ndarray]:
    """Share of the variance `total` that the loadings explain by linear regression, and what each adds to the others.

    The variance explained by a set S of components is tr((Z_SᵀZ_S)⁻¹ Z_SᵀXcᵀXcZ_S).
    """
    Z = loadings - loadings.mean(axis=0)
    gram = Z.T @ Z
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
    gram, moments = gram / np.outer(scale, scale), moments / np.outer(scale, scale)

    def explained(members: np.ndarray) -> float:
        block = np.ix_(members, members)
        return float(np.trace(np.linalg.pinv(gram[block], hermitian=True, rcond=1e-10) @ moments[block]))

    everyone = np.arange(len(gram))
    whole = explained(everyone)
    lost = np.array([whole - (explained(np.delete(everyone, j)) if len(gram) > 1 else 0.0) for j in everyone])
    return whole / total, np.clip(lost, 0, None) / total
