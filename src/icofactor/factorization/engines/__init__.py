"""Where the loop runs: the generic functions on NumPy, compiled for the CPU, or on JAX.

An engine is a function with the signature `Iterate`. This package is the only place that names
numba or jax. Which engines can run a scheme is declared by the scheme (`Scheme.kernel`,
`Scheme.jax`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from icofactor.checks import OneOf, check_value
from icofactor.errors import ArgumentError
from icofactor.factorization._solve import Course, Run, iterate
from icofactor.factorization.methods import Method
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.update import State

ENGINES = ("auto", "numpy", "cpu", "jax")
# Number of operations that take the generic functions about as long as compiling takes. What "auto"
# does must not depend on what is compiled already: the same seed gives the same bits.
WORTH_COMPILING = 5e10
# Number of operations above which compiling for a GPU pays off.
WORTH_A_GPU = 2e11
# Updates until `tol` ends a run, roughly, as a multiple of the first at which it may.
USUAL_UPDATES = 5
# Coordinate descent walks through components one by one, which makes the generic functions this
# much slower.
STEPPED = 1000
GPU_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin", "jax_rocm7_plugin")

# The loop, as every engine has it; `_solve.iterate` is the definition.
Iterate = Callable[[Problem, Method, State, Course], Run]


@dataclass(frozen=True)
class Engine:
    """A loop, and how much memory the factors of one batch may take, if the engine knows it."""

    name: str
    iterate: Iterate
    batch_bytes: Callable[[], int] | None = None


NUMPY = Engine("numpy", iterate)


def check_engine(engine: str) -> None:
    """Refuse what is not an engine, before any work."""
    check_value("engine", engine, OneOf(ENGINES))
    if engine == "jax" and find_spec("jax") is None:
        message = "jax is not installed; run pip install 'icofactor[jax]'"
        raise ArgumentError("engine", message)


def choose_engine(
    engine: str,
    p: Problem,
    method: Method,
    n_components: int,
    n_updates: int,
) -> Engine:
    """Return the engine for so many updates, of all starts together.

    "auto" goes by what is there and by the work.
    """
    scheme = method.scheme
    # Coordinate descent goes step by step, which suits a processor.
    has_jax = scheme.jax and not scheme.sweeps
    work = work_of(p, method, n_components, n_updates)
    if engine == "auto":
        engine = "cpu" if worth_compiling(work) else "numpy"
        if has_jax and work >= WORTH_A_GPU and has_gpu():
            engine = "jax"
    elif engine == "jax" and not has_jax:
        engine = "cpu" if scheme.sweeps else "numpy"
    elif engine == "cpu" and not has_numba():
        reason = "which is not installed or is switched off (NUMBA_DISABLE_JIT)"
        message = f"engine='cpu' needs numba, {reason}"
        warnings.warn(f"{message}; NumPy is used", UserWarning, stacklevel=3)
    if engine == "jax":
        from icofactor.factorization.engines import jax

        return Engine("jax", jax.iterate, jax.batch_bytes)
    if engine == "cpu" and has_numba() and has_kernel(p, method):
        from icofactor.factorization.engines import cpu

        return Engine("cpu", cpu.iterate)
    return NUMPY


def has_numba() -> bool:
    """Whether numba is installed, and not switched off by NUMBA_DISABLE_JIT."""
    if find_spec("numba") is None:
        return False
    from numba import config

    return not config.DISABLE_JIT


def has_kernel(p: Problem, method: Method) -> bool:
    """Whether the kernels solve a problem: NumPy arrays, dense or diagonal K, and their scheme."""
    if not isinstance(p.L, np.ndarray) or not isinstance(p.K, np.ndarray):
        return False
    if method.extrapolation is not None and method.extrapolation.kernel is None:
        return False
    return method.scheme.kernel_for(p) is not None


def has_gpu() -> bool:
    """Whether jax computes on an accelerator; it is imported only if there is a plugin for one."""
    if find_spec("jax") is None or not any(map(find_spec, GPU_PLUGINS)):
        return False
    from icofactor.factorization.engines import jax

    return jax.has_accelerator()


def likely_updates(
    method: Method,
    n_starts: int,
    n_iter: int,
    tol: float,
) -> int:
    """Return how many updates all starts make together, roughly."""
    if tol > 0:
        n_iter = min(n_iter, USUAL_UPDATES * method.scheme.first_look)
    return n_iter * min(n_starts, method.scheme.n_finished or n_starts)


def work_of(
    p: Problem,
    method: Method,
    n_components: int,
    n_updates: float,
) -> float:
    """Return the operations of so many updates, or as many as take the generic code as long."""
    n_subjects, n_columns = p.L.shape
    if p.K.ndim == 1:
        times_K = 2 * n_columns * n_components
    else:
        times_K = 2 * n_columns**2 * n_components
    products_with_L = 4 * n_subjects * n_columns * n_components
    products_with_grams = 4 * (n_subjects + n_columns) * n_components**2
    work = n_updates * (products_with_L + products_with_grams + 2 * times_K)
    return work * STEPPED if method.scheme.sweeps else work


def worth_compiling(work: float) -> bool:
    """Whether "auto" takes the compiled kernels for so much work."""
    return work >= WORTH_COMPILING
