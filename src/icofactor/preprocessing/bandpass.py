"""Temporal band-pass of series, and putting runs together.

Two filters. "butterworth" is what users of XCP-D have: second-order sections, forwards and backwards (no phase
shift), each end padded with its own last value, as long as the series allows. "fft" sets all Fourier coefficients
outside the band to zero. They differ: the Butterworth of order 2 has wide skirts. Name the one you used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.preprocessing.series import band_bins, checked_band, checked_series, checked_tr

Filter = Literal["butterworth", "fft"]
FILTERS = ("butterworth", "fft")

# Rows filtered together: padded to three times their length and in float64 they stay a few tens of MB.
_ROWS = 512


def bandpass(
    series: ArrayLike,
    tr: float | None,
    low: float = 0.05,
    high: float = 0.1,
    method: Filter = "butterworth",
    order: int = 2,
    *,
    mask: ArrayLike | None = None,
) -> NDArray[Any]:
    """Series with only the frequencies from `low` to `high`.

    Parameters
    ----------
    series : (n_vertices, n_volumes). Constant rows (medial wall) become zero.
    tr : seconds from one volume to the next.
    low, high : the band, in Hz.
    method : "butterworth" (zero phase) or "fft".
    order : of the Butterworth filter, before it is applied a second time, backwards.
    mask : (n_vertices,) bool, True where a vertex is used; None takes every row that varies. The rest becomes zero.

    Returns
    -------
    An array like `series` (float32 stays float32; filtered in float64), each row with mean zero or nearly so.
    """
    if method not in FILTERS:
        raise ValueError(f"method must be one of {', '.join(FILTERS)}; got {method!r}")
    if not (isinstance(order, int | np.integer) and order >= 1):
        raise ValueError(f"order must be a whole number, 1 or more; got {order!r}")
    seconds = checked_tr(tr)
    values, used = checked_series(series, mask=mask)
    n_volumes = values.shape[1]
    checked_band(low, high, seconds, n_volumes)
    out = np.zeros_like(values)
    rows = np.flatnonzero(used)
    for first in range(0, len(rows), _ROWS):
        some = rows[first : first + _ROWS]
        block = values[some].astype(np.float64)
        out[some] = (
            _zero_phase(block, seconds, low, high, order)
            if method == "butterworth"
            else _fourier(block, band_bins(low, high, seconds, n_volumes))
        )
    return out


def _zero_phase(block: NDArray[np.float64], tr: float, low: float, high: float, order: int) -> NDArray[np.float64]:
    from scipy import signal

    sections = signal.butter(order, [low, high], btype="bandpass", output="sos", fs=1 / tr)
    # the longest padding there is: the filter rings for many periods of `low`, and short padding leaves it in the data
    padding = block.shape[1] - 1
    return np.asarray(signal.sosfiltfilt(sections, block, axis=1, padtype="constant", padlen=padding))


def _fourier(block: NDArray[np.float64], bins: range) -> NDArray[np.float64]:
    from scipy import fft

    spectrum = fft.rfft(block, axis=1)
    spectrum[:, : bins.start] = 0
    spectrum[:, bins.stop :] = 0
    return np.asarray(fft.irfft(spectrum, n=block.shape[1], axis=1))


def unit_series(series: ArrayLike, *, mask: ArrayLike | None = None) -> NDArray[Any]:
    """Series with zero mean and unit L2 norm; constant rows, and those outside `mask`, become zero."""
    values, used = checked_series(series, mask=mask)
    out = np.zeros_like(values)
    rows = np.flatnonzero(used)
    for first in range(0, len(rows), _ROWS):
        some = rows[first : first + _ROWS]
        block = values[some].astype(np.float64)
        block -= block.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(block, axis=1, keepdims=True)
        out[some] = np.divide(block, norms, out=np.zeros_like(block), where=norms > 0)
    return out


def concatenate_runs(runs: Sequence[ArrayLike], *, mask: ArrayLike | None = None) -> NDArray[Any]:
    """Runs of one subject, each to zero mean and unit L2 norm, one after the other in time."""
    if not len(runs):
        raise ValueError("runs must hold at least one array; it is empty")
    parts = [unit_series(run, mask=mask) for run in runs]
    heights = {len(part) for part in parts}
    if len(heights) > 1:
        raise ValueError(f"runs must have the same vertices; they have {sorted(heights)} rows")
    return np.concatenate(parts, axis=1)
