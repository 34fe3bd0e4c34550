"""Overlap with an atlas: shares, enrichment, the spin null, and the files atlases come in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import nibabel as nib
import numpy as np
import pytest
from scipy.stats import kstest

from helpers.refusals import refused
from icofactor.assessment.atlas import (
    Atlas,
    enrichment,
    name_with_shares,
    overlap,
    proposed_name,
    read_atlas,
    rows_to_show,
    write_overlap,
)
from icofactor.sphere.operators import neighbour_average, smooth_rows
from icofactor.sphere.rotations import random_rotation
from icofactor.sphere.sites import Sites

SITES = Sites.named("fsaverage4")
WALL = SITES.coordinates[:, 0] > 0.85


def parcels(n: int, seed: int = 0, sites: Sites = SITES) -> np.ndarray:
    """A region for each site: the nearest of n points."""
    points = np.random.default_rng(seed).standard_normal((n, 3))
    return np.asarray(
        (sites.coordinates @ (points / np.linalg.norm(points, axis=1)[:, None]).T).argmax(axis=1)
    )


def smooth_maps(n: int, seed: int) -> np.ndarray:
    white = np.random.default_rng(seed).standard_normal((n, SITES.n))
    e = smooth_rows(white, neighbour_average(SITES.triangles), 30)
    return np.asarray(np.exp(e / e.std()))


def fitted(
    maps: np.ndarray, sites: Sites = SITES, hemi: str = "left", mask: np.ndarray | None = None
) -> SimpleNamespace:
    return SimpleNamespace(components_=maps, sites_=sites, hemi_=hemi, mask_=mask)


@pytest.mark.slow
def test_p_values_are_uniform_on_maps_that_know_nothing_of_the_atlas() -> None:
    labels = parcels(20)
    atlas = Atlas(labels, tuple(map(str, range(20))))
    maps = smooth_maps(200, 1)
    p = enrichment(maps, SITES, ~WALL, atlas, n_spins=199, random_state=0).p
    inside = np.flatnonzero(np.bincount(labels[~WALL], minlength=20) > 20)
    region = np.random.default_rng(0).choice(inside, size=200)
    assert kstest(p[np.arange(200), region], "uniform").pvalue > 0.01
    # a map that is high in the region is not uniform: the test could fail
    raised = maps * np.where(labels == region[:, None], 3.0, 1.0)
    q = enrichment(raised, SITES, ~WALL, atlas, n_spins=199, random_state=0).p
    assert kstest(q[np.arange(200), region], "uniform").pvalue < 1e-6


@pytest.mark.parametrize("on", ["vertices", "parcels"])
def test_sites_count_by_their_weights_and_parcels_by_their_vertices(on: str) -> None:
    """Against sums over vertices and, for rotations, over pairs of sites."""
    labels, n_spins, rng = parcels(6), 7, np.random.default_rng(3)
    region = np.where(WALL, 0, 1 + parcels(40, 5))
    sites = (
        SITES.weighted(rng.random(SITES.n) + 0.5)
        if on == "vertices"
        else Sites.parcels((region, SITES))
    )
    values, mask = (
        rng.random((2, sites.n)) ** 3,
        ~WALL if on == "vertices" else np.ones(sites.n, dtype=bool),
    )
    overlaps = enrichment(values, sites, mask, Atlas(labels, tuple("abcdef")), n_spins=n_spins)
    w = sites.weights if on == "vertices" else np.ones(SITES.n)
    site_of_vertex = np.where(WALL, -1, np.arange(SITES.n) if on == "vertices" else region - 1)

    def by_hand(sources: np.ndarray) -> np.ndarray:
        maps = np.where(site_of_vertex < 0, 0, values[:, sources][:, site_of_vertex])
        valid = (site_of_vertex >= 0) & mask[sources][site_of_vertex]
        means = [
            (maps * w)[:, inside].sum(1) / w[inside].sum()
            for inside in [valid & (labels == k) for k in range(6)]
        ]
        return np.array(means).T / ((maps * w)[:, valid].sum(1) / w[valid].sum())[:, None]

    np.testing.assert_allclose(overlaps.enrichment, by_hand(np.arange(sites.n)), rtol=1e-10)
    maps = np.where(site_of_vertex < 0, 0, values[:, site_of_vertex])
    for k in range(6):
        share = (maps * w)[:, labels == k].sum(1) / (maps * w).sum(1)
        np.testing.assert_allclose(overlaps.share[:, k], share, rtol=1e-10)
        assert overlaps.area[k] == pytest.approx(w[(labels == k) & ~WALL].sum() / w[~WALL].sum())
    turns = [
        random_rotation(np.random.default_rng(s)) for s in np.random.SeedSequence(0).spawn(n_spins)
    ]
    spun = [by_hand((sites.coordinates @ R.T @ sites.coordinates.T).argmax(axis=1)) for R in turns]
    np.testing.assert_allclose(overlaps.null, np.mean(spun, axis=0), rtol=1e-10)


def test_the_medial_wall_does_not_count() -> None:
    """Whatever a mask hides, and without a mask sites without data, where FreeSurfer writes 0."""
    atlas = Atlas(parcels(6), tuple("abcdef"))
    maps = smooth_maps(2, 0)
    tables = [
        overlap(fitted(values, mask=~WALL), atlas, n_spins=20).table
        for values in (maps, np.where(WALL, 1e6, maps))
    ]
    empty = np.where(WALL, 0.0, maps)
    unmasked = fitted(empty)
    unmasked.mean_ = empty.mean(axis=0)
    tables.append(overlap(unmasked, atlas, n_spins=20).table)
    for table in tables[1:]:
        np.testing.assert_equal(table, tables[0])


def test_components_are_named_by_what_they_overlap(tmp_path: Path) -> None:
    sites = Sites.named("fsaverage4", hemi="both")
    half = parcels(6)
    labels = np.concatenate([half, 6 + half])
    names = (*(f"left r{i}" for i in range(6)), *(f"right r{i}" for i in range(6)))
    maps = 0.05 + np.stack(
        [np.isin(labels, [2]), np.isin(labels, [4, 10]), np.isin(labels, [0, 5])]
    ).astype(float)
    overlaps = overlap(fitted(maps, sites, "both"), Atlas(labels, names), n_spins=199)
    assert overlaps.names[0] == "left r2"
    assert overlaps.names[1] == "bilateral r4"
    assert set(overlaps.names[2].split(", ")) == {"left r0", "left r5"}
    t = overlaps.table
    assert (t["component"][0], t["region"][0]) == (1, "left r2")
    assert t["region"][12] in ("left r4", "right r4")
    assert np.all(t["q"] >= t["p"] - 1e-15) and t["p"].min() == 0.005
    written = write_overlap(overlaps, tmp_path / "overlap.tsv")
    rows = [line.split("\t") for line in written.read_text().splitlines()]
    assert rows[0][-1] == "proposed_name" and rows[1][-1] == "left r2" and len(rows) == 37
    with pytest.raises(FileExistsError):
        write_overlap(overlaps, written)


def test_measures_with_maps_of_their_own_have_one_name() -> None:
    """By the mean of their maps, each divided by its sum: the same as for one map that is that mean."""
    labels = parcels(6)
    atlas = Atlas(labels, tuple(f"r{i}" for i in range(6)))
    rng = np.random.default_rng(0)
    first, second = (rng.random((2, SITES.n)) + 5 * (labels == region) for region in (1, 3))
    second[1] = 0.0  # a component that is in one measure only
    mask = np.tile(~WALL, 2)
    joined = fitted(np.hstack([first, 1000 * second]), SITES.repeated(2), mask=mask)
    joined.measures_ = SimpleNamespace(names=("a", "b"))
    several = overlap(joined, atlas, n_spins=99)
    inside = [np.where(WALL, 0.0, maps) for maps in (first, second)]
    shares = [maps / np.maximum(maps.sum(axis=1, keepdims=True), 1e-300) for maps in inside]
    plain = overlap(fitted(sum(shares), mask=~WALL), atlas, n_spins=99)
    assert several.names == plain.names
    assert set(plain.names[0].split(", ")) == {"r1", "r3"} and plain.names[1] == "r1"
    for name in ("share", "enrichment", "p", "q"):
        np.testing.assert_allclose(several.table[name], plain.table[name])
    table = several.table
    row = int(np.flatnonzero((table["component"] == 1) & (table["region"] == "r3"))[0])
    for name, share in zip(("a", "b"), shares, strict=True):
        assert table[f"share_{name}"][row] == pytest.approx(share[0, labels == 3].sum())


LEFT_AND_RIGHT = [f"{side} {name}" for side in ("left", "right") for name in "abcdefg"]
SHARES = np.array([0.2, 0.15, 0.12, 0.11, 0.1, 0.02, 0.09, *[0.03] * 6, 0.04])


@pytest.mark.parametrize(
    ("regions", "shares", "q", "name"),
    [
        # enriched beyond chance, but hardly any of the component lies in c
        (["left a", "left b", "right c"], [0.6, 0.3, 0.1], [0.01, 0.2, 0.01], "left a"),
        (["left a", "left b", "right c"], [0.4, 0.3, 0.3], [0.01, 0.2, 0.01], "left a, right c"),
        # the right one holds too little
        (LEFT_AND_RIGHT, SHARES, [*[0.68] * 6, 0.01] * 2, "left g"),
        (LEFT_AND_RIGHT, [*SHARES[:13], 0.085], [*[0.68] * 6, 0.01] * 2, "bilateral g"),
        # nothing is sure
        (LEFT_AND_RIGHT, SHARES, [0.68] * 14, "left a?"),
    ],
)
def test_proposed_names(regions: list[str], shares: list[float], q: list[float], name: str) -> None:
    table = {"component": np.ones(len(regions), int), "region": np.array(regions)}
    table |= {"share": np.array(shares), "p": np.array(q) / 20, "q": np.array(q)}
    assert proposed_name(table, 1) == name
    if name == "bilateral g":
        assert "17.5" in name_with_shares(table, 1, name)
        # regions of a name that stands for two are both shown
        rows = rows_to_show({**table, "proposed_name": [name] * 14}, 1)
        assert {"left g", "right g"} < {regions[row] for row in rows}


# ---------------------------------------------------------------------- files

NAMES = ["unknown", "north", "south"]
KEYS = 1 + (SITES.coordinates[:, 2] < 0).astype(np.int64)
KEYS[WALL] = 0


def annot(path: Path, keys: np.ndarray = KEYS) -> Path:
    colours = np.array([[25, 5, 25, 0, 0], [25, 100, 40, 0, 0], [125, 100, 160, 0, 0]])
    nib.freesurfer.write_annot(path, keys.astype(np.int32), colours, NAMES, fill_ctab=True)
    return path


def dlabel(path: Path) -> Path:
    inside = np.flatnonzero(~WALL)
    parts = [
        nib.cifti2.BrainModelAxis.from_surface(
            inside, SITES.n, name=f"CIFTI_STRUCTURE_CORTEX_{side}"
        )
        for side in ("LEFT", "RIGHT")
    ]
    table = {0: ("???", (0, 0, 0, 0)), 1: ("north", (1, 0, 0, 1)), 2: ("south", (0, 1, 0, 1))}
    axis = nib.cifti2.LabelAxis(["atlas"], [table])
    values = np.concatenate([KEYS[inside], KEYS[inside]]).astype(np.float32)[None]
    nib.save(nib.Cifti2Image(values, (axis, parts[0] + parts[1])), path)
    return path


def test_two_hemispheres(tmp_path: Path) -> None:
    sites = Sites.named("fsaverage4", hemi="both")
    expected = np.concatenate([KEYS - 1, np.where(KEYS > 0, KEYS + 1, -1)])
    pair = read_atlas((annot(tmp_path / "lh.annot"), annot(tmp_path / "rh.annot")), sites, "both")
    cifti = read_atlas(dlabel(tmp_path / "both.dlabel.nii"), sites, "both")
    for atlas in (pair, cifti):
        assert atlas.names == ("left north", "left south", "right north", "right south")
        np.testing.assert_array_equal(atlas.labels, expected)
    right = read_atlas(tmp_path / "both.dlabel.nii", SITES, "right")
    assert right.names == ("north", "south")


def test_a_file_s_name_tells_its_hemisphere_whatever_the_order(tmp_path: Path) -> None:
    sites = Sites.named("fsaverage4", hemi="both")
    left_file = annot(tmp_path / "lh.a.annot")
    right_file = annot(tmp_path / "rh.a.annot", np.where(KEYS == 1, 2, KEYS))
    atlas = read_atlas((left_file, right_file), sites, "both")
    swapped = read_atlas((right_file, left_file), sites, "both")
    assert swapped.names == atlas.names == ("north", "left south", "right south")
    np.testing.assert_array_equal(swapped.labels, atlas.labels)
    assert read_atlas(right_file, SITES, None).names == ("south",)
    second = annot(tmp_path / "lh.b.annot")
    with refused("lh.a.annot"):
        read_atlas(left_file, SITES, "right")
    with refused("lh.b.annot"):
        read_atlas((left_file, second), sites, "both")


def test_faces_take_the_region_of_most_corners(tmp_path: Path) -> None:
    faces = Sites.named("fsaverage4", on="faces")
    atlas = read_atlas(annot(tmp_path / "lh.annot"), faces, "left")
    corners = (KEYS - 1)[np.asarray(faces.triangles)]
    for label, three in zip(atlas.labels, corners, strict=True):
        values, counts = np.unique(three, return_counts=True)
        assert label in (values[counts == counts.max()] if counts.max() > 1 else three)


def test_an_annotation_of_fsaverage_serves_fsaverage5(tmp_path: Path) -> None:
    dense, sites = Sites.named("fsaverage7"), Sites.named("fsaverage5")
    atlas = read_atlas(
        annot(tmp_path / "lh.annot", 1 + (dense.coordinates[:, 2] < 0)), sites, "left"
    )
    np.testing.assert_array_equal(atlas.labels, sites.coordinates[:, 2] < 0)


def test_files_that_are_no_atlas(tmp_path: Path) -> None:
    good = annot(tmp_path / "lh.annot")
    empty = annot(tmp_path / "none.annot", np.zeros_like(KEYS))
    (tmp_path / "bad.annot").write_bytes(b"nothing")
    (tmp_path / "atlas.txt").write_text("x")
    hemispheres = Sites.named("fsaverage4", hemi="both")
    cases = [
        (tmp_path / "bad.annot", SITES, "left"),
        (tmp_path / "atlas.txt", SITES, "left"),
        (good, Sites.named("fsaverage3"), "left"),
        (good, hemispheres, "both"),
        (empty, SITES, "left"),
    ]
    for path, sites, hemi in cases:
        with refused(str(path)):
            read_atlas(path, sites, hemi)
    with pytest.raises(FileNotFoundError):
        read_atlas(tmp_path / "absent.annot", SITES, "left")


@pytest.mark.parametrize(
    ("argument", "maps", "labels", "n_spins"),
    [
        ("maps", -np.ones((1, SITES.n)), parcels(4), 9),
        ("n_spins", np.ones((1, SITES.n)), parcels(4), 0),
        ("atlas.labels", np.ones((1, SITES.n)), np.zeros(3, dtype=int), 9),
    ],
)
def test_what_cannot_be_asked(
    argument: str, maps: np.ndarray, labels: np.ndarray, n_spins: int
) -> None:
    with refused(argument):
        enrichment(maps, SITES, ~WALL, Atlas(labels, tuple("abcd")), n_spins=n_spins)
    with refused("model"):
        overlap(SimpleNamespace(), Atlas(labels, tuple("abcd")))
