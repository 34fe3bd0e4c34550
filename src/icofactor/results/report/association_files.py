"""What `icofactor associate` left in the folder of a fit, as the page shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.cohort.people import PERSON, SESSION
from icofactor.estimator.saving import MODEL
from icofactor.io.guard import Unreadable, hash_file, naming
from icofactor.results.report.selection_files import (
    LOADINGS,
    check_fit,
    numbers_in,
    read_columns,
    read_record,
)

ASSOCIATIONS = "associations.tsv"
_EXPECTED = "associations_expected.tsv"
_ADJUSTED = "associations_adjusted.tsv"
# Files of --pls and --reference.
_LATENT = "pls.tsv"
_VARIABLES = "pls_variables.tsv"
_NORM = "normative.tsv"
_COMMAND = "icofactor associate"
# Columns that the page needs of each table.
_TEST_WORDS = ("component", "kind", "term", "statistic")
_TEST_NUMBERS = (
    *("estimate", "ci_low", "ci_high", "value", "partial_r2", "standardized"),
    *("p_theory", "p_corrected"),
)
_ENDS = ("mean", "ci_low", "ci_high")
_LATENT_NUMBERS = (
    *("explained", "p", "correlation", "component_reproducibility", "component_reproducibility_p"),
    *("measure_reproducibility", "measure_reproducibility_p"),
)
_VARIABLE_NUMBERS = ("latent_variable", "correlation", "ci_low", "ci_high")
_NORM_WORDS = (PERSON, "reference", "outside_reference")


@dataclass(frozen=True, eq=False)
class AdjustedColumn:
    """Loadings along a column of the table, the other columns held.

    Attributes
    ----------
    column : its name
    labels : levels of a category; None for a number
    at : (m,) values, or numbers of the levels
    expected : (3, m, k) mean, low and high end of its 95 % interval
    values : (n_rows,) values of the people
    adjusted : (n_rows, k) their loadings, adjusted
    """

    column: str
    labels: tuple[str, ...] | None
    at: np.ndarray
    expected: np.ndarray
    values: np.ndarray
    adjusted: np.ndarray


@dataclass(frozen=True, eq=False)
class AssociationTables:
    """Tests of terms and contrasts, and what they look like.

    Attributes
    ----------
    tests : column of associations.tsv → one value per test. "component" counts from 0; "measure" is
        "" unless rows of a fit are of several; "loading" numbers the tested loadings; "p" is
        corrected over all of them, or by theory without permutations; "column" is the number of the
        adjusted column, or −1.
    columns : one per column of the participants' table
    settings : how the tests were made
    measures : whose loadings were tested, those of all components of one measure after the other;
        () for one loading each
    """

    tests: Mapping[str, list[Any]]
    columns: tuple[AdjustedColumn, ...]
    settings: Mapping[str, Any]
    measures: tuple[str, ...] = ()

    @property
    def over(self) -> str:
        """What p is corrected over."""
        return "components and measures" if self.measures else "components"

    @property
    def corrected(self) -> bool:
        """Whether p is corrected over components."""
        return bool(self.settings["n_permutations"])


@dataclass(frozen=True, eq=False)
class LatentTables:
    """Latent variables of loadings and behaviour, by behavioural PLS.

    Attributes
    ----------
    latent : column of pls.tsv → one value per latent variable
    variables : column of pls_variables.tsv → one value per latent variable and variable
    settings : how they were computed
    """

    latent: Mapping[str, list[float]]
    variables: Mapping[str, list[Any]]
    settings: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class NormTables:
    """W-scores against a reference group.

    Attributes
    ----------
    reference : (n_rows,) bool, who is in the reference
    scores : (n_rows, k), NaN where there are none
    settings : how they were computed
    measures : as in `AssociationTables`; scores have k columns for each
    """

    reference: np.ndarray
    scores: np.ndarray
    settings: Mapping[str, Any]
    measures: tuple[str, ...] = ()


def read_association_files(
    folder: Path, k: int, measures: tuple[str, ...] = ()
) -> AssociationTables | None:
    """Read the tests in the folder of a fit of k components; refuse those of another fit.

    None where there are none, and where they are about a table of other people's loadings.

    Parameters
    ----------
    measures : where people have loadings of each of several measures.
    """
    kinds = {"formula": str, "model": str, "n_permutations": int, "n_rows": int}
    settings = _settings(folder, ASSOCIATIONS, {**kinds, "levels": dict, "notes": list})
    tests = read_columns(folder / ASSOCIATIONS, _COMMAND, _TEST_WORDS, _TEST_NUMBERS)
    if settings is None or tests is None:
        return None
    names = list(dict.fromkeys(tests["component"]))
    with naming(folder / ASSOCIATIONS, "table"):
        check_fit(len(names) == k * max(1, len(measures)), _COMMAND)
    loadings = [names.index(name) for name in tests["component"]]
    pairs = zip(tests["p_corrected"], tests["p_theory"], strict=True)
    columns = _adjusted_columns(folder, names, settings["levels"])
    column_names = [column.column for column in columns]
    tests |= {
        "loading": loadings,
        "component": [loading % k for loading in loadings],
        "measure": [measures[loading // k] if measures else "" for loading in loadings],
        "p": [theory if np.isnan(corrected) else corrected for corrected, theory in pairs],
        "column": [_column_of(term, column_names) for term in tests["term"]],
    }
    return AssociationTables(tests, columns, settings, measures)


def read_latent_files(folder: Path, k: int, measures: tuple[str, ...] = ()) -> LatentTables | None:
    """Read what behavioural PLS left in the folder of a fit; see `read_association_files`."""
    kinds = {"n_rows": int, "n_permutations": int, "n_bootstrap": int, "notes": list}
    settings = _settings(folder, _LATENT, kinds)
    latent = read_columns(folder / _LATENT, _COMMAND, numbers=_LATENT_NUMBERS)
    if settings is None or latent is None:
        return None
    path = folder / _VARIABLES
    variables = read_columns(path, _COMMAND, ["side", "variable"], _VARIABLE_NUMBERS) or {}
    n = len(latent["p"])
    sides = variables.get("side", [])
    with naming(path, "table"):
        counts = [sides.count(side) for side in ("component", "measure")]
        if not n or sum(counts) != len(sides) or any(not m or m % n for m in counts):
            raise Unreadable(f"is damaged: it lacks rows for each of {n} latent variables")
        check_fit(counts[0] <= k * max(1, len(measures)) * n, _COMMAND)
    return LatentTables(latent, variables, settings)


def read_norm_files(folder: Path, k: int, measures: tuple[str, ...] = ()) -> NormTables | None:
    """Read the W-scores in the folder of a fit of k components; see `read_association_files`."""
    settings = _settings(folder, _NORM, {"formula": str, "chosen_by": str, "notes": list})
    table = read_columns(folder / _NORM, _COMMAND, _NORM_WORDS)
    if settings is None or table is None:
        return None
    with naming(folder / _NORM, "table"):
        names = [name for name in table if name not in (*_NORM_WORDS, SESSION)]
        check_fit(len(names) == k * max(1, len(measures)), _COMMAND)
        scores = np.array([numbers_in(table[name]) for name in names]).T
    return NormTables(
        reference=np.array([cell == "1" for cell in table["reference"]]),
        scores=scores,
        settings=settings,
        measures=measures,
    )


def _settings(folder: Path, table: str, kinds: Mapping[str, type]) -> Mapping[str, Any] | None:
    """Return the record beside a table; None where there is none, and where it is about other
    people's loadings.
    """
    path = (folder / table).with_suffix(".json")
    record = read_record(path)
    if record is None or not (folder / table).is_file():
        return None
    with naming(path, "record"):
        if not _is_of_fit(folder, record):
            return None
        for name, kind in kinds.items():
            if not isinstance(record.get(name), kind):
                raise Unreadable(f"is damaged: {name} is missing or not what {_COMMAND} writes")
    return record


def _is_of_fit(folder: Path, record: Mapping[str, Any]) -> bool:
    """Return whether tests are about this fit's loadings; refuse those of another fit."""
    source = record.get("loadings")
    source = source if isinstance(source, dict) else {}
    files = [folder / name for name in (MODEL, LOADINGS) if (folder / name).is_file()]
    same = any(source.get("sha256") == hash_file(path) for path in files)
    # Tests of a table of new people may lie beside the fit: they are not about its loadings.
    other_table = str(source.get("path")).endswith(".tsv")
    check_fit(same or other_table, _COMMAND)
    return same


def _adjusted_columns(
    folder: Path, names: Sequence[str], levels: Mapping[str, Any]
) -> tuple[AdjustedColumn, ...]:
    """Return the columns of the model."""
    words = ("column", "value", "component")
    curves = read_columns(folder / _EXPECTED, _COMMAND, words, _ENDS) or {}
    points = read_columns(folder / _ADJUSTED, _COMMAND, ("column", "value"), names) or {}
    with naming(folder / _EXPECTED, "table"):
        k = len(names)
        cells = curves.get("column", [])
        if not cells or curves["component"] != [*names] * (len(cells) // k):
            raise Unreadable("is damaged: its components are not those of the tests")
    with naming(folder / _ADJUSTED, "table"):
        curve_column = np.array(cells)[::k]
        point_column = np.array(points.get("column", []))
        expected = np.array([curves[name] for name in _ENDS]).reshape(3, -1, k)
        adjusted = np.array([points[name] for name in names]).T
        columns = []
        # The tables have the rows of one column after those of another.
        for name in dict.fromkeys(cells):
            on_curve = curve_column == name
            rows = np.flatnonzero(point_column == name)
            columns.append(
                _adjusted_column(
                    name,
                    np.array(curves["value"])[::k][on_curve].tolist(),
                    expected[:, on_curve],
                    [points["value"][row] for row in rows],
                    adjusted[rows],
                    is_category=name in levels,
                )
            )
        n = len(columns[0].values)
        if any(len(column.values) != n for column in columns):
            raise Unreadable("is damaged: its columns do not have one row per person")
    return tuple(columns)


def _adjusted_column(
    name: str,
    curve_values: list[str],
    expected: np.ndarray,
    values: list[str],
    adjusted: np.ndarray,
    is_category: bool,
) -> AdjustedColumn:
    if not values:
        raise Unreadable("is damaged: it lacks a column of the model")
    if not is_category:
        at = np.array(numbers_in(curve_values))
        return AdjustedColumn(name, None, at, expected, np.array(numbers_in(values)), adjusted)
    if not set(values) <= set(curve_values):
        raise Unreadable("is damaged: it has levels that the model does not have")
    codes = np.array([curve_values.index(value) for value in values])
    at = np.arange(len(curve_values))
    return AdjustedColumn(name, tuple(curve_values), at, expected, codes, adjusted)


def _column_of(term: str, columns: Sequence[str]) -> int:
    """Return the column that a term is about, the longest of those that it names; −1 for none."""
    named = [name for name in columns if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", term)]
    return columns.index(max(named, key=len)) if named else -1
