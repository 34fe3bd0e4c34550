"""End-to-end runs whose numbers are pinned, so that the house can be rebuilt without changing an answer.

`figures.py` states the tolerance of every kind of figure, `make.py` writes `expected.json`, `CHANGED.md` lists figures
that changed and why.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import icofactor as ico
from golden.cases import CASES, figures_of
from golden.figures import Factors, Number, Values
from golden.inputs import N_COMPONENTS, N_SUBJECTS, generator, left_maps
from golden.make import EXPECTED
from reference import naive

N_UPDATES = 60


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, object]]:
    return json.loads(EXPECTED.read_text(encoding="utf8"))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("default")
def test_figures_are_as_pinned(
    name: str, expected: dict[str, dict[str, object]], tmp_path: Path
) -> None:
    figures = figures_of(name, tmp_path)
    assert set(figures) == set(expected[name])
    differences = {
        label: figure.difference(expected[name][label]) for label, figure in figures.items()
    }
    moved = {
        label: round(difference, 3)
        for label, difference in differences.items()
        if not difference <= 1
    }
    assert not moved, f"{name}: distance as a share of the tolerance: {moved}"


@pytest.mark.parametrize("method", ico.PAPER_METHODS)
def test_rules_of_the_paper_equal_the_reference_on_the_full_X(method: str) -> None:
    X = left_maps().T
    design = ico.Design(ico.Sites.named("fsaverage3"), "exponential", level=0, sigma=0.015)
    stats = ico.Statistics.from_data(X, design)
    D = design.matrix.toarray()
    random = generator(5)
    B = random.uniform(0.1, 1.0, (D.shape[1], N_COMPONENTS)) / 100
    C = random.uniform(0.1, 1.0, (N_COMPONENTS, N_SUBJECTS))
    penalty = naive.penalty(method, X, D, "paper")
    reference = naive.run_paper(method, X, D, B, C, N_UPDATES, penalty)
    solution = ico.solve(stats, method, start=(B, C), n_iter=N_UPDATES, rules="paper")
    np.testing.assert_allclose(solution.objective, reference["objectives"], rtol=1e-8)
    np.testing.assert_allclose(solution.B, reference["B"], atol=1e-8 * np.abs(reference["B"]).max())
    np.testing.assert_allclose(solution.C, reference["C"], atol=1e-8 * np.abs(reference["C"]).max())


def test_a_difference_beyond_the_tolerance_is_noticed() -> None:
    maps, loadings = generator(0).rand(3, 500), generator(1).rand(20, 3)
    pinned = Factors(maps, loadings).stored()
    assert Factors(-maps[[2, 0, 1]], -loadings[:, [2, 0, 1]]).difference(pinned) < 1e-3
    changed = maps.copy()
    changed[1, 7] += 0.05
    assert Factors(changed, loadings).difference(pinned) > 1
    assert Number(1.0002).difference(1.0) > 1 > Number(1.00005).difference(1.0)
    assert Values([1.0, np.nan]).difference(Values([1.0, 0.0]).stored()) > 1
