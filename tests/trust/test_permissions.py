"""What may not be read is said to be so, by its own name; it is never called damaged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from zarr.core.sync import cleanup_resources, loop

from helpers.denied import denied
from helpers.stores import BOTH, cohort
from helpers.trees import freesurfer_tree, hemispheres
from icofactor.cli import main
from icofactor.cohort.store import open_store, save_store
from icofactor.estimator.estimator import CorticalFactorization

FIT = "-o", "{here}/out", "-q", "--n-components", "2"
LEFT = "--hemisphere", "left"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("denied")
    data = cohort(6)
    save_store(data, folder / "store")
    (folder / "fitted").mkdir()
    model = CorticalFactorization(2, n_starts=2, level=1, random_state=0, method="LE-PNNMF")
    model.fit(open_store(folder / "store")).save(folder / "fitted" / "model.zip")
    (folder / "hid").mkdir()
    for place in (folder, folder / "hid"):
        np.savez(place / "maps.npz", X=data.X, subjects=np.array(data.subjects))
    (folder / "people.tsv").write_text("participant_id\tage\nsub-0000\t3\n")
    freesurfer_tree(
        folder / "tree",
        ["sub-01", "sub-02"],
        hemispheres(cohort(2, sites=BOTH).X),
        target="fsaverage3",
    )
    return folder


def end_threads_of_zarr() -> None:
    """Permissions are withdrawn from new threads only. Reads that are left must end first."""

    async def end_tasks() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*tasks, return_exceptions=True)

    if loop[0] is not None:
        asyncio.run_coroutine_threadsafe(end_tasks(), loop[0]).result()
    cleanup_resources()


@pytest.mark.parametrize(
    ("what", "command"),
    [
        ("store", ("fit", "{here}/store", *FIT)),
        ("store/zarr.json", ("fit", "{here}/store", *FIT)),
        ("store/cohort-*/maps/c/0/0", ("fit", "{here}/store", *FIT)),
        ("store", ("prepare", "{here}/maps.npz", "-o", "{here}/store", "--overwrite", "-q", *LEFT)),
        ("maps.npz", ("fit", "{here}/maps.npz", *FIT, *LEFT)),
        ("hid", ("fit", "{here}/hid", *FIT, *LEFT)),
        ("hid", ("fit", "{here}/hid/maps.npz", *FIT, *LEFT)),
        ("people.tsv", ("fit", "{here}/store", *FIT, "--participants", "{here}/people.tsv")),
        ("tree", ("fit", "{here}/tree", *FIT)),
        ("tree/sub-01/surf/lh.*", ("fit", "{here}/tree", *FIT)),
        (
            "fitted/model.zip",
            ("transform", "{here}/fitted", "{here}/store", "-o", "{here}/new.tsv", "-q"),
        ),
    ],
)
def test_what_may_not_be_read_is_named(
    here: Path, what: str, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    path = next(here.glob(what))
    end_threads_of_zarr()
    with denied(path):
        assert main([word.format(here=here) for word in command]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "damaged" not in message
    assert (
        f"{path}: cannot be read (permission denied)" in message
        or f"Permission denied: {path}\n" in message
    )
