"""The numbers of the page as tables: tables/ beside it, and the settings that it lists."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from icofactor.factorization.recurrence import n_recurring
from icofactor.io.publish import TABLES
from icofactor.io.tables import numbered, write_table
from icofactor.results.diagnostics.record import Association, Grouping
from icofactor.results.meaning import adjusted_for, fitted_units, median_stability, n_people
from icofactor.sphere.names import is_fs_lr, mesh_name_of

if TYPE_CHECKING:
    from icofactor.results.description import FitDescription
    from icofactor.results.report.association_files import NormTables

Columns = Mapping[str, Any]
Z95 = 1.96
"""Beyond it on one side, 2.5 % of a normal reference."""
SUMMARY = f"{TABLES}/summary.tsv"
"""One that every page has."""
_BOX = ("least", "lower_quartile", "median", "upper_quartile", "largest")
_COLUMNS = {
    "measure": "Measure",
    "weight": "How much its squared error counts",
    "factor": "What its values were multiplied by",
    "variance_share": "Its share of the variance that was fitted",
    "explained": "Share of its between-subject variance that the fit explains",
    "quantity": "What was counted or measured",
    "what": "Residual, or loading of a component",
    "value": "Its value",
    "units": "Units of the value",
    "residual": "Root mean square of the map minus its fit, in the fitted units",
    "explained_variance": "Share of the person's variance around the mean map that the components explain",
    "unusual": "1 for people with an unusual residual or loading",
    "z": "Robust standard deviations from the median",
    "column": "Column of the participants table",
    "statistic": "Pearson's r of a number, or eta squared of a category, with the loadings",
    "component": "Component; column of the loadings",
    "other": "Another component",
    "n": "People with a value",
    "p_corrected": "p by permutation, corrected over components",
    "group": "Value of the column",
    **{
        name: f"{name.replace('_', ' ').capitalize()} of loadings, or of the objective over starts"
        for name in _BOX
    },
    "overlap": "Overlap of the two maps",
    "correlation_of_maps": "Correlation of the two maps",
    "correlation_of_loadings": "Correlation of the two columns of loadings",
    "l1_B": "Sum of absolute values of B, in the coordinates of the fit",
    "l1_C": "Sum of absolute values of C, in the coordinates of the fit",
    "extent": "Share of the sites where the map exceeds 5 % of its largest value",
    "update": "Number of updates",
    "best_start": "Objective of the best start",
    "faces_divided": "1 where faces were divided",
    "setting": "Setting, or versions of software",
    "mean_W": "Mean W-score of the people outside the reference group",
    "below": "Share of their W-scores below −1.96",
    "above": "Share of their W-scores above 1.96",
}


def page_tables(fit: FitDescription) -> dict[str, Columns]:
    """Name of the file → its columns. Other numbers of the page are in tables of the fit, `select`
    and `associate`.
    """
    every = (
        _summary,
        _subjects,
        _unusual,
        _correlations,
        _groups,
        _similarity,
        _sparsity,
        _convergence,
        _resources,
    )
    some = (_settings, *(() if fit.model.measures_ is None else (_measures,)))
    some += () if fit.norm is None else (_normative_summary,)
    return {
        f"{TABLES}/{table.__name__.removeprefix('_')}.tsv": table(fit) for table in (*every, *some)
    }


def write_page_tables(folder: Path, fit: FitDescription) -> list[str]:
    """Write them, and give their names."""
    (folder / TABLES).mkdir()
    tables = page_tables(fit)
    for name, columns in tables.items():
        write_table(folder / name, columns, _COLUMNS)
    return list(tables)


def tables_beside(page: Path, *folders: Path) -> dict[str, str]:
    """Name of a table in these folders → its address, seen from the page's folder; nothing on
    another drive.
    """
    found = {}
    for folder in folders:
        for path in sorted(folder.glob("*.tsv")):
            try:
                found[path.name] = quote(os.fsencode(Path(os.path.relpath(path, page)).as_posix()))
            except ValueError:  # Windows: there is no way from one drive to another
                continue
    return found


def _measures(fit: FitDescription) -> Columns:
    measures = fit.model.measures_
    shares = {"variance_share": measures.variance, "explained": fit.diagnostics.measure_explained}
    return {
        "measure": list(measures.names),
        "weight": measures.weights,
        "factor": measures.factor,
        **shares,
    }


def _summary(fit: FitDescription) -> Columns:
    model, d = fit.model, fit.diagnostics
    n_used = model.sites_.n if model.mask_ is None else int(model.mask_.sum())
    share = model.recurrence_
    known = share is not None and not np.isnan(share).any()
    rows: list[tuple[str, Any, str]] = [
        ("subjects", n_people(fit), ""),
        ("components", len(d.alone), ""),
        (
            "components_recommended",
            None if fit.selection.choice is None else fit.selection.choice.recommended,
            "",
        ),
        ("components_reached_by_other_starts", n_recurring(share) if known else None, ""),
        ("other_good_starts", int(model.starts_.n_near), ""),
        ("starts", int(model.starts_.n_starts), ""),
        ("starts_continued", d.convergence.n_starts, ""),
        (
            "stability",
            median_stability(fit.selection.stability),
            "median correlation with maps of resampled people",
        ),
        ("explained_variance", d.explained, "share of the between-subject variance"),
        ("explained_variance_linear", d.linear, "share of the between-subject variance"),
        ("unique_by_chance", added_by_chance(fit), "share of the between-subject variance"),
        ("explained_X", d.explained_X, "share of the sum of squares, mean map included"),
        ("sites_in_use", n_used, model.sites_.on),
        ("sites_masked", model.sites_.n - n_used, model.sites_.on),
        ("updates", int(model.n_iter_), ""),
        ("active_faces", int(model.design_.n_columns), ""),
        ("objective", float(d.convergence.objective[-1]), ""),
        ("unusual_from", d.unusual.limit, "robust standard deviations"),
        ("l1_B", float(d.l1_B.sum()), ""),
        ("l1_C", float(d.l1_C.sum()), ""),
        (
            "permutations",
            None if fit.associations is None else fit.associations.settings["n_permutations"],
            "",
        ),
        ("reference", None if fit.norm is None else int(fit.norm.reference.sum()), "rows"),
    ]
    return _quantities(rows)


def _resources(fit: FitDescription) -> Columns:
    """Apart from the rest, which is the same in every run."""
    d = fit.diagnostics
    times = [(f"time_{stage}", seconds, "s") for stage, seconds in d.timing.items()]
    return _quantities([*times, ("memory_at_most", gibibytes(d.memory), "GiB")])


def gibibytes(memory: int) -> float | None:
    """Of bytes; None where they are not known."""
    return memory / 2**30 if memory else None


def added_by_chance(fit: FitDescription) -> float | None:
    """What one more column of random loadings would add to the linear regression on all: 1 − R²
    over its degrees of freedom; None where there are none.
    """
    measures = fit.model.measures_
    n_means = measures.n if measures is not None and measures.share == "maps" else 1
    free = len(fit.diagnostics.loadings) - n_means - len(fit.diagnostics.alone)
    return max(0.0, 1 - fit.diagnostics.linear) / free if free > 0 else None


def norm_summary(found: NormTables) -> dict[str, Any]:
    """W-scores of people outside the reference, for each component (of each measure): how many,
    mean, shares beyond.
    """
    scores = found.scores[~found.reference]
    known = np.isfinite(scores)
    n = known.sum(axis=0)
    over = lambda sums: np.divide(sums, n, out=np.full(len(n), np.nan), where=n > 0)
    beyond = {
        name: over((known & far).sum(axis=0))
        for name, far in (("below", scores < -Z95), ("above", scores > Z95))
    }
    return {"others": n, "mean": over(np.where(known, scores, 0).sum(axis=0)), **beyond}


def _normative_summary(fit: FitDescription) -> Columns:
    assert fit.norm is not None
    names = numbered("component", len(fit.diagnostics.alone))
    measures = (
        {"measure": [one for one in fit.norm.measures for _ in names]} if fit.norm.measures else {}
    )
    found = norm_summary(fit.norm)
    shares = {"below": found["below"], "above": found["above"]}
    return {
        "component": names * max(1, len(fit.norm.measures)),
        **measures,
        "n": found["others"],
        "mean_W": found["mean"],
        **shares,
    }


def _settings(fit: FitDescription) -> Columns:
    return _by_name(("setting", "value"), settings_of(fit))


def _quantities(rows: list[tuple[str, Any, str]]) -> Columns:
    shown = [None if value is None else f"{value:.10g}" for _, value, _ in rows]
    return {"quantity": [row[0] for row in rows], "value": shown, "units": [row[2] for row in rows]}


def _subjects(fit: FitDescription) -> Columns:
    d = fit.diagnostics
    odd = np.isin(np.arange(len(d.subjects)), d.unusual.subject)
    return {
        "participant_id": list(d.subjects),
        "residual": d.residual,
        "explained_variance": d.subject_explained,
        "unusual": odd.astype(int),
    }


def _unusual(fit: FitDescription) -> Columns:
    d = fit.diagnostics
    names, units = numbered("component", len(d.alone)), fitted_units(fit.model, d.units)
    return {
        "participant_id": [d.subjects[i] for i in d.unusual.subject],
        "what": ["residual" if j < 0 else names[j] for j in d.unusual.component],
        "value": d.unusual.value,
        "units": [units if j < 0 else "" for j in d.unusual.component],
        "z": d.unusual.z,
    }


def _correlations(fit: FitDescription) -> Columns:
    """Pearson's r or η² of columns of the participants with loadings."""
    d = fit.diagnostics
    names = numbered("component", len(d.alone))
    every: list[Association | Grouping] = [*d.associations, *d.groupings]
    rows = [
        (
            item.called,
            "r" if isinstance(item, Association) else "eta2",
            names[j],
            value,
            item.n,
            item.p[j],
        )
        for item in every
        for j, value in enumerate(item.r if isinstance(item, Association) else item.eta2)
    ]
    return _by_name(("column", "statistic", "component", "value", "n", "p_corrected"), rows)


def _groups(fit: FitDescription) -> Columns:
    """What the box plots show."""
    names = numbered("component", len(fit.diagnostics.alone))
    rows = [
        (item.called, label, int((item.codes == g).sum()), names[j], *item.boxes[g, j])
        for item in fit.diagnostics.groupings
        for g, label in enumerate(item.labels)
        for j in range(len(names))
    ]
    return _by_name(("column", "group", "n", "component", *_BOX), rows)


def _similarity(fit: FitDescription) -> Columns:
    d = fit.diagnostics
    names = numbered("component", len(d.alone))
    rows = [
        (names[i], names[j], d.overlap[i, j], d.similarity[i, j], d.together[i, j])
        for i in range(len(names))
        for j in range(i + 1, len(names))
    ]
    return _by_name(
        ("component", "other", "overlap", "correlation_of_maps", "correlation_of_loadings"), rows
    )


def _sparsity(fit: FitDescription) -> Columns:
    d = fit.diagnostics
    return {
        "component": numbered("component", len(d.alone)),
        "l1_B": d.l1_B,
        "l1_C": d.l1_C,
        "extent": d.extent,
    }


def _convergence(fit: FitDescription) -> Columns:
    """The objective of the best start, and its spread over starts, after so many updates."""
    c = fit.diagnostics.convergence
    updates = np.union1d(c.updates, c.band_updates)
    on = lambda at, values: np.array(
        [dict(zip(at.tolist(), values, strict=True)).get(u, np.nan) for u in updates.tolist()]
    )
    spread = {name: on(c.band_updates, row) for name, row in zip(_BOX, c.band, strict=True)}
    divided = np.isin(updates, c.divisions).astype(int)
    return {
        "update": updates,
        "best_start": on(c.updates, c.objective),
        **spread,
        "faces_divided": divided,
    }


def _by_name(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Columns:
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def settings_of(fit: FitDescription) -> list[tuple[str, str]]:
    """What a reader looks for in the provenance: how it was fitted, with which versions."""
    model, record = fit.model, fit.provenance or {}
    n_used = model.sites_.n if model.mask_ is None else int(model.mask_.sum())
    masked = model.sites_.n - n_used
    rules = ", the paper's rules" if model.solution_.rules == "paper" else ""
    n_run = fit.diagnostics.convergence.n_starts
    continued = (
        f", of which the best {n_run:,} were continued" if n_run < model.starts_.n_starts else ""
    )
    seed = record.get("seed")
    versions = record.get("versions")
    listed = versions.items() if isinstance(versions, dict) else ()
    known = {
        "method": f"{model.solution_.method}{rules}",
        "fitted to": {
            "none": "the maps",
            "mean": "deviations from the mean map",
            "zscore": "z-scores",
        }[model.center_],
        "mesh": mesh_text(model.sites_),
        f"{model.sites_.on} in use": f"{n_used:,}" + (f" ({masked:,} masked)" if masked else ""),
        "random starts": f"{model.starts_.n_starts:,}{continued}",
        "random seed": "" if seed is None else str(seed)[:80],
        "adjusted for": ", ".join(adjusted_for(model)),
        "versions": ", ".join(f"{name} {found}" for name, found in listed)[:1000],
    }
    return [(name, value) for name, value in known.items() if value]


def mesh_text(sites: Any) -> str:
    """What to call a mesh on the page."""
    if sites.regions is not None:
        return str(sites.regions).replace("fsLR32k", "fs_LR 32k")
    if is_fs_lr(mesh_name_of(sites)):
        return "fs_LR 32k"
    name = (sites.name or "").replace("civet", "CIVET ")
    return name or f"a mesh of {sites.n_mesh // len(sites.frames):,} {sites.on}"
