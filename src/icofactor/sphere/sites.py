"""Sites: where measurements lie on the sphere, and which face of the hierarchy holds each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation

from icofactor.checks import OneOf, check_value
from icofactor.errors import ArgumentError, FileError
from icofactor.io.records import Numbers, plain_signature
from icofactor.sphere import hierarchy
from icofactor.sphere.hierarchy import (
    MAX_LEVEL,
    Floats,
    Ints,
    Triangles,
    icosphere,
    locate_sites,
    n_faces,
)
from icofactor.sphere.names import civet_name, hemispheres, is_fs_lr
from icofactor.sphere.parcels import Parcels, parcel_sites
from icofactor.sphere.recognise import IcosahedralMatch, icosphere_within, recognise
from icofactor.sphere.standard import (
    freesurfer_mesh,
    fs_lr_sphere,
    parse_name,
    same_listing,
    same_mesh,
)
from icofactor.sphere.surfaces import check_points, read_surface, sphere_problem

On = Literal["vertices", "faces"]
Hemi = Literal["left", "right", "both"]
# Files give four decimals on the unit sphere and midpoints rounded at every level: 2e-4 is seen.
SAME_POSITION = 5e-4
# `Sites.hemisphere` is int8 and numbers two hemispheres of every copy.
MOST_COPIES = 60
# Half of the vertices further than this from where the mesh puts them: faces of another mesh.
MOST_DISPLACED = np.cos(np.deg2rad(30))


@plain_signature
@dataclass(frozen=True, eq=False, repr=False)
class Sites:
    """Positions of measurements on the spheres of one or two hemispheres.

    Use `named`, `icosphere`, `from_sphere`, `from_file` or `parcels` to make them.

    Attributes
    ----------
    coordinates : array of shape (n, 3)
        Unit vectors.
    hemisphere : int8 array of shape (n,)
        0 for left or the only one, 1 for right.
    on : {"vertices", "faces", "points", "parcels"}
        Kind of sites; "points" if no mesh is known.
    level, name : int or None, str or None
        Level of the icosahedral mesh, and its name. "fsaverage4-B" has the points of fsaverage4 in
        the other of FreeSurfer's two numberings.
    triangles : int array of shape (n_faces, 3) or None
        Mesh of one hemisphere; None if unknown, or if the hemispheres differ.
    position, n_mesh : int array of shape (n,), int
        Number of each site in the whole mesh, before any `subset`, and number of sites of the whole
        mesh.
    deepest, frames : int array of shape (n,), array of shape (1 or 2, 3, 3)
        Face of level `max_level` of each site, and the rotation of the hierarchy for each
        hemisphere.
    weights : array of shape (n,) or None
        Weight of each site in sums over sites, such as its area; None for equal weights.
    n_copies, regions : int, Parcels or None
        Copies of the mesh that follow each other (`repeated`), and the regions if the sites are
        parcels.

    Examples
    --------
    >>> import icofactor as ico
    >>> ico.Sites.named("fsaverage5", on="faces")
    Sites(20480 faces of fsaverage5)
    >>> sites = ico.Sites.named("fsaverage3", hemi="both")
    >>> sites.n, sites.n_roots
    (1284, 40)
    >>> sites.face_at(0).max()
    np.int64(39)
    """

    coordinates: Annotated[Floats, Numbers("v3")]
    hemisphere: Annotated[NDArray[np.int8], Numbers("v", "i", least=0, below="h")]
    on: Literal["vertices", "faces", "points", "parcels"]
    level: int | None
    name: str | None
    triangles: Annotated[Triangles | None, Numbers("t3", "i", least=0)]
    position: Annotated[Ints, Numbers("v", "i", least=0)]
    n_mesh: int
    deepest: Annotated[Ints, Numbers("v", "i", least=0)]
    frames: Annotated[Floats, Numbers("h33")]
    weights: Annotated[Floats | None, Numbers("v", least=0)] = None
    n_copies: int = 1
    regions: Parcels | None = None

    def __post_init__(self) -> None:
        for array in (self.coordinates, self.hemisphere, self.position, self.deepest, self.frames):
            array.setflags(write=False)
        for optional in (self.triangles, self.weights):
            if optional is not None:
                optional.setflags(write=False)

    def __repr__(self) -> str:
        text = f"{self.n} {self.on}"
        if self.regions is not None or self.name is not None:
            text += f" of {self.regions or self.name}"
        elif self.level is not None:
            text += f" of an icosahedral mesh of level {self.level}"
        elif self.triangles is not None:
            text += " of a mesh that is not icosahedral"
        if self.n_hemispheres == 2:
            text += ", both hemispheres"
        if self.n_copies > 1:
            text += f", {self.n_copies} copies"
        if self.n != self.n_mesh:
            text += f", of {self.n_mesh}"
        return f"Sites({text})"

    def __len__(self) -> int:
        return self.n

    @property
    def n(self) -> int:
        """Number of sites."""
        return len(self.coordinates)

    @property
    def max_level(self) -> int:
        """Level of the smallest faces: that of the mesh, or the last of the hierarchy."""
        return MAX_LEVEL if self.level is None else self.level

    @property
    def n_roots(self) -> int:
        """Number of faces of level 0: 20 per hemisphere."""
        return 20 * len(self.frames)

    @property
    def total_weight(self) -> float:
        """Sum of the weights; the number of sites for equal weights."""
        return self.n if self.weights is None else float(self.weights.sum())

    def weigh(self, values: np.ndarray, sites: Any = slice(None)) -> np.ndarray:
        """Multiply values, one or one row per site (of these sites), by the weights."""
        if self.weights is None:
            return values
        weights = self.weights[sites]
        return values * (weights if values.ndim == 1 else weights[:, None])

    @property
    def n_hemispheres(self) -> int:
        """Number of hemispheres, 1 or 2."""
        return len(self.frames) // self.n_copies

    @property
    def copy(self) -> Ints:
        """Number of the copy of each site."""
        return np.asarray(self.hemisphere // self.n_hemispheres, dtype=np.int64)

    @property
    def placed(self) -> bool:
        """Whether the positions of the sites are known; not for tables without an atlas."""
        return self.regions is None or self.regions.placed

    @property
    def surface(self) -> Sites:
        """Sites on which maps are drawn and written: these, or the vertices of an atlas."""
        return self if self.regions is None else self.regions.sites()

    def on_surface(self, values: NDArray[Any], missing: Any = 0) -> NDArray[Any]:
        """Return values (..., n_sites) at the sites of `surface`; `missing` outside parcels."""
        return values if self.regions is None else self.regions.painted(values, missing)

    # Where sites lie in the hierarchy

    def face_at(self, level: int) -> Ints:
        """Index of the face of `level` that contains each site.

        Faces of the second hemisphere follow those of the first. The parent of face i is i // 4,
        and its children are 4i to 4i + 3.
        """
        if not 0 <= level <= self.max_level:
            text = f"must be 0 to {self.max_level}, the finest of {self!r}; found {level}"
            raise ArgumentError("level", text)
        return self.deepest >> 2 * (self.max_level - level)

    def face_hemisphere(self, level: ArrayLike, index: ArrayLike) -> NDArray[np.int8]:
        """Hemisphere of faces `index` of `level`; levels may differ between faces."""
        levels, indices = np.broadcast_arrays(np.atleast_1d(level), np.atleast_1d(index))
        per_hemisphere = 20 * 4 ** levels.astype(np.int64)
        if np.any(indices < 0) or np.any(indices >= len(self.frames) * per_hemisphere):
            raise ArgumentError(
                "index",
                f"must be 0 to {self.n_roots}·4^level − 1, the faces of {self!r}; found "
                f"{indices.min()} to {indices.max()} at levels {levels.min()} to {levels.max()}",
            )
        return (indices // per_hemisphere).astype(np.int8)

    def face_corners(self, level: ArrayLike, index: ArrayLike) -> Floats:
        """Corners of faces, of shape (m, 3, 3), in the frame of the sites."""
        half = self.face_hemisphere(level, index)
        per_hemisphere = 20 * 4 ** np.atleast_1d(level).astype(np.int64)
        corners = hierarchy.face_corners(level, np.atleast_1d(index) - half * per_hemisphere)
        return np.einsum("mij,mkj->mki", self.frames[half], corners)

    def face_centres(self, level: ArrayLike, index: ArrayLike) -> Floats:
        """Centres of faces, of shape (m, 3), in the frame of the sites."""
        return hierarchy.normalized(self.face_corners(level, index).sum(axis=1))

    # Other sites from these

    def subset(self, keep: ArrayLike) -> Sites:
        """Select sites by a bool mask or by their numbers; the hierarchy stays the same.

        Examples
        --------
        >>> import icofactor as ico
        >>> ico.Sites.icosphere(1).subset(range(10)).n
        10
        """
        selected = np.asarray(keep)
        problem = None
        if selected.ndim != 1:
            problem = f"must have one dimension; found shape {selected.shape}"
        elif selected.dtype == bool:
            if len(selected) != self.n:
                problem = f"must be one boolean per site, {self.n}; found {len(selected)} entries"
            selected = np.flatnonzero(selected)
        elif selected.size == 0:
            selected = selected.astype(np.int64)
        elif not np.issubdtype(selected.dtype, np.integer):
            problem = f"must be a boolean mask or integers; found {selected.dtype}"
        elif selected.min() < 0 or selected.max() >= self.n:
            numbers = f"{selected.min()} to {selected.max()}"
            problem = f"must be numbers 0 to {self.n - 1}; found {numbers}"
        if problem is not None:
            raise ArgumentError("keep", problem)
        return self._at(selected)

    def _at(self, rows: Ints, **changes: Any) -> Sites:
        """Return the sites of some rows, with other changes."""
        at_rows: dict[str, Any] = {
            "coordinates": self.coordinates[rows],
            "hemisphere": self.hemisphere[rows],
            "position": self.position[rows],
            "deepest": self.deepest[rows],
            "weights": None if self.weights is None else self.weights[rows],
        }
        return replace(self, **(at_rows | changes))

    def weighted(self, weights: ArrayLike | None, used: ArrayLike | None = None) -> Sites:
        """Return the same sites with weights.

        Parameters
        ----------
        weights : array of shape (n,) or None
            Weights in any unit, above 0 for sites in use; None for equal weights.
        used : bool array of shape (n,), optional
            Sites over which weights are scaled to a mean of 1. Default: all.

        Examples
        --------
        >>> import icofactor as ico
        >>> sites = ico.Sites.icosphere(1)
        >>> sites.weighted(range(1, 43)).weights.mean()
        np.float64(1.0)
        """
        if weights is None:
            return replace(self, weights=None)
        w = np.array(weights, dtype=np.float64)
        if w.shape != (self.n,):
            text = f"must be one number per site, {self.n}; found shape {w.shape}"
            raise ArgumentError("weights", text)
        is_used = np.ones(self.n, dtype=bool) if used is None else np.asarray(used)
        wrong = np.flatnonzero(is_used & ~(np.isfinite(w) & (w > 0)))
        if len(wrong):
            raise ArgumentError(
                "weights",
                f"must be finite and above 0 at every site that is used; found {w[wrong[0]]:g} at "
                f"site {wrong[0]} (one of {len(wrong)}): leave such sites out with --mask (mask)",
            )
        # Equal weights become 1 exactly.
        w /= w[is_used][0]
        return replace(self, weights=np.where(is_used, w / w[is_used].mean(), 0.0))

    @classmethod
    def both(cls, left: Sites, right: Sites) -> Sites:
        """Join the sites of a left and a right hemisphere, left first."""
        problem = None
        if len(left.frames) != 1 or len(right.frames) != 1:
            problem = "must be one hemisphere, as right"
        elif (left.level, left.on) != (right.level, right.on):
            problem = "must be of the same kind as right"
        if problem is not None:
            raise ArgumentError("left", f"{problem}; found {left!r} and {right!r}")
        weights = None
        if left.weights is not None and right.weights is not None:
            weights = np.concatenate([left.weights, right.weights])
        return cls(
            coordinates=np.concatenate([left.coordinates, right.coordinates]),
            hemisphere=np.repeat(np.array([0, 1], dtype=np.int8), [left.n, right.n]),
            on=left.on,
            level=left.level,
            name=left.name if left.name == right.name else None,
            triangles=left.triangles if same_mesh(left.triangles, right.triangles) else None,
            position=np.concatenate([left.position, left.n_mesh + right.position]),
            n_mesh=left.n_mesh + right.n_mesh,
            deepest=np.concatenate([left.deepest, n_faces(left.max_level) + right.deepest]),
            frames=np.concatenate([left.frames, right.frames]),
            weights=weights,
        )

    def repeated(self, n_copies: int) -> Sites:
        """Return copies of the sites, one after the other, as for several measures."""
        if self.n_copies != 1 or not 1 <= n_copies <= MOST_COPIES:
            text = f"must be 1 to {MOST_COPIES}, of sites that are no copies; found {n_copies}"
            raise ArgumentError("n_copies", text)
        n_spheres = len(self.frames)
        copy = np.repeat(np.arange(n_copies), self.n)
        rows = np.tile(np.arange(self.n), n_copies)
        return self._at(
            rows,
            hemisphere=(self.hemisphere[rows] + n_spheres * copy).astype(np.int8),
            position=self.position[rows] + self.n_mesh * copy,
            n_mesh=self.n_mesh * n_copies,
            deepest=self.deepest[rows] + n_spheres * n_faces(self.max_level) * copy,
            frames=np.tile(self.frames, (n_copies, 1, 1)),
            n_copies=n_copies,
        )

    def one_copy(self, number: int = 0) -> Sites:
        """Return the sites of one copy."""
        n_spheres = self.n_hemispheres
        n_mesh = self.n_mesh // self.n_copies
        rows = np.flatnonzero(self.copy == number)
        return self._at(
            rows,
            hemisphere=(self.hemisphere[rows] - n_spheres * number).astype(np.int8),
            position=self.position[rows] - n_mesh * number,
            n_mesh=n_mesh,
            deepest=self.deepest[rows] - n_spheres * n_faces(self.max_level) * number,
            frames=self.frames[:n_spheres],
            n_copies=1,
        )

    # Constructors

    @classmethod
    def named(cls, name: str, on: On = "vertices", hemi: Hemi = "left") -> Sites:
        """Sites of a standard mesh.

        Parameters
        ----------
        name : str
            "fsaverage3" to "fsaverage7" ("fsaverage" is the last) or "fsLR32k".
        on : {"vertices", "faces"}, default="vertices"
            Where maps have their values.
        hemi : {"left", "right", "both"}, default="left"
            Hemispheres; with "both", left sites come first.

        Examples
        --------
        >>> import icofactor as ico
        >>> ico.Sites.named("fsaverage5", hemi="both").n
        20484
        """
        if isinstance(name, str) and is_fs_lr(name):
            sides = [cls.from_sphere(*fs_lr_sphere(side), on=on) for side in hemispheres(hemi)]
            return cls.both(*sides) if len(sides) == 2 else sides[0]
        mesh = freesurfer_mesh(*parse_name(name))
        sites = _mesh_sites(
            mesh.vertices, mesh.faces, mesh.face_to_quadtree, on, mesh.level, mesh.name
        )
        return _hemispheres(sites, hemi)

    @classmethod
    def icosphere(cls, level: int, on: On = "vertices", hemi: Hemi = "left") -> Sites:
        """Vertices or faces of the mesh of the hierarchy at `level`, with faces in quadtree order.

        Examples
        --------
        >>> import icofactor as ico
        >>> ico.Sites.icosphere(3, on="faces").n
        1280
        """
        mesh = icosphere(level)
        order = np.arange(len(mesh.faces))
        return _hemispheres(_mesh_sites(mesh.vertices, mesh.faces, order, on, mesh.level), hemi)

    @classmethod
    def from_sphere(
        cls, coordinates: ArrayLike, faces: ArrayLike | None = None, on: On = "vertices"
    ) -> Sites:
        """Any points on a sphere around the origin, of any radius, or a mesh with `faces`.

        An icosahedral mesh is recognized in any order, and the hierarchy is rotated to fit it.

        Examples
        --------
        >>> import icofactor as ico
        >>> mesh = ico.Sites.icosphere(2)
        >>> ico.Sites.from_sphere(100 * mesh.coordinates, mesh.triangles).level
        2
        """
        _check_on(on)
        unit = _unit_vectors(coordinates)
        if faces is None:
            if on == "faces":
                raise ArgumentError("faces", "is needed for on='faces'")
            return _one_hemisphere(unit, "points", locate_sites(unit, MAX_LEVEL))
        triangles = np.array(faces)
        match = recognise(triangles, len(unit), unit)
        triangles = triangles.astype(np.int32)
        if match is not None:
            return _icosahedral_sites(unit, triangles, match, on)
        points = unit if on == "vertices" else _triangle_centres(unit, triangles)
        return _one_hemisphere(points, on, locate_sites(points, MAX_LEVEL), triangles=triangles)

    @classmethod
    def from_topology(cls, faces: ArrayLike, on: On = "vertices") -> Sites:
        """An icosahedral mesh of which only the triangles are known, such as a pial surface's.

        Coordinates are those of fsaverage if the triangles are in its order, otherwise those of the
        icosphere with the same topology.
        """
        triangles = np.array(faces)
        match = recognise(triangles)
        if match is None:
            raise ArgumentError(
                "faces",
                f"must be those of an icosahedral mesh; these {len(triangles)} triangles are not. "
                "Pass the sphere to Sites.from_sphere or Sites.from_file instead",
            )
        triangles = triangles.astype(np.int32)
        mesh = same_listing(triangles, match.level)
        if mesh is not None:
            order = mesh.face_to_quadtree
            return _mesh_sites(mesh.vertices, triangles, order, on, match.level, mesh.name)
        vertices = icosphere(match.level).vertices[match.vertex_to_canonical]
        return _mesh_sites(vertices, triangles, match.face_to_quadtree, on, match.level)

    @classmethod
    def parcels(cls, atlas: Any, regions: Sequence[str] | None = None, mesh: Any = None) -> Sites:
        """Make one site per region of an atlas, at the mean direction of its vertices.

        Regions are weighted by the number of their vertices.

        Parameters
        ----------
        atlas : paths, or pair (labels, mesh), or None
            An .annot or .label.gii file per hemisphere, one .dlabel.nii file, or one label per
            vertex (names, or numbers above 0) and their mesh. None if the positions of the regions
            are not known.
        regions : sequence of str, optional
            Names of the columns of a table, in their order, as FreeSurfer, ENIGMA and others write
            them. Default: all regions.
        mesh : str, Sites or path, optional
            Mesh of the files, if their number of vertices does not determine it.

        Examples
        --------
        >>> import icofactor as ico
        >>> labels = 1 + (ico.Sites.named("fsaverage3").coordinates[:, 1] > 0)
        >>> ico.Sites.parcels((labels, "fsaverage3"), ["back", "front"])
        Sites(2 parcels of an atlas on fsaverage3)
        """
        return parcel_sites(atlas, regions, mesh)

    @classmethod
    def from_file(cls, path: str | Path, on: On = "vertices") -> Sites:
        """Sites on the sphere in a GIFTI (.surf.gii) or FreeSurfer surface file; see `from_sphere`.

        Any CIVET surface (.obj) also works: its vertices are those of an icosphere, which is
        rotated to fit it.

        Examples
        --------
        >>> import icofactor as ico
        >>> sites = ico.Sites.from_file("L.sphere.32k_fs_LR.surf.gii")  # doctest: +SKIP
        """
        coordinates, faces = read_surface(path)
        is_civet_surface = str(path).endswith(".obj")
        if is_civet_surface:
            coordinates = icosphere_within(coordinates, faces)
        try:
            sites = cls.from_sphere(coordinates, faces, on)
        except ArgumentError as error:
            raise FileError(path, f"{error.argument}: {error.message}") from error
        is_civet = is_civet_surface or "tpl-civet" in Path(path).name
        if sites.level is not None and is_civet:
            return replace(sites, name=civet_name(len(coordinates)))
        return sites


def _check_on(on: str) -> None:
    check_value("on", on, OneOf(("vertices", "faces")))


def _hemispheres(sites: Sites, hemi: str) -> Sites:
    return Sites.both(sites, sites) if len(hemispheres(hemi)) == 2 else sites


def _unit_vectors(coordinates: ArrayLike) -> Floats:
    """Return points of a sphere about the origin, scaled to radius 1."""
    points = np.array(coordinates, dtype=np.float64)
    check_points(points)
    if problem := sphere_problem(points):
        text = f"must be points of a sphere about the origin; found {problem}"
        raise ArgumentError("coordinates", text)
    return hierarchy.normalized(points)


def _triangle_centres(vertices: Floats, triangles: NDArray[Any]) -> Floats:
    return hierarchy.normalized(vertices[triangles].sum(axis=1))


def _one_hemisphere(
    points: Floats,
    on: Literal["vertices", "faces", "points"],
    deepest: Ints,
    *,
    level: int | None = None,
    name: str | None = None,
    triangles: Triangles | None = None,
    frame: Floats | None = None,
) -> Sites:
    """Return the sites of a whole hemisphere."""
    n = len(points)
    return Sites(
        coordinates=points,
        hemisphere=np.zeros(n, dtype=np.int8),
        on=on,
        level=level,
        name=name,
        triangles=triangles,
        position=np.arange(n, dtype=np.int64),
        n_mesh=n,
        deepest=deepest,
        frames=np.eye(3)[None] if frame is None else frame[None],
    )


def _mesh_sites(
    vertices: Floats,
    triangles: Triangles,
    face_to_quadtree: Ints,
    on: On,
    level: int,
    name: str | None = None,
) -> Sites:
    """Return sites of a mesh whose vertices stand exactly where the hierarchy's nodes are."""
    _check_on(on)
    points = vertices
    deepest = face_to_quadtree
    if on == "faces":
        points = _triangle_centres(vertices, triangles)
    else:
        deepest = locate_sites(vertices, level)
    return _one_hemisphere(points, on, deepest, level=level, name=name, triangles=triangles)


def _icosahedral_sites(
    unit: Floats, triangles: Triangles, match: IcosahedralMatch, on: On
) -> Sites:
    """Return sites of a sphere file whose mesh was recognised."""
    level = match.level
    mesh = same_listing(triangles, level)
    if mesh is not None and np.abs(mesh.vertices - unit).max() <= SAME_POSITION:
        order = mesh.face_to_quadtree
        return _mesh_sites(mesh.vertices, triangles, order, on, level, mesh.name)
    nodes = icosphere(level).vertices[match.vertex_to_canonical]
    frame = np.eye(3)
    if np.abs(nodes - unit).max() > SAME_POSITION:
        # The twelve corners of the icosahedron.
        is_corner = match.vertex_to_canonical < 12
        frame = Rotation.align_vectors(unit[is_corner], nodes[is_corner])[0].as_matrix()
    turned_nodes = nodes @ frame.T
    if np.median(np.sum(turned_nodes * unit, axis=1)) < MOST_DISPLACED:
        raise ArgumentError(
            "faces",
            "do not belong to the coordinates: half of the vertices lie more than 30 degrees from "
            "where the mesh puts them. FreeSurfer numbers fsaverage3-4 and fsaverage5-7 "
            "differently; take both from one file",
        )
    points = unit
    deepest = match.face_to_quadtree
    if on == "faces":
        points = _triangle_centres(unit, triangles)
    else:
        # Where the vertices are the hierarchy's nodes, rounding of the file must not decide on
        # which side they fall.
        is_exact = np.abs(turned_nodes - unit).max() <= SAME_POSITION
        deepest = locate_sites(nodes if is_exact else unit @ frame, level)
    return _one_hemisphere(points, on, deepest, level=level, triangles=triangles, frame=frame)
