"""`icofactor bench`: everything runs at tiny sizes, and what it writes is whole."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from icofactor.cli.main import main
from icofactor.factorization._solve import iterate
from icofactor.factorization.methods import METHODS, PAPER_METHODS, method_named
from icofactor_lab.bench import growth, plots, refining, runner
from icofactor_lab.bench.outcome import Outcome, Table, at_least, at_most, not_run
from icofactor_lab.bench.runner import run_bench
from icofactor_lab.bench.sizes import QUICK
from icofactor_lab.bench.timing import THREAD_VARIABLES, interleaved, median, pinned
from icofactor_lab.bench.updates import plain_loop, prepared, statistics
from icofactor_lab.bench.writing import readable

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "new"
    assert main(["bench", "-o", str(folder), "--quick", "--repeats", "1", "-q"]) == 0
    return folder


@pytest.fixture(scope="module")
def results(written: Path) -> dict:
    return json.loads((written / "bench.json").read_text(encoding="utf-8"))


def test_everything_is_written(written: Path, results: dict) -> None:
    assert sorted(p.name for p in written.iterdir()) == [
        "bench.json", "bench.md", "growth.png", "multistart.png", "time_to_error.png",
    ]  # fmt: skip
    assert list(results["experiments"]) == ["a", "b", "c", "d"]
    assert results["settings"]["quick"] is True
    assert results["machine"]["threads"] >= 1
    text = (written / "bench.md").read_text(encoding="utf-8")
    assert "the numbers mean nothing" in text
    for outcome in results["experiments"].values():
        assert all(table["title"] in text for table in outcome["tables"])
        assert all(target["what"] in text for target in outcome["targets"])
    for name in ("growth.png", "multistart.png", "time_to_error.png"):
        assert f"]({name})" in text


def test_every_method_is_measured(results: dict) -> None:
    rows = results["experiments"]["a"]["tables"][0]["rows"]
    measured = {(r["method"], r["rules"], r["precision"]) for r in rows}
    for name in PAPER_METHODS:
        assert {(name, rules, kind) for rules in ("paper", "default") for kind in ("float64", "float32")} <= measured
    assert {r["method"] for r in rows} >= {*METHODS, "PNNMF, plain NumPy loop", "PNNMF, generic functions"}
    for row in rows:
        np.testing.assert_allclose(row["GFLOP/s"], row["operations"] * row["updates/s"] / 1e9)
        np.testing.assert_allclose(row["s per 10⁶ updates"] * row["updates/s"], 1e6)


def test_every_solver_has_a_row(results: dict) -> None:
    for table in results["experiments"]["b"]["tables"]:
        for row in table["rows"]:
            if row["path"]:
                assert row["error / best"] >= 1
                assert all(len(point) == 4 for point in row["path"])
            else:
                assert row["note"].startswith("not run: ")
        reached = [point[3] for row in table["rows"] for point in row["path"]]
        assert min(reached) >= 1


def test_growth_has_its_points(results: dict) -> None:
    tables = results["experiments"]["c"]["tables"]
    assert [t["title"] for t in tables] == ["In sites", "In subjects", "In components"]
    assert [row["sites"] for row in tables[0]["rows"]] == [20 * 4**level for level in QUICK.site_levels]
    for table in tables:
        for row in table["rows"]:
            assert row["seconds"] > 0
            assert row["peak (MiB)"] > 20
            assert row["allowed (MiB)"] > row["baseline (MiB)"] + row["X (MiB)"]


def test_wrong_words_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "-o", str(tmp_path / "x"), "--only", "a,z"]) == 2
    assert capsys.readouterr().err == "icofactor bench: --only must name some of a, b, c, d; found z\n"
    assert main(["bench", "-o", str(tmp_path / "x"), "--repeats", "0"]) == 2
    assert "repeats must be a whole number ≥ 1; found 0" in capsys.readouterr().err
    assert main(["bench", "-o", str(tmp_path / "x"), "--budget", "-1"]) == 2
    assert "budget must be a number of seconds > 0; found -1.0" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_what_was_measured_before_a_failure_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Modules:
        @staticmethod
        def import_module(name: str) -> object:
            return Modules

        @staticmethod
        def run(*args: object) -> Outcome:
            if (tmp_path / "bench.json").exists():
                raise RuntimeError("later")
            return Outcome("d", "first", [Table("t", [{"x": 1.0}])])

    monkeypatch.setattr(runner, "importlib", Modules)
    monkeypatch.setattr(plots, "write_plots", lambda *args: None)
    with pytest.raises(RuntimeError, match="later"):
        run_bench(tmp_path, ["a", "d"], quick=True)
    assert list(json.loads((tmp_path / "bench.json").read_text())["experiments"]) == ["a"]


# ---------------------------------------------------------------- parts


def test_interleaved_goes_round_and_round() -> None:
    calls: list[str] = []
    seconds = interleaved({"x": lambda: calls.append("x"), "y": lambda: calls.append("y")}, 3)
    assert calls == ["x", "y"] * 3
    assert [len(values) for values in seconds.values()] == [3, 3]
    assert all(value >= 0 for values in seconds.values() for value in values)
    assert median([5.0, 1.0, 30.0]) == 5.0


def test_threads_are_pinned_and_let_go() -> None:
    from threadpoolctl import threadpool_info

    pools = lambda: [pool["num_threads"] for pool in threadpool_info()]
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}, pools()
    with pinned(1):
        assert all(os.environ[name] == "1" for name in THREAD_VARIABLES)
        assert set(pools()) == {1}
    assert ({name: os.environ.get(name) for name in THREAD_VARIABLES}, pools()) == before


def test_the_plain_loop_makes_the_papers_updates() -> None:
    p, state = prepared(statistics(9, level=2), "PNNMF", "paper", 2)
    run = iterate(p, method_named("PNNMF"), state, 7)
    B, C = plain_loop(p, state.B[1], state.C[1], 7)
    np.testing.assert_allclose(B, run.state.B[1], rtol=1e-9)
    np.testing.assert_allclose(C, run.state.C[1], rtol=1e-9)


def test_smooth_columns_give_a_dense_K_and_partition_a_diagonal_one() -> None:
    assert not statistics(4, level=2).is_diagonal
    assert statistics(4, "partition", level=2).is_diagonal


def test_the_exponent_of_a_power_law() -> None:
    x = [1.0, 3.0, 10.0]
    np.testing.assert_allclose(growth.exponent(x, [2 * v**1.7 for v in x]), 1.7)


def test_a_point_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match="level"):
        growth._Worker(growth.Place(99, 12, 2), 2)


def test_coordinate_descent_that_does_not_exist_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refining, "METHODS", {"LE-PNNMF": METHODS["LE-PNNMF"]})
    outcome = Outcome("d", "")
    refining._descent(outcome, None, QUICK, 1)  # type: ignore[arg-type]
    (target,) = outcome.targets
    assert target.measured is None and target.note == "not run: CD-PNNMF is not among the methods"


def test_no_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refining, "device_found", lambda: None)
    outcome = Outcome("d", "")
    refining._device(outcome, None, QUICK, 1, 1)  # type: ignore[arg-type]
    assert [t.note for t in outcome.targets] == ["not run: jax sees no GPU"]


def test_the_row_of_a_device_compares_with_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = refining.choose_engine
    monkeypatch.setattr(
        refining, "choose_engine", lambda place, *rest: chosen("numpy" if place == "jax" else place, *rest)
    )
    row = refining._device_row(statistics(9, level=2), "LE-PNNMF", "default", QUICK, 1)
    assert row["largest relative difference of objectives"] < 1e-9
    np.testing.assert_allclose(row["times faster"], row["CPU: s per 10⁶ updates"] / row["GPU: s per 10⁶ updates"])


def test_targets() -> None:
    assert at_least("speed", 0.4, 0.35).met is True
    assert at_most("time", 31.0, 30).met is False
    never = at_most("time", np.inf, 30)
    assert never.met is False and never.measured is None
    assert not_run("time", "≤ 30", "no GPU").met is None


def test_tables_are_readable_and_json_is_strict() -> None:
    outcome = Outcome("a", "Title", [Table("One", [{"x": np.inf, "y": np.float64(2.5)}, {"z": "a|b"}], "note")])
    outcome.targets = [at_most("time", np.inf, 30), not_run("gpu", "≤ 1", "none")]
    machine = {"processor": "p", "processors usable": 2, "threads": 2, "memory": "m", "system": "s", "python": "3",
               "blas": ["b"], "versions": {"numpy": "2"}, "date": "d"}  # fmt: skip
    results = {"machine": machine, "settings": {"quick": False}, "experiments": {"a": outcome.as_dict()}}
    json.dumps(results, allow_nan=False)
    text = readable(results)
    assert "| x | y | z |" in text
    assert "| – | 2.5 |  |" in text
    assert "a\\|b" in text
    assert "| (a) | time | ≤ 30 | not reached | **no** |" in text
    assert "| (a) | gpu | ≤ 1 | – | – | not run: none |" in text
