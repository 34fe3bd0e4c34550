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
from icofactor.results.report.selection_files import LOADINGS, columns_of, numbers_in, read_record

ASSOCIATIONS = "associations.tsv"
_EXPECTED, _ADJUSTED = "associations_expected.tsv", "associations_adjusted.tsv"
_KINDS = {
    "formula": str,
    "model": str,
    "n_permutations": int,
    "n_rows": int,
    "levels": dict,
    "notes": list,
}
_COMMAND = "icofactor associate"
_TEXT = ("kind", "term", "statistic")
_NUMBERS = (
    *("estimate", "ci_low", "ci_high", "value", "df", "df_residual", "partial_r2", "standardized"),
    *("n", "p_theory", "p_corrected"),
)
_ENDS = ("mean", "ci_low", "ci_high")
_LATENT, _VARIABLES, _NORM = "pls.tsv", "pls_variables.tsv", "normative.tsv"
_HALVES = tuple(
    f"{side}_reproducibility{end}" for side in ("component", "measure") for end in ("", "_p")
)
_OF_LATENT = ("explained", "p", "correlation", *_HALVES)
_OF_VARIABLE = ("latent_variable", "weight", "bootstrap_ratio", "correlation", "ci_low", "ci_high")


@dataclass(frozen=True, eq=False)
class AdjustedColumn:
    """Loadings along a column of the table, the other columns held.

    Attributes
    ----------
    column : name.
    labels : levels of a category; None for a number.
    at : (m,) values, or numbers of the levels.
    expected : (3, m, k) mean, low and high end of its 95 % interval.
    values : (n_rows,) the people's own.
    adjusted : (n_rows, k) their loadings, adjusted.
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
    tests : column of associations.tsv → one value per test; "component" counts from 0, "measure" is
        "" unless rows of
        a fit are of several, "loading" numbers the tested loadings, "p" is corrected over all of
        them, or by theory without permutations, "column" is the number of the adjusted column, or
        -1.
    columns : one per column of the participants' table, the clearest first.
    people : names of the rows.
    settings : how the tests were made.
    measures : whose loadings were tested, those of all components of one after the other; () for
        one loading each.
    """

    tests: Mapping[str, list[Any]]
    columns: tuple[AdjustedColumn, ...]
    people: tuple[str, ...]
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
    latent : column of pls.tsv → one value per latent variable.
    variables : column of pls_variables.tsv → one value per latent variable and variable of either
        side.
    settings : how they were found.
    """

    latent: Mapping[str, list[float]]
    variables: Mapping[str, list[Any]]
    settings: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class NormTables:
    """W-scores against a reference group.

    Attributes
    ----------
    people : names of the rows.
    reference : (n_rows,) bool, who is in the reference.
    outside : columns in which a row lies outside the reference, "" where in none.
    scores : (n_rows, k), NaN where there are none.
    settings : how they were made.
    measures : as in `AssociationTables`; scores have k columns for each.
    """

    people: tuple[str, ...]
    reference: np.ndarray
    outside: tuple[str, ...]
    scores: np.ndarray
    settings: Mapping[str, Any]
    measures: tuple[str, ...] = ()


def read_latent_files(folder: Path, k: int, measures: tuple[str, ...] = ()) -> LatentTables | None:
    """What behavioural PLS left in the folder of a fit of k components; see
    `read_association_files`.
    """
    settings = _record_of(
        folder, _LATENT, {"n_rows": int, "n_permutations": int, "n_bootstrap": int, "notes": list}
    )
    if settings is None:
        return None
    with naming(folder / _LATENT, "table"):
        table = columns_of(folder / _LATENT, _OF_LATENT, _COMMAND)
        latent = {name: numbers_in(table[name]) for name in _OF_LATENT}
    with naming(folder / _VARIABLES, "table"):
        table = columns_of(folder / _VARIABLES, ("side", "variable", *_OF_VARIABLE), _COMMAND)
        variables: dict[str, list[Any]] = {name: table[name] for name in ("side", "variable")}
        variables |= {name: numbers_in(table[name]) for name in _OF_VARIABLE}
        sides = {side: variables["side"].count(side) for side in ("component", "measure")}
        n = len(latent["p"])
        if (
            not n
            or sum(sides.values()) != len(table["side"])
            or any(not count or count % n for count in sides.values())
        ):
            raise Unreadable(
                f"is damaged: it has not one row for each variable and each of {n} latent variables"
            )
        if sides["component"] > k * max(1, len(measures)) * n:
            raise Unreadable(
                _other_fit(
                    f"it contains {sides['component'] // n} components, the fit in this folder {k}"
                )
            )
    return LatentTables(latent, variables, settings)


def read_norm_files(folder: Path, k: int, measures: tuple[str, ...] = ()) -> NormTables | None:
    """The W-scores in the folder of a fit of k components; see `read_association_files`."""
    settings = _record_of(folder, _NORM, {"formula": str, "chosen_by": str, "notes": list})
    if settings is None:
        return None
    with naming(folder / _NORM, "table"):
        table = columns_of(folder / _NORM, (PERSON, "reference", "outside_reference"), _COMMAND)
        names = [
            name
            for name in table
            if name not in (PERSON, SESSION, "reference", "outside_reference")
        ]
        _check_loadings(names, k, measures)
        scores = np.array([numbers_in(table[name]) for name in names]).T
        keys = [table[name] for name in (PERSON, SESSION) if name in table]
    people = tuple(" ".join(row) for row in zip(*keys, strict=True))
    outside = tuple("" if text == "n/a" else text for text in table["outside_reference"])
    return NormTables(
        people,
        np.array([cell == "1" for cell in table["reference"]]),
        outside,
        scores,
        settings,
        measures,
    )


def _record_of(folder: Path, table: str, kinds: Mapping[str, type]) -> Mapping[str, Any] | None:
    """The record beside a table; None where there is none, and where it is about other people's
    loadings.
    """
    path = (folder / table).with_suffix(".json")
    record = read_record(path)
    if record is None or not (folder / table).is_file():
        return None
    with naming(path, "record"):
        return _settings(record, kinds) if _is_of(folder, record) else None


def read_association_files(
    folder: Path, k: int, measures: tuple[str, ...] = ()
) -> AssociationTables | None:
    """What lies in the folder of a fit of k components; refuses files of another fit. None where
    there are none, and where they are about a table of other people's loadings.

    `measures`: where people have loadings of each of several.
    """
    record = _record_of(folder, ASSOCIATIONS, _KINDS)
    if record is None:
        return None
    levels = record["levels"]
    with naming(folder / ASSOCIATIONS, "table"):
        table = columns_of(folder / ASSOCIATIONS, ("component", *_TEXT, *_NUMBERS), _COMMAND)
        names = list(dict.fromkeys(table["component"]))
        _check_loadings(names, k, measures)
        numbers = {name: numbers_in(table[name]) for name in _NUMBERS}
        tests: dict[str, list[Any]] = {name: table[name] for name in _TEXT} | numbers
        tests["loading"] = [names.index(name) for name in table["component"]]
        tests["component"] = [number % k for number in tests["loading"]]
        tests["measure"] = [
            measures[number // k] if measures else "" for number in tests["loading"]
        ]
        pairs = zip(tests["p_corrected"], tests["p_theory"], strict=True)
        tests["p"] = [theory if np.isnan(corrected) else corrected for corrected, theory in pairs]
    expected, (adjusted, people) = (
        _expected(folder / _EXPECTED, names),
        _adjusted(folder / _ADJUSTED, names),
    )
    with naming(folder / _ADJUSTED, "table"):
        columns = [_column(name, expected[name], adjusted.get(name), levels) for name in expected]
    about = [_of_term(term, list(expected)) for term in tests["term"]]
    best = [
        min((p for p, of in zip(tests["p"], about, strict=True) if of == i), default=2.0)
        for i in range(len(columns))
    ]
    order = sorted(range(len(columns)), key=lambda i: best[i])
    tests["column"] = [-1 if of < 0 else order.index(of) for of in about]
    return AssociationTables(tests, tuple(columns[i] for i in order), people, record, measures)


def _check_loadings(names: Sequence[str], k: int, measures: Sequence[str]) -> None:
    """Refuse a table that does not hold as many loadings of a person as the fit."""
    if len(names) != k * max(1, len(measures)):
        several = f" of {len(measures)} measures" if measures else ""
        raise Unreadable(
            _other_fit(f"it contains {len(names)} components, the fit in this folder {k}{several}")
        )


def _is_of(folder: Path, record: Mapping[str, Any]) -> bool:
    """Whether the tests are about this fit's loadings; refuses those of another fit."""
    source = record.get("loadings")
    known = source.get("sha256") if isinstance(source, dict) else None
    files = (folder / MODEL, folder / LOADINGS)
    if any(path.is_file() and known == hash_file(path) for path in files):
        return True
    if isinstance(source, dict) and str(source.get("path")).endswith(".tsv"):
        return False
    raise Unreadable(_other_fit(f"its loadings are not those of {MODEL} in this folder"))


def _settings(record: Mapping[str, Any], kinds: Mapping[str, type]) -> Mapping[str, Any]:
    wrong = [name for name, kind in kinds.items() if not isinstance(record.get(name), kind)]
    if wrong:
        raise Unreadable(f"is damaged: {wrong[0]} is missing or not what {_COMMAND} writes")
    return record


def _expected(path: Path, names: Sequence[str]) -> dict[str, tuple[list[str], np.ndarray]]:
    """Column → its values, and mean, low and high (3, m, k)."""
    with naming(path, "table"):
        table = columns_of(path, ("column", "value", "component", *_ENDS), _COMMAND)
        k = len(names)
        if table["component"] != list(names) * (len(table["component"]) // k):
            raise Unreadable("is damaged: its components are not those of the tests")
        ends = np.array([numbers_in(table[name]) for name in _ENDS]).reshape(3, -1, k)
        columns = np.array(table["column"])[::k]
        return {
            str(name): (
                [v for v, of in zip(table["value"][::k], columns, strict=True) if of == name],
                ends[:, columns == name],
            )
            for name in dict.fromkeys(columns.tolist())
        }


def _adjusted(
    path: Path, names: Sequence[str]
) -> tuple[dict[str, tuple[list[str], np.ndarray]], tuple[str, ...]]:
    """Column → the people's values and (n_rows, k) loadings; names of the rows."""
    with naming(path, "table"):
        table = columns_of(path, (PERSON, "column", "value", *names), _COMMAND)
        loadings = np.array([numbers_in(table[name]) for name in names]).T
        columns = np.array(table["column"])
        found = {
            str(name): (
                [v for v, of in zip(table["value"], columns, strict=True) if of == name],
                loadings[columns == name],
            )
            for name in dict.fromkeys(columns.tolist())
        }
        n = max((len(values) for values, _ in found.values()), default=0)
        if not n or any(len(values) != n for values, _ in found.values()):
            raise Unreadable("is damaged: its columns do not have one row per person")
        keys = [table[name][:n] for name in (PERSON, SESSION) if name in table]
        return found, tuple(" ".join(row) for row in zip(*keys, strict=True))


def _column(
    name: str,
    expected: tuple[list[str], np.ndarray],
    adjusted: tuple[list[str], np.ndarray] | None,
    levels: Mapping[str, Any],
) -> AdjustedColumn:
    if adjusted is None:
        raise Unreadable("is damaged: it lacks a column of the model")
    (places, curve), (own, loadings) = expected, adjusted
    if name not in levels:
        at, values = np.array(numbers_in(places)), np.array(numbers_in(own))
        return AdjustedColumn(name, None, at, curve, values, loadings)
    if not set(own) <= set(places):
        raise Unreadable("is damaged: it has levels that the model does not have")
    codes = np.array([places.index(value) for value in own])
    return AdjustedColumn(name, tuple(places), np.arange(len(places)), curve, codes, loadings)


def _of_term(term: str, columns: Sequence[str]) -> int:
    """The column that a term or contrast is about, the longest of those that it names; -1 when none
    is found.
    """
    named = [name for name in columns if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", term)]
    return columns.index(max(named, key=len)) if named else -1


def _other_fit(why: str) -> str:
    return f"is from another fit: {why}; run {_COMMAND} again or remove it"
