"""Loadings against what is known about the participants, with permutation tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from icofactor.assessment.associations.exchange import Exchange
from icofactor.assessment.associations.regression import Groups
from icofactor.cohort.people import MEASURE, PERSON, SESSION, RowGroups
from icofactor.maps.workers import SHORT, in_order
from icofactor.results.diagnostics.record import Association, Grouping

N_PERMUTATIONS = 2000
_LEAST_PER_GROUP, _MOST_GROUPS, _LEAST_VALUES = 3, 12, 4
_UNKNOWN = {"", "n/a", "na", "nan", "none", "null"}
_BATCH, _BATCH_VALUES = 250, 2**21
"""Permutations at a time, at most, and their values; of a biobank they would fill the memory."""
_QUARTILES = (0, 25, 50, 75, 100)
_FEW = "differs only between groups of rows, and too few groups have equal size to permute them; see icofactor associate"
Draw = Callable[[np.ndarray, int], np.ndarray]
"""(values, n) → n permutations of them, one per row."""


def compare(
    participants: Mapping[str, Any],
    loadings: np.ndarray,
    n_permutations: int = N_PERMUTATIONS,
    random_state: int = 0,
    groups: RowGroups | None = None,
) -> tuple[tuple[Association, ...], tuple[Grouping, ...], dict[str, str]]:
    """Every column of the participants against the loadings (n, k).

    Numbers of more than two values are correlated; words, booleans and numbers of two values make
    groups. All columns see the same permutations, so that what is found for one does not depend on
    the others. With groups, whole groups of equal size change places, and rows within them where
    the column differs there (PALM's exchangeability blocks).
    Where rows are of several measures, the loadings of each are compared by themselves.

    Returns
    -------
    associations, groupings, and column → why it was left out.
    """
    joined = MEASURE in participants and groups is not None
    measures = (
        np.asarray(participants[MEASURE]).astype(str) if joined else np.full(len(loadings), "")
    )
    names = [
        name
        for name in participants
        if not (name in (PERSON, SESSION) or (joined and name == MEASURE))
    ]

    def one(what: tuple[str, str]) -> Association | Grouping | str:
        (name, measure), column = what, participants[what[0]]
        # of rows of other measures nothing is known
        values = (
            np.where(measures == measure, np.asarray(column, dtype=object), "")
            if joined
            else column
        )
        found = _compared(
            name, values, loadings, n_permutations, np.random.default_rng(random_state), groups
        )
        return found if isinstance(found, str) else replace(found, measure=measure)

    pairs = [(name, measure) for name in names for measure in dict.fromkeys(measures.tolist())]
    every = list(in_order(one, pairs, None if len(loadings) > SHORT // 4 else 1))
    left_out = {
        name: why for (name, _), why in zip(pairs, every, strict=True) if isinstance(why, str)
    }
    found = [one for one in every if not isinstance(one, str)]
    of = lambda kind: tuple(one for one in found if isinstance(one, kind))
    return of(Association), of(Grouping), left_out


def _compared(
    name: str,
    column: Any,
    loadings: np.ndarray,
    n_permutations: int,
    rng: np.random.Generator,
    groups: RowGroups | None,
) -> Association | Grouping | str:
    """A column against the loadings; or why it is left out."""
    numbers = _numbers(column)
    if numbers is not None and len(np.unique(numbers[np.isfinite(numbers)])) > 2:
        known = np.isfinite(numbers)
        if known.sum() < _LEAST_VALUES:
            return f"only {int(known.sum())} subjects have a value"
        draw = _permutations(numbers[known], groups, known, rng)
        return _FEW if draw is None else _associate(name, numbers, loadings, n_permutations, draw)
    labels, codes = _groups(column if numbers is None else _shortest(numbers))
    if not 2 <= len(labels) <= _MOST_GROUPS:
        return f"{len(labels)} groups of at least {_LEAST_PER_GROUP} subjects; 2 to {_MOST_GROUPS} are compared"
    draw = _permutations(codes[codes >= 0], groups, codes >= 0, rng)
    return _FEW if draw is None else _group(name, labels, codes, loadings, n_permutations, draw)


def _permutations(
    values: np.ndarray, groups: RowGroups | None, known: np.ndarray, rng: np.random.Generator
) -> Draw | None:
    """What permutes known values as their groups allow; None where too few permutations exist."""
    each = lambda own, n: rng.permuted(np.tile(own, (n, 1)), axis=1)
    if groups is None:
        return each
    together = Groups.of(groups.codes[known])
    if not together.repeated:
        return each
    exchange = Exchange(
        len(values), together, not together.constant(values[:, None].astype(np.float64))
    )
    return (lambda own, n: own[exchange.draw(n, rng)]) if exchange.enough else None


def _numbers(column: Any) -> np.ndarray | None:
    """A column as floats, NaN where unknown; None when it is not of numbers."""
    values = np.asarray(column)
    if values.dtype.kind == "b":
        return None
    if values.dtype.kind in "iuf":
        numbers = values.astype(np.float64)
    else:
        words = [str(value).strip() for value in values.tolist()]
        try:
            numbers = np.array(
                [np.nan if word.lower() in _UNKNOWN else float(word) for word in words]
            )
        except ValueError:
            return None
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _shortest(numbers: np.ndarray) -> list[str]:
    return ["" if np.isnan(value) else f"{value:g}" for value in numbers]


def _groups(column: Any) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of the groups that are large enough, and each subject's group, −1 where it is in none."""
    words = np.array([str(value).strip() for value in np.asarray(column).tolist()], dtype=object)
    names, counts = np.unique(words.astype(str), return_counts=True)
    large = [
        str(name)
        for name, count in zip(names, counts, strict=True)
        if count >= _LEAST_PER_GROUP and str(name).lower() not in _UNKNOWN
    ]
    number = {name: i for i, name in enumerate(large)}
    return tuple(large), np.array([number.get(word, -1) for word in words], dtype=np.int64)


def standardised(values: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and length 1; constant ones become 0."""
    centred = values - values.mean(axis=0)
    length = np.linalg.norm(centred, axis=0)
    # rounding leaves a constant column with a length of about eps
    level = 1e-12 * np.abs(values).max(axis=0, initial=0.0) * np.sqrt(len(values))
    return np.divide(centred, length, out=np.zeros_like(centred), where=length > level)


def _associate(
    name: str, numbers: np.ndarray, loadings: np.ndarray, n_permutations: int, draw: Draw
) -> Association:
    known = np.isfinite(numbers)
    y, Z = standardised(numbers[known]), standardised(loadings[known])
    r = y @ Z
    largest = np.concatenate(
        [np.abs(draw(y, batch) @ Z).max(axis=1) for batch in _batches(n_permutations, len(y))]
    )
    return Association(name, numbers, int(known.sum()), r, _corrected(np.abs(r), largest))


def _group(
    name: str,
    labels: Sequence[str],
    codes: np.ndarray,
    loadings: np.ndarray,
    n_permutations: int,
    draw: Draw,
) -> Grouping:
    known = codes >= 0
    own, Z = codes[known], standardised(loadings[known])
    eta2 = _between(own[None], Z, len(labels))[0]
    largest = np.concatenate(
        [
            _between(draw(own, batch), Z, len(labels)).max(axis=1)
            for batch in _batches(n_permutations, len(own))
        ]
    )
    boxes = np.stack(
        [np.percentile(loadings[codes == g], _QUARTILES, axis=0).T for g in range(len(labels))]
    )
    return Grouping(
        name, tuple(labels), codes, int(known.sum()), eta2, _corrected(eta2, largest), boxes
    )


def _between(codes: np.ndarray, Z: np.ndarray, n_groups: int) -> np.ndarray:
    """η² (b, k) of standardised loadings Z (n, k) for each row of group numbers (b, n): Σ_g n_g
    (mean of group g)².
    """
    total, rest = np.zeros((len(codes), Z.shape[1])), np.zeros((len(codes), Z.shape[1]))
    size = np.bincount(codes[0], minlength=n_groups)  # permutations change no sizes
    for g in range(n_groups - 1):
        sums = (codes == g).astype(np.float64) @ Z
        total += sums**2 / size[g]
        rest -= sums
    return total + rest**2 / size[-1]  # the sum of all is 0


def _corrected(found: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """How often the largest of a permutation reaches what was found; the unpermuted order counts as
    one.
    """
    # a permutation that gives the same order gives the same number but for rounding
    reached = (largest[:, None] >= found * (1 - 1e-9)).sum(axis=0)
    return (1 + reached) / (1 + len(largest))


def _batches(n: int, n_values: int) -> list[int]:
    size = max(1, min(_BATCH, _BATCH_VALUES // n_values))
    return [min(size, n - first) for first in range(0, n, size)]
