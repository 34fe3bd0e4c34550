"""ReHo and ALFF of the real left hemisphere (10242 vertices × 652 volumes): time, memory, what the filter changes.

Usage: ICOFACTOR_TEST_DATA=FOLDER python -m icofactor_lab.docs_tables.preprocessing_speed
With --hcp: on noise of the size of an HCP subject's hemisphere instead (32492 vertices, four runs of 1200 volumes).
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.preprocessing import alff, reho
from icofactor.preprocessing.temporal import bandpass, concatenate_runs
from icofactor.sphere.sites import Sites


def timed(what: str, call: Callable[[], Any]) -> Any:
    begin, busy = time.perf_counter(), time.process_time()
    answer = call()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    took = f"{time.perf_counter() - begin:6.2f} s ({time.process_time() - busy:.2f} s of processor)"
    print(f"{what:<28}{took}, peak memory so far {peak:.2f} GiB")
    return answer


def real(folder: Path) -> None:
    with np.load(folder / "rest_fsaverage5_left.npz") as archive:
        series = archive["lh"]
    faces = Sites.named("fsaverage5").triangles
    assert faces is not None
    timed("ReHo, three rings", lambda: reho(series, faces, rings=3))
    smooth = timed("band-pass, Butterworth", lambda: bandpass(series, 1.4))
    sharp = timed("band-pass, FFT", lambda: bandpass(series, 1.4, method="fft"))
    timed("ALFF", lambda: alff(series, 1.4))
    maps = [reho(filtered, faces) for filtered in (smooth, sharp)]
    cortex = maps[0] > 0
    print(f"ReHo after either filter: medians {[round(float(np.median(one[cortex])), 3) for one in maps]},", end=" ")
    print(f"correlation over the cortex {np.corrcoef(maps[0][cortex], maps[1][cortex])[0, 1]:.3f}")


def hcp(sphere: Path) -> None:
    from icofactor.io.surfaces import read_surface

    _, faces = read_surface(sphere)
    rng = np.random.default_rng(0)
    runs = [rng.standard_normal((32492, 1200), dtype=np.float32) for _ in range(4)]
    for number in range(4):
        runs[number] = timed(f"band-pass of run {number + 1}", lambda run=runs[number]: bandpass(run, 0.72))
    together = timed("runs together", lambda: concatenate_runs(runs))
    timed("ReHo, three rings", lambda: reho(together, faces))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hcp", action="store_true")
    folder = Path(os.environ["ICOFACTOR_TEST_DATA"])
    if parser.parse_args().hcp:
        hcp(folder / "resample" / "L.sphere.32k_fs_LR.surf.gii")
    else:
        real(folder)


if __name__ == "__main__":
    main()
