"""The paper's million updates on the device that JAX finds; a fused kernel; a peer on the GPU (docs/benchmarks.md).

    python -m icofactor_lab.docs_tables.gpu loop [--starts 1000] [--updates 1000] [--methods PNNMF,LE-PNNMF]
    python -m icofactor_lab.docs_tables.gpu fused [--starts 1000] [--updates 1000]
    python -m icofactor_lab.docs_tables.gpu peer [--level 6] [--subjects 400] [--repeats 5]

`loop`: 1000 starts × 1000 updates, 20 faces, 10 components, 100 subjects, float64, on positive random data: every
method under both rules. Per row: the loop alone (after compilation, median of `--repeats`), the whole call with its
transfers, ticks of the loop (restarts make them more than updates), and the largest relative difference of the
objectives from NumPy's, over all updates of the first `--checked` starts. Writes gpu.json under $OUT when that is set.

`fused`: does a fused kernel beat the compiled loop? PNNMF, paper rules, in Pallas, and in Triton itself where torch
brings it. One program of the kernel makes all updates of one start, its factors in registers and shared memory; sizes
are padded with zeros to powers of two, which Triton wants (20 faces to 32, 10 components to 16, 100 subjects to 128):
exact, as zeros stay zeros. Prints the engine's loop and the kernel's, and how far apart their last objectives are.

`peer`: time to error against nmf-torch (HALS), which holds X on the GPU; every time includes sending X there. Data as
the bench simulates them. Ours with engine="jax": statistics and lift on the GPU, the starts on the processors. Solvers
take turns; medians. Errors are ‖X − WC‖² over the between-subject variance.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import types
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import icofactor as ico
from icofactor.factorization._solve import Course, iterate
from icofactor.factorization.methods import METHODS, PAPER_METHODS, Method
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.update import State, begin
from icofactor_lab.common.data import simulated
from icofactor_lab.common.objective import full_error
from icofactor_lab.common.outcome import Table, markdown
from icofactor_lab.common.timing import median, timed
from icofactor_lab.docs_tables import number, run_task

try:
    import jax
    import jax.numpy as jnp

    from icofactor.factorization.engines import jax as jax_engine
except ImportError:  # reported when a task runs
    jax = None


def device() -> str:
    if jax is None:
        raise SystemExit("jax is not installed: pip install 'icofactor[jax]'")
    return f"{jax.devices()[0].device_kind}, jax {jax.__version__}"


# ------------------------------------------------------------------ the loop


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
        with jax_engine.settings():
            batch = jax_engine._Batch(p, method, state, Course(n_iter), dtype)
            jax.block_until_ready((batch.numbers, batch.runs))
            start = time.perf_counter()
            batch.reach(n_iter)
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
    run, whole = timed(lambda: jax_engine.iterate(p, method, state, Course(args.updates), dtype=dtype))
    few = np.arange(min(args.checked, args.starts))
    expected = iterate(p, method, state.take(few), Course(args.updates))
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


def loop(args: argparse.Namespace) -> None:
    """The compiled loop: every method, both rules, right and how fast."""
    about = device()
    rows = []
    for dtype in args.dtypes.split(","):
        for rules in args.rules.split(","):
            for name in args.methods.split(","):
                rows.append(measure(name, rules, args, np.dtype(dtype).type))
                print(".", end="", flush=True)
    print(f"\n{about}: {args.starts} starts x {args.updates} updates")
    print(markdown(Table("", rows)))
    if os.environ.get("OUT"):
        found = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "rows": rows}
        (Path(os.environ["OUT"]) / "gpu.json").write_text(json.dumps(found, indent=1))


# ------------------------------------------------------------------ a fused kernel


def fused_kernel(B_ref: Any, C_ref: Any, K_ref: Any, Lt_ref: Any, numbers: Any, out: Any, *, n: int) -> None:
    """`n` updates of one start (eq. 4, 5) and the objective after them."""
    B, C, K, Lt = B_ref[...], C_ref[...], K_ref[...], Lt_ref[...]
    tiny, penalty, sq_norm = numbers[0], numbers[1], numbers[2]
    dot = partial(jnp.dot, precision=jax.lax.Precision.HIGHEST)

    def update(_: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        B, C, LC, CC, _ = state
        B = B * jnp.maximum(LC - penalty * B, 0.0) / jnp.maximum(K * dot(B, CC), tiny)
        G = dot(B.T, K * B)
        C = C * jnp.maximum(dot(B.T, Lt) - penalty * C, 0.0) / jnp.maximum(dot(G, C), tiny)
        LC, CC = dot(Lt, C.T), dot(C, C.T)
        E = sq_norm - 2.0 * jnp.sum(LC * B) + jnp.sum(G * CC)
        return B, C, LC, CC, E + penalty * (jnp.sum(B * B) + jnp.sum(C * C))

    last = jax.lax.fori_loop(0, n, update, (B, C, dot(Lt, C.T), dot(C, C.T), sq_norm))
    out[...] = jnp.full(out.shape, last[4], out.dtype)


def padded(x: np.ndarray, *shape: int) -> np.ndarray:
    return np.pad(x, [(0, wanted - have) for wanted, have in zip(shape, x.shape, strict=True)])


def run_pallas(
    p: Any, state: Any, n_iter: int, dtype: Any, num_warps: int, repeats: int = 5
) -> tuple[list[float], Any]:
    """Seconds of the kernel after its compilation, and the last objectives."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton as backend

    parameters = getattr(backend, "CompilerParams", None) or backend.TritonCompilerParams
    options = parameters(num_warps=num_warps, num_stages=1)
    starts = len(state.B)
    whole = lambda *shape: pl.BlockSpec(shape, lambda i: (0,) * len(shape))
    each = lambda *shape: pl.BlockSpec((None, *shape), lambda i: (i, 0, 0))
    with jax_engine.settings():
        call = jax.jit(
            pl.pallas_call(
                partial(fused_kernel, n=n_iter),
                grid=(starts,),
                in_specs=[each(32, 16), each(16, 128), whole(32, 16), whole(32, 128), whole(4)],
                out_specs=pl.BlockSpec((None, 16), lambda i: (i, 0)),
                out_shape=jax.ShapeDtypeStruct((starts, 16), dtype),
                compiler_params=options,
            )
        )
        K = padded(np.repeat(p.K[:, None], 10, axis=1), 32, 16)
        Lt, numbers = padded(p.L.T, 32, 128), [np.finfo(dtype).tiny, p.penalty, p.sq_norm, 0.0]
        given = [padded(state.B, starts, 32, 16), padded(state.C, starts, 16, 128), K, Lt, np.array(numbers)]
        arrays = [jnp.asarray(x, dtype) for x in given]
        runs = [timed(lambda: jax.block_until_ready(call(*arrays))) for _ in range(repeats + 1)]
    return [seconds for _, seconds in runs], np.asarray(runs[-1][0])[:, 0]


def triton_kernel() -> Any:
    """The same in Triton."""
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(Bp, Cp, Kp, Ltp, numbers, outp, n, T: tl.constexpr):  # type: ignore[no-untyped-def]
        i = tl.program_id(0)
        k, d, s = tl.arange(0, 32), tl.arange(0, 16), tl.arange(0, 128)
        B = tl.load(Bp + i * 512 + k[:, None] * 16 + d[None, :])
        C = tl.load(Cp + i * 2048 + d[:, None] * 128 + s[None, :])
        K = tl.load(Kp + k[:, None] * 16 + d[None, :])
        Lt = tl.load(Ltp + k[:, None] * 128 + s[None, :])
        tiny, penalty, sq_norm = tl.load(numbers), tl.load(numbers + 1), tl.load(numbers + 2)
        LC = tl.dot(Lt, tl.trans(C), input_precision="ieee", out_dtype=T)
        CC = tl.dot(C, tl.trans(C), input_precision="ieee", out_dtype=T)
        value = sq_norm
        for _ in range(n):
            down = K * tl.dot(B, CC, input_precision="ieee", out_dtype=T)
            B = B * tl.maximum(LC - penalty * B, 0.0) / tl.maximum(down, tiny)
            Bt = tl.trans(B)
            G = tl.dot(Bt, K * B, input_precision="ieee", out_dtype=T)
            BL = tl.dot(Bt, Lt, input_precision="ieee", out_dtype=T)
            down = tl.dot(G, C, input_precision="ieee", out_dtype=T)
            C = C * tl.maximum(BL - penalty * C, 0.0) / tl.maximum(down, tiny)
            Ct = tl.trans(C)
            LC = tl.dot(Lt, Ct, input_precision="ieee", out_dtype=T)
            CC = tl.dot(C, Ct, input_precision="ieee", out_dtype=T)
            E = sq_norm - 2.0 * tl.sum(LC * B) + tl.sum(G * CC)
            value = E + penalty * (tl.sum(B * B) + tl.sum(C * C))
        tl.store(outp + i, value)

    return kernel, tl


def run_triton(
    p: Any, state: Any, n_iter: int, dtype: Any, num_warps: int, repeats: int = 5
) -> tuple[list[float], Any]:
    """As `run_pallas`, in Triton."""
    import torch

    kernel, tl = triton_kernel()
    kind = {np.float64: tl.float64, np.float32: tl.float32}[dtype]
    starts = len(state.B)
    given = [padded(state.B, starts, 32, 16), padded(state.C, starts, 16, 128)]
    given += [padded(np.repeat(p.K[:, None], 10, axis=1), 32, 16), padded(p.L.T, 32, 128)]
    given += [np.array([np.finfo(dtype).tiny, p.penalty, p.sq_norm]), np.zeros(starts)]
    arrays = [torch.as_tensor(np.ascontiguousarray(x, dtype=dtype), device="cuda") for x in given]

    def once() -> None:
        kernel[(starts,)](*arrays, n_iter, T=kind, num_warps=num_warps)
        torch.cuda.synchronize()

    torch.cuda.synchronize()
    return [timed(once)[1] for _ in range(repeats + 1)], arrays[-1].cpu().numpy()


def fused(args: argparse.Namespace) -> None:
    """A fused kernel against the compiled loop."""
    print(device())
    method = METHODS["PNNMF"]
    p = problem(method, "paper")
    state = begin(p, method.scheme, *draw_starts(p, method, 10, seeds_of(0), range(args.starts)))
    for dtype in (np.float64, np.float32):
        seconds, _ = loop_seconds(p, method, state, args.updates, 5, dtype)
        ours = float(np.median(seconds[1:]))
        expected = jax_engine.iterate(p, method, state, Course(args.updates), dtype=dtype).objectives[:, -1]
        print(f"{np.dtype(dtype).name}: compiled loop {1e3 * ours:.1f} ms")
        for how, num_warps in product((run_pallas, run_triton), (1, 2, 4, 8)):
            name = "Pallas" if how is run_pallas else "Triton"
            try:
                seconds, found = how(p, state, args.updates, dtype, num_warps)
            except Exception as failure:  # a size or type that this version does not take
                print(f"  {name}, {num_warps} warps: {type(failure).__name__}: {str(failure)[-300:]}", flush=True)
                continue
            fused_seconds = float(np.median(seconds[1:]))
            apart = float(np.max(np.abs(found / expected - 1)))
            print(
                f"  {name}, {num_warps} warps: {1e3 * fused_seconds:.1f} ms, {ours / fused_seconds:.2f} times as fast; "
                f"objectives differ by {apart:.1e}; compiled in {seconds[0]:.0f} s",
                flush=True,
            )


# ------------------------------------------------------------------ a peer


def torch_on_gpu(X: np.ndarray, n_iter: int) -> tuple[np.ndarray, np.ndarray]:
    from nmf import run_nmf

    H, W, _ = run_nmf(
        X, 10, init="nndsvdar", algo="hals", mode="batch", tol=0, batch_max_iter=n_iter, random_state=0, use_gpu=True
    )
    return np.asarray(H), np.asarray(W)


def ours(X: np.ndarray, sites: ico.Sites, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    model = ico.CorticalFactorization(10, mesh=sites, **{"method": "CD-PNNMF", **settings})
    return model.fit_transform(X), model.components_


QUICK = {"n_starts": 1, "refinement": None}
OURS: dict[str, dict[str, Any]] = {
    "one start, level 1, no refinement": {**QUICK, "level": 1},
    "one start, no refinement": QUICK,
    "one start": {"n_starts": 1},
    "default": {},
    "default, polish 6": {"polish": 6},
}
TARGETS = (1.05, 1.01, 1.005)


def peer(args: argparse.Namespace) -> None:
    """Time to error against nmf-torch on the GPU; every time includes sending X there."""
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
    print(f"{device()}, {data.size}")
    counts = (10, 20, 30, 40, 50, 75, 100, 200, 400, 800)
    runs: dict[str, Callable[[], tuple[np.ndarray, np.ndarray]]] = {
        **{f"nmf-torch, {n} iterations": partial(torch_on_gpu, X, n) for n in counts},
        **{f"CD-PNNMF, {name}": partial(ours, X, sites, engine="jax", **given) for name, given in OURS.items()},
        "parts": partial(ours, X, sites, engine="jax", method="parts"),
        "CD-PNNMF, default, on the processors": partial(ours, X, sites, engine="cpu"),
        "parts, on the processors": partial(ours, X, sites, engine="cpu", method="parts"),
    }
    warnings.simplefilter("ignore")
    first, found, seconds = {}, {}, {name: list[float]() for name in runs}
    for turn in range(args.repeats + 1):  # the first compiles, loads libraries
        for name, make in runs.items():
            with redirect_stdout(StringIO()):
                made, spent = timed(make)
            if turn:
                seconds[name].append(spent)
            else:
                first[name], found[name] = spent, full_error(X, made[1].T, made[0].T) / data.variance
    best = min(found.values())
    of = lambda name: median(seconds[name])
    rows = [
        {"solver": name, "seconds": of(name), "first call": first[name], "error / best": found[name] / best}
        for name in runs
    ]
    print(markdown(Table("", rows)))
    for target in TARGETS:
        there = [name for name in runs if found[name] <= target * best and "processors" not in name]
        for start in ("nmf-torch", "CD-PNNMF"):
            names = sorted((name for name in there if name.startswith(start)), key=of)
            print(f"to {target} x best: {start}", f"{of(names[0]):.3f} s ({names[0]})" if names else "not reached")


def main() -> None:
    sizes = {"--starts": number(1000), "--updates": number(1000)}
    names = {"--methods": ",".join(PAPER_METHODS), "--rules": "paper,default", "--dtypes": "float64"}
    more = {name: {"default": default} for name, default in names.items()}
    run_task(
        __doc__,
        {
            loop: {**sizes, "--repeats": number(5), "--checked": number(32), **more},
            fused: sizes,
            peer: {"--level": number(6), "--subjects": number(400), "--repeats": number(5)},
        },
    )


if __name__ == "__main__":
    main()
