"""GIFTI: reading maps, labels and surfaces with limits on their sizes; writing maps and
parcellations.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import ArgumentError, Phrase, escaped
from icofactor.io.atomic import atomic_path
from icofactor.io.guard import (
    Unreadable,
    check_growth,
    check_regular,
    check_vertices,
    inflate,
    numbers_in,
    open_file,
    read_exactly,
    read_pieces,
    volume,
)
from icofactor.io.hemispheres import hemispheres
from icofactor.io.tables import numbered
from icofactor.io.types import Maps
from icofactor.io.xml import MAX_WORDS, XmlReader

_TYPES = {
    "NIFTI_TYPE_UINT8": "u1",
    "NIFTI_TYPE_INT8": "i1",
    "NIFTI_TYPE_INT16": "i2",
    "NIFTI_TYPE_UINT16": "u2",
    "NIFTI_TYPE_INT32": "i4",
    "NIFTI_TYPE_UINT32": "u4",
    "NIFTI_TYPE_INT64": "i8",
    "NIFTI_TYPE_FLOAT32": "f4",
    "NIFTI_TYPE_FLOAT64": "f8",
}
_SIDES = {"CortexLeft": "left", "CortexRight": "right"}
POINTS, TRIANGLES, LABELS = "NIFTI_INTENT_POINTSET", "NIFTI_INTENT_TRIANGLE", "NIFTI_INTENT_LABEL"
_MAX_ARRAYS = 50_000
_LONGEST_NUMBER = 64  # characters of a number in text, with the space around it


@dataclass
class DataArray:
    """One array of a GIFTI file, with its own metadata."""

    attributes: dict[str, str]
    meta: dict[str, str] = field(default_factory=dict)
    data: NDArray[Any] = field(default_factory=lambda: np.empty(0))

    @property
    def intent(self) -> str:
        """What the numbers stand for, e.g. NIFTI_INTENT_SHAPE."""
        return self.attributes.get("Intent", "")


@dataclass
class Gifti:
    """A GIFTI file as it is: arrays, metadata, and names of labels."""

    arrays: list[DataArray] = field(default_factory=list)
    meta: dict[str, str] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)

    @property
    def side(self) -> str | None:
        """The hemisphere the metadata name, or None."""
        for meta in (self.meta, *(array.meta for array in self.arrays)):
            if meta.get("AnatomicalStructurePrimary") in _SIDES:
                return _SIDES[meta["AnatomicalStructurePrimary"]]
        return None


class _Builder(XmlReader):
    """Puts a Gifti together."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = Gifti()
        self._path, self._stored, self._size, self._outside = path, path.stat().st_size, 0, 0
        self._array: DataArray | None = None
        self._name, self._key = "", 0

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "DataArray":
            self._array = DataArray(attributes)
            self.file.arrays.append(self._array)
            if len(self.file.arrays) > _MAX_ARRAYS:
                raise Unreadable(f"has more than {_MAX_ARRAYS} data arrays; check its origin")
        elif tag == "Label":
            self._key = _whole(attributes, "Key" if "Key" in attributes else "Index", 0)

    def room(self, tag: str) -> int | None:
        if tag != "Data" or self._array is None:
            return None
        shape, dtype = _layout(self._array.attributes)
        of_one = (
            _LONGEST_NUMBER
            if self._array.attributes.get("Encoding") == "ASCII"
            else 2 * dtype.itemsize
        )
        return MAX_WORDS + volume(shape) * of_one

    def finish(self, tag: str, text: str) -> None:
        if tag == "Name":
            self._name = text.strip()
        elif tag == "Value":
            meta = self.file.meta if self._array is None else self._array.meta
            meta[self._name] = text.strip()
        elif tag == "Label":
            self.file.labels[self._key] = escaped(text.strip())
        elif tag == "Data" and self._array is not None:
            if self._array.attributes.get("Encoding") == "ExternalFileBinary":
                self._array.data, stored = _beside(self._path, self._array.attributes)
                self._outside += self._array.data.nbytes
                if self._outside > stored:  # each may be the same bytes again
                    taken = f"takes {self._outside} bytes or more from a file of {stored}"
                    raise Unreadable(f"{taken}; check its origin")
            else:
                self._array.data = _decode(self._array.attributes, text)
            self._size += self._array.data.nbytes
            check_growth(
                self._size - self._outside, self._stored
            )  # all together: each may be small
        elif tag == "DataArray":
            self._array = None


def parse_gifti(path: Path) -> Gifti:
    """Everything in a GIFTI file."""
    check_regular(path)
    builder = _Builder(path)
    try:
        builder.parse(read_pieces(path))
    except expat.ExpatError as error:
        raise Unreadable(
            f"is not a complete XML file ({error}): it is truncated, damaged, or not GIFTI"
        ) from None
    except EOFError:
        raise Unreadable("is truncated: its compressed data end too early") from None
    if builder.root != "GIFTI":
        raise Unreadable(f"is not a GIFTI file: its XML is a <{builder.root[:40]}>")
    if not builder.file.arrays:
        raise Unreadable("contains no data arrays")
    if any(array.data.size == 0 for array in builder.file.arrays):
        raise Unreadable("has a data array without data")
    return builder.file


def _whole(attributes: dict[str, str], name: str, default: int | None = None) -> int:
    """An attribute that is a whole number."""
    text = attributes.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise Unreadable(
            f"is damaged: {name} of an array or label is {(text or 'missing')[:40]!r}"
        ) from None


def _layout(attributes: dict[str, str]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the numbers of a DataArray."""
    kind = attributes.get("DataType", "")
    if kind not in _TYPES:
        raise Unreadable(f"has data of type {kind[:40]!r}; numbers are read")
    dtype = np.dtype((">" if attributes.get("Endian") == "BigEndian" else "<") + _TYPES[kind])
    n_dims = _whole(attributes, "Dimensionality", 1)
    if not 1 <= n_dims <= 2:
        raise Unreadable(f"has an array of {n_dims} dimensions; 1 or 2 are read")
    shape = tuple(_whole(attributes, f"Dim{i}") for i in range(n_dims))
    if min(shape) < 1:
        raise Unreadable(f"has an array of shape {shape}")
    check_vertices(shape[0])
    return shape, dtype


def _decode(attributes: dict[str, str], text: str) -> NDArray[Any]:
    """The numbers of a Data element."""
    (shape, dtype), encoding = _layout(attributes), attributes.get("Encoding", "")
    size = volume(shape) * dtype.itemsize
    if encoding == "ASCII":
        check_growth(size, len(text))
        flat = numbers_in(text, volume(shape), dtype)
    elif encoding == "Base64Binary":
        flat = _from_bytes(_plain_bytes(text), dtype, size)
    elif encoding == "GZipBase64Binary":
        flat = _from_bytes(inflate(_plain_bytes(text), size), dtype, size)
    else:
        raise Unreadable(f"has data in an unknown encoding {encoding[:40]!r}")
    return _shaped(flat, attributes)


def _beside(path: Path, attributes: dict[str, str]) -> tuple[NDArray[Any], int]:
    """Numbers that SPM and CAT12 keep in a file of the same name with .dat at its end, and the size
    of that file.

    No other file is followed.
    """
    name = path.with_suffix(".dat").name
    if attributes.get("ExternalFileName", "") not in (name, f"./{name}"):
        raise Unreadable(
            f"keeps its data in another file (ExternalFileBinary), which must be {name} in the same folder; "
            "merge them with wb_command -gifti-convert GZIP_BASE64_BINARY"
        )
    (shape, dtype), offset = _layout(attributes), _whole(attributes, "ExternalFileOffset", 0)
    data, size = path.with_name(name), volume(shape) * dtype.itemsize
    if not data.exists():
        raise Unreadable(f"keeps its data in {name}, which is not in the same folder; copy both")
    stored = data.stat().st_size
    if not 0 <= offset <= stored - size:
        raise Unreadable(
            f"is truncated: {size} bytes from {offset} on should be in {name}, which has {stored}"
        )
    with open_file(data) as file:
        file.seek(offset)
        flat = np.frombuffer(read_exactly(file, size, stored), dtype)
    return _shaped(flat, attributes), stored


def _shaped(flat: NDArray[Any], attributes: dict[str, str]) -> NDArray[Any]:
    shape, _ = _layout(attributes)
    column_major = attributes.get("ArrayIndexingOrder") == "ColumnMajorOrder"
    return flat.reshape(shape, order="F" if column_major else "C")


def _plain_bytes(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text)
    except ValueError as error:
        raise Unreadable(f"is damaged: its data are not base64 ({error})") from None


def _from_bytes(data: bytes, dtype: np.dtype[Any], size: int) -> NDArray[Any]:
    if len(data) != size:
        raise Unreadable(f"is truncated: an array should have {size} bytes, {len(data)} were found")
    return np.frombuffer(data, dtype)


def read_gifti(path: Path) -> Maps:
    """Maps of a GIFTI shape or func file; CAT12 writes the surface into the same file."""
    file = parse_gifti(path)
    arrays = [array for array in file.arrays if array.intent not in (POINTS, TRIANGLES)]
    if not arrays:
        raise Unreadable("is a surface (points and triangles), not a map")
    if any(array.intent == LABELS for array in arrays):
        raise Unreadable("contains labels, not a map")
    sizes = {len(array.data) for array in arrays}
    if len(sizes) > 1:
        raise Unreadable(f"has maps of different lengths: {sorted(sizes)}")
    rows = [array.data.reshape(len(array.data), -1).T for array in arrays]
    names = [array.meta.get("Name", "") for array in arrays]
    named = all(len(row) == 1 for row in rows) and all(names)
    return Maps(
        {file.side: rows[0] if len(rows) == 1 else np.concatenate(rows)},
        "GIFTI",
        tuple(names) if named else (),
    )


STRUCTURES = {"left": "CortexLeft", "right": "CortexRight"}


def read_gifti_surface(path: Path) -> tuple[NDArray[Any], NDArray[Any], str | None]:
    """Points (V, 3), triangles (F, 3) and the hemisphere, where it is named, of a GIFTI file."""
    file = parse_gifti(path)
    points = [array.data for array in file.arrays if array.intent == POINTS]
    triangles = [array.data for array in file.arrays if array.intent == TRIANGLES]
    if len(points) != 1 or len(triangles) != 1:
        raise Unreadable(
            f"has {len(points)} point sets and {len(triangles)} triangle lists; a surface (.surf.gii) has one of each"
        )
    return points[0], triangles[0], file.side


def write_maps(
    path: str | Path,
    maps: ArrayLike,
    hemi: str,
    names: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write maps on the vertices of one hemisphere as GIFTI, with one float32 array per map.

    Parameters
    ----------
    path : path
        Must end with ".gii"; other tools expect ".shape.gii" or ".func.gii".
    maps : array of shape (n_maps, n_vertices) or (n_vertices,)
        Maps.
    hemi : {"left", "right"}
        Hemisphere.
    names : sequence of str, optional
        One per map. Default: "map01", ...
    metadata : mapping, optional
        Further entries for the metadata of the file.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> write_maps(f"{folder}/maps.shape.gii", [[1.0, 2, 3], [4, 5, 6]], "left", ["one", "other"]).name
    'maps.shape.gii'
    """
    _check_file(path, hemi)
    values = np.atleast_2d(np.asarray(maps, dtype=np.float32))
    if values.ndim != 2 or values.size == 0:
        raise ArgumentError(
            "maps", Phrase(f"shape {np.shape(maps)}"), "an array of shape (n_maps, n_vertices)"
        )
    labels = numbered("map", len(values)) if names is None else list(names)
    if len(labels) != len(values):
        raise ArgumentError(
            "names", Phrase(f"{len(labels)} names"), f"one name for each of the {len(values)} maps"
        )
    from nibabel.gifti import GiftiDataArray, GiftiImage, GiftiMetaData

    arrays = [
        GiftiDataArray(
            np.ascontiguousarray(row),
            intent="NIFTI_INTENT_SHAPE",
            datatype="NIFTI_TYPE_FLOAT32",
            meta=GiftiMetaData({"Name": str(label)}),
        )
        for row, label in zip(values, labels, strict=True)
    ]
    meta = GiftiMetaData(
        {str(k): str(v) for k, v in {**_structure(hemi), **(metadata or {})}.items()}
    )
    return _save(GiftiImage(darrays=arrays, meta=meta), path, overwrite)


def write_surface(path: str | Path, coordinates: ArrayLike, faces: ArrayLike, hemi: str) -> Path:
    """Write a surface as GIFTI.

    Examples
    --------
    >>> import tempfile
    >>> write_surface(f"{tempfile.mkdtemp()}/a.surf.gii", [[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]], "left").name
    'a.surf.gii'
    """
    _check_file(path, hemi)
    from nibabel.gifti import GiftiDataArray, GiftiImage, GiftiMetaData

    points = GiftiDataArray(
        np.asarray(coordinates, dtype=np.float32), "NIFTI_INTENT_POINTSET", "NIFTI_TYPE_FLOAT32"
    )
    triangles = GiftiDataArray(
        np.asarray(faces, dtype=np.int32), "NIFTI_INTENT_TRIANGLE", "NIFTI_TYPE_INT32"
    )
    return _save(
        GiftiImage(darrays=[points, triangles], meta=GiftiMetaData(_structure(hemi))), path, False
    )


def write_label_gii(
    path: str | Path,
    labels: ArrayLike,
    hemi: str,
    names: Sequence[str],
    colours: ArrayLike,
    *,
    overwrite: bool = False,
) -> Path:
    """Write a parcellation of one hemisphere as GIFTI with a table of labels.

    Parameters
    ----------
    path : path
        Must end with ".label.gii".
    labels : int array of shape (n_vertices,)
        Number of the parcel; 0 means no parcel, which Workbench calls "???" and draws transparent.
    hemi : {"left", "right"}
        Hemisphere.
    names : sequence of str
        Names of the parcels 1, 2, ...
    colours : array of shape (n_parcels, 3)
        Red, green and blue, from 0 to 255.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> colours = [[200, 0, 0], [0, 0, 200]]
    >>> write_label_gii(f"{folder}/parts.label.gii", [0, 1, 1, 2], "left", ["front", "back"], colours).name
    'parts.label.gii'
    """
    _check_file(path, hemi)
    from nibabel.gifti import GiftiDataArray, GiftiImage, GiftiLabel, GiftiLabelTable, GiftiMetaData

    values, rgb = check_labels(labels, names, colours)
    table = GiftiLabelTable()
    for key, (name, colour) in enumerate(zip(["???", *names], [None, *rgb], strict=True)):
        # GIFTI has colours between 0 and 1
        rgba = (0.0, 0.0, 0.0, 0.0) if colour is None else (*(float(c) / 255 for c in colour), 1.0)
        label = GiftiLabel(key, *rgba)
        label.label = str(name)
        table.labels.append(label)
    array = GiftiDataArray(
        values,
        intent="NIFTI_INTENT_LABEL",
        datatype="NIFTI_TYPE_INT32",
        meta=GiftiMetaData({"Name": "winner-takes-all"}),
    )
    image = GiftiImage(darrays=[array], labeltable=table, meta=GiftiMetaData(_structure(hemi)))
    return _save(image, path, overwrite)


def check_labels(
    labels: ArrayLike, names: Sequence[str], colours: ArrayLike
) -> tuple[np.ndarray, np.ndarray]:
    """Labels as int32 and colours as uint8, refused unless each label has a name and a colour of
    its own.
    """
    values, rgb = np.asarray(labels), np.asarray(colours)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        found = Phrase(f"{values.dtype} of shape {values.shape}")
        raise ArgumentError("labels", found, "whole numbers in one dimension")
    if rgb.shape != (len(names), 3):
        found = Phrase(f"shape {rgb.shape}")
        raise ArgumentError(
            "colours", found, f"an array of shape ({len(names)}, 3), one row per name"
        )
    if len(np.unique(rgb, axis=0)) < len(rgb):
        raise ArgumentError(
            "colours", None, "unique: FreeSurfer identifies parcels by their colours"
        )
    if values.size and (values.min() < 0 or values.max() > len(names)):
        raise ArgumentError(
            "labels", Phrase(f"{values.min()} to {values.max()}"), f"between 0 and {len(names)}"
        )
    return values.astype(np.int32), rgb.astype(np.uint8)


def _check_file(path: str | Path, hemi: str) -> None:
    if not str(path).endswith(".gii"):
        raise ArgumentError("path", str(path), '{path} must end with ".gii"')
    if len(hemispheres(hemi)) > 1:
        raise ArgumentError("hemi", hemi, "'left' or 'right', one file per hemisphere")


def _structure(hemi: str) -> dict[str, str]:
    return {"AnatomicalStructurePrimary": STRUCTURES[hemi]}


def _save(image: Any, path: str | Path, overwrite: bool) -> Path:
    import nibabel as nib

    with atomic_path(path, overwrite) as temporary:
        nib.save(image, temporary)
    return Path(path)
