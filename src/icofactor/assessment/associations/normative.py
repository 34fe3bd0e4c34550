"""Normative scores: how far people are from what a reference group of their age and sex would have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from icofactor.assessment.associations._associate import group_labels, loadings_of
from icofactor.assessment.associations.design import (
    RegressionDesign,
    complete_rows,
    row_names,
    rows_of,
)
from icofactor.assessment.associations.formula import parse, smoothed, unusable
from icofactor.assessment.associations.regression import Groups
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, Phrase, literal
from icofactor.io.tables import cell_text, is_number

_LEAST_OVER = 10
"""Rows that a reference has beyond the columns of its model."""


@dataclass(frozen=True, eq=False)
class NormativeScores:
    """W-scores, the result of `normative_scores`.

    Attributes
    ----------
    scores : array of shape (n_rows, n_components)
        (value − expected) / residual standard deviation of the reference. NaN if a covariate is
        missing, or has a level that the reference lacks.
    expected : array of shape (n_rows, n_components)
        Expected values.
    deviation : array of shape (n_components,)
        Residual standard deviation of the reference.
    reference : bool array of shape (n_rows,)
        Who is in the reference group; their scores come from models without them.
    outside : array of str, shape (n_rows,)
        Columns in which a row is outside the range or levels of the reference; "" if none.
    names : tuple of str
        Names of the components.
    notes : list of str
        Remarks.

    Examples
    --------
    >>> import numpy as np, icofactor as ico
    >>> age, loadings = np.arange(20.0, 60), np.random.default_rng(0).normal(size=(40, 2))
    >>> table = {"age": age, "group": np.repeat(["control", "patient"], 20)}
    >>> found = ico.normative_scores(loadings, table, "age", reference="group=control")
    >>> found.scores.shape, found.outside[-1]  # the oldest person is older than all controls
    ((40, 2), 'age')
    """

    scores: np.ndarray
    expected: np.ndarray
    deviation: np.ndarray
    reference: np.ndarray
    outside: np.ndarray
    names: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def table(self) -> dict[str, np.ndarray]:
        """One row per row of the loadings: reference, outside, and the scores."""
        mark = np.array([text or "n/a" for text in self.outside])
        return {
            "reference": self.reference.astype(int),
            "outside_reference": mark,
            **dict(zip(self.names, self.scores.T, strict=True)),
        }


def normative_scores(
    loadings: Any,
    table: Any,
    formula: str = "age + sex",
    *,
    reference: str | Sequence[bool],
    groups: Any = None,
    smooth: Any = None,
    missing_covariates: str = "raise",
) -> NormativeScores:
    """Compute W-scores of loadings or maps: deviations from a reference group of the same age and
    sex.

    Parameters
    ----------
    loadings : array or data frame of shape (n_rows, n_components), or a fitted model
        Loadings; or maps of shape (n_rows, n_sites).
    table : dict or data frame
        Column → one value per row.
    formula : str, default="age + sex"
        What the loadings of the reference depend on; see `associate`. Terms with the column of
        `reference` are left out.
    reference : str or bool array of shape (n_rows,)
        The reference group: "COLUMN=VALUE", such as "group=control", or one bool per row.
    groups : str or sequence, default=None
        Rows that belong together. Default: the rows of one participant_id. Scores of people in the
        reference come from the other people in it.
    smooth : str, sequence or dict, default=None
        See `associate`.
    missing_covariates : {"raise", "skip"}, default="raise"
        Whether a missing covariate is an error, or the row has no scores.

    Returns
    -------
    NormativeScores

    Examples
    --------
    >>> import numpy as np, icofactor as ico
    >>> rng = np.random.default_rng(0)
    >>> age, sex = rng.uniform(20, 60, 80), rng.choice(["F", "M"], 80)
    >>> group = np.repeat(["control", "patient"], 40)
    >>> loadings = (0.1 * age + rng.normal(size=80) - 3 * (group == "patient"))[:, None]
    >>> table = {"age": age, "sex": sex, "group": group}
    >>> found = ico.normative_scores(loadings, table, reference="group=control")
    >>> bool(found.scores[40:].mean() < -2)
    True
    """
    Y, names, _ = loadings_of(loadings)
    n = len(Y)
    columns = rows_of(table, n)
    apart = reference.partition("=")[0].strip() if isinstance(reference, str) else None
    terms = [
        term
        for term in smoothed(parse(formula), smooth)
        if apart not in {factor.column for factor in term}
    ]
    if not terms:
        raise ArgumentError(
            "formula",
            formula,
            f"a formula with terms other than {literal(apart)}, which defines the reference",
        )
    used = list(
        dict.fromkeys(
            factor.column for term in terms for factor in sorted(term, key=lambda f: f.label)
        )
    )
    labels, grouped = group_labels(groups, columns, n, missing_covariates)
    known = complete_rows(columns, used, n, missing_covariates) & grouped
    healthy = _reference(reference, columns, n)
    fitted = np.flatnonzero(healthy & known)
    design = RegressionDesign.of(
        terms, {name: [values[i] for i in fitted] for name, values in columns.items()}
    )
    p = design.X.shape[1]
    if len(fitted) < p + _LEAST_OVER:
        found = Phrase(f"{len(fitted)} rows for {p} columns of the model")
        raise ArgumentError("reference", found, f"a group of at least {p + _LEAST_OVER} rows")
    outside = np.full(n, "", dtype=object)
    possible = known.copy()
    rows = np.flatnonzero(known)
    for variable in dict.fromkeys(design.variables.values()):
        beyond, cells = np.zeros(n, dtype=bool), [columns[variable.column][i] for i in rows]
        if variable.levels is None and (
            wrong := [
                i for i, cell in zip(rows, cells, strict=True) if not is_number(cell_text(cell))
            ]
        ):
            who, name = row_names(columns, n), literal(repr(variable.column))
            raise unusable(
                f"{name} contains numbers in the reference, but not in {some([who[i] for i in wrong], 10)}"
            )
        beyond[rows] = variable.outside(cells)
        if variable.levels is not None:
            possible &= ~beyond
        for i in np.flatnonzero(beyond):
            outside[i] = ", ".join(filter(None, [outside[i], variable.column]))
    rows = np.flatnonzero(possible)
    expected, scores = np.full(Y.shape, np.nan), np.full(Y.shape, np.nan)
    Q, R = np.linalg.qr(design.X)
    b = np.linalg.solve(R, Q.T @ Y[fitted])
    residual = Y[fitted] - design.X @ b
    squares = np.square(residual).sum(axis=0)
    deviation = np.sqrt(squares / (len(fitted) - p))
    expected[rows] = (
        design.at({name: [values[i] for i in rows] for name, values in columns.items()}) @ b
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        scores[rows] = np.where(deviation > 0, (Y[rows] - expected[rows]) / deviation, np.nan)
        people = Groups.of(np.arange(len(fitted)) if labels is None else labels[fitted])
        for person in range(len(people.sizes)):
            own = np.flatnonzero(people.codes == person)
            if len(own) >= len(fitted) - p:
                continue
            without = np.linalg.lstsq(
                np.eye(len(own)) - Q[own] @ Q[own].T, residual[own], rcond=None
            )[0]
            spread = np.sqrt(
                (squares - (residual[own] * without).sum(axis=0)) / (len(fitted) - len(own) - p)
            )
            scores[fitted[own]] = np.where(deviation > 0, without / spread, np.nan)
            expected[fitted[own]] = Y[fitted[own]] - without
    return NormativeScores(
        scores,
        expected,
        deviation,
        healthy,
        outside,
        tuple(names),
        _notes(columns, n, known, possible, outside),
    )


def _reference(reference: Any, table: Mapping[str, Sequence[Any]], n: int) -> np.ndarray:
    if not isinstance(reference, str):
        chosen = np.asarray(reference)
        if chosen.shape != (n,) or chosen.dtype != bool:
            raise ArgumentError(
                "reference", Phrase(f"shape {chosen.shape}"), "'COLUMN=VALUE', or one bool per row"
            )
        return chosen
    column, equals, value = reference.partition("=")
    if not equals or column.strip() not in table:
        known = ", ".join(name for name in table if name != "participant_id")
        form = f"of the form COLUMN=VALUE, e.g. group=control; columns: {known}"
        raise ArgumentError("reference", reference, literal(form))
    cells = [cell_text(cell) for cell in table[column.strip()]]
    chosen = np.array([cell == cell_text(value.strip()) for cell in cells])
    if not chosen.any():
        raise ArgumentError(
            "reference", reference, f"a value in that column: {some(sorted(set(cells)), 20)}"
        )
    return chosen


def _notes(
    table: Mapping[str, Sequence[Any]],
    n: int,
    known: np.ndarray,
    possible: np.ndarray,
    outside: np.ndarray,
) -> tuple[str, ...]:
    who = row_names(table, n)
    beyond = [who[i] for i in np.flatnonzero((outside != "") & possible)]
    unknown = [who[i] for i in np.flatnonzero(known & ~possible)]
    missing = [who[i] for i in np.flatnonzero(~known)]
    texts = (
        (beyond, "outside the reference's range, so their scores are extrapolated"),
        (unknown, "of a level that the reference does not have, so they have no scores"),
        (missing, "without scores, because a covariate is missing"),
    )
    return tuple(f"{text}: {', '.join(names)}" for names, text in texts if names)
