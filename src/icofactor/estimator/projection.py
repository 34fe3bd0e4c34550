"""New maps against the components of a fit: what loadings, their quality and scores need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from icofactor.factorization._lift import product_strip, weighed
from icofactor.maps.blocks import Arrays, value_range


def project_strip(
    x: np.ndarray,
    shared: Mapping[str, Any],
    weighted_W: np.ndarray,
) -> Arrays:
    """Return the share of some sites in WᵀX, and the range of every subject's values."""
    return {**value_range(x), **product_strip(x, shared, weighted_W)}


def score_strip(
    x: np.ndarray,
    shared: Mapping[str, Any],
    W: np.ndarray,
    mean: np.ndarray,
    weights: np.ndarray | None,
) -> Arrays:
    """Return the share of some sites in ‖X − WC‖² and in Σ (x − mean)².

    The mean map of a subject is `mean` (n_sites × n_rows) times its column of "member".
    """
    residual = np.square(x - W @ shared["C"].T)
    deviation = np.square(x - mean @ shared["member"])
    sums = [weighed(residual, weights).sum(), weighed(deviation, weights).sum()]
    return {"sum.squares": np.array(sums)}
