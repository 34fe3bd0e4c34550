"""Steps as scikit-learn transformers: by row, and by sparse weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from icofactor.errors import ArgumentError
from icofactor.preprocessing.outliers import LIMIT, limit_outliers
from icofactor.preprocessing.temporal import bandpass, refuse_broken

# Maps that are multiplied by the weights at once.
MAPS_AT_ONCE = 64


def sums(matrix: sparse.csr_array, axis: int) -> NDArray[np.float64]:
    """Return the sums of columns (axis 0) or rows (axis 1)."""
    return np.asarray(matrix.sum(axis=axis), dtype=np.float64).ravel()


def inverse(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 / values, and 0 where they are 0."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def scaled(
    matrix: sparse.csr_array, rows: NDArray[Any] | None = None, columns: NDArray[Any] | None = None
) -> sparse.csr_array:
    """Return diag(rows) · matrix · diag(columns), without the entries that this makes zero."""
    product = sparse.csr_array(matrix, copy=True)
    if rows is not None:
        product.data *= np.repeat(rows, np.diff(product.indptr))
    if columns is not None:
        product.data *= columns[product.indices]
    product.eliminate_zeros()
    product.sort_indices()
    return product


@dataclass(frozen=True, eq=False)
class SparseWeights:
    """The weights diag(targets) · matrix · diag(sources); a missing diagonal is all ones.

    Attributes
    ----------
    blocks : rows of the matrix (n_target, n_source), one block after the other, each sparse and of
        float32 or float64
    targets, sources : (n_target,) and (n_source,), or None
    """

    blocks: Sequence[sparse.csr_array]
    targets: NDArray[np.float64] | None = None
    sources: NDArray[np.float64] | None = None

    @property
    def n_target(self) -> int:
        """Number of values that a map has afterwards."""
        return sum(block.shape[0] for block in self.blocks)

    @property
    def n_source(self) -> int:
        """Number of values that a map has."""
        return int(self.blocks[0].shape[1])

    @property
    def is_used(self) -> NDArray[np.bool_]:
        """Whether any target takes the value of each source."""
        is_used = np.zeros(self.n_source, dtype=bool)
        for block in self.blocks:
            is_used[block.indices] = True
        return is_used if self.sources is None else is_used & (self.sources > 0)

    @property
    def product(self) -> sparse.csr_array:
        """All weights as one matrix, in double precision."""
        matrix = sparse.csr_array(sparse.vstack(self.blocks)).astype(np.float64)
        return scaled(matrix, self.targets, self.sources)

    def __matmul__(self, columns: NDArray[np.float64]) -> NDArray[np.float64]:
        """Multiply (n_source, n) values in double precision; NaN at unused sources is harmless."""
        if self.sources is not None:
            is_used = self.sources[:, None] > 0
            columns = np.where(is_used, columns, 0) * self.sources[:, None]
        rows = np.concatenate([_in_double(block) @ columns for block in self.blocks])
        return rows if self.targets is None else rows * self.targets[:, None]


def _in_double(block: sparse.csr_array) -> sparse.csr_array:
    """Return a matrix as float64; SciPy's `astype` would sort its columns, which takes long."""
    values = block.data.astype(np.float64, copy=False)
    return sparse.csr_array((values, block.indices, block.indptr), block.shape)


def apply_weights(weights: SparseWeights, maps: ArrayLike, source: str) -> NDArray[Any]:
    """Return weights · map for one map (n,) or several (n_maps, n); float32 stays float32.

    Parameters
    ----------
    weights : of n sources. NaN at a source that is not used does no harm; elsewhere it is an error.
    maps : numbers, one column per vertex.
    source : what has n vertices, for the error.
    """
    values = checked_maps(maps, weights.n_source, source)
    rows = np.atleast_2d(values)
    dtype = np.float32 if values.dtype == np.float32 else np.float64
    out = np.empty((len(rows), weights.n_target), dtype=dtype)
    for first in range(0, len(rows), MAPS_AT_ONCE):
        block = rows[first : first + MAPS_AT_ONCE]
        columns = np.ascontiguousarray(block.T, dtype=np.float64)
        out[first : first + len(block)] = (weights @ columns).T
    if not np.isfinite(out).all():
        refuse_bad_values(weights, rows)
    return out[0] if values.ndim == 1 else out


def checked_maps(maps: Any, n: int, source: str) -> NDArray[Any]:
    """Return one map (n,) or several (n_maps, n) as an array; `source` has n vertices."""
    values = np.asarray(maps)
    problem = None
    if sparse.issparse(maps):
        problem = "must be a dense array, not a sparse matrix: use maps.toarray()"
    elif values.dtype.kind == "c":
        # scikit-learn's checks look for these words, and for those about features.
        problem = "Complex data not supported"
    elif values.dtype.kind not in "fiub":
        problem = f"must contain real numbers; found dtype {values.dtype}"
    elif values.ndim not in (1, 2):
        problem = f"must have shape (vertices,) or (maps, vertices); found {values.shape}"
    elif values.shape[-1] == 0:
        problem = f"0 feature(s) (shape={values.shape}) while a minimum of 1 is required: no vertex"
    elif values.shape[-1] != n:
        problem = f"have {values.shape[-1]} columns; {source} has {n} vertices"
    if problem is not None:
        raise ArgumentError("maps", problem)
    return values


def refuse_bad_values(weights: SparseWeights, rows: NDArray[Any]) -> None:
    """Raise an error that names the first value that is used and not finite, NaN or inf."""
    is_used = weights.is_used
    for number, row in enumerate(rows):
        bad = np.flatnonzero(is_used & ~np.isfinite(row))
        if len(bad):
            raise ArgumentError(
                "maps",
                f"must be finite, without NaN or inf; map {number} has {row[bad[0]]} at vertex "
                f"{bad[0]} ({len(bad)} such vertices): leave them out by roi",
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
    """A scikit-learn transformer whose result is sparse weights times each map.

    Subclasses make the weights from their parameters when they are first needed, and keep them as
    `_built`.
    """

    # What has n_source vertices, for errors.
    _source: str
    roi: Any

    def _weights(self) -> SparseWeights:
        raise NotImplementedError

    def set_params(self, **params: Any) -> Any:
        """Set parameters as scikit-learn does; the weights are made anew when next needed."""
        self.__dict__.pop("_built", None)
        return super().set_params(**params)

    def fit(self, X: Any = None, y: Any = None) -> Any:
        """Make the weights if there are none yet; data are only checked."""
        weights = self._weights()
        self.n_features_in_ = weights.n_source
        if X is not None:
            rows = np.atleast_2d(checked_maps(X, weights.n_source, self._source))
            if not len(rows):
                raise ArgumentError("maps", f"must contain a map; found shape {rows.shape}")
            refuse_bad_values(weights, rows)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return maps on the target: (n_target,) from (n_source,), (n_maps, n_target) from several.

        float32 stays float32; sums are made in float64. NaN is allowed outside the roi only.
        """
        return apply_weights(self._weights(), X, self._source)

    __call__ = transform

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        is_loaded = getattr(self, "precomputed", None) is not None
        tags.input_tags.allow_nan = self.roi is not None or is_loaded
        return tags


class OutlierLimiter(Stateless):
    """`limit_outliers` as a scikit-learn transformer: X is subjects × sites.

    Each subject has limits of its own.

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
        self._checked(X, is_fit=True)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Limit the outliers of every subject."""
        return limit_outliers(self._checked(X, is_fit=False), self.n_deviations, mask=self.mask)

    def _checked(self, X: ArrayLike, is_fit: bool) -> NDArray[Any]:
        floats = [np.float64, np.float32]
        finite = self.mask is None
        return validate_data(self, X, dtype=floats, ensure_all_finite=finite, reset=is_fit)

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
        """Check X; nothing is learnt.

        A row of NaN counts as medial wall; a NaN among numbers is an error.
        """
        values = self._checked(X, is_fit=True)
        is_finite = np.isfinite(values)
        refuse_broken(values, ~is_finite.all(axis=1) & is_finite.any(axis=1))
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Filter X: keep only the frequencies of the band."""
        values = self._checked(X, is_fit=False)
        return bandpass(values, self.tr, self.low, self.high, self.method, self.order)

    def _checked(self, X: ArrayLike, is_fit: bool) -> NDArray[Any]:
        floats = [np.float64, np.float32]
        return validate_data(self, X, dtype=floats, ensure_all_finite=False, reset=is_fit)
