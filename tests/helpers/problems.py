"""Small problems that the tests of the numerical core share, and how they compare arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from icofactor.factorization._solve import Course, Run, iterate
from icofactor.factorization.design import Design
from icofactor.factorization.methods import METHODS
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.statistics import Statistics
from icofactor.factorization.update import begin
from icofactor.sphere.sites import Sites

ALL_METHODS = tuple(METHODS)
METHODS_AND_RULES = [
    (name, rules)
    for name in METHODS
    for rules in ("paper", "default")
    if METHODS[name].scheme.in_paper or rules != "paper"
]
KINDS = ("partition", "exponential", "smooth")
COVERING = {"partition": None, "exponential": 0.1, "smooth": 0.1}
"""A σ for each kind with which the columns cover the sphere."""

Factors = tuple[np.ndarray, np.ndarray]
"""B and C."""


@dataclass(frozen=True)
class Small:
    """Data (sites × subjects) on a small mesh, with a design and its statistics."""

    X: np.ndarray
    design: Design
    stats: Statistics

    @property
    def D(self) -> np.ndarray:
        return self.design.matrix.toarray()

    @property
    def root_D(self) -> np.ndarray:
        return self.design.roots.matrix.toarray()


def positive_data(coordinates: np.ndarray, n_subjects: int, seed: int = 0) -> np.ndarray:
    """Positive maps: a few smooth bumps mixed differently in each subject, and noise; between about 0.5 and 5."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((6, 3))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    bumps = np.exp(3 * (coordinates @ centres.T - 1))
    X = 1.0 + bumps @ rng.gamma(2.0, 0.5, (6, n_subjects))
    return X + 0.1 * rng.random(X.shape)


@cache
def masked_sites(level: int = 3, on: str = "faces", hemi: str = "left", kept: float = 0.8) -> Sites:
    """The sites of an icosphere without a random fifth of them."""
    sites = Sites.icosphere(level, on=on, hemi=hemi)  # type: ignore[arg-type]
    keep = np.random.default_rng(7).random(sites.n) < kept
    return sites.subset(keep)


@cache
def small(
    kind: str = "partition", sigma: float | None = None, divided: bool = False, n_subjects: int = 12
) -> Small:
    """A masked mesh of about a thousand faces on the roots, or on roots and some of their children."""
    sites = masked_sites()
    design = Design(sites, kind, sigma=COVERING[kind] if sigma is None else sigma)
    if divided:
        design = design.divide([3, 7, 11])
        design = design.divide([0, design.n_columns - 1])
    X = positive_data(sites.coordinates, n_subjects)
    return Small(X, design, Statistics.from_data(X, design))


def random_factors(
    n_columns: int, n_components: int, n_subjects: int, seed: int, signed: bool = False
) -> Factors:
    """B and C away from zero; of mixed signs when `signed`."""
    rng = np.random.default_rng(seed)
    factors = [
        rng.uniform(0.1, 1.0, shape)
        for shape in ((n_columns, n_components), (n_components, n_subjects))
    ]
    B, C = (f * rng.choice([-1.0, 1.0], f.shape) if signed else f for f in factors)
    return B, C


def drawn_start(
    stats: Statistics, method: str, n_components: int, rules: str, seed: int
) -> Factors:
    """The package's own random start, as NumPy arrays."""
    p = Problem.of(stats, METHODS[method].scheme, rules)
    B, C = draw_starts(p, METHODS[method], n_components, seeds_of(seed), range(1))
    return B[0], C[0]


def run_starts(
    stats: Statistics,
    method: str,
    n_components: int,
    n_starts: int,
    n_iter: int,
    rules: str,
    seed: int = 0,
) -> Run:
    """The runs of several random starts, with the error after every update, which `multistart` does not keep."""
    chosen = METHODS[method]
    p = Problem.of(stats, chosen.scheme, rules)
    B, C = draw_starts(p, chosen, n_components, seeds_of(seed), range(n_starts))
    return iterate(p, chosen, begin(p, chosen.scheme, B, C), Course(n_iter))


def relative(values: np.ndarray | float, expected: np.ndarray | float) -> float:
    """The largest difference, relative to the largest expected value."""
    expected = np.asarray(expected)
    largest = float(np.abs(expected).max())
    difference = float(np.abs(np.asarray(values) - expected).max())
    return difference / largest if largest > 0 else difference
