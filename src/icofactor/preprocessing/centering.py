"""What is taken out of every site before a fit: nothing, the mean, or mean and deviation (method.md §10)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from icofactor.errors import ArgumentError, Phrase, literal
from icofactor.streaming.source import Adjustment

CENTERS = ("auto", "none", "mean", "zscore")


@dataclass(frozen=True, eq=False)
class Centering:
    """The mean map of the fitted subjects, and their standard deviation at every site.

    Attributes
    ----------
    kind : "none", "mean" or "zscore"
    mean : (n_sites,)
    deviation : (n_sites,) with n − 1, for z-scores only. Sites without variance hold 0: their z-scores are 0.
    n_constant : number of sites without variance, which z-scores leave out
    """

    kind: str
    mean: np.ndarray
    deviation: np.ndarray | None = None
    n_constant: int = 0

    @classmethod
    def of(cls, kind: str, mean: np.ndarray, site_variance: np.ndarray, n_subjects: int) -> Centering:
        """From each site's mean and Σ (x − mean)² over `n_subjects`."""
        if kind != "zscore":
            return cls(kind, mean)
        deviation = np.sqrt(site_variance / max(1, n_subjects - 1))
        # rounding leaves a little where all subjects have the same value
        flat = deviation <= 1e-12 * np.maximum(np.abs(mean), np.median(deviation) if len(deviation) else 0.0)
        return cls(kind, mean, np.where(flat, 0.0, deviation), int(flat.sum()))

    @property
    def adjustment(self) -> Adjustment | None:
        """What a source does to values on their way; None where there is nothing to do."""
        if self.kind == "none":
            return None
        scale = None if self.deviation is None else np.where(self.deviation > 0, self.deviation, np.inf)
        return Adjustment(offset=self.mean, scale=scale)

    @property
    def mean_left_in(self) -> np.ndarray | None:
        """The mean map where it was not taken out and is ≥ 0 everywhere: projective methods lift such maps on it."""
        return self.mean if self.kind == "none" and bool((self.mean >= 0).all()) else None

    def undone(self, maps: np.ndarray) -> np.ndarray:
        """Fitted maps, subjects × sites, in the data's own units."""
        if self.kind == "none":
            return maps
        return (maps if self.deviation is None else maps * self.deviation) + self.mean


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
            f"{{center='{center}'}} does not go with {{rules='paper'}}, which fits the maps as they are; use "
            "{center='none'}, or {rules='default'}",
        )
    return center
