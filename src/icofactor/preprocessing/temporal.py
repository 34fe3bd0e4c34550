"""Steps on time series: what they ask of their input, the temporal band-pass, ALFF, and putting
runs together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.checks import OneOf, Whole, check_value
from icofactor.errors import ArgumentError, Phrase

Bools = NDArray[np.bool_]
# No scanner takes a volume in under 10 ms or over 30 s; a number outside is in other units.
_SHORTEST_TR, _LONGEST_TR = 0.01, 30.0
# Frequencies of a series are multiples of 1/duration; rounding must not push one over the edge of
# the band.
_EDGE = 1e-9
_ROWS = 1024


def checked_series(series: ArrayLike, mask: ArrayLike | None = None) -> tuple[NDArray[Any], Bools]:
    """Series (n_vertices, n_volumes) as floats, and which rows carry data.

    Without `mask` a row of zeros, of one constant or of NaN only is taken for medial wall. With
    `mask` (True where a vertex is used) such a row is an error, and rows outside the mask may hold
    anything. A NaN among numbers is
    always an error.
    """
    values = np.asarray(series)
    if values.ndim != 2:
        raise _bad("must have two dimensions, vertices × volumes", f"shape {values.shape}")
    if values.dtype.kind not in "fiu":
        raise _bad("must contain real numbers", str(values.dtype))
    if values.shape[1] < 3:
        raise _bad("must have at least 3 volumes (columns)", f"shape {values.shape}")
    if values.dtype not in (np.float32, np.float64):
        values = values.astype(np.float64)
    wanted = None if mask is None else checked_mask(mask, len(values))
    whole, varies, some = (np.zeros(len(values), dtype=bool) for _ in range(3))
    for first in range(0, len(values), _ROWS):
        block = values[first : first + _ROWS]
        finite = np.isfinite(block)
        rows = slice(first, first + len(block))
        whole[rows], some[rows] = finite.all(axis=1), finite.any(axis=1)
        varies[rows] = whole[rows] & (block.max(axis=1) > block.min(axis=1))
    refuse_broken(values, ~whole & (some if wanted is None else wanted))
    used = varies if wanted is None else wanted
    still = np.flatnonzero(used & ~varies)
    if len(still):
        raise _bad(
            f"must vary over time at every vertex in use; vertex {still[0]} is constant ({values[still[0], 0]}), one "
            f"of {len(still)}. Leave such vertices out with mask"
        )
    if not used.any():
        raise _bad(f"must vary over time: all {len(values)} are constant or NaN")
    return values, used


def _bad(expected: str, found: str | None = None) -> ArgumentError:
    """The series will not do. As sentences: to the command line, series come from files, not from
    an option.
    """
    return ArgumentError("series", None if found is None else Phrase(found), f"Series {expected}")


def refuse_broken(values: NDArray[Any], broken: Bools) -> None:
    """Name the first row that is `broken` and its first value that is not finite."""
    if broken.any():
        row = int(np.flatnonzero(broken)[0])
        column = int(np.flatnonzero(~np.isfinite(values[row]))[0])
        raise _bad(
            f"must be finite, without NaN or inf; vertex {row} has {values[row, column]} at volume {column} "
            f"({int(broken.sum())} such vertices)"
        )


def checked_mask(mask: ArrayLike, n: int) -> Bools:
    """A mask of n vertices, True where used."""
    used = np.asarray(mask)
    if used.dtype != bool or used.shape != (n,):
        found = Phrase(f"{used.dtype} of shape {used.shape}")
        raise ArgumentError("mask", found, f"boolean of shape ({n},), one entry per vertex")
    if not used.any():
        raise ArgumentError("mask", None, "true at one vertex or more")
    return used


def checked_tr(tr: float | None) -> float:
    """The repetition time in seconds."""
    if tr is None:
        what = "{tr} is missing: give the time between volumes, in seconds (0.72 for HCP)"
        raise ArgumentError("tr", None, what)
    seconds = float(tr)
    if not np.isfinite(seconds) or seconds <= 0:
        raise ArgumentError("tr", tr, "a positive number of seconds")
    if seconds > _LONGEST_TR:
        what = f"{{tr={tr}}} looks like milliseconds; it must be in seconds: {seconds / 1000:g}"
        raise ArgumentError("tr", None, what)
    if seconds < _SHORTEST_TR:
        raise ArgumentError(
            "tr", None, f"{{tr={tr}}} is shorter than any scan of the brain; it must be in seconds"
        )
    return seconds


def check_order(low: float, high: float) -> None:
    """Refuse a band whose ends are not in order."""
    if not 0 < low < high:
        what = f"The band must have 0 < low < high, in Hz; found {{low={low}}}, {{high={high}}}"
        raise ArgumentError("low", None, what)


def checked_band(low: float, high: float, tr: float, n_volumes: int) -> None:
    """Refuse a band that is none, that the TR cannot carry, or that the series is too short for."""
    check_order(low, high)
    nyquist = 0.5 / tr
    if high >= nyquist:
        raise ArgumentError(
            "high",
            None,
            f"{{high={high}}} Hz must be below half the sampling rate, {nyquist:.4g} Hz at {{tr={tr}}} s: "
            "lower {high}, or check that {tr} is in seconds",
        )
    lasts = n_volumes * tr
    if lasts < 1 / low or not len(band_bins(low, high, tr, n_volumes)):
        needed = int(np.ceil(max(1 / low, 1 / (high - low)) / tr))
        raise _bad(
            f"are too short for {low}-{high} Hz: {n_volumes} volumes of {tr} s last {lasts:.4g} s; {needed} volumes or "
            "more are needed"
        )


def band_bins(low: float, high: float, tr: float, n_volumes: int) -> range:
    """Numbers of the Fourier frequencies k / (n_volumes tr) with low ≤ frequency ≤ high."""
    lasts = n_volumes * tr
    return range(int(np.ceil(low * lasts - _EDGE)), int(np.floor(high * lasts + _EDGE)) + 1)


Filter = Literal["butterworth", "fft"]
FILTERS = ("butterworth", "fft")
# Rows filtered together: padded to three times their length and in float64 they stay a few tens of
# MB.
_CHANNELS = 512


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
    values, used = checked_series(series, mask=mask)
    n_volumes = values.shape[1]
    checked_band(low, high, seconds, n_volumes)
    out = np.zeros_like(values)
    rows = np.flatnonzero(used)
    for first in range(0, len(rows), _CHANNELS):
        some = rows[first : first + _CHANNELS]
        block = values[some].astype(np.float64)
        out[some] = (
            _zero_phase(block, seconds, low, high, order)
            if method == "butterworth"
            else _fourier(block, band_bins(low, high, seconds, n_volumes))
        )
    return out


def _zero_phase(
    block: NDArray[np.float64], tr: float, low: float, high: float, order: int
) -> NDArray[np.float64]:
    from scipy import signal

    sections = signal.butter(order, [low, high], btype="bandpass", output="sos", fs=1 / tr)
    # the longest padding there is: the filter rings for many periods of `low`, and short padding
    # leaves it in the data
    padding = block.shape[1] - 1
    return np.asarray(
        signal.sosfiltfilt(sections, block, axis=1, padtype="constant", padlen=padding)
    )


def _fourier(block: NDArray[np.float64], bins: range) -> NDArray[np.float64]:
    from scipy import fft

    spectrum = fft.rfft(block, axis=1)
    spectrum[:, : bins.start] = 0
    spectrum[:, bins.stop :] = 0
    return np.asarray(fft.irfft(spectrum, n=block.shape[1], axis=1))


def unit_series(series: ArrayLike, *, mask: ArrayLike | None = None) -> NDArray[Any]:
    """Scale series to zero mean and unit L2 norm; constant rows, and rows outside `mask`, become
    zero.

    Examples
    --------
    >>> import numpy as np
    >>> from icofactor.preprocessing import unit_series
    >>> series = np.random.default_rng(0).standard_normal((5, 100))  # vertices × volumes
    >>> np.linalg.norm(unit_series(series), axis=1)
    array([1., 1., 1., 1., 1.])
    """
    values, used = checked_series(series, mask=mask)
    out = np.zeros_like(values)
    rows = np.flatnonzero(used)
    for first in range(0, len(rows), _CHANNELS):
        some = rows[first : first + _CHANNELS]
        block = values[some].astype(np.float64)
        block -= block.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(block, axis=1, keepdims=True)
        out[some] = np.divide(block, norms, out=np.zeros_like(block), where=norms > 0)
    return out


def concatenate_runs(runs: Sequence[ArrayLike], *, mask: ArrayLike | None = None) -> NDArray[Any]:
    """Join the runs of one subject in time, after scaling each to zero mean and unit L2 norm.

    Examples
    --------
    >>> import numpy as np
    >>> from icofactor.preprocessing import concatenate_runs
    >>> series = np.random.default_rng(0).standard_normal((5, 100))  # vertices × volumes
    >>> concatenate_runs([series, series]).shape
    (5, 200)
    """
    if not len(runs):
        raise ArgumentError("runs", Phrase("none"), "at least one array")
    parts = [unit_series(run, mask=mask) for run in runs]
    heights = {len(part) for part in parts}
    if len(heights) > 1:
        raise ArgumentError(
            "runs", Phrase(f"{sorted(heights)} rows"), "arrays of the same vertices"
        )
    return np.concatenate(parts, axis=1)


NORMALIZATIONS = ("none", "mean")


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
        Band in Hz, including both ends.
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
    values, used = checked_series(series, mask=mask)
    n_volumes = values.shape[1]
    checked_band(low, high, seconds, n_volumes)
    bins = band_bins(low, high, seconds, n_volumes)
    out = np.zeros(len(values))
    rows = np.flatnonzero(used)
    for first in range(0, len(rows), _ROWS):
        some = rows[first : first + _ROWS]
        block = signal.detrend(
            values[some].astype(np.float64), axis=1, type="linear" if detrend else "constant"
        )
        amplitudes = np.abs(fft.rfft(block, axis=1)[:, bins.start : bins.stop])
        out[some] = amplitudes.mean(axis=1) * (2 / n_volumes)
    if normalize == "mean":
        out[used] /= out[used].mean()
    return out
