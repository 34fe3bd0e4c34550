"""Plan, then read once: what a plan says, and that no file is read, hashed or searched for NaN twice."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from helpers.trees import freesurfer_tree, gifti_files, hemispheres, names, write_gifti
from icofactor import load_cohort
from icofactor.cli.main import main
from icofactor.cohort import reader as pieces
from icofactor.cohort.load import plan_cohort
from icofactor.cohort.store.create import save_store
from icofactor.errors import ArgumentError, CohortError
from icofactor.preprocessing import covariates

N = 642
IDS = names(6)
RNG = np.random.default_rng(3)
X = (RNG.random((6, 2 * N)) + 2).astype(np.float32)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return freesurfer_tree(tmp_path / "fs", IDS, hemispheres(X), smoothing=10, target="fsaverage3")


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Counter[str]]]:
    """How often each file's maps are read, and how often it is hashed."""
    found: dict[str, Counter[str]] = {"read": Counter(), "hashed": Counter()}
    read, digest = pieces.read_maps, hashlib.file_digest

    def read_maps(path: Path, *given: Any) -> Any:
        found["read"][
            path.name if path.parent.name != "surf" else f"{path.parts[-3]}/{path.name}"
        ] += 1
        return read(path, *given)

    def file_digest(file: Any, *given: Any) -> Any:
        path = Path(file.name)
        found["hashed"][
            path.name if path.parent.name != "surf" else f"{path.parts[-3]}/{path.name}"
        ] += 1
        return digest(file, *given)

    monkeypatch.setattr(pieces, "read_maps", read_maps)
    monkeypatch.setattr(hashlib, "file_digest", file_digest)
    yield found


def once(tree: Path) -> dict[str, int]:
    return {f"{path.parts[-3]}/{path.name}": 1 for path in tree.rglob("*.mgh")}


def test_a_fit_with_participants_and_covariates_reads_every_file_once(
    tree: Path, tmp_path: Path, counts: dict[str, Counter[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    coded: list[Any] = []
    code = covariates.code_terms
    monkeypatch.setattr(
        covariates, "code_terms", lambda *given: coded.append(given) or code(*given)
    )
    monkeypatch.setattr(
        "icofactor.results.fit_cohort.choose_scans", None
    )  # they are chosen on the plan
    people = tmp_path / "people.tsv"
    people.write_text(
        "participant_id\tage\n" + "".join(f"{name}\t{20 + i**2}\n" for i, name in enumerate(IDS))
    )
    words = [
        "fit",
        str(tree),
        "--participants",
        str(people),
        "--covariates",
        "age",
        "-o",
        str(tmp_path / "out"),
    ]
    assert main([*words, "--n-components", "2", "--n-starts", "1", "--no-figures", "-q"]) == 0
    assert (
        counts["read"]
        == once(tree)
        == {name: n for name, n in counts["hashed"].items() if name.endswith(".mgh")}
    )
    assert len(coded) == 1  # for the plan, which hands them on to the fit


def test_a_dry_run_reads_one_file_of_each_hemisphere(
    tree: Path, tmp_path: Path, counts: dict[str, Counter[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["fit", str(tree), "-o", str(tmp_path / "out"), "--n-components", "2", "--dry-run"])
        == 0
    )
    assert "Would read 12 files" in capsys.readouterr().out
    assert counts["read"] == {
        f"sub-001/{side}h.thickness.fwhm10.fsaverage3.mgh": 1 for side in "lr"
    }


def test_bad_first_files_are_read_once_too(tree: Path, counts: dict[str, Counter[str]]) -> None:
    first, second = (
        tree / name / "surf" / "lh.thickness.fwhm10.fsaverage3.mgh" for name in IDS[:2]
    )
    first.write_bytes(b"")
    second.write_bytes(second.read_bytes()[:500])
    with pytest.raises(CohortError) as caught:
        load_cohort(tree)
    assert {path for path, _ in caught.value.problems} == {str(first), str(second)}
    assert set(counts["read"].values()) == {1}


def test_files_of_another_mesh_are_not_held_while_one_that_fits_is_looked_for(
    tmp_path: Path, counts: dict[str, Counter[str]]
) -> None:
    folder = gifti_files(tmp_path, IDS, {"left": X[:, :N]})
    wrong = sorted(folder.iterdir())[:2]
    for path in wrong:
        write_gifti(path, RNG.random(2562) + 1, "left")
    with pytest.raises(CohortError) as caught:
        load_cohort(folder, mesh="fsaverage3")
    assert [path for path, _ in caught.value.problems] == [str(path) for path in wrong]
    assert counts["read"] == {path.name: 1 for path in folder.iterdir()}


def test_stacks_are_read_once(tmp_path: Path, counts: dict[str, Counter[str]]) -> None:
    np.savez(tmp_path / "a.npz", thickness=X[:3], subjects=IDS[:3])
    np.savez(tmp_path / "b.npz", thickness=X[3:], subjects=IDS[3:])
    cohort = load_cohort([tmp_path / "a.npz", tmp_path / "b.npz"])
    assert_array_equal(cohort.X, X)
    assert counts["read"] == {"a.npz": 1, "b.npz": 1} == counts["hashed"]


def test_what_a_plan_says(tree: Path, tmp_path: Path) -> None:
    people = {"participant_id": IDS[:4], "age": [30, 40, 50, 60]}
    plan = plan_cohort(tree, participants=people, exclude=[IDS[1]])
    assert plan.subjects == (IDS[0], IDS[2], IDS[3])
    assert plan.participants["age"].tolist() == [30, 50, 60]
    assert (plan.n_files, plan.n_sites, plan.mesh, plan.hemisphere) == (
        6,
        2 * N,
        "fsaverage3",
        "both",
    )
    assert (plan.stored, plan.lowest) == (False, 0.0)
    cohort = plan.read()
    assert cohort.subjects == plan.subjects
    assert_array_equal(cohort.X, X[[0, 2, 3]])


@pytest.mark.parametrize("kind", ["files", "stack", "store"])
def test_subjects_without_a_needed_value_are_left_out(
    kind: str, tree: Path, tmp_path: Path
) -> None:
    ages = {"age": [30.0, np.nan, 50, 60, 70, 80]}
    path, table = tree, {"participant_id": IDS, **ages}
    if kind == "stack":
        np.savez(tmp_path / "a.npz", thickness=X, subjects=IDS, **ages)
        path, table = tmp_path / "a.npz", None
    elif kind == "store":
        save_store(replace(load_cohort(tree), participants=ages), tmp_path / "store")
        path, table = tmp_path / "store", None
    plan = plan_cohort(
        path, participants=table, needed=["age", "sex"]
    )  # a column that is not there is another matter
    assert plan.subjects == (IDS[0], *IDS[2:])
    assert plan.journal.left_out == {"with missing covariates": [IDS[1]]}
    assert_array_equal(plan.read().X, X[[0, 2, 3, 4, 5]])


def test_a_data_frame_of_participants(tree: Path) -> None:
    import pandas as pd

    table = pd.DataFrame({"subject": IDS[:2], "code": ["007", "012"], "age": [31, None]})
    cohort = load_cohort(tree, participants=table)
    assert cohort.participants["code"].tolist() == ["007", "012"]
    assert_array_equal(cohort.participants["age"], [31, np.nan])


def test_subjects_of_a_store_are_chosen_as_those_of_files(tree: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    whole: Any = load_cohort(tree)
    save_store(whole, store)
    for chosen in ({"participants": IDS[3:0:-1]}, {"exclude": [IDS[0].removeprefix("sub-")]}):
        files, stored = load_cohort(tree, **chosen), load_cohort(store, **chosen)  # type: ignore[arg-type]
        assert files.subjects == stored.subjects
        assert_array_equal(files.X, np.asarray(stored.X))
    with pytest.raises(ArgumentError) as refused:
        load_cohort(store, mask=np.ones(2 * N, dtype=bool))
    assert refused.value.argument == "mask"
