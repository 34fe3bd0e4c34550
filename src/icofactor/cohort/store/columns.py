"""Columns of the participants' table as the store keeps them in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import ArgumentError, CohortError, shown

# {"dtype", "values"}, where dtype is "text" or a type of number.
Column = dict[str, Any]


def encode_column(name: str, values: ArrayLike | Sequence[Any]) -> Column:
    """Return a column as JSON holds it; unknown values are None."""
    listed: Any = values
    # A list of text and NaN must not become text all over.
    array = listed if isinstance(listed, np.ndarray) else np.array(list(listed), dtype=np.object_)
    if array.ndim != 1:
        raise ArgumentError("participants", f"must have one dimension in column {shown(name)}")
    if array.dtype == object and all(isinstance(value, int | float | np.number) for value in array):
        array = np.array(array.tolist())
    values_or_none = [None if is_unknown(value) else value for value in array.tolist()]
    are_numbers = all(value is None or isinstance(value, int | float) for value in values_or_none)
    if array.dtype.kind not in "biuf" and not are_numbers:
        words = [None if value is None else str(value) for value in values_or_none]
        return {"dtype": "text", "values": words}
    if any(isinstance(value, float) and math.isinf(value) for value in values_or_none):
        raise ArgumentError("participants", f"must be finite or missing in column {shown(name)}")
    dtype = array.dtype.name if array.dtype.kind in "biuf" else "float64"
    return {"dtype": dtype, "values": values_or_none}


def decode_column(column: Mapping[str, Any]) -> NDArray[Any]:
    """Return the column as it was: missing numbers are NaN, missing text is None."""
    values = list(column["values"])
    if column["dtype"] == "text":
        is_complete = all(isinstance(value, str) for value in values)
        return np.array(values, dtype=str if is_complete else object)
    dtype = np.dtype(column["dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"a column contains {column['dtype']!r}, neither text nor numbers")
    if dtype.kind == "f":
        values = [math.nan if value is None else value for value in values]
    return np.array(values, dtype=dtype)


def join_columns(name: str, first: Column, second: Column) -> Column:
    """Return two pieces of one column, one after the other."""
    values = [*first["values"], *second["values"]]
    known = [piece for piece in (first, second) if set(piece["values"]) - {None}]
    n_text = sum(piece["dtype"] == "text" for piece in known)
    if 0 < n_text < len(known):
        kinds = ["text" if piece["dtype"] == "text" else "numbers" for piece in known]
        message = f"column {shown(name)} contains {kinds[0]} for the first subjects and {kinds[1]}"
        raise CohortError("participants", f"{message} for others")
    if n_text:
        return {"dtype": "text", "values": values}
    numbers = [piece["dtype"] for piece in (first, second) if piece["dtype"] != "text"]
    dtype = np.result_type(*map(np.dtype, numbers)) if numbers else np.dtype(np.float64)
    if dtype.kind != "f" and None in values:
        dtype = np.dtype(np.float64)
    return {"dtype": dtype.name, "values": values}


def is_unknown(value: Any) -> bool:
    """Return whether a value is None or NaN."""
    return value is None or (isinstance(value, float | np.floating) and math.isnan(value))
