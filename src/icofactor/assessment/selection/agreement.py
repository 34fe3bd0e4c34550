"""How far fits agree: of two halves of the subjects, of two groups on new people, of random starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from icofactor.assessment.selection.data import Coarse, Fitter
from icofactor.assessment.selection.heldout import new_loadings
from icofactor.cohort.people import RowGroups
from icofactor.errors import ArgumentError, shown
from icofactor.factorization.matching import match_components
from icofactor.factorization.scaling import map_signs
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts
from icofactor.factorization.update import begin
from icofactor.maps.workers import one_blas_thread

# A column of numbers with more different values than this is cut at its quartiles before it
# stratifies.
MAX_VALUES = 10

# What a split of the subjects in two is measured by.
MEASURES = (
    "inner_product",
    "correlation",
    "ari",
    "half_error",
    "inner_product_median",
    "stability_coefficient",
)

# What two groups are measured by on people who are in neither.
THIRD_MEASURES = ("loadings", "loadings_adjusted")


def strata_of(
    participants: Mapping[str, Any],
    columns: Sequence[str],
    n_subjects: int,
) -> np.ndarray:
    """Return (n_subjects,) numbers of the combinations of values in some columns."""
    unknown = [name for name in columns if name not in participants]
    if unknown:
        available = [name for name in participants if name != "participant_id"]
        raise ArgumentError(
            "stratify",
            f"must be columns of the participants ({', '.join(available) or 'none'}); found "
            f"{shown(unknown[0])}",
        )
    strata = np.zeros(n_subjects, dtype=np.int64)
    # One column after the other, so that numbers stay small.
    for name in columns:
        _, numbers = np.unique(_levels(np.asarray(participants[name])), return_inverse=True)
        strata = combine_strata(strata, numbers)
    return strata


def combine_strata(
    strata: np.ndarray,
    numbers: np.ndarray,
) -> np.ndarray:
    """Return the numbers of the combinations of strata and other numbers."""
    _, combined = np.unique(strata * (numbers.max() + 1) + numbers, return_inverse=True)
    return combined


def _levels(values: np.ndarray) -> np.ndarray:
    """Return values as text; of many different numbers, their quarter."""
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        return values.astype(str)
    finite = numbers[np.isfinite(numbers)]
    if len(np.unique(finite)) <= MAX_VALUES:
        return numbers.astype(str)
    quarter = np.searchsorted(np.quantile(finite, [0.25, 0.5, 0.75]), numbers)
    return np.where(np.isfinite(numbers), quarter.astype(str), "unknown")


def deal(
    strata: np.ndarray,
    n_parts: int,
    rng: np.random.Generator,
    groups: RowGroups | None = None,
) -> np.ndarray:
    """Return (n_subjects,) random parts of nearly equal size, overall and within each stratum.

    Groups are not divided.
    """
    if groups is not None:
        return groups.deal(strata, n_parts, rng)
    # Strata in random order: the odd ones at their ends must not always meet in the same parts.
    members = [
        rng.permutation(np.flatnonzero(strata == stratum))
        for stratum in rng.permutation(np.unique(strata))
    ]
    part = np.empty(len(strata), dtype=np.int64)
    part[np.concatenate(members)] = np.arange(len(strata)) % n_parts
    return part


def deal_thirds(
    strata: np.ndarray,
    rng: np.random.Generator,
    groups: RowGroups | None = None,
) -> np.ndarray:
    """Return (n_subjects,) 0 and 1 for two groups of three eighths each, 2 for people in neither."""
    return deal(strata, 8, rng, groups) // 3


def split_halves(
    data: Coarse,
    fit: Fitter,
    ranks: Sequence[int],
    part: np.ndarray,
    *key: int,
) -> np.ndarray:
    """Return (n_ranks, n_measures) `MEASURES` of one split of the subjects."""
    scheme = fit.scheme
    halves = [data.condensed(np.flatnonzero(part == half), scheme).stats for half in (0, 1)]
    variance = data.variance if data.center == "none" else halves[0].sq_norm + halves[1].sq_norm
    rows = []
    for rank in ranks:
        fits = [fit(stats, rank, *key, half) for half, stats in enumerate(halves)]
        a, b = (half_fit.maps(data.counts) for half_fit in fits)
        inner, correlation, ari, median, stability = agreement(a, b, data.counts)
        # As a share of the variance of all subjects, so that both halves count as one cohort.
        error = (fits[0].error + fits[1].error) / variance
        rows.append([inner, correlation, ari, error, median, stability])
    return np.array(rows)


def third_people(
    data: Coarse,
    fit: Fitter,
    ranks: Sequence[int],
    part: np.ndarray,
    *key: int,
) -> np.ndarray:
    """Return (n_ranks, n_measures) `THIRD_MEASURES` of one division by `deal_thirds`.

    Both groups are fitted, and people in neither get loadings from both fits. Values are NaN where
    groups have fewer subjects than components, or fewer than three people are in neither.
    """
    sizes = np.bincount(part, minlength=3)
    others = np.flatnonzero(part == 2)
    views = [data.view(np.flatnonzero(part == group), others, fit.scheme) for group in (0, 1)]
    # The sum of a map, but for a constant that the regression on it takes out.
    maps = views[0].other if data.measures is not None else data.adjusted(data.everyone).L[others]
    total = maps.sum(axis=1)
    # Ranks that groups cannot hold stay NaN: other ranks have values.
    values = np.full((len(ranks), len(THIRD_MEASURES)), np.nan)
    for row, rank in enumerate(ranks):
        if sizes[:2].min() <= rank or sizes[2] < 3:
            continue
        loadings = []
        for group, view in enumerate(views):
            group_fit = fit(view.own.stats, rank, *key, group)
            # A map and its loadings may both change sign: make the map mostly positive.
            signs = map_signs(group_fit.B, data.counts)[:, None]
            loadings.append(signs * new_loadings(view.other, data.counts, group_fit, fit.scheme))
        adjusted = [_without(values_of_group, total) for values_of_group in loadings]
        values[row] = match_components(*loadings).mean, match_components(*adjusted).mean
    return values


def _without(
    C: np.ndarray,
    total: np.ndarray,
) -> np.ndarray:
    """Return loadings, components × people, less their regression on each person's total."""
    x = total - total.mean()
    size = float(x @ x)
    return C - np.outer(C @ x, x) / size if size > 0 else C


def agreement(
    a: np.ndarray,
    b: np.ndarray,
    weights: np.ndarray,
) -> tuple[float, float, float, float, float]:
    """Compute how far two sets of maps (components × faces) agree, as the field reports it.

    Returns
    -------
    Mean inner product of unit maps and mean correlation, each over its own best pairs; the adjusted
    Rand index of the winner-takes-all maps; the median inner product; and the stability
    coefficient. `weights`: sites per face.
    """
    root = np.sqrt(weights)
    unit_a = _unit(a * root, axis=1)
    unit_b = _unit(b * root, axis=1)
    products = unit_a @ unit_b.T
    # Each measure pairs the maps by itself, as the papers do that report it.
    inner = products[linear_sum_assignment(-products)]
    return (
        float(inner.mean()),
        match_components(a, b, weights).mean,
        adjusted_rand(np.abs(a).argmax(axis=0), np.abs(b).argmax(axis=0), weights),
        float(np.median(inner)),
        stability_coefficient(unit_a / root, unit_b / root, weights),
    )


def _unit(
    values: np.ndarray,
    axis: int,
) -> np.ndarray:
    """Return vectors along an axis divided by their lengths; those of length 0 stay."""
    length = np.linalg.norm(values, axis=axis, keepdims=True)
    return values / np.where(length > 0, length, 1.0)


def stability_coefficient(
    a: np.ndarray,
    b: np.ndarray,
    weights: np.ndarray,
) -> float:
    """Compute the mean correlation of the rows of two sites × sites matrices of cosines.

    An entry of such a matrix is the cosine between the values of all components at two sites (Patel
    et al. 2020; cobra-nmf). The matrices are never formed: sums over their rows are products of
    small matrices. Sites without a component in one of the sets do not count. `weights`: sites per
    face.
    """
    u = _unit(a, axis=0).T
    v = _unit(b, axis=0).T
    w = np.asarray(weights, dtype=np.float64) / weights.sum()
    mean_u = u @ (w @ u)
    mean_v = v @ (w @ v)

    def moment(
        x: np.ndarray,
        y: np.ndarray,
    ) -> np.ndarray:
        """Mean product of the rows of two matrices of cosines."""
        return np.einsum("fi,ij,fj->f", x, (x * w[:, None]).T @ y, y)

    variance_u = moment(u, u) - mean_u**2
    variance_v = moment(v, v) - mean_v**2
    usable = u.any(axis=1) & v.any(axis=1) & (variance_u > 1e-12) & (variance_v > 1e-12)
    if not usable.any():
        return 0.0
    covariance = (moment(u, v) - mean_u * mean_v)[usable]
    correlation = covariance / np.sqrt(variance_u[usable] * variance_v[usable])
    return float(np.average(correlation, weights=w[usable]))


def adjusted_rand(
    a: np.ndarray,
    b: np.ndarray,
    weights: np.ndarray,
) -> float:
    """Compute the adjusted Rand index of two labellings: 1 is equal, 0 is chance.

    An entry of weight w stands for w sites, which scikit-learn's function cannot count.
    """
    table = np.zeros((a.max() + 1, b.max() + 1))
    # Rows and columns of labels that meet nowhere count as 0.
    np.add.at(table, (a, b), np.asarray(weights, dtype=np.float64))

    def pairs(n: np.ndarray) -> float:
        return float((n * (n - 1)).sum() / 2)

    pairs_a = pairs(table.sum(axis=1))
    pairs_b = pairs(table.sum(axis=0))
    expected = pairs_a * pairs_b / pairs(table.sum(keepdims=True))
    largest = (pairs_a + pairs_b) / 2
    return 1.0 if largest == expected else (pairs(table) - expected) / (largest - expected)


def stability(
    data: Coarse,
    fit: Fitter,
    rank: int,
) -> tuple[float, float]:
    """Compute whether random starts end in the same parcellation (Brunet et al. 2004).

    Returns
    -------
    Cophenetic correlation and dispersion of the consensus matrix of all starts, each run to its
    end; NaN for fewer than two, which have nothing to agree on. `data` is as a fit sees it.
    """
    problem = Problem.of(data.stats, fit.scheme)
    with one_blas_thread():
        starts = draw_starts(problem, fit.chosen, rank, fit.seeds(rank, 1), range(fit.n_starts))
        run = fit.finish(problem, begin(problem, fit.scheme, *starts), rank)
    # A component wins where its part of the maps is largest, so its loadings count.
    size = np.sqrt((np.asarray(run.state.C) ** 2).mean(axis=2))
    maps = np.abs(np.asarray(run.state.B) * size[:, None, :])
    labels = maps.argmax(axis=2)[~run.diverged]
    if len(labels) < 2:
        return np.nan, np.nan
    consensus = consensus_matrix(labels)
    return cophenetic(consensus), float(np.mean((2 * consensus - 1) ** 2))


def consensus_matrix(labels: np.ndarray) -> np.ndarray:
    """Return the (n, n) share of labellings, rows of `labels`, that put two entries together."""
    together = np.zeros((labels.shape[1], labels.shape[1]))
    for row in labels:
        together += row[:, None] == row
    return together / len(labels)


def cophenetic(consensus: np.ndarray) -> float:
    """Compute the correlation of 1 − consensus with the heights at which average linkage joins.

    It is 1 for a perfect consensus.
    """
    from scipy.cluster.hierarchy import average, cophenet

    distance = 1 - consensus[np.triu_indices(len(consensus), 1)]
    # All starts agree everywhere: there is nothing to correlate.
    if np.ptp(distance) == 0:
        return 1.0
    return float(np.corrcoef(distance, cophenet(average(distance)))[0, 1])
