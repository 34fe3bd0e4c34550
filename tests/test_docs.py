"""What the documents name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import icofactor
from test_examples import RESULTS

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
ids = [str(page.relative_to(ROOT)) for page in PAGES]
ENDS = r"\.(?:py|md|toml|js|css|html)|/"


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if "://" not in link and not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_paths_of_the_repository_exist(page: Path) -> None:
    """`src/...`, `tests/...` and so on, on every page."""
    paths = re.findall(
        rf"`((?:src|tests|docs|reproduction|benchmarks)/[\w./-]*(?:{ENDS})?)`", page.read_text(encoding="utf-8")
    )
    assert not [path for path in paths if not (ROOT / path).exists()]


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
        assert module or (file.exists() and parts[-1] in file.read_text(encoding="utf-8")), f"{dotted} does not exist"


def test_the_reference_lists_every_public_class_and_function() -> None:
    listed = re.findall(
        r"^   (\w+)$", (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    public = [name for name in icofactor.__all__ if callable(getattr(icofactor, name))]
    assert not set(public) ^ set(listed)


@pytest.mark.parametrize("module", ["cohort", "preprocessing"])
def test_the_reference_lists_the_names_of_modules(module: str) -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    names = {
        name for name in getattr(icofactor, module).__all__ if name not in icofactor.__all__ and name != "MODALITIES"
    }
    assert set(re.findall(rf"^   {module}\.(\w+)$", page, re.MULTILINE)) == names


def test_the_reference_lists_what_functions_return() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
    returned = [name for names in RESULTS.values() for name in names.split()]
    assert not [name for name in returned if not re.search(rf"^   [\w.]+\.{name}$", page, re.MULTILINE)]


def test_every_page_is_in_the_site_once() -> None:
    listed = ["index"]
    for page in ROOT.glob("docs/**/*.md"):
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            names = [
                re.sub(r".*<(.*)>", r"\1", line) for line in tree.splitlines() if line and not line.startswith(":")
            ]
            listed += [str((page.parent / name).resolve().relative_to(ROOT / "docs")) for name in names]
    pages = [str(page.relative_to(ROOT / "docs").with_suffix("")) for page in ROOT.glob("docs/**/*.md")]
    assert sorted(listed) == sorted([*pages, "tutorials/index", "reference/commands/*"])
