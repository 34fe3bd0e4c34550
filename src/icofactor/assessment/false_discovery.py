"""p-values of many tests, corrected."""

from __future__ import annotations

import numpy as np


def false_discovery(p: np.ndarray) -> np.ndarray:
    """Return Benjamini and Hochberg's q of the finite values; NaN for the others."""
    # scipy.stats takes long to import, and many commands need no p-values.
    from scipy.stats import false_discovery_control

    q = np.full(p.shape, np.nan)
    finite = np.isfinite(p)
    if finite.any():
        q[finite] = false_discovery_control(p[finite])
    return q
