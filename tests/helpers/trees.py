"""Files and trees of files that imitate those people have, written from arrays (subjects × vertices).

Every writer takes `maps`: {"left": (n_subjects, n_vertices), "right": ...}, one or both hemispheres. `hemispheres`
cuts an array of left and right columns into such a dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.cifti2 import BrainModelAxis, ScalarAxis, SeriesAxis

Maps = Mapping[str, np.ndarray]
_PREFIX = {"left": "lh", "right": "rh"}
_LETTER = {"left": "L", "right": "R"}
_STRUCTURES = {"left": "CortexLeft", "right": "CortexRight"}
_CIFTI = {"left": "CIFTI_STRUCTURE_CORTEX_LEFT", "right": "CIFTI_STRUCTURE_CORTEX_RIGHT"}


def names(n: int, form: str = "sub-{:03d}") -> list[str]:
    """Names of n subjects."""
    return [form.format(i + 1) for i in range(n)]


def hemispheres(X: np.ndarray) -> dict[str, np.ndarray]:
    """Columns by hemisphere."""
    half = X.shape[1] // 2
    return {"left": X[:, :half], "right": X[:, half:]}


def write_mgh(path: Path, maps: np.ndarray) -> Path:
    """One file of (V, 1, 1, n); compressed when the name says so."""
    rows = np.atleast_2d(np.asarray(maps, dtype=np.float32))
    data = rows.T[:, None, None, :] if len(rows) > 1 else rows.T[:, None, :]
    nib.save(nib.MGHImage(np.ascontiguousarray(data), np.eye(4)), path)
    return path


def write_morph(path: Path, values: np.ndarray) -> Path:
    """A FreeSurfer morph file such as lh.thickness."""
    nib.freesurfer.write_morph_data(path, np.asarray(values, dtype=np.float32))
    return path


def write_gifti(
    path: Path,
    maps: np.ndarray,
    side: str | None = "left",
    map_names: Sequence[str] | None = None,
    intent: str = "NIFTI_INTENT_SHAPE",
    encoding: str = "GIFTI_ENCODING_B64GZ",
) -> Path:
    """One GIFTI array per map; `side` goes to the metadata."""
    rows = np.atleast_2d(np.asarray(maps, dtype=np.float32))
    labels = map_names or [f"map {i + 1}" for i in range(len(rows))]
    arrays = [
        nib.gifti.GiftiDataArray(
            np.ascontiguousarray(row),
            intent=intent,
            datatype="NIFTI_TYPE_FLOAT32",
            encoding=encoding,
            meta=nib.gifti.GiftiMetaData({"Name": label}),
        )
        for row, label in zip(rows, labels, strict=True)
    ]
    meta = {} if side is None else {"AnatomicalStructurePrimary": _STRUCTURES[side]}
    nib.save(nib.gifti.GiftiImage(darrays=arrays, meta=nib.gifti.GiftiMetaData(meta)), path)
    return path


def write_surface(path: Path, coordinates: np.ndarray, triangles: np.ndarray) -> Path:
    """A GIFTI surface, e.g. a sphere."""
    arrays = [
        nib.gifti.GiftiDataArray(
            np.asarray(coordinates, np.float32), "NIFTI_INTENT_POINTSET", "NIFTI_TYPE_FLOAT32"
        ),
        nib.gifti.GiftiDataArray(
            np.asarray(triangles, np.int32), "NIFTI_INTENT_TRIANGLE", "NIFTI_TYPE_INT32"
        ),
    ]
    nib.save(nib.gifti.GiftiImage(darrays=arrays), path)
    return path


def write_cifti(
    path: Path,
    maps: Maps,
    cortex: Mapping[str, np.ndarray] | None = None,
    map_names: Sequence[str] | None = None,
    step: float | None = None,
) -> Path:
    """A dscalar, or a dtseries with `step` seconds between volumes.

    Parameters
    ----------
    maps : hemisphere → (n_maps, n_vertices).
    cortex : hemisphere → vertices that the file holds; all when None.
    """
    models, blocks = [], []
    for side, rows in maps.items():
        used = np.ones(rows.shape[1], dtype=bool) if cortex is None else cortex[side]
        models.append(BrainModelAxis.from_mask(used, name=_CIFTI[side]))
        blocks.append(np.atleast_2d(rows)[:, used])
    data = np.concatenate(blocks, axis=1).astype(np.float32)
    axis = models[0] if len(models) == 1 else models[0] + models[1]
    labels = map_names or [f"map {i + 1}" for i in range(len(data))]
    first = ScalarAxis(labels) if step is None else SeriesAxis(0, step, len(data))
    image = nib.Cifti2Image(data, (first, axis))
    image.nifti_header.set_intent("ConnDenseScalar" if step is None else "ConnDenseSeries")
    nib.save(image, path)
    return path


def freesurfer_tree(
    root: Path,
    subjects: Sequence[str],
    maps: Maps,
    measure: str = "thickness",
    smoothing: int | None = 10,
    target: str = "fsaverage5",
    ending: str = "mgh",
) -> Path:
    """A SUBJECTS_DIR with SUBJECT/surf/lh.thickness.fwhm10.fsaverage5.mgh, as recon-all -qcache makes them."""
    smoothed = "" if smoothing is None else f".fwhm{smoothing}"
    for side, rows in maps.items():
        for subject, row in zip(subjects, rows, strict=True):
            surf = root / subject / "surf"
            surf.mkdir(parents=True, exist_ok=True)
            write_mgh(surf / f"{_PREFIX[side]}.{measure}{smoothed}.{target}.{ending}", row)
    return root


def gifti_files(
    folder: Path, subjects: Sequence[str], maps: Maps, form: str = "{subject}_hemi-{hemi}_thickness"
) -> Path:
    """One shape.gii per subject and hemisphere."""
    folder.mkdir(parents=True, exist_ok=True)
    for side, rows in maps.items():
        for subject, row in zip(subjects, rows, strict=True):
            write_gifti(
                folder / f"{form.format(subject=subject, hemi=_LETTER[side])}.shape.gii", row, side
            )
    return folder


def cifti_files(
    folder: Path,
    subjects: Sequence[str],
    maps: Maps,
    cortex: Mapping[str, np.ndarray] | None = None,
    form: str = "{subject}_thickness",
) -> Path:
    """One dscalar per subject, with both hemispheres where there are two."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{form.format(subject=subject)}.dscalar.nii" for subject in subjects]
    whole = write_cifti(
        paths[0], {side: rows[:1] for side, rows in maps.items()}, cortex
    ).read_bytes()
    used = {
        side: np.ones(rows.shape[1], dtype=bool) if cortex is None else cortex[side]
        for side, rows in maps.items()
    }
    n = sum(int(inside.sum()) for inside in used.values())
    # nibabel takes a while over the XML, which is the same in all files
    for i, path in enumerate(paths):
        row = np.concatenate([rows[i, used[side]] for side, rows in maps.items()]).astype("<f4")
        path.write_bytes(whole[: len(whole) - 4 * n] + row.tobytes())
    return folder


def write_npz(path: Path, subjects: Sequence[str], maps: Maps, **columns: np.ndarray) -> Path:
    """subjects × vertices, left columns first, with names and whatever else there is one of per subject."""
    np.savez_compressed(
        path, X=np.concatenate(list(maps.values()), axis=1), subjects=np.array(subjects), **columns
    )
    return path


def hcp_tree(
    root: Path,
    subjects: Sequence[str],
    maps: Maps,
    cortex: Mapping[str, np.ndarray] | None = None,
    measure: str = "MyelinMap_BC_MSMAll",
    sphere: tuple[np.ndarray, np.ndarray] | None = None,
) -> Path:
    """SUBJECT/MNINonLinear/fsaverage_LR32k with a dscalar, and the spheres when given (coordinates, triangles)."""
    for i, subject in enumerate(subjects):
        folder = root / subject / "MNINonLinear" / "fsaverage_LR32k"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{subject}.{measure}.32k_fs_LR.dscalar.nii"
        write_cifti(
            path,
            {side: rows[i : i + 1] for side, rows in maps.items()},
            cortex,
            [f"{subject}_{measure}"],
        )
        for letter in "LR" if sphere is not None else "":
            write_surface(folder / f"{subject}.{letter}.sphere.32k_fs_LR.surf.gii", *sphere)  # type: ignore[misc]
    return root


def fmriprep_tree(
    root: Path,
    subjects: Sequence[str],
    maps: Maps,
    entities: str = "task-rest",
    space: str = "space-fsaverage5",
    suffix: str = "stat-reho_boldmap.shape",
) -> Path:
    """sub-01/func/sub-01_task-rest_hemi-L_space-fsaverage5_stat-reho_boldmap.shape.gii, for each hemisphere."""
    (root / "logs").mkdir(parents=True, exist_ok=True)
    (root / "dataset_description.json").write_text(
        '{"Name": "fMRIPrep", "DatasetType": "derivative"}'
    )
    for side, rows in maps.items():
        for subject, row in zip(subjects, rows, strict=True):
            folder = root / subject / "func"
            folder.mkdir(parents=True, exist_ok=True)
            write_gifti(
                folder / f"{subject}_{entities}_hemi-{_LETTER[side]}_{space}_{suffix}.gii",
                row,
                side,
            )
    return root
