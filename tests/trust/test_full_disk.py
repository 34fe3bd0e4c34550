"""A disk that is full: an error that names the file, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.hostile_fit import small_fit
from helpers.stores import cohort, contents
from icofactor.cli.main import main
from icofactor.cohort.store.create import append_store, save_store
from icofactor.io.tables import write_tsv
from icofactor.preprocessing.finished_maps import FinishedMaps
from icofactor.results.description import FitDescription
from icofactor.results.diagnostics.record import save_diagnostics
from icofactor.results.folder import FitFolder, write_fit
from icofactor.results.report.page import write_page
from icofactor.results.transform import NewLoadings
from icofactor.results.transform_files import write_loadings
from icofactor.sphere.sites import Sites

pytestmark = pytest.mark.hostile

SITES = Sites.named("fsaverage3")
RNG = np.random.default_rng(0)
# 1.6 MB: more than there is room for.
LARGE = RNG.random((4, 50_000))


@contextmanager
def full(free: int) -> Iterator[None]:
    """No file may become larger than so many bytes."""
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
    model, diagnostics = small_fit(SITES, "left")
    model.save(folder / "model.zip")
    save_diagnostics(diagnostics, folder / "diagnostics.npz")
    return folder, model, diagnostics


WRITERS = ("model", "table", "fit", "store", "append", "finished map", "page", "new loadings")


def writer(name: str, folder: Path, fitted: tuple[Path, Any, Any]) -> Callable[[], object]:
    """Return a call that writes into a folder, and replaces what an earlier one wrote."""
    source, model, diagnostics = fitted
    store = folder / "cohort.store"
    finished = FinishedMaps(folder / "work", {})
    new = NewLoadings(tuple(map(str, range(3_000))), RNG.random((3_000, 3)), ())
    fit = FitDescription.of(model, diagnostics, provenance={"large": LARGE[:, :5_000]})
    calls: dict[str, Callable[[], object]] = {
        "model": lambda: model.save(folder / "model.zip", overwrite=True),
        "table": lambda: write_tsv(folder / "a.tsv", {"a": LARGE[0]}, overwrite=True),
        "fit": lambda: write_fit(fit, FitFolder(folder / "fit", True, figures=False)),
        "store": lambda: save_store(cohort(600, 1000), store, overwrite=True),
        "append": lambda: append_store(store, cohort(600, 5000)),
        "finished map": lambda: finished.save("map", [], {"a": LARGE}),
        "page": lambda: write_page(source, folder / "page", figures=False, overwrite=True),
        "new loadings": lambda: write_loadings(
            new,
            folder / "new.tsv",
            cohort(2, participants={}),
            source / "model.zip",
            overwrite=True,
        ),
    }
    return calls[name]


def refused(call: Callable[[], object], folder: Path) -> None:
    """The error names where the user wanted to write, and nothing changes."""
    before = contents(folder)
    with pytest.raises(OSError, match=str(folder)) as raised:
        call()
    assert ".tmp-" not in str(raised.value)
    assert contents(folder) == before


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk(tmp_path: Path, fitted: tuple[Path, Any, Any], name: str) -> None:
    """With no room at all, and with room for a beginning; then over an earlier file."""
    folder = tmp_path
    save_store(cohort(), folder / "cohort.store")
    call = writer(name, folder, fitted)
    for free in (0, 2**13):
        with full(free):
            refused(call, folder)
    if name != "append":
        call()
        with full(2**13):
            refused(call, folder)


@pytest.mark.parametrize("command", ["fit", "prepare", "transform"])
def test_commands_on_a_full_disk(
    fitted: tuple[Path, Any, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    """One line, status 2, and the disk is as it was."""
    maps = tmp_path / "lh.maps.npy"
    np.save(maps, RNG.gamma(2, 1, (600, SITES.n)).astype(np.float32) + 1)
    out = tmp_path / "results" / "out"
    read = f"{maps} --mesh fsaverage3 --hemisphere left -q -o {out}"
    words = {
        "fit": f"{read} --n-components 2 --n-starts 1 --level 0",
        "prepare": read,
        "transform": f"{fitted[0]} {maps} -q -o {out}",
    }[command]
    with full(2**13):
        assert main([command, *words.split()]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert str(out) in message and ".tmp-" not in message
    assert not out.parent.exists()
