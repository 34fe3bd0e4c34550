"""The data of a selection: sums over faces, of which every subset is a small problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from icofactor.assessment.refit import as_fitted
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
from icofactor.maps.maps import Maps
from icofactor.maps.workers import one_blas_thread
from icofactor.preprocessing.confounds import Confounds
from icofactor.preprocessing.summary import Summary
from icofactor.sphere.sites import Sites

# Coordinate descent is within 1e-3 of its end after so many updates.
SWEEPING_UPDATES = 48

# Other updates move slower: after so many the best of random starts goes on to its end.
SCREENING_UPDATES = 480

# A fit ends when its objective falls by less than TOL, relative, over ten updates. The upper limit of
# updates is not reached in practice.
TOL = 1e-5
MAX_UPDATES = 100_000

# Of hard starts the best few make some updates, and the best of these goes on to its end. Its steps
# are large: with `TOL`, halves of real thickness agreed no better.
N_FINISHED = 3
COMPARED_AT = 10
HARD_TOL = 1e-4


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
        """Return n_d × n_k maps in the data's units, mostly positive, in no order.

        They are the maps of a subject whose loadings are the root mean squares. `counts` are the
        sites per face.
        """
        return (self.B * (loading_size(self.C) * map_signs(self.B, counts))).T


@dataclass(frozen=True, eq=False)
class FaceSites:
    """Faces in place of sites: what centering needs to know of them."""

    weights: np.ndarray
    copy: np.ndarray

    @property
    def total_weight(self) -> float:
        """Number of sites in all faces, or their weight."""
        return float(self.weights.sum())

    def weigh(self, values: np.ndarray) -> np.ndarray:
        """Multiply values, one row per face, by the weights."""
        return values * self.weights[:, None]


@dataclass(frozen=True, eq=False)
class View:
    """Maps as a fit to some subjects sees them.

    Attributes
    ----------
    own : Coarse
        These subjects; of many, others with the same products (`Coarse.condensed`).
    other : (n, n_k)
        Sums of other subjects.
    mean : (n, n_k)
        Mean map of the fitted subjects, for each of the others.
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
    center : what every fit takes out of the maps of its own subjects: "none", "mean" or "zscore"
    confounds : what it takes out before that
    measures : of which it centres and scales each by itself
    """

    stats: Statistics
    design: Design
    center: str = "none"
    confounds: Confounds | None = None
    measures: Measures | None = None

    @property
    def L(self) -> np.ndarray:
        """Sums, n_subjects × n_k."""
        return self.stats.L

    @property
    def counts(self) -> np.ndarray:
        """Sites per face, or their weight."""
        return self.stats.counts

    @property
    def n_subjects(self) -> int:
        """Number of rows."""
        return self.stats.n_subjects

    @property
    def everyone(self) -> np.ndarray:
        """Numbers of all rows."""
        return np.arange(self.n_subjects)

    @cached_property
    def means(self) -> np.ndarray:
        """Mean of each subject's map over each face."""
        return self.L / self.counts

    @cached_property
    def codes(self) -> np.ndarray:
        """(n_subjects,) measure of each row, 0 where a row has all of them."""
        codes = None if self.measures is None else self.measures.codes(self.n_subjects)
        return np.zeros(self.n_subjects, dtype=np.int64) if codes is None else codes

    @property
    def face_sites(self) -> Any:
        """The faces as sites: a mean over a face has the weight of its sites."""
        sites = self.design.sites
        hemisphere = sites.face_hemisphere(self.design.faces[:, 0], self.design.faces[:, 1])
        return FaceSites(self.counts, np.asarray(hemisphere // sites.n_hemispheres))

    def adjusted(self, subjects: np.ndarray) -> Coarse:
        """Return all maps less their confounds, as estimated in `subjects` alone."""
        if self.confounds is None:
            return self
        arrangement = Arrangement()
        if self.measures is not None:
            arrangement = self.measures.arrangement(self.face_sites)
        maps = self.confounds.removed(Maps(self.means), subjects, arrangement)
        return replace(self.with_means(np.asarray(maps)), confounds=None)

    def centred(self, subjects: np.ndarray) -> Coarse:
        """Return all maps as a fit to `subjects` sees them, which takes nothing more out."""
        return self._seen_by(subjects)[0]

    def _seen_by(self, subjects: np.ndarray) -> tuple[Coarse, np.ndarray]:
        """Return all maps as a fit to `subjects` sees them, and the mean map of each measure."""
        maps, centering = as_fitted(
            Maps(self.means),
            subjects,
            self.face_sites,
            self.center,
            self.measures,
            self.confounds,
        )
        data = self
        if maps.adjustments:
            # z-scores are those of the means over faces, not of the sites.
            data = self.with_means(np.asarray(maps))
        data = replace(data, center="none", confounds=None, measures=None)
        return data, centering.left

    def condensed(
        self,
        subjects: np.ndarray,
        scheme: Scheme,
    ) -> Coarse:
        """Return `subjects` alone, as a fit to them sees their maps."""
        return self._condensed(self.centred(subjects), subjects, scheme)

    def _condensed(
        self,
        data: Coarse,
        subjects: np.ndarray,
        scheme: Scheme,
    ) -> Coarse:
        stats = data.subset(subjects)
        if scheme.projective and len(subjects) > stats.n_columns:
            # A projective fit needs only products of maps: as many maps as faces have the same.
            faces = np.arange(stats.n_columns)
            stats = self._statistics(square_root(stats.L.T @ stats.L), faces)
        return replace(data, stats=stats)

    def view(
        self,
        subjects: np.ndarray,
        others: np.ndarray,
        scheme: Scheme,
    ) -> View:
        """Return `subjects` and `others` as a fit to the former sees them."""
        data, mean = self._seen_by(subjects)
        own = self._condensed(data, subjects, scheme)
        return View(own, data.L[others], mean[self.codes[others]])

    @cached_property
    def variance(self) -> float:
        """Σ over sites of (face mean − its mean over all subjects)², as a fit sees the maps."""
        data, mean = self._seen_by(self.everyone)
        return float((self.counts * (data.means - mean[self.codes]) ** 2).sum())

    def subset(
        self,
        subjects: np.ndarray | None = None,
        faces: np.ndarray | None = None,
    ) -> Statistics:
        """Return the statistics of some subjects on some faces, as if there were no others."""
        rows = self.everyone if subjects is None else subjects
        columns = np.arange(self.stats.n_columns) if faces is None else faces
        return self._statistics(self.L[np.ix_(rows, columns)], columns)

    def with_means(self, means: np.ndarray) -> Coarse:
        """Return other maps on the same faces, given by their means over faces."""
        return self.with_sums(means * self.counts)

    def with_sums(self, L: np.ndarray) -> Coarse:
        """Return other maps on the same faces, given by their sums over faces."""
        return replace(self, stats=self._statistics(L, np.arange(len(self.counts))))

    def _statistics(
        self,
        L: np.ndarray,
        columns: np.ndarray,
    ) -> Statistics:
        """Return the statistics of sums over some faces."""
        counts = self.counts[columns]
        n_faces = len(columns)
        diagonal = np.arange(n_faces)
        ends = np.arange(n_faces + 1)
        to_root = sp.csc_array(
            (np.ones(n_faces), self.design.root[columns], ends),
            shape=(self.stats.root_L.shape[1], n_faces),
        )
        # Maps that are constant on faces have this energy.
        energy = np.einsum("ij,ij->j", L, L) / counts
        return Statistics(
            K=sp.csr_array((counts.astype(np.float64), diagonal, ends), shape=(n_faces, n_faces)),
            L=np.ascontiguousarray(L),
            sq_norm=float(energy.sum()),
            energy=energy,
            counts=counts,
            n_sites=counts.sum().item(),
            root_L=np.ascontiguousarray((to_root @ L.T).T),
            faces=self.stats.faces[columns],
        )


@dataclass(frozen=True, eq=False)
class Cohorts:
    """What a selection reads of its input, once.

    Attributes
    ----------
    X : the maps, masked sites left out
    sites : the sites in use
    coarse : sums over the faces where components are looked for
    fine : sums over smaller faces, on which maps are rotated; the same where the mesh has no
        smaller ones
    """

    X: Maps
    sites: Sites
    coarse: Coarse
    fine: Coarse


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
    placed : maps of the cohort and their placement, if they have been read already
    """
    X, placement = read_input(cohort) if placed is None else placed
    mask = check_mask(placement.mask, placement.sites)
    sites = placement.sites
    if mask is not None:
        sites = sites.subset(mask)
        X = X.subset(sites=mask)
    # Coarse meshes have no finer faces.
    level = min(level, sites.max_level)
    # Smaller faces must still hold a few sites each, or most of them would hold none.
    has_finer = level < sites.max_level and sites.n >= 2 * sites.n_roots * 4 ** (level + 1)
    summary = Summary(sites.n, X.n_subjects, method.refusal(center))
    if sites.regions is not None:
        # Parcels are their own faces.
        designs = [Design.of_sites(sites)]
        statistics = [Statistics.from_data(X, designs[0], accept_block=summary.add, report=report)]
    else:
        designs = [Design(sites, level=finer) for finer in range(level, level + 1 + has_finer)]
        pyramid = Pyramid.from_data(
            X, sites, level + has_finer, accept_block=summary.add, report=report
        )
        statistics = [pyramid.statistics(design) for design in designs]
    summary.check()
    taken_out = (center, confounds, measures_of(cohort))
    data = [
        Coarse(_resolved(stats), design, *taken_out)
        for stats, design in zip(statistics, designs, strict=True)
    ]
    return Cohorts(X, sites, data[0], data[-1])


def _resolved(stats: Statistics) -> Statistics:
    """Return statistics of maps that are constant on faces, as if there were nothing else."""
    return replace(stats, sq_norm=float((np.square(stats.L).sum(axis=0) / stats.counts).sum()))


@dataclass(frozen=True)
class Fitter:
    """How every small problem of a selection is solved: with one method and number of starts.

    Of random starts half are dropped after 1/16, 1/8, 1/4 and 1/2 of the first updates; of hard
    starts the best few are compared after some. The best goes on until its objective has settled,
    except for coordinate descent, which has arrived by then.
    """

    method: str
    n_starts: int
    seed: int
    engine: str = "cpu"

    @property
    def scheme(self) -> Scheme:
        """The scheme of the method."""
        return self.chosen.scheme

    @property
    def chosen(self) -> Method:
        """The method."""
        return method_named(self.method)

    @property
    def tol(self) -> float:
        """Tolerance at which a fit ends; coordinate descent makes a number of updates instead."""
        if self.scheme.sweeps:
            return 0.0
        return TOL if self.scheme.n_finished is None else HARD_TOL

    def seeds(self, *key: int) -> np.random.SeedSequence:
        """Return the seed of one problem, which does not depend on the problems solved before."""
        return np.random.SeedSequence(seeds_of(self.seed).entropy, spawn_key=key)

    def __call__(
        self,
        stats: Statistics,
        rank: int,
        *key: int,
    ) -> Fit:
        """Return the best of the starts."""
        scheme = self.scheme
        problem = Problem.of(stats, scheme)
        if scheme.sweeps or scheme.n_finished is not None:
            check_problem(stats, self.chosen, rank)
            run = self._race(problem, rank, *key)
        else:
            best = multistart(
                stats,
                self.method,
                rank,
                n_starts=self.n_starts,
                n_iter=SCREENING_UPDATES,
                tol=0.0,
                halving=True,
                engine=self.engine,
                random_state=self.seeds(rank, *key),
            )
            run = self.finish(problem, begin(problem, scheme, best.B[None], best.C[None]), rank)
        # Of fits that were dropped the last objective stays, which is larger.
        best_start = int(np.argmin(run.objectives[:, -1]))
        return Fit(
            np.asarray(run.state.B[best_start]),
            np.asarray(run.state.C[best_start]),
            problem.penalty,
            float(run.errors[best_start, -1]),
        )

    def finish(
        self,
        problem: Problem,
        state: State,
        rank: int,
        halve_at: frozenset[int] = frozenset(),
    ) -> Run:
        """Run fits to their end, dropping the worse half of them after some updates."""
        n_updates = SWEEPING_UPDATES if self.scheme.sweeps else MAX_UPDATES
        # Of fits that race, one runs to its end.
        n_fits = 1 if halve_at else len(state.error)
        # A compiled engine pays for long work only.
        engine = choose_engine(self.engine, problem, self.chosen, rank, n_fits * SCREENING_UPDATES)
        with one_blas_thread():
            return engine.iterate(
                problem, self.chosen, state, Course(n_updates, self.tol, halve_at)
            )

    def _race(
        self,
        problem: Problem,
        rank: int,
        *key: int,
    ) -> Run:
        """Run starts of which the better go on."""
        is_hard = self.scheme.n_finished is not None
        with one_blas_thread():
            starts = draw_starts(
                problem,
                self.chosen,
                rank,
                self.seeds(rank, *key),
                range(self.n_starts),
                N_FINISHED if is_hard else None,
            )
            state = begin(problem, self.scheme, *starts)
        if not is_hard:
            halve_at = frozenset(SWEEPING_UPDATES >> i for i in range(1, 5))
            return self.finish(problem, state, rank, halve_at)
        # Stable, so that equal starts always keep their order.
        best = np.argsort(state.objective, kind="stable")[:N_FINISHED]
        return self.finish(problem, state.take(np.sort(best)), rank, frozenset([COMPARED_AT]))
