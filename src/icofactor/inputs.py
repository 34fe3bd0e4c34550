"""What `fit` is given → an array, its sites and its hemisphere; and the checks that come with the first pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icofactor.sphere import Sites, n_faces, n_nodes

if TYPE_CHECKING:  # cohorts use this module, and know nothing of statistics
    from icofactor.statistics import Rows

HEMISPHERES = ("left", "right", "both")
_NAMED_LEVELS = range(3, 8)
_LARGEST = 1e120
_SEEN = ("mean", "site_energy", "variance", "low", "high", "differ")
_CIFTI = {29696: "left", 29716: "right", 59412: "both", 91282: "both"}


@dataclass(frozen=True, eq=False)
class Input:
    """Maps as scikit-learn holds them.

    Attributes
    ----------
    X : subjects × sites array
    sites : Sites, one per column
    hemi : "left", "right", "both", or None when one hemisphere was given and not named
    mask : (n_sites,) bool that came with the data, or None
    cohort : the cohort the maps came with, or None
    """

    X: Any
    sites: Sites
    hemi: str | None
    mask: np.ndarray | None
    cohort: Any = None


def read_input(X: Any, mesh: Any = None, hemi: str | None = None) -> Input:
    """Maps from an array (subjects × sites), a Cohort, or a nilearn SurfaceImage."""
    if hemi is not None and hemi not in HEMISPHERES:
        raise ValueError(f"hemi must be 'left', 'right', 'both' or None; found {hemi!r}")
    if hasattr(X, "sites") and hasattr(X, "subjects"):
        if hemi is not None and hemi != X.hemisphere:
            raise ValueError(f"hemi={hemi!r}, but the cohort holds the hemisphere {X.hemisphere!r}")
        array = check_array(X.X)
        if mesh is not None:  # a cohort brings its own sites; those asked for must be the same
            asked, _ = sites_for(array.shape[1], mesh, X.hemisphere)
            if not same_sites(asked, X.sites):
                raise ValueError(
                    f"mesh is {asked!r}, but the cohort lies on {X.sites!r}, or on its sites in another order"
                )
        return Input(array, X.sites, X.hemisphere, X.mask, X)
    if hasattr(X, "mesh") and hasattr(getattr(X, "data", None), "parts"):
        return _from_surface_image(X, mesh, hemi)
    array = check_array(X)
    sites, side = sites_for(array.shape[1], mesh, hemi)
    return Input(array, sites, side, None)


def same_sites(a: Sites, b: Sites) -> bool:
    """Whether two sets of sites are the same places in the same order (files round coordinates to 1e-4)."""
    if a is b:
        return True
    return a.n == b.n and a.n_roots == b.n_roots and bool(np.abs(a.coordinates - b.coordinates).max() < 1e-3)


def check_array(X: Any) -> Any:
    """X as an array of numbers of two dimensions; memmaps and their like stay what they are."""
    if hasattr(X, "tocsr"):
        raise ValueError("X must be a dense array of subjects × sites; found a sparse matrix, use X.toarray()")
    if isinstance(X, np.ma.MaskedArray):
        raise ValueError("X is a masked array, whose mask would be lost; use X.filled(np.nan) and pass mask")
    if not (hasattr(X, "shape") and isinstance(getattr(X, "dtype", None), np.dtype)) or hasattr(X, "iloc"):
        try:
            X = np.asarray(X)
        except ValueError as problem:
            raise ValueError(f"X must be an array of subjects × sites; it cannot be read as one: {problem}") from None
    if np.dtype(X.dtype).kind not in "fiu":
        raise ValueError(f"X must hold real numbers; found dtype {X.dtype}")
    if len(X.shape) != 2:
        raise ValueError(
            f"X must be subjects × sites, two dimensions; found shape {tuple(X.shape)}"
            + (". One map is X.reshape(1, -1)" if len(X.shape) == 1 else "")
        )
    return X


def sites_for(n_columns: int, mesh: Any = None, hemi: str | None = None) -> tuple[Sites, str | None]:
    """The sites that n_columns columns stand for, and the hemisphere."""
    if isinstance(mesh, Sites):
        if n_columns != mesh.n:
            raise ValueError(f"mesh is {mesh!r}; X has {n_columns} columns instead of {mesh.n}")
        both = mesh.n_roots == 40
        if hemi is not None and both != (hemi == "both"):
            held = "both hemispheres: use hemi='both'" if both else "one hemisphere: use hemi='left' or 'right'"
            raise ValueError(f"hemi={hemi!r}, but mesh is {mesh!r}, {held}, or None")
        return mesh, "both" if both else hemi
    if isinstance(mesh, tuple | list) and len(mesh) == 2:
        if hemi not in (None, "both"):
            raise ValueError(f"mesh is a pair, for both hemispheres; found hemi={hemi!r}, use hemi='both' or None")
        return sites_for(n_columns, Sites.both(*(_one_of_pair(m) for m in mesh)), "both")
    if isinstance(mesh, Path) or (isinstance(mesh, str) and ("/" in mesh or mesh.endswith(".gii"))):
        if hemi == "both":
            raise ValueError("mesh names one file; for hemi='both' give the pair (left sphere, right sphere)")
        return sites_for(n_columns, Sites.from_file(mesh), hemi)
    if mesh is None:
        return _inferred(n_columns, hemi)
    if not isinstance(mesh, str):
        raise ValueError(f"mesh must be a name, a Sites, a sphere file or a pair of these; found {type(mesh).__name__}")
    level = Sites.named(mesh).max_level
    fits = _fits(n_columns, level, hemi)
    if fits is None:
        raise ValueError(_does_not_fit(mesh, level, n_columns, hemi))
    return Sites.named(mesh, on=fits[0], hemi=fits[1] or "left"), fits[1]  # type: ignore[arg-type]


def _one_of_pair(mesh: Any) -> Sites:
    """One hemisphere's sites: as given, by name, or from its file."""
    if isinstance(mesh, Sites):
        return mesh
    if isinstance(mesh, str) and mesh.startswith("fsaverage") and not Path(mesh).exists():
        return Sites.named(mesh)
    if not isinstance(mesh, str | Path):
        raise ValueError(f"mesh must be a pair of Sites, names or sphere files; it holds a {type(mesh).__name__}")
    return Sites.from_file(mesh)


def _fits(n_columns: int, level: int, hemi: str | None) -> tuple[str, str | None] | None:
    """("vertices" or "faces", hemisphere) when a mesh of that level has this many sites."""
    for on, n in (("vertices", n_nodes(level)), ("faces", n_faces(level))):
        if hemi != "both" and n_columns == n:
            return on, hemi
        if hemi in (None, "both") and n_columns == 2 * n:
            return on, "both"
    return None


def _does_not_fit(mesh: str, level: int, n_columns: int, hemi: str | None) -> str:
    V, F = n_nodes(level), n_faces(level)
    both = " and hemi='both' twice as many" if hemi in (None, "both") else ""
    hint = ""
    if hemi in ("left", "right") and n_columns in (2 * V, 2 * F):
        hint = "; that is both hemispheres: use hemi='both'"
    if hemi == "both" and n_columns in (V, F):
        hint = "; that is one hemisphere: use hemi='left' or 'right'"
    return f"mesh {mesh} has {V} vertices (or {F} faces) per hemisphere{both}; X has {n_columns} columns{hint}"


def _inferred(n_columns: int, hemi: str | None) -> tuple[Sites, str | None]:
    """The mesh from the number of columns, where only one has that many."""
    for level in _NAMED_LEVELS:
        fits = _fits(n_columns, level, hemi)
        if fits is None:
            continue
        if level >= 6:
            other = "a CIVET mesh" if level == 6 else "fs_LR 164k"
            raise ValueError(
                f"X has {n_columns} columns: that may be fsaverage{level} or {other}, which order their sites "
                f"differently; say mesh='fsaverage{level}', or mesh=Sites.from_file(its sphere)"
            )
        name = f"fsaverage{level}"
        return Sites.named(name, on=fits[0], hemi=fits[1] or "left"), fits[1]  # type: ignore[arg-type]
    if n_columns in (32492, 64984):
        what = "its sphere" if n_columns == 32492 else "(left sphere, right sphere)"
        raise ValueError(
            f"X has {n_columns} columns, as fs_LR 32k has: pass mesh={what}, the *.sphere.32k_fs_LR.surf.gii file"
        )
    if n_columns in _CIFTI:
        raise ValueError(
            f"X has {n_columns} columns, as CIFTI files without the medial wall have: put the values back onto the "
            "32492 vertices of each hemisphere, and pass the mask and the sphere files"
        )
    known = ", ".join(f"fsaverage{level} {n_nodes(level)}" for level in _NAMED_LEVELS)
    sizes = [n for level in _NAMED_LEVELS for n in (n_nodes(level), n_faces(level))]
    hint = ""
    if hemi in ("left", "right") and n_columns in [2 * n for n in sizes]:
        hint = "; it has both hemispheres: use hemi='both'"
    if hemi == "both" and n_columns in sizes:
        hint = "; it has one hemisphere: use hemi='left' or 'right'"
    raise ValueError(
        f"X has {n_columns} columns, which is no mesh known by its size ({known} vertices per hemisphere){hint}; "
        "otherwise pass mesh=Sites.from_sphere(coordinates, faces) or the sphere's file"
    )


def _from_surface_image(image: Any, mesh: Any, hemi: str | None) -> Input:
    """A nilearn SurfaceImage: (vertices, maps) per hemisphere; its triangles say which mesh it is."""
    parts = image.data.parts
    sides = [side for side in ("left", "right") if side in parts]
    side = hemi or ("both" if len(sides) == 2 else sides[0])
    wanted = ["left", "right"] if side == "both" else [side]
    missing = [s for s in wanted if s not in parts]
    if missing:
        raise ValueError(f"hemi={side!r}, but the SurfaceImage holds only {', '.join(sides)}")
    blocks = [np.asarray(parts[s]) for s in wanted]
    X = np.concatenate([b.reshape(len(b), -1) for b in blocks]).T
    if mesh is not None:
        sites, _ = sites_for(X.shape[1], mesh, side)
        _check_same_triangles(image, wanted, sites)
        return Input(check_array(X), sites, side, None)
    found = [_sites_of_polymesh(image.mesh.parts[s], s) for s in wanted]
    sites = Sites.both(*found) if side == "both" else found[0]
    return Input(check_array(X), sites, side, None)


def _check_same_triangles(image: Any, sides: list[str], sites: Sites) -> None:
    """Refuse an image whose vertices are ordered otherwise than the sites, where both tell."""
    if sites.triangles is None or sites.on != "vertices":
        return
    listed = lambda triangles: np.unique(np.sort(triangles, axis=1), axis=0)
    ours = listed(sites.triangles)
    for side in sides:
        if not np.array_equal(listed(np.asarray(image.mesh.parts[side].faces)), ours):
            raise ValueError(
                f"the {side} mesh of the SurfaceImage lists other triangles than {sites!r}: its vertices are in "
                "another order, or it is another mesh; resample it first"
            )


def _sites_of_polymesh(part: Any, side: str) -> Sites:
    coordinates, faces = np.asarray(part.coordinates, dtype=np.float64), np.asarray(part.faces)
    radii = np.linalg.norm(coordinates, axis=1)
    if radii.min() > 0 and np.ptp(radii) <= 0.01 * radii.max():
        return Sites.from_sphere(coordinates, faces)
    try:
        return Sites.from_topology(faces)
    except ValueError:
        raise ValueError(
            f"the {side} mesh of the SurfaceImage ({len(coordinates)} vertices) is neither a sphere nor icosahedral; "
            "pass mesh=Sites.from_file(the sphere registered with it)"
        ) from None


def check_mask(mask: Any, sites: Sites) -> np.ndarray | None:
    """A mask as booleans, one per site, True where the site is used; None when all are."""
    if mask is None:
        return None
    found = np.asarray(mask)
    if found.ndim != 1 or len(found) != sites.n:
        raise ValueError(f"mask must have one entry per site: {sites!r} has {sites.n}; found shape {found.shape}")
    if found.dtype != bool:
        if not np.isin(found, (0, 1)).all():
            raise ValueError("mask must hold True or False (or 1 and 0), True where the site is used")
        found = found.astype(bool)
    if found.sum() < 2:
        left = "is False everywhere; it leaves no site" if not found.any() else "leaves one site; there is no map"
        raise ValueError(f"mask {left} to factorize")
    return None if found.all() else found


_SUBJECTS_TURNED = 16


def _turned(x: np.ndarray) -> np.ndarray:
    """The transpose in float64 and C order, a few rows at a time: read column by column, rows that lie a power of two
    apart push each other out of the cache (three times slower at 327,680 sites)."""
    found = np.empty(x.shape[::-1])
    for first in range(0, len(x), _SUBJECTS_TURNED):
        found[:, first : first + _SUBJECTS_TURNED] = x[first : first + _SUBJECTS_TURNED].T
    return found


class SitesBySubjects:
    """Subjects × sites seen as the core wants it, sites × subjects in float64, masked sites left out; only the sites
    that are asked for are copied."""

    ndim = 2

    def __init__(self, X: Any, mask: np.ndarray | None = None) -> None:
        self._X = X
        self._columns = None if mask is None else np.flatnonzero(mask)
        self.shape = (X.shape[1] if self._columns is None else len(self._columns), X.shape[0])

    def __getitem__(self, rows: Rows) -> np.ndarray:
        return _turned(np.asarray(self._X[:, rows if self._columns is None else self._columns[rows]]))


class Inspector:
    """Looks at every block on its way to the statistics, so that checking X costs no pass of its own."""

    def __init__(
        self, n_sites: int, n_subjects: int, allow_negative: bool, method: str, names: Sequence[str] | None = None
    ) -> None:
        self.mean, self.site_energy = np.empty(n_sites), np.empty(n_sites)
        self.variance = 0.0
        """Σ over sites and subjects of (x − the site's mean)²."""
        # the least and largest value of each subject, and whether any two subjects differ anywhere
        self.low, self.high = np.full(n_subjects, np.inf), np.full(n_subjects, -np.inf)
        self.differ = False
        self._allow_negative, self._method, self._names = allow_negative, method, names

    def watch(self, blocks: Iterable[tuple[Rows, np.ndarray]]) -> Iterator[tuple[Rows, np.ndarray]]:
        """The same blocks, each checked and remembered."""
        for rows, x in blocks:
            self.accept(rows, look(x))
            yield rows, x

    def accept(self, rows: Rows | None, seen: Mapping[str, np.ndarray]) -> None:
        """Check and remember what `look` saw of these sites; of no site in particular when `rows` is None."""
        low, high = seen["min.low"], seen["max.high"]
        finite = np.isfinite(low) & np.isfinite(high)
        if not finite.all():
            raise ValueError(
                f"X holds NaN or infinite values in {self._who(~finite)}; "
                "give a mask that leaves those sites out, or mend the files they come from"
            )
        if max(-low.min(), high.max()) > _LARGEST:
            raise ValueError(f"X holds values beyond ±{_LARGEST:g}, too large to square; bring it to other units")
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        if rows is None:
            return
        self.differ = self.differ or bool(seen["max.differ"])
        self.mean[rows], self.site_energy[rows] = seen["site.mean"], seen["site.energy"]
        self.variance += float(seen["sum.variance"])

    def _who(self, chosen: np.ndarray) -> str:
        """Subjects by name where they have one, else by row."""
        rows = np.flatnonzero(chosen)
        if self._names is None:
            return f"{_some('subject', rows)} (row numbers of X)"
        of = f" ({len(rows)} of {len(chosen)})" if len(rows) > 1 else ""
        return _some("subject", [self._names[row] for row in rows.tolist()], 20) + of

    def summary(self) -> dict[str, np.ndarray]:
        """What was seen of all blocks, to be recalled in another process."""
        return {name: np.asarray(getattr(self, name)) for name in _SEEN}

    def recall(self, found: Mapping[str, np.ndarray]) -> None:
        """Know what `summary` told."""
        for name in _SEEN:
            setattr(self, name, found[name] if found[name].ndim else found[name].item())

    def check_signs(self) -> None:
        """Negative values where they are forbidden; after the last block, so that every such subject is named."""
        negative = self.low < 0
        if not self._allow_negative and negative.any():
            raise ValueError(
                f"X holds negative values in {self._who(negative)}, down to {self.low.min():.3g}, which method "
                f"{self._method!r} forbids; use 'DL' or 'E-DL', or bring the maps to values ≥ 0"
            )

    def check(self) -> None:
        """What only shows after the last block: also subjects without any pattern, and subjects all alike."""
        self.check_signs()
        flat = self.low == self.high
        if flat.any():
            zero = "zero" if not self.high[flat].any() else "constant"
            raise ValueError(f"X is {zero} over all sites in {self._who(flat)}; leave them out")
        if not self.differ:
            raise ValueError("X is the same in all subjects; there is no variance between subjects to explain")


def look(x: np.ndarray) -> dict[str, np.ndarray]:
    """What an Inspector wants to know of a block of sites × subjects, float64; pieces of blocks can be joined."""
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is told by the Inspector
        mean = x.mean(axis=1)
        deviation = x - mean[:, None]
        # the first site nearly always tells that subjects differ
        differ = bool((x[:1] != x[:1, :1]).any()) or bool((x.min(axis=1) != x.max(axis=1)).any())
        return {
            **look_for_bounds(x),
            "max.differ": np.array(differ),
            "site.mean": mean,
            "site.energy": np.einsum("ij,ij->i", x, x),
            "sum.variance": np.array(np.square(deviation, out=deviation).sum()),
        }


def look_for_bounds(x: np.ndarray) -> dict[str, np.ndarray]:
    """The least and largest value of each subject; NaN where there is one."""
    return {"min.low": x.min(axis=0, initial=np.inf), "max.high": x.max(axis=0, initial=-np.inf)}


def _some(noun: str, things: Sequence[Any] | np.ndarray, most: int = 5) -> str:
    """'subject 3', 'subjects 1, 2, 3 and 97 more'."""
    listed = ", ".join(map(str, things[:most]))
    more = f" and {len(things) - most} more" if len(things) > most else ""
    return f"{noun}{'s' if len(things) > 1 else ''} {listed}{more}"
