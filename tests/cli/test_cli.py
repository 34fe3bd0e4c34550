"""The command line: what it loads, what it says, how it ends."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import icofactor
from icofactor.cli.main import _parser, main, option_naming
from icofactor.errors import CohortError, render
from icofactor.progress import Stages

HEAVY = [
    "jax",
    "numba",
    "matplotlib",
    "nilearn",
    "zarr",
    "nibabel",
    "sklearn",
    "scipy.sparse",
    "tqdm",
]
SMALL = ["--hemisphere", "left", "--n-subjects", "6", "--n-components", "2", "--no-figures", "-q"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--help"], "demo"),
        (["--version"], f"icofactor {icofactor.__version__}"),
        (["demo", "--help"], "icofactor demo demo-output"),
        (["fit", "--help"], "icofactor fit $SUBJECTS_DIR"),
        (["transform", "--help"], "icofactor transform out/model.zip"),
    ],
)
def test_help_loads_nothing_heavy(words: list[str], expected: str) -> None:
    program = f"""
import sys
from icofactor.cli import main
try:
    main({words!r})
except SystemExit as end:
    print("status", end.code)
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    *text, status, loaded = done.stdout.splitlines()
    assert expected in "\n".join(text)
    assert (status, loaded, done.stderr) == ("status 0", "[]", "")


@pytest.mark.parametrize(
    "words",
    [
        ["unknown"],
        ["demo"],
        ["demo", "out", "--n-subjects", "many"],
        ["demo", "out", "--hemisphere", "top"],
        ["fit", "maps", "-o", "out", "--entities", "ses"],
    ],
)
def test_words_that_are_not_understood(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("usage: icofactor")


def test_wrong_options_are_answered_by_their_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["fit", "maps", "-o", "out", "--ncomponents", "4"])
    err = capsys.readouterr().err
    assert end.value.code == 2 and err.startswith("usage: icofactor fit")
    assert err.endswith("unrecognized arguments: --ncomponents 4; did you mean --n-components?\n")
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code in (0, None) and "transform" in capsys.readouterr().out


def test_a_log_has_lines_and_no_bars(capsys: pytest.CaptureFixture[str]) -> None:
    with Stages(True).stage("fit") as show:
        show(0.5)
    with Stages(False).stage("fit") as ignore:
        ignore(0.5)
    assert capsys.readouterr().err == "fit ...\nfit: 0 s\n"


def test_arguments_without_an_option_have_the_name_of_their_place() -> None:
    """What Python calls X or cohort is INPUT; the fits that compare calls a and b are A and B."""
    _, commands = _parser()
    name = lambda command, argument: option_naming(commands[command])(argument, None)
    assert [name("fit", argument) for argument in ("X", "cohort", "paths", "mesh")] == [
        *["INPUT"] * 3,
        "--mesh",
    ]
    assert (name("compare", "a"), name("compare", "b"), name("fit", "sessions")) == (
        "A",
        "B",
        "--sessions",
    )
    error = CohortError("sessions", "must be all, or sessions of the scans")
    assert error.describe(option_naming(commands["fit"])).startswith("--sessions: must be all")


def no_work(*arguments: Any, **more: Any) -> None:
    raise AssertionError("work began before the place of the results was looked at")


def test_the_place_is_looked_at_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icofactor.cohort.simulate.simulate_cohort", no_work)
    file = tmp_path / "file"
    file.write_text("mine")
    assert main(["demo", str(file), *SMALL]) == 2
    assert (
        capsys.readouterr().err
        == f"icofactor demo: {file} is a file, but a folder must be written there\n"
    )
    assert main(["demo", str(file / "deep"), *SMALL, "--overwrite"]) == 2
    assert "is a file" in capsys.readouterr().err
    for name in (
        "components.png",
        "desc-icofactor_loadings.tsv",
        "desc-icofactor_participants.tsv",
        "model.zip",
    ):
        out = tmp_path / f"holds {name}"
        out.mkdir()
        (out / name).write_text("mine")
        for asked in ([], ["--overwrite"]):
            assert main(["demo", str(out), *SMALL, *asked]) == 2
            said = capsys.readouterr().err
            assert said.startswith(
                f"icofactor demo: {out / name} exists and is not a result that this command may replace"
            )
            assert "--overwrite" not in said
        assert (out / name).read_text() == "mine"
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    assert main(["demo", str(tmp_path / "new"), *SMALL]) == 2
    assert capsys.readouterr().err == f"icofactor demo: {tmp_path} is not writable\n"


def test_verbose_shows_where_it_went_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="modality"):
        main(["demo", str(tmp_path / "out"), *SMALL, "-v", "--modality", "nonsense"])


def raising(problem: BaseException) -> Any:
    def fail(*arguments: Any, **more: Any) -> None:
        raise problem

    return fail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted; no partial results were left behind"),
        (
            OSError(28, "No space left on device"),
            2,
            "No space left on device: {out}/tables/columns.json",
        ),  # written last
        (OSError(30, "Read-only file system", "/x/y"), 2, "Read-only file system: /x/y"),
        (ValueError("two\nlines"), 2, "two lines"),
    ],
)
def test_trouble_in_the_last_step_leaves_nothing(
    tmp_path: Path,
    problem: BaseException,
    status: int,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("icofactor.results.report.page.draw_report", raising(problem))
    out = tmp_path / "new" / "out"
    assert main(["demo", str(out), *SMALL]) == status
    assert capsys.readouterr() == ("", f"icofactor demo: {message.format(out=out)}\n")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("{n_components=4} is more", "--n-components 4 is more"),
        (
            "{hemi='left'}, but the cohort contains 'right'",
            "--hemisphere left, but the cohort contains 'right'",
        ),
        ("{mesh} must be a name", "--mesh must be a name"),
        ("the mesh must be known", "the mesh must be known"),
        (
            "say {mesh='fsaverage6'}, or mesh=Sites.from_file(x)",
            "say --mesh fsaverage6, or mesh=Sites.from_file(x)",
        ),
        (
            "/data/n_components/x.gii and n_components.tsv",
            "/data/n_components/x.gii and n_components.tsv",
        ),
        ("exists; pass {overwrite=True} to replace it", "exists; pass --overwrite to replace it"),
        ("{penalty=2}", "penalty=2"),
        ("use {hemi='left' or 'right'}", "use --hemisphere left or right"),
        ("choose with {mesh} or {hemisphere}", "choose with --mesh or --hemisphere"),
        ("{mesh=('lh.gii', 'rh.gii')}", "--mesh lh.gii,rh.gii"),
        ("{random_state} and {clip=False}", "--random-seed and --no-clip"),
        ("a file named {{mesh}}", "a file named {mesh}"),
    ],
)
def test_arguments_are_named_as_the_command_line_names_them(said: str, shown: str) -> None:
    parser = argparse.ArgumentParser()
    for name in ("n-components", "mesh", "hemisphere", "random-seed"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--clip", action=argparse.BooleanOptionalAction)
    assert render(said, option_naming(parser)) == shown


def test_every_bad_file_has_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = CohortError.of([("a.gii", "cut   short"), ("b.gii", "has no {hemisphere='left'}")])
    monkeypatch.setattr("icofactor.cohort.simulate.simulate_cohort", raising(problem))
    assert main(["demo", str(tmp_path / "out"), *SMALL]) == 2
    expected = (
        "icofactor demo: 2 problems:\n  a.gii: cut short\n  b.gii: has no --hemisphere left\n"
    )
    assert capsys.readouterr() == ("", expected)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_interrupting_a_process(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "icofactor.cli",
        "demo",
        str(tmp_path / "out"),
        "--n-subjects",
        "2000",
    ]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # not ignored, as by nohup
    try:
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        assert process.stderr is not None
        begun = process.stderr.read(10)  # the progress bar of the first stage
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130
    assert begun.strip() and "simulation".startswith(begun.strip())
    # not a line of its own when the signal comes while the bar is being made
    assert rest.endswith("icofactor demo: interrupted; no partial results were left behind\n")
    assert not any(tmp_path.iterdir())


EARLY = """
import builtins, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import icofactor.__main__ as programs
load = builtins.__import__
def interrupted_load(name, *more):
    if name.startswith("icofactor.cli"):
        os.kill(os.getpid(), signal.SIGINT)
    return load(name, *more)
builtins.__import__ = interrupted_load
program = getattr(programs, sys.argv[1])
sys.argv[:] = ["icofactor", "--version"]
sys.exit(program())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.parametrize("program", ["main", "bids"])
def test_ctrl_c_while_commands_load_shows_no_traceback(program: str) -> None:
    words = [sys.executable, "-c", EARLY, program]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_letters_that_the_output_cannot_show_end_no_command(tmp_path: Path) -> None:
    """As on Windows, where a pipe may be cp1252."""
    code = "import sys, icofactor.__main__ as m, icofactor.cli; "
    code += "sys.modules['icofactor.cli.main'].main = lambda: print('λ ≤ ½') or 0; m.main()"
    env = os.environ | {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, env=env)
    assert (ended.returncode, ended.stdout.split()) == (0, [rb"\u03bb", rb"\u2264", b"\xbd"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_what_is_said_is_one_line() -> None:
    words, buffered = (
        [sys.executable, "-m", "icofactor", "--version"],
        os.environ | {"PYTHONUNBUFFERED": ""},
    )
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            words, env=buffered, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 1
    assert ended.stderr == "icofactor: cannot write its output (No space left on device)\n"
