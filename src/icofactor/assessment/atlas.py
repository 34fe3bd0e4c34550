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
from typing import Any

import numpy as np
import scipy.sparse as sp

from icofactor.assessment.false_discovery import false_discovery
from icofactor.checks import check_parameters
from icofactor.errors import ArgumentError, FileError, Phrase
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

_N_FSAVERAGE = 163842
_NAMED_REGIONS = 2
ENRICHED = 0.05
"""The largest q of a region that a component is named after."""


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
        share. If each measure has
        its own maps, all count equally, and share_NAME has the share of each.
    names : tuple of str
        One per component, proposed from its largest overlaps.

    Examples
    --------
    >>> import icofactor as ico
    >>> cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3")
    >>> model = ico.CorticalFactorization(3, n_starts=2, level=1).fit(cohort)
    >>> atlas = Atlas((cohort.sites.coordinates[:, 1] > 0).astype(int), ("back", "front"))
    >>> found = overlap(model, atlas, n_spins=9)
    >>> len(found.names), found.table["region"].shape
    (3, (6,))
    """

    table: dict[str, np.ndarray]
    names: tuple[str, ...]


def overlap(
    model: Any,
    atlas: Any,
    n_spins: int = 1000,
    random_state: int = 0,
    report: Callable[[float], None] | None = None,
) -> Overlap:
    """Compute how the components of a model overlap with the regions of an atlas, with p-values
    from rotations.

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
    >>> found = ico.atlas.overlap(model, ico.atlas.Atlas(front, ("back", "front")), n_spins=20)
    >>> list(found.table)[:4], len(found.names)
    (['component', 'region', 'share', 'area'], 3)
    """
    if not hasattr(model, "components_"):
        raise ArgumentError("model", None, "The model is not fitted yet: call fit first")
    sites, m = model.sites_.of_measure(), model.sites_.n_measures
    regions = atlas if isinstance(atlas, Atlas) else read_atlas(atlas, sites, model.hemi_)
    # dictionary learning has negative values: its mass is the size of the map
    maps, cortex = np.abs(model.components_), _cortex(model)
    if m == 1:
        return _table(
            enrichment(maps, sites, cortex, regions, n_spins, random_state, report),
            regions,
            n_spins,
        )
    # of measures with maps of their own the mean, each with a mass of 1: their units differ
    each = np.stack(np.split(np.where(cortex, maps, 0.0), m, axis=1))
    mass = each.sum(axis=2, keepdims=True)
    each = np.divide(each, mass, out=np.zeros_like(each), where=mass > 0)
    there = np.asarray(cortex.reshape(m, -1).any(axis=0))
    found = enrichment(each.mean(axis=0), sites, there, regions, n_spins, random_state, report)
    return _table(found, regions, n_spins, dict(zip(model.measures_.names, each, strict=True)))


def _cortex(model: Any) -> np.ndarray:
    """(n_sites,) True on the cortex: the mask, or without one where the mean map is not 0, as it is
    on FreeSurfer's medial wall.
    """
    mask, mean = getattr(model, "mask_", None), getattr(model, "mean_", None)
    if mask is not None:
        return np.asarray(mask, dtype=bool)
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
    """Enrichment of maps (n_maps × n_sites, ≥ 0) in regions, with its spin null; `mask` is True on
    the cortex.
    """
    _check_enrichment(maps, sites, mask, atlas, n_spins)
    values = np.ascontiguousarray(np.where(mask, maps, 0.0).T)
    one, members = np.arange(sites.n), _members(sites, atlas)
    observed, sums, counts = _density(values, mask, members, one)
    total = sites.weigh(values).sum(axis=0)
    share = np.divide(sums.T, total[:, None], out=np.zeros_like(sums.T), where=total[:, None] > 0)
    spinner = SiteSpinner(sites)
    seeds = np.random.SeedSequence(random_state).spawn(n_spins)
    turn = lambda seed: _density(values, mask, members, spinner.draw(np.random.default_rng(seed)))[
        0
    ]
    as_large, known, null = (
        np.zeros_like(observed),
        np.zeros_like(observed),
        np.zeros_like(observed),
    )
    for done, spun in enumerate(in_order(turn, seeds), 1):
        there = np.isfinite(spun)
        known += there
        with np.errstate(invalid="ignore"):
            # the sums of the data and of a rotation onto itself differ by rounding
            as_large += there & (spun >= observed - 1e-9 * np.abs(observed))
        null += np.where(there, spun, 0.0)
        if report is not None:
            report(done / n_spins)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.where(np.isfinite(observed), (1 + as_large) / (1 + known), np.nan)
        return Enrichment(
            share, counts / sites.weigh(mask).sum(), observed.T, (null / known).T, p.T
        )


def _members(sites: Sites, atlas: Atlas) -> tuple[sp.coo_array, np.ndarray]:
    """Weight of each site in each region (regions × sites), and the sites' own weights."""
    w = np.ones(sites.n) if sites.weights is None else sites.weights
    site: np.ndarray = np.arange(sites.n)
    each, parcels = w, sites.regions
    if parcels is not None:
        assert parcels.labels is not None
        site, each = (
            parcels.labels,
            (w / parcels.sizes)[parcels.labels],
        )  # a parcel's weight, on all its vertices alike
    inside = np.flatnonzero((atlas.labels >= 0) & (site >= 0))
    found = sp.coo_array(
        (each[inside], (atlas.labels[inside], site[inside])), shape=(len(atlas.names), sites.n)
    )
    found.sum_duplicates()
    return found, w


def _density(
    values: np.ndarray,
    mask: np.ndarray,
    members: tuple[sp.coo_array, np.ndarray],
    taken: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Enrichment (regions × maps), sums and weights per region, where site i takes the value of
    site taken[i].
    """
    there, (of, w) = mask & mask[taken], members
    inside = np.flatnonzero(there[of.col])
    weights, region = of.data[inside], of.row[inside]
    gather = sp.csr_array((weights, (region, taken[of.col[inside]])), shape=of.shape)
    sums, counts = gather @ values, np.bincount(region, weights, minlength=of.shape[0])
    at = np.flatnonzero(there)
    overall = w[at] @ values[taken[at]] / w[at].sum()
    with np.errstate(invalid="ignore", divide="ignore"):
        return (sums / counts[:, None]) / overall, sums, counts


def _check_enrichment(
    maps: np.ndarray, sites: Sites, mask: np.ndarray, atlas: Atlas, n_spins: int
) -> None:
    if maps.ndim != 2 or maps.shape[1] != sites.n:
        raise ArgumentError(
            "maps", Phrase(f"shape {maps.shape}"), f"of shape (n_maps, {sites.n}), as {sites!r} is"
        )
    if (maps[:, mask] < 0).any():
        raise ArgumentError(
            "maps", None, "≥ 0: the mass of a map with negative values has no share"
        )
    if sites.regions is not None:
        _check_placed(sites)
    n_labels = sites.n if sites.regions is None else len(np.asarray(sites.regions.labels))
    for name, array, n in (("mask", mask, sites.n), ("atlas.labels", atlas.labels, n_labels)):
        if array.shape != (n,):
            raise ArgumentError(
                name, Phrase(f"shape {array.shape}"), f"of shape ({n},), as {sites!r} is"
            )
    check_spins(n_spins)


def _check_placed(sites: Sites) -> None:
    if not sites.placed:
        what = "The positions of the regions are not known; fit with their atlas ({parcels}) before {atlas} names them"
        raise ArgumentError("atlas", None, what)


def check_spins(n_spins: Any) -> None:
    """Refuse a number of rotations that makes no null."""
    check_parameters(n_spins=n_spins)


def _table(
    found: Enrichment, atlas: Atlas, n_spins: int, measures: Mapping[str, np.ndarray] | None = None
) -> Overlap:
    n_maps = len(found.share)
    present = np.flatnonzero(found.area > 0)
    rows = [
        (j, k)
        for j in range(n_maps)
        for k in present[np.argsort(-found.share[j, present], kind="stable")]
    ]
    j, k = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    p = found.p[j, k]
    q = false_discovery(p)
    table = {
        "component": j + 1,
        "region": np.array([atlas.names[i] for i in k]),
        "share": found.share[j, k],
        "area": found.area[k],
        "enrichment": found.enrichment[j, k],
        "null_enrichment": found.null[j, k],
        "p": p,
        "q": q,
        "n_spins": np.full(len(p), n_spins),
    }
    there = np.flatnonzero(atlas.labels >= 0)
    gather = sp.csr_array(
        (np.ones(len(there)), (atlas.labels[there], there)), (len(atlas.names), len(atlas.labels))
    )
    table |= {
        f"{OF_MEASURE}{name}": (gather @ maps.T)[k, j] for name, maps in (measures or {}).items()
    }
    return Overlap(table, tuple(proposed_name(table, component + 1) for component in range(n_maps)))


def proposed_name(table: Mapping[str, Any], component: int) -> str:
    """A name from the regions with the largest shares among those enriched (q ≤ 0.05) that hold at
    least a quarter of the largest share; else from the largest of all, with a "?".
    """
    mine = np.flatnonzero(table["component"] == component)
    share = table["share"][mine]
    enriched = mine[(table["q"][mine] <= ENRICHED) & (share >= share.max(initial=0) / 4)]
    chosen = enriched if len(enriched) else mine[:1]
    names: list[str] = []
    for region in table["region"][chosen]:
        side, _, plain = str(region).partition(" ")
        base = plain if side in SIDES else str(region)
        twin = [name for name in names if name.partition(" ")[2] == base and name != region]
        if twin and side in SIDES:
            names[names.index(twin[0])] = f"bilateral {base}"
        elif f"bilateral {base}" not in names and len(names) < _NAMED_REGIONS:
            names.append(str(region))
    return ", ".join(names) + ("" if len(enriched) else "?")


def rows_to_show(table: Mapping[str, Any], component: int, most: int = 5) -> list[int]:
    """Rows of a component's largest shares, and of the regions that its name comes from; falling
    shares.
    """
    rows = sorted(
        (row for row, j in enumerate(table["component"]) if j == component),
        key=lambda r: -table["share"][r],
    )
    named = {region for _, regions in _named(table["proposed_name"][rows[0]]) for region in regions}
    return [row for at, row in enumerate(rows) if at < most or table["region"][row] in named]


def name_with_shares(table: Mapping[str, Any], component: int, name: str) -> str:
    """A proposed name with the share of the component that lies there: "bilateral insula (12.3 %)"."""
    mine = [row for row, j in enumerate(table["component"]) if j == component]
    share = {str(table["region"][row]): table["share"][row] for row in mine}
    found = [
        (part, sum(share.get(region, 0.0) for region in regions)) for part, regions in _named(name)
    ]
    return ", ".join(
        f"{part}{'?' * name.endswith('?')} ({100 * held:.1f} %)" for part, held in found
    )


def _named(name: str) -> list[tuple[str, tuple[str, ...]]]:
    """The parts of a proposed name and the regions that each stands for."""
    parts = name.removesuffix("?").split(", ")
    both = "bilateral "
    pair = lambda part: tuple(f"{side} {part.removeprefix(both)}" for side in SIDES)
    return [(part, pair(part) if part.startswith(both) else (part,)) for part in parts]


OF_MEASURE = "share_"
"""Columns of the shares of each of several measures are called by this and the measure."""
_COLUMNS = {
    "component": "Number of the component",
    "region": "Region of the atlas",
    "share": "Share of the component's mass that lies in the region; the mean where measures have maps of their own",
    "area": "Share of the cortex in the region",
    "enrichment": "Mean of the map in the region over its mean on the cortex",
    "null_enrichment": "Mean of enrichment over rotated maps",
    "p": "Share of the rotations that are as enriched or more",
    "q": "p corrected over all rows (Benjamini-Hochberg)",
    "n_spins": "Rotations",
    "proposed_name": f"Name from regions with q <= {ENRICHED}; with a question mark if there is none",
}


def write_overlap(found: Overlap, path: str | Path, overwrite: bool = False) -> Path:
    """The table as TSV with its JSON file, with the proposed name of each component in a last
    column.
    """
    each = {
        name: f"The same share of the maps of {name[len(OF_MEASURE) :]}"
        for name in found.table
        if is_of(name)
    }
    return write_table(path, with_names(found), {**_COLUMNS, **each}, overwrite=overwrite)


def is_of(column: str) -> bool:
    """Whether a column of the table is of one of several measures."""
    return column.startswith(OF_MEASURE)


def with_names(found: Overlap) -> dict[str, np.ndarray]:
    """The table with the proposed names in a last column."""
    proposed = np.array(found.names)[np.asarray(found.table["component"]) - 1]
    return {**found.table, "proposed_name": proposed}


def certain_names(table: Mapping[str, Any] | None, n_components: int) -> list[str]:
    """The name of each component with the share of it that lies there, "" where no region is
    enriched (q ≤ 0.05).

    Parameters
    ----------
    table : as `with_names` gives it; None names nothing.
    """
    proposed = (
        {} if table is None else dict(zip(table["component"], table["proposed_name"], strict=True))
    )
    names = [str(proposed.get(j, "?")) for j in range(1, n_components + 1)]
    return [
        "" if name.endswith("?") else name_with_shares(table or {}, j, name)
        for j, name in enumerate(names, 1)
    ]


# ---------------------------------------------------------------------- reading


def read_atlas(paths: str | Path | Sequence[str | Path], sites: Sites, hemi: str | None) -> Atlas:
    """The regions of sites, from the files of an atlas as `read_regions` reads them.

    Regions that are found in both hemispheres become "left NAME" and "right NAME". The medial wall,
    and what is called unknown, is not a region.
    """
    _check_placed(sites)
    sites = sites.surface
    found = read_regions(paths, sites, hemi)
    # a table may list both hemispheres' names in each of its files: what counts is what lies there
    there = [{table.get(int(key), "") for key in np.unique(keys)} for keys, table in found.values()]
    shared = set.intersection(*there) if len(there) == 2 else set()
    labels: list[np.ndarray] = []
    names: list[str] = []
    for side, (keys, table) in found.items():
        region = np.full(len(keys), -1, dtype=np.int64)
        for key in np.unique(keys):
            name = table.get(int(key), "")
            if is_region(name):
                region[keys == key] = len(names)
                names.append(f"{side} {name}" if name in shared else name)
        labels.append(_on_sites(region, sites))
    if not names:
        raise FileError(_listed(paths), "names no region of the cortex")
    return Atlas(np.concatenate(labels), tuple(names))


def read_regions(
    paths: str | Path | Sequence[str | Path], sites: Sites, hemi: str | None
) -> dict[str, Labels]:
    """Hemisphere, left first → the key of each vertex of the mesh, and the name of each key.

    Parameters
    ----------
    paths : one .annot or .label.gii file per hemisphere, or one .dlabel.nii file. Annotations of
        fsaverage (163842 vertices) also serve fsaverage5 and fsaverage6, which are its first
        vertices.
    sites : all vertices or faces of a mesh.
    hemi : "left", "right", "both", or None for one hemisphere of which it is not known.

    Notes
    -----
    The hemisphere of a file is known from its name, or else from its content, or else from its
    place in the list; from its place alone where the hemisphere of the sites is not known.
    """
    if sites.n != sites.n_mesh or sites.on == "points":
        raise ArgumentError(
            "atlas",
            None,
            f"An atlas needs all vertices or faces of a mesh; the maps are on {sites!r}",
        )
    sides = SIDES if len(sites.frames) == 2 else (hemi or "left",)
    known, found = hemi is not None or len(sides) == 2, {}
    for number, file in enumerate(_files(paths)):
        if not file.exists():
            raise FileNotFoundError(f"no atlas file {file}")
        with naming(file, "atlas"):
            for written, labels in read_labels(file).items():
                place = sides[number] if number < len(sides) else None
                side = (side_of(file.name)[0] or written or place) if known else place
                if file.name.endswith(".dlabel.nii") and written:
                    side = written
                if side is None:
                    raise Unreadable(
                        f"is file {number + 1} of an atlas for {len(sides)} hemisphere(s); give one each"
                    )
                if side in found:
                    raise Unreadable(f"is of the {side} hemisphere, as another of the files is")
                found[side] = _on_mesh(labels, sites, side) if side in sides else labels
    missing = [side for side in sides if side not in found]
    if missing:
        raise FileError(
            _listed(paths),
            f"no regions of the {' and the '.join(missing)} hemisphere; give one .annot or .label.gii file per "
            "hemisphere, left first, or a .dlabel.nii file",
        )
    return {side: found[side] for side in sides}


def _files(paths: str | Path | Sequence[str | Path]) -> list[Path]:
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]


def _listed(paths: str | Path | Sequence[str | Path]) -> str:
    return ", ".join(map(str, _files(paths)))


def _on_mesh(labels: Labels, sites: Sites, side: str) -> Labels:
    """Labels of as many vertices as one hemisphere of the mesh has."""
    keys, table = labels
    n = (
        sites.n // len(sites.frames)
        if sites.on == "vertices"
        else int(np.asarray(sites.triangles).max()) + 1
    )
    if len(keys) == _N_FSAVERAGE and sites.name in ("fsaverage5", "fsaverage6"):
        keys = keys[:n]
    if len(keys) != n:
        raise Unreadable(f"has {len(keys)} vertices in the {side} hemisphere; the mesh has {n}")
    return keys, table


def _on_sites(region: np.ndarray, sites: Sites) -> np.ndarray:
    """Regions of vertices as regions of the sites of one hemisphere."""
    if sites.on == "vertices":
        return region
    a, b, c = region[np.asarray(sites.triangles)].T
    return np.where(b == c, b, a)  # two of three corners decide
