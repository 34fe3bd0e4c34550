"""Where the loop runs: the generic functions on NumPy, or compiled kernels on the CPU.

An engine is a function with the signature of `solver.iterate`. This package is the only place that names numba.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

from icofactor import solver
from icofactor.methods import Method
from icofactor.schemes import Problem
from icofactor.solver import Run

ENGINES = ("auto", "numpy", "cpu")

WORTH_COMPILING = 2e10
"""Floating-point operations from which loading the compiled kernels pays (about a second, when they are cached)."""


@dataclass(frozen=True)
class Engine:
    """A loop and why it was chosen."""

    name: str
    iterate: Callable[..., Run]
    reason: str


def check_engine(engine: str) -> None:
    """Refuse what is not an engine, before any work."""
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(map(repr, ENGINES))}; found {engine!r}")


def choose_engine(engine: str, p: Problem, method: Method, n_components: int, n_updates: int) -> Engine:
    """The engine for `n_updates` updates (of all starts together); "auto" goes by what is there and by the work."""
    check_engine(engine)
    work = n_updates * operations(p, n_components)
    if engine == "cpu":
        return _cpu(p, method, "asked for")
    if engine == "auto" and work >= WORTH_COMPILING:
        return _cpu(p, method, f"the work is large ({work:.0e} operations)")
    return Engine(
        "numpy", solver.iterate, "asked for" if engine == "numpy" else f"the work is small ({work:.0e} operations)"
    )


def operations(p: Problem, n_components: int) -> float:
    """Floating-point operations of one update, as the code makes them, with a dense K unless it is diagonal."""
    n_s, n_k = p.L.shape
    n_d = n_components
    times_K = 2 * n_k * n_d if p.K.ndim == 1 else 2 * n_k * n_k * n_d
    return 4 * n_s * n_k * n_d + 4 * n_s * n_d**2 + 4 * n_k * n_d**2 + 2 * times_K


def _cpu(p: Problem, method: Method, reason: str) -> Engine:
    from icofactor.engines import cpu

    if not cpu.available():
        if reason == "asked for":
            warnings.warn("engine='cpu' needs numba, which is not installed; NumPy is used", UserWarning, stacklevel=4)
        return Engine("numpy", solver.iterate, "numba is not installed")
    if not cpu.can_run(p, method):
        return Engine(
            "numpy", solver.iterate, "the compiled kernels do not take this problem (sparse K, or another library)"
        )
    return Engine("cpu", cpu.iterate, reason)
