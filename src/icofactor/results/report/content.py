"""What the page holds: numbers and text as JSON, arrays in one compressed block."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.assessment.atlas import OF_MEASURE, is_of, name_with_shares, rows_to_show
from icofactor.errors import counted
from icofactor.results.assessment_text import with_assessment
from icofactor.results.diagnostics.record import Association, Diagnostics, Grouping
from icofactor.results.meaning import (
    adjusted_for,
    adjustments,
    agreement_line,
    component_units,
    fitted_units,
    has_signed_loadings,
    meaning_of,
    measure_title,
    n_people,
    recurrence_line,
    verdict,
)
from icofactor.results.report.layers import Block, page_cortex, short
from icofactor.results.report.tables import (
    added_by_chance,
    gibibytes,
    mesh_text,
    norm_summary,
    settings_of,
)

if TYPE_CHECKING:
    from icofactor.assessment.selection.choice import Choice
    from icofactor.results.description import FitDescription
    from icofactor.results.report.association_files import (
        AssociationTables,
        LatentTables,
        NormTables,
    )

_MOST_COLUMNS, _MOST_CURVES = 40, 6
_CHARTS: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "Do halves of the subjects agree?",
        {"agreement": "halves", "null_agreement": "halves of rotated maps", "score": "score"},
    ),
    (
        "Do two groups give other people the same loadings?",
        {
            "loadings": "loadings",
            "loadings_adjusted": "without global mean",
            "null_loadings": "rotated maps",
        },
    ),
    (
        "Error, relative to the between-subject variance",
        {"bicv": "blocks left out", "heldout": "subjects left out", "error": "data fitted"},
    ),
    ("Gain of one more component", {"gain": "in the data fitted"}),
    (
        "Do random starts agree?",
        {"cophenetic": "cophenetic correlation", "dispersion": "dispersion"},
    ),
)
"""Curves of a selection that are drawn together: title, and column → its name."""


def page_content(fit: FitDescription, tables: Mapping[str, str]) -> str:
    """The page's data as JSON text, safe inside an HTML script element."""
    block, d, more = Block(), fit.diagnostics, fit.selection
    content = {
        "summary": _summary(fit),
        "cortex": page_cortex(fit, block),
        "panels": _panels(fit, block),
        "tables": dict(tables),
        "settings": settings_of(fit),
        "provenance": None if fit.provenance is None else _readable(fit.provenance),
        "methods": with_assessment(fit.methods, more, fit.associations, fit.latent, fit.norm),
        "selection": None if more.choice is None else _selection(more.choice, len(d.alone)),
        "stability": short(more.stability),
        "loading_se": None if more.loading_se is None else block.numbers(more.loading_se),
        "overlap": _overlap(more.overlap),
        "associations": None
        if fit.associations is None
        else _associations(fit.associations, block),
        "latent": None if fit.latent is None else _latent(fit.latent),
        "norm": None if fit.norm is None else _norm(fit.norm, block),
        "timing": short(d.timing),
        "memory": short(gibibytes(d.memory)),
        "warnings": list(d.warnings),
    }
    content["block"] = block.text()
    return safe_json(content)


def _readable(record: Mapping[str, Any]) -> str:
    """How the fit was made. Where its files lie stays in provenance.json: a page is shared more
    freely.
    """
    read = record.get("inputs")
    inputs = counted(len(read) if isinstance(read, Mapping) else 0, "file")
    shown = {
        name: _without_folders(short(value))
        for name, value in record.items()
        if name not in ("data", "inputs")
    }
    shown["inputs"] = (
        f"{inputs}; provenance.json lists their paths, checksums and the reading steps"
    )
    return json.dumps(shown, indent=2, ensure_ascii=False)


def _without_folders(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_folders(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def _selection(choice: Choice, n_components: int) -> dict[str, Any]:
    known = [
        (title, {name: label for name, label in curves.items() if name in choice.table})
        for title, curves in _CHARTS
    ]
    charts = [{"title": title, "curves": curves} for title, curves in known if curves]
    others = [
        {"title": name, "curves": {name: name}} for name in list(choice.table)[1 : 1 + _MOST_CURVES]
    ]
    shown = {"table": choice.table, "recommended": choice.recommended, "reasons": choice.reasons}
    return {
        "charts": charts or others,
        "agreement": agreement_line(choice, n_components),
        **short(shown),
    }


def safe_json(content: Any) -> str:
    """JSON that no HTML parser takes for markup, whatever text is in it."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def title_of(fit: FitDescription) -> str:
    """What was found, as a title: 10 components of deviations in thickness."""
    d = fit.diagnostics
    what = "" if d.modality in ("", "unknown") else measure_title(d.modality)
    joined = {
        "none": what,
        "mean": f"deviations{' in ' * bool(what)}{what}",
        "zscore": f"{what} z-scores".strip(),
    }
    of = joined[fit.model.center_]
    return f"{counted(len(d.alone), 'component')}{' of ' * bool(of)}{of}"


def _scans(fit: FitDescription) -> str:
    """40 scans of 8 people; fitted on the first scan of each. Empty where rows are people."""
    told = (fit.provenance or {}).get("scans")
    found = told.get("summary") if isinstance(told, dict) else None
    return found[:200] if isinstance(found, str) else ""


def _measures(fit: FitDescription) -> dict[str, Any] | None:
    """How several measures were joined, and each one's share of the variance fitted and explained."""
    measures, explained = fit.model.measures_, fit.diagnostics.measure_explained
    if measures is None or explained is None:
        return None
    scaled = {
        "none": "Their values were fitted as they are.",
        "variance": "Each was divided by the root of its total variance before the fit (scaled units).",
        "zscore": "They were fitted as z-scores.",
    }
    shared = {
        "maps": "One set of maps for all measures; every person has a loading per component and measure.",
        "loadings": "One loading per person and component; each measure has its own maps.",
    }
    table = {
        "names": list(measures.names),
        "weight": measures.weights,
        "variance": measures.variance,
    }
    about = f"{shared[measures.share]} {scaled[measures.scale]}"
    return dict(short({**table, "explained": explained, "about": about}))


def _summary(fit: FitDescription) -> dict[str, Any]:
    model, d, choice = fit.model, fit.diagnostics, fit.selection.choice
    masked = 0 if model.mask_ is None else int((~model.mask_).sum())
    return {
        "title": title_of(fit),
        "subjects": n_people(fit),
        "measures": _measures(fit),
        "scans": _scans(fit),
        "components": len(d.alone),
        "masked": masked // model.sites_.n_measures,
        "on": model.sites_.on,
        "mesh": mesh_text(model.sites_),
        "hemisphere": ""
        if model.sites_.regions is not None and model.sites_.regions.hemi is None
        else d.hemisphere,
        "verdict": asdict(verdict(fit)),
        "meaning": meaning_of(model, d.modality, d.units),
        "trust": recurrence_line(model),
        "agreement": "" if choice is None else agreement_line(choice, len(d.alone)),
        "explained": short(d.explained),
        "explained_X": short(d.explained_X),
        "simulated": d.simulated,
        "adjusted": list(adjusted_for(model)),
        "harmonized": None if model.harmonization_ is None else model.harmonization_.column,
    }


# The panels


def _panels(fit: FitDescription, block: Block) -> dict[str, Any]:
    model, d = fit.model, fit.diagnostics
    c = d.convergence
    k = len(d.alone)
    return {
        "subjects": list(d.subjects),
        "rows": "people" if n_people(fit) == len(d.subjects) else "rows of people and measures",
        "loadings": block.numbers(d.loadings),
        "residual": block.numbers(d.residual),
        "subject_explained": block.numbers(d.subject_explained),
        "order": d.order.tolist(),
        "component_order": d.component_order.tolist(),
        "tree": block.numbers(d.tree),
        "convergence": short({name: getattr(c, name) for name in c.__dataclass_fields__}),
        "components": short(
            {name: getattr(d, name) for name in ("alone", "unique", "l1_B", "l1_C", "extent")}
        ),
        "alone": alone_is_a_share(d),
        "linear": short(d.linear),
        "by_chance": short(added_by_chance(fit)),
        "l1": short([d.l1_B.sum(), d.l1_C.sum()]),
        "matrices": {
            name: block.numbers(getattr(d, name)) for name in ("overlap", "similarity", "together")
        },
        "n_components": k,
        "titles": fit.titles,
        "columns": _columns(fit, block),
        "adjusted": adjustments(model),
        "left_out": dict(d.left_out),
        "unusual": short(
            {name: getattr(d.unusual, name) for name in d.unusual.__dataclass_fields__}
        ),
        "units": fitted_units(model, d.units),
        "signed": has_signed_loadings(model),
        "recurrence": short(model.recurrence_),
        "n_near": int(model.starts_.n_near),
        "regions": None if model.sites_.regions is None else _bars(fit, block),
    }


def _bars(fit: FitDescription, block: Block) -> dict[str, Any]:
    """Components in regions, of each measure that has maps of its own in its units, as in the
    tables.
    """
    each = [
        {
            "measure": measure,
            "values": block.numbers(one.model.components_),
            "units": component_units(one.model, one.diagnostics.units),
        }
        for measure, one in fit.by_measure()
    ]
    return {"names": list(fit.model.sites_.regions.names), "each": each}


def alone_is_a_share(d: Diagnostics) -> bool:
    """Whether what components carry alone can be read as a share: maps that overlap much carry more
    than all of it.
    """
    return bool(np.all((d.unique <= d.alone + 1e-9) & (d.alone <= 1)))


def clearest_columns(fit: FitDescription) -> list[Association | Grouping]:
    """The participants' columns, those most clearly related to a component first; covariates say
    nothing any more.
    """
    d, out = fit.diagnostics, adjusted_for(fit.model)
    every: list[Association | Grouping] = [*d.associations, *d.groupings]
    return sorted(
        (item for item in every if item.column not in out), key=lambda item: float(item.p.min())
    )


def _overlap(table: Mapping[str, list[Any]] | None) -> dict[str, Any] | None:
    """The overlap with an atlas, the rows to show and the components' names with shares."""
    if table is None:
        return None
    numbers = sorted(set(table["component"]))
    shown = [row for j in numbers for row in rows_to_show(table, j)]
    own = {j: table["proposed_name"][table["component"].index(j)] for j in numbers}
    return short(
        {
            **table,
            "measures": [name.removeprefix(OF_MEASURE) for name in table if is_of(name)],
            "shown": shown,
            "titles": [name_with_shares(table, j, own[j]) for j in numbers],
        }
    )


def _associations(found: AssociationTables, block: Block) -> dict[str, Any]:
    columns = [
        {
            "column": one.column,
            "labels": one.labels,
            "at": short(one.at),
            "expected": short(one.expected),
            "values": block.numbers(one.values),
            "adjusted": block.numbers(one.adjusted),
        }
        for one in found.columns
    ]
    settings = {
        name: found.settings[name] for name in ("formula", "model", "n_permutations", "notes")
    }
    known = {"people": list(found.people), "measures": list(found.measures), "over": found.over}
    return {"tests": short(found.tests), "columns": columns, **known, **short(settings)}


def _latent(found: LatentTables) -> dict[str, Any]:
    settings = {
        name: found.settings[name] for name in ("n_rows", "n_permutations", "n_bootstrap", "notes")
    }
    return {"latent": short(found.latent), "variables": short(found.variables), **short(settings)}


def _norm(found: NormTables, block: Block) -> dict[str, Any]:
    settings = {name: found.settings[name] for name in ("formula", "chosen_by", "notes")}
    rows = {
        "people": list(found.people),
        "reference": found.reference.tolist(),
        "outside": list(found.outside),
    }
    rows |= {"summary": short(norm_summary(found)), "n_reference": int(found.reference.sum())}
    return {
        **rows,
        "measures": list(found.measures),
        "scores": block.numbers(found.scores),
        **short(settings),
    }


def _columns(fit: FitDescription, block: Block) -> list[dict[str, Any]]:
    """The participants' columns, the clearest ones when there are very many."""
    listed = []
    for item in clearest_columns(fit)[:_MOST_COLUMNS]:
        common = {"column": item.called, "n": item.n, "p": short(item.p)}
        if isinstance(item, Association):
            listed.append(
                {**common, "strength": short(item.r), "values": block.numbers(item.values)}
            )
        else:
            codes = block.put(np.where(item.codes < 0, 255, item.codes).astype(np.uint8))
            listed.append(
                {
                    **common,
                    "strength": short(item.eta2),
                    "labels": list(item.labels),
                    "codes": codes,
                    "boxes": short(item.boxes),
                }
            )
    return listed
