"""What the documents name exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import icofactor
from test_examples import RESULTS

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
ids = [str(page.relative_to(ROOT)) for page in PAGES]
BASES = ("", "src", "src/icofactor", "docs")
ENDS = r"\.(?:py|md|toml|js|css|html)|/"


def existing(path: str, page: Path) -> Path | None:
    """The file or folder that a page means by a path: from the root, inside the package, or beside the page."""
    places = [page.parent / path, *(ROOT / base / path for base in BASES)]
    return next((place for place in places if place.exists()), None)


def defined(file: Path) -> set[str]:
    """Names that a module defines at its top, and those of classes inside: `solve`, `Sites`, `Sites.named`."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names |= {
            name.id
            for target in targets
            if target
            for name in ast.walk(target)
            if isinstance(name, ast.Name)
        }
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef)
            }
    return names


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if "://" not in link and not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_paths_of_the_repository_exist(page: Path) -> None:
    """`src/...`, `tests/...` and so on, on every page."""
    paths = re.findall(
        rf"`((?:src|tests|docs|reproduction|benchmarks)/[\w./-]*(?:{ENDS})?)`",
        page.read_text(encoding="utf-8"),
    )
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_contributing_names_what_exists() -> None:
    """Every `path`, and every `path:name`, whose module is parsed and must define the name."""
    page = ROOT / "docs" / "contributing.md"
    found = re.findall(rf"`([\w./-]+?(?:{ENDS}))(?::([\w.]+))?`", page.read_text(encoding="utf-8"))
    assert len(found) > 50, "the page names the places of the house"
    for path, name in found:
        place = existing(path, page)
        assert place is not None, f"{path} does not exist"
        assert not name or name in defined(place), f"{path} does not define {name}"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_modules_are_named_as_they_are(page: Path) -> None:
    """`icofactor.a.b`: a module, or a name that one defines."""
    for dotted in set(re.findall(r"\b(icofactor(?:\.[a-z_]+)+)", page.read_text(encoding="utf-8"))):
        parts = dotted.split(".")
        if parts[:2] == ["icofactor", "errors"] or len(parts) == 2:
            continue
        whole, outer = (ROOT.joinpath("src", *parts[:n]) for n in (len(parts), len(parts) - 1))
        module = any(place.exists() for place in (whole, whole.with_suffix(".py")))
        file = outer / "__init__.py" if outer.is_dir() else outer.with_suffix(".py")
        assert module or (file.exists() and parts[-1] in file.read_text(encoding="utf-8")), (
            f"{dotted} does not exist"
        )


def test_the_reference_lists_every_public_class_and_function() -> None:
    listed = re.findall(
        r"^   (\w+)$",
        (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    public = [name for name in icofactor.__all__ if callable(getattr(icofactor, name))]
    assert not set(public) ^ set(listed)


@pytest.mark.parametrize("module", ["cohort", "preprocessing"])
def test_the_reference_lists_the_names_of_modules(module: str) -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    names = {
        name
        for name in getattr(icofactor, module).__all__
        if name not in icofactor.__all__ and name != "MODALITIES"
    }
    assert set(re.findall(rf"^   {module}\.(\w+)$", page, re.MULTILINE)) == names


def test_the_reference_lists_what_functions_return() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    returned = [name for names in RESULTS.values() for name in names.split()]
    assert not [
        name for name in returned if not re.search(rf"^   [\w.]+\.{name}$", page, re.MULTILINE)
    ]
