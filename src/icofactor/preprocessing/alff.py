"""ALFF: how large the slow fluctuations of each vertex are."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.preprocessing.temporal import band_bins, checked_band, checked_series, checked_tr

NORMALIZATIONS = ("none", "mean")
_ROWS = 1024


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
    """Amplitude of low-frequency fluctuations, each run by itself.

    ALFF = mean over low ≤ f ≤ high of 2|F(f)|/n

    where F is the Fourier transform of the demeaned series and n the number of volumes: the mean amplitude of the
    sines in the band, in the units of the series.

    Parameters
    ----------
    series : (n_vertices, n_volumes), not filtered.
    tr : seconds from one volume to the next.
    low, high : the band, in Hz; both ends belong to it.
    detrend : whether to take out a straight line, not only the mean.
    normalize : "mean" divides by the mean over the vertices used, which makes scanners comparable; z-scores are
        not offered: they are negative on half the cortex, and the non-negative methods need positive maps.
    mask : (n_vertices,) bool, True where a vertex is used; None takes every row that varies. The rest gets 0.

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
    if normalize not in NORMALIZATIONS:
        raise ValueError(f"normalize must be one of {', '.join(NORMALIZATIONS)}; got {normalize!r}")
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
        block = signal.detrend(values[some].astype(np.float64), axis=1, type="linear" if detrend else "constant")
        amplitudes = np.abs(fft.rfft(block, axis=1)[:, bins.start : bins.stop])
        out[some] = amplitudes.mean(axis=1) * (2 / n_volumes)
    if normalize == "mean":
        out[used] /= out[used].mean()
    return out
