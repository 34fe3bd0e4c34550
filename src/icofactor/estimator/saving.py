"""A fitted model as one zarr zip: arrays and JSON, no pickle, so that loading a file runs no code."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from icofactor.cohort.cohort import Measurement
from icofactor.cohort.measures import Measures
from icofactor.errors import ModelFileError
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.estimator.fitting import less_mean
from icofactor.factorization import matching
from icofactor.factorization._multistart import Multistart
from icofactor.factorization._refine import Refined, Refinement
from icofactor.factorization._solve import Solution
from icofactor.factorization.design import Design
from icofactor.factorization.matching import Match
from icofactor.factorization.methods import method_named
from icofactor.factorization.scaling import spread_of
from icofactor.factorization.statistics import Statistics
from icofactor.io.guard import Unreadable
from icofactor.io.publish import reading
from icofactor.io.records import Form, Numbers
from icofactor.preprocessing.combat import ComBat, Harmonization
from icofactor.preprocessing.covariates import Covariates, Term
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
    """All of a model: k components, n subjects, v sites. Fields that are not records are attributes
    of the estimator.

    A field that is added later needs a default, which files written before then get.
    """

    parameters: Mapping[str, Any]
    hemi: Literal["left", "right", "both"] | None
    components: Annotated[np.ndarray, Numbers("kv")]
    loadings: Annotated[np.ndarray, Numbers("nk")]
    scale: Annotated[np.ndarray, Numbers("k")]
    mean: Annotated[np.ndarray, Numbers("v")]
    depth: Annotated[np.ndarray, Numbers("v", "fi", least=0)]
    mask: Annotated[np.ndarray | None, Numbers("v", "b")]
    explained_variance: Annotated[np.ndarray, Numbers("k")]
    explained_variance_ratio: Annotated[np.ndarray, Numbers("k")]
    error: float
    total_variance: float
    explained: float
    reconstruction_err: float
    n_features_in: int
    n_iter: int
    sites: Sites
    covariates: Covariates | None
    solution: Solution
    starts: Multistart
    design: _Design
    statistics: Statistics
    course: _Course
    center: Literal["none", "mean", "zscore"] = "none"
    deviation: Annotated[np.ndarray | None, Numbers("v", least=0)] = None
    n_constant_sites: int = 0
    recurrence: Annotated[np.ndarray | None, Numbers("k", finite=False)] = None
    harmonization: Harmonization | None = None
    measurement: Measurement | None = None
    weighting: str | None = None
    measures: Measures | None = None


MODEL_FILE = Form(
    ModelRecord, "icofactor model", "a model", 3, "fit again", ModelFileError, zarr=True
)
MODEL = "model.zip"
"""The name of the file in a fit's folder."""
_ELSEWHERE = ("parameters", "design", "statistics", "course")


def save_model(
    model: CorticalFactorization, path: str | os.PathLike[str], overwrite: bool = False
) -> None:
    """Write a fitted model; the file appears whole or not at all."""
    design, refined = model.design_, model.refined_
    kept = {
        one.name: getattr(model, f"{one.name}_")
        for one in fields(ModelRecord)
        if one.name not in _ELSEWHERE
    }
    record = ModelRecord(
        parameters=_parameters(model),
        design=_Design(design.kind, design.level, design.sigma, design.tau),
        statistics=refined.stats,
        course=_Course(refined.divisions, refined.n_columns, refined.exhausted),
        **kept,
    )
    MODEL_FILE.save(record, path, overwrite)


def model_at(path: str | os.PathLike[str]) -> Path:
    """The model's file: itself, or the one in a folder that `icofactor fit` wrote."""
    place = Path(path)
    if place.is_dir() and not (place / MODEL).is_file():
        raise ModelFileError(
            place,
            f"contains no {MODEL}; give the folder that icofactor fit wrote, or the model itself",
        )
    return place / MODEL if place.is_dir() else place


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
    with reading(Path(path)) if os.path.isdir(path) else nullcontext():
        place = model_at(path)
        record = MODEL_FILE.load(place)
    with MODEL_FILE.naming(place):
        return _fitted(record)


def match_components(a: Any, b: Any, weights: Any = None) -> Match:
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
    one, other = (load_model(x) if isinstance(x, str | os.PathLike) else x for x in (a, b))
    return matching.match_components(one, other, weights)


def _parameters(model: CorticalFactorization) -> dict[str, Any]:
    """The constructor's parameters; a mesh or mask given as an array or file is kept as the fit
    resolved it.
    """
    parameters = model.get_params(deep=False)
    # those of the fit, whatever set_params did since
    parameters |= {"n_components": len(model.components_), "method": model.solution_.method}
    parameters |= {"rules": model.solution_.rules}
    if model.center not in ("auto", model.center_):
        parameters["center"] = model.center_
    if isinstance(model.refinement, Refinement):
        parameters["refinement"] = asdict(model.refinement)
    if model.harmonize is not None:
        parameters["harmonize"] = {
            **model.harmonize.get_params(),
            "keep": list(model.harmonize.keep),
        }
    # what JSON cannot hold is rebuilt from the fit's arrays
    if not isinstance(parameters["mesh"], str | None):
        parameters["mesh"] = {"resolved": True}
    if not isinstance(parameters["weights"], str | None):
        parameters["weights"] = {"resolved": True}
    parameters["mask"] = None if model.mask is None or model.mask_ is None else {"resolved": True}
    if not isinstance(parameters["random_state"], int | np.integer | None):
        parameters["random_state"] = None
    return parameters


def _fitted(record: ModelRecord) -> CorticalFactorization:
    """The estimator that a record describes, refused where its parts contradict each other."""
    parameters = dict(record.parameters)
    if isinstance(parameters["refinement"], dict):
        parameters["refinement"] = Refinement(**parameters["refinement"])
    if isinstance(parameters.get("harmonize"), dict):
        parameters["harmonize"] = ComBat(**parameters["harmonize"])
    resolved = {"mesh": record.sites, "mask": record.mask, "weights": record.sites.weights}
    parameters |= {
        name: value for name, value in resolved.items() if isinstance(parameters.get(name), dict)
    }
    model = CorticalFactorization(**parameters)
    model.check_parameters()
    for one in fields(ModelRecord):
        if one.name not in _ELSEWHERE:
            setattr(model, f"{one.name}_", getattr(record, one.name))
    _check(record, check_sites(record.sites), model.n_components)
    sites = record.sites if record.mask is None else record.sites.subset(record.mask)
    model.design_ = Design.from_faces(sites, record.statistics.faces, **vars(record.design))
    model.refined_ = Refined(
        model.design_, record.statistics, record.solution, **vars(record.course)
    )
    return model


def _check(record: ModelRecord, sites: Sites, n_components: int) -> None:
    k = record.loadings.shape[1]
    if record.n_features_in != sites.n or k != n_components:
        raise Unreadable(
            f"is damaged: {record.n_features_in} features and {n_components} components, but maps of {sites.n} sites "
            f"and loadings on {k}"
        )
    _check_measures(record, sites)
    with np.errstate(over="ignore", invalid="ignore"):
        codes = None if record.measures is None else record.measures.codes(len(record.loadings))
        squares = sites.weigh((record.components**2).T).sum(axis=0)
        variance = squares * spread_of(less_mean(record.loadings.T, codes))
    total = record.total_variance
    pairs = [
        (record.explained, 1 - record.error / total if total > 0 else math.nan),
        (record.reconstruction_err, math.sqrt(max(record.error, 0.0))),
        *zip(record.explained_variance, variance, strict=True),
        *zip(
            record.explained_variance_ratio,
            record.explained_variance / max(total, math.ulp(0)),
            strict=True,
        ),
    ]
    tiny = [1e-9, *[1e-290] * (len(pairs) - 1)]  # shares; squares of data
    if not all(
        math.isclose(*pair, rel_tol=1e-4, abs_tol=t) for pair, t in zip(pairs, tiny, strict=True)
    ):
        raise Unreadable(
            "is damaged: its error and the variance that it explains contradict its maps and loadings"
        )
    if record.mask is not None and not record.mask.any():
        raise Unreadable("is damaged: its mask is False everywhere")
    n_columns, roots = len(record.statistics.faces), record.statistics.root_L.shape[1]
    if (len(record.solution.B), roots) != (n_columns, sites.n_roots):
        raise Unreadable(
            f"is damaged: {n_columns} faces and {roots} roots do not match its solution and sites"
        )
    for name in ("solution", "starts"):
        solution = getattr(record, name)
        method_named(solution.method)
        if not all(
            np.isfinite(getattr(solution, part)).all() for part in ("B", "C", "objective", "errors")
        ):
            raise Unreadable(f"is damaged: {name} contains values that are not finite")
    if not 0 <= record.starts.best_start < len(record.starts.objectives):
        raise Unreadable("is damaged: its best start is not one of its starts")
    stacked = (
        record.measures.n if record.measures is not None and record.measures.share == "maps" else 1
    )
    whole = lambda step: (
        _go_together(step.terms, step.coefficients)
        and step.coefficients.shape[1] == stacked * sites.n
    )
    if record.covariates is not None and not whole(record.covariates):
        raise Unreadable("is damaged: its covariates do not match their coefficients")
    done = record.harmonization
    if done is not None:
        n_levels = len(done.location)
        levels = len(done.levels) == len(set(done.levels)) == len(done.counts) == n_levels
        known = done.reference is None or done.reference in done.levels
        if not (levels and known and whole(done) and (done.scale > 0).all()):
            raise Unreadable("is damaged: its harmonization does not match its coefficients")


def _check_measures(record: ModelRecord, sites: Sites) -> None:
    found, whole = record.measures, sites.n_measures == 1
    if found is not None:
        maps, zscores = found.share == "maps", record.center == "zscore"
        whole = sites.n_measures == (1 if maps else found.n) and not len(record.loadings) % (
            found.n if maps else 1
        )
        whole = whole and found.factor is not None and bool((found.factor > 0).all())
        whole = (
            whole
            and maps == (found.mean is not None)
            and (maps and zscores) == (found.deviation is not None)
        )
    if not whole:
        raise Unreadable("is damaged: its measures do not match its maps and loadings")


def _go_together(terms: tuple[Term, ...], coefficients: np.ndarray) -> bool:
    columns = [1 if term.levels is None else len(term.levels) - 1 for term in terms]
    spans = all(len(term.span) == (2 if term.levels is None else 0) for term in terms if term.span)
    return (
        [len(term.means) for term in terms] == columns
        and sum(columns) == len(coefficients)
        and spans
    )
