"""Stores that are damaged, or whose writers were killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import writers
from helpers.stores import check_same, cohort, contents, edit
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.store import append_store, create_store, layout, open_store, save_store
from icofactor.errors import CohortError
from icofactor.sphere.sites import Sites


@pytest.mark.slow
def test_two_thousand_subjects_in_the_memory_of_a_few_chunks(tmp_path: Path) -> None:
    """2000 subjects of fsaverage4 are 20 MB, a column of chunks 1.3 MB."""
    sites, path = Sites.named("fsaverage4"), tmp_path / "a"
    sites.face_at(0)

    def blocks(first: int, last: int) -> Iterator[Cohort]:
        for start in range(first, last, 20):
            yield cohort(20, start, sites)

    chunk = 128 * sites.n * 4
    # What is imported and computed once.
    create_store(path, blocks(0, 20), chunk_subjects=128)
    append_store(path, blocks(20, 40))
    tracemalloc.start()
    create_store(path, blocks(0, 1200), chunk_subjects=128, overwrite=True)
    stored = append_store(path, blocks(1200, 2000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * chunk < 0.4 * 2000 * sites.n * 4
    assert stored.X.shape == (2000, 2562)
    for first in (0, 1180, 1200, 1980):
        np.testing.assert_array_equal(stored.X[first : first + 20], cohort(20, first, sites).X)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(("what", "number"), [("kill", 12), ("pair", 4)])
def test_killed_and_simultaneous_appends_lose_nothing(
    tmp_path: Path, what: str, number: int
) -> None:
    command = [sys.executable, writers.__file__, what, str(tmp_path), str(number)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert not [name for name in contents(tmp_path) if name.endswith(".partial")]


@pytest.mark.parametrize("write", [append_store, lambda *args: save_store(*args[::-1], True)])
@pytest.mark.parametrize("function", ["write_commit", "write_durably"])
def test_a_writer_that_fails_leaves_the_previous_cohort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Any, function: str
) -> None:
    from icofactor.cohort.store import create

    create_store(tmp_path / "a", [cohort()], chunk_subjects=4)

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(create if function == "write_commit" else layout, function, fail)
        with pytest.raises(KeyboardInterrupt):
            write(tmp_path / "a", cohort(6, 20))
    check_same(open_store(tmp_path / "a"), cohort())
    check_same(append_store(tmp_path / "a", cohort(2, 5)), cohort(), cohort(2, 5))


def test_a_first_writing_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save_store(cohort(), path)
    (path / "zarr.json").unlink()  # as it was before the commit
    for read in (open_store, lambda path: append_store(path, cohort(1, 5))):
        with pytest.raises(CohortError) as refusal:
            read(path)
        assert refusal.value.path == str(path)
    check_same(save_store(cohort(3), path), cohort(3))
    assert len(list(path.glob("cohort-*"))) == 1


def maps_record(**changes: Any) -> Any:
    def change(attributes: Any, metadata: Any) -> None:
        metadata["cohort-000001/maps"].update(changes)

    return lambda path: edit(path, change)


def attribute(**changes: Any) -> Any:
    return lambda path: edit(path, lambda attributes, metadata: attributes.update(changes))


def age(change: Any, seal: bool = True) -> Any:
    return lambda path: edit(path, lambda about, _: change(about["participants"]["age"]), seal)


CONTENT = "cohort-000001"
# What is done to a store, and the end of the path in the error.
DAMAGES: dict[str, tuple[Any, str]] = {
    "an empty record": (lambda path: os.truncate(path / "zarr.json", 0), "zarr.json"),
    "a record cut short": (lambda path: os.truncate(path / "zarr.json", 300), "zarr.json"),
    "a list": (lambda path: (path / "zarr.json").write_text("[]"), "zarr.json"),
    "another format": (attribute(format="mine"), "zarr.json"),
    "another version": (attribute(version=9), "zarr.json"),
    "an age that was changed": (
        age(lambda column: column.__setitem__(1, 50.5), seal=False),
        "zarr.json",
    ),
    "an age too few": (age(lambda column: column.pop()), "zarr.json"),
    "a column of lists": (age(lambda column: column.__setitem__(1, [50.5])), "zarr.json"),
    "a subject twice": (attribute(subjects=["a"] * 5), "zarr.json"),
    "no hemisphere": (attribute(hemisphere="top"), "zarr.json"),
    "a path that leads out": (attribute(content="../cohort-000001"), "zarr.json"),
    "objects": (maps_record(data_type="object"), "maps"),
    "compression": (maps_record(codecs=[{"name": "bytes"}, {"name": "gzip"}]), "maps"),
    "another shape": (maps_record(shape=[641, 5]), "zarr.json"),
    "a negative shape": (maps_record(shape=[642, -5]), "maps"),
    "huge chunks": (
        maps_record(chunk_grid={"name": "regular", "configuration": {"chunk_shape": [10**6] * 2}}),
        "maps",
    ),
    "no maps": (lambda path: edit(path, lambda _, arrays: arrays.pop(f"{CONTENT}/maps")), "json"),
    "a mesh lost": (lambda path: (path / CONTENT / "sites").rename(path / "x"), "/c/0/0"),
    "an array cut short": (
        lambda path: os.truncate(path / CONTENT / "sites/deepest/c/0", 40),
        "sites/deepest/c/0",
    ),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_store_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a"
    save_store(cohort(), path)
    change, name = DAMAGES[damage]
    change(path)
    before = contents(path)
    for use in (open_store, lambda path: append_store(path, cohort(1, 5))):
        with pytest.raises(CohortError) as refusal:
            use(path)
        assert refusal.value.path.startswith(str(path)) and refusal.value.path.endswith(name)
        assert len(str(refusal.value).splitlines()) == 1
        # Nothing is taken for leavings where the commit cannot be read.
        assert contents(path) == before
    check_same(save_store(cohort(2), path, overwrite=True), cohort(2))


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[50] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (flip, "maps"),
        (Path.unlink, "maps/c/3/0"),
        (lambda file: os.truncate(file, 100), "maps/c/3/0"),
        (lambda file: os.truncate(file, 2**40), "maps/c/3/0"),
        (lambda file: (file.unlink(), os.mkfifo(file)), "maps/c/3/0"),
    ],
)
def test_damaged_maps_are_found_when_they_are_read(tmp_path: Path, damage: Any, name: str) -> None:
    path = tmp_path / "a"
    stored = create_store(path, [cohort()], chunk_sites=100)
    damage(path / CONTENT / "maps/c/3/0")
    rows = np.asarray(stored.X.sites)
    damaged = rows // 100 == 3
    np.testing.assert_array_equal(stored.X[:, rows < 300], cohort().X[:, rows < 300])
    with pytest.raises(CohortError) as refusal:
        stored.X[:, damaged]
    assert refusal.value.path == f"{path}/{CONTENT}/{name}"


def test_exchanged_files_are_found_by_the_hashes(tmp_path: Path) -> None:
    stored = create_store(tmp_path / "a", [cohort()], chunk_sites=100)
    chunks = tmp_path / "a" / CONTENT / "maps/c"
    (chunks / "3/0").write_bytes((chunks / "4/0").read_bytes())
    with pytest.raises(CohortError) as refusal:
        stored.verify()
    assert re.findall(r"sub-\d+", str(refusal.value)) == list(cohort().subjects)


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_store(tmp_path / "nowhere")
    for use in (open_store, lambda path: append_store(path, cohort())):
        with pytest.raises(CohortError) as refusal:
            use(tmp_path)
        assert refusal.value.path == str(tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_cohort_replaced_while_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from icofactor.cohort.store import read

    path = tmp_path / "a"
    save_store(cohort(), path)
    read_commit, opened = read.read_commit, []

    def replaced(place: Path) -> Any:
        commit = read_commit(place)
        opened.append(commit)
        if len(opened) == 1:
            save_store(cohort(3, 50), path, overwrite=True)
        return commit

    monkeypatch.setattr(read, "read_commit", replaced)
    check_same(open_store(path), cohort(3, 50))
