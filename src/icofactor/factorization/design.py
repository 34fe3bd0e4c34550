"""`Design`: the active faces of the hierarchy, and the sparse matrix D whose columns they are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.spatial import KDTree

from icofactor.checks import Number, OneOf, Whole, check_parameters, check_value
from icofactor.errors import ArgumentError, shown
from icofactor.sphere.sites import Sites

KINDS = ("partition", "exponential", "smooth")
DEFAULT_SIGMA = {"partition": None, "exponential": 0.015, "smooth": 0.1}
DEFAULT_TAU = 3.0


def partition_columns(site_column: np.ndarray, n_columns: int) -> sp.csc_array:
    """Return indicators: 1 on the sites located in the face, 0 elsewhere."""
    rows = np.flatnonzero(site_column >= 0)
    ones = np.ones(len(rows))
    shape = (len(site_column), n_columns)
    return sp.csc_array((ones, (rows, site_column[rows])), shape=shape)


def exponential_columns(
    sites: Sites,
    faces: np.ndarray,
    sigma: float,
    tau: float,
) -> sp.csc_array:
    """Return exp(−θ/πσ) for θ ≤ πστ, else 0, with θ the angle between site and centre of the face.

    σ halves with each level.
    """
    level, index = faces.T
    scale = np.pi * sigma / 2.0**level
    radius = np.minimum(scale * tau, np.pi)
    # Hemispheres are far apart along a fourth axis, so that no face reaches a site of another one.
    points = np.column_stack([sites.coordinates, 10.0 * sites.hemisphere])
    centres = np.column_stack(
        [
            sites.face_centres(level, index),
            10.0 * sites.face_hemisphere(level, index),
        ]
    )
    # A chord of length 2 sin(θ/2) spans the angle θ.
    longest_chord = 2 * np.sin(radius.max(initial=0.0) / 2)
    # Rounding must not lose a site on the border.
    longest_chord = longest_chord * (1 + 1e-9) + 1e-12
    pairs = KDTree(points).sparse_distance_matrix(
        KDTree(centres), longest_chord, output_type="ndarray"
    )
    # The arccosine of the inner product would lose digits near 0.
    half_chord = np.minimum(pairs["v"] / 2, 1.0)
    theta = 2 * np.arcsin(half_chord)
    inside = theta <= radius[pairs["j"]]
    rows = pairs["i"][inside]
    columns = pairs["j"][inside]
    values = np.exp(-theta[inside] / scale[columns])
    shape = (sites.n, len(faces))
    return sp.csc_array((values, (rows, columns)), shape=shape)


def columns_of_sites(sites: Sites, faces: np.ndarray) -> np.ndarray:
    """Return which of the faces contains each site; −1 for none."""
    columns = np.full(sites.n, -1, dtype=np.int64)
    for level in np.unique(faces[:, 0]).tolist():
        of_level = np.flatnonzero(faces[:, 0] == level)
        n_faces = sites.n_roots * 4**level
        column_of_face = np.full(n_faces, -1, dtype=np.int64)
        column_of_face[faces[of_level, 1]] = of_level
        # Active faces tile the sphere, so at most one level has a column for a site.
        candidates = column_of_face[sites.face_at(level)]
        np.maximum(columns, candidates, out=columns)
    return columns


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
        self._set_kind(sites, kind, level, sigma, tau)
        index = np.arange(sites.n_roots * 4**level)
        levels = np.full_like(index, level)
        self._set_faces(np.column_stack([levels, index]))

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
        design = object.__new__(cls)
        design._set_kind(sites, kind, level, sigma, tau)
        faces = np.array(faces, dtype=np.int64)
        if faces.ndim != 2 or faces.shape[1] != 2:
            expected = "an array of two columns, level and index"
            raise ArgumentError("faces", f"must be {expected}; found shape {faces.shape}")
        levels, index = faces.T
        on_mesh = (levels >= 0) & (levels <= sites.max_level)
        if not on_mesh.all():
            message = f"must be at levels 0 to {sites.max_level}, the level of the mesh"
            raise ArgumentError("faces", message)
        in_range = (index >= 0) & (index < sites.n_roots * 4**levels)
        if not in_range.all():
            raise ArgumentError("faces", "contains an index that its level does not have")
        design._set_faces(faces)
        return design

    @classmethod
    def starting(
        cls,
        sites: Sites,
        kind: str = "partition",
        level: int = 0,
        sigma: float | None = None,
    ) -> Design:
        """Make the design that a fit starts from: the faces of `level`, or the parcels if there are
        fewer of them.
        """
        level = min(level, sites.max_level)
        parcels = sites.regions
        n_faces = sites.n_roots * 4**level
        if parcels is not None and (not parcels.placed or sites.n < n_faces):
            return cls.of_sites(sites)
        return cls(sites, kind, level, sigma)

    @classmethod
    def of_sites(cls, sites: Sites) -> Design:
        """Make a design with one column per parcel."""
        level = sites.max_level
        levels = np.full_like(sites.deepest, level)
        faces = np.column_stack([levels, sites.deepest])
        return cls.from_faces(sites, faces, level=level)

    # ------------------------------------------------------------------ what the columns are

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.faces)

    @cached_property
    def matrix(self) -> sp.csc_array:
        """D, n_sites × n_k."""
        if self._exponential is None:
            return partition_columns(self.site_column, self.n_columns)
        if self.kind == "exponential":
            return self._exponential
        sums = np.asarray(self._exponential.sum(axis=1)).ravel()
        inverse = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)
        return sp.csc_array(sp.diags_array(inverse) @ self._exponential)

    def columns(self, positions: np.ndarray) -> sp.csc_array:
        """Some columns of the matrix."""
        return self.matrix[:, positions]

    @cached_property
    def counts(self) -> np.ndarray:
        """Number of sites located in each active face."""
        columns = self.site_column[self.site_column >= 0]
        return np.bincount(columns, minlength=self.n_columns)

    @cached_property
    def sizes(self) -> np.ndarray:
        """Weight of the sites located in each active face: their number where all count alike."""
        if self.sites.weights is None:
            return self.counts
        inside = self.site_column >= 0
        columns = self.site_column[inside]
        weights = self.sites.weights[inside]
        return np.bincount(columns, weights, minlength=self.n_columns)

    @cached_property
    def divisible(self) -> np.ndarray:
        """Which columns `divide` accepts: above the mesh's own level, holding more than one site,
        and with children that reach a site.
        """
        above_mesh = self.faces[:, 0] < self.sites.max_level
        divisible = above_mesh & (self.counts > 1)
        if self.kind != "partition":
            children = self._exponential_columns(children_of(self.faces[divisible]))
            reaches_site = (np.diff(children.indptr) > 0).reshape(-1, 4)
            divisible[divisible] = reaches_site.any(axis=1)
        return divisible

    @cached_property
    def root(self) -> np.ndarray:
        """The root face (0..19, or 0..39 for two hemispheres) of each column."""
        level, index = self.faces.T
        return index >> (2 * level)

    @cached_property
    def roots(self) -> Design:
        """The design of the same kind on the root faces, where the penalty is measured."""
        at_level_0 = not self.faces[:, 0].any()
        if at_level_0 and self.n_columns == self.sites.n_roots:
            return self
        # Fewer columns at level 0 can mean faces that were divided, not only faces masked away.
        return Design(self.sites, self.kind, 0, self.sigma, self.tau)

    @cached_property
    def site_depth(self) -> np.ndarray:
        """Per site, how often its face was divided since the starting level."""
        # The last entry answers for column −1.
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
        undivided = all_but(divided, self.n_columns)
        children = children_of(self.faces[divided])
        faces = np.vstack([self.faces[undivided], children])
        parent = np.concatenate([undivided, np.repeat(divided, 4)])
        exponential = None
        if self._exponential is not None:
            blocks = [self._exponential[:, undivided], self._exponential_columns(children)]
            exponential = sp.csc_array(sp.hstack(blocks))
        finer = object.__new__(Design)
        finer._set_kind(self.sites, self.kind, self.level, self.sigma, self.tau)
        finer._set_faces(faces, parent, exponential)
        return finer

    def changed_columns(self, coarser: Design) -> np.ndarray:
        """Columns that differ from their parent column in `coarser`, the design that was divided.

        These are the children and, for smooth columns, those that overlap a divided column, because
        their row sums changed.
        """
        changed = self.faces[:, 0] != coarser.faces[self.parent, 0]
        if self.kind == "smooth":
            assert self._exponential is not None and coarser._exponential is not None
            divided = all_but(self.parent[~changed], coarser.n_columns)
            before = coarser._exponential[:, divided]
            after = self._exponential[:, np.flatnonzero(changed)]
            touched = np.zeros(self.sites.n)
            touched[before.indices] = 1.0
            touched[after.indices] = 1.0
            overlap = self._exponential.T @ touched
            changed = changed | (overlap > 0)
        return np.flatnonzero(changed)

    # ------------------------------------------------------------------ assembly

    def _set_kind(
        self,
        sites: Sites,
        kind: str,
        level: int,
        sigma: float | None,
        tau: float,
    ) -> None:
        """Check and set what the columns are like."""
        if not isinstance(sites, Sites):
            message = "must be a Sites, e.g. Sites.named('fsaverage5')"
            raise ArgumentError("sites", f"{message}; found a {type(sites).__name__}")
        check_value("kind", kind, OneOf(KINDS))
        is_whole = Whole(0).accepts(level)
        if not is_whole or level > sites.max_level:
            message = f"must be a whole number from 0 to {sites.max_level}, the level of the mesh"
            raise ArgumentError("level", f"{message}; found {shown(level)}")
        check_parameters(sigma=sigma)
        check_value("tau", tau, Number(positive=True))
        if sites.n == 0:
            raise ArgumentError("sites", "is empty: the mask leaves no site to factorize")
        self.sites = sites
        self.kind = kind
        self.level = int(level)
        self.sigma = DEFAULT_SIGMA[kind] if sigma is None else float(sigma)
        self.tau = float(tau)

    def _set_faces(
        self,
        faces: np.ndarray,
        parent: np.ndarray | None = None,
        exponential: sp.csc_array | None = None,
    ) -> None:
        """Set the active faces and their columns; faces whose column would be empty have none."""
        columns = columns_of_sites(self.sites, faces)
        if self.kind == "partition":
            n_reached = np.bincount(columns[columns >= 0], minlength=len(faces))
        else:
            if exponential is None:
                exponential = self._exponential_columns(faces)
            n_reached = np.diff(exponential.indptr)
        filled = np.flatnonzero(n_reached)
        if not len(filled):
            message = f"no {self.kind} column of width {self.sigma} reaches any of the sites"
            raise ArgumentError("sigma", f"{message}; use a larger one, or partition columns")
        if exponential is not None:
            exponential = sp.csc_array(exponential[:, filled])
            exponential.sort_indices()
        # The last entry answers for column −1.
        new_position = np.full(len(faces) + 1, -1)
        new_position[filled] = np.arange(len(filled))
        self._exponential = exponential
        self.site_column = new_position[columns]
        self.faces = faces[filled]
        self.parent = filled if parent is None else parent[filled]
        for array in (self.faces, self.parent, self.site_column):
            array.flags.writeable = False

    def _exponential_columns(self, faces: np.ndarray) -> sp.csc_array:
        assert self.sigma is not None
        return exponential_columns(self.sites, faces, self.sigma, self.tau)

    def _check_positions(self, positions: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return numbers of columns that can be divided, as integers."""
        divided = np.asarray(positions).ravel()
        is_integer = np.issubdtype(divided.dtype, np.integer)
        if len(divided) and not is_integer:
            message = "must be whole numbers of columns; of a mask take np.flatnonzero(mask)"
            raise ArgumentError("positions", f"{message}; found {divided.dtype}")
        divided = divided.astype(np.int64)
        in_range = (divided >= 0) & (divided < self.n_columns)
        if not in_range.all():
            message = f"must lie in 0..{self.n_columns - 1}, the columns of the design"
            span = f"{divided.min()}..{divided.max()}"
            raise ArgumentError("positions", f"{message}; found {span}")
        if len(np.unique(divided)) != len(divided):
            raise ArgumentError("positions", "contains a column twice; each can be divided once")
        indivisible = divided[~self.divisible[divided]]
        if len(indivisible):
            message = f"columns {shown(indivisible.tolist())} cannot be divided"
            raise ArgumentError("positions", f"{message}; see design.divisible")
        return divided

    def __repr__(self) -> str:
        levels = np.unique(self.faces[:, 0])
        span = f"level {levels[0]}" if len(levels) == 1 else f"levels {levels[0]}..{levels[-1]}"
        return f"Design({self.kind}, {self.n_columns} columns at {span}, {self.sites!r})"


def all_but(positions: np.ndarray, n: int) -> np.ndarray:
    """Return the numbers below n that are not among `positions`."""
    remaining = np.ones(n, dtype=bool)
    remaining[positions] = False
    return np.flatnonzero(remaining)


def children_of(faces: np.ndarray) -> np.ndarray:
    """Return the four children of each face, level and index."""
    levels, index = faces.T
    child_levels = np.repeat(levels + 1, 4)
    children = 4 * index[:, None] + np.arange(4)
    return np.column_stack([child_levels, children.ravel()])


def diagonal_matrix(values: np.ndarray) -> sp.csr_array:
    """Return diag(values) of values ≠ 0, in a tenth of the time of `scipy.sparse.diags_array`."""
    n = len(values)
    numbers = np.arange(n + 1, dtype=np.int32)
    entries = values.astype(np.float64)
    return sp.csr_array((entries, numbers[:-1], numbers), shape=(n, n))


def exchanged_columns(
    L: np.ndarray,
    parent: np.ndarray,
    changed: np.ndarray,
    new: np.ndarray,
) -> np.ndarray:
    """Return L after a division: its columns `parent`, of which `changed` are replaced by `new`."""
    n_unchanged = len(parent) - len(changed)
    if len(changed) and changed[0] < n_unchanged:
        # Smooth columns change anywhere.
        exchanged = L[:, parent]
        exchanged[:, changed] = new
        return exchanged
    # Children come last. The columns between the divided ones are copied as blocks: three times as
    # fast as one by one.
    steps = np.diff(parent[:n_unchanged], prepend=-2, append=-2)
    ends = np.flatnonzero(steps != 1).tolist()
    blocks = []
    for first, end in itertools.pairwise(ends):
        blocks.append(L[:, parent[first] : parent[end - 1] + 1])
    return np.concatenate([*blocks, new], axis=1)
