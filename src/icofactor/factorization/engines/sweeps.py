"""Compiled copies of two NumPy loops that walk in steps too short for it: of the lift, and of the hard starts.

`quadratic.coordinate_descent` and `schemes.parts.hard_sweeps` are the definitions; tests hold these to them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_fast = {"cache": True, "fastmath": {"reassoc", "contract", "arcp", "nsz"}, "nogil": True, "error_model": "numpy"}
_WIDTH = 64
"""Columns that make their sweeps together: they stay in the first-level cache."""


@njit("void(f8[:, ::1], f8[:, ::1], f8, b1, f8[:, ::1], i8)", **_fast)
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


@njit("void(f8[:, ::1], f8[:, ::1], f8[::1], f8[:, :, ::1], f8[:, :, ::1], i8[:, ::1], i8)", **_fast)
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
