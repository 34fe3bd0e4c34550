"""The speeds that a change of icofactor must keep.

    python -m benchmarks.speeds                                       # all but the large store, about two minutes
    python -m benchmarks.speeds --store FOLDER                        # the large store too; made there if it is missing
    python -m benchmarks.speeds --store FOLDER --subjects 10000 50000
    python -m benchmarks.speeds --save benchmarks/results/speeds.tsv

Run it on idle cores. Every time stands beside its ratio to a product of two 1500 × 1500 matrices, measured just before:
the ratios of two runs can be compared, seconds only on one machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import icofactor as ico
from benchmarks.data import both_hemispheres, left_faces, smooth_maps
from benchmarks.measure import Row, elapsed, product_seconds, seconds, show, write_table

# People and components of the large store: the size of a biobank on fsaverage6.
STORE_SUBJECTS = 10_000
STORE_COMPONENTS = 20
# People in the large store → seconds that a fit of it may take.
STORE_LIMITS = {10_000: 12, 50_000: 45}
# Subjects that are simulated at a time while the store is written.
STORE_BATCH = 512
# Operations of the matrix product to which everything is compared.
PRODUCT_OPERATIONS = 2 * 1500**3


def run(quick: bool) -> list[Row]:
    """Measure everything but the large store."""
    rows = [
        *product_rows(),
        *fit_rows(quick),
        *update_rows(quick),
        *selection_rows(quick),
        *process_rows(quick),
    ]
    return list(rows)


def timing_row(label: str, value: float, limit: float | str = "") -> Row:
    """Return a time, its ratio to a matrix product now, and the limit that it must keep."""
    return show(
        {
            "what": label,
            "value": value,
            "unit": "s",
            "products": value / product_seconds(),
            "limit": limit,
        }
    )


def product_rows() -> Iterator[Row]:
    """Measure the machine."""
    yield show(
        {"what": "dgemm", "value": PRODUCT_OPERATIONS / product_seconds() / 1e9, "unit": "GFLOP/s"}
    )


def fit_rows(quick: bool) -> Iterator[Row]:
    """Time whole fits of people in memory."""
    n_people = 12 if quick else 100
    mesh = "fsaverage3" if quick else "fsaverage5"
    cohort = both_hemispheres(n_people, mesh)
    default = seconds(lambda: ico.CorticalFactorization(10, random_state=0).fit(cohort))
    # 1.2 × the 0.2 to 0.3 s of version 0.1.0
    yield timing_row(f"default fit, {n_people} people, both hemispheres of {mesh}", default, 0.36)
    maps, faces = left_faces(n_people, mesh)
    descent = seconds(
        lambda: ico.CorticalFactorization(10, method="CD-PNNMF", mesh=faces, random_state=0).fit(
            maps
        ),
        repeats=9,
    )
    yield timing_row(f"CD-PNNMF, {faces.n:,} faces × {n_people} people", descent, 0.2)


def update_rows(quick: bool) -> Iterator[Row]:
    """Time 1000 starts × 1000 updates of the paper: 20 dense columns, 10 components, 100 people."""
    n_starts = 20 if quick else 1000
    sites = ico.Sites.icosphere(4, on="faces")
    maps = smooth_maps(sites.coordinates, 100)
    stats = ico.Statistics.from_data(maps.T, ico.Design(sites, "smooth", 0))

    def updates() -> None:
        ico.multistart(
            stats,
            "PNNMF",
            10,
            n_starts=n_starts,
            n_iter=1000,
            rules="paper",
            engine="cpu",
            random_state=0,
        )

    value = seconds(updates, repeats=3)
    row = timing_row(f"{n_starts * 1000:,} updates of PNNMF, paper's rules, compiled", value)
    yield row
    operations = n_starts * 1000 * update_operations(20, 10, 100)
    fraction = operations / (row["products"] * PRODUCT_OPERATIONS)
    yield show(
        {"what": "the same as a fraction of dgemm", "value": fraction, "limit": "at least 0.35"}
    )


def update_operations(n_columns: int, n_components: int, n_subjects: int) -> int:
    """Count the operations of one PNNMF update with a dense K, a product of m × k by k × n as 2mkn.

    C Cᵀ and Bᵀ K B are symmetric: only one triangle counts. K B is made once per update.
    """
    products_with_L = 2 * (2 * n_subjects * n_columns * n_components)
    grams = (n_subjects + n_columns) * n_components * (n_components + 1)
    products_with_K = 2 * n_columns * n_columns * n_components
    products_with_grams = 2 * (n_columns + n_subjects) * n_components**2
    quotients = 4 * (n_columns + n_subjects) * n_components
    error = 2 * n_columns * n_components + 2 * n_components**2
    return products_with_L + grams + products_with_K + products_with_grams + quotients + error


def selection_rows(quick: bool) -> Iterator[Row]:
    """Time the choice of the number of components."""
    n_people = 20 if quick else 200
    ranks = range(2, 4) if quick else range(2, 21)
    cohort = both_hemispheres(n_people, "fsaverage3" if quick else "fsaverage5")
    if not quick:
        # Compile, or load what is compiled, before the clock starts.
        ico.choose_n_components(both_hemispheres(20, "fsaverage3"), range(2, 4))
    value = elapsed(lambda: ico.choose_n_components(cohort, ranks))
    yield timing_row(f"selection of {ranks[0]} to {ranks[-1]} on {n_people} people", value, 45)


def process_rows(quick: bool) -> Iterator[Row]:
    """Time the import, over that of numpy, and the demo, each in processes of its own."""
    repeats = 1 if quick else 9
    with_icofactor = seconds(lambda: run_python("-c", "import numpy, icofactor"), repeats)
    numpy_alone = seconds(lambda: run_python("-c", "import numpy"), repeats)
    yield timing_row("import over numpy's", with_icofactor - numpy_alone, 0.1)
    size = ["--n-subjects", "12", "--n-components", "2", "--no-figures"] if quick else []
    with tempfile.TemporaryDirectory() as folder:
        demo = ("-m", "icofactor", "demo", folder, "--overwrite", *size)
        value = seconds(lambda: run_python(*demo), repeats=1 if quick else 3)
    yield timing_row("icofactor demo", value, 10)


def run_python(*arguments: str) -> str:
    """Run Python in a process of its own; return what it prints."""
    return subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True
    ).stdout


# The large store


def make_store(path: Path, n_subjects: int) -> None:
    """Write a simulated store of fsaverage6, both hemispheres, float16."""
    sites = ico.Sites.named("fsaverage6", hemi="both")

    def batches() -> Iterator[ico.Cohort]:
        for batch, first in enumerate(range(0, n_subjects, STORE_BATCH)):
            last = min(first + STORE_BATCH, n_subjects)
            names = tuple(f"s{number:05d}" for number in range(first, last))
            maps = smooth_maps(sites.coordinates, len(names), batch=batch)
            yield ico.Cohort(maps, names, sites, hemisphere="both")

    ico.cohort.create_store(path, batches(), dtype="float16")


def fit_store(path: Path) -> dict[str, float]:
    """Fit the store in this process; return seconds and the peak memory in GB."""
    store = ico.cohort.open_store(path)
    begin = time.perf_counter()
    ico.CorticalFactorization(STORE_COMPONENTS, random_state=0).fit(store)
    value = time.perf_counter() - begin
    return {"seconds": value, "GB": peak_memory()}


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


def store_rows(folder: Path, n_subjects: int) -> Iterator[Row]:
    """Time fits of the large store from disk, each in a process of its own."""
    path = folder / f"fsaverage6-{n_subjects}"
    if not path.exists():
        make_store(path, n_subjects)
    fits = []
    for _ in range(4):
        drop_from_page_cache(path)
        output = run_python("-m", "benchmarks.speeds", "--fit-store", str(path))
        fits.append(json.loads(output.splitlines()[-1]))
    size = f"{n_subjects:,} × 81,924 float16 from disk, {STORE_COMPONENTS} parts"
    # The first fit may have compiled something.
    value = statistics.median(fit["seconds"] for fit in fits[1:])
    yield timing_row(size, value, STORE_LIMITS.get(n_subjects, ""))
    peak = max(fit["GB"] for fit in fits)
    yield show({"what": f"{size}: peak memory", "value": peak, "unit": "GB", "limit": 2})


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speeds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--store", type=Path, help="folder of the large store")
    parser.add_argument(
        "--subjects",
        type=int,
        nargs="+",
        default=[STORE_SUBJECTS],
        help="people in the large store, or in several",
    )
    parser.add_argument("--save", type=Path, help="table to write")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: to see that everything runs"
    )
    parser.add_argument("--fit-store", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit_store:
        print(json.dumps(fit_store(options.fit_store)))
        return
    rows = run(options.quick)
    if options.store:
        for n_subjects in options.subjects:
            rows += store_rows(options.store, n_subjects)
    if options.save:
        write_table(options.save, rows)


if __name__ == "__main__":
    main()
