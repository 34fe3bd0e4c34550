"""`icofactor associate`: tables, maps and scores of a fit's loadings, or one clear line and nothing written."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

import icofactor as ico
from helpers.commands import run_cli
from helpers.sidecars import undescribed
from icofactor.io.tables import read_table
from icofactor.results.associations import write_associations

N = 40
FEW = "--permutations 99 --bootstrap 50"
ASSOCIATIONS = [f"associations{end}" for end in ("", "_adjusted", "_coefficients", "_expected")]
TABLES = (*ASSOCIATIONS, "pls", "pls_variables", "normative")
MAPS = "hemi-L_space-fsaverage_den-642_desc-icofactor_effects.shape.gii"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit, whose people have age and sex."""
    cohort = ico.simulate_cohort(N, 3, mesh="fsaverage3", random_state=0)
    folder = tmp_path_factory.mktemp("associate") / "fit"
    ico.fit_cohort(cohort, ico.CorticalFactorization(3, n_starts=2, level=1), folder, figures=False)
    return folder


@pytest.fixture(scope="module")
def tables(fitted: Path) -> Path:
    """Tables about these people: more columns, gaps, behaviour."""
    folder = fitted.parent
    names = read_table(fitted / "desc-icofactor_loadings.tsv")[0]["participant_id"]
    people = {"participant_id": names[::-1], "iq": [90 + i % 13 for i in range(N)]}
    people["group"] = ["control" if i % 3 else "patient" for i in range(N)]
    people["family"] = [str(i // 2) for i in range(N)]
    people |= {"double": [2 * iq for iq in people["iq"]], "study": ["one"] * N}
    people["arm"] = ["b" if i % 3 and i % 2 else "a" for i in range(N)]
    write(folder / "people.tsv", people)
    write(folder / "gaps.tsv", {**people, "iq": ["n/a", *people["iq"][1:]]})
    write(folder / "twice.tsv", {name: [*values, values[0]] for name, values in people.items()})
    write(folder / "strangers.tsv", {**people, "participant_id": [f"x{i}" for i in range(N)]})
    write(folder / "nameless.tsv", {"iq": people["iq"]})
    write(
        folder / "behaviour.tsv",
        {"participant_id": names, "memory": range(N), "speed": [i % 7 for i in range(N)]},
    )
    return folder


def write(path: Path, columns: dict[str, Any]) -> None:
    rows = zip(*columns.values(), strict=True)
    path.write_text(
        "\n".join(["\t".join(columns), *("\t".join(map(str, row)) for row in rows)]) + "\n"
    )


def test_tables_and_maps(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    contrast = ["--contrast", "age: 60 - 30"]
    assert run_cli(f"associate {fitted} --formula age+sex -o {out}", FEW, contrast) == 0
    table = read_table(out / "associations.tsv")[0]
    assert table["kind"] == ["term"] * 6 + ["contrast"] * 3
    assert table["term"] == ["age"] * 3 + ["sex"] * 3 + ["age: 60 - 30"] * 3
    model = ico.load_model(fitted / "model.zip")
    people = read_table(fitted / "desc-icofactor_participants.tsv")[0]
    associations = ico.associate(
        model, people, "age + sex", contrast="age: 60 - 30", n_permutations=99
    )
    for column in ("estimate", "p_corrected", "p_corrected_all"):
        expected = np.concatenate([associations.table[column], associations.contrasts[column]])
        np.testing.assert_allclose(np.array(table[column], dtype=float), expected, rtol=1e-8)
    record = json.loads((out / "associations.json").read_text(encoding="utf-8"))
    assert (
        set(table) <= set(record)
        and record["cells"]["sex"] == associations.settings["cells"]["sex"]
    )
    assert record["loadings"]["sha256"] and record["formula"] == "age+sex"
    assert read_table(out / "associations_coefficients.tsv")[0]["column"][3:6] == ["age"] * 3
    expected = read_table(out / "associations_expected.tsv")[0]["column"]
    assert expected.count("sex") == 2 * 3 and expected.count("age") == 50 * 3
    adjusted = read_table(out / "associations_adjusted.tsv")[0]
    assert adjusted["participant_id"] == 2 * people["participant_id"]
    assert adjusted["value"][N:] == people["sex"]
    np.testing.assert_allclose(
        np.array(adjusted["component02"][:N], dtype=float), associations.adjusted("age")[1][:, 1]
    )
    maps = nib.load(out / MAPS)
    assert [array.metadata["Name"] for array in maps.darrays] == ["age", "sex", "age: 60 - 30"]
    expected = associations.table["estimate"][:3] @ model.components_
    np.testing.assert_allclose(maps.darrays[0].data, expected.astype(np.float32))


def test_behaviour_reference_and_families(fitted: Path, tables: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = f"associate {fitted} --participants {tables}/people.tsv -o {out} -q --formula group"
    options = f"--pls {tables}/behaviour.tsv --reference group=control --smooth iq=3"
    assert run_cli(words, "--groups family", options, FEW) == 0
    assert json.loads((out / "associations.json").read_text())["n_groups"] == N // 2
    assert set(read_table(out / "associations.tsv")[0]["term"]) == {"s(iq)", "group"}
    assert read_table(out / "pls.tsv")[0]["latent_variable"] == ["1", "2"]
    assert read_table(out / "pls_variables.tsv")[0]["variable"][-2:] == ["memory", "speed"]
    assert (out / "pls.png").stat().st_size > 1000
    scores = read_table(out / "normative.tsv")[0]
    loadings = read_table(fitted / "desc-icofactor_loadings.tsv")[0]
    assert scores["participant_id"] == loadings["participant_id"]
    assert scores["reference"].count("1") == N - 14 and "s(iq)" not in scores
    written = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    tables_written = {f"{name}{end}" for name in TABLES for end in (".tsv", ".json")}
    assert written == {*tables_written, MAPS, "pls.png"}
    assert not undescribed(out)


def test_a_table_of_loadings_with_sessions(fitted: Path, tmp_path: Path) -> None:
    """Two scans of each: rows are joined by participant and session, and people are groups."""
    loadings = read_table(fitted / "desc-icofactor_loadings.tsv")[0]
    names = [name for name in loadings["participant_id"] for _ in "ab"]
    sessions = ["ses-1", "ses-2"] * N
    values = {
        c: [float(v) + 0.1 * i for v in loadings[c] for i in (0, 1)] for c in list(loadings)[1:]
    }
    write(tmp_path / "scans.tsv", {"participant_id": names, "session_id": sessions, **values})
    order = np.random.default_rng(0).permutation(2 * N)
    ages = [20 + i % 31 for i in range(2 * N)]
    table = {"participant_id": names, "session_id": sessions, "age": ages}
    shuffled = {name: [column[i] for i in order] for name, column in table.items()}
    write(tmp_path / "ages.tsv", shuffled)
    options = {"participants": tmp_path / "ages.tsv", "n_permutations": 50}
    written_files = write_associations(tmp_path / "scans.tsv", tmp_path / "out", "age", **options)
    assert (
        written_files.associations is not None
        and written_files.associations.settings["n_groups"] == N
    )
    np.testing.assert_array_equal(written_files.associations.design.X[:, 1], table["age"])
    names = [f"{name}{end}" for name in ASSOCIATIONS for end in (".json", ".tsv")]
    assert [file.name for file in written_files.files] == names


def test_results_join_the_fit_and_leave_with_it(
    fitted: Path,
    tables: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("icofactor.results.comparison.draw_pairs", lambda *_: None)  # slow
    copy = tmp_path / "fit"
    shutil.copytree(fitted, copy)
    words = f"associate {copy} --formula age {FEW} -q"
    assert run_cli(words) == 0 and (copy / MAPS).is_file()
    assert run_cli(words) == 2 and "--overwrite" in capsys.readouterr().err
    assert run_cli(words, "--overwrite") == 0
    options = f"--pls {tables}/behaviour.tsv --reference sex=F --formula age --overwrite"
    assert run_cli(f"associate {copy}", options, FEW, "-q") == 0
    assert run_cli(f"compare {copy} {fitted} -o {copy} --spins 2 -q") == 0

    def additions() -> set[str]:
        kinds = ("associations", "effects", "pls", "normative", "comparison")
        return {kind for kind in kinds if list(copy.glob(f"*{kind}*"))}

    assert len(additions()) == 5
    cohort = ico.simulate_cohort(20, 3, mesh="fsaverage3", random_state=1)
    model = ico.CorticalFactorization(3, n_starts=2, level=1)
    ico.fit_cohort(cohort, model, copy, figures=False, overwrite=True)
    assert not additions()


# Words after `associate FIT`, and the option, column or file that the error is about.
BAD = [
    ("--formula agee", "'agee'"),
    ("--formula __import__('os').system('true')", "--formula"),
    ("--formula age --groups family", "'family'"),
    ("--formula age --contrast sex:F-M", "--contrast"),
    ("--formula age --permutations -1", "--permutations"),
    ("--formula age --smooth age=x", "--smooth"),
    ("--formula age --random-seed -1", "--random-seed"),
    ("--formula iq+double --participants people.tsv", "double"),
    ("--formula iq+study --participants people.tsv", "study"),
    ("--formula group:arm --participants people.tsv", "arm"),
    ("--formula iq --participants gaps.tsv", "--missing-covariates skip"),
    ("--formula iq --participants twice.tsv", "twice.tsv"),
    ("--formula iq --participants strangers.tsv", "strangers.tsv"),
    ("--formula iq --participants nameless.tsv", "participant_id"),
    ("--formula iq --participants nowhere.tsv", "nowhere.tsv"),
    ("--pls people.tsv", "--pls"),
    ("--reference sex=Q", "--reference"),
    ("--reference group", "--reference"),
    ("", "--formula"),
]


@pytest.mark.parametrize(("words", "subject"), BAD)
def test_bad_input_is_one_line_and_nothing_written(
    words: str,
    subject: str,
    fitted: Path,
    tables: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = re.sub(r"(\w+\.tsv)", rf"{tables}/\1", words)
    assert run_cli(f"associate {fitted}", words, f"-o {tmp_path}/out") == 2
    message = capsys.readouterr().err
    assert message.startswith("icofactor associate: ") and message.count("\n") == 1
    assert subject in message
    assert not (tmp_path / "out").exists()


def test_what_is_not_a_fit(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.tsv").write_text("a\tb\n1\t2\n")
    for folder in ("empty", "notes.tsv", "nowhere", str(fitted / "model.zip")):
        assert run_cli(f"associate {tmp_path}/{folder} --formula age -o {tmp_path}/out") == 2
        assert capsys.readouterr().err.count("\n") == 1
    write(tmp_path / "loadings.tsv", {"participant_id": ["a"], "component01": [1]})
    assert run_cli(f"associate {tmp_path}/loadings.tsv --formula age") == 2
