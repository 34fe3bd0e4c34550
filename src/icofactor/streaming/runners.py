"""Where tasks run: threads of this process, or the workers of a dask cluster.

BLAS has one thread inside a task, so that sums do not depend on the machine.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from icofactor.errors import ArgumentError, CheckpointError, ClusterError, Phrase
from icofactor.streaming.checkpoint import Arrays, Checkpoint, digest
from icofactor.streaming.source import is_dask_array

Argument = TypeVar("Argument")
Result = TypeVar("Result")
Task = Callable[..., Arrays]
"""A pure function (shared, *item) that can be pickled; `shared` are arrays that all items use."""
Item = Callable[[int], Sequence[Any]]
"""The arguments of one item, made when it is its turn."""
Keys = Sequence[str | None]
"""Names under which pieces are kept; None for those that are not."""


SHORT = 100_000
"""Arrays of fewer values are worked on so quickly that threads would mostly wait for each other in Python."""


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


_here = threading.local()


def in_order(
    work: Callable[[Argument], Result], items: Iterable[Argument], workers: int | None = None
) -> Iterator[Result]:
    """work(item) for every item, in the order of the items, a few ahead of the reader; on all processors by default.

    Work that calls this again does so on its own thread: the processors are taken.
    """
    items = list(items)
    workers = 1 if hasattr(_here, "busy") else min(n_threads() if workers is None else workers, len(items))
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
    """Makes pieces."""

    checkpoint: Checkpoint
    remote: bool
    """Whether tasks run in other processes."""
    client: Any
    """The dask.distributed.Client of a cluster, else None."""

    def run(self, keys: Keys, task: Task, shared: Mapping[str, Any], item: Item) -> Iterator[Arrays]:
        """task(shared, *item(i)) for every i, kept under keys[i], in order."""
        ...


class Threads:
    """Makes pieces in this process, as many at a time as it has processors, a few ahead of their use."""

    remote, client = False, None

    def __init__(self, checkpoint: Checkpoint | None = None, workers: int | None = None) -> None:
        self.checkpoint = Checkpoint(None, {}) if checkpoint is None else checkpoint
        self._workers = workers

    def at_most(self, workers: int) -> Threads:
        """The same with no more threads than this."""
        return Threads(self.checkpoint, min(workers, n_threads() if self._workers is None else self._workers))

    def run(self, keys: Keys, task: Task, shared: Mapping[str, Any], item: Item) -> Iterator[Arrays]:
        def one(i: int) -> Arrays:
            key, make = keys[i], lambda: task(shared, *item(i))
            return make() if key is None else self.checkpoint.piece(key, make)

        return in_order(one, range(len(keys)), self._workers)


_AHEAD = 2
"""Pieces given out per thread of the cluster: one is worked on, the next one waits there."""


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
        raise ArgumentError("client", None, "{client} has no workers yet: call client.wait_for_workers(n) first")


_STEPS = {
    "look": "a first look at the maps",
    "statistics": "statistics of the maps",
    "starts": "updates of the starts",
    "lift": "the lift to all sites",
    "polish": "the lift to all sites",
}
"""Beginning of a key → what its pieces are."""
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
        raise ClusterError(step, f"{why}. With {{work_dir}} finished pieces are kept") from problem


class Cluster:
    """Makes pieces on the workers of a client."""

    remote = True

    def __init__(self, client: Any, checkpoint: Checkpoint | None = None) -> None:
        self.client = client
        self.checkpoint = Checkpoint(None, {}) if checkpoint is None else checkpoint

    def run(self, keys: Keys, task: Task, shared: Mapping[str, Any], item: Item) -> Iterator[Arrays]:
        """task(shared, *item(i)) for every i on the workers, a few ahead of the reader; in order."""
        folder = None if self.checkpoint.folder is None else str(self.checkpoint.folder.absolute())
        common = self._shared(folder, shared)
        ahead: deque[tuple[str | None, Any]] = deque()
        step = (keys[0] if keys else None) or ""
        names = (name for start, name in _STEPS.items() if step.startswith(start))
        with _naming(next(names, "a pass over the maps"), self.client):
            try:
                for i, key in enumerate(keys):
                    kept = None if key is None else self.checkpoint.get(key)
                    ahead.append((key, kept if kept is not None else self.submit(task, folder, common, key, item(i))))
                    while len(ahead) > _AHEAD * max(2, sum(self.client.nthreads().values())):
                        yield self._result(*ahead.popleft())
                while ahead:
                    yield self._result(*ahead.popleft())
            finally:
                with suppress(Exception):  # of a client that is closed
                    self.client.cancel([found for _, found in ahead if not isinstance(found, dict)])

    def _shared(self, folder: str | None, shared: Mapping[str, Any]) -> Any:
        """Arrays that all pieces need: sent along with each, or written once for the workers to read."""
        arrays = {name: np.asarray(value) for name, value in shared.items()}
        if folder is None or not arrays:
            return arrays
        key = f"shared-{digest(*arrays.values())[:20]}"
        self.checkpoint.piece(key, lambda: arrays)
        return key

    def submit(self, task: Task, folder: str | None, common: Any, key: str | None, item: Sequence[Any]) -> Any:
        with warnings.catch_warnings():
            # sending data is what is asked for where workers cannot read them
            warnings.filterwarnings("ignore", "Sending large graph")
            return self.client.submit(_work, task, folder, common, key, *item, pure=False)

    def _awaited(self, found: Any) -> Any:
        """What a task returns; an error where no worker would ever begin it."""
        stuck = 0
        while True:
            try:
                return found.result(timeout=_PATIENCE)
            except TimeoutError:
                if found.status == "error":  # its own; one that is finished may be lost with its worker, and made again
                    raise
                stuck = stuck + 1 if _stuck(self.client) else 0
            if stuck > 1:
                raise _Paused

    def _result(self, key: str | None, found: Any) -> Arrays:
        if isinstance(found, dict):
            return found
        made = self._awaited(found)
        if key is None or made is not None:
            return dict(made)
        kept = self.checkpoint.get(key)
        if kept is None:
            raise CheckpointError(
                str(self.checkpoint.folder),
                f"a worker wrote {key}, but the client cannot see it: {{work_dir}} must be a folder that all workers "
                "share with the client",
            )
        return kept


def _stuck(client: Any) -> bool:
    """Whether every worker is paused, as dask does when memory is short, with nothing at work that could free some."""
    workers = client.run_on_scheduler(
        lambda dask_scheduler: [(one.status.name, len(one.executing)) for one in dask_scheduler.workers.values()]
    )
    return bool(workers) and all(status == "paused" and not executing for status, executing in workers)


_NOT_SHARED = "a worker cannot see it: {work_dir} must be a folder that all workers share"


def _work(task: Task, folder: str | None, common: Any, key: str | None, *item: Any) -> Arrays | None:
    """On a worker: one piece, returned, or written into the work folder."""
    _one_thread()
    shared = common if isinstance(common, dict) else _read_shared(str(folder), common)
    if folder is None or key is None:
        return task(shared, *item)
    if not Path(folder).is_dir():
        raise CheckpointError(folder, _NOT_SHARED)
    Checkpoint.attached(folder).piece(key, lambda: task(shared, *item))
    return None


@lru_cache(maxsize=2)
def _read_shared(folder: str, key: str) -> Arrays:
    found = Checkpoint.attached(folder).get(key)
    if found is None:
        raise CheckpointError(Path(folder) / f"{key}.npz", _NOT_SHARED)
    return found


@cache
def _one_thread() -> None:
    """BLAS on one thread from now on: threads of one worker would end each other's limits."""
    one_blas_thread()
