"""Whether the parts of a model that was read fit together."""

from __future__ import annotations

from typing import Any

import numpy as np

from icofactor.estimator import CorticalFactorization
from icofactor.methods import method_named
from icofactor.reading import Unreadable

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
