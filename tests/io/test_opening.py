"""What is not a plain file is refused wherever a path is opened, at once."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.stores import SITES, cohort
from icofactor.assessment.atlas import read_atlas
from icofactor.cohort.load import load_cohort
from icofactor.cohort.masks import read_mask
from icofactor.cohort.store import append_store, open_store, save_store
from icofactor.cohort.subjects import read_participants
from icofactor.errors import FileError
from icofactor.estimator.saving import load_model
from icofactor.io.maps import read_maps
from icofactor.results.diagnostics.record import load_diagnostics
from icofactor.sphere.surfaces import read_surface

pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    """A pipe would be waited for without end."""

    def hang(*_: Any) -> None:
        raise AssertionError("it hangs")

    previous = signal.signal(signal.SIGALRM, hang)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, previous)


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


KINDS: dict[str, Callable[[Path], None]] = {
    "a pipe": lambda path: os.mkfifo(path),
    "a socket": _socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a file of the kernel": lambda path: path.symlink_to("/proc/self/maps"),
    "a log of the kernel": lambda path: path.symlink_to("/proc/kmsg"),
}


def _in_store(pattern: str) -> Callable[[Path], None]:
    def read(path: Path) -> None:
        store = path.parent / "store"
        save_store(cohort(), store)
        path.rename(next(store.glob(pattern)))
        np.asarray(open_store(store).X)

    return read


OPENINGS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    **{
        f"maps {name}": (name, read_maps)
        for name in ("a.gii", "a.dscalar.nii", "a.mgh", "a.npy", "a.npz", "lh.area")
    },
    **{
        f"mask {name}": (name, lambda p: read_mask(p, {"left": 642}))
        for name in ("a.label", "a.npy", "a.annot")
    },
    "atlas": ("lh.annot", lambda p: read_atlas(p, SITES, "left")),
    "surface": ("a.surf.gii", read_surface),
    "geometry": ("lh.sphere", read_surface),
    "participants": ("participants.tsv", read_participants),
    "model": ("model.zip", load_model),
    "diagnostics": ("diagnostics.npz", load_diagnostics),
    **{
        f"store {one}": ("x", _in_store(one))
        for one in ("zarr.json", "cohort-*/maps/c/0/0", "cohort-*/sites/mask/c/0")
    },
}


@pytest.mark.parametrize("opening", OPENINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_a_plain_file_is_refused(tmp_path: Path, kind: str, opening: str) -> None:
    name, read = OPENINGS[opening]
    KINDS[kind](tmp_path / name)
    with pytest.raises(FileError) as refusal:
        read(tmp_path / name)
    assert str(tmp_path) in refusal.value.path


@pytest.mark.parametrize(
    "pattern", ["/proc/**/lh.thickness", "/sys/*/lh.thickness", "/**/lh.thickness"]
)
def test_patterns_do_not_search_the_system(pattern: str) -> None:
    with pytest.raises(FileError) as refusal:
        load_cohort(pattern)
    assert refusal.value.path == pattern


def test_locks_wait_for_no_pipe(tmp_path: Path) -> None:
    save_store(cohort(), tmp_path / "store")
    for name in (".lock", ".tmp-1234-zarr.json"):
        os.mkfifo(tmp_path / "store" / name)
    assert len(append_store(tmp_path / "store", cohort(1, 5))) == 6
