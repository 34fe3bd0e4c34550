"""Whether diagnostics that were read are whole: every field of its kind, and shapes that go together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from icofactor.io.guard import Unreadable
from icofactor.results.diagnostics.record import Association, Convergence, Diagnostics, Grouping, Unusual

_PLAIN: dict[str, tuple[type, ...]] = {"str": (str,), "bool": (bool,), "int": (int,), "float": (int, float)}
_RECORDS = {record.__name__: record for record in (Association, Convergence, Grouping, Unusual)}
# v sites, n subjects, k components
_SHAPES = {
    **dict.fromkeys(("median", "deviation", "explained_map", "parcellation", "depth"), "v"),
    **dict.fromkeys(("residual", "subject_explained", "order"), "n"),
    **dict.fromkeys(("alone", "unique", "l1_B", "l1_C", "extent", "component_order"), "k"),
    **dict.fromkeys(("overlap", "similarity", "together"), "kk"),
    "loadings": "nk",
}


def check_diagnostics(found: Diagnostics) -> None:
    """Refuse diagnostics that a report could not show."""
    _check_record(found)
    sizes = {"v": found.median.size, "n": len(found.subjects), "k": found.alone.size}
    for name, letters in _SHAPES.items():
        _check_shape(name, getattr(found, name), tuple(sizes[letter] for letter in letters))
    for name, below in (("order", sizes["n"]), ("component_order", sizes["k"])):
        if not np.array_equal(np.sort(getattr(found, name)), np.arange(below)):
            raise Unreadable(f"is damaged: {name} is not an order of {below}")
    if found.tree.ndim != 2 or found.tree.shape[1] != 4:
        raise Unreadable(f"is damaged: tree has shape {found.tree.shape}")
    _check_numbers("parcellation", found.parcellation, 0, sizes["k"])
    columns: list[Association | Grouping] = [*found.associations, *found.groupings]
    for column in columns:
        _check_shape(f"p of {column.column[:40]}", column.p, (sizes["k"],))
    for one in found.associations:
        _check_shape(f"values of {one.column[:40]}", one.values, (sizes["n"],))
        _check_shape(f"r of {one.column[:40]}", one.r, (sizes["k"],))
    for group in found.groupings:
        _check_shape(f"codes of {group.column[:40]}", group.codes, (sizes["n"],))
        _check_numbers(f"codes of {group.column[:40]}", group.codes, -1, len(group.labels) - 1)
        _check_shape(f"eta2 of {group.column[:40]}", group.eta2, (sizes["k"],))
        _check_shape(f"boxes of {group.column[:40]}", group.boxes, (len(group.labels), sizes["k"], 5))
    _check_convergence(found.convergence)
    unusual = found.unusual
    for name in ("subject", "component", "value", "z"):
        _check_shape(f"{name} of the unusual subjects", getattr(unusual, name), (unusual.subject.size,))
    _check_numbers("the unusual subjects", unusual.subject, 0, sizes["n"] - 1)
    _check_numbers("the unusual subjects' components", unusual.component, -1, sizes["k"] - 1)


def _check_convergence(found: Convergence) -> None:
    _check_shape("objective", found.objective, (found.updates.size,))
    _check_shape("band", found.band, (5, found.band_updates.size))
    for name in ("updates", "band_updates", "divisions", "n_columns"):
        _check_shape(name, getattr(found, name), (getattr(found, name).size,))


def _check_record(record: Any) -> None:
    """Every field as its annotation says."""
    for field in fields(record):
        value, kind = getattr(record, field.name), str(field.type)
        if not _is(value, kind):
            raise Unreadable(f"is damaged: {field.name} is a {type(value).__name__}, not {kind}")
        if kind.startswith("tuple[") and kind[6:].split(",")[0] in _RECORDS:
            for item in value:
                _check_record(item)
        elif kind in _RECORDS:
            _check_record(value)


def _is(value: Any, kind: str) -> bool:
    if kind == "np.ndarray":
        return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
    if kind in _PLAIN:
        return isinstance(value, _PLAIN[kind]) and (kind == "bool" or not isinstance(value, bool))
    if kind in _RECORDS:
        return isinstance(value, _RECORDS[kind])
    inner = kind[kind.index("[") + 1 : -1].split(", ")
    if kind.startswith("tuple"):
        return isinstance(value, tuple) and all(_is(item, inner[0]) for item in value)
    return isinstance(value, Mapping) and all(isinstance(k, str) and _is(v, inner[1]) for k, v in value.items())


def _check_shape(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise Unreadable(f"is damaged: {name} has shape {array.shape}, not {shape}")


def _check_numbers(name: str, array: np.ndarray, low: int, high: int) -> None:
    if array.size and not (array.dtype.kind in "iu" and array.min() >= low and array.max() <= high):
        raise Unreadable(f"is damaged: {name} must be whole numbers from {low} to {high}")
