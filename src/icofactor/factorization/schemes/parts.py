"""parts: projective factorization of deviations from the mean map, with hard starts (method.md
§10).

Each start is a partition of the faces: orthogonal non-negative factorization is a weighted
spherical k-means over the faces' profiles (Pompili et al.), and a sweep of it is two products for
all starts together. Partitions are softened, because a zero that no other part touches moves
slowly, and then follow the gradient (`projective.descend`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from icofactor.factorization.arrays import Array
from icofactor.factorization.extrapolation import EXTRAPOLATIONS, Extrapolation
from icofactor.factorization.schemes.base import Problem, SchemeText, Terms
from icofactor.factorization.schemes.projective import YANG_OJA, ProjectiveNMF, descend
from icofactor.streaming.runners import SHORT, in_order

SOFTNESS = 0.05
"""What a face of another part keeps of its own fit to a part, relative to the faces of that part.
"""
HARD_GROUP = 25
"""Hard starts that one processor makes together; whatever the machine, so that bits stay."""
HARD_SWEEPS = 10
"""Most sweeps of a hard start: more of them lead to no lower objective after the updates that
follow.
"""

_POMPILI = (
    "Pompili F, Gillis N, Absil P-A, Glineur F. Two algorithms for orthogonal nonnegative matrix factorization with "
    "application to clustering. Neurocomputing 141, 15-25 (2014)."
)
_SOTIRAS = (
    "Sotiras A, Resnick SM, Davatzikos C. Finding imaging patterns of structural covariance via non-negative matrix "
    "factorization. NeuroImage 108, 1-16 (2015)."
)


class Parts(ProjectiveNMF):
    """min ‖X̃ − DBBᵀDᵀX̃‖² over B ≥ 0, X̃ the deviations from the mean map: maps are parts,
    loadings are signed.
    """

    name = "parts"
    text = SchemeText(
        "projective non-negative matrix factorization",
        "‖X − WWᵀX‖² subject to W ≥ 0",
        (YANG_OJA, _SOTIRAS),
        "by projected gradient steps with an exact line search",
        starts="partitions of the faces by weighted spherical k-means",
        start_references=(_POMPILI,),
    )
    centers = ("mean", "none", "zscore")
    signed_data = signed_loadings = True
    scaled = True
    in_paper = False
    extrapolations: Mapping[str, Extrapolation | None] = MappingProxyType(
        {"": EXTRAPOLATIONS["E-"]}
    )
    plain_updates = 1
    kernel: str | None = "descent"
    n_starts, n_finished = 50, 10
    plateau, first_look = False, 20
    refined = False  # finer faces change what the lift finds by less than 0.001 of the variance

    def draw(
        self,
        rng: np.random.Generator,
        L: np.ndarray,
        row_sums: np.ndarray,
        n_components: int,
        literal: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        B, C = self.draw_many([rng], L, row_sums, n_components, literal)
        return B[0], C[0]

    def draw_many(
        self,
        streams: Sequence[np.random.Generator],
        L: np.ndarray,
        row_sums: np.ndarray,
        n_components: int,
        literal: bool,
        n_best: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Hard starts, softened: B of unit columns in the metric of the faces' sizes."""
        root = np.sqrt(np.maximum(row_sums, 0.0))
        held = root > 0
        # of values ≥ 0 all profiles are nearly the mean; it is in how they deviate from it that
        # faces differ
        deviations = L if (L < 0).any() else L - L.mean(axis=0)
        profiles = np.where(held, deviations / np.where(held, root, 1.0), 0.0).T
        if n_best is None:
            profiles = np.ascontiguousarray(profiles)
        else:  # to tell the best from the others float32 will do, and only directions count
            profiles = np.array(profiles / (np.abs(profiles).max() or 1.0), np.float32, order="C")
        draws = np.stack([rng.random(n_components) for rng in streams])
        groups = [draws[i : i + HARD_GROUP] for i in range(0, len(draws), HARD_GROUP)]
        one = lambda some: soften(*_best(*hard_parts(profiles, some), n_best))
        workers = 1 if L.size < SHORT else None
        B = np.concatenate(list(in_order(one, groups, workers))).astype(np.float64, copy=False)
        B[:, held] /= root[held, None]
        return B, np.swapaxes(B, 1, 2) @ L.T

    def update_B(self, p: Problem, B: Array, C: Array, t: Terms) -> Array:
        return descend(p, B, C, t)


def hard_parts(
    profiles: np.ndarray, draws: np.ndarray, sweeps: int = HARD_SWEEPS
) -> tuple[np.ndarray, np.ndarray]:
    """Partitions of faces by weighted spherical k-means, one per row of `draws`.

    Face k with profile y_k over subjects belongs to the part whose unit profile c_j has the largest
    (c_jᵀy_k)₊; c_j is the direction of Σ (c_jᵀy_k)₊ y_k over the faces of the part. Both steps
    raise Σ_k max_j (c_jᵀy_k)₊².

    Parameters
    ----------
    profiles : (n_faces, n_subjects) y, each divided by the root of the face's size
    draws : (n_starts, n_parts) numbers in [0, 1), by which the first faces are chosen (k-means++)
    sweeps : at most

    Returns
    -------
    fit : (n_starts, n_parts, n_faces) (c_jᵀy_k)₊
    own : (n_starts, n_faces) the part of each face
    """
    energy = np.einsum("ij,ij->i", profiles, profiles)
    centres = _spread_seeds(profiles, energy, draws)
    return hard_sweeps(profiles, energy, centres, sweeps)


def hard_sweeps(
    profiles: np.ndarray, energy: np.ndarray, centres: np.ndarray, sweeps: int
) -> tuple[np.ndarray, np.ndarray]:
    """`hard_parts` from the first unit profiles; `energy` is ‖y_k‖²."""
    n_starts, n_parts = centres.shape[:2]
    fit, own = (
        np.zeros((n_starts, n_parts, len(profiles)), profiles.dtype),
        np.full((n_starts, len(profiles)), -1),
    )
    going = np.arange(n_starts)  # a start ends when its own partition stays, whatever the others do
    for _ in range(sweeps):
        flat = centres.reshape(len(going) * n_parts, -1)
        fits = np.maximum(flat @ profiles.T, 0.0).reshape(len(going), n_parts, -1)
        parts = fits.argmax(axis=1)
        moved = (parts != own[going]).any(axis=1)
        fit[going], own[going] = fits, parts
        going, fits, parts = going[moved], fits[moved], parts[moved]
        if not len(going):
            break
        best = np.take_along_axis(fits, parts[:, None], axis=1)
        weights = np.where(np.arange(n_parts)[None, :, None] == parts[:, None], best, 0.0)
        centres = (weights.reshape(len(going) * n_parts, -1) @ profiles).reshape(
            len(going), n_parts, -1
        )
        size = np.linalg.norm(centres, axis=2)
        for start, part in np.argwhere(
            size == 0
        ):  # an empty part begins again at the face that is fitted worst
            worst = int(np.argmax(energy - best[start, 0] ** 2))
            best[start, 0, worst] = np.sqrt(energy[worst])
            centres[start, part], size[start, part] = profiles[worst], np.sqrt(energy[worst])
        centres /= np.where(size > 0, size, 1.0)[..., None]
    return fit, own


def _best(fit: np.ndarray, own: np.ndarray, n: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The n partitions that explain most, in their order; None: all."""
    if n is None or n >= len(fit):
        return fit, own
    few = np.sort(np.argsort(-np.square(fit.max(axis=1)).sum(axis=1), kind="stable")[:n])
    return fit[few], own[few]


def _spread_seeds(profiles: np.ndarray, energy: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """First unit profiles: faces drawn with a probability of what the ones before leave of their
    energy.
    """
    n_starts, n_parts = draws.shape
    centres = np.zeros((n_starts, n_parts, profiles.shape[1]), profiles.dtype)
    left = np.tile(energy, (n_starts, 1))
    for j in range(n_parts):
        total = np.cumsum(left, axis=1)
        spent = total[:, -1] <= 1e-12 * energy.sum()  # nothing is left: any face will do
        total[spent] = np.arange(1, len(profiles) + 1)
        picked = (total <= draws[:, j, None] * total[:, -1:]).sum(axis=1).clip(0, len(profiles) - 1)
        size = np.sqrt(energy[picked])
        centres[:, j] = profiles[picked] / np.where(size > 0, size, 1.0)[:, None]
        fit = centres[:, j] @ profiles.T
        np.square(np.maximum(fit, 0.0, out=fit), out=fit)
        np.minimum(left, np.maximum(np.subtract(energy, fit, out=fit), 0.0, out=fit), out=left)
    return centres


def soften(fit: np.ndarray, own: np.ndarray, softness: float = SOFTNESS) -> np.ndarray:
    """Hard parts as (n_starts, n_faces, n_parts) maps of unit norm, a little of each outside its
    own faces.
    """
    mine = np.arange(fit.shape[1])[None, :, None] == own[:, None]
    maps = np.where(mine, fit, softness * fit)
    size = np.linalg.norm(maps, axis=2, keepdims=True)
    return np.swapaxes(maps / np.where(size > 0, size, 1.0), 1, 2)
