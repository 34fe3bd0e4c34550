"""`icofactor reproduce`: the paper's experiments."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

SUMMARY = "repeat the experiments of the paper and check its claims"
DESCRIPTION = """Repeat the experiments of Honnorat & Davatzikos for all eleven methods: time, convergence, L1 norms on
fourteen datasets, maps after 600 refinements. Also run an ablation of icofactor's defaults. Writes reproduction.html
with the figures of the paper and a table of its claims, figures/ (PNG, PDF) and tables/ (TSV).

Without your data, the cohorts are simulated and labelled as simulated. To resume an interrupted run, give the same
command again."""
EXAMPLES = """icofactor reproduce reproduction --quick
icofactor reproduce reproduction
icofactor reproduce reproduction --cohort thickness.store myelin.store
icofactor reproduce reproduction --hcp HCP --spheres HCPpipelines --n-procs 4"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", type=Path, help="folder for the results; created if missing")
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--hcp", metavar="DIR", type=Path, help="HCP tree; its maps are prepared in OUT/stores")
    data.add_argument("--cohort", metavar="STORE", type=Path, nargs="+", default=[], help="cohort stores, or map files")
    parser.add_argument(
        "--spheres", metavar="DIR", type=Path, help="for --hcp: folder of HCPpipelines or TemplateFlow with the spheres"
    )
    parser.add_argument("--n-procs", type=int, default=1, metavar="N", help="for --hcp: number of subjects in parallel")
    parser.add_argument(
        "--quick", action="store_true", help="use small sizes, to check in minutes that everything runs"
    )
    parser.add_argument(
        "--only",
        metavar="NAME,...",
        default="timing,convergence,sparsity,maps,ablation",
        help="experiments to run (default: %(default)s)",
    )
    parser.add_argument("--work-dir", type=Path, metavar="DIR", help="folder for finished steps (default: OUT/work)")
    parser.add_argument(
        "--random-seed", type=int, default=0, metavar="N", help="the same seed gives the same result (default: 0)"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace the page, figures and tables of an earlier run"
    )


def run(options: argparse.Namespace) -> None:
    from icofactor_lab.reproduce import FULL, QUICK, reproduce

    begin = time.perf_counter()
    try:
        verdicts = reproduce(
            options.out,
            hcp=options.hcp,
            spheres=options.spheres,
            cohorts=options.cohort,
            sizes=QUICK if options.quick else FULL,
            only=[name.strip() for name in options.only.split(",") if name.strip()],
            work_dir=options.work_dir,
            seed=options.random_seed,
            n_procs=options.n_procs,
            overwrite=options.overwrite,
            progress=not options.quiet,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "interrupted; finished steps are kept, and the same command resumes from there"
        ) from None
    for word in ("holds", "holds in part", "does not hold"):
        print(f"{sum(v.verdict == word for v in verdicts):3d} {word}")
    print(f"{time.perf_counter() - begin:.0f} s in total. Open {options.out / 'reproduction.html'}")
