"""Everything a hostile user may pass: a ValueError that names the argument, and soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import icofactor as ico
from icofactor import CorticalFactorization, Refinement
from icofactor.errors import ArgumentError

SOON = 2.0


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return ico.simulate_cohort(12, 3, mesh="fsaverage3", random_state=0).X.astype(np.float64)


@pytest.fixture(scope="module")
def fitted(X: np.ndarray) -> CorticalFactorization:
    return CorticalFactorization(3, method="CD-PNNMF", n_starts=2, tol=1e-3).fit(X)


@contextmanager
def refused(says: str) -> Iterator[None]:
    """A ValueError with these words, raised before any long work."""
    before = time.perf_counter()
    with pytest.raises(ValueError, match=says):
        yield
    assert time.perf_counter() - before < SOON


def fit(X: Any, **parameters: Any) -> CorticalFactorization:
    """A fit that would take minutes if the bad input were found only after it."""
    slow = {"n_components": 3, "n_starts": 1000, "n_iter": 100_000, "tol": 0.0}
    return CorticalFactorization(**{"method": "CD-PNNMF", **slow, **parameters}).fit(X)


PARAMETERS: list[tuple[str, Any, str]] = [
    *(
        ("n_components", v, "n_components must be a whole number ≥ 1; found")
        for v in (0, -2, 3.0, "3", None, True)
    ),
    ("n_components", 13, "n_components=13 is more than the 12 subjects; use at most 12"),
    *(("method", v, "method must be") for v in ("NMF", "le-pnnmf", None, ["DL"])),
    ("method", "LE-DL", "method='LE-DL' does not exist: .* use 'DL' or 'E-DL'"),
    *(("rules", v, "rules must be one of 'paper', 'default'; found") for v in ("papers", None)),
    *(
        ("penalty", v, "penalty must be a number ≥ 0 or 'paper'; found")
        for v in ("big", -1, np.nan, np.inf, None, [1.0], 1j)
    ),
    *(("engine", v, "engine must be .*; found") for v in ("gpu", None, 1)),
    *(("columns", v, "columns must be one of 'partition', .*; found") for v in ("bumps", None, 3)),
    *(
        ("sigma", v, "sigma must be a positive number or None; found")
        for v in (-1, 0, "wide", np.nan)
    ),
    *(("level", v, "level must be a whole number ≥ 0; found") for v in (-1, 1.0, "2", None)),
    *(("n_starts", v, "n_starts must be a whole number ≥ 1; found") for v in (0, -1, 2.5)),
    *(
        ("center", v, "center must be 'auto', 'none', 'mean' or 'zscore'; found")
        for v in ("median", None, 1)
    ),
    (
        "center",
        "mean",
        "makes values negative, which method='CD-PNNMF' cannot factorize; use center='auto'",
    ),
    *(
        ("n_iter", v, "n_iter must be a whole number ≥ 0; found")
        for v in (-1, 10.0, "10", None, True)
    ),
    *(
        ("tol", v, "tol must be a number ≥ 0; found")
        for v in (-1e-3, np.nan, np.inf, "small", None, [1e-3])
    ),
    *(("polish", v, "polish must be a whole number ≥ 0; found") for v in (-1, 0.5)),
    *(
        ("refinement", v, "refinement must be a Refinement, 'auto' or None; found")
        for v in (10, {"steps": 1}, "paper", True)
    ),
    ("refinement", Refinement(steps=-1), "refinement.steps must be a whole number ≥ 0; found -1"),
    ("refinement", Refinement(faces=0), "refinement.faces must be a whole number ≥ 1; found 0"),
    ("refinement", Refinement(indicator="worst"), "refinement.indicator must be one of"),
    *(
        ("random_state", v, "random_state must be a whole number ≥ 0, None, .*; found")
        for v in ("seed", 1.5, -1, [1])
    ),
    *(
        ("hemi", v, "hemi must be 'left', 'right', 'both' or None; found")
        for v in ("lh", "Left", 0)
    ),
]


@pytest.mark.parametrize(
    ("name", "value", "says"), PARAMETERS, ids=[f"{n}={v!r}" for n, v, _ in PARAMETERS]
)
def test_parameters(name: str, value: Any, says: str, X: np.ndarray) -> None:
    with refused(says):
        fit(X, **{name: value})


def test_a_projective_method_has_no_penalty(X: np.ndarray) -> None:
    with refused("method='PPNMF' has no penalty; leave penalty='paper'; found 1.0"):
        fit(X, method="LE-PPNMF", penalty=1.0)


def _with(
    value: float, rows: Any = 3, columns: Any = slice(None)
) -> Callable[[np.ndarray], np.ndarray]:
    def change(X: np.ndarray) -> np.ndarray:
        X = X.copy()
        X[rows, columns] = value
        return X

    return change


NOT_FINITE = r"X contains NaN or infinite values in subject 3 \(row numbers of X\); give a mask"
ARRAYS: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "NaN": (_with(np.nan, 3, 100), NOT_FINITE),
    "inf": (_with(np.inf, 3, 100), NOT_FINITE),
    "-inf": (_with(-np.inf, 3, 100), NOT_FINITE),
    "NaN in many": (_with(np.nan, slice(0, 9), 1), "in subjects 0, 1, 2, 3, 4 and 4 more"),
    "negative": (
        _with(-0.1, 3, 100),
        "X contains negative values in subject 3 .* use 'DL', 'E-DL' or 'parts'",
    ),
    "constant subject": (_with(2.5), "X is constant over all sites in subject 3 .*leave them out"),
    "zero subject": (_with(0.0), "X is zero over all sites in subject 3 .*leave them out"),
    "all zero": (lambda X: 0 * X, "X is zero over all sites in subjects 0, 1, 2, 3, 4 and 7 more"),
    "all subjects alike": (
        lambda X: np.repeat(1.1 * X[:1], 5, axis=0),
        "X is the same in all subjects",
    ),
    "no subject": (lambda X: X[:0], "X has 0 subjects; fit needs at least 2"),
    "one subject": (
        lambda X: X[:1],
        r"X has 1 subject; fit needs at least 2 \(transform takes one\)",
    ),
    "a column too few": (
        lambda X: X[:, 1:],
        "X has 641 columns, which is not the size of a known mesh",
    ),
    "no column": (lambda X: X[:, :0], "X has 0 columns"),
    "transposed": (
        lambda X: X.T,
        r"X must be subjects × sites; this looks like sites × subjects, so pass X.T; found shape \(642, 12",
    ),
    "strings": (lambda X: X.astype(str), "X must contain real numbers; found dtype <U"),
    "objects": (lambda X: X.astype(object), "X must contain real numbers; found dtype object"),
    "complex": (lambda X: X + 0j, "X must contain real numbers; found dtype complex128"),
    "booleans": (lambda X: X > 2, "X must contain real numbers; found dtype bool"),
    "dates": (lambda X: X.astype("M8[s]"), "X must contain real numbers; found dtype datetime64"),
    "records": (
        lambda X: np.zeros((4, 642), dtype=[("a", float)]),
        "X must contain real numbers; found dtype",
    ),
    "1-D": (
        lambda X: X[0],
        r"subjects × sites; found shape \(642,\)",
    ),
    "3-D": (
        lambda X: X[None],
        r"found shape \(1, 12, 642\)",
    ),
    "a number": (lambda X: 3.0, r"found shape \(\)"),
    "nothing": (lambda X: None, "X must contain real numbers; found dtype object"),
    "a file's name": (lambda X: "X.npy", "X must contain real numbers; found dtype <U"),
    "a dictionary": (lambda X: {"X": X}, "X must contain real numbers; found dtype object"),
    "ragged lists": (
        lambda X: [[1.0, 2.0], [3.0]],
        "cannot be converted",
    ),
    "sparse matrix": (
        sp.csr_matrix,
        r"must be a dense array; found a sparse matrix, use X.toarray\(\)",
    ),
    "sparse array": (sp.coo_array, "must be a dense array"),
    "masked array": (
        lambda X: np.ma.masked_greater(X, 3),
        "is a masked array, whose mask would be lost",
    ),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays_in_fit(kind: str, X: np.ndarray) -> None:
    make, says = ARRAYS[kind]
    with refused(says):
        fit(make(X))


FINE_IN_TRANSFORM = {
    "constant subject",
    "zero subject",
    "all zero",
    "all subjects alike",
    "one subject",
}
SAYS_IN_TRANSFORM = {
    "a column too few": r"mesh is Sites\(642 vertices of fsaverage3\); X has 641 columns instead of 642",
    "no column": "X has 0 columns instead of 642",
    "no subject": r"X has no subjects \(0 rows\)",
}


@pytest.mark.parametrize("kind", [kind for kind in ARRAYS if kind not in FINE_IN_TRANSFORM])
@pytest.mark.parametrize("call", ["transform", "score"])
def test_arrays_after_the_fit(
    kind: str, call: str, X: np.ndarray, fitted: CorticalFactorization
) -> None:
    make, says = ARRAYS[kind]
    with refused(SAYS_IN_TRANSFORM.get(kind, says)):
        getattr(fitted, call)(make(X))


@pytest.mark.parametrize("kind", sorted(FINE_IN_TRANSFORM))
def test_transform_needs_no_variance(
    kind: str, X: np.ndarray, fitted: CorticalFactorization
) -> None:
    given = ARRAYS[kind][0](X)
    found = fitted.transform(given)
    assert found.shape == (len(given), 3)
    assert np.isfinite(found).all()


def test_dictionary_learning_takes_negative_values(X: np.ndarray) -> None:
    shifted = X - 2
    assert (shifted < 0).any()
    model = CorticalFactorization(3, method="E-DL", n_starts=2, tol=1e-3).fit(shifted)
    assert model.explained_ > 0.3
    assert model.transform(shifted[:1]).shape == (1, 3)


def test_dictionary_learning_takes_centred_data(X: np.ndarray) -> None:
    assert (
        CorticalFactorization(3, method="E-DL", n_starts=2, tol=1e-3)
        .fit(X - X.mean(axis=0))
        .explained_
        > 0.3
    )


def test_subjects_at_fault_are_found_in_any_block(
    monkeypatch: pytest.MonkeyPatch, X: np.ndarray
) -> None:
    """The checks ride on the blocks of the first pass; the last block counts like the first."""
    monkeypatch.setattr("icofactor.maps.blocks.BLOCK_BYTES", 8 * 12 * 10)
    for column in (0, 99, 100, 641):
        with refused(NOT_FINITE):
            fit(_with(np.nan, 3, column)(X))
    with refused("X is constant over all sites in subject 3"):
        fit(_with(2.5)(X))


def test_a_large_mesh_is_refused_as_soon() -> None:
    with refused("mesh fsaverage7 has 163842 vertices .* X has 163841 columns"):
        fit(np.ones((3, 163841)), mesh="fsaverage7")


@pytest.mark.parametrize("call", ["transform", "inverse_transform", "score"])
def test_before_the_fit(call: str, X: np.ndarray) -> None:
    with pytest.raises(NotFittedError):
        getattr(CorticalFactorization(3), call)(X)


def test_saving_before_the_fit(tmp_path: Any) -> None:
    with pytest.raises(NotFittedError):
        CorticalFactorization(3).save(tmp_path / "model.zip")
    assert not list(tmp_path.iterdir())


def test_loadings_of_another_model(fitted: CorticalFactorization) -> None:
    with refused("X must be loadings on 3 components; found 4 columns"):
        fitted.inverse_transform(np.ones((2, 4)))


def test_a_fit_that_is_refused_leaves_the_one_before(X: np.ndarray) -> None:
    model = CorticalFactorization(3, method="CD-PNNMF", n_starts=2, tol=1e-3).fit(X)
    before = model.components_.copy()
    with refused(NOT_FINITE):
        model.fit(_with(np.nan, 3, 100)(X))
    np.testing.assert_array_equal(model.components_, before)


@pytest.mark.filterwarnings("ignore:the components explain less")
def test_a_penalty_that_dwarfs_the_data_is_warned_of(X: np.ndarray) -> None:
    with pytest.warns(
        UserWarning, match="penalty .* dwarfs the data: .* use a smaller penalty, or units"
    ):
        CorticalFactorization(
            3, method="LE-SPNNMF", n_starts=1, n_iter=20, tol=0.0, rules="paper"
        ).fit(1e-3 * X)


@pytest.mark.parametrize("center", ["mean", "zscore"])
@pytest.mark.parametrize("method", ["DL", "LE-PPNMF"])
def test_the_papers_rules_take_nothing_out(method: str, center: str, X: np.ndarray) -> None:
    with pytest.raises(ArgumentError, match="rules='paper', which fits uncentered maps") as caught:
        CorticalFactorization(3, method=method, center=center, rules="paper").fit(X)
    assert caught.value.argument == "center"
    for given in ("auto", "none"):
        CorticalFactorization(3, method=method, center=given, rules="paper").check_parameters()


@pytest.mark.parametrize(
    ("method", "center", "taken"),
    [
        ("PPNMF", "auto", False),
        ("PPNMF", "mean", True),
        ("LE-PPNMF", "zscore", True),
        ("CD-PNNMF", "auto", False),
        ("DL", "none", True),
        ("parts", "none", True),
    ],
)
def test_whether_negative_values_are_taken(
    method: str, center: str, taken: bool, X: np.ndarray
) -> None:
    model = CorticalFactorization(
        2, method=method, center=center, n_starts=1, level=1, n_iter=100, tol=1e-2
    )
    assert model.takes_negative is taken is not model.__sklearn_tags__().input_tags.positive_only
    if taken:
        model.fit(X - X.mean())
    else:
        with pytest.raises(ArgumentError, match="negative"):
            model.fit(X - X.mean())
