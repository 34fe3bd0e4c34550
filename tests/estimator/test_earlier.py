"""A fit of a store that has grown, from an earlier fit: the same as a fit of all people, with less to read."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from icofactor import CorticalFactorization
from icofactor.cli.main import main
from icofactor.cohort.store import append_store, create_store, open_store
from icofactor.errors import ArgumentError, CheckpointError
from icofactor.streaming import source as sources
from icofactor.streaming.checkpoint import Checkpoint

N_OLD, N_NEW = 30, 12


@pytest.fixture(scope="module")
def cohort() -> ico.Cohort:
    found = ico.simulate_cohort(N_OLD + N_NEW, 4, mesh="fsaverage3", random_state=3)
    mask = np.ones(found.sites.n, dtype=bool)
    mask[100:130] = False
    shift = np.where(np.arange(N_OLD + N_NEW) < N_OLD, 0, 0.3)[:, None]  # waves differ in their mean map
    return replace(found, X=(found.X + shift).astype(np.float32), mask=mask, truth=None)


@pytest.fixture(params=["float32", "float16"])
def grown(request: pytest.FixtureRequest, cohort: ico.Cohort, tmp_path: Path) -> Any:
    """The store of the first wave, and with the second."""
    kept = {"dtype": request.param, "chunk_sites": 100, "chunk_subjects": 8}
    first = create_store(tmp_path / "store", [cohort[:N_OLD]], **kept)
    return first, append_store(tmp_path / "store", cohort[N_OLD:])


ONE_TYPE = pytest.mark.parametrize("grown", ["float32"], indirect=True)


def model(**changes: Any) -> CorticalFactorization:
    return CorticalFactorization(4, **{"level": 1, "n_starts": 10, "random_state": 5, **changes})


def assert_close(found: Any, whole: Any) -> None:
    for name in ("components_", "loadings_", "mean_", "error_", "total_variance_", "explained_"):
        a, b = np.asarray(getattr(found, name)), np.asarray(getattr(whole, name))
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10 * np.abs(b).max(), err_msg=name)
    for name in ("L", "root_L", "energy", "sq_norm"):
        a, b = (np.asarray(getattr(one.refined_.stats, name)) for one in (found, whole))
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max(), err_msg=name)


SETTINGS = [
    {},
    {"weights": "area"},
    {"lift": False},
    {"method": "CD-PNNMF", "refinement": None},
    {"method": "LE-PPNMF", "refinement": None, "n_iter": 300},
]


@pytest.mark.parametrize("changes", SETTINGS, ids=str)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_an_update_is_a_fit_of_all_people(grown: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    before, after = grown
    model(**changes).fit(before).save(tmp_path / "model.zip")
    earlier = ico.load_model(tmp_path / "model.zip")
    found, whole = model(**changes).fit(after, earlier=earlier), model(**changes).fit(after)
    assert_close(found, whole)
    n_lifts = whole.passes_ - 1
    assert n_lifts == 0 if changes.get("lift") is False else n_lifts >= 1
    np.testing.assert_allclose(found.passes_, N_NEW / (N_OLD + N_NEW) + n_lifts, atol=1e-12)
    again = model(**changes).fit(after, earlier=found)  # nobody is new
    assert_close(again, whole)
    assert again.passes_ == n_lifts


@ONE_TYPE
def test_people_may_be_chosen_and_ordered(grown: Any) -> None:
    _, after = grown
    old, order = np.arange(2, 30, 2), np.random.default_rng(0).permutation(np.arange(1, 42))
    earlier = model().fit(after[old])
    assert_close(model().fit(after[order], earlier=earlier), model().fit(after[order]))


@ONE_TYPE
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"center": "zscore"}, "z-scores"),
        ({"center": "none"}, "center='mean'"),
        ({"level": 2}, "faces"),
        ({"method": "CD-PNNMF"}, "center"),
        ({"weights": "area"}, "mask or weights differ"),
        ({"refinement": ico.Refinement(steps=1)}, "divide faces"),
    ],
    ids=lambda x: str(x)[:30],
)
def test_what_an_earlier_fit_cannot_do_is_refused(grown: Any, changes: dict[str, Any], words: str) -> None:
    before, after = grown
    earlier = model().fit(before)
    with pytest.raises(ArgumentError, match=words) as raised:
        model(**changes).fit(after, earlier=earlier)
    assert raised.value.argument == "earlier"


@ONE_TYPE
def test_other_people_or_data_are_refused(grown: Any, cohort: ico.Cohort, tmp_path: Path) -> None:
    before, after = grown
    earlier = model().fit(before)
    for data, words in ((after[3:], "3 of the 30 people"), (cohort, "not the unchanged maps of a cohort store")):
        with pytest.raises(ArgumentError, match=words):
            model().fit(data, earlier=earlier)
    with pytest.raises(ArgumentError, match="was not fitted to the unchanged maps of a cohort store"):
        model().fit(after, earlier=model().fit(cohort[:N_OLD]))
    for wrong in ("fitted/model.zip", model()):
        with pytest.raises(ArgumentError, match="earlier must be a fitted CorticalFactorization") as raised:
            model().fit(after, earlier=wrong)
        assert raised.value.argument == "earlier"
    changed = replace(cohort, X=cohort.X * np.float32(1.001))
    other = create_store(tmp_path / "other", [changed], chunk_sites=100, chunk_subjects=8)
    with pytest.raises(ArgumentError, match="30 of the 30 people"):
        model().fit(other, earlier=earlier)


@ONE_TYPE
def test_a_work_folder_knows_the_earlier_fit(grown: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PART_BYTES", N_NEW * 4 * 100)
    before, after = grown
    earlier, work = model().fit(before), tmp_path / "work"
    found, put = model().fit(after, earlier=earlier, work_dir=tmp_path / "whole"), Checkpoint.put
    for stage in ("statistics", "lift"):  # as if killed there

        def ends(self: Checkpoint, key: str, arrays: Any, stage: str = stage) -> None:
            if key.startswith(stage) and key.endswith("00003"):
                raise SystemExit
            put(self, key, arrays)

        with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
            patch.setattr(Checkpoint, "put", ends)
            model().fit(after, earlier=earlier, work_dir=work)
        assert 3 <= len(list(work.glob(f"{stage}-*.npz"))) < len(after.site_blocks())
    again = model().fit(open_store(after.path), earlier=earlier, work_dir=work)
    for name in ("components_", "loadings_", "mean_", "error_"):
        np.testing.assert_array_equal(getattr(again, name), getattr(found, name))
    with pytest.raises(CheckpointError, match="earlier"):
        model().fit(after, work_dir=work)


@ONE_TYPE
def test_a_dry_run_refuses_what_the_update_would(
    grown: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = grown
    fitted = tmp_path / "model.zip"
    CorticalFactorization(3, level=1).fit(before).save(fitted)
    words = ["fit", str(after.path), "-o", str(tmp_path / "out"), "--update", str(fitted), "--dry-run"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "Statistics of 30 subjects are from the earlier fit; maps of 12 others would be read for them" in said
    wrong = {
        "1 of the 30 people of the earlier fit": ["--exclude", after.subjects[2]],
        "kept statistics of 80 faces": ["--level", "0"],
        "--center mean, this one --center none": ["--method", "CD-PNNMF"],
        "z-scores": ["--center", "zscore"],
        "cannot be combined with covariates": ["--covariates", "age"],
    }
    for problem, more in wrong.items():
        assert main([*words, *more]) == 2
        assert problem in capsys.readouterr().err
    np.save(tmp_path / "maps.npy", after.X[:])
    assert main(["fit", str(tmp_path / "maps.npy"), "--hemisphere", "left", *words[2:]]) == 2
    assert "not the unchanged maps of a cohort store" in capsys.readouterr().err


@ONE_TYPE
@pytest.mark.slow
def test_command_line(grown: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = grown
    first = ["--n-components", "3", "--level", "1", "--random-seed", "7", "--no-figures", "-q"]
    ico.fit_cohort(before, CorticalFactorization(3, level=1, random_state=7), tmp_path / "a", figures=False)
    path = str(after.path)
    assert main(["fit", path, "-o", str(tmp_path / "b"), "--update", str(tmp_path / "a"), "--no-figures", "-q"]) == 0
    said = capsys.readouterr().out
    assert "Statistics of 30 subjects are from the earlier fit; maps of 12 others were read for them." in said
    assert main(["fit", path, "-o", str(tmp_path / "c"), *first]) == 0
    found, whole = (ico.load_model(tmp_path / name) for name in "bc")
    assert_close(found, whole)
    record = json.loads((tmp_path / "b" / "provenance.json").read_text())
    file = tmp_path / "a" / "model.zip"
    earlier = {"path": str(file), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    assert record["update"] == {"n_subjects_of_the_earlier_fit": 30, "earlier_model": earlier}
    capsys.readouterr()
    wrong = ["fit", path, "-o", str(tmp_path / "d"), "--update", str(tmp_path / "a"), "--center", "zscore", "-q"]
    assert main(wrong) == 2
    assert "--update" in capsys.readouterr().err and not (tmp_path / "d").exists()
