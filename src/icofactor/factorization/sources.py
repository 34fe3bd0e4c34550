"""What answers a division of faces: `Data` reads the rows concerned, `Pyramid` reads nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from icofactor.errors import ArgumentError
from icofactor.factorization.design import Design, all_but, diagonal_matrix, exchanged_columns
from icofactor.factorization.gathering import AcceptBlock, gather
from icofactor.factorization.statistics import Statistics, weigh_rows
from icofactor.maps.blocks import Arrays, squares_of_sites
from icofactor.maps.maps import transposed_maps
from icofactor.maps.passes import Report, map_strips
from icofactor.sphere.sites import Sites

# A pyramid goes as deep as fits into this, so that refinement seldom meets its end.
PYRAMID_BYTES = 320 * 2**20


class Data:
    """X as a source for `refine`: a division reads only the rows under the columns that changed.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> design = ico.Design(cohort.sites, level=1)
    >>> stats = ico.Statistics.from_data(cohort.X.T, design)
    >>> divided = ico.Data(cohort.X.T, cohort.sites).divided(stats, design, design.divide([0]))
    >>> divided.L.shape
    (20, 83)
    """

    def __init__(
        self,
        X: Any,
        sites: Sites,
        site_energy: np.ndarray | None = None,
    ) -> None:
        """Take X as sites × subjects.

        `site_energy` is ‖x‖² of each site, if it is known already; otherwise the first division
        passes over X.
        """
        self.maps = transposed_maps(X)
        self.sites = sites
        self._known_energy = site_energy

    @property
    def max_level(self) -> int:
        """Finest level to which faces can be divided."""
        return self.sites.max_level

    @cached_property
    def _site_energy(self) -> np.ndarray:
        if self._known_energy is not None:
            return self._known_energy
        energy = np.empty(self.sites.n)
        for rows, result in map_strips(_energy_of_sites, self.maps):
            energy[rows] = result["site.energy"]
        return energy

    def statistics(self, design: Design) -> Statistics:
        """Return the statistics of a design, in one pass over X."""
        return Statistics.from_data(self.maps, design)

    def divided(
        self,
        stats: Statistics,
        coarse: Design,
        fine: Design,
    ) -> Statistics:
        """Return the statistics of `fine` = coarse.divide(...), computing only what changed."""
        changed = fine.changed_columns(coarse)
        energy_of_sites = self.sites.weigh(self._site_energy)
        if fine.kind == "partition":
            support, columns = self._changed_partition(fine, changed)
            K = diagonal_matrix(fine.sizes)
            energy = stats.energy[fine.parent]
            weighted = weigh_rows(columns, self.sites, support)
            energy[changed] = columns.T @ energy_of_sites[support]
        else:
            weighted = weigh_rows(fine.columns(changed), self.sites)
            unchanged = all_but(changed, fine.n_columns)
            K = _divided_K(
                stats.K,
                fine,
                unchanged,
                changed,
                weighted,
            )
            support = np.unique(weighted.indices)
            weighted = weighted.tocsr()[support]
            is_inside = fine.site_column >= 0
            energy = np.bincount(
                fine.site_column[is_inside], energy_of_sites[is_inside], minlength=fine.n_columns
            )
        # Block by block: of a file, nothing that lies between these sites is read.
        new_sums = np.asarray(self.maps.subset(sites=support)) @ weighted
        return replace(
            stats,
            K=K,
            L=exchanged_columns(stats.L, fine.parent, changed, new_sums),
            energy=energy,
            counts=fine.sizes,
            faces=fine.faces,
        )

    def _changed_partition(
        self, fine: Design, changed: np.ndarray
    ) -> tuple[np.ndarray, sp.csr_array]:
        """Return the sites in the changed columns, and these columns on these sites."""
        # The last entry answers for sites in no column, which have the number −1.
        position = np.full(fine.n_columns + 1, -1, dtype=np.int32)
        position[changed] = np.arange(len(changed))
        column = position[fine.site_column]
        support = np.flatnonzero(column >= 0)
        n = len(support)
        entries = (np.ones(n), column[support], np.arange(n + 1, dtype=np.int32))
        return support, sp.csr_array(entries, shape=(n, len(changed)))

    def residual(self, design: Design, BC: np.ndarray) -> np.ndarray:
        """Return the squared residual of X − D(BC), summed over the sites of each face."""
        D = design.matrix.tocsr()
        site_residual = np.empty(self.sites.n)
        passes = map_strips(
            _residual_of_sites,
            self.maps,
            D,
            shared={"BC": BC},
            double=True,
        )
        for rows, result in passes:
            site_residual[rows] = result["site.residual"]
        is_inside = design.site_column >= 0
        weighted = self.sites.weigh(site_residual)[is_inside]
        return np.bincount(design.site_column[is_inside], weighted, minlength=design.n_columns)


def _energy_of_sites(x: np.ndarray, shared: Mapping[str, Any]) -> Arrays:
    """Return the squared rows of X."""
    return {"site.energy": squares_of_sites(x)}


def _residual_of_sites(
    x: np.ndarray,
    shared: Mapping[str, Any],
    D: sp.csr_array,
) -> Arrays:
    """Return the squared rows of X − D(BC)."""
    residual = x - D @ shared["BC"]
    return {"site.residual": np.einsum("ij,ij->i", residual, residual)}


def _divided_K(
    K: sp.csr_array,
    fine: Design,
    unchanged: np.ndarray,
    changed: np.ndarray,
    weighted: sp.csc_array,
) -> sp.csr_array:
    """Return K of the finer design: a copy among unchanged columns, DᵀΩD_changed elsewhere.

    `weighted` is ΩD_changed.
    """
    old = K[fine.parent[unchanged]][:, fine.parent[unchanged]].tocoo()
    new = sp.coo_array(fine.matrix.T @ weighted)
    # Entries among changed columns stand once in `new`; those with unchanged columns count twice.
    with_unchanged = np.isin(new.coords[0], unchanged)
    rows = [unchanged[old.coords[0]], new.coords[0], changed[new.coords[1][with_unchanged]]]
    columns = [unchanged[old.coords[1]], changed[new.coords[1]], new.coords[0][with_unchanged]]
    values = [old.data, new.data, new.data[with_unchanged]]
    entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
    return sp.csr_array(entries, shape=(fine.n_columns, fine.n_columns))


class Pyramid:
    """Sums of X over every face down to one level, computed in one pass.

    Sums over faces nest: four children add up to their parent. So the statistics of any partition
    design down to that level are looked up, never recomputed. It needs about 4/3 × 20·4^level ×
    n_subjects × 8 bytes per hemisphere.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> pyramid = ico.Pyramid.from_data(cohort.X.T, cohort.sites)
    >>> pyramid.statistics(ico.Design(cohort.sites, level=2)).L.shape  # X is not needed again
    (20, 320)
    """

    def __init__(
        self,
        sums: list[np.ndarray],
        energy: list[np.ndarray],
        counts: list[np.ndarray],
        sites: Sites,
    ) -> None:
        """Take sums (faces × subjects), energy and counts of the faces of each level."""
        self._sums = sums
        self._energy = energy
        self._counts = counts
        self.sites = sites

    @property
    def max_level(self) -> int:
        """Finest level of the pyramid."""
        return len(self._sums) - 1

    @classmethod
    def from_data(
        cls,
        X: Any,
        sites: Sites,
        level: int | None = None,
        *,
        accept_block: AcceptBlock | None = None,
        report: Report | None = None,
    ) -> Pyramid:
        """Compute the pyramid of X (sites × subjects) in one pass.

        `level` is the finest level to keep (default: that of the mesh); all else is as in
        `Statistics.from_data`.
        """
        if level is None:
            level = sites.max_level
        if not 0 <= level <= sites.max_level:
            message = f"must be from 0 to {sites.max_level}, the mesh's own; found {level}"
            raise ArgumentError("level", message)
        face = sites.face_at(level)
        n_faces = sites.n_roots * 4**level
        entries = (sites.weigh(np.ones(sites.n)), face, np.arange(sites.n + 1))
        columns = sp.csr_array(entries, shape=(sites.n, n_faces))
        sums, site_energy = gather(transposed_maps(X), columns, accept_block, report)
        all_sums = [sums]
        all_energy = [np.bincount(face, sites.weigh(site_energy), minlength=n_faces)]
        all_counts = [np.bincount(face, sites.weights, minlength=n_faces)]
        while len(all_sums[0]) > sites.n_roots:
            children = all_sums[0].reshape(-1, 4, sums.shape[1])
            all_sums.insert(0, children.sum(axis=1))
            all_energy.insert(0, all_energy[0].reshape(-1, 4).sum(axis=1))
            all_counts.insert(0, all_counts[0].reshape(-1, 4).sum(axis=1))
        return cls(all_sums, all_energy, all_counts, sites)

    def take_out_mean(self, site_variance: np.ndarray) -> None:
        """Turn the sums into those of the deviations from the mean map, in place.

        `site_variance` is Σ over subjects of (x − mean of the site)² of each site.
        """
        weighted = self.sites.weigh(site_variance)
        for level, sums in enumerate(self._sums):
            face = self.sites.face_at(level)
            self._energy[level] = np.bincount(face, weighted, minlength=len(sums))
            sums -= sums.mean(axis=1, keepdims=True)

    def divide_by(self, unit: float) -> None:
        """Turn the sums into those of X / unit, in place."""
        for level, sums in enumerate(self._sums):
            sums /= unit
            self._energy[level] = self._energy[level] / unit**2

    def statistics(self, design: Design) -> Statistics:
        """Return the statistics of a partition design, without reading X."""
        self._check(design)
        counts = self._of_faces(self._counts, design.faces)
        return Statistics(
            K=diagonal_matrix(counts),
            L=self._subject_sums(design),
            sq_norm=float(self._energy[0].sum()),
            energy=self._of_faces(self._energy, design.faces),
            counts=counts,
            n_sites=self._counts[0].sum().item(),
            root_L=self._sums[0].T.copy(),
            faces=design.faces,
        )

    def _subject_sums(self, design: Design) -> np.ndarray:
        """Return L, subjects × columns."""
        level = int(design.faces[0, 0])
        all_faces = [(level, face) for face in range(len(self._sums[level]))]
        n_subjects = self._sums[0].shape[1]
        if n_subjects > design.n_columns and np.array_equal(design.faces, all_faces):
            # Large sums are read as they lie.
            view = self._sums[level].T
            view.flags.writeable = False
            return view
        return np.ascontiguousarray(self._of_faces(self._sums, design.faces).T)

    def divided(
        self,
        stats: Statistics,
        coarse: Design,
        fine: Design,
    ) -> Statistics:
        """Return the statistics of `fine`; only the children are looked up."""
        changed = fine.changed_columns(coarse)
        children = fine.faces[changed]
        energy = stats.energy[fine.parent]
        energy[changed] = self._of_faces(self._energy, children)
        new_sums = self._of_faces(self._sums, children).T
        return replace(
            stats,
            K=diagonal_matrix(fine.sizes),
            L=exchanged_columns(stats.L, fine.parent, changed, new_sums),
            energy=energy,
            counts=fine.sizes,
            faces=fine.faces,
        )

    def _of_faces(self, levels: list[np.ndarray], faces: np.ndarray) -> np.ndarray:
        """Return the rows of faces (level, number) from arrays of all faces of each level."""
        rows = np.empty((len(faces), *levels[0].shape[1:]), dtype=levels[0].dtype)
        for level in np.unique(faces[:, 0]):
            is_of_level = faces[:, 0] == level
            rows[is_of_level] = levels[level][faces[is_of_level, 1]]
        return rows

    def _check(self, design: Design) -> None:
        if design.kind != "partition" or design.faces[:, 0].max() > self.max_level:
            message = f"must have partition columns, at most at level {self.max_level}"
            actual = f"{design.kind} columns, faces at level {design.faces[:, 0].max()}"
            raise ArgumentError("design", f"{message}; found {actual}")


# What answers a division.
Source = Data | Pyramid


def pyramid_level(
    sites: Sites,
    n_subjects: int,
    level: int,
    steps: int,
) -> int:
    """Return the deepest level of a pyramid for `steps` refinements from `level`.

    That is as deep as they can reach, or as memory allows, and at shallowest one level below
    `level` if there is any refinement.
    """
    deepest = min(level + steps, sites.max_level)
    shallowest = min(level + 1, deepest)

    def fits(candidate: int) -> bool:
        return 4 / 3 * sites.n_roots * 4**candidate * n_subjects * 8 <= PYRAMID_BYTES

    return max([shallowest, *(level for level in range(shallowest, deepest + 1) if fits(level))])
