"""What the page holds: numbers and text as JSON, arrays in one compressed block."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.assessment.atlas import name_with_shares, rows_to_show
from icofactor.errors import counted
from icofactor.io.freesurfer import Labels
from icofactor.io.tables import plain
from icofactor.results import colours
from icofactor.results.diagnostics.record import Association, Diagnostics, Grouping
from icofactor.results.meaning import (
    adjusted_for,
    agreement_line,
    component_units,
    fitted_units,
    has_signed_loadings,
    meaning_of,
    measure_title,
    recurrence_line,
    scale_label,
    verdict,
)
from icofactor.results.methods_text import with_assessment
from icofactor.results.report.figures import SHARP_PERCENTILE, top_of
from icofactor.results.report.surfaces import Cortex, face_lines, labels_on_vertices, on_vertices
from icofactor.results.report.tables import mesh_text, settings_of

if TYPE_CHECKING:
    from icofactor.assessment.selection.choice import Choice
    from icofactor.results.description import FitDescription
    from icofactor.results.report.association_files import AssociationTables, LatentTables, NormTables

_MOST_COLUMNS, _MOST_CURVES = 40, 6
_DIGITS = 5
_CHARTS: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "Do halves of the subjects agree?",
        {"agreement": "halves", "null_agreement": "halves of rotated maps", "score": "score"},
    ),
    (
        "Do third people get the same loadings from two groups?",
        {"loadings": "loadings", "loadings_adjusted": "global mean taken out", "null_loadings": "rotated maps"},
    ),
    (
        "Error, share of between-subject variance",
        {"bicv": "blocks left out", "heldout": "subjects left out", "error": "data fitted"},
    ),
    ("Gain of one more component", {"gain": "in the data fitted"}),
    ("Do random starts agree?", {"cophenetic": "cophenetic correlation", "dispersion": "dispersion"}),
)
"""Curves of a selection that are drawn together: title, and column → its name."""


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


def page_content(fit: FitDescription, tables: Mapping[str, str]) -> str:
    """The page's data as JSON text, safe inside an HTML script element."""
    block, d, more = Block(), fit.diagnostics, fit.selection
    content = {
        "summary": _summary(fit),
        "cortex": _cortex(fit, block),
        "panels": _panels(fit, block),
        "tables": dict(tables),
        "settings": settings_of(fit),
        "provenance": None if fit.provenance is None else _readable(fit.provenance),
        "methods": with_assessment(fit.methods, more, fit.associations, fit.latent, fit.norm),
        "selection": None if more.choice is None else _selection(more.choice, len(d.alone)),
        "stability": _short(more.stability),
        "loading_se": None if more.loading_se is None else block.numbers(more.loading_se),
        "overlap": _overlap(more.overlap),
        "associations": None if fit.associations is None else _associations(fit.associations, block),
        "latent": None if fit.latent is None else _latent(fit.latent),
        "norm": None if fit.norm is None else _norm(fit.norm, block),
        "timing": _short(d.timing),
        "memory": d.memory,
        "warnings": list(d.warnings),
    }
    content["block"] = block.text()
    return safe_json(content)


def _readable(record: Mapping[str, Any]) -> str:
    """How the fit was made. Where its files lie stays in provenance.json: a page is shared more freely."""
    read = record.get("inputs")
    inputs = counted(len(read) if isinstance(read, Mapping) else 0, "file")
    shown = {name: _without_folders(_short(value)) for name, value in record.items() if name not in ("data", "inputs")}
    shown["inputs"] = f"{inputs}; provenance.json has their paths and checksums, and the steps of reading"
    return json.dumps(shown, indent=2, ensure_ascii=False)


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_folders(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _selection(choice: Choice, n_components: int) -> dict[str, Any]:
    known = [
        (title, {name: label for name, label in curves.items() if name in choice.table}) for title, curves in _CHARTS
    ]
    charts = [{"title": title, "curves": curves} for title, curves in known if curves]
    others = [{"title": name, "curves": {name: name}} for name in list(choice.table)[1 : 1 + _MOST_CURVES]]
    shown = {"table": choice.table, "recommended": choice.recommended, "reasons": choice.reasons}
    return {"charts": charts or others, "agreement": agreement_line(choice, n_components), **_short(shown)}


def safe_json(content: Any) -> str:
    """JSON that no HTML parser takes for markup, whatever text is in it."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _short(value: Any) -> Any:
    """The same in plain numbers of few digits; NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(key): _short(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray | np.generic):
        value = plain(value)
    if isinstance(value, list):
        return [_short(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None
    return value


def title_of(fit: FitDescription) -> str:
    """What was found, as a title: 10 components of deviations in thickness."""
    d = fit.diagnostics
    what = "" if d.modality in ("", "unknown") else measure_title(d.modality)
    joined = {"none": what, "mean": f"deviations{' in ' * bool(what)}{what}", "zscore": f"{what} z-scores".strip()}
    of = joined[fit.model.center_]
    return f"{counted(len(d.alone), 'component')}{' of ' * bool(of)}{of}"


def _scans(fit: FitDescription) -> str:
    """40 scans of 8 people; fitted on the first scan of each. Empty where rows are people."""
    told = (fit.provenance or {}).get("scans")
    found = told.get("summary") if isinstance(told, dict) else None
    return found[:200] if isinstance(found, str) else ""


def _summary(fit: FitDescription) -> dict[str, Any]:
    model, d, choice = fit.model, fit.diagnostics, fit.selection.choice
    masked = 0 if model.mask_ is None else int((~model.mask_).sum())
    return {
        "title": title_of(fit),
        "subjects": len(d.subjects),
        "scans": _scans(fit),
        "components": len(d.alone),
        "masked": masked,
        "on": model.sites_.on,
        "mesh": mesh_text(model.sites_),
        "hemisphere": "" if model.sites_.regions is not None and model.sites_.regions.hemi is None else d.hemisphere,
        "verdict": asdict(verdict(fit)),
        "meaning": meaning_of(model, d.modality, d.units),
        "trust": recurrence_line(model),
        "agreement": "" if choice is None else agreement_line(choice, len(d.alone)),
        "explained": _short(d.explained),
        "explained_X": _short(d.explained_X),
        "simulated": d.simulated,
        "adjusted": [] if model.covariates_ is None else list(model.covariates_.names),
        "harmonized": None if model.harmonization_ is None else model.harmonization_.column,
    }


# The cortex


def _cortex(fit: FitDescription, block: Block) -> dict[str, Any]:
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
        "layers": [*_layers(fit, block), *_error_layers(fit, block)],
        "ramps": ramps,
        "distinct": block.put(colours.distinct_colours(len(d.alone))),
        "regions": None if fit.regions is None else _regions(cortex, fit.regions, block),
    }


def _shape(block: Block, coordinates: np.ndarray) -> dict[str, Any]:
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    codes = np.round(65535 * (coordinates - low) / width).astype(np.uint16)
    return {"codes": block.put(codes), "low": _short(low), "width": _short(width)}


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


def _layers(fit: FitDescription, block: Block) -> list[dict[str, Any]]:
    """One per map; values on the drawn vertices, hemispheres one after the other."""
    model, d, cortex, titles = fit.model, fit.diagnostics, fit.cortex, fit.titles
    mask, units = model.mask_, d.units
    hidden = (lambda values: values) if mask is None else (lambda values: np.where(mask, values, np.nan))
    maps = hidden(np.asarray(model.components_, dtype=np.float64))
    layers = []
    tops = [top_of(one) for one in maps]
    signed = bool(np.nanmin(maps) < 0)
    for j, one in enumerate(maps):
        end = {"low": -tops[j] if signed else 0.0, "high": tops[j], "shared": max(tops), "cut": 0.2}
        layers.append(
            _layer(block, model, cortex, one, "component", titles[j], signed=signed, **end)
            | {"units": component_units(model, units), "scale": scale_label(model, units), "share": _short(d.unique[j])}
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


def _error_layers(fit: FitDescription, block: Block) -> list[dict[str, Any]]:
    """Standard errors of the components, when subjects were resampled."""
    model, errors = fit.model, fit.selection.component_se
    if errors is None:
        return []
    shown = errors if model.mask_ is None else np.where(model.mask_, errors, np.nan)
    tops = [top_of(one) for one in shown]
    units = {"units": component_units(model, fit.diagnostics.units)}
    return [
        _layer(
            block, model, fit.cortex, one, "error", f"Standard error of c{fit.titles[j][1:]}",
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
    return {"key": key, "name": name, "values": block.put(codes), "from": low, "to": high, **_short(more)}


def _halves(parts: list[Any], cortex: Cortex) -> list[Any]:
    """One part per hemisphere drawn."""
    return parts[: len(cortex.hemispheres)]


def _middle(values: np.ndarray) -> tuple[float, float]:
    """Ends of a colour scale that need not start at 0."""
    known = values[np.isfinite(values)]
    low, high = np.percentile(known, (100 - SHARP_PERCENTILE, SHARP_PERCENTILE)) if known.size else (0.0, 1.0)
    return float(low), float(high if high > low else low + 1)


# The panels


def _panels(fit: FitDescription, block: Block) -> dict[str, Any]:
    model, d = fit.model, fit.diagnostics
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
        "convergence": _short({name: getattr(c, name) for name in c.__dataclass_fields__}),
        "components": _short({name: getattr(d, name) for name in ("alone", "unique", "l1_B", "l1_C", "extent")}),
        "alone": alone_is_a_share(d),
        "linear": _short(d.linear),
        "matrices": {name: block.numbers(getattr(d, name)) for name in ("overlap", "similarity", "together")},
        "n_components": k,
        "titles": fit.titles,
        "columns": _columns(fit, block),
        "adjusted": list(adjusted_for(model)),
        "left_out": dict(d.left_out),
        "unusual": _short({name: getattr(d.unusual, name) for name in d.unusual.__dataclass_fields__}),
        "units": fitted_units(model, d.units),
        "signed": has_signed_loadings(model),
        "recurrence": _short(model.recurrence_),
        "n_near": int(model.starts_.n_near),
        "regions": None if model.sites_.regions is None else _bars(fit, block),
    }


def _bars(fit: FitDescription, block: Block) -> dict[str, Any]:
    """Components in regions."""
    model = fit.model
    return {
        "names": list(model.sites_.regions.names),
        "values": block.numbers(model.components_),
        "units": component_units(model, fit.diagnostics.units),
    }


def alone_is_a_share(d: Diagnostics) -> bool:
    """Whether what components carry alone can be read as a share: maps that overlap much carry more than all of it."""
    return bool(np.all((d.unique <= d.alone + 1e-9) & (d.alone <= 1)))


def clearest_columns(fit: FitDescription) -> list[Association | Grouping]:
    """The participants' columns, those most clearly related to a component first; covariates say nothing any more."""
    d, out = fit.diagnostics, adjusted_for(fit.model)
    every: list[Association | Grouping] = [*d.associations, *d.groupings]
    return sorted((item for item in every if item.column not in out), key=lambda item: float(item.p.min()))


def _overlap(table: Mapping[str, list[Any]] | None) -> dict[str, Any] | None:
    """The overlap with an atlas, the rows to show and the components' names with shares."""
    if table is None:
        return None
    numbers = sorted(set(table["component"]))
    shown = [row for j in numbers for row in rows_to_show(table, j)]
    own = {j: table["proposed_name"][table["component"].index(j)] for j in numbers}
    return _short(
        {
            **table,
            "shown": shown,
            "titles": [name_with_shares(table, j, own[j]) for j in numbers],
        }
    )


def _associations(found: AssociationTables, block: Block) -> dict[str, Any]:
    columns = [
        {
            "column": one.column,
            "labels": one.labels,
            "at": _short(one.at),
            "expected": _short(one.expected),
            "values": block.numbers(one.values),
            "adjusted": block.numbers(one.adjusted),
        }
        for one in found.columns
    ]
    settings = {name: found.settings[name] for name in ("formula", "model", "n_permutations", "notes")}
    return {"tests": _short(found.tests), "columns": columns, "people": list(found.people), **_short(settings)}


def _latent(found: LatentTables) -> dict[str, Any]:
    settings = {name: found.settings[name] for name in ("n_rows", "n_permutations", "n_bootstrap", "notes")}
    return {"latent": _short(found.latent), "variables": _short(found.variables), **_short(settings)}


def _norm(found: NormTables, block: Block) -> dict[str, Any]:
    settings = {name: found.settings[name] for name in ("formula", "chosen_by", "notes")}
    rows = {"people": list(found.people), "reference": found.reference.tolist(), "outside": list(found.outside)}
    return {**rows, "scores": block.numbers(found.scores), **_short(settings)}


def _columns(fit: FitDescription, block: Block) -> list[dict[str, Any]]:
    """The participants' columns, the clearest ones when there are very many."""
    listed = []
    for item in clearest_columns(fit)[:_MOST_COLUMNS]:
        common = {"column": item.column, "n": item.n, "p": _short(item.p)}
        if isinstance(item, Association):
            listed.append({**common, "strength": _short(item.r), "values": block.numbers(item.values)})
        else:
            codes = block.put(np.where(item.codes < 0, 255, item.codes).astype(np.uint8))
            listed.append(
                {
                    **common,
                    "strength": _short(item.eta2),
                    "labels": list(item.labels),
                    "codes": codes,
                    "boxes": _short(item.boxes),
                }
            )
    return listed
