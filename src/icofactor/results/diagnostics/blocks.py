"""The one pass over X: maps over sites, residuals of subjects, and what linear regression on the loadings needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from icofactor.factorization._lift import weighed
from icofactor.factorization.gathering import in_tiles, stored_part
from icofactor.preprocessing.centering import means_of
from icofactor.streaming.blocks import Arrays, Blocks, Reused, StoredPart, Tile
from icofactor.streaming.passes import each_block, pass_over
from icofactor.streaming.source import Adjustment

_ROUNDING = 1e-12
_room = Reused()


@dataclass(frozen=True, eq=False)
class Pass:
    """What one pass over X (sites × subjects) gives.

    Attributes
    ----------
    median, deviation : per site, in the data's units; standard deviations with n − 1
    site_variance, site_error : per site; sums of squares over subjects, of what was fitted (z-scores for "zscore")
    subject_variance, subject_error : per subject; sums of squares over sites, variance about the mean map
    moments : (k, k) Zᵀ Xcᵀ Xc Z, where Xc is X less each site's mean and Z the centred loadings
    sq_norm, sq_error : ‖X‖² and ‖X − fit‖², both in the data's units
    """

    median: np.ndarray
    deviation: np.ndarray
    site_variance: np.ndarray
    site_error: np.ndarray
    subject_variance: np.ndarray
    subject_error: np.ndarray
    moments: np.ndarray
    sq_norm: float
    sq_error: float


def fit_pass(
    X: Any,
    W: np.ndarray,
    loadings: np.ndarray,
    taken_out: Adjustment | None = None,
    report: Callable[[float], None] | None = None,
    weights: np.ndarray | None = None,
    codes: np.ndarray | None = None,
    mean: np.ndarray | None = None,
) -> Pass:
    """One pass over X (sites × subjects) against the fit W @ loadings.T (sites × k, subjects × k).

    Parameters
    ----------
    taken_out : what the fit took out of every site before: its mean (`offset`) and standard deviation (`scale`)
    weights : (n_sites,) how much each site counts in sums over sites; None: all alike
    codes : (n_subjects,) measure of each row, of which each has a mean map; None: of one measure
    mean : (n_sites,) the mean map, where it is known; large stores are then passed over tile by tile
    """
    shared = {"loadings": loadings, "Z": deviations(loadings, codes), "codes": codes}
    n_sites, n_subjects = X.shape
    out = taken_out or Adjustment()
    offset = np.zeros(n_sites) if out.offset is None else out.offset
    scale = np.ones(n_sites) if out.scale is None else out.scale
    sites = {name: np.empty(n_sites) for name in ("median", "spread", "variance", "error")}
    sums: dict[str, Any] = {}
    tiles = mean is not None and codes is None and in_tiles(X)
    if tiles:
        compile_for(X)
    task, own = (_look_at_tiles, [W, offset, scale, weights, mean]) if tiles else (_looked, [W, offset, scale, weights])
    for rows, found in pass_over(X, task, shared, own, report=report, tiles=tiles):
        for name, values in sites.items():
            values[rows] = found[f"site.{name}"]
        for name in ("variance", "error", "moments", "energy", "error_in_units"):
            sums[name] = sums.get(name, 0.0) + found[f"sum.{name}"]
    for squares in (sites["spread"], sites["variance"], sites["error"], sums["variance"], sums["error"]):
        np.maximum(squares, 0.0, out=squares)  # tiles give them as differences, which rounding may take below 0
    return Pass(
        sites["median"],
        np.sqrt(sites["spread"] / max(1, n_subjects - 1)),
        sites["variance"],
        sites["error"],
        sums["variance"],
        sums["error"],
        sums["moments"],
        float(sums["energy"]),
        max(0.0, float(sums["error_in_units"])),
    )


def compile_for(X: Any, ahead: bool = False, adjusted: bool = False) -> None:
    """Compile what the pass over a large store calls.

    Parameters
    ----------
    ahead : in a thread, after what its fit calls before
    adjusted : whether its maps will be adjusted by effects that are estimated first
    """
    part = stored_part(X)
    if part is None:
        return
    from icofactor.factorization.engines import cpu, looking
    from icofactor.results.diagnostics.medians import kernels_for

    part = replace(part, steps=(*part.done(), Adjustment())) if adjusted else part
    own = looking.kernels_to_compare(part) | kernels_for(part)
    before = looking.kernels_to_change(part) | looking.kernels_for(part)
    cpu.compile_ahead(before, own) if ahead else cpu.compile_kernels(own, 1)


def _look(
    x: np.ndarray,
    shared: Mapping[str, Any],
    W: np.ndarray,
    offset: np.ndarray,
    scale: np.ndarray,
    weights: np.ndarray | None,
) -> Arrays:
    """What one block of sites × subjects tells."""
    residual = np.square((x - offset[:, None]) / scale[:, None] - W @ shared["loadings"].T)
    mean, codes = x.mean(axis=1, keepdims=True), shared["codes"]
    centred = x - mean if codes is None else deviations(x.T, codes).T
    spread = np.einsum("ij,ij->i", centred, centred)
    # rounding leaves a little where all subjects have the same value
    centred[spread <= len(centred.T) * np.square(_ROUNDING * mean[:, 0])] = 0.0
    centred /= scale[:, None]
    projected = centred @ shared["Z"]
    variance = np.square(centred, out=centred)
    return {
        "site.median": np.median(x, axis=1),
        "site.spread": spread,
        "site.variance": variance.sum(axis=1),
        "site.error": residual.sum(axis=1),
        "sum.variance": weighed(variance, weights).sum(axis=0),
        "sum.error": weighed(residual, weights).sum(axis=0),
        "sum.moments": projected.T @ weighed(projected, weights),
        "sum.energy": np.array(np.einsum("ij,ij->", x, weighed(x, weights))),
        # sites without variance have an infinite scale: their z-scores, and what is left of them, are 0
        "sum.error_in_units": np.array(
            weighed(residual, weights).sum(axis=1) @ np.square(np.where(np.isfinite(scale), scale, 0.0))
        ),
    }


_looked = each_block(_look)


def _look_at_tiles(
    part: StoredPart | Blocks,
    shared: Mapping[str, Any],
    W: np.ndarray,
    offset: np.ndarray,
    scale: np.ndarray,
    weights: np.ndarray | None,
    mean: np.ndarray,
) -> Arrays:
    """`_look` of a part of large data, tile by tile where it is stored.

    With d = x − mean, z the centred loadings and e = (mean − offset) / scale − W c̄, a residual is d / scale − W z + e.
    So squares of residuals need products of d with z and with W only. Values that were rounded to two bytes are
    multiplied in float32, as in the lift; sums over tiles are float64.
    """
    if not isinstance(part, StoredPart):
        return _looked(part, shared, W, offset, scale, weights)
    from icofactor.factorization.engines import looking
    from icofactor.results.diagnostics.medians import medians

    _room.again()
    (n_sites, n), kind, tiles = part.shape, part.kind, list[Tile]()
    w = np.ones(n_sites) if weights is None else weights
    z, average, centre = shared["Z"], shared["loadings"].mean(axis=0), mean.astype(kind)
    Z, one = looking.narrowed(np.column_stack([z, np.ones(n)]), kind)
    Z = np.ascontiguousarray(Z.T)
    off, e = mean - centre, (mean - offset) / scale - W @ average
    # of every subject: W z, e and what rounding the mean leaves, times d; and d²
    heavy = np.column_stack([W, e, off / scale]) * (w / scale)[:, None]
    (narrow, unit), squared = looking.narrowed(heavy, kind), w / scale**2
    projected, cross = np.zeros((n_sites, len(Z))), np.zeros((heavy.shape[1], n))
    squares, energy = np.zeros(n_sites), np.zeros(n)
    for tile in looking.tiles_of(part, _room):  # each is worked on while it is in the cache
        tiles.append(tile)
        at, to = tile.sites, (tile.subjects.start, tile.subjects.stop - tile.subjects.start)
        values = looking.bits(tile.x), tile.rows, tile.first, centre[at]
        looking.add_products(*values, Z, *to, projected[at])
        looking.add_turned_products(*values, narrow[at], cross, *to)
        looking.add_squares(*values, squared[at], squares[at], energy, *to)
    median, same = medians(tiles, n_sites, n)
    projected, cross = projected * one, cross * unit[:, None]
    shift, projected = projected[:, -1:] / n, projected[:, :-1]
    spread = np.where(same, 0.0, squares - n * shift[:, 0] ** 2)
    projected = np.where(same[:, None], 0.0, (projected - shift * (Z[:-1].sum(axis=1) * one[:-1])) / scale[:, None])
    variance = spread / scale**2
    error = variance - 2 * (W * projected).sum(axis=1) + ((W @ (z.T @ z)) * W).sum(axis=1) + n * e**2
    cross -= (heavy.T @ off)[:, None]
    of_subject = energy - 2 * cross[-1] - w @ np.square(off / scale)
    heavy = weighed(W, weights)
    fitted = cross[:-2].T + heavy.T @ e - z @ (heavy.T @ W) / 2
    finite = np.where(np.isfinite(scale), scale, 0.0)
    return {
        "site.median": median,
        "site.spread": spread,
        "site.variance": variance,
        "site.error": error,
        "sum.variance": of_subject,
        "sum.error": of_subject - 2 * (z * fitted).sum(axis=1) + 2 * cross[-2] + w @ e**2,
        "sum.moments": projected.T @ weighed(projected, weights),
        "sum.energy": np.array(w @ (spread + n * mean**2)),
        "sum.error_in_units": np.array((w * error) @ finite**2),
    }


def deviations(rows: np.ndarray, codes: np.ndarray | None = None) -> np.ndarray:
    """Rows less their mean, that of their measure where they are of several."""
    return rows - (rows.mean(axis=0) if codes is None else means_of(rows, codes)[codes])


def linear_shares(
    moments: np.ndarray, loadings: np.ndarray, total: float, codes: np.ndarray | None = None
) -> tuple[float, np.ndarray]:
    """Share of the variance `total` that the loadings explain by linear regression, and what each adds to the others.

    The variance explained by a set S of components is tr((Z_SᵀZ_S)⁻¹ Z_SᵀXcᵀXcZ_S).
    """
    Z = deviations(loadings, codes)
    gram = Z.T @ Z
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
    gram, moments = gram / np.outer(scale, scale), moments / np.outer(scale, scale)

    def explained(members: np.ndarray) -> float:
        block = np.ix_(members, members)
        return float(np.trace(np.linalg.pinv(gram[block], hermitian=True, rcond=1e-10) @ moments[block]))

    everyone = np.arange(len(gram))
    whole = explained(everyone)
    lost = np.array([whole - (explained(np.delete(everyone, j)) if len(gram) > 1 else 0.0) for j in everyone])
    shares = np.clip(np.array([whole, *lost]) / total, 0.0, 1.0)  # rounding takes them beyond
    return float(shares[0]), shares[1:]
