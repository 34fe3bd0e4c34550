"""The updates of `schemes`, compiled: many starts of one small problem.

The NumPy functions are the definition, and tests hold these to them. Factors lie with one row per
component: B here is the transpose of B there, so that the loops run over memory in its order. Every
start is on its own, from its first update to its last, so answers depend neither on the other
starts nor on the number of threads. Equation numbers are those of docs/notation.md.

numba does not see that another file has changed: touch this one after a change of `update.settled`
or its constants.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from icofactor.factorization import update
from icofactor.factorization.schemes.projective import STEPS

# numba infers the types of arrays and of the tuples below.
Array = Any

# Sums may be taken in any order, so that they are vectorised; NaN and infinity keep their meaning.
compiled = partial(
    njit,
    cache=True,
    nogil=True,
    error_model="numpy",
    fastmath={"reassoc", "contract", "arcp", "nsz"},
)
# Without what Python needs to call a function, it is compiled in half the time.
inner = partial(compiled, no_cpython_wrapper=True, no_cfunc_wrapper=True)
settled = inner(update.settled)

# The updates, by the names that schemes give (`Scheme.kernel`).
UPDATES = {"dictionary": 0, "ridge": 1, "sparse": 2, "projective": 3, "descent": 4}
DICTIONARY, RIDGE, SPARSE, PROJECTIVE, DESCENT = range(5)
PLAIN, NESTEROV, LOGARITHMIC = range(3)
GOING, CONVERGED, DIVERGED = range(3)
# The smallest normal number: 0 ⊘ 0 = 0.
TINY = float(np.finfo(np.float64).tiny)
# Matrices of up to this many numbers lie in the fastest cache. There the loops below are up to
# twice as fast as BLAS, whose calls cost as much as such a product; with larger ones BLAS is
# faster.
SMALL = 4096
# What rounding may add to the objective, relative to ‖X‖².
ROUNDING = 16 * float(np.finfo(np.float64).eps)
# The largest factor of eq. 8 that is always safe.
SAFE_FACTOR = float(np.sqrt(6.0) - 1.0)


class Rules(NamedTuple):
    """How to update and when to stop.

    The first `n_plain` updates are not extrapolated; `sweeps` is 0 but for coordinate descent.
    """

    update: int
    extrapolation: int
    literal: bool
    n_plain: int
    sweeps: int
    tol: float
    first_look: int
    plateau: bool


class Numbers(NamedTuple):
    """The problem. K has one row if it is diagonal."""

    Lt: Array
    K: Array
    diagonal: bool
    row_sums: Array
    weights: Array
    ones: Array
    penalty: float
    literal_step: float
    sq_norm: float


class Starts(NamedTuple):
    """All starts, updated in place; `past_B`, `past_C`: their last plain updates."""

    B: Array
    C: Array
    past_B: Array
    past_C: Array
    tau: Array
    objectives: Array
    errors: Array
    status: Array
    n_updates: Array


class Point(NamedTuple):
    """Factors of one start and their products: K B, G = BᵀKB, BᵀLᵀ, CCᵀ and LᵀCᵀ."""

    B: Array
    C: Array
    KB: Array
    G: Array
    BL: Array
    CC: Array
    LC: Array


@compiled
def run_starts(
    rules: Rules,
    p: Numbers,
    starts: Starts,
    numbers: Array,
    first: int,
    last: int,
) -> None:
    """Update the starts of these numbers from update `first` to `last`, or to where each ends."""
    for i in numbers:
        n_components, n_columns = starts.B[i].shape
        n_subjects = starts.C[i].shape[1]
        point = new_point(n_components, n_columns, n_subjects)
        candidate = new_point(n_components, n_columns, n_subjects)
        plain_B, plain_C = np.empty_like(point.B), np.empty_like(point.C)
        past_B, past_C = np.empty_like(point.B), np.empty_like(point.C)
        space_B, space_C = np.empty_like(point.B), np.empty_like(point.C)
        objectives, errors = starts.objectives[i], starts.errors[i]
        tau = starts.tau[i]
        copy(starts.B[i], point.B)
        copy(starts.C[i], point.C)
        copy(starts.past_B[i], past_B)
        copy(starts.past_C[i], past_C)
        times_K(p.K, p.diagonal, point.B, point.KB)
        multiply_transposed(point.KB, point.B, point.G)
        multiply(point.B, p.Lt, point.BL)
        multiply_transposed(point.C, point.C, point.CC)
        multiply_transposed(point.C, p.Lt, point.LC)
        for t in range(first + 1, last + 1):
            extrapolates = rules.extrapolation != PLAIN and t > rules.n_plain
            weight = (tau - 1.0) / (tau + 1.0) if extrapolates else 0.0
            update_B(rules, p, point, plain_B, space_B, space_C)
            propose(rules, p, point.C, plain_B, plain_C, past_B, past_C, weight, candidate, space_C)
            errors[t], objectives[t] = error_and_objective(rules, p, candidate)
            uphill = not objectives[t] <= objectives[t - 1] + ROUNDING * p.sq_norm
            if extrapolates and uphill and not rules.literal:
                tau = 1.0
                propose(
                    rules, p, point.C, plain_B, plain_C, past_B, past_C, 0.0, candidate, space_C
                )
                errors[t], objectives[t] = error_and_objective(rules, p, candidate)
            if extrapolates:
                tau = (1.0 + np.sqrt(1.0 + 4.0 * tau * tau)) / 2.0
            point, candidate = candidate, point
            plain_B, past_B = past_B, plain_B
            plain_C, past_C = past_C, plain_C
            starts.n_updates[i] = t
            if not np.isfinite(objectives[t]):
                starts.status[i] = DIVERGED
                break
            if (
                rules.tol > 0
                and t >= rules.first_look
                and settled(objectives[: t + 1], rules.tol, rules.plateau)
            ):
                starts.status[i] = CONVERGED
                break
        starts.tau[i] = tau
        copy(point.B, starts.B[i])
        copy(point.C, starts.C[i])
        copy(past_B, starts.past_B[i])
        copy(past_C, starts.past_C[i])


@inner
def new_point(n_components: int, n_columns: int, n_subjects: int) -> Point:
    """Return memory for a point."""
    return Point(
        np.empty((n_components, n_columns)),
        np.empty((n_components, n_subjects)),
        np.empty((n_components, n_columns)),
        np.empty((n_components, n_components)),
        np.empty((n_components, n_subjects)),
        np.empty((n_components, n_components)),
        np.empty((n_components, n_columns)),
    )


@inner
def copy(source: Array, target: Array) -> None:
    """Copy a matrix; numba is slower at `target[:] = source`."""
    for j in range(source.shape[0]):
        for k in range(source.shape[1]):
            target[j, k] = source[j, k]


@inner
def multiply_large(X: Array, Y: Array, product: Array) -> None:
    """Set `product` to X Y by BLAS."""
    np.dot(X, Y, product)


@inner
def multiply(X: Array, Y: Array, product: Array) -> None:
    """Set `product` to X Y."""
    if Y.size > SMALL:
        multiply_large(X, Y, product)
        return
    n_rows, n_inner = X.shape
    n_columns = Y.shape[1]
    for j in range(n_rows):
        for k in range(n_columns):
            product[j, k] = 0.0
    # Five rows of Y and two of the product at a time: every number that is loaded takes part in
    # several sums, and loading is what takes the time.
    blocks = n_inner - n_inner % 5
    for i in range(0, blocks, 5):
        for row in range(0, n_rows - 1, 2):
            j = row + 1
            a, b, c, d, e = X[row, i], X[row, i + 1], X[row, i + 2], X[row, i + 3], X[row, i + 4]
            f, g, h, m, n = X[j, i], X[j, i + 1], X[j, i + 2], X[j, i + 3], X[j, i + 4]
            for k in range(n_columns):
                p, q, r, s, t = Y[i, k], Y[i + 1, k], Y[i + 2, k], Y[i + 3, k], Y[i + 4, k]
                product[row, k] += a * p + b * q + c * r + d * s + e * t
                product[j, k] += f * p + g * q + h * r + m * s + n * t
    for i in range(n_inner):
        # What is left over: a last row, and the last rows of Y.
        for j in range(n_rows - n_rows % 2 if i < blocks else 0, n_rows):
            x = X[j, i]
            for k in range(n_columns):
                product[j, k] += x * Y[i, k]


@inner
def multiply_transposed(X: Array, Y: Array, product: Array) -> None:
    """Set `product` to X Yᵀ."""
    if Y.size > SMALL:
        multiply_large(X, Y.T, product)
        return
    n_rows, n_inner = X.shape
    n_columns = Y.shape[0]
    # Two rows of X and five of Y at a time, as above. If their number is odd, the last row of X
    # is taken twice.
    for row in range(0, n_rows, 2):
        j = min(row + 1, n_rows - 1)
        k = 0
        while k + 5 <= n_columns:
            a = b = c = d = e = f = g = h = m = n = 0.0
            for i in range(n_inner):
                x, z = X[row, i], X[j, i]
                p, q, r, s, t = Y[k, i], Y[k + 1, i], Y[k + 2, i], Y[k + 3, i], Y[k + 4, i]
                a += x * p
                b += x * q
                c += x * r
                d += x * s
                e += x * t
                f += z * p
                g += z * q
                h += z * r
                m += z * s
                n += z * t
            for column, first, second in (
                (k, a, f),
                (k + 1, b, g),
                (k + 2, c, h),
                (k + 3, d, m),
                (k + 4, e, n),
            ):
                product[row, column] = first
                product[j, column] = second
            k += 5
        while k < n_columns:
            a = b = 0.0
            for i in range(n_inner):
                a += X[row, i] * Y[k, i]
                b += X[j, i] * Y[k, i]
            product[row, k] = a
            product[j, k] = b
            k += 1


@inner
def times_K(K: Array, diagonal: bool, B: Array, product: Array) -> None:
    """Set `product` to K B."""
    if diagonal:
        for j in range(B.shape[0]):
            for k in range(B.shape[1]):
                product[j, k] = K[0, k] * B[j, k]
    else:
        multiply(B, K, product)


@inner
def propose(
    rules: Rules,
    p: Numbers,
    last_C: Array,
    plain_B: Array,
    plain_C: Array,
    past_B: Array,
    past_C: Array,
    weight: float,
    candidate: Point,
    space_C: Array,
) -> None:
    """`update.propose`: the candidate from the plain update of B, with this momentum weight."""
    # numba counts the references of every array that it takes out of a tuple or passes on inside
    # one, which took a quarter of the time: so each array is taken out once.
    B, C, KB, G, BL, CC, LC = candidate
    Lt = p.Lt
    free = rules.update < PROJECTIVE
    extrapolate(rules.update, rules.extrapolation, plain_B, past_B, weight, B)
    times_K(p.K, p.diagonal, B, KB)
    multiply_transposed(KB, B, G)
    multiply(B, Lt, BL)
    if free:
        update_C(rules, p, last_C, G, BL, plain_C, space_C)
    else:
        copy(BL, plain_C)
    if free and not rules.literal:
        extrapolate(rules.update, rules.extrapolation, plain_C, past_C, weight, C)
        balance(rules.update, p.weights, B, C, KB, G)
    else:
        copy(plain_C, C)
    multiply_transposed(C, C, CC)
    multiply_transposed(C, Lt, LC)


@inner
def update_B(
    rules: Rules, p: Numbers, point: Point, plain_B: Array, space_B: Array, space_C: Array
) -> None:
    """The plain update of B."""
    if rules.update == DESCENT:
        descend(p, point, plain_B, space_B, space_C)
        return
    B, _, KB, G, _, CC, LC = point
    row_sums, weights = p.row_sums, p.weights
    if rules.sweeps > 0:
        ridge, lasso = penalties(rules.update, p.penalty)
        copy(B, plain_B)
        sweep(
            rules.sweeps, CC, LC, p.K, p.diagonal, row_sums, weights, ridge, lasso, plain_B, space_B
        )
        return
    multiply(CC, KB, space_B)
    if rules.update == PROJECTIVE:
        multiply(G, LC, plain_B)
        multiply_by_factor(rules.literal, B, LC, space_B, plain_B)
    elif rules.update == DICTIONARY:
        step = 0.0 if rules.literal else inverse_of_largest_eigenvalue(CC)
        shrink(
            rules.literal,
            p.literal_step,
            step,
            p.penalty,
            B,
            LC,
            space_B,
            row_sums,
            weights,
            plain_B,
        )
    else:
        multiply_by_ratio(rules.update, rules.literal, p.penalty, B, LC, space_B, weights, plain_B)


@inner
def update_C(
    rules: Rules, p: Numbers, C: Array, G: Array, BL: Array, plain_C: Array, space: Array
) -> None:
    """The plain update of C, from the products of the new B."""
    ones = p.ones
    if rules.sweeps > 0:
        ridge, lasso = penalties(rules.update, p.penalty)
        copy(C, plain_C)
        # numba 0.61 would not know that ones[None, :] is contiguous, and warn of a slow product.
        one_row = ones.reshape((1, len(ones)))
        sweep(rules.sweeps, G, BL, one_row, True, ones, ones, ridge, lasso, plain_C, space)
        return
    multiply(G, C, space)
    if rules.update == DICTIONARY:
        step = 0.0 if rules.literal else inverse_of_largest_eigenvalue(G)
        shrink(rules.literal, p.literal_step, step, p.penalty, C, BL, space, ones, ones, plain_C)
    else:
        multiply_by_ratio(rules.update, rules.literal, p.penalty, C, BL, space, ones, plain_C)


@inner
def penalties(update: int, penalty: float) -> tuple[float, float]:
    """Return λ as the weights of squares and of absolute values."""
    if update == RIDGE:
        return penalty, 0.0
    return 0.0, penalty


@inner
def shrink(
    literal: bool,
    literal_step: float,
    step: float,
    penalty: float,
    X: Array,
    up: Array,
    down: Array,
    row_sums: Array,
    weights: Array,
    new: Array,
) -> None:
    """The update of a factor of DL, eq. 2 and 3: a gradient step, and shrinkage by the penalty."""
    for j in range(X.shape[0]):
        for k in range(X.shape[1]):
            length = literal_step
            if not literal:
                length = step / row_sums[k] if row_sums[k] > 0 else 0.0
            z = X[j, k] - length * (down[j, k] - up[j, k])
            threshold = penalty * weights[k] * length
            new[j, k] = max(z - threshold, 0.0) - max(-z - threshold, 0.0)


@inner
def multiply_by_ratio(
    update: int,
    literal: bool,
    penalty: float,
    X: Array,
    up: Array,
    down: Array,
    weights: Array,
    new: Array,
) -> None:
    """The multiplicative update of a factor, eq. 4 to 7: of B from LᵀCᵀ and KBCCᵀ, of C from BᵀLᵀ
    and GC.
    """
    ridge, lasso = penalties(update, penalty)
    for j in range(X.shape[0]):
        if literal:
            for k in range(X.shape[1]):
                x = X[j, k]
                new[j, k] = x * max(up[j, k] - (ridge * x + lasso), 0.0) / max(down[j, k], TINY)
        else:
            for k in range(X.shape[1]):
                x = X[j, k]
                new[j, k] = x * up[j, k] / max(down[j, k] + weights[k] * (ridge * x + lasso), TINY)


@inner
def inverse_of_largest_eigenvalue(A: Array) -> float:
    """The inverse of `dictionary.largest_eigenvalue`, (tr A¹⁶)^(1/16); 0 for a zero matrix."""
    trace = 0.0
    for i in range(len(A)):
        trace += A[i, i]
    if not trace > 0:
        return 0.0
    power, square = np.empty_like(A), np.empty_like(A)
    for i in range(len(A)):
        for j in range(len(A)):
            power[i, j] = A[i, j] / trace
    for _ in range(3):
        multiply(power, power, square)
        copy(square, power)
    total = 0.0
    for i in range(len(A)):
        for j in range(len(A)):
            total += power[i, j] * power[i, j]
    return 1.0 / (trace * total ** (1 / 16))


@inner
def multiply_by_factor(literal: bool, B: Array, LC: Array, KB_CC: Array, new: Array) -> None:
    """Eq. 8, where LᵀCᵀ = MB and CCᵀ = BᵀMB; `new` is LᵀCᵀ G before."""
    for j in range(new.shape[0]):
        for k in range(new.shape[1]):
            ratio = 2.0 * LC[j, k] / max(KB_CC[j, k] + new[j, k], TINY)
            factor = 0.5 + 0.5 * ratio
            if not literal and factor > SAFE_FACTOR:
                factor = min(factor, max(ratio ** (1 / 3), SAFE_FACTOR))
            new[j, k] = B[j, k] * factor


@inner
def sweep(
    n_sweeps: int,
    A: Array,
    pull: Array,
    K: Array,
    diagonal: bool,
    row_sums: Array,
    weights: Array,
    ridge: float,
    lasso: float,
    Z: Array,
    steps: Array,
) -> None:
    """`nonnegative.sweep`, several times: every row of Z in turn at its best, in place.

    Of B, A is CCᵀ and `pull` is LᵀCᵀ; of C, A is G and `pull` is BᵀLᵀ.
    """
    n_rows, n_columns = Z.shape
    mixed, product = np.empty((1, n_columns)), np.empty((1, n_columns))
    for j in range(n_rows):
        for k in range(n_columns):
            steps[j, k] = 1.0 / max(A[j, j] * row_sums[k] + ridge * weights[k], TINY)
    for _ in range(n_sweeps):
        for j in range(n_rows):
            for k in range(n_columns):
                mixed[0, k] = A[j, 0] * Z[0, k]
            for i in range(1, n_rows):
                share = A[j, i]
                for k in range(n_columns):
                    mixed[0, k] += share * Z[i, k]
            if diagonal:
                for k in range(n_columns):
                    mixed[0, k] *= K[0, k]
            else:
                multiply(mixed, K, product)
                copy(product, mixed)
            for k in range(n_columns):
                z = Z[j, k]
                change = steps[j, k] * (pull[j, k] - mixed[0, k] - weights[k] * (ridge * z + lasso))
                Z[j, k] = max(z + change, 0.0)


@inner
def descend(p: Numbers, point: Point, new: Array, step: Array, C_step: Array) -> None:
    """`projective.descend`: a projected gradient step of the best length."""
    n_components, n_columns = point.B.shape
    # What is added along the step by its product with B or C, twice, and with itself.
    A1, A2, G1, G2 = (
        np.empty_like(point.G),
        np.empty_like(point.G),
        np.empty_like(point.G),
        np.empty_like(point.G),
    )
    # G − 2I: ⟨LᵀCᵀ, B⟩ is the trace of CCᵀ.
    G = np.empty_like(point.G)
    copy(point.G, G)
    for j in range(n_components):
        G[j, j] -= 2.0
    multiply(point.CC, point.KB, step)
    multiply(G, point.LC, new)
    for j in range(n_components):
        inverse = 1.0 / point.CC[j, j] if point.CC[j, j] > 0 else 0.0
        for k in range(n_columns):
            scale = inverse / p.row_sums[k] if p.row_sums[k] > 0 else 0.0
            step[j, k] = max(point.B[j, k] - scale * (step[j, k] + new[j, k]), 0.0) - point.B[j, k]
    multiply(step, p.Lt, C_step)
    times_K(p.K, p.diagonal, step, new)
    multiply_transposed(point.C, C_step, A1)
    multiply_transposed(point.KB, step, G1)
    multiply_transposed(C_step, C_step, A2)
    multiply_transposed(new, step, G2)
    for i in range(n_components):
        for j in range(i + 1):
            A1[i, j] += A1[j, i]
            G1[i, j] += G1[j, i]
            A1[j, i] = A1[i, j]
            G1[j, i] = G1[i, j]
    length = length_of_least_error(point.CC, A1, A2, G, G1, G2)
    for j in range(n_components):
        for k in range(n_columns):
            new[j, k] = point.B[j, k] + length * step[j, k]


@inner
def length_of_least_error(
    A0: Array, A1: Array, A2: Array, G0: Array, G1: Array, G2: Array
) -> float:
    """`projective.length_of_least_error`; here G₀ is G − 2I."""
    first, second, third, fourth = 0.0, 0.0, 0.0, 0.0
    for i in range(len(A0)):
        for j in range(len(A0)):
            first += G1[i, j] * A0[i, j] + G0[i, j] * A1[i, j]
            second += G2[i, j] * A0[i, j] + G1[i, j] * A1[i, j] + G0[i, j] * A2[i, j]
            third += G2[i, j] * A1[i, j] + G1[i, j] * A2[i, j]
            fourth += G2[i, j] * A2[i, j]
    best = 0.0
    least = 0.0
    for s in STEPS:
        error = s * (first + s * (second + s * (third + s * fourth)))
        if error < least:
            least = error
            best = s
    return best


@inner
def extrapolate(
    update: int,
    extrapolation: int,
    y: Array,
    past: Array,
    weight: float,
    new: Array,
) -> None:
    """Eq. 10 and 11; a weight of 0 gives the plain update."""
    if weight == 0.0:
        copy(y, new)
    elif extrapolation == NESTEROV:
        lowest = -np.inf if update == DICTIONARY else 0.0
        for j in range(y.shape[0]):
            for k in range(y.shape[1]):
                new[j, k] = max(y[j, k] + weight * (y[j, k] - past[j, k]), lowest)
    else:
        for j in range(y.shape[0]):
            for k in range(y.shape[1]):
                growth = y[j, k] / past[j, k] if past[j, k] > 0 else 1.0
                new[j, k] = y[j, k] * min(max(growth**weight, 0.1), 10.0)


@inner
def balance(update: int, weights: Array, B: Array, C: Array, KB: Array, G: Array) -> None:
    """Scale each component so that the penalty is least; B C stays."""
    squared = update == RIDGE
    for j in range(len(B)):
        size_B, size_C = 0.0, 0.0
        for k in range(B.shape[1]):
            size_B += weights[k] * (B[j, k] * B[j, k] if squared else abs(B[j, k]))
        for s in range(C.shape[1]):
            size_C += C[j, s] * C[j, s] if squared else abs(C[j, s])
        if size_B > 0 and size_C > 0:
            scale = (size_C / size_B) ** (0.25 if squared else 0.5)
            inverse = 1.0 / scale
            for k in range(B.shape[1]):
                B[j, k] *= scale
                KB[j, k] *= scale
            for s in range(C.shape[1]):
                C[j, s] *= inverse
            for i in range(len(G)):
                G[i, j] *= scale
                G[j, i] *= scale


@inner
def error_and_objective(rules: Rules, p: Numbers, point: Point) -> tuple[float, float]:
    """Eq. 1, and the objective."""
    B, C, _, G, _, CC, LC = point
    weights = p.weights
    error = p.sq_norm
    size = 0.0
    for j in range(len(B)):
        for k in range(B.shape[1]):
            error -= 2.0 * LC[j, k] * B[j, k]
        for i in range(len(B)):
            error += G[j, i] * CC[j, i]
        if rules.update == RIDGE:
            for k in range(B.shape[1]):
                size += weights[k] * B[j, k] * B[j, k]
            size += CC[j, j]
        elif rules.update < PROJECTIVE:
            for k in range(B.shape[1]):
                size += weights[k] * abs(B[j, k])
            for s in range(C.shape[1]):
                size += abs(C[j, s])
    if rules.update == DICTIONARY or rules.update == SPARSE:
        return error, 0.5 * error + p.penalty * size
    return error, error + p.penalty * size
