"""How maps become numbers of a store: float32 as they are, or two bytes per value with a rounding error that is stated.

float16 keeps three digits of any value up to 65504. int16 divides the range of each map into 65,533 equal steps, with
0 on one of them: a map is (code + zero) · step, and the code −32768 is NaN. Sites that are not in use and would
double the steps do not count: values beyond the range become its ends there.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import ArgumentError, Phrase
from icofactor.io.guard import Unreadable
from icofactor.io.records import rebuild
from icofactor.streaming.blocks import cut

DTYPES = ("float32", "float16", "int16")
MISSING, _LARGEST, _MOST = -32768, 32767, 3.4e38
_AT_ONCE = 32
"""Maps that are encoded together."""
COARSE = 0.05
"""Rounding errors above this share of the standard deviation between subjects are warned of."""
Codes = NDArray[Any]


def check_dtype(dtype: Any) -> np.dtype[Any]:
    """The type of stored values that a name means."""
    if str(dtype) not in DTYPES:
        raise ArgumentError("dtype", Phrase(repr(dtype)), "'float32', 'float16' or 'int16'")
    return np.dtype(str(dtype))


@dataclass(frozen=True)
class Rounding:
    """What storing maps in fewer bits changed.

    Attributes
    ----------
    dtype : of the stored values
    largest, rms : largest and root mean square difference between stored and given values, in their units
    deviation : root mean square over sites of the standard deviation between subjects; None for a single one
    values : number of values compared, those at sites in use
    """

    dtype: str
    largest: float
    rms: float
    deviation: float | None
    values: int

    @classmethod
    def pooled(cls, records: Iterable[Mapping[str, Any]]) -> Rounding | None:
        """Of several parts of a store; None where nothing was rounded."""
        found = [cls(**record) for record in records]
        if not found:
            return None
        n = sum(one.values for one in found)
        mean = lambda pairs: math.sqrt(sum(value**2 * m for value, m in pairs) / max(1, sum(m for _, m in pairs)))
        known = [(one.deviation, one.values) for one in found if one.deviation is not None]
        rms, deviation = mean([(one.rms, one.values) for one in found]), mean(known) if known else None
        return cls(found[0].dtype, max(one.largest for one in found), rms, deviation, n)

    def after(self, before: Sequence[Rounding]) -> Rounding:
        """Of maps that had been rounded already: at most, errors add up."""
        largest, rms = (max((getattr(one, name) for one in before), default=0.0) for name in ("largest", "rms"))
        return replace(self, largest=self.largest + largest, rms=self.rms + rms)

    @property
    def share(self) -> float | None:
        """`rms` over `deviation`."""
        return self.rms / self.deviation if self.deviation else None

    def __str__(self) -> str:
        kind = {"float16": "16-bit floating-point numbers", "int16": "16-bit integers scaled to the range of each map"}
        of = lambda x: f" ({100 * x / self.deviation:.2g} % of the standard deviation between subjects)"
        largest, rms = (f"{x:.2g}{of(x) if self.deviation else ''}" for x in (self.largest, self.rms))
        return f"{kind[self.dtype]}; rounding changed values by at most {largest}, root mean square {rms}"


def rounding_in(provenance: Mapping[str, Any]) -> Rounding | None:
    """What a provenance, which may come from a file, says of rounding."""
    with suppress(Unreadable):
        return None if "rounding" not in provenance else rebuild(Rounding, provenance["rounding"], {})
    return None


class Encoder:
    """Turns maps into codes, and watches what that changes.

    Parameters
    ----------
    dtype : of the stored values
    n_sites : of each map
    used : (n_sites,) bool, the sites whose rounding counts; None: all
    scales : of maps that were int16 before and get the same codes again; None: each map gets its own
    """

    def __init__(
        self,
        dtype: np.dtype[Any],
        n_sites: int,
        used: NDArray[np.bool_] | None,
        scales: NDArray[np.float32] | None = None,
    ) -> None:
        self.dtype, self.scales, self._given = dtype, list[NDArray[np.float32]](), scales
        self._used = slice(None) if used is None or not used.any() else used
        n = n_sites if isinstance(self._used, slice) else int(self._used.sum())
        self._shift, self._n = np.zeros(n), np.zeros(n, dtype=np.int64)
        self._sum, self._squares = np.zeros(n), np.zeros(n)
        self._largest = self._error = 0.0

    def encode(self, maps: NDArray[np.float32]) -> Codes:
        """Codes of maps, subjects × sites."""
        if self.dtype == np.float32:
            return maps
        codes = np.empty(maps.shape, self.dtype)
        for some in cut(len(maps), _AT_ONCE):
            codes[some] = _to_float16(maps[some]) if self.dtype == np.float16 else self._to_int16(maps[some])
            scale = None if self.dtype == np.float16 else self.scales[-1]
            self._watch(maps[some], decode(codes[some].T, scale).T)
        return codes

    def _to_int16(self, maps: NDArray[np.float32]) -> Codes:
        first = sum(map(len, self.scales))
        scale = self._scales(maps) if self._given is None else self._given[first : first + len(maps)]
        missing, (step, offset) = np.isnan(maps), scale[:, :2].astype(np.float64).T
        scale[:, 2] = missing.any(axis=1)
        self.scales.append(scale)
        codes = np.rint((np.where(missing, 0.0, maps) - offset[:, None]) / step[:, None])
        np.clip(codes, -_LARGEST, _LARGEST, out=codes)
        codes[missing] = MISSING
        return codes.astype(np.int16)

    def _scales(self, maps: NDArray[np.float32]) -> NDArray[np.float32]:
        """Step and offset of each map: of all its sites, unless those that are not in use would double the step."""
        found = _scales(maps)
        if isinstance(self._used, slice):
            return found
        own = _scales(np.where(self._used | (maps == 0), maps, np.float32(np.nan)))  # 0 stays 0
        return np.where(found[:, :1] > 2 * own[:, :1], own, found)

    def _watch(self, maps: NDArray[np.float32], kept: NDArray[np.float32]) -> None:
        x = maps[:, self._used].astype(np.float64)
        there = np.isfinite(x)
        error = np.where(there, kept[:, self._used] - x, 0.0)
        self._largest = max(self._largest, float(np.abs(error).max(initial=0.0)))
        self._error += float(np.square(error).sum())
        if not self._n.any():  # sums of squares about the first map stay exact
            self._shift = np.where(there[0], x[0], 0.0)
        x = np.where(there, x - self._shift, 0.0)
        self._n += there.sum(axis=0)
        self._sum += x.sum(axis=0)
        self._squares += np.einsum("ij,ij->j", x, x)

    def rounding(self) -> Rounding | None:
        """What was changed so far; None for float32, the type that maps come in."""
        if self.dtype == np.float32:
            return None
        several, n = self._n > 1, int(self._n.sum())
        deviation = None
        if several.any():
            count = self._n[several]
            squares = self._squares[several] - self._sum[several] ** 2 / count
            deviation = float(np.sqrt(np.mean(np.maximum(squares, 0.0) / (count - 1))))
        found = Rounding(self.dtype.name, self._largest, math.sqrt(self._error / max(1, n)), deviation, n)
        if found.share is not None and found.share > COARSE:
            better = "int16 or float32" if self.dtype == np.float16 else "float32"
            said = f"{self.dtype.name} is coarse for these maps: rounding is {100 * found.share:.2g} % of the standard "
            warnings.warn(f"{said}deviation between subjects; use {better}", UserWarning, stacklevel=2)
        return found


class Unstorable(ValueError):
    """Values that a type cannot hold."""


def _scales(maps: NDArray[np.float32]) -> NDArray[np.float32]:
    """Step and offset of each map; and, to be set, whether it has NaN."""
    low, high = (one.reduce(maps, axis=1).astype(np.float64) for one in (np.fmin, np.fmax))
    low, high = np.where(np.isnan(low), 0.0, low), np.where(np.isnan(high), 0.0, high)
    if np.maximum(-low, high).max(initial=0.0) > _MOST:  # one step further float32 ends
        raise Unstorable(f"int16 cannot hold infinite values or values beyond ±{_MOST:.2g}: use float32")
    # two steps of slack, for the middle that falls on a step; a constant map is one step from 0
    least = np.nextafter(((high - low) / (2 * _LARGEST - 2)).astype(np.float32), np.float32(np.inf))
    step = np.where(high > low, least, np.where(high == 0, 1.0, np.abs(high))).astype(np.float32)
    zero = np.rint((low / 2 + high / 2) / step).astype(np.float32)
    return np.stack([step, zero * step, np.zeros_like(step)], axis=1)


def _to_float16(maps: NDArray[np.float32]) -> Codes:
    with np.errstate(over="ignore", under="ignore"):
        codes = maps.astype(np.float16)
    lost = np.isinf(codes) & np.isfinite(maps)
    if lost.any():
        worst = float(np.abs(maps[lost]).max())
        raise Unstorable(f"float16 can represent values up to 65504; these go up to {worst:.6g}: use int16 or float32")
    return codes


def decode(codes: Codes, scale: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """Values of codes, sites × subjects; `scale`: (step, offset, whether any is missing) of each subject's map."""
    if scale is None:
        return codes.astype(np.float32)
    found = np.multiply(codes, scale[:, 0], dtype=np.float32, casting="unsafe")
    found += scale[:, 1]
    for column in np.flatnonzero(scale[:, 2]).tolist():
        found[codes[:, column] == MISSING, column] = np.nan
    return found
