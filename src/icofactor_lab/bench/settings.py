"""How large the experiments are: as the targets are stated, or tiny, to see that everything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from icofactor_lab.common.outcome import Sizes as CommonSizes


@dataclass(frozen=True)
class Sizes(CommonSizes):
    """Sizes of all experiments; `subjects` are those of (a) and (d).

    Attributes
    ----------
    gemm : side of the matrices whose product is the machine's own speed
    n_starts, n_iter : starts and updates of one measurement of (a)
    first_call : whether (a) measures compilation, which takes a while
    loop_starts : starts of the slow comparison rows of (a)
    faces : (level, subjects) of the simulated data of (b), the first only where there are no real data
    real : whether (b), (d) and (r) use real data when they are there
    marks : iterations after which a solver of (b) is looked at
    fit_updates : most updates of each start of our fits in (b); None leaves the default
    reference_iterations : iterations of scikit-learn (cd) that (b) compares with
    site_levels, subject_counts, component_counts : the points of (c), about `centre` = (level, subjects, components)
    people_counts : of (c), with more people than faces
    growth_iterations : updates of each start in (c)
    refinements : (steps, faces, updates) of (d)
    mesh_level : of the simulated data of (d)
    coarse_updates : updates of LE-PNNMF that CD-PNNMF is compared with in (d)
    device_starts, device_updates : the multistart of (d) on a GPU
    cohort_mesh : of the simulated cohort of (r)
    groups, parcel_groups : people of (r): two groups that are fitted, and third people; on the mesh and on parcels
    ranks, splits : numbers of components of (r), and how often people are split
    opnmf_updates : most updates of one run of opNMF in (r), on the mesh and on parcels
    """

    gemm: int = 1500
    n_starts: int = 1000
    n_iter: int = 200
    first_call: bool = True
    loop_starts: int = 100
    faces: tuple[tuple[int, int], ...] = ((5, 100), (6, 400), (7, 1000))
    real: bool = True
    marks: tuple[int, ...] = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)
    fit_updates: int | None = None
    reference_iterations: int = 1000
    site_levels: tuple[int, ...] = (4, 5, 6, 7)
    subject_counts: tuple[int, ...] = (50, 100, 200, 400, 800)
    people_counts: tuple[int, ...] = (1000, 10_000, 100_000)
    component_counts: tuple[int, ...] = (2, 5, 10, 20, 40)
    centre: tuple[int, int, int] = (5, 100, 10)
    growth_iterations: int = 200
    refinements: tuple[int, int, int] = (600, 5, 10)
    mesh_level: int = 5
    coarse_updates: int = 1000
    device_starts: int = 1000
    device_updates: int = 1000
    cohort_mesh: str = "fsaverage5"
    groups: tuple[int, int, int] = (75, 75, 50)
    parcel_groups: tuple[int, int, int] = (40, 40, 20)
    ranks: tuple[int, ...] = (6, 10, 16)
    splits: int = 4
    opnmf_updates: tuple[int, int] = (500, 5000)


FULL = Sizes()
QUICK = Sizes(
    name="quick",
    gemm=200,
    subjects=12,
    n_starts=16,
    n_iter=12,
    first_call=False,
    loop_starts=4,
    faces=((2, 20),),
    real=False,
    marks=(1, 2, 5, 10, 20),
    fit_updates=20,
    reference_iterations=20,
    site_levels=(2, 3),
    subject_counts=(12, 16),
    people_counts=(400, 800),
    component_counts=(2, 4),
    centre=(3, 12, 2),
    growth_iterations=10,
    refinements=(3, 2, 3),
    mesh_level=3,
    coarse_updates=30,
    device_starts=16,
    device_updates=12,
    cohort_mesh="fsaverage3",
    groups=(14, 14, 8),
    parcel_groups=(14, 14, 8),
    ranks=(2, 3),
    splits=1,
    opnmf_updates=(20, 40),
)


@dataclass(frozen=True)
class Bench:
    """What the experiments share.

    Attributes
    ----------
    sizes, repeats, threads
    budget : most seconds of one run of one solver
    tell : called with a line now and then
    """

    sizes: Sizes
    repeats: int
    threads: int
    budget: float
    tell: Callable[[str], None]
