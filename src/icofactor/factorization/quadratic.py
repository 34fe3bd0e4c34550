"""Many small quadratic problems that share one matrix, non-negative or with a lasso penalty.

    min over z of ½ zᵀAz − rᵀz + lasso ‖z‖₁,   z ≥ 0 unless signed,   for every column r of `rhs`

with A positive semi-definite of a few rows, and as many columns as there are sites or subjects.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

# Matrices whose smallest eigenvalue is below this share of the largest are taken for singular.
_COLLINEAR = 1e-10
# After so many sweeps, only columns that still change are swept further: those in which the last
# sweep changed more than this share of their largest value.
_SWEEPS_OF_ALL = 15
_STILL = 1e-12


@dataclass(frozen=True, eq=False)
class Quadratic:
    """The problem that every site (or every subject) poses, with values x of its own:
    min ½ zᵀ gram z − (linear x)ᵀ z + lasso ‖z‖₁.

    Attributes
    ----------
    gram : n_d × n_d, positive semi-definite, the same for all
    linear : n_d × m, what the m values x of a site (or subject) are multiplied with
    lasso : float
    signed : whether z may be negative
    """

    gram: np.ndarray
    linear: np.ndarray
    lasso: float
    signed: bool


def coordinate_descent(
    A: np.ndarray,
    rhs: np.ndarray,
    lasso: float,
    signed: bool,
    start: np.ndarray,
    sweeps: int,
) -> np.ndarray:
    """Make a number of sweeps over the coordinates, all columns at once.

    They begin at `start`, or its positive part if not `signed`.
    """
    z = np.array(start, dtype=np.float64, order="C")
    if not signed:
        np.maximum(z, 0.0, out=z)
    diagonal = A.diagonal()
    # Coordinates without curvature (zero components) are zero.
    z[diagonal <= 0] = 0.0
    # Steps are so short that each call counts: rows are looked up once, and memory is used again.
    steps = []
    for i in np.flatnonzero(diagonal > 0):
        coupling = A[i] / diagonal[i]
        coupling[i] = 0.0
        threshold = lasso / diagonal[i]
        target = rhs[i] / diagonal[i] - (0.0 if signed else threshold)
        steps.append((coupling, target, threshold, z[i]))
    free = np.empty(z.shape[1:])
    before = z
    for sweep in range(min(sweeps, _SWEEPS_OF_ALL)):
        if sweep == _SWEEPS_OF_ALL - 1:
            before = z.copy()
        for coupling, target, threshold, row in steps:
            np.subtract(target, np.dot(coupling, z, out=free), out=free)
            if signed:
                np.subtract(free, free.clip(-threshold, threshold), out=row)
            else:
                np.maximum(free, 0.0, out=row)
    if sweeps > _SWEEPS_OF_ALL:
        still = np.abs(z - before) <= _STILL * np.abs(z).max(axis=0)
        moving = np.flatnonzero(~still.all(axis=0))
        remaining = sweeps - _SWEEPS_OF_ALL
        z[:, moving] = coordinate_descent(
            A,
            rhs[:, moving],
            lasso,
            signed,
            z[:, moving],
            remaining,
        )
    return z


def divide(
    A: np.ndarray,
    rhs: np.ndarray,
    weights: np.ndarray,
    total: np.ndarray,
    start: np.ndarray,
    sweeps: int,
) -> np.ndarray:
    """Return min ½ zᵀAz − rᵀz over z ≥ 0 with weightsᵀz = total, by sweeps over pairs.

    Parameters
    ----------
    weights : (n_d,) > 0, the same for all columns
    total : one value ≥ 0 per column
    start : n_d × columns, z ≥ 0, brought to the constraint first
    """
    # All coordinates count alike in the constraint on y = weights ⊙ z.
    A = A / np.outer(weights, weights)
    y = weights[:, None] * start
    reached = y.sum(axis=0)
    y[:, reached <= 0] = 1.0
    y *= total / y.sum(axis=0)
    gradient = A @ y - rhs / weights[:, None]
    pairs = list(combinations(range(len(weights)), 2))
    for _ in range(sweeps):
        for i, j in pairs:
            curvature = A[i, i] - 2 * A[i, j] + A[j, j]
            if curvature <= 0:
                continue
            # What y_i gains, y_j loses.
            step = (gradient[j] - gradient[i]) / curvature
            step = np.clip(step, -y[i], y[j])
            y[i] += step
            y[j] -= step
            slope = A[:, i] - A[:, j]
            gradient += slope[:, None] * step
    return np.maximum(y, 0.0) / weights[:, None]


def minimise(
    A: np.ndarray,
    rhs: np.ndarray,
    lasso: float,
    signed: bool,
) -> np.ndarray:
    """Return the solution itself, to rounding.

    One linear system solves all columns whose solution has no zeros. The others go through an
    active-set solver one by one. If components are collinear, so that many answers are equally
    good, a ridge of 1e-10 of the largest eigenvalue picks one.
    """
    z = np.zeros_like(rhs)
    # Coordinates without curvature (zero components) are zero.
    curved = np.flatnonzero(A.diagonal() > 0)
    A = _conditioned(A[np.ix_(curved, curved)])
    rhs = rhs[curved]
    signs = np.ones_like(rhs)
    if signed:
        signs = np.sign(np.linalg.solve(A, rhs))
    solution = np.linalg.solve(A, rhs - lasso * signs)
    crosses_zero = (signs * solution <= 0) & (solution != 0)
    unsolved = np.flatnonzero(crosses_zero.any(axis=0))
    if len(unsolved):
        solution[:, unsolved] = _active_set(A, rhs[:, unsolved], lasso, signed)
    z[curved] = solution
    return z


def _conditioned(A: np.ndarray) -> np.ndarray:
    """Return A, with a small ridge if it is singular to working precision."""
    eigenvalues = np.linalg.eigvalsh(A)
    ridge = _COLLINEAR * eigenvalues.max(initial=0.0)
    if eigenvalues.min(initial=np.inf) > ridge:
        return A
    return A + ridge * np.eye(len(A))


def _active_set(
    A: np.ndarray,
    rhs: np.ndarray,
    lasso: float,
    signed: bool,
) -> np.ndarray:
    """Solve column by column by Lawson and Hanson's algorithm.

    Signed problems are solved as the difference of two parts ≥ 0.
    """
    from scipy.optimize import nnls

    n = len(A)
    if signed:
        # The parts of one coordinate are collinear: without a ridge there is no root.
        ridge = 1e-12 * np.trace(A) / n
        A = np.block([[A, -A], [-A, A]]) + ridge * np.eye(2 * n)
        rhs = np.concatenate([rhs, -rhs])
    root = np.linalg.cholesky(A)
    targets = np.linalg.solve(root, rhs - lasso)
    limit = 100 * len(A)
    columns = [nnls(root.T, target, maxiter=limit)[0] for target in targets.T]
    z = np.stack(columns, axis=1)
    return z[:n] - z[n:] if signed else z
