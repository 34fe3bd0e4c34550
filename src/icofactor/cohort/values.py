"""What only the values of all subjects tell: the medial wall, bad values, other units, swaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.problems import Journal, ReadProblems, some
from icofactor.errors import plural

Mask = NDArray[np.bool_]
# Millimetres against micrometres are 1000, fractions against percent 100; scanners differ less.
_OTHER_UNITS = 30
# Shares of vertices in both of two medial walls: of the same, and of different hemispheres.
_SAME_WALL = 0.9
_OTHER_WALL = 0.5
_OPPOSITE = {"left": "right", "right": "left"}


@dataclass(frozen=True, eq=False)
class MapRows:
    """Rows of X, and the files they came from.

    Attributes
    ----------
    X : (n_subjects, n_sites) float32.
    rows : numbers of the rows that were read well.
    columns : hemisphere → its columns.
    sources : per row, hemisphere → its file, and the map in it.
    regions : names of the columns, if they are regions.
    """

    X: NDArray[np.float32]
    rows: Sequence[int]
    columns: Mapping[str, slice]
    sources: Sequence[Mapping[str, str]]
    regions: Sequence[str] = ()

    def is_nan(self, row: int) -> Mask:
        """Return where a row is not finite."""
        return ~np.isfinite(self.X[row])

    def count(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return for each site how many rows are not finite, and how many are that or zero."""
        n_nan = np.zeros(self.X.shape[1], dtype=np.int64)
        n_empty = n_nan.copy()
        for row in self.rows:
            is_nan = self.is_nan(row)
            n_nan += is_nan
            n_empty += is_nan | (self.X[row] == 0)
        return n_nan, n_empty

    def values(
        self,
        row: int,
        side: str,
        mask: Mask,
    ) -> NDArray[np.float32]:
        """Return the finite values of a row in one hemisphere, where the mask is True."""
        columns = self.columns[side]
        values = self.X[row, columns][mask[columns]]
        return values[np.isfinite(values)]

    def describe(
        self,
        side: str,
        sites: NDArray[np.int64],
    ) -> str:
        """Describe sites of a hemisphere: 3 vertices (e.g. 17), or their names."""
        if not self.regions:
            return f"{len(sites)} vertices (e.g. {sites[0]})"
        start = self.columns[side].start
        names = some(self.regions[start + site] for site in sites)
        return f"{plural(len(sites), 'region')} ({names})"


def mask_by_values(
    maps: MapRows,
    given_mask: Mask | None,
    problems: ReadProblems,
    journal: Journal,
    holes: bool = False,
) -> Mask | None:
    """Return the mask of the sites in use, None if all are; report what is wrong with files.

    Sites are not in use if all subjects have NaN or zero, or if the given mask leaves them out. NaN
    elsewhere is a problem, unless `holes` are allowed. Values out of use become 0 if not finite.
    """
    n_rows = len(maps.rows)
    if n_rows == 0:
        return given_mask
    n_nan, n_empty = maps.count()
    mask = n_empty < n_rows
    if not mask.any():
        _report_flat(maps, ~mask, problems)
        return given_mask
    lost = ~mask if given_mask is None else given_mask & ~mask
    # Sites that most people lack may be a wrong mesh, but are data.
    n_partly = int(((n_empty > n_rows / 2) & mask).sum())
    if given_mask is not None:
        mask &= given_mask
        if not mask.any():
            problems.add("mask", "leaves no site at which any subject has a value")
    _report_swapped(maps, n_empty, problems)
    if not holes:
        _report_nan(maps, mask, n_nan, problems)
    _report_flat(maps, mask, problems)
    _report_units(maps, mask, problems)
    if not problems and not holes:
        _note_sites(maps, lost, n_partly, journal)
    for row in maps.rows:
        maps.X[row, maps.is_nan(row) & ~mask] = 0
    return None if mask.all() else mask


def _note_sites(
    maps: MapRows,
    lost: Mask,
    n_partly: int,
    journal: Journal,
) -> None:
    """Note sites that nobody, or only few, have values at."""
    n_lost = int(lost.sum())
    if n_lost:
        names = list(compress(maps.regions, lost))
        listed = f" ({some(names)})" if names else ""
        text = f"mask: left out {plural(n_lost, 'site')}{listed}"
        journal.note(f"{text}, NaN or zero in every subject")
    if n_partly and len(maps.rows) > 2:
        text = f"{n_partly} sites are NaN or zero in most subjects but not in all"
        journal.note(f"{text}; they are used")


def _report_nan(
    maps: MapRows,
    mask: Mask,
    n_nan: NDArray[np.int64],
    problems: ReadProblems,
) -> None:
    """Report NaN where most subjects have values, and values where most have NaN."""
    mostly_nan = mask & (n_nan > len(maps.rows) / 2)
    seldom_nan = mask & (n_nan > 0) & ~mostly_nan
    remedy = ""
    if maps.regions:
        remedy = "; leave out the subject with --exclude (exclude=), or these columns of the table"
    # NaN in few subjects is their fault; where most have NaN, those with values are odd.
    for row in maps.rows:
        is_nan = maps.is_nan(row)
        for side, columns in maps.columns.items():
            path = maps.sources[row][side]
            holes = np.flatnonzero((is_nan & seldom_nan)[columns])
            odd = np.flatnonzero((~is_nan & mostly_nan)[columns])
            if len(holes):
                text = f"NaN or infinite at {maps.describe(side, holes)}"
                problems.add(path, f"{text} where other subjects have values{remedy}")
            if len(odd):
                text = f"values at {maps.describe(side, odd)} where most subjects have NaN"
                problems.add(path, f"{text}; leave them out with --mask (mask=)")


def _report_flat(
    maps: MapRows,
    mask: Mask,
    problems: ReadProblems,
) -> None:
    """Report maps that have one value everywhere."""
    for row in maps.rows:
        for side in maps.columns:
            values = maps.values(row, side, mask)
            path = maps.sources[row][side]
            if len(values) == 0:
                problems.add(path, "is NaN, infinite or beyond 3e38 at every vertex")
            elif np.abs(values).max() < np.finfo(np.float32).tiny:
                problems.add(path, "is 0, or too small for single precision, at every vertex")
            elif values.min() == values.max():
                problems.add(path, f"is {values[0]:g} at every vertex; it contains no map")


def _report_units(
    maps: MapRows,
    mask: Mask,
    problems: ReadProblems,
) -> None:
    """Report subjects whose typical value is many times that of the others."""
    for side in maps.columns:
        medians = {}
        for row in maps.rows:
            # Maps such as ALFF z-scores have both signs.
            values = np.abs(maps.values(row, side, mask))
            values = values[values > 0]
            if len(values):
                medians[row] = float(np.median(values.astype(np.float64)))
        # The lower of two middle values, so that one of two subjects is the usual one.
        usual = np.quantile(list(medians.values()), 0.5, method="lower") if medians else 0
        for row, median in medians.items():
            if not usual / _OTHER_UNITS <= median <= usual * _OTHER_UNITS:
                text = f"has other units? Its median is {median:.4g}; that of others is about"
                problems.add(maps.sources[row][side], f"{text} {usual:.4g}")


def _report_swapped(
    maps: MapRows,
    n_empty: NDArray[np.int64],
    problems: ReadProblems,
) -> None:
    """Report files with the medial wall of the other hemisphere."""
    if len(maps.columns) != 2 or len(maps.rows) < 3:
        return
    # FreeSurfer's files do not say their hemisphere, but the medial wall does.
    walls = {side: n_empty[columns] > len(maps.rows) / 2 for side, columns in maps.columns.items()}
    left, right = walls.values()
    # Without a wall in both, nothing can be compared.
    if len(left) != len(right) or not (left.any() and right.any()):
        return
    if _overlap(left, right) > _OTHER_WALL:
        return
    for row in maps.rows:
        for side, opposite in _OPPOSITE.items():
            columns = maps.columns[side]
            wall = maps.is_nan(row)[columns] | (maps.X[row, columns] == 0)
            is_opposite = _overlap(wall, walls[opposite]) > _SAME_WALL
            if is_opposite and _overlap(wall, walls[side]) < _OTHER_WALL:
                text = f"is named {side}, but has the medial wall of the {opposite} hemisphere"
                problems.add(maps.sources[row][side], text)


def _overlap(
    a: Mask,
    b: Mask,
) -> float:
    """Return the share of the vertices in either that are in both."""
    return float((a & b).sum() / max((a | b).sum(), 1))
