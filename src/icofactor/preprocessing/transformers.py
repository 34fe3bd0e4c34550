"""The steps that fit scikit-learn's pipelines: those that treat every row by itself."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import validate_data

from icofactor.preprocessing.outliers import LIMIT, limit_outliers
from icofactor.preprocessing.temporal import bandpass, refuse_broken


class OutlierLimiter(TransformerMixin, BaseEstimator):
    """`limit_outliers` in a pipeline: X is subjects × sites. Nothing is learnt; new subjects get their own bounds.

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
        """Check X; there is nothing to learn."""
        validate_data(self, X, dtype=[np.float64, np.float32], ensure_all_finite=self.mask is None)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """X with every subject's outliers limited."""
        values = validate_data(
            self, X, dtype=[np.float64, np.float32], ensure_all_finite=self.mask is None, reset=False
        )
        return limit_outliers(values, self.n_deviations, mask=self.mask)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = self.mask is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class BandPass(TransformerMixin, BaseEstimator):
    """`bandpass` in a pipeline: X is series × volumes.

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
        """Check X; there is nothing to learn. A row of NaN is medial wall, a NaN among numbers is refused."""
        values = validate_data(self, X, dtype=[np.float64, np.float32], ensure_all_finite=False)
        finite = np.isfinite(values)
        refuse_broken(values, "series", ~finite.all(axis=1) & finite.any(axis=1))
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """X with only the frequencies of the band."""
        values = validate_data(self, X, dtype=[np.float64, np.float32], ensure_all_finite=False, reset=False)
        return bandpass(values, self.tr, self.low, self.high, self.method, self.order)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
