"""Files of a store as zarr reads them, and the arrays in them.

This module imports zarr, so it is imported where a store is used and not before.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import MemoryStore, StorePath

from icofactor.cohort.store.layout import reading
from icofactor.io.guard import Unreadable, open_file

# Largest chunk that is read, and largest array that is read at once.
LARGEST_CHUNK = 2**28
LARGEST_ARRAY = 2**31
# What follows the values of a chunk: their CRC-32C.
CHECKSUM_BYTES = 4


class StoreFiles(MemoryStore):
    """The chunks of a store for zarr; one that is missing or has a wrong size is an error.

    zarr's own stores have a missing chunk filled with NaN. MemoryStore provides what zarr demands
    of a store beside `get`.

    Attributes
    ----------
    address : folder or URL of the store
    sizes : bytes of every chunk of an array, by the array's name
    """

    def __init__(self, address: Path | str) -> None:
        super().__init__(read_only=True)
        self.address = address
        self.sizes: dict[str, int] = {}
        self._read: Callable[[str, int], Awaitable[bytes]]
        if isinstance(address, Path):
            self._read = lambda name, size: asyncio.to_thread(_read_file, address / name, size)
        else:
            from icofactor.io.remote import RemoteFolder

            self._read = RemoteFolder(address).read

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: object = None
    ) -> Buffer:
        """Read a whole file for zarr, which never needs a part of one here."""
        array, _, _ = key.rpartition("/c/")
        content = await self._read(key, self.sizes[array])
        buffers = prototype or default_buffer_prototype()
        return buffers.buffer.from_bytes(content)

    def __reduce__(self) -> tuple[Callable[..., StoreFiles], tuple[object, ...]]:
        return _open_again, (self.address, tuple(self.sizes.items()))


@lru_cache(maxsize=4)
def _open_again(address: Path | str, sizes: tuple[tuple[str, int], ...]) -> StoreFiles:
    """Return the files of a store in another process, which opens its connections once."""
    files = StoreFiles(address)
    files.sizes.update(sizes)
    return files


# A forked process must not use the connections of its parent.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_again.cache_clear)


class StoredArray(zarr.Array):
    """An array of a store. Another process that it is sent to opens the files for itself."""

    def __getitem__(self, selection: Any) -> np.ndarray:
        with reading(f"{self.store.address}/{self.path}"):
            return np.asarray(super().__getitem__(selection))


def _read_file(file: Path, size: int) -> bytes:
    """Return the content of a file that must have this size."""
    with reading(file), open_file(file) as stream:
        content = stream.read(size + 1)
        if len(content) != size:
            raise Unreadable(f"is damaged: it does not have {size} bytes")
        return content


def open_array(files: StoreFiles, name: str, metadata: Mapping[str, Any]) -> StoredArray:
    """Open an array by its metadata; refuse what is not in the form that icofactor writes."""
    with reading(f"{files.address}/{name}"):
        dtype = np.dtype(metadata["data_type"])
        chunks = metadata["chunk_grid"]["configuration"]["chunk_shape"]
        codecs = [codec.to_dict() for codec in (_serializer(dtype), Crc32cCodec())]
        size = math.prod(chunks) * dtype.itemsize + CHECKSUM_BYTES
        if metadata["codecs"] != codecs or size > LARGEST_CHUNK:
            raise Unreadable("is damaged: it is not in the form that icofactor writes")
        files.sizes[name] = size
        return StoredArray.from_dict(StorePath(files, name), dict(metadata))


def read_array(files: StoreFiles, name: str, metadata: Mapping[str, Any]) -> np.ndarray:
    """Read a whole array."""
    array = open_array(files, name, metadata)
    with reading(f"{files.address}/{name}"):
        if array.nbytes > LARGEST_ARRAY:
            raise Unreadable(f"is damaged: it claims {array.nbytes} bytes")
        values = array[...]
    values.setflags(write=False)
    return values


def create_array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: np.dtype,
) -> zarr.Array:
    """Create an empty array in a store."""
    return group.create_array(
        name,
        shape=shape,
        chunks=tuple(max(1, size) for size in chunks),
        dtype=dtype,
        fill_value=math.nan if dtype.kind == "f" else 0,
        serializer=_serializer(dtype),
        compressors=[Crc32cCodec()],
        filters=None,
        # A reader takes a missing chunk for damage.
        config={"write_empty_chunks": True},
    )


def _serializer(dtype: np.dtype) -> BytesCodec:
    return BytesCodec(endian="little" if dtype.itemsize > 1 else None)
