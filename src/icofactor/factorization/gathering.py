"""The pass over X that gathers statistics: sums over columns, and what an Inspector wants to know of every site."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from icofactor.streaming.blocks import Arrays, Blocks, StoredPart, as_slice, join
from icofactor.streaming.inspect import Inspector, look, look_for_bounds
from icofactor.streaming.passes import pass_over, stream_of

_FEW = 8
LARGE = 2**28
"""Values from which on a compiled look at them pays."""
Report = Callable[[float], None]


def gather(
    X: Any,
    columns: sp.csr_array,
    inspector: Inspector | None,
    report: Report | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """columnsᵀ X (n_columns × subjects) and ‖x‖² of every site, in one pass over X."""
    stream = stream_of(X)
    n_sites, n_subjects = stream.shape
    if not n_sites:
        raise ValueError("X has no sites")
    sums, site_energy = np.zeros((columns.shape[1], n_subjects)), np.empty(n_sites)
    shared = {} if inspector is None else inspector.shared
    compiled = inspector is not None and not shared and _one_each(columns) and is_large(stream)
    task = _column_sums_compiled if compiled else _column_sums
    tiles = stored_part(stream) if compiled else None
    if tiles is not None and not stream.runner.remote:
        from icofactor.factorization.engines.looking import compile_for

        compile_for(tiles)
    for rows, found in pass_over(stream, task, shared, [columns], report=report, tiles=tiles is not None):
        sums[as_slice(found["reached"])] += found["columns"]
        site_energy[rows] = found["site.energy"]
        if inspector is not None:
            inspector.accept(rows, found)
    return sums, site_energy


def look_over(X: Any, inspector: Inspector, report: Report | None = None) -> None:
    """One pass over X that shows it to an Inspector, and gathers nothing else."""
    n = stream_of(X).shape[0]
    one = sp.csr_array((np.ones(n), np.zeros(n, dtype=np.int64), np.arange(n + 1)), shape=(n, 1))
    gather(X, one, inspector, report)


def _column_sums(blocks: Blocks, shared: Mapping[str, Any], columns: sp.csr_array) -> Arrays:
    """columnsᵀ x of one part, for those columns only that its sites reach: mostly few."""
    reached, columns = _reached(columns)
    if hasattr(blocks, "column_sums"):  # a part on a device
        return dict(blocks.column_sums(reached, columns, shared.get("codes")))
    seen, sums = [], None
    for rows, x in blocks:
        seen.append(look(x, shared.get("codes")))
        whole = len(x) == columns.shape[0]
        at, here = (slice(None), columns) if whole else _reached(columns[rows])
        if sums is None:
            sums = np.zeros((len(reached), x.shape[1]))
        # of many subjects a block has few faces: a dense product reads its values once
        with np.errstate(invalid="ignore", over="ignore"):  # the Inspector reports what is not finite
            sums[at] += (here.T.toarray() if here.shape[1] <= _FEW else here.T) @ x
    assert sums is not None
    return {**join(seen), "reached": reached, "columns": sums}


def is_large(X: Any) -> bool:
    """Whether compiled code for many values pays, and can be had."""
    from icofactor.factorization.engines.cpu import available

    return bool(X.shape[0] * X.shape[1] >= LARGE) and available()


def in_tiles(X: Any) -> bool:
    """Whether X is large and stored in tiles."""
    return stored_part(X) is not None


def stored_part(X: Any) -> StoredPart | None:
    """The first part of a large X that is stored in tiles."""
    stream = stream_of(X)
    return stream.source.stored(stream.source.slices()[0]) if is_large(stream) else None


def _one_each(columns: sp.csr_array) -> bool:
    """Whether every site is in one column, as in a partition."""
    return bool((np.diff(columns.indptr) == 1).all())


def _column_sums_compiled(blocks: Blocks, shared: Mapping[str, Any], columns: sp.csr_array) -> Arrays:
    """`_column_sums` of large data, where every site is in one column."""
    if hasattr(blocks, "column_sums"):
        return _column_sums(blocks, shared, columns)
    if isinstance(blocks, StoredPart):
        return _column_sums_stored(blocks, columns)
    from icofactor.factorization.engines.looking import bits, compile_look, look_and_sum

    compile_look()
    reached, columns = _reached(columns)
    mean, variance = np.zeros(columns.shape[0]), np.zeros(columns.shape[0])
    sums = low = high = np.empty(0)
    place, weight, differ = columns.indices.astype(np.int64), columns.data.astype(np.float64), False
    for rows, x in blocks:
        if not len(low):
            sums, low = np.zeros((len(reached), x.shape[1])), np.full(x.shape[1], np.inf)
            high = -low
        if not look_and_sum(bits(x), place[rows], weight[rows], sums, low, high, mean[rows], variance[rows]):
            found = look_for_bounds(x)  # refused by the Inspector, with the names of the subjects
            low, high = np.minimum(low, found["min.low"]), np.maximum(high, found["max.high"])
        differ = differ or bool((x.min(axis=1) != x.max(axis=1)).any())
    with np.errstate(over="ignore"):  # the Inspector reports what cannot be squared
        energy = variance + len(low) * mean**2
    seen = {"min.low": low, "max.high": high, "max.differ": np.array(differ)}
    of_sites = {"site.mean": mean, "site.energy": energy, "site.variance": variance}
    return {**seen, **of_sites, "reached": reached, "columns": sums}


def _column_sums_stored(part: StoredPart, columns: sp.csr_array) -> Arrays:
    """The same of tiles, each of which is read, checked and added up while it is in the cache."""
    from icofactor.factorization.engines.looking import bits, look_at_tile, tiles_of

    reached, columns = _reached(columns)
    n_sites, n_subjects = part.shape
    place, weight = columns.indices.astype(np.int64), columns.data.astype(np.float64)
    sums, (shift, total, squares) = np.zeros((len(reached), n_subjects)), np.zeros((3, n_sites))
    changed = part.kind == np.float64 and part.done()
    ends = np.repeat(np.array([[np.inf], [-np.inf]], np.float64 if changed else np.float32), n_subjects, axis=1)
    worst = ends.astype(np.float64)  # of tiles with values that are not finite, which compiled code does not compare
    for tile in tiles_of(part):
        at, to = tile.sites, tile.subjects
        if not to.start:
            shift[at] = tile.x[tile.rows, tile.first]
        of_sites = shift[at], total[at], squares[at]
        look_at_tile(
            bits(tile.x), tile.rows, tile.first, place[at], weight[at], sums, to.start, *ends[:, to], *of_sites
        )
        small = tile.x.dtype.itemsize > 2 or np.abs(ends[:, to]).max() < 2**16
        if len(tile.rows) and not (small and np.isfinite(total[at]).all()):
            bounds = look_for_bounds(tile.x[tile.rows, tile.first : tile.first + to.stop - to.start])
            worst[:, to] = np.minimum(worst[0, to], bounds["min.low"]), np.maximum(worst[1, to], bounds["max.high"])
    with np.errstate(invalid="ignore", over="ignore"):  # the Inspector reports what is not finite
        mean, variance = shift + total / n_subjects, np.maximum(squares - total**2 / n_subjects, 0.0)
        energy = variance + n_subjects * mean**2
    seen = {"min.low": np.minimum(worst[0], ends[0]), "max.high": np.maximum(worst[1], ends[1])}
    found = {"site.mean": mean, "site.energy": energy, "site.variance": variance}
    return {**seen, **found, "max.differ": np.array((squares > 0).any()), "reached": reached, "columns": sums}


def _reached(columns: sp.csr_array) -> tuple[np.ndarray, sp.csr_array]:
    """Which columns are not zero, and these alone."""
    reached, place = np.unique(columns.indices, return_inverse=True)
    return reached, sp.csr_array((columns.data, place, columns.indptr), shape=(columns.shape[0], len(reached)))
