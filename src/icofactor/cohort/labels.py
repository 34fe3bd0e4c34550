"""The winner-takes-all parcellation of a fit: each site belongs to the component that carries most there."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.cohort.gifti import check_labels
from icofactor.files import atomic_path

_GOLDEN = 0.6180339887498949
# FreeSurfer's own colour of what is unknown.
_UNKNOWN = (25, 5, 25)


def winner_takes_all(
    components: ArrayLike, loadings: ArrayLike | None = None, mask: ArrayLike | None = None
) -> NDArray[np.int32]:
    """The component that carries most at each site: the largest |w_jv|·rms(c_j).

    Parameters
    ----------
    components : (k, n_sites) basis maps w.
    loadings : (n_subjects, k) loadings c; None counts every component alike, as its map stands.
    mask : (n_sites,) bool, True where a site is used.

    Returns
    -------
    (n_sites,) 1 to k; 0 where masked, or where all components are zero.
    """
    maps = np.abs(np.asarray(components))
    if loadings is not None:
        # loadings of the projective methods have no scale of their own; for others this is 1
        maps = maps * np.sqrt(np.mean(np.square(np.asarray(loadings, dtype=np.float64)), axis=0))[:, None]
    winner = 1 + np.argmax(maps, axis=0)
    winner[maps.max(axis=0) == 0] = 0
    if mask is not None:
        winner[~np.asarray(mask)] = 0
    return winner.astype(np.int32)


def distinct_colours(n: int) -> NDArray[np.uint8]:
    """n colours (n, 3), all different, neighbours far apart: hues by the golden section, three depths in turn."""
    chosen: list[tuple[int, int, int]] = []
    step = 0
    while len(chosen) < n:
        saturation, value = ((0.75, 0.95), (0.55, 0.75), (0.95, 0.65))[step % 3]
        red, green, blue = colorsys.hsv_to_rgb(step * _GOLDEN % 1, saturation, value)
        colour = (round(255 * red), round(255 * green), round(255 * blue))
        if colour not in (*chosen, _UNKNOWN):
            chosen.append(colour)
        step += 1
    return np.array(chosen, dtype=np.uint8).reshape(n, 3)


def write_annot(
    path: str | Path,
    labels: ArrayLike,
    names: Sequence[str],
    colours: ArrayLike,
    *,
    overwrite: bool = False,
) -> Path:
    """A parcellation of one hemisphere as FreeSurfer's annotation; label 0 is "unknown".

    Parameters
    ----------
    path : must end with ".annot".
    labels : (n_vertices,) 0, or the number of the parcel.
    names, colours : of the parcels 1, 2, ...; colours are (n_parcels, 3), 0 to 255.
    """
    if not str(path).endswith(".annot"):
        raise ValueError(f'path must end with ".annot"; got {str(path)!r}')
    from nibabel.freesurfer import write_annot as write

    values, rgb = check_labels(labels, names, colours)
    table = np.zeros((len(names) + 1, 5), dtype=np.int32)
    table[:, :3] = np.concatenate([[_UNKNOWN], rgb])
    with atomic_path(path, overwrite) as temporary:
        write(str(temporary), values, table, ["unknown", *map(str, names)], fill_ctab=True)
    return Path(path)
