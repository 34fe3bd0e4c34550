"""Split halves: fit both halves of the subjects on their own, and see how far the components agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from icofactor.assessment.selection.data import Coarse, Fitter
from icofactor.errors import ArgumentError, literal
from icofactor.factorization.matching import match_components

MOST_VALUES = 10
"""A column of numbers with more different values than this is cut at its quartiles before it stratifies."""
MEASURES = ("inner_product", "correlation", "ari", "half_error")


def strata_of(participants: Mapping[str, Any], columns: Sequence[str], n_subjects: int) -> np.ndarray:
    """(n_subjects,) number of each subject's stratum: the combination of its values in some columns."""
    unknown = [name for name in columns if name not in participants]
    if unknown:
        known = ", ".join(name for name in participants if name != "participant_id") or "none"
        raise ArgumentError("stratify", unknown[0], f"columns of the participants ({literal(known)})")
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


def deal(strata: np.ndarray, n_parts: int, rng: np.random.Generator) -> np.ndarray:
    """(n_subjects,) part of each subject: parts of nearly equal size, overall and within each stratum."""
    order = np.concatenate([rng.permutation(np.flatnonzero(strata == s)) for s in rng.permutation(np.unique(strata))])
    part = np.empty(len(strata), dtype=np.int64)
    part[order] = np.arange(len(order)) % n_parts
    return part


def split_half(data: Coarse, fit: Fitter, rank: int, part: np.ndarray, *where: int) -> np.ndarray:
    """`MEASURES` of one split; `part` is 0 or 1 for each subject."""
    found, errors = [], 0.0
    for half in (0, 1):
        one = fit(data.subset(np.flatnonzero(part == half)), rank, *where, half)
        found.append(one.maps)
        errors += one.error
    return np.array([*agreement(found[0], found[1], data.counts), errors / data.variance])


def agreement(a: np.ndarray, b: np.ndarray, weights: np.ndarray) -> tuple[float, float, float]:
    """How far two sets of maps (components × faces) agree, as the field reports it.

    Returns
    -------
    Mean inner product of unit maps and mean correlation, each over its own best pairs, and the adjusted Rand index of
    the winner-takes-all maps. `weights`: sites per face.
    """
    unit_a, unit_b = (m * np.sqrt(weights) for m in (a, b))
    unit_a, unit_b = (
        np.divide(m, length, out=np.zeros_like(m), where=length > 0)
        for m, length in ((m, np.linalg.norm(m, axis=1, keepdims=True)) for m in (unit_a, unit_b))
    )
    products = unit_a @ unit_b.T
    pairs = linear_sum_assignment(-products)
    correlation = match_components(a, b, weights).mean
    return float(products[pairs].mean()), correlation, adjusted_rand(_winners(a), _winners(b), weights)


def adjusted_rand(a: np.ndarray, b: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Adjusted Rand index of two labellings; an entry of weight w stands for w sites. 1 is equal, 0 is chance."""
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
