"""Effects, intervals and p-values of the columns of a table on loadings, term by term."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from icofactor.assessment.associations.design import RegressionDesign, Term, Variable
from icofactor.assessment.associations.exchange import (
    Exchange,
    freedman_lane,
    largest,
    p_of,
    permuted,
)
from icofactor.assessment.associations.formula import (
    Smooth,
    columns_of,
    parse,
    smoothed,
    unusable,
)
from icofactor.assessment.associations.loadings import read_loadings
from icofactor.assessment.associations.regression import Groups, Regression, Test
from icofactor.assessment.associations.result import (
    DESCRIPTIONS,
    Associations,
    columns_of_tests,
)
from icofactor.assessment.associations.tables import (
    GroupLabels,
    Table,
    complete_rows,
    group_labels,
    names_where,
    read_columns,
    repeated_groups,
    take_rows,
)
from icofactor.assessment.false_discovery import false_discovery
from icofactor.checks import check_parameters
from icofactor.errors import ArgumentError, shown
from icofactor.factorization.starts import seeds_of
from icofactor.io.tables import cell_text

if TYPE_CHECKING:
    from icofactor.estimator.estimator import CorticalFactorization


def associate(
    loadings: ArrayLike | CorticalFactorization,
    table: Table,
    formula: str,
    *,
    groups: GroupLabels = None,
    smooth: Smooth = None,
    contrast: str | Sequence[str] | None = None,
    n_permutations: int = 5000,
    missing_covariates: str = "raise",
    random_state: int = 0,
) -> Associations:
    """Test how loadings relate to age, sex, group and other columns of a table.

    With one row per person, the model is ordinary least squares; with several rows per group, it
    has a random intercept per group (REML). Each term is tested in the model with all others,
    except the interactions that contain it.

    Parameters
    ----------
    loadings : array or data frame of shape (n_rows, n_components), or a fitted model
        Loadings to test; of a model, those of the fitted subjects.
    table : dict or data frame
        Column → one value per row.
    formula : str
        Such as "age + sex + group", "age * sex" or "poly(age, 2) + C(site)". Text columns are
        categories; so are sex, site, group and similar columns coded as numbers. Functions: C, cr,
        bs, poly, center, scale, log, sqrt. Nothing else is evaluated.
    groups : str or sequence, default=None
        Column, or one value per row, of rows that belong together: scans of a person, people of a
        family. Default: the rows of one participant_id.
    smooth : str, sequence or dict, default=None
        Columns to model by a natural cubic spline, such as "age", or "age=4" or {"age": 4} for 4
        degrees of freedom (default 3).
    contrast : str or sequence, default=None
        Such as "group: patient - control" or "age: 70 - 20": the expected difference between two
        values of a column, averaged over the other columns of the cohort.
    n_permutations : int, default=5000
        Number of permutations; 0 for none.
    missing_covariates : {"raise", "skip"}, default="raise"
        Whether a missing value in a column of the formula is an error, or the row is left out.
    random_state : int, default=0
        Seed.

    Returns
    -------
    Associations

    Examples
    --------
    >>> import numpy as np, icofactor as ico
    >>> rng = np.random.default_rng(0)
    >>> age, group = rng.uniform(20, 80, 60), np.repeat(["control", "patient"], 30)
    >>> loadings = rng.normal(size=(60, 2))
    >>> loadings[:, 0] -= 0.05 * age
    >>> columns = {"age": age, "group": group}
    >>> associations = ico.associate(loadings, columns, "age + group", n_permutations=999)
    >>> for i in range(4):
    ...     row = {name: values[i] for name, values in associations.table.items()}
    ...     print(row["component"], row["term"], row["p_corrected"] < 0.05)
    component01 age True
    component02 age False
    component01 group False
    component02 group False
    """
    check_parameters(n_permutations=n_permutations)
    seeds_of(random_state)  # refuses what is no seed
    outcomes = read_loadings(loadings)
    n_rows = len(outcomes.values)
    columns = read_columns(table, n_rows)
    terms = smoothed(parse(formula), smooth)
    labels, complete = group_labels(groups, columns, n_rows, missing_covariates)
    complete &= complete_rows(columns, columns_of(terms), n_rows, missing_covariates)
    rows = np.flatnonzero(complete)
    design = RegressionDesign.of(terms, take_rows(columns, rows))
    row_groups = repeated_groups(labels[rows])
    # A random intercept takes the place of what differs between groups.
    _check_between(design, row_groups)
    model = _Model(
        design,
        Regression.fit(design.X, outcomes.values[rows], row_groups),
        outcomes.names,
        n_permutations,
        int(random_state),
    )
    regressed_out = set(outcomes.regressed_out)
    # What the fit regressed out of the maps cannot be found in the loadings, in which it would
    # look like nothing.
    untested = [term.name for term in design.terms if term.variables <= regressed_out]
    tested = [term for term in design.terms if term.name not in untested]
    if not tested:
        raise unusable(
            f"the fit regressed {', '.join(untested)} out of the maps; nothing remains to test"
        )
    notes = []
    if not complete.all():
        missing = names_where(columns, ~complete)
        notes.append(f"left out because a covariate is missing: {missing}")
    notes += [
        f"{name}: not tested, because the fit regressed it out of the maps; it stays in the model"
        for name in untested
    ]
    if len(outcomes.measures) > 1:
        notes.append(
            f"loadings of {', '.join(outcomes.measures)}: p and q are corrected over components "
            "and measures together"
        )
    if row_groups is not None:
        column = "participant_id" if groups is None else "groups"
        notes.append(
            f"random intercept per group ({groups if isinstance(groups, str) else column}): "
            f"{len(rows)} rows in {len(row_groups.sizes)} groups"
        )
    notes += model.notes(tested)
    # Permutations have the same seed for all tests, so the same orders: the largest statistic
    # over terms needs that.
    contrasts = [contrast] if isinstance(contrast, str) else list(contrast or ())
    effects = [model.test_term(term) for term in tested]
    differences = [model.test_contrast(text, regressed_out) for text in contrasts]
    directions = {
        effect.name: effect.test.estimate
        for effect in [*effects, *differences]
        if effect.test.df == 1
    }
    settings = {
        "formula": formula,
        "smooth": None if smooth is None else str(smooth),
        "contrasts": contrasts,
        **model.settings,
    }
    return Associations(
        model.table(effects),
        model.table(differences),
        model.coefficients(),
        tuple(notes),
        settings,
        design,
        model.fit,
        rows,
        directions | model.level_estimates(tested),
    )


@dataclass(frozen=True, eq=False)
class _Effect:
    """The test of one term or contrast.

    Attributes
    ----------
    standardized : (n_components,) standardized effects.
    null : (n_permutations, n_components) permuted statistics; None without permutations.
    exchange : what the permutations exchanged.
    """

    name: str
    test: Test
    standardized: np.ndarray
    null: np.ndarray | None
    exchange: Exchange


@dataclass(frozen=True, eq=False)
class _Model:
    """The complete model of all loadings, and its tests."""

    design: RegressionDesign
    fit: Regression
    names: list[str]
    n_permutations: int
    seed: int

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the model and its tests, as they are recorded."""
        design = self.design
        groups = self.fit.groups
        levels = {variable.column: variable.levels for variable in design.variables.values()}
        is_mixed = groups is not None
        return {
            "terms": [term.name for term in design.terms],
            "model": "random intercept per group, REML" if is_mixed else "ordinary least squares",
            "n_rows": len(self.fit.Y),
            "n_groups": None if groups is None else len(groups.sizes),
            "intraclass_correlation": self.fit.intraclass if is_mixed else None,
            "cells": {term.name: term.cells for term in design.terms if term.cells},
            "levels": {column: names for column, names in levels.items() if names},
            "n_permutations": self.n_permutations,
            "random_state": self.seed,
        }

    def notes(self, tested: Sequence[Term]) -> list[str]:
        """Return remarks on components and terms that are not tested as the others."""
        outcomes = zip(self.names, self.fit.variance, strict=True)
        flat = [name for name, variance in outcomes if not variance > 0]
        notes = []
        if flat:
            notes.append(f"not tested, because their loadings do not vary: {', '.join(flat)}")
        for term in tested:
            interactions = [term.name for term in self.design.interactions_of(term)]
            if interactions:
                notes.append(f"{term.name}: tested in the model without {', '.join(interactions)}")
        return notes

    def test_term(self, term: Term) -> _Effect:
        """Test a term in the model without the interactions that contain it."""
        interactions = {
            column
            for interaction in self.design.interactions_of(term)
            for column in interaction.columns
        }
        fit = self.fit
        columns = [column for column in range(fit.X.shape[1]) if column not in interactions]
        if interactions:
            # With an interaction in the model, a main effect is that of one level only.
            fit = Regression.fit(fit.X[:, columns], fit.Y, fit.groups)
        L = np.eye(len(columns))[[columns.index(column) for column in term.columns]]
        tested_columns = self.design.X[:, list(term.columns)]
        return self._tested(term.name, fit, L, tested_columns, self._deviation(term))

    def _deviation(self, term: Term) -> float | None:
        """Return the standard deviation of the number in a term of one column, over all rows.

        It is None for a term without a number. With a category the estimate is a difference of
        slopes, so the number counts as if all rows had the second level.
        """
        levels = {factor.column: self.design.variables[factor].levels for factor in term.factors}
        if len(term.columns) > 1 or all(levels.values()):
            return None
        table = dict(self.design.table)
        for column, names in levels.items():
            if names:
                # In the second level the columns of other levels are 0, and the interaction has
                # the number itself.
                table[column] = [names[1]] * len(self.fit.Y)
        return float(self.design.at(table)[:, term.columns[0]].std(ddof=1))

    def test_contrast(
        self,
        text: str,
        regressed_out: set[str],
    ) -> _Effect:
        """Test a difference between two values of a column."""
        variable, values = self._parse_contrast(text)
        if variable.column in regressed_out:
            raise ArgumentError(
                "contrast",
                f"{shown(text)} cannot be tested: the fit regressed {variable.column} out of the "
                "maps",
            )
        first, second = self.design.averages(variable.column, values)
        columns = [
            column
            for term in self.design.terms
            if variable.column in term.variables
            for column in term.columns
        ]
        return self._tested(text, self.fit, (first - second)[None], self.design.X[:, columns], None)

    def _parse_contrast(self, text: str) -> tuple[Variable, list[str]]:
        """Return the column and the two values of "COLUMN: VALUE - VALUE"."""
        name, _, values = str(text).partition(":")
        variables = {variable.column: variable for variable in self.design.variables.values()}
        variable = variables.get(name.strip())
        expected = f"a column of the formula, one of {', '.join(variables)}"
        if variable is not None:
            # A level may contain a hyphen, so every one of them may be the minus.
            parts = values.split(" - ")
            for i in range(1, len(parts)):
                pair = [cell_text(" - ".join(part).strip()) for part in (parts[:i], parts[i:])]
                if pair[0] != pair[1] and _are_values(variable, pair):
                    return variable, pair
            expected = f"two numbers from {variable.lowest:g} to {variable.highest:g}"
            if variable.levels:
                expected = f"two of its levels, {', '.join(variable.levels)}"
        raise ArgumentError(
            "contrast",
            "must have the form COLUMN: VALUE - VALUE, such as 'group: patient - control', with "
            f"{expected}; found {shown(text)}",
        )

    def _tested(
        self,
        name: str,
        fit: Regression,
        L: np.ndarray,
        tested_columns: np.ndarray,
        deviation: float | None,
    ) -> _Effect:
        """Test L β = 0 by theory and by permutation."""
        test = fit.test(L)
        with np.errstate(divide="ignore", invalid="ignore"):
            if test.df > 1:
                standardized = np.sqrt(test.df * test.F / test.df_residual)
            elif deviation is None:
                standardized = test.estimate / fit.deviation
            else:
                standardized = test.estimate * deviation / fit.Y.std(axis=0, ddof=1)
        # Rows of a group are alike in a term that is constant in it: whole groups change places.
        exchange = Exchange.testing(tested_columns, fit.groups)
        null = None
        if self.n_permutations:
            exchange.check(name)
            null = permuted(freedman_lane(fit, L), exchange, self.n_permutations, self.seed)
        return _Effect(name, test, standardized, null, exchange)

    def table(self, effects: Sequence[_Effect]) -> dict[str, np.ndarray]:
        """Return one row per effect and component, corrected over all of them."""
        if not effects:
            return {name: np.array([]) for name in DESCRIPTIONS}
        tables = [self._rows(effect) for effect in effects]
        table = {name: np.concatenate([rows[name] for rows in tables]) for name in tables[0]}
        table["q_fdr_all"] = false_discovery(
            table["p_permutation"] if self.n_permutations else table["p_theory"]
        )
        table["p_corrected_all"] = np.full(len(table["term"]), np.nan)
        if self.n_permutations:
            # F of several degrees of freedom are not comparable, their p by theory are.
            observed = [self._log_p(effect, effect.test.F) for effect in effects]
            null = [
                self._log_p(effect, largest(effect.null))
                for effect in effects
                if effect.null is not None
            ]
            table["p_corrected_all"] = p_of(np.concatenate(observed), np.max(null, axis=0))
        return {name: table[name] for name in DESCRIPTIONS}

    def _log_p(
        self,
        effect: _Effect,
        F: np.ndarray,
    ) -> np.ndarray:
        """Return −log p of F: statistics of other degrees of freedom on one scale."""
        n_rows, n_columns = self.design.X.shape
        log_p = stats.f.logsf(F, effect.test.df, n_rows - n_columns)
        # Infinite values would not count as larger than each other.
        return np.minimum(-log_p, np.finfo(float).max)

    def _rows(self, effect: _Effect) -> dict[str, np.ndarray]:
        """Return the rows of one effect, one per component."""
        test = effect.test
        n_components = len(self.names)
        ratio = test.df * test.F
        is_single = test.df == 1
        nothing = np.full(n_components, np.nan)
        rows: dict[str, np.ndarray] = {
            **columns_of_tests(self.names, "term", effect.name, test),
            "statistic": np.array(["t" if is_single else "F"] * n_components),
            "value": test.t if is_single else test.F,
            "df": np.full(n_components, test.df),
            "partial_r2": ratio / (ratio + test.df_residual),
            "standardized": effect.standardized,
            "n": np.full(n_components, len(self.fit.Y)),
            "p_theory": np.asarray(stats.f.sf(test.F, test.df, test.df_residual)),
            "p_permutation": nothing,
            "p_corrected": nothing,
            "exchange": np.array(["n/a"] * n_components),
        }
        if effect.null is not None:
            rows["p_permutation"] = p_of(test.F, effect.null)
            rows["p_corrected"] = p_of(test.F, largest(effect.null))
            rows["exchange"] = np.array([str(effect.exchange)] * n_components)
        rows["q_fdr"] = false_discovery(
            rows["p_theory"] if effect.null is None else rows["p_permutation"]
        )
        return rows

    def coefficients(self) -> dict[str, np.ndarray]:
        """Return one row per column of the complete model and component, by theory."""
        tables = []
        for label, contrast in zip(self.design.labels, np.eye(self.design.X.shape[1]), strict=True):
            test = self.fit.test(contrast[None])
            rows = columns_of_tests(self.names, "column", label, test)
            rows["t"] = test.t
            rows["p_theory"] = np.asarray(stats.f.sf(test.F, 1, test.df_residual))
            tables.append(rows)
        names = ("component", "column", "estimate", "se", "ci_low", "ci_high")
        return {
            name: np.concatenate([rows[name] for rows in tables])
            for name in (*names, "t", "df_residual", "p_theory")
        }

    def level_estimates(self, terms: Sequence[Term]) -> dict[str, np.ndarray]:
        """Return estimates of each level of the categories that have several columns."""
        return {
            label: self.fit.coefficients[column]
            for term in terms
            if len(term.factors) == 1 and len(term.columns) > 1 and term.cells
            for label, column in zip(term.labels, term.columns, strict=True)
        }


def _are_values(
    variable: Variable,
    pair: Sequence[str],
) -> bool:
    """Whether two texts are levels of a column, or numbers in its range."""
    try:
        return not variable.outside(pair).any()
    except ValueError:  # text where numbers are
        return False


def _check_between(
    design: RegressionDesign,
    groups: Groups | None,
) -> None:
    """Refuse designs whose columns differ between groups in as many ways as there are groups."""
    if groups is None:
        return
    constant = {
        column for column in range(design.X.shape[1]) if groups.constant(design.X[:, [column]])
    }
    if len(constant) + 1 > len(groups.sizes):
        names = ", ".join(term.name for term in design.terms if set(term.columns) <= constant)
        raise unusable(
            f"{names} and the groups of rows cannot be distinguished: {len(constant)} columns "
            f"differ only between {len(groups.sizes)} groups"
        )
