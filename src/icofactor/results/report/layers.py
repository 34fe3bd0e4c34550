"""The cortex of the page: surfaces, and layers of values on them; how arrays travel."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.io.freesurfer import Labels
from icofactor.io.tables import plain
from icofactor.results import colours
from icofactor.results.meaning import component_units, scale_label
from icofactor.results.report.figures import SHARP_PERCENTILE, top_of
from icofactor.results.report.surfaces import Cortex, face_lines, labels_on_vertices, on_vertices

if TYPE_CHECKING:
    from icofactor.results.description import FitDescription

_DIGITS = 8  # more than the page shows, so that nothing is rounded twice to another number than in the tables


class Block:
    """Arrays that travel together; `put` gives the ticket by which the page finds one again."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def put(self, array: np.ndarray) -> dict[str, Any]:
        """Append an array of uint8, uint16, uint32 or float32, little-endian, aligned to four
        bytes.
        """
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        ticket = {"type": str(array.dtype), "at": self._size, "n": int(array.size)}
        padded = data + b"\0" * (-len(data) % 4)
        self._parts.append(padded)
        self._size += len(padded)
        return ticket

    def numbers(self, values: Any) -> dict[str, Any]:
        """Measured values as float32."""
        return self.put(np.asarray(values, dtype=np.float32))

    def indices(self, values: Any, below: int) -> dict[str, Any]:
        """Whole numbers from 0 to `below` − 1, in as few bytes as that takes."""
        kind = np.uint8 if below <= 2**8 else np.uint16 if below <= 2**16 else np.uint32
        return self.put(np.asarray(values, dtype=kind))

    def text(self) -> str:
        """All of it, deflated, in base64."""
        return base64.b64encode(zlib.compress(b"".join(self._parts), 9)).decode()


def quantised(values: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Values as 1 to 65535 over their range, 0 where not finite; low and high end of the range."""
    known = np.isfinite(values)
    low, high = (
        (float(values[known].min()), float(values[known].max())) if known.any() else (0.0, 0.0)
    )
    width = high - low if high > low else 1.0
    codes = np.zeros(values.shape, dtype=np.uint16)
    codes[known] = 1 + np.round(65534 * (values[known] - low) / width).astype(np.uint16)
    return codes, low, low + width


def short(value: Any) -> Any:
    """The same in plain numbers of few digits; NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(key): short(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray | np.generic):
        value = plain(value)
    if isinstance(value, list):
        return [short(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value


def page_cortex(fit: FitDescription, block: Block) -> dict[str, Any]:
    """Surfaces and layers; where the mesh cannot be drawn, the reason."""
    model, d, cortex = fit.model, fit.diagnostics, fit.cortex
    if not cortex.hemispheres:
        return {
            "missing": cortex.note,
            "ramps": {name: block.put(colours.ramp(name)) for name in ("viridis", "diverging")},
        }
    sites, shapes = model.sites_, cortex.shapes
    halves = []
    for number, half in enumerate(cortex.hemispheres):
        lines = face_lines(
            sites, model.design_.faces, number if sites.n_hemispheres == 2 else 0, half
        )
        n = len(half.vertices)
        identity = np.array_equal(half.vertices, np.arange(n))
        halves.append(
            {
                "side": half.side,
                "named": model.hemi_ is not None,
                "n": n,
                "vertices": None if identity else block.indices(half.vertices, 2**32),
                "triangles": block.indices(half.triangles, n),
                "shapes": [_shape(block, half.shapes[name]) for name in shapes],
                "folding": block.put(np.round(127.5 + 127.5 * half.folding).astype(np.uint8)),
                "lines": {
                    "corners": block.indices(lines.corners, n),
                    "weights": block.put(np.round(255 * lines.weights[:, :2]).astype(np.uint8)),
                    "segments": block.indices(
                        lines.segments, 2**16 if len(lines.corners) <= 2**16 else 2**32
                    ),
                },
            }
        )
    ramps = {name: block.put(colours.ramp(name)) for name in (*colours.SEQUENTIAL, "diverging")}
    return {
        "note": cortex.note,
        "shapes": shapes,
        "halves": halves,
        "layers": [*_all_layers(fit, block), *_error_layers(fit, block)],
        "ramps": ramps,
        "distinct": block.put(colours.distinct_colours(len(d.alone))),
        "regions": None if fit.regions is None else _regions(cortex, fit.regions, block),
    }


def _shape(block: Block, coordinates: np.ndarray) -> dict[str, Any]:
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    codes = np.round(65535 * (coordinates - low) / width).astype(np.uint16)
    return {"codes": block.put(codes), "low": short(low), "width": short(width)}


def _regions(cortex: Cortex, regions: Mapping[str, Labels], block: Block) -> dict[str, Any]:
    """Names of regions, the first of them for none, and which of them each drawn vertex has."""
    numbers: dict[str, int] = {"": 0}
    found = []
    for half in cortex.hemispheres:
        keys, table = regions[half.side]
        number = np.zeros(len(keys), dtype=np.int64)
        for key in np.unique(keys):
            number[keys == key] = numbers.setdefault(table.get(int(key), ""), len(numbers))
        found.append(block.indices(number[half.vertices], 2**16))
    return {"names": list(numbers), "numbers": found}


def _all_layers(fit: FitDescription, block: Block) -> list[dict[str, Any]]:
    """The layers of every measure that has maps of its own; those after the first are told apart by
    their keys.
    """
    found = []
    for number, (measure, one) in enumerate(fit.by_measure()):
        for layer in _layers(one, block):
            of = {"measure": measure} | {
                part: f"{layer[part]}, {measure}" for part in ("name", "group")
            }
            found.append(
                layer
                | (of if measure else {})
                | ({"key": f"{layer['key']}:{measure}"} if number else {})
            )
    return found


def _layers(fit: FitDescription, block: Block) -> list[dict[str, Any]]:
    """One per map; values on the drawn vertices, hemispheres one after the other."""
    model, d, cortex, titles = fit.model, fit.diagnostics, fit.cortex, fit.titles
    mask, units = model.mask_, d.units
    hidden = (
        (lambda values: values) if mask is None else (lambda values: np.where(mask, values, np.nan))
    )
    maps = hidden(np.asarray(model.components_, dtype=np.float64))
    layers = []
    tops = [top_of(one) for one in maps]
    signed = bool(np.nanmin(maps) < 0)
    for j, one in enumerate(maps):
        end = {"low": -tops[j] if signed else 0.0, "high": tops[j], "shared": max(tops), "cut": 0.2}
        layers.append(
            _layer(block, model, cortex, one, "component", titles[j], signed=signed, **end)
            | {
                "units": component_units(model, units),
                "scale": scale_label(model, units),
                "share": short(d.unique[j]),
            }
        )
    spans = {
        "median": (d.median, "Median over subjects", units, *_middle(d.median)),
        "deviation": (
            d.deviation,
            "Standard deviation over subjects",
            units,
            0.0,
            top_of(d.deviation),
        ),
        "explained": (d.explained_map, "Explained between-subject variance", "share", 0.0, 1.0),
    }
    for key, (values, name, unit, low, high) in spans.items():
        layers.append(
            _layer(block, model, cortex, values, key, name, low=low, high=high) | {"units": unit}
        )
    depth = hidden(d.depth.astype(np.float64))
    deepest = max(1.0, float(np.nanmax(depth)))
    layers.append(
        _layer(
            block,
            model,
            cortex,
            depth,
            "depth",
            "Refinement depth",
            low=0.0,
            high=deepest,
            steps=True,
            cut=0.01,
        )
        | {"units": "divisions"}
    )
    parts = [
        labels[half.vertices]
        for labels, half in zip(
            _halves(labels_on_vertices(model.sites_, d.parcellation), cortex),
            cortex.hemispheres,
            strict=True,
        )
    ]
    layers.append(
        {
            "key": "parcellation",
            "name": "Parcellation: the largest component",
            "group": "Parcellation: the largest component",
            "labels": True,
            "values": block.indices(np.concatenate(parts), len(d.alone) + 1),
            "units": "",
        }
    )
    return layers


def _error_layers(fit: FitDescription, block: Block) -> list[dict[str, Any]]:
    """Standard errors of the components, when subjects were resampled."""
    model, errors = fit.model, fit.selection.component_se
    if errors is None:
        return []
    own_maps = model.measures_ is not None and model.measures_.share == "loadings"
    each = model.measures_.maps(errors) if own_maps else {"": errors}
    found = []
    for number, (measure, one) in enumerate(fit.by_measure()):
        mask, of = one.model.mask_, f", {measure}" * bool(measure)
        shown = each[measure] if mask is None else np.where(mask, each[measure], np.nan)
        tops, units = (
            [top_of(error) for error in shown],
            component_units(one.model, one.diagnostics.units),
        )
        key = f"error:{measure}" if number else "error"
        for j, error in enumerate(shown):
            ends = {"low": 0.0, "high": tops[j], "shared": max(tops)}
            name = f"Standard error of c{fit.titles[j][1:]}{of}"
            layer = _layer(block, one.model, fit.cortex, error, key, name, **ends)
            found.append(layer | {"units": units, "group": f"Standard error of the component{of}"})
    return found


def _layer(
    block: Block, model: Any, cortex: Cortex, values: np.ndarray, key: str, name: str, **more: Any
) -> dict[str, Any]:
    parts = _halves(on_vertices(model.sites_, values), cortex)
    drawn = np.concatenate(
        [part[half.vertices] for part, half in zip(parts, cortex.hemispheres, strict=True)]
    )
    codes, low, high = quantised(drawn)
    group = {"component": "Component", "error": "Standard error of the component"}.get(key, name)
    drawn_as = {"key": key, "name": name, "group": group}
    return {**drawn_as, "values": block.put(codes), "from": low, "to": high, **short(more)}


def _halves(parts: list[Any], cortex: Cortex) -> list[Any]:
    """One part per hemisphere drawn."""
    return parts[: len(cortex.hemispheres)]


def _middle(values: np.ndarray) -> tuple[float, float]:
    """Ends of a colour scale that need not start at 0."""
    known = values[np.isfinite(values)]
    low, high = (
        np.percentile(known, (100 - SHARP_PERCENTILE, SHARP_PERCENTILE))
        if known.size
        else (0.0, 1.0)
    )
    return float(low), float(high if high > low else low + 1)
