"""What fit accepts: kinds of arrays, SurfaceImages, cohorts, meshes and masks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.refusals import refused
from icofactor import CorticalFactorization, Sites
from icofactor.errors import ArgumentError
from icofactor.sphere.meshes import sites_for


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    """30 subjects on fsaverage3; multiples of 1/8, which float16 can represent exactly."""
    return (
        np.round(
            ico.simulate_cohort(30, 4, mesh="fsaverage3", random_state=0).X.astype(np.float64) * 8
        )
        / 8
    )


def quick(**changes: Any) -> CorticalFactorization:
    return CorticalFactorization(**{"n_components": 4, "n_starts": 3, "tol": 1e-4, **changes})


def sphere_image(data: dict[str, np.ndarray]) -> Any:
    """A SurfaceImage on fsaverage3's sphere."""
    from nilearn.surface import InMemoryMesh, PolyMesh, SurfaceImage

    sites = Sites.named("fsaverage3")
    mesh = InMemoryMesh(100 * sites.coordinates, sites.triangles)
    maps = {side: np.ascontiguousarray(x.T) for side, x in data.items()}
    return SurfaceImage(PolyMesh(**dict.fromkeys(data, mesh)), maps)


# ---------------------------------------------------------------------- kinds of arrays


def _memmap(X: np.ndarray, folder: Path) -> np.ndarray:
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


def _unaligned(X: np.ndarray, folder: Path) -> np.ndarray:
    shifted = np.frombuffer(b"\0" + X.tobytes(), "u1")[1:]
    return shifted.view(X.dtype).reshape(X.shape)


KINDS: dict[str, Any] = {
    "int16": lambda X, _: X.astype(np.int16),
    "uint8": lambda X, _: X.astype(np.uint8),
    "big-endian integers": lambda X, _: X.astype(">i4"),
    "float16": lambda X, _: X.astype(np.float16),
    "float32": lambda X, _: X.astype(np.float32),
    "big-endian": lambda X, _: X.astype(">f8"),
    "big-endian float32": lambda X, _: X.astype(">f4"),
    "Fortran order": lambda X, _: np.asfortranarray(X),
    "every second column of a wider array": lambda X, _: np.repeat(X, 2, axis=1)[:, ::2],
    "reversed twice": lambda X, _: np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "unaligned": _unaligned,
    "memmap": _memmap,
    "list of lists": lambda X, _: X.tolist(),
    "DataFrame": lambda X, _: pytest.importorskip("pandas").DataFrame(X),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_array_gives_the_same_answer(
    kind: str, X: np.ndarray, tmp_path: Path
) -> None:
    # Whole numbers, which all of these types hold.
    X = 8 * X
    array = KINDS[kind](X, tmp_path)
    model = quick().fit(array)
    expected = quick().fit(X)
    np.testing.assert_array_equal(model.components_, expected.components_)
    np.testing.assert_array_equal(model.transform(array), expected.transform(X))


# ---------------------------------------------------------------------- SurfaceImages and cohorts


def test_a_surface_image_of_one_hemisphere(X: np.ndarray) -> None:
    model = quick().fit(sphere_image({"right": X}))
    assert (model.hemi_, model.sites_.name) == ("right", "fsaverage3")
    np.testing.assert_allclose(model.components_, quick().fit(X).components_, rtol=1e-8, atol=1e-10)
    loadings = model.transform(sphere_image({"right": X[:1]}))
    np.testing.assert_allclose(loadings, model.loadings_[:1], rtol=1e-8)


def test_two_hemispheres_share_loadings_and_split_components(X: np.ndarray) -> None:
    image = sphere_image({"left": X, "right": X[:, ::-1]})
    model = quick().fit(image)
    assert model.hemi_ == "both"
    assert model.loadings_.shape == (30, 4)
    assert model.components_.shape == (4, 1284)
    joined = np.hstack([X, X[:, ::-1]])
    np.testing.assert_allclose(
        model.components_, quick().fit(joined).components_, rtol=1e-8, atol=1e-10
    )
    np.testing.assert_array_equal(model.sites_.hemisphere, np.repeat([0, 1], 642))
    one_sided = quick(hemi="left").fit(image)
    np.testing.assert_allclose(
        one_sided.components_, quick().fit(X).components_, rtol=1e-8, atol=1e-10
    )


def test_a_pial_surface_is_recognised_by_its_triangles() -> None:
    from nilearn.datasets import load_fsaverage
    from nilearn.surface import SurfaceImage

    cohort = ico.simulate_cohort(10, 3, hemisphere="both", random_state=0)
    halves = dict(zip(("left", "right"), np.split(cohort.X.T, 2), strict=True))
    image = SurfaceImage(load_fsaverage("fsaverage5")["pial"], halves)
    model = quick(n_components=3).fit(image)
    assert (model.sites_.name, model.sites_.n, model.hemi_) == ("fsaverage5", 20484, "both")
    expected = quick(n_components=3).fit(cohort)
    np.testing.assert_array_equal(model.components_, expected.components_)


def test_a_surface_image_without_the_hemisphere_asked_for(X: np.ndarray) -> None:
    with refused("hemi"):
        quick(hemi="right").fit(sphere_image({"left": X}))


def test_a_cohort_brings_sites_hemisphere_and_mask() -> None:
    unmasked = ico.simulate_cohort(20, 3, mesh="fsaverage3", hemisphere="right", random_state=0)
    mask = np.arange(642) % 5 > 0
    values = np.where(mask, unmasked.X, np.nan)
    cohort = ico.Cohort(values, unmasked.subjects, unmasked.sites, mask, "right")
    model = quick(n_components=3).fit(cohort)
    assert (model.hemi_, model.n_features_in_) == ("right", 642)
    np.testing.assert_array_equal(model.mask_, mask)
    expected = quick(n_components=3, mask=mask).fit(unmasked.X)
    np.testing.assert_array_equal(model.components_, expected.components_)
    with refused("hemi"):
        quick(hemi="left").fit(cohort)
    with refused("mesh"):
        quick(mesh="fsaverage4").fit(cohort)
    with refused("mesh"):
        model.transform(ico.simulate_cohort(3, 2, mesh="fsaverage4", hemisphere="right"))


# ---------------------------------------------------------------------- which mesh


@pytest.mark.parametrize("level", [3, 4, 5])
def test_the_mesh_is_inferred_from_the_number_of_columns(level: int) -> None:
    for on, n in (("vertices", 10 * 4**level + 2), ("faces", 20 * 4**level)):
        for n_columns, expected in ((n, None), (2 * n, "both")):
            sites, hemi = sites_for(n_columns)
            assert (sites.name, sites.on, sites.n) == (f"fsaverage{level}", on, n_columns)
            assert hemi == expected


@pytest.mark.parametrize("n", [40962, 81924, 81920, 163842])
def test_sizes_that_two_meshes_share_need_a_name(n: int) -> None:
    with refused("mesh"):
        sites_for(n)
    name = "fsaverage6" if n < 160000 else "fsaverage7"
    assert sites_for(n, name)[0].n == n


ONE_SIDE = Sites.named("fsaverage3")
MISMATCHES: list[tuple[int, Any, str | None]] = [
    (20484, "fsaverage5", "left"),
    (10242, "fsaverage5", "both"),
    (10242, None, "both"),
    (642, ONE_SIDE, "both"),
    (1284, ("fsaverage3", "fsaverage3"), "left"),
    (32492, None, None),
    (59412, None, None),
    (10241, "fsaverage5", "left"),
    (642, "fsaverage9", None),
    (642, 3, None),
    (642, (3, 4), None),
]


@pytest.mark.parametrize(("n", "mesh", "hemi"), MISMATCHES)
def test_columns_mesh_and_hemisphere_that_do_not_agree(n: int, mesh: Any, hemi: str | None) -> None:
    with pytest.raises(ArgumentError) as caught:
        sites_for(n, mesh, hemi)
    assert caught.value.argument in ("mesh", "hemi")


@pytest.fixture
def sphere_file(tmp_path: Path) -> Path:
    import nibabel as nib

    sites = Sites.named("fsaverage3")
    arrays = [
        nib.gifti.GiftiDataArray(
            (100 * sites.coordinates).astype(np.float32), intent="NIFTI_INTENT_POINTSET"
        ),
        nib.gifti.GiftiDataArray(
            np.asarray(sites.triangles, dtype=np.int32), intent="NIFTI_INTENT_TRIANGLE"
        ),
    ]
    path = tmp_path / "lh.sphere.surf.gii"
    nib.save(nib.gifti.GiftiImage(darrays=arrays), path)
    return path


def test_a_mesh_is_a_name_sites_a_file_or_a_pair(sphere_file: Path, X: np.ndarray) -> None:
    expected = quick().fit(X).components_
    sites = Sites.named("fsaverage3")
    for mesh in ("fsaverage3", sites, sphere_file, str(sphere_file)):
        np.testing.assert_allclose(
            quick(mesh=mesh).fit(X).components_, expected, rtol=1e-8, atol=1e-10
        )
    both_sides = np.hstack([X, X[:, ::-1]])
    joint = quick(hemi="both").fit(both_sides).components_
    for pair in (
        (sites, sites),
        [str(sphere_file), "fsaverage3"],
    ):
        np.testing.assert_allclose(
            quick(mesh=pair).fit(both_sides).components_, joint, rtol=1e-8, atol=1e-10
        )


def test_wrong_files_of_a_mesh(sphere_file: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sites_for(642, "/nowhere.gii")
    with refused("mesh"):
        sites_for(1284, sphere_file, "both")
    with refused("mesh"):
        sites_for(641, sphere_file)


# ---------------------------------------------------------------------- masks


@pytest.fixture(scope="module")
def mask() -> np.ndarray:
    """A cap left out, as the medial wall is."""
    return Sites.named("fsaverage3").coordinates[:, 0] < 0.8


@pytest.mark.parametrize("method", ["LE-PNNMF", "E-DL", "LE-PPNMF"])
def test_masked_sites_may_hold_anything_and_count_for_nothing(
    method: str, X: np.ndarray, mask: np.ndarray
) -> None:
    dirty = X.copy()
    dirty[:, ~mask] = np.nan
    dirty[:, np.flatnonzero(~mask)[0]] = -np.inf
    model = quick(method=method, mask=mask).fit(dirty)
    assert not model.components_[:, ~mask].any()
    assert not model.mean_[~mask].any()
    subset = quick(method=method, mesh=Sites.named("fsaverage3").subset(mask)).fit(X[:, mask])
    np.testing.assert_allclose(
        model.components_[:, mask], subset.components_, rtol=1e-10, atol=1e-12
    )
    assert model.error_ == pytest.approx(subset.error_, rel=1e-10)
    np.testing.assert_allclose(model.transform(dirty), subset.transform(X[:, mask]), rtol=1e-10)
    assert model.score(dirty) == pytest.approx(model.explained_, abs=1e-9)
    assert model.n_features_in_ == 642


def test_masks_of_zeros_and_ones_and_full_ones(X: np.ndarray, mask: np.ndarray) -> None:
    expected = quick(mask=mask).fit(X).components_
    for numbers in (mask.astype(int), mask.astype(float), mask.tolist()):
        np.testing.assert_array_equal(quick(mask=numbers).fit(X).components_, expected)
    model = quick(mask=np.ones(642, dtype=bool)).fit(X)
    assert model.mask_ is None
    np.testing.assert_array_equal(model.components_, quick().fit(X).components_)


WRONG_MASKS = [
    np.ones(641, dtype=bool),
    np.ones((642, 1), dtype=bool),
    True,
    np.zeros(642, dtype=bool),
    np.arange(642) == 7,
    np.full(642, 2),
    np.full(642, 0.5),
    np.full(642, np.nan),
    np.full(642, "yes"),
    np.full(642, None),
]


@pytest.mark.parametrize("mask", WRONG_MASKS, ids=range(len(WRONG_MASKS)))
def test_wrong_masks(mask: Any, X: np.ndarray) -> None:
    with refused("mask"):
        quick(mask=mask).fit(X)


def test_a_mask_that_leaves_fewer_sites_than_components(X: np.ndarray) -> None:
    model = quick(mask=np.isin(np.arange(642), [5, 300, 600])).fit(X)
    assert model.components_.shape == (4, 642)
    assert model.explained_ > 0.9
    assert np.isfinite(model.transform(X)).all()


def test_a_cohort_on_the_same_mesh_in_another_order_is_refused() -> None:
    cohort = ico.simulate_cohort(6, 2, mesh="fsaverage3")
    model = CorticalFactorization(2, n_starts=2).fit(cohort)
    order = np.random.default_rng(0).permutation(cohort.sites.n)
    sites = cohort.sites.subset(order)
    scrambled = dataclasses.replace(cohort, X=cohort.X[:, order], sites=sites, truth=None)
    with refused("mesh"):
        model.transform(scrambled)
    with refused("mesh"):
        CorticalFactorization(2, mesh=Sites.named("fsaverage3")).fit(scrambled)
