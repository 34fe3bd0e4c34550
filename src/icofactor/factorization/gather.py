"""The first pass over X: the statistics of a design, and what the inspector wants to know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp

from icofactor.factorization.design import Design
from icofactor.factorization.statistics import Gathering, Pyramid, Statistics
from icofactor.sphere.sites import Sites
from icofactor.streaming.blocks import Arrays, join, map_blocks
from icofactor.streaming.checkpoint import Checkpoint
from icofactor.streaming.inspect import Inspector, look
from icofactor.streaming.passes import Streamed
from icofactor.streaming.source import SitesBySubjects

PYRAMID_BYTES = 320 * 2**20
"""A pyramid goes as deep as fits into this, so that refinement seldom meets its end."""


# ---------------------------------------------------------------------- the first pass


def pyramid_level(sites: Sites, n_subjects: int, level: int, steps: int) -> int:
    """The deepest level of a pyramid for `steps` refinements from `level`: all they can reach, or what memory allows.

    At least one level below `level` when there is any refinement.
    """
    deepest = min(level + steps, sites.max_level)
    least = min(level + 1, deepest)
    fits = lambda at: 4 / 3 * sites.n_roots * 4**at * n_subjects * 8 <= PYRAMID_BYTES
    return max([least, *(at for at in range(least, deepest + 1) if fits(at))])


def gather_pyramid(
    X: Streamed, sites: Sites, level: int, inspector: Inspector, on_part: Callable[[float], None]
) -> Pyramid:
    """Sums over all faces down to `level`, and everything the inspector wants to know, in one pass over X."""
    face, n = sites.face_at(level), sites.n_roots * 4**level
    sums = np.zeros((n, X.shape[1]))
    local = lambda part: np.unique(face[part.rows], return_inverse=True)
    pick = lambda part: [(places := local(part))[1], len(places[0])]
    for done, (part, found) in enumerate(X.run("statistics", _sum_over_places, {}, pick), 1):
        sums[local(part)[0]] += found.pop("sums")
        inspector.accept(part.rows, found)
        on_part(done / len(X.parts))
    energy = np.bincount(face, inspector.site_energy, minlength=n)
    return Pyramid.from_deepest(sums, energy, np.bincount(face, minlength=n), sites)


def _sum_over_places(
    blocks: Iterator[tuple[slice, np.ndarray]], shared: Mapping[str, Any], place: np.ndarray, n_places: int
) -> Arrays:
    """Sums of a part's sites over the places (faces) that hold them."""
    seen, sums = [], None
    for rows, x in blocks:
        seen.append(look(x))
        held, inverse = np.unique(place[rows], return_inverse=True)
        gather = sp.csr_array((np.ones(len(x)), (inverse, np.arange(len(x)))), shape=(len(held), len(x)))
        if sums is None:
            sums = np.zeros((n_places, x.shape[1]))
        sums[held] += gather @ x
    assert sums is not None
    return {**join(seen), "sums": sums}


def gather_statistics(
    X: Streamed, design: Design, inspector: Inspector, on_part: Callable[[float], None]
) -> Statistics:
    """Statistics of a design of any kind, and everything the inspector wants to know, in one pass over X."""
    D, n_k = design.matrix.tocsr(), design.n_columns
    D_root = design.roots.matrix.tocsr()
    Lt, root_Lt = np.zeros((n_k, X.shape[1])), np.zeros((design.sites.n_roots, X.shape[1]))
    for done, (rows, found) in enumerate(X.over_blocks(_columns_block, {}, [D, D_root], "statistics"), 1):
        Lt += found.pop("sum.Lt")
        root_Lt[design.roots.root] += found.pop("sum.root_Lt")
        inspector.accept(rows, found)
        on_part(done / len(X.parts))
    held = np.maximum(design.site_column, 0)
    energy = np.bincount(held, np.where(design.site_column >= 0, inspector.site_energy, 0.0), minlength=n_k)
    L, root_L, sq_norm = np.ascontiguousarray(Lt.T), root_Lt.T.copy(), float(inspector.site_energy.sum())
    return Statistics(sp.csr_array(D.T @ D), L, sq_norm, energy, design.counts, design.sites.n, root_L, design.faces)


def _columns_block(x: np.ndarray, shared: Mapping[str, Any], D: sp.csr_array, D_root: sp.csr_array) -> Arrays:
    return {**look(x), "sum.Lt": D.T @ x, "sum.root_Lt": D_root.T @ x}


def gather_held(view: SitesBySubjects, design: Design, inspector: Inspector, checkpoint: Checkpoint) -> Statistics:
    """Statistics of held data, and everything the inspector wants to know; one pass over X, or a piece kept of it."""

    def gather() -> Arrays:
        gathering = Gathering(design)
        looked = lambda rows, x: (look(x), gathering.share(rows, x))
        for rows, (seen, share) in map_blocks(view, looked):
            inspector.accept(rows, seen)
            gathering.add(rows, share)
        stats = gathering.statistics()
        arrays = {name: np.asarray(getattr(stats, name)) for name in ("L", "sq_norm", "energy", "counts", "root_L")}
        K = {"K_data": stats.K.data, "K_indices": stats.K.indices, "K_indptr": stats.K.indptr}
        return {**arrays, **K, "n_sites": np.array(stats.n_sites), **inspector.summary()}

    found = checkpoint.piece("statistics", gather)
    inspector.recall(found)
    n_k = design.n_columns
    K = sp.csr_array((found["K_data"], found["K_indices"], found["K_indptr"]), shape=(n_k, n_k))
    arrays = {name: found[name] for name in ("L", "energy", "counts", "root_L")}
    return Statistics(K=K, **arrays, sq_norm=float(found["sq_norm"]), n_sites=int(found["n_sites"]), faces=design.faces)
