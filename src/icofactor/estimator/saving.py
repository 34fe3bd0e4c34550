"""A fitted model as one zarr zip: arrays and JSON, no pickle, so that loading a file runs no code."""

from __future__ import annotations

import math
import os
import zipfile
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.errors import ModelFileError
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.factorization._multistart import Multistart
from icofactor.factorization._refine import Refined, Refinement
from icofactor.factorization._solve import Solution
from icofactor.factorization.design import Design
from icofactor.factorization.methods import method_named
from icofactor.factorization.statistics import Statistics
from icofactor.io.atomic import atomic_path
from icofactor.io.guard import Unreadable, check_growth, check_regular, naming
from icofactor.io.json import parse_json
from icofactor.preprocessing.covariate_coding import Term
from icofactor.preprocessing.covariates import Covariates
from icofactor.sphere.checks import checked_sites

_WHOLE = ("n_features_in_", "n_iter_")
_REAL = ("error_", "total_variance_", "explained_", "reconstruction_err_")


def check_model(model: CorticalFactorization) -> None:
    """Refuse a model whose settings, numbers or shapes contradict each other."""
    model._check_parameters()
    if model.hemi_ not in (None, "left", "right", "both"):
        raise Unreadable(f"is damaged: its hemisphere is {str(model.hemi_)[:40]!r}")
    for name in (*_WHOLE, *_REAL):
        value = getattr(model, name, None)
        if isinstance(value, bool) or not isinstance(value, int if name in _WHOLE else int | float):
            raise Unreadable(f"is damaged: {name} is {str(value)[:40]!r}, not a number")
    n_sites, k = model.sites_.n, model.n_components
    if model.n_features_in_ != n_sites:
        raise Unreadable(f"is damaged: it was fitted on {model.n_features_in_} sites, and has {n_sites}")
    n_subjects = len(model.loadings_)
    _check_shapes(model, _shapes(model, n_sites, n_subjects, k))
    if model.mask_ is not None and (model.mask_.dtype != bool or not model.mask_.any()):
        raise Unreadable("is damaged: its mask is none")
    for solution in (model.solution_, model.starts_):
        method_named(solution.method)
        for name in ("n_iter", "penalty", "tau"):
            _check_real(getattr(solution, name), name)
    _check_real(model.starts_.best_start, "best_start")
    if not 0 <= model.starts_.best_start < max(1, len(model.starts_.objectives)):
        raise Unreadable("is damaged: its best start is none of its starts")
    stats = model.refined_.stats
    stats.K.check_format(full_check=True)
    _check_real(stats.sq_norm, "sq_norm")
    _check_real(stats.n_sites, "n_sites")
    for name in ("divisions", "n_columns"):
        if not all(type(value) is int for value in getattr(model.refined_, name)):
            raise Unreadable(f"is damaged: {name} of its refinement are no whole numbers")
    if model.covariates_ is not None:
        _check_covariates(model, n_sites)


def _shapes(model: CorticalFactorization, n_sites: int, n: int, k: int) -> dict[str, tuple[Any, tuple[int, ...]]]:
    """What each array is called, the array, and the shape it must have."""
    n_k, stats = model.design_.n_columns, model.refined_.stats
    shapes: dict[str, tuple[Any, tuple[int, ...]]] = {
        "components_": (model.components_, (k, n_sites)),
        "loadings_": (model.loadings_, (n, k)),
        "scale_": (model.scale_, (k,)),
        "mean_": (model.mean_, (n_sites,)),
        "depth_": (model.depth_, (n_sites,)),
        "explained_variance_": (model.explained_variance_, (k,)),
        "explained_variance_ratio_": (model.explained_variance_ratio_, (k,)),
        "statistics/L": (stats.L, (n, n_k)),
        "statistics/energy": (stats.energy, (n_k,)),
        "statistics/counts": (stats.counts, (n_k,)),
        "statistics/root_L": (stats.root_L, (n, model.sites_.n_roots)),
        "solution/B": (model.solution_.B, (n_k, k)),
        "solution/C": (model.solution_.C, (k, n)),
    }
    if model.mask_ is not None:
        shapes["mask_"] = (model.mask_, (n_sites,))
    for part, solution in (("solution", model.solution_), ("starts", model.starts_)):
        for name in ("objective", "errors"):
            values = getattr(solution, name)
            shapes[f"{part}/{name}"] = (values, (max(1, values.size),))
    n_starts = len(model.starts_.start_n_iter)
    shapes["starts/B"] = (model.starts_.B, (*model.starts_.B.shape[:1], k))
    shapes["starts/C"] = (model.starts_.C, (k, n))
    objectives = model.starts_.objectives
    shapes["starts/objectives"] = (objectives, (n_starts, max(1, objectives.size // max(1, n_starts))))
    return shapes


def _check_shapes(model: CorticalFactorization, shapes: dict[str, tuple[Any, tuple[int, ...]]]) -> None:
    for name, (array, shape) in shapes.items():
        if array.shape != shape:
            raise Unreadable(f"is damaged: {name} has shape {array.shape}, not {shape}")
    for name in ("components_", "loadings_", "scale_", "mean_"):
        if not np.isfinite(getattr(model, name)).all():
            raise Unreadable(f"is damaged: {name} holds values that are not finite")


def _check_covariates(model: CorticalFactorization, n_sites: int) -> None:
    found = model.covariates_
    assert found is not None
    n_columns = 0
    for term in found.terms:
        columns = 1 if term.levels is None else len(term.levels) - 1
        if not isinstance(term.name, str) or len(term.means) != columns:
            raise Unreadable("is damaged: its covariates are none")
        for mean in term.means:
            _check_real(mean, "a covariate's mean")
        n_columns += columns
    if found.coefficients.shape != (n_columns, n_sites):
        raise Unreadable(f"is damaged: coefficients of its covariates have shape {found.coefficients.shape}")
    if found.shift is not None and found.shift.shape != (n_sites,):
        raise Unreadable(f"is damaged: the shift of its covariates has shape {found.shift.shape}")
    _check_real(found.explained, "the covariates' share")


def _check_real(value: Any, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unreadable(f"is damaged: {name} is {str(value)[:40]!r}, not a number")


_RECORD = "zarr.json"
_TYPES = {"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float32", "float64"}
_CODECS = (["bytes"], ["bytes", "zstd"])
_ZSTD = b"\x28\xb5\x2f\xfd"
_ENCRYPTED = 0x1


def check_archive(file: Path) -> None:
    """Refuse a zip that is no model's, is damaged, or would grow beyond measure."""
    stored, total = file.stat().st_size, 0
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if len(members) != len(archive.infolist()):
            raise Unreadable("holds a member twice")
        for info in members.values():
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _ENCRYPTED:
                raise Unreadable(f"is no model of icofactor: {info.filename[:80]!r} is compressed or encrypted")
            total += info.file_size
        if total > stored:  # stored members can only be larger than the file when they overlap
            raise Unreadable("is damaged: its members overlap")
        if _RECORD not in members:
            raise Unreadable("is a zip file, but not a model of icofactor")
        total = 0
        for name in members:
            if name == _RECORD or name.endswith(f"/{_RECORD}"):
                total += _check_array(archive, members, name.removesuffix(_RECORD), stored)
                check_growth(total, stored)


def _check_array(archive: zipfile.ZipFile, members: dict[str, Any], folder: str, stored: int) -> int:
    """Bytes that the array (or group) in a folder of the zip takes in memory."""
    record = parse_json(archive.read(folder + _RECORD))
    if not isinstance(record, dict) or record.get("zarr_format") != 3:
        raise Unreadable(f"is damaged: {folder}{_RECORD} is no record of zarr 3")
    if record.get("node_type") == "group":
        return 0
    try:
        shape, chunks = record["shape"], record["chunk_grid"]["configuration"]["chunk_shape"]
        known = (
            record["node_type"] == "array"
            and record["data_type"] in _TYPES
            and [codec["name"] for codec in record["codecs"]] in _CODECS
            and record["chunk_grid"]["name"] == "regular"
            and record["chunk_key_encoding"] == {"name": "default", "configuration": {"separator": "/"}}
            and not record.get("storage_transformers")
            and len(shape) == len(chunks)
            and all(type(n) is int and n >= 0 for n in shape)
            and all(type(n) is int and n > 0 for n in chunks)
        )
    except (KeyError, TypeError):
        known = False
    if not known:
        raise Unreadable(f"is damaged: {folder[:80]} is not an array of numbers in the form that icofactor writes")
    item = np.dtype(record["data_type"]).itemsize
    size, chunk = math.prod(shape) * item, math.prod(chunks) * item
    check_growth(size, stored)
    check_growth(chunk, stored)
    packed = len(record["codecs"]) == 2
    for numbers in product(*(range(-(-n // step)) for n, step in zip(shape, chunks, strict=True))):
        _check_chunk(archive, members, "/".join([f"{folder}c", *map(str, numbers)]), chunk, packed)
    return size


def _check_chunk(archive: zipfile.ZipFile, members: dict[str, Any], name: str, size: int, packed: bool) -> None:
    if name not in members:
        raise Unreadable(f"is damaged: {name[:80]} is missing")  # zarr would read it as zeros
    if packed:
        with archive.open(name) as file:
            claimed = zstd_size(file.read(18))
    else:
        claimed = members[name].file_size
    if claimed != size:
        said = "does not say so" if claimed is None else f"claims {claimed}"
        raise Unreadable(f"is damaged: {name[:80]} should hold {size} bytes, and {said}")


def zstd_size(head: bytes) -> int | None:
    """Size that the header of a zstd frame tells (RFC 8878, 3.1.1.1); None where it tells none."""
    if len(head) < 6 or head[:4] != _ZSTD:
        return None
    flag, single = head[4] >> 6, bool(head[4] & 0x20)
    width = (1 if single else 0, 2, 4, 8)[flag]
    place = 5 + (0 if single else 1) + (0, 1, 2, 4)[head[4] & 0x3]
    if width == 0 or place + width > len(head):
        return None
    return int.from_bytes(head[place : place + width], "little") + (256 if width == 2 else 0)


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
    """Read a model written by `CorticalFactorization.save`.

    Examples
    --------
    >>> import icofactor as ico
    >>> import tempfile
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.zip")
    ...     again = ico.load_model(f"{folder}/model.zip")
    >>> bool((again.components_ == model.components_).all())
    True
    """
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
