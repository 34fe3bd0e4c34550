"""Loadings as the tests take them: an array, a data frame or a fitted model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from icofactor.assessment.refit import check_fitted
from icofactor.errors import ArgumentError
from icofactor.io.tables import numbered

if TYPE_CHECKING:
    from icofactor.estimator.estimator import CorticalFactorization

# In the attributes of a data frame of loadings: covariates that the fit took out of the maps.
TAKEN_OUT = "taken_out"

_COLUMN_OF_MEASURE = re.compile(r"component\d+_([0-9A-Za-z]+)")


@dataclass(frozen=True, eq=False)
class Loadings:
    """Loadings, rows × components, with the names of the components.

    `regressed_out` names the covariates that the fit took out of the maps.
    """

    values: np.ndarray
    names: list[str]
    regressed_out: tuple[str, ...]

    @property
    def measures(self) -> list[str]:
        """Names of the measures, if the columns are those of `beside_each_other`."""
        matches = [_COLUMN_OF_MEASURE.fullmatch(name) for name in self.names]
        measures = [match[1] for match in matches if match]
        return list(dict.fromkeys(measures)) if len(measures) == len(matches) else []


def read_loadings(loadings: Any) -> Loadings:
    """Return the loadings of an array, a data frame or a fitted model."""
    regressed_out = tuple(map(str, getattr(loadings, "attrs", {}).get(TAKEN_OUT, ())))
    if hasattr(loadings, "components_") or hasattr(loadings, "get_params"):
        check_fitted("loadings", loadings)
        regressed_out = taken_out_of(loadings)
        loadings = _loadings_of_model(loadings)
    # Only data frames name their columns.
    names = [str(name) for name in getattr(loadings, "columns", ())]
    try:
        values = np.asarray(loadings, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise ArgumentError(
            "loadings",
            "must be a fitted model, or finite numbers of shape (n_rows, n_components); found a "
            f"{type(loadings).__name__} of shape {np.shape(values)}",
        )
    # Rounding must not make a component vary that does not.
    varies = values.std(axis=0) > 1e-12 * np.abs(values).max(axis=0)
    values = np.where(varies, values, 0.0)
    return Loadings(values, names or numbered("component", values.shape[1]), regressed_out)


def _loadings_of_model(model: CorticalFactorization) -> Any:
    """Return a model's loadings, those of several measures of a person side by side."""
    measures = getattr(model, "measures_", None)
    if measures is None or measures.share != "maps":
        return model.loadings_
    return beside_each_other(measures.split(model.loadings_))


def beside_each_other(loadings: Mapping[str, ArrayLike]) -> Any:
    """Return loadings of several measures as a data frame with a row per person.

    Columns are component01_thickness, ...
    """
    # pandas takes long to import, and only models of several measures need it.
    import pandas as pd

    columns = [
        f"{name}_{measure}"
        for measure, values in loadings.items()
        for name in numbered("component", np.shape(values)[1])
    ]
    return pd.DataFrame(np.hstack(list(loadings.values())), columns=columns)


def taken_out_of(model: CorticalFactorization) -> tuple[str, ...]:
    """Return the columns whose effects a fit took out of the maps."""
    steps: Sequence[Any] = [
        getattr(model, name, None) for name in ("harmonization_", "covariates_")
    ]
    return tuple(name for step in steps if step is not None for name in step.names)
