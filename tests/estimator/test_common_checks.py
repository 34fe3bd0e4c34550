"""scikit-learn's common checks on every estimator; those that cannot hold are named with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import _num_features

from icofactor.estimator import inputs
from icofactor.estimator.estimator import CorticalFactorization
from icofactor.preprocessing import BandPass, OutlierLimiter, Resampler, SurfaceSmoother
from icofactor.preprocessing.resampling import Weights
from icofactor.preprocessing.transformers import SparseWeights
from icofactor.sphere.sites import Sites

OBJECTS = "arrays of Python objects are refused by their type, not converted"
NAMED = "refused, but the message names the mesh; scikit-learn looks for its own wording"
EXPECTED = {
    "CorticalFactorization": {
        "check_dtype_object": OBJECTS,
        "check_estimators_dtypes": "a subject whose map is zero everywhere, as whole numbers give here, is refused",
        "check_estimators_empty_data_messages": NAMED,
        "check_n_features_in_after_fitting": NAMED,
        "check_positive_only_tag_during_fit": "refused, but the message names the subjects instead",
    },
    "OutlierLimiter": {
        "check_estimators_dtypes": "a map with more than half of its values equal, as whole numbers give, is refused",
    },
    "BandPass": {"check_fit_idempotent": "two volumes are too few for any band"},
    "AnySmoother": {
        "check_dtype_object": OBJECTS,
        "check_n_features_in_after_fitting": NAMED,
        "check_fit2d_predict1d": "one map of shape (vertices,) is accepted on purpose",
    },
}
EXPECTED["AnyResampler"] = EXPECTED["AnySmoother"]
SIGNED = ("check_positive_only_tag_during_fit",)


def expected(estimator: Any) -> dict[str, str]:
    reasons = EXPECTED[type(estimator).__name__]
    if getattr(estimator, "method", None) == "E-DL":  # takes negative values
        reasons = {name: reason for name, reason in reasons.items() if name not in SIGNED}
    return reasons


# The checks draw data of 1 to 10 columns; columns here are sites of a mesh. So each estimator gets a mesh for every
# number of columns; nothing else of it is replaced.


def points(n: int) -> np.ndarray:
    """n points spread over the sphere (a Fibonacci spiral)."""
    i = np.arange(n) + 0.5
    z, angle = 1 - 2 * i / n, np.pi * (1 + 5**0.5) * i
    radius = np.sqrt(1 - z**2)
    return np.c_[radius * np.cos(angle), radius * np.sin(angle), z]


@pytest.fixture(autouse=True)
def a_mesh_for_every_number_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    original = inputs.sites_for

    def sites_for(n: int, mesh: Any = None, hemi: str | None = None) -> tuple[Sites, str | None]:
        return original(n, Sites.from_sphere(points(n)) if mesh is None and n else mesh, hemi)

    monkeypatch.setattr(inputs, "sites_for", sites_for)


def averages(X: Any) -> sparse.csr_array | None:
    """Weights of as many vertices as X has columns: the mean of each and the next; None where X has no columns."""
    try:
        n = _num_features(X)
    except (TypeError, ValueError):
        return None
    return sparse.csr_array((np.eye(n) + np.roll(np.eye(n), 1, axis=1)) / 2) if n else None


class AnySmoother(SurfaceSmoother):
    def fit(self, X: Any = None, y: Any = None) -> AnySmoother:
        if (weights := averages(X)) is not None:
            self._built = SparseWeights([weights])
        super().fit(X, y)
        return self


class AnyResampler(Resampler):
    def fit(self, X: Any = None, y: Any = None) -> AnyResampler:
        if (weights := averages(X)) is not None:
            self._built = Weights(weights, np.ones(weights.shape[0]), "barycentric")
        super().fit(X, y)
        return self


POLES = np.array(
    [[0, 0, 1], [0, 0, -1], *([np.cos(a), np.sin(a), 0] for a in 2 * np.pi / 3 * np.arange(3))]
)
FACES = np.array(
    [[pole, 2 + i, 2 + (i + 1) % 3][:: 1 - 2 * pole] for i in range(3) for pole in (0, 1)]
)
"""Five vertices, for the check that transforms five columns without a fit."""


def factorization(method: str) -> CorticalFactorization:
    """The paper's penalty of DL is for maps, not for data of order one: it would warn, and a warning is an error."""
    penalty = 1e-3 if method == "E-DL" else "paper"
    return CorticalFactorization(
        1, method=method, n_starts=1, n_iter=20, level=0, refinement=None, penalty=penalty
    )


ESTIMATORS = [
    *map(factorization, ("CD-PNNMF", "E-DL")),
    OutlierLimiter(),
    BandPass(tr=10, low=1 / 30, high=0.049),  # a band that three volumes carry
    AnySmoother((100 * POLES, FACES), fwhm=50),
    AnyResampler((POLES, FACES), (POLES, FACES), "barycentric"),
]


def estimators_and_checks() -> list[Any]:
    """Return the cases of `parametrize_with_checks` as a list; before scikit-learn 1.8 it passes pytest a generator,
    which pytest 9 warns about."""
    cases: list[Any] = []
    for estimator in ESTIMATORS:
        cases += estimator_checks_generator(
            estimator, expected_failed_checks=expected(estimator), mark="xfail"
        )
    return cases


def name_of(value: Any) -> str:
    """The class of an estimator, or the function of a check."""
    return str(getattr(value, "func", type(value)).__name__)


@pytest.mark.parametrize(("estimator", "check"), estimators_and_checks(), ids=name_of)
@pytest.mark.filterwarnings("ignore:stopped after n_iter:sklearn.exceptions.ConvergenceWarning")
def test_common_checks(estimator: Any, check: Any) -> None:
    check(estimator)
