"""Programs that measure the numbers in docs/; run one with `python -m icofactor_lab.docs_tables.NAME`.

| program | measures the numbers of |
|---|---|
| `associations` | docs/measured.md |
| `cohorts` | docs/measured.md |
| `defaults` | docs/defaults.md |
| `fuzz` | docs/security.md |
| `gpu` | docs/benchmarks.md, on a GPU |
| `measures` | docs/measured.md |
| `preprocessing` | docs/measured.md |
| `recovery` | docs/measured.md, docs/reproducibility.md |
| `report` | docs/measured.md, and draws README's pictures |
| `scale` | docs/measured.md, and the estimates of `icofactor fit --dry-run` |
| `selection` | docs/measured.md |
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[3]
Options = Mapping[str, Mapping[str, Any]]
Task = Callable[[argparse.Namespace], object]


def run_task(doc: str | None, tasks: Mapping[Task, Options]) -> None:
    """Run the task that the command line names, with its options: name → what `add_argument` takes."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="TASK")
    for task, options in tasks.items():
        help_ = (task.__doc__ or "").split("\n")[0].replace("%", "%%")
        command = commands.add_parser(task.__name__.replace("_", "-"), help=help_)
        command.set_defaults(task=task)
        for name, settings in options.items():
            command.add_argument(name, **settings)
    options_given = parser.parse_args()
    options_given.task(options_given)


def number(default: float, help_: str | None = None) -> dict[str, Any]:
    """An option that takes a number like its default."""
    return {"type": type(default), "default": default, "help": help_}


def from_tests(module: str) -> Any:
    """A module of tests/, which only a checkout of the repository has."""
    tests = CHECKOUT / "tests"
    if not tests.is_dir():
        raise SystemExit("this program uses helpers of the tests: run it in a checkout of the repository, with "
                         "PYTHONPATH=src or after `pip install -e .`")  # fmt: skip
    sys.path.insert(0, str(tests))
    return importlib.import_module(module)
