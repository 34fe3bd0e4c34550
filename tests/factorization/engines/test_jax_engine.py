"""The JAX engine gives NumPy's answers, and leaves JAX as the user has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("jax", reason="jax is not installed")

from helpers.problems import masked_sites, positive_data, relative, small
from helpers.refusals import refused
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.factorization import engines
from icofactor.factorization._refine import Refinement
from icofactor.factorization._solve import Course, Run, iterate
from icofactor.factorization.design import Design
from icofactor.factorization.engines import check_engine, choose_engine
from icofactor.factorization.engines import jax as jax_engine
from icofactor.factorization.methods import METHODS, PAPER_METHODS
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.statistics import Statistics
from icofactor.factorization.update import State, begin

pytestmark = pytest.mark.slow

N_STARTS = 4
WHOLE = Course(50)
"""Two whole stretches: each length of a stretch is compiled anew. Others have a rest, as 45 does."""
CASES = [(name, "default") for name in PAPER_METHODS] + [
    (name, "paper") for name in ("E-DL", "LE-PNNMF", "PPNMF")
]


def posed(
    name: str,
    rules: str = "default",
    kind: str = "partition",
    n_starts: int = N_STARTS,
    penalty: str | float = "paper",
) -> tuple[Problem, State]:
    method = METHODS[name]
    p = Problem.of(small(kind).stats, method.scheme, rules, penalty)
    B, C = draw_starts(p, method, 2, seeds_of(0), range(n_starts))
    return p, begin(p, method.scheme, B, C)


def assert_same(run: Run, expected: Run, tolerance: float = 1e-9) -> None:
    for name in ("n_iter", "converged", "diverged"):
        np.testing.assert_array_equal(getattr(run, name), getattr(expected, name))
    np.testing.assert_allclose(run.objectives, expected.objectives, rtol=tolerance)
    np.testing.assert_allclose(run.errors, expected.errors, rtol=tolerance)
    for name in ("B", "C", "error", "objective", "tau"):
        value = getattr(run.state, name)
        assert type(value) is np.ndarray and value.dtype == np.float64
        assert relative(value, getattr(expected.state, name)) < tolerance, name
    assert run.state.age == expected.state.age


# ---------------------------------------------------------------- the same answers


@pytest.mark.parametrize(("name", "rules"), CASES)
def test_every_method_equals_numpy(name: str, rules: str) -> None:
    p, state = posed(name, rules)
    assert_same(
        jax_engine.iterate(p, METHODS[name], state, WHOLE), iterate(p, METHODS[name], state, WHOLE)
    )


@pytest.mark.parametrize("name", ["E-DL", "LE-SPNNMF", "E-PPNMF"])
def test_restarts_equal_numpy(name: str) -> None:
    """Runs that fall back to the plain update, each at its own time, lag behind the others and catch up."""
    p, state = posed(name)
    expected = iterate(p, METHODS[name], state, Course(150))
    assert_same(jax_engine.iterate(p, METHODS[name], state, Course(150)), expected)
    assert len(np.unique(expected.state.tau)) > 1, "no run restarted; the test shows nothing"


def test_overlapping_columns_and_a_run_that_goes_on() -> None:
    """A dense K; and a state with momentum, as a first call leaves it."""
    method = METHODS["LE-PNNMF"]
    p, state = posed("LE-PNNMF", kind="exponential")
    half = jax_engine.iterate(p, method, state, Course(20))
    assert_same(
        jax_engine.iterate(p, method, half.state, Course(20)),
        iterate(p, method, half.state, Course(20)),
    )
    uninterrupted = iterate(p, method, state, Course(40))
    assert (
        relative(
            jax_engine.iterate(p, method, half.state, Course(20)).state.B, uninterrupted.state.B
        )
        < 1e-9
    )


@pytest.mark.parametrize(("name", "rules"), [("LE-PNNMF", "paper"), ("LE-PPNMF", "default")])
def test_the_form_for_accelerators_equals_numpy(
    name: str, rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several ticks written out one after the other, as on a GPU."""
    monkeypatch.setattr(jax_engine, "has_accelerator", lambda: True)
    p, state = posed(name, rules)
    assert_same(
        jax_engine.iterate(p, METHODS[name], state, Course(45)),
        iterate(p, METHODS[name], state, Course(45)),
    )


def test_a_sparse_K() -> None:
    sites = masked_sites()
    stats = Statistics.from_data(
        positive_data(sites.coordinates, 12), Design(sites, "smooth", level=1, sigma=0.05)
    )
    method = METHODS["LE-SPNNMF"]
    p = Problem.of(stats, method.scheme)
    assert sp.issparse(p.K)
    B, C = draw_starts(p, method, 2, seeds_of(0), range(N_STARTS))
    state = begin(p, method.scheme, B, C)
    assert_same(
        jax_engine.iterate(p, method, state, Course(20)), iterate(p, method, state, Course(20))
    )


def test_a_run_that_diverges_ends_and_the_others_go_on() -> None:
    method = METHODS["DL"]
    p, state = posed("DL", "paper")
    state = begin(
        p, method.scheme, state.B * np.array([1.0, 1e6, 1.0, 1e6])[:, None, None], state.C
    )
    run, expected = (
        jax_engine.iterate(p, method, state, Course(45)),
        iterate(p, method, state, Course(45)),
    )
    np.testing.assert_array_equal(run.diverged, [False, True, False, True])
    np.testing.assert_array_equal(run.n_iter, expected.n_iter)
    np.testing.assert_allclose(run.objectives[[0, 2]], expected.objectives[[0, 2]], rtol=1e-9)


# ---------------------------------------------------------------- ends


def test_tol_and_halving_end_each_run_at_its_own_update() -> None:
    # The smaller the penalty, the more do differences in rounding grow on the way.
    penalty = 1 / float(np.linalg.norm(small().stats.root_L))
    for name, tol, n_ends in (("PNNMF", 1e-6, 6), ("LE-PNNMF", 1e-8, 2)):
        p, state = posed(name, n_starts=6, penalty=penalty)
        expected = iterate(p, METHODS[name], state, Course(200, tol=tol))
        assert expected.converged.any() and len(np.unique(expected.n_iter)) == n_ends
        assert_same(jax_engine.iterate(p, METHODS[name], state, Course(200, tol=tol)), expected)
    p, state = posed("E-PNNMF", n_starts=7)
    course = Course(45, halve_at={10, 20})
    run = jax_engine.iterate(p, METHODS["E-PNNMF"], state, course)
    assert_same(run, iterate(p, METHODS["E-PNNMF"], state, course))
    assert sorted(run.n_iter) == [10] * 4 + [20] * 2 + [45]


def test_the_estimator_takes_it() -> None:
    sites = masked_sites()
    X = positive_data(sites.coordinates, 12).T
    # the method it was made for: coordinate descent creeps along a flat valley here and amplifies rounding
    settings: dict[str, Any] = {
        "mesh": sites,
        "method": "LE-PNNMF",
        "level": 0,
        "n_starts": 2,
        "n_iter": 30,
        "tol": 0.0,
    }
    fit = lambda engine: CorticalFactorization(
        2, refinement=Refinement(1, 2, 6), engine=engine, **settings
    ).fit(X)
    model, expected = fit("jax"), fit("numpy")
    assert model.starts_.engine == "jax"
    assert relative(model.components_, expected.components_) < 1e-8


# ---------------------------------------------------------------- manners


def test_jax_stays_as_the_user_has_it() -> None:
    import jax
    import jax.numpy as jnp

    settings = lambda: (
        jax.config.jax_enable_x64,
        jax.config.jax_default_matmul_precision,
        jnp.ones(2).dtype,
    )
    before = settings()
    p, state = posed("PNNMF")
    jax_engine.iterate(p, METHODS["PNNMF"], state, WHOLE)
    assert settings() == before and before[2] == np.float32


def test_auto_goes_by_the_gpu_and_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    p, _ = posed("PNNMF")
    monkeypatch.setattr(engines, "has_gpu", lambda: True)
    large = choose_engine("auto", p, METHODS["PNNMF"], 2, 10**9)
    assert large.name == "jax"
    assert choose_engine("auto", p, METHODS["PNNMF"], 2, 10).name == "numpy"
    assert choose_engine("auto", p, METHODS["CD-PNNMF"], 2, 10**9).name != "jax", (
        "it compiles for a minute"
    )
    monkeypatch.setattr(engines, "has_gpu", lambda: False)
    assert choose_engine("auto", p, METHODS["PNNMF"], 2, 10**9).name != "jax"
    assert choose_engine("jax", p, METHODS["PNNMF"], 2, 1).name == "jax"


def test_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda name: None if name == "jax" else object())
    with refused("engine"):
        check_engine("jax")
    check_engine("auto")
    assert not engines.has_gpu()
