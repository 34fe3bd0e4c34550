"""The paper's claims on real data: E- and LE- need fewer updates, LE- ends no higher and locks fewer zeros."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.problems import run_starts
from icofactor.factorization.extrapolation import (
    PLAIN_UPDATES,
    TAU_START,
    logarithmic,
    momentum,
    nesterov,
    next_tau,
)
from icofactor.factorization.statistics import Statistics
from reference import naive

N_D, N_STARTS, N_ITER = 10, 10, 1000
FASTER = [
    ("PNNMF", "paper"),
    ("SPNNMF", "paper"),
    ("PPNMF", "paper"),
    ("PNNMF", "default"),
    ("SPNNMF", "default"),
    ("PPNMF", "default"),
    ("DL", "default"),
]


def median_errors(stats: Statistics, method: str, rules: str) -> np.ndarray:
    """E after each update, median over the starts."""
    run = run_starts(stats, method, N_D, N_STARTS, N_ITER, rules)
    assert not run.diverged.any()
    return np.median(run.errors, axis=0)


@pytest.mark.parametrize(("scheme", "rules"), FASTER)
def test_extrapolation_halves_the_updates(scheme: str, rules: str, real_20: Statistics) -> None:
    plain = median_errors(real_20, scheme, rules)
    ended = {}
    for prefix in ("E-",) if scheme == "DL" else ("E-", "LE-"):
        errors = median_errors(real_20, prefix + scheme, rules)
        reached = np.flatnonzero(errors <= plain[-1])
        assert len(reached) and reached[0] < N_ITER / 2, (
            f"{prefix}{scheme} needed {reached[:1]} updates"
        )
        np.testing.assert_allclose(
            errors[: PLAIN_UPDATES + 1], plain[: PLAIN_UPDATES + 1], rtol=1e-12
        )
        ended[prefix] = errors[-1]
    if "LE-" in ended:
        assert ended["LE-"] <= ended["E-"] * (1 + 1e-4)


def test_balance_makes_the_default_rules_faster_than_the_papers(real_20: Statistics) -> None:
    paper, default = (median_errors(real_20, "LE-PNNMF", rules) for rules in ("paper", "default"))
    for update in (50, 100, 200, 500):
        assert default[update] < paper[update]


@pytest.mark.parametrize("scheme", ["PNNMF", "SPNNMF", "PPNMF"])
def test_logarithms_lock_no_zeros(scheme: str, real_20: Statistics) -> None:
    zeros = {
        p: (run_starts(real_20, p + scheme, N_D, 5, 500, "paper").state.B == 0).sum()
        for p in ("", "E-", "LE-")
    }
    assert zeros["E-"] > 0
    assert zeros["LE-"] == zeros[""] == 0


# ---------------------------------------------------------------- the rules themselves


def test_momentum_follows_the_reference() -> None:
    tau, expected = TAU_START, naive.TAU_START
    for _ in range(50):
        assert tau == expected
        assert 0 < momentum(tau) < 1
        tau, expected = next_tau(tau), naive.next_tau(expected)
    assert momentum(tau) > 0.9


def test_extrapolations_follow_the_reference() -> None:
    rng = np.random.default_rng(0)
    y, before = (rng.random((30, 4)) * (rng.random((30, 4)) < 0.8) for _ in range(2))
    y[0, 0], before[0, 0] = 1.0, 1e-12  # growth beyond 10 and under 0.1 is limited
    y[0, 1], before[0, 1] = 1e-12, 1.0
    for w in (0.2, 0.9):
        np.testing.assert_allclose(
            logarithmic(y, before, w, False), naive.extrapolate("LE", y, before, w, True)
        )
        np.testing.assert_array_equal(
            nesterov(y, before, w, False), naive.extrapolate("E", y, before, w, True)
        )
        np.testing.assert_array_equal(
            nesterov(y, before, w, True), naive.extrapolate("E", y, before, w, False)
        )
    extrapolated = logarithmic(y, before, 0.9, False)
    assert extrapolated[0, 0] == 10.0 and extrapolated[0, 1] == pytest.approx(1e-13)
    unknown = before == 0
    np.testing.assert_array_equal(extrapolated[unknown], y[unknown])
