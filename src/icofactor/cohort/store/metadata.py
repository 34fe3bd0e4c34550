"""Metadata of arrays and columns as the store writes them in JSON, and their checksums."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import ArgumentError, CohortError, shown
from icofactor.io.archive import digest
from icofactor.io.guard import Unreadable

_MAX_DIMENSIONS = 8
NUMBERS = {
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    "float32",
    "float64",
}
Column = dict[str, Any]
"""A column in JSON: {"dtype", "values"}, where dtype is "text" or a type of number."""


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


def encode_column(name: str, values: ArrayLike | Sequence[Any]) -> Column:
    """A column as JSON holds it; what is not known is None."""
    # a list of text and NaN must not become text all over
    listed: Any = values
    array = listed if isinstance(listed, np.ndarray) else np.array(list(listed), dtype=np.object_)
    if array.ndim != 1:
        raise ArgumentError("participants", f"must have one dimension in column {shown(name)}")
    if array.dtype == object and all(isinstance(value, int | float | np.number) for value in array):
        array = np.array(array.tolist())
    if array.dtype.kind in "biuf":
        return {
            "dtype": array.dtype.name,
            "values": [_number(name, value) for value in array.tolist()],
        }
    found = [None if _unknown(value) else value for value in array.tolist()]
    if all(value is None or isinstance(value, int | float) for value in found):
        return {
            "dtype": "float64",
            "values": [None if value is None else _number(name, value) for value in found],
        }
    return {"dtype": "text", "values": [None if value is None else str(value) for value in found]}


def _number(name: str, value: float) -> float | None:
    if isinstance(value, float) and math.isinf(value):
        raise ArgumentError("participants", f"must be finite or missing in column {shown(name)}")
    return None if _unknown(value) else value


def decode_column(column: Mapping[str, Any]) -> NDArray[Any]:
    """The column as it was: missing numbers are NaN, missing text is None."""
    values = list(column["values"])
    if column["dtype"] == "text":
        complete = all(isinstance(value, str) for value in values)
        return np.array(values, dtype=str if complete else object)
    dtype = np.dtype(column["dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"a column contains {column['dtype']!r}, neither text nor numbers")
    if dtype.kind == "f":
        values = [math.nan if value is None else value for value in values]
    return np.array(values, dtype=dtype)


def join_columns(name: str, old: Column, new: Column) -> Column:
    """Two pieces of one column, one after the other."""
    pieces = [piece for piece in (old, new) if any(value is not None for value in piece["values"])]
    kinds = {piece["dtype"] == "text" for piece in pieces}
    if len(kinds) > 1:
        first, second = ("text" if piece["dtype"] == "text" else "numbers" for piece in (old, new))
        what = (
            f"column {shown(name)} contains {first} for the first subjects and {second} for others"
        )
        raise CohortError("participants", what)
    values = [*old["values"], *new["values"]]
    if True in kinds:
        return {"dtype": "text", "values": values}
    dtype = np.result_type(
        *(np.dtype(piece["dtype"]) for piece in (old, new) if piece["dtype"] != "text")
    )
    if dtype.kind != "f" and None in values:
        dtype = np.dtype(np.float64)
    return {"dtype": dtype.name, "values": values}


def _unknown(value: Any) -> bool:
    return value is None or (isinstance(value, (float, np.floating)) and math.isnan(value))


def sealed(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The header with the checksum of itself and the arrays."""
    return {**header, "checksum": _checksum(header, arrays)}


def check_seal(header: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The header without its checksum, which is compared."""
    if not isinstance(header, dict) or "checksum" not in header:
        raise Unreadable("is damaged: it lacks its checksum")
    found = {name: value for name, value in header.items() if name != "checksum"}
    if header["checksum"] != _checksum(found, arrays):
        raise Unreadable("is damaged: its checksum is wrong")
    return found


def _checksum(header: Any, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of the header, and of the names, types, shapes and bytes of the arrays."""
    names = sorted(arrays)
    text = json.dumps([header, names], sort_keys=True).encode()
    return digest(np.frombuffer(text, np.uint8), *(arrays[name] for name in names))
