"""What only the numbers tell: the medial wall, bad values, other units, exchanged hemispheres."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
    holes : row → where it is not finite, packed; only rows that are not finite everywhere.
    """

    X: NDArray[np.float32]
    good: Sequence[int]
    columns: Mapping[str, slice]
    where: Sequence[Mapping[str, str]]
    holes: dict[int, NDArray[np.uint8]] = field(default_factory=dict)

    def scan(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Per site, how many rows are not finite, and how many are that or zero: the one look for NaN."""
        n_sites = self.X.shape[1]
        nan, empty = np.zeros(n_sites, dtype=np.int64), np.zeros(n_sites, dtype=np.int64)
        alike: dict[bytes, NDArray[np.uint8]] = {}  # one medial wall for all
        for row in self.good:
            bad = ~np.isfinite(self.X[row])
            if bad.any():
                packed = np.packbits(bad)
                self.holes[row] = alike.setdefault(packed.tobytes(), packed)
                nan += bad
            empty += bad | (self.X[row] == 0)
        return nan, empty

    def bad(self, row: int) -> Bools:
        """Where a row is not finite."""
        n_sites = self.X.shape[1]
        if row not in self.holes:
            return np.zeros(n_sites, dtype=bool)
        return np.unpackbits(self.holes[row], count=n_sites).astype(bool)

    def values(self, row: int, side: str, mask: Bools) -> NDArray[np.float32]:
        """The finite values of a row in one hemisphere, where the mask is True."""
        columns = self.columns[side]
        keep = mask[columns]
        return self.X[row, columns][keep & ~self.bad(row)[columns] if row in self.holes else keep]


def check_values(rows: Rows, given: Bools | None, problems: Problems, journal: Journal) -> Bools | None:
    """The mask: sites in use; None when all are. Whatever speaks against a file goes to `problems`.

    A site where every subject has NaN or zero is not in use, nor one that the given mask leaves out. NaN elsewhere is
    a bad file. Values that are not finite become 0 at sites not in use.
    """
    n = len(rows.good)
    if n == 0:
        return given
    nan, empty = rows.scan()
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
    for row in rows.holes:
        rows.X[row, rows.bad(row) & ~mask] = 0
    return None if mask.all() else mask


def _report_nan(rows: Rows, mask: Bools, nan: NDArray[np.int64], problems: Problems) -> None:
    """NaN in a few subjects is their fault; where most have NaN, those who have none are the odd ones."""
    mostly = mask & (nan > len(rows.good) / 2)
    seldom = mask & (nan > 0) & ~mostly
    if not (mostly.any() or seldom.any()):
        return
    for row in rows.good:
        bad = rows.bad(row)
        for side, columns in rows.columns.items():
            wrong = np.flatnonzero((bad & seldom)[columns])
            if len(wrong):
                text = f"NaN or infinite at {len(wrong)} vertices (e.g. {wrong[0]}) where other subjects have values"
                problems.add(rows.where[row][side], text)
            odd = np.flatnonzero((~bad & mostly)[columns])
            if len(odd):
                text = f"values at {len(odd)} vertices (e.g. {odd[0]}) where most subjects have NaN"
                problems.add(rows.where[row][side], text + "; leave them out with {mask}")


def _report_flat(rows: Rows, mask: Bools, problems: Problems) -> None:
    used = mask if mask.any() else ~mask
    for row in rows.good:
        for side in rows.columns:
            values = rows.values(row, side, used)
            if len(values) == 0 or values.min() == values.max():
                same = f"{values[0]:g}" if len(values) else "NaN, infinite or beyond 3e38"
                problems.add(rows.where[row][side], f"is {same} at every vertex; there is no map in it")


def _report_units(rows: Rows, mask: Bools, problems: Problems) -> None:
    """A subject whose typical value is many times that of the others was stored in other units."""
    for side in rows.columns:
        middles = np.zeros(len(rows.good))
        for i, row in enumerate(rows.good):
            values = np.abs(rows.values(row, side, mask))
            values = values[values > 0]
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
            columns = rows.columns[side]
            wall = rows.bad(row)[columns] | (rows.X[row, columns] == 0)
            if _alike(wall, usual[other]) > _SAME_WALL and _alike(wall, usual[side]) < _OTHER_WALL:
                text = f"is named {side}, but its medial wall is that of the {other} hemisphere"
                problems.add(rows.where[row][side], text)


def _alike(one: Bools, other: Bools) -> float:
    """Share of the vertices in either that are in both."""
    return float((one & other).sum() / max((one | other).sum(), 1))
