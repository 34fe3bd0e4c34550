"""What `associate` found: tables, and what figures of it need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from icofactor.assessment.associations.design import RegressionDesign, Term
from icofactor.assessment.associations.regression import Regression
from icofactor.errors import ArgumentError

Table = Mapping[str, np.ndarray]
LEVEL = 0.95
"""Of confidence intervals."""


@dataclass(frozen=True, eq=False)
class Associations:
    """Loadings against a table of the people, by `associate`.

    Attributes
    ----------
    table : one row per term and component: component, term, the columns of `DESCRIPTIONS`.
    contrasts : the same of the contrasts that were asked for.
    coefficients : one row per column of the whole model and component, with intervals and p-values by theory.
    notes : what is worth knowing about how they came about.
    settings : how they were made.
    design : the whole model's columns and terms.
    fit : the whole model.
    rows : numbers of the rows that were used.
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

    def effects(self, components: np.ndarray) -> dict[str, np.ndarray]:
        """Maps of what one unit of a covariate, or one level against another, goes with: Σ estimate × component.

        Parameters
        ----------
        components : (n_components, n_sites)
        """
        return {name: estimates @ components for name, estimates in self.directions.items()}

    def partial_residuals(self, term: str) -> tuple[np.ndarray, np.ndarray]:
        """(n, n_components) residuals of the whole model plus the term's part, and that part alone.

        Parameters
        ----------
        term : its name in `table`.
        """
        columns = list(self._term(term).columns)
        part = self.design.X[:, columns] @ self.fit.coefficients[columns]
        part = part - part.mean(axis=0)
        return self.fit.residuals + part, part

    def adjusted_means(self, column: str) -> dict[str, dict[str, np.ndarray]]:
        """Level of a category → mean, low, high (95 %) of each component, the other columns as they are in the cohort.

        Parameters
        ----------
        column : a category of the formula.
        """
        variable = next((v for v in self.design.variables.values() if v.column == column and v.levels), None)
        if variable is None or variable.levels is None:
            raise ArgumentError("column", column, "a category of the formula")
        found = {}
        for level in variable.levels:
            L = self.design.with_value(column, level).mean(axis=0)[None]
            test = self.fit.test(L)
            half = stats.t.ppf((1 + LEVEL) / 2, test.df_residual) * test.se
            found[level] = {"mean": test.estimate, "low": test.estimate - half, "high": test.estimate + half}
        return found

    def curve(self, column: str, n_points: int = 50) -> dict[str, np.ndarray]:
        """value, and mean, low, high (n_points, n_components) of the model along a column of numbers.

        Parameters
        ----------
        column : a number of the formula; the others are as they are in the cohort.
        """
        variable = next((v for v in self.design.variables.values() if v.column == column and not v.levels), None)
        if variable is None:
            raise ArgumentError("column", column, "a column of numbers in the formula")
        values = np.linspace(variable.lowest, variable.highest, n_points)
        L = np.stack([self.design.with_value(column, repr(float(value))).mean(axis=0) for value in values])
        mean = L @ self.fit.coefficients
        se = np.sqrt(np.einsum("ip,kpq,iq->ik", L, self.fit.covariance, L))
        half = stats.t.ppf((1 + LEVEL) / 2, len(self.fit.X) - self.fit.X.shape[1]) * se
        return {"value": values, "mean": mean, "low": mean - half, "high": mean + half}

    def _term(self, name: str) -> Term:
        for term in self.design.terms:
            if term.name == name:
                return term
        raise ArgumentError("term", name, "one of " + ", ".join(repr(term.name) for term in self.design.terms))

    @property
    def p_shown(self) -> np.ndarray:
        """p of each test, terms before contrasts: corrected over components, or by theory without permutations."""
        tables = (self.table, self.contrasts)
        p = [np.where(np.isnan(t["p_corrected"]), t["p_theory"], t["p_corrected"]) for t in tables if len(t["term"])]
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
    "partial_r2": "Share of the variance not explained by the other terms that this one explains",
    "standardized": "Standardized effect: estimate × SD(covariate) / SD(loading) of a number; estimate / residual SD "
    "(Cohen's d) of a category or contrast; Cohen's f of several columns",
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
