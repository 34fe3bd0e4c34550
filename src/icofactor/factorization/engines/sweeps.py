"""Compiled copies of NumPy loops that walk in steps too short for it: coordinate descent, hard starts, and powers.

`schemes.nonnegative`, `schemes.parts.hard_sweeps` and `extrapolation` are the definitions; tests hold these to them. No
kernel here calls another: each is compiled alone, when it is first called.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np
from numba import njit

from icofactor.factorization.engines.cpu import Group, Kernels, Rule, Shared, Span
from icofactor.factorization.schemes.projective import STEPS
from icofactor.factorization.update import ARRIVED, SHRUNK, settled
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


WIDTH = 256
"""Columns that coordinate descent sweeps together where K is diagonal."""


@_alone
def half_step(which: Any, sweeps: int, c: Any, K: Any, diagonal: bool, row_sums: Any, weights: Any, Y: Any, goal: Any,
              back: Any, rows: Any, A: Any, up: Any, x: Any, before: Any, momentum: Any, y: Any, out: Any, gram: Any,
              sizes: Any) -> None:  # fmt: skip
    """One factor of the starts `which`: sweeps over its components (`schemes.nonnegative`) from x to y, eq. 10 with
    weight `momentum` from y to `out`, and of that out K outᵀ (where K is diagonal: its one row) and, per component,
    Σ weights out^c[3]. Factors are (starts, n_d, n); c: ridge, lasso, least denominator, exponent, 0, 1.
    Sweeps are made in the type of c and A, in the space Y, goal, back (n_d, width) and rows (3, width): as many columns
    at a time, all of them unless K is diagonal. Space made here would take longer to compile.
    """
    n_d, n, width, squared, zero, one = x.shape[1], x.shape[2], Y.shape[1], c[3] == 2, c[4], c[5]
    for at in range(len(which)):
        g = which[at]
        for low in range(0, n, width):
            w = min(width, n - low)
            for k in range(w):
                rows[1, k], rows[2, k] = K[0, low + k], c[0] * weights[low + k]
            for j in range(n_d):
                bend = A[g, j, j]
                for k in range(w):
                    Y[j, k], goal[j, k] = x[g, j, low + k], up[g, j, low + k] - weights[low + k] * c[1]
                    back[j, k] = one / max(bend * row_sums[low + k] + rows[2, k], c[2])
            for _ in range(sweeps):
                for j in range(n_d):
                    if n_d >= 5:  # five at a time: sums stay in registers
                        a0, a1, a2, a3, a4 = A[g, j, 0], A[g, j, 1], A[g, j, 2], A[g, j, 3], A[g, j, 4]
                        for k in range(w):
                            rows[0, k] = a0 * Y[0, k] + a1 * Y[1, k] + a2 * Y[2, k] + a3 * Y[3, k] + a4 * Y[4, k]
                    else:
                        a0 = A[g, j, 0]
                        for k in range(w):
                            rows[0, k] = a0 * Y[0, k]
                    for i in range(5, n_d - n_d % 5, 5):
                        a0, a1, a2, a3, a4 = A[g, j, i], A[g, j, i + 1], A[g, j, i + 2], A[g, j, i + 3], A[g, j, i + 4]
                        for k in range(w):
                            rows[0, k] += (a0 * Y[i, k] + a1 * Y[i + 1, k] + a2 * Y[i + 2, k] + a3 * Y[i + 3, k]
                                           + a4 * Y[i + 4, k])  # fmt: skip
                    for i in range(max(n_d - n_d % 5, 1), n_d):
                        a0 = A[g, j, i]
                        for k in range(w):
                            rows[0, k] += a0 * Y[i, k]
                    if diagonal:
                        for k in range(w):
                            b = Y[j, k]
                            pull = goal[j, k] - rows[1, k] * rows[0, k] - rows[2, k] * b
                            Y[j, k] = max(b + pull * back[j, k], zero)
                    else:
                        for k in range(n):
                            rows[1, k] = 0
                        for m in range(n):
                            a0 = rows[0, m]
                            for k in range(n):
                                rows[1, k] += a0 * K[m, k]
                        for k in range(n):
                            b = Y[j, k]
                            Y[j, k] = max(b + (goal[j, k] - rows[1, k] - rows[2, k] * b) * back[j, k], zero)
            for j in range(n_d):
                for k in range(w):
                    y[g, j, low + k] = Y[j, k]
        for j in range(n_d):
            size, weight = c[4], momentum[g]
            for k in range(n):
                value = max(y[g, j, k] + weight * (y[g, j, k] - before[g, j, k]), 0)
                out[g, j, k] = value
                size += weights[k] * (value * value if squared else value)
            sizes[g, j] = size
            for i in range(j + 1 if diagonal else 0):
                total = c[4]
                for k in range(n):
                    total += K[0, k] * out[g, j, k] * out[g, i, k]
                gram[g, j, i], gram[g, i, j] = total, total


@_alone
def balance_step(which: Any, c: Any, sq_norm: float, B: Any, C: Any, LC: Any, G: Any, CC: Any, sizes: Any,
                 sizes_C: Any, objectives: Any, errors: Any) -> None:  # fmt: skip
    """The starts `which` scaled so that the penalty is least, their objectives and errors (eq. 1); products follow.
    `sizes` become the scales."""
    n_d, n_k, n_s = B.shape[1], B.shape[2], C.shape[2]
    for at in range(len(which)):
        g = which[at]
        size, error = 0.0, sq_norm
        for j in range(n_d):
            b, d, change = sizes[g, j], sizes_C[g, j], c[5]
            if b > 0 and d > 0:
                change = np.sqrt(d / b)
            size += b * change + d / change
            up = np.sqrt(change) if c[3] == 2 else change
            down, fit = 1 / up, c[4]
            sizes[g, j] = up
            for k in range(n_s):
                C[g, j, k] *= down
            for k in range(n_k):
                B[g, j, k] *= up
                LC[g, j, k] *= down
                fit += B[g, j, k] * LC[g, j, k]
            error -= 2 * fit
        for j in range(n_d):
            for i in range(n_d):
                pair = sizes[g, i] * sizes[g, j]
                G[g, j, i] *= pair
                CC[g, j, i] /= pair
                error += G[g, j, i] * CC[g, j, i]
        errors[g] = error
        objectives[g] = (error if c[3] == 2 else 0.5 * error) + (c[0] + c[1]) * size


def sweep_group(rule: Rule, shared: Shared, group: Group, span: Span) -> None:
    """`kernels.run_group` for coordinate descent: half updates are compiled, what joins them is NumPy.

    Sweeps take so long that this costs little, and two kernels of a few loops are compiled within seconds.
    """
    known, age, first, n_updates, tol, settle = span
    going, n = np.flatnonzero(group.done == 0), len(group.tau)
    stacks = [x.reshape(n, -1, x.shape[1]) for x in group[:4]]
    if not known:
        stacks[2][:], stacks[3][:] = 0, 0
    t, last = first, first + n_updates
    while len(going) and t < last:
        run, begun, paths = _Sweeps(rule, shared, [x[going] for x in stacks], group.tau[going]), t, []
        ended, value = np.zeros(len(going), np.int64), group.objectives[going, t]
        path = list(group.objectives[going, : t + 1].T)
        while t < last and not ended.any():
            paths.append(run.update(value, known and age + t - first >= rule.plain_updates).copy())
            value, known, t = paths[-1][0], True, t + 1
            path.append(value)
            if not np.isfinite(value).all():
                ended[~np.isfinite(value)] = 2
            if tol > 0 and t >= settle[0]:
                ended[(ended == 0) & settled(path, tol, settle[2] > 0)] = 1
        for whole, part in zip((group.objectives, group.errors), np.stack(paths, -1), strict=True):
            whole[going, begun + 1 : t + 1], whole[going, t + 1 : last + 1] = part, part[:, -1:]
        for whole, part in zip(stacks, run.factors, strict=True):
            whole[going] = part
        group.tau[going], group.done[going], group.made[going] = run.tau, ended, t
        going = going[ended == 0]


class _Sweeps:
    """Some starts of `sweep_group`: `factors` are B, C and the plain updates that they came from."""

    def __init__(self, rule: Rule, shared: Shared, factors: list[Any], tau: Any) -> None:
        B, C = factors[:2]
        n, n_d, _ = B.shape
        kind, penalty, ridge = B.dtype, shared.penalty, rule.scheme == 1
        c = [penalty if ridge else 0.0, 0.0 if ridge else penalty, np.finfo(kind).tiny, 2.0 if ridge else 1.0, 0.0, 1.0]
        self.c, ones, self.slack = np.array(c, kind), np.ones(C.shape[2], kind), 16 * 2.0**-52 * shared.sq_norm
        self.inner = inner = np.float32 if rule.single else kind
        inside = np.array([*c[:2], np.finfo(inner).tiny, *c[3:]], inner)
        space = lambda n: (*(np.empty((m, n), inner) for m in (n_d, n_d, n_d, 3)),)
        width = min(WIDTH, B.shape[2]) if shared.diagonal else B.shape[2]
        self.fixed_B = inside, shared.K, shared.diagonal, shared.row_sums, shared.weights, *space(width)
        self.fixed_C = inside, ones[None], True, ones, ones, *space(min(WIDTH, C.shape[2]))
        self.shared, self.sweeps, self.factors, self.tau, self.all = shared, rule.sweeps, factors, tau, np.arange(n)
        self.new, self.LC, self.BL = [np.empty_like(x) for x in factors], np.empty_like(B), np.empty_like(C)
        self.G, self.CC = np.empty((n, n_d, n_d), kind), C @ C.swapaxes(1, 2)
        self.sizes, self.values = np.empty((2, n, n_d), kind), np.empty((2, n))
        self._times(self.all, C, shared.L, self.LC)

    def _times(self, which: Any, x: Any, M: Any, out: Any) -> None:
        """out = x M of some starts; of all of them in one product."""
        if which is self.all:
            np.matmul(x.reshape(-1, x.shape[2]), M, out=out.reshape(-1, M.shape[1]))
        else:
            for g in which:
                np.matmul(x[g], M, out=out[g])

    def update(self, before: Any, extrapolated: bool) -> Any:
        """All starts one update on; their objectives and errors."""
        still, which = np.zeros_like(self.tau), self.all
        weight = (self.tau - 1) / (self.tau + 1) if extrapolated else still
        CC = self.CC.astype(self.inner, copy=False)
        half_step(which, self.sweeps, *self.fixed_B, CC, self.LC, self.factors[0], self.factors[2], weight,
                  self.new[2], self.new[0], self.G, self.sizes[0])  # fmt: skip
        self._finish(which, weight)
        if extrapolated:
            which = np.flatnonzero(~(self.values[0] <= before + self.slack))
            self.tau[which] = 1
            self.tau = (1 + np.sqrt(1 + 4 * self.tau * self.tau)) / 2
        if extrapolated and len(which):  # uphill: the plain update
            y = self.new[2]
            half_step(which, 0, *self.fixed_B, CC, self.LC, y, y, still, y, self.new[0], self.G, self.sizes[0])
            self._finish(which, still)
        self.factors, self.new = self.new, self.factors
        return self.values

    def _finish(self, which: Any, weight: Any) -> None:
        """C from the new B, balanced; objectives, errors and LᵀCᵀ."""
        B, C, _, y_C = self.new
        if not self.shared.diagonal:
            self.G[which] = (B[which] @ self.shared.K) @ B[which].swapaxes(1, 2)
        self._times(which, B, self.shared.Lt, self.BL)
        G = self.G.astype(self.inner, copy=False)
        half_step(which, self.sweeps, *self.fixed_C, G, self.BL, self.factors[1], self.factors[3], weight,
                  y_C, C, self.CC, self.sizes[1])  # fmt: skip
        self._times(which, C, self.shared.L, self.LC)
        balance_step(which, self.c, self.shared.sq_norm, B, C, self.LC, self.G, self.CC, *self.sizes, *self.values)


def of_descent(single: bool = False) -> Kernels:
    """The kernels of coordinate descent and the types that they are called with; `single`: sweeps in float32."""
    from numba import typeof

    which, number, (row, table, stack) = np.zeros(1, np.int64), 0.0, (np.zeros((1,) * n) for n in (1, 2, 3))
    inner, path = np.float32 if single else np.float64, np.zeros(1)
    space = np.zeros((1, 1), inner)
    fixed = row.astype(inner), table, True, row, row, space, space, space, space, stack.astype(inner)
    half = which, 1, *fixed, stack, stack, stack, row, stack, stack, stack, table
    whole = which, row, number, stack, stack, stack, stack, stack, table, table, path, path
    return {kernel: tuple(map(typeof, given)) for kernel, given in ((half_step, half), (balance_step, whole))}


def types_of_loops(dtype: str) -> tuple[Any, ...]:
    """The types that a compiled `Loop` is called with."""
    from numba import typeof

    row, table, path, count = np.zeros(1, dtype), np.zeros((1, 1), dtype), np.zeros((1, 1)), np.zeros(1, np.int64)
    shared = Shared(table, table, table, True, row, row, row, 0.0, 0.0)
    group = Group(table, table, table, table, row, path, path, count, count)
    arguments = (Rule(0, 0, True, 0, 0, False), shared, group, Span(True, 0, 0, 0, 0.0, count))
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
