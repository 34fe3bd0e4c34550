"""Maps turned on the sphere, each by a rotation of its own: compiled, for null cohorts of many people."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import typeof

from icofactor.factorization.engines.cpu import compile_kernels
from icofactor.factorization.engines.sweeps import compiled


def compile_turn(*given: Any) -> None:
    """Compile `turn` for such arguments, and say so, if that was not done before."""
    compile_kernels({turn: tuple(map(typeof, given))}, 2)


@compiled
def turn(L: np.ndarray, counts: np.ndarray, mean: np.ndarray, spread: np.ndarray, turns: np.ndarray,
         centres: np.ndarray, half: np.ndarray, roots: np.ndarray, cuts: np.ndarray, level: int, sources: np.ndarray,
         parent: np.ndarray, floor: bool, sums: np.ndarray) -> None:  # fmt: skip
    """Deviations of maps from `mean`, in units of `spread`, turned and summed up.

    Parameters
    ----------
    L, counts : (n, n_faces) sums, and the sites that they are of
    turns : (n, n_halves, 3, 3) what directions are multiplied with, of each map and hemisphere
    centres, half, roots, cuts, level, sources : `FaceSpinner.tables`
    parent, sums : column of `sums`, (n, n_columns) and 0, to which each face belongs
    floor : whether values below 0 become 0
    """
    n, n_faces = L.shape
    deviation, best, index = np.empty(n_faces), np.empty(n_faces), np.empty(n_faces, np.int64)
    x, y, z = np.empty(n_faces), np.empty(n_faces), np.empty(n_faces)
    for i in range(n):
        for k in range(n_faces):
            own = L[i, k] / counts[k] - mean[k]
            deviation[k] = own / spread[k] if spread[k] > 0 else 0.0
            R, c = turns[i, half[k]], centres[k]
            x[k] = c[0] * R[0, 0] + c[1] * R[1, 0] + c[2] * R[2, 0]
            y[k] = c[0] * R[0, 1] + c[1] * R[1, 1] + c[2] * R[2, 1]
            z[k] = c[0] * R[0, 2] + c[1] * R[1, 2] + c[2] * R[2, 2]
            best[k], index[k] = -np.inf, 0
        for r in range(len(roots)):
            a, b, c0 = roots[r, 0], roots[r, 1], roots[r, 2]
            for k in range(n_faces):
                near = a * x[k] + b * y[k] + c0 * z[k]
                index[k] = r if near > best[k] else index[k]
                best[k] = max(best[k], near)
        for k in range(n_faces):
            face, first, size = index[k], 0, len(roots)
            for _ in range(level):
                planes, child = cuts[first + face], 0
                for j in range(3):
                    if planes[j, 0] * x[k] + planes[j, 1] * y[k] + planes[j, 2] * z[k] > 0:
                        child = 1 + j
                        break
                first, size, face = first + size, 4 * size, 4 * face + child
            value = mean[k] + deviation[sources[half[k], face]] * spread[k]
            if floor and value < 0:
                value = 0.0
            sums[i, parent[k]] += value * counts[k]
