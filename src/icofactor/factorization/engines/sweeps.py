"""Compiled copies of NumPy loops that walk in steps too short for it: coordinate descent, hard starts, and powers.

`schemes.nonnegative`, `schemes.parts.hard_sweeps` and `extrapolation` are the definitions; tests hold these to them. No
kernel here calls another: each is compiled alone, when it is first called.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from icofactor.factorization.engines.cpu import Group, Kernels, Rule, Shared, Span
from icofactor.factorization.schemes.projective import STEPS
from icofactor.factorization.update import ARRIVED, SHRUNK
from icofactor.progress import say


def compiled(function: Any = None, **more: Any) -> Any:
    """`njit` for kernels. Their code is kept on disk if it can be; otherwise each process compiles it again."""
    if function is None:
        return partial(compiled, **more)
    options = {"fastmath": {"reassoc", "contract", "arcp", "nsz"}, "nogil": True, "error_model": "numpy", **more}
    try:
        made = njit(cache=True, **options)(function)
    except RuntimeError:  # numba finds no folder for it
        return njit(**options)(function)
    kept, load, save = made._cache, made._cache.load_overload, made._cache.save_overload

    def loaded(types: Any, context: Any) -> Any:
        with suppress(Exception):  # what cannot be read is compiled again
            return load(types, context)

    def saved(types: Any, code: Any) -> None:
        try:
            save(types, code)
        except Exception as problem:
            _say_not_kept(str(getattr(problem, "strerror", None) or problem))

    kept.load_overload, kept.save_overload = loaded, saved
    return made


@cache
def _say_not_kept(why: str) -> None:
    say(f"compiled code cannot be kept ({why}): it is compiled again next time")


_alone = compiled(no_cfunc_wrapper=True)
"""For kernels that Python alone calls: compiles sooner."""


class Space(NamedTuple):
    """What `sweep_start` works in. By factor, B then C: the `form` of its columns (the diagonal of K or 1, bounds of
    the curvature, weights), `matrices` (the Gram matrix of the other factor), `sizes` of components."""

    LC: Any
    BL: Any
    old_C: Any
    KX: Any
    form: Any
    matrices: Any
    sizes: Any
    a: Any
    rows: Any
    Y: Any
    goal: Any
    scale: Any


@_alone
def sweep_start(rule: Rule, shared: Shared, group: Group, span: Span, space: Space, K: Any) -> None:
    """`kernels.run_group` for one start of coordinate descent (`schemes.nonnegative`), in place; a diagonal K is 1-d.

    A factor X passes the same lines in every phase: sweeps over its components, eq. 10, its Gram matrix, its product
    with L. Sweeps are made in the type of Y. Where K is diagonal, a step is Y_j ← [goal_j − scale_j Σ_{i≠j} A_ji Y_i]₊.
    Space made here would take longer to compile.
    """
    L, Lt, _, _, _, _, c, penalty, sq_norm = shared
    B, C, past_B, past_C, taus, objectives, errors, done, made = group
    known, age, first, n_updates, tol, settle = span
    LC, BL, old_C, KX, form, matrices, sizes, a, rows, Y, goal, scale = space
    n_d, squared, zero, tau, t = len(B), rule[0] == 1, c[7], taus[0], first
    going, slack, phase = known and age >= rule[4], 16.0 * 2.220446049250313e-16 * sq_norm, 0
    ridge, lasso = (penalty, 0.0) if squared else (0.0, penalty)
    while True:  # phase 0: B, 1: C; 2, 3: both again without eq. 10, if that led uphill
        side, other, weight = phase % 2, 1 - phase % 2, (tau - 1) / (tau + 1) if going and phase < 2 else 0.0
        X, past, up, M, out = B, past_B, LC, Lt, BL
        if side == 1:
            X, past, up, M, out = C, past_C, BL, L, LC
        n_c, x = X.shape[1], X
        if phase == 2:
            x = past
        elif phase == 3:
            x = old_C
        for j in range(n_d):
            for i in range(n_d):
                a[j, i] = zero if i == j and (K.ndim == 1 or side == 1) else matrices[side, j, i]
            for k in range(n_c if phase == 1 else 0):
                old_C[j, k] = C[j, k]
        for j in range(n_d):
            for k in range(n_c):
                b = x[j, k]
                bend = matrices[side, j, j] * form[side, 1, k] + ridge * form[side, 2, k]
                pull, back = up[j, k] - lasso * form[side, 2, k], 1.0 / bend if bend > c[0] else 0.0
                Y[j, k], scale[j, k] = b, back * form[side, 0, k]
                dead = b if pull >= 0 else 0.0  # nothing bends: it stays, or the penalty takes it
                if K.ndim == 2:
                    dead -= other * b  # of B the step is added
                goal[j, k] = pull * back if back > 0 else dead
        for _ in range(rule[3] if phase != 2 else 0):
            for j in range(n_d):
                for k in range(n_c):
                    rows[0, k] = 0
                for i in range(0, n_d - n_d % 5, 5):  # five at a time: sums stay in registers
                    a0, a1, a2, a3, a4 = a[j, i], a[j, i + 1], a[j, i + 2], a[j, i + 3], a[j, i + 4]
                    for k in range(n_c):
                        rows[0, k] += (a0 * Y[i, k] + a1 * Y[i + 1, k] + a2 * Y[i + 2, k] + a3 * Y[i + 3, k]
                                       + a4 * Y[i + 4, k])  # fmt: skip
                for i in range(n_d - n_d % 5, n_d):
                    a0 = a[j, i]
                    for k in range(n_c):
                        rows[0, k] += a0 * Y[i, k]
                if K.ndim == 2 and side == 0:
                    for k in range(n_c):
                        rows[1, k] = 0
                    for i in range(n_c):
                        a0 = rows[0, i]
                        for k in range(n_c):
                            rows[1, k] += a0 * K[i, k]
                    for k in range(n_c):
                        b = Y[j, k]
                        Y[j, k] = max(b + goal[j, k] - scale[j, k] * (rows[1, k] + rows[2, k] * b), zero)
                else:
                    for k in range(n_c):
                        Y[j, k] = max(goal[j, k] - scale[j, k] * rows[0, k], zero)
        for j in range(n_d):
            size = 0.0
            for k in range(n_c):
                y = np.float64(Y[j, k])
                value = max(y + weight * (y - past[j, k]), 0.0)
                X[j, k], past[j, k], KX[j, k] = value, y, form[side, 0, k] * value
                size += form[side, 2, k] * (value * value if squared else value)
            sizes[side, j] = size
        if K.ndim == 2 and side == 0:
            for j in range(n_d):
                for k in range(n_c):
                    KX[j, k] = 0
                for i in range(n_c):
                    for k in range(n_c):
                        KX[j, k] += X[j, i] * K[i, k]
        for j in range(n_d):
            for i in range(j + 1):
                total = 0.0
                for k in range(n_c):
                    total += KX[j, k] * X[i, k]
                matrices[other, j, i], matrices[other, i, j] = total, total
        np.dot(X, M, out)
        if side == 0:
            phase += 1
            continue
        penalized, error = 0.0, sq_norm  # balance, error (eq. 1) and objective
        for j in range(n_d):
            b, d, change, fit = sizes[0, j], sizes[1, j], 1.0, 0.0
            if b > 0 and d > 0:
                change = np.sqrt(d / b)
            penalized += b * change + d / change
            grow = np.sqrt(change) if squared else change
            shrink, sizes[0, j] = 1 / grow, grow
            for k in range(C.shape[1]):
                C[j, k] *= shrink
            for k in range(B.shape[1]):
                B[j, k] *= grow
                LC[j, k] *= shrink
                fit += B[j, k] * LC[j, k]
            error -= 2 * fit
        for j in range(n_d):
            for i in range(n_d):
                pair = sizes[0, i] * sizes[0, j]
                matrices[1, j, i] *= pair
                matrices[0, j, i] /= pair
                error += matrices[0, j, i] * matrices[1, j, i]
        objective = (error if squared else 0.5 * error) + penalty * penalized
        if phase == 1 and going and not objective <= objectives[0, t] + slack:
            tau, phase = 1.0, 2
            continue
        t += 1
        objectives[0, t], errors[0, t] = objective, error
        if going:
            tau = (1 + np.sqrt(1 + 4 * tau * tau)) / 2
        if not np.isfinite(objective):
            done[0] = 2
        elif tol > 0 and t >= settle[0]:
            now, least = objectives[0, t - settle[1]] - objective, tol * abs(objective)
            few = now <= least
            if few and settle[2] > 0:
                then = objectives[0, t - settle[1] - settle[2]] - objectives[0, t - settle[2]]
                few = now <= SHRUNK * then or now <= ARRIVED * least
            done[0] = 1 if few else 0
        if done[0] or t == first + n_updates:
            break
        going, phase = age + t - first >= rule[4], 0
    taus[0], made[0] = tau, t


def sweep_group(rule: Rule, shared: Shared, group: Group, span: Span) -> None:
    """`sweep_start` in space made here."""
    (n_d, n_k), n_s, kind = group.Bt.shape, group.C.shape[1], shared.c.dtype
    most, matrices = max(n_k, n_s), np.empty((2, n_d, n_d))
    form = np.ones((2, 3, most))
    form[0, 1, :n_k], form[0, 2, :n_k] = shared.row_sums, shared.weights
    if shared.diagonal:
        form[0, 0, :n_k] = shared.K[0]
    rows = np.zeros((3, most), kind)
    if not shared.diagonal and rule.scheme == 1:
        rows[2] = shared.penalty * form[0, 2]
    np.matmul(group.C, group.C.T, out=matrices[0])
    whole = group.C @ shared.L, np.empty_like(group.C), np.empty_like(group.C), np.empty((n_d, most)), form
    swept = np.empty((n_d, n_d), kind), rows, *np.empty((3, n_d, most), kind)
    K = shared.K[0] if shared.diagonal else shared.K
    sweep_start(rule, shared, group, span, Space(*whole, matrices, np.empty((2, n_d)), *swept), K)


def of_descent(single: bool = False, dense: bool = False) -> Kernels:
    """The kernel of coordinate descent and the types that it is called with; `single`: sweeps in float32."""
    from numba import typeof

    inner = "float32" if single else "float64"
    table, stack, inside = np.zeros((1, 1)), np.zeros((1, 1, 1)), np.zeros((1, 1), inner)
    space = Space(table, table, table, table, stack, stack, table, inside, inside, inside, inside, inside)
    return {sweep_start: (*types_of_loops("float64", inner), typeof(space), typeof(table if dense else table[0]))}


def types_of_loops(dtype: str, inner: str | None = None) -> tuple[Any, ...]:
    """The types that a compiled `Loop` is called with; `inner`: that of the constants, where it is another."""
    from numba import typeof

    row, table, path, count = np.zeros(1, dtype), np.zeros((1, 1), dtype), np.zeros((1, 1)), np.zeros(1, np.int64)
    shared = Shared(table, table, table, True, row, row, row.astype(inner or dtype), 0.0, 0.0)
    group = Group(table, table, table, table, row, path, path, count, count)
    arguments = (Rule(0, 0, True, 0, 0), shared, group, Span(True, 0, 0, 0, 0.0, count))
    return tuple(map(typeof, arguments))


def is_cached(function: Any, types: tuple[Any, ...]) -> bool:
    """Whether a kernel for these types lies in the cache; then it is loaded from there."""
    from numba.core.compiler_lock import global_compiler_lock

    try:
        with global_compiler_lock:  # numba's contexts are not made for two threads
            return function._cache.load_overload(types, function.targetctx) is not None
    except Exception:  # numba's inside changed, or its cache is out of reach: compile as usual
        return True


@compiled
def hard_sweeps(profiles: np.ndarray, turned: np.ndarray, energy: np.ndarray, centres: np.ndarray, fit: np.ndarray,
                own: np.ndarray, sweeps: int) -> None:  # fmt: skip
    """`schemes.parts.hard_sweeps` into `fit` and `own`; `turned` is profilesᵀ. A product for all starts still going."""
    n_faces, n_s = profiles.shape
    n_parts, kind, best, found = fit.shape[1], fit.dtype, np.empty(n_faces, fit.dtype), np.empty(n_faces, own.dtype)
    flat, fits = np.empty((len(fit) * n_parts, n_s), kind), np.empty((len(fit) * n_parts, n_faces), kind)
    zero = kind.type(0)
    going, n_going = np.arange(len(fit)), len(fit)
    for sweep in range(sweeps):
        for at in range(n_going):
            for j in range(n_parts):
                for s in range(n_s):
                    flat[at * n_parts + j, s] = centres[going[at], j, s]
        np.dot(flat[: n_going * n_parts], turned, fits[: n_going * n_parts])
        n_before, n_going = n_going, 0
        for at in range(n_before):
            start, row = going[at], at * n_parts
            part, centre = own[start], centres[start]
            for k in range(n_faces):
                best[k], found[k] = zero, 0
            for j in range(n_parts):
                for k in range(n_faces):
                    value = max(fits[row + j, k], zero)
                    fit[start, j, k] = value
                    found[k] = j if value > best[k] else found[k]
                    best[k] = max(best[k], value)
            moved = 0
            for k in range(n_faces):
                moved += part[k] != found[k]
                part[k] = found[k]
            if moved == 0 or sweep == sweeps - 1:
                continue
            going[n_going] = start
            n_going += 1
            for j in range(n_parts):
                for s in range(n_s):
                    centre[j, s] = zero
            for k in range(n_faces):
                j, weight = part[k], best[k]
                for s in range(n_s):
                    centre[j, s] += weight * profiles[k, s]
            for j in range(n_parts):
                size, again = zero, -1
                for s in range(n_s):
                    size += centre[j, s] * centre[j, s]
                if size == 0:  # an empty part begins again at the face that is fitted worst
                    again = 0
                    for k in range(n_faces):
                        if energy[k] - best[k] * best[k] > energy[again] - best[again] * best[again]:
                            again = k
                    size = energy[again]
                    best[again] = np.sqrt(size)
                inverse = kind.type(1 / np.sqrt(size)) if size > 0 else kind.type(1)
                for s in range(n_s):
                    centre[j, s] = inverse * (centre[j, s] if again < 0 else profiles[again, s])


@compiled
def descend_start(rule: Rule, shared: Shared, group: Group, span: Span) -> None:
    """`kernels.run_group` for one start of `schemes.projective.descend`, in place.

    Every factor X that is looked at (the start, a step, an extrapolated B, a plain one) passes the same lines, which
    make XᵀLᵀ, KX and their products. Parts are mostly zeros, and these are left out of XᵀLᵀ.
    """
    L, Lt, K, diagonal, row_sums, _, c, _, sq_norm = shared
    B, C, before, same_C, taus, objectives, errors, done, made = group
    known, age, first, n_updates, tol, settle = span
    (n_d, n_k), n_s, zero, one, two = B.shape, C.shape[1], c[7], c[8], c[9]
    rows, P = np.empty((3 * n_d, n_k), B.dtype), np.empty((2 * n_d, n_s), B.dtype)
    LC, KB, KX, CX = rows[:n_d], rows[n_d : 2 * n_d], rows[2 * n_d :], P[n_d:]
    A, G, both = np.empty((2 * n_d, n_d), B.dtype), np.empty((2 * n_d, n_d), B.dtype), np.empty((n_d, 2 * n_d), B.dtype)
    X, plain, pull = B.copy(), before.copy(), np.empty_like(B)
    where, inverse = np.zeros(n_k + 4, np.int64), np.zeros(n_k, B.dtype)
    for k in range(n_k):
        inverse[k] = one / row_sums[k] if row_sums[k] > 0 else zero
    slack, tau, t, going, phase = 16.0 * 2.220446049250313e-16 * sq_norm, taus[0], first, False, 3
    while True:  # phase 0: a step, 1: an extrapolated B, 2: a plain one, 3: the start
        n_held = 0
        for j in range(n_d):
            for k in range(n_k):
                n_held += X[j, k] != 0
        if 5 * n_held > n_d * n_k:
            np.dot(X, Lt, CX)
        else:
            for j in range(n_d):
                n = 0
                for s in range(n_s):
                    CX[j, s] = zero
                for k in range(n_k):
                    where[n] = k
                    n += X[j, k] != 0
                for i in range(0, n, 4):
                    k0, k1, k2, k3 = where[i], where[i + 1], where[i + 2], where[i + 3]
                    x0 = X[j, k0]
                    x1 = X[j, k1] if i + 1 < n else zero
                    x2 = X[j, k2] if i + 2 < n else zero
                    x3 = X[j, k3] if i + 3 < n else zero
                    for s in range(n_s):
                        CX[j, s] += x0 * Lt[k0, s] + x1 * Lt[k1, s] + x2 * Lt[k2, s] + x3 * Lt[k3, s]
        if diagonal:
            for j in range(n_d):
                for k in range(n_k):
                    KX[j, k] = K[0, k] * X[j, k]
        else:
            np.dot(X, K, KX)
        low = 0 if phase == 0 else n_d
        np.dot(P[low:], CX.T, A[low:])
        np.dot(rows[n_d + low :], X.T, G[low:])
        if phase == 0:
            first_, second, third, fourth = 0.0, 0.0, 0.0, 0.0
            for i in range(n_d):
                for j in range(n_d):
                    g0, a0 = np.float64(both[i, j]), np.float64(both[i, n_d + j])
                    a1, a2 = np.float64(A[i, j] + A[j, i]), np.float64(A[n_d + i, j])
                    g1, g2 = np.float64(G[i, j] + G[j, i]), np.float64(G[n_d + i, j])
                    first_ += g1 * a0 + g0 * a1
                    second += g2 * a0 + g1 * a1 + g0 * a2
                    third += g2 * a1 + g1 * a2
                    fourth += g2 * a2
            least, length = 0.0, 0.0
            for one_length in STEPS:
                error = one_length * (first_ + one_length * (second + one_length * (third + one_length * fourth)))
                if error < least:
                    least, length = error, one_length
            going = rule[1] == 1 and age + t - first >= rule[4] and (known or t > first)
            weight, best = (tau - one) / (tau + one), B.dtype.type(length)
            for j in range(n_d):
                for k in range(n_k):
                    y = B[j, k] + best * X[j, k]
                    X[j, k] = max(y + weight * (y - plain[j, k]), zero) if going else y
                    plain[j, k] = y
            phase = 1
            continue
        E = sq_norm
        for i in range(n_d):  # G − 2I, as ⟨LᵀCᵀ, B⟩ is tr CCᵀ
            G[n_d + i, i] -= two
            for j in range(n_d):
                E += np.float64(G[n_d + i, j]) * np.float64(A[n_d + i, j])
        if phase == 1 and going and not rule[2] and not objectives[0, t] + slack >= E:  # uphill: the plain update
            for j in range(n_d):
                for k in range(n_k):
                    X[j, k] = plain[j, k]
            tau, phase = one, 2
            continue
        for j in range(n_d):
            for k in range(n_k):
                B[j, k], KB[j, k] = X[j, k], KX[j, k]
            for s in range(n_s):
                P[j, s] = CX[j, s]
            for i in range(n_d):
                both[j, i], both[j, n_d + i] = G[n_d + j, i], A[n_d + j, i]
        if phase < 3:
            t += 1
            objectives[0, t], errors[0, t] = E, E
            if going:
                tau = (one + np.sqrt(one + two * two * tau * tau)) / two
            if not np.isfinite(E):
                done[0] = 2
            elif tol > 0 and t >= settle[0]:
                now = objectives[0, t - settle[1]] - E
                few = now <= tol * abs(E)
                if few and settle[2] > 0:
                    then = objectives[0, t - settle[1] - settle[2]] - objectives[0, t - settle[2]]
                    few = now <= SHRUNK * then or now <= ARRIVED * tol * abs(E)
                done[0] = 1 if few else 0
        if done[0] or t == first + n_updates:
            break
        np.dot(P[:n_d], L, LC)
        np.dot(both, rows[: 2 * n_d], pull)  # (G − 2I) LC + CC KB
        for j in range(n_d):
            bend = one / both[j, n_d + j] if both[j, n_d + j] > 0 else zero
            for k in range(n_k):
                b = B[j, k]
                X[j, k] = max(b - pull[j, k] * (bend * inverse[k]), zero) - b
        phase = 0
    for u in range(t + 1, first + n_updates + 1):
        objectives[0, u], errors[0, u] = objectives[0, t], errors[0, t]
    for j in range(n_d):
        for s in range(n_s):
            C[j, s], same_C[j, s] = P[j, s], P[j, s]
        for k in range(n_k):
            before[j, k] = plain[j, k]
    taus[0], made[0] = tau, t


@compiled
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
