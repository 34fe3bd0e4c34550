"""Tables of participants and provenance, as the JSON of a cohort store holds them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.errors import CohortError

Column = dict[str, Any]


def encode(name: str, values: ArrayLike | Sequence[Any]) -> Column:
    """A column as {"dtype", "values"}: "text", or a type of number; what is not known is None."""
    # a list of text and NaN must not become text all over
    listed: Any = values
    array = listed if isinstance(listed, np.ndarray) else np.array(list(listed), dtype=np.object_)
    if array.ndim != 1:
        raise ValueError(f"participants[{name!r}] must have one dimension; got shape {array.shape}")
    if array.dtype == object and all(isinstance(value, int | float | np.number) for value in array):
        array = np.array(array.tolist())
    if array.dtype.kind in "biuf":
        return {"dtype": array.dtype.name, "values": [_number(name, value) for value in array.tolist()]}
    found = [None if _missing(value) else value for value in array.tolist()]
    if all(value is None or isinstance(value, int | float) for value in found):
        return {"dtype": "float64", "values": [None if value is None else _number(name, value) for value in found]}
    return {"dtype": "text", "values": [None if value is None else str(value) for value in found]}


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _number(name: str, value: float) -> float | None:
    if isinstance(value, float) and math.isinf(value):
        raise ValueError(f"participants[{name!r}] must be finite or missing; it holds {value}")
    return None if _missing(value) else value


def decode(column: Mapping[str, Any]) -> NDArray[Any]:
    """The column as it was: missing numbers are NaN, missing text is None."""
    values = list(column["values"])
    if column["dtype"] == "text":
        complete = all(isinstance(value, str) for value in values)
        return np.array(values, dtype=str if complete else object)
    dtype = np.dtype(column["dtype"])
    if dtype.kind not in "biuf":
        raise ValueError(f"a column holds {column['dtype']!r}, neither text nor numbers")
    if dtype.kind == "f":
        values = [math.nan if value is None else value for value in values]
    return np.array(values, dtype=dtype)


def join(name: str, old: Column, new: Column) -> Column:
    """Two pieces of one column, one after the other."""
    pieces = [piece for piece in (old, new) if any(value is not None for value in piece["values"])]
    kinds = {piece["dtype"] == "text" for piece in pieces}
    if len(kinds) > 1:
        words = ["text" if piece["dtype"] == "text" else "numbers" for piece in (old, new)]
        raise CohortError(f"participants[{name!r}] holds {words[0]} for the first subjects and {words[1]} for others")
    values = [*old["values"], *new["values"]]
    if True in kinds:
        return {"dtype": "text", "values": values}
    dtype = np.result_type(*(np.dtype(piece["dtype"]) for piece in (old, new) if piece["dtype"] != "text"))
    if dtype.kind != "f" and None in values:
        dtype = np.dtype(np.float64)
    return {"dtype": dtype.name, "values": values}


def shared_provenance(steps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What all inputs of a store have in common, and the steps themselves; one simulated input makes it simulated."""
    steps = list(steps)
    inputs = [dict(source) for step in steps for source in step.get("inputs", [])]
    shared: dict[str, Any] = {}
    if inputs:
        shared = {
            key: value
            for key, value in inputs[0].items()
            if key != "steps" and all(key in other and other[key] == value for other in inputs[1:])
        }
    if any(source.get("simulated") for source in inputs):
        shared["simulated"] = True
    return {**shared, "steps": steps}
