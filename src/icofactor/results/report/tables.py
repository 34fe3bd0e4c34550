"""The numbers of the page as tables in tables/, and the settings that it lists."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from icofactor.factorization.recurrence import n_recurring
from icofactor.io.publish import TABLES
from icofactor.io.tables import described, numbered, write_json, write_tsv
from icofactor.results.diagnostics.record import Association, Grouping
from icofactor.results.meaning import adjusted_for, median_stability, n_people
from icofactor.sphere.names import is_fs_lr, mesh_name_of

if TYPE_CHECKING:
    from icofactor.results.description import FitDescription
    from icofactor.results.report.association_files import NormTables

Columns = Mapping[str, Any]
# Beyond it on one side lie 2.5 % of a normal reference.
Z95 = 1.96
# A table that every page has.
SUMMARY = f"{TABLES}/summary.tsv"
# One file says what the columns of all tables hold.
_COLUMN_FILE = f"{TABLES}/columns.json"
_SPREAD = ("least", "lower_quartile", "median", "upper_quartile", "largest")
_COLUMNS = {
    "measure": "Measure",
    "weight": "How much its squared error counts",
    "factor": "What its values were multiplied by",
    "variance_share": "Its share of the variance that was fitted",
    "explained": "Share of its between-subject variance that the fit explains",
    "quantity": "What was counted or measured",
    "value": "Its value",
    "units": "Units of the value",
    "residual": "Root mean square of the map minus its fit, in the fitted units",
    "explained_variance": "Share of the person's variance around the mean map that is explained",
    "unusual": "Unusual values: residual, or loadings of components; n/a for none",
    "z": "Robust standard deviations of the most unusual one from the median",
    "column": "Column of the participants table",
    "statistic": "Pearson's r of a number, or eta squared of a category, with the loadings",
    "component": "Component; column of the loadings",
    "other": "Another component",
    "n": "People with a value",
    "p_corrected": "p by permutation, corrected over components",
    "overlap": "Overlap of the two maps",
    "correlation_of_maps": "Correlation of the two maps",
    "correlation_of_loadings": "Correlation of the two columns of loadings",
    "update": "Number of updates",
    "best_start": "Objective of the best start",
    "faces_divided": "1 where faces were divided",
    "group": "Value of the column",
    **{
        name: f"{name.replace('_', ' ').capitalize()} of objectives of starts, or of loadings"
        for name in _SPREAD
    },
}


def page_tables(fit: FitDescription) -> dict[str, Columns]:
    """Return name → columns of each table; the fit, `select` and `associate` write the others."""
    tables = {
        "summary": _summary(fit),
        "subjects": _subjects(fit),
        "correlations": _correlations(fit),
        "similarity": _similarity(fit),
        "convergence": _convergence(fit),
    }
    if fit.diagnostics.groupings:
        tables["groups"] = _groups(fit)
    if fit.model.measures_ is not None:
        tables["measures"] = _measures(fit)
    return {f"{TABLES}/{name}.tsv": columns for name, columns in tables.items()}


def write_page_tables(folder: Path, fit: FitDescription) -> list[str]:
    """Write the tables with one file that describes their columns, and return the tables' names."""
    (folder / TABLES).mkdir()
    tables = page_tables(fit)
    for name, columns in tables.items():
        write_tsv(folder / name, columns)
    about = {Path(name).name: described(columns, _COLUMNS) for name, columns in tables.items()}
    write_json(folder / _COLUMN_FILE, about)
    return list(tables)


def tables_beside(page: Path, *folders: Path) -> dict[str, str]:
    """Return name → address of the tables in these folders, seen from the page's folder."""
    addresses = {}
    for folder in folders:
        for path in sorted(folder.glob("*.tsv")):
            try:
                relative = Path(os.path.relpath(path, page)).as_posix()
            except ValueError:
                # On Windows there is no way from one drive to another.
                continue
            addresses[path.name] = quote(os.fsencode(relative))
    return addresses


def _measures(fit: FitDescription) -> Columns:
    measures = fit.model.measures_
    return {
        "measure": list(measures.names),
        "weight": measures.weights,
        "factor": measures.factor,
        "variance_share": measures.variance,
        "explained": fit.diagnostics.measure_explained,
    }


def _summary(fit: FitDescription) -> Columns:
    model = fit.model
    d = fit.diagnostics
    between = "share of the between-subject variance"
    recurrence = model.recurrence_
    judged = recurrence is not None and not np.isnan(recurrence).any()
    choice = fit.selection.choice
    tests = fit.associations
    rows: list[tuple[str, Any, str]] = [
        ("subjects", n_people(fit), ""),
        ("components", len(d.alone), ""),
        ("components_recommended", None if choice is None else choice.recommended, ""),
        ("components_reached_by_other_starts", n_recurring(recurrence) if judged else None, ""),
        ("other_good_starts", int(model.starts_.n_near), ""),
        ("starts", int(model.starts_.n_starts), ""),
        ("starts_continued", d.convergence.n_starts, ""),
        (
            "stability",
            median_stability(fit.selection.stability),
            "median correlation with maps of resampled people",
        ),
        ("explained_variance", d.explained, between),
        ("explained_variance_linear", d.linear, between),
        ("unique_by_chance", added_by_chance(fit), between),
        ("explained_X", d.explained_X, "share of the sum of squares, mean map included"),
        ("common_factor", common_share(fit), "share of the variance of standardized loadings"),
        ("sites_in_use", n_used(fit), model.sites_.on),
        ("sites_masked", model.sites_.n - n_used(fit), model.sites_.on),
        ("updates", int(model.n_iter_), ""),
        ("active_faces", int(model.design_.n_columns), ""),
        ("objective", float(d.convergence.objective[-1]), ""),
        ("unusual_from", d.unusual.limit, "robust standard deviations"),
        ("l1_B", float(d.l1_B.sum()), ""),
        ("l1_C", float(d.l1_C.sum()), ""),
        ("permutations", None if tests is None else tests.settings["n_permutations"], ""),
        ("reference", None if fit.norm is None else int(fit.norm.reference.sum()), "rows"),
    ]
    return {
        "quantity": [name for name, _, _ in rows],
        "value": [None if value is None else f"{value:.10g}" for _, value, _ in rows],
        "units": [units for _, _, units in rows],
    }


def n_used(fit: FitDescription) -> int:
    """Return how many sites the fit uses."""
    mask = fit.model.mask_
    return int(fit.model.sites_.n if mask is None else mask.sum())


def common_share(fit: FitDescription) -> float:
    """Return the share of the variance of standardized loadings along their first principal axis.

    Much of it is one common factor, often each person's mean over the cortex.
    """
    correlations = fit.diagnostics.together
    # A component with constant loadings correlates with nothing.
    return float(np.linalg.eigvalsh(np.nan_to_num(correlations))[-1] / len(correlations))


def added_by_chance(fit: FitDescription) -> float | None:
    """Return what one more column of random loadings would add to the linear regression on all.

    This is 1 − R² over its degrees of freedom; None where there are none.
    """
    measures = fit.model.measures_
    # Every measure of shared maps has its own mean map.
    n_means = measures.n if measures is not None and measures.share == "maps" else 1
    free = len(fit.diagnostics.loadings) - n_means - len(fit.diagnostics.alone)
    return max(0.0, 1 - fit.diagnostics.linear) / free if free > 0 else None


def norm_summary(norm: NormTables) -> dict[str, Any]:
    """Return W-scores of people outside the reference, for each component (of each measure): how
    many, their mean, and the shares beyond ±1.96.
    """
    scores = norm.scores[~norm.reference]
    measured = np.isfinite(scores)
    n = measured.sum(axis=0)

    def mean_of(sums: np.ndarray) -> np.ndarray:
        return np.divide(sums, n, out=np.full(len(n), np.nan), where=n > 0)

    return {
        "others": n,
        "mean": mean_of(np.where(measured, scores, 0).sum(axis=0)),
        "below": mean_of((measured & (scores < -Z95)).sum(axis=0)),
        "above": mean_of((measured & (scores > Z95)).sum(axis=0)),
    }


def unusual_values(fit: FitDescription) -> dict[int, list[tuple[str, float]]]:
    """Return row of a subject → names of its unusual values with their z, the furthest first."""
    unusual = fit.diagnostics.unusual
    names = [*numbered("component", len(fit.diagnostics.alone)), "residual"]
    # A dictionary keeps the order of the diagnostics: the furthest first.
    by_subject: dict[int, list[tuple[str, float]]] = {}
    for subject, component, z in zip(
        unusual.subject.tolist(), unusual.component.tolist(), unusual.z.tolist(), strict=True
    ):
        # The component of a residual is −1, the last name.
        by_subject.setdefault(subject, []).append((names[component], z))
    return by_subject


def _subjects(fit: FitDescription) -> Columns:
    d = fit.diagnostics
    unusual = unusual_values(fit)
    rows = [unusual.get(number, []) for number in range(len(d.subjects))]
    return {
        "participant_id": list(d.subjects),
        "residual": d.residual,
        "explained_variance": d.subject_explained,
        "unusual": [", ".join(name for name, _ in values) or None for values in rows],
        "z": [values[0][1] if values else np.nan for values in rows],
    }


def _correlations(fit: FitDescription) -> Columns:
    """Return Pearson's r or η² of columns of the participants with loadings."""
    d = fit.diagnostics
    names = numbered("component", len(d.alone))
    items: list[Association | Grouping] = [*d.associations, *d.groupings]
    rows = []
    for item in items:
        numeric = isinstance(item, Association)
        for name, value, p in zip(names, strength_of(item), item.p, strict=True):
            rows.append((item.called, "r" if numeric else "eta2", name, value, item.n, p))
    return _by_column(("column", "statistic", "component", "value", "n", "p_corrected"), rows)


def _groups(fit: FitDescription) -> Columns:
    """Return the smallest loading, quartiles and the largest loading of every group."""
    names = numbered("component", len(fit.diagnostics.alone))
    rows = []
    for item in fit.diagnostics.groupings:
        for group, label in enumerate(item.labels):
            n = int((item.codes == group).sum())
            for name, quartiles in zip(names, item.boxes[group], strict=True):
                rows.append((item.called, label, n, name, *quartiles))
    return _by_column(("column", "group", "n", "component", *_SPREAD), rows)


def strength_of(item: Association | Grouping) -> np.ndarray:
    """Return r or η² of a column with the loadings of each component."""
    return item.r if isinstance(item, Association) else item.eta2


def _similarity(fit: FitDescription) -> Columns:
    d = fit.diagnostics
    names = numbered("component", len(d.alone))
    rows = [
        (names[i], names[j], d.overlap[i, j], d.similarity[i, j], d.together[i, j])
        for i, j in zip(*np.triu_indices(len(names), 1), strict=True)
    ]
    columns = ("component", "other", "overlap", "correlation_of_maps", "correlation_of_loadings")
    return _by_column(columns, rows)


def _convergence(fit: FitDescription) -> Columns:
    """Return the objective of the best start, and its spread over starts, after so many updates."""
    c = fit.diagnostics.convergence
    updates = np.union1d(c.updates, c.band_updates)

    def at_updates(numbers: np.ndarray, values: np.ndarray) -> np.ndarray:
        column = np.full(len(updates), np.nan)
        column[np.searchsorted(updates, numbers)] = values
        return column

    return {
        "update": updates,
        "best_start": at_updates(c.updates, c.objective),
        **{
            name: at_updates(c.band_updates, values)
            for name, values in zip(_SPREAD, c.band, strict=True)
        },
        "faces_divided": np.isin(updates, c.divisions).astype(int),
    }


def _by_column(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> Columns:
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def settings_of(fit: FitDescription) -> list[tuple[str, str]]:
    """Return what a reader looks for in the provenance: how it was fitted, with which versions."""
    model = fit.model
    record = fit.provenance or {}
    masked = model.sites_.n - n_used(fit)
    n_starts = int(model.starts_.n_starts)
    n_continued = fit.diagnostics.convergence.n_starts
    continued = f", of which the best {n_continued:,} were continued" * (n_continued < n_starts)
    rules = ", the paper's rules" * (model.solution_.rules == "paper")
    seed = record.get("seed")
    versions = record.get("versions")
    listed = versions.items() if isinstance(versions, dict) else ()
    fitted_to = {
        "none": "the maps",
        "mean": "deviations from the mean map",
        "zscore": "z-scores",
    }
    settings = {
        "method": f"{model.solution_.method}{rules}",
        "fitted to": fitted_to[model.center_],
        "mesh": mesh_text(model.sites_),
        f"{model.sites_.on} in use": f"{n_used(fit):,}"
        + (f" ({masked:,} masked)" if masked else ""),
        "random starts": f"{n_starts:,}{continued}",
        # A file may have been edited: texts of any length are cut.
        "random seed": "" if seed is None else str(seed)[:80],
        "adjusted for": ", ".join(adjusted_for(model)),
        "time": _time_of(fit),
        "memory at most": f"{fit.diagnostics.memory / 2**30:.2f} GiB"
        * bool(fit.diagnostics.memory),
        "versions": ", ".join(f"{name} {number}" for name, number in listed)[:1000],
    }
    return [(name, value) for name, value in settings.items() if value]


def _time_of(fit: FitDescription) -> str:
    return ", ".join(
        f"{stage} {seconds:.3g} s" for stage, seconds in fit.diagnostics.timing.items()
    )


def mesh_text(sites: Any) -> str:
    """Return what to call a mesh on the page."""
    if sites.regions is not None:
        return str(sites.regions).replace("fsLR32k", "fs_LR 32k")
    if is_fs_lr(mesh_name_of(sites)):
        return "fs_LR 32k"
    name = (sites.name or "").replace("civet", "CIVET ")
    return name or f"a mesh of {sites.n_mesh // len(sites.frames):,} {sites.on}"
