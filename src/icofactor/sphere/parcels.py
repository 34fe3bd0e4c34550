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

from icofactor.errors import ArgumentError, FileError, Phrase, counted, escaped, literal
from icofactor.io.guard import Unreadable, naming
from icofactor.io.hemispheres import SIDES, side_of
from icofactor.io.maps import read_labels
from icofactor.io.records import Numbers
from icofactor.sphere.hierarchy import MAX_LEVEL, Floats, Ints, Triangles, locate_sites, n_faces
from icofactor.sphere.names import MESHES, mesh_known_as

if TYPE_CHECKING:
    from icofactor.sphere.sites import Sites

_PREFIX = {"left": "lh_", "right": "rh_"}
_SIDE = {"lh": "left", "l": "left", "left": "left", "rh": "right", "r": "right", "right": "right"}
_NO_REGION = re.compile(r".*medial_?wall.*|unknown|_*|none|background|corpus_?callosum")
_MEASURE = re.compile(
    r"_(thickness|thickavg|thick|thck|thicknessstd|thickstd|surfavg|surfarea|area|grayvol|volume|vol|meancurv|gauscurv"
    r"|foldind|curvind|roi)$"
)
_BEFORE = re.compile(r"^(ctx|fs|(7|17)networks)_")
_FIRST, _LAST = (
    re.compile(r"^(lh|rh|l|r|left|right)_(?=.)"),
    re.compile(r"(?<=.)_(lh|rh|l|r|left|right)$"),
)


@dataclass(frozen=True, eq=False)
class Parcels:
    """The regions that the sites of a table are.

    Attributes
    ----------
    names : of all regions, unique; with lh_ or rh_ where the atlas names the regions of both sides
        alike.
    sizes : vertices of each; 1 where no atlas is known.
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
        atlas = f"the atlas {self.atlas}" if self.atlas else "an atlas"
        return (
            f"{atlas} on {self.mesh or 'its own mesh'}"
            if self.placed
            else "a table without an atlas"
        )

    @property
    def placed(self) -> bool:
        """Whether it is known where the regions lie."""
        return self.labels is not None

    def sites(self) -> Sites:
        """The vertices of the atlas's mesh, left first."""
        from icofactor.sphere.sites import Sites

        if self.points is None:
            assert self.mesh is not None
            return _named_mesh(self.mesh, self.hemi)
        halves = [
            Sites.from_sphere(one, self.triangles)
            for one in np.split(self.points, 1 + (self.hemi == "both"))
        ]
        return replace(Sites.both(*halves) if len(halves) == 2 else halves[0], name=self.mesh)

    def painted(self, values: NDArray[Any], missing: Any = 0) -> NDArray[Any]:
        """Values (..., regions) on the vertices of the mesh; `missing` where there is no region."""
        assert self.labels is not None
        return np.where(self.labels >= 0, values[..., self.labels], missing)

    def summed(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sums over the vertices of each region."""
        assert self.labels is not None
        inside = self.labels >= 0
        return np.bincount(self.labels[inside], values[inside], minlength=len(self.names))

    def check(self, n: int, n_halves: int) -> None:
        """Refuse, as `Unreadable`, what contradicts itself or the `n` sites on `n_halves`
        hemispheres.
        """
        if (
            len(self.names) != n
            or (self.hemi == "both") != (n_halves == 2)
            or len(set(self.names)) != n
        ):
            raise Unreadable("is damaged: its parcels do not match its sites")
        if self.labels is None:
            return
        known = None if self.mesh is None else mesh_known_as(self.mesh)
        fits = self.points is not None if self.mesh is None else known is not None
        fits = fits and (self.points is not None or known is None or known.space != "civet")
        if known is not None and known.n_vertices * n_halves != len(self.labels):
            fits = False
        if not fits or not np.array_equal(np.unique(self.labels[self.labels >= 0]), np.arange(n)):
            raise Unreadable("is damaged: the labels of its parcels do not match their mesh")


def is_region(name: str) -> bool:
    """Whether a label's name is that of a region of the cortex: not the medial wall, nor unknown."""
    return _NO_REGION.fullmatch(_words(name)) is None


def _words(name: str) -> str:
    """A name in small letters, its words apart by one underscore."""
    return re.sub(r"[^0-9a-z]+", "_", name.lower().replace("&", "_and_")).strip("_")


def region_key(name: str, side: str | None = None) -> tuple[str | None, str]:
    """Hemisphere and plain name that a region's name says, whoever wrote it.

    "lh_bankssts_thickness", "L_bankssts_thickavg" and "ctx-lh-bankssts" are all ("left",
    "bankssts").

    Parameters
    ----------
    side : the hemisphere of names that do not say it.
    """
    text, told, before = _words(name), False, ""
    while before != (before := text):  # L_7Networks_LH_Vis_1_thickavg
        text = _BEFORE.sub("", _MEASURE.sub("", text))
        found = _FIRST.search(text) or _LAST.search(text)
        if found is not None and (side is None or not told or side == _SIDE[found[1]]):
            told, side, text = True, _SIDE[found[1]], text[: found.start()] + text[found.end() :]
    return side, text


def without_measure(names: Sequence[str]) -> Sequence[str]:
    """Names of regions without the word that all of them end with, such as a measure that is not
    listed.
    """
    ends = {name.rpartition("_")[2] for name in names}
    alike = len(names) > 1 and len(ends) == 1 and not ends.pop().isdigit()
    if not alike or not all("_" in region_key(name)[1] for name in names):
        return names
    return [name.rpartition("_")[0] for name in names]


def _keys(a: Parcels, b: Parcels) -> tuple[list[Any], ...]:
    """Keys of the regions of both, without their measures where regions of unknown position then
    agree better.
    """
    forms = [
        [one.names] if one.placed else [one.names, without_measure(one.names)] for one in (a, b)
    ]
    pairs = [tuple(list(map(region_key, names)) for names in pair) for pair in product(*forms)]
    return max(pairs, key=lambda pair: len(set(pair[0]) & set(pair[1])))


def places_of(ours: Parcels | None, theirs: Parcels | None) -> Ints | None:
    """Number among `theirs` of each of `ours`, by name; None where one is missing, or either is not
    of regions.
    """
    if ours is None or theirs is None:
        return None
    own, others = _keys(ours, theirs)
    number = {key: i for i, key in enumerate(others)}
    found = [number.get(key, -1) for key in own]
    return None if -1 in found else np.array(found, dtype=np.int64)


def only_in_one(a: Parcels | None, b: Parcels | None) -> str | None:
    """The first region that only one of two sets has; None where there is none, or either is not of
    regions.
    """
    if a is None or b is None:
        return None
    first, second = (
        dict(zip(keys, one.names, strict=True))
        for keys, one in zip(_keys(a, b), (a, b), strict=True)
    )
    return next(
        (name for key, name in (first | second).items() if (key in first) != (key in second)), None
    )


def parcel_sites(atlas: Any, regions: Sequence[str] | None, mesh: Any = None) -> Sites:
    """The sites of `Sites.parcels`."""
    names = None if regions is None else [str(name) for name in regions]
    if names is not None and len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ArgumentError("regions", Phrase(f"{escaped(twice)!r} twice"), "unique")
    if atlas is None:
        if not names:
            raise ArgumentError(
                "regions", None, "{regions} must name the regions if there is no {atlas}"
            )
        return _unplaced(names)
    whole = _of_array(atlas[0], atlas[1], names) if _is_array(atlas) else _of_files(atlas, mesh)
    if names is None or _is_array(atlas):
        return _placed(whole)
    return _placed(_some(whole, match_regions(names, whole)))


def sites_of_regions(whole: Parcels, names: Sequence[str]) -> Sites:
    """The sites of some regions, by their names in the atlas."""
    number = {name: i for i, name in enumerate(whole.names)}
    return _placed(_some(whole, np.array([number[name] for name in names])))


def match_regions(names: Sequence[str], parcels: Parcels, side: str | None = None) -> Ints:
    """Number of the region that each name stands for; an error lists all names that are not regions
    of the atlas.

    Parameters
    ----------
    side : the hemisphere of names that do not say it.
    """
    found = find_regions(names, parcels, side)
    lost = [name for name, number in zip(names, found, strict=True) if number is None]
    if lost:
        of = f"{{regions}} has {counted(len(lost), 'name')} that the atlas does not have"
        raise ArgumentError("regions", None, f"{of}: {did_you_mean(lost, parcels)}")
    numbers = np.array(found, dtype=np.int64)
    twice = np.flatnonzero(np.bincount(numbers) > 1)
    if len(twice):
        same = [
            escaped(name) for name, number in zip(names, found, strict=True) if number == twice[0]
        ]
        raise ArgumentError(
            "regions",
            None,
            f"{{regions}} must differ; {literal(' and '.join(same))} are the same region",
        )
    return numbers


def find_regions(
    names: Sequence[str], parcels: Parcels, side: str | None = None
) -> list[int | None]:
    """The same, None where the atlas has no such region."""
    exact = {name: i for i, name in enumerate(parcels.names)}
    keys: dict[tuple[str | None, str], int] = {}
    for i, name in enumerate(parcels.names):
        keys[region_key(name)] = i
    both: dict[str, list[int]] = {}
    for (_, plain), i in keys.items():
        both.setdefault(plain, []).append(i)
    found: list[int | None] = []
    for name in names:
        own, plain = region_key(name, side)
        number = exact.get(name, keys.get((own, plain)))
        if (
            number is None
            and (own is None or (None, plain) in keys)
            and len(both.get(plain, ())) == 1
        ):
            number = both[plain][0]  # one of the two does not say the hemisphere
        found.append(number)
    return found


def did_you_mean(lost: Sequence[str], parcels: Parcels, most: int = 10) -> str:
    """Names that the atlas does not have, each with the one that may be meant."""
    plain = {"_".join(filter(None, region_key(name))): name for name in parcels.names}
    said = []
    for name in lost[:most]:
        near = get_close_matches("_".join(filter(None, region_key(name))), plain, 1, 0.75)
        said.append(escaped(name[:60]) + (f" (did you mean {plain[near[0]]}?)" if near else ""))
    return literal(", ".join(said)) + (f" and {len(lost) - most} more" if len(lost) > most else "")


# ---------------------------------------------------------------------- from files and arrays


def _is_array(atlas: Any) -> bool:
    return (
        isinstance(atlas, tuple | list) and len(atlas) == 2 and not isinstance(atlas[0], str | Path)
    )


def _of_array(labels: Any, mesh: Any, names: Sequence[str] | None) -> Parcels:
    """One label per vertex: names, or whole numbers of which 0 and less are no region."""
    from icofactor.sphere.meshes import sites_for

    keys = np.asarray(labels)
    if keys.ndim != 1 or keys.dtype.kind not in "iuUOT":
        found = Phrase(f"{keys.dtype} of shape {keys.shape}")
        raise ArgumentError(
            "atlas", found, "whole numbers or names, one per vertex, and their mesh"
        )
    sites, hemi = sites_for(len(keys), mesh, maps="The atlas has")
    if sites.on != "vertices":
        raise ArgumentError("atlas", sites, "of one label per vertex")
    if keys.dtype.kind not in "iu":
        table = sorted({str(key) for key in keys if is_region(str(key))})
        number = {name: i for i, name in enumerate(table)}
        return _gathered(np.array([number.get(str(key), -1) for key in keys]), table, sites, hemi)
    present = np.unique(keys[keys > 0])
    table = [f"region{key:03d}" for key in present] if names is None else list(names)
    if len(table) != len(present):
        raise ArgumentError(
            "regions", Phrase(f"{len(table)} names"), f"one name for each of {len(present)} labels"
        )
    region = np.where(keys > 0, np.searchsorted(present, keys), -1)
    return _gathered(region, table, sites, hemi)


def _of_files(atlas: Any, mesh: Any) -> Parcels:
    """An .annot or .label.gii file per hemisphere, or one .dlabel.nii."""
    files = [Path(atlas)] if isinstance(atlas, str | Path) else [Path(one) for one in atlas]
    halves: dict[str | None, tuple[NDArray[np.int64], Mapping[int, str]]] = {}
    for number, file in enumerate(files):
        if not file.exists():
            raise FileNotFoundError(f"no atlas file {file}")
        with naming(file, "atlas"):
            for written, labels in read_labels(file).items():
                side = (
                    written
                    if file.name.endswith(".dlabel.nii")
                    else side_of(file.name)[0] or written
                )
                side = side or (SIDES[number] if len(files) == 2 else None)
                if side in halves:
                    raise Unreadable(f"is of the {side} hemisphere, as another of the files is")
                halves[side] = labels
    if None in halves and len(halves) > 1:
        raise FileError(", ".join(map(str, files)), "name one file for each hemisphere, lh and rh")
    return parcels_of(halves, files, mesh)


def _atlas_name(file: Path) -> str:
    """What an atlas is called: "aparc" of lh.aparc.annot, "Gordon" of
    tpl-fsLR_atlas-Gordon_dseg.dlabel.nii.
    """
    told = re.search(r"(?:^|_)(?:atlas|seg)-([0-9A-Za-z]+)", file.name)
    if told is not None or file.name.endswith(".pscalar.nii"):
        return told[1] if told else ""
    return side_of(re.sub(r"(\.annot|\.label\.gii(\.gz)?|\.gii|\.dlabel\.nii)$", "", file.name))[1][
        :80
    ]


def parcels_of(halves: Mapping[Any, Any], files: Sequence[Path], mesh: Any = None) -> Parcels:
    """Parcels from hemisphere (None: not known) → label of each vertex and the names of labels, of
    `files`.
    """
    sides = [side for side in (*SIDES, None) if side in halves]
    region: list[NDArray[np.int64]] = []
    table: list[str] = []
    elsewhere: list[str] = []
    for side in sides:
        keys, names = halves[side]
        own = np.full(len(keys), -1, dtype=np.int64)
        present = set(np.unique(keys).tolist())
        for key, name in names.items():
            if is_region(name) and key in present:
                own[keys == key] = len(table)
                table.append(_named_region(name, side))
            elif is_region(name):
                elsewhere.append(name)
        region.append(own)
    if len({len(own) for own in region}) > 1:
        raise FileError(
            ", ".join(map(str, files)), "the hemispheres have different numbers of vertices"
        )
    if len(set(table)) != len(table):
        twice = next(name for name in table if table.count(name) > 1)
        raise FileError(
            ", ".join(map(str, files)), f"two of its regions are called {literal(escaped(twice))}"
        )
    hemi: Any = "both" if len(sides) == 2 else sides[0]
    sites = _mesh_of(files[0], len(region[0]), hemi, mesh)
    if not table:
        raise FileError(", ".join(map(str, files)), "names no region of the cortex")
    there = set(map(region_key, table))
    others = tuple(name for name in dict.fromkeys(elsewhere) if region_key(name) not in there)
    found = _gathered(np.concatenate(region), table, sites, hemi, others)
    return replace(found, atlas=_atlas_name(files[0]))


def _named_region(name: str, side: str | None) -> str:
    """With its hemisphere, where it does not say it."""
    return name if side is None or region_key(name)[0] is not None else _PREFIX[side] + name


def _mesh_of(file: Path, n: int, hemi: str | None, mesh: Any) -> Sites:
    """The mesh of an atlas: as given, or as the number of its vertices and its name say."""
    from icofactor.sphere.meshes import sites_for
    from icofactor.sphere.sites import Sites

    total = 2 * n if hemi == "both" else n
    if mesh is None:
        found = [one for one in MESHES.values() if one.n_vertices == n]
        if len(found) > 1 and not file.name.endswith(".annot"):
            lr = re.search(r"fs_?LR", str(file), re.IGNORECASE) is not None
            found = [one for one in found if (one.space == "fsLR") == lr]
        mesh = found[0].name if found else None
    try:
        if isinstance(mesh, Sites) and len(mesh.frames) == 2 and hemi != "both":
            mesh = Sites.from_sphere(
                mesh.coordinates[mesh.hemisphere == (hemi == "right")], mesh.triangles
            )
        return sites_for(total, mesh, hemi, "The atlas has")[0]
    except ArgumentError as problem:
        raise FileError(
            file, f"{problem.describe()}. Give the mesh of the atlas with {{mesh}}"
        ) from None


def _gathered(
    region: NDArray[np.int64],
    table: Sequence[str],
    sites: Sites,
    hemi: Any,
    elsewhere: tuple[str, ...] = (),
) -> Parcels:
    from icofactor.sphere.names import mesh_name_of

    sizes = np.bincount(region[region >= 0], minlength=len(table))
    name = mesh_name_of(sites)
    known: dict[str, Any] = {"mesh": name if mesh_known_as(name) else None}
    if known["mesh"] is None or name.startswith("civet"):
        known |= {"points": sites.coordinates, "triangles": sites.triangles}
    return Parcels(tuple(table), sizes, hemi, region.astype(np.int32), elsewhere=elsewhere, **known)


@lru_cache(maxsize=2)
def _named_mesh(name: str, hemi: str | None) -> Sites:
    from icofactor.sphere.meshes import sites_for

    mesh = mesh_known_as(name)
    assert mesh is not None
    return sites_for(mesh.n_vertices * (1 + (hemi == "both")), name, hemi)[0]


def _some(whole: Parcels, chosen: Ints) -> Parcels:
    """Some regions, in another order."""
    number = np.full(len(whole.names) + 1, -1, dtype=np.int32)
    number[chosen] = np.arange(len(chosen))
    assert whole.labels is not None
    names = tuple(whole.names[i] for i in chosen)
    hemi: Any = whole.hemi
    labels, points = number[whole.labels], whole.points
    if (
        hemi == "both" and len(np.unique(_right(whole)[chosen])) == 1
    ):  # the atlas has both, the regions one
        hemi = SIDES[int(_right(whole)[chosen][0])]
        half = slice(len(labels) // 2) if hemi == "left" else slice(len(labels) // 2, None)
        labels, points = labels[half], None if points is None else points[half]
    return replace(
        whole, names=names, sizes=whole.sizes[chosen], hemi=hemi, labels=labels, points=points
    )


def _right(parcels: Parcels) -> NDArray[np.bool_]:
    """Whether each region lies in the right hemisphere."""
    assert parcels.labels is not None
    found = np.zeros(len(parcels.names) + 1, dtype=bool)
    if parcels.hemi == "both":
        found[parcels.labels[len(parcels.labels) // 2 :]] = True
    return found[:-1]


# ---------------------------------------------------------------------- where they lie


def _placed(parcels: Parcels) -> Sites:
    mesh, labels = parcels.sites(), parcels.labels
    assert labels is not None
    inside = labels >= 0
    sums = np.stack([parcels.summed(axis) for axis in mesh.coordinates.T], axis=1)
    first = np.full(len(parcels.names), -1)
    first[labels[inside][::-1]] = np.flatnonzero(inside)[::-1]
    length = np.linalg.norm(sums, axis=1, keepdims=True)
    # a region all around the sphere has no mean direction
    points = np.where(
        length > 1e-6 * parcels.sizes[:, None],
        sums / np.maximum(length, 1e-300),
        mesh.coordinates[first],
    )
    sites = _sites(parcels, points, _right(parcels).astype(np.int8), mesh.frames)
    return sites.weighted(parcels.sizes)


def _unplaced(names: Sequence[str]) -> Sites:
    """Regions of which only the names are known; their coordinates mean nothing."""
    told = [region_key(name)[0] for name in names]
    hemi: Any = "both" if set(told) == set(SIDES) else told[0] if len(set(told)) == 1 else None
    right = np.array([hemi == "both" and side == "right" for side in told])
    points = np.empty((len(names), 3))
    for half in (False, True):
        mine = np.flatnonzero(right == half)
        z = 1 - (2 * np.arange(len(mine)) + 1) / max(len(mine), 1)
        turn = np.pi * (3 - 5**0.5) * np.arange(len(mine))
        points[mine] = np.stack(
            [np.cos(turn) * np.sqrt(1 - z**2), np.sin(turn) * np.sqrt(1 - z**2), z], axis=1
        )
    parcels = Parcels(tuple(names), np.ones(len(names), dtype=np.int64), hemi)
    return _sites(
        parcels,
        points,
        right.astype(np.int8),
        np.repeat(np.eye(3)[None], 1 + (hemi == "both"), axis=0),
    )


def _sites(parcels: Parcels, points: Floats, hemisphere: NDArray[np.int8], frames: Floats) -> Sites:
    from icofactor.sphere.sites import Sites

    points = points / np.linalg.norm(points, axis=1, keepdims=True)
    deepest = np.empty(len(points), dtype=np.int64)
    for half, frame in enumerate(frames):
        mine, first = hemisphere == half, half * n_faces(MAX_LEVEL)
        deepest[mine] = first + locate_sites(points[mine] @ frame, MAX_LEVEL)
        taken: set[int] = set()
        for i in np.flatnonzero(
            mine
        ):  # no two in one of the smallest faces, which may be their columns
            while int(deepest[i]) in taken:
                deepest[i] = first + (deepest[i] - first + 1) % n_faces(MAX_LEVEL)
            taken.add(int(deepest[i]))
    n = len(points)
    place = np.arange(n)
    return Sites(
        points,
        hemisphere,
        "parcels",
        None,
        None,
        None,
        place,
        n,
        deepest,
        frames.copy(),
        regions=parcels,
    )
