"""The methods paragraph cites what it lists and lists what it cites, whatever was fitted."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from icofactor import METHODS, Cohort, CorticalFactorization, Refinement, simulate_cohort
from icofactor.assessment.selection.choice import Choice
from icofactor.results.assessment_text import with_assessment
from icofactor.results.methods_text import methods_text
from icofactor.results.report.selection_files import SelectionFiles


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return simulate_cohort(8, 2, "thickness", "left", 0, mesh="fsaverage3")


@pytest.fixture(scope="module")
def fitted(cohort: Cohort) -> CorticalFactorization:
    return CorticalFactorization(2, n_iter=5, n_starts=2, tol=0, level=1).fit(cohort)


@pytest.mark.parametrize(
    "parameters",
    [
        *({"method": method} for method in METHODS),
        {"method": "CD-PNNMF", "polish": 2, "refinement": Refinement(steps=3, faces=4, n_iter=2)},
        {"refinement": None, "lift": False, "n_starts": 1, "tol": 0.0, "columns": "smooth"},
        {"method": "LE-PNNMF", "rules": "paper", "halving": True},
        {"method": "DL", "penalty": 0.25, "center": "mean"},
        {"method": "parts", "center": "zscore", "n_starts": 12},
        {"method": "parts", "center": "none"},
    ],
    ids=str,
)
def test_every_citation_is_listed_and_every_reference_cited(
    cohort: Cohort, parameters: dict[str, Any]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few updates do not converge
        model = CorticalFactorization(2, **{"n_iter": 5, "n_starts": 2, **parameters}).fit(cohort)
    text, listed = methods_text(model, cohort).split("## References")
    cited = {int(n) for group in re.findall(r"\[([\d, ]+)\]", text) for n in group.split(",")}
    numbers = [int(n) for n in re.findall(r"^(\d+)\. ", listed, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert cited == set(numbers)
    assert "None" not in text


@pytest.mark.parametrize(
    ("provenance", "numbers"),
    [
        ({"preprocessing": [{"step": "smooth", "fwhm_mm": 10}]}, ["10 mm"]),
        (
            {
                "inputs": [
                    {"path": f"/s/{i}/surf/lh.thickness.fwhm20.fsaverage3.mgh"} for i in range(8)
                ]
            },
            ["20 mm"],
        ),
        (
            {"left_out": {"by name": list("abcdefghijklmn"), "with missing files": ["x"]}},
            ["15 subjects", "14", "1 "],
        ),
        ({"left_out": 3, "preprocessing": [None, {"step": "smooth", "fwhm_mm": "\u202e"}]}, []),
    ],
)
def test_records_of_a_cohort_are_read_whatever_they_hold(
    fitted: CorticalFactorization, cohort: Cohort, provenance: Any, numbers: list[str]
) -> None:
    text = methods_text(fitted, replace(cohort, provenance=provenance))
    assert all(number in text for number in numbers)
    assert "\u202e" not in text


def test_an_assessment_is_added_once_and_taken_out_again(
    fitted: CorticalFactorization, cohort: Cohort
) -> None:
    settings = {"n_splits": 20, "n_nulls": 10, "stratify": ["sex", "site"]}
    choice = Choice({"rank": np.arange(2, 21)}, 6, ("because",), settings)
    files = SelectionFiles(
        choice, {"n_resamples": [200.0, 200.0]}, overlap={"region": ["a", "b"], "n_spins": [1000.0]}
    )
    plain = methods_text(fitted, cohort)
    text, references = with_assessment(plain, files).split("## References")
    assert "## Assessment" in text
    assert "SciPy" in references
    assessed = with_assessment(plain, files, last=True)
    assert with_assessment(assessed, files, last=True) == assessed
    assert with_assessment(assessed, SelectionFiles(), last=True) == plain
    assert with_assessment("", files) == ""
    assert with_assessment("a", SelectionFiles()) == "a"
