"""The methods paragraph says what was done, and cites nothing it does not list."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from types import SimpleNamespace
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


def text_of(cohort: Cohort, **parameters: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few updates do not converge
        return methods_text(CorticalFactorization(2, **{"n_iter": 5, "n_starts": 2, **parameters}).fit(cohort), cohort)


@pytest.mark.parametrize("method", METHODS)
def test_every_citation_is_listed_and_every_reference_cited(cohort: Cohort, method: str) -> None:
    text, listed = text_of(cohort, method=method).split("## References")
    cited = {int(n) for group in re.findall(r"\[([\d, ]+)\]", text) for n in group.split(",")}
    numbers = [int(n) for n in re.findall(r"^(\d+)\. ", listed, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert cited == set(numbers)
    assert "Honnorat N, Davatzikos C." in listed
    assert "None" not in text


def test_it_says_what_was_done(cohort: Cohort) -> None:
    text = text_of(
        cohort, method="CD-PNNMF", random_state=7, tol=1e-4, refinement=Refinement(steps=3, faces=4, n_iter=2)
    )
    for words in (
        "Simulated cortical maps of thickness (in mm) of 8 subjects on the vertices of fsaverage3",
        "the left hemisphere (642 vertices)",
        "into 2 components",
        "the 320 faces per hemisphere of level 2",
        "from 2 random starts (seed 7)",
        "at most 5 updates by coordinate descent",
        "less than 0.0001 (relative)",
        "the 4 faces with the largest squared residual were divided into four, 3 times, with 2 updates",
        "With the loadings fixed, the basis was then computed at every site",
        "icofactor",
    ):
        assert words in text


def test_other_settings_are_other_words(cohort: Cohort) -> None:
    plain = text_of(cohort, refinement=None, lift=False, n_starts=1, tol=0.0, columns="smooth")
    assert "divided into four" not in plain
    assert "left at the resolution of the faces" in plain
    assert "from one random start" in plain
    assert "ended when" not in plain
    assert "smooth bumps" in plain
    assert "2 sweeps over both" in text_of(cohort, method="CD-PNNMF", polish=2)
    assert "exactly." in text_of(cohort, method="LE-PNNMF", rules="paper")
    assert "worse half" in text_of(cohort, halving=True)
    assert re.search(
        r"λ = [\d.e-]+ \(the published value at the scale of the data\), and", text_of(cohort, method="DL")
    )
    assert "λ = 0.25, and" in text_of(cohort, method="DL", penalty=0.25)
    projective = text_of(cohort, method="LE-PPNMF")
    assert "λ" not in projective
    assert "WᵀX contains the loadings" in projective


REHO = [
    {"step": "bandpass", "method": "butterworth", "order": 2, "low_hz": 0.05, "high_hz": 0.1, "tr": 0.72},
    {"step": "concatenate_runs", "each_run": "zero mean, unit L2 norm"},
    {"step": "reho", "mesh": "fs_LR 32k", "rings": 3, "tie_correction": True},
    {"step": "fill_from_neighbours", "max_missing": 0.01},
    {"step": "resample", "from": "fs_LR 32k", "to": "fsaverage5", "method": "adaptive"},
]


@pytest.mark.parametrize(
    ("provenance", "words"),
    [
        (
            {"preprocessing": REHO},
            [
                "band-pass filtered between 0.05 and 0.1 Hz with a Butterworth filter of order 2.",
                "Kendall's W of the series up to 3 edges away, with correction for ties.",
                "were filled with the mean of their neighbours.",
                "resampled from fs_LR 32k to fsaverage5 by adaptive barycentric interpolation.",
            ],
        ),
        (
            {"preprocessing": [{"step": "limit_outliers", "n_deviations": 4.4478}, {"step": "smooth", "fwhm_mm": 10}]},
            ["further than 4.4478 median absolute deviations", "with a Gaussian kernel of 10 mm FWHM"],
        ),
        (
            {"preprocessing": [{"step": "alff", "low_hz": 0.01, "high_hz": 0.1, "detrend": True, "normalize": "mean"}]},
            ["ALFF was computed of detrended series as the amplitude between 0.01 and 0.1 Hz and divided by its mean"],
        ),
        (
            {"inputs": [{"path": f"/s/{i}/surf/lh.thickness.fwhm20.fsaverage3.mgh"} for i in range(8)]},
            ["The maps had been smoothed with a Gaussian kernel of 20 mm FWHM."],
        ),
        (
            {"left_out": {"by name": list("abcdefghijklmn"), "with missing files": ["x"]}},
            ["15 subjects were left out: 14 by name and 1 with missing files."],
        ),
        (
            {"left_out": {"that the participants table marks for exclusion": ["a"]}},
            ["1 subject was left out: 1 marked for exclusion in the table of participants."],
        ),
        ({"left_out": 3, "preprocessing": [None, {"step": "smooth", "fwhm_mm": "\u202e"}]}, ["factorized"]),
    ],
)
def test_what_was_done_before_the_fit(fitted: Any, cohort: Cohort, provenance: Any, words: list[str]) -> None:
    """Whatever the record of a cohort or a store knows: preprocessing, smoothing, exclusions and why."""
    text = methods_text(fitted, replace(cohort, provenance=provenance))
    for part in words:
        assert part in text
    assert "\u202e" not in text


@pytest.fixture(scope="module")
def fitted(cohort: Cohort) -> CorticalFactorization:
    return CorticalFactorization(2, n_iter=5, n_starts=2, tol=0, level=1).fit(cohort)


def test_the_last_line_says_where_select_is_described(fitted: Any, cohort: Cohort) -> None:
    text = methods_text(fitted, cohort)
    paragraph, last = text.removesuffix("\n").rsplit("\n\n", 1)
    assert "`icofactor select`" in last and "`icofactor report FOLDER --overwrite`" in last and "\n" not in last
    assert with_assessment(text, SelectionFiles()) == paragraph + "\n"  # the page does not refer to itself


def test_what_select_did_stands_before_the_references(fitted: Any, cohort: Cohort) -> None:
    settings = {"n_splits": 20, "n_nulls": 10, "stratify": ["sex", "site"]}
    choice = Choice({"rank": np.arange(2, 21)}, 6, ("because",), settings)
    found = SelectionFiles(choice, {"n_resamples": [200.0, 200.0]}, overlap={"region": ["a", "b"], "n_spins": [1000.0]})
    text, references = with_assessment(methods_text(fitted, cohort), found).split("## References")
    assert "Numbers of components of 2 to 20 were compared" in text
    assert "fits to 20 random halves of the subjects, stratified by sex, site beyond that in 10 cohorts" in text
    assert "6 components were recommended." in text
    assert "fits to 200 resamples of the subjects" in text
    assert "the 2 regions of an atlas was tested against 1000 random rotations" in text
    assert "SciPy" in references
    assert "After `icofactor select`" not in text + references
    assert "## Assessment" in text
    twice = with_assessment(methods_text(fitted, cohort), found, last=True)
    assert with_assessment(twice, found, last=True) == twice and "After `icofactor select`" in twice.splitlines()[-1]
    assert with_assessment(twice, SelectionFiles(), last=True) == methods_text(fitted, cohort)
    assert with_assessment("", found) == "" and with_assessment("a", SelectionFiles()) == "a"


def test_a_mask_and_measured_data(cohort: Cohort) -> None:
    mask = np.arange(642) % 4 > 0
    text = text_of(replace(cohort, mask=mask, provenance={}, modality="unknown", units="", truth=None))
    assert f"(642 vertices, of which {mask.sum()} were used" in text
    assert text.startswith("# Methods\n\nCortical maps of 8 subjects")


def test_covariates_are_told(cohort: Cohort) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = CorticalFactorization(2, n_iter=5).fit(cohort)

    class Named(SimpleNamespace):
        def __str__(self) -> str:
            return "age, sex (f, m)"

    for n_shifted in (0, 3):
        model.covariates_ = Named(n_shifted=n_shifted, names=("age", "sex"))
        text = methods_text(model, cohort)
        assert "linear effects of age, sex (f, m) were removed" in text
        assert ("plus a constant where values" in text) == (n_shifted > 0)
        assert "were removed at every vertex" in text
        assert "% of the variance between subjects that remained after removal of the effects of age and sex." in text


@pytest.mark.parametrize(
    ("center", "data", "units"),
    [
        ("auto", "as deviations from the mean map of the subjects", "in the units of the data"),
        ("zscore", "as z-scores", "in standard deviations"),
        ("none", "sites × subjects, the columns", "in the units of the data"),
    ],
)
def test_parts_say_what_was_taken_out(cohort: Cohort, center: str, data: str, units: str) -> None:
    text = text_of(cohort, method="parts", center=center, n_starts=12)
    assert data in text
    assert f"so components are {units}" in text
    assert ("A positive loading means values above" in text) == (center != "none")
    assert "from 12 random starts (seed 0), partitions of the faces by weighted spherical k-means [" in text
    assert "of which the 10 best were continued" in text
    assert "X̃" not in text


def test_recurrence_is_part_of_the_paragraph(cohort: Cohort) -> None:
    model = CorticalFactorization(2, method="parts", n_iter=50, tol=0.0, n_starts=12).fit(cohort)
    model.recurrence_ = np.array([1.0, 0.25])
    model.starts_ = replace(model.starts_, n_near=7)
    assert "1 of 2 were reached" in methods_text(model, cohort)
    assert "the 7 other random starts on the same people" in methods_text(model, cohort)
    model.recurrence_ = np.full(2, np.nan)
    assert "other random starts" not in methods_text(model, cohort)
    model.recurrence_ = np.array([1.0])
    assert "The component was reached" in methods_text(model, cohort)


def test_signed_maps_have_no_side_that_is_above(cohort: Cohort) -> None:
    text = text_of(cohort, method="DL", center="mean")
    assert "A positive loading means a deviation from the average of the subjects like that of the map" in text
    assert "values above the average" not in text
