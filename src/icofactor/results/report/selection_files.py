"""What `icofactor select` left in the folder of a fit: the choice of a number, trust in components,
where they lie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.assessment.atlas import is_of
from icofactor.assessment.bootstrap import REGION_ERRORS, error_files, error_unit, relative_error
from icofactor.assessment.selection.choice import Choice
from icofactor.cohort.people import MEASURE, PERSON, SESSION
from icofactor.io.gifti import read_gifti
from icofactor.io.guard import Unreadable, naming
from icofactor.io.json import read_json
from icofactor.io.tables import numbered, read_table
from icofactor.sphere.names import table_file

LOADINGS = table_file("loadings.tsv")
CURVES = "selection.tsv"
SELECTION, STABILITY, LOADINGS_SE, OVERLAP = (
    "selection.json",
    "stability.tsv",
    "loadings_se.tsv",
    "atlas_overlap.tsv",
)
_STABILITY = ("stability", "stability_5th_percentile", "relative_standard_error")
_OVERLAP = ("share", "area", "enrichment", "null_enrichment", "p", "q")


@dataclass(frozen=True, eq=False)
class SelectionFiles:
    """What `icofactor select` found; None for what was not run.

    Attributes
    ----------
    choice : how many components, and why.
    stability : column → one number per component: "stability", "stability_5th_percentile",
    "relative_standard_error". loading_se : (n_subjects, k) standard errors of the loadings.
    component_se : (k, n_sites) standard errors of the maps.
    overlap : column → one value per row: "component" (from 1), "region", "share", "area",
        "enrichment", "null_enrichment", "p", "q", "proposed_name".
    """

    choice: Choice | None = None
    stability: Mapping[str, list[float]] | None = None
    loading_se: np.ndarray | None = None
    component_se: np.ndarray | None = None
    overlap: Mapping[str, list[Any]] | None = None


def read_selection_files(folder: Path, model: Any, subjects: Sequence[str]) -> SelectionFiles:
    """What lies in the folder of a fit; refuses files that belong to another fit."""
    k = len(model.components_)
    stability, errors = _stability(folder / STABILITY, k), _component_se(folder, model)
    if stability is not None and errors is not None:
        with naming(folder / STABILITY, "table"):
            _check_sizes(stability["relative_standard_error"], errors, model)
    loading_se = _loading_se(folder / LOADINGS_SE, subjects, k)
    return SelectionFiles(
        read_choice(folder), stability, loading_se, errors, _overlap(folder / OVERLAP, k)
    )


def _check_sizes(relative: list[float], errors: np.ndarray, model: Any) -> None:
    """Refuse errors of an earlier fit with as many components: theirs are in parts of other maps."""
    if not np.allclose(
        relative, relative_error(errors, model), rtol=1e-3, atol=1e-9, equal_nan=True
    ):
        raise Unreadable(
            "is from another fit: its standard errors belong to other maps; run icofactor select again"
        )


def read_choice(folder: Path) -> Choice | None:
    """selection.json, as `Choice.save` writes it; None where there is no file."""
    path = folder / SELECTION
    found = read_record(path)
    if found is None:
        return None
    with naming(path, "record"):
        table, recommended, reasons = (
            found.get(name) for name in ("table", "recommended", "reasons")
        )
        number = lambda value: (
            value is None or (isinstance(value, int | float) and not isinstance(value, bool))
        )
        table = table if isinstance(table, dict) else {}
        columns = list(table.values())
        if not columns or not all(
            isinstance(column, list) and all(map(number, column)) for column in columns
        ):
            raise Unreadable("contains no table of numbers by rank; icofactor select writes one")
        if len({len(column) for column in columns}) > 1 or not number(recommended):
            raise Unreadable(
                "is damaged: its columns differ in length, or what it recommends is not a number"
            )
        if not isinstance(reasons, list) or not all(isinstance(reason, str) for reason in reasons):
            raise Unreadable("is damaged: its reasons are not sentences")
        settings = found.get("settings", {})
        if not isinstance(settings, dict):
            raise Unreadable("is damaged: its settings are not a record")
        others = found.get("others", [])
        if not isinstance(others, list) or not all(
            isinstance(n, int) and not isinstance(n, bool) for n in others
        ):
            raise Unreadable("is damaged: its other good numbers are not whole numbers")
        whole = lambda column: all(isinstance(value, int) for value in column)  # None becomes NaN
        arrays = {
            name: np.array(column, dtype=np.int64 if whole(column) else np.float64)
            for name, column in table.items()
        }
    return Choice(arrays, recommended, tuple(reasons), settings, tuple(others))


def read_record(path: Path) -> dict[str, Any] | None:
    """A JSON file of names and values; None where there is no file."""
    if not path.is_file():
        return None
    with naming(path, "record"):
        found = read_json(path)
        if not isinstance(found, dict):
            raise Unreadable(
                "contains JSON that is not a record of names and values, as icofactor writes it"
            )
        return found


def _stability(path: Path, k: int) -> dict[str, list[float]] | None:
    if not path.is_file():
        return None
    with naming(path, "table"):
        table = columns_of(path, ("component", *_STABILITY))
        if table["component"] != [str(j + 1) for j in range(k)]:
            raise Unreadable(_other_fit(f"{len(table['component'])} components", f"{k}"))
        return {
            name: numbers_in(table[name]) for name in (*_STABILITY, "n_resamples") if name in table
        }


def _loading_se(path: Path, subjects: Sequence[str], k: int) -> np.ndarray | None:
    if not path.is_file():
        return None
    with naming(path, "table"):
        table = columns_of(path, (PERSON,))
        rows, sessions, measures = (
            table.pop(PERSON),
            table.pop(SESSION, None),
            table.pop(MEASURE, None),
        )
        if measures is not None and sessions is None:
            rows = [f"{person}_{measure}" for person, measure in zip(rows, measures, strict=True)]
        known = (
            rows == list(subjects)
            if sessions is None
            else _are_fitted(rows, sessions, path.parent, len(subjects))
        )
        if not known or len(table) != k:
            found = f"{len(rows)} subjects and {len(table)} components"
            raise Unreadable(_other_fit(found, f"{len(subjects)} and {k}, or other subjects"))
        return np.array([numbers_in(column) for column in table.values()]).T


def _are_fitted(people: list[str], sessions: list[str], folder: Path, n: int) -> bool:
    """Whether scans are n of those that the fit's table of loadings lists."""
    listed, _ = read_table(folder / LOADINGS) if (folder / LOADINGS).is_file() else ({}, None)
    known = set(zip(listed.get(PERSON, []), listed.get(SESSION, []), strict=False))
    return len(people) == n and known >= set(zip(people, sessions, strict=True))


def _component_se(folder: Path, model: Any) -> np.ndarray | None:
    sites = model.sites_
    if sites.regions is not None:
        return _region_se(folder / REGION_ERRORS, len(model.components_), sites.n)
    paths = [folder / name for name in error_files(model)]
    if sites.on != "vertices" or not all(path.is_file() for path in paths):
        return None
    wanted, halves = (len(model.components_), sites.n // len(paths)), []
    for path in paths:
        with naming(path, "map"):
            half = next(iter(read_gifti(path).parts.values()))
            if half.shape != wanted:
                found = f"{half.shape[0]} components on {half.shape[1]} vertices"
                raise Unreadable(_other_fit(found, f"{wanted[0]} on {wanted[1]}"))
            halves.append(np.asarray(half, dtype=np.float64))
    return np.concatenate(halves, axis=1) * error_unit(model)


def _region_se(path: Path, k: int, n: int) -> np.ndarray | None:
    if not path.is_file():
        return None
    with naming(path, "table"):
        names = numbered("component", k)
        table = columns_of(path, names)
        found = np.array([numbers_in(table[name]) for name in names])
        if found.shape != (k, n):
            raise Unreadable(_other_fit(f"{found.shape[1]} regions", f"{n}"))
        return found


def _overlap(path: Path, k: int) -> dict[str, list[Any]] | None:
    if not path.is_file():
        return None
    with naming(path, "table"):
        table: dict[str, list[Any]] = dict(
            columns_of(path, ("component", "region", *_OVERLAP, "proposed_name"))
        )
        numbers = numbers_in(table["component"])
        if set(numbers) != set(range(1, k + 1)):
            raise Unreadable(_other_fit(f"{len(set(numbers))} components", f"{k}"))
        columns = {
            name: numbers_in(table[name])
            for name in table
            if name in (*_OVERLAP, "n_spins") or is_of(name)
        }
        return table | {"component": [int(j) for j in numbers]} | columns


def _other_fit(found: str, wanted: str) -> str:
    why = f"it contains {found}, the fit in this folder {wanted}"
    return f"is from another fit: {why}; run icofactor select again or remove it"


def columns_of(
    path: Path, needed: Sequence[str], command: str = "icofactor select"
) -> dict[str, list[str]]:
    """Columns of a TSV file as icofactor writes one."""
    columns, _ = read_table(path)
    missing = [name for name in needed if name not in columns]
    if missing:
        raise Unreadable(f"has no column {missing[0]}; {command} writes one")
    return columns


def numbers_in(column: list[str]) -> list[float]:
    """Cells as numbers, NaN for n/a."""
    try:
        return [math.nan if cell == "n/a" else float(cell) for cell in column]
    except ValueError:
        raise Unreadable("is damaged: a cell that should be a number is not") from None
