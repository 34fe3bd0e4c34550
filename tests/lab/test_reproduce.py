"""`icofactor reproduce`: the smallest version end to end, what it judges, and that it goes on where it was."""

from __future__ import annotations

import csv
import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from icofactor.cli.main import main
from icofactor.cohort.store.create import save_store
from icofactor.factorization.methods import PAPER_METHODS, method_named
from icofactor.factorization.schemes.base import Problem
from icofactor.factorization.starts import draw_starts, seeds_of
from icofactor.factorization.update import advance, begin
from icofactor.sphere.sites import Sites
from icofactor_lab.common.outcome import Outcome
from icofactor_lab.reproduce import FULL, QUICK, claims, maps, reproduce, timing
from icofactor_lab.reproduce.datasets import hcp_datasets, simulated_datasets, stored_datasets
from icofactor_lab.reproduce.formula import PRODUCTS, Formula
from icofactor_lab.reproduce.settings import COVERING, LITERAL

pytestmark = pytest.mark.slow

TINY = replace(
    QUICK, name="tiny", mesh="fsaverage3", subjects=12, n_components=3, engine="numpy", starts=5, updates=25, runs=3,
    repeats=2, formula_updates=5, timing_mesh="fsaverage3", refined_starts=1, refined_updates=12, steps=3,
    random_refinements=4, ablation_starts=1, ablation_updates=12, level=1, scans=1, few_steps=1, dpi=40,
)  # fmt: skip


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduce") / "out"
    reproduce(folder, sizes=TINY, pdf=False)
    return folder


def table(out: Path, name: str) -> list[dict[str, str]]:
    with open(out / "tables" / f"{name}.tsv", encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


def test_everything_is_written(out: Path) -> None:
    stems = {file.stem for file in (out / "figures").glob("*.png")}
    for start in ("fig3_time", "fig4_convergence_literal_1", "fig4_convergence_covering_3", "fig5_l1_default",
                  "fig6_maps_literal", "fig6c_random", "fig7_ablation"):  # fmt: skip
        assert start in stems
    names = {file.name for file in (out / "tables").iterdir()}
    assert names >= {"claims.tsv", "timing.tsv", "convergence.tsv", "sparsity.tsv", "maps.tsv", "ablation.tsv"}
    assert not list(out.glob(".tmp-*"))


def test_eleven_methods_everywhere(out: Path) -> None:
    for name in ("timing", "timing_repetitions", "convergence", "sparsity", "sparsity_summary", "ablation"):
        assert {row["method"] for row in table(out, name)} == set(PAPER_METHODS)
    rows = table(out, "sparsity")
    assert len(rows) == 3 * 8 * 11
    assert len({row["dataset"] for row in rows}) == 8


def test_the_page_stands_alone_and_says_what_the_data_are(out: Path) -> None:
    text = (out / "reproduction.html").read_text(encoding="utf-8")
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", text)
    assert "<script" not in text
    assert text.count("data:image/png;base64,") == len(list((out / "figures").glob("*.png")))
    assert "The data are simulated" in text
    assert {row["data"] for row in table(out, "datasets")} == {"simulated"}
    for verdict in table(out, "claims"):
        assert html.escape(verdict["measured"]) in text


def test_the_literal_setting_fails_where_it_covers_little(out: Path) -> None:
    rows = [row for row in table(out, "claims") if row["where"] == "2.3"]
    assert [row["verdict"] for row in rows] == ["does not hold", "holds", "holds"]
    reached = re.search(r"reach (\d+)% of the sites", rows[0]["measured"])
    assert reached is not None and int(reached[1]) <= 10
    literal = [row for row in table(out, "convergence") if row["setting"] == "literal"]
    assert min(float(row["median final E/‖X‖²"]) for row in literal) > 0.9
    settings = {row["setting"] for row in table(out, "claims")}
    assert {"literal (σ = 0.015)", "covering (σ = 0.0692)", "icofactor's defaults"} <= settings


def test_the_same_call_goes_on_from_what_is_kept(out: Path) -> None:
    only = {"sizes": TINY, "only": ["ablation"]}
    before = (out / "tables" / "division.tsv").read_bytes()
    lost = out / "work" / "tiny" / "ablation.division.npz"
    lost.unlink()
    with pytest.raises(FileExistsError, match="overwrite"):
        reproduce(out, **only)
    assert not lost.exists()
    reproduce(out, **only, overwrite=True)
    record = json.loads((out / "tables" / "record.json").read_text(encoding="utf-8"))
    assert record["pieces taken from earlier calls"] == len(list(lost.parent.glob("ablation.*.npz"))) - 1
    assert (out / "tables" / "division.tsv").read_bytes() == before
    assert (out / "figures" / "fig7_ablation.pdf").read_bytes()[:4] == b"%PDF"
    with pytest.raises(ValueError, match=r"contains the work of another run: .*seed was 0, is 1"):
        reproduce(out, **only, overwrite=True, seed=1)


def test_fourteen_datasets() -> None:
    names = [d.name for d in simulated_datasets(FULL, 0)]
    assert names[:2] == ["myelin, left", "myelin, right"] and names[-1] == "ALFF scan 4, right"
    assert len(names) == 14 and all(d.simulated for d in simulated_datasets(FULL, 0))


def test_stores_are_taken_hemisphere_by_hemisphere(tmp_path: Path) -> None:
    cohort = ico.simulate_cohort(12, 3, hemisphere="both", mesh="fsaverage3")
    mask = np.ones(cohort.sites.n, dtype=bool)
    mask[:50] = False
    real = replace(cohort, mask=mask, provenance={"source": "someone"}, truth=None)
    save_store(real, tmp_path / "store")
    left, right = stored_datasets([tmp_path / "store"])
    assert (left.name, right.name, left.simulated) == ("thickness, left", "thickness, right", False)
    faces = Sites.named("fsaverage3", on="faces")
    maps = left.load()
    corners = np.asarray(Sites.named("fsaverage3").triangles)
    used = mask[:642][corners].all(axis=1)
    np.testing.assert_array_equal(maps.used, used)
    np.testing.assert_allclose(maps.X, cohort.X[:, :642].astype(float).T[corners].mean(axis=1)[used], rtol=1e-12)
    assert (maps.sites.n, right.load().sites.n) == (int(used.sum()), faces.n)
    verdicts = reproduce(tmp_path / "out", cohorts=[tmp_path / "store"], sizes=TINY, only=["ablation"])
    text = (tmp_path / "out" / "reproduction.html").read_text(encoding="utf-8")
    assert verdicts and "simulated data" not in text and "measured data" in text


def test_an_hcp_tree_is_prepared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven stores of two hemispheres are the paper's fourteen datasets; what `prepare` does is tested elsewhere."""
    from icofactor.preprocessing import _prepare_hcp as prepare
    from icofactor.preprocessing import hcp

    asked: list[tuple[str, float | None]] = []

    def find(folder: str, kind: str) -> list[str]:
        return [kind]

    def fake(inputs: list[str], place: Path, steps: Any, target: Any, **others: Any) -> prepare.Prepared:
        asked.append((steps.kind, steps.limit))
        names = [f"REST{i}" for i in range(4)] if steps.kind == "alff" else [""]
        stores = {n: place.with_name(f"{place.stem}_{n}.store" if n else place.name) for n in names}
        for path in stores.values():
            cohort = ico.simulate_cohort(4, 2, steps.kind, hemisphere="both", mesh="fsaverage3")
            save_store(replace(cohort, provenance={}, truth=None), path)
        return prepare.Prepared(stores, dict.fromkeys(stores, 4), (prepare.Failure("101", steps.kind, "lost"),), 0)

    monkeypatch.setattr(hcp, "find_inputs", find)
    monkeypatch.setattr(prepare, "prepare_hcp", fake)
    listed, notes = hcp_datasets("tree", "spheres", tmp_path / "stores", 1, False)
    assert [d.name for d in listed[:5]] == [
        "myelin, left",
        "myelin, right",
        "thickness, left",
        "thickness, right",
        "ReHo, left",
    ]
    assert len(listed) == 14 and [d.modality for d in listed[6:]] == ["alff"] * 8
    assert len({d.name for d in listed}) == 14 and any("101" in note for note in notes)
    assert asked == [("myelin", 4.4478), ("thickness", 4.4478), ("reho", None), ("alff", None)]
    again, _ = hcp_datasets("tree", "spheres", tmp_path / "stores", 1, False)
    assert [d.identity for d in again] == [d.identity for d in listed] and len(asked) == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--only", "timing,weather"], "--only must be some of timing"),
        (["--hcp", "nowhere"], "spheres"),
        (["--cohort", "nowhere.store"], "nowhere.store"),
    ],
)
def test_one_clear_line(given: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", str(tmp_path / "out"), "--quick", "-q", *given]) == 2
    line = capsys.readouterr().err.strip()
    assert message in line and "\n" not in line


@pytest.mark.parametrize("products", PRODUCTS)
@pytest.mark.parametrize("name", PAPER_METHODS)
def test_the_formulas_are_those_of_the_library(name: str, products: str) -> None:
    maps, method = simulated_datasets(TINY, 0)[0].load(), method_named(name)
    stats = maps.source.statistics(COVERING.design(maps.sites))
    p = Problem.of(stats, method.scheme, "paper")
    B, C = draw_starts(p, method, 3, seeds_of(0), range(1))
    state = begin(p, method.scheme, B, C)
    for _ in range(method.plain_updates + 1):
        state = advance(p, method, state)
    L = np.asarray(p.L)
    one = Formula.of(p, method, state, products, stats.K, None if products == "without M" else L.T @ L)
    for _ in range(5):
        one.update()
        state = advance(p, method, state)
        np.testing.assert_allclose(one.B, state.B[0], rtol=1e-8, atol=1e-12)
    if not method.scheme.projective:
        np.testing.assert_allclose(one.C, state.C[0], rtol=1e-8, atol=1e-12)


def test_measures_of_sparsity_and_overlap() -> None:
    flat, peak = np.ones((9, 2)), np.eye(9)[:, :2]
    assert maps.hoyer(flat) == pytest.approx(0) and maps.hoyer(peak) == pytest.approx(1)
    assert maps.hoyer(5 * peak + flat) == pytest.approx(maps.hoyer(50 * peak + 10 * flat))
    assert maps.overlap(flat) == pytest.approx(1) and maps.overlap(peak) == pytest.approx(0)
    assert np.isnan(maps.overlap(np.zeros((4, 3))))


def test_claims_follow_the_numbers() -> None:
    ratio = dict.fromkeys(PAPER_METHODS, 3000.0) | {m: 5e5 for m in PAPER_METHODS if m.endswith("PPNMF")}
    slow = dict.fromkeys(PAPER_METHODS, 50.0)
    facts = {"ratio": {"as_read": ratio, "ordered": ratio, "never": slow}, "compiled": slow, "n_sites": 1}
    speed = claims.judge([Outcome("timing", "", facts=facts)])
    assert [v.verdict for v in speed[:3]] == [claims.HOLDS, claims.FAILS, claims.FAILS]
    assert "5 × 10⁵" in speed[0].measured and timing.PAPER_RANGE == (2.4e3, 6.25e5)
    assert [v.verdict for v in speed[3:]] == [claims.HOLDS, claims.FAILS]


def test_the_literal_columns_are_the_papers() -> None:
    design = LITERAL.design(Sites.named("fsaverage3", on="faces"))
    assert (design.kind, design.sigma, design.tau, design.n_columns) == ("exponential", 0.015, 3.0, 20)


def test_ending_above_differs_from_being_slow() -> None:
    """E- never gets there, LE- does; then both end as good as equal."""

    def judged(rows: list[dict[str, Any]], words: str) -> claims.Verdict:
        outcome = Outcome("convergence", "", facts={"rows": rows, "updates": 100})
        (found,) = [v for v in claims.judge([outcome]) if words in v.claim]
        return found

    def row(method: str, at: int | None, final: float) -> dict[str, Any]:
        numbers = dict.fromkeys(("covered", "floor", "lowest E/‖X‖² of all starts", "share of starts trapped",
                                 "share of zeros in B"), 0.0)  # fmt: skip
        gain = "best start over the median one (part of the way from the plateau)"
        name = "update at which it is at the plain method's end"
        return {"dataset": "x", "setting": "literal", "method": method, "scheme": method.split("-")[-1], name: at,
                "way": 0.1, "median final E/‖X‖²": final, gain: 0.0, **numbers}  # fmt: skip

    rows = [row(f"{prefix}{scheme}", at, final) for scheme in claims.NON_NEGATIVE
            for prefix, at, final in (("", 100, 0.5), ("E-", None, 0.6), ("LE-", 20, 0.4))]  # fmt: skip
    literal = judged([*rows, row("E-DL", 90, 0.5)], "speed up convergence")
    assert literal.verdict == claims.PARTLY and literal.measured.startswith("3 of 7")
    assert "ending above it: E-PNNMF, E-PPNMF, E-SPNNMF" in literal.why and "Later than half: E-DL" in literal.why
    lower = judged(rows, "always ends slightly lower")
    assert lower.verdict == claims.HOLDS and "lower in 3 of 3" in lower.measured
    same = [{**r, "median final E/‖X‖²": 0.5 + 1e-5 * (r["method"][0] == "E")} for r in rows]
    assert judged(same, "always ends slightly lower").verdict == claims.FAILS


@pytest.mark.parametrize("name", ["reproduction.html", "tables/record.json", "figures/fig7_ablation.png"])
def test_a_file_of_the_user_is_refused_before_any_work(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    with pytest.raises(FileExistsError, match="is not a result that this command may replace"):
        reproduce(tmp_path, sizes=TINY, overwrite=True)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file] and file.read_text() == "mine"
