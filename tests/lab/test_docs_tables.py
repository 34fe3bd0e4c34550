"""The programs behind docs/: each can be imported and says how to run it; the docs name none that does not exist."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys

import pytest

from icofactor_lab import docs_tables

pytestmark = pytest.mark.slow
PROGRAMS = [module.name for module in pkgutil.iter_modules(docs_tables.__path__)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_how_to_run_it(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = importlib.import_module(f"icofactor_lab.docs_tables.{name}")
    assert f"python -m icofactor_lab.docs_tables.{name}" in program.__doc__
    assert f"`{name}`" in str(docs_tables.__doc__)
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as end:
        program.main()
    assert end.value.code == 0
    tasks = re.findall(rf"docs_tables\.{name} ([a-z-]+)", program.__doc__)
    help_ = capsys.readouterr().out.split("positional arguments:")[-1]
    assert all(re.search(rf"^ +{task}\b", help_, re.M) for task in tasks)


def test_the_docs_name_programs_and_tasks_that_exist() -> None:
    pages = [*(docs_tables.CHECKOUT / "docs").rglob("*.md"), docs_tables.CHECKOUT / "README.md"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = re.findall(r"icofactor_lab\.docs_tables\.(\w+)(?: ([a-z][a-z-]+))?", text)
    assert {name for name, _ in named} == set(PROGRAMS)
    for name, task in named:
        program = importlib.import_module(f"icofactor_lab.docs_tables.{name}")
        assert not task or f"docs_tables.{name} {task}" in str(program.__doc__)


def test_numbers_of_a_cohort_on_paper(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """docs/measured.md: 100,000 people × 327,680 sites."""
    from icofactor_lab.docs_tables import scale

    monkeypatch.setattr(sys, "argv", ["scale", "plan", "--statistics-ns", "2", "--lift-ns", "3"])
    scale.main()
    printed = capsys.readouterr().out
    assert (
        "store | 65.5 GB, 62,720 files" in printed and "two passes, 131 GB: 131 s at 1 GB/s, 26 s at 5 GB/s" in printed
    )
    assert "164 s of processor, 10 s on 16 workers" in printed and "a part (1024 sites) is 0.20 of it" in printed
    assert "10.2 GB of loadings" in printed and "L (0.51 GB)" in printed
