"""Clocks and memory: threads pinned alike, repetitions interleaved, medians; and what the machine is."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.streaming.runners import n_threads

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


def timed(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> tuple[Any, float]:
    """What a call returns, and its seconds on a clock."""
    begin = clock()
    answer = work()
    return answer, clock() - begin


def seconds_of(work: Callable[[], Any]) -> float:
    """Wall-clock seconds of one call, garbage collected before."""
    gc.collect()
    return timed(work)[1]


def interleaved(works: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each work in each of `repeats` rounds; a round runs all of them once, so that noise hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            seconds[name].append(seconds_of(work))
    return seconds


def median(values: list[float]) -> float:
    return float(np.median(values))


def peak_bytes() -> int:
    """Peak resident memory: since `reset_peak` where there is /proc, of the whole process otherwise; 0 if unknown."""
    found = _proc("/proc/self/status", "VmHWM")
    if found:
        return 1024 * int(found.split()[0])
    from icofactor.results.diagnostics.diagnose import peak_memory

    return peak_memory()


def reset_peak() -> bool:
    """Give freed memory back and make the kernel forget the peak so far; False where that is not possible."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


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
    """The first value of `key` in a file of /proc; empty where it is missing."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")
