"""ReHo: concordance (Kendall's W) of the series of a vertex and of its neighbours on the mesh."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from icofactor.checks import Whole, check_value
from icofactor.errors import ArgumentError
from icofactor.preprocessing.temporal import Bools, checked_series
from icofactor.sphere.operators import adjacency
from icofactor.sphere.triangles import check_faces

# Rows that are ranked, and volumes that are summed, at once: bounds the memory beside the series.
ROWS_AT_ONCE = 1024
VOLUMES_AT_ONCE = 128


def reho(
    series: ArrayLike,
    faces: ArrayLike,
    rings: int = 3,
    tie_correction: bool = True,
    *,
    mask: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Regional homogeneity: Kendall's W of each vertex and all vertices within `rings` edges.

    W = 12 Σ_t [(S R)_t − m(n+1)/2]² / (m²(n³−n) − m Σ_j Σ(t³−t))

    where R are the ranks of every series over time (average ranks for ties), S the neighbourhoods,
    m their sizes, and n the number of volumes. The last term, over groups of t equal values of each
    neighbour j, corrects for ties. Ranks are stored as integers, so sums are exact.

    Parameters
    ----------
    series : array of shape (n_vertices, n_volumes)
        Band-passed series; join runs with `concatenate_runs`.
    faces : int array of shape (n_faces, 3)
        Triangles of the mesh.
    rings : int, default=3
        Radius of the neighbourhood in edges; three rings are 37 vertices on fsaverage and fs_LR.
    tie_correction : bool, default=True
        Whether to correct for ties; XCP-D does not.
    mask : bool array of shape (n_vertices,), optional
        True for vertices in use. Default: every row that varies. Other vertices are in no
        neighbourhood and get 0, like vertices without a neighbour in use.

    Returns
    -------
    array of shape (n_vertices,)
        W from 0 to 1.

    References
    ----------
    Zang et al., NeuroImage 22, 394-400 (2004).

    Examples
    --------
    >>> import icofactor as ico
    >>> import numpy as np
    >>> from icofactor.preprocessing import reho
    >>> faces = ico.Sites.named("fsaverage3").triangles
    >>> series = np.random.default_rng(0).standard_normal((642, 50))
    >>> concordance = reho(series, faces)
    >>> concordance.shape, bool(concordance.mean() < 0.2)  # noise differs from its neighbours
    ((642,), True)
    """
    values, is_used = checked_series(series, mask=mask)
    neighbours = ring_incidence(faces, len(values), rings)
    ranks, ties = _centred_ranks(values, is_used)
    n = float(values.shape[1])
    m = (neighbours @ is_used.astype(np.int64)).astype(np.float64)
    largest = m**2 * (n**3 - n)
    if tie_correction:
        largest -= m * (neighbours @ ties)
    # Ranks are doubled, so the sum of squares is 4 times that of the formula.
    squares = 3 * _sum_of_squares(neighbours, ranks)
    is_defined = is_used & (m >= 2) & (largest > 0)
    concordance = np.divide(squares, largest, out=np.zeros(len(values)), where=is_defined)
    return np.clip(concordance, 0.0, 1.0)


def ring_incidence(faces: ArrayLike, n_vertices: int, rings: int) -> sparse.csr_array:
    """Return a matrix of shape (n_vertices, n_vertices) with ones for neighbours.

    Row v marks v and the vertices within `rings` edges of it.

    Examples
    --------
    >>> import icofactor as ico
    >>> from icofactor.preprocessing import ring_incidence
    >>> ring_incidence(ico.Sites.named("fsaverage3").triangles, 642, rings=1).shape
    (642, 642)
    """
    check_value("rings", rings, Whole(1))
    triangles = check_faces(faces)
    if triangles.max() != n_vertices - 1:
        raise ArgumentError(
            "faces",
            f"must be numbers of vertices, 0 to {n_vertices - 1}, the rows of the series; found "
            f"{triangles.min()} to {triangles.max()}",
        )
    itself = sparse.eye_array(n_vertices, dtype=np.int32)
    step = _ones(sparse.csr_array(adjacency(triangles, n_vertices) + itself))
    reach = step
    for _ in range(rings - 1):
        reach = _ones(reach @ step)
    return reach


def _ones(matrix: sparse.csr_array) -> sparse.csr_array:
    """Set all entries to 1, in place."""
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _centred_ranks(
    values: NDArray[Any], is_used: Bools
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return 2·rank − (n+1) of every row, and Σ(t³−t) over its groups of t equal values.

    The doubled ranks are whole numbers also for ties.
    """
    n = values.shape[1]
    ranks = np.zeros(values.shape, dtype=np.int16 if n < 2**15 else np.int32)
    ties = np.zeros(len(values))
    used_rows = np.flatnonzero(is_used)
    for first in range(0, len(used_rows), ROWS_AT_ONCE):
        rows = used_rows[first : first + ROWS_AT_ONCE]
        block = values[rows]
        order = np.argsort(block, axis=1)
        ordered = np.take_along_axis(block, order, axis=1)
        start = stop = np.broadcast_to(np.arange(n), block.shape)
        is_start = np.ones(block.shape, dtype=bool)
        np.not_equal(ordered[:, 1:], ordered[:, :-1], out=is_start[:, 1:])
        # Without ties, every value is a group of its own.
        if not is_start.all():
            start, stop = _groups(is_start)
            # Each of t equal values adds t² − 1.
            ties[rows] = np.sum((stop - start + 1.0) ** 2 - 1, axis=1)
        doubled = (start + stop + (1 - n)).astype(ranks.dtype)
        block_ranks = np.empty_like(doubled)
        np.put_along_axis(block_ranks, order, doubled, axis=1)
        ranks[rows] = block_ranks
    return ranks, ties


def _groups(is_start: Bools) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the first and the last position of the group of each position in its row."""
    n = is_start.shape[1]
    position = np.arange(n)
    is_stop = np.ones_like(is_start)
    is_stop[:, :-1] = is_start[:, 1:]
    start = np.maximum.accumulate(np.where(is_start, position, 0), axis=1)
    backwards = np.where(is_stop, position, n - 1)[:, ::-1]
    stop = np.minimum.accumulate(backwards, axis=1)[:, ::-1]
    return start, stop


def _sum_of_squares(neighbours: sparse.csr_array, ranks: NDArray[Any]) -> NDArray[np.float64]:
    """Return Σ_t (S R)_t² of each vertex."""
    total = np.zeros(len(ranks))
    for first in range(0, ranks.shape[1], VOLUMES_AT_ONCE):
        block = ranks[:, first : first + VOLUMES_AT_ONCE].astype(np.int32)
        rank_sums = (neighbours @ block).astype(np.float64)
        total += np.einsum("vt,vt->v", rank_sums, rank_sums)
    return total
