"""The command line: words → calls. No mathematics here, and nothing heavy is imported until a command runs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from icofactor import __version__

_DEMO_EXAMPLE = """example:
  icofactor demo demo-output
"""
_BENCH_EXAMPLE = """examples:
  icofactor bench -o bench-output
  icofactor bench -o bench-output --only a,d
  icofactor bench -o bench-output --quick
"""
# what functions call their arguments → what the command line calls them
_WORDS = {"overwrite=True": "--overwrite", "random_state": "--random-seed"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 2 after one clear line about what was wrong."""
    options = _parser().parse_args(argv)
    try:
        options.run(options)
    except (ValueError, OSError) as problem:
        if options.verbose:
            raise
        print(f"icofactor {options.command}: {_one_line(problem, options)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"icofactor {options.command}: interrupted; nothing half-written was left", file=sys.stderr)
        return 130
    return 0


def _one_line(problem: Exception, options: argparse.Namespace) -> str:
    """The problem in the words of the command line."""
    text = str(problem)
    if isinstance(problem, OSError) and problem.strerror:
        text = f"{problem.strerror}: {problem.filename or options.out}"
    for ours, theirs in _WORDS.items():
        text = text.replace(ours, theirs)
    return " ".join(text.split())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="icofactor",
        description="Factorize cortical maps into a few basis maps and per-subject loadings.",
    )
    parser.add_argument("--version", action="version", version=f"icofactor {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_bench(commands)
    return parser


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser(
        "demo",
        help="simulate a cohort, factorize it and write maps, loadings and a figure",
        description="Simulate a cohort on fsaverage5, factorize it and write what a fit gives: basis maps (GIFTI), "
        "loadings (TSV), provenance (JSON), the model and one figure. Needs no data and no network.",
        epilog=_DEMO_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument("out", metavar="OUT", type=Path, help="folder for the results; made when missing")
    demo.add_argument("--n-subjects", type=int, default=100, help="subjects to simulate (default: 100)")
    demo.add_argument("--n-components", type=int, default=10, help="components to simulate and find (default: 10)")
    demo.add_argument("--modality", default="thickness", help="thickness, myelin, reho or alff (default: thickness)")
    demo.add_argument("--hemisphere", default="both", choices=["left", "right", "both"], help="default: both")
    demo.add_argument("--random-seed", type=int, default=0, metavar="N", help="same seed, same answer (default: 0)")
    demo.add_argument("--overwrite", action="store_true", help="replace the results of an earlier run")
    demo.add_argument("-q", "--quiet", action="store_true", help="no progress bars")
    demo.add_argument("-v", "--verbose", action="store_true", help="show the whole traceback of an error")
    demo.set_defaults(run=_demo)


def _demo(options: argparse.Namespace) -> None:
    from icofactor.demo import run_demo

    begin = time.perf_counter()
    summary = run_demo(
        options.out,
        n_subjects=options.n_subjects,
        n_components=options.n_components,
        modality=options.modality,
        hemisphere=options.hemisphere,
        random_state=options.random_seed,
        overwrite=options.overwrite,
        verbose=not options.quiet,
    )
    print(summary)
    print(f"{time.perf_counter() - begin:.0f} s in all. Look at {options.out / 'components.png'}")


def _add_bench(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    bench = commands.add_parser(
        "bench",
        help="measure speed against the machine and against other libraries",
        description="Measure, in one run: (a) updates per second against the machine's own matrix product, (b) time to "
        "error against other libraries, (c) growth of time and memory, (d) refinement, coordinate descent and GPU. "
        "Writes bench.json, bench.md and plots. Libraries that are not installed are listed as not run.",
        epilog=_BENCH_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bench.add_argument("-o", "--out", metavar="OUT", type=Path, required=True, help="folder for the results")
    bench.add_argument("--only", default="a,b,c,d", metavar="a,b,c,d", help="which experiments (default: all)")
    bench.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    bench.add_argument("--repeats", type=int, default=5, metavar="N", help="medians of so many (default: 5)")
    bench.add_argument(
        "--budget", type=float, default=120.0, metavar="SECONDS", help="longest run of one solver in (b) (default: 120)"
    )
    bench.add_argument("-q", "--quiet", action="store_true", help="no lines about progress")
    bench.add_argument("-v", "--verbose", action="store_true", help="show the whole traceback of an error")
    bench.set_defaults(run=_bench)


def _bench(options: argparse.Namespace) -> None:
    from icofactor.benchmarks import run_bench

    begin = time.perf_counter()
    run_bench(
        options.out,
        [name.strip() for name in options.only.split(",")],
        quick=options.quick,
        repeats=options.repeats,
        budget=options.budget,
        tell=(lambda line: None) if options.quiet else (lambda line: print(line, flush=True)),
    )
    print(f"{time.perf_counter() - begin:.0f} s in all. Look at {options.out / 'bench.md'}")


if __name__ == "__main__":
    sys.exit(main())
