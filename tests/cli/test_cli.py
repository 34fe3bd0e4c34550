"""The command line: what it loads, what it says, how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import icofactor
from icofactor.cli.main import main
from icofactor.errors import CohortError
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
    process = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    *text, status, loaded = process.stdout.splitlines()
    assert expected in "\n".join(text)
    assert (status, loaded, process.stderr) == ("status 0", "[]", "")


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
    assert "--n-components?" in err
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code in (0, None) and "transform" in capsys.readouterr().out


def test_a_log_has_lines_and_no_bars(capsys: pytest.CaptureFixture[str]) -> None:
    with Stages(True).stage("fit") as show:
        show(0.5)
    with Stages(False).stage("fit") as ignore:
        ignore(0.5)
    assert capsys.readouterr().err == "fit ...\nfit: 0 s\n"


def no_work(*arguments: Any, **options: Any) -> None:
    raise AssertionError("work began before the place of the results was looked at")


def test_the_place_is_looked_at_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("icofactor.cohort.simulate.simulate_cohort", no_work)
    file = tmp_path / "file"
    file.write_text("mine")
    for out in (file, file / "deep"):
        assert main(["demo", str(out), *SMALL, "--overwrite"]) == 2
        assert str(file) in capsys.readouterr().err
    tables = ("desc-icofactor_loadings.tsv", "desc-icofactor_participants.tsv")
    for name in ("components.png", "model.zip", *tables):
        out = tmp_path / f"holds {name}"
        out.mkdir()
        (out / name).write_text("mine")
        for overwrite in ([], ["--overwrite"]):
            assert main(["demo", str(out), *SMALL, *overwrite]) == 2
            assert capsys.readouterr().err.startswith(f"icofactor demo: {out / name} ")
        assert (out / name).read_text() == "mine"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert main(["demo", str(tmp_path / "new"), *SMALL]) == 2
    assert capsys.readouterr().err.startswith(f"icofactor demo: {tmp_path} ")


def test_verbose_shows_where_it_went_wrong(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="modality"):
        main(["demo", str(tmp_path / "out"), *SMALL, "-v", "--modality", "nonsense"])


def raising(problem: BaseException) -> Any:
    def fail(*arguments: Any, **options: Any) -> None:
        raise problem

    return fail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted; no partial results were left behind"),
        (OSError(28, "No space left on device"), 2, "No space left on device: {out}"),
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
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert printed.err.startswith(f"icofactor demo: {message.format(out=out)}")
    assert not any(tmp_path.iterdir())


def test_every_bad_file_has_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = CohortError.of([("a.gii", "cut   short"), ("b.gii", "is empty")])
    monkeypatch.setattr("icofactor.cohort.simulate.simulate_cohort", raising(problem))
    assert main(["demo", str(tmp_path / "out"), *SMALL]) == 2
    expected = "icofactor demo: 2 problems:\n  a.gii: cut short\n  b.gii: is empty\n"
    assert capsys.readouterr() == ("", expected)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_interrupting_a_process(tmp_path: Path) -> None:
    words = [sys.executable, *f"-m icofactor.cli demo {tmp_path}/out --n-subjects 2000".split()]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # not ignored, as by nohup
    try:
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        assert process.stderr is not None
        begun = process.stderr.read(10)  # the progress bar of the first stage
        process.send_signal(signal.SIGINT)
        message = process.stderr.read()
    assert process.returncode == 130
    assert begun.strip() and "simulation".startswith(begun.strip())
    # not a line of its own when the signal comes while the bar is being made
    assert message.endswith("icofactor demo: interrupted; no partial results were left behind\n")
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
    words = [sys.executable, "-m", "icofactor", "--version"]
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            words, env=buffered, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 1
    assert ended.stderr == "icofactor: cannot write its output (No space left on device)\n"
