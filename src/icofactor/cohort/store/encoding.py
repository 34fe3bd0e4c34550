"""Types of the values of a store: float32, or float16, which takes half the space and keeps three
digits.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import ArgumentError, Phrase

DTYPES = ("float32", "float16")
# Warn when rounding changes values by more than this share of the standard deviation between
# subjects.
COARSE = 0.05


class Unstorable(ValueError):
    """Values that a type cannot hold."""


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the type of stored values that a name means."""
    if str(dtype) not in DTYPES:
        raise ArgumentError("dtype", Phrase(repr(dtype)), "'float32' or 'float16'")
    return np.dtype(str(dtype))


def to_float16(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """Round values to float16; raise `Unstorable` where they are beyond its range."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(np.float16)
    overflowed = np.isinf(rounded) & np.isfinite(values)
    if overflowed.any():
        largest = float(np.abs(values[overflowed]).max())
        raise Unstorable(
            f"float16 can represent values up to 65504; these go up to {largest:.6g}: use float32"
        )
    return rounded


class RoundingCheck:
    """Compares what rounding to float16 changed with the spread between subjects."""

    def __init__(self) -> None:
        self._squared_error = 0.0
        self._squared_deviation = 0.0

    def add(self, values: NDArray[np.float32], rounded: NDArray[np.float16]) -> None:
        """Take in maps, sites × subjects; sites with missing values do not count."""
        complete = np.isfinite(values).all(axis=1)
        exact = values[complete].astype(np.float64)
        self._squared_error += float(np.square(rounded[complete] - exact).sum())
        self._squared_deviation += float(np.square(exact - exact.mean(axis=1, keepdims=True)).sum())

    def warn_if_coarse(self) -> None:
        """Warn if float16 is too coarse for the maps."""
        if self._squared_deviation == 0:
            return  # a single subject has no spread
        share = float(np.sqrt(self._squared_error / self._squared_deviation))
        if share > COARSE:
            warnings.warn(
                f"float16 is coarse for these maps: rounding is {100 * share:.2g} % of the standard deviation "
                "between subjects; use float32",
                UserWarning,
                stacklevel=2,
            )
