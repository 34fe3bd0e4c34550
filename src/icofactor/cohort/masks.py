"""Which sites are used: masks from files, and what only the numbers of all subjects tell.

The numbers tell the medial wall, bad values, other units and exchanged hemispheres.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.problems import Journal, Problems, some
from icofactor.errors import CohortError, counted, literal
from icofactor.io.archive import array_header
from icofactor.io.freesurfer import read_annot
from icofactor.io.gifti import parse_gifti
from icofactor.io.guard import Unreadable, check_regular, open_file
from icofactor.io.hemispheres import side_of
from icofactor.io.json import read_text
from icofactor.io.maps import read_maps, reading
from icofactor.sphere.names import SIDES

Bools = NDArray[np.bool_]
_COMMENTS = 1000
_WALL = re.compile(r"(?<!no)medial.?wall", re.IGNORECASE)
_NOT_CORTEX = re.compile(
    r".*medial.?wall.*|unknown|\?+|none|background|corpuscallosum", re.IGNORECASE
)


def read_mask(given: Any, widths: dict[str, int]) -> Bools:
    """The mask over all hemispheres of a cohort, True where a vertex is used.

    Parameters
    ----------
    given : an array, a file, or a pair of files (left, right).
    widths : hemisphere → its number of sites, in the order of the columns.
    """
    total = sum(widths.values())
    parts_of = getattr(getattr(given, "data", None), "parts", None)
    if parts_of is not None:  # a nilearn SurfaceImage
        lacking = [side for side in widths if side not in parts_of]
        if lacking:
            raise CohortError("mask", f"has no {lacking[0]} hemisphere")
        given = np.concatenate([np.asarray(parts_of[side]).reshape(-1) for side in widths])
    if isinstance(given, str | os.PathLike):
        given = [given]
    if not (
        isinstance(given, Sequence)
        and given
        and all(isinstance(g, str | os.PathLike) for g in given)
    ):
        mask = np.asarray(given)
        if mask.shape != (total,) or not (mask.dtype == bool or np.isin(mask, (0, 1)).all()):
            raise CohortError(
                "mask",
                f"must contain True or False for each of {total} sites; found shape {mask.shape}",
            )
        return mask.astype(bool)
    parts: dict[str, Bools] = {}
    for number, name in enumerate(given):
        path = Path(name).expanduser()
        told = _read_file(path, widths)
        whole = told.pop(None, None)
        if whole is not None:
            told.update(_placed(path, whole, widths, number if len(given) == 2 else None))
        parts.update({str(side): part for side, part in told.items()})
    missing = [side for side in widths if side not in parts]
    if missing:
        raise CohortError("mask", f"names no file for the {missing[0]} hemisphere")
    files = literal(", ".join(map(str, given)))
    for side, n in widths.items():
        if len(parts[side]) != n:
            text = f"has {len(parts[side])} vertices in the {side} hemisphere; the maps have {n}"
            raise CohortError("mask", f"{files} {text}")
    mask = np.concatenate([parts[side] for side in widths])
    if not mask.any():
        raise CohortError("mask", f"{files} leaves no vertex")
    return mask


def _placed(
    path: Path, part: Bools, widths: dict[str, int], number: int | None
) -> dict[str | None, Bools]:
    """The hemisphere of a file that does not say so itself: its name tells, or its place in the
    pair.
    """
    side = side_of(path.name)[0]
    if side is not None:
        return {side: part}
    if number is not None:
        return {SIDES[number]: part}
    if len(part) == sum(widths.values()):
        ends = np.cumsum(list(widths.values()))[:-1]
        return dict(zip(widths, np.split(part, ends), strict=True))
    if len(widths) == 1:
        return {next(iter(widths)): part}
    if len(part) not in widths.values():
        raise CohortError(
            path,
            f"has {len(part)} values; the maps have {' + '.join(map(str, widths.values()))} sites",
        )
    raise CohortError(path, "is it left or right? Give the masks of both hemispheres, left first")


def _read_file(path: Path, widths: dict[str, int]) -> dict[str | None, Bools]:
    """Hemisphere, or None where the file does not say → mask."""
    with reading(path, "mask"):
        check_regular(path)
        if path.stat().st_size == 0:
            raise Unreadable("is empty")
        name = path.name.lower()
        if name.endswith(".annot"):
            return {None: _from_annot(path)}
        if name.endswith(".label"):
            return {None: _from_label(path, widths)}
        if name.endswith((".label.gii", ".label.gii.gz")):
            return _from_label_gifti(path)
        if name.endswith(".npy"):
            flags = _from_npy(path)
            if flags is not None:
                return {None: flags}
        maps = read_maps(path)
        if maps.n_maps != 1:
            raise Unreadable(f"contains {maps.n_maps} maps; a mask must be one map")
        return {
            side: np.nan_to_num(np.asarray(part[0], dtype=np.float64)) > 0
            for side, part in maps.parts.items()
        }


def _from_annot(path: Path) -> Bools:
    """Everything but the unknown and the medial wall of a FreeSurfer annotation."""
    numbers, names = read_annot(path)
    return np.isin(
        numbers, [number for number, name in names.items() if not _NOT_CORTEX.fullmatch(name)]
    )


def _from_npy(path: Path) -> Bools | None:
    """An array of True and False, as `np.save` writes it; None where it holds anything else."""
    with open_file(path) as file:
        shape, _, dtype = array_header(file)
        if dtype.kind != "b" or len(shape) != 1:
            return None
        if path.stat().st_size < file.tell() + shape[0]:
            raise Unreadable(f"is truncated: {shape[0]} values should follow the header")
        return np.fromfile(file, dtype=np.uint8, count=shape[0]) != 0


def _from_label(path: Path, widths: dict[str, int]) -> Bools:
    """The vertices a FreeSurfer label (e.g. lh.cortex.label) lists; all others, where it is that of
    the medial wall.
    """
    side = side_of(path.name)[0]
    n = widths.get(side or "", next(iter(widths.values())))
    text = read_text(path)
    if text.count("\n") > 2 * n + _COMMENTS:
        raise Unreadable(
            f"has {text.count(chr(10))} lines; the label of a hemisphere of {n} vertices has fewer"
        )
    body = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    try:
        n_listed, *vertices_listed = [int(line.split(None, 1)[0]) for line in body]
        vertices = np.array(vertices_listed, dtype=np.int64)
    except (ValueError, OverflowError):
        raise Unreadable(
            "is not a FreeSurfer label: after a comment and a count, a vertex number begins each line"
        ) from None
    if len(vertices) != n_listed:
        raise Unreadable(f"is truncated: {n_listed} vertices should be listed, {len(vertices)} are")
    if len(vertices) and not 0 <= vertices.min() <= vertices.max() < n:
        wrong = vertices.max() if vertices.min() >= 0 else vertices.min()
        raise Unreadable(f"lists vertex {wrong}; the maps have {n}, numbered from 0")
    mask = np.zeros(n, dtype=bool)
    mask[vertices] = True
    return ~mask if _WALL.search(path.name) else mask


def _from_label_gifti(path: Path) -> dict[str | None, Bools]:
    """Everything but the unknown and the medial wall of a GIFTI label file."""
    file = parse_gifti(path)
    keys = np.asarray(file.arrays[0].data).ravel()
    out = [key for key, name in file.labels.items() if _NOT_CORTEX.fullmatch(name)]
    return {file.side: ~np.isin(keys, out or [0])}


# Millimetres against micrometres are 1000, fractions against percent 100; scanners differ by less
# than this.
_OTHER_UNITS = 30
_SAME_WALL, _OTHER_WALL = 0.9, 0.5


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of X that were read well.

    Attributes
    ----------
    X : (n_subjects, n_sites).
    good : numbers of the rows to look at.
    columns : hemisphere → its columns.
    where : per row, hemisphere → the file it came from (and the map in it).
    faint : row and hemisphere of maps whose values are too small for float32.
    names : of the columns, where they are regions.
    holes : row → where it is not finite, packed; only rows that are not finite everywhere.
    """

    X: NDArray[np.float32]
    good: Sequence[int]
    columns: Mapping[str, slice]
    where: Sequence[Mapping[str, str]]
    faint: Collection[tuple[int, str]] = ()
    names: Sequence[str] = ()
    holes: dict[int, NDArray[np.uint8]] = field(default_factory=dict)

    def scan(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Per site, how many rows are not finite, and how many are that or zero: the one look for
        NaN.
        """
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

    def places(self, side: str, which: NDArray[np.int64]) -> str:
        """Columns of a hemisphere as text: 3 vertices (e.g. 17), or by their names."""
        if not self.names:
            return f"{len(which)} vertices (e.g. {which[0]})"
        first = self.columns[side].start
        return f"{counted(len(which), 'region')} ({some(self.names[first + i] for i in which)})"

    def values(self, row: int, side: str, mask: Bools) -> NDArray[np.float32]:
        """The finite values of a row in one hemisphere, where the mask is True."""
        columns = self.columns[side]
        keep = mask[columns]
        return self.X[row, columns][keep & ~self.bad(row)[columns] if row in self.holes else keep]


def check_values(
    rows: Rows, given: Bools | None, problems: Problems, journal: Journal, holes: bool = False
) -> Bools | None:
    """The mask: sites in use; None when all are. Whatever speaks against a file goes to `problems`.

    A site where every subject has NaN or zero is not in use, nor one that the given mask leaves
    out. NaN elsewhere is
    a bad file, unless `holes` are allowed. Values that are not finite become 0 at sites not in use.
    """
    n = len(rows.good)
    if n == 0:
        return given
    nan, empty = rows.scan()
    mask = empty < n
    if not mask.any():
        _report_flat(rows, mask, problems)
        return given
    lost = int((~mask if given is None else given & ~mask).sum())
    partly = int(((empty > n / 2) & mask).sum())
    if given is not None:
        mask &= given
        if not mask.any():
            problems.add("mask", "leaves no site at which any subject has a value")
    _report_exchanged(rows, empty, problems)
    if not holes:
        _report_nan(rows, mask, nan, problems)
    _report_flat(rows, mask, problems)
    _report_units(rows, mask, problems)
    if lost and not problems and not holes:  # who allows holes says what becomes of them
        are = "is" if lost == 1 else "are"
        out = [
            name
            for name, used in zip(
                rows.names, mask if given is None else mask | ~given, strict=False
            )
            if not used
        ]
        which = f" ({some(out)})" if out else ""
        journal.note(
            f"mask: {counted(lost, 'site')}{which} {are} NaN or zero in every subject and {are} left out"
        )
    if partly and n > 2 and not problems and not holes:
        journal.note(
            f"{partly} sites are NaN or zero in most subjects but not in all; they are used"
        )
    for row in rows.holes:
        rows.X[row, rows.bad(row) & ~mask] = 0
    return None if mask.all() else mask


def _report_nan(rows: Rows, mask: Bools, nan: NDArray[np.int64], problems: Problems) -> None:
    """NaN in a few subjects is their fault; where most have NaN, those who have none are the odd
    ones.
    """
    mostly = mask & (nan > len(rows.good) / 2)
    seldom = mask & (nan > 0) & ~mostly
    if not (mostly.any() or seldom.any()):
        return
    for row in rows.good:
        bad = rows.bad(row)
        for side, columns in rows.columns.items():
            wrong = np.flatnonzero((bad & seldom)[columns])
            if len(wrong):
                text = f"NaN or infinite at {rows.places(side, wrong)} where other subjects have values"
                how = (
                    "; leave out the subject with {exclude}, or these columns of the table"
                    if rows.names
                    else ""
                )
                problems.add(rows.where[row][side], text + how)
            odd = np.flatnonzero((~bad & mostly)[columns])
            if len(odd):
                text = f"values at {rows.places(side, odd)} where most subjects have NaN"
                problems.add(rows.where[row][side], text + "; leave them out with {mask}")


def _report_flat(rows: Rows, mask: Bools, problems: Problems) -> None:
    used = mask if mask.any() else ~mask
    for row in rows.good:
        for side in rows.columns:
            values = rows.values(row, side, used)
            if (row, side) in rows.faint:
                text = "has values that are too small to distinguish from zero in single precision (below 1e-38)"
                problems.add(rows.where[row][side], f"{text}; store the maps in another unit")
            elif len(values) == 0 or values.min() == values.max():
                same = f"{values[0]:g}" if len(values) else "NaN, infinite or beyond 3e38"
                problems.add(
                    rows.where[row][side], f"is {same} at every vertex; it contains no map"
                )


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
                text = f"has other units? Its median is {middle:.4g}; the median of other subjects is about {usual:.4g}"
                problems.add(rows.where[row][side], text)


def _report_exchanged(rows: Rows, empty: NDArray[np.int64], problems: Problems) -> None:
    """A file whose medial wall is that of the other hemisphere has the wrong name."""
    if len(rows.columns) != 2 or len(rows.good) < 3:
        return
    usual = {side: empty[columns] > len(rows.good) / 2 for side, columns in rows.columns.items()}
    left, right = usual["left"], usual["right"]
    if (
        len(left) != len(right)
        or not left.any()
        or not right.any()
        or _alike(left, right) > _OTHER_WALL
    ):
        return
    for row in rows.good:
        for side, other in (("left", "right"), ("right", "left")):
            columns = rows.columns[side]
            wall = rows.bad(row)[columns] | (rows.X[row, columns] == 0)
            if _alike(wall, usual[other]) > _SAME_WALL and _alike(wall, usual[side]) < _OTHER_WALL:
                text = f"is named {side}, but it has the medial wall of the {other} hemisphere"
                problems.add(rows.where[row][side], text)


def _alike(one: Bools, other: Bools) -> float:
    """Share of the vertices in either that are in both."""
    return float((one & other).sum() / max((one | other).sum(), 1))
