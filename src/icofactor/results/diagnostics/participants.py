"""Loadings against the columns of the participants, with permutation tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from icofactor.assessment.associations.exchange import Exchange
from icofactor.assessment.associations.regression import Groups
from icofactor.cohort.people import MEASURE, PERSON, SESSION, RowGroups
from icofactor.io.tables import is_missing
from icofactor.maps.workers import SHORT, in_order
from icofactor.results.diagnostics.record import Association, Grouping

N_PERMUTATIONS = 2000
# Smaller groups say nothing; more groups than this are names.
_SMALLEST_GROUP = 3
_MOST_GROUPS = 12
_FEWEST_VALUES = 4
# Permutations at a time, and their values: those of a biobank would fill the memory.
_BATCH = 250
_BATCH_VALUES = 2**21
_QUARTILES = (0, 25, 50, 75, 100)
_TOO_FEW_GROUPS = (
    "differs only between groups of rows, and too few groups have equal size to permute them; see "
    "icofactor associate"
)
# (values, n) → n permutations of them, one per row.
Draw = Callable[[np.ndarray, int], np.ndarray]
# (n_permutations, n) values → (n_permutations, k) statistics.
Statistic = Callable[[np.ndarray], np.ndarray]


def compare(
    participants: Mapping[str, Any],
    loadings: np.ndarray,
    n_permutations: int = N_PERMUTATIONS,
    random_state: int = 0,
    groups: RowGroups | None = None,
) -> tuple[tuple[Association, ...], tuple[Grouping, ...], dict[str, str]]:
    """Compare every column of the participants with the loadings (n, k).

    Numbers of more than two values are correlated; words, booleans and numbers of two values make
    groups. All columns see the same permutations, so that the result for one does not depend on
    the others. With groups, whole groups of equal size change places, and rows within them where
    the column differs there (PALM's exchangeability blocks).
    Where rows are of several measures, the loadings of each are compared by themselves.

    Returns
    -------
    associations, groupings, and column → why it was left out.
    """
    several = MEASURE in participants and groups is not None
    measures = np.full(len(loadings), "")
    if several:
        measures = np.asarray(participants[MEASURE]).astype(str)
    identifiers = (PERSON, SESSION, *([MEASURE] if several else []))
    names = [name for name in participants if name not in identifiers]
    pairs = [(name, measure) for name in names for measure in dict.fromkeys(measures.tolist())]

    def compare_pair(pair: tuple[str, str]) -> Association | Grouping | str:
        name, measure = pair
        values = np.asarray(participants[name])
        if several:
            # Rows of other measures have no value.
            values = np.where(measures == measure, values.astype(object), "")
        rng = np.random.default_rng(random_state)
        item = _compare_column(name, values, loadings, n_permutations, rng, groups)
        return item if isinstance(item, str) else replace(item, measure=measure)

    # Few rows are compared more quickly than threads start.
    workers = None if len(loadings) > SHORT // 4 else 1
    items = list(in_order(compare_pair, pairs, workers))
    reasons = {
        name: item for (name, _), item in zip(pairs, items, strict=True) if isinstance(item, str)
    }
    associations = tuple(item for item in items if isinstance(item, Association))
    return associations, tuple(item for item in items if isinstance(item, Grouping)), reasons


def _compare_column(
    name: str,
    column: np.ndarray,
    loadings: np.ndarray,
    n_permutations: int,
    rng: np.random.Generator,
    groups: RowGroups | None,
) -> Association | Grouping | str:
    """Compare a column with the loadings, or say why it cannot be compared."""
    numbers = _numbers(column)
    numeric = numbers is not None and len(np.unique(numbers[np.isfinite(numbers)])) > 2
    if numbers is not None and numeric:
        values = numbers
        usable = np.isfinite(numbers)
        if usable.sum() < _FEWEST_VALUES:
            return f"only {int(usable.sum())} subjects have a value"
    else:
        words = column if numbers is None else _as_words(numbers)
        labels, values = _groups(words)
        usable = values >= 0
        if not 2 <= len(labels) <= _MOST_GROUPS:
            return (
                f"{len(labels)} groups of at least {_SMALLEST_GROUP} subjects; 2 to {_MOST_GROUPS} "
                "are compared"
            )
    draw = _permutations(values[usable], groups, usable, rng)
    if draw is None:
        return _TOO_FEW_GROUPS
    n = int(usable.sum())
    Z = standardised(loadings[usable])
    if numeric:
        r, p = _test(standardised(values[usable]), lambda y: y @ Z, n_permutations, draw)
        return Association(name, values, n, r, p)
    eta2, p = _test(
        values[usable], lambda codes: _between(codes, Z, len(labels)), n_permutations, draw
    )
    quartiles = [
        np.percentile(loadings[values == group], _QUARTILES, axis=0).T
        for group in range(len(labels))
    ]
    return Grouping(name, labels, values, n, eta2, p, np.stack(quartiles))


def _permutations(
    values: np.ndarray, groups: RowGroups | None, usable: np.ndarray, rng: np.random.Generator
) -> Draw | None:
    """Return what permutes values as their groups allow; None for too few permutations."""

    def permute_rows(values: np.ndarray, n: int) -> np.ndarray:
        return rng.permuted(np.tile(values, (n, 1)), axis=1)

    if groups is None:
        return permute_rows
    blocks = Groups.of(groups.codes[usable])
    if not blocks.repeated:
        return permute_rows
    within = not blocks.constant(values[:, None].astype(np.float64))
    exchange = Exchange(len(values), blocks, within)

    def permute_blocks(values: np.ndarray, n: int) -> np.ndarray:
        return values[exchange.draw(n, rng)]

    return permute_blocks if exchange.enough else None


def _numbers(values: np.ndarray) -> np.ndarray | None:
    """Return a column as floats, NaN where unknown; None when it is not of numbers."""
    if values.dtype.kind == "b":
        return None
    if values.dtype.kind in "iuf":
        numbers = values.astype(np.float64)
    else:
        words = [str(value).strip() for value in values.tolist()]
        known = ["nan" if is_missing(word) else word for word in words]
        try:
            numbers = np.array([float(word) for word in known])
        except ValueError:
            return None
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _as_words(numbers: np.ndarray) -> np.ndarray:
    return np.array(["" if np.isnan(value) else f"{value:g}" for value in numbers])


def _groups(column: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """Return names of the groups that are large enough, and each subject's group, −1 for none."""
    words = np.array([str(value).strip() for value in column.tolist()])
    names, codes, counts = np.unique(words, return_inverse=True, return_counts=True)
    unknown = np.array([is_missing(name) for name in names.tolist()])
    large = (counts >= _SMALLEST_GROUP) & ~unknown
    number = np.where(large, np.cumsum(large) - 1, -1)
    return tuple(names[large].tolist()), number[codes.reshape(-1)]


def standardised(values: np.ndarray) -> np.ndarray:
    """Return columns of mean 0 and length 1; constant ones become 0."""
    centred = values - values.mean(axis=0)
    length = np.linalg.norm(centred, axis=0)
    # Rounding leaves a constant column with a length of about eps.
    level = 1e-12 * np.abs(values).max(axis=0, initial=0.0) * np.sqrt(len(values))
    return np.divide(centred, length, out=np.zeros_like(centred), where=length > level)


def _test(
    values: np.ndarray, statistic: Statistic, n_permutations: int, draw: Draw
) -> tuple[np.ndarray, np.ndarray]:
    """Return the statistics of all components, and p corrected by the largest of a permutation."""
    observed = statistic(values[None])[0]
    size = max(1, min(_BATCH, _BATCH_VALUES // len(values)))
    largest = []
    for first in range(0, n_permutations, size):
        permuted = draw(values, min(size, n_permutations - first))
        largest.append(np.abs(statistic(permuted)).max(axis=1))
    # A permutation that gives the same order gives the same number but for rounding.
    limits = np.abs(observed) * (1 - 1e-9)
    reached = (np.concatenate(largest)[:, None] >= limits).sum(axis=0)
    # The unpermuted order counts as one.
    return observed, (1 + reached) / (1 + n_permutations)


def _between(codes: np.ndarray, Z: np.ndarray, n_groups: int) -> np.ndarray:
    """Return η² (b, k) of standardised loadings Z (n, k) for each row of group numbers (b, n).

    This is Σ_g n_g (mean of group g)².
    """
    # Permutations change no sizes.
    sizes = np.bincount(codes[0], minlength=n_groups)
    total = np.zeros((len(codes), Z.shape[1]))
    # All sums together are 0, which gives that of the last group.
    last = np.zeros_like(total)
    for group in range(n_groups - 1):
        sums = (codes == group).astype(np.float64) @ Z
        total += sums**2 / sizes[group]
        last -= sums
    return total + last**2 / sizes[-1]
