"""The demonstration from end to end: every file it writes is read again."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from icofactor import Cohort, CorticalFactorization, __version__, load_model, simulate_cohort
from icofactor.cli.demo import run_demo
from icofactor.cli.main import main
from icofactor.io.publish import LIST, Publication, list_of

pytestmark = pytest.mark.slow

MAPS = "hemi-L_space-fsaverage_den-10k_desc-icofactor_components.shape.gii"
PARCELS = MAPS.replace("components.shape.gii", "dseg")
FILES = [
    "components.png",
    "dataset_description.json",
    "desc-icofactor_components.json",
    "desc-icofactor_components.tsv",
    "desc-icofactor_dseg.json",
    "desc-icofactor_dseg.tsv",
    "desc-icofactor_loadings.json",
    "desc-icofactor_loadings.tsv",
    "desc-icofactor_participants.json",
    "desc-icofactor_participants.tsv",
    "diagnostics.npz",
    "figures",
    MAPS,
    f"{PARCELS}.annot",
    f"{PARCELS}.label.gii",
    "methods.md",
    "model.zip",
    "provenance.json",
    "report.html",
    "tables",
]
PANELS = [
    *("components", "convergence", "explained_variance", "loadings", "maps", "participants-01_sex", "recurrence"),
    *("participants-02_age", "similarity", "sparsity", "subjects"),
]
TABLES = [
    f"{name}.{end}"
    for name in [
        "convergence",
        "correlations",
        "groups",
        "resources",
        "settings",
        "similarity",
        "sparsity",
        "subjects",
        "summary",
        "unusual",
    ]
    for end in ("json", "tsv")
]
FIGURES = [
    f"{name}.{ending}" for name in PANELS for ending in ("png", "pdf") if name != "components" or ending == "pdf"
]
WORDS = ["--n-subjects", "12", "--n-components", "3", "--hemisphere", "left"]


@dataclass
class Demo:
    """A demo that ran, what it said, and the same fit made without it."""

    folder: Path
    status: int
    said: str
    cohort: Cohort
    model: CorticalFactorization


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    folder = tmp_path_factory.mktemp("demo") / "new" / "out"
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = main(["demo", str(folder), *WORDS, "-q"])
    cohort = simulate_cohort(12, 3, "thickness", "left", 0)
    return Demo(folder, status, said.getvalue(), cohort, CorticalFactorization(3, random_state=0).fit(cohort))


def table(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def test_it_says_what_it_wrote(demo: Demo) -> None:
    assert demo.status == 0
    assert sorted(file.name for file in demo.folder.iterdir()) == [LIST, *FILES]
    listed = demo.said[demo.said.index("Written to") :].splitlines()
    assert listed[0] == f"Written to {demo.folder}:"
    inner = {"figures": FIGURES, "tables": TABLES}
    shown = [f"{name}/ ({len(inner[name])} files)" if name in inner else name for name in FILES]
    assert [line.strip() for line in listed[1:-1]] == shown
    assert listed[-1].endswith(f"Open {demo.folder / 'report.html'}")
    assert f"explain {100 * demo.model.explained_:.0f} % of the between-subject variance" in demo.said
    assert "50 % of the between-subject variance is simulated noise." in demo.said


def test_maps_are_the_components(demo: Demo) -> None:
    from nilearn.surface import load_surf_data

    expected = demo.model.components_.astype(np.float32)
    image = nib.load(demo.folder / MAPS)
    assert image.meta["AnatomicalStructurePrimary"] == "CortexLeft"
    assert [array.meta["Name"] for array in image.darrays] == ["component01", "component02", "component03"]
    np.testing.assert_array_equal(np.stack([array.data for array in image.darrays]), expected)
    np.testing.assert_array_equal(load_surf_data(demo.folder / MAPS), expected.T)


@pytest.mark.skipif(shutil.which("wb_command") is None, reason="Connectome Workbench is not installed")
def test_workbench_reads_the_maps_of_the_demo(demo: Demo) -> None:
    words = ["wb_command", "-file-information", str(demo.folder / MAPS)]
    answer = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for expected in ("CortexLeft", "10242", "component03"):
        assert expected in answer


def test_tables_are_the_loadings_and_the_people(demo: Demo) -> None:
    header, *rows = table(demo.folder / "desc-icofactor_loadings.tsv")
    assert header == ["participant_id", "component01", "component02", "component03"]
    assert tuple(row[0] for row in rows) == demo.cohort.subjects
    np.testing.assert_allclose(np.array([row[1:] for row in rows], dtype=np.float64), demo.model.loadings_, rtol=1e-9)
    header, *rows = table(demo.folder / "desc-icofactor_participants.tsv")
    assert header == ["participant_id", "age", "sex"]
    assert [row[0] for row in rows] == list(demo.cohort.subjects)
    assert [float(row[1]) for row in rows] == list(demo.cohort.participants["age"])
    assert [row[2] for row in rows] == list(demo.cohort.participants["sex"])


def test_provenance_says_how_it_came_about(demo: Demo) -> None:
    found = json.loads((demo.folder / "provenance.json").read_text(encoding="utf-8"))
    assert found["data"]["simulated"] is True
    assert found["data"]["n_subjects"] == 12
    assert found["model"]["n_components"] == 3
    assert found["model"]["random_state"] == 0
    assert found["result"]["explained_between_subject_variance"] == demo.model.explained_
    assert found["versions"]["icofactor"] == __version__
    assert {"python", "numpy", "scipy", "scikit-learn", "nibabel", "nilearn"} <= set(found["versions"])
    assert all(found["versions"].values())
    description = json.loads((demo.folder / "dataset_description.json").read_text(encoding="utf-8"))
    assert [record["Name"] for record in description["GeneratedBy"]] == ["icofactor"]
    inside = [*(f"figures/{name}" for name in FIGURES), *(f"tables/{name}" for name in TABLES)]
    flat = [name for name in FILES if name not in ("figures", "tables")]
    assert list(list_of(demo.folder)) == sorted([*flat, *inside])


def test_the_model_can_be_used(demo: Demo) -> None:
    model = load_model(demo.folder / "model.zip")
    np.testing.assert_array_equal(model.components_, demo.model.components_)
    others = simulate_cohort(14, 3, "thickness", "left", 0)
    np.testing.assert_array_equal(model.transform(others), demo.model.transform(others))
    np.testing.assert_allclose(model.transform(demo.cohort), model.loadings_, rtol=1e-6, atol=1e-9)


def test_every_panel_is_drawn_for_print(demo: Demo) -> None:
    from matplotlib.image import imread

    folder = demo.folder / "figures"
    found = sorted(re.sub(r"participants-0\d", "participants-0x", path.name) for path in folder.iterdir())
    assert found == sorted(re.sub(r"participants-0\d", "participants-0x", name) for name in FIGURES)
    for path in (demo.folder / "components.png", *folder.glob("*.png")):
        image = imread(path)[..., :3]
        drawn = (image < 0.9).any(axis=2)
        assert min(image.shape[:2]) > 300, path
        assert 0.005 < drawn.mean() < 0.9, path
        assert np.ptp(image, axis=2).max() > 0.3, path
        for border in (drawn[0], drawn[-1], drawn[:, 0], drawn[:, -1]):  # nothing is cut off
            assert not border.any(), path
    for path in folder.glob("*.pdf"):
        data = path.read_bytes()
        assert data.startswith(b"%PDF-1."), path
        assert data.rstrip().endswith(b"%%EOF"), path
        assert data.count(b"/Type /Page\n") + data.count(b"/Type /Page ") == 1, path
    # one row of maps per component, in all views
    image = imread(demo.folder / "components.png")[..., :3]
    coloured = (np.ptp(image, axis=2) > 0.3).any(axis=1)
    rows = np.flatnonzero(np.diff(coloured.astype(int)) == 1)
    assert len(rows) >= 3


def test_same_seed_same_bits(demo: Demo, tmp_path: Path) -> None:
    run_demo(tmp_path, n_subjects=12, n_components=3, hemisphere="left", figures=False, verbose=False)
    for name in (MAPS, "desc-icofactor_loadings.tsv", "desc-icofactor_participants.tsv", "desc-icofactor_dseg.tsv"):
        assert (tmp_path / name).read_bytes() == (demo.folder / name).read_bytes()
    again, first = load_model(tmp_path / "model.zip"), load_model(demo.folder / "model.zip")
    assert again.components_.tobytes() == first.components_.tobytes()


def test_overwriting_replaces_the_earlier_run_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icofactor.results.folder.drawn_panels", one_panel)
    first = ["demo", str(tmp_path), "-q", "--n-subjects", "4", "--n-components", "2"]
    assert main(first) == 0
    assert MAPS.replace("hemi-L", "hemi-R") in capsys.readouterr().out
    for mine in (tmp_path / "mine.txt", tmp_path / "figures" / "mine.txt"):
        mine.write_text("mine")
    with Publication(tmp_path, overwrite=True).filled() as new:
        (new / "figures").mkdir()
        for name in ("stability.pdf", "components.png"):
            (new / "figures" / name).write_text("of icofactor report")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert main(first) == 2
    assert capsys.readouterr().err.endswith("exists; pass --overwrite to replace it\n")
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    assert main([*first, "--overwrite", "--hemisphere", "left", "--no-figures"]) == 0
    out = capsys.readouterr().out
    assert "hemi-R" not in out
    assert "mine.txt" not in out
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([LIST, *FILES, "mine.txt"])
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert [file.name for file in (tmp_path / "figures").iterdir()] == ["mine.txt"]
    assert len(load_model(tmp_path / "model.zip").components_[0]) == 10242


def one_panel(fit: object) -> list[tuple[str, bytes, float]]:
    return [("maps.png", b"", 1.0)]


def test_progress_goes_to_the_error_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--n-subjects", "4", "--n-components", "2", "--hemisphere", "right", "--no-figures"]
    assert main(["demo", str(tmp_path / "out"), *few]) == 0
    assert not (tmp_path / "out" / "figures").exists()
    out, err = capsys.readouterr()
    assert out.startswith("Cohort(4 subjects")
    assert all(stage in err for stage in ("simulation", "statistics", "starts", "lift", "figure"))
