"""The slow, independent reference: every scheme written from its equations, on the full X.

Nothing here goes through K = DᵀD, L = XᵀD or M = LᵀL: products are dense and of full size, so that
agreement with the package checks those identities. Equation numbers (eq. 1 to eq. 13) are
those of docs/notation.md. One start at a time, float64, X is sites × subjects.
"""

from __future__ import annotations

from typing import TypedDict

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Array = NDArray[np.float64]

SCHEMES = ("DL", "PNNMF", "SPNNMF", "PPNMF")
METHODS = (
    "DL",
    "E-DL",
    "PNNMF",
    "E-PNNMF",
    "LE-PNNMF",
    "SPNNMF",
    "E-SPNNMF",
    "LE-SPNNMF",
    "PPNMF",
    "E-PPNMF",
    "LE-PPNMF",
)
N_PLAIN = 10  # plain updates at the start of a run
TAU_START = (1 + 5**0.5) / 2
TINY = float(np.finfo(np.float64).tiny)


class Run(TypedDict):
    """What a run leaves: the factors, and E and the objective before the first and after every update."""

    B: Array
    C: Array
    errors: list[float]
    objectives: list[float]


def split(method: str) -> tuple[str, str]:
    """Extrapolation ("", "E" or "LE") and scheme of a method's name."""
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; it should be one of {', '.join(METHODS)}")
    prefix, _, scheme = method.rpartition("-")
    return prefix, scheme


def _check(scheme: str, rules: str = "paper") -> None:
    if scheme not in SCHEMES:
        raise ValueError(f"scheme is {scheme!r}; it should be one of {', '.join(SCHEMES)}")
    if rules not in ("paper", "default"):
        raise ValueError(f"rules is {rules!r}; it should be 'paper' or 'default'")


def penalty(method: str, X: Array, D: Array, rules: str, root_D: Array | None = None) -> float:
    """λ by name: 5, ½, 0, or 1/‖XᵀD‖ with the D at hand (paper) or the root design (default).

    The default is that of Y = X/s, whose root mean square is 2.7: as E is s² times that of Y and maps and loadings √s
    times those of Y, λ is s^1.5 times that of Y under L1, s times under squares.
    """
    _, scheme = split(method)
    _check(scheme, rules)
    s = float(np.sqrt((X**2).mean())) / 2.7 if rules == "default" else 1.0
    if scheme != "PNNMF":
        return {"DL": 5.0, "SPNNMF": 0.5, "PPNMF": 0.0}[scheme] * s**1.5
    if rules == "default":
        if root_D is None:
            raise ValueError(
                "root_D is None; the default penalty of PNNMF needs the design of the root faces"
            )
        D = root_D
    return s * float(1 / np.linalg.norm((X / s).T @ D))


# ---------------------------------------------------------------- objectives and gradients


def error(X: Array, D: Array, B: Array, C: Array) -> float:
    """E = ‖X − DBC‖² (eq. 1)."""
    return float(((X - D @ B @ C) ** 2).sum())


def projective_error(X: Array, D: Array, B: Array) -> float:
    """E = ‖X − DBBᵀDᵀX‖² (eq. 9)."""
    return float(((X - D @ B @ B.T @ D.T @ X) ** 2).sum())


def scheme_error(scheme: str, X: Array, D: Array, B: Array, C: Array) -> float:
    """E of a scheme; C is not looked at by PPNMF."""
    return projective_error(X, D, B) if scheme == "PPNMF" else error(X, D, B, C)


def objective(scheme: str, X: Array, D: Array, B: Array, C: Array, lam: float, w: Array) -> float:
    """The function that a scheme minimises, row k of B weighing w_k in the penalty."""
    _check(scheme)
    E = scheme_error(scheme, X, D, B, C)
    if scheme == "PPNMF":
        return E
    if scheme == "PNNMF":
        return float(E + lam * ((w[:, None] * B**2).sum() + (C**2).sum()))
    return float(E / 2 + lam * ((w[:, None] * np.abs(B)).sum() + np.abs(C).sum()))


def gradient_B(scheme: str, X: Array, D: Array, B: Array, C: Array, lam: float, w: Array) -> Array:
    """Gradient in B of the differentiable part: without the L1 norms for DL, whole for the others (B ≥ 0)."""
    _check(scheme)
    if scheme == "PPNMF":
        W = D @ B
        R = X - W @ W.T @ X
        return -2 * D.T @ (R @ (X.T @ W) + X @ (R.T @ W))
    slope = -D.T @ (X - D @ B @ C) @ C.T
    if scheme == "PNNMF":
        return 2 * slope + 2 * lam * w[:, None] * B
    return slope + lam * w[:, None] if scheme == "SPNNMF" else slope


def gradient_C(scheme: str, X: Array, D: Array, B: Array, C: Array, lam: float, w: Array) -> Array:
    """Gradient in C of the differentiable part (as `gradient_B`); PPNMF has no free loadings."""
    _check(scheme)
    if scheme == "PPNMF":
        raise ValueError(
            "scheme is 'PPNMF', whose loadings BᵀDᵀX follow from B: there is no gradient in C"
        )
    slope = -(D @ B).T @ (X - D @ B @ C)
    if scheme == "PNNMF":
        return 2 * slope + 2 * lam * C
    return slope + lam if scheme == "SPNNMF" else slope


# ---------------------------------------------------------------- plain updates


def soft(Z: Array, a: Array | float) -> Array:
    """S(z, a) = sign(z) max(0, |z| − a)."""
    return np.sign(Z) * np.maximum(0.0, np.abs(Z) - a)


def sigma_bound(A: Array) -> float:
    """(tr A¹⁶)^(1/16), at least the largest eigenvalue of A ⪰ 0; divided by tr A against overflow."""
    trace = float(np.trace(A))
    if trace <= 0:
        return 0.0
    return trace * float(np.trace(np.linalg.matrix_power(A / trace, 16))) ** (1 / 16)


def _inverse(v: Array) -> Array:
    """1/v, and 0 (no step) where v is 0."""
    return np.where(v > 0, 1 / np.where(v > 0, v, 1.0), 0.0)


def _multiply(scheme: str, Y: Array, plus: Array, minus: Array, weight: Array, rules: str) -> Array:
    """Y ⊙ plus ⊘ minus with the penalty in the numerator (paper, eq. 4-7) or in the denominator (default)."""
    pull = weight * Y if scheme == "PNNMF" else weight * np.ones_like(Y)
    if rules == "paper":
        plus = np.maximum(plus - pull, 0.0)
    else:
        minus = minus + pull
    # Y first: 0 · (plus/tiny) would be 0 · inf where a whole row is zero
    return Y * plus / np.maximum(minus, TINY)


def plain_B(
    scheme: str, X: Array, D: Array, B: Array, C: Array, lam: float, w: Array, rules: str
) -> Array:
    """One plain update of B: eq. 2, 4, 6 or 8."""
    _check(scheme, rules)
    if scheme == "PPNMF":
        return _plain_projective(X, D, B, rules)
    weight = lam * w[:, None]
    if scheme == "DL":
        if rules == "paper":
            eta = np.full((len(B), 1), 0.1 / np.linalg.norm(X.T @ D))
        else:
            kappa = D.T @ (D @ np.ones(D.shape[1]))
            eta = _inverse(kappa * sigma_bound(C @ C.T))[:, None]
        return soft(B - eta * (D.T @ (D @ B @ C) @ C.T - D.T @ X @ C.T), weight * eta)
    return _multiply(scheme, B, D.T @ X @ C.T, D.T @ (D @ B @ C) @ C.T, weight, rules)


def _plain_projective(X: Array, D: Array, B: Array, rules: str) -> Array:
    """Eq. 8; under default rules with the factor limited so that E cannot rise."""
    W = D @ B
    P = W @ W.T @ X
    plus = D.T @ (X @ (X.T @ W))
    minus = D.T @ (P @ (X.T @ W)) + D.T @ (X @ (P.T @ W))
    r = 2 * plus / np.maximum(minus, TINY)
    factor = 0.5 + r / 2
    if rules == "default":
        factor = np.minimum(factor, np.maximum(6**0.5 - 1, np.cbrt(r)))
    return B * factor


def plain_C(
    scheme: str, X: Array, D: Array, B: Array, C: Array, lam: float, w: Array, rules: str
) -> Array:
    """One plain update of C: eq. 3, 5 or 7; the projection BᵀDᵀX for PPNMF. Row weights are of B only."""
    _check(scheme, rules)
    W = D @ B
    if scheme == "PPNMF":
        return W.T @ X
    if scheme == "DL":
        step = (
            0.1 / np.linalg.norm(X.T @ D)
            if rules == "paper"
            else _inverse(np.array(sigma_bound(W.T @ W)))
        )
        eta = float(step)
        return soft(C - eta * (W.T @ (W @ C) - W.T @ X), lam * eta)
    return _multiply(scheme, C, W.T @ X, W.T @ (W @ C), np.array(lam), rules)


# ---------------------------------------------------------------- runs


def next_tau(tau: float) -> float:
    """τ ← (1 + √(1 + 4τ²))/2."""
    return (1 + (1 + 4 * tau**2) ** 0.5) / 2


def extrapolate(
    prefix: str, y: Array, y_before: Array, momentum: float, nonnegative: bool
) -> Array:
    """Eq. 10 (prefix "E") or eq. 11 (prefix "LE")."""
    if prefix == "E":
        Z = y + momentum * (y - y_before)
        return np.maximum(Z, 0.0) if nonnegative else Z
    if prefix != "LE":
        raise ValueError(f"prefix is {prefix!r}; it should be 'E' or 'LE'")
    known = y_before > 0
    with np.errstate(over="ignore"):  # a ratio that overflows is limited to 10 all the same
        ratio = np.where(known, y, 1.0) / np.where(known, y_before, 1.0)
    return y * np.where(known, np.clip(ratio**momentum, 0.1, 10.0), 1.0)


def _start(scheme: str, X: Array, D: Array, B0: Array, C0: Array | None) -> tuple[Array, Array]:
    if scheme == "PPNMF":
        return B0, B0.T @ D.T @ X
    if C0 is None:
        raise ValueError(f"C0 is None; {scheme} needs starting loadings")
    return B0, C0


def run_paper(
    method: str, X: Array, D: Array, B0: Array, C0: Array | None, n_iter: int, lam: float
) -> Run:
    """Paper rules: B extrapolated from the eleventh update on, then C plain from the new B."""
    prefix, scheme = split(method)
    B, C = _start(scheme, X, D, B0, C0)
    w = np.ones(len(B))
    errors = [scheme_error(scheme, X, D, B, C)]
    objectives = [objective(scheme, X, D, B, C, lam, w)]
    tau, y_before = TAU_START, None
    for t in range(n_iter):
        y = plain_B(scheme, X, D, B, C, lam, w, "paper")
        B = y
        if prefix and t >= N_PLAIN and y_before is not None:
            B = extrapolate(prefix, y, y_before, (tau - 1) / (tau + 1), scheme != "DL")
            tau = next_tau(tau)
        y_before = y
        C = plain_C(scheme, X, D, B, C, lam, w, "paper")
        errors.append(scheme_error(scheme, X, D, B, C))
        objectives.append(objective(scheme, X, D, B, C, lam, w))
    return Run(B=B, C=C, errors=errors, objectives=objectives)


def balance_scales(scheme: str, B: Array, C: Array, w: Array) -> Array:
    """Factors s_j that balance: B_j s_j and C_j / s_j have the smallest penalty; 1 where either norm is 0, and for PPNMF."""
    s = np.ones(B.shape[1])
    if scheme == "PPNMF":
        return s
    for j in range(len(s)):
        if scheme == "PNNMF":
            b, c, power = (w * B[:, j] ** 2).sum(), (C[j] ** 2).sum(), 0.25
        else:
            b, c, power = (w * np.abs(B[:, j])).sum(), np.abs(C[j]).sum(), 0.5
        if b > 0 and c > 0:
            s[j] = (c / b) ** power
    return s


def run_default(
    method: str, X: Array, D: Array, B0: Array, C0: Array | None, n_iter: int, lam: float, w: Array
) -> Run:
    """Default rules: both factors extrapolated, balanced after each update, restart when E + penalty rises."""
    prefix, scheme = split(method)
    B, C = _start(scheme, X, D, B0, C0)
    free_C, nonneg = scheme != "PPNMF", scheme != "DL"
    slack = 16 * float(np.finfo(np.float64).eps) * float((X**2).sum())
    errors = [scheme_error(scheme, X, D, B, C)]
    objectives = [objective(scheme, X, D, B, C, lam, w)]
    tau = TAU_START
    before: tuple[Array, Array] | None = None  # y_B, y_C of the previous update
    for t in range(n_iter):
        plain = plain_B(scheme, X, D, B, C, lam, w, "default")
        extrapolated = bool(prefix) and t >= N_PLAIN and before is not None
        new_B = plain
        if extrapolated and before is not None:
            m = (tau - 1) / (tau + 1)
            new_B = extrapolate(prefix, plain, before[0], m, nonneg)
        y_C = plain_C(scheme, X, D, new_B, C, lam, w, "default")
        new_C = y_C
        if extrapolated and free_C and before is not None:
            new_C = extrapolate(prefix, y_C, before[1], m, nonneg)
        s = balance_scales(scheme, new_B, new_C, w)
        y_B, new_B, new_C = plain, new_B * s, new_C / s[:, None]
        value = objective(scheme, X, D, new_B, new_C, lam, w)
        if extrapolated and value > objectives[-1] + slack:
            y_C = plain_C(scheme, X, D, plain, C, lam, w, "default")
            s = balance_scales(scheme, plain, y_C, w)
            new_B, new_C = plain * s, y_C / s[:, None]
            value = objective(scheme, X, D, new_B, new_C, lam, w)
            tau = TAU_START
        elif extrapolated:
            tau = next_tau(tau)
        B, C, before = new_B, new_C, (y_B, y_C)
        errors.append(scheme_error(scheme, X, D, B, C))
        objectives.append(value)
    return Run(B=B, C=C, errors=errors, objectives=objectives)


# ---------------------------------------------------------------- local errors


def local_error_projected(X: Array, D: Array, B: Array, C: Array) -> Array:
    """e_k of eq. 12: the squared error as the column of face k sees it; C = BᵀDᵀX for PPNMF."""
    return ((D.T @ (X - D @ B @ C)) ** 2).sum(axis=1)


def local_residual(
    X: Array, site_face: NDArray[np.intp], B: Array, C: Array, D: Array, n_k: int
) -> Array:
    """r_k of eq. 13: the squared residual of the sites located in face k."""
    R = X - D @ B @ C
    return np.array([(R[site_face == k] ** 2).sum() for k in range(n_k)])


# ---------------------------------------------------------------- convex problems per column


def _descend(A: Array, Y: Array, mu: Array, nonnegative: bool, n_sweeps: int = 100_000) -> Array:
    """Coordinate descent on ½‖y − Az‖² + μ‖z‖₁, every column of Y by itself, until nothing moves."""
    Z = np.zeros((A.shape[1], Y.shape[1]))
    for _ in range(n_sweeps):
        moved = 0.0
        for j in range(A.shape[1]):
            a = A[:, j]
            if not a.any():
                continue
            rest = Y - A @ Z + np.outer(a, Z[j])
            z = (np.maximum(a @ rest - mu, 0.0) if nonnegative else soft(a @ rest, mu)) / (a @ a)
            moved = max(moved, float(np.abs(z - Z[j]).max()))
            Z[j] = z
        if moved <= 1e-14 * max(float(np.abs(Z).max()), TINY):
            return Z
    raise RuntimeError(f"coordinate descent still moves after {n_sweeps} sweeps")


def _convex(scheme: str, A: Array, Y: Array, mu: Array) -> Array:
    """Minimiser z of the scheme's convex problem in z, y ≈ Az with penalty μ, for every column y of Y."""
    if scheme != "PNNMF":
        return _descend(A, Y, mu, scheme == "SPNNMF")
    n_d = A.shape[1]
    columns = []
    for y, m in zip(Y.T, mu, strict=True):
        z, _ = nnls(np.vstack([A, np.sqrt(m) * np.eye(n_d)]), np.concatenate([y, np.zeros(n_d)]))
        columns.append(z)
    return np.array(columns).T


def lift(scheme: str, X: Array, C: Array, lam: float, w_site: Array | float) -> Array:
    """Basis on the sites given C: min ‖x − Cᵀb‖² (½ of it under L1) + λ w_site penalty, site by site."""
    _check(scheme)
    if scheme == "PPNMF":
        raise ValueError("scheme is 'PPNMF', whose lift is not a convex problem per site")
    mu = np.broadcast_to(lam * np.asarray(w_site, dtype=np.float64), (len(X),))
    return _convex(scheme, C.T, X.T, mu).T


def transform(scheme: str, W: Array, X: Array, lam: float) -> Array:
    """Loadings of the columns of X under the basis W, subject by subject."""
    _check(scheme)
    if scheme == "PPNMF":
        return W.T @ X
    return _convex(scheme, W, X, np.full(X.shape[1], lam))
