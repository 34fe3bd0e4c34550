"""Maps and labels from files of every format, and errors with the file's name."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.errors import (
    CohortError,
    escaped,
    shown,
)
from icofactor.io.archive import (
    Header,
    array_header,
    load_member,
    open_archive,
)
from icofactor.io.cifti import (
    N_FS_LR,
    read_cifti,
    read_dlabel,
    read_pscalar,
)
from icofactor.io.freesurfer import (
    MORPH_MAGIC,
    Labels,
    read_annot,
    read_mgh,
    read_morph,
)
from icofactor.io.gifti import (
    LABELS,
    parse_gifti,
    read_gifti,
)
from icofactor.io.guard import (
    Unreadable,
    check_regular,
    naming,
    open_file,
    read_numbers,
    volume,
)
from icofactor.io.hemispheres import side_of
from icofactor.io.matrices import (
    read_mat,
    read_nifti,
    read_text_maps,
)
from icofactor.io.types import Maps

# Names of the arrays of an npz that go with the maps.
SUBJECT_KEYS = ("subjects", "subject", "participant_id", "subject_id", "ids")
_MASK_KEYS = ("mask", "cortex")
_REGION_KEYS = ("regions", "region", "parcels")
# Vertices of fs_LR 32k and of the icospheres of fsaverage3 to 7, in one hemisphere.
_ONE_SIDE = (N_FS_LR, *(10 * 4**level + 2 for level in range(3, 8)))
_MESHES = {*_ONE_SIDE, *(2 * n for n in _ONE_SIDE)}

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
_ADVICE = (
    "is not a map in a known format: MGH, FreeSurfer morph, GIFTI, CIFTI-2, NIfTI of "
    "mri_surf2surf, .npy, .npz, .mat, and numbers in .txt and .csv are read. Save spreadsheets as CSV; make a "
    "table of .stats files with aparcstats2table"
)
# Files beside maps have these endings, too; a hemisphere in the name tells them apart.
_BY_SIDE = re.compile(r".*[._](left|right)(_\w+)?\.txt|[lr]h\..*\.nii(\.gz)?")


def is_mesh_size(*sizes: int) -> bool:
    """Return whether any of these is the number of vertices of a mesh, of one side or both."""
    return not _MESHES.isdisjoint(sizes)


def is_map(path: Path) -> bool:
    """Return whether a file's name is that of maps; morph files without ending do not count."""
    return (
        path.name.endswith(MAP_ENDINGS)
        or _BY_SIDE.fullmatch(path.name) is not None
        or (path.name.endswith(".gii") and not path.name.endswith(_NO_MAPS))
    )


def without_ending(name: str) -> str:
    """Return a file's name without what names its format."""
    for ending in sorted((*MAP_ENDINGS, *_OTHER_ENDINGS), key=len, reverse=True):
        if name.lower().endswith(ending):
            return name[: -len(ending)]
    return name


def reading(
    path: Path,
    kind: str = "file of maps",
) -> AbstractContextManager[None]:
    """Turn whatever goes wrong inside into a CohortError that names the file."""
    return naming(path, kind, CohortError)


# ---------------------------------------------------------------------- NumPy


def read_npy(path: Path) -> Maps:
    """Read one array, mapped: (n_maps, n_sites), or (n_sites,) for one map."""
    with open_file(path) as file:
        shape, is_fortran, dtype = array_header(file)
        offset = file.tell()
    _check_maps(shape, dtype)
    # `read_numbers` takes the fastest axis first.
    stored_shape = shape if is_fortran else shape[::-1]
    values = read_numbers(path, None, dtype, offset, stored_shape)
    return Maps({None: np.atleast_2d(values if is_fortran else values.T)}, "npy")


def read_npz(
    path: Path,
    measure: str | None = None,
) -> Maps:
    """Read the array of maps of an npz archive, and what goes with it.

    The maps are `measure`, or the only array of two dimensions, or the only pair of a left and a
    right one. "subjects" are their names, "mask" or "cortex" the sites in use, other arrays with
    one value per map columns of the participants.
    """
    with open_archive(path) as (archive, headers):
        keys = _choose(headers, measure)
        parts = {side: np.atleast_2d(load_member(archive, key)) for side, key in keys.items()}
        shapes = {key: header[0] for key, header in headers.items() if key not in keys.values()}
        n_maps = len(next(iter(parts.values())))
        n_sites = sum(part.shape[1] for part in parts.values())
        if any(len(part) != n_maps for part in parts.values()):
            raise Unreadable(f"has different numbers of maps in {' and '.join(keys.values())}")

        def member(names: tuple[str, ...], length: int) -> Any:
            """Return the array of one of these names, which must have this length."""
            name = next((name for name in names if name in shapes), None)
            if name is None:
                return np.empty(0)
            if shapes.pop(name) != (length,):
                raise Unreadable(f"has {shown(name)} of another length than its maps: {length}")
            return load_member(archive, name)

        mask = member(_MASK_KEYS, n_sites)
        names = tuple(member(SUBJECT_KEYS, n_maps).astype(str).tolist())
        regions = tuple(member(_REGION_KEYS, n_sites).astype(str).tolist())
        columns = {
            name: load_member(archive, name) for name, shape in shapes.items() if shape == (n_maps,)
        }
    # MATLAB and nibabel write masks as numbers.
    if not np.isin(mask, (0, 1)).all():
        raise Unreadable("has a mask with values other than 0 and 1")
    if len(set(names)) < len(names):
        raise Unreadable("has a name of a subject twice")
    used = mask.astype(bool) if mask.size else None
    array = ", ".join(keys.values())
    left_out = [name for name, shape in shapes.items() if len(shape) == 1 and shape[0] != n_maps]
    notes = (f"left out {', '.join(left_out)}: not one value per map",) if left_out else ()
    return Maps(parts, "npz", names, columns, used, array, notes=notes, regions=regions)


def _check_maps(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> None:
    if dtype.kind not in "fiu" or len(shape) not in (1, 2) or volume(shape) == 0:
        raise Unreadable(
            f"contains an array of {dtype} of shape {shape}; numbers, subjects × sites, are read"
        )
    # As many rows as a mesh has vertices: R and MATLAB users have people in columns.
    if len(shape) == 2 and shape[0] in _MESHES and shape[1] not in _MESHES:
        raise Unreadable(
            f"has shape {shape}, apparently sites × subjects; transpose it to subjects × sites"
        )


def _choose(
    headers: dict[str, Header],
    measure: str | None,
) -> dict[str | None, str]:
    """Return hemisphere (or None) → name of the array that holds its maps."""
    groups: dict[str, dict[str | None, str]] = {}
    for name, (shape, _, dtype) in headers.items():
        if dtype.kind in "fiu" and (len(shape) == 2 or len(headers) == 1 or name == measure):
            side, stem = side_of(name)
            groups.setdefault(stem, {})[side] = name
    if measure in headers:
        groups = {measure: {side_of(measure)[0]: measure}}
    elif measure in groups:
        groups = {measure: groups[measure]}
    keys = next(iter(groups.values()), {})
    if len(groups) != 1 or (len(keys) > 1 and None in keys):
        listed = ", ".join(f"{name} {shape}" for name, (shape, _, _) in headers.items())
        raise Unreadable(
            f"contains {escaped(listed) or 'no arrays'}; name the one to read with "
            "--measure (measure=)"
        )
    # Before anything is loaded: a transposed matrix may be large.
    for name in keys.values():
        _check_maps(headers[name][0], headers[name][2])
    return {side: keys[side] for side in (None, "left", "right") if side in keys}


# ---------------------------------------------------------------------- any format


def read_maps(
    path: str | Path,
    measure: str | None = None,
) -> Maps:
    """Read the maps of one file of any format.

    Parameters
    ----------
    path : the file.
    measure : which array of an npz archive or .mat file to read, where there are several.

    Raises
    ------
    CohortError, with the file's name, whatever is wrong with it.
    """
    path = Path(path)
    with reading(path):
        _check_file(path)
        name = path.name.lower()
        if name.endswith(".npz"):
            return read_npz(path, measure)
        if name.endswith(".mat"):
            return _read_matrix(path, measure)
        if name.endswith((".nii", ".nii.gz")) and _is_nifti1(path):
            return read_nifti(path, _MESHES)
        if name.endswith((".gii", ".gii.gz")):
            return read_gifti(path)
        if name.endswith(".pscalar.nii"):
            return read_pscalar(path)
        if name.endswith(".nii"):
            return read_cifti(path)
        if name.endswith((".txt", ".csv", ".tsv")):
            return _read_text(path)
        if name.endswith((".mgh", ".mgz", ".mgh.gz")):
            return read_mgh(path)
        if name.endswith(".npy"):
            return read_npy(path)
        return _read_unnamed(path)


def _check_file(path: Path) -> None:
    check_regular(path)
    if path.stat().st_size == 0:
        raise Unreadable("is empty")


def _read_text(path: Path) -> Maps:
    maps = read_text_maps(path)
    _check_maps(maps.parts[None].shape, maps.parts[None].dtype)
    return maps


def _read_matrix(
    path: Path,
    measure: str | None,
) -> Maps:
    name, values = read_mat(path, measure)
    values = values.T if values.shape[1] == 1 else values
    _check_maps(values.shape, values.dtype)
    return Maps({None: values}, "MATLAB", array=name)


def _is_nifti1(path: Path) -> bool:
    # Only volumes are compressed.
    with open_file(path) as file:
        return file.read(4) in (b"\x5c\x01\x00\x00", b"\x00\x00\x01\x5c") or path.suffix == ".gz"


def _read_unnamed(path: Path) -> Maps:
    """Read FreeSurfer's own files, which have no ending; their first bytes tell."""
    with open_file(path) as file:
        magic = file.read(len(MORPH_MAGIC))
    if magic != MORPH_MAGIC:
        raise Unreadable(_ADVICE)
    return read_morph(path)


def read_labels(path: Path) -> dict[str | None, Labels]:
    """Return hemisphere, or None where the file does not say → labels of its vertices.

    The ending .annot, .label.gii or .dlabel.nii tells the format.
    """
    _check_file(path)
    name = path.name.lower()
    if name.endswith(".annot"):
        return {None: read_annot(path)}
    if name.endswith(".dlabel.nii"):
        return read_dlabel(path)
    if not name.endswith((".gii", ".gii.gz")):
        raise Unreadable("is not a file of labels; .annot, .label.gii and .dlabel.nii are read")
    content = parse_gifti(path)
    keys = content.arrays[0]
    has_keys = keys.data.ndim == 1 and keys.data.dtype.kind in "iu"
    if not has_keys or (keys.intent != LABELS and not content.labels):
        raise Unreadable("contains no labels: one whole number per vertex and a table of names")
    return {content.side: (keys.data.astype(np.int64), content.labels)}
