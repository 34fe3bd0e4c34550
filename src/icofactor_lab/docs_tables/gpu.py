"""The paper's million updates on the device that JAX finds: right, and how fast.

Usage: python -m icofactor_lab.docs_tables.gpu [--starts 1000] [--updates 1000] [--methods PNNMF,LE-PNNMF]

1000 starts × 1000 updates, 20 faces, 10 components, 100 subjects, float64, on positive random data: every method under
both rules. Per row: the loop alone (after compilation, median of `--repeats`), the whole call with its transfers, ticks
of the loop (restarts make them more than updates), and the largest relative difference of the objectives from
NumPy's, over all updates of the first `--checked` starts. Writes gpu.json under $OUT when that is set.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from icofactor.factorization._solve import iterate
from icofactor.factorization.engines import jax as jax_engine
from icofactor.factorization.methods import METHODS, PAPER_METHODS, Method
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.update import State, begin


def problem(method: Method, rules: str, n_k: int = 20, n_s: int = 100, seed: int = 0) -> Problem:
    """Positive data of low rank with noise, as the statistics of a partition into faces of unequal size."""
    rng = np.random.default_rng(seed)
    sites = rng.integers(300, 700, n_k).astype(np.float64)
    means = 2.5 + rng.gamma(2.0, 0.2, (n_s, 6)) @ rng.gamma(1.0, 0.5, (6, n_k)) + 0.1 * rng.random((n_s, n_k))
    L = means * sites
    L_norm = float(np.linalg.norm(L))
    literal = rules == "paper"
    weights = np.ones((n_k, 1)) if literal else n_k * sites[:, None] / sites.sum()
    sq_norm = float((means**2 * sites).sum() * 1.02)
    return Problem(L, sites, sites, weights, method.scheme.paper_penalty(L_norm), sq_norm, L_norm, literal)


def loop_seconds(
    p: Problem, method: Method, state: State, n_iter: int, repeats: int, dtype: Any
) -> tuple[list[float], int]:
    """Seconds of the loop alone, each repeat from the same start, and its ticks."""
    seconds, ticks = [], 0
    for _ in range(repeats + 1):  # the first compiles
        with jax_engine._settings():
            batch = jax_engine._Batch(p, method, state, n_iter, 0.0, dtype, together=True)
            jax.block_until_ready((batch.numbers, batch.runs))
            start = time.perf_counter()
            batch.reach(n_iter, None)
            jax.block_until_ready(batch.runs)
        seconds.append(time.perf_counter() - start)
        ticks = sum(len(piece.path.objective) for piece in batch.recorded)
    return seconds, ticks


def measure(name: str, rules: str, args: argparse.Namespace, dtype: Any) -> dict[str, Any]:
    """One row of the table."""
    method = METHODS[name]
    p = problem(method, rules)
    B, C = draw_starts(p, method, 10, seeds_of(0), range(args.starts))
    state = begin(p, method.scheme, B, C)
    seconds, ticks = loop_seconds(p, method, state, args.updates, args.repeats, dtype)
    start = time.perf_counter()
    run = jax_engine.iterate(p, method, state, args.updates, dtype=dtype)
    whole = time.perf_counter() - start
    few = np.arange(min(args.checked, args.starts))
    expected = iterate(p, method, state.take(few), args.updates)
    same = np.abs(run.objectives[few, : expected.objectives.shape[1]] / expected.objectives - 1)
    same = same[np.isfinite(expected.objectives)]
    return {
        "method": name,
        "rules": rules,
        "dtype": np.dtype(dtype).name,
        "loop_ms": 1e3 * float(np.median(seconds[1:])),
        "spread_ms": 1e3 * (max(seconds[1:]) - min(seconds[1:])),
        "first_s": seconds[0],
        "call_ms": 1e3 * whole,
        "ticks": ticks,
        "difference": float(same.max()),
        "last_difference": float(np.abs(run.objectives[few, -1] / expected.objectives[:, -1] - 1).max()),
        "diverged": int(run.diverged.sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=1000)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--checked", type=int, default=32)
    parser.add_argument("--methods", default=",".join(PAPER_METHODS))
    parser.add_argument("--rules", default="paper,default")
    parser.add_argument("--dtypes", default="float64")
    args = parser.parse_args()
    rows = []
    for dtype in args.dtypes.split(","):
        for rules in args.rules.split(","):
            for name in args.methods.split(","):
                rows.append(measure(name, rules, args, np.dtype(dtype).type))
                print(".", end="", flush=True)
    print(f"\n{jax.devices()[0].device_kind}, jax {jax.__version__}: {args.starts} starts x {args.updates} updates")
    print(f"{'method':10} {'rules':8} {'type':8} {'loop ms':>8} {'spread':>7} {'call ms':>8} {'ticks':>6} {'diff':>8} "
          f"{'last':>8} {'compile s':>9} diverged")  # fmt: skip
    for r in rows:
        print(f"{r['method']:10} {r['rules']:8} {r['dtype']:8} {r['loop_ms']:8.1f} {r['spread_ms']:7.1f} "
              f"{r['call_ms']:8.1f} {r['ticks']:6d} {r['difference']:8.1e} {r['last_difference']:8.1e} "
              f"{r['first_s']:9.1f} {r['diverged']}")  # fmt: skip
    if os.environ.get("OUT"):
        about = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "rows": rows}
        (Path(os.environ["OUT"]) / "gpu.json").write_text(json.dumps(about, indent=1))


if __name__ == "__main__":
    main()
