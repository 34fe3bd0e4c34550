from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icofactor.cohort import (
    simulate_cohort,
    write_dataset_description,
    write_fit,
    write_json,
    write_maps,
    write_tsv,
)
from icofactor.files import atomic_path

RNG = np.random.default_rng(0)


def test_atomic_path_writes_whole_files_only(tmp_path: Path) -> None:
    target = tmp_path / "model.zarr.zip"
    with atomic_path(target) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.name.endswith("model.zarr.zip")
        temporary.write_text("one")
        assert not target.exists()
    assert target.read_text() == "one"
    with pytest.raises(RuntimeError, match="half way"), atomic_path(target, overwrite=True) as temporary:
        temporary.write_text("tw")
        raise RuntimeError("half way")
    assert target.read_text() == "one"
    with atomic_path(target, overwrite=True) as temporary:
        temporary.write_text("two")
    assert target.read_text() == "two"
    assert [file.name for file in tmp_path.iterdir()] == ["model.zarr.zip"]


def test_atomic_path_refuses_and_names_the_path(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    target.write_text("mine")
    with pytest.raises(FileExistsError, match=r"a\.json exists; pass overwrite=True"), atomic_path(target):
        raise AssertionError("the block must not run")
    with pytest.raises(FileNotFoundError, match="nowhere"), atomic_path(tmp_path / "nowhere" / "a.json"):
        raise AssertionError("the block must not run")
    with pytest.raises(IsADirectoryError, match="is a folder"), atomic_path(tmp_path, overwrite=True):
        raise AssertionError("the block must not run")
    with pytest.raises(FileNotFoundError, match=r"nothing was written for .*b\.json"), atomic_path(tmp_path / "b.json"):
        pass


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    with pytest.raises(FileExistsError, match="exists"), atomic_path(target) as temporary:
        temporary.write_text("ours")
        target.write_text("theirs")
    assert target.read_text() == "theirs"
    assert len(list(tmp_path.iterdir())) == 1


def test_maps_are_read_back_by_nibabel_and_nilearn(tmp_path: Path) -> None:
    from nilearn.surface import load_surf_data

    maps = RNG.random((3, 642))
    path = write_maps(tmp_path / "x.shape.gii", maps, "right", ["a", "b", "c"], {"Note": "n"})
    image = nib.load(path)
    assert [array.meta["Name"] for array in image.darrays] == ["a", "b", "c"]
    assert {array.intent for array in image.darrays} == {nib.nifti1.intent_codes["NIFTI_INTENT_SHAPE"]}
    assert {array.data.shape for array in image.darrays} == {(642,)}
    assert image.meta["AnatomicalStructurePrimary"] == "CortexRight"
    assert image.meta["Note"] == "n"
    np.testing.assert_array_equal(load_surf_data(path), maps.astype(np.float32).T)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x.nii", np.ones((1, 5)), "left"), r'must end with "\.gii"'),
        (("x.gii", np.ones((1, 5)), "both"), "one file per hemisphere; got 'both'"),
        (("x.gii", np.ones((2, 5)), "left", ["a"]), "holds 2 maps; names has 1"),
        (("x.gii", np.ones((2, 5, 1)), "left"), r"n_vertices\); got \(2, 5, 1\)"),
    ],
)
def test_maps_that_cannot_be_written(tmp_path: Path, arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write_maps(tmp_path / arguments[0], *arguments[1:])
    assert not any(tmp_path.iterdir())


@given(st.lists(st.floats(allow_infinity=False, width=32), min_size=1, max_size=20))
def test_tsv_loses_no_digit(tmp_path_factory: pytest.TempPathFactory, values: list[float]) -> None:
    path = tmp_path_factory.mktemp("t") / "a.tsv"
    write_tsv(path, {"x": np.array(values, dtype=np.float32)})
    header, *rows = path.read_text().splitlines()
    assert header == "x"
    read = np.array([np.nan if row == "n/a" else float(row) for row in rows], dtype=np.float32)
    np.testing.assert_array_equal(read, np.array(values, dtype=np.float32))


def test_tsv_refuses_what_would_break_it(tmp_path: Path) -> None:
    write_tsv(tmp_path / "a.tsv", {"id": ["a", None], "n": [1, 2]})
    assert (tmp_path / "a.tsv").read_text() == "id\tn\na\t1\nn/a\t2\n"
    with pytest.raises(ValueError, match="equally long"):
        write_tsv(tmp_path / "b.tsv", {"a": [1], "b": [1, 2]})
    with pytest.raises(ValueError, match="tabs or line breaks"):
        write_tsv(tmp_path / "b.tsv", {"a": ["x\ty"]})
    with pytest.raises(ValueError, match="empty"):
        write_tsv(tmp_path / "b.tsv", {})


def test_json_takes_numpy_and_has_no_nan(tmp_path: Path) -> None:
    path = write_json(tmp_path / "a.json", {"n": np.int64(3), "x": np.array([1.0, np.nan]), "p": Path("é")})
    assert json.loads(path.read_text(encoding="utf-8")) == {"n": 3, "x": [1.0, None], "p": "é"}
    with pytest.raises(ValueError, match="cannot hold a object"):
        write_json(tmp_path / "b.json", object())


def test_dataset_description_is_a_derivative(tmp_path: Path) -> None:
    path = write_dataset_description(tmp_path, "My fit", extra={"SourceDatasets": []})
    found = json.loads(path.read_text())
    assert found["DatasetType"] == "derivative"
    assert found["Name"] == "My fit"
    assert found["GeneratedBy"][0]["Name"] == "icofactor"
    assert {"BIDSVersion", "SourceDatasets"} <= set(found)


def fit_arguments(hemi: str = "both", n_sides: int = 2) -> dict[str, Any]:
    n = 642 * n_sides
    return {
        "components": RNG.random((3, n)),
        "loadings": RNG.random((4, 3)),
        "subjects": ["s1", "s2", "s3", "s4"],
        "hemi": hemi,
        "mesh_name": "fsaverage3",
        "mask": np.arange(n) % 3 > 0,
        "participants": {"participant_id": ["s1", "s2", "s3", "s4"], "age": [20.5, np.nan, 3, 4]},
        "provenance": {"seed": 1},
    }


def test_a_fit_of_both_hemispheres(tmp_path: Path) -> None:
    arguments = fit_arguments()
    files = write_fit(tmp_path / "out", **arguments)
    stem = "space-fsaverage_den-642_desc-icofactor"
    assert {file.name for file in files} == {
        f"hemi-L_{stem}_components.shape.gii",
        f"hemi-R_{stem}_components.shape.gii",
        f"hemi-L_{stem}_mask.shape.gii",
        f"hemi-R_{stem}_mask.shape.gii",
        "desc-icofactor_loadings.tsv",
        "participants.tsv",
        "provenance.json",
        "dataset_description.json",
    }
    assert set(files) == set((tmp_path / "out").iterdir())
    right = nib.load(tmp_path / "out" / f"hemi-R_{stem}_components.shape.gii")
    assert right.meta["AnatomicalStructurePrimary"] == "CortexRight"
    assert right.darrays[2].meta["Name"] == "component03"
    np.testing.assert_array_equal(right.darrays[2].data, arguments["components"][2, 642:].astype(np.float32))
    table = (tmp_path / "out" / "desc-icofactor_loadings.tsv").read_text().splitlines()
    assert table[0] == "participant_id\tcomponent01\tcomponent02\tcomponent03"
    assert [float(x) for x in table[2].split("\t")[1:]] == arguments["loadings"][1].tolist()
    people = (tmp_path / "out" / "participants.tsv").read_text().splitlines()
    assert people[:3] == ["participant_id\tage", "s1\t20.5", "s2\tn/a"]


def test_a_fit_is_not_overwritten_in_part(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "provenance.json").write_text("mine")
    with pytest.raises(FileExistsError, match=r"provenance\.json"):
        write_fit(out, **fit_arguments())
    assert [file.name for file in out.iterdir()] == ["provenance.json"]
    write_fit(out, **fit_arguments(), overwrite=True)
    assert json.loads((out / "provenance.json").read_text()) == {"seed": 1}


def test_a_failed_fit_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot hold a object"):
        write_fit(tmp_path / "out", **{**fit_arguments(), "provenance": {"x": object()}})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hemi": "left"}, "642 vertices per hemisphere; components has 1284 columns"),
        ({"loadings": np.ones((4, 2))}, "holds 3 components; loadings has 2 columns"),
        ({"subjects": ["a"]}, "4 rows; subjects has 1 names"),
        ({"mask": np.ones(5, dtype=bool)}, "one entry per vertex"),
        ({"participants": {"age": [1]}}, r"participants\['age'\] must hold 4 values"),
        ({"hemi": "top"}, "hemi must be"),
        ({"mesh_name": "other", "components": np.ones((3, 7)), "mask": None}, "even number of columns"),
    ],
)
def test_fits_that_do_not_agree(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write_fit(tmp_path / "out", **{**fit_arguments(), **changes})
    assert not any(tmp_path.iterdir())


def test_other_meshes_name_their_own_space(tmp_path: Path) -> None:
    arguments = {**fit_arguments("left", 1), "mesh_name": "fs_LR-32k", "mask": None, "participants": None}
    names = {file.name for file in write_fit(tmp_path, **arguments)}
    assert "hemi-L_space-fsLR32k_desc-icofactor_components.shape.gii" in names


@pytest.mark.skipif(shutil.which("wb_command") is None, reason="Connectome Workbench is not installed")
def test_workbench_reads_the_maps(tmp_path: Path) -> None:
    cohort = simulate_cohort(n_subjects=2, n_components=3)
    assert cohort.truth is not None
    path = write_maps(tmp_path / "x.shape.gii", cohort.truth.components, "left")
    answer = subprocess.run(
        ["wb_command", "-file-information", str(path)], capture_output=True, text=True, check=True
    ).stdout
    assert "CortexLeft" in answer
    assert "10242" in answer
    assert "map03" in answer
