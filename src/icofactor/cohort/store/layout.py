"""What lies on disk in a cohort store, and how a change to it becomes visible.

    zarr.json                     a zarr 3 group that says what this is; written once
    commit.json                   the cohort: which parts it is made of, subjects, participants,
    provenance mesh-00000001/                a group: order, mask and the arrays of the sites
    part-000001-00000001/         maps of the first subjects, sites (in quadtree order) × subjects
    part-000002-00000002/         maps of those appended next, and so on; the last number is that of
    the commit

A part is written once, to its end, and then never changed. What `commit.json` does not name is not
there for a reader, so replacing that one file is the commit: before it a reader finds the previous
cohort, after it the new one. A killed writer leaves at most folders that nobody names; the next
writer removes them.

Every file has a checksum. `commit.json` holds its own, that of the metadata of every array, and
those of all
chunks, which also stand behind each chunk: a chunk that was damaged or exchanged is refused.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from icofactor.cohort.names import check_words
from icofactor.cohort.store.arrays import GROUP, StoredArray, reading
from icofactor.cohort.store.metadata import check_seal, group_record, sealed
from icofactor.errors import CohortError, RemoteError
from icofactor.io.atomic import alone_in, sync, write_durably
from icofactor.io.guard import Unreadable, exists, hash_file
from icofactor.io.json import MAX_TEXT, read_json
from icofactor.io.records import rebuild
from icofactor.io.url import RemotePath, is_url
from icofactor.sphere.names import HEMISPHERES

FORMAT = "icofactor cohort store"
VERSION = 4
COMMIT = "commit.json"
_MESH, _PART = r"mesh-[0-9a-f]{8}", r"part-[0-9]{6}-[0-9a-f]{8}"


@dataclass(frozen=True)
class Commit:
    """The content of commit.json: all of a cohort that is not a large array.

    Attributes
    ----------
    generation : number of commits so far.
    mesh : name of the folder of the sites.
    sites : `on`, `level`, `name` and `n_mesh` of the sites; of parcels `regions`, which are not
        arrays.
    chunks : sites × subjects of one file of maps.
    parts : name of the folder and number of subjects of each part, in order.
    hemisphere, modality, units, subjects : as in `Cohort`.
    participants : column → {"dtype", "values"}.
    steps : what was done, one record per commit.
    checksums : folder of an array or group → its checksums.
    """

    generation: int
    mesh: str
    sites: Mapping[str, Any]
    chunks: tuple[int, int]
    parts: tuple[tuple[str, int], ...]
    hemisphere: str
    modality: str
    units: str
    subjects: tuple[str, ...]
    participants: Mapping[str, Mapping[str, Any]]
    steps: tuple[Mapping[str, Any], ...]
    checksums: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def arrays(self) -> list[str]:
        """Folders of the arrays of all parts."""
        return [name for name, _ in self.parts]

    @cached_property
    def identity(self) -> str:
        """Of the cohort: equal where all but the record of the steps, which has times, is equal."""
        content = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "steps"}
        return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def store_place(path: str | os.PathLike[str]) -> Path | RemotePath:
    """Where a store lies: a folder here, or what a URL names."""
    return (
        path
        if isinstance(path, RemotePath)
        else RemotePath(str(path))
        if is_url(path)
        else Path(path).absolute()
    )


def present(file: Path | RemotePath) -> bool:
    """Whether there is such a file."""
    return file.exists(MAX_TEXT) if isinstance(file, RemotePath) else exists(file)


def is_zarr(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a zarr 3 folder, as cohort stores are, or a URL; opening it says whether it
    is one.
    """
    if is_url(path):
        return True
    mark = Path(path).expanduser() / GROUP
    return exists(mark) and mark.is_file()


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a cohort store of icofactor, complete or not.

    Examples
    --------
    >>> import tempfile
    >>> import icofactor as ico
    >>> ico.cohort.is_store(tempfile.mkdtemp())
    False
    """
    mark = store_place(path) / GROUP
    try:
        return present(mark) and bool(read_json(mark)["attributes"]["format"] == FORMAT)
    except (PermissionError, RemoteError):
        raise
    except (OSError, ValueError, LookupError, TypeError):
        return False


def write_group(folder: Path, attributes: dict[str, Any]) -> None:
    """Metadata of a zarr 3 group."""
    write_durably(folder / GROUP, json.dumps(group_record(attributes), indent=1))


def read_commit(folder: Path | RemotePath) -> Commit:
    """The committed cohort of a store."""
    if not present(folder / GROUP if isinstance(folder, RemotePath) else folder):
        remote = isinstance(folder, RemotePath)
        what = (
            "check the URL: it is that of the folder of a store"
            if remote
            else "icofactor prepare writes one"
        )
        raise FileNotFoundError(f"no cohort store {folder}; {what}")
    file = folder / COMMIT
    finished = present(file)
    _check_mark(folder, finished)
    if not finished:
        raise CohortError(folder, "is incomplete: writing was interrupted. Write it again")
    with reading(file, "record of a cohort store"):
        found = read_json(file)
        if not isinstance(found, dict):
            raise Unreadable("is damaged: it is not a record of names and values")
        version = found.get("version")
        if found.get("format") != FORMAT or version != VERSION:
            raise CohortError(
                folder,
                f"has version {version!r}; this icofactor reads version {VERSION}: write it again",
            )
        content = check_seal(found, {})
        commit = rebuild(
            Commit, {name: content[name] for name in content.keys() - {"format", "version"}}, {}
        )
        _check_commit(commit)
        return commit


def _check_mark(folder: Path | RemotePath, finished: bool) -> None:
    """Refuse a folder whose zarr.json is not a store's; where there is a commit, it is a store that
    was damaged.
    """
    with reading(folder / GROUP):
        try:
            found = read_json(folder / GROUP)
        except PermissionError:
            raise
        except (OSError, ValueError):
            if finished:
                raise
            found = None
        # an earlier version is refused by its commit
        if found in [
            group_record({"format": FORMAT, "version": version})
            for version in range(1, VERSION + 1)
        ]:
            return
        if finished:
            raise Unreadable(
                "is damaged: it is not the record of a cohort store that this icofactor reads"
            )
    raise CohortError(folder, "is not a cohort store of icofactor")


def _check_commit(commit: Commit) -> None:
    # the names become paths: they must not lead out of the store
    named = [commit.mesh, *(name for name, _ in commit.parts)]
    for name, form in zip(named, [_MESH, *[_PART] * len(commit.parts)], strict=True):
        if not re.fullmatch(form, name):
            raise Unreadable(f"is damaged: {name[:80]!r} is not the name of a mesh or part")
        if name not in commit.checksums:
            raise Unreadable(f"is damaged: it lacks the checksum of {name}")
    for name, sums in commit.checksums.items():
        if set(sums) != ({"metadata"} if name == commit.mesh else {"metadata", "chunks"}):
            raise Unreadable(f"is damaged: it lacks a checksum of {name[:80]!r}")
    n_subjects = len(commit.subjects)
    if (
        n_subjects == 0
        or sum(n for _, n in commit.parts) != n_subjects
        or min(n for _, n in commit.parts) < 1
    ):
        raise Unreadable(f"is damaged: its parts do not contain the {n_subjects} subjects it names")
    if len(set(commit.subjects)) != n_subjects:
        raise Unreadable("is damaged: it names a subject twice")
    if len(commit.chunks) != 2 or min(commit.chunks) < 1:
        raise Unreadable(f"is damaged: its chunks are {commit.chunks}")
    if commit.hemisphere not in HEMISPHERES:
        raise Unreadable(f"is damaged: its hemisphere is {commit.hemisphere[:40]!r}")
    for name, column in commit.participants.items():
        n = len(column["values"]) if isinstance(column.get("values"), list) else 0
        if n != n_subjects:
            raise Unreadable(
                f"is damaged: its column {name[:80]!r} has {n} values for {n_subjects} subjects"
            )
    cells = {name: column["values"] for name, column in commit.participants.items()}
    check_words(commit.subjects, cells, modality=commit.modality, units=commit.units)


def write_commit(folder: Path, commit: Commit, fresh: Iterable[str]) -> None:
    """Make a cohort the store's: the folders it names for the first time go to the disk, then one
    rename.
    """
    for name in fresh:
        _flush(folder / name)
    content = asdict(replace(commit, checksums=_checksums(folder, commit)))
    header = {"format": FORMAT, "version": VERSION, **content}
    header = json.loads(json.dumps(header, allow_nan=False))  # tuples are lists
    write_durably(folder / COMMIT, json.dumps(sealed(header, {}), indent=1))


def _checksums(folder: Path, commit: Commit) -> dict[str, Any]:
    """Those of the mesh and of every part; what an earlier commit says is kept."""
    mesh = folder / commit.mesh
    arrays = sorted(place.name for place in mesh.iterdir() if place.is_dir())
    found: dict[str, Any] = {}
    found[commit.mesh] = commit.checksums.get(commit.mesh) or {"metadata": hash_file(mesh / GROUP)}
    for name in (*(f"{commit.mesh}/{array}" for array in arrays), *commit.arrays):
        found[name] = commit.checksums.get(name) or StoredArray(folder / name).checksums()
    return found


def _flush(folder: Path) -> None:
    """Have all files of a folder on the disk, so that a commit never names what a power cut can
    still take.
    """
    for place, _, files in os.walk(folder):
        for name in files:
            sync(Path(place) / name)
        sync(Path(place))


def next_generation(folder: Path, generation: int) -> int:
    """The number of the next commit. Names of its folders end in it, so that no earlier commit can
    have used them.
    """
    generation += 1
    while any(folder.glob(f"*-{generation:08x}")):  # of a commit that cannot be read
        generation += 1
    return generation


def clean(folder: Path, commit: Commit | None) -> None:
    """Remove what no commit names: leavings of killed writers, and of the cohort before."""
    named = set() if commit is None else {commit.mesh, *commit.arrays}
    for place in folder.iterdir():
        if (
            place.is_dir()
            and place.name not in named
            and re.fullmatch(f"{_MESH}|{_PART}", place.name)
        ):
            shutil.rmtree(place, ignore_errors=True)
        elif place.name.startswith(".tmp-") and place.is_file():
            place.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One writer at a time; the lock ends with its process, however that ends."""
    with ExitStack() as held:
        try:
            held.enter_context(alone_in(folder, wait=False))
        except BlockingIOError:
            raise CohortError(
                folder, "another process is writing to it: wait until it has finished"
            ) from None
        yield


def shared_provenance(steps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What all inputs of a store have in common, and the steps themselves; one simulated input
    makes it simulated.
    """
    steps = list(steps)
    inputs = [dict(source) for step in steps for source in step.get("inputs", [])]
    shared: dict[str, Any] = {}
    if inputs:
        shared = {
            key: value
            for key, value in inputs[0].items()
            if key != "steps" and all(key in other and other[key] == value for other in inputs[1:])
        }
    if any(source.get("simulated") for source in inputs):
        shared["simulated"] = True
    return {**shared, "steps": steps}
