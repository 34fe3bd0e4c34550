"""What lies on disk in a cohort store, and how a change to it becomes visible.

    zarr.json              group: the cohort without its arrays, and the metadata of the arrays
    cohort-000001/maps     sites × subjects, float32 or float16; row i is the site order[i]
    cohort-000001/statistics   median, spread and means of the maps, one row per subject
    cohort-000001/sites/   arrays of the mesh, the mask, and the order of the sites in the maps

Sites of one face lie next to each other. So a block of the maps touches few faces, and what a
worker of a cluster returns is small.

Any zarr 3 reader opens it. Replacing `zarr.json` is the commit: it says how many subjects there
are, and which folder holds the arrays. Subjects are appended to the arrays beyond those that it
counts; a cohort that replaces another has a folder of its own. A killed writer leaves at most
what `zarr.json` does not name, and the next writer removes it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from icofactor.cohort.names import check_words
from icofactor.errors import CohortError, RemoteError
from icofactor.io.atomic import alone_in, sync, write_durably
from icofactor.io.guard import Unreadable, exists, naming
from icofactor.io.json import parse_json, read_json
from icofactor.io.url import is_url, store_url
from icofactor.sphere.names import HEMISPHERES

FORMAT = "icofactor cohort store"
# Stores of another version are refused: no store has been published yet.
VERSION = 7
# The file by which zarr knows a group.
MARK = "zarr.json"
# Folders of arrays; each has a number that no earlier commit used.
PREFIX = "cohort-"
CONTENT = re.compile(r"cohort-\d{6}")
# zarr writes a file under a name that ends so, then renames it.
UNFINISHED = "*.partial"


# A stored cohort without the values of its arrays, as `zarr.json` holds it:
# generation: number of commits so far; content: folder of the arrays;
# sites, mask, hemisphere, modality, units, subjects, participants: as in `Cohort`, without arrays;
# hashes: SHA-256 of the stored values of every subject; steps: what was done, one record per commit;
# arrays: zarr's metadata of every array and group in `content`, filled in by reading.
Commit = dict[str, Any]


def reading(path: Path | str) -> AbstractContextManager[None]:
    """Turn whatever goes wrong inside into one CohortError about a file or array of a store."""
    advice = "Copy the cohort store again, or write it again"
    return naming(path, "part of a cohort store", CohortError, advice)


def store_address(path: str | os.PathLike[str]) -> Path | str:
    """Return the folder or the URL of a store."""
    return store_url(str(path)) if is_url(path) else Path(path).absolute()


def is_zarr(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a zarr 3 folder or a URL; opening it says whether it is a store."""
    return is_url(path) or exists(Path(path).expanduser() / MARK)


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a cohort store of icofactor.

    Examples
    --------
    >>> import tempfile
    >>> import icofactor as ico
    >>> ico.cohort.is_store(tempfile.mkdtemp())
    False
    """
    try:
        return bool(_read_mark(store_address(path))["attributes"]["format"] == FORMAT)
    except (PermissionError, RemoteError):
        raise
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _read_mark(address: Path | str) -> Any:
    """Return the content of the root of a store, from JSON."""
    if not isinstance(address, Path):
        from icofactor.io.remote import RemoteFolder

        content = RemoteFolder(address).start(MARK).result()
        with reading(f"{address}/{MARK}"):
            return parse_json(content)
    file = address / MARK
    if exists(file):
        with reading(file):
            return read_json(file)
    if exists(address):
        raise CohortError(address, "is not a cohort store of icofactor")
    raise FileNotFoundError(
        f"no cohort store {address}; check the path, which is that of the folder of a store. "
        "icofactor prepare writes one"
    )


def read_commit(address: Path | str) -> Commit:
    """Read the cohort that was committed last to a store."""
    mark = _read_mark(address)
    with reading(f"{address}/{MARK}"):
        commit = mark["attributes"]
        # Before the checksum, which another version may compute in another way.
        if commit["format"] != FORMAT:
            raise Unreadable("is not the root of a cohort store of icofactor")
        if commit["version"] != VERSION:
            raise Unreadable(
                f"has version {commit['version']!r}; this icofactor reads version {VERSION}"
            )
        checksum = commit.pop("checksum")
        if checksum != checksum_of(mark):
            raise Unreadable("is damaged: its checksum is wrong")
        _check_commit(commit)
        return {**commit, "arrays": mark["consolidated_metadata"]["metadata"]}


def _check_commit(commit: Commit) -> None:
    """Refuse what contradicts itself, and names that no table could show."""
    subjects = commit["subjects"]
    columns = commit["participants"]
    lengths = {len(column) for column in (commit["hashes"], *columns.values())}
    fits = (
        # It becomes a path, which must not lead out of the store.
        CONTENT.fullmatch(commit["content"])
        and commit["hemisphere"] in HEMISPHERES
        and subjects
        and lengths == {len(set(subjects))} == {len(subjects)}
    )
    if not fits:
        raise Unreadable("is damaged: what it says of the subjects contradicts itself")
    check_words(subjects, columns, modality=commit["modality"], units=commit["units"])


def write_commit(folder: Path, commit: Commit) -> None:
    """Make a cohort the store's: all files of its arrays go to the disk, then `zarr.json`."""
    content = folder / commit["content"]
    # A power cut must not take what the commit names.
    for path in [content, *content.rglob("*")]:
        sync(path)
    attributes = {name: value for name, value in commit.items() if name != "arrays"}
    metadata = {
        file.parent.relative_to(folder).as_posix(): json.loads(file.read_text("utf-8"))
        for file in sorted(content.rglob(MARK))
    }
    mark = {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"format": FORMAT, "version": VERSION, **attributes},
        "consolidated_metadata": {
            "kind": "inline",
            "must_understand": False,
            "metadata": metadata,
        },
    }
    # As it will be read: tuples are lists, and the checksum is of these.
    mark = json.loads(json.dumps(mark, allow_nan=False))
    mark["attributes"]["checksum"] = checksum_of(mark)
    write_durably(folder / MARK, json.dumps(mark, indent=1))


def checksum_of(record: object) -> str:
    """Return the SHA-256 of what JSON holds, whatever the order of its names."""
    return sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def contents(folder: Path) -> list[Path]:
    """Return the folders of arrays in a store, in the order of their numbers."""
    return sorted(child for child in folder.iterdir() if CONTENT.fullmatch(child.name))


@contextmanager
def writing(folder: Path) -> Iterator[Commit | None]:
    """Be the only writer of a store; yield what was committed to it, None where that is not readable.

    Before and after, what the commit does not name is removed.
    """
    try:
        with alone_in(folder, wait=False):
            try:
                yield tidy(folder)
            finally:
                tidy(folder)
    except BlockingIOError:
        raise CohortError(
            folder, "another process is writing to it: wait until it has finished"
        ) from None
    except OSError as problem:
        if problem.errno is None or problem.filename is not None:
            raise
        # The system does not always say which file it could not write.
        raise OSError(problem.errno, problem.strerror, str(folder)) from problem


def tidy(folder: Path) -> Commit | None:
    """Remove what killed writers and replaced cohorts left; return the commit, if it is readable."""
    commit = None
    with suppress(CohortError):
        commit = read_commit(folder)
    if commit is None and not is_unfinished(folder):
        # A damaged commit, or one of another version, may name anything in the folder.
        return None
    for content in contents(folder):
        if commit is None or content.name != commit["content"]:
            shutil.rmtree(content, ignore_errors=True)
    for pattern in (".tmp-*", f"{PREFIX}*/**/{UNFINISHED}"):
        for file in folder.glob(pattern):
            file.unlink(missing_ok=True)
    return commit


def is_unfinished(folder: Path) -> bool:
    """Return whether a folder is empty, or has only what a killed writer left before any commit."""
    return all(
        CONTENT.fullmatch(child.name) or child.name.startswith(".tmp-")
        for child in folder.iterdir()
    )


def shared_provenance(steps: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what all inputs of a store have in common, and the steps themselves.

    One simulated input makes the store simulated.
    """
    inputs = [record for step in steps for record in step.get("inputs", [])]
    first_input = inputs[0] if inputs else {}
    shared = {
        key: value
        for key, value in first_input.items()
        if all(record.get(key) == value for record in inputs)
    }
    if any(record.get("simulated") for record in inputs):
        shared["simulated"] = True
    return {**shared, "steps": steps}
