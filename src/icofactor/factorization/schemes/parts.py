"""parts: projective factorization of deviations from the mean map, from hard starts.

Each start is a partition of the faces: orthogonal non-negative factorization is a weighted
spherical k-means over the faces' profiles (Pompili et al.), and a sweep of it is two products for
all starts together. Partitions are softened, because a zero that no other part touches moves
slowly, and then follow the gradient (`projective.descend`).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from icofactor.factorization.arrays import Array, matmul_shared
from icofactor.factorization.extrapolation import NESTEROV
from icofactor.factorization.schemes.base import (
    Factors,
    Problem,
    SchemeText,
    Terms,
    quotient,
)
from icofactor.factorization.schemes.projective import (
    YANG_OJA,
    ProjectiveNMF,
    descend,
)
from icofactor.maps.workers import SHORT, in_order

# How well a part of a start fits the faces of other parts, relative to its own faces.
SOFTNESS = 0.05
# Hard starts that one processor makes together. The same on every machine, so that results are the
# same to the last bit.
STARTS_PER_TASK = 25
# Sweeps of a hard start, at most. More of them lead to no lower objective after the updates that
# follow.
HARD_SWEEPS = 10

_POMPILI = (
    "Pompili F, Gillis N, Absil P-A, Glineur F. Two algorithms for orthogonal nonnegative matrix "
    "factorization with application to clustering. Neurocomputing 141, 15-25 (2014)."
)
_SOTIRAS = (
    "Sotiras A, Resnick SM, Davatzikos C. Finding imaging patterns of structural covariance via "
    "non-negative matrix factorization. NeuroImage 108, 1-16 (2015)."
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
    signed_data = True
    signed_loadings = True
    scaled = True
    in_paper = False
    extrapolations = MappingProxyType({"": NESTEROV})
    plain_updates = 1
    kernel = "descent"
    n_starts = 50
    n_finished = 10
    plateau = False
    first_look = 20
    # Finer faces change what the lift finds by less than 0.001 of the variance.
    refined = False

    def draw(self, p: Problem, n_components: int, rng: np.random.Generator) -> Factors:
        B, C = self.draw_many(p, n_components, [rng])
        return B[0], C[0]

    def draw_many(
        self,
        p: Problem,
        n_components: int,
        streams: Sequence[np.random.Generator],
        n_best: int | None = None,
    ) -> Factors:
        """Draw hard starts, softened: B of unit columns in the metric of the faces' sizes."""
        root = np.sqrt(p.row_sums)
        # If all values are ≥ 0, all profiles are nearly the mean: faces differ in the deviations.
        deviations = p.L if p.signed else p.L - p.L.mean(axis=0)
        profiles = np.ascontiguousarray(quotient(deviations, root).T)
        if n_best is not None:
            # Only directions count, and float32 is enough to tell which starts are best.
            largest = np.abs(profiles).max() or 1.0
            profiles = (profiles / largest).astype(np.float32)
        draws = np.stack([rng.random(n_components) for rng in streams])

        def start(draws: np.ndarray) -> np.ndarray:
            fits, parts = hard_parts(profiles, draws)
            best = slice(None) if n_best is None else best_partitions(fits, n_best)
            return soften(fits[best], parts[best])

        ends = range(STARTS_PER_TASK, len(draws), STARTS_PER_TASK)
        tasks = np.split(draws, ends)
        workers = 1 if p.L.size < SHORT else None
        batches = list(in_order(start, tasks, workers))
        maps = np.concatenate(batches, dtype=np.float64)
        B = quotient(maps, root[:, None])
        return B, np.swapaxes(B, 1, 2) @ p.L.T

    def update_B(self, p: Problem, B: Array, C: Array, t: Terms) -> Array:
        return descend(p, B, C, t)


def hard_parts(
    profiles: np.ndarray,
    draws: np.ndarray,
    sweeps: int = HARD_SWEEPS,
) -> tuple[np.ndarray, np.ndarray]:
    """Return partitions of faces by weighted spherical k-means, one per row of `draws`.

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
    fits : (n_starts, n_parts, n_faces) (c_jᵀy_k)₊
    parts : (n_starts, n_faces) the part of each face
    """
    n_starts, n_parts = draws.shape
    n_faces = len(profiles)
    energy = np.einsum("ij,ij->i", profiles, profiles)
    centres = first_centres(profiles, energy, draws)
    fits = np.zeros((n_starts, n_parts, n_faces), profiles.dtype)
    parts = np.full((n_starts, n_faces), -1)
    # A start ends when its own partition stays as it is, whatever the others do.
    running = np.arange(n_starts)
    for _ in range(sweeps):
        new_fits = matmul_shared(centres, profiles.T)
        np.maximum(new_fits, 0.0, out=new_fits)
        new_parts = new_fits.argmax(axis=1)
        moved = (new_parts != parts[running]).any(axis=1)
        fits[running] = new_fits
        parts[running] = new_parts
        running = running[moved]
        if not len(running):
            break
        new_fits = new_fits[moved]
        centres = next_centres(profiles, energy, new_fits, new_parts[moved])
    return fits, parts


def first_centres(
    profiles: np.ndarray,
    energy: np.ndarray,
    draws: np.ndarray,
) -> np.ndarray:
    """Return first unit profiles: those of faces drawn by the energy that earlier ones leave."""
    n_starts, n_parts = draws.shape
    n_faces, n_subjects = profiles.shape
    centres = np.zeros((n_starts, n_parts, n_subjects), profiles.dtype)
    remaining = np.tile(energy, (n_starts, 1))
    for j in range(n_parts):
        total = np.cumsum(remaining, axis=1)
        # Where nothing remains, any face will do.
        spent = total[:, -1] <= 1e-12 * energy.sum()
        total[spent] = np.arange(1, n_faces + 1)
        thresholds = draws[:, j, None] * total[:, -1:]
        faces = (total <= thresholds).sum(axis=1)
        faces = faces.clip(0, n_faces - 1)
        length = np.sqrt(energy[faces])
        centres[:, j] = quotient(profiles[faces], length[:, None])
        fits = np.maximum(centres[:, j] @ profiles.T, 0.0)
        unfitted = np.maximum(energy - fits**2, 0.0)
        remaining = np.minimum(remaining, unfitted)
    return centres


def next_centres(
    profiles: np.ndarray,
    energy: np.ndarray,
    fits: np.ndarray,
    parts: np.ndarray,
) -> np.ndarray:
    """Return the unit profiles of parts from their faces, weighted by how well these fit."""
    best = np.take_along_axis(fits, parts[:, None], axis=1)
    weights = np.where(in_part(fits, parts), best, 0.0)
    centres = matmul_shared(weights, profiles)
    size = np.linalg.norm(centres, axis=2)
    # An empty part begins again at the face that is fitted worst.
    for start, empty in np.argwhere(size == 0):
        unfitted = energy - best[start, 0] ** 2
        worst = int(np.argmax(unfitted))
        length = np.sqrt(energy[worst])
        best[start, 0, worst] = length
        centres[start, empty] = profiles[worst]
        size[start, empty] = length
    return quotient(centres, size[..., None])


def in_part(fits: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Return whether each part, (n_starts, n_parts, n_faces), holds each face."""
    numbers = np.arange(fits.shape[1])
    return numbers[:, None] == parts[:, None]


def best_partitions(fits: np.ndarray, n_best: int) -> np.ndarray:
    """Return the numbers of the partitions that explain most, in their order."""
    best_fits = fits.max(axis=1)
    explained = np.square(best_fits).sum(axis=1)
    best = np.argsort(-explained, kind="stable")[:n_best]
    return np.sort(best)


def soften(fits: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Return hard parts as (n_starts, n_faces, n_parts) maps of unit norm, a little of each outside
    its own faces.
    """
    maps = np.where(in_part(fits, parts), fits, SOFTNESS * fits)
    length = np.linalg.norm(maps, axis=2, keepdims=True)
    return np.swapaxes(quotient(maps, length), 1, 2)
