"""The pass over X that gathers statistics: sums over columns, and what an Inspector wants to know of every site."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from icofactor.streaming.blocks import Arrays, Blocks, join
from icofactor.streaming.inspect import Inspector, look, look_for_bounds
from icofactor.streaming.passes import pass_over, stream_of

_FEW = 8
LARGE = 2**28
"""Values from which on a compiled look at them pays."""
Report = Callable[[float], None]


def gather(
    X: Any, columns: sp.csr_array, inspector: Inspector | None, report: Report | None
) -> tuple[np.ndarray, np.ndarray]:
    """columnsᵀ X (n_columns × subjects) and ‖x‖² of every site, in one pass over X."""
    stream = stream_of(X)
    n_sites, n_subjects = stream.shape
    if not n_sites:
        raise ValueError("X has no sites")
    sums, site_energy = np.zeros((columns.shape[1], n_subjects)), np.empty(n_sites)
    shared = {} if inspector is None else inspector.shared
    task = _column_sums
    if n_sites * n_subjects >= LARGE and inspector is not None and not shared and _one_each(columns) and _compiled():
        task = _column_sums_compiled
    for rows, found in pass_over(stream, task, shared, [columns], stage="statistics", report=report):
        sums[found["reached"]] += found["columns"]
        site_energy[rows] = found["site.energy"]
        if inspector is not None:
            inspector.accept(rows, found)
    return sums, site_energy


def _column_sums(blocks: Blocks, shared: Mapping[str, Any], columns: sp.csr_array) -> Arrays:
    """columnsᵀ x of one part, for those columns only that its sites reach: mostly few."""
    reached, columns = _reached(columns)
    if hasattr(blocks, "column_sums"):  # a part on a device
        return dict(blocks.column_sums(reached, columns, shared.get("codes")))
    seen, sums = [], None
    for rows, x in blocks:
        seen.append(look(x, shared.get("codes")))
        at, here = _reached(columns[rows])
        if sums is None:
            sums = np.zeros((len(reached), x.shape[1]))
        # of many subjects a block has few faces: a dense product reads its values once
        with np.errstate(invalid="ignore", over="ignore"):  # the Inspector reports what is not finite
            sums[at] += (here.T.toarray() if len(at) <= _FEW else here.T) @ x
    assert sums is not None
    return {**join(seen), "reached": reached, "columns": sums}


def _compiled() -> bool:
    from icofactor.factorization.engines.cpu import available

    return available()


def _one_each(columns: sp.csr_array) -> bool:
    """Whether every site is in one column, as in a partition."""
    return bool((np.diff(columns.indptr) == 1).all())


def _column_sums_compiled(blocks: Blocks, shared: Mapping[str, Any], columns: sp.csr_array) -> Arrays:
    """`_column_sums` of large data, where every site is in one column."""
    if hasattr(blocks, "column_sums"):
        return _column_sums(blocks, shared, columns)
    from icofactor.factorization.engines.looking import look_and_sum

    reached, columns = _reached(columns)
    mean, variance = np.zeros(columns.shape[0]), np.zeros(columns.shape[0])
    sums = low = high = np.empty(0)
    place, differ = columns.indices.astype(np.int64), False
    for rows, x in blocks:
        if not len(low):
            sums, low = np.zeros((len(reached), x.shape[1])), np.full(x.shape[1], np.inf)
            high = -low
        if not look_and_sum(x, place[rows], columns.data[rows], sums, low, high, mean[rows], variance[rows]):
            found = look_for_bounds(x)  # refused by the Inspector, with the names of the subjects
            low, high = np.minimum(low, found["min.low"]), np.maximum(high, found["max.high"])
        differ = differ or bool((x.min(axis=1) != x.max(axis=1)).any())
    energy = variance + len(low) * mean**2
    seen = {"min.low": low, "max.high": high, "max.differ": np.array(differ)}
    of_sites = {"site.mean": mean, "site.energy": energy, "site.variance": variance}
    return {**seen, **of_sites, "reached": reached, "columns": sums}


def _reached(columns: sp.csr_array) -> tuple[np.ndarray, sp.csr_array]:
    """Which columns are not zero, and these alone."""
    reached, place = np.unique(columns.indices, return_inverse=True)
    return reached, sp.csr_array((columns.data, place, columns.indptr), shape=(columns.shape[0], len(reached)))
