"""How fast cohorts are read: `load_cohort` from each format, and cohort stores by chunk and codec.

    python -m icofactor_lab.docs_tables.cohorts reading     (in a checkout: it uses helpers of the tests)
    python -m icofactor_lab.docs_tables.cohorts store       (needs ICOFACTOR_TEST_DATA)

All files are in the page cache, so the figures are those of the reader, the codec and memory, not of a disk. The maps
of `store` are real thickness repeated with other scales; its noise compresses as real noise does.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

import icofactor as ico
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.store.create import CHUNK_SITES, CHUNK_SUBJECTS, append_store, create_store
from icofactor.cohort.store.read import open_store
from icofactor.sphere.sites import Sites
from icofactor_lab.common.data import thickness_arrays
from icofactor_lab.common.timing import peak_bytes, timed
from icofactor_lab.docs_tables import from_tests, run_task

MB = 1e6
N_SITES, N_SUBJECTS, REPEATS = 81920, 1000, 3
CHUNKS = [(1024, 256), (1024, 512), (2048, 256), (4096, 256), (8192, 256)]
CODECS: dict[str, list[Any] | None] = {
    "none": None,
    "crc32c": [Crc32cCodec()],
    "lz4, shuffle": [BloscCodec(cname="lz4", clevel=1, shuffle="shuffle")],
    "lz4, bitshuffle": [BloscCodec(cname="lz4", clevel=5, shuffle="bitshuffle")],
    "zstd": [ZstdCodec(level=0)],
}


def maps() -> np.ndarray:
    """Sites × subjects: real thickness, repeated with other scales."""
    real = np.ascontiguousarray(thickness_arrays()[0].T[:20480])
    rng = np.random.default_rng(0)
    scales = 1 + 0.01 * rng.standard_normal((4, 5, 1, 200), dtype=np.float32)
    return np.block([[real * scales[i, j] for j in range(5)] for i in range(4)])


def through_zarr(X: np.ndarray, folder: Path, chunks: tuple[int, int], codecs: list[Any] | None) -> str:
    array = zarr.create_array(folder, shape=X.shape, chunks=chunks, dtype="float32", compressors=codecs, fill_value=0)

    def write() -> None:
        for first in range(0, X.shape[1], chunks[1]):
            array[:, first : first + chunks[1]] = X[:, first : first + chunks[1]]

    _, written = timed(write)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    array = zarr.open_array(folder, mode="r")
    best = _best(lambda: [array[i : i + chunks[0]] for i in range(0, len(X), chunks[0])])
    shutil.rmtree(folder)
    return (
        f"write {X.nbytes / written / 1e9:.2f} GB/s, read {X.nbytes / best / 1e9:.2f} GB/s, size {size / X.nbytes:.2f}"
    )


def through_store(X: np.ndarray, folder: Path) -> str:
    sites = Sites.named("fsaverage6", on="faces")
    cohorts = (
        Cohort(X[:, first : first + 50].T, tuple(f"s{first + i}" for i in range(50)), sites)
        for first in range(0, N_SUBJECTS, 50)
    )
    stored, written = timed(lambda: create_store(folder, cohorts))

    def one_pass() -> None:
        for where in stored.site_blocks():
            stored.read_sites(where)

    best = _best(one_pass)
    return f"write {X.nbytes / written / 1e9:.2f} GB/s (with fsync), read {X.nbytes / best / 1e9:.2f} GB/s"


def memory(folder: Path) -> str:
    """Peak of resident memory over that before, while 2000 subjects of fsaverage5 are written and appended."""
    sites, rng = Sites.named("fsaverage5", hemi="both"), np.random.default_rng(0)

    def cohorts(first: int, last: int) -> Iterator[Cohort]:
        for number in range(first, last, 20):
            names = tuple(f"s{number + i}" for i in range(20))
            yield Cohort(rng.random((20, sites.n), dtype=np.float32), names, sites, hemisphere="both")

    create_store(folder, cohorts(0, 20))  # what is loaded and made once
    before = peak_bytes()
    create_store(folder, cohorts(0, 1000), overwrite=True)
    append_store(folder, cohorts(1000, 2000))
    grown = peak_bytes() - before
    stored, opened = timed(lambda: open_store(folder))
    size = 4 * stored.X.shape[0] * stored.X.shape[1]
    return f"{size / 1e6:.0f} MB written with {grown / 1e6:.0f} MB more memory; opened in {1000 * opened:.0f} ms"


def _best(work: Callable[[], Any]) -> float:
    return min(timed(work)[1] for _ in range(REPEATS))


def store(options: argparse.Namespace) -> None:
    """Cohort stores by chunk and codec: speed of writing and reading, size, memory."""
    with tempfile.TemporaryDirectory() as place:
        print(f"2000 subjects of fsaverage5: {memory(Path(place) / 'm.zarr')}")
        X = maps()
        for name, codecs in CODECS.items():
            for chunks in CHUNKS if name in ("none", "crc32c") else [(CHUNK_SITES, CHUNK_SUBJECTS)]:
                print(f"{name:16s} {chunks[0]} × {chunks[1]}: {through_zarr(X, Path(place) / 'a', chunks, codecs)}")
        print(f"cohort store: {through_store(X, Path(place) / 's.zarr')}")


def reading(options: argparse.Namespace) -> None:
    """`load_cohort` of 200 simulated subjects, both hemispheres of fsaverage5: seconds, and most memory allocated."""
    trees = from_tests("helpers.trees")
    cohort = ico.simulate_cohort(200, hemisphere="both")
    maps, names = trees.hemispheres(cohort.X), list(cohort.subjects)
    size = cohort.X.nbytes / MB
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        places = {
            "FreeSurfer tree, mgh": trees.freesurfer_tree(place / "mgh", names, maps),
            "FreeSurfer tree, mgz": trees.freesurfer_tree(place / "mgz", names, maps, ending="mgz"),
            "GIFTI, gzip": trees.gifti_files(place / "gii", names, maps),
            "CIFTI dscalar": trees.cifti_files(place / "cii", names, maps),
            "npz, compressed": trees.write_npz(place / "thickness.npz", names, maps),
        }
        del cohort, maps
        for name, paths in places.items():
            seconds = _best(lambda paths=paths: ico.load_cohort(paths))  # type: ignore[misc]
            tracemalloc.start()
            ico.load_cohort(paths)
            peak = tracemalloc.get_traced_memory()[1] / MB
            tracemalloc.stop()
            print(f"{name:22s} {seconds:5.2f} s, {peak:3.0f} MB at most (X has {size:.0f})")


def main() -> None:
    run_task(__doc__, {reading: {}, store: {}})


if __name__ == "__main__":
    main()
