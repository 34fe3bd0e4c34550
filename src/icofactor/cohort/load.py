"""From what a user has to a cohort: `plan_cohort` finds what would be read, `load_cohort` reads it.

The way: find the table of files, choose the sessions, bring tables of regions onto one atlas,
choose the subjects, look at the first files, read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from icofactor.cohort.find.files import find_files, match_pattern
from icofactor.cohort.find.sessions import choose_sessions
from icofactor.cohort.find.surfaces import mesh_of_files
from icofactor.cohort.meshes import (
    Mesh,
    check_array,
    hemisphere_of,
    is_name,
    join_images,
    read_image,
)
from icofactor.cohort.people import bare
from icofactor.cohort.plan import Plan, Planner
from icofactor.cohort.problems import Journal, ReadProblems
from icofactor.cohort.reader import MapFile, Reader
from icofactor.cohort.regions import frame_of_people, frame_on_regions, read_regions
from icofactor.cohort.request import Request
from icofactor.cohort.store.layout import is_zarr
from icofactor.cohort.subjects import Selection, read_subjects
from icofactor.io.maps import is_mesh_size
from icofactor.sphere.meshes import CIVETS_MESH, sites_for
from icofactor.sphere.names import hemispheres
from icofactor.sphere.sites import Sites

if TYPE_CHECKING:
    import pandas as pd

    from icofactor.cohort.cohort import Cohort
    from icofactor.cohort.store.read import StoredCohort


def plan_cohort(
    paths: Any,
    *,
    participants: Any = None,
    parcels: Any = None,
    sessions: str | Sequence[str] | None = None,
    subjects: Any = None,
    exclude: Sequence[str] = (),
    missing: str = "raise",
    needed: Sequence[str] = (),
    hemisphere: str | None = None,
    hemi: str | None = None,
    verbose: bool = False,
    **options: Any,
) -> Plan:
    """Find the files of a cohort, choose its subjects, and look at the first file or two.

    The parameters are those of `load_cohort`; `options` are the fields of `Request`. Problems with
    files are kept in the plan, and reported with those that `Plan.read` finds.
    """
    # The two names of the option are one from here on.
    options["hemisphere"] = hemisphere if hemi is None else hemi
    selection = Selection.of(participants, exclude, missing, needed)
    journal = Journal(verbose)
    problems = ReadProblems()
    # A list of one path may be a store, which is never listed with others.
    if isinstance(paths, list | tuple) and len(paths) == 1:
        paths = paths[0]
    if isinstance(paths, str | os.PathLike) and is_zarr(paths):
        # Zarr is imported only for stores.
        from icofactor.cohort.store_plan import plan_store

        # These have no effect on a store, and are no mistake either.
        for name in ("holes", "n_threads"):
            options.pop(name, None)
        options |= {"parcels": parcels, "subjects": subjects}
        return plan_store(
            paths,
            options,
            selection,
            sessions,
            problems,
            journal,
        )
    # The request is compared with file names, of which None says nothing.
    options["entities"] = options.get("entities") or {}
    request = Request(**options, listed=_listed_names(selection))
    if isinstance(paths, list | tuple) and paths and all(map(_is_image, paths)):
        paths = join_images(paths)
    # pandas is not imported to recognise its DataFrame.
    if hasattr(paths, "iloc") or _is_image(paths):
        _, names = read_subjects(subjects)
        return _plan_memory(
            paths,
            parcels,
            names,
            request,
            selection,
            problems,
            journal,
        )
    return _plan_files(
        paths,
        parcels,
        sessions,
        subjects,
        request,
        selection,
        problems,
        journal,
    )


def _plan_memory(
    source: Any,
    parcels: Any,
    names: tuple[str, ...] | None,
    request: Request,
    selection: Selection,
    problems: ReadProblems,
    journal: Journal,
) -> Plan:
    """Return the plan of a SurfaceImage or a DataFrame."""
    maps, sites, names = _in_memory(
        source,
        parcels,
        request,
        names,
        journal,
    )
    request = replace(request, mesh=sites)
    reader = Reader(Mesh(sites), request, cache={maps.path: maps})
    planner = Planner(
        reader,
        selection,
        request.measure,
        problems,
        journal,
    )
    return planner.plan_stacks({"": {None: maps.path}}, names)


def _plan_files(
    paths: Any,
    parcels: Any,
    sessions: str | Sequence[str] | None,
    subjects: Any,
    request: Request,
    selection: Selection,
    problems: ReadProblems,
    journal: Journal,
) -> Plan:
    """Return the plan of files: find them, choose sessions, match regions, choose subjects."""
    pattern, names = read_subjects(subjects)
    atlas_mesh = request.mesh
    if isinstance(request.mesh, Sites) and request.mesh.regions is not None:
        # The sites of a fit to regions are its atlas.
        atlas_mesh = None
        parcels = request.mesh if parcels is None else parcels
    request = replace(request, tables=parcels is not None)
    files = find_files(paths, request, problems, journal)
    if pattern is not None:
        files = match_pattern(files, pattern, problems)
    files, scans = choose_sessions(files, sessions, selection, problems)
    request = _with_mesh(request, files, problems)
    regions = read_regions(
        files,
        parcels,
        atlas_mesh,
        request,
        selection.skips,
        problems,
        journal,
    )
    measure = _common_measure(files)
    if regions is not None:
        files = regions.files
        measure = measure or regions.measure
        request = replace(request, mesh=regions.sites)
    reader = Reader(Mesh.read(request.mesh), request, {} if regions is None else regions.maps)
    # The reader takes the array that the caller names, the cohort the measure in file names.
    measure = measure or request.measure
    planner = Planner(
        reader,
        selection,
        measure,
        problems,
        journal,
    )
    return planner.plan(files, names, scans)


def _is_image(source: Any) -> bool:
    """Whether an object is a SurfaceImage of nilearn."""
    return hasattr(source, "mesh") and hasattr(getattr(source, "data", None), "parts")


def _listed_names(selection: Selection) -> frozenset[str]:
    """Return the names of subjects in the table of participants, without "sub-"."""
    table = selection.participants
    if table is None:
        return frozenset()
    return frozenset(map(bare, (*table.listed, *(person for person, _ in table.scans))))


def _common_measure(files: pd.DataFrame) -> str | None:
    """Return the measure in the names of files, if all say the same one."""
    measures = set(files["measure"])
    return measures.pop() if len(measures) == 1 else None


def _with_mesh(
    request: Request,
    files: pd.DataFrame,
    problems: ReadProblems,
) -> Request:
    """Return the request with the mesh in the names of files, unless the caller gave one."""
    mesh = mesh_of_files(files)
    # CIVET has as many vertices as fsaverage6, in another order: a name would be wrong.
    is_civet = bool(len(files)) and set(files["mesh"]) == {"CIVET"}
    if is_civet and (is_name(request.mesh) or (mesh is None and request.mesh is None)):
        text = f"is needed for CIVET's maps: give {CIVETS_MESH}"
        if request.mesh is not None:
            text += f"; {request.mesh} orders its vertices differently"
        problems.add("mesh", text)
        problems.check()
    return replace(request, mesh=mesh) if request.mesh is None else request


def _in_memory(
    source: Any,
    parcels: Any,
    request: Request,
    names: tuple[str, ...] | None,
    journal: Journal,
) -> tuple[MapFile, Sites, tuple[str, ...] | None]:
    """Return the maps, sites and names of a nilearn SurfaceImage, or a DataFrame."""
    if _is_image(source):
        X, sites, side = read_image(source, request.mesh, request.hemisphere)
        return _memory_file("SurfaceImage", _by_side(X, sites, side)), sites, names
    frame, names = frame_of_people(source, names)
    # As many columns as a mesh has vertices are vertices, unless an atlas is given.
    if parcels is not None or not is_mesh_size(frame.shape[1]):
        maps, sites = frame_on_regions(frame, parcels, request.mesh, journal)
        parts = {str(side): values for side, values in maps.parts.items()}
    else:
        n_columns = frame.shape[1]
        sites, hemi = sites_for(n_columns, request.mesh, request.hemisphere, "The DataFrame has")
        hemispheres(hemi, "hemisphere")
        parts = _by_side(check_array(frame), sites, str(hemi))
    return _memory_file("DataFrame", parts), sites, names


def _memory_file(
    kind: str,
    parts: Mapping[str, Any],
) -> MapFile:
    """Return the maps of an object in memory as if they were read from a file."""
    record = {"path": None, "reader": kind, "hemisphere": hemisphere_of(parts)}
    return MapFile(Path(kind), parts, record)


def _by_side(
    X: Any,
    sites: Sites,
    side: str,
) -> dict[str, Any]:
    """Return the columns of each hemisphere."""
    if side != "both":
        return {side: X}
    n_left = int((sites.hemisphere == 0).sum())
    return {"left": X[:, :n_left], "right": X[:, n_left:]}


def load_cohort(
    paths: Any,
    *,
    participants: Any = None,
    mesh: Any = None,
    hemisphere: str | None = None,
    parcels: Any = None,
    measure: str | None = None,
    smoothing: float | None = None,
    target: str | None = None,
    entities: Mapping[str, str] | None = None,
    stream: str | None = None,
    sessions: str | Sequence[str] | None = None,
    mask: Any = None,
    subjects: str | os.PathLike[str] | Sequence[str] | None = None,
    exclude: Sequence[str] = (),
    missing: Literal["raise", "skip"] = "raise",
    needed: Sequence[str] = (),
    map_name: str | int | None = None,
    modality: str | None = None,
    units: str | None = None,
    holes: bool = False,
    n_threads: int | None = None,
    verbose: bool = False,
    hemi: str | None = None,
) -> Cohort | StoredCohort:
    """Read the maps of a cohort.

    If files leave a choice, icofactor does not guess: the error lists the choices.

    Parameters
    ----------
    paths : path, glob, list of these, nilearn SurfaceImage or DataFrame
        A file, a folder of files, a FreeSurfer SUBJECTS_DIR, an HCP tree, BIDS derivatives
        (fMRIPrep, XCP-D), CAT12 or CIVET folders, or a cohort store (a folder or a URL). Files:
        MGH/MGZ, FreeSurfer morph, GIFTI, CIFTI-2 dscalar, dtseries and pscalar, npy, npz, and
        tables with one column per region (TSV, CSV).
    participants : path, mapping, DataFrame or list of names, optional
        Table that selects and orders the subjects; a column "exclude" (or "include") leaves some
        out. With a column session_id (or session, visit), it may list several scans of a person.
    mesh : str, Sites, path or pair of paths, optional
        "fsaverage3" to "fsaverage7", a `Sites` object, a sphere file, or a pair (left, right).
        Default: from the names or the number of vertices.
    hemisphere, hemi : {"left", "right", "both"}, optional
        Hemispheres to read; two names of the same. Default: all that exist.
    parcels : path, pair of paths or Sites, optional
        Atlas of tables with one column per region: an .annot or .label.gii file per hemisphere, a
        .dlabel.nii file, or `Sites.parcels`. pscalar files contain their atlas; without an atlas,
        the positions of regions are not known.
    measure : str, optional
        Such as "thickness", "myelin" or "reho"; for npz files, the name of the array.
    smoothing, target : float and str, optional
        Smoothing in mm and mesh ("fsaverage5") of FreeSurfer's files; `target` is also the density
        of HCP files ("32k", "164k") and the space of BIDS files.
    entities : dict, optional
        BIDS entities that the file names must have, such as {"task": "rest", "ses": "1"}.
    stream : {"cross", "base", "long"}, optional
        Which folders of FreeSurfer's longitudinal stream to read.
    sessions : "all" or list of str, optional
        Which sessions to read if people have several. The `subjects` of the cohort are then scans,
        and its participants have the columns participant_id and session_id.
    mask : bool array, path or pair of these, optional
        Sites in use: an array, an annot, label, .label.gii, .shape.gii or other file, or a pair
        (left, right). Sites that are NaN or zero in every subject are always left out.
    subjects : list of str, path or str, optional
        Names in the order of the files or maps; a file with one name per line; or a pattern of the
        file names, such as "lh.thickness.{subject}.mgh" or "{subject}_{session}_lh.gii", where *
        matches anything.
    exclude : list of str, optional
        Subjects to leave out.
    missing : {"raise", "skip"}, default="raise"
        Whether subjects with missing files are an error, or left out.
    needed : list of str, optional
        Columns of the participants; subjects without a value in one of them are left out.
    map_name : str or int, optional
        Which map to read from files with several maps of one subject.
    modality, units : str, optional
        What was measured and its unit. Default: those of the measure.
    holes : bool, default=False
        Whether single subjects may have NaN where others have values: for loadings of new subjects,
        not for a fit.
    n_threads : int, optional
        Number of files to read at the same time.
    verbose : bool, default=False
        Whether to show progress, and what was chosen and left out.

    Returns
    -------
    Cohort or StoredCohort
        The provenance contains the files with their checksums, and the steps. A store is opened,
        not loaded; `participants`, `exclude`, `missing` and `needed` select its subjects, and the
        other arguments do not apply.

    Raises
    ------
    CohortError
        Lists all bad files.

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
    return plan_cohort(**locals()).read()
