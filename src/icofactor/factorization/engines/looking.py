"""A compiled `streaming.inspect.look` together with sums over faces: two walks over each row instead of nine.

Large data only: `statistics` imports it there, so that small fits do not wait for its compilation.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from icofactor.factorization.engines.sweeps import compiled


@njit("b1(f8[:, ::1], i8[::1], f8[::1], f8[:, ::1], f8[::1], f8[::1], f8[::1], f8[::1])", **compiled)
def look_and_sum(x: np.ndarray, place: np.ndarray, weight: np.ndarray, sums: np.ndarray, low: np.ndarray,
                 high: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> bool:  # fmt: skip
    """Mean and Σ (x − mean)² of the rows of x; each row times its weight is added to a row of `sums`, `low` and `high`
    become the least and largest value of each column. False where a value is not finite; the rest is then left out."""
    n, m = x.shape
    for i in range(n):
        total = 0.0
        for j in range(m):
            total += x[i, j]
        centre, squares, own, w = total / m, 0.0, sums[place[i]], weight[i]
        if not np.isfinite(centre):
            return False
        for j in range(m):
            value = x[i, j]
            squares += (value - centre) * (value - centre)
            own[j] += w * value
            low[j] = min(low[j], value)
            high[j] = max(high[j], value)
        mean[i], variance[i] = centre, squares
    return True
