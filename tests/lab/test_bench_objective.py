"""The error, the floor and the clock that solvers are compared by; the operations that rates are computed from."""

from __future__ import annotations

import numpy as np
import pytest

from icofactor.factorization.methods import METHODS, PAPER_METHODS, method_named
from icofactor_lab.bench import objective
from icofactor_lab.bench.datasets import Dataset, face_sites, real_thickness, simulate_maps, simulated
from icofactor_lab.bench.objective import between_subject_variance, full_error, subject_gram, svd_floor, time_to
from icofactor_lab.bench.operations import operations_of_update

pytestmark = pytest.mark.slow


@pytest.fixture
def Xs() -> np.ndarray:
    return np.random.default_rng(0).random((7, 50), dtype=np.float32)


@pytest.mark.parametrize("block", [7, 50, 8192])
def test_error_is_the_squared_residual(Xs: np.ndarray, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objective, "_BLOCK", block)
    rng = np.random.default_rng(1)
    W, C = rng.random((50, 3)), rng.random((3, 7))
    expected = sum((float(Xs[s, i]) - W[i] @ C[:, s]) ** 2 for i in range(50) for s in range(7))
    np.testing.assert_allclose(full_error(Xs, W, C), expected, rtol=1e-12)
    np.testing.assert_allclose(full_error(Xs, W.astype(np.float32), C), expected, rtol=1e-5)


def test_error_refuses_shapes_that_do_not_fit(Xs: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"W \(50, 3\) and C \(7, 3\) do not factorize sites × subjects \(50, 7\)"):
        full_error(Xs, np.ones((50, 3)), np.ones((7, 3)))


def test_nothing_undercuts_the_svd(Xs: np.ndarray) -> None:
    U, s, Vt = np.linalg.svd(Xs.T.astype(np.float64), full_matrices=False)
    floor = svd_floor(subject_gram(Xs), 3)
    np.testing.assert_allclose(floor, (s[3:] ** 2).sum(), rtol=1e-10)
    np.testing.assert_allclose(floor, full_error(Xs, U[:, :3] * s[:3], Vt[:3]), rtol=1e-10)


def test_variance_is_about_the_sites_means(Xs: np.ndarray) -> None:
    X = Xs.astype(np.float64)
    np.testing.assert_allclose(
        between_subject_variance(subject_gram(Xs)), ((X - X.mean(axis=0)) ** 2).sum(), rtol=1e-10
    )


def test_time_to_takes_the_first_point_that_is_low_enough() -> None:
    path = [(1.0, 10.0), (2.0, 5.0), (3.0, 4.0)]
    assert time_to(path, 5.0) == 2.0
    assert time_to(path, 20.0) == 1.0
    assert time_to(path, 3.9) == np.inf
    assert time_to([], 1.0) == np.inf


# ---------------------------------------------------------------- datasets


def test_simulated_data_are_what_solvers_want() -> None:
    data = simulated(3, 9)
    assert data.Xs.shape == (9, 1280) and data.sites.n == 1280
    assert data.Xs.dtype == np.float32 and data.Xs.flags.c_contiguous
    assert data.Xs.min() > 0
    assert data.size == "1280 × 9"
    np.testing.assert_array_equal(simulated(3, 9).Xs, data.Xs)
    assert abs(simulated(3, 9, random_state=1).Xs - data.Xs).max() > 0.1


def test_simulated_data_vary_between_subjects_about_as_real_thickness_does() -> None:
    data = simulated(4, 60)
    assert 0.004 < data.variance / data.sq_norm < 0.02
    assert 0.05 < data.floor / data.variance < 0.6


def test_another_level_samples_the_same_functions() -> None:
    coarse, _ = face_sites(3)
    fine, _ = face_sites(5)
    a, b = (simulate_maps(s.coordinates, 5, 3) for s in (coarse, fine))
    means = b.reshape(5, 1280, 16).mean(axis=2)  # faces are in quadtree order
    residual = (a - means) - (a - means).mean()
    assert residual.std() < 0.2 * a.std(axis=0).mean()


def test_real_data_need_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ICOFACTOR_TEST_DATA", raising=False)
    assert real_thickness() is None


def test_real_data(data_folder: object) -> None:
    data = real_thickness(20)
    assert isinstance(data, Dataset)
    assert data.Xs.shape == (20, 20480) and data.Xs.flags.c_contiguous
    assert 0.005 < data.variance / data.sq_norm < 0.02


# ---------------------------------------------------------------- operations


def test_operations_of_the_papers_problem() -> None:
    terms = operations_of_update("PNNMF", "paper", 20, 10, 100)
    assert terms["C L"] == terms["BᵀLᵀ"] == 2 * 100 * 20 * 10
    assert terms["CCᵀ"] == 100 * 10 * 11  # one triangle: 55 products of 2 × 100
    assert terms["K B"] == 2 * 20 * 20 * 10
    assert sum(terms.values()) == 130_600


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("rules", ["paper", "default"])
def test_every_method_has_a_count(method: str, rules: str) -> None:
    dense = operations_of_update(method, rules, 20, 10, 100)
    diagonal = operations_of_update(method, rules, 20, 10, 100, diagonal=True)
    assert all(n > 0 and isinstance(n, int) for n in dense.values())
    assert sum(diagonal.values()) < sum(dense.values())
    assert ("G C" in dense) != method_named(method).scheme.projective
    assert ("eigenvalue bounds" in dense) == (method.endswith("DL") and rules == "default")


@pytest.mark.parametrize("method", PAPER_METHODS)
def test_extrapolation_is_not_counted_as_work(method: str) -> None:
    plain = method_named(method).scheme.name
    assert operations_of_update(method, "paper", 7, 3, 11) == operations_of_update(plain, "paper", 7, 3, 11)


def test_projective_updates_have_terms_of_their_own() -> None:
    terms = operations_of_update("PPNMF", "paper", 20, 10, 100)
    assert terms["(BᵀKB)(MB)ᵀ"] == 2 * 20 * 10 * 10
    assert "quotient" not in terms
