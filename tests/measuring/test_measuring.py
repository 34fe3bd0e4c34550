"""`reproduction/` and `benchmarks/` run at tiny sizes, use public names only, and stay outside the wheel."""

from __future__ import annotations

import ast
import csv
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import icofactor as ico
from reproduction.__main__ import EXPERIMENTS, reproduce
from reproduction.data import simulated_datasets
from reproduction.formulas import Program
from reproduction.settings import QUICK

ROOT = Path(__file__).parents[2]
FILES = [
    path
    for folder in ("reproduction", "benchmarks")
    for path in sorted((ROOT / folder).glob("*.py"))
]
TINY = replace(
    QUICK,
    mesh="fsaverage3",
    subjects=12,
    n_components=3,
    starts=5,
    updates=25,
    runs=3,
    repeats=1,
    formula_updates=5,
    refined_starts=1,
    refined_updates=12,
    few_steps=1,
    steps=3,
    random_refinements=4,
    ablation_starts=1,
    ablation_updates=12,
)


def table(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_reproduction_judges_every_claim(tmp_path: Path) -> None:
    cohort = ico.simulate_cohort(12, 3, hemisphere="both", mesh="fsaverage3")
    mask = np.ones(cohort.sites.n, dtype=bool)
    mask[:50] = False
    ico.cohort.save_store(replace(cohort, mask=mask, truth=None), tmp_path / "store")
    reproduce(tmp_path, [tmp_path / "store"], TINY, list(EXPERIMENTS))
    datasets = table(tmp_path / "tables" / "datasets.tsv")
    assert [row["dataset"] for row in datasets] == [
        "thickness (store), left",
        "thickness (store), right",
    ]
    claims = table(tmp_path / "tables" / "claims.tsv")
    assert len({claim["claim"] for claim in claims}) == 13
    assert {claim["verdict"] for claim in claims} <= {"holds", "holds in part", "does not hold"}
    for name in ("timing", "convergence", "sparsity", "ablation"):
        assert {row["method"] for row in table(tmp_path / "tables" / f"{name}.tsv")} == set(
            ico.PAPER_METHODS
        )
    page = (tmp_path / "reproduction.html").read_text(encoding="utf-8")
    assert page.count("data:image/png") == len(list((tmp_path / "figures").glob("*.png")))
    # Columns of the literal σ reach about a tenth of the cortex, the others all of it.
    coverage = [claim["verdict"] for claim in claims if claim["section"] == "2.3"]
    assert coverage == ["does not hold", "holds", "holds"]


def test_simulated_datasets_are_those_of_the_paper() -> None:
    datasets = simulated_datasets(TINY, 0)
    assert [data.number for data in datasets] == list(range(1, 9))
    assert (datasets[0].name, datasets[-1].name) == ("myelin, left", "ALFF scan 1, right")
    maps = datasets[0].load()
    assert maps.X.shape == (1280, 12) and maps.vertices.shape == (642, 12)


@pytest.mark.parametrize("method", ico.PAPER_METHODS)
def test_formulas_are_those_of_the_package(method: str) -> None:
    cohort = ico.simulate_cohort(12, 3, mesh="fsaverage3")
    stats = ico.Statistics.from_data(cohort.X.T, ico.Design(cohort.sites, "smooth"))
    start = ico.solve(stats, method, 3, n_iter=1, rules="paper", random_state=0)
    expected = ico.solve(stats, method, start=(start.B, start.C), n_iter=15, rules="paper")
    for products in ("as read", "ordered", "without M"):
        program = Program(
            method, stats.K.toarray(), np.asarray(stats.L), start.B, start.C, products
        )
        for _ in range(15):
            program.update()
        np.testing.assert_allclose(program.B, expected.B, rtol=1e-6, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["speeds", "peers", "reproducibility", "gpu"])
def test_benchmarks_run(name: str, tmp_path: Path) -> None:
    if name == "gpu":
        pytest.importorskip("jax")
    command = [sys.executable, "-m", "benchmarks", name, "--quick", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    assert len(table(tmp_path / f"{name}.tsv")) > 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads memory and drops files as Linux does")
def test_stores_are_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.stores", str(tmp_path), "--out", str(tmp_path)]
    sizes = ["--subjects", "24", "30", "--mesh", "fsaverage3"]
    subprocess.run([*command, *sizes], cwd=ROOT, check=True, capture_output=True)
    rows = table(tmp_path / "stores.tsv")
    assert [row["unit"] for row in rows] == ["s", "GB"] * 2
    assert all(float(row["value"]) > 0 for row in rows)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_only_public_names_are_used(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            package = (node.module or "").split(".")[0]
            assert package != "tests" and node.level == 0
            if package == "icofactor":
                assert node.module == "icofactor" and {alias.name for alias in node.names} <= set(
                    ico.__all__
                )
        elif isinstance(node, ast.Import):
            assert not [
                alias.name for alias in node.names if alias.name.startswith(("icofactor.", "tests"))
            ]
        elif isinstance(node, ast.Attribute):
            assert (
                not node.attr.startswith("_") or node.attr.startswith("__") or is_self(node.value)
            )
            if isinstance(node.value, ast.Name) and node.value.id == "ico":
                assert node.attr in dir(ico)
            elif ast.unparse(node.value).startswith("ico."):
                owner = ast.unparse(node.value).removeprefix("ico.").split("(")[0]
                module = getattr(ico, owner, None)
                if isinstance(module, ModuleType):
                    assert node.attr in module.__all__


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


@pytest.mark.slow
def test_the_wheel_has_the_package_alone(tmp_path: Path) -> None:
    build = "from hatchling.build import build_wheel; import sys; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    with zipfile.ZipFile(tmp_path / done.stdout.splitlines()[-1]) as wheel:
        names = set(wheel.namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"icofactor"}
    assets = ROOT / "src" / "icofactor" / "results" / "report" / "assets"
    assert names >= {str(file.relative_to(ROOT / "src")) for file in assets.iterdir()}
