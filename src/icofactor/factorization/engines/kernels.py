"""Compiled kernels: the updates of `schemes` for groups of small problems that share K and L.

Layout. A group of g starts is stored component-major and stacked: Bt (g·n_d, n_k) holds every start's Bᵀ, C is
(g·n_d, n_subjects), CC and G are (g·n_d, n_d); the rows of a start begin at r. BᵀLᵀ and C L are then two ordinary
matrix products for the whole group; what remains (CCᵀ, G, G C, the division) are short loops over contiguous rows. A
group fits in the second-level cache and makes all its updates on one thread, so starts never wait for each other and
their answers do not depend on the number of threads.

The formulas are those of the generic functions, which the tests hold them to; equation numbers as in docs/notation.md.
Constants come in an array `c` of the data's type, so that float32 stays float32.

Functions take whole arrays and row numbers rather than rows: every view of an array costs compilation time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from icofactor.factorization.engines import sweeps
from icofactor.factorization.engines.cpu import Group, Rule, Shared, Span
from icofactor.factorization.engines.sweeps import clipped_powers, compiled
from icofactor.factorization.update import ARRIVED, SHRUNK

DICTIONARY, RIDGE, SPARSE, PROJECTIVE = 0, 1, 2, 3
PLAIN, NESTEROV, LOGARITHMIC = 0, 1, 2
TINY, PENALTY, STEP, HALF, SIXTEENTH, THIRD, SAFE, ZERO, ONE, TWO, LOWEST = range(11)
Loose = Any  # numba infers the types; annotations below would only repeat "array"
_part = compiled(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # called by kernels only: compiles sooner


@_part
def _top(number: int) -> int:
    """The first row, 0, as a number like any other: a literal 0 would have everything compiled twice."""
    return number - number


@_part
def _copy(source: Loose, target: Loose, r: int, end: int) -> None:
    """Rows r to end of `source` into `target`."""
    for i in range(r, end):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@_part
def _symmetric(X: Loose, Y: Loose, r: int, n_d: int, zero: Loose, out: Loose) -> None:
    """out = X Yᵀ of one start, known to be symmetric: four sums at a time share a row of X."""
    for i in range(n_d):
        whole = (i + 1) - (i + 1) % 4
        for j in range(0, whole, 4):
            s0, s1, s2, s3 = zero, zero, zero, zero
            for s in range(X.shape[1]):
                x = X[r + i, s]
                s0 += x * Y[r + j, s]
                s1 += x * Y[r + j + 1, s]
                s2 += x * Y[r + j + 2, s]
                s3 += x * Y[r + j + 3, s]
            out[r + i, j], out[r + i, j + 1], out[r + i, j + 2], out[r + i, j + 3] = s0, s1, s2, s3
        for j in range(whole, i + 1):
            s0 = zero
            for s in range(X.shape[1]):
                s0 += X[r + i, s] * Y[r + j, s]
            out[r + i, j] = s0
        for j in range(i):
            out[r + j, i] = out[r + i, j]


@_part
def _combine(A: Loose, a: int, X: Loose, x: int, n: int, out: Loose, o: int) -> None:
    """Row o of out = row a of A times the n rows of X from x on, five at a time so that sums stay in registers."""
    m = X.shape[1]
    if n >= 5:
        a0, a1, a2, a3, a4 = A[a, 0], A[a, 1], A[a, 2], A[a, 3], A[a, 4]
        for s in range(m):
            out[o, s] = a0 * X[x, s] + a1 * X[x + 1, s] + a2 * X[x + 2, s] + a3 * X[x + 3, s] + a4 * X[x + 4, s]
    else:
        a0 = A[a, 0]
        for s in range(m):
            out[o, s] = a0 * X[x, s]
    for j in range(5, n - n % 5, 5):
        a0, a1, a2, a3, a4 = A[a, j], A[a, j + 1], A[a, j + 2], A[a, j + 3], A[a, j + 4]
        y = x + j
        for s in range(m):
            out[o, s] += a0 * X[y, s] + a1 * X[y + 1, s] + a2 * X[y + 2, s] + a3 * X[y + 3, s] + a4 * X[y + 4, s]
    for j in range(max(n - n % 5, 1), n):
        a0 = A[a, j]
        for s in range(m):
            out[o, s] += a0 * X[x + j, s]


@_part
def _product(A: Loose, a: int, X: Loose, x: int, n: int, out: Loose, o: int) -> None:
    """out = A X for a small square A; their rows begin at a, x and o."""
    for i in range(n):
        _combine(A, a + i, X, x, n, out, o + i)


@_part
def _dot(X: Loose, r: int, end: int, M: Loose, out: Loose) -> None:
    """Rows r to end of out = X M. Every place where a product is written out costs compilation time."""
    np.dot(X[r:end], M, out[r:end])


@_part
def _project(X: Loose, r: int, end: int, L: Loose, Lt: Loose, turned: Loose, out: Loose) -> None:
    """Rows r to end of out = X Lᵀ. Without a turned copy: some subjects at a time, which BLAS does not copy first."""
    if len(Lt) == L.shape[1]:
        _dot(X, r, end, Lt, out)
        return
    some = min(max(1_000_000 // (8 * (end - r) * L.shape[1]), 1) * 8, len(L))
    for s in range(0, len(L), some):
        np.dot(L[s : s + some], X[r:end].T, turned[s : s + some])
    for j in range(r, end):
        for s in range(len(L)):
            out[j, s] = turned[s, j - r]


@_part
def _times_K(K: Loose, diagonal: bool, Bt: Loose, out: Loose) -> None:
    """(K B)ᵀ; a diagonal K is its one row."""
    if diagonal:
        for j in range(Bt.shape[0]):
            for k in range(Bt.shape[1]):
                out[j, k] = K[0, k] * Bt[j, k]
    else:
        _dot(Bt, _top(len(K)), len(Bt), K, out)


@_part
def _inverse_eigenvalue(A: Loose, r: int, n: int, P: Loose, Q: Loose, c: Loose) -> Loose:
    """1 / (tr A¹⁶)^(1/16), the inverse of an upper bound of the largest eigenvalue; 0 for a zero matrix."""
    top = _top(r)
    trace = c[ZERO]
    for i in range(n):
        trace += A[r + i, i]
    if not trace > 0:
        return c[ZERO]
    for i in range(n):
        for j in range(n):
            Q[i, j] = A[r + i, j] / trace
    for _ in range(3):
        _copy(Q, P, top, n)
        _product(P, top, P, top, n, Q, top)
    total = c[ZERO]
    for i in range(n):
        for j in range(n):
            total += Q[i, j] * Q[i, j]
    return c[ONE] / (trace * total ** c[SIXTEENTH])


@_part
def _plain(scheme: int, literal: bool, r: int, n_d: int, x: Loose, up: Loose, down: Loose, A: Loose, row_sums: Loose,
           weights: Loose, c: Loose, P: Loose, Q: Loose, y: Loose) -> None:  # fmt: skip
    """The plain update of one factor, eq. 2 to 7: B from LᵀCᵀ, KBCCᵀ and CCᵀ, or C from BᵀLᵀ, GC and G."""
    tiny, penalty, zero, n = c[TINY], c[PENALTY], c[ZERO], x.shape[1]
    if scheme == DICTIONARY:
        bend = zero if literal else _inverse_eigenvalue(A, r, n_d, P, Q, c)
        for j in range(n_d):
            for k in range(n):
                step = c[STEP] if literal else (bend / row_sums[k] if row_sums[k] > 0 else zero)
                z = x[r + j, k] - step * (down[j, k] - up[r + j, k])
                edge = penalty * weights[k] * step
                y[r + j, k] = max(z - edge, zero) - max(-z - edge, zero)
        return
    ridge, lasso = (penalty, zero) if scheme == RIDGE else (zero, penalty)
    for j in range(n_d):
        if literal:
            for k in range(n):
                b = x[r + j, k]
                y[r + j, k] = b * max(up[r + j, k] - (ridge * b + lasso), zero) / max(down[j, k], tiny)
        else:
            for k in range(n):
                b = x[r + j, k]
                y[r + j, k] = b * up[r + j, k] / max(down[j, k] + weights[k] * (ridge * b + lasso), tiny)


@_part
def _update_B(scheme: int, literal: bool, r: int, n_d: int, Bt: Loose, KB: Loose, LC: Loose, CC: Loose, G: Loose,
              row_sums: Loose, weights: Loose, c: Loose, down: Loose, more: Loose, P: Loose, Q: Loose,
              y: Loose) -> None:  # fmt: skip
    top = _top(r)
    _product(CC, r, KB, r, n_d, down, top)
    if scheme < PROJECTIVE:
        _plain(scheme, literal, r, n_d, Bt, LC, down, CC, row_sums, weights, c, P, Q, y)
        return
    _product(G, r, LC, r, n_d, more, top)  # eq. 8, where LᵀCᵀ = MB and CCᵀ = BᵀMB
    for j in range(n_d):
        for k in range(Bt.shape[1]):
            ratio = c[TWO] * LC[r + j, k] / max(down[j, k] + more[j, k], c[TINY])
            factor = c[HALF] + c[HALF] * ratio
            if not literal and factor > c[SAFE]:
                factor = min(factor, max(ratio ** c[THIRD], c[SAFE]))
            y[r + j, k] = Bt[r + j, k] * factor


@_part
def _update_C(scheme: int, literal: bool, r: int, n_d: int, BL: Loose, C: Loose, G: Loose, ones: Loose, c: Loose,
              down: Loose, P: Loose, Q: Loose, y: Loose) -> None:  # fmt: skip
    """From the new B."""
    if scheme >= PROJECTIVE:
        _copy(BL, y, r, r + n_d)
    else:
        _product(G, r, C, r, n_d, down, _top(r))
        _plain(scheme, literal, r, n_d, C, BL, down, G, ones, ones, c, P, Q, y)


@_part
def _extrapolate(kind: int, signed: bool, r: int, n_d: int, y: Loose, before: Loose, weight: Loose, c: Loose, g: Loose,
                 bits: Loose, exponents: Loose, out: Loose) -> None:  # fmt: skip
    """eq. 10 and 11."""
    low, n = c[LOWEST if signed else ZERO], y.shape[1]
    for j in range(r, r + n_d):
        if kind == NESTEROV:
            for k in range(n):
                out[j, k] = max(y[j, k] + weight * (y[j, k] - before[j, k]), low)
        else:
            for k in range(n):
                base = np.float64(before[j, k] if before[j, k] > 0 else c[ONE])
                g[k] = max(np.float64(y[j, k] if before[j, k] > 0 else c[ONE]) / base, 1e-300)
            clipped_powers(g, bits, exponents, n, np.float64(weight))
            for k in range(n):
                out[j, k] = y[j, k] * g[k]


@_part
def _balance(scheme: int, r: int, n_d: int, Bt: Loose, KB: Loose, C: Loose, G: Loose, weights: Loose,
             c: Loose) -> None:  # fmt: skip
    """Scale component by component so that the penalty is least; products stay."""
    n_k, n_s = Bt.shape[1], C.shape[1]
    for j in range(n_d):
        size_B, size_C = c[ZERO], c[ZERO]
        for k in range(n_k):
            size_B += weights[k] * (Bt[r + j, k] * Bt[r + j, k] if scheme == RIDGE else abs(Bt[r + j, k]))
        for s in range(n_s):
            size_C += C[r + j, s] * C[r + j, s] if scheme == RIDGE else abs(C[r + j, s])
        if size_B > 0 and size_C > 0:
            scale = np.sqrt(size_C / size_B)
            if scheme == RIDGE:
                scale = np.sqrt(scale)
            back = c[ONE] / scale
            for k in range(n_k):
                Bt[r + j, k] *= scale
                KB[r + j, k] *= scale
            for s in range(n_s):
                C[r + j, s] *= back
            for i in range(n_d):
                G[r + i, j] *= scale
                G[r + j, i] *= scale


@_part
def _objective(scheme: int, r: int, n_d: int, Bt: Loose, C: Loose, LC: Loose, CC: Loose, G: Loose, weights: Loose,
               zero: Loose, penalty: float, sq_norm: float) -> tuple[float, float]:  # fmt: skip
    """The error (eq. 1) and the objective; components are added in float64."""
    n_k, n_s, E, size = Bt.shape[1], C.shape[1], sq_norm, 0.0
    for j in range(r, r + n_d):
        fit, both, part, more = zero, zero, zero, zero
        for k in range(n_k):
            fit += LC[j, k] * Bt[j, k]
        for i in range(n_d):
            both += G[j, i] * CC[j, i]
        E += np.float64(both) - 2.0 * np.float64(fit)
        if scheme == RIDGE:
            for k in range(n_k):
                part += weights[k] * Bt[j, k] * Bt[j, k]
            more = CC[j, j - r]
        elif scheme < PROJECTIVE:
            for k in range(n_k):
                part += weights[k] * abs(Bt[j, k])
            for s in range(n_s):
                more += abs(C[j, s])
        size += np.float64(part) + np.float64(more)
    if scheme in (DICTIONARY, SPARSE):
        return E, 0.5 * E + penalty * size
    return E, E + penalty * size


@_part
def _settled(path: Loose, i: int, t: int, tol: float, settle: Loose) -> bool:
    """The rule of `tol`: `update.settled`, for start i after update t."""
    if tol <= 0 or t < settle[0]:
        return False
    now = path[i, t - settle[1]] - path[i, t]
    if settle[2] == 0:  # no plateau
        return now <= tol * abs(path[i, t])
    then = path[i, t - settle[1] - settle[2]] - path[i, t - settle[2]]
    return now <= tol * abs(path[i, t]) and (now <= SHRUNK * then or now <= ARRIVED * tol * abs(path[i, t]))


@compiled
def run_group(rule: Rule, shared: Shared, group: Group, span: Span) -> None:
    """Updates of a group of starts, in place."""
    scheme, kind, literal, _, plain_updates = rule
    L, Lt, K, diagonal, row_sums, weights, c, penalty, sq_norm = shared
    Bt, C, yB, yC, tau, objectives, errors, done, made = group
    known, age, t0, n_updates, tol, settle = span
    g = len(tau)
    n_k, n_s, dtype = Bt.shape[1], C.shape[1], Bt.dtype
    n_d = len(Bt) // g
    slack = 16.0 * 2.220446049250313e-16 * sq_norm
    signed, both = scheme == DICTIONARY, not literal and scheme < PROJECTIVE
    growth = np.empty(max(n_k, n_s))
    bits, exponents = growth.view(np.int64), np.empty_like(growth)
    down_B, more, down_C = np.empty((n_d, n_k), dtype), np.empty((n_d, n_k), dtype), np.empty((n_d, n_s), dtype)
    ones, turned = np.ones(n_s, dtype), np.empty((n_s, n_d), dtype)
    P, Q = np.empty((n_d, n_d), dtype), np.empty((n_d, n_d), dtype)
    Bn, Cn, yBn, yCn, BL = np.empty_like(Bt), np.empty_like(C), np.empty_like(yB), np.empty_like(yC), np.empty_like(C)
    LC, LCn, KB, KBn = np.empty_like(Bt), np.empty_like(Bt), np.empty_like(Bt), np.empty_like(Bt)
    CC = np.empty((g * n_d, n_d), dtype)
    CCn, G, Gn = np.empty_like(CC), np.empty_like(CC), np.empty_like(CC)
    top = _top(g)
    B0, C0, uphill = Bt, C, np.zeros(g, np.bool_)
    _dot(C, top, g * n_d, L, LC)
    _times_K(K, diagonal, Bt, KB)
    for r in range(0, g * n_d, n_d):
        _symmetric(C, C, r, n_d, c[ZERO], CC)
        _symmetric(Bt, KB, r, n_d, c[ZERO], G)

    turns = 0
    for u in range(n_updates):
        t = t0 + u + 1
        ended = True
        for i in range(g):
            ended = ended and done[i] > 0
        if ended:  # the rest of the path repeats
            for i in range(g):
                objectives[i, t], errors[i, t] = objectives[i, t - 1], errors[i, t - 1]
            continue
        turns += 1
        going = kind != PLAIN and age + u >= plain_updates and (known or u > 0)
        for i in range(g):
            r = i * n_d
            _update_B(scheme, literal, r, n_d, Bt, KB, LC, CC, G, row_sums, weights, c, down_B, more, P, Q, yBn)
            if going:
                weight = (tau[i] - c[ONE]) / (tau[i] + c[ONE])
                _extrapolate(kind, signed, r, n_d, yBn, yB, weight, c, growth, bits, exponents, Bn)
            else:
                _copy(yBn, Bn, r, r + n_d)
        _project(Bn, top, g * n_d, L, Lt, turned, BL)
        _times_K(K, diagonal, Bn, KBn)
        # the candidate; then, for starts that it would take uphill, the plain update (restart)
        any_uphill = False
        for again in (False, True):
            if again and not any_uphill:
                break
            for i in range(g):
                r = i * n_d
                if again:
                    if not uphill[i]:
                        continue
                    _copy(yBn, Bn, r, r + n_d)
                    _project(Bn, r, r + n_d, L, Lt, turned, BL)
                    _times_K(K, diagonal, Bn[r : r + n_d], KBn[r : r + n_d])
                _symmetric(Bn, KBn, r, n_d, c[ZERO], Gn)
                _update_C(scheme, literal, r, n_d, BL, C, Gn, ones, c, down_C, P, Q, yCn)
                if going and both and not again:
                    weight = (tau[i] - c[ONE]) / (tau[i] + c[ONE])
                    _extrapolate(kind, signed, r, n_d, yCn, yC, weight, c, growth, bits, exponents, Cn)
                else:
                    _copy(yCn, Cn, r, r + n_d)
                if both:
                    _balance(scheme, r, n_d, Bn, KBn, Cn, Gn, weights, c)
                _symmetric(Cn, Cn, r, n_d, c[ZERO], CCn)
                if again:
                    _dot(Cn, r, r + n_d, L, LCn)
            if not again:
                _dot(Cn, top, g * n_d, L, LCn)
            for i in range(g):
                if done[i] or (again and not uphill[i]):
                    continue
                E, value = _objective(scheme, i * n_d, n_d, Bn, Cn, LCn, CCn, Gn, weights, c[ZERO], penalty, sq_norm)
                uphill[i] = going and not literal and not again and not value <= objectives[i, t - 1] + slack
                any_uphill = any_uphill or uphill[i]
                objectives[i, t], errors[i, t] = value, E
                if going:
                    was = c[ONE] if again else tau[i]
                    tau[i] = (c[ONE] + np.sqrt(c[ONE] + c[TWO] * c[TWO] * was * was)) / c[TWO]
        for i in range(g):
            if done[i]:
                objectives[i, t], errors[i, t] = objectives[i, t - 1], errors[i, t - 1]
                r, end = i * n_d, (i + 1) * n_d
                for old, new in ((Bt, Bn), (KB, KBn), (C, Cn), (LC, LCn), (CC, CCn), (G, Gn), (yB, yBn), (yC, yCn)):
                    _copy(old, new, r, end)
                continue
            made[i] = t
            if not np.isfinite(objectives[i, t]):
                done[i] = 2
            elif _settled(objectives, i, t, tol, settle):
                done[i] = 1
        Bt, Bn, KB, KBn, C, Cn = Bn, Bt, KBn, KB, Cn, C
        LC, LCn, CC, CCn, G, Gn = LCn, LC, CCn, CC, Gn, G
        yB, yBn, yC, yCn = yBn, yB, yCn, yC
    if turns % 2:  # the newest state lies in the buffers made here: bring it home
        _copy(Bt, B0, top, g * n_d)
        _copy(C, C0, top, g * n_d)
        _copy(yB, yBn, top, g * n_d)
        _copy(yC, yCn, top, g * n_d)


def compile_for(dtype: str) -> None:
    """Compile `run_group` into the cache."""
    run_group.compile(sweeps.types_of_loops(dtype))


def is_cached(dtype: str) -> bool:
    """Whether `run_group` for this type lies in the cache; then it is loaded from there."""
    return sweeps.is_cached(run_group, sweeps.types_of_loops(dtype))
