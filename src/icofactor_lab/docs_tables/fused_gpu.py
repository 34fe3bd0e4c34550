"""Does a fused kernel beat the compiled loop on a GPU? PNNMF, paper rules, 1000 starts × 1000 updates.

In Pallas, and in Triton itself where torch brings it.

Usage: PYTHONPATH=src:benchmarks python -m icofactor_lab.docs_tables.fused_gpu [--starts 1000] [--updates 1000]

One program of the kernel makes all updates of one start, its factors in registers and shared memory; sizes are padded
with zeros to powers of two, which Triton wants (20 faces to 32, 10 components to 16, 100 subjects to 128): exact, as
zeros stay zeros. Prints the engine's loop and the kernel's, and how far apart their last objectives are.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from icofactor.factorization.engines import jax as jax_engine
from icofactor.factorization.methods import METHODS
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.update import begin
from icofactor_lab.docs_tables import gpu


def fused(B_ref: Any, C_ref: Any, K_ref: Any, Lt_ref: Any, numbers: Any, out: Any, *, n: int) -> None:
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
    """As `run`, in Triton."""
    import torch

    kernel, tl = triton_kernel()
    number = {np.float64: tl.float64, np.float32: tl.float32}[dtype]
    starts = len(state.B)
    given = [padded(state.B, starts, 32, 16), padded(state.C, starts, 16, 128)]
    given += [padded(np.repeat(p.K[:, None], 10, axis=1), 32, 16), padded(p.L.T, 32, 128)]
    given += [np.array([np.finfo(dtype).tiny, p.penalty, p.sq_norm]), np.zeros(starts)]
    arrays = [torch.as_tensor(np.ascontiguousarray(x, dtype=dtype), device="cuda") for x in given]
    seconds = []
    for _ in range(repeats + 1):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        kernel[(starts,)](*arrays, n_iter, T=number, num_warps=num_warps)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
    return seconds, arrays[-1].cpu().numpy()


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
        for how, num_warps in product((run, run_triton), (1, 2, 4, 8)):
            name = "Pallas" if how is run else "Triton"
            try:
                seconds, found = how(p, state, args.updates, dtype, num_warps)
            except Exception as problem:  # a size or type that this version does not take
                print(f"  {name}, {num_warps} warps: {type(problem).__name__}: {str(problem)[-300:]}", flush=True)
                continue
            fused_seconds = float(np.median(seconds[1:]))
            apart = float(np.max(np.abs(found / expected - 1)))
            print(
                f"  {name}, {num_warps} warps: {1e3 * fused_seconds:.1f} ms, {ours / fused_seconds:.2f} times as fast; "
                f"objectives differ by {apart:.1e}; compiled in {seconds[0]:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
