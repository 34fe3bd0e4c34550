"""The demonstration from end to end: every file it writes is read again."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import nibabel as nib
import numpy as np
import pytest

from helpers.commands import run_cli
from icofactor import Cohort, CorticalFactorization, __version__, simulate_cohort
from icofactor.io.publish import LIST, list_of

pytestmark = pytest.mark.slow

MAPS = "hemi-L_space-fsaverage_den-10k_desc-icofactor_components.shape.gii"
WORDS = ["--n-subjects", "12", "--n-components", "3", "--hemisphere", "left"]


@dataclass
class Demo:
    """A demo that ran, and the same fit made without it."""

    folder: Path
    status: int
    cohort: Cohort
    model: CorticalFactorization


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo") / "new" / "out"
    status = run_cli(f"demo {folder}", WORDS, "-q")
    cohort = simulate_cohort(12, 3, "thickness", "left", 0)
    return Demo(folder, status, cohort, CorticalFactorization(3, random_state=0).fit(cohort))


def table(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def test_maps_are_the_components(demo: Demo) -> None:
    from nilearn.surface import load_surf_data

    expected = demo.model.components_.astype(np.float32)
    image = nib.load(demo.folder / MAPS)
    assert image.meta["AnatomicalStructurePrimary"] == "CortexLeft"
    assert [array.meta["Name"] for array in image.darrays] == [
        "component01",
        "component02",
        "component03",
    ]
    np.testing.assert_array_equal(np.stack([array.data for array in image.darrays]), expected)
    np.testing.assert_array_equal(load_surf_data(demo.folder / MAPS), expected.T)


@pytest.mark.skipif(
    shutil.which("wb_command") is None, reason="Connectome Workbench is not installed"
)
def test_workbench_reads_the_maps_of_the_demo(demo: Demo) -> None:
    words = ["wb_command", "-file-information", str(demo.folder / MAPS)]
    answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for expected in ("CortexLeft", "10242", "component03"):
        assert expected in answer


def test_tables_are_the_loadings_and_the_people(demo: Demo) -> None:
    header, *rows = table(demo.folder / "desc-icofactor_loadings.tsv")
    assert header == ["participant_id", "component01", "component02", "component03"]
    assert tuple(row[0] for row in rows) == demo.cohort.subjects
    np.testing.assert_allclose(
        np.array([row[1:] for row in rows], dtype=np.float64), demo.model.loadings_, rtol=1e-9
    )
    header, *rows = table(demo.folder / "desc-icofactor_participants.tsv")
    assert header == ["participant_id", "age", "sex"]
    assert [row[0] for row in rows] == list(demo.cohort.subjects)
    assert [float(row[1]) for row in rows] == list(demo.cohort.participants["age"])
    assert [row[2] for row in rows] == list(demo.cohort.participants["sex"])


def test_provenance_says_how_it_came_about(demo: Demo) -> None:
    assert demo.status == 0
    found = json.loads((demo.folder / "provenance.json").read_text(encoding="utf-8"))
    assert found["data"]["simulated"] is True
    assert found["data"]["n_subjects"] == 12
    assert found["model"]["n_components"] == 3
    assert found["model"]["random_state"] == 0
    assert found["result"]["explained_between_subject_variance"] == demo.model.explained_
    assert found["versions"]["icofactor"] == __version__
    assert {"python", "numpy", "scipy", "scikit-learn", "nibabel", "nilearn"} <= set(
        found["versions"]
    )
    assert all(found["versions"].values())
    description = json.loads((demo.folder / "dataset_description.json").read_text(encoding="utf-8"))
    assert [record["Name"] for record in description["GeneratedBy"]] == ["icofactor"]
    files = {
        path.relative_to(demo.folder).as_posix()
        for path in demo.folder.rglob("*")
        if path.is_file()
    }
    assert set(list_of(demo.folder)) == files - {LIST}


def test_figures_are_vectors_with_text(demo: Demo) -> None:
    folder = demo.folder / "figures"
    assert {path.suffix for path in folder.iterdir()} == {".svg"}
    assert {"maps", "loadings", "trust"} < {path.stem for path in folder.iterdir()}
    for path in folder.iterdir():
        root = ElementTree.parse(path).getroot()
        assert root.findall(".//{http://www.w3.org/2000/svg}text"), path


def test_progress_goes_to_the_error_stream(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = "--n-subjects 4 --n-components 2 --hemisphere right --no-figures"
    assert run_cli(f"demo {tmp_path}/out", few) == 0
    assert not (tmp_path / "out" / "figures").exists()
    out, err = capsys.readouterr()
    assert out.startswith("Cohort(4 subjects")
    assert all(stage in err for stage in ("simulation", "statistics", "starts", "lift", "report"))
