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
    regression = _Reference.fit(design.X, outcomes.values[fitted])
    expected = np.full(outcomes.values.shape, np.nan)
    scores = np.full(outcomes.values.shape, np.nan)
    expected[rows] = design.at(take_rows(columns, rows)) @ regression.coefficients
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = np.where(regression.deviation > 0, regression.deviation, np.nan)
        scores[rows] = (outcomes.values[rows] - expected[rows]) / deviation
        people = Groups.of(labels[fitted])
        for person in range(len(people.sizes)):
            members = np.flatnonzero(people.codes == person)
            if len(members) < len(fitted) - n_columns:
                difference, spread = regression.without(members)
                scores[fitted[members]] = difference / (spread * deviation / deviation)
                expected[fitted[members]] = outcomes.values[fitted[members]] - difference
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
        regression.deviation,
        in_reference,
        outside,
        tuple(outcomes.names),
        tuple(f"{text}: {names_where(columns, flags)}" for text, flags in remarks if flags.any()),
    )


@dataclass(frozen=True, eq=False)
class _Reference:
    """Least squares of the reference group.

    Attributes
    ----------
    Q : (n_rows, n_columns) orthonormal basis of the design
    residual : (n_rows, n_outcomes)
    coefficients : (n_columns, n_outcomes)
    """

    Q: np.ndarray
    residual: np.ndarray
    coefficients: np.ndarray

    @classmethod
    def fit(cls, X: np.ndarray, Y: np.ndarray) -> _Reference:
        Q, R = np.linalg.qr(X)
        coefficients = np.linalg.solve(R, Q.T @ Y)
        return cls(Q, Y - X @ coefficients, coefficients)

    @property
    def deviation(self) -> np.ndarray:
        """(n_outcomes,) residual standard deviation."""
        return np.sqrt(np.square(self.residual).sum(axis=0) / self._n_free)

    @property
    def _n_free(self) -> int:
        """Rows beyond the columns of the model."""
        return self.Q.shape[0] - self.Q.shape[1]

    def without(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what a fit to the other rows says of these rows, without fitting again.

        These are differences from the expectation, (I − H)⁻¹ residual of these rows with H their
        part of the hat matrix, and the residual standard deviation of the other rows.
        """
        residual = self.residual[rows]
        leverage = self.Q[rows] @ self.Q[rows].T
        difference = np.linalg.lstsq(np.eye(len(rows)) - leverage, residual, rcond=None)[0]
        squares = np.square(self.residual).sum(axis=0) - (residual * difference).sum(axis=0)
        return difference, np.sqrt(squares / (self._n_free - len(rows)))


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


def _reference(reference: str | Sequence[bool], columns: Table, n_rows: int) -> np.ndarray:
    """Return which rows are in the reference group."""
    if isinstance(reference, str):
        column, _, value = map(str.strip, reference.partition("="))
        level = cell_text(value)
        flags = np.array([cell_text(cell) == level for cell in columns.get(column, ())], dtype=bool)
        expected = "COLUMN=VALUE, such as group=control, of a column and a value that it has"
    else:
        flags = np.asarray(reference)
        expected = f"COLUMN=VALUE, or one bool for each of {n_rows} rows"
    if flags.shape != (n_rows,) or flags.dtype != bool or not flags.any():
        raise ArgumentError(
            "reference",
            f"must be {expected}; found {shown(reference)}; columns: {', '.join(columns)}",
        )
    return flags
