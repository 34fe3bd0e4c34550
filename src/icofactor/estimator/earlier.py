"""A fit of more people than an earlier one: what that one kept stands for the maps of its people (docs/scale.md).

With n₁ people fitted before, n₂ new ones and n = n₁ + n₂, mean maps m₁ and m₂, and m = m₁ + (n₂/n)(m₂ − m₁):
deviations of the first from m are those from m₁, and m₁ − m added to each; so L̃ changes by the sums of m₁ − m over
faces, the same for all of them. Σ (x − m)² at a site is v₁ + v₂ + (n₁n₂/n)(m₁ − m₂)². Nothing of X is needed for this.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.cohort.store.layout import Origin
from icofactor.cohort.store.read import StoredCohort
from icofactor.errors import ArgumentError, Phrase
from icofactor.estimator.inputs import check_mask, read_input, weighted_sites
from icofactor.estimator.workspace import open_stream
from icofactor.factorization.design import Design
from icofactor.factorization.statistics import Statistics, column_sums, root_sums
from icofactor.sphere.meshes import same_sites
from icofactor.sphere.sites import Sites
from icofactor.streaming.checkpoint import digest
from icofactor.streaming.inspect import Inspector
from icofactor.streaming.source import MapSource

if TYPE_CHECKING:
    from icofactor.estimator.estimator import CorticalFactorization as Fit

_AGAIN = "; fit all people again, without {earlier}"
_NO_STORE = (
    "the data are not the unchanged maps of a cohort store "
    "(covariates, harmonization and several measures are computed from all people)"
)


@dataclass(frozen=True, eq=False)
class Earlier:
    """People of an earlier fit among those of this one.

    Attributes
    ----------
    stats, mean, variance : of the earlier fit, at the sites used: its statistics, mean map, and Σ (x − mean)²
    rows, fresh : numbers of these people in X, in the order of the earlier fit, and of the others
    source : the maps of the others
    """

    stats: Statistics
    mean: np.ndarray
    variance: float
    rows: np.ndarray
    fresh: np.ndarray
    source: MapSource

    @classmethod
    def of(
        cls,
        model: Fit,
        settings: Fit,
        X: Any,
        mask: np.ndarray | None,
        whole: Sites,
    ) -> Earlier:
        """What `model` kept, refused where it does not do for a fit by `settings` to X."""
        if not hasattr(model, "origin_"):
            kind = Phrase(f"{type(model).__name__}, not fitted" if hasattr(model, "fit") else type(model).__name__)
            raise ArgumentError("earlier", kind, "a fitted CorticalFactorization (load_model reads one from its file)")
        if problem := _problem(model, settings, X, mask, whole):
            raise _unusable(problem)
        rows = X.X.origin().find(model.origin_)
        if (n_gone := int((rows < 0).sum())) > 0:
            gone = f"{n_gone} of the {len(rows)} people of the earlier fit"
            raise _unusable(f"{gone} are missing from these data, or their maps were written again")
        fresh = np.setdiff1d(np.arange(len(X.subjects)), rows)
        source = open_stream(X.X.select(fresh), mask).source
        stats, mean = model.refined_.stats, model._used(model.mean_)
        return cls(stats, mean, model.total_variance_, rows, fresh, source)

    @property
    def identity(self) -> str:
        """By which a resumed run recognises it."""
        return digest(self.stats.L, self.mean, self.rows)

    def check(self, design: Design) -> None:
        """Refuse another design."""
        if not np.array_equal(self.stats.faces, design.faces):
            kept = f"the earlier fit kept statistics of {len(self.stats.faces)} faces"
            raise _unusable(f"{kept}, this fit starts from {design.n_columns} (level, columns, refinement)")

    def joined(
        self, design: Design, new: Statistics | None, seen: Inspector, center: str
    ) -> tuple[Statistics, np.ndarray, float]:
        """Statistics of all people, their mean map and Σ (x − mean)²; `new` and `seen`: of the others, not centred."""
        n_1, n_2, sites = len(self.rows), len(self.fresh), design.sites
        n, centred = n_1 + n_2, center == "mean"
        mean_2, energy = (seen.mean, seen.site_variance) if n_2 else (self.mean, np.zeros(sites.n))
        apart = mean_2 - self.mean
        mean, between = self.mean + apart * (n_2 / n), apart**2 * (n_1 * n_2 / n)
        variance = self.variance + float(sites.weigh(energy + between).sum())
        added = energy + between if centred else (seen.site_energy if n_2 else energy)
        of_faces = np.bincount(design.site_column, sites.weigh(added), minlength=design.n_columns)
        L, root_L = (np.empty((n, sums.shape[1])) for sums in (self.stats.L, self.stats.root_L))
        for all_, old, fresh, sums in (
            (L, self.stats.L, None if new is None else new.L, column_sums),
            (root_L, self.stats.root_L, None if new is None else new.root_L, root_sums),
        ):
            all_[self.rows] = old + sums(design, self.mean - mean) if centred else old
            if fresh is not None:
                all_[self.fresh] = fresh - sums(design, mean) if centred else fresh
        stats = replace(
            self.stats,
            L=L,
            root_L=root_L,
            energy=self.stats.energy + of_faces,
            sq_norm=self.stats.sq_norm + float(sites.weigh(added).sum()),
        )
        return stats, mean, variance


def check_earlier(model: Fit, settings: Fit, X: Any, adjusted: bool = False) -> tuple[int, int]:
    """Refuse what a fit by `settings` to X would refuse, without reading maps. Returns how many people `model` knows,
    and how many are new.

    `adjusted`: whether covariates or scanners are taken out of X first. X: None where it is not a store.
    """
    check_not_adjusted(model, adjusted)
    if X is None or origin_of(X) is None:
        raise _unusable(_NO_STORE)
    given = read_input(X, settings.mesh, settings.hemi)
    mask = check_mask(given.mask if settings.mask is None else settings.mask, given.sites)
    whole, _ = weighted_sites(given.sites, mask, settings.weights, given.hemi)
    known = Earlier.of(model, settings, X, mask, whole)
    sites = whole if mask is None else whole.subset(mask)
    known.check(Design.starting(sites, settings.columns, settings.level, settings.sigma))
    return len(known.rows), len(known.fresh)


def check_not_adjusted(earlier: Fit | None, adjusted: bool) -> None:
    """Refuse an earlier fit where covariates or scanners are taken out of the maps."""
    if earlier is not None and adjusted:
        what = "covariates and harmonization, which are computed from all subjects; fit again, without {earlier}"
        raise ArgumentError("earlier", None, f"{{earlier}} cannot be combined with {what}")


def origin_of(X: Any) -> Origin | None:
    """Where the maps of a fit lie, if they lie in a store as they were fitted."""
    return X.X.origin() if isinstance(X, StoredCohort) else None


def _problem(model: Fit, settings: Fit, X: Any, mask: np.ndarray | None, whole: Sites) -> str:
    """Why the statistics of a fit do not do for another; empty where they do."""
    if origin_of(X) is None:
        return _NO_STORE
    if model.origin_ is None:
        return "the earlier fit was not fitted to the unchanged maps of a cohort store"
    if "zscore" in (model.center_, settings.centers_by):
        return "z-scores divide each site by its standard deviation, which changes with every person"
    if model.center_ != settings.centers_by:
        return f"the earlier fit has {{center={model.center_!r}}}, this one {{center={settings.centers_by!r}}}"
    if settings.columns != "partition" or settings.schedule.steps:
        return "methods that divide faces need sums that the earlier fit did not keep (parts divides none)"
    masks = [np.ones(whole.n, dtype=bool) if one is None else one for one in (model.mask_, mask)]
    weights = [np.ones(sites.n) if sites.weights is None else sites.weights for sites in (model.sites_, whole)]
    if not same_sites(model.sites_, whole) or not all(np.array_equal(*pair) for pair in (masks, weights)):
        return "sites, mask or weights differ from those of the earlier fit"
    return ""


def _unusable(problem: str) -> ArgumentError:
    return ArgumentError("earlier", None, f"{{earlier}} cannot be used: {problem}{_AGAIN}")
