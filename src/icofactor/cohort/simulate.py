"""Simulated cohorts on fsaverage, made from nilearn's embedded group maps.

Never to be taken for measurements. Model, per subject s and site v:

    X_sv = m_v (Σ_j r_vj c_sj + σ e_sv)

where m is a group map in the modality's units; the soft regions r_vj ≥ 0 sum to 1 over j; the
loadings c_sj = 1 − d + d·Exp(1) have mean 1 and standard deviation d; e is smooth noise of
variance 1. d and σ follow from `variability` and `noise`.

By default `variability` is not that of real thickness (0.008). With loadings that hardly vary,
every subject's map is nearly m, and C → C Q⁻¹, W → Q W stays non-negative for many Q: the truth is
then one of many answers that fit alike. The default was chosen so that NMF can recover the truth,
not measured on anyone. Matched correlation with the truth, scikit-learn's NMF (nndsvda, 300
iterations), ten components, noise 0.5, left hemisphere, mean over seeds 10 to 19:

    variability  0.008   0.03   0.06   0.10   0.13   0.165   0.20
    maps           .68    .77    .83    .88    .92     .93    .93
    loadings       .67    .77    .83    .88    .92     .93    .94

So finding the truth again by NMF on the default says nothing about data as uniform as real
thickness. Factorizations of deviations from the mean map (method "parts") do not see m, and find
the truth alike at every variability (.98 / .96).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import cKDTree
from scipy.special import log_ndtr, ndtri

from icofactor.checks import OneOf, Whole, check_parameters, check_value
from icofactor.cohort.cohort import Cohort, Hemisphere, Truth
from icofactor.errors import ArgumentError
from icofactor.sphere.names import hemispheres
from icofactor.sphere.operators import neighbour_average, smooth_rows
from icofactor.sphere.sites import Sites

Floats = NDArray[np.float64]
_MESHES = ("fsaverage3", "fsaverage4", "fsaverage5")
_SOURCE_LEVEL = 5
_DEFAULT_VARIABILITY = 0.165
# Sharpness of the borders between regions, in units of the logits.
_SHARPNESS = 6.0
# How much the sizes and the borders of regions vary, as a share of the sharpness.
_SIZE_SPREAD = 0.1
_BORDER_SPREAD = 0.15
# Rounds of neighbour averaging at fsaverage5's edges (about 3.3 mm): 10 give a FWHM of about 16 mm.
_NOISE_ROUNDS = 10
_BORDER_ROUNDS = 60
# Values are kept above this share of the group map.
_FLOOR = 0.02
# Correlation of age with the first component, and effect of sex on the second.
_AGE_EFFECT = -0.6
_SEX_EFFECT = 0.5
# With more components, regions would be smaller than the noise.
_MAX_COMPONENTS = 50
# Subjects that are simulated together, to bound memory.
_BLOCK = 64


@dataclass(frozen=True)
class Modality:
    """A kind of map: its units, its group map of (thickness, sulcal depth, area), its maximum."""

    units: str
    group_map: Callable[[Floats, Floats, Floats], Floats]
    highest: float = np.inf


def _thinness(thickness: Floats) -> Floats:
    return (2.4 - thickness) / 0.45


MODALITIES: dict[str, Modality] = {
    "thickness": Modality("mm", lambda t, s, a: t),
    # T1w/T2w is high where cortex is thin; the stand-in has its range, not its details.
    "myelin": Modality(
        "T1w/T2w",
        lambda t, s, a: np.clip(1.33 + 0.16 * _thinness(t) + 0.05 * s, 1.0, 2.2),
    ),
    "reho": Modality(
        "Kendall's W",
        lambda t, s, a: np.clip(0.28 - 0.05 * _thinness(t) + 0.05 * s, 0.1, 0.42),
        1.0,
    ),
    "alff": Modality("a.u.", lambda t, s, a: np.clip(np.exp(0.8 * s - 0.15 * (a - 4.8)), 0.2, 5.0)),
}


def simulate_cohort(
    n_subjects: int = 100,
    n_components: int = 10,
    modality: str = "thickness",
    hemisphere: Hemisphere = "left",
    random_state: int | None = 0,
    noise: float = 0.5,
    mesh: str = "fsaverage5",
    variability: float | None = None,
    hemi: Hemisphere | None = None,
    measure: int = 0,
) -> Cohort:
    """Simulate a positive cohort with known components, based on real group maps.

    Component 0 decreases with age, and component 1 is larger in men. With both hemispheres, most
    components are bilateral; of four or more, the last two are in one hemisphere each. All sites
    have data, and `mask` is None: the medial wall is not left out, because nilearn contains no
    cortex label.

    Parameters
    ----------
    n_subjects, n_components : int
        Numbers of subjects and components.
    modality : {"thickness", "myelin", "reho", "alff"}, default="thickness"
        Measure to simulate: thickness (mm), myelin (T1w/T2w), ReHo (0 to 1) or ALFF (arbitrary
        units).
    hemisphere : {"left", "right", "both"}
        Hemispheres; `hemi` is the same.
    random_state : int or None, default=0
        Seed. The same seed gives the same data; subject i does not depend on `n_subjects`. None
        draws a seed.
    noise : float, default=0.5
        Share of the between-subject variance that is noise, in [0, 1).
    mesh : {"fsaverage5", "fsaverage4", "fsaverage3"}
        Mesh; the smaller ones are for quick trials.
    variability : float, optional
        Between-subject variance as a share of all energy. Default: 0.165, far more than in real
        thickness (0.008), so that components can be recovered with noise = 0.5; thickness then
        ranges from 0.03 to about 13 mm. 0.008 gives realistic values (1 to 5.5 mm), whose
        components plain NMF does not recover.
    measure : int, default=0
        Number of the measure. 1, 2, ... have the same people, regions and loadings as 0, with their
        own noise.

    Returns
    -------
    Cohort

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> cohort.X.shape, cohort.truth.components.shape
    ((20, 642), (3, 642))
    """
    variability = _DEFAULT_VARIABILITY if variability is None else variability
    hemisphere = hemisphere if hemi is None else hemi
    check_parameters(n_subjects=n_subjects, n_components=n_components)
    if n_components > _MAX_COMPONENTS:
        text = f"must be at most {_MAX_COMPONENTS}, or regions would be smaller than the noise"
        raise ArgumentError("n_components", f"{text}; found {n_components}")
    check_value("modality", modality, OneOf(tuple(MODALITIES)))
    hemispheres(hemisphere, "hemisphere")
    check_value("mesh", mesh, OneOf(_MESHES))
    if random_state is not None:
        check_value("random_state", random_state, Whole(0))
    _check_share("noise", noise, noise >= 0)
    _check_share("variability", variability, variability > 0)
    sites = Sites.named(mesh, hemi=hemisphere)
    seeds = np.random.SeedSequence(None if random_state is None else int(random_state))
    structure, people = seeds.spawn(2)
    kind = MODALITIES[modality]
    mean = group_map(kind, sites, hemisphere)
    smoother = neighbour_average(sites.triangles)
    regions = _regions(
        np.random.default_rng(structure),
        sites,
        hemisphere,
        n_components,
        smoother,
    )
    components = np.ascontiguousarray(regions * mean)

    between = variability / (1 - variability)
    spread = float(np.sqrt((1 - noise) * between * np.sum(mean**2) / np.sum(components**2)))
    if spread > 0.95:
        text = f"{variability} with noise {noise} needs loadings with a standard deviation of"
        remedy = "lower the variability or raise the noise"
        raise ArgumentError("variability", f"{text} {spread:.2f}, above 0.95; {remedy}")
    rounds = _rounds(_NOISE_ROUNDS, sites)
    scale = mean * np.sqrt(noise * between) / _noise_spread(smoother, rounds)
    X = np.empty((n_subjects, sites.n), dtype=np.float32)
    loadings = np.empty((n_subjects, n_components))
    ages = np.empty(n_subjects)
    sexes = np.empty(n_subjects, dtype="<U1")
    lowest = _FLOOR * mean
    n_clipped = 0
    for rows, streams in _blocks(people, n_subjects):
        for i, stream in zip(rows, streams, strict=True):
            ages[i], sexes[i], loadings[i] = _person(stream, n_components, spread)
        if measure:
            # Another measure of the same people has noise of its own.
            streams = [stream.spawn(measure)[-1] for stream in streams]
        white = np.stack([stream.standard_normal(sites.n, dtype=np.float32) for stream in streams])
        for i, e in zip(rows, smooth_rows(white, smoother, rounds), strict=True):
            # One product per subject: a product of all rows would round differently for other
            # numbers of subjects.
            x = loadings[i] @ components + scale * e
            X[i] = np.clip(x, lowest, kind.highest)
            n_clipped += int(np.count_nonzero((x < lowest) | (x > kind.highest)))

    names = tuple(f"sub-{i + 1:04d}" for i in range(n_subjects))
    provenance: dict[str, Any] = {
        "simulated": True,
        "description": "Simulated with icofactor.simulate_cohort from group maps of fsaverage; not "
        "measurements. The default variability was chosen for recoverable components and is about "
        "20 times that of real thickness.",
        "group_maps": "nilearn.datasets.load_fsaverage_data (thickness, sulcal, area)",
        "n_subjects": int(n_subjects),
        "n_components": int(n_components),
        "modality": modality,
        "hemisphere": hemisphere,
        "mesh": mesh,
        "seed": seeds.entropy,
        "noise": float(noise),
        "variability": float(variability),
        "loading_standard_deviation": spread,
        "age_component": 0,
        "sex_component": 1 if n_components > 1 else None,
        "clipped_fraction": n_clipped / X.size,
    }
    return Cohort(
        X=X,
        subjects=names,
        sites=sites,
        hemisphere=hemisphere,
        modality=modality,
        units=kind.units,
        participants={"participant_id": np.array(names), "age": ages, "sex": sexes},
        truth=Truth(components.astype(np.float32), loadings.astype(np.float32)),
        provenance=provenance,
    )


def _check_share(
    name: str,
    share: float,
    is_positive: bool,
) -> None:
    """Raise an error unless a share is between 0 and 1."""
    if not (is_positive and share < 1):
        raise ArgumentError(name, f"must be a share, between 0 and 1; found {share}")


def _rounds(
    at_fsaverage5: int,
    sites: Sites,
) -> int:
    """Return the rounds of averaging for the same width: variance grows with rounds × edge²."""
    assert sites.level is not None
    return max(1, round(at_fsaverage5 / 4 ** (_SOURCE_LEVEL - sites.level)))


def _noise_spread(
    smoother: sparse.csr_array,
    rounds: int,
) -> float:
    """Return the standard deviation of smoothed white noise; it depends on the mesh only."""
    white = np.random.default_rng(0).standard_normal((_BLOCK, smoother.shape[0]), dtype=np.float32)
    return float(np.sqrt(np.mean(smooth_rows(white, smoother, rounds).astype(np.float64) ** 2)))


@lru_cache(maxsize=8)
def _embedded_map(
    name: str,
    hemisphere: str,
) -> Floats:
    """Return one of nilearn's embedded fsaverage5 maps, slightly smoothed."""
    from nilearn.datasets import load_fsaverage_data

    values = load_fsaverage_data(mesh="fsaverage5", data_type=name).data.parts[hemisphere]
    source = neighbour_average(Sites.named("fsaverage5").triangles)
    smooth = smooth_rows(np.asarray(values, dtype=np.float64)[None], source, 2)[0]
    smooth.setflags(write=False)
    return smooth


def group_map(
    kind: Modality,
    sites: Sites,
    hemisphere: Hemisphere,
) -> Floats:
    """Return the modality's positive group map on the sites."""
    parts = []
    source = cKDTree(Sites.named("fsaverage5").coordinates)
    for half, name in enumerate(hemispheres(hemisphere)):
        _, nearest = source.query(sites.coordinates[sites.hemisphere == half])
        # No cortex label is embedded: the medial wall, where thickness is 0, gets the least
        # thickness of cortex.
        thickness = np.clip(_embedded_map("thickness", name), 1.5, 4.0)[nearest]
        parts.append(
            kind.group_map(
                thickness,
                _embedded_map("sulcal", name)[nearest],
                _embedded_map("area", name)[nearest],
            )
        )
    return np.concatenate(parts)


def _regions(
    rng: np.random.Generator,
    sites: Sites,
    hemisphere: Hemisphere,
    n_components: int,
    smoother: sparse.csr_array,
) -> Floats:
    """Return soft Voronoi regions (k, n_sites) around separated seeds; they sum to 1 at a site."""
    unilateral = hemisphere == "both" and n_components >= 4
    n_local = n_components - 1 if unilateral else n_components
    seeds = _separated_points(rng, n_local)
    sizes = _SHARPNESS * _SIZE_SPREAD * rng.standard_normal(n_local)
    regions = np.zeros((n_components, sites.n))
    for half, side in enumerate(hemispheres(hemisphere)):
        in_half = np.flatnonzero(sites.hemisphere == half)
        # Both hemispheres share one sphere: the counterpart of a site on the right is its mirror
        # image in x.
        mirror = np.array([1.0 if side == "left" else -1.0, 1.0, 1.0])
        border = smooth_rows(
            rng.standard_normal((n_local, len(in_half))),
            smoother,
            _rounds(_BORDER_ROUNDS, sites),
        )
        logits = (
            _SHARPNESS * n_local / 4 * (seeds * mirror) @ sites.coordinates[in_half].T
            + sizes[:, None]
        )
        logits += _SHARPNESS * _BORDER_SPREAD * border / border.std()
        weights = np.exp(logits - logits.max(axis=0))
        weights /= weights.sum(axis=0)
        names = list(range(n_local))
        if unilateral:
            # The last region is component k−2 on the left and k−1 on the right: two unilateral
            # components.
            names[-1] = n_local - 1 + half
        regions[np.asarray(names)[:, None], in_half] = weights
    return regions


def _separated_points(
    rng: np.random.Generator,
    n: int,
) -> Floats:
    """Return n random unit vectors, each the farthest of 2000 candidates from those before it."""
    candidates = rng.standard_normal((2000, 3))
    candidates /= np.linalg.norm(candidates, axis=1, keepdims=True)
    chosen = [0]
    closest = candidates @ candidates[0]
    for _ in range(n - 1):
        chosen.append(int(np.argmin(closest)))
        closest = np.maximum(closest, candidates @ candidates[chosen[-1]])
    return candidates[chosen]


def _blocks(
    people: np.random.SeedSequence,
    n_subjects: int,
) -> Iterator[tuple[range, list[np.random.Generator]]]:
    """Yield blocks of subjects: their numbers, and a stream of random numbers of each."""
    for first in range(0, n_subjects, _BLOCK):
        rows = range(first, min(first + _BLOCK, n_subjects))
        yield rows, [np.random.default_rng(seed) for seed in people.spawn(len(rows))]


def _person(
    stream: np.random.Generator,
    n_components: int,
    spread: float,
) -> tuple[float, str, Floats]:
    """Return age in years, sex and loadings of one subject."""
    rank = stream.uniform(1e-6, 1 - 1e-6)
    male = bool(stream.integers(2))
    z = stream.standard_normal(n_components)
    z[0] = _AGE_EFFECT * ndtri(rank) + np.sqrt(1 - _AGE_EFFECT**2) * z[0]
    if n_components > 1:
        z[1] = (_SEX_EFFECT if male else -_SEX_EFFECT) + np.sqrt(1 - _SEX_EFFECT**2) * z[1]
    # −log of a uniform number is exponential: bounded below, so that data stay positive, and skewed
    # upwards. Subjects who show one component above all others make the truth recoverable.
    return round(20 + 60 * rank, 1), "M" if male else "F", 1 - spread + spread * -log_ndtr(-z)
