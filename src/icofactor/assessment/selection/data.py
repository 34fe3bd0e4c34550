"""The data of a selection: sums over faces, of which every subset of subjects and faces is a small problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from icofactor.estimator.inputs import Input, check_mask
from icofactor.estimator.workspace import open_stream
from icofactor.factorization._multistart import multistart
from icofactor.factorization.design import Design
from icofactor.factorization.methods import Method, method_named
from icofactor.factorization.scaling import loading_size, map_signs
from icofactor.factorization.starts import seeds_of
from icofactor.factorization.statistics import Pyramid, Statistics
from icofactor.sphere.sites import Sites
from icofactor.streaming.inspect import Inspector
from icofactor.streaming.passes import Stream

N_ITER = 48
"""Updates of a start. Coordinate descent is within 1e-3 of its end after these, and starts are compared, not polished;
other updates move slower and get `SLOWER` times as many."""
SLOWER = 10


@dataclass(frozen=True, eq=False)
class Fit:
    """A factorization on the faces.

    Attributes
    ----------
    B : n_k × n_d
    C : n_d × n_subjects
    penalty : λ of the fit
    error : squared error on the faces
    """

    B: np.ndarray
    C: np.ndarray
    penalty: float
    error: float

    @property
    def maps(self) -> np.ndarray:
        """n_d × n_k maps in the data's units: those of a subject whose loading is the root mean square; signs such that
        maps are mostly positive, components in no order."""
        return np.asarray((self.B * (loading_size(self.C) * map_signs(self.B))).T)


@dataclass(frozen=True, eq=False)
class Coarse:
    """Sums of a cohort's maps over the faces of one level.

    Attributes
    ----------
    stats : Statistics of the partition design of that level; ‖X‖² counts what the faces resolve, not more
    design : Design
    """

    stats: Statistics
    design: Design

    @classmethod
    def of(cls, pyramid: Pyramid, level: int) -> Coarse:
        design = Design(pyramid.sites, level=level)
        found = pyramid.statistics(design)
        return cls(replace(found, sq_norm=_resolved(found.L, found.counts)), design)

    @property
    def L(self) -> np.ndarray:
        """Sums, n_subjects × n_k."""
        return np.asarray(self.stats.L)

    @property
    def counts(self) -> np.ndarray:
        """Sites per face."""
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
        """Between-subject variance that the faces resolve: Σ over sites of (face mean − its mean over subjects)²."""
        return float((self.counts * (self.means - self.means.mean(axis=0)) ** 2).sum())

    def with_means(self, means: np.ndarray) -> Coarse:
        """Other maps on the same faces."""
        return Coarse(self._statistics(means * self.counts, np.arange(len(self.counts))), self.design)

    def subset(self, subjects: np.ndarray | None = None, faces: np.ndarray | None = None) -> Statistics:
        """Statistics of some subjects on some faces, as if there were no others."""
        rows = np.arange(self.n_subjects) if subjects is None else subjects
        columns = np.arange(self.stats.n_columns) if faces is None else faces
        return self._statistics(self.L[np.ix_(rows, columns)], columns)

    def _statistics(self, L: np.ndarray, columns: np.ndarray) -> Statistics:
        counts = self.counts[columns]
        root, n_roots = self.design.root[columns], self.stats.root_L.shape[1]
        root_L = np.zeros((n_roots, len(L)))
        np.add.at(root_L, root, L.T)
        return Statistics(
            K=sp.csr_array(sp.diags_array(counts.astype(np.float64))),
            L=np.ascontiguousarray(L),
            sq_norm=_resolved(L, counts),
            energy=(L**2).sum(axis=0) / counts,
            counts=counts,
            n_sites=int(counts.sum()),
            root_L=np.ascontiguousarray(root_L.T),
            faces=self.stats.faces[columns],
        )


def _resolved(L: np.ndarray, counts: np.ndarray) -> float:
    """Squared norm of maps that are constant on faces."""
    return float((np.asarray(L) ** 2 / counts).sum())


@dataclass(frozen=True, eq=False)
class Cohorts:
    """What a selection reads of its input, once.

    Attributes
    ----------
    X : the maps as sites × subjects, masked sites left out
    sites : the sites in use
    coarse : sums over the faces where components are looked for
    fine : sums over smaller faces, on which maps are rotated; the same where the mesh has no smaller ones
    mean, variance : mean map on the sites, and between-subject variance at full resolution
    """

    X: Stream
    sites: Sites
    coarse: Coarse
    fine: Coarse
    mean: np.ndarray
    variance: float


def gather(given: Input, level: int, method: Method, report: Callable[[float], None] | None = None) -> Cohorts:
    """One pass over X; `report` is called with the fraction that is done."""
    mask = check_mask(given.mask, given.sites)
    sites = given.sites if mask is None else given.sites.subset(mask)
    X = open_stream(given.X, mask)
    level = min(level, sites.max_level)
    # smaller faces must still hold a few sites each, or most of them would hold none
    finer = level + 1 if level < sites.max_level and sites.n >= 2 * sites.n_roots * 4 ** (level + 1) else level
    inspector = Inspector(sites.n, X.shape[1], method.refusal)
    pyramid = Pyramid.from_data(X, sites, finer, inspector=inspector, report=report)
    inspector.check()
    coarse = Coarse.of(pyramid, level)
    fine = coarse if finer == level else Coarse.of(pyramid, finer)
    return Cohorts(X, sites, coarse, fine, inspector.mean, inspector.variance)


@dataclass(frozen=True)
class Fitter:
    """How every small problem of a selection is solved: the same method, number of starts and updates everywhere.

    Half of the starts are dropped after 1/16, 1/8, 1/4 and 1/2 of the updates.
    """

    method: str
    n_starts: int
    seed: int
    engine: str = "cpu"

    @property
    def n_iter(self) -> int:
        return N_ITER if method_named(self.method).scheme.sweeps else SLOWER * N_ITER

    def seeds(self, *where: int) -> np.random.SeedSequence:
        """The seed of one problem: it depends on what the problem is, not on which others are solved."""
        return np.random.SeedSequence(seeds_of(self.seed).entropy, spawn_key=where)

    def __call__(self, stats: Statistics, rank: int, *where: int) -> Fit:
        """The best of the starts."""
        best = multistart(
            stats,
            self.method,
            rank,
            n_starts=self.n_starts,
            n_iter=self.n_iter,
            tol=0.0,
            halving=True,
            engine=self.engine,
            random_state=self.seeds(rank, *where),
        )
        return Fit(best.B, best.C, best.penalty, float(best.errors[-1]))
