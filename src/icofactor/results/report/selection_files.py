"""What `icofactor select` left in the folder of a fit: how many components, trust in them, where
they lie.
"""

from __future__ import annotations

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
OVERLAP = "atlas_overlap.tsv"
_SELECTION = "selection.json"
_STABILITY = "stability.tsv"
_LOADINGS_SE = "loadings_se.tsv"
_COMMAND = "icofactor select"
_STABILITY_COLUMNS = ("stability", "stability_5th_percentile", "relative_standard_error")
_OVERLAP_COLUMNS = ("share", "area", "enrichment", "null_enrichment", "p", "q")
# Standard errors in the files have so many digits.
_TOLERANCE = {"rtol": 1e-3, "atol": 1e-9}


@dataclass(frozen=True, eq=False)
class SelectionFiles:
    """What `icofactor select` wrote; None for what was not run.

    Attributes
    ----------
    choice : how many components, and why
    stability : column of stability.tsv → one number per component
    loading_se : (n_subjects, k) standard errors of the loadings
    component_se : (k, n_sites) standard errors of the maps
    overlap : column of atlas_overlap.tsv → one value per row; "component" counts from 1
    """

    choice: Choice | None = None
    stability: Mapping[str, list[float]] | None = None
    loading_se: np.ndarray | None = None
    component_se: np.ndarray | None = None
    overlap: Mapping[str, list[Any]] | None = None


def read_selection_files(folder: Path, model: Any, subjects: Sequence[str]) -> SelectionFiles:
    """Read what lies in the folder of a fit; refuse files that belong to another fit."""
    k = len(model.components_)
    stability = _read_stability(folder / _STABILITY, k)
    errors = _read_component_se(folder, model)
    if stability is not None and errors is not None:
        # An earlier fit may have as many components: its errors are relative to other maps.
        expected = relative_error(errors, model)
        relative = stability["relative_standard_error"]
        with naming(folder / _STABILITY, "table"):
            check_fit(np.allclose(relative, expected, equal_nan=True, **_TOLERANCE), _COMMAND)
    return SelectionFiles(
        choice=read_choice(folder),
        stability=stability,
        loading_se=_read_loading_se(folder / _LOADINGS_SE, subjects, k),
        component_se=errors,
        overlap=_read_overlap(folder / OVERLAP, k),
    )


def check_fit(same: bool, command: str) -> None:
    """Refuse a file that is about another fit."""
    if not same:
        raise Unreadable(f"is from another fit; run {command} again or remove it")


def read_choice(folder: Path) -> Choice | None:
    """Read selection.json, as `Choice.save` writes it; None where there is no file."""
    path = folder / _SELECTION
    record = read_record(path)
    if record is None:
        return None
    with naming(path, "record"):
        # The file may have been edited: what is not as expected is one error.
        try:
            table = {str(name): _numbers(column) for name, column in record["table"].items()}
            recommended = record["recommended"]
            if recommended is not None:
                recommended = int(recommended)
            others = tuple(int(n) for n in record.get("others", []))
            settings = dict(record.get("settings", {}))
            reasons = [str(reason) for reason in record["reasons"]]
            lengths = {len(column) for column in table.values()}
            if len(lengths) != 1:
                raise ValueError("columns of different lengths")
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise Unreadable(f"is not a record as {_COMMAND} writes it: {problem}") from None
    return Choice(table, recommended, tuple(reasons), settings, others)


def _numbers(column: list[Any]) -> np.ndarray:
    """Return a column of JSON as an array; null becomes NaN."""
    whole = all(isinstance(value, int) for value in column)
    values = [np.nan if value is None else value for value in column]
    return np.array(values, dtype=np.int64 if whole else np.float64)


def read_record(path: Path) -> dict[str, Any] | None:
    """Read a JSON file of names and values; None where there is no file."""
    if not path.is_file():
        return None
    with naming(path, "record"):
        record = read_json(path)
        if not isinstance(record, dict):
            raise Unreadable("contains JSON that is not a record of names and values")
        return record


def read_columns(
    path: Path, command: str, words: Sequence[str] = (), numbers: Sequence[str] = ()
) -> dict[str, list[Any]] | None:
    """Read a table that a command wrote; None where there is no file.

    Parameters
    ----------
    words, numbers : columns that it must have; n/a in a column of numbers is NaN.

    Returns
    -------
    All columns, others as text.
    """
    if not path.is_file():
        return None
    with naming(path, "table"):
        table, _ = read_table(path)
        columns: dict[str, list[Any]] = dict(table)
        for name in (*words, *numbers):
            if name not in columns:
                raise Unreadable(f"has no column {name}; {command} writes one")
        return {**columns, **{name: numbers_in(table[name]) for name in numbers}}


def numbers_in(cells: Sequence[str]) -> list[float]:
    """Return cells as numbers, NaN for n/a."""
    try:
        return [np.nan if cell == "n/a" else float(cell) for cell in cells]
    except ValueError:
        raise Unreadable("is damaged: a cell that should be a number is not") from None


def _read_stability(path: Path, k: int) -> dict[str, list[float]] | None:
    table = read_columns(path, _COMMAND, ["component"], _STABILITY_COLUMNS)
    if table is None:
        return None
    with naming(path, "table"):
        check_fit(table.pop("component") == [str(j + 1) for j in range(k)], _COMMAND)
        return {name: numbers_in(column) for name, column in table.items()}


def _read_loading_se(path: Path, subjects: Sequence[str], k: int) -> np.ndarray | None:
    table = read_columns(path, _COMMAND, [PERSON])
    if table is None:
        return None
    people = table.pop(PERSON)
    sessions = table.pop(SESSION, None)
    measures = table.pop(MEASURE, None)
    with naming(path, "table"):
        if sessions is not None:
            # Of several scans per person only some may be fitted.
            same = _are_scans(people, sessions, path.parent) and len(people) == len(subjects)
        elif measures is not None:
            # Rows of a fit with shared maps are called PERSON_MEASURE.
            rows = zip(people, measures, strict=True)
            same = [f"{person}_{measure}" for person, measure in rows] == list(subjects)
        else:
            same = people == list(subjects)
        check_fit(same and len(table) == k, _COMMAND)
        return np.array([numbers_in(column) for column in table.values()]).T


def _are_scans(people: list[str], sessions: list[str], folder: Path) -> bool:
    """Return whether the fit's table of loadings lists all these scans."""
    table = read_columns(folder / LOADINGS, _COMMAND) or {}
    listed = set(zip(table.get(PERSON, []), table.get(SESSION, []), strict=False))
    return listed >= set(zip(people, sessions, strict=True))


def _read_component_se(folder: Path, model: Any) -> np.ndarray | None:
    sites = model.sites_
    k = len(model.components_)
    if sites.regions is not None:
        path = folder / REGION_ERRORS
        names = numbered("component", k)
        table = read_columns(path, _COMMAND, numbers=names)
        if table is None:
            return None
        with naming(path, "table"):
            errors = np.array([table[name] for name in names])
            check_fit(errors.shape == (k, sites.n), _COMMAND)
            return errors
    paths = [folder / name for name in error_files(model)]
    if sites.on != "vertices" or not all(path.is_file() for path in paths):
        return None
    halves = []
    for path in paths:
        with naming(path, "map"):
            half = next(iter(read_gifti(path).parts.values()))
            check_fit(half.shape == (k, sites.n // len(paths)), _COMMAND)
            halves.append(np.asarray(half, dtype=np.float64))
    return np.concatenate(halves, axis=1) * error_unit(model)


def _read_overlap(path: Path, k: int) -> dict[str, list[Any]] | None:
    numbers = ("component", *_OVERLAP_COLUMNS)
    table = read_columns(path, _COMMAND, ["region", "proposed_name"], numbers)
    if table is None:
        return None
    with naming(path, "table"):
        check_fit(set(table["component"]) == set(range(1, k + 1)), _COMMAND)
        more = [name for name in table if name == "n_spins" or is_of(name)]
        components = [int(j) for j in table["component"]]
        return table | {name: numbers_in(table[name]) for name in more} | {"component": components}
