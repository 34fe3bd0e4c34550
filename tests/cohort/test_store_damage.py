from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.stores import check_same, cohort, contents
from icofactor.cohort.cohort import Cohort
from icofactor.cohort.store.create import append_store, create_store, save_store
from icofactor.cohort.store.read import open_store
from icofactor.errors import CohortError
from icofactor.sphere.sites import Sites


@pytest.mark.slow
def test_two_thousand_subjects_in_the_memory_of_a_few_chunks(tmp_path: Path) -> None:
    """2000 subjects of fsaverage4 are 20 MB; a chunk as wide as the store's writing holds 128 of them, 1.3 MB."""
    sites, path = Sites.named("fsaverage4"), tmp_path / "a.zarr"
    sites.face_at(0)

    def blocks(first: int, last: int) -> Iterator[Cohort]:
        for start in range(first, last, 20):
            yield cohort(20, start, sites)

    chunk = 128 * sites.n * 4
    create_store(path, blocks(0, 20), chunk_subjects=128)  # whatever is loaded once
    tracemalloc.start()
    create_store(path, blocks(0, 1200), chunk_subjects=128, overwrite=True)
    stored = append_store(path, blocks(1200, 2000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * chunk
    assert stored.X.shape == (2000, 2562)
    assert 15 * chunk < 2000 * 2562 * 4
    for first in (0, 1180, 1200, 1980):
        np.testing.assert_array_equal(stored.X[first : first + 20], cohort(20, first, sites).X)


KILLED = """
import os, signal, sys
import numpy as np
sys.path.insert(0, sys.argv[2])
from helpers import stores
from icofactor import cohort

def blocks():
    yield stores.cohort(600, 5)
    if sys.argv[3] == "half-way":
        os.kill(os.getpid(), signal.SIGKILL)

def killed(a, b, replace=os.replace):
    if str(b).endswith("commit.json"):
        os.kill(os.getpid(), signal.SIGKILL)
    replace(a, b)

if sys.argv[3] == "before the rename":
    os.replace = killed
getattr(cohort, sys.argv[4])(sys.argv[1], blocks(), **({"overwrite": True} if sys.argv[4] == "create_store" else {}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize("when", ["half-way", "before the rename"])
@pytest.mark.parametrize("how", ["append_store", "create_store"])
def test_a_killed_writer_leaves_the_previous_cohort(tmp_path: Path, when: str, how: str) -> None:
    path = tmp_path / "a.zarr"
    save_store(cohort(), path)
    before = contents(path)
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(KILLED),
        str(path),
        str(Path(__file__).parents[1]),
        when,
        how,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    leavings = {name: content for name, content in contents(path).items() if name not in before}
    assert any(name.startswith("part-") for name in leavings)
    assert {name: content for name, content in contents(path).items() if name in before} == before
    check_same(open_store(path), cohort())
    check_same(append_store(path, cohort(2, 5)), cohort(), cohort(2, 5))
    assert not leavings.items() & contents(path).items()


def test_a_first_writing_that_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    save_store(cohort(), path)
    (path / "commit.json").unlink()
    with pytest.raises(CohortError, match=r"a\.zarr: is incomplete"):
        open_store(path)
    with pytest.raises(CohortError, match="is incomplete"):
        append_store(path, cohort(1, 5))
    check_same(save_store(cohort(3), path), cohort(3))
    assert len([place for place in path.iterdir() if place.name.startswith("part-")]) == 1


def part_of(path: Path) -> Path:
    return next(place for place in path.iterdir() if place.name.startswith("part-"))


def edit(file: Path, change: Any) -> None:
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))


DAMAGES: dict[str, Any] = {
    "a chunk cut short": lambda path: os.truncate(part_of(path) / "c" / "0" / "0", 100),
    "a chunk lost": lambda path: (part_of(path) / "c" / "0" / "0").unlink(),
    "an empty commit": lambda path: os.truncate(path / "commit.json", 0),
    "a commit cut short": lambda path: os.truncate(path / "commit.json", 300),
    "a part lost": lambda path: part_of(path).rename(path / "elsewhere"),
    "a mesh lost": lambda path: next(path.glob("mesh-*")).rename(path / "elsewhere"),
    "an array of the mesh lost": lambda path: next(path.glob("mesh-*/deepest")).rename(
        path / "elsewhere"
    ),
    "another format": lambda path: edit(path / "commit.json", lambda r: r.update(format="mine")),
    "a newer version": lambda path: edit(path / "commit.json", lambda r: r.update(version=9)),
    "a path that leads out": lambda path: edit(
        path / "commit.json", lambda r: r.update(parts=[["../part-000001-00000000", 5]])
    ),
    "a subject too few": lambda path: edit(path / "commit.json", lambda r: r["subjects"].pop()),
    "a subject twice": lambda path: edit(
        path / "commit.json", lambda r: r.update(subjects=["a"] * 5)
    ),
    "a value too few": lambda path: edit(
        path / "commit.json", lambda r: r["participants"]["age"]["values"].pop()
    ),
    "a column of objects": lambda path: edit(
        path / "commit.json", lambda r: r["participants"]["age"].update(dtype="object")
    ),
    "no hemisphere": lambda path: edit(path / "commit.json", lambda r: r.update(hemisphere="top")),
    "a list": lambda path: (path / "commit.json").write_text("[]"),
    "zarr 2": lambda path: edit(part_of(path) / "zarr.json", lambda r: r.update(zarr_format=2)),
    "objects": lambda path: edit(
        part_of(path) / "zarr.json", lambda r: r.update(data_type="object")
    ),
    "text": lambda path: edit(part_of(path) / "zarr.json", lambda r: r.update(data_type="string")),
    "another codec": lambda path: edit(
        part_of(path) / "zarr.json", lambda r: r.update(codecs=[{"name": "numcodecs.pickle"}])
    ),
    "another shape": lambda path: edit(
        part_of(path) / "zarr.json", lambda r: r.update(shape=[641, 5])
    ),
    "a negative shape": lambda path: edit(
        part_of(path) / "zarr.json", lambda r: r.update(shape=[642, -5])
    ),
    "metadata cut short": lambda path: os.truncate(part_of(path) / "zarr.json", 40),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_store_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.zarr"
    save_store(cohort(), path)
    DAMAGES[damage](path)
    with pytest.raises(CohortError, match=r"a\.zarr"):
        open_store(path)
    before = contents(path)
    with pytest.raises(CohortError, match=r"a\.zarr"):
        append_store(path, cohort(1, 5))
    assert contents(path) == before  # nothing is taken for leavings where the commit cannot be read
    check_same(save_store(cohort(2), path, overwrite=True), cohort(2))


def test_changed_bytes_are_found_when_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    stored = create_store(path, [cohort()], chunk_sites=100)
    file = part_of(path) / "c" / "3" / "0"
    content = bytearray(file.read_bytes())
    content[50] ^= 1
    file.write_bytes(content)
    stored.read_sites(slice(0, 300))
    with pytest.raises(CohortError, match=r"a\.zarr/part-.*/c/3/0: is damaged"):
        stored.read_sites(slice(300, 400))
    file.unlink()
    with pytest.raises(CohortError, match=r"3/0: is missing"):
        stored.X[0]
    mesh = next(path.glob("mesh-*/order/c/0"))
    mesh.write_bytes(bytes(mesh.stat().st_size))
    file.write_bytes(content)
    with pytest.raises(CohortError, match=r"mesh-.*/order/c/0: is damaged"):
        open_store(path)


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no cohort store"):
        open_store(tmp_path / "nowhere")
    with pytest.raises(CohortError, match="is not a cohort store"):
        open_store(tmp_path)
    with pytest.raises(CohortError, match="is not a cohort store"):
        append_store(tmp_path, cohort())
    assert not any(tmp_path.iterdir())
