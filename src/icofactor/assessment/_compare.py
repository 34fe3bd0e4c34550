"""Two fits beside each other: which component is which, and whether they are more alike than
rotated maps are.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from icofactor.checks import check_parameters
from icofactor.errors import ArgumentError, Phrase
from icofactor.estimator.saving import load_model
from icofactor.factorization.matching import map_similarity, maps_of, matching_sites
from icofactor.factorization.starts import RandomState, seeds_of
from icofactor.preprocessing.resampling import Resampler
from icofactor.preprocessing.templates import find_meshes
from icofactor.sphere.names import hemispheres, mesh_known_as, mesh_name_of
from icofactor.sphere.rotations import SiteSpinner

_SPUN_SITES = 5000
"""Rotated maps are compared at about so many sites, spread evenly over the list of all."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Matched components of two fits, the result of `compare`.

    Attributes
    ----------
    table : dict
        One value per pair, in the order of the components of a: component_a, component_b (from 1),
        similarity (correlation of the maps), null_mean and null_95 (of the best matches of rotated
        maps), p (of this pair), p_corrected (over pairs, by the largest similarity of each
        rotation).
    similarity : array of shape (n_components_a, n_components_b)
        Correlations of all pairs.
    mean, null_mean, p : float
        Mean similarity of the pairs, that of rotated maps, and its p.
    maps_b, mask : arrays of shape (n_components_b, n_sites) and (n_sites,)
        Maps of b on the sites of a, and where both fits have data.
    model_a, model_b : CorticalFactorization
        The fits.
    n_spins : int
        Number of rotations.
    how : str
        How the maps of b were moved to the sites of a.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
    >>> comparison = ico.compare(model, model, n_spins=9)
    >>> comparison.table["component_b"].tolist(), round(comparison.mean, 6)
    ([1, 2, 3], 1.0)
    """

    table: dict[str, np.ndarray]
    similarity: np.ndarray
    mean: float
    null_mean: float
    p: float
    maps_b: np.ndarray
    mask: np.ndarray
    model_a: Any
    model_b: Any
    n_spins: int
    how: str

    def __str__(self) -> str:
        columns = ("component_a", "component_b", "similarity", "null_mean", "p")
        rows = zip(*(self.table[name] for name in columns), strict=True)
        lines = [
            f"{a} and {b}: {r:.2f} (rotated maps {null:.2f}, p = {p:.2g})"
            for a, b, r, null, p in rows
        ]
        whole = f"Mean similarity of {len(lines)} pairs: {self.mean:.2f}"
        return "\n".join([*lines, f"{whole} (rotated maps {self.null_mean:.2f}, p = {self.p:.2g})"])


def compare(
    a: Any,
    b: Any,
    *,
    spheres: str | os.PathLike[str] | None = None,
    n_spins: int = 1000,
    random_state: RandomState = 0,
    report: Callable[[float], None] | None = None,
) -> Comparison:
    """Match the components of two fits and test their similarity against rotated maps.

    Components are matched as by `match_components`. For the null, the maps of b are rotated
    together at random on the sphere, both hemispheres alike, and matched again. Rotated maps lose
    what the medial wall covers.

    Parameters
    ----------
    a, b : fitted models, their files, or folders written by `icofactor fit`
        What to compare.
    spheres : path, default=None
        Folder with registered spheres (HCPpipelines or TemplateFlow), needed between fs_LR and
        fsaverage: the maps of b are resampled to the mesh of a. fsaverage meshes need none.
    n_spins : int, default=1000
        Number of rotations.
    random_state : int, RandomState or None, default=0
        Seed of the rotations.
    report : callable, default=None
        Called with the fraction that is done.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(40, 3, mesh="fsaverage3", random_state=0)
    >>> first, second = (ico.CorticalFactorization(3, level=1).fit(cohort[half]) for half in (slice(20), slice(20, 40)))
    >>> found = ico.compare(first, second, n_spins=20)
    >>> found.table["component_b"].shape, found.mean > found.null_mean
    ((3,), True)
    """
    check_parameters(n_spins=n_spins)
    one, other = (load_model(x) if isinstance(x, str | os.PathLike) else x for x in (a, b))
    for name, model in (("a", one), ("b", other)):
        if not hasattr(model, "sites_"):
            raise ArgumentError(
                name,
                Phrase(type(model).__name__),
                "a fitted model, its file, or the folder of a fit",
            )
    maps_a = maps_of("a", one)
    maps_b, mask_b, how = _on_sites_of(one, other, spheres)
    mask_a = np.ones(one.sites_.n, dtype=bool) if one.mask_ is None else np.asarray(one.mask_)
    mask = mask_a & mask_b
    if not mask.any():
        raise ArgumentError(
            "b", None, "{a} and {b} have no site in common: where one has data, the other is masked"
        )
    similarity = map_similarity(maps_a, maps_b, one.sites_.weigh(mask))
    rows, columns = linear_sum_assignment(-similarity)
    found = similarity[rows, columns]
    null = np.empty((n_spins, len(rows)))
    at = np.unique(np.linspace(0, one.sites_.n - 1, _SPUN_SITES).astype(np.int64))
    spinner, rng = SiteSpinner(one.sites_, at), np.random.default_rng(seeds_of(random_state))
    for spin in range(n_spins):
        taken = spinner.draw(rng)
        both = one.sites_.weigh(mask_a[at] & mask_b[taken], at)
        rotated = map_similarity(maps_a[:, at], maps_b[:, taken], both)
        r, c = linear_sum_assignment(-rotated)
        matched = np.full(len(maps_a), np.nan)
        matched[r] = rotated[r, c]
        # of fewer components in b others of a may be matched: theirs stand in, so that no pair is
        # without a null
        null[spin] = np.where(np.isnan(matched[rows]), rotated[r, c].max(), matched[rows])
        if report is not None:
            report((spin + 1) / n_spins)
    p_of = lambda values, observed: (1 + (values >= observed).sum(axis=0)) / (1 + n_spins)
    table = {
        "component_a": rows + 1,
        "component_b": columns + 1,
        "similarity": found,
        "null_mean": null.mean(axis=0),
        "null_95": np.percentile(null, 95, axis=0),
        "p": p_of(null, found),
        "p_corrected": p_of(null.max(axis=1)[:, None], found),
    }
    means = null.mean(axis=1)
    p = float(p_of(means, found.mean()))
    shared = (float(found.mean()), float(means.mean()), p)
    return Comparison(table, similarity, *shared, maps_b, mask, one, other, n_spins, how)


def _on_sites_of(
    a: Any, b: Any, spheres: str | os.PathLike[str] | None
) -> tuple[np.ndarray, np.ndarray, str]:
    """b's maps and mask on a's sites, and how they came there."""
    maps, mask = (
        maps_of("b", b),
        np.ones(b.sites_.n, dtype=bool) if b.mask_ is None else np.asarray(b.mask_),
    )
    names = [mesh_name_of(model.sites_) for model in (a, b)]
    known = [mesh_known_as(name) for name in names]
    spaces = {mesh.space for mesh in known if mesh is not None}
    regions = (a.sites_.regions or b.sites_.regions) is not None
    if None in known or len(spaces) == 1 or regions:
        taken = matching_sites(a, b)
        how = (
            "same sites"
            if isinstance(taken, slice)
            else f"nearest vertex of {names[1]} for each of {names[0]}"
        )
        how = "same regions, by name" if regions else how
        return maps[:, taken], mask[taken], how
    sides = [getattr(model, "hemi_", None) for model in (a, b)]
    if sides[0] != sides[1] or sides[0] is None:
        raise ArgumentError(
            "b", Phrase(f"{sides[1]} and {sides[0]}"), "of the same hemispheres as {a}"
        )
    if {a.sites_.on, b.sites_.on} != {"vertices"}:
        raise ArgumentError(
            "b", Phrase(f"{b.sites_!r} and {a.sites_!r}"), "both on vertices, to be resampled"
        )
    if spheres is None:
        text = f"{{a}} is on {names[0]}, {{b}} on {names[1]}: {{spheres}} must name a folder with registered spheres"
        raise ArgumentError("spheres", None, f"{text} (HCPpipelines or TemplateFlow)")
    target, source = (mesh.name for mesh in known if mesh is not None)
    halves, covered = [], []
    for half, side in enumerate(hemispheres(sides[0])):
        old, new = find_meshes(Path(spheres), side, (source, target), areas=False)
        own = b.sites_.hemisphere == half
        resampler = Resampler(
            old.sphere, new.sphere, "barycentric", roi=mask[own].astype(np.float64)
        )
        halves.append(resampler(maps[:, own]))
        covered.append(resampler.coverage > 0.5)
    return np.hstack(halves), np.concatenate(covered), f"{names[1]} resampled to {names[0]}"
