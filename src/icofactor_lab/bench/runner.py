"""Run the experiments in one process and write what they found."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from icofactor.io.atomic import check_target, made_folder
from icofactor.streaming.threads import n_threads
from icofactor_lab.bench.outcome import Outcome
from icofactor_lab.bench.sizes import FULL, QUICK
from icofactor_lab.bench.timing import machine, pinned
from icofactor_lab.bench.writing import write_json, write_tables

EXPERIMENTS = {
    "a": "icofactor_lab.bench.updates",
    "b": "icofactor_lab.bench.time_to_error",
    "c": "icofactor_lab.bench.growth",
    "d": "icofactor_lab.bench.refining",
}
"""Each module has run(sizes, repeats, threads, budget, tell) → Outcome."""
FILES = ("bench.json", "bench.md", "multistart.png", "time_to_error.png", "growth.png")


def run_bench(
    out: str | Path,
    only: Sequence[str] = tuple(EXPERIMENTS),
    *,
    quick: bool = False,
    repeats: int = 5,
    budget: float = 120.0,
    overwrite: bool = False,
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run the experiments named by `only`, and write bench.json, bench.md and plots into the folder `out`.

    Parameters
    ----------
    out : folder for the results; made when missing.
    only : some of "a" (multistart), "b" (time to error), "c" (growth), "d" (refinement, coordinate descent, GPU).
    quick : tiny sizes, to see that everything runs; under a minute.
    repeats : how often each thing is measured; medians are reported.
    budget : most seconds of one run of one solver in (b); what is longer is stopped and its rate stated.
    overwrite : whether to replace the files of an earlier run.
    tell : called with a line now and then.

    Returns
    -------
    What bench.json holds.
    """
    unknown = [name for name in only if name not in EXPERIMENTS]
    if unknown or not only:
        raise ValueError(f"only must name some of {', '.join(EXPERIMENTS)}; found {', '.join(unknown) or 'nothing'}")
    if repeats < 1:
        raise ValueError(f"repeats must be a whole number ≥ 1; found {repeats!r}")
    if not budget > 0:
        raise ValueError(f"budget must be a number of seconds > 0; found {budget!r}")
    folder, threads = Path(out), n_threads()
    with made_folder(folder), pinned(threads):
        for name in FILES:
            check_target(folder / name, overwrite)
        results: dict[str, Any] = {
            "machine": machine(threads),
            "settings": {"quick": quick, "repeats": repeats, "budget": budget, "only": list(only)},
            "experiments": {},
        }
        for name in EXPERIMENTS:
            if name not in only:
                continue
            found: Outcome = importlib.import_module(EXPERIMENTS[name]).run(
                QUICK if quick else FULL, repeats, threads, budget, tell
            )
            results["experiments"][name] = found.as_dict()
            _write(results, folder)  # after each, so that a later failure costs nothing
    return results


def _write(results: dict[str, Any], folder: Path) -> None:
    from icofactor_lab.bench.plots import write_plots

    write_json(results, folder)  # before anything that could fail
    write_plots(results, folder)
    write_json(results, folder)
    write_tables(results, folder)
