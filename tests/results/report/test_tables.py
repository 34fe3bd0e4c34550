"""The page's numbers as tables, and the verdict at its top."""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers.hostile_fit import Fitted
from helpers.sidecars import undescribed
from icofactor.assessment.selection.choice import Choice
from icofactor.io.tables import read_table
from icofactor.results.description import FitDescription
from icofactor.results.meaning import adjustments, stability_line, verdict
from icofactor.results.recurrence_text import undetermined
from icofactor.results.report.page import asset, write_page
from icofactor.results.report.selection_files import SelectionFiles
from icofactor.results.report.tables import norm_summary, page_tables


def test_tables_hold_what_the_page_shows(fitted: Fitted, tmp_path: Path) -> None:
    write_page(fitted.folder, tmp_path / "out", figures=False)
    d, tables = fitted.diagnostics, tmp_path / "out" / "tables"
    read = {path.stem: read_table(path)[0] for path in tables.glob("*.tsv")}
    assert not undescribed(tables)
    numbers = lambda name, column: np.array([float(cell) for cell in read[name][column]])
    np.testing.assert_allclose(numbers("subjects", "residual"), d.residual, rtol=1e-9)
    np.testing.assert_allclose(
        numbers("subjects", "explained_variance"), d.subject_explained, rtol=1e-9
    )
    np.testing.assert_allclose(numbers("sparsity", "l1_B"), d.l1_B, rtol=1e-9)
    upper = np.triu_indices(3, 1)
    np.testing.assert_allclose(numbers("similarity", "overlap"), d.overlap[upper], rtol=1e-9)
    np.testing.assert_allclose(
        numbers("similarity", "correlation_of_loadings"), d.together[upper], rtol=1e-9
    )
    expected = np.concatenate(
        [*(one.r for one in d.associations), *(one.eta2 for one in d.groupings)]
    )
    np.testing.assert_allclose(numbers("correlations", "value"), expected, rtol=1e-9)
    boxes = np.concatenate([one.boxes.reshape(-1, 5) for one in d.groupings])
    np.testing.assert_allclose(numbers("groups", "median"), boxes[:, 2], rtol=1e-9)
    best = dict(zip(read["convergence"]["update"], read["convergence"]["best_start"], strict=True))
    assert float(best[str(d.convergence.updates[-1])]) == pytest.approx(d.convergence.objective[-1])
    known = dict(zip(read["summary"]["quantity"], read["summary"]["value"], strict=True))
    assert float(known["explained_variance"]) == pytest.approx(d.explained)
    assert (known["components"], known["components_recommended"]) == ("3", "3")
    assert known["components_reached_by_other_starts"] == "n/a"  # two starts do not tell
    assert len(read["unusual"]["z"]) == len(d.unusual.z)
    assert float(known["l1_B"]) == pytest.approx(d.l1_B.sum())
    free = len(d.loadings) - 1 - 3  # a mean, and three loadings
    assert float(known["unique_by_chance"]) == pytest.approx((1 - d.linear) / free)
    starts = fitted.model.starts_.n_starts
    assert known["starts"] == str(starts) and read["settings"]["value"][4].startswith(str(starts))


def test_w_scores_are_summarized_for_people_outside_the_reference() -> None:
    scores = np.array([[5.0, 5.0], [-3.0, 0.0], [2.0, np.nan], [1.0, np.nan]])
    found = norm_summary(
        SimpleNamespace(scores=scores, reference=np.array([True, False, False, False]))
    )  # type: ignore[arg-type]
    assert found["others"].tolist() == [3, 1]
    np.testing.assert_allclose(found["mean"], [0, 0])
    np.testing.assert_allclose([found["below"], found["above"]], [[1 / 3, 0], [1 / 3, 0]])


def test_panels_name_tables_that_are_written(fitted: Fitted) -> None:
    """Tables in the list of panels are those of tables/, of a fit, or of `select` and `associate`."""
    named = set(re.findall(r'"([\w/-]+\.tsv)"', asset("page.js")))
    of_several = {"tables/measures.tsv", "tables/normative_summary.tsv"}
    assert {name for name in named if name.startswith("tables/")} == set(
        page_tables(_description(fitted))
    ) | of_several
    others = {f"desc-icofactor_{name}.tsv" for name in ("components", "loadings", "dseg")} | {
        "selection.tsv"
    }
    others |= {"stability.tsv", "loadings_se.tsv", "atlas_overlap.tsv", "associations.tsv"}
    assert named - {name for name in named if name.startswith("tables/")} >= others


@pytest.mark.parametrize(
    ("recommended", "card"), [("nothing ran", "not examined"), (None, "none"), (5, "5")]
)
def test_the_verdict_has_what_is_recommended_and_explained(
    fitted: Fitted, recommended: Any, card: str
) -> None:
    choice = (
        None
        if recommended == "nothing ran"
        else Choice({"rank": np.array([2, 3])}, recommended, ())
    )
    fit = replace(_description(fitted), selection=SelectionFiles(choice))
    assert verdict(fit).recommended == card
    assert f"{100 * fit.diagnostics.explained:.0f} %" in verdict(fit).headline


def test_the_verdict_names_components_that_overlap_or_are_not_determined(fitted: Fitted) -> None:
    fit = _description(fitted)
    for extent in ([0.2] * 3, [0.6, 0.6, 0.2], [0.9] * 3):  # those in the middle hardly overlap
        other = replace(fit, diagnostics=replace(fit.diagnostics, extent=np.array(extent)))
        assert any("overlap" in line for line in verdict(other).lines) == (sum(extent) > 2)
    before = fit.model.recurrence_
    for number, share in {
        "": [1.0, 0.9, 0.8],
        "1 of 3": [1.0, 0.9, 0.2],
        "2 of 3": [1.0, 0.2, 0.2],
    }.items():
        fit.model.recurrence_ = np.array(share)
        assert undetermined(fit.model.recurrence_).startswith(number)
        assert undetermined(fit.model.recurrence_) in verdict(fit).headline
    fit.model.recurrence_ = before


@pytest.mark.parametrize("harmonized", [True, False])
@pytest.mark.parametrize("regressed", [True, False])
def test_what_was_removed_is_called_by_its_name(
    fitted: Fitted, harmonized: bool, regressed: bool
) -> None:
    """ComBat is not a regression."""
    model = copy(fitted.model)
    model.harmonization_ = SimpleNamespace(names=("site",), column="site") if harmonized else None
    model.covariates_ = SimpleNamespace(names=("age",)) if regressed else None
    named = dict(adjustments(model))
    assert named.get("site", "").startswith("harmonized") == harmonized
    assert named.get("age", "").startswith("regressed") == regressed


def test_measured_stability_is_in_the_verdict(fitted: Fitted) -> None:
    fit = replace(
        _description(fitted), selection=SelectionFiles(stability={"stability": [0.9, 0.8, 0.7]})
    )
    assert verdict(fit).stability == "moderate (0.80)"
    assert verdict(_description(fitted)).stability == ""
    assert stability_line({"stability": [np.nan, np.nan]}) == ""
    assert "low" in stability_line({"stability": [0.45, 0.57, 0.5]})
    assert "high" in stability_line({"stability": [0.95]})


def _description(fitted: Fitted) -> FitDescription:
    return FitDescription.of(fitted.model, fitted.diagnostics)
