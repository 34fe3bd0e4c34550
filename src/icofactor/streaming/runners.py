"""Where tasks run: threads of this process, or the workers of a dask cluster.

BLAS has one thread inside a task, so that sums do not depend on the machine.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from typing import Any, Protocol, TypeVar

from icofactor.errors import ArgumentError, ClusterError, Phrase
from icofactor.streaming.source import is_dask_array

Argument = TypeVar("Argument")
Result = TypeVar("Result")
Task = Callable[..., Any]
"""A function (shared, *arguments) that can be pickled; all tasks of a run share `shared`."""
MAPS = "a pass over the maps"
"""What a run computes unless it says otherwise; an error of a cluster names it."""


SHORT = 100_000
"""Arrays of fewer values are worked on so quickly that threads would mostly wait for each other in
Python.
"""


def n_threads() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_blas_thread() -> AbstractContextManager[Any]:
    """BLAS on one thread: the products here are small, and the same seed gives the same bits on any
    machine size.
    """
    return _blas().limit(limits=1, user_api="blas")


@cache
def _blas() -> Any:
    """The BLAS libraries of NumPy and SciPy. Looking for them takes as long as a small fit: once is
    enough.
    """
    import scipy.linalg.cython_blas  # noqa: F401 - the BLAS that the kernels call must be there to be limited
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


_here = threading.local()


def in_order(
    work: Callable[[Argument], Result], items: Iterable[Argument], workers: int | None = None
) -> Iterator[Result]:
    """work(item) for every item, in the order of the items, a few ahead of the reader; on all
    processors by default.

    Work that calls this again does so on its own thread: the processors are taken.
    """
    items = list(items)
    workers = (
        1
        if hasattr(_here, "busy")
        else min(n_threads() if workers is None else workers, len(items))
    )
    if workers <= 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers, initializer=lambda: setattr(_here, "busy", True)) as pool:
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


class Runner(Protocol):
    """Runs tasks."""

    remote: bool
    """Whether tasks run in other processes."""
    client: Any
    """The dask.distributed.Client of a cluster, else None."""

    def run(
        self,
        task: Task,
        shared: Any,
        arguments: Callable[[int], Sequence[Any]],
        n_tasks: int,
        step: str = MAPS,
    ) -> Iterator[Any]:
        """Yield task(shared, *arguments(i)) for every i below `n_tasks`, in order.

        `arguments` is called shortly before a task starts, because arguments may be large.
        """
        ...


class Threads:
    """Runs tasks in this process, as many at a time as it has processors, a few ahead of their use."""

    remote, client = False, None

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers

    def at_most(self, workers: int) -> Threads:
        """The same with no more threads than this."""
        return Threads(min(workers, n_threads() if self._workers is None else self._workers))

    def run(
        self,
        task: Task,
        shared: Any,
        arguments: Callable[[int], Sequence[Any]],
        n_tasks: int,
        step: str = MAPS,
    ) -> Iterator[Any]:
        """Yield the results of all tasks, in order."""
        return in_order(lambda i: task(shared, *arguments(i)), range(n_tasks), self._workers)


_AHEAD = 2
"""Tasks given out per thread of the cluster: one runs, the next one waits there."""


def active_client(X: Any) -> Any:
    """The client in whose cluster a dask array would be computed, if there is one."""
    distributed = sys.modules.get("distributed") if is_dask_array(X) else None
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:  # there is none
        return None


def check_client(client: Any) -> None:
    """Check that this is a client of dask.distributed with workers."""
    if not (hasattr(client, "submit") and hasattr(client, "nthreads")):
        raise ArgumentError("client", Phrase(type(client).__name__), "a dask.distributed.Client")
    if not client.nthreads():
        raise ArgumentError(
            "client", None, "{client} has no workers yet: call client.wait_for_workers(n) first"
        )


_DASK = ("distributed", "dask", "tornado", "asyncio", "concurrent")


_PATIENCE = 20.0
"""Seconds after which, twice, it is asked whether any worker is at work."""


class _Paused(Exception):
    """All workers are paused."""


@contextmanager
def _naming(step: str, client: Any) -> Iterator[None]:
    """A failure of dask becomes one error that says what was being made; those of tasks pass."""
    try:
        yield
    except Exception as problem:
        kind, closed = type(problem), getattr(client, "status", "") in ("closed", "closing")
        if not closed and kind is not _Paused and kind.__module__.partition(".")[0] not in _DASK:
            raise
        why = f"the cluster or its client was closed, or cannot be reached ({kind.__name__}): start both again"
        if kind is _Paused:
            why = "dask has paused every worker, because their memory is nearly full: give workers more memory"
        elif kind.__name__ == "KilledWorker":
            why = "a worker ran out of memory, or died repeatedly: give workers more memory or smaller blocks"
        raise ClusterError(step, why) from problem


class Cluster:
    """Runs tasks on the workers of a client."""

    remote = True

    def __init__(self, client: Any) -> None:
        self.client = client

    def run(
        self,
        task: Task,
        shared: Any,
        arguments: Callable[[int], Sequence[Any]],
        n_tasks: int,
        step: str = MAPS,
    ) -> Iterator[Any]:
        """Yield the results of all tasks, in order; a few tasks run ahead of the reader."""
        # Pickled here, because sums can depend on where in memory dask places the arrays that it
        # sends
        job = pickle.dumps((task, shared))
        futures: deque[Any] = deque()
        with _naming(step, self.client):
            try:
                for i in range(n_tasks):
                    futures.append(self.submit(job, *arguments(i)))
                    while len(futures) > _AHEAD * max(2, sum(self.client.nthreads().values())):
                        yield self._result(futures.popleft())
                while futures:
                    yield self._result(futures.popleft())
            finally:
                with suppress(Exception):  # of a client that is closed
                    self.client.cancel(list(futures))

    def submit(self, job: bytes, *arguments: Any) -> Any:
        """The future of one task; `job` is the pickled task and what all tasks share."""
        with warnings.catch_warnings():
            # sending data is what is asked for where workers cannot read them
            warnings.filterwarnings("ignore", "Sending large graph")
            return self.client.submit(_on_worker, job, *arguments, pure=False)

    def _result(self, future: Any) -> Any:
        """What a task returns; an error where no worker would ever begin it."""
        stuck = 0
        while True:
            try:
                return future.result(timeout=_PATIENCE)
            except TimeoutError:
                # The task itself raised TimeoutError. A finished task may get lost with its worker;
                # dask repeats it.
                if future.status == "error":
                    raise
                stuck = stuck + 1 if _stuck(self.client) else 0
            if stuck > 1:
                raise _Paused


def _stuck(client: Any) -> bool:
    """Whether every worker is paused, as dask does when memory is short, with nothing at work that
    could free some.
    """
    workers = client.run_on_scheduler(
        lambda dask_scheduler: [
            (one.status.name, len(one.executing)) for one in dask_scheduler.workers.values()
        ]
    )
    return bool(workers) and all(
        status == "paused" and not executing for status, executing in workers
    )


def _on_worker(job: bytes, *arguments: Any) -> Any:
    """Run a task on a worker."""
    _one_thread()
    task, shared = pickle.loads(job)
    return task(shared, *arguments)


@cache
def _one_thread() -> None:
    """BLAS on one thread from now on: threads of one worker would end each other's limits."""
    one_blas_thread()
