"""`diagnose`: from a fitted model and its cohort to Diagnostics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm

from icofactor.cohort.people import RowGroups
from icofactor.errors import ArgumentError
from icofactor.estimator.inputs import read_input
from icofactor.factorization.matching import map_similarity
from icofactor.maps.workers import one_blas_thread
from icofactor.results.diagnostics.blocks import Pass, fit_pass, linear_shares
from icofactor.results.diagnostics.participants import N_PERMUTATIONS, compare, standardised
from icofactor.results.diagnostics.record import Convergence, Diagnostics, Unusual
from icofactor.results.meaning import not_converged, recurrence_warning
from icofactor.sphere.meshes import same_sites

_MOST_POINTS = 300
_MOST_CLUSTERED = 3000
_MOST_ORDERED = 600
_LEAST_LIMIT, _CHANCE = 3.5, 0.05
_EXTENT = 0.05
_ALIKE = 0.95


def diagnose(
    model: Any,
    cohort: Any,
    *,
    timing: Mapping[str, float] | None = None,
    memory: int | None = None,
    warnings: Sequence[str] = (),
    n_permutations: int = N_PERMUTATIONS,
    random_state: int = 0,
    groups: RowGroups | None = None,
    report: Callable[[float], None] | None = None,
) -> Diagnostics:
    """Compute everything that the report shows of a fit, in one pass over X.

    Parameters
    ----------
    model : CorticalFactorization
        A fitted model.
    cohort : Cohort
        The cohort that it was fitted to; `X` is only sliced, a block of sites at a time.
    timing : mapping of str to float, optional
        Seconds of each stage of the fit.
    memory : int, optional
        Peak memory in bytes. Default: that of this process.
    warnings : sequence of str
        Warnings of the fit, to which those found here are added.
    n_permutations, random_state : int
        Of the tests of loadings against columns of the participants.
    groups : RowGroups, optional
        Rows that permutations keep together. Default: each row by itself.
    report : callable, optional
        Called with the fraction of X that is done.

    Returns
    -------
    Diagnostics

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(30, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, level=1, n_starts=2, random_state=0).fit(cohort)
    >>> ico.diagnostics.diagnose(model, cohort, n_permutations=20).unique.shape
    (3,)
    """
    _check(model, cohort)
    begin = time.perf_counter()
    mask, table = model.mask_, np.asarray(model.loadings_, dtype=np.float64)
    maps = model.components_ if mask is None else model.components_[:, mask]
    with one_blas_thread():
        W = np.ascontiguousarray(maps.T)
        centering = model.centering_.at(mask)
        X = read_input(cohort)[0].subset(sites=mask)
        seen = fit_pass(X, W, table, centering, report, model._used_weights)
    w = np.ones(maps.shape[1]) if model._used_weights is None else model._used_weights
    total = float(seen.subject_variance.sum())
    codes = centering.codes(len(table))
    linear, unique = linear_shares(seen.moments, centering.deviations(table.T).T, total)
    associations, groupings, left_out = compare(
        cohort.participants, table, n_permutations, random_state, groups
    )
    order, tree = _clustered(table)
    l1_B, l1_C = _l1_norms(model, maps)
    residual = np.sqrt(seen.subject_error / w.sum())
    convergence = _convergence(model)
    alone = np.asarray(model.explained_variance_ratio_, dtype=np.float64)
    together, overlap = _correlation(table.T), _overlap(maps * w)
    found = [
        *warnings,
        *_warnings(model, convergence, maps, together, 1 - seen.subject_error.sum() / total, seen),
    ]
    on_all = lambda values: _on_all(values, mask)
    return Diagnostics(
        subjects=tuple(cohort.subjects),
        hemisphere=str(cohort.hemisphere),
        modality=str(cohort.modality),
        units=str(cohort.units),
        simulated=bool(cohort.simulated),
        median=on_all(seen.median),
        deviation=on_all(seen.deviation),
        explained_map=on_all(_share(seen.site_error, seen.site_variance)),
        parcellation=winner_takes_all(model.components_, table, mask).astype(np.int16),
        depth=np.asarray(model.depth_, dtype=np.int16),
        loadings=table,
        residual=residual,
        subject_explained=_share(seen.subject_error, seen.subject_variance),
        explained=1 - float(seen.subject_error.sum()) / total,
        measure_explained=None if model.measures_ is None else _of_measures(model, seen, codes),
        explained_X=1 - seen.sq_error / seen.sq_norm,
        alone=alone,
        unique=unique,
        linear=linear,
        l1_B=l1_B,
        l1_C=l1_C,
        extent=_extent(maps, w),
        overlap=overlap,
        similarity=np.clip(map_similarity(maps, maps, w), -1, 1),
        together=together,
        order=order,
        component_order=_clustered(table.T, standard=True)[0],
        tree=tree,
        convergence=convergence,
        associations=associations,
        groupings=groupings,
        unusual=unusual_subjects(table, residual),
        left_out=left_out,
        timing={**(timing or {}), "diagnostics": time.perf_counter() - begin},
        memory=peak_memory() if memory is None else int(memory),
        warnings=tuple(dict.fromkeys(str(text) for text in found)),
    )


def _check(model: Any, cohort: Any) -> None:
    if not hasattr(model, "components_"):
        raise ArgumentError("model", f"this {type(model).__name__} is not fitted; call fit first")
    if not (hasattr(cohort, "subjects") and hasattr(cohort, "X")):
        raise ArgumentError("cohort", f"must be a Cohort; found a {type(cohort).__name__}")
    if len(cohort.subjects) != len(model.loadings_):
        raise ArgumentError(
            "cohort",
            f"has {len(cohort.subjects)} subjects, but the model was fitted to "
            f"{len(model.loadings_)}; give the cohort of the fit",
        )
    if not same_sites(cohort.sites, model.sites_):
        problem = f"is on {cohort.sites!r}, but the model is on {model.sites_!r}"
        raise ArgumentError("cohort", problem)


def _on_all(values: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """Values of the sites in use on all sites, NaN where masked."""
    if mask is None:
        return values
    full = np.full(len(mask), np.nan)
    full[mask] = values
    return full


def _share(error: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """1 − error / variance, NaN where nothing varies."""
    return 1 - np.divide(error, variance, out=np.full_like(error, np.nan), where=variance > 0)


def _of_measures(model: Any, seen: Pass, codes: np.ndarray | None) -> np.ndarray:
    """(n_measures,) share of each measure's variance that the fit explains."""
    if codes is not None:
        error, variance = (
            np.bincount(codes, values) for values in (seen.subject_error, seen.subject_variance)
        )
    else:
        part, w = model._used(model.sites_.measure), model._used_weights
        weighed = lambda values: values if w is None else values * w
        error, variance = (
            np.bincount(part, weighed(values)) for values in (seen.site_error, seen.site_variance)
        )
    return _share(error, variance)


def _l1_norms(model: Any, maps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """‖B_j‖₁ and ‖C_j‖₁ in design coordinates, in the order of the components.

    The solution keeps the order of its start; its components are recognized by their maps D B.
    """
    B, C = np.asarray(model.solution_.B), np.asarray(model.solution_.C)
    coarse = model.design_.matrix @ B
    unit = lambda rows: (
        rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    )
    _, column = linear_sum_assignment(-np.abs(unit(maps) @ unit(np.ascontiguousarray(coarse.T)).T))
    return np.abs(B).sum(axis=0)[column], np.abs(C).sum(axis=1)[column]


def _extent(maps: np.ndarray, weights: np.ndarray) -> np.ndarray:
    sizes = np.abs(maps)
    return np.average(sizes > _EXTENT * sizes.max(axis=1, keepdims=True), axis=1, weights=weights)


def _overlap(maps: np.ndarray) -> np.ndarray:
    """Σ over sites of min(p_i, p_j), where p is a map's absolute values as parts of their sum."""
    sizes = np.abs(maps)
    parts = sizes / np.maximum(sizes.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    found = np.empty((len(maps), len(maps)))
    for i in range(len(maps)):
        for j in range(i + 1):
            found[i, j] = found[j, i] = np.minimum(parts[i], parts[j]).sum()
    return found


def _correlation(rows: np.ndarray) -> np.ndarray:
    unit = standardised(rows.T)
    return np.clip(unit.T @ unit, -1, 1)


def _clustered(rows: np.ndarray, standard: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """An order of the rows in which alike ones are neighbours (Ward's clustering), and the tree it
    comes from.

    Very many rows are put in the order of their first principal component, without a tree.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage

    n = len(rows)
    points = standardised(rows.T).T if standard else standardised(rows)
    if n < 3:
        return np.arange(n), np.empty((0, 4))
    if n > _MOST_CLUSTERED:
        leading = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[0][:, 0]
        return np.argsort(leading, kind="stable"), np.empty((0, 4))
    tree = linkage(points, "ward", optimal_ordering=n <= _MOST_ORDERED)
    return leaves_list(tree).astype(np.int64), tree


def _convergence(model: Any) -> Convergence:
    objective = np.asarray(model.solution_.objective, dtype=np.float64)
    made = np.asarray(model.starts_.start_n_iter)
    starts = np.asarray(model.starts_.objectives, dtype=np.float64)[(made > 0) | (made.max() == 0)]
    at = _thinned(min(int(made.max()) + 1, starts.shape[1]))
    band = np.percentile(
        np.where(np.isfinite(starts[:, at]), starts[:, at], np.inf), (0, 25, 50, 75, 100), axis=0
    )
    kept = _thinned(len(objective))
    return Convergence(
        updates=kept,
        objective=objective[kept],
        band_updates=at,
        band=np.where(np.isfinite(band), band, np.nan),
        divisions=np.asarray(model.refined_.divisions, dtype=np.int64),
        n_columns=np.asarray(model.refined_.n_columns, dtype=np.int64),
        n_starts=len(starts),
        converged=bool(model.starts_.converged),
    )


def _thinned(n: int) -> np.ndarray:
    """At most so many of the numbers 0 to n − 1: dense at first, where objectives fall, then even."""
    if n <= _MOST_POINTS:
        return np.arange(n)
    early = np.geomspace(1, n - 1, _MOST_POINTS // 2)
    even = np.linspace(0, n - 1, _MOST_POINTS // 2)
    return np.unique(np.round(np.concatenate([[0], early, even])).astype(np.int64))


def robust_z(values: np.ndarray, reference: np.ndarray | None = None) -> np.ndarray:
    """Distance from the reference's (by default their own) median in units of 1.4826 of its median
    absolute deviations.

    Where more than half of the values are the same, the standard deviation takes that unit's place.
    By column.
    """
    reference = values if reference is None else reference
    middle = np.median(reference, axis=0)
    unit = 1.4826 * np.median(np.abs(reference - middle), axis=0)
    unit = np.where(unit > 0, unit, reference.std(axis=0))
    return np.divide(values - middle, unit, out=np.zeros_like(values), where=unit > 0)


def limit_of(n_values: int) -> float:
    """The distance that normal numbers pass, anywhere among so many, once in twenty cohorts; at
    least 3.5.
    """
    return max(_LEAST_LIMIT, float(norm.isf(_CHANCE / max(n_values, 1))))


def unusual_subjects(loadings: np.ndarray, residual: np.ndarray) -> Unusual:
    """Loadings on either side, and residuals above, that are further out than chance explains.

    A value counts only as far out as it is both as it stands and by cube roots: loadings may be
    skewed, and cube roots of gamma numbers are nearly normal (Wilson & Hilferty). Signed loadings
    are shifted first (`_from_zero`). The limit is such that normal numbers would pass it, anywhere
    in the cohort, once in twenty cohorts; at least 3.5.
    """
    values = np.column_stack([loadings, residual])
    z = robust_z(values)
    by_root = robust_z(np.cbrt(np.column_stack([_from_zero(column) for column in values.T])))
    z = np.where(np.abs(by_root) < np.abs(z), np.copysign(by_root, z), z)
    limit = limit_of(2 * z.size)
    far = np.abs(z) > limit
    far[:, -1] = z[:, -1] > limit
    subject, which = np.nonzero(far)
    order = np.argsort(-np.abs(z[subject, which]), kind="stable")
    subject, which = subject[order], which[order]
    component = np.where(which == loadings.shape[1], -1, which)
    return Unusual(subject, component, values[subject, which], z[subject, which], limit)


def _from_zero(values: np.ndarray) -> np.ndarray:
    """Values ≥ 0 as they are; signed ones shifted, and turned round where they lean to the left, so
    that the cube roots of their 10th and 90th percentiles lie at equal distances from that of their
    median, or as nearly so as can be.
    """
    if values.min() >= 0 or values.min() == values.max():
        return np.maximum(values, 0.0) if values.min() >= 0 else np.zeros_like(values)
    low, middle, high = np.percentile(values, (10, 50, 90))
    turned = values if high - middle >= middle - low else -values
    shifts = np.geomspace(1e-3, 1e3, 121) * np.ptp(values) - turned.min()
    low, middle, high = np.cbrt(np.add.outer(np.percentile(turned, (10, 50, 90)), shifts))
    return np.asarray(turned + shifts[np.argmin(np.abs((high - middle) / (middle - low) - 1))])


def _warnings(
    model: Any,
    convergence: Convergence,
    maps: np.ndarray,
    together: np.ndarray,
    explained: float,
    seen: Pass,
) -> list[str]:
    """What a reader should know before believing the rest."""
    unsure = recurrence_warning(model)
    found = [] if unsure is None else [unsure]
    if not convergence.converged:
        found.append(not_converged(model))
    empty = np.flatnonzero(np.abs(maps).max(axis=1) == 0) + 1
    if len(empty):
        found.append(
            f"Zero everywhere: component {', '.join(map(str, empty))}. Use fewer components."
        )
    pairs = np.argwhere(np.triu(np.abs(together), 1) > _ALIKE) + 1
    if len(pairs):
        listed = ", ".join(
            f"{i} with {j}" for i, j in pairs[:6]
        ) + f" and {len(pairs) - 6} more" * (len(pairs) > 6)
        found.append(
            f"The loadings of some components correlate by more than ±{_ALIKE}, so that statistics cannot tell them "
            f"apart: {listed}. Use fewer components."
        )
    if explained < 0:
        found.append(
            "The fit explains less of the between-subject variance than the mean map would. Use another method, or "
            "another number of components."
        )
    still = int((seen.site_variance == 0).sum())
    if still:
        left_out = " They are left out of z-scores." if model.center_ == "zscore" else ""
        sites = "1 site in use does" if still == 1 else f"{still} sites in use do"
        found.append(f"{sites} not vary between subjects; a mask may be missing.{left_out}")
    return found


def peak_memory() -> int:
    """Most bytes this process ever had in memory; 0 where the system does not tell."""
    try:
        import resource
        import sys
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else 1024 * peak)


def winner_takes_all(
    components: ArrayLike, loadings: ArrayLike | None = None, mask: ArrayLike | None = None
) -> NDArray[np.int32]:
    """The component that carries most at each site: the largest |w_jv|·rms(c_j).

    Parameters
    ----------
    components : (k, n_sites) basis maps w.
    loadings : (n_subjects, k) loadings c; None counts every component alike, as its map stands.
    mask : (n_sites,) bool, True where a site is used.

    Returns
    -------
    (n_sites,) 1 to k; 0 where masked, or where all components are zero.
    """
    maps = np.abs(np.asarray(components))
    if loadings is not None:
        # loadings of the projective methods have no scale of their own; for others this is 1
        maps = (
            maps
            * np.sqrt(np.mean(np.square(np.asarray(loadings, dtype=np.float64)), axis=0))[:, None]
        )
    winner = 1 + np.argmax(maps, axis=0)
    winner[maps.max(axis=0) == 0] = 0
    if mask is not None:
        winner[~np.asarray(mask)] = 0
    return winner.astype(np.int32)
