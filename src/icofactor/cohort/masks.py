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
from icofactor.io.freesurfer import read_annot
from icofactor.io.gifti import parse_gifti
from icofactor.io.guard import Unreadable, check_regular
from icofactor.io.hemispheres import side_of
from icofactor.io.json import read_text
from icofactor.io.maps import read_maps, reading
from icofactor.sphere.names import SIDES

Mask = NDArray[np.bool_]
_WALL = re.compile(r"(?<!no)medial.?wall", re.IGNORECASE)
_NOT_CORTEX = re.compile(
    r".*medial.?wall.*|unknown|\?+|none|background|corpuscallosum",
    re.IGNORECASE,
)


def is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


def read_mask(
    mask: Any,
    widths: Mapping[str, int],
) -> Mask:
    """Return the mask over all hemispheres of a cohort, True where a vertex is used.

    Parameters
    ----------
    mask : an array, a nilearn SurfaceImage, a file, or a pair of files (left, right).
    widths : hemisphere → its number of sites, in the order of the columns.
    """
    files = [mask] if is_path(mask) else mask
    if isinstance(files, Sequence) and files and all(map(is_path, files)):
        return _read_files(files, widths)
    halves = getattr(getattr(mask, "data", None), "parts", None)
    if halves is not None:
        mask = np.concatenate(
            [np.asarray(halves[side]).reshape(-1) for side in widths if side in halves]
        )
    # Other numbers than 0 and 1 are more likely a map than a mask.
    flags = np.asarray(mask)
    n_sites = sum(widths.values())
    if flags.shape != (n_sites,) or not (flags.dtype == bool or np.isin(flags, (0, 1)).all()):
        text = f"must contain True or False for each of {n_sites} sites"
        raise CohortError("mask", f"{text}; found shape {flags.shape}")
    return flags.astype(bool)


def _join(
    masks: Mapping[str | None, Mask],
    widths: Mapping[str, int],
) -> Mask:
    """Return the masks of the hemispheres as one; raise an error unless they fit."""
    sizes = {side: len(masks[side]) if side in masks else 0 for side in widths}
    problem = ""
    if sizes != dict(widths):
        listed = ", ".join(f"{n} vertices ({side})" for side, n in widths.items())
        problem = f"has {' + '.join(map(str, sizes.values()))} vertices; the maps have {listed}"
    elif not any(masks[side].any() for side in widths):
        problem = "leaves no vertex"
    if problem:
        raise CohortError("mask", problem)
    return np.concatenate([masks[side] for side in widths])


def _read_files(
    files: Sequence[Any],
    widths: Mapping[str, int],
) -> Mask:
    """Return the mask in one file, or a pair of files."""
    masks: dict[str | None, Mask] = {}
    # A file of both hemispheres has left first.
    ends = np.cumsum(list(widths.values()))
    for number, file in enumerate(files):
        path = Path(file).expanduser()
        # Of a pair whose names do not say it, the first is left.
        named = side_of(path.name)[0] or (SIDES[number] if len(files) == 2 else None)
        for side, flags in _read_file(path, widths).items():
            if side or named:
                masks[side or named] = flags
            elif len(flags) == ends[-1]:
                masks |= dict(zip(widths, np.split(flags, ends[:-1]), strict=True))
            else:
                sizes = " + ".join(map(str, widths.values()))
                text = f"has {len(flags)} values; the maps have {sizes} sites"
                raise CohortError(path, f"{text}. Of hemispheres, give both masks, left first")
    return _join(masks, widths)


def _read_file(
    path: Path,
    widths: Mapping[str, int],
) -> dict[str | None, Mask]:
    """Return hemisphere, or None where the file does not say → mask."""
    with reading(path, "mask"):
        check_regular(path)
        name = path.name.lower()
        if name.endswith(".annot"):
            labels, names = read_annot(path)
            # Vertices without a known label are not cortex either.
            return {None: ~np.isin(labels, _outside_cortex(names)) & np.isin(labels, list(names))}
        if name.endswith(".label"):
            return {None: _from_label(path, widths)}
        if name.endswith((".label.gii", ".label.gii.gz")):
            gifti = parse_gifti(path)
            keys = np.asarray(gifti.arrays[0].data).ravel()
            # Without names, label 0 is what is not cortex.
            return {gifti.side: ~np.isin(keys, _outside_cortex(gifti.labels) or [0])}
        if name.endswith(".npy"):
            # Mapped, so that a header that promises too much takes no memory.
            flags = np.load(path, mmap_mode="r", allow_pickle=False)
            if flags.dtype == bool and flags.ndim == 1:
                return {None: flags}
        maps = read_maps(path)
        # A file with several maps is data, not a mask.
        if maps.n_maps != 1:
            raise Unreadable(f"contains {maps.n_maps} maps; a mask must be one map")
        return {
            side: np.nan_to_num(np.asarray(half[0], dtype=np.float64)) > 0
            for side, half in maps.parts.items()
        }


def _outside_cortex(names: Mapping[int, str]) -> list[int]:
    """Return the labels of the medial wall and of what is unknown."""
    return [label for label, name in names.items() if _NOT_CORTEX.fullmatch(name)]


def _from_label(
    path: Path,
    widths: Mapping[str, int],
) -> Mask:
    """Return the vertices in a FreeSurfer label, or all others for the medial wall's label."""
    n = widths.get(side_of(path.name)[0] or "", next(iter(widths.values())))
    lines = [line for line in read_text(path).splitlines() if line.strip() and line[0] != "#"]
    try:
        n_listed, *vertices = [int(line.split(None, 1)[0]) for line in lines]
        mask = np.zeros(n, dtype=bool)
        mask[np.array(vertices, dtype=np.int64)] = True
    except (ValueError, IndexError, OverflowError):
        n_listed = -1
        vertices = []
    if len(vertices) != n_listed or min(vertices, default=0) < 0:
        text = f"is not a whole FreeSurfer label of {n} vertices"
        raise Unreadable(f"{text}: a comment, their count, and one line for each")
    return ~mask if _WALL.search(path.name) else mask
