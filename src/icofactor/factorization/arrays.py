"""The few array operations that differ between NumPy and JAX.

The mathematics of an update, in `schemes`, `extrapolation` and `update`, is written once: NumPy
runs it as it stands, and `engines.jax` compiles it. Where the two need different functions it asks
`namespace`, or calls one of these.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

Array = Any
"""An array of NumPy or JAX; the last two axes are the matrix, what precedes them is the batch."""


def namespace(x: Array) -> Any:
    """The module whose functions accept `x`: numpy or jax.numpy."""
    return np if isinstance(x, np.ndarray) else x.__array_namespace__()


def T(x: Array) -> Array:
    """The transpose of each matrix of a batch."""
    return namespace(x).swapaxes(x, -1, -2)


def dot(x: Array, y: Array) -> Array:
    """⟨x, y⟩ of each matrix of a batch."""
    return (x * y).sum(-1).sum(-1)


def product(x: Array, y: Array) -> Array:
    """x @ y of each matrix of a batch, for a short inner dimension."""
    if x.ndim == 2:
        return x @ y
    if isinstance(x, np.ndarray):
        # NumPy makes tall ones as they lie (`turned`).
        return T(T(y) @ T(x)) if x.shape[-2] > x.shape[-1] else x @ y
    if x.shape[-1] <= 32:
        # JAX fuses a multiplication and a sum with what surrounds them: on a GPU that is faster
        # than a batch of such small products.
        return (x[..., :, :, None] * y[..., None, :, :]).sum(-2)
    return x @ y


def once(x: Array) -> Array:
    """`x` itself, which JAX computes once and keeps; without this it computes elementwise results
    again at each use.
    """
    return x if isinstance(x, np.ndarray) else sys.modules["jax"].lax.optimization_barrier(x)


def turned(x: Array) -> Array:
    """A batch of tall matrices that NumPy keeps column by column: loops over rows are then long
    ones.
    """
    return T(np.ascontiguousarray(T(x))) if isinstance(x, np.ndarray) and x.ndim > 2 else x


def matmul_shared(x: Array, shared: Array) -> Array:
    """x @ shared for a batch `x` and one matrix `shared`: a single large product instead of many
    small ones.
    """
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


def where_each(
    keep: Array,
    x: Array,
    y: Array,
) -> Array:
    """Per matrix of a batch: `x` where `keep`, else `y`."""
    return namespace(x).where(keep[..., None, None], x, y)


def double(x: Array) -> np.ndarray:
    """Return an array of NumPy in float64 and C order."""
    return np.ascontiguousarray(x, dtype=np.float64)
