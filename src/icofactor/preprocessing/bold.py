"""ReHo and ALFF from the time series of fMRIPrep, on the surface they came on.

Steps, in this order: mean and straight line are regressed out, together with the named confounds
and without the volumes that moved more than allowed; these volumes are interpolated in time, as
zeros in their place would spread other frequencies over the band; series of ReHo are band-passed
and these volumes left out; runs are joined. There is no smoothing, no slice timing, and no
ICA-AROMA or CompCor unless their columns are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from icofactor import __version__
from icofactor.checks import OneOf, Whole, check_value
from icofactor.cohort.find import is_listed
from icofactor.cohort.find.bids import entities_of
from icofactor.cohort.find.files import find_files
from icofactor.cohort.find.layouts import BIDS
from icofactor.cohort.find.surfaces import mesh_of_files
from icofactor.cohort.meshes import Mesh
from icofactor.cohort.plan import missing_files
from icofactor.cohort.problems import Journal, ReadProblems
from icofactor.cohort.request import Request
from icofactor.cohort.simulate import MODALITIES
from icofactor.cohort.store.create import create_store, subjects_per_file
from icofactor.cohort.store.read import StoredCohort
from icofactor.cohort.subjects import Selection
from icofactor.errors import ArgumentError, CohortError, shown
from icofactor.io.guard import Unreadable, hash_file
from icofactor.io.json import read_json
from icofactor.io.maps import read_maps, reading
from icofactor.io.tables import MISSING, is_number, read_table
from icofactor.preprocessing._prepare_hcp import check_new_store
from icofactor.preprocessing.finished_maps import (
    FinishedMaps,
    MapTask,
    cohort_blocks,
    input_records,
    load_map,
    make_maps,
    work_folder,
)
from icofactor.preprocessing.hcp import MOSTLY
from icofactor.preprocessing.subject_maps import (
    FileRecord,
    HemisphereMap,
    Run,
    Steps,
    SubjectMap,
    filled,
    map_of_runs,
    naming,
    still_vertices,
)
from icofactor.preprocessing.temporal import Bools, Series, checked_tr, refuse_broken
from icofactor.sphere.names import SIDES, mesh_name_of

MOTION = tuple(f"{kind}_{axis}" for kind, axis in product(("trans", "rot"), "xyz"))
TISSUES = ("csf", "white_matter", "global_signal")
ENDINGS = ("", "_derivative1", "_power2", "_derivative1_power2")
# Named sets of fMRIPrep's confounds: motion, with signals of tissues, and with the derivatives and
# squares of these.
CONFOUNDS = {
    "6p": MOTION,
    "9p": (*MOTION, *TISSUES),
    "24p": tuple(name + ending for name, ending in product(MOTION, ENDINGS)),
    "36p": tuple(name + ending for name, ending in product((*MOTION, *TISSUES), ENDINGS)),
}
DISPLACEMENT = "framewise_displacement"
# Volumes, or degrees of freedom, that a run must have after cleaning.
LEAST_VOLUMES = 10
# Directions of the design that are shorter than this share of the longest come from rounding.
RANK_TOLERANCE = 1e-10
# Side of each file of a run; None if its name does not say it.
RunFiles = Mapping[str | None, Path]


@dataclass(frozen=True)
class Cleaning:
    """What to remove from series before ReHo and ALFF.

    Attributes
    ----------
    confounds : sequence of str
        Columns of fMRIPrep's confounds, or one of the sets 6p, 9p, 24p and 36p.
    max_fd : float or None
        Framewise displacement in mm above which a volume is censored; None keeps all.

    Examples
    --------
    >>> from icofactor.preprocessing import Cleaning
    >>> len(Cleaning(("24p",)).columns)
    24
    """

    confounds: tuple[str, ...] = ()
    max_fd: float | None = None

    def __post_init__(self) -> None:
        if self.max_fd is not None and not self.max_fd > 0:
            text = f"must be a displacement in mm, above 0; found {shown(self.max_fd)}"
            raise ArgumentError("max_fd", text)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, each once."""
        sets = [CONFOUNDS.get(name, (name,)) for name in self.confounds]
        return tuple(dict.fromkeys(column for names in sets for column in names))

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """Columns to read from fMRIPrep's table, if any."""
        return self.columns if self.max_fd is None else (*self.columns, DISPLACEMENT)

    def record(self) -> list[dict[str, Any]]:
        """Return the steps for the provenance."""
        columns = list(self.columns)
        steps: list[dict[str, Any]] = [{"step": "detrend"}]
        if columns:
            regression = {"step": "regress_confounds", "n_columns": len(columns)}
            steps = [{**regression, "columns": columns}]
        if self.max_fd is not None:
            steps.append({"step": "censor", "max_fd_mm": self.max_fd, "filled": "linear"})
        return steps


def is_bold_tree(folder: str | Path) -> bool:
    """Whether a folder holds sub-* folders, as fMRIPrep's output does."""
    return Path(folder).is_dir() and bool(BIDS.subject_folders(Path(folder)))


def prepare_bold(
    folder: str | Path,
    out: str | Path,
    steps: Steps,
    cleaning: Cleaning | None = None,
    *,
    hemisphere: str | None = None,
    target: str | None = None,
    entities: Mapping[str, str] | None = None,
    participants: Any = None,
    exclude: Sequence[str] = (),
    n_procs: int = 1,
    work_dir: str | Path | None = None,
    overwrite: bool = False,
    progress: bool = False,
    dry_run: bool = False,
) -> StoredCohort | str:
    """Compute ReHo or ALFF from the series of fMRIPrep, and write a cohort store on their mesh.

    Parameters
    ----------
    folder : path
        Output of fMRIPrep, with sub-* folders.
    out : path
        The store.
    steps : Steps
        Kind ("reho" or "alff"), band and other settings. Without `tr`, RepetitionTime of the
        sidecar is used.
    cleaning : Cleaning, optional
        Confounds and motion. None removes only the mean and a linear trend.
    hemisphere, target, entities
        Which files to read, as in `load_cohort`. ReHo joins the runs of a subject; ALFF uses one
        run.
    participants, exclude
        Which subjects to read, as in `load_cohort`.
    n_procs, work_dir, overwrite, progress
        As in `prepare_hcp`.
    dry_run : bool, default=False
        Whether only to describe what would be read.

    Returns
    -------
    StoredCohort, or str with `dry_run`

    Examples
    --------
    >>> from icofactor.preprocessing import Cleaning, Steps, prepare_bold
    >>> cleaning = Cleaning(("24p",), max_fd=0.5)
    >>> prepare_bold("fmriprep", "reho.store", Steps("reho"), cleaning)  # doctest: +SKIP
    """
    check_value("kind", steps.kind, OneOf(("reho", "alff")))
    check_value("n_procs", n_procs, Whole(1))
    out = Path(out)
    check_new_store(out, overwrite)
    cleaning = cleaning or Cleaning()
    root = Path(folder)
    request = Request(hemisphere, "bold", target=target, entities=entities or {})
    problems = ReadProblems()
    files = find_files(root, request, problems, Journal())
    problems.check()
    mesh = mesh_of_files(files)
    selection = Selection.of(participants, exclude)
    runs_of = _select_runs(files, selection, steps)
    if not runs_of:
        raise CohortError(root, "no subjects remain")
    if dry_run:
        n_files = sum(len(run) for runs in runs_of.values() for run in runs)
        subjects = f"{n_files} files of {len(runs_of)} subjects"
        return f"Would read {subjects} and write {steps.kind} to {out}."
    tasks = [MapTask(name, "bold", runs, _all_files(runs)) for name, runs in runs_of.items()]
    settings = {"icofactor": __version__, "steps": asdict(steps), "cleaning": asdict(cleaning)}
    finished = FinishedMaps(work_folder(out, work_dir), settings)
    make = partial(subject_map, mesh=mesh, steps=steps, cleaning=cleaning)
    outcomes = make_maps(make, tasks, finished, n_procs, steps.kind, progress)
    # All problems are reported at once, in the order of the subjects.
    for outcome in sorted(outcomes, key=lambda outcome: tasks.index(outcome.task)):
        for path, problem in outcome.problems:
            problems.add(path, problem)
    if all(outcome.problems for outcome in outcomes):
        # No map is left from which a next run could resume.
        finished.remove([])
    problems.check()
    store = _write(out, tasks, finished, mesh, steps, cleaning, selection, overwrite)
    if work_dir is None:
        finished.remove([task.key for task in tasks])
    return store


def _select_runs(
    files: pd.DataFrame,
    selection: Selection,
    steps: Steps,
) -> dict[str, list[RunFiles]]:
    """Return subject → the files of its runs, for the subjects to prepare, in order."""
    runs_of: dict[str, dict[str, dict[str | None, Path]]] = {}
    # A size below 0 stands for a file that should exist and does not.
    for file in files[files["size"] >= 0].itertuples(index=False):
        runs = runs_of.setdefault(file.subject, {})
        runs.setdefault(_run_name(file.path), {})[file.hemisphere] = file.path
    problems = ReadProblems()
    missing = missing_files(files)
    subjects = selection.select_files(list(runs_of), missing, {}, problems, Journal())
    for name, subject in subjects:
        if steps.kind == "alff" and len(runs_of[subject]) > 1:
            text = (
                f"has {len(runs_of[subject])} runs ({', '.join(runs_of[subject])}); choose one "
                "with --entities (entities=...)"
            )
            problems.add(f"subject {name}", text)
    problems.check()
    return {name: list(runs_of[subject].values()) for name, subject in subjects}


def _run_name(path: Path) -> str:
    """Return what tells a run of a subject from the others."""
    entities = entities_of(path.name)
    return "_".join(
        f"{key}-{value}" for key, value in entities.items() if key not in ("sub", "hemi", "suffix")
    )


def _all_files(runs: Sequence[RunFiles]) -> tuple[Path, ...]:
    """Return all files that a map depends on: series, and what lies beside them."""
    series = [file for run in runs for file in run.values()]
    beside = [path for file in series for path in (*_sidecars(file), *_confound_tables(file))]
    return tuple(path for path in dict.fromkeys((*series, *beside)) if path.is_file())


def subject_map(
    runs: Sequence[RunFiles], mesh: Any, steps: Steps, cleaning: Cleaning
) -> SubjectMap:
    """Return the map of one subject on the mesh of its series."""
    cleaned: dict[str, list[Run]] = {}
    records = []
    for files in runs:
        records += _read_run(files, mesh, steps, cleaning, cleaned)
    hemispheres = {}
    for side, side_runs in cleaned.items():
        n = len(side_runs[0].series)
        faces = _faces(mesh, side, n) if steps.kind == "reho" else None
        # The medial wall is where series do not vary.
        hemispheres[side] = map_of_runs(side_runs, faces, np.ones(n, dtype=bool), steps)
    return SubjectMap(hemispheres, records)


def _read_run(
    files: RunFiles,
    mesh: Any,
    steps: Steps,
    cleaning: Cleaning,
    cleaned: dict[str, list[Run]],
) -> list[FileRecord]:
    """Clean the series of a run, add them to those of their side, and return their files."""
    records = []
    # Confounds and sidecar lie beside the first file, and hold for both hemispheres.
    file = next(iter(files.values()))
    design = None
    for side_of_name, path in files.items():
        maps = read_maps(path)
        for side_of_file, volumes in maps.parts.items():
            side = side_of_file or side_of_name
            if side is None:
                raise CohortError(path, "does not name its hemisphere")
            _check_volumes(path, side, volumes, mesh)
            if design is None:
                design = Design.of_run(file, cleaning, len(volumes))
                tr = _repetition_time(file, maps.step, steps)
            if len(volumes) != len(design.regressors):
                have = "its confounds have" if cleaning.needed_columns else f"{file.name} has"
                raise CohortError(
                    path,
                    f"has {len(volumes)} volumes, but {have} {len(design.regressors)}: run "
                    "fMRIPrep again",
                )
            run = Run(path, design.clean(volumes), tr, design.is_counted)
            cleaned.setdefault(side, []).append(run)
        records.append(FileRecord(str(path), hash_file(path), maps.reader))
    return records


def _check_volumes(path: Path, side: str, volumes: Series, mesh: Any) -> None:
    """Refuse series of another mesh, and NaN among numbers."""
    sizes = Mesh.read(mesh).wanted(side)
    n = volumes.shape[1]
    if sizes and n not in sizes:
        raise CohortError(path, f"has {n} vertices; mesh {mesh} has {sizes[0]}")
    is_finite = np.isfinite(volumes)
    is_broken = np.asarray(is_finite.any(axis=0) & ~is_finite.all(axis=0))
    with naming(path):
        refuse_broken(volumes.T, is_broken)


def _faces(mesh: Any, side: str, n: int) -> NDArray[Any]:
    """Return the triangles of one hemisphere."""
    triangles = Mesh.read(mesh).sites({side: n}).triangles
    if triangles is None:
        raise CohortError("mesh", "has no triangles, which ReHo needs")
    return triangles


@dataclass(frozen=True, eq=False)
class Design:
    """What is removed from the series of a run.

    Attributes
    ----------
    regressors : (n_volumes, n_regressors)
    is_counted : (n_volumes,) False for censored volumes
    """

    regressors: NDArray[np.float64]
    is_counted: Bools

    @classmethod
    def of_run(cls, file: Path, cleaning: Cleaning, n_volumes: int) -> Design:
        """Return the design of a run: mean, line, confounds, and a spike per censored volume."""
        if not cleaning.needed_columns:
            return cls(_line(n_volumes), np.ones(n_volumes, dtype=bool))
        tables = _confound_tables(file)
        path = next((table for table in tables if is_listed(table)), None)
        if path is None:
            text = "no such file; --confounds (confounds=...) and --max-fd (max_fd=...) need it"
            raise CohortError(tables[0], text)
        with reading(path, "table of confounds"):
            return cls._of_table(path, cleaning)

    @classmethod
    def _of_table(cls, path: Path, cleaning: Cleaning) -> Design:
        table, _ = read_table(path)
        absent = [name for name in cleaning.needed_columns if name not in table]
        if absent:
            raise Unreadable(f"has no column {', '.join(absent[:10])}")
        confounds = [_numbers(name, table[name]) for name in cleaning.columns]
        n = len(next(iter(table.values())))
        is_counted = np.ones(n, dtype=bool)
        if cleaning.max_fd is not None:
            is_counted = _numbers(DISPLACEMENT, table[DISPLACEMENT]) <= cleaning.max_fd
        spikes = np.eye(n)[:, ~is_counted]
        regressors = np.column_stack([_line(n), *confounds, spikes])
        n_counted = int(is_counted.sum())
        n_regressors = regressors.shape[1]
        if n_counted < n // 2 or n - n_regressors < LEAST_VOLUMES:
            raise Unreadable(
                f"keeps {n_counted} of {n} volumes for {n_regressors} regressors; at least half of "
                f"the volumes, and {LEAST_VOLUMES} more than regressors, are needed: exclude the "
                "subject, or change --max-fd (max_fd=...) or --confounds (confounds=...)"
            )
        # Confounds have very different units, which would hide short directions in the SVD.
        scale = np.abs(regressors).max(axis=0)
        return cls(regressors / np.where(scale > 0, scale, 1), is_counted)

    def clean(self, volumes: Series) -> NDArray[np.float64]:
        """Return vertices × volumes less what the regressors explain; NaN stays."""
        values = np.asarray(volumes, dtype=np.float64)
        # Derivatives and squares may be nearly collinear, so directions from rounding are left out.
        basis, lengths, _ = np.linalg.svd(self.regressors, full_matrices=False)
        basis = basis[:, lengths > RANK_TOLERANCE * lengths[0]]
        residuals = values - basis @ (basis.T @ values)
        # Rounding would leave a little of series that do not vary.
        residuals[:, still_vertices(values.T)] = 0
        return interpolate(residuals, self.is_counted).T


def _line(n_volumes: int) -> NDArray[np.float64]:
    """Return the columns of a mean and a straight line."""
    return np.column_stack([np.ones(n_volumes), np.linspace(-1, 1, n_volumes)])


def interpolate(values: NDArray[np.float64], is_counted: Bools) -> NDArray[np.float64]:
    """Put volumes that do not count on the line between their neighbours in time, in place."""
    counted = np.flatnonzero(is_counted)
    censored = np.flatnonzero(~is_counted)
    after = np.searchsorted(counted, censored)
    low = counted[np.maximum(after - 1, 0)]
    high = counted[np.minimum(after, len(counted) - 1)]
    share = np.divide(censored - low, high - low, out=np.zeros(len(censored)), where=high > low)
    share = share[:, None]
    values[censored] = (1 - share) * values[low] + share * values[high]
    return values


def _confound_tables(file: Path) -> list[Path]:
    """Return where fMRIPrep's confounds of a series may lie."""
    not_of_table = ("hemi", "space", "den", "desc", "suffix", "res")
    entities = entities_of(file.name)
    start = "_".join(f"{key}-{entities[key]}" for key in entities if key not in not_of_table)
    kinds = ("timeseries", "regressors")
    return [file.with_name(f"{start}_desc-confounds_{kind}.tsv") for kind in kinds]


def _sidecars(file: Path) -> list[Path]:
    """Return where the TR of a series may be; some versions write it for the left side alone."""
    stem = file.name.split("_bold.")[0]
    stems = (stem, stem.replace("_hemi-R", "_hemi-L"))
    return [file.with_name(f"{name}_bold.json") for name in stems]


def _numbers(name: str, cells: list[str]) -> NDArray[np.float64]:
    """Return a column of confounds; n/a, as derivatives have it in the first row, is 0."""
    values = np.zeros(len(cells))
    for row, cell in enumerate(cells):
        if cell.lower() in MISSING:
            continue
        if not is_number(cell) or not np.isfinite(float(cell)):
            text = f"column {name} contains {cell[:40]!r}, which is not a finite number"
            raise Unreadable(text)
        values[row] = float(cell)
    return values


def _repetition_time(file: Path, step: float | None, steps: Steps) -> float:
    """Return the seconds between volumes of the settings, of the sidecar, or of the file itself."""
    if steps.tr is not None:
        return checked_tr(steps.tr)
    # GIFTI has no reliable field for it, so the sidecar counts before the file itself.
    for sidecar in _sidecars(file):
        if is_listed(sidecar):
            with reading(sidecar, "sidecar"):
                content = read_json(sidecar)
                tr = content.get("RepetitionTime") if isinstance(content, dict) else None
                if isinstance(tr, int | float):
                    return checked_tr(tr)
    if step is None:
        text = "has no sidecar (_bold.json) with RepetitionTime: pass --tr (tr=...)"
        raise CohortError(file, text)
    return checked_tr(step)


def _write(
    out: Path,
    tasks: Sequence[MapTask],
    finished: FinishedMaps,
    mesh: Any,
    steps: Steps,
    cleaning: Cleaning,
    selection: Selection,
    overwrite: bool,
) -> StoredCohort:
    """Write the store. What most subjects lack is not cortex; what single ones lack is filled."""
    maps = [load_map(finished, task) for task in tasks]
    sides = [side for side in SIDES if all(side in subject.hemispheres for subject in maps)]
    widths = {side: len(maps[0].hemispheres[side].values) for side in sides}
    problems = ReadProblems()
    for task, subject in zip(tasks, maps, strict=True):
        if any(len(subject.hemispheres[side].values) != widths[side] for side in sides):
            problems.add(f"subject {task.subject}", "is on a different mesh from the first")
    problems.check()
    # fMRIPrep says nothing of the medial wall, so the cortex is where most subjects have data.
    cortex = {}
    faces = {}
    for side in sides:
        is_used = [subject.hemispheres[side].is_used for subject in maps]
        cortex[side] = np.mean(is_used, axis=0) >= MOSTLY
        faces[side] = _faces(mesh, side, widths[side])
    rows = {}
    for task, subject in zip(tasks, maps, strict=True):
        try:
            rows[task.key] = np.concatenate(
                [
                    _on_cortex(subject.hemispheres[side], cortex[side], faces[side], side, steps)
                    for side in sides
                ]
            )
        except ArgumentError as error:
            problems.add(f"subject {task.subject}", str(error.message))
    problems.check()
    sites = Mesh.read(mesh).sites(widths)
    names = [task.subject for task in tasks]
    table = selection.participants
    blocks = cohort_blocks(
        tasks,
        lambda task: rows[task.key],
        {} if table is None else table.about(names),
        sites=sites,
        mask=np.concatenate([cortex[side] for side in sides]),
        hemisphere="both" if len(sides) == 2 else sides[0],
        modality=steps.kind,
        units=MODALITIES[steps.kind].units,
        provenance={
            "source": "fMRIPrep",
            "preprocessing": [
                {**step, "icofactor": __version__}
                for step in (*cleaning.record(), *steps.record(mesh_name_of(sites)))
            ],
            "inputs": [record for task in tasks for record in input_records(finished, task)],
        },
    )
    n_together = subjects_per_file(len(tasks))
    return create_store(out, blocks, overwrite=overwrite, chunk_subjects=n_together)


def _on_cortex(
    hemisphere: HemisphereMap, cortex: Bools, faces: NDArray[Any], side: str, steps: Steps
) -> NDArray[np.float32]:
    """Return a map with data at the whole cortex, and 0 elsewhere."""
    values, _ = filled(hemisphere, cortex, faces, side, "have no data", steps.max_missing)
    return np.where(cortex, values, 0).astype(np.float32)
