"""Everything a hostile user may pass: an error that names the argument, before any long work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import icofactor as ico
from helpers.refusals import refused
from icofactor import CorticalFactorization, Refinement

# A refusal takes no longer than this, in seconds.
SOON = 2.0


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return ico.simulate_cohort(12, 3, mesh="fsaverage3", random_state=0).X.astype(np.float64)


@pytest.fixture(scope="module")
def fitted(X: np.ndarray) -> CorticalFactorization:
    return CorticalFactorization(3, method="CD-PNNMF", n_starts=2, tol=1e-3).fit(X)


@contextmanager
def refused_soon(argument: str) -> Iterator[None]:
    start = time.perf_counter()
    with refused(argument):
        yield
    assert time.perf_counter() - start < SOON


def fit(X: Any, **parameters: Any) -> CorticalFactorization:
    """Start a fit that would take minutes if the bad input were noticed only after it."""
    slow = {"n_components": 3, "n_starts": 1000, "n_iter": 100_000, "tol": 0.0}
    return CorticalFactorization(**{"method": "CD-PNNMF", **slow, **parameters}).fit(X)


PARAMETERS: dict[str, tuple[Any, ...]] = {
    "n_components": (0, -2, 3.0, "3", None, True, 13),
    "method": ("NMF", "le-pnnmf", None, ["DL"], "LE-DL"),
    "rules": ("papers", None, "paper"),
    "penalty": ("big", -1, np.nan, np.inf, None, [1.0], 1j),
    "engine": ("gpu", None, 1),
    "columns": ("bumps", None, 3),
    "sigma": (-1, 0, "wide", np.nan),
    "level": (-1, 1.0, "2", None),
    "n_starts": (0, -1, 2.5),
    "center": ("median", None, 1, "mean"),
    "n_iter": (-1, 10.0, "10", None, True),
    "tol": (-1e-3, np.nan, np.inf, "small", None, [1e-3]),
    "polish": (-1, 0.5),
    "refinement": (10, {"steps": 1}, "paper", True),
    "random_state": ("seed", 1.5, -1, [1]),
    "hemi": ("lh", "Left", 0),
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str, X: np.ndarray) -> None:
    for value in PARAMETERS[name]:
        with refused_soon(name):
            fit(X, **{name: value})


@pytest.mark.parametrize("name", ["steps", "faces", "indicator"])
def test_attributes_of_a_refinement(name: str, X: np.ndarray) -> None:
    with refused_soon(f"refinement.{name}"):
        fit(X, refinement=Refinement(**{name: -1}))


def test_a_projective_method_has_no_penalty(X: np.ndarray) -> None:
    with refused_soon("penalty"):
        fit(X, method="LE-PPNMF", penalty=1.0)


def _with(value: float, columns: Any = slice(None)) -> Callable[[np.ndarray], np.ndarray]:
    def change(X: np.ndarray) -> np.ndarray:
        X = X.copy()
        X[3, columns] = value
        return X

    return change


ARRAYS: dict[str, Callable[[np.ndarray], Any]] = {
    "NaN": _with(np.nan, 100),
    "inf": _with(np.inf, 100),
    "-inf": _with(-np.inf, 100),
    "negative": _with(-0.1, 100),
    "constant subject": _with(2.5),
    "zero subject": _with(0.0),
    "all zero": lambda X: 0 * X,
    "all subjects alike": lambda X: np.repeat(1.1 * X[:1], 5, axis=0),
    "no subject": lambda X: X[:0],
    "one subject": lambda X: X[:1],
    "transposed": lambda X: X.T,
    "strings": lambda X: X.astype(str),
    "objects": lambda X: X.astype(object),
    "complex": lambda X: X + 0j,
    "booleans": lambda X: X > 2,
    "1-D": lambda X: X[0],
    "3-D": lambda X: X[None],
    "a number": lambda X: 3.0,
    "ragged lists": lambda X: [[1.0, 2.0], [3.0]],
    "sparse matrix": sp.csr_matrix,
    "sparse array": sp.coo_array,
    "masked array": lambda X: np.ma.masked_greater(X, 3),
}
# Loadings of new maps need no variance.
FINE_IN_TRANSFORM = (
    "constant subject",
    "zero subject",
    "all zero",
    "all subjects alike",
    "one subject",
)


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays(kind: str, X: np.ndarray, fitted: CorticalFactorization) -> None:
    array = ARRAYS[kind](X)
    with refused_soon("X"):
        fit(array)
    if kind in FINE_IN_TRANSFORM:
        loadings = fitted.transform(array)
        assert loadings.shape == (len(array), 3)
        assert np.isfinite(loadings).all()
        return
    for call in (fitted.transform, fitted.score):
        with refused_soon("X"):
            call(array)


@pytest.mark.parametrize("n_columns", [0, 641])
def test_columns_of_no_mesh(n_columns: int, X: np.ndarray, fitted: CorticalFactorization) -> None:
    for call in (fit, fitted.transform, fitted.score):
        with refused_soon("mesh"):
            call(X[:, :n_columns])


def test_before_the_fit(X: np.ndarray, tmp_path: Path) -> None:
    model = CorticalFactorization(3)
    for call in (model.transform, model.inverse_transform, model.score):
        with pytest.raises(NotFittedError):
            call(X)
    with pytest.raises(NotFittedError):
        model.save(tmp_path / "model.zip")
    assert not list(tmp_path.iterdir())


def test_loadings_of_another_model(fitted: CorticalFactorization) -> None:
    with refused("X"):
        fitted.inverse_transform(np.ones((2, 4)))


def test_a_fit_that_is_refused_leaves_the_one_before(X: np.ndarray) -> None:
    model = CorticalFactorization(3, method="CD-PNNMF", n_starts=2, tol=1e-3).fit(X)
    before = model.components_.copy()
    with refused("X"):
        model.fit(ARRAYS["NaN"](X))
    np.testing.assert_array_equal(model.components_, before)


@pytest.mark.parametrize("center", ["mean", "zscore"])
@pytest.mark.parametrize("method", ["DL", "LE-PPNMF"])
def test_the_papers_rules_take_nothing_out(method: str, center: str, X: np.ndarray) -> None:
    model = CorticalFactorization(3, method=method, center=center, rules="paper")
    with refused("center"):
        model.fit(X)
    for allowed in ("auto", "none"):
        model.set_params(center=allowed).check_parameters()


@pytest.mark.parametrize(
    ("method", "center", "takes_negative"),
    [
        ("PPNMF", "auto", False),
        ("PPNMF", "mean", True),
        ("LE-PPNMF", "zscore", True),
        ("CD-PNNMF", "auto", False),
        ("DL", "none", True),
        ("parts", "none", True),
    ],
)
def test_negative_values(method: str, center: str, takes_negative: bool, X: np.ndarray) -> None:
    settings = {"n_starts": 1, "level": 1, "n_iter": 100, "tol": 1e-2}
    model = CorticalFactorization(2, method=method, center=center, **settings)
    assert model.takes_negative is takes_negative
    assert model.__sklearn_tags__().input_tags.positive_only is not takes_negative
    if takes_negative:
        assert model.fit(X - X.mean()).transform(X[:1] - X.mean()).shape == (1, 2)
    else:
        with refused("X"):
            model.fit(X - X.mean())
