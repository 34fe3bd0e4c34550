"""A compiled `streaming.inspect.look` together with sums over faces: two walks over each row instead of nine.

`look_at_tile` makes one of it, of values as they are stored. Large data only: `gathering` and `_lift` import it there,
so that small fits do not wait for its compilation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from llvmlite.ir import FloatType, HalfType
from numba import from_dtype, types
from numba.extending import intrinsic, overload

from icofactor.factorization.engines.cpu import Kernels, compile_ahead, compile_kernels
from icofactor.factorization.engines.products import AT_ONCE, FEATURES, ROWS, STRIP, add_outer, dots, fetch
from icofactor.factorization.engines.sweeps import compiled
from icofactor.streaming.blocks import CACHE_BYTES, Reused, Room, StoredPart, Tile, cut
from icofactor.streaming.source import Adjustment, Holes

CONVERTS = bool(FEATURES.get("f16c"))
"""Whether the processor converts float16."""
_ROWS = 64
"""Rows that are converted before their products are added up."""


@compiled
def look_and_sum(x: np.ndarray, place: np.ndarray, weight: np.ndarray, sums: np.ndarray, low: np.ndarray,
                 high: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> bool:  # fmt: skip
    """Mean and Σ (x − mean)² of the rows of x; each row times its weight is added to a row of `sums`, `low` and `high`
    become the least and largest value of each column. False where a value is not finite; the rest is then left out."""
    n, m = x.shape
    for i in range(n):
        total = 0.0
        for j in range(m):
            total += x[i, j]
        centre, squares, own, w = total / m, 0.0, sums[place[i]], weight[i]
        if not np.isfinite(centre):
            return False
        for j in range(m):
            value = x[i, j]
            squares += (value - centre) * (value - centre)
            own[j] += w * value
            low[j] = min(low[j], value)
            high[j] = max(high[j], value)
        mean[i], variance[i] = centre, squares
    return True


_wide, _places, _table = types.float64[::1], types.int64[::1], types.float64[:, ::1]


def compile_for(part: StoredPart) -> None:
    """Compile what a fit of a large store of such parts needs: for its first pass now, for the lift meanwhile."""
    found = kernels_for(part)
    compile_kernels({look_at_tile: found[look_at_tile]}, 2)
    compile_ahead(found)


def compile_lift(part: StoredPart) -> None:
    """Compile what the lift of such parts needs, if no thread has done so yet."""
    compile_kernels(_products(part, whole=False), 2)


def compile_look() -> None:
    """Compile what the first pass over large data needs that are not stored in tiles."""
    compile_kernels({look_and_sum: (_rows(np.dtype(np.float64))[0], _places, _wide, _table, *[_wide] * 4)}, 1)


def kernels_for(part: StoredPart) -> Kernels:
    """The functions that a fit of such parts calls, in their order."""
    looked, number = type_seen(part), types.int64
    end = from_dtype(np.dtype(np.float64 if looked == np.float64 else np.float32))[::1]
    look: Kernels = {look_at_tile: (*_rows(looked), _places, _wide, _table, number, end, end, _wide, _wide, _wide)}
    return look | _products(part, whole=False)


def kernels_to_compare(part: StoredPart) -> Kernels:
    """Those that compare such parts with a fit."""
    squares = *_rows(type_seen(part)), from_dtype(part.kind)[::1], _wide, _wide, _wide, types.int64, types.int64
    return _products(part, whole=True) | {add_squares: squares}


def kernels_to_project(part: StoredPart) -> Kernels:
    """Those that project new maps on a fit, `estimator.projection`."""
    seen, kind, number = type_seen(part, whole=False), from_dtype(part.kind), types.int64
    both = *_rows(np.dtype(np.float32) if seen == np.float16 else seen), kind[::1]
    squares = _wide, _wide, _wide, number, number
    return {add_turned_products: (*both, kind[:, ::1], _table, number, number), add_squares: (*both, *squares)}


def _products(part: StoredPart, whole: bool) -> Kernels:
    kind, number = from_dtype(part.kind), types.int64
    both = *_rows(type_seen(part, whole)), kind[::1], kind[:, ::1]
    return {add_products: (*both, number, number, _table), add_turned_products: (*both, _table, number, number)}


def type_seen(part: StoredPart, whole: bool = True) -> np.dtype[Any]:
    """Of the values that `tiles_of` gives."""
    return part.dtype if part.coded is None and not part.done(whole) else part.kind


def _rows(seen: np.dtype[Any]) -> tuple[Any, ...]:
    """Types of the values, which rows of them, and the first column."""
    x = types.uint16 if seen == np.float16 else from_dtype(seen)
    return types.Array(x, 2, "C", readonly=True), _places, types.int64


def kernels_to_change(part: StoredPart) -> Kernels:
    """Those that decode and adjust the values of such parts, before any other sees them."""
    if part.steps:
        return _to_adjust(part.dtype, np.dtype(np.float64), any(isinstance(step, Adjustment) for step in part.steps))
    return {} if part.coded is None else _to_adjust(part.dtype, part.kind, False)


@cache
def _to_adjust(stored: np.dtype[Any], out: np.dtype[Any], adjusted: bool) -> Kernels:
    """`decode_rows` from one type to another, and `adjust_rows`."""
    single, row, codes = (types.Array(x, 1, "C", readonly=True) for x in (types.float32, types.float64, types.int64))
    table, yes = types.Array(types.float64, 2, "C", readonly=True), types.boolean
    steps = {adjust_rows: (_table, table, table, row, codes, table, table, yes, row, yes)} if adjusted else {}
    return {decode_rows: (*_rows(stored), single, single, from_dtype(out)[:, ::1]), **steps}


def tiles_of(part: StoredPart, room: Room | None = None, whole: bool = True) -> Iterator[Tile]:
    """The tiles of a part with values that `bits` gives to the functions below: as stored, or of `part.kind`, decoded
    and adjusted by the part's steps and (`whole`) its offset and scale."""
    steps = part.done(whole)
    if part.coded is None and not steps:
        yield from part.tiles(room)
        return
    own = Reused()
    for tile in part.tiles():
        n, width = len(tile.rows), tile.subjects.stop - tile.subjects.start
        own.again()
        x = (own if room is None else room)(n * width * part.kind.itemsize).view(part.kind).reshape(n, width)
        coded = None if part.coded is None else part.coded[:, tile.subjects]
        if steps:
            for at, block in wide_blocks(tile, steps, coded):
                x[at.start - tile.sites.start : at.stop - tile.sites.start] = block
        else:
            compile_kernels(kernels_to_change(part), 1)
            decode_rows(bits(tile.x), tile.rows, tile.first, *_coded(coded, width), x)
        yield tile._replace(x=x, rows=np.arange(n), first=0)


def wide_blocks(
    tile: Tile, steps: Sequence[Adjustment | Holes] = (), coded: np.ndarray | None = None
) -> Iterator[tuple[slice, np.ndarray]]:
    """Some sites of a tile at a time, in float64 and adjusted; each overwrites the one before."""
    adjusted = any(isinstance(step, Adjustment) for step in steps)
    compile_kernels(_to_adjust(tile.x.dtype, np.dtype(np.float64), adjusted), 1)
    width = tile.subjects.stop - tile.subjects.start
    most = max(1, CACHE_BYTES // (8 * width))
    memory, scale = np.empty((min(most, len(tile.rows)), width)), _coded(coded, width)
    for some in cut(len(tile.rows), most):
        block = memory[: some.stop - some.start]
        at = slice(tile.sites.start + some.start, tile.sites.start + some.stop)
        decode_rows(bits(tile.x), tile.rows[some], tile.first, *scale, block)
        for step in steps:
            adjust(step.at(tile.subjects, at), block)
        yield at, block


def _coded(coded: np.ndarray | None, width: int) -> np.ndarray:
    return bits(np.zeros((2, width), np.float32) if coded is None else coded)


def adjust(step: Adjustment | Holes, x: np.ndarray) -> None:
    """`step.apply` of sites × subjects, in place."""
    if isinstance(step, Holes):
        step.make(x)
        return
    (n, m), (Z, effects, centre, codes, location, spread, offset) = x.shape, step.terms()
    fixed = lambda values, empty: bits(np.ascontiguousarray(empty if values is None else values))
    each = lambda values, empty: fixed(None if values is None else np.atleast_2d(values), np.full((1, n), empty))
    adjust_rows(
        x,
        fixed(None if Z is None else Z.T, np.zeros((0, m))),
        fixed(effects, np.zeros((0, n))),
        each(centre, 0.0)[0],
        fixed(codes, np.zeros(m, np.int64)),
        each(location, 0.0),
        each(spread, 1.0),
        centre is not None,
        each(offset, 0.0)[0],
        step.floor,
    )


@compiled
def adjust_rows(x: np.ndarray, Z: np.ndarray, effects: np.ndarray, centre: np.ndarray, codes: np.ndarray,
                location: np.ndarray, spread: np.ndarray, back: bool, offset: np.ndarray,
                floor: bool) -> None:  # fmt: skip
    """See `Adjustment.terms`; Z is turned."""
    n, m = x.shape
    fitted, one = np.empty(m), max(len(location), len(spread)) == 1
    for i in range(n):
        own, c, o = x[i], centre[i], offset[i]
        for j in range(m):
            fitted[j] = c
        for p in range(len(Z)):
            effect, z = effects[p, i], Z[p]
            for j in range(m):
                fitted[j] += effect * z[j]
        if one:
            a, s = location[0, i], 1.0 / spread[0, i]
            for j in range(m):
                own[j] = (own[j] - fitted[j] - a) * s
        else:
            for j in range(m):
                a = location[min(codes[j], len(location) - 1), i]
                own[j] = (own[j] - fitted[j] - a) / spread[min(codes[j], len(spread) - 1), i]
        if back:
            for j in range(m):
                own[j] += fitted[j]
        for j in range(m):
            value = own[j] - o
            own[j] = 0.0 if floor and value < 0.0 else value  # NaN stays


def _exact(stored: Any, step: Any, offset: Any) -> Any:
    """A stored number or code as float32, NaN where it is not finite."""


@overload(_exact, inline="always")
def _exact_of(stored: Any, step: Any, offset: Any) -> Any:
    def single(stored: Any, step: Any, offset: Any) -> Any:
        return stored

    def half(stored: Any, step: Any, offset: Any) -> Any:
        value = _value(stored)
        return value if abs(value) < np.float32(65536.0) else np.float32(np.nan)

    def code(stored: Any, step: Any, offset: Any) -> Any:
        return np.float32(np.nan) if stored == np.int16(-32768) else np.float32(stored) * step + offset

    return {types.uint16: half, types.int16: code}.get(stored, single)


@compiled(fastmath=False)  # to the bit as `cohort.store.encoding.decode`
def decode_rows(x: np.ndarray, rows: np.ndarray, first: int, step: np.ndarray, offset: np.ndarray,
                out: np.ndarray) -> None:  # fmt: skip
    """Values of some rows of x, of the columns from `first` on; `step` and `offset` are those of codes."""
    for i in range(len(rows)):
        own, stored = out[i], x[rows[i], first : first + out.shape[1]]
        for j in range(len(own)):
            own[j] = _exact(stored[j], step[j], offset[j])


def bits(x: np.ndarray) -> np.ndarray:
    """Stored values as the functions below take them: float16, which Numba does not know, by its bits. Read-only, as
    those from a URL are: of each function one version does."""
    seen = x.view(np.uint16 if x.dtype == np.float16 else x.dtype)
    seen.flags.writeable = False
    return seen


def narrowed(columns: np.ndarray, kind: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Columns in the type in which they are multiplied, and the power of 2 that each was divided by: squares of values
    in small or large units, such as 1e-24 or 1e24, are beyond float32."""
    unit = np.ldexp(1.0, np.frexp(np.abs(columns).max(axis=0, initial=0.0))[1])
    return np.ascontiguousarray(columns / unit, kind), unit


def _value(stored: Any) -> Any:
    """A stored number as float32; float16 comes by its bits."""


@overload(_value, inline="always")
def _value_of(stored: Any) -> Any:
    return (by_processor if CONVERTS else by_bits) if stored == types.uint16 else _as_it_is


def _as_it_is(stored: Any) -> Any:
    return stored


def by_processor(stored: Any) -> Any:
    """The float32 of a float16."""
    return _converted(stored)


def by_bits(stored: Any) -> Any:
    """The same where the processor cannot; what is not finite becomes 65536 or more."""
    bits = np.int32(stored)  # exponent and mantissa move into place; the exponents of the two types differ by 112
    moved = ((bits & np.int32(0x7FFF)) << np.int32(13)) | ((bits & np.int32(0x8000)) << np.int32(16))
    return _float32(moved) * np.float32(2.0**112)


@intrinsic
def _converted(typing: Any, bits: Any) -> Any:
    def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fpext(builder.bitcast(values[0], HalfType()), FloatType())

    return types.float32(types.uint16), write


@intrinsic
def _float32(typing: Any, bits: Any) -> Any:
    """The float32 of these bits."""
    return types.float32(types.int32), lambda context, builder, signature, args: builder.bitcast(args[0], FloatType())


@compiled
def look_at_tile(x: np.ndarray, rows: np.ndarray, first: int, place: np.ndarray, weight: np.ndarray, sums: np.ndarray,
                 to: int, low: np.ndarray, high: np.ndarray, shift: np.ndarray, total: np.ndarray,
                 squares: np.ndarray) -> None:  # fmt: skip
    """`look_and_sum` of some rows of x, of the columns from `first` on that `low` has; sums are those from column `to`
    on. Σ (x − shift) and Σ (x − shift)² of each row are added to."""
    m = len(low)
    single = np.empty(m, low.dtype)
    for i in range(len(rows)):
        own, values = sums[place[i], to : to + m], x[rows[i], first : first + m]
        w, s, t, q = weight[i], shift[i], 0.0, 0.0
        for j in range(m):  # float32 and float64 in loops of their own: a third faster than in one
            value = _value(values[j])
            single[j] = value
            low[j] = min(low[j], value)
            high[j] = max(high[j], value)
        for j in range(m):
            wide = np.float64(single[j])
            own[j] += w * wide
            t += wide - s
            q += (wide - s) * (wide - s)
        total[i] += t
        squares[i] += q


@compiled
def add_squares(x: np.ndarray, rows: np.ndarray, first: int, centre: np.ndarray, weight: np.ndarray,
                squares: np.ndarray, sums: np.ndarray, to: int, m: int) -> None:  # fmt: skip
    """Σ (x − centre)² of some rows of x, of m columns from `first` on, is added to `squares`; of the columns, the same
    with weights to `sums`, from `to` on."""
    block, own = np.empty(m, centre.dtype), sums[to : to + m]
    for i in range(len(rows)):
        w, total = weight[i], 0.0
        _less(x[rows[i], first : first + m], centre[i], block)
        for j in range(m):
            square = np.float64(block[j]) * np.float64(block[j])
            total += square
            own[j] += w * square
        squares[i] += total


@compiled
def _less(values: np.ndarray, centre: Any, out: np.ndarray) -> None:
    for j in range(len(values)):
        out[j] = _value(values[j]) - centre


@compiled
def add_products(x: np.ndarray, rows: np.ndarray, first: int, centre: np.ndarray, C: np.ndarray,
                 to: int, m: int, sums: np.ndarray) -> None:  # fmt: skip
    """(x − centre) Cᵀ of some rows of x is added to `sums`: m columns of x from `first` on, of C from `to` on."""
    k = len(C)
    line, deep = 64 // C.itemsize, -(-k // AT_ONCE) * AT_ONCE
    wide = -(-m // line) * line
    turned, block = np.zeros((deep, wide + line), C.dtype), np.zeros((ROWS, wide + line), C.dtype)  # not a power of 2
    for p in range(k):  # an assignment of a part would compile for seconds
        for j in range(m):
            turned[p, j] = C[p, to + j]
    product = np.empty((ROWS, deep), C.dtype)
    for start in range(0, len(rows), ROWS):
        end = min(start + ROWS, len(rows))
        for i in range(start, end):
            _less(x[rows[i], first : first + m], centre[i], block[i - start])
        _fetch_rows(x, rows[end : end + ROWS], first, m)
        dots(block[:, :wide], turned, product)
        for i in range(end - start):
            for p in range(k):
                sums[start + i, p] += product[i, p]


@compiled
def add_turned_products(x: np.ndarray, rows: np.ndarray, first: int, centre: np.ndarray, W: np.ndarray,
                        sums: np.ndarray, to: int, m: int) -> None:  # fmt: skip
    """Wᵀ (x − centre) of some rows of x, of m columns from `first` on, is added to `sums` from its column `to` on."""
    k = len(sums)
    strip = STRIP // W.itemsize
    wide = -(-m // strip) * strip
    room = wide + 64 // W.itemsize  # not a power of 2: rows would push each other out of the cache
    block, total = np.zeros((_ROWS, room), W.dtype), np.zeros((k + AT_ONCE, room), W.dtype)
    weights, used = np.zeros((_ROWS, k + AT_ONCE), W.dtype), np.empty(k + AT_ONCE, np.int64)
    for start in range(0, len(rows), _ROWS):
        end = min(start + _ROWS, len(rows))
        for i in range(start, end):
            _less(x[rows[i], first : first + m], centre[i], block[i - start])
        _fetch_rows(x, rows[end : end + _ROWS], first, m)
        n_used = 0
        for p in range(k):  # neighbours have few of the components
            here = False
            for i in range(start, end):
                weights[i - start, n_used] = W[i, p]
                here |= W[i, p] != 0
            used[n_used] = p
            n_used += here
        for p in range(AT_ONCE):
            used[n_used + p] = k + p  # rows that nobody needs
        some = used[: -(-n_used // AT_ONCE) * AT_ONCE]
        add_outer(block[: end - start, :wide], weights, some, total)
    for p in range(k):
        own = sums[p, to : to + m]
        for j in range(m):
            own[j] += total[p, j]


@compiled
def _fetch_rows(x: np.ndarray, rows: np.ndarray, first: int, m: int) -> None:
    for i in range(len(rows)):
        for j in range(first, first + m, 64 // x.itemsize):
            fetch(x, rows[i], j)
