"""The same functions on arrays of other libraries give NumPy's answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from helpers.problems import ALL_METHODS, METHODS_AND_RULES, drawn_start, relative, small
from icofactor.factorization._multistart import multistart
from icofactor.factorization._refine import Refinement, refine
from icofactor.factorization._solve import solve
from icofactor.factorization.arrays import asarray_like, namespace, once, ratio, to_numpy
from icofactor.factorization.methods import METHODS
from icofactor.factorization.statistics import Data, Statistics

pytestmark = pytest.mark.slow


def updates(method: str) -> int:
    """Ten plain updates and twenty extrapolated ones; one of coordinate descent is several sweeps."""
    return 6 if METHODS[method].scheme.sweeps else 30


@dataclass(frozen=True)
class Library:
    """An array library: how NumPy arrays become its own."""

    name: str
    asarray: Callable[[np.ndarray], Any]

    def moved(self, stats: Statistics) -> Statistics:
        """Statistics that make the loop run in this library."""
        return replace(stats, L=self.asarray(stats.L))


def _jax() -> tuple[Library, AbstractContextManager[Any]]:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    import jax.numpy as jnp

    if hasattr(jax, "enable_x64"):
        return Library("jax", jnp.asarray), jax.enable_x64(True)
    from jax.experimental import enable_x64  # where it was before

    return Library("jax", jnp.asarray), enable_x64(True)


def _torch() -> tuple[Library, None]:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return Library("torch", torch.asarray), None


def _torch_cuda() -> tuple[Library, None]:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    return Library("torch", lambda x: torch.asarray(x, device="cuda")), None


def _cupy() -> tuple[Library, None]:
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    if not cupy.cuda.is_available():
        pytest.skip("cupy finds no GPU")
    return Library("cupy", cupy.asarray), None


@pytest.fixture(scope="module", autouse=True)
def quickly_compiled() -> Iterator[None]:
    """JAX compiles every operation for every shape, here for a handful of calls."""
    if find_spec("jax") is None:
        yield
        return
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(params=[_jax, _torch, _torch_cuda, _cupy], ids=["jax", "torch", "torch-cuda", "cupy"])
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    found, context = request.param()
    if context is None:
        yield found
    else:
        with context:  # float64 for these tests only
            yield found


def assert_same(found: Any, expected: np.ndarray, like: Any) -> None:
    assert type(found) is type(like), "the answer stays in the library it was computed in"
    assert relative(to_numpy(found), expected) < 1e-9


@pytest.mark.parametrize("kind", ["partition", "exponential"])
@pytest.mark.parametrize(("method", "rules"), METHODS_AND_RULES)
def test_solve(method: str, rules: str, kind: str, library: Library) -> None:
    stats = small(kind).stats
    start, n_iter = drawn_start(stats, method, 3, rules, 1), updates(method)
    expected = solve(stats, method, start=start, n_iter=n_iter, rules=rules)
    there = library.moved(stats)
    found = solve(there, method, start=tuple(map(library.asarray, start)), n_iter=n_iter, rules=rules)
    assert_same(found.B, expected.B, there.L)
    assert_same(found.C, expected.C, there.L)
    np.testing.assert_allclose(found.objective, expected.objective, rtol=1e-9)
    np.testing.assert_allclose(found.errors, expected.errors, rtol=1e-9)
    assert isinstance(found.objective, np.ndarray) and isinstance(found.error, float)


@pytest.mark.parametrize("method", ALL_METHODS)
def test_multistart(method: str, library: Library) -> None:
    """Starts are drawn in NumPy, so that they are the same everywhere; halving ends them one by one."""
    stats = small().stats
    halving = method in ("LE-PNNMF", "PPNMF")  # batches of three sizes
    given: dict[str, Any] = {"n_starts": 4, "n_iter": updates(method), "random_state": 0, "halving": halving}
    expected = multistart(stats, method, 3, **given)
    there = library.moved(stats)
    found = multistart(there, method, 3, **given)
    np.testing.assert_allclose(found.objectives, expected.objectives, rtol=1e-9)
    np.testing.assert_array_equal(found.start_n_iter, expected.start_n_iter)
    assert found.best_start == expected.best_start
    assert_same(found.B, expected.B, there.L)


@pytest.mark.parametrize("method", ["E-DL", "LE-PNNMF", "LE-PPNMF"])
def test_refine(method: str, library: Library) -> None:
    problem = small()
    data, schedule = Data(problem.X, problem.design.sites), Refinement(2, 3, 5)
    run = lambda stats: refine(
        data, problem.design, stats, solve(stats, method, 3, n_iter=20, random_state=0), schedule
    )
    expected, found = run(problem.stats), run(library.moved(problem.stats))
    np.testing.assert_array_equal(found.design.faces, expected.design.faces)
    np.testing.assert_allclose(found.solution.objective, expected.solution.objective, rtol=1e-9)
    assert relative(to_numpy(found.solution.B), expected.solution.B) < 1e-9


def test_array_helpers(library: Library) -> None:
    x = np.array([[0.0, 1.0], [2.0, 4.0]])
    there = library.asarray(x)
    assert namespace(there) is not np
    np.testing.assert_array_equal(to_numpy(there), x)
    np.testing.assert_array_equal(to_numpy(asarray_like([1, 2], there)), [1.0, 2.0])
    assert to_numpy(asarray_like([1, 2], there)).dtype == np.float64
    zero = library.asarray(np.array([[0.0, 2.0], [0.0, 8.0]]))
    np.testing.assert_array_equal(to_numpy(ratio(library.asarray(x * [[0.0, 1.0]]), zero)), [[0.0, 0.5], [0.0, 0.5]])


def test_arrays_of_no_library() -> None:
    with pytest.raises(TypeError, match="expected an array of numpy, jax, torch or cupy; found list"):
        namespace([1.0])


def test_what_jax_computes_once_is_the_same() -> None:
    jax = pytest.importorskip("jax")
    x = np.linspace(0.1, 2.0, 12).reshape(3, 4)
    assert once(x) is x
    kept = jax.jit(lambda y: once(y**0.3) + 1)
    assert np.allclose(kept(x), x**0.3 + 1, rtol=1e-6)
    assert "optimization_barrier" in str(jax.make_jaxpr(kept)(x))
