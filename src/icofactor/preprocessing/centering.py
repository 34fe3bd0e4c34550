"""What a fit removes from every site: nothing, its mean, or mean and standard deviation."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np

from icofactor.checks import OneOf, check_value
from icofactor.cohort.adjusted import subject_names
from icofactor.cohort.measures import Arrangement, Measures, measures_of
from icofactor.errors import ArgumentError
from icofactor.io.records import Numbers, plain_signature
from icofactor.maps.adjustment import Adjustment
from icofactor.maps.maps import Maps
from icofactor.maps.passes import Report
from icofactor.preprocessing.summary import Summary, check_together, summarize_maps
from icofactor.sphere.sites import Sites

CENTERS = ("auto", "none", "mean", "zscore")
# A site whose standard deviation is smaller, relative to its mean, has the same value in everyone.
CONSTANT = 1e-12


@plain_signature
@dataclass(frozen=True, eq=False)
class Centering:
    """The mean map of the fitted subjects, and what else is taken out of the maps.

    All arrays have one row; where several measures share maps, one row for each of them.

    Attributes
    ----------
    kind : "none", "mean" or "zscore"
    mean : (n_rows, n_sites)
    deviation : (n_rows, n_sites) standard deviations, with n − 1, for z-scores. Sites without
        variance hold 0: their z-scores are 0
    factor : (n_rows, n_sites) what values are multiplied by besides, for several measures
    measures : how the fit scaled several measures; None: there is one
    """

    kind: Literal["none", "mean", "zscore"]
    mean: Annotated[np.ndarray, Numbers("rv")]
    deviation: Annotated[np.ndarray | None, Numbers("rv", least=0)] = None
    factor: Annotated[np.ndarray | None, Numbers("rv", least=0)] = None
    measures: Measures | None = None

    @classmethod
    def of(cls, kind: str, summaries: Sequence[Summary]) -> Centering:
        """Return that of maps, or of the maps of several measures, from what a pass found."""
        mean = np.stack([summary.mean for summary in summaries])
        if kind != "zscore":
            return cls(kind, mean)  # type: ignore[arg-type]
        variance = [summary.site_variance / max(1, summary.n_subjects - 1) for summary in summaries]
        deviation = np.sqrt(np.stack(variance))
        # Rounding leaves a little where all subjects have the same value.
        typical = np.median(deviation, axis=1, keepdims=True) if deviation.size else 0.0
        is_constant = deviation <= CONSTANT * np.maximum(np.abs(mean), typical)
        return cls("zscore", mean, np.where(is_constant, 0.0, deviation))

    @property
    def n_constant(self) -> int:
        """Number of sites without variance, which z-scores leave out."""
        return 0 if self.deviation is None else int((self.deviation == 0).sum())

    @property
    def scale(self) -> np.ndarray | None:
        """What values are divided by: infinity at sites without variance."""
        scale = None
        if self.deviation is not None:
            scale = np.where(self.deviation > 0, self.deviation, np.inf)
        if self.factor is None:
            return scale
        return (1.0 if scale is None else scale) / self.factor

    @property
    def left(self) -> np.ndarray:
        """The mean map of what is fitted: 0 where it was taken out."""
        if self.kind != "none":
            return np.zeros_like(self.mean)
        return self.mean if self.factor is None else self.mean * self.factor

    @property
    def mean_left_in(self) -> np.ndarray | None:
        """The mean map, if it was not taken out and is ≥ 0: projective methods lift maps on it."""
        if self.kind != "none" or (self.mean < 0).any():
            return None
        return np.asarray(self.left.mean(axis=0))

    def adjustment(self, n_subjects: int) -> Adjustment | None:
        """Return what changes the maps of so many rows; None if nothing changes."""
        if self.kind == "none" and self.factor is None:
            return None
        offset = None if self.kind == "none" else self.mean
        return Adjustment(offset=offset, scale=self.scale, codes=self.codes(n_subjects))

    def applied(self, maps: Maps) -> Maps:
        """Return maps as they are fitted; values may then be below 0 if a mean was taken out."""
        floor = maps.floor and self.kind == "none"
        return maps.adjusted(self.adjustment(maps.n_subjects), floor=floor)

    def codes(self, n_subjects: int) -> np.ndarray | None:
        """Return the row of `mean` for each of so many subjects; None if there is one row."""
        n_rows = len(self.mean)
        if n_rows == 1:
            return None
        if n_subjects % n_rows:
            raise ArgumentError(
                "X",
                f"must have one row per person for each of {n_rows} measures, one measure after "
                f"the other; found {n_subjects} rows",
            )
        return np.repeat(np.arange(n_rows), n_subjects // n_rows)

    def membership(self, n_subjects: int) -> np.ndarray:
        """Return (n_rows, n_subjects) 1 where a subject has that row."""
        codes = self.codes(n_subjects)
        if codes is None:
            return np.ones((1, n_subjects))
        return (codes == np.arange(len(self.mean))[:, None]).astype(np.float64)

    def deviations(self, values: np.ndarray) -> np.ndarray:
        """Return values (anything × subjects) less their mean over the subjects of each row."""
        member = self.membership(values.shape[1])
        means = values @ member.T / member.sum(axis=1)
        return np.asarray(values - means @ member)

    def undone(self, maps: np.ndarray) -> np.ndarray:
        """Return fitted maps, subjects × sites, in the units of the data."""
        codes = self.codes(len(maps))
        rows: Any = 0 if codes is None else codes
        if self.factor is not None:
            # Masked sites have no factor, and maps of 0.
            factor = np.where(self.factor > 0, self.factor, 1.0)
            maps = maps / factor[rows]
        if self.kind == "none":
            return maps
        if self.deviation is not None:
            maps = maps * self.deviation[rows]
        return np.asarray(maps + self.mean[rows])

    def at(self, sites: Any) -> Centering:
        """Return that of some sites; None: all."""
        if sites is None:
            return self
        return self._changed(lambda values: values[:, sites])

    def on_all_sites(self, mask: np.ndarray | None) -> Centering:
        """Return that of the sites in use on all sites, 0 where masked."""
        if mask is None:
            return self

        def fill(values: np.ndarray) -> np.ndarray:
            filled = np.zeros((len(values), len(mask)))
            filled[:, mask] = values
            return filled

        return self._changed(fill)

    @property
    def described_measures(self) -> Measures | None:
        """The measures, with the mean and standard deviation of each if they share maps."""
        if self.measures is None or self.measures.share != "maps":
            return self.measures
        return replace(self.measures, mean=self.mean, deviation=self.deviation)

    def fits(self, sites: Sites, n_subjects: int) -> bool:
        """Return whether it belongs to these sites and this number of rows."""
        n_rows = len(self.mean)
        expected_rows = 1
        n_measures = 1
        has_factors = True
        if self.measures is not None:
            expected_rows = self.measures.arrangement(sites).n_stacked
            n_measures = self.measures.n
            factor = self.measures.factor
            has_factors = factor is not None and factor.min() > 0
        return bool(
            has_factors
            and n_rows == expected_rows
            and (self.kind == "zscore") == (self.deviation is not None)
            and sites.n_copies * n_rows == n_measures
            and n_subjects % n_rows == 0
        )

    def _changed(self, change: Any) -> Centering:
        values = {
            name: change(getattr(self, name))
            for name in ("mean", "deviation", "factor")
            if getattr(self, name) is not None
        }
        return replace(self, **values)


@dataclass(frozen=True, eq=False)
class MeasuredCentering:
    """The centering of maps that a pass looked at before their statistics are gathered.

    Attributes
    ----------
    centering : of the sites in use
    variance : Σ (x − the site's mean)² of what is fitted
    """

    centering: Centering
    variance: float


def centering_before(
    X: Any,
    settings: Any,
    method: Any,
    maps: Maps,
    sites: Sites,
    report: Report | None = None,
) -> MeasuredCentering | None:
    """Return the centering of a fit to X if its maps must be summarized first: one pass over them.

    That is so for z-scores and for several measures. `settings` has `center` and `rules`, as the
    estimator has.
    """
    kind = center_of(settings.center, method.scheme.centers, method.name, settings.rules)
    measures = measures_of(X)
    if measures is not None:
        measures.check_people(maps.n_subjects)
        kind = measures.center(kind, settings.center, method)
    if measures is None and kind != "zscore":
        return None
    names = subject_names(X)
    refusal = method.refusal(kind)
    measured = measured_centering(measures, kind, maps, sites, refusal, names, report)
    joined = measured.centering.measures
    if joined is not None and joined.warning:
        warnings.warn(joined.warning, UserWarning, stacklevel=6)
    return measured


def measured_centering(
    measures: Measures | None,
    kind: str,
    maps: Maps,
    sites: Sites,
    refusal: str | None = None,
    names: Sequence[str] | None = None,
    report: Report | None = None,
    check: bool = True,
) -> MeasuredCentering:
    """Return the centering and scaling of maps, each measure by itself, from one pass over them.

    Without `check`, maps that do not vary are not refused: those of some people may be alike.
    """
    arrangement = Arrangement() if measures is None else measures.arrangement(sites)
    summaries = []
    first = 0
    # Measures that lie side by side have sites of their own: one pass summarizes all of them.
    for measure_maps, _ in replace(arrangement, site_measure=None).each_measure(maps):
        own_names = None if names is None else names[first : first + measure_maps.n_subjects]
        first += measure_maps.n_subjects
        summary = Summary(maps.n_sites, measure_maps.n_subjects, refusal, own_names)
        summaries.append(summarize_maps(measure_maps, summary, report))
    if check:
        check_together(summaries, refusal, names)
    centering = Centering.of(kind, summaries)
    variance = sites.weigh(np.stack([summary.site_variance for summary in summaries]).T).T
    if measures is None:
        return MeasuredCentering(centering, float(_fitted_variance(centering, variance).sum()))
    n_people = summaries[0].n_subjects
    n_sites = sites.total_weight / (1 if arrangement.site_measure is None else measures.n)
    of_measures = _sums_of_measures(variance, arrangement)
    factors = measures.factors(of_measures, n_people, n_sites, kind)
    if not (factors == 1).all():
        rows = factors[:, None]
        if arrangement.site_measure is not None:
            rows = factors[arrangement.site_measure][None]
        factor = np.broadcast_to(rows, centering.mean.shape)
        centering = replace(centering, factor=np.array(factor))
    fitted = _sums_of_measures(_fitted_variance(centering, variance), arrangement)
    total = float(fitted.sum())
    measures = replace(measures, factor=factors, variance=fitted / total)
    return MeasuredCentering(replace(centering, measures=measures), total)


def _fitted_variance(centering: Centering, variance: np.ndarray) -> np.ndarray:
    """Return Σ (x − mean)² of every row and site after scaling."""
    scale = centering.scale
    return variance if scale is None else variance / scale**2


def _sums_of_measures(values: np.ndarray, arrangement: Arrangement) -> np.ndarray:
    """Return the sums of each measure, of its row or of its sites."""
    if arrangement.site_measure is None:
        return np.asarray(values.sum(axis=1))
    return np.bincount(arrangement.site_measure, values[0])


def center_of(center: str, allowed: tuple[str, ...], method: str, rules: str = "default") -> str:
    """The centering that `center` asks for, where the method allows it; "auto" is the method's own.

    Parameters
    ----------
    allowed : what the method's scheme takes, its own first (`Scheme.centers`)
    """
    check_value("center", center, OneOf(CENTERS))
    # The first is the scheme's own.
    if center == "auto":
        return allowed[0]
    problem = None
    if center not in allowed:
        problem = (
            f"makes values negative, which method {method} cannot factorize; pass --center auto "
            "(center='auto'), or --method parts (method='parts')"
        )
    elif rules == "paper" and center != "none":
        problem = (
            "cannot be combined with the rules of the paper, which fit uncentered maps; pass "
            "--center none (center='none'), or --rules default (rules='default')"
        )
    if problem is not None:
        raise ArgumentError("center", f"{center} {problem}")
    return center
