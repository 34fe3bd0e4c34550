"""The winner-takes-all parcellation of a fit: each site belongs to the component that carries most there."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


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
