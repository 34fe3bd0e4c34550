"""ComBat: what scanners and sites add to maps, in location and scale, taken out by empirical Bayes.

Model (Johnson et al. 2007; Fortin et al. 2018), per site of the mesh v and scan s made at scanner
(or site) i:

    X_sv = m_v + Σ_j (z_sj − z̄_j) β_jv + σ_v (γ_iv + δ_iv ε_sv)

    harmonized X_sv = (X_sv − fitted_sv − σ_v γ*_iv) / δ*_iv + fitted_sv,     fitted_sv = m_v + Σ_j
    (z_sj − z̄_j) β_jv

β are the effects of the covariates to keep, m the mean map (that of the reference, where there is
one), σ_v the residual standard deviation. γ_i and δ_i² are estimated at every v by least squares
and drawn towards priors that all v share: a normal one for γ_i, an inverse gamma one for δ_i². One
pass over X finds the estimates, a second one what values need to stay ≥ 0 (as for covariates: a
lift per v, the same in every scan; new scans below 0 are set to 0).

To keep the two meanings of "site" apart, the places where people were scanned are called scanners
in this module's code; in the table and in messages the column has its own name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from icofactor.checks import Whole, check_value
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, Phrase, literal
from icofactor.io.records import Numbers, plain_signature
from icofactor.maps.blocks import Arrays
from icofactor.maps.maps import Maps
from icofactor.maps.passes import map_strips
from icofactor.maps.workers import one_blas_thread
from icofactor.preprocessing.adjusted import (
    Subjects,
    adjust,
    lift_to_zero,
    share_removed,
    subjects_of,
    unadjusted_maps,
)
from icofactor.preprocessing.covariates import (
    Term,
    cells_of,
    code_terms,
    columns_of,
    people,
    table_column,
)
from icofactor.preprocessing.scanners import Scans, estimate_scanners, scanner_adjustment, shrunk

LEAST_SCANS = 10
"""Scans that a scanner must have, in a fit and to be learnt later."""


@plain_signature
@dataclass(frozen=True, eq=False)
class Harmonization:
    """Differences between scanners at each site of the mesh, as estimated by `ComBat`.

    Attributes
    ----------
    column : str
        Column of the participants table with the scanner.
    levels, counts : tuple of str, tuple of int
        Its values in the fitted scans, and the number of scans of each.
    terms : tuple
        Covariates whose effects were kept.
    reference : str or None
        Level that the others were adjusted to; None for the mean of all.
    mean, sd : arrays of shape (n_sites,)
        m and σ; σ is 0 where nothing was done: at masked sites, and where all scans are equal.
    coefficients : array of shape (n_columns, n_sites)
        β of the covariates that were kept.
    location, scale : arrays of shape (n_levels, n_sites)
        σ γ* in units of the data, and δ*.
    shift : array of shape (n_sites,) or None
        Shift that keeps values ≥ 0; None for data that may be negative.
    explained, explained_each : float, array or None
        Share of the between-subject variance that harmonization removed; see `Covariates`.
    least : int
        Number of scans from which a new level is estimated.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> found = ico.preprocessing.ComBat().fit(cohort, ["A", "B"] * 10).harmonization_
    >>> found.levels, found.counts, found.location.shape
    (('A', 'B'), (10, 10), (2, 642))
    """

    kept_as: ClassVar[str] = "harmonization_"

    column: str
    levels: tuple[str, ...]
    counts: tuple[int, ...]
    terms: tuple[Term, ...]
    reference: str | None
    mean: Annotated[np.ndarray, Numbers("s")]
    coefficients: Annotated[np.ndarray, Numbers("cs")]
    sd: Annotated[np.ndarray, Numbers("s", least=0)]
    location: Annotated[np.ndarray, Numbers("bs")]
    scale: Annotated[np.ndarray, Numbers("bs", least=0)]
    shift: Annotated[np.ndarray | None, Numbers("s", least=0)]
    explained: float
    empirical_bayes: bool = True
    least: int = LEAST_SCANS
    explained_each: Annotated[np.ndarray | None, Numbers("m")] = None
    measures: tuple[str, ...] = ()

    def apply(self, X: Any, participants: Any = None) -> Any:
        """Harmonize maps of scans, new or fitted.

        Nothing is copied: values are computed when the result is sliced. A scanner that the fit did
        not have is first estimated from its scans, in one pass.

        Parameters
        ----------
        X : Cohort, or array of shape (n_subjects, n_sites)
            Maps; an array needs `participants`.
        participants : mapping, optional
            Column → one value per subject. Default: those of the cohort.
        """
        maps = unadjusted_maps(X)
        subjects = subjects_of(X, _table(participants, self.column))
        subjects.check(maps, "Harmonization was", len(self.mean), self.measures)
        levels, codes = self.check(subjects.participants, subjects.names)
        Z = columns_of(self.terms, subjects.participants, subjects.names, "keep")
        new_levels = levels[len(self.levels) :]
        estimates = self
        if new_levels:
            location, scale = self._learn(maps, subjects, codes, Z, len(new_levels))
            estimates = replace(
                self,
                location=np.vstack([self.location, location]),
                scale=np.vstack([self.scale, scale]),
            )
        counts = Counter(codes.tolist())
        notes = tuple(
            f"{self.column} {level} was not in the fit: its differences were estimated from its "
            f"{counts[code]} scans"
            for code, level in enumerate(new_levels, len(self.levels))
        )
        adjustment = scanner_adjustment(
            estimates,
            Z,
            codes,
            subjects.arrangement,
            shift=self.shift,
            made_by=self,
            notes=notes,
        )
        return adjust(X, maps, adjustment, floor=self.shift is not None)

    def check(
        self, participants: Mapping[str, Any], subjects: Sequence[str]
    ) -> tuple[list[str], np.ndarray]:
        """Check new scans: all levels (new ones last), and the level of each scan."""
        cells = _scanners(self.column, participants, subjects)
        counts = Counter(cell for cell in cells if cell not in self.levels)
        few = sorted(level for level, n in counts.items() if n < self.least)
        if few:
            who = people([i for i, cell in enumerate(cells) if cell in few], subjects)
            raise ArgumentError(
                "harmonize",
                None,
                f"Column {literal(repr(self.column))} is {some(few, 10)} in {who}; the fit had only "
                f"{some(self.levels, 10)}: to estimate a new one, give at least {self.least} scans of it together, or "
                "leave them out",
            )
        levels = [*self.levels, *sorted(counts)]
        return levels, np.array([levels.index(cell) for cell in cells], dtype=np.int64)

    def _learn(
        self, maps: Maps, subjects: Subjects, codes: np.ndarray, Z: np.ndarray, n_new: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return location and scale of new levels, given what the fit estimated of all."""
        location = np.zeros((n_new, len(self.mean)))
        scale = np.ones((n_new, len(self.mean)))
        with one_blas_thread():
            for number in range(n_new):
                people = np.flatnonzero(codes == len(self.levels) + number)
                each = subjects.arrangement.each_measure(maps, subjects.mask)
                for measure_maps, positions in each:
                    varies = self.sd[positions] > 0
                    positions = positions[varies]
                    level, squares = self._standardized(
                        measure_maps.subset(people, varies), positions, Z[people]
                    )
                    # Sites where some of these scans have no value tell nothing.
                    is_known = np.isfinite(level) & np.isfinite(squares)
                    positions = positions[is_known]
                    gamma, delta = shrunk(
                        level[is_known], squares[is_known], len(people), self.empirical_bayes
                    )
                    location[number, positions] = gamma * self.sd[positions]
                    scale[number, positions] = np.sqrt(delta)
        return location, scale

    def _standardized(
        self, maps: Maps, positions: np.ndarray, Z: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of standardized values of the scans of one new level."""
        level = np.zeros(maps.n_sites)
        squares = np.ones(maps.n_sites)
        per_site = (self.mean[positions], self.coefficients[:, positions].T, self.sd[positions])
        passes = map_strips(_standardized_strip, maps, *per_site, shared={"Z": Z}, double=True)
        for sites, result in passes:
            level[sites] = result["site.level"]
            squares[sites] = result["site.squares"]
        return level, squares

    @property
    def names(self) -> tuple[str, ...]:
        """The harmonized column."""
        return (self.column,)

    @property
    def combat(self) -> ComBat:
        """A `ComBat` with the same settings, for other scans."""
        keep = tuple(term.asked for term in self.terms)
        settings: dict[str, Any] = {
            "reference": self.reference,
            "empirical_bayes": self.empirical_bayes,
        }
        return ComBat(self.column, keep, **settings, min_scans=self.least)

    @property
    def done(self) -> str:
        """Description of what was done to the maps."""
        return f"harmonized over {self.column}"

    @property
    def n_shifted(self) -> int:
        """Number of sites whose shift is not 0."""
        return 0 if self.shift is None else int((self.shift > 0).sum())

    def same_as(self, other: Any) -> bool:
        """Whether another `Harmonization` makes the same adjustment, for example after saving and
        loading a model.
        """
        if self is other or not isinstance(other, Harmonization):
            return self is other
        shift = lambda one: np.zeros(0) if one.shift is None else one.shift
        arrays = lambda one: (one.mean, one.coefficients, one.location, one.scale, shift(one))
        alike = (self.column, self.levels, self.terms) == (other.column, other.levels, other.terms)
        return alike and all(
            np.array_equal(a, b) for a, b in zip(arrays(self), arrays(other), strict=True)
        )

    def __str__(self) -> str:
        listed = ", ".join(
            f"{level}: {n}" for level, n in zip(self.levels, self.counts, strict=True)
        )
        kept = f", keeping the effects of {', '.join(map(str, self.terms))}" if self.terms else ""
        return f"{self.column} ({listed}){kept}"


class ComBat(TransformerMixin, BaseEstimator):
    """Harmonize maps over scanners or sites, in location and scale, by empirical Bayes.

    Parameters
    ----------
    site : str, default="site"
        Column of the participants table with the scanner or site of each scan.
    keep : sequence of str, default=()
        Columns whose effects stay in the maps, such as ("age", "sex"), coded as in `Covariates`.
        Name everything that differs between sites and matters: other differences are removed as
        differences between scanners.
    reference : str or None, default=None
        Site whose maps do not change; the others are adjusted to it. None adjusts all to their
        mean.
    empirical_bayes : bool, default=True
        Whether to shrink estimates towards values that all sites of the mesh share.
    nonnegative : bool or None, default=None
        Whether harmonized values must stay ≥ 0. None: if all fitted values are.
    min_scans : int, default=10
        Minimum number of scans per site; at least 3.

    Attributes
    ----------
    harmonization_ : Harmonization
        The estimates. A model that is fitted to harmonized maps keeps them as its own
        `harmonization_`.
    n_features_in_ : int
        Number of sites of the mesh.

    See Also
    --------
    icofactor.Covariates : removes linear effects, such as those of age.

    References
    ----------
    Johnson, Li & Rabinovic 2007, Biostatistics 8:118-127. Fortin et al. 2018, NeuroImage
    167:104-120.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(40, 3, mesh="fsaverage3")
    >>> people = {**cohort.participants, "site": ["A", "B"] * 20}
    >>> combat = ico.preprocessing.ComBat(keep=["age", "sex"]).fit(cohort, people)
    >>> harmonized = combat.transform(cohort, people)
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(harmonized)
    >>> print(model.harmonization_)
    site (A: 20, B: 20), keeping the effects of age, sex (F, M)
    """

    def __init__(
        self,
        site: str = "site",
        keep: Sequence[str] = (),
        *,
        reference: str | None = None,
        empirical_bayes: bool = True,
        nonnegative: bool | None = None,
        min_scans: int = LEAST_SCANS,
    ) -> None:
        self.site = site
        self.keep = keep
        self.reference = reference
        self.empirical_bayes = empirical_bayes
        self.nonnegative = nonnegative
        self.min_scans = min_scans

    @property
    def column(self) -> str:
        """Name of the column."""
        return str(self.site).removesuffix(_CATEGORY)

    def fit(self, X: Any, participants: Any = None, *, mask: np.ndarray | None = None) -> ComBat:
        """Estimate how scanners differ, in two passes over X.

        Parameters
        ----------
        X : Cohort, or array of shape (n_subjects, n_sites)
            Maps; an array needs `participants`.
        participants : mapping, DataFrame or sequence, optional
            Column → one value per subject, or the values of the site column alone. Default: those
            of the cohort.
        mask : bool array of shape (n_sites,), optional
            True for sites of the mesh in use. Default: that of the cohort.

        Examples
        --------
        >>> import icofactor as ico
        >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
        >>> combat = ico.preprocessing.ComBat().fit(cohort.X, {"site": ["A", "B"] * 10})
        >>> combat.n_features_in_
        642
        """
        maps = unadjusted_maps(X)
        subjects = subjects_of(X, _table(participants, self.column))
        scans = self.check(subjects.participants, subjects.names)
        arrangement = subjects.arrangement
        mask = subjects.sites_in_use(mask)
        with one_blas_thread():
            estimates = estimate_scanners(maps, scans, self.empirical_bayes, arrangement, mask)
            adjustment = scanner_adjustment(estimates, scans.Z, scans.codes, arrangement)
            shift = np.zeros(len(estimates.mean))
            remaining = []
            for measure_maps, positions in arrangement.each_measure(
                maps.adjusted(adjustment), mask
            ):
                squares = 0.0
                for sites, result in map_strips(_harmonized_strip, measure_maps, double=True):
                    shift[positions[sites]] = result["site.shift"]
                    squares += float(result["sum.squares"])
                remaining.append(squares)
        nonnegative = self.nonnegative
        if nonnegative is None:
            nonnegative = bool((estimates.low >= 0).all())
        explained, explained_each = share_removed(estimates.total, remaining)
        self.harmonization_ = Harmonization(
            column=self.column,
            levels=scans.levels,
            counts=tuple(scans.counts.tolist()),
            terms=scans.terms,
            reference=None if scans.reference is None else scans.levels[scans.reference],
            mean=estimates.mean,
            coefficients=estimates.coefficients,
            sd=estimates.sd,
            location=estimates.location,
            scale=estimates.scale,
            shift=shift if nonnegative else None,
            explained=explained,
            explained_each=explained_each,
            measures=arrangement.names,
            empirical_bayes=bool(self.empirical_bayes),
            least=int(self.min_scans),
        )
        self.n_features_in_ = maps.n_sites
        return self

    def transform(self, X: Any, participants: Any = None) -> Any:
        """Harmonize maps of scans, new or fitted. Nothing is copied: values are computed when the
        result is sliced.

        Examples
        --------
        >>> import icofactor as ico
        >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
        >>> people = {"site": ["A", "B"] * 10}
        >>> ico.preprocessing.ComBat().fit(cohort.X, people).transform(cohort.X, people)[:3].shape
        (3, 642)
        """
        check_is_fitted(self)
        return self.harmonization_.apply(X, participants)

    def fit_transform(
        self, X: Any, participants: Any = None, *, mask: np.ndarray | None = None
    ) -> Any:
        """Fit, and return the harmonized maps of the fitted scans."""
        return self.fit(X, participants, mask=mask).transform(X, participants)

    def check(self, participants: Mapping[str, Any], subjects: Sequence[str]) -> Scans:
        """Check parameters and table before any map is read, and return the scans as numbers."""
        check_value("min_scans", self.min_scans, Whole(3))
        column = self.column
        cells, shown = _scanners(column, participants, subjects), literal(repr(column))
        counts = Counter(cells)
        if len(counts) < 2:
            one = f"Column {shown} is {literal(cells[0])} in all subjects: nothing to harmonize"
            raise ArgumentError("harmonize", None, f"{one}; leave out {{harmonize}}")
        few = {level: n for level, n in sorted(counts.items()) if n < self.min_scans}
        if few:
            listed = some([f"{level} ({n})" for level, n in few.items()], 10)
            raise ArgumentError(
                "harmonize",
                None,
                f"Column {shown} has fewer than {self.min_scans} scans of {listed}: too few to estimate how they "
                "differ; leave them out, or join them with others in that column",
            )
        levels = tuple(sorted(counts))
        if self.reference is not None and str(self.reference) not in levels:
            raise ArgumentError(
                "reference", self.reference, f"a value of column {shown}: {some(levels, 10)}"
            )
        terms, Z = code_terms([f"{column}{_CATEGORY}", *self.keep], participants, subjects, "keep")
        codes = np.array([levels.index(cell) for cell in cells], dtype=np.int64)
        reference = None if self.reference is None else levels.index(str(self.reference))
        return Scans(levels, codes, terms[1:], Z[:, len(levels) - 1 :], reference)


_CATEGORY = ":category"


def as_combat(
    harmonize: ComBat | str | None, keep: Sequence[str] = (), reference: str | None = None
) -> ComBat | None:
    """The ComBat that is meant by a column and the columns to keep."""
    if isinstance(harmonize, str):
        return ComBat(harmonize, tuple(keep), reference=reference)
    if harmonize is None:
        for name, given in (("keep", keep), ("reference", reference)):
            if given:
                raise ArgumentError(name, None, f"{{{name}}} needs {{harmonize}}")
    elif not isinstance(harmonize, ComBat):
        raise ArgumentError(
            "harmonize", Phrase(type(harmonize).__name__), "a column's name, a ComBat or None"
        )
    return harmonize


def columns_needed(
    harmonize: ComBat | str | None, keep: Sequence[str], covariates: Sequence[str]
) -> list[str]:
    """Columns of the participants' table that harmonizing and covariates use."""
    combat = as_combat(harmonize, keep if isinstance(harmonize, str) else ())
    own = [] if combat is None else [combat.column, *combat.keep]
    return [name.removesuffix(_CATEGORY) for name in (*own, *covariates)]


def _harmonized_strip(x: np.ndarray, shared: Mapping[str, Any]) -> Arrays:
    """Return what harmonized values need to stay ≥ 0, and their squared deviations."""
    deviation = x - x.mean(axis=1, keepdims=True)
    return {"site.shift": lift_to_zero(x), "sum.squares": np.array(np.square(deviation).sum())}


def _standardized_strip(
    x: np.ndarray, shared: Mapping[str, Any], mean: Any, beta: Any, sd: Any
) -> Arrays:
    """Return mean and variance of standardized values of one scanner that the fit did not know."""
    standard = (x - mean[:, None] - beta @ shared["Z"].T) / sd[:, None]
    return {"site.level": standard.mean(axis=1), "site.squares": standard.var(axis=1, ddof=1)}


def _scanners(column: str, participants: Mapping[str, Any], subjects: Sequence[str]) -> list[str]:
    """The site column as text, none missing."""
    try:
        return cells_of(column, table_column(column, participants, subjects), subjects)
    except ArgumentError as problem:
        raise ArgumentError("harmonize", None, problem.expected) from None


def _table(participants: Any, site: str) -> Any:
    """A table; the values of one column stand for the site's."""
    if participants is None or hasattr(participants, "keys"):
        return participants
    return {site: list(participants)}
