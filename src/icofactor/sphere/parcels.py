"""Parcels as sites: the regions of an atlas, where they lie, and by which names files call them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from icofactor.errors import ArgumentError, FileError, escaped, plural, shown
from icofactor.io.guard import Unreadable, naming
from icofactor.io.hemispheres import SIDES, side_of
from icofactor.io.maps import read_labels
from icofactor.io.records import Numbers
from icofactor.sphere.hierarchy import MAX_LEVEL, Floats, Ints, Triangles, locate_sites, n_faces
from icofactor.sphere.names import MESHES, mesh_known_as, mesh_name_of

if TYPE_CHECKING:
    from icofactor.sphere.sites import Sites

Side = Literal["left", "right"]
# Numbers of the labels of each vertex, and their names.
Labels = tuple[NDArray[np.int64], Mapping[int, str]]
PREFIXES: dict[str | None, str] = {"left": "lh_", "right": "rh_"}
SIDES_OF_WORDS: dict[str, Side] = {
    "lh": "left",
    "l": "left",
    "left": "left",
    "rh": "right",
    "r": "right",
    "right": "right",
}
# Labels that mark the medial wall, or no region at all.
NO_REGION = re.compile(r".*medial_?wall.*|unknown|_*|none|background|corpus_?callosum")
# Ends of columns of a table that name the measure, as FreeSurfer and ENIGMA write them.
MEASURE = re.compile(
    r"_(thickness|thickavg|thick|thck|thicknessstd|thickstd|surfavg|surfarea|area|grayvol|volume|vol"
    r"|meancurv|gauscurv|foldind|curvind|roi)$"
)
PREFIX = re.compile(r"^(ctx|fs|(7|17)networks)_")
FIRST_SIDE = re.compile(r"^(lh|rh|l|r|left|right)_(?=.)")
LAST_SIDE = re.compile(r"(?<=.)_(lh|rh|l|r|left|right)$")
# Similarity from which a name of the atlas is suggested for one that it does not have.
SIMILAR = 0.75
# A region around the whole sphere has a mean direction shorter than this.
SHORTEST_MEAN = 1e-6


@dataclass(frozen=True, eq=False)
class Parcels:
    """The regions that the sites of a table are.

    Attributes
    ----------
    names : of all regions, unique; with lh_ or rh_ where the atlas names the regions of both sides
        alike
    sizes : vertices of each; 1 where no atlas is known
    hemi : "left", "right", "both", or None where it is not known.
    labels : region of each vertex of the atlas's mesh, −1 for none, left first; None where no atlas
        is known.
    mesh : name of that mesh, or None.
    points, triangles : of a mesh that its name does not give, as `Sites` has them.
    elsewhere : names in the atlas that no vertex has, as those of the subcortex.
    atlas : what the atlas is called, as its files say; "" where they do not.
    """

    names: Annotated[tuple[str, ...], Numbers("p", "text")]
    sizes: Annotated[NDArray[np.int64], Numbers("p", "i", least=1)]
    hemi: Literal["left", "right", "both"] | None
    labels: Annotated[NDArray[np.int32] | None, Numbers("m", "i", least=-1, below="p")] = None
    mesh: str | None = None
    points: Annotated[Floats | None, Numbers("m3")] = None
    triangles: Annotated[Triangles | None, Numbers("u3", "i", least=0, below="m")] = None
    elsewhere: tuple[str, ...] = ()
    atlas: str = ""

    def __str__(self) -> str:
        if not self.placed:
            return "a table without an atlas"
        atlas = f"the atlas {self.atlas}" if self.atlas else "an atlas"
        return f"{atlas} on {self.mesh or 'its own mesh'}"

    @property
    def placed(self) -> bool:
        """Whether it is known where the regions lie."""
        return self.labels is not None

    def sites(self) -> Sites:
        """Return the vertices of the mesh of the atlas, left first."""
        # Sites are made of parcels, and parcels of sites.
        from icofactor.sphere.sites import Sites

        if self.points is None:
            assert self.mesh is not None
            return _named_mesh(self.mesh, self.hemi)
        halves = np.split(self.points, 2) if self.hemi == "both" else [self.points]
        sites = [Sites.from_sphere(points, self.triangles) for points in halves]
        return replace(Sites.both(*sites) if len(sites) == 2 else sites[0], name=self.mesh)

    def painted(self, values: NDArray[Any], missing: Any = 0) -> NDArray[Any]:
        """Return values (..., regions) on the vertices of the mesh; `missing` outside regions."""
        assert self.labels is not None
        return np.where(self.labels >= 0, values[..., self.labels], missing)

    def summed(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return sums over the vertices of each region."""
        assert self.labels is not None
        inside = self.labels >= 0
        return np.bincount(self.labels[inside], values[inside], minlength=len(self.names))

    @property
    def is_right(self) -> NDArray[np.bool_]:
        """Whether each region of an atlas of both hemispheres lies in the right one."""
        assert self.labels is not None
        is_right = np.zeros(len(self.names), dtype=bool)
        if self.hemi == "both":
            labels = self.labels[len(self.labels) // 2 :]
            is_right[labels[labels >= 0]] = True
        return is_right

    def fits(self, n: int, n_hemispheres: int) -> bool:
        """Whether the regions agree with each other, their mesh and `n` sites."""
        names_fit = len(self.names) == n == len(set(self.names))
        if not names_fit or (self.hemi == "both") != (n_hemispheres == 2):
            return False
        if self.labels is None:
            return True
        mesh = None if self.mesh is None else mesh_known_as(self.mesh)
        if mesh is None:
            # A name that stands for no mesh is as bad as neither name nor points.
            has_mesh = self.mesh is None and self.points is not None
        else:
            # The name of a CIVET mesh does not say where its vertices lie.
            has_mesh = self.points is not None or mesh.space != "civet"
            has_mesh = has_mesh and mesh.n_vertices * n_hemispheres == len(self.labels)
        return has_mesh and np.array_equal(np.unique(self.labels[self.labels >= 0]), np.arange(n))


def is_region(name: str) -> bool:
    """Whether a label is a region of the cortex: not the medial wall, nor unknown."""
    return NO_REGION.fullmatch(_words(name)) is None


def _words(name: str) -> str:
    """Return a name in small letters, its words separated by one underscore."""
    return re.sub(r"[^0-9a-z]+", "_", name.lower().replace("&", "_and_")).strip("_")


def region_key(name: str, side: str | None = None) -> tuple[str | None, str]:
    """Return the hemisphere and the plain name of a region, whoever wrote it.

    "lh_bankssts_thickness", "L_bankssts_thickavg" and "ctx-lh-bankssts" are all ("left",
    "bankssts"). `side` is the hemisphere of names that do not say it.
    """
    text = _words(name)
    has_side = False
    before = ""
    # Until nothing is left to remove, as from L_7Networks_LH_Vis_1_thickavg.
    while before != text:
        before = text
        text = PREFIX.sub("", MEASURE.sub("", text))
        match = FIRST_SIDE.search(text) or LAST_SIDE.search(text)
        if match is None:
            continue
        side_of_match = SIDES_OF_WORDS[match[1]]
        # A second word that contradicts the first is part of the name.
        if side is None or not has_side or side == side_of_match:
            side = side_of_match
            has_side = True
            text = text[: match.start()] + text[match.end() :]
    return side, text


def without_measure(names: Sequence[str]) -> Sequence[str]:
    """Return names without the last word if it is the same in all, as a measure not listed here."""
    endings = {name.rpartition("_")[2] for name in names}
    if len(names) < 2 or len(endings) > 1 or endings.pop().isdigit():
        return names
    if not all("_" in region_key(name)[1] for name in names):
        return names
    return [name.rpartition("_")[0] for name in names]


def _keys(a: Parcels, b: Parcels) -> tuple[list[Any], ...]:
    """Return the keys of the regions of both.

    Regions of unknown position are taken without their measure if more then agree.
    """
    forms = []
    for parcels in (a, b):
        names: list[Sequence[str]] = [parcels.names]
        if not parcels.placed:
            names.append(without_measure(parcels.names))
        forms.append([list(map(region_key, form)) for form in names])
    return max(product(*forms), key=lambda pair: len(set(pair[0]) & set(pair[1])))


def places_of(a: Parcels | None, b: Parcels | None) -> Ints | None:
    """Return the number in `b` of each region of `a`, by name; None if one is missing there."""
    if a is None or b is None:
        return None
    keys, other_keys = _keys(a, b)
    number = {key: position for position, key in enumerate(other_keys)}
    if not all(key in number for key in keys):
        return None
    return np.array([number[key] for key in keys], dtype=np.int64)


def only_in_one(a: Parcels | None, b: Parcels | None) -> str | None:
    """Return the first region that only one of two sets has, if there is one."""
    if a is None or b is None:
        return None
    keys, other_keys = _keys(a, b)
    first = dict(zip(keys, a.names, strict=True))
    second = dict(zip(other_keys, b.names, strict=True))
    different = (
        name for key, name in (first | second).items() if key not in first or key not in second
    )
    return next(different, None)


def parcel_sites(atlas: Any, regions: Sequence[str] | None, mesh: Any = None) -> Sites:
    """Return the sites of `Sites.parcels`."""
    names = None if regions is None else [str(name) for name in regions]
    if names is not None and len(set(names)) != len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ArgumentError("regions", f"must be unique; {shown(repeated)} is there twice")
    if atlas is None:
        if not names:
            raise ArgumentError("regions", "must name the regions if there is no atlas")
        return _unplaced(names)
    if _is_array(atlas):
        return _placed(_of_array(atlas[0], atlas[1], names))
    parcels = _of_files(atlas, mesh)
    if names is not None:
        parcels = _subset(parcels, match_regions(names, parcels))
    return _placed(parcels)


def sites_of_regions(parcels: Parcels, names: Sequence[str]) -> Sites:
    """Return the sites of some regions, by their names in the atlas."""
    number = {name: position for position, name in enumerate(parcels.names)}
    return _placed(_subset(parcels, np.array([number[name] for name in names])))


def match_regions(names: Sequence[str], parcels: Parcels, side: str | None = None) -> Ints:
    """Return the number of the region of each name, or list all names that are no regions.

    `side` is the hemisphere of names that do not say it.
    """
    numbers = find_regions(names, parcels, side)
    unknown = [name for name, number in zip(names, numbers, strict=True) if number is None]
    if unknown:
        raise ArgumentError(
            "regions",
            f"{plural(len(unknown), 'name')} that the atlas does not have: "
            f"{did_you_mean(unknown, parcels)}",
        )
    matched = np.array(numbers, dtype=np.int64)
    repeated = np.flatnonzero(np.bincount(matched) > 1)
    if len(repeated):
        rows = np.flatnonzero(matched == repeated[0]).tolist()
        same = [escaped(names[row]) for row in rows]
        raise ArgumentError("regions", f"must differ; {' and '.join(same)} are the same region")
    return matched


def find_regions(
    names: Sequence[str], parcels: Parcels, side: str | None = None
) -> list[int | None]:
    """Return the number of the region of each name; None where the atlas has no such region."""
    exact = {name: number for number, name in enumerate(parcels.names)}
    keys = {region_key(name): number for number, name in enumerate(parcels.names)}
    by_plain_name: dict[str, list[int]] = {}
    for (_, plain), number in keys.items():
        by_plain_name.setdefault(plain, []).append(number)
    numbers = []
    for name in names:
        key = region_key(name, side)
        match = exact.get(name, keys.get(key))
        namesakes = by_plain_name.get(key[1], [])
        # Either the name or the atlas may not say the hemisphere.
        has_no_side = key[0] is None or (None, key[1]) in keys
        if match is None and has_no_side and len(namesakes) == 1:
            match = namesakes[0]
        numbers.append(match)
    return numbers


def did_you_mean(unknown: Sequence[str], parcels: Parcels, most: int = 10) -> str:
    """Return names that the atlas does not have, each with the one that may be meant."""
    plain_names = {_plain(name): name for name in parcels.names}
    words = []
    for name in unknown[:most]:
        similar = get_close_matches(_plain(name), plain_names, 1, SIMILAR)
        suggestion = f" (did you mean {plain_names[similar[0]]}?)" if similar else ""
        words.append(escaped(name[:60]) + suggestion)
    more = f" and {len(unknown) - most} more" if len(unknown) > most else ""
    return ", ".join(words) + more


def _plain(name: str) -> str:
    return "_".join(filter(None, region_key(name)))


# Atlases from files and arrays


def _is_array(atlas: Any) -> bool:
    is_pair = isinstance(atlas, tuple | list) and len(atlas) == 2
    return is_pair and not isinstance(atlas[0], str | Path)


def _of_array(labels: Any, mesh: Any, names: Sequence[str] | None) -> Parcels:
    """Return parcels of one label per vertex: names, or numbers of which 0 and less are none."""
    from icofactor.sphere.meshes import sites_for

    keys = np.asarray(labels)
    is_labels = keys.ndim == 1 and keys.dtype.kind in "iuUOT"
    sites, hemi = sites_for(len(keys), mesh, maps="The atlas has") if is_labels else (None, None)
    if sites is None or sites.on != "vertices":
        raise ArgumentError(
            "atlas",
            "must be whole numbers or names, one per vertex, and their mesh; found "
            f"{keys.dtype} of shape {keys.shape} and {sites!r}",
        )
    if keys.dtype.kind not in "iu":
        table = sorted({str(key) for key in keys if is_region(str(key))})
        number = {name: position for position, name in enumerate(table)}
        region = np.array([number.get(str(key), -1) for key in keys])
        return _of_labels(region, table, sites, hemi)
    present = np.unique(keys[keys > 0])
    table = [f"region{key:03d}" for key in present] if names is None else list(names)
    if len(table) != len(present):
        text = f"must be one name for each of {len(present)} labels; found {len(table)} names"
        raise ArgumentError("regions", text)
    region = np.where(keys > 0, np.searchsorted(present, keys), -1)
    return _of_labels(region, table, sites, hemi)


def _of_files(atlas: Any, mesh: Any) -> Parcels:
    """Return parcels of an .annot or .label.gii file per hemisphere, or of one .dlabel.nii."""
    paths = [atlas] if isinstance(atlas, str | Path) else atlas
    files = [Path(path) for path in paths]
    halves: dict[str | None, Labels] = {}
    for number, file in enumerate(files):
        if not file.exists():
            raise FileNotFoundError(f"no atlas file {file}")
        with naming(file, "atlas"):
            for side_in_file, labels in read_labels(file).items():
                side = side_in_file
                if not file.name.endswith(".dlabel.nii"):
                    side = side_of(file.name)[0] or side_in_file
                if side is None and len(files) == 2:
                    side = SIDES[number]
                if side in halves:
                    raise Unreadable(f"is of the {side} hemisphere, as another of the files is")
                halves[side] = labels
    if None in halves and len(halves) > 1:
        raise FileError(_joined(files), "name one file for each hemisphere, lh and rh")
    return parcels_of(halves, files, mesh)


def _joined(files: Sequence[Path]) -> str:
    return ", ".join(map(str, files))


def _atlas_name(file: Path) -> str:
    """Return the name of an atlas: "aparc" of lh.aparc.annot, "Gordon" of ..._atlas-Gordon_..."""
    match = re.search(r"(?:^|_)(?:atlas|seg)-([0-9A-Za-z]+)", file.name)
    if match is not None:
        return match[1]
    if file.name.endswith(".pscalar.nii"):
        return ""
    stem = re.sub(r"(\.annot|\.label\.gii(\.gz)?|\.gii|\.dlabel\.nii)$", "", file.name)
    return side_of(stem)[1][:80]


def parcels_of(halves: Mapping[Any, Labels], files: Sequence[Path], mesh: Any = None) -> Parcels:
    """Return parcels from hemisphere (None: not known) → labels, of `files`."""
    sides = [side for side in (*SIDES, None) if side in halves]
    regions = []
    table: list[str] = []
    absent = []
    for side in sides:
        keys, names = halves[side]
        region = np.full(len(keys), -1, dtype=np.int64)
        present = set(np.unique(keys).tolist())
        for key, name in names.items():
            if not is_region(name):
                continue
            if key not in present:
                absent.append(name)
                continue
            region[keys == key] = len(table)
            has_side = side is None or region_key(name)[0] is not None
            table.append(name if has_side else PREFIXES[side] + name)
        regions.append(region)
    problem = None
    if len({len(region) for region in regions}) > 1:
        problem = "the hemispheres have different numbers of vertices"
    elif len(set(table)) != len(table):
        repeated = next(name for name in table if table.count(name) > 1)
        problem = f"two of its regions are called {escaped(repeated)}"
    elif not table:
        problem = "names no region of the cortex"
    if problem is not None:
        raise FileError(_joined(files), problem)
    hemi: Any = "both" if len(sides) == 2 else sides[0]
    sites = _mesh_of(files[0], len(regions[0]), hemi, mesh)
    known_keys = set(map(region_key, table))
    elsewhere = tuple(name for name in dict.fromkeys(absent) if region_key(name) not in known_keys)
    parcels = _of_labels(np.concatenate(regions), table, sites, hemi)
    return replace(parcels, elsewhere=elsewhere, atlas=_atlas_name(files[0]))


def _mesh_of(file: Path, n: int, hemi: str | None, mesh: Any) -> Sites:
    """Return the mesh of an atlas, by the number of vertices and the file if it is None."""
    from icofactor.sphere.meshes import sites_for
    from icofactor.sphere.sites import Sites

    if mesh is None:
        candidates = [standard for standard in MESHES.values() if standard.n_vertices == n]
        # fsaverage7 and fs_LR 164k have as many vertices; .annot is a format of FreeSurfer.
        if len(candidates) > 1 and not file.name.endswith(".annot"):
            is_lr = re.search(r"fs_?LR", str(file), re.IGNORECASE) is not None
            candidates = [
                standard for standard in candidates if (standard.space == "fsLR") == is_lr
            ]
        mesh = candidates[0].name if candidates else None
    if isinstance(mesh, Sites) and len(mesh.frames) == 2 and hemi != "both":
        is_side = mesh.hemisphere == (hemi == "right")
        mesh = Sites.from_sphere(mesh.coordinates[is_side], mesh.triangles)
    try:
        return sites_for(2 * n if hemi == "both" else n, mesh, hemi, "The atlas has")[0]
    except ArgumentError as error:
        text = f"{error.message}; give the mesh of the atlas with --mesh (mesh=...)"
        raise FileError(file, text) from None


def _of_labels(region: NDArray[np.int64], table: Sequence[str], sites: Sites, hemi: Any) -> Parcels:
    """Return parcels from the number of the region of each vertex."""
    sizes = np.bincount(region[region >= 0], minlength=len(table))
    name = mesh_name_of(sites)
    is_standard = mesh_known_as(name) is not None
    parcels = Parcels(tuple(table), sizes, hemi, region.astype(np.int32))
    if is_standard:
        parcels = replace(parcels, mesh=name)
    # The name of a CIVET mesh does not say where its vertices lie.
    if not is_standard or name.startswith("civet"):
        parcels = replace(parcels, points=sites.coordinates, triangles=sites.triangles)
    return parcels


@lru_cache(maxsize=2)
def _named_mesh(name: str, hemi: str | None) -> Sites:
    from icofactor.sphere.meshes import sites_for

    mesh = mesh_known_as(name)
    assert mesh is not None
    n_columns = mesh.n_vertices * (2 if hemi == "both" else 1)
    return sites_for(n_columns, name, hemi)[0]


def _subset(parcels: Parcels, numbers: Ints) -> Parcels:
    """Return some regions, in another order."""
    assert parcels.labels is not None
    # The last entry stands for label −1.
    new_number = np.full(len(parcels.names) + 1, -1, dtype=np.int32)
    new_number[numbers] = np.arange(len(numbers))
    subset = replace(
        parcels,
        names=tuple(parcels.names[number] for number in numbers),
        sizes=parcels.sizes[numbers],
        labels=new_number[parcels.labels],
    )
    halves = np.unique(parcels.is_right[numbers])
    if parcels.hemi != "both" or len(halves) == 2:
        return subset
    # The atlas has both hemispheres, the regions one.
    assert subset.labels is not None
    half = int(halves[0])
    side: Any = SIDES[half]
    points = None if parcels.points is None else np.split(parcels.points, 2)[half]
    labels = np.split(subset.labels, 2)[half]
    return replace(subset, hemi=side, labels=labels, points=points)


# Positions of regions


def _placed(parcels: Parcels) -> Sites:
    """Return regions at the mean direction of their vertices, weighted by their number."""
    mesh = parcels.sites()
    labels = parcels.labels
    assert labels is not None
    sums = np.stack([parcels.summed(axis) for axis in mesh.coordinates.T], axis=1)
    length = np.linalg.norm(sums, axis=1, keepdims=True)
    # A region all around the sphere has no mean direction: it lies at its first vertex.
    vertices = np.flatnonzero(labels >= 0)
    _, first = np.unique(labels[vertices], return_index=True)
    has_mean = length > SHORTEST_MEAN * parcels.sizes[:, None]
    means = sums / np.where(has_mean, length, 1)
    points = np.where(has_mean, means, mesh.coordinates[vertices[first]])
    sites = _sites(parcels, points, parcels.is_right, mesh.frames)
    return sites.weighted(parcels.sizes)


def _unplaced(names: Sequence[str]) -> Sites:
    """Return regions of which only the names are known; their coordinates mean nothing."""
    sides = [region_key(name)[0] for name in names]
    hemi: Any = None
    if set(sides) == set(SIDES):
        hemi = "both"
    elif len(set(sides)) == 1:
        hemi = sides[0]
    is_right = np.array([hemi == "both" and side == "right" for side in sides])
    points = np.empty((len(names), 3))
    for rows in (np.flatnonzero(~is_right), np.flatnonzero(is_right)):
        points[rows] = _spiral(len(rows))
    parcels = Parcels(tuple(names), np.ones(len(names), dtype=np.int64), hemi)
    frames = np.repeat(np.eye(3)[None], 2 if hemi == "both" else 1, axis=0)
    return _sites(parcels, points, is_right, frames)


def _spiral(n: int) -> Floats:
    """Return n points spread over the sphere along a golden spiral."""
    steps = np.arange(n)
    z = 1 - (2 * steps + 1) / max(n, 1)
    angle = np.pi * (3 - 5**0.5) * steps
    radius = np.sqrt(1 - z**2)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=1)


def _sites(parcels: Parcels, points: Floats, is_right: NDArray[np.bool_], frames: Floats) -> Sites:
    """Return sites of regions at these points, no two of them in one of the smallest faces."""
    from icofactor.sphere.sites import Sites

    points = points / np.linalg.norm(points, axis=1, keepdims=True)
    deepest = np.empty(len(points), dtype=np.int64)
    n_smallest = n_faces(MAX_LEVEL)
    for half, frame in enumerate(frames):
        rows = np.flatnonzero(is_right == bool(half))
        faces = locate_sites(points[rows] @ frame, MAX_LEVEL)
        occupied: set[int] = set()
        # The smallest faces may be columns of a design, one for each region.
        for row, located in zip(rows, faces.tolist(), strict=True):
            face = located
            while face in occupied:
                face = (face + 1) % n_smallest
            occupied.add(face)
            deepest[row] = half * n_smallest + face
    n = len(points)
    return Sites(
        coordinates=points,
        hemisphere=is_right.astype(np.int8),
        on="parcels",
        level=None,
        name=None,
        triangles=None,
        position=np.arange(n),
        n_mesh=n,
        deepest=deepest,
        frames=frames.copy(),
        regions=parcels,
    )
