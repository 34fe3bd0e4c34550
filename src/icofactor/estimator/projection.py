"""New maps against the components of a fit: what loadings, their quality and scores need, one pass over the maps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from icofactor.factorization._lift import product_block, weighed
from icofactor.factorization.gathering import stored_part
from icofactor.streaming.blocks import Arrays, Blocks, StoredPart, as_slice
from icofactor.streaming.inspect import look_for_bounds
from icofactor.streaming.passes import Stream, each_block


def projected_in_tiles(X: Stream) -> bool:
    """Whether the tasks below read X tile by tile, with what they call compiled. Values that are set to 0 are counted
    in blocks only."""
    part = stored_part(X)
    if part is None or any(getattr(step, "floor", False) for step in part.steps):
        return False
    if not X.runner.remote:
        from icofactor.factorization.engines import cpu, looking

        cpu.compile_kernels(looking.kernels_to_project(part), 1)
    return True


def projected_part(
    part: StoredPart | Blocks, shared: Mapping[str, Any], W: np.ndarray, mean: np.ndarray, weights: np.ndarray | None
) -> Arrays:
    """A part's share of WᵀX, and whether its values are fit to use."""
    if not isinstance(part, StoredPart):
        return _projected(part, shared, weighed(W, weights))
    found = _sums_of_tiles(part, shared, W, mean, mean[:, 0], weights)
    lacking = np.unpackbits(np.bitwise_or.reduce(found["site.missing"], axis=0), count=part.shape[1]).astype(bool)
    return {**found, "min.low": np.where(lacking, np.nan, found["min.low"])}


def _projected_block(x: np.ndarray, shared: Mapping[str, Any], heavy: np.ndarray) -> Arrays:
    return {**look_for_bounds(x), **product_block(x, shared, heavy)}


_projected = each_block(_projected_block)


def compared_part(
    part: StoredPart | Blocks,
    shared: Mapping[str, Any],
    W: np.ndarray,
    mean: np.ndarray,
    near: np.ndarray,
    weights: np.ndarray | None,
) -> Arrays:
    """Of every person, over the sites that the person has: WᵀX, Σ (x − near)², Σ (x − mean)² and the weight of these
    sites; and who lacks which site, as bits.

    Parameters
    ----------
    shared : "kinds", measure of each row
    mean : (n_sites, n_kinds) of the fitted people
    near : (n_sites,) a map that is close to all others
    """
    if isinstance(part, StoredPart):
        return _sums_of_tiles(part, shared, W, mean, near, weights)
    return _compared(part, shared, W, mean, near, weights)


def _compared_block(
    x: np.ndarray,
    shared: Mapping[str, Any],
    W: np.ndarray,
    mean: np.ndarray,
    near: np.ndarray,
    weights: np.ndarray | None,
) -> Arrays:
    missing, away = ~np.isfinite(x), x - (mean if mean.shape[1] == 1 else mean[:, shared["kinds"]])
    beside = x - near[:, None]
    if missing.any():
        x, away, beside = (np.where(missing, 0.0, values) for values in (x, away, beside))
    return {
        **look_for_bounds(x),
        "sum.WX": weighed(W, weights).T @ x,
        "sum.square": np.einsum("ij,ij->j", beside, weighed(beside, weights)),
        "sum.variance": np.einsum("ij,ij->j", away, weighed(away, weights)),
        "sum.weight": weighed((~missing).astype(np.float64), weights).sum(axis=0),
        "site.missing": np.packbits(missing, axis=1),
    }


_compared = each_block(_compared_block)


def _sums_of_tiles(
    part: StoredPart,
    shared: Mapping[str, Any],
    W: np.ndarray,
    mean: np.ndarray,
    near: np.ndarray,
    weights: np.ndarray | None,
) -> Arrays:
    """`_compared_block` of a part of large data, tile by tile.

    A value less the part's offset and divided by its scale is d / scale + e, with d its deviation from the mean map of
    the fit, which is small: so squares and products of d are made in float32 if values were rounded to two bytes. Of
    tiles where somebody lacks a site, everything is made in float64.
    """
    from icofactor.factorization.engines.looking import add_squares, add_turned_products, bits, narrowed, tiles_of

    (n_sites, n), kind, k = part.shape, part.kind, W.shape[1]
    offset, scale = part.left_out
    w = np.ones(n_sites) if weights is None else weights
    own = mean[:, 0]
    centre = (own * np.where(np.isfinite(scale), scale, 0.0) + offset).astype(kind)
    e = (centre - offset) / scale
    off = e[:, None] - np.column_stack([near, own])
    narrow, unit = narrowed(np.column_stack([W, off]) * (w / scale)[:, None], kind)
    squared = w / scale**2
    sums = {"WX": np.zeros((k, n))} | {name: np.zeros(n) for name in ("square", "variance", "weight")}
    low, high, missing = np.full(n, np.inf), np.full(n, -np.inf), dict[int, np.ndarray]()
    for tile in tiles_of(part, whole=bool(part.steps)):
        at, to = tile.sites, tile.subjects
        m, inside = to.stop - to.start, slice(tile.first, tile.first + to.stop - to.start)
        # Numba does not know float16, and NumPy compares it slowly
        x = np.ascontiguousarray(tile.x[as_slice(tile.rows), inside], np.float32 if tile.x.itemsize == 2 else None)
        bounds = look_for_bounds(x)
        if np.isfinite(bounds["min.low"]).all() and np.isfinite(bounds["max.high"]).all():
            cross, energy = np.zeros((k + 2, m)), np.zeros(m)
            values = bits(x), np.arange(len(x)), 0, centre[at]
            add_turned_products(*values, narrow[at], cross, 0, m)
            add_squares(*values, squared[at], np.zeros(len(x)), energy, 0, m)
            cross *= unit[:, None]
            beside, weight = w[at] @ np.square(off[at]), w[at].sum()
            sums["WX"][:, to] += cross[:k] + ((W[at] * w[at, None]).T @ e[at])[:, None]
            sums["square"][to] += energy + 2 * cross[k] + beside[0]
            sums["variance"][to] += energy + 2 * cross[k + 1] + beside[1]
            sums["weight"][to] += weight
        else:
            wide = (x.astype(np.float64) - offset[at, None]) / scale[at, None]
            found = _compared_block(wide, shared, W[at], mean[at], near[at], None if weights is None else w[at])
            for name, total in sums.items():
                total[..., to] += found[f"sum.{name}"]
            holes = ~np.isfinite(wide)
            for i in np.flatnonzero(holes.any(axis=1)).tolist():
                missing.setdefault(at.start + i, np.zeros(n, bool))[to] = holes[i]
            bounds = look_for_bounds(np.where(np.isfinite(x), x, 0))
        low[to] = np.minimum(low[to], bounds["min.low"])
        high[to] = np.maximum(high[to], bounds["max.high"])
    packed = np.zeros((n_sites, -(-n // 8)), np.uint8)
    for i, row in missing.items():
        packed[i] = np.packbits(row)
    return {"min.low": low, "max.high": high, **{f"sum.{name}": v for name, v in sums.items()}, "site.missing": packed}


def score_block(
    x: np.ndarray, shared: Mapping[str, Any], W: np.ndarray, mean: np.ndarray, weights: np.ndarray | None
) -> Arrays:
    """A block's share of ‖X − WC‖² and of Σ (x − mean)²."""
    squares = (np.square(x - W @ shared["C"].T), np.square(x - mean[:, shared["codes"]]))
    return {"sum.squares": np.array([weighed(values, weights).sum() for values in squares])}
