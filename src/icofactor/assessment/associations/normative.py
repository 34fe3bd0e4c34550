"""Normative scores: how far people are from what a reference group of their age and sex would have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from icofactor.assessment.associations.design import RegressionDesign
from icofactor.assessment.associations.formula import (
    Smooth,
    columns_of,
    parse,
    smoothed,
    unusable,
)
from icofactor.assessment.associations.loadings import read_loadings
from icofactor.assessment.associations.regression import Groups
from icofactor.assessment.associations.tables import (
    GroupLabels,
    Table,
    complete_rows,
    group_labels,
    names_where,
    read_columns,
    row_names,
    take_rows,
)
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, shown
from icofactor.io.tables import cell_text, is_number

if TYPE_CHECKING:
    from icofactor.estimator.estimator import CorticalFactorization

# Rows that a reference must have beyond the columns of its model.
_MIN_RESIDUAL_ROWS = 10


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
    >>> norms = ico.normative_scores(loadings, table, "age", reference="group=control")
    >>> norms.scores.shape, norms.outside[-1]  # the oldest person is older than all controls
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
    loadings: ArrayLike | CorticalFactorization,
    table: Table,
    formula: str = "age + sex",
    *,
    reference: str | Sequence[bool],
    groups: GroupLabels = None,
    smooth: Smooth = None,
    missing_covariates: str = "raise",
) -> NormativeScores:
    """Compute W-scores: deviations from a reference group of the same age and sex.

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
    >>> norms = ico.normative_scores(loadings, table, reference="group=control")
    >>> bool(norms.scores[40:].mean() < -2)
    True
    """
    outcomes = read_loadings(loadings)
    n_rows = len(outcomes.values)
    columns = read_columns(table, n_rows)
    # Everybody in the reference has the same value in the column that defines it.
    defining = reference.partition("=")[0].strip() if isinstance(reference, str) else None
    terms = [
        term for term in smoothed(parse(formula), smooth) if defining not in columns_of([term])
    ]
    if not terms:
        raise unusable(f"has no term besides {defining}, which defines the reference")
    labels, complete = group_labels(groups, columns, n_rows, missing_covariates)
    complete &= complete_rows(columns, columns_of(terms), n_rows, missing_covariates)
    in_reference = _reference(reference, columns, n_rows)
    fitted = np.flatnonzero(in_reference & complete)
    design = RegressionDesign.of(terms, take_rows(columns, fitted))
    n_columns = design.X.shape[1]
    if len(fitted) < n_columns + _MIN_RESIDUAL_ROWS:
        raise ArgumentError(
            "reference",
            f"must have at least {n_columns + _MIN_RESIDUAL_ROWS} rows, for {n_columns} columns of "
            f"the model; found {len(fitted)}",
        )
    outside, possible = _outside(design, columns, complete)
    rows = np.flatnonzero(possible)
    Y = outcomes.values
    Q, R = np.linalg.qr(design.X)
    coefficients = np.linalg.solve(R, Q.T @ Y[fitted])
    residual = Y[fitted] - design.X @ coefficients
    squares = np.square(residual).sum(axis=0)
    n_free = len(fitted) - n_columns
    deviation = np.sqrt(squares / n_free)
    expected = np.full(Y.shape, np.nan)
    scores = np.full(Y.shape, np.nan)
    expected[rows] = design.at(take_rows(columns, rows)) @ coefficients
    # Scores of reference people come from models without any of their scans.
    people = Groups.of(labels[fitted])
    with np.errstate(divide="ignore", invalid="ignore"):
        scores[rows] = (Y[rows] - expected[rows]) / deviation
        for person in range(len(people.sizes)):
            members = np.flatnonzero(people.codes == person)
            # Without this person, too few rows remain for a model.
            if len(members) >= n_free:
                continue
            # What a fit to the other people says of these rows, without fitting again: residuals
            # times (I − H)⁻¹, H being their part of the hat matrix.
            leverage = Q[members] @ Q[members].T
            own_residual = residual[members]
            difference = np.linalg.lstsq(np.eye(len(members)) - leverage, own_residual)[0]
            other_squares = squares - (own_residual * difference).sum(axis=0)
            member_rows = fitted[members]
            scores[member_rows] = difference / np.sqrt(other_squares / (n_free - len(members)))
            expected[member_rows] = Y[member_rows] - difference
    # Loadings that do not vary have no scores.
    scores[:, ~(deviation > 0)] = np.nan
    remarks = (
        (
            "outside the reference's range, so their scores are extrapolated",
            (outside != "") & possible,
        ),
        (
            "of a level that the reference does not have, so they have no scores",
            complete & ~possible,
        ),
        ("without scores, because a covariate is missing", ~complete),
    )
    return NormativeScores(
        scores,
        expected,
        deviation,
        in_reference,
        outside,
        tuple(outcomes.names),
        tuple(f"{text}: {names_where(columns, flags)}" for text, flags in remarks if flags.any()),
    )


def _outside(
    design: RegressionDesign,
    columns: Table,
    complete: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return in which columns each row is outside the reference, and which rows can have scores."""
    outside = np.full(len(complete), "", dtype=object)
    possible = complete.copy()
    rows = np.flatnonzero(complete)
    names = row_names(columns, len(complete))
    for variable in dict.fromkeys(design.variables.values()):
        cells = [columns[variable.column][row] for row in rows.tolist()]
        if variable.levels is None:
            wrong = [
                names[row]
                for row, cell in zip(rows, cells, strict=True)
                if not is_number(cell_text(cell))
            ]
            if wrong:
                raise unusable(
                    f"{shown(variable.column)} contains numbers in the reference, but not in "
                    f"{some(wrong, 10)}"
                )
        beyond = rows[variable.outside(cells)]
        for row in beyond:
            outside[row] = ", ".join(filter(None, [outside[row], variable.column]))
        # Numbers can be extrapolated, levels cannot.
        if variable.levels is not None:
            possible[beyond] = False
    return outside, possible


def _reference(
    reference: str | Sequence[bool],
    columns: Table,
    n_rows: int,
) -> np.ndarray:
    """Return which rows are in the reference group."""
    if isinstance(reference, str):
        column, _, value = map(str.strip, reference.partition("="))
        level = cell_text(value)
        cells = [cell_text(cell) for cell in columns.get(column, ())]
        flags = np.array([cell == level for cell in cells], dtype=bool)
        expected = f"COLUMN=VALUE, such as group=control, of one of {', '.join(columns)}"
        if cells:
            expected = f"COLUMN=VALUE; values of {column}: {some(sorted(set(cells)), 20)}"
    else:
        flags = np.asarray(reference)
        expected = f"COLUMN=VALUE, or one bool for each of {n_rows} rows"
    if flags.shape != (n_rows,) or flags.dtype != bool or not flags.any():
        raise ArgumentError(
            "reference",
            f"must be {expected}; found {shown(reference)}",
        )
    return flags
