"""Loadings of new subjects on the maps of a fit, and the table they are written to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from icofactor import __version__
from icofactor.cohort.people import People
from icofactor.errors import ArgumentError, CohortError, Phrase
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.io.guard import hash_file
from icofactor.io.json import read_json
from icofactor.io.publish import Names, Publication
from icofactor.io.tables import numbered, plain, write_json, write_tsv
from icofactor.preprocessing.adjusted import as_the_fit
from icofactor.preprocessing.covariates import columns_of
from icofactor.results.description import LOADINGS

_MOST_LOST = 1e-3
"""Share of the mean map's energy at sites where the new subjects may be empty: borders of the cortex, not lobes."""


@dataclass(frozen=True, eq=False)
class NewLoadings:
    """Loadings of new subjects.

    Attributes
    ----------
    subjects : their names.
    loadings : (n_subjects, n_components), in the scale of the fit's own.
    notes : what is worth knowing about how they came about.
    """

    subjects: tuple[str, ...]
    loadings: np.ndarray
    notes: tuple[str, ...]


def table_at(out: str | Path, overwrite: bool, inputs: Iterable[str | Path] = ()) -> Path:
    """Where the table goes: the .tsv file named, or one in the folder named. Refuses a place that cannot take it."""
    place = Path(out)
    if place.suffix == ".tsv":
        table = place
    elif place.suffix or place.is_file():
        raise ArgumentError("out", Phrase(place), "a file that ends with .tsv, or a folder")
    else:
        table = place / LOADINGS
    if table.parent.is_dir():
        _place(table, overwrite, inputs)
    elif place.suffix == ".tsv" or not place.absolute().parent.is_dir():
        raise FileNotFoundError(f"the folder of {place} does not exist: make {place.absolute().parent} first")
    return table


def loadings_of(model: CorticalFactorization, cohort: Any) -> NewLoadings:
    """Loadings of a cohort, after doing to it what the fit did to its own subjects."""
    lost = _lost_sites(model, cohort)
    notes = _check_sites(model, lost)
    data = as_the_fit(cohort, model.harmonization_, model.covariates_)
    loadings = _without(model, lost).transform(data)
    if model.harmonization_ is not None:
        notes += [f"harmonized over {model.harmonization_} by the estimates of the fit", *data.X.notes]
    if model.covariates_ is not None:
        notes.append(f"adjusted for {model.covariates_} by the coefficients of the fit")
    if data is not cohort:
        below = data.X.n_below
        if below:
            share = 100 * below / (len(loadings) * int(_used(model).sum()))
            notes.append(f"{below} values ({share:.2g} %) were negative after that and were set to 0")
    return NewLoadings(tuple(cohort.subjects), loadings, tuple(notes))


def check_table(model: CorticalFactorization, participants: Mapping[str, Any], subjects: Sequence[str]) -> None:
    """Refuse a table that lacks what the fit took out of its maps, before any map is read."""
    if model.harmonization_ is not None:
        model.harmonization_.check(participants, subjects)
        columns_of(model.harmonization_.terms, participants, subjects, "keep")
    if model.covariates_ is not None:
        columns_of(model.covariates_.terms, participants, subjects)


def write_loadings(
    found: NewLoadings, table: Path, cohort: Any, model_path: Path, *, overwrite: bool = False
) -> list[Path]:
    """The table, and beside it a JSON file that says where it comes from."""
    names = numbered("component", found.loadings.shape[1])
    about = {
        "Description": "Loadings of subjects on the basis maps of a fit, in the scale of the fit's own loadings",
        "icofactor": __version__,
        "model": {"path": str(model_path), "sha256": hash_file(model_path)},
        "data": dict(cohort.provenance),
        "notes": list(found.notes),
    }
    with _place(table, overwrite).filled() as new:
        draft = write_tsv(
            new / table.name,
            {
                **People.of(found.subjects, cohort.participants).columns,
                **dict(zip(names, found.loadings.T, strict=True)),
            },
        )
        about["table"] = {"name": table.name, "sha256": hash_file(draft)}
        write_json(new / _beside(table).name, {**about, "sha256": _seal(about)})
    return [table, _beside(table)]


def _place(table: Path, overwrite: bool, inputs: Iterable[str | Path] = ()) -> Publication:
    """The folder of a table; of what is there, only an earlier table and its record may be replaced."""
    beside = _beside(table)

    def listed() -> Names:
        try:
            record = read_json(beside)
            whole = record.pop("sha256") == _seal(record) and record["table"]["name"] == table.name
            return {table.name: record["table"]["sha256"], beside.name: hash_file(beside)} if whole else {}
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return {}

    return Publication(table.parent, overwrite, names=[table.name, beside.name], inputs=inputs, listed=listed)


def _seal(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain(record), sort_keys=True).encode()).hexdigest()


def _beside(table: Path) -> Path:
    return table.with_suffix(".json")


def _used(model: CorticalFactorization) -> np.ndarray:
    return np.ones(model.n_features_in_, dtype=bool) if model.mask_ is None else model.mask_


def _lost_sites(model: CorticalFactorization, cohort: Any) -> np.ndarray:
    """Sites that the fit uses and where no new subject has a value."""
    if cohort.mask is None or len(cohort.mask) != model.n_features_in_:
        return np.zeros(model.n_features_in_, dtype=bool)  # `transform` refuses sites that are not the fit's
    return _used(model) & ~np.asarray(cohort.mask)


def _without(model: CorticalFactorization, lost: np.ndarray) -> CorticalFactorization:
    """The model, for which new subjects do not deviate from the mean at these sites, whatever their values."""
    if model.center_ == "none" or not lost.any():
        return model
    twin = copy(model)
    twin.deviation_ = np.where(lost, np.inf, 1.0 if model.deviation_ is None else model.deviation_)
    return twin


def _check_sites(model: CorticalFactorization, lost: np.ndarray) -> list[str]:
    """What to say of the lost sites: a few at the border, or another cortex."""
    if not lost.any():
        return []
    share = float(np.square(model.mean_[lost]).sum() / np.square(model.mean_).sum())
    text = f"{int(lost.sum())} sites that the fit uses are NaN or zero in every new subject"
    if share > _MOST_LOST:
        carried = f"they carry {100 * share:.2g} % of the fit's mean map: is it the same mask and mesh?"
        raise CohortError("the new subjects", f"{text}; {carried}")
    return [f"{text}; they count as {'0' if model.center_ == 'none' else 'the mean of the fitted subjects'}"]
