"""What only the numbers tell: the medial wall, bad values, other units, exchanged hemispheres."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.problems import Journal, Problems

# Millimetres against micrometres are 1000, fractions against percent 100; scanners differ by less than this.
_OTHER_UNITS = 30
_SAME_WALL, _OTHER_WALL = 0.9, 0.5
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of X that were read well.

    Attributes
    ----------
    X : (n_subjects, n_sites).
    good : numbers of the rows to look at.
    columns : hemisphere → its columns.
    where : per row, hemisphere → the file it came from (and the map in it).
    """

    X: NDArray[np.float32]
    good: NDArray[np.int64]
    columns: Mapping[str, slice]
    where: Sequence[Mapping[str, str]]


def check_values(rows: Rows, given: Bools | None, problems: Problems, journal: Journal) -> Bools | None:
    """The mask: sites in use; None when all are. Whatever speaks against a file goes to `problems`.

    A site where every subject has NaN or zero is not in use, nor one that the given mask leaves out. NaN elsewhere is
    a bad file. Values that are not finite become 0 at sites not in use.
    """
    X, n = rows.X, len(rows.good)
    if n == 0:
        return given
    nan, empty = np.zeros(X.shape[1], dtype=np.int64), np.zeros(X.shape[1], dtype=np.int64)
    for row in rows.good:
        bad = ~np.isfinite(X[row])
        nan += bad
        empty += bad | (X[row] == 0)
    mask = empty < n
    if not mask.any():
        _report_flat(rows, mask, problems)
        return given
    if not mask.all():
        journal.note(f"mask: {int((~mask).sum())} sites are NaN or zero in every subject and are left out")
    partly = int(((empty > n / 2) & mask).sum())
    if partly and n > 2:
        journal.note(f"{partly} sites are NaN or zero in most subjects, not in all; they stay in use")
    if given is not None:
        mask &= given
        if not mask.any():
            problems.add("mask", "leaves no site where any subject has a value")
    _report_exchanged(rows, empty, problems)
    _report_nan(rows, mask, nan, problems)
    _report_flat(rows, mask, problems)
    _report_units(rows, mask, problems)
    for row in rows.good:
        X[row, ~np.isfinite(X[row]) & ~mask] = 0
    return None if mask.all() else mask


def _report_nan(rows: Rows, mask: Bools, nan: NDArray[np.int64], problems: Problems) -> None:
    """NaN in a few subjects is their fault; where most have NaN, those who have none are the odd ones."""
    mostly = mask & (nan > len(rows.good) / 2)
    seldom = mask & (nan > 0) & ~mostly
    if not (mostly.any() or seldom.any()):
        return
    for row in rows.good:
        bad = ~np.isfinite(rows.X[row])
        for side, columns in rows.columns.items():
            wrong = np.flatnonzero((bad & seldom)[columns])
            if len(wrong):
                text = f"NaN or infinite at {len(wrong)} vertices (e.g. {wrong[0]}) where other subjects have values"
                problems.add(rows.where[row][side], text)
            odd = np.flatnonzero((~bad & mostly)[columns])
            if len(odd):
                text = f"values at {len(odd)} vertices (e.g. {odd[0]}) where most subjects have NaN"
                problems.add(rows.where[row][side], text + "; leave them out with mask=")


def _report_flat(rows: Rows, mask: Bools, problems: Problems) -> None:
    for row in rows.good:
        for side, columns in rows.columns.items():
            values = rows.X[row, columns]
            values = values[mask[columns]] if mask.any() else values
            values = values[np.isfinite(values)]
            if len(values) == 0 or values.min() == values.max():
                same = f"{values[0]:g}" if len(values) else "NaN, infinite or beyond 3e38"
                problems.add(rows.where[row][side], f"is {same} at every vertex; there is no map in it")


def _report_units(rows: Rows, mask: Bools, problems: Problems) -> None:
    """A subject whose typical value is many times that of the others was stored in other units."""
    for side, columns in rows.columns.items():
        middles = np.zeros(len(rows.good))
        for i, row in enumerate(rows.good):
            values = np.abs(rows.X[row, columns][mask[columns]])
            values = values[np.isfinite(values) & (values > 0)]
            middles[i] = np.median(values.astype(np.float64)) if len(values) else np.nan
        known = np.sort(middles[np.isfinite(middles)])
        if len(known) < 2:
            continue
        usual = known[(len(known) - 1) // 2]
        for row, middle in zip(rows.good, middles, strict=True):
            if middle > _OTHER_UNITS * usual or middle < usual / _OTHER_UNITS:
                text = f"in other units? Its median is {middle:.4g}, that of the other subjects about {usual:.4g}"
                problems.add(rows.where[row][side], text)


def _report_exchanged(rows: Rows, empty: NDArray[np.int64], problems: Problems) -> None:
    """A file whose medial wall is that of the other hemisphere has the wrong name."""
    if len(rows.columns) != 2 or len(rows.good) < 3:
        return
    usual = {side: empty[columns] > len(rows.good) / 2 for side, columns in rows.columns.items()}
    left, right = usual["left"], usual["right"]
    if len(left) != len(right) or not left.any() or not right.any() or _alike(left, right) > _OTHER_WALL:
        return
    for row in rows.good:
        for side, other in (("left", "right"), ("right", "left")):
            values = rows.X[row, rows.columns[side]]
            wall = ~np.isfinite(values) | (values == 0)
            if _alike(wall, usual[other]) > _SAME_WALL and _alike(wall, usual[side]) < _OTHER_WALL:
                text = f"is named {side}, but its medial wall is that of the {other} hemisphere"
                problems.add(rows.where[row][side], text)


def _alike(one: Bools, other: Bools) -> float:
    """Share of the vertices in either that are in both."""
    return float((one & other).sum() / max((one | other).sum(), 1))
