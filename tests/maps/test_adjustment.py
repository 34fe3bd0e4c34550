"""One change per value: float32, the floor, and a harmonization of our own from end to end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import icofactor as ico
from helpers.refusals import refused
from helpers.sources import N_SUBJECTS, source
from icofactor.cohort.adjusted import with_maps
from icofactor.maps.adjustment import Adjustment, floor_at_zero, subtract
from icofactor.maps.maps import maps_of

rng = np.random.default_rng(0)


def test_what_float32_loses_of_an_offset_is_subtracted_too() -> None:
    x = (1e4 + rng.normal(size=(5, 40))).astype(np.float32)
    offset = x.mean(axis=1, dtype=np.float64, keepdims=True)
    difference = subtract(x, offset)
    assert difference.dtype == np.float32
    np.testing.assert_allclose(difference, x - offset, rtol=0, atol=1e-6)
    assert np.abs(x - offset.astype(np.float32) - (x - offset)).max() > 1e-5


def test_values_below_zero_are_counted_but_not_rounding_or_nan() -> None:
    x = np.array([[-1e-12, -0.5, np.nan], [2.0, -3.0, 0.0]])
    floored, n_below = floor_at_zero(x)
    np.testing.assert_array_equal(floored, [[0, 0, np.nan], [2, 0, 0]])
    assert n_below == 2


@dataclass(frozen=True, eq=False)
class ScannerMeans:
    """A harmonization: subtract the mean map of everyone scanned by the same scanner."""

    kept_as: ClassVar[str] = "harmonization_"
    names: ClassVar[tuple[str, ...]] = ("site",)
    done: ClassVar[str] = "less the means of their scanner"

    means: np.ndarray

    def same_as(self, other: Any) -> bool:
        return self is other

    def apply(self, X: Any, participants: Any = None) -> Any:
        table = X.participants if participants is None else participants
        change = Adjustment(offset=self.means, codes=np.asarray(table["site"]), made_by=self)
        return with_maps(X, maps_of(X.X).adjusted(change))


@pytest.mark.parametrize("kind", ["array", "store"])
def test_a_harmonization_is_one_class(kind: str, cohort: ico.Cohort, tmp_path: Path) -> None:
    """It is applied, and done to new people by the model."""
    scanner = np.array([0, 1, 1] * (N_SUBJECTS // 3))
    cohort = replace(cohort, participants={"site": scanner})
    step = ScannerMeans(np.stack([cohort.X[scanner == code].mean(axis=0) for code in (0, 1)]))
    settings: dict[str, Any] = {"n_components": 2, "n_starts": 2, "level": 1}
    data = cohort if kind == "array" else source(kind, cohort, tmp_path)
    model = ico.CorticalFactorization(**settings).fit(step.apply(data))
    residuals = cohort.X - step.means[scanner]
    plain = ico.CorticalFactorization(**settings, mesh="fsaverage3").fit(residuals)
    assert model.harmonization_ is step
    np.testing.assert_allclose(model.components_, plain.components_, rtol=1e-5, atol=1e-5)
    expected = plain.transform(residuals[:6])
    for people in (cohort[:6], step.apply(cohort[:6])):
        np.testing.assert_allclose(model.transform(people), expected, rtol=1e-4, atol=1e-5)
    with refused("X"):
        model.transform(cohort.X)
