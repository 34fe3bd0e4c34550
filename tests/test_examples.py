"""The examples in docstrings run and show what they say, and every public name has one."""

from __future__ import annotations

import doctest
import inspect
from importlib import import_module
from pathlib import Path

import pytest

import icofactor as ico
from icofactor import cohort, preprocessing
from icofactor.assessment import atlas, bootstrap
from icofactor.results import diagnostics, report

SOURCE = Path(ico.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    found = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert found.attempted and not found.failed


PUBLIC = [(module, name) for module in (ico, preprocessing, cohort) for name in module.__all__]
PUBLIC += [
    (bootstrap, "bootstrap"),
    (atlas, "Atlas"),
    (atlas, "overlap"),
    (diagnostics, "diagnose"),
    (report, "write_page"),
]


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_every_public_name_has_an_example(module: object, name: str) -> None:
    public = getattr(module, name)
    if inspect.isclass(public) or inspect.isfunction(public):
        assert "\nExamples\n--------\n>>> " in (inspect.getdoc(public) or ""), f"{name} has no example"
