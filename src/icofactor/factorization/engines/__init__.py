"""Where the loop runs: the generic functions on NumPy, compiled for the CPU, or JAX on whatever it
finds.

An engine is a function with the signature `Iterate`. This package is the only place that names
numba or jax. Which engines can run a scheme is declared by the scheme (`Scheme.kernel`,
`Scheme.jax`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from icofactor.checks import OneOf, check_value
from icofactor.errors import ArgumentError
from icofactor.factorization._solve import Course, Run, iterate_in_groups
from icofactor.factorization.methods import Method
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.update import State

ENGINES = ("auto", "numpy", "cpu", "jax")

WORTH_COMPILING = 5e10
"""Number of operations that take the generic functions about as long as compiling takes, some five
seconds. What
"auto" does must not depend on what is compiled already: the same seed gives the same bits.
"""
USUAL_UPDATES = 5
"""Updates until `tol` ends a run, roughly, as a multiple of the first at which it may."""
STEPPED = 1000
"""Coordinate descent walks through components one by one, which makes the generic functions this
much slower.
"""
WORTH_A_GPU = 2e11
"""Number of operations above which compiling for a GPU pays off (it takes a few seconds)."""

_GPU_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin", "jax_rocm7_plugin", "jax_rocm60_plugin")


Iterate = Callable[[Problem, Method, State, Course], Run]
"""The loop, as every engine has it; `_solve.iterate` is the definition."""


@dataclass(frozen=True)
class Engine:
    """A loop and why it was chosen."""

    name: str
    iterate: Iterate
    reason: str
    batch_bytes: Callable[[], int] | None = None
    """Memory that the factors of one batch may take, where the engine knows it."""


def check_engine(engine: str) -> None:
    """Refuse what is not an engine, before any work."""
    check_value("engine", engine, OneOf(ENGINES))
    if engine == "jax" and find_spec("jax") is None:
        raise ArgumentError(
            "engine",
            None,
            "{engine='jax'} needs jax, which is not installed: pip install 'icofactor[jax]'",
        )


def choose_engine(
    engine: str, p: Problem, method: Method, n_components: int, n_updates: int
) -> Engine:
    """The engine for `n_updates` updates (of all starts together); "auto" goes by what is there and
    by the work.
    """
    scheme = method.scheme
    work = work_of(p, method, n_components, n_updates)
    if engine == "jax" and not scheme.sweeps:
        return _jax(method, "asked for")
    if engine == "jax":
        return _cpu(p, method, "coordinate descent goes step by step, which suits a processor")
    if engine == "cpu":
        return _cpu(p, method, "asked for")
    if engine == "auto" and work >= WORTH_A_GPU and scheme.jax and not scheme.sweeps and has_gpu():
        return _jax(method, f"jax finds a GPU and the work is large ({work:.0e} operations)")
    if engine == "auto" and worth_compiling(work):
        return _cpu(p, method, f"the work is large ({work:.0e} operations)")
    return _numpy(
        "asked for" if engine == "numpy" else f"the work is small ({work:.0e} operations)",
    )


def likely_updates(method: Method, n_starts: int, n_iter: int, tol: float) -> int:
    """How many updates all starts make together, roughly."""
    most = method.scheme.n_finished or n_starts
    return min(n_starts, most) * (
        min(n_iter, USUAL_UPDATES * method.scheme.first_look) if tol > 0 else n_iter
    )


def work_of(p: Problem, method: Method, n_components: int, n_updates: float) -> float:
    """Operations of `n_updates` updates, or as many as take the generic functions as long."""
    return n_updates * operations(p, n_components) * (STEPPED if method.scheme.sweeps else 1)


def worth_compiling(work: float) -> bool:
    """Whether "auto" takes the compiled kernels for so much work."""
    return work >= WORTH_COMPILING


def operations(p: Problem, n_components: int) -> float:
    """Floating-point operations of one update, as the code makes them, with a dense K unless it is
    diagonal.
    """
    n_s, n_k = p.L.shape
    n_d = n_components
    times_K = 2 * n_k * n_d if p.K.ndim == 1 else 2 * n_k * n_k * n_d
    return 4 * n_s * n_k * n_d + 4 * n_s * n_d**2 + 4 * n_k * n_d**2 + 2 * times_K


def _numpy(reason: str) -> Engine:
    return Engine("numpy", iterate_in_groups, reason)


def _cpu(p: Problem, method: Method, reason: str) -> Engine:
    from icofactor.factorization.engines import cpu

    if not cpu.available():
        if reason == "asked for":
            what = "engine='cpu' needs numba, which is not installed or is switched off (NUMBA_DISABLE_JIT)"
            warnings.warn(f"{what}; NumPy is used", UserWarning, stacklevel=4)
        return _numpy("numba is not installed, or is switched off")
    if not cpu.can_run(p, method):
        return _numpy(
            "the compiled kernels cannot solve this problem (sparse K, another library, or a scheme without a kernel)",
        )
    return Engine("cpu", cpu.iterate, reason)


def has_gpu() -> bool:
    """Whether jax computes on an accelerator; jax is imported only where a plugin for one is
    installed.
    """
    if find_spec("jax") is None or not any(map(find_spec, _GPU_PLUGINS)):
        return False
    from icofactor.factorization.engines import jax as jax_engine

    return jax_engine.has_accelerator()


def _jax(method: Method, reason: str) -> Engine:
    if not method.scheme.jax:
        return _numpy(f"{method.name} is written for NumPy only")
    from icofactor.factorization.engines import jax as jax_engine

    return Engine("jax", jax_engine.iterate, reason, jax_engine.batch_bytes)
