"""Locks and moves as Windows has them: no fcntl, no folders that can be opened, files that are held for a moment."""

from __future__ import annotations

import ast
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from icofactor.io import atomic
from icofactor.io.atomic import alone_in, atomic_path, nobody_in, remove_abandoned, sync
from icofactor.io.publish import Publication


class FakeLocks(ModuleType):
    """msvcrt.locking: bytes of a file, from where the handle stands, belong to one handle."""

    LK_UNLCK, LK_NBLCK = 0, 2

    def __init__(self) -> None:
        super().__init__("msvcrt")
        self.held: dict[tuple[int, int], int] = {}

    def locking(self, number: int, mode: int, length: int) -> None:
        first = os.lseek(number, 0, os.SEEK_CUR)
        keys = [(os.fstat(number).st_ino, at) for at in range(first, first + length)]
        if mode == self.LK_UNLCK:
            assert all(self.held.pop(key) == number for key in keys)
        elif any(key in self.held for key in keys):
            raise OSError(errno.EACCES, "Permission denied")
        else:
            self.held |= dict.fromkeys(keys, number)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeLocks]:
    locks = FakeLocks()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setitem(sys.modules, "fcntl", None)  # importing it fails
    monkeypatch.setitem(sys.modules, "msvcrt", locks)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(atomic, "_PAUSE", 0.001)
    yield locks
    assert not locks.held


@pytest.mark.usefixtures("windows")
def test_a_writer_is_alone_and_readers_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with alone_in(folder) as held:
        assert held and not nobody_in(folder)
        for others in (False, True):
            with pytest.raises(BlockingIOError), alone_in(folder, with_others=others, wait=False):
                pass
        with alone_in(tmp_path, wait=False) as held:  # another folder
            assert held
    assert nobody_in(folder)
    with alone_in(folder, with_others=True), alone_in(folder, with_others=True):
        assert not nobody_in(folder)
    assert not list(folder.iterdir())


@pytest.mark.usefixtures("windows")
def test_a_second_writer_waits(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with alone_in(tmp_path):
            order.append("second")

    waiting = threading.Thread(target=second)
    with alone_in(tmp_path):
        waiting.start()
        waiting.join(0.05)
        order.append("first")
    waiting.join(10)
    assert order == ["first", "second"]


def test_without_any_locks_the_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fcntl", "msvcrt"):
        monkeypatch.setitem(sys.modules, name, None)
    with alone_in(tmp_path) as held:
        assert not held
    assert not nobody_in(tmp_path)


@pytest.mark.usefixtures("windows")
def test_results_appear_whole_and_are_replaced(tmp_path: Path) -> None:
    for text in ("one", "two"):
        with Publication(tmp_path / "out", overwrite=text == "two", names=["a.txt"]).filled() as new:
            (new / "a.txt").write_text(text)
            assert not list(tmp_path.glob("out/a.txt")) or text == "two"
        assert (tmp_path / "out" / "a.txt").read_text() == text
    assert not list((tmp_path / "out").glob(".tmp-*"))


@pytest.mark.usefixtures("windows")
def test_files_of_dead_writers_are_swept_when_they_are_old(tmp_path: Path) -> None:
    old, young, other = (tmp_path / f".tmp-0000000{i}-{name}" for i, name in enumerate(("a.txt", "a.txt", "b.txt")))
    for place in (old, young, other):
        place.write_text("half")
    with atomic_path(tmp_path / "a.txt") as living:
        living.write_text("whole")
        for place in (old, other, living):
            os.utime(place, (0, 0))
        remove_abandoned(tmp_path, {"a.txt"})
        assert living.exists() and young.exists() and other.exists() and not old.exists()
    assert (tmp_path / "a.txt").read_text() == "whole"
    assert not list((tmp_path / "temporary").iterdir())  # nothing stays in the temporary folder


@pytest.mark.parametrize(("refusals", "windows", "moved"), [(3, True, True), (99, True, False), (1, False, False)])
def test_a_file_that_is_held_for_a_moment_is_moved_later(
    refusals: int, windows: bool, moved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")
    left, real = refusals, os.replace

    def busy(source: Any, target: Any) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise PermissionError(errno.EACCES, "The process cannot access the file", str(source))
        real(source, target)

    monkeypatch.setattr(atomic, "_PAUSE", 0.0)
    monkeypatch.setattr(atomic.os, "replace", busy)
    monkeypatch.setattr(atomic, "_WINDOWS", windows)
    try:
        with atomic_path(tmp_path / "a", overwrite=True) as temporary:
            temporary.write_text("new")
    except PermissionError as problem:
        assert problem.filename == str(tmp_path / "a")
    monkeypatch.undo()
    assert (tmp_path / "a").read_text() == ("new" if moved else "old")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_folders_are_not_opened_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(atomic.os, "open", lambda *words: opened.append(words))
    monkeypatch.setattr(atomic, "_WINDOWS", True)
    sync(tmp_path)
    monkeypatch.undo()
    assert not opened


def test_memory_is_not_known_without_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    from icofactor.results.diagnostics.diagnose import peak_memory

    assert peak_memory() > 2**20
    monkeypatch.setitem(sys.modules, "resource", None)
    assert peak_memory() == 0


ROOT = Path(__file__).parents[2]
POSIX = {"fcntl", "resource", "termios", "pwd", "grp"}
NAMES = {"os.fork", "os.mkfifo", "os.geteuid", "os.getuid", "os.O_NONBLOCK", "os.O_DIRECTORY", "os.posix_fadvise"}
NAMES |= {"signal.SIGKILL", "signal.SIGALRM", "signal.pthread_kill", "signal.setitimer"}


def run_on_import(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a module that run when it is imported: all but the bodies of functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(node, ast.FunctionDef | ast.Lambda) and child not in getattr(node, "decorator_list", ()):
            continue
        yield child
        yield from run_on_import(child)


@pytest.mark.parametrize("folder", ["src", "tests"])
def test_every_module_can_be_imported_on_windows(folder: str) -> None:
    found = []
    for file in (ROOT / folder).rglob("*.py"):
        for node in run_on_import(ast.parse(file.read_text(encoding="utf-8"))):
            imported = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            if imported & POSIX or (isinstance(node, ast.Attribute) and ast.unparse(node) in NAMES):
                found.append(f"{file.name}:{node.lineno}")
    assert not found


def test_a_signal_reaches_the_main_thread_without_pthread_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    from icofactor.cli.main import send_signal

    came, before = list[int](), signal.getsignal(signal.SIGTERM)
    monkeypatch.delattr(signal, "pthread_kill", raising=False)
    signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    try:
        sender = threading.Thread(target=send_signal, args=(threading.get_ident(), signal.SIGTERM))
        sender.start()
        sender.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]
