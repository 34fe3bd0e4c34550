"""How runs begin: seeds, random starts, starts from the caller, checks before the first update."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.errors import ArgumentError, shown
from icofactor.factorization.arrays import Array
from icofactor.factorization.methods import Method, for_negative_data
from icofactor.factorization.schemes.base import (
    Factors,
    Problem,
    Scheme,
    error,
    penalty_of,
    quotient,
    scaled_and_balanced,
    terms_of,
)
from icofactor.factorization.statistics import Statistics

if TYPE_CHECKING:
    from icofactor.factorization._solve import Solution

# Warn of a penalty if shrinking one component adds this share of the between-subject variance to
# the error.
LARGE_LOSS = 0.02
# Warn of a penalty given as a number if it is so many times the usual one of the data.
LARGE_PENALTY = 20.0
RandomState = int | np.random.SeedSequence | np.random.Generator | np.random.RandomState | None


def seeds_of(random_state: RandomState) -> np.random.SeedSequence:
    """Return the root of all streams: always the same for an int; generators are drawn from."""
    if isinstance(random_state, np.random.SeedSequence):
        return random_state
    if random_state is None:
        return np.random.SeedSequence()
    if isinstance(random_state, np.random.Generator):
        drawn = random_state.integers(2**32, size=4)
        return np.random.SeedSequence(drawn.tolist())
    if isinstance(random_state, np.random.RandomState):
        drawn = random_state.randint(2**31 - 1, size=4)
        return np.random.SeedSequence(drawn.tolist())
    is_integer = isinstance(random_state, int | np.integer) and not isinstance(random_state, bool)
    if not is_integer or random_state < 0:
        expected = "a whole number ≥ 0, None, a SeedSequence, a Generator or a RandomState"
        raise ArgumentError("random_state", f"must be {expected}; found {shown(random_state)}")
    return np.random.SeedSequence(int(random_state))


def stream(seeds: np.random.SeedSequence, index: int) -> np.random.Generator:
    """Return the stream of start number `index`: it depends on the seed and the index alone."""
    child = np.random.SeedSequence(
        seeds.entropy,
        spawn_key=(*seeds.spawn_key, index),
        pool_size=seeds.pool_size,
    )
    return np.random.default_rng(child)


def draw_starts(
    p: Problem,
    method: Method,
    n_components: int,
    seeds: np.random.SeedSequence,
    indices: Iterable[int],
    n_best: int | None = None,
) -> Factors:
    """Draw the random starts numbered `indices` as one batch.

    With `n_best`, schemes may draw only so many of them, the best (`Scheme.draw_many`).
    """
    streams = [stream(seeds, index) for index in indices]
    B, C = method.scheme.draw_many(p, n_components, streams, n_best)
    return method.scheme.settle(p, B, C)


def nndsvd(
    L: np.ndarray,
    sizes: np.ndarray,
    n_components: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the start of Boutsidis and Gallopoulos (2008), from the SVD of the data on the faces.

    Each pair of singular vectors is split by sign, and the half of larger energy is used. The SVD
    is that of K^(-1/2)Lᵀ, the faces' means weighted by the root of their size: with every site a
    face of its own, that of X. Columns that overlap weigh by the row sums of K.

    Parameters
    ----------
    L : (n_subjects, n_columns)
    sizes : (n_columns,) K·1

    Returns
    -------
    B (n_columns, n_components) and C (n_components, n_subjects), both ≥ 0.
    """
    n_values = min(L.shape)
    if n_components > n_values:
        message = f"start='nndsvd' gives at most {n_values}, one per singular value"
        raise ArgumentError("n_components", f"{message}; found {n_components}")
    root = np.sqrt(sizes)
    means = quotient(L, root).T
    U, values, Vt = np.linalg.svd(means, full_matrices=False)
    n_columns, n_subjects = means.shape
    B = np.zeros((n_columns, n_components))
    C = np.zeros((n_components, n_subjects))
    for j in range(n_components):
        energy = 0.0
        for sign in (1.0, -1.0):
            u = np.maximum(sign * U[:, j], 0.0)
            v = np.maximum(sign * Vt[j], 0.0)
            size_u = np.linalg.norm(u)
            size_v = np.linalg.norm(v)
            if size_u * size_v > energy:
                energy = float(size_u * size_v)
                scale = np.sqrt(values[j] * energy)
                B[:, j] = scale * u / size_u
                C[j] = scale * v / size_v
    return quotient(B, root[:, None]), C


def nndsvd_start(
    p: Problem,
    method: Method,
    n_components: int,
) -> Factors:
    """Return `nndsvd` as a batch of one, at the scale at which the method begins."""
    B, C = nndsvd(p.L, p.row_sums, n_components)
    return method.scheme.settle(p, B[None], C[None])


def given_start(
    p: Problem,
    stats: Statistics,
    method: Method,
    start: Solution | tuple[Array, Array | None],
    n_components: int | None,
) -> Factors:
    """Check a start from the caller, and return it as a batch of one."""
    scheme = method.scheme
    pair: Any = start
    if hasattr(pair, "B") and hasattr(pair, "C"):
        pair = (pair.B, pair.C)
    if not isinstance(pair, tuple) or len(pair) != 2 or pair[0] is None:
        message = "must be a pair (B, C), a Solution or 'nndsvd'"
        raise ArgumentError("start", f"{message}; found {shown(start)}")
    B = _checked_factor(
        "start.B",
        pair[0],
        (stats.n_columns, n_components),
        scheme.signed_maps,
        method,
    )
    if scheme.projective:
        C = p.project(B)
    elif pair[1] is None:
        raise ArgumentError("start.C", f"{method.name} needs loadings too; found None")
    else:
        shape = (B.shape[1], stats.n_subjects)
        C = _checked_factor("start.C", pair[1], shape, scheme.signed_loadings, method)
    return B[None], C[None]


def _checked_factor(
    name: str,
    factor: Array,
    shape: tuple[int, int | None],
    signed: bool,
    method: Method,
) -> np.ndarray:
    """Return a factor in float64, if its shape and values are those of the problem."""
    factor = np.asarray(factor, dtype=np.float64)
    rows, columns = shape
    fits = factor.ndim == 2 and len(factor) == rows
    if columns is not None:
        fits = factor.shape == shape
    if not fits:
        expected = f"({rows}, {columns or 'n_components'})"
        raise ArgumentError(name, f"must have shape {expected}; found {factor.shape}")
    if not np.isfinite(factor).all():
        raise ArgumentError(name, "contains NaN or infinite values")
    if not signed and (factor < 0).any():
        raise ArgumentError(name, f"contains negative values; {method.name} needs values ≥ 0")
    return factor


def check_problem(
    stats: Statistics,
    method: Method,
    n_components: int,
) -> None:
    """Refuse what cannot be factorized, before the first update."""
    check_enough_subjects(n_components, stats.n_subjects)
    reason = None
    scheme = method.scheme
    # Statistics are signed if the data are, or if they are deviations from a mean.
    takes_signed = scheme.signed_data or len(scheme.centers) > 1
    is_finite = np.isfinite(stats.L).all() and np.isfinite(stats.sq_norm)
    if not is_finite:
        reason = "contains NaN or infinite values; mask them or fix the files they come from"
    elif stats.sq_norm == 0:
        reason = "is zero everywhere, or too small to square; there is nothing to factorize"
    elif not takes_signed and (stats.L < 0).any():
        reason = (
            f"contains negative values, but {method.name} needs values ≥ 0; use "
            f"{for_negative_data()}, or shift the data to ≥ 0"
        )
    if reason is not None:
        raise ArgumentError("X", reason)


def check_enough_subjects(n_components: int, n_subjects: int) -> None:
    """Refuse more components than subjects."""
    if n_components > n_subjects:
        message = f"{n_components} components are more than the {n_subjects} subjects"
        raise ArgumentError("n_components", f"{message}; use at most {n_subjects}")


def warn_of_large_penalty(
    p: Problem,
    stats: Statistics,
    scheme: Scheme,
    penalty: str | float,
) -> None:
    """Warn of a penalty from which weaker components may suffer.

    It shrinks the strongest component so far that the error grows by much of what subjects differ
    by, or it is a number far above the usual one of data of this size.
    """
    if p.penalty == 0:
        return
    usual = 0.0
    is_number = not isinstance(penalty, str)
    # λ on squares is next to nothing usually, and far more does no harm.
    if is_number and not p.literal and scheme.penalty_degree != 1:
        usual = penalty_of(stats, scheme, "default", "paper")
    loss = loss_by_shrinkage(p, scheme)
    message = None
    if loss > LARGE_LOSS:
        message = (
            f"penalty {p.penalty:g} dwarfs the data: shrinking the strongest component alone costs "
            f"{loss:.2g} times the variance between subjects, so {scheme.name} will tend to zero; "
            "use a smaller penalty, or units in which X is larger"
        )
    elif p.penalty > LARGE_PENALTY * usual > 0:
        message = (
            f"penalty {p.penalty:g} is {p.penalty / usual:.0f} times the usual one of data of this "
            f"size ({usual:.3g}) and may cost much of the fit: compare explained_ with "
            "penalty='paper', which is relative to the data"
        )
    if message is not None:
        warnings.warn(message, UserWarning, stacklevel=3)


def loss_by_shrinkage(p: Problem, scheme: Scheme) -> float:
    """Return by how much the penalty raises the error of a fit with the strongest component alone.

    Relative to the variance between subjects; 0 if there is none.
    """
    root = np.sqrt(p.row_sums)
    profiles = quotient(p.L, root)
    deviations = profiles - profiles.mean(axis=0)
    variance = float(np.square(deviations).sum())
    if variance == 0:
        return 0.0
    # Power iteration from the largest profile: an approximation of the first singular vector.
    energy = np.square(profiles).sum(axis=1)
    v = profiles[np.argmax(energy)]
    for _ in range(5):
        energy_of_v = max(float(v @ v), np.finfo(float).tiny)
        v = (profiles @ v) @ profiles / energy_of_v
    B = quotient(v, root)[None, :, None]
    C = (profiles @ v)[None, None]
    B, C = scaled_and_balanced(scheme, p, B, C)
    shrinkage = np.concatenate([[0.0], np.logspace(-5, 0, 101)])
    scales = 1 - shrinkage[:, None, None]
    B = B * scales
    C = C * scales
    E = error(p, B, terms_of(p, B, C))
    objectives = scheme.objective(p, B, C, E)
    best = np.argmin(objectives)
    return float(E[best] - E[0]) / variance
