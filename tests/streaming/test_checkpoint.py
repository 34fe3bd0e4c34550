"""Work folders: pieces are kept whole, other runs refused, damage named."""

from __future__ import annotations

import os
import subprocess
import sys
from subprocess import PIPE

import numpy as np
import pytest

from icofactor.errors import CheckpointError
from icofactor.io.records import write_sealed
from icofactor.streaming.checkpoint import Checkpoint, digest

RUN = {"command": "fit", "settings": {"n_components": 3, "method": "PNNMF"}, "data": "abc"}


def test_a_piece_is_computed_once(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"B": np.arange(3.0), "names": np.array(["a", "b"])}

    first = Checkpoint(tmp_path / "work", RUN).piece("starts-0", compute)
    again = Checkpoint(tmp_path / "work", RUN)
    second = again.piece("starts-0", compute)
    assert len(calls) == 1 and again.reused == 1
    np.testing.assert_array_equal(first["B"], second["B"])
    assert second["names"].tolist() == ["a", "b"]


def test_without_a_folder_nothing_is_kept():
    kept = Checkpoint(None, RUN)
    assert kept.piece("x", lambda: {"a": np.ones(1)})["a"] == 1
    assert kept.get("x") is None


def test_another_run_is_refused_with_what_differs(tmp_path):
    Checkpoint(tmp_path / "work", RUN)
    other = {**RUN, "settings": {"n_components": 4, "method": "PNNMF"}, "data": "xyz"}
    with pytest.raises(CheckpointError, match=r"data was abc, is xyz; settings.n_components was 3, is 4"):
        Checkpoint(tmp_path / "work", other)


def test_someone_elses_folder_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(CheckpointError, match="not a work folder"):
        Checkpoint(tmp_path, RUN)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("length", [0, 10, 200])
def test_a_damaged_piece_is_named(tmp_path, length):
    kept = Checkpoint(tmp_path / "work", RUN)
    kept.put("a", {"x": np.arange(100.0)})
    file = tmp_path / "work" / "a.npz"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(CheckpointError, match="delete it; icofactor then computes it again") as refusal:
        kept.get("a")
    assert refusal.value.path == str(file)


def test_a_piece_in_the_place_of_another_is_refused(tmp_path):
    kept, other = Checkpoint(tmp_path / "work", RUN), Checkpoint(tmp_path / "other", {**RUN, "data": "xyz"})
    for one in (kept, other):
        one.put("a", {"x": np.arange(3.0)})
        one.put("b", {"y": np.arange(3.0)})
    for place in ("work/b.npz", "other/a.npz"):
        (tmp_path / "work" / "a.npz").write_bytes((tmp_path / place).read_bytes())
        with pytest.raises(CheckpointError, match="belongs to another run, or has another name"):
            kept.get("a")


def test_changed_numbers_are_noticed(tmp_path):
    """The zip is whole and its own checksums are right, but the numbers are not those that were kept."""
    kept = Checkpoint(tmp_path / "work", RUN)
    kept.put("a", {"x": np.arange(3.0)})
    file = tmp_path / "work" / "a.npz"
    with np.load(file) as archive:
        arrays = {name: archive[name] for name in archive.files}
    np.savez(file, **{**arrays, "x": np.full(3, np.nan)})
    with pytest.raises(CheckpointError, match="its checksum is wrong"):
        kept.get("a")


@pytest.mark.parametrize(("arrays", "message"), [({"y": np.ones(3)}, "lacks x"), ({"x": [1, np.nan]}, "not finite")])
def test_a_forged_piece_is_refused(tmp_path, arrays, message):
    """Its checksum, run and key are right; its arrays are not those that are asked for."""
    kept = Checkpoint(tmp_path / "work", RUN)
    kept.put("a", {"x": np.arange(3.0)})
    write_sealed(tmp_path / "work" / "a.npz", {**kept._of("a"), "not_finite": []}, arrays)
    with pytest.raises(CheckpointError, match=f"{message}.*: delete it; icofactor then computes it again") as refusal:
        kept.get("a")["x"]
    assert refusal.value.path == str(tmp_path / "work" / "a.npz")


def test_values_that_were_not_finite_come_back(tmp_path):
    kept = Checkpoint(tmp_path / "work", RUN)
    kept.put("a", {"x": np.array([1, np.nan, np.inf])})
    np.testing.assert_array_equal(kept.get("a")["x"], [1, np.nan, np.inf])


SLOWED = """
import os, sys, time
import numpy as np
from icofactor.streaming.checkpoint import Checkpoint

def slowed(a, b, replace=os.replace):
    print("renaming", flush=True)
    time.sleep(0.5)
    replace(a, b)

os.replace = slowed
print("here", flush=True)
sys.stdin.readline()
kept = Checkpoint(sys.argv[1], {"command": "fit"})
print(kept.piece("a", lambda: {"x": np.arange(3)})["x"].sum())
"""


@pytest.mark.skipif(os.name == "nt", reason="folders are locked on POSIX only")
def test_runs_that_start_together_share_a_fresh_folder(tmp_path):
    command = [sys.executable, "-c", SLOWED, str(tmp_path / "work")]
    both = [subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) for _ in range(2)]
    for one, said in zip(both, ("renaming", "here"), strict=True):  # the second starts while the first renames
        assert one.stdout.readline() == "here\n"
        one.stdin.write("go\n")
        one.stdin.flush()
        assert said == "here" or one.stdout.readline() == "renaming\n"
    ends = [one.communicate(timeout=60) for one in both]
    assert [out.split()[-1:] for out, _ in ends] == [["3"], ["3"]], ends
    assert sorted(file.name for file in (tmp_path / "work").iterdir()) == ["a.npz", "run.json"]


def test_equal_pieces_are_equal_files(tmp_path):
    for place in ("one", "two"):
        Checkpoint(tmp_path / place, RUN).put("a", {"x": np.arange(3.0), "names": np.array(["a"])})
    assert (tmp_path / "one" / "a.npz").read_bytes() == (tmp_path / "two" / "a.npz").read_bytes()


def test_a_worker_attaches_to_a_run(tmp_path):
    Checkpoint(tmp_path / "work", RUN).put("a", {"x": np.arange(3.0)})
    found = Checkpoint.attached(tmp_path / "work").get("a")
    assert found is not None and found["x"].tolist() == [0, 1, 2]


def test_a_pickle_is_never_loaded(tmp_path):
    kept = Checkpoint(tmp_path / "work", RUN)
    np.savez(tmp_path / "work" / "a.npz", x=np.array([{"code": 1}], dtype=object))
    with pytest.raises(CheckpointError, match="damaged"):
        kept.get("a")
    with pytest.raises(TypeError, match="not an array of numbers"):
        kept.put("b", {"x": np.array([{}], dtype=object)})


def test_keys_cannot_leave_the_folder(tmp_path):
    with pytest.raises(ValueError, match="key must be"):
        Checkpoint(tmp_path / "work", RUN).put("../a", {"x": np.ones(1)})


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    Checkpoint(tmp_path / "work", RUN)
    for name in (".tmp-1234-a.npz", ".tmp-01abcdef-run.json", ".tmp-mine.npz", ".tmp-1234-notes.txt"):
        (tmp_path / "work" / name).write_bytes(b"half")
    Checkpoint(tmp_path / "work", RUN)
    assert {file.name for file in (tmp_path / "work").glob(".tmp-*")} == {".tmp-mine.npz", ".tmp-1234-notes.txt"}


def test_nothing_is_removed_from_someone_elses_folder(tmp_path):
    for name in ("mine.txt", ".tmp-1234-a.npz"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(CheckpointError, match="not a work folder"):
        Checkpoint(tmp_path, RUN)
    assert len(list(tmp_path.iterdir())) == 2


def test_the_digest_sees_every_byte():
    X = np.arange(60.0).reshape(6, 10)
    Y = X.copy()
    Y[5, 9] = np.nextafter(Y[5, 9], 100)
    assert digest(X) == digest(np.asfortranarray(X)) == digest(X.copy())
    assert len({digest(X), digest(Y), digest(X.astype(np.float32)), digest(X.reshape(10, 6)), digest(X, X)}) == 5
