"""The cortex of the page: surfaces, and layers of values on them; how arrays travel."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.io.freesurfer import Labels
from icofactor.io.tables import plain
from icofactor.results import colours
from icofactor.results.meaning import component_units, scale_label
from icofactor.results.report.figures import SHARP_PERCENTILE, top_of
from icofactor.results.report.surfaces import (
    Cortex,
    Hemisphere,
    face_lines,
    labels_on_vertices,
    on_vertices,
)
from icofactor.results.report.tables import n_used

if TYPE_CHECKING:
    from icofactor.results.description import FitDescription

# More digits than the page shows, so that no number is rounded twice.
_DIGITS = 8
# Maps open with values below this share of the scale hidden.
_HIDDEN = 0.2
# Steps of a map's values: 16 bits, of which 0 means no value.
_STEPS = 65534


class Block:
    """Arrays that travel together; `put` gives the ticket by which the page finds one again."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def put(self, array: np.ndarray) -> dict[str, Any]:
        """Append an array of uint8, uint16, uint32 or float32, aligned to four bytes."""
        data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        ticket = {"type": str(array.dtype), "at": self._size, "n": int(array.size)}
        # JavaScript reads arrays of numbers only from multiples of their size.
        padded = data + b"\0" * (-len(data) % 4)
        self._pieces.append(padded)
        self._size += len(padded)
        return ticket

    def indices(self, values: Any, below: int) -> dict[str, Any]:
        """Append whole numbers from 0 to `below` − 1, in as few bytes as that takes."""
        kind = np.uint8 if below <= 2**8 else np.uint16 if below <= 2**16 else np.uint32
        return self.put(np.asarray(values, dtype=kind))

    def text(self) -> str:
        """Return all arrays, deflated, in base64."""
        return base64.b64encode(zlib.compress(b"".join(self._pieces), 9)).decode()


def viewer_data(fit: FitDescription) -> str:
    """Return what the page's script draws, as JSON text that is safe inside a script element."""
    block = Block()
    data = {
        "titles": fit.titles,
        "masked": n_used(fit) < fit.model.sites_.n,
        "on": fit.model.sites_.on,
        "cortex": _cortex(fit, block) if fit.cortex.hemispheres else None,
    }
    data["block"] = block.text()
    return safe_json(data)


def safe_json(content: Any) -> str:
    """Return JSON that no HTML parser takes for markup, whatever text is in it."""
    text = json.dumps(_short(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _short(value: Any) -> Any:
    """Return plain numbers of few digits; NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(key): _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray | np.generic):
        value = plain(value)
    if isinstance(value, list):
        return [_short(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value


def quantised(values: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Return values as 1 to 65535 over their range, 0 where not finite, and the range."""
    usable = np.isfinite(values)
    low = float(values[usable].min()) if usable.any() else 0.0
    high = float(values[usable].max()) if usable.any() else 0.0
    width = high - low if high > low else 1.0
    codes = np.zeros(values.shape, dtype=np.uint16)
    codes[usable] = 1 + np.round(_STEPS * (values[usable] - low) / width).astype(np.uint16)
    return codes, low, low + width


def _cortex(fit: FitDescription, block: Block) -> dict[str, Any]:
    cortex = fit.cortex
    # The script chooses among these without drawing a page again.
    names = (*colours.SEQUENTIAL, "diverging")
    return {
        "shapes": cortex.shapes,
        "halves": [_half(fit, number, block) for number in range(len(cortex.hemispheres))],
        "layers": list(_layers(fit, block)),
        "ramps": {name: block.put(colours.ramp(name)) for name in names},
        "distinct": block.put(colours.distinct_colours(len(fit.diagnostics.alone))),
        "regions": None if fit.regions is None else _regions(cortex, fit.regions, block),
    }


def _half(fit: FitDescription, number: int, block: Block) -> dict[str, Any]:
    sites = fit.model.sites_
    half = fit.cortex.hemispheres[number]
    hemisphere_number = number if sites.n_hemispheres == 2 else 0
    lines = face_lines(sites, fit.model.design_.faces, hemisphere_number, half)
    n = len(half.vertices)
    drawn_all = np.array_equal(half.vertices, np.arange(n))
    return {
        "side": half.side,
        "named": fit.model.hemi_ is not None,
        "n": n,
        "vertices": None if drawn_all else block.indices(half.vertices, 2**32),
        "triangles": block.indices(half.triangles, n),
        "shapes": [_shape(half, name, block) for name in fit.cortex.shapes],
        # From −1 to 1 in 255 steps.
        "folding": block.put(np.round(127.5 + 127.5 * half.folding).astype(np.uint8)),
        "lines": {
            "corners": block.indices(lines.corners, n),
            "weights": block.put(np.round(255 * lines.weights[:, :2]).astype(np.uint8)),
            "segments": block.indices(lines.segments, max(2**16, len(lines.corners))),
        },
    }


def _shape(half: Hemisphere, name: str, block: Block) -> dict[str, Any]:
    coordinates = half.shapes[name]
    low = coordinates.min(axis=0)
    high = coordinates.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    codes = np.round(65535 * (coordinates - low) / width).astype(np.uint16)
    return {"codes": block.put(codes), "low": low, "width": width}


def _regions(cortex: Cortex, regions: Mapping[str, Labels], block: Block) -> dict[str, Any]:
    """Return names of regions, the first of them for none, and the region of each drawn vertex."""
    numbers: dict[str, int] = {"": 0}
    by_half = []
    for half in cortex.hemispheres:
        keys, names = regions[half.side]
        number = np.zeros(len(keys), dtype=np.int64)
        for key in np.unique(keys):
            number[keys == key] = numbers.setdefault(names.get(int(key), ""), len(numbers))
        by_half.append(block.indices(number[half.vertices], 2**16))
    return {"names": list(numbers), "numbers": by_half}


def _layers(fit: FitDescription, block: Block) -> Iterator[dict[str, Any]]:
    """Yield the layers of every measure that has maps of its own; keys of those after the first end
    with the measure.
    """
    for number, (measure, one_measure) in enumerate(fit.by_measure()):
        for layer in _measure_layers(one_measure, block):
            if measure:
                layer["measure"] = measure
                layer["name"] = f"{layer['name']}, {measure}"
                layer["group"] = f"{layer['group']}, {measure}"
            if number:
                layer["key"] = f"{layer['key']}:{measure}"
            yield layer
    yield from _error_layers(fit, block)


def _measure_layers(fit: FitDescription, block: Block) -> Iterator[dict[str, Any]]:
    """Yield one layer per map; values on the drawn vertices, hemispheres one after the other."""
    model = fit.model
    d = fit.diagnostics
    maps = _unmasked(model, np.asarray(model.components_, dtype=np.float64))
    tops = [top_of(values) for values in maps]
    signed = bool(np.nanmin(maps) < 0)
    for j, values in enumerate(maps):
        yield {
            **_layer(block, fit, values, "component", fit.titles[j], group="Component"),
            "low": -tops[j] if signed else 0.0,
            "high": tops[j],
            "shared": max(tops),
            "cut": _HIDDEN,
            "signed": signed,
            "units": component_units(model, d.units),
            "scale": scale_label(model, d.units),
            "share": d.unique[j],
        }
    # Cortex is 2 to 4 mm thick: a scale from 0 would waste half of its colours.
    low, high = _middle(d.median)
    for key, values, name, units, ends in (
        ("median", d.median, "Median over subjects", d.units, (low, high)),
        (
            "deviation",
            d.deviation,
            "Standard deviation over subjects",
            d.units,
            (0.0, top_of(d.deviation)),
        ),
        (
            "explained",
            d.explained_map,
            "Explained between-subject variance",
            "share",
            (0.0, 1.0),
        ),
    ):
        layer = _layer(block, fit, values, key, name)
        yield {**layer, "low": ends[0], "high": ends[1], "units": units}
    depth = _unmasked(model, d.depth.astype(np.float64))
    yield {
        **_layer(block, fit, depth, "depth", "Refinement depth"),
        "low": 0.0,
        "high": max(1.0, float(np.nanmax(depth))),
        "steps": True,
        "cut": 0.01,
        "units": "divisions",
    }
    # Labels are not mixed between vertices, as values are.
    halves = labels_on_vertices(model.sites_, d.parcellation)
    name = "Parcellation: the largest component"
    yield {
        "key": "parcellation",
        "name": name,
        "group": name,
        "labels": True,
        "values": block.indices(_on_drawn(fit.cortex, halves), len(d.alone) + 1),
        "units": "",
    }


def _unmasked(model: Any, values: np.ndarray) -> np.ndarray:
    """Return values with NaN at masked sites."""
    return values if model.mask_ is None else np.where(model.mask_, values, np.nan)


def _error_layers(fit: FitDescription, block: Block) -> Iterator[dict[str, Any]]:
    """Yield standard errors of the components, when subjects were resampled."""
    measures = fit.model.measures_
    errors = fit.selection.component_se
    if errors is None:
        return
    # With shared maps there is one error for all measures.
    separate_maps = measures is not None and measures.share == "loadings"
    by_measure = measures.maps(errors) if separate_maps else {"": errors}
    for number, (measure, one_measure) in enumerate(fit.by_measure()):
        model = one_measure.model
        maps = _unmasked(model, by_measure[measure])
        suffix = f", {measure}" if measure else ""
        tops = [top_of(values) for values in maps]
        for j, values in enumerate(maps):
            name = f"Standard error of c{fit.titles[j][1:]}{suffix}"
            group = f"Standard error of the component{suffix}"
            key = f"error:{measure}" if number else "error"
            yield {
                **_layer(block, one_measure, values, key, name, group=group),
                "low": 0.0,
                "high": tops[j],
                "shared": max(tops),
                "units": component_units(model, one_measure.diagnostics.units),
            }


def _layer(
    block: Block,
    fit: FitDescription,
    values: np.ndarray,
    key: str,
    name: str,
    group: str | None = None,
) -> dict[str, Any]:
    drawn = _on_drawn(fit.cortex, on_vertices(fit.model.sites_, values))
    codes, low, high = quantised(drawn)
    return {
        "key": key,
        "name": name,
        "group": group or name,
        "values": block.put(codes),
        "from": low,
        "to": high,
    }


def _on_drawn(cortex: Cortex, halves: list[Any]) -> np.ndarray:
    """Return values on the drawn vertices of all hemispheres, one after the other."""
    # A mesh without hemispheres has one half, whatever is drawn.
    drawn = zip(halves[: len(cortex.hemispheres)], cortex.hemispheres, strict=True)
    return np.concatenate([values[half.vertices] for values, half in drawn])


def _middle(values: np.ndarray) -> tuple[float, float]:
    """Return ends of a colour scale that need not start at 0."""
    usable = values[np.isfinite(values)]
    if not usable.size:
        return 0.0, 1.0
    low, high = np.percentile(usable, (100 - SHARP_PERCENTILE, SHARP_PERCENTILE))
    return float(low), float(high if high > low else low + 1)
