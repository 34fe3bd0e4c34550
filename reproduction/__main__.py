"""Repeat the experiments of the paper, check its claims, and write OUT/reproduction.html.

    python -m reproduction OUT --quick                      # everything at small sizes, in minutes
    python -m reproduction OUT                              # simulated data in place of the paper's fourteen datasets
    python -m reproduction OUT --cohort thickness.store     # your data: cohort stores, or anything `load_cohort` reads
    python -m reproduction OUT --only timing,convergence    # some experiments; the others keep their tables in OUT
    make reproduce OUT=folder ARGS="--quick"                # in an environment of its own

With make, OUT is reproduction-output by default. The maps of the Human Connectome Project can be prepared with
`icofactor prepare` and given with --cohort.
"""

from __future__ import annotations

import argparse
import time
from importlib import import_module
from pathlib import Path

from reproduction.claims import judge
from reproduction.data import simulated_datasets, stored_datasets
from reproduction.page import write_page
from reproduction.settings import FULL, QUICK, Sizes
from reproduction.study import Study

EXPERIMENTS = ("timing", "convergence", "sparsity", "maps", "ablation")


def reproduce(
    out: Path, cohorts: list[Path], sizes: Sizes, experiments: list[str], seed: int = 0
) -> None:
    """Run experiments, judge the claims and write the page."""
    datasets = stored_datasets(cohorts) if cohorts else simulated_datasets(sizes, seed)
    study = Study(out, datasets, sizes, seed)
    study.write_datasets()
    for name in experiments:
        begin = time.perf_counter()
        import_module(f"reproduction.{name}").run(study)
        print(f"{time.perf_counter() - begin:6.0f} s  {name}", flush=True)
    study.write_table("claims", judge(study))
    write_page(study)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduction",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "out", metavar="OUT", type=Path, help="folder for the page, tables and figures"
    )
    parser.add_argument(
        "--cohort",
        type=Path,
        nargs="+",
        default=[],
        help="cohorts to use instead of simulated ones",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: to see that everything runs"
    )
    parser.add_argument(
        "--only", default=",".join(EXPERIMENTS), help="experiments to run (default: %(default)s)"
    )
    parser.add_argument("--random-seed", type=int, default=0)
    options = parser.parse_args()
    experiments = options.only.split(",")
    unknown = sorted(set(experiments) - set(EXPERIMENTS))
    if unknown:
        parser.error(f"--only: no experiment is called {', '.join(unknown)}")
    sizes = QUICK if options.quick else FULL
    reproduce(options.out, options.cohort, sizes, experiments, options.random_seed)
    print(f"Open {options.out / 'reproduction.html'}")


if __name__ == "__main__":
    main()
