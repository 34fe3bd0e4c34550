"""One HCP subject: from its files to maps on the target mesh."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import CohortError
from icofactor.preprocessing.alff import alff
from icofactor.preprocessing.bandpass import bandpass, concatenate_runs
from icofactor.preprocessing.hcp import KINDS, Inputs, naming, read_map, read_series
from icofactor.preprocessing.outliers import LIMIT, limit_outliers
from icofactor.preprocessing.projection import Projection
from icofactor.preprocessing.reho import reho
from icofactor.preprocessing.series import checked_tr

Cortex = Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True)
class Steps:
    """What is done to a subject's data.

    Attributes
    ----------
    kind : "thickness", "myelin", "reho" or "alff".
    limit : thickness and myelin: bound of outliers in median absolute deviations, over both hemispheres' cortex;
        None leaves them.
    tr : seconds between volumes; None takes what the file says.
    low, high : the band in Hz.
    filter, order : ReHo's band-pass; see `bandpass`.
    rings, tie_correction : see `reho`.
    detrend, normalize : see `alff`.
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

    def __post_init__(self) -> None:
        """What is wrong for every subject is told before the first is read."""
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {self.kind!r}")
        if self.tr is not None:
            checked_tr(self.tr)
        if not 0 < self.low < self.high:
            raise ValueError(f"the band must have 0 < low < high, in Hz; got low={self.low}, high={self.high}")
        if self.limit is not None and not self.limit > 0:
            raise ValueError(f"n_deviations must be positive; got {self.limit}")
        for name in ("rings", "order"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be a whole number, 1 or more; got {getattr(self, name)!r}")

    def record(self) -> list[dict[str, Any]]:
        """The steps in order, with what concerns each, for the provenance."""
        every = asdict(self)
        band = {"low_hz": self.low, "high_hz": self.high, "tr": "of the file" if self.tr is None else self.tr}
        if self.kind == "reho":
            return [
                {"step": "bandpass", "method": self.filter, "order": self.order, **band},
                {"step": "concatenate_runs", "each_run": "zero mean, unit L2 norm"},
                {"step": "reho", "mesh": "fs_LR 32k", **{key: every[key] for key in ("rings", "tie_correction")}},
            ]
        if self.kind == "alff":
            return [{"step": "alff", **band, **{key: every[key] for key in ("detrend", "normalize")}}]
        return [] if self.limit is None else [{"step": "limit_outliers", "n_deviations": self.limit, "over": "subject"}]


def subject_map(inputs: Inputs, steps: Steps, ways: Mapping[str, Projection], cortex: Cortex) -> NDArray[np.float32]:
    """(n_sites,) map of one subject on the target, the left hemisphere first; for ALFF `inputs` holds one run.

    Raises
    ------
    CohortError, with the name of the file that is missing or wrong.
    """
    if inputs.missing:
        raise CohortError("; ".join(f"{file}: no such file" for file in inputs.missing.values()))
    files = list(inputs.files.values())
    if steps.kind == "alff":
        return _both(ways, _alff, files[0], steps)
    if steps.kind == "reho":
        return _both(ways, _reho, files, steps)
    return _morphometry(files[0], steps, ways, cortex)


def _both(ways: Mapping[str, Projection], compute: Any, *given: Any) -> NDArray[np.float32]:
    """A hemisphere at a time, so that the series of one are held, not of two."""
    return np.concatenate([way(compute(side, way, *given)) for side, way in ways.items()])


def _reho(side: str, way: Projection, files: list[Path], steps: Steps) -> NDArray[np.float64]:
    runs = []
    for file in files:
        series, tr = _series(file, side, steps)
        with naming(file):
            runs.append(bandpass(series, tr, steps.low, steps.high, steps.filter, steps.order, mask=way.roi))
    together = concatenate_runs(runs, mask=way.roi)
    runs.clear()
    return reho(together, way.faces, steps.rings, steps.tie_correction, mask=way.roi)


def _alff(side: str, way: Projection, file: Path, steps: Steps) -> NDArray[np.float64]:
    series, tr = _series(file, side, steps)
    with naming(file):
        return alff(series, tr, steps.low, steps.high, steps.detrend, steps.normalize, mask=way.roi)


def _series(file: Path, side: str, steps: Steps) -> tuple[NDArray[Any], float]:
    series, found = read_series(file, side)
    with naming(file):
        if steps.tr is None and found is None:
            raise CohortError(f"{file}: does not say its repetition time in seconds: pass tr")
        return series, checked_tr(found if steps.tr is None else steps.tr)


def _morphometry(file: Path, steps: Steps, ways: Mapping[str, Projection], cortex: Cortex) -> NDArray[np.float32]:
    maps = read_map(file)
    lacking = [side for side in ways if side not in maps]
    if lacking:
        raise CohortError(f"{file}: has no {' and no '.join(lacking)} cortex")
    # over both hemispheres also when one is asked for: a subject's bounds do not depend on what is looked at
    inside = {side: cortex[side] for side in maps}
    for side, where in inside.items():
        bad = np.flatnonzero(where & ~np.isfinite(maps[side]))
        if len(bad):
            raise CohortError(
                f"{file}: {len(bad)} vertices of the {side} cortex have no finite value, the first is {bad[0]}"
            )
    if steps.limit is not None:
        values = np.concatenate([maps[side][where] for side, where in inside.items()])
        with naming(file):
            limited = limit_outliers(values[None], steps.limit)[0]
        ends = np.cumsum([0, *(int(where.sum()) for where in inside.values())])
        for (side, where), first, last in zip(inside.items(), ends[:-1], ends[1:], strict=True):
            maps[side] = maps[side].copy()
            maps[side][where] = limited[first:last]
    return np.concatenate([way(maps[side]) for side, way in ways.items()])
