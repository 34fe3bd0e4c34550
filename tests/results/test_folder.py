from __future__ import annotations

import functools
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.hostile_fit import small_fit
from helpers.pages import Page
from helpers.sidecars import undescribed
from icofactor.assessment.atlas import Overlap
from icofactor.errors import ArgumentError, ExistsError, FileError
from icofactor.io.atomic import atomic_path, remove_abandoned
from icofactor.io.guard import hash_file
from icofactor.io.publish import LIST, Publication, list_of, reading
from icofactor.io.tables import read_table, write_json, write_table, write_tsv
from icofactor.results.description import FitDescription, read_fit
from icofactor.results.diagnostics.diagnose import winner_takes_all
from icofactor.results.folder import (
    FitFolder,
    map_columns,
    overlap_place,
    write_dataset_description,
    write_fit,
    write_names,
)
from icofactor.results.report.figures import plot_components
from icofactor.results.report.page import render_page
from icofactor.results.report.surfaces import Cortex
from icofactor.sphere.meshes import fs_lr_sites
from icofactor.sphere.names import map_file, table_file
from icofactor.sphere.sites import Sites

STEM = "space-fsaverage_den-642_desc-icofactor"
ALWAYS = {
    *(
        f"desc-icofactor_{name}.{end}"
        for name in ("dseg", "loadings", "components")
        for end in ("tsv", "json")
    ),
    *("provenance.json", "dataset_description.json"),
    *("model.zip", "diagnostics.npz", "components.png", "report.html"),
    *(
        f"tables/{name}.tsv"
        for name in ("summary", "subjects", "correlations", "similarity", "convergence")
    ),
    "tables/columns.json",
}
MORE = {"desc-icofactor_participants.tsv", "desc-icofactor_participants.json", "methods.md"}


def test_cells_of_tables(tmp_path: Path) -> None:
    """Whole numbers stay whole beside unknown ones; computed numbers have ten digits, given ones all they need."""
    columns = {
        "age": [13.0, np.nan, 35.0],
        "half": [0.5, np.nan, 2.0],
        "third": [1 / 3, 2.0, 1e-20],
    }
    rows = write_tsv(tmp_path / "a.tsv", columns).read_text().splitlines()[1:]
    assert rows == ["13\t0.5\t0.3333333333", "n/a\tn/a\t2", "35\t2\t1e-20"]
    rows = write_tsv(tmp_path / "b.tsv", columns, digits=None).read_text().splitlines()[1:]
    assert rows == ["13\t0.5\t0.3333333333333333", "n/a\tn/a\t2.0", "35\t2.0\t1e-20"]


def test_every_column_of_a_table_is_described(tmp_path: Path) -> None:
    columns = {"participant_id": ["a"], "x": [1.0]}
    with pytest.raises(ArgumentError) as raised:
        write_table(tmp_path / "a.tsv", columns, {})
    with pytest.raises(ArgumentError, match="names of columns; found x"):
        write_table(tmp_path / "a.tsv", columns, {"x": "Its size"}, {"x": 1})
    assert raised.value.argument == "about" and "nothing about x" in str(raised.value)
    assert not any(tmp_path.iterdir())
    write_table(
        tmp_path / "a.tsv", columns, {"x": {"Description": "Its size", "Units": "mm"}}, {"seed": 1}
    )
    found = json.loads((tmp_path / "a.json").read_text())
    assert found == {
        "participant_id": {"Description": "Person"},
        "x": {"Description": "Its size", "Units": "mm"},
        "seed": 1,
    }


def test_atomic_path_writes_whole_files_only(tmp_path: Path) -> None:
    target = tmp_path / "model.zarr.zip"
    with atomic_path(target) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.name.endswith("model.zarr.zip")
        temporary.write_text("one")
        assert not target.exists()
    assert target.read_text() == "one"
    with (
        pytest.raises(RuntimeError, match="half way"),
        atomic_path(target, overwrite=True) as temporary,
    ):
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
    with (
        pytest.raises(FileExistsError, match=r"a\.json exists; pass overwrite=True"),
        atomic_path(target),
    ):
        raise AssertionError("the block must not run")
    with (
        pytest.raises(FileNotFoundError, match="nowhere"),
        atomic_path(tmp_path / "nowhere" / "a.json"),
    ):
        raise AssertionError("the block must not run")
    with (
        pytest.raises(IsADirectoryError, match="is a folder"),
        atomic_path(tmp_path, overwrite=True),
    ):
        raise AssertionError("the block must not run")
    with (
        pytest.raises(FileNotFoundError, match=r"nothing was written to .*b\.json"),
        atomic_path(tmp_path / "b.json"),
    ):
        pass


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    with pytest.raises(FileExistsError, match="exists"), atomic_path(target) as temporary:
        temporary.write_text("ours")
        target.write_text("theirs")
    assert target.read_text() == "theirs"
    assert len(list(tmp_path.iterdir())) == 1


@settings(deadline=None)  # the first example imports pandas
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
    with pytest.raises(ValueError, match="without tabs, line breaks and control characters"):
        write_tsv(tmp_path / "b.tsv", {"a": ["x\ty"]})
    with pytest.raises(ValueError, match="empty"):
        write_tsv(tmp_path / "b.tsv", {})


def test_json_takes_numpy_and_has_no_nan(tmp_path: Path) -> None:
    path = write_json(
        tmp_path / "a.json", {"n": np.int64(3), "x": np.array([1.0, np.nan]), "p": Path("é")}
    )
    assert json.loads(path.read_text(encoding="utf-8")) == {"n": 3, "x": [1.0, None], "p": "é"}
    with pytest.raises(ValueError, match="cannot contain a object"):
        write_json(tmp_path / "b.json", object())


def test_dataset_description_is_a_derivative(tmp_path: Path) -> None:
    path = write_dataset_description(tmp_path, "My fit", extra={"SourceDatasets": []})
    found = json.loads(path.read_text())
    assert found["DatasetType"] == "derivative"
    assert found["Name"] == "My fit"
    assert found["GeneratedBy"][0]["Name"] == "icofactor"
    assert {"BIDSVersion", "SourceDatasets"} <= set(found)


@functools.cache
def described(hemi: str = "both") -> FitDescription:
    """A small fit with a mask, participants and a methods paragraph."""
    sites = Sites.named("fsaverage3", hemi=hemi)
    mask = np.arange(sites.n) % 3 > 0
    model, diagnostics = small_fit(sites, hemi, mask=mask, n_starts=1, n_iter=20, tol=0.0)
    ages = np.arange(len(model.loadings_)) + 20.5
    ages[1] = np.nan
    people = {"participant_id": diagnostics.subjects, "age": ages}
    methods = "# Methods\n\nWe did λ.\n"
    return FitDescription.of(
        model, diagnostics, provenance={"seed": 1}, methods=methods, participants=people
    )


def write(out: Path, *names: str, overwrite: bool = False) -> list[Path]:
    """A folder that holds these files, as a fit would leave them."""
    place = FitFolder(out, overwrite)
    with place.filled() as new:
        for name in names:
            (new / name).parent.mkdir(exist_ok=True)
            (new / name).write_text(f"new {name}")
    return place.files


@pytest.mark.slow
def test_a_fit_of_both_hemispheres(tmp_path: Path) -> None:
    fit = described()
    model, out = fit.model, tmp_path / "out"
    files = write_fit(fit, FitFolder(out, figures=False))
    kinds = ("components.shape.gii", "mask.shape.gii", "dseg.label.gii", "dseg.annot")
    maps = {f"hemi-{side}_{STEM}_{kind}" for side in "LR" for kind in kinds}
    names = {file.relative_to(out).as_posix() for file in files}
    assert names == maps | ALWAYS | MORE | {"tables/groups.tsv"}
    assert {*files, out / LIST} == {path for path in out.rglob("*") if path.is_file()}
    assert list_of(out) == {file.relative_to(out).as_posix(): hash_file(file) for file in files}
    assert not undescribed(out)
    right = nib.load(out / f"hemi-R_{STEM}_components.shape.gii")
    assert right.meta["AnatomicalStructurePrimary"] == "CortexRight"
    assert right.darrays[2].meta["Name"] == "component03"
    np.testing.assert_array_equal(
        right.darrays[2].data, model.components_[2, 642:].astype(np.float32)
    )
    table = (out / "desc-icofactor_loadings.tsv").read_text().splitlines()
    assert table[0] == "participant_id\tcomponent01\tcomponent02\tcomponent03"
    assert [float(x) for x in table[2].split("\t")[1:]] == pytest.approx(
        model.loadings_[1].tolist(), rel=1e-9
    )
    people = (out / "desc-icofactor_participants.tsv").read_text().splitlines()
    assert people[0] == "participant_id\tage"
    assert [line.split("\t")[1] for line in people[1:3]] == ["20.5", "n/a"]
    assert json.loads((out / "provenance.json").read_text()) == {"seed": 1}
    assert (out / "methods.md").read_text(encoding="utf-8") == "# Methods\n\nWe did λ.\n"


@pytest.mark.parametrize("name", [f"hemi-R_{STEM}_dseg.annot", f"hemi-L_{STEM}_mask.shape.gii"])
def test_the_place_is_refused_before_there_is_a_fit(tmp_path: Path, name: str) -> None:
    write(tmp_path / "out", name)
    with pytest.raises(FileExistsError, match="exists; pass overwrite=True"):
        FitFolder(tmp_path / "out")
    FitFolder(tmp_path / "out", overwrite=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(ExistsError) as raised:
        FitFolder(tmp_path)
    assert raised.value.path == str(tmp_path / name)
    place = FitFolder(tmp_path, overwrite=True)
    with pytest.raises(
        ExistsError, match="is not a result that this command may replace"
    ):  # of the same mesh: before the fit
        place.check_maps("fsaverage3", "both")
    place.check_maps("fsaverage4", "both")


def test_a_folder_of_figures_is_refused_before_there_is_a_fit(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    with pytest.raises(FileExistsError, match="figures exists; pass overwrite=True"):
        FitFolder(tmp_path)
    FitFolder(tmp_path, figures=False)
    FitFolder(tmp_path, overwrite=True)
    (tmp_path / "figures" / "maps.svg").write_text("mine")
    with pytest.raises(ExistsError) as raised:
        FitFolder(tmp_path, overwrite=True)
    assert raised.value.path == str(tmp_path / "figures" / "maps.svg")


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["dataset_description.json", "methods.md", "report.html"])
def test_what_icofactor_did_not_write_is_never_replaced(
    tmp_path: Path, name: str, overwrite: bool
) -> None:
    """Nor what it wrote and the user changed: before any work, and without advice that would destroy it."""
    (tmp_path / name).write_text("mine")
    with pytest.raises(ExistsError) as raised:
        FitFolder(tmp_path, overwrite)
    assert (raised.value.path, raised.value.problem[:26]) == (
        str(tmp_path / name),
        "exists and is not a result",
    )
    out = tmp_path / "out"
    write(out, *({name} - {"dataset_description.json"}))
    with open(out / name, "a") as stream:
        stream.write(" and mine")
    with pytest.raises(ExistsError) as raised:
        FitFolder(out, overwrite)
    assert (raised.value.path, raised.value.problem[:17]) == (str(out / name), "was changed after")
    assert "overwrite" not in str(raised.value)
    assert (out / name).read_text().endswith(" and mine")


def test_a_dataset_keeps_its_tables(tmp_path: Path) -> None:
    (tmp_path / "participants.tsv").write_text("participant_id\texclude\n")
    write_fit(described("left"), FitFolder(tmp_path, figures=False))
    assert (tmp_path / "participants.tsv").read_text() == "participant_id\texclude\n"
    assert "desc-icofactor_participants.tsv" in list_of(tmp_path)


def test_an_input_is_never_replaced(tmp_path: Path) -> None:
    write(tmp_path, "methods.md", "people.tsv")
    with pytest.raises(ExistsError, match=r"people\.tsv is an input of this command"):
        FitFolder(tmp_path, overwrite=True, inputs=[tmp_path / "people.tsv"])


@pytest.mark.parametrize(
    ("out", "allowed"),
    [
        *(
            (".", False),
            ("sub-01", False),
            ("sub-01/surf/out", False),
            ("sub-01/out", False),
            ("bert/out", False),
        ),
        *(
            ("sub-new", False),
            ("theirs", False),
            ("store/out", True),
            ("../out", True),
            ("ours", True),
            ("empty", True),
        ),
        *(("results", True), ("derivatives/icofactor", True), ("derivatives/icofactor/two", True)),
    ],
)
def test_results_stay_out_of_the_input(tmp_path: Path, out: str, allowed: bool) -> None:
    place = tmp_path / "subjects"
    for name in ("sub-01/surf", "bert/surf", "derivatives/fmriprep", "empty", "theirs"):
        (place / name).mkdir(parents=True)
    (place / "theirs" / "note.txt").write_text("mine")
    write(place / "ours", "a.txt")
    if allowed:
        FitFolder(place / out, overwrite=True, inputs=[place])
        return
    with pytest.raises(ArgumentError) as raised:
        FitFolder(place / out, overwrite=True, inputs=[place])
    assert raised.value.argument == "out"
    assert str(place / "derivatives" / "icofactor") in raised.value.expected


def test_nothing_is_written_into_a_store_that_is_read(tmp_path: Path) -> None:
    (tmp_path / "zarr.json").write_text("{}")
    with pytest.raises(ArgumentError):
        FitFolder(tmp_path / "out", inputs=[tmp_path])


def test_what_appears_while_the_folder_is_filled_is_kept(tmp_path: Path) -> None:
    place = FitFolder(tmp_path)
    with pytest.raises(FileExistsError, match=r"a\.txt exists"), place.filled() as new:
        (new / "a.txt").write_text("ours")
        (tmp_path / "a.txt").write_text("theirs")
    assert contents(tmp_path) == {"a.txt": b"theirs"}
    assert place.files == []


@pytest.mark.skipif(
    os.name == "nt", reason="open files cannot be moved there, so that their writers hold no lock"
)
def test_files_that_killed_writers_left_are_removed_and_no_others(tmp_path: Path) -> None:
    dead = [".tmp-02ecdbe8-model.zip", ".tmp-02ecdbe8-selection.tsv", ".tmp-0badcafe-selection.tsv"]
    others = [".tmp-02ecdbe8-notes.txt", ".tmp-model.zip", ".tmp-02ecdbe8x-model.zip"]
    write(tmp_path, "model.zip")
    for name in (*dead, *others):
        (tmp_path / name).write_text("half")
    (tmp_path / ".tmp-00000000-model.zip").symlink_to(tmp_path / "model.zip")
    for name in (".tmp-00000001/new", ".tmp-00000002/mine", ".tmp-mine/new"):
        (tmp_path / name).mkdir(parents=True)
    with atomic_path(tmp_path / "model.zip", overwrite=True) as living:
        with Publication(tmp_path).filled() as new:
            (new / "selection.tsv").write_text("of the data")
        assert living.exists()
        living.write_text("model")
    left = {path.name for path in tmp_path.glob(".tmp-*")}
    assert left == {*others, ".tmp-00000000-model.zip", ".tmp-00000002", ".tmp-mine"}
    assert (tmp_path / "model.zip").read_text() == "model"


@pytest.mark.skipif(
    os.name == "nt", reason="open files cannot be moved there, so that their writers hold no lock"
)
def test_a_writer_whose_file_was_swept_before_it_was_locked_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    plain, swept = fcntl.flock, list[str]()

    def late(number: int, how: int) -> None:
        if how == fcntl.LOCK_SH and not swept:
            swept.append("once")
            remove_abandoned(tmp_path, {"a.txt"})
            assert not list(tmp_path.iterdir())
        plain(number, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with atomic_path(tmp_path / "a.txt") as temporary:
        temporary.write_text("")
    assert swept and [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_fit_takes_along_what_was_written_about_the_earlier_one(tmp_path: Path) -> None:
    def add(*names: str, **more: object) -> None:
        with Publication(tmp_path, **more).filled() as new:
            for name in names:
                (new / name).write_text("about")

    add("selection.json")
    write(tmp_path, "model.zip")  # a selection before the fit is not about it
    add("stability.tsv", "atlas_overlap.tsv", "components.tsv")
    (tmp_path / "mine.txt").write_text("mine")
    place = FitFolder(tmp_path, overwrite=True)
    with place.filled() as new:
        (new / "components.tsv").write_text("new")
    gone = {"selection.json", "stability.tsv", "atlas_overlap.tsv", "model.zip"}
    assert {file.name for file in place.removed} == gone
    assert set(contents(tmp_path)) == {
        "mine.txt",
        "components.tsv",
        "dataset_description.json",
        LIST,
    }


def test_what_is_about_a_fit_does_not_go_beside_another(tmp_path: Path) -> None:
    write(tmp_path, "model.zip")
    late = Publication(tmp_path, names=["stability.tsv"], steady=["model.zip"])
    same = Publication(tmp_path, names=["selection.tsv"])
    with FitFolder(tmp_path, overwrite=True).filled() as new:
        (new / "model.zip").write_text("another")
    before = contents(tmp_path)
    with pytest.raises(FileError, match="was replaced by another run"), late.filled() as new:
        (new / "stability.tsv").write_text("of the earlier fit")
    assert contents(tmp_path) == before
    with same.filled() as new:
        (new / "selection.tsv").write_text("of the data")
    assert set(contents(tmp_path)) == {*before, "selection.tsv"}


def test_a_failed_fit_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot contain a object"):
        write_fit(replace(described(), provenance={"x": object()}), FitFolder(tmp_path / "out"))
    assert not any(tmp_path.iterdir())


def contents(folder: Path) -> dict[str, bytes]:
    """Every file under a folder, hidden ones too."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_overwriting_removes_the_earlier_fit_and_nothing_else(tmp_path: Path) -> None:
    before = write(tmp_path, "note.txt", "hemi-R.gii", "hemi-L.gii")
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "hemi-R_space-other_desc-icofactor_components.shape.gii").write_text("mine too")
    after = write(tmp_path, "hemi-L.gii", overwrite=True)
    assert set(after) < set(before)
    assert set(contents(tmp_path)) == {file.name for file in after} | {
        LIST,
        "mine.txt",
        "hemi-R_space-other_desc-icofactor_components.shape.gii",
    }
    assert {file.name for file in tmp_path.iterdir()} == set(contents(tmp_path))


@pytest.mark.parametrize(
    "files",
    [
        '{"../mine.txt": "HASH"}',
        '{"sub/mine.txt": "HASH"}',
        '{".hidden": "HASH"}',
        '{"/etc/hostname": "HASH"}',
        '{"a\\u0000": "HASH"}',
        '{"mine.txt": 3}',
        '["mine.txt"]',
        "3",
        "{broken",
        "\udcff",
    ],
)
def test_a_list_from_elsewhere_removes_nothing(tmp_path: Path, files: str) -> None:
    out = tmp_path / "out"
    (out / "sub").mkdir(parents=True)
    kept = [tmp_path / "mine.txt", out / "mine.txt", out / "sub" / "mine.txt", out / ".hidden"]
    for file in kept:
        file.write_text("mine")
    files = files.replace("HASH", hash_file(kept[0]))
    record = f'{{"format": "files that icofactor wrote into this folder", "files": {files}}}'
    (out / LIST).write_text(record, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(FileError) as raised:
        write(out, "a.txt", overwrite=True)
    assert raised.value.path == str(out / LIST)
    assert [file.read_text() for file in kept] == ["mine"] * 4


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("existing", [True, False])
def test_trouble_while_filling_leaves_all_as_it_was(
    tmp_path: Path, problem: BaseException, existing: bool
) -> None:
    out = tmp_path / "deep" / "out"
    if existing:
        write(out, "a.txt", "b.txt")
    before = contents(tmp_path)
    with pytest.raises(type(problem)), FitFolder(out, overwrite=True).filled() as new:
        (new / "a.txt").write_text("half")
        raise problem
    assert contents(tmp_path) == before
    assert (tmp_path / "deep").exists() == existing


EARLIER, LATER = tuple(f"{i}.txt" for i in range(4)), ("0.txt", "1.txt", "figures/maps.png")
N_MOVES = len(EARLIER) + len(LATER) + 4
"""With the description and the list, which leave and come too."""


@contextmanager
def stopped(
    monkeypatch: pytest.MonkeyPatch, number: int, how: Callable[[], object]
) -> Iterator[list[Path]]:
    """`how` is called after one of the moves between the stage and the folder."""
    moves, move = [], os.replace

    def counted(a: Path, b: Path) -> None:
        move(a, b)
        if Path(a).name == Path(b).name and ".tmp-" in f"{a}{b}":
            moves.append(b)
            if len(moves) == number + 1:
                how()

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", counted)
        yield moves


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("number", range(N_MOVES + 1))
def test_an_interrupted_move_is_undone(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes after one of the moves, or never."""
    write(tmp_path, *EARLIER)
    before = contents(tmp_path)
    with stopped(monkeypatch, number, interrupt) as moves:
        if number < N_MOVES:
            with pytest.raises(KeyboardInterrupt):
                write(tmp_path, *LATER, overwrite=True)
            assert contents(tmp_path) == before
            assert not (tmp_path / "figures").exists()
        else:
            write(tmp_path, *LATER, overwrite=True)
            assert len(moves) == N_MOVES
            assert set(contents(tmp_path)) == {*LATER, "dataset_description.json", LIST}
    assert not list(tmp_path.glob(".tmp-*"))


def write_and_die(out: Path, number: int, overwrite: bool) -> None:
    """In a process of its own: killed after one of the moves."""
    with stopped(pytest.MonkeyPatch(), number, lambda: os.kill(os.getpid(), signal.SIGKILL)):
        write(out, *LATER, overwrite=overwrite)


@pytest.mark.skipif(os.name == "nt", reason="no forkserver")
@pytest.mark.parametrize("earlier", [True, False])
def test_a_kill_after_any_move_loses_nothing(tmp_path: Path, earlier: bool) -> None:
    """The next look at the folder finishes the moves and says so, whether it writes or only reads."""
    whole, start = tmp_path / "whole", EARLIER if earlier else ()
    children = multiprocessing.get_context(
        "forkserver"
    )  # this process may have threads of JAX or OpenMP
    children.set_forkserver_preload([__name__])
    write(whole, *LATER)
    for number in range((len(start) + 2 if earlier else 0) + len(LATER) + 2):
        out = tmp_path / f"out{number}"
        if earlier:
            write(out, *start)
        child = children.Process(target=write_and_die, args=(out, number, earlier))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        child.close()
        with (
            pytest.warns(UserWarning, match="killed while it moved its results into place"),
            reading(out),
        ):
            assert contents(out) == contents(whole)
        with pytest.raises(FileExistsError, match="exists; pass overwrite=True"):
            FitFolder(out)
        assert {path.name for path in out.iterdir()} == {path.name for path in whole.iterdir()}


def test_an_error_that_names_no_file_is_about_the_one_being_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as raised, Publication(tmp_path).filled() as new:
        (new / "first.tsv").write_text("a")
        os.utime(new / "first.tsv", (1, 1))
        (new / "second.tsv").write_text("b")
        raise OSError(28, "No space left on device")
    assert raised.value.filename == str(tmp_path / "second.tsv")


def test_a_file_that_came_after_a_kill_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, *EARLIER)
    refuse = lambda *given: interrupt()
    monkeypatch.setattr("icofactor.io.publish._move_back", refuse)  # as if it were killed there
    with stopped(monkeypatch, 6, interrupt), pytest.raises(KeyboardInterrupt):
        write(tmp_path, *LATER, overwrite=True)
    missing = next(name for name in LATER if not (tmp_path / name).exists())
    (tmp_path / missing).parent.mkdir(exist_ok=True)
    (tmp_path / missing).write_text("mine")
    with pytest.raises(ExistsError, match="move it away"):
        FitFolder(tmp_path)
    assert (tmp_path / missing).read_text() == "mine"
    (tmp_path / missing).unlink()
    with pytest.warns(UserWarning, match="killed"):
        FitFolder(tmp_path, overwrite=True)
    assert set(contents(tmp_path)) == {*LATER, "dataset_description.json", LIST}


def link_of(name: str) -> Callable[[Path, Path], None]:
    return lambda stage, outside: (stage / name).symlink_to(outside)


FORGED: dict[str, tuple[dict[str, str], dict[str, str], Callable[[Path, Path], object]]] = {
    "above": ({"../outside/mine.txt": "MINE"}, {}, lambda stage, outside: None),
    "from a link": ({}, {"mine.txt": "MINE"}, link_of("new")),
    "to a link": ({"m.gii": "THERE"}, {}, link_of("old")),
    "a link": (
        {},
        {"a.txt": "MINE"},
        lambda stage, outside: link_of("new/a.txt")(stage, outside / "mine.txt"),
    ),
    "into a link": (
        {},
        {"figures/a.txt": "MINE"},
        lambda stage, outside: link_of("figures")(stage.parent, outside),
    ),
    "lost": ({}, {"a.txt": "MINE"}, lambda stage, outside: None),
    "lost over an earlier one": (
        {"m.gii": "THERE"},
        {"m.gii": "MINE"},
        lambda stage, outside: None,
    ),
    "damaged": (
        {},
        {"a.txt": "MINE"},
        lambda stage, outside: (stage / "new" / "a.txt").write_text("else"),
    ),
}


@pytest.mark.skipif(os.name == "nt", reason="makes links")
@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_journal_moves_nothing(tmp_path: Path, kind: str) -> None:
    old, new, change = FORGED[kind]
    out, outside = tmp_path / "out", tmp_path / "outside"
    write(out, "m.gii")
    outside.mkdir()
    (outside / "mine.txt").write_text("mine")
    known = {"MINE": hash_file(outside / "mine.txt"), "THERE": hash_file(out / "m.gii")}
    stage = out / ".tmp-1"
    (stage / ("other" if kind == "from a link" else "new")).mkdir(parents=True)
    change(stage, outside)
    journal = {
        part: {name: known[one] for name, one in names.items()}
        for part, names in (("old", old), ("new", new))
    }
    (stage / "journal.json").write_text(json.dumps(journal))
    before = contents(tmp_path)
    with pytest.raises(FileError) as raised:
        FitFolder(out, overwrite=True)
    assert raised.value.path == str(stage / "journal.json")
    assert contents(tmp_path) == before


def test_a_forged_journal_takes_no_file_that_no_list_names(tmp_path: Path) -> None:
    write(tmp_path, "m.gii")
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / ".tmp-1").mkdir()
    journal = {"old": {"mine.txt": hash_file(tmp_path / "mine.txt")}, "new": {}}
    (tmp_path / ".tmp-1" / "journal.json").write_text(json.dumps(journal))
    with pytest.warns(UserWarning, match="killed"):
        FitFolder(tmp_path, overwrite=True)
    assert (tmp_path / "mine.txt").read_text() == "mine" and not list(tmp_path.glob(".tmp-*"))


def test_figures_come_and_go_with_the_fit(tmp_path: Path) -> None:
    names = ("m.gii", "figures/a.png", "figures/b.png")
    written = write(tmp_path, *names)
    assert {path.relative_to(tmp_path).as_posix() for path in written} >= set(names)
    (tmp_path / "figures" / "mine.png").write_text("mine")
    with Publication(tmp_path, overwrite=True).filled() as new:  # as `icofactor report` does
        (new / "figures").mkdir()
        (new / "figures" / "maps.png").write_text("drawn by icofactor report")
    with pytest.raises(FileExistsError, match="exists; pass overwrite=True"):
        write(tmp_path, *names)
    write(tmp_path, "m.gii", "figures/a.png", "figures/c.png", overwrite=True)
    found = {path.name: path.read_text() for path in (tmp_path / "figures").iterdir()}
    assert found == {"a.png": "new figures/a.png", "c.png": "new figures/c.png", "mine.png": "mine"}
    (tmp_path / "figures" / "mine.png").unlink()
    write(tmp_path, "m.gii", overwrite=True)
    assert not (tmp_path / "figures").exists()
    assert not list(tmp_path.glob(".tmp-*"))


def test_places_that_cannot_take_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Publication(tmp_path / "new" / "deep", names=["a"])
    assert not any(tmp_path.iterdir())
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "deep"):
        with pytest.raises(
            NotADirectoryError, match="file is a file, but a folder must be written there"
        ):
            Publication(place, True, names=["a"])
    for overwrite in (False, True):
        with pytest.raises(FileExistsError, match="file exists"):
            Publication(tmp_path, overwrite, names=["a", "file"])
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        Publication(tmp_path, True, names=["a"])
    (tmp_path / "figures").symlink_to("a")
    with pytest.raises(ExistsError, match="figures exists and is not"):
        Publication(tmp_path, True, names=["figures/b"])
    # the rights of root cannot be taken away, so the system's answer is put in its mouth
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    with pytest.raises(PermissionError, match="is not writable"):
        Publication(tmp_path / "new")


@pytest.mark.parametrize(
    ("n_sites", "hemi", "mesh", "expected"),
    [
        (1284, "left", "fsaverage3", "642 vertices per hemisphere"),
        (1280, "left", "fsaverage3", "642 vertices per hemisphere"),
        (7, "both", "other", "an even number of sites"),
    ],
)
def test_maps_that_a_file_per_hemisphere_cannot_hold(
    n_sites: int, hemi: str, mesh: str, expected: str
) -> None:
    with pytest.raises(ArgumentError) as raised:
        map_columns(n_sites, hemi, mesh)
    assert raised.value.argument == "cohort"
    assert raised.value.found == f"{n_sites} sites"
    assert expected in raised.value.expected


@pytest.mark.parametrize(
    ("hemi", "message"), [(None, "hemi is not known"), ("top", "hemi must be")]
)
def test_hemispheres_that_files_cannot_name(hemi: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        map_columns(642, hemi, "fsaverage3")


def test_parts_that_do_not_belong_together() -> None:
    fit, other = described(), described("left")
    with pytest.raises(ArgumentError) as raised:
        replace(fit, diagnostics=other.diagnostics)
    assert raised.value.argument == "diagnostics"
    assert "12 subjects and 3 components on 642 sites" in str(raised.value)
    with pytest.raises(ArgumentError) as raised:
        replace(fit, participants={"age": [1]})
    assert raised.value.argument == "participants['age']"
    assert raised.value.expected == "one value per subject"


def test_names_of_files_are_made_of_entities() -> None:
    assert map_file("my-mesh 2", "a.gii", "left") == "hemi-L_space-mymesh2_desc-icofactor_a.gii"
    assert map_file("civet41k", "a.gii") == "space-civet_den-41k_desc-icofactor_a.gii"
    assert (
        map_file("fsaverage5", "a.gii", desc="T1w/T2w")
        == "space-fsaverage_den-10k_desc-T1wT2w_a.gii"
    )
    assert table_file("a.tsv", "thickness") == "desc-thickness_a.tsv"


@pytest.mark.parametrize("mesh_name", ["fsLR32k", "fs_LR-32k", "sphere64984"])
def test_fs_lr_has_one_name_in_files(mesh_name: str) -> None:
    assert (
        map_file(mesh_name, "components.dscalar.nii")
        == "space-fsLR_den-32k_desc-icofactor_components.dscalar.nii"
    )


@pytest.mark.slow
def test_a_fit_on_fs_lr_is_also_cifti(tmp_path: Path) -> None:
    sites = Sites.both(fs_lr_sites("left"), fs_lr_sites("right"))
    mask = np.random.default_rng(3).random(64984) < 0.9
    fit = FitDescription.of(*small_fit(sites, "both", mask=mask, n_starts=1, n_iter=20, tol=0.0))
    files = {file.name for file in write_fit(fit, FitFolder(tmp_path, figures=False))}
    stem = "space-fsLR_den-32k_desc-icofactor"
    assert {
        f"{stem}_components.dscalar.nii",
        f"{stem}_dseg.dlabel.nii",
        f"hemi-R_{stem}_dseg.annot",
    } < files
    parcels = nib.load(tmp_path / f"{stem}_dseg.dlabel.nii")
    np.testing.assert_array_equal(parcels.get_fdata()[0], fit.diagnostics.parcellation[mask])
    table = nib.load(tmp_path / f"hemi-R_{stem}_dseg.label.gii").labeltable
    names = {label.key: (label.label, label.rgba) for label in table.labels}
    assert parcels.header.get_axis(0).label[0] == {
        key: (name, pytest.approx(rgba)) for key, (name, rgba) in names.items()
    }
    values = nib.load(tmp_path / f"{stem}_components.dscalar.nii").get_fdata(dtype=np.float32)
    np.testing.assert_array_equal(values, fit.model.components_[:, mask].astype(np.float32))


def test_an_atlas_names_components_wherever_files_have_them(tmp_path: Path) -> None:
    model, diagnostics = described().model, described().diagnostics
    write_fit(FitDescription(model, diagnostics, Cortex(())), FitFolder(tmp_path, figures=False))
    mine = tmp_path / f"hemi-R_{STEM}_dseg.annot"
    mine.write_bytes(mine.read_bytes()[:-1] + b"!")
    regions, numbers = ["left insula", "right insula", "left cuneus"], [1, 1, 2, 2, 3]
    table = {
        "component": np.array(numbers),
        "region": np.array([*regions[:2], *regions[:2], regions[2]]),
        "share": np.array([0.2, 0.25, 0.5, 0.1, 0.03]),
        **{name: np.full(5, 0.5) for name in ("area", "enrichment", "null_enrichment", "p", "q")},
    }
    found = Overlap(table, ("bilateral insula", "left insula", "left cuneus?"))
    write_names(found, overlap_place(tmp_path, tmp_path), model)  # nothing needs to be overwritten
    names = [
        "component01 bilateral insula (45.0 %)",
        "component02 left insula (50.0 %)",
        "component03",
    ]
    left = f"hemi-L_{STEM}"
    assert [
        label.label for label in nib.load(tmp_path / f"{left}_dseg.label.gii").labeltable.labels
    ] == ["???", *names]
    labels = nib.freesurfer.read_annot(tmp_path / f"{left}_dseg.annot")[2]
    assert labels[1:] == [
        b"component01_bilateral_insula_(45.0%)",
        b"component02_left_insula_(50.0%)",
        b"component03",
    ]
    maps = nib.load(tmp_path / f"{left}_components.shape.gii").darrays
    assert [one.meta["Name"] for one in maps] == names
    np.testing.assert_array_equal(maps[1].data, model.components_[1, :642].astype(np.float32))
    assert read_table(tmp_path / "desc-icofactor_dseg.tsv")[0]["name"] == names
    columns = read_table(tmp_path / "desc-icofactor_components.tsv")[0]
    assert columns["name"] == ["bilateral insula (45.0 %)", "left insula (50.0 %)", "n/a"]
    about = json.loads((tmp_path / "desc-icofactor_loadings.json").read_text())
    titles = [
        "Component 1: bilateral insula (45.0 %)",
        "Component 2: left insula (50.0 %)",
        "Component 3",
    ]
    assert [about[f"component0{j}"]["LongName"] for j in (1, 2, 3)] == titles
    assert not undescribed(tmp_path)
    assert mine.read_bytes().endswith(b"!")  # what the user changed stays
    fit = read_fit(tmp_path)
    page = Page(render_page(fit))
    assert [layer["name"] for layer in page.layers("component")] == titles == page.data["titles"]
    figure = plot_components(model, shares=diagnostics.unique, names=fit.atlas_names)
    of_maps = [text.get_text().replace("\xa0", " ") for text in figure.texts]
    assert [text.rpartition("\n")[0] for text in of_maps[1:3]] == [
        "Component 1\nbilateral insula\n(45.0 %)",
        "Component 2\nleft insula\n(50.0 %)",
    ]
    # elsewhere the fit is not touched
    write_names(found, overlap_place(tmp_path / "else", tmp_path), model)
    assert {file.name for file in (tmp_path / "else").iterdir()} == {
        "atlas_overlap.tsv",
        "atlas_overlap.json",
        LIST,
    }


@pytest.mark.slow
def test_maps_without_a_mesh_to_draw_on_are_written_without_pictures_of_them(
    tmp_path: Path,
) -> None:
    sites = Sites.from_sphere(Sites.named("fsaverage3").coordinates)
    fit = FitDescription.of(*small_fit(sites, "left", n_starts=1, n_iter=20, tol=0.0))
    names = {file.name for file in write_fit(fit, FitFolder(tmp_path))}
    assert {
        "hemi-L_space-sphere_den-642_desc-icofactor_components.shape.gii",
        "report.html",
        "loadings.svg",
    } < names
    assert not {"components.png", "maps.svg"} & names


@pytest.mark.slow
def test_the_parcels_of_a_fit_are_the_same_in_all_files(tmp_path: Path) -> None:
    fit = described()
    model = fit.model
    write_fit(fit, FitFolder(tmp_path, figures=False))
    labels = winner_takes_all(model.components_, model.loadings_, model.mask_)
    header, *rows = (
        line.split("\t") for line in (tmp_path / "desc-icofactor_dseg.tsv").read_text().splitlines()
    )
    assert header == ["index", "name", "color", "n_vertices"]
    assert [row[1] for row in rows] == ["component01", "component02", "component03"]
    assert [int(row[3]) for row in rows] == [int((labels == i).sum()) for i in (1, 2, 3)]
    for side, part in (("L", labels[:642]), ("R", labels[642:])):
        stem = tmp_path / f"hemi-{side}_{STEM}_dseg"
        np.testing.assert_array_equal(nib.load(f"{stem}.label.gii").darrays[0].data, part)
        found, table, _ = nib.freesurfer.read_annot(f"{stem}.annot")
        np.testing.assert_array_equal(found, part)
        assert ["#{:02x}{:02x}{:02x}".format(*colour[:3]) for colour in table[1:]] == [
            row[2] for row in rows
        ]
