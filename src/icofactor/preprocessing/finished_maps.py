"""The loop over subjects: maps are made in parallel and kept in a folder, so that a run resumes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icofactor.cohort.cohort import Cohort
from icofactor.errors import ArgumentError, CohortError
from icofactor.io.archive import Arrays, read_arrays, write_arrays
from icofactor.io.atomic import atomic_path, remove_abandoned
from icofactor.io.guard import exists
from icofactor.io.url import local
from icofactor.preprocessing.subject_maps import SubjectMap
from icofactor.progress import Stages

# Subjects whose maps are in memory together while a store is written.
SUBJECTS_AT_ONCE = 64
# Longer names of subjects are shortened, because most disks refuse names above 255 bytes.
LONGEST_NAME = 120


class FinishedMaps:
    """A folder with one file per finished map.

    A file counts only for the settings and the input files that its map was made with; otherwise
    the map is made again.

    Parameters
    ----------
    folder : path
        Created if missing.
    settings : mapping
        Everything that changes a map besides its input files, as JSON holds it.
    """

    def __init__(self, folder: str | Path, settings: Mapping[str, Any]) -> None:
        self.folder = local(folder, "work_dir")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._settings = json.loads(json.dumps(settings))

    def load(self, key: str, inputs: Sequence[str]) -> Arrays | None:
        """Return the arrays saved under `key`, or None if there are none for these input files."""
        file = self._file(key)
        if not exists(file):
            return None
        try:
            header, arrays = read_arrays(file)
        except PermissionError:
            raise
        except Exception:  # zipfile, zlib and NumPy raise many kinds of errors for damaged files
            return None
        return arrays if header == self._header(inputs) else None

    def save(self, key: str, inputs: Sequence[str], arrays: Arrays) -> None:
        """Write arrays under `key`; the file appears whole or not at all."""
        with atomic_path(self._file(key), overwrite=True) as temporary:
            write_arrays(temporary, self._header(inputs), arrays)

    def remove(self, keys: Sequence[str]) -> None:
        """Remove the maps saved under these keys, and the folder unless other files are in it."""
        files = [self._file(key) for key in keys]
        remove_abandoned(self.folder)
        for file in files:
            file.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.npz"

    def _header(self, inputs: Sequence[str]) -> dict[str, Any]:
        return {"settings": self._settings, "inputs": list(inputs)}


@dataclass(frozen=True)
class MapTask:
    """A map to make.

    Attributes
    ----------
    subject, output : whose map, and which
    source : what the map is made from, as the function that makes it expects it
    files : all files that the map depends on
    """

    subject: str
    output: str
    source: Any
    files: Sequence[Path]

    @property
    def key(self) -> str:
        """Name of the finished map in the work folder."""
        return map_key(self.subject, self.output)

    def identity(self) -> list[str]:
        """Return sizes and times of last change of the files, to see whether they changed."""
        facts = []
        for file in self.files:
            status = file.stat()
            facts.append(f"{file.name}:{status.st_size}:{status.st_mtime_ns}")
        return facts


@dataclass(frozen=True)
class Outcome:
    """What became of a task.

    Attributes
    ----------
    is_reused : whether an earlier run had made the map
    problems : why there is no map: file or subject, and what is wrong; () if there is one
    """

    task: MapTask
    is_reused: bool = False
    problems: Sequence[tuple[str, str]] = ()


def map_key(subject: str, output: str) -> str:
    """Return the key of a subject's map in the work folder.

    A subject's name may have characters that a file's name must not have. Some disks take A for a,
    and Windows takes CON for a device.
    """
    safe = re.sub(r"[^a-z0-9_.-]", lambda match: f"={ord(match[0]):x}=", subject)
    if len(safe) > LONGEST_NAME:
        unique = hashlib.sha256(subject.encode()).hexdigest()[:16]
        safe = f"{safe[:LONGEST_NAME]}=={unique}"
    return f"s={safe}.{output}"


def make_maps(
    function: Callable[[Any], SubjectMap],
    tasks: Sequence[MapTask],
    work: FinishedMaps,
    n_procs: int,
    stage: str,
    progress: bool,
) -> list[Outcome]:
    """Make the maps that `work` lacks, in several processes, and keep them there.

    Parameters
    ----------
    function : makes the map of the `source` of a task
    stage : name for the progress bar
    """
    # Takes 0.1 s to import.
    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=min(n_procs, len(tasks)), return_as="generator_unordered", batch_size=1)
    # Results come as they are ready, so that the bar moves.
    outcomes = []
    advice = f"finished maps are kept in {work.folder}, and the same command resumes from there"
    try:
        with Stages(progress).stage(stage) as show:
            for outcome in pool(delayed(_make_map)(function, task, work) for task in tasks):
                outcomes.append(outcome)
                show(len(outcomes) / len(tasks))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; {advice}") from None
    except BrokenExecutor as error:
        raise OSError(
            f"a process of {n_procs} was killed, probably because memory ran out: pass a smaller "
            f"--n-procs (n_procs=...); {advice}"
        ) from error
    return outcomes


def _make_map(function: Callable[[Any], SubjectMap], task: MapTask, work: FinishedMaps) -> Outcome:
    """Make and keep one map, unless it is kept already."""
    try:
        inputs = task.identity()
        # A damaged file counts as none, and the map is made again.
        if work.load(task.key, inputs) is not None:
            return Outcome(task, is_reused=True)
        work.save(task.key, inputs, function(task.source).arrays())
    except CohortError as error:
        return Outcome(task, problems=tuple(error.problems))
    except ArgumentError as error:
        return Outcome(task, problems=((f"subject {task.subject}", str(error.message)),))
    except (ValueError, OSError, MemoryError) as error:
        # Some errors have no text.
        text = str(error) or type(error).__name__
        return Outcome(task, problems=((f"subject {task.subject}", text),))
    return Outcome(task)


def load_map(work: FinishedMaps, task: MapTask) -> SubjectMap:
    """Return a finished map."""
    arrays = work.load(task.key, task.identity())
    if arrays is None:
        problem = f"the map {task.key} was removed, or its input files changed, in the meantime"
        raise CohortError(str(work.folder), problem)
    return SubjectMap.of_arrays(arrays)


def input_records(work: FinishedMaps, task: MapTask) -> list[dict[str, Any]]:
    """Return the files that a map was made from, for the provenance."""
    return [
        {**record._asdict(), "bytes": Path(record.path).stat().st_size, "subject": task.subject}
        for record in load_map(work, task).records
    ]


def work_folder(out: Path, work_dir: str | Path | None) -> Path:
    """Return where finished maps are kept."""
    return out.with_name(f"{out.name}.work") if work_dir is None else Path(work_dir)


def cohort_blocks(
    tasks: Sequence[MapTask],
    row_of: Callable[[MapTask], NDArray[np.float32]],
    participants: Mapping[str, Any],
    **about: Any,
) -> Iterator[Cohort]:
    """Yield the cohort of the tasks, some subjects at a time.

    Parameters
    ----------
    row_of : returns the map of a task on all sites
    participants : column → one value per task
    about : attributes that all blocks share
    """
    for first in range(0, len(tasks), SUBJECTS_AT_ONCE):
        rows = slice(first, first + SUBJECTS_AT_ONCE)
        yield Cohort(
            X=np.stack([row_of(task) for task in tasks[rows]]),
            subjects=tuple(task.subject for task in tasks[rows]),
            participants={name: np.asarray(cells)[rows] for name, cells in participants.items()},
            **about,
        )
