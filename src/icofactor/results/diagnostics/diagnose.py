"""`diagnose`: from a fitted model and its cohort to Diagnostics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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

# Points of the curve of an objective.
_MOST_POINTS = 300
# Ward's clustering takes time and memory of the square of the people, its best order of the cube.
_MOST_CLUSTERED = 3000
_MOST_ORDERED = 600
# Unusual values: at least so far out, and by chance once in twenty cohorts.
_SMALLEST_LIMIT = 3.5
_CHANCE = 0.05
# A component extends to where its map exceeds this share of its largest value.
_EXTENT = 0.05
# Loadings that correlate more than this cannot be told apart by statistics.
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
    mask = model.mask_
    loadings = np.asarray(model.loadings_, dtype=np.float64)
    maps = model.components_ if mask is None else model.components_[:, mask]
    with one_blas_thread():
        W = np.ascontiguousarray(maps.T)
        centering = model.centering_.at(mask)
        X = read_input(cohort)[0].subset(sites=mask)
        sums = fit_pass(X, W, loadings, centering, report, model._used_weights)
    weights = np.ones(maps.shape[1]) if model._used_weights is None else model._used_weights
    total = float(sums.subject_variance.sum())
    explained = 1 - float(sums.subject_error.sum()) / total
    deviations = centering.deviations(loadings.T).T
    linear, unique = linear_shares(sums.moments, deviations, total)
    associations, groupings, excluded = compare(
        cohort.participants, loadings, n_permutations, random_state, groups
    )
    order, tree = _clustered(loadings)
    component_order, _ = _clustered(loadings.T, standard=True)
    l1_B, l1_C = _l1_norms(model, maps)
    # Sites count by their weights, if they have any.
    residual = np.sqrt(sums.subject_error / weights.sum())
    convergence = _convergence(model)
    together = _correlation(loadings.T)
    all_warnings = [
        *warnings,
        *_warnings(model, convergence, maps, together, explained, sums),
    ]
    measure_explained = None
    if model.measures_ is not None:
        codes = centering.codes(len(loadings))
        measure_explained = _explained_by_measure(model, sums, codes)
    peak = peak_memory() if memory is None else int(memory)
    return Diagnostics(
        subjects=tuple(cohort.subjects),
        hemisphere=str(cohort.hemisphere),
        modality=str(cohort.modality),
        units=str(cohort.units),
        simulated=bool(cohort.simulated),
        median=_on_all(sums.median, mask),
        deviation=_on_all(sums.deviation, mask),
        explained_map=_on_all(_share(sums.site_error, sums.site_variance), mask),
        parcellation=winner_takes_all(model.components_, loadings, mask).astype(np.int16),
        depth=np.asarray(model.depth_, dtype=np.int16),
        loadings=loadings,
        residual=residual,
        subject_explained=_share(sums.subject_error, sums.subject_variance),
        explained=explained,
        measure_explained=measure_explained,
        explained_X=1 - sums.sq_error / sums.sq_norm,
        alone=np.asarray(model.explained_variance_ratio_, dtype=np.float64),
        unique=unique,
        linear=linear,
        l1_B=l1_B,
        l1_C=l1_C,
        extent=_extent(maps, weights),
        overlap=_overlap(maps * weights),
        similarity=np.clip(map_similarity(maps, maps, weights), -1, 1),
        together=together,
        order=order,
        component_order=component_order,
        tree=tree,
        convergence=convergence,
        associations=associations,
        groupings=groupings,
        unusual=unusual_subjects(loadings, residual),
        left_out=excluded,
        timing={**(timing or {}), "diagnostics": time.perf_counter() - begin},
        memory=peak,
        warnings=tuple(dict.fromkeys(str(text) for text in all_warnings)),
    )


def _check(model: Any, cohort: Any) -> None:
    if not hasattr(model, "components_"):
        raise ArgumentError("model", f"this {type(model).__name__} is not fitted: call fit first")
    if not (hasattr(cohort, "subjects") and hasattr(cohort, "X")):
        raise ArgumentError("cohort", f"must be a Cohort; found {type(cohort).__name__}")
    if len(cohort.subjects) != len(model.loadings_):
        raise ArgumentError(
            "cohort",
            f"must have the {len(model.loadings_)} subjects that the model was fitted to; found "
            f"{len(cohort.subjects)}",
        )
    if not same_sites(cohort.sites, model.sites_):
        raise ArgumentError(
            "cohort", f"must be on {model.sites_!r} as the model is; found {cohort.sites!r}"
        )


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


def _explained_by_measure(model: Any, sums: Pass, codes: np.ndarray | None) -> np.ndarray:
    """Return the share of each measure's variance that the fit explains."""
    if codes is not None:
        # Measures are rows: their codes are those of subjects.
        error = np.bincount(codes, sums.subject_error)
        return _share(error, np.bincount(codes, sums.subject_variance))
    measure = model._used(model.sites_.copy)
    weights = 1.0 if model._used_weights is None else model._used_weights
    error = np.bincount(measure, sums.site_error * weights)
    return _share(error, np.bincount(measure, sums.site_variance * weights))


def _l1_norms(model: Any, maps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ‖B_j‖₁ and ‖C_j‖₁ in design coordinates, in the order of the components.

    The solution keeps the order of its start; its components are recognized by their maps D B.
    """
    B = np.asarray(model.solution_.B)
    C = np.asarray(model.solution_.C)
    solution_maps = np.ascontiguousarray((model.design_.matrix @ B).T)
    agreement = np.abs(_unit_rows(maps) @ _unit_rows(solution_maps).T)
    # Each component of the solution is one map, however similar two of them are.
    _, column = linear_sum_assignment(-agreement)
    return np.abs(B).sum(axis=0)[column], np.abs(C).sum(axis=1)[column]


def _unit_rows(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)


def _extent(maps: np.ndarray, weights: np.ndarray) -> np.ndarray:
    sizes = np.abs(maps)
    return np.average(sizes > _EXTENT * sizes.max(axis=1, keepdims=True), axis=1, weights=weights)


def _overlap(maps: np.ndarray) -> np.ndarray:
    """Return Σ over sites of min(p_i, p_j), where p is a map's absolute values over their sum."""
    sizes = np.abs(maps)
    shares = sizes / np.maximum(sizes.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    return np.array([np.minimum(shares, row).sum(axis=1) for row in shares])


def _correlation(rows: np.ndarray) -> np.ndarray:
    unit = standardised(rows.T)
    return np.clip(unit.T @ unit, -1, 1)


def _clustered(rows: np.ndarray, standard: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return an order in which similar rows are neighbours, and the tree of Ward's clustering.

    Very many rows are put in the order of their first principal component, without a tree.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage

    n = len(rows)
    no_tree = np.empty((0, 4))
    # Columns of loadings are alike where they correlate, whatever their size.
    points = standardised(rows.T).T if standard else standardised(rows)
    if n < 3:
        return np.arange(n), no_tree
    if n > _MOST_CLUSTERED:
        axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[0]
        return np.argsort(axes[:, 0], kind="stable"), no_tree
    tree = linkage(points, "ward", optimal_ordering=n <= _MOST_ORDERED)
    return leaves_list(tree).astype(np.int64), tree


def _convergence(model: Any) -> Convergence:
    objective = np.asarray(model.solution_.objective, dtype=np.float64)
    n_updates = np.asarray(model.starts_.start_n_iter)
    # Starts that were not promising were not continued, and have no objectives.
    continued = (n_updates > 0) | (n_updates.max() == 0)
    starts = np.asarray(model.starts_.objectives, dtype=np.float64)[continued]
    updates = _thinned(min(int(n_updates.max()) + 1, starts.shape[1]))
    # A start that ended early has no objective after it; percentiles need a number.
    objectives = np.where(np.isfinite(starts[:, updates]), starts[:, updates], np.inf)
    band = np.percentile(objectives, (0, 25, 50, 75, 100), axis=0)
    best_updates = _thinned(len(objective))
    return Convergence(
        updates=best_updates,
        objective=objective[best_updates],
        band_updates=updates,
        band=np.where(np.isfinite(band), band, np.nan),
        divisions=np.asarray(model.refined_.divisions, dtype=np.int64),
        n_columns=np.asarray(model.refined_.n_columns, dtype=np.int64),
        n_starts=len(starts),
        converged=bool(model.starts_.converged),
    )


def _thinned(n: int) -> np.ndarray:
    """Return some of the numbers 0 to n − 1: dense at first, where objectives fall, then even."""
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
    # More than half of the values may be 0.
    unit = np.where(unit > 0, unit, reference.std(axis=0))
    return np.divide(values - middle, unit, out=np.zeros_like(values), where=unit > 0)


def limit_of(n_values: int) -> float:
    """The distance that normal numbers pass, anywhere among so many, once in twenty cohorts; at
    least 3.5.
    """
    return max(_SMALLEST_LIMIT, float(norm.isf(_CHANCE / max(n_values, 1))))


def unusual_subjects(loadings: np.ndarray, residual: np.ndarray) -> Unusual:
    """Loadings on either side, and residuals above, that are further out than chance explains.

    A value counts only as far out as it is both as it stands and by cube roots: loadings may be
    skewed, and cube roots of gamma numbers are nearly normal (Wilson & Hilferty). Signed loadings
    are shifted first (`_from_zero`). The limit is such that normal numbers would pass it, anywhere
    in the cohort, once in twenty cohorts; at least 3.5.
    """
    values = np.column_stack([loadings, residual])
    roots = np.cbrt(np.column_stack([_from_zero(column) for column in values.T]))
    z = robust_z(values)
    z_of_roots = robust_z(roots)
    smaller = np.abs(z_of_roots) < np.abs(z)
    z = np.where(smaller, np.copysign(z_of_roots, z), z)
    limit = limit_of(2 * z.size)
    unusual = np.abs(z) > limit
    # Only large residuals are unusual.
    unusual[:, -1] = z[:, -1] > limit
    subject, column = np.nonzero(unusual)
    order = np.argsort(-np.abs(z[subject, column]), kind="stable")
    subject = subject[order]
    column = column[order]
    component = np.where(column == loadings.shape[1], -1, column)
    return Unusual(subject, component, values[subject, column], z[subject, column], limit)


def _from_zero(values: np.ndarray) -> np.ndarray:
    """Return values whose cube roots are nearly normal: signed values are shifted, others not.

    Signed values that lean to the left are mirrored first. The shift puts the cube roots of the
    10th and 90th percentiles at equal distances from that of the median, as nearly as it can.
    """
    if values.min() == values.max():
        return np.zeros_like(values)
    if values.min() >= 0:
        return values
    low, middle, high = np.percentile(values, (10, 50, 90))
    mirrored = values if high - middle >= middle - low else -values
    shifts = np.geomspace(1e-3, 1e3, 121) * np.ptp(values) - mirrored.min()
    percentiles = np.percentile(mirrored, (10, 50, 90))
    low, middle, high = np.cbrt(np.add.outer(percentiles, shifts))
    asymmetry = np.abs((high - middle) / (middle - low) - 1)
    return np.asarray(mirrored + shifts[np.argmin(asymmetry)])


def _warnings(
    model: Any,
    convergence: Convergence,
    maps: np.ndarray,
    together: np.ndarray,
    explained: float,
    sums: Pass,
) -> Iterator[str]:
    """Yield what a reader should know before believing the rest."""
    unsure = recurrence_warning(model)
    if unsure is not None:
        yield unsure
    if not convergence.converged:
        yield not_converged(model)
    empty = np.flatnonzero(np.abs(maps).max(axis=1) == 0) + 1
    if len(empty):
        yield f"Zero everywhere: component {', '.join(map(str, empty))}. Use fewer components."
    pairs = np.argwhere(np.triu(np.abs(together), 1) > _ALIKE) + 1
    if len(pairs):
        listed = ", ".join(f"{i} with {j}" for i, j in pairs[:6])
        more = f" and {len(pairs) - 6} more" if len(pairs) > 6 else ""
        yield (
            f"The loadings of some components correlate by more than ±{_ALIKE}, so that statistics "
            f"cannot tell them apart: {listed}{more}. Use fewer components."
        )
    if explained < 0:
        yield (
            "The fit explains less of the between-subject variance than the mean map would. Use "
            "another method, or another number of components."
        )
    constant = int((sums.site_variance == 0).sum())
    if constant:
        excluded = " They are left out of z-scores." if model.center_ == "zscore" else ""
        sites = "1 site in use does" if constant == 1 else f"{constant} sites in use do"
        yield f"{sites} not vary between subjects; a mask may be missing.{excluded}"


def peak_memory() -> int:
    """Most bytes this process ever had in memory; 0 where the system does not tell."""
    try:
        import resource
        import sys
    except ImportError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts kibibytes, macOS bytes.
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
