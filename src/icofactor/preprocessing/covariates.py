"""Age, sex, site: what is known of the subjects, removed from their maps.

Model, per site v and subject s, by least squares over the subjects:

    X_sv = m_v + Σ_j (z_sj − z̄_j) β_jv + e_sv          adjusted X_sv = m_v + e_sv + a_v,   a_v ≥ 0

where z are the covariates' columns (a number, or one 0/1 column per category but the first), z̄
their means over the fitted subjects and m_v the site's mean map. So every site keeps its mean, and
only differences between subjects change. Structural-covariance NMF is used in the same way, except
for how values stay ≥ 0: z-scores moved up by a constant would lose m, and with it what "parts" of
the cortex means. Here the residuals stay on their mean, and

- the shift a_v is 0 where no fitted subject falls below 0, else just enough that the lowest one is
  0. It is one number per site, the same in every subject, so no difference between subjects
  changes;
- a new subject who falls below 0 even so is set to 0 there, and how many values that were is
  counted.

Signed methods (DL) need neither. Everything is kept with the model, so that new subjects are
adjusted by the coefficients, means and shift of the fitted subjects, never by their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from icofactor.cohort.measures import Arrangement
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, shown
from icofactor.io.records import Numbers, plain_signature
from icofactor.io.tables import cell_text, is_missing, is_number
from icofactor.maps.adjustment import Adjustment
from icofactor.maps.blocks import Arrays
from icofactor.maps.maps import Maps
from icofactor.maps.passes import map_strips
from icofactor.maps.workers import one_blas_thread
from icofactor.preprocessing.adjusted import (
    adjust,
    is_same,
    lift_to_zero,
    share_removed,
    step_of,
    steps_of,
    subjects_of,
    unadjusted_maps,
)

# Columns that are categories even where they are coded by numbers.
CATEGORIES = (
    "sex",
    "gender",
    "site",
    "scanner",
    "center",
    "centre",
    "batch",
    "group",
    "study",
    "cohort",
)
# Ending by which users mark a column of numbers as a category.
CATEGORY = ":category"
# Names and values that an error lists.
MOST_LISTED = 10
# Columns whose directions differ by less than this share cannot be distinguished.
RANK_TOLERANCE = 1e-8
NOT_FINITE = "contains NaN or infinite values at sites in use; give a mask that leaves them out"
SKIP = "(load_cohort(needed=...); on the command line --missing-covariates skip)"


@plain_signature
@dataclass(frozen=True, eq=False)
class Covariates:
    """Linear effects of covariates on the maps, and how to remove them.

    Use `Covariates.fit` to estimate the effects and `apply` to remove them. A model that is fitted
    to adjusted maps keeps its covariates and removes them from new subjects.

    Attributes
    ----------
    terms : tuple
        Covariates, in the order of the rows of `coefficients`.
    coefficients : array of shape (n_columns, n_sites)
        Effects, in units of the data per unit of the covariate; 0 at masked sites. The sites of
        joined measures follow each other.
    shift : array of shape (n_sites,) or None
        Shift ≥ 0 that keeps adjusted values ≥ 0; None for data that may be negative.
    explained : float
        Share of the between-subject variance that the covariates explain, a mean over measures.
    explained_each : array of shape (n_measures,) or None
        That share of each of several measures.
    measures : tuple of str
        Their names, in order; () for one.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> covariates = ico.Covariates.fit(cohort, ["age", "sex"])
    >>> adjusted = covariates.apply(cohort)
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(adjusted)
    """

    kept_as: ClassVar[str] = "covariates_"

    terms: tuple[Term, ...]
    coefficients: Annotated[np.ndarray, Numbers("cs")]
    shift: Annotated[np.ndarray | None, Numbers("s", least=0)]
    explained: float
    explained_each: Annotated[np.ndarray | None, Numbers("m")] = None
    measures: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls,
        X: Any,
        names: Sequence[str] | Coded,
        participants: Mapping[str, Sequence[Any]] | None = None,
        *,
        mask: np.ndarray | None = None,
        nonnegative: bool = True,
    ) -> Covariates:
        """Regress every site on the covariates, in one pass over X.

        Parameters
        ----------
        X : Cohort, or array of shape (n_subjects, n_sites)
            Maps; an array needs `participants`.
        names : sequence of str
            Columns of the participants table. Text columns, columns named in `CATEGORIES` (such as
            sex and site) and columns written "name:category" are categories; other columns are
            numbers. The result of `code_terms` also works.
        participants : mapping, optional
            Column → one value per subject. Default: those of the cohort.
        mask : bool array of shape (n_sites,), optional
            True for sites in use. Default: that of the cohort.
        nonnegative : bool, default=True
            Whether adjusted values must stay ≥ 0.

        Examples
        --------
        >>> import icofactor as ico
        >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
        >>> covariates = ico.Covariates.fit(cohort, ["age", "sex"])
        >>> covariates.names, covariates.coefficients.shape
        (('age', 'sex'), (2, 642))
        """
        maps = unadjusted_maps(X, allowed=("harmonization_",))
        subjects = subjects_of(X, participants)
        if isinstance(names, Coded):
            terms, Z = names
        else:
            terms, Z = code_terms(names, subjects.participants, subjects.names)
        check_left(terms, [name for step in steps_of(X) for name in step.names])
        with one_blas_thread():
            effects = regress(maps, Z, subjects.arrangement, subjects.sites_in_use(mask))
        if not np.isfinite(effects.total).all():
            raise ArgumentError("X", NOT_FINITE)
        explained, explained_each = share_removed(effects.total, effects.remaining)
        return cls(
            terms=terms,
            coefficients=effects.coefficients,
            shift=effects.shift if nonnegative else None,
            explained=explained,
            explained_each=explained_each,
            measures=subjects.arrangement.names,
        )

    def apply(self, X: Any, participants: Mapping[str, Sequence[Any]] | None = None) -> Any:
        """Remove the effects from maps of subjects, new or fitted.

        Nothing is copied: values are computed when the result is sliced.

        Parameters
        ----------
        X : Cohort, or array of shape (n_subjects, n_sites)
            Maps; an array needs `participants`.
        participants : mapping, optional
            Column → one value per subject. Default: those of the cohort.

        Returns
        -------
        adjusted cohort, or array-like of shape (n_subjects, n_sites)

        Examples
        --------
        >>> import icofactor as ico
        >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
        >>> adjusted = ico.Covariates.fit(cohort, ["age"]).apply(cohort)
        >>> adjusted.X[:5].shape
        (5, 642)
        """
        maps = unadjusted_maps(X, allowed=("harmonization_",))
        subjects = subjects_of(X, participants)
        subjects.check(maps, "the covariates were", self.coefficients.shape[1], self.measures)
        Z = columns_of(self.terms, subjects.participants, subjects.names)
        adjustment = removal(Z, self.coefficients, self.shift, subjects.arrangement, self)
        return adjust(X, maps, adjustment, floor=self.shift is not None)

    @property
    def done(self) -> str:
        """Description of what was done to the maps."""
        return f"adjusted for {', '.join(self.names)}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the covariates."""
        return tuple(term.name for term in self.terms)

    @property
    def n_shifted(self) -> int:
        """Number of sites whose shift is not 0."""
        return 0 if self.shift is None else int((self.shift > 0).sum())

    def same_as(self, other: Any) -> bool:
        """Whether another step makes the same adjustment, as after saving and loading a model."""
        return is_same(self, other, ("terms", "coefficients", "shift"))

    def __str__(self) -> str:
        return ", ".join(map(str, self.terms))


def solver(Z: np.ndarray) -> np.ndarray:
    """Return (n_columns, n_subjects) what makes coefficients of deviations.

    Columns that do not vary get coefficients of 0.
    """
    # Years, millilitres and 0/1 have one scale in the pseudo-inverse.
    norms = np.linalg.norm(Z, axis=0)
    norms = np.where(norms > 0, norms, 1.0)
    return np.asarray(np.linalg.pinv(Z / norms) / norms[:, None])


@dataclass(frozen=True, eq=False)
class Effects:
    """Linear effects on every site, sites of one measure after those of another.

    Attributes
    ----------
    coefficients : (n_columns, n_sites), 0 at sites that are not in use
    shift : (n_sites,) what raises adjusted values to 0
    total, remaining : squared deviations of each measure, before and after the effects are removed
    """

    coefficients: np.ndarray
    shift: np.ndarray
    total: list[float]
    remaining: list[float]


def regress(
    maps: Maps,
    Z: np.ndarray,
    arrangement: Arrangement,
    mask: np.ndarray | None = None,
    people: np.ndarray | None = None,
) -> Effects:
    """Regress every site on the centred columns Z of the people, each measure by itself.

    It takes one pass over the maps of `people` (numbers; None: all).
    """
    n_sites = maps.n_sites * arrangement.n_stacked
    effects = Effects(np.zeros((Z.shape[1], n_sites)), np.zeros(n_sites), [], [])
    shared = {"Z": Z, "solve": solver(Z)}
    for measure_maps, positions in arrangement.each_measure(maps, mask):
        fitted_maps = measure_maps.subset(subjects=people)
        sums = np.zeros(2)
        for sites, result in map_strips(regress_strip, fitted_maps, shared=shared, double=True):
            effects.coefficients[:, positions[sites]] = result["site.beta"].T
            effects.shift[positions[sites]] = result["site.shift"]
            sums += result["sum.squares"]
        effects.total.append(float(sums[0]))
        effects.remaining.append(float(sums[1]))
    return effects


def regress_strip(x: np.ndarray, shared: Mapping[str, Any]) -> Arrays:
    """Return coefficients and shift of some sites, and sums of squares before and after."""
    mean = x.mean(axis=1, keepdims=True)
    deviation = x - mean
    beta = deviation @ shared["solve"].T
    residual = deviation - beta @ shared["Z"].T
    return {
        "site.beta": beta,
        "site.shift": lift_to_zero(mean + residual),
        "sum.squares": np.array([np.square(deviation).sum(), np.square(residual).sum()]),
    }


def removal(
    Z: np.ndarray,
    coefficients: np.ndarray,
    shift: np.ndarray | None,
    arrangement: Arrangement,
    made_by: Any = None,
) -> Adjustment:
    """Return the adjustment that removes effects from the maps of people with the columns Z."""
    return Adjustment(
        Z=arrangement.regressors(Z),
        removed=arrangement.stack(coefficients),
        shift=arrangement.stack(None if shift is None else shift[None]),
        codes=arrangement.codes(None, 1, len(Z)),
        made_by=made_by,
    )


def covariates_of(X: Any) -> Covariates | None:
    """Return the covariates whose effects were removed from these data, if any."""
    step: Covariates | None = step_of(X, Covariates)
    return step


@dataclass(frozen=True)
class Term:
    """One covariate and how it becomes columns.

    Attributes
    ----------
    name : column of the participants table
    levels : the categories, compared with the first one; None for a number
    means : z̄, one per column
    span : the lowest and the highest number in the fitted subjects; () for categories, and in older
        models
    """

    name: str
    levels: tuple[str, ...] | None
    means: tuple[float, ...]
    span: tuple[float, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, requested: str, participants: Mapping[str, Any], subjects: Sequence[str]) -> Term:
        """Return the term of a column as the user requests it: name, or name:category."""
        name = requested.removesuffix(CATEGORY)
        cells = cells_of(name, participants, subjects)
        # Numbers with decimal commas are no categories: `_numbers` refuses them with advice.
        has_commas = all(is_number(cell.replace(",", ".")) for cell in cells)
        has_numbers = has_commas or any(map(is_number, cells))
        levels = None
        if requested != name or name.lower() in CATEGORIES or not has_numbers:
            levels = tuple(sorted(set(cells)))
            columns = _dummies(cells, levels)
        else:
            columns = _numbers(name, cells, subjects)
        if np.ptp(columns, axis=0).max(initial=0) == 0:
            text = f"{name!r} is {cells[0]} in all subjects: leave it out"
            raise ArgumentError("covariates", text)
        span = () if levels else (float(columns.min()), float(columns.max()))
        return cls(name, levels, tuple(columns.mean(axis=0).tolist()), span)

    def columns(self, participants: Mapping[str, Any], subjects: Sequence[str]) -> np.ndarray:
        """Return z − z̄ of subjects, one row each."""
        cells = cells_of(self.name, participants, subjects)
        if self.levels is None:
            return _numbers(self.name, cells, subjects) - self.means
        unknown = [row for row, cell in enumerate(cells) if cell not in self.levels]
        if unknown:
            categories = sorted({cells[row] for row in unknown})
            raise ArgumentError(
                "covariates",
                f"{self.name!r} is {some(categories, MOST_LISTED)} in {people(unknown, subjects)}; "
                f"the fit had only {some(self.levels, MOST_LISTED)}: recode the table, or leave "
                "these subjects out",
            )
        return _dummies(cells, self.levels) - self.means

    def beyond(self, values: Sequence[Any], subjects: Sequence[str]) -> str:
        """Return who has a number outside the fitted ones, as text; "" if nobody has."""
        if not self.span:
            return ""
        low, high = self.span
        cells = cells_of(self.name, {self.name: values}, subjects)
        numbers = _numbers(self.name, cells, subjects)[:, 0]
        outside = np.flatnonzero((numbers < low) | (numbers > high)).tolist()
        if not outside:
            return ""
        return f"{self.name} (fitted: {low:g} to {high:g}) in {people(outside, subjects)}"

    @property
    def asked(self) -> str:
        """The term as users request it: name, or name:category."""
        return self.name if self.levels is None else f"{self.name}{CATEGORY}"

    def __str__(self) -> str:
        return self.name if self.levels is None else f"{self.name} ({', '.join(self.levels)})"


class Coded(NamedTuple):
    """Covariates of the fitted subjects: the terms, and Z, their centred columns."""

    terms: tuple[Term, ...]
    Z: np.ndarray


def code_terms(
    names: Sequence[str],
    participants: Mapping[str, Any],
    subjects: Sequence[str],
    argument: str = "covariates",
) -> Coded:
    """Return the terms of the fitted subjects and their centred columns.

    Refuses covariates that cannot be distinguished. `argument` is what the caller calls the names.
    """
    plain = [name.removesuffix(CATEGORY) for name in names]
    if not plain or len(set(plain)) < len(plain):
        text = f"must be unique names of columns; found {', '.join(names) or 'none'}"
        raise ArgumentError(argument, text)
    terms = _of_all(lambda name: Term.of(name, participants, subjects), names, argument)
    Z = columns_of(terms, participants, subjects, argument)
    # Residuals of fewer subjects than columns and mean would all be 0.
    if Z.shape[1] + 2 > len(Z):
        text = f"make {Z.shape[1]} columns; {len(Z)} subjects are too few for them: use fewer"
        raise ArgumentError(argument, text)
    # One by one, to name the first that depends on those before it.
    for n_terms in range(1, len(terms) + 1):
        columns = columns_of(terms[:n_terms], participants, subjects, argument)
        scaled_columns = columns / np.linalg.norm(columns, axis=0)
        if np.linalg.matrix_rank(scaled_columns, tol=RANK_TOLERANCE) < columns.shape[1]:
            earlier = ", ".join(repr(term.name) for term in terms[: n_terms - 1])
            raise ArgumentError(
                argument,
                f"{terms[n_terms - 1].name!r} cannot be distinguished from {earlier} in these "
                "subjects: leave one out",
            )
    return Coded(tuple(terms), Z)


def check_left(terms: Sequence[Term], harmonized: Sequence[str]) -> None:
    """Refuse covariates among columns whose effects are removed already."""
    for term in terms:
        if term.name in harmonized:
            raise ArgumentError("covariates", f"{term.name!r} is already harmonized: leave it out")


def columns_of(
    terms: Sequence[Term],
    participants: Mapping[str, Any],
    subjects: Sequence[str],
    argument: str = "covariates",
) -> np.ndarray:
    """Return centred columns of subjects, new or not."""
    # Zero columns for no terms, so that ComBat without covariates needs no case of its own.
    blocks = _of_all(lambda term: term.columns(participants, subjects), terms, argument)
    return np.hstack([np.zeros((len(subjects), 0)), *blocks])


def _of_all(function: Callable[[Any], Any], items: Sequence[Any], argument: str) -> list[Any]:
    """Return the function of all items, or raise one error with the problems of all of them."""
    values = []
    messages = []
    for item in items:
        try:
            values.append(function(item))
        except ArgumentError as error:
            messages.append(str(error.message))
    if messages:
        raise ArgumentError(argument, "; ".join(messages))
    return values


def is_category(name: str, cells: Sequence[str]) -> bool:
    """Whether a column is a category: by its name, or because it holds no number."""
    return name.lower() in CATEGORIES or not any(map(is_number, cells))


def cells_of(name: str, participants: Mapping[str, Any], subjects: Sequence[str]) -> list[str]:
    """Return a column of the participants table as text, one value per subject, none missing."""
    problem = None
    # Numbers are written in one way, whatever their type.
    cells = [cell_text(value) for value in participants.get(name, ())]
    missing = [name for name, cell in zip(subjects, cells, strict=False) if is_missing(cell)]
    if name not in participants:
        columns = [str(column) for column in participants if column != "participant_id"]
        names = ", ".join(columns) or "none, so give participants"
        problem = f"is not a column of the participants table; its columns: {names}"
    elif len(cells) != len(subjects):
        problem = f"has {len(cells)} values for {len(subjects)} subjects"
    elif missing:
        # All of them, so that users can copy the names to --exclude.
        listed = some(missing, len(missing))
        problem = f"is missing for {listed}: fill it in or leave them out {SKIP}"
    if problem is not None:
        raise ArgumentError("covariates", f"{name!r} {problem}")
    return cells


def _numbers(name: str, cells: Sequence[str], subjects: Sequence[str]) -> np.ndarray:
    """Return (n_subjects, 1) the numbers that the cells must be."""
    wrong = [row for row, cell in enumerate(cells) if not is_number(cell)]
    if wrong:
        advice = f"if it is a category, fit with {name}{CATEGORY}"
        if all(is_number(cells[row].replace(",", ".")) for row in wrong):
            advice = "write a decimal point, not a comma"
        raise ArgumentError(
            "covariates",
            f"{name!r} contains numbers, but {shown(cells[wrong[0]])} in "
            f"{people(wrong, subjects)}; {advice}",
        )
    return np.array([[float(cell)] for cell in cells])


def _dummies(cells: Sequence[str], levels: Sequence[str]) -> np.ndarray:
    """Return one 0/1 column per category but the first."""
    is_level = np.array(cells)[:, None] == np.array(levels[1:], dtype=str)
    return is_level.astype(np.float64)


def people(rows: Sequence[int], subjects: Sequence[str]) -> str:
    """Return "subject 3", or "subjects 3, 4 and 7 more"."""
    noun = "subject" if len(rows) == 1 else "subjects"
    return f"{noun} {some([subjects[row] for row in rows], MOST_LISTED)}"
