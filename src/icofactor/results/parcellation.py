"""The winner-takes-all parcellation of a fit: each site belongs to the component that carries most there."""

from __future__ import annotations

import colorsys

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icofactor.io.freesurfer import _UNKNOWN

_GOLDEN = 0.6180339887498949


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
