"""Which reader a file needs; and whatever goes wrong in one, said with the file's name."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from icofactor.cohort.formats.arrays import read_npy, read_npz
from icofactor.cohort.formats.cifti import read_cifti
from icofactor.cohort.formats.common import Maps
from icofactor.cohort.formats.freesurfer import MORPH_MAGIC, SURFACE_MAGICS, read_mgh, read_morph
from icofactor.cohort.formats.gifti import read_gifti
from icofactor.errors import CohortError
from icofactor.reading.limits import Unreadable, check_regular, naming

MAP_ENDINGS = (
    ".dscalar.nii",
    ".dtseries.nii",
    ".func.gii",
    ".shape.gii",
    ".func.gii.gz",
    ".shape.gii.gz",
    ".mgh",
    ".mgz",
    ".mgh.gz",
    ".npy",
    ".npz",
)
_NO_MAPS = (".surf.gii", ".label.gii", ".annot", ".label", ".dlabel.nii", ".dconn.nii", ".nii.gz")
_OTHER_ENDINGS = (".gii", ".gii.gz", ".nii", ".curv")
_ACCEPTED = "MGH/MGZ, FreeSurfer morph, GIFTI (.gii), CIFTI-2 (.dscalar.nii, .dtseries.nii), .npy and .npz are read"


def is_map(path: Path) -> bool:
    """Whether a file's name is that of maps; FreeSurfer's morph files, which have no ending, do not count."""
    return path.name.endswith(MAP_ENDINGS) or (path.name.endswith(".gii") and not path.name.endswith(_NO_MAPS))


def without_ending(name: str) -> str:
    """A file's name without what names its format."""
    for ending in sorted((*MAP_ENDINGS, *_OTHER_ENDINGS), key=len, reverse=True):
        if name.lower().endswith(ending):
            return name[: -len(ending)]
    return name


def reading(path: Path, what: str = "file of maps") -> AbstractContextManager[None]:
    """Whatever goes wrong inside becomes a CohortError that names the file."""
    return naming(path, what, CohortError)


def read_maps(path: str | Path, measure: str | None = None) -> Maps:
    """The maps of one file of any of the formats.

    Parameters
    ----------
    path : the file.
    measure : which array of an npz archive to read, where there are several.

    Raises
    ------
    CohortError, with the file's name, whatever is wrong with it.
    """
    path = Path(path)
    with reading(path):
        check_regular(path)
        if path.stat().st_size == 0:
            raise Unreadable("is empty")
        name = path.name.lower()
        if name.endswith((".gii", ".gii.gz")):
            return read_gifti(path)
        if name.endswith(".nii"):
            return read_cifti(path)
        if name.endswith((".mgh", ".mgz", ".mgh.gz")):
            return read_mgh(path)
        if name.endswith(".npy"):
            return read_npy(path)
        if name.endswith(".npz"):
            return read_npz(path, measure)
        return _read_unnamed(path)


def _read_unnamed(path: Path) -> Maps:
    """FreeSurfer's own files have no ending; their first bytes tell."""
    with path.open("rb") as file:
        magic = file.read(3)
    if magic == MORPH_MAGIC:
        return read_morph(path)
    if magic in SURFACE_MAGICS:
        raise Unreadable("is a surface (points and triangles), not a map")
    if path.name.endswith(_NO_MAPS):
        raise Unreadable(f"is not a file of maps; {_ACCEPTED}")
    raise Unreadable(f"has an unknown format; {_ACCEPTED}")
