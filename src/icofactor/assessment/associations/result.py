"""The result of `associate`: its tables, and what figures of it need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from icofactor.assessment.associations.design import RegressionDesign
from icofactor.assessment.associations.regression import Regression, Test
from icofactor.errors import ArgumentError, shown
from icofactor.io.tables import cell_text

TestTable = Mapping[str, np.ndarray]

# Of confidence intervals.
LEVEL = 0.95


def half_interval(test: Test) -> np.ndarray:
    """Return half the width of the confidence interval of each estimate."""
    return stats.t.ppf((1 + LEVEL) / 2, test.df_residual) * test.se


def columns_of_tests(
    components: Sequence[str],
    kind: str,
    name: str,
    test: Test,
) -> dict[str, np.ndarray]:
    """Return columns that all tables of tests have, with one row per component.

    `kind` is the column of `name`: "term" or "column".
    """
    half = half_interval(test)
    return {
        "component": np.array(components),
        kind: np.array([name] * len(components)),
        "estimate": test.estimate,
        "se": test.se,
        "ci_low": test.estimate - half,
        "ci_high": test.estimate + half,
        "df_residual": test.df_residual,
    }


@dataclass(frozen=True, eq=False)
class Expected:
    """Along a column: its values or levels, and (n_values, n_components) mean, low, high (95 %) of
    the model.
    """

    values: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True, eq=False)
class Associations:
    """Associations of loadings with a table, the result of `associate`; ``print`` shows a summary.

    Attributes
    ----------
    table : dict
        One row per term and component: component, term, and the columns of `DESCRIPTIONS`.
    contrasts : dict
        The same for contrasts.
    coefficients : dict
        One row per column of the whole model and component, with intervals and theoretical
        p-values.
    notes : list of str
        Remarks on the tests.
    settings : dict
        Settings of the tests.
    design, fit
        Columns and terms of the whole model, and the model.
    rows : int array
        Numbers of the rows used.
    directions : dict
        Effect with one degree of freedom → its estimate for each component.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(30, 2, mesh="fsaverage3")
    >>> loadings = cohort.truth.loadings
    >>> people = cohort.participants
    >>> associations = ico.associate(loadings, people, "age + sex", n_permutations=99)
    >>> associations.table["term"].tolist()
    ['age', 'age', 'sex', 'sex']
    >>> maps = associations.effects(cohort.truth.components)
    >>> maps["age"].shape  # the change per year on the cortex
    (642,)
    >>> associations.expected("sex").values.tolist(), associations.adjusted("age")[1].shape
    (['F', 'M'], (30, 2))
    """

    table: TestTable
    contrasts: TestTable
    coefficients: TestTable
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    design: RegressionDesign
    fit: Regression
    rows: np.ndarray
    directions: Mapping[str, np.ndarray] = field(default_factory=dict)

    def effects(
        self,
        components: np.ndarray,
        which: slice = slice(None),
    ) -> dict[str, np.ndarray]:
        """Compute maps of the effects with one degree of freedom: Σ estimate × component.

        Parameters
        ----------
        components : array of shape (n_components, n_sites)
            Maps of the components.
        which : slice
            Which of the tested loadings belong to these components.
        """
        return {name: estimates[which] @ components for name, estimates in self.directions.items()}

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table that the model uses."""
        return tuple(dict.fromkeys(variable.column for variable in self.design.variables.values()))

    def expected(
        self,
        column: str,
        n_points: int = 50,
    ) -> Expected:
        """Compute the loadings that the model expects along a column, averaged over the other columns of the
        cohort.

        Parameters
        ----------
        column : str
            A category (one value per level) or a number (`n_points` values).
        n_points : int, default=50
            Number of values of a numeric column.

        Returns
        -------
        Expected
            With `values`, and `mean`, `low` and `high` of shape (n_values, n_components); low and
            high are 95 % limits.
        """
        variables = {variable.column: variable for variable in self.design.variables.values()}
        if column not in variables:
            raise ArgumentError(
                "column", f"must be one of {', '.join(variables)}; found {shown(column)}"
            )
        variable = variables[column]
        if variable.levels is None:
            values = np.linspace(variable.lowest, variable.highest, n_points)
        else:
            values = np.array(variable.levels)
        tests = [self.fit.test(row[None]) for row in self.design.averages(column, values.tolist())]
        mean = np.stack([test.estimate for test in tests])
        half = np.stack([half_interval(test) for test in tests])
        return Expected(values, mean, mean - half, mean + half)

    def adjusted(self, column: str) -> tuple[np.ndarray, np.ndarray]:
        """Values of a column, and loadings adjusted for the other columns.

        Adjusted loadings, of shape (n_rows, n_components), are the expected loading at this value
        plus the residual of the row. Plot them with `expected`.
        """
        curve = self.expected(column)
        cells = self.design.table[column]
        # Between the values of the curve, the expected loading is interpolated.
        if curve.values.dtype.kind == "f":
            values = np.array([float(cell) for cell in cells])
            columns = [np.interp(values, curve.values, mean) for mean in curve.mean.T]
            fitted = np.stack(columns, axis=1)
        else:
            values = np.array([cell_text(cell) for cell in cells])
            levels = curve.values.tolist()
            fitted = curve.mean[[levels.index(level) for level in values]]
        return values, fitted + self.fit.residuals

    @property
    def p_shown(self) -> np.ndarray:
        """p of each test, terms before contrasts: corrected over components, or theoretical without
        permutations.
        """
        # Terms before contrasts, as in `lines`.
        p_corrected = np.concatenate([self.table["p_corrected"], self.contrasts["p_corrected"]])
        p_theory = np.concatenate([self.table["p_theory"], self.contrasts["p_theory"]])
        return np.where(np.isnan(p_corrected), p_theory, p_corrected)

    @property
    def lines(self) -> list[str]:
        """One line per test, as text."""
        names = ("component", "term", "statistic", "value")
        tests = [
            row
            for table in (self.table, self.contrasts)
            for row in zip(*(table[name] for name in names), strict=True)
        ]
        return [
            f"{component}  {term}: {statistic} = {value:.2f}, p = {p:.2g}"
            for (component, term, statistic, value), p in zip(tests, self.p_shown, strict=True)
        ]

    def __str__(self) -> str:
        return "\n".join([*self.lines, *(f"- {note}" for note in self.notes)])


# Column of the tables → its description.
DESCRIPTIONS = {
    "component": "Component of the factorization",
    "term": "Term of the formula, or contrast",
    "estimate": "Change of the loading per unit of the covariate, or between two levels; "
    "n/a for terms of several columns",
    "se": "Standard error of the estimate",
    "ci_low": "Lower end of the 95 % confidence interval",
    "ci_high": "Upper end of the 95 % confidence interval",
    "statistic": "t (one degree of freedom) or F",
    "value": "Value of the statistic",
    "df": "Degrees of freedom of the term",
    "df_residual": "Degrees of freedom of the residuals; Satterthwaite's with a random intercept",
    "partial_r2": "Share of the variance not explained by the other terms that this one explains; with a random "
    "intercept df × F / (df × F + df_residual)",
    "standardized": "Standardized effect: estimate × SD(covariate) / SD(loading) of a number, with a category the "
    "difference of two such slopes; estimate / residual SD (Cohen's d) of a category or contrast; Cohen's f of "
    "several columns",
    "n": "Rows used",
    "p_theory": "p by the t or F distribution",
    "p_permutation": "p by permutation (Freedman-Lane)",
    "p_corrected": "p by permutation, corrected over components by the largest statistic",
    "p_corrected_all": "p by permutation, corrected over components and terms by the smallest p of a permutation",
    "q_fdr": "False discovery rate over components (Benjamini-Hochberg, of p by permutation where there is one)",
    "q_fdr_all": "False discovery rate over components and terms",
    "exchange": "What permutations exchanged",
}
