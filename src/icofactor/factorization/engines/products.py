"""Products of narrow matrices in vector registers: four of the rows or columns that C or W has at a time.

BLAS copies both matrices before it multiplies them, which with k = 20 takes as long as the product. Here values come
from the cache as they lie. This is LLVM's own language, so that sums stay in registers: vectors of 64 bytes where the
processor has AVX-512, of 32 with AVX2, else of 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _features() -> Mapping[str, bool]:
    try:
        return dict(get_host_cpu_features())
    except RuntimeError:  # LLVM does not know the processor
        return {}


FEATURES = _features()
"""What the processor can do, by the names of LLVM."""
_REGISTER = 64 if FEATURES.get("avx512f") else 32 if FEATURES.get("avx2") else 16
AT_ONCE = 4
"""Columns of C or W."""
ROWS = 3 if FEATURES.get("sse2") and _REGISTER < 64 else 4
"""Rows of `dots`, vectors of `add_outer`: with AT_ONCE times as many sums, what fits in 16 or 32 registers."""
STRIP = ROWS * _REGISTER
"""Bytes of a row in `add_outer`."""
_SUM = ("contract", "reassoc", "nsz")
_whole = ir.IntType(64)


@intrinsic
def dots(typing: Any, x: Any, C: Any, out: Any) -> Any:
    """out = x Cᵀ, of ROWS rows of x; C has a multiple of AT_ONCE rows, both have whole vectors."""

    def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = _Code(context, builder, signature.args, values)
        (_, m), (k, _), _ = code.shapes
        xs = [code.row(0, _whole(r)) for r in range(ROWS)]
        sums = [[cgutils.alloca_once(builder, code.vector) for _ in range(AT_ONCE)] for _ in xs]
        with code.steps(k, AT_ONCE) as p:
            cs = [code.row(1, builder.add(p, _whole(q))) for q in range(AT_ONCE)]
            code.clear(sums)
            with code.steps(m, code.lanes) as j:
                right = [code.load(row, j) for row in cs]
                for row, own in zip(xs, sums, strict=True):
                    left = code.load(row, j)
                    for values_of_C, to in zip(right, own, strict=True):
                        code.add_product(to, left, values_of_C)
            for r, own in enumerate(sums):
                code.store(code.totals([builder.load(total) for total in own]), code.row(2, _whole(r)), p)
        return context.get_dummy_value()

    return types.void(x, C, out), write


@intrinsic
def add_outer(typing: Any, x: Any, W: Any, at: Any, sums: Any) -> Any:
    """Wᵀx is added to the rows `at` of `sums`: of len(at) columns of W, a multiple of AT_ONCE; x has whole strips."""

    def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = _Code(context, builder, signature.args, values)
        (n, m), _, (k,), _ = code.shapes
        totals = [[cgutils.alloca_once(builder, code.vector) for _ in range(ROWS)] for _ in range(AT_ONCE)]
        with code.steps(m, ROWS * code.lanes) as j:
            places = [builder.add(j, _whole(v * code.lanes)) for v in range(ROWS)]
            with code.steps(k, AT_ONCE) as p:
                columns = [builder.add(p, _whole(q)) for q in range(AT_ONCE)]
                code.clear(totals)
                with code.steps(n, 1) as i:
                    own, weights = code.row(0, i), code.row(1, i)
                    right = [code.load(own, v) for v in places]
                    for column, to in zip(columns, totals, strict=True):
                        weight = code.everywhere(code.load(weights, column, code.vector.element))
                        for values_of_x, total in zip(right, to, strict=True):
                            code.add_product(total, weight, values_of_x)
                for column, to in zip(columns, totals, strict=True):
                    row = code.row(3, code.load(code.data[2], column, _whole))
                    for v, total in zip(places, to, strict=True):
                        code.store(code.added(code.load(row, v), builder.load(total)), row, v)
        return context.get_dummy_value()

    return types.void(x, W, at, sums), write


@intrinsic
def fetch(typing: Any, x: Any, i: Any, j: Any) -> Any:
    """The processor is told that x[i, j] and its neighbours will be needed."""

    def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = _Code(context, builder, signature.args[:1], values[:1])
        small, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, small, small, small])
        known = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(
            known,
            [builder.bitcast(builder.gep(code.row(0, values[1]), [values[2]]), pointer), small(0), small(2), small(1)],
        )
        return context.get_dummy_value()

    return types.void(x, i, j), write


class _Code:
    """What products are written with: the addresses of their arrays, and vectors of the first one's type."""

    def __init__(self, context: Any, builder: Any, kinds: Any, values: Any) -> None:
        arrays = [context.make_array(kind)(context, builder, value) for kind, value in zip(kinds, values, strict=True)]
        self.builder, self.data = builder, [array.data for array in arrays]
        self.shapes = [cgutils.unpack_tuple(builder, array.shape) for array in arrays]
        self.strides = [cgutils.unpack_tuple(builder, array.strides)[0] for array in arrays]
        self.size = kinds[0].dtype.bitwidth // 8
        self.lanes = max(AT_ONCE, _REGISTER // self.size)
        self.vector = ir.VectorType(context.get_value_type(kinds[0].dtype), self.lanes)

    @contextmanager
    def steps(self, end: Any, step: int) -> Iterator[Any]:
        with cgutils.for_range_slice(self.builder, _whole(0), end, _whole(step), _whole) as (at, _):
            yield at

    def clear(self, sums: list[list[Any]]) -> None:
        for total in chain(*sums):
            self.builder.store(ir.Constant(self.vector, [0.0] * self.lanes), total)

    def row(self, array: int, i: Any) -> Any:
        start = self.builder.ptrtoint(self.data[array], _whole)
        there = self.builder.add(start, self.builder.mul(self.strides[array], i))
        return self.builder.inttoptr(there, self.data[array].type)

    def load(self, row: Any, at: Any, kind: Any = None) -> Any:
        pointer = (self.vector if kind is None else kind).as_pointer()
        return self.builder.load(self.builder.bitcast(self.builder.gep(row, [at]), pointer), align=self.size)

    def store(self, found: Any, row: Any, at: Any) -> None:
        there = self.builder.bitcast(self.builder.gep(row, [at]), found.type.as_pointer())
        self.builder.store(found, there, align=self.size)

    def add_product(self, total: Any, a: Any, b: Any) -> None:
        self.builder.store(self.added(self.builder.fmul(a, b, flags=_SUM), self.builder.load(total)), total)

    def everywhere(self, value: Any) -> Any:
        one = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), value, ir.IntType(32)(0))
        return self._picked(one, one, [0] * self.lanes)

    def totals(self, sums: list[Any]) -> Any:
        """The sums over each of four vectors, in one of four values."""
        n = self.lanes
        for step in (1, 2):  # values are added to their neighbours, and two vectors become one
            here = [j for i in range(0, n, 2 * step) for j in (*range(i, i + step), *range(n + i, n + i + step))]
            there = [j + step for j in here]
            pairs = zip(sums[::2], sums[1::2], strict=True)
            sums = [self.added(self._picked(a, b, here), self._picked(a, b, there)) for a, b in pairs]
        (found,) = sums
        while n > AT_ONCE:
            n //= 2
            halves = [self._picked(found, found, [*range(first, first + n)]) for first in (0, n)]
            found = self.added(*halves)
        return found

    def added(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=_SUM)

    def _picked(self, a: Any, b: Any, places: list[int]) -> Any:
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places))
