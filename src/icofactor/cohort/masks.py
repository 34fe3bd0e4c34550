"""Masks: which vertices a mask file, an array or an image leaves in use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import CohortError
from icofactor.io.archive import array_header
from icofactor.io.freesurfer import read_annot
from icofactor.io.gifti import parse_gifti
from icofactor.io.guard import Unreadable, check_regular, open_file
from icofactor.io.hemispheres import side_of
from icofactor.io.json import read_text
from icofactor.io.maps import read_maps, reading
from icofactor.sphere.names import SIDES

Mask = NDArray[np.bool_]
# A label file may have so many lines of comments.
_MAX_COMMENTS = 1000
_WALL = re.compile(r"(?<!no)medial.?wall", re.IGNORECASE)
_NOT_CORTEX = re.compile(
    r".*medial.?wall.*|unknown|\?+|none|background|corpuscallosum", re.IGNORECASE
)


def is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def read_mask(mask: Any, widths: Mapping[str, int]) -> Mask:
    """Return the mask over all hemispheres of a cohort, True where a vertex is used.

    Parameters
    ----------
    mask : an array, a nilearn SurfaceImage, a file, or a pair of files (left, right).
    widths : hemisphere → its number of sites, in the order of the columns.
    """
    if is_path(mask):
        mask = [mask]
    if isinstance(mask, Sequence) and mask and all(map(is_path, mask)):
        return _read_files(mask, widths)
    halves = getattr(getattr(mask, "data", None), "parts", None)
    if halves is not None:
        _check_sides(halves, widths)
        mask = np.concatenate([np.asarray(halves[side]).reshape(-1) for side in widths])
    flags = np.asarray(mask)
    n_sites = sum(widths.values())
    if flags.shape != (n_sites,) or not (flags.dtype == bool or np.isin(flags, (0, 1)).all()):
        text = f"must contain True or False for each of {n_sites} sites"
        raise CohortError("mask", f"{text}; found shape {flags.shape}")
    return flags.astype(bool)


def _check_sides(masks: Mapping[Any, Any], widths: Mapping[str, int]) -> None:
    """Raise an error if the mask of a hemisphere is missing."""
    missing = [side for side in widths if side not in masks]
    if missing:
        raise CohortError("mask", f"has no mask of the {missing[0]} hemisphere")


def _read_files(files: Sequence[Any], widths: Mapping[str, int]) -> Mask:
    """Return the mask in one file, or a pair of files."""
    masks: dict[str | None, Mask] = {}
    for number, file in enumerate(files):
        path = Path(file).expanduser()
        halves = _read_file(path, widths)
        unsided = halves.pop(None, None)
        if unsided is not None:
            halves |= _by_hemisphere(path, unsided, widths, number if len(files) == 2 else None)
        masks |= halves
    _check_sides(masks, widths)
    names = ", ".join(map(str, files))
    for side, n in widths.items():
        if len(masks[side]) != n:
            text = f"{names} has {len(masks[side])} vertices in the {side} hemisphere"
            raise CohortError("mask", f"{text}; the maps have {n}")
    mask = np.concatenate([masks[side] for side in widths])
    if not mask.any():
        raise CohortError("mask", f"{names} leaves no vertex")
    return mask


def _by_hemisphere(
    path: Path, mask: Mask, widths: Mapping[str, int], number: int | None
) -> dict[str | None, Mask]:
    """Return the hemisphere of a mask by its file name, its position in a pair, or its size."""
    side = side_of(path.name)[0]
    # Of a pair, the first is left.
    if side is None and number is not None:
        side = SIDES[number]
    if side is None and len(widths) == 1:
        side = next(iter(widths))
    if side is not None:
        return {side: mask}
    if len(mask) == sum(widths.values()):
        ends = np.cumsum(list(widths.values()))[:-1]
        return dict(zip(widths, np.split(mask, ends), strict=True))
    if len(mask) in widths.values():
        raise CohortError(path, "is it left or right? Give the masks of both, left first")
    sizes = " + ".join(map(str, widths.values()))
    raise CohortError(path, f"has {len(mask)} values; the maps have {sizes} sites")


def _read_file(path: Path, widths: Mapping[str, int]) -> dict[str | None, Mask]:
    """Return hemisphere, or None where the file does not say → mask."""
    with reading(path, "mask"):
        check_regular(path)
        name = path.name.lower()
        if name.endswith(".annot"):
            labels, names = read_annot(path)
            return {None: ~np.isin(labels, _outside_cortex(names)) & np.isin(labels, list(names))}
        if name.endswith(".label"):
            return {None: _from_label(path, widths)}
        if name.endswith((".label.gii", ".label.gii.gz")):
            gifti = parse_gifti(path)
            keys = np.asarray(gifti.arrays[0].data).ravel()
            # Without names, label 0 is what is not cortex.
            return {gifti.side: ~np.isin(keys, _outside_cortex(gifti.labels) or [0])}
        if name.endswith(".npy"):
            flags = _from_npy(path)
            if flags is not None:
                return {None: flags}
        maps = read_maps(path)
        if maps.n_maps != 1:
            raise Unreadable(f"contains {maps.n_maps} maps; a mask must be one map")
        return {
            side: np.nan_to_num(np.asarray(half[0], dtype=np.float64)) > 0
            for side, half in maps.parts.items()
        }


def _outside_cortex(names: Mapping[int, str]) -> list[int]:
    """Return the labels of the medial wall and of what is unknown."""
    return [label for label, name in names.items() if _NOT_CORTEX.fullmatch(name)]


def _from_npy(path: Path) -> Mask | None:
    """Return a boolean array as `np.save` writes it; None if the file holds anything else."""
    with open_file(path) as file:
        shape, _, dtype = array_header(file)
        if dtype.kind != "b" or len(shape) != 1:
            return None
        if path.stat().st_size < file.tell() + shape[0]:
            raise Unreadable(f"is truncated: {shape[0]} values should follow the header")
        return np.fromfile(file, dtype=np.uint8, count=shape[0]) != 0


def _from_label(path: Path, widths: Mapping[str, int]) -> Mask:
    """Return the vertices in a FreeSurfer label, or all others for the medial wall's label."""
    n = widths.get(side_of(path.name)[0] or "", next(iter(widths.values())))
    text = read_text(path)
    n_lines = text.count("\n")
    if n_lines > 2 * n + _MAX_COMMENTS:
        raise Unreadable(f"has {n_lines} lines; the label of {n} vertices has fewer")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    try:
        n_listed, *numbers = [int(line.split(None, 1)[0]) for line in lines]
        vertices = np.array(numbers, dtype=np.int64)
    except (ValueError, OverflowError):
        text = "a vertex number must begin each line after a comment and a count"
        raise Unreadable(f"is not a FreeSurfer label: {text}") from None
    outside = vertices[(vertices < 0) | (vertices >= n)]
    problem = ""
    if len(vertices) != n_listed:
        problem = f"is truncated: {n_listed} vertices should be listed, {len(vertices)} are"
    elif len(outside):
        problem = f"lists vertex {outside[0]}; the maps have {n}, numbered from 0"
    if problem:
        raise Unreadable(problem)
    mask = np.zeros(n, dtype=bool)
    mask[vertices] = True
    return ~mask if _WALL.search(path.name) else mask
