"""How much memory a command needs, for --dry-run: a few constants measured once, not a promise."""

from __future__ import annotations

from collections.abc import Sequence

MiB = 2**20
# Python, its libraries, the blocks in flight, and drawing.
_FIT_BASE = 530 * MiB
# The same of a command that draws nothing.
_PASS_BASE = 220 * MiB
# Components on the sites, their copies in the lift and the maps of the report.
_BYTES_PER_SITE_AND_COMPONENT = 52
# Sums over faces and the blocks being read, of data that stay on disk.
_STORE_SUMS = 400 * MiB
# Time series that are held in memory.
_SERIES = ("reho", "alff")


def fit_memory(
    n_subjects: int, n_sites: int, n_components: int, n_columns: int, *, in_memory: bool
) -> int:
    """Return the bytes that a fit needs.

    Parameters
    ----------
    n_columns : faces at the start of the fit.
    in_memory : whether X is in memory; that of a cohort store stays on disk.
    """
    n_values = n_subjects * n_sites
    # X and the file it comes from; of a store, sums over faces as deep as refinement may go
    data = 8 * n_values if in_memory else min(_STORE_SUMS, 11 * n_values)
    components = _BYTES_PER_SITE_AND_COMPONENT * n_sites * n_components
    statistics = 8 * 3 * n_columns * n_subjects
    return _FIT_BASE + components + statistics + data


def pass_memory(n_subjects: int, n_sites: int, *, in_memory: bool) -> int:
    """Return the bytes that one pass over X needs, as `transform` and `prepare` of any maps make
    it.
    """
    n_values = n_subjects * n_sites
    # files are read into X, of which there is a copy at times
    data = 12 * n_values if in_memory else min(_STORE_SUMS, 12 * n_values)
    return _PASS_BASE + data


def memory_to_write(n_subjects: int, n_sites: int) -> int:
    """Return the bytes that writing a store needs beyond reading another: subjects wait until they
    fill a chunk.
    """
    from icofactor.cohort.store.create import CHUNK_SUBJECTS

    held = 6 * min(n_subjects, CHUNK_SUBJECTS) * n_sites
    return max(0, held - min(_STORE_SUMS, 12 * n_subjects * n_sites))


def hcp_memory(kind: str, sizes: Sequence[Sequence[int]], n_procs: int) -> int:
    """Return the bytes that `prepare` of an HCP tree needs.

    Parameters
    ----------
    sizes : for each map, the sizes in bytes of the files it is made from.
    n_procs : number of subjects at a time.
    """
    n_processes = max(1, min(n_procs, len(sizes)))
    if kind not in _SERIES:
        return n_processes * _PASS_BASE
    # the longest run and what is computed from it, and the other runs as they are joined
    series = [2.2 * max(files) + 1.33 * (sum(files) - max(files)) for files in sizes if files]
    return int(n_processes * (_PASS_BASE + max(series, default=0.0)))


def in_bytes(n: float) -> str:
    """Return a number of bytes as text: 12 kiB, 1.2 GiB."""
    if n >= 2**30:
        return f"{n / 2**30:.1f} GiB"
    if n >= MiB:
        return f"{n / MiB:.0f} MiB"
    return f"{n / 1024:.0f} kiB"
