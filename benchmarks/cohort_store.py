"""How fast a cohort store is written and read, by chunk and codec: `python benchmarks/cohort_store.py`.

The maps are the real thickness of $ICOFACTOR_TEST_DATA, repeated with other scales; its noise compresses as real
noise does. The files are in the page cache, so the figures are those of zarr, the codec and memory, not of a disk.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

from icofactor.cohort import Cohort, create_store
from icofactor.sphere import Sites

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


def _timed(work: Any) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    X = maps()
    with tempfile.TemporaryDirectory() as place:
        for name, codecs in CODECS.items():
            for chunks in CHUNKS if name in ("none", "crc32c") else [(4096, 256)]:
                print(f"{name:16s} {chunks[0]} × {chunks[1]}: {through_zarr(X, Path(place) / 'a', chunks, codecs)}")
        print(f"cohort store: {through_store(X, Path(place) / 's.zarr')}")
