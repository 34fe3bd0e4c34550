"""What README and docs tell people to type works: command lines, blocks of Python, tutorials, generated pages."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
import shlex
import shutil
import warnings
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icofactor as ico
from helpers import region_tables
from helpers.trees import (
    fmriprep_tree,
    freesurfer_tree,
    gifti_files,
    hcp_tree,
    hemispheres,
    write_npz,
)
from icofactor.cli import bids
from icofactor.cli.main import _options, _parser
from icofactor.cli.main import main as icofactor
from icofactor.io.freesurfer import write_annot
from icofactor.results.colours import distinct_colours

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
TUTORIALS = sorted((ROOT / "docs" / "examples").glob("*.py"))


def blocks(page: Path, *kinds: str) -> list[str]:
    """The code blocks of a page of these kinds; "" is a block without one."""
    found = re.findall(
        r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    return [text for kind, text in found if kind in kinds]


def commands(text: str) -> list[list[str]]:
    """The command lines of icofactor in a text, as words, in blocks and indented ones; comments are gone."""
    lines = re.findall(
        r"^ {0,4}(?:for .*; do )?(icofactor(?:-bids)? .*)$", text.replace("\\\n", " "), re.MULTILINE
    )
    return [shlex.split(line.partition("; done")[0], comments=True) for line in lines]


SHOWN = [
    pytest.param(words, id=f"{page.stem}-{' '.join(words)[:60]}")
    for page in [*PAGES, *TUTORIALS]
    for text in (
        [
            *blocks(page, "", "bash"),
            *re.findall(r"(?:^    .*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE),
        ]
        if page.suffix == ".md"
        else [re.sub(r"^#\s*", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE)]
    )
    for words in commands(text)
]
HELP = [
    re.sub(r"^ +", "", parser.epilog or "", flags=re.MULTILINE) for parser in _parser()[1].values()
]
EXAMPLES = [words for text in HELP for words in commands(text)]


@pytest.mark.parametrize("words", [*SHOWN, *EXAMPLES])
def test_command_lines_are_understood(words: list[str], tmp_path: Path) -> None:
    words = bids.as_fit([str(tmp_path), *words[2:]]) if words[0] == "icofactor-bids" else words[1:]
    assert _options(words).command == words[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_lines_of_a_block_can_be_typed_one_after_the_other(page: Path) -> None:
    """No two of them write to one folder, where the second would end with an error; OUT is a folder of your choice."""
    for text in blocks(page, "", "bash"):
        given = [
            _options(words[1:])
            for words in commands(text)
            if words[1] in ("fit", "demo", "prepare", "select")
        ]
        written = [
            str(one.out) for one in given if not getattr(one, "append", False) and not one.overwrite
        ]
        assert len(set(written) - {"OUT"}) == len([out for out in written if out != "OUT"]), written


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_in_sentences_exist(page: Path) -> None:
    """`icofactor select --atlas` in running text: the command has the option."""
    parsers = _parser()[1]
    text = re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    for command, rest in re.findall(r"`icofactor (\w+)( [^`]*)?`", text):
        if command == "COMMAND":
            continue
        known = {flag for action in parsers[command]._actions for flag in action.option_strings}
        assert not set(re.findall(r"(?<=\s)--?[a-z][\w-]*", rest)) - known, f"{command}{rest}"


NOT_RUN = {
    'inputs = pre.find_inputs("HCP", "reho")': "needs an HCP tree: tests/preprocessing/test_prepare.py calls the same",
    "to_fs5 = preprocessing.fs_lr_to_fsaverage": "needs HCPpipelines: tests/preprocessing/test_resampling.py",
    "LocalCluster(n_workers=16": "starts 16 processes: tests/maps/test_fits.py fits on two",
    'Client(scheduler_file="scheduler.json")': "run by tests/maps/test_cluster_job.py",
    'open_store("gs://': "needs a bucket: tests/cohort/test_store_remote.py has a server",
    "SLURMCluster(": "needs dask-jobqueue and SLURM, as the page says",
}
"""What a block of Python contains → why it is not run here; its names and arguments are checked all the same."""
PYTHON = {page: texts for page in PAGES if (texts := blocks(page, "python"))}


def not_run(text: str) -> bool:
    return any(mark in text for mark in NOT_RUN)


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.stem)
def test_names_and_arguments_in_blocks_exist(page: Path) -> None:
    """Of calls of icofactor's functions, run or not: `pre.Steps("reho", filter="fft")`."""
    for text in PYTHON[page]:
        tree, modules = ast.parse(text), {"ico": ico}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("icofactor"):
                for alias in node.names:
                    modules[alias.asname or alias.name] = getattr(
                        import_module(str(node.module)), alias.name
                    )
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or "(" in (called := ast.unparse(node.func)):
                continue
            first, *parts = called.split(".")
            if first in modules:
                given = {word.arg: None for word in node.keywords if word.arg}
                function = reduce(getattr, parts, modules[first])
                inspect.signature(function).bind_partial(*node.args, **given)


def supposed() -> dict[str, Any]:
    """The variables that the texts suppose; a function below for a page that supposes more, or files."""
    rng = np.random.default_rng(0)
    cohort = ico.simulate_cohort(36, 5, variability=0.008)
    people = {name: cohort.participants[name] for name in ("participant_id", "age", "sex")}
    people["group"] = np.where(np.arange(36) % 2, "patient", "control")
    people["site"] = np.where(np.arange(36) % 3, "A", "B")
    cohort.participants.update(people)
    return {
        "ico": ico,
        "cohort": cohort,
        "new_cohort": cohort[:20],
        "X": cohort.X,
        "X_new": cohort.X[:9],
        "cortex": np.arange(cohort.X.shape[1]) > 100,
        "participants": people,
        "behaviour": {"memory": rng.normal(size=80), "speed": rng.normal(size=80)},
    }


def supposed_cohorts(folder: Path, given: dict[str, Any]) -> None:
    cohort = ico.simulate_cohort(4, 2, hemisphere="both", variability=0.008)
    maps, names = hemispheres(cohort.X), ["sub-01", "sub-02", "sub-03", "sub-04"]
    freesurfer_tree(folder / "data" / "freesurfer", names, maps)
    fmriprep_tree(folder / "data" / "derivatives" / "xcp_d", names, maps)
    gifti_files(folder / "maps", names, maps)
    rng = np.random.default_rng(0)
    fs_lr = {side: 1 + rng.random((4, 32492)) for side in maps}
    hcp_tree(folder / "data" / "HCP", ["100307", "100408", "101107", "102816"], fs_lr)
    write_npz(folder / "thickness.npz", names, maps)
    (folder / "participants.tsv").write_text("participant_id\tage\n100307\t30\n100408\t40\n")
    for prefix in ("lh", "rh"):
        rows = "\n".join(f"{i} 0 0 0 0" for i in range(500, 10242))
        (folder / f"{prefix}.cortex.label").write_text(f"#!ascii label\n{10242 - 500}\n{rows}\n")
    given["cohort"] = whole = ico.simulate_cohort(12, 2, mesh="fsaverage3")
    given |= {"cohorts": iter([whole[:5], whole[5:10]]), "more": whole[10:]}


def supposed_parcels(folder: Path, given: dict[str, Any]) -> None:
    for file, side in zip(region_tables.write_toy_atlas(folder), ("lh", "rh"), strict=True):
        file.rename(folder / f"{side}.aparc.annot")
    values = region_tables.toy_values()
    region_tables.aparcstats2table(folder / "tables", values)
    names = [f"{side}_{name}" for side in ("lh", "rh") for name in region_tables.NAMES]
    given |= {"X": values, "regions": names}


def supposed_scale(folder: Path, given: dict[str, Any]) -> None:
    ico.cohort.save_store(ico.simulate_cohort(20, 3, mesh="fsaverage3"), folder / "cohort.zarr")
    given["X"] = ico.simulate_cohort(20, 3, mesh="fsaverage3").X


def supposed_reproduction(folder: Path, given: dict[str, Any]) -> None:
    X = ico.simulate_cohort(4, 2, hemisphere="both").X
    np.savez(
        folder / "thickness_fsaverage5_n200.npz",
        thickness=X,
        cortex=np.ones(X.shape[1], dtype=bool),
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.stem)
def test_blocks_of_python_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, with the data that the text supposes."""
    monkeypatch.chdir(tmp_path)
    texts = [text for text in PYTHON[page] if not not_run(text)]
    given = supposed() if texts else {}
    if (more := globals().get(f"supposed_{page.stem}")) is not None:
        more(tmp_path, given)
    choose = partial(
        ico.choose_n_components, n_splits=2, n_starts=2, n_nulls=5, level=1
    )  # minutes, at its defaults
    quick = lambda cohort, ranks, **given: choose(cohort, list(ranks)[:2], **given)
    monkeypatch.setattr(ico, "choose_n_components", quick)
    many = ico.multistart
    monkeypatch.setattr(
        ico,
        "multistart",
        lambda *given, **more: many(*given, **more | {"n_starts": 3, "n_iter": 20}),
    )
    for text in texts:
        if "normative_scores" in text:  # the model of the block before has 80 people
            given["participants"] = {
                **given["cohort"].participants,
                "group": np.resize(["control", "patient"], 80),
            }
        text = text.replace('"/data/', f'"{tmp_path}/data/')
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(text, page, "exec"), given)


@pytest.mark.slow
def test_the_commands_of_the_start_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, on a small mesh."""
    monkeypatch.chdir(tmp_path)
    cohort = ico.simulate_cohort(24, 2, hemisphere="both", mesh="fsaverage3", variability=0.008)
    maps = hemispheres(cohort.X)
    for name, rows in {"SUBJECTS_DIR": slice(18), "NEW_SUBJECTS_DIR": slice(18, 24)}.items():
        some = {side: values[rows] for side, values in maps.items()}
        freesurfer_tree(tmp_path / name, cohort.subjects[rows], some, target="fsaverage3")
    people = zip(
        cohort.subjects, cohort.participants["age"], cohort.participants["sex"], strict=True
    )
    lines = "".join(f"{name}\t{age}\t{sex}\n" for name, age, sex in list(people)[:18])
    (tmp_path / "participants.tsv").write_text(f"participant_id\tage\tsex\n{lines}")
    text = "".join(blocks(ROOT / "docs" / "start.md", "")).replace("fsaverage5", "fsaverage3")
    shown = [words for words in commands(text) if words[0] == "icofactor"]
    whole = [
        word for word in shown[1] if word != "--dry-run"
    ]  # "Then run the same line without it"
    quick = {
        "demo": "--n-subjects 12 --n-components 2 --hemisphere left --no-figures",
        "fit": "--n-components 2 --no-figures",
        "select": "--ranks 2-3 --splits 2 --n-starts 2 --nulls 5 --level 1",
        "associate": "--permutations 199",
        "transform": "",
    }
    for words in [*shown[:2], whole, *shown[2:]]:
        assert (
            icofactor([word.removeprefix("$") for word in words[1:]] + quick[words[1]].split()) == 0
        ), words
    assert (tmp_path / "out" / "report.html").is_file() and (
        tmp_path / "new_loadings.tsv"
    ).is_file()


PAGES_OF_COMMANDS = [
    "associations",
    "covariates",
    "harmonization",
    "measures",
    "parcels",
    "people",
    "report",
    "selection",
]
QUICK = {
    "demo": "--n-subjects 12 --n-components 2 --hemisphere left --no-figures",
    "fit": "--n-components 2 --n-starts 2 --no-figures",
    "select": "--ranks 2-3 --splits 2 --n-starts 2 --nulls 5 --level 1",
    "associate": "--permutations 199",
    "transform": "",
    "report": "--no-figures --overwrite",
}
"""What makes a command take a second."""
SUPPOSED = {
    "INPUT...": ["thickness.store"],
    "$SUBJECTS_DIR": ["SUBJECTS_DIR"],
    "fsaverage5": ["fsaverage3"],
    "200": ["3"],
    "tpl-fsLR_atlas-Gordon_den-32k_dseg.dlabel.nii": ["lh.aparc.annot", "rh.aparc.annot"],
}
"""Words of command lines, and what is typed for them."""
OTHER_FILES = ("--surfaces", "://")
"""Lines with these suppose other surfaces or servers: other tests have them."""


def files_of_commands(folder: Path) -> None:
    """Small files of the names that the command lines have."""
    cohort = ico.simulate_cohort(24, 2, hemisphere="both", mesh="fsaverage3", variability=0.008)
    people = {
        "participant_id": cohort.subjects,
        **{name: cohort.participants[name] for name in ("age", "sex")},
    }
    people |= {"site": np.resize(["A", "B"], 24), "family": np.repeat(np.arange(12), 2)}
    cohort.participants.update(people)
    myelin = ico.simulate_cohort(24, 2, "myelin", hemisphere="both", mesh="fsaverage3")
    (folder / "new").mkdir()
    for name, maps in {"thickness": cohort, "myelin": myelin, "a": cohort, "b": myelin}.items():
        ico.cohort.save_store(maps, folder / f"{name}.store")
        ico.cohort.save_store(maps[:5], folder / "new" / f"{name}.store")
    ico.cohort.save_store(cohort, folder / "cohort.zarr")
    for measure in ("thickness", "area"):
        freesurfer_tree(
            folder / "SUBJECTS_DIR",
            cohort.subjects,
            hemispheres(cohort.X),
            measure,
            target="fsaverage3",
        )
    rows = [tuple(people), *zip(*people.values(), strict=True)]
    (folder / "participants.tsv").write_text(
        "".join("\t".join(map(str, row)) + "\n" for row in rows)
    )
    for prefix in ("lh", "rh"):
        keys = np.arange(642) % 2
        write_annot(folder / f"{prefix}.aparc.annot", keys, ["north", "south"], distinct_colours(2))
    assert icofactor(["fit", "thickness.store", "-o", "FITTED", *QUICK["fit"].split()]) == 0


def files_of_parcels(folder: Path) -> None:
    supposed_parcels(folder, {})
    region_tables.enigma(folder, region_tables.toy_values())
    region_tables.xcp_d(folder / "xcp_d", region_tables.toy_values())


def files_of_people(folder: Path) -> None:
    """Two scans of each of twelve people: a longitudinal tree of FreeSurfer, and files of BIDS with a table."""
    cohort = ico.simulate_cohort(24, 2, hemisphere="both", mesh="fsaverage3", variability=0.008)
    scans = [(f"sub-{i // 2:02d}", i % 2 + 1) for i in range(24)]
    shutil.rmtree(folder / "SUBJECTS_DIR")
    names = [f"{who}_ses-{scan}.long.{who}" for who, scan in scans]
    freesurfer_tree(folder / "SUBJECTS_DIR", names, hemispheres(cohort.X), target="fsaverage3")
    names = [f"{who}_ses-{scan}" for who, scan in scans]
    form = "{subject}_hemi-{hemi}_space-fsaverage3_thickness"
    gifti_files(folder / "derivatives", names, hemispheres(cohort.X), form)
    rows = [f"{who}\t{scan}\t{40 + i}\t{'FM'[i // 2 % 2]}\n" for i, (who, scan) in enumerate(scans)]
    (folder / "scans.tsv").write_text("participant_id\tsession_id\tage\tsex\n" + "".join(rows))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_OF_COMMANDS)
def test_the_commands_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after the other, on small files of the names that the lines have."""
    monkeypatch.chdir(tmp_path)
    files_of_commands(tmp_path)
    if (more := globals().get(f"files_of_{page}")) is not None:
        more(tmp_path)
    shown: list[list[str]] = [
        line.values[0] for line in SHOWN if str(line.id).startswith(f"{page}-")
    ]  # type: ignore[misc]
    ran = [words for words in shown if not any(some in " ".join(words) for some in OTHER_FILES)]
    assert ran
    for number, words in enumerate(ran):
        words = [typed for word in words[1:] for typed in SUPPOSED.get(word, [word])]
        if words[0] in ("select", "fit"):
            words = [f"OUT-{number}" if word == "OUT" else word for word in words]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            quick = (
                "--spins 50" if words[:2] == ["select", "-o"] else QUICK[words[0]]
            )  # of a fit, without maps
            assert icofactor([*words, *quick.split()]) == 0, words


@pytest.mark.slow
@pytest.mark.parametrize("script", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_run(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(str(script), run_name="tutorial")
