"""A compiled `streaming.inspect.look` together with sums over faces: two walks over each row instead of nine.

`look_at_tile` makes one of it, of values as they are stored. Large data only: `gathering` and `_lift` import it there,
so that small fits do not wait for its compilation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite.ir import FloatType
from numba import njit, types
from numba.extending import intrinsic, overload

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


def bits(x: np.ndarray) -> np.ndarray:
    """Stored values as the functions below take them: float16, which Numba does not know, by its bits."""
    return x.view(np.uint16) if x.dtype == np.float16 else x


def _value(stored: Any) -> Any:
    """A stored number as float32; of float16, whose bits come as uint16, what is not finite is 65536 or more."""


@intrinsic
def _float32(typing: Any, bits: Any) -> Any:
    """The float32 of these bits."""
    return types.float32(types.int32), lambda context, builder, signature, args: builder.bitcast(args[0], FloatType())


@overload(_value, inline="always")
def _value_of(stored: Any) -> Any:
    def single(stored: Any) -> Any:
        return stored

    def half(stored: Any) -> Any:
        bits = np.int32(stored)  # exponent and mantissa move into place; the exponents of the two types differ by 112
        moved = ((bits & np.int32(0x7FFF)) << np.int32(13)) | ((bits & np.int32(0x8000)) << np.int32(16))
        return _float32(moved) * np.float32(2.0**112)

    return half if stored == types.uint16 else single


@njit(**compiled)
def look_at_tile(x: np.ndarray, rows: np.ndarray, first: int, place: np.ndarray, weight: np.ndarray, sums: np.ndarray,
                 to: int, low: np.ndarray, high: np.ndarray, shift: np.ndarray, total: np.ndarray,
                 squares: np.ndarray) -> None:  # fmt: skip
    """`look_and_sum` of some rows of x, of the columns from `first` on that `low` has; sums are those from column `to`
    on. Σ (x − shift) and Σ (x − shift)² of each row are added to."""
    m = len(low)
    for i in range(len(rows)):
        own, values, w, s, t, q = (
            sums[place[i], to : to + m],
            x[rows[i], first : first + m],
            weight[i],
            shift[i],
            0.0,
            0.0,
        )
        for j in range(m):
            value = _value(values[j])
            low[j] = min(low[j], value)
            high[j] = max(high[j], value)
            wide = np.float64(value)
            own[j] += w * wide
            t += wide - s
            q += (wide - s) * (wide - s)
        total[i] += t
        squares[i] += q


@njit(**compiled)
def less(x: np.ndarray, rows: np.ndarray, first: int, centre: np.ndarray, out: np.ndarray) -> None:
    """Some rows of x, of the columns from `first` on, less a number for each; in the type of `out`."""
    for i in range(len(rows)):
        own, values, c = out[i], x[rows[i], first : first + out.shape[1]], centre[i]
        for j in range(len(own)):
            own[j] = _value(values[j]) - c
