"""One fit in its steps: statistics, starts and refinement, the basis on every site, its scale."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.cohort.adjusted import subject_names
from icofactor.factorization._lift import Basis, full_basis, lift, loadings
from icofactor.factorization._multistart import Multistart, multistart
from icofactor.factorization._refine import Refined, refine
from icofactor.factorization.design import Design
from icofactor.factorization.methods import Method
from icofactor.factorization.scaling import Canonical, canonical, unit_of
from icofactor.factorization.sources import Data, Pyramid, Source, pyramid_level
from icofactor.factorization.statistics import Statistics
from icofactor.maps.adjustment import Adjustment
from icofactor.maps.maps import Maps
from icofactor.maps.passes import Report
from icofactor.preprocessing.centering import Centering, centering_before
from icofactor.preprocessing.summary import Summary
from icofactor.progress import Stages
from icofactor.sphere.sites import Sites

if TYPE_CHECKING:
    from icofactor.estimator.estimator import CorticalFactorization


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a fit estimated at the sites in use, in the units of the data.

    Attributes
    ----------
    reported : components, loadings and their scale
    starts, refined : how the coarse problem was solved
    centering : what was taken out of the maps
    error, variance : ‖X − WC‖² and Σ (x − the site's mean)² of X as it was fitted
    """

    reported: Canonical
    starts: Multistart
    refined: Refined
    centering: Centering
    error: float
    variance: float


@dataclass(frozen=True, eq=False)
class Gathered:
    """What one pass over the maps, and perhaps one before it, tells a fit.

    Attributes
    ----------
    stats, source : statistics of the maps as they are fitted, and what answers divisions of faces
    unit : what the maps are divided by for the fit
    centering, variance : as in `Fitted`
    """

    stats: Statistics
    source: Source
    unit: float
    centering: Centering
    variance: float


def fit_maps(
    settings: CorticalFactorization,
    method: Method,
    X: Any,
    maps: Maps,
    sites: Sites,
) -> Fitted:
    """Fit the maps of X at `sites` by the parameters of the estimator."""
    stages = Stages(settings.verbose)
    design = Design.starting(sites, settings.columns, settings.level, settings.sigma)
    with stages.stage("statistics") as report:
        maps, gathered = gather_statistics(settings, method, X, maps, design, report)
    with stages.stage("starts") as report:
        n_starts = settings.n_starts
        starts = multistart(
            gathered.stats,
            settings.method,
            settings.n_components,
            n_starts=method.scheme.n_starts if n_starts is None else n_starts,
            n_iter=settings.n_iter,
            tol=settings.tol,
            halving=settings.halving,
            rules=settings.rules,
            penalty=settings.penalty,
            engine=settings.engine,
            random_state=settings.random_state,
            report=report,
        )
    with stages.stage("refinement") as report:
        refined = refine(
            gathered.source,
            design,
            gathered.stats,
            starts,
            settings.schedule,
            penalty=settings.penalty,
            engine=settings.engine,
            report=report,
        )
    with stages.stage("lift") as report:
        mean = gathered.centering.mean_left_in
        basis, C = basis_and_loadings(settings, method, maps, refined, mean, report)
    # Loadings of NMF keep a mean, which is no variance between people.
    deviations = gathered.centering.deviations(C)
    fitted = Fitted(
        reported=canonical(basis.W, C, deviations, method.scheme, sites.weights),
        starts=starts,
        refined=refined,
        centering=gathered.centering,
        error=basis.error(C, gathered.stats.sq_norm),
        variance=gathered.variance,
    )
    return in_units(fitted, gathered.unit)


def gather_statistics(
    settings: CorticalFactorization,
    method: Method,
    X: Any,
    maps: Maps,
    design: Design,
    report: Report,
) -> tuple[Maps, Gathered]:
    """Return the maps as they are fitted, centred and in their unit, and their statistics.

    It takes one pass over the maps; z-scores, and scales of the data, take one more before it.
    """
    kind = settings.centers_by
    measured = centering_before(X, settings, method, maps, design.sites)
    refusal = method.refusal(kind)
    if measured is not None:
        # Values were checked by the pass before.
        kind, refusal = measured.centering.kind, None
        maps = measured.centering.applied(maps)
    summary = Summary(maps.n_sites, maps.n_subjects, refusal, subject_names(X))
    stats, pyramid = statistics_of(settings, maps, design, summary, report)
    centering = Centering.of(kind, [summary]) if measured is None else measured.centering
    site_energy = summary.site_energy
    if measured is None:
        summary.check()
        if kind == "mean":
            # The statistics of deviations follow from those of the maps.
            site_energy = summary.site_variance
            if pyramid is None:
                stats = stats.deviations_at(design, site_energy)
            else:
                pyramid.take_out_mean(site_energy)
                stats = pyramid.statistics(design)
            maps = centering.applied(maps)
    # Penalties and starts are relative to the size of the data.
    unit = unit_of(stats, method.scheme, settings.rules, settings.penalty)
    if unit != 1:
        maps = maps.adjusted(Adjustment(scale=np.full((1, maps.n_sites), unit)))
        stats = stats.times(1 / unit)
        if pyramid is not None:
            pyramid.divide_by(unit)
    # Energies are those of the maps in their unit, as divisions read them.
    data = Data(maps, design.sites, site_energy / unit**2)
    variance = float(design.sites.weigh(summary.site_variance).sum())
    gathered = Gathered(
        stats=stats,
        source=data if pyramid is None else pyramid,
        unit=unit,
        centering=centering,
        variance=variance if measured is None else measured.variance,
    )
    return maps, gathered


def statistics_of(
    settings: CorticalFactorization,
    maps: Maps,
    design: Design,
    summary: Summary,
    report: Report,
) -> tuple[Statistics, Pyramid | None]:
    """Return the statistics of the design, and a pyramid where divisions need not read the maps."""
    sites = design.sites
    # Parcels are few, and read again at once.
    if settings.columns != "partition" or sites.regions is not None:
        return Statistics.from_data(maps, design, accept_block=summary.add, report=report), None
    level = pyramid_level(sites, maps.n_subjects, design.level, settings.schedule.steps)
    pyramid = Pyramid.from_data(maps, sites, level, accept_block=summary.add, report=report)
    return pyramid.statistics(design), pyramid


def basis_and_loadings(
    settings: CorticalFactorization,
    method: Method,
    maps: Maps,
    refined: Refined,
    mean: np.ndarray | None,
    report: Report,
) -> tuple[Basis, np.ndarray]:
    """Return the basis on every site, and the loadings.

    `mean` is the mean map, if it was not taken out and all its values are ≥ 0.
    """
    scheme, solution, design = method.scheme, refined.solution, refined.design
    penalty, sites = solution.penalty, design.sites
    if not settings.lift:
        # The products of the coarse basis with X are sums that are known.
        B, stats = solution.B, refined.stats
        WX = np.ascontiguousarray((stats.L @ B).T)
        basis = Basis(np.asarray(design.matrix @ B), WX, B.T @ (stats.K @ B), sites.weights)
        return basis, loadings(basis.WX, basis.WW, scheme, penalty)
    basis = full_basis(
        maps,
        design,
        refined.stats,
        solution.B,
        solution.C,
        scheme,
        penalty,
        mean,
        settings.polish,
        report,
    )
    C = loadings(basis.WX, basis.WW, scheme, penalty)
    # Projective methods polish by themselves.
    for _ in range(0 if scheme.projective else settings.polish):
        # As the rows of B weigh under default rules.
        site_weight = sites.n_roots / sites.total_weight
        basis = lift(
            maps,
            C,
            scheme,
            penalty,
            site_weight,
            basis.W,
            weights=sites.weights,
        )
        C = loadings(basis.WX, basis.WW, scheme, penalty)
    return basis, C


def in_units(fitted: Fitted, unit: float) -> Fitted:
    """Return a fit of X / unit as one of X."""
    if unit == 1:
        return fitted
    refined = replace(
        fitted.refined,
        solution=fitted.refined.solution.times(unit),
        stats=fitted.refined.stats.times(unit),
    )
    return replace(
        fitted,
        reported=fitted.reported.times(unit),
        starts=fitted.starts.times(unit),
        refined=refined,
        error=fitted.error * unit**2,
    )
