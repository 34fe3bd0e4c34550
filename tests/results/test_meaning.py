"""What a fit says of its components, for every way of centring."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from icofactor import CorticalFactorization, simulate_cohort
from icofactor.cohort.measures import Measures
from icofactor.results.meaning import (
    component_units,
    fitted_units,
    has_signed_loadings,
    meaning_of,
    recurrence_line,
    recurrence_warning,
    scale_label,
)
from icofactor.results.recurrence_text import in_one_line, warning

COHORT = simulate_cohort(12, 2, "thickness", "left", 0, mesh="fsaverage3")


def fitted(method: str, center: str = "auto") -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CorticalFactorization(2, method=method, center=center, level=1, n_iter=50).fit(
            COHORT
        )


@pytest.mark.parametrize(
    ("method", "center", "units", "scale", "residual_units", "signed"),
    [
        ("parts", "mean", "mm", "mm of deviation per unit loading", "mm", True),
        (
            "parts",
            "zscore",
            "standard deviations",
            "standard deviations per unit loading",
            "standard deviations",
            True,
        ),
        ("parts", "none", "mm", "mm", "mm", False),
        ("LE-PPNMF", "mean", "", "", "mm", True),
        ("LE-PPNMF", "none", "", "", "mm", False),
        ("E-DL", "mean", "mm", "mm of deviation per unit loading", "mm", True),
        ("CD-PNNMF", "none", "mm", "mm", "mm", False),
    ],
)
def test_units_of_components_and_residuals(
    method: str, center: str, units: str, scale: str, residual_units: str, signed: bool
) -> None:
    model = fitted(method, center)
    assert component_units(model, "mm") == units
    assert scale_label(model, "mm") == scale
    assert fitted_units(model, "mm") == residual_units
    assert has_signed_loadings(model) == signed
    assert ("average" in meaning_of(model, "reho", "mm")) == signed
    assert "()" not in meaning_of(model)  # nothing is known of the data


@pytest.mark.parametrize("share", ["maps", "loadings"])
def test_scaled_measures_have_other_units(share: str) -> None:
    """Shared maps are of measures divided by their size; maps of each measure are written in its own units."""
    model = fitted("parts")
    names = ("thickness", "area")
    for scale, units in (("variance", "scaled units"), ("none", "mm")):
        measures = Measures(names, ("mm", "mm"), share, scale, np.ones(2))
        joined = copy(model)
        joined.centering_ = replace(model.centering_, measures=measures)
        assert fitted_units(joined, "mm") == units


def test_the_meaning_is_true() -> None:
    """A person at the mean who deviates by a part's values has that loading, nearly, and inverse_transform says so."""
    model = fitted("parts")
    for j, part in enumerate(model.components_):
        there = model.transform((model.mean_ + part)[None])[0]
        assert there[j] == pytest.approx(1.0, abs=0.1)
        unit = np.eye(2)[j][None]
        np.testing.assert_allclose(model.inverse_transform(unit)[0], model.mean_ + part, rtol=1e-12)
    np.testing.assert_allclose(model.loadings_.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose((model.loadings_**2).mean(axis=0), 1, rtol=1e-9)


def test_a_fit_warns_where_most_components_were_not_reached() -> None:
    assert in_one_line(np.array([1, 0.5, 0.4]), 6).startswith("2 of 3 components")
    assert warning(np.array([1, 0.5, 0.4]), 6, of_parts=True) is None
    assert warning(np.array([0.9, 0.1]), 6, of_parts=True) is None  # half is not most
    assert warning(np.full(3, np.nan), 1, of_parts=True) is None
    assert warning(np.array([0.1, 0.1]), 6, of_parts=False) is not None
    assert warning(np.array([0.1]), 6, of_parts=True) is not None


def test_models_without_recurrence_say_nothing() -> None:
    model = fitted("parts")
    assert recurrence_line(model)
    model.recurrence_ = None
    assert recurrence_line(model) == ""
    assert recurrence_warning(model) is None
    model.recurrence_, model.starts_ = np.zeros(2), replace(model.starts_, n_near=5)
    assert recurrence_warning(model) is not None
