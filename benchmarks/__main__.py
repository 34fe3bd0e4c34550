"""Run benchmarks and write one table each.

    python -m benchmarks                       # speeds, peers and reproducibility
    python -m benchmarks peers                 # some of them
    python -m benchmarks gpu                   # on a machine with a GPU
    python -m benchmarks --quick --out OUT     # tiny sizes: to see that everything runs
    make bench OUT=folder ARGS="peers"         # in an environment of its own

Tables go to OUT, by default to benchmarks/results, where those of this version are. Run the benchmarks of time on idle
cores. They use real cortical thickness where ICOFACTOR_TEST_DATA names its folder, else simulated maps.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from benchmarks.measure import write_table

BENCHMARKS = ("speeds", "peers", "reproducibility", "gpu")
# A GPU is not everywhere.
USUAL = BENCHMARKS[:3]


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results", help="folder for the tables"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}")
    for name in options.names or USUAL:
        print(f"{name}:", flush=True)
        rows = import_module(f"benchmarks.{name}").run(options.quick)
        write_table(options.out / f"{name}.tsv", rows)


if __name__ == "__main__":
    main()
