"""What is taken out of every site before a fit: nothing, the mean, or mean and deviation (method.md
§10).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.cohort.measures import Measures
from icofactor.errors import ArgumentError, Phrase, literal
from icofactor.sphere.sites import Sites
from icofactor.streaming.inspect import Inspector
from icofactor.streaming.source import Adjustment

CENTERS = ("auto", "none", "mean", "zscore")


@dataclass(frozen=True, eq=False)
class Centering:
    """The mean map of the fitted subjects, and their standard deviation at every site.

    Attributes
    ----------
    kind : "none", "mean" or "zscore"
    mean : (n_sites,), or a row per measure where rows of X are of several
    deviation : the same with n − 1, for z-scores only. Sites without variance hold 0: their
        z-scores are 0.
    n_constant : number of sites without variance, which z-scores leave out
    factor : (n_measures,) what each measure is multiplied by besides; None: nothing is
    codes : (n_rows,) measure of each row of X; None where rows are of one, or of all of them
    part : (n_sites,) measure of each site; None where there is one, or rows are of several
    n_hemispheres : of each measure
    """

    kind: str
    mean: np.ndarray
    deviation: np.ndarray | None = None
    n_constant: int = 0
    factor: np.ndarray | None = None
    codes: np.ndarray | None = None
    part: np.ndarray | None = None
    n_hemispheres: int = 1

    @classmethod
    def of(
        cls,
        kind: str,
        seen: Inspector,
        measures: Measures | None = None,
        sites: Sites | None = None,
    ) -> Centering:
        """From what was seen of each site of X, in which several measures may lie at `sites`."""
        deviation, n_constant, mean = None, 0, seen.mean
        n = seen.n_subjects if seen.codes is None else np.bincount(seen.codes)[:, None]
        if kind == "zscore":
            deviation = np.sqrt(seen.site_variance / np.maximum(1, n - 1))
            # rounding leaves a little where all subjects have the same value
            typical = np.median(deviation, axis=-1, keepdims=True) if deviation.size else 0.0
            flat = deviation <= 1e-12 * np.maximum(np.abs(mean), typical)
            deviation, n_constant = np.where(flat, 0.0, deviation), int(flat.sum())
        if measures is None or sites is None:
            return cls(kind, mean, deviation, n_constant)
        part = sites.measure if seen.codes is None else None
        heavy = sites.weights
        n_sites = sites.total_weight / (1 if part is None else measures.n)
        total = of_measures(
            seen.site_variance if heavy is None else seen.site_variance * heavy, part
        )
        factor = measures.factors(total, int(np.min(n)), n_sites, kind)
        chosen = None if (factor == 1).all() else factor
        return cls(kind, mean, deviation, n_constant, chosen, seen.codes, part, sites.n_hemispheres)

    @property
    def spread_factor(self) -> np.ndarray | None:
        """`factor` as `mean` has it."""
        if self.factor is None:
            return None
        return (
            self.factor[self.part]
            if self.part is not None
            else np.broadcast_to(self.factor[:, None], self.mean.shape)
        )

    @property
    def adjustment(self) -> Adjustment | None:
        """What a source does to values on their way; None where there is nothing to do."""
        if self.kind == "none" and self.factor is None:
            return None
        scale = (
            None if self.deviation is None else np.where(self.deviation > 0, self.deviation, np.inf)
        )
        if (factor := self.spread_factor) is not None:
            scale = (1.0 if scale is None else scale) / factor
        return Adjustment(
            offset=None if self.kind == "none" else self.mean, scale=scale, codes=self.codes
        )

    @property
    def left(self) -> np.ndarray:
        """The mean map of what is fitted, as `mean` has it: 0 where it was taken out."""
        if self.kind != "none":
            return np.zeros_like(self.mean)
        return self.mean if (factor := self.spread_factor) is None else self.mean * factor

    @property
    def mean_left_in(self) -> np.ndarray | None:
        """The mean map where it was not taken out and is ≥ 0 everywhere: projective methods lift
        such maps on it.
        """
        if self.kind != "none" or not bool((self.mean >= 0).all()):
            return None
        return (
            self.left
            if self.codes is None
            else np.average(self.left, axis=0, weights=np.bincount(self.codes))
        )

    def undone(self, maps: np.ndarray) -> np.ndarray:
        """Fitted maps, subjects × sites, in the data's own units."""
        own = lambda values: values if self.codes is None else values[self.codes]
        maps = maps if (factor := self.spread_factor) is None else maps / own(factor)
        if self.kind == "none":
            return maps
        return (maps if self.deviation is None else maps * own(self.deviation)) + own(self.mean)

    # What a pass over X saw, as what would have been seen of the maps that are fitted; not for
    # z-scores

    def change(self, sums: Any, sphere: np.ndarray) -> Any:
        """Sums over faces, subjects × faces, of which `sphere` says where they lie."""
        if self.kind == "mean":
            sums = sums - (
                sums.mean(axis=0) if self.codes is None else means_of(sums, self.codes)[self.codes]
            )
        if self.factor is None:
            return sums
        own = (
            self.factor[sphere // self.n_hemispheres]
            if self.codes is None
            else self.factor[self.codes][:, None]
        )
        return sums * own

    def energy(self, seen: Inspector) -> np.ndarray:
        """(n_sites,) Σ x² over subjects."""
        found = seen.site_variance if self.kind == "mean" else seen.site_energy
        found = found if (factor := self.spread_factor) is None else found * factor**2
        return found if self.codes is None else found.sum(axis=0)

    def variance(self, seen: Inspector, weights: np.ndarray | None = None) -> np.ndarray:
        """(n_measures,) Σ (x − the site's mean)² over sites, with their weights, and subjects of
        each measure.
        """
        found = of_measures(
            seen.site_variance if weights is None else seen.site_variance * weights, self.part
        )
        return found if self.factor is None or self.kind == "zscore" else found * self.factor**2


def of_measures(values: np.ndarray, part: np.ndarray | None) -> np.ndarray:
    """(n_measures,) sums over the sites of each measure: of its row, where `values` has one, or of
    its sites.
    """
    if values.ndim == 2:
        return np.asarray(values.sum(axis=1))
    return np.array([values.sum()]) if part is None else np.bincount(part, values)


def means_of(rows: Any, codes: np.ndarray) -> Any:
    """The mean of the rows of each measure."""
    return np.stack([rows[codes == code].mean(axis=0) for code in range(int(codes.max()) + 1)])


def center_of(center: str, allowed: tuple[str, ...], method: str, rules: str = "default") -> str:
    """The centering that `center` asks for, where the method allows it; "auto" is the method's own.

    Parameters
    ----------
    allowed : what the method's scheme takes, its own first (`Scheme.centers`)
    """
    if center not in CENTERS:
        raise ArgumentError("center", Phrase(repr(center)), "'auto', 'none', 'mean' or 'zscore'")
    if center == "auto":
        return allowed[0]
    if center not in allowed:
        raise ArgumentError(
            "center",
            None,
            f"{{center='{center}'}} makes values negative, which {{method='{literal(method)}'}} cannot factorize; "
            "use {center='auto'}, or {method='parts'}",
        )
    if rules == "paper" and center != "none":
        raise ArgumentError(
            "center",
            None,
            f"{{center='{center}'}} cannot be combined with {{rules='paper'}}, which fits uncentered maps; use "
            "{center='none'}, or {rules='default'}",
        )
    return center
