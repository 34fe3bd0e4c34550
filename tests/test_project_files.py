"""Files about the project: they parse, name what exists, and those made from the parsers are up to date."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import icofactor
from icofactor.cli.main import _options

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def loaded(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_boutiques_descriptors_are_those_of_the_parsers() -> None:
    made = runpy.run_path(str(ROOT / "packaging" / "boutiques" / "make.py"))
    for name, parser in made["parsers"]().items():
        text = (ROOT / "packaging" / "boutiques" / f"{name}.json").read_text(encoding="utf-8")
        assert text == made["text"](parser), "run python packaging/boutiques/make.py"
        described = json.loads(text)
        keys = re.findall(r"\[\w+\]", described["command-line"])
        assert sorted(keys) == sorted(one["value-key"] for one in described["inputs"])


def test_versions_agree() -> None:
    versions = [
        loaded("CITATION.cff")["version"],
        loaded("packaging/conda/recipe.yaml")["context"]["version"],
    ]
    assert {*versions, PROJECT["version"]} == {icofactor.__version__}


def test_the_recipe_requires_what_the_package_requires() -> None:
    recipe = loaded("packaging/conda/recipe.yaml")
    least = recipe["context"]["python_min"]
    run = [line.replace("${{ python_min }}", least) for line in recipe["requirements"]["run"]]
    names = {"matplotlib-base": "matplotlib"}
    found = {names.get(name, name) + bound for name, bound in (line.split() for line in run)}
    assert found == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}


@pytest.mark.parametrize("path", [*ROOT.glob(".github/**/*.yml")], ids=lambda path: path.name)
def test_files_of_the_forge_parse(path: Path) -> None:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    for job in found.get("jobs", {}).values():
        assert job["runs-on"] and all(("uses" in step) != ("run" in step) for step in job["steps"])


def test_tests_run_on_every_python_that_the_package_names() -> None:
    tested = loaded(".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = [
        line.rpartition(" ")[2]
        for line in PROJECT["classifiers"]
        if re.search(r"Python :: 3\.\d+$", line)
    ]
    assert tested == named


def test_steps_call_targets_that_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(
        r"run: make ([\w-]+)", (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    ):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_scripts_and_commands_are_those_of_the_package() -> None:
    """What workflows, the recipe and the container call: entry points, command lines, extras and the wheel's name."""
    recipe = loaded("packaging/conda/recipe.yaml")
    points = dict(line.split(" = ") for line in recipe["build"]["python"]["entry_points"])
    assert points == PROJECT["scripts"] and (ROOT / recipe["about"]["license_file"]).is_file()
    container = (ROOT / "Containerfile").read_text(encoding="utf-8")
    assert (
        json.loads(re.findall(r"^ENTRYPOINT (.*)$", container, re.MULTILINE)[0])[0]
        in PROJECT["scripts"]
    )
    words = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "ENTRYPOINT"}
    assert set(re.findall(r"^([A-Z]+) ", container, re.MULTILINE)) <= words
    files = {
        path: path.read_text(encoding="utf-8") for path in ROOT.glob(".github/workflows/*.yml")
    }
    called = [
        *recipe["tests"][1]["script"],
        *re.findall(r"bin/(icofactor .*)", "".join(files.values())),
    ]
    for line in map(shlex.split, called):
        assert line[1:] == ["--help"] or _options(line[1:]).command == line[1]
    assert len(called) > 2
    extras = re.findall(r"\.\[(\w+)\]", "".join(files.values()))
    assert extras and set(extras) <= set(PROJECT["optional-dependencies"])


def test_the_size_report_counts_code_alone_and_notices_growth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = runpy.run_path(str(ROOT / "tools" / "room_sizes.py"))
    source = 'def f(x):\n    """Say what it does."""\n    # why\n    return f"{x} and {x + 1}"\n'
    assert report["code_tokens"](source) == 8
    text = '[tool.room-sizes]\n"a" = 10 # reason\n"b" = 20\n'
    assert report["limits"](report["lowered"](text, {"a": 7, "b": 25})) == {"a": 7, "b": 20}
    limits = report["main"].__globals__["limits"]
    report["main"].__globals__["limits"] = lambda pyproject: {
        **limits(pyproject),
        "src/icofactor/io": 1,
    }
    assert report["main"]([]) == 1
    assert "too large" in capsys.readouterr().out
