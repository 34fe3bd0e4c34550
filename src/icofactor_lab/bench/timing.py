"""Clocks: threads pinned alike, repetitions interleaved, medians; and the machine's own speed in the same run."""

from __future__ import annotations

import gc
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.streaming.threads import n_threads

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_PACKAGES = ("icofactor", "numpy", "scipy", "scikit-learn", "numba", "jax", "torch", "nmf-torch", "pyplanc", "opnmf")


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """BLAS and OpenMP of every library on `threads` threads: those loaded, those loaded later, and child processes."""
    from threadpoolctl import threadpool_limits

    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        with threadpool_limits(threads):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def seconds_of(work: Callable[[], Any]) -> float:
    """Wall-clock seconds of one call, garbage collected before."""
    gc.collect()
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def interleaved(works: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each work in each of `repeats` rounds; a round runs all of them once, so that noise hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            seconds[name].append(seconds_of(work))
    return seconds


def gemm(dtype: type[np.floating], size: int) -> Callable[[], Any]:
    """A square matrix product of the machine's own BLAS: 2 size³ operations a call."""
    rng = np.random.default_rng(0)
    A, B = (rng.random((size, size)).astype(dtype) for _ in range(2))
    out = np.empty_like(A)
    np.dot(A, B, out)
    return lambda: np.dot(A, B, out)


def median(values: list[float]) -> float:
    return float(np.median(values))


def machine(threads: int) -> dict[str, Any]:
    """What the numbers were measured on."""
    from threadpoolctl import threadpool_info

    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    blas = sorted({f"{i['internal_api']} {i.get('version')}" for i in threadpool_info() if i["user_api"] == "blas"})
    return {
        "processor": _proc("/proc/cpuinfo", "model name") or platform.processor(),
        "processors usable": n_threads(),
        "threads": threads,
        "memory": _proc("/proc/meminfo", "MemTotal"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "blas": blas,
        "versions": versions,
        "date": time.strftime("%Y-%m-%d %H:%M"),
    }


def _proc(path: str, key: str) -> str:
    """The first value of `key` in a file of /proc; empty where there is none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")
