"""The pass over the maps that gathers statistics: sums over columns, a summary of every site."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from icofactor.errors import ArgumentError
from icofactor.maps.blocks import Arrays, Levelled, Rows, add_strip, as_slice, summarize
from icofactor.maps.maps import Maps
from icofactor.maps.passes import Report, map_blocks

# Called with the sites of a block and their summary.
AcceptBlock = Callable[[Rows, Arrays], None]


def gather(
    maps: Maps,
    columns: sp.csr_array,
    accept_block: AcceptBlock | None = None,
    report: Report | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return columnsᵀ X (n_columns × subjects) and ‖x‖² of every site, in one pass."""
    if not maps.n_sites:
        raise ArgumentError("X", "has no sites")
    sums = np.zeros((columns.shape[1], maps.n_subjects))
    site_energy = np.empty(maps.n_sites)
    for sites, result in map_blocks(_column_sums, maps, columns, report=report):
        sums[as_slice(result["used"])] += result["columns"]
        site_energy[sites] = result["site.energy"]
        if accept_block is not None:
            accept_block(sites, result)
    return sums, site_energy


def _column_sums(
    strips: Iterable[tuple[slice, np.ndarray]],
    n_sites: int,
    shared: Mapping[str, Any],
    columns: sp.csr_array,
) -> Arrays:
    """Return columnsᵀ x of a block, for the few columns that its sites reach, and its summary."""
    used, columns = drop_empty_columns(columns)
    block: Arrays = {"used": used}
    for strip, x in strips:
        if "columns" not in block:
            block["columns"] = np.zeros((len(used), x.shape[1]))
        # Whoever accepts the summaries reports what is not finite.
        with np.errstate(invalid="ignore", over="ignore"):
            levelled = Levelled.of(x)
            if len(x) == n_sites:
                block["columns"] += levelled.sums(columns)
            else:
                used_in_strip, strip_columns = drop_empty_columns(columns[strip])
                block["columns"][used_in_strip] += levelled.sums(strip_columns)
            summary = summarize(x, levelled)
        add_strip(block, summary, strip, n_sites)
    return block


def drop_empty_columns(matrix: sp.csr_array) -> tuple[np.ndarray, sp.csr_array]:
    """Return the numbers of the columns with entries, and the matrix of these alone."""
    used, new_number = np.unique(matrix.indices, return_inverse=True)
    shape = (matrix.shape[0], len(used))
    return used, sp.csr_array((matrix.data, new_number, matrix.indptr), shape=shape)
