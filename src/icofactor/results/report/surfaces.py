"""Surfaces to draw on: fsaverage's own, those a user gives, or the sphere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from icofactor.errors import ArgumentError, FileError, named, shown
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
_NILEARN = {
    "inflated": ("inflated", "infl"),
    "pial": ("pial", "pial"),
    "white": ("white_matter", "white"),
}
"""Shape → nilearn's name of it, and the beginning of the name of its file."""
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
_DRAWN_LEVEL = 5
_SAME_POSITION = 1e-3
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
        have = set.intersection(*(set(half.shapes) for half in self.hemispheres))
        return [name for name in _ORDER if name in have]


Surfaces = Sequence[str | Path] | str | Path | Cortex
"""Files, folders, or what was read from them."""


def cortex_of(sites: Sites, hemi: str | None, surfaces: Surfaces | None = None) -> Cortex:
    """The surfaces of a mesh.

    Parameters
    ----------
    sites : all sites of a mesh.
    hemi : "left", "right", "both", or None for one hemisphere of unknown side, which is drawn as a
        left one.
    surfaces : surface files (GIFTI or FreeSurfer), or folders of them, registered vertex by vertex
        with the sites; a Cortex is taken as it is.
    """
    if isinstance(surfaces, Cortex):
        return surfaces
    sides = hemispheres(hemi or "left")
    if not sites.placed:
        raise ArgumentError(
            "parcels",
            "the positions of the regions are not known; fit with --parcels (parcels) to draw them",
        )
    sites = sites.surface
    if sites.n != sites.n_mesh:
        raise ArgumentError("sites", f"drawing needs all sites of a mesh; found {shown(sites)}")
    if surfaces is not None:
        given = [surfaces] if isinstance(surfaces, str | Path) else list(surfaces)
        return _from_files(sites, sides, [Path(path) for path in given])
    if sites.triangles is None:
        problem = f"{shown(sites)} has no triangles; give surface files to draw on"
        raise ArgumentError("surfaces", problem)
    if fsaverage_level(sites.name or "") is None:
        fs_lr = is_fs_lr(mesh_name_of(sites))
        hint = " icofactor report --surfaces draws on surfaces of the same mesh."
        hint = (
            " icofactor report --surfaces draws on the HCP's midthickness or inflated files."
            if fs_lr
            else hint
        )
        return Cortex(tuple(_sphere(sites, side) for side in sides), f"Drawn on the sphere.{hint}")
    return _fsaverage(sites, sides)


def cortex_or_reason(
    sites: Sites, hemi: str | None, surfaces: Surfaces | None = None, own: Sequence[str | Path] = ()
) -> Cortex:
    """The surfaces of a mesh; without surface files, a mesh that cannot be drawn gives a Cortex
    that says why.

    Parameters
    ----------
    own : files of the people's surfaces; where no others are given nor known, their mean is drawn.
    """
    there = [Path(path) for path in own if Path(path).is_file()]
    if surfaces is None and there and sites.placed and fsaverage_level(mesh_name_of(sites)) is None:
        try:
            return _from_files(sites.surface, hemispheres(hemi or "left"), there, mean=True)
        except (
            ArgumentError,
            FileError,
            OSError,
        ):  # of another mesh, as before maps were resampled, or damaged
            pass
    try:
        return cortex_of(sites, hemi, surfaces)
    except ArgumentError as problem:
        if surfaces is not None:
            raise
        reason = str(problem.message)
        return Cortex((), reason[:1].upper() + reason[1:])


def n_vertices(sites: Sites) -> int:
    """Vertices of one hemisphere's mesh."""
    if sites.on != "faces":
        return sites.n_mesh // len(sites.frames)
    if sites.triangles is None:
        raise ArgumentError("sites", f"{shown(sites)} has no triangles to draw its faces")
    return int(sites.triangles.max()) + 1


def on_vertices(sites: Sites, values: NDArray[np.generic]) -> list[Floats]:
    """Values (..., n_sites) on the vertices of each hemisphere; at a vertex, the mean of the faces
    around it, or the value of its parcel.
    """
    on_mesh = sites.on_surface(np.asarray(values, dtype=np.float64), np.nan)
    halves = np.split(on_mesh, len(sites.frames), axis=-1)
    if sites.on != "faces":
        return halves
    to_vertices = face_to_vertex(sites.triangles, n_vertices(sites))  # type: ignore[arg-type]
    return [
        (to_vertices @ half.reshape(-1, half.shape[-1]).T).T.reshape(*half.shape[:-1], -1)
        for half in halves
    ]


def labels_on_vertices(sites: Sites, values: NDArray[np.generic]) -> list[Ints]:
    """Whole numbers (n_sites,) on the vertices; at a vertex, that of its first face."""
    halves = np.split(sites.on_surface(np.asarray(values, dtype=np.int64)), len(sites.frames))
    if sites.on != "faces":
        return halves
    first = np.empty(n_vertices(sites), dtype=np.int64)
    triangles = np.asarray(sites.triangles)
    for corner in range(3):
        first[triangles[::-1, corner]] = np.arange(len(triangles))[::-1]
    return [half[first] for half in halves]


def _unit_vertices(sites: Sites, side: str) -> Floats:
    """The vertices of one hemisphere's sphere."""
    if sites.on == "vertices":
        half = 1 if side == "right" and len(sites.frames) == 2 else 0
        return sites.coordinates[sites.hemisphere == half]
    if sites.name is not None and fsaverage_level(sites.name) is not None:
        return Sites.named(sites.name).coordinates
    triangles = np.asarray(sites.triangles)
    if sites.level is not None and np.array_equal(icosphere(sites.level).faces, triangles):
        return icosphere(sites.level).vertices
    problem = f"drawing faces needs a mesh that is known by name; found {shown(sites)}"
    raise ArgumentError("sites", problem)


def _sphere(sites: Sites, side: str) -> Hemisphere:
    unit = _unit_vertices(sites, side)
    triangles = outward(unit, np.asarray(sites.triangles, dtype=np.int64))
    return Hemisphere(
        side, np.arange(len(unit)), triangles, {"sphere": 100 * unit}, np.zeros(len(unit)), unit
    )


def _fsaverage(sites: Sites, sides: Sequence[str]) -> Cortex:
    """fsaverage5's surfaces, which nilearn brings along; coarser meshes use some of its vertices,
    finer ones all.
    """
    standard = freesurfer_mesh(_DRAWN_LEVEL).vertices
    own = Sites.named(sites.name)  # type: ignore[arg-type]
    assert own.triangles is not None and own.level is not None
    note = ""
    if own.level <= _DRAWN_LEVEL:
        vertices, there = np.arange(own.n), _nearest(standard, own.coordinates)
        triangles, unit = np.asarray(own.triangles, dtype=np.int64), own.coordinates
    else:
        there, vertices = np.arange(len(standard)), _nearest(own.coordinates, standard)
        triangles, unit = np.asarray(freesurfer_mesh(_DRAWN_LEVEL).faces, dtype=np.int64), standard
        note = f"Drawn at the {len(standard):,} vertices of fsaverage5, which are among the {own.n:,} of {sites.name}."
    halves = []
    for side in sides:
        shapes = {name: embedded_shape(name, side)[there] for name in _NILEARN}
        shapes["midthickness"] = (shapes["pial"] + shapes["white"]) / 2
        shapes["sphere"] = 100 * unit
        folding = np.tanh(3 * embedded_depth(side))[there]
        halves.append(Hemisphere(side, vertices, outward(unit, triangles), shapes, folding, unit))
    return Cortex(tuple(halves), note)


def embedded_shape(name: str, side: str) -> Floats:
    """Coordinates of fsaverage5 from nilearn, whose import takes longer than reading its files
    does.
    """
    key, begin = _NILEARN[name]
    file = _embedded(f"{begin}_{side}.gii.gz")
    if file is not None:
        return np.asarray(read_gifti_surface(file)[0], dtype=np.float64)
    from nilearn.datasets import load_fsaverage

    return np.asarray(load_fsaverage("fsaverage5")[key].parts[side].coordinates, dtype=np.float64)


def embedded_depth(side: str) -> Floats:
    """Sulcal depth on fsaverage5, from nilearn likewise."""
    file = _embedded(f"sulc_{side}.gii.gz")
    if file is not None:
        return np.asarray(parse_gifti(file).arrays[0].data, dtype=np.float64).ravel()
    from nilearn.datasets import load_fsaverage_data

    depth = load_fsaverage_data(mesh="fsaverage5", data_type="sulcal").data.parts[side]
    return np.asarray(depth, dtype=np.float64)


def _embedded(name: str) -> Path | None:
    """A file of nilearn's, where this release has it in its usual place."""
    package = find_spec("nilearn")
    origin = None if package is None else package.origin
    path = (
        None if origin is None else Path(origin).parent / "datasets" / "data" / "fsaverage5" / name
    )
    return path if path is not None and path.is_file() else None


def _nearest(among: Floats, points: Floats) -> Ints:
    distance, index = cKDTree(among).query(points)
    assert np.max(distance) < _SAME_POSITION, "meshes of fsaverage share their vertices"
    return np.asarray(index, dtype=np.int64)


def outward(vertices: Floats, triangles: Ints) -> Ints:
    """The same triangles, turned so that they are seen counterclockwise from outside; right spheres
    may be mirrored.
    """
    a, b, c = np.moveaxis((vertices - vertices.mean(axis=0))[triangles], 1, 0)
    return triangles if np.einsum("ij,ij->", a, np.cross(b, c)) > 0 else triangles[:, ::-1]


# Files of the user's


def _from_files(
    sites: Sites, sides: Sequence[str], given: Sequence[Path], mean: bool = False
) -> Cortex:
    """Surfaces by kind; of several of a kind the first, or their mean."""
    wanted = n_vertices(sites)
    found: dict[str, dict[str, tuple[Floats, Ints]]] = {side: {} for side in sides}
    counts: dict[tuple[str, str], int] = {}
    for path, listed in _candidates(given):
        side, kind = (
            side_of(path.name)[0] or (sides[0] if len(sides) == 1 else None),
            _kind_of(path),
        )
        if side is None or kind is None:
            if listed:
                raise FileError(
                    path,
                    "its name should contain the hemisphere (lh. or rh., hemi-L or hemi-R, .L. or .R.) and the "
                    f"surface ({', '.join(_ORDER)})",
                )
            continue
        if side not in found or (kind in found[side] and not mean):
            continue
        coordinates, triangles = read_surface(path)
        if len(coordinates) != wanted:
            if listed:
                problem = f"has {len(coordinates)} vertices; {sites!r} has {wanted} per hemisphere"
                raise FileError(path, problem)
            continue
        n = counts[side, kind] = counts.get((side, kind), 0) + 1
        before = found[side].get(kind, (coordinates, triangles))
        found[side][kind] = before[0] + (coordinates - before[0]) / n, before[1]
    missing = [side for side in sides if not found[side]]
    if missing:
        raise FileError(
            ", ".join(map(str, given)),
            f"no surface of the {' and the '.join(missing)} hemisphere with {wanted} vertices",
        )
    halves = tuple(_hemisphere(sites, side, found[side]) for side in sides)
    return Cortex(halves, "Drawn on the mean surface of subjects." if mean else "", mean=mean)


def _candidates(given: Sequence[Path]) -> list[tuple[Path, bool]]:
    """Files to look at, and whether each was named itself."""
    listed: list[tuple[Path, bool]] = []
    for path in given:
        if path.is_dir():
            listed += [
                (file, False)
                for file in sorted([*path.glob("*"), *path.glob("surf/*")])
                if _is_surface(file)
            ]
        elif path.is_file():
            listed.append((path, True))
        else:
            raise FileNotFoundError(
                f"{named(path)}: no file or folder; give surface files of the mesh, or a folder with them"
            )
    return listed


def _is_surface(path: Path) -> bool:
    name = path.name
    return name.endswith((".surf.gii", ".surf.gii.gz", ".obj")) or (
        name.startswith(("lh.", "rh.")) and name.partition(".")[2] in _FILE_KINDS
    )


def _kind_of(path: Path) -> str | None:
    name = path.name.lower()
    return next((kind for word, kind in _FILE_KINDS.items() if word in name), None)


def _hemisphere(sites: Sites, side: str, files: dict[str, tuple[Floats, Ints]]) -> Hemisphere:
    shapes = {kind: coordinates for kind, (coordinates, _) in files.items()}
    triangles = next(iter(files.values()))[1]
    for kind, (_, listed) in files.items():
        if not np.array_equal(np.sort(listed, axis=1), np.sort(triangles, axis=1)):
            first = next(iter(files))
            raise ArgumentError(
                "surfaces",
                f"the {side} {kind} has other triangles than the {side} {first}; give surfaces of "
                "one mesh",
            )
    unit = sites.coordinates[sites.hemisphere == int(side == "right" and len(sites.frames) == 2)]
    if sites.on == "faces":
        unit = (
            shapes["sphere"]
            if "sphere" in shapes
            else np.zeros((len(next(iter(shapes.values()))), 3))
        )
    shapes.setdefault("sphere", 100 * unit)
    folded = next(
        (shapes[kind] for kind in ("white", "midthickness", "pial") if kind in shapes), None
    )
    triangles = outward(folded if folded is not None else next(iter(shapes.values())), triangles)
    folding = np.zeros(len(unit)) if folded is None else _folding(folded, triangles)
    return Hemisphere(side, np.arange(len(unit)), triangles, shapes, folding, unit)


def _folding(vertices: Floats, triangles: Ints) -> Floats:
    """How far each vertex lies under its neighbours, smoothed: positive in sulci."""
    from scipy.sparse import diags_array

    around = adjacency(triangles, len(vertices)).astype(np.float64)
    mean = diags_array(1 / np.maximum(around.sum(axis=1), 1)) @ around
    height = np.einsum("ij,ij->i", mean @ vertices - vertices, vertex_normals(vertices, triangles))
    for _ in range(4):
        height = mean @ height
    height = height - np.median(height)  # a closed surface is bent outward on the whole
    return np.tanh(1.5 * height / max(float(height.std()), np.finfo(float).tiny))


def vertex_normals(vertices: Floats, triangles: Ints) -> Floats:
    """Unit normals (n, 3), outward when the triangles are."""
    corners = vertices[triangles]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
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
    weights : (m, 3) what each of them counts; rows sum to 1
    segments : (s, 2) points to join
    """

    corners: Ints
    weights: Floats
    segments: Ints


def face_lines(sites: Sites, faces: np.ndarray, half: int, hemisphere: Hemisphere) -> Lines:
    """Edges of the active `faces` (level, index) that belong to hemisphere number `half` of the
    sites.
    """
    own = faces[sites.face_hemisphere(faces[:, 0], faces[:, 1]) == half]
    alone = sites.regions is not None and (faces[:, 0] == sites.max_level).all()
    if (
        not len(own) or not hemisphere.unit.any() or alone
    ):  # no face with data, a mesh without a sphere, parcels
        return Lines(
            np.empty((0, 3), dtype=np.int64), np.empty((0, 3)), np.empty((0, 2), dtype=np.int64)
        )
    points, segments = _segments(sites, own)
    found, weights = locate_in_mesh(points, hemisphere.unit, hemisphere.triangles)
    return Lines(hemisphere.triangles[found], weights, segments)


def _segments(sites: Sites, faces: np.ndarray) -> tuple[Floats, Ints]:
    """Points on the unit sphere and the segments between them, every edge once however many faces
    share it.
    """
    finest = min(_FINEST_LINES, sites.max_level)
    ends = []
    for level in np.unique(faces[:, 0]):
        corners = sites.face_corners(level, faces[faces[:, 0] == level, 1])
        path = np.stack([corners, np.roll(corners, -1, axis=1)], axis=2).reshape(-1, 2, 3)
        for _ in range(max(0, finest - int(level))):  # midpoints as the hierarchy itself makes them
            middle = path.sum(axis=1)
            middle /= np.linalg.norm(middle, axis=1, keepdims=True)
            path = np.concatenate(
                [np.stack([path[:, 0], middle], axis=1), np.stack([middle, path[:, 1]], axis=1)],
                axis=0,
            )
        ends.append(path)
    every = np.concatenate(ends).reshape(-1, 3)
    _, first, numbers = np.unique(
        np.round(every, 6) + 0.0, axis=0, return_index=True, return_inverse=True
    )
    segments = np.unique(np.sort(numbers.reshape(-1, 2), axis=1), axis=0)
    return every[first], segments
