"""Parcels as sites: where they lie, by which names they are found, and how they turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import icofactor as ico
from helpers.refusals import refused
from helpers.region_tables import NAMES, N, toy_labels, toy_values, write_toy_atlas
from icofactor.factorization.design import Design
from icofactor.io.gifti import write_label_gii
from icofactor.io.records import flatten, rebuild
from icofactor.results.colours import distinct_colours
from icofactor.sphere.meshes import check_sites
from icofactor.sphere.parcels import region_key
from icofactor.sphere.rotations import SiteSpinner, random_rotation
from icofactor.sphere.sites import Sites


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_toy_atlas(tmp_path_factory.mktemp("atlas"))


def test_positions_are_mean_directions(atlas: tuple[Path, Path]) -> None:
    sites = Sites.parcels(atlas)
    points = Sites.named("fsaverage3").coordinates
    assert (sites.n, sites.on, sites.regions.hemi, sites.n_roots) == (N, "parcels", "both", 40)
    for half, side in enumerate(("lh", "rh")):
        for number, name in enumerate(NAMES):
            position = sites.regions.names.index(f"{side}_{name}")
            vertices = points[toy_labels(half) == number + 1]
            assert sites.hemisphere[position] == half and sites.regions.sizes[position] == len(
                vertices
            )
            np.testing.assert_allclose(
                sites.coordinates[position],
                vertices.mean(axis=0) / np.linalg.norm(vertices.mean(axis=0)),
            )
    assert len(set(sites.deepest)) == N


@pytest.mark.parametrize(
    "name",
    [
        "lh_insula",
        "lh_insula_thickness",
        "L_insula_thickavg",
        "ctx-lh-insula",
        "left insula",
        "FS_L_Insula_Thck",
        "lh.insula",
        "insula_L",
        "L_insula_ROI",
        "L_7Networks_LH_insula_thickavg",
        "17Networks_LH_insula",
    ],
)
def test_names_of_regions_are_forgiving(name: str) -> None:
    assert region_key(name) == ("left", "insula")


def test_columns_of_a_table_in_their_order(atlas: tuple[Path, Path]) -> None:
    columns = ["R_insula_thickavg", "L_lingual_thickavg", "R_cuneus_thickavg"]
    sites = Sites.parcels(atlas, columns)
    assert sites.regions.names == ("rh_insula", "lh_lingual", "rh_cuneus")
    assert sites.hemisphere.tolist() == [1, 0, 1]
    assert region_key("lh_G&S_frontomargin_thickness")[1] == region_key("G_and_S_frontomargin")[1]
    # of both hemispheres of the atlas only one
    right = Sites.parcels(atlas, ["rh_insula", "rh_cuneus"]).regions
    assert (right.hemi, len(right.labels)) == ("right", 642)


@pytest.mark.parametrize(
    "regions",
    [
        ["lh_insular", "hippocampus", "rh_cuneus"],
        ["lh_insula", "L_insula_thickavg"],
        ["insula"],  # which of the two?
    ],
)
def test_names_that_the_atlas_does_not_have(atlas: tuple[Path, Path], regions: list[str]) -> None:
    with refused("regions"):
        Sites.parcels(atlas, regions)
    with refused("regions"):
        Sites.parcels(None, ["a", "a"])


def test_atlas_of_no_known_mesh(tmp_path: Path) -> None:
    file = tmp_path / "lh.odd.label.gii"
    write_label_gii(file, np.arange(50) % 3, "left", ["a", "b"], distinct_colours(2))
    with refused("lh.odd.label.gii"):
        Sites.parcels(file)
    points = Sites.icosphere(2).coordinates[:50]
    with refused("lh.odd.label.gii"):  # nor of a mesh of other vertices
        Sites.parcels(file, mesh="fsaverage3")
    assert Sites.parcels((np.arange(50) % 3, Sites.from_sphere(points, [[0, 1, 2]]))).n == 2


def test_files_and_arrays_make_the_same_sites(atlas: tuple[Path, Path], tmp_path: Path) -> None:
    labels = np.concatenate(
        [toy_labels(0), np.where(toy_labels(1) > 0, toy_labels(1) + len(NAMES), 0)]
    )
    names = [f"{side}_{name}" for side in ("lh", "rh") for name in NAMES]
    array = Sites.parcels((labels, "fsaverage3"), names)
    files = Sites.parcels(atlas)
    np.testing.assert_array_equal(array.coordinates, files.coordinates)
    np.testing.assert_array_equal(array.regions.labels, files.regions.labels)
    for side, labels_of_side in (("lh", toy_labels(0)), ("rh", toy_labels(1))):
        hemi = {"lh": "left", "rh": "right"}[side]
        write_label_gii(
            tmp_path / f"{side}.label.gii",
            labels_of_side,
            hemi,
            NAMES,
            distinct_colours(len(NAMES)),
        )
    gifti = Sites.parcels([tmp_path / "rh.label.gii", tmp_path / "lh.label.gii"])
    assert gifti.regions.names == files.regions.names


def test_kept_in_files(atlas: tuple[Path, Path]) -> None:
    for sites in (Sites.parcels(atlas), Sites.parcels(None, ["lh_a", "rh_b"])):
        again = check_sites(rebuild(Sites, *flatten(sites)))
        assert again.regions.names == sites.regions.names and repr(again) == repr(sites)
    np.testing.assert_array_equal(again.coordinates, sites.coordinates)


def test_few_parcels_are_their_own_columns(atlas: tuple[Path, Path]) -> None:
    sites = Sites.parcels(atlas)
    alone = Design.starting(sites, "exponential", level=1)
    assert alone.kind == "partition"
    np.testing.assert_array_equal(alone.matrix.toarray(), np.eye(N))
    vertices = Sites.parcels((np.arange(1, 643), "fsaverage3"))
    assert Design.starting(vertices, level=1).n_columns == 80
    unplaced = Sites.parcels(None, [f"r{i}" for i in range(100)])
    assert Design.starting(unplaced, level=0).n_columns == 100


def test_rotated_parcels_take_the_nearest(atlas: tuple[Path, Path]) -> None:
    sites = Sites.parcels(atlas)
    sources = SiteSpinner(sites).draw(np.random.default_rng(3))
    rotation = random_rotation(np.random.default_rng(3))
    mirror = np.diag([-1.0, 1, 1])
    for half, turn in enumerate((rotation, mirror @ rotation @ mirror)):
        side = np.flatnonzero(sites.hemisphere == half)
        points = sites.coordinates[side]
        nearest = (points @ turn.T @ points.T).argmax(axis=1)
        np.testing.assert_array_equal(sources[side], side[nearest])
    unplaced = Sites.parcels(None, list(sites.regions.names))
    exchanged = SiteSpinner(unplaced).draw(np.random.default_rng(0))
    assert sorted(exchanged) == list(range(N))
    assert (unplaced.hemisphere[exchanged] == unplaced.hemisphere).all()


def fit(X: np.ndarray, sites: Sites, k: int = 2) -> ico.CorticalFactorization:
    return ico.CorticalFactorization(k, mesh=sites, n_starts=3, weights="none").fit(X)


def test_regions_are_the_same_by_name(atlas: tuple[Path, Path]) -> None:
    X = toy_values(20)
    names = [f"{side}_{name}" for side in "LR" for name in NAMES]
    model = fit(X, Sites.parcels(None, names))
    backward = fit(X[:, ::-1], Sites.parcels(atlas, names[::-1]))
    assert ico.match_components(model, backward).similarity.min() > 0.999
    assert ico.compare(model, backward, n_spins=5).how == "same regions, by name"

    def cohort(names: list[str]) -> ico.Cohort:
        sites = Sites.parcels(None, names)
        return ico.Cohort(X, tuple(f"s{i}" for i in range(20)), sites, hemisphere="both")

    elsewhere = cohort([f"{name}x" for name in names])
    with refused("mesh"):
        model.transform(elsewhere)
    with refused("b"):
        ico.match_components(model, fit(X, elsewhere.sites))
    same = [name.replace("L_", "ctx-lh-").replace("R_", "ctx-rh-") for name in names]
    np.testing.assert_allclose(model.transform(cohort(same)), model.loadings_, atol=1e-5)


def test_fit_on_arrays(atlas: tuple[Path, Path], tmp_path: Path) -> None:
    X = toy_values(30)
    model = fit(X, Sites.parcels(atlas), 3)
    assert model.components_.shape == (3, N) and model.explained_ > 0.9
    truth = np.arange(N) % 3 == np.arange(3)[:, None]
    assert ico.match_components(model.components_, truth.astype(float)).similarity.min() > 0.9
    model.save(tmp_path / "model.zip")
    again = ico.load_model(tmp_path / "model.zip")
    np.testing.assert_allclose(again.transform(X), model.loadings_, atol=1e-10)
