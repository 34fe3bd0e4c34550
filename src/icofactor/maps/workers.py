"""Threads of this process, one BLAS thread in each, and executors of other processes."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache, partial
from typing import Any, TypeVar

from icofactor.errors import ClusterError

Argument = TypeVar("Argument")
Result = TypeVar("Result")

# Arrays of fewer values are worked on so quickly that threads would mostly wait for each other in
# Python.
SHORT = 100_000

_thread = threading.local()


def n_threads() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def one_blas_thread() -> AbstractContextManager[Any]:
    """Limit BLAS to one thread: then the same seed gives the same bits on any machine."""
    return _blas().limit(limits=1, user_api="blas")


@cache
def _blas() -> Any:
    """Return the BLAS libraries of NumPy and SciPy; looking for them takes as long as a small fit."""
    import scipy.linalg.cython_blas  # noqa: F401 - the BLAS of the kernels must be loaded to be limited
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def in_order(
    work: Callable[[Argument], Result],
    items: Iterable[Argument],
    workers: int | None = None,
) -> Iterator[Result]:
    """Yield work(item) for every item, in order, on all processors by default.

    Work that calls this again does so on its own thread: the processors are taken.
    """
    items = list(items)
    is_inside = hasattr(_thread, "is_worker")
    if workers is None:
        workers = n_threads()
    workers = min(workers, len(items))
    if workers <= 1 or is_inside:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(
        workers, initializer=partial(setattr, _thread, "is_worker", True)
    ) as pool:
        yield from submitted(
            pool,
            work,
            items,
            workers + 1,
        )


def submitted(
    executor: Executor,
    work: Callable[[Argument], Result],
    items: Iterable[Argument],
    n_ahead: int,
) -> Iterator[Result]:
    """Yield the results of tasks in order, of which at most `n_ahead` wait for their turn."""
    ahead: deque[Future[Result]] = deque()
    try:
        for item in items:
            ahead.append(executor.submit(work, item))
            if len(ahead) > n_ahead:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        for future in ahead:
            future.cancel()


def run_elsewhere(
    executor: Executor,
    work: Callable[[Argument], Result],
    items: Iterable[Argument],
) -> Iterator[Result]:
    """Yield work(item) from other processes, in order; twice as many tasks as workers are sent."""
    n_workers = getattr(executor, "_max_workers", None) or n_threads()
    client = getattr(executor, "_client", None)
    if client is not None:
        n_workers = max(1, sum(client.nthreads().values()))
    try:
        yield from submitted(
            executor,
            work,
            items,
            2 * n_workers,
        )
    except Exception as problem:
        if not _is_of_the_executor(problem):
            raise
        reason = (
            f"the workers failed ({type(problem).__name__}: {problem}); they may be short of memory"
        )
        raise ClusterError("a pass over the maps", reason) from problem


def _is_of_the_executor(problem: Exception) -> bool:
    """Whether the workers failed, not the task."""
    library = type(problem).__module__.partition(".")[0]
    return library in ("distributed", "dask", "tornado", "asyncio", "concurrent")


@cache
def limit_blas_for_good() -> None:
    """Limit BLAS to one thread from now on, in a worker of another process.

    Threads of one worker would end each other's limits.
    """
    one_blas_thread()
