"""A fit as a folder, whole or not at all.

`write_fit` fills a folder as a BIDS derivative of a group:

    dataset_description.json                                         DatasetType "derivative", GeneratedBy with Files
    hemi-L_space-fsaverage_den-10k_desc-icofactor_components.shape.gii   one map per component
    hemi-R_space-fsaverage_den-10k_desc-icofactor_components.shape.gii   (for two hemispheres)
    hemi-L_space-fsaverage_den-10k_desc-icofactor_mask.shape.gii         1 where a vertex was used (with a mask)
    hemi-L_space-fsaverage_den-10k_desc-icofactor_dseg.label.gii         winner-takes-all parcellation
    hemi-L_space-fsaverage_den-10k_desc-icofactor_dseg.annot             the same for FreeSurfer
    space-fsLR_den-32k_desc-icofactor_components.dscalar.nii             all hemispheres (on fs_LR 32k only)
    desc-icofactor_dseg.tsv                                          index, name and colour of each parcel
    desc-icofactor_loadings.tsv                                      participant_id, component01, component02, ...
    participants.tsv                                                 (when anything is known about them)
    provenance.json
    methods.md                                                       a paragraph for the paper (when given)
    (and what the caller adds: files, and folders of files)

"Files" names everything written together, so that overwriting can remove what an earlier fit wrote and this one does
not. Meshes other than fsaverage's and fs_LR have their own name as space and no density.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.io.atomic import alone_in, check_target, remove_leftovers
from icofactor.io.cifti import write_dscalar
from icofactor.io.freesurfer import write_annot
from icofactor.io.gifti import write_label_gii, write_maps
from icofactor.io.json import read_json
from icofactor.io.tables import numbered, write_json, write_tsv
from icofactor.results.parcellation import distinct_colours, winner_takes_all
from icofactor.sphere.names import hemispheres, is_fs_lr, map_file, vertices_per_side

_MAX_NAME = 200
_BIDS_VERSION = "1.10.0"
_LOADINGS, _PARTICIPANTS, _PROVENANCE = "desc-icofactor_loadings.tsv", "participants.tsv", "provenance.json"
_DESCRIPTION, _PARCELS, _METHODS = "dataset_description.json", "desc-icofactor_dseg.tsv", "methods.md"
_COMPONENTS, _MASK, _LABELS, _ANNOT = "components.shape.gii", "mask.shape.gii", "dseg.label.gii", "dseg.annot"
_DSCALAR = "components.dscalar.nii"
_FOLDERS = ("figures",)


def write_dataset_description(
    directory: str | Path,
    name: str = "icofactor",
    *,
    generated_by: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """dataset_description.json of a BIDS derivative.

    Parameters
    ----------
    name : name of the dataset.
    generated_by : further entries for icofactor's own GeneratedBy record.
    extra : further entries at the top, e.g. SourceDatasets.
    """
    try:
        own = version("icofactor")
    except PackageNotFoundError:
        own = "unknown"
    description = {
        "Name": name,
        "BIDSVersion": _BIDS_VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [{"Name": "icofactor", "Version": own, **(generated_by or {})}],
        **(extra or {}),
    }
    return write_json(Path(directory) / _DESCRIPTION, description, overwrite=overwrite)


def fit_files(
    hemi: str | None,
    mesh_name: str,
    *,
    mask: bool,
    participants: bool,
    methods: bool = False,
    extras: Sequence[str] = (),
) -> list[str]:
    """Names of all files that `write_fit` writes, known before there is a fit.

    Parameters
    ----------
    mask, participants, methods : whether there is a mask, anything known about the participants, a methods paragraph.
    extras : names of the further files.
    """
    kinds = [_COMPONENTS, _LABELS, _ANNOT, *([_MASK] if mask else [])]
    own = [map_file(mesh_name, kind, side) for side in hemispheres(hemi) for kind in kinds]
    own += [map_file(mesh_name, _DSCALAR)] if is_fs_lr(mesh_name) else []
    own += [_LOADINGS, _PARCELS, _PROVENANCE, _DESCRIPTION]
    own += [_PARTICIPANTS] if participants else []
    own += [_METHODS] if methods else []
    for name in extras:
        if name in own or not _is_plain(name):
            raise ValueError(f"extras must be plain names that the fit does not use itself; got {name!r}")
    return sorted([*own, *extras])


def check_folder(
    folder: str | Path, names: Sequence[str], overwrite: bool = False, folders: Sequence[str] = ()
) -> None:
    """Refuse a folder where files, and folders inside it, of these names cannot or may not be written; make nothing."""
    folder = Path(folder)
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"{there} is a file; a folder is to be written there")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"{there} is not writable")
    if folder.is_dir():
        for name in names:
            check_target(folder / name, overwrite)
        for inner in (folder / name for name in folders):
            if inner.exists() and not inner.is_dir():
                raise NotADirectoryError(f"{inner} is a file; a folder is to be written there")
            if inner.exists() and not overwrite:
                raise FileExistsError(f"{inner} exists; pass overwrite=True to replace it")


def write_fit(
    out_dir: str | Path,
    *,
    components: ArrayLike,
    loadings: ArrayLike,
    subjects: Sequence[str],
    hemi: str | None,
    mesh_name: str,
    mask: ArrayLike | None = None,
    participants: Mapping[str, ArrayLike] | None = None,
    provenance: Mapping[str, Any] | None = None,
    methods: str | None = None,
    extras: Mapping[str, Callable[[Path], object]] | None = None,
    folders: Mapping[str, Callable[[Path], object]] | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """A fit as a folder; the files are listed at the top of this module. All of them appear, or none.

    Parameters
    ----------
    out_dir : made when missing.
    components : (k, n_vertices), the left hemisphere's vertices first when `hemi` is "both".
    loadings : (n_subjects, k).
    subjects : one name per row of `loadings`.
    hemi : "left", "right" or "both".
    mesh_name : e.g. "fsaverage5".
    mask : (n_vertices,) bool, True where a vertex was used.
    participants : column → one value per subject.
    provenance : how the fit came about; written as it is.
    methods : the methods paragraph, in Markdown; see `methods_text`.
    extras : name of a further file → what writes it to the path it is called with.
    folders : "figures" → what fills this folder with files; before the extras, which may use them.
    overwrite : whether to replace an earlier fit: all of its files go, also those the new one has no counterpart of.

    Returns
    -------
    The files written.
    """
    maps, table = np.asarray(components), np.asarray(loadings)
    _check_fit(maps, table, subjects, hemi, mesh_name, mask, participants)
    folder, extras, folders = Path(out_dir), extras or {}, folders or {}
    given = {"mask": mask is not None, "participants": bool(participants), "methods": methods is not None}
    names = fit_files(hemi, mesh_name, **given, extras=list(extras))
    check_folder(folder, names, overwrite, list(folders))
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    stage = folder / f".tmp-{secrets.token_hex(4)}"
    new, held = stage / "new", ExitStack()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with alone_in(folder):  # else another process could take the new stage for a killed one's
            new.mkdir(parents=True)
            held.enter_context(alone_in(stage))
        _write_maps_of_fit(new, maps, hemi, mesh_name, mask)
        _write_parcels_of_fit(new, maps, table, hemi, mesh_name, mask)
        _write_tables_of_fit(new, table, subjects, participants)
        write_json(new / _PROVENANCE, provenance or {})
        if methods is not None:
            (new / _METHODS).write_text(methods, encoding="utf-8", newline="\n")
        for name, fill in folders.items():
            (new / name).mkdir()
            fill(new / name)
            names += [f"{name}/{path.name}" for path in (new / name).iterdir()]
        for name, write in extras.items():
            write(new / name)
        names.sort()
        write_dataset_description(new, "Factorization of cortical maps", generated_by={"Files": names})
        with alone_in(folder):
            remove_leftovers(folder)
            _publish(stage, folder, names, overwrite)
        return [folder / name for name in names]
    except OSError as problem:
        if problem.errno is None or str(stage) not in str(problem.filename):
            raise
        # by the name that the file would have had
        raise OSError(problem.errno, problem.strerror, str(folder / Path(problem.filename).name)) from problem
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        held.close()
        for place in missing:
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()


def _write_maps_of_fit(
    folder: Path, maps: NDArray[Any], hemi: str | None, mesh_name: str, mask: ArrayLike | None
) -> None:
    names, used = numbered("component", len(maps)), None if mask is None else np.asarray(mask)
    for side, columns in _columns(hemi, maps.shape[1]):
        write_maps(folder / map_file(mesh_name, _COMPONENTS, side), maps[:, columns], side, names)
        if used is not None:
            write_maps(folder / map_file(mesh_name, _MASK, side), used[columns], side, ["mask"])
    if is_fs_lr(mesh_name):
        write_dscalar(folder / map_file(mesh_name, _DSCALAR), maps, str(hemi), names, used)


def _write_parcels_of_fit(
    folder: Path, maps: NDArray[Any], table: NDArray[Any], hemi: str | None, mesh_name: str, mask: ArrayLike | None
) -> None:
    names, colours = numbered("component", len(maps)), distinct_colours(len(maps))
    labels = winner_takes_all(maps, table, mask)
    for side, columns in _columns(hemi, maps.shape[1]):
        write_label_gii(folder / map_file(mesh_name, _LABELS, side), labels[columns], side, names, colours)
        write_annot(folder / map_file(mesh_name, _ANNOT, side), labels[columns], names, colours)
    sizes = np.bincount(labels, minlength=len(maps) + 1)[1:]
    hexadecimal = ["#{:02x}{:02x}{:02x}".format(*colour) for colour in colours]
    index = np.arange(1, len(maps) + 1)
    write_tsv(folder / _PARCELS, {"index": index, "name": names, "color": hexadecimal, "n_vertices": sizes})


def _columns(hemi: str | None, n: int) -> list[tuple[str, slice]]:
    """Hemispheres, and which columns of the maps are theirs."""
    sides = hemispheres(hemi)
    per_side = n // len(sides)
    return [(side, slice(i * per_side, (i + 1) * per_side)) for i, side in enumerate(sides)]


def _write_tables_of_fit(
    folder: Path, table: NDArray[Any], subjects: Sequence[str], participants: Mapping[str, ArrayLike] | None
) -> None:
    who = {"participant_id": list(subjects)}
    write_tsv(folder / _LOADINGS, {**who, **dict(zip(numbered("component", table.shape[1]), table.T, strict=True))})
    if participants:
        rest = {name: column for name, column in participants.items() if name != "participant_id"}
        write_tsv(folder / _PARTICIPANTS, {**who, **rest})


def _publish(stage: Path, folder: Path, names: Sequence[str], overwrite: bool) -> None:
    """Move the new files from the stage to the folder and the earlier fit's out of it; undo it all on any trouble."""
    # what was there before is kept beside the stage, which is removed whatever happens
    new, old = stage / "new", stage.with_name(f"{stage.name}-old")
    unwritten = [name for name in names if not (new / name).is_file()]
    if unwritten:
        raise FileNotFoundError(f"nothing was written for {unwritten[0]}")
    # again: writing takes a while, and another process may have written meanwhile
    folders = {str(Path(name).parent) for name in names} - {"."}
    check_folder(folder, [name for name in names if name == Path(name).name], overwrite, sorted(folders))
    # what says that the folder is a fit goes first and comes last
    names = sorted(names, key=lambda name: name == _DESCRIPTION)
    leaving = [name for name in {*names, *_files_of_earlier_fit(folder)} if (folder / name).is_file()]
    leaving.sort(key=lambda name: name != _DESCRIPTION)
    inner = folders | ({str(Path(name).parent) for name in leaving} - {"."})
    try:
        old.mkdir()
        for name in inner:
            (old / name).mkdir()
            (folder / name).mkdir(exist_ok=True)
        for name in leaving:
            os.replace(folder / name, old / name)
        for name in names:
            os.replace(new / name, folder / name)
    except BaseException:
        # where a file is tells whether it was moved; a list kept on the side could miss the move that was interrupted
        for name in names:
            if not (new / name).exists():
                os.replace(folder / name, new / name)
        for name in leaving:
            if (old / name).exists():
                os.replace(old / name, folder / name)
        if old.exists():
            shutil.rmtree(old, ignore_errors=True)
        _remove_empty(folder, inner)
        raise
    shutil.rmtree(old, ignore_errors=True)
    _remove_empty(folder, inner)


def _remove_empty(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        if (folder / name).is_dir() and not any((folder / name).iterdir()):
            (folder / name).rmdir()


def _files_of_earlier_fit(folder: Path) -> list[str]:
    """What icofactor says it wrote here; a description that is someone else's, or broken, names nothing."""
    try:
        description = read_json(folder / _DESCRIPTION)
        records = [record for record in description["GeneratedBy"] if record["Name"] == "icofactor"]
        listed = [name for record in records for name in record["Files"] if _is_inside(name)]
        linked = [name for name in _FOLDERS if (folder / name).is_symlink()]  # it may lead anywhere
        return [name for name in listed if name.rpartition("/")[0] not in linked]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _is_inside(name: Any) -> bool:
    """Whether this is the name of a file that lies in the fit's folder, or in one that a fit makes there."""
    folder, _, last = name.rpartition("/") if isinstance(name, str) else ("", "", name)
    return folder in ("", *_FOLDERS) and _is_plain(last)


def _is_plain(name: Any) -> bool:
    """Whether this is a file's own name, which cannot lead out of a folder."""
    return isinstance(name, str) and name == Path(name).name and name[:1] not in ("", ".") and len(name) <= _MAX_NAME


def _check_fit(
    maps: NDArray[Any],
    table: NDArray[Any],
    subjects: Sequence[str],
    hemi: str | None,
    mesh_name: str,
    mask: ArrayLike | None,
    participants: Mapping[str, ArrayLike] | None,
) -> None:
    n_sides = len(hemispheres(hemi))
    if maps.ndim != 2 or table.ndim != 2:
        raise ValueError(f"components and loadings must have two dimensions; got {maps.shape} and {table.shape}")
    if table.shape[1] != len(maps):
        raise ValueError(f"components holds {len(maps)} components; loadings has {table.shape[1]} columns")
    if len(subjects) != len(table):
        raise ValueError(f"loadings has {len(table)} rows; subjects has {len(subjects)} names")
    known = vertices_per_side(mesh_name)
    per_side = maps.shape[1] / n_sides if known is None else known
    if maps.shape[1] != per_side * n_sides or per_side % 1:
        expected = "an even number of columns" if known is None else f"{per_side} vertices per hemisphere"
        raise ValueError(
            f"mesh {mesh_name} with hemi={hemi!r} needs {expected}; components has {maps.shape[1]} columns"
        )
    if mask is not None and np.shape(mask) != (maps.shape[1],):
        raise ValueError(f"mask must have shape ({maps.shape[1]},), one entry per vertex; got {np.shape(mask)}")
    for name, column in (participants or {}).items():
        if np.shape(column) != (len(subjects),):
            raise ValueError(f"participants[{name!r}] must hold {len(subjects)} values; got {np.shape(column)}")
