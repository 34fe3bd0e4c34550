"""Threads of our own over blocks and starts, and one thread inside BLAS, so that sums do not depend on the machine."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def n_threads() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_blas_thread() -> AbstractContextManager[Any]:
    """BLAS on one thread: the products here are small, and the same seed gives the same bits on any machine size."""
    return _blas().limit(limits=1, user_api="blas")


@cache
def _blas() -> Any:
    """The BLAS libraries of NumPy and SciPy. Looking for them takes as long as a small fit: once is enough."""
    import scipy.linalg.cython_blas  # noqa: F401 - the BLAS that the kernels call must be there to be limited
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def in_order(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """work(item) for every item on all processors, in the order of the items, a few ahead of the reader."""
    items = list(items)
    workers = min(n_threads(), len(items))
    if workers <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        ahead: deque[Future[Result]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(work, item))
                if len(ahead) > workers + 1:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
