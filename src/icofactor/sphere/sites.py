"""Sites: where the measurements lie on the sphere, and which face of the hierarchy holds each of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.transform import Rotation

from icofactor.errors import ArgumentError, FileError, Phrase
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
_SAME_POSITION = 5e-4
MOST_MEASURES = 60
"""On the spheres of which `Sites.hemisphere` has numbers for."""


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
    n_measures, regions : int, Parcels or None
        Number of measures that follow each other (`repeated`), and the regions if the sites are
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
    n_measures: int = 1
    regions: Parcels | None = None

    def __post_init__(self) -> None:
        for array in (self.coordinates, self.hemisphere, self.position, self.deepest, self.frames):
            array.setflags(write=False)
        for optional in (self.triangles, self.weights):
            if optional is not None:
                optional.setflags(write=False)

    def __repr__(self) -> str:
        if (self.regions or self.name) is not None:
            mesh = f" of {self.regions or self.name}"
        elif self.level is not None:
            mesh = f" of an icosahedral mesh of level {self.level}"
        else:
            mesh = " of a mesh that is not icosahedral" if self.triangles is not None else ""
        both = ", both hemispheres" if self.n_hemispheres == 2 else ""
        both += f", of {self.n_measures} measures" if self.n_measures > 1 else ""
        part = f", of {self.n_mesh}" if self.n != self.n_mesh else ""
        return f"Sites({self.n} {self.on}{mesh}{both}{part})"

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

    def weigh(self, values: np.ndarray, where: Any = slice(None)) -> np.ndarray:
        """Multiply values, one or one row per site (of those at `where`), by the weights."""
        if self.weights is None:
            return values
        w = self.weights[where]
        return values * (w if values.ndim == 1 else w[:, None])

    @property
    def n_hemispheres(self) -> int:
        """Number of hemispheres, 1 or 2."""
        return len(self.frames) // self.n_measures

    @property
    def measure(self) -> Ints:
        """Number of the measure of each site."""
        return np.asarray(self.hemisphere // self.n_hemispheres, dtype=np.int64)

    @property
    def placed(self) -> bool:
        """Whether the positions of the sites are known; not for tables without an atlas."""
        return self.regions is None or self.regions.placed

    @property
    def surface(self) -> Sites:
        """Sites on which maps are drawn and written: these, or the vertices of the mesh of an
        atlas.
        """
        return self if self.regions is None else self.regions.sites()

    def on_surface(self, values: NDArray[Any], missing: Any = 0) -> NDArray[Any]:
        """Values of shape (..., n_sites) at the sites of `surface`; `missing` where there is no
        parcel.
        """
        return values if self.regions is None else self.regions.painted(values, missing)

    # Where sites lie in the hierarchy

    def face_at(self, level: int) -> Ints:
        """Index of the face of `level` that contains each site.

        Faces of the second hemisphere follow those of the first. The parent of face i is i // 4,
        and its children are 4i to 4i + 3.
        """
        if not 0 <= level <= self.max_level:
            raise ArgumentError(
                "level", level, f"between 0 and {self.max_level}, the finest of {self!r}"
            )
        return self.deepest >> 2 * (self.max_level - level)

    def face_hemisphere(self, level: ArrayLike, index: ArrayLike) -> NDArray[np.int8]:
        """Hemisphere of faces `index` of `level`; levels may differ between faces."""
        levels, indices = np.broadcast_arrays(np.atleast_1d(level), np.atleast_1d(index))
        per_hemisphere = 20 * 4 ** levels.astype(np.int64)
        if np.any(indices < 0) or np.any(indices >= len(self.frames) * per_hemisphere):
            found = f"{indices.min()} to {indices.max()} at levels {levels.min()} to {levels.max()}"
            raise ArgumentError(
                "index", Phrase(found), f"faces 0 to {self.n_roots}·4^level − 1 of {self!r}"
            )
        return (indices // per_hemisphere).astype(np.int8)

    def face_corners(self, level: ArrayLike, index: ArrayLike) -> Floats:
        """Corners of faces, of shape (m, 3, 3), in the frame of the sites."""
        half = self.face_hemisphere(level, index)
        local = np.atleast_1d(index) - half * (20 * 4 ** np.atleast_1d(level).astype(np.int64))
        return np.einsum("mij,mkj->mki", self.frames[half], hierarchy.face_corners(level, local))

    def face_centres(self, level: ArrayLike, index: ArrayLike) -> Floats:
        """Centres of faces, of shape (m, 3), in the frame of the sites."""
        middle = self.face_corners(level, index).sum(axis=1)
        return middle / np.linalg.norm(middle, axis=1, keepdims=True)

    # Other sites from these

    def subset(self, keep: ArrayLike) -> Sites:
        """Select sites by a bool mask or by their numbers; the hierarchy stays the same.

        Examples
        --------
        >>> import icofactor as ico
        >>> ico.Sites.icosphere(1).subset(range(10)).n
        10
        """
        chosen = np.asarray(keep)
        if chosen.ndim != 1:
            raise ArgumentError(
                "keep", Phrase(f"shape {chosen.shape}"), "an array of one dimension"
            )
        if chosen.dtype == bool:
            if len(chosen) != self.n:
                what = Phrase(f"{len(chosen)} entries")
                raise ArgumentError(
                    "keep", what, f"one boolean per site: {self!r} has {self.n} sites"
                )
            chosen = np.flatnonzero(chosen)
        elif chosen.size == 0:
            chosen = chosen.astype(np.int64)
        elif not np.issubdtype(chosen.dtype, np.integer):
            raise ArgumentError("keep", Phrase(chosen.dtype), "a boolean mask or integers")
        elif chosen.min() < 0 or chosen.max() >= self.n:
            raise ArgumentError(
                "keep", Phrase(f"{chosen.min()} to {chosen.max()}"), f"numbers 0 to {self.n - 1}"
            )
        return replace(
            self,
            coordinates=self.coordinates[chosen],
            hemisphere=self.hemisphere[chosen],
            position=self.position[chosen],
            deepest=self.deepest[chosen],
            weights=None if self.weights is None else self.weights[chosen],
        )

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
            expected = f"one number per site: {self!r} has {self.n}"
            raise ArgumentError("weights", Phrase(f"shape {w.shape}"), expected)
        mask = np.ones(self.n, dtype=bool) if used is None else np.asarray(used)
        wrong = np.flatnonzero(mask & ~(np.isfinite(w) & (w > 0)))
        if len(wrong):
            found = Phrase(f"{w[wrong[0]]:g} at site {wrong[0]} (one of {len(wrong)})")
            raise ArgumentError(
                "weights",
                found,
                "finite and above 0 at every site that is used; {mask} leaves out others",
            )
        w /= w[mask][0]  # equal weights become 1 exactly
        return replace(self, weights=np.where(mask, w / w[mask].mean(), 0.0))

    @classmethod
    def both(cls, left: Sites, right: Sites) -> Sites:
        """Join the sites of a left and a right hemisphere, left first."""
        found = Phrase(f"{left!r} and {right!r}")
        if len(left.frames) != 1 or len(right.frames) != 1:
            raise ArgumentError(
                "left", found, "{left} and {right} must contain one hemisphere each"
            )
        if (left.level, left.on) != (right.level, right.on):
            raise ArgumentError("left", found, "{left} and {right} must be of the same kind")
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
            weights=None
            if left.weights is None or right.weights is None
            else np.r_[left.weights, right.weights],
        )

    def repeated(self, n_measures: int) -> Sites:
        """Repeat the sites once per measure, one measure after the other."""
        if self.n_measures != 1 or not 1 <= n_measures <= MOST_MEASURES:
            raise ArgumentError(
                "n_measures", n_measures, f"from 1 to {MOST_MEASURES}, of sites of one measure"
            )
        spheres, times = len(self.frames), np.repeat(np.arange(n_measures), self.n)
        tile = lambda values: np.tile(values, n_measures)
        return replace(
            self,
            coordinates=np.tile(self.coordinates, (n_measures, 1)),
            hemisphere=(tile(self.hemisphere) + spheres * times).astype(np.int8),
            position=tile(self.position) + self.n_mesh * times,
            n_mesh=self.n_mesh * n_measures,
            deepest=tile(self.deepest) + spheres * n_faces(self.max_level) * times,
            frames=np.tile(self.frames, (n_measures, 1, 1)),
            weights=None if self.weights is None else tile(self.weights),
            n_measures=n_measures,
        )

    def of_measure(self, number: int = 0) -> Sites:
        """Sites of one of the measures, as in a cohort of that measure alone."""
        h, mine = self.n_hemispheres, np.flatnonzero(self.measure == number)
        n_mesh = self.n_mesh // self.n_measures
        return replace(
            self,
            coordinates=self.coordinates[mine],
            hemisphere=(self.hemisphere[mine] - h * number).astype(np.int8),
            position=self.position[mine] - n_mesh * number,
            n_mesh=n_mesh,
            deepest=self.deepest[mine] - h * n_faces(self.max_level) * number,
            frames=self.frames[:h],
            weights=None if self.weights is None else self.weights[mine],
            n_measures=1,
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
        one = _mesh_sites(
            mesh.vertices, mesh.faces, mesh.face_to_quadtree, on, mesh.level, mesh.name
        )
        return _hemispheres(one, hemi)

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
        return _hemispheres(
            _mesh_sites(mesh.vertices, mesh.faces, np.arange(len(mesh.faces)), on, mesh.level), hemi
        )

    @classmethod
    def from_sphere(
        cls, coordinates: ArrayLike, faces: ArrayLike | None = None, on: On = "vertices"
    ) -> Sites:
        """Any points on a sphere around the origin, of any radius; with `faces`, the vertices or
        faces of a mesh.

        An icosahedral mesh is recognized in any order, and the hierarchy is rotated to fit it.

        Examples
        --------
        >>> import icofactor as ico
        >>> mesh = ico.Sites.icosphere(2)
        >>> ico.Sites.from_sphere(100 * mesh.coordinates, mesh.triangles).level
        2
        """
        unit = _unit_vectors(coordinates)
        if faces is None:
            if _check_on(on) == "faces":
                raise ArgumentError("faces", None, "{on='faces'} needs the mesh: pass {faces}")
            return _one_hemisphere(unit, "points", locate_sites(unit, MAX_LEVEL))
        triangles = np.array(faces)
        match = recognise(triangles, len(unit), unit)
        triangles = triangles.astype(np.int32)
        if match is not None:
            return _icosahedral_sites(unit, triangles, match, _check_on(on))
        points = unit if _check_on(on) == "vertices" else _triangle_centres(unit, triangles)
        return _one_hemisphere(points, on, locate_sites(points, MAX_LEVEL), triangles=triangles)

    @classmethod
    def from_topology(cls, faces: ArrayLike, on: On = "vertices") -> Sites:
        """An icosahedral mesh of which only the triangles are known, such as those of a pial
        surface of fsaverage5.

        Coordinates are those of fsaverage if the triangles are in its order, otherwise those of the
        icosphere with the same topology.
        """
        triangles = np.array(faces)
        match = recognise(triangles)
        if match is None:
            raise ArgumentError(
                "faces",
                None,
                f"{{faces}} must be those of an icosahedral mesh; these {len(triangles)} triangles are not. "
                "Pass the sphere to Sites.from_sphere or Sites.from_file instead",
            )
        triangles = triangles.astype(np.int32)
        standard = same_listing(triangles, match.level)
        if standard is not None:
            return _mesh_sites(
                standard.vertices,
                triangles,
                standard.face_to_quadtree,
                on,
                match.level,
                standard.name,
            )
        vertices = icosphere(match.level).vertices[match.vertex_to_canonical]
        return _mesh_sites(vertices, triangles, match.face_to_quadtree, on, match.level)

    @classmethod
    def parcels(cls, atlas: Any, regions: Sequence[str] | None = None, mesh: Any = None) -> Sites:
        """Make one site per region of an atlas, at the mean direction of its vertices, weighted by
        their number.

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
        if str(path).endswith(".obj"):
            coordinates = icosphere_within(coordinates, faces)
        try:
            sites = cls.from_sphere(coordinates, faces, on)
        except ArgumentError as problem:
            raise FileError(path, problem.describe()) from problem
        civets = sites.level is not None and (
            str(path).endswith(".obj") or "tpl-civet" in Path(path).name
        )
        return replace(sites, name=civet_name(len(coordinates))) if civets else sites


def _check_on(on: str) -> On:
    if on in ("vertices", "faces"):
        return cast(On, on)
    raise ArgumentError("on", on, "'vertices' or 'faces'")


def _hemispheres(one: Sites, hemi: str) -> Sites:
    return Sites.both(one, one) if len(hemispheres(hemi)) == 2 else one


def _unit_vectors(coordinates: ArrayLike) -> Floats:
    """Points of a sphere about the origin, scaled to radius 1."""
    points = np.array(coordinates, dtype=np.float64)
    check_points(points)
    if problem := sphere_problem(points):
        raise ArgumentError("coordinates", Phrase(problem), "points of a sphere about the origin")
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def _triangle_centres(vertices: Floats, triangles: NDArray[Any]) -> Floats:
    middle = vertices[triangles].sum(axis=1)
    return middle / np.linalg.norm(middle, axis=1, keepdims=True)


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
    frames = np.eye(3)[None] if frame is None else frame[None]
    hemisphere = np.zeros(len(points), dtype=np.int8)
    position = np.arange(len(points), dtype=np.int64)
    return Sites(
        points, hemisphere, on, level, name, triangles, position, len(points), deepest, frames
    )


def _mesh_sites(
    vertices: Floats,
    triangles: Triangles,
    face_to_quadtree: Ints,
    on: str,
    level: int,
    name: str | None = None,
) -> Sites:
    """Sites of a mesh whose vertices stand exactly where the hierarchy's nodes are."""
    if _check_on(on) == "faces":
        points, deepest = _triangle_centres(vertices, triangles), face_to_quadtree
    else:
        points, deepest = vertices, locate_sites(vertices, level)
    return _one_hemisphere(
        points, _check_on(on), deepest, level=level, name=name, triangles=triangles
    )


def _icosahedral_sites(
    unit: Floats, triangles: Triangles, match: IcosahedralMatch, on: On
) -> Sites:
    """Sites of a sphere file whose mesh was recognised."""
    level = match.level
    standard = same_listing(triangles, level)
    if standard is not None and np.abs(standard.vertices - unit).max() <= _SAME_POSITION:
        return _mesh_sites(
            standard.vertices, triangles, standard.face_to_quadtree, on, level, standard.name
        )
    nodes = icosphere(level).vertices[match.vertex_to_canonical]
    corners = match.vertex_to_canonical < 12
    frame = np.eye(3)
    if np.abs(nodes - unit).max() > _SAME_POSITION:
        frame = Rotation.align_vectors(unit[corners], nodes[corners])[0].as_matrix()
    cosines = np.sum((nodes @ frame.T) * unit, axis=1)
    if np.median(cosines) < np.cos(np.deg2rad(30)):
        raise ArgumentError(
            "faces",
            None,
            "{coordinates} and {faces} do not belong together: half of the vertices lie more than 30 degrees from "
            "where the mesh puts them. FreeSurfer numbers fsaverage3-4 and fsaverage5-7 differently; take both from "
            "one file",
        )
    if on == "faces":
        points, deepest = _triangle_centres(unit, triangles), match.face_to_quadtree
    else:
        # where the vertices are the hierarchy's nodes, rounding of the file must not decide on
        # which side they fall
        exact = np.abs(nodes @ frame.T - unit).max() <= _SAME_POSITION
        points, deepest = unit, locate_sites(nodes if exact else unit @ frame, level)
    return _one_hemisphere(points, on, deepest, level=level, triangles=triangles, frame=frame)
