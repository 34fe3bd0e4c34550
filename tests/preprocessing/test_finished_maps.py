"""Finished maps that an interrupted `prepare` finds again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from icofactor.errors import ArgumentError
from icofactor.io.atomic import temporary_name
from icofactor.preprocessing.finished_maps import FinishedMaps

SETTINGS = {"steps": {"kind": "reho", "low": 0.01}, "confounds": ("6p",)}
INPUTS = ["map=a.nii:100:7"]
ARRAYS = {"map": np.arange(6, dtype=np.float32), "names": np.array(["a", "b"])}


@pytest.fixture
def maps(tmp_path: Path) -> FinishedMaps:
    maps = FinishedMaps(tmp_path / "work", SETTINGS)
    maps.save("s=1.reho", INPUTS, ARRAYS)
    return maps


def test_a_saved_map_is_loaded_by_another_run(maps: FinishedMaps) -> None:
    arrays = FinishedMaps(maps.folder, SETTINGS).load("s=1.reho", INPUTS)
    assert arrays is not None and arrays.keys() == ARRAYS.keys()
    for name, values in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], values)


def test_a_map_of_other_settings_or_inputs_is_not_loaded(maps: FinishedMaps) -> None:
    assert (
        FinishedMaps(maps.folder, {**SETTINGS, "confounds": ("24p",)}).load("s=1.reho", INPUTS)
        is None
    )
    assert maps.load("s=1.reho", ["map=a.nii:100:8"]) is None
    assert maps.load("s=2.reho", INPUTS) is None


def test_a_damaged_map_is_not_loaded(maps: FinishedMaps) -> None:
    file = maps.folder / "s=1.reho.npz"
    content = file.read_bytes()
    n_refused = 0
    for bit in np.random.default_rng(0).integers(8 * len(content), size=200).tolist():
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        arrays = maps.load("s=1.reho", INPUTS)
        if arrays is None:
            n_refused += 1
        else:
            np.testing.assert_array_equal(arrays["map"], ARRAYS["map"])
    assert n_refused > 100
    file.write_bytes(content[: len(content) // 2])
    assert maps.load("s=1.reho", INPUTS) is None


def test_a_map_is_replaced(maps: FinishedMaps) -> None:
    maps.save("s=1.reho", INPUTS, {"map": np.ones(2)})
    arrays = maps.load("s=1.reho", INPUTS)
    assert arrays is not None
    np.testing.assert_array_equal(arrays["map"], np.ones(2))


def test_the_folder_is_removed_unless_other_files_are_in_it(maps: FinishedMaps) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    killed = temporary_name().replace(f"-{os.getpid()}-", f"-{child.pid}-")
    (maps.folder / f"{killed}-s=1.reho.npz").write_bytes(b"of a process that ended")
    (maps.folder / "mine.txt").write_text("mine")
    maps.remove(["s=1.reho", "s=2.reho"])
    assert [file.name for file in maps.folder.iterdir()] == ["mine.txt"]
    (maps.folder / "mine.txt").unlink()
    maps.remove([])
    assert not maps.folder.exists()


def test_the_folder_is_on_this_machine() -> None:
    with pytest.raises(ArgumentError) as raised:
        FinishedMaps("s3://bucket/work", SETTINGS)
    assert raised.value.argument == "work_dir"
