"""Files and folders that appear whole, and never replace a user's files."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.stores import contents
from icofactor.errors import ArgumentError, ExistsError, FileError
from icofactor.io import publish
from icofactor.io.atomic import atomic_path, remove_abandoned, temporary_name
from icofactor.io.guard import hash_file
from icofactor.io.publish import ARRIVING, LIST, Publication, list_of, reading, settle

EARLIER = ("0.txt", "1.txt", "2.txt", "tables/a.tsv")
LATER = ("0.txt", "1.txt", "figures/maps.png")
posix = pytest.mark.skipif(os.name == "nt", reason="needs POSIX")


def write(folder: Path, *names: str, overwrite: bool = False, text: str = "new") -> Publication:
    """Write files; with `overwrite` all earlier results leave, as with a fit."""
    publication = Publication(folder, overwrite, leaving=lambda listed: listed if overwrite else ())
    with publication.filled() as stage:
        for name in names:
            (stage / name).parent.mkdir(exist_ok=True)
            (stage / name).write_text(f"{text} {name}")
    return publication


def files_in(folder: Path) -> dict[str, bytes]:
    """Return every file but the manifest."""
    return {name: data for name, data in contents(folder).items() if name != LIST}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "_PATIENCE", 0.1)


# ---------------------------------------------------------------------- single files


def test_atomic_path_writes_whole_files_only(tmp_path: Path) -> None:
    target = tmp_path / "model.zarr.zip"
    with atomic_path(target) as temporary:
        assert temporary.parent == tmp_path
        assert temporary.name.endswith("model.zarr.zip")
        temporary.write_text("one")
        assert not target.exists()
    with pytest.raises(RuntimeError), atomic_path(target, overwrite=True) as temporary:
        temporary.write_text("tw")
        raise RuntimeError
    assert contents(tmp_path) == {"model.zarr.zip": b"one"}
    with atomic_path(target, overwrite=True) as temporary:
        temporary.write_text("two")
    assert contents(tmp_path) == {"model.zarr.zip": b"two"}


def test_atomic_path_refuses_before_the_work(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("mine")
    cases: list[tuple[Path, bool, type[OSError]]] = [
        (file, False, ExistsError),
        (tmp_path / "nowhere" / "a.json", False, FileNotFoundError),
        (tmp_path, True, IsADirectoryError),
    ]
    for path, overwrite, error in cases:
        with pytest.raises(error) as raised, atomic_path(path, overwrite):
            raise AssertionError("the block must not run")
        assert str(path) in str(raised.value)
    with pytest.raises(FileNotFoundError) as missing, atomic_path(tmp_path / "b.json"):
        pass
    assert missing.value.filename == str(tmp_path / "b.json")
    assert contents(tmp_path) == {"a.json": b"mine"}


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    with pytest.raises(ExistsError), atomic_path(tmp_path / "a.json") as temporary:
        temporary.write_text("ours")
        (tmp_path / "a.json").write_text("theirs")
    assert contents(tmp_path) == {"a.json": b"theirs"}


@posix
def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(target=int)
    child.start()
    child.join()
    dead = temporary_name().replace(f"-{os.getpid()}-", f"-{child.pid}-")
    elsewhere = f".tmp-00000000-{child.pid}-00000000-model.zip"
    remaining = {f"{temporary_name()}-a.tsv", elsewhere, ".tmp-mine", "mine.txt"}
    for name in (f"{dead}-model.zip", *remaining):
        (tmp_path / name).write_text("half")
    (tmp_path / dead).mkdir()
    (tmp_path / dead / "a.txt").write_text("half")
    (tmp_path / f"{dead}-link").symlink_to(tmp_path / "mine.txt")
    remove_abandoned(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == remaining


# ---------------------------------------------------------------------- folders


def test_a_new_folder_appears_by_one_rename(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    publication = Publication(out)
    assert not any(tmp_path.iterdir())
    with publication.filled() as stage:
        (stage / "a.txt").write_text("a")
        assert not out.exists()
    assert files_in(out) == {"a.txt": b"a"}
    assert list_of(out) == {"a.txt": hash_file(out / "a.txt")}
    assert publication.files == [out / "a.txt"]
    assert [path.name for path in out.parent.iterdir()] == ["out"]


@posix
@pytest.mark.parametrize("target", ["missing", "empty", "earlier"])
def test_results_go_where_a_link_points(tmp_path: Path, target: str) -> None:
    out = tmp_path / "out"
    (tmp_path / "link").symlink_to(out)
    if target == "earlier":
        write(out, *EARLIER)
    elif target == "empty":
        out.mkdir()
    before = out.stat().st_ino if out.exists() else None
    write(tmp_path / "link", *LATER, overwrite=True)
    # A mount point must stay the same folder.
    assert before in (None, out.stat().st_ino)
    assert (tmp_path / "link").is_symlink()
    assert set(files_in(out)) == set(LATER)


def test_overwriting_removes_earlier_results_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, *EARLIER, text="old")
    (tmp_path / "0.txt").write_text("changed")
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ExistsError):
        write(tmp_path, *LATER)
    publication = write(tmp_path, *LATER, overwrite=True)
    expected = {name: f"new {name}".encode() for name in LATER}
    assert files_in(tmp_path) == {**expected, "mine.txt": b"mine"}
    assert set(list_of(tmp_path)) == set(LATER)
    assert {path.relative_to(tmp_path).as_posix() for path in publication.removed} == (
        set(EARLIER) - set(LATER)
    )
    assert not (tmp_path / "tables").exists()


def test_results_are_added_to_earlier_ones(tmp_path: Path) -> None:
    write(tmp_path, "a.txt")
    write(tmp_path, "b.txt")
    assert set(list_of(tmp_path)) == {"a.txt", "b.txt"}
    (tmp_path / "a.txt").unlink()
    write(tmp_path, "a.txt")
    assert set(contents(tmp_path)) == {"a.txt", "b.txt", LIST}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["a.txt", "figures/a.png"])
def test_a_user_s_file_is_never_replaced(tmp_path: Path, name: str, overwrite: bool) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(ExistsError) as before:
        Publication(tmp_path, overwrite, names=[name])
    with pytest.raises(ExistsError) as after:
        write(tmp_path, name, overwrite=overwrite)
    assert before.value.path == after.value.path == str(tmp_path / name)
    assert contents(tmp_path) == {name: b"mine"}


@pytest.mark.parametrize("existing", [False, True])
def test_what_appears_while_results_are_written_is_kept(tmp_path: Path, existing: bool) -> None:
    out = tmp_path / "out"
    if existing:
        out.mkdir()
    with pytest.raises(ExistsError), Publication(out).filled() as stage:
        (stage / "a.txt").write_text("ours")
        out.mkdir(exist_ok=True)
        (out / "a.txt").write_text("theirs")
    assert contents(tmp_path) == {"out/a.txt": b"theirs"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_input_is_never_replaced(tmp_path: Path) -> None:
    write(tmp_path, "people.tsv")
    with pytest.raises(ExistsError) as raised:
        Publication(tmp_path, True, names=["people.tsv"], inputs=[tmp_path / "people.tsv"])
    assert raised.value.path == str(tmp_path / "people.tsv")


def test_results_about_a_fit_do_not_go_beside_another(tmp_path: Path) -> None:
    write(tmp_path, "model.zip", text="one")
    late = Publication(tmp_path, names=["stability.tsv"], steady=["model.zip"])
    write(tmp_path, "model.zip", overwrite=True, text="another")
    before = contents(tmp_path)
    with pytest.raises(FileError) as raised, late.filled() as stage:
        (stage / "stability.tsv").write_text("of the first")
    assert raised.value.path == str(tmp_path / "model.zip")
    assert contents(tmp_path) == before


def test_a_folder_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "model.zip", text="one")
    with reading(tmp_path):
        assert (tmp_path / "model.zip").exists()
    with pytest.raises(FileError) as raised, reading(tmp_path):
        write(tmp_path, "model.zip", overwrite=True, text="another")
    assert raised.value.path == str(tmp_path)


@pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("existing", [True, False])
def test_trouble_while_writing_leaves_all_as_it_was(
    tmp_path: Path, problem: BaseException, existing: bool
) -> None:
    out = tmp_path / "deep" / "out"
    if existing:
        write(out, *EARLIER)
    before = contents(tmp_path)
    publication = Publication(out, overwrite=True)
    with pytest.raises(type(problem)) as raised, publication.filled() as stage:
        (stage / "first.txt").write_text("a")
        os.utime(stage / "first.txt", (1, 1))
        (stage / "0.txt").write_text("half")
        raise problem
    if isinstance(raised.value, OSError):
        assert raised.value.filename == str(out)
    assert contents(tmp_path) == before
    assert (tmp_path / "deep").exists() == existing


def test_folders_that_cannot_take_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "deep"):
        with pytest.raises(PermissionError):
            Publication(path, True)
    (tmp_path / "a").mkdir()
    with pytest.raises(ExistsError):
        Publication(tmp_path, True, names=["a"])
    # Root may write everywhere, so the answer of the system is replaced.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError):
        Publication(tmp_path / "new")


OUTSIDE = ["store/out", "../out", "ours", "empty", "results", "derivatives/icofactor"]
INSIDE = [".", "sub-01", "sub-01/surf/out", "sub-01/out", "bert/out", "sub-new", "theirs"]


@pytest.mark.parametrize("out", OUTSIDE + INSIDE)
def test_results_stay_out_of_the_input(tmp_path: Path, out: str) -> None:
    source = tmp_path / "subjects"
    for name in ("sub-01/surf", "bert/surf", "derivatives/fmriprep", "empty", "theirs"):
        (source / name).mkdir(parents=True)
    (source / "theirs" / "note.txt").write_text("mine")
    write(source / "ours", "a.txt")
    if out in OUTSIDE:
        Publication(source / out, inputs=[source])
        return
    with pytest.raises(ArgumentError) as raised:
        Publication(source / out, inputs=[source])
    assert raised.value.argument == "out"


# ---------------------------------------------------------------------- manifests from elsewhere

FORGED = [
    '{"../mine.txt": "HASH"}',
    '{"sub/mine.txt": "HASH"}',
    '{".hidden": "HASH"}',
    '{"/etc/hostname": "HASH"}',
    '{"a\\u0000": "HASH"}',
    '{"": "HASH"}',
    '{"mine.txt": 3}',
    '["mine.txt"]',
    "3",
    "{broken",
    "\udcff",
]


@pytest.mark.parametrize("arriving", [False, True])
@pytest.mark.parametrize("files", FORGED)
def test_a_forged_manifest_removes_nothing(tmp_path: Path, files: str, arriving: bool) -> None:
    out = tmp_path / "out"
    for name in ("mine.txt", "out/mine.txt", "out/sub/mine.txt", "out/.hidden"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    place = out / ARRIVING if arriving else out
    place.mkdir(exist_ok=True)
    record = f'{{"format": "files that icofactor wrote into this folder", "files": {files}}}'
    (place / LIST).write_text(record, encoding="utf-8", errors="surrogateescape")
    before = contents(tmp_path)
    with pytest.raises(FileError) as raised:
        write(out, "a.txt", overwrite=True)
    assert raised.value.path == str(place / LIST)
    assert contents(tmp_path) == before


@posix
@pytest.mark.parametrize("arriving", [False, True])
def test_links_to_folders_are_not_followed(tmp_path: Path, arriving: bool) -> None:
    """A manifest may name figures; where their folder is a link, they are someone else's."""
    out, pictures = tmp_path / "out", tmp_path / "pictures"
    write(out, "a.txt", "figures/holiday.png")
    (out / "figures" / "holiday.png").unlink()
    (out / "figures").rmdir()
    pictures.mkdir()
    (pictures / "holiday.png").write_text("mine")
    (out / "figures").symlink_to(pictures)
    if arriving:
        (out / ARRIVING).mkdir()
        record = json.loads((out / LIST).read_text())
        (out / ARRIVING / LIST).write_text(json.dumps({**record, "files": {}}))
    with pytest.raises(ExistsError) as raised:
        write(out, "b.txt", overwrite=True)
    assert raised.value.path == str(out / "figures")
    assert contents(pictures) == {"holiday.png": b"mine"}


@posix
def test_an_arriving_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "out", "a.txt")
    (tmp_path / "out" / ARRIVING).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileError) as raised:
        Publication(tmp_path / "out")
    assert raised.value.path == str(tmp_path / "out" / ARRIVING)


# ---------------------------------------------------------------------- kills


def write_and_die(out: Path, number: int, overwrite: bool) -> None:
    """Write results in a process of its own, killed before one of the changes to the disk."""
    changes = 0

    def dying(change: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **more: Any) -> Any:
            nonlocal changes
            changes += 1
            if changes == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*args, **more)

        return count

    for name in ("rename", "replace", "unlink", "mkdir", "rmdir"):
        setattr(os, name, dying(getattr(os, name)))
    write(out, *LATER, overwrite=overwrite)


@posix
@pytest.mark.slow
@pytest.mark.parametrize("start", ["missing", "empty", "earlier"])
def test_a_kill_at_any_moment_loses_nothing(tmp_path: Path, start: str) -> None:
    """The next look shows either the earlier or the new results; the next run leaves no traces."""
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload([__name__])
    whole = write(tmp_path / "whole", *LATER).path
    n_whole = {"before": 0, "after": 0}
    for number in range(1, 60):
        out = tmp_path / f"run{number}" / "out"
        out.parent.mkdir()
        if start == "earlier":
            write(out, *EARLIER, text="old")
        elif start == "empty":
            out.mkdir()
        before = files_in(out)
        child = processes.Process(target=write_and_die, args=(out, number, start == "earlier"))
        child.start()
        child.join()
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        if (out / ARRIVING / LIST).exists():
            with pytest.warns(UserWarning):
                settle(out)
        settle(out)
        results = {name: data for name, data in files_in(out).items() if ".tmp-" not in name}
        assert results in (before, files_in(whole)), number
        n_whole["before" if results == before else "after"] += 1
        write(out, *LATER, overwrite=True)
        assert contents(out.parent) == {
            f"out/{name}": data for name, data in contents(whole).items()
        }
        assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert child.exitcode == 0
    # Without an earlier folder, the last change is the rename.
    assert n_whole["before"] >= 2 and (n_whole["after"] >= 3 or start == "missing")


@posix
def test_a_file_that_came_after_a_kill_is_kept(tmp_path: Path) -> None:
    write(tmp_path, "a.txt")
    write(tmp_path / "other", "b.txt")
    os.rename(tmp_path / "other", tmp_path / ARRIVING)
    (tmp_path / "b.txt").write_text("mine")
    with pytest.raises(ExistsError) as raised:
        Publication(tmp_path)
    assert raised.value.path == str(tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_text() == "mine"
    (tmp_path / "b.txt").unlink()
    with pytest.warns(UserWarning):
        Publication(tmp_path)
    assert files_in(tmp_path) == {"b.txt": b"new b.txt"}
