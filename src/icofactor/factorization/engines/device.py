"""Maps on the device that JAX finds: statistics, lift and steps work there on X itself.

`OnDevice` goes around a source. Maps in memory are sent once, whole, where they fit; others part by part, and parts
stay there as far as memory allows, so that a later pass reads and sends only the rest. A task that is known there
(`streaming.blocks.DEVICE_TASKS`, `DevicePart.column_sums`) gets the part itself; for any other one it comes as blocks
from the host.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from icofactor.factorization.arrays import Array
from icofactor.factorization.engines.jax import bucket, memory_limit, settings
from icofactor.streaming.blocks import Arrays, BlockTask, Rows, blocks_of, cut
from icofactor.streaming.inspect import look
from icofactor.streaming.source import Adjustment, Changed, MapSource, Reader

_KEPT_SHARE = 0.5
"""Share of the device's memory in which maps are kept."""
_WHOLE = 3
"""Maps that are sent whole need this many times their size while they are put together."""
_SENT_BYTES, _SENDERS = 32 * 2**20, 8
_WORKED_BYTES = 2**30
"""Size of a part of maps that are there as a whole, in float64."""
_DENSE = 2**26
"""Entries of the dense columns of one product."""
_PER_SITE = {"coefficients": 0.0, "offset": 0.0, "scale": 1.0}


class OnDevice(Changed):
    """A source whose parts are on the device that JAX finds.

    Parameters
    ----------
    base : MapSource
    """

    def __init__(self, base: MapSource) -> None:
        super().__init__(base)
        self.held = False  # divisions and resamples shall not fetch it back
        self._lock, self._left = threading.Lock(), int(_KEPT_SHARE * (memory_limit() or 0))
        self._kept: dict[tuple[int, int], Array] = {}
        self._again: set[tuple[int, int]] = set()
        self._whole: Array | None = None
        self._sends_whole = self._can_be_whole()
        self.label = "device"

    def slices(self) -> list[slice]:
        """Of maps that are there as a whole, as few as its memory likes: each costs the host some work."""
        if not self._sends_whole:
            return self._base.slices()
        return cut(self.shape[0], max(1, _WORKED_BYTES // (8 * max(1, self.shape[1]))))

    def size(self, where: Rows) -> int:
        kept = isinstance(where, slice) and (where.start, where.stop) in self._again
        return 0 if kept else self._base.size(where)

    def reader(self, where: Rows, away: bool = False) -> Reader:
        read = self._base.reader(where, away)
        return read if away or not isinstance(where, slice) else partial(self._part, where, read)

    def _part(self, where: slice, read: Reader, block: Any) -> Any:
        return DevicePart(self, where, partial(read, block))

    def values(self, part: DevicePart) -> Array:
        """Subjects × sites of a part on the device, as the source has them, with zeros at the end."""
        where = (part.where.start, part.where.stop)
        with self._lock:
            if self._sends_whole and self._whole is None:
                self._whole = self._sent_whole()
            kept = self._kept.get(where)
            if kept is not None:
                self._again.add(where)
        if self._whole is not None:
            return _cut()(self._whole, part.where.start, size=part.n)
        if kept is not None:
            return kept
        x = np.asarray(part.read()).T
        raw = np.zeros((x.shape[0], bucket(part.n)), _native(x.dtype))
        raw[:, : part.n] = x
        found = jax.device_put(raw)
        with self._lock:
            if raw.nbytes <= self._left:
                self._left -= raw.nbytes
                self._kept[where] = found
        return found

    def _can_be_whole(self) -> bool:
        """Whether the maps are in memory as the device takes them, and fit."""
        held = self._base.in_memory()
        if held is None or not held[0].nbytes or _WHOLE * held[0].nbytes > (memory_limit() or 0):
            return False
        return bool(held[0].flags.c_contiguous and held[0].dtype in (np.float32, np.float64))

    def _sent_whole(self) -> Array:
        """Maps that are in memory, subjects × places."""
        held = self._base.in_memory()
        assert held is not None
        X, places = held
        step = max(1, _SENT_BYTES // max(1, X[:1].nbytes))
        chunks = [X[first : first + step] for first in range(0, len(X), step)]
        with ThreadPoolExecutor(_SENDERS) as pool:
            sent = list(pool.map(_sent, chunks))
        found = jnp.concatenate(sent)
        return found if places is None else found[:, places]


def _sent(x: np.ndarray) -> Array:
    with settings():  # of each thread: without them float64 would arrive as float32
        return jax.device_put(x)


def _native(dtype: np.dtype) -> np.dtype:
    """A type that the device has: float64 for all but floats and integers of at most four bytes."""
    small = dtype.kind in "fiu" and dtype.itemsize <= 4
    return dtype.newbyteorder("=") if small else np.dtype(np.float64)


@cache
def _cut() -> Any:
    return jax.jit(
        lambda X, first, *, size: jax.lax.dynamic_slice_in_dim(X, first, size, axis=1), static_argnames="size"
    )


@dataclass(frozen=True, eq=False)
class DevicePart:
    """One part: on the device for tasks that know it, blocks of the host for the others.

    Attributes
    ----------
    source, where : whose part it is
    read : gives its values from the host, sites × subjects
    adjustment : what is done to them first
    step : sites per block, on the host
    """

    source: OnDevice
    where: slice
    read: Any
    adjustment: Adjustment | None = None
    step: int = 1

    @property
    def n(self) -> int:
        return self.where.stop - self.where.start

    def adjusted(self, adjustment: Adjustment) -> DevicePart:
        if self.adjustment is not None:
            raise NotImplementedError("parts on a device are adjusted once")
        return replace(self, adjustment=adjustment)

    def in_steps(self, step: int) -> DevicePart:
        return replace(self, step=step)

    def host(self) -> np.ndarray:
        x = self.read()
        return np.asarray(x) if self.adjustment is None else self.adjustment.apply(np.asarray(x).T).T

    def __iter__(self) -> Iterator[tuple[slice, np.ndarray]]:
        return iter(blocks_of(self.host(), self.step))

    def run(self, task: BlockTask, shared: Mapping[str, Any], *own: np.ndarray | None) -> Arrays:
        """A task of blocks, traced and compiled, on the whole part."""
        fixed = {name: np.asarray(value) for name, value in shared.items()}
        static = tuple((k, v.item()) for k, v in fixed.items() if v.ndim == 0 and v.dtype.kind in "biu")
        given = {name: value for name, value in fixed.items() if name not in dict(static)}
        with settings():
            raw = self.source.values(self)
            rows = [self._padded(array, raw.shape[1]) for array in own]
            return self._cut(_called(_task(task, static), raw, self._step(raw.shape[1]), given, rows))

    def column_sums(self, reached: np.ndarray, columns: sp.csr_array, codes: np.ndarray | None) -> Arrays:
        """`look` at the part, and columnsᵀ x."""
        entries = columns.tocoo()
        n, n_c = bucket(max(1, columns.nnz)), bucket(columns.shape[1])
        fill = lambda x: np.pad(x, (0, n - len(x)))
        at = (fill(entries.coords[0]), fill(entries.coords[1]), fill(np.asarray(entries.data, dtype=np.float64)))
        with settings():
            raw = self.source.values(self)
            kinds = None if codes is None else tuple(codes.tolist())
            step = self._step(raw.shape[1])
            found = self._cut(_called(_sums(kinds, n_c), raw, step, np.int32(self.n), at))
        return {**found, "reached": reached, "columns": found["columns"][: len(reached)]}

    def _step(self, size: int) -> Adjustment | None:
        if self.adjustment is None:
            return None
        pad = lambda x, value: (
            None if x is None else np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, size - self.n)], constant_values=value)
        )
        padded: dict[str, Any] = {k: pad(getattr(self.adjustment, k), v) for k, v in _PER_SITE.items()}
        return replace(self.adjustment, **padded)

    def _padded(self, array: np.ndarray | None, size: int) -> np.ndarray | None:
        return (
            array
            if array is None or size == self.n
            else np.pad(array, [(0, size - self.n), *[(0, 0)] * (array.ndim - 1)])
        )

    def _cut(self, found: Mapping[str, Array]) -> Arrays:
        on_host: Mapping[str, np.ndarray] = jax.device_get(dict(found))
        return {name: x[: self.n] if name.startswith("site.") else np.asarray(x) for name, x in on_host.items()}


jax.tree_util.register_dataclass(
    Adjustment, data_fields=["Z", "coefficients", "offset", "scale", "codes"], meta_fields=["floor"]
)


def _values(raw: Array, step: Adjustment | None) -> Array:
    """Sites × subjects in float64, adjusted. Zeros at the end stay zeros."""
    x = raw.astype(jnp.float64)
    if step is not None:
        x = step.formula(x)
        x = jnp.maximum(x, 0.0) if step.floor else x
    return x.T


_compiling = threading.Lock()
_compiled: set[Any] = set()


def _called(function: Any, *given: Any) -> Any:
    """function(*given); threads that meet sizes for the first time compile for them once, not each for itself."""
    key = (function, jax.tree.structure(given), *(np.shape(x) for x in jax.tree.leaves(given)), given[0].dtype)
    if key in _compiled:
        return function(*given)
    with _compiling:
        found = function(*given)
        _compiled.add(key)
    return found


@cache
def _task(task: BlockTask, static: Sequence[tuple[str, Any]]) -> Any:
    def run(raw: Array, step: Adjustment | None, given: dict[str, Array], own: list[Any]) -> Mapping[str, Array]:
        return task(_values(raw, step), {**given, **dict(static)}, *own)

    return jax.jit(run)


@cache
def _sums(codes: tuple[int, ...] | None, n_columns: int) -> Any:
    def run(raw: Array, step: Adjustment | None, n: Array, at: tuple[Array, Array, Array]) -> dict[str, Array]:
        x = _values(raw, step)
        # what was added at the end repeats the last site, where the least and largest values are looked for
        seen = look(
            jnp.where((jnp.arange(len(x)) < n)[:, None], x, x[n - 1]), None if codes is None else np.array(codes)
        )
        row, column, weight = at
        sums = jnp.zeros((n_columns, x.shape[1]))
        for first in range(0, len(x), max(1, _DENSE // n_columns)):
            some = x[first : first + max(1, _DENSE // n_columns)]
            inside = (row >= first) & (row < first + len(some))
            dense = jnp.zeros((len(some), n_columns))
            dense = dense.at[jnp.where(inside, row - first, 0), column].add(jnp.where(inside, weight, 0.0))
            sums = sums + dense.T @ some
        return {**seen, "columns": sums}

    return jax.jit(run)
