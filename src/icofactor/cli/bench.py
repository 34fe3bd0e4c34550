"""`icofactor bench`: speed against the machine and against other libraries."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

SUMMARY = "compare speed with the machine's limits and with other libraries"
DESCRIPTION = (
    "Measure in one run: (a) updates per second, compared with the machine's matrix product; (b) time to reach an "
    "error, compared with other libraries; (c) growth of time and memory; (d) refinement, coordinate descent and GPU; "
    "(r) whether different groups of people give the same components. Writes bench.json, bench.md, tables and plots. "
    "Libraries that are not installed are listed as not run."
)
EXAMPLES = """icofactor bench -o bench-output
icofactor bench -o bench-output --only a,d
icofactor bench -o bench-output --quick"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, required=True, help="folder for the results")
    parser.add_argument(
        "--only", default="a,b,c,d,r", metavar="LETTER,...", help="experiments to run: a,b,c,d,r (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="use tiny sizes, to check that everything runs")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="repeats for each median (default: 5)")
    parser.add_argument(
        "--budget", type=float, default=120.0, metavar="SECONDS", help="time limit for one solver (default: 120)"
    )
    parser.add_argument(
        "--splits", type=int, metavar="N", help="number of splits of people in experiment r (default: 4)"
    )
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
    print(f"{time.perf_counter() - begin:.0f} s in total. Open {options.out / 'bench.md'}")
