"""The three kinds of columns: what one face looks like on the sites (method.md §5).

`partition` and `exponential` columns do not depend on each other; `smooth` ones are exponential columns divided
by their row sums, which `Design` does once all of them are known.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.spatial import KDTree

from icofactor.sphere import Sites

KINDS = ("partition", "exponential", "smooth")
DEFAULT_SIGMA = {"partition": None, "exponential": 0.015, "smooth": 0.1}
DEFAULT_TAU = 3.0


def partition_columns(site_column: np.ndarray, n_columns: int) -> sp.csc_array:
    """Indicators: 1 on the sites located in the face, 0 elsewhere."""
    rows = np.flatnonzero(site_column >= 0)
    return sp.csc_array((np.ones(len(rows)), (rows, site_column[rows])), shape=(len(site_column), n_columns))


def exponential_columns(sites: Sites, faces: np.ndarray, sigma: float, tau: float) -> sp.csc_array:
    """f(x) = exp(−θ/πσ) for θ ≤ πστ, else 0, with θ the angle to the face's centre; σ halves per level."""
    centres = sites.face_centres(faces[:, 0], faces[:, 1])
    hemispheres = sites.face_hemisphere(faces[:, 0], faces[:, 1])
    scale = np.pi * sigma / 2.0 ** faces[:, 0]
    radius = np.minimum(scale * tau, np.pi)
    # a chord of length 2 sin(θ/2) spans the angle θ: near points first, the exact test after
    chord = 2 * np.sin(radius / 2) * (1 + 1e-9) + 1e-12
    rows, cols, values = [], [], []
    for hemisphere in np.unique(hemispheres):
        members = np.flatnonzero(sites.hemisphere == hemisphere)
        asked = np.flatnonzero(hemispheres == hemisphere)
        if not len(members):
            continue
        tree = KDTree(sites.coordinates[members])
        near = tree.query_ball_point(centres[asked], chord[asked])
        for column, found in zip(asked, near, strict=True):
            at = members[np.sort(np.asarray(found, dtype=np.int64))]
            half_chord = np.linalg.norm(sites.coordinates[at] - centres[column], axis=1) / 2
            theta = 2 * np.arcsin(np.minimum(half_chord, 1.0))  # arccos⟨x_o, x⟩, exact near 0 too
            inside = theta <= radius[column]
            rows.append(at[inside])
            cols.append(np.full(int(inside.sum()), column))
            values.append(np.exp(-theta[inside] / scale[column]))
    if not rows:
        return sp.csc_array((sites.n, len(faces)))
    data = (np.concatenate(values), (np.concatenate(rows), np.concatenate(cols)))
    return sp.csc_array(data, shape=(sites.n, len(faces)))
