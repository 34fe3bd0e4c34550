"""Files that appear in a folder together or not at all, whatever ends the process, and never
replace the user's own.

A folder has one list of what icofactor wrote there, with checksums (`LIST`). Only these files are
ever replaced, as long as they are unchanged. `Publication.filled` gives a private folder inside the
folder (the stage) and then moves:

1. the journal is written into the stage: what leaves, what comes, checksums;
2. what leaves goes from the folder to the stage, what comes goes from the stage to the folder, the
    list with it;
3. the journal is removed, then the stage.

An error during 2 is undone. A kill before 1 leaves the earlier files, a kill after it a journal,
from which the next command that looks at the folder finishes 2. The stage is locked by its living
process, the folder by whoever moves or reads.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from icofactor.errors import ArgumentError, ExistsError, FileError, Phrase, literal
from icofactor.io.atomic import alone_in, nobody_in, remove_abandoned, replace, sync, write_durably
from icofactor.io.guard import hash_file, naming
from icofactor.io.json import read_json
from icofactor.io.url import local

LIST = ".icofactor-files.json"
FIGURES, TABLES = "figures", "tables"
_INNER = (FIGURES, TABLES)
"""The folders inside the folder that files may lie in."""
_FORMAT = "files that icofactor wrote into this folder"
_JOURNAL = "journal.json"
_MAX_NAME = 200
_FOREIGN = "exists and is not a result that this command may replace: choose another place for the results, or move it away"
_CHANGED = (
    "was changed after icofactor wrote it: move it away, or choose another place for the results"
)
Names = Mapping[str, str]
"""Name of a file relative to its folder → SHA-256 of its content."""


class Publication:
    """A folder, and what a command may do there; checked before any work, and once more when the
    files appear.

    Parameters
    ----------
    path : Path
        The folder, made when missing.
    overwrite : bool, default=False
        Whether to replace earlier results of icofactor.
    names : sequence of str
        Files that will be written, as far as they are known.
    leaving : callable
        The list of the folder → which of its files leave with those that are replaced.
    inputs : sequence of path
        What the command reads: never replaced, and no folder for results unless its readers skip
        them.
    renewed : sequence of str
        Files that are replaced without `overwrite`, because they say the same with more in it.
    steady : sequence of str
        Files that must be the same when the results appear, because the results are about them.
    listed : callable, default=None
        What counts as icofactor's own instead of the folder's list, which is then not written.

    Attributes
    ----------
    renewed : as above.
    files, removed : list of Path
        What was written, and what left without a counterpart; empty until then.
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
        listed: Callable[[], Names] | None = None,
    ) -> None:
        self.path, self.overwrite = local(path), overwrite
        self.files: list[Path] = []
        self.removed: list[Path] = []
        self.renewed = frozenset(renewed)
        self._leaving, self._listed = leaving, listed
        self._inputs = {Path(place).expanduser().absolute() for place in inputs}
        _check_writable(self.path)
        check_apart(self.path, self._inputs)
        settle(self.path)
        owned = self.owned()
        self._steady = {name: owned.get(name) for name in steady}
        self.check(names)

    def owned(self) -> Names:
        """What icofactor wrote into the folder, changed since or not."""
        return list_of(self.path) if self._listed is None else self._listed()

    def check(self, names: Iterable[str]) -> list[str]:
        """Refuse to write these files where they cannot or may not be; returns what would leave."""
        owned, names = self.owned(), list(names)
        own_list = [LIST] if self._listed is None else []
        wanted = dict.fromkeys([*names, *self._leaving(owned), *own_list])
        there = [name for name in wanted if os.path.lexists(self.path / name)]
        for name in there:
            self._check_mine(name, owned)
        for inner in sorted({name.partition("/")[0] for name in names if "/" in name}):
            self._check_inner(self.path / inner)
        kept = [name for name in there if name not in (LIST, *self.renewed)]
        if kept and not self.overwrite:
            raise ExistsError(self.path / kept[0])
        return there

    def _check_inner(self, place: Path) -> None:
        if not os.path.lexists(place):
            return
        if place.is_symlink():
            raise ExistsError(place, _FOREIGN)
        if not place.is_dir():
            raise NotADirectoryError(f"{place} is a file, but a folder must be written there")
        if not self.overwrite:
            raise ExistsError(place)

    def _check_mine(self, name: str, owned: Names) -> None:
        """Refuse to replace a file that is not icofactor's, or an input."""
        target = self.path / name
        if target.is_dir() and not target.is_symlink():
            raise IsADirectoryError(f"{target} is a folder, but a file must be written there")
        if name == LIST:
            return
        linked = target.is_symlink() or target.parent.is_symlink()
        if name not in owned or linked or not target.is_file():
            raise ExistsError(target, _FOREIGN)
        if hash_file(target) != owned[name]:
            raise ExistsError(target, _CHANGED)
        if target.absolute() in self._inputs:
            raise ExistsError(
                target, "is an input of this command: choose another place for the results"
            )

    @contextmanager
    def filled(self) -> Iterator[Path]:
        """A private folder to fill; when the block ends, all its files appear in the folder, or
        none.
        """
        folder = self.path
        missing = [place for place in (folder, *folder.absolute().parents) if not place.exists()]
        stage, held = folder / f".tmp-{secrets.token_hex(4)}", ExitStack()
        try:
            _make(stage, held)
            yield stage / "new"
            with alone_in(folder):
                recover(folder)
                remove_leftovers(folder)
                remove_abandoned(folder, {*self.owned(), *os.listdir(stage / "new")})
                self._publish(stage)
        except OSError as problem:
            if problem.errno is None or str(stage) not in str(problem.filename or stage):
                raise
            # by the name that the file would have had
            inner = Path(problem.filename or _last_written(stage)).relative_to(stage).parts
            named = folder.joinpath(*inner[1:]) if inner[:1] in (("new",), ("old",)) else folder
            raise OSError(problem.errno, problem.strerror, str(named)) from problem
        finally:
            _clean(stage, held, missing)

    def _publish(self, stage: Path) -> None:
        folder, new = self.path, stage / "new"
        coming = {
            path.relative_to(new).as_posix(): hash_file(path)
            for path in new.rglob("*")
            if path.is_file()
        }
        owned = self.owned()
        changed = [name for name, known in self._steady.items() if owned.get(name) != known]
        if changed:
            raise FileError(
                folder / changed[0],
                "was replaced by another run in the meantime: run this command again",
            )
        # again: writing takes a while, and another process may have written meanwhile
        there = self.check(coming)
        written = sorted(coming)
        if self._listed is None:
            kept = {
                name: known
                for name, known in owned.items()
                if name not in there and (folder / name).exists()
            }
            record = {"format": _FORMAT, "files": dict(sorted({**kept, **coming}.items()))}
            (new / LIST).write_text(json.dumps(record, indent=1), encoding="utf-8", newline="\n")
            coming[LIST] = hash_file(new / LIST)
        for name in coming:
            sync(new / name)
        old = {name: hash_file(folder / name) for name in there}
        write_durably(stage / _JOURNAL, json.dumps({"old": old, "new": coming}))
        try:
            _move(stage, folder, old, coming)
        except BaseException:
            _move_back(stage, folder, old, coming)
            (stage / _JOURNAL).unlink()
            raise
        _end(stage, folder)
        self.files = [folder / name for name in written]
        self.removed = [folder / name for name in sorted(set(old) - set(coming))]


# ---------------------------------------------------------------------- moves


def _make(stage: Path, held: ExitStack) -> None:
    """A stage, locked as long as `held` is open."""
    for attempt in range(20):
        try:
            stage.parent.mkdir(parents=True, exist_ok=True)
            with alone_in(
                stage.parent
            ):  # else another process could take the new stage for a killed one's
                stage.mkdir()
                held.enter_context(alone_in(stage))
                (stage / "new").mkdir()
            return
        except FileNotFoundError:  # a process that fails removes the folder that it made
            if attempt == 19:
                raise


def _last_written(stage: Path) -> Path:
    """What was being written when a disk was full, which an error does not say."""
    files = [path for path in (stage / "new").rglob("*") if path.is_file()]
    return max(files, key=lambda path: path.stat().st_mtime_ns, default=stage)


def _clean(stage: Path, held: ExitStack, made: Iterable[Path]) -> None:
    """Remove a stage that is not needed any more, and folders that were made for nothing."""
    if not (stage / _JOURNAL).exists():
        shutil.rmtree(stage, ignore_errors=True)
    held.close()
    for place in made:
        with suppress(OSError):
            place.rmdir()


def _move(stage: Path, folder: Path, old: Names, new: Names) -> None:
    """What leaves and what comes, from any state that a kill or an error during the moves leaves."""
    for name in {**old, **new}:
        for place in (folder / name, stage / "old" / name):
            place.parent.mkdir(parents=True, exist_ok=True)
    for name in sorted(old, key=_last_of_all, reverse=True):
        here = name not in new or (stage / "new" / name).exists()
        if here and (folder / name).exists() and not (stage / "old" / name).exists():
            replace(folder / name, stage / "old" / name)
    for name in sorted(new, key=_last_of_all):
        if (stage / "new" / name).exists():
            replace(stage / "new" / name, folder / name)


def _move_back(stage: Path, folder: Path, old: Names, new: Names) -> None:
    # where a file lies shows whether it was moved; a list of moves could miss the one that was
    # interrupted
    for name in new:
        if not (stage / "new" / name).exists():
            replace(folder / name, stage / "new" / name)
    for name in old:
        if (stage / "old" / name).exists():
            replace(stage / "old" / name, folder / name)
    _remove_empty(folder)


def _last_of_all(name: str) -> tuple[bool, bool]:
    """What says that the folder is a fit leaves first and comes last."""
    return name == LIST, name == "dataset_description.json"


def _end(stage: Path, folder: Path) -> None:
    for place in (*(folder / inner for inner in _INNER), folder):
        if place.is_dir():
            sync(place)
    (stage / _JOURNAL).unlink()
    _remove_empty(folder)


def _remove_empty(folder: Path) -> None:
    for inner in _INNER:
        with suppress(OSError):
            (folder / inner).rmdir()


# ---------------------------------------------------------------------- killed processes


def settle(folder: Path) -> None:
    """Finish what a killed process had begun to move in a folder, and say so; nothing else is
    touched.
    """
    if _journals(folder):
        with alone_in(folder):
            recover(folder)


def recover(folder: Path) -> None:
    """`settle` for who is `alone_in` the folder: a journal that is there then is of a process that
    was killed.
    """
    for journal in _journals(folder):
        stage = journal.parent
        with naming(journal, "record", FileError, "Move its folder away"):
            found = read_json(journal)
            old, new = (_checked_names(found[kind]) for kind in ("old", "new"))
            _check_moves(stage, folder, old, new)
            # of files that no list names, only those leave that others replace
            listed = {**list_of(folder), **list_of(stage / "old"), LIST: ""}
            old = {name: known for name, known in old.items() if name in listed or name in new}
        for name in {**old, **new}:
            here = folder / name
            expected = {
                old.get(name),
                new.get(name) if not (stage / "new" / name).exists() else None,
            }
            if here.exists() and hash_file(here) not in expected:
                raise ExistsError(
                    here,
                    "was changed after another run was killed while it wrote here: move it away",
                )
        _move(stage, folder, old, new)
        _end(stage, folder)
        shutil.rmtree(stage, ignore_errors=True)
        warnings.warn(
            f"{folder}: an earlier run was killed while it moved its results into place; the results are complete now",
            stacklevel=2,
        )


def _check_moves(stage: Path, folder: Path, old: Names, new: Names) -> None:
    """Refuse a journal that leads out of its folder, or whose files are not there."""
    for place in (stage / "new", stage / "old", folder):
        for linked in (place, *(place / inner for inner in _INNER)):
            if linked != folder and linked.is_symlink():
                raise ValueError(f"{linked.relative_to(folder)} is a link")
    for name, known in new.items():
        staged, here = stage / "new" / name, folder / name
        if os.path.lexists(staged):
            lost = staged.is_symlink() or hash_file(staged) != known
        else:
            lost = not here.is_file() or hash_file(here) == old.get(name) != known
        if lost:
            raise ValueError(f"{name} is missing; the earlier files are in {stage.name}/old")


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """No results appear in a folder during the block, and what was there is whole."""
    while True:
        settle(folder)
        with alone_in(folder, with_others=True):
            if not _journals(folder):
                yield
                return


def remove_leftovers(folder: Path) -> None:
    """Remove the stages that killed processes left in a folder; living ones are `alone_in` theirs."""
    for place in folder.glob(".tmp-*/"):
        if not place.is_symlink() and _is_stage(place) and nobody_in(place):
            shutil.rmtree(place, ignore_errors=True)


def _is_stage(place: Path) -> bool:
    """Whether a folder can be a stage, and is not the user's."""
    try:
        inside = os.listdir(place)
    except OSError:
        return False
    mine = all(name in ("new", "old", _JOURNAL) or name.endswith(f"-{_JOURNAL}") for name in inside)
    return mine and re.fullmatch(r"\.tmp-[0-9a-f]{8}", place.name) is not None


def _journals(folder: Path) -> list[Path]:
    return [file for file in folder.glob(f".tmp-*/{_JOURNAL}") if not file.parent.is_symlink()]


# ---------------------------------------------------------------------- what is whose


def list_of(folder: Path) -> Names:
    """What icofactor wrote into a folder; a list that is damaged is an error."""
    file = folder / LIST
    if not os.path.lexists(file):
        return {}
    advice = "Without it, icofactor cannot recognize its own files in this folder: choose another place for the results"
    with naming(file, "list of files", FileError, advice):
        found = read_json(file)
        if found["format"] != _FORMAT:
            raise ValueError("it is not a list of files")
        return _checked_names(found["files"])


def _checked_names(found: Any) -> Names:
    """Names that stay inside a folder, and in the folders that icofactor makes there."""
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("it is not a list of files")
    for name in found:
        inner, _, last = name.rpartition("/")
        plain = last == Path(last).name and len(last) <= _MAX_NAME and "\0" not in last
        if inner not in ("", *_INNER) or not plain or (last[:1] in ("", ".") and name != LIST):
            raise ValueError(f"it names {name[:_MAX_NAME]!r}, which is not a file of this folder")
    return dict(found)


def check_apart(out: Path, inputs: Iterable[str | Path]) -> None:
    """Refuse a place for results that is an input folder, or inside one where its readers would
    look.
    """
    out = Path(os.path.realpath(out))
    for given in inputs:
        place = Path(
            os.path.realpath(Path(given).expanduser())
        )  # links to themselves stay what they are
        if not os.path.isdir(place) or (
            place != out and place not in out.parents
        ):  # readers say what may not be read
            continue
        inner = out.relative_to(place).parts
        if inner and not (place / "zarr.json").exists():
            top = place / inner[0]
            subject = top.name.startswith("sub-") or any(
                (top / of).exists() for of in ("surf", "MNINonLinear")
            )
            ours = any((out / name).exists() for name in (LIST, "zarr.json"))
            if not subject and (not out.exists() or ours or not any(out.iterdir())):
                continue
        own = (
            place.parent / "fitted"
            if (place / "zarr.json").exists()
            else place / "derivatives" / "icofactor"
        )
        where = "inside an input" if inner else "an input"
        raise ArgumentError(
            "out", Phrase(f"{out}, which is {where}"), f"a folder of its own, e.g. {literal(own)}"
        )


def _check_writable(folder: Path) -> None:
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise NotADirectoryError(f"{there} is a file, but a folder must be written there")
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(f"{there} is not writable")
