"""Memory and time of `icofactor fit` beside what `--dry-run` says of them (icofactor.cli.estimate).

    python -m icofactor_lab.docs_tables.fit_times

Maps of both hemispheres made from ten smooth components with noise; each size is fitted in a process of its own, whose
peak memory is asked of the operating system. Time is that of the fit and its diagnostics.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import icofactor as ico
from icofactor.cli.estimate import Size, estimate
from icofactor.results.diagnostics.record import load_diagnostics

SIZES = (("fsaverage5", 200), ("fsaverage6", 100), ("fsaverage7", 50), ("fsaverage6", 500), ("fsaverage7", 150))
N_COMPONENTS = 10


def maps(mesh: str, n_subjects: int) -> np.ndarray:
    """Subjects × vertices, float32, > 0."""
    rng, at = np.random.default_rng(0), ico.Sites.named(mesh, hemi="both").coordinates
    regions = np.exp(4 * at @ rng.standard_normal((3, N_COMPONENTS)))
    regions /= regions.sum(axis=1, keepdims=True)
    loadings = 0.9 + 0.1 * rng.exponential(size=(n_subjects, N_COMPONENTS))
    rows = [2.5 * regions @ row + 0.1 * rng.standard_normal(len(at)) for row in loadings]
    return np.clip(np.array(rows, dtype=np.float32), 0.01, None)


def main() -> None:
    print("| mesh, subjects | memory, MiB | estimate | seconds | estimate |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for mesh, n_subjects in SIZES:  # growing, since the operating system tells the largest child's memory only
            file, out = Path(folder) / "maps.npy", Path(folder) / f"out-{mesh}-{n_subjects}"
            X = maps(mesh, n_subjects)
            np.save(file, X)
            size = Size(n_subjects, X.shape[1], N_COMPONENTS, n_columns=640)
            words = ["fit", str(file), "--mesh", mesh, "-o", str(out), "-q", "--n-components", str(N_COMPONENTS)]
            subprocess.run([sys.executable, "-m", "icofactor.cli", *words], check=True, stdout=subprocess.DEVNULL)
            used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            spent = load_diagnostics(out / "diagnostics.npz").timing
            needed = estimate(size)
            print(
                f"| {mesh}, {n_subjects} | {used:.0f} | {needed.memory / 2**20:.0f} "
                f"| {spent['fit'] + spent['diagnostics']:.1f} | {needed.seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
