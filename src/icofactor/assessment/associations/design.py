"""A formula's terms and a table → the columns of a regression, and the same columns for other rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from icofactor.assessment.associations.formula import Factor, TermFactors, unusable
from icofactor.cohort.people import MEASURE
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, Phrase, literal
from icofactor.io.tables import cell_text, is_missing, is_number
from icofactor.preprocessing.covariates import is_category

_LEAST_LEFT = 3
"""Rows that must be left over after fitting."""

# ---------------------------------------------------------------------- tables


def rows_of(table: Any, n: int) -> dict[str, list[Any]]:
    """A table (column → values, or a data frame) as lists of n values."""
    try:
        columns = {str(name): list(table[name]) for name in table}
    except (TypeError, ValueError, KeyError):
        raise ArgumentError(
            "table", Phrase(f"a {type(table).__name__}"), "a table: column → one value per row"
        ) from None
    if len(columns.get(MEASURE, ())) > n > 0:  # of joined measures, people have a row for each
        columns = {name: values[:n] for name, values in columns.items() if name != MEASURE}
    for name, values in columns.items():
        if len(values) != n:
            found = Phrase(f"{len(values)} values in {name!r} for {n} rows of loadings")
            raise ArgumentError("table", found, "one value per row of the loadings in every column")
    return columns


def row_names(table: Mapping[str, Sequence[Any]], n: int) -> list[str]:
    """What rows are called in messages."""
    people = [cell_text(value) for value in table.get("participant_id", [])] or [
        f"row {i + 1}" for i in range(n)
    ]
    sessions = [cell_text(value) for value in table.get("session_id", [""] * n)]
    return [f"{person} {session}".strip() for person, session in zip(people, sessions, strict=True)]


def complete_rows(
    table: Mapping[str, Sequence[Any]],
    columns: Sequence[str],
    n: int,
    missing: str,
    argument: str = "formula",
) -> np.ndarray:
    """Which rows have a value in all the columns; refuses unknown columns, and missing values
    unless they are skipped.

    Parameters
    ----------
    missing : "raise" or "skip".
    """
    if missing not in ("raise", "skip"):
        raise ArgumentError("missing_covariates", missing, "'raise' or 'skip'")
    unknown = [column for column in columns if column not in table]
    if unknown:
        has = ", ".join(repr(name) for name in table if name != "participant_id") or "none"
        hint = "; give a table with it ({participants})" if has == "none" else ""
        text = f"The table has no column {', '.join(map(repr, unknown))}; its columns: {has}"
        raise ArgumentError(argument, None, literal(text) + hint)
    absent = {
        column: [is_missing(cell_text(value)) for value in table[column]] for column in columns
    }
    complete = np.ones(n, dtype=bool)
    for flags in absent.values():
        complete &= ~np.array(flags)
    if missing == "raise" and not complete.all():
        who = row_names(table, n)
        each = [
            f"{column!r} in {', '.join(name for name, gone in zip(who, flags, strict=True) if gone)}"
            for column, flags in absent.items()
            if any(flags)
        ]
        advice = "fill them in, or leave these rows out with {missing_covariates='skip'}"
        raise ArgumentError(
            argument, None, f"Values are missing, {literal('; '.join(each))}: {advice}"
        )
    return complete


@dataclass(frozen=True)
class Variable:
    """A column as the model uses it: levels of a category, or None and the range of a number."""

    column: str
    levels: tuple[str, ...] | None
    lowest: float = math.nan
    highest: float = math.nan

    @classmethod
    def of(cls, factor: Factor, values: Sequence[Any], who: Sequence[str]) -> Variable:
        cells = [cell_text(value) for value in values]
        name = literal(repr(factor.column))
        if len(set(cells)) == 1:
            raise unusable(f"{name} is {literal(cells[0])} in all rows: leave it out")
        if factor.code == "{}" and (factor.category or is_category(factor.column, cells)):
            levels = sorted(
                set(cells),
                key=lambda cell: (not is_number(cell), float(cell) if is_number(cell) else 0, cell),
            )
            if factor.base is not None:
                if factor.base not in levels:
                    raise unusable(
                        f"{name} has no level {literal(repr(factor.base))}; its levels: {some(levels, 20)}"
                    )
                levels = [factor.base, *(level for level in levels if level != factor.base)]
            return cls(factor.column, tuple(levels))
        wrong = [i for i, cell in enumerate(cells) if not is_number(cell)]
        if wrong:
            where = some([who[i] for i in wrong], 10)
            other = literal(repr(cells[wrong[0]][:40]))
            raise unusable(
                f"{name} contains numbers, but {other} in {where}; for a category write C({literal(factor.column)})"
            )
        numbers = [float(cell) for cell in cells]
        if not 1e-100 < (largest := max(map(abs, numbers))) < 1e100:
            raise unusable(f"{name} has values up to {largest:.3g}: use another unit")
        return cls(factor.column, None, min(numbers), max(numbers))

    def values(self, cells: Sequence[Any]) -> Any:
        """A column of the frame that formulaic encodes."""
        import pandas as pd

        if self.levels is None:
            return np.array([float(cell) for cell in cells])
        return pd.Categorical([cell_text(cell) for cell in cells], categories=list(self.levels))

    def outside(self, cells: Sequence[Any]) -> np.ndarray:
        """Which values these rows have and the fitted ones do not: beyond the range, or of no
        level.
        """
        if self.levels is not None:
            return np.array([cell_text(cell) not in self.levels for cell in cells], dtype=bool)
        numbers = np.array([float(cell_text(cell)) for cell in cells])
        return np.asarray((numbers < self.lowest) | (numbers > self.highest))


# ---------------------------------------------------------------------- designs


@dataclass(frozen=True, eq=False)
class Term:
    """One term of a design.

    Attributes
    ----------
    name : as a reader writes it.
    factors : what it is the product of.
    columns : numbers of its columns.
    labels : names of its columns.
    cells : counts of rows per level or combination of levels, of its categories.
    """

    name: str
    factors: TermFactors
    columns: tuple[int, ...]
    labels: tuple[str, ...]
    cells: dict[str, int]


@dataclass(frozen=True, eq=False)
class RegressionDesign:
    """The columns of a regression, and how to make them again for other rows.

    Attributes
    ----------
    X : (n_rows, n_columns), the intercept first.
    labels : names of the columns.
    terms : without the intercept.
    variables : the columns of the table behind the factors.
    """

    X: np.ndarray
    labels: tuple[str, ...]
    terms: tuple[Term, ...]
    variables: Mapping[Factor, Variable]
    table: Mapping[str, Sequence[Any]]
    _spec: Any

    @classmethod
    def of(
        cls, terms: Sequence[TermFactors], table: Mapping[str, Sequence[Any]]
    ) -> RegressionDesign:
        """The design of complete rows; refuses constants, empty cells, terms that cannot be told
        apart.
        """
        import formulaic

        n = len(next(iter(table.values())))
        who = row_names(table, n)
        factors = list(
            dict.fromkeys(
                factor for term in terms for factor in sorted(term, key=lambda f: f.label)
            )
        )
        if n < 2 + _LEAST_LEFT:
            raise unusable(f"{n} rows are too few")
        variables = {factor: Variable.of(factor, table[factor.column], who) for factor in factors}
        written = {factor: factor.code.format(f"x{i}_") for i, factor in enumerate(factors)}
        cells = {term: _cells(term, variables, table) for term in terms}
        frame = _frame(variables, table)
        text = " + ".join(["1", *(":".join(written[f] for f in _ordered(term)) for term in terms)])
        try:
            with np.errstate(all="ignore"):
                matrix = formulaic.model_matrix(text, frame, context=_CONTEXT, na_action="ignore")
        except formulaic.errors.FormulaicError as problem:
            raise unusable(
                f"it cannot be computed: {literal(' '.join(str(problem).split())[:200])}"
            ) from None
        slices = {
            frozenset(f.expr for f in term.factors): where
            for term, where in matrix.model_spec.term_slices.items()
        }
        names = [_label(str(name), written) for name in matrix.columns]
        found = []
        for term in terms:
            place = slices[frozenset(written[f] for f in term)]
            columns = tuple(range(place.start, place.stop))
            name = ":".join(f.label for f in _ordered(term))
            found.append(Term(name, term, columns, tuple(names[i] for i in columns), cells[term]))
        X = matrix.to_numpy(dtype=np.float64)
        _check_columns(X, found)
        return cls(X, tuple(names), tuple(found), variables, dict(table), matrix.model_spec)

    def at(self, table: Mapping[str, Sequence[Any]]) -> np.ndarray:
        """The columns of other rows, coded as these were."""
        frame = _frame(self.variables, table)
        matrix = self._spec.get_model_matrix(frame, context=_CONTEXT, na_action="ignore")
        return np.asarray(matrix.to_numpy(dtype=np.float64))

    def averages(self, column: str, values: Sequence[Any]) -> np.ndarray:
        """(n_values, n_columns) means over the rows, had all of them this value in one column of
        the table.
        """
        n = len(self.X)
        table = {name: list(cells) * len(values) for name, cells in self.table.items()}
        table[column] = [value for value in values for _ in range(n)]
        return np.asarray(self.at(table).reshape(len(values), n, -1).mean(axis=1))

    def without_interactions_of(self, term: Term) -> list[int]:
        """Columns of the model in which a term is tested: all but those of terms that contain it."""
        beyond = {i for other in self.terms if other.factors > term.factors for i in other.columns}
        return [i for i in range(self.X.shape[1]) if i not in beyond]


_CONTEXT = {"sqrt": np.sqrt}


def _ordered(term: TermFactors) -> list[Factor]:
    return sorted(term, key=lambda factor: factor.label)


def _frame(variables: Mapping[Factor, Variable], table: Mapping[str, Sequence[Any]]) -> Any:
    import pandas as pd

    columns = {
        f"x{i}_": variable.values(table[f.column])
        for i, (f, variable) in enumerate(variables.items())
    }
    return pd.DataFrame(columns)


def _label(name: str, written: Mapping[Factor, str]) -> str:
    """A column's name as a reader would write it: group[patient], s(age)[1]."""
    for factor, code in written.items():
        name = name.replace(code, factor.label)
    return name.replace("[T.", "[")


def _cells(
    term: TermFactors, variables: Mapping[Factor, Variable], table: Mapping[str, Sequence[Any]]
) -> dict[str, int]:
    """Rows per combination of the levels of a term's categories; refuses a combination that nobody
    has.
    """
    categories = [variables[f] for f in _ordered(term) if variables[f].levels is not None]
    if not categories:
        return {}
    rows = list(
        zip(*([cell_text(value) for value in table[v.column]] for v in categories), strict=True)
    )
    counts = {
        combination: rows.count(combination)
        for combination in product(*(v.levels or () for v in categories))
    }
    empty = [cell for cell, count in counts.items() if not count]
    if empty:
        names = [v.column for v in categories]
        each = [
            " and ".join(f"{name} {level}" for name, level in zip(names, cell, strict=True))
            for cell in empty
        ]
        raise unusable(
            f"nobody has {some(each, 10)}: leave out {literal(':'.join(names))}, or join levels"
        )
    return {", ".join(cell): count for cell, count in counts.items()}


def _check_columns(X: np.ndarray, terms: Sequence[Term]) -> None:
    for term in terms:
        if not np.isfinite(X[:, term.columns]).all():
            raise unusable(f"{literal(term.name)} is not a finite number in every row")
    if X.shape[1] + _LEAST_LEFT > len(X):
        raise unusable(f"it makes {X.shape[1]} columns; {len(X)} rows are too few for them")
    columns, before = [0], "the intercept"
    for term in terms:
        columns += term.columns
        length = np.linalg.norm(X[:, columns], axis=0)
        if np.linalg.matrix_rank(X[:, columns] / np.where(length > 0, length, 1), tol=1e-8) < len(
            columns
        ):
            raise unusable(
                f"{literal(term.name)} cannot be distinguished from {literal(before)} in these rows: leave one out"
            )
        before = term.name if before == "the intercept" else f"{before}, {term.name}"
