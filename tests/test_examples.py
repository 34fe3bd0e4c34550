"""The examples in docstrings run and show what they say, and every public name has one."""

from __future__ import annotations

import doctest
import inspect
import re
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
    (bootstrap, "Bootstrap"),
    (atlas, "Atlas"),
    (atlas, "overlap"),
    (atlas, "Overlap"),
    (diagnostics, "diagnose"),
    (diagnostics, "Diagnostics"),
    (report, "write_page"),
]
RESULTS = {
    "icofactor.assessment.selection": "Choice",
    "icofactor.assessment._compare": "Comparison",
    "icofactor.assessment.associations": "Associations PLS NormativeScores",
    "icofactor.cohort.cohort": "Measurement",
    "icofactor.cohort.measures": "Measures",
    "icofactor.factorization._refine": "Refined",
    "icofactor.factorization.matching": "Match",
    "icofactor.preprocessing.combat": "Harmonization",
    "icofactor.results.fit_cohort": "FitResult",
}
"""What functions return and models keep; not imported from `icofactor`, but in the reference."""
PUBLIC += [
    (import_module(module), name) for module, names in RESULTS.items() for name in names.split()
]


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_every_public_name_has_an_example(module: object, name: str) -> None:
    public = getattr(module, name)
    if inspect.isclass(public) or inspect.isfunction(public):
        assert "\nExamples\n--------\n>>> " in (inspect.getdoc(public) or ""), (
            f"{name} has no example"
        )


CALLABLE = [getattr(module, name) for module, name in PUBLIC if callable(getattr(module, name))]


@pytest.mark.parametrize("public", CALLABLE, ids=lambda public: public.__name__)
def test_parameters_have_a_type_and_a_description(public: object) -> None:
    """As numpydoc reads them: `name : type`, and what it is on the next lines, which the site sets apart."""
    inner = (
        [getattr(public, name) for name in vars(public) if name[0] != "_"]
        if inspect.isclass(public)
        else []
    )
    for one in [
        public,
        *(found for found in inner if inspect.isroutine(found) or isinstance(found, property)),
    ]:
        text = inspect.getdoc(one)
        assert text, f"{one} has no docstring"
        sections = re.findall(
            r"^(?:Parameters|Attributes)\n-+\n(.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE
        )
        entries = [entry for section in sections for entry in re.split(r"\n(?=\S)", section)]
        assert not [entry for entry in entries if "\n    " not in entry]
