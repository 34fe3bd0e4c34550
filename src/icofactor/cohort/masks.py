"""Masks from files: which vertices are cortex, by an annotation, a label, or a map that is zero elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import CohortError, literal
from icofactor.io.archive import array_header
from icofactor.io.filenames import side_of
from icofactor.io.gifti import parse_gifti
from icofactor.io.guard import Unreadable, check_regular
from icofactor.io.json import read_text
from icofactor.io.labels import read_annot
from icofactor.io.maps import read_maps, reading
from icofactor.sphere.names import SIDES

Bools = NDArray[np.bool_]
_WALL = re.compile(r"(?<!no)medial.?wall", re.IGNORECASE)
_NOT_CORTEX = re.compile(r".*medial.?wall.*|unknown|\?+|none|background|corpuscallosum", re.IGNORECASE)


def read_mask(given: Any, widths: dict[str, int]) -> Bools:
    """The mask over all hemispheres of a cohort, True where a vertex is used.

    Parameters
    ----------
    given : an array, a file, or a pair of files (left, right).
    widths : hemisphere → its number of sites, in the order of the columns.
    """
    total = sum(widths.values())
    if isinstance(given, str | os.PathLike):
        given = [given]
    if not (isinstance(given, Sequence) and given and all(isinstance(g, str | os.PathLike) for g in given)):
        mask = np.asarray(given)
        if mask.shape != (total,) or not (mask.dtype == bool or np.isin(mask, (0, 1)).all()):
            raise CohortError("mask", f"must hold True or False for each of {total} sites; found shape {mask.shape}")
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


def _placed(path: Path, part: Bools, widths: dict[str, int], number: int | None) -> dict[str | None, Bools]:
    """The hemisphere of a file that does not say so itself: its name tells, or its place in the pair."""
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
    raise CohortError(path, "is it left or right? Give the mask as (left file, right file)")


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
            raise Unreadable(f"holds {maps.n_maps} maps; a mask is one")
        return {side: np.nan_to_num(np.asarray(part[0], dtype=np.float64)) > 0 for side, part in maps.parts.items()}


def _from_annot(path: Path) -> Bools:
    """Everything but the unknown and the medial wall of a FreeSurfer annotation."""
    numbers, names = read_annot(path)
    return np.isin(numbers, [number for number, name in names.items() if not _NOT_CORTEX.fullmatch(name)])


def _from_npy(path: Path) -> Bools | None:
    """An array of True and False, as `np.save` writes it; None where it holds anything else."""
    with path.open("rb") as file:
        shape, _, dtype = array_header(file)
        if dtype.kind != "b" or len(shape) != 1:
            return None
        if path.stat().st_size < file.tell() + shape[0]:
            raise Unreadable(f"is truncated: {shape[0]} values should follow the header")
        return np.fromfile(file, dtype=np.uint8, count=shape[0]) != 0


def _from_label(path: Path, widths: dict[str, int]) -> Bools:
    """The vertices a FreeSurfer label (e.g. lh.cortex.label) lists; all others, where it is that of the medial wall."""
    body = [line for line in read_text(path).splitlines() if line.strip() and not line.startswith("#")]
    try:
        n_listed, *vertices_listed = [int(line.split()[0]) for line in body]
        vertices = np.array(vertices_listed, dtype=np.int64)
    except (ValueError, OverflowError):
        raise Unreadable(
            "is not a FreeSurfer label: after a comment and a count, a vertex number begins each line"
        ) from None
    if len(vertices) != n_listed:
        raise Unreadable(f"is truncated: {n_listed} vertices should be listed, {len(vertices)} are")
    side = side_of(path.name)[0]
    n = widths.get(side or "", next(iter(widths.values())))
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
