"""`icofactor bench`: speed against the machine and against other libraries."""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

from icofactor.errors import ArgumentError

SUMMARY = "compare speed with the machine's limits and with other libraries"
DESCRIPTION = (
    "Measure in one run: (a) updates per second, compared with the machine's matrix product; (b) time to reach an "
    "error, compared with other libraries; (c) growth of time and memory; (d) refinement, coordinate descent and GPU; "
    "(r) how far two groups of people agree, beside rotated maps. Writes bench.json, bench.md, tables and plots. "
    "Libraries that are not installed are listed as not run. "
    "--save and --against measure ratios in three minutes instead, and compare them with an earlier run: they show "
    "whether a change made icofactor slower."
)
EXAMPLES = """icofactor bench -o bench-output
icofactor bench -o bench-output --only a,d
icofactor bench -o bench-output --quick
icofactor bench --save before.json
icofactor bench --against before.json"""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--out", metavar="OUT", type=Path, help="folder for the results of the experiments")
    parser.add_argument(
        "--save",
        metavar="FILE",
        type=Path,
        help="measure ratios to the matrix product, to scikit-learn and to reading, and write them to a JSON file",
    )
    parser.add_argument(
        "--against",
        metavar="FILE",
        type=Path,
        help="measure the same ratios, compare them with those in FILE, and name what got slower; the exit status is "
        "then 1",
    )
    parser.add_argument("--only", metavar="LETTER,...", help="experiments to run: a,b,c,d,r (default: all)")
    parser.add_argument("--quick", action="store_true", help="use tiny sizes, to check that everything runs")
    parser.add_argument("--repeats", type=int, metavar="N", help="repeats for each median (default: 5; of ratios: 7)")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="time limit for one solver (default: 120)")
    parser.add_argument(
        "--splits", type=int, metavar="N", help="number of splits of people in experiment r (default: 4)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the results of an earlier run")


def run(options: argparse.Namespace) -> int:
    from icofactor_lab.bench import run_bench

    ratios = options.save is not None or options.against is not None
    if ratios == (options.out is not None):
        raise ArgumentError("out", None, "Give either {out}, or {save}, {against} or both of these")
    begin, tell = time.perf_counter(), (lambda line: None) if options.quiet else partial(print, flush=True)
    given = {"quick": options.quick, "overwrite": options.overwrite, "tell": tell}
    if options.repeats is not None:
        given["repeats"] = options.repeats
    if ratios:
        from icofactor_lab.bench.ratios import run_ratios

        for name in ("only", "budget", "splits"):
            if getattr(options, name) is not None:
                raise ArgumentError(name, None, f"{{{name}}} applies to the experiments ({{out}}), not to ratios")
        slower = run_ratios(options.save, options.against, **given)
        for line in slower:
            print(f"Slower: {line}")
        return int(bool(slower))
    only = [name.strip() for name in (options.only or "a,b,c,d,r").split(",")]
    budget = 120.0 if options.budget is None else options.budget
    run_bench(options.out, only, budget=budget, splits=options.splits, **given)
    print(f"{time.perf_counter() - begin:.0f} s in total. Open {options.out / 'bench.md'}")
    return 0
