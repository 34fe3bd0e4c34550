"""What a fit says of its components, for every way of centring."""

from __future__ import annotations

import json
import warnings
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from icofactor import CorticalFactorization, simulate_cohort
from icofactor.factorization.recurrence import in_one_line, warning
from icofactor.results.fit_cohort import FitResult, fit_cohort
from icofactor.results.meaning import (
    component_units,
    fitted_units,
    has_signed_loadings,
    meaning_of,
    recurrence_line,
    recurrence_warning,
    scale_label,
)

COHORT = simulate_cohort(12, 2, "thickness", "left", 0, mesh="fsaverage3")


def fitted(method: str, center: str = "auto") -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CorticalFactorization(2, method=method, center=center, level=1, n_iter=50).fit(COHORT)


@pytest.mark.parametrize(
    ("method", "center", "own", "scale", "residual", "signed", "said"),
    [
        ("parts", "mean", "mm", "mm of deviation per unit loading", "mm", True, "thicker than average, by the values"),
        ("parts", "zscore", "standard deviations", "standard deviations per unit loading", "standard deviations", True,
         "by the values of the map (standard deviations), in this part"),
        ("parts", "none", "mm", "mm", "mm", False, "sum of the components' maps"),
        ("LE-PPNMF", "mean", "", "", "mm", True, "A positive loading means that this person's cortex is thicker"),
        ("LE-PPNMF", "none", "", "", "mm", False, "projection of a person's map"),
        ("E-DL", "mean", "mm", "mm of deviation per unit loading", "mm", True, "average by the values of the map (mm)"),
        ("CD-PNNMF", "none", "mm", "mm", "mm", False, "in the units of the data (mm)"),
    ],
)  # fmt: skip
def test_units_and_words(
    method: str, center: str, own: str, scale: str, residual: str, signed: bool, said: str
) -> None:
    model = fitted(method, center)
    assert component_units(model, "mm") == own
    assert scale_label(model, "mm") == scale
    assert fitted_units(model, "mm") == residual
    assert has_signed_loadings(model) == signed
    assert said in meaning_of(model, "thickness", "mm")
    assert "()" not in meaning_of(model)  # nothing is known of the data


def test_other_measures_are_higher_not_thicker() -> None:
    model = fitted("parts")
    assert "person's values are higher than average" in meaning_of(model, "reho")
    assert "that they are lower by as much" in meaning_of(model, "reho")


@pytest.mark.parametrize(("share", "said"), [("maps", "(scaled units)"), ("loadings", "(units of each measure)")])
def test_scaled_measures_have_other_units(share: str, said: str) -> None:
    """Shared maps are of measures divided by their size; maps of each measure are written in its own units."""
    model = copy(fitted("parts"))
    model.measures_ = SimpleNamespace(scale="variance", share=share)
    assert fitted_units(model, "mm") == "scaled units" and f"by the values of the map {said}" in meaning_of(model)
    model.measures_ = SimpleNamespace(scale="none", share=share)
    assert fitted_units(model, "mm") == "mm"


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


def test_recurrence_in_words() -> None:
    some = in_one_line(np.array([1, 0.5, 0.4]), 6)
    assert some.startswith("2 of 3 components were reached by")
    assert "the 6 other random starts on the same people" in some
    assert "nothing about other people" in some
    assert "nothing about other people" not in in_one_line(np.full(3, 0.1), 6)
    assert "there are none" in in_one_line(np.full(3, np.nan), 0)
    assert "there is only 1" in in_one_line(np.full(3, np.nan), 1)
    assert warning(np.array([1, 0.5, 0.4]), 6, of_parts=True) is None
    assert warning(np.array([0.9, 0.1]), 6, of_parts=True) is None  # half is not most
    assert warning(np.full(3, np.nan), 1, of_parts=True) is None
    assert "none was reached" in str(warning(np.array([0.1, 0.1]), 6, of_parts=False))
    assert "use the method 'parts', or choose" in str(warning(np.array([0.1, 0.1]), 6, of_parts=False))
    assert in_one_line(np.array([1.0]), 6).startswith("The component was reached by")
    assert in_one_line(np.array([0.1]), 6).startswith("The component was not reached by")
    alone = str(warning(np.array([0.1]), 6, of_parts=True))
    assert alone.startswith("The component is not determined") and alone.endswith(
        " Choose the number of components with icofactor select."
    )


def test_reached_components_are_no_headline(tmp_path: Path) -> None:
    """That other starts on the same people reach the components is part of how the fit was computed, not a result."""
    model = CorticalFactorization(2, level=1, n_starts=12, random_state=0)
    result = fit_cohort(COHORT, model, tmp_path / "out", figures=False)
    page, methods = ((tmp_path / "out" / name).read_text(encoding="utf-8") for name in ("report.html", "methods.md"))
    content = json.loads(page.partition('type="application/json" id="data">')[2].partition("</script>")[0])
    reached, verdict = content["summary"]["trust"], content["summary"]["verdict"]
    assert not any(np.isnan(model.recurrence_))
    assert set(verdict) == {"headline", "lines", "recommended", "stability"}
    for text in (verdict["headline"], *verdict["lines"], *result.found().splitlines()[:2]):
        assert reached not in text and "starts" not in text
    for text in (page, methods, result.found()):
        assert "found again" not in text
    assert page.index('["How this was computed"') < page.index('id: "recurrence"')


def test_models_without_recurrence_say_nothing() -> None:
    model = fitted("parts")
    assert recurrence_line(model)
    model.recurrence_ = None
    assert recurrence_line(model) == ""
    assert recurrence_warning(model) is None
    model.recurrence_, model.starts_ = np.zeros(2), replace(model.starts_, n_near=5)
    assert "not determined" in str(recurrence_warning(model))


def test_what_there_is_one_of_is_counted_as_one() -> None:
    cohort = simulate_cohort(12, 2, mesh="fsaverage3")
    for n, said in ((1, "1 component explains "), (2, "2 components explain ")):
        model = CorticalFactorization(n, n_starts=1, n_iter=3, tol=0, level=0).fit(cohort)
        assert said in FitResult(model, cohort, Path(), [], []).found()
