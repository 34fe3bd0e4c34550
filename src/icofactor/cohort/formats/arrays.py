"""NumPy's npy and npz: subjects × sites, with what an npz brings along."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.cohort.formats.common import Maps
from icofactor.cohort.names import side_of
from icofactor.reading.archives import Header, archive_members, array_header, load_member
from icofactor.reading.limits import Unreadable, volume
from icofactor.sphere import n_nodes

SUBJECT_KEYS = ("subjects", "subject", "participant_id", "subject_id", "ids")
_MASK_KEYS = ("mask", "cortex")
_MESHES = {k * n for n in (32492, *(n_nodes(level) for level in range(3, 8))) for k in (1, 2)}


def read_npy(path: Path) -> Maps:
    """One array, mapped and not loaded: (n_maps, n_sites), or (n_sites,) for one map."""
    stored = path.stat().st_size
    with path.open("rb") as file:
        shape, fortran, dtype = array_header(file)
        offset = file.tell()
    size = volume(shape) * dtype.itemsize
    _check_maps(shape, dtype)
    if stored < offset + size:
        raise Unreadable(f"is truncated: {size} bytes should follow the header, {stored - offset} do")
    data = np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")
    return Maps({None: np.atleast_2d(data)}, "npy")


def read_npz(path: Path, measure: str | None = None) -> Maps:
    """The array of maps of an npz archive, and what goes with it.

    Where: `measure`, else the only array of two dimensions (or the only pair of a left and a right one) holds the
    maps; "subjects" their names, a boolean "mask" or "cortex" the sites in use; other arrays with one value per map
    are columns of the participants.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive_members(archive, path.stat().st_size)
        headers = {}
        for name, info in members.items():
            with archive.open(info) as file:
                headers[name] = array_header(file)
        keys = _choose(headers, measure)
        parts = {side: np.atleast_2d(load_member(archive, members[key])) for side, key in keys.items()}
        if len({len(part) for part in parts.values()}) > 1:
            raise Unreadable(f"has other numbers of maps in {' and '.join(keys.values())}")
        n_maps, n_sites = len(next(iter(parts.values()))), sum(part.shape[1] for part in parts.values())
        rest = {name: shape for name, (shape, _, _) in headers.items() if name not in keys.values()}
        columns = {name: load_member(archive, members[name]) for name, shape in rest.items() if shape == (n_maps,)}
        masks = [name for name in _MASK_KEYS if rest.get(name) == (n_sites,) and headers[name][2].kind == "b"]
        mask = load_member(archive, members[masks[0]]) if masks else None
    names = next((columns.pop(key) for key in SUBJECT_KEYS if key in columns), np.empty(0))
    return Maps(parts, "npz", tuple(_text(name) for name in names), columns, mask, ", ".join(keys.values()))


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _check_maps(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "fiu" or len(shape) not in (1, 2) or volume(shape) == 0:
        raise Unreadable(f"holds an array of {dtype} of shape {shape}; numbers, subjects × sites, are read")
    if len(shape) == 2 and shape[0] in _MESHES and shape[1] not in _MESHES:
        raise Unreadable(f"has shape {shape}, sites × subjects as it seems; transpose it to subjects × sites")


def _choose(headers: dict[str, Header], measure: str | None) -> dict[str | None, str]:
    """Hemisphere (or None) → name of the array that holds its maps."""
    groups: dict[str, dict[str | None, str]] = {}
    for name, (shape, _, dtype) in headers.items():
        if dtype.kind in "fiu" and (len(shape) == 2 or len(headers) == 1 or name == measure):
            side, base = side_of(name)
            groups.setdefault(base, {})[side] = name
    if measure is not None and measure in headers:
        chosen: dict[str | None, str] = {side_of(measure)[0]: measure}
    elif measure is not None and measure in groups:
        chosen = groups[measure]
    elif len(groups) == 1:
        chosen = next(iter(groups.values()))
    else:
        if not headers:
            raise Unreadable("holds no arrays")
        there = ", ".join(f"{name} {shape}" for name, (shape, _, _) in headers.items())
        ask = f"none is called {measure!r}" if measure is not None else "name the one to read with measure="
        raise Unreadable(f"holds {there}; {ask}")
    if len(chosen) > 1 and None in chosen:
        raise Unreadable(f"holds {' and '.join(chosen.values())}; name the one to read with measure=")
    for name in chosen.values():
        _check_maps(headers[name][0], headers[name][2])
    return {side: chosen[side] for side in (None, "left", "right") if side in chosen}
