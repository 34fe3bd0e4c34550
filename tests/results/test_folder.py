from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from icofactor.io.atomic import atomic_path
from icofactor.io.tables import write_json, write_tsv
from icofactor.results.folder import check_folder, fit_files, write_dataset_description, write_fit
from icofactor.results.parcellation import winner_takes_all

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
    with pytest.raises(ValueError, match="without tabs and line breaks"):
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
        f"hemi-L_{stem}_dseg.label.gii",
        f"hemi-R_{stem}_dseg.label.gii",
        f"hemi-L_{stem}_dseg.annot",
        f"hemi-R_{stem}_dseg.annot",
        "desc-icofactor_dseg.tsv",
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


def contents(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, hidden ones too."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("hemi", ["left", "right", "both"])
@pytest.mark.parametrize("more", [True, False])
def test_the_names_are_known_before_there_is_a_fit(tmp_path: Path, hemi: str, more: bool) -> None:
    arguments = fit_arguments(hemi, 2 if hemi == "both" else 1)
    extras = {"note.txt": lambda path: path.write_text("n")} if more else {}
    if not more:
        arguments = {**arguments, "mask": None, "participants": None}
    names = fit_files(hemi, "fsaverage3", mask=more, participants=more, methods=more, extras=list(extras))
    files = write_fit(tmp_path, **arguments, methods="# Methods\n" if more else None, extras=extras)
    assert [file.name for file in files] == names == sorted(contents(tmp_path))
    description = json.loads((tmp_path / "dataset_description.json").read_text())
    assert description["GeneratedBy"][0]["Files"] == names


def test_overwriting_removes_the_earlier_fit_and_nothing_else(tmp_path: Path) -> None:
    before = write_fit(tmp_path, **fit_arguments(), extras={"note.txt": lambda path: path.write_text("n")})
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "hemi-R_space-other_desc-icofactor_components.shape.gii").write_text("mine too")
    arguments = {**fit_arguments("left", 1), "participants": None, "mask": None}
    after = write_fit(tmp_path, **arguments, overwrite=True)
    assert set(after) < set(before)
    assert set(contents(tmp_path)) == {file.name for file in after} | {
        "mine.txt",
        "hemi-R_space-other_desc-icofactor_components.shape.gii",
    }
    assert {file.name for file in tmp_path.iterdir()} == set(contents(tmp_path))


@pytest.mark.parametrize(
    "description",
    [
        '{"GeneratedBy": [{"Name": "fmriprep", "Files": ["mine.txt"]}]}',
        '{"GeneratedBy": [{"Name": "icofactor", "Files": ["../mine.txt", "sub/mine.txt", ".hidden", 3]}]}',
        '{"GeneratedBy": [{"Name": "icofactor"}]}',
        '{"GeneratedBy": 3}',
        "[]",
        "{broken",
        "\udcff",
    ],
)
def test_only_what_icofactor_wrote_here_is_removed(tmp_path: Path, description: str) -> None:
    out = tmp_path / "out"
    (out / "sub").mkdir(parents=True)
    kept = [tmp_path / "mine.txt", out / "mine.txt", out / "sub" / "mine.txt", out / ".hidden"]
    for file in kept:
        file.write_text("mine")
    (out / "dataset_description.json").write_text(description, encoding="utf-8", errors="surrogateescape")
    write_fit(out, **fit_arguments(), overwrite=True)
    assert [file.read_text() for file in kept] == ["mine"] * 4


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("existing", [True, False])
def test_a_failing_extra_leaves_all_as_it_was(tmp_path: Path, problem: BaseException, existing: bool) -> None:
    out = tmp_path / "deep" / "out"
    if existing:
        write_fit(out, **fit_arguments())
    before = contents(tmp_path)

    def fail(path: Path) -> None:
        path.write_text("half")
        raise problem

    with pytest.raises(type(problem)):
        write_fit(out, **fit_arguments("left", 1), extras={"note.txt": fail}, overwrite=True)
    assert contents(tmp_path) == before
    assert (tmp_path / "deep").exists() == existing


@pytest.mark.parametrize("number", range(24))
def test_an_interrupted_move_is_undone(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """13 files leave and 10 come, one of them new; the interrupt comes after one of these 23 moves, or never."""
    write_fit(tmp_path, **fit_arguments())
    before = contents(tmp_path)
    moves = []
    replace = os.replace

    def interrupted(a: Path, b: Path) -> None:
        replace(a, b)
        # not the moves of single files within the stage
        if tmp_path in (Path(a).parent, Path(b).parent):
            moves.append(b)
            if len(moves) == number + 1:
                raise KeyboardInterrupt

    arguments = {**fit_arguments("left", 1), "extras": {"note.txt": lambda path: path.write_text("n")}}
    monkeypatch.setattr(os, "replace", interrupted)
    if number < 23:
        with pytest.raises(KeyboardInterrupt):
            write_fit(tmp_path, **arguments, overwrite=True)
        assert contents(tmp_path) == before
    else:
        write_fit(tmp_path, **arguments, overwrite=True)
        assert len(moves) == 23
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".tmp")]


def figures(*names: str) -> dict[str, Any]:
    return {"figures": lambda folder: [(folder / name).write_text(f"new {name}") for name in names]}


@pytest.mark.parametrize("number", [0, 3, 9, 14, 20, 99])
def test_figures_come_and_go_with_the_fit(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    one = {**fit_arguments("left", 1), "folders": figures("a.png", "b.png")}
    written = write_fit(tmp_path, **one)
    assert {path.relative_to(tmp_path).as_posix() for path in written} >= {"figures/a.png", "figures/b.png"}
    (tmp_path / "figures" / "a.png").write_text("old")
    (tmp_path / "figures" / "mine.png").write_text("mine")
    with pytest.raises(FileExistsError, match="exists; pass overwrite=True"):
        write_fit(tmp_path, **one)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    replace, moves = os.replace, []

    def interrupted(a: Path, b: Path) -> None:
        replace(a, b)
        if ".tmp" in f"{a}{b}" and Path(a).name == Path(b).name:  # between the stage and the folder
            moves.append(b)
            if len(moves) == number + 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    other = {**fit_arguments("left", 1), "folders": figures("a.png", "c.png"), "overwrite": True}
    if number < 99:
        with pytest.raises(KeyboardInterrupt):
            write_fit(tmp_path, **other)
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    else:
        write_fit(tmp_path, **other)
        found = {path.name: path.read_text() for path in (tmp_path / "figures").iterdir()}
        assert found == {"a.png": "new a.png", "c.png": "new c.png", "mine.png": "mine"}
        (tmp_path / "figures" / "mine.png").unlink()
        write_fit(tmp_path, **fit_arguments("left", 1), overwrite=True)
        assert not (tmp_path / "figures").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".tmp")]


def test_extras_have_names_of_their_own_and_are_written(tmp_path: Path) -> None:
    for name in ("provenance.json", "../x", "a/b", ".hidden", ""):
        with pytest.raises(ValueError, match="extras must be plain names"):
            write_fit(tmp_path / "out", **fit_arguments(), extras={name: lambda path: path.write_text("n")})
    with pytest.raises(FileNotFoundError, match=r"nothing was written for note\.txt"):
        write_fit(tmp_path / "out", **fit_arguments(), extras={"note.txt": lambda path: None})
    assert not any(tmp_path.iterdir())


def test_places_that_cannot_take_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_folder(tmp_path / "new" / "deep", ["a"])
    assert not any(tmp_path.iterdir())
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "deep"):
        with pytest.raises(NotADirectoryError, match="file is a file; a folder is to be written there"):
            check_folder(place, ["a"], overwrite=True)
    with pytest.raises(FileExistsError, match="file exists"):
        check_folder(tmp_path, ["a", "file"])
    check_folder(tmp_path, ["a", "file"], overwrite=True)
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        check_folder(tmp_path, ["a", "file"], overwrite=True)
    # the rights of root cannot be taken away, so the system's answer is put in its mouth
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    with pytest.raises(PermissionError, match="is not writable"):
        check_folder(tmp_path / "new", [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hemi": None}, r"hemi is not known: pass hemi='left' or 'right'"),
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
    arguments = {**fit_arguments("left", 1), "mesh_name": "my-mesh 2", "mask": None, "participants": None}
    names = {file.name for file in write_fit(tmp_path, **arguments)}
    assert "hemi-L_space-mymesh2_desc-icofactor_components.shape.gii" in names


@pytest.mark.slow
@pytest.mark.parametrize("mesh_name", ["fsLR32k", "fs_LR-32k", "sphere64984"])
def test_a_fit_on_fs_lr_is_also_cifti(tmp_path: Path, mesh_name: str) -> None:
    rng = np.random.default_rng(3)
    arguments = {
        **fit_arguments(),
        "mesh_name": mesh_name,
        "components": rng.random((3, 64984)),
        "mask": rng.random(64984) < 0.9,
    }
    files = {file.name for file in write_fit(tmp_path, **arguments)}
    stem = "space-fsLR_den-32k_desc-icofactor"
    assert f"{stem}_components.dscalar.nii" in files
    assert f"hemi-R_{stem}_dseg.annot" in files
    assert sorted(files) == fit_files("both", mesh_name, mask=True, participants=True)
    values = nib.load(tmp_path / f"{stem}_components.dscalar.nii").get_fdata(dtype=np.float32)
    np.testing.assert_array_equal(values, arguments["components"][:, arguments["mask"]].astype(np.float32))


def test_the_parcels_of_a_fit_are_the_same_in_all_files(tmp_path: Path) -> None:
    arguments = fit_arguments()
    write_fit(tmp_path, **arguments)
    labels = winner_takes_all(arguments["components"], arguments["loadings"], arguments["mask"])
    header, *rows = (line.split("\t") for line in (tmp_path / "desc-icofactor_dseg.tsv").read_text().splitlines())
    assert header == ["index", "name", "color", "n_vertices"]
    assert [row[1] for row in rows] == ["component01", "component02", "component03"]
    assert [int(row[3]) for row in rows] == [int((labels == i).sum()) for i in (1, 2, 3)]
    for side, part in (("L", labels[:642]), ("R", labels[642:])):
        stem = tmp_path / f"hemi-{side}_space-fsaverage_den-642_desc-icofactor_dseg"
        np.testing.assert_array_equal(nib.load(f"{stem}.label.gii").darrays[0].data, part)
        found, table, _ = nib.freesurfer.read_annot(f"{stem}.annot")
        np.testing.assert_array_equal(found, part)
        assert ["#{:02x}{:02x}{:02x}".format(*colour[:3]) for colour in table[1:]] == [row[2] for row in rows]


def test_the_methods_paragraph_is_written_as_it_is(tmp_path: Path) -> None:
    write_fit(tmp_path, **fit_arguments(), methods="# Methods\n\nWe did λ.\n")
    assert (tmp_path / "methods.md").read_text(encoding="utf-8") == "# Methods\n\nWe did λ.\n"
