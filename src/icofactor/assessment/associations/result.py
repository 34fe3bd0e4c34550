"""What `associate` found: tables, and what figures of it need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from icofactor.assessment.associations.design import RegressionDesign
from icofactor.assessment.associations.regression import Regression
from icofactor.errors import ArgumentError
from icofactor.io.tables import cell_text

Table = Mapping[str, np.ndarray]
LEVEL = 0.95
"""Of confidence intervals."""


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
    >>> found = ico.associate(loadings, cohort.participants, "age + sex", n_permutations=99)
    >>> found.table["term"].tolist()
    ['age', 'age', 'sex', 'sex']
    >>> found.effects(cohort.truth.components)["age"].shape  # the change per year on the cortex
    (642,)
    >>> found.expected("sex").values.tolist(), found.adjusted("age")[1].shape
    (['F', 'M'], (30, 2))
    """

    table: Table
    contrasts: Table
    coefficients: Table
    notes: tuple[str, ...]
    settings: Mapping[str, Any]
    design: RegressionDesign
    fit: Regression
    rows: np.ndarray
    directions: Mapping[str, np.ndarray] = field(default_factory=dict)

    def effects(self, components: np.ndarray, which: slice = slice(None)) -> dict[str, np.ndarray]:
        """Maps of the effects with one degree of freedom: Σ estimate × component.

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

    def expected(self, column: str, n_points: int = 50) -> Expected:
        """Loadings that the model expects along a column, averaged over the other columns of the
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
        found = [
            variable for variable in self.design.variables.values() if variable.column == column
        ]
        if not found:
            raise ArgumentError("column", column, "one of " + ", ".join(map(repr, self.columns)))
        lowest, highest, levels = found[0].lowest, found[0].highest, found[0].levels
        values = np.linspace(lowest, highest, n_points) if levels is None else np.array(levels)
        tests = [self.fit.test(one[None]) for one in self.design.averages(column, values.tolist())]
        mean = np.stack([test.estimate for test in tests])
        half = np.stack(
            [stats.t.ppf((1 + LEVEL) / 2, test.df_residual) * test.se for test in tests]
        )
        return Expected(values, mean, mean - half, mean + half)

    def adjusted(self, column: str) -> tuple[np.ndarray, np.ndarray]:
        """Values of a column, and loadings adjusted for the other columns.

        Adjusted loadings, of shape (n_rows, n_components), are the expected loading at this value
        plus the residual of the row. Plot them with `expected`.
        """
        curve, cells = self.expected(column), self.design.table[column]
        if curve.values.dtype.kind == "f":
            own = np.array([float(cell) for cell in cells])
            fitted = np.stack([np.interp(own, curve.values, mean) for mean in curve.mean.T], axis=1)
        else:
            own = np.array([cell_text(cell) for cell in cells])
            fitted = curve.mean[[curve.values.tolist().index(cell) for cell in own]]
        return own, fitted + self.fit.residuals

    @property
    def p_shown(self) -> np.ndarray:
        """p of each test, terms before contrasts: corrected over components, or theoretical without
        permutations.
        """
        tables = (self.table, self.contrasts)
        p = [
            np.where(np.isnan(t["p_corrected"]), t["p_theory"], t["p_corrected"])
            for t in tables
            if len(t["term"])
        ]
        return np.concatenate(p) if p else np.array([])

    @property
    def lines(self) -> list[str]:
        """One line per test, as text."""
        tests = [
            (component, term, statistic, value)
            for t in (self.table, self.contrasts)
            for component, term, statistic, value in zip(
                t["component"], t["term"], t["statistic"], t["value"], strict=True
            )
        ]
        return [
            f"{component}  {term}: {statistic} = {value:.2f}, p = {p:.2g}"
            for (component, term, statistic, value), p in zip(tests, self.p_shown, strict=True)
        ]

    def __str__(self) -> str:
        return "\n".join([*self.lines, *(f"- {note}" for note in self.notes)])


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
"""Column of the tables → what it holds."""
