"""Writers of results: GIFTI maps, TSV tables and JSON, whole or not at all.

`write_fit` fills a folder as a BIDS derivative of a group:

    dataset_description.json                                         DatasetType "derivative", GeneratedBy with Files
    hemi-L_space-fsaverage_den-10k_desc-icofactor_components.shape.gii   one map per component
    hemi-R_space-fsaverage_den-10k_desc-icofactor_components.shape.gii   (for two hemispheres)
    hemi-L_space-fsaverage_den-10k_desc-icofactor_mask.shape.gii         1 where a vertex was used (with a mask)
    desc-icofactor_loadings.tsv                                      participant_id, component01, component02, ...
    participants.tsv                                                 (when anything is known about them)
    provenance.json
    (and what the caller adds)

"Files" names everything written together, so that overwriting can remove what an earlier fit wrote and this one does
not. Meshes other than fsaverage's have their own name as space and no density.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.cohort.tables import write_json, write_tsv
from icofactor.files import atomic_path, check_target

_STRUCTURES = {"left": "CortexLeft", "right": "CortexRight"}
_HEMI_LABELS = {"left": "L", "right": "R"}
# BIDS and TemplateFlow name the densities of fsaverage so; the two coarsest have no such name.
_DENSITIES = {3: "642", 4: "3k", 5: "10k", 6: "41k", 7: "164k"}
_BIDS_VERSION = "1.10.0"
_LOADINGS, _PARTICIPANTS, _PROVENANCE = "desc-icofactor_loadings.tsv", "participants.tsv", "provenance.json"
_DESCRIPTION = "dataset_description.json"


def write_maps(
    path: str | Path,
    maps: ArrayLike,
    hemi: str,
    names: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Maps on the vertices of one hemisphere, as GIFTI: one float32 array per map.

    Parameters
    ----------
    path : must end with ".gii"; ".shape.gii" or ".func.gii" is what other tools expect.
    maps : (n_maps, n_vertices), or (n_vertices,) for a single map.
    hemi : "left" or "right".
    names : one per map; "map01", ... when None.
    metadata : further entries for the file's own metadata.
    """
    if not str(path).endswith(".gii"):
        raise ValueError(f'path must end with ".gii"; got {str(path)!r}')
    if hemi not in _STRUCTURES:
        raise ValueError(f'hemi must be "left" or "right", one file per hemisphere; got {hemi!r}')
    values = np.atleast_2d(np.asarray(maps, dtype=np.float32))
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"maps must have shape (n_maps, n_vertices); got {np.shape(maps)}")
    labels = _numbered("map", len(values)) if names is None else list(names)
    if len(labels) != len(values):
        raise ValueError(f"maps holds {len(values)} maps; names has {len(labels)} entries")
    import nibabel as nib

    arrays = [
        nib.gifti.GiftiDataArray(
            np.ascontiguousarray(row),
            intent="NIFTI_INTENT_SHAPE",
            datatype="NIFTI_TYPE_FLOAT32",
            meta=nib.gifti.GiftiMetaData({"Name": str(label)}),
        )
        for row, label in zip(values, labels, strict=True)
    ]
    meta = {"AnatomicalStructurePrimary": _STRUCTURES[hemi], **(metadata or {})}
    image = nib.gifti.GiftiImage(darrays=arrays, meta=nib.gifti.GiftiMetaData({k: str(v) for k, v in meta.items()}))
    with atomic_path(path, overwrite) as temporary:
        nib.save(image, temporary)
    return Path(path)


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
    hemi: str | None, mesh_name: str, *, mask: bool, participants: bool, extras: Sequence[str] = ()
) -> list[str]:
    """Names of all files that `write_fit` writes, known before there is a fit.

    Parameters
    ----------
    mask, participants : whether there is a mask, and anything known about the participants.
    extras : names of the further files.
    """
    kinds = ("components", "mask") if mask else ("components",)
    maps = [_map_file(side, mesh_name, kind) for side in _sides(hemi) for kind in kinds]
    tables = [_LOADINGS, _PARTICIPANTS] if participants else [_LOADINGS]
    own = [*maps, *tables, _PROVENANCE, _DESCRIPTION]
    for name in extras:
        if name in own or not _is_plain(name):
            raise ValueError(f"extras must be plain names that the fit does not use itself; got {name!r}")
    return sorted([*own, *extras])


def check_folder(folder: str | Path, names: Sequence[str], overwrite: bool = False) -> None:
    """Refuse a folder where files of these names cannot or may not be written; look only, make nothing."""
    folder = Path(folder)
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"{there} is a file; a folder is to be written there")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"{there} is not writable")
    if folder.is_dir():
        for name in names:
            check_target(folder / name, overwrite)


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
    extras: Mapping[str, Callable[[Path], object]] | None = None,
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
    extras : name of a further file → what writes it to the path it is called with.
    overwrite : whether to replace an earlier fit: all of its files go, also those the new one has no counterpart of.

    Returns
    -------
    The files written.
    """
    maps, table = np.asarray(components), np.asarray(loadings)
    _check_fit(maps, table, subjects, hemi, mesh_name, mask, participants)
    folder, extras = Path(out_dir), extras or {}
    names = fit_files(hemi, mesh_name, mask=mask is not None, participants=bool(participants), extras=list(extras))
    check_folder(folder, names, overwrite)
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    stage = folder / f".tmp-{secrets.token_hex(4)}"
    try:
        new = stage / "new"
        new.mkdir(parents=True)
        _write_maps_of_fit(new, maps, hemi, mesh_name, mask)
        _write_tables_of_fit(new, table, subjects, participants)
        write_json(new / _PROVENANCE, provenance or {})
        for name, write in extras.items():
            write(new / name)
        write_dataset_description(new, "Factorization of cortical maps", generated_by={"Files": names})
        _publish(stage, folder, names, overwrite)
        return [folder / name for name in names]
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        for place in missing:
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()


def _write_maps_of_fit(
    folder: Path, maps: NDArray[Any], hemi: str | None, mesh_name: str, mask: ArrayLike | None
) -> None:
    sides = _sides(hemi)
    names = _numbered("component", len(maps))
    used = None if mask is None else np.asarray(mask)
    n = maps.shape[1] // len(sides)
    for number, side in enumerate(sides):
        columns = slice(number * n, (number + 1) * n)
        write_maps(folder / _map_file(side, mesh_name, "components"), maps[:, columns], side, names)
        if used is not None:
            write_maps(folder / _map_file(side, mesh_name, "mask"), used[columns], side, ["mask"])


def _write_tables_of_fit(
    folder: Path, table: NDArray[Any], subjects: Sequence[str], participants: Mapping[str, ArrayLike] | None
) -> None:
    who = {"participant_id": list(subjects)}
    write_tsv(folder / _LOADINGS, {**who, **dict(zip(_numbered("component", table.shape[1]), table.T, strict=True))})
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
    check_folder(folder, names, overwrite)
    leaving = [name for name in {*names, *_files_of_earlier_fit(folder)} if (folder / name).is_file()]
    try:
        old.mkdir()
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
            old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)


def _files_of_earlier_fit(folder: Path) -> list[str]:
    """What icofactor says it wrote here; a description that is someone else's, or broken, names nothing."""
    try:
        description = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
        records = [record for record in description["GeneratedBy"] if record["Name"] == "icofactor"]
        return [name for record in records for name in record["Files"] if _is_plain(name)]
    except (OSError, ValueError, LookupError, TypeError):
        return []


def _is_plain(name: Any) -> bool:
    """Whether this is a file's own name, which cannot lead out of a folder."""
    return isinstance(name, str) and name == Path(name).name and name[:1] not in ("", ".")


def _sides(hemi: str | None) -> tuple[str, ...]:
    if hemi is None:
        raise ValueError("hemi is not known: pass hemi='left' or 'right' (to the estimator, or here)")
    if hemi not in ("left", "right", "both"):
        raise ValueError(f'hemi must be "left", "right" or "both"; got {hemi!r}')
    return ("left", "right") if hemi == "both" else (hemi,)


def _map_file(side: str, mesh_name: str, kind: str) -> str:
    return f"hemi-{_HEMI_LABELS[side]}_{_space(mesh_name)}_desc-icofactor_{kind}.shape.gii"


def _check_fit(
    maps: NDArray[Any],
    table: NDArray[Any],
    subjects: Sequence[str],
    hemi: str | None,
    mesh_name: str,
    mask: ArrayLike | None,
    participants: Mapping[str, ArrayLike] | None,
) -> None:
    n_sides = len(_sides(hemi))
    if maps.ndim != 2 or table.ndim != 2:
        raise ValueError(f"components and loadings must have two dimensions; got {maps.shape} and {table.shape}")
    if table.shape[1] != len(maps):
        raise ValueError(f"components holds {len(maps)} components; loadings has {table.shape[1]} columns")
    if len(subjects) != len(table):
        raise ValueError(f"loadings has {len(table)} rows; subjects has {len(subjects)} names")
    level = _fsaverage_level(mesh_name)
    per_side = maps.shape[1] / n_sides if level is None else 10 * 4**level + 2
    if maps.shape[1] != per_side * n_sides or per_side % 1:
        expected = "an even number of columns" if level is None else f"{per_side} vertices per hemisphere"
        raise ValueError(
            f"mesh {mesh_name} with hemi={hemi!r} needs {expected}; components has {maps.shape[1]} columns"
        )
    if mask is not None and np.shape(mask) != (maps.shape[1],):
        raise ValueError(f"mask must have shape ({maps.shape[1]},), one entry per vertex; got {np.shape(mask)}")
    for name, column in (participants or {}).items():
        if np.shape(column) != (len(subjects),):
            raise ValueError(f"participants[{name!r}] must hold {len(subjects)} values; got {np.shape(column)}")


def _fsaverage_level(mesh_name: str) -> int | None:
    found = re.fullmatch(r"fsaverage([3-7]?)(-[AB])?", mesh_name)
    return None if found is None else int(found[1] or 7)


def _space(mesh_name: str) -> str:
    """BIDS entities of a mesh: space and, for fsaverage, density."""
    level = _fsaverage_level(mesh_name)
    if level is not None:
        return f"space-fsaverage_den-{_DENSITIES[level]}"
    label = re.sub(r"[^0-9A-Za-z]", "", mesh_name)
    if not label:
        raise ValueError(f"mesh_name must hold letters or digits, for the names of the files; got {mesh_name!r}")
    return f"space-{label}"


def _numbered(word: str, n: int) -> list[str]:
    width = max(2, len(str(n)))
    return [f"{word}{i + 1:0{width}d}" for i in range(n)]
