"""Steps as scikit-learn transformers: those that treat every row by itself, and those made of
sparse weights.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from icofactor.errors import ArgumentError, Phrase
from icofactor.preprocessing.outliers import LIMIT, limit_outliers
from icofactor.preprocessing.temporal import bandpass, refuse_broken

_MAPS_AT_ONCE = 64


def sums(matrix: sparse.csr_array, axis: int) -> NDArray[np.float64]:
    """Sums over rows (axis 0) or columns (axis 1)."""
    return np.asarray(matrix.sum(axis=axis), dtype=np.float64).ravel()


def inverse(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / values, 0 where they are 0."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def scaled(
    matrix: sparse.csr_array, rows: NDArray[Any] | None = None, columns: NDArray[Any] | None = None
) -> sparse.csr_array:
    """diag(rows) · matrix · diag(columns), without the entries that this makes zero."""
    result = sparse.csr_array(matrix, copy=True)
    if rows is not None:
        result.data *= np.repeat(rows, np.diff(result.indptr))
    if columns is not None:
        result.data *= columns[result.indices]
    result.eliminate_zeros()
    result.sort_indices()
    return result


def apply_weights(weights: sparse.csr_array, maps: ArrayLike, source: str) -> NDArray[Any]:
    """weights · map for one map (n,) or several (n_maps, n); float32 stays float32.

    A NaN at a vertex that no weight touches does no harm; elsewhere it is refused.

    Parameters
    ----------
    weights : (n_target, n).
    maps : numbers, one column per vertex.
    source : what has n vertices, for the error.
    """
    values = checked_maps(maps, weights.shape[1], source)
    n_target = weights.shape[0]
    rows = np.atleast_2d(values)
    out = np.empty(
        (len(rows), n_target), dtype=values.dtype if values.dtype == np.float32 else np.float64
    )
    for first in range(0, len(rows), _MAPS_AT_ONCE):
        block = rows[first : first + _MAPS_AT_ONCE]
        columns = np.ascontiguousarray(block.T, dtype=np.float64)
        out[first : first + len(block)] = (weights @ columns).T
    if not np.isfinite(out).all():
        refuse_bad_values(weights, rows)
    return out[0] if values.ndim == 1 else out


def checked_maps(maps: Any, n: int, source: str) -> NDArray[Any]:
    """One map (n,) or several (n_maps, n) as an array of real numbers; `source` has n vertices."""
    if sparse.issparse(maps):
        raise ArgumentError("maps", Phrase("a sparse matrix: use maps.toarray()"), "a dense array")
    values = np.asarray(maps)
    if values.dtype.kind not in "fiub":
        complex_too = "Complex data not supported: " if values.dtype.kind == "c" else ""
        raise _bad(f"{complex_too}maps must contain real numbers", f"dtype {values.dtype}")
    if values.ndim not in (1, 2):
        raise _bad("maps must have shape (vertices,) or (maps, vertices)", str(values.shape))
    if values.shape[-1] == 0:
        raise _bad(
            f"maps have 0 feature(s) (shape={values.shape}) while a minimum of 1 is required: no vertex"
        )
    if values.shape[-1] != n:
        raise _bad(f"{source} has {n} vertices; maps have {values.shape[-1]} columns")
    return values


def check_maps(weights: sparse.csr_array, maps: Any, source: str) -> None:
    """Refuse what `apply_weights` would refuse, and no maps at all."""
    rows = np.atleast_2d(checked_maps(maps, weights.shape[1], source))
    if not len(rows):
        raise _bad("maps must contain at least one map", f"shape {rows.shape}")
    refuse_bad_values(weights, rows)


def refuse_bad_values(weights: sparse.csr_array, rows: NDArray[Any]) -> None:
    """Name the first value that is used and not finite, NaN or inf."""
    used = np.zeros(weights.shape[1], dtype=bool)
    used[weights.indices] = True
    for i, row in enumerate(rows):
        bad = np.flatnonzero(used & ~np.isfinite(row))
        if len(bad):
            raise _bad(
                f"maps must be finite, without NaN or inf, where they are used; map {i} has {row[bad[0]]} at vertex "
                f"{bad[0]} ({len(bad)} such vertices). Leave them out by roi"
            )


def _bad(sentence: str, found: str | None = None) -> ArgumentError:
    """Maps will not do."""
    return ArgumentError(
        "maps", None if found is None else Phrase(found), sentence[0].upper() + sentence[1:]
    )


class Stateless(TransformerMixin, BaseEstimator):
    """A transformer that learns nothing from data: it works unfitted, and float32 stays float32."""

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class WeightsTransformer(Stateless):
    """A scikit-learn transformer whose result is `weights` times each map.

    Subclasses make the weights from their parameters when they are first needed, and keep them as
    `_built`.
    """

    _source: str  # what has n_source vertices, for errors
    roi: Any

    @property
    def weights(self) -> sparse.csr_array:
        """(n_target, n_source)."""
        raise NotImplementedError

    def set_params(self, **params: Any) -> Any:
        """As scikit-learn's; the weights are made anew when next needed."""
        self.__dict__.pop("_built", None)
        return super().set_params(**params)

    def fit(self, X: Any = None, y: Any = None) -> Any:
        """Make the weights if they are not there yet; nothing is learnt from the data, they are
        only checked.
        """
        self.n_features_in_ = self.weights.shape[1]
        if X is not None:
            check_maps(self.weights, X, self._source)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Maps on the target: (n_target,) from (n_source,), (n_maps, n_target) from (n_maps,
        n_source).

        float32 stays float32; sums are made in float64. NaN is allowed outside the roi only.
        """
        return apply_weights(self.weights, X, self._source)

    __call__ = transform

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = (
            self.roi is not None or getattr(self, "precomputed", None) is not None
        )
        return tags


class OutlierLimiter(Stateless):
    """`limit_outliers` as a scikit-learn transformer: X is subjects × sites. Each subject has its
    own limits.

    Examples
    --------
    >>> import numpy as np
    >>> from icofactor.preprocessing import OutlierLimiter
    >>> maps = np.array([[1.0, 2.0, 3.0, 4.0, 100.0]])
    >>> OutlierLimiter(n_deviations=3).fit_transform(maps)
    array([[1., 2., 3., 4., 6.]])
    """

    def __init__(self, n_deviations: float = LIMIT, mask: ArrayLike | None = None) -> None:
        self.n_deviations = n_deviations
        self.mask = mask

    def fit(self, X: ArrayLike, y: Any = None) -> OutlierLimiter:
        """Check X; nothing is learnt."""
        validate_data(self, X, dtype=[np.float64, np.float32], ensure_all_finite=self.mask is None)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Limit the outliers of every subject."""
        values = validate_data(
            self,
            X,
            dtype=[np.float64, np.float32],
            ensure_all_finite=self.mask is None,
            reset=False,
        )
        return limit_outliers(values, self.n_deviations, mask=self.mask)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.mask is not None
        return tags


class BandPass(Stateless):
    """`bandpass` as a scikit-learn transformer: X is series × volumes.

    Examples
    --------
    >>> import numpy as np
    >>> from icofactor.preprocessing import BandPass
    >>> series = np.random.default_rng(0).standard_normal((5, 100))  # vertices × volumes
    >>> BandPass(tr=0.72).fit_transform(series).shape
    (5, 100)
    """

    def __init__(
        self,
        tr: float | None = None,
        low: float = 0.05,
        high: float = 0.1,
        method: Literal["butterworth", "fft"] = "butterworth",
        order: int = 2,
    ) -> None:
        self.tr = tr
        self.low = low
        self.high = high
        self.method = method
        self.order = order

    def fit(self, X: ArrayLike, y: Any = None) -> BandPass:
        """Check X; nothing is learnt. A row of NaN counts as medial wall; a NaN among numbers is an
        error.
        """
        values = validate_data(self, X, dtype=[np.float64, np.float32], ensure_all_finite=False)
        finite = np.isfinite(values)
        refuse_broken(values, ~finite.all(axis=1) & finite.any(axis=1))
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Filter X: keep only the frequencies of the band."""
        values = validate_data(
            self, X, dtype=[np.float64, np.float32], ensure_all_finite=False, reset=False
        )
        return bandpass(values, self.tr, self.low, self.high, self.method, self.order)
