"""Age, sex, site: what is known of the subjects and not wanted in the components, taken out of the
maps.

Model, per site v and subject s, by least squares over the subjects:

    X_sv = m_v + Σ_j (z_sj − z̄_j) β_jv + e_sv          adjusted X_sv = m_v + e_sv + a_v,   a_v ≥ 0

where z are the covariates' columns (a number, or one 0/1 column per category but the first), z̄
their means over the fitted subjects and m_v the site's mean map. So every site keeps its mean, and
only differences between subjects
change. That is as structural-covariance NMF is used, except for how values stay ≥ 0: z-scores moved
up by a constant would lose m, and with it what "parts" of the cortex means. Here the residuals stay
on their mean, and

- the shift a_v is 0 where no fitted subject falls below 0, else just enough that the lowest one is
  0. It is one number per site, the same in every subject, so no difference between subjects
  changes;
- a new subject who falls below 0 even so is set to 0 there, and how many values that were is
  counted.

Signed methods (DL) need neither. Everything is kept with the model, so that new subjects are
adjusted by the fitted subjects' coefficients, means and shift, never by their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from icofactor.cohort.measures import Arrangement
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, Phrase, as_reference, literal
from icofactor.io.records import Numbers, plain_signature
from icofactor.io.tables import cell_text, is_missing, is_number
from icofactor.maps.adjustment import Adjustment
from icofactor.maps.blocks import Arrays
from icofactor.maps.maps import Maps
from icofactor.maps.passes import map_strips
from icofactor.maps.workers import one_blas_thread
from icofactor.preprocessing.adjusted import (
    adjust,
    lift_to_zero,
    share_removed,
    step_of,
    steps_of,
    subjects_of,
    unadjusted_maps,
)


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
        Effects, in units of the data per unit of the covariate; 0 at masked sites. Of joined
        measures,
        whatever they share, the sites of each one after the other.
    shift : array of shape (n_sites,) or None
        Shift ≥ 0 that keeps adjusted values ≥ 0; None for data that may be negative.
    explained : float
        Share of the between-subject variance that the covariates explain; of joined measures the
        mean.
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
            text = "X contains NaN or infinite values at sites in use; give a mask that leaves them out"
            raise ArgumentError("X", None, text)
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
        subjects.check(maps, "The covariates were", self.coefficients.shape[1], self.measures)
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
        """Whether another `Covariates` makes the same adjustment, for example after saving and
        loading a model.
        """
        if self is other or not isinstance(other, Covariates):
            return self is other
        ours, theirs = (np.zeros(0) if c.shift is None else c.shift for c in (self, other))
        alike = self.terms == other.terms and np.array_equal(self.coefficients, other.coefficients)
        return alike and np.array_equal(ours, theirs)

    def __str__(self) -> str:
        return ", ".join(map(str, self.terms))


def solver(Z: np.ndarray) -> np.ndarray:
    """(n_columns, n_subjects) what makes coefficients of deviations; 0 for columns that do not
    vary.
    """
    norms = np.linalg.norm(Z, axis=0)  # years, millilitres and 0/1 on one footing
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
    """What was taken out of these data by a regression, if anything."""
    found: Covariates | None = step_of(X, Covariates)
    return found


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
"""Columns that are categories even where they are coded by numbers."""
_CATEGORY = ":category"
_SKIP = " (load_cohort(needed=...); on the command line --missing-covariates skip)"


@dataclass(frozen=True)
class Term:
    """One covariate and how it becomes columns.

    Attributes
    ----------
    name : column of the participants' table.
    levels : the categories, the first being the one the others are compared with; None for a
        number.
    means : z̄, one per column.
    span : the lowest and the highest number in the fitted subjects; () for categories, and in older
        models.
    """

    name: str
    levels: tuple[str, ...] | None
    means: tuple[float, ...]
    span: tuple[float, ...] = field(default=(), compare=False)

    def columns(self, values: Sequence[Any], subjects: Sequence[str]) -> np.ndarray:
        """z − z̄ of subjects, one row each."""
        cells = cells_of(self.name, values, subjects)
        if self.levels is None:
            return _numbers(self.name, cells, subjects)[:, None] - self.means
        unknown = [i for i, cell in enumerate(cells) if cell not in self.levels]
        if unknown:
            found = sorted({cells[i] for i in unknown})
            name, levels = literal(repr(self.name)), some(self.levels, 10)
            raise _wrong(
                f"covariate {name} is {some(found, 10)} in {people(unknown, subjects)}; the fit had only {levels}: "
                f"{_recoding(found, self.levels) or 'they cannot be adjusted, so leave them out'}"
            )
        return _dummies(cells, self.levels) - self.means

    def beyond(self, values: Sequence[Any], subjects: Sequence[str]) -> str:
        """Who has a number outside the fitted ones, as text; "" where nobody has, or they are not
        known.
        """
        if not self.span:
            return ""
        numbers = _numbers(self.name, cells_of(self.name, values, subjects), subjects)
        outside = np.flatnonzero((numbers < self.span[0]) | (numbers > self.span[1])).tolist()
        known = f"{self.span[0]:g} to {self.span[1]:g}"
        return (
            f"{literal(self.name)} (fitted: {known}) in {people(outside, subjects)}"
            if outside
            else ""
        )

    @property
    def asked(self) -> str:
        """How one asks for it: name, or name:category."""
        return self.name if self.levels is None else f"{self.name}{_CATEGORY}"

    def __str__(self) -> str:
        return self.name if self.levels is None else f"{self.name} ({', '.join(self.levels)})"


class Coded(NamedTuple):
    """Covariates of the fitted subjects: the terms, and Z, their centred columns, one row per
    subject.
    """

    terms: tuple[Term, ...]
    Z: np.ndarray


def _recoding(found: Sequence[str], levels: Sequence[str]) -> str:
    """Advice where the categories are those of the fit by other names: female and male for F and M."""
    named = {
        cell: [level for level in levels if level[:1].casefold() == cell[:1].casefold()]
        for cell in found
    }
    same = lambda cell, level: (
        level.casefold().startswith(cell.casefold()) or cell.casefold().startswith(level.casefold())
    )
    if not all(len(near) == 1 and same(cell, near[0]) for cell, near in named.items()):
        return ""
    return "recode the table: " + literal(
        ", ".join(f"{cell} as {near[0]}" for cell, near in named.items())
    )


def code_terms(
    names: Sequence[str],
    participants: Mapping[str, Any],
    subjects: Sequence[str],
    argument: str = "covariates",
) -> Coded:
    """The terms of the fitted subjects and their centred columns; refuses what cannot be told
    apart.

    `argument`: what the caller calls the names.
    """
    plain = [name.removesuffix(_CATEGORY) for name in names]
    if not plain or len(set(plain)) < len(plain):
        raise ArgumentError(argument, Phrase(", ".join(names) or "none"), "unique names of columns")
    problems, terms, blocks = [], [], []
    for name, column in zip(names, plain, strict=True):
        try:
            values = table_column(column, participants, subjects)
            term = _term(column, values, subjects, name.endswith(_CATEGORY))
            terms.append(term)
            blocks.append(term.columns(values, subjects))
        except ArgumentError as problem:
            problems.append(problem)
    if problems:
        raise _all_of(problems, argument)
    Z = np.hstack(blocks)
    if Z.shape[1] + 2 > len(Z):
        made = f"{as_reference(argument)} make {Z.shape[1]} columns; {len(Z)} subjects are too few for them: use fewer"
        raise ArgumentError(argument, None, made)
    for i in range(1, len(terms) + 1):
        sofar = np.hstack(blocks[:i])
        if np.linalg.matrix_rank(sofar / np.linalg.norm(sofar, axis=0), tol=1e-8) < sofar.shape[1]:
            last, before = (
                literal(repr(terms[i - 1].name)),
                ", ".join(repr(term.name) for term in terms[: i - 1]),
            )
            raise _wrong(
                f"covariate {last} cannot be distinguished from {literal(before)} in these subjects: leave one out",
                argument,
            )
    return Coded(tuple(terms), Z)


def check_left(terms: Sequence[Term], taken: Sequence[str]) -> None:
    """Refuse covariates among columns whose effects were taken out already."""
    for term in terms:
        if term.name in taken:
            raise _wrong(
                f"covariate {literal(repr(term.name))} is already harmonized: leave it out"
            )


def columns_of(
    terms: Sequence[Term],
    participants: Mapping[str, Any],
    subjects: Sequence[str],
    argument: str = "covariates",
) -> np.ndarray:
    """Centred columns of subjects, new or not; whatever is wrong with any covariate is said at
    once.
    """
    problems, blocks = [], []
    for term in terms:
        try:
            blocks.append(term.columns(table_column(term.name, participants, subjects), subjects))
        except ArgumentError as problem:
            problems.append(problem)
    if problems:
        raise _all_of(problems, argument)
    return np.hstack([np.zeros((len(subjects), 0)), *blocks])


def is_category(name: str, cells: Sequence[str]) -> bool:
    """Whether a column is a category: by its name, or because it holds no number."""
    return name.lower() in CATEGORIES or not any(map(is_number, cells))


def _term(name: str, values: Sequence[Any], subjects: Sequence[str], category: bool) -> Term:
    cells = cells_of(name, values, subjects)
    levels = None
    commas = (
        all(is_number(cell.replace(",", ".")) for cell in cells) and name.lower() not in CATEGORIES
    )
    if category or (is_category(name, cells) and not commas):
        levels = tuple(sorted(set(cells)))
    columns = _dummies(cells, levels) if levels else _numbers(name, cells, subjects)[:, None]
    if np.ptp(columns, axis=0).max(initial=0) == 0:
        raise _wrong(
            f"covariate {literal(repr(name))} is {literal(cells[0])} in all subjects: leave it out"
        )
    span = () if levels else (float(columns.min()), float(columns.max()))
    return Term(name, levels, tuple(columns.mean(axis=0).tolist()), span)


def table_column(
    name: str, participants: Mapping[str, Any], subjects: Sequence[str]
) -> Sequence[Any]:
    """A column of the participants' table, one value per subject."""
    if name not in participants:
        known = (
            ", ".join(repr(str(column)) for column in participants if column != "participant_id")
            or "none"
        )
        if known == "none":
            raise _wrong(
                f"covariate {literal(repr(name))} needs {{participants}}, a table with that column"
            )
        text = (
            f"the participants table has no column {name!r} for a covariate; its columns: {known}"
        )
        raise _wrong(literal(text))
    values = participants[name]
    if len(values) != len(subjects):
        text = f"column {name!r} of the participants table has {len(values)} values for {len(subjects)} subjects"
        raise _wrong(literal(text))
    return values


def cells_of(name: str, values: Sequence[Any], subjects: Sequence[str]) -> list[str]:
    """Values as text, numbers written one way; none missing."""
    cells = [cell_text(value) for value in values]
    missing = [i for i, cell in enumerate(cells) if is_missing(cell)]
    if missing:
        who = "subject" if len(missing) == 1 else "subjects"
        who = f"{who} {some([subjects[i] for i in missing], len(missing))}"  # all of them, for {exclude}
        raise _wrong(
            f"covariate {literal(repr(name))} is missing for {who}: fill it in or leave them out{_SKIP}"
        )
    return cells


def _numbers(name: str, cells: Sequence[str], subjects: Sequence[str]) -> np.ndarray:
    wrong = [i for i, cell in enumerate(cells) if not is_number(cell)]
    if wrong:
        cell, who = literal(repr(cells[wrong[0]])), people(wrong, subjects)
        remedy = f"if it is a category, fit with {literal(name)}{_CATEGORY}"
        if all(is_number(cells[i].replace(",", ".")) for i in wrong):
            remedy = "write a decimal point, not a comma"
        raise _wrong(
            f"covariate {literal(repr(name))} contains numbers, but {cell} in {who}; {remedy}"
        )
    return np.array([float(cell) for cell in cells])


def _dummies(cells: Sequence[str], levels: Sequence[str]) -> np.ndarray:
    """One 0/1 column per category but the first."""
    return np.array([[float(cell == level) for level in levels[1:]] for cell in cells]).reshape(
        len(cells), -1
    )


def people(numbers: Sequence[int], subjects: Sequence[str]) -> str:
    return f"{'subject' if len(numbers) == 1 else 'subjects'} {some([subjects[i] for i in numbers], 10)}"


def _wrong(text: str, argument: str = "covariates") -> ArgumentError:
    """A covariate cannot be used; the text says which and why."""
    return ArgumentError(argument, None, text[0].upper() + text[1:])


def _all_of(problems: Sequence[ArgumentError], argument: str) -> ArgumentError:
    """What is wrong with several covariates, as one error."""
    return ArgumentError(argument, None, ". ".join(problem.expected for problem in problems))
