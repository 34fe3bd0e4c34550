"""Zip files of arrays: NumPy's npz and zarr's zip. No pickles; sizes are checked before anything is
allocated.

Equal arrays give equal bytes: members carry no time of writing. Every member's CRC-32 is compared
on reading.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from icofactor.io.guard import Unreadable, check_growth, open_file, read_exactly, volume
from icofactor.io.json import MAX_TEXT, parse_json

Arrays = dict[str, NDArray[Any]]
Header = tuple[tuple[int, ...], bool, np.dtype[Any]]
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_MAX_DIMENSIONS = 8
_MAX_HEADER, _MAX_SIGNS, _SIGNS = 10_000, 200, (b"(", b"[", b"{", b"-", b"+", b"~")
_LAST_CHARACTER, _SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)
_ROOT = "zarr.json"
NUMBERS = {
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
}
# Numbers hardly shrink more at higher levels, which take three times as long.
_LEVEL = 1
_LARGE, _TRIED, _WORTHWHILE = 2**22, 2**18, 0.5
"""Bytes from which on, and of which, it is tried how much compression gains, and the share that it
must reach.
"""


def digest(*arrays: Any) -> str:
    """SHA-256 of arrays: shape, type and every byte, in C order."""
    total = hashlib.sha256()
    for array in arrays:
        values = np.asarray(array)
        total.update(f"{values.shape}{values.dtype.str}".encode())
        step = max(1, 2**24 // max(1, values[:1].nbytes)) if values.ndim else 1
        for first in range(0, len(values) if values.ndim else 0, step):
            total.update(np.ascontiguousarray(values[first : first + step]).tobytes())
        if not values.ndim:
            total.update(values.tobytes())
    return total.hexdigest()


# ---------------------------------------------------------------------- npz


def array_header(file: IO[bytes]) -> Header:
    """Shape, order and type in a npy header; the file is then at its numbers."""
    try:
        version = np.lib.format.read_magic(file)
    except ValueError:
        raise Unreadable(
            "is not a npy file, or contains a member that is not one: NumPy's mark is missing"
        ) from None
    width, read = (
        (2, np.lib.format.read_array_header_1_0)
        if version == (1, 0)
        else (4, np.lib.format.read_array_header_2_0)
    )
    size = file.read(width)
    length = int.from_bytes(size, "little")
    text = file.read(length) if length <= _MAX_HEADER else b""
    # it is Python, read by Python's parser, which runs out of its stack where signs or brackets
    # follow each other
    if len(text) < length or sum(text.count(sign) for sign in _SIGNS) > _MAX_SIGNS:
        raise Unreadable("is damaged: the header of an array cannot be read")
    try:
        shape, fortran, dtype = read(io.BytesIO(size + text))
    except Exception:  # tokens, syntax, names of types
        raise Unreadable("is damaged: the header of an array cannot be read") from None
    if dtype.hasobject:
        raise Unreadable("contains Python objects, which are never loaded; save plain arrays")
    if len(shape) > _MAX_DIMENSIONS or any(n < 0 for n in shape):
        raise Unreadable(f"is damaged: an array of {len(shape)} dimensions, or of lengths below 0")
    return shape, fortran, dtype


def archive_members(archive: zipfile.ZipFile, stored: int) -> dict[str, zipfile.ZipInfo]:
    """Name → member of a zip of arrays, refused where the whole would grow too much."""
    members: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for info in archive.infolist():
        if info.compress_type not in _METHODS or info.flag_bits & _ENCRYPTED:
            raise Unreadable(
                f"contains {info.filename[:80]!r} encrypted, or compressed in a way that is not supported"
            )
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise Unreadable(f"contains {name[:80]!r} twice")
        total += info.file_size
        check_growth(total, stored)
        members[name] = info
    return members


def load_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """One array of an npz, its checksum compared."""
    with archive.open(info) as file:
        shape, fortran, dtype = array_header(file)
        size = volume(shape) * dtype.itemsize
        if size > info.file_size:
            raise Unreadable(
                f"is damaged: {info.filename[:80]} claims {size} bytes of data, and has {info.file_size}"
            )
        data = read_exactly(file, size, max(info.compress_size, info.file_size))
        file.read(1)  # the end of the member, where its checksum is compared
    if dtype.kind == "U":
        _check_text(np.frombuffer(data, dtype.str[0] + "u4"), info.filename)
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def read_npz(path: Path) -> Arrays:
    """All arrays of an npz file: numbers and text."""
    with open_archive(path) as (archive, members):
        found = {name: load_member(archive, info) for name, info in members.items()}
    for name, array in found.items():
        if array.dtype.kind not in "biufU":
            raise Unreadable(
                f"is damaged: {name[:80]} contains {array.dtype.kind!r}, neither numbers nor text"
            )
    return found


def write_npz(path: Path, arrays: Mapping[str, NDArray[Any]], compress: bool = False) -> None:
    """An npz file of plain arrays, on the disk when this returns.

    NumPy's own savez leaves its archive open after an error, which then complains whenever it is
    collected.
    """
    with _written(path, compress) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


# ---------------------------------------------------------------------- zarr in a zip


def write_zarr(
    path: Path, attributes: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> None:
    """A zarr 3 group in a zip, each array in one chunk of plain little-endian numbers."""
    groups = {
        "/".join(parts[:n])
        for parts in (name.split("/") for name in arrays)
        for n in range(1, len(parts))
    }
    with _written(path, compress=True) as archive:
        write_member(archive, _ROOT, _json(group_record(attributes)))
        for group in sorted(groups):
            write_member(archive, f"{group}/{_ROOT}", _json(group_record()))
        for name, array in arrays.items():
            values = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(
                array.shape
            )
            write_member(
                archive, f"{name}/{_ROOT}", _json(array_record(values.shape, values.dtype.name))
            )
            if values.size:
                write_member(
                    archive, _chunk(name, values.ndim), values.reshape(-1).view(np.uint8).data
                )


def read_zarr_attributes(path: Path) -> dict[str, Any]:
    """The attributes of the group in a zip; empty where it is not one of zarr."""
    with open_archive(path) as (archive, members):
        root = parse_json(_read_member(archive, members[_ROOT])) if _ROOT in members else None
    attributes = root.get("attributes") if isinstance(root, dict) else None
    return attributes if isinstance(attributes, dict) else {}


def read_zarr(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Attributes and arrays that `write_zarr` wrote; anything in another form is refused."""
    with open_archive(path) as (archive, members):
        records = {
            name: parse_json(_read_member(archive, members.pop(name))) for name in _records(members)
        }
        root = records.pop(_ROOT, None)
        if not isinstance(root, dict) or root != group_record(root.get("attributes")):
            raise Unreadable(f"is damaged: {_ROOT} is not the record of a zarr 3 group")
        arrays: Arrays = {}
        for name, record in records.items():
            folder = name.removesuffix(f"/{_ROOT}")
            if record != group_record():
                arrays[folder] = _read_array(archive, members, folder, record)
        if members:
            raise Unreadable(
                f"is damaged: it contains {next(iter(members))[:80]!r}, which icofactor did not write"
            )
    return dict(root["attributes"]), arrays


def _records(members: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in members if name == _ROOT or name.endswith(f"/{_ROOT}"))


def _read_array(
    archive: zipfile.ZipFile, members: dict[str, Any], name: str, record: Any
) -> NDArray[Any]:
    shape: Any = record.get("shape") if isinstance(record, dict) else None
    if (
        not is_shape(shape)
        or record.get("data_type") not in NUMBERS
        or record != array_record(shape, record["data_type"])
    ):
        raise Unreadable(
            f"is damaged: {name[:80]} is not an array of numbers in the form that icofactor writes"
        )
    dtype, chunk = np.dtype(record["data_type"]).newbyteorder("<"), _chunk(name, len(shape))
    size = volume(shape) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    if chunk not in members:
        raise Unreadable(f"is damaged: {chunk[:80]} is missing")
    info = members.pop(chunk)
    if info.file_size != size:
        raise Unreadable(
            f"is damaged: {chunk[:80]} should contain {size} bytes, and has {info.file_size}"
        )
    return np.frombuffer(_read_member(archive, info), dtype).reshape(shape)


def group_record(attributes: Any = None) -> dict[str, Any]:
    """Zarr's metadata of a group."""
    return {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {} if attributes is None else attributes,
    }


def is_shape(found: Any) -> bool:
    """Whether a JSON value is the shape of an array."""
    return (
        isinstance(found, list)
        and len(found) <= _MAX_DIMENSIONS
        and all(type(n) is int and n >= 0 for n in found)
    )


def array_record(shape: Any, data_type: str, chunks: Any = None) -> dict[str, Any]:
    """Zarr's metadata of an array of plain numbers, in one chunk by default."""
    chunks = [max(1, n) for n in shape] if chunks is None else list(chunks)
    wide = data_type not in ("bool", "int8", "uint8")
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": False if data_type == "bool" else 0,
        "codecs": [
            {"name": "bytes", "configuration": {"endian": "little"}} if wide else {"name": "bytes"}
        ],
        "attributes": {},
    }


def _chunk(name: str, dimensions: int) -> str:
    return "/".join([name, "c", *["0"] * dimensions])


def _json(record: Any) -> bytes:
    return json.dumps(record, ensure_ascii=False, indent=1).encode()


# ---------------------------------------------------------------------- the zip itself


@contextmanager
def open_archive(path: Path) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """A zip of arrays and its members by name."""
    with open_file(path) as stream, zipfile.ZipFile(stream) as archive:
        yield archive, archive_members(archive, path.stat().st_size)


@contextmanager
def _written(path: Path, compress: bool) -> Iterator[zipfile.ZipFile]:
    """A new zip, on the disk at the end; members that are opened by name carry the date 1980-01-01."""
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with open(path, "wb") as stream:
        with zipfile.ZipFile(stream, "w", method, allowZip64=True, compresslevel=_LEVEL) as archive:
            yield archive
        stream.flush()
        os.fsync(stream.fileno())


def write_member(archive: zipfile.ZipFile, name: str, data: bytes | memoryview) -> None:
    """A member, compressed unless it is large and would hardly become smaller: that takes longer
    than all else.
    """
    middle = len(data) // 2
    place: str | zipfile.ZipInfo = name
    if (
        len(data) > _LARGE
        and len(zlib.compress(data[middle : middle + _TRIED], _LEVEL)) > _WORTHWHILE * _TRIED
    ):
        place = zipfile.ZipInfo(name)  # as it is
    with archive.open(place, "w", force_zip64=True) as member:
        member.write(data)


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes | bytearray:
    """The bytes of a member, its checksum compared."""
    if info.filename.endswith(_ROOT) and info.file_size > MAX_TEXT:
        raise Unreadable(
            f"is too large: its record has {info.file_size} bytes, at most {MAX_TEXT} are read"
        )
    with archive.open(info) as file:
        data = read_exactly(file, info.file_size, max(info.compress_size, info.file_size))
        file.read(1)
    return data


def _check_text(codes: NDArray[Any], name: str) -> None:
    low, high = _SURROGATES
    if codes.size and (codes.max() > _LAST_CHARACTER or ((codes >= low) & (codes <= high)).any()):
        raise Unreadable(f"is damaged: {name[:80]} contains broken characters")
