"""Time to error against nmf-torch on a GPU, in one run.

Usage: python -m icofactor_lab.docs_tables.gpu_peer [--level 6] [--subjects 400]

Data: as the bench simulates them. nmf-torch (HALS) holds
X on the GPU; its time includes the transfer. Ours: the default fit and the same with polish, on the CPU's kernels and
with engine="jax". Errors are ‖X − WC‖² over the between-subject variance.
"""

from __future__ import annotations

import argparse
import sys
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import icofactor as ico
from icofactor_lab.bench.datasets import simulated


def relative_error(X: np.ndarray, C: np.ndarray, W: np.ndarray) -> float:
    variance = float(np.square(X - X.mean(axis=0), dtype=np.float64).sum())
    return sum(float(np.square(x - c @ W, dtype=np.float64).sum()) for x, c in zip(X, C, strict=True)) / variance


def peer(X: np.ndarray, n_iter: int) -> tuple[np.ndarray, np.ndarray]:
    from nmf import run_nmf

    H, W, _ = run_nmf(
        X, 10, init="nndsvdar", algo="hals", mode="batch", tol=0, batch_max_iter=n_iter, random_state=0, use_gpu=True
    )
    return np.asarray(H), np.asarray(W)


def ours(X: np.ndarray, sites: ico.Sites, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    model = ico.CorticalFactorization(10, mesh=sites, **settings)
    return model.fit_transform(X), model.components_


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", type=int, default=6)
    parser.add_argument("--subjects", type=int, default=400)
    args = parser.parse_args()
    # the pivoting solver of nmf-torch is compiled and not needed for HALS
    stand_in = types.ModuleType("nmf.cylib.nnls_bpp_utils")
    stand_in._nnls_bpp = None  # type: ignore[attr-defined]
    try:
        import nmf  # noqa: F401
    except ImportError:
        sys.modules["nmf.cylib"] = types.ModuleType("nmf.cylib")
        sys.modules["nmf.cylib.nnls_bpp_utils"] = stand_in
    data = simulated(args.level, args.subjects)
    X, sites = data.Xs, data.sites
    print(f"{X.shape[1]} x {X.shape[0]}")
    runs: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
        **{f"nmf-torch hals GPU, {n} iterations": (lambda n=n: peer(X, n)) for n in (2, 5, 10, 20, 50, 100, 200)},
        "ours, cpu": lambda: ours(X, sites, engine="cpu"),
        "ours, cpu, polish 2": lambda: ours(X, sites, engine="cpu", polish=2),
        "ours, jax": lambda: ours(X, sites, engine="jax", method="LE-PNNMF"),
        "ours, jax, polish 2": lambda: ours(X, sites, engine="jax", method="LE-PNNMF", polish=2),
    }
    warnings.simplefilter("ignore")
    for name, make in runs.items():
        try:
            make()  # compiles, loads libraries
            seconds = []
            for _ in range(3):
                begun = time.perf_counter()
                C, W = make()
                seconds.append(time.perf_counter() - begun)
        except Exception as problem:
            print(f"{name:34} not run: {type(problem).__name__}: {str(problem)[:200]}", flush=True)
            continue
        print(f"{name:34} {np.median(seconds):7.3f} s   error {relative_error(X, C, W):.5f}", flush=True)


if __name__ == "__main__":
    main()
