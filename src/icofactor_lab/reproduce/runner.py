"""All experiments in one call: with progress, resumable, and one page at the end."""

from __future__ import annotations

import importlib
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from icofactor import __version__
from icofactor.io.atomic import check_target, made_folder
from icofactor.io.tables import write_json, write_tsv
from icofactor.progress import Stages
from icofactor.streaming.checkpoint import Checkpoint
from icofactor.streaming.threads import n_threads
from icofactor_lab.bench.timing import machine
from icofactor_lab.reproduce.claims import Verdict, judge
from icofactor_lab.reproduce.datasets import Dataset, as_table, hcp_datasets, simulated_datasets, stored_datasets
from icofactor_lab.reproduce.found import Context, Section, Table
from icofactor_lab.reproduce.page import picture, render
from icofactor_lab.reproduce.settings import FULL, Sizes

EXPERIMENTS = ("timing", "convergence", "sparsity", "maps", "ablation")
PAGE = "reproduction.html"
_PAPER = "Honnorat & Davatzikos, Sparse Hierarchical Extrapolated Parametric Methods for Cortical Data Analysis"


def reproduce(
    out: str | Path,
    *,
    hcp: str | Path | None = None,
    spheres: str | Path | None = None,
    cohorts: Sequence[str | Path] = (),
    sizes: Sizes = FULL,
    only: Sequence[str] = EXPERIMENTS,
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
    unknown = [name for name in only if name not in EXPERIMENTS]
    if unknown or not only:
        raise ValueError(f"only must name some of {', '.join(EXPERIMENTS)}; found {', '.join(unknown) or 'none'}")
    if seed < 0:
        raise ValueError(f"seed must be a whole number ≥ 0; found {seed}")
    if hcp is not None and cohorts:
        raise ValueError("hcp and cohort exclude each other: give one of them")
    begin, out = time.perf_counter(), Path(out)
    if out.is_dir():
        check_target(out / PAGE, overwrite)
    elif out.exists():
        raise NotADirectoryError(f"{out} is a file; a folder is to be written there")
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
    stages, sections = Stages(progress), {}
    for name in (name for name in EXPERIMENTS if name in only):
        with stages.stage(name) as show:
            context.show = show
            sections[name] = importlib.import_module(f"icofactor_lab.reproduce.{name}").run(context)
    verdicts = judge(sections)
    with stages.stage("page") as show:
        _write(out, list(sections.values()), verdicts, context, notes, begin, overwrite, pdf, show)
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


def _write(
    out: Path,
    sections: list[Section],
    verdicts: list[Verdict],
    context: Context,
    notes: list[str],
    begin: float,
    overwrite: bool,
    pdf: bool,
    show: Any,
) -> None:
    """Figures and tables beside, then in place; the page last."""
    plates = [(section, plate) for section in sections for plate in section.plates]
    data = Table("datasets", "Data", as_table(context.datasets))
    claims = {name: [getattr(v, name) for v in verdicts] for name in Verdict.__dataclass_fields__}
    made = Path(tempfile.mkdtemp(prefix=".tmp-reproduce-", dir=out))
    try:
        for name in ("figures", "tables"):
            (made / name).mkdir()
        pictures = {}
        for i, (section, plate) in enumerate(plates):
            figure = plate.draw()
            stamp(figure, context.datasets, section)
            pictures[plate.name] = picture(figure, context.sizes.dpi)
            (made / "figures" / f"{plate.name}.png").write_bytes(pictures[plate.name])
            if pdf:
                figure.savefig(made / "figures" / f"{plate.name}.pdf", dpi=context.sizes.dpi)
            show((i + 1) / len(plates))
        for table in [*(t for section in sections for t in section.tables), data]:
            write_tsv(made / "tables" / f"{table.name}.tsv", {k: list(v) for k, v in table.columns.items()})
        write_tsv(made / "tables" / "claims.tsv", claims)
        about = _about(sections, verdicts, context, notes, time.perf_counter() - begin)
        write_json(made / "tables" / "record.json", about["record"] | {"sizes": asdict(context.sizes)})
        text = render(sections, verdicts, pictures, data, about)
        (made / PAGE).write_text(text, encoding="utf-8", newline="\n")
        _move(made, out, overwrite)
    except OSError as problem:
        if problem.errno is None or str(made) not in str(problem.filename or made):
            raise
        # by the name that the file would have had
        failed = Path(problem.filename or made / PAGE).relative_to(made)
        raise OSError(problem.errno, problem.strerror, str(out / failed)) from problem
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _move(made: Path, out: Path, overwrite: bool) -> None:
    """Nothing is moved where one file would take the place of another unasked; the page comes last."""
    files = [*sorted(made.glob("*/*")), made / PAGE]
    there = [target for file in files if (target := out / file.relative_to(made)).exists()]
    if there and not overwrite:
        raise FileExistsError(f"{there[0]} exists; pass overwrite=True to replace it")
    for name in ("figures", "tables"):
        (out / name).mkdir(exist_ok=True)
    for file in files:
        file.replace(out / file.relative_to(made))


def stamp(figure: Any, datasets: Sequence[Dataset], section: Section) -> None:
    """Simulated data are called so on every figure."""
    if any(d.simulated for d in datasets) and section.plates:
        figure.text(0.005, 0.005, "simulated data", ha="left", va="bottom", fontsize=7, color="#a33b00")


def _about(
    sections: list[Section], verdicts: list[Verdict], context: Context, notes: list[str], seconds: float
) -> dict[str, Any]:
    sizes, datasets = context.sizes, context.datasets
    simulated = any(d.simulated for d in datasets)
    count = lambda word: sum(v.verdict == word for v in verdicts)
    notices = list(notes)
    if simulated:
        notices.append(
            "The data are simulated: cohorts made from group maps stand in for the paper's datasets. What depends on "
            "real brains is not tested by them. They vary between subjects far more than real thickness does."
        )
    if sizes.name == "quick":
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
            "judgements that hold": f"{count('holds')} of {len(verdicts)}",
            "in part": count("holds in part"),
            "do not hold": count("does not hold"),
        },
        "notices": notices,
        "record": record,
    }
