"""Preprocessing: how far it is from Connectome Workbench's stored output, how long it takes, what the filter changes.

    ICOFACTOR_TEST_DATA=... python -m icofactor_lab.docs_tables.preprocessing speed
    ICOFACTOR_TEST_DATA=... python -m icofactor_lab.docs_tables.preprocessing speed --hcp
    ICOFACTOR_TEST_DATA=... python -m icofactor_lab.docs_tables.preprocessing workbench
    ICOFACTOR_TEST_DATA=... python -m icofactor_lab.docs_tables.preprocessing definitions
    ICOFACTOR_TEST_DATA=... python -m icofactor_lab.docs_tables.preprocessing registration

`speed`: ReHo and ALFF of the real left hemisphere (10242 vertices × 652 volumes); with --hcp on noise of the size of
an HCP subject's hemisphere (32492 vertices, four runs of 1200 volumes).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.preprocessing import alff, reho
from icofactor.preprocessing.resampling import Resampler, as_areas, as_sphere, pattern_agreement
from icofactor.preprocessing.smoothing import SurfaceSmoother
from icofactor.preprocessing.templates import find_meshes
from icofactor.preprocessing.temporal import bandpass, concatenate_runs
from icofactor.sphere.sites import Sites
from icofactor_lab.common.data import data_folder, thickness_arrays
from icofactor_lab.common.timing import peak_bytes, timed
from icofactor_lab.docs_tables import run_task

MESHES = {"fs4": "fsaverage4", "fs5": "fsaverage5", "fs6": "fsaverage6", "fslr32k": "fsLR32k"}
METHODS = {"adap": "adaptive", "bary": "barycentric"}


def busy(work: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and its processor seconds."""
    return timed(work, time.process_time)


def printed(what: str, call: Callable[[], Any]) -> Any:
    (answer, spent), took = timed(lambda: busy(call))
    peak = peak_bytes() / 2**30
    print(f"{what:<28}{took:6.2f} s ({spent:.2f} s of processor), peak memory so far {peak:.2f} GiB")
    return answer


def speed(options: argparse.Namespace) -> None:
    """Time and memory of ReHo, ALFF and the band-pass filters."""
    if options.hcp:
        hcp(data_folder() / "resample" / "L.sphere.32k_fs_LR.surf.gii")
    else:
        real(data_folder())


def real(folder: Path) -> None:
    with np.load(folder / "rest_fsaverage5_left.npz") as archive:
        series = archive["lh"]
    faces = Sites.named("fsaverage5").triangles
    assert faces is not None
    printed("ReHo, three rings", lambda: reho(series, faces, rings=3))
    smooth = printed("band-pass, Butterworth", lambda: bandpass(series, 1.4))
    sharp = printed("band-pass, FFT", lambda: bandpass(series, 1.4, method="fft"))
    printed("ALFF", lambda: alff(series, 1.4))
    maps = [reho(filtered, faces) for filtered in (smooth, sharp)]
    cortex = maps[0] > 0
    print(f"ReHo after either filter: medians {[round(float(np.median(one[cortex])), 3) for one in maps]},", end=" ")
    print(f"correlation over the cortex {np.corrcoef(maps[0][cortex], maps[1][cortex])[0, 1]:.3f}")


def definitions(options: argparse.Namespace) -> None:
    """How ALFF by other definitions, and with censored volumes filled in two ways, correlates with ours."""
    from icofactor.preprocessing.bold import interpolate

    with np.load(data_folder() / "rest_fsaverage5_left.npz") as archive:
        series = archive["lh"][np.ptp(archive["lh"], axis=1) > 0].astype(np.float64)
    n, tr, low, high = series.shape[1], 1.4, 0.05, 0.1
    series -= series.mean(axis=1, keepdims=True)
    own = alff(series, tr, low, high)

    def amplitudes(values: np.ndarray, length: int) -> np.ndarray:
        f = np.fft.rfftfreq(length, tr)
        return np.abs(np.fft.rfft(values, length))[:, (f >= low) & (f <= high)]

    others = {
        "zeros appended (DPABI, REST)": amplitudes(series, 2 ** int(np.ceil(np.log2(n)))).mean(axis=1),
        "root of mean power (C-PAC)": np.sqrt((amplitudes(series, n) ** 2).mean(axis=1)),
        "Hann taper": amplitudes(series * np.hanning(n), n).mean(axis=1),
        "detrended": alff(series, tr, low, high, detrend=True),
    }
    rng = np.random.default_rng(0)
    for length in (1, 5):
        keep = np.ones(n, dtype=bool)
        while keep.mean() > 0.8:
            first = rng.integers(n)
            keep[first : first + length] = False
        zeros = np.where(keep, series - series[:, keep].mean(axis=1, keepdims=True), 0)
        filled = interpolate(zeros.T.copy(), keep).T
        name = f"a fifth censored, {length} in a row"
        others |= {f"{name}: {how}": alff(s, tr, low, high) for how, s in (("zeros", zeros), ("interpolated", filled))}
    for name, other in others.items():
        print(f"{name:<45}{np.corrcoef(own, other)[0, 1]:.4f}")


def hcp(sphere: Path) -> None:
    from icofactor.sphere.surfaces import read_surface

    _, faces = read_surface(sphere)
    rng = np.random.default_rng(0)
    runs = [rng.standard_normal((32492, 1200), dtype=np.float32) for _ in range(4)]
    for number in range(4):
        runs[number] = printed(f"band-pass of run {number + 1}", partial(bandpass, runs[number], 0.72))
    together = printed("runs together", lambda: concatenate_runs(runs))
    printed("ReHo, three rings", lambda: reho(together, faces))


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
    one, build = busy(resampler(folder, side, MESHES[source], MESHES[target], METHODS[method], region).fit)
    found, apply = busy(lambda: one(given))
    off = np.abs(found - stored[name])
    report(name, off, f"weights {build:5.2f} s, one map {1000 * apply:5.1f} ms")


def report(name: str, off: np.ndarray, times: str) -> None:
    beyond = np.count_nonzero(off > 3e-4)
    print(f"{name:<38} largest {off.max():8.1e}, without {beyond} vertices {np.sort(off)[-1 - beyond]:8.1e}; {times}")


def workbench(options: argparse.Namespace) -> None:
    """How far resampling and smoothing are from Connectome Workbench, and how long they take."""
    folder = data_folder()
    with np.load(folder / "wb_reference" / "wb_command_1.5.0_reference.npz") as archive:
        stored = {name: archive[name] for name in archive.files}
    stored["cortex_lh"], stored["cortex_rh"] = np.split(thickness_arrays()[1], 2)
    for name in sorted(name for name in stored if "_to_fs" in name and "." in name):
        pair(folder, stored, name)
    for h in ("lh", "rh"):
        surface = stored[f"midthickness_{h}"], Sites.named("fsaverage5").triangles
        one, build = busy(SurfaceSmoother(surface, sigma=4.2466, roi=stored[f"cortex_{h}"]).fit)
        found, apply = busy(partial(one, stored[f"input_thickness_{h}"]))
        off = np.abs(found - stored[f"smooth_sigma4.2466_{h}"])
        report(f"smoothing, sigma 4.2466 mm, {h}", off, f"weights {build:5.2f} s, one map {1000 * apply:5.1f} ms")
    for source, target in (("fslr32k", "fs6"), ("fs6", "fslr32k")):
        _, build = busy(resampler(folder, "left", MESHES[source], MESHES[target], "adaptive").fit)
        print(f"{source} to {target}, adaptive: weights {build:.2f} s")
    maps = np.random.default_rng(0).uniform(size=(1000, 32492)).astype(np.float32)
    one = resampler(folder, "left", "fsLR32k", "fsaverage5", "adaptive").fit()
    print(f"1000 maps, fslr32k to fs5: {busy(lambda: one(maps))[1]:.2f} s")


def registration(options: argparse.Namespace) -> None:
    """How cortical area per sphere area correlates between fs_LR and fsaverage: registered, undeformed, mirrored."""
    folder = data_folder() / "resample"
    for mesh in ("fsaverage4", "fsaverage5", "fsaverage6"):
        sides = {side: find_meshes(folder, side, ("fsLR32k", mesh)) for side in ("left", "right")}
        for side, (old, new) in sides.items():
            letter, other = side[0].upper(), sides["left" if side == "right" else "right"][1]
            undeformed = folder / f"{letter}.sphere.32k_fs_LR.surf.gii"
            pairs = {"registered": (old.sphere, new), "undeformed": (undeformed, new), "mirrored": (old.sphere, other)}
            found = {}
            for name, (sphere, target) in pairs.items():
                a, b = as_sphere(sphere, "source_sphere"), as_sphere(target.sphere, "target_sphere")
                areas = as_areas(old.areas, a, "source_areas"), as_areas(target.areas, b, "target_areas")
                found[name] = pattern_agreement(a, b, *areas)
            print(f"{mesh}, {side}: " + ", ".join(f"{name} {value:.3f}" for name, value in found.items()))


def main() -> None:
    flag = {"--hcp": {"action": "store_true"}}
    run_task(__doc__, {speed: flag, workbench: {}, definitions: {}, registration: {}})


if __name__ == "__main__":
    main()
