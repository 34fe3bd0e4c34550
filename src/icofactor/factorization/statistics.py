"""What the updates need of the data: K = DᵀD, L = XᵀD, ‖X‖² and the energy of each face (method.md
§1).

All of them are sums over sites. So they can be gathered block by block, added over disjoint sites,
and kept in
float64 whatever the data are; `gathering.gather` is the one pass that does so. Two sources answer a
division without reading everything again: `Data` reads only the rows concerned, `Pyramid`
(partition columns) reads nothing. Where sites have weights Ω (`Sites.weights`), these are DᵀΩD,
XᵀΩD and ‖X‖²_Ω.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Protocol

import numpy as np
import scipy.sparse as sp

from icofactor.errors import ArgumentError, Phrase
from icofactor.factorization.arrays import Array
from icofactor.factorization.design import Design, all_but, diagonal_matrix, exchanged_columns
from icofactor.factorization.gathering import gather
from icofactor.io.records import Numbers, plain_signature
from icofactor.sphere.sites import Sites
from icofactor.streaming.blocks import Arrays, Rows, cut, squares_of_sites
from icofactor.streaming.inspect import Inspector
from icofactor.streaming.passes import each_block, each_wide_block, pass_over, stream_of
from icofactor.streaming.runners import in_order

PYRAMID_BYTES = 320 * 2**20
"""A pyramid goes as deep as fits into this, so that refinement seldom meets its end."""
_PEOPLE = 256
"""Of so many subjects sums over faces are turned at a time."""
_FACES = 8
"""Of many subjects, faces that are worked on at a time: fresh memory costs more than what is done
in it.
"""
_VALUES = 2**18
"""Sums that a thread adds up at a time, at least."""
REFERENCE_SIZE = 2.7
"""Root mean square of cortical thickness in mm: of data of this size default penalties are the
paper's constants.
"""
Report = Callable[[float], None]
Change = Callable[[Any, np.ndarray], Any]
"""(subjects × faces sums, sphere of each face) → the sums of other maps."""


def less_mean(sums: Any, sphere: np.ndarray) -> Any:
    """Sums, subjects × faces, of deviations from the mean map."""
    return sums - sums.mean(axis=0)


@plain_signature
@dataclass(frozen=True, eq=False)
class Statistics:
    """The sufficient statistics of X for one design.

    Attributes
    ----------
    K : scipy.sparse.csr_array, n_k × n_k
        DᵀD; diagonal for partition columns.
    L : array, n_subjects × n_k
        XᵀD.
    sq_norm : float
        ‖X‖².
    energy : (n_k,) array
        ‖X_k‖², the squared data of the sites located in face k.
    counts : (n_k,) array
        Number of sites located in face k, or their weight.
    n_sites : int, or float where sites have weights
        Their number, or the sum of their weights.
    root_L : n_subjects × n_roots array
        L of the root faces, where the default penalty is measured.
    faces : (n_k, 2) array
        The design's faces, by which statistics are recognised as belonging together.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> stats = ico.Statistics.from_data(cohort.X.T, ico.Design(cohort.sites, level=1))
    >>> stats.K.shape, stats.L.shape
    ((80, 80), (20, 80))
    """

    K: Annotated[sp.csr_array, Numbers("cc")]
    L: Annotated[Array, Numbers("nc")]
    sq_norm: float
    energy: Annotated[np.ndarray, Numbers("c")]
    counts: Annotated[np.ndarray, Numbers("c", "fi", least=0)]
    n_sites: float
    root_L: Annotated[np.ndarray, Numbers("nr")]
    faces: Annotated[np.ndarray, Numbers("c2", "i", least=0)]

    @property
    def n_subjects(self) -> int:
        """Number of subjects."""
        return int(self.L.shape[0])

    @property
    def n_columns(self) -> int:
        """Number of design columns."""
        return int(self.L.shape[1])

    @cached_property
    def is_diagonal(self) -> bool:
        """Whether K is diagonal, as for partition columns."""
        return self.K.nnz == int((self.K.diagonal() != 0).sum())

    @property
    def weights(self) -> np.ndarray:
        """Row weights of the penalty, w_k = n_roots × (sites in face k) / (number of sites)."""
        return self.root_L.shape[1] * self.counts / self.n_sites

    @property
    def scale(self) -> float:
        """Root mean square of X over `REFERENCE_SIZE`, to which default penalties and starts are
        relative.
        """
        return float(np.sqrt(self.sq_norm / (self.n_sites * self.n_subjects)) / REFERENCE_SIZE)

    def times(self, factor: float) -> Statistics:
        """The statistics of X times a number."""
        L, root_L, squared = self.L * factor, self.root_L * factor, factor**2
        return replace(
            self, L=L, root_L=root_L, sq_norm=self.sq_norm * squared, energy=self.energy * squared
        )

    @classmethod
    def from_data(
        cls,
        X: Any,
        design: Design,
        rows: Rows | None = None,
        *,
        inspector: Inspector | None = None,
        report: Report | None = None,
    ) -> Statistics:
        """Compute the statistics of X in one pass.

        Parameters
        ----------
        X : array of shape (n_sites, n_subjects)
            Maps, also memory-mapped or as a dask array.
        design : Design
            The design.
        rows : slice or int array, optional
            Sites that X contains. Statistics of disjoint rows of one design can be added.
        inspector : Inspector, optional
            Sees all values of X, to check them.
        report : callable, optional
            Called with the fraction that is done.

        Examples
        --------
        >>> import icofactor as ico
        >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
        >>> design = ico.Design(cohort.sites, level=1)
        >>> half = ico.Statistics.from_data(cohort.X.T[:300], design, slice(0, 300))
        >>> (half + ico.Statistics.from_data(cohort.X.T[300:], design, slice(300, 642))).L.shape
        (20, 80)
        """
        where = np.arange(design.sites.n)[slice(None) if rows is None else rows]
        if not hasattr(X, "shape"):
            X = np.asarray(X)
        if len(X.shape) != 2 or X.shape[0] != len(where):
            raise ArgumentError(
                "X",
                Phrase(f"shape {X.shape}"),
                f"sites × subjects with {len(where)} rows, one per site of the design",
            )
        n_k, partition = design.n_columns, design.kind == "partition"
        D = design.matrix.tocsr() if rows is None else design.matrix.tocsr()[where]
        columns = (
            D if partition else sp.hstack([D, design.roots.matrix.tocsr()[where]], format="csr")
        )
        sums, site_energy = gather(X, _weighed(columns, design.sites, where), inspector, report)
        site_energy = design.sites.weigh(site_energy, where)
        if partition:
            root_Lt = _sum_over_roots(sums, design)
        else:
            root_Lt = np.zeros((design.sites.n_roots, sums.shape[1]))
            root_Lt[design.roots.root] = sums[n_k:]
        column = design.site_column[where]
        inside, weights = column >= 0, design.sites.weights
        w = None if weights is None else weights[where]
        return cls(
            sp.csr_array(D.T @ _weighed(D, design.sites, where)),
            np.ascontiguousarray(sums[:n_k].T),
            float(site_energy.sum()),
            np.bincount(column[inside], site_energy[inside], minlength=n_k),
            np.bincount(column[inside], None if w is None else w[inside], minlength=n_k),
            len(where) if w is None else float(w.sum()),
            root_Lt.T.copy(),
            design.faces,
        )

    def deviations(
        self, energy: np.ndarray, sq_norm: float, change: Change = less_mean
    ) -> Statistics:
        """Statistics of the deviations from the mean map, without reading X.

        Parameters
        ----------
        energy : array of shape (n_columns,)
            Σ over the sites of each face and all subjects of (x − mean of the site)².
        sq_norm : float
            The same over all sites, including those in no face.
        change : callable
            Another linear change of the maps; `energy` is then that of the result.
        """
        L = change(self.L, self.faces[:, 1] // (20 * 4 ** self.faces[:, 0]))
        root_L = change(self.root_L, np.arange(self.root_L.shape[1]) // 20)
        return replace(self, L=L, root_L=root_L, energy=energy, sq_norm=sq_norm)

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        if not np.array_equal(self.faces, other.faces) or self.n_subjects != other.n_subjects:
            found = f"{self.n_columns} and {other.n_columns} columns, {self.n_subjects} and {other.n_subjects} subjects"
            found += "" if self.n_columns != other.n_columns else ", on different faces"
            raise ArgumentError(
                "other",
                Phrase(found),
                "Statistics can be added over disjoint sites of one design and the same subjects",
            )
        return Statistics(
            sp.csr_array(self.K + other.K),
            self.L + other.L,
            self.sq_norm + other.sq_norm,
            self.energy + other.energy,
            self.counts + other.counts,
            self.n_sites + other.n_sites,
            self.root_L + other.root_L,
            self.faces,
        )


def _weighed(columns: Any, sites: Sites, where: Any = slice(None)) -> Any:
    """Ω times sparse columns, whose rows are the sites at `where`."""
    return (
        columns
        if sites.weights is None
        else type(columns)(sp.diags_array(sites.weights[where]) @ columns)
    )


def _sum_over_roots(Lt: np.ndarray, design: Design) -> np.ndarray:
    """Partition sums nest: the root faces' rows of Lᵀ from those of their descendants."""
    to_root = sp.csr_array(
        (np.ones(design.n_columns), (design.root, np.arange(design.n_columns))),
        shape=(design.sites.n_roots, design.n_columns),
    )
    return np.asarray(to_root @ Lt)


class Source(Protocol):
    """Where statistics come from, before and after a division."""

    @property
    def max_level(self) -> int: ...

    def statistics(self, design: Design) -> Statistics: ...

    def divided(self, stats: Statistics, coarse: Design, fine: Design) -> Statistics: ...

    def residual(self, design: Design, BC: np.ndarray) -> np.ndarray: ...


class Data:
    """X as a source for `refine`: a division reads only the rows of X under the columns that
    changed.

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

    def __init__(self, X: Any, sites: Sites, site_energy: np.ndarray | None = None) -> None:
        """`site_energy`: ‖x‖² of each site's row, when it is known already; else the first division
        passes over X.
        """
        self.X, self.sites, self._known_energy = stream_of(X), sites, site_energy

    @property
    def max_level(self) -> int:
        """Finest level to which faces can be divided."""
        return self.sites.max_level

    @cached_property
    def _site_energy(self) -> np.ndarray:
        if self._known_energy is not None:
            return self._known_energy
        found = np.empty(self.sites.n)
        for rows, part in pass_over(self.X, each_block(_energy_block)):
            found[rows] = part["site.energy"]
        return found

    def statistics(self, design: Design) -> Statistics:
        """Statistics of a design, in one pass over X."""
        return Statistics.from_data(self.X, design)

    def divided(self, stats: Statistics, coarse: Design, fine: Design) -> Statistics:
        """Statistics of `fine` = coarse.divide(...); only the rows and columns that changed are
        computed.
        """
        changed = fine.changed_columns(coarse)
        if fine.kind == "partition":
            order = np.full(
                fine.n_columns + 1, -1, dtype=np.int32
            )  # the last entry answers for column −1
            order[changed] = np.arange(len(changed))
            child = order[fine.site_column]
            support = np.flatnonzero(child >= 0)
            one_each = (
                np.ones(len(support)),
                child[support],
                np.arange(len(support) + 1, dtype=np.int32),
            )
            D = _weighed(
                sp.csr_array(one_each, shape=(len(support), len(changed))), self.sites, support
            )
            K, energy = diagonal_matrix(fine.sizes), stats.energy[fine.parent]
            energy[changed] = D.T @ self._site_energy[support]
        else:
            same, D_changed = all_but(changed, fine.n_columns), fine.columns(changed)
            support, WD_changed = np.unique(D_changed.indices), _weighed(D_changed, self.sites)
            D, K = WD_changed.tocsr()[support], _divided_K(stats.K, fine, same, changed, WD_changed)
            held, weights = fine.site_column, self.sites.weigh(self._site_energy)
            energy = np.bincount(
                np.maximum(held, 0), np.where(held >= 0, weights, 0.0), minlength=fine.n_columns
            )
        L = exchanged_columns(stats.L, fine.parent, changed, (D.T @ self.X.read(support)).T)
        return Statistics(
            K, L, stats.sq_norm, energy, fine.sizes, stats.n_sites, stats.root_L, fine.faces
        )

    def residual(self, design: Design, BC: np.ndarray) -> np.ndarray:
        """Squared residual of X − D(BC), summed over the sites of each face; one pass over X."""
        D, total = design.matrix.tocsr(), np.zeros(design.n_columns)
        for rows, found in pass_over(self.X, each_wide_block(_residual_block), {"BC": BC}, [D]):
            held, site = design.site_column[rows], self.sites.weigh(found["site.residual"], rows)
            total += np.bincount(held[held >= 0], site[held >= 0], minlength=design.n_columns)
        return total


def _energy_block(x: np.ndarray, shared: Mapping[str, Any]) -> Arrays:
    """Squared rows of X."""
    return {"site.energy": squares_of_sites(x)}


def _residual_block(x: np.ndarray, shared: Mapping[str, Any], D: sp.csr_array) -> Arrays:
    """Squared rows of X − D(BC)."""
    r = x - D @ shared["BC"]
    return {"site.residual": np.einsum("ij,ij->i", r, r)}


def _divided_K(
    K: sp.csr_array, fine: Design, same: np.ndarray, changed: np.ndarray, D_changed: sp.csc_array
) -> sp.csr_array:
    """K of the finer design: the part among unchanged columns is copied, the rest is DᵀΩD_changed,
    given ΩD_changed.
    """
    kept = K[fine.parent[same]][:, fine.parent[same]].tocoo()
    cross = sp.coo_array(fine.matrix.T @ D_changed)
    to_same = np.isin(
        cross.coords[0], same
    )  # entries among changed columns stand once in `cross`, the others twice
    row = [same[kept.coords[0]], cross.coords[0], changed[cross.coords[1][to_same]]]
    col = [same[kept.coords[1]], changed[cross.coords[1]], cross.coords[0][to_same]]
    data = [kept.data, cross.data, cross.data[to_same]]
    shape = (fine.n_columns, fine.n_columns)
    return sp.csr_array(
        (np.concatenate(data), (np.concatenate(row), np.concatenate(col))), shape=shape
    )


class Pyramid:
    """Sums of X over every face down to one level, computed in one pass.

    Sums over faces nest (four children add up to their parent), so statistics of any partition
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
        self._sums, self._energy, self._counts, self.sites = sums, energy, counts, sites

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
        inspector: Inspector | None = None,
        report: Report | None = None,
    ) -> Pyramid:
        """Compute the pyramid of X (sites × subjects) in one pass.

        `level` is the finest level to keep (default: that of the mesh); `inspector` and `report` as
        in `Statistics`.
        """
        level = sites.max_level if level is None else level
        if not 0 <= level <= sites.max_level:
            raise ValueError(
                f"level must be from 0 to {sites.max_level}, the mesh's own; found {level}"
            )
        face, n = sites.face_at(level), sites.n_roots * 4**level
        ones = np.ones(sites.n) if sites.weights is None else sites.weights
        columns = sp.csr_array((ones, face, np.arange(sites.n + 1)), shape=(sites.n, n))
        sums, site_energy = gather(X, columns, inspector, report)
        # four children add up to their parent, level by level
        energy, counts = sites.weigh(site_energy), np.bincount(face, sites.weights, minlength=n)
        levels = [(sums, np.bincount(face, energy, minlength=n), counts)]
        while len(levels[0][0]) > sites.n_roots:
            s, e, c = levels[0]
            levels.insert(0, (_sums_of_four(s), e.reshape(-1, 4).sum(1), c.reshape(-1, 4).sum(1)))
        return cls(
            [s for s, _, _ in levels], [e for _, e, _ in levels], [c for _, _, c in levels], sites
        )

    def deviations(
        self, site_variance: np.ndarray, change: Change = less_mean, own: bool = False
    ) -> Pyramid:
        """The pyramid of the deviations from the mean map, without reading X.

        Parameters
        ----------
        site_variance : array of shape (n_sites,)
            Σ over subjects of (x − mean of the site)².
        change : callable
            As in `Statistics.deviations`.
        own : bool
            Whether this pyramid is not needed any more: its memory is used again.
        """
        energy = [
            np.bincount(
                self.sites.face_at(level), self.sites.weigh(site_variance), minlength=len(sums)
            )
            for level, sums in enumerate(self._sums)
        ]
        found = self._sums if own else [np.empty_like(sums) for sums in self._sums]
        for level, sums in enumerate(self._sums):
            sphere = np.arange(len(sums)) // (20 * 4**level)
            for some in cut(len(sums), _FACES):
                found[level][some] = change(sums[some].T, sphere[some]).T
        return Pyramid(found, energy, self._counts, self.sites)

    def times(self, factor: float) -> Pyramid:
        """The pyramid of X times a number."""
        sums, energy = (
            [sums * factor for sums in self._sums],
            [energy * factor**2 for energy in self._energy],
        )
        return Pyramid(sums, energy, self._counts, self.sites)

    def statistics(self, design: Design) -> Statistics:
        """Statistics of a partition design, without reading X."""
        self._check(design)
        counts = self._gather(self._counts, design.faces)
        return Statistics(
            diagonal_matrix(counts),
            self._L(design),
            float(self._energy[0].sum()),
            self._gather(self._energy, design.faces),
            counts,
            self._counts[0].sum().item(),
            self._sums[0].T.copy(),
            design.faces,
        )

    def _L(self, design: Design) -> np.ndarray:
        level, n_subjects = int(design.faces[0, 0]), self._sums[0].shape[1]
        whole = np.array_equal(
            design.faces, [(level, face) for face in range(len(self._sums[level]))]
        )
        if whole and n_subjects > design.n_columns:  # large, and read as it lies
            L = self._sums[level].T
            L.flags.writeable = False
            return L
        L = np.empty((n_subjects, design.n_columns))

        def fill(some: slice) -> None:
            L[some] = self._gather([sums[:, some] for sums in self._sums], design.faces).T

        for _ in in_order(fill, cut(len(L), _PEOPLE)):  # turned while they are in the cache
            pass
        return L

    def divided(self, stats: Statistics, coarse: Design, fine: Design) -> Statistics:
        """Statistics of `fine`; only the children are looked up."""
        changed = fine.changed_columns(coarse)
        L = exchanged_columns(
            stats.L, fine.parent, changed, self._gather(self._sums, fine.faces[changed]).T
        )
        energy = stats.energy[fine.parent]
        energy[changed] = self._gather(self._energy, fine.faces[changed])
        K = diagonal_matrix(fine.sizes)
        return Statistics(
            K, L, stats.sq_norm, energy, fine.sizes, stats.n_sites, stats.root_L, fine.faces
        )

    def residual(self, design: Design, BC: np.ndarray) -> np.ndarray:
        """Not available: a pyramid has no single sites."""
        raise ArgumentError(
            "design",
            None,
            "A pyramid contains only sums of X; partition columns need no residual from X",
        )

    def _gather(self, levels: list[np.ndarray], faces: np.ndarray) -> np.ndarray:
        out = np.empty((len(faces), *levels[0].shape[1:]), dtype=levels[0].dtype)
        for level in np.unique(faces[:, 0]):
            at = faces[:, 0] == level
            out[at] = levels[level][faces[at, 1]]
        return out

    def _check(self, design: Design) -> None:
        if design.kind != "partition":
            raise ArgumentError(
                "design",
                Phrase(f"kind {design.kind!r}"),
                "A pyramid supports only partition columns",
            )
        if design.faces[:, 0].max() > self.max_level:
            raise ArgumentError(
                "design",
                Phrase(f"faces at level {design.faces[:, 0].max()}"),
                f"within level {self.max_level}, down to which the pyramid was gathered",
            )


def _sums_of_four(sums: np.ndarray) -> np.ndarray:
    found = np.empty((len(sums) // 4, sums.shape[1]))

    def fill(some: slice) -> None:
        sums[4 * some.start : 4 * some.stop].reshape(-1, 4, sums.shape[1]).sum(
            axis=1, out=found[some]
        )

    for _ in in_order(fill, cut(len(found), max(_FACES, _VALUES // sums.shape[1]))):
        pass
    return found


def pyramid_level(sites: Sites, n_subjects: int, level: int, steps: int) -> int:
    """The deepest level of a pyramid for `steps` refinements from `level`: all they can reach, or
    what memory allows.

    At least one level below `level` when there is any refinement.
    """
    deepest = min(level + steps, sites.max_level)
    least = min(level + 1, deepest)
    fits = lambda at: 4 / 3 * sites.n_roots * 4**at * n_subjects * 8 <= PYRAMID_BYTES
    return max([least, *(at for at in range(least, deepest + 1) if fits(at))])
