"""NumPy's npy and npz without pickles, and with sizes checked before anything is allocated."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from icofactor.io.guard import Unreadable, check_growth, check_regular, read_exactly, volume

Header = tuple[tuple[int, ...], bool, np.dtype[Any]]
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_MAX_DIMENSIONS = 8
_MAX_HEADER, _MAX_SIGNS, _SIGNS = 10_000, 200, (b"(", b"[", b"{", b"-", b"+", b"~")
_LAST_CHARACTER, _SURROGATES = 0x10FFFF, (0xD800, 0xDFFF)


def array_header(file: IO[bytes]) -> Header:
    """Shape, order and type that a npy header tells; the file is then at its numbers."""
    try:
        version = np.lib.format.read_magic(file)
    except ValueError:
        raise Unreadable("is no npy file, or holds an array that is none: NumPy's mark is missing") from None
    width, read = (
        (2, np.lib.format.read_array_header_1_0) if version == (1, 0) else (4, np.lib.format.read_array_header_2_0)
    )
    size = file.read(width)
    length = int.from_bytes(size, "little")
    text = file.read(length) if length <= _MAX_HEADER else b""
    # it is Python, read by Python's parser, which runs out of its stack where signs or brackets follow each other
    if len(text) < length or sum(text.count(sign) for sign in _SIGNS) > _MAX_SIGNS:
        raise Unreadable("is damaged: the header of an array cannot be read")
    try:
        shape, fortran, dtype = read(io.BytesIO(size + text))
    except Exception:  # tokens, syntax, names of types
        raise Unreadable("is damaged: the header of an array cannot be read") from None
    if dtype.hasobject:
        raise Unreadable("holds Python objects, which are never loaded; save plain arrays")
    if len(shape) > _MAX_DIMENSIONS or any(n < 0 for n in shape):
        raise Unreadable(f"is damaged: an array of {len(shape)} dimensions, or of lengths below 0")
    return shape, fortran, dtype


def archive_members(archive: zipfile.ZipFile, stored: int) -> dict[str, zipfile.ZipInfo]:
    """Name → member of an npz, refused where the whole would grow too much."""
    members: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for info in archive.infolist():
        if info.compress_type not in _METHODS or info.flag_bits & _ENCRYPTED:
            raise Unreadable(f"holds {info.filename[:80]!r} encrypted, or compressed in a way that NumPy does not use")
        name = info.filename.removesuffix(".npy")
        if name in members:
            raise Unreadable(f"holds {name[:80]!r} twice")
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
            raise Unreadable(f"is damaged: {info.filename[:80]} claims {size} bytes of data, and has {info.file_size}")
        data = read_exactly(file, size, max(info.compress_size, info.file_size))
        file.read(1)  # the end of the member, where its checksum is compared
    if dtype.kind == "U":
        _check_text(np.frombuffer(data, dtype.str[0] + "u4"), info.filename)
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file: numbers and text."""
    check_regular(path)
    with path.open("rb") as stream, zipfile.ZipFile(stream) as archive:
        found = {
            name: load_member(archive, info) for name, info in archive_members(archive, path.stat().st_size).items()
        }
    for name, array in found.items():
        if array.dtype.kind not in "biufU":
            raise Unreadable(f"is damaged: {name[:80]} holds {array.dtype.kind!r}, neither numbers nor text")
    return found


def _check_text(codes: NDArray[Any], name: str) -> None:
    low, high = _SURROGATES
    if codes.size and (codes.max() > _LAST_CHARACTER or ((codes >= low) & (codes <= high)).any()):
        raise Unreadable(f"is damaged: {name[:80]} holds broken characters")
