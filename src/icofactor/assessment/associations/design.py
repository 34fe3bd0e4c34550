"""The columns of a regression, from the terms of a formula and a table; and the same for other rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.assessment.associations.formula import (
    Factor,
    TermFactors,
    factors_of,
    sorted_factors,
    unusable,
)
from icofactor.assessment.associations.tables import Table, row_names
from icofactor.cohort.problems import some
from icofactor.errors import shown
from icofactor.io.tables import cell_text, is_number
from icofactor.preprocessing.covariates import is_category

if TYPE_CHECKING:
    import pandas as pd
    from formulaic import ModelSpec

# Rows that must remain beyond the columns of a model.
_MIN_RESIDUAL_ROWS = 3

# Numbers beyond these limits overflow when they are squared.
_LARGEST = 1e100
_SMALLEST = 1e-100

# What formulaic computes besides its own functions.
_CONTEXT = {"sqrt": np.sqrt}


@dataclass(frozen=True)
class Variable:
    """A column as the model uses it: levels of a category, or None and the range of a number."""

    column: str
    levels: tuple[str, ...] | None
    lowest: float = math.nan
    highest: float = math.nan

    @classmethod
    def of(
        cls,
        factor: Factor,
        values: Sequence[Any],
        names: Sequence[str],
    ) -> Variable:
        """Read a column of the table; `names` are those of the rows."""
        cells = [cell_text(value) for value in values]
        # Text of the table stays text in messages, whatever it contains.
        column = shown(factor.column)
        if len(set(cells)) == 1:
            raise unusable(f"{column} is {shown(cells[0])} in all rows: leave it out")
        # Functions take numbers, even of columns such as site that are categories otherwise.
        if factor.code == "{}" and (factor.is_category or is_category(factor.column, cells)):
            return cls(factor.column, _levels(factor, cells))
        wrong = [name for name, cell in zip(names, cells, strict=True) if not is_number(cell)]
        if wrong:
            raise unusable(
                f"{column} contains numbers, but not in {some(wrong, 10)}; for a category write "
                f"C({factor.column})"
            )
        numbers = np.array([float(cell) for cell in cells])
        largest = np.abs(numbers).max()
        if not _SMALLEST < largest < _LARGEST:
            raise unusable(f"{column} has values up to {largest:.3g}: use another unit")
        return cls(factor.column, None, float(numbers.min()), float(numbers.max()))

    def values(self, cells: Sequence[Any]) -> np.ndarray | pd.Categorical:
        """Return the cells of a column as formulaic encodes them."""
        import pandas as pd

        if self.levels is None:
            return np.array([float(cell) for cell in cells])
        return pd.Categorical([cell_text(cell) for cell in cells], categories=list(self.levels))

    def outside(self, cells: Sequence[Any]) -> np.ndarray:
        """Return which cells lie beyond the range, or have none of the levels."""
        texts = [cell_text(cell) for cell in cells]
        if self.levels is not None:
            return np.array([text not in self.levels for text in texts], dtype=bool)
        numbers = np.array([float(text) for text in texts])
        return (numbers < self.lowest) | (numbers > self.highest)


def _levels(
    factor: Factor,
    cells: Sequence[str],
) -> tuple[str, ...]:
    """Return the levels of a category: the base first, then numbers in order, then text."""
    numbers = sorted(
        {cell for cell in cells if is_number(cell)}, key=lambda cell: (float(cell), cell)
    )
    levels = numbers + sorted({cell for cell in cells if not is_number(cell)})
    if factor.base is not None:
        if factor.base not in levels:
            raise unusable(
                f"{shown(factor.column)} has no level {shown(factor.base)}; its levels: "
                f"{some(levels, 20)}"
            )
        levels.remove(factor.base)
        levels.insert(0, factor.base)
    return tuple(levels)


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

    @property
    def variables(self) -> set[str]:
        """Columns of the table that the term uses."""
        return {factor.column for factor in self.factors}


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
    table: Table
    _spec: ModelSpec

    @classmethod
    def of(
        cls,
        terms: Sequence[TermFactors],
        table: Table,
    ) -> RegressionDesign:
        """Make the design of complete rows.

        Refuses constants, combinations of levels without rows, and terms that the rows cannot tell
        apart.
        """
        import formulaic

        n_rows = len(next(iter(table.values())))
        if n_rows < 2 + _MIN_RESIDUAL_ROWS:
            raise unusable(f"{n_rows} rows are too few")
        names = row_names(table, n_rows)
        factors = factors_of(terms)
        variables = {factor: Variable.of(factor, table[factor.column], names) for factor in factors}
        cells = [_count_cells(term, variables, table) for term in terms]
        # formulaic sees stand-ins for the names of columns, never a text of the user.
        codes = {factor: factor.code.format(f"x{i}_") for i, factor in enumerate(factors)}
        products = [":".join(codes[factor] for factor in sorted_factors(term)) for term in terms]
        try:
            # The logarithm of a negative number is refused below, with the name of its term.
            with np.errstate(all="ignore"):
                matrix = formulaic.model_matrix(
                    " + ".join(["1", *products]),
                    _frame(variables, table),
                    context=_CONTEXT,
                    na_action="ignore",
                )
        except formulaic.errors.FormulaicError as problem:
            raise unusable(f"cannot be computed: {shown(str(problem))}") from None
        # formulaic orders the factors of a term by itself.
        slices = {
            frozenset(factor.expr for factor in term.factors): columns
            for term, columns in matrix.model_spec.term_slices.items()
        }
        labels = tuple(_label(str(name), codes) for name in matrix.columns)
        design_terms = []
        for term, counts in zip(terms, cells, strict=True):
            columns = slices[frozenset(codes[factor] for factor in term)]
            design_terms.append(
                Term(
                    ":".join(factor.label for factor in sorted_factors(term)),
                    term,
                    tuple(range(columns.start, columns.stop)),
                    labels[columns],
                    counts,
                )
            )
        X = matrix.to_numpy(dtype=np.float64)
        _check_columns(X, design_terms)
        return cls(X, labels, tuple(design_terms), variables, dict(table), matrix.model_spec)

    def at(self, table: Table) -> np.ndarray:
        """Return the columns of other rows, coded as these are."""
        frame = _frame(self.variables, table)
        matrix = self._spec.get_model_matrix(frame, context=_CONTEXT, na_action="ignore")
        return np.asarray(matrix.to_numpy(dtype=np.float64))

    def averages(
        self,
        column: str,
        values: Sequence[Any],
    ) -> np.ndarray:
        """Return the means of the columns if all rows had these values in one column of the table.

        The result is n_values × n_columns.
        """
        n_rows = len(self.X)
        table = {name: list(cells) * len(values) for name, cells in self.table.items()}
        table[column] = [value for value in values for _ in range(n_rows)]
        return self.at(table).reshape(len(values), n_rows, -1).mean(axis=1)

    def interactions_of(self, term: Term) -> list[Term]:
        """Return the terms that contain a term."""
        return [other for other in self.terms if other.factors > term.factors]


def _frame(
    variables: Mapping[Factor, Variable],
    table: Table,
) -> pd.DataFrame:
    """Return the columns of the factors under the names that formulaic sees."""
    import pandas as pd

    columns = {
        f"x{i}_": variable.values(table[variable.column])
        for i, variable in enumerate(variables.values())
    }
    return pd.DataFrame(columns)


def _label(
    name: str,
    codes: Mapping[Factor, str],
) -> str:
    """Return the name of a column as a reader would write it: group[patient], s(age)[1]."""
    for factor, code in codes.items():
        name = name.replace(code, factor.label)
    return name.replace("[T.", "[")


def _count_cells(
    term: TermFactors,
    variables: Mapping[Factor, Variable],
    table: Table,
) -> dict[str, int]:
    """Return the rows per combination of the levels of a term's categories.

    Refuses combinations without rows.
    """
    categories = [variables[factor] for factor in sorted_factors(term)]
    categories = [variable for variable in categories if variable.levels is not None]
    if not categories:
        return {}
    texts = [[cell_text(cell) for cell in table[variable.column]] for variable in categories]
    # A combination without rows has no estimate, and formulaic would not say so.
    counts = Counter(zip(*texts, strict=True))
    combinations = list(product(*(variable.levels or () for variable in categories)))
    columns = [variable.column for variable in categories]
    empty = [
        " and ".join(map(" ".join, zip(columns, levels, strict=True)))
        for levels in combinations
        if not counts[levels]
    ]
    if empty:
        raise unusable(
            f"nobody has {some(empty, 10)}: leave out {':'.join(columns)}, or join levels"
        )
    return {", ".join(levels): counts[levels] for levels in combinations}


def _check_columns(
    X: np.ndarray,
    terms: Sequence[Term],
) -> None:
    """Refuse columns that are not finite, too many, or linear combinations of those before."""
    for term in terms:
        if not np.isfinite(X[:, term.columns]).all():
            raise unusable(f"{term.name} is not a finite number in every row")
    # Too few rows fit anything.
    if X.shape[1] + _MIN_RESIDUAL_ROWS > len(X):
        raise unusable(f"makes {X.shape[1]} columns; {len(X)} rows are too few for them")
    columns = [0]
    earlier: list[str] = []
    for term in terms:
        columns += term.columns
        # The rank must not depend on units.
        length = np.linalg.norm(X[:, columns], axis=0)
        scaled = X[:, columns] / np.where(length > 0, length, 1)
        if np.linalg.matrix_rank(scaled, tol=1e-8) < len(columns):
            raise unusable(
                f"{term.name} cannot be distinguished from "
                f"{', '.join(earlier) or 'the intercept'} in these rows: leave one out"
            )
        earlier.append(term.name)
