"""`icofactor fit`: the stories of the README, what it refuses, what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import icofactor as ico
from helpers.commands import run_cli
from helpers.trees import freesurfer_tree, hcp_tree, hemispheres, names
from icofactor import Cohort, CorticalFactorization, Covariates, load_model, simulate_cohort
from icofactor.cli.estimate import fit_memory, memory_to_write, pass_memory
from icofactor.cohort.store.create import save_store
from icofactor.results.recurrence_text import in_one_line
from icofactor.results.report.page import Report

README = Path(__file__).parents[2] / "README.md"
QUICK = "--n-components 2 --n-starts 1 --no-figures -q"
TREE = "--measure thickness --smoothing 10 --target fsaverage4"


def story(title: str) -> list[list[str]]:
    """The commands of a story of the README, as a shell splits them."""
    text = README.read_text(encoding="utf-8")
    block = re.search(rf"\*\*{title}\.\*\*.*?```\n(.*?)```", text, re.DOTALL)
    assert block is not None, f"the README has no story {title}"
    lines = [shlex.split(os.path.expandvars(line)) for line in block[1].splitlines()]
    assert all(line[0] == "icofactor" for line in lines)
    return [line[1:] for line in lines]


def table(path: Path) -> tuple[list[str], list[str], np.ndarray]:
    """Header, first column, and the loadings."""
    header, *rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    columns = [i for i, name in enumerate(header) if name.startswith("component")]
    return (
        header,
        [row[0] for row in rows],
        np.array([[row[i] for i in columns] for row in rows], dtype=np.float64),
    )


def with_wall(cohort: Cohort) -> np.ndarray:
    """Maps that are 0 at a medial wall, as FreeSurfer has them."""
    n = cohort.sites.n // 2
    inner = cohort.sites.coordinates[:, 0] * np.where(np.arange(2 * n) < n, 1, -1) > 0.9
    return np.where(inner, 0, cohort.X)


@dataclass
class Files:
    """A SUBJECTS_DIR on fsaverage4, and what is in it."""

    root: Path
    subjects: list[str]
    X: np.ndarray

    @property
    def tree(self) -> Path:
        return self.root / "subjects"

    def participants(self, **columns: Any) -> Path:
        path = self.root / "participants.tsv"
        rows = zip(self.subjects, *columns.values(), strict=True)
        lines = [
            "\t".join(["participant_id", *columns]),
            *("\t".join(map(str, row)) for row in rows),
        ]
        path.write_text("\n".join(lines) + "\n")
        return path

    def fit(self, *options: str) -> int:
        return run_cli(f"fit {self.tree}", TREE, f"-o {self.root}/out", QUICK, *options)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    cohort = simulate_cohort(8, 2, hemisphere="both", mesh="fsaverage4", random_state=2)
    files = Files(tmp_path, names(8), with_wall(cohort))
    freesurfer_tree(files.tree, files.subjects, hemispheres(files.X), target="fsaverage4")
    return files


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No figure and no page, which take longer than all else; the stories draw them."""

    monkeypatch.setattr("icofactor.results.folder.draw_components", lambda fit: b"")
    monkeypatch.setattr("icofactor.results.report.page.draw_report", lambda *more: Report("", {}))


def left_in(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


# ---------------------------------------------------------------------- the stories of the README


@pytest.mark.slow
def test_story_of_freesurfer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = simulate_cohort(16, 3, hemisphere="both", random_state=4)
    X, ids = with_wall(cohort), names(16)
    for variable, rows in (("SUBJECTS_DIR", slice(0, 12)), ("NEW_SUBJECTS_DIR", slice(12, 16))):
        root = freesurfer_tree(tmp_path / variable.lower(), ids[rows], hemispheres(X[rows]))
        freesurfer_tree(
            root, ids[rows], hemispheres(X[rows] + 1), smoothing=20
        )  # -qcache makes several
        freesurfer_tree(root, ids[rows], hemispheres(X[rows] + 2), measure="area")
        (root / "fsaverage5" / "surf").mkdir(parents=True)  # FreeSurfer links it there
        monkeypatch.setenv(variable, str(root))
    monkeypatch.chdir(tmp_path)
    fit, transform = story("FreeSurfer")
    assert run_cli(fit, "-q --n-components 3") == 0
    assert run_cli(transform, "-q") == 0

    model = CorticalFactorization(3, mesh="fsaverage5", hemi="both", mask=X.any(axis=0)).fit(X[:12])
    header, subjects, loadings = table(tmp_path / "out" / "desc-icofactor_loadings.tsv")
    assert header == ["participant_id", "component01", "component02", "component03"]
    assert subjects == ids[:12]
    np.testing.assert_allclose(loadings, model.loadings_, rtol=1e-9, atol=1e-12)
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "out" / "figures" / "maps.svg").stat().st_size > 10_000
    header, subjects, loadings = table(tmp_path / "new_loadings.tsv")
    assert header[:5] == [
        "participant_id",
        "component01",
        "component02",
        "component03",
        "explained_variance",
    ]
    assert subjects == ids[12:]
    np.testing.assert_allclose(loadings, model.transform(X[12:]), rtol=1e-9, atol=1e-12)


def test_story_of_the_hcp(
    data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nibabel as nib

    atlases = tmp_path / "HCPpipelines" / "global" / "templates" / "standard_mesh_atlases"
    atlases.parent.mkdir(parents=True)
    atlases.symlink_to(data_folder / "resample")
    cortex = {
        side: nib.load(atlases / f"{letter}.atlasroi.32k_fs_LR.shape.gii").agg_data() > 0
        for side, letter in (("left", "L"), ("right", "R"))
    }
    with np.load(data_folder / "group_maps_fsLR32k.npz") as archive:
        group = np.nan_to_num(archive["brainspace_thickness"], nan=2.5)
    rng = np.random.default_rng(0)
    trend = np.tile(np.linspace(-1, 1, 32492), 2)
    X = group * (1 + rng.normal(0, 0.1, (5, 1)) * trend + rng.normal(0, 0.01, (5, 64984)))
    ids = names(5, "10{:04d}")
    maps = hemispheres(X)
    hcp_tree(tmp_path / "HCP", ids, maps, cortex, measure="thickness_MSMAll")
    hcp_tree(tmp_path / "HCP", ids, maps, cortex, measure="MyelinMap_BC_MSMAll")
    monkeypatch.chdir(tmp_path)
    prepare, fit = story("Human Connectome Project")
    assert run_cli(prepare, "-q") == 0
    assert run_cli(fit, "-q --n-components 2 --no-figures") == 0
    model = load_model(tmp_path / "out" / "model.zip")
    assert repr(model.sites_) == repr(ico.Sites.named("fsaverage5", hemi="both"))
    assert model.mask_ is not None
    _, subjects, loadings = table(tmp_path / "out" / "desc-icofactor_loadings.tsv")
    assert subjects == ids
    np.testing.assert_allclose(loadings, model.loadings_, rtol=1e-9)
    provenance = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert provenance["cohort"]["modality"] == "thickness"


def test_fs_lr_is_fitted_where_it_lies(tmp_path: Path, data_folder: Path) -> None:
    """An HCP tree without preparation: on fs_LR 32k, with the spheres beside the maps."""
    import nibabel as nib

    sphere = nib.load(data_folder / "resample" / "L.sphere.32k_fs_LR.surf.gii")
    rng = np.random.default_rng(0)
    X = (
        2.5
        + rng.normal(0, 0.3, (4, 1)) * np.linspace(-1, 1, 64984)
        + rng.normal(0, 0.01, (4, 64984))
    )
    tree = hcp_tree(
        tmp_path / "HCP", names(4, "10{:04d}"), hemispheres(X), sphere=sphere.agg_data()
    )
    assert run_cli(f"fit {tree} --measure myelin -o {tmp_path}/out", QUICK) == 0
    assert (tmp_path / "out" / "space-fsLR_den-32k_desc-icofactor_components.dscalar.nii").exists()
    assert (tmp_path / "out" / "report.html").exists()


# ---------------------------------------------------------------------- what is fitted


@pytest.mark.usefixtures("undrawn")
def test_options_reach_the_model(files: Files) -> None:
    words = "--method LE-PPNMF --level 1 --n-starts 3 --polish 1 --engine numpy --random-seed 7"
    assert files.fit(words, "--hemisphere left --exclude sub-002,sub-005") == 0
    model = load_model(files.root / "out" / "model.zip")
    expected: dict[str, Any] = {"method": "LE-PPNMF", "level": 1, "n_starts": 3, "polish": 1}
    expected |= {"engine": "numpy", "random_state": 7}
    assert {name: getattr(model, name) for name in expected} == expected
    assert model.hemi_ == "left"
    assert model.starts_.engine == "numpy"
    _, subjects, _ = table(files.root / "out" / "desc-icofactor_loadings.tsv")
    assert subjects == [name for name in files.subjects if name not in ("sub-002", "sub-005")]


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("center", ["auto", "zscore"])
def test_parts_and_how_far_to_trust_them(
    files: Files, capsys: pytest.CaptureFixture[str], center: str
) -> None:
    words = f"--method parts --center {center} --n-starts 20 --hemisphere left"
    assert files.fit(words) == 0
    printed = capsys.readouterr().out
    out = files.root / "out"
    model = load_model(out / "model.zip")
    assert (model.method, model.center) == ("parts", center)
    assert model.center_ == ("mean" if center == "auto" else "zscore")
    line = in_one_line(model.recurrence_, model.starts_.n_near)
    assert line in printed.splitlines()
    record = json.loads((out / "provenance.json").read_text())["result"]
    assert record["center"] == model.center_
    assert record["n_constant_sites"] == model.n_constant_sites_
    assert record["recurrence"]["other_good_starts"] == model.starts_.n_near
    components = pd.read_table(out / "desc-icofactor_components.tsv")
    np.testing.assert_allclose(components["recurrence"], model.recurrence_, rtol=1e-9)
    shares = components["variance_alone"]
    np.testing.assert_allclose(shares, model.explained_variance_ratio_, rtol=1e-9)


@pytest.mark.usefixtures("undrawn")
def test_the_setting_of_the_paper(files: Files) -> None:
    assert files.fit("--paper --n-starts 2 --hemisphere left") == 0
    model = load_model(files.root / "out" / "model.zip")
    expected = CorticalFactorization.paper(n_components=2, n_starts=2)
    names = [
        "method",
        "rules",
        "columns",
        "level",
        "n_iter",
        "tol",
        "lift",
        "refinement",
        "n_starts",
    ]
    assert [getattr(model, name) for name in names] == [getattr(expected, name) for name in names]


@pytest.mark.usefixtures("undrawn")
def test_covariates_of_the_table(files: Files) -> None:
    table = {"age": [30, 71, 45, 52, 66, 23, 38, 59], "sex": list("FMMFFMFM")}
    people = files.participants(**table)
    assert files.fit(f"--participants {people} --covariates age,sex") == 0
    model = load_model(files.root / "out" / "model.zip")
    mask = files.X.any(axis=0)
    expected = Covariates.fit(files.X.astype(np.float32), ["age", "sex"], table, mask=mask)
    assert model.covariates_.terms == expected.terms
    np.testing.assert_allclose(
        model.covariates_.coefficients, expected.coefficients, rtol=1e-9, atol=1e-12
    )
    assert "sex" in pd.read_table(files.root / "out" / "desc-icofactor_participants.tsv")


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("method", ["DL", "PPNMF --center mean"])
def test_maps_that_may_be_negative_are_not_shifted(files: Files, method: str) -> None:
    people = files.participants(age=range(30, 38))
    words = f"--participants {people} --covariates age --hemisphere left --method {method}"
    assert files.fit(words) == 0
    assert load_model(files.root / "out" / "model.zip").covariates_.shift is None


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Cohort]:
    cohort = simulate_cohort(9, 2, mesh="fsaverage4", random_state=2)
    path = tmp_path_factory.mktemp("stored") / "cohort.store"
    save_store(cohort, path)
    return path, cohort


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("options", "rows", "columns"),
    [
        ("", range(9), []),
        ("--covariates age", range(9), ["age"]),
        ("--participants TABLE --covariates age,dose", range(9), ["age", "dose"]),
        ("--participants TABLE --exclude sub-0008", [3, 0, 1, 5], []),
    ],
)
def test_a_store(
    options: str,
    rows: Sequence[int],
    columns: list[str],
    store: tuple[Path, Cohort],
    tmp_path: Path,
) -> None:
    path, cohort = store
    dose = np.random.default_rng(0).normal(size=9).round(3)
    listed = [3, 0, 7, 1, 5] if "exclude" in options else rows
    table = pd.DataFrame({"participant_id": cohort.subjects, "dose": dose}).iloc[listed]
    table.to_csv(tmp_path / "table.tsv", sep="\t", index=False)
    options = options.replace("TABLE", str(tmp_path / "table.tsv"))
    assert run_cli(f"fit {path} -o {tmp_path}/out", QUICK, options) == 0
    loadings = pd.read_table(tmp_path / "out" / "desc-icofactor_loadings.tsv", index_col=0)
    assert list(loadings.index) == [cohort.subjects[row] for row in rows]
    X: Any = cohort.X[rows]
    if columns:
        people = {"age": np.asarray(cohort.participants["age"])[rows], "dose": dose[rows]}
        X = Covariates.fit(X, columns, people).apply(X, people)
    model = CorticalFactorization(2, n_starts=1, hemi="left").fit(X)
    np.testing.assert_allclose(loadings, model.loadings_, rtol=1e-6, atol=1e-9)


# ---------------------------------------------------------------------- before anything is done


def test_a_dry_run_counts_and_writes_nothing(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    people = files.participants(age=range(30, 38), exclude=[0, 0, 1, 0, 0, 0, 0, 0])
    words = f"--participants {people} --covariates age --exclude sub-008"
    assert files.fit(words, "--dry-run") == 0
    out = capsys.readouterr().out
    for number in ("12 files", "6 subjects", "5124 sites", "2 components"):
        assert number in out
    assert left_in(files.root) == ["participants.tsv", "subjects"]


def test_estimated_memory() -> None:
    """Against measurements."""
    # 50,000 people on two hemispheres of fsaverage6, 20 parts, float16: 1.3 GB
    assert 1.3e9 / 2 < fit_memory(50000, 81924, 20, 640, in_memory=False) < 2 * 1.3e9
    # a store needs no room for X, however large it is
    huge = (20000, 327684, 10, 320)
    assert fit_memory(*huge, in_memory=False) < 0.1 * fit_memory(*huge, in_memory=True)
    # writing 550 subjects on both hemispheres of fsaverage7 from another store: 1.07 GB
    written = pass_memory(550, 327684, in_memory=False) + memory_to_write(550, 327684)
    assert 1.07e9 < written < 1.25 * 1.07e9


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("words", "subject"),
    [
        ("--n-components 0", "--n-components"),
        ("--n-components 9", "--n-components"),
        ("--method NMF", "--method"),
        ("--engine abacus", "--engine"),
        ("--random-seed -1", "--random-seed"),
        ("--level -1", "--level"),
        ("--mesh fsaverage5", "fsaverage5"),
        ("--mask nowhere.label,nowhere.label", "nowhere.label"),
        ("--participants nowhere.tsv", "nowhere.tsv"),
        ("--covariates age", "--covariates"),
        ("--smoothing 15", "fwhm 10"),
    ],
)
def test_bad_words_are_refused(
    words: str, subject: str, files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    assert files.fit(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("icofactor fit: ") and subject in err
    assert left_in(files.root) == ["subjects"]


# ---------------------------------------------------------------------- what is left behind


@pytest.mark.usefixtures("undrawn")
def test_a_fit_is_replaced_only_when_asked_for(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    assert files.fit() == 0
    out = files.root / "out"
    everything = lambda: {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    before = everything()
    (out / "mine.txt").write_text("mine")
    assert files.fit("--n-components 3") == 2
    assert "--overwrite" in capsys.readouterr().err
    assert everything() == {**before, out / "mine.txt": b"mine"}
    assert files.fit("--n-components 3 --hemisphere left --overwrite") == 0
    assert load_model(out / "model.zip").n_components == 3
    assert not list(out.glob("hemi-R*"))
    assert (out / "mine.txt").read_text() == "mine"


@pytest.mark.usefixtures("undrawn")
def test_what_the_fit_warned_of_is_said(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    defaults = CorticalFactorization.__init__.__kwdefaults__ or {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CorticalFactorization.__init__, "__kwdefaults__", {**defaults, "n_iter": 3})
        assert files.fit() == 0
    provenance = json.loads((files.root / "out" / "provenance.json").read_text())
    (warning,) = provenance["warnings"]
    assert f"Warning: {warning}" in capsys.readouterr().out
