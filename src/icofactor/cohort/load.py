"""The maps of a cohort, from whatever a user has: `plan_cohort` says what would be read,
`load_cohort` reads it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

from icofactor.cohort.find import N_DRAWN, Wanted
from icofactor.cohort.find.files import find_sources, rename
from icofactor.cohort.find.sessions import tell_scans
from icofactor.cohort.meshes import Mesh, check_array, is_name, joined_images, read_image
from icofactor.cohort.names import modality_of
from icofactor.cohort.pieces import Reader
from icofactor.cohort.plan import (
    Plan,
    are_stacks,
    grouped,
    plan_held,
    plan_singles,
    plan_stacks,
    plan_store,
)
from icofactor.cohort.problems import Journal, Problems, some
from icofactor.cohort.read import Details
from icofactor.cohort.regions import frame_of_people, frame_on_regions, read_regions
from icofactor.cohort.store.layout import is_zarr
from icofactor.cohort.subjects import Selection, bare, check_names, read_subjects
from icofactor.io.maps import is_mesh_size
from icofactor.io.url import is_url
from icofactor.sphere.meshes import CIVETS_MESH, sites_for
from icofactor.sphere.names import SIDES, hemispheres
from icofactor.sphere.sites import Sites

if TYPE_CHECKING:
    from icofactor.cohort.cohort import Cohort
    from icofactor.cohort.store.read import StoredCohort

_P = ParamSpec("_P")
_R = TypeVar("_R")


def plan_cohort(
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
) -> Plan:
    """Find the files of a cohort, select its subjects and read one header; `Plan.read` does the
    rest.

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
        file names, such as "lh.thickness.{subject}.mgh", where * matches anything.
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

    Raises
    ------
    ArgumentError, CohortError
        If no subjects remain to read. Other problems with files are kept in the plan.
    """
    hemisphere = hemisphere if hemi is None else hemi
    if hemisphere is not None:
        hemispheres(hemisphere, "hemisphere")
    selection, journal, problems = (
        Selection.of(participants, exclude, missing, needed),
        Journal(verbose),
        Problems(),
    )
    if isinstance(paths, list | tuple) and len(paths) == 1:
        paths = paths[0]
    if isinstance(paths, str | os.PathLike) and is_zarr(paths):
        of_files = {
            "mesh": mesh,
            "hemisphere": hemisphere,
            "measure": measure,
            "smoothing": smoothing,
            "target": target,
            "entities": entities,
            "stream": stream,
            "mask": mask,
            "subjects": subjects,
            "map_name": map_name,
        }
        of_files |= {"modality": modality, "units": units, "parcels": parcels}
        place = paths if is_url(paths) else Path(paths).expanduser()
        return plan_store(place, of_files, selection, sessions, problems, journal)
    pattern, names = read_subjects(subjects)
    details = Details(
        selection, mask, mesh, measure, modality, units, problems, journal, holes, n_threads
    )
    if isinstance(paths, list | tuple) and paths and all(map(_is_image, paths)):
        paths = joined_images(paths)
    if hasattr(paths, "iloc"):
        paths, index = frame_of_people(paths, names)
        if parcels is not None or not is_mesh_size(paths.shape[1]):
            return plan_held(
                frame_on_regions(paths, parcels, mesh, journal), index, details, "DataFrame"
            )
        sites, side = sites_for(paths.shape[1], details.mesh, hemisphere, "The DataFrame has")
        hemispheres(side, "hemisphere")
        return plan_held((check_array(paths), sites, str(side)), index, details, "DataFrame")
    if _is_image(paths):
        return plan_held(
            read_image(paths, details.mesh, hemisphere), names, details, "SurfaceImage"
        )
    table = selection.participants
    known = (
        frozenset()
        if table is None
        else frozenset(map(bare, (*table.listed, *(who for who, _ in table.scans))))
    )
    of_fit = isinstance(mesh, Sites) and mesh.regions is not None
    atlas = (mesh, None) if of_fit and parcels is None else (parcels, None if of_fit else mesh)
    wanted = Wanted(
        hemisphere, measure, smoothing, target, entities or {}, known, stream, atlas[0] is not None
    )
    found = find_sources(paths, wanted, problems)
    if pattern is not None:
        found.sources = rename(found.sources, pattern, problems)
    scans = tell_scans(found, sessions, selection, problems)
    for note in found.notes:
        journal.note(note)
    if found.civet and (is_name(mesh) or mesh is found.mesh is None):
        named = "" if mesh is None else f"; {{mesh={mesh!r}}} orders its vertices differently"
        problems.add("mesh", f"is needed for CIVET's maps: give {CIVETS_MESH}{named}")
        problems.check()
    own = {
        "mesh": found.mesh if mesh is None else mesh,
        "measure": found.measure or details.measure,
    }
    details = replace(details, **own)
    regions = read_regions(found, *atlas, hemisphere, measure, selection.skips, problems, journal)
    if regions is not None:
        details = replace(details, mesh=regions.sites, measure=found.measure or details.measure)
    reader = Reader(
        Mesh.read(details.mesh),
        hemisphere,
        measure,
        map_name,
        None if regions is None else regions.maps,
    )
    groups, twice = grouped(found, wanted)
    if not groups and not found.missing and not problems:
        of = f" of the {hemisphere} hemisphere" if hemisphere in SIDES else ""
        problems.add("paths", f"contain no map files{of}")
    stacked = map_name is None and are_stacks(groups, reader)
    if stacked or names is not None:  # files that are not single subjects: all that is there twice
        for path, text in (one for several in twice.values() for one in several):
            problems.add(path, text)
    told = details.modality or (modality_of(details.measure) if details.measure else "")
    if stacked:
        return replace(plan_stacks(groups, names, reader, details), modality=told)
    if names is not None:
        what = f"the files are of {len(groups)} subjects ({some(groups)})"
        given = check_names(names, len(groups), what)
        scans = {
            name: scans[there] for name, there in zip(given, groups, strict=True) if there in scans
        }
        groups = dict(zip(given, groups.values(), strict=True))
    selection = replace(selection, scans=scans)
    chosen = selection.select_files(list(groups), found.missing, twice, problems, journal)
    theirs = (found.surfaces.get(next(iter(groups[there].values())), []) for _, there in chosen)
    pairs = list(filter(None, theirs))
    surfaces = (
        tuple(path for pair in pairs[: N_DRAWN[1]] for path in pair)
        if len(pairs) >= N_DRAWN[0]
        else ()
    )
    details = replace(details, selection=selection.renamed(chosen), surfaces=surfaces)
    plan = plan_singles([(name, groups[there]) for name, there in chosen], wanted, reader, details)
    return replace(plan, modality=told)


def _is_image(given: Any) -> bool:
    return hasattr(given, "mesh") and hasattr(getattr(given, "data", None), "parts")


def _takes(arguments_of: Callable[_P, Any]) -> Callable[[Callable[..., _R]], Callable[_P, _R]]:
    """Give a function the arguments of another, and their descriptions where its docstring has
    {parameters}.
    """

    def taking(function: Callable[..., _R]) -> Callable[_P, _R]:
        found = re.search(r"Parameters\n *-+\n *(.*?)\n\n", arguments_of.__doc__ or "", re.DOTALL)
        if found and function.__doc__:
            function.__doc__ = function.__doc__.replace("{parameters}", found[1])
        returned = signature(function).return_annotation
        vars(function)["__signature__"] = signature(arguments_of).replace(
            return_annotation=returned
        )
        return cast("Callable[_P, _R]", function)

    return taking


@_takes(plan_cohort)
def load_cohort(*paths: Any, **options: Any) -> Cohort | StoredCohort:
    """Read the maps of a cohort.

    If files leave a choice, icofactor does not guess: the error lists the choices.

    Parameters
    ----------
    {parameters}

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
    return plan_cohort(*paths, **options).read()
