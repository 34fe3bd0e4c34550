"""Compiled copies of NumPy loops that walk in steps too short for it: of the lift, of the hard starts, and powers.

`quadratic.coordinate_descent`, `schemes.parts.hard_sweeps` and `extrapolation` are the definitions; tests hold these to
them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

compiled = {"cache": True, "fastmath": {"reassoc", "contract", "arcp", "nsz"}, "nogil": True, "error_model": "numpy"}
_WIDTH = 64
"""Columns that make their sweeps together: they stay in the first-level cache."""


@njit("void(f8[:, ::1], f8[:, ::1], f8, b1, f8[:, ::1], i8)", **compiled)
def descend_columns(A: np.ndarray, rhs: np.ndarray, lasso: float, signed: bool, z: np.ndarray, sweeps: int) -> None:
    """`quadratic.coordinate_descent` from z, in place."""
    n, m = z.shape
    free = np.empty(_WIDTH)
    for first in range(0, m, _WIDTH):
        width = min(_WIDTH, m - first)
        for _ in range(sweeps):
            for j in range(n):
                if A[j, j] <= 0:
                    continue
                for s in range(width):
                    free[s] = rhs[j, first + s]
                for i in range(n):
                    if i != j:
                        a = A[j, i]
                        for s in range(width):
                            free[s] -= a * z[i, first + s]
                inverse = 1.0 / A[j, j]
                if signed:
                    for s in range(width):
                        z[j, first + s] = (max(free[s] - lasso, 0.0) - max(-free[s] - lasso, 0.0)) * inverse
                else:
                    for s in range(width):
                        z[j, first + s] = max(free[s] - lasso, 0.0) * inverse


@njit("void(f8[:, ::1], f8[:, ::1], f8[::1], f8[:, :, ::1], f8[:, :, ::1], i8[:, ::1], i8)", **compiled)
def hard_sweeps(profiles: np.ndarray, turned: np.ndarray, energy: np.ndarray, centres: np.ndarray, fit: np.ndarray,
                own: np.ndarray, sweeps: int) -> None:  # fmt: skip
    """`schemes.parts.hard_sweeps` into `fit` and `own`, one start after the other; `turned` is profilesᵀ."""
    n_faces, n_s = profiles.shape
    n_parts, best, found = fit.shape[1], np.empty(n_faces), np.empty(n_faces, np.int64)
    for start in range(len(fit)):
        fits, part, centre = fit[start], own[start], centres[start]
        for _ in range(sweeps):
            np.dot(centre, turned, fits)
            for k in range(n_faces):
                best[k], found[k] = 0.0, 0
            for j in range(n_parts):
                for k in range(n_faces):
                    value = max(fits[j, k], 0.0)
                    fits[j, k] = value
                    found[k] = j if value > best[k] else found[k]
                    best[k] = max(best[k], value)
            moved = 0
            for k in range(n_faces):
                moved += part[k] != found[k]
                part[k] = found[k]
            if moved == 0:
                break
            for j in range(n_parts):
                for s in range(n_s):
                    centre[j, s] = 0.0
            for k in range(n_faces):
                j, weight = part[k], best[k]
                for s in range(n_s):
                    centre[j, s] += weight * profiles[k, s]
            for j in range(n_parts):
                size, again = 0.0, -1
                for s in range(n_s):
                    size += centre[j, s] * centre[j, s]
                if size == 0:  # an empty part begins again at the face that is fitted worst
                    again = 0
                    for k in range(n_faces):
                        if energy[k] - best[k] * best[k] > energy[again] - best[again] * best[again]:
                            again = k
                    size = energy[again]
                    best[again] = np.sqrt(size)
                inverse = 1.0 / np.sqrt(size) if size > 0 else 1.0
                for s in range(n_s):
                    centre[j, s] = inverse * (centre[j, s] if again < 0 else profiles[again, s])


@njit(**compiled)
def clipped_powers(g: Any, bits: Any, exponents: Any, n: int, weight: float) -> None:
    """g ← clip(g^weight, 0.1, 10) for n positive normal g, in loops that vectorise (a call of pow does not).

    `bits` is g seen as integers. The logarithm is exponent · ln 2 plus the classic series in f/(2 + f) of the mantissa
    in [√½, √2); the exponential is 2^k times the Taylor series on [−½ ln 2, ½ ln 2]. Both are right to about 1e-15.
    """
    for k in range(n):
        mantissa = (bits[k] & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000
        large = mantissa >= 0x3FF6A09E667F3BCD  # √2
        exponents[k] = np.float64((bits[k] >> 52) - 1023 + (1 if large else 0))
        bits[k] = mantissa - (0x0010000000000000 if large else 0)
    for k in range(n):
        f = g[k] - 1.0
        r = f / (2.0 + f)
        z = r * r
        tail = 1 / 11 + z * (1 / 13 + z * (1 / 15 + z * (1 / 17 + z * (1 / 19 + z * (1 / 21 + z / 23)))))
        series = 1.0 + z * (1 / 3 + z * (1 / 5 + z * (1 / 7 + z * (1 / 9 + z * tail))))
        power = weight * (2.0 * r * series + exponents[k] * 0.6931471805599453)
        power = min(max(power, -2.302585092994046), 2.302585092994046)  # ±ln 10
        whole = np.floor(power * 1.4426950408889634 + 0.5)
        x = power - whole * 0.6931471805599453
        high = 1 / 5040 + x * (1 / 40320 + x * (1 / 362880 + x * (1 / 3628800 + x * (1 / 39916800 + x / 479001600))))
        g[k] = 1.0 + x * (1.0 + x * (1 / 2 + x * (1 / 6 + x * (1 / 24 + x * (1 / 120 + x * (1 / 720 + x * high))))))
        exponents[k] = whole
    for k in range(n):
        bits[k] += np.int64(exponents[k]) << 52
    for k in range(n):
        g[k] = min(max(g[k], 0.1), 10.0)
