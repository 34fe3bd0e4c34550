"""A disk that is full, or may not be written to, during every writer: a clear error, nothing half-written, and what
was there before is still there."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hostile_fit import small_fit
from helpers.stores import cohort
from icofactor.cli.main import main
from icofactor.cohort.store.create import append_store, save_store
from icofactor.io.gifti import write_maps
from icofactor.io.tables import write_tsv
from icofactor.preprocessing.finished_maps import FinishedMaps
from icofactor.results.description import FitDescription
from icofactor.results.diagnostics.record import save_diagnostics
from icofactor.results.folder import FitFolder, write_fit
from icofactor.results.report.page import Report, write_page
from icofactor.results.transform import NewLoadings
from icofactor.results.transform_files import write_loadings
from icofactor.sphere.sites import Sites

pytestmark = pytest.mark.hostile

DISK = 20 * 2**20
SITES = Sites.named("fsaverage3")
RNG = np.random.default_rng(0)
LARGE = RNG.random((4, 50_000))
"""1.6 MB: more than the disk has left."""
Contents = dict[str, bytes]


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A disk of 20 MB; where none can be mounted, a folder."""
    folder = tmp_path_factory.mktemp("disk")
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "icofactor-test", str(folder)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        yield folder
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def full(folder: Path, free: int) -> Iterator[None]:
    """Only `free` bytes are left on the disk; else no file may become larger than that."""
    if os.path.ismount(folder):
        filler = folder / "filler"
        try:
            with open(filler, "wb") as stream:
                left = shutil.disk_usage(folder).free - free
                stream.write(bytes(max(0, left)))
            yield
        finally:
            filler.unlink()
        return
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (free, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    folder = tmp_path_factory.mktemp("fitted")
    model, d = small_fit(SITES, "left")
    model.save(folder / "model.zip")
    save_diagnostics(d, folder / "diagnostics.npz")
    return folder, model, d


def _large_fit(model: Any, d: Any) -> FitDescription:
    """A fit whose model does not fit on the disk."""
    large = copy.copy(model)
    large.save = lambda path: path.write_bytes(LARGE.tobytes())
    return FitDescription.of(large, d)


def writers(place: Path, fitted: tuple[Path, Any, Any]) -> dict[str, Callable[[], object]]:
    """One writer for each way in which files appear → the call, replacing what is there.

    JSON, labels, CIFTI, weights and diagnostics are written as the model, the TSV and the GIFTI are (`atomic_path`),
    choices and standard errors as new loadings (several files together).
    """
    source, model, d = fitted
    again = {"overwrite": True}
    names = [f"component{j}" for j in range(4)]
    many = 40_962
    store = place / "cohort.store"
    big = cohort(600, 1000)
    maps = FinishedMaps(place / "work", {"a": 1})
    nobody = replace(cohort(2), participants={})
    found = NewLoadings(tuple(map(str, range(3_000))), RNG.random((3_000, 3)), ())
    return {
        "model": lambda: model.save(place / "model.zip", **again),
        "TSV": lambda: write_tsv(place / "a.tsv", {"a": LARGE[0]}, **again),
        "GIFTI": lambda: write_maps(place / "a.shape.gii", LARGE[:, :many], "left", names, **again),
        "fit": lambda: write_fit(
            _large_fit(model, d), FitFolder(place / "fit", figures=False, **again)
        ),
        "store": lambda: save_store(big, store, **again),
        "append": lambda: append_store(store, cohort(600, 5000)),
        "finished map": lambda: maps.save("map", [], {"a": LARGE}),
        "page": lambda: write_page(source, place / "page", figures=False, **again),
        "new loadings": lambda: write_loadings(
            found, place / "new.tsv", nobody, source / "model.zip", **again
        ),
    }


WRITERS = (
    "model",
    "TSV",
    "GIFTI",
    "fit",
    "store",
    "append",
    "finished map",
    "page",
    "new loadings",
)


def contents(folder: Path) -> Contents:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk(disk: Path, fitted: tuple[Path, Any, Any], name: str) -> None:
    """First nothing is there, then an earlier file; with no room at all, and with room for a beginning."""
    place = disk / name.replace(" ", "-")
    place.mkdir()
    save_store(cohort(), place / "cohort.store")
    calls = writers(place, fitted)
    assert set(calls) == set(WRITERS)
    before = contents(place)
    for free in (0, 2**13):
        with full(disk, free):
            _refused(calls[name], place)
        assert _without_lock(contents(place)) == _without_lock(before), f"{name} left something"
    if name == "append":
        shutil.rmtree(place)
        return
    calls[name]()  # there is room again
    before = contents(place)
    with full(disk, 2**13):
        _refused(calls[name], place)
    assert _without_lock(contents(place)) == _without_lock(before), f"{name} lost what was there"
    shutil.rmtree(place)


def _without_lock(found: Contents) -> Contents:
    return {name: data for name, data in found.items() if not name.endswith(".lock")}


def _refused(call: Callable[[], object], place: Path) -> None:
    """The error is the system's own words and names where the user wanted to write."""
    with pytest.raises(
        OSError, match=r"No space left on device|File too large|is the disk full"
    ) as caught:
        call()
    told = str(caught.value)
    assert str(place) in told, told
    assert ".tmp-" not in told, told


@pytest.mark.parametrize("command", ["fit", "prepare", "transform", "report"])
def test_commands_on_a_full_disk(
    disk: Path,
    fitted: tuple[Path, Any, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    """One line, status 2, and the disk is as it was."""
    source, place = fitted[0], disk / command
    place.mkdir()
    maps = str(tmp_path / "lh.maps.npy")
    np.save(maps, RNG.gamma(2, 1, (600, SITES.n)).astype(np.float32) + 1)
    read = ["--mesh", "fsaverage3", "--hemisphere", "left"]
    words = {
        "fit": [
            maps,
            *read,
            "--n-components",
            "2",
            "--n-starts",
            "1",
            "--level",
            "0",
            "-o",
            place / "out",
        ],
        "prepare": [maps, *read, "-o", place / "store"],
        "transform": [source, maps, "-o", place / "new.tsv"],
        "report": [source, "--no-figures", "-o", place / "out"],
    }[command]
    with full(disk, 2**13):
        status = main([command, *map(str, words), "-q"])
    _told_and_nothing_left(status, capsys.readouterr().err, place)


def _told_and_nothing_left(status: int, told: str, place: Path) -> None:
    assert status == 2 and told.count("\n") == 1, told
    assert "No space left on device" in told or "File too large" in told, told
    assert str(place) in told and "tmp-" not in told.replace(str(place.parent), ""), told
    assert not list(place.iterdir()), "something was left"
    place.rmdir()


def test_figures_on_a_full_disk(
    disk: Path, fitted: tuple[Path, Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the page nor the figures appear when the figures do not fit."""
    source, _, _ = fitted
    place = disk / "figures"
    place.mkdir()
    drawn = {"figures/first.svg": b"x", "figures/second.svg": LARGE.tobytes()}
    report = Report("a page", drawn)
    monkeypatch.setattr("icofactor.results.report.page.draw_report", lambda *more: report)
    with full(disk, 2**20), pytest.raises(OSError, match=r"No space left|File too large"):
        write_page(source, place)
    assert not contents(place)


def test_a_disk_that_may_not_be_written_to(disk: Path, fitted: tuple[Path, Any, Any]) -> None:
    with readonly(disk):
        if os.access(disk, os.W_OK):
            pytest.skip("no disk could be mounted, and this user may write everywhere")
    place = disk / "readonly"
    place.mkdir()
    save_store(cohort(), place / "cohort.store")
    calls = writers(place, fitted)
    before = contents(disk)
    with readonly(disk):
        for name, call in calls.items():
            with pytest.raises(
                OSError, match=r"[Rr]ead-only|not writable|Permission denied"
            ) as caught:
                call()
            assert str(place) in str(caught.value), name
    assert contents(disk) == before


@contextmanager
def readonly(folder: Path) -> Iterator[None]:
    """Nothing may be written to a disk; else, to a folder and those in it."""
    if os.path.ismount(folder):
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        try:
            yield
        finally:
            subprocess.run(["mount", "-o", f"remount,rw,size={DISK}", str(folder)], check=True)
        return
    inside = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in inside:
        path.chmod(0o555)
    try:
        yield
    finally:
        for path in inside:
            path.chmod(0o755)
