"""GIFTI: XML with one DataArray per map, label list, point set or list of triangles.

External files and XML entities are refused.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from icofactor.reading.limits import (
    Unreadable,
    check_growth,
    check_regular,
    check_vertices,
    inflate,
    numbers_in,
    read_whole,
    volume,
)

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
# A long time series has some thousand arrays with a dozen elements each; every element costs time and memory.
_MAX_ELEMENTS, _MAX_ARRAYS = 500_000, 50_000


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
        raise Unreadable("declares XML entities, which no GIFTI file needs: refused")

    parser.EntityDeclHandler = refuse


class _Builder:
    """Hears the XML's events and puts a Gifti together."""

    def __init__(self, stored: int) -> None:
        self.file = Gifti()
        self._stored, self._size, self._elements = stored, 0, 0
        self._text: list[str] = []
        self._array: DataArray | None = None
        self._name, self._key = "", 0
        self.root = ""

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.root = self.root or tag
        self._text = []
        self._elements += 1
        if self._elements > _MAX_ELEMENTS:
            raise Unreadable(f"has more than {_MAX_ELEMENTS} XML elements: refused")
        if tag == "DataArray":
            self._array = DataArray(attributes)
            self.file.arrays.append(self._array)
            if len(self.file.arrays) > _MAX_ARRAYS:
                raise Unreadable(f"has more than {_MAX_ARRAYS} data arrays: refused")
        elif tag == "Label":
            self._key = _whole(attributes, "Key" if "Key" in attributes else "Index", 0)

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
            self._size += self._array.data.nbytes
            check_growth(self._size, self._stored)  # all together: each may be small
        elif tag == "DataArray":
            self._array = None


def parse_gifti(path: Path) -> Gifti:
    """Everything in a GIFTI file."""
    check_regular(path)
    builder = _Builder(path.stat().st_size)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.buffer_size = 2**20
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.CharacterDataHandler = builder.text
    refuse_entities(parser)
    try:
        parser.Parse(read_whole(path), True)
    except expat.ExpatError as error:
        raise Unreadable(f"is no whole XML file ({error}): it is cut short, damaged, or no GIFTI") from None
    except EOFError:
        raise Unreadable("is truncated: its compressed data end too early") from None
    if builder.root != "GIFTI":
        raise Unreadable(f"is no GIFTI file: its XML is a <{builder.root[:40]}>")
    if not builder.file.arrays:
        raise Unreadable("holds no data arrays")
    return builder.file


def _whole(attributes: dict[str, str], name: str, default: int | None = None) -> int:
    """An attribute that is a whole number."""
    text = attributes.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise Unreadable(f"is damaged: {name} of an array or label is {(text or 'missing')[:40]!r}") from None


def _decode(attributes: dict[str, str], text: str) -> NDArray[Any]:
    """The numbers of a Data element."""
    kind, encoding = attributes.get("DataType", ""), attributes.get("Encoding", "")
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
    size = volume(shape) * dtype.itemsize
    if encoding == "ASCII":
        check_growth(size, len(text))
        flat = numbers_in(text, volume(shape), dtype)
    elif encoding == "Base64Binary":
        flat = _from_bytes(_plain_bytes(text), dtype, size)
    elif encoding == "GZipBase64Binary":
        flat = _from_bytes(inflate(_plain_bytes(text), size), dtype, size)
    elif encoding == "ExternalFileBinary":
        raise Unreadable(
            "keeps its data in another file (ExternalFileBinary), which is not followed; "
            "wb_command -gifti-convert GZIP_BASE64_BINARY puts them into one"
        )
    else:
        raise Unreadable(f"has data in an unknown encoding {encoding[:40]!r}")
    column_major = attributes.get("ArrayIndexingOrder") == "ColumnMajorOrder"
    return flat.reshape(shape, order="F" if column_major else "C")


def _plain_bytes(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text)
    except ValueError as error:
        raise Unreadable(f"is damaged: its data are no base64 ({error})") from None


def _from_bytes(data: bytes, dtype: np.dtype[Any], size: int) -> NDArray[Any]:
    if len(data) != size:
        raise Unreadable(f"is truncated: an array should have {size} bytes, {len(data)} are there")
    return np.frombuffer(data, dtype)
