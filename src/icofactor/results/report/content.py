"""What the page holds: numbers and words as JSON, arrays in one compressed block."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.results.diagnostics.record import Association, Diagnostics, Grouping
from icofactor.results.report import colours
from icofactor.results.report.atlas import read_atlas
from icofactor.results.report.faces import face_lines
from icofactor.results.report.figures import SHARP_PERCENTILE, top_of
from icofactor.results.report.selection_figures import selection_charts
from icofactor.results.report.selection_files import Beside
from icofactor.results.report.surfaces import Cortex, Surfaces, cortex_of, labels_on_vertices, n_vertices, on_vertices

_MOST_COLUMNS = 40
_DIGITS = 5


class Block:
    """Arrays that travel together; `put` gives the ticket by which the page finds one again."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def put(self, array: np.ndarray) -> dict[str, Any]:
        """Append an array of uint8, uint16, uint32 or float32, little-endian, aligned to four bytes."""
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
    low, high = (float(values[known].min()), float(values[known].max())) if known.any() else (0.0, 0.0)
    width = high - low if high > low else 1.0
    codes = np.zeros(values.shape, dtype=np.uint16)
    codes[known] = 1 + np.round(65534 * (values[known] - low) / width).astype(np.uint16)
    return codes, low, low + width


def page_content(
    model: Any,
    diagnostics: Diagnostics,
    *,
    provenance: Mapping[str, Any] | None = None,
    methods: str = "",
    beside: Beside | None = None,
    surfaces: Surfaces | None = None,
    atlas: Sequence[str | Path] | None = None,
) -> str:
    """The page's data as JSON text, safe inside an HTML script element."""
    block = Block()
    beside = beside or Beside()
    content = {
        "summary": _summary(model, diagnostics),
        "cortex": _cortex(model, diagnostics, block, surfaces, atlas, beside.component_se),
        "panels": _panels(diagnostics, block),
        "provenance": None if provenance is None else json.dumps(_plain(provenance), indent=2, ensure_ascii=False),
        "methods": methods,
        "selection": _selection(beside.selection),
        "stability": _plain(beside.stability),
        "loading_se": None if beside.loading_se is None else block.numbers(beside.loading_se),
        "overlap": _plain(beside.overlap),
        "timing": _plain(diagnostics.timing),
        "memory": diagnostics.memory,
        "warnings": list(diagnostics.warnings),
    }
    content["block"] = block.text()
    return safe_json(content)


def _selection(selection: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if selection is None:
        return None
    charts = [{"title": title, "curves": curves} for title, curves in selection_charts(selection["table"])]
    shown = {name: selection.get(name) for name in ("table", "recommended", "reasons")}
    return {"charts": charts, **_plain(shown)}


def safe_json(content: Any) -> str:
    """JSON that no HTML parser takes for markup, whatever words are in it."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plain(value: Any) -> Any:
    """The same with plain numbers of few digits; NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value


def component_units(model: Any, units: str) -> str:
    """Units of the maps: the data's, but none for projective methods, whose loadings carry them."""
    from icofactor.factorization.methods import method_named

    return units if method_named(model.solution_.method).scheme.scaled else ""


def title_of(d: Diagnostics) -> str:
    """What was found, in a few words."""
    of = "" if d.modality in ("", "unknown") else f" of {d.modality}"
    return f"{len(d.alone)} component{'s' * (len(d.alone) != 1)}{of}"


def _summary(model: Any, d: Diagnostics) -> dict[str, Any]:
    n_used = model.sites_.n if model.mask_ is None else int(model.mask_.sum())
    return {
        "title": title_of(d),
        "subjects": len(d.subjects),
        "components": len(d.alone),
        "sites": n_used,
        "masked": model.sites_.n - n_used,
        "on": model.sites_.on,
        "mesh": model.sites_.name or f"a mesh of {model.sites_.n_mesh // len(model.sites_.frames):,} {model.sites_.on}",
        "hemisphere": d.hemisphere,
        "method": model.solution_.method,
        "rules": model.solution_.rules,
        "updates": int(model.n_iter_),
        "faces": int(model.design_.n_columns),
        "columns": model.design_.kind,
        "explained": _plain(d.explained),
        "explained_X": _plain(d.explained_X),
        "modality": d.modality,
        "units": d.units,
        "simulated": d.simulated,
    }


# The cortex


def _cortex(
    model: Any,
    d: Diagnostics,
    block: Block,
    surfaces: Surfaces | None,
    atlas: Sequence[str | Path] | None,
    errors: np.ndarray | None,
) -> dict[str, Any]:
    """Surfaces and layers; where the mesh cannot be drawn, the reason."""
    sites = model.sites_
    try:
        cortex = cortex_of(sites, model.hemi_, surfaces)
    except ValueError as problem:
        if surfaces is not None:
            raise
        return {"missing": str(problem), "ramps": {"viridis": block.put(colours.ramp("viridis"))}}
    shapes = cortex.shapes
    halves = []
    for number, half in enumerate(cortex.hemispheres):
        lines = face_lines(sites, model.design_.faces, number if len(sites.frames) == 2 else 0, half)
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
                    "segments": block.indices(lines.segments, 2**16 if len(lines.corners) <= 2**16 else 2**32),
                },
            }
        )
    ramps = {name: block.put(colours.ramp(name)) for name in (*colours.SEQUENTIAL, "diverging")}
    return {
        "note": cortex.note,
        "shapes": shapes,
        "halves": halves,
        "layers": [*_layers(model, d, cortex, block), *_error_layers(model, d, cortex, block, errors)],
        "ramps": ramps,
        "distinct": block.put(colours.distinct(len(d.alone))),
        "regions": _regions(cortex, sites, block, atlas),
    }


def _shape(block: Block, coordinates: np.ndarray) -> dict[str, Any]:
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    codes = np.round(65535 * (coordinates - low) / width).astype(np.uint16)
    return {"codes": block.put(codes), "low": _plain(low), "width": _plain(width)}


def _regions(cortex: Cortex, sites: Any, block: Block, atlas: Sequence[str | Path] | None) -> dict[str, Any] | None:
    if not atlas:
        return None
    sides = [half.side for half in cortex.hemispheres]
    regions, names = read_atlas(atlas, sides, n_vertices(sites), nested=sites.name in ("fsaverage5", "fsaverage6"))
    numbers = [block.indices(regions[half.side][half.vertices], 2**16) for half in cortex.hemispheres]
    return {"names": list(names), "numbers": numbers}


def _layers(model: Any, d: Diagnostics, cortex: Cortex, block: Block) -> list[dict[str, Any]]:
    """One per map; values on the drawn vertices, hemispheres one after the other."""
    mask, units = model.mask_, d.units
    hidden = (lambda values: values) if mask is None else (lambda values: np.where(mask, values, np.nan))
    maps = hidden(np.asarray(model.components_, dtype=np.float64))
    layers = []
    tops = [top_of(one) for one in maps]
    signed = bool(np.nanmin(maps) < 0)
    for j, one in enumerate(maps):
        end = {"low": -tops[j] if signed else 0.0, "high": tops[j], "shared": max(tops), "cut": 0.2}
        layers.append(
            _layer(block, model, cortex, one, "component", f"Component {j + 1}", signed=signed, **end)
            | {"units": component_units(model, units), "share": _plain(d.alone[j])}
        )
    spans = {
        "median": (d.median, "Median over subjects", units, *_middle(d.median)),
        "deviation": (d.deviation, "Standard deviation over subjects", units, 0.0, top_of(d.deviation)),
        "explained": (d.explained_map, "Explained between-subject variance", "share", 0.0, 1.0),
    }
    for key, (values, name, unit, low, high) in spans.items():
        layers.append(_layer(block, model, cortex, values, key, name, low=low, high=high) | {"units": unit})
    depth = hidden(d.depth.astype(np.float64))
    deepest = max(1.0, float(np.nanmax(depth)))
    layers.append(
        _layer(block, model, cortex, depth, "depth", "Refinement depth", low=0.0, high=deepest, steps=True, cut=0.01)
        | {"units": "divisions"}
    )
    parts = [
        labels[half.vertices]
        for labels, half in zip(
            _halves(labels_on_vertices(model.sites_, d.parcellation), cortex), cortex.hemispheres, strict=True
        )
    ]
    layers.append(
        {
            "key": "parcellation",
            "name": "Parcellation: the largest component",
            "labels": True,
            "values": block.indices(np.concatenate(parts), len(d.alone) + 1),
            "units": "",
        }
    )
    return layers


def _error_layers(
    model: Any, d: Diagnostics, cortex: Cortex, block: Block, errors: np.ndarray | None
) -> list[dict[str, Any]]:
    """Standard errors of the components, when subjects were resampled."""
    if errors is None:
        return []
    shown = errors if model.mask_ is None else np.where(model.mask_, errors, np.nan)
    tops = [top_of(one) for one in shown]
    units = {"units": component_units(model, d.units)}
    return [
        _layer(
            block, model, cortex, one, "error", f"Standard error of component {j + 1}",
            low=0.0, high=tops[j], shared=max(tops),
        ) | units
        for j, one in enumerate(shown)
    ]  # fmt: skip


def _layer(
    block: Block, model: Any, cortex: Cortex, values: np.ndarray, key: str, name: str, **more: Any
) -> dict[str, Any]:
    parts = _halves(on_vertices(model.sites_, values), cortex)
    drawn = np.concatenate([part[half.vertices] for part, half in zip(parts, cortex.hemispheres, strict=True)])
    codes, low, high = quantised(drawn)
    return {"key": key, "name": name, "values": block.put(codes), "from": low, "to": high, **_plain(more)}


def _halves(parts: list[Any], cortex: Cortex) -> list[Any]:
    """One part per hemisphere drawn."""
    return parts[: len(cortex.hemispheres)]


def _middle(values: np.ndarray) -> tuple[float, float]:
    """Ends of a colour scale that need not start at 0."""
    known = values[np.isfinite(values)]
    low, high = np.percentile(known, (100 - SHARP_PERCENTILE, SHARP_PERCENTILE)) if known.size else (0.0, 1.0)
    return float(low), float(high if high > low else low + 1)


# The panels


def _panels(d: Diagnostics, block: Block) -> dict[str, Any]:
    c = d.convergence
    k = len(d.alone)
    return {
        "subjects": list(d.subjects),
        "loadings": block.numbers(d.loadings),
        "residual": block.numbers(d.residual),
        "subject_explained": block.numbers(d.subject_explained),
        "order": d.order.tolist(),
        "component_order": d.component_order.tolist(),
        "tree": block.numbers(d.tree),
        "convergence": _plain({name: getattr(c, name) for name in c.__dataclass_fields__}),
        "components": _plain({name: getattr(d, name) for name in ("alone", "unique", "l1_B", "l1_C", "extent")}),
        "linear": _plain(d.linear),
        "matrices": {name: block.numbers(getattr(d, name)) for name in ("overlap", "similarity", "together")},
        "n_components": k,
        "columns": _columns(d, block),
        "left_out": dict(d.left_out),
        "unusual": _plain({name: getattr(d.unusual, name) for name in d.unusual.__dataclass_fields__}),
        "units": d.units,
    }


def _columns(d: Diagnostics, block: Block) -> list[dict[str, Any]]:
    """The participants' columns, the clearest ones when there are very many."""
    every: list[Association | Grouping] = [*d.associations, *d.groupings]
    found = sorted(every, key=lambda item: float(item.p.min()))[:_MOST_COLUMNS]
    listed = []
    for item in found:
        common = {"column": item.column, "n": item.n, "p": _plain(item.p)}
        if isinstance(item, Association):
            listed.append({**common, "strength": _plain(item.r), "values": block.numbers(item.values)})
        else:
            codes = block.put(np.where(item.codes < 0, 255, item.codes).astype(np.uint8))
            listed.append(
                {
                    **common,
                    "strength": _plain(item.eta2),
                    "labels": list(item.labels),
                    "codes": codes,
                    "boxes": _plain(item.boxes),
                }
            )
    return listed
