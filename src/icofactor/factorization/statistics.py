"""What the updates need of the data: K = DᵀD, L = XᵀD, ‖X‖² and the energy of each face.

All of them are sums over sites. So they can be gathered block by block, added over disjoint sites,
and kept in float64 whatever the data are. Where sites have weights Ω (`Sites.weights`), they are
DᵀΩD, XᵀΩD and ‖X‖²_Ω. docs/notation.md has the symbols.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp

from icofactor.errors import ArgumentError
from icofactor.factorization.arrays import Array
from icofactor.factorization.design import Design
from icofactor.factorization.gathering import AcceptBlock, gather
from icofactor.io.records import Numbers, plain_signature
from icofactor.maps.blocks import Rows
from icofactor.maps.maps import Maps, transposed_maps
from icofactor.maps.passes import Report
from icofactor.sphere.sites import Sites

# Root mean square of cortical thickness in mm. For data of this size default penalties are the
# constants of the paper.
REFERENCE_SIZE = 2.7


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
        The faces of the design, by which statistics are recognised as belonging together.

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
        """Root mean square of X over `REFERENCE_SIZE`, to which default penalties are relative."""
        mean_square = self.sq_norm / (self.n_sites * self.n_subjects)
        return float(np.sqrt(mean_square) / REFERENCE_SIZE)

    def times(self, factor: float) -> Statistics:
        """Return the statistics of X times a number."""
        return replace(
            self,
            L=self.L * factor,
            root_L=self.root_L * factor,
            sq_norm=self.sq_norm * factor**2,
            energy=self.energy * factor**2,
        )

    @classmethod
    def from_data(
        cls,
        X: Any,
        design: Design,
        rows: Rows | None = None,
        *,
        accept_block: AcceptBlock | None = None,
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
        accept_block : callable, optional
            Called with the sites of every block and what `maps.blocks.summarize` found of them.
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
        sites = np.arange(design.sites.n)[slice(None) if rows is None else rows]
        shape = X.shape[::-1] if isinstance(X, Maps) else np.shape(X)
        if len(shape) != 2 or shape[0] != len(sites):
            message = f"must be sites × subjects with {len(sites)} rows, the sites of the design"
            raise ArgumentError("X", f"{message}; found shape {shape}")
        D = design.matrix.tocsr()[sites]
        columns = D
        if design.kind != "partition":
            columns = sp.hstack([D, design.roots.matrix.tocsr()[sites]], format="csr")
        weighted_columns = weigh_rows(columns, design.sites, sites)
        maps = transposed_maps(X)
        sums, site_energy = gather(maps, weighted_columns, accept_block, report)
        energy = design.sites.weigh(site_energy, sites)
        column = design.site_column[sites]
        is_inside = column >= 0
        weights = design.sites.weigh(np.ones(len(sites)), sites)
        counts = np.bincount(column[is_inside], weights[is_inside], minlength=design.n_columns)
        if design.sites.weights is None:
            counts = counts.astype(np.int64)
        return cls(
            K=sp.csr_array(D.T @ weigh_rows(D, design.sites, sites)),
            L=np.ascontiguousarray(sums[: design.n_columns].T),
            sq_norm=float(energy.sum()),
            energy=np.bincount(column[is_inside], energy[is_inside], minlength=design.n_columns),
            counts=counts,
            n_sites=len(sites) if design.sites.weights is None else float(weights.sum()),
            root_L=_root_sums(sums, design).T.copy(),
            faces=design.faces,
        )

    def deviations(self, energy: np.ndarray, sq_norm: float) -> Statistics:
        """Return the statistics of the deviations from the mean map, without reading X.

        Parameters
        ----------
        energy : array of shape (n_columns,)
            Σ over the sites of each face and all subjects of (x − mean of the site)².
        sq_norm : float
            The same over all sites, including those in no face.
        """
        L = self.L - self.L.mean(axis=0)
        root_L = self.root_L - self.root_L.mean(axis=0)
        return replace(
            self,
            L=L,
            root_L=root_L,
            energy=energy,
            sq_norm=sq_norm,
        )

    def deviations_at(self, design: Design, site_variance: np.ndarray) -> Statistics:
        """Return the statistics of deviations, given Σ (x − mean of the site)² of every site."""
        weighted = design.sites.weigh(site_variance)
        is_inside = design.site_column >= 0
        energy = np.bincount(
            design.site_column[is_inside], weighted[is_inside], minlength=design.n_columns
        )
        return self.deviations(energy, float(weighted.sum()))

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        if not np.array_equal(self.faces, other.faces) or self.n_subjects != other.n_subjects:
            message = f"must have the same {self.n_columns} faces and {self.n_subjects} subjects"
            actual = f"{other.n_columns} faces and {other.n_subjects} subjects"
            raise ArgumentError("other", f"{message}; found {actual}")
        return Statistics(
            K=sp.csr_array(self.K + other.K),
            L=self.L + other.L,
            sq_norm=self.sq_norm + other.sq_norm,
            energy=self.energy + other.energy,
            counts=self.counts + other.counts,
            n_sites=self.n_sites + other.n_sites,
            root_L=self.root_L + other.root_L,
            faces=self.faces,
        )


def weigh_rows(
    columns: Any,
    sites: Sites,
    rows: Any = slice(None),
) -> Any:
    """Return Ω times sparse columns, whose rows are some sites."""
    if sites.weights is None:
        return columns
    return type(columns)(sp.diags_array(sites.weights[rows]) @ columns)


def _root_sums(sums: np.ndarray, design: Design) -> np.ndarray:
    """Return the rows of Lᵀ of the root faces."""
    if design.kind != "partition":
        root_sums = np.zeros((design.sites.n_roots, sums.shape[1]))
        root_sums[design.roots.root] = sums[design.n_columns :]
        return root_sums
    # Sums over faces nest: those of a root are the sums of its descendants.
    entries = (np.ones(design.n_columns), (design.root, np.arange(design.n_columns)))
    to_root = sp.csr_array(entries, shape=(design.sites.n_roots, design.n_columns))
    return np.asarray(to_root @ sums)
