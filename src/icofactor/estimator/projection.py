"""New maps against the components of a fit: what loadings, their quality and scores need, one pass
over the maps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from icofactor.factorization._lift import product_block, weighed
from icofactor.streaming.blocks import Arrays
from icofactor.streaming.inspect import look_for_bounds


def projected_block(x: np.ndarray, shared: Mapping[str, Any], heavy: np.ndarray) -> Arrays:
    """A block's share of WᵀX, and bounds that tell whether its values are fit to use."""
    return {**look_for_bounds(x), **product_block(x, shared, heavy)}


def compared_block(
    x: np.ndarray,
    shared: Mapping[str, Any],
    W: np.ndarray,
    mean: np.ndarray,
    near: np.ndarray,
    weights: np.ndarray | None,
) -> Arrays:
    """Sums of every person over the sites that the person has: WᵀX, Σ (x − near)², Σ (x − mean)²,
    weight of the sites.

    Also who lacks which site, as bits.

    Parameters
    ----------
    shared : "kinds", measure of each row
    mean : (n_sites, n_kinds) of the fitted people
    near : (n_sites,) a map that is close to all others
    """
    missing, away = ~np.isfinite(x), x - (mean if mean.shape[1] == 1 else mean[:, shared["kinds"]])
    beside = x - near[:, None]
    if missing.any():
        x, away, beside = (np.where(missing, 0.0, values) for values in (x, away, beside))
    return {
        **look_for_bounds(x),
        "sum.WX": weighed(W, weights).T @ x,
        "sum.square": np.einsum("ij,ij->j", beside, weighed(beside, weights)),
        "sum.variance": np.einsum("ij,ij->j", away, weighed(away, weights)),
        "sum.weight": weighed((~missing).astype(np.float64), weights).sum(axis=0),
        "site.missing": np.packbits(missing, axis=1),
    }


def score_block(
    x: np.ndarray,
    shared: Mapping[str, Any],
    W: np.ndarray,
    mean: np.ndarray,
    weights: np.ndarray | None,
) -> Arrays:
    """A block's share of ‖X − WC‖² and of Σ (x − mean)²."""
    squares = (np.square(x - W @ shared["C"].T), np.square(x - mean[:, shared["codes"]]))
    return {"sum.squares": np.array([weighed(values, weights).sum() for values in squares])}
