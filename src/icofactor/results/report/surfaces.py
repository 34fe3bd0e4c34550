"""Surfaces to draw on: fsaverage's, those of a user, or the sphere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import diags_array
from scipy.spatial import cKDTree

from icofactor.errors import ArgumentError, FileError, named
from icofactor.io.gifti import parse_gifti, read_gifti_surface
from icofactor.io.hemispheres import side_of
from icofactor.sphere.hierarchy import icosphere
from icofactor.sphere.names import fsaverage_level, hemispheres, is_fs_lr, mesh_name_of
from icofactor.sphere.operators import adjacency, face_to_vertex
from icofactor.sphere.sites import Sites
from icofactor.sphere.standard import freesurfer_mesh
from icofactor.sphere.surfaces import read_surface
from icofactor.sphere.triangles import locate_in_mesh

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# Shape of fsaverage5 → nilearn's name of it, and the beginning of the name of its file.
_NILEARN = {
    "inflated": ("inflated", "infl"),
    "pial": ("pial", "pial"),
    "white": ("white_matter", "white"),
}
# Part of a file's name → shape; the first that fits.
_FILE_KINDS = {
    "very_inflated": "very inflated",
    "inflated": "inflated",
    "midthickness": "midthickness",
    "graymid": "midthickness",
    "mid_": "midthickness",
    "pial": "pial",
    "gray_surface": "pial",
    "white": "white",
    "sphere": "sphere",
}
_ORDER = ("inflated", "very inflated", "pial", "midthickness", "white", "sphere")
# Finer meshes of fsaverage are drawn at the vertices of this level, the finest that nilearn has.
_DRAWN_LEVEL = 5
# fsaverage's spheres have a radius of 1 here, and their vertices are rounded.
_SAME_POSITION = 1e-3
# Edges of faces are followed to this level of the hierarchy.
_FINEST_LINES = 5


@dataclass(frozen=True, eq=False)
class Hemisphere:
    """One hemisphere to draw.

    Attributes
    ----------
    side : "left" or "right"
    vertices : (n,) which of the hemisphere's vertices are drawn
    triangles : (F, 3) of drawn vertices, seen counterclockwise from outside
    shapes : name → (n, 3) coordinates, x to the right, y to the front, z up
    folding : (n,) about −1 on gyri to 1 in sulci; zeros when unknown
    unit : (n, 3) the same vertices on the unit sphere
    """

    side: str
    vertices: Ints
    triangles: Ints
    shapes: dict[str, Floats]
    folding: Floats
    unit: Floats


@dataclass(frozen=True, eq=False)
class Cortex:
    """What maps are drawn on.

    Attributes
    ----------
    hemispheres : left first; none where the mesh cannot be drawn
    note : what a reader should know about it: why it cannot be drawn, or what it is drawn on
    drawn : views that were worked out already, by side, shape and view
    mean : whether it is the mean of the subjects' surfaces, which the fit's folder keeps
    """

    hemispheres: tuple[Hemisphere, ...]
    note: str = ""
    drawn: dict[tuple[str, str, str], Any] = field(default_factory=dict)
    mean: bool = False

    @property
    def shapes(self) -> list[str]:
        """Shapes that all hemispheres have."""
        common = set.intersection(*(set(half.shapes) for half in self.hemispheres))
        return [name for name in _ORDER if name in common]


# Files, folders, or what was read from them.
Surfaces = Sequence[str | Path] | str | Path | Cortex


def cortex_of(sites: Sites, hemi: str | None, surfaces: Surfaces | None = None) -> Cortex:
    """Return the surfaces of a mesh.

    Parameters
    ----------
    sites : all sites of a mesh.
    hemi : "left", "right", "both", or None for one hemisphere of unknown side, which is drawn as a
        left one.
    surfaces : surface files (GIFTI or FreeSurfer), or folders of them, registered vertex by vertex
        with the sites; a Cortex is returned as it is.
    """
    if isinstance(surfaces, Cortex):
        return surfaces
    sides = hemispheres(hemi or "left")
    if not sites.placed:
        raise ArgumentError(
            "parcels",
            "the positions of the regions are not known; fit with their atlas "
            "(--parcels) to draw them",
        )
    sites = sites.surface
    if sites.n != sites.n_mesh:
        raise ArgumentError("sites", f"must be all sites of a mesh to be drawn; found {sites!r}")
    if surfaces is not None:
        paths = [surfaces] if isinstance(surfaces, str | Path) else surfaces
        return _from_files(sites, sides, [Path(path) for path in paths])
    if sites.triangles is None:
        raise ArgumentError(
            "surfaces", "the mesh's triangles, or surface files, are needed to draw it"
        )
    if fsaverage_level(sites.name or "") is None:
        kind = "surfaces of the same mesh"
        if is_fs_lr(mesh_name_of(sites)):
            kind = "the HCP's midthickness or inflated files"
        note = f"Drawn on the sphere. icofactor report --surfaces draws on {kind}."
        return Cortex(tuple(_sphere(sites, side) for side in sides), note)
    return _fsaverage(sites, sides)


def cortex_or_reason(
    sites: Sites,
    hemi: str | None,
    surfaces: Surfaces | None = None,
    subject_surfaces: Sequence[str | Path] = (),
) -> Cortex:
    """Return the surfaces of a mesh; without surface files, a mesh that cannot be drawn gives a
    Cortex that says why.

    Parameters
    ----------
    subject_surfaces : surfaces of the people, whose mean is drawn on meshes that have no other.
    """
    # Files of the subjects may have moved since the fit.
    paths = [Path(path) for path in subject_surfaces if Path(path).is_file()]
    standard = fsaverage_level(mesh_name_of(sites)) is not None
    if surfaces is None and paths and sites.placed and not standard:
        try:
            return _from_files(sites.surface, hemispheres(hemi or "left"), paths, mean=True)
        except (ArgumentError, FileError, OSError):
            # They are damaged, or of the mesh that maps were on before they were resampled.
            pass
    try:
        return cortex_of(sites, hemi, surfaces)
    except ArgumentError as problem:
        if surfaces is not None:
            raise
        return Cortex((), f"{problem.message}.")


def n_vertices(sites: Sites) -> int:
    """Return the number of vertices of one hemisphere's mesh."""
    if sites.on != "faces":
        return sites.n_mesh // len(sites.frames)
    if sites.triangles is None:
        raise ArgumentError("sites", "the mesh's triangles are needed to draw faces")
    return int(sites.triangles.max()) + 1


def on_vertices(sites: Sites, values: NDArray[np.generic]) -> list[Floats]:
    """Return values (..., n_sites) on the vertices of each hemisphere.

    At a vertex this is the mean of the faces around it, or the value of its parcel.
    """
    on_mesh = sites.on_surface(np.asarray(values, dtype=np.float64), np.nan)
    halves = np.split(on_mesh, len(sites.frames), axis=-1)
    if sites.on != "faces":
        return halves
    to_vertices = face_to_vertex(sites.triangles, n_vertices(sites))  # type: ignore[arg-type]
    rows = [half.reshape(-1, half.shape[-1]) for half in halves]
    return [
        (to_vertices @ flat.T).T.reshape(*half.shape[:-1], -1)
        for flat, half in zip(rows, halves, strict=True)
    ]


def labels_on_vertices(sites: Sites, values: NDArray[np.generic]) -> list[Ints]:
    """Return whole numbers (n_sites,) on the vertices; at a vertex, that of its first face."""
    halves = np.split(sites.on_surface(np.asarray(values, dtype=np.int64)), len(sites.frames))
    if sites.on != "faces":
        return halves
    first = np.empty(n_vertices(sites), dtype=np.int64)
    triangles = np.asarray(sites.triangles)
    for corner in range(3):
        # Written backwards, so that the first face is written last.
        first[triangles[::-1, corner]] = np.arange(len(triangles))[::-1]
    return [half[first] for half in halves]


def _unit_vertices(sites: Sites, side: str) -> Floats:
    """Return the vertices of one hemisphere's sphere."""
    if sites.on == "vertices":
        half = 1 if side == "right" and len(sites.frames) == 2 else 0
        return sites.coordinates[sites.hemisphere == half]
    if sites.name is not None and fsaverage_level(sites.name) is not None:
        return Sites.named(sites.name).coordinates
    triangles = np.asarray(sites.triangles)
    if sites.level is not None and np.array_equal(icosphere(sites.level).faces, triangles):
        return icosphere(sites.level).vertices
    raise ArgumentError("sites", "a mesh known by name is needed to draw faces")


def _sphere(sites: Sites, side: str) -> Hemisphere:
    unit = _unit_vertices(sites, side)
    triangles = outward(unit, np.asarray(sites.triangles, dtype=np.int64))
    shapes = {"sphere": 100 * unit}
    return Hemisphere(side, np.arange(len(unit)), triangles, shapes, np.zeros(len(unit)), unit)


def _fsaverage(sites: Sites, sides: Sequence[str]) -> Cortex:
    """Return fsaverage5's surfaces, which nilearn contains; coarser meshes use some of its
    vertices, finer ones all.
    """
    standard = freesurfer_mesh(_DRAWN_LEVEL)
    mesh = Sites.named(sites.name)  # type: ignore[arg-type]
    assert mesh.triangles is not None and mesh.level is not None
    note = ""
    if mesh.level <= _DRAWN_LEVEL:
        vertices = np.arange(mesh.n)
        in_standard = _nearest(standard.vertices, mesh.coordinates)
        triangles = np.asarray(mesh.triangles, dtype=np.int64)
        unit = mesh.coordinates
    else:
        vertices = _nearest(mesh.coordinates, standard.vertices)
        in_standard = np.arange(len(standard.vertices))
        triangles = np.asarray(standard.faces, dtype=np.int64)
        unit = standard.vertices
        note = (
            f"Drawn at the {len(unit):,} vertices of fsaverage5, which are among the {mesh.n:,} of "
            f"{sites.name}."
        )
    halves = []
    for side in sides:
        shapes = {name: embedded_shape(name, side)[in_standard] for name in _NILEARN}
        # nilearn has no midthickness.
        shapes["midthickness"] = (shapes["pial"] + shapes["white"]) / 2
        shapes["sphere"] = 100 * unit
        folding = np.tanh(3 * embedded_depth(side))[in_standard]
        halves.append(Hemisphere(side, vertices, outward(unit, triangles), shapes, folding, unit))
    return Cortex(tuple(halves), note)


def embedded_shape(name: str, side: str) -> Floats:
    """Return coordinates of fsaverage5, read from nilearn's file: its import takes longer."""
    key, beginning = _NILEARN[name]
    file = _nilearn_file(f"{beginning}_{side}.gii.gz")
    if file is not None:
        return np.asarray(read_gifti_surface(file)[0], dtype=np.float64)
    from nilearn.datasets import load_fsaverage

    return np.asarray(load_fsaverage("fsaverage5")[key].parts[side].coordinates, dtype=np.float64)


def embedded_depth(side: str) -> Floats:
    """Return sulcal depth on fsaverage5, from nilearn likewise."""
    file = _nilearn_file(f"sulc_{side}.gii.gz")
    if file is not None:
        return np.asarray(parse_gifti(file).arrays[0].data, dtype=np.float64).ravel()
    from nilearn.datasets import load_fsaverage_data

    depth = load_fsaverage_data(mesh="fsaverage5", data_type="sulcal").data.parts[side]
    return np.asarray(depth, dtype=np.float64)


def _nilearn_file(name: str) -> Path | None:
    """Return a file of nilearn's, or None where a release has it in another folder."""
    package = find_spec("nilearn")
    if package is None or package.origin is None:
        return None
    path = Path(package.origin).parent / "datasets" / "data" / "fsaverage5" / name
    return path if path.is_file() else None


def _nearest(vertices: Floats, points: Floats) -> Ints:
    """Return the vertex at each point."""
    distance, index = cKDTree(vertices).query(points)
    assert np.max(distance) < _SAME_POSITION, "meshes of fsaverage share their vertices"
    return np.asarray(index, dtype=np.int64)


def outward(vertices: Floats, triangles: Ints) -> Ints:
    """Return triangles as seen counterclockwise from outside; right spheres may be mirrored."""
    a, b, c = np.moveaxis((vertices - vertices.mean(axis=0))[triangles], 1, 0)
    return triangles if np.einsum("ij,ij->", a, np.cross(b, c)) > 0 else triangles[:, ::-1]


# Files of the user


def _from_files(
    sites: Sites, sides: Sequence[str], paths: Sequence[Path], mean: bool = False
) -> Cortex:
    """Return surfaces by kind; of several of a kind the first, or their mean."""
    expected = n_vertices(sites)
    files: dict[str, dict[str, tuple[Floats, Ints]]] = {side: {} for side in sides}
    counts: dict[tuple[str, str], int] = {}
    for path, is_named in _candidates(paths):
        only_side = sides[0] if len(sides) == 1 else None
        side = side_of(path.name)[0] or only_side
        kind = _kind_of(path)
        if side is None or kind is None:
            # Other files in a folder are none of ours.
            if is_named:
                raise FileError(
                    path,
                    "its name should contain the hemisphere (lh. or rh., hemi-L or hemi-R, .L. or "
                    f".R.) and the surface ({', '.join(_ORDER)})",
                )
            continue
        if side not in files or (kind in files[side] and not mean):
            continue
        coordinates, triangles = read_surface(path)
        if len(coordinates) != expected:
            if is_named:
                found = f"has {len(coordinates)} vertices"
                raise FileError(path, f"{found}; {sites!r} has {expected} per hemisphere")
            continue
        n = counts[side, kind] = counts.get((side, kind), 0) + 1
        # The mean of all files so far, without keeping them.
        earlier, first_triangles = files[side].get(kind, (coordinates, triangles))
        files[side][kind] = earlier + (coordinates - earlier) / n, first_triangles
    missing = [side for side in sides if not files[side]]
    if missing:
        listed = ", ".join(map(str, paths))
        raise FileError(
            listed, f"no surface of the {' and '.join(missing)} hemisphere with {expected} vertices"
        )
    halves = tuple(_hemisphere(sites, side, files[side]) for side in sides)
    return Cortex(halves, "Drawn on the mean surface of subjects." if mean else "", mean=mean)


def _candidates(paths: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """Yield files to look at, and whether the user named them."""
    for path in paths:
        if path.is_dir():
            files = sorted([*path.glob("*"), *path.glob("surf/*")])
            yield from ((file, False) for file in files if _is_surface(file.name))
        elif path.is_file():
            yield path, True
        else:
            raise FileNotFoundError(
                f"{named(path)}: no file or folder; give surface files of the mesh, or a folder "
                "with them"
            )


def _is_surface(name: str) -> bool:
    side, _, kind = name.partition(".")
    freesurfer = side in ("lh", "rh") and kind in _FILE_KINDS
    return freesurfer or name.endswith((".surf.gii", ".surf.gii.gz", ".obj"))


def _kind_of(path: Path) -> str | None:
    name = path.name.lower()
    return next((kind for word, kind in _FILE_KINDS.items() if word in name), None)


def _hemisphere(sites: Sites, side: str, files: dict[str, tuple[Floats, Ints]]) -> Hemisphere:
    shapes = {kind: coordinates for kind, (coordinates, _) in files.items()}
    first, (first_shape, triangles) = next(iter(files.items()))
    for kind, (_, others) in files.items():
        if not np.array_equal(np.sort(others, axis=1), np.sort(triangles, axis=1)):
            raise ArgumentError(
                "surfaces",
                f"must be of one mesh; the {side} {kind} has other triangles than the {first}",
            )
    half = int(side == "right" and len(sites.frames) == 2)
    unit = sites.coordinates[sites.hemisphere == half]
    if sites.on == "faces":
        unit = shapes.get("sphere", np.zeros((len(first_shape), 3)))
    shapes.setdefault("sphere", 100 * unit)
    # Gyri and sulci cannot be seen on inflated surfaces.
    folded = next((shapes[k] for k in ("white", "midthickness", "pial") if k in shapes), None)
    triangles = outward(first_shape if folded is None else folded, triangles)
    folding = np.zeros(len(unit)) if folded is None else _folding(folded, triangles)
    return Hemisphere(side, np.arange(len(unit)), triangles, shapes, folding, unit)


def _folding(vertices: Floats, triangles: Ints) -> Floats:
    """Return how far each vertex lies under its neighbours, smoothed: positive in sulci."""
    neighbours = adjacency(triangles, len(vertices)).astype(np.float64)
    mean = diags_array(1 / np.maximum(neighbours.sum(axis=1), 1)) @ neighbours
    height = np.einsum("ij,ij->i", mean @ vertices - vertices, vertex_normals(vertices, triangles))
    for _ in range(4):
        height = mean @ height
    # A closed surface is bent outward everywhere: without the median all would be gyri.
    height = height - np.median(height)
    return np.tanh(1.5 * height / max(float(height.std()), np.finfo(float).tiny))


def vertex_normals(vertices: Floats, triangles: Ints) -> Floats:
    """Return unit normals (n, 3), outward when the triangles are."""
    a, b, c = np.moveaxis(vertices[triangles], 1, 0)
    normals = np.cross(b - a, c - a)
    at_vertices = np.zeros_like(vertices)
    for corner in range(3):
        np.add.at(at_vertices, triangles[:, corner], normals)
    return at_vertices / np.maximum(np.linalg.norm(at_vertices, axis=1, keepdims=True), 1e-12)


# The edges of the active faces, as lines that follow any shape of the mesh


@dataclass(frozen=True, eq=False)
class Lines:
    """Line segments on a mesh.

    Attributes
    ----------
    corners : (m, 3) the triangle of vertices in which each point lies
    weights : (m, 3) of these vertices; rows sum to 1
    segments : (s, 2) points to join
    """

    corners: Ints
    weights: Floats
    segments: Ints


def face_lines(sites: Sites, faces: np.ndarray, half: int, hemisphere: Hemisphere) -> Lines:
    """Return edges of the active `faces` (level, index) in hemisphere number `half`."""
    faces = faces[sites.face_hemisphere(faces[:, 0], faces[:, 1]) == half]
    parcels = sites.regions is not None and (faces[:, 0] == sites.max_level).all()
    if not len(faces) or not hemisphere.unit.any() or parcels:
        # No face with data, a mesh without a sphere, or faces that are parcels.
        no_indices = np.empty((0, 3), dtype=np.int64)
        return Lines(no_indices, np.empty((0, 3)), no_indices[:, :2])
    points, segments = _segments(sites, faces)
    triangles, weights = locate_in_mesh(points, hemisphere.unit, hemisphere.triangles)
    return Lines(hemisphere.triangles[triangles], weights, segments)


def _segments(sites: Sites, faces: np.ndarray) -> tuple[Floats, Ints]:
    """Return points on the unit sphere and the segments between them; an edge that faces share is
    there once.
    """
    finest = min(_FINEST_LINES, sites.max_level)
    ends = []
    for level in np.unique(faces[:, 0]):
        corners = sites.face_corners(level, faces[faces[:, 0] == level, 1])
        edges = np.stack([corners, np.roll(corners, -1, axis=1)], axis=2).reshape(-1, 2, 3)
        for _ in range(max(0, finest - int(level))):
            # Midpoints as the hierarchy itself makes them.
            middle = edges.sum(axis=1)
            middle /= np.linalg.norm(middle, axis=1, keepdims=True)
            before = np.stack([edges[:, 0], middle], axis=1)
            after = np.stack([middle, edges[:, 1]], axis=1)
            edges = np.concatenate([before, after])
        ends.append(edges)
    points = np.concatenate(ends).reshape(-1, 3)
    # Adding 0 turns −0 into 0, which is another number for `unique`.
    rounded = np.round(points, 6) + 0.0
    _, first, numbers = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    segments = np.unique(np.sort(numbers.reshape(-1, 2), axis=1), axis=0)
    return points[first], segments
