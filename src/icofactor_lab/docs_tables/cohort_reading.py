"""How fast `load_cohort` reads 200 simulated subjects, both hemispheres of fsaverage5, from each format.

    python -m icofactor_lab.docs_tables.cohort_reading

Files are written to a temporary folder just before, so they come from the page cache. Prints seconds (best of three)
and the most memory that was allocated at a time.
"""

from __future__ import annotations

import sys
import tempfile
import tracemalloc
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import icofactor as ico
from helpers.trees import cifti_files, freesurfer_tree, gifti_files, hemispheres, write_npz

MB = 1e6


def main() -> None:
    """Write, read, print."""
    cohort = ico.simulate_cohort(200, hemisphere="both")
    maps, names = hemispheres(cohort.X), list(cohort.subjects)
    size = cohort.X.nbytes / MB
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        places = {
            "FreeSurfer tree, mgh": freesurfer_tree(place / "mgh", names, maps),
            "FreeSurfer tree, mgz": freesurfer_tree(place / "mgz", names, maps, ending="mgz"),
            "GIFTI, gzip": gifti_files(place / "gii", names, maps),
            "CIFTI dscalar": cifti_files(place / "cii", names, maps),
            "npz, compressed": write_npz(place / "thickness.npz", names, maps),
        }
        del cohort, maps
        for name, paths in places.items():
            times = []
            for _ in range(3):
                start = perf_counter()
                ico.load_cohort(paths)
                times.append(perf_counter() - start)
            tracemalloc.start()
            ico.load_cohort(paths)
            peak = tracemalloc.get_traced_memory()[1] / MB
            tracemalloc.stop()
            print(f"{name:22s} {min(times):5.2f} s, {peak:3.0f} MB at most (X has {size:.0f})")


if __name__ == "__main__":
    main()
