"""Many small quadratic problems that share one matrix, non-negative or with a lasso penalty.

    min over z of ½ zᵀAz − rᵀz + lasso ‖z‖₁,   z ≥ 0 unless signed,   for every column r of `rhs`

with A positive semi-definite of a few rows, and as many columns as there are sites or subjects.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_MOST_SWEEPS = 1_000
_COLLINEAR = 1e-10
_LOOK, _STILL = 15, 1e-12
"""After so many sweeps, columns in which the last one changed less than this share of their largest
value are done.
"""


@dataclass(frozen=True, eq=False)
class Quadratic:
    """The problem that every site poses (or every subject), min ½ zᵀ gram z − (linear x)ᵀ z + lasso
    ‖z‖₁.

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
    start: np.ndarray | None = None,
    sweeps: int = 5,
) -> np.ndarray:
    """A number of sweeps over the coordinates, all columns at once.

    They begin at `start`, or at the solution without constraints (its positive part when not
    `signed`).
    """
    z = (
        np.linalg.pinv(A, hermitian=True) @ rhs
        if start is None
        else np.array(start, dtype=np.float64, order="C")
    )
    if not signed:
        z = np.maximum(z, 0.0)
    bent = np.flatnonzero(A.diagonal() > 0)
    bend = A.diagonal()[bent, None]
    other = (
        A[bent] / bend
    )  # what the other coordinates do to this one; steps are short, so each call counts
    other[np.arange(len(bent)), bent] = 0.0
    targets, edges, free = rhs[bent] / bend, (lasso / bend[:, 0]).tolist(), np.empty(z.shape[1:])
    if not signed:
        targets -= lasso / bend
    rows = [(other[i], targets[i], edges[i], z[j]) for i, j in enumerate(bent)]
    before = z
    for sweep in range(min(sweeps, _LOOK)):
        before = z.copy() if sweep == _LOOK - 1 else z
        for weights, target, edge, row in rows:
            np.subtract(target, np.dot(weights, z, out=free), out=free)
            np.maximum(free, 0.0, out=row) if not signed else np.subtract(
                free, free.clip(-edge, edge), out=row
            )
    z[A.diagonal() <= 0] = 0.0
    if sweeps > _LOOK:
        going = np.flatnonzero((np.abs(z - before) > _STILL * np.abs(z).max(axis=0)).any(axis=0))
        z[:, going] = coordinate_descent(
            A, rhs[:, going], lasso, signed, z[:, going], sweeps - _LOOK
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
    """min ½ zᵀAz − rᵀz over z ≥ 0 with weightsᵀz = total, for every column r of `rhs`, by sweeps
    over pairs.

    Parameters
    ----------
    weights : (n_d,) > 0, the same for all columns
    total : one value ≥ 0 per column
    start : n_d × columns, z ≥ 0, brought to the constraint first
    """
    reached = weights @ start
    even = np.ones_like(start) / (len(weights) * weights[:, None])
    z = np.where(reached > 0, start / np.where(reached > 0, reached, 1.0), even) * total
    gradient = A @ z - rhs
    for _ in range(sweeps):
        for i in range(len(weights)):
            for j in range(i + 1, len(weights)):
                # i gains t/weights[i], j loses t/weights[j]
                u, v = 1 / weights[i], 1 / weights[j]
                curvature = A[i, i] * u * u - 2 * A[i, j] * u * v + A[j, j] * v * v
                if curvature <= 0:
                    continue
                t = np.clip((gradient[j] * v - gradient[i] * u) / curvature, -z[i] / u, z[j] / v)
                z[i] += t * u
                z[j] -= t * v
                gradient += (A[:, i] * u - A[:, j] * v)[:, None] * t
    return np.maximum(z, 0.0)


def minimise(A: np.ndarray, rhs: np.ndarray, lasso: float, signed: bool) -> np.ndarray:
    """The solution itself, to rounding.

    Sweeps find which coordinates are zero; the others then solve a linear system. A column whose
    answer meets the optimality conditions is finished, the rest are swept further, twice as long
    each time; what is left after that goes through an active-set solver one by one. Where
    components are collinear, so that many answers are equally good, a ridge of 1e-10 of the largest
    eigenvalue picks one.
    """
    A = _conditioned(A)
    if signed and lasso == 0:  # nothing is held at zero but what nothing bends
        z, bent = np.zeros_like(rhs), np.flatnonzero(A.diagonal() > 0)
        z[bent] = np.linalg.solve(A[np.ix_(bent, bent)], rhs[bent])
        return z
    z = coordinate_descent(A, rhs, lasso, signed, sweeps=10)
    left, swept, sweeps = np.arange(rhs.shape[1]), 10, 10
    while len(left):
        exact, optimal = _solve_on_support(A, rhs[:, left], z[:, left], lasso, signed)
        z[:, left[optimal]] = exact[:, optimal]
        left = left[~optimal]
        if swept >= _MOST_SWEEPS:
            break
        sweeps, swept = 2 * sweeps, swept + 2 * sweeps
        if len(left):
            z[:, left] = coordinate_descent(A, rhs[:, left], lasso, signed, z[:, left], sweeps)
    if len(left):
        z[:, left] = _active_set(A, rhs[:, left], lasso, signed)
        exact, optimal = _solve_on_support(A, rhs[:, left], z[:, left], lasso, signed)
        z[:, left[optimal]] = exact[:, optimal]
    return z


def _conditioned(A: np.ndarray) -> np.ndarray:
    """A, with a small ridge when it is singular to working precision."""
    eigenvalues = np.linalg.eigvalsh(A)
    if eigenvalues[0] > _COLLINEAR * eigenvalues[-1]:
        return A
    # coordinates that nothing bends (zero components) stay as they are: they are set to zero
    return A + _COLLINEAR * eigenvalues[-1] * np.diag((A.diagonal() > 0).astype(np.float64))


def _active_set(A: np.ndarray, rhs: np.ndarray, lasso: float, signed: bool) -> np.ndarray:
    """Column by column by Lawson and Hanson's algorithm; signed problems as the difference of two
    parts ≥ 0.
    """
    from scipy.optimize import nnls

    used = np.flatnonzero(A.diagonal() > 0)
    inner = A[np.ix_(used, used)]
    Q = np.block([[inner, -inner], [-inner, inner]]) if signed else inner
    Q = Q + 1e-12 * np.trace(Q) / len(Q) * np.eye(len(Q))
    R = np.linalg.cholesky(Q).T
    z = np.zeros_like(rhs)
    for column in range(rhs.shape[1]):
        q = rhs[used, column]
        target = np.concatenate([q, -q]) - lasso if signed else q - lasso
        found, _ = nnls(R, np.linalg.solve(R.T, target))
        z[used, column] = found[: len(used)] - found[len(used) :] if signed else found
    return z


def _solve_on_support(
    A: np.ndarray, rhs: np.ndarray, z: np.ndarray, lasso: float, signed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Per column: the minimiser with the zeros and signs of `z`, and whether it is the minimiser of
    all.
    """
    signs = np.sign(z)
    exact = np.zeros_like(z)
    patterns, member = np.unique(signs, axis=1, return_inverse=True)
    member = member.ravel()
    for i, pattern in enumerate(patterns.T):
        on = np.flatnonzero(pattern)
        columns = np.flatnonzero(member == i)
        if len(on):
            target = rhs[np.ix_(on, columns)] - lasso * pattern[on, None]
            try:
                exact[np.ix_(on, columns)] = np.linalg.solve(A[np.ix_(on, on)], target)
            except np.linalg.LinAlgError:  # components that copy each other: the sweeps go on alone
                exact[np.ix_(on, columns)] = np.nan
    with np.errstate(invalid="ignore"):
        pull = rhs - A @ exact  # minus the gradient of the quadratic part
        slack = 1e-10 * (np.abs(rhs).max(axis=0) + lasso)
        allowed = np.where(
            signs == 0, (np.abs(pull) if signed else pull) <= lasso + slack, signs * exact >= 0
        )
    return exact, allowed.all(axis=0) & np.isfinite(exact).all(axis=0)
