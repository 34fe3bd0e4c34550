"""How large the experiments are, under which settings they are run, and what they share."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from icofactor.streaming.checkpoint import Arrays, Checkpoint

from icofactor.factorization._refine import Refinement
from icofactor.factorization.design import Design
from icofactor.sphere.sites import Sites
from icofactor_lab.common.outcome import Sizes as CommonSizes

if TYPE_CHECKING:
    from icofactor_lab.reproduce.datasets import Dataset

FACES, UPDATES = 5, 10
"""Faces divided in a refinement of the paper, and updates after it."""
SHOWN = 3
"""Basis maps that are drawn."""

COVERING_SIGMA = 0.0692
"""The smallest σ at which the twenty columns cover the sphere (method.md §5)."""


@dataclass(frozen=True)
class Setting:
    """Columns, rules and refinement that go together.

    Attributes
    ----------
    key, name : for files, for people.
    kind, sigma : of the columns of D.
    rules : "paper" or "default".
    indicator, carry : of the refinement.
    """

    key: str
    name: str
    kind: str
    sigma: float | None
    rules: str
    indicator: str
    carry: str

    def design(self, sites: Sites, level: int = 0) -> Design:
        return Design(sites, self.kind, level, self.sigma)

    def schedule(self, steps: int) -> Refinement:
        return Refinement(steps, FACES, UPDATES, self.indicator, self.carry)


LITERAL = Setting("literal", "literal (σ = 0.015)", "exponential", 0.015, "paper", "projected", "quarter")
COVERING = Setting(
    "covering", f"covering (σ = {COVERING_SIGMA})", "exponential", COVERING_SIGMA, "paper", "projected", "quarter"
)
DEFAULT = Setting("default", "icofactor's defaults", "partition", None, "default", "residual", "copy")
SETTINGS = (LITERAL, COVERING, DEFAULT)
"""What the paper says; the same with columns wide enough to cover the cortex; what a user of icofactor gets."""


@dataclass(frozen=True)
class Sizes(CommonSizes):
    """How much is computed; `subjects` are those of simulated cohorts, `n_components` is n_d.

    Attributes
    ----------
    mesh : of simulated cohorts.
    engine : where many starts are run.
    starts, updates : random starts and their updates, for timing and convergence.
    runs : starts whose paths are drawn.
    repeats, repeats_read : repetitions of a timing; where M is formed and products are taken as they are read.
    formula_updates : updates of one start in plain NumPy, from which its time of a million is computed.
    timing_mesh : of the simulated data for one update at full resolution.
    scans : of ALFF, when data are simulated.
    refined_starts, refined_updates : before the refinements of the L1 norms.
    few_steps : refinements behind the L1 norms and in the ablation.
    steps : refinements behind the maps.
    random_refinements : how often a refinement is drawn at random for comparison.
    ablation_starts, ablation_updates : of the ablation.
    level : at which the ablation starts.
    dpi : of the figures.
    """

    mesh: str = "fsaverage5"
    engine: str = "cpu"
    starts: int = 1000
    updates: int = 1000
    runs: int = 10
    repeats: int = 10
    repeats_read: int = 3
    formula_updates: int = 5_000
    timing_mesh: str = "fsaverage5"
    scans: int = 4
    refined_starts: int = 50
    refined_updates: int = 1000
    few_steps: int = 10
    steps: int = 600
    random_refinements: int = 20
    ablation_starts: int = 5
    ablation_updates: int = 500
    level: int = 2
    dpi: int = 150


FULL = Sizes()
QUICK = Sizes(
    name="quick",
    mesh="fsaverage4",
    subjects=60,
    starts=40,
    updates=200,
    repeats=3,
    repeats_read=1,
    formula_updates=300,
    timing_mesh="fsaverage4",
    refined_starts=2,
    refined_updates=100,
    steps=60,
    random_refinements=10,
    ablation_starts=2,
    ablation_updates=100,
    level=1,
)
"""Smaller meshes, fewer starts and updates: to see that everything runs, not to judge the paper by."""


@dataclass(eq=False)
class Context:
    """What the experiments share.

    Attributes
    ----------
    datasets, sizes, seed
    work : where finished pieces are kept.
    show : called with the fraction of the experiment that is done.
    seconds : time spent on the pieces in use, those of earlier runs included.
    """

    datasets: list[Dataset]
    sizes: Sizes
    seed: int
    work: Checkpoint
    show: Callable[[float], None] = lambda fraction: None
    seconds: float = 0.0

    def piece(self, key: str, compute: Callable[[], Arrays]) -> Arrays:
        """A piece of the work, made or taken from the work folder; warnings are kept with it."""

        def timed() -> Arrays:
            begin = time.perf_counter()
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                made = compute()
            texts = sorted({str(one.message) for one in heard if issubclass(one.category, UserWarning)})
            made["warnings"] = np.array(texts, dtype=np.str_)
            made["seconds"] = np.array(time.perf_counter() - begin)
            return made

        found = self.work.piece(key, timed)
        self.seconds += float(found["seconds"])
        return found
