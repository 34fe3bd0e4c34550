"""CIFTI-2 files of maps, labels and parcels: read with nibabel, written on fs_LR 32k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import (
    ArgumentError,
    counted,
    escaped,
    shown,
)
from icofactor.io.atomic import atomic_path
from icofactor.io.gifti import (
    check_labels,
    label_table,
    map_names,
)
from icofactor.io.guard import (
    Unreadable,
    check_growth,
    check_vertices,
    open_file,
    read_numbers,
    volume,
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
_CIFTI_INTENTS = range(3000, 3100)


@dataclass(frozen=True)
class _Cifti:
    """A CIFTI-2 file.

    Attributes
    ----------
    values : (n_columns, n_maps), mapped.
    scaling : slope and intercept of the values; (None, None) if there is none.
    along : what the maps are, and what the columns are, e.g. ("SCALARS", "BRAIN_MODELS").
    map_axis, column_axis : nibabel's description of both.
    """

    values: NDArray[Any]
    scaling: tuple[float | None, float | None]
    along: tuple[str, str]
    map_axis: Any
    column_axis: Any

    def scaled(
        self,
        rows: slice,
    ) -> NDArray[Any]:
        """Return maps × the columns of a slice, in the units of the file."""
        slope, intercept = self.scaling
        values = self.values[rows].T
        if slope is None or intercept is None or (slope, intercept) == (1.0, 0.0):
            return values
        return values * slope + intercept

    def check(
        self,
        kinds: tuple[str, ...],
        columns: str,
    ) -> None:
        """Refuse files of another kind."""
        maps_kind, columns_kind = self.along
        if maps_kind not in kinds or columns_kind != columns:
            raise Unreadable(
                f"contains {columns_kind} × {maps_kind}; {columns} × {' or '.join(kinds)} are read"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the maps, if each has one."""
        names = tuple(named_map.map_name or "" for named_map in self.map_axis.named_maps)
        return names if len(names) == self.values.shape[1] and all(names) else ()


def read_cifti(path: Path) -> Maps:
    """Read a dscalar or dtseries file, with NaN at vertices of the cortex that it leaves out."""
    file = _open(path)
    file.check(("SCALARS", "SERIES"), "BRAIN_MODELS")
    structures = {model.brain_structure for model in file.column_axis.brain_models}
    n_others = len(structures - set(_SIDES))
    notes = (f"left out {counted(n_others, 'structure')}, not of the cortex",) if n_others else ()
    # Only a time series says how far its maps are apart.
    series = file.along[0] == "SERIES"
    reader = "CIFTI-2 dtseries" if series else "CIFTI-2 dscalar"
    step = _step(file.map_axis) if series else None
    return Maps(_hemispheres(file), reader, file.names, step=step, notes=notes)


def _step(axis: Any) -> float | None:
    """Return the seconds between two maps of a series."""
    if axis.series_unit != "SECOND":
        return None
    step = float(axis.series_step * 10.0**axis.series_exponent)
    if not 0 < step < np.inf:
        raise Unreadable(f"has {step} seconds between its maps")
    return step


def read_pscalar(path: Path) -> Maps:
    """Read the values of parcels, and where the parcels lie."""
    file = _open(path)
    file.check(("SCALARS",), "PARCELS")
    parcels = list(file.column_axis.parcels)
    if len(parcels) != len(file.values):
        raise Unreadable(f"lists {len(parcels)} parcels for {len(file.values)} columns")
    keys = {}
    for surface in file.column_axis.surfaces:
        n_vertices = surface.surface_number_of_vertices
        check_vertices(n_vertices)
        keys[surface.brain_structure] = np.full(n_vertices, -1, dtype=np.int64)
    for key, parcel in enumerate(parcels):
        for vertices in parcel.vertices:
            # NumPy refuses vertices that the surface does not have.
            if vertices.brain_structure in keys and hasattr(vertices, "array"):
                keys[vertices.brain_structure][vertices.array] = key
    names = tuple(escaped(parcel.name.strip()) for parcel in parcels)
    table = dict(enumerate(names))
    atlas = {
        _SIDES[structure]: (key_of_vertex, table)
        for structure, key_of_vertex in keys.items()
        if structure in _SIDES and (key_of_vertex >= 0).any()
    }
    values = np.asarray(file.scaled(slice(None)), dtype=np.float64)
    return Maps({None: values}, "CIFTI-2 pscalar", file.names, regions=names, atlas=atlas)


def read_dlabel(path: Path) -> dict[str | None, tuple[NDArray[np.int64], dict[int, str]]]:
    """Return hemisphere → key of each vertex, −1 where the file has none, and names of the keys.

    Of several maps the first is read.
    """
    file = _open(path)
    file.check(("LABELS",), "BRAIN_MODELS")
    # Each map has a table of its own.
    labels = next(iter(file.map_axis.named_maps)).label_table
    names = {key: escaped(label.label or "") for key, label in labels.items()}
    regions = {}
    for side, values in _hemispheres(file).items():
        keys = np.nan_to_num(values[0], nan=-1.0)
        if (np.abs(keys) >= _LARGEST_KEY).any() or (keys % 1).any():
            raise Unreadable(f"contains labels that are not whole numbers below {_LARGEST_KEY}")
        regions[side] = (keys.astype(np.int64), names)
    return regions


def _open(path: Path) -> _Cifti:
    """Read the headers of a CIFTI-2 file and map its values."""
    from nibabel.nifti2 import Nifti2Header

    from icofactor.io.xml import CiftiParser

    with open_file(path) as stream:
        header = Nifti2Header(stream.read(_HEADER), check=False)
        offset = header.get_data_offset()
        if int(header["sizeof_hdr"]) != _HEADER:
            raise Unreadable("is not a CIFTI-2 file; NIfTI-1 volumes and CIFTI-1 are not read")
        if int(header["intent_code"]) not in _CIFTI_INTENTS:
            raise Unreadable("is a NIfTI-2 file, but not CIFTI")
        if not _HEADER < offset <= _LARGEST_XML:
            raise Unreadable(f"says that its data begin at byte {offset}")
        extensions = stream.read(offset - _HEADER)
    shape = header.get_data_shape()
    if len(shape) != 6 or volume(shape[:4]) != 1 or min(shape[4:]) < 1:
        raise Unreadable(f"has dimensions {shape}; maps × brain ordinates are read")
    # Four bytes say that extensions follow; each begins with its size and code.
    order = header.endianness
    position = 4
    code = None
    while code != _EXTENSION_CODE:
        size, code = np.frombuffer(extensions, f"{order}i4", 2, position).tolist()
        xml = extensions[position + 8 : position + size]
        position += max(size, 8)
    parser = CiftiParser()
    parser.parse(string=xml.rstrip(b"\0"))
    # One axis may stand for both dimensions, as in a connectome.
    axes = {}
    for axis in parser.header.matrix:
        axes.update(dict.fromkeys(axis.applies_to_matrix_dimension, axis))
    n_maps, n_columns = shape[4:]
    # The maps are the faster axis.
    values = read_numbers(path, None, header.get_data_dtype(), offset, (n_maps, n_columns)).T
    kinds = [axes[i].indices_map_to_data_type.removeprefix("CIFTI_INDEX_TYPE_") for i in (0, 1)]
    return _Cifti(values, header.get_slope_inter(), (kinds[0], kinds[1]), axes[0], axes[1])


def _hemispheres(file: _Cifti) -> dict[str | None, NDArray[np.float32]]:
    """Return hemisphere → its maps on all vertices, NaN where the file has none."""
    parts: dict[str | None, NDArray[np.float32]] = {}
    for model in file.column_axis.brain_models:
        side = _SIDES.get(model.brain_structure)
        if side is None:
            continue
        if side in parts:
            raise Unreadable(f"has the {side} cortex twice")
        vertices = getattr(model.vertex_indices, "array", np.empty(0, dtype=np.int64))
        n_vertices = model.surface_number_of_vertices
        check_vertices(n_vertices)
        end = model.index_offset + model.index_count
        if not 0 <= model.index_offset <= end <= len(file.values):
            raise Unreadable(f"has brain models beyond its {len(file.values)} brain ordinates")
        if len(vertices) != model.index_count or len(np.unique(vertices)) != len(vertices):
            raise Unreadable(f"lists vertices of the {side} cortex that are too few or double")
        # A file of one vertex may claim the surface of millions.
        check_growth(4 * n_vertices * file.values.shape[1], file.values.nbytes)
        maps = np.full((file.values.shape[1], n_vertices), np.nan, dtype=np.float32)
        maps[:, vertices] = file.scaled(slice(model.index_offset, end))
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

    _check_ending(path, ".dscalar.nii")
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

    _check_ending(path, ".dlabel.nii")
    values, rgb = check_labels(labels, names, colours)
    used, axis = _brain_models("labels", values.shape, hemi, mask)
    table = LabelAxis(["winner-takes-all"], [label_table(names, rgb)])
    return _save(path, values[None, used], table, axis, "ConnDenseLabel", overwrite)


def _check_ending(
    path: str | Path,
    ending: str,
) -> None:
    if not str(path).endswith(ending):
        raise ArgumentError("path", f'must end with "{ending}"; found {shown(str(path))}')


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
    return used, models[0] if len(models) == 1 else models[0] + models[1]


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
