"""npz files: arrays of numbers and text, and records with a JSON header. No pickles.

Sizes are checked before anything is allocated; zip compares the CRC-32 of every member.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from icofactor.io.guard import (
    Unreadable,
    check_growth,
    open_file,
    volume,
)
from icofactor.io.json import parse_json

Arrays = dict[str, NDArray[Any]]
# Shape, whether the first axis is fastest, and type.
Header = tuple[tuple[int, ...], bool, np.dtype[Any]]
# Name of the array that holds the JSON text of a record.
_HEADER = "header"
# Bytes of the header of one array: it is Python, and Python's parser fails in deeper nests.
_LARGEST_HEADER = 2000
_BLOCK = 2**24


def digest(*arrays: Any) -> str:
    """Return the SHA-256 of arrays: shape, type and every byte, in C order."""
    total = hashlib.sha256()
    for array in arrays:
        values = np.atleast_1d(array)
        total.update(f"{np.shape(array)}{values.dtype.str}".encode())
        step = max(1, _BLOCK // max(1, values[:1].nbytes))
        for first in range(0, len(values), step):
            total.update(np.ascontiguousarray(values[first : first + step]).tobytes())
    return total.hexdigest()


def array_header(file: IO[bytes]) -> Header:
    """Read the header of a npy file; the file is then at its numbers."""
    version = npy.read_magic(file)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    try:
        shape, is_fortran, dtype = read_header(file, max_header_size=_LARGEST_HEADER)
    # What Python's parser says of deep nests.
    except (MemoryError, RecursionError):
        raise Unreadable("is damaged: the header of an array cannot be read") from None
    if dtype.hasobject:
        raise Unreadable("contains Python objects, which are never loaded; save plain arrays")
    return shape, is_fortran, dtype


@contextmanager
def open_archive(path: Path) -> Iterator[tuple[zipfile.ZipFile, dict[str, Header]]]:
    """Open an npz file, and read name → header of its arrays."""
    with open_file(path) as stream, zipfile.ZipFile(stream) as archive:
        file_size = os.fstat(stream.fileno()).st_size
        headers: dict[str, Header] = {}
        check_growth(sum(info.file_size for info in archive.infolist()), file_size)
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in headers or info.compress_type > zipfile.ZIP_DEFLATED:
                raise Unreadable(f"contains {name[:80]!r} twice, or compressed by another program")
            with archive.open(info) as file:
                headers[name] = array_header(file)
            shape, _, dtype = headers[name]
            if volume(shape) * dtype.itemsize > info.file_size:
                raise Unreadable(f"is damaged: {name[:80]!r} has less data than its shape {shape}")
        yield archive, headers


def load_member(
    archive: zipfile.ZipFile,
    name: str,
) -> NDArray[Any]:
    """Read one array of an npz file."""
    with archive.open(f"{name}.npy") as file:
        array = npy.read_array(file, allow_pickle=False, max_header_size=_LARGEST_HEADER)
        # At the end of a member its checksum is compared.
        if file.read(1):
            raise Unreadable(f"is damaged: {name[:80]!r} has more data than its shape")
    if array.dtype.kind == "U":
        # Python refuses what is no character.
        "".join(array.ravel().tolist()).encode()
    return array


def write_arrays(
    path: Path,
    header: Mapping[str, Any],
    arrays: Mapping[str, Any],
) -> None:
    """Write an npz file of arrays and a JSON header, on the disk when this returns."""
    # The names are part of the header: a damaged directory of a zip may leave an array out.
    text = json.dumps({**header, "arrays": sorted(arrays)}, ensure_ascii=False).encode()
    with open(path, "wb") as stream:
        np.savez(stream, **{_HEADER: np.frombuffer(text, np.uint8), **arrays})
        stream.flush()
        os.fsync(stream.fileno())


def read_arrays(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Read the header and the arrays that `write_arrays` wrote; this runs no code of the file."""
    with open_archive(path) as (archive, headers):
        if _HEADER not in headers:
            raise Unreadable("has no header: it is not a file of this kind")
        header = parse_json(load_member(archive, _HEADER).tobytes())
        arrays = {name: load_member(archive, name) for name in headers if name != _HEADER}
    if header.pop("arrays") != sorted(arrays):
        raise Unreadable("is damaged: its arrays are not those of its header")
    return header, arrays
