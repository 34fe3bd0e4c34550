"""A fitted model as one npz file: arrays and JSON, no pickle, so that loading it runs no code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from icofactor.cohort.cohort import Measurement
from icofactor.errors import ModelFileError
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.factorization import matching
from icofactor.factorization._multistart import Multistart
from icofactor.factorization._refine import Refined, Refinement
from icofactor.factorization._solve import Solution
from icofactor.factorization.design import Design
from icofactor.factorization.matching import Match
from icofactor.factorization.methods import method_named
from icofactor.factorization.statistics import Statistics
from icofactor.io.guard import Unreadable
from icofactor.io.publish import reading
from icofactor.io.records import Form, Numbers
from icofactor.preprocessing.centering import Centering
from icofactor.preprocessing.combat import ComBat, Harmonization
from icofactor.preprocessing.covariates import Covariates
from icofactor.sphere.meshes import check_sites
from icofactor.sphere.sites import Sites


@dataclass(frozen=True, eq=False)
class _Design:
    """How the columns of the design are made; the statistics hold its faces."""

    kind: str
    level: int
    sigma: float | None
    tau: float


@dataclass(frozen=True, eq=False)
class _Course:
    """The course of the refinement; see `Refined`."""

    divisions: tuple[int, ...]
    n_columns: tuple[int, ...]
    exhausted: bool


@dataclass(frozen=True, eq=False)
class ModelRecord:
    """All of a model: k components, n subjects, v sites.

    Most fields are attributes of the estimator, without the underscore at their end. What follows
    from others is not stored. A field that is added later needs a default, which files written
    before then get.
    """

    parameters: Mapping[str, Any]
    hemi: Literal["left", "right", "both"] | None
    components: Annotated[np.ndarray, Numbers("kv")]
    loadings: Annotated[np.ndarray, Numbers("nk")]
    scale: Annotated[np.ndarray, Numbers("k")]
    centering: Centering
    depth: Annotated[np.ndarray, Numbers("v", "fi", least=0)]
    mask: Annotated[np.ndarray | None, Numbers("v", "b")]
    error: float
    total_variance: float
    sites: Sites
    covariates: Covariates | None
    solution: Solution
    starts: Multistart
    design: _Design
    statistics: Statistics
    course: _Course
    recurrence: Annotated[np.ndarray | None, Numbers("k", finite=False)] = None
    harmonization: Harmonization | None = None
    measurement: Measurement | None = None
    weighting: str | None = None


MODEL_FILE = Form(
    ModelRecord,
    "icofactor model",
    "a model",
    5,
    "fit again",
    ModelFileError,
)
# The name of the file in the folder of a fit.
MODEL = "model.zip"
# Fields that are no attributes of the estimator.
NOT_ATTRIBUTES = ("parameters", "design", "statistics", "course")


def save_model(
    model: CorticalFactorization,
    path: str | os.PathLike[str],
    overwrite: bool = False,
) -> None:
    """Write a fitted model; the file appears whole or not at all."""
    design = model.design_
    refined = model.refined_
    attributes = {name: getattr(model, f"{name}_") for name in attribute_names()}
    record = ModelRecord(
        parameters=_parameters(model),
        design=_Design(design.kind, design.level, design.sigma, design.tau),
        statistics=refined.stats,
        course=_Course(refined.divisions, refined.n_columns, refined.exhausted),
        **attributes,
    )
    MODEL_FILE.save(record, path, overwrite)


def model_at(path: str | os.PathLike[str]) -> Path:
    """Return the model's file: itself, or the one in a folder that `icofactor fit` wrote."""
    file = Path(path)
    if not file.is_dir():
        return file
    if not (file / MODEL).is_file():
        raise ModelFileError(
            file,
            f"contains no {MODEL}; give the folder that icofactor fit wrote, or the model itself",
        )
    return file / MODEL


def load_model(path: str | os.PathLike[str]) -> CorticalFactorization:
    """Read a fitted model.

    Parameters
    ----------
    path : str or path
        A file written by `CorticalFactorization.save`, or a folder written by `icofactor fit`.

    Returns
    -------
    CorticalFactorization

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
    # A folder may be replaced while it is read.
    with reading(Path(path)) if os.path.isdir(path) else nullcontext():
        file = model_at(path)
        record = MODEL_FILE.load(file)
    with MODEL_FILE.naming(file):
        return _fitted(record)


def match_components(
    a: Any,
    b: Any,
    weights: Any = None,
) -> Match:
    """Match the components of two models by the correlation of their maps.

    The assignment maximizes the sum of correlations and uses each component once. If the numbers of
    components differ, all components of the smaller set are matched. For different fsaverage
    meshes, the maps of b are taken at the sites nearest to those of a. Sites that either model
    masks do not count.

    Parameters
    ----------
    a, b : fitted models, their files, folders written by `icofactor fit`, or arrays of shape
        (n_components, n_sites) What to match.
    weights : array of shape (n_sites,), optional
        Weight of each site of a, for example its area.

    Returns
    -------
    Match

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
    >>> match = ico.match_components(model, cohort.truth.components)
    >>> match.similarity.shape
    (3,)
    """
    first, second = (load_model(x) if isinstance(x, str | os.PathLike) else x for x in (a, b))
    return matching.match_components(first, second, weights)


def attribute_names() -> list[str]:
    """Return the fields of a record that are attributes of the estimator."""
    names = [field.name for field in fields(ModelRecord)]
    return [name for name in names if name not in NOT_ATTRIBUTES]


def _parameters(model: CorticalFactorization) -> dict[str, Any]:
    """Return the parameters of the constructor, in a form that JSON can hold.

    A mesh, mask or weights given as an array or file are marked as resolved: the arrays of the fit
    hold them.
    """
    parameters = model.get_params(deep=False)
    # Those of the fit, whatever set_params did since.
    parameters["n_components"] = len(model.components_)
    parameters["method"] = model.solution_.method
    parameters["rules"] = model.solution_.rules
    if model.center not in ("auto", model.center_):
        parameters["center"] = model.center_
    if isinstance(model.refinement, Refinement):
        parameters["refinement"] = asdict(model.refinement)
    if model.harmonize is not None:
        settings = model.harmonize.get_params()
        parameters["harmonize"] = {**settings, "keep": list(model.harmonize.keep)}
    # The sites of the record stand for what JSON cannot hold.
    for name in ("mesh", "weights"):
        if not isinstance(parameters[name], str | None):
            parameters[name] = {"resolved": True}
    has_mask = model.mask is not None and model.mask_ is not None
    parameters["mask"] = {"resolved": True} if has_mask else None
    # The state of a generator has moved on since the fit.
    if not isinstance(parameters["random_state"], int | np.integer | None):
        parameters["random_state"] = None
    return parameters


def _fitted(record: ModelRecord) -> CorticalFactorization:
    """Return the estimator that a record describes; contradictions in it are an error."""
    parameters = dict(record.parameters)
    if isinstance(parameters["refinement"], dict):
        parameters["refinement"] = Refinement(**parameters["refinement"])
    if isinstance(parameters.get("harmonize"), dict):
        parameters["harmonize"] = ComBat(**parameters["harmonize"])
    # What was marked as resolved comes back from the arrays.
    resolved = {"mesh": record.sites, "mask": record.mask, "weights": record.sites.weights}
    for name, value in resolved.items():
        if isinstance(parameters.get(name), dict):
            parameters[name] = value
    model = CorticalFactorization(**parameters)
    model.check_parameters()
    # Before anything is computed from arrays that a damaged file may have made up.
    _check(record, check_sites(record.sites), model.n_components)
    for name in attribute_names():
        setattr(model, f"{name}_", getattr(record, name))
    sites = record.sites if record.mask is None else record.sites.subset(record.mask)
    model.design_ = Design.from_faces(sites, record.statistics.faces, **vars(record.design))
    model.refined_ = Refined(
        model.design_, record.statistics, record.solution, **vars(record.course)
    )
    model._derive_numbers()
    return model


def _check(
    record: ModelRecord,
    sites: Sites,
    n_components: int,
) -> None:
    """Refuse a record whose parts contradict each other."""
    n_maps, n_sites = record.components.shape
    if n_sites != sites.n or n_maps != n_components:
        raise Unreadable(
            f"is damaged: maps of {n_maps} components on {n_sites} sites, but {n_components} "
            f"components and {sites.n} sites"
        )
    if not (record.error >= 0 and record.total_variance > 0):
        raise Unreadable("is damaged: its error or its variance is below 0")
    if record.mask is not None and not record.mask.any():
        raise Unreadable("is damaged: its mask is False everywhere")
    if not record.centering.fits(sites, len(record.loadings)):
        raise Unreadable("is damaged: its centering does not match its maps and loadings")
    _check_solutions(record, sites)


def _check_solutions(record: ModelRecord, sites: Sites) -> None:
    """Refuse solutions that do not match the faces of the statistics."""
    n_columns = len(record.statistics.faces)
    n_roots = record.statistics.root_L.shape[1]
    if len(record.solution.B) != n_columns or n_roots != sites.n_roots:
        raise Unreadable(
            f"is damaged: {n_columns} faces and {n_roots} roots do not match its solution and sites"
        )
    for name in ("solution", "starts"):
        solution = getattr(record, name)
        method_named(solution.method)
        # Objectives of starts that diverged are infinite, those of the best one are not.
        arrays = (solution.B, solution.C, solution.objective, solution.errors)
        if not all(np.isfinite(array).all() for array in arrays):
            raise Unreadable(f"is damaged: {name} contains values that are not finite")
    if not 0 <= record.starts.best_start < len(record.starts.objectives):
        raise Unreadable("is damaged: its best start is not one of its starts")
