"""load_cohort: the files people have → a Cohort, or one report of everything that is wrong with them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from icofactor.cohort.assemble import Read, is_stack, read_singles, read_stacks
from icofactor.cohort.checks import check_values
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.find.files import find_sources
from icofactor.cohort.find.source import Found, Wanted
from icofactor.cohort.images import read_image
from icofactor.cohort.masks import read_mask
from icofactor.cohort.meshes import Mesh
from icofactor.cohort.names import measure_of, modality_of, units_of
from icofactor.cohort.pieces import How, copy_map
from icofactor.cohort.problems import Journal, Problems
from icofactor.cohort.subjects import Task, grouped, map_names, numbered, read_participants, renamed, report_twice
from icofactor.errors import CohortError
from icofactor.progress import Stages
from icofactor.sphere.sites import Sites

if TYPE_CHECKING:
    from icofactor.cohort.store.read import StoredCohort

_HEMISPHERES = (None, "left", "right", "both")


def load_cohort(
    paths: Any,
    *,
    participants: Any = None,
    mesh: Any = None,
    hemisphere: str | None = None,
    measure: str | None = None,
    smoothing: float | None = None,
    target: str | None = None,
    entities: Mapping[str, str] | None = None,
    mask: Any = None,
    subjects: Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    missing: Literal["raise", "skip"] = "raise",
    map_name: str | int | None = None,
    modality: str | None = None,
    units: str | None = None,
    n_threads: int | None = None,
    verbose: bool = False,
) -> Cohort | StoredCohort:
    """Read the maps of a cohort. Nothing is guessed where files leave a choice: the error says what to add.

    Parameters
    ----------
    paths : a file, a glob, a folder of files, a FreeSurfer SUBJECTS_DIR, an HCP tree, BIDS derivatives (fMRIPrep,
        XCP-D), a list of these, a cohort store, or a nilearn SurfaceImage. Files: MGH/MGZ, FreeSurfer morph, GIFTI,
        CIFTI-2 dscalar and dtseries, npy, npz.
    participants : participants.tsv (or CSV, columns, or names): selects and orders the subjects; a column "exclude"
        (or "include") leaves out some.
    mesh : "fsaverage3" to "fsaverage7", Sites, a sphere file, or a pair (left, right); None: what the names or the
        number of vertices tell.
    hemisphere : "left", "right", "both"; None: what is there.
    measure : e.g. "thickness", "myelin", "reho"; the name of the array in npz files.
    smoothing, target : of FreeSurfer's files, in mm and e.g. "fsaverage5"; `target` also of HCP ("32k", "164k") and
        BIDS (the space).
    entities : BIDS entities the names must have, e.g. {"task": "rest", "ses": "1"}.
    mask : sites in use: a boolean array, an annot, label, .label.gii, .shape.gii or other file, or a pair
        (left, right). In any case sites that are NaN or zero in every subject are left out.
    subjects : names in the order of the files (or maps), instead of those the paths tell.
    exclude : subjects to leave out.
    missing : whether subjects without all their files are an error ("raise") or left out ("skip").
    map_name : name or number of the map to take from files that hold several for one subject.
    modality, units : what the cohort says it is; None: what the measure tells.
    n_threads : files read at the same time.
    verbose : whether to show progress, and say what was chosen and left out.

    Returns
    -------
    Cohort. Its provenance holds the files with their checksums, and the steps taken. A store gives a StoredCohort,
    which is opened and not loaded, as it is: the other arguments are for files.

    Raises
    ------
    CohortError, which names every bad file at once.

    Examples
    --------
    >>> import icofactor as ico
    >>> import tempfile
    >>> import numpy as np
    >>> maps = np.random.default_rng(0).gamma(2, size=(4, 642))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/lh.maps.npy", maps)
    ...     cohort = ico.load_cohort(f"{folder}/lh.maps.npy", mesh="fsaverage3", hemisphere="left")
    >>> cohort.X.shape, cohort.hemisphere
    ((4, 642), 'left')
    """
    if hemisphere not in _HEMISPHERES:
        raise ValueError(f"hemisphere must be 'left', 'right', 'both' or None; found {hemisphere!r}")
    if missing not in ("raise", "skip"):
        raise ValueError(f"missing must be 'raise' or 'skip'; found {missing!r}")
    if isinstance(paths, list | tuple) and len(paths) == 1:
        paths = paths[0]
    if isinstance(paths, str | os.PathLike) and (Path(paths).expanduser() / "zarr.json").is_file():
        from icofactor.cohort.store.read import open_store

        return open_store(Path(paths).expanduser())
    task = Task(
        Problems(),
        Journal(verbose),
        read_participants(participants),
        tuple(map(str, exclude)),
        missing == "skip",
        None if subjects is None else tuple(map(str, subjects)),
        n_threads,
    )
    if hasattr(paths, "mesh") and hasattr(getattr(paths, "data", None), "parts"):
        read: Read
        sites: Sites | None
        read, sites = _read_image(paths, mesh, hemisphere, task)
        found, spheres = Found(measure=measure), mesh
    else:
        wanted = Wanted(hemisphere, measure, smoothing, target, entities or {})
        found = find_sources(paths, wanted, task.problems)
        for note in found.notes:
            task.journal.note(note)
        how = How(Mesh.read(found.mesh if mesh is None else mesh), hemisphere, measure, map_name)
        read = _read_files(found, how, wanted, task)
        sites = _sites(read, how, task.problems)
        spheres = found.mesh if mesh is None else mesh
    arrays = [measure_of(record["array"]) for record in read.records if "array" in record]
    kind = modality or modality_of(found.measure or measure or next(filter(None, arrays), "unknown"))
    return _finish(read, sites, mask, spheres, kind, units_of(kind) if units is None else units, task)


def _read_files(found: Found, how: How, wanted: Wanted, task: Task) -> Read:
    """All files into one X."""
    groups, twice = grouped(found, wanted)
    if not groups and not found.missing and not task.problems:
        of = f" of the {how.hemisphere} hemisphere" if how.hemisphere in ("left", "right") else ""
        task.problems.add("paths", f"lead to no files of maps{of}")
    stacked = how.map_name is None and is_stack(groups, how)
    read: Read | None
    if stacked or task.subjects is not None:
        report_twice(twice, task.problems)
    if stacked:
        name_rows = lambda pieces: map_names(pieces, task, len(groups) == 1)
        read = read_stacks(list(groups.values()), how, name_rows, lambda names: task.select(names, {}), task.problems)
    else:
        groups = renamed(groups, task)
        chosen = task.select(list(groups), found.missing, twice)
        people = [(name, groups[there]) for name, there in chosen]
        if not people:
            if not task.problems:
                task.problems.add("paths", "no subject is left to read")
            task.problems.check()
        told = {side for _, files in people for side in files if side is not None}
        sides = wanted.sides if how.hemisphere is not None else [s for s in ("left", "right") if s in told]
        with Stages(task.journal.shown).stage("reading") as show:
            read = read_singles(people, sides, how, task.problems, show, task.n_threads)
    if read is None:
        task.problems.check()
        raise CohortError("paths: no subject could be read")
    return read


def _read_image(image: Any, mesh: Any, hemisphere: str | None, task: Task) -> tuple[Read, Sites]:
    """A nilearn SurfaceImage: one subject per map."""
    maps, sites, hemi = read_image(image, mesh, hemisphere)
    n = maps.shape[0]
    names = tuple(task.subjects or numbered(n, "SurfaceImage", task))
    if len(names) != n:
        raise CohortError(f"subjects: has {len(names)} names; the SurfaceImage holds {n} maps")
    chosen = task.select(names, {})
    n_left = int((sites.hemisphere == 0).sum())
    widths = {"left": n_left, "right": sites.n - n_left} if hemi == "both" else {hemi: n_left}
    where = [
        dict.fromkeys(widths, f"SurfaceImage (map {names.index(found)}, subject {name})") for name, found in chosen
    ]
    X = np.empty((len(chosen), sites.n), dtype=np.float32)
    for row, (_, there) in enumerate(chosen):
        copy_map(maps[names.index(there)], X[row])
    subjects = [name for name, _ in chosen]
    record = {"path": None, "reader": "nilearn SurfaceImage", "hemisphere": hemi, "subject": subjects}
    return Read(subjects, X, widths, where, list(range(len(chosen))), [record]), sites


def _sites(read: Read, how: How, problems: Problems) -> Sites | None:
    """Where the columns lie; None when that is not known, which is reported."""
    try:
        return how.mesh.sites(read.widths)
    except CohortError as error:
        # files of another mesh than the one given are named one by one already
        if not problems:
            problems.add_error("mesh", error)
        return None


def _finish(read: Read, sites: Sites | None, mask: Any, mesh: Any, modality: str, units: str, task: Task) -> Cohort:
    """Check the numbers, and put the cohort together."""
    given, source = None, []
    for note in read.notes:
        task.journal.note(note)
    if read.masks and set(read.masks) >= set(read.widths):
        given, source = np.concatenate([read.masks[side] for side in read.widths]), ["the files of maps"]
    if mask is not None:
        try:
            given, source = read_mask(mask, read.widths), [_described(mask)]
        except CohortError as error:
            task.problems.add_error("mask", error)
    used = check_values(read.rows(), given, task.problems, task.journal)
    task.problems.check()
    assert sites is not None  # else there was a problem
    if used is not None and (given is None or (given & ~used).any()):
        source.append("NaN or zero in every subject")
    table = {"participant_id": np.array(read.subjects), **read.columns}
    if task.table is not None:
        rows = [task.table.ids.index(name) for name in read.subjects]
        table.update({name: column[rows] for name, column in task.table.columns.items()})
    provenance = {
        "loaded_with": "icofactor.load_cohort",
        "mesh": repr(sites),
        "inputs": read.records,
        "participants": None if task.table is None else dict(task.table.source),
        "mask": {"source": source, "left_out": 0 if used is None else int((~used).sum())},
        "mesh_and_mask_files": [*_files(mesh), *_files(mask)],
        "steps": task.journal.steps,
    }
    hemisphere: Any = "both" if len(read.widths) == 2 else next(iter(read.widths))
    return Cohort(read.X, tuple(read.subjects), sites, used, hemisphere, modality, units, table, provenance=provenance)


def _files(given: Any) -> list[dict[str, str]]:
    """Paths and checksums of the files among what was given for the mesh or the mask."""
    listed = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(listed, list | tuple):
        return []
    paths = [Path(one).expanduser() for one in listed if isinstance(one, str | os.PathLike)]
    files = [path for path in paths if path.is_file()]
    return [{"path": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()} for path in files]


def _described(mask: Any) -> str:
    if isinstance(mask, str | os.PathLike):
        return str(mask)
    if isinstance(mask, Sequence) and all(isinstance(part, str | os.PathLike) for part in mask):
        return ", ".join(map(str, mask))
    return "array"
