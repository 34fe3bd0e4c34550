"""How fast a cohort store is written and read, by chunk and codec: `python -m icofactor_lab.docs_tables.cohort_store`.

The maps are the real thickness of $ICOFACTOR_TEST_DATA, repeated with other scales; its noise compresses as real
noise does. The files are in the page cache, so the figures are those of zarr, the codec and memory, not of a disk.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

from icofactor.cohort.cohort import Cohort
from icofactor.cohort.store.create import append_store, create_store
from icofactor.cohort.store.read import open_store
from icofactor.sphere.sites import Sites

N_SITES, N_SUBJECTS, REPEATS = 81920, 1000, 3
CHUNKS = [(4096, 128), (2048, 256), (8192, 64), (4096, 256), (8192, 256)]
CODECS: dict[str, list[Any] | None] = {
    "none": None,
    "crc32c": [Crc32cCodec()],
    "lz4, shuffle": [BloscCodec(cname="lz4", clevel=1, shuffle="shuffle")],
    "lz4, bitshuffle": [BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle")],
    "zstd": [ZstdCodec(level=0)],
}


def maps() -> np.ndarray:
    """Sites × subjects."""
    with np.load(Path(os.environ["ICOFACTOR_TEST_DATA"]) / "thickness_fsaverage5_n200.npz") as archive:
        real = np.ascontiguousarray(archive["thickness"].T[:20480])
    rng = np.random.default_rng(0)
    scales = 1 + 0.01 * rng.standard_normal((4, 5, 1, 200), dtype=np.float32)
    return np.block([[real * scales[i, j] for j in range(5)] for i in range(4)])


def through_zarr(X: np.ndarray, folder: Path, chunks: tuple[int, int], codecs: list[Any] | None) -> str:
    array = zarr.create_array(folder, shape=X.shape, chunks=chunks, dtype="float32", compressors=codecs, fill_value=0)
    start = time.perf_counter()
    for first in range(0, X.shape[1], chunks[1]):
        array[:, first : first + chunks[1]] = X[:, first : first + chunks[1]]
    written = time.perf_counter() - start
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    array = zarr.open_array(folder, mode="r")
    best = min(_timed(lambda: [array[i : i + chunks[0]] for i in range(0, len(X), chunks[0])]) for _ in range(REPEATS))
    shutil.rmtree(folder)
    return (
        f"write {X.nbytes / written / 1e9:.2f} GB/s, read {X.nbytes / best / 1e9:.2f} GB/s, size {size / X.nbytes:.2f}"
    )


def through_store(X: np.ndarray, folder: Path) -> str:
    sites = Sites.named("fsaverage6", on="faces")
    cohorts = (
        Cohort(X[:, first : first + 50].T, [f"s{first + i}" for i in range(50)], sites)
        for first in range(0, N_SUBJECTS, 50)
    )
    start = time.perf_counter()
    stored = create_store(folder, cohorts)
    written = time.perf_counter() - start

    def one_pass() -> None:
        for where in stored.site_blocks():
            stored.read_sites(where)

    best = min(_timed(one_pass) for _ in range(REPEATS))
    return f"write {X.nbytes / written / 1e9:.2f} GB/s (with fsync), read {X.nbytes / best / 1e9:.2f} GB/s"


def memory(folder: Path) -> str:
    """Peak of resident memory over that before, while 2000 subjects of fsaverage5 are written and appended."""
    sites, rng = Sites.named("fsaverage5", hemi="both"), np.random.default_rng(0)

    def cohorts(first: int, last: int) -> Iterator[Cohort]:
        for number in range(first, last, 20):
            names = [f"s{number + i}" for i in range(20)]
            yield Cohort(rng.random((20, sites.n), dtype=np.float32), names, sites, hemisphere="both")

    create_store(folder, cohorts(0, 20))  # what is loaded and made once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    create_store(folder, cohorts(0, 1000), overwrite=True)
    append_store(folder, cohorts(1000, 2000))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    start = time.perf_counter()
    stored = open_store(folder)
    opened = time.perf_counter() - start
    size = 4 * stored.X.shape[0] * stored.X.shape[1]
    return f"{size / 1e6:.0f} MB written with {grown / 1e3:.0f} MB more memory; opened in {1000 * opened:.0f} ms"


def _timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(f"2000 subjects of fsaverage5: {memory(Path(place) / 'm.zarr')}")
        X = maps()
        for name, codecs in CODECS.items():
            for chunks in CHUNKS if name in ("none", "crc32c") else [(4096, 256)]:
                print(f"{name:16s} {chunks[0]} × {chunks[1]}: {through_zarr(X, Path(place) / 'a', chunks, codecs)}")
        print(f"cohort store: {through_store(X, Path(place) / 's.zarr')}")
