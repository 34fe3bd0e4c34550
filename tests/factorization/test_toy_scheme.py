"""A scheme says itself what it needs: one that is defined here is fitted, saved, loaded, selected with and reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import icofactor
from helpers.problems import relative, small
from helpers.refusals import refused
from icofactor import (
    CorticalFactorization,
    Refinement,
    choose_n_components,
    load_model,
    multistart,
    simulate_cohort,
)
from icofactor.assessment.bootstrap import bootstrap
from icofactor.cohort.cohort import Cohort
from icofactor.factorization.arrays import Array
from icofactor.factorization.methods import METHODS, register, unregister
from icofactor.factorization.schemes import SCHEMES, Problem, Scheme, SchemeText, Terms
from icofactor.factorization.schemes.base import Factors
from icofactor.results.fit_cohort import fit_cohort

DING = "Ding C, Li T, Jordan MI. Convex and semi-nonnegative matrix factorizations. IEEE TPAMI 32(1), 45-55 (2010)."


class SemiNMF(Scheme):
    """min ‖X − DBC‖² over B ≥ 0, C of any sign, written for NumPy only."""

    name = "semi"
    text = SchemeText(
        "semi-non-negative matrix factorization", "‖X − WC‖² subject to W ≥ 0", (DING,)
    )
    signed_data = signed_loadings = True
    penalised = False
    jax = False

    def paper_penalty(self, L_norm: float) -> float:
        return 0.0

    def draw(self, p: Problem, n_components: int, rng: np.random.Generator) -> Factors:
        n_subjects, n_columns = p.L.shape
        return rng.random((n_columns, n_components)), np.zeros((n_components, n_subjects))

    def settle(self, p: Problem, B: Array, C: Array) -> Factors:
        return B, self.update_C(p, B, C, p.gram(B))

    def update_B(self, p: Problem, B: Array, C: Array, t: Terms) -> Array:
        KB = p.times_K(B)
        up = np.maximum(t.LC, 0.0) + KB @ np.maximum(-t.CC, 0.0)
        down = np.maximum(-t.LC, 0.0) + KB @ np.maximum(t.CC, 0.0)
        return np.asarray(B * np.sqrt(up / np.maximum(down, 1e-300)))

    def update_C(self, p: Problem, B: Array, C: Array, G: Array) -> Array:
        return np.linalg.pinv(G, hermitian=True) @ p.project(B)

    def objective(self, p: Problem, B: Array, C: Array, E: Array) -> Array:
        return E


@pytest.fixture(scope="module")
def toy() -> Iterator[Scheme]:
    scheme = SemiNMF()
    register(scheme)
    yield scheme
    unregister(scheme)
    assert "semi" not in METHODS and "semi" not in SCHEMES and "semi" not in icofactor.METHODS


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return simulate_cohort(16, 3, mesh="fsaverage4", random_state=1)


def model(**changes: object) -> CorticalFactorization:
    settings = {
        "level": 1,
        "n_starts": 2,
        "n_iter": 60,
        "tol": 0.0,
        "refinement": Refinement(steps=2, n_iter=5),
    }
    return CorticalFactorization(3, method="semi", **{**settings, **changes})  # type: ignore[arg-type]


def test_it_is_a_method_like_any_other(toy: Scheme) -> None:
    assert "semi" in icofactor.METHODS and "semi" not in icofactor.PAPER_METHODS
    with refused("rules"):
        model(rules="paper").fit(np.ones((3, 10242)))
    with refused("penalty"):
        multistart(small("partition").stats, "semi", 2, penalty=1.0, n_starts=1, n_iter=1)


@pytest.mark.parametrize("engine", ["auto", "numpy", "cpu", "jax"])
def test_engines_that_cannot_run_it_leave_it_to_numpy(toy: Scheme, engine: str) -> None:
    if engine == "jax":
        pytest.importorskip("jax")
    best = multistart(
        small("partition").stats, "semi", 3, n_starts=2, n_iter=30, engine=engine, random_state=0
    )
    assert best.engine == "numpy"
    assert (np.diff(best.objectives) <= 1e-9 * best.objectives[:, :1]).all()
    assert (np.asarray(best.B) >= 0).all()


@pytest.mark.slow
def test_it_is_fitted_saved_loaded_and_transforms(
    toy: Scheme, cohort: Cohort, tmp_path: Path
) -> None:
    X = cohort.X - cohort.X.mean(axis=0)  # of any sign, as the scheme allows
    fitted = model(mesh="fsaverage4").fit(X)
    assert (
        fitted.explained_ > 0.3 and (fitted.components_ >= 0).all() and (fitted.loadings_ < 0).any()
    )
    np.testing.assert_allclose(np.sqrt((fitted.loadings_**2).mean(axis=0)), 1.0)
    W = fitted.components_.T
    by_hand = np.linalg.lstsq(W, X.T, rcond=None)[0].T
    assert relative(fitted.transform(X), by_hand) < 1e-8
    assert relative(fitted.loadings_, by_hand) < 1e-8
    fitted.save(tmp_path / "model.zip")
    again = load_model(tmp_path / "model.zip")
    assert again.solution_.method == "semi"
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))


@pytest.mark.slow
def test_it_selects_and_is_bootstrapped(toy: Scheme, cohort: Cohort) -> None:
    choice = choose_n_components(
        cohort, [2, 3], n_splits=2, n_starts=2, n_nulls=5, method="semi", level=1
    )
    assert choice.table["rank"].tolist() == [2, 3]
    assert (
        np.isfinite(choice.table["heldout"]).all() and np.isfinite(choice.table["agreement"]).all()
    )
    fitted = model(lift=False).fit(cohort)
    assert np.isfinite(bootstrap(fitted, cohort, n_resamples=2).similarity).all()


@pytest.mark.slow
def test_it_is_reported(toy: Scheme, cohort: Cohort, tmp_path: Path) -> None:
    fit_cohort(cohort, model(), tmp_path / "out", figures=False)
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    methods = (tmp_path / "out" / "methods.md").read_text(encoding="utf-8")
    assert toy.text.name in methods and DING in methods and "λ" not in methods
