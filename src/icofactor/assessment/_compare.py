"""Two fits beside each other: which component is which, and how alike rotated maps would be."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import linear_sum_assignment

from icofactor.assessment.refit import check_fitted
from icofactor.checks import check_parameters
from icofactor.errors import ArgumentError
from icofactor.estimator.saving import load_model
from icofactor.factorization.matching import map_similarity, maps_of, matching_sites
from icofactor.factorization.starts import RandomState, seeds_of
from icofactor.preprocessing.resampling import Resampler
from icofactor.preprocessing.templates import find_meshes
from icofactor.sphere.names import hemispheres, mesh_known_as, mesh_name_of
from icofactor.sphere.rotations import SiteSpinner

if TYPE_CHECKING:
    from icofactor.estimator.estimator import CorticalFactorization

# Rotated maps are compared at about so many sites, spread evenly over the list of all.
_SPUN_SITES = 5000


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
    model_a: CorticalFactorization
    model_b: CorticalFactorization
    n_spins: int
    how: str

    def __str__(self) -> str:
        columns = ("component_a", "component_b", "similarity", "null_mean", "p")
        rows = zip(*(self.table[name] for name in columns), strict=True)
        lines = [
            f"{a} and {b}: {similarity:.2f} (rotated maps {null:.2f}, p = {p:.2g})"
            for a, b, similarity, null, p in rows
        ]
        lines.append(
            f"Mean similarity of {len(lines)} pairs: {self.mean:.2f} (rotated maps "
            f"{self.null_mean:.2f}, p = {self.p:.2g})"
        )
        return "\n".join(lines)


def compare(
    a: CorticalFactorization | str | os.PathLike[str],
    b: CorticalFactorization | str | os.PathLike[str],
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
    >>> halves = [cohort[:20], cohort[20:]]
    >>> first, second = (ico.CorticalFactorization(3, level=1).fit(half) for half in halves)
    >>> comparison = ico.compare(first, second, n_spins=20)
    >>> comparison.table["component_b"].shape, comparison.mean > comparison.null_mean
    ((3,), True)
    """
    check_parameters(n_spins=n_spins)
    model_a = _model("a", a)
    model_b = _model("b", b)
    sites = model_a.sites_
    maps_a = maps_of("a", model_a)
    maps_b, mask_b, how = _on_sites_of(model_a, model_b, spheres)
    mask_a = _mask(model_a)
    mask = mask_a & mask_b
    if not mask.any():
        raise ArgumentError("b", "has no site in common with a: both have masks")
    similarity = map_similarity(maps_a, maps_b, sites.weigh(mask))
    # The pairs with the largest sum of similarities.
    rows, columns = linear_sum_assignment(-similarity)
    matched = similarity[rows, columns]
    null = np.empty((n_spins, len(rows)))
    # Correlations of smooth maps need no more sites.
    spun_sites = np.unique(np.linspace(0, sites.n - 1, _SPUN_SITES).astype(np.int64))
    spinner = SiteSpinner(sites, spun_sites)
    rng = np.random.default_rng(seeds_of(random_state))
    for spin in range(n_spins):
        # All maps of b turn together, so that their relations stay.
        sources = spinner.draw(rng)
        weights = sites.weigh(mask_a[spun_sites] & mask_b[sources], spun_sites)
        rotated = map_similarity(maps_a[:, spun_sites], maps_b[:, sources], weights)
        pairs = linear_sum_assignment(-rotated)
        # If b has fewer components, others of a may be matched: the best of them stand in, so that
        # no pair is without a null.
        of_components = np.full(len(maps_a), rotated[pairs].max())
        of_components[pairs[0]] = rotated[pairs]
        null[spin] = of_components[rows]
        if report is not None:
            report((spin + 1) / n_spins)
    means = null.mean(axis=1)
    table = {
        "component_a": rows + 1,
        "component_b": columns + 1,
        "similarity": matched,
        "null_mean": null.mean(axis=0),
        "null_95": np.percentile(null, 95, axis=0),
        "p": _p(null, matched),
        "p_corrected": _p(null.max(axis=1)[:, None], matched),
    }
    return Comparison(
        table=table,
        similarity=similarity,
        mean=float(matched.mean()),
        null_mean=float(means.mean()),
        p=float(_p(means, matched.mean())),
        maps_b=maps_b,
        mask=mask,
        model_a=model_a,
        model_b=model_b,
        n_spins=n_spins,
        how=how,
    )


def _p(
    null: np.ndarray,
    observed: np.ndarray,
) -> np.ndarray:
    """Return how often rotations reach what was observed, counting the observed maps as one."""
    return (1 + (null >= observed).sum(axis=0)) / (1 + len(null))


def _model(
    argument: str, model: CorticalFactorization | str | os.PathLike[str]
) -> CorticalFactorization:
    """Return a fitted model, read from its file if necessary."""
    if isinstance(model, str | os.PathLike):
        return load_model(model)
    check_fitted(argument, model)
    return model


def _mask(model: CorticalFactorization) -> np.ndarray:
    """Return the sites at which a model has data."""
    if model.mask_ is None:
        return np.ones(model.sites_.n, dtype=bool)
    return model.mask_


def _on_sites_of(
    a: CorticalFactorization,
    b: CorticalFactorization,
    spheres: str | os.PathLike[str] | None,
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the maps and mask of b on the sites of a, and how they were moved there."""
    maps = maps_of("b", b)
    mask = _mask(b)
    name_a = mesh_name_of(a.sites_)
    name_b = mesh_name_of(b.sites_)
    target = mesh_known_as(name_a)
    source = mesh_known_as(name_b)
    has_regions = a.sites_.regions is not None or b.sites_.regions is not None
    if target is None or source is None or target.space == source.space or has_regions:
        sources = matching_sites(a, b)
        how = f"nearest vertex of {name_b} for each of {name_a}"
        if has_regions:
            how = "same regions, by name"
        elif isinstance(sources, slice):
            how = "same sites"
        return maps[:, sources], mask[sources], how
    hemi = getattr(a, "hemi_", None)
    on_vertices = a.sites_.on == b.sites_.on == "vertices"
    if hemi is None or hemi != getattr(b, "hemi_", None) or not on_vertices:
        raise ArgumentError(
            "b",
            "cannot be resampled to a: both must be on the vertices of the same hemispheres; found "
            f"{b.sites_!r} and {a.sites_!r}",
        )
    if spheres is None:
        raise ArgumentError(
            "spheres",
            f"must name a folder with registered spheres (HCPpipelines or TemplateFlow): a is on "
            f"{name_a}, b on {name_b}",
        )
    halves = []
    masks = []
    for half, side in enumerate(hemispheres(hemi)):
        old, new = find_meshes(Path(spheres), side, (source.name, target.name), areas=False)
        vertices = b.sites_.hemisphere == half
        roi = mask[vertices].astype(np.float64)
        resampler = Resampler(old.sphere, new.sphere, "barycentric", roi=roi)
        halves.append(resampler(maps[:, vertices]))
        # A vertex has data if more than half of what it is made of has.
        masks.append(resampler.coverage > 0.5)
    return np.hstack(halves), np.concatenate(masks), f"{name_b} resampled to {name_a}"
