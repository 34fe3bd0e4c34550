"""Do two groups of people give the same components, and third people the same loadings?

People are split at random into two groups that are fitted, and third people who are projected onto both fits. Every
agreement stands beside its null: the same for people whose deviation from the mean map is turned on the sphere, each by
another rotation. What such groups agree on comes from the mean map, the variances and the smoothness alone.
The rows are medians over the splits. "no mean" is what a regression on each person's mean over all sites leaves of the
loadings; the adjusted Rand index compares which component is largest at each site.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import KDTree
from scipy.spatial.transform import Rotation
from sklearn.decomposition import NMF, PCA
from sklearn.metrics import adjusted_rand_score

import icofactor as ico
from benchmarks.data import both_hemispheres
from benchmarks.measure import Row, show

# People of the two fitted groups, and third people.
GROUPS = (75, 75, 50)
RANKS = (6, 10, 16)
SPLITS = 4


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit of one group.

    Attributes
    ----------
    maps : (components, sites)
    loadings : people × sites → people × components
    signed : whether a component may as well be its negative
    """

    maps: np.ndarray
    loadings: Callable[[np.ndarray], np.ndarray]
    signed: bool = False


Solver = Callable[[np.ndarray, ico.Sites, int], Fit]


def run(quick: bool) -> list[Row]:
    """Measure all methods."""
    groups = (12, 12, 6) if quick else GROUPS
    cohort = both_hemispheres(sum(groups), "fsaverage3" if quick else "fsaverage5")
    cortex = np.asarray(cohort.mask)
    X = np.asarray(cohort.X)[:, cortex]
    sites = cohort.sites.subset(cortex)
    # One row of agreements per split, for every method and number of components.
    agreements: dict[tuple[str, int], list[dict[str, float]]] = {}
    for split in range(1 if quick else SPLITS):
        order = np.random.default_rng(split).permutation(len(X))
        parts = np.split(order, np.cumsum(groups)[:2])
        null = turned(X, sites, split)
        for n_components in RANKS[:1] if quick else RANKS:
            for name, solver in SOLVERS.items():
                measured = agreement([X[people] for people in parts], sites, solver, n_components)
                by_chance = agreement(
                    [null[people] for people in parts], sites, solver, n_components
                )
                measured |= {f"{measure}, null": value for measure, value in by_chance.items()}
                agreements.setdefault((name, n_components), []).append(measured)
    rows = []
    for (name, n_components), splits in agreements.items():
        medians = {
            measure: float(np.median([split[measure] for split in splits])) for measure in splits[0]
        }
        rows.append(
            show({"method": name, "components": n_components, "splits": len(splits), **medians})
        )
    return rows


def turned(X: np.ndarray, sites: ico.Sites, seed: int) -> np.ndarray:
    """Turn the deviation of every person on the sphere, in units of the standard deviation of each site."""
    rotations = Rotation.random(len(X), np.random.default_rng([seed, 1]))
    mean = X.mean(axis=0)
    spread = X.std(axis=0)
    scores = np.divide(X - mean, spread, out=np.zeros_like(X), where=spread > 0)
    result = np.empty_like(X)
    for side in np.unique(sites.hemisphere):
        members = np.flatnonzero(sites.hemisphere == side)
        # The spheres are mirror images in x: homologous places of both hemispheres stay homologous.
        mirror = np.array([1.0 if side == 0 else -1.0, 1.0, 1.0])
        points = sites.coordinates[members] * mirror
        tree = KDTree(points)
        for person, rotation in enumerate(rotations):
            # Every site takes the value of the site that is nearest to where it is turned to.
            nearest = members[tree.query(rotation.apply(points))[1]]
            result[person, members] = mean[members] + scores[person, nearest] * spread[members]
    return np.maximum(result, 0)


def agreement(
    groups: list[np.ndarray], sites: ico.Sites, solver: Solver, n_components: int
) -> dict[str, float]:
    """Fit the first two groups, and compare the fits."""
    with warnings.catch_warnings():
        # What has not converged shows in the numbers.
        warnings.simplefilter("ignore")
        first = solver(groups[0], sites, n_components)
        second = solver(groups[1], sites, n_components)
        third = groups[2]
        a = np.asarray(first.loadings(third), dtype=np.float64)
    b = np.asarray(second.loadings(third), dtype=np.float64)
    # The component that is largest at each site.
    labels_a = np.abs(first.maps).argmax(axis=0)
    labels_b = np.abs(second.maps).argmax(axis=0)
    return {
        "loadings": paired_correlation(a, b, first.signed),
        "loadings, no mean": paired_correlation(
            without_mean(a, third), without_mean(b, third), first.signed
        ),
        "maps": paired_correlation(first.maps.T, second.maps.T, first.signed),
        "adjusted Rand index": float(adjusted_rand_score(labels_a, labels_b)),
    }


def paired_correlation(a: np.ndarray, b: np.ndarray, signed: bool) -> float:
    """Return the mean correlation of the columns of a and b over their best pairs."""
    n_columns = a.shape[1]
    correlation = np.corrcoef(a.T, b.T)[:n_columns, n_columns:]
    # A column without variance correlates with nothing.
    correlation = np.nan_to_num(np.abs(correlation) if signed else correlation)
    return float(correlation[linear_sum_assignment(-correlation)].mean())


def without_mean(loadings: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return what a regression on each person's mean over all sites leaves of the loadings."""
    design = np.column_stack([np.ones(len(X)), X.mean(axis=1)])
    return loadings - design @ np.linalg.lstsq(design, loadings, rcond=None)[0]


def ours(**options: Any) -> Solver:
    """Return a solver of icofactor."""

    def fit(X: np.ndarray, sites: ico.Sites, n_components: int) -> Fit:
        model = ico.CorticalFactorization(n_components, mesh=sites, random_state=0, **options).fit(
            X
        )
        return Fit(model.components_, model.transform)

    return fit


def pca(X: np.ndarray, sites: ico.Sites, n_components: int) -> Fit:
    """Fit PCA, whose components have no sign of their own."""
    model = PCA(n_components, random_state=0).fit(X)
    return Fit(model.components_, model.transform, signed=True)


def nmf(X: np.ndarray, sites: ico.Sites, n_components: int) -> Fit:
    """Fit scikit-learn's NMF."""
    model = NMF(n_components, random_state=0).fit(X)
    return Fit(model.components_, model.transform)


SOLVERS: dict[str, Solver] = {
    "parts": ours(),
    "parts, z-scores": ours(center="zscore"),
    "CD-PNNMF": ours(method="CD-PNNMF"),
    "LE-PPNMF": ours(method="LE-PPNMF"),
    "PCA": pca,
    "scikit-learn NMF": nmf,
}
