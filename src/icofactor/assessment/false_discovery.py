"""p-values of many tests, corrected."""

from __future__ import annotations

import numpy as np


def false_discovery(p: np.ndarray) -> np.ndarray:
    """Benjamini and Hochberg's q of the values that are known."""
    from scipy.stats import false_discovery_control

    q, known = np.full(p.shape, np.nan), np.isfinite(p)
    if known.any():
        q[known] = false_discovery_control(p[known])
    return q
