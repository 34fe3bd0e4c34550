"""Associations of a fit's loadings with tables of people, as files:

    associations.tsv                             tests of terms and contrasts; settings and notes
    are in its .json associations_coefficients.tsv                every column of the model
    associations_expected.tsv                    what the model expects along each column of the
    table, with intervals associations_adjusted.tsv                    loadings of people, adjusted
    for the other columns hemi-L_..._desc-icofactor_effects.shape.gii  maps that effects go with: Σ
    estimate × component
    pls.tsv, pls_variables.tsv, pls.png          latent variables of loadings and behaviour
    normative.tsv                                W-scores against a reference group

Every table has a .json of the same name that says what its columns hold. They lie beside the fit or
in a folder of their own, and leave with the fit when it is overwritten.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass
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
from icofactor.errors import ArgumentError, FileError, literal
from icofactor.estimator.saving import load_model
from icofactor.io.gifti import write_maps
from icofactor.io.guard import hash_file, naming
from icofactor.io.publish import Publication, reading
from icofactor.io.tables import is_number, read_table, sidecar, write_table
from icofactor.results.description import LOADINGS, MODEL, PROVENANCE
from icofactor.results.folder import PARTICIPANTS, map_columns
from icofactor.results.report.selection_files import read_record
from icofactor.sphere.names import OWN, map_file, mesh_name_of

_EFFECTS, _REGION_EFFECTS = "effects.shape.gii", "effects_by_region.tsv"
_TABLES = tuple(f"associations{end}.tsv" for end in ("", "_coefficients", "_expected", "_adjusted"))
_PLS, _PICTURE = ("pls.tsv", "pls_variables.tsv"), "pls.png"
_NORMATIVE = "normative.tsv"
_ID, _SESSION, _FITTED = "participant_id", "session_id", "fitted"
_COMPONENT = re.compile(r"component\d+")
NORM = "age + sex"
"""What a reference's loadings depend on where no formula says it."""


@dataclass(frozen=True, eq=False)
class FittedLoadings:
    """Loadings of people as files hold them.

    Attributes
    ----------
    rows : participant_id, and session_id where people have several scans.
    loadings : (n_rows, n_components)
    components : names.
    participants : what the fit knows of them, joined; empty when nothing.
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
        """From the folder of a fit, or from a table of loadings as `icofactor transform` writes it."""
        place = Path(fitted)
        if not place.is_dir():
            if place.suffix != ".tsv":
                raise FileError(
                    place, "is neither the folder of a fit nor a table of loadings (.tsv)"
                )
            rows, loadings, components = _table_of(place)
            beside = _beside_loadings(place, rows, components)
            gone = (read_record(sidecar(place)) or {}).get(TAKEN_OUT)
            taken_out = tuple(map(str, gone)) if isinstance(gone, list) else ()
            known = hash_file(place)
            return cls(
                rows, loadings, components, beside, None, place, taken_out=taken_out, sha256=known
            )
        with reading(place):
            model = load_model(place / MODEL)
            rows, loadings, components = _table_of(place / LOADINGS)
            people = place / PARTICIPANTS
            table = joined(people, rows) if people.is_file() else {}
            # of people with several scans some may not have been fitted
            n_fitted = sum(cell == "1" for cell in table.get(_FITTED, [])) or len(loadings)
            n_beside = _n_beside(model)
            if (n_fitted * n_beside, loadings.shape[1]) != (
                len(model.loadings_),
                n_beside * model.loadings_.shape[1],
            ):
                raise FileError(
                    place / LOADINGS, f"is not from the same fit as {MODEL} in this folder"
                )
            told = (read_record(place / PROVENANCE) or {}).get("scans")
            groups = told.get("groups") if isinstance(told, dict) else None
            groups = groups if groups in table else None
            known = hash_file(place / MODEL)
        return cls(
            rows, loadings, components, table, _with(model, loadings), place, groups, sha256=known
        )


def _n_beside(model: Any) -> int:
    """Loadings that a person has of each component: one per measure where these share maps."""
    measures = model.measures_
    return 1 if measures is None or measures.share == "loadings" else int(measures.n)


def _with(model: Any, loadings: np.ndarray) -> Any:
    """A model with the loadings of all scans, where some were not fitted."""
    if len(loadings) == len(model.loadings_) or _n_beside(model) > 1:
        return model
    found = copy(model)
    found.loadings_ = loadings
    return found


def _table_of(path: Path) -> tuple[dict[str, list[str]], np.ndarray, tuple[str, ...]]:
    """Rows, loadings and names of components of a table of loadings."""
    with naming(path, "table of loadings"):
        columns, _ = read_table(path)
    names = tuple(name for name in columns if name not in (_ID, _SESSION, MEASURE))
    # `icofactor transform` writes more beside the loadings
    names = tuple(name for name in names if _COMPONENT.fullmatch(name)) or names
    if _ID not in columns or not names:
        raise FileError(
            path, f"is not a table of loadings: it should have {_ID} and one column per component"
        )
    wrong = [name for name in names if not all(map(is_number, columns[name]))]
    if wrong:
        raise FileError(
            path,
            f"column {literal(repr(wrong[0]))} is not numeric; give a fit, or loadings from icofactor transform",
        )
    rows = {name: columns[name] for name in (_ID, _SESSION) if name in columns}
    loadings = np.array([columns[name] for name in names], dtype=np.float64).T
    measures = list(dict.fromkeys(columns.get(MEASURE, ())))
    if len(measures) < 2:
        return rows, loadings, names
    if columns[MEASURE] != [one for one in measures for _ in range(len(loadings) // len(measures))]:
        raise FileError(path, "must list all people of one measure before those of the next")
    n = len(loadings) // len(measures)
    beside = beside_each_other(dict(zip(measures, np.split(loadings, len(measures)), strict=True)))
    return (
        {name: cells[:n] for name, cells in rows.items()},
        beside.to_numpy(),
        tuple(beside.columns),
    )


def _beside_loadings(
    path: Path, rows: Mapping[str, Any], components: Sequence[str]
) -> dict[str, list[str | None]]:
    """The other columns of a table of loadings: what it says of the participants."""
    columns, _ = read_table(path)
    gone, n = (MEASURE, *rows, *components), len(rows[_ID])
    own = {
        name: values
        for name, values in columns.items()
        if name not in gone and not _COMPONENT.fullmatch(name)
    }
    return {name: [*values[:n]] for name, values in own.items()}


def joined(path: str | Path, rows: Mapping[str, Sequence[str]]) -> dict[str, list[str | None]]:
    """The columns of a table for these rows, by participant_id (and session_id where both have it);
    None for people whom it does not list.
    """
    file = Path(path)
    with naming(file, "table"):
        columns, _ = read_table(file)
    if _ID not in columns:
        raise FileError(file, f"has no column {_ID}; its columns: {some(columns, 20)}")
    if MEASURE in columns and MEASURE not in rows:  # joined measures: a person has a row for each
        first = [i for i, one in enumerate(columns[MEASURE]) if one == columns[MEASURE][0]]
        columns = {
            name: [values[i] for i in first] for name, values in columns.items() if name != MEASURE
        }
    keys = [name for name in (_ID, _SESSION) if name in columns and name in rows]
    spelled = {_ID: bare, _SESSION: session_key}
    theirs = list(zip(*(map(spelled[name], columns[name]) for name in keys), strict=True))
    wanted = list(zip(*(map(spelled[name], rows[name]) for name in keys), strict=True))
    twice = sorted({key for key, count in Counter(theirs).items() if count > 1} & set(wanted))
    if twice:
        raise FileError(file, f"lists {some([' '.join(key) for key in twice], 10)} more than once")
    place = {key: i for i, key in enumerate(theirs)}
    found = [place.get(key) for key in wanted]
    if all(i is None for i in found):
        example = literal(" ".join(wanted[0]))
        raise FileError(file, f"lists none of the people with loadings, such as {example}")
    rest = {name: values for name, values in columns.items() if name not in rows}
    return {
        name: [None if i is None else values[i] for i in found] for name, values in rest.items()
    }


@dataclass(frozen=True, eq=False)
class AssociationFiles:
    """What `write_associations` found and wrote."""

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
    """Associations of the loadings in a fit's folder, written as the files at the top of this
    module; all or none.

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
    import pandas as pd

    if formula is None and behaviour is None and reference is None:
        raise ArgumentError(
            "formula", None, "Nothing to do: give {formula}, {behaviour} or {reference}"
        )
    # what is read and what must be the same at the end are of one fit
    with reading(Path(fitted)) if Path(fitted).is_dir() else nullcontext():
        source = FittedLoadings.read(fitted)
        if out is None and source.model is None:
            raise ArgumentError(
                "out", None, "{out} is needed with a table of loadings: a folder for the results"
            )
        target = source.path if out is None else Path(out)
        place = _place(
            target, source, overwrite, [participants, behaviour], formula, behaviour, reference
        )
    if groups is None and participants is None:
        groups = source.groups
    table: dict[str, Any] = {**source.rows}
    table |= (
        dict(source.participants) if participants is None else joined(participants, source.rows)
    )
    given = source.model
    if given is None or _n_beside(given) > 1:
        given = pd.DataFrame(source.loadings, columns=list(source.components))
        given.attrs[TAKEN_OUT] = (
            source.taken_out if source.model is None else taken_out_of(source.model)
        )
    shared: dict[str, Any] = {"missing_covariates": missing_covariates}
    drawn: dict[str, Any] = {"n_permutations": n_permutations, "random_state": random_state}
    tested = norm = latent = None
    if formula is not None:
        tested = associate(
            given,
            table,
            formula,
            groups=groups,
            smooth=smooth,
            contrast=contrast,
            **shared,
            **drawn,
        )
    if reference is not None:
        norm = normative_scores(
            given,
            table,
            formula or NORM,
            reference=reference,
            groups=groups,
            smooth=smooth,
            **shared,
        )
    if behaviour is not None:
        labels = table.get(groups) if groups is not None else None
        if groups is not None and labels is None:
            raise ArgumentError("groups", groups, "a column of the participants' table")
        measures = {**source.rows, **joined(behaviour, source.rows)}
        latent = pls(given, measures, groups=labels, n_bootstrap=n_bootstrap, **shared, **drawn)
    about = _about(source, {"participants": participants, "behaviour": behaviour})
    with place.filled() as new:
        if tested is not None:
            _write_tests(new, tested, source, about)
        if norm is not None:
            settings = {
                "formula": formula or NORM,
                "chosen_by": reference,
                "residual_sd": norm.deviation,
            }
            more = {**about, **settings, "notes": list(norm.notes)}
            _write_table(new / _NORMATIVE, {**source.rows, **norm.table}, _NORMATIVE_COLUMNS, more)
        if latent is not None:
            _write_pls(new, latent, {**about, **drawn, "n_bootstrap": n_bootstrap})
    return AssociationFiles(tested, latent, norm, tuple(place.files))


def _place(
    target: Path,
    source: FittedLoadings,
    overwrite: bool,
    read: Sequence[str | Path | None],
    formula: str | None,
    behaviour: Any,
    reference: str | None,
) -> Publication:
    """The folder, checked before any work."""
    tables = [
        *(_TABLES if formula is not None else ()),
        *(_PLS if behaviour is not None else ()),
        *([_NORMATIVE] if reference is not None else ()),
    ]
    names = [
        *tables,
        *(sidecar(name).name for name in tables),
        *([_PICTURE] if behaviour is not None else ()),
    ]
    leaving = lambda listed: [
        name
        for name in listed
        if formula is not None
        and name.endswith((f"_{_EFFECTS}", _REGION_EFFECTS, sidecar(_REGION_EFFECTS).name))
    ]
    inputs = [path for path in read if path is not None]
    own = source.model is not None and target.absolute() == source.path.absolute()
    return Publication(
        target,
        overwrite,
        names=names,
        leaving=leaving,
        inputs=inputs,
        steady=[MODEL] if own else [],
    )


def _about(source: FittedLoadings, tables: Mapping[str, str | Path | None]) -> dict[str, Any]:
    """Where the results come from."""
    file = source.path / MODEL if source.path.is_dir() else source.path
    read = {
        name: {"path": str(path), "sha256": hash_file(Path(path))}
        for name, path in tables.items()
        if path
    }
    return {
        "icofactor": __version__,
        "loadings": {"path": str(file), "sha256": source.sha256},
        **read,
    }


def _write_tests(
    folder: Path, found: Associations, source: FittedLoadings, about: Mapping[str, Any]
) -> None:
    tables = {"term": found.table, "contrast": found.contrasts}
    rows = {
        "kind": np.concatenate(
            [np.full(len(table["term"]), kind) for kind, table in tables.items()]
        ),
        **{
            name: np.concatenate(
                [table[name] for table in tables.values() if len(table["term"])] or [np.array([])]
            )
            for name in DESCRIPTIONS
        },
    }
    more = {**about, **found.settings, "notes": list(found.notes)}
    _write_table(
        folder / _TABLES[0],
        rows,
        {"kind": "term of the formula, or contrast", **DESCRIPTIONS},
        more,
    )
    others = (found.coefficients, _expected(found, source.components), _adjusted(found, source))
    for name, table, columns in zip(_TABLES[1:], others, _OTHER_COLUMNS, strict=True):
        _write_table(folder / name, table, {**DESCRIPTIONS, **columns}, about)
    model = source.model
    sites: Any = None if model is None else model.sites_
    if (
        model is None
        or sites.on not in ("vertices", "parcels")
        or model.hemi_ is None
        or not found.directions
    ):
        return
    mesh, measures, k = mesh_name_of(sites), model.measures_, len(model.components_)
    each = {OWN: model.components_} if measures is None else measures.maps(model.components_)
    for number, (desc, maps) in enumerate(each.items()):
        mine = slice(number * k, (number + 1) * k) if _n_beside(model) > 1 else slice(None)
        effects = found.effects(maps, mine)
        if sites.regions is not None:
            known = {
                "region": "name of the region",
                **dict.fromkeys(effects, "effect at the region, in the units of the maps"),
            }
            name = _REGION_EFFECTS if desc == OWN else f"{desc}_{_REGION_EFFECTS}"
            _write_table(
                folder / name, {"region": list(sites.regions.names), **effects}, known, about
            )
        if not sites.placed:
            continue
        values = sites.of_measure().on_surface(np.stack(list(effects.values())))
        for side, part in map_columns(values.shape[1], model.hemi_, mesh):
            write_maps(
                folder / map_file(mesh, _EFFECTS, side, desc), values[:, part], side, list(effects)
            )


def _expected(found: Associations, components: Sequence[str]) -> dict[str, np.ndarray]:
    """One row per column of the table, value and component."""
    curves = {column: found.expected(column) for column in found.columns}
    k = len(components)
    return {
        "column": np.concatenate(
            [np.repeat(column, k * len(one.values)) for column, one in curves.items()]
        ),
        "value": np.concatenate([np.repeat(one.values.astype(str), k) for one in curves.values()]),
        "component": np.concatenate(
            [np.tile(components, len(one.values)) for one in curves.values()]
        ),
        "mean": np.concatenate([one.mean.ravel() for one in curves.values()]),
        "ci_low": np.concatenate([one.low.ravel() for one in curves.values()]),
        "ci_high": np.concatenate([one.high.ravel() for one in curves.values()]),
    }


def _adjusted(found: Associations, source: FittedLoadings) -> dict[str, Any]:
    """One row per column of the table and row of the loadings."""
    points = {column: found.adjusted(column) for column in found.columns}
    values = np.concatenate([adjusted for _, adjusted in points.values()])
    return {
        **{
            name: [cells[i] for _ in points for i in found.rows]
            for name, cells in source.rows.items()
        },
        "column": np.repeat(list(points), len(found.rows)),
        "value": np.concatenate([own.astype(str) for own, _ in points.values()]),
        **dict(zip(source.components, values.T, strict=True)),
    }


_LOADING = "component"
"""Stands for all components where a table has one column for each."""
_OTHER_COLUMNS: tuple[dict[str, str], ...] = (
    {"column": "Column of the model", "t": "estimate / se"},
    {
        "column": "Column of the participants table",
        "value": "A value of it",
        "mean": "Loading that the model expects there, averaged over the other columns of the cohort",
    },
    {
        "column": "Column of the participants table",
        "value": "The row's value of it",
        _LOADING: "Loading adjusted for the other columns: what is expected at this value, plus the row's residual",
    },
)
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
    **{
        f"{side}_reproducibility": f"Mean correlation of the patterns of {side}s in two random halves"
        for side in ("component", "measure")
    },
    **{
        f"{side}_reproducibility_p": "Of that, against permuted behaviour"
        for side in ("component", "measure")
    },
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


def _write_table(
    path: Path, table: Mapping[str, Any], columns: Mapping[str, str], more: Mapping[str, Any]
) -> None:
    """A table whose components are all described alike."""
    rest = [name for name in table if name not in (_ID, _SESSION, *columns)]
    write_table(path, table, {**columns, **dict.fromkeys(rest, columns.get(_LOADING, ""))}, more)


def _write_pls(folder: Path, found: PLS, about: Mapping[str, Any]) -> None:
    from io import BytesIO

    more = {**about, "n_rows": len(found.rows), "notes": list(found.notes)}
    for name, table, columns in (
        (_PLS[0], found.table, _LATENT_COLUMNS),
        (_PLS[1], found.variables, _VARIABLE_COLUMNS),
    ):
        _write_table(folder / name, table, columns, more)
    picture = BytesIO()
    found.plot(1).savefig(picture, format="png", dpi=150)
    (folder / _PICTURE).write_bytes(picture.getvalue())
