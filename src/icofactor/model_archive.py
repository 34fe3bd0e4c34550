"""The zip file of a model, looked at before anything in it is believed.

A model is a zarr 3 group in a zip: plain numbers, compressed by zstd. Members are stored, chunks have the size that
the arrays' metadata tell, and none is missing, so that a file cannot grow in memory beyond what it tells at once.
"""

from __future__ import annotations

import math
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.reading.limits import Unreadable, check_growth
from icofactor.reading.records import parse_json

_RECORD = "zarr.json"
_TYPES = {"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float32", "float64"}
_CODECS = (["bytes"], ["bytes", "zstd"])
_ZSTD = b"\x28\xb5\x2f\xfd"
_ENCRYPTED = 0x1


def check_archive(file: Path) -> None:
    """Refuse a zip that is no model's, is damaged, or would grow beyond measure."""
    stored, total = file.stat().st_size, 0
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if len(members) != len(archive.infolist()):
            raise Unreadable("holds a member twice")
        for info in members.values():
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _ENCRYPTED:
                raise Unreadable(f"is no model of icofactor: {info.filename[:80]!r} is compressed or encrypted")
            total += info.file_size
        if total > stored:  # stored members can only be larger than the file when they overlap
            raise Unreadable("is damaged: its members overlap")
        if _RECORD not in members:
            raise Unreadable("is a zip file, but not a model of icofactor")
        total = 0
        for name in members:
            if name == _RECORD or name.endswith(f"/{_RECORD}"):
                total += _check_array(archive, members, name.removesuffix(_RECORD), stored)
                check_growth(total, stored)


def _check_array(archive: zipfile.ZipFile, members: dict[str, Any], folder: str, stored: int) -> int:
    """Bytes that the array (or group) in a folder of the zip takes in memory."""
    record = parse_json(archive.read(folder + _RECORD))
    if not isinstance(record, dict) or record.get("zarr_format") != 3:
        raise Unreadable(f"is damaged: {folder}{_RECORD} is no record of zarr 3")
    if record.get("node_type") == "group":
        return 0
    try:
        shape, chunks = record["shape"], record["chunk_grid"]["configuration"]["chunk_shape"]
        known = (
            record["node_type"] == "array"
            and record["data_type"] in _TYPES
            and [codec["name"] for codec in record["codecs"]] in _CODECS
            and record["chunk_grid"]["name"] == "regular"
            and record["chunk_key_encoding"] == {"name": "default", "configuration": {"separator": "/"}}
            and not record.get("storage_transformers")
            and len(shape) == len(chunks)
            and all(type(n) is int and n >= 0 for n in shape)
            and all(type(n) is int and n > 0 for n in chunks)
        )
    except (KeyError, TypeError):
        known = False
    if not known:
        raise Unreadable(f"is damaged: {folder[:80]} is not an array of numbers in the form that icofactor writes")
    item = np.dtype(record["data_type"]).itemsize
    size, chunk = math.prod(shape) * item, math.prod(chunks) * item
    check_growth(size, stored)
    check_growth(chunk, stored)
    packed = len(record["codecs"]) == 2
    for numbers in product(*(range(-(-n // step)) for n, step in zip(shape, chunks, strict=True))):
        _check_chunk(archive, members, "/".join([f"{folder}c", *map(str, numbers)]), chunk, packed)
    return size


def _check_chunk(archive: zipfile.ZipFile, members: dict[str, Any], name: str, size: int, packed: bool) -> None:
    if name not in members:
        raise Unreadable(f"is damaged: {name[:80]} is missing")  # zarr would read it as zeros
    if packed:
        with archive.open(name) as file:
            claimed = zstd_size(file.read(18))
    else:
        claimed = members[name].file_size
    if claimed != size:
        said = "does not say so" if claimed is None else f"claims {claimed}"
        raise Unreadable(f"is damaged: {name[:80]} should hold {size} bytes, and {said}")


def zstd_size(head: bytes) -> int | None:
    """Size that the header of a zstd frame tells (RFC 8878, 3.1.1.1); None where it tells none."""
    if len(head) < 6 or head[:4] != _ZSTD:
        return None
    flag, single = head[4] >> 6, bool(head[4] & 0x20)
    width = (1 if single else 0, 2, 4, 8)[flag]
    place = 5 + (0 if single else 1) + (0, 1, 2, 4)[head[4] & 0x3]
    if width == 0 or place + width > len(head):
        return None
    return int.from_bytes(head[place : place + width], "little") + (256 if width == 2 else 0)
