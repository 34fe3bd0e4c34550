"""How far resampling and smoothing are from Connectome Workbench's stored output, and how long they take.

Usage: ICOFACTOR_TEST_DATA=FOLDER python -m icofactor_lab.docs_tables.workbench_agreement
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.preprocessing.resampling import Resampler
from icofactor.preprocessing.smoothing import SurfaceSmoother
from icofactor.preprocessing.templates import find_meshes
from icofactor.sphere.sites import Sites

MESHES = {"fs4": "fsaverage4", "fs5": "fsaverage5", "fs6": "fsaverage6", "fslr32k": "fsLR32k"}
METHODS = {"adap": "adaptive", "bary": "barycentric"}


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return call(), time.process_time() - start


def resampler(folder: Path, side: str, source: str, target: str, method: str, roi: Any = None) -> Resampler:
    old, new = find_meshes(folder / "resample", side, (source, target))
    return Resampler(old.sphere, new.sphere, method, old.areas, new.areas, roi)


def pair(folder: Path, stored: dict[str, np.ndarray], name: str) -> None:
    """One line: the stored pair `name`, e.g. myelin_fslr32k_to_fs5.adap_roi_lh."""
    route, kind = name.split(".")
    method, roi, h = kind.split("_")
    source, target = (part.split("_")[-1] for part in route.split("_to_"))
    given = stored[f"{route.split('_')[0]}_32k_{h}" if source == "fslr32k" else f"input_thickness_{h}"]
    region = None if roi == "noroi" else stored[f"roi_32k_{h}" if source == "fslr32k" else f"cortex_{h}"]
    side = {"lh": "left", "rh": "right"}[h]
    one, build = timed(resampler(folder, side, MESHES[source], MESHES[target], METHODS[method], region).fit)
    found, apply = timed(lambda: one(given))
    off = np.abs(found - stored[name])
    report(name, off, f"weights {build:5.2f} s, one map {1000 * apply:5.1f} ms")


def report(name: str, off: np.ndarray, times: str) -> None:
    beyond = np.count_nonzero(off > 3e-4)
    print(f"{name:<38} largest {off.max():8.1e}, without {beyond} vertices {np.sort(off)[-1 - beyond]:8.1e}; {times}")


def main() -> None:
    folder = Path(os.environ["ICOFACTOR_TEST_DATA"])
    with np.load(folder / "wb_reference" / "wb_command_1.5.0_reference.npz") as archive:
        stored = {name: archive[name] for name in archive.files}
    with np.load(folder / "thickness_fsaverage5_n200.npz") as archive:
        stored["cortex_lh"], stored["cortex_rh"] = np.split(archive["cortex"], 2)
    for name in sorted(name for name in stored if "_to_fs" in name and "." in name):
        pair(folder, stored, name)
    for h in ("lh", "rh"):
        surface = stored[f"midthickness_{h}"], Sites.named("fsaverage5").triangles
        one, build = timed(SurfaceSmoother(surface, sigma=4.2466, roi=stored[f"cortex_{h}"]).fit)
        found, apply = timed(lambda one=one, h=h: one(stored[f"input_thickness_{h}"]))
        off = np.abs(found - stored[f"smooth_sigma4.2466_{h}"])
        report(f"smoothing, sigma 4.2466 mm, {h}", off, f"weights {build:5.2f} s, one map {1000 * apply:5.1f} ms")
    for source, target in (("fslr32k", "fs6"), ("fs6", "fslr32k")):
        _, build = timed(resampler(folder, "left", MESHES[source], MESHES[target], "adaptive").fit)
        print(f"{source} to {target}, adaptive: weights {build:.2f} s")
    maps = np.random.default_rng(0).uniform(size=(1000, 32492)).astype(np.float32)
    one = resampler(folder, "left", "fsLR32k", "fsaverage5", "adaptive").fit()
    print(f"1000 maps, fslr32k to fs5: {timed(lambda: one(maps))[1]:.2f} s")


if __name__ == "__main__":
    main()
