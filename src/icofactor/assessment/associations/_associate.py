"""What the loadings have to do with what is known of the people: effects, intervals and p-values,
term by term.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from icofactor.assessment.associations.design import (
    RegressionDesign,
    Term,
    complete_rows,
    row_names,
    rows_of,
)
from icofactor.assessment.associations.exchange import Exchange, p_of, permuted_F
from icofactor.assessment.associations.formula import parse, smoothed, unusable
from icofactor.assessment.associations.regression import Groups, Regression
from icofactor.assessment.associations.result import DESCRIPTIONS, LEVEL, Associations
from icofactor.assessment.false_discovery import false_discovery
from icofactor.checks import check_parameters
from icofactor.errors import ArgumentError, Phrase, literal
from icofactor.factorization.starts import seeds_of
from icofactor.io.tables import cell_text, numbered

TAKEN_OUT = "taken_out"
"""In the attributes of a data frame of loadings: the same of the fit that they come from."""


def associate(
    loadings: Any,
    table: Any,
    formula: str,
    *,
    groups: Any = None,
    smooth: Any = None,
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
    >>> found = ico.associate(loadings, {"age": age, "group": group}, "age + group", n_permutations=999)
    >>> for i in range(4):
    ...     print(found.table["component"][i], found.table["term"][i], found.table["p_corrected"][i] < 0.05)
    component01 age True
    component02 age False
    component01 group False
    component02 group False
    """
    check_parameters(n_permutations=n_permutations)
    seeds_of(random_state)  # refuses what is not one
    Y, names, taken_out = loadings_of(loadings)
    columns = rows_of(table, len(Y))
    terms = smoothed(parse(formula), smooth)
    labels, known = group_labels(groups, columns, len(Y), missing_covariates)
    used = list(
        dict.fromkeys(
            factor.column for term in terms for factor in sorted(term, key=lambda f: f.label)
        )
    )
    complete = complete_rows(columns, used, len(Y), missing_covariates) & known
    rows = np.flatnonzero(complete)
    if len(rows) < len(Y):
        columns = {name: [values[i] for i in rows] for name, values in columns.items()}
    design = RegressionDesign.of(terms, columns or {"row": [0] * len(rows)})
    together = None if labels is None else Groups.of(labels[rows])
    if together is not None and not together.repeated:
        together = None
    if together is not None:
        _check_between(design, together)
    work = _Work(design, Y[rows], names, together, n_permutations, int(random_state))
    notes = []
    if len(rows) < len(Y):
        left_out = [
            name
            for name, there in zip(row_names(rows_of(table, len(Y)), len(Y)), complete, strict=True)
            if not there
        ]
        notes.append(f"left out because a covariate is missing: {', '.join(left_out)}")
    gone = [
        term
        for term in design.terms
        if {factor.column for factor in term.factors} <= set(taken_out)
    ]
    tested = [term for term in design.terms if term not in gone]
    if not tested:
        gone_names = literal(", ".join(term.name for term in gone))
        raise ArgumentError(
            "formula",
            None,
            f"{{formula}}: the fit regressed {gone_names} out of the maps; nothing remains to test",
        )
    notes += [
        f"{term.name}: not tested, because the fit regressed it out of the maps; it stays in the model"
        for term in gone
    ]
    if len(measures := _measures_in(names)) > 1:
        notes.append(
            f"loadings of {', '.join(measures)}: p and q are corrected over components and measures together"
        )
    if together is not None:
        what = (
            groups if isinstance(groups, str) else "participant_id" if groups is None else "groups"
        )
        notes.append(
            f"random intercept per group ({what}): {len(rows)} rows in {len(together.sizes)} groups"
        )
    found = [work.term(term) for term in tested]
    asked = [contrast] if isinstance(contrast, str) else list(contrast or ())
    compared = [work.contrast(text, taken_out) for text in asked]
    return Associations(
        work.table(found),
        work.table(compared),
        work.coefficients(),
        (*notes, *work.notes),
        {
            "formula": formula,
            "terms": [term.name for term in design.terms],
            "smooth": None if smooth is None else str(smooth),
            "contrasts": asked,
            "model": "ordinary least squares"
            if together is None
            else "random intercept per group, REML",
            "n_rows": len(rows),
            "n_groups": None if together is None else len(together.sizes),
            "intraclass_correlation": None if together is None else work.fit.intraclass,
            "cells": {term.name: term.cells for term in design.terms if term.cells},
            "levels": {v.column: v.levels for v in design.variables.values() if v.levels},
            "n_permutations": n_permutations,
            "random_state": int(random_state),
        },
        design,
        work.fit,
        rows,
        {one.name: one.test.estimate for one in [*found, *compared] if one.test.df == 1}
        | work.level_estimates(tested),
    )


@dataclass(frozen=True, eq=False)
class _Result:
    name: str
    test: Any
    fit: Regression
    standardized: np.ndarray
    permuted: np.ndarray | None
    exchange: Exchange


@dataclass(eq=False)
class _Work:
    """The whole model and its tests."""

    design: RegressionDesign
    Y: np.ndarray
    names: list[str]
    groups: Groups | None
    n_permutations: int
    seed: int

    def __post_init__(self) -> None:
        self.fits: dict[tuple[int, ...], Regression] = {}
        self.fit = self._fitted(range(self.design.X.shape[1]))
        self.notes: list[str] = []
        flat = [name for name, s2 in zip(self.names, self.fit.variance, strict=True) if not s2 > 0]
        if flat:
            self.notes.append(f"not tested, because their loadings do not vary: {', '.join(flat)}")

    def _fitted(self, columns: Sequence[int]) -> Regression:
        key = tuple(columns)
        if key not in self.fits:
            self.fits[key] = Regression.fit(self.design.X[:, list(key)], self.Y, self.groups)
        return self.fits[key]

    def term(self, term: Term) -> _Result:
        """The test of a term, in the model without the interactions that contain it."""
        columns = self.design.without_interactions_of(term)
        beyond = [other.name for other in self.design.terms if other.factors > term.factors]
        if beyond:
            self.notes.append(f"{term.name}: tested in the model without {', '.join(beyond)}")
        fit = self._fitted(columns)
        L = np.eye(len(columns))[[columns.index(i) for i in term.columns]]
        return self._tested(
            term.name, fit, L, self.design.X[:, list(term.columns)], self._unit(term)
        )

    def _unit(self, term: Term) -> float | None:
        """SD of the numbers in a term of one column, those of everybody; None where it has none.
        With a category the estimate is a difference of slopes.
        """
        levels = {f.column: self.design.variables[f].levels for f in term.factors}
        if len(term.columns) > 1 or all(levels.values()):
            return None
        second = {column: [of[1]] * len(self.Y) for column, of in levels.items() if of}
        return float(
            self.design.at({**self.design.table, **second})[:, term.columns[0]].std(ddof=1)
        )

    def contrast(self, text: str, taken_out: Sequence[str]) -> _Result:
        """The test of a difference between two values of a column."""
        column, first, second = self._values(text)
        if column in taken_out:
            raise ArgumentError(
                "contrast",
                text,
                f"of a column that the fit did not regress out of the maps, unlike {column}",
            )
        change = np.subtract(*self.design.averages(column, [first, second]))
        used = [
            i
            for term in self.design.terms
            if any(f.column == column for f in term.factors)
            for i in term.columns
        ]
        return self._tested(text, self.fit, change[None], self.design.X[:, used], None)

    def _values(self, text: str) -> tuple[str, str, str]:
        column, colon, values = str(text).partition(":")
        column = column.strip()
        variable = next((v for v in self.design.variables.values() if v.column == column), None)
        expected = "of the form COLUMN: VALUE - VALUE, e.g. 'group: patient - control', of a column of the formula"
        if not colon or variable is None:
            raise ArgumentError("contrast", text, expected)
        parts = values.split(" - ")
        for i in range(1, len(parts)):
            pair = [cell_text(" - ".join(part).strip()) for part in (parts[:i], parts[i:])]
            try:
                inside = not variable.outside(pair).any()
            except ValueError:
                inside = False
            if inside and pair[0] != pair[1]:
                return column, pair[0], pair[1]
        known = (
            f"two of its levels, {', '.join(variable.levels)}"
            if variable.levels
            else f"two numbers from {variable.lowest:g} to {variable.highest:g}"
        )
        raise ArgumentError("contrast", text, literal(f"{expected}; {column} takes {known}"))

    def _tested(
        self, name: str, fit: Regression, L: np.ndarray, own: np.ndarray, sd: float | None
    ) -> _Result:
        test = fit.test(L)
        ratio = test.df * test.F / test.df_residual
        with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
            if test.df > 1:
                standardized = np.sqrt(ratio)
            elif sd is None:
                standardized = test.estimate / fit.deviation
            else:
                standardized = test.estimate * sd / self.Y.std(axis=0, ddof=1)
        exchange = Exchange(
            len(self.Y), self.groups, self.groups is None or not self.groups.constant(own)
        )
        permuted = None
        if self.n_permutations:
            if not exchange.enough:
                raise too_few_permutations(name, "test it by theory alone with {n_permutations=0}")
            permuted = permuted_F(fit, L, exchange, self.n_permutations, self.seed)
        return _Result(name, test, fit, standardized, permuted, exchange)

    def table(self, results: Sequence[_Result]) -> dict[str, np.ndarray]:
        """One row per result and component; corrections are over all of them."""
        k, n, p = len(self.names), *self.design.X.shape
        rows = [self._rows(one) for one in results]
        if not rows:
            return {name: np.array([]) for name in ("component", "term", *list(DESCRIPTIONS)[2:])}
        found = {name: np.concatenate([one[name] for one in rows]) for name in rows[0]}
        best = found["p_permutation"] if self.n_permutations else found["p_theory"]
        found["q_fdr_all"] = false_discovery(best)
        found["p_corrected_all"] = np.full(k * len(results), np.nan)
        if self.n_permutations:  # statistics of several degrees of freedom on one scale
            scale = lambda one, F: np.minimum(
                -stats.f.logsf(F, one.test.df, n - p), np.finfo(float).max
            )
            largest = np.max([scale(one, _largest(one.permuted)) for one in results], axis=0)
            observed = np.concatenate([scale(one, one.test.F) for one in results])
            found["p_corrected_all"] = p_of(observed, largest)
        return {name: found[name] for name in DESCRIPTIONS}

    def _rows(self, one: _Result) -> dict[str, np.ndarray]:
        test, k = one.test, len(self.names)
        single = test.df == 1
        half = stats.t.ppf((1 + LEVEL) / 2, test.df_residual) * test.se
        sign = np.sign(test.estimate) if single else 1.0
        p_theory = stats.f.sf(test.F, test.df, test.df_residual)
        nothing = np.full(k, np.nan)
        p_permutation = nothing if one.permuted is None else p_of(test.F, one.permuted)
        return {
            "component": np.array(self.names),
            "term": np.array([one.name] * k),
            "estimate": test.estimate,
            "se": test.se,
            "ci_low": test.estimate - half,
            "ci_high": test.estimate + half,
            "statistic": np.array(["t" if single else "F"] * k),
            "value": sign * np.sqrt(test.F) if single else test.F,
            "df": np.full(k, test.df),
            "df_residual": test.df_residual,
            "partial_r2": test.df * test.F / (test.df * test.F + test.df_residual),
            "standardized": one.standardized,
            "n": np.full(k, len(self.Y)),
            "p_theory": p_theory,
            "p_permutation": p_permutation,
            "p_corrected": nothing
            if one.permuted is None
            else p_of(test.F, _largest(one.permuted)),
            "q_fdr": false_discovery(p_theory if one.permuted is None else p_permutation),
            "exchange": np.array(["n/a" if one.permuted is None else str(one.exchange)] * k),
        }

    def coefficients(self) -> dict[str, np.ndarray]:
        """One row per column of the whole model and component, by theory."""
        rows = []
        for i, label in enumerate(self.design.labels):
            test = self.fit.test(np.eye(self.design.X.shape[1])[[i]])
            half = stats.t.ppf((1 + LEVEL) / 2, test.df_residual) * test.se
            rows.append(
                {
                    "component": np.array(self.names),
                    "column": np.array([label] * len(self.names)),
                    "estimate": test.estimate,
                    "se": test.se,
                    "ci_low": test.estimate - half,
                    "ci_high": test.estimate + half,
                    "t": np.sign(test.estimate) * np.sqrt(test.F),
                    "df_residual": test.df_residual,
                    "p_theory": stats.f.sf(test.F, 1, test.df_residual),
                }
            )
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def level_estimates(self, terms: Sequence[Term]) -> dict[str, np.ndarray]:
        """Estimates of each level of the categories that have several columns."""
        return {
            label: self.fit.coefficients[column]
            for term in terms
            if len(term.factors) == 1 and len(term.columns) > 1 and term.cells
            for label, column in zip(term.labels, term.columns, strict=True)
        }


def _check_between(design: RegressionDesign, groups: Groups) -> None:
    """Refuse terms that differ between groups in as many ways as there are groups, such as the
    groups themselves.
    """
    between = [i for i in range(design.X.shape[1]) if groups.constant(design.X[:, [i]])]
    if len(between) + 1 > len(groups.sizes):
        names = ", ".join(term.name for term in design.terms if set(term.columns) <= set(between))
        raise unusable(
            f"{literal(names)} and the groups of rows cannot be distinguished: {len(between)} columns differ "
            f"only between {len(groups.sizes)} groups"
        )


def too_few_permutations(name: str, otherwise: str) -> ArgumentError:
    """What differs between groups only has too few permutations; `otherwise`: what to do instead."""
    text = f"{literal(name)} differs only between groups, too few of which are equally large"
    return ArgumentError(
        "groups", None, f"{{groups}}: {text}: {otherwise}, or use as many rows of each group"
    )


def _largest(permuted: Any) -> np.ndarray:
    """The largest statistic of each permutation."""
    return np.asarray(np.where(np.isnan(permuted), -np.inf, permuted).max(axis=1))


def loadings_of(given: Any) -> tuple[np.ndarray, list[str], tuple[str, ...]]:
    """Loadings, names of components, and the covariates that a fit took out of the maps."""
    taken_out = tuple(
        map(str, getattr(given, "attrs", {}).get(TAKEN_OUT, ()))
    )  # of a table of loadings
    if hasattr(given, "components_") or hasattr(given, "get_params"):
        if not hasattr(given, "loadings_"):
            raise ArgumentError("loadings", None, "The model is not fitted yet: call fit first")
        taken_out, measures = taken_out_of(given), getattr(given, "measures_", None)
        given = given.loadings_
        if measures is not None and measures.share == "maps":
            given = beside_each_other(measures.split(given))
    labels = [str(name) for name in given.columns] if hasattr(given, "columns") else None
    try:
        Y = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ArgumentError(
            "loadings", Phrase(f"a {type(given).__name__}"), "numbers, or a fitted model"
        ) from None
    if Y.ndim != 2 or not Y.size:
        raise ArgumentError(
            "loadings", Phrase(f"shape {Y.shape}"), "rows × components, two dimensions"
        )
    if not np.isfinite(Y).all():
        raise ArgumentError(
            "loadings", Phrase(f"{int((~np.isfinite(Y)).sum())} that are not"), "finite numbers"
        )
    spread = Y.std(axis=0) > 1e-12 * np.abs(Y).max(axis=0)
    return np.where(spread, Y, 0.0), labels or numbered("component", Y.shape[1]), taken_out


def beside_each_other(loadings: Mapping[str, Any]) -> Any:
    """Loadings of several measures as a data frame with a row per person: component01_thickness,
    ...
    """
    import pandas as pd

    named = {
        measure: numbered("component", np.shape(values)[1]) for measure, values in loadings.items()
    }
    columns = [f"{name}_{measure}" for measure, names in named.items() for name in names]
    return pd.DataFrame(np.hstack(list(loadings.values())), columns=columns)


def _measures_in(names: Sequence[str]) -> list[str]:
    """Measures in the names that `beside_each_other` gives."""
    found = [re.fullmatch(r"component\d+_([0-9A-Za-z]+)", name) for name in names]
    return list(dict.fromkeys(one[1] for one in found if one)) if all(found) else []


def taken_out_of(model: Any) -> tuple[str, ...]:
    """Columns whose effects a fit took out of the maps."""
    steps = (getattr(model, name, None) for name in ("harmonization_", "covariates_"))
    return tuple(name for step in steps if step is not None for name in step.names)


def group_labels(
    groups: Any, table: Mapping[str, Sequence[Any]], n: int, missing: str
) -> tuple[np.ndarray | None, np.ndarray]:
    """One label per row, None when every row stands alone; and in which rows it is known."""
    known = np.ones(n, dtype=bool)
    if groups is None:
        groups = "participant_id"
        if groups not in table:
            return None, known
    if isinstance(groups, str):
        known = complete_rows(table, [groups], n, missing, "groups")
        groups = table[groups]
    labels = np.array([cell_text(label) for label in groups])
    if labels.shape != (n,):
        raise ArgumentError(
            "groups", Phrase(f"{len(labels)} labels for {n} rows"), "a column, or one label per row"
        )
    if len(set(labels[known])) < 2:
        raise ArgumentError(
            "groups", Phrase("one group of all rows"), "labels of at least two groups of rows"
        )
    return labels, known
