"""Columns of the participants' table as the store keeps them in JSON: lists of text or numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from icofactor.errors import ArgumentError, CohortError, shown

# A value of a column: text, a boolean, a number, or None where it is missing.
Cell = str | float | None


def encode_column(name: str, values: Iterable[object]) -> list[Cell]:
    """Return a column as JSON holds it: text or numbers, and None where a value is missing."""
    # As objects, because a list of text and NaN must not become text all over.
    cells = np.array(list(values), dtype=object).tolist()
    cells = [cell.item() if isinstance(cell, np.generic) else cell for cell in cells]
    column = [None if _is_missing(cell) else cell for cell in cells]
    if not all(cell is None or isinstance(cell, int | float) for cell in column):
        return [None if cell is None else str(cell) for cell in column]
    if math.inf in column or -math.inf in column:
        raise ArgumentError("participants", f"must be finite or missing in column {shown(name)}")
    return column


def decode_column(cells: Sequence[Cell]) -> np.ndarray:
    """Return the column as an array: missing numbers are NaN, missing text is None."""
    if any(isinstance(cell, str) for cell in cells):
        is_complete = None not in cells
        return np.array(cells, dtype=str if is_complete else object)
    column = np.array([math.nan if cell is None else cell for cell in cells])
    if column.ndim != 1 or column.dtype.kind not in "biuf":
        raise ValueError("a column contains neither text nor numbers")
    return column


def check_column(name: str, column: Sequence[Cell]) -> None:
    """Refuse a column that has text for some subjects and numbers for others."""
    n_text = sum(isinstance(cell, str) for cell in column)
    if 0 < n_text < len(column) - column.count(None):
        raise CohortError("participants", f"column {shown(name)} has text and numbers")


def _is_missing(cell: object) -> bool:
    """Return whether a cell is None or NaN."""
    return cell is None or cell != cell
