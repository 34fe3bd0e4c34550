"""A fitted model as one zarr zip: arrays and JSON, no pickle, so that loading a file runs no code."""

from __future__ import annotations

import os
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.covariates import Covariates
from icofactor.design import Design
from icofactor.errors import ModelFileError
from icofactor.estimator import CorticalFactorization
from icofactor.files import atomic_path
from icofactor.manystarts import Multistart
from icofactor.model_archive import check_archive
from icofactor.model_checks import check_model
from icofactor.reading import Unreadable, check_regular, naming
from icofactor.refinement import Refined, Refinement
from icofactor.solver import Solution
from icofactor.sphere.checks import checked_sites
from icofactor.statistics import Statistics
from icofactor.terms import Term

FORMAT = "icofactor model"
VERSION = 1

_ARRAYS = [
    "components_",
    "loadings_",
    "scale_",
    "mean_",
    "depth_",
    "explained_variance_",
    "explained_variance_ratio_",
]  # attributes of the model that are arrays
_NUMBERS = ["error_", "total_variance_", "explained_", "reconstruction_err_", "n_features_in_", "n_iter_"]
_SITES = ["coordinates", "hemisphere", "triangles", "position", "deepest", "frames"]
_OPTIONAL = ["mask_", "sites/triangles", "covariates/shift"]
_SOLUTION = ["n_iter", "converged", "method", "rules", "penalty", "tau"]


def save_model(model: CorticalFactorization, path: str | os.PathLike[str], overwrite: bool = False) -> None:
    """Write a fitted model; the file appears whole or not at all."""
    import zarr

    with atomic_path(Path(path), overwrite) as temporary:
        temporary.touch()  # where that cannot be done, zarr's store cannot be closed
        store = zarr.storage.ZipStore(temporary, mode="w")
        try:
            group = zarr.create_group(store, zarr_format=3, attributes=_attributes(model))
            for name, array in _arrays(model).items():
                # else a chunk of zeros is left out, and could not be told from one that was lost
                everything = {"write_empty_chunks": True}
                group.create_array(name, data=np.ascontiguousarray(array), config=everything)
        finally:
            store.close()


def _attributes(model: CorticalFactorization) -> dict[str, Any]:
    """Everything that is not an array."""
    sites, design = model.sites_, model.design_
    return {
        "format": FORMAT,
        "version": VERSION,
        "parameters": _parameters(model),
        "numbers": {name: getattr(model, name) for name in _NUMBERS},
        "hemi": model.hemi_,
        "covariates": _covariates(model.covariates_),
        "sites": {"on": sites.on, "level": sites.level, "name": sites.name, "n_mesh": sites.n_mesh},
        "design": {"kind": design.kind, "level": design.level, "sigma": design.sigma, "tau": design.tau},
        "solution": {name: getattr(model.solution_, name) for name in _SOLUTION},
        "starts": {
            "best_start": model.starts_.best_start,
            "engine": model.starts_.engine,
            **{name: getattr(model.starts_, name) for name in _SOLUTION},
        },
        "refined": {
            "divisions": list(model.refined_.divisions),
            "n_columns": list(model.refined_.n_columns),
            "exhausted": model.refined_.exhausted,
        },
        "statistics": {"sq_norm": model.refined_.stats.sq_norm, "n_sites": model.refined_.stats.n_sites},
    }


def _parameters(model: CorticalFactorization) -> dict[str, Any]:
    """The constructor's parameters; a mesh or mask given as an array or file is kept as the fit resolved it."""
    parameters = _plain(model.get_params(deep=False))
    parameters["refinement"] = None if model.refinement is None else _plain(asdict(model.refinement))
    # what JSON cannot hold is rebuilt from the fit's arrays
    if not isinstance(parameters["mesh"], str | None):
        parameters["mesh"] = {"resolved": True}
    parameters["mask"] = None if model.mask is None or model.mask_ is None else {"resolved": True}
    if not isinstance(parameters["random_state"], int | None):
        parameters["random_state"] = None
    return parameters


def _covariates(covariates: Covariates | None) -> dict[str, Any] | None:
    if covariates is None:
        return None
    return {"terms": [asdict(term) for term in covariates.terms], "explained": covariates.explained}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """NumPy's scalars as Python's, which JSON can hold."""
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}


def _arrays(model: CorticalFactorization) -> dict[str, np.ndarray]:
    arrays = {name: getattr(model, name) for name in _ARRAYS}
    if model.mask_ is not None:
        arrays["mask_"] = model.mask_
    if model.covariates_ is not None:
        arrays["covariates/coefficients"] = model.covariates_.coefficients
        if model.covariates_.shift is not None:
            arrays["covariates/shift"] = model.covariates_.shift
    for name in _SITES:
        value = getattr(model.sites_, name)
        if value is not None:
            arrays[f"sites/{name}"] = value
    stats = model.refined_.stats
    arrays |= {
        "design/faces": model.design_.faces,
        "statistics/K_data": stats.K.data,
        "statistics/K_indices": stats.K.indices,
        "statistics/K_indptr": stats.K.indptr,
    }
    for name in ("L", "energy", "counts", "root_L"):
        arrays[f"statistics/{name}"] = getattr(stats, name)
    for part, solution in (("solution", model.solution_), ("starts", model.starts_)):
        for name in ("B", "C", "objective", "errors"):
            arrays[f"{part}/{name}"] = getattr(solution, name)
    arrays["starts/objectives"] = model.starts_.objectives
    arrays["starts/start_n_iter"] = model.starts_.start_n_iter
    return arrays


def load_model(path: str | os.PathLike[str]) -> CorticalFactorization:
    """Read a model written by `CorticalFactorization.save`."""
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"no model file {file}")
    with naming(file, "model of icofactor", ModelFileError, "Take another copy of the file, or fit again"):
        check_regular(file)
        if not zipfile.is_zipfile(file):
            raise ModelFileError(f"{file} is not a model of icofactor: it is not a zip file, or it is cut short")
        check_archive(file)
        return _load(file)


def _load(file: Path) -> CorticalFactorization:
    import zarr

    store = zarr.storage.ZipStore(file, mode="r")
    try:
        # consolidated metadata could smuggle in arrays of zarr 2, whose codecs may be pickles
        group = zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)
        attributes = dict(group.attrs)
        _check_format(file, attributes)
        model = _rebuild(attributes, lambda name: _read(group, name))
        check_model(model)
        return model
    finally:
        store.close()


def _read(group: Any, name: str) -> np.ndarray | None:
    """An array of numbers of the file, None where an optional one is absent."""
    if name not in group:
        if name in _OPTIONAL:
            return None
        raise Unreadable(f"is damaged: it lacks {name}")
    array = group[name]
    if array.metadata.zarr_format != 3 or array.dtype.kind not in "biuf":
        raise Unreadable(f"is damaged: {name} is not an array of numbers")
    return np.asarray(array)


def _check_format(file: Path, attributes: dict[str, Any]) -> None:
    if attributes.get("format") != FORMAT:
        raise ModelFileError(f"{file} is a zarr file, but not a model of icofactor")
    if attributes.get("version") != VERSION:
        raise ModelFileError(
            f"{file} is a model of version {attributes.get('version')}; this icofactor reads version {VERSION}"
        )


def _rebuild(attributes: dict[str, Any], array: Any) -> CorticalFactorization:
    import scipy.sparse as sp

    parameters = dict(attributes["parameters"])
    if parameters["refinement"] is not None:
        parameters["refinement"] = Refinement(**parameters["refinement"])
    resolved = [name for name in ("mesh", "mask") if isinstance(parameters[name], dict)]
    model = CorticalFactorization(**parameters)
    for name in _ARRAYS:
        setattr(model, name, array(name))
    for name, value in attributes["numbers"].items():
        if name in _NUMBERS:
            setattr(model, name, value)
    model.hemi_, model.mask_ = attributes["hemi"], array("mask_")
    model.covariates_ = _rebuild_covariates(attributes["covariates"], array)
    model.sites_ = checked_sites({name: array(f"sites/{name}") for name in _SITES}, attributes["sites"])
    for name in resolved:
        setattr(model, name, model.sites_ if name == "mesh" else model.mask_)
    sites = model.sites_ if model.mask_ is None else model.sites_.subset(model.mask_)
    model.design_ = Design.from_faces(sites, array("design/faces"), **attributes["design"])
    factors = {
        part: {name: array(f"{part}/{name}") for name in ("B", "C", "objective", "errors")}
        for part in ("solution", "starts")
    }
    model.solution_ = Solution(**factors["solution"], **attributes["solution"])
    model.starts_ = Multistart(
        **factors["starts"],
        **attributes["starts"],
        objectives=array("starts/objectives"),
        start_n_iter=array("starts/start_n_iter"),
    )
    n_k = model.design_.n_columns
    K = sp.csr_array(tuple(array(f"statistics/K_{name}") for name in ("data", "indices", "indptr")), shape=(n_k, n_k))
    stats = Statistics(
        K=K,
        **{name: array(f"statistics/{name}") for name in ("L", "energy", "counts", "root_L")},
        **attributes["statistics"],
        faces=model.design_.faces,
    )
    course = attributes["refined"]
    model.refined_ = Refined(
        model.design_,
        stats,
        model.solution_,
        tuple(course["divisions"]),
        tuple(course["n_columns"]),
        course["exhausted"],
    )
    return model


def _rebuild_covariates(found: dict[str, Any] | None, array: Any) -> Covariates | None:
    if found is None:
        return None
    terms = tuple(
        Term(term["name"], None if term["levels"] is None else tuple(term["levels"]), tuple(term["means"]))
        for term in found["terms"]
    )
    return Covariates(terms, array("covariates/coefficients"), array("covariates/shift"), found["explained"])
