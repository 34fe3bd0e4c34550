"""What README and docs tell people to type works: command lines, blocks of Python, tutorials, generated pages."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import icofactor as ico
from helpers.trees import freesurfer_tree, hemispheres
from icofactor.cli import bids, main
from icofactor.cli.main import _options, _parser

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
TUTORIALS = sorted((ROOT / "docs" / "examples").glob("*.py"))
sys.path.append(str(ROOT / "docs" / "_ext"))


def blocks(page: Path, *kinds: str) -> list[str]:
    """The code blocks of a page of these kinds; "" is a block without one."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text for kind, text in found if kind in kinds]


def commands(text: str) -> list[list[str]]:
    """The command lines of icofactor in a text, as words; comments are gone."""
    lines = re.findall(r"^(?:for .*; do )?(icofactor(?:-bids)? .*)$", text.replace("\\\n", " "), re.MULTILINE)
    return [shlex.split(line.partition("; done")[0], comments=True) for line in lines]


SHOWN = [
    pytest.param(words, id=f"{page.stem}-{' '.join(words)[:60]}")
    for page in [*PAGES, *TUTORIALS]
    for text in (
        blocks(page, "", "bash")
        if page.suffix == ".md"
        else [re.sub(r"^#\s*", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)]
    )
    for words in commands(text)
]
HELP = [re.sub(r"^ +", "", parser.epilog or "", flags=re.MULTILINE) for parser in _parser()[1].values()]
EXAMPLES = [words for text in HELP for words in commands(text)]


@pytest.mark.parametrize("words", [*SHOWN, *EXAMPLES])
def test_command_lines_are_understood(words: list[str], tmp_path: Path) -> None:
    words = bids.as_fit([str(tmp_path), *words[2:]]) if words[0] == "icofactor-bids" else words[1:]
    assert _options(words).command == words[0]


def test_there_are_command_lines() -> None:
    assert len(SHOWN) > 20 and len(EXAMPLES) > 10


@pytest.mark.slow
def test_the_commands_of_the_first_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FreeSurfer in README: fit, then transform, as they stand there, on a folder as recon-all leaves it."""
    cohort = ico.simulate_cohort(24, 3, hemisphere="both", variability=0.008)
    maps = hemispheres(cohort.X)
    for name, rows in {"SUBJECTS_DIR": slice(0, 16), "NEW_SUBJECTS_DIR": slice(16, 24)}.items():
        tree = freesurfer_tree(tmp_path / name, cohort.subjects[rows], {side: X[rows] for side, X in maps.items()})
        monkeypatch.setenv(name, str(tree))
    monkeypatch.chdir(tmp_path)
    shown = next(text for text in blocks(ROOT / "README.md", "") if "$NEW_SUBJECTS_DIR" in text)
    for words in commands(shown):
        filled = [os.path.expandvars(word) for word in words]
        assert main([*filled[1:], "--quiet", *(["--no-figures"] if words[1] == "fit" else [])]) == 0
    assert (tmp_path / "out" / "report.html").is_file()
    assert len((tmp_path / "new_loadings.tsv").read_text().splitlines()) == 9


PYTHON_PAGES = ("start", "associations", "covariates", "measures")


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", *(f"docs/{name}.md" for name in PYTHON_PAGES)])
def test_blocks_of_python_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, with the data that the text supposes."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    cohort = ico.simulate_cohort(60, 5, variability=0.008)
    people = {name: cohort.participants[name] for name in ("participant_id", "age", "sex")}
    people["group"] = np.where(np.arange(60) % 2, "patient", "control")
    people["site"] = np.where(np.arange(60) % 3, "A", "B")
    cohort.participants.update(people)
    given = {
        "ico": ico,
        "cohort": cohort,
        "new_cohort": cohort[:20],
        "X": cohort.X,
        "X_new": cohort.X[:9],
        "cortex": np.arange(cohort.X.shape[1]) > 100,
        "participants": people,
        "behaviour": {"memory": rng.normal(size=80), "speed": rng.normal(size=80)},
    }
    texts = blocks(ROOT / page, "python")
    assert texts
    for text in texts:
        if "normative_scores" in text:  # the model of the block before has 80 people
            given["participants"] = {**given["cohort"].participants, "group": np.resize(["control", "patient"], 80)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, page, "exec"), given)


@pytest.mark.slow
@pytest.mark.parametrize("script", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_run(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(script), run_name="tutorial")


def test_tutorials_have_an_order() -> None:
    from gallery_order import TUTORIALS as order

    assert sorted(order) == [script.stem for script in TUTORIALS]


def test_figures_in_variables_are_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures of `plot_components` are not pyplot's: sphinx-gallery alone would leave them out."""
    from gallery_order import shown_figures
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    scrapers = ModuleType("sphinx_gallery.scrapers")
    scrapers.figure_rst = lambda paths, folder: " ".join(paths)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sphinx_gallery", ModuleType("sphinx_gallery"))
    monkeypatch.setitem(sys.modules, "sphinx_gallery.scrapers", scrapers)
    names = {"figure": Figure(), "again": 1, "pyplots": pyplot.figure()}
    given = {"example_globals": names, "image_path_iterator": iter([f"{tmp_path}/images/1.png"])}
    assert shown_figures(None, given, {"src_dir": ""}) == f"{tmp_path}/images/1.png"
    assert (tmp_path / "images" / "1.png").is_file()
    assert shown_figures(None, given, {"src_dir": ""}) == ""
    pyplot.close("all")


def test_pages_of_commands_name_every_option() -> None:
    from command_pages import page, parsers

    for name, parser in parsers().items():
        text = page(parser)
        assert text.startswith(parser.prog) and name == parser.prog.replace(" ", "-")
        for action in parser._actions:
            assert all(f"``{flag}" in text for flag in action.option_strings), (name, action.dest)
