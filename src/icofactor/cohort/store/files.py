"""Files of a store on disk as zarr reads them, and the arrays in them.

This module imports zarr, so it is imported where a store is used and not before.
"""

from __future__ import annotations

import asyncio
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec
from zarr.storage import LocalStore, StorePath

from icofactor.cohort.store.layout import MARK, reading
from icofactor.io.guard import Unreadable, open_file
from icofactor.io.json import MAX_TEXT, parse_json

# Largest chunk that is read, and largest array that is read at once.
LARGEST_CHUNK = 2**28
LARGEST_ARRAY = 2**31
ENCODING = {"name": "default", "configuration": {"separator": "/"}}
# What follows the values of a chunk: their CRC-32C.
CHECKSUM_BYTES = 4
# Booleans, whole and real numbers.
KINDS = "biuf"


class LocalFiles(LocalStore):
    """The files of a store on disk; one that is missing or has a wrong size is an error.

    zarr would fill in for a missing chunk.

    Attributes
    ----------
    address : folder of the store
    sizes : bytes of every chunk of an array, by the array's name
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root, read_only=True)
        self.address = str(root)
        self.sizes: dict[str, int] = {}

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        """Read a whole file for zarr, which never needs a part of one here."""
        content = await asyncio.to_thread(self._read, key)
        return prototype.buffer.from_bytes(content)

    def _read(self, key: str) -> bytes:
        file = self.root / key
        array, _, _ = key.rpartition("/c/")
        with reading(file), open_file(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            if size != self.sizes[array]:
                raise Unreadable(f"is damaged: it has {size} bytes instead of {self.sizes[array]}")
            return stream.read()


def open_files(path: Path | str) -> Any:
    """Return the files of the store in a folder or behind a URL, for reading."""
    if isinstance(path, Path):
        return LocalFiles(path)
    from icofactor.io.remote import RemoteFiles

    return RemoteFiles(path, MAX_TEXT)


def read_remote_mark(url: str) -> Any:
    """Return what the root of a store behind a URL says, from JSON."""
    content = open_files(url).start(MARK).result()
    with reading(f"{url}/{MARK}"):
        return parse_json(content)


def open_array(files: Any, name: str, metadata: Any) -> zarr.Array:
    """Open an array by its metadata; refuse what is not in the form that icofactor writes."""
    with reading(f"{files.address}/{name}"):
        dtype = np.dtype(metadata["data_type"])
        chunks = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        if dtype.kind not in KINDS or metadata["codecs"] != codecs_record(dtype):
            raise Unreadable("is damaged: it is not in the form that icofactor writes")
        if metadata["chunk_key_encoding"] != ENCODING:
            raise Unreadable("is damaged: its chunks are not where icofactor writes them")
        size = math.prod(chunks) * dtype.itemsize + CHECKSUM_BYTES
        if size > LARGEST_CHUNK:
            raise Unreadable(f"has chunks of {size} bytes; at most {LARGEST_CHUNK} are read")
        files.sizes[name] = size
        return zarr.Array.from_dict(StorePath(files, name), dict(metadata))


def read_array(files: Any, name: str, metadata: Any) -> np.ndarray:
    """Read a whole array."""
    array = open_array(files, name, metadata)
    with reading(f"{files.address}/{name}"):
        if array.nbytes > LARGEST_ARRAY:
            raise Unreadable(f"is damaged: it claims {array.nbytes} bytes")
        values = np.asarray(array[...])
    values.setflags(write=False)
    return values


def create_array(group: zarr.Group, name: str, shape: Any, chunks: Any, dtype: Any) -> zarr.Array:
    """Create an empty array in a store."""
    dtype = np.dtype(dtype)
    return group.create_array(
        name,
        shape=shape,
        chunks=tuple(max(1, size) for size in chunks),
        dtype=dtype,
        fill_value=math.nan if dtype.kind == "f" else 0,
        serializer=BytesCodec(endian="little" if dtype.itemsize > 1 else None),
        compressors=[Crc32cCodec()],
        filters=None,
        # A reader takes a missing chunk for damage.
        config={"write_empty_chunks": True},
    )


def write_array(group: zarr.Group, name: str, values: np.ndarray) -> None:
    """Write a small array in one chunk."""
    create_array(group, name, values.shape, values.shape, values.dtype)[...] = values


def codecs_record(dtype: np.dtype) -> list[Any]:
    """Return what zarr's metadata say of plain little-endian numbers with a checksum."""
    codec: dict[str, Any] = {"name": "bytes"}
    if dtype.itemsize > 1:
        codec["configuration"] = {"endian": "little"}
    return [codec, {"name": "crc32c"}]
