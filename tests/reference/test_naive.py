"""Checks of the reference itself: gradients, descent, the paper's formulas, the convex solvers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from reference import naive
from reference.naive import METHODS, SCHEMES, Array

N_SITES, N_K, N_S, N_D = 24, 6, 9, 3
TWO_FACTOR = ("DL", "PNNMF", "SPNNMF")
EXTRAPOLATED = tuple(m for m in METHODS if "-" in m)


def problem(seed: int, partition: bool = False) -> tuple[Array, Array, Array, Array, Array]:
    """X, D, B, C, w: positive, of ordinary size; D overlapping, or the indicator of six blocks of sites."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.5, 3.0, (N_SITES, N_S))
    if partition:
        D = np.repeat(np.eye(N_K), N_SITES // N_K, axis=0)
    else:
        D = rng.uniform(0.0, 1.0, (N_SITES, N_K)) * (rng.uniform(size=(N_SITES, N_K)) < 0.5)
    B = rng.uniform(0.1, 1.0, (N_K, N_D))
    C = rng.uniform(0.1, 1.0, (N_D, N_S))
    return X, D, B, C, rng.uniform(0.2, 2.0, N_K)


def signs(scheme: str, B: Array, C: Array, seed: int) -> tuple[Array, Array]:
    """Mixed signs for DL, which has no sign constraint; PPNMF's B scaled so that E is near ‖X‖²."""
    rng = np.random.default_rng(seed + 1000)
    if scheme == "DL":
        return B * rng.choice([-1.0, 1.0], B.shape), C * rng.choice([-1.0, 1.0], C.shape)
    return (B / 10, C) if scheme == "PPNMF" else (B, C)


def differences(f: Callable[[Array], float], Z: Array, h: float = 1e-5) -> Array:
    out = np.empty_like(Z)
    for i in np.ndindex(*Z.shape):
        step = np.zeros_like(Z)
        step[i] = h
        out[i] = (f(Z + step) - f(Z - step)) / (2 * h)
    return out


def relative(a: Array, b: Array) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("seed", [0, 1])
def test_gradients_are_the_finite_differences(scheme: str, seed: int) -> None:
    X, D, B, C, w = problem(seed)
    B, C = signs(scheme, B, C, seed)
    lam = 0.7
    found = differences(lambda Z: naive.objective(scheme, X, D, Z, C, lam, w), B)
    told = naive.gradient_B(scheme, X, D, B, C, lam, w)
    if (
        scheme == "DL"
    ):  # away from 0 the L1 norm has a slope too; the differentiable part leaves it out
        told = told + lam * w[:, None] * np.sign(B)
    assert relative(found, told) < 1e-6
    if scheme == "PPNMF":
        with pytest.raises(ValueError, match="no gradient in C"):
            naive.gradient_C(scheme, X, D, B, C, lam, w)
        return
    found = differences(lambda Z: naive.objective(scheme, X, D, B, Z, lam, w), C)
    told = naive.gradient_C(scheme, X, D, B, C, lam, w)
    if scheme == "DL":
        told = told + lam * np.sign(C)
    assert relative(found, told) < 1e-6


@pytest.mark.parametrize("scheme", ["PNNMF", "SPNNMF"])
@pytest.mark.parametrize("rules", ["paper", "default"])
def test_multiplicative_updates_are_steps_along_the_gradient(scheme: str, rules: str) -> None:
    """The appendix: Y − Y ⊙ G⁻ ⊘ G⁺ = (Y ⊘ G⁺) ⊙ G, the penalty in G⁻ (paper) or G⁺ (default)."""
    X, D, B, C, w = problem(2)
    lam = 0.01
    half = 2 if scheme == "PNNMF" else 1
    K, in_plus = D.T @ D, rules == "default"
    pull_B, pull_C = (
        (lam * w[:, None] * B, lam * C) if scheme == "PNNMF" else (lam * w[:, None], lam)
    )
    step = B - naive.plain_B(scheme, X, D, B, C, lam, w, rules)
    slope = naive.gradient_B(scheme, X, D, B, C, lam, w) / half
    np.testing.assert_allclose(step, slope * B / (K @ B @ C @ C.T + in_plus * pull_B), rtol=1e-9)
    step = C - naive.plain_C(scheme, X, D, B, C, lam, w, rules)
    slope = naive.gradient_C(scheme, X, D, B, C, lam, w) / half
    np.testing.assert_allclose(step, slope * C / (B.T @ K @ B @ C + in_plus * pull_C), rtol=1e-9)


@pytest.mark.parametrize("rules", ["paper", "default"])
def test_dictionary_updates_by_hand(rules: str) -> None:
    """Eq. 2 and 3 entry by entry, with the steps of either rules."""
    X, D, B, C, w = problem(16)
    B, C = signs("DL", B, C, 16)
    lam, K, L = 0.8, D.T @ D, X.T @ D
    G = B.T @ K @ B

    def bound(A: Array) -> float:
        return float((np.linalg.eigvalsh(A) ** 16).sum() ** (1 / 16))

    for k, j in np.ndindex(*B.shape):
        eta = 0.1 / np.linalg.norm(L) if rules == "paper" else 1 / (K[k].sum() * bound(C @ C.T))
        z = B[k, j] - eta * (K @ B @ C @ C.T - L.T @ C.T)[k, j]
        expected = np.sign(z) * max(0.0, abs(z) - lam * w[k] * eta)
        got = naive.plain_B("DL", X, D, B, C, lam, w, rules)[k, j]
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-14)
    for j, i in np.ndindex(*C.shape):
        eta = 0.1 / np.linalg.norm(L) if rules == "paper" else 1 / bound(G)
        z = C[j, i] - eta * (G @ C - B.T @ L.T)[j, i]
        expected = np.sign(z) * max(0.0, abs(z) - lam * eta)
        got = naive.plain_C("DL", X, D, B, C, lam, w, rules)[j, i]
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("scheme", ["PNNMF", "SPNNMF"])
@pytest.mark.parametrize("rules", ["paper", "default"])
def test_no_absolute_constant_in_the_division(scheme: str, rules: str) -> None:
    X, D, B, C, w = problem(17)
    unit = 2.0**-300
    small = naive.plain_B(scheme, X * unit, D, B * unit, C, 0.0, w, rules)
    np.testing.assert_array_equal(small, unit * naive.plain_B(scheme, X, D, B, C, 0.0, w, rules))


@given(
    scheme=st.sampled_from(SCHEMES),
    seed=st.integers(0, 2**31),
    partition=st.booleans(),
    log_scale=st.integers(-3, 3),
    lam=st.sampled_from([0.0, 0.1, 5.0]),
)
@settings(max_examples=80, deadline=None)
def test_default_plain_updates_never_rise(
    scheme: str, seed: int, partition: bool, log_scale: int, lam: float
) -> None:
    X, D, B, C, w = problem(seed, partition)
    X = X * 10.0**log_scale
    B, C = signs(scheme, B, C, seed % 1000)
    values = [naive.objective(scheme, X, D, B, C, lam, w)]
    for _ in range(4):
        B = naive.plain_B(scheme, X, D, B, C, lam, w, "default")
        values.append(naive.objective(scheme, X, D, B, C, lam, w))
        C = naive.plain_C(scheme, X, D, B, C, lam, w, "default")
        values.append(naive.objective(scheme, X, D, B, C, lam, w))
    slack = 1e-12 * (values[0] + float((X**2).sum()))
    assert max(np.diff(values)) <= slack


@given(method=st.sampled_from(METHODS), seed=st.integers(0, 2**31), partition=st.booleans())
@settings(max_examples=40, deadline=None)
def test_default_runs_never_rise(method: str, seed: int, partition: bool) -> None:
    X, D, B, C, w = problem(seed, partition)
    B, C = signs(naive.split(method)[1], B, C, seed % 1000)
    found = naive.run_default(method, X, D, B, C, 40, 0.3, w)
    assert max(np.diff(found["objectives"])) <= 1e-12 * (
        found["objectives"][0] + float((X**2).sum())
    )


def unrestarted(
    scheme: str, prefix: str, X: Array, D: Array, B: Array, C: Array, w: Array, lam: float
) -> int:
    """How many updates pass before an extrapolated one raises the objective (0: none of 200)."""
    tau, y = naive.TAU_START, (B, C)
    last = naive.objective(scheme, X, D, B, C, lam, w)
    for t in range(200):
        m = (tau - 1) / (tau + 1)
        y_B = naive.plain_B(scheme, X, D, B, C, lam, w, "default")
        B = naive.extrapolate(prefix, y_B, y[0], m, scheme != "DL") if t >= 10 else y_B
        y_C = naive.plain_C(scheme, X, D, B, C, lam, w, "default")
        C = naive.extrapolate(prefix, y_C, y[1], m, scheme != "DL") if t >= 10 else y_C
        s = naive.balance_scales(scheme, B, C, w)
        B, C, y = B * s, C / s[:, None], (y_B, y_C)
        value = naive.objective(scheme, X, D, B, C, lam, w)
        if t >= 10:
            tau = naive.next_tau(tau)
            if value > last + 1e-9 * last:
                return t
        last = value
    return 0


@pytest.mark.parametrize("method", ["E-DL", "E-PNNMF", "LE-PNNMF", "LE-SPNNMF"])
def test_restart_takes_the_plain_update_and_resets(method: str) -> None:
    X, D, B0, C0, w = problem(0)
    prefix, scheme = naive.split(method)
    B0, C0 = signs(scheme, B0, C0, 0)
    lam, nonneg = 0.3, scheme != "DL"
    t = unrestarted(scheme, prefix, X, D, B0, C0, w, lam)
    assert t > 10, "no candidate rises on this problem: it does not test the restart"
    old, new, after = (
        naive.run_default(method, X, D, B0, C0, n, lam, w) for n in (t, t + 1, t + 2)
    )
    B = naive.plain_B(scheme, X, D, old["B"], old["C"], lam, w, "default")
    C = naive.plain_C(scheme, X, D, B, old["C"], lam, w, "default")
    before = (B, C)  # remembered as they came, not balanced
    s = naive.balance_scales(scheme, B, C, w)
    B, C = B * s, C / s[:, None]
    np.testing.assert_array_equal(new["B"], B)
    np.testing.assert_array_equal(new["C"], C)
    m = (naive.TAU_START - 1) / (naive.TAU_START + 1)
    y = naive.plain_B(scheme, X, D, B, C, lam, w, "default")
    B1 = naive.extrapolate(prefix, y, before[0], m, nonneg)
    C1 = naive.extrapolate(
        prefix, naive.plain_C(scheme, X, D, B1, C, lam, w, "default"), before[1], m, nonneg
    )
    s = naive.balance_scales(scheme, B1, C1, w)
    assert naive.objective(scheme, X, D, B1 * s, C1 / s[:, None], lam, w) <= new["objectives"][-1]
    np.testing.assert_array_equal(after["B"], B1 * s)
    np.testing.assert_array_equal(after["C"], C1 / s[:, None])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rules", ["paper", "default"])
def test_shapes_and_records(method: str, rules: str) -> None:
    X, D, B, C, w = problem(3)
    B, C = signs(naive.split(method)[1], B, C, 3)
    lam = naive.penalty(method, X, D, "paper")
    n = 14
    if rules == "paper":
        found = naive.run_paper(method, X, D, B, C, n, lam)
        w = np.ones(N_K)
    else:
        found = naive.run_default(method, X, D, B, C, n, lam, w)
    scheme = naive.split(method)[1]
    assert found["B"].shape == (N_K, N_D)
    assert found["C"].shape == (N_D, N_S)
    assert len(found["errors"]) == len(found["objectives"]) == n + 1
    assert found["errors"][0] == naive.scheme_error(scheme, X, D, B, C)
    last = naive.error(X, D, found["B"], found["C"])
    np.testing.assert_allclose(found["errors"][-1], last, rtol=1e-10)
    value = naive.objective(scheme, X, D, found["B"], found["C"], lam, w)
    np.testing.assert_allclose(found["objectives"][-1], value, rtol=1e-12)


@pytest.mark.parametrize("prefix", ["E", "LE"])
def test_no_momentum_is_plain(prefix: str) -> None:
    rng = np.random.default_rng(4)
    y, before = rng.uniform(0, 1, (2, 5, 3))
    y[0], before[1] = 0.0, 0.0
    np.testing.assert_array_equal(naive.extrapolate(prefix, y, before, 0.0, True), y)
    assert not np.array_equal(naive.extrapolate(prefix, y, before, 0.3, True), y)


def test_log_extrapolation_is_bounded_and_keeps_zeros() -> None:
    y = np.array([[1e300, 1e-300, 2.0, 0.0, 4.0]])
    before = np.array([[1e-300, 1e300, 0.0, 1.0, 1.0]])
    got = naive.extrapolate("LE", y, before, 0.5, True)
    np.testing.assert_allclose(got, [[1e301, 1e-301, 2.0, 0.0, 8.0]], rtol=1e-14)


@pytest.mark.parametrize("method", EXTRAPOLATED)
@pytest.mark.parametrize("rules", ["paper", "default"])
def test_the_eleventh_update_is_the_first_extrapolated(method: str, rules: str) -> None:
    X, D, B, C, w = problem(5)
    scheme = naive.split(method)[1]
    B, C = signs(scheme, B, C, 5)

    def errors(name: str, n: int) -> list[float]:
        if rules == "paper":
            return naive.run_paper(name, X, D, B, C, n, 0.05)["errors"]
        return naive.run_default(name, X, D, B, C, n, 0.05, w)["errors"]

    assert errors(method, 10) == errors(scheme, 10)
    assert errors(method, 11)[-1] != errors(scheme, 11)[-1]


def test_paper_run_by_hand() -> None:
    """Twelve updates of E-PNNMF written out: two extrapolated, τ advancing between them, C always plain."""
    X, D, B, C, _ = problem(6)
    lam, L, K = 0.01, X.T @ D, D.T @ D
    ys: list[Array] = []
    weights = [0.0] * 10
    tau = (1 + np.sqrt(5)) / 2
    for _ in range(2):
        weights.append((tau - 1) / (tau + 1))
        tau = (1 + np.sqrt(1 + 4 * tau**2)) / 2
    B0, C0 = B, C
    for m in weights:
        ys.append(B * np.maximum(L.T @ C.T - lam * B, 0) / (K @ B @ C @ C.T))
        B = ys[-1] if m == 0 else np.maximum(ys[-1] + m * (ys[-1] - ys[-2]), 0)
        C = C * np.maximum(B.T @ L.T - lam * C, 0) / (B.T @ K @ B @ C)
    found = naive.run_paper("E-PNNMF", X, D, B0, C0, 12, lam)
    np.testing.assert_allclose(found["B"], B, rtol=1e-9)
    np.testing.assert_allclose(found["C"], C, rtol=1e-9)


def test_projective_loop_is_the_papers_formula() -> None:
    X, D, B, _, _ = problem(7)
    K, M = D.T @ D, D.T @ X @ X.T @ D
    B = B / np.linalg.norm(X.T @ D)
    found = naive.run_paper("PPNMF", X, D, B, None, 25, 0.0)
    for _ in range(25):
        B = B * (0.5 + (M @ B) / ((K @ B @ B.T @ M + M @ B @ B.T @ K) @ B))
    np.testing.assert_allclose(found["B"], B, rtol=1e-9)
    np.testing.assert_allclose(found["C"], B.T @ D.T @ X, rtol=1e-9)
    E = (X**2).sum() - 2 * np.trace(B.T @ M @ B) + np.trace(B.T @ K @ B @ B.T @ M @ B)
    np.testing.assert_allclose(found["errors"][-1], E, rtol=1e-9)


@pytest.mark.parametrize("scheme", TWO_FACTOR)
def test_balance_keeps_the_product_and_is_the_cheapest(scheme: str) -> None:
    X, D, B, C, w = problem(8)
    B, C = signs(scheme, B, C, 8)
    B[:, 1] = 0.0  # nothing to balance: s must be 1
    s = naive.balance_scales(scheme, B, C, w)
    assert s[1] == 1.0
    B1, C1 = B * s, C / s[:, None]
    np.testing.assert_allclose(B1 @ C1, B @ C, rtol=1e-12, atol=1e-15)
    best = naive.objective(scheme, X, D, B1, C1, 1.0, w)
    for factor in (0.9, 1.0 / s[0], 1.1):
        t = np.array([factor, 1.0, 1.0])
        assert naive.objective(scheme, X, D, B1 * t, C1 / t[:, None], 1.0, w) > best


@pytest.mark.parametrize("rules", ["paper", "default"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_empty_region_and_lost_component_stay_finite(scheme: str, rules: str) -> None:
    X, D, B, C, w = problem(9, partition=True)
    B, C = signs(scheme, B, C, 9)
    X[:4] = 0.0  # a masked face
    B[2], B[:, 1], C[1] = 0.0, 0.0, 0.0
    B1 = naive.plain_B(scheme, X, D, B, C, 0.1, w, rules)
    C1 = naive.plain_C(scheme, X, D, B1, C, 0.1, w, rules)
    assert np.isfinite(B1).all()
    assert np.isfinite(C1).all()
    if scheme in ("PNNMF", "SPNNMF"):
        np.testing.assert_array_equal(B1[0], 0.0)  # nothing measured there
        np.testing.assert_array_equal(B1[2], 0.0)


def test_sigma_bound() -> None:
    A = np.random.default_rng(10).normal(size=(5, 8)) * 1e100
    top = float(np.linalg.eigvalsh(A @ A.T)[-1])
    assert top <= naive.sigma_bound(A @ A.T) * (1 + 1e-12)
    assert naive.sigma_bound(A @ A.T) <= top * 5 ** (1 / 16)
    assert naive.sigma_bound(np.zeros((3, 3))) == 0.0


def test_local_errors() -> None:
    X, D, B, C, _ = problem(11, partition=True)
    face = np.repeat(np.arange(N_K), N_SITES // N_K)
    r = naive.local_residual(X, face, B, C, D, N_K)
    e = naive.local_error_projected(X, D, B, C)
    assert r.shape == e.shape == (N_K,)
    np.testing.assert_allclose(r.sum(), naive.error(X, D, B, C), rtol=1e-12)
    L, K = X.T @ D, D.T @ D
    np.testing.assert_allclose(e, ((L.T - K @ B @ C) ** 2).sum(axis=1), rtol=1e-10)
    own = np.array([(X[face == k] ** 2).sum() for k in range(N_K)])
    eq13 = own - (L**2).sum(axis=0) / np.diag(K) + e / np.diag(K)
    np.testing.assert_allclose(r, eq13, rtol=1e-10)


@pytest.mark.parametrize("scheme", TWO_FACTOR)
def test_lift_meets_the_optimality_conditions(scheme: str) -> None:
    X, _, _, C, _ = problem(12)
    X[:5] -= 1.5  # so that some signs and zeros differ
    w_site = np.linspace(0.1, 2.0, N_SITES)
    lam = 1.5
    W = naive.lift(scheme, X, C, lam, w_site)
    assert W.shape == (N_SITES, N_D)
    if scheme == "DL":
        slope = (W @ C - X) @ C.T
        at = W != 0
        pull = lam * w_site[:, None] * np.sign(W)
        np.testing.assert_allclose((slope + pull)[at], 0.0, atol=1e-9)
        assert (np.abs(slope) <= lam * w_site[:, None] + 1e-9).all()
        assert at.any()
        assert not at.all()
        return
    slope = naive.gradient_B(scheme, X, np.eye(N_SITES), W, C, lam, w_site)
    assert (W >= 0).all()
    assert (slope[W == 0] >= -1e-9).all()
    np.testing.assert_allclose(slope[W > 0], 0.0, atol=1e-9)
    assert (W == 0).any()
    assert (W > 0).any()


def test_scalar_weight_of_a_site() -> None:
    X, _, _, C, _ = problem(13)
    one = naive.lift("SPNNMF", X, C, 0.5, 20 / N_SITES)
    each = naive.lift("SPNNMF", X, C, 0.5, np.full(N_SITES, 20 / N_SITES))
    np.testing.assert_array_equal(one, each)


def test_transform() -> None:
    X, _, _, _, _ = problem(14)
    W = np.random.default_rng(14).uniform(0, 1, (N_SITES, N_D))
    lam = 2.0
    c = naive.transform("SPNNMF", W, X, lam)
    # moving y by the shift v with Wᵀv = λ1 turns the L1 problem into ordinary non-negative least squares
    shift = lam * np.linalg.pinv(W.T) @ np.ones(N_D)
    for i in range(N_S):
        np.testing.assert_allclose(c[:, i], nnls(W, X[:, i] - shift)[0], atol=1e-9)
    ridge = naive.transform("PNNMF", W, X, lam)
    slope = (W.T @ W + lam * np.eye(N_D)) @ ridge - W.T @ X
    assert (slope >= -1e-9).all()
    np.testing.assert_allclose(slope * ridge, 0.0, atol=1e-8)
    np.testing.assert_array_equal(naive.transform("PPNMF", W, X, lam), W.T @ X)
    free = naive.transform("DL", W, X, 0.0)
    np.testing.assert_allclose(free, np.linalg.lstsq(W, X, rcond=None)[0], atol=1e-9)


def test_penalties() -> None:
    X, D, _, _, _ = problem(15)
    root = D[:, :2]
    assert naive.penalty("E-DL", X, D, "paper") == 5.0
    Y = X * 2.7 / np.sqrt((X**2).mean())
    assert naive.penalty("LE-SPNNMF", Y, D, "default") == pytest.approx(0.5, rel=1e-14)
    assert naive.penalty("LE-SPNNMF", 4 * Y, D, "default") == pytest.approx(4.0, rel=1e-14)
    assert naive.penalty("PPNMF", X, D, "default") == 0.0
    assert naive.penalty("PNNMF", X, D, "paper") == 1 / np.linalg.norm(X.T @ D)
    assert naive.penalty("PNNMF", Y, D, "default", root) == pytest.approx(
        1 / np.linalg.norm(Y.T @ root), rel=1e-14
    )
    assert naive.penalty("PNNMF", 4 * Y, D, "default", root) == pytest.approx(
        4 / np.linalg.norm(Y.T @ root), rel=1e-14
    )
    with pytest.raises(ValueError, match="root_D is None"):
        naive.penalty("PNNMF", X, D, "default")


@pytest.mark.parametrize("name", ["LE-DL", "NMF", "E-", ""])
def test_unknown_methods(name: str) -> None:
    assert len(set(METHODS)) == 11
    with pytest.raises(ValueError, match="should be one of"):
        naive.split(name)
