"""ComBat: what scanners and sites add to maps, in location and scale, removed by empirical Bayes.

Model (Johnson et al. 2007; Fortin et al. 2018), per site of the mesh v and scan s made at scanner
(or site) i:

    X_sv = m_v + Σ_j (z_sj − z̄_j) β_jv + σ_v (γ_iv + δ_iv ε_sv)

    harmonized X_sv = (X_sv − fitted_sv − σ_v γ*_iv) / δ*_iv + fitted_sv
    fitted_sv = m_v + Σ_j (z_sj − z̄_j) β_jv

β are the effects of the covariates to keep, m the mean map (that of the reference, where there is
one), σ_v the residual standard deviation. γ_i and δ_i² are estimated at every v by least squares
and drawn towards priors that all v share: a normal one for γ_i, an inverse gamma one for δ_i². One
pass over X finds the estimates, a second one what values need to stay ≥ 0 (as for covariates: a
lift per v, the same in every scan; new scans below 0 are set to 0).

To keep the two meanings of "site" apart, the code of this module calls the places where people were
scanned scanners; in the table and in messages the column has its own name.
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
from icofactor.errors import ArgumentError, shown
from icofactor.io.records import Numbers, plain_signature
from icofactor.maps.blocks import Arrays
from icofactor.maps.maps import Maps
from icofactor.maps.passes import map_strips
from icofactor.maps.workers import one_blas_thread
from icofactor.preprocessing.adjusted import (
    Subjects,
    adjust,
    is_same,
    lift_to_zero,
    share_removed,
    subjects_of,
    unadjusted_maps,
)
from icofactor.preprocessing.covariates import (
    CATEGORY,
    MOST_LISTED,
    Term,
    cells_of,
    code_terms,
    columns_of,
    people,
)
from icofactor.preprocessing.scanners import Scans, estimate_scanners, scanner_adjustment, shrunk

# Scans that a scanner must have, in a fit and to be learnt later.
LEAST_SCANS = 10

# Attributes of a harmonization that determine what it does to maps.
SAME = ("column", "levels", "terms", "mean", "coefficients", "location", "scale", "shift")


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
    >>> estimates = ico.preprocessing.ComBat().fit(cohort, ["A", "B"] * 10).harmonization_
    >>> estimates.levels, estimates.counts, estimates.location.shape
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
        subjects.check(maps, "harmonization was", len(self.mean), self.measures)
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
        rare = sorted(level for level, n in counts.items() if n < self.least)
        if rare:
            rows = [row for row, cell in enumerate(cells) if cell in rare]
            raise ArgumentError(
                "harmonize",
                f"column {self.column!r} is {some(rare, MOST_LISTED)} in {people(rows, subjects)}; "
                f"the fit had only {some(self.levels, MOST_LISTED)}: to estimate a new one, give "
                f"at least {self.least} scans of it together, or leave them out",
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
                scans = np.flatnonzero(codes == len(self.levels) + number)
                measures = subjects.arrangement.each_measure(maps, subjects.mask)
                for measure_maps, positions in measures:
                    varies = self.sd[positions] > 0
                    positions = positions[varies]
                    level, squares = self._standardized(
                        measure_maps.subset(scans, varies), positions, Z[scans]
                    )
                    # Sites where some of these scans have no value tell nothing.
                    is_finite = np.isfinite(level) & np.isfinite(squares)
                    positions = positions[is_finite]
                    gamma, delta = shrunk(
                        level[is_finite], squares[is_finite], len(scans), self.empirical_bayes
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
        return ComBat(
            self.column,
            tuple(term.asked for term in self.terms),
            reference=self.reference,
            empirical_bayes=self.empirical_bayes,
            min_scans=self.least,
        )

    @property
    def done(self) -> str:
        """Description of what was done to the maps."""
        return f"harmonized over {self.column}"

    @property
    def n_shifted(self) -> int:
        """Number of sites whose shift is not 0."""
        return 0 if self.shift is None else int((self.shift > 0).sum())

    def same_as(self, other: Any) -> bool:
        """Whether another step makes the same adjustment, as after saving and loading a model."""
        return is_same(self, other, SAME)

    def __str__(self) -> str:
        counts = zip(self.levels, self.counts, strict=True)
        text = f"{self.column} ({', '.join(f'{level}: {n}' for level, n in counts)})"
        if not self.terms:
            return text
        return f"{text}, keeping the effects of {', '.join(map(str, self.terms))}"


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
        return str(self.site).removesuffix(CATEGORY)

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
        # Blocks of sites are already spread over threads.
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
        """Harmonize maps of scans, new or fitted.

        Nothing is copied: values are computed when the result is sliced.

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
        cells = _scanners(column, participants, subjects)
        counts = Counter(cells)
        rare = [f"{level} ({n})" for level, n in sorted(counts.items()) if n < self.min_scans]
        problem = None
        if len(counts) < 2:
            problem = f"is {cells[0]} in all subjects: there is nothing to harmonize"
        elif rare:
            problem = (
                f"has fewer than {self.min_scans} scans of {some(rare, MOST_LISTED)}: too few to "
                "estimate how they differ; leave them out, or join them with others in that column"
            )
        if problem is not None:
            raise ArgumentError("harmonize", f"column {column!r} {problem}")
        levels = tuple(sorted(counts))
        reference = None
        if self.reference is not None:
            if str(self.reference) not in levels:
                raise ArgumentError(
                    "reference",
                    f"must be a value of column {column!r}, {some(levels, MOST_LISTED)}; found "
                    f"{shown(self.reference)}",
                )
            reference = levels.index(str(self.reference))
        names = [f"{column}{CATEGORY}", *self.keep]
        terms, Z = code_terms(names, participants, subjects, "keep")
        codes = np.array([levels.index(cell) for cell in cells], dtype=np.int64)
        # The columns of the scanner itself only show whether others can be distinguished from it.
        return Scans(levels, codes, terms[1:], Z[:, len(levels) - 1 :], reference)


def as_combat(
    harmonize: ComBat | str | None, keep: Sequence[str] = (), reference: str | None = None
) -> ComBat | None:
    """Return the ComBat of a column and of the columns to keep, or as it is."""
    if isinstance(harmonize, str):
        return ComBat(harmonize, tuple(keep), reference=reference)
    if harmonize is None and (keep or reference):
        name = "keep" if keep else "reference"
        raise ArgumentError(name, "needs --harmonize (harmonize=...)")
    if harmonize is not None and not isinstance(harmonize, ComBat):
        text = f"must be the name of a column, a ComBat or None; found {shown(harmonize)}"
        raise ArgumentError("harmonize", text)
    return harmonize


def columns_needed(
    harmonize: ComBat | str | None, keep: Sequence[str], covariates: Sequence[str]
) -> list[str]:
    """Return the columns of the participants table that harmonizing and covariates use."""
    combat = as_combat(harmonize, keep if isinstance(harmonize, str) else ())
    columns = [] if combat is None else [combat.column, *combat.keep]
    return [name.removesuffix(CATEGORY) for name in (*columns, *covariates)]


def _harmonized_strip(x: np.ndarray, shared: Mapping[str, Any]) -> Arrays:
    """Return what harmonized values need to stay ≥ 0, and their squared deviations."""
    deviation = x - x.mean(axis=1, keepdims=True)
    return {"site.shift": lift_to_zero(x), "sum.squares": np.array(np.square(deviation).sum())}


def _standardized_strip(
    x: np.ndarray, shared: Mapping[str, Any], mean: np.ndarray, beta: np.ndarray, sd: np.ndarray
) -> Arrays:
    """Return mean and variance of standardized values of one scanner that the fit did not know."""
    standard = (x - mean[:, None] - beta @ shared["Z"].T) / sd[:, None]
    return {"site.level": standard.mean(axis=1), "site.squares": standard.var(axis=1, ddof=1)}


def _scanners(column: str, participants: Mapping[str, Any], subjects: Sequence[str]) -> list[str]:
    """Return the site column as text, none missing."""
    try:
        return cells_of(column, participants, subjects)
    except ArgumentError as error:
        raise ArgumentError("harmonize", error.message) from None


def _table(participants: Any, site: str) -> Any:
    """Return a table; the values of one column stand for those of the site column."""
    if participants is None or hasattr(participants, "keys"):
        return participants
    return {site: list(participants)}
