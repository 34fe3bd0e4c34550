"""The only loop over maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from icofactor.maps.blocks import Arrays, Rows, add_strip, as_slice, strip_height
from icofactor.maps.maps import Maps, is_dask_array
from icofactor.maps.workers import in_order, limit_blas_for_good, n_threads, run_elsewhere

# Blocks that are in memory at the same time take at most this much, or are one: machines with many
# processors read fewer than they could, as disks are slower. They count as float64.
BYTES_IN_MEMORY = 2**30

Report = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class _Task:
    """One block: its maps, the rows of arrays over sites that belong to it, and how to work on it."""

    function: Callable[..., Arrays]
    maps: Maps
    shared: Mapping[str, Any]
    rows: Sequence[Any]
    height: int
    single: bool


def map_blocks(
    function: Callable[..., Arrays],
    maps: Maps,
    *per_site: Any,
    shared: Mapping[str, Any] | None = None,
    report: Report | None = None,
    double: bool = False,
) -> Iterator[tuple[Rows, Arrays]]:
    """Yield (sites, result) for every block of the maps, in order.

    Parameters
    ----------
    function : called as function(strips, n_sites, shared, *rows) for every block. `strips` yields
        slices of its n_sites and their values, sites × subjects; a result is a dict of arrays
    maps : what is passed over; their `executor` says where the calls run
    per_site : arrays over all sites, of which a block gets its own rows; or None
    shared : what all calls get
    report : called with the fraction that is done
    double : whether values are float64 whatever the maps are
    """
    blocks = maps.blocks()
    height = strip_height(maps.n_subjects)
    single = not (double or maps.is_small)

    # Pickling puts slices in C order, and BLAS gives other bits for another order.
    per_site = tuple(
        np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array
        for array in per_site
    )

    def task_of(block: Rows) -> _Task:
        rows = [None if array is None else array[block] for array in per_site]
        return _Task(
            function,
            maps.subset(sites=block),
            shared or {},
            rows,
            height,
            single,
        )

    # Bytes are counted here, because other processes count for themselves.
    n_bytes = maps.counter.n_bytes + maps.n_bytes
    if maps.executor is None or isinstance(maps.executor, ThreadPoolExecutor):
        n_workers = _n_threads_for(maps, len(blocks))
        run = map if n_workers == 1 else partial(in_order, workers=n_workers)
        results = run(lambda block: _work(task_of(block)), blocks)
    else:
        tasks = (_portable(task_of(block)) for block in blocks)
        results = run_elsewhere(maps.executor, _work_elsewhere, tasks)
    for number, (block, result) in enumerate(zip(blocks, results, strict=True), 1):
        yield block, result
        if report is not None:
            report(number / len(blocks))
    maps.counter.n_bytes = n_bytes


def map_strips(
    function: Callable[..., Arrays],
    maps: Maps,
    *per_site: Any,
    **options: Any,
) -> Iterator[tuple[Rows, Arrays]]:
    """Yield (sites, result) for every block, where `function` works on a strip at a time.

    It is called as function(x, shared, *rows). The arrays that it returns are joined over the
    strips of a block: "site.…" have a row per site, "sum.…", "min.…" and "max.…" are added or
    compared. All else is as in `map_blocks`.
    """
    return map_blocks(
        partial(_strip_by_strip, function),
        maps,
        *per_site,
        **options,
    )


def _strip_by_strip(
    function: Callable[..., Arrays],
    strips: Iterable[tuple[slice, np.ndarray]],
    n_sites: int,
    shared: Mapping[str, Any],
    *rows: Any,
) -> Arrays:
    joined: Arrays = {}
    for strip, x in strips:
        rows_of_strip = [None if array is None else array[strip] for array in rows]
        add_strip(joined, function(x, shared, *rows_of_strip), strip, n_sites)
    return joined


def _work(task: _Task) -> Arrays:
    """Read a block and call the function."""
    maps = task.maps
    values = maps.read_source(slice(0, maps.n_sites))
    strips = maps.strips(values, task.height, task.single)
    return task.function(strips, maps.n_sites, task.shared, *task.rows)


def _work_elsewhere(task: _Task) -> Arrays:
    """Work on a block in another process; dask arrays are computed in this very thread."""
    limit_blas_for_good()
    if not is_dask_array(task.maps.values):
        return _work(task)
    import dask

    with dask.config.set(scheduler="synchronous"):
        return _work(task)


def _n_threads_for(
    maps: Maps,
    n_blocks: int,
) -> int:
    """Return how many threads share a pass; small maps in memory take one, which is quicker."""
    if maps.in_memory:
        if maps.is_small:
            return 1
        return n_threads()
    bytes_of_block = 8 * maps.n_sites * maps.n_subjects // max(1, n_blocks)
    n_fitting = BYTES_IN_MEMORY // max(1, bytes_of_block)
    return max(1, min(n_threads(), n_blocks, n_fitting))


def _portable(task: _Task) -> _Task:
    """Return a task that another process can get: with the address of the maps, or its own values."""
    # What estimated the changes has arrays over all sites, which reading does not need.
    adjustments = tuple(replace(change, made_by=None) for change in task.maps.adjustments)
    maps = replace(task.maps, adjustments=adjustments, executor=None)
    if isinstance(maps.values, tuple | np.ndarray):
        values = np.ascontiguousarray(maps.read_source(slice(0, maps.n_sites)))
        maps = replace(
            maps,
            values=values,
            subjects_first=False,
            subjects=None,
            sites=None,
        )
    elif is_dask_array(maps.values) and maps.sites is not None:
        import dask

        key = (slice(None), as_slice(maps.sites))
        values = maps.values[key if maps.subjects_first else key[::-1]]
        # Without this the graph would keep the chunks of all sites.
        (values,) = dask.optimize(values)
        maps = replace(maps, values=values, sites=None)
    return replace(task, maps=maps)
