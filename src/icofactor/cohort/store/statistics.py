"""Numbers that say what the maps of a store are like, so that appended maps can be compared."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from scipy.spatial import cKDTree

from icofactor.cohort.problems import some

# Sites in use are cut into this many runs; the mean of each says how a map differs from another.
N_MEANS = 16
# Maps whose means differ by less, in units of their spread, are the same map. Those of two scans
# of a person differ a hundred times as much, rounding to float16 a tenth.
SAME_MAP = 1e-4
# Values of a batch may be larger or smaller than those of the store by this factor.
LARGEST_RATIO = 3.0
# Columns of the array of statistics; the means follow.
MEDIAN = 0
SPREAD = 1
N_STATISTICS = 2


def map_statistics(values: np.ndarray) -> list[float]:
    """Return median, median absolute deviation and means of a map, at the sites in use."""
    x = values.astype(np.float32)
    median = np.median(x)
    spread = np.median(np.abs(x - median))
    runs = np.array_split(x, min(N_MEANS, len(x)))
    return [median, spread, *(run.mean(dtype=np.float64) for run in runs)]


def map_hash(values: np.ndarray) -> str:
    """Return the SHA-256 of a map as it is stored."""
    return sha256(values.astype(values.dtype.newbyteorder("<")).tobytes()).hexdigest()


def scale_problem(stored: np.ndarray, new: np.ndarray) -> str | None:
    """Say how the scale of new maps differs from that of stored ones, from the statistics of both."""
    stored_numbers = np.median(stored, axis=0)
    numbers = np.median(new, axis=0)
    compared = {"spread": SPREAD}
    # The level of maps that lie around 0, such as z-scores, says nothing of their scale.
    if abs(stored_numbers[MEDIAN]) > stored_numbers[SPREAD]:
        compared["median"] = MEDIAN
    for name, column in compared.items():
        number = numbers[column]
        stored_number = stored_numbers[column]
        if stored_number and not 1 / LARGEST_RATIO <= number / stored_number <= LARGEST_RATIO:
            return (
                f"the {name} of its maps is {number:.4g}, that of the store's maps is "
                f"{stored_number:.4g}: are they in the same units?"
            )
    return None


def duplicate_problem(stored: np.ndarray, new: np.ndarray, names: Sequence[str]) -> str | None:
    """Say which new maps are in the store under another name, also nearly equal ones.

    `names` are those of the stored subjects, then those of the new ones.
    """
    unit = np.median(stored[:, SPREAD]) or 1.0
    tree = cKDTree(stored[:, N_STATISTICS:] / unit)
    points = new[:, N_STATISTICS:] / unit
    _, nearest = tree.query(points, p=np.inf, distance_upper_bound=SAME_MAP)
    # `nearest` is the number of stored maps where none is so near.
    pairs = [
        f"{name} = {names[row]}"
        for name, row in zip(names[len(stored) :], np.atleast_1d(nearest).tolist(), strict=True)
        if row < len(stored)
    ]
    return f"the store already has these maps under other names: {some(pairs)}" if pairs else None
