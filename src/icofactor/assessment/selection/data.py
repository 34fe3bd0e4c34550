"""The data of a selection: sums over faces, of which every subset of subjects and faces is a small
problem.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from icofactor.cohort.measures import Arrangement, Measures, measures_of
from icofactor.estimator.inputs import Placement, check_mask, read_input
from icofactor.factorization._multistart import multistart
from icofactor.factorization._solve import Course, Run
from icofactor.factorization.design import Design
from icofactor.factorization.engines import choose_engine
from icofactor.factorization.methods import Method, method_named
from icofactor.factorization.scaling import loading_size, map_signs
from icofactor.factorization.schemes.base import Problem, Scheme, square_root
from icofactor.factorization.sources import Pyramid
from icofactor.factorization.starts import check_problem, draw_starts, seeds_of
from icofactor.factorization.statistics import Statistics
from icofactor.factorization.update import State, begin
from icofactor.io.archive import digest
from icofactor.maps.blocks import cut
from icofactor.maps.maps import Maps
from icofactor.maps.workers import one_blas_thread
from icofactor.preprocessing.confounds import Confounds
from icofactor.preprocessing.summary import Summary
from icofactor.sphere.sites import Sites

SWEEPING_UPDATES = 48
"""Updates of coordinate descent: it is within 1e-3 of its end after these."""
SCREENING_UPDATES = 480
"""Other updates move slower: by these the best of random starts is found, which then goes on to its
end.
"""
TOL, MOST_UPDATES = 1e-5, 100_000
"""The end: the objective fell by less than TOL, relative, over ten updates. The number of updates
is never met.
"""
FINISHED, COMPARED_AT, HARD_TOL = 3, 10, 1e-4
"""Of hard starts the best few make this many updates, and the best of these goes on to its end. Its
steps are large: with `TOL` halves of real thickness agreed no better.
"""

_AT_ONCE = 2048
"""Of so many subjects sums are copied at a time."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A factorization on the faces.

    Attributes
    ----------
    B : n_k × n_d
    C : n_d × n_subjects, or × the maps that stand for them (`Coarse.condensed`)
    penalty : λ of the fit
    error : squared error on the faces
    """

    B: np.ndarray
    C: np.ndarray
    penalty: float
    error: float

    def maps(self, counts: np.ndarray) -> np.ndarray:
        """n_d × n_k maps in the data's units: those of a subject whose loading is the root mean
        square; signs such that maps are mostly positive, where faces have `counts` sites;
        components in no order.
        """
        return np.asarray((self.B * (loading_size(self.C) * map_signs(self.B, counts))).T)


class View(NamedTuple):
    """Maps as a fit to some subjects sees them.

    Attributes
    ----------
    own : of these subjects; of many, others with the same products (`Coarse.condensed`)
    other : (n, n_k) sums of others
    mean : mean map of these subjects, for each other where rows are of several measures
    """

    own: Coarse
    other: np.ndarray
    mean: np.ndarray


@dataclass(frozen=True, eq=False)
class Coarse:
    """Sums of a cohort's maps over the faces of one level.

    Attributes
    ----------
    stats : Statistics of the partition design of that level; ‖X‖² counts what the faces resolve,
        not more
    design : Design
    center : what every fit takes out of the maps of its own subjects first: "none", "mean" or
        "zscore"
    confounds : what it takes out before that
    measures : of which it centres and scales each by itself
    """

    stats: Statistics
    design: Design
    center: str = "none"
    confounds: Confounds | None = None
    measures: Measures | None = None

    @classmethod
    def of(
        cls,
        pyramid: Pyramid,
        level: int,
        center: str = "none",
        confounds: Confounds | None = None,
        measures: Measures | None = None,
    ) -> Coarse:
        design = Design(pyramid.sites, level=level)
        return cls.on(pyramid.statistics(design), design, center, confounds, measures)

    @classmethod
    def on(cls, found: Statistics, design: Design, *taken_out: Any) -> Coarse:
        """From statistics that count all of the data; `taken_out`: center, confounds and measures."""
        return cls(replace(found, sq_norm=_resolved(found.L, found.counts)), design, *taken_out)

    @cached_property
    def codes(self) -> np.ndarray | None:
        """(n_subjects,) measure of each row, where they are of several."""
        return None if self.measures is None else self.measures.codes(self.n_subjects)

    def adjusted(self, subjects: np.ndarray) -> Coarse:
        """All maps less their confounds, as far as `subjects` tell what these do; of nobody else is
        anything used.
        """
        if self.confounds is None:
            return self
        return replace(
            self.with_means(
                self.confounds.removed_from_array(self.means, subjects, self.arrangement)
            ),
            confounds=None,
        )

    @property
    def arrangement(self) -> Arrangement:
        """How several measures lie in the maps on faces."""
        if self.measures is None:
            return Arrangement()
        arrangement = self.measures.arrangement(self.design.sites)
        if arrangement.site_measure is None:
            return arrangement
        return replace(arrangement, site_measure=self.part)

    def member(self, rows: np.ndarray) -> np.ndarray:
        """(n_measures, n_rows) 1 where a row is of a measure; one row of ones where there is one."""
        if self.codes is None:
            return np.ones((1, len(rows)))
        measures = np.arange(int(self.codes.max()) + 1)
        return (self.codes[rows] == measures[:, None]).astype(np.float64)

    @property
    def part(self) -> np.ndarray:
        """(n_k,) measure of each face; 0 where rows are of several, or there is one."""
        faces, sites = self.design.faces, self.design.sites
        return np.asarray(sites.face_hemisphere(faces[:, 0], faces[:, 1]) // sites.n_hemispheres)

    @property
    def all_adjusted(self) -> Coarse:
        """All maps less their confounds, by all subjects."""
        return self.adjusted(np.arange(self.n_subjects))

    def centred(self, subjects: np.ndarray) -> Coarse:
        """All maps as a fit to `subjects` sees them: less confounds and mean, over standard
        deviations for z-scores.

        Of nobody else is anything used. z-scores are those of the means over faces, not of sites.
        """
        if self.confounds is not None:
            return self.adjusted(subjects).centred(subjects)
        if self.center == "none" and (self.measures is None or self.measures.plain):
            return self
        if self.codes is None:
            maps = self._centred(self.means, self.means[subjects])
        else:
            maps = np.empty_like(self.means)
            for code in range(int(self.codes.max()) + 1):
                rows = self.codes == code
                maps[rows] = self._centred(self.means[rows], self.means[subjects[rows[subjects]]])
        if self.measures is None:
            return replace(self.with_means(maps), center="none")
        return replace(
            self.with_means(self._scaled(maps, subjects)),
            center="none",
            measures=self.measures.as_plain,
        )

    def _centred(self, maps: np.ndarray, own: np.ndarray) -> np.ndarray:
        if self.center == "none":
            return maps
        mean = own.mean(axis=0)
        maps = maps - mean
        if self.center == "zscore":
            deviation = own.std(axis=0, ddof=1) if len(own) > 1 else np.zeros_like(mean)
            flat = deviation <= 1e-12 * np.abs(mean)
            maps = np.where(flat, 0.0, maps / np.where(flat, 1.0, deviation))
        return maps

    def _scaled(self, maps: np.ndarray, subjects: np.ndarray) -> np.ndarray:
        """Maps times what their measure is multiplied by, as far as `subjects` tell; variance is
        that of the faces.
        """
        assert self.measures is not None
        part, own = self.part, maps[subjects]
        mean = (
            own.mean(axis=0)
            if self.codes is None
            else means_of(own, self.codes[subjects])[self.codes[subjects]]
        )
        squares, n, n_sites = self.counts * (own - mean) ** 2, len(subjects), int(self.counts.sum())
        if self.codes is None:
            total, n_sites = np.bincount(part, squares.sum(axis=0)), n_sites // self.measures.n
        else:
            total, n = np.bincount(self.codes[subjects], squares.sum(axis=1)), n // self.measures.n
        factor = self.measures.factors(total, n, n_sites, self.center)
        return maps * (factor[part] if self.codes is None else factor[self.codes][:, None])

    @property
    def L(self) -> np.ndarray:
        """Sums, n_subjects × n_k."""
        return np.asarray(self.stats.L)

    @property
    def counts(self) -> np.ndarray:
        """Sites per face, or their weight."""
        return self.stats.counts

    @property
    def n_subjects(self) -> int:
        return self.stats.n_subjects

    @cached_property
    def means(self) -> np.ndarray:
        """Mean of each subject's map over each face."""
        return self.L / self.counts

    @cached_property
    def variance(self) -> float:
        """Between-subject variance that the faces resolve: Σ over sites of (face mean − its mean
        over subjects)².
        """
        everyone = np.arange(self.n_subjects)
        return float((self.counts * (self.means - self.mean_of(everyone, everyone)) ** 2).sum())

    def mean_of(self, fitted: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The mean map of the fitted subjects; of those of each of `rows`' measure, where rows are
        of several.
        """
        if self.codes is None:
            return np.asarray(self.means[fitted].mean(axis=0))
        return np.asarray(means_of(self.means[fitted], self.codes[fitted])[self.codes[rows]])

    def with_means(self, means: np.ndarray) -> Coarse:
        """Other maps on the same faces."""
        return self.with_sums(means * self.counts)

    def subset(
        self, subjects: np.ndarray | None = None, faces: np.ndarray | None = None
    ) -> Statistics:
        """Statistics of some subjects on some faces, as if there were no others."""
        rows = np.arange(self.n_subjects) if subjects is None else subjects
        columns = np.arange(self.stats.n_columns) if faces is None else faces
        return self._statistics(self.L[np.ix_(rows, columns)], columns)

    def fitted(self, subjects: np.ndarray) -> Statistics:
        """Statistics of some subjects, as a fit to them sees their maps."""
        if self.center == "none" or self.confounds is not None or self.measures is not None:
            return self.centred(subjects).subset(subjects)
        own = self.means[subjects]
        return self._statistics(self._centred(own, own) * self.counts, np.arange(len(self.counts)))

    @property
    def apart(self) -> bool:
        """Whether a fit takes nothing but a mean map out."""
        return self.center == "mean" and self.confounds is None and self.measures is None

    def condensed(self, subjects: np.ndarray, scheme: Scheme) -> Coarse:
        """`subjects` alone, as a fit to them sees their maps. Where a fit needs only products of
        maps (projective schemes), more maps than faces become as many with the same products, once
        for all ranks.
        """
        alone = lambda stats: replace(
            self, stats=stats, center="none", confounds=None, measures=None
        )
        if not self.apart or not scheme.projective or len(subjects) <= self.stats.n_columns:
            return alone(self.fitted(subjects))
        key = digest(subjects)
        if key not in self._condensed:
            mean = self.sum_of(subjects) / len(
                subjects
            )  # taken out first: what deviates may be far smaller
            M = np.asarray(
                sum(some.T @ some for some in (own - mean for own in self._some(subjects)))
            )
            self._condensed[key] = alone(self._statistics(square_root(M), np.arange(len(M))))
        return self._condensed[key]

    def sum_of(self, subjects: np.ndarray) -> np.ndarray:
        """(n_k,) sums of their maps."""
        return np.asarray(sum(some.sum(axis=0) for some in self._some(subjects)))

    def _some(self, subjects: np.ndarray) -> Iterator[np.ndarray]:
        """Sums of subjects, a few at a time."""
        return (self.L[subjects[rows]] for rows in cut(len(subjects), _AT_ONCE))

    @cached_property
    def _condensed(self) -> dict[str, Coarse]:
        return {}

    def view(self, subjects: np.ndarray, others: np.ndarray, scheme: Scheme) -> View:
        """Maps of `subjects` and of `others` as a fit to the former sees them."""
        if self.apart:
            mean = self.sum_of(subjects) / len(subjects)
            return View(
                self.condensed(subjects, scheme), self.L[others] - mean, np.zeros_like(mean)
            )
        whole = self.centred(subjects)
        own = replace(whole, stats=whole.subset(subjects), measures=None)
        return View(own, whole.L[others], whole.mean_of(subjects, others))

    def with_sums(self, L: np.ndarray) -> Coarse:
        """The same of other maps."""
        return replace(self, stats=self._statistics(L, np.arange(len(self.counts))))

    def _statistics(self, L: np.ndarray, columns: np.ndarray) -> Statistics:
        counts, n, n_roots = self.counts[columns], len(columns), self.stats.root_L.shape[1]
        to_root = sp.csc_array(
            (np.ones(n), self.design.root[columns], np.arange(n + 1)), shape=(n_roots, n)
        )
        energy = np.einsum("ij,ij->j", L, L) / counts
        return Statistics(
            K=sp.csr_array(
                (counts.astype(np.float64), np.arange(n), np.arange(n + 1)), shape=(n, n)
            ),
            L=np.ascontiguousarray(L),
            sq_norm=float(energy.sum()),
            energy=energy,
            counts=counts,
            n_sites=counts.sum().item(),
            root_L=np.ascontiguousarray((to_root @ L.T).T),
            faces=self.stats.faces[columns],
        )


def _resolved(L: np.ndarray, counts: np.ndarray) -> float:
    """Squared norm of maps that are constant on faces."""
    return float((np.einsum("ij,ij->j", L, L) / counts).sum())


@dataclass(frozen=True, eq=False)
class Cohorts:
    """What a selection reads of its input, once.

    Attributes
    ----------
    X : the maps as sites × subjects, masked sites left out
    sites : the sites in use
    coarse : sums over the faces where components are looked for
    fine : sums over smaller faces, on which maps are rotated; the same where the mesh has no
        smaller ones
    """

    X: Maps
    sites: Sites
    coarse: Coarse
    fine: Coarse


def means_of(rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the mean of the rows of each measure."""
    return np.stack([rows[codes == code].mean(axis=0) for code in range(int(codes.max()) + 1)])


def gather(
    cohort: Any,
    level: int,
    method: Method,
    report: Callable[[float], None] | None = None,
    center: str = "none",
    confounds: Confounds | None = None,
    placed: tuple[Maps, Placement] | None = None,
) -> Cohorts:
    """Gather what a selection needs, in one pass over the maps.

    Parameters
    ----------
    report : called with the fraction that is done
    placed : maps of the cohort and where they lie, if they have been read already
    """
    X, placement = read_input(cohort) if placed is None else placed
    measures = measures_of(cohort)
    mask = check_mask(placement.mask, placement.sites)
    sites = placement.sites
    if mask is not None:
        sites = sites.subset(mask)
        X = X.subset(sites=mask)
    level = min(level, sites.max_level)
    # Smaller faces must still hold a few sites each, or most of them would hold none.
    has_finer = level < sites.max_level and sites.n >= 2 * sites.n_roots * 4 ** (level + 1)
    finer = level + 1 if has_finer else level
    summary = Summary(sites.n, X.n_subjects, method.refusal(center))
    if sites.regions is not None:
        design = Design.of_sites(sites)
        stats = Statistics.from_data(X, design, accept_block=summary.add, report=report)
        coarse = fine = Coarse.on(stats, design, center, confounds, measures)
    else:
        pyramid = Pyramid.from_data(X, sites, finer, accept_block=summary.add, report=report)
        coarse = Coarse.of(pyramid, level, center, confounds, measures)
        fine = coarse if finer == level else Coarse.of(pyramid, finer, center, confounds, measures)
    summary.check()
    return Cohorts(X, sites, coarse, fine)


@dataclass(frozen=True)
class Fitter:
    """How every small problem of a selection is solved: the same method and number of starts
    everywhere.

    Of random starts half are dropped after 1/16, 1/8, 1/4 and 1/2 of the first updates; of hard
    starts the best few are compared after some. What is left goes on until its objective has
    settled, except for coordinate descent, which has arrived by then.
    """

    method: str
    n_starts: int
    seed: int
    engine: str = "cpu"

    @property
    def chosen(self) -> Method:
        return method_named(self.method)

    @property
    def tol(self) -> float:
        """By which a run is at its end; coordinate descent makes a number of updates instead."""
        scheme = self.chosen.scheme
        return 0.0 if scheme.sweeps else TOL if scheme.n_finished is None else HARD_TOL

    def seeds(self, *where: int) -> np.random.SeedSequence:
        """The seed of one problem: it depends on what the problem is, not on which others are
        solved.
        """
        return np.random.SeedSequence(seeds_of(self.seed).entropy, spawn_key=where)

    def __call__(self, stats: Statistics, rank: int, *where: int) -> Fit:
        """The best of the starts."""
        scheme = self.chosen.scheme
        if scheme.sweeps or scheme.n_finished is not None:
            return self._raced(stats, rank, *where)
        best = multistart(
            stats,
            self.method,
            rank,
            n_starts=self.n_starts,
            n_iter=SCREENING_UPDATES,
            tol=0.0,
            halving=True,
            engine=self.engine,
            random_state=self.seeds(rank, *where),
        )
        p = Problem.of(stats, scheme)
        run = self.finish(p, begin(p, scheme, best.B[None], best.C[None]), rank)
        return Fit(
            np.asarray(run.state.B[0]),
            np.asarray(run.state.C[0]),
            p.penalty,
            float(run.errors[0, -1]),
        )

    def finish(self, p: Problem, state: State, rank: int) -> Run:
        """Runs to their end."""
        engine = choose_engine(
            self.engine, p, self.chosen, rank, len(state.error) * SCREENING_UPDATES
        )
        with one_blas_thread():
            return engine.iterate(p, self.chosen, state, self._course())

    def _raced(self, stats: Statistics, rank: int, *where: int) -> Fit:
        """A fit from starts of which the better go on: random ones are halved, of hard ones the
        best few are run.
        """
        method, scheme = self.chosen, self.chosen.scheme
        check_problem(stats, method, rank)
        p = Problem.of(stats, scheme)
        engine = choose_engine(self.engine, p, method, rank, SCREENING_UPDATES)
        hard, seeds = scheme.n_finished is not None, self.seeds(rank, *where)
        halve_at = {COMPARED_AT} if hard else {SWEEPING_UPDATES >> i for i in range(1, 5)}
        with one_blas_thread():
            starts = draw_starts(
                p, method, rank, seeds, range(self.n_starts), FINISHED if hard else None
            )
            state = begin(p, scheme, *starts)
            if hard:
                state = state.take(np.sort(np.argsort(state.objective, kind="stable")[:FINISHED]))
            run = engine.iterate(p, method, state, self._course(halve_at))
        best = int(np.argmin(run.objectives[:, -1]))
        return Fit(run.state.B[best], run.state.C[best], p.penalty, float(run.errors[best, -1]))

    def _course(self, halve_at: Collection[int] = ()) -> Course:
        """To the end."""
        return Course(
            SWEEPING_UPDATES if self.chosen.scheme.sweeps else MOST_UPDATES, self.tol, halve_at
        )
