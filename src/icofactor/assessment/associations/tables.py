"""Tables of people as the tests use them: one list of values per column, one value per row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icofactor.assessment.associations.regression import Groups
from icofactor.cohort.people import MEASURE
from icofactor.errors import ArgumentError, shown
from icofactor.io.tables import cell_text, is_missing

Table = Mapping[str, Any]
GroupLabels = str | Sequence[object] | None


def read_columns(
    table: Table,
    n_rows: int,
) -> dict[str, list[Any]]:
    """Return the columns of a mapping or data frame as lists of `n_rows` values."""
    try:
        columns = {str(name): list(table[name]) for name in table}
    except (TypeError, ValueError, KeyError):
        raise ArgumentError(
            "table",
            f"must be a table, column → one value per row; found a {type(table).__name__}",
        ) from None
    # Of several measures side by side, the table has a row of each person for every measure.
    if len(columns.get(MEASURE, ())) > n_rows > 0:
        columns = {name: cells[:n_rows] for name, cells in columns.items() if name != MEASURE}
    for name, cells in columns.items():
        if len(cells) != n_rows:
            raise ArgumentError(
                "table",
                f"column {shown(name)} has {len(cells)} values for {n_rows} rows of loadings",
            )
    return columns


def take_rows(
    columns: Table,
    rows: Sequence[int] | np.ndarray,
) -> dict[str, list[Any]]:
    """Return some rows of every column."""
    return {name: [cells[row] for row in rows] for name, cells in columns.items()}


def row_names(
    columns: Table,
    n_rows: int,
) -> list[str]:
    """Return what messages call the rows: the person and the session, or the number."""
    # Tables without participant_id have rows without names.
    people = [cell_text(cell) for cell in columns.get("participant_id", ())]
    if not people:
        people = [f"row {number}" for number in range(1, n_rows + 1)]
    sessions = [cell_text(cell) for cell in columns.get("session_id", [""] * n_rows)]
    return [f"{person} {session}".strip() for person, session in zip(people, sessions, strict=True)]


def names_where(
    columns: Table,
    flags: np.ndarray,
) -> str:
    """Return the names of the flagged rows as text."""
    names = row_names(columns, len(flags))
    return ", ".join(names[row] for row in np.flatnonzero(flags))


def complete_rows(
    columns: Table,
    names: Sequence[str],
    n_rows: int,
    missing: str,
    argument: str = "formula",
) -> np.ndarray:
    """Return which rows have a value in all the named columns.

    Parameters
    ----------
    missing : "raise" refuses missing values, "skip" does not.
    argument : what named the columns.
    """
    if missing not in ("raise", "skip"):
        raise ArgumentError(
            "missing_covariates", f"must be 'raise' or 'skip'; found {shown(missing)}"
        )
    unknown = [name for name in names if name not in columns]
    if unknown:
        available = [name for name in columns if name != "participant_id"]
        raise ArgumentError(
            argument,
            f"the table has no column {', '.join(map(shown, unknown))}; its columns: "
            f"{', '.join(map(shown, available)) or 'none'}",
        )
    absent = {
        name: np.array([is_missing(cell_text(cell)) for cell in columns[name]], dtype=bool)
        for name in names
    }
    complete = np.ones(n_rows, dtype=bool)
    for flags in absent.values():
        complete &= ~flags
    if missing == "raise" and not complete.all():
        gaps = [
            f"{shown(name)} in {names_where(columns, flags)}"
            for name, flags in absent.items()
            if flags.any()
        ]
        raise ArgumentError(
            argument,
            f"values are missing, {'; '.join(gaps)}: fill them in, or leave these rows out with "
            "--missing-covariates skip (missing_covariates='skip')",
        )
    return complete


def group_labels(
    groups: GroupLabels,
    columns: Table,
    n_rows: int,
    missing: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Return one label per row, different ones where rows stand alone; and which are not missing."""
    is_labelled = np.ones(n_rows, dtype=bool)
    if groups is None:
        groups = "participant_id"
        if groups not in columns:
            return np.arange(n_rows), is_labelled
    if isinstance(groups, str):
        is_labelled = complete_rows(columns, [groups], n_rows, missing, "groups")
        groups = columns[groups]
    # Text, so that 1 and 1.0 are the same person.
    labels = np.array([cell_text(label) for label in groups])
    if labels.shape != (n_rows,) or len(set(labels[is_labelled])) < 2:
        raise ArgumentError(
            "groups",
            f"must be a column, or one label per row, with at least two groups; found "
            f"{len(labels)} labels for {n_rows} rows, {len(set(labels))} of them different",
        )
    return labels, is_labelled


def repeated_groups(labels: np.ndarray) -> Groups | None:
    """Return the groups of rows, or None where every row stands alone."""
    groups = Groups.of(labels)
    return groups if groups.repeated else None
