"""Results that appear in a folder together or not at all, and never replace a user's files.

A folder has one manifest, `LIST`: the files that icofactor wrote there. Only these are replaced.

A folder that does not exist is written under a temporary name beside it and renamed once.
In a folder that exists (of an earlier fit, or the mount point of a container), results are written
to a temporary folder inside it. When they are complete, this folder is renamed to `ARRIVING`, gets
the new manifest, and its files are moved out, the manifest last. Whoever next looks at the folder
after a kill finishes these moves (`settle`); results without a manifest are removed.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from icofactor.errors import ArgumentError, ExistsError, FileError
from icofactor.io.atomic import atomic_path, remove_abandoned, temporary_name, with_final_name
from icofactor.io.guard import hash_file, naming
from icofactor.io.json import read_json
from icofactor.io.url import local

LIST = ".icofactor-files.json"
ARRIVING = ".icofactor-arriving"
FIGURES = "figures"
TABLES = "tables"
# The folders inside a folder of results.
_INNER = (FIGURES, TABLES)
_FORMAT = "files that icofactor wrote into this folder"
_MAX_NAME = 200
# Renaming takes milliseconds: a process that needs more seconds than this was killed.
_PATIENCE = 2.0
_FOREIGN = (
    "exists and is not a result that this command may replace: choose another place for the "
    "results, or move it away"
)
# Name of a file relative to its folder → SHA-256 of its content.
Names = Mapping[str, str]


class Publication:
    """A folder and the results that a command writes there; checked before any work.

    Parameters
    ----------
    path : Path
        The folder, made when missing.
    overwrite : bool, default=False
        Whether to replace earlier results of icofactor.
    names : sequence of str
        Files that will be written, as far as they can be told before the work.
    leaving : callable
        Files of the manifest → those that are removed when the new results appear.
    inputs : sequence of path
        What the command reads: never replaced, and no folder for results unless its readers skip
        them.
    renewed : sequence of str
        Files that are replaced without `overwrite`, because they say the same with more in it.
    steady : sequence of str
        Files that must not change before the results appear, because the results are about them.

    Attributes
    ----------
    files, removed : list of Path
        Files that were written, and files that were removed without a replacement.
    """

    def __init__(
        self,
        path: str | Path,
        overwrite: bool = False,
        *,
        names: Sequence[str] = (),
        leaving: Callable[[Names], Iterable[str]] = lambda listed: (),
        inputs: Iterable[str | Path] = (),
        renewed: Sequence[str] = (),
        steady: Sequence[str] = (),
    ) -> None:
        self.path = local(path)
        self.overwrite = overwrite
        self.renewed = frozenset(renewed)
        self.files: list[Path] = []
        self.removed: list[Path] = []
        self._leaving = leaving
        self._inputs = {Path(file).expanduser().absolute() for file in inputs}
        _check_writable(self.path)
        check_apart(self.path, self._inputs)
        settle(self.path)
        listed = self.owned()
        self._steady = {name: listed.get(name) for name in steady}
        self.check(names)

    def owned(self) -> Names:
        """Return the manifest of the folder."""
        return list_of(self.path)

    def check(self, names: Iterable[str]) -> list[str]:
        """Refuse to write files that exist and may not be replaced.

        Returns
        -------
        Earlier results that the new ones would replace or remove.
        """
        listed = self.owned()
        _check_new(self.path, names, listed)
        replaced = [name for name in (*names, *self._leaving(listed)) if name in listed]
        for name in replaced:
            file = self.path / name
            if file.absolute() in self._inputs:
                problem = "is an input of this command: choose another place for the results"
                raise ExistsError(file, problem)
            if not self.overwrite and name not in self.renewed and file.exists():
                raise ExistsError(file)
        return replaced

    def write_list(self, folder: Path, names: Names) -> None:
        """Write the manifest of a folder."""
        text = json.dumps({"format": _FORMAT, "files": dict(sorted(names.items()))}, indent=1)
        # The manifest says that results are complete, so it appears whole.
        with atomic_path(folder / LIST, overwrite=True) as temporary:
            temporary.write_text(text, encoding="utf-8", newline="\n")

    @contextmanager
    def filled(self) -> Iterator[Path]:
        """Yield a private folder to fill; its files appear together when the block ends."""
        # With a link, results go to the folder that it points to.
        target = Path(os.path.realpath(self.path))
        exists = target.is_dir()
        parent = target if exists else target.parent
        missing = [folder for folder in (parent, *parent.parents) if not folder.exists()]
        parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(parent)
        stage = parent / temporary_name()
        try:
            stage.mkdir()
            yield stage
            new = _hashes(stage)
            if exists:
                self.add(stage, new)
            else:
                self.write_list(stage, new)
                _rename_once(stage, target)
            self.files = [self.path / name for name in sorted(new)]
        except OSError as problem:
            raise with_final_name(problem, stage, self.path) from problem
        finally:
            shutil.rmtree(stage, ignore_errors=True)
            for folder in missing:
                with suppress(OSError):
                    folder.rmdir()

    def add(self, stage: Path, new: Names) -> None:
        """Move complete results into a folder that exists."""
        _claim(stage, self.path)
        arriving = self.path / ARRIVING
        try:
            # Only now does no other process write: the checks before the work may be outdated.
            listed = self.owned()
            for name, earlier in self._steady.items():
                if listed.get(name) != earlier:
                    problem = "was replaced by another run: run this command again"
                    raise FileError(self.path / name, problem)
            replaced = self.check(new)
            remaining = {name: listed[name] for name in listed if name not in replaced}
            self.write_list(arriving, {**remaining, **new})
        except BaseException:
            os.rename(arriving, stage)
            raise
        _arrive(self.path)
        self.removed = [self.path / name for name in sorted(set(replaced) - set(new))]


# ---------------------------------------------------------------------- moves


def _rename_once(stage: Path, target: Path) -> None:
    """Rename a complete folder to a target that does not exist."""
    try:
        os.rename(stage, target)
    except OSError as problem:
        if os.path.lexists(target):
            raise ExistsError(target, "was written by another run in the meantime") from problem
        raise


def _claim(stage: Path, folder: Path) -> None:
    """Rename a stage to `ARRIVING`, a name that only one process at a time can have."""
    while True:
        settle(folder)
        try:
            os.rename(stage, folder / ARRIVING)
            return
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def _arrive(folder: Path) -> None:
    """Move complete results out of `ARRIVING`; repeat this after a kill at any moment."""
    arriving = folder / ARRIVING
    listed = list_of(folder)
    new = list_of(arriving)
    _check_new(folder, [name for name in new if (arriving / name).exists()], listed)
    for name in set(listed) - set(new):
        (folder / name).unlink(missing_ok=True)
    for inner in _INNER:
        if (arriving / inner).is_dir():
            (folder / inner).mkdir(exist_ok=True)
    # Files that stay, or that were moved before a kill, are not there. The manifest comes last.
    for name in (*new, LIST):
        with suppress(FileNotFoundError):
            os.replace(arriving / name, folder / name)
    shutil.rmtree(arriving, ignore_errors=True)
    for inner in _INNER:
        with suppress(OSError):
            (folder / inner).rmdir()


def settle(folder: Path) -> None:
    """Wait for results that are arriving in a folder; finish the moves of a killed process."""
    arriving = folder / ARRIVING
    deadline = time.monotonic() + _PATIENCE
    while arriving.is_dir() and time.monotonic() < deadline:
        time.sleep(0.02)
    if not arriving.is_dir():
        return
    if arriving.is_symlink():
        raise FileError(arriving, "is a link, which icofactor does not make: move it away")
    if (arriving / LIST).exists():
        _arrive(folder)
        warnings.warn(
            f"{folder}: an earlier run was killed while it moved its results into place; "
            "the results are complete now",
            stacklevel=2,
        )
    else:
        shutil.rmtree(arriving, ignore_errors=True)


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Raise an error if the results in a folder change while the block reads them."""
    settle(folder)
    before = list_of(folder)
    yield
    if (folder / ARRIVING).exists() or list_of(folder) != before:
        raise FileError(folder, "was changed by another run while it was read: run this again")


# ---------------------------------------------------------------------- the manifest


def list_of(folder: Path) -> Names:
    """Return the manifest of a folder; an empty one where there is none."""
    file = folder / LIST
    if not os.path.lexists(file):
        return {}
    advice = (
        "Without it, icofactor cannot recognize its files in this folder: choose another place "
        "for the results"
    )
    with naming(file, "list of files", FileError, advice):
        record = read_json(file)
        if record["format"] != _FORMAT:
            raise ValueError("it is not a list of files")
        return _checked_names(record["files"])


def _checked_names(names: Any) -> Names:
    """Refuse names that lead out of a folder of results."""
    if not isinstance(names, dict) or not all(isinstance(value, str) for value in names.values()):
        raise ValueError("it is not a list of files")
    for name in names:
        inner, _, last = name.rpartition("/")
        is_plain = last == Path(last).name and 0 < len(last) <= _MAX_NAME and "\0" not in last
        if inner not in ("", *_INNER) or not is_plain or last.startswith("."):
            raise ValueError(f"it names {name[:_MAX_NAME]!r}, which is not a file of this folder")
    return dict(names)


def _hashes(folder: Path) -> Names:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in files}


# ---------------------------------------------------------------------- checks


def _check_new(folder: Path, names: Iterable[str], listed: Names) -> None:
    """Refuse to write over what the manifest does not list."""
    for inner in _INNER:
        # Files would be written to, or removed from, the folder that a link points to.
        uses_inner = any(name.startswith(f"{inner}/") for name in (*names, *listed))
        is_folder = (folder / inner).is_dir() and not (folder / inner).is_symlink()
        if uses_inner and os.path.lexists(folder / inner) and not is_folder:
            raise ExistsError(folder / inner, _FOREIGN)
    for name in names:
        file = folder / name
        if os.path.lexists(file) and (name not in listed or file.is_dir()):
            raise ExistsError(file, _FOREIGN)


def check_apart(out: Path, inputs: Iterable[str | Path]) -> None:
    """Refuse a folder for results that is an input, or inside one where its readers would look."""
    out = Path(os.path.realpath(out))
    for path in inputs:
        source = Path(os.path.realpath(Path(path).expanduser()))
        if not os.path.isdir(source) or not out.is_relative_to(source):
            continue
        is_store = (source / "zarr.json").exists()
        inner = out.relative_to(source).parts
        if inner and not is_store and _readers_skip(source / inner[0], out):
            continue
        advice = source.parent / "fitted" if is_store else source / "derivatives" / "icofactor"
        raise ArgumentError(
            "out",
            f"{out} is {'inside an input' if inner else 'an input'}; write the results into a "
            f"folder of their own, such as {advice}",
        )


def _readers_skip(top: Path, out: Path) -> bool:
    """Return whether readers of an input folder skip results in one of its folders."""
    is_subject = top.name.startswith("sub-") or any(
        (top / name).exists() for name in ("surf", "MNINonLinear")
    )
    if is_subject:
        return False
    is_ours = any((out / name).exists() for name in (LIST, "zarr.json"))
    return is_ours or not out.exists() or not any(out.iterdir())


def _check_writable(folder: Path) -> None:
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(f"{existing} is not a folder in which files may be written")
