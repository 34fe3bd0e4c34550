"""The paper's experiments, repeated: time, convergence, sparsity, maps, and the ablation that the paper lacks.

`icofactor reproduce OUT` runs them, with progress, resumable, and with one page at the end; docs/reproduction.md
explains. An experiment is a module with `run(context) -> Outcome` and a line in `EXPERIMENTS`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from icofactor.streaming.checkpoint import Checkpoint

from icofactor import __version__
from icofactor.errors import ArgumentError
from icofactor.io.atomic import made_folder
from icofactor.io.publish import FIGURES, TABLES, Publication
from icofactor.io.tables import write_json
from icofactor.progress import Stages
from icofactor.streaming.runners import n_threads
from icofactor_lab.common.outcome import Outcome, Table, chosen, run_experiment, write_tables
from icofactor_lab.common.timing import machine
from icofactor_lab.reproduce.claims import FAILS, HOLDS, PARTLY, Verdict, judge
from icofactor_lab.reproduce.datasets import Dataset, as_table, hcp_datasets, simulated_datasets, stored_datasets
from icofactor_lab.reproduce.page import picture, render
from icofactor_lab.reproduce.settings import FULL, QUICK, Context, Sizes

__all__ = ["EXPERIMENTS", "FULL", "QUICK", "Sizes", "reproduce", "write_reproduction"]

EXPERIMENTS = {
    name: f"icofactor_lab.reproduce.{name}" for name in ("timing", "convergence", "sparsity", "maps", "ablation")
}
PAGE, _RECORD = "reproduction.html", "record.json"
_KNOWN = (PAGE, f"{TABLES}/{_RECORD}", f"{FIGURES}/fig7_ablation.png")
"""One file of each folder, by which it is seen before any work whether results may appear there."""
_PAPER = "Honnorat & Davatzikos, Sparse Hierarchical Extrapolated Parametric Methods for Cortical Data Analysis"


def reproduce(
    out: str | Path,
    *,
    hcp: str | Path | None = None,
    spheres: str | Path | None = None,
    cohorts: Sequence[str | Path] = (),
    sizes: Sizes = FULL,
    only: Sequence[str] = tuple(EXPERIMENTS),
    work_dir: str | Path | None = None,
    seed: int = 0,
    n_procs: int = 1,
    overwrite: bool = False,
    progress: bool = False,
    pdf: bool = True,
) -> list[Verdict]:
    """Repeat the paper's experiments and write reproduction.html, figures/ and tables/.

    Parameters
    ----------
    out : folder for the results.
    hcp, spheres : an HCP tree, and the folder with the spheres that bring it to fsaverage5.
    cohorts : cohort stores, or whatever `load_cohort` reads. Without these and `hcp` the data are simulated.
    sizes : how much is computed.
    only : some of `EXPERIMENTS`.
    work_dir : where finished pieces are kept, out/work when None; the same call goes on from them.
    seed : of simulated data and of random starts.
    n_procs : subjects of `hcp` prepared at the same time.
    pdf : whether figures are written as PDF too.

    Returns
    -------
    The claims and what became of them.
    """
    names = chosen(EXPERIMENTS, only)
    if seed < 0:
        raise ArgumentError("seed", seed, "a whole number ≥ 0")
    if hcp is not None and cohorts:
        raise ArgumentError("hcp", None, "{hcp} and {cohorts} exclude each other: give one of them")
    begin, out = time.perf_counter(), Path(out)
    inputs = [*cohorts, *([] if hcp is None else [hcp])]
    place = Publication(out, overwrite, names=_KNOWN, inputs=inputs)
    with made_folder(out):
        datasets, notes = _datasets(out, hcp, spheres, cohorts, sizes, seed, n_procs, progress)
    run = {
        "command": "reproduce",
        "version": __version__,
        "sizes": asdict(sizes),
        "seed": seed,
        "data": [f"{d.number} {d.name}: {d.identity}" for d in datasets],
    }
    folder = out / "work" / sizes.name if work_dir is None else Path(work_dir)
    context = Context(datasets, sizes, seed, Checkpoint(folder, run))
    stages, outcomes = Stages(progress), list[Outcome]()
    for name in names:
        with stages.stage(name) as context.show:
            outcomes.append(run_experiment(EXPERIMENTS[name], context))
    verdicts = judge(outcomes)
    with stages.stage("page") as context.show:
        write_reproduction(place, outcomes, verdicts, context, notes, begin, pdf)
    return verdicts


def _datasets(
    out: Path,
    hcp: str | Path | None,
    spheres: str | Path | None,
    cohorts: Sequence[str | Path],
    sizes: Sizes,
    seed: int,
    n_procs: int,
    progress: bool,
) -> tuple[list[Dataset], list[str]]:
    if hcp is not None:
        return hcp_datasets(hcp, spheres, out / "stores", n_procs, progress)
    if cohorts:
        return stored_datasets(cohorts), []
    return simulated_datasets(sizes, seed), []


def write_reproduction(
    place: Publication,
    outcomes: list[Outcome],
    verdicts: list[Verdict],
    context: Context,
    notes: list[str],
    begin: float,
    pdf: bool,
) -> None:
    """Figures and tables, and the page last."""
    plates = [plate for outcome in outcomes for plate in outcome.plates]
    data, simulated = as_table(context.datasets), any(d.simulated for d in context.datasets)
    claims = Table("Claims", [vars(verdict) for verdict in verdicts], name="claims")
    with place.filled() as made:
        figures, tables = made / FIGURES, made / TABLES
        figures.mkdir()
        tables.mkdir()
        pictures = {}
        for i, plate in enumerate(plates):
            figure = plate.draw()
            if simulated:  # called so on every figure
                figure.text(0.005, 0.005, "simulated data", ha="left", va="bottom", fontsize=7, color="#a33b00")
            pictures[plate.name] = picture(figure, context.sizes.dpi)
            (figures / f"{plate.name}.png").write_bytes(pictures[plate.name])
            if pdf:
                figure.savefig(figures / f"{plate.name}.pdf", dpi=context.sizes.dpi)
            context.show((i + 1) / len(plates))
        write_tables([*(t for outcome in outcomes for t in outcome.tables), data, claims], tables)
        about = _about(verdicts, context, notes, time.perf_counter() - begin)
        write_json(tables / _RECORD, about["record"] | {"sizes": asdict(context.sizes)})
        text = render(outcomes, verdicts, pictures, data, about)
        (made / PAGE).write_text(text, encoding="utf-8", newline="\n")


def _about(verdicts: list[Verdict], context: Context, notes: list[str], seconds: float) -> dict[str, Any]:
    sizes, datasets = context.sizes, context.datasets
    simulated = any(d.simulated for d in datasets)
    count = lambda verdict: sum(v.verdict == verdict for v in verdicts)
    notices = list(notes)
    if simulated:
        notices.append(
            "The data are simulated: cohorts made from group maps stand in for the paper's datasets. What depends on "
            "real brains is not tested by them. They vary between subjects far more than real thickness does."
        )
    if sizes.is_quick:
        notices.append(
            "This is the quick version: smaller meshes, fewer starts, updates and refinements. It shows that "
            "everything runs; it does not judge the paper."
        )
    notices.append(
        "The literal σ = 0.015 lets the columns reach about a tenth of the cortex. Claims are judged under it, under "
        "columns that cover the cortex, and under icofactor's defaults, side by side."
    )
    about = machine(n_threads())
    record = {
        "icofactor": __version__,
        "time of the pieces in use (s)": round(context.seconds, 1),
        "time of this call (s)": round(seconds, 1),
        "pieces taken from earlier calls": context.work.reused,
        "date": about["date"],
        "processor": f"{about['processor']}, {about['processors usable']} in use",
        "system": about["system"],
        "Python, NumPy, numba": ", ".join([about["python"], about["versions"]["numpy"], about["versions"]["numba"]]),
        "seed": context.seed,
    }
    kind = "simulated data" if simulated else "measured data"
    return {
        "title": "The paper's experiments, repeated",
        "lead": f"{_PAPER}; {kind}.",
        "cards": {
            "data": "simulated" if simulated else "measured",
            "datasets": len(datasets),
            "methods": 11,
            "judgements that hold": f"{count(HOLDS)} of {len(verdicts)}",
            "in part": count(PARTLY),
            "do not hold": count(FAILS),
        },
        "notices": notices,
        "record": record,
    }
