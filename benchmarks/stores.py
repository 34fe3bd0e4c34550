"""Fits of large cohort stores from disk, each in a process of its own, with its memory.

    python -m benchmarks.stores FOLDER --subjects 10000 50000    # the stores are made in FOLDER if they are missing
    python -m benchmarks.stores FOLDER --subjects 20 --mesh fsaverage3 --out OUT    # to see that it runs

The default mesh is fsaverage6, as a biobank would have it: a store of 50,000 people takes 8 GB. It needs Linux, which
says how much memory a process had and lets a file be dropped from the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import icofactor as ico
from benchmarks.data import smooth_maps
from benchmarks.measure import Row, run_python, show, timing_row, write_table

N_COMPONENTS = 20
MESH = "fsaverage6"
# People in a store of that mesh → seconds that a fit of it may take.
LIMITS = {10_000: 12, 50_000: 45}
# Largest memory of a fit, in GB.
MEMORY_LIMIT = 2
# Subjects that are simulated at a time while a store is written.
BATCH = 512
FITS = 4


def make_store(path: Path, sites: ico.Sites, n_subjects: int) -> None:
    """Write a simulated store of both hemispheres, float16."""

    def batches() -> Iterator[ico.Cohort]:
        for batch, first in enumerate(range(0, n_subjects, BATCH)):
            last = min(first + BATCH, n_subjects)
            names = tuple(f"s{number:05d}" for number in range(first, last))
            maps = smooth_maps(sites.coordinates, len(names), batch=batch)
            yield ico.Cohort(maps, names, sites, hemisphere="both")

    ico.cohort.create_store(path, batches(), dtype="float16")


def fit_store(path: str) -> None:
    """Fit the store in this process, and print seconds and the peak memory in GB as JSON."""
    store = ico.cohort.open_store(path)
    begin = time.perf_counter()
    ico.CorticalFactorization(N_COMPONENTS, random_state=0).fit(store)
    value = time.perf_counter() - begin
    print(json.dumps({"seconds": value, "GB": peak_memory()}))


def peak_memory() -> float:
    """Return the largest memory of this process so far, in GB.

    Linux alone has it. `resource.getrusage` would also count the process that started this one.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    kibibytes = int(status.partition("VmHWM:")[2].split()[0])
    return kibibytes * 1024 / 1e9


def drop_from_page_cache(path: Path) -> None:
    """Make the next read of the store come from disk."""
    for file in path.rglob("*"):
        if file.is_file():
            with open(file, "rb") as stream:
                os.fsync(stream.fileno())
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def store_rows(folder: Path, mesh: str, n_subjects: int) -> Iterator[Row]:
    """Time fits of one store from disk."""
    path = folder / f"{mesh}-{n_subjects}"
    sites = ico.Sites.named(mesh, hemi="both")
    if not path.exists():
        make_store(path, sites, n_subjects)
    fits = []
    for _ in range(FITS):
        drop_from_page_cache(path)
        program = f"from benchmarks.stores import fit_store; fit_store({str(path)!r})"
        fits.append(json.loads(run_python("-c", program).splitlines()[-1]))
    size = f"{n_subjects:,} × {sites.n:,} float16 from disk, {N_COMPONENTS} parts"
    # The first fit may have compiled something.
    value = statistics.median(fit["seconds"] for fit in fits[1:])
    yield timing_row(size, value, LIMITS.get(n_subjects, "") if mesh == MESH else "")
    peak = max(fit["GB"] for fit in fits)
    yield show({"what": f"{size}: peak memory", "value": peak, "unit": "GB", "limit": MEMORY_LIMIT})


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stores",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where the stores are, or go")
    parser.add_argument(
        "--subjects", type=int, nargs="+", default=list(LIMITS), help="people, store by store"
    )
    parser.add_argument("--mesh", default=MESH)
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results", help="folder for the table"
    )
    options = parser.parse_args()
    rows: list[Row] = []
    for n_subjects in options.subjects:
        rows += store_rows(options.folder, options.mesh, n_subjects)
    write_table(options.out / "stores.tsv", rows)


if __name__ == "__main__":
    main()
