"""The few array operations that differ between NumPy, JAX, torch and CuPy.

The mathematics in `schemes`, `extrapolation` and `solve` is written once over `xp = namespace(B)`. Everything
used there exists under the same name in all four libraries, or here.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

Array = Any
"""An array of any supported library; the last two axes are the matrix, what precedes them is the batch."""


def namespace(x: Array) -> Any:
    """The module whose functions accept `x`: numpy, jax.numpy, torch or cupy."""
    if isinstance(x, np.ndarray):
        return np
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(x, torch.Tensor):
        return torch
    if cupy is not None and isinstance(x, cupy.ndarray):
        return cupy
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    raise TypeError(f"expected an array of numpy, jax, torch or cupy; found {type(x).__name__}")


def asarray_like(x: Any, like: Array) -> Array:
    """`x` as a floating array of the library, type and (where there is one) device of `like`."""
    xp = namespace(like)
    if xp.__name__ == "torch":
        return xp.asarray(x, dtype=like.dtype, device=like.device)
    return xp.asarray(x, dtype=like.dtype)


def to_numpy(x: Array) -> np.ndarray:
    """`x` in host memory as a NumPy array."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "get"):  # cupy
        return np.asarray(x.get())
    if hasattr(x, "detach"):  # torch
        return np.asarray(x.detach().cpu().numpy())
    return np.asarray(x)


def T(x: Array) -> Array:
    """The transpose of each matrix of a batch."""
    return namespace(x).swapaxes(x, -1, -2)


def dot(x: Array, y: Array) -> Array:
    """⟨x, y⟩ of each matrix of a batch."""
    return (x * y).sum(-1).sum(-1)


def product(x: Array, y: Array) -> Array:
    """x @ y of each matrix of a batch, for a short inner dimension.

    On an accelerator a batch of such small products is sooner made by multiplying and summing, which JAX fuses with
    what surrounds it, than by its library of matrix products. NumPy makes tall ones
    as they lie (`turned`).
    """
    if x.ndim > 2 and isinstance(x, np.ndarray):
        return T(T(y) @ T(x)) if x.shape[-2] > x.shape[-1] else x @ y
    if x.ndim > 2 and x.shape[-1] <= 32 and namespace(x).__name__.startswith("jax"):
        return (x[..., :, :, None] * y[..., None, :, :]).sum(-2)
    return x @ y


def once(x: Array) -> Array:
    """`x` itself, which JAX computes once and keeps; without this it computes elementwise results again at each use."""
    if namespace(x).__name__.startswith("jax"):
        return sys.modules["jax"].lax.optimization_barrier(x)
    return x


def turned(x: Array) -> Array:
    """A batch of tall matrices that NumPy keeps column by column: loops over rows are then long ones."""
    return T(np.ascontiguousarray(T(x))) if isinstance(x, np.ndarray) and x.ndim > 2 else x


def matmul_shared(x: Array, shared: Array) -> Array:
    """x @ shared for a batch `x` and one matrix `shared`: a single large product instead of many small ones."""
    xp = namespace(x)
    if x.ndim == 2:
        return x @ shared
    flat = xp.reshape(x, (-1, x.shape[-1])) @ shared
    return xp.reshape(flat, (*x.shape[:-1], shared.shape[-1]))


def positive(x: Array) -> Array:
    """[x]₊, componentwise."""
    return namespace(x).clip(x, 0.0, None)


def ratio(numerator: Array, denominator: Array) -> Array:
    """numerator ⊘ denominator with 0 ⊘ 0 = 0, for non-negative denominators of any scale."""
    xp = namespace(denominator)
    return numerator / xp.clip(denominator, float(xp.finfo(denominator.dtype).tiny), None)


def where_each(keep: Array, x: Array, y: Array) -> Array:
    """Per matrix of a batch: `x` where `keep`, else `y`."""
    return namespace(x).where(keep[..., None, None], x, y)
