"""Mean and variance of every site, and whether the values can be factorized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icofactor.errors import ArgumentError
from icofactor.maps.blocks import Arrays, Levelled, Rows, summarize
from icofactor.maps.maps import Maps
from icofactor.maps.passes import Report, map_strips

# Squares of larger values, or of smaller ones, may leave the range of float64.
LARGEST = 1e120
SMALLEST = 1e-120
# Subjects that an error lists, by their names or by their rows.
MOST_NAMES = 20
MOST_ROWS = 5


class Summary:
    """What a pass finds of every site and of every subject.

    Parameters
    ----------
    n_sites, n_subjects : of the maps
    refusal : why negative values are refused and what to do, as the end of a sentence that begins
        "..., which"; None: they are allowed
    names : of the subjects, if they have any

    Attributes
    ----------
    mean, site_energy, site_variance : (n_sites,) mean, Σ x² and Σ (x − mean)² over subjects
    low, high : (n_subjects,) smallest and largest value of every subject
    subjects_differ : whether any two subjects differ anywhere
    """

    def __init__(
        self,
        n_sites: int,
        n_subjects: int,
        refusal: str | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.n_subjects = n_subjects
        self.mean = np.empty(n_sites)
        self.site_energy = np.empty(n_sites)
        self.site_variance = np.empty(n_sites)
        self.low = np.full(n_subjects, np.inf)
        self.high = np.full(n_subjects, -np.inf)
        self.subjects_differ = False
        self._refusal = refusal
        self._names = names

    @property
    def variance(self) -> float:
        """Σ over sites and subjects of (x − the site's mean)²."""
        return float(self.site_variance.sum())

    def add(self, sites: Rows, result: Mapping[str, np.ndarray]) -> None:
        """Keep what `summarize` found of a block, and check that its values are finite."""
        self.add_range(result)
        self.subjects_differ = self.subjects_differ or bool(result["max.differ"])
        self.mean[sites] = result["site.mean"]
        self.site_energy[sites] = result["site.energy"]
        self.site_variance[sites] = result["site.variance"]

    def add_range(self, result: Mapping[str, np.ndarray]) -> None:
        """Keep what `value_range` found of a block, and check that its values are finite."""
        low = result["min.low"]
        high = result["max.high"]
        is_finite = np.isfinite(low) & np.isfinite(high)
        problem = None
        if not is_finite.all():
            problem = (
                f"contains NaN or infinite values in {self._listed(~is_finite)}; give a mask that "
                "leaves those sites out, or fix the files they come from"
            )
        elif max(-low.min(), high.max()) > LARGEST:
            problem = f"contains values beyond ±{LARGEST:g}, too large to square; use other units"
        if problem is not None:
            raise ArgumentError("X", problem)
        self.low = np.minimum(self.low, low)
        self.high = np.maximum(self.high, high)

    def check_signs(self) -> None:
        """Refuse negative values where they are forbidden, naming every subject that has one."""
        is_negative = self.low < 0
        if self._refusal is not None and is_negative.any():
            raise ArgumentError(
                "X",
                f"contains negative values in {self._listed(is_negative)}, down to "
                f"{self.low.min():.3g}, which {self._refusal}, or shift the maps to values ≥ 0",
            )

    def check(self) -> None:
        """Refuse signs, and subjects or maps that do not vary, after the last block."""
        self.check_signs()
        is_flat = self.low == self.high
        problem = None
        if is_flat.any():
            kind = "constant" if self.high[is_flat].any() else "zero"
            problem = f"is {kind} over all sites in {self._listed(is_flat)}; leave them out"
        elif max(-self.low.min(), self.high.max()) < SMALLEST:
            problem = f"has no value beyond ±{SMALLEST:g}, too small to square; use other units"
        elif not self.subjects_differ:
            problem = "is the same in all subjects, so there are no differences to explain"
        if problem is not None:
            raise ArgumentError("X", problem)

    def _listed(self, is_meant: np.ndarray) -> str:
        """Name subjects: by name if they have one, else by row."""
        rows = np.flatnonzero(is_meant).tolist()
        if self._names is None:
            return f"{_list('subject', rows, MOST_ROWS)} (row numbers of X)"
        share = f" ({len(rows)} of {len(is_meant)})" if len(rows) > 1 else ""
        return _list("subject", [self._names[row] for row in rows], MOST_NAMES) + share


def check_together(
    summaries: Sequence[Summary],
    refusal: str | None,
    names: Sequence[str] | None,
) -> None:
    """Check the summaries of several measures, and name the subjects of all of them."""
    n_subjects = sum(summary.n_subjects for summary in summaries)
    together = Summary(0, n_subjects, refusal, names)
    together.low = np.concatenate([summary.low for summary in summaries])
    together.high = np.concatenate([summary.high for summary in summaries])
    together.subjects_differ = all(summary.subjects_differ for summary in summaries)
    together.check()


def summarize_maps(maps: Maps, summary: Summary, report: Report | None = None) -> Summary:
    """Summarize maps in a pass that gathers nothing else."""
    for sites, result in map_strips(_summarize_strip, maps, report=report):
        summary.add(sites, result)
    return summary


def _summarize_strip(x: np.ndarray, shared: Mapping[str, Any]) -> Arrays:
    # The Summary reports what is not finite.
    with np.errstate(invalid="ignore", over="ignore"):
        return summarize(x, Levelled.of(x))


def _list(noun: str, names: Sequence[Any], most: int) -> str:
    """Return 'subject 3', or 'subjects 1, 2, 3 and 97 more'."""
    listed = ", ".join(map(str, names[:most]))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{noun}{'s' if len(names) > 1 else ''} {listed}{more}"
