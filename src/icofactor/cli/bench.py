"""`icofactor bench`: speed against the machine and against other libraries."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

SUMMARY = "measure speed against the machine and against other libraries"
DESCRIPTION = (
    "Measure, in one run: (a) updates per second against the machine's own matrix product, (b) time to "
    "error against other libraries, (c) growth of time and memory, (d) refinement, coordinate descent and GPU; "
    "and (r) whether groups of people give the same components. Writes bench.json, bench.md, tables and plots. "
    "Libraries that are not installed are listed as not run."
)
EXAMPLES = """icofactor bench -o bench-output
icofactor bench -o bench-output --only a,d
icofactor bench -o bench-output --quick"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, required=True, help="folder for the results")
    parser.add_argument("--only", default="a,b,c,d,r", metavar="a,b,c,d,r", help="which experiments (default: all)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="medians of so many (default: 5)")
    parser.add_argument(
        "--budget", type=float, default=120.0, metavar="SECONDS", help="longest run of one solver (default: 120)"
    )
    parser.add_argument("--splits", type=int, metavar="N", help="of people, in experiment r (default: 4)")
    parser.add_argument("--overwrite", action="store_true", help="replace the results of an earlier run")


def run(options: argparse.Namespace) -> None:
    from icofactor_lab.bench import run_bench

    begin = time.perf_counter()
    run_bench(
        options.out,
        [name.strip() for name in options.only.split(",")],
        quick=options.quick,
        repeats=options.repeats,
        budget=options.budget,
        splits=options.splits,
        overwrite=options.overwrite,
        tell=(lambda line: None) if options.quiet else (lambda line: print(line, flush=True)),
    )
    print(f"{time.perf_counter() - begin:.0f} s in all. Look at {options.out / 'bench.md'}")
