"""Under default rules the unit of the data does not matter: a fit of c·X is the fit of X, times c."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

from helpers.marking import slow_but
from helpers.refusals import refused
from icofactor import CorticalFactorization, Refinement
from icofactor.errors import DivergenceError
from icofactor.factorization.methods import METHODS
from icofactor.sphere.sites import Sites

SITES = Sites.named("fsaverage3")
SCALES = (1e-30, 1e-3, 0.3, 1e30)
# Methods whose loadings have a root mean square of 1; those of the paper's projective ones are in
# the units of the data.
FREE = tuple(name for name, method in METHODS.items() if method.scheme.scaled)
pytestmark = pytest.mark.filterwarnings(
    "ignore:stopped after n_iter:sklearn.exceptions.ConvergenceWarning"
)


@cache
def maps(n_subjects: int = 16, k: int = 3) -> np.ndarray:
    """Positive maps of k bumps, subjects × vertices."""
    rng = np.random.default_rng(5)
    centres = rng.standard_normal((3, k))
    bumps = np.exp(6 * (SITES.coordinates @ centres / np.linalg.norm(centres, axis=0) - 1))
    return (
        rng.gamma(2, 1, (n_subjects, k)) @ bumps.T + 0.2 + 0.01 * rng.random((n_subjects, SITES.n))
    )


def fit(X: Any, method: str, **changes: Any) -> CorticalFactorization:
    # The second refinement is of faces that the first made.
    settings = {"n_starts": 2, "n_iter": 12, "level": 0, "refinement": Refinement(2, 5, 5)}
    mesh = {"mesh": "fsaverage3", "hemi": "left"}
    return CorticalFactorization(3, method=method, **{**mesh, **settings, **changes}).fit(X)


@cache
def reference(method: str, **changes: Any) -> CorticalFactorization:
    return fit(maps(), method, **changes)


def assert_same(
    model: CorticalFactorization, before: CorticalFactorization, c: float, tol: float = 1e-6
) -> None:
    close = lambda values, expected_values: (
        np.abs(values - expected_values).max() <= tol * np.abs(expected_values).max()
    )
    expected = before.inverse_transform(before.loadings_)
    assert close(model.inverse_transform(model.loadings_) / c, expected)
    of_X = 1.0 if model.center_ == "zscore" else c
    to_maps, to_loadings = (of_X, 1.0) if model.solution_.method in FREE else (1.0, of_X)
    assert close(model.components_ / to_maps, before.components_)
    assert close(model.loadings_ / to_loadings, before.loadings_)
    assert model.explained_ == pytest.approx(before.explained_, abs=tol)
    assert model.error_ / of_X**2 == pytest.approx(before.error_, rel=10 * tol)
    assert model.solution_.errors / of_X**2 == pytest.approx(before.solution_.errors, rel=10 * tol)
    assert model.starts_.objectives / of_X**2 == pytest.approx(
        before.starts_.objectives, rel=10 * tol
    )


@pytest.mark.parametrize("c", slow_but(SCALES, 1e-30, 0.3))
@pytest.mark.parametrize("method", METHODS)
def test_the_unit_of_the_data_does_not_matter(method: str, c: float) -> None:
    """Warnings are errors here: none is raised, NumPy's included."""
    model = fit(c * maps(), method)
    assert_same(model, reference(method), c)
    loadings = model.transform(c * maps())
    assert np.abs(loadings - model.loadings_).max() <= 1e-9 * np.abs(model.loadings_).max()


@pytest.mark.parametrize("center", ["mean", "zscore"])
@pytest.mark.parametrize("method", ["DL", "PPNMF", "parts"])
def test_nor_for_what_is_left_after_centering(method: str, center: str) -> None:
    assert_same(fit(1e-7 * maps(), method, center=center), reference(method, center=center), 1e-7)


def test_nor_for_parcels() -> None:
    """Which are divided too, and read again for it."""
    faces = SITES.face_at(2)
    means = [maps()[:, faces == face].mean(axis=1) for face in range(320)]
    # At this size the unit of the fit is 1.
    X = 4 * np.stack(means, axis=1)
    sites = Sites.parcels((faces + 1, "fsaverage3"))
    settings = {"mesh": sites, "hemi": None, "refinement": Refinement(6, 5, 5)}
    plain = fit(X, "CD-PNNMF", **settings)
    assert plain.design_.faces[:, 0].max() == 2, "children are divided"
    assert_same(fit(1e-7 * X, "CD-PNNMF", **settings), plain, 1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_powers_of_two_change_no_bit(method: str) -> None:
    before = reference(method)
    for power in (-41, 1, 60):
        model = fit(2.0**power * maps(), method)
        maps_too = 2.0**power if method in FREE else 1.0
        np.testing.assert_array_equal(model.components_, maps_too * before.components_)
        np.testing.assert_array_equal(model.loadings_ * maps_too, 2.0**power * before.loadings_)


@pytest.mark.parametrize("method", slow_but(METHODS, "DL", "CD-PNNMF", "parts"))
def test_single_precision_where_it_holds_the_values(method: str) -> None:
    X = (1e-30 * maps()).astype(np.float32)
    assert_same(fit(X, method), fit(X.astype(np.float64), method), 1.0, 1e-12)


@pytest.mark.parametrize("method", ["DL", "CD-PNNMF"])
def test_a_penalty_given_as_a_number_is_the_number(method: str) -> None:
    before = reference(method)
    penalty, degree = before.solution_.penalty, METHODS[method].scheme.penalty_degree
    assert_same(fit(maps(), method, penalty=penalty), before, 1.0)
    model = fit(1e5 * maps(), method, penalty=penalty * 1e5**degree)
    assert model.solution_.penalty == pytest.approx(penalty * 1e5**degree, rel=1e-12)
    assert_same(model, before, 1e5)


def fit_and_listen(X: np.ndarray, method: str, **changes: Any) -> tuple[Any, int]:
    """Return the fit, None where it diverged, and the number of warnings to users."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        try:
            model = fit(X, method, **changes)
        except DivergenceError:
            model = None
    categories = [warning.category for warning in raised]
    assert RuntimeWarning not in categories
    return model, categories.count(UserWarning)


@pytest.mark.parametrize(("method", "penalty"), [("DL", 5.0), ("LE-PNNMF", None), ("SPNNMF", 0.5)])
def test_the_papers_rules_are_literal_and_warn(method: str, penalty: float | None) -> None:
    model, n_warnings = fit_and_listen(1e-3 * maps(), method, rules="paper", refinement=None)
    assert n_warnings
    if model is None:
        # Its step is literal too, and far too long.
        assert method == "DL"
        return
    literal = penalty or pytest.approx(1 / np.linalg.norm(model.refined_.stats.L))
    assert model.solution_.penalty == literal
    assert model.explained_ < 0


@pytest.mark.parametrize("changes", [{"penalty": 1e5}, {"lift": False, "refinement": None}])
def test_a_fit_that_explains_nothing_is_warned_of(changes: dict[str, Any]) -> None:
    # The same roughness for all: nothing that faces could hold.
    rough = maps() + np.random.default_rng(0).gamma(2, 3, SITES.n)
    model, n_warnings = fit_and_listen(rough, "CD-SPNNMF", **changes)
    assert model.explained_ < 0 and n_warnings


@pytest.mark.parametrize("scale", [1e-160, 1e-200, 1e200])
@pytest.mark.parametrize("center", ["auto", "zscore"])
def test_values_that_cannot_be_squared_are_refused(center: str, scale: float) -> None:
    """Without a warning of NumPy before."""
    with refused("X"):
        fit(scale * maps(), "parts", center=center)
