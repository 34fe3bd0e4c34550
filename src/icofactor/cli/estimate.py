"""How much memory and time a fit needs, before it is made: a few lines measured once, not a promise.

Seconds are those of two cores of an AMD EPYC (dgemm 100 GFLOP/s on both).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MiB = 2**20
_BASE = 530 * MiB
"""Python, its libraries, the blocks in flight, and drawing."""
_BYTES_PER_SITE_COMPONENT = 52
_SUMS = 400 * MiB
"""Sums over faces and the parts being read, of data that are not held."""
_SECONDS_PER_VALUE = 35e-9
"""Statistics and lift, one pass over X each."""
_SECONDS_PER_LOOK = 15e-9
"""The first pass, which z-scores make twice."""
_SECONDS_PER_VALUE_POLISH = 15e-9
_SECONDS_PER_VALUE_DIAGNOSTICS = 60e-9
_SECONDS_PER_VALUE_TILES = 5e-9
"""All three passes over a large store whose values are worked on as they are stored."""
_SECONDS_PER_PASS_TILES = 3e-9
"""One pass of these."""
_SECONDS_PER_VALUE_ADJUSTED = 13e-9
"""More passes before these, for covariates and harmonization, and what they add to each."""
_SECONDS_PER_VALUE_STORED = 15e-9
"""One pass over a store that is not."""
_OPERATIONS_PER_SECOND = 6e9
_FIXED_SECONDS = 0.3
_UPDATES_DESCENT, _UPDATES_PARTS, _UPDATES_OTHER = 150, 40, 1000
"""Updates of a start until it settles to the default tolerance."""
_SWEEPS_HARD = 10
"""Sweeps until a partition of the faces stays."""
_LEAST, _START_SECONDS = 220 * MiB, 2.0
"""Of a command that draws nothing."""
_SECONDS_PER_BYTE = {"reho": 22e-9, "alff": 4.5e-9}
"""Of series, per hemisphere on one core (one run of 1200 volumes, both hemispheres: 13.8 s and 4.5 s in all)."""
_SECONDS_PER_MAP = 0.1


@dataclass(frozen=True)
class Estimate:
    """What a fit needs.

    Attributes
    ----------
    memory : bytes at most in use.
    seconds : of the fit and its diagnostics, without reading and drawing.
    """

    memory: int
    seconds: float


@dataclass(frozen=True)
class Size:
    """The size of a fit: data, components, faces at the start, starts that are run, partitions that starts are chosen
    from, passes before the starts, sweeps of polish, and how the updates go."""

    n_subjects: int
    n_sites: int
    n_components: int
    n_columns: int = 320
    n_starts: int = 5
    n_hard_starts: int = 0
    n_looks: int = 1
    polish: int = 0
    descent: bool = True
    n_iter: int = 3000
    tol: float = 1e-5


def estimate(size: Size, *, in_memory: bool = True, tiles: bool = False, adjusted: bool = False) -> Estimate:
    """Memory and time of a fit; `in_memory` is whether X is (a cohort store is not), `tiles` whether it is a large
    store in tiles, `adjusted` whether covariates or scanners are taken out."""
    n, k, columns = size.n_subjects, size.n_components, size.n_columns
    values = n * size.n_sites
    memory = _BASE + _BYTES_PER_SITE_COMPONENT * size.n_sites * k + 8 * 3 * columns * n
    # X and the file it comes from; of a store, sums over faces as deep as refinement may go
    memory += 8 * values if in_memory else min(_SUMS, 11 * values)
    usual = _UPDATES_DESCENT if size.descent else _UPDATES_PARTS if size.n_hard_starts else _UPDATES_OTHER
    updates = size.n_starts * (size.n_iter if size.tol == 0 else min(usual, size.n_iter))
    sweeps = 24 if size.descent else 4
    rows = min(n, columns) if size.n_hard_starts else n  # parts of more people than faces need their products only
    operations = updates * (4 * columns * rows * k + sweeps * (columns + rows) * k * k)
    operations += size.n_hard_starts * _SWEEPS_HARD * 4 * columns * rows * k
    passes = size.n_looks * _SECONDS_PER_LOOK + _SECONDS_PER_VALUE - _SECONDS_PER_LOOK
    in_tiles = _SECONDS_PER_VALUE_TILES + (size.n_looks - 1) * _SECONDS_PER_PASS_TILES
    passes = in_tiles if tiles else passes + _SECONDS_PER_VALUE_DIAGNOSTICS
    passes += _SECONDS_PER_VALUE_ADJUSTED * adjusted
    passes += size.polish * _SECONDS_PER_VALUE_POLISH
    seconds = _FIXED_SECONDS + operations / _OPERATIONS_PER_SECOND + values * passes
    return Estimate(memory, seconds)


def estimate_pass(
    n_subjects: int, n_sites: int, *, in_memory: bool = True, tiles: bool = False, more: int = 0
) -> Estimate:
    """The same of work that takes one pass over X and draws nothing: `transform`, or `prepare` of any maps; `more`
    bytes are in memory besides."""
    values = n_subjects * n_sites
    # files are read into X, of which there is a copy at times
    memory = _LEAST + (12 * values if in_memory else min(_SUMS, 12 * values)) + more
    stored = _SECONDS_PER_PASS_TILES if tiles else _SECONDS_PER_VALUE_STORED
    return Estimate(memory, _START_SECONDS + (_SECONDS_PER_VALUE if in_memory else stored) * values)


def writing(n_subjects: int, n_sites: int, itemsize: int) -> int:
    """Bytes that writing a store takes beyond those of reading another: subjects wait until they fill the width of a
    file, and two bytes per value are compared with the values that they were rounded from."""
    from icofactor.cohort.store.create import CHUNK_SUBJECTS

    held = (6 if itemsize == 4 else 10) * min(n_subjects, CHUNK_SUBJECTS) * n_sites
    return max(0, held - min(_SUMS, 12 * n_subjects * n_sites))


def estimate_prepare(kind: str, tasks: Sequence[Sequence[int]], n_hemispheres: int, n_procs: int) -> Estimate:
    """The same of `prepare` of an HCP tree.

    Parameters
    ----------
    tasks : for each map to be made the sizes in bytes of the files it is made from.
    """
    n_procs = max(1, min(n_procs, len(tasks)))
    if kind not in _SECONDS_PER_BYTE:
        return Estimate(n_procs * _LEAST, _START_SECONDS + _SECONDS_PER_MAP * len(tasks) / n_procs)
    most = max((2.2 * max(sizes) + 1.33 * (sum(sizes) - max(sizes)) for sizes in tasks if sizes), default=0.0)
    seconds = _SECONDS_PER_BYTE[kind] * n_hemispheres * sum(map(sum, tasks)) / n_procs
    return Estimate(int(n_procs * (_LEAST + most)), _START_SECONDS + seconds)


def seconds_to_check(n_values: int) -> float:
    """Time that looking at every value takes when files are read."""
    return 30e-9 * n_values


def in_bytes(n: float) -> str:
    """12 kiB, 1.2 GiB."""
    if n >= 2**30:
        return f"{n / 2**30:.1f} GiB"
    return f"{n / MiB:.0f} MiB" if n >= MiB else f"{n / 1024:.0f} kiB"


def in_seconds(seconds: float) -> str:
    """3 s, 12 min, 2.5 h."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
