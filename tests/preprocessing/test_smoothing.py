"""Smoothing equals Workbench in all three methods, and keeps what a weighted mean must keep."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.csgraph import dijkstra

from helpers.refusals import refused
from helpers.workbench import read_metric, wb_command, write_metric, write_surface
from icofactor.preprocessing.smoothing import SurfaceSmoother, smooth_surface
from icofactor.sphere.geodesics import distances_within, surface_graph
from icofactor.sphere.hierarchy import icosphere
from icofactor.sphere.sites import Sites
from icofactor.sphere.surfaces import vertex_areas

METHODS = {"area": "GEO_GAUSS_AREA", "equal": "GEO_GAUSS_EQUAL", "plain": "GEO_GAUSS"}


@pytest.fixture(scope="session")
def midthickness(data_folder: Path) -> dict[str, dict[str, np.ndarray]]:
    """Per hemisphere: surface, a map on it, and Workbench's answers (sigma 4.2466 mm within the cortex)."""
    faces = Sites.named("fsaverage5").triangles
    assert faces is not None
    names = ["midthickness", "input_thickness", "smooth_sigma4.2466", "vertex_areas_midthickness"]
    with np.load(data_folder / "wb_reference" / "wb_command_1.5.0_reference.npz") as archive:
        by_side = {
            h: {name: archive[f"{name}_{h}"] for name in names} | {"faces": faces}
            for h in ("lh", "rh")
        }
    with np.load(data_folder / "thickness_fsaverage5_n200.npz") as archive:
        for h, cortex in zip(by_side, np.split(archive["cortex"], 2), strict=True):
            by_side[h]["cortex"] = cortex
    return by_side


@pytest.fixture(scope="module")
def sphere() -> tuple[np.ndarray, np.ndarray]:
    """A sphere of radius 100 mm with 2562 vertices."""
    mesh = icosphere(4)
    return 100 * mesh.vertices, mesh.faces


@pytest.mark.parametrize("hemisphere", ["lh", "rh"])
def test_stored_workbench_output(
    midthickness: dict[str, dict[str, np.ndarray]], hemisphere: str
) -> None:
    real = midthickness[hemisphere]
    surface = real["midthickness"], real["faces"]
    smoothed = smooth_surface(real["input_thickness"], *surface, sigma=4.2466, roi=real["cortex"])
    assert smoothed.dtype == np.float32
    assert_allclose(smoothed, real["smooth_sigma4.2466"], rtol=0, atol=1e-5)
    assert_allclose(vertex_areas(*surface), real["vertex_areas_midthickness"], rtol=1e-6)


@pytest.mark.parametrize("method", list(METHODS))
def test_live_workbench(
    midthickness: dict[str, dict[str, np.ndarray]], tmp_path: Path, method: str
) -> None:
    real = midthickness["lh"]
    surface = write_surface(tmp_path / "mid.surf.gii", real["midthickness"], real["faces"])
    noise = np.random.default_rng(0).normal(size=(2, 10242)).astype(np.float32)
    metric, out = write_metric(tmp_path / "in.shape.gii", noise), tmp_path / "out.shape.gii"
    roi = write_metric(tmp_path / "roi.shape.gii", real["cortex"])
    # 0.9 and 1.1 mm often reach fewer vertices than a vertex has neighbours: the rule for small kernels
    for sigma, options in ((0.9, []), (1.1, ["-roi", roi]), (4.0, []), (4.0, ["-roi", roi])):
        wb_command(
            "-metric-smoothing", surface, metric, sigma, out, "-method", METHODS[method], *options
        )
        smoothed = SurfaceSmoother(
            surface, sigma=sigma, method=method, roi=roi if options else None
        )(noise)
        assert_allclose(smoothed, read_metric(out), rtol=0, atol=5e-6)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 3.0))
def test_distances_equal_those_of_the_whole_graph(seed: int, limit: float) -> None:
    mesh = icosphere(3)
    bumpy = mesh.vertices * np.random.default_rng(seed).uniform(0.8, 1.2, (642, 1))
    graph, _ = surface_graph(bumpy, mesh.faces.astype(np.int64))
    distances = np.full((642, 642), np.inf)
    counts, columns, values = map(np.concatenate, zip(*distances_within(graph, limit), strict=True))
    rows = np.repeat(np.arange(642), counts)
    assert np.isinf(distances[rows, columns]).all()
    distances[rows, columns] = values
    expected = dijkstra(graph, directed=False)
    expected[expected > limit] = np.inf
    assert_allclose(distances, expected, rtol=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(list(METHODS)), st.floats(2, 60))
def test_smoothing_is_an_average(seed: int, method: str, fwhm: float) -> None:
    mesh = icosphere(3)
    rng = np.random.default_rng(seed)
    surface = 100 * mesh.vertices * rng.uniform(0.9, 1.1, (642, 1)), mesh.faces
    roi = rng.uniform(size=642) < 0.7
    smoother = SurfaceSmoother(surface, fwhm=fwhm, method=method, roi=roi)
    assert_allclose(smoother(np.full(642, 3.0)), np.where(roi, 3.0, 0), rtol=1e-12)
    values = rng.normal(size=642)
    smoothed = smoother(np.where(roi, values, np.nan))
    assert smoothed[roi].max() <= values[roi].max() + 1e-12
    assert smoothed[roi].min() >= values[roi].min() - 1e-12
    assert smoother.weights.data.min() > 0
    assert np.array_equal(np.diff(smoother.weights.indptr) > 0, roi)


def test_fwhm_and_sigma_mean_the_same(sphere: tuple[np.ndarray, np.ndarray]) -> None:
    noise = np.random.default_rng(0).normal(size=2562)
    sigma = 20 / np.sqrt(8 * np.log(2))
    assert_allclose(
        smooth_surface(noise, *sphere, fwhm=20),
        smooth_surface(noise, *sphere, sigma=sigma),
        rtol=1e-10,
    )
    smoother = SurfaceSmoother(sphere, fwhm=20)
    spread = smoother(noise).std()
    assert smoother.set_params(fwhm=40)(noise).std() < 0.8 * spread


def test_open_meshes_are_smoothed_too(sphere: tuple[np.ndarray, np.ndarray]) -> None:
    points, faces = sphere
    cut = faces[points[faces][:, :, 2].min(axis=1) > 0]
    smoother = SurfaceSmoother((points, cut), fwhm=20)
    used = np.unique(cut)
    assert_allclose(smoother(np.ones(2562))[used], 1, rtol=1e-12)
    # nothing crosses from the cap to vertices without triangles
    assert set(np.unique(smoother.weights[used].indices)) == set(used)


def test_bad_input_is_refused(sphere: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    points, faces = sphere
    ones = np.ones(2562)
    cases: list[tuple[dict[str, object], str]] = [
        ({}, "fwhm"),
        ({"fwhm": 1, "sigma": 1}, "fwhm"),
        ({"fwhm": 0}, "fwhm"),
        ({"sigma": np.nan}, "sigma"),
        ({"fwhm": "wide"}, "fwhm"),
        ({"fwhm": 5, "method": "heat"}, "method"),
        ({"fwhm": 5, "roi": np.ones(7)}, "roi"),
        ({"fwhm": 5, "roi": np.zeros(2562)}, "roi"),
    ]
    for options, argument in cases:
        with refused(argument):
            smooth_surface(ones, *sphere, **options)
    with refused("maps"):
        smooth_surface(np.where(np.arange(2562) == 9, np.nan, 1), *sphere, fwhm=5)
    with refused("maps"):
        smooth_surface(ones[1:], *sphere, fwhm=5)
    broken = np.where(np.arange(2562)[:, None] == 3, np.nan, points)
    path = write_surface(tmp_path / "bad.surf.gii", broken, faces)
    with refused("bad.surf.gii"):
        SurfaceSmoother(path, fwhm=5).fit()
    assert_array_equal(SurfaceSmoother(sphere, fwhm=5).fit().weights.shape, (2562, 2562))
