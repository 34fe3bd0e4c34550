"""Maps, parcellations and dense scalars: read back by nibabel, nilearn and Connectome Workbench."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.workbench import wb_command
from icofactor.errors import ArgumentError
from icofactor.io.cifti import read_dlabel, write_dlabel, write_dscalar
from icofactor.io.freesurfer import write_annot
from icofactor.io.gifti import write_label_gii, write_maps
from icofactor.results.colours import distinct_colours
from icofactor.results.diagnostics.diagnose import winner_takes_all

RNG = np.random.default_rng(0)
N = 32492


def test_maps_are_read_back_by_nibabel_and_nilearn(tmp_path: Path) -> None:
    from nilearn.surface import load_surf_data

    maps = RNG.random((3, 642))
    path = write_maps(tmp_path / "x.shape.gii", maps, "right", ["a", "b", "c"], {"Note": "n"})
    image = nib.load(path)
    assert [array.meta["Name"] for array in image.darrays] == ["a", "b", "c"]
    assert {array.intent for array in image.darrays} == {
        nib.nifti1.intent_codes["NIFTI_INTENT_SHAPE"]
    }
    assert {array.data.shape for array in image.darrays} == {(642,)}
    assert image.meta["AnatomicalStructurePrimary"] == "CortexRight"
    assert image.meta["Note"] == "n"
    np.testing.assert_array_equal(load_surf_data(path), maps.astype(np.float32).T)


@pytest.mark.parametrize(
    ("argument", "write", "arguments"),
    [
        ("path", write_maps, ("x.nii", np.ones((1, 5)), "left")),
        ("hemi", write_maps, ("x.gii", np.ones((1, 5)), "both")),
        ("names", write_maps, ("x.gii", np.ones((2, 5)), "left", ["a"])),
        ("maps", write_maps, ("x.gii", np.ones((2, 5, 1)), "left")),
        ("path", write_dscalar, ("x.nii", np.ones(N), "left")),
        ("maps", write_dscalar, ("x.dscalar.nii", np.ones(N), "both")),
        ("names", write_dscalar, ("x.dscalar.nii", np.ones(N), "left", ["a", "b"])),
        ("mask", write_dscalar, ("x.dscalar.nii", np.ones(N), "left", ["a"], np.ones(N))),
        ("mask", write_dscalar, ("x.dscalar.nii", np.ones(N), "left", ["a"], np.zeros(N) > 0)),
    ],
)
def test_maps_that_cannot_be_written(
    tmp_path: Path, argument: str, write: Callable[..., Path], arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(ArgumentError) as error:
        write(tmp_path / arguments[0], *arguments[1:])
    assert error.value.argument == argument
    assert not any(tmp_path.iterdir())


# ---------------------------------------------------------------------- parcellations


def test_the_winner_is_the_component_that_carries_most() -> None:
    components = np.array([[1.0, 0, -3, 0, 2], [2.0, 0, 1, 1, 2], [0, 0, 0, 0.5, 1]])
    np.testing.assert_array_equal(winner_takes_all(components), [2, 0, 1, 2, 1])
    mask = np.array([True, True, False, True, True])
    np.testing.assert_array_equal(winner_takes_all(components, mask=mask), [2, 0, 0, 2, 1])
    # loadings three times as large make up for a map a third as high
    loadings = np.array([[1.0, 1, 3], [-1, 1, 3]])
    np.testing.assert_array_equal(winner_takes_all(components, loadings), [2, 0, 1, 3, 3])


@given(st.integers(1, 200))
def test_colours_differ(n: int) -> None:
    colours = distinct_colours(n)
    assert colours.shape == (n, 3)
    assert len(np.unique(colours, axis=0)) == n
    assert [25, 5, 25] not in colours.tolist()  # FreeSurfer's unknown
    np.testing.assert_array_equal(distinct_colours(n + 1)[:n], colours)
    assert np.ptp(colours.astype(int), axis=1).min() > 40, (
        "a grey parcel looks like cortex without one"
    )


@pytest.fixture
def parcels() -> dict[str, Any]:
    labels = RNG.integers(0, 4, 642)
    labels[:3] = [0, 1, 3]
    return {"labels": labels, "names": ["a", "b", "c"], "colours": distinct_colours(3)}


def test_labels_are_read_back_by_nibabel_and_nilearn(
    tmp_path: Path, parcels: dict[str, Any]
) -> None:
    from nilearn.surface import load_surf_data

    path = write_label_gii(
        tmp_path / "x.label.gii", parcels["labels"], "right", parcels["names"], parcels["colours"]
    )
    image = nib.load(path)
    assert image.meta["AnatomicalStructurePrimary"] == "CortexRight"
    assert image.darrays[0].intent == nib.nifti1.intent_codes["NIFTI_INTENT_LABEL"]
    assert image.labeltable.get_labels_as_dict() == {0: "???", 1: "a", 2: "b", 3: "c"}
    np.testing.assert_allclose(
        image.labeltable.labels[2].rgba, [*parcels["colours"][1] / 255, 1], atol=1e-6
    )
    np.testing.assert_array_equal(image.darrays[0].data, parcels["labels"])
    np.testing.assert_array_equal(load_surf_data(path), parcels["labels"])


def test_annotations_are_read_back_by_nibabel_and_nilearn(
    tmp_path: Path, parcels: dict[str, Any]
) -> None:
    from nilearn.surface import load_surf_data

    path = write_annot(tmp_path / "lh.x.annot", **parcels)
    labels, table, names = nib.freesurfer.read_annot(path)
    np.testing.assert_array_equal(labels, parcels["labels"])
    assert [name.decode() for name in names] == ["unknown", "a", "b", "c"]
    np.testing.assert_array_equal(table[1:, :3], parcels["colours"])
    np.testing.assert_array_equal(load_surf_data(path), parcels["labels"])


@pytest.mark.parametrize(
    ("argument", "change"),
    [
        ("labels", {"labels": np.array([0, 4])}),
        ("labels", {"labels": np.array([-1, 0])}),
        ("labels", {"labels": np.array([0.5])}),
        ("colours", {"names": ["a"]}),
        ("colours", {"colours": np.zeros((3, 3))}),
        ("path", {"path": "x.gii"}),
    ],
)
def test_parcels_that_cannot_be_written(
    tmp_path: Path, parcels: dict[str, Any], argument: str, change: dict[str, Any]
) -> None:
    with pytest.raises(ArgumentError) as error:
        write_annot(**{"path": tmp_path / "x.annot", **parcels, **change})
    assert error.value.argument == argument
    assert not any(tmp_path.iterdir())


# ---------------------------------------------------------------------- CIFTI


@pytest.mark.slow
@pytest.mark.parametrize("hemi", ["left", "right", "both"])
def test_dense_scalars_are_read_back(tmp_path: Path, hemi: str) -> None:
    sides = ["left", "right"] if hemi == "both" else [hemi]
    maps, mask = RNG.random((2, N * len(sides))), RNG.random(N * len(sides)) < 0.9
    path = write_dscalar(tmp_path / "x.dscalar.nii", maps, hemi, ["a", "b"], mask)
    image = nib.load(path)
    assert isinstance(image, nib.Cifti2Image)
    assert image.get_data_dtype() == np.float32
    scalars, models = (image.header.get_axis(i) for i in (0, 1))
    assert list(scalars.name) == ["a", "b"]
    values, found = image.get_fdata(dtype=np.float32), np.zeros(maps.shape, dtype=np.float32)
    for name, columns, model in models.iter_structures():
        side = {"CIFTI_STRUCTURE_CORTEX_LEFT": "left", "CIFTI_STRUCTURE_CORTEX_RIGHT": "right"}[
            name
        ]
        assert model.nvertices[name] == N
        found[:, sides.index(side) * N + model.vertex] = values[:, columns]
    np.testing.assert_array_equal(found, np.where(mask, maps, 0).astype(np.float32))


@pytest.mark.slow
def test_dense_scalars_without_a_mask_or_a_hemisphere(tmp_path: Path) -> None:
    whole = nib.load(write_dscalar(tmp_path / "a.dscalar.nii", np.ones(2 * N), "both"))
    assert whole.shape == (1, 2 * N)
    assert list(whole.header.get_axis(0).name) == ["map01"]
    mask = np.repeat([True, False], N)
    half = nib.load(write_dscalar(tmp_path / "b.dscalar.nii", np.ones(2 * N), "both", mask=mask))
    assert [name for name, _, _ in half.header.get_axis(1).iter_structures()] == [
        "CIFTI_STRUCTURE_CORTEX_LEFT"
    ]


@pytest.mark.parametrize("hemi", ["left", "both"])
def test_dense_labels_are_read_back_and_open_in_workbench(tmp_path: Path, hemi: str) -> None:
    n = N if hemi == "left" else 2 * N
    labels, mask = RNG.integers(0, 3, n), RNG.random(n) < 0.9
    names, colours = (
        ["component01 left insula (45.0 %)", "component02"],
        np.array([[230, 159, 0], [86, 180, 233]]),
    )
    path = write_dlabel(tmp_path / "x.dlabel.nii", labels, hemi, names, colours, mask)
    found = read_dlabel(path)
    keys = np.concatenate([keys for keys, _ in found.values()])
    np.testing.assert_array_equal(keys, np.where(mask, labels, -1))
    assert found["left"][1] == {0: "???", 1: names[0], 2: names[1]}
    (table,) = nib.load(path).header.get_axis(0).label
    np.testing.assert_allclose([table[key][1] for key in (1, 2)], np.c_[colours / 255, [1, 1]])
    wb_command("-cifti-label-export-table", path, 1, tmp_path / "table.txt")
    lines = (tmp_path / "table.txt").read_text().splitlines()
    assert lines[-4:] == [names[0], "1 230 159 0 255", names[1], "2 86 180 233 255"]


# ---------------------------------------------------------------------- Connectome Workbench
