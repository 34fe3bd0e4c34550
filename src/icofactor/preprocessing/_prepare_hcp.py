"""From an HCP tree to cohort stores; subjects that fail are listed, and the others are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor import __version__
from icofactor.checks import Whole, check_value
from icofactor.cohort.cohort import Hemisphere
from icofactor.cohort.problems import some
from icofactor.cohort.simulate import MODALITIES
from icofactor.cohort.store.create import check_store_target, create_store, subjects_per_file
from icofactor.cohort.subjects import Participants, Selection
from icofactor.errors import CohortError, plural
from icofactor.preprocessing.finished_maps import (
    FinishedMaps,
    MapTask,
    cohort_blocks,
    input_records,
    load_map,
    make_maps,
    work_folder,
)
from icofactor.preprocessing.hcp import (
    Cortex,
    Inputs,
    Projection,
    atlas_cortex,
    file_cortex,
    projections,
    subject_map,
    target_sites,
)
from icofactor.preprocessing.subject_maps import Steps

# Failures that are listed one by one.
MOST_LISTED = 20


@dataclass(frozen=True)
class Failure:
    """A map that could not be made: whose, which one, and why."""

    subject: str
    output: str
    why: str


@dataclass(frozen=True)
class Prepared:
    """The stores that were written.

    Attributes
    ----------
    stores : name ("thickness", "reho", or the run for ALFF) → cohort store
    subjects : the same names → number of subjects in it
    failures : maps that could not be made
    reused : number of maps that an earlier, interrupted run had made
    """

    stores: Mapping[str, Path]
    subjects: Mapping[str, int]
    failures: tuple[Failure, ...]
    reused: int

    def summary(self) -> str:
        """Return the stores as text; `failure_lines` lists the failures."""
        lines = [
            f"{path}: {name} of {plural(self.subjects[name], 'subject')}"
            for name, path in self.stores.items()
        ]
        if self.reused:
            lines.append(f"{self.reused} maps were reused from an earlier run")
        return "\n".join(lines)


def failed(failures: Sequence[Failure], problem: str) -> CohortError:
    """Return an error that names every map that could not be made."""
    listed = [(f"{failure.subject} ({failure.output})", failure.why) for failure in failures]
    return CohortError.of([("prepare", problem), *listed])


def failure_lines(failures: Sequence[Failure]) -> list[str]:
    """Return one line per failure, for the first twenty."""
    if not failures:
        return []
    lines = [f"{len(failures)} failed:"]
    for failure in failures[:MOST_LISTED]:
        lines.append(f"  {failure.subject} ({failure.output}): {failure.why}")
    if len(failures) > MOST_LISTED:
        lines.append(f"  ... and {len(failures) - MOST_LISTED} more")
    return lines


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
    """The files that would be read and written.

    Attributes
    ----------
    n_subjects : that are selected and have a folder
    sizes : for each map to be made the sizes of its files in bytes
    stores : name of the map → store
    failures : subjects that will fail because files are missing
    """

    n_subjects: int
    sizes: Sequence[Sequence[int]]
    stores: Mapping[str, Path]
    failures: tuple[Failure, ...]


@dataclass(frozen=True)
class _Work:
    """The maps to make, and how they get to the target."""

    tasks: list[MapTask]
    stores: Mapping[str, Path]
    failures: list[Failure]
    cortex: Cortex
    ways: Mapping[str, Projection]


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
    >>> steps = Steps("thickness")
    >>> prepare_hcp(inputs, "thickness.store", steps, Target("HCPpipelines"))  # doctest: +SKIP
    """
    check_value("n_procs", n_procs, Whole(1))
    out = Path(out)
    selection = Selection.of(participants, exclude)
    plan = _plan(inputs, selection, out, steps, target, overwrite)
    settings = {
        "icofactor": __version__,
        "steps": asdict(steps),
        "projection": {side: way.digest() for side, way in plan.ways.items()},
    }
    finished = FinishedMaps(work_folder(out, work_dir), settings)
    make = partial(subject_map, steps=steps, ways=plan.ways, regions=plan.cortex.regions)
    outcomes = make_maps(make, plan.tasks, finished, n_procs, steps.kind, progress)
    failures = list(plan.failures)
    failed_keys = set()
    for outcome in outcomes:
        if outcome.problems:
            task = outcome.task
            why = "; ".join(f"{path}: {problem}" for path, problem in outcome.problems)
            failures.append(Failure(task.subject, task.output, why))
            failed_keys.add(task.key)
    failures.sort(key=lambda failure: (failure.subject, failure.output))
    # A store of no subject would only hide the failures.
    if len(failed_keys) == len(plan.tasks):
        raise failed(failures, "no map could be computed")
    counts = {}
    for output, store in plan.stores.items():
        tasks = [
            task for task in plan.tasks if task.output == output and task.key not in failed_keys
        ]
        if tasks:
            about = {
                **_provenance(tasks, finished, steps, target, plan.cortex),
                "participants": None
                if selection.participants is None
                else dict(selection.participants.source),
                "failed": [asdict(f) for f in failures if f.output in (output, "all")],
            }
            _write(store, tasks, finished, plan, steps, target, selection, about, overwrite)
            counts[output] = len(tasks)
    # The user keeps a folder of the user, and a run after repairs needs the finished maps.
    if work_dir is None and not failures:
        finished.remove([task.key for task in plan.tasks])
    n_reused = sum(outcome.is_reused for outcome in outcomes)
    stores = {name: plan.stores[name] for name in counts}
    return Prepared(stores, counts, tuple(failures), n_reused)


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
    """Return what `prepare_hcp` would read and write, or raise what it would before its work."""
    selection = Selection.of(participants, exclude)
    plan = _plan(inputs, selection, Path(out), steps, target, overwrite)
    failures = list(plan.failures)
    for task in plan.tasks:
        for file in task.source.missing.values():
            failures.append(Failure(task.subject, task.output, f"{file}: is missing"))
    sizes = [[file.stat().st_size for file in task.files] for task in plan.tasks]
    n_subjects = len({task.subject for task in plan.tasks})
    return HcpPlan(n_subjects, sizes, plan.stores, tuple(failures))


def _plan(
    inputs: Sequence[Inputs],
    selection: Selection,
    out: Path,
    steps: Steps,
    target: Target,
    overwrite: bool,
) -> _Work:
    """Return the work, or raise an error about what cannot be prepared."""
    subjects, failures = _select(inputs, selection)
    tasks = []
    for subject in subjects:
        by_output = subject.each_run() if steps.kind == "alff" else {steps.kind: subject}
        for output, files in by_output.items():
            tasks.append(MapTask(subject.subject, output, files, tuple(files.files.values())))
    stores = {task.output: out for task in tasks}
    if steps.kind == "alff":
        stores = {run: out.with_name(f"{out.stem}_{run}{out.suffix}") for run in stores}
    # Before hours of work.
    for store in stores.values():
        check_new_store(store, overwrite)
    all_files = (file for task in tasks for file in task.files)
    cortex = atlas_cortex(target.spheres) or file_cortex(all_files)
    ways = projections(target.spheres, target.hemisphere, target.mesh, target.method, cortex)
    return _Work(tasks, stores, failures, cortex, ways)


def _select(inputs: Sequence[Inputs], selection: Selection) -> tuple[list[Inputs], list[Failure]]:
    """Return the subjects to prepare, in order, and those of the table that have no folder."""
    by_name = {subject.subject: subject for subject in inputs}
    choice = selection.choose(list(by_name))
    table = selection.participants
    problem = None
    if choice.unknown:
        problem = (
            f"names {some(choice.unknown)}, but there are no maps of these subjects; correct or "
            "remove the names"
        )
    elif not choice.chosen:
        problem = "leaves no subject of the tree"
    if problem is not None:
        is_of_table = table is not None and not choice.unknown
        raise CohortError("participants" if is_of_table else "exclude", problem)
    why = "is in the table of participants, not in the tree"
    failures = [Failure(name, "all", why) for name in choice.absent]
    return [by_name[folder] for _, folder in choice.chosen], failures


def check_new_store(store: Path, overwrite: bool) -> None:
    """Refuse before the work what would be refused after it."""
    check_store_target(store, overwrite)
    folder = store.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"the folder of {store} does not exist: create {folder} first")


def _provenance(
    tasks: Sequence[MapTask],
    finished: FinishedMaps,
    steps: Steps,
    target: Target,
    cortex: Cortex,
) -> dict[str, Any]:
    """Return how the maps of a store were made, and from which files."""
    times: set[float] = set()
    n_filled = {}
    for task in tasks:
        subject = load_map(finished, task)
        times.update(subject.times)
        if subject.n_filled:
            n_filled[task.subject] = subject.n_filled
    resample = {
        "step": "resample",
        "from": "fs_LR 32k",
        "to": target.mesh,
        "method": target.method,
        "roi": cortex.origin,
    }
    mesh = {"mesh": target.mesh, "hemisphere": target.hemisphere, "resampling": target.method}
    return {
        "source": "HCP",
        "output": tasks[0].output,
        "target": mesh,
        "preprocessing": [
            {**step, "icofactor": __version__} for step in (*steps.record(), resample)
        ],
        "inputs": [record for task in tasks for record in input_records(finished, task)],
        "filled": n_filled,
        **({"tr_s": sorted(times)} if times else {}),
    }


def _write(
    store: Path,
    tasks: Sequence[MapTask],
    finished: FinishedMaps,
    plan: _Work,
    steps: Steps,
    target: Target,
    selection: Selection,
    provenance: Mapping[str, Any],
    overwrite: bool,
) -> None:
    """Write a store from finished maps."""

    def row_of(task: MapTask) -> NDArray[np.float32]:
        hemispheres = load_map(finished, task).hemispheres
        return np.concatenate([hemispheres[side].values for side in plan.ways])

    sites, mask = target_sites(plan.ways)
    blocks = cohort_blocks(
        tasks,
        row_of,
        _columns([task.subject for task in tasks], selection.participants),
        sites=sites,
        mask=mask,
        hemisphere=target.hemisphere,
        modality=steps.kind,
        units=MODALITIES[steps.kind].units,
        provenance=provenance,
    )
    n_together = subjects_per_file(len(tasks))
    create_store(store, blocks, overwrite=overwrite, chunk_subjects=n_together)


def _columns(subjects: Sequence[str], table: Participants | None) -> dict[str, NDArray[Any]]:
    """Return columns of the participants, one value per subject."""
    columns = {"participant_id": np.array(subjects)}
    return columns if table is None else {**columns, **table.about(subjects)}
