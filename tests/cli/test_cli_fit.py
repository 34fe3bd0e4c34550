"""`icofactor fit`: the stories of the README, what it refuses, what it leaves behind."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers.commands import run_cli
from helpers.trees import freesurfer_tree, hcp_tree, hemispheres, names
from icofactor import Cohort, CorticalFactorization, Covariates, load_model, simulate_cohort
from icofactor.cli.estimate import fit_memory, in_bytes, memory_to_write, pass_memory
from icofactor.cohort.store.create import save_store
from icofactor.results.recurrence_text import in_one_line
from icofactor.results.report.page import Report

README = Path(__file__).parents[2] / "README.md"
QUICK = ["--n-components", "2", "--n-starts", "1", "--no-figures", "-q"]
TREE = ["--measure", "thickness", "--smoothing", "10", "--target", "fsaverage4"]


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
    chosen = [i for i, name in enumerate(header) if name.startswith("component")]
    return (
        header,
        [row[0] for row in rows],
        np.array([[row[i] for i in chosen] for row in rows], dtype=np.float64),
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

    def file(self, number: int, side: str = "lh") -> Path:
        return (
            self.tree / self.subjects[number] / "surf" / f"{side}.thickness.fwhm10.fsaverage4.mgh"
        )

    def participants(self, **columns: Any) -> Path:
        path = self.root / "participants.tsv"
        rows = zip(self.subjects, *columns.values(), strict=True)
        lines = [
            "\t".join(["participant_id", *columns]),
            *("\t".join(map(str, row)) for row in rows),
        ]
        path.write_text("\n".join(lines) + "\n")
        return path

    def fit(self, *more: str) -> int:
        return run_cli(f"fit {self.tree}", TREE, f"-o {self.root}/out", QUICK, more)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    cohort = simulate_cohort(8, 2, hemisphere="both", mesh="fsaverage4", random_state=2)
    found = Files(tmp_path, names(8), with_wall(cohort))
    freesurfer_tree(found.tree, found.subjects, hemispheres(found.X), target="fsaverage4")
    return found


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
    words = ["fit", str(tree), "--measure", "myelin", "-o", str(tmp_path / "out"), *QUICK]
    assert run_cli(words) == 0
    assert (tmp_path / "out" / "space-fsLR_den-32k_desc-icofactor_components.dscalar.nii").exists()
    assert (tmp_path / "out" / "report.html").exists()


# ---------------------------------------------------------------------- what is fitted


@pytest.mark.usefixtures("undrawn")
def test_options_reach_the_model(files: Files) -> None:
    words = [
        "--method",
        "LE-PPNMF",
        "--level",
        "1",
        "--n-starts",
        "3",
        "--polish",
        "1",
        "--engine",
        "numpy",
    ]
    assert (
        files.fit(
            *words, "--random-seed", "7", "--hemisphere", "left", "--exclude", "sub-002,sub-005"
        )
        == 0
    )
    model = load_model(files.root / "out" / "model.zip")
    expected = {
        "method": "LE-PPNMF",
        "level": 1,
        "n_starts": 3,
        "polish": 1,
        "engine": "numpy",
        "random_state": 7,
    }
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
    assert (
        files.fit(
            "--method", "parts", "--center", center, "--n-starts", "20", "--hemisphere", "left"
        )
        == 0
    )
    said = capsys.readouterr().out
    out = files.root / "out"
    model = load_model(out / "model.zip")
    assert (model.method, model.center, model.center_) == (
        "parts",
        center,
        "mean" if center == "auto" else "zscore",
    )
    line = in_one_line(model.recurrence_, model.starts_.n_near)
    assert line in said.splitlines()
    found = json.loads((out / "provenance.json").read_text())["result"]
    assert found["center"] == model.center_
    assert found["n_constant_sites"] == model.n_constant_sites_
    assert found["recurrence"]["summary"] == line
    assert found["recurrence"]["other_good_starts"] == model.starts_.n_near
    header, *rows = (
        row.split("\t") for row in (out / "desc-icofactor_components.tsv").read_text().splitlines()
    )
    assert header[:5] == ["component", "variance_alone", "variance_unique", "extent", "recurrence"]
    read = [np.nan if row[4] == "n/a" else float(row[4]) for row in rows]
    np.testing.assert_allclose(read, model.recurrence_, rtol=1e-9)
    np.testing.assert_allclose(
        [float(row[1]) for row in rows], model.explained_variance_ratio_, rtol=1e-9
    )


@pytest.mark.usefixtures("undrawn")
def test_the_setting_of_the_paper(files: Files) -> None:
    assert files.fit("--paper", "--n-starts", "2", "--hemisphere", "left") == 0
    model = load_model(files.root / "out" / "model.zip")
    literal = CorticalFactorization.paper(n_components=2, n_starts=2)
    for name in (
        "method",
        "rules",
        "columns",
        "level",
        "n_iter",
        "tol",
        "lift",
        "refinement",
        "n_starts",
    ):
        assert getattr(model, name) == getattr(literal, name)


@pytest.mark.usefixtures("undrawn")
def test_covariates_of_the_table(files: Files) -> None:
    age, sex = [30, 71, 45, 52, 66, 23, 38, 59], ["F", "M", "M", "F", "F", "M", "F", "M"]
    people = files.participants(age=age, sex=sex)
    assert files.fit("--participants", str(people), "--covariates", "age,sex") == 0
    model = load_model(files.root / "out" / "model.zip")
    mask = files.X.any(axis=0)
    covariates = Covariates.fit(
        files.X.astype(np.float32), ["age", "sex"], {"age": age, "sex": sex}, mask=mask
    )
    assert model.covariates_.terms == covariates.terms
    np.testing.assert_allclose(
        model.covariates_.coefficients, covariates.coefficients, rtol=1e-9, atol=1e-12
    )
    assert (
        "sex"
        in (files.root / "out" / "desc-icofactor_participants.tsv").read_text().splitlines()[0]
    )


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("options", [["--method", "DL"], ["--method", "PPNMF", "--center", "mean"]])
def test_maps_that_may_be_negative_are_not_shifted(files: Files, options: list[str]) -> None:
    people = files.participants(age=range(30, 38))
    words = ["--participants", str(people), "--covariates", "age", "--hemisphere", "left", *options]
    assert files.fit(*words) == 0
    assert load_model(files.root / "out" / "model.zip").covariates_.shift is None


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Cohort]:
    cohort = simulate_cohort(9, 2, mesh="fsaverage4", random_state=2)
    path = tmp_path_factory.mktemp("stored") / "cohort.store"
    save_store(cohort, path)
    return path, cohort


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("case", ["whole", "covariates", "table", "selected"])
def test_a_store(case: str, stored: tuple[Path, Cohort], tmp_path: Path) -> None:
    path, cohort = stored
    people = tmp_path / "table.tsv"
    rows = [3, 0, 7, 1, 5] if case == "selected" else list(range(9))
    dose = np.random.default_rng(0).normal(size=9).round(3)
    people.write_text(
        "participant_id\tdose\n" + "".join(f"{cohort.subjects[i]}\t{dose[i]}\n" for i in rows)
    )
    words = {
        "whole": [],
        "covariates": ["--covariates", "age"],
        "table": ["--participants", str(people), "--covariates", "age,dose"],
        "selected": ["--participants", str(people), "--exclude", cohort.subjects[7]],
    }[case]
    assert run_cli(f"fit {path} -o {tmp_path}/out", QUICK, words) == 0
    _, subjects, loadings = table(tmp_path / "out" / "desc-icofactor_loadings.tsv")
    kept = [i for i in rows if not (case == "selected" and i == 7)]
    assert subjects == [cohort.subjects[i] for i in kept]
    columns = {"age": np.asarray(cohort.participants["age"])[kept], "dose": dose[kept]}
    taken = {"whole": [], "covariates": ["age"], "table": ["age", "dose"], "selected": []}[case]
    X: Any = cohort.X[kept]
    if taken:
        X = Covariates.fit(X, taken, columns).apply(X, columns)
    model = CorticalFactorization(2, n_starts=1, hemi="left").fit(X)
    np.testing.assert_allclose(loadings, model.loadings_, rtol=1e-6, atol=1e-9)


# ---------------------------------------------------------------------- before anything is done


def test_a_dry_run_counts_and_writes_nothing(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    people = files.participants(age=range(30, 38), exclude=[0, 0, 1, 0, 0, 0, 0, 0])
    assert (
        files.fit(
            "--dry-run",
            "--participants",
            str(people),
            "--covariates",
            "age",
            "--exclude",
            "sub-008",
        )
        == 0
    )
    out = capsys.readouterr().out
    for number in ("12 files", "6 subjects", "5124 sites", "2 components"):
        assert number in out
    assert left_in(files.root) == ["participants.tsv", "subjects"]


def test_estimated_memory() -> None:
    small = fit_memory(100, 10242, 10, 320, in_memory=True)
    for larger in (
        (200, 10242, 10, 320),
        (100, 40962, 10, 320),
        (100, 10242, 20, 320),
        (100, 10242, 10, 1280),
    ):
        assert fit_memory(*larger, in_memory=True) > small
    assert small - fit_memory(100, 5242, 10, 320, in_memory=True) == 5000 * (8 * 100 + 52 * 10)
    # a store needs no room for X, however large it is
    huge = (20000, 327684, 10, 320)
    assert fit_memory(*huge, in_memory=False) < 0.1 * fit_memory(*huge, in_memory=True)
    # 50,000 people on two hemispheres of fsaverage6, 20 parts, float16: 1.3 GB were measured
    assert 1.3e9 / 2 < fit_memory(50000, 81924, 20, 640, in_memory=False) < 2 * 1.3e9
    # writing 550 subjects on both hemispheres of fsaverage7 from another store: 1.07 GB were measured
    written = pass_memory(550, 327684, in_memory=False) + memory_to_write(550, 327684)
    assert 1.07e9 < written < 1.25 * 1.07e9
    assert memory_to_write(60, 2562) == 0
    assert [in_bytes(n) for n in (2048, 5 * 2**20, 3 * 2**29)] == ["2 kiB", "5 MiB", "1.5 GiB"]


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--n-components", "0"], "--n-components must be a whole number ≥ 1; found 0"),
        (["--n-components", "9"], "--n-components 9 is more than the 8 subjects"),
        (["--method", "NMF"], "NMF"),
        (["--engine", "abacus"], "abacus"),
        (["--random-seed", "-1"], "--random-seed"),
        (["--level", "-1"], "--level must be a whole number ≥ 0"),
        (["--mesh", "fsaverage5"], "2562 vertices"),
        (["--mask", "nowhere.label,nowhere.label"], "nowhere.label"),
        (["--participants", "nowhere.tsv"], "nowhere.tsv"),
        (["--covariates", "age"], "Covariate 'age' needs --participants"),
        (["--smoothing", "15"], "fwhm 10"),
    ],
)
def test_bad_words_are_refused(
    words: list[str], message: str, files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    assert files.fit(*words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("icofactor fit: ")
    assert message in err
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
    assert files.fit("--n-components", "3") == 2
    assert capsys.readouterr().err.endswith("exists; pass --overwrite to replace it\n")
    assert everything() == {**before, out / "mine.txt": b"mine"}
    assert files.fit("--n-components", "3", "--hemisphere", "left", "--overwrite") == 0
    assert load_model(out / "model.zip").n_components == 3
    assert not list(out.glob("hemi-R*"))
    assert (out / "mine.txt").read_text() == "mine"


@pytest.mark.usefixtures("undrawn")
def test_what_the_fit_warned_of_is_said(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CorticalFactorization.__init__, "__kwdefaults__", {
            **(CorticalFactorization.__init__.__kwdefaults__ or {}), "n_iter": 3,
        })  # fmt: skip
        assert files.fit() == 0
    assert (
        "Warning: The fit ended after 3 updates, before its objective converged"
        in capsys.readouterr().out
    )
    provenance = json.loads((files.root / "out" / "provenance.json").read_text())
    assert any("ended after 3 updates" in text for text in provenance["warnings"])
