"""Where runs begin: seeds, random starts, given starts, and the checks that come before the first
update.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.errors import ArgumentError, Phrase, literal
from icofactor.factorization.arrays import Array, T
from icofactor.factorization.methods import Method, for_negative_data
from icofactor.factorization.schemes.base import Problem, Scheme, best_scale, error, terms_of
from icofactor.factorization.statistics import Statistics

if TYPE_CHECKING:
    from icofactor.factorization._solve import Solution

LARGE = 0.02
"""A penalty is warned of when shrinking one component adds this much of the between-subject
variance to the error.
"""
FAR = 20.0
"""A penalty given as a number is warned of when it is so many times the usual one of the data."""
_RANDOM_STATE = "a whole number ≥ 0, None, a SeedSequence, a Generator or a RandomState"
RandomState = int | np.random.SeedSequence | np.random.Generator | np.random.RandomState | None


def seeds_of(random_state: RandomState) -> np.random.SeedSequence:
    """The root of all streams. An int always gives the same one; generators are drawn from."""
    if isinstance(random_state, np.random.SeedSequence):
        return random_state
    if isinstance(random_state, bool):
        raise ArgumentError("random_state", random_state, _RANDOM_STATE)
    if isinstance(random_state, np.random.Generator):
        return np.random.SeedSequence(random_state.integers(2**32, size=4).tolist())
    if isinstance(random_state, np.random.RandomState):
        return np.random.SeedSequence(random_state.randint(2**31 - 1, size=4).tolist())
    if random_state is None or (isinstance(random_state, int | np.integer) and random_state >= 0):
        return np.random.SeedSequence(None if random_state is None else int(random_state))
    raise ArgumentError("random_state", random_state, _RANDOM_STATE)


def stream(seeds: np.random.SeedSequence, index: int) -> np.random.Generator:
    """The stream of start number `index`: it depends on the seed and the index, on nothing else."""
    child = np.random.SeedSequence(
        seeds.entropy, spawn_key=(*seeds.spawn_key, index), pool_size=seeds.pool_size
    )
    return np.random.default_rng(child)


def draw_starts(
    p: Problem,
    method: Method,
    n_components: int,
    seeds: np.random.SeedSequence,
    indices: Iterable[int],
    n_best: int | None = None,
) -> tuple[Array, Array]:
    """The random starts numbered `indices` as one batch, or at least the best of them
    (`Scheme.draw_many`).
    """
    streams = [stream(seeds, i) for i in indices]
    B, C = method.scheme.draw_many(streams, p.L, p.row_sums, n_components, p.literal, n_best)
    return method.scheme.settle(p, B, C)


def nndsvd(L: np.ndarray, sizes: np.ndarray, n_components: int) -> tuple[np.ndarray, np.ndarray]:
    """The start of Boutsidis and Gallopoulos (2008), from the SVD of the data on the faces; it
    draws nothing.

    Each pair of singular vectors is split by sign, and the half of larger energy is kept. The SVD
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
    most = min(L.shape)
    if n_components > most:
        raise ArgumentError(
            "n_components",
            n_components,
            f"at most {most} with start='nndsvd', one per singular value",
        )
    root = np.sqrt(np.where(sizes > 0, sizes, np.inf))
    U, values, Vt = np.linalg.svd((L / root).T, full_matrices=False)
    B, C = np.zeros((L.shape[1], n_components)), np.zeros((n_components, L.shape[0]))
    for j in range(n_components):
        halves = [
            (np.maximum(sign * U[:, j], 0.0), np.maximum(sign * Vt[j], 0.0)) for sign in (1.0, -1.0)
        ]
        u, v = max(
            halves, key=lambda half: float(np.linalg.norm(half[0]) * np.linalg.norm(half[1]))
        )
        energy = float(np.linalg.norm(u) * np.linalg.norm(v))
        if energy > 0:
            B[:, j] = np.sqrt(values[j] * energy) * u / np.linalg.norm(u)
            C[j] = np.sqrt(values[j] * energy) * v / np.linalg.norm(v)
    return B / root[:, None], C


def nndsvd_start(p: Problem, method: Method, n_components: int) -> tuple[Array, Array]:
    """`nndsvd` as a batch of one, at the scale at which the method begins."""
    B, C = nndsvd(p.L, p.row_sums, n_components)
    return method.scheme.settle(p, B[None], C[None])


def given_start(
    p: Problem,
    stats: Statistics,
    method: Method,
    start: Solution | tuple[Array, Array | None],
    n_components: int | None,
) -> tuple[Array, Array]:
    """A start given by the caller, checked, as a batch of one."""
    pair: Any = (
        start
        if isinstance(start, tuple)
        else (getattr(start, "B", None), getattr(start, "C", None))
    )
    if isinstance(start, str) or len(pair) != 2 or pair[0] is None:
        found = start if isinstance(start, str) else Phrase(type(start).__name__)
        raise ArgumentError("start", found, "a pair (B, C), a Solution or 'nndsvd'")
    B = np.asarray(pair[0], dtype=np.float64)
    if (
        B.ndim != 2
        or B.shape[0] != stats.n_columns
        or (n_components is not None and B.shape[1] != n_components)
    ):
        shape = f"({stats.n_columns}, {n_components or 'n_components'})"
        raise ArgumentError("start.B", Phrase(tuple(B.shape)), f"of shape {shape}")
    if method.scheme.projective:
        C = p.project(B)
    else:
        if pair[1] is None:
            raise ArgumentError("start.C", Phrase("None"), f"given too for {literal(method.name)}")
        C = np.asarray(pair[1], dtype=np.float64)
        if tuple(C.shape) != (B.shape[1], stats.n_subjects):
            shape = f"{(B.shape[1], stats.n_subjects)}"
            raise ArgumentError("start.C", Phrase(tuple(C.shape)), f"of shape {shape}")
    signed_C = method.scheme.signed_loadings or method.scheme.projective
    for name, factor, signed in (("B", B, method.scheme.signed_maps), ("C", C, signed_C)):
        if not np.isfinite(factor).all():
            raise ArgumentError(f"start.{name}", Phrase("NaN or infinite values"), "finite")
        if not signed and (factor < 0).any():
            raise ArgumentError(
                f"start.{name}", Phrase("negative values"), f"≥ 0 for {literal(method.name)}"
            )
    return B[None], C[None]


def check_problem(stats: Statistics, method: Method, n_components: int) -> None:
    """Refuse what cannot be factorized, before the first update."""
    check_enough_subjects(n_components, stats.n_subjects)
    if not (np.isfinite(stats.L).all() and np.isfinite(stats.sq_norm)):
        raise ArgumentError(
            "X",
            None,
            "X contains NaN or infinite values; mask them or fix the files they come from",
        )
    if stats.sq_norm == 0:
        raise ArgumentError(
            "X", None, "X is zero everywhere, or too small to square; there is nothing to factorize"
        )
    if not method.scheme.takes_deviations and (stats.L < 0).any():
        raise ArgumentError(
            "X",
            None,
            f"X contains negative values, but {literal(method.name)} needs values ≥ 0; use "
            f"{literal(for_negative_data())}, or shift the data to ≥ 0",
        )


def check_enough_subjects(n_components: int, n_subjects: int) -> None:
    """Refuse more components than subjects."""
    if n_components > n_subjects:
        raise ArgumentError(
            "n_components",
            None,
            f"{{n_components={n_components}}} is more than the {n_subjects} subjects; use at most {n_subjects} "
            "components",
        )


def warn_if_penalty_dwarfs(p: Problem, scheme: Scheme, usual: float = 0.0) -> None:
    """Say so where the penalty shrinks the strongest component so far that the error grows by much
    of what subjects differ by, or where it is far from the usual one (if that is given): then
    weaker components may suffer.
    """
    if p.penalty == 0:
        return
    root = np.sqrt(np.where(p.row_sums > 0, p.row_sums, np.inf))
    profiles = p.L / root
    differ = float(np.square(profiles - profiles.mean(axis=0)).sum())
    v = profiles[np.argmax(np.square(profiles).sum(axis=1))]
    for _ in range(5):
        v = (profiles @ v) @ profiles / max(float(v @ v), np.finfo(float).tiny)
    B, C = (v / root)[None, :, None], (profiles @ v)[None, None]
    B = B * best_scale(p, B, C)
    s = scheme.balance(p, B, C)
    B, C = (B, C) if s is None else (B * s, C / T(s))
    sizes_of = np.concatenate([[1.0], 1 - np.logspace(-5, 0, 101)])[:, None, None]
    B, C = B * sizes_of, C * sizes_of
    E = error(p, B, terms_of(p, B, C))
    more = float(E[np.argmin(scheme.objective(p, B, C, E))] - E[0])
    if more > LARGE * differ > 0:
        warnings.warn(
            f"penalty {p.penalty:g} dwarfs the data: shrinking the strongest component alone costs "
            f"{more / differ:.2g} times the variance between subjects, so {scheme.name} will tend to zero; use a "
            "smaller penalty, or units in which X is larger",
            UserWarning,
            stacklevel=3,
        )
    elif p.penalty > FAR * usual > 0:
        warnings.warn(
            f"penalty {p.penalty:g} is {p.penalty / usual:.0f} times the usual one of data of this size ({usual:.3g}) "
            "and may cost much of the fit: compare explained_ with penalty='paper', which is relative to the data",
            UserWarning,
            stacklevel=3,
        )
