"""ReHo and ALFF from fMRIPrep's time series, on the surface they came on: no spheres, nothing
resampled.

Done, in this order: mean and straight line are regressed out, together with the confounds that are
named and without the volumes that moved more than allowed; these are interpolated in time, as zeros
in their place would spread other frequencies over the band; ReHo's series are band-passed and these
volumes left out; runs are joined. Not done: smoothing, slice timing, ICA-AROMA or CompCor unless
their columns are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor import __version__
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.find import is_listed
from icofactor.cohort.find.bids import bids_subjects, entities_of
from icofactor.cohort.find.files import find_files
from icofactor.cohort.find.surfaces import mesh_of_files
from icofactor.cohort.meshes import Mesh
from icofactor.cohort.plan import missing_files
from icofactor.cohort.problems import Journal, ReadProblems
from icofactor.cohort.request import Request
from icofactor.cohort.store.create import save_store
from icofactor.cohort.store.read import StoredCohort
from icofactor.cohort.subjects import Selection
from icofactor.errors import ArgumentError, CohortError, literal
from icofactor.io.guard import Unreadable, hash_file
from icofactor.io.json import read_json
from icofactor.io.maps import read_maps, reading
from icofactor.io.tables import MISSING, is_number, read_table
from icofactor.preprocessing._prepare_hcp import (
    check_new_store,
    check_procs,
    finished_map,
    map_key,
    run_tasks,
    work_folder,
)
from icofactor.preprocessing.finished_maps import FinishedMaps
from icofactor.preprocessing.hcp import MOSTLY, Inputs, naming
from icofactor.preprocessing.hcp_subject import (
    Steps,
    check_missing,
    fill_from_neighbours,
    still_vertices,
)
from icofactor.preprocessing.reho import reho
from icofactor.preprocessing.temporal import (
    alff,
    bandpass,
    checked_tr,
    concatenate_runs,
    refuse_broken,
)
from icofactor.sphere.names import SIDES, mesh_name_of

_MOTION = tuple(f"{kind}_{axis}" for kind in ("trans", "rot") for axis in "xyz")
_TISSUES = ("csf", "white_matter", "global_signal")
_expanded = lambda names: tuple(
    f"{n}{end}" for n in names for end in ("", "_derivative1", "_power2", "_derivative1_power2")
)
CONFOUNDS = {
    "6p": _MOTION,
    "9p": (*_MOTION, *_TISSUES),
    "24p": _expanded(_MOTION),
    "36p": _expanded((*_MOTION, *_TISSUES)),
}
"""Named sets of fMRIPrep's confounds: motion, with tissues' signals, and with derivatives and
squares.
"""
_FD = "framewise_displacement"
_RECORD = ("path", "sha256", "reader")
_LEAST = 10  # volumes, or degrees of freedom, that must be left
Bools = NDArray[np.bool_]


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
            raise ArgumentError("max_fd", self.max_fd, "a displacement in mm, above 0")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(
            dict.fromkeys(one for name in self.confounds for one in CONFOUNDS.get(name, (name,)))
        )

    @property
    def of_table(self) -> bool:
        """Whether fMRIPrep's table of confounds is needed."""
        return bool(self.columns) or self.max_fd is not None

    def record(self) -> list[dict[str, Any]]:
        """Steps for the provenance."""
        columns = list(self.columns)
        steps: list[dict[str, Any]] = [
            {"step": "regress_confounds", "n_columns": len(columns), "columns": columns}
        ]
        if not columns:
            steps = [{"step": "detrend"}]
        if self.max_fd is not None:
            steps.append({"step": "censor", "max_fd_mm": self.max_fd, "filled": "linear"})
        return steps


def is_bold_tree(folder: str | Path) -> bool:
    """Whether a folder holds sub-* folders, as fMRIPrep's output does."""
    return Path(folder).is_dir() and bool(bids_subjects(Path(folder)))


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
    """Compute ReHo or ALFF from the series of fMRIPrep, and write a cohort store on the mesh of the
    series.

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
    >>> prepare_bold("fmriprep", "reho.store", Steps("reho"), Cleaning(("24p",), max_fd=0.5))  # doctest: +SKIP
    """
    if steps.kind not in ("reho", "alff"):
        raise ArgumentError("kind", steps.kind, "'reho' or 'alff'")
    cleaning = cleaning or Cleaning()
    check_procs(n_procs)
    check_new_store(Path(out), overwrite)
    root, problems, journal = Path(folder), ReadProblems(), Journal()
    request = Request(hemisphere, "bold", target=target, entities=entities or {})
    files = find_files(root, request, problems, journal)
    problems.check()
    mesh = mesh_of_files(files)
    missing = missing_files(files)
    people: dict[str, dict[str, dict[str | None, Path]]] = {}
    for file in files[files["size"] >= 0].itertuples(index=False):
        runs = people.setdefault(file.subject, {})
        runs.setdefault(_run_of(file.path), {})[file.hemisphere] = file.path
    selection = Selection.of(participants, exclude)
    chosen = selection.select_files(list(people), missing, {}, problems, journal)
    for name, there in chosen:
        if steps.kind == "alff" and len(people[there]) > 1:
            listed = literal(", ".join(people[there]))
            problems.add(
                f"subject {name}",
                f"has {len(people[there])} runs ({listed}); choose with {{entities}}",
            )
    problems.check()
    if not chosen:
        raise CohortError(root, "no subjects remain")
    n_files = sum(len(files) for _, there in chosen for files in people[there].values())
    if dry_run:
        return (
            f"Would read {n_files} files of {len(chosen)} subjects and write {steps.kind} to {out}."
        )
    settings = {"icofactor": __version__, "steps": asdict(steps), "cleaning": asdict(cleaning)}
    work = FinishedMaps(work_folder(Path(out), work_dir), settings)
    job = _Job(steps, cleaning, mesh, work)
    tasks = [_Task(name, list(people[there].values())) for name, there in chosen]
    wrong = {task.subject: why for task, why in run_tasks(job, tasks, n_procs, progress) if why}
    for task in tasks:
        for where, what in wrong.get(task.subject, ()):
            problems.add(where, what)
    if len(wrong) == len(tasks):  # nothing to go on from
        work.remove([])
    problems.check()
    cohort = _cohort(
        tasks, [_Made.kept(work, task) for task in tasks], mesh, steps, cleaning, selection
    )
    store = save_store(cohort, out, overwrite=overwrite)
    if work_dir is None:
        work.remove([task.key for task in tasks])
    return store


def _run_of(path: Path) -> str:
    """What tells one run of a subject from another."""
    told = entities_of(path.name)
    return "_".join(
        f"{key}-{value}" for key, value in told.items() if key not in ("sub", "hemi", "suffix")
    )


@dataclass(frozen=True)
class _Task:
    """A subject and the files of its runs, by hemisphere."""

    subject: str
    runs: Sequence[Mapping[str | None, Path]]

    @property
    def key(self) -> str:
        return map_key(self.subject, "bold")

    @property
    def inputs(self) -> Inputs:
        """All that the map depends on: series, and what lies beside them."""
        files = [file for run in self.runs for file in run.values()]
        beside = dict.fromkeys(
            other for file in files for other in (*_sidecars(file), *_confound_tables(file))
        )
        return Inputs(
            self.subject, {file.name: file for file in (*files, *beside) if file.is_file()}
        )


@dataclass(frozen=True)
class _Job:
    """Everything that the subjects have in common; goes to the processes once each."""

    steps: Steps
    cleaning: Cleaning
    mesh: Any
    work: FinishedMaps = field(repr=False)

    def run(self, task: _Task) -> tuple[_Task, list[tuple[str, str]]]:
        """Make and keep a subject's maps, unless they are kept already; the task, and where it
        failed and why.
        """
        try:
            inputs = task.inputs.identity()
            if self.work.load(task.key, inputs) is None:
                made = _subject(task.runs, self.mesh, self.steps, self.cleaning)
                self.work.save(task.key, inputs, made.arrays())
        except CohortError as error:
            return task, list(error.problems)
        except ArgumentError as error:
            return task, [(f"subject {task.subject}", str(error))]
        except (OSError, MemoryError) as error:
            return task, [(f"subject {task.subject}", literal(str(error) or type(error).__name__))]
        return task, []


@dataclass(frozen=True)
class _Made:
    maps: Mapping[str, NDArray[Any]]
    have: Mapping[str, Bools]
    records: Sequence[Mapping[str, Any]]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As the work folder keeps them."""
        named = {
            f"{kind}_{side}": one
            for kind in ("maps", "have")
            for side, one in getattr(self, kind).items()
        }
        return named | {
            name: np.array([record[name] for record in self.records]) for name in _RECORD
        }

    @classmethod
    def kept(cls, work: FinishedMaps, task: _Task) -> _Made:
        arrays = finished_map(work, task)
        of = lambda kind: {
            side: arrays[f"{kind}_{side}"] for side in SIDES if f"{kind}_{side}" in arrays
        }
        rows = zip(*(arrays[name].tolist() for name in _RECORD), strict=True)
        return cls(of("maps"), of("have"), [dict(zip(_RECORD, row, strict=True)) for row in rows])


def _subject(
    runs: Sequence[Mapping[str | None, Path]], mesh: Any, steps: Steps, cleaning: Cleaning
) -> _Made:
    """One subject's map of each hemisphere, and where it has data."""
    series: dict[str, list[NDArray[Any]]] = {}
    times: list[float] = []
    kept: list[Bools] = []
    records = []
    for files in runs:
        one = next(iter(files.values()))
        design: NDArray[np.float64] | None = None
        for side, path in files.items():
            maps = read_maps(path)
            for told, part in maps.parts.items():
                where = told or side
                if where is None:
                    raise CohortError(path, "does not name its hemisphere")
                sizes, finite = Mesh.read(mesh).wanted(where), np.isfinite(part)
                if sizes and part.shape[1] not in sizes:
                    raise CohortError(
                        path, f"has {part.shape[1]} vertices; mesh {mesh} has {sizes[0]}"
                    )
                with naming(path):
                    refuse_broken(part.T, (finite.any(axis=0) & ~finite.all(axis=0)))
                if design is None:
                    design, keep = _design(one, cleaning, len(part))
                if len(part) != len(design):
                    what = "its confounds have" if cleaning.of_table else f"{literal(one.name)} has"
                    raise CohortError(
                        path,
                        f"has {len(part)} volumes, but {what} {len(design)}: run fMRIPrep again",
                    )
                series.setdefault(where, []).append(_clean(part, design, keep).T)
            records.append({"path": str(path), "sha256": hash_file(path), "reader": maps.reader})
        times.append(_tr(one, maps.step, steps))
        kept.append(keep)
    last = next(iter(runs[-1].values()))
    have = {
        side: ~np.logical_or.reduce([still_vertices(run) for run in there])
        for side, there in series.items()
    }
    made = {}
    for side, there in series.items():
        with naming(last):
            if steps.kind == "alff":
                band = steps.low, steps.high, steps.detrend, steps.normalize
                made[side] = alff(there[0], times[0], *band, mask=have[side])
            else:
                faces = _faces(mesh, side, len(there[0]))
                passed = [
                    bandpass(
                        run, tr, steps.low, steps.high, steps.filter, steps.order, mask=have[side]
                    )[:, keep]
                    for run, tr, keep in zip(there, times, kept, strict=True)
                ]
                joined = concatenate_runs(passed, mask=have[side])
                made[side] = reho(joined, faces, steps.rings, steps.tie_correction, mask=have[side])
    return _Made(made, have, records)


def _faces(mesh: Any, side: str, n: int) -> NDArray[Any]:
    """Triangles of one hemisphere."""
    triangles = Mesh.read(mesh).sites({side: n}).triangles
    if triangles is None:
        raise CohortError("mesh", "has no triangles, which ReHo needs")
    return triangles


def _clean(part: NDArray[Any], design: NDArray[np.float64], keep: Bools) -> NDArray[np.float64]:
    """Volumes × vertices less what the design explains of each vertex; where a series is not finite
    it stays so.
    """
    values = np.asarray(part, dtype=np.float64)
    basis = np.linalg.svd(design, full_matrices=False)
    columns = basis[0][:, basis[1] > 1e-10 * basis[1][0]]
    left = values - columns @ (columns.T @ values)
    left[:, still_vertices(values.T)] = 0
    return interpolate(left, keep)


def interpolate(values: NDArray[np.float64], keep: Bools) -> NDArray[np.float64]:
    """The same volumes × vertices, in place: volumes that do not count on the line between those
    beside them.
    """
    good, gone = np.flatnonzero(keep), np.flatnonzero(~keep)
    after = np.searchsorted(good, gone)
    low, high = good[np.maximum(after - 1, 0)], good[np.minimum(after, len(good) - 1)]
    share = np.divide(gone - low, high - low, out=np.zeros(len(gone)), where=high > low)[:, None]
    values[gone] = (1 - share) * values[low] + share * values[high]
    return values


def _design(file: Path, cleaning: Cleaning, n: int) -> tuple[NDArray[np.float64], Bools]:
    """The regressors of a run of `n` volumes, and the volumes that count."""
    line = [np.ones(n), np.linspace(-1, 1, n)]
    if not cleaning.of_table:
        return np.column_stack(line), np.ones(n, dtype=bool)
    tables = _confound_tables(file)
    path = next((table for table in tables if is_listed(table)), None)
    if path is None:
        raise CohortError(tables[0], "no such file; {confounds} and {max_fd} need it")
    with reading(path, "table of confounds"):
        table, _ = read_table(path)
        lacking = [
            name
            for name in (*cleaning.columns, *([_FD] if cleaning.max_fd is not None else []))
            if name not in table
        ]
        if lacking:
            raise Unreadable(f"has no column {literal(', '.join(lacking[:10]))}")
        columns = [_numbers(name, table[name]) for name in cleaning.columns]
        n = len(next(iter(table.values())))
        line = [np.ones(n), np.linspace(-1, 1, n)]
        keep = np.ones(n, dtype=bool)
        if cleaning.max_fd is not None:
            keep = _numbers(_FD, table[_FD]) <= cleaning.max_fd
        spikes = np.eye(n)[:, ~keep]
        design = np.column_stack([*line, *columns, spikes])
        scale = np.abs(design).max(axis=0)
        if int(keep.sum()) < max(_LEAST, n // 2):
            raise Unreadable(
                f"keeps {int(keep.sum())} of {n} volumes below {{max_fd}}, less than half; exclude the subject"
            )
        if n - design.shape[1] < _LEAST:
            raise Unreadable(
                f"has {design.shape[1]} regressors for {n} volumes; name fewer {{confounds}}"
            )
    return design / np.where(scale > 0, scale, 1), keep


def _confound_tables(file: Path) -> list[Path]:
    """Where fMRIPrep's confounds of a series may lie."""
    told = entities_of(file.name)
    start = "_".join(
        f"{key}-{told[key]}"
        for key in told
        if key not in ("hemi", "space", "den", "desc", "suffix", "res")
    )
    return [
        file.with_name(f"{start}_desc-confounds_{kind}.tsv")
        for kind in ("timeseries", "regressors")
    ]


def _sidecars(file: Path) -> list[Path]:
    """Where the TR of a series may be told; fMRIPrep has written it beside the left hemisphere
    alone.
    """
    stem = file.name.split("_bold.")[0]
    return [
        file.with_name(f"{name}_bold.json") for name in (stem, stem.replace("_hemi-R", "_hemi-L"))
    ]


def _numbers(name: str, cells: list[str]) -> NDArray[np.float64]:
    """A column of confounds; n/a, as derivatives have it in the first row, is 0."""
    bad = [cell for cell in cells if cell.lower() not in MISSING and not is_number(cell)]
    if bad:
        raise Unreadable(
            f"column {literal(name)} contains {literal(repr(bad[0][:40]))}, which is not a number"
        )
    values = np.array([0.0 if cell.lower() in MISSING else float(cell) for cell in cells])
    if not np.isfinite(values).all():
        raise Unreadable(f"column {literal(name)} contains an infinite number")
    return values


def _tr(file: Path, step: float | None, steps: Steps) -> float:
    """Seconds between volumes: as given, as the sidecar says, or as the file itself does."""
    if steps.tr is not None:
        return checked_tr(steps.tr)
    for sidecar in _sidecars(file):
        if is_listed(sidecar):
            with reading(sidecar, "sidecar"):
                content = read_json(sidecar)
                told = content.get("RepetitionTime") if isinstance(content, dict) else None
                if isinstance(told, int | float):
                    return checked_tr(told)
    if step is None:
        raise CohortError(file, "has no sidecar (_bold.json) with RepetitionTime: pass {tr}")
    return checked_tr(step)


def _cohort(
    tasks: Sequence[_Task],
    made: Sequence[_Made],
    mesh: Any,
    steps: Steps,
    cleaning: Cleaning,
    selection: Selection,
) -> Cohort:
    """The subjects' maps, with what single ones lack filled from its neighbours; what most lack is
    not cortex.
    """
    names = [task.subject for task in tasks]
    sides = [side for side in SIDES if all(side in one.maps for one in made)]
    widths = {side: len(made[0].maps[side]) for side in sides}
    sites = Mesh.read(mesh).sites(widths)
    problems, masks = ReadProblems(), []
    for name, one in zip(names, made, strict=True):
        if any(len(one.maps[side]) != widths[side] for side in sides):
            problems.add(f"subject {name}", "is on a different mesh from the first")
    problems.check()
    parts: list[NDArray[Any]] = []
    for side in sides:
        cortex = np.mean([one.have[side] for one in made], axis=0) >= MOSTLY
        faces = _faces(mesh, side, widths[side])
        rows = []
        for name, one in zip(names, made, strict=True):
            missing = cortex & ~one.have[side]
            try:
                check_missing(missing, cortex, side, "have no data", steps.max_missing)
                rows.append(
                    np.where(
                        cortex, fill_from_neighbours(one.maps[side], missing, cortex, faces), 0
                    )
                )
            except ArgumentError as error:
                problems.add(f"subject {name}", str(error))
        masks.append(cortex)
        parts.append(np.array(rows, dtype=np.float32))
    problems.check()
    on = {"mesh": mesh_name_of(sites)}
    record = [{**step, **on} if step["step"] == "reho" else step for step in steps.record()]
    table = selection.participants
    return Cohort(
        np.concatenate(parts, axis=1),
        tuple(names),
        sites,
        np.concatenate(masks),
        "both" if len(sides) == 2 else sides[0],  # type: ignore[arg-type]
        steps.kind,
        "Kendall's W" if steps.kind == "reho" else "a.u.",
        {} if table is None else table.about(names),
        provenance={
            "source": "fMRIPrep",
            "preprocessing": [
                {**step, "icofactor": __version__} for step in (*cleaning.record(), *record)
            ],
            "inputs": [
                {**record, "subject": name}
                for name, one in zip(names, made, strict=True)
                for record in one.records
            ],
        },
    )
