"""The pass over X that gathers statistics: sums over columns, and what an Inspector wants to know
of every site.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from icofactor.streaming.blocks import Arrays, Blocks, Levelled, as_slice, join
from icofactor.streaming.inspect import Inspector, look, look_at_kinds
from icofactor.streaming.passes import pass_over, stream_of

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
    for rows, found in pass_over(stream, _column_sums, shared, [columns], report=report):
        sums[as_slice(found["used"])] += found["columns"]
        site_energy[rows] = found["site.energy"]
        if inspector is not None:
            inspector.accept(rows, found)
    return sums, site_energy


def look_over(X: Any, inspector: Inspector, report: Report | None = None) -> None:
    """One pass over X that shows it to an Inspector, and gathers nothing else."""
    n = stream_of(X).shape[0]
    column_of_ones = sp.csr_array(
        (np.ones(n), np.zeros(n, dtype=np.int64), np.arange(n + 1)), shape=(n, 1)
    )
    gather(X, column_of_ones, inspector, report)


def _column_sums(blocks: Blocks, shared: Mapping[str, Any], columns: sp.csr_array) -> Arrays:
    """columnsᵀ x of one part, for those columns only that its sites reach: mostly few."""
    used, columns = drop_empty_columns(columns)
    codes = shared.get("codes")
    sums: np.ndarray | None = None
    site_statistics = []
    for rows, x in blocks:
        # Several kinds of maps have levels of their own: float32 deviations from that of one would
        # lose digits.
        block = x if codes is None else x.astype(np.float64, copy=False)
        if sums is None:
            sums = np.zeros((len(used), block.shape[1]))
        with np.errstate(
            invalid="ignore", over="ignore"
        ):  # the Inspector reports what is not finite
            levelled = Levelled.of(block)
            if len(block) == columns.shape[0]:
                sums += levelled.sums(columns)
            else:
                used_in_block, block_columns = drop_empty_columns(columns[rows])
                sums[used_in_block] += levelled.sums(block_columns)
        site_statistics.append(
            look(block, levelled) if codes is None else look_at_kinds(block, codes)
        )
    assert sums is not None
    return {**join(site_statistics), "used": used, "columns": sums}


def drop_empty_columns(matrix: sp.csr_array) -> tuple[np.ndarray, sp.csr_array]:
    """Return the numbers of the columns with entries, and the matrix of these alone."""
    used, new_number = np.unique(matrix.indices, return_inverse=True)
    shape = (matrix.shape[0], len(used))
    return used, sp.csr_array((matrix.data, new_number, matrix.indptr), shape=shape)
