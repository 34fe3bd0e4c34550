"""`Design`: the active faces of the hierarchy and the sparse matrix D whose columns they are
(method.md §5).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.spatial import KDTree

from icofactor.checks import Number, OneOf, Whole, check_parameters, check_value
from icofactor.errors import ArgumentError, Phrase
from icofactor.sphere.sites import Sites

KINDS = ("partition", "exponential", "smooth")
DEFAULT_SIGMA = {"partition": None, "exponential": 0.015, "smooth": 0.1}
DEFAULT_TAU = 3.0


def partition_columns(site_column: np.ndarray, n_columns: int) -> sp.csc_array:
    """Indicators: 1 on the sites located in the face, 0 elsewhere."""
    rows = np.flatnonzero(site_column >= 0)
    return sp.csc_array(
        (np.ones(len(rows)), (rows, site_column[rows])), shape=(len(site_column), n_columns)
    )


def exponential_columns(sites: Sites, faces: np.ndarray, sigma: float, tau: float) -> sp.csc_array:
    """f(x) = exp(−θ/πσ) for θ ≤ πστ, else 0, with θ the angle to the face's centre; σ halves per
    level.
    """
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


class Design:
    """Design matrix with one column per active face of the icosahedral hierarchy; the active faces
    tile the sphere.

    Parameters
    ----------
    sites : Sites
        Positions of the measurements.
    kind : {"partition", "exponential", "smooth"}, default="partition"
        Indicators of the faces; truncated exponentials, as in the paper; or these divided by their
        row sums.
    level : int, default=0
        Level of the faces: 0 gives 20 columns per hemisphere, 2 gives 320.
    sigma, tau : float, optional
        Width and truncation of exponential and smooth columns at level 0; sigma halves with each
        level. Defaults: 0.015 (as in the paper) for "exponential", 0.1 for "smooth", and tau = 3.

    Attributes
    ----------
    matrix : scipy.sparse.csc_array of shape (n_sites, n_columns)
        The design matrix.
    faces : int array of shape (n_columns, 2)
        Level and index of each face; the children of face i are 4i to 4i + 3.
    counts : array of shape (n_columns,)
        Number of sites in each face.
    site_column : int array of shape (n_sites,)
        Column of the face that contains each site; −1 if that face has no column.
    parent : int array of shape (n_columns,)
        After `divide`: the column of the coarser design that each column comes from.

    Notes
    -----
    Faces without sites (masked, or smaller than the mesh) have no column. Designs do not change;
    `divide` returns a new one.

    Examples
    --------
    >>> import icofactor as ico
    >>> design = ico.Design(ico.Sites.named("fsaverage3"), level=1)
    >>> design.matrix.shape
    (642, 80)
    >>> design.divide([0, 1]).matrix.shape  # two faces become eight
    (642, 86)
    """

    def __init__(
        self,
        sites: Sites,
        kind: str = "partition",
        level: int = 0,
        sigma: float | None = None,
        tau: float = DEFAULT_TAU,
    ) -> None:
        _check(sites, kind, level, sigma, tau)
        self._set_kind(
            sites,
            kind,
            int(level),
            DEFAULT_SIGMA[kind] if sigma is None else float(sigma),
            float(tau),
        )
        index = np.arange(sites.n_roots * 4**level, dtype=np.int64)
        faces = np.column_stack([np.full_like(index, level), index])
        self._set_columns(
            faces, np.arange(len(faces)), sites.face_at(level), self._new_columns(faces)
        )

    @classmethod
    def from_faces(
        cls,
        sites: Sites,
        faces: np.ndarray,
        kind: str = "partition",
        level: int = 0,
        sigma: float | None = None,
        tau: float = DEFAULT_TAU,
    ) -> Design:
        """Make a design with these active faces, in this order; `level` is the level it started
        from.
        """
        _check(sites, kind, level, sigma, tau)
        faces = np.array(faces, dtype=np.int64)
        if faces.ndim != 2 or faces.shape[1] != 2:
            raise ArgumentError(
                "faces", Phrase(f"shape {faces.shape}"), "an array of two columns, level and index"
            )
        levels = faces[:, 0]
        if (levels < 0).any() or (levels > sites.max_level).any():
            raise ArgumentError("faces", None, f"at levels 0 to {sites.max_level}, the mesh's own")
        if (faces[:, 1] < 0).any() or (faces[:, 1] >= sites.n_roots * 4**levels).any():
            raise ArgumentError(
                "faces", None, "faces that their levels have; an index is out of range"
            )
        design = object.__new__(cls)
        design._set_kind(
            sites,
            kind,
            int(level),
            DEFAULT_SIGMA[kind] if sigma is None else float(sigma),
            float(tau),
        )
        column = np.full(sites.n, -1, dtype=np.int64)
        for at in np.unique(levels):
            lookup = np.full(sites.n_roots * 4 ** int(at), -1, dtype=np.int64)
            lookup[faces[levels == at, 1]] = np.flatnonzero(levels == at)
            found = lookup[sites.face_at(int(at))]
            column = np.where(found >= 0, found, column)
        design._set_columns(faces, np.arange(len(faces)), column, design._new_columns(faces))
        return design

    @classmethod
    def starting(
        cls, sites: Sites, kind: str = "partition", level: int = 0, sigma: float | None = None
    ) -> Design:
        """Make the design that a fit starts from: the faces of `level`, or the parcels if there are
        fewer of them.
        """
        level = min(level, sites.max_level)
        alone = sites.regions is not None and (
            not sites.regions.placed or sites.n < sites.n_roots * 4**level
        )
        return cls.of_sites(sites) if alone else cls(sites, kind, level, sigma)

    @classmethod
    def of_sites(cls, sites: Sites) -> Design:
        """Make a design with one column per parcel."""
        faces = np.column_stack([np.full_like(sites.deepest, sites.max_level), sites.deepest])
        return cls.from_faces(sites, faces, level=sites.max_level)

    # ------------------------------------------------------------------ what the columns are

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.faces)

    @cached_property
    def matrix(self) -> sp.csc_array:
        """D, n_sites × n_k."""
        if self._raw is None:
            return partition_columns(self.site_column, self.n_columns)
        if self.kind == "exponential":
            return self._raw
        sums = np.asarray(self._raw.sum(axis=1)).ravel()
        inverse = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)
        return sp.csc_array(sp.diags_array(inverse) @ self._raw)

    def columns(self, positions: np.ndarray) -> sp.csc_array:
        """Some columns of the matrix."""
        return self.matrix[:, positions]

    @cached_property
    def counts(self) -> np.ndarray:
        """Number of sites located in each active face."""
        return np.bincount(self.site_column[self.site_column >= 0], minlength=self.n_columns)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Weight of the sites located in each active face: their number where all count alike."""
        if self.sites.weights is None:
            return self.counts
        inside = self.site_column >= 0
        return np.bincount(
            self.site_column[inside], self.sites.weights[inside], minlength=self.n_columns
        )

    @cached_property
    def divisible(self) -> np.ndarray:
        """Which columns `divide` accepts: above the mesh's own level, holding more than one site,
        and with children that reach a site.
        """
        able = (self.faces[:, 0] < self.sites.max_level) & (self.counts > 1)
        if self.kind != "partition" and able.any():
            full = np.diff(self._new_columns(_children(self.faces[able])).indptr) > 0  # type: ignore[union-attr]
            able[able] = full.reshape(-1, 4).any(axis=1)
        return able

    @cached_property
    def root(self) -> np.ndarray:
        """The root face (0..19, or 0..39 for two hemispheres) of each column."""
        return self.faces[:, 1] >> (2 * self.faces[:, 0])

    @cached_property
    def roots(self) -> Design:
        """The design of the same kind on the root faces, where the penalty is measured (method.md
        §2).
        """
        if self.n_columns == self.sites.n_roots and not self.faces[:, 0].any():
            return self
        # fewer columns at level 0 can mean faces that lost theirs to a division, not only faces
        # masked away
        return Design(self.sites, self.kind, 0, self.sigma, self.tau)

    @cached_property
    def site_depth(self) -> np.ndarray:
        """Per site, how often its face was divided since the starting level."""
        depth = np.append(self.faces[:, 0] - self.level, 0)
        return depth[self.site_column]

    # ------------------------------------------------------------------ dividing

    def divide(self, positions: Sequence[int] | np.ndarray) -> Design:
        """Return the design in which the four children of each face at `positions` replace it.

        The other columns keep their order; the children follow, in the order of `positions`.

        Examples
        --------
        >>> import icofactor as ico
        >>> ico.Design(ico.Sites.icosphere(3), level=0).divide([0]).n_columns
        23
        """
        divided = self._check_positions(positions)
        stay = others(divided, self.n_columns)
        children = _children(self.faces[divided])
        finer = object.__new__(Design)
        finer._set_kind(self.sites, self.kind, self.level, self.sigma, self.tau)
        new = self._new_columns(children)
        finer._set_columns(
            np.vstack([self.faces[stay], children]),
            np.concatenate([stay, np.repeat(divided, 4)]),
            self._relocated(stay, divided),
            None if new is None else sp.csc_array(sp.hstack([self._raw[:, stay], new])),  # type: ignore[index]
        )
        return finer

    def changed_columns(self, coarser: Design) -> np.ndarray:
        """Columns that differ from their parent column in `coarser`, the design that was divided.

        These are the children and, for smooth columns, those that overlap a divided column, because
        their row sums changed.
        """
        new = self.faces[:, 0] != coarser.faces[self.parent, 0]
        if self.kind == "smooth":
            assert self._raw is not None and coarser._raw is not None
            gone = np.setdiff1d(np.arange(coarser.n_columns), self.parent[~new])
            touched = np.zeros(self.sites.n)
            touched[coarser._raw[:, gone].indices] = 1.0
            touched[self._raw[:, np.flatnonzero(new)].indices] = 1.0
            new = new | (self._raw.T @ touched > 0)
        return np.flatnonzero(new)

    def _relocated(self, stay: np.ndarray, divided: np.ndarray) -> np.ndarray:
        """`site_column` after a division: only the sites of the divided faces look for their child."""
        position = np.full(
            self.n_columns + 1, -1, dtype=np.int64
        )  # the last entry answers for column −1
        position[stay] = np.arange(len(stay))
        column = position[self.site_column]
        order = np.full(self.n_columns, -1, dtype=np.int64)
        order[divided] = np.arange(len(divided))
        moved = np.flatnonzero((self.site_column >= 0) & (column < 0))
        which = order[self.site_column[moved]]
        child_level = self.faces[divided, 0][which] + 1
        for level in np.unique(child_level):
            at = child_level == level
            child = self.sites.face_at(int(level))[moved[at]] & 3
            column[moved[at]] = len(stay) + 4 * which[at] + child
        return column

    # ------------------------------------------------------------------ assembly

    def _new_columns(self, faces: np.ndarray) -> sp.csc_array | None:
        if self.kind == "partition":
            return None  # `site_column` says it all
        assert self.sigma is not None
        return exponential_columns(self.sites, faces, self.sigma, self.tau)

    def _set_kind(
        self, sites: Sites, kind: str, level: int, sigma: float | None, tau: float
    ) -> None:
        self.sites, self.kind, self.level, self.sigma, self.tau = sites, kind, level, sigma, tau

    def _set_columns(
        self,
        faces: np.ndarray,
        parent: np.ndarray,
        site_column: np.ndarray,
        raw: sp.csc_array | None,
    ) -> None:
        """Keep the columns that hold a site; the others are not made."""
        if raw is None:
            full = np.bincount(site_column[site_column >= 0], minlength=len(faces)) > 0
        else:
            full = np.diff(raw.indptr) > 0
            raw = sp.csc_array(raw[:, np.flatnonzero(full)])
            raw.sort_indices()
        position = np.append(np.where(full, np.cumsum(full) - 1, -1), -1)
        self.site_column = position[site_column]
        self.faces, self.parent, self._raw = faces[full], parent[full], raw
        if not len(self.faces):
            raise ArgumentError(
                "sigma",
                self.sigma,
                f"larger, or {{kind='partition'}}: no column of kind {self.kind!r} reaches any of the {self.sites.n} "
                "sites",
            )
        for array in (self.faces, self.parent, self.site_column):
            array.flags.writeable = False

    def _check_positions(self, positions: Sequence[int] | np.ndarray) -> np.ndarray:
        divided = np.asarray(positions).ravel()
        if divided.dtype == bool:
            raise ArgumentError(
                "positions", Phrase("a mask, use np.flatnonzero(mask)"), "numbers of columns"
            )
        if len(divided) and not np.issubdtype(divided.dtype, np.integer):
            raise ArgumentError("positions", Phrase(divided.dtype), "whole numbers")
        divided = divided.astype(np.int64)
        if len(divided) and (divided.min() < 0 or divided.max() >= self.n_columns):
            raise ArgumentError(
                "positions",
                Phrase(f"{divided.min()}..{divided.max()}"),
                f"in 0..{self.n_columns - 1} (the design has {self.n_columns} columns)",
            )
        if len(np.unique(divided)) != len(divided):
            raise ArgumentError(
                "positions", Phrase("a column twice"), "different columns: each can be divided once"
            )
        if not self.divisible[divided].all():
            stuck = divided[~self.divisible[divided]]
            raise ArgumentError(
                "positions",
                stuck.tolist(),
                f"columns that can be divided, not at the mesh's own level ({self.sites.max_level}), with more than "
                "one site, and with children that reach some; see design.divisible",
            )
        return divided

    def __repr__(self) -> str:
        levels = np.unique(self.faces[:, 0])
        span = f"level {levels[0]}" if len(levels) == 1 else f"levels {levels[0]}..{levels[-1]}"
        return f"Design({self.kind}, {self.n_columns} columns at {span}, {self.sites!r})"


def others(positions: np.ndarray, n: int) -> np.ndarray:
    """The numbers below n that are not among `positions`."""
    left = np.ones(n, dtype=bool)
    left[positions] = False
    return np.flatnonzero(left)


def diagonal_matrix(values: np.ndarray) -> sp.csr_array:
    """diag(values), in a tenth of the time of `scipy.sparse.diags_array`."""
    full = values != 0
    ends = np.concatenate([[0], np.cumsum(full)]).astype(np.int32)
    found = (values[full].astype(np.float64), np.flatnonzero(full).astype(np.int32), ends)
    return sp.csr_array(found, shape=(len(values), len(values)))


def exchanged_columns(
    L: np.ndarray, parent: np.ndarray, changed: np.ndarray, new: np.ndarray
) -> np.ndarray:
    """L after a division: the columns of the parents, those that `changed` replaced by `new`."""
    stay = len(parent) - len(changed)
    if len(changed) and changed[0] < stay:  # smooth columns change anywhere
        found = L[:, parent]
        found[:, changed] = new
        return found
    # children come last: what lies between the divided columns is copied row by row, three times as
    # fast as one by one
    ends = np.flatnonzero(np.diff(parent[:stay], prepend=-2, append=-2) != 1)
    kept = [L[:, parent[a] : parent[b - 1] + 1] for a, b in itertools.pairwise(ends.tolist())]
    return np.concatenate([*kept, new], axis=1)


def _children(faces: np.ndarray) -> np.ndarray:
    """The four children of each face, level and index."""
    return np.column_stack(
        [np.repeat(faces[:, 0] + 1, 4), (4 * faces[:, 1][:, None] + np.arange(4)).ravel()]
    )


def _check(sites: Sites, kind: str, level: int, sigma: float | None, tau: float) -> None:
    if not isinstance(sites, Sites):
        raise ArgumentError(
            "sites", Phrase(type(sites).__name__), "a Sites, e.g. Sites.named('fsaverage5')"
        )
    check_value("kind", kind, OneOf(KINDS))
    if not Whole(0).accepts(level) or level > sites.max_level:
        raise ArgumentError(
            "level", level, f"a whole number from 0 to {sites.max_level}, the mesh's own"
        )
    check_parameters(sigma=sigma)
    check_value("tau", tau, Number(positive=True))
    if sites.n == 0:
        raise ArgumentError("sites", None, "not empty: the mask leaves no site to factorize")
