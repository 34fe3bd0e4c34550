"""Hostile use of the command line: wrong things in every place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from icofactor.cli.main import main
from icofactor.io.gifti import write_maps
from icofactor.results.folder import FitFolder
from icofactor.sphere.sites import Sites

pytestmark = pytest.mark.hostile

SITES = Sites.named("fsaverage3")
READ = ["--mesh", "fsaverage3", "--hemisphere", "left"]


def write_fit(out: Path) -> None:
    """A folder as a fit leaves one: maps, and the list of its files."""
    with FitFolder(out).filled() as new:
        maps = new / "hemi-L_space-fsaverage_den-642_desc-icofactor_components.shape.gii"
        write_maps(maps, np.ones((2, SITES.n)), "left")
        (new / "provenance.json").write_text("{}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """maps/ and what is wrong in its place."""
    folder = tmp_path_factory.mktemp("hostile use")
    rng = np.random.default_rng(0)
    for name in ("maps", "-maps", "mäps 地図"):
        (folder / name).mkdir()
        for i in range(4):
            np.save(folder / name / f"sub-{i}.lh.npy", rng.gamma(2, 1, (1, SITES.n)) + 1)
    (folder / "empty").mkdir()
    (folder / "empty.npy").touch()
    (folder / "file").write_text("mine")
    (folder / "loop").symlink_to("loop")
    (folder / "folders").mkdir()
    (folder / "folders" / "again").symlink_to("../folders")
    write_fit(folder / "fit")
    return folder


# What is wrong → the command; {read} says how to read the maps.
WRONG = {
    "an empty folder": "fit empty -o out",
    "an empty file": "fit empty.npy -o out",
    "a loop": "fit loop -o out",
    "a loop of folders": "fit folders -o out",
    "no files": "fit no* -o out",
    "a fit as maps": "fit fit -o out",
    "no such mesh": "fit maps --mesh fsaverage99 -o out",
    "a folder as mask": "fit maps {read} --mask empty -o out",
    "a loop as table": "fit maps {read} --participants loop -o out",
    "nobody to exclude": "fit maps {read} --exclude nobody -o out",
    "smoothing": "fit maps {read} --smoothing nan -o out",
    "components": "fit maps {read} --n-components 0 -o out",
    "very many components": f"fit maps {{read}} --n-components 1{'0' * 30} -o out",
    "level": "fit maps {read} --level -1 -o out",
    "seed": "fit maps {read} --random-seed -1 -o out",
    "no such column": "fit maps {read} --covariates age --n-components 2 -o out",
    "a file as output": "fit maps {read} --n-components 2 -o file",
    "a file on the way": "fit maps {read} --n-components 2 -o file/out",
    "a name too long": f"fit maps {{read}} --n-components 2 -o {'x' * 300}",
    "someone else's folder": "fit maps {read} --n-components 2 -o folders --overwrite",
    "no model": "transform maps maps -o new.tsv",
    "a fit without model": "report fit -o out",
    "maps as fit": "report maps -o out",
    "too many ranks": "select maps {read} --ranks 2-999999999999 -o out",
    "maps as store": "prepare maps {read} -o maps",
    "deviations": "prepare maps {read} --limit-outliers --n-deviations nan -o out",
    "no tree": "prepare thickness empty --spheres empty -o out",
    "no subjects": "demo out --n-subjects 0",
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG.keys())
def test_wrong_things_are_refused_and_leave_nothing(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
) -> None:
    monkeypatch.chdir(place)
    before = {str(path) for path in place.rglob("*")}
    assert main([*words.format(read=" ".join(READ)).split(), "-q"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"icofactor {words.split()[0]}: ") and "Errno" not in message
    assert {str(path) for path in place.rglob("*")} == before
    assert (place / "file").read_text() == "mine"


@pytest.mark.parametrize("name", ["-maps", "mäps 地図"])
def test_unusual_names_are_read(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(place)
    words = ["--n-components", "2", "-o", "out", "--dry-run", "--level", "99999999999", "--"]
    assert main(["fit", *READ, *words, name]) == 0
    assert "4 subjects" in capsys.readouterr().out


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_a_reader_that_goes_away_is_no_error_to_speak_of(place: Path) -> None:
    """As in `icofactor fit ... --dry-run | head -1`."""
    words = ["fit", "maps", *READ, "--n-components", "2", "-o", "out", "--dry-run", "-q"]
    source, sink = os.pipe()
    os.close(source)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "icofactor.cli", *words],
            cwd=place,
            stdout=sink,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(sink)
    assert (done.returncode, done.stderr) == (1, "")
