"""From the series of a subject to a map of each hemisphere: ReHo or ALFF, whatever the source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.checks import OneOf, Whole, check_value
from icofactor.errors import ArgumentError, CohortError, shown
from icofactor.preprocessing.outliers import LIMIT
from icofactor.preprocessing.reho import reho, ring_incidence
from icofactor.preprocessing.temporal import (
    Bools,
    alff,
    bandpass,
    check_order,
    checked_tr,
    concatenate_runs,
)
from icofactor.sphere.names import SIDES

KINDS = ("thickness", "myelin", "reho", "alff")
# Bands in Hz, by name: that of the paper, and the one that most studies of ALFF use.
BANDS = {"paper": (0.05, 0.1), "usual": (0.01, 0.08)}
# Share of the cortex that may be filled: a few dead vertices, not a whole region without signal.
MAX_MISSING = 0.01
# Rows that are compared at once.
ROWS_AT_ONCE = 1024


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
    low, high : float or None
        Ends of the band in Hz; None takes that of `band`.
    filter, order : str, int
        Band-pass of ReHo; see `bandpass`.
    rings, tie_correction : int, bool
        See `reho`.
    detrend, normalize : bool, str or None
        See `alff`.
    max_missing : float
        Share of the cortex of a hemisphere that may lack data (series that never vary, values that
        are not finite). These vertices get the mean of their neighbours, before resampling.
    band : {"paper", "usual"}
        Band by name: 0.05-0.1 Hz, as in the paper, or 0.01-0.08 Hz, as in most studies.

    Examples
    --------
    >>> from icofactor.preprocessing import Steps
    >>> Steps("reho", filter="fft").rings
    3
    >>> Steps("alff", band="usual").ends
    (0.01, 0.08)
    """

    kind: str
    limit: float | None = LIMIT
    tr: float | None = None
    low: float | None = None
    high: float | None = None
    filter: Literal["butterworth", "fft"] = "butterworth"
    order: int = 2
    rings: int = 3
    tie_correction: bool = True
    detrend: bool = False
    normalize: Literal["none", "mean"] = "none"
    max_missing: float = MAX_MISSING
    band: str = "paper"

    def __post_init__(self) -> None:
        """Refuse what is wrong for every subject before the first is read."""
        check_value("kind", self.kind, OneOf(KINDS))
        check_value("band", self.band, OneOf(tuple(BANDS)))
        check_order(*self.ends)
        if self.tr is not None:
            checked_tr(self.tr)
        if self.limit is not None and not self.limit > 0:
            raise ArgumentError("n_deviations", f"must be above 0; found {shown(self.limit)}")
        if not 0 <= self.max_missing < 1:
            text = f"must be a share of the cortex, from 0 to 1; found {shown(self.max_missing)}"
            raise ArgumentError("max_missing", text)
        check_value("rings", self.rings, Whole(1))
        check_value("order", self.order, Whole(1))

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the band in Hz."""
        low, high = BANDS[self.band]
        return low if self.low is None else self.low, high if self.high is None else self.high

    def record(self, mesh: str = "fs_LR 32k") -> list[dict[str, Any]]:
        """Return the steps in order, with their settings, for the provenance."""
        fill = {"step": "fill_from_neighbours", "max_missing": self.max_missing}
        return [*self._computed(mesh), fill]

    def _computed(self, mesh: str) -> list[dict[str, Any]]:
        low, high = self.ends
        tr = "of the file" if self.tr is None else self.tr
        band = {"low_hz": low, "high_hz": high, "tr": tr}
        settings = asdict(self)
        if self.kind == "reho":
            neighbours = {name: settings[name] for name in ("rings", "tie_correction")}
            return [
                {"step": "bandpass", "method": self.filter, "order": self.order, **band},
                {"step": "concatenate_runs", "each_run": "zero mean, unit L2 norm"},
                {"step": "reho", "mesh": mesh, **neighbours},
            ]
        if self.kind == "alff":
            amplitudes = {name: settings[name] for name in ("detrend", "normalize")}
            return [{"step": "alff", **band, **amplitudes}]
        if self.limit is None:
            return []
        return [{"step": "limit_outliers", "n_deviations": self.limit, "over": "subject"}]


class Run(NamedTuple):
    """The series of a run on one hemisphere.

    file : for errors
    series : (n_vertices, n_volumes)
    tr : seconds between volumes
    is_counted : (n_volumes,) False for volumes that ReHo leaves out; None: all count
    """

    file: Path
    series: NDArray[Any]
    tr: float
    is_counted: Bools | None = None


class HemisphereMap(NamedTuple):
    """Values of one hemisphere, and the vertices that have data."""

    values: NDArray[Any]
    is_used: Bools


def map_of_runs(
    runs: Iterable[Run], faces: ArrayLike | None, cortex: Bools, steps: Steps
) -> HemisphereMap:
    """Return the ReHo of all runs together, or the ALFF of the only run.

    `runs` may be an iterator that reads one run after the other: raw series are not kept.
    """
    low, high = steps.ends
    is_used = cortex
    filtered = []
    for run in runs:
        varies = cortex & ~still_vertices(run.series)
        is_used = is_used & varies
        with naming(run.file):
            if steps.kind == "alff":
                detrend = steps.detrend
                values = alff(run.series, run.tr, low, high, detrend, steps.normalize, mask=varies)
                return HemisphereMap(values, varies)
            passed = bandpass(run.series, run.tr, low, high, steps.filter, steps.order, mask=varies)
        filtered.append(passed if run.is_counted is None else passed[:, run.is_counted])
    with naming(run.file):
        joined = concatenate_runs(filtered, mask=is_used)
        # The joined series need as much memory as all runs together.
        filtered.clear()
        assert faces is not None
        values = reho(joined, faces, steps.rings, steps.tie_correction, mask=is_used)
    return HemisphereMap(values, is_used)


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Raise errors about arguments and values as errors about the file."""
    try:
        yield
    except ValueError as error:
        # The readers name the file themselves.
        if isinstance(error, CohortError):
            raise
        raise CohortError(file, str(error)) from error


def still_vertices(series: NDArray[Any]) -> Bools:
    """Return where (n_vertices,) a series is one constant, or NaN throughout."""
    is_still = np.zeros(len(series), dtype=bool)
    for first in range(0, len(series), ROWS_AT_ONCE):
        block = series[first : first + ROWS_AT_ONCE]
        # NaN among numbers equals nothing, so it is not still: the steps that follow refuse it.
        is_constant = (block == block[:, :1]).all(axis=1)
        is_still[first : first + len(block)] = is_constant | np.isnan(block).all(axis=1)
    return is_still


def filled(
    hemisphere: HemisphereMap,
    cortex: Bools,
    faces: ArrayLike,
    side: str,
    problem: str,
    max_missing: float = MAX_MISSING,
) -> tuple[NDArray[Any], int]:
    """Return the map with data at the whole cortex, and how many vertices had none.

    Raises
    ------
    ArgumentError
        If more than the share `max_missing` of the cortex has none; `problem` says what is wrong
        with these vertices, such as "are constant".
    """
    is_missing = cortex & ~hemisphere.is_used
    n_missing = int(is_missing.sum())
    n_cortex = int(cortex.sum())
    # A region without signal, as near the sinuses, must not be made up.
    if n_missing > max_missing * n_cortex:
        first = int(np.flatnonzero(is_missing)[0])
        raise ArgumentError(
            "max_missing",
            f"{n_missing} of {n_cortex} vertices of the {side} cortex {problem}, the first is "
            f"{first}; up to {100 * max_missing:g} % are filled from their neighbours",
        )
    return fill_from_neighbours(hemisphere.values, is_missing, cortex, faces), n_missing


def fill_from_neighbours(
    values: NDArray[Any], is_missing: Bools, cortex: Bools, faces: ArrayLike
) -> NDArray[Any]:
    """Return a map whose missing vertices have the mean of their neighbours in the cortex.

    The rim of a hole is filled first, and its inside from the rim.
    """
    if not is_missing.any():
        return values
    neighbours = ring_incidence(faces, len(values), 1)
    complete = np.where(is_missing, 0.0, values)
    has_value = cortex & ~is_missing
    is_waiting = is_missing.copy()
    while is_waiting.any():
        n_neighbours = neighbours @ has_value.astype(np.float64)
        total = neighbours @ np.where(has_value, complete, 0.0)
        rim = is_waiting & (n_neighbours > 0)
        if not rim.any():
            vertex = int(np.flatnonzero(is_waiting)[0])
            raise ArgumentError("missing", f"vertex {vertex} and all around it have no data")
        complete[rim] = total[rim] / n_neighbours[rim]
        has_value = has_value | rim
        is_waiting = is_waiting & ~rim
    return complete


class FileRecord(NamedTuple):
    """A file that a map was made from, for the provenance."""

    path: str
    sha256: str
    reader: str


@dataclass(frozen=True)
class SubjectMap:
    """The map of a subject, and what the provenance says of it.

    Attributes
    ----------
    hemispheres : side → its map
    records : the files it was made from
    times : seconds between volumes, of every run
    n_filled : vertices without data that were filled
    """

    hemispheres: Mapping[str, HemisphereMap]
    records: list[FileRecord]
    times: tuple[float, ...] = ()
    n_filled: int = 0

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the map as the work folder keeps it."""
        arrays = {
            "times": np.array(self.times, dtype=np.float64),
            "n_filled": np.array(self.n_filled),
            "records": np.array(self.records),
        }
        for side, hemisphere in self.hemispheres.items():
            arrays[f"values_{side}"] = hemisphere.values
            arrays[f"used_{side}"] = hemisphere.is_used
        return arrays

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> SubjectMap:
        """Return the map that `arrays` gave."""
        hemispheres = {
            side: HemisphereMap(arrays[f"values_{side}"], arrays[f"used_{side}"])
            for side in SIDES
            if f"values_{side}" in arrays
        }
        records = [FileRecord(*row) for row in arrays["records"].tolist()]
        times = tuple(arrays["times"].tolist())
        return cls(hemispheres, records, times, int(arrays["n_filled"]))
