"""Benchmarks against the machine and against other libraries: `icofactor bench -o OUT`; docs/benchmarks.md explains.

An experiment is a module with `run(bench) -> Outcome` and a line in `EXPERIMENTS`; a peer is a function and a line in
`icofactor_lab.bench.solvers`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from icofactor.errors import ArgumentError
from icofactor.io.publish import Publication
from icofactor.io.tables import write_json
from icofactor.streaming.runners import n_threads
from icofactor_lab.bench.settings import FULL, QUICK, Bench
from icofactor_lab.common.outcome import Outcome, Table, chosen, markdown, run_experiment, write_tables
from icofactor_lab.common.plotting import DPI
from icofactor_lab.common.timing import machine, pinned

__all__ = ["EXPERIMENTS", "run_bench", "write_bench"]

EXPERIMENTS = {
    "a": "icofactor_lab.bench.updates",
    "b": "icofactor_lab.bench.time_to_error",
    "c": "icofactor_lab.bench.growth",
    "d": "icofactor_lab.bench.refining",
    "r": "icofactor_lab.bench.reproducibility",
}
FILES = (
    "bench.json", "bench.md", "multistart.png", "time_to_error.png", "growth.png", "reproducibility.png",
    "reproducibility.tsv", "reproducibility_splits.tsv", "reproducibility_parcels.tsv",
)  # fmt: skip
"""Everything that any experiment writes."""


def run_bench(
    out: str | Path,
    only: Sequence[str] = tuple(EXPERIMENTS),
    *,
    quick: bool = False,
    repeats: int = 5,
    budget: float = 120.0,
    splits: int | None = None,
    overwrite: bool = False,
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Run the experiments named by `only`, and write bench.json, bench.md and figures into the folder `out`.

    Parameters
    ----------
    out : folder for the results; made when missing.
    only : some of "a" (multistart), "b" (time to error), "c" (growth), "d" (refinement, coordinate descent, GPU), "r"
        (reproducibility).
    quick : tiny sizes, to see that everything runs; under a minute.
    repeats : how often each thing is measured; medians are reported.
    budget : most seconds of one run of one solver in (b), and of opNMF in (r); what is longer is stopped, and in (b)
        its rate stated.
    splits : how often people are split in (r); four times, once with `quick`, where not given.
    overwrite : whether to replace the files of an earlier run.
    tell : called with a line now and then.

    Returns
    -------
    What bench.json holds.
    """
    names = chosen(EXPERIMENTS, only)
    if repeats < 1:
        raise ArgumentError("repeats", repeats, "a whole number ≥ 1")
    if not budget > 0:
        raise ArgumentError("budget", budget, "a number of seconds > 0")
    if splits is not None and splits < 1:
        raise ArgumentError("splits", splits, "a whole number ≥ 1")
    sizes = QUICK if quick else FULL
    if splits is not None:
        sizes = replace(sizes, splits=splits)
    place, threads, outcomes = Publication(out, overwrite, names=FILES), n_threads(), list[Outcome]()
    bench = Bench(sizes, repeats, threads, budget, tell)
    results: dict[str, Any] = {}
    with pinned(threads):
        about = {
            "machine": machine(threads),
            "settings": {
                "quick": quick,
                "repeats": repeats,
                "budget": budget,
                "splits": sizes.splits,
                "only": list(only),
            },
        }
        for name in names:
            outcomes.append(run_experiment(EXPERIMENTS[name], bench))
            results = write_bench(about, outcomes, place)  # after each, so that a later failure costs nothing
    return results


def write_bench(about: dict[str, Any], outcomes: Sequence[Outcome], place: Publication) -> dict[str, Any]:
    """bench.json, then figures and bench.md; what bench.json holds. The next call with `place` replaces them."""
    results = {**about, "experiments": {outcome.name: outcome.as_dict() for outcome in outcomes}}
    with place.filled() as made:  # before anything that could fail
        write_json(made / "bench.json", results)
    place.overwrite = True
    with place.filled() as made:
        for plate in (plate for outcome in outcomes for plate in outcome.plates):
            plate.draw().savefig(made / f"{plate.name}.png", dpi=DPI)
        write_tables([table for outcome in outcomes for table in outcome.tables if table.name], made)
        (made / "bench.md").write_text(readable(about, outcomes), encoding="utf-8")
    return results


def readable(about: dict[str, Any], outcomes: Sequence[Outcome]) -> str:
    """The results as Markdown."""
    machine = about["machine"]
    parts = [
        "# icofactor bench",
        f"{machine['processor']}, {machine['processors usable']} processors usable, {machine['threads']} threads for "
        f"every library, {machine['memory']}; {machine['system']}, Python {machine['python']}, "
        f"{', '.join(machine['blas'])}; {machine['date']}.",
        ", ".join(f"{name} {version}" for name, version in machine["versions"].items()) + ".",
    ]
    if about["settings"]["quick"]:
        parts.append("**--quick: tiny sizes, to see that everything runs; the numbers mean nothing.**")
    parts += ["## Targets", markdown(_targets(outcomes))]
    for outcome in outcomes:
        parts += [f"## ({outcome.name}) {outcome.title}", *outcome.notes]
        for table in outcome.tables:
            parts += [f"### {table.title}", table.note, markdown(table)]
        parts += [f"![{outcome.title}]({plate.name}.png)" for plate in outcome.plates]
    return "\n\n".join(part for part in parts if part) + "\n"


def _targets(outcomes: Sequence[Outcome]) -> Table:
    rows = []
    for outcome in outcomes:
        for target in outcome.targets:
            missed = "not reached" if target.met is False else "–"
            rows.append(
                {
                    "": f"({outcome.name})",
                    "what": target.what,
                    "target": target.goal,
                    "measured": missed if target.measured is None else target.measured,
                    "met": "–" if target.met is None else "yes" if target.met else "**no**",
                    "note": target.note,
                }
            )
    return Table("Targets", rows)
