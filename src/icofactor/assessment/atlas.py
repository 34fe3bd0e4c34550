"""Overlap of components with the regions of an atlas, tested against rotations on the sphere.

The enrichment of a map in a region is its mean there, divided by its mean on the whole cortex.
Smooth maps are high or low over large areas, so the null is the same map rotated (nearest-vertex
reassignment; the right hemisphere rotates as the mirror image of the left). Sites on the medial
wall, and sites that take their value from it, count as missing in that rotation. Sites are
weighted; a parcel belongs to a region by the vertices that they share, and the mean directions of
parcels are rotated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from icofactor.assessment.false_discovery import false_discovery
from icofactor.assessment.refit import check_fitted
from icofactor.checks import check_parameters
from icofactor.errors import ArgumentError, FileError
from icofactor.io.freesurfer import Labels
from icofactor.io.guard import Unreadable, naming
from icofactor.io.hemispheres import side_of
from icofactor.io.maps import read_labels
from icofactor.io.tables import write_table
from icofactor.maps.workers import in_order
from icofactor.sphere.names import SIDES
from icofactor.sphere.parcels import is_region
from icofactor.sphere.rotations import SiteSpinner
from icofactor.sphere.sites import Sites

if TYPE_CHECKING:
    from icofactor.estimator.estimator import CorticalFactorization

Paths = str | Path | Sequence[str | Path]

# Vertices of fsaverage, of which fsaverage5 and fsaverage6 are the first.
_N_FSAVERAGE = 163842
_SUBSETS_OF_FSAVERAGE = ("fsaverage5", "fsaverage6")

# The largest q of a region that a component is named after.
ENRICHED = 0.05

# Regions in a name, and the smallest share of such a region relative to the largest.
_MAX_NAMED = 2
_MIN_RELATIVE_SHARE = 1 / 4
_BILATERAL = "bilateral "

# Columns of the shares of each of several measures are called by this and the measure.
OF_MEASURE = "share_"


@dataclass(frozen=True, eq=False)
class Atlas:
    """Regions of the sites.

    Attributes
    ----------
    labels : int array of shape (n_sites,)
        Number of the region of each site (for parcels, of each vertex of their mesh); −1 for none.
    names : tuple of str
        Names of the regions.

    Examples
    --------
    >>> import numpy as np
    >>> Atlas(np.array([0, 1, 1, -1]), ("back", "front")).names
    ('back', 'front')
    """

    labels: np.ndarray
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Enrichment:
    """Maps (rows) in regions (columns).

    Attributes
    ----------
    share : array
        Share of the mass of a map in the region; the rest is outside all regions.
    area : array
        Share of the cortex in the region.
    enrichment, null : arrays
        Mean of the map in the region, divided by its mean on the cortex; and the mean of this over
        rotations.
    p : array
        Share of rotations, including the data, that are as enriched or more; NaN for regions
        without sites.
    """

    share: np.ndarray
    area: np.ndarray
    enrichment: np.ndarray
    null: np.ndarray
    p: np.ndarray


@dataclass(frozen=True, eq=False)
class Overlap:
    """Overlap of components with the regions of an atlas, the result of `overlap`.

    Attributes
    ----------
    table : dict
        Columns component (from 1), region, share, area, enrichment, null_enrichment, p, q (p after
        Benjamini and Hochberg, over the table) and n_spins, sorted by component and decreasing
        share. If each measure has its own maps, all count equally, and share_NAME has the share
        of each.
    names : tuple of str
        One per component, proposed from its largest overlaps.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
    >>> atlas = Atlas((cohort.sites.coordinates[:, 1] > 0).astype(int), ("back", "front"))
    >>> overlaps = overlap(model, atlas, n_spins=9)
    >>> len(overlaps.names), overlaps.table["region"].shape
    (3, (6,))
    """

    table: dict[str, np.ndarray]
    names: tuple[str, ...]


def overlap(
    model: CorticalFactorization,
    atlas: Atlas | Paths,
    n_spins: int = 1000,
    random_state: int = 0,
    report: Callable[[float], None] | None = None,
) -> Overlap:
    """Compute how the components of a model overlap with the regions of an atlas.

    p-values come from rotations of the maps.

    Parameters
    ----------
    model : CorticalFactorization
        A fitted model on the vertices or faces of a mesh, or on parcels with a known atlas.
    atlas : Atlas, path or pair of paths
        The atlas, or its files: .annot or .label.gii per hemisphere, or one .dlabel.nii.
    n_spins : int, default=1000
        Number of rotations.
    random_state : int, default=0
        Seed.
    report : callable, optional
        Called with the fraction of the rotations that is done.

    Returns
    -------
    Overlap

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(30, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, level=1, n_starts=2, random_state=0).fit(cohort)
    >>> front = (model.sites_.coordinates[:, 1] > 0).astype(int)
    >>> atlas = ico.atlas.Atlas(front, ("back", "front"))
    >>> overlaps = ico.atlas.overlap(model, atlas, n_spins=20)
    >>> list(overlaps.table)[:4], len(overlaps.names)
    (['component', 'region', 'share', 'area'], 3)
    """
    check_fitted("model", model)
    sites = model.sites_.one_copy()
    regions = atlas if isinstance(atlas, Atlas) else read_atlas(atlas, sites, model.hemi_)
    cortex = _cortex(model)
    # Dictionary learning has negative values: its mass is the size of the map.
    maps = np.where(cortex, np.abs(model.components_), 0.0)
    n_measures = model.sites_.n_copies
    by_measure: dict[str, np.ndarray] = {}
    if n_measures > 1:
        # Units of measures differ, so each has a mass of 1, and the mean of their maps counts.
        parts = np.stack(np.split(maps, n_measures, axis=1))
        mass = parts.sum(axis=2, keepdims=True)
        parts = parts / np.where(mass > 0, mass, 1.0)
        by_measure = dict(zip(model.measures_.names, parts, strict=True))
        maps = parts.mean(axis=0)
        cortex = np.asarray(cortex.reshape(n_measures, -1).any(axis=0))
    enriched = enrichment(maps, sites, cortex, regions, n_spins, random_state, report)
    return _overlap(enriched, regions, n_spins, by_measure)


def _cortex(model: CorticalFactorization) -> np.ndarray:
    """Return (n_sites,) True on the cortex.

    Without a mask, that is where the mean map is not 0, as it is on FreeSurfer's medial wall.
    """
    mask = getattr(model, "mask_", None)
    if mask is not None:
        return np.asarray(mask, dtype=bool)
    mean = getattr(model, "mean_", None)
    return np.ones(model.sites_.n, dtype=bool) if mean is None else np.asarray(mean) != 0


def enrichment(
    maps: np.ndarray,
    sites: Sites,
    mask: np.ndarray,
    atlas: Atlas,
    n_spins: int = 1000,
    random_state: int = 0,
    report: Callable[[float], None] | None = None,
) -> Enrichment:
    """Compute the enrichment of maps (n_maps × n_sites, ≥ 0) in regions, with its spin null.

    `mask` is True on the cortex.
    """
    _check_enrichment(maps, sites, mask, atlas)
    check_spins(n_spins)
    # Sites in rows: a rotation takes whole rows.
    values = np.ascontiguousarray(np.where(mask, maps, 0.0).T)
    regions = _Regions.of(sites, atlas)
    observed, sums, weights = regions.enrichment(values, mask, np.arange(sites.n))
    total = sites.weigh(values).sum(axis=0)[:, None]
    share = np.divide(sums.T, total, out=np.zeros_like(sums.T), where=total > 0)
    spinner = SiteSpinner(sites)

    def spun(seed: np.random.SeedSequence) -> np.ndarray:
        sources = spinner.draw(np.random.default_rng(seed))
        return regions.enrichment(values, mask, sources)[0]

    # A rotation may cover a region with the medial wall: it then counts for the other regions.
    n_as_large = np.zeros_like(observed)
    n_defined = np.zeros_like(observed)
    null = np.zeros_like(observed)
    # The sums of the data and of a rotation onto itself differ by rounding.
    threshold = observed - 1e-9 * np.abs(observed)
    seeds = np.random.SeedSequence(random_state).spawn(n_spins)
    for number, rotated in enumerate(in_order(spun, seeds), 1):
        n_defined += np.isfinite(rotated)
        n_as_large += np.nan_to_num(rotated, nan=-np.inf) >= threshold
        null += np.nan_to_num(rotated)
        if report is not None:
            report(number / n_spins)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.where(np.isfinite(observed), (1 + n_as_large) / (1 + n_defined), np.nan)
        null = null / n_defined
    return Enrichment(share, weights / sites.weigh(mask).sum(), observed.T, null.T, p.T)


@dataclass(frozen=True, eq=False)
class _Regions:
    """How sites lie in regions.

    Attributes
    ----------
    members : regions × sites, the weight of each site in each region
    weights : (n_sites,) of the sites
    """

    members: sp.coo_array
    weights: np.ndarray

    @classmethod
    def of(
        cls,
        sites: Sites,
        atlas: Atlas,
    ) -> _Regions:
        weights = np.ones(sites.n) if sites.weights is None else sites.weights
        site_of_label = np.arange(sites.n)
        label_weights = weights
        if sites.regions is not None:
            # Labels are those of vertices: the weight of a parcel lies on all of its vertices alike.
            site_of_label = np.asarray(sites.regions.labels)
            label_weights = (weights / sites.regions.sizes)[site_of_label]
        inside = np.flatnonzero((atlas.labels >= 0) & (site_of_label >= 0))
        members = sp.coo_array(
            (label_weights[inside], (atlas.labels[inside], site_of_label[inside])),
            shape=(len(atlas.names), sites.n),
        )
        members.sum_duplicates()
        return cls(members, weights)

    def enrichment(
        self,
        values: np.ndarray,
        mask: np.ndarray,
        sources: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the enrichment, regions × maps, and the sums and weights per region.

        Site i takes the value of site sources[i]; it counts if both are on the cortex.
        """
        n_regions = self.members.shape[0]
        # What a rotation brings from the medial wall has no value, and does not count.
        on_cortex = mask & mask[sources]
        entries = np.flatnonzero(on_cortex[self.members.col])
        data = self.members.data[entries]
        region = self.members.row[entries]
        columns = sources[self.members.col[entries]]
        gather = sp.csr_array((data, (region, columns)), shape=self.members.shape)
        sums = gather @ values
        weights = np.bincount(region, data, minlength=n_regions)
        site_weights = self.weights[on_cortex]
        mean = site_weights @ values[sources[on_cortex]] / site_weights.sum()
        with np.errstate(invalid="ignore", divide="ignore"):
            return sums / weights[:, None] / mean, sums, weights


def _check_enrichment(
    maps: np.ndarray,
    sites: Sites,
    mask: np.ndarray,
    atlas: Atlas,
) -> None:
    """Refuse arrays that do not belong to the sites, and maps with negative values."""
    n_labels = sites.n
    if sites.regions is not None:
        _check_placed(sites)
        n_labels = len(np.asarray(sites.regions.labels))
    shapes = {
        "maps": (maps, (len(maps), sites.n)),
        "mask": (mask, (sites.n,)),
        "atlas.labels": (atlas.labels, (n_labels,)),
    }
    for name, (array, shape) in shapes.items():
        if array.shape != shape:
            raise ArgumentError(
                name, f"must have shape {shape}, as {sites!r} has; found shape {array.shape}"
            )
    if (maps[:, mask] < 0).any():
        raise ArgumentError("maps", "must be ≥ 0: a map with negative values has no mass")


def _check_placed(sites: Sites) -> None:
    """Refuse regions whose positions are not known."""
    if not sites.placed:
        raise ArgumentError(
            "atlas",
            "the positions of the regions are not known; fit with their atlas, --parcels "
            "(parcels), before another atlas names them",
        )


def check_spins(n_spins: int) -> None:
    """Refuse a number of rotations that makes no null."""
    check_parameters(n_spins=n_spins)


def _overlap(
    enriched: Enrichment,
    atlas: Atlas,
    n_spins: int,
    by_measure: Mapping[str, np.ndarray],
) -> Overlap:
    """Return the table of components and regions, and a name for each component."""
    n_components = len(enriched.share)
    # Regions that are masked, or have no parcels, are left out.
    present = np.flatnonzero(enriched.area > 0)
    # Stable, so that regions of equal shares stay in the order of the atlas.
    order = np.argsort(-enriched.share[:, present], axis=1, kind="stable")
    component = np.repeat(np.arange(n_components), len(present))
    region = present[order].reshape(-1)
    p = enriched.p[component, region]
    table = {
        "component": component + 1,
        "region": np.array([atlas.names[number] for number in region]),
        "share": enriched.share[component, region],
        "area": enriched.area[region],
        "enrichment": enriched.enrichment[component, region],
        "null_enrichment": enriched.null[component, region],
        "p": p,
        "q": false_discovery(p),
        "n_spins": np.full(len(p), n_spins),
    }
    if by_measure:
        inside = atlas.labels == np.arange(len(atlas.names))[:, None]
        for name, maps in by_measure.items():
            table[f"{OF_MEASURE}{name}"] = (maps @ inside.T)[component, region]
    names = [proposed_name(table, number + 1) for number in range(n_components)]
    return Overlap(table, tuple(names))


def proposed_name(
    table: Mapping[str, Any],
    component: int,
) -> str:
    """Propose a name for a component, of the regions with the largest shares.

    They are enriched (q ≤ 0.05) and hold at least a quarter of the largest share. Without such a
    region, the name is that of the largest share with a "?".
    """
    rows = np.flatnonzero(table["component"] == component)
    share = table["share"][rows]
    is_large = share >= share.max(initial=0) * _MIN_RELATIVE_SHARE
    enriched = rows[(table["q"][rows] <= ENRICHED) & is_large]
    names: list[str] = []
    for region in table["region"][enriched if len(enriched) else rows[:1]]:
        side, _, plain = str(region).partition(" ")
        # A region and its mirror image share one place in the name.
        twins = [f"{twin} {plain}" for twin in SIDES if side in SIDES and twin != side]
        if twins and twins[0] in names:
            names[names.index(twins[0])] = _BILATERAL + plain
        elif len(names) < _MAX_NAMED:
            names.append(str(region))
    return ", ".join(names) + ("" if len(enriched) else "?")


def rows_to_show(
    table: Mapping[str, Any],
    component: int,
    most: int = 5,
) -> list[int]:
    """Return the rows of a component's largest shares, and of the regions in its name."""
    rows = np.flatnonzero(np.asarray(table["component"]) == component).tolist()
    rows.sort(key=lambda row: -table["share"][row])
    named = {
        region
        for regions in _regions_in(table["proposed_name"][rows[0]]).values()
        for region in regions
    }
    return [
        row for position, row in enumerate(rows) if position < most or table["region"][row] in named
    ]


def name_with_shares(
    table: Mapping[str, Any],
    component: int,
    name: str,
) -> str:
    """Return a proposed name with the share of the component there: "bilateral insula (12.3 %)"."""
    rows = np.flatnonzero(np.asarray(table["component"]) == component)
    shares = {str(table["region"][row]): table["share"][row] for row in rows}
    mark = "?" if name.endswith("?") else ""
    texts = []
    for part, regions in _regions_in(name).items():
        share = sum(shares.get(region, 0.0) for region in regions)
        texts.append(f"{part}{mark} ({100 * share:.1f} %)")
    return ", ".join(texts)


def _regions_in(name: str) -> dict[str, list[str]]:
    """Return the parts of a proposed name, and the regions that each stands for."""
    regions = {}
    for part in name.removesuffix("?").split(", "):
        plain = part.removeprefix(_BILATERAL)
        regions[part] = [part] if plain == part else [f"{side} {plain}" for side in SIDES]
    return regions


_COLUMNS = {
    "component": "Number of the component",
    "region": "Region of the atlas",
    "share": "Share of the component's mass that lies in the region; the mean where measures have "
    "maps of their own",
    "area": "Share of the cortex in the region",
    "enrichment": "Mean of the map in the region over its mean on the cortex",
    "null_enrichment": "Mean of enrichment over rotated maps",
    "p": "Share of the rotations that are as enriched or more",
    "q": "p corrected over all rows (Benjamini-Hochberg)",
    "n_spins": "Rotations",
    "proposed_name": f"Name from regions with q <= {ENRICHED}; with a question mark if there is "
    "none",
}


def write_overlap(
    overlaps: Overlap,
    path: str | Path,
    overwrite: bool = False,
) -> Path:
    """Write the table as TSV with its JSON file, the proposed names in a last column."""
    of_measures = {
        name: f"The same share of the maps of {name.removeprefix(OF_MEASURE)}"
        for name in overlaps.table
        if is_of(name)
    }
    about = {**_COLUMNS, **of_measures}
    return write_table(path, with_names(overlaps), about, overwrite=overwrite)


def is_of(column: str) -> bool:
    """Whether a column of the table is of one of several measures."""
    return column.startswith(OF_MEASURE)


def with_names(overlaps: Overlap) -> dict[str, np.ndarray]:
    """Return the table with the proposed names in a last column."""
    proposed = np.array(overlaps.names)[np.asarray(overlaps.table["component"]) - 1]
    return {**overlaps.table, "proposed_name": proposed}


def certain_names(
    table: Mapping[str, Any] | None,
    n_components: int,
) -> list[str]:
    """Return the name of each component with its share, "" where no region is enriched.

    Parameters
    ----------
    table : as `with_names` gives it; None names nothing.
    n_components : int
    """
    if table is None:
        return [""] * n_components
    proposed = dict(zip(table["component"], map(str, table["proposed_name"]), strict=True))
    names = [proposed.get(number, "?") for number in range(1, n_components + 1)]
    return [
        "" if name.endswith("?") else name_with_shares(table, number, name)
        for number, name in enumerate(names, 1)
    ]


# ---------------------------------------------------------------------- reading


def read_atlas(
    paths: Paths,
    sites: Sites,
    hemi: str | None,
) -> Atlas:
    """Read the regions of sites from the files of an atlas, as `read_regions` does.

    Regions that are found in both hemispheres become "left NAME" and "right NAME". The medial wall,
    and what is called unknown, is not a region.
    """
    _check_placed(sites)
    sites = sites.surface
    tables = read_regions(paths, sites, hemi)
    # A file may list the names of both hemispheres: what counts is which of them have vertices.
    used = [{table.get(int(key), "") for key in np.unique(keys)} for keys, table in tables.values()]
    in_both = set.intersection(*used) if len(used) == 2 else set()
    labels: list[np.ndarray] = []
    names: list[str] = []
    for side, (keys, table) in tables.items():
        region = np.full(len(keys), -1, dtype=np.int64)
        for key in np.unique(keys):
            name = table.get(int(key), "")
            if is_region(name):
                region[keys == key] = len(names)
                names.append(f"{side} {name}" if name in in_both else name)
        labels.append(_on_sites(region, sites))
    if not names:
        raise FileError(_listed(paths), "names no region of the cortex")
    return Atlas(np.concatenate(labels), tuple(names))


def read_regions(
    paths: Paths,
    sites: Sites,
    hemi: str | None,
) -> dict[str, Labels]:
    """Read the files of an atlas: hemisphere, left first → key of each vertex, and names of keys.

    Parameters
    ----------
    paths : one .annot or .label.gii file per hemisphere, or one .dlabel.nii file. Annotations of
        fsaverage (163842 vertices) also serve fsaverage5 and fsaverage6, which are its first
        vertices.
    sites : all vertices or faces of a mesh.
    hemi : "left", "right", "both", or None for one unknown hemisphere.

    Notes
    -----
    The hemisphere of a file comes from its name, or else from its content, or else from its
    position in the list; from its position alone if the hemisphere of the sites is unknown.
    """
    if sites.n != sites.n_mesh or sites.on == "points":
        raise ArgumentError(
            "atlas", f"needs all vertices or faces of a mesh; the maps are on {sites!r}"
        )
    sides = SIDES if len(sites.frames) == 2 else (hemi or "left",)
    is_unknown = hemi is None and len(sides) == 1
    labels_of: dict[str, Labels] = {}
    for number, path in enumerate(_files(paths)):
        if not path.exists():
            raise FileNotFoundError(f"no atlas file {path}")
        with naming(path, "atlas"):
            for stated, labels in read_labels(path).items():
                candidates = [side_of(path.name)[0], stated, *sides[number : number + 1]]
                if is_unknown:
                    candidates = list(sides[number : number + 1])
                # A CIFTI file states the hemisphere of each of its models, and has two.
                if path.name.endswith(".dlabel.nii") and stated:
                    candidates = [stated]
                side = next(filter(None, candidates), None)
                if side is None or side in labels_of:
                    raise Unreadable(
                        f"is file {number + 1} of an atlas for {len(sides)} hemisphere(s), of the "
                        f"{side or 'unknown'} hemisphere; give one file for each"
                    )
                labels_of[side] = _on_mesh(labels, sites, side) if side in sides else labels
    missing = [side for side in sides if side not in labels_of]
    if missing:
        raise FileError(
            _listed(paths),
            f"no regions of the {' and the '.join(missing)} hemisphere; give one .annot or "
            ".label.gii file per hemisphere, left first, or a .dlabel.nii file",
        )
    return {side: labels_of[side] for side in sides}


def _files(paths: Paths) -> list[Path]:
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]


def _listed(paths: Paths) -> str:
    return ", ".join(map(str, _files(paths)))


def _on_mesh(
    labels: Labels,
    sites: Sites,
    side: str,
) -> Labels:
    """Return labels of as many vertices as one hemisphere of the mesh has."""
    keys, table = labels
    n_vertices = sites.n // len(sites.frames)
    if sites.on != "vertices":
        n_vertices = int(np.asarray(sites.triangles).max()) + 1
    # Annotations mostly come for fsaverage alone.
    if len(keys) == _N_FSAVERAGE and sites.name in _SUBSETS_OF_FSAVERAGE:
        keys = keys[:n_vertices]
    if len(keys) != n_vertices:
        raise Unreadable(
            f"has {len(keys)} vertices in the {side} hemisphere; the mesh has {n_vertices}"
        )
    return keys, table


def _on_sites(
    region: np.ndarray,
    sites: Sites,
) -> np.ndarray:
    """Return the regions of vertices as regions of the sites of one hemisphere."""
    if sites.on == "vertices":
        return region
    a, b, c = region[np.asarray(sites.triangles)].T
    # Two of three corners decide.
    return np.where(b == c, b, a)
