"""What fit accepts: kinds of arrays, SurfaceImages, cohorts, meshes and masks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from icofactor import CorticalFactorization, Sites
from icofactor.estimator.inputs import check_mask, read_input
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


def sphere_image(data: dict[str, np.ndarray], order: np.ndarray | None = None) -> Any:
    """A SurfaceImage on fsaverage3's sphere, its vertices in another order if asked for."""
    from nilearn.surface import InMemoryMesh, PolyMesh, SurfaceImage

    sites = Sites.named("fsaverage3")
    assert sites.triangles is not None
    order = np.arange(sites.n) if order is None else order
    new_number = np.argsort(order)
    part = InMemoryMesh(100 * sites.coordinates[order], new_number[sites.triangles])
    mesh = PolyMesh(**dict.fromkeys(data, part))
    return SurfaceImage(mesh, {side: np.ascontiguousarray(x.T[order]) for side, x in data.items()})


# ---------------------------------------------------------------------- kinds of arrays


def _memmap(X: np.ndarray, folder: Path) -> np.ndarray:
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


def _read_only(X: np.ndarray, folder: Path) -> np.ndarray:
    copy = X.copy()
    copy.setflags(write=False)
    return copy


def _frame(X: np.ndarray, folder: Path) -> Any:
    return pytest.importorskip("pandas").DataFrame(X)


KINDS: dict[str, Any] = {
    "float16": lambda X, _: X.astype(np.float16),
    "float32": lambda X, _: X.astype(np.float32),
    "big-endian": lambda X, _: X.astype(">f8"),
    "big-endian float32": lambda X, _: X.astype(">f4"),
    "Fortran order": lambda X, _: np.asfortranarray(X),
    "every second column of a wider array": lambda X, _: np.repeat(X, 2, axis=1)[:, ::2],
    "reversed twice": lambda X, _: np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "unaligned": lambda X, _: (
        np.frombuffer(b"\0" + X.tobytes(), "u1")[1:].view(X.dtype).reshape(X.shape)
    ),
    "read-only": _read_only,
    "memmap": _memmap,
    "list of lists": lambda X, _: X.tolist(),
    "DataFrame": _frame,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_array_gives_the_same_answer(
    kind: str, X: np.ndarray, tmp_path: Path
) -> None:
    expected, given = quick().fit(X), KINDS[kind](X, tmp_path)
    found = quick().fit(given)
    np.testing.assert_array_equal(found.components_, expected.components_)
    np.testing.assert_array_equal(found.transform(given), expected.transform(X))


@pytest.mark.parametrize("kind", ["int16", "uint8", "int64", ">i4"])
def test_whole_numbers_give_the_same_answer(kind: str, X: np.ndarray) -> None:
    whole = np.round(10 * X)
    np.testing.assert_array_equal(
        quick().fit(whole.astype(kind)).components_, quick().fit(whole).components_
    )


# ---------------------------------------------------------------------- SurfaceImages and cohorts


def test_a_surface_image_of_one_hemisphere(X: np.ndarray) -> None:
    model = quick().fit(sphere_image({"right": X}))
    assert (model.hemi_, model.sites_.name) == ("right", "fsaverage3")
    np.testing.assert_allclose(model.components_, quick().fit(X).components_, rtol=1e-8, atol=1e-10)
    one = model.transform(sphere_image({"right": X[:1]}))
    np.testing.assert_allclose(one, model.loadings_[:1], rtol=1e-8)


def test_a_surface_image_in_any_vertex_order(X: np.ndarray) -> None:
    order = np.random.default_rng(0).permutation(642)
    model, expected = quick().fit(sphere_image({"left": X}, order)), quick().fit(X)
    assert model.sites_.level == 3
    assert model.explained_ == pytest.approx(expected.explained_, abs=2e-3)
    assert ico.match_components(model.components_, expected.components_[:, order]).mean > 0.99


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
    rebuilt = model.inverse_transform(model.loadings_)
    assert np.square(joined - rebuilt).sum() == pytest.approx(model.error_, rel=1e-8)
    left = quick(hemi="left").fit(image)
    np.testing.assert_allclose(left.components_, quick().fit(X).components_, rtol=1e-8, atol=1e-10)


def test_a_pial_surface_is_known_by_its_triangles() -> None:
    from nilearn.datasets import load_fsaverage
    from nilearn.surface import SurfaceImage

    cohort = ico.simulate_cohort(10, 3, hemisphere="both", random_state=0)
    halves = dict(zip(("left", "right"), np.split(cohort.X, 2, axis=1), strict=True))
    image = SurfaceImage(
        load_fsaverage("fsaverage5")["pial"], {side: x.T.copy() for side, x in halves.items()}
    )
    maps, place = read_input(image)
    assert (place.sites.name, place.sites.n, place.hemi) == ("fsaverage5", 20484, "both")
    np.testing.assert_array_equal(maps, cohort.X)
    expected = quick(n_components=3).fit(cohort)
    np.testing.assert_array_equal(
        quick(n_components=3).fit(image).components_, expected.components_
    )


def test_a_surface_image_without_the_hemisphere_asked_for(X: np.ndarray) -> None:
    with pytest.raises(ValueError, match="the SurfaceImage contains only left"):
        quick(hemi="right").fit(sphere_image({"left": X}))


def test_a_cohort_brings_sites_hemisphere_and_mask() -> None:
    given = ico.simulate_cohort(20, 3, mesh="fsaverage3", hemisphere="right", random_state=0)
    mask = np.arange(642) % 5 > 0
    values = given.X.copy()
    values[:, ~mask] = np.nan
    cohort = ico.Cohort(values, given.subjects, given.sites, mask, "right")
    model = quick(n_components=3).fit(cohort)
    assert (model.hemi_, model.n_features_in_) == ("right", 642)
    np.testing.assert_array_equal(model.mask_, mask)
    np.testing.assert_array_equal(
        model.components_, quick(n_components=3, mask=mask).fit(given.X).components_
    )
    with pytest.raises(
        ValueError, match="hemi='left', but the cohort contains the hemisphere 'right'"
    ):
        quick(hemi="left").fit(cohort)
    with pytest.raises(ValueError, match=r"mesh fsaverage4 has 2562 vertices .* X has 642 columns"):
        quick(mesh="fsaverage4").fit(cohort)
    with pytest.raises(
        ValueError, match=r"mesh is Sites.*fsaverage3.*X has 2562 columns instead of 642"
    ):
        model.transform(ico.simulate_cohort(3, 2, mesh="fsaverage4", hemisphere="right"))


# ---------------------------------------------------------------------- which mesh


@pytest.mark.parametrize("level", [3, 4, 5])
def test_the_mesh_is_inferred_from_the_number_of_columns(level: int) -> None:
    for on, n in (("vertices", 10 * 4**level + 2), ("faces", 20 * 4**level)):
        for n_columns, hemi in ((n, None), (2 * n, "both")):
            sites, found = sites_for(n_columns)
            assert (sites.name, sites.on, sites.n, found) == (
                f"fsaverage{level}",
                on,
                n_columns,
                hemi,
            )


@pytest.mark.parametrize(
    ("n", "other"), [(40962, "CIVET"), (81924, "CIVET"), (81920, "CIVET"), (163842, "fs_LR 164k")]
)
def test_sizes_that_two_meshes_share_are_asked_about(n: int, other: str) -> None:
    with pytest.raises(
        ValueError,
        match=f"X has {n} columns: that may be fsaverage. or .*{other}.* pass mesh='fsaver",
    ):
        sites_for(n)
    named = "fsaverage6" if n < 160000 else "fsaverage7"
    assert sites_for(n, named)[0].n == n


def test_sizes_of_fs_LR_say_what_is_needed() -> None:
    with pytest.raises(ValueError, match="one hemisphere of fs_LR 32k: use hemi='left' or 'right'"):
        sites_for(32492)
    for mesh in (None, "fsLR32k"):
        sites, hemi = sites_for(64984, mesh)
        assert (sites.n, hemi) == (64984, "both") and sites_for(32492, mesh, "right")[0].n == 32492
    with pytest.raises(
        ValueError,
        match="59412 columns, the size of CIFTI files without the medial wall: put the values",
    ):
        sites_for(59412)


@pytest.mark.parametrize(
    ("n", "mesh", "hemi", "says"),
    [
        (20484, "fsaverage5", "left", "both hemispheres: use hemi='both'"),
        (10242, "fsaverage5", "both", "one hemisphere: use hemi='left' or 'right'"),
        (20484, None, "left", "both hemispheres: use hemi='both'"),
        (10242, None, "both", "one hemisphere: use hemi='left' or 'right'"),
        (642, Sites.named("fsaverage3"), "both", "one hemisphere: use hemi='left' or 'right'"),
        (1284, Sites.named("fsaverage3", hemi="both"), "left", "both hemispheres: use hemi='both'"),
        (1284, ("fsaverage3", "fsaverage3"), "left", "use hemi='both'"),
    ],
)
def test_hemispheres_that_do_not_agree_say_what_to_set(
    n: int, mesh: Any, hemi: str, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        sites_for(n, mesh, hemi)


@pytest.mark.parametrize("hemi", [None, "left", "right"])
def test_a_column_too_few(hemi: str | None) -> None:
    with pytest.raises(
        ValueError, match=r"^mesh fsaverage5 has 10242 vertices .*; X has 10241 columns$"
    ):
        sites_for(10241, "fsaverage5", hemi)


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
    one = Sites.named("fsaverage3")
    for mesh in ("fsaverage3", one, sphere_file, str(sphere_file)):
        np.testing.assert_allclose(
            quick(mesh=mesh).fit(X).components_, expected, rtol=1e-8, atol=1e-10
        )
    both = np.hstack([X, X[:, ::-1]])
    joint = quick(hemi="both").fit(both).components_
    for pair in (
        (one, one),
        (sphere_file, sphere_file),
        [str(sphere_file), one],
        ("fsaverage3", "fsaverage3"),
    ):
        np.testing.assert_allclose(
            quick(mesh=pair).fit(both).components_, joint, rtol=1e-8, atol=1e-10
        )


def test_meshes_that_are_none(sphere_file: Path) -> None:
    with pytest.raises(
        ValueError, match="mesh 'fsaverage9' is not known by name; known are fsaverage"
    ):
        sites_for(642, "fsaverage9")
    with pytest.raises(
        ValueError,
        match="mesh must be a name, a Sites, a sphere file or a pair of these; found int",
    ):
        sites_for(642, 3)
    with pytest.raises(
        ValueError, match="mesh must be a pair of Sites, names or sphere files; found int"
    ):
        sites_for(642, (3, 4))
    with pytest.raises(FileNotFoundError, match=r"nowhere\.gii"):
        sites_for(642, "/nowhere.gii")
    with pytest.raises(ValueError, match="for hemi='both' give the pair"):
        sites_for(1284, sphere_file, "both")
    with pytest.raises(ValueError, match="X has 641 columns instead of 642"):
        sites_for(641, sphere_file)


def test_points_without_a_mesh(X: np.ndarray) -> None:
    points = np.random.default_rng(0).standard_normal((642, 3))
    sites = Sites.from_sphere(points / np.linalg.norm(points, axis=1, keepdims=True))
    model = quick(mesh=sites, level=1).fit(X)
    assert model.sites_ is sites
    assert 0 < model.explained_ < 1


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
    for given in (mask.astype(int), mask.astype(float), mask.tolist()):
        np.testing.assert_array_equal(quick(mask=given).fit(X).components_, expected)
    model = quick(mask=np.ones(642, dtype=bool)).fit(X)
    assert model.mask_ is None
    np.testing.assert_array_equal(model.components_, quick().fit(X).components_)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            np.ones(641, dtype=bool),
            r"mask must be an array with one entry per site: .* has 642; found shape \(641,\)",
        ),
        (np.ones((642, 1), dtype=bool), r"found shape \(642, 1\)"),
        (True, r"found shape \(\)"),
        (np.zeros(642, dtype=bool), "mask is False everywhere"),
        (np.arange(642) == 7, "mask leaves one site"),
        (np.full(642, 2), "mask must be booleans"),
        (np.full(642, 0.5), "mask must be booleans"),
        (np.full(642, np.nan), "mask must be booleans"),
        (np.full(642, "yes"), "mask must be booleans"),
        (np.full(642, None), "mask must be booleans"),
    ],
)
def test_masks_that_are_none(given: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_mask(given, Sites.named("fsaverage3"))


def test_a_mask_that_leaves_one_site_per_face(X: np.ndarray) -> None:
    first = np.unique(Sites.named("fsaverage3").face_at(2), return_index=True)[1]
    model = quick(mask=np.isin(np.arange(642), first)).fit(X)
    assert model.design_.n_columns == 320
    assert 0.4 < model.explained_ < 0.7


def test_a_mask_that_leaves_fewer_sites_than_components(X: np.ndarray) -> None:
    model = quick(mask=np.isin(np.arange(642), [5, 300, 600])).fit(X)
    assert model.components_.shape == (4, 642)
    assert model.explained_ > 0.9
    assert np.isfinite(model.transform(X)).all()


def test_a_cohort_on_the_same_mesh_in_another_order_is_refused() -> None:
    cohort = ico.simulate_cohort(6, 2, mesh="fsaverage3")
    model = CorticalFactorization(2, n_starts=2).fit(cohort)
    order = np.random.default_rng(0).permutation(cohort.sites.n)
    scrambled = dataclasses.replace(
        cohort, X=cohort.X[:, order], sites=cohort.sites.subset(order), truth=None
    )
    with pytest.raises(ValueError, match="in another order"):
        model.transform(scrambled)
    with pytest.raises(ValueError, match="in another order"):
        CorticalFactorization(2, mesh=Sites.named("fsaverage3")).fit(scrambled)
