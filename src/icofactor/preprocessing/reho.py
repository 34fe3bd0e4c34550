"""ReHo: how alike the series of a vertex and of its neighbours on the mesh run (Kendall's W)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from icofactor.checks import Whole, check_value
from icofactor.errors import ArgumentError, Phrase
from icofactor.preprocessing.temporal import Bools, checked_series
from icofactor.sphere.operators import adjacency
from icofactor.sphere.triangles import check_faces

# Rows ranked and volumes summed together: bounds the memory beside the series and their ranks.
_ROWS, _VOLUMES = 1024, 128


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
    >>> concordance.shape, bool(concordance.mean() < 0.2)  # noise does not agree with its neighbours
    ((642,), True)
    """
    values, used = checked_series(series, mask=mask)
    around = ring_incidence(faces, len(values), rings)
    ranks, ties = _centred_ranks(values, used)
    n = values.shape[1]
    m = (around @ used.astype(np.int64)).astype(np.float64)
    squares = _sum_of_squares(around, ranks)
    most = m**2 * (float(n) ** 3 - n)
    if tie_correction:
        most -= m * (around @ ties)
    alone = ~used | (m < 2)
    out = np.divide(3 * squares, most, out=np.zeros(len(values)), where=~alone & (most > 0))
    return np.clip(out, 0.0, 1.0)


def ring_incidence(faces: ArrayLike, n_vertices: int, rings: int) -> sparse.csr_array:
    """Matrix of shape (n_vertices, n_vertices) with ones: row v marks v and the vertices within
    `rings` edges of it.

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
        found = Phrase(f"{triangles.min()} to {triangles.max()}")
        raise ArgumentError(
            "faces", found, f"numbers of vertices, 0 to {n_vertices - 1}, the rows of the series"
        )
    step = _ones(
        sparse.csr_array(
            adjacency(triangles, n_vertices) + sparse.eye_array(n_vertices, dtype=np.int32)
        )
    )
    reach = step
    for _ in range(rings - 1):
        reach = _ones(reach @ step)
    return reach


def _ones(matrix: sparse.csr_array) -> sparse.csr_array:
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _centred_ranks(values: NDArray[Any], used: Bools) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """2·rank − (n+1) of every row, whole numbers also for ties; and Σ(t³−t) over its groups of
    equal values.
    """
    n = values.shape[1]
    ranks = np.zeros(values.shape, dtype=np.int16 if n < 2**15 else np.int32)
    ties = np.zeros(len(values))
    rows = np.flatnonzero(used)
    for first in range(0, len(rows), _ROWS):
        some = rows[first : first + _ROWS]
        block = values[some]
        order = np.argsort(block, axis=1)
        ordered = np.take_along_axis(block, order, axis=1)
        place = np.broadcast_to(np.arange(n), block.shape)
        new = np.ones(block.shape, dtype=bool)
        np.not_equal(ordered[:, 1:], ordered[:, :-1], out=new[:, 1:])
        start = stop = place
        if not new.all():
            last = np.concatenate([new[:, 1:], np.ones((len(block), 1), dtype=bool)], axis=1)
            start = np.maximum.accumulate(np.where(new, place, 0), axis=1)
            stop = np.minimum.accumulate(np.where(last, place, n - 1)[:, ::-1], axis=1)[:, ::-1]
            # each of a group's t members adds t² − 1
            ties[some] = np.sum((stop - start + 1.0) ** 2 - 1, axis=1)
        centred = np.empty_like(ranks, shape=block.shape)
        np.put_along_axis(centred, order, (start + stop + (1 - n)).astype(centred.dtype), axis=1)
        ranks[some] = centred
    return ranks, ties


def _sum_of_squares(around: sparse.csr_array, ranks: NDArray[Any]) -> NDArray[np.float64]:
    """Σ_t (S R)_t² of each vertex, some volumes at a time."""
    total = np.zeros(len(ranks))
    for first in range(0, ranks.shape[1], _VOLUMES):
        sums = (around @ ranks[:, first : first + _VOLUMES].astype(np.int32)).astype(np.float64)
        total += np.einsum("vt,vt->v", sums, sums)
    return total
