"""Steps on time series: band-pass, ALFF, joining runs, and what they demand of their input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.checks import OneOf, Whole, check_value
from icofactor.errors import ArgumentError, shown

Bools = NDArray[np.bool_]
Series = NDArray[Any]
Filter = Literal["butterworth", "fft"]
FILTERS = ("butterworth", "fft")
NORMALIZATIONS = ("none", "mean")
# No scanner takes a volume in under 10 ms or over 30 s; a number outside is in other units.
SHORTEST_TR = 0.01
LONGEST_TR = 30.0
# Frequencies of a series are multiples of 1/duration; rounding must not push one over the edge of
# the band.
EDGE = 1e-9
# Rows that are treated together: padded to three times their length and in float64 they need a few
# tens of MB.
ROWS_AT_ONCE = 512


def checked_series(series: ArrayLike, mask: ArrayLike | None = None) -> tuple[Series, Bools]:
    """Return series (n_vertices, n_volumes) as floats, and which rows carry data.

    Without `mask` a row of zeros, of one constant or of NaN only is taken for medial wall. With
    `mask` (True where a vertex is used) such a row is an error, and rows outside the mask may hold
    anything. A NaN among numbers is always an error.
    """
    values = np.asarray(series)
    is_series = values.ndim == 2 and values.shape[1] >= 3
    if not is_series or values.dtype.kind not in "fiu":
        raise _refusal(
            "must be real numbers, vertices × volumes, with at least 3 volumes; found "
            f"{values.dtype} of shape {values.shape}"
        )
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    n = len(values)
    is_finite = np.zeros(n, dtype=bool)
    has_finite = np.zeros(n, dtype=bool)
    varies = np.zeros(n, dtype=bool)
    # In blocks, because the comparisons of all values need as much memory as the series.
    for rows in _blocks(np.arange(n)):
        block = values[rows]
        finite = np.isfinite(block)
        is_finite[rows] = finite.all(axis=1)
        has_finite[rows] = finite.any(axis=1)
        varies[rows] = is_finite[rows] & (block.max(axis=1) > block.min(axis=1))
    is_used = varies if mask is None else checked_mask(mask, n)
    refuse_broken(values, ~is_finite & (has_finite if mask is None else is_used))
    still = np.flatnonzero(is_used & ~varies)
    if len(still) or not is_used.any():
        vertex = still[0] if len(still) else 0
        n_still = len(still) or n
        raise _refusal(
            f"must vary over time at every vertex in use; vertex {vertex} has {values[vertex, 0]} "
            f"throughout, one of {n_still}: leave such vertices out with mask"
        )
    return values, is_used


def _blocks(rows: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Yield the numbers of some rows at a time."""
    for first in range(0, len(rows), ROWS_AT_ONCE):
        yield rows[first : first + ROWS_AT_ONCE]


def _refusal(message: str) -> ArgumentError:
    return ArgumentError("series", message)


def refuse_broken(values: Series, is_broken: Bools) -> None:
    """Raise an error that names the first broken row and its first value that is not finite."""
    if is_broken.any():
        row = int(np.flatnonzero(is_broken)[0])
        column = int(np.flatnonzero(~np.isfinite(values[row]))[0])
        raise _refusal(
            f"must be finite, without NaN or inf; vertex {row} has {values[row, column]} at volume "
            f"{column} ({int(is_broken.sum())} such vertices)"
        )


def checked_mask(mask: ArrayLike, n: int) -> Bools:
    """Return a mask of n vertices, True where used."""
    is_used = np.asarray(mask)
    if is_used.dtype != bool or is_used.shape != (n,) or not is_used.any():
        raise ArgumentError(
            "mask",
            f"must be boolean of shape ({n},), True at one vertex or more; found {is_used.dtype} "
            f"of shape {is_used.shape}, True at {np.count_nonzero(is_used)}",
        )
    return is_used


def checked_tr(tr: float | None) -> float:
    """Return the repetition time in seconds."""
    seconds = np.nan if tr is None else float(tr)
    # Is also false for NaN.
    if not SHORTEST_TR <= seconds <= LONGEST_TR:
        is_long = seconds > LONGEST_TR
        advice = f"; in milliseconds? then give {seconds / 1000:g}" if is_long else ""
        raise ArgumentError(
            "tr",
            f"must be the time between volumes in seconds, {SHORTEST_TR} to {LONGEST_TR:g} (0.72 "
            f"for HCP); found {shown(tr)}{advice}",
        )
    return seconds


def check_order(low: float, high: float) -> None:
    """Refuse a band whose ends are not in order."""
    if not 0 < low < high:
        text = f"must be above 0 Hz and below high; found low={low}, high={high}"
        raise ArgumentError("low", text)


def checked_band(low: float, high: float, tr: float, n_volumes: int) -> range:
    """Return the numbers of the Fourier frequencies k / (n_volumes tr) in the band, ends included.

    Refuses a band that is none, that the TR cannot carry, or that the series is too short for.
    """
    check_order(low, high)
    nyquist = 0.5 / tr
    if high >= nyquist:
        raise ArgumentError(
            "high",
            f"must be below half the sampling rate, {nyquist:.4g} Hz at a TR of {tr} s; found "
            f"{high}: lower it, or check that --tr (tr) is in seconds",
        )
    duration = n_volumes * tr
    first = int(np.ceil(low * duration - EDGE))
    last = int(np.floor(high * duration + EDGE))
    if duration < 1 / low or last < first:
        n_needed = int(np.ceil(max(1 / low, 1 / (high - low)) / tr))
        raise _refusal(
            f"are too short for {low}-{high} Hz: {n_volumes} volumes of {tr} s last "
            f"{duration:.4g} s; {n_needed} volumes or more are needed"
        )
    return range(first, last + 1)


def bandpass(
    series: ArrayLike,
    tr: float | None,
    low: float = 0.05,
    high: float = 0.1,
    method: Filter = "butterworth",
    order: int = 2,
    *,
    mask: ArrayLike | None = None,
) -> Series:
    """Filter series: keep only the frequencies from `low` to `high`.

    Parameters
    ----------
    series : array of shape (n_vertices, n_volumes)
        Series; constant rows (medial wall) become zero.
    tr : float
        Seconds between volumes.
    low, high : float
        Band in Hz.
    method : {"butterworth", "fft"}
        Filter; "butterworth" has zero phase.
    order : int
        Order of one pass of the Butterworth filter, which runs forwards and backwards.
    mask : bool array of shape (n_vertices,), optional
        True for vertices in use. Default: every row that varies. Other rows become zero.

    Returns
    -------
    array of the same shape
        float32 stays float32, but filtering is in float64. Each row has a mean of zero, or nearly.

    Examples
    --------
    >>> import numpy as np
    >>> from icofactor.preprocessing import bandpass
    >>> series = np.random.default_rng(0).standard_normal((5, 100))  # vertices × volumes
    >>> slow = bandpass(series, tr=0.72, low=0.02, high=0.1)
    >>> bool(slow.std() < series.std())
    True
    """
    check_value("method", method, OneOf(FILTERS))
    check_value("order", order, Whole(1))
    seconds = checked_tr(tr)
    values, is_used = checked_series(series, mask=mask)
    bins = checked_band(low, high, seconds, values.shape[1])
    out = np.zeros_like(values)
    for rows in _blocks(np.flatnonzero(is_used)):
        block = values[rows].astype(np.float64)
        if method == "butterworth":
            out[rows] = _zero_phase(block, seconds, low, high, order)
        else:
            out[rows] = _fourier(block, bins)
    return out


def _zero_phase(
    block: NDArray[np.float64], tr: float, low: float, high: float, order: int
) -> NDArray[np.float64]:
    """Filter forwards and backwards."""
    from scipy import signal

    sections = signal.butter(order, [low, high], btype="bandpass", output="sos", fs=1 / tr)
    # The longest padding there is: the filter rings for many periods of `low`, and short padding
    # leaves it in the data.
    n_padding = block.shape[1] - 1
    filtered = signal.sosfiltfilt(sections, block, axis=1, padtype="constant", padlen=n_padding)
    return np.asarray(filtered)


def _fourier(block: NDArray[np.float64], bins: range) -> NDArray[np.float64]:
    """Set the frequencies outside the band to zero."""
    from scipy import fft

    spectrum = fft.rfft(block, axis=1)
    spectrum[:, : bins.start] = 0
    spectrum[:, bins.stop :] = 0
    return np.asarray(fft.irfft(spectrum, n=block.shape[1], axis=1))


def unit_series(series: ArrayLike, *, mask: ArrayLike | None = None) -> Series:
    """Scale series to zero mean and unit L2 norm.

    Constant rows, and rows outside `mask`, become zero.

    Examples
    --------
    >>> import numpy as np
    >>> from icofactor.preprocessing import unit_series
    >>> series = np.random.default_rng(0).standard_normal((5, 100))  # vertices × volumes
    >>> np.linalg.norm(unit_series(series), axis=1)
    array([1., 1., 1., 1., 1.])
    """
    values, is_used = checked_series(series, mask=mask)
    out = np.zeros_like(values)
    for rows in _blocks(np.flatnonzero(is_used)):
        block = values[rows].astype(np.float64)
        block -= block.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(block, axis=1, keepdims=True)
        out[rows] = np.divide(block, norms, out=np.zeros_like(block), where=norms > 0)
    return out


def concatenate_runs(runs: Sequence[ArrayLike], *, mask: ArrayLike | None = None) -> Series:
    """Join the runs of one subject in time, after scaling each to zero mean and unit L2 norm.

    Examples
    --------
    >>> import numpy as np
    >>> from icofactor.preprocessing import concatenate_runs
    >>> series = np.random.default_rng(0).standard_normal((5, 100))  # vertices × volumes
    >>> concatenate_runs([series, series]).shape
    (5, 200)
    """
    parts = [unit_series(run, mask=mask) for run in runs]
    heights = sorted({len(part) for part in parts})
    if len(heights) != 1:
        text = f"must be one or more arrays of the same vertices; found arrays of {heights} rows"
        raise ArgumentError("runs", text)
    return np.concatenate(parts, axis=1)


def alff(
    series: ArrayLike,
    tr: float | None,
    low: float = 0.05,
    high: float = 0.1,
    detrend: bool = False,
    normalize: Literal["none", "mean"] = "none",
    *,
    mask: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Amplitude of low-frequency fluctuations of one run.

    ALFF = mean over low ≤ f ≤ high of 2|F(f)|/n

    where F is the Fourier transform of the demeaned series and n the number of volumes: the mean
    amplitude of the sines in the band, in the units of the series.

    Parameters
    ----------
    series : array of shape (n_vertices, n_volumes)
        Unfiltered series.
    tr : float
        Seconds between volumes.
    low, high : float
        Band in Hz, including both ends. Most studies use 0.01 to 0.08.
    detrend : bool, default=False
        Whether to remove a linear trend, not only the mean.
    normalize : {"none", "mean"}, default="none"
        "mean" divides by the mean over the vertices in use, which makes scanners comparable.
        z-scores are not available, because half of them are negative, and non-negative methods need
        positive maps.
    mask : bool array of shape (n_vertices,), optional
        True for vertices in use. Default: every row that varies. Other vertices get 0.

    References
    ----------
    Zang et al., Brain and Development 29(2), 83-91 (2007).

    Examples
    --------
    >>> import numpy as np
    >>> from icofactor.preprocessing import alff
    >>> series = np.random.default_rng(0).standard_normal((5, 100))  # vertices × volumes
    >>> alff(series, tr=0.72).shape
    (5,)
    """
    check_value("normalize", normalize, OneOf(NORMALIZATIONS))
    from scipy import fft, signal

    seconds = checked_tr(tr)
    values, is_used = checked_series(series, mask=mask)
    n_volumes = values.shape[1]
    bins = checked_band(low, high, seconds, n_volumes)
    trend: Literal["linear", "constant"] = "linear" if detrend else "constant"
    out = np.zeros(len(values))
    for rows in _blocks(np.flatnonzero(is_used)):
        block = signal.detrend(values[rows].astype(np.float64), axis=1, type=trend)
        spectrum = fft.rfft(block, axis=1)
        amplitudes = np.abs(spectrum[:, bins.start : bins.stop])
        out[rows] = amplitudes.mean(axis=1) * (2 / n_volumes)
    if normalize == "mean":
        out[is_used] /= out[is_used].mean()
    return out
