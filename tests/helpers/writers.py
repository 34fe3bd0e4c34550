"""Processes that append to a store and are killed, or do so at the same time.

    python writers.py kill FOLDER 30     # appends that are killed at random moments
    python writers.py pair FOLDER 10     # pairs of appends at the same time

Each ends with an error if a subject was lost, changed or mixed up, and prints what happened.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.stores import BOTH, check_same, cohort
from icofactor.cohort import append_store, create_store, open_store
from icofactor.errors import CohortError

REFUSED = 3


def start_append(path: Path, n: int, first: int) -> int:
    """Append in a process of its own, which ends with 0, or REFUSED where another one writes."""
    process = os.fork()
    if process:
        return process
    try:
        append_store(path, cohort(n, first, BOTH))
    except CohortError as refusal:
        os._exit(REFUSED if "another process" in refusal.problem else 1)
    except BaseException:
        os._exit(1)
    os._exit(0)


def status_of(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def check(path: Path, batches: list[tuple[int, int]]) -> None:
    check_same(open_store(path), *(cohort(n, first, BOTH) for n, first in batches))


def kill(path: Path, n_kills: int) -> None:
    rng = np.random.default_rng(0)
    batches = [(20, 0)]
    begin = time.perf_counter()
    assert status_of(start_append(path, 9, 1000)) == 0
    seconds = time.perf_counter() - begin
    batches.append((9, 1000))
    n_killed = 0
    for attempt in range(n_kills):
        batch = (int(rng.integers(1, 20)), 2000 + 100 * attempt)
        process = start_append(path, *batch)
        time.sleep(rng.uniform(0, seconds))
        os.kill(process, signal.SIGKILL)
        n_killed += status_of(process) == -signal.SIGKILL
        if len(open_store(path)) > sum(n for n, _ in batches):
            batches.append(batch)
        check(path, batches)
    assert status_of(start_append(path, 5, 10**5)) == 0
    check(path, [*batches, (5, 10**5)])
    print(f"{n_killed} killed, {len(batches) - 2} had committed")


def pair(path: Path, n_pairs: int) -> None:
    batches = [(20, 0)]
    refused = 0
    for attempt in range(n_pairs):
        both = [(7, 1000 + 100 * attempt), (11, 1050 + 100 * attempt)]
        processes = [start_append(path, *batch) for batch in both]
        codes = [status_of(process) for process in processes]
        assert set(codes) <= {0, REFUSED} and 0 in codes, codes
        refused += codes.count(REFUSED)
        names = open_store(path).subjects
        done = [batch for batch, code in zip(both, codes, strict=True) if code == 0]
        batches += sorted(done, key=lambda batch: names.index(f"sub-{batch[1]:04d}"))
        check(path, batches)
    print(f"{refused} of {2 * n_pairs} refused")


if __name__ == "__main__":
    what, folder, number = sys.argv[1:]
    store = Path(folder) / "a.store"
    create_store(store, [cohort(20, 0, BOTH)], chunk_sites=100, chunk_subjects=8)
    {"kill": kill, "pair": pair}[what](store, int(number))
