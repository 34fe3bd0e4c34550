"""`icofactor bench`: everything runs at tiny sizes, and what it writes is whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor_lab.bench as lab
from icofactor.cli.main import main
from icofactor.factorization.methods import METHODS, PAPER_METHODS
from icofactor.io.publish import LIST
from icofactor_lab.bench.settings import QUICK
from icofactor_lab.common.outcome import Outcome, Table, at_least, at_most, not_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "new"
    assert main(["bench", "-o", str(folder), "--quick", "--repeats", "1", "-q"]) == 0
    return folder


@pytest.fixture(scope="module")
def results(written: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((written / "bench.json").read_text(encoding="utf-8"))
    return found


def test_everything_is_written(written: Path, results: dict[str, Any]) -> None:
    assert sorted(p.name for p in written.iterdir()) == sorted([LIST, *lab.FILES])
    assert list(results["experiments"]) == ["a", "b", "c", "d", "r"]
    assert results["settings"]["quick"] is True
    assert results["machine"]["threads"] >= 1
    text = (written / "bench.md").read_text(encoding="utf-8")
    assert "the numbers mean nothing" in text
    for outcome in results["experiments"].values():
        assert all(table["title"] in text for table in outcome["tables"])
        assert all(target["what"] in text for target in outcome["targets"])
    for name in ("growth.png", "multistart.png", "time_to_error.png", "reproducibility.png"):
        assert f"]({name})" in text


def test_every_method_is_measured(results: dict[str, Any]) -> None:
    rows = results["experiments"]["a"]["tables"][0]["rows"]
    measured = {(r["method"], r["rules"], r["precision"]) for r in rows}
    for name in PAPER_METHODS:
        assert {(name, rules, kind) for rules in ("paper", "default") for kind in ("float64", "float32")} <= measured
    assert {r["method"] for r in rows} >= {*METHODS, "PNNMF, plain NumPy loop", "PNNMF, generic functions"}
    for row in rows:
        np.testing.assert_allclose(row["GFLOP/s"], row["operations"] * row["updates/s"] / 1e9)
        np.testing.assert_allclose(row["s per 10⁶ updates"] * row["updates/s"], 1e6)


def test_every_solver_has_a_row(results: dict[str, Any]) -> None:
    for table in results["experiments"]["b"]["tables"]:
        for row in table["rows"]:
            if row["path"]:
                assert row["error / best"] >= 1
                assert all(len(point) == 4 and point[3] >= 1 for point in row["path"])
            else:
                assert row["note"].startswith("not run: ")


def test_growth_has_its_points(results: dict[str, Any]) -> None:
    tables = results["experiments"]["c"]["tables"]
    *tables, people = tables
    assert [t["title"] for t in tables] == ["In sites", "In subjects", "In components"]
    assert [row["people"] for row in people["rows"]] == [*QUICK.people_counts] * 2
    assert all(row["forming M"] >= 0 and row["starts and updates"] > 0 for row in people["rows"])
    assert [row["sites"] for row in tables[0]["rows"]] == [20 * 4**level for level in QUICK.site_levels]
    for row in (row for table in tables for row in table["rows"]):
        assert row["seconds"] > 0 and row["peak (MiB)"] > 20
        assert row["allowed (MiB)"] > row["baseline (MiB)"] + row["X (MiB)"]


def test_wrong_options_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for options, message in (
        (["--only", "a,z"], "--only must be some of a, b, c, d, r; found z"),
        (["--repeats", "0"], "--repeats must be a whole number ≥ 1; found 0"),
        (["--budget", "-1"], "--budget must be a number of seconds > 0; found -1.0"),
    ):
        assert main(["bench", "-o", str(tmp_path / "x"), *options]) == 2
        assert capsys.readouterr().err == f"icofactor bench: {message}\n"
    assert not (tmp_path / "x").exists()


def test_what_was_measured_before_a_failure_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(module: str, bench: object) -> Outcome:
        if module != lab.EXPERIMENTS["a"]:
            raise RuntimeError("later")
        return Outcome("a", "first", tables=[Table("t", [{"x": 1.0}])])

    monkeypatch.setattr(lab, "run_experiment", run)
    with pytest.raises(RuntimeError, match="later"):
        lab.run_bench(tmp_path, ["d", "a"], quick=True)
    assert list(json.loads((tmp_path / "bench.json").read_text())["experiments"]) == ["a"]


def test_tables_are_readable_and_json_is_strict() -> None:
    outcome = Outcome("a", "Title", tables=[Table("One", [{"x": np.inf, "y": np.float64(2.5)}, {"z": "a|b"}], "note")])
    outcome.targets = [at_least("speed", 0.4, 0.35), at_most("time", np.inf, 30), not_run("gpu", "≤ 1", "none")]
    machine = {"processor": "p", "processors usable": 2, "threads": 2, "memory": "m", "system": "s", "python": "3",
               "blas": ["b"], "versions": {"numpy": "2"}, "date": "d"}  # fmt: skip
    json.dumps(outcome.as_dict(), allow_nan=False)
    text = lab.readable({"machine": machine, "settings": {"quick": False}}, [outcome])
    assert "| x | y | z |" in text
    assert "| – | 2.5 |  |" in text
    assert "a\\|b" in text
    assert "| (a) | speed | ≥ 0.35 | 0.4 | yes |" in text
    assert "| (a) | time | ≤ 30 | not reached | **no** |" in text
    assert "| (a) | gpu | ≤ 1 | – | – | not run: none |" in text


def test_a_file_of_the_user_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by results of other experiments either, and a run that is stopped leaves nothing of its own."""
    ran: list[str] = []

    def run_experiment(module: str, bench: Any) -> Outcome:
        ran.append(module)
        if len(ran) == 3:
            raise KeyboardInterrupt
        return Outcome(module[-1], "title")

    monkeypatch.setattr(lab, "run_experiment", run_experiment)
    (tmp_path / "bench.md").write_text("mine")
    with pytest.raises(FileExistsError, match="is not a result that this command may replace"):
        lab.run_bench(tmp_path, quick=True, overwrite=True)
    assert not ran and sorted(p.name for p in tmp_path.iterdir()) == ["bench.md"]
    (tmp_path / "bench.md").rename(tmp_path / "mine.md")
    with pytest.raises(KeyboardInterrupt):
        lab.run_bench(tmp_path, quick=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == [LIST, "bench.json", "bench.md", "mine.md"]
    with pytest.raises(FileExistsError, match="overwrite"):
        lab.run_bench(tmp_path, ["a"], quick=True)
    lab.run_bench(tmp_path, ["a"], quick=True, overwrite=True)
    assert (tmp_path / "mine.md").read_text() == "mine"
