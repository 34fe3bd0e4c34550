"""Associations of a fit's loadings with tables of people, as files:

    associations.tsv                tests of terms and contrasts; settings and notes in its .json
    associations_coefficients.tsv   every column of the model
    associations_expected.tsv       expected loadings along each column of the table, with intervals
    associations_adjusted.tsv       loadings of people, adjusted for the other columns
    hemi-L_..._effects.shape.gii    maps of effects: Σ estimate × component
    pls.tsv, pls_variables.tsv, pls.png   latent variables of loadings and behaviour
    normative.tsv                   W-scores against a reference group

Every table has a .json of the same name that describes its columns. The files lie beside the fit or
in a folder of their own, and are removed with the fit when it is overwritten.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from icofactor import __version__
from icofactor.assessment.associations import (
    PLS,
    TAKEN_OUT,
    Associations,
    NormativeScores,
    associate,
    beside_each_other,
    normative_scores,
    pls,
    taken_out_of,
)
from icofactor.assessment.associations.result import DESCRIPTIONS
from icofactor.cohort.people import MEASURE, bare, session_key
from icofactor.cohort.problems import some
from icofactor.errors import ArgumentError, FileError, shown
from icofactor.estimator.saving import load_model
from icofactor.io.gifti import write_maps
from icofactor.io.guard import hash_file, naming
from icofactor.io.publish import Names, Publication, reading
from icofactor.io.tables import is_number, read_table, sidecar, write_table
from icofactor.results.description import LOADINGS, MODEL, PROVENANCE
from icofactor.results.folder import PARTICIPANTS, map_columns
from icofactor.results.report.selection_files import read_record
from icofactor.sphere.names import OWN, map_file, mesh_name_of

# Files of results, which the page of a fit looks for.
_EFFECTS = "effects.shape.gii"
_REGION_EFFECTS = "effects_by_region.tsv"
_TERMS = "associations.tsv"
_COEFFICIENTS = "associations_coefficients.tsv"
_EXPECTED = "associations_expected.tsv"
_ADJUSTED = "associations_adjusted.tsv"
_LATENT = "pls.tsv"
_VARIABLES = "pls_variables.tsv"
_PICTURE = "pls.png"
_NORMATIVE = "normative.tsv"
# Columns that join tables, as in BIDS.
_ID = "participant_id"
_SESSION = "session_id"
# 1 for scans that were fitted, where some were not.
_FITTED = "fitted"
_COMPONENT = re.compile(r"component\d+")
# Columns that the norm of a reference group depends on if no formula is given.
NORM = "age + sex"

# Stands for all components in a table that has one column for each.
_LOADING = "component"
_TERM_COLUMNS = {"kind": "term of the formula, or contrast", **DESCRIPTIONS}
_COEFFICIENT_COLUMNS = {**DESCRIPTIONS, "column": "Column of the model", "t": "estimate / se"}
_EXPECTED_COLUMNS = {
    **DESCRIPTIONS,
    "column": "Column of the participants table",
    "value": "A value of it",
    "mean": ("Loading that the model expects there, averaged over the other columns of the cohort"),
}
_ADJUSTED_COLUMNS = {
    **DESCRIPTIONS,
    "column": "Column of the participants table",
    "value": "The row's value of it",
    _LOADING: (
        "Loading adjusted for the other columns: what is expected at this value, plus the row's "
        "residual"
    ),
}
_NORMATIVE_COLUMNS = {
    "reference": "1 for people of the reference group, whose scores come from the others of it",
    "outside_reference": "Columns in which a row lies outside the reference's range or levels",
    _LOADING: "W-score: (loading - expected at this age, sex, ...) / residual SD of the reference",
}
_LATENT_COLUMNS = {
    "latent_variable": "Its number",
    "singular_values": "Singular value of the cross-correlation",
    "explained": "Share of the squared cross-correlation",
    "p": "By permutation of the people's behaviour",
    "correlation": "Of the two scores",
    "component_reproducibility": (
        "Mean correlation of the patterns of components in two random halves"
    ),
    "measure_reproducibility": "Mean correlation of the patterns of measures in two random halves",
    "component_reproducibility_p": "Of that, against permuted behaviour",
    "measure_reproducibility_p": "Of that, against permuted behaviour",
}
_VARIABLE_COLUMNS = {
    "latent_variable": "Its number",
    "side": "component of the factorization, or measure of behaviour",
    "variable": "Name",
    "weight": "Singular vector",
    "bootstrap_ratio": "Weight × singular value / standard error over resamples of people",
    "correlation": "With the other side's score",
    "ci_low": "Lower end of its 95 % interval over resamples",
    "ci_high": "Upper end of its 95 % interval over resamples",
}


# ---------------------------------------------------------------------- loadings from files


@dataclass(frozen=True, eq=False)
class FittedLoadings:
    """Loadings of people as files hold them.

    Attributes
    ----------
    rows : participant_id, and session_id if people have several scans.
    loadings : (n_rows, n_components)
    components : names.
    participants : the participants table of the fit for these rows; empty if there is none.
    model : None for a table alone.
    path : file or folder.
    taken_out : columns whose effects the fit took out of the maps, of a table alone.
    groups : column by which the fit kept people together; None for the scans of a person.
    sha256 : of the table, or of the fit's model.
    """

    rows: Mapping[str, list[str]]
    loadings: np.ndarray
    components: tuple[str, ...]
    participants: Mapping[str, list[str | None]]
    model: Any
    path: Path
    groups: str | None = None
    taken_out: tuple[str, ...] = ()
    sha256: str = ""

    @classmethod
    def read(cls, fitted: str | Path) -> FittedLoadings:
        """Read the folder of a fit, or a table of loadings as `icofactor transform` writes it."""
        path = Path(fitted)
        if path.is_dir():
            with reading(path):
                return cls._from_folder(path)
        if path.suffix != ".tsv":
            problem = "is neither the folder of a fit nor a table of loadings (.tsv)"
            raise FileError(path, problem)
        return cls._from_table(path)

    @classmethod
    def _from_table(cls, path: Path) -> FittedLoadings:
        rows, loadings, components = _read_loadings(path)
        columns = (read_record(sidecar(path)) or {}).get(TAKEN_OUT)
        taken_out = tuple(map(str, columns)) if isinstance(columns, list) else ()
        return cls(
            rows,
            loadings,
            components,
            _other_columns(path, rows, components),
            None,
            path,
            taken_out=taken_out,
            sha256=hash_file(path),
        )

    @classmethod
    def _from_folder(cls, folder: Path) -> FittedLoadings:
        model = load_model(folder / MODEL)
        rows, loadings, components = _read_loadings(folder / LOADINGS)
        file = folder / PARTICIPANTS
        participants = joined(file, rows) if file.is_file() else {}
        # Some scans of people with several may not have been fitted.
        n_fitted = sum(cell == "1" for cell in participants.get(_FITTED, [])) or len(loadings)
        n_measures = _n_separate_measures(model)
        n_rows, n_components = model.loadings_.shape
        if (n_fitted * n_measures, loadings.shape[1]) != (n_rows, n_measures * n_components):
            problem = f"is not from the same fit as {MODEL} in this folder"
            raise FileError(folder / LOADINGS, problem)
        # Permutations keep together what the fit kept together.
        scans = (read_record(folder / PROVENANCE) or {}).get("scans")
        groups = scans.get("groups") if isinstance(scans, dict) else None
        if len(loadings) != len(model.loadings_) and n_measures == 1:
            # The model has the fitted scans alone.
            model = copy(model)
            model.loadings_ = loadings
        return cls(
            rows,
            loadings,
            components,
            participants,
            model,
            folder,
            groups if groups in participants else None,
            sha256=hash_file(folder / MODEL),
        )


def _n_separate_measures(model: Any) -> int:
    """Return how many loadings a person has of each component: one per measure of shared maps."""
    measures = model.measures_
    return 1 if measures is None or measures.share == "loadings" else int(measures.n)


def _read_loadings(path: Path) -> tuple[dict[str, list[str]], np.ndarray, tuple[str, ...]]:
    """Return rows, loadings and names of components of a table of loadings."""
    with naming(path, "table of loadings"):
        columns, _ = read_table(path)
    names = tuple(name for name in columns if name not in (_ID, _SESSION, MEASURE))
    # `icofactor transform` writes further columns beside the loadings.
    names = tuple(name for name in names if _COMPONENT.fullmatch(name)) or names
    if _ID not in columns or not names:
        problem = f"is not a table of loadings: it should have {_ID} and one column per component"
        raise FileError(path, problem)
    for name in names:
        if not all(map(is_number, columns[name])):
            raise FileError(
                path,
                f"column {shown(name)} is not numeric; give a fit, or loadings from icofactor "
                "transform",
            )
    rows = {name: columns[name] for name in (_ID, _SESSION) if name in columns}
    loadings = np.array([columns[name] for name in names], dtype=np.float64).T
    measures = list(dict.fromkeys(columns.get(MEASURE, ())))
    if len(measures) < 2:
        return rows, loadings, names
    n_people = len(loadings) // len(measures)
    if columns[MEASURE] != [measure for measure in measures for _ in range(n_people)]:
        raise FileError(path, "must list all people of one measure before those of the next")
    by_measure = dict(zip(measures, np.split(loadings, len(measures)), strict=True))
    frame = beside_each_other(by_measure)
    rows = {name: cells[:n_people] for name, cells in rows.items()}
    return rows, frame.to_numpy(), tuple(frame.columns)


def _other_columns(
    path: Path, rows: Mapping[str, Any], components: Sequence[str]
) -> dict[str, list[str | None]]:
    """Return what a table of loadings says of the participants."""
    columns, _ = read_table(path)
    n_people = len(rows[_ID])
    return {
        name: [*cells[:n_people]]
        for name, cells in columns.items()
        if name not in (MEASURE, *rows, *components) and not _COMPONENT.fullmatch(name)
    }


def joined(path: str | Path, rows: Mapping[str, Sequence[str]]) -> dict[str, list[str | None]]:
    """Return the columns of a table for these rows; None for people whom it does not list.

    People are matched by participant_id, and session_id if both tables have it.
    """
    file = Path(path)
    with naming(file, "table"):
        columns, _ = read_table(file)
    if _ID not in columns:
        raise FileError(file, f"has no column {_ID}; its columns: {some(columns, 20)}")
    if MEASURE in columns and MEASURE not in rows:
        # With joined measures, a person has a row for each; the first says it all.
        measures = columns.pop(MEASURE)
        is_first = [measure == measures[0] for measure in measures]
        columns = {
            name: [cell for cell, first in zip(cells, is_first, strict=True) if first]
            for name, cells in columns.items()
        }
    # Without sessions in both tables, all scans of a person have the same row.
    names = [name for name in (_ID, _SESSION) if name in columns and name in rows]
    table_keys = _keys(columns, names)
    keys = _keys(rows, names)
    counts = Counter(table_keys)
    repeated = sorted(" ".join(key) for key in set(keys) if counts[key] > 1)
    if repeated:
        raise FileError(file, f"lists {some(repeated, 10)} more than once")
    number_of = {key: number for number, key in enumerate(table_keys)}
    numbers = [number_of.get(key) for key in keys]
    if all(number is None for number in numbers):
        example = " ".join(keys[0])
        raise FileError(file, f"lists none of the people with loadings, such as {example}")
    return {
        name: [None if number is None else cells[number] for number in numbers]
        for name, cells in columns.items()
        if name not in rows
    }


def _keys(columns: Mapping[str, Sequence[str]], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return what identifies each row, spelled the same way in all tables."""
    spelling = {_ID: bare, _SESSION: session_key}
    return list(zip(*(map(spelling[name], columns[name]) for name in names), strict=True))


# ---------------------------------------------------------------------- analysis


@dataclass(frozen=True, eq=False)
class AssociationFiles:
    """Results of `write_associations`, and the files written."""

    associations: Associations | None
    pls: PLS | None
    normative: NormativeScores | None
    files: tuple[Path, ...]


def write_associations(
    fitted: str | Path,
    out: str | Path | None = None,
    formula: str | None = None,
    *,
    participants: str | Path | None = None,
    groups: str | None = None,
    smooth: Any = None,
    contrast: Sequence[str] | None = None,
    behaviour: str | Path | None = None,
    reference: str | None = None,
    n_permutations: int = 5000,
    n_bootstrap: int = 2000,
    missing_covariates: str = "raise",
    random_state: int = 0,
    overwrite: bool = False,
) -> AssociationFiles:
    """Test associations of loadings, and write the files at the top of this module; all or none.

    Parameters
    ----------
    fitted : folder of a fit, or a table of loadings (.tsv), which gives no maps.
    out : folder; that of the fit when None.
    formula : tests its terms; with a reference the formula of the norm, "age + sex" by default.
    participants : table with participant_id; by default the fit's own.
    behaviour : table with participant_id for behavioural PLS.
    groups : column; by default the one that the fit kept together, else the scans of a person.
    smooth, contrast, reference, n_permutations, n_bootstrap, missing_covariates, random_state : see
        `associate`, `pls` and `normative_scores`.
    overwrite : whether to replace earlier results of the same kind.
    """
    if formula is None and behaviour is None and reference is None:
        raise ArgumentError(
            "formula",
            "nothing to do: pass --formula (formula), --pls (behaviour) or --reference (reference)",
        )
    # The folder is checked while it is known to hold the fit that was read.
    with reading(Path(fitted)) if Path(fitted).is_dir() else nullcontext():
        source = FittedLoadings.read(fitted)
        if out is None and source.model is None:
            raise ArgumentError("out", "a table of loadings needs a folder for the results")
        target = source.path if out is None else Path(out)
        inputs = [path for path in (participants, behaviour) if path is not None]
        names = _names_of_files(formula, behaviour, reference)
        folder = _checked_folder(target, source, overwrite, inputs, names, formula is not None)
    loadings = _loadings_to_test(source)
    table: dict[str, Any] = dict(source.participants)
    if participants is not None:
        table = joined(participants, source.rows)
    elif groups is None:
        groups = source.groups
    table = {**source.rows, **table}
    # Arguments that several of the analyses take.
    shared: dict[str, Any] = {"missing_covariates": missing_covariates}
    drawn: dict[str, Any] = {"n_permutations": n_permutations, "random_state": random_state}
    grouped: dict[str, Any] = {"groups": groups, "smooth": smooth}
    associations = None
    if formula is not None:
        associations = associate(
            loadings, table, formula, contrast=contrast, **grouped, **shared, **drawn
        )
    scores = None
    norm = formula or NORM
    if reference is not None:
        scores = normative_scores(loadings, table, norm, reference=reference, **grouped, **shared)
    latent = None
    if behaviour is not None:
        if groups is not None and groups not in table:
            problem = f"must be a column of the participants table; found {shown(groups)}"
            raise ArgumentError("groups", problem)
        labels = None if groups is None else table[groups]
        measures = {**source.rows, **joined(behaviour, source.rows)}
        latent = pls(loadings, measures, groups=labels, n_bootstrap=n_bootstrap, **shared, **drawn)
    origin = _origin(source, {"participants": participants, "behaviour": behaviour})
    with folder.filled() as stage:
        if associations is not None:
            _write_tests(stage, associations, source, origin)
            _write_effects(stage, associations, source, origin)
        if scores is not None:
            settings = {
                "formula": norm,
                "chosen_by": reference,
                "residual_sd": scores.deviation,
                "notes": list(scores.notes),
            }
            scores_table = {**source.rows, **scores.table}
            _write_table(
                stage / _NORMATIVE, scores_table, _NORMATIVE_COLUMNS, {**origin, **settings}
            )
        if latent is not None:
            _write_pls(stage, latent, {**origin, **drawn, "n_bootstrap": n_bootstrap})
    return AssociationFiles(associations, latent, scores, tuple(folder.files))


def _loadings_to_test(source: FittedLoadings) -> Any:
    """Return the model, or a data frame that says which effects the fit took out of the maps."""
    import pandas as pd

    model = source.model
    if model is not None and _n_separate_measures(model) == 1:
        return model
    frame = pd.DataFrame(source.loadings, columns=list(source.components))
    frame.attrs[TAKEN_OUT] = source.taken_out if model is None else taken_out_of(model)
    return frame


# ---------------------------------------------------------------------- files


def _names_of_files(formula: str | None, behaviour: Any, reference: str | None) -> list[str]:
    """Return the files that are written whatever the results are."""
    tables: list[str] = []
    if formula is not None:
        tables += [_TERMS, _COEFFICIENTS, _EXPECTED, _ADJUSTED]
    if behaviour is not None:
        tables += [_LATENT, _VARIABLES]
    if reference is not None:
        tables.append(_NORMATIVE)
    pictures = [_PICTURE] if behaviour is not None else []
    return [*tables, *(sidecar(name).name for name in tables), *pictures]


def _checked_folder(
    target: Path,
    source: FittedLoadings,
    overwrite: bool,
    inputs: Sequence[str | Path],
    names: Sequence[str],
    tests_terms: bool,
) -> Publication:
    """Return the folder of the results, checked before any work."""
    # Another formula has other effects.
    endings = (f"_{_EFFECTS}", _REGION_EFFECTS, sidecar(_REGION_EFFECTS).name)

    def effects(listed: Names) -> list[str]:
        return [name for name in listed if tests_terms and name.endswith(endings)]

    is_in_fit = source.model is not None and target.absolute() == source.path.absolute()
    return Publication(
        target,
        overwrite,
        names=names,
        leaving=effects,
        inputs=inputs,
        # The results are about this model, which another run may replace.
        steady=[MODEL] if is_in_fit else [],
    )


def _origin(source: FittedLoadings, tables: Mapping[str, str | Path | None]) -> dict[str, Any]:
    """Return where the results come from."""
    file = source.path / MODEL if source.path.is_dir() else source.path
    record: dict[str, Any] = {
        "icofactor": __version__,
        "loadings": {"path": str(file), "sha256": source.sha256},
    }
    for name, path in tables.items():
        if path:
            record[name] = {"path": str(path), "sha256": hash_file(Path(path))}
    return record


def _write_tests(
    folder: Path, associations: Associations, source: FittedLoadings, origin: Mapping[str, Any]
) -> None:
    tables = {"term": associations.table, "contrast": associations.contrasts}
    n_rows = {kind: len(table["term"]) for kind, table in tables.items()}
    columns = {"kind": np.repeat(list(n_rows), list(n_rows.values()))}
    for name in DESCRIPTIONS:
        # Without contrasts, their table has no columns.
        cells = [table[name] for kind, table in tables.items() if n_rows[kind]]
        columns[name] = np.concatenate(cells or [np.array([])])
    settings = {**origin, **associations.settings, "notes": list(associations.notes)}
    _write_table(folder / _TERMS, columns, _TERM_COLUMNS, settings)
    _write_table(folder / _COEFFICIENTS, associations.coefficients, _COEFFICIENT_COLUMNS, origin)
    expected = _expected(associations, source.components)
    _write_table(folder / _EXPECTED, expected, _EXPECTED_COLUMNS, origin)
    _write_table(folder / _ADJUSTED, _adjusted(associations, source), _ADJUSTED_COLUMNS, origin)


def _write_effects(
    folder: Path, associations: Associations, source: FittedLoadings, origin: Mapping[str, Any]
) -> None:
    """Write maps of effects for vertices and parcels of a known hemisphere."""
    model = source.model
    if model is None or model.hemi_ is None or not associations.directions:
        return
    sites = model.sites_
    if sites.on not in ("vertices", "parcels"):
        return
    measures = model.measures_
    maps_of_measure = {OWN: model.components_}
    if measures is not None:
        maps_of_measure = measures.maps(model.components_)
    n_components = len(model.components_)
    mesh = mesh_name_of(sites)
    # Measures that share loadings have effects of their own, in their own units.
    for number, (measure, maps) in enumerate(maps_of_measure.items()):
        # With shared maps, every measure has loadings of its own.
        components = slice(None)
        if _n_separate_measures(model) > 1:
            components = slice(number * n_components, (number + 1) * n_components)
        effects = associations.effects(maps, components)
        if sites.regions is not None:
            name = _REGION_EFFECTS if measure == OWN else f"{measure}_{_REGION_EFFECTS}"
            _write_region_effects(folder / name, sites.regions.names, effects, origin)
        if sites.placed:
            values = sites.one_copy().on_surface(np.stack(list(effects.values())))
            for side, columns in map_columns(values.shape[1], model.hemi_, mesh):
                file = folder / map_file(mesh, _EFFECTS, side, measure)
                write_maps(file, values[:, columns], side, list(effects))


def _write_region_effects(
    path: Path, regions: Sequence[str], effects: Mapping[str, Any], origin: Mapping[str, Any]
) -> None:
    meaning = "effect at the region, in the units of the maps"
    columns = {"region": "name of the region", **dict.fromkeys(effects, meaning)}
    _write_table(path, {"region": list(regions), **effects}, columns, origin)


def _expected(associations: Associations, components: Sequence[str]) -> dict[str, np.ndarray]:
    """Return one row per column of the table, value and component."""
    curves = {column: associations.expected(column) for column in associations.columns}
    n_components = len(components)
    n_values = {column: len(curve.values) for column, curve in curves.items()}
    values = [np.repeat(curve.values.astype(str), n_components) for curve in curves.values()]
    return {
        "column": np.repeat(list(curves), [n_components * n for n in n_values.values()]),
        "value": np.concatenate(values),
        "component": np.tile(components, sum(n_values.values())),
        "mean": np.concatenate([curve.mean.ravel() for curve in curves.values()]),
        "ci_low": np.concatenate([curve.low.ravel() for curve in curves.values()]),
        "ci_high": np.concatenate([curve.high.ravel() for curve in curves.values()]),
    }


def _adjusted(associations: Associations, source: FittedLoadings) -> dict[str, Any]:
    """Return one row per column of the table and row of the loadings."""
    points = {column: associations.adjusted(column) for column in associations.columns}
    loadings = np.concatenate([adjusted for _, adjusted in points.values()])
    rows = {
        name: [cells[row] for _ in points for row in associations.rows]
        for name, cells in source.rows.items()
    }
    return {
        **rows,
        "column": np.repeat(list(points), len(associations.rows)),
        "value": np.concatenate([values.astype(str) for values, _ in points.values()]),
        **dict(zip(source.components, loadings.T, strict=True)),
    }


def _write_pls(folder: Path, latent: PLS, origin: Mapping[str, Any]) -> None:
    settings = {**origin, "n_rows": len(latent.rows), "notes": list(latent.notes)}
    _write_table(folder / _LATENT, latent.table, _LATENT_COLUMNS, settings)
    _write_table(folder / _VARIABLES, latent.variables, _VARIABLE_COLUMNS, settings)
    picture = BytesIO()
    latent.plot(1).savefig(picture, format="png", dpi=150)
    (folder / _PICTURE).write_bytes(picture.getvalue())


def _write_table(
    path: Path, table: Mapping[str, Any], columns: Mapping[str, str], settings: Mapping[str, Any]
) -> None:
    """Write a table and describe all its components alike."""
    components = [name for name in table if name not in (_ID, _SESSION, *columns)]
    meaning = columns.get(_LOADING, "")
    write_table(path, table, {**columns, **dict.fromkeys(components, meaning)}, settings)
