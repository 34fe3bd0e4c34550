"""How much is computed, and the three settings under which the claims are judged."""

from __future__ import annotations

from dataclasses import dataclass

import icofactor as ico

# The paper divides five faces in every refinement and makes ten updates after it.
FACES_PER_REFINEMENT = 5
UPDATES_PER_REFINEMENT = 10
# The σ of the paper. Its twenty columns reach 8 % of the cortex.
PAPER_SIGMA = 0.015
# The smallest σ at which the twenty columns cover the sphere.
COVERING_SIGMA = 0.0692


@dataclass(frozen=True)
class Setting:
    """Columns, update rules and refinement that belong together.

    Attributes
    ----------
    key, name : for tables and for people
    kind, sigma : of the columns of D
    rules : "paper" or "default"
    indicator, carry : how the refinement finds faces, and what their children get
    """

    key: str
    name: str
    kind: str = "partition"
    sigma: float | None = None
    rules: str = "default"
    indicator: str = "residual"
    carry: str = "copy"

    def design(self, sites: ico.Sites, level: int = 0) -> ico.Design:
        """Return the design from which an experiment starts."""
        return ico.Design(sites, self.kind, level, self.sigma)

    def refinement(self, steps: int) -> ico.Refinement:
        """Return the schedule of the paper with this number of steps."""
        return ico.Refinement(
            steps, FACES_PER_REFINEMENT, UPDATES_PER_REFINEMENT, self.indicator, self.carry
        )


LITERAL = Setting(
    "literal", "literal (σ = 0.015)", "exponential", PAPER_SIGMA, "paper", "projected", "quarter"
)
COVERING = Setting(
    "covering",
    "covering (σ = 0.0692)",
    "exponential",
    COVERING_SIGMA,
    "paper",
    "projected",
    "quarter",
)
DEFAULT = Setting("default", "icofactor's defaults")
# What the paper says; the same with columns that cover the cortex; what a user of icofactor gets.
SETTINGS = (LITERAL, COVERING, DEFAULT)
SETTING_NAMES = {setting.key: setting.name for setting in SETTINGS}


@dataclass(frozen=True)
class Sizes:
    """How much is computed; the defaults are the full size.

    Attributes
    ----------
    mesh, subjects, scans : of simulated cohorts; `scans` are those of ALFF
    n_components : number of components, n_d in the paper
    starts, updates : random starts and their updates, for timing, convergence and maps
    runs : starts whose errors are followed update by update
    repeats, product_repeats : repetitions of a timing, and of the slow one that multiplies from left to right
    formula_updates : updates in plain NumPy, from which the time of a million is computed
    refined_starts, refined_updates, few_steps : starts, updates and refinements behind the L1 norms
    steps, random_refinements : refinements behind the maps, and random ones to compare with
    ablation_starts, ablation_updates, ablation_level : of the ablation
    """

    mesh: str = "fsaverage5"
    subjects: int = 100
    scans: int = 4
    n_components: int = 10
    starts: int = 1000
    updates: int = 1000
    runs: int = 10
    repeats: int = 3
    product_repeats: int = 1
    formula_updates: int = 5_000
    refined_starts: int = 50
    refined_updates: int = 1000
    few_steps: int = 10
    steps: int = 600
    random_refinements: int = 20
    ablation_starts: int = 5
    ablation_updates: int = 500
    ablation_level: int = 2


FULL = Sizes()
# Small meshes and few updates: to see that everything runs, not to judge the paper.
QUICK = Sizes(
    mesh="fsaverage4",
    subjects=60,
    scans=1,
    starts=40,
    updates=200,
    formula_updates=300,
    refined_starts=2,
    refined_updates=100,
    steps=60,
    random_refinements=10,
    ablation_starts=2,
    ablation_updates=100,
    ablation_level=1,
)
