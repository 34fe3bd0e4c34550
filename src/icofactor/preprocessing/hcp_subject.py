"""One HCP subject: from its files to maps on the target mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.checks import Whole, check_value
from icofactor.errors import ArgumentError, CohortError
from icofactor.preprocessing.hcp import KINDS, Inputs, Projection, naming, read_map, read_series
from icofactor.preprocessing.outliers import LIMIT, limit_outliers
from icofactor.preprocessing.reho import reho, ring_incidence
from icofactor.preprocessing.temporal import (
    Bools,
    alff,
    bandpass,
    check_order,
    checked_tr,
    concatenate_runs,
)

MAX_MISSING = 0.01
"""Share of the cortex that may be filled: a few dead vertices where the signal is lost, not a whole
region.
"""
_ROWS = 1024


def still_vertices(series: NDArray[Any]) -> Bools:
    """(n_vertices,) where a series is one constant, or NaN throughout."""
    still = np.zeros(len(series), dtype=bool)
    for first in range(0, len(series), _ROWS):
        block = series[first : first + _ROWS]
        # NaN among numbers equals nothing, so it is not still: the steps that follow refuse it
        still[first : first + len(block)] = (block == block[:, :1]).all(axis=1) | np.isnan(
            block
        ).all(axis=1)
    return still


def check_missing(
    missing: Bools, cortex: Bools, side: str, what: str, most: float = MAX_MISSING
) -> None:
    """Refuse when more than the share `most` of a hemisphere's cortex is missing.

    Parameters
    ----------
    missing : (n_vertices,) bool, within the cortex.
    what : what these vertices are, e.g. "are constant".
    """
    found, whole = int(missing.sum()), int(cortex.sum())
    if found > most * whole:
        first = int(np.flatnonzero(missing)[0])
        raise ArgumentError(
            "max_missing",
            None,
            f"Too much is missing: {found} of {whole} vertices of the {side} cortex {what}, the first is {first}; "
            f"up to {100 * most:g} % ({{max_missing}}) are filled from their neighbours",
        )


def fill_from_neighbours(
    values: NDArray[Any], missing: Bools, cortex: Bools, faces: ArrayLike
) -> NDArray[Any]:
    """A map (n_vertices,) with the missing vertices set to the mean of their neighbours in the
    cortex, rim first.
    """
    if not missing.any():
        return values
    around = ring_incidence(faces, len(values), 1)
    filled, have, waiting = np.where(missing, 0.0, values), cortex & ~missing, missing.copy()
    while waiting.any():
        n_neighbours = around @ have.astype(np.float64)
        total = around @ np.where(have, filled, 0.0)
        now = waiting & (n_neighbours > 0)
        if not now.any():
            first = int(np.flatnonzero(waiting)[0])
            raise ArgumentError("missing", None, f"Vertex {first} and all around it have no data")
        filled[now] = total[now] / n_neighbours[now]
        have, waiting = have | now, waiting & ~now
    return filled


Regions = Mapping[str, NDArray[np.bool_]]


class SubjectMap(NamedTuple):
    """A subject's map on the target, and what is to be told about it.

    values : (n_sites,).
    n_filled : how many vertices of fs_LR 32k had no data and were filled.
    tr : seconds between volumes of the series it was made from, each value once.
    """

    values: NDArray[np.float32]
    n_filled: int
    tr: tuple[float, ...] = ()


class _Part(NamedTuple):
    """The same of one hemisphere, on fs_LR 32k."""

    values: NDArray[Any]
    missing: NDArray[np.bool_]
    tr: tuple[float, ...] = ()


@dataclass(frozen=True)
class Steps:
    """What to compute from the data of a subject.

    Attributes
    ----------
    kind : {"thickness", "myelin", "reho", "alff"}
        Kind of map.
    limit : float or None
        For thickness and myelin: limit of outliers in median absolute deviations, over the cortex
        of both hemispheres; None for no limit.
    tr : float or None
        Seconds between volumes; None reads it from the file.
    low, high : float
        Band in Hz.
    filter, order : str, int
        Band-pass of ReHo; see `bandpass`.
    rings, tie_correction : int, bool
        See `reho`.
    detrend, normalize : bool, str or None
        See `alff`.
    max_missing : float
        Share of the cortex of a hemisphere that may lack data (series that never vary, values that
        are not finite). These vertices get the mean of their neighbours, before resampling.

    Examples
    --------
    >>> from icofactor.preprocessing import Steps
    >>> Steps("reho", filter="fft").rings
    3
    """

    kind: str
    limit: float | None = LIMIT
    tr: float | None = None
    low: float = 0.05
    high: float = 0.1
    filter: Literal["butterworth", "fft"] = "butterworth"
    order: int = 2
    rings: int = 3
    tie_correction: bool = True
    detrend: bool = False
    normalize: Literal["none", "mean"] = "none"
    max_missing: float = MAX_MISSING

    def __post_init__(self) -> None:
        """Refuse what is wrong for every subject before the first is read."""
        if self.kind not in KINDS:
            raise ArgumentError("kind", self.kind, f"one of {', '.join(KINDS)}")
        if self.tr is not None:
            checked_tr(self.tr)
        check_order(self.low, self.high)
        if self.limit is not None and not self.limit > 0:
            raise ArgumentError("n_deviations", self.limit, "positive")
        if not 0 <= self.max_missing < 1:
            raise ArgumentError(
                "max_missing", self.max_missing, "a share of the cortex, 0 or more and under 1"
            )
        for name in ("rings", "order"):
            check_value(name, getattr(self, name), Whole(1))

    def record(self) -> list[dict[str, Any]]:
        """Steps in order, with their settings, for the provenance."""
        return [
            *self._computed(),
            {"step": "fill_from_neighbours", "max_missing": self.max_missing},
        ]

    def _computed(self) -> list[dict[str, Any]]:
        every = asdict(self)
        band = {
            "low_hz": self.low,
            "high_hz": self.high,
            "tr": "of the file" if self.tr is None else self.tr,
        }
        if self.kind == "reho":
            return [
                {"step": "bandpass", "method": self.filter, "order": self.order, **band},
                {"step": "concatenate_runs", "each_run": "zero mean, unit L2 norm"},
                {
                    "step": "reho",
                    "mesh": "fs_LR 32k",
                    **{key: every[key] for key in ("rings", "tie_correction")},
                },
            ]
        if self.kind == "alff":
            return [
                {"step": "alff", **band, **{key: every[key] for key in ("detrend", "normalize")}}
            ]
        return (
            []
            if self.limit is None
            else [{"step": "limit_outliers", "n_deviations": self.limit, "over": "subject"}]
        )


def subject_map(
    inputs: Inputs, steps: Steps, ways: Mapping[str, Projection], cortex: Regions
) -> SubjectMap:
    """Map of one subject on the target, the left hemisphere first; for ALFF `inputs` holds one run.

    Raises
    ------
    CohortError, with the name of the file that is missing or wrong.
    """
    if inputs.missing:
        raise CohortError.of([(str(file), "no such file") for file in inputs.missing.values()])
    files = list(inputs.files.values())
    if steps.kind == "alff":
        return _both(ways, _alff, files[0], steps)
    if steps.kind == "reho":
        return _both(ways, _reho, files, steps)
    return _morphometry(files[0], steps, ways, cortex)


def _both(ways: Mapping[str, Projection], compute: Callable[..., _Part], *given: Any) -> SubjectMap:
    """A hemisphere at a time, so that the series of one are held, not of two."""
    return _carried(ways, {side: compute(side, way, *given) for side, way in ways.items()})


def _carried(ways: Mapping[str, Projection], parts: Mapping[str, _Part]) -> SubjectMap:
    """The hemispheres filled, and brought to the target."""
    maps = [
        way(fill_from_neighbours(parts[side].values, parts[side].missing, way.roi, way.faces))
        for side, way in ways.items()
    ]
    n_filled = sum(int(parts[side].missing.sum()) for side in ways)
    return SubjectMap(
        np.concatenate(maps),
        n_filled,
        tuple(sorted({tr for part in parts.values() for tr in part.tr})),
    )


def _reho(side: str, way: Projection, files: list[Path], steps: Steps) -> _Part:
    runs, times, missing = [], [], np.zeros(len(way.roi), dtype=bool)
    for file in files:
        series, tr, still = _series(file, side, way, steps)
        with naming(file):
            runs.append(
                bandpass(
                    series,
                    tr,
                    steps.low,
                    steps.high,
                    steps.filter,
                    steps.order,
                    mask=way.roi & ~still,
                )
            )
        times.append(tr)
        missing |= still
    with naming(files[-1]):
        check_missing(missing, way.roi, side, "are constant in one of the runs", steps.max_missing)
    used = way.roi & ~missing
    together = concatenate_runs(runs, mask=used)
    runs.clear()
    return _Part(
        reho(together, way.faces, steps.rings, steps.tie_correction, mask=used),
        missing,
        tuple(times),
    )


def _alff(side: str, way: Projection, file: Path, steps: Steps) -> _Part:
    series, tr, still = _series(file, side, way, steps)
    with naming(file):
        used = way.roi & ~still
        return _Part(
            alff(series, tr, steps.low, steps.high, steps.detrend, steps.normalize, mask=used),
            still,
            (tr,),
        )


def _series(
    file: Path, side: str, way: Projection, steps: Steps
) -> tuple[NDArray[Any], float, NDArray[np.bool_]]:
    """Series of a hemisphere, seconds between volumes, and the few vertices of the cortex that
    never vary.
    """
    series, found = read_series(file, side)
    with naming(file):
        if steps.tr is None and found is None:
            raise CohortError(file, "does not give its repetition time in seconds: pass {tr}")
        tr = checked_tr(found if steps.tr is None else steps.tr)
        still = way.roi & still_vertices(series)
        check_missing(still, way.roi, side, "are constant", steps.max_missing)
        return series, tr, still


def _morphometry(
    file: Path, steps: Steps, ways: Mapping[str, Projection], cortex: Regions
) -> SubjectMap:
    maps = read_map(file)
    lacking = [side for side in ways if side not in maps]
    if lacking:
        raise CohortError(file, f"has no {' and no '.join(lacking)} cortex")
    missing = {side: cortex[side] & ~np.isfinite(values) for side, values in maps.items()}
    with naming(file):
        for side in maps:
            check_missing(
                missing[side], cortex[side], side, "have no finite value", steps.max_missing
            )
        if steps.limit is not None:
            # over both hemispheres also when one is asked for: a subject's bounds do not depend on
            # what is looked at
            inside = {side: cortex[side] & ~missing[side] for side in maps}
            values = np.concatenate([maps[side][where] for side, where in inside.items()])
            limited = limit_outliers(values[None], steps.limit)[0]
            ends = np.cumsum([0, *(int(where.sum()) for where in inside.values())])
            for (side, where), first, last in zip(inside.items(), ends[:-1], ends[1:], strict=True):
                maps[side] = maps[side].copy()
                maps[side][where] = limited[first:last]
        return _carried(ways, {side: _Part(maps[side], missing[side]) for side in ways})
