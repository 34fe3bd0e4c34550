"""How far fits agree: of both halves of the subjects, of two groups on new people, of random
starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from icofactor.assessment.selection.data import Coarse, Fitter
from icofactor.assessment.selection.heldout import new_loadings
from icofactor.cohort.people import RowGroups
from icofactor.errors import ArgumentError, literal
from icofactor.factorization.matching import match_components
from icofactor.factorization.scaling import map_signs
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts
from icofactor.factorization.update import begin
from icofactor.maps.workers import one_blas_thread

MOST_VALUES = 10
"""A column of numbers with more different values than this is cut at its quartiles before it
stratifies.
"""
MEASURES = (
    "inner_product",
    "correlation",
    "ari",
    "half_error",
    "inner_product_median",
    "stability_coefficient",
)
"""What a split of the subjects in two is measured by."""
THIRD_MEASURES = ("loadings", "loadings_adjusted")
"""What two groups are measured by on people who are in neither."""
Parts = Sequence[np.ndarray]
"""(n_subjects,) part of each subject, for every cohort."""
Wheres = Sequence[tuple[int, ...]]
"""Where the seeds of every cohort's fits come from."""


def strata_of(
    participants: Mapping[str, Any], columns: Sequence[str], n_subjects: int
) -> np.ndarray:
    """(n_subjects,) number of each subject's stratum: the combination of its values in some
    columns.
    """
    unknown = [name for name in columns if name not in participants]
    if unknown:
        known = ", ".join(name for name in participants if name != "participant_id") or "none"
        hint = "" if known != "none" else "; give a table with them ({participants})"
        raise ArgumentError(
            "stratify", unknown[0], f"columns of the participants ({literal(known)}){hint}"
        )
    labels = np.zeros(n_subjects, dtype=np.int64)
    for name in columns:
        _, number = np.unique(_levels(np.asarray(participants[name])), return_inverse=True)
        _, labels = np.unique(labels * (number.max() + 1) + number, return_inverse=True)
    return labels


def _levels(values: np.ndarray) -> np.ndarray:
    """Values as text; many different numbers as their quarter."""
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        return values.astype(str)
    known = numbers[np.isfinite(numbers)]
    if len(np.unique(known)) <= MOST_VALUES:
        return numbers.astype(str)
    quarter = np.searchsorted(np.quantile(known, [0.25, 0.5, 0.75]), numbers)
    return np.where(np.isfinite(numbers), quarter.astype(str), "unknown")


def deal(
    strata: np.ndarray, n_parts: int, rng: np.random.Generator, groups: RowGroups | None = None
) -> np.ndarray:
    """(n_subjects,) part of each subject: parts of nearly equal size, overall and within each
    stratum; groups stay whole.
    """
    if groups is not None:
        return groups.deal(strata, n_parts, rng)
    order = np.concatenate(
        [rng.permutation(np.flatnonzero(strata == s)) for s in rng.permutation(np.unique(strata))]
    )
    part = np.empty(len(strata), dtype=np.int64)
    part[order] = np.arange(len(order)) % n_parts
    return part


def split_halves(
    cohorts: Sequence[Coarse], fit: Fitter, rank: int, parts: Parts, wheres: Wheres
) -> np.ndarray:
    """(n, measures) `MEASURES` of one split of each of several cohorts, or of several of one."""
    rows, scheme = [], fit.chosen.scheme
    for data, part, where in zip(cohorts, parts, wheres, strict=True):
        halves = [data.condensed(np.flatnonzero(part == half), scheme).stats for half in (0, 1)]
        a, b = (fit(stats, rank, *where, half) for half, stats in enumerate(halves))
        variance = (
            data.centred(np.arange(data.n_subjects)).variance
            if data.center == "none"
            else halves[0].sq_norm + halves[1].sq_norm
        )
        inner, correlation, ari, median, stability = agreement(
            a.maps(data.counts), b.maps(data.counts), data.counts
        )
        rows.append([inner, correlation, ari, (a.error + b.error) / variance, median, stability])
    return np.array(rows)


def deal_thirds(
    strata: np.ndarray, rng: np.random.Generator, groups: RowGroups | None = None
) -> np.ndarray:
    """(n_subjects,) 0 and 1 for two groups of three eighths each, 2 for the people in neither."""
    return np.asarray(deal(strata, 8, rng, groups) // 3)


def third_people(
    cohorts: Sequence[Coarse], fit: Fitter, rank: int, parts: Parts, wheres: Wheres
) -> np.ndarray:
    """(n, measures) `THIRD_MEASURES` of one division (`deal_thirds`) of each of several cohorts, or
    of several of one.

    Both groups are fitted; people in neither get loadings from both fits. NaN where groups have
    fewer subjects than components, or fewer than three people are left.
    """
    sizes = [np.bincount(part, minlength=3) for part in parts]
    if min(size[:2].min() for size in sizes) <= rank or min(size[2] for size in sizes) < 3:
        return np.full((len(cohorts), len(THIRD_MEASURES)), np.nan)
    rows, scheme = [], fit.chosen.scheme
    for data, part, where in zip(cohorts, parts, wheres, strict=True):
        others = np.flatnonzero(part == 2)
        pair = [data.view(np.flatnonzero(part == group), others, scheme) for group in (0, 1)]
        fits = [fit(view.own.stats, rank, *where, group) for group, view in enumerate(pair)]
        # a map and its loadings may both change sign: the one that makes the map mostly positive
        a, b = (
            map_signs(one.B, data.counts)[:, None]
            * new_loadings(view.other, data.counts, one, scheme)
            for view, one in zip(pair, fits, strict=True)
        )
        # of what is left of a mean map the differences between people are the same
        whole = (
            pair[0].other
            if data.apart or data.measures is not None
            else data.all_adjusted.L[others]
        )
        total = whole.sum(axis=1)
        rows.append(
            [
                match_components(a, b).mean,
                match_components(_without(a, total), _without(b, total)).mean,
            ]
        )
    return np.array(rows)


def _without(C: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Loadings, components × people, less what a line through each person's global mean predicts."""
    x = total - total.mean()
    size = float(x @ x)
    return C - np.outer(C @ x, x) / size if size > 0 else C


def agreement(
    a: np.ndarray, b: np.ndarray, weights: np.ndarray
) -> tuple[float, float, float, float, float]:
    """How far two sets of maps (components × faces) agree, as the field reports it.

    Returns
    -------
    Mean inner product of unit maps and mean correlation, each over its own best pairs; the adjusted
    Rand index of the winner-takes-all maps; the median inner product; and the stability
    coefficient. `weights`: sites per face.
    """
    unit_a, unit_b = (m * np.sqrt(weights) for m in (a, b))
    unit_a, unit_b = (
        np.divide(m, length, out=np.zeros_like(m), where=length > 0)
        for m, length in ((m, np.linalg.norm(m, axis=1, keepdims=True)) for m in (unit_a, unit_b))
    )
    products = unit_a @ unit_b.T
    pairs = linear_sum_assignment(-products)
    correlation = match_components(a, b, weights).mean
    ari = adjusted_rand(_winners(a), _winners(b), weights)
    inner, root = products[pairs], np.sqrt(weights)
    stability = stability_coefficient(unit_a / root, unit_b / root, weights)
    return float(inner.mean()), correlation, ari, float(np.median(inner)), stability


def stability_coefficient(a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> float:
    """Mean over sites of the correlation between rows of two sites × sites matrices (Patel et al.
    2020; cobra-nmf).

    An entry of such a matrix is the cosine between the values of all components at two sites. The
    matrices are never formed: sums over their rows are products of small matrices. Sites without a
    component in one of the sets do not count. `weights`: sites per face.
    """
    size_a, size_b = np.linalg.norm(a, axis=0), np.linalg.norm(b, axis=0)
    u, v = (
        np.divide(x, size, out=np.zeros_like(x), where=size > 0).T
        for x, size in ((a, size_a), (b, size_b))
    )
    w = np.asarray(weights, dtype=np.float64) / weights.sum()
    mean_a, mean_b = u @ (w @ u), v @ (w @ v)
    moment = lambda x, y: np.einsum("fi,ij,fj->f", x, (x * w[:, None]).T @ y, y)
    spread_a, spread_b = moment(u, u) - mean_a**2, moment(v, v) - mean_b**2
    known = (size_a > 0) & (size_b > 0) & (spread_a > 1e-12) & (spread_b > 1e-12)
    if not known.any():
        return 0.0
    correlation = (moment(u, v) - mean_a * mean_b)[known] / np.sqrt(
        spread_a[known] * spread_b[known]
    )
    return float(np.average(correlation, weights=w[known]))


def adjusted_rand(a: np.ndarray, b: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Adjusted Rand index of two labellings; an entry of weight w stands for w sites. 1 is equal, 0
    is chance.
    """
    w = np.ones(len(a)) if weights is None else np.asarray(weights, dtype=np.float64)
    table = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(table, (a, b), w)
    pairs = lambda n: float((n * (n - 1)).sum() / 2)
    both, first, second = pairs(table), pairs(table.sum(axis=1)), pairs(table.sum(axis=0))
    expected = first * second / pairs(w.sum(keepdims=True))
    most = (first + second) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def _winners(maps: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(maps).argmax(axis=0))


def stability(data: Coarse, fit: Fitter, rank: int) -> tuple[float, float]:
    """Do random starts end in the same parcellation (Brunet et al. 2004)?

    Cophenetic correlation and dispersion of the consensus matrix of all starts, each run to the
    end; NaN for fewer
    than two, which have nothing to agree on.
    """
    labels = labels_of_starts(data, fit, rank)
    if len(labels) < 2:
        return np.nan, np.nan
    consensus = consensus_matrix(labels)
    return cophenetic(consensus), float(np.mean((2 * consensus - 1) ** 2))


def labels_of_starts(data: Coarse, fit: Fitter, rank: int) -> np.ndarray:
    """(n_starts, n_k) winner-takes-all map of every start."""
    method = fit.chosen
    p = Problem.of(data.condensed(np.arange(data.n_subjects), method.scheme).stats, method.scheme)
    with one_blas_thread():
        B, C = draw_starts(p, method, rank, fit.seeds(rank, 1), range(fit.n_starts))
        run = fit.finish(p, begin(p, method.scheme, B, C), rank)
    B, C = np.asarray(run.state.B), np.asarray(run.state.C)
    size = np.sqrt((C**2).mean(axis=2))
    return np.asarray(np.abs(B * size[:, None, :]).argmax(axis=2)[~run.diverged])


def consensus_matrix(labels: np.ndarray) -> np.ndarray:
    """(n, n) share of labellings, rows of `labels`, that put two entries together."""
    together = np.zeros((labels.shape[1], labels.shape[1]))
    for row in labels:
        together += row[:, None] == row
    return together / len(labels)


def cophenetic(consensus: np.ndarray) -> float:
    """Correlation of 1 − consensus with the heights at which average linkage joins; 1 for a perfect
    consensus.
    """
    from scipy.cluster.hierarchy import average, cophenet

    upper = np.triu_indices(len(consensus), 1)
    distance = 1 - consensus[upper]
    if np.ptp(distance) == 0:
        return 1.0
    return float(np.corrcoef(distance, cophenet(average(distance)))[0, 1])
