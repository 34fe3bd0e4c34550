"""CIFTI-2 files of maps, labels and parcels: read with nibabel, written on fs_LR 32k."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import (
    ArgumentError,
    escaped,
    plural,
    shown,
)
from icofactor.io.atomic import atomic_path
from icofactor.io.gifti import (
    check_ending,
    check_labels,
    label_table,
    map_names,
)
from icofactor.io.guard import (
    Unreadable,
    check_growth,
    check_size,
    check_vertices,
    open_file,
)
from icofactor.io.hemispheres import hemispheres
from icofactor.io.types import Maps

# Vertices per hemisphere of fs_LR 32k, which no other mesh has.
N_FS_LR = 32492
_SIDES = {"CIFTI_STRUCTURE_CORTEX_LEFT": "left", "CIFTI_STRUCTURE_CORTEX_RIGHT": "right"}
_STRUCTURES = {side: structure for structure, side in _SIDES.items()}
_HEADER = 540
# Bytes of the XML of brain models, names and labels; that of the HCP's 91,282 has one million.
_LARGEST_XML = 2**27
_EXTENSION_CODE = 32
# float32 holds whole numbers up to this one.
_LARGEST_KEY = 2**24


def read_cifti(path: Path) -> Maps:
    """Read a dscalar or dtseries file, with NaN at vertices of the cortex that it leaves out."""
    header, values = _open(path, "BRAIN_MODELS", ("SCALARS", "SERIES"))
    structures = {model.brain_structure for model in header.matrix.get_index_map(1).brain_models}
    n_others = len(structures - set(_SIDES))
    notes = (f"left out {plural(n_others, 'structure')}, not of the cortex",) if n_others else ()
    parts = _hemispheres(header, values)
    axis = header.get_axis(0)
    # Only a time series says how far its maps are apart.
    if not hasattr(axis, "step"):
        names = _names(header, values.shape[0])
        return Maps(parts, "CIFTI-2 dscalar", names, notes=notes)
    step = float(axis.step) if axis.unit == "SECOND" else None
    if step is not None and not 0 < step < np.inf:
        raise Unreadable(f"has {step} seconds between its maps")
    return Maps(parts, "CIFTI-2 dtseries", step=step, notes=notes)


def read_pscalar(path: Path) -> Maps:
    """Read the values of parcels, and where the parcels lie."""
    header, values = _open(path, "PARCELS", ("SCALARS",))
    parcels = header.get_axis(1)
    atlas = {}
    names = tuple(escaped(name.strip()) for name in parcels.name.tolist())
    table = dict(enumerate(names))
    for structure, n_vertices in parcels.nvertices.items():
        check_vertices(n_vertices)
        keys = np.full(n_vertices, -1, dtype=np.int64)
        for key, vertices in enumerate(parcels.vertices):
            # NumPy refuses vertices that the surface does not have.
            keys[np.asarray(vertices.get(structure, ()), dtype=np.int64)] = key
        if structure in _SIDES and (keys >= 0).any():
            atlas[_SIDES[structure]] = (keys, table)
    matrix = np.asarray(values, dtype=np.float64)
    if len(parcels) != matrix.shape[1]:
        raise Unreadable(f"lists {len(parcels)} parcels for {matrix.shape[1]} columns")
    names_of_maps = _names(header, len(matrix))
    return Maps({None: matrix}, "CIFTI-2 pscalar", names_of_maps, regions=names, atlas=atlas)


def read_dlabel(path: Path) -> dict[str | None, tuple[NDArray[np.int64], dict[int, str]]]:
    """Return hemisphere → key of each vertex, −1 where the file has none, and names of the keys.

    Of several maps the first is read.
    """
    header, values = _open(path, "BRAIN_MODELS", ("LABELS",))
    # Each map has a table of its own.
    table = header.get_axis(0).label[0]
    names = {key: escaped(name or "") for key, (name, _) in table.items()}
    regions = {}
    for side, maps in _hemispheres(header, values).items():
        keys = np.nan_to_num(maps[0], nan=-1.0)
        if (np.abs(keys) >= _LARGEST_KEY).any() or (keys % 1).any():
            raise Unreadable(f"contains labels that are not whole numbers below {_LARGEST_KEY}")
        regions[side] = (keys.astype(np.int64), names)
    return regions


def _open(path: Path, columns: str, kinds: tuple[str, ...]) -> tuple[Any, Any]:
    """Return nibabel's header of a CIFTI-2 file and its values, maps × columns, not read yet.

    Parameters
    ----------
    columns, kinds : what its columns must be, and its maps, e.g. "BRAIN_MODELS" and ("SCALARS",).
    """
    from nibabel.arrayproxy import ArrayProxy
    from nibabel.nifti2 import Nifti2Header

    from icofactor.io.xml import CiftiParser

    with open_file(path) as stream:
        nifti = Nifti2Header(stream.read(_HEADER), check=False)
        offset = nifti.get_data_offset()
        if int(nifti["sizeof_hdr"]) != _HEADER or not _HEADER < offset <= _LARGEST_XML:
            raise Unreadable("is not a CIFTI-2 file; NIfTI-1 volumes and CIFTI-1 are not read")
        extensions = stream.read(offset - _HEADER)
    # Four bytes say that extensions follow; each begins with its size and code.
    position = 4
    code = None
    while code != _EXTENSION_CODE:
        size, code = np.frombuffer(extensions, f"{nifti.endianness}i4", 2, position).tolist()
        xml = extensions[position + 8 : position + size]
        position += max(size, 8)
    parser = CiftiParser()
    parser.parse(string=xml.rstrip(b"\0"))
    header = parser.header
    dimensions = [
        header.matrix.get_index_map(i).indices_map_to_data_type.removeprefix("CIFTI_INDEX_TYPE_")
        for i in (1, 0)
    ]
    if dimensions[0] != columns or dimensions[1] not in kinds:
        raise Unreadable(
            f"contains {' × '.join(dimensions)}; {columns} × {' or '.join(kinds)} are read"
        )
    # Four dimensions of NIfTI are not used.
    *unused, n_maps, n_columns = nifti.get_data_shape()
    shape = (n_maps, n_columns)
    if unused != [1, 1, 1, 1] or min(shape) < 1:
        raise Unreadable(f"has dimensions {unused}, {shape}; maps × brain ordinates are read")
    dtype = nifti.get_data_dtype()
    check_size(path.stat().st_size, offset, shape, dtype)
    slope, intercept = nifti.get_slope_inter()
    return header, ArrayProxy(path, (shape, dtype, offset, slope or 1.0, intercept or 0.0))


def _names(header: Any, n_maps: int) -> tuple[str, ...]:
    """Return the names of the maps, if each has one."""
    names = tuple(header.get_axis(0).name.tolist())
    return names if len(names) == n_maps and all(names) else ()


def _hemispheres(header: Any, values: Any) -> dict[str | None, NDArray[np.float32]]:
    """Return hemisphere → its maps on all vertices, NaN where the file has none."""
    parts: dict[str | None, NDArray[np.float32]] = {}
    n_maps, n_columns = values.shape
    for model in header.matrix.get_index_map(1).brain_models:
        side = _SIDES.get(model.brain_structure)
        if side is None:
            continue
        n_vertices = model.surface_number_of_vertices
        check_vertices(n_vertices)
        # A file of one vertex may claim the surface of millions.
        check_growth(4 * n_vertices * n_maps, 4 * n_columns * n_maps)
        vertices = getattr(model.vertex_indices, "array", np.empty(0, dtype=np.int64))
        columns = slice(model.index_offset, model.index_offset + model.index_count)
        is_inside = 0 <= columns.start <= columns.stop <= n_columns
        n_unique = len(np.unique(vertices))
        if side in parts or not is_inside or not n_unique == len(vertices) == model.index_count:
            raise Unreadable(f"is damaged: its {side} cortex is there twice, or has wrong vertices")
        maps = np.full((n_maps, n_vertices), np.nan, dtype=np.float32)
        maps[:, vertices] = values[:, columns]
        parts[side] = maps
    if not parts:
        raise Unreadable("contains no cortex: none of its brain models is a surface")
    return parts


def write_pscalar(
    path: str | Path,
    values: ArrayLike,
    regions: Any,
    names: Sequence[str],
    *,
    overwrite: bool = False,
) -> Path:
    """Write values (n_maps, n_parcels) of parcels on fs_LR 32k as CIFTI-2 in float32.

    Parameters
    ----------
    regions : names, labels and hemisphere of the parcels (`Parcels`).
    names : one per map.
    """
    from nibabel.cifti2 import ParcelsAxis, ScalarAxis

    sides = hemispheres(regions.hemi)
    labels = dict(zip(sides, np.split(regions.labels, len(sides)), strict=True))
    vertices = []
    for key in range(len(regions.names)):
        inside = {_STRUCTURES[side]: np.flatnonzero(labels[side] == key) for side in sides}
        vertices.append({name: indices for name, indices in inside.items() if len(indices)})
    # nibabel asks for the voxels of parcels, which have none.
    voxels = [np.empty((0, 3), dtype=int)] * len(vertices)
    surfaces = {_STRUCTURES[side]: len(labels[side]) for side in sides}
    parcel_names = np.array(regions.names, dtype=object)
    axis = ParcelsAxis(parcel_names, voxels, vertices, nvertices=surfaces)
    return _save(path, values, ScalarAxis(list(names)), axis, "ConnParcelScalr", overwrite)


def write_dscalar(
    path: str | Path,
    maps: ArrayLike,
    hemi: str,
    names: Sequence[str] | None = None,
    mask: ArrayLike | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write maps on the vertices of fs_LR 32k as CIFTI-2 dense scalars in float32.

    Parameters
    ----------
    path : path
        Must end with ".dscalar.nii".
    maps : array of shape (n_maps, 32492) or (n_maps, 64984)
        Maps; for `hemi` "both", left columns come first.
    hemi : {"left", "right", "both"}
        Hemisphere.
    names : sequence of str, optional
        One per map. Default: "map01", ...
    mask : bool array, optional
        True for vertices in use; the others are not written, like the medial wall in HCP files.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> path = f"{tempfile.mkdtemp()}/map.dscalar.nii"
    >>> write_dscalar(path, np.ones(32492), "left").name
    'map.dscalar.nii'
    """
    from nibabel.cifti2 import ScalarAxis

    check_ending(path, ".dscalar.nii")
    used, axis = _brain_models("maps", np.shape(maps), hemi, mask)
    values = np.atleast_2d(np.asarray(maps, dtype=np.float32))
    scalars = ScalarAxis(map_names(names, len(values)))
    return _save(path, values[:, used], scalars, axis, "ConnDenseScalar", overwrite)


def write_dlabel(
    path: str | Path,
    labels: ArrayLike,
    hemi: str,
    names: Sequence[str],
    colours: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write a parcellation of the vertices of fs_LR 32k as CIFTI-2 dense labels.

    Parameters
    ----------
    path : must end with ".dlabel.nii".
    labels : (32492,), or (64984,) with the left hemisphere first; 0 is no parcel, "???".
    hemi, mask : as for `write_dscalar`.
    names, colours : of the parcels 1, 2, ...; colours are (n_parcels, 3), 0 to 255.
    """
    from nibabel.cifti2 import LabelAxis

    check_ending(path, ".dlabel.nii")
    values, rgb = check_labels(labels, names, colours)
    used, axis = _brain_models("labels", values.shape, hemi, mask)
    table = LabelAxis(["winner-takes-all"], [label_table(names, rgb)])
    return _save(path, values[None, used], table, axis, "ConnDenseLabel", overwrite)


def _brain_models(
    argument: str,
    shape: tuple[int, ...],
    hemi: str,
    mask: ArrayLike | None,
) -> tuple[NDArray[np.bool_], Any]:
    """Return the vertices that a file has, as booleans and as nibabel's axis."""
    from nibabel.cifti2 import BrainModelAxis

    sides = hemispheres(hemi)
    n = N_FS_LR * len(sides)
    if len(shape) not in (1, 2) or shape[-1] != n:
        raise ArgumentError(
            argument,
            f"must have {n} vertices, as fs_LR 32k has for hemi={hemi!r}; found shape {shape}",
        )
    used = np.ones(n, dtype=bool) if mask is None else np.asarray(mask)
    if used.shape != (n,) or used.dtype != bool or not used.any():
        raise ArgumentError("mask", f"must be {n} booleans, not all False; found {shown(mask)}")
    halves = zip(sides, np.split(used, len(sides)), strict=True)
    # A hemisphere that is masked altogether has no model.
    models = [
        BrainModelAxis.from_mask(half, _STRUCTURES[side]) for side, half in halves if half.any()
    ]
    return used, sum(models[1:], models[0])


def _save(
    path: str | Path,
    values: ArrayLike,
    map_axis: Any,
    column_axis: Any,
    intent: str,
    overwrite: bool,
) -> Path:
    from nibabel.cifti2 import Cifti2Image

    numbers = np.ascontiguousarray(values)
    if numbers.dtype != np.int32:
        numbers = numbers.astype(np.float32)
    image = Cifti2Image(numbers, header=(map_axis, column_axis))
    image.update_headers()
    image.nifti_header.set_intent(intent)
    # nibabel's save leaves its file open after an error.
    with atomic_path(path, overwrite) as temporary, open(temporary, "wb") as stream:
        image.to_stream(stream)
    return Path(path)
