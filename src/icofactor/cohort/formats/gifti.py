"""GIFTI: maps (shape, func) and label files.

XML with one DataArray per map, or one of two dimensions (vertices × maps). External files and XML entities are refused.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.formats.common import Maps, Unreadable, check_growth, check_vertices, inflate, read_whole, volume

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
_GEOMETRY = ("NIFTI_INTENT_POINTSET", "NIFTI_INTENT_TRIANGLE")


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


def refuse_entities(parser: expat.XMLParserType) -> None:
    """No XML of these formats declares entities; those that do mean harm."""

    def refuse(*_: Any) -> None:
        raise Unreadable("declares XML entities: refused")

    parser.EntityDeclHandler = refuse


class _Builder:
    """Hears the XML's events and puts a Gifti together."""

    def __init__(self) -> None:
        self.file = Gifti()
        self._text: list[str] = []
        self._array: DataArray | None = None
        self._name, self._key = "", 0
        self.root = ""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.root = self.root or tag
        self._text = []
        if tag == "DataArray":
            self._array = DataArray(attributes)
            self.file.arrays.append(self._array)
        elif tag == "Label":
            self._key = int(attributes.get("Key", attributes.get("Index", "0")))

    def text(self, text: str) -> None:
        self._text.append(text)

    def end(self, tag: str) -> None:
        text = "".join(self._text)
        self._text = []
        if tag == "Name":
            self._name = text.strip()
        elif tag == "Value":
            meta = self.file.meta if self._array is None else self._array.meta
            meta[self._name] = text.strip()
        elif tag == "Label":
            self.file.labels[self._key] = text.strip()
        elif tag == "Data" and self._array is not None:
            self._array.data = _decode(self._array.attributes, text)
        elif tag == "DataArray":
            self._array = None


def parse_gifti(path: Path) -> Gifti:
    """Everything in a GIFTI file."""
    builder = _Builder()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.buffer_size = 2**20
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.CharacterDataHandler = builder.text
    refuse_entities(parser)
    try:
        parser.Parse(read_whole(path), True)
    except expat.ExpatError as error:
        raise Unreadable(f"is no whole XML file ({error})") from None
    if builder.root != "GIFTI":
        raise Unreadable(f"is no GIFTI file: its XML is a <{builder.root}>")
    if not builder.file.arrays:
        raise Unreadable("holds no data arrays")
    return builder.file


def _decode(attributes: dict[str, str], text: str) -> NDArray[Any]:
    """The numbers of a Data element."""
    kind, encoding = attributes.get("DataType", ""), attributes.get("Encoding", "")
    if kind not in _TYPES:
        raise Unreadable(f"has data of type {kind!r}; numbers are read")
    dtype = np.dtype((">" if attributes.get("Endian") == "BigEndian" else "<") + _TYPES[kind])
    n_dims = int(attributes.get("Dimensionality", "1"))
    if not 1 <= n_dims <= 2:
        raise Unreadable(f"has an array of {n_dims} dimensions; 1 or 2 are read")
    shape = tuple(int(attributes[f"Dim{i}"]) for i in range(n_dims))
    if min(shape) < 1:
        raise Unreadable(f"has an array of shape {shape}")
    check_vertices(shape[0])
    size = volume(shape) * dtype.itemsize
    if encoding == "ASCII":
        check_growth(size, len(text))
        flat = np.array(text.split(), dtype=dtype)
    elif encoding == "Base64Binary":
        flat = _from_bytes(binascii.a2b_base64(text), dtype, size)
    elif encoding == "GZipBase64Binary":
        flat = _from_bytes(inflate(binascii.a2b_base64(text), size), dtype, size)
    elif encoding == "ExternalFileBinary":
        raise Unreadable("keeps its data in another file (ExternalFileBinary), which is not followed")
    else:
        raise Unreadable(f"has data in an unknown encoding {encoding!r}")
    if flat.size != volume(shape):
        raise Unreadable(f"is truncated: {volume(shape)} numbers were expected, {flat.size} are there")
    column_major = attributes.get("ArrayIndexingOrder") == "ColumnMajorOrder"
    return flat.reshape(shape, order="F" if column_major else "C")


def _from_bytes(data: bytes, dtype: np.dtype[Any], size: int) -> NDArray[Any]:
    if len(data) != size:
        raise Unreadable(f"is truncated: an array should have {size} bytes, {len(data)} are there")
    return np.frombuffer(data, dtype)


def read_gifti(path: Path) -> Maps:
    """Maps of a GIFTI shape or func file."""
    file = parse_gifti(path)
    intents = {array.intent for array in file.arrays}
    if intents & set(_GEOMETRY):
        raise Unreadable("is a surface (points and triangles), not a map")
    if "NIFTI_INTENT_LABEL" in intents:
        raise Unreadable("holds labels, not a map")
    sizes = {len(array.data) for array in file.arrays}
    if len(sizes) > 1:
        raise Unreadable(f"has maps of different lengths: {sorted(sizes)}")
    rows = [array.data.reshape(len(array.data), -1).T for array in file.arrays]
    names = [array.meta.get("Name", "") for array in file.arrays]
    told = all(len(row) == 1 for row in rows) and all(names)
    return Maps({file.side: rows[0] if len(rows) == 1 else np.concatenate(rows)}, "GIFTI", tuple(names) if told else ())
