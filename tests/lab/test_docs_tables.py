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
    """docs/measured.md: 50,000 subjects on ico7."""
    from icofactor_lab.docs_tables import scale

    monkeypatch.setattr(sys, "argv", ["scale", "plan"])
    scale.main()
    printed = " ".join(capsys.readouterr().out.split())
    assert "maps 65.54 GB" in printed and "parts: 321 of 1024 sites" in printed and "16 workers: 30 s" in printed
