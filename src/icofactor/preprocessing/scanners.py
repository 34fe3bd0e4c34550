"""The mathematics of ComBat: estimates of scanners from what one pass finds, and what takes them
out of maps.

Symbols and the model are those of `icofactor.preprocessing.combat`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from icofactor.errors import ArgumentError
from icofactor.preprocessing.covariates import Term, solver
from icofactor.streaming.blocks import Arrays, cut
from icofactor.streaming.passes import Stream, each_wide_block, pass_over
from icofactor.streaming.source import Adjustment

_TOL, _MOST_STEPS = 1e-12, 1000
_SCANS_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class ScannerAdjustment(Adjustment):
    """(x − fitted − location_i) / spread_i + fitted − offset, fitted = mean + Z coefficients, i the
    scan's scanner.
    """

    codes: np.ndarray | None = None
    mean: np.ndarray | None = None
    location: np.ndarray | None = None
    spread: np.ndarray | None = None

    def at(self, subjects: Any, sites: Any) -> ScannerAdjustment:
        chosen = lambda values: None if values is None else values[..., sites]
        own = lambda values: None if values is None else values[subjects]
        return ScannerAdjustment(
            own(self.Z),
            chosen(self.coefficients),
            chosen(self.offset),
            None,
            self.floor,
            own(self.codes),
            chosen(self.mean),
            chosen(self.location),
            chosen(self.spread),
        )

    def linear(self, x: Any, own: bool = False) -> np.ndarray:
        assert self.Z is not None and self.codes is not None and self.coefficients is not None
        assert self.mean is not None and self.location is not None and self.spread is not None
        found = x if own else np.array(x, dtype=np.float64)
        rows: list[Any] = [...] if self.Z.ndim < 2 else cut(len(self.Z), _SCANS_AT_ONCE)
        for some_rows in rows:
            fitted = self.mean + self.Z[some_rows] @ self.coefficients
            code = self.codes[some_rows]
            found[some_rows] = (found[some_rows] - fitted - self.location[code]) / self.spread[
                code
            ] + fitted
        return found if self.offset is None else found - self.offset


@dataclass(frozen=True, eq=False)
class Scans:
    """What a fit needs to know of its scans.

    Attributes
    ----------
    levels, codes : scanners, and which of them each scan was made with.
    terms, Z : covariates to keep, and their centred columns.
    reference : number of the scanner that the others are brought to, or None.
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

    def subset(self, scans: np.ndarray) -> tuple[Scans, np.ndarray]:
        """Some of the scans as a fit to them sees them, and the columns of all scans centred on
        theirs.
        """
        Z = self.Z - self.Z[scans].mean(axis=0)
        return replace(self, codes=self.codes[scans], Z=Z[scans]), Z

    def shared(self) -> dict[str, Any]:
        """What `_fit_block` needs."""
        within = (
            self.Z.copy()
        )  # the covariates within scanners, on one footing: their effects come from these alone
        for i in np.unique(self.codes):
            within[self.codes == i] -= self.Z[self.codes == i].mean(axis=0)
        return {
            "Z": self.Z,
            "solve": solver(within),
            "member": self.member,
            "counts": self.counts.astype(np.float64),
        }

    def adjustment(
        self, found: Estimates, Z: np.ndarray | None = None, codes: np.ndarray | None = None
    ) -> Adjustment:
        """What takes the scanners out of scans: of the fitted ones, unless others are given."""
        Z, codes = self.Z if Z is None else Z, self.codes if codes is None else codes
        of = (found.mean, found.location, found.scale)
        return ScannerAdjustment(Z, found.coefficients, None, None, False, codes, *of)


@dataclass(frozen=True, eq=False)
class Estimates:
    """m, β, σ, σγ* and δ* at some sites; see the top of this module."""

    mean: np.ndarray
    coefficients: np.ndarray
    sd: np.ndarray
    location: np.ndarray
    scale: np.ndarray


def estimate(
    found: Mapping[str, np.ndarray],
    scans: Scans,
    empirical_bayes: bool = True,
    part: np.ndarray | None = None,
) -> Estimates:
    """From what `_fit_block` found at all sites; of several measures (`part`) each by itself."""
    if part is not None:
        own = lambda which: {
            name: values[which] for name, values in found.items() if name.startswith("site.")
        }
        each = [
            (which, estimate(own(which), scans, empirical_bayes))
            for which in part == np.unique(part)[:, None]
        ]
        whole = {
            name: np.empty((*values.shape[:-1], len(part)))
            for name, values in vars(each[0][1]).items()
        }
        for which, one in each:
            for name, values in vars(one).items():
                whole[name][..., which] = values
        return Estimates(**whole)
    counts, reference = scans.counts, scans.reference
    level, squares, n = found["site.level"].T, found["site.squares"].T, len(scans.codes)
    base = np.zeros(level.shape[1]) if reference is None else level[reference]
    variance = (
        squares.sum(axis=0) / n if reference is None else squares[reference] / counts[reference]
    )
    mean, sd = found["site.mean"] + base, np.sqrt(variance)
    # rounding leaves a little where all scans have the same value
    varies = sd > 1e-12 * np.maximum(np.abs(mean), np.median(sd) if len(sd) else 0.0)
    sd = np.where(varies, sd, 0.0)
    location, scale = np.zeros_like(level), np.ones_like(level)
    for i, count in enumerate(counts.tolist()):
        if i == reference or count < 1:  # of a scanner without scans nothing is known
            continue
        gamma = (level[i, varies] - base[varies]) / sd[varies]
        if count < 2:
            location[i, varies] = gamma * sd[varies]
            continue
        delta = squares[i, varies] / ((count - 1) * variance[varies])
        gamma, delta = shrunk(gamma, delta, count, empirical_bayes)
        location[i, varies], scale[i, varies] = gamma * sd[varies], np.sqrt(delta)
    return Estimates(mean, found["site.beta"].T, sd, location, scale)


def estimate_of(
    x: np.ndarray, scans: Scans, empirical_bayes: bool = True, part: np.ndarray | None = None
) -> Estimates:
    """The same of an array, sites × scans."""
    return estimate(_fit_block(x, scans.shared()), scans, empirical_bayes, part)


class Look:
    """What one pass over maps finds at every site; see `_fit_block`."""

    def __init__(self, X: Stream, scans: Scans) -> None:
        self.found: Arrays = {}
        self.low = np.inf
        n_sites = X.shape[0]
        for rows, part in pass_over(X, each_wide_block(_fit_block), scans.shared()):
            for name, values in part.items():
                if name.startswith("site."):
                    self.found.setdefault(name, np.zeros((n_sites, *values.shape[1:])))[rows] = (
                        values
                    )
            self.low = min(self.low, float(part["min.low"]))
        if not np.isfinite(self.found["site.total"]).all():
            text = "X contains NaN or infinite values at sites in use; give a mask that leaves them out"
            raise ArgumentError("X", None, text)

    def estimates(
        self, scans: Scans, empirical_bayes: bool, part: np.ndarray | None = None
    ) -> Estimates:
        return estimate(self.found, scans, empirical_bayes, part)


def _fit_block(x: np.ndarray, shared: Mapping[str, Any]) -> Arrays:
    """At some sites: mean, effects of covariates, deviation of each scanner from the mean, residual
    squares.
    """
    member, counts = shared["member"], shared["counts"]
    mean = x.mean(axis=1, keepdims=True)
    deviation = x - mean
    beta = deviation @ shared["solve"].T
    rest = deviation - beta @ shared["Z"].T
    level = rest @ member.T / np.maximum(counts, 1)
    return {
        "site.mean": mean[:, 0],
        "site.beta": beta,
        "site.level": level,
        "site.squares": np.square(rest - level @ member) @ member.T,
        "site.total": np.square(deviation).sum(axis=1),
        "min.low": np.array(x.min(initial=np.inf)),
    }


def shrunk(
    gamma: np.ndarray, delta: np.ndarray, n: int, empirical_bayes: bool
) -> tuple[np.ndarray, np.ndarray]:
    """γ* and δ*² of one scanner, given its estimates at all sites: means of the posterior, each
    given the other.
    """
    varies = delta > 0
    spread = delta[varies].var(ddof=1) if varies.sum() > 1 else 0.0
    if not empirical_bayes or not spread > 0:
        return gamma, np.where(varies, delta, 1.0)
    centre, tau = gamma.mean(), gamma.var(ddof=1)
    middle = delta[varies].mean()
    a, b = 2 + middle**2 / spread, middle + middle**3 / spread
    g, d = gamma, np.where(varies, delta, middle)
    for _ in range(_MOST_STEPS):
        g_new = (tau * n * gamma + d * centre) / (tau * n + d)
        d_new = (0.5 * ((n - 1) * delta + n * (gamma - g_new) ** 2) + b) / (n / 2 + a - 1)
        change = max(float(np.abs(g_new - g).max()), float((np.abs(d_new - d) / d).max()))
        g, d = g_new, d_new
        if change < _TOL:
            break
    return g, d
