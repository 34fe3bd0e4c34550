"""Program: one point of (c) in a process of its own. Reads a point, makes its data, then fits once per line it reads.

Everything that is not the fit's is made before its memory is looked at: libraries, kernels, threads, the mesh.
"""

from __future__ import annotations

import ctypes
import json
import resource
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from icofactor.estimator.estimator import CorticalFactorization
from icofactor_lab.bench.datasets import face_sites, simulate_maps


def reset_peak() -> bool:
    """Make the kernel forget the peak so far; False where it does not let us."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def trim() -> None:
    """Give freed memory back to the system, where the C library can: what making X needed is not the fit's."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def peak_bytes() -> int:
    """Peak resident memory: since `reset_peak` where there is /proc, of the whole process otherwise."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    except (OSError, StopIteration):
        scale = 1 if sys.platform == "darwin" else 1024
        return scale * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def statistics_bytes(model: CorticalFactorization) -> int:
    """Memory of the statistics the fit ended with."""
    stats = model.refined_.stats
    K = stats.K
    return int(sum(x.nbytes for x in (K.data, K.indices, K.indptr, stats.L, stats.energy, stats.counts, stats.root_L)))


def main() -> None:
    warnings.simplefilter("ignore")
    point: dict[str, Any] = json.loads(sys.stdin.readline())
    settings = {"n_iter": point["n_iter"], "tol": 0.0}
    tiny_sites, _ = face_sites(3)
    tiny = simulate_maps(tiny_sites.coordinates, 12, 2)
    CorticalFactorization(2, mesh=tiny_sites, **{**settings, "n_iter": 2, "engine": "cpu"}).fit(tiny)
    sites, _ = face_sites(point["level"])
    trim()
    reset = reset_peak()
    baseline = peak_bytes()
    X = simulate_maps(sites.coordinates, point["n_subjects"], point["n_components"])
    trim()
    reset_peak()
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        model = CorticalFactorization(point["n_components"], mesh=sites, **settings)
        begin = time.perf_counter()
        model.fit(X)
        seconds = time.perf_counter() - begin
        answer = {
            "seconds": seconds,
            "baseline": baseline,
            "peak": peak_bytes(),
            "X": X.nbytes,
            "statistics": statistics_bytes(model),
            "reset": reset,
        }
        del model  # before the next one is made
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
