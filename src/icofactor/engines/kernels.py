"""Compiled kernels: the updates of `schemes` for groups of small problems that share K and L.

Layout. A group of g starts is stored component-major: Bt (g, n_d, n_k) holds Bᵀ, C is (g, n_d, n_subjects). Stacked
over starts, BᵀLᵀ and C L are then two ordinary matrix products for the whole group; what remains (CCᵀ, G, G C, the
division) are short loops over contiguous rows. A group fits in the second-level cache and makes all its updates on one
thread, so starts never wait for each other and their answers do not depend on the number of threads.

The formulas are those of the generic functions, which the tests hold them to; equation numbers as in docs/notation.md.
Constants come in an array `c` of the data's type, so that float32 stays float32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

DICTIONARY, RIDGE, SPARSE, PROJECTIVE = 0, 1, 2, 3
PLAIN, NESTEROV, LOGARITHMIC = 0, 1, 2
TINY, PENALTY, STEP, HALF, SIXTEENTH, LOW, HIGH, THIRD, SAFE, ZERO, ONE, TWO = range(12)

Loose = Any  # numba infers the types; annotations below would only repeat "array"

_fast = {"cache": True, "fastmath": {"reassoc", "contract", "arcp", "nsz"}, "nogil": True, "error_model": "numpy"}


@njit(**_fast)
def _dot(x: Loose, y: Loose) -> Loose:
    total = x[0] * y[0]
    for i in range(1, len(x)):
        total += x[i] * y[i]
    return total


@njit(**_fast)
def _copy(source: Loose, target: Loose) -> None:
    """target[:] = source, without the compilation of NumPy's broadcasting errors."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@njit(**_fast)
def _symmetric(X: Loose, Y: Loose, out: Loose) -> None:
    """out = X Yᵀ, known to be symmetric."""
    for i in range(X.shape[0]):
        for j in range(i + 1):
            out[i, j] = _dot(X[i], Y[j])
            out[j, i] = out[i, j]


@njit(**_fast)
def _product(A: Loose, X: Loose, out: Loose) -> None:
    """out = A X for a small square A: four rows of X at a time, so that sums stay in registers."""
    n, m = A.shape[0], X.shape[1]
    whole = n - n % 4
    for i in range(n):
        row = out[i]
        if whole:
            a0, a1, a2, a3 = A[i, 0], A[i, 1], A[i, 2], A[i, 3]
            x0, x1, x2, x3 = X[0], X[1], X[2], X[3]
            for s in range(m):
                row[s] = a0 * x0[s] + a1 * x1[s] + a2 * x2[s] + a3 * x3[s]
        else:
            a0, x0 = A[i, 0], X[0]
            for s in range(m):
                row[s] = a0 * x0[s]
        for j in range(4, whole, 4):
            a0, a1, a2, a3 = A[i, j], A[i, j + 1], A[i, j + 2], A[i, j + 3]
            x0, x1, x2, x3 = X[j], X[j + 1], X[j + 2], X[j + 3]
            for s in range(m):
                row[s] += a0 * x0[s] + a1 * x1[s] + a2 * x2[s] + a3 * x3[s]
        for j in range(max(whole, 1), n):
            a0, x0 = A[i, j], X[j]
            for s in range(m):
                row[s] += a0 * x0[s]


@njit(**_fast)
def _times_K(K: Loose, diagonal: bool, Bt: Loose, out: Loose) -> None:
    """(K B)ᵀ; a diagonal K is its one row."""
    if diagonal:
        d = K[0]
        for j in range(Bt.shape[0]):
            for k in range(Bt.shape[1]):
                out[j, k] = d[k] * Bt[j, k]
    else:
        np.dot(Bt, K, out)


@njit(**_fast)
def _inverse_eigenvalue(A: Loose, P: Loose, Q: Loose, c: Loose) -> Loose:
    """1 / (tr A¹⁶)^(1/16), the inverse of an upper bound of the largest eigenvalue; 0 for a zero matrix."""
    n = A.shape[0]
    trace = c[ZERO]
    for i in range(n):
        trace += A[i, i]
    if not trace > 0:
        return c[ZERO]
    for i in range(n):
        for j in range(n):
            P[i, j] = A[i, j] / trace
    _product(P, P, Q)
    _product(Q, Q, P)
    _product(P, P, Q)
    total = c[ZERO]
    for i in range(n):
        total += _dot(Q[i], Q[i])
    return c[ONE] / (trace * total ** c[SIXTEENTH])


@njit(**_fast)
def _update_B(scheme: int, literal: bool, Bt: Loose, KBt: Loose, LCt: Loose, CC: Loose, G: Loose, row_sums: Loose,
              weights: Loose, c: Loose, down: Loose, more: Loose, P: Loose, Q: Loose, y: Loose) -> None:  # fmt: skip
    """The plain update of B."""
    tiny, penalty, zero = c[TINY], c[PENALTY], c[ZERO]
    n_d, n_k = Bt.shape
    _product(CC, KBt, down)
    if scheme == RIDGE and literal:  # eq. 4
        for j in range(n_d):
            for k in range(n_k):
                y[j, k] = Bt[j, k] * max(LCt[j, k] - penalty * Bt[j, k], zero) / max(down[j, k], tiny)
    elif scheme == RIDGE:
        for j in range(n_d):
            for k in range(n_k):
                y[j, k] = Bt[j, k] * LCt[j, k] / max(down[j, k] + penalty * weights[k] * Bt[j, k], tiny)
    elif scheme == SPARSE and literal:  # eq. 6
        for j in range(n_d):
            for k in range(n_k):
                y[j, k] = Bt[j, k] * max(LCt[j, k] - penalty, zero) / max(down[j, k], tiny)
    elif scheme == SPARSE:
        for j in range(n_d):
            for k in range(n_k):
                y[j, k] = Bt[j, k] * LCt[j, k] / max(down[j, k] + penalty * weights[k], tiny)
    elif scheme == DICTIONARY:  # eq. 2
        bend = zero if literal else _inverse_eigenvalue(CC, P, Q, c)
        for j in range(n_d):
            for k in range(n_k):
                step = c[STEP] if literal else (bend / row_sums[k] if row_sums[k] > 0 else zero)
                z = Bt[j, k] - step * (down[j, k] - LCt[j, k])
                edge = penalty * weights[k] * step
                y[j, k] = max(z - edge, zero) - max(-z - edge, zero)
    else:  # eq. 8, where LᵀCᵀ = MB and CCᵀ = BᵀMB
        _product(G, LCt, more)
        for j in range(n_d):
            for k in range(n_k):
                r = c[TWO] * LCt[j, k] / max(down[j, k] + more[j, k], tiny)
                factor = c[HALF] + c[HALF] * r
                if not literal and factor > c[SAFE]:
                    factor = min(factor, max(r ** c[THIRD], c[SAFE]))
                y[j, k] = Bt[j, k] * factor


@njit(**_fast)
def _update_C(scheme: int, literal: bool, BL: Loose, C: Loose, G: Loose, c: Loose, down: Loose, P: Loose, Q: Loose,
              y: Loose) -> None:  # fmt: skip
    """The plain update of C, from the new B."""
    tiny, penalty, zero = c[TINY], c[PENALTY], c[ZERO]
    n_d, n_s = C.shape
    if scheme == PROJECTIVE:
        _copy(BL, y)
        return
    _product(G, C, down)
    if scheme == RIDGE and literal:  # eq. 5
        for j in range(n_d):
            for s in range(n_s):
                y[j, s] = C[j, s] * max(BL[j, s] - penalty * C[j, s], zero) / max(down[j, s], tiny)
    elif scheme == RIDGE:
        for j in range(n_d):
            for s in range(n_s):
                y[j, s] = C[j, s] * BL[j, s] / max(down[j, s] + penalty * C[j, s], tiny)
    elif scheme == SPARSE and literal:  # eq. 7
        for j in range(n_d):
            for s in range(n_s):
                y[j, s] = C[j, s] * max(BL[j, s] - penalty, zero) / max(down[j, s], tiny)
    elif scheme == SPARSE:
        for j in range(n_d):
            for s in range(n_s):
                y[j, s] = C[j, s] * BL[j, s] / max(down[j, s] + penalty, tiny)
    else:  # eq. 3
        step = c[STEP] if literal else _inverse_eigenvalue(G, P, Q, c)
        edge = penalty * step
        for j in range(n_d):
            for s in range(n_s):
                z = C[j, s] - step * (down[j, s] - BL[j, s])
                y[j, s] = max(z - edge, zero) - max(-z - edge, zero)


@njit(**_fast)
def _combine(a: Loose, X: Loose, out: Loose) -> None:
    """out = aᵀ X, five rows of X at a time so that sums stay in registers."""
    n, m = X.shape
    if n >= 5:
        a0, a1, a2, a3, a4 = a[0], a[1], a[2], a[3], a[4]
        x0, x1, x2, x3, x4 = X[0], X[1], X[2], X[3], X[4]
        for s in range(m):
            out[s] = a0 * x0[s] + a1 * x1[s] + a2 * x2[s] + a3 * x3[s] + a4 * x4[s]
    else:
        a0, x0 = a[0], X[0]
        for s in range(m):
            out[s] = a0 * x0[s]
    for j in range(5, n - n % 5, 5):
        a0, a1, a2, a3, a4 = a[j], a[j + 1], a[j + 2], a[j + 3], a[j + 4]
        x0, x1, x2, x3, x4 = X[j], X[j + 1], X[j + 2], X[j + 3], X[j + 4]
        for s in range(m):
            out[s] += a0 * x0[s] + a1 * x1[s] + a2 * x2[s] + a3 * x3[s] + a4 * x4[s]
    for j in range(max(n - n % 5, 1), n):
        a0, x0 = a[j], X[j]
        for s in range(m):
            out[s] += a0 * x0[s]


@njit(**_fast)
def _sweep_B(sweeps: int, Bt: Loose, LCt: Loose, CC: Loose, K: Loose, diagonal: bool, row_sums: Loose, weights: Loose,
             ridge: Loose, lasso: Loose, c: Loose, mixed: Loose, spread: Loose, back: Loose,
             y: Loose) -> None:  # fmt: skip
    """Coordinate descent over the columns of B (`schemes.coordinate`)."""
    tiny, zero, one = c[TINY], c[ZERO], c[ONE]
    n_d, n_k = Bt.shape
    _copy(Bt, y)
    for j in range(n_d):
        inverse, bend = back[j], CC[j, j]
        for k in range(n_k):
            inverse[k] = one / max(bend * row_sums[k] + ridge * weights[k], tiny)
    for _ in range(sweeps):
        for j in range(n_d):
            _combine(CC[j], y, mixed)  # (B CCᵀ)_j
            row, target, inverse = y[j], LCt[j], back[j]
            if diagonal:
                d = K[0]
                for k in range(n_k):
                    pull = target[k] - d[k] * mixed[k] - weights[k] * (ridge * row[k] + lasso)
                    row[k] = max(row[k] + pull * inverse[k], zero)
            else:
                np.dot(K, mixed, spread)
                for k in range(n_k):
                    pull = target[k] - spread[k] - weights[k] * (ridge * row[k] + lasso)
                    row[k] = max(row[k] + pull * inverse[k], zero)


@njit(**_fast)
def _sweep_C(sweeps: int, BL: Loose, C: Loose, G: Loose, ridge: Loose, lasso: Loose, c: Loose, mixed: Loose,
             y: Loose) -> None:  # fmt: skip
    """Coordinate descent over the rows of C (`schemes.coordinate`)."""
    zero = c[ZERO]
    _copy(C, y)
    for _ in range(sweeps):
        for j in range(C.shape[0]):
            _combine(G[j], y, mixed)
            row, target = y[j], BL[j]
            back = c[ONE] / max(G[j, j] + ridge, c[TINY])
            for s in range(C.shape[1]):
                row[s] = max(row[s] + (target[s] - mixed[s] - ridge * row[s] - lasso) * back, zero)


@njit(**_fast)
def _powers(g: Loose, exponents: Loose, weight: float) -> None:
    """g ← clip(g^weight, 0.1, 10) for positive normal g, in loops that vectorise (a call of pow does not).

    The logarithm is exponent · ln 2 plus the classic series in f/(2 + f) of the mantissa in [√½, √2); the exponential
    is 2^k times the Taylor series on [−½ ln 2, ½ ln 2]. Both are right to about 1e-15.
    """
    bits = g.view(np.int64)
    for k in range(len(g)):
        mantissa = (bits[k] & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000
        large = mantissa >= 0x3FF6A09E667F3BCD  # √2
        exponents[k] = np.float64((bits[k] >> 52) - 1023 + (1 if large else 0))
        bits[k] = mantissa - (0x0010000000000000 if large else 0)
    for k in range(len(g)):
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
    for k in range(len(g)):
        bits[k] += np.int64(exponents[k]) << 52
    for k in range(len(g)):
        g[k] = min(max(g[k], 0.1), 10.0)


@njit(**_fast)
def _extrapolate(kind: int, signed: bool, y: Loose, before: Loose, weight: Loose, c: Loose, g: Loose, exponents: Loose,
                 out: Loose) -> None:  # fmt: skip
    """eq. 10 and 11."""
    zero, n = c[ZERO], y.shape[1]
    for j in range(y.shape[0]):
        row, old, new = y[j], before[j], out[j]
        if kind == NESTEROV:
            for k in range(n):
                new[k] = row[k] + weight * (row[k] - old[k])
            if not signed:
                for k in range(n):
                    new[k] = max(new[k], zero)
        else:
            for k in range(n):
                base = np.float64(old[k] if old[k] > 0 else c[ONE])
                g[k] = max(np.float64(row[k] if old[k] > 0 else c[ONE]) / base, 1e-300)
            _powers(g[:n], exponents[:n], np.float64(weight))
            for k in range(n):
                new[k] = row[k] * g[k]


@njit(**_fast)
def _balance(scheme: int, Bt: Loose, KBt: Loose, C: Loose, G: Loose, weights: Loose, c: Loose) -> None:
    """Scale component by component so that the penalty is least; products stay."""
    n_d, n_k = Bt.shape
    for j in range(n_d):
        size_B, size_C = c[ZERO], c[ZERO]
        b, x = Bt[j], C[j]
        if scheme == RIDGE:
            for k in range(n_k):
                size_B += weights[k] * b[k] * b[k]
            size_C = _dot(x, x)
        else:
            for k in range(n_k):
                size_B += weights[k] * abs(b[k])
            for s in range(len(x)):
                size_C += abs(x[s])
        if size_B > 0 and size_C > 0:
            scale = np.sqrt(size_C / size_B)
            if scheme == RIDGE:
                scale = np.sqrt(scale)
            back = c[ONE] / scale
            for k in range(n_k):
                b[k] *= scale
                KBt[j, k] *= scale
            for s in range(len(x)):
                x[s] *= back
            for i in range(n_d):
                G[i, j] *= scale
                G[j, i] *= scale


@njit(**_fast)
def _objective(scheme: int, Bt: Loose, C: Loose, LCt: Loose, CC: Loose, G: Loose, weights: Loose, penalty: float,
               sq_norm: float) -> tuple[float, float]:  # fmt: skip
    """The error (eq. 1) and the objective, summed in float64."""
    n_d, n_k = Bt.shape
    E = sq_norm
    size = 0.0
    for j in range(n_d):
        E -= 2.0 * np.float64(_dot(LCt[j], Bt[j]))
        E += np.float64(_dot(G[j], CC[j]))
        b, x = Bt[j], C[j]
        if scheme == RIDGE:
            for k in range(n_k):
                size += weights[k] * b[k] * b[k]
            size += np.float64(CC[j, j])
        elif scheme != PROJECTIVE:
            for k in range(n_k):
                size += weights[k] * abs(b[k])
            for s in range(len(x)):
                size += abs(x[s])
    if scheme in (DICTIONARY, SPARSE):
        return E, 0.5 * E + penalty * size
    return E, E + penalty * size


@njit(**_fast)
def _basis_step(rule: Loose, going: bool, weight: Loose, shared: Loose, work: Loose, Bt: Loose, KB: Loose, LC: Loose,
                CC: Loose, G: Loose, before: Loose, y: Loose, Bn: Loose) -> None:  # fmt: skip
    """B of one start: the plain update into y, the candidate into Bn."""
    scheme, kind, literal, sweeps = rule
    _, _, K, diagonal, row_sums, weights, c = shared
    spare, down, more, _, P, Q, growth, exponents = work
    if sweeps:
        ridge, lasso = (c[PENALTY], c[ZERO]) if scheme == RIDGE else (c[ZERO], c[PENALTY])
        _sweep_B(sweeps, Bt, LC, CC, K, diagonal, row_sums, weights, ridge, lasso, c, down[0], spare[0], more, y)
    else:
        _update_B(scheme, literal, Bt, KB, LC, CC, G, row_sums, weights, c, down, more, P, Q, y)
    if going:
        _extrapolate(kind, scheme == DICTIONARY, y, before, weight, c, growth, exponents, Bn)
    else:
        _copy(y, Bn)


@njit(**_fast)
def _loadings_step(rule: Loose, going: bool, weight: Loose, shared: Loose, work: Loose, Bn: Loose, KBn: Loose,
                   BL: Loose, C: Loose, before: Loose, y: Loose, Cn: Loose, CCn: Loose, Gn: Loose) -> None:  # fmt: skip
    """C of one start from its new B: the plain update into y, the candidate into Cn; then balance, CCᵀ and G."""
    scheme, kind, literal, sweeps = rule
    weights, c = shared[5], shared[6]
    _, _, _, down, P, Q, growth, exponents = work
    _symmetric(Bn, KBn, Gn)
    if sweeps:
        ridge, lasso = (c[PENALTY], c[ZERO]) if scheme == RIDGE else (c[ZERO], c[PENALTY])
        _sweep_C(sweeps, BL, C, Gn, ridge, lasso, c, down[0], y)
    else:
        _update_C(scheme, literal, BL, C, Gn, c, down, P, Q, y)
    both = not literal and scheme != PROJECTIVE
    if going and both:
        _extrapolate(kind, scheme == DICTIONARY, y, before, weight, c, growth, exponents, Cn)
    else:
        _copy(y, Cn)
    if both:
        _balance(scheme, Bn, KBn, Cn, Gn, weights, c)
    _symmetric(Cn, Cn, CCn)


@njit(**_fast)
def _settled(path: Loose, t: int, tol: float, settle: Loose) -> bool:
    """The rule of `tol`, as in `solver`."""
    if tol <= 0 or t < settle[0]:
        return False
    now = path[t - settle[1]] - path[t]
    then = path[t - settle[1] - settle[2]] - path[t - settle[2]]
    return now <= tol * abs(path[t]) and (now <= 0.9 * then or now <= 1e-4 * tol * abs(path[t]))


@njit(**_fast)
def run_group(rule: Loose, shared: Loose, penalty: float, sq_norm: float, plain_updates: int, Bt: Loose, C: Loose,
              yB: Loose, yC: Loose, known: bool, tau: Loose, age: int, n_updates: int, t0: int, tol: float,
              settle: Loose, objectives: Loose, errors: Loose, done: Loose, made: Loose) -> None:  # fmt: skip
    """`n_updates` updates of a group of starts, in place.

    `rule`: (scheme, extrapolation, literal, sweeps of coordinate descent or 0). `shared`: what the starts have in
    common. `known`: whether yB, yC hold the plain updates before. `settle`: (first, window, lookback) of the rule of
    `tol`. `objectives`, `errors`: (g, ...) filled from column t0 + 1 on. `made`: number of the last update of each.
    `done`: 1 converged, 2 diverged; such starts stay as they are.
    """
    scheme, kind, literal, _ = rule
    L, Lt, K, diagonal, _, weights, c = shared
    g, n_d, n_k = Bt.shape
    n_s, dtype = C.shape[2], Bt.dtype
    slack = 16.0 * 2.220446049250313e-16 * sq_norm
    longest = max(n_k, n_s)
    work = (np.empty((n_d, n_k), dtype), np.empty((n_d, n_k), dtype), np.empty((n_d, n_k), dtype),
            np.empty((n_d, n_s), dtype), np.empty((n_d, n_d), dtype), np.empty((n_d, n_d), dtype),
            np.empty(longest), np.empty(longest))  # fmt: skip
    Bn, Cn, yBn, yCn, BL = np.empty_like(Bt), np.empty_like(C), np.empty_like(yB), np.empty_like(yC), np.empty_like(C)
    LC, LCn, KB, KBn = np.empty_like(Bt), np.empty_like(Bt), np.empty_like(Bt), np.empty_like(Bt)
    CC, CCn, G, Gn = (np.empty((g, n_d, n_d), dtype), np.empty((g, n_d, n_d), dtype), np.empty((g, n_d, n_d), dtype),
                      np.empty((g, n_d, n_d), dtype))  # fmt: skip
    B0, C0 = Bt, C
    np.dot(C.reshape(g * n_d, n_s), L, LC.reshape(g * n_d, n_k))
    _times_K(K, diagonal, Bt.reshape(g * n_d, n_k), KB.reshape(g * n_d, n_k))
    for i in range(g):
        _symmetric(C[i], C[i], CC[i])
        _symmetric(Bt[i], KB[i], G[i])

    for u in range(n_updates):
        t = t0 + u + 1
        going = kind != PLAIN and age + u >= plain_updates and (known or u > 0)
        for i in range(g):
            weight = (tau[i] - c[ONE]) / (tau[i] + c[ONE])
            _basis_step(rule, going, weight, shared, work, Bt[i], KB[i], LC[i], CC[i], G[i], yB[i], yBn[i], Bn[i])
        np.dot(Bn.reshape(g * n_d, n_k), Lt, BL.reshape(g * n_d, n_s))
        _times_K(K, diagonal, Bn.reshape(g * n_d, n_k), KBn.reshape(g * n_d, n_k))
        for i in range(g):
            weight = (tau[i] - c[ONE]) / (tau[i] + c[ONE])
            _loadings_step(rule, going, weight, shared, work, Bn[i], KBn[i], BL[i], C[i], yC[i], yCn[i], Cn[i], CCn[i],
                           Gn[i])  # fmt: skip
        np.dot(Cn.reshape(g * n_d, n_s), L, LCn.reshape(g * n_d, n_k))
        for i in range(g):
            if done[i]:
                objectives[i, t], errors[i, t] = objectives[i, t - 1], errors[i, t - 1]
                for source, target in (
                    (Bt, Bn),
                    (KB, KBn),
                    (C, Cn),
                    (LC, LCn),
                    (CC, CCn),
                    (G, Gn),
                    (yB, yBn),
                    (yC, yCn),
                ):
                    _copy(source[i], target[i])
                continue
            E, value = _objective(scheme, Bn[i], Cn[i], LCn[i], CCn[i], Gn[i], weights, penalty, sq_norm)
            if going:
                weight = c[ZERO]
                tau[i] = (c[ONE] + np.sqrt(c[ONE] + c[TWO] * c[TWO] * tau[i] * tau[i])) / c[TWO]
                if not literal and not value <= objectives[i, t - 1] + slack:  # restart: the plain update instead
                    _copy(yBn[i], Bn[i])
                    np.dot(Bn[i], Lt, BL[i])
                    _times_K(K, diagonal, Bn[i], KBn[i])
                    _loadings_step(rule, going and literal, weight, shared, work, Bn[i], KBn[i], BL[i], C[i], yC[i],
                                   yCn[i], Cn[i], CCn[i], Gn[i])  # fmt: skip
                    np.dot(Cn[i], L, LCn[i])
                    E, value = _objective(scheme, Bn[i], Cn[i], LCn[i], CCn[i], Gn[i], weights, penalty, sq_norm)
                    tau[i] = (c[ONE] + np.sqrt(c[TWO] * c[TWO] + c[ONE])) / c[TWO]
            objectives[i, t], errors[i, t], made[i] = value, E, t
            if not np.isfinite(value):
                done[i] = 2
            elif _settled(objectives[i], t, tol, settle):
                done[i] = 1
        Bt, Bn, KB, KBn, C, Cn = Bn, Bt, KBn, KB, Cn, C
        LC, LCn, CC, CCn, G, Gn = LCn, LC, CCn, CC, Gn, G
        yB, yBn, yC, yCn = yBn, yB, yCn, yC
    if n_updates % 2:  # the newest state lies in the buffers made here: bring it home
        for i in range(g):
            _copy(Bt[i], B0[i])
            _copy(C[i], C0[i])
            _copy(yB[i], yBn[i])
            _copy(yC[i], yCn[i])
