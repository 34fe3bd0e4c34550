"""The mathematics of ComBat: estimates of scanners from one pass, and the change that removes them.

Symbols and the model are those of `icofactor.preprocessing.combat`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from icofactor.cohort.measures import Arrangement
from icofactor.errors import ArgumentError
from icofactor.maps.adjustment import Adjustment
from icofactor.maps.blocks import Arrays
from icofactor.maps.maps import Maps
from icofactor.maps.passes import map_strips
from icofactor.preprocessing.covariates import NOT_FINITE, Term, solver

# The posterior means of γ and δ² are found when no step changes them by more than this share.
TOLERANCE = 1e-12
MOST_STEPS = 1000
# A site whose standard deviation is smaller, relative to its mean, has the same value in all scans.
CONSTANT = 1e-12


@dataclass(frozen=True, eq=False)
class Scans:
    """What a fit needs to know of its scans.

    Attributes
    ----------
    levels, codes : scanners, and which of them each scan was made with
    terms, Z : covariates to keep, and their centred columns
    reference : number of the scanner that the others are brought to, or None
    """

    levels: tuple[str, ...]
    codes: np.ndarray
    terms: tuple[Term, ...]
    Z: np.ndarray
    reference: int | None

    @property
    def counts(self) -> np.ndarray:
        """Scans of each scanner."""
        return np.bincount(self.codes, minlength=len(self.levels))

    @property
    def member(self) -> np.ndarray:
        """(n_levels, n_scans) 1 where a scan was made with a scanner."""
        return (self.codes == np.arange(len(self.levels))[:, None]).astype(np.float64)

    def subset(self, scans: np.ndarray) -> Scans:
        """Return some of the scans, with columns that are centred on them."""
        Z = self.Z[scans] - self.Z[scans].mean(axis=0)
        return replace(self, codes=self.codes[scans], Z=Z)

    def shared(self) -> dict[str, Any]:
        """Return what `_fit_strip` needs."""
        # The effects of covariates come from differences within scanners alone.
        within = self.Z.copy()
        for code in np.unique(self.codes):
            within[self.codes == code] -= self.Z[self.codes == code].mean(axis=0)
        return {
            "Z": self.Z,
            "solve": solver(within),
            "member": self.member,
            "counts": self.counts.astype(np.float64),
        }


@dataclass(frozen=True, eq=False)
class Estimates:
    """m, β, σ, σγ* and δ* at every site, sites of one measure after those of another.

    Attributes
    ----------
    mean, sd : (n_sites,)
    coefficients : (n_columns, n_sites)
    location, scale : (n_levels, n_sites)
    low : (n_sites,) smallest value of the fitted scans
    total : squared deviations from the mean, of each measure
    """

    mean: np.ndarray
    coefficients: np.ndarray
    sd: np.ndarray
    location: np.ndarray
    scale: np.ndarray
    low: np.ndarray
    total: list[float]

    @classmethod
    def empty(cls, n_sites: int, n_columns: int, n_levels: int) -> Estimates:
        """Return estimates that change nothing."""
        return cls(
            mean=np.zeros(n_sites),
            coefficients=np.zeros((n_columns, n_sites)),
            sd=np.zeros(n_sites),
            location=np.zeros((n_levels, n_sites)),
            scale=np.ones((n_levels, n_sites)),
            low=np.zeros(n_sites),
            total=[],
        )


def estimate_scanners(
    maps: Maps,
    scans: Scans,
    empirical_bayes: bool,
    arrangement: Arrangement,
    mask: np.ndarray | None = None,
    people: np.ndarray | None = None,
) -> Estimates:
    """Estimate how scanners differ at every site, each measure by itself.

    It takes one pass over the maps of `people` (numbers; None: all), whose scans these are.
    """
    n_sites = maps.n_sites * arrangement.n_stacked
    estimates = Estimates.empty(n_sites, scans.Z.shape[1], len(scans.levels))
    for measure_maps, positions in arrangement.each_measure(maps, mask):
        fitted_maps = measure_maps.subset(subjects=people)
        moments = _moments(fitted_maps, scans)
        if not np.isfinite(moments["total"]).all():
            raise ArgumentError("X", NOT_FINITE)
        of_measure = _estimates(moments, scans, empirical_bayes)
        for field in fields(Estimates):
            if field.name != "total":
                values = getattr(of_measure, field.name)
                getattr(estimates, field.name)[..., positions] = values
        estimates.total.append(float(moments["total"].sum()))
    return estimates


def _moments(maps: Maps, scans: Scans) -> Arrays:
    """Return what `_fit_strip` finds at every site."""
    moments: Arrays = {}
    for sites, result in map_strips(_fit_strip, maps, shared=scans.shared(), double=True):
        for name, values in result.items():
            name = name.removeprefix("site.")
            if name not in moments:
                moments[name] = np.zeros((maps.n_sites, *values.shape[1:]))
            moments[name][sites] = values
    return moments


def _fit_strip(x: np.ndarray, shared: Mapping[str, Any]) -> Arrays:
    """Return mean, effects, deviation of each scanner and residual squares of some sites."""
    member = shared["member"]
    counts = shared["counts"]
    mean = x.mean(axis=1, keepdims=True)
    deviation = x - mean
    beta = deviation @ shared["solve"].T
    residual = deviation - beta @ shared["Z"].T
    level = residual @ member.T / np.maximum(counts, 1)
    return {
        "site.mean": mean[:, 0],
        "site.beta": beta,
        "site.level": level,
        "site.squares": np.square(residual - level @ member) @ member.T,
        "site.total": np.square(deviation).sum(axis=1),
        "site.low": x.min(axis=1),
    }


def _estimates(moments: Mapping[str, np.ndarray], scans: Scans, empirical_bayes: bool) -> Estimates:
    """Return the estimates of one measure at its sites."""
    level = moments["level"].T
    squares = moments["squares"].T
    counts = scans.counts
    reference = scans.reference
    if reference is None:
        base = np.zeros(level.shape[1])
        variance = squares.sum(axis=0) / len(scans.codes)
    else:
        base = level[reference]
        variance = squares[reference] / counts[reference]
    mean = moments["mean"] + base
    sd = np.sqrt(variance)
    # Rounding leaves a little where all scans have the same value.
    typical = np.median(sd) if len(sd) else 0.0
    varies = sd > CONSTANT * np.maximum(np.abs(mean), typical)
    sd = np.where(varies, sd, 0.0)
    location = np.zeros_like(level)
    scale = np.ones_like(level)
    for code, count in enumerate(counts.tolist()):
        # Nothing is known of a scanner without scans, and the reference stays as it is.
        if code == reference or count < 1:
            continue
        gamma = (level[code, varies] - base[varies]) / sd[varies]
        delta = np.ones_like(gamma)
        if count > 1:
            delta = squares[code, varies] / ((count - 1) * variance[varies])
            gamma, delta = shrunk(gamma, delta, count, empirical_bayes)
        location[code, varies] = gamma * sd[varies]
        scale[code, varies] = np.sqrt(delta)
    return Estimates(mean, moments["beta"].T, sd, location, scale, moments["low"], [])


def scanner_adjustment(
    estimates: Any,
    Z: np.ndarray,
    codes: np.ndarray,
    arrangement: Arrangement,
    *,
    shift: np.ndarray | None = None,
    made_by: Any = None,
    notes: tuple[str, ...] = (),
) -> Adjustment:
    """Return the adjustment that takes scanners out of scans with these columns and codes.

    (x − fitted − location) / scale + fitted + shift, where fitted = mean + Z coefficients. The mean
    is the effect of one more column, of ones.
    """
    n_levels = len(estimates.location)
    Z = np.column_stack([np.ones(len(Z)), Z])
    effects = arrangement.stack(np.vstack([estimates.mean, estimates.coefficients]))
    # Every row of location and scale has a row of the shift.
    shifts = None if shift is None else np.repeat(shift[None], n_levels, axis=0)
    return Adjustment(
        Z=arrangement.regressors(Z),
        removed=effects,
        restored=effects,
        offset=arrangement.stack(estimates.location),
        scale=arrangement.stack(estimates.scale),
        shift=arrangement.stack(shifts),
        codes=arrangement.codes(codes, n_levels, len(Z)),
        made_by=made_by,
        notes=notes,
    )


def shrunk(
    gamma: np.ndarray, delta: np.ndarray, n: int, empirical_bayes: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return γ* and δ*² of one scanner, given its estimates at all sites.

    They are means of the posterior, each given the other.
    """
    varies = delta > 0
    spread = delta[varies].var(ddof=1) if varies.sum() > 1 else 0.0
    if not empirical_bayes or not spread > 0:
        return gamma, np.where(varies, delta, 1.0)
    centre = gamma.mean()
    tau = gamma.var(ddof=1)
    middle = delta[varies].mean()
    # Shape and scale of the inverse gamma prior, by its moments.
    a = 2 + middle**2 / spread
    b = middle + middle**3 / spread
    g = gamma
    d = np.where(varies, delta, middle)
    for _ in range(MOST_STEPS):
        # Each given the other, as in Johnson et al. 2007.
        g_new = (tau * n * gamma + d * centre) / (tau * n + d)
        d_new = (0.5 * ((n - 1) * delta + n * (gamma - g_new) ** 2) + b) / (n / 2 + a - 1)
        change_of_g = float(np.abs(g_new - g).max())
        change_of_d = float((np.abs(d_new - d) / d).max())
        g = g_new
        d = d_new
        if max(change_of_g, change_of_d) < TOLERANCE:
            break
    return g, d
