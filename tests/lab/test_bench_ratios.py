"""`icofactor bench --save` and `--against`: ratios, their intervals, and what got slower."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from icofactor.cli.main import main
from icofactor.errors import FileError
from icofactor_lab.bench import ratios
from icofactor_lab.bench.ratios import compare, interval, mann_whitney, quotient


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Two works and three bases whose seconds are set here, with noise of 1 % that is shared within a round."""
    seconds = {"dgemm": 1.0, "scikit-learn": 2.0, "reading": 0.5, "fit": 4.0, "store": 1.0}
    nothing = lambda: None
    works = {"fit": ("dgemm", nothing), "store": ("reading", nothing)}
    monkeypatch.setattr(ratios, "_works", lambda *_: (dict.fromkeys(list(seconds)[:3], nothing), works))
    rng = np.random.default_rng(0)

    def interleaved(calls: Any, repeats: int) -> dict[str, list[float]]:
        day = 10 ** rng.uniform(-1, 1, repeats)  # a machine that is busy has slow rounds
        return {name: list(seconds[name] * day * rng.uniform(0.99, 1.01, repeats)) for name in calls}

    monkeypatch.setattr(ratios, "interleaved", interleaved)
    return seconds


def test_what_got_slower_is_named(tmp_path: Path, clock: dict[str, float], capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "before.json"
    assert main(["bench", "--save", str(file), "--quick"]) == 0
    kept = json.loads(file.read_text())
    np.testing.assert_allclose(kept["ratios"]["fit"]["median"], 4.0, rtol=0.02)
    np.testing.assert_allclose(kept["ratios"]["store"]["interval"], [2.0, 2.0], rtol=0.03)
    assert kept["machine"]["versions"]["numpy"] == np.__version__
    assert str(tmp_path) not in file.read_text()
    clock.update(dict.fromkeys(("dgemm", "scikit-learn", "reading", "fit", "store"), 1.0))
    clock.update({"fit": 4.0, "store": 2.0})  # a machine twice as slow to read: the same ratio
    assert main(["bench", "--against", str(file), "--quick"]) == 0
    clock["fit"] = 5.0
    capsys.readouterr()
    assert main(["bench", "--against", str(file), "--save", str(tmp_path / "now.json"), "--quick"]) == 1
    said = capsys.readouterr().out
    assert [line.split(":")[1].strip() for line in said.splitlines() if line.startswith("Slower:")] == ["fit"]
    assert "| fit | " in said and (tmp_path / "now.json").exists()
    assert "Another machine" not in said
    kept["machine"]["processor"] = "another"
    file.write_text(json.dumps(kept))
    assert main(["bench", "--against", str(file), "--quick", "-q"]) == 1  # quiet, but not about what may explain it
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("Another machine or setting: processor was another") and said[1].startswith("Slower: fit")


def test_refused_before_anything_is_measured(
    tmp_path: Path, clock: dict[str, float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "before.json"
    assert main(["bench", "--save", str(file), "--quick", "--repeats", "9", "-q"]) == 0
    few, other = tmp_path / "few.json", tmp_path / "other.json"
    assert main(["bench", "--save", str(few), "--quick", "--repeats", "2", "-q"]) == 0
    other.write_text('{"format": "something"}')
    measured: list[int] = []
    monkeypatch.setattr(ratios, "interleaved", lambda *_: measured.append(1))
    for options, text in (
        (["--save", str(file), "--quick"], "exists"),
        (["--save", str(tmp_path / "new.json"), "--quick", "--repeats", "0"], "--repeats must be a whole number ≥ 1"),
        (["--against", str(file)], "was measured with other sizes"),
        (["--against", str(file), "--quick", "--repeats", "2"], "--repeats must be at least 3"),
        (["--against", str(few), "--quick"], "has 2 rounds"),
        (["--against", str(other)], "is not a file of ratios"),
        (["--against", str(tmp_path / "none.json")], "no such file"),
        (["--against", str(file), "-o", str(tmp_path / "out")], "Give either --out, or --save, --against or both"),
        (["--against", str(file), "--only", "a"], "--only applies to the experiments (--out), not to ratios"),
        (["--save", str(file), "--overwrite", "--budget", "5"], "--budget applies to the experiments"),
        (["--save", str(file), "--overwrite", "--splits", "2"], "--splits applies to the experiments"),
        ([], "Give either --out"),
    ):
        assert main(["bench", *options]) == 2
        assert text in capsys.readouterr().err
    assert not measured


@pytest.mark.slow
def test_works_are_measured_and_compared_at_tiny_sizes(tmp_path: Path) -> None:
    found = ratios._works(ratios.TINY, tmp_path)
    assert {to for to, _ in found[1].values()} == set(found[0]) == {"dgemm", "scikit-learn", "reading"}
    for name in ("updates of CD-PNNMF, default rules", "store, every checksum", "transform"):
        found[1][name][1]()


@pytest.mark.parametrize(("m", "n"), [(3, 4), (5, 5), (2, 7)])
def test_the_distribution_of_u_counts_orders(m: int, n: int) -> None:
    counts = np.zeros(m * n + 1)
    for mine in combinations(range(m + n), m):
        counts[sum(mine) - m * (m - 1) // 2] += 1
    np.testing.assert_allclose(mann_whitney(m, n), counts / counts.sum(), rtol=1e-12)


def test_intervals_cover_as_often_as_they_say() -> None:
    rng, held = np.random.default_rng(1), 0
    for _ in range(400):
        new, old = 1.3 * np.exp(0.1 * rng.standard_t(2, 9)), np.exp(0.1 * rng.standard_t(2, 9))
        by, low, high = quotient(new, old, 0.95)
        assert low <= by <= high
        held += low <= 1.3 <= high
    assert 0.92 < held / 400 < 0.99
    assert quotient([2.0] * 2, [1.0] * 2, 0.95)[1:] == (0.0, np.inf)
    assert interval([3.0, 1.0, 2.0]) == [1.0, 3.0]
    assert interval(range(1, 10)) == [2.0, 8.0]


def test_what_is_in_one_file_only_is_said() -> None:
    of = lambda names: {"ratios": {name: {"to": "dgemm", "median": 1.0, "each": [1.0] * 9} for name in names}}
    rows, slower = compare(of(["a", "b"]), of(["b", "c"]))
    assert [row["what"] for row in rows] == ["b", "a", "c"] and not slower
    assert [row[""] for row in rows[1:]] == ["not compared: in one of the files only"] * 2
    changed = of(["b"])
    changed["ratios"]["b"]["to"] = "reading"
    assert compare(changed, of(["b"]))[0] == [{"what": "b", "": "not compared: over something else"}]


def kept(file: Path, **more: Any) -> dict[str, Any]:
    """A file of ratios, with some of it replaced, as it is read and compared."""
    of_fit = {"to": "dgemm", "median": "x", "interval": [1, 2], "each": [1.0, 3, 2.0, 2.5, 2.0, 1.5, 2.0]}
    head = {"format": ratios.FORMAT, "version": ratios.VERSION, "scale": ratios._as_json(ratios.TINY)}
    about = {"processor": "a", "threads": 2, "blas": ["b"], "versions": {"numpy": "1"}}
    record: Any = {**head, "machine": about, "seconds": {"dgemm": 1.0}, "ratios": {"fit": of_fit}}
    for path, value in more.items():
        *way, last = path.split("__")
        inside = record
        for name in way:
            inside = inside[name]
        inside[last] = value
    file.write_text(json.dumps(record))
    return ratios.read_ratios(file)


JUNK: list[Any] = [None, True, 1, -0.5, 1e400, "x", [], [1], [["a"]], [None], ["1"], [True], {}, {"a": [1]}, {"fit": 1}]
JUNK.append([10**400])
FIELDS = ["format", "version", "machine", "machine__processor", "machine__versions", "machine__versions__numpy",
          "scale", "scale__store", "seconds", "ratios", "ratios__fit", "ratios__fit__to", "ratios__fit__median",
          "ratios__fit__interval", "ratios__fit__each"]  # fmt: skip


@pytest.mark.parametrize("field", FIELDS)
def test_a_damaged_file_of_ratios_is_refused_before_anything_is_measured(tmp_path: Path, field: str) -> None:
    """Or does no harm afterwards, as what is only shown does not."""
    file, now, refused = tmp_path / "a.json", kept(tmp_path / "b.json"), 0
    for value in JUNK:
        try:
            before = kept(file, **{field: value})
            ratios._check_comparable(before, ratios.TINY, 7, file)
        except FileError as problem:
            assert problem.path == str(file) and "Error" not in str(problem)
            refused += 1
            continue
        compare(before, now)
        ratios._changes(before["machine"], now["machine"])
    shown = (
        "machine__processor",
        "machine__versions__numpy",
        "seconds",
        "ratios__fit__median",
        "ratios__fit__interval",
    )
    assert (refused == 0) == (field in shown)


def test_a_file_without_ratios_is_damaged_and_medians_are_of_its_rounds(tmp_path: Path) -> None:
    file, head = tmp_path / "a.json", {"format": ratios.FORMAT, "version": ratios.VERSION, "machine": {}, "scale": {}}
    file.write_text(json.dumps({**head, "ratios": {}}))
    with pytest.raises(FileError, match="it has no ratios"):
        ratios.read_ratios(file)
    file.write_text(json.dumps({**head, "ratios": {"a": {"to": "dgemm", "median": "x", "each": [1.0, 3.0, 2.0]}}}))
    assert ratios.read_ratios(file)["ratios"]["a"]["median"] == 2.0
