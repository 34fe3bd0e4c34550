"""What lies on disk in a cohort store, and how a change to it becomes visible.

    zarr.json                     a zarr 3 group that says what this is; written once
    commit.json                   the cohort: which parts it is made of, subjects, participants, provenance
    mesh-1a2b3c4d/                a group: order, mask and the arrays of the sites
    part-000001-1a2b3c4d/         maps of the first subjects, sites (in quadtree order) × subjects
    part-000002-5e6f7a8b/         maps of those appended next, and so on

A part is written once, to its end, and then never changed. What `commit.json` does not name is not there for a reader,
so replacing that one file is the commit: before it a reader finds the previous cohort, after it the new one. A killed
writer leaves at most folders that nobody names; the next writer removes them.

Arrays are plain little-endian numbers, each chunk followed by its CRC-32C. No other codec is accepted, so that
reading runs nothing but a copy and a checksum, and the size of each file is known.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from icofactor.cohort.names import check_words
from icofactor.errors import CohortError, literal
from icofactor.io.atomic import alone_in, sync, write_durably
from icofactor.io.guard import brief
from icofactor.io.json import read_json

FORMAT = "icofactor cohort store"
VERSION = 1
COMMIT, GROUP = "commit.json", "zarr.json"
AGAIN = "copy the cohort store again, or make it anew"
_MESH, _PART = r"mesh-[0-9a-f]{8}", r"part-[0-9]{6}-[0-9a-f]{8}"
_CODECS = ["bytes", "crc32c"]
_CHECKSUM_BYTES = 4
_NUMBERS = {"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float32", "float64"}


@dataclass(frozen=True)
class Commit:
    """The content of commit.json: all of a cohort that is not a large array.

    Attributes
    ----------
    generation : number of commits so far.
    mesh : name of the folder of the sites.
    sites : `on`, `level`, `name` and `n_mesh` of the sites.
    chunks : sites × subjects of one file of maps.
    parts : name of the folder and number of subjects of each part, in order.
    hemisphere, modality, units, subjects : as in `Cohort`.
    participants : column → {"dtype", "values"}.
    steps : what was done, one record per commit.
    """

    generation: int
    mesh: str
    sites: dict[str, Any]
    chunks: tuple[int, int]
    parts: tuple[tuple[str, int], ...]
    hemisphere: str
    modality: str
    units: str
    subjects: tuple[str, ...]
    participants: dict[str, dict[str, Any]]
    steps: tuple[dict[str, Any], ...]


def is_zarr(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a zarr 3 folder, as cohort stores are; opening it says whether it is one."""
    return (Path(path).expanduser() / GROUP).is_file()


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a cohort store of icofactor, finished or not."""
    try:
        return bool(read_json(Path(path) / GROUP)["attributes"]["format"] == FORMAT)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def damaged(place: Path, problem: BaseException) -> CohortError:
    """A part of a store cannot be read, whatever the reader says of it."""
    return CohortError(place, f"is damaged ({literal(brief(problem))}): {AGAIN}")


def write_group(folder: Path, attributes: dict[str, Any]) -> None:
    """Metadata of a zarr 3 group."""
    record = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    write_durably(folder / GROUP, json.dumps(record, indent=1))


def read_commit(folder: Path) -> Commit:
    """The committed cohort of a store."""
    if not folder.exists():
        raise FileNotFoundError(f"no cohort store {folder}")
    if not is_store(folder):
        raise CohortError(folder, "is not a cohort store of icofactor")
    file = folder / COMMIT
    if not file.exists():
        raise CohortError(folder, "was never finished: its writing was interrupted. Write it again")
    try:
        found = read_json(file)
        if not isinstance(found, dict):
            raise ValueError("it is not a record of names and values")
        kind = found.pop("format"), found.pop("version")
        if kind != (FORMAT, VERSION):
            raise ValueError(f"it is {kind[0]!r} of version {kind[1]!r}; this icofactor reads version {VERSION}")
        commit = Commit(**found)
        commit = Commit(
            **{
                **found,
                "chunks": (int(commit.chunks[0]), int(commit.chunks[1])),
                "parts": tuple((str(name), int(n)) for name, n in commit.parts),
                "subjects": tuple(map(str, commit.subjects)),
                "steps": tuple(dict(step) for step in commit.steps),
            }
        )
        _check_commit(commit)
        return commit
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError) as problem:
        what = f"is damaged, or of another version of icofactor ({literal(brief(problem))}): {AGAIN}"
        raise CohortError(file, what) from problem


def _check_commit(commit: Commit) -> None:
    # the names become paths: they must not lead out of the store
    if not re.fullmatch(_MESH, commit.mesh):
        raise ValueError(f"{commit.mesh!r} is not the name of a mesh")
    for name, _ in commit.parts:
        if not re.fullmatch(_PART, name):
            raise ValueError(f"{name!r} is not the name of a part")
    n_subjects = len(commit.subjects)
    if n_subjects == 0 or sum(n for _, n in commit.parts) != n_subjects or min(n for _, n in commit.parts) < 1:
        raise ValueError(f"its parts do not hold the {n_subjects} subjects it names")
    if len(set(commit.subjects)) != n_subjects:
        raise ValueError("it names a subject twice")
    check_words(commit.subjects, {})
    for name, column in commit.participants.items():
        if len(column["values"]) != n_subjects:
            raise ValueError(f"its column {name!r} has {len(column['values'])} values for {n_subjects} subjects")


def write_commit(folder: Path, commit: Commit, fresh: Iterable[str]) -> None:
    """Make a cohort the store's: the folders it names for the first time go to the disk, then one rename."""
    for name in fresh:
        _flush(folder / name)
    text = json.dumps({"format": FORMAT, "version": VERSION, **asdict(commit)}, indent=1, allow_nan=False)
    write_durably(folder / COMMIT, text)


def _flush(folder: Path) -> None:
    """Have all files of a folder on the disk, so that a commit never names what a power cut can still take."""
    for place, _, files in os.walk(folder):
        for name in files:
            sync(Path(place) / name)
        sync(Path(place))


def new_name(kind: str, number: int | None = None) -> str:
    """A name for a mesh or part that no earlier writer can have used."""
    return "-".join([kind, *([] if number is None else [f"{number:06d}"]), secrets.token_hex(4)])


def clean(folder: Path, commit: Commit | None) -> None:
    """Remove what no commit names: leavings of killed writers, and of the cohort before."""
    named = set() if commit is None else {commit.mesh, *(name for name, _ in commit.parts)}
    for place in folder.iterdir():
        if place.is_dir() and place.name not in named and re.fullmatch(f"{_MESH}|{_PART}", place.name):
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
            raise CohortError(folder, "another process is writing to it: wait until it has finished") from None
        yield


def array_metadata(folder: Path) -> dict[str, Any]:
    """Metadata of one array, refused unless it is an array of plain numbers with all its chunks there and whole."""
    file = folder / GROUP
    try:
        found = read_json(file)
        if not isinstance(found, dict):
            raise ValueError("it is not a record of names and values")
        if found["zarr_format"] != 3 or found["node_type"] != "array":
            raise ValueError("it is not an array of zarr 3")
        if found["data_type"] not in _NUMBERS:
            raise ValueError(f"it holds {found['data_type']!r}, not numbers")
        names = [codec["name"] for codec in found["codecs"]]
        if names != _CODECS or found.get("storage_transformers"):
            raise ValueError(f"its codecs are {names}, not {_CODECS}")
        if found["chunk_key_encoding"] != {"name": "default", "configuration": {"separator": "/"}}:
            raise ValueError("its chunks have unknown names")
        if found["chunk_grid"]["name"] != "regular":
            raise ValueError("its chunks are not regular")
        shape, chunks = found["shape"], chunk_shape(found)
        if len(shape) != len(chunks) or not all(isinstance(n, int) and n > 0 for n in [*shape, *chunks]):
            raise ValueError(f"its shape is {shape} in chunks of {chunks}")
    except (OSError, ValueError, LookupError, TypeError) as problem:
        raise damaged(file, problem) from problem
    size = chunk_bytes(found)
    for numbers in product(*(range(-(-n // step)) for n, step in zip(shape, chunks, strict=True))):
        check_chunk(folder, numbers, size)
    return dict(found)


def chunk_shape(metadata: dict[str, Any]) -> tuple[int, ...]:
    return tuple(metadata["chunk_grid"]["configuration"]["chunk_shape"])


def chunk_bytes(metadata: dict[str, Any]) -> int:
    """Size of each chunk's file."""
    return math.prod(chunk_shape(metadata)) * np.dtype(metadata["data_type"]).itemsize + _CHECKSUM_BYTES


def check_chunk(folder: Path, numbers: tuple[int, ...], size: int) -> None:
    """Refuse a chunk that is missing, which zarr would read as a constant, or cut short."""
    file = os.path.join(folder, "c", *map(str, numbers))
    try:
        found = os.stat(file).st_size
    except OSError:
        what = f"is missing: the cohort store is damaged, or was replaced while it was read; {AGAIN}"
        raise CohortError(file, what) from None
    if found != size:
        raise CohortError(file, f"has {found} bytes instead of {size}: the cohort store is damaged; {AGAIN}")


def write_array(folder: Path, values: np.ndarray) -> None:
    """A small array in one chunk."""
    array = new_array(folder, values.shape, values.shape, values.dtype)
    array[...] = values


def new_array(folder: Path, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: Any) -> Any:
    """An array to be filled, in the one form a store has."""
    import zarr
    from zarr.codecs import Crc32cCodec

    return zarr.create_array(
        zarr.storage.LocalStore(folder),
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        compressors=[Crc32cCodec()],
        fill_value=0,
        zarr_format=3,
        # else a chunk of zeros is left out, and could not be told from one that was lost
        config={"write_empty_chunks": True},
    )


def open_array(folder: Path) -> Any:
    """An array for reading, its metadata checked before."""
    import zarr

    try:
        return zarr.open_array(zarr.storage.LocalStore(folder, read_only=True), mode="r", zarr_format=3)
    except Exception as problem:  # whatever zarr misses in metadata that passed our own look
        raise damaged(folder / GROUP, problem) from problem


def shared_provenance(steps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What all inputs of a store have in common, and the steps themselves; one simulated input makes it simulated."""
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
