"""Maps and labels from files of every format: which reader a file needs, and its errors with the
file's name.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.errors import CohortError, literal
from icofactor.io.archive import Header, array_header, load_member, open_archive
from icofactor.io.cifti import N_FS_LR, read_cifti, read_dlabel, read_pscalar
from icofactor.io.freesurfer import (
    MORPH_MAGIC,
    SURFACE_MAGICS,
    Labels,
    read_annot,
    read_mgh,
    read_morph,
)
from icofactor.io.gifti import LABELS, parse_gifti, read_gifti
from icofactor.io.guard import Unreadable, check_regular, map_file, naming, open_file, volume
from icofactor.io.hemispheres import side_of
from icofactor.io.matrices import read_mat, read_nifti, read_text_maps
from icofactor.io.types import Maps

SUBJECT_KEYS = ("subjects", "subject", "participant_id", "subject_id", "ids")
_MASK_KEYS = ("mask", "cortex")
_MESHES = {k * n for n in (N_FS_LR, *(10 * 4**level + 2 for level in range(3, 8))) for k in (1, 2)}


def read_npy(path: Path) -> Maps:
    """One array, mapped and not loaded: (n_maps, n_sites), or (n_sites,) for one map."""
    stored = path.stat().st_size
    with open_file(path) as file:
        shape, fortran, dtype = array_header(file)
        offset = file.tell()
    size = volume(shape) * dtype.itemsize
    _check_maps(shape, dtype)
    if stored < offset + size:
        raise Unreadable(
            f"is truncated: {size} bytes should follow the header, {stored - offset} do"
        )
    data = map_file(path, dtype, offset, shape, "F" if fortran else "C")
    return Maps({None: np.atleast_2d(data)}, "npy")


def read_npz(path: Path, measure: str | None = None) -> Maps:
    """The array of maps of an npz archive, and what goes with it.

    Where: `measure`, else the only array of two dimensions (or the only pair of a left and a right
        one) holds the
    maps; "subjects" their names, a boolean "mask" or "cortex" the sites in use; other arrays with
    one value per map
    are columns of the participants.
    """
    with open_archive(path) as (archive, members):
        headers = {}
        for name, info in members.items():
            with archive.open(info) as file:
                headers[name] = array_header(file)
        keys = _choose(headers, measure)
        parts = {
            side: np.atleast_2d(load_member(archive, members[key])) for side, key in keys.items()
        }
        if len({len(part) for part in parts.values()}) > 1:
            raise Unreadable(f"has different numbers of maps in {' and '.join(keys.values())}")
        n_maps, n_sites = (
            len(next(iter(parts.values()))),
            sum(part.shape[1] for part in parts.values()),
        )
        rest = {name: shape for name, (shape, _, _) in headers.items() if name not in keys.values()}
        columns = {
            name: load_member(archive, members[name])
            for name, shape in rest.items()
            if shape == (n_maps,)
        }
        named = [name for name in ("regions", "region", "parcels") if rest.get(name) == (n_sites,)]
        regions = load_member(archive, members[named[0]]) if named else np.empty(0)
        columns = {name: column for name, column in columns.items() if name not in named}
        masks = [
            name
            for name in _MASK_KEYS
            if rest.get(name) == (n_sites,) and headers[name][2].kind == "b"
        ]
        mask = load_member(archive, members[masks[0]]) if masks else None
    names = next((columns.pop(key) for key in SUBJECT_KEYS if key in columns), np.empty(0))
    text = lambda listed: tuple(_text(name) for name in listed)
    own = text(regions) if regions.dtype.kind in "US" else ()
    return Maps(parts, "npz", text(names), columns, mask, ", ".join(keys.values()), regions=own)


def _text(name: Any) -> str:
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def _check_maps(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if dtype.kind not in "fiu" or len(shape) not in (1, 2) or volume(shape) == 0:
        raise Unreadable(
            f"contains an array of {dtype} of shape {shape}; numbers, subjects × sites, are read"
        )
    if len(shape) == 2 and shape[0] in _MESHES and shape[1] not in _MESHES:
        raise Unreadable(
            f"has shape {shape}, apparently sites × subjects; transpose it to subjects × sites"
        )


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
            raise Unreadable("contains no arrays")
        there = literal(", ".join(f"{name} {shape}" for name, (shape, _, _) in headers.items()))
        ask = f"none is called {literal(repr(measure))}; " if measure is not None else ""
        raise Unreadable(f"contains {there}; {ask}name the one to read with {{measure}}")
    if len(chosen) > 1 and None in chosen:
        both = literal(" and ".join(chosen.values()))
        raise Unreadable(f"contains {both}; name the one to read with {{measure}}")
    for name in chosen.values():
        _check_maps(headers[name][0], headers[name][2])
    return {side: chosen[side] for side in (None, "left", "right") if side in chosen}


MAP_ENDINGS = (
    ".dscalar.nii",
    ".dtseries.nii",
    ".func.gii",
    ".shape.gii",
    ".func.gii.gz",
    ".shape.gii.gz",
    ".mgh",
    ".mgz",
    ".mgh.gz",
    ".npy",
    ".npz",
)
_NO_MAPS = (".surf.gii", ".label.gii", ".annot", ".label", ".dlabel.nii", ".dconn.nii")
_OTHER_ENDINGS = (
    ".pscalar.nii",
    ".gii",
    ".gii.gz",
    ".nii",
    ".nii.gz",
    ".curv",
    ".txt",
    ".csv",
    ".tsv",
    ".mat",
)
_ACCEPTED = (
    "MGH/MGZ, FreeSurfer morph, GIFTI (.gii), CIFTI-2 (.dscalar.nii, .dtseries.nii, .pscalar.nii), NIfTI of "
    "mri_surf2surf, .npy, .npz, .mat, and numbers in .txt and .csv are read"
)
# what lies beside maps in folders has these endings too: a hemisphere in the name tells them apart
_BY_SIDE = re.compile(r".*[._](left|right)(_\w+)?\.txt|[lr]h\..*\.nii(\.gz)?")


def is_mesh_size(*sizes: int) -> bool:
    """Whether one of these is the number of vertices of a known mesh, in one hemisphere or both."""
    return not _MESHES.isdisjoint(sizes)


def is_map(path: Path) -> bool:
    """Whether a file's name is that of maps; FreeSurfer's morph files, which have no ending, do not
    count.
    """
    return (
        path.name.endswith(MAP_ENDINGS)
        or _BY_SIDE.fullmatch(path.name) is not None
        or (path.name.endswith(".gii") and not path.name.endswith(_NO_MAPS))
    )


def without_ending(name: str) -> str:
    """A file's name without what names its format."""
    for ending in sorted((*MAP_ENDINGS, *_OTHER_ENDINGS), key=len, reverse=True):
        if name.lower().endswith(ending):
            return name[: -len(ending)]
    return name


def reading(path: Path, what: str = "file of maps") -> AbstractContextManager[None]:
    """Whatever goes wrong inside becomes a CohortError that names the file."""
    return naming(path, what, CohortError)


def read_maps(path: str | Path, measure: str | None = None) -> Maps:
    """The maps of one file of any of the formats.

    Parameters
    ----------
    path : the file.
    measure : which array of an npz archive to read, where there are several.

    Raises
    ------
    CohortError, with the file's name, whatever is wrong with it.
    """
    path = Path(path)
    with reading(path):
        check_regular(path)
        if path.stat().st_size == 0:
            raise Unreadable("is empty")
        name = path.name.lower()
        if name.endswith((".gii", ".gii.gz")):
            return read_gifti(path)
        if name.endswith(".nii.gz") or (name.endswith(".nii") and _is_nifti1(path)):
            return read_nifti(path, _MESHES)
        if name.endswith(".pscalar.nii"):
            return read_pscalar(path)
        if name.endswith(".nii"):
            return read_cifti(path)
        if name.endswith((".txt", ".csv", ".tsv")):
            maps = read_text_maps(path)
            if maps.parts[None].shape[1] == 2 and is_mesh_size(len(maps.parts[None])):
                raise Unreadable("has two numbers on each line; write decimal points, not commas")
            _check_maps(maps.parts[None].shape, maps.parts[None].dtype)
            return maps
        if name.endswith(".mat"):
            key, values = read_mat(path, measure)
            values = values.T if values.shape[1] == 1 else values
            _check_maps(values.shape, values.dtype)
            return Maps({None: values}, "MATLAB", array=key)
        if name.endswith((".mgh", ".mgz", ".mgh.gz")):
            return read_mgh(path)
        if name.endswith(".npy"):
            return read_npy(path)
        if name.endswith(".npz"):
            return read_npz(path, measure)
        return _read_unnamed(path)


def _is_nifti1(path: Path) -> bool:
    with open_file(path) as file:
        return file.read(4) in (b"\x5c\x01\x00\x00", b"\x00\x00\x01\x5c")


def _read_unnamed(path: Path) -> Maps:
    """FreeSurfer's own files have no ending; their first bytes tell."""
    with open_file(path) as file:
        magic = file.read(3)
    if magic == MORPH_MAGIC:
        return read_morph(path)
    if magic in SURFACE_MAGICS:
        raise Unreadable("is a surface (points and triangles), not a map")
    if path.name.endswith(_NO_MAPS):
        raise Unreadable(f"is not a map file; {_ACCEPTED}")
    if path.name.endswith(".stats"):
        raise Unreadable(
            "contains statistics of one subject; FreeSurfer's aparcstats2table makes tables of them to read"
        )
    if path.name.lower().endswith((".xlsx", ".xls", ".ods")):
        raise Unreadable("is a spreadsheet; save it as CSV")
    raise Unreadable(f"has an unknown format; {_ACCEPTED}")


def read_labels(path: Path) -> dict[str | None, Labels]:
    """Hemisphere, or None where the file does not say → labels of its vertices.

    Where: .annot, .label.gii or .dlabel.nii tells the format.
    """
    check_regular(path)
    if path.stat().st_size == 0:
        raise Unreadable("is empty")
    name = path.name.lower()
    if name.endswith(".annot"):
        return {None: read_annot(path)}
    if name.endswith((".gii", ".gii.gz")):
        file = parse_gifti(path)
        first = file.arrays[0]
        if first.data.ndim != 1 or (first.intent != LABELS and not file.labels):
            raise Unreadable(
                "contains no labels; a .label.gii file has one key per vertex and a table of names"
            )
        if first.data.dtype.kind == "f":
            raise Unreadable("contains labels that are not whole numbers")
        return {file.side: (first.data.astype(np.int64), file.labels)}
    if name.endswith(".dlabel.nii"):
        return dict(read_dlabel(path).items())
    raise Unreadable("is not a file of labels; .annot, .label.gii and .dlabel.nii are read")
