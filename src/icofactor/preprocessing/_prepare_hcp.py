"""From an HCP tree to cohort stores: in parallel over subjects, resumable, and with account of who
failed and why.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor import __version__
from icofactor.cohort.cohort import Cohort, Hemisphere
from icofactor.cohort.problems import some
from icofactor.cohort.simulate import MODALITIES
from icofactor.cohort.store.create import create_store
from icofactor.cohort.store.layout import is_store
from icofactor.cohort.subjects import Participants, Selection
from icofactor.errors import (
    ArgumentError,
    CohortError,
    ExistsError,
    as_reference,
    counted,
    literal,
    render,
)
from icofactor.io.guard import hash_file
from icofactor.preprocessing.finished_maps import FinishedMaps
from icofactor.preprocessing.hcp import (
    Cortex,
    Inputs,
    Projection,
    atlas_cortex,
    file_cortex,
    projections,
    target_sites,
)
from icofactor.preprocessing.hcp_subject import Steps, subject_map
from icofactor.progress import Stages

# Subjects whose maps are held together while a store is written.
_BLOCK = 64
_LISTED = 20
_LONGEST = 120


@dataclass(frozen=True)
class Failure:
    """A map that could not be made: whose, which one, and why (a text that may refer to arguments)."""

    subject: str
    output: str
    why: str


@dataclass(frozen=True)
class Prepared:
    """What was made.

    Attributes
    ----------
    stores : name ("thickness", "reho", or the run for ALFF) → cohort store.
    subjects : the same names → how many subjects it holds.
    failures : maps that could not be made.
    reused : maps that an earlier, interrupted run had made.
    """

    stores: Mapping[str, Path]
    subjects: Mapping[str, int]
    failures: tuple[Failure, ...]
    reused: int

    def summary(self) -> str:
        """The stores, as text; `failure_lines` lists the failures."""
        lines = [
            f"{path}: {name} of {counted(self.subjects[name], 'subject')}"
            for name, path in self.stores.items()
        ]
        if self.reused:
            lines.append(f"{self.reused} maps were reused from an earlier run")
        return "\n".join(lines)


def failed(failures: Sequence[Failure], what: str) -> CohortError:
    """An error that names every map that could not be made."""
    listed = [(f"{failure.subject} ({failure.output})", failure.why) for failure in failures]
    return CohortError.of([("prepare", what), *listed])


def _why(problem: Exception) -> str:
    """What an error says, on one line, with references to arguments."""
    if isinstance(problem, CohortError):
        return "; ".join(f"{literal(where)}: {what}" for where, what in problem.problems)
    if isinstance(problem, ArgumentError):
        return problem.describe(as_reference)
    return literal(str(problem) or type(problem).__name__)


def failure_lines(failures: Sequence[Failure]) -> list[str]:
    """One line per failure; the first twenty."""
    lines = [
        f"  {failure.subject} ({failure.output}): {render(failure.why)}"
        for failure in failures[:_LISTED]
    ]
    if len(failures) > _LISTED:
        lines.append(f"  ... and {len(failures) - _LISTED} more")
    return [f"{len(failures)} failed:", *lines] if failures else []


@dataclass(frozen=True)
class Target:
    """Mesh and hemispheres of prepared maps.

    Attributes
    ----------
    spheres : path
        Folder of HCPpipelines or TemplateFlow with spheres, areas and cortex regions.
    hemisphere : {"left", "right", "both"}
        Hemispheres.
    mesh : {"fsaverage4", "fsaverage5", "fsaverage6"}
        Mesh to resample to.
    method : {"adaptive", "barycentric"}
        Method of resampling.

    Examples
    --------
    >>> from icofactor.preprocessing import Target
    >>> Target("HCPpipelines", hemisphere="left").mesh
    'fsaverage5'
    """

    spheres: str | Path
    hemisphere: Hemisphere = "both"
    mesh: str = "fsaverage5"
    method: str = "adaptive"


@dataclass(frozen=True)
class HcpPlan:
    """What would be done.

    Attributes
    ----------
    n_subjects : in the tree, and chosen.
    sizes : for each map to be made the sizes of its files in bytes.
    stores : name of what is computed → store.
    failures : subjects that will fail because files are missing.
    """

    n_subjects: int
    sizes: Sequence[Sequence[int]]
    stores: Mapping[str, Path]
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class _Task:
    output: str
    inputs: Inputs

    @property
    def key(self) -> str:
        return map_key(self.inputs.subject, self.output)


def map_key(subject: str, output: str) -> str:
    """The key of a subject's map in the work folder.

    A subject's name may hold what a key may not; some disks take A for a, and CON for a device.
    """
    safe = re.sub(r"[^a-z0-9_.-]", lambda found: f"={ord(found[0]):x}=", subject)
    if len(safe) > _LONGEST:
        safe = f"{safe[:_LONGEST]}=={hashlib.sha256(subject.encode()).hexdigest()[:16]}"
    return f"s={safe}.{output}"


@dataclass(frozen=True)
class _Job:
    """Everything the tasks have in common; goes to the processes once each."""

    steps: Steps
    ways: Mapping[str, Projection]
    cortex: Cortex
    work: FinishedMaps = field(repr=False)

    def run(self, task: _Task) -> tuple[_Task, bool, str | None]:
        """Make and keep one map; the task, whether it was kept already, and why it failed."""
        try:
            inputs = task.inputs.identity()
            if not task.inputs.missing and self.work.load(task.key, inputs) is not None:
                return task, True, None
            made = subject_map(task.inputs, self.steps, self.ways, self.cortex.regions)
            arrays = {
                "map": made.values,
                "n_filled": np.array(made.n_filled),
                "tr": np.array(made.tr, dtype=np.float64),
                "sha256": np.array([hash_file(file) for file in task.inputs.files.values()]),
            }
            self.work.save(task.key, inputs, arrays)
        except (ValueError, OSError, MemoryError) as problem:
            return task, False, _why(problem)
        return task, False, None


def prepare_hcp(
    inputs: Sequence[Inputs],
    out: str | Path,
    steps: Steps,
    target: Target,
    *,
    participants: Any = None,
    exclude: Sequence[str] = (),
    n_procs: int = 1,
    work_dir: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = False,
) -> Prepared:
    """Compute maps of HCP subjects on fsaverage, and write them as cohort stores.

    Parameters
    ----------
    inputs : Inputs
        Files of the subjects, from `find_inputs`.
    out : path
        The store. ALFF writes one store per run, with the name of the run added.
    steps : Steps
        What to compute, and how.
    target : Target
        Mesh and hemispheres.
    participants : path or mapping, optional
        Table that selects and orders the subjects, and describes them.
    exclude : sequence of str, optional
        Subjects to leave out.
    n_procs : int, default=1
        Number of subjects to process in parallel, each in its own process.
    work_dir : path, optional
        Folder for finished maps until the stores are written. Default: OUT.work, which is removed
        if nothing failed.
    overwrite : bool, default=False
        Whether to replace existing stores.
    progress : bool
        Whether to show a progress bar.

    Raises
    ------
    CohortError
        If no map could be computed. If only some subjects fail, the result lists them.

    Examples
    --------
    >>> from icofactor.preprocessing import Steps, Target, find_inputs, prepare_hcp
    >>> inputs = find_inputs("HCP", "thickness")  # doctest: +SKIP
    >>> prepare_hcp(inputs, "thickness.store", Steps("thickness"), Target("HCPpipelines"))  # doctest: +SKIP
    """
    check_procs(n_procs)
    selection = Selection.of(participants, exclude)
    table = selection.participants
    chosen, failures = _chosen(inputs, selection)
    out = Path(out)
    tasks, stores, cortex, ways = _ready(chosen, out, steps, target, overwrite)
    settings = {
        "icofactor": __version__,
        "steps": asdict(steps),
        "projection": {side: way.digest() for side, way in ways.items()},
    }
    work = FinishedMaps(work_folder(out, work_dir), settings)
    job = _Job(steps, ways, cortex, work)
    done, reused = [], 0
    for task, kept, why in run_tasks(job, tasks, n_procs, progress):
        reused += kept
        if why is None:
            done.append(task)
        else:
            failures.append(Failure(task.inputs.subject, task.output, why))
    failures.sort(key=lambda failure: (failure.subject, failure.output))
    if not done:
        raise failed(failures, "no map could be computed")
    counts = _write(
        stores, tasks, {task.key for task in done}, job, target, table, failures, overwrite
    )
    if work_dir is None and not failures:
        work.remove([task.key for task in tasks])
    return Prepared({name: stores[name] for name in counts}, counts, tuple(failures), reused)


def plan_hcp(
    inputs: Sequence[Inputs],
    out: str | Path,
    steps: Steps,
    target: Target,
    *,
    participants: Any = None,
    exclude: Sequence[str] = (),
    overwrite: bool = False,
) -> HcpPlan:
    """What `prepare_hcp` would read and write; it raises what that would raise before its work."""
    chosen, failures = _chosen(inputs, Selection.of(participants, exclude))
    tasks, stores, _, _ = _ready(chosen, Path(out), steps, target, overwrite)
    failures += [
        Failure(task.inputs.subject, task.output, f"{literal(file)}: is missing")
        for task in tasks
        for file in task.inputs.missing.values()
    ]
    sizes = [[file.stat().st_size for file in task.inputs.files.values()] for task in tasks]
    return HcpPlan(len(chosen), sizes, stores, tuple(failures))


def _ready(
    chosen: Sequence[Inputs], out: Path, steps: Steps, target: Target, overwrite: bool
) -> tuple[list[_Task], dict[str, Path], Cortex, Mapping[str, Projection]]:
    """The maps to make, where they go, the cortex, and the way to the target; refuses what cannot
    be.
    """
    tasks = [task for one in chosen for task in _tasks(one, steps.kind)]
    stores = _places(out, list(dict.fromkeys(task.output for task in tasks)), steps.kind)
    for place in stores.values():
        check_new_store(place, overwrite)
    cortex = atlas_cortex(target.spheres) or file_cortex(
        file for one in chosen for file in one.files.values()
    )
    return (
        tasks,
        stores,
        cortex,
        projections(target.spheres, target.hemisphere, target.mesh, target.method, cortex),
    )


def _chosen(inputs: Sequence[Inputs], selection: Selection) -> tuple[list[Inputs], list[Failure]]:
    """The subjects to prepare, in order, and those of the table that have no folder."""
    by_name = {one.subject: one for one in inputs}
    choice, table = selection.choose(list(by_name)), selection.participants
    if choice.unknown:
        raise CohortError(
            "exclude",
            f"names {some(choice.unknown)}, but there are no maps of these subjects; correct or remove the names",
        )
    if not choice.chosen:
        what = (
            "no subjects remain"
            if table is None
            else f"none of its {len(table.ids)} subjects is in the tree"
        )
        raise CohortError("exclude" if table is None else "participants", what)
    why = "is in the table of participants, not in the tree"
    return [by_name[there] for _, there in choice.chosen], [
        Failure(name, "all", why) for name in choice.absent
    ]


def _tasks(inputs: Inputs, kind: str) -> list[_Task]:
    if kind != "alff":
        return [_Task(kind, inputs)]
    there = [_Task(run, Inputs(inputs.subject, {run: file})) for run, file in inputs.files.items()]
    return there + [
        _Task(run, Inputs(inputs.subject, {}, {run: file})) for run, file in inputs.missing.items()
    ]


def _places(out: Path, outputs: Sequence[str], kind: str) -> dict[str, Path]:
    if kind != "alff":
        return {kind: out}
    return {run: out.with_name(f"{out.stem}_{run}{out.suffix}") for run in outputs}


def check_new_store(place: Path, overwrite: bool) -> None:
    """Refuse before the work what would be refused after it."""
    if place.exists() and not (overwrite and is_store(place)):
        if is_store(place):
            raise ExistsError(place)
        raise ExistsError(place, "exists and is not a cohort store: name a new folder")
    if not place.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"the folder of {place} does not exist: create {place.absolute().parent} first"
        )


def check_procs(n_procs: int) -> None:
    """Refuse a number of processes that is none."""
    if n_procs < 1:
        raise ArgumentError("n_procs", n_procs, "1 or more")


def run_tasks(job: Any, tasks: Sequence[Any], n_procs: int, progress: bool) -> Iterator[Any]:
    """The answers of `job.run` to the tasks, as they come, from several processes."""
    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=min(n_procs, len(tasks)), return_as="generator_unordered", batch_size=1)
    answers = pool(delayed(job.run)(task) for task in tasks)
    try:
        with Stages(progress).stage(job.steps.kind) as show:
            for done, answer in enumerate(answers, 1):
                show(done / len(tasks))
                yield answer
    except KeyboardInterrupt:
        kept = f"interrupted; finished maps are kept in {job.work.folder}, and the same command resumes from there"
        raise KeyboardInterrupt(kept) from None
    except BrokenExecutor as problem:
        raise OSError(
            f"a process of {n_procs} was killed, probably because memory ran out: run again with a smaller n_procs; "
            f"finished maps are kept in {job.work.folder}"
        ) from problem


def _write(
    stores: Mapping[str, Path],
    tasks: Sequence[_Task],
    done: set[str],
    job: _Job,
    target: Target,
    table: Participants | None,
    failures: Sequence[Failure],
    overwrite: bool,
) -> dict[str, int]:
    """Write the stores from the kept maps; returns how many subjects each has."""
    counts = {}
    for output, place in stores.items():
        mine = [task for task in tasks if task.output == output and task.key in done]
        if not mine:
            continue
        provenance = {
            "source": "HCP",
            "output": output,
            "target": {
                "mesh": target.mesh,
                "hemisphere": target.hemisphere,
                "resampling": target.method,
            },
            "preprocessing": [
                *({**step, "icofactor": __version__} for step in job.steps.record()),
                {
                    "step": "resample",
                    "from": "fs_LR 32k",
                    "to": target.mesh,
                    "method": target.method,
                    "roi": job.cortex.origin,
                    "icofactor": __version__,
                },
            ],
            "inputs": [record for task in mine for record in _records(job.work, task)],
            "participants": None if table is None else dict(table.source),
            **_told(job.work, mine),
            "failed": [
                {**asdict(failure), "why": render(failure.why)}
                for failure in failures
                if failure.output in (output, "all")
            ],
        }
        create_store(place, _cohorts(mine, job, target, table, provenance), overwrite=overwrite)
        counts[output] = len(mine)
    return counts


def _cohorts(
    tasks: Sequence[_Task],
    job: _Job,
    target: Target,
    table: Participants | None,
    provenance: Mapping[str, Any],
) -> Iterator[Cohort]:
    """The cohort, some subjects at a time."""
    sites, mask = target_sites(job.ways)
    columns = _columns([task.inputs.subject for task in tasks], table)
    for first in range(0, len(tasks), _BLOCK):
        some = tasks[first : first + _BLOCK]
        yield Cohort(
            X=np.stack([finished_map(job.work, task)["map"] for task in some]),
            subjects=tuple(task.inputs.subject for task in some),
            sites=sites,
            mask=mask,
            hemisphere=target.hemisphere,
            modality=job.steps.kind,
            units=MODALITIES[job.steps.kind].units,
            participants={name: values[first : first + _BLOCK] for name, values in columns.items()},
            provenance=provenance,
        )


def _records(work: FinishedMaps, task: _Task) -> list[dict[str, Any]]:
    """The files a map was made from, for the provenance."""
    files, hashes = task.inputs.files.values(), finished_map(work, task)["sha256"].tolist()
    return [
        {
            "path": str(file),
            "bytes": file.stat().st_size,
            "sha256": found,
            "subject": task.inputs.subject,
        }
        for file, found in zip(files, hashes, strict=True)
    ]


def _told(work: FinishedMaps, tasks: Sequence[_Task]) -> dict[str, Any]:
    """What turned out while the maps were made: vertices filled, for subjects that have any, and
    the series' TRs.
    """
    filled, times = {}, set()
    for task in tasks:
        kept = finished_map(work, task)
        times.update(kept["tr"].tolist())
        if kept["n_filled"]:
            filled[task.inputs.subject] = int(kept["n_filled"])
    return {"filled": filled, **({"tr_s": sorted(times)} if times else {})}


def finished_map(work: FinishedMaps, task: Any) -> Mapping[str, NDArray[Any]]:
    """The arrays of a task that is done."""
    arrays = work.load(task.key, task.inputs.identity())
    if arrays is None:
        problem = (
            f"the map {literal(task.key)} was removed, or its input files changed, in the meantime"
        )
        raise CohortError(str(work.folder), problem)
    return arrays


def _columns(subjects: Sequence[str], table: Participants | None) -> dict[str, NDArray[Any]]:
    """Columns of the participants, one value per subject."""
    return {
        "participant_id": np.array(subjects),
        **({} if table is None else table.about(subjects)),
    }


def work_folder(out: Path, work_dir: str | Path | None) -> Path:
    """Where finished maps are kept."""
    return out.with_name(f"{out.name}.work") if work_dir is None else Path(work_dir)
