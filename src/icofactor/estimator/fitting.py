"""One fit, step by step: the first look at X, the starts and the refinement, the basis on every
site.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from icofactor.cohort.measures import Measures
from icofactor.factorization._lift import Basis, full_basis, lift, loadings
from icofactor.factorization._multistart import Multistart, Search, best_of_starts
from icofactor.factorization._refine import Refined, refined_by
from icofactor.factorization.design import Design
from icofactor.factorization.gathering import look_over
from icofactor.factorization.methods import Method
from icofactor.factorization.scaling import Canonical, canonical, unit_of
from icofactor.factorization.statistics import Data, Pyramid, Source, Statistics, pyramid_level
from icofactor.preprocessing.centering import Centering, means_of
from icofactor.progress import Stages
from icofactor.sphere.sites import Sites
from icofactor.streaming.inspect import Inspector
from icofactor.streaming.passes import Stream
from icofactor.streaming.runners import Runner
from icofactor.streaming.source import Adjusted, Adjustment

if TYPE_CHECKING:
    from icofactor.estimator.estimator import CorticalFactorization

Report = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit found on the sites used, in the data's units.

    Attributes
    ----------
    reported : components, loadings and their scale
    starts, refined, centering : how it was found
    error, variance : ‖X − WC‖² and Σ (x − the site's mean)² of X as it was fitted
    bytes_read : of maps
    measures : what was found of each of several
    """

    reported: Canonical
    starts: Multistart
    refined: Refined
    centering: Centering
    error: float
    variance: float
    bytes_read: int
    measures: Measures | None = None


@dataclass(frozen=True, eq=False)
class _Look:
    """The first look at X.

    Attributes
    ----------
    X, stats, source : X as it is fitted, its statistics, and what answers divisions
    centering, variance : what was taken out, and Σ (x − mean)² of what is left of each measure
    unit : what X was divided by, besides
    passed : the streams that were passed over, X the last
    """

    X: Stream
    stats: Statistics
    source: Source
    centering: Centering
    variance: np.ndarray
    unit: float
    passed: tuple[Stream, ...]


def make_fit(
    settings: CorticalFactorization,
    method: Method,
    X: Stream,
    sites: Sites,
    names: Sequence[str] | None,
    measures: Measures | None = None,
) -> Fitted:
    """Fit X, the maps at `sites` of subjects with these `names`, by the parameters of the
    estimator.
    """
    stages, scheme = Stages(settings.verbose), method.scheme
    design = Design.starting(sites, settings.columns, settings.level, settings.sigma)
    with stages.stage("statistics") as show:
        seen = _look_at(settings, method, X, sites, design, names, measures, show)
    view, stats, unit, centering = seen.X, seen.stats, seen.unit, seen.centering
    starts, refined = _fit_coarse(settings, method, X.runner, seen, design, stages)
    penalty, sq_norm, variance, passed = (
        refined.solution.penalty,
        stats.sq_norm,
        seen.variance,
        seen.passed,
    )
    fitted = None if measures is None else _found(measures, centering, variance)
    del design, seen, stats  # as large as a component or two
    with stages.stage("lift") as show:
        basis = _full_basis(settings, method, view, refined, centering.mean_left_in, show)
        C = loadings(basis.WX, basis.WW, scheme, penalty)
        for _ in range(settings.polish if settings.lift and not scheme.projective else 0):
            weight = sites.n_roots / sites.total_weight
            basis = lift(view, C, scheme, penalty, weight, basis.W, weights=sites.weights)
            C = loadings(basis.WX, basis.WW, scheme, penalty)
    reported, error = (
        canonical(basis.W, C, less_mean(C, centering.codes), scheme, sites.weights),
        basis.error(C, sq_norm),
    )
    if unit != 1:
        starts, reported, error = starts.times(unit), reported.times(unit), error * unit**2
        refined = replace(
            refined, solution=refined.solution.times(unit), stats=refined.stats.times(unit)
        )
    bytes_read = sum(stream.bytes_read for stream in set(passed))
    return Fitted(
        reported, starts, refined, centering, error, float(variance.sum()), bytes_read, fitted
    )


def less_mean(C: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
    """Return loadings, components × rows, less their mean over all rows, or those with its code."""
    if codes is None:
        return C - C.mean(axis=1, keepdims=True)
    return C - means_of(C.T, codes)[codes].T


def _look_at(
    settings: CorticalFactorization,
    method: Method,
    X: Stream,
    sites: Sites,
    design: Design,
    names: Sequence[str] | None,
    measures: Measures | None,
    report: Report,
) -> _Look:
    """Look at X, centre it, gather its statistics and choose its unit: one pass over X, and a
    second for z-scores.
    """
    center, codes = settings.centers_by, None
    if measures is not None:
        center = measures.center(center, settings.center, method)
        codes = measures.codes(X.shape[1])
    inspector = Inspector(sites.n, X.shape[1], method.refusal(center), names, codes)
    passed, gathered, changed = [X], X, False
    if center == "zscore":
        look_over(X, inspector, lambda done: report(done / 2))
        inspector.check()
        centering = Centering.of(center, inspector, measures, sites)
        gathered = Stream(Adjusted(X.source, centering.adjustment or Adjustment()), X.runner)
        passed.append(gathered)
        inspector = Inspector(sites.n, X.shape[1], None, names, codes)
        stats, source = _gather(
            settings, gathered, sites, design, inspector, lambda done: report(0.5 + done / 2)
        )
        energy = inspector.site_energy if codes is None else inspector.site_energy.sum(axis=0)
    else:
        stats, source = _gather(settings, X, sites, design, inspector, report)
        inspector.check()
        centering = Centering.of(center, inspector, measures, sites)
        energy, changed = centering.energy(inspector), centering.adjustment is not None
    if isinstance(source, Pyramid):
        source = source.deviations(energy, centering.change, own=True) if changed else source
        stats = source.statistics(design)
    else:
        assert stats is not None
        if changed:
            inside = design.site_column >= 0
            heavy = sites.weigh(energy)
            of_faces = np.bincount(
                design.site_column[inside], heavy[inside], minlength=design.n_columns
            )
            stats = stats.deviations(of_faces, float(heavy.sum()), centering.change)
    unit = unit_of(stats, method.scheme, settings.rules, settings.penalty)
    if changed or unit != 1:
        gathered = Stream(
            Adjusted(X.source, _in_unit(centering.adjustment, unit, sites.n)), X.runner
        )
        passed.append(gathered)
        stats = stats if unit == 1 else stats.times(1 / unit)
        if not isinstance(source, Pyramid):
            source = Data(gathered, sites, energy / unit**2)
        elif unit != 1:
            source = source.times(1 / unit)
    return _Look(
        gathered,
        stats,
        source,
        centering,
        centering.variance(inspector, sites.weights),
        unit,
        tuple(passed),
    )


def _found(measures: Measures, centering: Centering, variance: np.ndarray) -> Measures:
    """The measures with what the fit found of each."""
    factor = np.ones(measures.n) if centering.factor is None else centering.factor
    return replace(measures, factor=factor, variance=variance / variance.sum())


def _in_unit(adjustment: Adjustment | None, unit: float, n_sites: int) -> Adjustment:
    """The same, with what comes out divided by `unit`."""
    before = adjustment or Adjustment()
    if unit == 1:
        return before
    ones = np.ones(n_sites) if before.offset is None else np.ones_like(before.offset)
    return replace(before, scale=(ones if before.scale is None else before.scale) * unit)


def _gather(
    settings: CorticalFactorization,
    X: Stream,
    sites: Sites,
    design: Design,
    inspector: Inspector,
    report: Report,
) -> tuple[Statistics | None, Source]:
    """The statistics, unless a pyramid has them, and what answers divisions; one pass over X."""
    # parcels are few
    if (
        settings.columns == "partition" and not X.source.held and sites.regions is None
    ):  # divisions must not read X again
        level = pyramid_level(sites, X.shape[1], design.level, settings.schedule.steps)
        return None, Pyramid.from_data(X, sites, level, inspector=inspector, report=report)
    stats = Statistics.from_data(X, design, inspector=inspector, report=report)
    site_energy = inspector.site_energy
    return stats, Data(
        X, sites, site_energy if inspector.codes is None else site_energy.sum(axis=0)
    )


def _fit_coarse(
    settings: CorticalFactorization,
    method: Method,
    runner: Runner,
    seen: _Look,
    design: Design,
    stages: Stages,
) -> tuple[Multistart, Refined]:
    """The starts and the refinement, in design coordinates."""
    scheme = method.scheme
    n_starts = scheme.n_starts if settings.n_starts is None else settings.n_starts
    with stages.stage("starts") as show:
        search = Search(
            method,
            settings.n_components,
            n_starts,
            settings.n_iter,
            settings.tol,
            settings.halving,
            settings.rules,
            settings.penalty,
            settings.engine,
        )
        cluster = runner if runner.remote else None
        starts = best_of_starts(seen.stats, search, settings.random_state, show, cluster)
    with stages.stage("refinement") as show:
        schedule, penalty, engine = settings.schedule, settings.penalty, settings.engine
        refined = refined_by(
            seen.source, design, seen.stats, starts, schedule, penalty, engine, show
        )
    return starts, refined


def _full_basis(
    settings: CorticalFactorization,
    method: Method,
    view: Stream,
    refined: Refined,
    mean: np.ndarray | None,
    report: Report,
) -> Basis:
    """The basis on every site; `mean` is the mean map where it was not taken out and all values are
    ≥ 0.
    """
    solution, design = refined.solution, refined.design
    if not settings.lift:  # its products with X are sums that are known
        B, stats = solution.B, refined.stats
        WX = np.ascontiguousarray((stats.L @ B).T)
        return Basis(np.asarray(design.matrix @ B), WX, B.T @ (stats.K @ B), design.sites.weights)
    return full_basis(
        view,
        design,
        refined.stats,
        solution.B,
        solution.C,
        method.scheme,
        solution.penalty,
        mean,
        settings.polish,
        report,
    )
