"""Does a fused kernel beat the compiled loop on a GPU? PNNMF, paper rules, 1000 starts × 1000 updates, in Pallas.

Usage: PYTHONPATH=src:benchmarks python benchmarks/fused_gpu.py [--starts 1000] [--updates 1000]

One program of the kernel makes all updates of one start, its factors in registers and shared memory; sizes are padded
with zeros to powers of two, which Triton wants (20 faces to 32, 10 components to 16, 100 subjects to 128): exact, as
zeros stay zeros. Prints the engine's loop and the kernel's, and how far apart their last objectives are.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import gpu
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from icofactor.engines import jax_engine
from icofactor.methods import METHODS
from icofactor.starts import draw_starts, seeds_of
from icofactor.update import begin


def fused(B_ref: Any, C_ref: Any, K_ref: Any, Lt_ref: Any, numbers: Any, out: Any, *, n: int) -> None:
    """`n` updates of one start (eq. 4, 5) and the objective after them."""
    B, C, K, Lt = B_ref[...], C_ref[...], K_ref[...], Lt_ref[...]
    tiny, penalty, sq_norm = numbers[0], numbers[1], numbers[2]
    dot = partial(pl.dot, allow_tf32=False)

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


def run(p: Any, state: Any, n_iter: int, dtype: Any, num_warps: int, repeats: int = 5) -> tuple[list[float], Any]:
    """Seconds of the kernel after its compilation, and the last objectives."""
    try:
        from jax.experimental.pallas import triton as backend

        options = backend.CompilerParams(num_warps=num_warps, num_stages=1)
    except AttributeError:
        from jax.experimental.pallas import triton as backend

        options = backend.TritonCompilerParams(num_warps=num_warps, num_stages=1)
    starts = len(state.B)
    whole = lambda *shape: pl.BlockSpec(shape, lambda i: (0,) * len(shape))
    each = lambda *shape: pl.BlockSpec((None, *shape), lambda i: (i, 0, 0))
    with jax_engine._settings():
        call = jax.jit(
            pl.pallas_call(
                partial(fused, n=n_iter),
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
        seconds = []
        for _ in range(repeats + 1):
            begun = time.perf_counter()
            found = jax.block_until_ready(call(*arrays))
            seconds.append(time.perf_counter() - begun)
    return seconds, np.asarray(found)[:, 0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=1000)
    parser.add_argument("--updates", type=int, default=1000)
    args = parser.parse_args()
    method = METHODS["PNNMF"]
    p = gpu.problem(method, "paper")
    state = begin(p, method.scheme, *draw_starts(p, method, 10, seeds_of(0), range(args.starts)))
    print(jax.devices()[0].device_kind, "jax", jax.__version__)
    for dtype in (np.float64, np.float32):
        seconds, _ = gpu.loop_seconds(p, method, state, args.updates, 5, dtype)
        ours = float(np.median(seconds[1:]))
        expected = jax_engine.iterate(p, method, state, args.updates, dtype=dtype).objectives[:, -1]
        print(f"{np.dtype(dtype).name}: compiled loop {1e3 * ours:.1f} ms")
        for num_warps in (1, 2, 4, 8):
            try:
                seconds, found = run(p, state, args.updates, dtype, num_warps)
            except Exception as problem:  # a size or type that this version of Triton does not take
                print(f"  fused, {num_warps} warps: {type(problem).__name__}: {str(problem)[:300]}")
                continue
            fused_seconds = float(np.median(seconds[1:]))
            apart = float(np.max(np.abs(found / expected - 1)))
            print(
                f"  fused, {num_warps} warps: {1e3 * fused_seconds:.1f} ms, {ours / fused_seconds:.2f} times as fast; "
                f"objectives differ by {apart:.1e}; compiled in {seconds[0]:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
