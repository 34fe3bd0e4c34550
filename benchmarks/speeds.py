"""The speeds that a change of icofactor must keep.

    python -m benchmarks speeds    # about two minutes

`benchmarks/stores.py` measures fits of large stores. Run both on idle cores. Every time stands beside its ratio to a product of two 1500 × 1500 matrices, measured just before:
the ratios of two runs can be compared, seconds only on one machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import icofactor as ico
from benchmarks.data import both_hemispheres, left_faces, smooth_maps
from benchmarks.measure import Row, elapsed, product_seconds, run_python, seconds, show, timing_row

# Operations of the matrix product to which everything is compared.
PRODUCT_OPERATIONS = 2 * 1500**3


def run(quick: bool) -> list[Row]:
    """Measure everything."""
    rows = [
        *product_rows(),
        *fit_rows(quick),
        *update_rows(quick),
        *selection_rows(quick),
        *process_rows(quick),
    ]
    return list(rows)


def product_rows() -> Iterator[Row]:
    """Measure the machine."""
    yield show(
        {"what": "dgemm", "value": PRODUCT_OPERATIONS / product_seconds() / 1e9, "unit": "GFLOP/s"}
    )


def fit_rows(quick: bool) -> Iterator[Row]:
    """Time whole fits of people in memory."""
    n_people = 12 if quick else 100
    mesh = "fsaverage3" if quick else "fsaverage5"
    cohort = both_hemispheres(n_people, mesh)
    default = seconds(lambda: ico.CorticalFactorization(10, random_state=0).fit(cohort))
    # 1.2 × the 0.2 to 0.3 s of version 0.1.0
    yield timing_row(f"default fit, {n_people} people, both hemispheres of {mesh}", default, 0.36)
    maps, faces = left_faces(n_people, mesh)
    descent = seconds(
        lambda: ico.CorticalFactorization(10, method="CD-PNNMF", mesh=faces, random_state=0).fit(
            maps
        ),
        repeats=9,
    )
    yield timing_row(f"CD-PNNMF, {faces.n:,} faces × {n_people} people", descent, 0.2)


def update_rows(quick: bool) -> Iterator[Row]:
    """Time 1000 starts × 1000 updates of the paper: 20 dense columns, 10 components, 100 people."""
    n_starts = 20 if quick else 1000
    sites = ico.Sites.icosphere(4, on="faces")
    maps = smooth_maps(sites.coordinates, 100)
    stats = ico.Statistics.from_data(maps.T, ico.Design(sites, "smooth", 0))

    def updates() -> None:
        ico.multistart(
            stats,
            "PNNMF",
            10,
            n_starts=n_starts,
            n_iter=1000,
            rules="paper",
            engine="cpu",
            random_state=0,
        )

    value = seconds(updates, repeats=3)
    row = timing_row(f"{n_starts * 1000:,} updates of PNNMF, paper's rules, compiled", value)
    yield row
    operations = n_starts * 1000 * update_operations(20, 10, 100)
    fraction = operations / (row["products"] * PRODUCT_OPERATIONS)
    yield show(
        {"what": "the same as a fraction of dgemm", "value": fraction, "limit": "at least 0.35"}
    )


def update_operations(n_columns: int, n_components: int, n_subjects: int) -> int:
    """Count the operations of one PNNMF update with a dense K, a product of m × k by k × n as 2mkn.

    C Cᵀ and Bᵀ K B are symmetric: only one triangle counts. K B is made once per update.
    """
    products_with_L = 2 * (2 * n_subjects * n_columns * n_components)
    grams = (n_subjects + n_columns) * n_components * (n_components + 1)
    products_with_K = 2 * n_columns * n_columns * n_components
    products_with_grams = 2 * (n_columns + n_subjects) * n_components**2
    quotients = 4 * (n_columns + n_subjects) * n_components
    error = 2 * n_columns * n_components + 2 * n_components**2
    return products_with_L + grams + products_with_K + products_with_grams + quotients + error


def selection_rows(quick: bool) -> Iterator[Row]:
    """Time the choice of the number of components."""
    n_people = 20 if quick else 200
    ranks = range(2, 4) if quick else range(2, 21)
    cohort = both_hemispheres(n_people, "fsaverage3" if quick else "fsaverage5")
    if not quick:
        # Compile, or load what is compiled, before the clock starts.
        ico.choose_n_components(both_hemispheres(20, "fsaverage3"), range(2, 4))
    value = elapsed(lambda: ico.choose_n_components(cohort, ranks))
    yield timing_row(f"selection of {ranks[0]} to {ranks[-1]} on {n_people} people", value, 45)


def process_rows(quick: bool) -> Iterator[Row]:
    """Time the import, over that of numpy, and the demo, each in processes of its own."""
    repeats = 1 if quick else 9
    with_icofactor = seconds(lambda: run_python("-c", "import numpy, icofactor"), repeats)
    numpy_alone = seconds(lambda: run_python("-c", "import numpy"), repeats)
    yield timing_row("import over numpy's", with_icofactor - numpy_alone, 0.1)
    size = ["--n-subjects", "12", "--n-components", "2", "--no-figures"] if quick else []
    with tempfile.TemporaryDirectory() as folder:
        demo = ("-m", "icofactor", "demo", folder, "--overwrite", *size)
        value = seconds(lambda: run_python(*demo), repeats=1 if quick else 3)
    yield timing_row("icofactor demo", value, 10)
